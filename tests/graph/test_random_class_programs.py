"""Random classes whose methods call each other do under jit what they do without it, whatever is changed between calls.

``CLASS_PROGRAMS_SEED`` is the first seed. A failure prints its seed and the program with the changes that make it fail.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from class_programs import CALLS, World, generate, run, shrunk

import firebrick as fb
from firebrick.graph import visit_code
from firebrick.graph.record import Record
from firebrick.graph.uses import Uses, uses_of

FIRST = int(os.environ.get("CLASS_PROGRAMS_SEED", "0"))
SIZE, RUN, SOAK = 160, 96, 8000  # of the net that finds each planted fault, of a run of the tests, of soak


def _check(seed: int) -> int:
    found = run(generate(seed))
    if found.wrong:
        smallest = shrunk(generate(seed))
        pytest.fail(f"{run(smallest).wrong}\n{smallest}")
    return found.traces


@pytest.mark.parametrize("block", range(4))
def test_random_classes_do_under_jit_what_they_do_without(block: int) -> None:
    print(f"seeds {FIRST + block} to {FIRST + RUN - 1}, each 4th (CLASS_PROGRAMS_SEED={FIRST})")
    traces = [_check(s) for s in range(FIRST + block, FIRST + RUN, 4)]
    assert min(traces) < CALLS, "each change made a new graph: the programs show nothing of what is not read"


@pytest.mark.soak
@pytest.mark.parametrize("block", range(16))
def test_many_random_classes(block: int) -> None:
    for seed in range(FIRST + RUN + block, FIRST + RUN + SOAK, 16):
        _check(seed)


def test_a_seed_is_a_program_of_classes_that_runs() -> None:
    assert str(generate(7)) == str(generate(7)) != str(generate(8))
    ran = 0
    for seed in range(30):
        world = World(generate(seed))
        ran += world.outcome(world.space["step"])[0] == "value"
    assert ran > 20


# the net catches what it is for


def _without(**parts: Any) -> Any:
    def uses(code: Any) -> Uses:
        return replace(uses_of(code), **parts)

    return uses


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "methods pass on nothing": (visit_code, "_passes_on", lambda fn: False),
    "descriptors are given nothing": (visit_code, "_binds", lambda member: False),
    "code takes no variable": (visit_code, "uses_of", _without(variables=frozenset())),
    "code takes no attribute": (visit_code, "uses_of", _without(attributes=frozenset())),
    "code reveals nothing": (visit_code, "uses_of", _without(reveals=False)),
    "no object is had whole": (Record, "takes", lambda self, kind: None),
    "no object is called": (Record, "calls", lambda self, kind: None),
    "Python asks for no attribute": (Record, "follows", lambda self, kind, name: name in self.names),
    "what is found late is not known": (Record, "known", lambda self: ()),
}


SHOWN = {"code takes no variable": 25, "code reveals nothing": 80}
"""Seeds of programs that show a fault, which are tried first."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_net_finds_a_planted_fault_of_the_walk(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        patch = stack.enter_context(monkeypatch.context())
        patch.setattr(*FAULTS[fault])
        found = next((s for s in (SHOWN.get(fault, 0), *range(SIZE)) if run(generate(s)).wrong), None)
    assert found is not None, "no program of the net shows the fault"
    assert not run(generate(found)).wrong


def test_a_failure_is_shrunk_to_the_changes_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Record, "fresh", lambda self: True)
    seed = next(s for s in range(SIZE) if run(generate(s)).wrong)
    smallest = shrunk(generate(seed))
    assert run(smallest).wrong
    assert sum(map(len, smallest.between)) == 1
    assert fb.jit(lambda x: x)(fb.ones(1)).item() == 1.0
