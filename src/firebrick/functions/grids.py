"""Images read at any positions: ``grid_sample``, and the positions of an affine map, ``affine_grid``.

Positions are in [-1, 1] along each axis of the image. With ``align_corners``, -1 and 1 are the centres of the outermost
elements, else their outer edges. Coordinates are in the order (x, y) or (x, y, z): the last axis of the image first.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from firebrick.core.dtypes import int64
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.precision import in_float32
from firebrick.core.tensor import Tensor
from firebrick.functions.convolution import per_axis
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype, clip, floor, greater_equal, less_equal, logical_and, remainder, where
from firebrick.functions.elementwise import round as round_
from firebrick.functions.indexing import take
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose, permute_dims, reshape

_MODES = {"nearest": (2, 3), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
_PADDINGS = ("zeros", "border", "reflection")
_SHARPNESS = -0.75
"""a of the cubic convolution kernel."""


@in_float32
def affine_grid(theta: Tensor, /, size: Any, *, align_corners: bool = False) -> Tensor:
    """The positions to which affine maps take the elements of images, for ``grid_sample``.

    Args:
        theta: Floating tensor [batch, 2, 3], or [batch, 3, 4] for volumes: the matrix and, last, the shift.
        size: Shape of the images that result: (batch, channels, height, width) or (batch, channels, depth, height, width).
        align_corners: Whether -1 and 1 are the centres of the outermost elements instead of their outer edges.

    Returns:
        Tensor [batch, height, width, 2] or [batch, depth, height, width, 3].

    Raises:
        ShapeError: theta and size do not fit together.

    Example:
        >>> import firebrick as fb
        >>> identity = fb.asarray([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> fb.affine_grid(identity, (1, 1, 1, 2)).tolist()
        [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    check_operand("affine_grid", theta, "floating", "theta")
    if theta.ndim != 3 or theta.shape[1:] not in ((2, 3), (3, 4)):
        raise ShapeError("affine_grid: theta is [batch, 2, 3] or [batch, 3, 4]", describe("theta", theta), "reshape it")
    rank = theta.shape[1]
    sizes = per_axis("affine_grid", "size", size, rank + 2)
    if sizes[0] != theta.shape[0]:
        raise ShapeError(
            "affine_grid: theta has one matrix for each image of size", f"{describe('theta', theta)}, size {sizes}",
            "make the batches equal",
        )  # fmt: skip
    image = sizes[2:]
    lines = [_positions(n, align_corners) for n in image]
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(image)], -1).reshape(-1, rank + 1)
    base: Tensor = hooks.from_host(places.astype(theta.dtype.np), theta.device)
    return reshape(matmul(base, matrix_transpose(theta)), (sizes[0], *image, rank))


def _positions(n: int, align_corners: bool) -> np.ndarray[Any, Any]:
    if align_corners:
        return np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(n)
    return (2 * np.arange(n) + 1) / n - 1


@in_float32
def grid_sample(
    x: Tensor,
    grid: Tensor,
    /,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Images read at the positions of a grid, with interpolation between elements.

    Args:
        x: Floating images [batch, channels, height, width] or [batch, channels, depth, height, width].
        grid: Floating positions [batch, *result, 2], or 3 for volumes, in the order (x, y) or (x, y, z): in [-1, 1] inside
            of the image.
        mode: "bilinear" ("trilinear" for volumes), "nearest" (halves to even) or "bicubic" (images only; a = -0.75).
        padding_mode: What lies outside: "zeros", "border" (the nearest element) or "reflection" (the image mirrored at its
            border).
        align_corners: Whether -1 and 1 are the centres of the outermost elements instead of their outer edges.

    Returns:
        Tensor [batch, channels, *result]; NaN where a position is NaN and ``padding_mode`` is not "zeros".

    Raises:
        ConfigError: A mode is unknown, or not for this many axes.
        ShapeError: x and grid do not fit together, or an axis of an image is empty.

    Source: Jaderberg et al., "Spatial Transformer Networks", arXiv:1506.02025.

    Example:
        >>> import firebrick as fb
        >>> image = fb.asarray([[[[1.0, 3.0]]]])
        >>> fb.grid_sample(image, fb.asarray([[[[-0.5, 0.0], [0.0, 0.0]]]])).tolist()
        [[[[1.0, 2.0]]]]
    """
    _check(x, grid, mode, padding_mode)
    batch, channels, *image = x.shape
    places = grid.shape[1:-1]
    # elements as rows of channels, so that a position is one gather of neighbouring numbers
    rows = reshape(permute_dims(x, (0, *range(2, x.ndim), 1)), (-1, channels))
    first: Tensor = hooks.from_host(np.arange(batch).reshape(-1, *[1] * len(places)), x.device)
    axes = [_Axis(grid[..., len(image) - 1 - i], n, mode, padding_mode, align_corners) for i, n in enumerate(image)]
    total = None
    for taps in product(*(axis.taps for axis in axes)):
        index, weight = first, None
        for (at, part), n in zip(taps, image, strict=True):
            index = index * n + at
            weight = part if weight is None else weight * part
        read = take(rows, index, axis=0)
        assert weight is not None
        scaled = where((weight != 0.0)[..., None], read, 0.0) * weight[..., None]
        total = scaled if total is None else total + scaled
    assert total is not None
    return permute_dims(total, (0, total.ndim - 1, *range(1, total.ndim - 1)))


class _Axis:
    """The elements along one axis that positions read: indices, and weights, which are 0 for what lies outside."""

    def __init__(self, position: Tensor, size: int, mode: str, padding: str, align: bool) -> None:
        self.size, self.padding, self.align = size, padding, align
        where_ = (position + 1.0) * ((size - 1) / 2) if align else ((position + 1.0) * size - 1.0) * 0.5
        self.taps = _TAPS[mode](self, where_)

    def inside(self, at: Tensor) -> Tensor:
        """A coordinate as one within the image, unless zeros lie outside."""
        if self.padding == "zeros":
            return at
        if self.padding == "reflection":
            low, span = (0.0, self.size - 1.0) if self.align else (-0.5, float(self.size))
            if not span:
                return at * 0.0
            turn = remainder(at - low, 2 * span)
            at = span - abs_(turn - span) + low
        return clip(at, 0.0, self.size - 1.0)

    def tap(self, at: Tensor, weight: Tensor | float) -> tuple[Tensor, Tensor]:
        """The index at a whole coordinate, and its weight."""
        held = clip(at.detach(), 0.0, self.size - 1.0)
        if self.padding != "zeros":
            return astype(held, int64), weight + at.detach() * 0.0
        known = logical_and(greater_equal(at.detach(), 0.0), less_equal(at.detach(), self.size - 1.0))
        part = astype(known, at.dtype) if isinstance(weight, float) else where(known, weight, 0.0)
        return astype(held, int64), part


def _nearest(axis: _Axis, at: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [axis.tap(round_(axis.inside(at)), 1.0)]


def _linear(axis: _Axis, at: Tensor) -> list[tuple[Tensor, Tensor]]:
    at = axis.inside(at)
    low = floor(at.detach())
    part = at - low
    return [axis.tap(low, 1.0 - part), axis.tap(low + 1.0, part)]


def _cubic(axis: _Axis, at: Tensor) -> list[tuple[Tensor, Tensor]]:
    low, a = floor(at.detach()), _SHARPNESS
    t = at - low
    out = []
    for k, far in ((-1, t + 1.0), (0, t), (1, 1.0 - t), (2, 2.0 - t)):
        near = ((a + 2.0) * far - (a + 3.0)) * far * far + 1.0
        tail = ((far - 5.0) * far + 8.0) * far * a - 4.0 * a
        out.append(axis.tap(axis.inside(low + float(k)), near if k in (0, 1) else tail))
    return out


_TAPS: dict[str, Callable[[_Axis, Tensor], list[tuple[Tensor, Tensor]]]] = {
    "nearest": _nearest, "bilinear": _linear, "trilinear": _linear, "bicubic": _cubic,
}  # fmt: skip


def _check(x: Any, grid: Any, mode: Any, padding_mode: Any) -> None:
    for key, value in (("x", x), ("grid", grid)):
        check_operand("grid_sample", value, "floating", key)
    check_devices("grid_sample", x=x, grid=grid)
    rank = x.ndim - 2
    if rank not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ShapeError(
            "grid_sample takes x [batch, channels, height, width] and grid [batch, *result, 2], or volumes and 3",
            f"{describe('x', x)} and {describe('grid', grid)}",
            "check the sizes",
        )
    if min(x.shape[2:]) < 1:
        raise ShapeError("grid_sample: images have sizes ≥ 1", describe("x", x), "use larger images")
    if mode not in list(_MODES) or rank not in _MODES[mode]:
        known = ", ".join(f'"{m}"' for m, ranks in _MODES.items() if rank in ranks)
        raise ConfigError(f"grid_sample: mode is one of {known} for {rank} axes of the image", repr(mode), "choose one")
    if padding_mode not in list(_PADDINGS):
        known = ", ".join(f'"{m}"' for m in _PADDINGS)
        raise ConfigError(f"grid_sample: padding_mode is one of {known}", repr(padding_mode), "choose one")


__all__ = ["affine_grid", "grid_sample"]
