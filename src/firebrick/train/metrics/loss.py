"""The mean loss per sample, and perplexity, the exponential of the mean loss per token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import not_equal
from firebrick.functions.losses import cross_entropy
from firebrick.functions.movement import reshape
from firebrick.functions.statistical import sum as sum_
from firebrick.train.metrics.metric import Array, Metric, check_tensors, wide


class Loss(Metric):
    """Mean loss per sample: Σ samples · loss / Σ samples over batches whose loss is a mean; of losses that divide by weights,
    Σ weight · loss / Σ weight.

    Attributes:
        recent: The losses that the last ``settle`` read, one for each batch in order.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Loss
        >>> loss = Loss()
        >>> loss.update(fb.asarray(1.0), 30)
        >>> loss.update(fb.asarray(5.0), 10)
        >>> loss.compute()
        2.0
    """

    def __init__(self) -> None:
        super().__init__()
        self.recent: list[float] = []

    def initial(self) -> dict[str, Any]:
        return {"total": 0.0, "samples": 0, "weight": 0.0}

    def update(self, loss: Tensor, samples: int, weight: Tensor | None = None) -> None:
        """Add a batch: its mean loss (a scalar tensor) and how many samples it has.

        Args:
            loss: Mean loss of the batch, a tensor of one element.
            samples: Number of samples of the batch.
            weight: What the mean was divided by, a tensor of one element; the number of samples by default.

        Raises:
            ShapeError: The loss or the weight has more than one element, or none.
        """
        given = {"loss": loss} if weight is None else {"loss": loss, "weight": weight}
        check_tensors("Loss", **given)
        for name, value in given.items():
            if value.size != 1:
                raise ShapeError("Loss takes the mean loss of a batch", describe(name, value), 'use reduction="mean"')
        self.keep(samples, *given.values())

    def absorb(self, values: Sequence[Array]) -> None:
        """Add the values of ``pending()``.

        Args:
            values: Those of ``pending()``, as NumPy arrays.
        """
        self.recent = []
        super().absorb(values)

    def add(self, values: Sequence[Array], samples: int) -> None:
        loss, weight = float(values[0]), samples if len(values) == 1 else float(values[1])
        self.recent.append(loss)
        self.totals["total"] += loss * weight
        self.totals["samples"] += samples
        self.totals["weight"] += weight

    def compute(self) -> float:
        """The mean so far; NaN before the first batch, and 0 of batches that weigh nothing."""
        totals = self.totals
        if totals["weight"]:
            return float(totals["total"] / totals["weight"])
        return 0.0 if totals["samples"] else math.nan

    def load_state(self, state: Any) -> Self:
        """Continue from ``state()``; returns the metric.

        Args:
            state: What ``state()`` returned; that of an earlier version has no weight, which then is the number of samples.

        Raises:
            ConfigError: It is the state of another metric, or of one with other settings.
        """
        old = isinstance(state, Mapping) and "samples" in state and "weight" not in state
        return super().load_state({**state, "weight": state["samples"]} if old else state)


class Perplexity(Metric):
    """exp(mean over tokens of -log softmax(logits)[label]): the effective number of tokens that the model chooses among.

    Args:
        ignore_index: Label of tokens that do not count, such as padding; None counts all.

    Source: Jelinek et al., "Perplexity: a measure of the difficulty of speech recognition tasks", 1977.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Perplexity
        >>> perplexity = Perplexity(ignore_index=-1)
        >>> perplexity.update(fb.zeros((1, 3, 8)), fb.asarray([[5, 2, -1]]))
        >>> round(perplexity.compute(), 4)
        8.0
    """

    @answers_arguments
    def __init__(self, ignore_index: int | None = None) -> None:
        self.ignore_index = ignore_index
        super().__init__()

    def initial(self) -> dict[str, Any]:
        return {"total": 0.0, "tokens": 0}

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: logits [..., classes] and integer labels [...].

        Args:
            logits: Floating tensor [..., classes].
            labels: Integers [...].

        Raises:
            ShapeError: The shapes do not fit.
            OutOfRangeError: A label lies outside [0, classes) and is not the ignored one.
        """
        check_tensors("Perplexity", logits=logits, labels=labels)
        if logits.ndim < 1 or logits.shape[:-1] != labels.shape:
            raise ShapeError(
                "Perplexity takes logits [..., classes] and labels [...]",
                f"{describe('logits', logits)} and {describe('labels', labels)}",
                "put the classes on the last axis",
            )
        rows = reshape(logits, (labels.size, logits.shape[-1]))
        total = cross_entropy(wide(rows), reshape(labels, (-1,)), ignore_index=self.ignore_index, reduction="sum")
        if self.ignore_index is None:
            self.keep(labels.size, total)
        else:
            self.keep(0, total, sum_(not_equal(labels, self.ignore_index)))

    def add(self, values: Sequence[Array], samples: int) -> None:
        self.totals["total"] += float(values[0])
        self.totals["tokens"] += samples if len(values) == 1 else int(values[1])

    def compute(self) -> float:
        """The perplexity so far; NaN before the first token, infinite where its logarithm is beyond 709."""
        total, tokens = self.totals["total"], self.totals["tokens"]
        if not tokens:
            return math.nan
        try:
            return math.exp(total / tokens)
        except OverflowError:
            return math.inf
