"""``convert``: a digital model with the weights of its layers in tiles, and a report of the mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from firebrick.analog.config import RPUConfig
from firebrick.analog.layers import Conv2d, Linear
from firebrick.analog.mapping import TileArray
from firebrick.core.errors import ConfigError
from firebrick.core.lines import warn
from firebrick.nn import Conv2d as DigitalConv2d
from firebrick.nn import Linear as DigitalLinear
from firebrick.nn import Module
from firebrick.random import Generator, initial_generator

M = TypeVar("M", bound=Module)
KINDS: dict[type, Any] = {DigitalLinear: Linear, DigitalConv2d: Conv2d}
"""Digital layer → its analog form."""


def convert(
    model: M, config: RPUConfig | Callable[[str, Module], RPUConfig | None], *, exclude: Sequence[str] = (),
    seed: int | None = None, generator: Generator | None = None,
) -> M:  # fmt: skip
    """A copy of a model whose linear and convolution layers are analog, with the same weights.

    Args:
        model: The digital model, which stays as it is. Layers are converted that are ``nn.Linear`` or ``nn.Conv2d``, not
            subclasses of them.
        config: Of all tiles; or a function of a layer's path and the layer, which returns its configuration, or None where it
            stays digital.
        exclude: Patterns of paths ("head", "blocks.*.mlp") of layers that stay digital.
        seed: Seed of the generator from which the tiles get theirs.
        generator: The generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.

    Returns:
        The analog model. Weights outside of the bounds of their devices are clipped, with a warning of how many.

    Raises:
        ConfigError: No layer is converted, or a pattern matches no layer.
        UnsupportedError: A layer has a form that tiles do not have; exclude it.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Sequential(fb.nn.Linear(4, 3), fb.nn.ReLU(), fb.nn.Linear(3, 2))
        >>> made = fb.analog.convert(model, fb.analog.RPUConfig(fb.analog.FloatingPointDevice()), exclude=["layers.2"], seed=0)
        >>> [type(m).__module__.split(".")[1] for m in made.layers]
        ['analog', 'nn', 'nn']
    """
    own = generator or (initial_generator().fork() if seed is None else Generator(seed))
    if type(model) in KINDS:
        root = _Root(model)
        return convert(root, config, exclude=exclude, generator=own).model  # type: ignore[return-value]
    twin = model.fork()
    paths = {id(m): n for n, m in twin.modules() if type(m) in KINDS}
    for pattern in exclude:
        if not any(fnmatchcase(path, pattern) for path in paths.values()):
            raise ConfigError(
                f"analog.convert: a pattern of exclude matches a layer: {', '.join(paths.values()) or 'there is none'}",
                repr(pattern), "correct it",
            )  # fmt: skip
    made: dict[int, Any] = {}
    clipped = total = 0
    for number, layer in [(id(m), m) for _, m in twin.modules() if type(m) in KINDS]:
        path = paths[number]
        chosen = config(path, layer) if callable(config) else config
        if chosen is None or any(fnmatchcase(path, pattern) for pattern in exclude):
            continue
        made[number], more = KINDS[type(layer)].of(layer, chosen, own)
        clipped, total = clipped + more, total + made[number].tiles.rows * made[number].tiles.columns
    if not made:
        raise ConfigError(
            "analog.convert: a model with nn.Linear or nn.Conv2d layers that are not excluded",
            f"{type(model).__name__} with {len(paths)} of them", "write analog.Linear where your model multiplies by weights",
        )  # fmt: skip
    for _, part in twin.modules():
        for name, value in list(vars(part).items()):
            replaced = _replaced(value, made)
            if replaced is not value:
                setattr(part, name, replaced)
    twin._name("")
    if clipped:
        warn(
            f"analog.convert: {clipped} of {total} weights were outside of the bounds of their devices and are clipped: "
            "scale them with MappingParameter(weight_scaling_omega=…)", UserWarning,
        )  # fmt: skip
    return twin


class _Root(Module):
    """A model that is one layer."""

    def __init__(self, model: Module) -> None:
        self.model = model


def _replaced(value: Any, made: Mapping[int, Module]) -> Any:
    """A value with its layers replaced; the same object where it has none."""
    if isinstance(value, Module):
        return made.get(id(value)) or value
    if isinstance(value, dict):
        found = {k: _replaced(v, made) for k, v in value.items()}
        return found if any(found[k] is not v for k, v in value.items()) else value
    if isinstance(value, (list, tuple)):
        parts = [_replaced(v, made) for v in value]
        return type(value)(parts) if any(a is not b for a, b in zip(parts, value, strict=True)) else value
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
