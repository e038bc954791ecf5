"""Graphs inside graphs: control flow holds its bodies and branches as parameters, alone or in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from firebrick.ir.graph import Graph, Node


def graphs_in(value: Any) -> Iterator[Graph]:
    """The graphs that a parameter, or a dict of parameters, holds; not those inside them."""
    if isinstance(value, Graph):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from graphs_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from graphs_in(v)


def nodes_in(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes and those of the graphs inside them, at any depth."""
    for n in nodes:
        yield n
        for inner in graphs_in(n.params):
            yield from nodes_in(inner.nodes)


def map_graphs(value: Any, change: Callable[[Graph], Graph]) -> Any:
    """A parameter, or a dict of parameters, with each graph in it changed; ``value`` itself if no graph changes."""
    if isinstance(value, Graph):
        return change(value)
    if isinstance(value, dict):
        parts = {k: map_graphs(v, change) for k, v in value.items()}
        return value if all(parts[k] is v for k, v in value.items()) else parts
    if isinstance(value, (tuple, list)):
        items = [map_graphs(v, change) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    return value
