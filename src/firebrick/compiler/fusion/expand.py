"""``expanded``: replaces norms over any axes, and means of whole images, by reductions and elementwise nodes, which fuse.

If weight and bias have one value for each mean, they are combined with mean and variance once for each mean, not for each
element, and the gradients follow from two sums.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from firebrick.core.autocast import NARROW
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, float32
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops.table import OPS


def expanded(graph: Graph) -> Graph:
    """An equivalent graph without the ops of ``RULES``; ``graph`` itself if it has none."""
    avals = graph.avals
    rules = [_rule(n, tuple(avals[v] for v in n.inputs)) for n in graph.nodes]
    if not any(rules):
        return graph
    expander = _Expander(graph)
    for n, rule in zip(graph.nodes, rules, strict=True):
        found = expander.expand(n, rule) if rule else expander.copy(n)
        expander.number.update(zip(n.results, found, strict=True))
    expander.graph.outputs = tuple(expander.number[v] for v in graph.outputs)
    return expander.graph


class _Expander:
    """The new graph, and the map of old values to its values."""

    def __init__(self, graph: Graph) -> None:
        self.graph = Graph(list(graph.inputs), names=list(graph.names))
        self.avals = list(graph.inputs)
        self.number = {v: v for v in range(len(graph.inputs))}

    def put(self, at: Node, op: Any, inputs: tuple[int, ...], params: Any, avals: tuple[Aval, ...]) -> tuple[int, ...]:
        """Append a node that replaces ``at``."""
        first = len(self.avals)
        self.graph.nodes.append(Node(op, inputs, params, first, avals, at.label, at.line, at.region))
        self.avals.extend(avals)
        return tuple(range(first, len(self.avals)))

    def copy(self, n: Node) -> tuple[int, ...]:
        """Append a copy of a node."""
        return self.put(n, n.op, tuple(self.number[v] for v in n.inputs), n.params, n.avals)

    def expand(self, n: Node, rule: Rule) -> tuple[int, ...]:
        """The replacement of a node. Half precision is computed in float32 and rounded at the end, since intermediate values
        may be stored."""
        operands = tuple(self._cast(n, self.number[v], float32) for v in n.inputs)
        return tuple(self._cast(n, v, a.dtype) for v, a in zip(rule(self, n, operands), n.avals, strict=True))

    def _cast(self, at: Node, v: int, dtype: DType) -> int:
        """A value cast from half precision to float32, or back."""
        halves = (self.avals[v].dtype in NARROW) != (dtype in NARROW)
        return self(at, "cast", v, dtype=dtype) if halves else v

    def __call__(self, at: Node, name: str, *inputs: int, **params: Any) -> int:
        """Append an op of the table with one result."""
        aval = OPS[name].infer(*(self.avals[v] for v in inputs), **params)
        assert isinstance(aval, Aval)
        return self.put(at, OPS[name], inputs, params, (aval,))[0]

    def constant(self, at: Node, value: float, like: int) -> int:
        """A constant of the dtype of a value."""
        dtype = self.avals[like].dtype
        return self.put(at, CONSTANT, (), {"value": np.asarray(value, dtype.np)}, (Aval((), dtype),))[0]


Rule = Callable[[_Expander, Node, tuple[int, ...]], tuple[int, ...]]
"""The replacement of a node, from its operands in the new graph."""


def _inverse(g: _Expander, n: Node, variance: int) -> int:
    """1 / √(variance + eps)."""
    spread = g(n, "sqrt", g(n, "add", variance, g.constant(n, n.params["eps"], variance)))
    return g(n, "divide", g.constant(n, 1.0, variance), spread)


def _one_a_mean(shape: tuple[int, ...], weight: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether a weight has one value for each mean along ``axes``."""
    lead = len(shape) - len(weight)
    return all(a < lead or weight[a - lead] == 1 for a in axes)


def _standardize(g: _Expander, n: Node, operands: tuple[int, ...]) -> tuple[int, ...]:
    x, weight, bias = operands
    axes = n.params["axes"]
    along_axes: dict[str, Any] = {"axes": axes, "keepdims": True}
    mean = g(n, "mean", x, **along_axes)
    centred = g(n, "subtract", x, mean)
    variance = g(n, "mean", g(n, "multiply", centred, centred), **along_axes)
    inverse = _inverse(g, n, variance)
    if _one_a_mean(g.avals[x].shape, g.avals[weight].shape, axes):
        scaled = g(n, "multiply", centred, g(n, "multiply", inverse, weight))
    else:
        scaled = g(n, "multiply", g(n, "multiply", centred, inverse), weight)
    return g(n, "add", scaled, bias), mean, variance


def _standardize_gradient(g: _Expander, n: Node, operands: tuple[int, ...]) -> tuple[int, ...]:
    """With c = x - mean, i = 1 / √(variance + eps) and u = g · weight: gx = (u - mean u - c · i² · mean(u · c)) · i, and for
    weight and bias Σ g · c · i and Σ g. With one weight for each mean, all follow from Σ g and Σ g · c."""
    cotangent, x, weight, mean, variance = operands
    axes, shape, weight_shape = n.params["axes"], g.avals[x].shape, g.avals[weight].shape
    along_axes: dict[str, Any] = {"axes": axes, "keepdims": True}
    centred = g(n, "subtract", x, mean)
    inverse = _inverse(g, n, variance)
    if _one_a_mean(shape, weight_shape, axes):
        one_over_count = g.constant(n, 1.0 / prod(shape[a] for a in axes), x)
        total = g(n, "sum", cotangent, **along_axes)
        gw = g(n, "multiply", g(n, "sum", g(n, "multiply", cotangent, centred), **along_axes), inverse)
        first = g(n, "multiply", total, one_over_count)
        second = g(n, "multiply", g(n, "multiply", gw, inverse), one_over_count)
        inner = g(n, "subtract", g(n, "subtract", cotangent, first), g(n, "multiply", centred, second))
        gx = g(n, "multiply", inner, g(n, "multiply", inverse, weight))
        return gx, _sum_to(g, n, gw, weight_shape), _sum_to(g, n, total, weight_shape)
    u = g(n, "multiply", cotangent, weight)
    first = g(n, "mean", u, **along_axes)
    second = g(n, "multiply", g(n, "multiply", g(n, "mean", g(n, "multiply", u, centred), **along_axes), inverse), inverse)
    inner = g(n, "subtract", g(n, "subtract", u, first), g(n, "multiply", centred, second))
    gw = g(n, "multiply", g(n, "multiply", cotangent, centred), inverse)
    return g(n, "multiply", inner, inverse), _sum_to(g, n, gw, weight_shape), _sum_to(g, n, cotangent, weight_shape)


def _sum_to(g: _Expander, n: Node, v: int, shape: tuple[int, ...]) -> int:
    """A value summed over the axes along which ``shape`` was broadcast to its own."""
    own = g.avals[v].shape
    if own == shape:
        return v
    lead = len(own) - len(shape)
    axes = tuple(i for i, d in enumerate(own) if i < lead or (shape[i - lead] == 1 and d != 1))
    if axes:
        v = g(n, "sum", v, axes=axes, keepdims=True)
    return v if g.avals[v].shape == shape else g(n, "reshape", v, shape=shape)


def _mean_of_images(g: _Expander, n: Node, operands: tuple[int, ...]) -> tuple[int, ...]:
    (x,) = operands
    return (g(n, "mean", x, axes=tuple(range(2, len(g.avals[x].shape))), keepdims=True),)


def _spread_over_images(g: _Expander, n: Node, operands: tuple[int, ...]) -> tuple[int, ...]:
    (x,) = operands
    mean = g(n, "divide", x, g.constant(n, float(prod(n.params["kernel"])), x))
    return (g(n, "broadcast_to", mean, shape=n.avals[0].shape),)


RULES: dict[str, Rule] = {
    "standardize": _standardize, "standardize_gradient": _standardize_gradient, "avg_pool": _mean_of_images,
    "avg_pool_input": _spread_over_images,
}  # fmt: skip
"""Name of an op → its rule."""


def _rule(n: Node, operands: tuple[Aval, ...]) -> Rule | None:
    if n.op.kind == "window":
        image = (n.avals if "size" in n.params else operands)[0]
        if image.shape[2:] != tuple(n.params["kernel"]) or any(map(any, n.params["padding"])) or image.size == 0:
            return None
    elif not n.avals or n.avals[0].size == 0:
        return None
    return RULES.get(n.op.name)
