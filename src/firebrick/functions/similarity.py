"""Losses of how alike or how far apart two or three vectors are, and the cosine similarity they build on.

Norms and distances have the gradient 0 at 0; max(…, 0) passes its gradient at 0. Signs that say which pairs belong together
are 1 or -1; any other value raises.
"""

from __future__ import annotations

import math

from firebrick.core.errors import ConfigError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe
from firebrick.core.precision import in_float32
from firebrick.core.settings import number
from firebrick.core.shapes import broadcast_shapes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import staged
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype, clip, equal, logaddexp, logical_or, minimum, where
from firebrick.functions.losses import check_positive, check_reduction, operands, reduce_loss
from firebrick.functions.movement import broadcast_to
from firebrick.functions.scaled import divisor, norm
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import sum as sum_
from firebrick.ops.normalisation import inverse_spread


@in_float32
def cosine_similarity(x1: Tensor, x2: Tensor, /, *, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 · x2 / (max(‖x1‖, eps) · max(‖x2‖, eps)) along an axis.

    Args:
        x1: Floating tensor.
        x2: Floating tensor; the two shapes broadcast.
        axis: Axis of the vectors.
        eps: Least norm, > 0.

    Returns:
        Tensor of the broadcast shape without the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.cosine_similarity(fb.asarray([[3.0, 4.0]]), fb.asarray([[6.0, 8.0]])).tolist()
        [1.0]
    """
    name = "cosine_similarity"
    operands(name, x1=x1, x2=x2)
    check_positive(name, "eps", eps)
    axis = normalize_axis(axis, len(broadcast_shapes(x1.shape, x2.shape, op=name)), name)
    along = axis - max(x1.ndim, x2.ndim)  # the same axis of both, counted from the last
    if -along > min(x1.ndim, x2.ndim):
        shown = f"axis {axis}, {describe('x1', x1)} and {describe('x2', x2)}"
        raise ShapeError(f"{name}: x1 and x2 both need the axis", shown, "broadcast them to one shape first")
    length = broadcast_shapes((x1.shape[along],), (x2.shape[along],), op=name)[0]
    x1, x2 = (_repeated(x, along, length) for x in (x1, x2))  # a norm is that of the vector which is multiplied
    return sum_((x1 / _norm(x1, along, eps)) * (x2 / _norm(x2, along, eps)), axis=along)


def _repeated(x: Tensor, along: int, length: int) -> Tensor:
    """x with an axis of size 1 repeated to a length."""
    at = x.ndim + along
    return x if x.shape[at] == length else broadcast_to(x, (*x.shape[:at], length, *x.shape[at + 1 :]))


@in_float32
def cosine_embedding_loss(x1: Tensor, x2: Tensor, sign: Tensor, /, *, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 - cos(x1, x2) for pairs that belong together, max(cos(x1, x2) - margin, 0) for others.

    Args:
        x1: Floating tensor [batch, features] or [features].
        x2: Floating tensor of the same shape.
        sign: Tensor [batch] or 0-d: 1 for pairs that belong together, -1 for others.
        margin: Cosine that others may have, in [-1, 1].
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A sign is neither 1 nor -1.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([[1.0, 0.0], [1.0, 0.0]])
        >>> fb.cosine_embedding_loss(x, x, fb.asarray([1, -1]), reduction="none").tolist()
        [0.0, 1.0]
    """
    name = "cosine_embedding_loss"
    check_reduction(name, reduction)
    if not -1.0 <= number(name, "margin", margin) <= 1.0:
        raise ConfigError(f"{name}: margin lies in [-1, 1]", repr(margin), "pass e.g. 0.5")
    operands(name, x1=x1, x2=x2, sign=sign)
    if x1.shape != x2.shape or x1.ndim not in (1, 2) or sign.shape != x1.shape[:-1]:
        raise ShapeError(
            f"{name}: x1 and x2 are [batch, features] and sign is [batch]",
            f"{describe('x1', x1)}, {describe('x2', x2)} and {describe('sign', sign)}",
            "reshape them",
        )
    _check_signs(name, sign)
    least = 1e-12  # added to the squares, so that no vector is too short
    cosine = sum_(x1 * x2, axis=-1)
    for x in (x1, x2):
        cosine = cosine * inverse_spread(sum_(x * x, axis=-1), least)
    return reduce_loss(where(sign > 0, 1.0 - cosine, clip(cosine - margin, 0.0)), reduction)


@in_float32
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, /, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(‖anchor - positive + eps‖ₚ - ‖anchor - negative + eps‖ₚ + margin, 0), averaged over triplets.

    Args:
        anchor: Floating tensor [..., features].
        positive: Floating tensor of the same shape: what the anchor belongs with.
        negative: Floating tensor of the same shape: what it does not belong with.
        margin: How much farther the negative should be, > 0.
        p: Order of the norm, ≥ 1; ``float("inf")`` takes the largest difference.
        eps: Added to each difference.
        swap: Whether the positive may stand for the anchor, where it is nearer to the negative.
        reduction: "mean", "sum" or "none".

    Source: Balntas et al., "Learning local feature descriptors with triplets and shallow convolutional neural networks",
        BMVC 2016.

    Example:
        >>> import firebrick as fb
        >>> a, b = fb.zeros((1, 2)), fb.asarray([[3.0, 4.0]])
        >>> fb.triplet_margin_loss(a, b, b, eps=0.0).item()
        1.0
    """
    name = "triplet_margin_loss"
    check_reduction(name, reduction)
    check_positive(name, "margin", margin)
    check_positive(name, "eps", eps, zero=True)
    if not number(name, "p", p) >= 1.0:
        raise ConfigError(f"{name}: p is a number ≥ 1, or inf", repr(p), "pass e.g. 2.0")
    operands(name, anchor=anchor, positive=positive, negative=negative)
    if not anchor.shape == positive.shape == negative.shape or not anchor.ndim:
        raise ShapeError(
            f"{name} needs equal shapes [..., features]",
            f"{describe('anchor', anchor)}, {describe('positive', positive)} and {describe('negative', negative)}",
            "reshape them",
        )
    near, far = _distance(anchor, positive, p, eps), _distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, _distance(positive, negative, p, eps))
    return reduce_loss(clip(near - far + margin, 0.0), reduction)


@in_float32
def margin_ranking_loss(x1: Tensor, x2: Tensor, sign: Tensor, /, *, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """max(-sign · (x1 - x2) + margin, 0): x1 should be the larger by ``margin`` where sign is 1, the smaller where it is -1.

    Args:
        x1: Floating tensor.
        x2: Floating tensor of the same shape.
        sign: Tensor of the same shape, values 1 or -1.
        margin: By how much.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A sign is neither 1 nor -1.

    Example:
        >>> import firebrick as fb
        >>> fb.margin_ranking_loss(fb.asarray([3.0]), fb.asarray([1.0]), fb.asarray([-1])).item()
        2.0
    """
    name = "margin_ranking_loss"
    check_reduction(name, reduction)
    margin = number(name, "margin", margin)
    operands(name, x1=x1, x2=x2, sign=sign)
    if not x1.shape == x2.shape == sign.shape:
        raise ShapeError(
            f"{name} needs equal shapes", f"{describe('x1', x1)}, {describe('x2', x2)} and {describe('sign', sign)}", "reshape"
        )
    _check_signs(name, sign)
    return reduce_loss(clip(-astype(sign, x1.dtype, copy=False) * (x1 - x2) + margin, 0.0), reduction)


@in_float32
def hinge_embedding_loss(x: Tensor, sign: Tensor, /, *, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """A distance x where sign is 1, max(margin - x, 0) where it is -1, averaged over elements.

    Args:
        x: Floating tensor.
        sign: Tensor of the same shape, values 1 or -1.
        margin: Distance that is far enough.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A sign is neither 1 nor -1.

    Example:
        >>> import firebrick as fb
        >>> fb.hinge_embedding_loss(fb.asarray([0.25, 0.25]), fb.asarray([1, -1]), reduction="none").tolist()
        [0.25, 0.75]
    """
    margin = number("hinge_embedding_loss", "margin", margin)
    _check_signed("hinge_embedding_loss", x, sign, reduction)
    return reduce_loss(where(sign > 0, x, clip(margin - x, 0.0)), reduction)


@in_float32
def soft_margin_loss(x: Tensor, sign: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-sign · x)), averaged over elements.

    Args:
        x: Floating tensor.
        sign: Tensor of the same shape, values 1 or -1.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A sign is neither 1 nor -1.

    Example:
        >>> import firebrick as fb
        >>> round(fb.soft_margin_loss(fb.zeros(1), fb.asarray([1])).item(), 4)
        0.6931
    """
    _check_signed("soft_margin_loss", x, sign, reduction)
    return reduce_loss(logaddexp(-astype(sign, x.dtype, copy=False) * x, 0.0), reduction)


def _norm(x: Tensor, axis: int, least: float) -> Tensor:
    """The Euclidean norm along an axis, kept, at least ``least``; where it is less, no gradient passes."""
    return divisor(clip(norm(x, axis, True), least))


def _distance(a: Tensor, b: Tensor, p: float, eps: float) -> Tensor:
    """‖a - b + eps‖ₚ over the last axis; its gradient at 0 is 0."""
    d = a - b + eps
    if p == 1.0:
        return sum_(abs_(d), axis=-1)
    return max_(abs_(d), axis=-1) if math.isinf(p) else norm(d, -1, False, float(p))


def _check_signed(name: str, x: Tensor, sign: Tensor, reduction: str) -> None:
    check_reduction(name, reduction)
    operands(name, x=x, sign=sign)
    if x.shape != sign.shape:
        raise ShapeError(
            f"{name} needs equal shapes", f"{describe('x', x)} and {describe('sign', sign)}", "reshape one of them"
        )
    _check_signs(name, sign)


def _check_signs(name: str, sign: Tensor) -> None:
    def error(received: str) -> OutOfRangeError:
        return OutOfRangeError(f"{name}: signs are 1 or -1", received, "turn labels 0 and 1 into signs: 2 * labels - 1")

    if sign.device.engine == "meta":
        return
    shown = describe("sign", sign)

    def ok() -> Tensor:
        return equal(sign, 1) if sign.dtype.kind == "uint" else logical_or(equal(sign, 1), equal(sign, -1))

    if staged(ok, lambda: error(f"{shown} with another number among its values")):
        return
    values = hooks.to_host(sign)
    wrong = values[(values != 1) & (values != -1)]
    if wrong.size:
        raise error(f"{shown} with {wrong.reshape(-1)[0].item()!r} among its values")
