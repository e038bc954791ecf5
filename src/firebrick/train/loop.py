"""``Loop``: the epochs and steps of one call of ``fit``, and where it is left so that another call goes on.

It draws batches, takes steps, reads their numbers, notifies callbacks, and saves between two steps. Each step is done or not at
all: after an exception the run stands after the last one that was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from firebrick import random
from firebrick.core import timeline
from firebrick.core.constants import constant
from firebrick.core.dtypes import bool_
from firebrick.core.lines import warn
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader, WorkerDiedError
from firebrick.train import history
from firebrick.train.batches import batches_of, grouped
from firebrick.train.callbacks import notify
from firebrick.train.compiled import Compiled, naming
from firebrick.train.errors import ResumeWarning, TrainingError, TrainingInterrupted
from firebrick.train.evaluation import Evaluation
from firebrick.train.frozen import HOST_ENGINES
from firebrick.train.history import Epoch
from firebrick.train.preflight import length_of
from firebrick.train.progress import Progress
from firebrick.train.readings import Readings
from firebrick.train.records import Records
from firebrick.train.run_state import Ending, RunState
from firebrick.train.settings import say_stopped
from firebrick.train.snapshots import Snapshots
from firebrick.train.standing import generators_for
from firebrick.train.steps import Stepped

if TYPE_CHECKING:
    from firebrick.train.learner import Learner

_READ_EVERY = 16  # steps between readings of the loss on engines where reading waits


class Loop:
    """One call of ``fit``.

    Args:
        learner: Whose model is trained.
        state: Where its run stands, which the loop moves on.
        readings: Reads the numbers of steps.
        records: Where numbers of steps go.
        snapshots: The learner's checkpoints.
        progress: Shows a person where training stands.
        epochs: Epochs to train in all.

    Attributes:
        validation: The last one; None before.
    """

    def __init__(
        self, learner: Learner, state: RunState, readings: Readings, records: Records, snapshots: Snapshots,
        progress: Progress, epochs: int,
    ) -> None:  # fmt: skip
        self._learner, self._state = learner, state
        self._readings, self._records, self._snapshots = readings, records, snapshots
        self._progress, self._epochs = progress, epochs
        self._several = learner.optimizers
        self._done = 0, 0  # the epoch that was entered last, and the samples of it that steps were done of
        self._position = 0  # samples of the epoch that were drawn
        self._updates = 0  # of the optimizer before the first step
        self._counters: list[Tensor] = []  # of updates before the running step, of a step of the user's
        self._marks: list[tuple[random.Generator, Any]] = []  # where generators stood before the running step
        self._count: Callable[[], int] = _nothing  # counts the last step, while that is not done
        self.validation: Evaluation | None = None

    def run(self, step: Compiled, train: DataLoader, evaluate: Callable[[], Evaluation] | None) -> None:
        """Train until the epochs are done, a callback stops it, or it is interrupted.

        Args:
            step: A step of training.
            train: The loader, where the run stands.
            evaluate: The validation after each epoch; None for none.
        """
        learner, state = self._learner, self._state
        if learner.out is not None:  # a run that died may have left rows of epochs that are run again
            history.rewrite(learner.out, state.history if state.ending is None else state.history[:-1])
        ended = state.stopping
        state.stop(None)
        notify(learner, "on_fit_begin")
        if state.ending is not None:
            self._end_epoch(state.ending, train)
        if state.stopping is None and state.cursor is None:
            state.stop(ended, lasting=True)
        if state.stopping is not None:
            say_stopped(state.epoch, self._epochs, state.stopping)
        while state.goes_on(self._epochs):
            state.stop(ended, lasting=True)  # the epoch that it was asked in is finished
            ended = None
            try:
                row = self._train_epoch(step, train)
                row = self._finish_epoch(row, train, evaluate)
            except BaseException:
                self._keep_place(train)
                raise
            self._progress.end(row, self._epochs)
            if learner.callbacks:  # which must have asked the same on all ranks
                learner.strategy.compare({"a callback's request to stop": str(state.stopping)})
            if state.goes_on(self._epochs) and learner.strategy.agree(learner.interrupts.due(state.step)):
                self._snapshots.wait()
                raise TrainingInterrupted(self._snapshots.path, state.epoch, state.step)

    def _train_epoch(self, step: Compiled, train: DataLoader) -> Epoch:
        learner, state, progress = self._learner, self._state, self._progress
        model, optimizer, strategy = learner.model, learner.optimizer, learner.strategy
        measures, watch = self._readings.measures, self._readings.watch
        self._readings.begin()
        watching = [constant(w, bool_, strategy.devices[0]) for w in (False, True)]
        done = self._enter(train)
        batches = length_of(train)
        progress.begin(state.epoch + 1, self._epochs, batches, done)
        parameters = model.trainable_parameters()
        read_every = 1 if all(d.engine in HOST_ENGINES for d in strategy.devices) else _READ_EVERY
        samples = 0
        notify(learner, "on_epoch_begin")
        model.train()
        started = perf_counter()
        self._snapshots.restart()
        self._position = train.position
        self._done = state.epoch, self._position
        self._updates = optimizer.step - state.step
        drawing = generators_for(model, learner.loss, strategy.devices)
        for step_in_epoch, batch in enumerate(grouped(self._batches(train), learner.batches_per_step), 1):
            watched = step_in_epoch <= watch.patience
            watch.parameters(parameters)
            self._marks = [(g, g.mark()) for g in drawing]
            self._counters = [] if self._several is None else self._several.counters()
            before = measures.batches()
            with naming(batch), timeline.span(f"step {state.step + 1}", "train"):
                found: Stepped = step(watching[watched], batch)
            self._count = partial(self._readings.count, found, state.step + 1, batch, watched, before)
            state.step += 1
            self._done, self._marks = (state.epoch, self._position), []
            done += len(batches_of(batch))
            samples += self._count()
            self._count = _nothing
            self._snapshots.check()
            if step_in_epoch % read_every == 0:
                self._read()
            if progress.due():
                self._read()
                speed = samples / (perf_counter() - started)
                progress.step(done, measures.values(), speed)
            self._save_or_stop(train, more=batches is None or done < batches)
        self._read()
        seconds = perf_counter() - started
        values = measures.values("train_")
        return Epoch(
            epoch=state.epoch + 1,
            step=state.step,
            train_loss=measures.loss.compute(),
            train_accuracy=values["train_accuracy"],
            valid_loss=None,
            valid_accuracy=None,
            learning_rate=float(optimizer.learning_rate),
            samples_per_second=samples / seconds if seconds else 0.0,
            seconds=seconds,
            train_mse=values["train_mse"],
            train_mae=values["train_mae"],
            metrics=_numbers(measures.further_values(), "train_"),
        )

    def _save_or_stop(self, train: DataLoader, *, more: bool) -> None:
        """After a step: save where a checkpoint is due or asked for, and stop where that is asked for.

        Args:
            train: The loader.
            more: Whether the epoch has more batches.
        """
        learner, state, interrupts = self._learner, self._state, self._learner.interrupts
        stop = learner.strategy.agree(interrupts.due(state.step))
        save = learner.strategy.agree_to_save(more and (interrupts.take_save() or self._snapshots.due()))
        if more and (stop or save):
            self._read()
            learner.strategy.check(learner.model, learner.optimizer, learner.ema)
            state.loader = cursor = {**train.cursor(), "epoch": state.epoch, "position": self._position}
            self._snapshots.save(cursor, self._readings.measures.state())
            if stop:
                self._snapshots.wait()
                raise TrainingInterrupted(self._snapshots.path, state.epoch + 1, state.step)

    def _batches(self, loader: DataLoader) -> Iterator[Any]:
        """A loader's batches, and the position after each: the loader may be asked for one more before a step is taken."""
        for batch in batches_until_stopped(loader, self._learner):
            self._position = loader.position
            yield batch

    def _finish_epoch(self, row: Epoch, train: DataLoader, evaluate: Callable[[], Evaluation] | None) -> Epoch:
        learner, state = self._learner, self._state
        learner.strategy.check(learner.model, learner.optimizer, learner.ema)
        if evaluate is not None:
            with timeline.span("validation", "train"):
                self.validation = found = evaluate()
            values = {f"valid_{n}": getattr(found, n) for n in ("loss", "accuracy", "mse", "mae")}
            row = replace(row, **values, metrics={**row.metrics, **_numbers(found.metrics, "valid_")})
            notify(learner, "on_validation_end", found)
        row.show_to(learner.optimizer)
        state.epoch += 1
        state.history.append(row)
        best = row.better_than(state.best)
        if best:
            state.best = row
        state.ending = Ending(row, best)
        self._end_epoch(state.ending, train)
        return row

    def _end_epoch(self, ending: Ending, train: DataLoader) -> None:
        """Callbacks that were not called yet, the checkpoint and the files of an epoch that counts as finished."""
        learner, state = self._learner, self._state
        for callback in learner.callbacks:
            if not any(callback is c for c in ending.notified):
                try:
                    callback.on_epoch_end(learner, ending.row)
                except Exception:  # one that Ctrl-C interrupted is called again
                    ending.notified.append(callback)
                    raise
                ending.notified.append(callback)
        if learner.out is not None:
            train.set_epoch(state.epoch)
            state.loader = train.cursor()
            self._snapshots.save(None, {}, best=ending.best)
            history.append(learner.out, state.history)
        self._records.epoch(ending.row)
        state.ending = None

    def _read(self) -> None:
        """Read the numbers of the last steps, and notify of them; stop if a loss is NaN or infinite."""
        learner, state = self._learner, self._state
        kept = f"; the last good epoch is in {self._snapshots.path}" if learner.out and state.history else ""
        for step, values in self._readings.read(state.epoch + 1, learner.optimizer.learning_rate, kept):
            self._records.step(step, state.epoch + 1, values)
            notify(learner, "on_step_end", step, values)

    # where it is entered and left

    def _enter(self, train: DataLoader) -> int:
        """Bring the loader to where this epoch starts; returns the batches that are done already."""
        state = self._state
        cursor, measures, state.cursor, state.measures = state.cursor, state.measures, None, None
        if cursor is None:
            train.set_epoch(state.epoch)
        elif measures is not None:
            self._readings.measures.load_state(measures)
        else:
            warn(
                f"the loss and the metrics of epoch {state.epoch + 1} are those of its batches from here on: the ones before "
                "could not be counted",
                ResumeWarning,
            )
        return train.position // train.batch_size

    def _keep_place(self, train: DataLoader) -> None:
        """After an exception within an epoch: another ``fit`` goes on after the last step that was done.

        A step that failed has changed nothing but where generators stand. One that Ctrl-C interrupted may be done: then the
        optimizer has counted it. With a loss scale, which leaves out updates, that does not show, and the batch is repeated.
        """
        state = self._state
        epoch, position = self._done
        if epoch != state.epoch:
            return
        if self._marks and self._updated():
            state.step, position = state.step + 1, self._position
        elif self._marks:
            for generator, mark in self._marks:
                generator.return_to(mark)
            self._count = _nothing
        self._marks = []
        if position:
            train.set_epoch(epoch)
            state.cursor = {**train.cursor(), "position": position}
            self._count()  # what is missing of a step that is done
            state.measures = self._readings.measures.state()

    def _updated(self) -> bool:
        """Whether the running step has updated parameters."""
        learner = self._learner
        if self._several is not None:
            return [int(t) for t in self._counters] != [int(t) for t in self._several.counters()]
        counts = learner.precision is None or learner.precision.scaler is None
        return counts and bool(learner.optimizer.step - self._updates == self._state.step + 1)


def _nothing() -> int:
    return 0


def batches_until_stopped(loader: DataLoader, learner: Learner) -> Iterator[Any]:
    """A loader's batches; where a signal to all processes of a run ended its workers too, the last are made here."""
    try:
        yield from loader
    except WorkerDiedError:
        if not learner.interrupts.pending:
            raise
        loader.again()
        loader.num_workers = 0
        yield from loader


def _numbers(metrics: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The metrics that are one number, for the row of an epoch."""
    for name, value in metrics.items():
        if value is None or isinstance(value, str):
            raise TrainingError(f"compute of the metric {name} returns a number or an array", f"{value!r:.60}", "correct it")
    return {f"{prefix}{n}": float(v) for n, v in metrics.items() if np.ndim(v) == 0}
