"""``convert``: a digital model with the weights of its layers in tiles, and reports of what is mapped and what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import FunctionType
from typing import Any, NoReturn, TypeVar

import firebrick.nn as nn
from firebrick.analog.attention import PARTS, MultiheadAttention
from firebrick.analog.config import RPUConfig
from firebrick.analog.convolutions import Conv1d, Conv2d, Conv3d
from firebrick.analog.layers import Linear
from firebrick.analog.mapping import TileArray
from firebrick.analog.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from firebrick.analog.tile import Tile
from firebrick.core.errors import ConfigError, UnsupportedError
from firebrick.core.lines import warn
from firebrick.nn import Module, Parameter
from firebrick.nn.module import members
from firebrick.random import Generator, initial_generator

M = TypeVar("M", bound=Module)
KINDS: dict[type, Any] = {
    nn.Linear: Linear, nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d, nn.RNN: RNN, nn.LSTM: LSTM, nn.GRU: GRU,
    nn.RNNCell: RNNCell, nn.LSTMCell: LSTMCell, nn.GRUCell: GRUCell,
}  # fmt: skip
"""Digital layer → its analog form. The projections of ``nn.MultiheadAttention`` are layers of their own."""
WITHOUT_FORM = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Bilinear)
"""Layers that multiply by weights, and have no analog form."""
ANALOG = (*KINDS.values(), MultiheadAttention)


def convert(
    model: M, config: RPUConfig | Callable[[str, Module], RPUConfig | None], *, exclude: Sequence[str] = (),
    seed: int | None = None, generator: Generator | None = None,
) -> M:  # fmt: skip
    """A copy of a model whose linear, convolution and recurrent layers are analog, with the same weights.

    The layers are those of ``nn``: ``Linear``, ``Conv1d``, ``Conv2d``, ``Conv3d``, ``RNN``, ``LSTM``, ``GRU``, their cells, and
    the projections of ``MultiheadAttention``, which is then an ``analog.MultiheadAttention``; so those of transformers too.
    Layers that multiply by weights and cannot be mapped to tiles stay digital, with a warning that names them:
    subclasses of these layers, transposed convolutions, ``Bilinear``, and layers that share a weight with another layer or
    whose weight another module computes. ``digital_layers`` lists all that stayed digital. Where the model has kept a bound
    method of a layer that is replaced, such as ``self.layer.forward`` in a list, its use raises ``UnsupportedError``; functions
    that have kept layers in their closures or defaults are named in a warning.

    Args:
        model: The digital model, which stays as it is.
        config: Of all tiles; or a function of a layer's path and the layer, which returns its configuration, or None where it
            stays digital.
        exclude: Patterns of paths ("head", "blocks.*.mlp") of layers that stay digital.
        seed: Seed of the generator from which the tiles get theirs.
        generator: The generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Returns:
        The analog model. Weights outside of the bounds of their devices are clipped, with a warning of how many.

    Raises:
        ConfigError: No layer is converted, a pattern matches no layer, or an argument has the wrong type.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Sequential(fb.nn.Linear(4, 3), fb.nn.ReLU(), fb.nn.Linear(3, 2))
        >>> made = fb.analog.convert(model, fb.analog.RPUConfig(fb.analog.FloatingPointDevice()), exclude=["layers.2"], seed=0)
        >>> [type(m).__module__.split(".")[1] for m in made.layers]
        ['analog', 'nn', 'nn']
    """
    given: Any = model
    if not isinstance(given, Module):
        raise ConfigError("analog.convert: model is a module", repr(given)[:60], "pass a model of layers of fb.nn")
    if isinstance(config, type) or not callable(config):
        _check_config("config is an RPUConfig, or a function that returns one", config)
    if isinstance(exclude, str):
        raise ConfigError(
            "analog.convert: exclude is a list of patterns", repr(exclude)[:60], f"pass exclude=[{exclude!r:.60}]"
        )
    own = generator or (initial_generator().fork() if seed is None else Generator(seed))
    if isinstance(model, (*KINDS, *WITHOUT_FORM, nn.MultiheadAttention)):
        root = _Root(model)
        return convert(root, config, exclude=exclude, generator=own).model  # type: ignore[return-value]
    twin = model.fork()
    layers = dict(_products(twin))
    every = [part for _, part in twin.modules()]
    for pattern in exclude:
        if not any(fnmatchcase(path, pattern) for path in layers):
            raise ConfigError(
                f"analog.convert: a pattern of exclude matches a layer: {', '.join(layers) or 'there is none'}",
                repr(pattern), "correct it",
            )  # fmt: skip
    reasons, left = _reasons(twin), []
    chosen: dict[int, RPUConfig] = {}
    for path, layer in layers.items():
        if any(fnmatchcase(path, pattern) for pattern in exclude):
            continue
        of_layer = config(path, layer) if callable(config) else config
        if of_layer is not None:
            _check_config(f"the configuration of {path} is an RPUConfig, or None", of_layer)
        if of_layer is not None and id(layer) in reasons:
            left.append(f"{path} ({reasons[id(layer)]})")
        elif of_layer is not None:
            chosen[id(layer)] = of_layer
    made, clipped = _made(twin, chosen, own)
    if not made and any(isinstance(part, Tile) for _, part in model.modules()):
        raise ConfigError(
            "analog.convert: a digital model", f"{type(model).__name__} with tiles",
            "convert the model that this one was converted from",
        )  # fmt: skip
    if not made:
        raise ConfigError(
            f"analog.convert: a model with layers that can be mapped to tiles ({', '.join(k.__name__ for k in KINDS)}) and are "
            "not excluded",
            f"{type(model).__name__} with {len(layers)} layers that multiply by weights"
            + (f", but {', '.join(left)}" if left else ""),
            "write analog.Linear where your model multiplies by weights",
        )
    for _, part in twin.modules():
        for name, value in list(vars(part).items()):
            replaced = _replaced(value, made)
            if replaced is not value:
                setattr(part, name, replaced)
    remaining = {id(part) for _, part in twin.modules()}
    for part in every:
        if id(part) not in remaining:
            object.__setattr__(part, "__class__", _Replaced)
    twin._name("")
    if kept := _functions_of(twin, {id(part) for _, part in model.modules()}):
        warn(
            f"analog.convert: these functions have kept the digital model, and compute with its weights: {', '.join(kept)}. "
            "Write methods in their place", UserWarning,
        )  # fmt: skip
    if left:
        warn(
            f"analog.convert: these layers stay digital: {', '.join(left)}. Pass exclude= to convert without this warning",
            UserWarning,
        )
    if clipped:
        total = sum(row.rows * row.columns for row in mapping_report(twin))
        warn(
            f"analog.convert: {clipped} of {total} weights were outside of the bounds of their devices and are clipped: "
            "scale them with MappingParameter(weight_scaling_omega=…)", UserWarning,
        )  # fmt: skip
    return twin


def _check_config(what: str, config: Any) -> None:
    if not isinstance(config, RPUConfig):
        raise ConfigError(f"analog.convert: {what}", repr(config)[:60], "pass e.g. analog.RPUConfig(analog.SoftBoundsDevice())")


def _made(twin: Module, chosen: Mapping[int, RPUConfig], own: Generator) -> tuple[dict[int, Module], int]:
    """The analog forms of the chosen layers by the identity of what they replace, and how many weights were clipped."""
    made: dict[int, Module] = {}
    clipped, of_attention = 0, set()
    for _, layer in twin.modules():
        if type(layer) is nn.MultiheadAttention:
            parts = {n: chosen[id(v)] for n, v in vars(layer).items() if n in PARTS and id(v) in chosen}
            of_attention |= {id(v) for v in vars(layer).values()}
            if not parts:
                continue
            form, more = MultiheadAttention.of(layer, parts, own)
        elif id(layer) in chosen and id(layer) not in of_attention:
            form, more = KINDS[type(layer)].of(layer, chosen[id(layer)], own)
        else:
            continue
        for name in ("training", "_forward_hooks"):
            if name in vars(layer):
                setattr(form, name, vars(layer)[name])
        made[id(layer)] = form
        clipped += more
    return made, clipped


def _products(model: Module) -> list[tuple[str, Module]]:
    """The digital layers of a model that multiply by weights, with their paths."""
    kinds = (*KINDS, *WITHOUT_FORM)
    return [(path, m) for path, m in model.modules() if isinstance(m, kinds) and not isinstance(m, ANALOG)]


def _reasons(model: Module) -> dict[int, str]:
    """Why layers of a model cannot be mapped, by identity."""
    owners: dict[int, list[tuple[Module, str]]] = {}
    found: dict[int, str] = {}
    for path, module in model.modules():
        for name, value in members(vars(module).items()):  # also those in lists and dicts of a module
            if isinstance(value, Parameter):
                owners.setdefault(id(value), []).append((module, f"{path}.{name}" if path else name))
        if isinstance(module, nn.MultiheadAttention) and type(module) is not nn.MultiheadAttention:
            inner = (m for _, m in module.modules() if isinstance(m, nn.Linear))
            found |= {id(m): f"part of {type(module).__name__}, a subclass of nn.MultiheadAttention" for m in inner}
    for _, layer in _products(model):
        own = {n: v for n, v in vars(layer).items() if n.startswith(("weight", "bias"))}
        shared = [place for v in own.values() for m, place in owners.get(id(v), ()) if m is not layer]
        if type(layer) in WITHOUT_FORM:
            found[id(layer)] = f"nn.{type(layer).__name__} has no analog form"
        elif type(layer) not in KINDS:
            base = next(k for k in (*KINDS, *WITHOUT_FORM) if isinstance(layer, k))
            found[id(layer)] = f"{type(layer).__name__} is a subclass of nn.{base.__name__}"
        elif not any(isinstance(v, Parameter) for n, v in own.items() if n.startswith("weight")):
            found[id(layer)] = "its weight is computed by another module"
        elif shared:
            found[id(layer)] = f"it shares {shared[0]}"
    return found


class _Root(Module):
    """A model that is one layer."""

    def __init__(self, model: Module) -> None:
        self.model = model


def _functions_of(model: Module, others: set[int]) -> list[str]:
    """Attributes that are functions with other modules in their closures or defaults: a copy of a model has the same ones."""
    found = []
    for path, part in model.modules():
        for name, function in _functions(vars(part).items(), f"{path}." if path else ""):
            held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
            for cell in function.__closure__ or ():
                with suppress(ValueError):  # a cell without a value
                    held.append(cell.cell_contents)
            if any(id(v) in others for v in held):
                found.append(name)
    return found


def _functions(items: Iterable[tuple[Any, Any]], prefix: str) -> Iterator[tuple[str, FunctionType]]:
    """Functions among attributes, and in lists, tuples and dicts, with their paths."""
    for name, v in items:
        if isinstance(v, FunctionType):
            yield f"{prefix}{name}", v
        elif isinstance(v, (list, tuple)):
            yield from _functions(enumerate(v), f"{prefix}{name}.")
        elif isinstance(v, dict):
            yield from _functions(v.items(), f"{prefix}{name}.")


class _Replaced(Module):
    """What a layer is when an analog one has its place: a bound method of it would compute with weights that are in no tile."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise UnsupportedError(
            "a layer that analog.convert has replaced is used through the model's attributes",
            f"a bound method, or a function, that has kept the digital layer ({name} is read)",
            "look the layer up when it is used, as in self.layer(x), or name it in exclude=",
        )


def _replaced(value: Any, made: Mapping[int, Module]) -> Any:
    """A value with its layers replaced, lists and dicts in place; the same object where nothing else is needed."""
    if isinstance(value, Module):
        return made.get(id(value)) or value
    if isinstance(value, (list, dict)):
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            replaced = _replaced(part, made)
            if replaced is not part:
                value[key] = replaced
    elif isinstance(value, tuple):
        parts = [_replaced(part, made) for part in value]
        if any(a is not b for a, b in zip(parts, value, strict=True)):
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


@dataclass(frozen=True)
class MappedLayer:
    """How one layer is mapped to tiles.

    Attributes:
        name: Path of the layer in the model.
        rows: Outputs.
        columns: Inputs.
        tiles: Sizes (rows, columns) of its tiles.
        utilisation: Share of the cross-points that have weights, if all tiles had the largest size that is allowed; 1 where any
            size is.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.mapping_report(fb.analog.Linear(8, 2, config=fb.analog.RPUConfig(), seed=0))[0].columns
        8
    """

    name: str
    rows: int
    columns: int
    tiles: tuple[tuple[int, int], ...]
    utilisation: float


def mapping_report(model: Module) -> list[MappedLayer]:
    """How the analog layers of a model are mapped to tiles.

    Args:
        model: With analog layers.

    Example:
        >>> import firebrick as fb
        >>> layer = fb.analog.Linear(600, 10, config=fb.analog.RPUConfig(), seed=0)
        >>> fb.analog.mapping_report(fb.nn.Sequential(layer))[0].tiles
        ((10, 300), (10, 300))
    """
    found = []
    for path, module in model.modules():
        if isinstance(module, TileArray):
            sizes = tuple((t.rows, t.columns) for row in module.tiles for t in row)
            whole = (module.mapping.max_output_size or module.rows) * (module.mapping.max_input_size or module.columns)
            share = module.rows * module.columns / (whole * len(sizes))
            found.append(MappedLayer(path.removesuffix(".tiles"), module.rows, module.columns, sizes, share))
    return found


@dataclass(frozen=True)
class UnmappedLayer:
    """A layer with weights that are in no tile.

    Attributes:
        name: Path of the layer in the model.
        kind: Its class.
        reason: Why it cannot be mapped; "" if it can.

    Example:
        >>> import firebrick as fb
        >>> [row.kind for row in fb.analog.digital_layers(fb.nn.Sequential(fb.nn.Linear(8, 2)))]
        ['Linear']
    """

    name: str
    kind: str
    reason: str


def digital_layers(model: Module) -> list[UnmappedLayer]:
    """The layers of a model that multiply by weights and are digital, and why they cannot be mapped to tiles.

    Args:
        model: Any model.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Sequential(fb.nn.Linear(8, 2), fb.nn.Bilinear(2, 2, 1))
        >>> [(row.name, row.reason) for row in fb.analog.digital_layers(model)]
        [('layers.0', ''), ('layers.1', 'nn.Bilinear has no analog form')]
    """
    reasons = _reasons(model)
    return [UnmappedLayer(path, type(m).__name__, reasons.get(id(m), "")) for path, m in _products(model)]
