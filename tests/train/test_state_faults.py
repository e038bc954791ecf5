"""Training that is interrupted, fails or is killed at random moments is as before or as after, and goes on to the same bits.

``STATE_FAULTS_SEED`` is the first seed; a failure prints its case.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import state_faults
from state_faults import CHANGES, Case, generate, run

from firebrick.core.journal import Journal
from firebrick.data import identity
from firebrick.graph.program import Program
from firebrick.train import settings, snapshots, standing
from firebrick.train.loop import Loop

FIRST = int(os.environ.get("STATE_FAULTS_SEED", "0"))
SIZE = {"step": 6, "update": 12, "fit": 8, "resume": 2}  # cases of a run of the tests; of resume, with each change
SOAK = {"step": 400, "update": 400, "fit": 600, "resume": 300}  # an engine


def cases(kind: str, count: int, engine: str = "numpy", *, jit: bool | None = None) -> list[Case]:
    """The first cases of a kind on an engine."""
    drawn = (generate(seed, (kind,), (engine,)) for seed in itertools.count(FIRST))
    return list(itertools.islice((c for c in drawn if jit in (None, c.jit)), count))


def cheap(kind: str) -> list[Case]:
    """Those of a run of the tests: one is a graph, which takes longer to compile than to run."""
    if kind in ("step", "update"):  # always compiled, never compiled
        return cases(kind, SIZE[kind])
    if kind == "resume":
        first = {c.change: c for c in reversed(cases(kind, 200, jit=False))}
        assert set(first) == {"", *CHANGES}
        return [*first.values(), *cases(kind, SIZE[kind])]
    return cases(kind, SIZE[kind], jit=False) + cases(kind, 1, jit=True)


@pytest.mark.parametrize("kind", SIZE)
def test_state_is_the_one_before_or_after_a_fault_and_goes_on(kind: str) -> None:
    assert [(c, o.wrong) for c in cheap(kind) if (o := run(c)).wrong] == []


def killed(first: int, count: int) -> list[list[Any]]:
    """Kill a process in each of some cases, and go on with another."""
    path = Path(state_faults.__file__)
    found = subprocess.run([sys.executable, str(path), str(first), str(count)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_runs_that_are_killed_at_random_calls_go_on_to_the_same_bits() -> None:
    outcomes = killed(FIRST, 4)
    assert len(outcomes) == 4
    assert [o for o in outcomes if o[1]] == []


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["numpy", "cpu", "torch:cpu"])
@pytest.mark.parametrize("kind", SOAK)
def test_many_faults(kind: str, engine: str) -> None:
    assert [(c, o.wrong) for c in cases(kind, SOAK[kind], engine) if (o := run(c)).wrong] == []


@pytest.mark.soak
def test_many_runs_that_are_killed() -> None:
    assert [o for o in killed(FIRST, 400) if o[1]] == []


def test_a_seed_is_a_case() -> None:
    assert generate(7) == generate(7) != generate(8)


# the net catches what it is for


def nothing(*_: Any, **__: Any) -> None: ...


Fault = tuple[str, Any, str, Any]
FAULTS: dict[str, Fault] = {
    "an eager step keeps what it changed before it failed": ("fit", Journal, "restore", nothing),
    "an epoch that was left begins again": ("fit", Loop, "_keep_place", nothing),
    "cursors do not say what differs": ("resume", identity, "differences", lambda *cursors: []),
    "changed settings are not said": ("resume", settings, "say_changes", nothing),
    "a refused checkpoint leaves the averages changed": ("resume", standing, "give_back", None),
}  # fmt: skip


def careless(found: Any, model: Any, optimizer: Any, ema: Any, then: Any) -> None:
    """``give_back`` that does not look whether all can be given back."""
    found.load_into(model)
    optimizer.load_state_dict(found.optimizer)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_within_its_size(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, where, name, value = FAULTS[fault]
    if value is None:
        where, value = snapshots, careless
    some = [c for c in cheap(kind) if not c.jit and (kind != "resume" or c.change in ("order", "clip", "optimizer"))]
    monkeypatch.setattr(where, name, value)
    assert any(run(c).wrong for c in some)


def test_a_graph_that_changes_some_of_its_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rebind, runs = Program._rebind, itertools.count()

    kept: list[Any] = []

    def half(self: Any, handles: Any, *args: Any) -> None:
        rebind(self, handles, *args)
        changed = [handles[place] if handle is None else handle for place, handle in self._changes]
        run = next(runs)  # two before the one that is counted, two before the one that fails
        if run == 4:
            kept.extend(t.detach() for t in changed)
        if run != 5:
            return
        for t, old in list(zip(changed, kept, strict=True))[: len(changed) // 2]:
            t.storage = old.storage
        raise state_faults.Raised

    monkeypatch.setattr(Program, "_rebind", half)
    case = replace(cases("step", 1)[0], at=1 - 1e-9)
    assert "a state between two" in run(case).wrong
