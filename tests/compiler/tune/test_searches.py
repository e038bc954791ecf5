"""A search with a bench that answers by a table: what is tried in which order, what wins, and what is barred.

Each line of ``SEARCHES`` gives the variants (order of bits, estimated time), what the bench answers, and all calls and results
that are expected. Nothing is compiled or run.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest

from firebrick.compiler.tune import progress as progress_module
from firebrick.compiler.tune import searching
from firebrick.compiler.tune.progress import progress
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.searching import search
from firebrick.compiler.tune.variant import DEFAULT, KernelProblem, KernelVariant, add_variants, added, problem_of

PROBLEM = KernelProblem("Map", "structure", (64, 3), "a device", 2, "a kernel")


@dataclass
class Answers:
    """A bench, and all that it was asked.

    Attributes:
        us: Microseconds of variants, in quick samples and in the last ones; None where a variant does not return.
        wrong: What is wrong with variants.
        bound_us: As of a bench.
    """

    us: dict[str, tuple[float | None, float | None]]
    wrong: dict[str, str] = field(default_factory=dict)
    bound_us: float = 0.0
    asked: list[str] = field(default_factory=list)

    def check(self, variant: KernelVariant) -> str:
        self.asked.append(f"check {variant.name}")
        return self.wrong.get(variant.name, "")

    def times(self, variants: Sequence[KernelVariant], rounds: int) -> dict[str, list[float]] | str:
        names = [v.name for v in variants]
        self.asked.append(f"{rounds} of {' '.join(names)}")
        found = {n: self.us.get(n, (50.0, 50.0))[rounds > 3] for n in names}
        missing = next((n for n, us in found.items() if us is None), None)
        # an outlier on each side, which a median does not take
        return missing or {n: [us / 10, us, us * 100] for n, us in found.items() if us is not None}

    def source(self, variant: KernelVariant) -> str:
        return f"source of {variant.name}"


def variants(text: str) -> list[KernelVariant]:
    """``a same 3, b other 5``: name, order and cost; the default first."""
    found = [KernelVariant(DEFAULT, "same", list)]
    for part in text.split(", ") if text else ():
        name, order, cost = part.split()
        found.append(KernelVariant(name, order, list, cost_us=float(cost)))
    return found


# name: variants, answers, known → calls, the choices of the same order and of any, times, what is barred
SEARCHES: dict[str, tuple[str, Answers, tuple[str, ...], list[str], tuple[str, str], dict[str, float], dict[str, str]]] = {
    "the default alone": (
        "", Answers({DEFAULT: (9, 8)}), (), ["check default", "3 of default"], (DEFAULT, DEFAULT), {DEFAULT: 9}, {},
    ),
    "a faster one wins, and they are checked by estimated time": (
        "a same 5, b same 3", Answers({DEFAULT: (10, 10), "a": (9, 9), "b": (8, 8)}), (),
        ["check default", "3 of default", "check b", "3 of b", "check a", "3 of a", "11 of default a b"],
        ("b", "b"), {DEFAULT: 10, "a": 9, "b": 8}, {},
    ),
    "of those within 3 %, the first": (
        "a same 5, b same 3", Answers({DEFAULT: (10, 10), "a": (9, 8.1), "b": (8, 7.9)}), (),
        ["check default", "3 of default", "check b", "3 of b", "check a", "3 of a", "11 of default a b"],
        ("a", "a"), {DEFAULT: 10, "a": 8.1, "b": 7.9}, {},
    ),
    "exactly 3 %": (
        "a same 5", Answers({DEFAULT: (100, 100), "a": (97, 97)}), (),
        ["check default", "3 of default", "check a", "3 of a", "11 of default a"],
        (DEFAULT, DEFAULT), {DEFAULT: 100, "a": 97}, {},
    ),
    "another order wins for any order alone": (
        "a same 1, b other 2", Answers({DEFAULT: (10, 10), "a": (9, 9), "b": (8, 8)}), (),
        ["check default", "3 of default", "check a", "3 of a", "check b", "3 of b", "11 of default a b"],
        ("a", "b"), {DEFAULT: 10, "a": 9, "b": 8}, {},
    ),
    "what is far slower is not measured further, but for the default": (
        "a same 1, b same 2, c same 3", Answers({DEFAULT: (90, 90), "a": (10, 10), "b": (13.3, 5), "c": (13.4, 5)}), (),
        ["check default", "3 of default", "check a", "3 of a", "check b", "3 of b", "check c", "3 of c", "11 of default a b"],
        ("b", "b"), {DEFAULT: 90, "a": 10, "b": 5, "c": 13.4}, {},
    ),
    "it ends at 90 % of the speed of the device": (
        "a same 1, b same 2", Answers({DEFAULT: (20, 20), "a": (10, 10)}, bound_us=9.0), (),
        ["check default", "3 of default", "check a", "3 of a", "11 of default a"], ("a", "a"), {DEFAULT: 20, "a": 10}, {},
    ),
    "and goes on below": (
        "a same 1, b same 2", Answers({DEFAULT: (20, 20), "a": (10, 10), "b": (19, 19)}, bound_us=8.9), (),
        ["check default", "3 of default", "check a", "3 of a", "check b", "3 of b", "11 of default a"],
        ("a", "a"), {DEFAULT: 20, "a": 10, "b": 19}, {},
    ),
    "a wrong one is barred": (
        "a same 1, b same 2", Answers({DEFAULT: (10, 10), "a": (1, 1), "b": (8, 8)}, {"a": "other bits"}), (),
        ["check default", "3 of default", "check a", "check b", "3 of b", "11 of default b"],
        ("b", "b"), {DEFAULT: 10, "b": 8}, {"a": "other bits"},
    ),
    "one that is barred already is not tried": (
        "a same 1, b same 2", Answers({DEFAULT: (10, 10), "a": (1, 1), "b": (8, 8)}), ("a",),
        ["check default", "3 of default", "check b", "3 of b", "11 of default b"], ("b", "b"), {DEFAULT: 10, "b": 8}, {},
    ),
    "one that did not return in quick samples is measured with all": (
        "a same 1, b same 2", Answers({DEFAULT: (10, 10), "a": (None, 7), "b": (9, 9)}), (),
        ["check default", "3 of default", "check a", "3 of a", "check b", "3 of b", "11 of default a b"],
        ("a", "a"), {DEFAULT: 10, "a": 7, "b": 9}, {},
    ),
    "one that does not return at last is barred, and the others are measured": (
        "a same 1, b same 2", Answers({DEFAULT: (10, 10), "a": (5, None), "b": (6, 6)}), (),
        ["check default", "3 of default", "check a", "3 of a", "check b", "3 of b", "11 of default a b", "11 of default b"],
        ("b", "b"), {DEFAULT: 10, "a": 5, "b": 6}, {"a": "it did not return, after it had passed the check"},
    ),
    "a default that does not return at last means a busy machine": (
        "a same 1", Answers({DEFAULT: (10, None), "a": (5, 5)}), (),
        ["check default", "3 of default", "check a", "3 of a", "11 of default a"],
        (DEFAULT, DEFAULT), {DEFAULT: 10, "a": 5}, {},
    ),
    "a default that does not return at first has no time": (
        "a same 1", Answers({DEFAULT: (None, 6), "a": (5, 5)}), (),
        ["check default", "3 of default", "check a", "3 of a", "11 of default a"], ("a", "a"), {DEFAULT: 6, "a": 5}, {},
    ),
    "without a default that is right, nothing is tried": (
        "a same 1", Answers({"a": (1, 1)}, {DEFAULT: "no answer"}), (), ["check default"], (DEFAULT, DEFAULT), {},
        {DEFAULT: "no answer"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_as_listed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, bench, known, asked, (choice, any_order), times, barred = SEARCHES[name]
    reports: list[tuple[Any, ...]] = []
    monkeypatch.setattr(searching, "write_report", lambda *args: reports.append(args) or "FILE")
    bench.asked = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = search(PROBLEM, variants(text), bench, dict.fromkeys(known, "before"))
    assert bench.asked == asked
    assert (found.choice, found.any_order) == (choice, any_order)
    assert found.times == times
    assert found.barred == barred
    assert (found.problem, found.structure, found.text) == (PROBLEM.id, "structure", "a kernel")
    if DEFAULT in barred:
        expected = [f"the default kernel of a kernel could not be checked, and its variants are not tried: {barred[DEFAULT]}"]
    else:
        assert reports == [(PROBLEM, n, reason, f"source of {n}") for n, reason in barred.items()]
        expected = [f"variant {n!r} of a kernel is barred: {reason}; report: FILE" for n, reason in barred.items()]
    assert [str(w.message) for w in said] == expected
    assert all(w.category is TuningWarning for w in said)


def test_as_many_are_tried_as_is_said_those_of_the_lowest_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MOST", 3)
    bench = Answers({})
    search(PROBLEM, variants("a same 5, b same 1, c same 4, d same 2, e same 3"), bench, {"d": "before"})
    checked = [x.removeprefix("check ") for x in bench.asked if x.startswith("check")]
    assert checked == [DEFAULT, "b", "e", "c"]
    assert bench.asked[-1] == "11 of default b c e"


def test_a_report_that_could_not_be_written_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "write_report", lambda *args: None)
    with pytest.warns(TuningWarning, match="is barred: wrong$"):
        search(PROBLEM, variants("a same 1"), Answers({}, {"a": "wrong"}), {})


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for stream, after in ((Terminal(), 0.0), (Terminal(), 1e6), (StringIO(), 0.0)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress_module, "AFTER", after)
        with progress("tuning a kernel", 4) as advance:
            for _ in range(2):
                advance()
            if isinstance(stream, Terminal) and not after:
                for _ in range(2000):
                    if "50%" in stream.getvalue():
                        break
                    progress_module.threading.Event().wait(0.002)
        seen.append(stream.getvalue())
    assert "tuning a kernel" in seen[0]
    assert "50%" in seen[0]
    assert seen[1:] == ["\n" * seen[1].count("\n"), ""]


def test_a_problem_is_known_by_all_but_its_text() -> None:
    import firebrick as fb
    from firebrick.compiler.spec import kinds

    fields = ("Map", "structure", (64, 3), "a device", 2)
    assert KernelProblem(*fields, "another text").id == PROBLEM.id
    for k, other in enumerate(("Copy", "another", (64, 4), "b", 1)):
        assert KernelProblem(*fields[:k], other, *fields[k + 1 :]).id != PROBLEM.id
    graph = fb.jit(lambda x: fb.sin(x) * 2.0 + fb.sin(x * 2.0)).graph(fb.ones((2, 3)))
    problem = problem_of(graph, kinds.spec_of(graph), "a device")
    assert (problem.kind, problem.device, problem.threads) == ("Map", "a device", 1)
    assert problem.text == "sin multiply add float32[2,3] → float32[2,3]"
    assert problem_of(graph, kinds.spec_of(graph), "a device", 3).threads == 3


def test_added_variants_are_offered_until_they_are_withdrawn() -> None:
    default, *_ = variants("")
    one = add_variants(lambda spec, problem, d: [KernelVariant(f"{spec} {problem.text} {d.name}", "same", list)])
    other = add_variants(lambda spec, problem, d: variants("a same 1")[1:])
    try:
        assert [v.name for v in added("spec", PROBLEM, default)] == ["spec a kernel default", "a"]
        assert added("spec", PROBLEM, default)[1].valid_for(PROBLEM)
        one()
        assert [v.name for v in added("spec", PROBLEM, default)] == ["a"]
    finally:
        other()
    assert added("spec", PROBLEM, default) == []
