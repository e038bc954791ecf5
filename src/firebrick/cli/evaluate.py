"""``firebrick evaluate``: how the model of a run does on the test data."""

from __future__ import annotations

from pathlib import Path

import click

from firebrick.backends.registry import find_device
from firebrick.cli.reporting import reported
from firebrick.cli.runs import load_run, task_of
from firebrick.train import evaluate as evaluate_model


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--device", help="Device that computes; `firebrick devices` lists them.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with the data set's files.  [default: the run's]")
@click.option("--best", is_flag=True, help="Take the epoch that did best on the validation data, not the last one.")
@click.option(
    "--no-jit",
    is_flag=True,
    help="Run each operation as it comes, without graphs: slower; results are the same up to rounding.",
)
@reported
def evaluate(run: Path, device: str | None, data_dir: Path | None, best: bool, no_jit: bool) -> None:
    """Test the model of RUN, a run directory or checkpoint, on the test data of its data set."""
    model, found = load_run(run, best=best, device=device)
    config, task = found.config, task_of(found.config)
    folder = str(data_dir) if data_dir is not None else config.get("data_dir")
    loader = task.test_loader(config, folder, find_device(device))
    result = evaluate_model(model, loader, task.loss_of({**config, "label_smoothing": 0.0}), jit=not no_jit)
    click.echo(
        f"{found.path}: {config['title']}, {result.samples:,} test {task.SAMPLES} of {config['dataset']} on {loader.device}"
    )
    task.say_parts(config, result)
    task.say_result(result)
