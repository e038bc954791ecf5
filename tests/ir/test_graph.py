"""Graphs by hand: appending, running node by node, what nodes check before they run, keys, and how graphs print."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from graphs import passing_op

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.ir import Graph, Node, interpret
from firebrick.ir.index_check import CHECK_INDICES, checked, holds, raises
from firebrick.ir.keys import key_of
from firebrick.ir.text import show, show_node

OPS = fb.ops.OPS
X, INDEX = Aval((4,), fb.float32), Aval((2,), fb.int64)


@pytest.mark.parametrize("wrong", [2, -1])
def test_an_operand_that_is_not_defined_yet_is_refused(wrong: int) -> None:
    g = Graph([X, X])
    with pytest.raises(fb.ShapeError, match=rf"operands are defined before it\nReceived: \(0, {wrong}\) of 2"):
        g.add(OPS["add"], 0, wrong)
    assert (g.nodes, g.size) == ([], 2)


@pytest.mark.parametrize("given", [[], [1, 2]])
def test_a_graph_runs_with_all_of_its_inputs_only(given: list[int]) -> None:
    with pytest.raises(fb.ShapeError, match=rf"takes its inputs in order\nReceived: {len(given)} of 1"):
        interpret(Graph([X], outputs=(0,)), given, lambda *_: None)


class Value:
    """Stands for an array."""


def test_no_value_outlives_its_last_use_by_more_than_one_operation() -> None:
    g = Graph([X])
    a, _ = g.add(OPS["split"], 0, sizes=(2, 2), axis=0)
    (b,) = g.add(OPS["exp"], a)
    (c,) = g.add(OPS["add"], b, a)
    (d,) = g.add(OPS["multiply"], c, c)
    g.outputs = (d, b)
    alive: WeakSet[Value] = WeakSet()
    before: list[int] = []

    def execute(op: Any, inputs: Any, params: Any) -> Any:
        before.append(len(alive))
        made = (Value(), Value()) if op.name == "split" else Value()
        for value in made if type(made) is tuple else (made,):
            alive.add(value)
        return made

    found = interpret(g, [Value()], execute)
    assert before == [0, 2, 2, 2]  # both halves; a and b; b and c
    assert len(alive) == len(set(found)) == 2
    assert g.last_uses() == {0: 0, a: 2, c: 3}


@pytest.mark.parametrize(
    ("value", "within"),
    [([-3, 2], True), ([3], False), ([-4], False), ([0, 3], False), ([-4, 0], False), ([], True)],
)
def test_a_constant_index_needs_no_check_if_it_lies_in_its_axis(value: list[int], within: bool) -> None:
    g = Graph([INDEX])
    g.constant(np.asarray(value, np.int64))
    assert holds(g.nodes[0], 3) is within


def test_only_a_constant_is_known_to_lie_in_its_axis() -> None:
    g = Graph([INDEX])
    g.add(OPS["negative"], 0)
    assert not holds(g.nodes[0], 3)
    assert not holds(None, 3)


def test_what_a_node_checks_are_the_indices_that_have_elements() -> None:
    none = Aval((0,), fb.int64)
    g = Graph([X, INDEX, none])
    g.add(OPS["take"], 0, 1, axis=0)
    g.add(OPS["take"], 0, 2, axis=0)
    g.add(CHECK_INDICES, 1, size=7, of="take")
    g.add(OPS["exp"], 0)
    assert [checked(n, g.avals) for n in g.nodes] == [[(1, 4)], [], [(1, 7)], []]
    assert g.nodes[2].avals == (Aval((), fb.bool),)
    runs = [n for n in g.nodes if raises(n)]
    assert runs == [g.nodes[2]]  # a ``take`` is replaced by a check
    plain = passing_op("plain")
    control = replace(plain, control=lambda *_: lambda *_: None)
    for body, op, want in ((g, control, True), (Graph([X], outputs=(0,)), control, False), (g, plain, False)):
        assert raises(Node(op, (0,), {"body": body}, 1, (X,))) is want


def test_a_check_of_indices_reports_the_function_that_indexes() -> None:
    with pytest.raises(fb.OutOfRangeError, match=r"take: indices must lie in \[-3, 3\)\nReceived: 2 outside, the first 3\."):
        CHECK_INDICES.reference(np.array([0, 3, -4]), size=3, of="take")
    assert CHECK_INDICES.reference(np.array([2, -3]), size=3, of="take") == np.True_


def _exp(**fields: Any) -> Graph:
    g = Graph([X])
    g.outputs = g.add(OPS["exp"], 0)
    g.nodes[0] = replace(g.nodes[0], **fields)
    return g


def test_keys_of_values_that_differ_in_one_part_differ() -> None:
    other = _exp()
    other.outputs = (0,)
    base, many = slice(1, 2, 3), np.arange(300.0)
    apart = [
        base, slice(0, 2, 3), slice(1, 0, 3), slice(1, 2, 0), 1 + 2j, 2 + 2j, 1 + 1j, {"a": 1}, {"b": 1}, X, INDEX,
        fb.device("cpu:0"), fb.device("cpu:1"), _exp(), other, Graph([INDEX], list(_exp().nodes), (1,)),
        _exp(region=1), _exp(op=OPS["sin"]), _exp(params={"k": 1}), _exp(params={"k": True}),
        many, many.reshape(3, 100), many.view(np.int64), many + 1, object(), object(),
    ]  # fmt: skip
    keys = [key_of(v) for v in apart]
    assert len(set(keys)) == len(keys)
    assert keys == [key_of(v) for v in apart]
    assert key_of(_exp()) == key_of(_exp(label="y", line="m.py:1"))  # what only a reader needs


def test_a_large_arrays_key_is_a_digest_and_a_small_ones_its_bytes() -> None:
    assert key_of(np.zeros(256, np.uint8))[-1] == bytes(256)
    assert len(key_of(np.zeros(257, np.uint8))[-1]) == 64


def test_a_node_prints_its_parameters_label_region_and_line() -> None:
    params = {"a": "x", "b": (1,), "c": (1, (2, 3)), "d": [1], "e": np.arange(6), "f": np.zeros((7, 1), np.int8), "g": ()}
    node = Node(passing_op("f"), (0, 2), {**params, "h": _exp()}, 3, (X, INDEX), "loss", "m.py:7 in step", 2)
    text = (
        "%3: float32[4], %4: int64[2] = f(%0, %2, a='x', b=(1,), c=(1, (2, 3)), d=[1], e=[0, 1, 2, 3, 4, 5], f=<int8[7, 1]>, "
        "g=(), h=<graph of 1 nodes>)  # loss, region 2"
    )
    assert show_node(node) == text
    assert show_node(node, lines=True) == f"{text}, m.py:7 in step"
    assert show_node(replace(node, label=None, region=0)) == text.partition("  #")[0]


def test_a_graph_prints_names_and_the_graphs_inside_under_their_parameters() -> None:
    inside = _exp(line="m.py:3 in g")
    outer = Graph([X, X, X], names=["x", ""])
    held = {"body": inside, "branches": {"yes": [inside]}}
    outer.nodes = [Node(passing_op("f"), (0,), held, 3, (X,), line="m.py:1 in f")]
    outer.outputs = (3, 0)
    rows = ["%0: float32[4]", "%1: float32[4] = exp(%0)  # m.py:3 in g", "return %1"]
    body = "\n".join("        " + row for row in rows)
    node = show_node(outer.nodes[0], lines=True)
    head = "%0: float32[4]  # x\n%1: float32[4]\n%2: float32[4]"
    want = f"{head}\n{node}\n    body:\n{body}\n    branches[yes][0]:\n{body}\nreturn %3, %0"
    assert show(outer, lines=True) == want
    assert str(outer) == show(outer) == want.replace("  # m.py:3 in g", "").replace("  # m.py:1 in f", "")
