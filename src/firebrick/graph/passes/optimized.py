"""``optimized``: the result of ``optimize``, from the cache on disk if an earlier process has stored it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from firebrick.compiler import reuse
from firebrick.graph.passes.pipeline import optimize
from firebrick.ir import Graph
from firebrick.ir.encoding import NotEncodable, Tables, encoded

KIND = "passes"
_DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def optimized(graph: Graph) -> Graph:
    """The graph that ``optimize`` returns for a graph. Its nodes have the parameters and lines of the nodes that are there.

    Args:
        graph: Program; it is not changed.
    """
    found = encoded(graph) if reuse.wanted(len(graph.nodes)) else None
    if found is None:
        return optimize(graph)
    tables, form = found
    known = reuse.load(KIND, form)
    if known is not None:
        try:
            return _read(known, tables, graph)
        except _DAMAGED:
            return optimize(graph)
    made = optimize(graph)
    with suppress(NotEncodable):
        reuse.save(KIND, form, _written(made, tables, graph))
    return made


def _written(made: Graph, tables: Tables, graph: Graph) -> list[Any]:
    """What passes made of a graph, in terms of JSON; nothing if it is the graph itself."""
    if made is graph:
        return []
    sizes = tables.sizes()
    rows = tables.rows(made.nodes)
    return [rows, made.outputs, tables.beyond(sizes)]


def _read(known: Sequence[Any], tables: Tables, graph: Graph) -> Graph:
    if not known:
        return graph
    rows, outputs, more = known
    tables.extend(more)
    return Graph(graph.inputs, tables.nodes(rows, len(graph.inputs)), tuple(outputs), graph.names)
