"""``firebrick predict``: what the model of a run sees in picture files, or says will follow a time series."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.cli import classification, forecasting, language
from firebrick.cli.images import ImageError, read_image
from firebrick.cli.messages import say_error
from firebrick.cli.reporting import FAILED, reported
from firebrick.cli.runs import load_run, task_of
from firebrick.data import ArrayDataset, DataLoader
from firebrick.data.datasets import DataError, read_series
from firebrick.functions.normalisation import softmax
from firebrick.nn import Module


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--device", help="Device that computes; `firebrick devices` lists them.")
@click.option("--best", is_flag=True, help="Take the epoch that did best on the validation data, not the last one.")
@reported
def predict(run: Path, files: tuple[Path, ...], device: str | None, best: bool) -> None:
    """Say what the model of RUN makes of each FILE: the class of a picture, or the rows that follow a time series.

    A picture is made grey and scaled to the size the model was trained on. Dark on light is inverted (its border decides),
    since the data sets are light on dark; what is shown should fill the picture as it does there. A picture that cannot be
    read is reported, the others are classified all the same, and the exit code is then 1.

    A time series is a CSV of the form that the model was trained on; its last rows are what the model sees. The forecast is
    written as a CSV, in the units of the series, with the dates that follow.
    """
    model, found = load_run(run, best=best, device=device)
    if task_of(found.config) is language:
        raise click.BadParameter(
            f"{run} is a language model: firebrick generate {run} --prompt TEXT goes on with a text", param_hint="RUN"
        )
    work = _forecast if task_of(found.config) is forecasting else _classify
    if not work(model, found.config, files, device):
        sys.exit(FAILED)


def _classify(model: Module, config: dict[str, Any], files: tuple[Path, ...], device: str | None) -> bool:
    """Print class and probabilities for each picture; False if one could not be read."""
    classes = config["class_names"]
    readable: list[Path] = []
    arrays = []
    for path in files:
        try:
            arrays.append(read_image(path, config["image_size"], config["pixel_max"]))
            readable.append(path)
        except ImageError as e:
            say_error(str(e))
    if arrays:
        loader = DataLoader(
            ArrayDataset(np.stack(arrays)), 64, device=device, name="pictures", transform=classification.pixels_of(config)
        )  # fmt: skip
        with no_grad():
            rows = np.concatenate([softmax(model(x)).numpy() for (x,) in loader])
        for path, row in zip(readable, rows, strict=True):
            top = int(row.argmax())
            click.echo(f"{path}: {classes[top]}  (probability {row[top]:.4f})")
            click.echo("  " + "  ".join(f"{name} {p:.4f}" for name, p in zip(classes, row, strict=True)))
    return len(readable) == len(files)


def _forecast(model: Module, config: dict[str, Any], files: tuple[Path, ...], device: str | None) -> bool:
    """Print the forecast that follows each series as a CSV; False if one could not be read."""
    good = True
    for path in files:
        try:
            raw = read_series(path)
            forecasting.check_series(raw, config, str(path))
            _check_length(len(raw), config, path)
        except DataError as e:
            say_error(str(e))
            good = False
            continue
        window = forecasting.scaled(config, raw.values[-config["look_back"] :])
        loader = DataLoader(ArrayDataset(window[None]), 1, device=device, name=path.name)
        with no_grad():
            rows = forecasting.unscaled(config, model(*loader.first()).numpy()[0])
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(["date", *raw.columns])
        for i, row in enumerate(rows):
            table.writerow([raw.start + (len(raw) + i) * raw.step, *(f"{v:.6g}" for v in row)])
    return good


def _check_length(rows: int, config: dict[str, Any], path: Path) -> None:
    if rows < config["look_back"]:
        raise DataError(f"{path}: expected at least the {config['look_back']} rows that the model sees; received {rows}.")
