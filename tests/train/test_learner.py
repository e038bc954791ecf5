"""A learner learns, says before the first step what cannot work, and keeps what is worth keeping."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.cli.runs import free_name
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import (
    Callback,
    Epoch,
    Learner,
    NonFiniteLossError,
    NothingTrainedWarning,
    SingleDevice,
    TrainingError,
    evaluate,
    load_checkpoint,
)
from firebrick.train.claim import claimed, is_claimed
from firebrick.train.readings import Readings

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]


def test_it_learns_and_says_how_well(make: Make, loaders: Loaders) -> None:
    learner = make()
    rows = learner.fit(*loaders, epochs=8)
    assert [r.epoch for r in rows] == list(range(1, 9))
    assert rows[-1].step == learner.step == 8 * 7
    assert rows[-1].train_loss < rows[0].train_loss / 2
    found = learner.evaluate(loaders[1])
    assert found.accuracy is not None
    assert found.accuracy > 0.9
    assert (found.loss, found.accuracy) == (rows[-1].valid_loss, rows[-1].valid_accuracy)
    assert found.samples == 20
    assert found.confusion is not None
    assert found.confusion.sum() == 20


def test_only_a_shared_evaluation_is_dealt_out_and_gathered_by_the_strategy(make: Make, loaders: Loaders) -> None:
    asked: list[str] = []

    class Recorded(SingleDevice):
        def deal(self, model: Any, loader: DataLoader) -> DataLoader:
            asked.append("deal")
            return super().deal(model, loader)

        def gather(self, found: Any) -> Any:
            asked.append("gather")
            return super().gather(found)

    learner = make(strategy=Recorded())
    alone = learner.evaluate(loaders[1])
    assert asked == []
    assert learner.evaluate(loaders[1], shared=True).loss == alone.loss
    assert asked == ["deal", "gather"]


def test_batches_of_anything_but_a_loader_are_refused(make: Make, loaders: Loaders) -> None:
    batches: Any = list(loaders[0])
    for use in (
        lambda: make().fit(batches, epochs=1),
        lambda: make().fit(loaders[0], batches, epochs=1),
        lambda: make().evaluate(batches),
    ):
        with pytest.raises(TrainingError, match=r"a DataLoader\nReceived: list\."):
            use()


def test_a_model_that_is_no_module_and_arguments_in_another_order_are_refused(loaders: Loaders) -> None:
    model = fb.nn.Linear(2, 2)
    for wrong in (lambda x: x, fb.optim.SGD(model, lr=0.1)):
        with pytest.raises(TrainingError, match=r"trains an nn\.Module(?s:.*)Learner\(model, optimizer, loss\)"):
            Learner(wrong, model)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match="batches come from a DataLoader"):
        evaluate(model, fb.cross_entropy, loaders[0])  # type: ignore[arg-type]


def test_the_loss_of_an_epoch_weighs_its_small_last_batch_by_its_samples(make: Make, net: Any) -> None:
    rng = np.random.default_rng(0)
    data = ArrayDataset(rng.normal(size=(9, 2)), rng.integers(0, 3, 9))
    learner = make(model=net(drop=0.0), lr=1e-12)  # so small a rate that the parameters stay
    row = learner.fit(DataLoader(data, 8), epochs=1)[0]
    x, y = DataLoader(data, 9).first()
    assert row.train_loss == pytest.approx(fb.cross_entropy(learner.predict(x), y).item(), rel=1e-5)


def test_a_plain_line_an_epoch_is_logged(make: Make, loaders: Loaders) -> None:
    lines: list[str] = []
    learner = make(log=lines.append)
    learner.fit(*loaders, epochs=2)
    assert len(lines) == 3
    assert lines[2].startswith("compiled in ")
    for word in ("epoch 2/2", "loss", "valid accuracy", "samples/s", "lr"):
        assert word in lines[1]


def test_fit_goes_on_to_the_epochs_asked_for_in_all(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.fit(*loaders, epochs=2)
    assert len(learner.fit(*loaders, epochs=3)) == 3


@pytest.mark.parametrize("epochs", [2, 1, 0])
def test_epochs_that_are_done_already_are_said_and_not_trained_again(make: Make, loaders: Loaders, epochs: int) -> None:
    learner = make()
    learner.fit(*loaders, epochs=2)
    before = bits_of(learner)
    with pytest.warns(NothingTrainedWarning, match=rf"fit\(epochs={epochs}\) trains nothing: 2 epochs are done") as said:
        assert len(learner.fit(*loaders, epochs=epochs)) == 2
    assert said[0].filename == __file__
    assert f"epochs={2 + max(epochs, 1)}" in str(said[0].message)
    assert bits_of(learner) == before
    with pytest.raises(fb.ConfigError, match="epochs"):
        learner.fit(*loaders, epochs=2.5)  # type: ignore[arg-type]
    with pytest.raises(fb.ConfigError, match="epochs"):
        learner.fit(*loaders, epochs=True)


def bits_of(learner: Learner) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in learner.model.state_dict().items()}


def test_the_callers_loader_and_mode_stay_as_they_were(make: Make, loaders: Loaders) -> None:
    before = loaders[0].cursor()
    learner = make()
    learner.model.eval()
    learner.fit(*loaders, epochs=1)
    assert loaders[0].cursor() == before
    assert not learner.model.training


def test_a_named_strategy_moves_model_optimizer_and_data(make: Make, loaders: Loaders) -> None:
    learner = make(strategy=SingleDevice("cpu:2"))
    rows = learner.fit(*loaders, epochs=2)
    assert {p.device.name for p in learner.model.parameters()} == {"cpu:2"}
    home = make().fit(*loaders, epochs=2)
    assert [r.train_loss for r in rows] == [r.train_loss for r in home]


def test_a_trained_optimizer_moves_with_its_state(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.fit(*loaders, epochs=1)
    other = Learner(learner.model, learner.optimizer, strategy=SingleDevice("cpu:3"), log=None)
    other.fit(*loaders, epochs=1)
    assert {t.device.name for t in learner.optimizer.state_dict()["moments"]["first"].values()} == {"cpu:3"}


def test_a_regression_has_no_accuracy(make: Make, net: Any) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    loader = DataLoader(ArrayDataset(x, x @ np.ones((2, 3))), 8)
    learner = make(loss=fb.mse_loss)
    rows = learner.fit(loader, loader, epochs=2)
    assert rows[-1].train_accuracy is None
    assert rows[-1].valid_loss is not None
    assert learner.evaluate(loader).confusion is None


# before the first step


def test_a_loader_on_another_device_is_found_before_the_first_step(make: Make, loaders: Loaders) -> None:
    learner = make()
    with pytest.raises(TrainingError, match="loader on cpu:1") as caught:
        learner.fit(loaders[0], loaders[1].to("cpu:1"), epochs=1)
    assert 'loader.to("cpu:0")' in str(caught.value)
    assert learner.step == 0


def test_a_parameter_on_another_device_is_named(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.model.dense2.to("cpu:1")
    with pytest.raises(TrainingError, match=r"dense2\.weight") as caught:
        learner.fit(*loaders, epochs=1)
    assert "cpu:1" in str(caught.value)


def test_an_optimizer_whose_moments_lie_elsewhere_is_named(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.fit(*loaders, epochs=1)
    for moments in learner.optimizer._moments.values():
        for name in moments:
            moments[name] = moments[name].to("cpu:1")
    with pytest.raises(TrainingError, match="optimizer's state"):
        learner.fit(*loaders, epochs=2)


def test_inputs_that_the_model_cannot_take_are_shown_with_the_loaders_name(make: Make) -> None:
    loader = DataLoader(ArrayDataset(np.zeros((6, 5)), np.zeros(6, int)), 3)
    with pytest.raises(TrainingError, match=r'loader "train" \(float32\[3, 5\] on cpu:0, int64\[3\] on cpu:0\)'):
        make().fit(loader, epochs=1)


def test_labels_out_of_range_are_found_before_the_first_step(make: Make) -> None:
    loader = DataLoader(ArrayDataset(np.zeros((6, 2)), np.full(6, 3)), 3)
    with pytest.raises(TrainingError, match=r"labels must lie in \[0, 3\)"):
        make().fit(loader, epochs=1)


def test_labels_out_of_range_in_a_later_batch_name_the_batch(make: Make) -> None:
    loader = DataLoader(ArrayDataset(np.zeros((6, 2)), np.array([0, 0, 0, 0, 7, 0])), 3)
    with pytest.raises(fb.OutOfRangeError, match='batch 1 of loader "train"'):
        make().fit(loader, epochs=1)


def test_floating_labels_and_batches_without_labels_are_refused(make: Make) -> None:
    with pytest.raises(TrainingError, match="integer dtype"):
        make().fit(DataLoader(ArrayDataset(np.zeros((6, 2)), np.zeros(6)), 3), epochs=1)
    with pytest.raises(TrainingError, match="target"):
        make().fit(DataLoader(ArrayDataset(np.zeros((6, 2))), 3), epochs=1)


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}, {"batches_per_step": 2}], ids=str)
def test_a_loss_that_is_no_scalar_is_refused(make: Make, loaders: Loaders, settings: dict[str, Any]) -> None:
    for loss, text in (
        (lambda output, target: output, 'Remedy: use reduction="mean"'),
        (lambda output, target: None, "Received: NoneType(.|\n)*return the tensor alone"),
        (lambda output, target: (fb.cross_entropy(output, target), 1), "Received: tuple"),
        (lambda output, target: fb.argmax(output), "Remedy: return a floating tensor"),
        (lambda output, target: fb.cross_entropy(output.detach(), target).item(), r"return the tensor, not its item\(\)"),
    ):
        with pytest.raises(TrainingError, match=rf"^the loss is one floating number(.|\n)*{text}"):
            make(loss=loss, **settings).fit(*loaders, epochs=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", None), ("loss", fb.mse_loss), ("clip_norm", 1.0), ("accumulate", 2), ("batches_per_step", 2),
        ("ema", 0.9), ("jit", False), ("target", "label"), ("callbacks", []),
    ],
)  # fmt: skip
def test_settings_are_assigned_between_two_fits(make: Make, loaders: Loaders, name: str, value: Any) -> None:
    class Assigns(Callback):
        def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
            setattr(learner, name, value)

    learner = make(callbacks=[Assigns()])
    with pytest.raises(TrainingError, match=f"learner.{name} stays as it is while fit runs(.|\n)*the next fit goes on with it"):
        learner.fit(*loaders, epochs=1)
    for wrong in ("nonsense", -1):
        if (name, wrong) != ("target", "nonsense"):
            with pytest.raises((TrainingError, fb.ConfigError)):
                setattr(learner, name, wrong)
    setattr(learner, name, optim.SGD(learner.model, lr=0.1) if name == "optimizer" else value)
    assert getattr(learner, name) or name in ("jit", "callbacks")


@pytest.mark.parametrize("name", ["model", "strategy", "precision", "metrics", "own_step"])
def test_what_a_learner_was_made_for_stays(make: Make, name: str) -> None:
    learner = make()
    with pytest.raises(TrainingError, match=f"learner.{name} stays as it was made(.|\n)*make another Learner"):
        setattr(learner, name, getattr(learner, name))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1), ("seed", 0.5), ("checkpoint_seconds", -1.0), ("checkpoint_seconds", float("nan")),
        ("checkpoint_seconds", "1"), ("patience", 0), ("keep", True), ("accumulate", True), ("jit", "no"),
        ("checkpoint_steps", 0),
    ],
)  # fmt: skip
def test_a_setting_that_means_nothing_is_refused_when_the_learner_is_made(make: Make, name: str, value: Any) -> None:
    with pytest.raises((fb.ConfigError, TrainingError), match=name):
        make(**{name: value})


def test_a_model_with_nothing_to_train_is_refused(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.model.freeze()
    with pytest.raises(TrainingError, match="unfreeze"):
        learner.fit(*loaders, epochs=1)
    model = nn.Sequential(nn.ReLU())
    with pytest.raises(TrainingError, match="Sequential has none"):
        Learner(model, None)


def test_the_trial_batch_changes_nothing(make: Make, loaders: Loaders) -> None:
    from firebrick.train.preflight import try_batch

    class Drawing(nn.Linear):  # in evaluation too
        def forward(self, x: Any) -> Any:
            return super().forward(x + fb.random.normal(x.shape))

    learner = make(model=Drawing(2, 3))
    fb.random.default_generator()  # which is made when it is first asked for
    before = str(fb.random.state())
    try_batch(learner.model, learner.loss, loaders[0], learner.strategy)
    assert str(fb.random.state()) == before
    assert learner.model.training


# a run directory


def test_metrics_are_written_each_epoch_for_people_and_programs(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    rows = make(out=tmp_path / "run").fit(*loaders, epochs=3, draw=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["train_loss"] for line in lines] == [r.train_loss for r in rows]
    with (tmp_path / "run" / "metrics.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [int(r["epoch"]) for r in table] == [1, 2, 3]
    assert float(table[2]["valid_accuracy"]) == rows[2].valid_accuracy
    assert float(table[2]["learning_rate"]) > 0
    assert float(table[2]["samples_per_second"]) > 0


def test_the_best_epoch_is_kept_apart(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    rows = make(out=tmp_path / "run").fit(*loaders, epochs=4, draw=False)
    best = max(rows, key=lambda r: (r.valid_accuracy or 0.0, -(r.valid_loss or 0.0)))
    assert load_checkpoint(tmp_path / "run" / "best").state["epoch"] == best.epoch
    assert load_checkpoint(tmp_path / "run").state["epoch"] == 4


def test_two_runs_at_once_never_share_a_directory(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with claimed(out):
        assert is_claimed(out)
        with pytest.raises(TrainingError, match="one run at a time"):
            make(out=out).fit(*loaders, epochs=1)
        assert free_name(out).name == "run-2"
    assert not is_claimed(out)
    assert free_name(out) == out
    make(out=out).fit(*loaders, epochs=1, draw=False)


def test_a_new_run_never_overwrites_another(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run").fit(*loaders, epochs=1, draw=False)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(TrainingError, match="overwrites nothing") as caught:
        make(out=tmp_path / "run").fit(*loaders, epochs=2, draw=False)
    assert "resume" in caught.value.remedy
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_figures_are_drawn_at_the_end(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    make(out=tmp_path / "run", class_names=["a", "b", "c"]).fit(*loaders, epochs=2)
    for name in ("curves.png", "confusion.png"):
        assert (tmp_path / "run" / name).read_bytes()[:4] == b"\x89PNG"


def test_without_matplotlib_a_note_says_how_to_get_it(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firebrick.train.figures.can_draw", lambda: False)
    lines: list[str] = []
    learner = make(out=tmp_path / "run", log=lines.append)
    learner.fit(*loaders, epochs=1)
    assert "firebrick[train]" in lines[-1]
    assert not list((tmp_path / "run").glob("*.png"))


# a loss that is lost


def test_a_loss_that_becomes_nan_stops_with_step_batch_and_remedy(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    learner = make(out=tmp_path / "run")
    learner.fit(*loaders, epochs=2, draw=False)
    good = load_checkpoint(tmp_path / "run").model["dense1.weight"].tobytes()
    learner.optimizer.learning_rate = optim.constant(1e38)
    with pytest.raises(NonFiniteLossError, match=r'(nan|inf) at step 1\d \(batch \d of loader "train", epoch 3\)') as caught:
        learner.fit(*loaders, epochs=3, draw=False)
    assert "learning rate" in caught.value.remedy
    assert str(tmp_path / "run" / "checkpoint") in caught.value.remedy
    assert load_checkpoint(tmp_path / "run").model["dense1.weight"].tobytes() == good


def test_where_reading_waits_losses_are_read_in_bulk_and_a_nan_still_names_its_step(
    make: Make, loaders: Loaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make(lr=1e38)
    reads: list[int] = []
    monkeypatch.setattr("firebrick.train.loop.HOST_ENGINES", ())
    real = Readings.read
    monkeypatch.setattr(Readings, "read", lambda self, *given: reads.append(learner.step) or real(self, *given))
    with pytest.raises(NonFiniteLossError, match=r"at step [23] "):
        learner.fit(*loaders, epochs=1)
    assert reads == [7]
