"""Programs that read and change state in random ways do under jit what they do without it, call after call, on every engine.

``STATE_PROGRAMS_SEED`` is the first seed. A failure prints its seed and the smallest program found that still fails.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
from forced import kernels_of_any_size
from state_programs import CALLS, Outcome, Program, generate, run, shrunk

from firebrick.graph import reads, visit_code, visit_values, walk
from firebrick.graph.control import verbs
from firebrick.graph.record import Record

HOMES = ("numpy", "cpu", "torch:cpu")
FIRST = int(os.environ.get("STATE_PROGRAMS_SEED", "0"))
SIZE = 200  # of the net, which finds each planted fault
RUN, BLOCKS = 120, 8  # of a run of the tests, in parts that several processes share
SOAK = 1500  # programs, each on every engine and with kernels of any size


def _outcome(seed: int, home: str) -> Outcome:
    return run(generate(seed), home)


def _check(seed: int, home: str) -> Outcome:
    found = _outcome(seed, home)
    if found.wrong:

        def wrong(p: Program) -> bool:
            try:
                return bool(run(p, home).wrong)
            except Exception:  # noqa: BLE001 - a program that lost a line that others need
                return False

        smallest = shrunk(generate(seed), wrong)
        pytest.fail(f"on {home}: {run(smallest, home).wrong}\n{smallest}")
    return found


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_state_programs_do_under_jit_what_they_do_without(block: int) -> None:
    print(f"seeds {FIRST + block} to {FIRST + RUN - 1}, each {BLOCKS}th (STATE_PROGRAMS_SEED={FIRST})")
    seeds = range(FIRST + block, FIRST + RUN, BLOCKS)
    refused = [s for s in seeds if _check(s, HOMES[s % len(HOMES)]).refused]
    assert len(refused) <= len(seeds) // 4, "programs that jit refuses show nothing"


@pytest.mark.soak
@pytest.mark.parametrize("home", [*HOMES, "kernels of any size"])
@pytest.mark.parametrize("block", range(15))
def test_many_random_state_programs(block: int, home: str) -> None:
    forced = home not in HOMES
    for seed in range(FIRST + RUN + block, FIRST + RUN + SOAK, 15):
        with kernels_of_any_size() if forced else nullcontext():
            _check(seed, "cpu" if forced else home)


def test_a_seed_is_a_program() -> None:
    assert str(generate(7)) == str(generate(7)) != str(generate(8))
    assert len(generate(7).between) == CALLS - 1


# the net catches what it is for

_TABLE = tuple(row for row in walk.TABLE if row[1] is not visit_values.weak_collection)
_EXACT = {kind: walked for kind, walked in walk._EXACT.items() if walked is not visit_values.weak_collection}
Fault = tuple[Any, str, Any]
FAULTS: dict[str, list[Fault]] = {
    "scan stacks handles": [(verbs, "_owned", lambda result: result)],
    "the walk does not know getattr and vars": [(visit_code, "BY_VALUE", frozenset()), (reads, "BY_VALUE", frozenset())],
    "the walk does not know sys.modules": [(reads, "_MODULES_BY_NAME", frozenset())],
    "the walk does not know globals()": [(reads, "_ALL_GLOBALS", frozenset())],
    "the walk sees no ctypes and no mmap": [(visit_values, "content_of", lambda path, v: None)],
    "the walk sees no weak containers": [(walk, "TABLE", _TABLE), (walk, "_EXACT", _EXACT)],
    "the walk sees no decimal context": [(Record, "decimal", lambda self: None)],
    "exchanged tensors look alike": [(walk.Walk, "moved", lambda self, after: [])],
}

SHOWN = {
    "the walk does not know getattr and vars": 31, "the walk does not know sys.modules": 48,
    "the walk sees no ctypes and no mmap": 14, "the walk sees no weak containers": 101, "the walk sees no decimal context": 48,
    "exchanged tensors look alike": 116,
}  # fmt: skip
"""Seeds of programs that show a fault, which are tried first."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_net_finds_a_planted_fault_within_its_size(fault: str) -> None:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for where, name, value in FAULTS[fault]:
            patch.setattr(where, name, value)
        reads.reads_of.cache_clear()
        stack.callback(reads.reads_of.cache_clear)
        seed = next((s for s in (SHOWN.get(fault, 0), *range(SIZE)) if _outcome(s, "numpy").wrong), None)
    assert seed is not None, "no program of the net shows the fault"
    assert not _outcome(seed, "numpy").wrong


def test_a_failure_is_shrunk_to_the_lines_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "_owned", lambda result: result)
    seed = next(s for s in range(SIZE) if _outcome(s, "numpy").wrong)
    with pytest.raises(pytest.fail.Exception) as caught:
        _check(seed, "numpy")
    text = str(caught.value)
    assert f"seed {seed}" in text
    assert "fb.scan" in text
    assert len(re.findall("before call .: nothing", text)) == CALLS - 1
