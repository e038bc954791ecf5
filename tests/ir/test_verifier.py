"""verify_graph: a well-formed graph of every op passes, and each broken rule is named with its node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphs import passing_op

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.core.errors import GraphError
from firebrick.ir import Graph, Node, verify_graph

OPS = fb.ops.OPS
F, D = Aval((2, 3), fb.float32), Aval((2, 3), fb.float64)


def small() -> Graph:
    g = Graph([F, F], names=["x", "weight"])
    (a,) = g.add(OPS["add"], 0, 1)
    (b,) = g.add(OPS["exp"], a)
    g.outputs = (b, a)
    return g


def with_node(k: int, **fields: Any) -> Graph:
    g = small()
    g.nodes[k] = replace(g.nodes[k], **fields)
    return g


def test_a_graph_made_by_add_is_well_formed() -> None:
    verify_graph(small())


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (with_node(1, first=7), "numbered in order"),
        (with_node(0, inputs=(0, 2)), "defined before it"),
        (with_node(0, inputs=(0, -1)), "defined before it"),
        (with_node(0, inputs=(0,)), "add takes 2 operands"),
        (with_node(1, params={"base": 2}), "exp has its parameters: none\nReceived: base"),
        (with_node(1, avals=(Aval((3, 2), fb.float32),)), r"exp has the results float32\[2,3\]"),
        (with_node(1, avals=(D,)), r"exp has the results float32\[2,3\]"),
        (with_node(1, avals=(F, F)), "exp has the results"),
        (with_node(1, op=OPS["logical_not"]), "logical_not: x has the bool dtype"),
        (with_node(1, op=OPS["reshape"], params={"shape": (7,)}), "reshape accepts"),
        (with_node(1, region=None), "a region is an int"),
        (replace(small(), outputs=(9,)), "every output"),
        (replace(small(), names=["a", "b", "c"]), "names are those of the inputs"),
        (replace(small(), inputs=[F, ((2, 3), fb.float32)]), "every input"),
        (replace(small(), inputs=[F, Aval((2, -3), fb.float32)]), "every input"),
        (replace(small(), inputs=[F, D]), "add: operands of one group have one dtype"),
        (replace(small(), inputs=[F, Aval((4, 3), fb.float32)]), "add accepts"),
    ],
)
def test_each_broken_rule_is_named(graph: Graph, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        verify_graph(graph)


def test_the_message_shows_the_node_its_label_and_the_users_line() -> None:
    g = with_node(1, avals=(D,), label="gate", line="model.py:7 in forward")
    with pytest.raises(GraphError, match=r"%3: float64\[2,3\] = exp\(%2\)  # gate, model.py:7 in forward"):
        verify_graph(g)


@pytest.mark.parametrize("value", [[1.0], np.zeros(2, ">f8"), np.array(["a"]), np.zeros(2, "datetime64[s]")])
def test_a_constant_is_an_array_of_our_dtypes(value: Any) -> None:
    g = Graph([])
    g.constant(np.zeros(2))
    g.nodes[0] = replace(g.nodes[0], params={"value": value})
    with pytest.raises(GraphError, match="a constant is a NumPy array"):
        verify_graph(g)


def test_a_variadic_op_takes_at_least_its_operands() -> None:
    g = Graph([F, F, F])
    g.outputs = g.add(OPS["concat"], 0, 1, 2, axis=0)
    verify_graph(g)
    g.nodes[0] = replace(g.nodes[0], inputs=())
    with pytest.raises(GraphError, match="concat takes at least 1 operands"):
        verify_graph(g)


APPLY = passing_op("apply")


def test_graphs_inside_parameters_are_verified_and_printed() -> None:
    inside = small()
    outer = Graph([F], [Node(APPLY, (0,), {"bodies": (Graph([F], outputs=(0,)), inside)}, 1, (F,))], (1,))
    verify_graph(outer)
    assert "bodies[1]:\n        %0: float32[2,3]  # x" in str(outer)
    inside.outputs = (17,)
    with pytest.raises(GraphError, match=r"output %17 of a graph with values up to %3, inside %1: float32\[2,3\] = apply"):
        verify_graph(outer)
