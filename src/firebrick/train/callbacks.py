"""``Callback``: what is done beside training, at its beginning, after steps, epochs, validations and checkpoints.

The learner calls the methods of its callbacks in their order. What a callback keeps is in each checkpoint, so that a resumed
run has the bits of one that was never stopped.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from firebrick.backends.registry import find_device
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.lines import warn
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, whole
from firebrick.core.tensor import Tensor
from firebrick.core.untrusted import shown
from firebrick.train.checkpoint import Checkpoint
from firebrick.train.errors import CheckpointError, ResumeWarning, TrainingError
from firebrick.train.history import Epoch
from firebrick.train.packing import MALFORMED

if TYPE_CHECKING:
    from firebrick.train.evaluation import Evaluation
    from firebrick.train.learner import Learner


class Callback:
    """Base of callbacks. A subclass writes the methods that it needs; the others do nothing.

    In ``fit``, the methods are called in this order: ``on_fit_begin``; for each epoch ``on_epoch_begin``, ``on_step_end`` for
    each of its steps, ``on_validation_end`` if there are validation data, ``on_epoch_end``, and ``on_checkpoint`` when the
    learner has begun to write a checkpoint, after an epoch or within one; at the end ``on_fit_end``, or ``on_exception``.

    All of them may read the learner, and call ``learner.stop()``, which ends ``fit`` after the running epoch (in
    ``on_fit_begin``, before the first), after ``resume`` too, or ``learner.interrupts.stop()``, which ends it after the
    running step as Ctrl-C does. ``on_fit_begin``, ``on_epoch_begin`` and ``on_epoch_end`` may change the model's values,
    frozen parameters, and the optimizer's learning rate and settings; the others may not, since a step may be running on
    another thread's device or a checkpoint may be being written. What else is assigned to a learner (``learner.loss = …``) is
    refused while ``fit`` runs, and is what the next one goes on with.

    What a callback raises ends ``fit``, which leaves the checkpoints and the learner as any other exception does: the run can
    be resumed, and ``fit`` can be called again. If ``on_epoch_end`` raises, the next ``fit`` first calls those of the callbacks
    after it.

    With ``Distributed``, every rank has callbacks of its own and calls them with the same numbers; one that writes files does
    so where ``learner.strategy.main`` is true.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import Callback, Learner
        >>> class Halve(Callback):
        ...     def on_epoch_end(self, learner, row):
        ...         learner.optimizer.learning_rate = row.learning_rate / 2
        >>> model = fb.nn.Linear(2, 2)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.ones((4, 2)), np.array([0, 1, 0, 1])), 2)
        >>> learner = Learner(model, fb.optim.SGD(model, lr=0.1), callbacks=[Halve()], log=None)
        >>> rows = learner.fit(loader, epochs=3)
        >>> round(learner.optimizer.learning_rate, 4)
        0.0125
    """

    def on_fit_begin(self, learner: Learner) -> None:
        """Training begins or goes on; everything was checked and placed on its devices.

        Args:
            learner: The learner.
        """

    def on_epoch_begin(self, learner: Learner) -> None:
        """Epoch ``learner.epoch + 1`` begins, or goes on where a run was stopped.

        Args:
            learner: The learner.
        """

    def on_step_end(self, learner: Learner, step: int, values: Mapping[str, float]) -> None:
        """A step is done and its numbers are read.

        On engines that compute in the background they are read for several steps at once, so ``learner.step`` may be ahead.

        Args:
            learner: The learner.
            step: Number of the step, from 1, over all epochs.
            values: "loss", the mean over the batch, and "gradient_norm" if gradients are clipped.
        """

    def on_validation_end(self, learner: Learner, evaluation: Evaluation) -> None:
        """The validation after an epoch is done.

        Args:
            learner: The learner.
            evaluation: Loss and metrics on the validation data.
        """

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """An epoch is done; ``row`` is the last of ``learner.history``. Its checkpoint is written after this.

        Args:
            learner: The learner.
            row: Numbers of the epoch.
        """

    def on_checkpoint(self, learner: Learner, path: Path) -> None:
        """A checkpoint is being written into ``path``; ``learner.wait()`` waits until it is there.

        Args:
            learner: The learner.
            path: Directory of the checkpoint.
        """

    def on_fit_end(self, learner: Learner) -> None:
        """``fit`` ends because its epochs are done or a callback asked to stop; not after an exception.

        Args:
            learner: The learner.
        """

    def on_exception(self, learner: Learner, error: BaseException) -> None:
        """``fit`` ends by an exception, Ctrl-C and ``TrainingInterrupted`` among them: for what must be closed. What is raised
        here is added to the error as a note.

        Args:
            learner: The learner.
            error: The exception, which ``fit`` raises.
        """

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: numbers, text, bools, None and tensors, in dicts and lists."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state()``.

        Args:
            state: What ``state()`` returned when the checkpoint was written.
        """


class EarlyStopping(Callback):
    """Ends ``fit`` when a number has not improved for some epochs, and gives the model its best values back.

    Args:
        monitor: The number, as it is called in the rows of ``learner.history``: "valid_loss", "valid_accuracy", or "valid_" or
            "train_" with the name of a metric.
        mode: "min" if smaller is better, "max" if larger is; None takes "min" for losses and errors and "max" for accuracy, and
            is refused for other metrics.
        patience: Epochs without improvement after which training ends, at least 1.
        min_delta: How much better counts as an improvement, at least 0.
        restore_best: Whether the model has the values of its best epoch after ``fit``; they are kept in memory and in
            checkpoints.

    Attributes:
        best: The best number; None before the first epoch.
        best_epoch: The epoch that it is of, from 1.
        waited: Epochs since then. While they are ``patience`` or more, ``fit`` trains nothing, after ``learner.resume()`` too;
            a larger ``patience`` goes on.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import EarlyStopping, Learner
        >>> fb.random.seed(0)
        >>> model = fb.nn.Linear(2, 2)
        >>> data = fb.data.ArrayDataset(np.ones((4, 2)), np.array([0, 1, 0, 1]))
        >>> train, valid = fb.data.DataLoader(data, 2), fb.data.DataLoader(data, 4)
        >>> stopping = EarlyStopping(patience=2, min_delta=0.01)
        >>> learner = Learner(model, fb.optim.SGD(model, lr=0.1), callbacks=[stopping], log=None)
        >>> len(learner.fit(train, valid, epochs=50)) < 50
        True
    """

    @answers_arguments
    def __init__(
        self,
        monitor: str = "valid_loss",
        *,
        mode: str | None = None,
        patience: int = 5,
        min_delta: float = 0.0,
        restore_best: bool = True,
    ) -> None:
        self.monitor, self.mode = monitor, mode or _MODES.get(str(monitor).partition("_")[2], "")
        if self.mode not in ("min", "max"):
            raise ConfigError(
                'EarlyStopping: mode is "min" or "max"',
                f"mode={mode!r} for monitor={monitor!r}",
                'pass mode="max" if a larger number is better, else mode="min"',
            )
        self.patience = whole("EarlyStopping", "patience", patience, 1)
        self.min_delta = number("EarlyStopping", "min_delta", min_delta)
        if not 0.0 <= self.min_delta < math.inf:
            raise ConfigError("EarlyStopping: min_delta is a finite number ≥ 0", repr(min_delta), "pass e.g. 0.001")
        if not isinstance(restore_best, bool):
            raise ConfigError("EarlyStopping: restore_best is True or False", repr(restore_best), "pass one of the two")
        self.restore_best = restore_best
        self.best: float | None = None
        self.best_epoch = self.waited = 0
        self._seen: Epoch | None = None
        self._values: dict[str, Tensor] = {}
        self._averages: dict[str, Any] = {}  # a state of ``EMA``

    def on_fit_begin(self, learner: Learner) -> None:
        """Keep a run ended that was stopped before it was resumed."""
        self._stop(learner)

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """Compare the epoch with the best one."""
        value = row.value(self.monitor)
        if value is None:
            raise TrainingError(
                f"EarlyStopping follows {self.monitor}, a number of each epoch",
                f"an epoch with {', '.join(n for n, v in row.values().items() if v is not None)}",
                "pass a validation loader to fit" if self.monitor.startswith("valid_") else "pass monitor= one of these",
            )
        if row is self._seen:  # Ctrl-C interrupted what follows
            pass
        elif self._improved(value):
            if self.restore_best:
                values = {n: t.detach() for n, t in learner.model.state_dict().items()}
                averages = {} if learner.ema is None else learner.ema.state_dict()
                if averages:
                    averages = {**averages, "averages": {n: t.detach() for n, t in averages["averages"].items()}}
                self._values, self._averages = values, averages
            self.best, self.best_epoch, self.waited, self._seen = float(value), row.epoch, 0, row
        else:
            self.waited, self._seen = self.waited + 1, row
        self._stop(learner)

    def _stop(self, learner: Learner) -> None:
        if self.waited >= self.patience:
            learner.stop(f"{self.monitor} has not improved for {self.waited} epochs", lasting=False)

    def _improved(self, value: float) -> bool:
        if self.best is None or math.isnan(self.best):
            return self.best is None or not math.isnan(value)
        return (self.best - value if self.mode == "min" else value - self.best) > self.min_delta

    def on_fit_end(self, learner: Learner) -> None:
        """Give the model, and averages of its parameters, the values of its best epoch."""
        if self._values and self.best_epoch != learner.epoch:
            learner.model.load_state_dict(self._values)
            if learner.ema is not None and self._averages:
                learner.ema.load_state_dict(self._averages)

    def state(self) -> dict[str, Any]:
        """The best number, its epoch, the epochs since then, and the values of the model and of averages."""
        return {
            "best": self.best, "best_epoch": self.best_epoch, "waited": self.waited, "values": dict(self._values),
            "averages": dict(self._averages), "monitor": self.monitor, "mode": self.mode,
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state()``; that of another number, or of the other mode, says nothing here: it begins anew."""
        before = (state.get("monitor", self.monitor), state.get("mode", self.mode))
        if before != (self.monitor, self.mode):
            warn(
                f'EarlyStopping begins anew: it followed monitor="{before[0]}", mode="{before[1]}", and follows '
                f'monitor="{self.monitor}", mode="{self.mode}" from now on',
                ResumeWarning,
            )
            return
        host = find_device("numpy")
        values = {n: v if isinstance(v, Tensor) else hooks.from_host(np.array(v), host) for n, v in state["values"].items()}
        self.best, self.best_epoch, self.waited = state["best"], state["best_epoch"], state["waited"]
        if self.restore_best and not values and self.best is not None:
            warn(
                f"EarlyStopping cannot give back the values of epoch {self.best_epoch}, the best one so far: they were not "
                "kept, as restore_best was False. It gives back those of a later epoch if that is better",
                ResumeWarning,
            )
        self._values = values if self.restore_best else {}
        self._averages = dict(state.get("averages", {})) if self.restore_best else {}


_MODES = {"loss": "min", "mse": "min", "mae": "min", "accuracy": "max"}


def checked(callbacks: Any) -> tuple[Callback, ...]:
    """The callbacks of a learner.

    Raises:
        TrainingError: One is no ``Callback``, has a method that is never called, or stands twice.
    """
    found = tuple(callbacks) if isinstance(callbacks, Sequence) and not isinstance(callbacks, str) else (callbacks,)
    wrong = [c for c in found if not isinstance(c, Callback)]
    if wrong:
        shown = f"the class {wrong[0].__name__}" if isinstance(wrong[0], type) else f"{wrong[0]!r:.80}"
        raise TrainingError("callbacks is a list of train.Callback objects", shown, "derive its class from train.Callback")
    for callback in found:
        _check_names(type(callback))
    if len({id(c) for c in found}) < len(found):
        raise TrainingError("each callback stands once in callbacks", "one that stands twice", "make two objects")
    return found


def notify(learner: Learner, event: str, *given: Any) -> None:
    """Call a method of all callbacks of a learner."""
    for callback in learner.callbacks:
        getattr(callback, event)(learner, *given)


def notify_of(learner: Learner, error: BaseException) -> None:
    """Call ``on_exception`` of all callbacks of a learner."""
    for name, callback in zip(names_of(learner.callbacks), learner.callbacks, strict=True):
        try:
            callback.on_exception(learner, error)
        except Exception as e:  # noqa: BLE001 - the error that ended ``fit`` is the one to raise
            error.add_note(f"besides, the callback {name} raised {type(e).__name__}: {e}")


_ELSEWHERE = {
    "on_train_begin": "on_fit_begin",
    "on_train_start": "on_fit_begin",
    "on_fit_start": "on_fit_begin",
    "on_train_end": "on_fit_end",
    "on_epoch_start": "on_epoch_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_train_epoch_end": "on_epoch_end",
    "on_batch_end": "on_step_end",
    "on_train_batch_end": "on_step_end",
    "on_validation_epoch_end": "on_validation_end",
    "on_save_checkpoint": "state",
    "on_load_checkpoint": "load_state",
}
"""What other libraries call the methods of a callback."""


def _check_names(kind: type[Callback]) -> None:
    """Raise TrainingError if a class has a method that is misspelt, or called as in another library."""
    own = [n for n in dir(Callback) if n.startswith("on_")]
    for name in dir(kind):
        if name.startswith("on_") and name not in own:
            meant = _ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, own, 1, 0.9)), None)
            if meant is not None:
                raise TrainingError(
                    f"the methods of a callback are {', '.join(own)}, state and load_state",
                    f"{kind.__name__}.{name}, which would never be called",
                    f"call it {meant}",
                )


def callback_states(callbacks: Sequence[Callback], found: Checkpoint) -> Iterator[tuple[Callable[[Any], None], Any, Any]]:
    """For each callback that a checkpoint has a state of: what loads a state, that state, and the present one."""
    saved = found.optimizer.get("callbacks", {})
    for name, callback in zip(names_of(callbacks), callbacks, strict=True):
        if saved.get(name):
            yield partial(_load, found, name, callback), saved[name], callback.state()


def _load(found: Checkpoint, name: str, callback: Callback, state: Any) -> None:
    try:
        callback.load_state(state)
    except MALFORMED as e:
        raise CheckpointError(
            f"the checkpoint {found.path} holds a state of the callback {name}",
            f"another one ({type(e).__name__}: {shown(e, 200)})",
            "pass the callback that the run was trained with, or leave it out",
        ) from e


def other_callbacks(callbacks: Sequence[Callback], found: Checkpoint) -> list[str]:
    """Sentences about the callbacks that only a learner or only a checkpoint has."""
    saved = found.optimizer.get("callbacks", {})
    own = dict(zip(names_of(callbacks), callbacks, strict=True))
    notes = [f"it has no state of the callback {n}, which begins anew" for n, c in own.items() if n not in saved and c.state()]
    return notes + [f"its callback {n} is not among those of this learner" for n in saved if n not in own]


def states_of(callbacks: Sequence[Callback]) -> dict[str, dict[str, Any]]:
    """What a checkpoint keeps of callbacks, by name; those that keep nothing are left out."""
    return {n: s for n, c in zip(names_of(callbacks), callbacks, strict=True) if (s := c.state())}


def names_of(callbacks: Sequence[Callback]) -> list[str]:
    """What checkpoints call callbacks: the names of their classes, with a number from the second of a class on."""
    found: list[str] = []
    for c in callbacks:
        name = type(c).__name__
        count = sum(n.partition(" ")[0] == name for n in found)
        found.append(f"{name} {count + 1}" if count else name)
    return found
