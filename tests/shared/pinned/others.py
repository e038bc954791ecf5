"""Other decisions and texts of the compiler: memory plans of drawn graphs, and what ``explain`` prints."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from drawn_plans import DrawnPlan
from drawn_segments import DrawnSegments
from template_problems import CASES

import firebrick as fb
from pinned.emission import PROCESSORS, Texts, emitting, short
from pinned.functions import validity_lines

FORMS = ("graph", "groups", "specs", "naive", "code")


def _scores(x: Any, w: Any) -> Any:
    return fb.softmax(x @ w.T + 1.0, axis=-1)


def _normalized(x: Any, w: Any) -> Any:
    y = fb.reshape(fb.conv2d(x, w, padding=1), (2, 3, -1))
    return fb.sort(y - fb.mean(y, axis=2, keepdims=True), axis=1), fb.cumulative_sum(y, axis=2)


EXPLAINED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "scores": (_scores, ((64, 64), (64, 64))),
    "normalized": (_normalized, ((2, 3, 5, 4), (3, 3, 3, 3))),
}


def _explained(name: str, texts: Texts) -> list[str]:
    function, shapes = EXPLAINED[name]
    with fb.use_device("cpu"):
        arguments = [fb.ones(shape) for shape in shapes]
        graph = fb.jit(function).graph(*arguments)
        home = fb.device("cpu")
        with emitting(PROCESSORS["avx512"]):
            forms = home.backend.forms(graph, FORMS[:3], home)
            more = {form: home.backend.forms(graph, (form,), home) for form in FORMS[3:]}
            program = home.backend._compiled(graph, home, (), (), None)
            explained = program.explain(source=True)
    lines = [*forms.splitlines(), *explained.splitlines()]
    return [line for line in lines if line] + [f"{form} {short(text, texts)}" for form, text in more.items()]


def _planned(seed: str, texts: Texts) -> list[str]:
    plan = DrawnPlan(Random(int(seed))).plan()
    decided = (
        plan.order, sorted(plan.into.items()), sorted(plan.outs.items()), sorted(plan.dies.items()), plan.begin,
        sorted(plan.writes), sorted(plan.copied), plan.ready, plan.unplanned, plan.constants,
    )  # fmt: skip
    figures = f"peak {plan.peak} reused {plan.reused} donated {plan.donated} writes {sorted(plan.writes)}"
    return [f"{figures} {short(repr(decided), texts)} {short(str(plan), texts)}"]


def _in_segments(seed: str, texts: Texts) -> list[str]:
    """The order and segments of a drawn program, and its source."""
    drawn = DrawnSegments(Random(int(seed)))
    plan, parts = drawn.parts.plan, drawn.parts
    decided = (
        plan.order, sorted(plan.into.items()), sorted(plan.outs.items()), sorted(plan.dies.items()), plan.begin,
        sorted(plan.writes), sorted(plan.copied), plan.unplanned, plan.constants,
    )  # fmt: skip
    segments = [(s.nodes, s.calls, list(s.arrays), s.results, s.into) for s in parts.segments]
    places = sorted(parts.at.items()), sorted(parts.temporary.items()), sorted(parts.skipped)
    return [
        f"peak {plan.peak} reused {plan.reused} donated {plan.donated} segments {len(segments)} arena {parts.arena}",
        f"plan {short(repr(decided), texts)} calls {short(repr(segments), texts)} at {short(repr(places), texts)} "
        f"source {short(drawn.executable().source, texts)}",
    ]


FAMILIES: dict[str, Callable[[str, Texts], list[str]]] = {
    "explain": _explained, "plan": _planned, "segments": _in_segments, "validity": lambda name, texts: validity_lines(name),
}  # fmt: skip
"""Families: name within the family → its lines."""


def candidates() -> list[str]:
    """Names to choose from."""
    found = [f"explain:{name}" for name in EXPLAINED] + [f"validity:{name}" for name in CASES]
    return found + [f"{family}:{seed}" for family in ("plan", "segments") for seed in range(120)]
