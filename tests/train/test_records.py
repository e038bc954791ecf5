"""Event files that TensorBoard reads, and ``steps.jsonl``: what is in them, and that a resumed run goes on with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from after_steps import after_steps
from event_curves import curves

import firebrick as fb
from firebrick.data import DataLoader
from firebrick.train import Epoch, Learner, TrainingError, TrainingInterrupted
from firebrick.train.events import EventWriter

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_scalars_are_read_back_by_tag_and_step(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events")
    writer.scalars({"loss/train": 0.5, "größe": -3.25}, step=1)
    writer.scalars({"loss/train": 0.25}, step=2**40)
    writer.scalars({"größe": -1e300}, step=2)  # which float32 does not have
    writer.close()
    assert curves(tmp_path / "events") == {"loss/train": {1: 0.5, 2**40: 0.25}, "größe": {1: -3.25, 2: -float("inf")}}


def test_event_files_hold_the_numbers_of_epochs_and_of_every_second_step(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    learner = make(out=tmp_path / "run", events=tmp_path / "run" / "events", record_every=2, clip_norm=1.0)
    history = learner.fit(*loaders, epochs=2, draw=False)
    found = curves(tmp_path / "run" / "events")
    assert set(found) == {
        "loss/train", "loss/valid", "accuracy/train", "accuracy/valid", "run/learning_rate", "run/samples_per_second",
        "run/seconds", "step/loss", "step/gradient_norm",
    }  # fmt: skip
    assert found["loss/valid"] == pytest.approx({r.step: r.valid_loss for r in history}, rel=1e-6)
    assert list(found["step/loss"]) == [2, 4, 6, 8, 10, 12, 14]
    steps = rows(tmp_path / "run" / "steps.jsonl")
    assert [(r["step"], r["epoch"]) for r in steps] == [(2, 1), (4, 1), (6, 1), (8, 2), (10, 2), (12, 2), (14, 2)]
    assert found["step/loss"] == pytest.approx({r["step"]: r["loss"] for r in steps}, rel=1e-6)
    assert found["step/gradient_norm"] == pytest.approx({r["step"]: r["gradient_norm"] for r in steps}, rel=1e-6)


def test_a_step_is_recorded_with_the_loss_of_its_own_batch(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    losses = []

    def noted(output: Any, target: Any) -> Any:
        value = fb.cross_entropy(output, target)
        losses.append(value.detach())
        return value

    learner = make(out=tmp_path / "run", record_every=1, loss=noted, jit=False)
    learner.fit(loaders[0], epochs=1, draw=False)
    assert [r["loss"] for r in rows(tmp_path / "run" / "steps.jsonl")] == [float(v) for v in losses[1:]]  # the first is tried


@pytest.mark.parametrize(("late", "left"), [(False, '{"step": 6, "lo'), (True, '{"step": 6, "lo'), (False, "\0\0\0\n")])
def test_a_resumed_run_has_the_records_of_a_whole_one(
    make: Make, loaders: Loaders, tmp_path: Path, late: bool, left: str
) -> None:
    def fresh(name: str) -> Learner:
        return make(out=tmp_path / name, events=tmp_path / name / "events", record_every=1)

    fresh("whole").fit(*loaders, epochs=2, draw=False)
    stopped = fresh("parts")

    def stepped() -> None:
        if stopped.step == 3:
            stopped.interrupts.save()
        if stopped.step == 5 and not late:
            stopped.interrupts.stop()
        if stopped.step == 6 and late:
            raise MemoryError("died two steps after its checkpoint")

    after_steps(stopped, stepped)
    with pytest.raises((TrainingInterrupted, MemoryError)):
        stopped.fit(*loaders, epochs=2, draw=False)
    with (tmp_path / "parts" / "steps.jsonl").open("a") as stream:
        stream.write(left)  # as a crash does
    resumed = fresh("parts")
    resumed.resume()
    assert resumed.step == (3 if late else 5)
    resumed.fit(*loaders, epochs=2, draw=False)
    assert rows(tmp_path / "parts" / "steps.jsonl") == rows(tmp_path / "whole" / "steps.jsonl")
    whole, parts = curves(tmp_path / "whole" / "events"), curves(tmp_path / "parts" / "events")
    timed = ("run/seconds", "run/samples_per_second")
    assert {t: c for t, c in parts.items() if t not in timed} == {t: c for t, c in whole.items() if t not in timed}
    assert len(list((tmp_path / "parts" / "events").iterdir())) == 2


def test_steps_recorded_nowhere_are_refused(make: Make) -> None:
    with pytest.raises(TrainingError, match="recorded in a run directory or in event files"):
        make(record_every=5)
    with pytest.raises(fb.ConfigError, match="record_every is an int ≥ 1"):
        make(record_every=0)


def test_tensorboard_reads_the_files(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    learner = make(events=tmp_path)
    history = learner.fit(*loaders, epochs=2, draw=False)
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss/train")] == [
        (r.step, pytest.approx(r.train_loss, rel=1e-6)) for r in history
    ]


def test_an_epochs_line_says_every_number_once() -> None:
    row = Epoch(2, 18, 0.5, None, 0.25, None, 1e-3, 99.6, 1.0, train_mse=0.5, train_mae=0.75, valid_mse=0.125, valid_mae=0.25)
    assert row.line(3) == (
        "epoch 2/3  loss 0.5000  valid loss 0.2500  mae 0.7500  valid mse 0.1250  100 samples/s  lr 1.00e-03"
    ), "an error that is the loss is not repeated"
    row = Epoch(1, 9, 0.5, 0.75, 0.25, 0.875, 1e-3, 10.0, 1.0)
    assert row.line(1) == (
        "epoch 1/1  loss 0.5000  accuracy 0.7500  valid loss 0.2500  valid accuracy 0.8750  10 samples/s  lr 1.00e-03"
    )
    row = Epoch(1, 9, 0.5, None, None, None, 1e-3, 10.0, 1.0)
    assert row.line(1) == "epoch 1/1  loss 0.5000  10 samples/s  lr 1.00e-03"
