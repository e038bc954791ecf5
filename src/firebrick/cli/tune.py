"""``firebrick tune``: measures the variants of a program's kernels, and keeps the fastest for later processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from firebrick.cli.reporting import reported
from firebrick.core.errors import ConfigError

if TYPE_CHECKING:
    from firebrick.compiler.tune.choice import Choice
    from firebrick.core.tensor import Tensor

IMAGE, CHANNELS, SERIES, WINDOW, HORIZON = 28, 1, 7, 96, 24
VOCABULARY, CONTEXT = 256, 128
"""Sizes of the images, series and texts of the models."""
ENGINES = ("cpu", "webgpu")
"""The engines that have variants of kernels."""


@click.command()
@click.argument("what", metavar="[MODEL|FILE:FUNCTION]", required=False)
@click.option("--input", "inputs", multiple=True, metavar="DTYPE[SHAPE]", help="An argument of FUNCTION, in order.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Samples of a model's batch.")
@click.option("--image-size", type=click.IntRange(4), default=IMAGE, show_default=True, help="For classifiers.")
@click.option("--channels", type=click.IntRange(1), default=CHANNELS, show_default=True, help="For classifiers.")
@click.option("--device", default="cpu", show_default=True, help="Device whose kernels are tuned.")
@click.option(
    "--any-order", is_flag=True, help="Try kernels too whose results differ in their last bits; used if `deterministic` is off."
)
@reported
def tune(
    what: str | None, inputs: tuple[str, ...], batch: int, image_size: int, channels: int, device: str, any_order: bool
) -> None:
    """Measure which kernels are fastest on this machine.

    MODEL is the name of a model, whose training step and inference are tuned for one batch size; by default all of them are.
    FILE:FUNCTION names a function of tensors in a Python file, with an --input for each argument.

    What is found serves programs with the same sizes, on the same machine and with the same versions (`firebrick cache list`
    shows it). Every variant is compared with the default kernel first, on cpu in a process of its own; one that is wrong,
    crashes or does not return is never used. On cpu the whole program is then measured with the new variants and with defaults:
    variants that do not make it faster are not kept.
    """
    from firebrick.backends.registry import find_device, use_device
    from firebrick.compiler.cache import folder, store
    from firebrick.compiler.tune.choice import choices
    from firebrick.core.config import config
    from firebrick.models import names

    home = find_device(device)
    if home.engine not in ENGINES:
        raise ConfigError(
            f"devices with variants of kernels are those of the engines {' and '.join(ENGINES)}", device, "leave out --device"
        )
    if inputs and (what is None or ":" not in what):
        raise ConfigError(
            "--input gives the arguments of FILE:FUNCTION", what or "no function", "name a function, or leave it out"
        )
    try:
        store.check_writable()
    except OSError as e:
        raise ConfigError(
            "what tuning finds is kept in a folder that can be written", f"{folder()}: {e.strerror or e}",
            "name another folder in FIREBRICK_CACHE_DIR, or `off` to measure and keep nothing",
        ) from None  # fmt: skip
    start, total = perf_counter(), 0
    measured: list[Choice] = []
    seen = {c.problem.id for c in choices()}
    with use_device(home), config.scope(tune="on", deterministic=not any_order):
        if what is not None and ":" in what:
            programs: Iterator[tuple[str, Sequence[Callable[[], Any]]]] = iter([(what, [_call(what, inputs)])])
        else:
            programs = ((name, _model(name, batch, image_size, channels)) for name in ([what] if what else names()))
        for name, calls in programs:
            found: list[Choice] = []
            for call in calls:
                call()
                new = [c for c in choices() if c.problem.id not in seen]
                seen |= {c.problem.id for c in new}
                found += _as_kept(new, call) if home.engine == "cpu" else new
            total += len(found)
            measured += found
            _print(name, found)
    if not total:
        click.echo(
            "no kernel with variants: nothing of it is compiled"
            + ("" if config.cpu_compile else ", as the setting cpu_compile is off") + "; `firebrick explain` shows why"
        )  # fmt: skip
        return
    if folder() is not None:
        _check_kept(measured)
    count = "1 kernel" if total == 1 else f"{total} kernels"
    kept = "used from now on where fb.config.tune is 'cached' (the default)"
    if folder() is None:
        kept = "not kept, as compiled code is not (FIREBRICK_CACHE_DIR is off, or there is no home directory)"
    click.echo(f"{count} in {perf_counter() - start:.0f} s; {kept}")


def _as_kept(measured: list[Choice], call: Callable[[], Any]) -> list[Choice]:
    """The choices of a program's new kernels after the calls that compare the whole program with one of defaults."""
    from firebrick.compiler.tune.choice import choices, records_of
    from firebrick.compiler.tune.variant import DEFAULT
    from firebrick.compiler.tune.whole_programs import CALLS

    if all(c.variant == DEFAULT for c in measured):
        return measured
    for _ in range(CALLS + 1):
        call()
    latest = {c.problem.id: c for c in choices()}
    records = [records_of(c.problem.device).get(c.problem.id) for c in measured]
    for reason in dict.fromkeys(r.withdrawn for r in records if r is not None and r.withdrawn):
        click.echo(f"defaults are kept: {reason}")
    return [latest.get(c.problem.id, c) for c in measured]


def _check_kept(measured: list[Choice]) -> None:
    """Check that later processes find what was measured: an error of the disk stops no computation, so nothing else says so."""
    from firebrick.compiler.cache import folder
    from firebrick.compiler.tune.choice import records_of
    from firebrick.compiler.tune.records import Records
    from firebrick.core.config import config

    for device in {c.problem.device for c in measured}:
        here, there = records_of(device), Records(device)
        missing = [c for c in measured if c.problem.device == device and c.problem.id in here and c.problem.id not in there]
        if missing:
            raise ConfigError(
                f"what was measured is kept in {folder()}",
                f"{len(missing)} of {len(measured)} kernels that are not: {missing[0].problem.text}",
                f"check that the disk is not full, and that FIREBRICK_CACHE_SIZE, {config.cache_size} bytes, is enough",
            )


def _call(where: str, inputs: tuple[str, ...]) -> Callable[[], Any]:
    from firebrick.cli.explain import argument_of, check_takes, function_of, users_code
    from firebrick.functions.creation import zeros
    from firebrick.graph import jit

    function = function_of(where, "tune")
    arguments = [argument_of(text) for text in inputs]
    check_takes(function, arguments)
    compiled = jit(function)
    values = [zeros(shape, dtype=dtype) for dtype, shape in arguments]

    def call() -> Any:
        with users_code(where):
            return compiled(*values)

    return call


def _model(name: str, batch: int, image_size: int, channels: int) -> list[Callable[[], Any]]:
    """The training step and the inference of a model."""
    from firebrick import models, optim, random
    from firebrick.autodiff import value_and_grad
    from firebrick.cli.language import next_token_loss
    from firebrick.functions.losses import cross_entropy, mse_loss
    from firebrick.graph import jit

    x: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]
    if models.canonical(name) in models.names("forecasting"):
        model = models.build(name, series=SERIES, window=WINDOW, horizon=HORIZON)
        x, y = random.normal((batch, WINDOW, SERIES)), random.normal((batch, HORIZON, SERIES))
        loss = mse_loss
    elif models.canonical(name) in models.names("language"):
        model = models.build(name, vocabulary=VOCABULARY, length=CONTEXT)
        x, y = (random.integers((batch, CONTEXT), low=0, high=VOCABULARY) for _ in range(2))
        loss = next_token_loss
    else:
        model = models.build(name, image_size, channels)
        x, y = random.normal((batch, channels, image_size, image_size)), random.integers((batch,), low=0, high=10)
        loss = cross_entropy
    optimizer = optim.Adam(model, lr=1e-3)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, gradients = value_and_grad(lambda model: loss(model(x), y))(model)
        optimizer.update(model, gradients)
        return value

    predict = jit(lambda x: model(x))

    def train() -> Tensor:
        model.train()
        return step(x, y)

    def infer() -> Tensor:
        model.eval()
        found: Tensor = predict(x)
        return found

    return [train, infer]


def _print(name: str, found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from firebrick.compiler.tune.choice import records_of
    from firebrick.compiler.tune.variant import DEFAULT

    table = Table(title=name, box=None, pad_edge=False, header_style="bold", title_justify="left")
    for column in ("kernel", "default", "fastest", "variant", "barred"):
        table.add_column(column, overflow="fold")
    for c in found:
        records = records_of(c.problem.device)
        times = records[c.problem.id].times if c.problem.id in records else {}
        barred = ", ".join(records.barred(c.problem.structure))
        best = times.get(c.variant)
        table.add_row(
            Text(c.problem.text), f"{times[DEFAULT]:.1f} µs" if DEFAULT in times else "",
            f"{best:.1f} µs" if best is not None else "", Text(c.variant, "green" if c.variant != DEFAULT else ""),
            Text(barred, "red"),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 200).print(table)
