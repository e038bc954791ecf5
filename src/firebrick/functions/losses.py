"""Losses of predictions held against targets: classification by logits or probabilities, regression, likelihoods.

Each is a composition over the op table. Every tensor argument is checked at entry, by the user's names; shapes must be equal
where the standard definition pairs elements, for broadcasting there is nearly always a mistake. ``reduction`` is "mean",
"sum" or "none"; a mean with class weights divides by the weights of the labels it took.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.dtypes import DType, float32, python_scalar
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.precision import in_float32, in_wide_float32
from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.functions.checks import check_range, staged
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import (
    astype,
    clip,
    equal,
    exp,
    greater,
    less,
    log,
    log1p,
    logaddexp,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from firebrick.functions.indexing import in_default_int, take, take_along_axis
from firebrick.functions.movement import expand_dims, reshape, squeeze
from firebrick.functions.normalisation import log_softmax
from firebrick.functions.parts import check_divisor
from firebrick.functions.scaled import divisor
from firebrick.functions.statistical import mean
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.utility import any as any_

REDUCTIONS = ("mean", "sum", "none")


# classification


@in_wide_float32
def cross_entropy(
    logits: Tensor, labels: Tensor, /, weight: Tensor | None = None, *, label_smoothing: float = 0.0,
    ignore_index: int | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-log softmax(logits)[label], averaged over samples; or -Σ p · log softmax(logits) for probabilities p.

    With label smoothing s, a label stands for the probabilities (1 - s) · one_hot + s / classes. With class weights, the mean
    over labels is Σ weight[label] · loss / Σ weight[label]; the one over probabilities divides by the number of samples.

    Args:
        logits: Floating tensor [batch, classes, …] or [classes].
        labels: Integer tensor [batch, …] (or 0-d) with values in [0, classes), or floating probabilities of logits' shape.
        weight: Floating tensor [classes]: how much each class counts.
        label_smoothing: Share of the probability spread over all classes, in [0, 1].
        ignore_index: Label that counts as no sample; None ignores none. The mean over no sample is 0, with gradient
            0, as that of an empty batch.
        reduction: "mean", "sum" or "none".

    Returns:
        0-d tensor, or one of the labels' shape for "none".

    Raises:
        OutOfRangeError: A label lies outside [0, classes), or a probability outside [0, 1].

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", arXiv:1512.00567 (smoothing).

    Example:
        >>> import firebrick as fb
        >>> round(fb.cross_entropy(fb.zeros((2, 10)), fb.asarray([3, 7])).item(), 4)
        2.3026
        >>> fb.cross_entropy(fb.zeros((2, 4)), fb.asarray([3, -1]), ignore_index=-1, reduction="none").tolist()[1]
        0.0
    """
    name = "cross_entropy"
    check_reduction(name, reduction)
    label_smoothing = number(name, "label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ConfigError(f"{name}: label_smoothing lies in [0, 1]", repr(label_smoothing), "pass e.g. 0.1")
    _check_order(name, "logits", logits, labels)
    operands(name, logits=logits, labels=labels, weight=weight)
    ignore_index = python_scalar(ignore_index)
    if labels.dtype.kind == "float" and labels.shape == logits.shape and logits.ndim:
        if ignore_index is not None:
            raise ConfigError(
                f"{name}: ignore_index is for labels",
                "probabilities as labels",
                "give a sample the weight 0 in the batch instead",
            )
        return _cross_entropy_of_probabilities(logits, labels, weight, label_smoothing, reduction)
    axis = _check_labels(name, "logits", logits, labels, weight, ignore_index)
    check_divisor(name, reduction, weight, ignore_index)
    labels = in_default_int(labels)
    scores = log_softmax(logits, axis=axis)
    loss = _negative_log_likelihood(scores, labels, weight, ignore_index, reduction, axis)
    if not label_smoothing:
        return loss
    spread = -mean(scores if weight is None else scores * _along(weight, axis, logits.ndim), axis=axis)
    kept = None if ignore_index is None else not_equal(labels, ignore_index)
    if kept is not None:
        spread = where(kept, spread, 0.0)
    if reduction == "mean":
        plain = weight is None and kept is None
        spread = _over_samples(spread, reduction) if plain else _weighted_mean(spread, labels, weight, kept)
    elif reduction == "sum":
        spread = sum_(spread)
    return loss * (1.0 - label_smoothing) + spread * label_smoothing


def _cross_entropy_of_probabilities(
    logits: Tensor, probabilities: Tensor, weight: Tensor | None, smoothing: float, reduction: str
) -> Tensor:
    axis = 1 if logits.ndim > 1 else 0
    classes = logits.shape[axis]
    if classes == 1:
        raise ShapeError(
            "cross_entropy: probabilities are of two classes or more; of one, the loss is 0 for any logits",
            f"{describe('logits', logits)} and {describe('labels', probabilities)}",
            "use fb.binary_cross_entropy_with_logits for one score of yes or no, fb.mse_loss for numbers",
        )
    _check_weight("cross_entropy", weight, classes)
    _check_probabilities(
        "cross_entropy", "labels", probabilities, "floating labels are probabilities; for numbers, use fb.mse_loss"
    )
    if smoothing:
        probabilities = probabilities * (1.0 - smoothing) + smoothing / classes
    scores = log_softmax(logits, axis=axis)
    if weight is not None:
        scores = scores * _along(weight, axis, logits.ndim)
    return _over_samples(-sum_(scores * probabilities, axis=axis), reduction)


@in_float32
def nll_loss(
    log_probabilities: Tensor, labels: Tensor, /, weight: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-weight[label] · log_probabilities[label], averaged over samples: cross-entropy after ``log_softmax``.

    Args:
        log_probabilities: Floating tensor [batch, classes, …] or [classes].
        labels: Integer tensor [batch, …] (or 0-d), values in [0, classes).
        weight: Floating tensor [classes]; a mean divides by the weights of the labels.
        ignore_index: Label that counts as no sample; None ignores none. The mean over no sample is 0, with gradient
            0, as that of an empty batch.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A label lies outside [0, classes).

    Example:
        >>> import firebrick as fb
        >>> fb.nll_loss(fb.asarray([[-0.5, -1.0], [-3.0, 0.0]]), fb.asarray([1, 0])).item()
        2.0
    """
    name = "nll_loss"
    check_reduction(name, reduction)
    operands(name, log_probabilities=log_probabilities, labels=labels, weight=weight)
    ignore_index = python_scalar(ignore_index)
    axis = _check_labels(name, "log_probabilities", log_probabilities, labels, weight, ignore_index)
    check_divisor(name, reduction, weight, ignore_index)
    labels = in_default_int(labels)
    return _negative_log_likelihood(log_probabilities, labels, weight, ignore_index, reduction, axis)


def _negative_log_likelihood(
    scores: Tensor, labels: Tensor, weight: Tensor | None, ignored: int | None, reduction: str, axis: int
) -> Tensor:
    kept = None if ignored is None else not_equal(labels, ignored)
    safe = labels if kept is None else where(kept, labels, 0)
    losses = -squeeze(take_along_axis(scores, expand_dims(safe, axis=axis), axis=axis), axis)
    if weight is not None:
        losses = losses * reshape(take(weight, reshape(safe, (-1,))), labels.shape)
    if kept is not None:
        losses = where(kept, losses, 0.0)
    if reduction == "mean" and (weight is not None or kept is not None):
        return _weighted_mean(losses, safe, weight, kept)
    return _over_samples(losses, reduction)


def _over_samples(losses: Tensor, reduction: str) -> Tensor:
    """Losses of samples as they are, their sum or their mean; the mean over no sample is 0."""
    return reduce_loss(losses, reduction if losses.size or reduction == "none" else "sum")


def _weighted_mean(losses: Tensor, labels: Tensor, weight: Tensor | None, kept: Tensor | None) -> Tensor:
    """Σ losses / Σ weight[label] over the labels that count."""
    return _divided(sum_(losses), sum_(_weights(labels, weight, kept, losses.dtype)))


def _weights(labels: Tensor, weight: Tensor | None, kept: Tensor | None, dtype: DType) -> Tensor:
    """How much each label counts, of which ``kept`` count at all."""
    if weight is None:
        assert kept is not None
        return astype(kept, dtype)
    safe = labels if kept is None else where(kept, labels, 0)
    weights = reshape(take(weight, reshape(safe, (-1,))), labels.shape)
    return weights if kept is None else where(kept, weights, 0.0)


def divisor_of_labels(labels: Tensor, weight: Tensor | None, ignore_index: int | None) -> Tensor:
    """What the mean loss of labels is divided by, a float32 or float64 of shape (): Σ weight[label] over those that count.

    Args:
        labels: Integers in the range that the loss has checked.
        weight: Class weights of the loss, or None; one of both is given.
        ignore_index: Label that counts as no sample, or None.
    """
    labels = in_default_int(labels)
    kept = None if ignore_index is None else not_equal(labels, ignore_index)
    wide = weight if weight is None or weight.dtype.itemsize > 2 else astype(weight, float32)
    return sum_(_weights(labels, wide, kept, float32 if wide is None else wide.dtype))


def _divided(total: Tensor, weights: Tensor) -> Tensor:
    """total / weights; 0 where nothing weighed anything."""
    none = equal(weights, 0.0)
    return where(none, 0.0, total) / divisor(where(none, 1.0, weights))


@in_wide_float32
def binary_cross_entropy_with_logits(
    logits: Tensor, target: Tensor, /, weight: Tensor | None = None, *, pos_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-(pos_weight · y · log σ(x) + (1 - y) · log(1 - σ(x))), without overflow, averaged over elements.

    Args:
        logits: Floating tensor x.
        target: Floating tensor y of the same shape, values in [0, 1].
        weight: Floating tensor that broadcasts to the shape: how much each element counts (a mean divides by their number).
        pos_weight: Floating tensor that broadcasts to the shape: how much more the positive term counts.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A target lies outside [0, 1].

    Example:
        >>> import firebrick as fb
        >>> round(fb.binary_cross_entropy_with_logits(fb.zeros(3), fb.asarray([0.0, 1.0, 1.0])).item(), 4)
        0.6931
    """
    name = "binary_cross_entropy_with_logits"
    check_reduction(name, reduction)
    operands(name, logits=logits, target=target, weight=weight, pos_weight=pos_weight)
    _same_shape(name, logits=logits, target=target)
    _broadcasts(name, logits, weight=weight, pos_weight=pos_weight)
    _check_probabilities(name, "target", target, _YES_OR_NO)
    tail = logaddexp(-logits, 0.0)
    if pos_weight is not None:
        tail = tail * (target * (pos_weight - 1.0) + 1.0)
    losses = logits * (1.0 - target) + tail
    return reduce_loss(losses if weight is None else losses * weight, reduction)


@in_float32
def binary_cross_entropy(
    probability: Tensor, target: Tensor, /, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-(y · log p + (1 - y) · log(1 - p)), with logarithms no smaller than -100, averaged over elements.

    From logits, ``binary_cross_entropy_with_logits`` is exact where this is not. NaN gives NaN.

    Args:
        probability: Floating tensor p, values in [0, 1].
        target: Floating tensor y of the same shape, values in [0, 1].
        weight: Floating tensor that broadcasts to the shape: how much each element counts.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A probability or a target lies outside [0, 1].

    Example:
        >>> import firebrick as fb
        >>> fb.binary_cross_entropy(fb.asarray([0.0]), fb.asarray([1.0])).item()
        100.0
    """
    name = "binary_cross_entropy"
    check_reduction(name, reduction)
    operands(name, probability=probability, target=target, weight=weight)
    _same_shape(name, probability=probability, target=target)
    _broadcasts(name, probability, weight=weight)
    check_values(name, "probability", probability, 0.0, 1.0, "pass probabilities, or logits to the loss with logits")
    _check_probabilities(name, "target", target, _YES_OR_NO)
    none, all_ = equal(probability, 0.0), equal(probability, 1.0)
    yes = where(none, -100.0, clip(log(where(none, 1.0, probability)), -100.0))
    no = where(all_, -100.0, clip(log1p(-where(all_, 0.0, probability)), -100.0))
    losses = -(target * yes + (1.0 - target) * no)
    return reduce_loss(losses if weight is None else losses * weight, reduction)


@in_wide_float32
def kl_div(log_prediction: Tensor, target: Tensor, /, *, log_target: bool = False, reduction: str = "mean") -> Tensor:
    """target · (log target - log_prediction), averaged over elements; "batchmean" is the divergence a sample.

    Args:
        log_prediction: Floating tensor [batch, …] of logarithms of probabilities.
        target: Floating tensor of the same shape: probabilities (0 contributes 0), or their logarithms with ``log_target``.
        log_target: Whether ``target`` holds logarithms.
        reduction: "mean", "sum", "none", or "batchmean": the sum divided by the size of the first axis.

    Source: Kullback, Leibler, "On Information and Sufficiency", Annals of Mathematical Statistics 22, 1951.

    Example:
        >>> import firebrick as fb
        >>> p = fb.asarray([[0.5, 0.5]])
        >>> round(fb.kl_div(fb.log(fb.asarray([[0.25, 0.75]])), p, reduction="batchmean").item(), 4)
        0.1438
    """
    name = "kl_div"
    if reduction != "batchmean":
        check_reduction(name, reduction, (*REDUCTIONS, "batchmean"))
    operands(name, log_prediction=log_prediction, target=target)
    _same_shape(name, log_prediction=log_prediction, target=target)
    if log_target:
        losses = exp(target) * (target - log_prediction)
    else:
        empty = equal(target, 0.0)
        losses = where(empty, 0.0, target * (log(where(empty, 1.0, target)) - log_prediction))
    if reduction != "batchmean":
        return reduce_loss(losses, reduction)
    if not losses.ndim:
        raise ShapeError(f"{name}: batchmean needs a batch axis", describe("target", target), 'use reduction="sum"')
    return sum_(losses) * (1.0 / max(1, losses.shape[0]))


# regression


@in_wide_float32
def mse_loss(prediction: Tensor, target: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """(prediction - target)², averaged over elements.

    Args:
        prediction: Floating tensor.
        target: Floating tensor of the same shape.
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.mse_loss(fb.ones(2), fb.zeros(2)).item()
        1.0
    """
    difference = _difference("mse_loss", prediction, target, reduction)
    return reduce_loss(difference * difference, reduction)


@in_wide_float32
def l1_loss(prediction: Tensor, target: Tensor, /, *, reduction: str = "mean") -> Tensor:
    """|prediction - target|, averaged over elements; its gradient at 0 is 0.

    Args:
        prediction: Floating tensor.
        target: Floating tensor of the same shape.
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.l1_loss(fb.asarray([1.0, -3.0]), fb.zeros(2)).item()
        2.0
    """
    return reduce_loss(abs_(_difference("l1_loss", prediction, target, reduction)), reduction)


@in_wide_float32
def huber_loss(prediction: Tensor, target: Tensor, /, *, delta: float = 1.0, reduction: str = "mean") -> Tensor:
    """d² / 2 where |d| ≤ delta, else delta · (|d| - delta / 2), with d = prediction - target, averaged over elements.

    Args:
        prediction: Floating tensor.
        target: Floating tensor of the same shape.
        delta: Where the parabola becomes a line, > 0.
        reduction: "mean", "sum" or "none".

    Source: Huber, "Robust Estimation of a Location Parameter", Annals of Mathematical Statistics 35, 1964.

    Example:
        >>> import firebrick as fb
        >>> fb.huber_loss(fb.asarray([1.0, 3.0]), fb.zeros(2), reduction="none").tolist()
        [0.5, 2.5]
    """
    check_positive("huber_loss", "delta", delta)
    apart = _difference("huber_loss", prediction, target, reduction)
    inner = clip(apart, -float(delta), float(delta))  # not of |apart|, whose second derivative at 0 is not the parabola's
    return reduce_loss(inner * (apart - inner * 0.5), reduction)


@in_wide_float32
def smooth_l1_loss(prediction: Tensor, target: Tensor, /, *, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    """d² / (2 · beta) where |d| < beta, else |d| - beta / 2, with d = prediction - target, averaged over elements.

    Args:
        prediction: Floating tensor.
        target: Floating tensor of the same shape.
        beta: Where the parabola becomes a line, ≥ 0; 0 is ``l1_loss``.
        reduction: "mean", "sum" or "none".

    Source: Girshick, "Fast R-CNN", arXiv:1504.08083.

    Example:
        >>> import firebrick as fb
        >>> fb.smooth_l1_loss(fb.asarray([1.0, 4.0]), fb.zeros(2), beta=2.0, reduction="none").tolist()
        [0.25, 3.0]
    """
    check_positive("smooth_l1_loss", "beta", beta, zero=True)
    apart = _difference("smooth_l1_loss", prediction, target, reduction)
    if not beta:
        return reduce_loss(abs_(apart), reduction)
    inner = clip(apart, -float(beta), float(beta))  # as in huber_loss
    return reduce_loss(inner * (apart - inner * 0.5) * (1.0 / beta), reduction)


# likelihoods


@in_float32
def poisson_nll_loss(
    prediction: Tensor, target: Tensor, /, *, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """exp(x) - y · x of counts y, with x the logarithm of the expected count, averaged over elements.

    Args:
        prediction: Floating tensor x; the expected count itself with ``log_input=False``: x - y · log(x + eps).
        target: Floating tensor y of the same shape.
        log_input: Whether ``prediction`` is a logarithm.
        full: Whether to add Stirling's y · log y - y + log(2π · y) / 2 for y > 1, which no gradient depends on.
        eps: Added inside the logarithm.
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.poisson_nll_loss(fb.zeros(2), fb.asarray([1.0, 4.0])).item()
        1.0
    """
    name = "poisson_nll_loss"
    check_reduction(name, reduction)
    check_positive(name, "eps", eps, zero=True)
    operands(name, prediction=prediction, target=target)
    _same_shape(name, prediction=prediction, target=target)
    losses = exp(prediction) - target * prediction if log_input else prediction - target * log(prediction + eps)
    if full:
        above = target > 1.0
        y = where(above, target, 1.0)
        losses = losses + where(above, y * log(y) - y + log(y * (2.0 * math.pi)) * 0.5, 0.0)
    return reduce_loss(losses, reduction)


@in_float32
def gaussian_nll_loss(
    prediction: Tensor, target: Tensor, variance: Tensor, /, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log v + (prediction - target)² / v) / 2 with v = max(variance, eps), averaged over elements.

    Args:
        prediction: Floating tensor of expected values.
        target: Floating tensor of the same shape.
        variance: Floating tensor ≥ 0 that broadcasts to the shape; no gradient passes where it is below ``eps``.
        full: Whether to add log(2π) / 2.
        eps: Least variance, > 0.
        reduction: "mean", "sum" or "none".

    Raises:
        OutOfRangeError: A variance is negative.

    Source: Nix, Weigend, "Estimating the mean and variance of the target probability distribution", ICNN 1994.

    Example:
        >>> import firebrick as fb
        >>> fb.gaussian_nll_loss(fb.ones(2), fb.zeros(2), fb.ones(2)).item()
        0.5
    """
    name = "gaussian_nll_loss"
    check_reduction(name, reduction)
    check_positive(name, "eps", eps)
    operands(name, prediction=prediction, target=target, variance=variance)
    _same_shape(name, prediction=prediction, target=target)
    _broadcasts(name, prediction, variance=variance)
    check_values(name, "variance", variance, 0.0, math.inf, "pass variances ≥ 0, e.g. by fb.softplus")
    v = clip(variance, float(eps))
    losses = (log(v) + (prediction - target) * (prediction - target) / v) * 0.5
    return reduce_loss(losses + 0.5 * math.log(2.0 * math.pi) if full else losses, reduction)


# what losses share


def reduce_loss(losses: Tensor, reduction: str) -> Tensor:
    """Losses as they are ("none"), their sum or their mean."""
    if reduction == "mean":
        return mean(losses)
    return sum_(losses) if reduction == "sum" else losses


def check_reduction(name: str, reduction: str, known: tuple[str, ...] = REDUCTIONS) -> None:
    """Raise ConfigError unless it is a known reduction."""
    if reduction not in known:
        texts = [f'"{k}"' for k in known]
        raise ConfigError(f"{name}: reduction is {', '.join(texts[:-1])} or {texts[-1]}", repr(reduction), "use one of these")


def check_positive(name: str, setting: str, value: Any, *, zero: bool = False) -> None:
    """Raise ConfigError unless a setting is a finite number > 0 (or ≥ 0)."""
    if isinstance(value, Weak):
        raise value.unknown(f"{name}: {setting}")
    value = python_scalar(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and (value >= 0 if zero else value > 0) and value < math.inf):
        raise ConfigError(f"{name}: {setting} is a finite number {'≥' if zero else '>'} 0", repr(value), "pass e.g. 1.0")


_KINDS = {"labels": "any", "sign": "real", "targets": "integer", "input_lengths": "integer", "target_lengths": "integer"}


def operands(name: str, **given: Any) -> None:
    """Check that a loss's arguments are tensors on one device, floating but for labels, signs and lengths.

    None stands for one left out if its name says so.
    """
    optional = ("weight", "pos_weight")
    for key, value in given.items():
        if not (value is None and key in optional):
            check_operand(name, value, _KINDS.get(key, "floating"), key)
    check_devices(name, **given)


def check_values(name: str, key: str, x: Tensor, low: float, high: float, remedy: str, *, slack: float = 0.0) -> None:
    """Read whether the values of a tensor lie in [low, high], or no further outside than ``slack``; NaN passes, and shows in
    the loss."""
    if x.device.engine == "meta" or not x.size:
        return
    bounds = f"≥ {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"

    def error() -> OutOfRangeError:
        return OutOfRangeError(f"{name}: the values of {key} must be {bounds}", describe(key, x), remedy, op=name)

    def outside() -> Tensor:
        return logical_or(less(x.detach(), low - slack), greater(x.detach(), high + slack))

    if not staged(lambda: logical_not(outside()), error) and bool(any_(outside())):
        raise error()


_YES_OR_NO = "give yes as 1 and no as 0: of labels -1 and 1, (labels + 1.0) / 2.0; for class numbers, use fb.cross_entropy"
_ROUNDED = 1e-3  # how far beyond 0 or 1 a probability may be rounded in float16, such as a sum of shares


def _check_probabilities(name: str, key: str, target: Tensor, remedy: str) -> None:
    """Raise OutOfRangeError unless what a classifier is to predict lies in [0, 1]: the loss has no minimum otherwise."""
    check_values(name, key, target, 0.0, 1.0, remedy, slack=_ROUNDED)


def _difference(name: str, prediction: Tensor, target: Tensor, reduction: str) -> Tensor:
    check_reduction(name, reduction)
    operands(name, prediction=prediction, target=target)
    _same_shape(name, prediction=prediction, target=target)
    return prediction - target


def _same_shape(name: str, **pair: Tensor) -> None:
    (first, a), (second, b) = pair.items()
    if a.shape != b.shape:
        raise ShapeError(
            f"{name} needs equal shapes: broadcasting here is nearly always a mistake",
            f"{describe(first, a)} and {describe(second, b)}",
            "reshape one of them",
        )


def _broadcasts(name: str, to: Tensor, **others: Tensor | None) -> None:
    for key, t in others.items():
        if t is not None:
            tail = to.shape[max(0, to.ndim - t.ndim) :]
            if t.ndim > to.ndim or any(n not in (1, m) for n, m in zip(t.shape, tail, strict=True)):
                raise ShapeError(
                    f"{name}: {key} broadcasts to the loss's shape, {to.shape}", describe(key, t), "reshape or slice it"
                )


def _along(weight: Tensor, axis: int, ndim: int) -> Tensor:
    return reshape(weight, tuple(-1 if i == axis else 1 for i in range(ndim)))


def _check_weight(name: str, weight: Tensor | None, classes: int) -> None:
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"{name}: weight is [{classes}], one number a class", describe("weight", weight), "reshape it")


def _check_order(name: str, scores_name: str, scores: Any, labels: Any) -> None:
    """Raise where labels were passed as scores and scores as labels."""
    if isinstance(scores, Tensor) and isinstance(labels, Tensor) and scores.dtype.is_integer and labels.dtype.kind == "float":
        raise DTypeError(
            f"{name}: {scores_name} come first, floating, and labels second, integers",
            f"{describe(scores_name, scores)} and {describe('labels', labels)}",
            f"swap the arguments: {name}({scores_name}, labels)",
            op=name,
        )


def _check_labels(
    name: str, scores_name: str, scores: Tensor, labels: Tensor, weight: Tensor | None, ignored: int | None
) -> int:
    """The class axis, after checking labels against scores."""
    axis = 1 if scores.ndim > 1 else 0
    if not scores.ndim or labels.shape != scores.shape[:axis] + scores.shape[axis + 1 :]:
        raise ShapeError(
            f"{name}: {scores_name} [batch, classes, …] and labels [batch, …]",
            f"{describe(scores_name, scores)} and {describe('labels', labels)}",
            "reshape them; labels are class numbers, not one-hot rows",
        )
    if not labels.dtype.is_integer:
        raise DTypeError(f"{name}: labels need an integer dtype", describe("labels", labels), "cast them to fb.int64")
    if ignored is not None and (isinstance(ignored, bool) or not isinstance(ignored, int)):
        raise ConfigError(f"{name}: ignore_index is an int or None", repr(ignored), "pass a label, e.g. -100")
    _check_weight(name, weight, scores.shape[axis])
    check_range_of("labels", name, labels, 0, scores.shape[axis], ignored)
    return axis


def check_range_of(key: str, name: str, labels: Tensor, low: int, high: int, ignored: int | None = None) -> None:
    """Raise OutOfRangeError unless integers lie in [low, high), those that are ignored apart."""
    remedy = "check them, or give the model as many outputs as there are classes; ignore_index names one label to leave out"
    check_range(name, key, labels, low, high, remedy, ignored)
