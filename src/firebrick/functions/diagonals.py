"""Diagonals: read as one strided slice of the flat matrix, written back the same way."""

from __future__ import annotations

from firebrick.core.bind import bind
from firebrick.core.constants import constant
from firebrick.core.dtypes import zero_of
from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import _operand, broadcast_to, moveaxis, reshape
from firebrick.ops import OPS


def _place(rows: int, columns: int, offset: int) -> tuple[int, int]:
    """The flat position of a diagonal's first element, and how many it has."""
    first = offset if offset >= 0 else -offset * columns
    return first, max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def _steps(lead: tuple[int, ...], first: int, length: int, step: int) -> dict[str, tuple[int, ...]]:
    """Parameters of a slice of the last axis."""
    stop = first + (length - 1) * step + 1
    return {
        "starts": (0,) * len(lead) + (first if length else 0,),
        "stops": (*lead, stop if length else 0),
        "steps": (1,) * len(lead) + (step,),
    }


@answers_arguments
def diagonal(x: Tensor, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """A diagonal of the matrices in two axes, as a new last axis.

    Args:
        x: Tensor of at least two axes.
        offset: 0 for the main diagonal, above it if positive, below it if negative.
        axis1: Axis of rows.
        axis2: Axis of columns.

    Example:
        >>> import firebrick as fb
        >>> fb.diagonal(fb.asarray([[1, 2], [3, 4]])).tolist()
        [1, 4]
    """
    _operand("diagonal", x)
    offset = whole("diagonal", "offset", offset)
    if x.ndim < 2:
        raise ShapeError("diagonal needs at least two axes", describe("x", x), "fb.diag makes a matrix of a vector")
    a, b = (normalize_axis(k, x.ndim, "diagonal") for k in (axis1, axis2))
    if a == b:
        raise ShapeError("diagonal: axis1 and axis2 must differ", f"{axis1} and {axis2}", "name two axes")
    moved = moveaxis(x, (a, b), (-2, -1)) if (a, b) != (x.ndim - 2, x.ndim - 1) else x
    lead, (rows, columns) = moved.shape[:-2], moved.shape[-2:]
    first, length = _place(rows, columns, offset)
    flat = reshape(moved, (*lead, rows * columns))
    return bind(OPS["slice"], (flat,), _steps(lead, first, length, columns + 1))  # type: ignore[no-any-return]


@answers_arguments
def diag_embed(x: Tensor, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Square matrices with the last axis of x on a diagonal and zeros elsewhere.

    Args:
        x: Tensor [..., n].
        offset: The diagonal, as for ``diagonal``.
        axis1: Axis of rows in the result.
        axis2: Axis of columns in the result.

    Returns:
        Tensor with one axis more: n + abs(offset) rows and columns.

    Example:
        >>> import firebrick as fb
        >>> fb.diag_embed(fb.asarray([1, 2])).tolist()
        [[1, 0], [0, 2]]
    """
    _operand("diag_embed", x)
    offset = whole("diag_embed", "offset", offset)
    if not x.ndim:
        raise ShapeError("diag_embed needs at least one axis", describe("x", x), "add an axis")
    a, b = (normalize_axis(k, x.ndim + 1, "diag_embed") for k in (axis1, axis2))
    if a == b:
        raise ShapeError("diag_embed: axis1 and axis2 must differ", f"{axis1} and {axis2}", "name two axes")
    lead, n = x.shape[:-1], x.shape[-1] + abs(offset)
    first, length = _place(n, n, offset)
    zeros = broadcast_to(constant(zero_of(x.dtype), x.dtype, x.device), (*lead, n * n))
    flat = bind(OPS["slice_update"], (zeros, x), _steps(lead, first, length, n + 1))
    matrices = reshape(flat, (*lead, n, n))
    return moveaxis(matrices, (-2, -1), (a, b)) if (a, b) != (x.ndim - 1, x.ndim) else matrices


@answers_arguments
def diag(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector on its diagonal.

    Args:
        x: Vector or matrix.
        offset: Which diagonal: above the main one if positive, below it if negative.

    Example:
        >>> import firebrick as fb
        >>> fb.diag(fb.asarray([1, 2])).tolist()
        [[1, 0], [0, 2]]
        >>> fb.diag(fb.asarray([[1, 2], [3, 4]]), offset=1).tolist()
        [2]
    """
    _operand("diag", x)
    offset = whole("diag", "offset", offset)
    if x.ndim not in (1, 2):
        raise ShapeError("diag takes a vector or a matrix", describe("x", x), "use fb.diagonal or fb.diag_embed")
    return diag_embed(x, offset=offset) if x.ndim == 1 else diagonal(x, offset=offset)
