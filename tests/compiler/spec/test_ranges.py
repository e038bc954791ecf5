"""What ranges of integers prove: no value lies outside of the range that is known of it, and no check fails that is proved."""

from __future__ import annotations

import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from graphs import passing_op

import firebrick as fb
from firebrick.compiler.spec import ranges
from firebrick.compiler.spec.ranges import KEPT, Ranges
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, Node, interpret
from firebrick.ir.index_check import CHECK_INDICES
from firebrick.ops import OPS

SEEDS = 4000 if os.environ.get("FIREBRICK_SOAK") else 300
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def _range(x: Any) -> tuple[int, int] | None:
    x = np.asarray(x)
    return (int(x.min()), int(x.max())) if x.dtype.kind in "biu" and x.size else None


def _values(graph: Graph, inputs: list[np.ndarray[Any, Any]]) -> dict[int, np.ndarray[Any, Any]]:
    """Every value of a graph."""
    every = Graph(graph.inputs, graph.nodes, tuple(range(len(graph.avals))))
    with np.errstate(all="ignore"):
        found = interpret(every, inputs, lambda op, xs, params: op.reference(*xs, **params))
    return dict(enumerate(map(np.asarray, found)))


def _check(graph: Graph, inputs: list[np.ndarray[Any, Any]]) -> int:
    """Compare what is known of the values with them; returns of how many nodes something is known beyond their dtype."""
    found = Ranges(graph, conditions=range(len(graph.inputs), len(graph.avals)), indices=False)
    known = found.known([_range(inputs[i]) for i in found.inputs])
    values, tighter = _values(graph, inputs), 0
    for v, (least, most) in known.items():
        x = values[v]
        if x.size and x.dtype.kind in "biu":
            assert (least, most) == (min(least, int(x.min())), max(most, int(x.max()))), (graph.avals[v], v, x)
            full = (0, 1) if x.dtype.kind == "b" else (int(np.iinfo(x.dtype).min), int(np.iinfo(x.dtype).max))
            tighter += v >= len(graph.inputs) and (least, most) != full
    return tighter


@pytest.mark.parametrize(
    "name", sorted(n for n, op in OPS.items() if op.control is None and not {*INTEGERS}.isdisjoint(op.dtypes))
)
def test_no_result_of_an_op_lies_outside_of_its_range(name: str) -> None:
    op = OPS[name]
    for dtype in (d for d in INTEGERS if d in op.dtypes):
        for sample in op.samples(np.random.default_rng(0), dtype):
            operands = [np.asarray(x) for x in sample.inputs]
            graph = Graph([Aval(x.shape, fb.dtype(x.dtype)) for x in operands])
            graph.outputs = graph.add(op, *range(len(operands)), **sample.params)
            _check(graph, operands)


ONE, TWO = (
    sorted(
        n for n, op in OPS.items()
        if op.fusion == "map" and op.scalar is not None and "int32" in op.dtypes and len(op.operands) == k
        and {p for p in inspect.signature(op.reference).parameters.values() if p.kind is p.KEYWORD_ONLY} == set()
    )
    for k in (1, 2)
)  # fmt: skip
"""Elementwise operations of integers."""


def _drawn(seed: int) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """Integers and bools that are compared, chosen, computed with, moved and reduced; small and large ones."""
    rng = np.random.default_rng(seed)
    dtypes = [str(rng.choice(INTEGERS[:-1])), "bool"]
    inputs = []
    for _ in range(3):
        info = np.iinfo(dtypes[0])
        least = max(int(info.min), int(rng.choice([-3, 0, 1, info.min])))
        most = min(int(info.max), max(least, int(rng.choice([0, 2, 9, info.max]))))
        inputs.append(rng.integers(least, most, (2, 3), dtype=dtypes[0], endpoint=True))
    inputs.append(rng.random((2, 3)) < rng.choice([0.0, 0.5, 1.0]))
    graph = Graph([Aval(x.shape, fb.dtype(x.dtype)) for x in inputs])

    def of(kind: str, shape: tuple[int, ...] | None = None) -> int:
        found = [
            v for v, a in enumerate(graph.avals)
            if (a.dtype == fb.bool) == (kind == "bool") and a.shape in ([(2, 3), (1, 3), ()] if shape is None else [shape])
        ]  # fmt: skip
        return int(rng.choice(found))

    for _ in range(12):
        kind = int(rng.integers(11))
        if kind == 0:
            graph.add(OPS[str(rng.choice(["add", "subtract", "multiply", "minimum", "maximum"]))], of("int"), of("int", (2, 3)))
        elif kind == 1:
            x = of("int")
            graph.add(
                OPS[str(rng.choice(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]))],
                x,
                of("int", (2, 3)),
            )
        elif kind == 2:
            graph.add(OPS[str(rng.choice(["logical_and", "logical_or", "logical_xor"]))], of("bool"), of("bool", (2, 3)))
        elif kind == 3:
            graph.add(OPS["where"], of("bool"), of("int"), of("int", (2, 3)))
        elif kind == 4:
            value = np.asarray(rng.integers(0, 5), dtypes[0])
            graph.add(CONSTANT, value=value)
        elif kind == 5:
            x = of("int", (2, 3))
            graph.add(OPS["pad"], x, widths=((1, 0), (0, 0)), value=int(rng.integers(0, 7)))
            graph.add(OPS["slice"], len(graph.avals) - 1, starts=(1, 0), stops=(3, 3), steps=(1, 1))
        elif kind == 6:
            graph.add(OPS[str(rng.choice(["all", "any"]))], of("bool", (2, 3)), axes=(0, 1), keepdims=False)
        elif kind == 7:
            graph.add(OPS[str(rng.choice(["min", "max", "sum"]))], of("int", (2, 3)), axes=(0,), keepdims=True)
        elif kind in (8, 9):
            name = str(rng.choice(TWO if kind == 8 else ONE))
            operands = [of("int"), of("int", (2, 3))][kind - 8 :]
            if dtypes[0] in OPS[name].dtypes:
                graph.add(OPS[name], *operands)
        else:
            graph.add(OPS["logical_not"], of("bool"))
    return graph, inputs


def test_no_value_of_random_graphs_lies_outside_of_its_range() -> None:
    tighter = sum(_check(*_drawn(seed)) for seed in range(SEEDS))
    assert tighter > 3 * SEEDS  # or the ranges would say nothing


def _labels(size: int = 5) -> Graph:
    """Indices that are compared with a range, and select elements of another array."""
    graph = Graph([Aval((4, size), fb.float32), Aval((4,), fb.int64)])
    (low,) = graph.add(CONSTANT, value=np.asarray(0))
    (high,) = graph.add(CONSTANT, value=np.asarray(size))
    (first,) = graph.add(OPS["greater_equal"], 1, low)
    (second,) = graph.add(OPS["less"], 1, high)
    (both,) = graph.add(OPS["logical_and"], first, second)
    (every,) = graph.add(OPS["all"], both, axes=(0,), keepdims=False)
    (column,) = graph.add(OPS["reshape"], 1, shape=(4, 1))
    (found,) = graph.add(OPS["gather"], 0, column, axis=1)
    graph.outputs = (found, every)
    return graph


def test_labels_of_a_loss() -> None:
    graph = _labels()
    both, condition, index = Ranges(graph, graph.outputs[1:]), Ranges(graph, graph.outputs[1:], False), Ranges(graph)
    assert both.inputs == condition.inputs == index.inputs == [1]
    for given, inside, reachable in (
        ((0, 4), True, True), ((1, 1), True, True), ((0, 5), False, False), ((-1, 4), False, True), ((-5, -5), False, True),
        ((-6, 0), False, False), ((7, 9), False, False), (None, False, False), ((0, 3), True, True),
    ):  # fmt: skip
        for _ in range(2):  # remembered, too
            assert [r.hold([given]) for r in (condition, both, index)] == [inside, inside, reachable], given


def test_a_reduction_of_no_elements_is_not_that_of_others() -> None:
    for name, given, proved in (("any", (1, 1), False), ("all", (0, 0), False), ("any", (0, 0), False)):
        graph = Graph([Aval((0,), fb.bool)])
        graph.outputs = graph.add(OPS[name], 0, axes=(0,), keepdims=False)
        found = Ranges(graph, graph.outputs)
        assert found.hold([given for _ in found.inputs]) is proved


def test_what_nothing_is_known_of_is_not_proved() -> None:
    graph = Graph([Aval((4, 5), fb.float32), Aval((4,), fb.int64)])
    (double,) = graph.add(OPS["add"], 1, 1)
    (wide,) = graph.add(OPS["cumulative_sum"], double, axis=0, reverse=False)
    graph.outputs = graph.add(OPS["take"], 0, wide, axis=1)
    assert Ranges(graph).inputs == []
    assert not Ranges(graph).hold([])
    graph = Graph([Aval((4, 5), fb.float32), Aval((4,), fb.int64)])
    (double,) = graph.add(OPS["add"], 1, 1)
    graph.add(CHECK_INDICES, double, size=5, of="take")
    graph.outputs = graph.add(OPS["tanh"], 0)
    found = Ranges(graph)
    assert found.hold([(0, 2)])
    assert not found.hold([(0, 3)])
    assert not found.hold([(0, (1 << 63) - 1)])  # twice that is no int64


@pytest.mark.parametrize("checks", [True, False])
def test_a_kernel_with_checks_is_not_proved(checks: bool) -> None:
    op = replace(passing_op("kernel"), program=SimpleNamespace(checks=checks))
    graph = Graph([Aval((4,), fb.int64)])
    graph.nodes.append(Node(op, (0,), {}, 1, tuple(graph.inputs)))
    graph.outputs = (1,)
    assert Ranges(graph).inputs == []
    assert Ranges(graph).hold([]) is not checks


def test_ranges_that_were_proved_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Ranges(_labels(100))
    proofs: list[Any] = []
    prove = Ranges._prove

    def counted(self: Ranges, box: Any) -> bool:
        proofs.append(box)
        return prove(self, box)

    monkeypatch.setattr(ranges.Ranges, "_prove", counted)
    rng = np.random.default_rng(0)
    for _ in range(500):
        low, high = sorted(rng.integers(0, 100, 2).tolist())
        assert found.hold([(low, high)])
    assert len(proofs) < 60
    assert len(found._proved) <= KEPT
    for k in range(50):
        assert not found.hold([(-200 - k, 3)])
        assert not found.hold([(-200 - k, 3)])
    assert len(found._open) <= KEPT
    assert len(proofs) < 60 + 50


def test_several_threads_prove_at_once() -> None:
    found, before = Ranges(_labels(1000)), sys.getswitchinterval()

    def prove(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(3000):
            if rng.random() < 0.1:
                found._proved.clear()
            low, high = sorted(rng.integers(0, 1000, 2).tolist())
            held += [found.hold([(low, high)]), not found.hold([(-5000 - low, high)])]
        return all(held)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(prove, range(4)))
    finally:
        sys.setswitchinterval(before)
