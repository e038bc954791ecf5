"""Linear-algebra functions of the Array API standard that the op table carries."""

from __future__ import annotations

from math import prod
from typing import Any

from firebrick.core.bind import bind, check_devices, not_a_tensor
from firebrick.core.dtypes import result_type
from firebrick.core.errors import ShapeError
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import matrix_transpose, permute_dims, reshape
from firebrick.functions.reductions import sum as sum_
from firebrick.ops import OPS


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
        if not isinstance(x, Tensor):
            raise not_a_tensor(where, name, x, None)
    check_devices(where, x1=x1, x2=x2)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sum of products along an axis, of real tensors.

    Example:
        >>> import firebrick as fb
        >>> fb.vecdot(fb.asarray([1.0, 2.0]), fb.asarray([3.0, 4.0])).item()
        11.0
    """
    _tensors("vecdot", x1, x2)
    if not -min(x1.ndim, x2.ndim) <= axis < 0 or x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(
            "vecdot: both need the axis, counted from the last, in equal sizes", f"{x1.shape}, {x2.shape}", "check"
        )
    return sum_(x1 * x2, axis=axis, dtype=result_type(x1, x2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over pairs of axes: the last ``axes`` of x1 with the first of x2, or two lists of axes.

    Example:
        >>> import firebrick as fb
        >>> fb.tensordot(fb.ones((2, 3)), fb.ones((3, 4)), axes=1).shape
        (2, 4)
    """
    _tensors("tensordot", x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError("tensordot: axes must be 0 to the smaller number of axes", f"axes {axes}", "check axes")
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        left, right = ([normalize_axis(a, x.ndim, "tensordot") for a in side] for side, x in zip(axes, (x1, x2), strict=True))
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


__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]
