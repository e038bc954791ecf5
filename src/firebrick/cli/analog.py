"""``firebrick analog``: response curves and fits of devices, training on analog hardware, drift and costs of a run."""

from __future__ import annotations

import math
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from firebrick import analog as hardware
from firebrick import optim, random
from firebrick.analog.drift_accuracy import TIMES
from firebrick.analog.fitting import DEFAULTS as FITTED
from firebrick.analog.pictures import check_picture
from firebrick.backends.registry import find_device
from firebrick.cli.analog_models import (
    ALGORITHMS,
    CLASSES,
    COMPENSATIONS,
    DEVICE_MODELS,
    HARDWARE_AWARE,
    NOISE_MODELS,
    analog_model,
    config_of,
    device_of,
    hardware_aware,
    optimizer_of,
)
from firebrick.cli.messages import NewFolder
from firebrick.cli.reporting import INTERRUPTED, reported
from firebrick.cli.runs import free_name, known, load_run, newest, run_config, task_of
from firebrick.core.errors import ConfigError
from firebrick.core.untrusted import json_of
from firebrick.functions.creation import ones
from firebrick.nn import Module
from firebrick.train import Learner, TrainingInterrupted, load_checkpoint

_DEFAULTS = {"digits": ("mlp", 20), "mnist": ("mlp", 3), "fashion-mnist": ("mlp", 5)}
"""Data set → model and epochs."""
_DEVICES = click.Choice([*DEVICE_MODELS, *CLASSES])
_PICTURE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def analog() -> None:
    """Simulated analog in-memory hardware: its devices, training on it, and inference over time."""


@analog.command()
@click.argument("device", type=_DEVICES)
@click.option("--pulses", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Pulses in each direction.")
@click.option("--devices", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many devices.")
@click.option("--cycles", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many times up and down.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides devices and noise.")
@click.option("--no-spread", is_flag=True, help="Devices are all alike.")
@click.option("--no-noise", is_flag=True, help="Pulses and reads have no noise.")
@click.option("--plot", type=_PICTURE, metavar="FILE", help="Draw the curves: a PNG, SVG or PDF.")
@click.option("--csv", "table", type=_PICTURE, metavar="FILE", help="Write the mean response, for `analog fit`.")
@reported
def response(
    device: str, pulses: int, devices: int, cycles: int, seed: int, no_spread: bool, no_noise: bool, plot: Path | None,
    table: Path | None,
) -> None:  # fmt: skip
    """Response of DEVICE, a preset or a class, to pulses up and then down."""
    if plot is not None:
        check_picture("--plot", plot)
    found = hardware.response(
        device_of(device), pulses, devices=devices, cycles=cycles, seed=seed, spread=not no_spread, noise=not no_noise
    )
    click.echo(str(found))
    if table is not None:
        click.echo(f"response   {found.save(table)}")
    if plot is not None:
        click.echo(f"picture    {found.plot(plot)}")


@analog.command()
@click.argument("device", type=_DEVICES)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--parameters", default=None, metavar="NAME,…", help="Settings that are fitted.  [default: dw_min,up_down,w_max,w_min]"
)
@click.option("--plot", type=_PICTURE, metavar="FILE", help="Draw the measured and the fitted response.")
@reported
def fit(device: str, file: Path, parameters: str | None, plot: Path | None) -> None:
    """Fit parameters of DEVICE to a measured response.

    FILE is a CSV with the columns direction (1 or -1) and weight, a row a pulse; a first row of direction 0 has
    the weight before the first pulse.
    """
    if plot is not None:
        check_picture("--plot", plot)
    names = FITTED if parameters is None else tuple(n.strip() for n in parameters.split(","))
    found = hardware.fit(device_of(device), file, parameters=names)
    click.echo(str(found))
    if plot is not None:
        click.echo(f"picture    {found.plot(plot)}")


@analog.command()
@click.argument("dataset", type=click.Choice(list(_DEFAULTS)))
@click.option(
    "--algorithm", type=click.Choice(list(ALGORITHMS)), default="sgd", show_default=True, help="How weights are trained."
)
@click.option(
    "--device-model", type=click.Choice([*DEVICE_MODELS, *NOISE_MODELS]),
    help="Devices; for hwa, hardware-aware training, a noise model.  [default: EcRam; hwa: pcm]",
)  # fmt: skip
@click.option(
    "--noise", type=click.FloatRange(0, 1), default=0.1, show_default=True, help="For hwa: noise of weights in training."
)
@click.option(
    "--from", "start", type=click.Path(exists=True, path_type=Path), metavar="RUN", help="Begin with a digital run's weights."
)
@click.option(
    "--model", "model_name", type=click.Choice(["mlp", "cnn", "lenet"]), help="Kind of model.  [default: mlp; the run's]"
)
@click.option("--epochs", type=click.IntRange(1), help="Epochs.  [default: digits: 20, mnist: 3, fashion-mnist: 5]")
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Samples a step.")
@click.option("--lr", type=click.FloatRange(0, min_open=True), help="Highest learning rate.  [default: 0.1; hwa: 0.003]")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides parameters, order, devices and pulses."
)
@click.option("--device", help="Device that computes; `firebrick devices` lists them.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with the data set's files, as published.")
@click.option("--out", type=NewFolder(), help="Run directory.  [default: runs/DATASET-analog-ALGORITHM]")
@click.option("--resume", is_flag=True, help="Go on with the run in the run directory, with the settings it was started with.")
@click.pass_context
@reported
def train(
    ctx: click.Context, dataset: str, algorithm: str, device_model: str | None, noise: float, start: Path | None,
    model_name: str | None, epochs: int | None, batch_size: int, lr: float | None, seed: int, device: str | None,
    data_dir: Path | None, out: Path | None, resume: bool,
) -> None:  # fmt: skip
    """Train a model on DATASET with its weights in tiles of devices.

    With hwa, weights are trained digitally, with noise; `firebrick analog drift` then measures the model over time.
    Convolutions and dense layers are analog, biases digital. `firebrick evaluate` and `predict` take the run.
    """
    for name, value in (("--lr", lr), ("--noise", noise)):
        if value is not None and not math.isfinite(value):
            raise click.BadParameter(f"{value} is not a finite number", ctx=ctx, param_hint=name)
    aware = algorithm == HARDWARE_AWARE
    usual = Path("runs") / f"{dataset}-analog-{algorithm}"
    goal, digital = find_device(device), None
    if resume:
        run = out or newest(usual)
        config = _started(ctx, dataset, run, epochs)
    else:
        chosen = {
            "algorithm": algorithm, "device_model": device_model or ("pcm" if aware else "EcRam"), "noise": noise, "seed": seed,
        }  # fmt: skip
        config_of(chosen)  # a device model that the algorithm has not is said before anything is read
        known_model, known_epochs = _DEFAULTS[dataset]
        model_settings: dict[str, Any] = {}
        if start is not None:
            digital, known_model, model_settings = _digital(start, dataset, model_name, device)
        config = run_config({
            "dataset": dataset, "model": model_name or known_model, "model_settings": model_settings,
            "batch_size": batch_size, "lr": lr or (0.003 if aware else 0.1), "seed": seed, "epochs": epochs or known_epochs,
            "analog": chosen, "data_dir": str(data_dir.resolve()) if data_dir else None,
        })  # fmt: skip
        config["title"] = f"{dataset}, {config['model']}, {algorithm} with {chosen['device_model']}"
        run = free_name(out or usual)
        if run.resolve() != (out or usual).resolve():
            click.echo(f"{out or usual} holds something already: this run goes to {run}")
    learner, training, validation, testing = _prepared(config, run, goal, digital)
    if resume:
        learner.resume()
        click.echo(f"resumed {run} after epoch {learner.epoch}, step {learner.step}")
    click.echo(f"{config['title']}: {training.samples:,} images to train, {testing.samples:,} to test, on {goal.name}")
    for row in hardware.mapping_report(learner.model):
        sizes = " + ".join(f"{a} x {b}" for a, b in row.tiles)
        click.echo(f"  {row.name:<20} {row.rows} x {row.columns} in tiles of {sizes}")
    try:
        learner.fit(training, validation, epochs=config["epochs"], draw=False)
    except TrainingInterrupted as e:
        again = f"firebrick analog train {dataset} --out {shlex.quote(str(run))} --resume"
        click.echo(f"{e}\ngo on with: {again}", err=True)
        ctx.exit(INTERRUPTED)
    found = learner.evaluate(testing)
    learner.draw(found, "test images")
    click.echo(f"checkpoint  {run / 'checkpoint'}")
    task_of(config).say_result(found)


def _digital(start: Path, dataset: str, model_name: str | None, device: str | None) -> tuple[Module, str, dict[str, Any]]:
    """The model of a digital run, its name and its settings."""
    digital, before = load_run(start, device=device)
    if "analog" in before.config or before.config["dataset"] != dataset:
        received, remedy = f"{start}, of {before.config['title']}", "train one: firebrick train"
        raise ConfigError(f"--from: a digital run of {dataset}", received, remedy)
    if model_name is not None and model_name != before.config["model"]:
        raise ConfigError("--from: a run of the model", f"{before.config['model']}, not {model_name}", "leave --model out")
    return digital, before.config["model"], before.config.get("model_settings") or {}


def _started(ctx: click.Context, dataset: str, run: Path, epochs: int | None) -> dict[str, Any]:
    """The config of a run to go on with."""
    given = [p for p in ctx.command.params if ctx.get_parameter_source(p.name or "") is ParameterSource.COMMANDLINE]
    fixed = [p.opts[0] for p in given if p.name not in ("dataset", "resume", "out", "epochs", "device", "debug")]
    if fixed:
        raise click.BadParameter(
            "a run goes on with the settings it was started with; leave it out", ctx=ctx, param_hint=fixed[0]
        )
    config = known(load_checkpoint(run))
    if not config.get("analog") or config["dataset"] != dataset:
        received = f"{run}, of {config['title']}"
        raise ConfigError(f"--resume goes on with an analog run of {dataset}", received, "choose another run with --out")
    if epochs is not None and epochs != config["epochs"]:
        text = f"the run was planned for {config['epochs']} epochs, over which its learning rate falls"
        raise click.BadParameter(text, ctx=ctx, param_hint="--epochs")
    return config


def _prepared(config: dict[str, Any], run: Path, goal: Any, digital: Module | None) -> tuple[Learner, Any, Any, Any]:
    """The learner of an analog run, and the loaders that train, validate and test."""
    task = task_of(config)
    training, validation = task.training_loaders(config, config["data_dir"], goal)
    testing = task.test_loader(config, config["data_dir"], goal)
    random.seed(config["seed"])
    model = analog_model(digital.train(), config["analog"]) if digital is not None else task.build_model(config).to(goal)
    rate = optim.cosine(config["lr"], config["epochs"] * len(training))
    learner = Learner(
        model, optimizer_of(model, config["analog"], rate), task.loss_of(config), out=run, seed=config["seed"], log=click.echo,
        config=config, class_names=task.names_of(config),
    )  # fmt: skip
    return learner, training, validation, testing


def _times(ctx: click.Context, parameter: click.Parameter, given: str | None) -> tuple[float, ...] | None:
    """Seconds, separated by commas."""
    if given is None:
        return None
    try:
        return tuple(float(text) for text in given.split(","))
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a list of seconds such as 1,3600,86400", ctx=ctx, param=parameter) from None


@analog.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--noise-model", type=click.Choice(list(NOISE_MODELS)), help="What programming and time do.  [default: the run's, or pcm]"
)
@click.option(
    "--compensation", type=click.Choice(list(COMPENSATIONS)), default="global", show_default=True, help="Drift compensation."
)
@click.option("--times", callback=_times, metavar="SECONDS,…", help="Seconds after programming.  [default: 1 s to 1 year]")
@click.option(
    "--repeats", type=click.IntRange(1, 10_000), default=25, show_default=True, help="How many times it is programmed."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides programming, drift and noise.")
@click.option("--device", help="Device that computes; `firebrick devices` lists them.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with the data set's files.  [default: the run's]")
@click.option("--plot", type=_PICTURE, metavar="FILE", help="Draw the accuracy over time: a PNG, SVG or PDF.")
@reported
def drift(
    run: Path, noise_model: str | None, compensation: str, times: tuple[float, ...] | None, repeats: int, seed: int,
    device: str | None, data_dir: Path | None, plot: Path | None,
) -> None:  # fmt: skip
    """Test accuracy of the model of RUN over time after its weights are programmed.

    RUN is of `firebrick analog train`, or a digital one of `firebrick train` on images.
    """
    if plot is not None:
        check_picture("--plot", plot)
    model, found = load_run(run, device=device)
    config, task = found.config, task_of(found.config)
    if not hasattr(task, "pixels_of"):
        raise ConfigError("a run on images", f"{run}, of {config['dataset']}", "choose another run")
    settings = config.get("analog") or {}
    aware = settings.get("algorithm") == HARDWARE_AWARE
    name = noise_model or (settings["device_model"] if aware else "pcm")
    tiles = hardware_aware(name, 0.0)
    tiles = replace(tiles, drift_compensation=COMPENSATIONS[compensation]())
    made = hardware.convert_for_inference(model, tiles, seed=seed).eval()
    folder = str(data_dir) if data_dir is not None else config.get("data_dir")
    loader = task.test_loader(config, folder, find_device(device))
    result = hardware.accuracy_over_time(
        made, loader, times or _usual_times(name), repeats=repeats, seed=seed, what="test accuracy"
    )
    click.echo(f"{found.path}: {config['title']}, {name}, drift compensation {compensation}")
    click.echo(str(result))
    if plot is not None:
        click.echo(f"picture    {result.plot(plot, label=config['title'])}")


def _usual_times(name: str) -> tuple[float, ...]:
    """The times from a second to a year that a noise model has."""
    model, found = NOISE_MODELS[name](), []
    for t in (*TIMES, 172800.0):
        try:
            model.check_time(t)
            found.append(t)
        except ConfigError:
            continue
    usual = sorted(found)
    return tuple(t for t in usual if t != 172800.0 or len(usual) < 5)


@analog.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--costs", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, metavar="FILE",
    help=f"JSON with figures for one operation: {', '.join(f.name for f in fields(hardware.OperationCosts))}.",
)  # fmt: skip
@reported
def estimate(run: Path, file: Path) -> None:
    """Energy, latency and area of the model of RUN for one image, from figures that you state."""
    names = [f.name for f in fields(hardware.OperationCosts)]
    try:
        given = json_of(file.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as e:
        raise ConfigError("--costs: a file with a JSON object", f"{file}: {e}", "correct it") from None
    if not isinstance(given, dict) or set(given) != set(names):
        received = ", ".join(map(str, given)) if isinstance(given, dict) else type(given).__name__
        raise ConfigError(f"--costs: an object with {', '.join(names)}", f"{file}: {received}"[:200], "correct the names")
    costs = hardware.OperationCosts(**given)
    model, found = load_run(run)
    config = found.config
    if "image_size" not in config:
        raise ConfigError("a run on images", f"{run}, of {config['dataset']}", "choose another run")
    if "analog" not in config:
        model = hardware.convert_for_inference(model, hardware_aware("pcm", 0.0), seed=0).eval()
    size = config["image_size"]
    click.echo(f"{found.path}: {config['title']}, one image")
    click.echo(str(hardware.estimate(model, ones((1, 1, size, size)), costs)))
