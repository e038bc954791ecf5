"""A run that was stopped gives the same bits as one that never was."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from after_steps import after_steps

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import DataLoader, IterableDataset
from firebrick.train import (
    Callback,
    Checkpoint,
    CheckpointError,
    Learner,
    ResumeWarning,
    TrainingError,
    TrainingInterrupted,
    load_checkpoint,
)

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]
TIMED = ("seconds", "samples_per_second")


def bits(learner: Learner) -> dict[str, bytes]:
    """Everything that the next step depends on."""
    state = learner.optimizer.state_dict()
    moments = {f"{m}.{n}": t for m, held in state["moments"].items() for n, t in held.items()}
    return {n: t.numpy().tobytes() for n, t in {**learner.model.state_dict(), **moments, "step": state["step"]}.items()}


def numbers(learner: Learner) -> list[dict[str, Any]]:
    return [{k: v for k, v in vars(row).items() if k not in TIMED} for row in learner.history]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_epochs_and_the_rest_resumed_equal_n_epochs_bit_for_bit(make: Make, loaders: Loaders, tmp_path: Path, k: int) -> None:
    whole = make()
    whole.fit(*loaders, epochs=5)
    make(out=tmp_path / "run").fit(*loaders, epochs=k, draw=False)
    resumed = make(out=tmp_path / "run")
    fb.random.seed(999)  # as in another process: nothing of the generators is left
    found = resumed.resume()
    assert isinstance(found, Checkpoint)
    assert found.model.keys() == resumed.model.state_dict().keys()
    resumed.fit(*loaders, epochs=5, draw=False)
    assert bits(resumed) == bits(whole)
    assert numbers(resumed) == numbers(whole)
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 6
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 5


def test_without_the_generators_state_the_bits_would_differ(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    whole = make()
    whole.fit(*loaders, epochs=3)
    make(out=tmp_path / "run").fit(*loaders, epochs=1, draw=False)
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    for generator in resumed.model.generators().values():  # the fault planted: dropout begins anew
        generator.set_state(fb.random.Generator(0).state())
    resumed.fit(*loaders, epochs=3, draw=False)
    assert bits(resumed) != bits(whole)


def stop(learner: Learner, at: int) -> Learner:
    """A learner that gets Ctrl-C during one of its steps."""
    return after_steps(learner, lambda: os.kill(os.getpid(), signal.SIGINT) if learner.step == at else None)


@pytest.mark.parametrize("at", [1, 3, 10, 14])
def test_ctrl_c_finishes_the_step_saves_and_a_resumed_run_equals_the_whole_bit_for_bit(
    make: Make, loaders: Loaders, tmp_path: Path, at: int
) -> None:
    whole = make()
    whole.fit(*loaders, epochs=3)
    stopped = stop(make(out=tmp_path / "run"), at)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(TrainingInterrupted, match="saved in") as caught:
        stopped.fit(*loaders, epochs=3, draw=False)
    assert signal.getsignal(signal.SIGINT) is before
    assert caught.value.step == stopped.step == at
    assert load_checkpoint(tmp_path / "run").state["step"] == at
    resumed = make(out=tmp_path / "run")
    fb.random.seed(999)
    resumed.resume()
    resumed.fit(*loaders, epochs=3, draw=False)
    assert bits(resumed) == bits(whole)
    assert numbers(resumed) == numbers(whole)


@pytest.mark.parametrize("at", [3, 10])
def test_fitting_on_after_ctrl_c_equals_the_whole_bit_for_bit(make: Make, loaders: Loaders, at: int) -> None:
    whole = make()
    whole.fit(*loaders, epochs=3)
    stopped = stop(make(), at)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(*loaders, epochs=3)
    stopped.fit(*loaders, epochs=3)
    assert bits(stopped) == bits(whole)
    assert numbers(stopped) == numbers(whole)


def spied(learner: Learner) -> list[int]:
    """The steps after which a learner saves."""
    saved: list[int] = []

    class Noted(Callback):
        def on_checkpoint(self, learner: Learner, path: Path) -> None:
            saved.append(learner.step)

    learner.callbacks = (*learner.callbacks, Noted())
    return saved


def test_a_long_epoch_is_saved_on_the_way(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    learner = make(out=tmp_path / "run", checkpoint_seconds=0.0)
    saved = spied(learner)
    learner.fit(loaders[0], epochs=1, draw=False)
    assert saved == [1, 2, 3, 4, 5, 6, 7]


def test_checkpoints_within_an_epoch_come_every_so_many_steps(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    learner = make(out=tmp_path / "run", checkpoint_steps=3)
    saved = spied(learner)
    learner.fit(loaders[0], epochs=2, draw=False)
    assert saved == [3, 6, 7, 10, 13, 14]


def test_the_rest_of_an_epoch_is_saved_on_the_way_too(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        stop(make(out=tmp_path / "run"), 2).fit(loaders[0], epochs=1, draw=False)
    learner = make(out=tmp_path / "run", checkpoint_steps=1)
    learner.resume()
    saved = spied(learner)
    learner.fit(loaders[0], epochs=1, draw=False)
    assert saved == [3, 4, 5, 6, 7]


class Endless(IterableDataset):
    """The points of a loader as a stream that does not say how many there are."""

    def __init__(self, loader: DataLoader) -> None:
        self.rows = [loader.dataset[i] for i in range(len(loader.dataset))]  # type: ignore[arg-type, index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


@pytest.mark.parametrize("at", [3, 7, 10])
def test_a_stream_without_a_length_trains_and_resumes_to_equal_bits(
    make: Make, loaders: Loaders, tmp_path: Path, at: int
) -> None:
    streams = DataLoader(Endless(loaders[0]), 8), loaders[1]
    plain = DataLoader(loaders[0].dataset, 8), loaders[1]
    whole, alike = make(), make()
    whole.fit(*streams, epochs=2)
    alike.fit(*plain, epochs=2)
    assert whole.step == 14
    assert bits(whole) == bits(alike)
    with pytest.raises(TrainingInterrupted):
        stop(make(out=tmp_path / "run"), at).fit(*streams, epochs=2, draw=False)
    resumed = make(out=tmp_path / "run")
    fb.random.seed(999)
    resumed.resume()
    resumed.fit(*streams, epochs=2, draw=False)
    assert bits(resumed) == bits(whole)
    assert numbers(resumed) == numbers(whole)


def test_a_run_goes_on_on_another_device(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    from firebrick.train import SingleDevice

    make(out=tmp_path / "run").fit(*loaders, epochs=1, draw=False)
    resumed = make(out=tmp_path / "run", strategy=SingleDevice("numpy:1"))
    resumed.resume()
    resumed.fit(*loaders, epochs=2, draw=False)
    assert {p.device.name for p in resumed.model.parameters()} == {"numpy:1"}


def test_the_schedule_and_the_optimizers_numbers_come_back(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    first = make(out=tmp_path / "run")
    first.fit(*loaders, epochs=2, draw=False)
    other = make(lr=123.0, out=tmp_path / "run")
    with pytest.warns(ResumeWarning, match=r"learning rate stays cosine\(lr=0\.05, .* and is not constant\(lr=123\.0\)"):
        other.resume()
    assert other.optimizer.learning_rate == first.optimizer.learning_rate
    assert other.optimizer.schedule == first.optimizer.schedule


def test_draws_from_the_devices_default_generator_go_on_where_they_were(loaders: Loaders, tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            self.dense = nn.Linear(2, 3)

        def forward(self, x: Any) -> Any:
            return self.dense(x + fb.random.normal(x.shape, mean=0.0, std=0.1) if self.training else x)

    def fresh(out: Path | None = None) -> Learner:
        fb.random.seed(0)
        model = Noisy()
        return Learner(model, optim.SGD(model, lr=0.1), out=out, log=None)

    whole = fresh()
    whole.fit(loaders[0], epochs=3)
    fresh(tmp_path / "run").fit(loaders[0], epochs=1, draw=False)
    resumed = fresh(tmp_path / "run")
    fb.random.seed(999)
    resumed.resume()
    resumed.fit(loaders[0], epochs=3, draw=False)
    assert resumed.model.dense.weight.numpy().tobytes() == whole.model.dense.weight.numpy().tobytes()


def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing(
    make: Make, loaders: Loaders, tmp_path: Path, net: Any
) -> None:
    make(out=tmp_path / "run", config={"hidden": 16}).fit(*loaders, epochs=1, draw=False)
    other = make(model=net(hidden=5), out=tmp_path / "run")
    before = bits(other)
    with pytest.raises(CheckpointError, match=r"dense1\.weight") as caught:
        other.resume()
    assert "hidden 16" in caught.value.remedy
    assert bits(other) == before


def test_data_of_another_size_are_refused_on_resume(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    stopped = stop(make(out=tmp_path / "run"), 3)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(*loaders, epochs=1, draw=False)
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    with pytest.raises(TrainingError, match="samples 50 saved, 40 found"):
        resumed.fit(loaders[0].slice(0, 40), epochs=1, draw=False)


def test_resume_from_nowhere_says_so(make: Make, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        make(out=tmp_path / "run").resume()
    with pytest.raises(fb.FirebrickError, match="pass the path"):
        make().resume()


def test_metrics_of_an_epoch_entered_in_the_middle_count_its_beginning(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    whole = make().fit(loaders[0], epochs=1)[0]
    stopped = stop(make(out=tmp_path / "run"), 5)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(loaders[0], epochs=1, draw=False)
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    row = resumed.fit(loaders[0], epochs=1, draw=False)[0]
    assert np.isclose(row.train_loss, whole.train_loss, rtol=0, atol=0)
    assert row.train_accuracy == whole.train_accuracy
