"""Whatever a user gives, the answer is a message and an exit code, never a traceback; and nothing on disk is lost."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from firebrick.data.datasets import RawDataset, _sources
from firebrick.data.datasets import load as load_dataset
from firebrick.train import load_checkpoint

Run = Callable[..., Result]
FILES = {role: file.name for role, file in _sources.SOURCES["mnist"].files.items()}


def refused(result: Result, *texts: str, code: int = 1) -> None:
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.startswith("error: ")
    for text in texts:
        assert text in result.stderr


def test_an_unknown_device_lists_those_there_are(run: Run) -> None:
    refused(run("train", "digits", "--device", "tpu:0"), "'tpu'", "cpu, numpy")
    refused(run("train", "digits", "--device", "cpu:99"), "index 99")
    assert not Path("runs").exists()


def test_a_missing_data_directory_is_named(run: Run) -> None:
    refused(run("train", "mnist", "--data-dir", "nowhere"), "nowhere", "--data-dir")
    Path("empty").mkdir()
    refused(run("train", "fashion-mnist", "--data-dir", "empty"), "train-images-idx3-ubyte.gz")
    refused(run("train", "digits", "--data-dir", "empty"), "part of the package")
    assert not Path("runs").exists()


def test_a_file_with_a_wrong_checksum_is_named_with_both(run: Run) -> None:
    Path("data").mkdir()
    for name in FILES.values():
        (Path("data") / name).write_bytes(b"\x1f\x8b not what it should be")
    refused(run("train", "mnist", "--data-dir", "data"), "checksum", FILES["train-images"], "expected")


def test_a_truncated_idx_file_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("data").mkdir()
    for name in FILES.values():
        (Path("data") / name).write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(100))
    monkeypatch.setattr(_sources, "_verify", lambda *_: None)  # as if it had been published so
    refused(run("train", "mnist", "--data-dir", "data"), FILES["train-images"], "truncated", "7072 bytes")


def test_a_batch_size_of_zero_is_a_usage_error(run: Run) -> None:
    refused(run("train", "digits", "--batch-size", 0), "--batch-size", code=2)


@pytest.mark.parametrize("arguments", [["train", "cifar"], ["train", "digits", "--model", "rnn"], ["fly"], ["predict", "run"]])
def test_a_wrong_argument_is_a_usage_error(run: Run, arguments: list[str]) -> None:
    refused(run(*arguments), "Usage: ", code=2)


@pytest.mark.parametrize(
    "arguments", [["train", "digits"], ["analog", "train", "digits"], ["export", "web", "runs/digits-cnn"]], ids=lambda a: a[0]
)
def test_an_empty_path_is_not_taken_for_the_working_folder(run: Run, arguments: list[str]) -> None:
    Path("mine.txt").write_text("kept")
    refused(run(*arguments, "--out", ""), "--out", "a path has at least one character", code=2)
    assert [p.name for p in Path().iterdir()] == ["mine.txt"]


def test_a_learning_rate_that_is_too_high_stops_with_step_and_batch(run: Run) -> None:
    refused(
        run("train", "digits", "--model", "mlp", "--lr", "1e30"), "loss must stay finite", "batch ", "lower the learning rate"
    )


def test_labels_out_of_range_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(name: str, split: str, data_dir: object) -> RawDataset:
        raw = load_dataset(name, split)
        return RawDataset(**{**vars(raw), "labels": np.where(raw.labels == 9, 200, raw.labels).astype(np.uint8)})

    monkeypatch.setattr("firebrick.cli.classification.load", spoilt)
    refused(run("train", "digits", "--model", "mlp"), "labels must lie in [0, 10)", "200")


def cut(folder: Path) -> None:
    """Cut a file of a checkpoint in half."""
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def rewrite(folder: Path, **changes: object) -> None:
    """Change a checkpoint's manifest and its hash, as another version or another program would have written them."""
    text = json.dumps({**json.loads((folder / "manifest.json").read_text()), **changes})
    (folder / "manifest.json").write_text(text)
    (folder / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())


def test_checkpoints_cut_in_half_are_refused_by_every_command(run: Run, trained: Path) -> None:
    cut(trained / "checkpoint")
    for earlier in (trained / "earlier").iterdir():
        cut(earlier)
    Path("image.png").touch()
    for command in (
        ("evaluate", trained),
        ("predict", trained, "image.png"),
        ("train", "digits", "--resume", "--out", trained),
    ):
        refused(run(*command), "model.safetensors", "bytes instead of")
    assert run("evaluate", trained, "--best").exit_code == 0  # the other one still loads


def test_a_checkpoint_of_a_newer_format_asks_for_an_upgrade(run: Run, trained: Path) -> None:
    rewrite(trained / "checkpoint", format_version=7)
    refused(run("evaluate", trained), "format 7", "upgrade")


def test_a_checkpoint_of_another_model_is_refused(run: Run, trained: Path) -> None:
    refused(run("train", "digits", "--model", "cnn", "--resume", "--out", trained), "--model cnn, and it has mlp")
    refused(run("train", "mnist", "--resume", "--out", trained), "data set mnist, and it is of digits")
    rewrite(trained / "checkpoint", config={**load_checkpoint(trained).config, "model": "cnn"})
    refused(run("evaluate", trained), "must be of the model", "missing: conv1.weight")


def test_other_settings_on_resume_are_refused_and_nothing_is_lost(run: Run, trained: Path) -> None:
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    refused(run("train", "digits", "--resume", "--out", trained, "--lr", 1), "--lr 1.0, and it has 0.003")
    refused(run("train", "digits", "--resume", "--out", trained, "--seed", 4), "--seed 4")
    refused(run("train", "digits", "--resume", "--out", trained, "--weight-decay", 1), "1.0, and it has the default")
    refused(run("train", "digits", "--resume", "--out", trained / "best"), f"pass --out {trained.resolve()}")
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before


def test_where_there_is_no_run_the_error_says_so(run: Run, tmp_path: Path) -> None:
    refused(run("evaluate", "nowhere"), "nowhere, which does not exist")
    refused(run("train", "digits", "--resume"), "runs/digits-cnn")
    Path("bare").mkdir()
    refused(run("evaluate", "bare"), "holds nothing")


def test_a_checkpoint_from_elsewhere_is_told_apart(run: Run, trained: Path) -> None:
    rewrite(trained / "checkpoint", config={"model": "mine"})
    refused(run("evaluate", trained), "firebrick train", "config lacks dataset")


def test_an_unreadable_picture_is_reported_and_the_others_are_classified(run: Run, trained: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    Image.new("L", (20, 20)).save("good.png")
    Path("bad.png").write_text("no picture")
    Path("cut.png").write_bytes(Path("good.png").read_bytes()[:40])
    result = run("predict", trained, "bad.png", "good.png", "cut.png", "missing.png", ".")
    refused(result, "bad.png: no image of", "cut.png", "missing.png: no such file")
    assert result.stdout.startswith("good.png: ")


def test_a_run_directory_that_cannot_be_made_is_named(run: Run) -> None:
    Path("file").write_text("in the way")
    refused(run("train", "digits", "--model", "mlp", "--out", "file/run"), "file")
    assert Path("file").read_text() == "in the way"


def test_debug_shows_the_traceback_too(run: Run) -> None:
    result = run("train", "digits", "--device", "tpu:0", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "error: a device string begins with" in result.stderr


def test_a_frozen_parameter_is_one_line_of_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import firebrick as fb
    from firebrick.cli import classification

    real = classification.build_model

    def with_idle_layer(config: dict[str, object]) -> fb.nn.Module:
        model = real(config)
        model.idle = fb.nn.Linear(2, 2)
        return model

    monkeypatch.setattr(classification, "build_model", with_idle_layer)
    result = run("train", "digits", "--model", "mlp", "--epochs", 1)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("warning:")]
    assert "idle.weight, idle.bias has been missing" in line


def test_a_picture_whose_square_would_not_fit_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image = pytest.importorskip("PIL.Image")
    from firebrick.cli.images import ImageError, read_image

    Image.new("L", (40, 2)).save(tmp_path / "strip.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ImageError, match="padded to a square"):
        read_image(tmp_path / "strip.png", 8, 16)
