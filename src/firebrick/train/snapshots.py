"""``Snapshots``: what a checkpoint of a learner holds, when it is written, and how a learner takes one over."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from firebrick.compiler.tune import choice
from firebrick.train import description, settings
from firebrick.train.callbacks import callback_states, notify, other_callbacks, states_of
from firebrick.train.checkpoint import Checkpoint, Snapshot, load_checkpoint, take_snapshot
from firebrick.train.errors import TrainingError
from firebrick.train.history import History
from firebrick.train.loss_state import LossState
from firebrick.train.run_state import RunState
from firebrick.train.rundir import RunDirectory
from firebrick.train.standing import check_kept, generators_of, give_back, resumed

if TYPE_CHECKING:
    from firebrick.train.learner import Learner


class Snapshots:
    """The checkpoints of a learner.

    Args:
        learner: The learner.
        state: Where its run stands.
        run: Where checkpoints are written; None writes none.
        loss_state: What its loss keeps.
        seconds: Most seconds between two checkpoints within an epoch.
        steps: Most steps between them; None counts seconds alone.

    Attributes:
        learner: The learner.
        run: Its run directory.
    """

    def __init__(
        self, learner: Learner, state: RunState, run: RunDirectory | None, loss_state: LossState, seconds: float,
        steps: int | None,
    ) -> None:  # fmt: skip
        self.learner, self._state, self.run = learner, state, run
        self._loss_state = loss_state
        self._seconds, self._steps = seconds, steps
        self._saved = 0.0, 0  # when and after which step the last checkpoint was taken, or the epoch entered

    @property
    def path(self) -> Path | None:
        """Where the newest checkpoint is."""
        return None if self.run is None else self.run.latest

    # what it holds

    def settings(self) -> dict[str, Any]:
        """The settings of the learner, as plain values."""
        own = self.learner
        return settings.learners(
            own.clip_norm, own.precision, own.accumulate, own.loss, own.own_step, own.batches_per_step, own.target
        )

    def loss_described(self) -> description.Description:
        """Class and plain settings of the loss."""
        loss = self.learner.loss
        return {**description.of_loss(loss), **self._loss_state.settings(loss)}

    def _parts(self) -> dict[str, description.Description]:
        return {"model": description.of_model(self.learner.model), "loss": self.loss_described()}

    def take(self, cursor: dict[str, Any] | None, measures: dict[str, Any]) -> Snapshot:
        """All that a checkpoint of where training stands holds.

        Args:
            cursor: Of the training loader; None at the beginning of an epoch.
            measures: What was counted of the epoch so far.
        """
        own, state = self.learner, self._state
        found = {
            "epoch": state.epoch,
            "step": state.step,
            "learning_rate": own.optimizer.learning_rate,
            **generators_of(own.model),
            "strategy": own.strategy.state(),
            "settings": self.settings(),
            "parts": self._parts(),
            "loader": state.loader,
            "cursor": cursor,
            "metrics": measures if cursor else None,
            "stopping": state.stopping if state.lasting else None,
            "history": [asdict(row) for row in state.history],
            "best": None if state.best is None else asdict(state.best),
            "kernels": choice.used(),
        }
        optimizer = own.optimizer.state_dict()
        if own.ema is not None:
            optimizer["ema"] = own.ema.state_dict()
        if own.precision is not None:
            optimizer["precision"] = own.precision.state_dict()
        optimizer["loss"] = self._loss_state.state(own.loss)
        if states := states_of(own.callbacks):
            optimizer["callbacks"] = states
        config = {"model_class": type(own.model).__name__, **own.config}
        return take_snapshot(model=own.model.state_dict(), optimizer=optimizer, state=found, config=config)

    # when it is written

    def restart(self) -> None:
        """An epoch is entered: the time until the next checkpoint counts from now."""
        self._saved = perf_counter(), self._state.step

    def due(self) -> bool:
        """Whether the last checkpoint within the epoch was long enough ago."""
        when, step = self._saved
        if self.run is None:
            return False
        return perf_counter() - when > self._seconds or (self._steps is not None and self._state.step - step >= self._steps)

    def save(self, cursor: dict[str, Any] | None, measures: dict[str, Any], *, best: bool = False) -> None:
        """Begin to write the newest checkpoint of the run directory; arguments as of ``take``."""
        if self.run is not None:
            self.run.save(self.take(cursor, measures), best=best)
            self.restart()
            notify(self.learner, "on_checkpoint", self.run.latest)

    def check(self) -> None:
        """Raise what went wrong with the checkpoint that is being written, without waiting."""
        if self.run is not None:
            self.run.check()

    def wait(self) -> None:
        """Wait for the checkpoint that is being written."""
        if self.run is not None:
            self.run.wait()

    # how it is taken over

    def load_best(self) -> Checkpoint:
        """``Learner.load_best``."""
        own = self.learner
        if self.run is None:
            raise TrainingError(
                "the best epoch is kept in the run directory",
                "a learner without one" if own.strategy.main else "a rank that writes none",
                "pass out= to Learner, or callbacks=[EarlyStopping(…)], which keeps the values in memory",
            )
        self.wait()
        found = load_checkpoint(self.run.best)
        check_kept(found, own.ema)
        before = own.model.state_dict()
        found.load_into(own.model)
        try:
            if own.ema is not None:
                own.ema.load_state_dict(found.optimizer["ema"]) if "ema" in found.optimizer else own.ema.reset()
        except BaseException:
            own.model.load_state_dict(before)
            raise
        return found

    def resume(self, path: Path) -> Checkpoint:
        """``Learner.resume``."""
        own, state = self.learner, self._state
        found = load_checkpoint(path)
        theirs = resumed(found, own.metrics, own.own_step is not None)
        before = settings.optimizers(own.optimizer.state_dict(), own.ema)
        same_loss = (found.state.get("settings") or {}).get("loss") == self.settings()["loss"]
        loss = self._loss_state
        kept = same_loss and "loss" in found.optimizer
        of_loss = [(partial(loss.load, own.loss), found.optimizer["loss"], loss.state(own.loss))] if kept else []
        give_back(found, own.model, own.optimizer, own.ema, chain(of_loss, callback_states(own.callbacks, found)))
        if own.precision is not None:
            own.precision.load_state_dict(theirs.precision)
        own.strategy.load_state(theirs.strategy)
        state.epoch, state.step, state.history, state.best = theirs.epoch, theirs.step, History(theirs.history), theirs.best
        state.cursor, state.loader, state.measures, state.resumed = theirs.cursor, theirs.loader, theirs.metrics, True
        if theirs.kernels is not None:
            choice.pin(theirs.kernels)
        state.stopping, state.ending = theirs.stopping, None
        if self.run is not None:
            self.run.adopt(found)
        notes = other_callbacks(own.callbacks, found)
        settings.say_changes(found, self.settings(), self._parts(), before, self._loss_state.names(own.loss), notes)
        return found
