"""Losses as layers: their settings are given once, and a weight moves and is saved with the model as a buffer.

Each is thin over the function of the same meaning in Firebrick's namespace, which says what shapes it takes and where its
definition comes from.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions import losses, similarity
from firebrick.functions.ctc import Lengths, ctc_loss
from firebrick.functions.losses import REDUCTIONS, check_positive
from firebrick.nn.module import Module
from firebrick.nn.parameter import Buffer


def _reduction(kind: str, reduction: str, known: tuple[str, ...] = REDUCTIONS) -> str:
    losses.check_reduction(kind, reduction, known)
    return reduction


def _positive(kind: str, name: str, value: float, *, zero: bool = False) -> float:
    check_positive(kind, name, value, zero=zero)
    return value


def _weight(kind: str, name: str, value: Tensor | None) -> Buffer | None:
    """A weight as a buffer; of a negative one, the loss would have no minimum."""
    if isinstance(value, Tensor) and value.dtype.kind == "float":
        losses.check_values(kind, name, value, 0.0, math.inf, "leave out what is not to count by a weight of 0")
    return None if value is None else Buffer(value)


def _shown(layer: Any, *names: str) -> str:
    """The settings of a loss in one line, weights by their presence."""
    values = [(n, getattr(layer, n)) for n in names]
    kept = [f"{n}={'[…]' if isinstance(v, Tensor) else repr(v)}" for n, v in values if v is not None]
    return ", ".join([repr(layer.reduction), *kept])


class CrossEntropyLoss(Module):
    """-log softmax(logits)[label], averaged over samples: ``fb.cross_entropy``.

    Args:
        reduction: "mean", "sum" or "none".
        weight: Floating tensor [classes], ≥ 0: how much each class counts.
        label_smoothing: Share of the probability spread over all classes, in [0, 1].
        ignore_index: Label that counts as no sample; None ignores none.

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.CrossEntropyLoss()(fb.zeros((2, 10)), fb.asarray([3, 7])).item(), 4)
        2.3026
    """

    def __init__(
        self, reduction: str = "mean", *, weight: Tensor | None = None, label_smoothing: float = 0.0,
        ignore_index: int | None = None,
    ) -> None:  # fmt: skip
        self.reduction = _reduction("CrossEntropyLoss", reduction)
        if not 0.0 <= label_smoothing <= 1.0:
            raise ConfigError("CrossEntropyLoss: label_smoothing lies in [0, 1]", repr(label_smoothing), "pass e.g. 0.1")
        self.weight = _weight("CrossEntropyLoss", "weight", weight)
        self.label_smoothing, self.ignore_index = label_smoothing, ignore_index

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of logits [batch, classes, …] and integer labels [batch, …] or probabilities like logits.

        Args:
            logits: Floating tensor [batch, classes, ...].
            labels: Integers [batch, ...] in [0, classes), or probabilities of the logits' shape and dtype.
        """
        return losses.cross_entropy(
            logits, labels, self.weight, label_smoothing=self.label_smoothing, ignore_index=self.ignore_index,
            reduction=self.reduction,
        )  # fmt: skip

    def describe(self) -> str:
        return _shown(self, *(("label_smoothing",) if self.label_smoothing else ()), "weight", "ignore_index")


class NLLLoss(Module):
    """-weight[label] · log_probabilities[label], averaged over samples: ``fb.nll_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        weight: Floating tensor [classes], ≥ 0.
        ignore_index: Label that counts as no sample; None ignores none.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.NLLLoss()(fb.asarray([[-0.5, -1.0]]), fb.asarray([1])).item()
        1.0
    """

    def __init__(self, reduction: str = "mean", *, weight: Tensor | None = None, ignore_index: int | None = None) -> None:
        self.reduction = _reduction("NLLLoss", reduction)
        self.weight, self.ignore_index = _weight("NLLLoss", "weight", weight), ignore_index

    def forward(self, log_probabilities: Tensor, labels: Tensor) -> Tensor:
        """The loss of log-probabilities [batch, classes, …] and integer labels [batch, …].

        Args:
            log_probabilities: Floating tensor [batch, classes, ...].
            labels: Integers [batch, ...] in [0, classes).
        """
        return losses.nll_loss(log_probabilities, labels, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "weight", "ignore_index")


class BCEWithLogitsLoss(Module):
    """Binary cross-entropy of logits: ``fb.binary_cross_entropy_with_logits``.

    Args:
        reduction: "mean", "sum" or "none".
        weight: Floating tensor ≥ 0 that broadcasts to the logits: how much each element counts.
        pos_weight: Floating tensor ≥ 0 that broadcasts to the logits: how much more the positive term counts.

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.BCEWithLogitsLoss()(fb.zeros(2), fb.ones(2)).item(), 4)
        0.6931
    """

    def __init__(self, reduction: str = "mean", *, weight: Tensor | None = None, pos_weight: Tensor | None = None) -> None:
        self.reduction = _reduction("BCEWithLogitsLoss", reduction)
        self.weight = _weight("BCEWithLogitsLoss", "weight", weight)
        self.pos_weight = _weight("BCEWithLogitsLoss", "pos_weight", pos_weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            logits: Floating tensor of any shape.
            target: Floating tensor of the same shape, values in [0, 1].
        """
        return losses.binary_cross_entropy_with_logits(
            logits, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )

    def describe(self) -> str:
        return _shown(self, "weight", "pos_weight")


class BCELoss(Module):
    """Binary cross-entropy of probabilities: ``fb.binary_cross_entropy``.

    Args:
        reduction: "mean", "sum" or "none".
        weight: Floating tensor ≥ 0 that broadcasts to the probabilities: how much each element counts.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.BCELoss()(fb.asarray([1.0]), fb.asarray([1.0])).item()
        0.0
    """

    def __init__(self, reduction: str = "mean", *, weight: Tensor | None = None) -> None:
        self.reduction, self.weight = _reduction("BCELoss", reduction), _weight("BCELoss", "weight", weight)

    def forward(self, probability: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape, values in [0, 1].

        Args:
            probability: Floating tensor of any shape, values in [0, 1].
            target: Floating tensor of the same shape, values in [0, 1].
        """
        return losses.binary_cross_entropy(probability, target, self.weight, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "weight")


class KLDivLoss(Module):
    """target · (log target - log_prediction): ``fb.kl_div``.

    Args:
        reduction: "mean", "sum", "none", or "batchmean": the divergence a sample.
        log_target: Whether targets are logarithms.

    Example:
        >>> import firebrick as fb
        >>> p = fb.asarray([[0.5, 0.5]])
        >>> fb.nn.KLDivLoss("batchmean")(fb.log(p), p).item()
        0.0
    """

    def __init__(self, reduction: str = "mean", *, log_target: bool = False) -> None:
        self.reduction = _reduction("KLDivLoss", reduction, (*REDUCTIONS, "batchmean"))
        self.log_target = log_target

    def forward(self, log_prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            log_prediction: Logarithms of probabilities, a floating tensor of any shape.
            target: Probabilities, or with ``log_target`` their logarithms, of the same shape.
        """
        return losses.kl_div(log_prediction, target, log_target=self.log_target, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "log_target")


class MSELoss(Module):
    """(prediction - target)², averaged over elements: ``fb.mse_loss``.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MSELoss()(fb.ones(2), fb.zeros(2)).item()
        1.0
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = _reduction("MSELoss", reduction)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            prediction: Floating tensor of any shape.
            target: Floating tensor of the same shape.
        """
        return losses.mse_loss(prediction, target, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self)


class L1Loss(Module):
    """|prediction - target|, averaged over elements: ``fb.l1_loss``.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.nn.L1Loss()(fb.ones(2), fb.zeros(2)).item()
        1.0
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = _reduction("L1Loss", reduction)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            prediction: Floating tensor of any shape.
            target: Floating tensor of the same shape.
        """
        return losses.l1_loss(prediction, target, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self)


class HuberLoss(Module):
    """A parabola near 0 and a line of slope ``delta`` beyond: ``fb.huber_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        delta: Where the parabola becomes a line, > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.HuberLoss()(fb.asarray([3.0]), fb.zeros(1)).item()
        2.5
    """

    def __init__(self, reduction: str = "mean", *, delta: float = 1.0) -> None:
        self.reduction, self.delta = _reduction("HuberLoss", reduction), _positive("HuberLoss", "delta", delta)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            prediction: Floating tensor of any shape.
            target: Floating tensor of the same shape.
        """
        return losses.huber_loss(prediction, target, delta=self.delta, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "delta")


class SmoothL1Loss(Module):
    """A parabola near 0 and a line of slope 1 beyond: ``fb.smooth_l1_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        beta: Where the parabola becomes a line, ≥ 0.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.SmoothL1Loss()(fb.asarray([3.0]), fb.zeros(1)).item()
        2.5
    """

    def __init__(self, reduction: str = "mean", *, beta: float = 1.0) -> None:
        self.reduction = _reduction("SmoothL1Loss", reduction)
        self.beta = _positive("SmoothL1Loss", "beta", beta, zero=True)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            prediction: Floating tensor of any shape.
            target: Floating tensor of the same shape.
        """
        return losses.smooth_l1_loss(prediction, target, beta=self.beta, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "beta")


class PoissonNLLLoss(Module):
    """Negative log-likelihood of counts: ``fb.poisson_nll_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        log_input: Whether predictions are logarithms of expected counts.
        full: Whether to add Stirling's approximation.
        eps: Added inside the logarithm.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.PoissonNLLLoss()(fb.zeros(1), fb.ones(1)).item()
        1.0
    """

    def __init__(self, reduction: str = "mean", *, log_input: bool = True, full: bool = False, eps: float = 1e-8) -> None:
        self.reduction, self.log_input, self.full = _reduction("PoissonNLLLoss", reduction), log_input, full
        self.eps = _positive("PoissonNLLLoss", "eps", eps, zero=True)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape.

        Args:
            prediction: Floating tensor of any shape.
            target: Floating tensor of the same shape.
        """
        return losses.poisson_nll_loss(
            prediction, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )

    def describe(self) -> str:
        return _shown(self, "log_input", "full")


class GaussianNLLLoss(Module):
    """Negative log-likelihood of normal distributions: ``fb.gaussian_nll_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        full: Whether to add log(2π) / 2.
        eps: Least variance, > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.GaussianNLLLoss()(fb.ones(1), fb.zeros(1), fb.ones(1)).item()
        0.5
    """

    def __init__(self, reduction: str = "mean", *, full: bool = False, eps: float = 1e-6) -> None:
        self.reduction, self.full = _reduction("GaussianNLLLoss", reduction), full
        self.eps = _positive("GaussianNLLLoss", "eps", eps)

    def forward(self, prediction: Tensor, target: Tensor, variance: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape and a variance that broadcasts to it.

        Args:
            prediction: Floating tensor of any shape.
            target: Floating tensor of the same shape.
            variance: Floating tensor ≥ 0 that broadcasts to it.
        """
        return losses.gaussian_nll_loss(prediction, target, variance, full=self.full, eps=self.eps, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "full")


class CosineEmbeddingLoss(Module):
    """1 - cos for pairs that belong together, max(cos - margin, 0) for others: ``fb.cosine_embedding_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        margin: Cosine that others may have, in [-1, 1].

    Example:
        >>> import firebrick as fb
        >>> x = fb.ones((1, 2))
        >>> round(fb.nn.CosineEmbeddingLoss()(x, x, fb.asarray([-1])).item(), 4)
        1.0
    """

    def __init__(self, reduction: str = "mean", *, margin: float = 0.0) -> None:
        self.reduction, self.margin = _reduction("CosineEmbeddingLoss", reduction), margin

    def forward(self, x1: Tensor, x2: Tensor, sign: Tensor) -> Tensor:
        """The loss of vectors [batch, features] and signs [batch], 1 or -1.

        Args:
            x1: Floating tensor [batch, features].
            x2: Floating tensor of the same shape.
            sign: 1 for pairs that should be alike, -1 for others, [batch].
        """
        return similarity.cosine_embedding_loss(x1, x2, sign, margin=self.margin, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "margin")


class TripletMarginLoss(Module):
    """How much nearer the positive is than the negative, up to a margin: ``fb.triplet_margin_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        margin: How much farther the negative should be, > 0.
        p: Order of the norm, ≥ 1.
        eps: Added to each difference.
        swap: Whether the positive may stand for the anchor.

    Example:
        >>> import firebrick as fb
        >>> x = fb.ones((1, 2))
        >>> fb.nn.TripletMarginLoss()(x, x, x).item()
        1.0
    """

    def __init__(
        self, reduction: str = "mean", *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False
    ) -> None:
        self.reduction, self.p, self.swap = _reduction("TripletMarginLoss", reduction), p, swap
        self.margin = _positive("TripletMarginLoss", "margin", margin)
        self.eps = _positive("TripletMarginLoss", "eps", eps, zero=True)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of three tensors [..., features].

        Args:
            anchor: Floating tensor [..., features].
            positive: Floating tensor of the same shape.
            negative: Floating tensor of the same shape.
        """
        return similarity.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap, reduction=self.reduction
        )

    def describe(self) -> str:
        return _shown(self, "margin", "p", "swap")


class MarginRankingLoss(Module):
    """Whether the larger of two scores is the one that should be: ``fb.margin_ranking_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        margin: By how much it should be larger.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MarginRankingLoss()(fb.asarray([3.0]), fb.asarray([1.0]), fb.asarray([1])).item()
        0.0
    """

    def __init__(self, reduction: str = "mean", *, margin: float = 0.0) -> None:
        self.reduction, self.margin = _reduction("MarginRankingLoss", reduction), margin

    def forward(self, x1: Tensor, x2: Tensor, sign: Tensor) -> Tensor:
        """The loss of scores and signs of one shape; signs are 1 or -1.

        Args:
            x1: Scores, a floating tensor of any shape.
            x2: Floating tensor of the same shape.
            sign: 1 where x1 should be larger, -1 where x2 should, of the same shape.
        """
        return similarity.margin_ranking_loss(x1, x2, sign, margin=self.margin, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "margin")


class HingeEmbeddingLoss(Module):
    """A distance where the sign is 1, max(margin - distance, 0) where it is -1: ``fb.hinge_embedding_loss``.

    Args:
        reduction: "mean", "sum" or "none".
        margin: Distance that is far enough.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.HingeEmbeddingLoss()(fb.asarray([0.25]), fb.asarray([-1])).item()
        0.75
    """

    def __init__(self, reduction: str = "mean", *, margin: float = 1.0) -> None:
        self.reduction, self.margin = _reduction("HingeEmbeddingLoss", reduction), margin

    def forward(self, x: Tensor, sign: Tensor) -> Tensor:
        """The loss of distances and signs of one shape; signs are 1 or -1.

        Args:
            x: Distances, a floating tensor of any shape.
            sign: 1 or -1 for each, of the same shape.
        """
        return similarity.hinge_embedding_loss(x, sign, margin=self.margin, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self, "margin")


class SoftMarginLoss(Module):
    """log(1 + exp(-sign · x)), averaged over elements: ``fb.soft_margin_loss``.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.SoftMarginLoss()(fb.zeros(1), fb.asarray([1])).item(), 4)
        0.6931
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = _reduction("SoftMarginLoss", reduction)

    def forward(self, x: Tensor, sign: Tensor) -> Tensor:
        """The loss of scores and signs of one shape; signs are 1 or -1.

        Args:
            x: Scores, a floating tensor of any shape.
            sign: 1 or -1 for each, of the same shape.
        """
        return similarity.soft_margin_loss(x, sign, reduction=self.reduction)

    def describe(self) -> str:
        return _shown(self)


class CTCLoss(Module):
    """-log of the probability of a label sequence over all its alignments: ``fb.ctc_loss``.

    Args:
        reduction: "mean" (of the losses, each divided by its target's length), "sum" or "none".
        blank: Class of the blank.
        zero_infinity: Whether a sample without any alignment has the loss 0 instead of infinity.

    Example:
        >>> import firebrick as fb
        >>> x = fb.log_softmax(fb.zeros((2, 1, 2)))
        >>> round(fb.nn.CTCLoss()(x, fb.asarray([[1]]), [2], [1]).item(), 4)
        0.2877
    """

    def __init__(self, reduction: str = "mean", *, blank: int = 0, zero_infinity: bool = False) -> None:
        self.reduction, self.blank, self.zero_infinity = _reduction("CTCLoss", reduction), blank, zero_infinity

    def forward(self, log_probabilities: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths) -> Tensor:
        """The loss of log-probabilities [time, batch, classes] and integer targets [batch, longest].

        Args:
            log_probabilities: Floating tensor [time, batch, classes].
            targets: Integers [batch, longest].
            input_lengths: Number of steps of each sample, integers [batch].
            target_lengths: Number of labels of each sample, integers [batch].
        """
        return ctc_loss(
            log_probabilities, targets, input_lengths, target_lengths, blank=self.blank, zero_infinity=self.zero_infinity,
            reduction=self.reduction,
        )  # fmt: skip

    def describe(self) -> str:
        return _shown(self, "blank", "zero_infinity")
