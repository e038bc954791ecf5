"""Pooling over one to three axes: the largest value or the mean of each window.

x is [batch, channels, *image]; ``kernel``, ``stride``, ``padding`` and ``dilation`` are an int for all axes of the image, or
one for each; ``padding`` may also be pairs (before, after). Windows do not overlap by default.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from firebrick.core.bind import bind, bind_as
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import in_float32
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import AXES, Sizes, padding_of, per_axis
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import where as select
from firebrick.functions.indexing import take, take_along_axis
from firebrick.functions.movement import broadcast_to, expand_dims, permute_dims, squeeze
from firebrick.functions.searching import argmax
from firebrick.functions.statistical import max as max_of
from firebrick.functions.statistical import sum as sum_of
from firebrick.ops import OPS
from firebrick.ops.declare import Array, size_of
from firebrick.ops.pooling import pooled_shape


@overload
def max_pool1d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool1d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any: ...  # fmt: skip
@answers_arguments
def max_pool1d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of signals. Of equal maxima the first, in row-major order, takes the gradient.

    Args:
        x: Floating tensor [batch, channels, length].
        kernel: Size of the window: an int.
        stride: Step between windows; the window's size by default.
        padding: An int or ((before, after),); never a maximum, and smaller than the window.
        dilation: Step between the elements of a window.
        ceil_mode: Whether a last window that sticks out counts, if it starts inside the image or the padding before it.
        return_indices: Whether to return where the maxima are: places in the signal, int64.

    Returns:
        Tensor [batch, channels, out length], with ``return_indices`` and their places.

    Example:
        >>> import firebrick as fb
        >>> fb.max_pool1d(fb.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2).tolist()
        [[[3.0, 2.0]]]
    """
    return _max_pool("max_pool1d", 1, x, kernel, stride, padding, dilation, ceil_mode, return_indices)


@overload
def max_pool2d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool2d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any: ...  # fmt: skip
@answers_arguments
def max_pool2d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of images. Of equal maxima the first, in row-major order, takes the gradient.

    Args:
        x: Floating tensor [batch, channels, height, width].
        kernel: Size of the window: an int or (vertical, horizontal).
        stride: Step between windows; the window's size by default.
        padding: An int, (vertical, horizontal) or ((top, bottom), (left, right)); never a maximum, and smaller than the window.
        dilation: Step between the elements of a window.
        ceil_mode: Whether a last window that sticks out counts, if it starts inside the image or the padding before it.
        return_indices: Whether to return where the maxima are: row-major places in the image, int64.

    Returns:
        Tensor [batch, channels, out height, out width], with ``return_indices`` and their places.

    Example:
        >>> import firebrick as fb
        >>> fb.max_pool2d(fb.asarray([[[[1.0, 2.0], [3.0, 4.0]]]]), 2).tolist()
        [[[[4.0]]]]
    """
    return _max_pool("max_pool2d", 2, x, kernel, stride, padding, dilation, ceil_mode, return_indices)


@overload
def max_pool3d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def max_pool3d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any: ...  # fmt: skip
@answers_arguments
def max_pool3d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest value of each window of volumes. Of equal maxima the first, in row-major order, takes the gradient.

    Args:
        x: Floating tensor [batch, channels, depth, height, width].
        kernel: Size of the window: an int or three.
        stride: Step between windows; the window's size by default.
        padding: An int, three, or three pairs; never a maximum, and smaller than the window.
        dilation: Step between the elements of a window.
        ceil_mode: Whether a last window that sticks out counts, if it starts inside the image or the padding before it.
        return_indices: Whether to return where the maxima are: row-major places in the volume, int64.

    Returns:
        Tensor [batch, channels, out depth, out height, out width], with ``return_indices`` and their places.

    Example:
        >>> import firebrick as fb
        >>> fb.max_pool3d(fb.ones((1, 1, 2, 2, 2)), 2).tolist()
        [[[[[1.0]]]]]
    """
    return _max_pool("max_pool3d", 3, x, kernel, stride, padding, dilation, ceil_mode, return_indices)


@answers_arguments
def avg_pool1d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of signals.

    Args:
        x: Floating tensor [batch, channels, length].
        kernel: Size of the window: an int.
        stride: Step between windows; the window's size by default.
        padding: An int or ((before, after),) of zeros; smaller than the window.
        ceil_mode: Whether a last window that sticks out counts, if it starts inside the image or the padding before it.
        count_include_pad: Whether the padding counts as values. What sticks out of it never does.

    Returns:
        Tensor [batch, channels, out length].

    Example:
        >>> import firebrick as fb
        >>> fb.avg_pool1d(fb.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2).tolist()
        [[[2.0, 1.0]]]
    """
    return _avg_pool("avg_pool1d", 1, x, kernel, stride, padding, ceil_mode, count_include_pad)


@answers_arguments
def avg_pool2d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of images.

    Args:
        x: Floating tensor [batch, channels, height, width].
        kernel: Size of the window: an int or (vertical, horizontal).
        stride: Step between windows; the window's size by default.
        padding: An int, (vertical, horizontal) or ((top, bottom), (left, right)) of zeros; smaller than the window.
        ceil_mode: Whether a last window that sticks out counts, if it starts inside the image or the padding before it.
        count_include_pad: Whether the padding counts as values. What sticks out of it never does.

    Returns:
        Tensor [batch, channels, out height, out width].

    Example:
        >>> import firebrick as fb
        >>> fb.avg_pool2d(fb.asarray([[[[1.0, 2.0], [3.0, 4.0]]]]), 2).tolist()
        [[[[2.5]]]]
    """
    return _avg_pool("avg_pool2d", 2, x, kernel, stride, padding, ceil_mode, count_include_pad)


@answers_arguments
def avg_pool3d(
    x: Tensor, /, kernel: Sizes, stride: Sizes | None = None, *, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of volumes.

    Args:
        x: Floating tensor [batch, channels, depth, height, width].
        kernel: Size of the window: an int or three.
        stride: Step between windows; the window's size by default.
        padding: An int, three, or three pairs of zeros; smaller than the window.
        ceil_mode: Whether a last window that sticks out counts, if it starts inside the image or the padding before it.
        count_include_pad: Whether the padding counts as values. What sticks out of it never does.

    Returns:
        Tensor [batch, channels, out depth, out height, out width].

    Example:
        >>> import firebrick as fb
        >>> fb.avg_pool3d(fb.ones((1, 1, 2, 2, 2)), 2).tolist()
        [[[[[1.0]]]]]
    """
    return _avg_pool("avg_pool3d", 3, x, kernel, stride, padding, ceil_mode, count_include_pad)


@answers_arguments
def adaptive_avg_pool1d(x: Tensor, /, size: Any) -> Tensor:
    """The mean of ``size`` windows along each axis of signals: window i covers ⌊i·n/size⌋ to ⌈(i+1)·n/size⌉ of n elements.

    Args:
        x: Floating tensor [batch, channels, length].
        size: Sizes of the result, an int; 1 is global pooling.

    Returns:
        Tensor [batch, channels, *size].

    Example:
        >>> import firebrick as fb
        >>> fb.adaptive_avg_pool1d(fb.ones((1, 2, 5)), 3).shape
        (1, 2, 3)
    """
    return _adaptive_avg("adaptive_avg_pool1d", 1, x, size)


@answers_arguments
def adaptive_avg_pool2d(x: Tensor, /, size: Any) -> Tensor:
    """The mean of ``size`` windows along each axis of images: window i covers ⌊i·n/size⌋ to ⌈(i+1)·n/size⌉ of n elements.

    Args:
        x: Floating tensor [batch, channels, height, width].
        size: Sizes of the result, an int or two; None keeps an axis; 1 is global pooling.

    Returns:
        Tensor [batch, channels, *size].

    Example:
        >>> import firebrick as fb
        >>> fb.adaptive_avg_pool2d(fb.ones((1, 2, 5, 5)), 3).shape
        (1, 2, 3, 3)
    """
    return _adaptive_avg("adaptive_avg_pool2d", 2, x, size)


@answers_arguments
def adaptive_avg_pool3d(x: Tensor, /, size: Any) -> Tensor:
    """The mean of ``size`` windows along each axis of volumes: window i covers ⌊i·n/size⌋ to ⌈(i+1)·n/size⌉ of n elements.

    Args:
        x: Floating tensor [batch, channels, depth, height, width].
        size: Sizes of the result, an int or three; None keeps an axis; 1 is global pooling.

    Returns:
        Tensor [batch, channels, *size].

    Example:
        >>> import firebrick as fb
        >>> fb.adaptive_avg_pool3d(fb.ones((1, 2, 5, 5, 5)), 3).shape
        (1, 2, 3, 3, 3)
    """
    return _adaptive_avg("adaptive_avg_pool3d", 3, x, size)


@overload
def adaptive_max_pool1d(x: Tensor, /, size: Any, *, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool1d(x: Tensor, /, size: Any, *, return_indices: bool = False) -> Any: ...
@answers_arguments
def adaptive_max_pool1d(x: Tensor, /, size: Any, *, return_indices: bool = False) -> Any:
    """The largest value of ``size`` windows along each axis of signals; windows as for ``fb.adaptive_avg_pool1d``.

    Args:
        x: Floating tensor [batch, channels, length].
        size: Sizes of the result, an int; 1 is global pooling.
        return_indices: Whether to return where the maxima are, as ``fb.max_pool1d`` does.

    Returns:
        Tensor [batch, channels, *size], with ``return_indices`` and their places.

    Example:
        >>> import firebrick as fb
        >>> fb.adaptive_max_pool1d(fb.ones((1, 2, 5)), 3).shape
        (1, 2, 3)
    """
    return _adaptive_max("adaptive_max_pool1d", 1, x, size, return_indices)


@overload
def adaptive_max_pool2d(x: Tensor, /, size: Any, *, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool2d(x: Tensor, /, size: Any, *, return_indices: bool = False) -> Any: ...
@answers_arguments
def adaptive_max_pool2d(x: Tensor, /, size: Any, *, return_indices: bool = False) -> Any:
    """The largest value of ``size`` windows along each axis of images; windows as for ``fb.adaptive_avg_pool2d``.

    Args:
        x: Floating tensor [batch, channels, height, width].
        size: Sizes of the result, an int or two; None keeps an axis; 1 is global pooling.
        return_indices: Whether to return where the maxima are, as ``fb.max_pool2d`` does.

    Returns:
        Tensor [batch, channels, *size], with ``return_indices`` and their places.

    Example:
        >>> import firebrick as fb
        >>> fb.adaptive_max_pool2d(fb.ones((1, 2, 5, 5)), 3).shape
        (1, 2, 3, 3)
    """
    return _adaptive_max("adaptive_max_pool2d", 2, x, size, return_indices)


@overload
def adaptive_max_pool3d(x: Tensor, /, size: Any, *, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool3d(x: Tensor, /, size: Any, *, return_indices: bool = False) -> Any: ...
@answers_arguments
def adaptive_max_pool3d(x: Tensor, /, size: Any, *, return_indices: bool = False) -> Any:
    """The largest value of ``size`` windows along each axis of volumes; windows as for ``fb.adaptive_avg_pool3d``.

    Args:
        x: Floating tensor [batch, channels, depth, height, width].
        size: Sizes of the result, an int or three; None keeps an axis; 1 is global pooling.
        return_indices: Whether to return where the maxima are, as ``fb.max_pool3d`` does.

    Returns:
        Tensor [batch, channels, *size], with ``return_indices`` and their places.

    Example:
        >>> import firebrick as fb
        >>> fb.adaptive_max_pool3d(fb.ones((1, 2, 5, 5, 5)), 3).shape
        (1, 2, 3, 3, 3)
    """
    return _adaptive_max("adaptive_max_pool3d", 3, x, size, return_indices)


@answers_arguments
def max_unpool(x: Tensor, indices: Tensor, /, size: Any) -> Tensor:
    """Values put back to where max pooling found them, and zeros elsewhere.

    Args:
        x: Floating tensor [batch, channels, *places].
        indices: Integer tensor of x's shape: the places that max pooling returned with ``return_indices``.
        size: Sizes of the images that were pooled, one for each axis after the channels.

    Returns:
        Tensor [batch, channels, *size].

    Raises:
        OutOfRangeError: An index lies outside an image.

    Example:
        >>> import firebrick as fb
        >>> values, places = fb.max_pool1d(fb.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2, return_indices=True)
        >>> fb.max_unpool(values, places, 4).tolist()
        [[[0.0, 3.0, 2.0, 0.0]]]
    """
    for name, t in (("x", x), ("indices", indices)):
        if not isinstance(t, Tensor):
            raise not_a_tensor("max_unpool", name, t, None)
    check_devices("max_unpool", x=x, indices=indices)
    if not indices.dtype.is_integer:
        raise DTypeError(
            "max_unpool: indices need an integer dtype", describe("indices", indices), "pass pooling's second result"
        )
    if x.ndim < 3 or x.shape != indices.shape:
        raise ShapeError(
            "max_unpool: x is [batch, channels, *places], and indices have its shape",
            f"{describe('x', x)} and {describe('indices', indices)}", "pass both results of max pooling",
        )  # fmt: skip
    goal = per_axis("max_unpool", "size", size, x.ndim - 2)
    flat = (*x.shape[:2], size_of(x.shape[2:]))
    empty = zeros((*x.shape[:2], size_of(goal)), dtype=x.dtype, device=x.device)
    spread: Tensor = bind_as("max_unpool", OPS["scatter"], (empty, indices.reshape(flat), x.reshape(flat)), {"axis": 2})
    return spread.reshape(*x.shape[:2], *goal)


def _image(where: str, rank: int, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, "x", x, None)
    if x.dtype.kind != "float":
        raise DTypeError(f"{where}: x needs a floating dtype", describe("x", x), "cast it: fb.astype(x, fb.float32)")
    if x.ndim != rank + 2:
        raise ShapeError(f"{where}: x is [batch, channels, {AXES[rank]}]", describe("x", x), "add or remove axes of x")


def _windows(
    where: str, rank: int, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[dict[str, Any], tuple[tuple[int, int], ...]]:
    """The windows as parameters of an op, where the padding also holds what the last ones stick out, and the padding."""
    _image(where, rank, x)
    k = per_axis(where, "kernel", kernel, rank)
    s = k if stride is None else per_axis(where, "stride", stride, rank)
    d = per_axis(where, "dilation", dilation, rank)
    if isinstance(padding, str):
        raise ShapeError(f"{where}: padding is ints or pairs", repr(padding), "give the padding in numbers")
    pads = whole = padding_of(where, padding, k, s, d)
    if ceil_mode:
        whole = tuple(map(_with_last_window, x.shape[2:], k, s, pads, d))
    params = {"kernel": k, "stride": s, "padding": whole, "dilation": d}
    pooled_shape(where, x.shape, **params)
    return params, pads


def _with_last_window(size: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> tuple[int, int]:
    before, after = pad
    reach = dilation * (kernel - 1) + 1
    steps = -((reach - size - before - after) // stride)  # rounded up
    if steps * stride >= size + before:
        steps -= 1
    return before, max(after, steps * stride + reach - size - before)


def _max_pool(
    where: str, rank: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Any:
    params, _ = _windows(where, rank, x, kernel, stride, padding, dilation, ceil_mode)
    best, places = bind(OPS["max_pool"], (x,), params)
    return (best, places) if indices else best


def _avg_pool(
    where: str, rank: int, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include_pad: bool
) -> Tensor:
    params, pads = _windows(where, rank, x, kernel, stride, padding, 1, ceil_mode)
    del params["dilation"]
    y: Tensor = bind(OPS["avg_pool"], (x,), params)
    if params["padding"] == pads and (include_pad or not any(map(any, pads))):
        return y
    share = np.ones(())
    for i, n in enumerate(y.shape[2:]):
        (before, after), size, k = pads[i], x.shape[2 + i], params["kernel"][i]
        start = np.arange(n) * params["stride"][i] - before
        stop = np.minimum(start + k, size + after)
        counted = stop - start if include_pad else np.minimum(stop, size) - np.maximum(start, 0)
        share = share[..., None] * (k / counted)
    return y * _constant(share, x)


def _constant(values: Array, like: Tensor) -> Tensor:
    made: Tensor = hooks.from_host(values.astype(like.dtype.np), like.device)
    return made


def _adaptive(where: str, rank: int, x: Tensor, size: Any) -> tuple[int, ...]:
    _image(where, rank, x)
    image = x.shape[2:]
    each = tuple(size) if isinstance(size, (tuple, list)) else (size,) * rank
    goal = per_axis(where, "size", tuple(n if v is None else v for v, n in zip(each, image, strict=False)), rank)
    if min(image) < 1 or len(each) != rank:
        raise ShapeError(f"{where}: size is an int or {rank} of them, and images have elements",
                         f"{describe('x', x)}, size {size!r}", "check both")  # fmt: skip
    return goal


def _spans(size: int, goal: int) -> tuple[Array, Array]:
    """For each window the elements it covers, [goal, longest], where the last repeats to fill up, and how many those are."""
    at = np.arange(goal)
    start, stop = at * size // goal, -(-(at + 1) * size // goal)
    longest = int((stop - start).max())
    return np.minimum(start[:, None] + np.arange(longest), stop[:, None] - 1), stop - start


@in_float32
def _adaptive_avg(where: str, rank: int, x: Tensor, size: Any) -> Tensor:
    goal = _adaptive(where, rank, x, size)
    even = tuple(n // g if n % g == 0 else 1 for n, g in zip(x.shape[2:], goal, strict=True))
    y = x
    if size_of(even) > 1:
        y = bind(OPS["avg_pool"], (x,), {"kernel": even, "stride": even, "padding": ((0, 0),) * rank})
    for axis, g in enumerate(goal, 2):
        if y.shape[axis] != g:
            spans, counts = _spans(y.shape[axis], g)
            ones = [1] * (rank + 1 - axis)
            counted = (np.arange(spans.shape[1]) < counts[:, None]).reshape(*spans.shape, *ones)
            shares = (1.0 / counts).reshape(-1, 1, *ones)
            each = take(y, hooks.from_host(spans, x.device), axis=axis) * _constant(shares, x)
            y = sum_of(select(hooks.from_host(counted, x.device), each, 0.0), axis=axis + 1)
    return y


def _adaptive_max(where: str, rank: int, x: Tensor, size: Any, indices: bool) -> Any:
    goal = _adaptive(where, rank, x, size)
    image = x.shape[2:]
    if all(n % g == 0 for n, g in zip(image, goal, strict=True)):
        kernel = tuple(n // g for n, g in zip(image, goal, strict=True))
        return _max_pool(where, rank, x, kernel, None, 0, 1, False, indices)
    y, places = x, np.zeros((), np.int64)
    for i, (n, g) in enumerate(zip(image, goal, strict=True)):
        spans, _ = _spans(n, g)
        y = take(y, hooks.from_host(spans, x.device), axis=2 + 2 * i)
        places = places[..., None, None] * n + spans
    # [batch, channels, goal, elements of a window]
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
    y = permute_dims(y, (0, 1, *(2 + a for a in order)))
    y = y.reshape(*x.shape[:2], *goal, size_of(y.shape[2 + rank :]))
    best = max_of(y, axis=-1)
    if not indices:
        return best
    table = hooks.from_host(np.ascontiguousarray(places.transpose(order).reshape(*goal, -1)), x.device)
    first = expand_dims(argmax(y, axis=-1), axis=-1)
    return best, squeeze(take_along_axis(broadcast_to(table, y.shape), first, axis=-1), -1)
