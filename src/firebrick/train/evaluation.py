"""How well a model does on data it is shown without learning from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.backends.dispatch import read
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.functions.losses import cross_entropy
from firebrick.nn import Module
from firebrick.train.errors import TrainingError
from firebrick.train.metrics import Accuracy, ConfusionMatrix, Loss, MeanAbsoluteError, MeanSquaredError, Metric, settle


@dataclass(frozen=True)
class Forecast:
    """One sample of a forecast, for people to look at.

    Attributes:
        seen: [rows, series], what the model was shown.
        target: [horizon, series], what came next.
        predicted: [horizon, series], what the model said.
    """

    seen: np.ndarray[Any, Any]
    target: np.ndarray[Any, Any]
    predicted: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Evaluation:
    """How a model did on the samples of a loader.

    Attributes:
        loss: Mean loss a sample.
        accuracy: Share of samples right; None where targets are no classes.
        samples: How many there were.
        confusion: int64 [classes, classes], rows labels and columns predictions; None where targets are no classes.
        mse: Mean squared error over all elements; None where no numbers are predicted.
        mae: Mean absolute error over all elements; None likewise.
        forecast: The first sample, where windows of series are forecast.
    """

    loss: float
    accuracy: float | None
    samples: int
    confusion: np.ndarray[Any, np.dtype[np.int64]] | None
    mse: float | None = None
    mae: float | None = None
    forecast: Forecast | None = None


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

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from ``state()``."""
        for name, metric in self._all().items():
            if name in state:
                metric.load_state(state[name])


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Evaluation mode without gradients for a ``with`` block; the mode before comes back after it."""
    training = model.training
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        if training:
            model.train()


def evaluate(model: Module, loader: DataLoader, loss: Callable[[Any, Tensor], Tensor] = cross_entropy) -> Evaluation:
    """Mean loss, and accuracy and confusion matrix or errors, of a model over a loader, in evaluation mode.

    Args:
        model: Called as ``model(*inputs)``.
        loader: Gives batches (inputs…, target), on the model's device.
        loss: Called as ``loss(output, target)``; returns the mean over the batch.

    Raises:
        TrainingError: A parameter of the model is on another device than the loader.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import evaluate
        >>> fb.random.seed(0)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.ones((5, 3)), np.array([0, 1, 0, 1, 0])), 2)
        >>> found = evaluate(fb.nn.Linear(3, 2), loader)
        >>> found.samples, int(found.confusion.sum())
        (5, 5)
    """
    for name, p in model.named_parameters():
        if p.device is not loader.device:
            raise TrainingError(
                "a model is evaluated on the device of the loader",
                f'{name} on {p.device} and loader "{loader.name}" on {loader.device}',
                f'use loader.to("{p.device}")',
            )
    measures, confusion = Measures(), None
    forecast: Forecast | None = None
    samples = 0
    with evaluating(model):
        for batch in loader:
            target = batch[-1]
            output = model(*batch[:-1])
            measures.update(loss(output, target), output, target, target.shape[0])
            if classifies(output, target):
                confusion = confusion or ConfusionMatrix(output.shape[1])
                confusion.update(output, target)
            elif samples == 0 and regresses(output, target):
                forecast = _forecast(batch[0], target, output)
            samples += target.shape[0]
    if confusion is not None:
        settle(confusion)
    found = measures.values()
    counts = None if confusion is None else confusion.matrix()
    assert found["loss"] is not None
    return Evaluation(found["loss"], found["accuracy"], samples, counts, found["mse"], found["mae"], forecast)


def _forecast(seen: Tensor, target: Tensor, predicted: Tensor) -> Forecast | None:
    """The first sample of a batch of windows [batch, rows, series]; None for other tasks."""
    if not (seen.ndim == target.ndim == 3 and seen.shape[2] == target.shape[2]):
        return None
    return Forecast(*(a[0] for a in read([seen, target, predicted])))
