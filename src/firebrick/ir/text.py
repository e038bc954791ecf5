"""How a graph prints: one line a node, followed by names and lines of the user's program; inner graphs are indented."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.ir.graph import Graph, Node

_SHOWN = 6  # elements of a constant that are printed


def show(graph: Graph, lines: bool = False) -> str:
    """A graph as text; with ``lines``, each node ends with the line of the user's program that asks for it."""
    rows = []
    for i, a in enumerate(graph.inputs):
        name = f"  # {graph.names[i]}" if i < len(graph.names) and graph.names[i] else ""
        rows.append(f"%{i}: {a}{name}")
    for n in graph.nodes:
        rows.append(show_node(n, lines))
        rows += _inner(n.params, lines)
    return "\n".join([*rows, "return " + ", ".join(f"%{i}" for i in graph.outputs)])


def show_node(node: Node, lines: bool = False) -> str:
    """One node as text: ``%2: float32[3] = add(%0, %1)``, then its label, region and line."""
    results = ", ".join(f"%{i}: {a}" for i, a in zip(node.results, node.avals, strict=True))
    args = [f"%{i}" for i in node.inputs] + [f"{k}={_value(v)}" for k, v in node.params.items()]
    region = f"region {node.region}" if node.region else None
    notes = [s for s in (node.label, region, node.line if lines else None) if s]
    return f"{results} = {node.op.name}({', '.join(args)})" + (f"  # {', '.join(map(str, notes))}" if notes else "")


def _inner(value: Any, lines: bool, name: str = "") -> list[str]:
    """The graphs that parameters hold, each under its parameter's name."""
    if isinstance(value, Graph):
        return [f"    {name}:", *("        " + row for row in show(value, lines).split("\n"))]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (tuple, list)) else ()
    return [row for k, v in items for row in _inner(v, lines, (f"{name}[{k}]" if name else str(k)))]


def _value(v: Any) -> str:
    if isinstance(v, Graph):
        return f"<graph of {len(v.nodes)} nodes>"
    if isinstance(v, np.ndarray):
        return str(v.tolist()) if v.size <= _SHOWN else f"<{v.dtype}{list(v.shape)}>"
    if type(v) in (tuple, list):
        items = ", ".join(map(_value, v))
        return f"[{items}]" if type(v) is list else f"({items},)" if len(v) == 1 else f"({items})"
    return repr(v) if type(v) is str else str(v)
