"""Images of another size: interpolation along each axis, and pixels moved between channels and places.

Interpolation is separable: along each axis every new element is a weighted sum of a few old ones, its *taps*. Taps and
weights are computed on the host in float64, from sizes alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import widened
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import per_axis
from firebrick.functions.elementwise import astype
from firebrick.functions.indexing import take
from firebrick.functions.movement import permute_dims
from firebrick.functions.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from firebrick.ops.declare import Array

_RANKS = {
    "nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,),
    "bicubic": (2,),
}  # fmt: skip
_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
_SHARPNESS = -0.75
"""a of the cubic convolution kernel."""


@answers_arguments
def interpolate(
    x: Tensor,
    /,
    size: Any = None,
    *,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """Images of another size, by interpolation between neighbouring elements.

    Without ``align_corners``, images cover the same area: the centre of new element i lies at old element
    (i + ½) · old / new - ½. With it, the outermost elements' centres keep their places.

    Args:
        x: Floating tensor [batch, channels, *image] with one to three axes of the image.
        size: New sizes of the image, an int for all axes or one for each.
        scale_factor: In place of ``size``: factors for all axes or one for each; new sizes are rounded down, and elements
            lie where the factor says.
        mode: "nearest" (rounded down), "nearest-exact" (rounded), "linear", "bilinear" or "trilinear" (for one, two and
            three axes), "bicubic" (two axes; a = -0.75) or "area" (adaptive average pooling).
        align_corners: For linear and cubic modes.

    Returns:
        Tensor [batch, channels, *size].

    Raises:
        ConfigError: The mode is unknown or not for this many axes, or align_corners is not for it.
        ShapeError: Not exactly one of size and scale_factor is given, or a size is 0.

    Source: Keys, "Cubic convolution interpolation for digital image processing", 1981 (for "bicubic").

    Example:
        >>> import firebrick as fb
        >>> fb.interpolate(fb.asarray([[[1.0, 3.0]]]), 4).tolist()
        [[[1.0, 1.0, 3.0, 3.0]]]
        >>> fb.interpolate(fb.asarray([[[1.0, 3.0]]]), 4, mode="linear").tolist()
        [[[1.0, 1.5, 2.5, 3.0]]]
    """
    rank = _check(x, mode, align_corners)
    old = x.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ShapeError(
            "interpolate: either size or scale_factor is given", f"size={size!r}, scale_factor={scale_factor!r}", "give one"
        )
    if size is not None:
        new = per_axis("interpolate", "size", size, rank)
        steps = [n / m for n, m in zip(old, new, strict=True)]
    else:
        factors = _factors(scale_factor, rank)
        new = tuple(math.floor(n * f) for n, f in zip(old, factors, strict=True))
        steps = [1.0 / f for f in factors]
    if min(*old, *new) < 1:
        raise ShapeError("interpolate: images have sizes ≥ 1", f"{describe('x', x)} to {new}", "use larger sizes")
    if mode == "area":
        return _AREA[rank](x, new)
    if mode.startswith("nearest"):
        shift = 1 if mode == "nearest-exact" else 0  # half elements
        for axis, (n, m, step) in enumerate(zip(old, new, steps, strict=True), 2):
            at: Array = 2 * np.arange(m) + shift
            whole = at * n // (2 * m) if size is not None else np.floor(at * (step / 2.0)).astype(np.int64)
            x = _taken(x, np.minimum(whole, n - 1), axis)
        return x
    taps = _cubic_taps if mode == "bicubic" else _linear_taps
    # taps of one axis would be rounded before the next axis: half precision computes in float32
    y = widened(x)
    # the last axis first where rows become more: its elements are gathered one by one, those of other axes row by row
    axes = list(enumerate(zip(old, new, steps, strict=True), 2))
    for axis, (n, m, step) in reversed(axes) if math.prod(new[:-1]) > math.prod(old[:-1]) else axes:
        if n == m and step == 1.0:
            continue
        corners = np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
        centres = corners if align_corners else (np.arange(m) + 0.5) * step - 0.5
        y = _weighted(y, taps(centres, n), axis)
    return astype(y, x.dtype, copy=False)


def _check(x: Any, mode: str, align_corners: bool) -> int:
    if not isinstance(x, Tensor):
        raise not_a_tensor("interpolate", "x", x, None)
    if x.dtype.kind != "float":
        raise DTypeError("interpolate: x needs a floating dtype", describe("x", x), "cast it: fb.astype(x, fb.float32)")
    rank = x.ndim - 2
    if not 1 <= rank <= 3:
        raise ShapeError("interpolate: x is [batch, channels, *image], with 1 to 3 axes", describe("x", x), "reshape x")
    if mode not in list(_RANKS) or rank not in _RANKS[mode]:  # a list compares, where a dict would hash
        known = ", ".join(f'"{m}"' for m, ranks in _RANKS.items() if rank in ranks)
        raise ConfigError(f"interpolate: mode is one of {known} for {rank} axes of the image", repr(mode), "choose one")
    if align_corners and mode in ("nearest", "nearest-exact", "area"):
        raise ConfigError(f'interpolate: align_corners has no meaning for mode "{mode}"', "True", "leave it out")
    return rank


def _factors(value: Any, rank: int) -> tuple[float, ...]:
    each = tuple(map(python_scalar, value if isinstance(value, (tuple, list)) else (value,) * rank))
    if len(each) != rank or any(isinstance(f, bool) or not isinstance(f, (int, float)) or not 0 < f < math.inf for f in each):
        raise ShapeError(
            f"interpolate: scale_factor is a number > 0 or {rank} of them", repr(value), "pass e.g. 2.0"
        )  # fmt: skip
    return tuple(float(f) for f in each)


def _linear_taps(at: Array, size: int) -> list[tuple[Array, Array]]:
    at = np.maximum(at, 0.0)
    low = np.minimum(np.floor(at).astype(np.int64), size - 1)
    part = np.where(low < size - 1, at - low, 0.0)
    return [(low, 1.0 - part), (np.minimum(low + 1, size - 1), part)]


def _cubic_taps(at: Array, size: int) -> list[tuple[Array, Array]]:
    low = np.floor(at)
    out = []
    for tap in (-1, 0, 1, 2):
        far = np.abs(at - (low + tap))
        a = _SHARPNESS
        near = ((a + 2.0) * far - (a + 3.0)) * far * far + 1.0
        tail = ((far - 5.0) * far + 8.0) * far * a - 4.0 * a
        out.append((np.clip(low + tap, 0, size - 1).astype(np.int64), np.where(far <= 1.0, near, tail)))
    return out


def _taken(x: Tensor, indices: Array, axis: int) -> Tensor:
    return take(x, hooks.from_host(indices, x.device), axis=axis)


def _weighted(x: Tensor, taps: list[tuple[Array, Array]], axis: int) -> Tensor:
    """The sum of elements along an axis, each times its weight."""
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    total = None
    for indices, weights in taps:
        shaped: Tensor = hooks.from_host(weights.reshape(shape).astype(x.dtype.np), x.device)
        part = _taken(x, indices, axis) * shaped
        total = part if total is None else total + part
    assert total is not None
    return total


@answers_arguments
def pixel_shuffle(x: Tensor, factor: int, /) -> Tensor:
    """Channels moved to positions: [batch, channels · factor², h, w] to [batch, channels, h · factor, w · factor].

    Args:
        x: Tensor of any dtype.
        factor: How much larger the images become; its square divides the channels.

    Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel CNN",
        arXiv:1609.05158.

    Example:
        >>> import firebrick as fb
        >>> fb.pixel_shuffle(fb.arange(4).reshape(1, 4, 1, 1), 2).tolist()
        [[[[0, 1], [2, 3]]]]
    """
    n, c, h, w = _shuffled("pixel_shuffle", x, factor)
    if c % (factor * factor):
        raise ShapeError(
            "pixel_shuffle: the square of factor divides the channels", f"{describe('x', x)}, factor {factor}", "check both"
        )
    out = c // (factor * factor)
    split = permute_dims(x.reshape(n, out, factor, factor, h, w), (0, 1, 4, 2, 5, 3))
    return split.reshape(n, out, h * factor, w * factor)


@answers_arguments
def pixel_unshuffle(x: Tensor, factor: int, /) -> Tensor:
    """Positions moved to channels: [batch, channels, h · factor, w · factor] to [batch, channels · factor², h, w].

    Args:
        x: Tensor of any dtype.
        factor: How much smaller the images become; it divides height and width.

    Example:
        >>> import firebrick as fb
        >>> fb.pixel_unshuffle(fb.arange(4).reshape(1, 1, 2, 2), 2).tolist()
        [[[[0]], [[1]], [[2]], [[3]]]]
    """
    n, c, h, w = _shuffled("pixel_unshuffle", x, factor)
    if h % factor or w % factor:
        raise ShapeError(
            "pixel_unshuffle: factor divides height and width", f"{describe('x', x)}, factor {factor}", "crop or pad x"
        )
    split = permute_dims(x.reshape(n, c, h // factor, factor, w // factor, factor), (0, 1, 3, 5, 2, 4))
    return split.reshape(n, c * factor * factor, h // factor, w // factor)


def _shuffled(where: str, x: Any, factor: Any) -> tuple[int, ...]:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, "x", x, None)
    if x.ndim != 4:
        raise ShapeError(f"{where}: x is [batch, channels, height, width]", describe("x", x), "add the missing axes")
    per_axis(where, "factor", factor, 1)
    return x.shape
