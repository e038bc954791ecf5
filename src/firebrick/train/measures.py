"""``Measures``: what is counted beside each step, of training and of evaluation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from firebrick.core.errors import ConfigError, FirebrickError
from firebrick.core.tensor import Tensor
from firebrick.functions import losses
from firebrick.nn import BCEWithLogitsLoss, CrossEntropyLoss, KLDivLoss, NLLLoss, PoissonNLLLoss
from firebrick.train.errors import TrainingError
from firebrick.train.metrics import Accuracy, Loss, MeanAbsoluteError, MeanSquaredError, Metric, settle

Metrics = Mapping[str, Metric]
Rows = list[tuple[tuple[Tensor, ...], int]]


class Counts(dict[str, Rows]):
    """Tensors that metrics hold of batches, and their samples, by metric: what strategies join over processes."""


def classifies(output: Any, target: Any) -> bool:
    """Whether an output is scores [batch, classes] held against class numbers [batch]."""
    return _tensors(output, target) and output.ndim == 2 and target.ndim == 1 and target.dtype.is_integer


def regresses(output: Any, target: Any) -> bool:
    """Whether an output is numbers held against numbers, element by element."""
    return _tensors(output, target) and output.shape == target.shape and target.dtype.kind == output.dtype.kind == "float"


def _tensors(output: Any, target: Any) -> bool:
    return isinstance(output, Tensor) and isinstance(target, Tensor)


def divisor_of(loss: Any, target: Any) -> Tensor | None:
    """What the mean of a batch was divided by, where that is known and not its number of labels."""
    if not isinstance(loss, (CrossEntropyLoss, NLLLoss)) or loss.reduction != "mean" or not isinstance(target, Tensor):
        return None
    if not target.dtype.is_integer or (loss.weight is None and loss.ignore_index is None):
        return None
    return losses.divisor_of_labels(target, loss.weight, loss.ignore_index)


def estimates(loss: Any) -> bool:
    """Whether a loss compares a model's output with a target of the same meaning, so that their difference has one: not scores
    or logarithms with probabilities or counts."""
    of = loss.func if isinstance(loss, partial) else loss
    if isinstance(of, PoissonNLLLoss):
        return not of.log_input
    return not isinstance(of, _OF_SCORES) and not any(of is f for f in _SCORED)


_OF_SCORES = (BCEWithLogitsLoss, CrossEntropyLoss, KLDivLoss, NLLLoss)
_SCORED = (
    losses.binary_cross_entropy_with_logits,
    losses.cross_entropy,
    losses.kl_div,
    losses.nll_loss,
    losses.poisson_nll_loss,
)


def uncounted(name: str) -> TrainingError:
    """The error of a metric that counts no batch."""
    return TrainingError(
        f"the metric {name} counts batches: update passes tensors of each to keep, and add adds their values to totals",
        "an update that keeps nothing",
        "call self.keep(samples, tensor, …) in update: what update changes otherwise is lost in compiled steps",
    )


def ignored_by(loss: Any) -> int | None:
    """The label that a loss leaves out, such as ``nn.CrossEntropyLoss(ignore_index=-1)``; None if it leaves out none."""
    label = getattr(loss, "ignore_index", None)
    return label if isinstance(label, int) and not isinstance(label, bool) else None


OWN = ("loss", "accuracy", "mse", "mae")
"""What is counted without being asked for."""


def named_metrics(metrics: Any) -> dict[str, Metric]:
    """The metrics of a learner by name; those of a list are called as their classes, in the style of variables.

    Raises:
        TrainingError: One is no ``Metric``, or has no name of its own.
    """
    given = [*metrics.items()] if isinstance(metrics, Mapping) else None
    if given is None:
        listed = [*metrics] if isinstance(metrics, Sequence) and not isinstance(metrics, str) else [metrics]
        given = [(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(m).__name__).lower(), m) for m in listed]
    for name, metric in given:
        if not isinstance(metric, Metric):
            shown = f"the class {metric.__name__}" if isinstance(metric, type) else f"{metric!r:.80}"
            raise TrainingError("metrics are train.Metric objects, in a list or by name", shown, "pass e.g. [train.F1(10)]")
        if not isinstance(name, str) or not name.isidentifier() or name in OWN or [n for n, _ in given].count(name) > 1:
            raise TrainingError(
                f"each metric has a name of its own, beside {', '.join(OWN)}, which are counted anyway",
                f"{type(metric).__name__} called {name!r}",
                'pass a dict of other names: metrics={"f1": train.F1(10)}',
            )
    return dict(given)


_KIND = "(metric)"


def kind_of(metric: Metric) -> str:
    """A metric's class and settings, in one line: totals of one are those of another only where these are equal."""
    settings = {k: v for k, v in vars(metric).items() if isinstance(v, bool | int | float | str | tuple | None)}
    return f"{type(metric).__name__}({', '.join(f'{k}={v!r}' for k, v in settings.items() if not k.startswith('_'))})"


def kinds_in(state: Mapping[str, Any]) -> dict[str, str]:
    """What the further metrics of a ``Measures.state()`` are, by name; those of an earlier version are left out."""
    return {n: m[_KIND] for n, m in state.items() if isinstance(m, Mapping) and isinstance(m.get(_KIND), str)}


class Measures:
    """What is counted beside each step: the loss; accuracy of classes, or squared and absolute error of numbers; and further
    metrics.

    Args:
        metrics: Further ones by name, each called as ``update(output, target)``. They are copied and stay as they are.
        named: Whether steps give numbers of other names too, whose means are further metrics.
        loss: The loss: the accuracy leaves out the label that it ignores, and errors of numbers count where it ``estimates``.
    """

    def __init__(self, metrics: Metrics | None = None, named: bool = False, loss: Any = None) -> None:
        self.loss = Loss()
        self.accuracy = Accuracy(ignored_by(loss))
        self.mse, self.mae = MeanSquaredError(), MeanAbsoluteError()
        self.further = {n: copy(m) for n, m in (metrics or {}).items()}
        self._named, self._estimates = named, estimates(loss)
        self._kinds = {n: kind_of(m) for n, m in self.further.items()}
        for metric in self.further.values():
            metric.reset()

    def _all(self) -> dict[str, Metric]:
        return {"loss": self.loss, "accuracy": self.accuracy, "mse": self.mse, "mae": self.mae, **self.further}

    def update(self, loss: Tensor, output: Any, target: Any, samples: int, weight: Tensor | None = None) -> None:
        """Add a batch, or a device's share of one; ``weight`` is what its loss was divided by, if not by its samples."""
        self.loss.update(loss, samples, weight)
        if classifies(output, target):
            self.accuracy.update(output, target)
        elif self._estimates and regresses(output, target):
            self.mse.update(output, target)
            self.mae.update(output, target)
        for metric in self.further.values():
            metric.update(output, target)

    def try_further(self, output: Any, target: Any) -> None:
        """Call the further metrics with a batch, and see that they can count it.

        Raises:
            TrainingError: One keeps nothing of it, or raises another error than the project's own.
        """
        for name, metric in self.further.items():
            try:
                metric.update(output, target)
                if not metric.held():
                    raise uncounted(name)
                settle(metric)
            except FirebrickError:
                raise
            except Exception as e:
                raise TrainingError(
                    f"the metric {name} counts the batches of the learner: update(output, target), then add of what it keeps",
                    f"{type(e).__name__}: {e}",
                    "call it with the model's output and a target of one batch, to see where it fails",
                ) from e

    def held(self) -> Counts:
        """What is kept of the batches so far and not read yet."""
        return Counts({n: m.held() for n, m in self._all().items()})

    def batches(self) -> dict[str, int]:
        """The number of batches that each metric was given."""
        return {n: m.batches for n, m in self._all().items()}

    def take(self, counts: Counts, before: Mapping[str, int] | None = None) -> None:
        """Add batches that other measures ``held``.

        Args:
            counts: The batches.
            before: What ``batches()`` was before any of them, where an exception may have left out some; None adds all.
        """
        before = self.batches() if before is None else before
        for name in counts if self._named else ():
            self._mean_of(name)
        for name, metric in self._all().items():
            metric.take(counts.get(name, [])[metric.batches - before.get(name, 0) :])

    def _mean_of(self, name: str) -> None:
        """Count the mean of numbers of a name."""
        if name not in OWN:
            self.further.setdefault(name, Loss())

    def read(self) -> list[float]:
        """Read what is held back, with one wait; returns the losses of the batches since the last time."""
        if not self.loss.pending():
            return []
        settle(*self._all().values())
        return self.loss.recent

    def values(self, prefix: str = "") -> dict[str, float | None]:
        """Loss, accuracy, mse and mae by name; None for what this kind of model has not."""
        self.read()
        return {prefix + n: m.compute() if n == "loss" or m.used else None for n, m in self._all().items() if n in OWN}

    def further_values(self) -> dict[str, Any]:
        """The further metrics by name."""
        self.read()
        return {n: m.compute() for n, m in self.further.items() if m.used}

    def reset(self) -> None:
        """Forget everything."""
        for metric in self._all().values():
            metric.reset()

    def state(self) -> dict[str, Any]:
        """What ``load_state`` takes: plain numbers."""
        return {n: m.state() | ({_KIND: self._kinds[n]} if n in self._kinds else {}) for n, m in self._all().items()}

    def load_state(self, state: Any) -> None:
        """Go on from ``state()``; that of an earlier version may lack errors of numbers.

        Raises:
            ConfigError: It is no such state.
        """
        for name in state if self._named and isinstance(state, dict) else ():
            self._mean_of(name)
        own = self._all()
        if not isinstance(state, dict) or "loss" not in state or not state.keys() <= own.keys():
            raise ConfigError(
                f"a state of measures has loss, and any of {', '.join(own)}", f"{state!r:.80}", "pass what state() returned"
            )
        for name, metric in own.items():
            if name in state:
                metric.load_state(state[name])

    def merge(self, state: dict[str, Any]) -> None:
        """Add what other measures have counted, by their ``state()``, without the further metrics: all of its numbers are
        sums."""
        for name, metric in self._all().items():
            if name in OWN:
                metric.load_state({k: v + state[name][k] for k, v in metric.state().items()})


def by_step(losses: list[tuple[int, float, int]]) -> list[float]:
    """The loss of each step from those of its shares: (step, mean loss, samples)."""
    out = []
    for _, found in groupby(losses, key=itemgetter(0)):
        shares = list(found)
        count = sum(n for _, _, n in shares)
        out.append(shares[0][1] if len(shares) == 1 else sum(v * n for _, v, n in shares) / count)
    return out
