"""``Readings``: the numbers of an epoch's steps, read from the engine several at a time, and what they warn of.

Reading a number waits for the engine. A step's loss, the norm of its gradients and which of these are zero therefore stay
tensors until the learner reads those of several steps at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.tensor import Tensor
from firebrick.train.batches import name_of
from firebrick.train.errors import not_finite
from firebrick.train.frozen import FrozenWatch, Zeros
from firebrick.train.measures import Measures, Metrics, by_step
from firebrick.train.precision import Precision
from firebrick.train.steps import Stepped


class Readings:
    """What is counted of the steps of an epoch.

    Args:
        metrics: Further metrics by name.
        patience: Number of steps with the same loss, or without a gradient of a parameter, after which a warning is given.
        precision: Which scales the loss, if anything does.
        named: Whether steps give numbers by names of their own.

    Attributes:
        measures: Loss, accuracy or errors, and further metrics of the epoch so far.
        watch: Looks for parameters and losses that stand still.
    """

    def __init__(self, metrics: Metrics, patience: int, precision: Precision | None, named: bool = False) -> None:
        self.measures = Measures(metrics, named)
        self.watch = FrozenWatch(patience)
        self._precision = precision
        self.begin()

    def begin(self) -> None:
        """Forget everything of the epoch before."""
        self.measures.reset()
        self._unread: list[tuple[int, str, int]] = []  # step, batch and samples of each loss
        self._norms: list[tuple[int, Tensor]] = []  # step and norm of its gradients
        self._zeros: list[Zeros] = []

    def count(self, found: Stepped, step: int, batch: Any, watched: bool, before: Mapping[str, int]) -> int:
        """Add a step; returns its number of samples.

        Args:
            found: What it gave.
            step: Its number.
            batch: What it was given.
            watched: Whether it looked for gradients of zeros.
            before: ``measures.batches()`` before it.
        """
        label = name_of(batch) or "a batch"
        losses = found.counts["loss"]
        self.measures.take(found.counts, before)
        self._unread += [(step, label, samples) for _, samples in losses]
        if found.norm is not None:
            self._norms.append((step, found.norm))
        if watched:
            self._zeros.append(found.zeros)
        return sum(samples for _, samples in losses)

    def read(self, epoch: int, learning_rate: float, kept: str) -> list[tuple[int, dict[str, float]]]:
        """Read the numbers of the last steps.

        Args:
            epoch: Number of the epoch, and the learning rate, for messages.
            learning_rate: Likewise.
            kept: What a message about a loss says of earlier epochs.

        Returns:
            For each step that was not read yet its number, its "loss" and, where gradients are clipped, its "gradient_norm".

        Raises:
            NonFiniteLossError: A loss or a norm is NaN or infinite.
        """
        values = self.measures.read()
        unread, self._unread = self._unread, []
        if not unread:
            return []
        for value, (step, label, _) in zip(values, unread, strict=True):
            if not np.isfinite(value):
                raise not_finite("loss", f"{value} at step {step} ({label}", step, epoch, learning_rate, kept)
        losses = by_step([(step, value, n) for value, (step, _, n) in zip(values, unread, strict=True)])
        self.watch.losses(losses)
        if self._precision is not None:
            self._precision.check()
        zeros, self._zeros = self._zeros, []
        self.watch.gradients(zeros)
        norms, self._norms = self._norms, []
        read_norms = dict(zip([s for s, _ in norms], read([n for _, n in norms]) if norms else [], strict=True))
        for step, norm in read_norms.items():
            if not np.isfinite(norm):
                raise not_finite("norm of the gradients", f"{norm} at step {step} (", step, epoch, learning_rate)
        return [
            (step, {"loss": float(loss), **({"gradient_norm": float(read_norms[step])} if step in read_norms else {})})
            for step, loss in zip(dict.fromkeys(step for step, _, _ in unread), losses, strict=True)
        ]
