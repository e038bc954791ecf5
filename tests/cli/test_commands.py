"""What the commands do when all is well."""

import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import firebrick as fb
from firebrick.cli import classification, reporting, runs
from firebrick.cli.classification import AUGMENTATIONS, say_parts
from firebrick.data import SharedRowsWarning, UncheckedCursorWarning
from firebrick.data.datasets import DataError, load
from firebrick.graph import RecompileWarning
from firebrick.train import (
    DamagedCheckpointWarning,
    EagerTrainingWarning,
    Evaluation,
    FrozenTrainingWarning,
    NothingTrainedWarning,
    ResumeWarning,
    TrainingInterrupted,
    load_checkpoint,
)

Run = Callable[..., Result]


def last_accuracy(result: Result) -> float:
    match = re.fullmatch(r"test accuracy (\d\.\d{4})", result.stdout.splitlines()[-1])
    assert match, result.output
    return float(match[1])


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").output == f"firebrick {fb.__version__}\n"


def test_the_package_run_as_a_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "firebrick", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"firebrick {fb.__version__}\n"


def test_devices_marks_the_default_and_gives_reasons(run: Run) -> None:
    result = run("devices")
    assert result.exit_code == 0
    (default,) = [line for line in result.output.splitlines() if line.startswith("*")]
    assert default.split()[1] == fb.default_device().name
    for device in fb.devices():
        assert device.name in result.output
    for name, reason in fb.unavailable().items():
        assert name in result.output
        assert reason.split()[0] in result.output


def test_devices_shows_long_names_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = type(fb.device("numpy:0").backend)
    facts, name = backend.properties, "processor" * 40
    monkeypatch.setattr(backend, "properties", lambda self, device: {**facts(self, device), "name": name})
    shown = run("devices").output
    assert "processor" in shown
    assert "…" not in shown


def test_a_run_has_figures(trained: Path) -> None:
    for name in ("curves.png", "confusion.png"):
        assert (trained / name).read_bytes().startswith(b"\x89PNG")


def test_training_ends_with_the_test_accuracy_and_says_where_everything_lies(run: Run) -> None:
    result = run("train", "digits", "--model", "mlp", "--epochs", 6)
    assert result.exit_code == 0, result.output
    assert last_accuracy(result) > 0.85
    for name in ("checkpoint", "best", "metrics.csv", "curves.png", "confusion.png"):
        place = Path("runs/digits-mlp") / name
        assert place.exists()
        assert str(place) in result.output
    assert (Path("runs/digits-mlp") / "metrics.jsonl").exists()
    assert result.output.count("epoch ") >= 6


def test_the_same_seed_gives_the_same_accuracy_and_parameters(run: Run, trained: Path) -> None:
    result = run("train", "digits", "--model", "mlp", "--epochs", 4, "--out", "again", "--device", "cpu:1")
    assert result.exit_code == 0
    one, two = load_checkpoint(trained), load_checkpoint("again")
    assert all((one.model[n] == two.model[n]).all() for n in one.model)
    assert run("train", "digits", "--model", "mlp", "--epochs", 4, "--out", "numpy", "--device", "numpy:1").exit_code == 0
    other_engine = load_checkpoint("numpy").model
    for name, mine in one.model.items():  # rounding grows from step to step: to 150 eps here, on processors of three kinds
        assert np.abs(mine - other_engine[name]).max() <= 1024 * np.finfo(np.float32).eps * np.abs(mine).max(), name
    other = run("train", "digits", "--model", "mlp", "--epochs", 1, "--out", "other", "--seed", 1)
    assert other.exit_code == 0
    assert not (load_checkpoint("other").model["layers.1.weight"] == one.model["layers.1.weight"]).all()


def test_evaluate_repeats_the_accuracy_that_training_ended_with(run: Run) -> None:
    trained = run("train", "digits", "--model", "mlp", "--epochs", 2, "--out", "here")
    result = run("evaluate", "here", "--device", "cpu:1")
    assert result.exit_code == 0, result.output
    assert last_accuracy(result) == last_accuracy(trained)
    assert "359 test images" in result.output
    assert run("evaluate", "here", "--best").exit_code == 0
    assert last_accuracy(run("evaluate", "here/checkpoint")) == last_accuracy(trained)


def test_the_rate_of_a_class_is_a_share_of_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    say_parts({"class_names": ["cat", "mouse"]}, Evaluation(1.0, 0.5, 8, np.asarray([[3, 1], [3, 1]])))
    assert capsys.readouterr().out.splitlines() == ["  cat        3 of 4     0.7500", "  mouse      1 of 4     0.2500"]


def test_loaders_are_made_as_the_config_says() -> None:
    config = {
        "dataset": "digits", "seed": 5, "image_size": 8, "pixel_max": 16, "mean": 0.25, "std": 0.5, "augment": ["crop", "flip"],
    }  # fmt: skip
    device = fb.device("numpy:1")
    for size, larger in ((64, 256), (500, 500)):
        training, validation = classification.training_loaders({**config, "batch_size": size}, None, device)
        testing = classification.test_loader({**config, "batch_size": size}, None, device)
        assert [(x.batch_size, x.seed, x.shuffle, x.name, x.device, x.samples) for x in (training, validation, testing)] == [
            (size, 5, True, "train", device, 1294), (larger, 0, False, "validation", device, 144),
            (larger, 0, False, "test", device, 359),
        ]  # fmt: skip
        assert {(x.transform.pixel_max, x.transform.mean, x.transform.std) for x in (training, validation, testing)} == {
            (16, 0.25, 0.5)
        }
    assert [type(a).__name__ for a in training.augment] == ["RandomCrop", "RandomHorizontalFlip"]
    assert [AUGMENTATIONS["crop"](size).padding for size in (8, 28, 56)] == [1, 2, 4]
    assert (training.num_workers, training.worker, training.keep_workers) == (0, "process", True)
    more, _ = classification.training_loaders({**config, "batch_size": 64, "workers": 2}, None, device)
    assert more.num_workers == 2
    _, held = classification.training_loaders({**config, "batch_size": 64, "seed": 6}, None, device)
    assert held.dataset.indices.tolist() != validation.dataset.indices.tolist()


def test_a_second_run_gets_a_number_and_the_first_stays(run: Run, trained: Path) -> None:
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    result = run("train", "digits", "--model", "mlp", "--epochs", 1)
    assert result.exit_code == 0
    assert "this run goes to runs/digits-mlp-2" in result.output
    assert run("train", "digits", "--model", "mlp", "--epochs", 1).exit_code == 0
    assert Path("runs/digits-mlp-3/checkpoint").is_dir()
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before
    assert "resumed runs/digits-mlp-3" in run("train", "digits", "--model", "mlp", "--resume").output


def test_runs_are_numbered_and_the_newest_is_the_one_with_the_largest_number(tmp_path: Path) -> None:
    wanted = tmp_path / "digits-mlp"
    assert (runs.free_name(wanted), runs.newest(wanted)) == (wanted, wanted)
    assert runs.newest(tmp_path / "none" / "digits") == tmp_path / "none" / "digits"
    wanted.mkdir()
    assert runs.free_name(wanted) == wanted, "it is empty"
    (wanted / "a").touch()
    assert runs.free_name(wanted) == tmp_path / "digits-mlp-2"
    (tmp_path / "digits-mlp-2").touch()  # a file is no run, and is not free
    assert (runs.free_name(wanted), runs.newest(wanted)) == (tmp_path / "digits-mlp-3", wanted)
    for name in ("digits-mlp-9", "digits-mlp-10", "digits-mlp-x", "digits-mlp-11-2"):
        (tmp_path / name).mkdir()
    assert runs.newest(wanted) == tmp_path / "digits-mlp-10"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (fb.ConfigError("one", "two", "three"), 1, "error: one\nReceived: two.\nRemedy: three.\n"),
        (DataError("no such file"), 1, "error: no such file\n"),
        (
            FileNotFoundError(2, "No such file", "a.csv"),
            1,
            f"error: a.csv: No such file\n{reporting._REMEDY}\n",
        ),
        (OSError(28, "No space left"), 1, "error: No space left\n"),
        (OSError("plain"), 1, "error: plain\n"),
        (MemoryError(), 1, "error: MemoryError\n"),
        (TrainingInterrupted(None, 1, 2), 130, f"{TrainingInterrupted(None, 1, 2)}\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_an_error_ends_a_command_with_its_message_and_code(error: BaseException, code: int, said: str) -> None:
    @click.command()
    @reporting.reported
    def failing() -> None:
        raise error

    result = CliRunner().invoke(failing)
    assert (result.exit_code, result.stderr, result.stdout) == (code, said, "")
    shown = CliRunner().invoke(failing, ["--debug"])
    assert ("Traceback" in shown.stderr) == said.startswith("error")


def test_the_warnings_of_training_are_said_each_time() -> None:
    kinds = [
        fb.FallbackWarning, RecompileWarning, SharedRowsWarning, UncheckedCursorWarning, DamagedCheckpointWarning,
        EagerTrainingWarning, FrozenTrainingWarning, NothingTrainedWarning, ResumeWarning,
    ]  # fmt: skip

    @click.command()
    @reporting.reported
    def warning() -> None:
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        for kind in (*kinds, DeprecationWarning):
            for _ in range(2):
                warnings.warn("look out", kind, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert CliRunner().invoke(warning).stderr == "warning: look out\n" * 2 * len(kinds)


def test_resume_goes_on_to_more_epochs_with_the_runs_own_settings(run: Run, trained: Path) -> None:
    result = run("train", "digits", "--model", "mlp", "--resume", "--epochs", 6)
    assert result.exit_code == 0, result.output
    assert "resumed runs/digits-mlp after epoch 4" in result.output
    assert "epoch 5/6" in result.output
    assert "epoch 4/6" not in result.output
    assert "--epochs 6 after 4: the cosine learning rate now runs over 126 steps in place of 84" in result.output
    assert "warning" not in result.output
    assert load_checkpoint(trained).config["epochs"] == 6


def test_a_finished_run_resumed_only_tests_again(run: Run, trained: Path) -> None:
    result = run("train", "digits", "--resume", "--out", trained)
    assert result.exit_code == 0, result.output
    assert "epoch 5" not in result.output
    assert "all 4 epochs are done: nothing is trained; --epochs 5 or more trains on" in result.output
    assert "warning" not in result.output
    assert last_accuracy(result) == last_accuracy(run("evaluate", trained))


def test_fewer_epochs_than_are_done_say_nothing_of_a_schedule_that_no_step_follows(run: Run, trained: Path) -> None:
    result = run("train", "digits", "--resume", "--out", trained, "--epochs", 3)
    assert result.exit_code == 0, result.output
    assert "nothing is trained; --epochs 5 or more trains on" in result.output
    assert "now runs over" not in result.output
    assert "warning" not in result.output


def picture(path: Path, dark_on_light: bool, size: int, mode: str = "L", index: int = 0) -> int:
    Image = pytest.importorskip("PIL.Image")
    test = load("digits", "test")
    grey = (test.images[index].astype(np.int64) * 255 // 16).astype(np.uint8)
    image = Image.fromarray(255 - grey if dark_on_light else grey).resize((size, size), Image.Resampling.NEAREST)
    image.convert(mode).save(path)
    return int(test.labels[index])


def test_predict_reads_light_on_dark_dark_on_light_colour_and_any_size(run: Run, trained: Path) -> None:
    label = picture(Path("a.png"), dark_on_light=False, size=8)
    picture(Path("b.jpg"), dark_on_light=True, size=160, mode="RGB")
    picture(Path("c.png"), dark_on_light=True, size=24, mode="RGBA")
    result = run("predict", trained, "a.png", "b.jpg", "c.png")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split(":")[1].split()[0] for line in lines[0::2]] == [str(label)] * 3
    probabilities = [float(p) for p in lines[1].split()[1::2]]
    assert len(probabilities) == 10
    assert sum(probabilities) == pytest.approx(1.0, abs=1e-3)


def test_a_transparent_and_oblong_picture_is_laid_on_white_and_padded(run: Run, trained: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    from firebrick.cli.images import read_image

    image = Image.new("RGBA", (40, 80), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (10, 0, 30, 80))
    image.save("tall.png")
    found = read_image(Path("tall.png"), 8, 16)
    assert found.shape == (8, 8)
    assert found[:, 0].tolist() == found[:, -1].tolist() == [0] * 8
    assert found[4].tolist() == [0, 0, 0, 16, 16, 0, 0, 0]
    assert run("predict", trained, "tall.png").exit_code == 0


@pytest.mark.parametrize(
    ("pixels", "size", "pixel_max", "found"),
    [
        ([[0, 0, 0], [0, 255, 0], [0, 0, 0]], 3, 255, [[0, 0, 0], [0, 255, 0], [0, 0, 0]]),
        ([[255, 255, 255], [255, 0, 255], [255, 255, 255]], 3, 255, [[0, 0, 0], [0, 255, 0], [0, 0, 0]]),  # inverted
        ([[128, 128, 128], [128, 0, 128], [128, 128, 128]], 3, 255, [[127, 127, 127], [127, 255, 127], [127, 127, 127]]),
        ([[127, 127, 127], [127, 0, 127], [127, 127, 127]], 3, 255, [[127, 127, 127], [127, 0, 127], [127, 127, 127]]),
        ([[0, 100, 200, 255]], 4, 255, [[105] * 4, [255, 155, 55, 0], [105] * 4, [105] * 4]),  # padded with the border's median
        ([[20], [40], [60]], 3, 255, [[40, 20, 40], [40, 40, 40], [40, 60, 40]]),
        ([[0, 40], [80, 120]], 1, 255, [[60]]),  # the mean of what becomes one pixel
        ([[0, 16], [8, 24]], 2, 16, [[0, 1], [1, 2]]),
    ],
)
def test_a_picture_is_inverted_padded_and_scaled_pixel_by_pixel(
    tmp_path: Path, pixels: list[list[int]], size: int, pixel_max: int, found: list[list[int]]
) -> None:
    Image = pytest.importorskip("PIL.Image")
    from firebrick.cli.images import read_image

    Image.fromarray(np.array(pixels, np.uint8)).save(tmp_path / "a.png")
    read = read_image(tmp_path / "a.png", size, pixel_max)
    assert (read.dtype, read.tolist()) == (np.uint8, found)


def test_a_data_set_picture_comes_back_as_it_was(run: Run) -> None:
    from firebrick.cli.images import read_image

    picture(Path("a.png"), dark_on_light=True, size=64)
    assert (read_image(Path("a.png"), 8, 16) == load("digits", "test").images[0]).all()


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to a child there")
def test_ctrl_c_prints_the_resume_command_and_exits_with_130(run: Run) -> None:
    command = [sys.executable, "-c", "from firebrick.cli.main import main; main()"]
    child = subprocess.Popen(
        [*command, "train", "digits", "--model", "mlp", "--epochs", "500", "--out", "my run"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert child.stdout is not None
    while not child.stdout.readline().startswith("epoch 1/"):
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "firebrick train digits --out 'my run' --resume" in errors
    assert "Traceback" not in errors
    assert load_checkpoint("my run").state["step"] > 0
