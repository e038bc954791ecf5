"""The kernels of other bits than the default's that a run used are part of its checkpoint; a resumed run uses them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.compiler.tune import choice
from firebrick.train import Checkpoint, Learner, load_checkpoint

FORCED = "kc=128"


@pytest.fixture(autouse=True)
def _nothing_pinned() -> Iterator[None]:
    choice.forget()
    yield
    choice.forget()


def learner(out: Path | None) -> Learner:
    fb.random.seed(3)
    model = nn.Sequential(nn.Linear(600, 24), nn.ReLU(), nn.Linear(24, 4))
    return Learner(model, optim.SGD(model, lr=0.1), nn.CrossEntropyLoss(), out=out)


def loader() -> fb.data.DataLoader:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((128, 600)).astype(np.float32)
    return fb.data.DataLoader(fb.data.ArrayDataset(x, rng.integers(0, 4, 128)), batch_size=64, shuffle=True, seed=1)


def weights(run: Learner) -> list[bytes]:
    return [t.numpy().tobytes() for t in run.model.state_dict().values()]


def trained(out: Path | None, epochs: int, then: Callable[[Learner], Any] = lambda run: None) -> Learner:
    run = learner(out)
    then(run)
    run.fit(loader(), epochs=epochs)
    return run


def test_a_resumed_run_has_the_kernels_of_the_run(tmp_path: Path) -> None:
    with fb.config.scope(deterministic=False):
        default = weights(trained(None, 2))
        with fb.force_variant(FORCED):
            whole = weights(trained(None, 2))
            trained(tmp_path, 1)
        assert whole != default, "these kernels have other bits"
        assert FORCED in load_checkpoint(tmp_path).state["kernels"].values()
        choice.forget()  # as another process would begin
        resumed = trained(tmp_path, 2, lambda run: run.resume())
    assert weights(resumed) == whole
    assert {c.reason for c in choice.choices() if c.variant == FORCED} == {"pinned, as in the run that is resumed"}


def test_a_run_without_such_kernels_is_resumed_without(tmp_path: Path) -> None:
    whole = weights(trained(None, 2))
    found = trained(tmp_path, 1)
    assert load_checkpoint(tmp_path).state["kernels"] == {}
    del found
    with fb.config.scope(deterministic=False):
        assert weights(trained(tmp_path, 2, lambda run: run.resume())) == whole


def test_names_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, 1)
    found = load_checkpoint(tmp_path)
    for kernels in ({"a problem": 3}, 7, ["x"]):
        found.state["kernels"] = kernels
        monkeypatch.setattr("firebrick.train.snapshots.load_checkpoint", lambda path: found)
        with pytest.raises(fb.train.CheckpointError):
            learner(tmp_path).resume()
    assert isinstance(found, Checkpoint)
