"""Forecasting from the command line: a series of the published length with a tiny model, and what its run leaves."""

import csv
import io
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import firebrick as fb
from firebrick.cli import forecasting
from firebrick.cli.forecasting import training_loaders
from firebrick.cli.main import main
from firebrick.train import Evaluation, load_checkpoint

Run = Callable[..., Result]
TINY = ("--look-back", 16, "--horizon", 4, "--batch-size", 1024, "--lr", 0.01, "--set", "patch=8", "--set", "dim=4",
        "--set", "heads=1", "--set", "hidden=4", "--set", "layers=1", "--set", "dropout=0.1")  # fmt: skip


def write_series(path: Path, rows: int = 14400, names: str = "load,oil") -> Path:
    hours = np.arange(rows)
    noise = np.random.default_rng(0).normal(size=(rows, 2)) * 0.1
    values = np.stack([np.sin(hours * 0.4), 30 + 5 * np.cos(hours * 0.25)], 1) + noise
    start = datetime(2016, 7, 1)
    lines = [f"{start + timedelta(hours=int(i))},{a:.5f},{b:.5f}" for i, (a, b) in enumerate(values)]
    path.write_text("\n".join([f"date,{names}", *lines]) + "\n")
    return path


@pytest.fixture(scope="session")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_series(tmp_path_factory.mktemp("series") / "series.csv")


@pytest.fixture(scope="session")
def finished(series: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("forecasting") / "run"
    arguments = ["train", "ett", "--model", "patchtst", "--data-dir", series, "--epochs", 3, "--out", out, *TINY]
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return out, result.output


@pytest.fixture
def trained(finished: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def results(output: str) -> list[str]:
    return [line for line in output.splitlines() if re.match(r"test (MSE|MAE) \d", line)]


def test_training_ends_with_the_errors_of_the_best_epoch(finished: tuple[Path, str], trained: Path, run: Run) -> None:
    output = finished[1]
    assert "8,621 windows to train, 2,877 to validate, 2,877 to test; patchtst with" in output
    assert re.fullmatch(r"test MSE \d\.\d{4}", output.splitlines()[-1])
    for name in ("checkpoint", "best", "metrics.csv", "curves.png", "forecast.png"):
        assert (trained / name).exists()
        assert name in output
    assert (trained / "forecast.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^forecast +\S+forecast\.png$", output, re.MULTILINE)
    assert not (trained / "confusion.png").exists()
    best = run("evaluate", trained, "--best")
    assert best.exit_code == 0, best.output
    assert results(best.output) == results(output)
    assert "2,877 test windows" in best.output


def test_metrics_are_errors_and_no_accuracy(trained: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((trained / "metrics.csv").read_text())))
    assert [r["epoch"] for r in rows] == ["1", "2", "3"]
    assert {"train_mse", "train_mae", "valid_mse", "valid_mae"} <= rows[0].keys()
    assert not {"train_accuracy", "valid_accuracy"} & rows[0].keys()
    losses = [float(r["valid_loss"]) for r in rows]
    assert losses[-1] < losses[0]
    assert float(rows[0]["valid_mse"]) == pytest.approx(losses[0], rel=1e-5)
    best = load_checkpoint(trained / "best")
    assert best.state["epoch"] == 1 + losses.index(min(losses))


def test_a_resumed_run_is_bit_identical_to_one_that_was_not_stopped(
    series: Path, trained: Path, run: Run, tmp_path: Path
) -> None:
    arguments = ("train", "ett", "--model", "patchtst", "--data-dir", series, *TINY, "--schedule", "constant")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(*arguments, "--epochs", 2, "--out", whole).exit_code == 0
    assert run(*arguments, "--epochs", 1, "--out", parts).exit_code == 0
    resumed = run("train", "ett", "--out", parts, "--resume", "--epochs", 2)
    assert resumed.exit_code == 0, resumed.output
    one, other = load_checkpoint(whole), load_checkpoint(parts)
    assert all(np.array_equal(one.model[n], other.model[n]) for n in one.model)
    refused = run("train", "ett", "--out", parts, "--resume", "--horizon", 8, "--set", "dim=8")
    assert refused.exit_code == 1
    assert "--horizon 8, and it has 4" in refused.output


def test_predict_writes_the_rows_that_follow_in_the_units_of_the_series(trained: Path, run: Run, tmp_path: Path) -> None:
    recent = write_series(tmp_path / "recent.csv", rows=40)
    result = run("predict", trained, recent, "--best")
    assert result.exit_code == 0, result.output
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert rows[0] == ["date", "load", "oil"]
    assert [r[0] for r in rows[1:]] == [str(datetime(2016, 7, 1) + timedelta(hours=40 + i)) for i in range(4)]
    oil = np.array([float(r[2]) for r in rows[1:]])
    assert np.all(np.abs(oil - 30) < 10)


def test_a_series_that_does_not_fit_the_model_is_refused(trained: Path, run: Run, tmp_path: Path) -> None:
    short = run("predict", trained, write_series(tmp_path / "short.csv", rows=10))
    assert short.exit_code == 1
    assert "expected at least the 16 rows" in short.output
    other = run("predict", trained, write_series(tmp_path / "other.csv", rows=40, names="oil,load"))
    assert other.exit_code == 1
    assert "load, oil, in this order" in other.output
    fine = write_series(tmp_path / "minutes.csv", rows=40)
    fine.write_text(re.sub(r"-(\d\d) (\d\d):00", r"-\1 00:\2", fine.read_text()[:800].rsplit("\n", 1)[0]))
    minutes = run("predict", trained, fine)
    assert minutes.exit_code == 1
    assert "expected rows 1:00:00 apart, as the model was trained on; received 0:01:00" in minutes.output


def test_other_data_are_refused_by_a_resumed_run_and_scaled_as_the_model_was_trained(
    trained: Path, run: Run, tmp_path: Path
) -> None:
    names, scaled = write_series(tmp_path / "names.csv", names="oil,load"), tmp_path / "scaled.csv"
    lines = write_series(tmp_path / "again.csv").read_text().splitlines()
    scaled.write_text("\n".join([lines[0], *(f"{a},{b},{float(c) * 2}" for a, b, c in (x.split(",") for x in lines[1:]))]))
    for path, what in ((names, "columns"), (scaled, "mean, std")):
        resumed = run("train", "ett", "--out", trained, "--resume", "--epochs", 4, "--data-dir", path)
        assert resumed.exit_code == 1
        assert f"data of other {what}.\n" in resumed.output
    refused = run("evaluate", trained, "--data-dir", names)
    assert refused.exit_code == 1
    assert "expected the series the model was trained on, load, oil" in refused.output
    own, other = run("evaluate", trained), run("evaluate", trained, "--data-dir", scaled)
    assert own.exit_code == other.exit_code == 0
    errors = [float(results(r.output)[1].split()[-1]) for r in (own, other)]
    assert errors[1] > 1.5 * errors[0]  # twice as far in the model's scale; in its own scale it would be as near


def test_the_recurrent_forecaster_trains_too(series: Path, run: Run) -> None:
    result = run("train", "ett", "--model", "lstm-forecaster", "--data-dir", series, "--epochs", 1, "--look-back", 8,
                 "--horizon", 2, "--batch-size", 2048, "--set", "hidden=4", "--out", "lstm")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert results(result.output)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("ett", "--model", "cnn"), "cnn is not for ett; choose one of lstm-forecaster, patchtst"),
        (("digits", "--model", "patchtst"), "patchtst is not for digits"),
        (("ett", "--augment", "flip"), "it is for images; leave it out for ett"),
        (("digits", "--horizon", 3), "it is for time series; leave it out for digits"),
        (("digits", "--set", "dim"), "is not NAME=VALUE"),
    ],
)
def test_options_for_the_other_kind_of_data_are_refused(run: Run, arguments: tuple[object, ...], text: str) -> None:
    result = run("train", *arguments)
    assert result.exit_code == 2
    assert text in re.sub(r"\s+", " ", result.output)


def test_a_setting_the_model_does_not_have_and_a_missing_file_are_said(run: Run, series: Path, tmp_path: Path) -> None:
    result = run("train", "ett", "--data-dir", series, "--set", "depth=2")
    assert result.exit_code == 2
    assert "patchtst has no depth; it has patch, stride," in re.sub(r"\s+", " ", result.output)
    gone = run("train", "ett", "--data-dir", tmp_path / "gone")
    assert gone.exit_code == 1
    assert "ETTh1.csv" in gone.output


def test_loaders_are_made_as_the_config_says(series: Path, trained: Path) -> None:
    config = {**load_checkpoint(trained / "checkpoint").config, "seed": 5}
    device, folder = fb.device("numpy:1"), str(series)
    for workers in (None, 2):
        training, validation = training_loaders({**config, "workers": workers}, folder, device)
        assert (training.num_workers, validation.num_workers) == (workers or 0, 0)
        assert (training.worker, training.keep_workers) == ("process", True)
    for size, larger in ((128, 256), (1024, 1024)):
        training, validation = training_loaders({**config, "batch_size": size}, folder, device)
        testing = forecasting.test_loader({**config, "batch_size": size}, folder, device)
        assert [(x.batch_size, x.seed, x.shuffle, x.name, x.device) for x in (training, validation, testing)] == [
            (size, 5, True, "train", device), (larger, 0, False, "validation", device), (larger, 0, False, "test", device),
        ]  # fmt: skip


def test_scaled_rows_come_back_in_their_own_units() -> None:
    config = {"mean": [1.0, -20.0], "std": [2.0, 0.5], "columns": ["oil", "temperature"]}
    rows = np.array([[3.0, -21.0], [1.0, -20.0]])
    scaled = forecasting.scaled(config, rows)
    assert (scaled.dtype, scaled.tolist()) == (np.float32, [[1.0, -2.0], [0.0, 0.0]])
    back = forecasting.unscaled(config, scaled)
    assert (back.dtype, back.tolist()) == (np.float64, rows.tolist())
    assert forecasting.names_of(config) == ["oil", "temperature"]


def test_what_is_said_of_a_series_is_in_its_units(capsys: pytest.CaptureFixture[str]) -> None:
    forecasting.say_parts({"columns": ["oil", "load"], "mean": [1.5, 20.0], "std": [2.0, 0.25]}, Evaluation(1.0, None, 8, None))
    assert capsys.readouterr().out.splitlines() == [
        "  oil   1 in scaled values is 2; its training mean is 1.5",
        "  load  1 in scaled values is 0.25; its training mean is 20",
    ]
