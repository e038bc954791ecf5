"""Programs of random nodes with segments: each is run, its native calls in NumPy, and compared with the graph's operations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from drawn_segments import DrawnMemory, DrawnSegments, run_in_numpy

import firebrick as fb
from firebrick.compiler.program import python, segments
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS

COUNT = 300


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
            run_in_numpy(drawn, columns)
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


def test_a_large_host_node_is_computed_when_no_native_node_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_LARGE", 64)
    graph = Graph([Aval((4, 6), fb.int64), Aval((3,), fb.int64)])
    graph.add(OPS["sort_values"], 0, axis=1, descending=False)  # large
    graph.add(OPS["sort_values"], 1, axis=0, descending=False)
    graph.add(OPS["negative"], 3)
    graph.outputs = (2, 4)
    kinds = segments.Kinds(graph, [None, None, DrawnMemory((), (frozenset(),))])
    assert kinds.arrange([0, 1, 2]) == [1, 2, 0]
