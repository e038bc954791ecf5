"""Matrix products of stacks of matrices; vectors are handled by ``functions.matmul``."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Sample
from firebrick.core.shapes import broadcast_shapes
from firebrick.ops import batch_rules, forward_rules, index_maps
from firebrick.ops.casts import conjugate
from firebrick.ops.declare import NUMERIC, Array, size_of, values
from firebrick.ops.movement import permute, reshape
from firebrick.ops.reduction import sum_to
from firebrick.ops.table import register


def _infer(x1: Any, x2: Any) -> Aval:
    a, b = x1.shape, x2.shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ShapeError(
            "matmul: the last axis of x1 and the last but one of x2 must be equal",
            f"x1 {a} and x2 {b}",
            "transpose one (x.mT) or check the sizes",
        )
    return Aval((*broadcast_shapes(a[:-2], b[:-2], op="matmul"), a[-2], b[-1]), x2.dtype)


def swap(x: Any) -> Any:
    """x with its last two axes exchanged."""
    n = len(x.shape)
    return permute(x, axes=(*range(n - 2), n - 1, n - 2))


def adjoint(x: Any) -> Any:
    """The conjugate transpose of matrices: the transpose of real ones."""
    return swap(conjugate(x))


def _vjp(g: Any, r: Any) -> Any:
    x1, x2 = r.inputs
    if len(x2.shape) == 2 and len(x1.shape) > 2:  # a stack times one matrix: its rows are one tall matrix
        g1 = matmul(g, adjoint(x2)) if r.needs[0] else None
        if not r.needs[1]:
            return g1, None
        rows, cotangents = (reshape(t, shape=(size_of(t.shape[:-1]), t.shape[-1])) for t in (x1, g))
        return g1, _right(rows, cotangents, r)
    g1 = sum_to(_left(g, x2, r), x1.shape) if r.needs[0] else None
    g2 = sum_to(_right(x1, g, r), x2.shape) if r.needs[1] else None
    return g1, g2


# The cotangent of an operand that is a transpose goes on transposed. So it is computed as the transpose of what then lies in
# rows: a weight [out, in] of a linear layer gets a gradient that its update walks through without strides.


def _left(g: Any, x2: Any, r: Any) -> Any:
    return swap(matmul(conjugate(x2), swap(g))) if _turned(r.parents[0]) else matmul(g, adjoint(x2))


def _right(x1: Any, g: Any, r: Any) -> Any:
    return swap(matmul(swap(g), conjugate(x1))) if _turned(r.parents[1]) else matmul(adjoint(x1), g)


def _turned(parent: Any) -> bool:
    """Whether an operand was made by exchanging the last two axes of a tensor."""
    if parent is None or parent[0].op is not permute:
        return False
    axes = parent[0].params["axes"]
    n = len(axes)
    return tuple(axes) == (*range(n - 2), n - 1, n - 2)


def _samples(rng: np.random.Generator, name: str) -> list[Sample]:
    cases = [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 2)), ((2, 1, 3, 2), (4, 2, 3)), ((1, 7), (7, 1)), ((0, 3), (3, 2)),
             ((2, 0), (0, 3)), ((5, 4, 3), (3, 2)), ((4, 4), (4, 4)), ((3, 3, 3), (3, 3)), ((1, 1), (1, 1))]  # fmt: skip
    out = [Sample((values(rng, name, a), values(rng, name, b)), name=f"{a} @ {b}") for a, b in cases]
    out.append(Sample((values(rng, name, (33, 517)), values(rng, name, (517, 17))), grad_safe=False, name="long"))
    return out


@register(
    operands="x1:numeric=T x2:numeric=T", infer=_infer, vjp=_vjp, residuals=("inputs",), samples=_samples,
    cost=lambda ins, outs, p: Cost(2.0 * outs[0].size * ins[0].shape[-1], sum(a.nbytes for a in (*ins, *outs))),
    bound="compute", fusion="contract", tolerance=8, scale="operands", dtypes=NUMERIC,
    index_map=index_maps.matmul, batch=batch_rules.multiplied, jvp=forward_rules.multilinear,
)  # fmt: skip
def matmul(x1: Array, x2: Array) -> Array:
    """Matrix product over the last two axes; leading axes broadcast."""
    return np.asarray(np.matmul(x1, x2))
