"""Padding in every mode, sliding windows, and images as columns of patches: compositions of slices, joins and takes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from operator import index
from typing import Any

import numpy as np

from firebrick.core.bind import bind
from firebrick.core.constants import constant, host_scalar
from firebrick.core.dtypes import bool_, python_scalar, scalar_fits, scalar_misfit, zero_of
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_operand, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, weak_scalar
from firebrick.functions.movement import _operand, broadcast_to, concat, moveaxis, permute_dims, reshape
from firebrick.ops import OPS

Widths = tuple[tuple[int, int], ...]
_MODES = {"constant": "", "edge": "replicate", "reflect": "", "symmetric": "", "wrap": "circular"}
"""Each mode, and PyTorch's name where it differs."""


@answers_arguments
def pad(x: Tensor, /, widths: Any, *, mode: str = "constant", value: complex | None = None) -> Tensor:
    """x with elements before and after it along axes.

    Args:
        x: Tensor.
        widths: How many: ((before, after), …), one pair an axis; (before, after) or an int for every axis; or
            ``{axis: (before, after)}`` for some.
        mode: ``"constant"``; ``"edge"`` repeats the outermost element; ``"reflect"`` mirrors at it, ``"symmetric"`` beside
            it (so that it occurs twice); ``"wrap"`` takes the elements of the other end.
        value: The element of ``"constant"``; by default the zero of x's dtype, False for bool.

    Returns:
        Tensor of x's dtype, each axis longer by its two widths.

    Raises:
        ShapeError: A width is negative, or needs more elements than the axis has: at most n - 1 on a side for
            ``"reflect"``, n for ``"symmetric"`` and ``"wrap"``, any number but of an empty axis for ``"edge"``.
        ConfigError: The mode is unknown.

    Example:
        >>> import firebrick as fb
        >>> fb.pad(fb.asarray([1, 2]), ((1, 0),), value=9).tolist()
        [9, 1, 2]
        >>> fb.pad(fb.asarray([1, 2, 3]), 2, mode="reflect").tolist()
        [3, 2, 1, 2, 3, 2, 1]
    """
    _operand("pad", x)
    pairs = _pairs(widths, x)
    if mode not in list(_MODES):  # a list compares, where a dict would hash
        meant = next((f'write "{ours}"' for ours, theirs in _MODES.items() if theirs and theirs == mode), "use one of these")
        raise ConfigError(f"pad: mode must be one of {', '.join(_MODES)}", repr(mode), meant)
    if mode == "constant":
        value = zero_of(x.dtype) if value is None else weak_scalar(value)
        if isinstance(value, Weak):  # known when the graph runs: taken where the padding is
            ones = broadcast_to(constant(True, bool_, x.device), x.shape)
            inside = bind(OPS["pad"], (ones,), {"widths": pairs, "value": False})
            zeros_around = bind(OPS["pad"], (x,), {"widths": pairs, "value": zero_of(x.dtype)})
            padded: Tensor = bind(OPS["where"], (inside, zeros_around, value), {})
            return padded
        if not scalar_fits(value, x.dtype):
            raise scalar_misfit("pad", value, x.dtype)
        value = host_scalar(value, x.dtype).item()  # its range too
        return bind(OPS["pad"], (x,), {"widths": pairs, "value": value})  # type: ignore[no-any-return]
    for axis, (before, after) in enumerate(pairs):
        n, most = x.shape[axis], max(before, after)
        room = {"edge": most if n else 0, "reflect": max(n - 1, 0)}.get(mode, n)
        if most > room:
            raise ShapeError(
                f'pad: mode "{mode}" has at most {room} elements for a side of axis {axis}',
                f"widths {(before, after)}, {describe('x', x)}",
                'pad less, or use mode "constant"',
            )
    x = reshape(x, x.shape)  # another handle, also where nothing is added
    for axis, (before, after) in enumerate(pairs):
        left = [_before(x, axis, before, mode)] if before else []
        right = [_after(x, axis, after, mode)] if after else []
        if left or right:
            x = concat([*left, x, *right], axis=axis)
    return x


def _pairs(widths: Any, x: Tensor) -> Widths:
    """One (before, after) an axis."""
    if isinstance(widths, Mapping):
        named = {normalize_axis(a, x.ndim, "pad"): w for a, w in widths.items()}
        rows = [named.get(k, 0) for k in range(x.ndim)]
    elif isinstance(widths, (tuple, list)) and not (len(widths) == 2 and all(hasattr(w, "__index__") for w in widths)):
        rows = list(widths)
    else:
        rows = [widths] * x.ndim
    try:
        pairs = tuple((index(w), index(w)) if hasattr(w, "__index__") else (index(w[0]), index(w[1])) for w in rows)
        fits = len(pairs) == x.ndim and all(not isinstance(w, (tuple, list)) or len(w) == 2 for w in rows)
    except (TypeError, IndexError):
        raise ShapeError("pad: widths is ((before, after), …), one pair an axis", repr(widths), "pass ints") from None
    if not fits:
        raise ShapeError(
            f"pad: widths needs one pair for each of the {x.ndim} axes", f"{widths!r}, {describe('x', x)}",
            "pass ((before, after), …), or {axis: (before, after)} for some axes",
        )  # fmt: skip
    if any(w < 0 for pair in pairs for w in pair):
        raise ShapeError("pad: widths must be ≥ 0", f"{widths!r}, {describe('x', x)}", "cut with a slice instead: x[1:-1]")
    return pairs


def _part(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """A slice of one axis; a stop of -1 below a negative step means up to and with element 0."""
    starts = tuple(start if k == axis else 0 for k in range(x.ndim))
    stops = tuple(stop if k == axis else n for k, n in enumerate(x.shape))
    steps = tuple(step if k == axis else 1 for k in range(x.ndim))
    return bind(OPS["slice"], (x,), {"starts": starts, "stops": stops, "steps": steps})  # type: ignore[no-any-return]


def _before(x: Tensor, axis: int, width: int, mode: str) -> Tensor:
    """What stands before x along an axis."""
    n, skip = x.shape[axis], int(mode == "reflect")
    if mode == "edge":
        return broadcast_to(_part(x, axis, 0, 1), (*x.shape[:axis], width, *x.shape[axis + 1 :]))
    if mode == "wrap":
        return _part(x, axis, n - width, n)
    return _part(x, axis, width - 1 + skip, skip - 1, -1)


def _after(x: Tensor, axis: int, width: int, mode: str) -> Tensor:
    """What stands after x along an axis."""
    last = x.shape[axis] - 1
    if mode == "edge":
        return broadcast_to(_part(x, axis, last, last + 1), (*x.shape[:axis], width, *x.shape[axis + 1 :]))
    if mode == "wrap":
        return _part(x, axis, 0, width)
    first = last - int(mode == "reflect")
    return _part(x, axis, first, first - width, -1)


# windows


@answers_arguments
def unfold(x: Tensor, /, *, axis: int, size: int, step: int = 1) -> Tensor:
    """Windows that slide along an axis: the axis counts them, and a new last axis holds their elements.

    Args:
        x: Tensor.
        axis: Axis to slide along.
        size: Elements of a window.
        step: Distance of neighbouring windows.

    Returns:
        Tensor of x's shape, but with (n - size) // step + 1 windows along the axis, and ``size`` last.

    Example:
        >>> import firebrick as fb
        >>> fb.unfold(fb.arange(6), axis=0, size=3, step=2).tolist()
        [[0, 1, 2], [2, 3, 4]]
    """
    _operand("unfold", x)
    at = normalize_axis(axis, x.ndim, "unfold")
    (width,), (apart,) = _ints("unfold", "size", size, 1), _ints("unfold", "step", step, 1)
    if width > x.shape[at]:
        raise ShapeError(f"unfold: size must be at most {x.shape[at]}, the size of axis {at}", f"size {size}", "take less")
    count = (x.shape[at] - width) // apart + 1
    if apart == width:  # windows side by side
        rows = reshape(_part(x, at, 0, count * width), (*x.shape[:at], count, width, *x.shape[at + 1 :]))
    else:
        rows = _take(x, _starts(count, apart, width, 1), at)
    return moveaxis(rows, at + 1, -1)


def _starts(count: int, step: int, size: int, dilation: int) -> np.ndarray[Any, Any]:
    """Where each element [count, size] of a number of windows lies."""
    return np.arange(count)[:, None] * step + np.arange(size) * dilation


def _take(x: Tensor, places: np.ndarray[Any, Any], axis: int) -> Tensor:
    return bind(OPS["take"], (x, hooks.from_host(places, x.device)), {"axis": axis})  # type: ignore[no-any-return]


def _ints(where: str, name: str, value: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """An int, or ``count`` of them, each ≥ ``least``."""
    given = tuple(map(python_scalar, value if isinstance(value, (tuple, list)) else (value,) * count))
    if len(given) != count or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in given):
        many = f", or {count} of them" if count > 1 else ""
        raise ShapeError(f"{where}: {name} is an int ≥ {least}{many}", repr(value), "pass e.g. 2")
    return given


def _patches(
    where: str, image: tuple[int, ...], kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[list[np.ndarray[Any, Any]], tuple[int, ...]]:
    """Where the elements of the patches lie in the padded image, along its rows and columns, and the padding."""
    sizes, steps = _ints(where, "kernel", kernel, 2), _ints(where, "stride", stride, 2)
    around, apart = _ints(where, "padding", padding, 2, 0), _ints(where, "dilation", dilation, 2)
    places = []
    for n, k, s, p, d in zip(image, sizes, steps, around, apart, strict=True):
        reach = d * (k - 1) + 1
        if reach > n + 2 * p:
            raise ShapeError(
                f"{where}: the kernel must fit into the padded image", f"kernel {k} with dilation {d}, size {n} + 2 · {p}",
                "pad more, or take a smaller kernel",
            )  # fmt: skip
        places.append(_starts((n + 2 * p - reach) // s + 1, s, k, d))
    return places, around


@answers_arguments
def unfold2d(x: Tensor, kernel: Any, /, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """The patches of images that a convolution looks at, as columns (im2col).

    Args:
        x: Images [batch, channels, height, width].
        kernel: Size of a patch: an int, or (vertical, horizontal), as for the others.
        stride: Distance of neighbouring patches.
        padding: Zeros around the image.
        dilation: Distance of neighbouring elements of a patch.

    Returns:
        Tensor [batch, channels · kernel height · kernel width, patches].

    Example:
        >>> import firebrick as fb
        >>> fb.unfold2d(fb.zeros((1, 3, 5, 5)), 2).shape
        (1, 12, 16)
    """
    _operand("unfold2d", x)
    if x.ndim != 4:
        raise ShapeError("unfold2d takes images [batch, channels, height, width]", describe("x", x), "add an axis")
    (rows, columns), (v, h) = _patches("unfold2d", x.shape[2:], kernel, stride, padding, dilation)
    padded = pad(x, ((0, 0), (0, 0), (v, v), (h, h))) if v or h else x
    windows = _take(_take(padded, columns, 3), rows, 2)  # [batch, channels, down, kernel, across, kernel]
    columns_last = permute_dims(windows, (0, 1, 3, 5, 2, 4))
    return reshape(columns_last, (x.shape[0], x.shape[1] * rows.shape[1] * columns.shape[1], rows.shape[0] * columns.shape[0]))


_AT_ONCE = 1 << 18
"""Maximum number of elements of the patches of an image that are taken at once, by a number for each."""


def patch_sizes(
    where: str, image: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], padding: Widths,
    dilation: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    """How many patches there are along each axis of an image.

    Args:
        where: Of messages.
        image: Its sizes; other arguments as of ``patch_rows``.
        kernel: Likewise.
        stride: Likewise.
        padding: Likewise.
        dilation: Likewise.

    Raises:
        ShapeError: The kernel does not fit into the padded image.
    """
    sizes = []
    for n, k, s, (before, after), d in zip(image, kernel, stride, padding, dilation, strict=True):
        whole, reach = n + before + after, d * (k - 1) + 1
        if reach > whole:
            raise ShapeError(
                f"{where}: the kernel must fit into the padded image",
                f"kernel {k} with dilation {d}, size {n} + {before + after}", "pad more, or take a smaller kernel",
            )  # fmt: skip
        sizes.append((whole - reach) // s + 1)
    return tuple(sizes)


def patch_rows(
    where: str, x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], padding: Widths, dilation: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """The patches that a convolution looks at, as rows, and how many there are along each axis.

    Args:
        where: Of messages.
        x: Images [batch, channels, *image].
        kernel: Size of a patch along each axis of the image, as for the others.
        stride: Distance of neighbouring patches.
        padding: Zeros before and after the image.
        dilation: Distance of neighbouring elements of a patch.

    Returns:
        Tensor [batch, patches, channels · elements of the kernel], and the patches along each axis.
    """
    sizes = patch_sizes(where, x.shape[2:], kernel, stride, padding, dilation)
    rows = pad(x, ((0, 0), (0, 0), *padding)) if any(map(any, padding)) else x
    count = x.shape[1] * prod(kernel)
    if prod(sizes) * count > _AT_ONCE:
        for axis in reversed(range(len(sizes))):  # each axis of the image becomes two: patches, and elements of the kernel
            rows = _take(rows, _starts(sizes[axis], stride[axis], kernel[axis], dilation[axis]), axis + 2)
        axes = (0, *(2 + 2 * k for k in range(len(sizes))), 1, *(3 + 2 * k for k in range(len(sizes))))
        return reshape(permute_dims(rows, axes), (x.shape[0], prod(sizes), count)), sizes
    # each element is taken from where it lies in an image of all channels, so that nothing is transposed
    at, apart = np.arange(x.shape[1]).reshape(1, x.shape[1]) * prod(rows.shape[2:]), prod(rows.shape[2:])
    for n, many, k, s, d in zip(rows.shape[2:], sizes, kernel, stride, dilation, strict=True):
        apart //= max(n, 1)
        found = at[:, None, :, None] + (_starts(many, s, k, d) * apart)[:, None, :][None]
        at = found.reshape(at.shape[0] * many, at.shape[1] * k)
    flat = reshape(rows, (x.shape[0], prod(rows.shape[1:])))
    return reshape(_take(flat, at.reshape(-1), 1), (x.shape[0], *at.shape)), sizes


@answers_arguments
def fold2d(x: Tensor, size: Any, kernel: Any, /, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """Images as the sum of overlapping patches (col2im): the transpose of ``unfold2d``.

    Args:
        x: Columns [batch, channels · kernel height · kernel width, patches].
        size: (height, width) of the images.
        kernel: As for ``unfold2d``, like the others.
        stride: Distance of neighbouring patches.
        padding: Zeros around the image, which are dropped again.
        dilation: Distance of neighbouring elements of a patch.

    Returns:
        Tensor [batch, channels, height, width].

    Example:
        >>> import firebrick as fb
        >>> fb.fold2d(fb.ones((1, 4, 4)), (3, 3), 2).tolist()
        [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    check_operand("fold2d", x, "numeric")
    height, width = _ints("fold2d", "size", size, 2)
    (rows, columns), (v, h) = _patches("fold2d", (height, width), kernel, stride, padding, dilation)
    (down, kh), (across, kw) = rows.shape, columns.shape
    if x.ndim != 3 or x.shape[1] % (kh * kw) or x.shape[2] != down * across:
        raise ShapeError(
            f"fold2d takes columns [batch, channels · {kh * kw}, {down * across}] here", describe("x", x),
            "check size, kernel, stride, padding and dilation",
        )  # fmt: skip
    batch, channels = x.shape[0], x.shape[1] // (kh * kw)
    windows = permute_dims(reshape(x, (batch, channels, kh, kw, down, across)), (0, 1, 4, 2, 5, 3))
    lines = _sum_at(windows, columns, width + 2 * h, 4)
    image = _sum_at(lines, rows, height + 2 * v, 2)
    return _part(_part(image, 2, v, v + height), 3, h, h + width)


def _sum_at(x: Tensor, places: np.ndarray[Any, Any], size: int, axis: int) -> Tensor:
    """The two axes from ``axis`` on summed into one of ``size`` elements, each at its place."""
    flat = reshape(x, (*x.shape[:axis], places.size, *x.shape[axis + 2 :]))
    empty = broadcast_to(constant(0, x.dtype, x.device), (*x.shape[:axis], size, *x.shape[axis + 2 :]))
    at = hooks.from_host(places.reshape(-1), x.device)
    return bind(OPS["index_add"], (empty, at, flat), {"axis": axis})  # type: ignore[no-any-return]
