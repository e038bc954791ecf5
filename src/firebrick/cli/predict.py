"""``firebrick predict``: what the model of a run sees in picture files."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.cli.images import ImageError, read_image
from firebrick.cli.reporting import FAILED, reported, say_error
from firebrick.cli.runs import load_run, pixels_of
from firebrick.data import ArrayDataset, DataLoader
from firebrick.functions.neural import softmax


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="IMAGE...")
@click.option("--device", default=None, help="Device that computes; `firebrick devices` lists them.")
@click.option("--best", is_flag=True, help="Take the epoch that did best on the validation images, not the last one.")
@reported
def predict(run: Path, images: tuple[Path, ...], device: str | None, best: bool) -> None:
    """Say which class the model of RUN sees in each IMAGE, and the probability of every class.

    A picture is made grey and scaled to the size the model was trained on. Dark on light is inverted (its border decides),
    since the data sets are light on dark; what is shown should fill the picture as it does there. A picture that cannot be
    read is reported, the others are classified all the same, and the exit code is then 1.
    """
    model, found = load_run(run, best=best, device=device)
    config = found.config
    classes = config["class_names"]
    readable: list[Path] = []
    arrays = []
    for path in images:
        try:
            arrays.append(read_image(path, config["image_size"], config["pixel_max"]))
            readable.append(path)
        except ImageError as e:
            say_error(str(e))
    if arrays:
        loader = DataLoader(
            ArrayDataset(np.stack(arrays)), 64, device=device, name="pictures", transform=pixels_of(config)
        )  # fmt: skip
        with no_grad():
            rows = np.concatenate([softmax(model(x)).numpy() for (x,) in loader])
        for path, row in zip(readable, rows, strict=True):
            top = int(row.argmax())
            click.echo(f"{path}: {classes[top]}  (probability {row[top]:.4f})")
            click.echo("  " + "  ".join(f"{name} {p:.4f}" for name, p in zip(classes, row, strict=True)))
    if len(readable) < len(images):
        sys.exit(FAILED)
