"""The best epoch is kept and given back, with averages; what histories show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from after_steps import after_steps

from firebrick.data import DataLoader
from firebrick.train import (
    F1,
    CheckpointError,
    EarlyStopping,
    Learner,
    ResumeWarning,
    TrainingError,
    TrainingInterrupted,
    snapshots,
)
from firebrick.train.rundir import RunDirectory

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]


def values(learner: Learner) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in learner.model.state_dict().items()}


def averages(learner: Learner) -> dict[str, bytes]:
    assert learner.ema is not None
    return {n: t.numpy().tobytes() for n, t in learner.ema.averages.items()}


@pytest.mark.parametrize("ema", [None, 0.8])
def test_the_best_epoch_of_a_run_directory_is_given_back(make: Make, loaders: Loaders, tmp_path: Path, ema: Any) -> None:
    learner = make(out=tmp_path / "run", ema=ema, lr=0.3)
    rows = learner.fit(*loaders, epochs=6, draw=False)
    best = max(rows, key=lambda r: (r.valid_accuracy, -(r.valid_loss or 0.0)))
    last = values(learner)
    found = learner.load_best()
    assert found.state["epoch"] == best.epoch
    assert learner.evaluate(loaders[1]).loss == best.valid_loss
    assert (learner.epoch, len(learner.history)) == (6, 6)
    assert best.epoch == 6 or values(learner) != last


def test_the_best_epoch_and_a_learner_have_averages_or_not(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    rows = make(out=tmp_path / "plain").fit(*loaders, epochs=1, draw=False)
    averaging = make(out=tmp_path / "plain", ema=0.9)
    with pytest.warns(ResumeWarning, match="no averages of the parameters"):
        averaging.resume()
    averaging.optimizer.learning_rate = 100.0
    assert averaging.fit(*loaders, epochs=2, draw=False)[1].valid_loss != rows[0].valid_loss
    assert averaging.load_best().state["epoch"] == 1
    assert averaging.evaluate(loaders[1]).loss == rows[0].valid_loss
    make(out=tmp_path / "averaged", ema=0.9).fit(*loaders, epochs=1, draw=False)
    without = make(out=tmp_path / "averaged")
    before = values(without)
    with pytest.raises(TrainingError, match=r"averages in .*best, and a learner without(?s:.*)ema=0\.9"):
        without.load_best()
    assert values(without) == before


def test_without_a_run_directory_or_an_epoch_there_is_no_best(make: Make, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"a learner without one(?s:.*)EarlyStopping"):
        make().load_best()
    learner = make(out=tmp_path / "run")
    before = values(learner)
    with pytest.raises(CheckpointError):
        learner.load_best()
    assert values(learner) == before


def test_early_stopping_gives_averages_back_too(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    def fresh(**options: Any) -> Learner:
        return make(ema=0.5, lr=0.5, callbacks=[EarlyStopping(patience=3, min_delta=0.02)], **options)

    whole = fresh()
    rows = whole.fit(*loaders, epochs=30)
    best = whole.callbacks[0].best_epoch  # type: ignore[attr-defined]
    assert best == len(rows) - 3
    assert whole.evaluate(loaders[1]).loss == rows[best - 1].valid_loss
    stopped = fresh(out=tmp_path / "run")
    after_steps(stopped, lambda: stopped.interrupts.stop() if stopped.step == 7 * best + 3 else None)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(*loaders, epochs=30, draw=False)
    resumed = fresh(out=tmp_path / "run")
    resumed.resume()
    resumed.fit(*loaders, epochs=30, draw=False)
    assert (values(resumed), averages(resumed)) == (values(whole), averages(whole))


def test_a_history_is_a_table(make: Make, loaders: Loaders) -> None:
    learner = make(metrics={"f1": F1(3)})
    assert repr(learner.history) == "History(no epochs)"
    rows = learner.fit(*loaders, epochs=2)
    head, *lines = repr(rows).splitlines()
    assert head.split()[:4] == ["epoch", "step", "train_loss", "train_accuracy"]
    assert "valid_f1" in head.split()
    assert "valid_mse" not in head
    assert [line.split()[:2] for line in lines] == [["1", "7"], ["2", "14"]]
    assert len({len(line) for line in (head, *lines)}) == 1
    assert rows == list(rows)


def test_the_best_epoch_is_read_when_what_is_being_written_is_there(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make(out=tmp_path / "run")
    learner.fit(*loaders, epochs=1, draw=False)
    order: list[str] = []
    wait, load = RunDirectory.wait, snapshots.load_checkpoint
    monkeypatch.setattr(RunDirectory, "wait", lambda run: (order.append("wait"), wait(run))[1])
    monkeypatch.setattr(snapshots, "load_checkpoint", lambda path: (order.append("load"), load(path))[1])
    learner.load_best()
    assert order == ["wait", "load"]
