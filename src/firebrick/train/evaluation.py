"""How well a model does on data it is shown without learning from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.backends.dispatch import read
from firebrick.core.errors import FirebrickError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.nn import Module
from firebrick.train.batches import call_of, check_batch, check_call, check_loader, hint_of, rows_in
from firebrick.train.compiled import Compiled, naming
from firebrick.train.counted import Counted, Forecast
from firebrick.train.default_loss import default_loss
from firebrick.train.errors import TrainingError
from firebrick.train.leaves import LeafGraphs
from firebrick.train.loss_state import modules_of, unchanged
from firebrick.train.measures import Measures, Metrics, ignored_by, named_metrics, uncounted
from firebrick.train.metrics import ConfusionMatrix, Metric
from firebrick.train.metrics.metric import check_outside
from firebrick.train.steps import Evaluated, EvaluationStep
from firebrick.train.strategy import Strategy


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation of a model on the samples of a loader.

    Attributes:
        loss: Mean loss per sample: of each batch what the loss returns, weighted by its samples; of ``nn.CrossEntropyLoss`` and
            ``nn.NLLLoss`` with class weights or ``ignore_index``, by what they divide by. So both are those of all samples at
            once. For a loss of one's own that divides by something else, or a sum, it depends on the batches.
        accuracy: Share of samples classified correctly; None where targets are no classes.
        samples: How many there were.
        confusion: int64 [classes, classes], rows labels and columns predictions; None where targets are no classes. A sample
            with a score that is NaN has no class: it counts as wrong, and is in no cell.
        mse: Mean squared error over all elements; None where no numbers are predicted, or the loss takes them for scores of
            probabilities, as ``nn.BCEWithLogitsLoss`` does.
        mae: Mean absolute error over all elements; None likewise.
        forecast: The first sample, where windows of series are forecast.
        metrics: Values of further metrics, by name.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 2)
        >>> found = fb.train.evaluate(fb.nn.Identity(), loader)
        >>> found.accuracy, found.confusion.tolist()
        (1.0, [[1, 0], [0, 1]])
    """

    loss: float
    accuracy: float | None
    samples: int
    confusion: np.ndarray[Any, np.dtype[np.int64]] | None
    mse: float | None = None
    mae: float | None = None
    forecast: Forecast | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def evaluating(model: Module, loss: Any = None) -> Iterator[None]:
    """Evaluation mode without gradients for a ``with`` block, of the loss too; the modes before, of each part, and the state
    of the loss come back after it."""
    roots = [model, *modules_of(loss).values()]
    modes = [(m, m.training) for root in roots for _, m in root.modules()]
    for root in roots:
        root.eval()
    try:
        with no_grad(), unchanged(loss, model):
            yield
    finally:
        for m, training in modes:  # a part comes after the module that it belongs to
            if m.training is not training:
                m.train() if training else m.eval()


@answers_arguments
def evaluate(
    model: Module,
    loader: DataLoader,
    loss: Callable[[Any, Any], Tensor] = default_loss,
    *,
    metrics: Sequence[Metric] | Metrics = (),
    jit: bool = True,
    target: str | None = None,
) -> Evaluation:
    """Mean loss, and accuracy and confusion matrix or errors, of a model over a loader, in evaluation mode.

    Args:
        model: Called as ``model(*inputs)``.
        loader: Gives batches as of ``Learner``, on the model's device.
        loss: Called as ``loss(output, target)``; returns the mean over the batch.
        metrics: Further metrics, called as ``update(output, target)``: a list, or a dict by name.
        jit: Whether batches go through a graph.
        target: Key or field of the target, as of ``Learner``.

    Raises:
        TrainingError: A parameter of the model is on another device than the loader; or a metric keeps nothing of the batches.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import evaluate
        >>> fb.random.seed(0)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.ones((5, 3)), np.array([0, 1, 0, 1, 0])), 2)
        >>> found = evaluate(fb.nn.Linear(3, 2), loader)
        >>> found.samples, int(found.confusion.sum())
        (5, 5)
    """
    loader = check_loader(loader)
    step = EvaluationStep(model, loss, named_metrics(metrics), target)
    compiled = Compiled("evaluation", step, LeafGraphs(step) if jit else None)
    found = evaluated(compiled, model, loss, loader, step.metrics, target=target)
    for name in step.metrics:
        if name not in found.metrics:
            raise uncounted(name)
    return found


def evaluated(
    step: Callable[[Any], Evaluated], model: Module, loss: Any, loader: DataLoader, metrics: Metrics,
    strategy: Strategy | None = None, read: Callable[[DataLoader], Iterator[Any]] = iter, target: str | None = None,
) -> Evaluation:  # fmt: skip
    """``evaluate`` with a step that may be compiled, over a strategy's processes, of batches as ``read`` gives them."""
    for name, p in model.named_parameters():
        if p.device is not loader.device:
            raise TrainingError(
                "a model is evaluated on the device of the loader",
                f'{name} on {p.device} and loader "{loader.name}" on {loader.device}',
                f'use loader.to("{p.device}")',
            )
    dealt = loader if strategy is None else strategy.deal(model, loader)
    found = _counted(step, model, loss, loader, read(dealt), metrics, dealt is not loader, target)
    if strategy is not None:
        found = strategy.gather(found)
    values = found.measures.values()
    assert values["loss"] is not None
    return Evaluation(
        values["loss"], values["accuracy"], found.samples, found.confusion, values["mse"], values["mae"], found.forecast,
        found.measures.further_values(),
    )  # fmt: skip


@contextmanager
def _explained(batch: Any, target: str | None) -> Iterator[None]:
    """What model or loss refuse of a batch is said with how they got it."""
    try:
        yield
    except FirebrickError as e:
        if hint := hint_of(batch, target):
            e.add_note(hint)
        raise


class _Confusion(ConfusionMatrix):
    """A confusion matrix of the samples that have a class; the loss says what became of the others.

    Args:
        classes: How many there are.
        ignored: Label of samples that are left out; None for none.
    """

    def __init__(self, classes: int, ignored: int | None) -> None:
        self.ignored = ignored
        super().__init__(classes)

    def add(self, values: Sequence[Any], samples: int) -> None:
        called = values[0] >= 0
        if self.ignored is not None:
            called &= values[1] != self.ignored
        check_outside("evaluation", np.count_nonzero(called & ((values[1] < 0) | (values[1] >= self.classes))))
        super().add([v[called] for v in values], samples)


def _counted(
    step: Callable[[Any], Evaluated], model: Module, loss: Any, loader: DataLoader, batches: Iterator[Any],
    metrics: Metrics, shared: bool, target_name: str | None,
) -> Counted:  # fmt: skip
    counted, confusion = Counted(Measures(metrics)), None
    with evaluating(model, loss):
        for batch in batches:
            check_batch(batch, loader, target_name)
            inputs, named, target = call_of(batch, target_name)
            if counted.samples == 0:
                check_call(model, inputs, named, target_name)
            with naming(batch), _explained(batch, target_name):
                found = step(batch)
            if shared:  # with other processes, which have kept other batches
                for name in metrics:
                    counted.further.setdefault(name, []).extend(found.counts.pop(name))
            counted.measures.take(found.counts)
            if found.classes is not None and found.shown is not None:
                confusion = confusion or _Confusion(found.classes, ignored_by(loss))
                confusion.update(found.shown, target)
            elif counted.samples == 0 and found.shown is not None:
                counted.forecast = _forecast(inputs[0] if inputs else None, target, found.shown)
            counted.samples += rows_in(batch)
    if confusion is not None:
        counted.confusion = confusion.matrix()
    return counted


def _forecast(seen: Any, target: Tensor, predicted: Tensor) -> Forecast | None:
    """The first sample of a batch of windows [batch, rows, series]; None for other tasks."""
    if not (isinstance(seen, Tensor) and seen.ndim == target.ndim == 3 and seen.shape[2] == target.shape[2]):
        return None
    return Forecast(*(a[0] for a in read([seen, target, predicted])))
