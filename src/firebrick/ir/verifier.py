"""``verify_graph``: the rules that every graph keeps, checked node by node; tests run it after each pass."""

from __future__ import annotations

from functools import cache, lru_cache
from inspect import Parameter, signature
from typing import Any, cast

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError, GraphError
from firebrick.core.op import KIND_TEXT, KINDS, Op
from firebrick.ir.graph import CONSTANT, Graph, Node
from firebrick.ir.nested import graphs_in
from firebrick.ir.text import show_node

_REMEDY = "a pass that made this graph is wrong: run verify_graph after each one to find it"


def verify_graph(graph: Graph) -> None:
    """Check that a graph is well formed: numbering, operands, dtypes, parameters, results, outputs, and the graphs inside.

    Args:
        graph: Program to check; it is not changed.

    Raises:
        GraphError: A rule is broken; the message shows the node.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.aval import Aval
        >>> from firebrick.ir import Graph, verify_graph
        >>> g = Graph([Aval((2,), fb.float32)], outputs=(1,))
        >>> verify_graph(g)
        Traceback (most recent call last):
            ...
        firebrick.core.errors.GraphError: every output of a graph is one of its values
        Received: output %1 of a graph with values up to %0.
        Remedy: a pass that made this graph is wrong: run verify_graph after each one to find it.
    """
    known: list[Aval] = []
    for i, a in enumerate(graph.inputs):
        if not _is_aval(a):
            raise _broken("every input has a shape and a dtype", f"input %{i}: {a!r}")
        known.append(a)
    if len(graph.names) > len(graph.inputs):
        raise _broken("names are those of the inputs", f"{len(graph.names)} names of {len(graph.inputs)} inputs")
    for node in graph.nodes:
        _verify_node(node, known)
        known += node.avals
    for i in graph.outputs:
        if type(i) is not int or not 0 <= i < len(known):
            received = f"output %{i} of a graph with values up to %{len(known) - 1}"
            raise _broken("every output of a graph is one of its values", received)


def _broken(expected: str, received: str, node: Node | None = None) -> GraphError:
    where = f" in {show_node(node, lines=True)}" if node else ""
    return GraphError(expected, received + where, _REMEDY)


def _is_aval(a: Any) -> bool:
    if type(a) is not Aval:
        return False
    shape, dtype = cast(tuple[Any, Any], a)
    return type(dtype) is DType and type(shape) is tuple and all(type(d) is int and d >= 0 for d in shape)


def _verify_node(node: Node, known: list[Aval]) -> None:
    op = node.op
    if node.first != len(known):
        raise _broken(f"results are numbered in order, here from %{len(known)}", f"%{node.first}", node)
    for i in node.inputs:
        if type(i) is not int or not 0 <= i < len(known):
            raise _broken("a node's operands are defined before it", f"%{i}", node)
    operands = [known[i] for i in node.inputs]
    _verify_operands(node, operands)
    for inner in graphs_in(node.params) if node.params else ():
        try:
            verify_graph(inner)
        except GraphError as e:
            raise GraphError(e.expected, f"{e.received}, inside {show_node(node, lines=True)}", e.remedy) from None
    if op is CONSTANT:
        _verify_constant(node)
    label, line = node.label, node.line
    if type(node.region) is not int or not ((label is None or type(label) is str) and (line is None or type(line) is str)):
        raise _broken("a region is an int, a label and a line are text", f"{node.region}, {label}, {line}", node)
    if not _takes(op, tuple(node.params)):
        needed, optional, _ = _parameters(op)
        names = ", ".join(sorted(needed) + [f"{p} (optional)" for p in sorted(optional)]) or "none"
        raise _broken(f"{op.name} has its parameters: {names}", ", ".join(node.params) or "none", node)
    try:
        inferred = op.infer(*operands, **node.params)
    except Exception as e:
        raise _broken(f"{op.name} accepts its operands and parameters", f"{type(e).__name__}: {e}", node) from e
    avals = (inferred,) if type(inferred) is Aval else tuple(inferred)
    if avals != node.avals or not all(map(_is_aval, node.avals)):
        raise _broken(f"{op.name} has the results {', '.join(map(str, avals))}", ", ".join(map(str, node.avals)), node)


@lru_cache(maxsize=4096)
def _takes(op: Op, names: tuple[str, ...]) -> bool:
    """Whether an op takes parameters of these names, and needs no others."""
    needed, optional, others = _parameters(op)
    return needed <= set(names) and (others or needed | optional >= set(names))


@cache
def _parameters(op: Op) -> tuple[frozenset[str], frozenset[str], bool]:
    """Names of the parameters that an op needs, of the optional ones, and whether it takes others: its reference's
    keywords."""
    declared = signature(op.reference).parameters.values()
    named = [p for p in declared if p.kind is Parameter.KEYWORD_ONLY]
    needed = frozenset(p.name for p in named if p.default is Parameter.empty)
    others = any(p.kind is Parameter.VAR_KEYWORD for p in declared)
    return needed, frozenset(p.name for p in named) - needed, others


def _verify_operands(node: Node, avals: list[Aval]) -> None:
    declared = node.op.operands
    variadic = bool(declared) and declared[-1].variadic
    if len(avals) < len(declared) if variadic else len(avals) != len(declared):
        least = "at least " if variadic else ""
        raise _broken(f"{node.op.name} takes {least}{len(declared)} operands", str(len(avals)), node)
    groups: dict[str, DType] = {}
    for i, a in enumerate(avals):
        o = node.op.operand(i)
        if a.dtype.kind not in KINDS[o.kind]:
            name = node.op.operand_names(len(avals))[i]
            raise _broken(f"{node.op.name}: {name} has {KIND_TEXT[o.kind]} dtype", f"%{node.inputs[i]}: {a}", node)
        if o.group and groups.setdefault(o.group, a.dtype) is not a.dtype:
            members = ", ".join(f"%{j}: {b}" for j, b in zip(node.inputs, avals, strict=True))
            raise _broken(f"{node.op.name}: operands of one group have one dtype", members, node)


def _verify_constant(node: Node) -> None:
    value = node.params.get("value")
    try:
        if not isinstance(value, np.ndarray) or not value.dtype.isnative:
            raise DTypeError("native")
        as_dtype(value.dtype)
    except DTypeError:
        got = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise _broken("a constant is a NumPy array of one of Firebrick's dtypes", got, node) from None
