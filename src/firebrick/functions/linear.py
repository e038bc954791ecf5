"""Products of vectors and matrices: of the Array API standard, Kronecker's, and chains in the cheapest order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from firebrick.core.autocast import narrow
from firebrick.core.bind import bind
from firebrick.core.dtypes import no_common_dtype, promote, python_scalar, result_type
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, check_operand, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32
from firebrick.core.settings import whole
from firebrick.core.shapes import broadcast_shapes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import matrix_transpose, permute_dims, reshape
from firebrick.functions.statistical import sum as sum_
from firebrick.ops import OPS
from firebrick.ops.casts import conjugate


@answers_arguments
def matmul(x1: Tensor, x2: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """Matrix product over the last two axes; leading axes broadcast; a vector is a row on the left, a column on the right.

    Args:
        x1: Tensor [..., n, k] or [k].
        x2: Tensor [..., k, m] or [k].
        out: Tensor to rebind to the result.

    Returns:
        Tensor [..., n, m], without the axis of a vector operand.

    Example:
        >>> import firebrick as fb
        >>> fb.matmul(fb.asarray([[1.0, 2.0]]), fb.asarray([3.0, 4.0])).tolist()
        [11.0]
    """
    for name, x in (("x1", x1), ("x2", x2)):
        if not isinstance(x, Tensor):
            raise not_a_tensor("matmul", name, x, None)
        if not x.ndim:
            raise ShapeError("matmul needs at least one axis", f"{name}: {x.aval}", "use multiply for scalars")
    check_devices("matmul", x1=x1, x2=x2)
    x1, x2 = narrow(x1), narrow(x2)
    if x1.ndim > 1 and x2.ndim > 1:
        return bind(OPS["matmul"], (x1, x2), {}, out)  # type: ignore[no-any-return]
    check_devices("matmul", x1=x1, out=out)
    a = reshape(x1, (1, -1)) if x1.ndim == 1 else x1
    b = reshape(x2, (-1, 1)) if x2.ndim == 1 else x2
    y: Tensor = bind(OPS["matmul"], (a, b), {})
    shape = y.shape[:-2] + (() if x1.ndim == 1 else y.shape[-2:-1]) + (() if x2.ndim == 1 else y.shape[-1:])
    return reshape(y, shape, out=out)


def _tensors(where: str, x1: Any, x2: Any) -> None:
    for name, x in (("x1", x1), ("x2", x2)):
        check_operand(where, x, "numeric", name)
    check_devices(where, x1=x1, x2=x2)
    if promote(x1.dtype, x2.dtype) is None:
        raise no_common_dtype(where, [(describe("x1", x1), x1.dtype), (describe("x2", x2), x2.dtype)])


@answers_arguments
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Σ conj(x1) · x2 along an axis; the other axes broadcast.

    Args:
        x1: Tensor of a numeric dtype.
        x2: Tensor with the size of x1 along ``axis``.
        axis: Axis, counted from the last: it is negative.

    Example:
        >>> import firebrick as fb
        >>> fb.vecdot(fb.asarray([1.0, 2.0]), fb.asarray([3.0, 4.0])).item()
        11.0
    """
    _tensors("vecdot", x1, x2)
    axis = whole("vecdot", "axis", axis)
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise OutOfRangeError(
            "vecdot: axis is counted from the last, and both tensors have it",
            f"axis {axis}, {describe('x1', x1)} and {describe('x2', x2)}",
            "pass -1, or another negative axis",
        )
    if x1.shape[axis] != x2.shape[axis]:
        shown = f"axis {axis}, {describe('x1', x1)} and {describe('x2', x2)}"
        raise ShapeError("vecdot: x1 and x2 need equal sizes along the axis", shown, "reshape one of them")
    broadcast_shapes(x1.shape, x2.shape, op="vecdot")
    return sum_(conjugate(x1) * x2, axis=axis, dtype=result_type(x1, x2))


@answers_arguments
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over pairs of axes: the last ``axes`` of x1 with the first of x2, or two lists of axes.

    Args:
        x1: Numeric tensor.
        x2: Numeric tensor; its summed axes have the sizes of those of x1.
        axes: How many axes, or ``(axes of x1, axes of x2)``.

    Example:
        >>> import firebrick as fb
        >>> fb.tensordot(fb.ones((2, 3)), fb.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    _tensors("tensordot", x1, x2)
    axes = python_scalar(axes)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError("tensordot: axes must be 0 to the smaller number of axes", f"axes {axes}", "check axes")
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        if not isinstance(axes, (tuple, list)) or len(axes) != 2 or not all(isinstance(a, (tuple, list)) for a in axes):
            want = "tensordot: axes is a number of axes, or two lists of axes to pair"
            raise ShapeError(want, f"axes={axes!r:.60}", "pass e.g. 1 or ((0,), (1,))")
        left, right = ([normalize_axis(a, x.ndim, "tensordot") for a in side] for side, x in zip(axes, (x1, x2), strict=True))
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError("tensordot: axes must be distinct on either side", f"axes={axes}", "name each axis once")
    if [x1.shape[a] for a in left] != [x2.shape[a] for a in right]:
        raise ShapeError(
            "tensordot: paired axes must have equal sizes",
            f"{x1.shape} and {x2.shape}, axes {axes}",
            "check axes",
        )
    free1 = [a for a in range(x1.ndim) if a not in left]
    free2 = [a for a in range(x2.ndim) if a not in right]
    shape = tuple(x1.shape[a] for a in free1) + tuple(x2.shape[a] for a in free2)
    k = prod(x1.shape[a] for a in left)
    n1, n2 = prod(x1.shape[a] for a in free1), prod(x2.shape[a] for a in free2)
    rows = reshape(permute_dims(x1, free1 + left), (n1, k))
    columns = reshape(permute_dims(x2, right + free2), (k, n2))
    return reshape(matmul(rows, columns), shape)


@in_float32
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis; the other axes broadcast.

    Args:
        x1: Tensor with size 3 along ``axis``.
        x2: Tensor with size 3 along ``axis``.
        axis: Axis; it must be negative if the tensors have different numbers of axes.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.cross(fb.asarray([1, 0, 0]), fb.asarray([0, 1, 0])).tolist()
        [0, 0, 1]
    """
    _tensors("cross", x1, x2)
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ShapeError("cross: axis must be negative for tensors of different numbers of axes", f"axis {axis}", "use -1")
    places = [normalize_axis(axis, x.ndim, "cross") for x in (x1, x2)]
    if x1.shape[places[0]] != 3 or x2.shape[places[1]] != 3:
        want = f"cross: both tensors need size 3 along axis {axis}"
        raise ShapeError(want, f"{describe('x1', x1)} and {describe('x2', x2)}", "name the axis of the vectors")

    def turned(x: Tensor, at: int, order: list[int]) -> Tensor:
        return OPS["take"](x, hooks.from_host(np.asarray(order), x.device), axis=at)  # type: ignore[no-any-return]

    first, second = [1, 2, 0], [2, 0, 1]
    a, b = places
    return turned(x1, a, first) * turned(x2, b, second) - turned(x1, a, second) * turned(x2, b, first)


@answers_arguments
def kron(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Kronecker products: along each axis, every element of x1 times the whole of x2. Missing axes are added in front.

    Args:
        x1: Tensor.
        x2: Tensor of a dtype that promotes with that of x1.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.kron(fb.asarray([1, 10]), fb.asarray([1, 2])).tolist()
        [1, 2, 10, 20]
    """
    _tensors("kron", x1, x2)
    n = max(x1.ndim, x2.ndim)
    a, b = ((1,) * (n - x.ndim) + x.shape for x in (x1, x2))
    left = reshape(x1, tuple(d for s in a for d in (s, 1)))
    right = reshape(x2, tuple(d for s in b for d in (1, s)))
    product = bind(OPS["multiply"], (left, right), {})
    return reshape(product, tuple(p * q for p, q in zip(a, b, strict=True)))


@answers_arguments
def multi_dot(arrays: Sequence[Tensor], /) -> Tensor:
    """The product of two or more matrices, in the order that needs the fewest multiplications.

    Args:
        arrays: Matrices; the first and the last may be vectors, a row and a column.

    Example:
        >>> import firebrick as fb
        >>> fb.linalg.multi_dot([fb.ones((2, 3)), fb.ones((3, 4)), fb.ones(4)]).tolist()
        [12.0, 12.0]

    Source: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", matrix-chain multiplication.
    """
    if not isinstance(arrays, (list, tuple)) or len(arrays) < 2:
        raise ShapeError("multi_dot multiplies a list of two matrices or more", type(arrays).__name__, "pass a list")
    last = len(arrays) - 1
    for i, x in enumerate(arrays):
        allowed = (1, 2) if i in (0, last) else (2,)
        if not isinstance(x, Tensor):
            raise not_a_tensor("multi_dot", f"arrays[{i}]", x, None)
        if x.ndim not in allowed:
            raise ShapeError("multi_dot: arrays are matrices, the first and the last vectors at most",
                             describe(f"arrays[{i}]", x), "use fb.matmul for stacks")  # fmt: skip
    check_devices("multi_dot", arrays=list(arrays))
    sizes = [1 if arrays[0].ndim == 1 else arrays[0].shape[0], *(x.shape[0] for x in arrays[1:])]
    sizes.append(1 if arrays[-1].ndim == 1 else arrays[-1].shape[1])
    for i, x in enumerate(arrays[:-1]):
        if x.shape[-1] != arrays[i + 1].shape[0]:
            pair = f"{describe(f'arrays[{i}]', x)} and {describe(f'arrays[{i + 1}]', arrays[i + 1])}"
            raise ShapeError("multi_dot: the inner sizes of neighbours must be equal", pair, "check the sizes")
    n = len(arrays)
    cost = {(i, i): 0 for i in range(n)}
    cut: dict[tuple[int, int], int] = {}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            ways = ((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))
            cost[i, j], cut[i, j] = min(ways)

    def product(i: int, j: int) -> Tensor:
        return arrays[i] if i == j else matmul(product(i, cut[i, j]), product(cut[i, j] + 1, j))

    return product(0, n - 1)


__all__ = ["cross", "kron", "matmul", "matrix_transpose", "multi_dot", "tensordot", "vecdot"]
