"""Expansions: simpler ops that replace an op before fusion, since kernels of reductions and elementwise nodes fuse with their
neighbours: the ``expand`` fields of norms over any axes and of means of whole images.

An entry's ``expand(operands, results, **params)`` gets avals and gives a rule, or None where the op is better left as it is.
The rule appends nodes by ``build`` and returns the values that replace the op's results. Unlike ``decompose``, it need not
have the op's exact steps: if weight and bias have one value for each mean, they are combined with mean and variance once for
each mean, not for each element, and the gradients follow from two sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

from firebrick.core.aval import Aval, Shape
from firebrick.core.op import Op
from firebrick.ops.elementwise import add, divide, multiply, sqrt, subtract
from firebrick.ops.movement import broadcast_to, reshape
from firebrick.ops.reduction import mean, sum_


class Build(Protocol):
    """Appends nodes to a graph. Values are numbers."""

    def __call__(self, op: Op, *operands: int, **params: Any) -> int:
        """The result of an op."""

    def constant(self, value: float, like: int) -> int:
        """A constant of the dtype of a value."""

    def shape(self, value: int) -> Shape:
        """The shape of a value."""


Rule = Callable[..., tuple[int, ...]]
"""``(build, *operands)`` gives the values that replace the results."""


def _inverse(build: Build, variance: int, eps: float) -> int:
    """1 / √(variance + eps) as √v / v, which is NaN of a variance that overflowed."""
    v = build(add, variance, build.constant(eps, variance))
    return build(divide, build(sqrt, v), v)


def _one_a_mean(shape: Shape, weight: Shape, axes: tuple[int, ...]) -> bool:
    """Whether a weight has one value for each mean along ``axes``."""
    lead = len(shape) - len(weight)
    return all(a < lead or weight[a - lead] == 1 for a in axes)


def standardize(operands: Sequence[Aval], results: Sequence[Aval], *, axes: tuple[int, ...], eps: float) -> Rule | None:
    """Means, and elementwise ops of them."""
    along_axes: dict[str, Any] = {"axes": axes, "keepdims": True}
    one_a_mean = _one_a_mean(operands[0].shape, operands[1].shape, axes)

    def rule(build: Build, x: int, weight: int, bias: int) -> tuple[int, ...]:
        mu = build(mean, x, **along_axes)
        centred = build(subtract, x, mu)
        variance = build(mean, build(multiply, centred, centred), **along_axes)
        inverse = _inverse(build, variance, eps)
        if one_a_mean:
            scaled = build(multiply, centred, build(multiply, inverse, weight))
        else:
            scaled = build(multiply, build(multiply, centred, inverse), weight)
        return build(add, scaled, bias), mu, variance

    return rule if operands[0].size else None


def standardize_gradient(
    operands: Sequence[Aval], results: Sequence[Aval], *, axes: tuple[int, ...], eps: float
) -> Rule | None:
    """With c = x - mean, i = 1 / √(variance + eps) and u = g · weight: gx = (u - mean u - c · i² · mean(u · c)) · i, and for
    weight and bias Σ g · c · i and Σ g. With one weight for each mean, all follow from Σ g and Σ g · c."""
    along_axes: dict[str, Any] = {"axes": axes, "keepdims": True}
    shape, small = operands[1].shape, operands[2].shape

    def of_each(build: Build, g: int, x: int, weight: int, mu: int, variance: int) -> tuple[int, ...]:
        centred = build(subtract, x, mu)
        inverse = _inverse(build, variance, eps)
        u = build(multiply, g, weight)
        first = build(mean, u, **along_axes)
        by_centred = build(mean, build(multiply, u, centred), **along_axes)
        second = build(multiply, build(multiply, by_centred, inverse), inverse)
        inner = build(subtract, build(subtract, u, first), build(multiply, centred, second))
        gw = build(multiply, build(multiply, g, centred), inverse)
        return build(multiply, inner, inverse), _sum_to(build, gw, small), _sum_to(build, g, small)

    def of_sums(build: Build, g: int, x: int, weight: int, mu: int, variance: int) -> tuple[int, ...]:
        centred = build(subtract, x, mu)
        inverse = _inverse(build, variance, eps)
        one_over_count = build.constant(1.0 / prod(shape[a] for a in axes), x)
        total = build(sum_, g, **along_axes)
        gw = build(multiply, build(sum_, build(multiply, g, centred), **along_axes), inverse)
        first = build(multiply, total, one_over_count)
        second = build(multiply, build(multiply, gw, inverse), one_over_count)
        inner = build(subtract, build(subtract, g, first), build(multiply, centred, second))
        gx = build(multiply, inner, build(multiply, inverse, weight))
        return gx, _sum_to(build, gw, small), _sum_to(build, total, small)

    if not operands[1].size:
        return None
    return of_sums if _one_a_mean(shape, small, axes) else of_each


def _sum_to(build: Build, v: int, shape: Shape) -> int:
    """A value summed over the axes along which ``shape`` was broadcast to its own."""
    own = build.shape(v)
    if own == shape:
        return v
    lead = len(own) - len(shape)
    axes = tuple(i for i, d in enumerate(own) if i < lead or (shape[i - lead] == 1 and d != 1))
    if axes:
        v = build(sum_, v, axes=axes, keepdims=True)
    return v if build.shape(v) == shape else build(reshape, v, shape=shape)


def mean_of_images(operands: Sequence[Aval], results: Sequence[Aval], *, kernel: Any, stride: Any, padding: Any) -> Rule | None:
    """A mean over all axes of the images, where one window without padding is a whole image."""
    (images,) = operands
    axes = tuple(range(2, images.ndim))

    def rule(build: Build, x: int) -> tuple[int, ...]:
        return (build(mean, x, axes=axes, keepdims=True),)

    return rule if _whole(images, kernel, padding) else None


def spread_over_images(
    operands: Sequence[Aval], results: Sequence[Aval], *, size: Any, kernel: Any, stride: Any, padding: Any
) -> Rule | None:
    """The gradient of such a mean: its share, broadcast."""
    (images,) = results

    def rule(build: Build, g: int) -> tuple[int, ...]:
        share = build(divide, g, build.constant(float(prod(kernel)), g))
        return (build(broadcast_to, share, shape=images.shape),)

    return rule if _whole(images, kernel, padding) else None


def _whole(images: Aval, kernel: Any, padding: Any) -> bool:
    return images.shape[2:] == tuple(kernel) and not any(map(any, padding)) and images.size != 0
