"""A graph as tables and rows: one form for equal graphs, another one for each other graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ir.encoding import MOST, NotEncodable, encoded
from firebrick.ops import OPS

F = fb.float32


def form(graph: Graph) -> bytes:
    found = encoded(graph)
    assert found is not None
    return found[1]


def example(
    value: Any = 2.0, op: str = "exp", shape: tuple[int, ...] = (3, 4), axis: Any = 0, region: int = 0,
    line: str = "a.py:1 in f", label: str | None = None, swap: bool = False, output: int = -1,
) -> Graph:  # fmt: skip
    graph = Graph([Aval(shape, F), Aval(shape, F)])
    c = graph.constant(np.asarray(value, np.float32))
    (a,) = graph.add(OPS["subtract"], *((1, 0) if swap else (0, 1)))
    (b,) = graph.add(OPS[op], a)
    (d,) = graph.add(OPS["multiply"], b, c)
    (e,) = graph.add(OPS["cumulative_sum"], d, axis=axis, reverse=False)
    graph.outputs = ((a, b, d, e)[output],)
    graph.nodes[:] = [dataclasses.replace(n, line=line) for n in graph.nodes]
    graph.nodes[-1] = dataclasses.replace(graph.nodes[-1], region=region, label=label)
    return graph


DIFFERENT: list[dict[str, Any]] = [
    {"value": 3.0}, {"value": -2.0}, {"value": np.nan}, {"value": 0.0}, {"value": -0.0}, {"value": [2.0]}, {"op": "sin"},
    {"shape": (4, 3)}, {"shape": (1, 3, 4)}, {"axis": 1}, {"region": 1}, {"label": "x"}, {"swap": True}, {"output": 1},
]  # fmt: skip


def test_equal_graphs_have_one_form_and_others_have_others() -> None:
    forms = [form(example()), *(form(example(**more)) for more in DIFFERENT)]
    assert len(set(forms)) == len(forms)
    assert form(example()) == forms[0]


def test_lines_and_names_of_inputs_are_not_part_of_the_form_but_which_lines_are_equal_is() -> None:
    graph = example()
    graph.names = ["x", "y"]
    assert form(graph) == form(example(line="b.py:7 in g")) == form(example())
    graph.nodes[1] = dataclasses.replace(graph.nodes[1], line="a.py:2 in f")
    assert form(graph) != form(example())


REFUSED: dict[str, Callable[[], dict[str, Any]]] = {
    "an array of too many bytes": lambda: {"value": np.zeros(MOST // 4 + 1)},
    "an object": lambda: {"axis": object()},
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_graph_that_no_other_process_can_recognise_has_no_form(what: str) -> None:
    graph = example()
    more = REFUSED[what]()
    k = 0 if "value" in more else -1
    params = {"value": np.asarray(more["value"], np.float32)} if "value" in more else {**graph.nodes[-1].params, **more}
    graph.nodes[k] = dataclasses.replace(graph.nodes[k], params=params)
    assert encoded(graph) is None


def test_operations_of_other_packages_have_no_form() -> None:
    graph = example()
    reference = lambda x: x  # noqa: E731
    for op in (
        dataclasses.replace(OPS["exp"], reference=reference),  # not the table's
        dataclasses.replace(OPS["exp"], name="not_in_the_table"),
    ):
        graph.nodes[2] = dataclasses.replace(graph.nodes[2], op=op)
        assert encoded(graph) is None


def test_a_registered_operation_of_another_package_has_no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    own = dataclasses.replace(OPS["exp"], reference=lambda x: x, name="own_exp")
    own.reference.__module__ = "mine.ops"
    monkeypatch.setitem(OPS, "own_exp", own)
    graph = example()
    graph.nodes[2] = dataclasses.replace(graph.nodes[2], op=own)
    assert encoded(graph) is None
    own.reference.__module__ = "firebrick.ops.exponential"
    assert encoded(graph) is not None


def test_a_line_that_the_graph_does_not_have_is_refused() -> None:
    tables, _ = encoded(example()) or (None, b"")
    assert tables is not None
    with pytest.raises(NotEncodable):
        tables.rows(example(line="another.py:1 in f").nodes)
