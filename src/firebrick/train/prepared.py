"""What ``fit`` does before anything is trained: everything is checked, placed on its devices, and tried with a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firebrick.data import DataLoader
from firebrick.train import description, settings
from firebrick.train.batches import check_loader
from firebrick.train.loss_state import check_parameters
from firebrick.train.preflight import check_alone, check_pieces, check_places, try_batch, try_validation
from firebrick.train.run_state import RunState
from firebrick.train.snapshots import Snapshots
from firebrick.train.standing import check_averages
from firebrick.train.steps import Forward
from firebrick.train.strategy import bring
from firebrick.train.trial import on_trial

if TYPE_CHECKING:
    from firebrick.train.learner import Learner


def prepared(
    learner: Learner, state: RunState, snapshots: Snapshots, train: DataLoader, valid: DataLoader | None, epochs: int
) -> tuple[DataLoader, DataLoader | None, str]:
    """The loaders to train from and to evaluate, and a line about what the strategy found.

    Args:
        learner: Whose ``fit`` is called.
        state: Where its run stands.
        snapshots: Its checkpoints.
        train: The loader that was given.
        valid: Likewise.
        epochs: Epochs to train in all.

    Raises:
        TrainingError: Something does not fit together.
    """
    if not learner.moves:
        check_alone()
    validation = "none" if valid is None else "a loader"
    asked = {"epochs": epochs, "validation": validation, "jit": learner.jit, **snapshots.settings()}
    learner.strategy.compare(
        {f"learner's {k}": v for k, v in description.of_settings(asked).items()}
        | {f"loss's {k}": v for k, v in snapshots.loss_described().items()}
    )
    train = _placed(learner, train)
    _go_on(train, state)
    valid = None if valid is None else to_evaluate(learner, valid)
    if valid is not None and valid.name == train.name:  # two names show in messages which of both is meant
        valid.name = "validation"
    check_places(learner.model, learner.optimizer, [x for x in (train, valid) if x is not None], learner.strategy)
    check_averages(learner.ema, learner.model)
    check_parameters(learner.loss, learner.model)
    if state.epoch >= epochs:
        settings.say_done(state.epoch, epochs)
    for holder in (learner.optimizer, learner.ema):
        bring(holder, learner.strategy.devices[0])
    return train, valid, _tried(learner, train, valid) if state.epoch < epochs else ""


def _tried(learner: Learner, train: DataLoader, valid: DataLoader | None) -> str:
    """Try a batch of each loader; returns what the strategy found."""
    model, loss, metrics, target = learner.model, learner.loss, learner.metrics, learner.target
    with on_trial(model, loss):
        if learner.own_step is not None:
            check_pieces(train, learner.strategy)
        else:
            batches = learner.batches_per_step
            try_batch(model, loss, train, learner.strategy, learner.accumulate, metrics, target, batches)
        if valid is not None:
            try_validation(model, loss, valid, metrics, target)
        return learner.strategy.begin(Forward(loss, target=target), model, train)


def _placed(learner: Learner, loader: DataLoader) -> DataLoader:
    """The loader to train from: moved by a named strategy, else a copy, so that the caller's cursor stays."""
    loader = check_loader(loader)
    if not learner.moves:
        return loader.to(loader.device)
    return learner.strategy.place(learner.model, learner.optimizer, loader, learner.ema)


def to_evaluate(learner: Learner, loader: DataLoader) -> DataLoader:
    """A loader to evaluate: on the first device of a named strategy, else a copy."""
    loader = check_loader(loader)
    return loader.to(learner.strategy.devices[0] if learner.moves else loader.device)


def _go_on(train: DataLoader, state: RunState) -> None:
    """Bring a loader to where a run stands; an epoch that was begun is refused another one's samples or order, and of other
    changes since a checkpoint is warned."""
    train.set_epoch(state.epoch)
    if state.cursor is not None:
        settings.enter(train, state.cursor)
    if state.resumed and state.loader is not None:
        settings.say_loader(state.loader, train)
    state.resumed = False
