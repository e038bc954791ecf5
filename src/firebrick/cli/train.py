"""``firebrick train``: a model on an image data set, from files to test accuracy."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from firebrick import models, optim, random
from firebrick.backends.registry import find_device
from firebrick.cli.reporting import INTERRUPTED, reported
from firebrick.cli.runs import build_model, free_name, known, newest, pixels_of, run_config
from firebrick.data import ArrayDataset, DataLoader, holdout
from firebrick.data.datasets import RawDataset, load, names
from firebrick.nn import Module
from firebrick.train import CheckpointError, Evaluation, Learner, SingleDevice, TrainingInterrupted, load_checkpoint
from firebrick.train.history import CSV

_HELD_OUT = 0.1  # share of the training images that validates
_LARGEST_BATCH = 256  # of validation and test, where no gradient needs memory


@dataclass(frozen=True)
class Defaults:
    """What is used for a data set where nothing else is said: model, number of epochs and highest learning rate."""

    model: str
    epochs: int
    lr: float


_DEFAULTS = {
    "digits": Defaults("cnn", 30, 3e-3),
    "mnist": Defaults("cnn", 3, 2e-3),
    "fashion-mnist": Defaults("cnn", 5, 2e-3),
}
_PARAMETERS = {"model": "model_name"}  # settings that are not called as the command's parameter is
_FIXED = {"model": "--model", "batch_size": "--batch-size", "lr": "--lr", "seed": "--seed"}  # for the whole of a run


def _each(setting: str) -> str:
    return ", ".join(f"{getattr(d, setting):g} for {n}" for n, d in _DEFAULTS.items())


@click.command()
@click.argument("dataset", type=click.Choice(names()))
@click.option("--model", "model_name", type=click.Choice(models.names()), help="Kind of model.  [default: cnn]")
@click.option("--device", default=None, help="Device that trains, such as cpu or torch:cuda:0; `firebrick devices` lists them.")
@click.option(
    "--epochs",
    type=click.IntRange(1),
    help=f"Epochs in all.  [default: {_each('epochs')}]",
)
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Images a step.")
@click.option("--lr", type=click.FloatRange(0, min_open=True), help=f"Highest learning rate.  [default: {_each('lr')}]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides parameters, order and dropout.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with the data set's files, as published.")
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/DATASET-MODEL]")
@click.option("--resume", is_flag=True, help="Go on with the run in the run directory, with the settings it was started with.")
@click.pass_context
@reported
def train(
    ctx: click.Context,
    dataset: str,
    model_name: str | None,
    device: str | None,
    epochs: int | None,
    batch_size: int,
    lr: float | None,
    seed: int,
    data_dir: Path | None,
    out: Path | None,
    resume: bool,
) -> None:
    """Train a model on DATASET and say how often it is right on the test images.

    A tenth of the training images, fixed by the seed, validates each epoch; the test images are used once, at the end, with
    the parameters of the last epoch. The learning rate rises over the first twentieth of the steps and then falls to 0 along
    half a cosine.

    A run never overwrites another: if the run directory holds something, a number is added to its name (runs/digits-cnn-2).
    --resume goes on with the newest of them, or with the run in --out. There, --epochs may be raised and --device changed;
    the other settings are those of the run.
    """
    find_device(device)  # an unknown one is said before anything is read
    defaults = _DEFAULTS[dataset]
    settings: dict[str, Any] = {
        "model": model_name or defaults.model,
        "batch_size": batch_size,
        "lr": lr or defaults.lr,
        "seed": seed,
        "epochs": epochs or defaults.epochs,
        "device": device,
        "data_dir": str(data_dir.resolve()) if data_dir else None,
    }
    usual = Path("runs") / f"{dataset}-{settings['model']}"
    before: dict[str, Any] = {}
    if resume:
        run = out or newest(usual)
        before = known(load_checkpoint(run))
        named = {k for k in settings if ctx.get_parameter_source(_PARAMETERS.get(k, k)) is ParameterSource.COMMANDLINE}
        _check_same(dataset, {k: settings[k] for k in _FIXED if k in named}, before, run)
        settings = {k: v if k in named else before.get(k) for k, v in settings.items()}
    folder = settings["data_dir"]
    raw, test = load(dataset, "train", folder), load(dataset, "test", folder)
    if not resume:
        run = free_name(out or usual)
        if run.resolve() != (out or usual).resolve():
            click.echo(f"{out or usual} holds something already: this run goes to {run}")
    learner, (training, validation, testing) = _prepare(run_config(raw, **settings), raw, test, run)
    if resume:
        learner.resume()
        click.echo(f"resumed {run} after epoch {learner.epoch}, step {learner.step}")
        if settings["epochs"] != before["epochs"]:
            learner.optimizer.learning_rate = _schedule(settings, len(training))
    try:
        learner.fit(training, validation, epochs=settings["epochs"], draw=False)
    except TrainingInterrupted as e:
        click.echo(f"{e}\ngo on with: firebrick train {dataset} --out {shlex.quote(str(run))} --resume", err=True)
        ctx.exit(INTERRUPTED)
    _conclude(learner, learner.evaluate(testing), run)


def _check_same(dataset: str, given: dict[str, Any], config: dict[str, Any], out: Path) -> None:
    wrong = [f"data set {dataset}, and it is of {config['dataset']}"] if dataset != config["dataset"] else []
    wrong += [f"{_FIXED[k]} {v}, and it has {config[k]}" for k, v in given.items() if config[k] != v]
    if wrong:
        raise CheckpointError(
            f"a run is resumed with the data set, model and settings it was started with ({out})",
            "; ".join(wrong),
            "leave these options out, or start a new run without --resume",
        )


def _schedule(config: dict[str, Any], batches: int) -> optim.Schedule:
    steps = config["epochs"] * batches
    return optim.cosine(config["lr"], steps, warmup=steps // 20)


def _prepare(config: dict[str, Any], raw: RawDataset, test: RawDataset, out: Path) -> tuple[Learner, tuple[DataLoader, ...]]:
    """The learner of a config, and the loaders that train, validate and test."""
    device, seed, size = find_device(config["device"]), config["seed"], config["batch_size"]
    pixels = pixels_of(config)
    kept, held = holdout(ArrayDataset(raw.images, raw.labels), _HELD_OUT, seed=seed)
    training = DataLoader(kept, size, shuffle=True, seed=seed, device=device, transform=pixels)
    large = max(size, _LARGEST_BATCH)
    validation = DataLoader(held, large, device=device, name="validation", transform=pixels)
    testing = DataLoader(ArrayDataset(test.images, test.labels), large, device=device, name="test", transform=pixels)
    random.seed(seed)
    model: Module = build_model(config).to(device)
    learner = Learner(
        model,
        optim.Adam(model, lr=_schedule(config, len(training))),
        strategy=SingleDevice(device),
        out=out,
        seed=seed,
        log=print,
        config=config,
        class_names=config["class_names"],
    )
    count = sum(p.size for _, p in model.named_parameters())
    click.echo(
        f"{config['dataset']}: {training.samples:,} images to train, {validation.samples:,} to validate, "
        f"{testing.samples:,} to test; {config['model']} with {count:,} parameters on {device}"
    )
    return learner, (training, validation, testing)


def _conclude(learner: Learner, found: Evaluation, out: Path) -> None:
    """Draw the figures, and say where everything lies; the last line is the test accuracy."""
    drawn = {path.name: path for path in learner.draw(found, "test images")}
    places = {
        "checkpoint": out / "checkpoint",
        "best epoch": out / "best",
        "metrics": out / CSV,
        "curves": drawn.get("curves.png"),
        "confusion matrix": drawn.get("confusion.png"),
    }
    for what, place in places.items():
        if place is not None:
            click.echo(f"{what:<18}{place}")
    click.echo(f"test loss {found.loss:.4f}")
    click.echo(f"test accuracy {found.accuracy:.4f}")
