"""Ctrl-C and SIGTERM: each way of training finishes its step, saves, and goes on with the bits of a run left alone."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from after_steps import after_steps

from firebrick.data import DataLoader, workers
from firebrick.train import Callback, DataParallel, Learner, SingleDevice, TrainingInterrupted, load_checkpoint
from firebrick.train.interrupt import SIGNALS, Interrupts

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]

WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "as it is": dict,
    "on one device": lambda: {"strategy": SingleDevice("numpy:0")},
    "on two devices": lambda: {"strategy": DataParallel(["cpu:0", "numpy:0"])},
    "in parts": lambda: {"accumulate": 2},
    "without graphs": lambda: {"jit": False},
    "in float16": lambda: {"precision": "float16", "clip_norm": 1.0, "ema": 0.9},
}


def bits(learner: Learner) -> list[bytes]:
    return [p.numpy().tobytes() for p in learner.model.parameters()]


@pytest.mark.parametrize("way", WAYS)
def test_sigterm_finishes_the_step_and_saves(make: Make, loaders: Loaders, tmp_path: Path, way: str) -> None:
    whole = make(**WAYS[way]())
    whole.fit(*loaders, epochs=2)
    stopped = make(out=tmp_path / "run", **WAYS[way]())
    after_steps(stopped, lambda: os.kill(os.getpid(), signal.SIGTERM) if stopped.step == 4 else None)
    before = [signal.getsignal(s) for s in SIGNALS]
    with pytest.raises(TrainingInterrupted, match="stopped in epoch 1 after step 4; saved in"):
        stopped.fit(*loaders, epochs=2, draw=False)
    assert [signal.getsignal(s) for s in SIGNALS] == before
    assert load_checkpoint(tmp_path / "run").state["step"] == 4
    resumed = make(out=tmp_path / "run", **WAYS[way]())
    resumed.resume()
    resumed.fit(*loaders, epochs=2, draw=False)
    assert bits(resumed) == bits(whole)


def sigterm_to_all(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let a signal end this process's workers too, when the batch of this number is waited for."""
    receive, calls = workers.ProcessWorker.receive, count()

    def received(self: workers.ProcessWorker, peers: Any) -> Any:
        if next(calls) == at:
            for worker in peers:
                worker.process.kill()
            os.kill(os.getpid(), signal.SIGTERM)
            raise workers._Died(self)
        return receive(self, peers)

    monkeypatch.setattr(workers.ProcessWorker, "receive", received)


def test_sigterm_to_all_processes_of_a_run_saves_though_it_ends_the_workers(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, valid = loaders
    whole = make()
    whole.fit(train, valid, epochs=2)
    sigterm_to_all(monkeypatch, at=4)
    fed = DataLoader(train.dataset, 8, shuffle=True, seed=3, num_workers=2, worker="process", keep_workers=True)
    with pytest.raises(TrainingInterrupted):
        make(out=tmp_path / "run").fit(fed, valid, epochs=2)
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    assert resumed.step == 5  # one more, whose batch is made without workers
    resumed.fit(train, valid, epochs=2, draw=False)
    assert bits(resumed) == bits(whole)


def test_sigterm_during_a_validation_ends_its_workers_and_not_the_run_before_it_is_saved(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, valid = loaders
    whole = make()
    whole.fit(train, valid, epochs=2)
    sigterm_to_all(monkeypatch, at=1)
    fed = DataLoader(valid.dataset, 4, name="valid", num_workers=2, worker="process")
    with pytest.raises(TrainingInterrupted):
        make(out=tmp_path / "run").fit(train, fed, epochs=2)
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    assert resumed.epoch == 1
    assert resumed.history[0].valid_loss == pytest.approx(whole.history[0].valid_loss, rel=1e-6)
    resumed.fit(train, valid, epochs=2, draw=False)
    assert bits(resumed) == bits(whole)


def test_the_second_signal_is_that_of_before() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupts.pending
            assert heard == []
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == [signal.SIGTERM]
        assert not interrupts.pending
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_thread_beside_asks_for_a_stop_and_for_a_checkpoint(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    saved: list[int] = []

    class Noted(Callback):
        def on_checkpoint(self, learner: Learner, path: Path) -> None:
            saved.append(learner.step)

    learner = make(out=tmp_path / "run", callbacks=[Noted()])

    def stepped() -> None:
        asked = {2: learner.interrupts.save, 5: learner.interrupts.stop}.get(learner.step)
        if asked is not None:
            beside = threading.Thread(target=asked)
            beside.start()
            beside.join()

    after_steps(learner, stepped)
    with pytest.raises(TrainingInterrupted):
        learner.fit(*loaders, epochs=2, draw=False)
    assert saved == [2, 5]


def test_the_command_ends_at_sigterm_with_the_command_to_go_on_with(tmp_path: Path) -> None:
    options = ("train", "digits", "--model", "mlp", "--out", str(tmp_path / "run"), "--epochs", "100000")
    command = [sys.executable, "-u", "-c", "from firebrick.cli.main import main; main()", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 1/"):
                process.send_signal(signal.SIGTERM)
                break
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"go on with: firebrick train digits --out {tmp_path / 'run'} --resume" in errors
    assert load_checkpoint(tmp_path / "run").state["step"] > 0


def test_signals_are_handled_as_before_when_a_run_has_ended() -> None:
    before = [signal.getsignal(s) for s in SIGNALS]
    with Interrupts():
        assert all(signal.getsignal(s) != b for s, b in zip(SIGNALS, before, strict=True))
    assert [signal.getsignal(s) for s in SIGNALS] == before
