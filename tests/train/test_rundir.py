"""A run directory keeps some checkpoints, passes over damaged ones by name, and is written while training goes on."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from after_steps import after_steps

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ConfigError
from firebrick.data import DataLoader
from firebrick.train import (
    CheckpointError,
    DamagedCheckpointError,
    DamagedCheckpointWarning,
    Learner,
    SingleDevice,
    TrainingError,
    load_checkpoint,
    save_checkpoint,
    writing,
)
from firebrick.train.checkpoint import Snapshot, checkpoints_of, take_snapshot
from firebrick.train.packing import tensors_of
from firebrick.train.rundir import RunDirectory

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]
ENGINES = ["numpy", "cpu", "torch:cpu"]


def moment(step: int) -> Snapshot:
    state = {"epoch": 0, "step": step}
    return take_snapshot(model={"w": fb.full((3,), float(step))}, optimizer={}, state=state, config={})


def opened(path: Path, *steps: int, keep: int = 2) -> RunDirectory:
    """A run directory with checkpoints of these steps."""
    run = RunDirectory(path, keep)
    run.open()
    for step in steps:
        run.save(moment(step))
    run.wait()
    return run


def steps_in(path: Path) -> list[int]:
    """The steps of what is there, newest first."""
    return [load_checkpoint(p).state["step"] for p in checkpoints_of(path)]


def damage(folder: Path, name: str = "model.safetensors") -> None:
    file = folder / name
    file.write_bytes(file.read_bytes()[:-1] + b"?")


# which stay


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_checkpoints_stay_and_no_more(tmp_path: Path, keep: int) -> None:
    opened(tmp_path / "run", 2, 4, 6, 8, keep=keep)
    assert steps_in(tmp_path / "run") == [8, 6, 4][:keep]
    assert load_checkpoint(tmp_path / "run").path == tmp_path / "run" / "checkpoint"


def test_the_best_one_stays_beside_them(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", 2)
    run.save(moment(4), best=True)
    for step in (6, 8, 10):
        run.save(moment(step))
    run.wait()
    assert load_checkpoint(tmp_path / "run" / "best").state["step"] == 4
    assert steps_in(tmp_path / "run") == [10, 8]


@pytest.mark.parametrize("keep", [0, -1, 1.5, None])
def test_keep_is_a_number_of_checkpoints(tmp_path: Path, keep: Any) -> None:
    with pytest.raises(ConfigError, match="keep is an int ≥ 1"):
        RunDirectory(tmp_path, keep)


def test_a_run_that_goes_on_from_an_earlier_checkpoint_drops_the_course_it_left(tmp_path: Path) -> None:
    opened(tmp_path / "run", 2, 4, 6, 8, keep=4)
    run = RunDirectory(tmp_path / "run", 4)
    run.adopt(load_checkpoint(tmp_path / "run" / "earlier" / "step-00000004"))
    run.open()
    run.save(moment(5))
    run.wait()
    assert steps_in(tmp_path / "run") == [5, 4, 2]


@pytest.mark.parametrize("name", ["checkpoint", "best"])
def test_a_users_file_in_a_runs_checkpoint_is_refused_before_the_first_step_and_at_each_save(tmp_path: Path, name: str) -> None:
    run = opened(tmp_path / "run", 2)
    run.save(moment(4), best=True)
    run.wait()
    notes = tmp_path / "run" / name / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(CheckpointError, match=r"other files: 'notes\.txt'"):
        run.open()
    run.save(moment(6), best=True)
    with pytest.raises(CheckpointError, match=r"other files: 'notes\.txt'"):
        run.wait()
    assert notes.read_text() == "mine"
    assert steps_in(tmp_path / "run") == [4, 2]
    notes.unlink()
    run.save(moment(8), best=True)
    run.wait()
    assert steps_in(tmp_path / "run") == [8, 4]


def test_an_earlier_checkpoint_with_a_users_file_stays_and_stops_no_run(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", 2, 4)
    (tmp_path / "run" / "earlier" / "step-00000002" / "notes.txt").write_text("mine")
    for step in (6, 8, 10):
        run.save(moment(step))
    run.wait()
    assert steps_in(tmp_path / "run") == [10, 8, 2]


# damaged ones


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path) -> None:
    opened(tmp_path / "run", 2, 4)
    damage(tmp_path / "run" / "checkpoint")
    with pytest.warns(
        DamagedCheckpointWarning, match=r"run/checkpoint is damaged \(model\.safetensors: other bytes.*step-00000002"
    ):
        found = load_checkpoint(tmp_path / "run")
    assert found.state["step"] == 2
    assert found.refused == (tmp_path / "run" / "checkpoint",)
    with pytest.raises(DamagedCheckpointError, match=r"model\.safetensors: other bytes"):  # asked for by its own name
        load_checkpoint(tmp_path / "run" / "checkpoint")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda newest: None, "run/checkpoint is missing: going on from .*step-00000002"),
        (lambda newest: newest.write_text("x"), "run/checkpoint is a file: move it away"),
        (lambda newest: newest.mkdir(), "run/checkpoint holds none of a checkpoint's files"),
    ],
)
def test_a_newest_checkpoint_that_is_gone_is_said(tmp_path: Path, change: Callable[[Path], Any], text: str) -> None:
    opened(tmp_path / "run", 2, 4)
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    change(tmp_path / "run" / "checkpoint")
    with pytest.warns(DamagedCheckpointWarning, match=text):
        assert load_checkpoint(tmp_path / "run").state["step"] == 2
    assert load_checkpoint(tmp_path / "run" / "earlier" / "step-00000002").state["step"] == 2  # which was asked for


def test_a_checkpoint_shows_itself_in_a_line(tmp_path: Path) -> None:
    path = save_checkpoint(
        tmp_path / "one", model={"w": fb.zeros((1000,))}, optimizer={"m": fb.ones(2)}, state={"epoch": 1, "step": 7}, config={}
    )
    assert repr(load_checkpoint(path)) == f"Checkpoint({str(path)!r}, epoch 1, step 7, 2 tensors of 4008 bytes)"


def test_a_checkpoint_whose_manifest_is_gone_is_no_less_damaged(tmp_path: Path) -> None:
    opened(tmp_path / "run", 2, 4)
    (tmp_path / "run" / "checkpoint" / "manifest.json").unlink()
    with pytest.warns(DamagedCheckpointWarning, match=r"manifest\.json: no such file"):
        assert load_checkpoint(tmp_path / "run").state["step"] == 2


def test_where_all_are_damaged_the_newest_is_named(tmp_path: Path) -> None:
    opened(tmp_path / "run", 2, 4)
    damage(tmp_path / "run" / "checkpoint", "state.json")
    damage(tmp_path / "run" / "earlier" / "step-00000002")
    with pytest.raises(DamagedCheckpointError, match=r"state\.json: other bytes"):
        load_checkpoint(tmp_path / "run")


@pytest.mark.filterwarnings("ignore::firebrick.train.DamagedCheckpointWarning")
@pytest.mark.parametrize("good", ["earlier/step-00000002", "checkpoint.old"])
def test_no_step_of_the_next_save_takes_the_good_one_away_for_a_damaged_one(tmp_path: Path, good: str) -> None:
    for number in range(40):
        path = tmp_path / f"{number}" / "run"
        opened(path, 2, 4)
        if good == "checkpoint.old":  # a crash left it, before it was removed
            (path / "earlier" / "step-00000002").rename(path / good)
        damage(path / "checkpoint")
        run = RunDirectory(path)
        run.adopt(load_checkpoint(path))
        run.open()
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, number)
            run.save(moment(6))
            try:
                run.wait()
                done = True
            except CheckpointError:
                done = False
        assert load_checkpoint(path).state["step"] in (2, 6)
        if done:
            assert steps_in(path) == ([6, 2] if "step" in good else [6])
            break
    else:
        pytest.fail("more steps than were tried")
    assert number > 15


def failing(patch: pytest.MonkeyPatch, number: int, code: int = errno.EIO) -> list[str]:
    """Let the n-th step of a write fail; returns the names of those that were begun."""
    names: list[str] = []
    real = writing.perform

    def perform(step: str, path: Path, *args: Any) -> None:
        names.append(step)
        if len(names) == number + 1:
            raise OSError(code, os.strerror(code), str(path))
        real(step, path, *args)

    patch.setattr(writing, "perform", perform)
    return names


@pytest.mark.filterwarnings("ignore::firebrick.train.DamagedCheckpointWarning")
def test_a_run_resumed_before_a_damaged_checkpoint_equals_the_whole_bit_for_bit(
    make: Make, loaders: Loaders, tmp_path: Path
) -> None:
    whole = make()
    whole.fit(*loaders, epochs=3)
    make(out=tmp_path / "run").fit(*loaders, epochs=2, draw=False)
    damage(tmp_path / "run" / "checkpoint")
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    assert resumed.epoch == 1
    resumed.fit(*loaders, epochs=3, draw=False)
    for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert [row.train_loss for row in resumed.history] == [row.train_loss for row in whole.history]
    assert steps_in(tmp_path / "run") == [21, 14]


def test_a_run_of_an_earlier_version_goes_on(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    make(out=tmp_path / "run", keep=1).fit(*loaders, epochs=2, draw=False)
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if p.is_dir()) == ["best", "checkpoint"]
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "run" / "checkpoint.old")  # as a crash between its renames left it
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    resumed.fit(*loaders, epochs=3, draw=False)
    assert steps_in(tmp_path / "run") == [21]


# in the background


class Held:
    """Holds the writer back until it may go on."""

    def __init__(self, patch: pytest.MonkeyPatch, at: str) -> None:
        self.reached, self.go = Event(), Event()
        real = writing.perform

        def perform(step: str, path: Path, *args: Any) -> None:
            if step == at:
                self.reached.set()
                assert self.go.wait(60)
            real(step, path, *args)

        patch.setattr(writing, "perform", perform)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Holds each write back before its first step."""
    holder = Held(monkeypatch, "make parent")
    yield holder
    holder.go.set()


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("jit", [True, False])
def test_steps_taken_while_a_checkpoint_is_written_do_not_reach_it(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, jit: bool
) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch")
    learner = make(out=tmp_path / "run", strategy=SingleDevice(device), checkpoint_steps=3, jit=jit, keep=9)
    holder = Held(monkeypatch, "make parent")
    taken: list[dict[str, bytes]] = []

    def stepped() -> None:
        if learner.step == 6:  # the snapshot of three steps ago is not written yet
            assert holder.reached.wait(60)
            assert not (tmp_path / "run" / "checkpoint").exists()
            holder.go.set()

    after_steps(learner, stepped)
    save = RunDirectory.save

    def saved(run: RunDirectory, snapshot: Snapshot, **kinds: Any) -> None:
        taken.append({n: a.tobytes() for n, a in {**snapshot.model, **snapshot.optimizer}.items()})
        save(run, snapshot, **kinds)

    monkeypatch.setattr(RunDirectory, "save", saved)
    learner.fit(loaders[0], epochs=1, draw=False)
    assert steps_in(tmp_path / "run") == [7, 6, 3]
    first = tmp_path / "run" / "earlier" / "step-00000003"
    written = {
        n: a for part in ("model", "optimizer") for n, a in tensors_of((first / f"{part}.safetensors").read_bytes()).items()
    }
    assert {n: a.tobytes() for n, a in written.items()} == taken[0]
    assert taken[0] != taken[1]


def test_the_next_save_waits_for_the_one_before(tmp_path: Path, held: Held) -> None:
    run = RunDirectory(tmp_path / "run")
    run.open()
    run.save(moment(2))
    assert held.reached.wait(60)
    assert not (tmp_path / "run" / "checkpoint").exists()
    held.go.set()
    run.save(moment(4))
    run.wait()
    assert steps_in(tmp_path / "run") == [4, 2]


def test_a_process_that_ends_ends_after_its_checkpoint(tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
import firebrick as fb
from firebrick.train import writing
from firebrick.train.checkpoint import take_snapshot
from firebrick.train.rundir import RunDirectory
real = writing.perform
writing.perform = lambda *step: time.sleep(0.02) or real(*step)
run = RunDirectory(sys.argv[1])
run.open()
run.save(take_snapshot(model={"w": fb.ones(3)}, optimizer={}, state={"step": 2}, config={}))
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert steps_in(tmp_path / "run") == [2]


# what goes wrong


def test_a_first_checkpoint_that_fails_keeps_no_other_one(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        names = failing(patch, -1)
        opened(tmp_path / "whole", 2)
    for step in ("write file", "sync directory", "rename new"):
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, names.index(step), errno.ENOSPC)
            with pytest.raises(CheckpointError) as caught:
                opened(tmp_path / step / "run", 2)
        assert f"in the step {step!r}" in caught.value.received
        assert "free space" in caught.value.remedy
        assert "is kept" not in caught.value.remedy


@pytest.mark.parametrize(("code", "text"), [(errno.ENOSPC, "free space"), (errno.EACCES, "writable"), (errno.EIO, "system")])
def test_each_step_that_fails_is_named_with_its_path_and_the_one_before_is_kept(tmp_path: Path, code: int, text: str) -> None:
    opened(tmp_path / "run", 2)
    with pytest.MonkeyPatch.context() as patch:
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        names = failing(patch, -1)  # none
        opened_again(tmp_path / "copy", 4)
    assert len(names) > 15
    for number, step in enumerate(names):
        path = tmp_path / f"{number}" / "run"
        shutil.copytree(tmp_path / "run", path)
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, number, code)
            with pytest.raises(CheckpointError) as caught:
                opened_again(path, 4)
        assert f"{os.strerror(code)}, in the step {step!r} of {path}" in caught.value.received
        assert text in caught.value.remedy
        assert caught.value.remedy.endswith("; the checkpoint before this one is kept")
        assert load_checkpoint(path).state["step"] == (4 if step in ("sync parent", "remove old") else 2)
        assert not list(path.glob(".*"))  # what was written so far takes no space
        opened_again(path, 6)
        assert load_checkpoint(path).state["step"] == 6


def opened_again(path: Path, step: int) -> None:
    """Save one more checkpoint in a run directory."""
    run = RunDirectory(path)
    run.save(moment(step))
    run.wait()


def test_a_full_disk_stops_the_run_at_its_next_step_and_keeps_the_checkpoint_before(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make(out=tmp_path / "run", checkpoint_steps=2)
    write = writing.STEPS["write file"]

    def full(file: Path, content: bytes) -> None:
        if (tmp_path / "run" / "checkpoint").exists():
            write(file, content[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        write(file, content)

    monkeypatch.setitem(writing.STEPS, "write file", full)
    with pytest.raises(CheckpointError, match=r"No space left on device, in the step 'write file' of .*model\.safetensors"):
        learner.fit(*loaders, epochs=2, draw=False)
    assert learner.step in (5, 6)  # the next one, or the next save
    monkeypatch.undo()
    assert steps_in(tmp_path / "run") == [2]
    whole = make()
    whole.fit(*loaders, epochs=2)
    resumed = make(out=tmp_path / "run")
    resumed.resume()
    resumed.fit(*loaders, epochs=2, draw=False)
    assert resumed.history[-1].train_loss == whole.history[-1].train_loss


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount file systems has a small one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full_keeps_the_checkpoint_before(small_disk: Path) -> None:
    run = opened(small_disk / "run", 2)
    large = take_snapshot(model={"w": fb.ones(100_000)}, optimizer={}, state={"step": 4}, config={})
    run.save(large)
    with pytest.raises(CheckpointError, match="No space left on device"):
        run.wait()
    run.save(moment(6))
    run.wait()
    assert steps_in(small_disk / "run") == [6, 2]


def test_the_last_checkpoints_error_is_raised_at_the_end(
    make: Make, loaders: Loaders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, *args: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setitem(writing.STEPS, "rename new", broken)
    with pytest.raises(CheckpointError, match=r"Read-only file system, in the step 'rename new'"):
        make(out=tmp_path / "run").fit(loaders[0], epochs=1, draw=False)


def test_an_error_of_the_run_is_raised_and_a_lost_checkpoint_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tmp_path / "run")
    failing(monkeypatch, 3)
    run.save(moment(2))
    with pytest.raises(ZeroDivisionError) as caught, run.writing():
        raise ZeroDivisionError
    assert "besides, the checkpoint" in caught.value.__notes__[0]


def test_a_directory_that_cannot_be_written_is_refused_before_the_first_step(
    make: Make, loaders: Loaders, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    places = [tmp_path / "file" / "run"]
    if os.geteuid() != 0:
        (tmp_path / "run").mkdir(mode=0o555)
        places.append(tmp_path / "run")
    if Path("/proc/self").is_dir():
        places.append(Path("/proc/self/run"))
    for place in places:
        learner = make(out=place)
        with pytest.raises(TrainingError, match="refuses") as caught:
            learner.fit(*loaders, epochs=1, draw=False)
        assert str(place) in str(caught.value)
        assert learner.step == 0


# elsewhere


@pytest.mark.parametrize(("here", "there"), [("cpu", "torch:cpu"), ("torch:cpu", "numpy:1"), ("numpy", "cpu:1")])
def test_a_run_goes_on_on_another_engine_with_the_same_order_and_dropout(
    make: Make, loaders: Loaders, tmp_path: Path, here: str, there: str
) -> None:
    pytest.importorskip("torch")
    make(out=tmp_path / "run", strategy=SingleDevice(here)).fit(*loaders, epochs=1, draw=False)
    whole = make(strategy=SingleDevice(here))
    whole.fit(*loaders, epochs=2)
    resumed = make(out=tmp_path / "run", strategy=SingleDevice(there))
    resumed.resume()
    resumed.fit(*loaders, epochs=2, draw=False)
    assert {str(p.device) for p in resumed.model.parameters()} == {str(fb.device(there))}
    assert resumed.history[-1].train_loss == pytest.approx(whole.history[-1].train_loss, rel=1e-4)


def test_a_run_in_float64_goes_on_on_more_devices_and_on_fewer(loaders: Loaders, tmp_path: Path) -> None:
    from firebrick.train import DataParallel

    def fresh(devices: list[str], out: Path | None) -> Learner:
        fb.random.seed(2)
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3)).astype(fb.float64)
        strategy = DataParallel(devices) if len(devices) > 1 else SingleDevice(devices[0])
        return Learner(model, optim.Adam(model, lr=0.01), strategy=strategy, out=out, seed=1, log=None)

    wide = DataLoader(loaders[0].dataset, 8, shuffle=True, seed=3, dtype="float64")
    whole = fresh(["cpu"], None)
    whole.fit(wide, epochs=3)
    for epochs, devices in enumerate((["cpu"], ["cpu:0", "numpy:0"], ["numpy:1"]), 1):
        learner = fresh(devices, tmp_path / "run")
        if epochs > 1:
            learner.resume()
        learner.fit(wide, epochs=epochs, draw=False)
    for a, b in zip(learner.model.parameters(), whole.model.parameters(), strict=True):
        assert abs(a.numpy() - b.numpy()).max() < 1e-10
