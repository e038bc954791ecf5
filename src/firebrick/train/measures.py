"""``Measures``: what is counted beside each step, of training and of evaluation."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.train.metrics import Accuracy, Loss, MeanAbsoluteError, MeanSquaredError, Metric, settle

Rows = list[tuple[tuple[Tensor, ...], int]]


class Counts(dict[str, Rows]):
    """Tensors that metrics hold of batches, and their samples, by metric: what strategies join over processes."""


def classifies(output: Any, target: Tensor) -> bool:
    """Whether an output is scores [batch, classes] held against class numbers [batch]."""
    return isinstance(output, Tensor) and output.ndim == 2 and target.ndim == 1 and target.dtype.is_integer


def regresses(output: Any, target: Tensor) -> bool:
    """Whether an output is numbers held against numbers, element by element."""
    return isinstance(output, Tensor) and output.shape == target.shape and target.dtype.kind == output.dtype.kind == "float"


class Measures:
    """What is counted beside each step: the loss; accuracy of classes, or squared and absolute error of numbers."""

    def __init__(self) -> None:
        self.loss = Loss()
        self.accuracy = Accuracy()
        self.mse, self.mae = MeanSquaredError(), MeanAbsoluteError()

    def _all(self) -> dict[str, Metric]:
        return {"loss": self.loss, "accuracy": self.accuracy, "mse": self.mse, "mae": self.mae}

    def update(self, loss: Tensor, output: Any, target: Tensor, samples: int) -> None:
        """Add a batch, or a device's share of one."""
        self.loss.update(loss, samples)
        if classifies(output, target):
            self.accuracy.update(output, target)
        elif regresses(output, target):
            self.mse.update(output, target)
            self.mae.update(output, target)

    def held(self) -> Counts:
        """What is kept of the batches so far and not read yet."""
        return Counts({n: m.held() for n, m in self._all().items()})

    def take(self, counts: Counts) -> None:
        """Add batches that other measures ``held``."""
        for name, metric in self._all().items():
            metric.take(counts[name])

    def read(self) -> list[float]:
        """Read what is held back, with one wait; returns the losses of the batches since the last time."""
        if not self.loss.pending():
            return []
        settle(*self._all().values())
        return self.loss.recent

    def values(self, prefix: str = "") -> dict[str, float | None]:
        """Loss, accuracy, mse and mae by name; None for what this kind of model has not."""
        self.read()
        return {prefix + n: m.compute() if n == "loss" or m.used else None for n, m in self._all().items()}

    def reset(self) -> None:
        """Forget everything."""
        for metric in self._all().values():
            metric.reset()

    def state(self) -> dict[str, Any]:
        """What ``load_state`` takes: plain numbers."""
        return {n: m.state() for n, m in self._all().items()}

    def load_state(self, state: Any) -> None:
        """Go on from ``state()``; that of an earlier version may lack errors of numbers.

        Raises:
            ConfigError: It is no such state.
        """
        own = self._all()
        if not isinstance(state, dict) or "loss" not in state or not state.keys() <= own.keys():
            raise ConfigError(
                f"a state of measures has loss, and any of {', '.join(own)}", f"{state!r:.80}", "pass what state() returned"
            )
        for name, metric in own.items():
            if name in state:
                metric.load_state(state[name])

    def merge(self, state: dict[str, Any]) -> None:
        """Add what other measures have counted, by their ``state()``: all of its numbers are sums."""
        for name, metric in self._all().items():
            metric.load_state({k: v + state[name][k] for k, v in metric.state().items()})


def by_step(losses: list[tuple[int, float, int]]) -> list[float]:
    """The loss of each step from those of its shares: (step, mean loss, samples)."""
    out = []
    for _, found in groupby(losses, key=itemgetter(0)):
        shares = list(found)
        count = sum(n for _, _, n in shares)
        out.append(shares[0][1] if len(shares) == 1 else sum(v * n for _, v, n in shares) / count)
    return out
