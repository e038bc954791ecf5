"""``convert_for_inference``: a model, digital or trained by pulses, with inference tiles that have its weights."""

from __future__ import annotations

from typing import Any, TypeVar

from firebrick.analog.conversion import convert
from firebrick.analog.inference_config import InferenceRPUConfig
from firebrick.analog.mapping import TileArray
from firebrick.core.errors import ConfigError
from firebrick.nn import Module
from firebrick.random import Generator, initial_generator

M = TypeVar("M", bound=Module)


def convert_for_inference(model: M, config: InferenceRPUConfig, *, seed: int | None = None) -> M:
    """A copy of a model whose weights in tiles are those of inference tiles.

    Analog layers keep the weights that their tiles show, scaled as they are used. A model without analog layers is converted as
    by ``analog.convert``.

    Args:
        model: Digital, or with analog layers of any configuration; it stays as it is.
        config: Of the inference tiles.
        seed: Seed of the generator from which the tiles get theirs; by default one derived from
            ``fb.random.initial_generator()``.

    Raises:
        ConfigError: ``config`` is no ``InferenceRPUConfig``, or the model has no layer to convert.

    Example:
        >>> import firebrick as fb
        >>> trained = fb.analog.Linear(4, 2, config=fb.analog.RPUConfig(fb.analog.SoftBoundsDevice()), seed=0)
        >>> made = fb.analog.convert_for_inference(trained, fb.analog.InferenceRPUConfig(), seed=1).eval()
        >>> fb.analog.program_weights(made)
    """
    if not isinstance(config, InferenceRPUConfig):
        received, remedy = repr(config)[:80], "pass analog.InferenceRPUConfig()"
        raise ConfigError("analog.convert_for_inference: config is an InferenceRPUConfig", received, remedy)
    generator = initial_generator().fork() if seed is None else Generator(seed)
    if not any(isinstance(m, TileArray) for _, m in model.modules()):
        return convert(model, config, generator=generator)
    twin = model.fork()
    made: dict[int, Any] = {}
    for _, part in twin.modules():
        if isinstance(part, TileArray):
            device = part.tiles[0][0].weight.device
            found = TileArray(part.rows, part.columns, config, generator, device)
            found.set_weights(part.get_weights())
            made[id(part)] = found if part.training else found.eval()
    for _, part in twin.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, TileArray):
                setattr(part, name, made[id(value)])
            elif isinstance(value, (list, tuple)) and any(isinstance(v, TileArray) for v in value):
                setattr(part, name, type(value)(made.get(id(v), v) if isinstance(v, TileArray) else v for v in value))
            elif isinstance(value, dict) and any(isinstance(v, TileArray) for v in value.values()):
                setattr(part, name, {k: made.get(id(v), v) if isinstance(v, TileArray) else v for k, v in value.items()})
    if isinstance(twin, TileArray):
        twin = made[id(twin)]
    twin._name("")
    return twin
