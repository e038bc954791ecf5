"""What a checkpoint holds of others than the learner itself, model, optimizer, averages, generators, and how they get it back.

Giving back is all or nothing for model, optimizer and averages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick import random
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.errors import DeviceError
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.train.checkpoint import Checkpoint
from firebrick.train.errors import TrainingError


def generators_of(model: Module) -> dict[str, Any]:
    """Where all random generators stand: those of ``fb.random``, and those of the model's parts."""
    return {"random": random.state(), "generators": {n: g.state() for n, g in model.generators().items()}}


def generators_for(model: Module, devices: Sequence[Device]) -> list[random.Generator]:
    """The generators that a step of a model draws from: those of its parts, and the devices' own."""
    return [*model.generators().values(), *(random.default_generator(d) for d in devices)]


def check_averages(ema: EMA | None, model: Module) -> None:
    """Refuse averages of another model's parameters, which would stand still."""
    own = {id(p) for _, p in model.named_parameters()}
    strange = [] if ema is None else [n for n, p in ema.parameters if id(p) not in own]
    if strange:
        raise TrainingError(
            "ema averages parameters of the learner's model",
            f"averages of others: {', '.join(strange[:4])}{', …' if len(strange) > 4 else ''}",
            "pass a decay, or ema=optim.EMA(model) of the same model",
        )


def give_back(found: Checkpoint, model: Module, optimizer: Any, ema: EMA | None) -> None:
    """Make model, optimizer, averages and generators what a checkpoint says.

    Values go to where each thing lies now: on another device, another engine, or several of them.

    Raises:
        CheckpointError: It is of another model.
        TrainingError: It has averages, and the run has none.
        StateError: It is of another kind of optimizer, or of a version that kept another state.
    """
    averages = found.optimizer.get("ema")
    if averages is not None and ema is None:
        raise TrainingError(
            "a run that keeps averages of its parameters goes on with them",
            f"averages in {found.path}, and a learner without",
            f"make it with ema={averages['decay']}",
        )
    before, kept = model.state_dict(), None if ema is None else ema.state_dict()
    found.load_into(model)
    try:
        if ema is not None and averages is not None:
            ema.load_state_dict(averages)
        optimizer.load_state_dict(found.optimizer)
    except Exception:
        model.load_state_dict(before)
        if ema is not None and kept is not None:
            ema.load_state_dict(kept)
        raise
    if ema is not None and averages is None:
        ema.reset()
    random.set_state(_here(found.state["random"]))
    for name, generator in model.generators().items():
        if name in found.state["generators"]:
            generator.set_state(found.state["generators"][name])


def _here(state: dict[str, Any]) -> dict[str, Any]:
    """A state of ``fb.random`` without the devices that this machine lacks: a run may go on on another one."""

    def there(name: str) -> bool:
        try:
            find_device(name)
        except DeviceError:
            return False
        return True

    return {**state, "devices": {n: s for n, s in state["devices"].items() if there(n)}}
