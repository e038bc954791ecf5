"""Programs of random nodes with segments: each is run, its native calls in NumPy, and compared with the graph's operations."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from drawn_segments import DrawnMemory, DrawnSegments

import firebrick as fb
from firebrick.compiler.program import python, segments
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS

COUNT = 300


def inputs_of(drawn: DrawnSegments, columns: bool) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return [
        np.array(rng.integers(-90, 90, a.shape), a.dtype.np, order="F" if columns and i % 2 else "C")
        for i, a in enumerate(drawn.graph.inputs)
    ]


def run(drawn: DrawnSegments, columns: bool) -> None:
    """Run a program once: its results, and what of its inputs is left."""
    program, plan = drawn.executable(), drawn.parts.plan
    given = inputs_of(drawn, columns)
    before = [x.copy() for x in given]
    wanted = [np.array(x) for x in drawn.expected(before)]
    began: list[int] = []

    def begin(*ready: Any) -> None:
        began.append(1)
        assert all(np.array_equal(x, y) for x, y in zip(given, before, strict=True)), "an input is overwritten too early"
        assert len(ready) == bool(plan.ready)
        for position, x in zip(plan.ready, *ready, strict=True) if ready else ():
            assert np.array_equal(x, wanted[position])

    allocated = drawn.allocated
    allocated.live = allocated.peak = 0
    found = program(given, begin)
    for x, want in zip(found, wanted, strict=True):
        assert x.dtype == want.dtype
        assert np.array_equal(x, want)
    assert len(began) == bool(plan.writes)
    assert program.writes == plan.writes <= set(drawn.donate)
    assert drawn.within == 0
    for i, (x, y) in enumerate(zip(given, before, strict=True)):
        assert i in plan.writes or np.array_equal(x, y), "an input that is not donated is overwritten"
        assert i in plan.writes or not any(np.shares_memory(x, out) for out in found)
    for j, out in enumerate(found):
        assert not any(np.shares_memory(out, other) for other in found[:j])
    if not allocated.extra:
        assert plan.peak == drawn.parts.arena + allocated.peak
    del found, x, out
    assert allocated.live == 0, "the program keeps an array"


@pytest.mark.parametrize(("long", "large"), [(python.LONG, segments._LARGE), (2, 64)])
@pytest.mark.parametrize("columns", [False, True])
def test_random_programs_with_segments_compute_what_their_operations_do(
    long: int, large: int, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "LONG", long)
    monkeypatch.setattr(segments, "_LARGE", large)
    for seed in range(COUNT):
        drawn = DrawnSegments(Random(seed), views=columns)
        try:
            run(drawn, columns)
        except Exception as e:
            e.add_note(f"seed {seed}\n{drawn.graph}\n{drawn.executable().source}")
            raise


def test_recomputations_that_wait_for_a_large_host_node_are_ordered_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A native node that recomputes waits for all nodes before it, of which one is computed on the host as late as possible."""
    monkeypatch.setattr(segments, "_LARGE", 64)
    graph = Graph([Aval((4, 6), fb.int64)])
    graph.add(OPS["sort_values"], 0, axis=1, descending=False)
    graph.add(OPS["negative"], 0)
    graph.nodes[1] = replace(graph.nodes[1], region=1)
    graph.outputs = (1, 2)
    kinds = segments.Kinds(graph, [None, DrawnMemory((), (frozenset(),))])
    assert kinds.arrange([0, 1]) == [0, 1]
