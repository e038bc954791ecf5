"""Searching functions of the Array API standard: places of extremes and of non-zero elements, and binary search.

How many elements are non-zero depends on values. Without ``size`` that number is read, once, and gives the shape; with
``size`` nothing is read and the shape is fixed.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from firebrick.core.bind import bind, bind_as
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import DType, bool_, int64, scalar_fits, scalar_misfit, uint8
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.shapes import normalize_axes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, weak_scalar
from firebrick.functions.axes import Axis, check_reduced, default_int, operand, reduce, truth
from firebrick.functions.checks import known_now
from firebrick.functions.elementwise import astype, floor_divide, remainder, where
from firebrick.functions.movement import reshape, stack
from firebrick.functions.ranges import arange
from firebrick.ops import OPS


def _arg(name: str, x: Tensor, axis: int | None, keepdims: bool, out: Tensor | None) -> Tensor:
    operand(name, x, "real")
    check_reduced(name, x, axis, keepdims, int64, out)
    if axis is None:
        flat = reshape(x, (-1,))
        if not keepdims:
            return bind(OPS[name], (flat,), {"axis": 0, "keepdims": False}, out)  # type: ignore[no-any-return]
        found: Tensor = bind(OPS[name], (flat,), {"axis": 0, "keepdims": False})
        return reshape(found, (1,) * x.ndim, out=out)
    params = {"axis": normalize_axis(axis, x.ndim, name), "keepdims": bool(keepdims)}
    return bind(OPS[name], (x,), params, out)  # type: ignore[no-any-return]


@answers_arguments
def argmax(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """The lowest index of the largest element along an axis (of the flat tensor by default), as int64.

    Args:
        x: Real tensor of any shape.
        axis: Axis to search; the flat tensor by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.argmax(fb.asarray([1.0, 7.0, 7.0])).item()
        1
    """
    return _arg("argmax", x, axis, keepdims, out)


@answers_arguments
def argmin(x: Tensor, /, axis: int | None = None, *, keepdims: bool = False, out: Tensor | None = None) -> Tensor:
    """The lowest index of the smallest element along an axis (of the flat tensor by default), as int64.

    Args:
        x: Real tensor of any shape.
        axis: Axis to search; the flat tensor by default.
        keepdims: Keep reduced axes with size 1.
        out: Handle to rebind to the result; of its dtype and shape.

    Example:
        >>> import firebrick as fb
        >>> fb.argmin(fb.asarray([7.0, 1.0, 1.0])).item()
        1
    """
    return _arg("argmin", x, axis, keepdims, out)


@answers_arguments
def count_nonzero(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """How many elements over axes are non-zero (NaN is), in the default integer dtype.

    Args:
        x: Bool or numeric tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.count_nonzero(fb.asarray([[1, 0], [2, 3]]), axis=0).tolist()
        [2, 1]
    """
    operand("count_nonzero", x)
    axis = normalize_axes(axis, x.ndim, "count_nonzero")
    return reduce("sum", astype(truth(x), default_int(x)), axis, keepdims)


def fixed_size(where: str, size: Any) -> int:
    """``size`` as an int ≥ 0."""
    try:
        n = index(size)
    except TypeError:
        n = -1
    if n < 0:
        raise ConfigError(f"{where}: size must be an int ≥ 0", repr(size), "leave it out to have the size read")
    return n


def check_fill(where: str, fill_value: Any, like: DType) -> None:
    """Check that a ``fill_value`` is a Python or NumPy scalar that may stand beside a dtype."""
    fill_value = weak_scalar(fill_value)
    if not isinstance(fill_value, (bool, int, float, complex)):
        shown = f"fill_value={fill_value!r:.60}"
        raise ConfigError(f"{where}: fill_value is a Python scalar", shown, "pass a number", op=where)
    if not scalar_fits(fill_value, like):
        if isinstance(fill_value, Weak):
            raise scalar_misfit(where, fill_value.kind(1), like, f"{fill_value.kind.__name__} {fill_value.name}")
        raise scalar_misfit(where, fill_value, like)


def places(mask: Tensor, size: int | None) -> Tensor:
    """The indices at which a bool tensor of one axis holds, in order, filled up with its length to ``size``."""
    if size is None and mask.device.backend.host_memory(mask.device):
        return hooks.from_host(np.flatnonzero(mask.numpy()).astype(np.int64), mask.device)
    running: Tensor = bind(OPS["cumulative_sum"], (astype(mask, int64),), {"axis": 0, "reverse": False})
    if size is None:
        size = int(running[-1]) if mask.size else 0
    # the k-th is where the running count reaches k
    wanted = arange(1, size + 1, dtype=int64, device=mask.device)
    return bind(OPS["searchsorted"], (running, wanted), {"right": False})  # type: ignore[no-any-return]


def _nonzero(name: str, x: Tensor, size: int | None, fill_value: int) -> tuple[Tensor, ...]:
    operand(name, x)
    if not x.ndim:
        raise ShapeError(f"{name} needs at least one axis", describe("x", x), "reshape it to (1,)", op=name)
    check_fill(name, fill_value, int64)
    if size is None:
        known_now(name, "the shape of its result", "x", x, "pass size=")
    at = places(reshape(truth(x), (-1,)), None if size is None else fixed_size(name, size))
    found, stride = [], x.size
    for n in x.shape:
        stride = stride // n if n else 0
        along = remainder(floor_divide(at, stride), n)
        found.append(along if size is None else where(at < x.size, along, fill_value))
    return tuple(found)


@answers_arguments
def nonzero(x: Tensor, /, *, size: int | None = None, fill_value: int = 0) -> tuple[Tensor, ...]:
    """The indices of the non-zero elements, in row-major order, as one tensor for each axis.

    Args:
        x: Tensor of at least one axis.
        size: Number of places to give, so that the shape depends on no value: the first ``size``, or fewer filled up.
        fill_value: What to fill up with.

    Returns:
        As many int64 tensors as x has axes, each of shape [count] or [size].

    Example:
        >>> import firebrick as fb
        >>> [i.tolist() for i in fb.nonzero(fb.asarray([[0, 5], [6, 0]]))]
        [[0, 1], [1, 0]]
        >>> fb.nonzero(fb.asarray([0, 7, 8]), size=4, fill_value=-1)[0].tolist()
        [1, 2, -1, -1]
    """
    return _nonzero("nonzero", x, size, fill_value)


@documented_like(nonzero)
@answers_arguments
def argwhere(x: Tensor, /, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """The indices of the non-zero elements, as rows of an int64 tensor [count, axes].

    Example:
        >>> import firebrick as fb
        >>> fb.argwhere(fb.asarray([[0, 5], [6, 0]])).tolist()
        [[0, 1], [1, 0]]
    """
    return stack(_nonzero("argwhere", x, size, fill_value), axis=1)


@documented_like(nonzero)
@answers_arguments
def flatnonzero(x: Tensor, /, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """The indices of the non-zero elements in the flat tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.flatnonzero(fb.asarray([[0, 5], [6, 0]])).tolist()
        [1, 2]
    """
    operand("flatnonzero", x)
    return _nonzero("flatnonzero", reshape(x, (-1,)), size, fill_value)[0]


@answers_arguments
def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where each element of x2 would go into x1 to keep it in order: binary search.

    Args:
        x1: Real or bool tensor [n] in ascending order, NaN last. The order is not checked.
        x2: Real tensor of any shape, of a dtype that promotes with x1's; bool if x1 is.
        side: ``"left"``: before equal elements; ``"right"``: behind them.
        sorter: Integer tensor [n] that sorts x1, such as ``argsort`` gives, if x1 is in no order.

    Returns:
        int64 tensor of x2's shape, values in [0, n].

    Example:
        >>> import firebrick as fb
        >>> fb.searchsorted(fb.asarray([1.0, 2.0, 3.0]), fb.asarray([2.0, 9.0])).tolist()
        [1, 3]
    """
    if all(getattr(x, "dtype", None) is bool_ for x in (x1, x2)):
        x1, x2 = astype(x1, uint8), astype(x2, uint8)
    operand("searchsorted", x1, "real", "x1")
    operand("searchsorted", x2, "real", "x2")
    check_devices("searchsorted", x1=x1, x2=x2, sorter=sorter)
    if side not in ("left", "right"):
        raise ConfigError('searchsorted: side is "left" or "right"', repr(side), "use one of these")
    if sorter is not None:
        operand("searchsorted", sorter, "integer", "sorter")
        if sorter.shape != x1.shape:
            raise ShapeError(
                "searchsorted: sorter must have the shape of x1",
                f"{describe('sorter', sorter)} and {describe('x1', x1)}",
                "make it with fb.argsort(x1)",
            )
        x1 = bind_as("searchsorted: sorter", OPS["take"], (x1, sorter), {"axis": 0})
    return bind(OPS["searchsorted"], (x1, x2), {"right": side == "right"})  # type: ignore[no-any-return]
