"""``check_indices``: the operation that raises where an index lies outside its axis, and computes nothing. It replaces an
indexing operation whose result is not used, so that an index that raises without ``jit`` raises in a graph too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import bool_
from firebrick.core.op import Batching, Cost, Nondifferentiable, Op, Operand
from firebrick.ir.graph import CONSTANT, INTERNAL, Node
from firebrick.ir.nested import nodes_in
from firebrick.ops.indexing import check_indices
from firebrick.ops.movement import broadcast_to


def _reference(indices: Any, *, size: int, of: str) -> Any:
    check_indices(np.asarray(indices), size, of)
    return np.asarray(True)


def _kernel(backend: Any, params: dict[str, Any], device: Device | None) -> Callable[..., Any]:
    def run(indices: Any) -> Any:
        return backend.from_host(_reference(*backend.read([indices]), **params), device)

    return run


def _of_all(b: Batching) -> Any:
    return broadcast_to(b.op(*b.operands, **b.params), shape=(b.size,))


CHECK_INDICES = Op(
    name="check_indices",
    doc="True; raises OutOfRangeError unless all indices lie in [-size, size).",
    operands=(Operand("indices", "integer"),),
    infer=lambda indices, *, size, of: Aval((), bool_),
    reference=_reference,
    vjp=Nondifferentiable("a check has no gradient"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, float(sum(a.nbytes for a in inputs))),
    bound="memory",
    fusion="opaque",
    tolerance=0,
    control=_kernel,
    batch=_of_all,
)
INTERNAL[CHECK_INDICES.name] = CHECK_INDICES

Checked = tuple[int, int]  # a value that holds indices, and the size of the axis that they index


def checked(node: Node, avals: Sequence[Aval]) -> list[Checked]:
    """The index operands that a node checks before it runs."""
    if node.op is CHECK_INDICES:
        return [(node.inputs[0], node.params["size"])]
    if node.op.indexes is None:
        return []
    sizes = node.op.indexes([avals[i] for i in node.inputs], node.params)
    return [(node.inputs[k], size) for k, size in sizes.items() if avals[node.inputs[k]].size]


def raises(node: Node) -> bool:
    """Whether a node must run although its results are not used: a check, a kernel with checks, or control flow around one."""
    if node.op is CHECK_INDICES or _kernel_raises(node):
        return True
    return node.op.control is not None and any(
        n.op is CHECK_INDICES or n.op.indexes is not None or _kernel_raises(n) for n in _within(node)
    )


def _kernel_raises(node: Node) -> bool:
    return node.op.program is not None and node.op.program.checks


def _within(node: Node) -> Iterator[Node]:
    return (n for n in nodes_in([node]) if n is not node)


def holds(maker: Node | None, size: int) -> bool:
    """Whether indices that this node makes are known to lie in their axis."""
    if maker is None or maker.op is not CONSTANT:
        return False
    value = maker.params["value"]
    return not value.size or (-size <= int(value.min()) and int(value.max()) < size)
