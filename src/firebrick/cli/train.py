"""``firebrick train``: a model on a data set or a text, from files to its result on the test data."""

from __future__ import annotations

import math
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from firebrick import models, optim, random
from firebrick.cli import language
from firebrick.cli.classification import AUGMENTATIONS
from firebrick.cli.dashboard import Dashboard, dashboard_for
from firebrick.cli.messages import NewFolder
from firebrick.cli.placing import DISTRIBUTED, PLACES, STRATEGIES, chosen, say, strategy_of
from firebrick.cli.profiling import STEPS, FirstSteps
from firebrick.cli.reporting import INTERRUPTED, reported
from firebrick.cli.runs import free_name, known, newest, run_config, task_name, task_of
from firebrick.core.errors import ConfigError
from firebrick.core.untrusted import json_of
from firebrick.data import DataLoader
from firebrick.data.datasets import names, series_names
from firebrick.distributed import rank, world_size
from firebrick.nn import Module
from firebrick.train import (
    CheckpointError,
    DamagedCheckpointWarning,
    Evaluation,
    Learner,
    NothingTrainedWarning,
    TrainingInterrupted,
    load_checkpoint,
)
from firebrick.train.checkpoint import BEST, is_checkpoint
from firebrick.train.history import CSV
from firebrick.train.records import EVENTS


@dataclass(frozen=True)
class Defaults:
    """What is used for a data set where nothing else is said."""

    model: str
    epochs: int
    lr: float
    batch_size: int = 64
    schedule: str = "cosine"


_DEFAULTS = {
    "digits": Defaults("cnn", 30, 3e-3),
    "mnist": Defaults("cnn", 3, 2e-3),
    "fashion-mnist": Defaults("cnn", 5, 2e-3),
    "ett": Defaults("patchtst", 20, 1e-4, 128, "flat-cosine"),
    language.TEXT: Defaults("gpt", 10, 2e-3, 32),
}
_BEFORE: dict[str, Any] = {  # what runs of earlier versions were trained with, where their config does not say
    "schedule": "cosine", "optimizer": "adam", "weight_decay": None, "label_smoothing": 0.0, "augment": [],
    "model_settings": {}, "look_back": None, "horizon": None, "strategy": "single", "devices": None, "shares": None,
    "context": None, "stride": None, "tokenizer": None,
    "accumulate": 1, "workers": 0, "precision": None, "events": False, "record_every": None, "checkpoint_steps": None,
    "keep": 2,
}  # fmt: skip
_PARAMETERS = {"model": "model_name", "model_settings": "assignments"}  # settings that their parameter is not called after
_FIXED = {  # for the whole of a run
    "model": "--model", "batch_size": "--batch-size", "lr": "--lr", "seed": "--seed", "schedule": "--schedule",
    "optimizer": "--optimizer", "weight_decay": "--weight-decay", "label_smoothing": "--label-smoothing",
    "augment": "--augment", "model_settings": "--set", "look_back": "--look-back", "horizon": "--horizon",
    "context": "--context", "stride": "--stride", "tokenizer": "--tokenizer",
    "accumulate": "--accumulate", "precision": "--precision",
}  # fmt: skip
_ONLY = {  # options that are for one kind of data, and what it is called
    "classification": ("images", ("label_smoothing", "augment")),
    "forecasting": ("time series", ("look_back", "horizon")),
    "language": ("text", ("file", "context", "stride", "tokenizer")),
}


def _flat_cosine(lr: float, steps: int) -> optim.Schedule:
    """The same rate for three fifths of the steps, then half a cosine down to 0."""
    flat = max(1, steps * 3 // 5)
    return optim.sequential((optim.constant(lr), optim.cosine(lr, max(1, steps - flat))), milestones=(flat,))


_SCHEDULES: dict[str, Callable[[float, int], optim.Schedule]] = {
    "cosine": lambda lr, steps: optim.cosine(lr, steps, warmup=steps // 20),
    "one-cycle": lambda lr, steps: optim.one_cycle(lr, steps),
    "flat-cosine": _flat_cosine,
    "constant": lambda lr, steps: optim.constant(lr),
}
_OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "adam": lambda model, lr, decay: optim.Adam(model, lr, weight_decay=decay or 0.0),
    "adamw": lambda model, lr, decay: optim.AdamW(model, lr, weight_decay=0.01 if decay is None else decay),
    "sgd": lambda model, lr, decay: optim.SGD(model, lr, momentum=0.9, nesterov=True, weight_decay=decay or 0.0),
}


def _each(setting: str) -> str:
    return ", ".join(f"{n}: {getattr(d, setting)}" for n, d in _DEFAULTS.items())


def _assignments(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """``NAME=VALUE`` pairs; a value that is JSON (a number, true, [64, 32]) is read as such, any other is text."""
    out: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx=ctx, param=parameter)
        if name in out:
            raise click.BadParameter(f"{name} is given twice", ctx=ctx, param=parameter)
        try:
            out[name] = json_of(value)
        except ValueError:
            out[name] = value
    return out


@click.command()
@click.argument("dataset", type=click.Choice([*names(), *series_names(), language.TEXT]))
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--model",
    "model_name",
    type=click.Choice([*models.names(), *models.registry.ALIASES]),
    help=f"Kind of model.  [default: {_each('model')}]",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    callback=_assignments,
    metavar="NAME=VALUE",
    help="A model's own setting, as JSON or text: 'hidden=[64, 32]'.",
)
@click.option("--device", help="Device that trains, such as cpu or torch:cuda:0; `firebrick devices` lists them.")
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    help="Where steps run; distributed: over the processes of a launcher.  [default: by --devices, and by the launcher]",
)
@click.option("--devices", metavar="DEVICE,…", help="Devices that share each batch, such as cpu:0,torch:cuda:0.")
@click.option(
    "--shares", metavar="SHARES", help='How they share it: "even", "measured", or numbers such as 0.7,0.3.  [default: even]'
)
@click.option(
    "--workers", type=click.IntRange(0, 256), default=0, help="Processes that make training batches ahead.  [default: 0]"
)
@click.option("--accumulate", type=click.IntRange(1), default=1, show_default=True, help="Parts a batch is run in, for memory.")
@click.option(
    "--precision", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32", show_default=True,
    help="What the model computes in while it trains; parameters and evaluation are float32.",
)  # fmt: skip
@click.option("--epochs", type=click.IntRange(1), help=f"Epochs in all.  [default: {_each('epochs')}]")
@click.option(
    "--steps", type=click.IntRange(1), help="Stop once so many steps of the run are done; --resume goes on.  [default: never]"
)
@click.option("--batch-size", type=click.IntRange(1), help=f"Samples a step.  [default: {_each('batch_size')}]")
@click.option("--lr", type=click.FloatRange(0, min_open=True), help=f"Highest learning rate.  [default: {_each('lr')}]")
@click.option(
    "--schedule",
    type=click.Choice(list(_SCHEDULES)),
    help=f"Course of the learning rate.  [default: {_each('schedule')}]",
)
@click.option("--optimizer", type=click.Choice(list(_OPTIMIZERS)), default="adam", show_default=True, help="How it updates.")
@click.option("--weight-decay", type=click.FloatRange(0), help="Weight decay of the optimizer.  [default: 0; adamw: 0.01]")
@click.option("--label-smoothing", type=click.FloatRange(0, 1), default=0.0, help="For images: share spread over all classes.")
@click.option(
    "--augment",
    multiple=True,
    type=click.Choice(list(AUGMENTATIONS)),
    help="For images: a random change of each training image; may be given several times.",
)
@click.option("--look-back", type=click.IntRange(1), default=336, show_default=True, help="For series: rows that are seen.")
@click.option("--horizon", type=click.IntRange(1), default=96, show_default=True, help="For series: rows that are predicted.")
@click.option("--context", type=click.IntRange(2), default=128, show_default=True, help="For text: most tokens that are seen.")
@click.option("--stride", type=click.IntRange(1), help="For text: tokens between two training windows.  [default: the context]")
@click.option(
    "--tokenizer", default="bytes", show_default=True, metavar="bytes|bpe[:SIZE]|FILE",
    help="For text: its bytes; BPE trained on it, of 1024 tokens or SIZE; or a tokenizer.json.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides parameters, order and dropout.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder with the data set's files, as published; for ett also a CSV; for text FILE.",
)
@click.option("--out", type=NewFolder(), help="Run directory.  [default: runs/DATASET-MODEL]")
@click.option("--events", is_flag=True, help="Write event files for TensorBoard into the run directory.")
@click.option("--record-every", type=click.IntRange(1), metavar="N", help="Write the loss of every N-th step to steps.jsonl.")
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Write a timeline of the first {STEPS} steps, as JSON for Perfetto and Chrome.",
)
@click.option("--dashboard", is_flag=True, help="Show progress, curves and devices on the whole terminal.")
@click.option("--checkpoint-steps", type=click.IntRange(1), help="Also write a checkpoint every so many steps of an epoch.")
@click.option("--keep", type=click.IntRange(1), default=2, show_default=True, help="Checkpoints that stay, besides the best.")
@click.option(
    "--no-jit",
    is_flag=True,
    help="Run each operation as it comes, without graphs: slower; results are the same up to rounding.",
)
@click.option("--resume", is_flag=True, help="Go on with the run in the run directory, with the settings it was started with.")
@click.pass_context
@reported
def train(
    ctx: click.Context, dataset: str, file: Path | None, model_name: str | None, assignments: dict[str, Any],
    device: str | None, strategy: str | None, devices: str | None, shares: str | None, accumulate: int, workers: int,
    precision: str, events: bool, record_every: int | None, profile: Path | None, dashboard: bool,
    epochs: int | None, steps: int | None, batch_size: int | None, lr: float | None, schedule: str | None, optimizer: str,
    weight_decay: float | None, label_smoothing: float, augment: tuple[str, ...], look_back: int, horizon: int, context: int,
    stride: int | None, tokenizer: str, seed: int, data_dir: Path | None, out: Path | None,
    checkpoint_steps: int | None, keep: int, no_jit: bool, resume: bool,
) -> None:  # fmt: skip
    """Train a model on DATASET, or a language model with `train text FILE`, and say how it does on the test data.

    Of images, a tenth of the training set, fixed by the seed, validates each epoch; the test images are used once, at the
    end, with the parameters of the last epoch. Of a time series, the first twelve months train, the next four validate, and
    the four after that test the epoch that did best on the validation months. Of a text, in UTF-8, the first eighteen of twenty
    parts train, the next one validates, and the last one tests the epoch that did best on it; `firebrick generate` goes on.

    With the schedule "cosine", the learning rate rises over the first twentieth of the steps and then falls to 0 along half
    a cosine; with "flat-cosine", it stays for three fifths of them before it falls.

    A run never overwrites another: if the run directory holds something, a number is added to its name (runs/digits-cnn-2).
    --resume goes on with the newest of them, or with the run in --out, with its settings. --epochs may then be raised, and
    where it runs, --workers, and what is written and kept may be changed. --steps N ends this call of the command after step N
    of the run, with a checkpoint; one that goes on gives the same bits as if it had not stopped.
    """
    if profile is not None and not profile.parent.is_dir():
        raise click.BadParameter(f"there is no folder {profile.parent}", ctx=ctx, param_hint="--profile")
    placing = chosen(ctx, strategy, device, devices, shares)  # an unknown device is said before anything is read
    defaults, task = _DEFAULTS[dataset], task_name(dataset)
    if file is not None and data_dir is not None:
        raise click.BadParameter("FILE says where the text is; leave it out", ctx=ctx, param_hint="--data-dir")
    given = {p.name for p in ctx.command.params if ctx.get_parameter_source(p.name or "") is ParameterSource.COMMANDLINE}
    _check_task(ctx, dataset, task, models.canonical(model_name or defaults.model), given)
    _check_numbers(ctx, {"lr": lr, "weight_decay": weight_decay, "label_smoothing": label_smoothing})
    settings: dict[str, Any] = {
        "dataset": dataset,
        "model": models.canonical(model_name or defaults.model),
        "model_settings": assignments,
        "batch_size": batch_size or defaults.batch_size,
        "lr": lr or defaults.lr,
        "schedule": schedule or defaults.schedule,
        "optimizer": optimizer,
        "weight_decay": weight_decay,
        "seed": seed,
        "checkpoint_steps": checkpoint_steps,
        "keep": keep,
        "epochs": epochs or defaults.epochs,
        "device": device,
        "strategy": placing.name,
        "devices": placing.devices,
        "shares": placing.shares,
        "accumulate": accumulate,
        "workers": workers,
        "precision": None if precision == "float32" else precision,
        "events": events,
        "record_every": record_every,
        "data_dir": str(data_dir.resolve()) if data_dir else None,
    }
    if task == "classification":
        settings |= {"label_smoothing": label_smoothing, "augment": list(augment)}
    elif task == "forecasting":
        settings |= {"look_back": look_back, "horizon": horizon}
    else:
        if "tokenizer" in given:
            language.check_tokenizer(tokenizer)
        where = file or data_dir
        settings |= {"context": context, "stride": stride, "tokenizer": tokenizer, "tokenizer_json": None}
        settings["data_dir"] = str(where.resolve()) if where else None
    usual = Path("runs") / f"{dataset}-{settings['model']}"
    before: dict[str, Any] = {}
    if resume:
        run = out or newest(usual)
        before = {**_BEFORE, **_started_with(run)}
        before["model"] = models.canonical(before["model"])
        named = {k for k in settings if _PARAMETERS.get(k, k) in given} | ({"data_dir"} if file is not None else set())
        if named & set(PLACES) or (world_size() > 1 and before["strategy"] != DISTRIBUTED):
            named |= set(PLACES)  # they go together, and processes that were started together do not train alone
        _check_same(dataset, {k: settings[k] for k in _FIXED if k in named}, before, run)
        settings = {k: v if k in named else before.get(k) for k, v in settings.items()}
    _check_settings(ctx, settings["model"], assignments)
    config = run_config(settings)
    if resume:
        if task == "language" and "bytes_per_token" not in before:  # its rows and checkpoints lack bits per byte
            config["bytes_per_token"] = None
        _check_data({k: v for k, v in config.items() if k not in settings}, before, run)
    else:
        run = free_name(out or usual) if rank() == 0 else out or usual  # which only rank 0 writes to
        if run.resolve() != (out or usual).resolve():
            say(f"{out or usual} holds something already: this run goes to {run}")
    board = dashboard_for(f"{config['dataset']}, {config['model']}") if dashboard else None
    planned = before.get("epochs", settings["epochs"])  # those that the run's schedule was made for
    profiler = None if profile is None else FirstSteps(profile)
    learner, (training, validation, testing) = _prepare(config, run, board, planned, profiler, jit=not no_jit)
    if resume:
        learner.resume()
        say(f"resumed {run} after epoch {learner.epoch}, step {learner.step}")
        if learner.epoch >= settings["epochs"]:
            whole = "all " if learner.epoch >= planned else ""
            say(f"{whole}{learner.epoch} epochs are done: nothing is trained; --epochs {learner.epoch + 1} or more trains on")
            warnings.simplefilter("ignore", NothingTrainedWarning)
        elif settings["epochs"] != planned:
            _replan(learner, settings, len(training), planned)
    if steps is not None:
        if learner.step >= steps:
            say(f"{learner.step} steps are done: nothing is trained; --steps {learner.step + 1} or more, or none, trains on")
            return
        learner.interrupts.stop(after=steps)
    fit = partial(learner.fit, training, validation, epochs=settings["epochs"], draw=False)
    try:
        fit() if board is None else board.run(learner, fit)
    except TrainingInterrupted as e:
        planned_stop = learner.step == steps
        shown = " --dashboard" if dashboard else ""
        again = f"go on with: firebrick train {dataset} --out {shlex.quote(str(run))} --resume{shown}"
        say(f"{e}\n{again}", err=not planned_stop)
        if not planned_stop:
            ctx.exit(INTERRUPTED)
        return
    finally:
        if profiler is not None:
            profiler.finish()
    if learner.strategy.main:
        _conclude(learner, testing, config, run)


def _check_task(ctx: click.Context, dataset: str, task: str, model: str, given: set[str]) -> None:
    """Refuse a model or option that is for the other kind of data."""
    if model not in models.names(task):
        fitting = ", ".join(models.names(task))
        raise click.BadParameter(f"{model} is not for {dataset}; choose one of {fitting}", ctx=ctx, param_hint="--model")
    for kind, options in (found for other, found in _ONLY.items() if other != task):
        for name in options:
            if name in given:
                hint = _FIXED.get(name, name.upper())
                raise click.BadParameter(f"it is for {kind}; leave it out for {dataset}", ctx=ctx, param_hint=hint)


def _check_numbers(ctx: click.Context, values: dict[str, float | None]) -> None:
    """Refuse a NaN or an infinity, which lie outside no range."""
    for name, value in values.items():
        if value is not None and not math.isfinite(value):
            raise click.BadParameter(f"{value} is not a finite number", ctx=ctx, param_hint=_FIXED[name])


def _check_settings(ctx: click.Context, model: str, given: dict[str, Any]) -> None:
    """Refuse a setting that the model does not have, or that the data decide."""
    own = [*models.settings(model), "dtype"]
    if unknown := [name for name in given if name not in own]:
        raise click.BadParameter(f"{model} has no {', '.join(unknown)}; it has {', '.join(own)}", ctx=ctx, param_hint="--set")


def _started_with(run: Path) -> dict[str, Any]:
    """The config of a run to go on with."""
    if is_checkpoint(run):
        raise CheckpointError(
            "--resume goes on with a run directory",
            f"{run}, a checkpoint",
            f"pass --out {shlex.quote(str(run.resolve().parent))}",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedCheckpointWarning)  # ``Learner.resume`` gives it
        config = known(load_checkpoint(run))
    if config.get("analog"):
        raise CheckpointError(
            "--resume goes on with a digital run", f"{run}, of `firebrick analog train`", "go on with: firebrick analog train"
        )
    return config


def _shown(setting: Any) -> Any:
    return "the default" if setting is None else setting


def _check_same(dataset: str, given: dict[str, Any], config: dict[str, Any], out: Path) -> None:
    wrong = [f"data set {dataset}, and it is of {config['dataset']}"] if dataset != config["dataset"] else []
    wrong += [f"{_FIXED[k]} {_shown(v)}, and it has {_shown(config[k])}" for k, v in given.items() if config[k] != v]
    if wrong:
        raise CheckpointError(
            f"a run is resumed with the data set, model and settings it was started with ({out})",
            "; ".join(wrong),
            "leave these options out, or start a new run without --resume",
        )


def _check_data(facts: dict[str, Any], before: dict[str, Any], out: Path) -> None:
    """Refuse to go on with other data, where it shows in what a config says of them."""
    wrong = [n for n, v in facts.items() if n != "title" and n in before and before[n] != v]
    if wrong:
        raise CheckpointError(
            f"a run is resumed with the data it was started with ({out})",
            f"data of other {', '.join(wrong)}",
            "name the folder or file of that data with --data-dir; for text, as FILE",
        )


def _schedule(config: dict[str, Any], batches: int) -> optim.Schedule:
    steps = config["epochs"] * batches
    if config["schedule"] == "one-cycle" and steps < 4:
        raise ConfigError(
            "--schedule one-cycle rises and falls over at least 4 steps",
            f"{steps} steps: --epochs {config['epochs']} of {batches} batches",
            "raise --epochs, or lower --batch-size",
        )
    return _SCHEDULES[config["schedule"]](config["lr"], steps)


def _replan(learner: Learner, settings: dict[str, Any], batches: int, planned: int) -> None:
    """Give a resumed run the schedule of another number of epochs than it was planned for, and say so."""
    before = learner.optimizer.learning_rate
    learner.optimizer.learning_rate = _schedule(settings, batches)
    after, epochs = learner.optimizer.learning_rate, settings["epochs"]
    if settings["schedule"] != "constant":
        say(
            f"--epochs {epochs} after {planned}: the {settings['schedule']} learning rate now runs over {epochs * batches} "
            f"steps in place of {planned * batches}, and goes on with {after:g} in place of {before:g}"
        )


def _prepare(
    config: dict[str, Any], out: Path, board: Dashboard | None, planned: int, profiler: FirstSteps | None, *, jit: bool
) -> tuple[Learner, tuple[DataLoader, ...]]:
    """The learner of a config, with a schedule of ``planned`` epochs, and the loaders that train, validate and test."""
    strategy, task, folder = strategy_of(config), task_of(config), config["data_dir"]
    device = strategy.devices[0]
    training, validation = task.training_loaders(config, folder, device)
    testing = task.test_loader(config, folder, device)
    random.seed(config["seed"])
    model: Module = task.build_model(config).to(device)
    learner = Learner(
        model,
        _OPTIMIZERS[config["optimizer"]](
            model, _schedule({**config, "epochs": planned}, len(training)), config["weight_decay"]
        ),
        task.loss_of(config),
        strategy=strategy,
        accumulate=config["accumulate"],
        out=out,
        seed=config["seed"],
        log=print if board is None else board.log,
        progress=board,
        precision=config["precision"],
        events=out / EVENTS if config["events"] else None,
        record_every=config["record_every"],
        checkpoint_steps=config["checkpoint_steps"],
        keep=config["keep"],
        config=config,
        class_names=task.names_of(config),
        jit=jit,
        callbacks=() if profiler is None else (profiler,),
        metrics=task.metrics_of(config),
    )
    count = sum(p.size for _, p in model.named_parameters())
    places = ", ".join(d.name for d in strategy.devices)
    say(
        f"{config['dataset']}: {training.samples:,} {task.SAMPLES} to train, {validation.samples:,} to validate, "
        f"{testing.samples:,} to test; {config['model']} with {count:,} parameters on {places}"
    )
    return learner, (training, validation, testing)


def _conclude(learner: Learner, testing: DataLoader, config: dict[str, Any], out: Path) -> None:
    """Test, draw the figures, and say where everything lies; the last line is the result on the test data."""
    task = task_of(config)
    if task.TESTS_BEST:
        load_checkpoint(out / BEST).load_into(learner.model)
    found: Evaluation = learner.evaluate(testing)
    drawn = {path.name: path for path in learner.draw(found, f"test {task.SAMPLES}")}
    places = {
        "checkpoint": out / "checkpoint",
        "best epoch": out / BEST,
        "metrics": out / CSV,
        "curves": drawn.get("curves.png"),
        "confusion matrix": drawn.get("confusion.png"),
        "forecast": drawn.get("forecast.png"),
    }
    for what, place in places.items():
        if place is not None:
            say(f"{what:<18}{place}")
    task.say_result(found)
