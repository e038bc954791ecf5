"""How well a model does on data it is shown without learning from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.functions.neural import cross_entropy
from firebrick.nn import Module
from firebrick.train.errors import TrainingError
from firebrick.train.metrics import Accuracy, ConfusionMatrix, Loss, classes_of, settle


@dataclass(frozen=True)
class Evaluation:
    """How a model did on the samples of a loader.

    Attributes:
        loss: Mean loss a sample.
        accuracy: Share of samples right; None where targets are no classes.
        samples: How many there were.
        confusion: int64 [classes, classes], rows labels and columns predictions; None where targets are no classes.
    """

    loss: float
    accuracy: float | None
    samples: int
    confusion: np.ndarray[Any, np.dtype[np.int64]] | None


def classifies(output: Any, target: Tensor) -> bool:
    """Whether an output is scores [batch, classes] held against class numbers [batch]."""
    return isinstance(output, Tensor) and output.ndim == 2 and target.ndim == 1 and target.dtype.is_integer


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
    """Mean loss, accuracy and confusion matrix of a model over a loader, in evaluation mode.

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
    mean, accuracy, confusion = Loss(), Accuracy(), None
    samples = 0
    with evaluating(model):
        for batch in loader:
            target = batch[-1]
            output = model(*batch[:-1])
            samples += target.shape[0]
            mean.update(loss(output, target), target.shape[0])
            if classifies(output, target):
                confusion = confusion or ConfusionMatrix(output.shape[1])
                predicted = classes_of("evaluate", output, target)
                accuracy.update(predicted, target)
                confusion.update(predicted, target)
    if confusion is None:
        return Evaluation(mean.compute(), None, samples, None)
    settle(mean, accuracy, confusion)
    return Evaluation(mean.compute(), accuracy.compute(), samples, confusion.compute())
