"""What the options of ``firebrick train`` say about where steps run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from firebrick.distributed import rank, world_size
from firebrick.distributed.session import launcher
from firebrick.train import DataParallel, Distributed, SingleDevice, Strategy

SINGLE, PARALLEL, DISTRIBUTED = "single", "data-parallel", "distributed"
STRATEGIES = (SINGLE, PARALLEL, DISTRIBUTED)
PLACES = ("strategy", "device", "devices", "shares")  # settings of a run that say where it runs


@dataclass(frozen=True)
class Placing:
    """A strategy by name, as plain values that a run's config keeps."""

    name: str
    device: str | None
    devices: list[str] | None
    shares: str | list[float] | None

    def build(self) -> Strategy:
        """The strategy.

        Raises:
            DeviceError: A device is unknown or absent.
            TrainingError: Devices are named twice, or shares are none.
        """
        if self.name == SINGLE:
            return SingleDevice(self.device)
        if self.name == DISTRIBUTED:
            return Distributed(self.device, shares="even" if self.shares is None else self.shares)
        return DataParallel(self.devices or [], "even" if self.shares is None else self.shares)


def chosen(ctx: click.Context, strategy: str | None, device: str | None, devices: str | None, shares: str | None) -> Placing:
    """The placing that options ask for; they are checked, the devices found.

    One of several processes that a launcher started trains with the others; to train alone, each of them, is refused.
    """
    name = strategy or (PARALLEL if devices else DISTRIBUTED if world_size() > 1 else SINGLE)
    if name != DISTRIBUTED and world_size() > 1:
        raise click.BadParameter(
            f"each of the {world_size()} processes of {launcher()} would train alone; use --strategy distributed, the default "
            "under a launcher, or start one process",
            ctx=ctx, param_hint=f"--strategy {strategy}" if strategy else "--devices",
        )  # fmt: skip
    if name != PARALLEL and devices:
        raise click.BadParameter("it is for --strategy data-parallel", ctx=ctx, param_hint="--devices")
    if name == SINGLE and shares:
        raise click.BadParameter("it is for --strategy data-parallel or distributed", ctx=ctx, param_hint="--shares")
    if name == PARALLEL and not devices:
        raise click.BadParameter("name the devices: --devices cpu:0,cpu:1", ctx=ctx, param_hint="--strategy data-parallel")
    if name == PARALLEL and device:
        raise click.BadParameter("the devices are those of --devices; leave it out", ctx=ctx, param_hint="--device")
    names = [d.strip() for d in devices.split(",")] if devices else None
    placing = Placing(name, device, names, _shares(ctx, shares))
    placing.build()
    if strategy is None and name == DISTRIBUTED:
        say(f"{world_size()} processes of {launcher()} train one model together: --strategy distributed")
    return placing


def strategy_of(config: Mapping[str, Any]) -> Strategy:
    """The strategy of a run's config."""
    return Placing(config["strategy"], config["device"], config["devices"], config["shares"]).build()


def say(text: str, *, err: bool = False) -> None:
    """Print a line; of several processes, the first does."""
    if rank() == 0:
        click.echo(text, err=err)


def _shares(ctx: click.Context, text: str | None) -> str | list[float] | None:
    """``even``, ``measured`` or numbers with commas between."""
    if text is None or text.isalpha():
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither even nor measured nor numbers such as 0.7,0.3", ctx=ctx, param_hint="--shares"
        ) from None
