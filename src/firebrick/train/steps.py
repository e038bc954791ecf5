"""What a ``Learner`` runs over and over, each a function of tensors that holds only what it needs: a step of training, a step
of evaluation, a prediction.

They know nothing of the learner, whose counters change with each step, so each is one graph for each kind of batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from firebrick.core.tensor import Tensor
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.optim import clip_norm as clip_gradients
from firebrick.train.batches import call_of, rows_in
from firebrick.train.counted import joined
from firebrick.train.frozen import Zeros, zeros_of
from firebrick.train.leaves import as_given
from firebrick.train.measures import Counts, Measures, Metrics, classifies, divisor_of, estimates, regresses
from firebrick.train.metrics import classes_of
from firebrick.train.precision import Forward as Differentiated
from firebrick.train.precision import Precision
from firebrick.train.strategy import Named, Share, Strategy, parts_of

Loss = Callable[[Any, Any], Tensor]


class Stepped(NamedTuple):
    """What a step of training gives.

    Attributes:
        counts: What ``Measures`` counts of the batch, one entry a device.
        norm: Norm of the gradients before they were clipped; None where they are not.
        zeros: Which gradients were missing, and which held nothing but zeros.
    """

    counts: Counts
    norm: Tensor | None
    zeros: Zeros


class Evaluated(NamedTuple):
    """What a step of evaluation gives.

    Attributes:
        counts: What ``Measures`` counts of the batch.
        shown: Class numbers [batch] where classes are scored, the output where numbers are predicted, else None.
        classes: How many classes there are; None where none are scored.
    """

    counts: Counts
    shown: Tensor | None
    classes: int | None


@dataclass(frozen=True)
class Forward:
    """Model and loss: ``forward(model, *batch)`` gives the mean loss, and what is counted of it.

    Args:
        loss, target: As of ``Learner``.
        metrics: Further metrics by name.
    """

    loss: Loss
    metrics: Metrics = field(default_factory=dict)
    target: str | None = None

    def __call__(self, model: Module, *batch: Any) -> tuple[Tensor, Counts]:
        inputs, named, target = call_of(batch, self.target)
        output = model(*inputs, **named)
        loss = self.loss(output, target)
        measures = Measures(self.metrics, loss=self.loss)
        measures.update(loss, _untracked(output), target, rows_in(batch))
        return loss, measures.held()


@dataclass(frozen=True)
class TrainingStep:
    """Forward, backward, reduction over the devices, clipping, update and averages.

    Args:
        model, optimizer, loss, strategy, clip_norm, ema, precision: As of ``Learner``.
        parts: Parts that each device's rows are run in, one after the other.
        metrics: Further metrics by name.
        target: As of ``Learner``.
        batches: Batches that make an update.
    """

    model: Module
    optimizer: Any
    loss: Loss
    strategy: Strategy
    clip_norm: float | None
    ema: EMA | None
    precision: Precision | None
    parts: int
    metrics: Metrics = field(default_factory=dict)
    target: str | None = None
    batches: int = 1

    @property
    def divided(self) -> bool:
        """Whether a device runs several passes in a step."""
        return self.parts > 1 or self.batches > 1

    def __call__(self, watching: Tensor, batch: Any) -> Stepped:
        """Take one step.

        Args:
            watching: bool [], whether to look for gradients of zeros.
            batch: What the strategy's loader gives, or a ``BatchGroup`` of it.
        """
        shares = self.strategy.grads(self.forward, self.model, as_given(batch), self.parts)
        norm, zeros = self.finish(watching, *parts_of(shares))
        self.strategy.spread(self.model)
        if self.precision is not None:
            self.precision.spread()
        return Stepped(counts_of(shares), norm, zeros)

    @property
    def forward(self) -> Differentiated:
        """What is differentiated."""
        plain = Forward(self.loss, self.metrics, self.target)
        return plain if self.precision is None else self.precision.forward(plain)

    def finish(
        self, watching: Tensor, grads: list[Named], samples: list[float], buffers: list[Named]
    ) -> tuple[Tensor | None, Zeros]:
        """All that comes after the gradients, on the device that owns the parameters.

        Args:
            watching: As of a call.
            grads: Gradients of each share's mean loss, by parameter.
            samples: Of each share.
            buffers: What of each share's buffers is joined, by name.

        Returns:
            ``norm`` and ``zeros`` of ``Stepped``.
        """
        gradients = self.strategy.reduce(self.model, grads, samples, buffers)
        zeros = zeros_of(watching, self.model.trainable_parameters(), gradients)
        if self.precision is not None:
            self.precision.unscale(gradients)
        norm = None if self.clip_norm is None else clip_gradients(gradients, self.clip_norm)
        self.strategy.update(self.optimizer, self.model, gradients)
        if self.ema is not None:
            self.ema.update(gradients.valid)
        return norm, zeros


def counts_of(shares: Sequence[Share]) -> Counts:
    """What is counted of a batch, from what is counted of its shares."""
    return joined([counts for share in shares for counts in share.extra])


@dataclass(frozen=True)
class EvaluationStep:
    """Model and loss on one batch, and what is counted of it; ``metrics`` are further ones by name, ``target`` as of
    ``Learner``."""

    model: Module
    loss: Loss
    metrics: Metrics = field(default_factory=dict)
    target: str | None = None

    def __call__(self, batch: Any) -> Evaluated:
        batch = as_given(batch)
        inputs, named, target = call_of(batch, self.target)
        output = self.model(*inputs, **named)
        measures = Measures(self.metrics, loss=self.loss)
        loss = self.loss(output, target)
        measures.update(loss, output, target, rows_in(batch), divisor_of(self.loss, target))
        if classifies(output, target):
            return Evaluated(measures.held(), classes_of("ConfusionMatrix", output, target), output.shape[1])
        return Evaluated(measures.held(), output if estimates(self.loss) and regresses(output, target) else None, None)


@dataclass(frozen=True)
class Prediction:
    """The model's output."""

    model: Module

    def __call__(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self.model(*as_given(inputs), **as_given(named))


def _untracked(output: Any) -> Any:
    return output.detach() if isinstance(output, Tensor) else output
