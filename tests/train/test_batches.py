"""Batches of any structure, and steps of several batches, through a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from after_steps import after_steps
from combinations import turns_of

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader, IterableDataset
from firebrick.train import (
    F1,
    BatchGroup,
    DataParallel,
    Learner,
    ResumeWarning,
    SingleDevice,
    TrainingError,
    TrainingInterrupted,
    evaluate,
)

X = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
Places = {
    "cpu": lambda: SingleDevice("cpu"),
    "numpy": lambda: SingleDevice("numpy"),
    "two": lambda: DataParallel(["cpu:0", "numpy:0"]),
}


@dataclass
class Sample:
    x: Any
    label: Any


class Net(nn.Module):
    """Takes its input by position or by name, in a dict or dataclass or alone."""

    def __init__(self, drop: float = 0.3) -> None:
        self.first, self.drop, self.last = nn.Linear(2, 8), nn.Dropout(drop), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = x["x"] if isinstance(x, dict) else getattr(x, "x", x)
        x = x[0] if isinstance(x, tuple) else x
        return self.last(self.drop(fb.relu(self.first(x))))


def of_whole(output: Any, batch: Any) -> Any:
    return fb.cross_entropy(output, batch["label"] if isinstance(batch, dict) else batch.label)


FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "tuple": (lambda x, y: (x, y), {}),
    "dict": (lambda x, y: {"x": x, "label": y}, {"target": "label"}),
    "dataclass": (Sample, {"target": "label"}),
    "whole dict": (lambda x, y: {"x": x, "label": y}, {"loss": of_whole}),
    "whole dataclass": (Sample, {"loss": of_whole}),
    "nested": (lambda x, y: ((x, {"unused": x}), y), {}),
}


class Samples:
    def __init__(self, form: str) -> None:
        self.make = FORMS[form][0]

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return self.make(X[index], int(Y[index]))


def loader(form: str = "tuple", batch: int = 8, **options: Any) -> DataLoader:
    return DataLoader(Samples(form), batch, shuffle=True, seed=2, **options)


def learner(form: str = "tuple", drop: float = 0.3, **options: Any) -> Learner:
    fb.random.seed(3)
    model = Net(drop)
    return Learner(model, optim.SGD(model, lr=0.1, momentum=0.9), **{"seed": 1, "log": None, **FORMS[form][1], **options})


def bits(learner: Learner) -> list[bytes]:
    return [p.numpy().tobytes() for p in learner.model.parameters()]


def values(learner: Learner) -> Any:
    return np.concatenate([p.numpy().ravel() for p in learner.model.parameters()])


class Two(nn.Module):
    """Takes two inputs, by position or by name."""

    def __init__(self) -> None:
        self.numbers, self.kinds = nn.Linear(2, 2), nn.Embedding(3, 2)

    def forward(self, x: Any, kind: Any) -> Any:
        return self.numbers(x) + self.kinds(kind)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("precision", [None, "bfloat16", "float16"])
def test_several_inputs_by_position_and_by_name_train_alike_in_every_precision(precision: str | None, jit: bool) -> None:
    def trained(samples: list[Any], **options: Any) -> bytes:
        fb.random.seed(3)
        made = Learner(model := Two(), optim.SGD(model, lr=0.1), log=None, precision=precision, jit=jit, **options)
        made.fit(DataLoader(samples, 8), epochs=1)
        return b"".join(p.numpy().tobytes() for p in made.model.parameters())

    rows = [(x, i % 3, int(y)) for i, (x, y) in enumerate(zip(X[:16], Y[:16], strict=True))]
    by_position = trained(rows)
    assert trained([{"kind": k, "label": y, "x": x} for x, k, y in rows], target="label") == by_position


@pytest.mark.parametrize(("form", "place"), turns_of(FORMS, Places))
def test_batches_of_any_structure_train_to_the_same_bits(form: str, place: str) -> None:
    def trained(form: str, **options: Any) -> Learner:
        made = learner(form, strategy=Places[place](), **options)
        made.fit(loader(form), loader(form), epochs=2)
        return made

    plain, found = trained("tuple"), trained(form, metrics=[] if "whole" in form else [F1(2)])
    assert bits(found) == bits(plain)
    assert [r.valid_loss for r in found.history] == [r.valid_loss for r in plain.history]
    if "whole" not in form:
        assert [r.valid_accuracy for r in found.history] == [r.valid_accuracy for r in plain.history]
        assert found.history[-1].metrics.keys() == {"train_f1", "valid_f1"}
    assert found.compiled["training step"].reason is None
    assert found.compiled["training step"].traces <= 5  # one a size of batch, and what follows the passes of two devices


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_predicted_and_evaluated_in_its_structure(form: str) -> None:
    made = learner(form)
    made.fit(loader(form), epochs=1)
    batch: Any = loader(form).first()
    got = made.predict(*(batch[:-1] if isinstance(batch, tuple) else (batch,)))
    assert got.shape == (8, 2)
    if "target" in FORMS[form][1]:
        x = batch["x"] if isinstance(batch, dict) else batch.x
        assert made.predict(x=x).tolist() == got.tolist()
        found = evaluate(made.model, loader(form), target="label")
        assert found.accuracy == made.evaluate(loader(form)).accuracy is not None
        assert made.evaluate(loader(form)).confusion is not None


def test_a_batch_of_one_tensor_is_input_and_target() -> None:
    for data in (ArrayDataset(X), X):
        model = nn.Linear(2, 2)
        made = Learner(model, optim.SGD(model, lr=0.2), fb.functions.losses.mse_loss, log=None)
        rows = made.fit(DataLoader(data, 8), DataLoader(data, 8), epochs=6)
        assert rows[-1].valid_mse is not None
        assert rows[0].valid_mse is not None
        assert rows[-1].valid_mse < rows[0].valid_mse
        assert made.predict(DataLoader(ArrayDataset(X), 8).first()[0]).shape == (8, 2)


def test_a_step_of_the_users_gets_the_tree() -> None:
    def loss(model: Any, batch: Any) -> Any:
        return fb.cross_entropy(model(batch["x"]), batch["label"])

    def step(minimizer: Any, batch: Any) -> None:
        assert isinstance(batch, dict)
        minimizer.minimize(loss, batch)

    own = learner("tuple", step=step)
    own.fit(loader("dict"), epochs=2)
    plain = learner("dict")
    plain.fit(loader("dict"), epochs=2)
    assert bits(own) == bits(plain)


@pytest.mark.parametrize(
    ("form", "options", "text"),
    [
        ("dict", {"target": "lable"}, r"target='lable' is a key or field(?s:.*)a dict with 'x', 'label'"),
        ("tuple", {"target": "label"}, r"target='label' is a key or field(?s:.*)a tuple"),
        ("dict", {"target": None}, r'labels must be(?s:.*)with target="label" the loss gets that one, and the model'),
        ("dict", {"target": 1}, r"target is the key or field of the target, a text"),
    ],
)
def test_a_target_that_is_not_there_is_refused_with_what_is(form: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(TrainingError, match=text):
        learner(form, **options).fit(loader(form), epochs=1)


def test_forgotten_labels_are_refused_with_what_a_single_tensor_means() -> None:
    model = nn.Linear(2, 3)
    made = Learner(model, optim.SGD(model, lr=0.1), log=None)
    with pytest.raises(TrainingError, match=r"one tensor is input and target(?s:.*)ArrayDataset\(images, labels\)"):
        made.fit(DataLoader(ArrayDataset(X), 8), epochs=1)


class Scaled(nn.Module):
    """Takes two inputs by name."""

    def __init__(self) -> None:
        self.layer = nn.Linear(2, 2)

    def forward(self, x, scale=None):  # type: ignore[no-untyped-def]
        return self.layer(x)


class Pictures:
    """Samples whose entries have other names than the model's parameters."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"image": X[i], "mask": X[i], "label": Y[i]}


def test_entries_that_forward_has_no_parameters_for_are_named() -> None:
    model = Scaled()
    made = Learner(model, optim.SGD(model, lr=0.1), log=None, target="label")
    wrong, right = (
        DataLoader(Pictures(), 4),
        DataLoader(Pictures(), 4, transform=lambda b: {"x": b["image"], "label": b["label"]}),
    )
    text = r"Scaled.forward has the parameters \(x, scale=None\)\n.*'image', 'mask' beside the target 'label'"
    calls: list[Callable[[], Any]] = [
        lambda: made.fit(wrong, epochs=1), lambda: made.fit(right, wrong, epochs=1), lambda: made.evaluate(wrong),
        lambda: evaluate(model, wrong, target="label"), lambda: made.predict(wrong.first()),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TrainingError, match=text):
            call()
    three = ArrayDataset(X, X, X, Y)
    with pytest.raises(TrainingError, match=r"has the parameters \(x, scale=None\)\n.*3 inputs"):
        Learner(model, optim.SGD(model, lr=0.1), log=None).fit(DataLoader(three, 4), epochs=1)
    assert made.fit(right, epochs=1)


# several batches a step


@pytest.mark.parametrize(("place", "jit"), turns_of(Places, [True, False]))
def test_a_step_of_several_batches_is_that_of_one_large_batch(place: str, jit: bool) -> None:
    """50 samples in batches of 4: groups of two, the last of one batch with two samples; and so with batches of 8."""

    def trained(batch: int, **options: Any) -> Learner:
        made = learner("dict", drop=0.0, strategy=Places[place](), clip_norm=0.5, jit=jit, **options)
        made.fit(loader("dict", batch), loader("dict"), epochs=2)
        return made

    large, found = trained(8), trained(4, batches_per_step=2)
    assert found.step == large.step == found.optimizer.step == 14
    np.testing.assert_allclose(values(found), values(large), rtol=0, atol=2e-6)
    for a, b in zip(found.history, large.history, strict=True):
        assert (a.train_loss, a.valid_loss) == pytest.approx((b.train_loss, b.valid_loss), rel=1e-5)
        assert (a.train_accuracy, a.valid_accuracy) == (b.train_accuracy, b.valid_accuracy)
    wrong = trained(4)
    assert np.abs(values(wrong) - values(large)).max() > 1e-3


def test_on_one_device_the_bits_are_those_of_parts() -> None:
    parts, group = learner(drop=0.0, accumulate=2), learner(drop=0.0, batches_per_step=2)
    parts.fit(loader(batch=8, drop_last=True), epochs=2)
    group.fit(loader(batch=4, drop_last=True), epochs=2)
    assert bits(parts) == bits(group)


def test_many_batches_a_step_are_a_few_graphs_and_draw_each_its_own() -> None:
    made = learner(batches_per_step=10)
    made.fit(loader(batch=2), epochs=2)
    assert made.step == 6  # 25 batches an epoch
    assert made.compiled["training step"].reason is None
    assert made.compiled["training step"].traces <= 4
    assert made.compiled["training step"].step.batches == 10


def test_batches_of_a_group_draw_unlike_random_numbers() -> None:
    drawn: list[Any] = []

    def noted(output: Any, target: Any) -> Any:
        drawn.append(output.tolist())
        return fb.mean(output)

    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 2))
    data = ArrayDataset(np.ones((8, 16), np.float32), np.zeros(8, np.int64))
    Learner(model, optim.SGD(model, lr=0.0), noted, batches_per_step=2, jit=False, log=None).fit(DataLoader(data, 4), epochs=1)
    assert drawn[-1] != drawn[-2]


@pytest.mark.parametrize(("at", "place"), turns_of([1, 3, 4, 6], Places))
def test_a_run_stopped_between_groups_resumes_with_the_same_bits(tmp_path: Path, place: str, at: int) -> None:
    def fresh(**options: Any) -> Learner:
        return learner("dict", strategy=Places[place](), batches_per_step=3, ema=0.9, **options)

    def read(**options: Any) -> tuple[DataLoader, DataLoader]:
        return loader("dict", 5, **options), loader("dict", 16)

    whole = fresh()
    whole.fit(*read(), epochs=3)
    stopped = fresh(out=tmp_path / "run")
    after_steps(stopped, lambda: stopped.interrupts.stop() if stopped.step == at else None)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(*read(), epochs=3, draw=False)
    assert stopped.step == at
    resumed = fresh(out=tmp_path / "run")
    resumed.resume()
    resumed.fit(*read(num_workers=2), epochs=3, draw=False)
    assert bits(resumed) == bits(whole)
    assert [(r.train_loss, r.train_accuracy, r.valid_loss) for r in resumed.history] == [
        (r.train_loss, r.train_accuracy, r.valid_loss) for r in whole.history
    ]


@pytest.mark.parametrize("at", [2, 3, 4, 7, 10])
def test_a_batch_that_fails_within_a_group_leaves_the_run_before_the_group(at: int) -> None:
    reads = 0

    class Fails(Samples):
        def __getitem__(self, index: int) -> Any:
            nonlocal reads
            reads += 1
            if reads == 5 * at - 2:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    whole = learner(batches_per_step=3)
    whole.fit(loader(batch=5), epochs=1)
    found = learner(batches_per_step=3)
    failing = DataLoader(Fails("tuple"), 5, shuffle=True, seed=2)
    with pytest.raises(fb.data.SampleError, match="the disk is gone"):
        found.fit(failing, epochs=1)
    assert found.step == max(at - 2, 0) // 3  # its first batch is read once before
    found.fit(loader(batch=5), epochs=1)
    assert bits(found) == bits(whole)
    assert found.history[0].train_loss == whole.history[0].train_loss


class Stream(IterableDataset):
    """Without a length."""

    def __iter__(self) -> Any:
        return ((X[i], int(Y[i])) for i in range(50))


@pytest.mark.parametrize("at", [2, 4])
def test_a_stream_without_a_length_is_grouped_and_resumed(tmp_path: Path, at: int) -> None:
    whole = learner(batches_per_step=3)
    whole.fit(DataLoader(Stream(), 5), epochs=2)
    assert whole.step == 8
    stopped = learner(batches_per_step=3, out=tmp_path / "run")
    after_steps(stopped, lambda: stopped.interrupts.stop() if stopped.step == at else None)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(DataLoader(Stream(), 5), epochs=2, draw=False)
    resumed = learner(batches_per_step=3, out=tmp_path / "run")
    resumed.resume()
    resumed.fit(DataLoader(Stream(), 5), epochs=2, draw=False)
    assert bits(resumed) == bits(whole)


def test_another_number_of_batches_a_step_is_reported_when_a_run_goes_on(tmp_path: Path) -> None:
    learner(batches_per_step=2).save(tmp_path / "saved")
    with pytest.warns(ResumeWarning, match="batches_per_step was 2 and is 3"):
        learner(batches_per_step=3).resume(tmp_path / "saved")


def test_a_step_of_the_users_gets_the_group() -> None:
    def loss(model: Any, x: Any, y: Any) -> Any:
        return fb.cross_entropy(model(x), y)

    seen: list[int] = []

    def step(minimizer: Any, group: Any) -> dict[str, Any]:
        assert isinstance(group, BatchGroup)
        seen.append(len(group))
        return {"again": minimizer.minimize(loss, group)}

    own = learner(drop=0.0, step=step, batches_per_step=3)
    rows = own.fit(loader(), epochs=1)
    plain = learner(drop=0.0, batches_per_step=3)
    plain.fit(loader(), epochs=1)
    assert seen == [3, 3, 1]
    np.testing.assert_allclose(values(own), values(plain), rtol=0, atol=1e-6)
    assert rows[0].metrics["train_again"] == pytest.approx(plain.history[0].train_loss, rel=1e-5)


def test_precision_and_callbacks_count_groups_as_steps() -> None:
    class Seen(fb.train.Callback):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            self.steps.append(step)
            assert values["gradient_norm"] > 0

    seen = Seen()
    made = learner(batches_per_step=2, precision="float16", clip_norm=1.0, callbacks=[seen])
    made.fit(loader(batch=5), epochs=1)
    assert seen.steps == [1, 2, 3, 4, 5]


def test_a_loss_over_the_labels_that_count_is_refused_in_groups() -> None:
    def ignoring(output: Any, target: Any) -> Any:
        return fb.cross_entropy(output, target, ignore_index=0)

    with pytest.raises(TrainingError, match="its loss is the mean of the losses of its rows"):
        learner(loss=ignoring, batches_per_step=2).fit(loader(), epochs=1)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_number_of_batches_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(fb.core.errors.ConfigError, match="batches_per_step"):
        learner(batches_per_step=wrong)


def test_synchronised_batch_norms_need_rows_of_each_batch_on_each_device() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    strategy = DataParallel(["cpu:0", "numpy:0"], [9.0, 1.0], batch_norm="synchronised")
    made = Learner(model, optim.SGD(model, lr=0.1), batches_per_step=3, strategy=strategy, log=None)
    with pytest.raises(TrainingError, match=r"meet in batch norms(?s:.*)batches of 24, 24, 2 rows(?s:.*)drop_last=True"):
        made.fit(DataLoader(ArrayDataset(X, Y), 24), epochs=1)
