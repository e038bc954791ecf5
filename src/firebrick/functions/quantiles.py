"""Quantiles and medians along axes, by sorting; gradients flow into the elements that a quantile lies between."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.core.errors import ConfigError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import widened
from firebrick.core.shapes import normalize_axes
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, weak_scalar
from firebrick.functions.axes import Axis, nonempty, operand, reduce, rows, widest
from firebrick.functions.checks import staged
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import (
    Unary,
    astype,
    ceil,
    equal,
    floor,
    greater_equal,
    isnan,
    less_equal,
    logical_and,
    logical_not,
    maximum,
    round,
    where,
)
from firebrick.functions.indexing import take_along_axis
from firebrick.functions.movement import broadcast_to, moveaxis, reshape, squeeze
from firebrick.functions.sorting import in_order

Fractions = float | Sequence[float] | Tensor
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
_CHOSEN: dict[str, Unary] = {"lower": floor, "higher": ceil, "nearest": round}


def _out_of_range(where_: str, top: float, received: str) -> ConfigError:
    return ConfigError(f"{where_}: q must lie in [0, {top:g}]", received, "say which share of the elements lies below")


def _fractions(where_: str, x: Tensor, q: Any, top: float) -> np.ndarray[Any, Any] | Tensor:
    """``q`` in [0, top], checked, as fractions in [0, 1]: a tensor where q is one, else on the host."""
    q = weak_scalar(q)
    if isinstance(q, Weak) or (isinstance(q, (list, tuple)) and any(isinstance(v, Weak) for v in q)):
        q = asarray(q, dtype=widest(x), device=x.device)
    if isinstance(q, Tensor):
        operand(where_, q, "floating", "q")
        if q.ndim < 2:
            wide = astype(q, widest(q), copy=False)
            error = partial(_out_of_range, where_, top, describe("q", q))
            if not staged(lambda: logical_and(greater_equal(wide, 0.0), less_equal(wide, float(top))), error):
                host = q.numpy()
                if not ((host >= 0) & (host <= top)).all():
                    raise error()
            return wide / float(top)
        host = np.zeros((0, 0))
    elif isinstance(q, (int, float, list, tuple)):
        try:
            host = np.asarray(q, np.float64)
        except (TypeError, ValueError):
            host = np.zeros((0, 0))
    else:
        host = np.zeros((0, 0))
    if host.ndim > 1:
        raise OperandError(
            f"{where_}: q is a number, a list of numbers or a tensor of at most one axis",
            f"{type(q).__name__} {q!r:.60}",
            "pass e.g. 0.5 or [0.25, 0.75]" if top == 1 else "pass e.g. 50 or [25, 75]",
        )
    if not ((host >= 0) & (host <= top)).all():
        raise _out_of_range(where_, top, f"q={q!r:.80}")
    return host / top


def _quantile(where_: str, x: Tensor, q: Any, axis: Axis, keepdims: bool, method: str, skip: bool, top: float = 1) -> Tensor:
    operand(where_, x, "floating")
    check_devices(where_, x=x, q=q)
    if method not in METHODS:
        raise ConfigError(f"{where_}: method is one of {', '.join(METHODS)}", repr(method), "use one of these")
    fractions = _fractions(where_, x, q, top)
    axes = normalize_axes(axis, x.ndim, where_)
    nonempty(where_, x, axes)
    lines = rows(x, axes)
    ordered = widened(in_order(lines, lines.ndim - 1))
    place = _places(ordered, fractions, skip)
    found = _between(ordered, place, method)
    if not skip:
        last = ordered[..., -1:]  # NaN, if there is any
        found = where(isnan(last), last, found)
    found = astype(found, x.dtype, copy=False)
    if keepdims:
        found = reshape(found, (*(1 if i in axes else d for i, d in enumerate(x.shape)), fractions.size))
    return moveaxis(found, -1, 0) if fractions.ndim else squeeze(found, -1)


def _places(ordered: Tensor, fractions: np.ndarray[Any, Any] | Tensor, skip: bool) -> Tensor:
    """Where the quantiles of each line lie among its elements: q · (n - 1), n being the number of elements that count."""
    wide = widest(ordered)
    shape = (*ordered.shape[:-1], fractions.size)

    def on_device(shares: np.ndarray[Any, Any] | Tensor) -> Tensor:
        if isinstance(shares, Tensor):
            return reshape(shares, (-1,))
        made: Tensor = hooks.from_host(shares.reshape(-1).astype(wide.np), ordered.device)
        return made

    if not skip:
        return broadcast_to(on_device(fractions * (ordered.shape[-1] - 1)), shape)
    numbers = reduce("sum", astype(logical_not(isnan(ordered)), wide), -1, True)
    return maximum(numbers - 1.0, 0.0) * on_device(fractions)


def _between(ordered: Tensor, place: Tensor, method: str) -> Tensor:
    """The values at places between elements of sorted lines."""

    def at(index: Tensor) -> Tensor:
        return take_along_axis(ordered, astype(index, "int64"), axis=-1)

    if method in _CHOSEN:
        return at(_CHOSEN[method](place))
    below = floor(place)
    left, right = at(below), at(ceil(place))
    share = astype(place - below, ordered.dtype) if method == "linear" else 0.5
    # where both are one element, or infinities of one sign, it is that element itself
    return where(equal(left, right), left, left * (1.0 - share) + right * share)


@answers_arguments
def quantile(
    x: Tensor,
    q: Fractions,
    /,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Tensor:
    """The value below which a share ``q`` of the elements over axes are; NaN where one of them is NaN.

    It lies at place q · (n - 1) of the n sorted elements.

    Args:
        x: Floating tensor.
        q: Share in [0, 1], or several as a list or a tensor of one axis.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        method: Between two elements: ``"linear"`` interpolation, the ``"lower"`` or ``"higher"`` one, the
            ``"midpoint"``, or the ``"nearest"`` (of two equally near, the one at the even place).

    Returns:
        Tensor of the reduced shape; several ``q`` become its first axis.

    Raises:
        ConfigError: A share lies outside [0, 1].
        ShapeError: There are no elements.

    Example:
        >>> import firebrick as fb
        >>> fb.quantile(fb.asarray([1.0, 2.0, 4.0]), [0.25, 0.5]).tolist()
        [1.5, 2.0]
    """
    return _quantile("quantile", x, q, axis, keepdims, method, False)


@answers_arguments
def percentile(
    x: Tensor,
    q: Fractions,
    /,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Tensor:
    """``quantile`` with ``q`` in percent, in [0, 100].

    Args:
        x: Floating tensor.
        q: Percentage in [0, 100], or several as a list or a tensor of one axis.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        method: How to choose between two elements, as for ``quantile``.

    Example:
        >>> import firebrick as fb
        >>> fb.percentile(fb.asarray([1.0, 2.0, 4.0]), 50).item()
        2.0
    """
    return _quantile("percentile", x, q, axis, keepdims, method, False, 100)


@answers_arguments
def median(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The middle element over axes, or the mean of the two middle ones (PyTorch takes the lower); NaN where one is NaN.

    Args:
        x: Floating tensor.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.median(fb.asarray([5.0, 1.0, 2.0, 4.0])).item()
        3.0
    """
    return _quantile("median", x, 0.5, axis, keepdims, "midpoint", False)


@answers_arguments
def nanquantile(
    x: Tensor,
    q: Fractions,
    /,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Tensor:
    """``quantile`` of the elements that are not NaN; NaN where there are none.

    Args:
        x: Floating tensor.
        q: Share in [0, 1], or several as a list or a tensor of one axis.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.
        method: How to choose between two elements, as for ``quantile``.

    Example:
        >>> import firebrick as fb
        >>> fb.nanquantile(fb.asarray([1.0, fb.nan, 2.0]), 0.5).item()
        1.5
    """
    return _quantile("nanquantile", x, q, axis, keepdims, method, True)


@answers_arguments
def nanmedian(x: Tensor, /, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """``median`` of the elements that are not NaN; NaN where there are none.

    Args:
        x: Floating tensor of any shape.
        axis: Axis or axes to reduce; all by default.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.nanmedian(fb.asarray([1.0, fb.nan, 2.0])).item()
        1.5
    """
    return _quantile("nanmedian", x, 0.5, axis, keepdims, "midpoint", True)
