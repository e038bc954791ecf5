"""``firebrick evaluate``: how often the model of a run is right on the test images."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from firebrick.cli.reporting import reported
from firebrick.cli.runs import load_run, pixels_of
from firebrick.data import ArrayDataset, DataLoader
from firebrick.data.datasets import load
from firebrick.train import evaluate as evaluate_model


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--device", default=None, help="Device that computes; `firebrick devices` lists them.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with the data set's files.  [default: the run's]")
@click.option("--best", is_flag=True, help="Take the epoch that did best on the validation images, not the last one.")
@reported
def evaluate(run: Path, device: str | None, data_dir: Path | None, best: bool) -> None:
    """Test the model of RUN, a run directory or checkpoint, on the test images of its data set."""
    model, found = load_run(run, best=best, device=device)
    config = found.config
    folder = data_dir or (Path(config["data_dir"]) if config.get("data_dir") else None)
    raw = load(config["dataset"], "test", folder)
    loader = DataLoader(
        ArrayDataset(raw.images, raw.labels), 256, device=device, name="test", transform=pixels_of(config)
    )  # fmt: skip
    result = evaluate_model(model, loader)
    assert result.confusion is not None
    click.echo(f"{found.path}: {config['title']}, {result.samples:,} test images of {config['dataset']} on {loader.device}")
    width = max(map(len, config["class_names"]))
    right, total = np.diag(result.confusion), result.confusion.sum(1)
    for name, hits, count in zip(config["class_names"], right, total, strict=True):
        click.echo(f"  {name:<{width}}  {hits:>5} of {count:<5} {hits / max(count, 1):.4f}")
    click.echo(f"test loss {result.loss:.4f}")
    click.echo(f"test accuracy {result.accuracy:.4f}")
