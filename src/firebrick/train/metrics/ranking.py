"""Metrics of how scores rank samples: the area under the ROC curve, and average precision.

Both are exact: every score is kept on the host, and equal scores count as one threshold. They take scores and labels of two
classes, or scores [batch, classes] of many, where each class is compared with all others.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.lines import warn
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.train.errors import TrainingError, UndefinedMetricWarning
from firebrick.train.metrics.metric import Array, Metric, check_tensors

_AVERAGES = ("macro", "weighted", None)


class _Ranking(Metric):
    """Keeps scores [samples, columns] and labels [samples]; ``_score`` computes the metric of one column and a bool vector."""

    @answers_arguments
    def __init__(self, classes: int | None = None, average: str | None = "macro") -> None:
        name = type(self).__name__
        if classes is not None:
            classes = whole(name, "classes", classes, 2)
        if average not in _AVERAGES:
            raise ConfigError(f"{name}: average is macro, weighted or None", repr(average), "choose one of them")
        self.classes, self.average = classes, average
        super().__init__()

    def initial(self) -> dict[str, Any]:
        return {"scores": np.zeros((0, self.classes or 1), np.float64), "labels": np.zeros(0, np.int64)}

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch: scores [batch] of class 1 and labels 0 or 1 [batch]; with ``classes``, scores [batch, classes].

        Args:
            scores: Floating tensor [batch], or [batch, classes].
            labels: Integers [batch].

        Raises:
            ShapeError, DTypeError: The shapes or kinds do not fit.
        """
        name, columns = type(self).__name__, () if self.classes is None else (self.classes,)
        check_tensors(name, scores=scores, labels=labels)
        if labels.ndim != 1 or scores.shape != (*labels.shape, *columns):
            raise ShapeError(
                f"{name} takes scores [batch{', ' + str(self.classes) if self.classes else ''}] and labels [batch]",
                f"{describe('scores', scores)} and {describe('labels', labels)}",
                "reshape them; for more than two classes, pass classes=",
            )
        if scores.dtype.kind not in ("float", "int", "uint") or labels.dtype.kind not in ("int", "uint", "bool"):
            raise DTypeError(
                f"{name} takes real scores and whole labels", f"{scores.dtype} and {labels.dtype}", "cast them before"
            )
        self.keep(labels.shape[0], scores, labels)

    def absorb(self, values: Sequence[Array]) -> None:
        """Add the values of ``pending()``.

        Args:
            values: Those of ``pending()``, as NumPy arrays.
        """
        self._fresh: dict[str, list[Array]] = {"scores": [self._totals["scores"]], "labels": [self._totals["labels"]]}
        super().absorb(values)
        self._totals = {k: np.concatenate(v) for k, v in self._fresh.items()}

    def add(self, values: Sequence[Array], samples: int) -> None:
        scores, labels = values[0].astype(np.float64), values[1].astype(np.int64)
        name, top = type(self).__name__, self.classes or 2
        if np.isnan(scores).any():
            raise TrainingError(f"{name} ranks scores, and NaN has no rank", "a score that is NaN", "look where it comes from")
        if labels.size and not 0 <= labels.min() <= labels.max() < top:
            raise OutOfRangeError(
                f"{name}: labels lie in [0, {top})", f"{labels.min()} to {labels.max()}", "pass classes= for more than two"
            )
        self._fresh["scores"].append(scores.reshape(len(labels), self.classes or 1))
        self._fresh["labels"].append(labels)

    def compute(self) -> Any:
        """A float, or float64 [classes] for ``average=None``.

        NaN where it is not defined, with an ``UndefinedMetricWarning`` that names the class; the averages leave it out.
        """
        scores, labels = self.totals["scores"], self.totals["labels"]
        if self.classes is None:
            return self._rated(scores[:, 0], labels == 1, "the labels")
        rated = np.array([self._rated(scores[:, c], labels == c, f"class {c}") for c in range(self.classes)])
        if self.average is None:
            return rated
        weights = np.ones(self.classes) if self.average == "macro" else np.bincount(labels, minlength=self.classes) * 1.0
        weights = np.where(np.isnan(rated), 0.0, weights)
        return float(np.nansum(rated * weights) / weights.sum()) if weights.sum() else math.nan

    def _rated(self, scores: Array, positive: Array, of: str) -> float:
        missing = self._undefined(int(positive.sum()), len(positive))
        if missing:
            warn(
                f"{type(self).__name__} of {of} is not defined: among {len(positive)} samples there are {missing}; it is NaN",
                UndefinedMetricWarning,
            )
            return math.nan
        return self._score(*_by_threshold(scores, positive))

    @abstractmethod
    def _undefined(self, positives: int, samples: int) -> str:
        """Why the metric is not defined; empty if it is."""

    @abstractmethod
    def _score(self, hits: Array, called: Array) -> float:
        """The metric from the numbers of positives and of samples that reach each threshold, the highest first."""


def _by_threshold(scores: Array, positive: Array) -> tuple[Array, Array]:
    """For each distinct score, the highest first: the numbers of positives and of samples that score at least that."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    return np.cumsum(positive[order])[last], last + 1


class AUROC(_Ranking):
    """The probability that a sample of a class scores higher than a sample of another class, with ties counted as one half.

    Scores are ranked as they are. Of several classes, logits rank samples otherwise than their softmax does, since each sample
    has a sum of its own: for the figure of probabilities pass those.

    Args:
        classes: Number of classes, each compared with the rest; None for two, with one score per sample.
        average: With ``classes``: "macro" (mean), "weighted" (by their numbers of samples), or None for each class. A class
            that no sample is of, or every sample, is NaN with an ``UndefinedMetricWarning``, and left out of the averages.

    Source: Hanley, McNeil, "The meaning and use of the area under a ROC curve", 1982.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import AUROC
        >>> auroc = AUROC()
        >>> auroc.update(fb.asarray([0.1, 0.4, 0.35, 0.8]), fb.asarray([0, 0, 1, 1]))
        >>> auroc.compute()
        0.75
    """

    def _undefined(self, positives: int, samples: int) -> str:
        if not samples:
            return "none"
        return "no positive ones" if not positives else "no negative ones" if positives == samples else ""

    def _score(self, hits: Array, called: Array) -> float:
        hits, called = np.append(0, hits), np.append(0, called)
        wrong = called - hits
        area = (np.diff(wrong) * (hits[1:] + hits[:-1])).sum() / 2
        return float(area / (float(hits[-1]) * float(wrong[-1])))


class AveragePrecision(_Ranking):
    """Σ (recall - recall before) · precision over the thresholds: the area under the precision-recall curve, in steps.

    Scores are ranked as they are. Of several classes, logits rank samples otherwise than their softmax does, since each sample
    has a sum of its own: for the figure of probabilities pass those.

    Args:
        classes: Number of classes, each compared with the rest; None for two, with one score per sample.
        average: As for ``AUROC``, but only a class that no sample is of is NaN.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import AveragePrecision
        >>> precision = AveragePrecision()
        >>> precision.update(fb.asarray([0.1, 0.4, 0.35, 0.8]), fb.asarray([0, 0, 1, 1]))
        >>> round(precision.compute(), 4)
        0.8333
    """

    def _undefined(self, positives: int, samples: int) -> str:
        return "" if positives else "no positive ones" if samples else "none"

    def _score(self, hits: Array, called: Array) -> float:
        return float((np.diff(hits, prepend=0) / hits[-1] * (hits / called)).sum())
