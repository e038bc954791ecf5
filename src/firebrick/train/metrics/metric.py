"""``Metric``: the base of all metrics: tensors of batches that are read later, and totals that go into a checkpoint.

``update`` keeps tensors on their device; ``settle`` reads those of many metrics with one wait for the engine. A metric adds
each batch's numbers to its totals, so every sample counts once, however samples are divided into batches. ``state`` is plain
numbers, and a metric loaded from it continues as if it had not been interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.dtypes import float32
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, greater_equal, isnan, less, logical_or
from firebrick.functions.elementwise import where as where_
from firebrick.functions.indexing import in_default_int
from firebrick.functions.searching import argmax
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.utility import any as any_

Array = np.ndarray[Any, Any]
_MOST_PENDING = 512  # tensors kept before a metric reads them by itself


def _shown(value: Any) -> str:
    """A setting or a total in a few characters."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{value.dtype}{list(value.shape)}"
    return f"{value.tolist() if isinstance(value, np.ndarray) else value!r:.60}"


class Metric(ABC):
    """Base of metrics. A subclass writes four methods:

    - ``initial`` returns the totals before the first batch;
    - ``update`` takes a batch, computes with tensors what is needed of it, and passes that to ``keep``;
    - ``add`` adds to ``totals`` what was kept of one batch, as NumPy arrays;
    - ``compute`` returns the metric from ``totals``.

    ``update`` waits for no engine. A ``Learner`` calls it in its compiled steps; beside a function of one's own under
    ``fb.jit``, it is called with what the function returns. A subclass with an ``__init__`` of its own sets its attributes
    before it calls ``super().__init__()``, since ``initial`` may depend on them.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Metric
        >>> class MeanError(Metric):
        ...     def initial(self):
        ...         return {"total": 0.0, "elements": 0}
        ...
        ...     def update(self, predicted, target):
        ...         self.keep(target.size, fb.sum(predicted - target))
        ...
        ...     def add(self, values, samples):
        ...         self.totals["total"] += float(values[0])
        ...         self.totals["elements"] += samples
        ...
        ...     def compute(self):
        ...         return self.totals["total"] / self.totals["elements"]
        >>> metric = MeanError()
        >>> metric.update(fb.asarray([1.0, 2.0]), fb.asarray([1.0, 1.0]))
        >>> metric.update(fb.asarray([4.0]), fb.asarray([2.0]))
        >>> metric.compute()
        1.0
    """

    def __init__(self) -> None:
        self._held: list[tuple[tuple[Tensor, ...], int]] = []
        self._pending = 0
        self._batches = 0  # that were kept since the last reset
        self._added = False
        self._totals: dict[str, Any] = self.initial()
        totals: Any = self._totals
        if not isinstance(totals, dict) or not all(isinstance(v, (int, float, np.ndarray)) for v in totals.values()):
            raise ConfigError(
                f"{type(self).__name__}.initial returns a dict of whole numbers, floats and NumPy arrays",
                f"{totals!r:.80}",
                'return e.g. {"total": 0.0, "samples": 0}',
            )

    @abstractmethod
    def initial(self) -> dict[str, Any]:
        """The totals before the first batch: whole numbers, floats and NumPy arrays by name, which go into checkpoints."""

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch; a ``Learner`` calls it with the model's output and the target.

        Args:
            *args: As the subclass has them: tensors of a batch.
            **kwargs: As the subclass has them: tensors of a batch.
        """

    @abstractmethod
    def add(self, values: Sequence[Array], samples: int) -> None:
        """Add one batch to ``totals``.

        Args:
            values: The tensors that ``update`` passed to ``keep``, as NumPy arrays.
            samples: The number that it passed to ``keep``.
        """

    @abstractmethod
    def compute(self) -> Any:
        """The metric over all batches so far."""

    @property
    def totals(self) -> dict[str, Any]:
        """The totals of all batches so far; reading them waits for the engine."""
        settle(self)
        return self._totals

    def keep(self, samples: int, *tensors: Tensor) -> None:
        """Keep tensors of a batch until they are read and given to ``add``; for ``update``.

        Args:
            samples: A number that is passed to ``add``, such as the number of samples.
            *tensors: Tensors of any shapes, on one device. They are detached.

        Raises:
            OperandError: One is not a tensor.
        """
        check_tensors(f"{type(self).__name__}.keep", **{f"tensor {i}": t for i, t in enumerate(tensors)})
        kept = tuple(t.detach() for t in tensors), samples
        self._held.append(kept)
        self._batches += 1
        self._pending += len(tensors)
        if self._pending > _MOST_PENDING:
            settle(self)

    def __repr__(self) -> str:
        """Its settings and its totals, without waiting for the engine."""
        kept = {**{k: v for k, v in vars(self).items() if not k.startswith("_")}, **self._totals}
        parts = [f"{k}={_shown(v)}" for k, v in kept.items()]
        if self._held:
            parts.append(f"{len(self._held)} {'batch' if len(self._held) == 1 else 'batches'} not read yet")
        return f"{type(self).__name__}({', '.join(parts)})"

    @property
    def used(self) -> bool:
        """Whether any batch was added."""
        totals, fresh = self.totals, self.initial()
        return self._added or any(not np.array_equal(v, fresh[k]) for k, v in totals.items())

    def held(self) -> list[tuple[tuple[Tensor, ...], int]]:
        """The tensors of each batch that are not read yet, with its number of samples."""
        return list(self._held)

    @property
    def batches(self) -> int:
        """The number of batches that were kept since the last ``reset`` or ``load_state``."""
        return self._batches

    def take(self, held: Sequence[tuple[tuple[Tensor, ...], int]]) -> None:
        """Add batches that another metric of the same kind ``held``.

        Args:
            held: Tensors and numbers of samples, one pair for each batch.
        """
        for tensors, samples in held:
            self.keep(samples, *tensors)

    def pending(self) -> list[Tensor]:
        """Tensors not yet read."""
        return [t for tensors, _ in self._held for t in tensors]

    def absorb(self, values: Sequence[Array]) -> None:
        """Add the values of ``pending()``, all of them or, where ``add`` raises, none: a further reading raises again.

        Args:
            values: Those of ``pending()``, as NumPy arrays.
        """
        before = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self._totals.items()}
        held, self._held = self._held, []  # ``add`` reads ``totals``, which has nothing to settle
        try:
            at = 0
            for tensors, samples in held:
                self.add(values[at : at + len(tensors)], samples)
                at += len(tensors)
        except BaseException:
            self._held, self._totals = held, before
            raise
        self._pending, self._added = 0, self._added or bool(held)

    def reset(self) -> None:
        """Set the totals to those before the first batch."""
        self._held, self._pending, self._batches, self._added = [], 0, 0, False
        self._totals = self.initial()

    def state(self) -> dict[str, Any]:
        """The state for ``load_state``: plain numbers."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in self.totals.items()}

    def load_state(self, state: Any) -> Self:
        """Continue from ``state()``; returns the metric.

        Args:
            state: What ``state()`` returned.

        Raises:
            ConfigError: It is the state of another metric, or of one with other settings.
        """
        totals: dict[str, Any] = {}
        for name, fresh in self.initial().items():
            try:
                value = state[name]
                if isinstance(fresh, np.ndarray):  # an axis of length 0 grows with the samples
                    value = np.asarray(value, fresh.dtype).reshape(
                        [n or -1 for n in fresh.shape] if len(value) else fresh.shape
                    )
                    fits = len(value) == len(fresh) or not len(fresh)
                else:
                    fits = isinstance(value, int | float if isinstance(fresh, float) else int) and not isinstance(value, bool)
                    value = type(fresh)(value) if fits else None
            except (LookupError, OverflowError, TypeError, ValueError):
                fits = False
            if not fits:
                raise ConfigError(
                    f"{type(self).__name__}: a state comes from a metric with the same settings",
                    f"{name} = {state.get(name)!r:.60}" if isinstance(state, Mapping) else f"{state!r:.60}",
                    "make the metric as the one it was taken from",
                )
            totals[name] = value
        self.reset()
        self._totals = totals
        return self


def settle(*metrics: Metric) -> None:
    """Read the tensors that metrics still keep on the device, all with one wait for it.

    Args:
        metrics: Metrics.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Accuracy, settle
        >>> accuracy = Accuracy()
        >>> accuracy.update(fb.asarray([[0.9, 0.1], [0.2, 0.8]]), fb.asarray([0, 0]))
        >>> settle(accuracy)
        >>> accuracy.compute()
        0.5
    """
    held = [m.pending() for m in metrics]
    if not any(held):
        return
    values = read([t for tensors in held for t in tensors])
    at = 0
    for metric, tensors in zip(metrics, held, strict=True):
        metric.absorb(values[at : at + len(tensors)])
        at += len(tensors)


def check_tensors(where: str, **given: Any) -> None:
    """Check that all arguments of an ``update`` are tensors of one device.

    Raises:
        OperandError: One is not a tensor.
        DeviceMismatchError: They are on different devices.
    """
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise not_a_tensor(where, name, value, None)
    check_devices(where, **given)


def classes_of(where: str, predicted: Tensor, labels: Tensor) -> Tensor:
    """Class numbers [batch] of scores [batch, classes] or of class numbers; checked against the labels' shape.

    A sample with a score that is NaN has no class of largest score: it gets -1, which is not a label.

    Raises:
        ShapeError: The shapes do not fit.
        DTypeError: Labels or class numbers are not integers.
    """
    check_tensors(where, predicted=predicted, labels=labels)
    if labels.ndim != 1 or predicted.ndim not in (1, 2) or predicted.shape[0] != labels.shape[0]:
        raise ShapeError(
            f"{where} takes scores [batch, classes] or class numbers [batch], and labels [batch]",
            f"{describe('predicted', predicted)} and {describe('labels', labels)}",
            "reshape them",
        )
    for name, numbers in (("labels", labels), ("predicted", predicted)):
        if numbers.ndim == 1 and numbers.dtype.kind not in ("int", "uint", "bool"):
            raise DTypeError(
                f"{where}: {name} are class numbers",
                describe(name, numbers),
                "pass whole numbers; probabilities of two classes p as fb.astype(p > 0.5, fb.int64)",
            )
    if predicted.ndim == 1:
        return in_default_int(predicted)
    found = argmax(predicted, axis=1)
    return where_(unranked(predicted), -1, found) if predicted.dtype.kind == "float" else found


def unranked(scores: Tensor) -> Tensor:
    """bool [batch]: which rows of floating scores [batch, classes] hold a NaN."""
    return any_(isnan(scores), axis=1)


def outside(labels: Tensor, classes: int | None) -> Tensor:
    """The number of labels outside [0, classes), for ``check_outside`` once it is read.

    Args:
        labels: Integer or bool tensor [batch].
        classes: Number of classes; None if it is not known.
    """
    numbers = in_default_int(labels)
    wrong = less(numbers, 0)  # so are numbers that are too large for the dtype, which wrap
    return sum_(wrong if classes is None else logical_or(wrong, greater_equal(numbers, classes)))


def check_outside(where: str, count: Any) -> None:
    """Raise OutOfRangeError if some labels were outside [0, classes)."""
    if count:
        raise OutOfRangeError(
            f"{where}: labels are class numbers, from 0 to below the number of classes",
            f"{int(count)} that are not",
            "check the number of classes that the model has; leave samples without a class out: in a Learner, by a loss "
            "such as nn.CrossEntropyLoss(ignore_index=-1)",
        )


def wide(x: Tensor) -> Tensor:
    """``x``, in float32 if it is narrower: sums over many elements need its range and precision."""
    return astype(x, float32) if x.dtype.itemsize < 4 else x
