"""What optimizers and averages accept: parameters and their names, the model that they were made for, and settings in range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.core.errors import ConfigError, DeviceMismatchError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.nn import Module, Parameter
from firebrick.nn.module import parameters_in_order


def named(model: Any) -> list[tuple[str, Parameter]]:
    """Parameters with unique names, each once."""
    if isinstance(model, Module):
        return model.named_parameters()
    if not isinstance(model, (list, tuple)):
        raise ConfigError("a module or a list of parameters is updated", type(model).__name__, "pass one of these")
    out: list[tuple[str, Parameter]] = []
    seen: set[int] = set()
    names: set[str] = set()
    for i, p in enumerate(model):
        if not isinstance(p, Parameter):
            raise ConfigError("parameters are updated", f"parameters[{i}]: {type(p).__name__}", "wrap it in nn.Parameter")
        if id(p) not in seen:
            seen.add(id(p))
            name = p.label if p.label and p.label not in names else f"parameters[{i}]"
            names.add(name)
            out.append((name, p))
    return out


def parameters_for(optimizer: Any, model: Any) -> list[tuple[str, Parameter]]:
    """``named`` of what an optimizer is made for, when the parts of a module agreed to be trained by it."""
    found = named(model)
    for name, part in model.modules() if isinstance(model, Module) else found:
        part._optimized_by(name, optimizer)
    return found


def check_target(where: str, model: Any, parameters: Sequence[tuple[str, Parameter]]) -> None:
    """Raise ConfigError unless a model holds just these parameters."""
    if isinstance(model, Module):
        held = parameters_in_order(model)
        if len(held) == len(parameters) and all(a is b for a, (_, b) in zip(held, parameters, strict=True)):
            return
    given = named(model)
    if len(given) == len(parameters) and all(a is b for (_, a), (_, b) in zip(given, parameters, strict=True)):
        return
    theirs, ours = {id(p) for _, p in given}, {id(p) for _, p in parameters}
    new = [n for n, p in given if id(p) not in ours]
    gone = [n for n, p in parameters if id(p) not in theirs]
    if not new and not gone:
        return
    parts = [f"{what}: {', '.join(names)}" for what, names in (("unknown to it", new), ("not there", gone)) if names]
    raise ConfigError(
        f"{where}: the model holds the parameters that the optimizer was made for",
        "; ".join(parts),
        "make the optimizer after the model is complete, and pass the same model; a fork has parameters of its own",
    )


def check_beside(where: str, state: Sequence[tuple[str, Tensor]], parameters: Sequence[tuple[str, Parameter]]) -> None:
    """Inside a trace, which moves nothing between devices, raise DeviceMismatchError unless all state lies beside its
    parameters."""
    home, places = parameters[0][1].device, {n: p.device for n, p in parameters}
    for name, t in state:
        if hooks.trace() is not None and t.device is not (goal := places.get(name, home)):
            raise DeviceMismatchError(
                f"{where}: under jit, state lies on the device of its parameters",
                f"{describe(f'state of {name}', t)}, and the parameter on {goal}",
                "make optimizer and averages after model.to(…), or let o.load_state_dict(o.state_dict()) move what it holds",
                devices=[t.device.name, goal.name],
            )


def check_range(where: str, name: str, value: Any, low: float, high: float) -> None:
    """Raise ConfigError unless ``value`` is a number in [low, high)."""
    if not (isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high):
        raise ConfigError(
            f"{where}: {name} lies in [{low:g}, {high:g})", f"{name} = {value!r}", "see the class's documentation"
        )


def check_settings(where: str, settings: Any, *, shares: Sequence[str] = (), sizes: Sequence[str] = ()) -> None:
    """Raise ConfigError unless the settings named lie in [0, 1) (``shares``, or schedules) and in [0, ∞) (``sizes``)."""
    for name in shares:
        value = getattr(settings, name)
        pairs = [(f"{name}[{i}]", v) for i, v in enumerate(value)] if isinstance(value, (tuple, list)) else [(name, value)]
        for shown, v in pairs:
            if not callable(v):
                check_range(where, shown, v, 0.0, 1.0)
    for name in sizes:
        check_range(where, name, getattr(settings, name), 0.0, float("inf"))
