"""Metrics of classes: accuracy, top-k, the confusion matrix, and what follows from it: precision, recall, F1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import clip, equal, greater, less, logical_and, logical_not, logical_or, not_equal, where
from firebrick.functions.indexing import in_default_int, take_along_axis
from firebrick.functions.movement import expand_dims
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import sum as sum_
from firebrick.train.errors import TrainingError
from firebrick.train.metrics.metric import (
    Array,
    Metric,
    check_outside,
    check_tensors,
    classes_of,
    outside,
    unranked,
)

_AVERAGES = ("micro", "macro", "weighted", None)


class _Share(Metric):
    """Correct samples divided by all samples. Of each batch their number is kept, and that of labels that are no classes."""

    def initial(self) -> dict[str, Any]:
        return {"hits": 0, "samples": 0}

    def add(self, values: Sequence[Array], samples: int) -> None:
        check_outside(type(self).__name__, values[1])
        self.totals["hits"] += int(values[0])
        self.totals["samples"] += samples if len(values) == 2 else int(values[2])

    @property
    def used(self) -> bool:
        """Whether any batch was added."""
        return bool(self._totals["samples"] or self._held)

    def compute(self) -> float:
        """The ratio so far; NaN before the first batch."""
        samples = self.totals["samples"]
        return float(self.totals["hits"] / samples) if samples else math.nan


class Accuracy(_Share):
    """The fraction of samples whose class of largest score is their label. A sample with a score that is NaN counts as wrong.

    Args:
        ignore_index: Label of samples that do not count, such as those without a class; None counts all.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Accuracy
        >>> accuracy = Accuracy()
        >>> accuracy.update(fb.asarray([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), fb.asarray([1, 0, 0]))
        >>> accuracy.update(fb.asarray([1]), fb.asarray([1]))
        >>> accuracy.compute()
        0.75
        >>> accuracy = Accuracy(ignore_index=-1)
        >>> accuracy.update(fb.asarray([1, 0]), fb.asarray([1, -1]))
        >>> accuracy.compute()
        1.0
    """

    @answers_arguments
    def __init__(self, ignore_index: int | None = None) -> None:
        self.ignore_index = None if ignore_index is None else whole("Accuracy", "ignore_index", ignore_index)
        super().__init__()

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Add a batch: scores [batch, classes] or class numbers [batch], and labels [batch].

        Args:
            predicted: Floating tensor [batch, classes], or integers [batch].
            labels: Integers [batch].

        Raises:
            ShapeError, DTypeError: The shapes or kinds do not fit.
            OutOfRangeError: A label lies outside [0, classes) and is not the ignored one (raised when the batch is read).
        """
        found, own = classes_of("Accuracy", predicted, labels), in_default_int(labels)
        hit, classes = equal(found, own), predicted.shape[1] if predicted.ndim == 2 else None
        if self.ignore_index is None:
            self.keep(labels.shape[0], sum_(hit), outside(labels, classes))
        else:
            counts = not_equal(own, self.ignore_index)
            wrong = outside(where(counts, own, 0), classes)
            self.keep(labels.shape[0], sum_(logical_and(hit, counts)), wrong, sum_(counts))


class TopKAccuracy(_Share):
    """The fraction of samples whose label is among the k classes of largest score; of equal scores the lower class is first.

    A sample with a score that is NaN counts as wrong; so k = 1 gives the accuracy.

    Args:
        k: Number of classes of largest score, at least 1.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import TopKAccuracy
        >>> top2 = TopKAccuracy(2)
        >>> top2.update(fb.asarray([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), fb.asarray([1, 2]))
        >>> top2.compute()
        0.5
    """

    @answers_arguments
    def __init__(self, k: int) -> None:
        self.k = whole("TopKAccuracy", "k", k, 1)
        super().__init__()

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch: scores [batch, classes] and labels [batch].

        Args:
            scores: Floating tensor [batch, classes].
            labels: Integers [batch].

        Raises:
            ShapeError: The shapes do not fit, or there are fewer classes than k.
            DTypeError: The labels are not integers.
            OutOfRangeError: A label lies outside [0, classes) (raised when the batch is read).
        """
        check_tensors("TopKAccuracy", scores=scores, labels=labels)
        if scores.ndim != 2 or labels.ndim != 1 or scores.shape[0] != labels.shape[0] or scores.shape[1] < self.k:
            raise ShapeError(
                f"TopKAccuracy takes scores [batch, classes] of at least {self.k} classes, and labels [batch]",
                f"{describe('scores', scores)} and {describe('labels', labels)}",
                "reshape them, or lower k",
            )
        if labels.dtype.kind not in ("int", "uint", "bool"):
            raise DTypeError("TopKAccuracy: labels are class numbers", describe("labels", labels), "pass whole numbers")
        count = scores.shape[1]
        column = expand_dims(clip(in_default_int(labels), 0, count - 1), axis=1)
        own = take_along_axis(scores, column, axis=1)
        classes = expand_dims(arange(count, dtype=column.dtype, device=scores.device), axis=0)
        ahead = logical_or(greater(scores, own), logical_and(equal(scores, own), less(classes, column)))
        right = less(sum_(ahead, axis=1), self.k)
        if scores.dtype.kind == "float":
            right = logical_and(right, logical_not(unranked(scores)))
        self.keep(labels.shape[0], sum_(right), outside(labels, count))


class ConfusionMatrix(Metric):
    """The number of samples of each label (row) that were predicted as each class (column).

    Args:
        classes: Number of classes.
        ignore_index: Label of samples that do not count, such as those without a class; None counts all.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import ConfusionMatrix
        >>> confusion = ConfusionMatrix(2)
        >>> confusion.update(fb.asarray([1, 0, 1]), fb.asarray([1, 0, 0]))
        >>> confusion.compute().tolist()
        [[1, 1], [0, 1]]
    """

    @answers_arguments
    def __init__(self, classes: int, *, ignore_index: int | None = None) -> None:
        name = type(self).__name__
        self.classes = whole(name, "classes", classes, 1)
        self.ignore_index = None if ignore_index is None else whole(name, "ignore_index", ignore_index)
        super().__init__()

    def initial(self) -> dict[str, Any]:
        return {"counts": np.zeros((self.classes, self.classes), np.int64)}

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Add a batch: scores [batch, classes] or class numbers [batch], and labels [batch].

        Args:
            predicted: Floating tensor [batch, classes], or integers [batch].
            labels: Integers [batch].

        Raises:
            ShapeError, DTypeError: The shapes or kinds do not fit.
            OutOfRangeError: A class number lies outside [0, classes) (raised when the batch is read).
            TrainingError: A score is NaN (likewise).
        """
        name = type(self).__name__
        found = classes_of(name, predicted, labels)
        if predicted.ndim == 2 and predicted.shape[1] != self.classes:
            raise ShapeError(
                f"{name} of {self.classes} classes takes scores [batch, {self.classes}]", describe("predicted", predicted),
                "one score for two classes becomes class numbers: fb.astype(scores[:, 0] > 0, fb.int64)"
                if predicted.shape[1] == 1
                else f"make it with classes={predicted.shape[1]}",
            )  # fmt: skip
        self.keep(labels.shape[0], found, labels)

    def add(self, values: Sequence[Array], samples: int) -> None:
        n = self.classes
        if self.ignore_index is not None:
            counts = values[1] != self.ignore_index
            values = [v[counts] for v in values]
        if (values[0] == -1).any():
            raise TrainingError(
                f"{type(self).__name__} counts samples by their class of largest score",
                f"{int((values[0] == -1).sum())} samples with a score that is NaN, or of class -1",
                "look where the NaN comes from",
            )
        for name, numbers in zip(("predicted", "labels"), values, strict=True):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < n:
                raise OutOfRangeError(
                    f"{type(self).__name__}: {name} are class numbers in [0, {n})",
                    f"{int(numbers.min())} to {int(numbers.max())}",
                    "make the metric with the number of classes"
                    + ("; ignore_index= leaves out samples of one label" if name == "labels" else ""),
                )
        predicted, labels = values
        cells = labels.astype(np.int64) * n + predicted.astype(np.int64)
        self.totals["counts"] += np.bincount(cells, minlength=n * n).reshape(n, n)

    def matrix(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """int64 [classes, classes]: rows are labels, columns predictions."""
        counts: np.ndarray[Any, np.dtype[np.int64]] = self.totals["counts"].copy()
        return counts

    def compute(self) -> Any:
        """int64 [classes, classes]: rows are labels, columns predictions."""
        return self.matrix()


class _FromCounts(ConfusionMatrix):
    """A ratio of counts for each class, averaged.

    For each class, ``seen`` counts its samples, ``called`` the samples predicted as it, and ``right`` those of both kinds.
    """

    against: ClassVar[tuple[str, ...]] = ()

    @answers_arguments
    def __init__(self, classes: int, average: str | None = "macro", *, ignore_index: int | None = None) -> None:
        if average not in _AVERAGES:
            raise ConfigError(
                f"{type(self).__name__}: average is micro, macro, weighted or None", repr(average), "choose one of them"
            )
        self.average = average
        super().__init__(classes, ignore_index=ignore_index)

    def compute(self) -> Any:
        """The average as a float, or float64 [classes] for ``average=None``; NaN where it is not defined.

        A class that is predicted and no sample's label, or a label and never predicted, scores 0. A class that is neither is
        NaN, and is left out of the averages.
        """
        counts = self.matrix()
        right, called, seen = np.diag(counts), counts.sum(0), counts.sum(1)
        whole = np.mean([{"called": called, "seen": seen}[name] for name in self.against], axis=0)
        if self.average == "micro":
            return float(right.sum() / whole.sum()) if whole.sum() else math.nan
        scores = np.where(whole > 0, right / np.maximum(whole, 0.5), 0.0)
        there = called + seen > 0
        if self.average is None:
            return np.where(there, scores, math.nan)
        weights = (there if self.average == "macro" else seen).astype(np.float64)
        return float((scores * weights).sum() / weights.sum()) if weights.sum() else math.nan


class Precision(_FromCounts):
    """The fraction of the samples predicted as a class that are of it: true positives / predicted samples.

    Args:
        classes: Number of classes.
        average: "macro" (mean over classes), "micro" (over all samples), "weighted" (mean over classes, weighted by their
            numbers of samples), or None for each class. A class that is a label and never predicted, or predicted and never a
            label, scores 0; one that is neither is NaN for None, and left out of the averages.
        ignore_index: Label of samples that do not count, such as those without a class; None counts all.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Precision
        >>> precision = Precision(2, average=None)
        >>> precision.update(fb.asarray([1, 0, 1]), fb.asarray([1, 0, 0]))
        >>> precision.compute().tolist()
        [1.0, 0.5]
    """

    against = ("called",)


class Recall(_FromCounts):
    """The fraction of the samples of a class that are predicted as it: true positives / samples of the class.

    Args:
        classes: Number of classes.
        average: As for ``Precision``.
        ignore_index: As for ``Precision``.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Recall
        >>> recall = Recall(2, average=None)
        >>> recall.update(fb.asarray([1, 0, 1]), fb.asarray([1, 0, 0]))
        >>> recall.compute().tolist()
        [0.5, 1.0]
    """

    against = ("seen",)


class F1(_FromCounts):
    """The harmonic mean of precision and recall of each class: 2 · true positives / (predicted samples + samples of the class).

    Args:
        classes: Number of classes.
        average: As for ``Precision``; "macro" is the mean of the classes' F1.
        ignore_index: As for ``Precision``.

    Source: van Rijsbergen, "Information Retrieval", 1979.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import F1
        >>> f1 = F1(2)
        >>> f1.update(fb.asarray([1, 0, 1]), fb.asarray([1, 0, 0]))
        >>> round(f1.compute(), 4)
        0.6667
    """

    against = ("called", "seen")
