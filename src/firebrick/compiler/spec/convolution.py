"""``Convolution``: the geometry of the three convolutions, and the contractions that they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from firebrick.compiler.spec.base import Size, SizePairs, Sizes
from firebrick.compiler.spec.parts import Bound, Factor, Part
from firebrick.core.indexing import strides_of
from firebrick.core.views import Digit, Digits, View

FORWARD, INPUT, WEIGHT = DIRECTIONS = "forward", "input", "weight"


@dataclass(frozen=True, slots=True)
class Convolution:
    """Image, kernel and result of a convolution, all row-major; one of them is computed from the other two.

    Attributes:
        dtype: Dtype of all three arrays.
        image: Shape [batch, channels, *image].
        weight: Shape [out, channels / groups, *kernel].
        stride: One for each axis of the image.
        padding: (before, after) for each axis.
        dilation: One for each axis.
        groups: Groups of channels.
        direction: ``"forward"``: the result, of image and weight; ``"input"``: the image's gradient, of the result's and the
            weight; ``"weight"``: the weight's gradient, of image and the result's gradient.
    """

    dtype: str
    image: Sizes
    weight: Sizes
    stride: Sizes
    padding: SizePairs
    dilation: Sizes
    groups: Size = 1
    direction: str = FORWARD

    @property
    def result(self) -> tuple[int, ...]:
        """Shape [batch, out, *positions]."""
        each = zip(self.image[2:], self.weight[2:], self.stride, self.padding, self.dilation, strict=True)
        return (self.image[0], self.weight[0], *((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each))

    @property
    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Strides of image, weight and result."""
        image, weight, result = (tuple(strides_of(s)) for s in (self.image, self.weight, self.result))
        return image, weight, result

    def parts(self, first: int, second: int) -> tuple[Part, ...]:
        """The contractions that compute it; A is the second operand, B the first.

        Args:
            first: Number of the input that is the node's first operand.
            second: Number of the input that is its second operand.
        """
        return {FORWARD: _forward, INPUT: _input, WEIGHT: _weight}[self.direction](self, second, first)

    def placed(self, view: View) -> View:
        """A view in the shape of ``result``, over the domain of the contraction of the direction ``forward``."""
        ((_, stride),) = view.axes[1]
        out = self.weight[0] // self.groups
        lanes = tuple(digit for axis in (view.axes[0], *view.axes[2:]) for digit in axis)
        return View(((Digit(self.groups, out * stride),), (Digit(out, stride),), lanes), view.offset)


def _digits(sizes: Sequence[int], strides: Sequence[int], times: Sequence[int] | None = None) -> Digits:
    return tuple(Digit(n, s * t) for n, s, t in zip(sizes, strides, times or (1,) * len(sizes), strict=True))


def _unit(rank: int, at: int, value: int, before: int = 0) -> tuple[int, ...]:
    return (0,) * before + tuple(value if i == at else 0 for i in range(rank))


def _batch(g: Convolution, stride: int) -> Digits:
    return (Digit(g.groups, stride),)


def _forward(g: Convolution, a: int, b: int) -> tuple[Part, ...]:
    """Rows are output channels, columns are positions of all images, sums are over channels and taps. A is the weight, B the
    image."""
    (xs, ws, ys), y, rank = g.strides, g.result, len(g.stride)
    out, channels = g.weight[0] // g.groups, g.weight[1]
    bounds = tuple(
        Bound(g.image[2 + i], -g.padding[i][0], _unit(rank, i, g.stride[i], 1), _unit(rank, i, g.dilation[i], 1))
        for i in range(rank)
    )
    k = (Digit(channels, ws[1]), *_digits(g.weight[2:], ws[2:]))
    weight = Factor(a, g.dtype, View((_batch(g, out * ws[0]), (Digit(out, ws[0]),), k)))
    lanes = (Digit(y[0], xs[0]), *_digits(y[2:], xs[2:], g.stride))
    k = (Digit(channels, xs[1]), *_digits(g.weight[2:], xs[2:], g.dilation))
    start = -sum(p[0] * s for p, s in zip(g.padding, xs[2:], strict=True))
    image = Factor(b, g.dtype, View((_batch(g, channels * xs[1]), lanes, k), start), bounds)
    c = View((_batch(g, out * ys[1]), (Digit(out, ys[1]),), (Digit(y[0], ys[0]), *_digits(y[2:], ys[2:]))))
    return (Part((g.groups,), out, y[0] * prod(y[2:]), channels * prod(g.weight[2:]), weight, image, c),)


def _weight(g: Convolution, a: int, b: int) -> tuple[Part, ...]:
    """Rows are output channels, columns are the taps of each channel, sums are over positions. A is the result's gradient, B
    the image."""
    (xs, ws, ys), y, rank = g.strides, g.result, len(g.stride)
    out, channels = g.weight[0] // g.groups, g.weight[1]
    bounds = tuple(
        Bound(g.image[2 + i], -g.padding[i][0], _unit(rank, i, g.dilation[i], 1), _unit(rank, i, g.stride[i], 1))
        for i in range(rank)
    )
    k = (Digit(y[0], ys[0]), *_digits(y[2:], ys[2:]))
    cotangent = Factor(a, g.dtype, View((_batch(g, out * ys[1]), (Digit(out, ys[1]),), k)))
    lanes = (Digit(channels, xs[1]), *_digits(g.weight[2:], xs[2:], g.dilation))
    k = (Digit(y[0], xs[0]), *_digits(y[2:], xs[2:], g.stride))
    start = -sum(p[0] * s for p, s in zip(g.padding, xs[2:], strict=True))
    image = Factor(b, g.dtype, View((_batch(g, channels * xs[1]), lanes, k), start), bounds)
    c = View((_batch(g, out * ws[0]), (Digit(out, ws[0]),), (Digit(channels, ws[1]), *_digits(g.weight[2:], ws[2:]))))
    return (Part((g.groups,), out, channels * prod(g.weight[2:]), y[0] * prod(y[2:]), cotangent, image, c),)


@dataclass(frozen=True, slots=True)
class Residue:
    """One class of positions of an image axis, those whose padded coordinate is ``r`` modulo the stride.

    Attributes:
        first: Coordinate of its first position; the distance of the others is the stride.
        count: Number of positions.
        tap: The first tap that reads these positions.
        step: Distance of the taps that read them.
        taps: Number of these taps.
        at: The position of the result for which the first tap reads the first position.
        back: Number of positions of the result from one tap back to the next.
    """

    first: int
    count: int
    tap: int
    step: int
    taps: int
    at: int
    back: int


def residues(size: int, kernel: int, stride: int, pad: int, dilation: int) -> list[Residue]:
    """The non-empty classes of positions of an axis of an image."""
    out = []
    step = stride // gcd(dilation, stride)
    for r in range(stride):
        t = -(-(pad - r) // stride)  # the first padded coordinate r + stride·t in the image
        first = r + stride * t - pad
        count = max(0, -(-(size - first) // stride))
        tap = next((i for i in range(min(step, kernel)) if (i * dilation - r) % stride == 0), kernel)
        taps = max(0, -(-(kernel - tap) // step))
        if count:
            out.append(Residue(first, count, tap, step, taps, t + (r - tap * dilation) // stride, step * dilation // stride))
    return out


def _input(g: Convolution, a: int, b: int) -> tuple[Part, ...]:
    """One part for each class of positions of the image that the stride makes, a dense convolution of the result's gradient:
    rows are input channels, columns positions of one class, sums over output channels and the taps that meet the class; a class
    without taps has k = 0, and its gradient is 0. Nothing comes from beyond the result, whose gradient is not padded with zeros
    as an image is. A is the weight, B the result's gradient."""
    (xs, ws, ys), y, rank = g.strides, g.result, len(g.stride)
    out, channels = g.weight[0] // g.groups, g.weight[1]
    classes: list[list[Residue]] = [[]]
    for n, k, s, p, d in zip(g.image[2:], g.weight[2:], g.stride, g.padding, g.dilation, strict=True):
        classes = [[*c, r] for c in classes for r in residues(n, k, s, p[0], d)]
    parts = []
    for each in classes:
        counts, taps = [r.count for r in each], [r.taps for r in each]
        bounds = tuple(
            Bound(y[2 + i], r.at, _unit(rank, i, 1, 1), _unit(rank, i, -r.back, 1)) for i, r in enumerate(each)
        )  # fmt: skip
        k = out * prod(taps)
        in_weight = (Digit(out, ws[0]), *_digits(taps, ws[2:], [r.step for r in each]))
        in_cotangent = (Digit(out, ys[1]), *_digits(taps, ys[2:], [-r.back for r in each]))
        if k == 0:
            in_weight = in_cotangent = (Digit(0, 0),)
            bounds = ()
        start = sum(r.tap * s for r, s in zip(each, ws[2:], strict=True))
        weight = Factor(a, g.dtype, View((_batch(g, out * ws[0]), (Digit(channels, ws[1]),), in_weight), start))
        lanes = (Digit(y[0], ys[0]), *_digits(counts, ys[2:]))
        start = sum(r.at * s for r, s in zip(each, ys[2:], strict=True))
        cotangent = Factor(b, g.dtype, View((_batch(g, out * ys[1]), lanes, in_cotangent), start), bounds)
        spots = (Digit(y[0], xs[0]), *_digits(counts, xs[2:], g.stride))
        start = sum(r.first * s for r, s in zip(each, xs[2:], strict=True))
        c = View((_batch(g, channels * xs[1]), (Digit(channels, xs[1]),), spots), start)
        parts.append(Part((g.groups,), channels, y[0] * prod(counts), k, weight, cotangent, c, omits=True))
    return tuple(parts)
