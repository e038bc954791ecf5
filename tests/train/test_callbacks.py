"""Callbacks hear of everything in order, may stop a run, and are part of what is resumed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

import firebrick as fb
from firebrick import optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import (
    AUROC,
    F1,
    Accuracy,
    Callback,
    CheckpointError,
    ConfusionMatrix,
    DataParallel,
    EarlyStopping,
    Learner,
    Metric,
    NothingTrainedWarning,
    ResumeWarning,
    TrainingError,
    TrainingInterrupted,
    evaluate,
    load_checkpoint,
)


def points(count: int, seed: int) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return ArrayDataset(centres[labels] + rng.normal(size=(count, 2)), labels)


def loaders() -> tuple[DataLoader, DataLoader]:
    return DataLoader(points(20, 0), 8, shuffle=True, seed=3), DataLoader(points(12, 1), 5, name="valid")


def learner(**options: Any) -> Learner:
    fb.random.seed(1)
    model = fb.nn.Sequential(fb.nn.Linear(2, 6), fb.nn.Tanh(), fb.nn.Dropout(0.2), fb.nn.Linear(6, 3))
    options.setdefault("log", None)
    return Learner(model, optim.Adam(model, lr=0.05), seed=5, **options)


def bits(found: Learner) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in found.model.state_dict().items()}


class Heard(Callback):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_fit_begin(self, learner: Learner) -> None:
        self.events.append(("fit", learner.epoch))

    def on_epoch_begin(self, learner: Learner) -> None:
        self.events.append(("epoch", learner.epoch))

    def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
        self.events.append(("step", step, sorted(values)))
        assert math.isfinite(values["loss"])

    def on_validation_end(self, learner: Learner, evaluation: Any) -> None:
        self.events.append(("validation", evaluation.samples))

    def on_epoch_end(self, learner: Learner, row: Any) -> None:
        assert row is learner.history[-1]
        self.events.append(("row", row.epoch))

    def on_checkpoint(self, learner: Learner, path: Path) -> None:
        learner.wait()
        self.events.append(("checkpoint", load_checkpoint(path).state["step"]))

    def on_fit_end(self, learner: Learner) -> None:
        self.events.append(("end", learner.epoch))


@pytest.mark.parametrize("jit", [True, False])
def test_a_callback_hears_of_everything_in_order(tmp_path: Path, jit: bool) -> None:
    heard = Heard()
    made = learner(callbacks=[heard], out=tmp_path / "run", clip_norm=1.0, jit=jit, checkpoint_steps=2)
    made.fit(*loaders(), epochs=2, draw=False)
    both = ["gradient_norm", "loss"]
    assert heard.events == [
        ("fit", 0),
        ("epoch", 0), ("step", 1, both), ("step", 2, both), ("checkpoint", 2), ("step", 3, both),
        ("validation", 12), ("row", 1), ("checkpoint", 3),
        ("epoch", 1), ("step", 4, both), ("step", 5, both), ("checkpoint", 5), ("step", 6, both),
        ("validation", 12), ("row", 2), ("checkpoint", 6),
        ("end", 2),
    ]  # fmt: skip


def test_a_callback_that_does_nothing_changes_no_bit() -> None:
    plain, followed = learner(), learner(callbacks=[Callback(), Heard()], metrics=[F1(3)])
    for made in (plain, followed):
        made.fit(*loaders(), epochs=2)
    assert bits(plain) == bits(followed)


class Slower(Callback):
    """Halves the learning rate after each epoch."""

    def on_epoch_end(self, learner: Learner, row: Any) -> None:
        learner.optimizer.learning_rate = row.learning_rate / 2


def test_what_a_callback_changes_after_an_epoch_is_in_its_checkpoint_and_in_the_next_epoch(tmp_path: Path) -> None:
    whole = learner(callbacks=[Slower()])
    whole.fit(*loaders(), epochs=3)
    assert [round(r.learning_rate, 6) for r in whole.history] == [0.05, 0.025, 0.0125]
    learner(callbacks=[Slower()], out=tmp_path / "run").fit(*loaders(), epochs=1, draw=False)
    resumed = learner(callbacks=[Slower()], out=tmp_path / "run")
    with pytest.warns(ResumeWarning, match=r"learning rate stays constant\(lr=0\.025\)"):
        resumed.resume()
    resumed.fit(*loaders(), epochs=3, draw=False)
    assert bits(resumed) == bits(whole)


@pytest.mark.parametrize(
    "event", ["on_fit_begin", "on_epoch_begin", "on_step_end", "on_validation_end", "on_epoch_end", "on_checkpoint"]
)
@pytest.mark.parametrize("again", ["fit", "resume"])
def test_a_callback_that_raises_leaves_a_run_that_goes_on_to_the_same_bits(tmp_path: Path, event: str, again: str) -> None:
    whole = learner()
    whole.fit(*loaders(), epochs=3)

    class Failing(Callback):
        calls = 0

    def fail(self: Failing, *given: Any) -> None:
        Failing.calls += 1
        if Failing.calls == (1 if event == "on_fit_begin" else 2):
            raise ZeroDivisionError("a callback")

    setattr(Failing, event, fail)
    made = learner(callbacks=[Failing()], out=tmp_path / "run")
    with pytest.raises(ZeroDivisionError, match="a callback"):
        made.fit(*loaders(), epochs=3, draw=False)
    if again == "resume" and (tmp_path / "run" / "checkpoint").exists():
        made = learner(out=tmp_path / "run")
        made.resume()
    made.fit(*loaders(), epochs=3, draw=False)
    assert bits(made) == bits(whole)
    assert [r.train_loss for r in made.history] == [r.train_loss for r in whole.history]


@pytest.mark.parametrize("event", ["on_epoch_end", "on_checkpoint"])
def test_what_an_exception_leaves_of_the_end_of_an_epoch_is_done_by_another_fit(tmp_path: Path, event: str) -> None:
    class Failing(Callback):
        failed = False

    def fail(self: Failing, learner: Learner, *_: Any) -> None:
        if not Failing.failed:
            Failing.failed = True
            raise ZeroDivisionError("a callback")

    setattr(Failing, event, fail)
    rules = [EarlyStopping("train_loss", mode="max"), EarlyStopping("train_loss", mode="max")]
    whole = learner(callbacks=[Slower(), rules[0]], out=tmp_path / "whole")
    rows = whole.fit(*loaders(), epochs=2, draw=False)
    made = learner(callbacks=[Failing(), Slower(), rules[1]], out=tmp_path / "made")
    with pytest.raises(ZeroDivisionError, match="a callback"):
        made.fit(*loaders(), epochs=1, draw=False)
    with pytest.warns(NothingTrainedWarning):  # but the end of the epoch
        made.fit(*loaders(), epochs=1, draw=False)
    assert load_checkpoint(tmp_path / "made" / "best").state["epoch"] == 1
    assert load_checkpoint(tmp_path / "made" / "checkpoint").state["epoch"] == 1
    made.fit(*loaders(), epochs=2, draw=False)
    assert [r.learning_rate for r in made.history] == [r.learning_rate for r in rows]
    assert (rules[0].best, rules[0].best_epoch) == (rules[1].best, rules[1].best_epoch) == (rows[0].train_loss, 1)
    assert bits(made) == bits(whole)
    lines = [(tmp_path / name / "metrics.csv").read_text().splitlines() for name in ("whole", "made")]
    assert [line.split(",")[:6] for line in lines[1]] == [line.split(",")[:6] for line in lines[0]]


def test_stop_ends_fit_after_the_epoch_and_a_further_fit_goes_on() -> None:
    whole = learner()
    whole.fit(*loaders(), epochs=3)

    class Once(Callback):
        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            if step == 1:
                learner.stop("a test")

    lines: list[str] = []
    made = learner(callbacks=[Once()], log=lines.append)
    assert len(made.fit(*loaders(), epochs=3)) == 1
    assert "stopped after epoch 1 of 3: a test" in lines
    assert len(made.fit(*loaders(), epochs=3)) == 3
    assert bits(made) == bits(whole)


@pytest.mark.parametrize("event", ["on_step_end", "on_epoch_end"])
def test_a_run_that_was_asked_to_stop_is_ended_after_resume_too_and_a_further_fit_goes_on(tmp_path: Path, event: str) -> None:
    whole = learner()
    whole.fit(*loaders(), epochs=3)

    class Once(Callback):
        pass

    setattr(Once, event, lambda self, learner, *_: learner.stop("a test") if learner.epoch < 2 else None)
    first = learner(callbacks=[Once()], out=tmp_path / "run")
    assert len(first.fit(*loaders(), epochs=3, draw=False)) == 1
    resumed = learner(out=tmp_path / "run")
    resumed.resume()
    with pytest.warns(NothingTrainedWarning, match="a callback stops it after 1 epochs, for this reason: a test"):
        assert len(resumed.fit(*loaders(), epochs=3, draw=False)) == 1
    assert len(resumed.fit(*loaders(), epochs=3, draw=False)) == 3
    assert bits(resumed) == bits(whole)


def test_an_epoch_in_which_a_run_was_asked_to_stop_is_finished_after_resume(tmp_path: Path) -> None:
    whole = learner()
    whole.fit(*loaders(), epochs=1)

    class Early(Callback):
        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            if step == 1:
                learner.stop("a test")
            if step == 2:
                learner.interrupts.stop()  # as where the process ends after a checkpoint within the epoch

    with pytest.raises(TrainingInterrupted):
        learner(callbacks=[Early()], out=tmp_path / "run").fit(*loaders(), epochs=3, draw=False)
    lines: list[str] = []
    resumed = learner(out=tmp_path / "run", log=lines.append)
    resumed.resume()
    assert len(resumed.fit(*loaders(), epochs=3, draw=False)) == 1
    assert "stopped after epoch 1 of 3: a test" in lines
    assert bits(resumed) == bits(whole)


def test_stop_without_a_running_fit_stops_nothing() -> None:
    made = learner()
    made.stop()
    assert len(made.fit(*loaders(), epochs=2)) == 2


def test_early_stopping_stops_gives_back_the_best_values_and_resumes(tmp_path: Path) -> None:
    class Values(Callback):
        def __init__(self) -> None:
            self.seen: list[dict[str, bytes]] = []

        def on_epoch_end(self, learner: Learner, row: Any) -> None:
            self.seen.append(bits(learner))

    def stopping() -> EarlyStopping:
        return EarlyStopping("valid_loss", patience=2, min_delta=0.02)

    values, rule = Values(), stopping()
    whole = learner(callbacks=[values, rule])
    rows = whole.fit(*loaders(), epochs=60)
    assert 3 < len(rows) < 60
    losses = [r.valid_loss for r in rows]
    best = 0
    for i, loss in enumerate(losses):
        best = i if losses[best] - loss > 0.02 else best
    assert rule.best_epoch == best + 1 == len(rows) - 2
    assert rule.best == losses[best]
    assert bits(whole) == values.seen[best] != values.seen[-1]

    cut = len(rows) - 1  # the best epoch lies before the checkpoint that the run goes on from
    learner(callbacks=[stopping()], out=tmp_path / "run").fit(*loaders(), epochs=cut, draw=False)
    rule = stopping()
    resumed = learner(callbacks=[rule], out=tmp_path / "run")
    resumed.resume()
    assert (rule.best, rule.waited) == (losses[best], 1)
    assert {type(v) for v in rule.state()["values"].values()} == {fb.Tensor}
    assert len(resumed.fit(*loaders(), epochs=60, draw=False)) == len(rows)
    assert bits(resumed) == bits(whole)


def test_a_run_that_early_stopping_ended_stays_ended_and_gives_the_best_values_when_it_is_resumed(tmp_path: Path) -> None:
    def stopping(patience: int = 2) -> EarlyStopping:
        return EarlyStopping("valid_loss", patience=patience, min_delta=0.02)

    whole = learner(callbacks=[stopping()], out=tmp_path / "run")
    rows = [r.epoch for r in whole.fit(*loaders(), epochs=60, draw=False)]
    for made in (learner(callbacks=[stopping()], out=tmp_path / "run"), whole):
        if made is not whole:
            made.resume()
        with pytest.warns(NothingTrainedWarning, match=r"trains nothing(?s:.*)valid_loss has not improved for 2 epochs"):
            assert [r.epoch for r in made.fit(*loaders(), epochs=60, draw=False)] == rows
        assert bits(made) == bits(whole)
    patient = learner(callbacks=[stopping(3)], out=tmp_path / "run")
    patient.resume()
    assert len(patient.fit(*loaders(), epochs=60, draw=False)) > len(rows)


@pytest.mark.parametrize(
    ("name", "meant"), [("on_epoch_ends", "on_epoch_end"), ("on_batch_end", "on_step_end"), ("on_train_begin", "on_fit_begin")]
)
def test_a_method_that_would_never_be_called_is_refused_with_its_name_here(name: str, meant: str) -> None:
    wrong = type("Wrong", (Callback,), {name: lambda self, learner: None})
    with pytest.raises(TrainingError, match=rf"Wrong\.{name}, which would never be called(?s:.*)call it {meant}\."):
        learner(callbacks=[wrong()])
    assert learner(callbacks=[type("Own", (Callback,), {"on_new_record": lambda self: None})()])


def test_fit_within_fit_is_refused_and_another_fit_goes_on() -> None:
    class Again(Callback):
        def on_epoch_end(self, learner: Learner, row: Any) -> None:
            learner.fit(*loaders(), epochs=5)

    made, whole = learner(callbacks=[again := Again()]), learner()
    with pytest.raises(TrainingError, match="a call within fit"):
        made.fit(*loaders(), epochs=2)
    again.on_epoch_end = lambda learner, row: None  # type: ignore[method-assign]
    assert len(made.fit(*loaders(), epochs=3)) == len(whole.fit(*loaders(), epochs=3)) == 3
    assert bits(made) == bits(whole)


class Misses(Metric):
    """Counts samples whose largest score is above 10⁹: none."""

    def initial(self) -> dict[str, Any]:
        return {"misses": 0}

    def update(self, output: fb.Tensor, target: fb.Tensor) -> None:
        self.keep(target.shape[0], fb.count_nonzero(fb.max(output, axis=1) > 1e9))

    def add(self, values: Any, samples: int) -> None:
        self.totals["misses"] += int(values[0])

    def compute(self) -> float:
        return float(self.totals["misses"])


class Forgetful(Misses):
    """Changes its totals in ``update``."""

    def update(self, output: fb.Tensor, target: fb.Tensor) -> None:
        self.totals["misses"] += 1


def test_a_metric_whose_totals_stay_as_they_were_is_in_rows_and_evaluations() -> None:
    made = learner(metrics=[Misses()])
    assert made.fit(*loaders(), epochs=1)[0].metrics == {"train_misses": 0.0, "valid_misses": 0.0}
    assert evaluate(made.model, loaders()[1], metrics=[Misses()]).metrics == {"misses": 0.0}


def test_a_metric_that_keeps_nothing_of_a_batch_is_refused() -> None:
    made = learner(metrics=[Forgetful()])
    with pytest.raises(TrainingError, match=r"the metric forgetful counts batches(?s:.*)self\.keep"):
        made.fit(*loaders(), epochs=1)
    with pytest.raises(TrainingError, match=r"the metric forgetful counts batches(?s:.*)self\.keep"):
        evaluate(made.model, loaders()[1], metrics=[Forgetful()])


def test_a_checkpoint_without_a_callback_or_of_another_one_says_so(tmp_path: Path) -> None:
    class Counting(Callback):
        def state(self) -> dict[str, Any]:
            return {"count": 1}

    learner(callbacks=[Slower(), Counting()], out=tmp_path / "run").fit(*loaders(), epochs=1, draw=False)
    other = learner(callbacks=[EarlyStopping()], out=tmp_path / "run")
    with pytest.warns(ResumeWarning) as caught:
        other.resume()
    text = str(caught[0].message)
    assert "it has no state of the callback EarlyStopping, which begins anew" in text
    assert "its callback Counting is not among those of this learner" in text


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: EarlyStopping("valid_f1"), r"mode is .min. or .max."),
        (lambda: EarlyStopping(mode="up"), r"mode is .min. or .max."),
        (lambda: EarlyStopping(patience=0), r"patience"),
        (lambda: EarlyStopping(min_delta=-1.0), r"min_delta is a finite number"),
        (lambda: EarlyStopping(restore_best=1), r"restore_best is True or False"),  # type: ignore[arg-type]
        (lambda: learner(callbacks=EarlyStopping), r"train\.Callback objects"),
        (lambda: learner(callbacks=[print]), r"derive its class from train\.Callback"),
        (lambda: learner(callbacks=[rule := Callback(), rule]), r"each callback stands once"),
        (lambda: learner(metrics=[F1]), r"metrics are train\.Metric objects"),
        (lambda: learner(metrics={"loss": F1(3)}), r"name of its own"),
        (lambda: learner(metrics=[F1(3), F1(3)]), r"name of its own"),
        (lambda: learner(metrics={"f 1": F1(3)}), r"name of its own"),
    ],
)  # fmt: skip
def test_bad_callbacks_and_metrics_are_refused(made: Any, match: str) -> None:
    with pytest.raises(fb.FirebrickError, match=match):
        made()


def test_early_stopping_without_its_number_says_which_there_are() -> None:
    with pytest.raises(TrainingError, match="pass a validation loader to fit"):
        learner(callbacks=[EarlyStopping()]).fit(loaders()[0], epochs=1)
    with pytest.raises(TrainingError, match="name one of epoch, step, train_loss"):
        learner(callbacks=[EarlyStopping("loss", mode="min")]).fit(*loaders(), epochs=1)


# metrics


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_metrics_are_in_rows_files_and_evaluations(tmp_path: Path, jit: bool, accumulate: int) -> None:
    given = {"f1": F1(3), "cells": ConfusionMatrix(3), "recall_of_0": _Recall0()}
    made = learner(metrics=given, out=tmp_path / "run", jit=jit, accumulate=accumulate)
    rows = made.fit(*loaders(), epochs=2, draw=False)
    assert [sorted(r.metrics) for r in rows] == [["train_f1", "train_recall_of_0", "valid_f1", "valid_recall_of_0"]] * 2
    found = made.evaluate(loaders()[1])
    scores = np.concatenate([made.predict(x).numpy() for x, _ in loaders()[1]])
    labels = np.concatenate([y.numpy() for _, y in loaders()[1]])
    cells = np.zeros((3, 3), int)
    np.add.at(cells, (labels, scores.argmax(1)), 1)
    assert found.metrics["cells"].tolist() == cells.tolist()
    assert found.metrics["f1"] == rows[-1].metrics["valid_f1"] == pytest.approx(
        np.mean([2 * cells[c, c] / (cells[c].sum() + cells[:, c].sum()) for c in range(3)])
    )  # fmt: skip
    assert rows[-1].metrics["valid_recall_of_0"] == cells[0, 0] / cells[0].sum()
    header = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    assert header.endswith("train_f1,train_recall_of_0,valid_f1,valid_recall_of_0")
    assert not given["f1"].used  # copies count
    alone = evaluate(made.model, loaders()[1], metrics=[F1(3)])
    assert alone.metrics == {"f1": found.metrics["f1"]}


class _Recall0(Metric):
    """Of the samples of class 0, the share that are called so."""

    def initial(self) -> dict[str, Any]:
        return {"right": 0, "there": 0}

    def update(self, output: fb.Tensor, target: fb.Tensor) -> None:
        zero = target == 0
        self.keep(0, fb.sum(fb.logical_and(zero, fb.argmax(output, axis=1) == 0)), fb.sum(zero))

    def add(self, values: Any, samples: int) -> None:
        self.totals["right"] += int(values[0])
        self.totals["there"] += int(values[1])

    def compute(self) -> float:
        return self.totals["right"] / self.totals["there"] if self.totals["there"] else math.nan


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_metrics_of_an_epoch_that_was_stopped_are_those_of_the_whole(tmp_path: Path, stop: int) -> None:
    class Stop(Callback):
        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            if step == stop:
                learner.interrupts.stop()

    whole = learner(metrics=[F1(3), _Recall0()])
    whole.fit(*loaders(), epochs=2)
    with pytest.raises(TrainingInterrupted, match="saved in"):
        learner(metrics=[F1(3), _Recall0()], callbacks=[Stop()], out=tmp_path / "run").fit(*loaders(), epochs=2, draw=False)
    resumed = learner(metrics=[F1(3), _Recall0()], out=tmp_path / "run")
    resumed.resume()
    rows = resumed.fit(*loaders(), epochs=2, draw=False)
    assert [r.metrics for r in rows] == [r.metrics for r in whole.history]
    assert bits(resumed) == bits(whole)


def test_metrics_are_the_same_over_several_devices() -> None:
    alone = learner(metrics=[F1(3), AUROC(3), ConfusionMatrix(3)], jit=False)
    parallel = learner(metrics=[F1(3), AUROC(3), ConfusionMatrix(3)], strategy=DataParallel(["cpu:0", "cpu:1", "numpy:0"]))
    for made in (alone, parallel):
        made.fit(*loaders(), epochs=2)
    for a, b in zip(alone.history, parallel.history, strict=True):
        assert a.metrics == pytest.approx(b.metrics, abs=0.08)
        assert a.metrics.keys() == b.metrics.keys() == {"train_f1", "train_auroc", "valid_f1", "valid_auroc"}


def test_a_metric_that_cannot_count_a_batch_is_named_before_the_first_step() -> None:
    class Wrong(_Recall0):
        def update(self, output: fb.Tensor, target: fb.Tensor) -> None:
            raise KeyError("column")

    made = learner(metrics=[Wrong()])
    with pytest.raises(TrainingError, match=r"the metric wrong counts the batches"):
        made.fit(*loaders(), epochs=1)
    assert made.step == 0


@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("kind", [F1, ConfusionMatrix])
def test_scores_of_another_number_of_classes_are_refused(kind: Any, columns: int) -> None:
    text = r"scores\[:, 0\] > 0" if columns == 1 else f"make it with classes={columns}"
    with pytest.raises(fb.ShapeError, match=rf"{kind.__name__} of 3 classes takes scores \[batch, 3\](.|\n)*{text}"):
        kind(3).update(fb.zeros((4, columns)), fb.asarray([0, 0, 0, 0]))


@pytest.mark.parametrize("kind", [F1, ConfusionMatrix])
def test_samples_of_the_ignored_label_do_not_count(kind: Any) -> None:
    scores = fb.asarray(np.random.default_rng(0).normal(size=(8, 3)))
    labels = np.array([-1, -1, 0, 1, 2, 0, 1, 2])
    some, kept = kind(3, ignore_index=-1), kind(3)
    some.update(scores, fb.asarray(labels))
    kept.update(scores[2:], fb.asarray(labels[2:]))
    np.testing.assert_array_equal(some.compute(), kept.compute())
    all_ = kind(3)
    all_.update(scores, fb.asarray(labels))
    with pytest.raises(fb.OutOfRangeError, match="ignore_index= leaves out samples of one label"):
        all_.compute()


@pytest.mark.parametrize("wrong", [None, "0.5"])
def test_a_metric_that_computes_no_number_is_named(wrong: Any) -> None:
    class Wrong(_Recall0):
        def compute(self) -> Any:
            return wrong

    with pytest.raises(TrainingError, match="compute of the metric wrong returns a number or an array"):
        learner(metrics=[Wrong()]).fit(*loaders(), epochs=1)


def test_an_epoch_goes_on_with_the_metrics_that_it_was_begun_with(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            learner.interrupts.stop()

    with pytest.raises(TrainingInterrupted):
        learner(metrics=[F1(3)], callbacks=[Stop()], out=tmp_path / "run").fit(*loaders(), epochs=2, draw=False)
    for metrics in ([], [_Recall0()], [F1(3), _Recall0()], {"f1": Accuracy()}, {"f1": F1(3, average="micro")}):
        with pytest.raises(
            CheckpointError, match=r"was begun with the metrics: f1: F1\(average='macro', classes=3, ignore_index=None\)"
        ):
            learner(metrics=metrics, out=tmp_path / "run").resume()


def test_another_number_is_followed_from_the_beginning(tmp_path: Path) -> None:
    def run(stopping: EarlyStopping) -> Learner:
        return learner(callbacks=[stopping], out=tmp_path / "run")

    run(EarlyStopping("valid_accuracy", patience=9)).fit(*loaders(), epochs=2, draw=False)
    for other in (EarlyStopping("valid_loss", patience=2), EarlyStopping("valid_accuracy", mode="min")):
        with pytest.warns(ResumeWarning, match='followed monitor="valid_accuracy", mode="max", and follows monitor="valid_'):
            run(other).resume()
        assert (other.best, other.best_epoch, other.waited) == (None, 0, 0)
    same = EarlyStopping("valid_accuracy", patience=3)
    run(same).resume()
    assert same.best is not None


def test_a_state_that_a_callback_refuses_leaves_all_as_it_was(tmp_path: Path) -> None:
    class Strict(Callback):
        def __init__(self, key: str) -> None:
            self.key = key

        def state(self) -> dict[str, Any]:
            return {self.key: 1}

        def load_state(self, state: Any) -> None:
            if self.key not in state:
                raise RuntimeError("another key")

    first = learner(callbacks=[EarlyStopping(), Strict("a")], out=tmp_path / "run")
    first.fit(*loaders(), epochs=1, draw=False)
    rule = EarlyStopping()
    other = learner(callbacks=[rule, Strict("b")], out=tmp_path / "run")
    fb.random.seed(11)
    before, random = bits(other), repr(fb.random.state())
    with pytest.raises(RuntimeError, match="another key"):
        other.resume()
    assert (bits(other), other.epoch, other.optimizer.step, rule.best) == (before, 0, 0, None)
    assert repr(fb.random.state()) == random


def test_best_values_that_were_not_kept_are_said(tmp_path: Path) -> None:
    learner(callbacks=[EarlyStopping(restore_best=False)], out=tmp_path / "run").fit(*loaders(), epochs=1, draw=False)
    with pytest.warns(ResumeWarning, match="cannot give back the values of epoch 1"):
        learner(callbacks=[EarlyStopping()], out=tmp_path / "run").resume()


def test_callbacks_are_called_with_the_error_that_ends_fit(make: Any, loaders: Any) -> None:
    heard: list[Any] = []

    class Fails(Callback):
        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            if step == 2:
                raise MemoryError("of a step")

        def on_exception(self, learner: Learner, error: BaseException) -> None:
            raise OSError("the connection is gone")

    class Hears(Callback):
        def on_exception(self, learner: Learner, error: BaseException) -> None:
            heard.append((error, learner.step))

    with pytest.raises(MemoryError, match="of a step") as caught:
        make(callbacks=[Fails(), Hears()]).fit(*loaders, epochs=1)
    assert heard == [(caught.value, 2)]
    assert caught.value.__notes__ == ["besides, the callback Fails raised OSError: the connection is gone"]


def test_numbers_of_an_epoch_that_was_interrupted_while_a_step_was_counted_are_those_of_the_whole() -> None:
    files = "train/metrics", "train/measures.py"

    def made() -> Learner:
        return learner(jit=False, metrics=[F1(3)])

    whole = made().fit(*loaders(), epochs=1)[0]
    places = interrupted(lambda: made().fit(*loaders(), epochs=1), None, *files)
    for at in range(5, places, places // 6):
        run = made()
        assert interrupted(lambda run=run: run.fit(*loaders(), epochs=1), at, *files) == at  # type: ignore[misc]
        row = run.fit(*loaders(), epochs=1)[0]
        assert (row.train_loss, row.train_accuracy, row.metrics) == (whole.train_loss, whole.train_accuracy, whole.metrics), at


def test_batches_that_a_metric_refused_are_said_where_another_fit_goes_on() -> None:
    class Refusing(Metric):
        refuses = True

        def initial(self) -> dict[str, Any]:
            return {"samples": 0}

        def update(self, output: Any, target: Any) -> None:
            self.keep(target.shape[0], fb.sum(output))

        def add(self, values: Any, samples: int) -> None:
            if Refusing.refuses and self.totals["samples"] == 8:
                raise ZeroDivisionError("a metric")
            self.totals["samples"] += samples

        def compute(self) -> Any:
            return self.totals["samples"]

    made = learner(metrics={"seen": Refusing()})
    with pytest.raises(ZeroDivisionError, match="a metric"):
        made.fit(*loaders(), epochs=1)
    Refusing.refuses = False
    with pytest.warns(ResumeWarning, match="metrics of epoch 1 are those of its batches from here on"):
        assert made.fit(*loaders(), epochs=1)[0].metrics["train_seen"] == 4


def test_early_stopping_that_was_interrupted_sees_the_epoch_again() -> None:
    def made() -> Learner:
        return learner(jit=False, callbacks=[EarlyStopping("train_loss", mode="max")])  # the first epoch is the best

    whole = made()
    whole.fit(*loaders(), epochs=2)
    rule = whole.callbacks[0]
    counted = made()
    places = interrupted(lambda: counted.fit(*loaders(), epochs=1), None, "train/callbacks.py")
    seen = 0
    for at in range(places // 2, places, 2):  # around the end of the epoch
        run = made()
        interrupted(lambda run=run: run.fit(*loaders(), epochs=1), at, "train/callbacks.py")  # type: ignore[misc]
        found = run.callbacks[0]
        assert isinstance(rule, EarlyStopping)
        assert isinstance(found, EarlyStopping)
        seen += run.epoch == 1 and found.best is None
        run.fit(*loaders(), epochs=2)
        assert (found.best, found.best_epoch, found.waited) == (rule.best, rule.best_epoch, rule.waited), at
    assert seen
