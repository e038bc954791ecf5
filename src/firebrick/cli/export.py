"""``firebrick export``: the model of a run as files that run elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import numpy as np

from firebrick.cli import classification, forecasting, language
from firebrick.cli.messages import NewFolder
from firebrick.cli.reporting import reported, size_of
from firebrick.cli.runs import load_run, task_of
from firebrick.core.errors import TraceError, UnsupportedError
from firebrick.data.datasets import load

_DIGITS = [str(k) for k in range(10)]
_IN_PACKAGE = "digits"  # the data set that every installation has
_DEVICE = "numpy"


@click.group()
def export() -> None:
    """Write a trained model as files that run elsewhere."""


@export.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", "folder", required=True, type=NewFolder(), help="Folder to write; new or empty.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Samples of each run of the program.")
@click.option("--best", is_flag=True, help="Take the epoch that did best on the validation data, not the last one.")
@reported
def web(run: Path, folder: Path, batch: int, best: bool) -> None:
    """Write the model of RUN, a run directory or checkpoint, as a web page that runs it on the visitor's GPU by WebGPU.

    The folder holds the kernels (WGSL), a plan (JSON), the weights (safetensors), a JavaScript runtime and a page: for a
    model of handwritten digits one to draw digits on, else one that shows inputs and outputs. Serve it by HTTP:
    python -m http.server --directory DIR
    """
    from firebrick.functions.conversion import asarray
    from firebrick.interop import web as pages

    model, found = load_run(run, best=best, device=_DEVICE)
    config = found.config
    facts: dict[str, Any]
    if task_of(config) is forecasting:
        values = np.random.default_rng(0).normal(size=(batch, config["look_back"], len(config["columns"])))
        inputs, page, facts = [asarray(values.astype(np.float32), device=_DEVICE)], "plain", {}
    elif task_of(config) is language:
        tokens = np.random.default_rng(0).integers(0, config["vocabulary"], (batch, config["context"]))
        inputs, page, facts = [asarray(tokens, device=_DEVICE)], "plain", {}
    else:
        pictures = _pictures(config, batch)
        (pixels,) = classification.pixels_of(config)(pictures)
        drawn = batch == 1 and config["class_names"] == _DIGITS
        inputs, page, facts = [asarray(pixels, device=_DEVICE)], "digits" if drawn else "plain", _facts(config)
    title = config.get("title") or f"{config['dataset']}, {config['model']}"
    try:
        made = pages.export(model, inputs, folder, name=title, page=page, facts=facts)
    except TraceError as e:
        if not config.get("analog"):
            raise
        raise UnsupportedError(
            "a model that is written as a page computes its results from its inputs alone",
            f"{run}, of `firebrick analog train`, whose tiles read with noise",
            "export a digital run, of `firebrick train`",
        ) from e
    click.echo(
        f"{made.folder}: {title}, {made.launches} launches of {made.kernels} kernels, "
        f"weights {size_of(made.weight_bytes)}, memory of the GPU {size_of(made.buffer_bytes)}"
    )
    click.echo(f"serve it: python -m http.server --directory {shlex.quote(str(made.folder))}")


def _pictures(config: dict[str, Any], count: int) -> np.ndarray[Any, Any]:
    """Pictures for the self-test: of the test data where they are at hand, else random ones."""
    size = config["image_size"]
    if config["dataset"] == _IN_PACKAGE:
        images = load(_IN_PACKAGE, "test").images
        return np.resize(images, (count, *images.shape[1:]))
    return np.random.default_rng(0).integers(0, config["pixel_max"] + 1, (count, size, size)).astype(np.uint8)


def _facts(config: dict[str, Any]) -> dict[str, Any]:
    """What the page of digits needs to know."""
    found = {
        "classes": config["class_names"],
        "image_size": config["image_size"],
        "pixel_max": config["pixel_max"],
        "mean": config["mean"],
        "std": config["std"],
        "examples": [],
    }
    if config["dataset"] == _IN_PACKAGE:
        test = load(_IN_PACKAGE, "test")
        first = [int(np.flatnonzero(test.labels == k)[0]) for k in range(len(config["class_names"]))]
        found["examples"] = [
            {"label": config["class_names"][test.labels[i]], "pixels": test.images[i].reshape(-1).tolist()} for i in first
        ]
    return found
