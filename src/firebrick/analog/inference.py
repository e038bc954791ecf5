"""Programming, drift and calibration of the inference tiles of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from firebrick.analog.inference_tile import InferenceTile, TileStatistics, time_of
from firebrick.analog.io_parameters import IOParameters
from firebrick.autodiff.tape import no_grad
from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.nn import Module


def inference_tiles(model: Any, name: str) -> list[tuple[str, InferenceTile]]:
    """The inference tiles of a model, each with its path.

    Args:
        model: Module.
        name: Of the function that needs them, for messages.

    Raises:
        ConfigError: There is none.
    """
    found = [(p, m) for p, m in model.modules() if isinstance(m, InferenceTile)] if isinstance(model, Module) else []
    if not found:
        raise ConfigError(
            f"{name}: a model with inference tiles", f"{type(model).__name__} without",
            "convert it: analog.convert(model, analog.InferenceRPUConfig())",
        )  # fmt: skip
    return found


def _check(name: str, tiles: list[tuple[str, InferenceTile]], programmed: bool, remedy: str) -> None:
    """Raise ConfigError unless all tiles are in evaluation mode and programmed, or none of them is."""
    for path, tile in tiles:
        if tile.training:
            raise ConfigError(f"{name}: a model in evaluation mode", f"{path} in training mode", "call model.eval() before")
    states = {path: tile.programmed for path, tile in tiles}
    wrong = [path for path, state in states.items() if state is not programmed]
    if wrong:
        wanted = "tiles that are programmed" if programmed else "tiles that are not programmed yet"
        received = f"{len(wrong)} of {len(tiles)} that are {'not' if programmed else 'already'}, such as {wrong[0]}"
        raise ConfigError(f"{name}: {wanted}", received, remedy)


def program_weights(model: Module, *, again: bool = False) -> None:
    """Program the weights of all inference tiles of a model; see ``InferenceTile.program_weights``.

    Args:
        model: In evaluation mode.
        again: Whether tiles that are programmed are programmed anew.

    Raises:
        ConfigError: The model has no inference tiles, is in training mode, or is programmed already; nothing was changed.

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(4, 2, config=fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> fb.analog.program_weights(model)
        >>> fb.analog.program_weights(model)
        Traceback (most recent call last):
        ...
        firebrick.core.errors.ConfigError: analog.program_weights: tiles that are not programmed yet...
    """
    tiles = inference_tiles(model, "analog.program_weights")
    if not again:
        _check("analog.program_weights", tiles, False, "pass again=True to program them anew")
    for _, tile in tiles:
        tile.program_weights(again=again)


def drift_weights(model: Module, t_inference: float) -> None:
    """Read the weights of all inference tiles at a time after programming; see ``InferenceTile.drift_weights``.

    Args:
        model: In evaluation mode, programmed.
        t_inference: Seconds since programming, at least 0.

    Raises:
        ConfigError: The model has no inference tiles, is in training mode or not programmed, or a noise model has no such time;
            nothing was changed.

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(4, 2, config=fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> fb.analog.program_weights(model)
        >>> fb.analog.drift_weights(model, 3600.0)
        >>> fb.analog.tile_statistics(model)["tiles.tiles.0.0"].time
        3600.0
    """
    tiles = inference_tiles(model, "analog.drift_weights")
    given = time_of("analog.drift_weights", t_inference)
    _check("analog.drift_weights", tiles, True, "call analog.program_weights first")
    for _, tile in tiles:
        tile.config.noise_model.check_time(given)
    for _, tile in tiles:
        tile.drift_weights(given)


def tile_statistics(model: Module) -> dict[str, TileStatistics]:
    """How far the weights of each programmed tile are from those that were aimed at, by the tile's path.

    Args:
        model: Programmed.

    Raises:
        ConfigError: The model has no inference tiles, or they are not programmed.

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(4, 2, config=fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> fb.analog.program_weights(model)
        >>> sorted(fb.analog.tile_statistics(model))
        ['tiles.tiles.0.0']
    """
    return {path: tile.statistics() for path, tile in inference_tiles(model, "analog.tile_statistics")}


class InputRangeCalibrationType(Enum):
    """How input ranges are found from data.

    Attributes:
        MAX: The largest absolute input.
        QUANTILE: A quantile of the absolute inputs.
        STD: A number of standard deviations of the inputs.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.InputRangeCalibrationType.MAX.name
        'MAX'
    """

    MAX = "max"
    QUANTILE = "quantile"
    STD = "std"


def calibrate_input_ranges(
    model: Module, batches: Iterable[Any], calibration_type: InputRangeCalibrationType = InputRangeCalibrationType.QUANTILE, *,
    quantile: float = 0.99995, std_alpha: float = 3.0, run: Callable[[Module, Any], Any] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Set the input ranges of all inference tiles from the inputs that they get.

    The model runs on the batches in evaluation mode and without clipping of inputs; weights and modes stay as they are.

    Args:
        model: With tiles that have an input range.
        batches: What the model is called with: tensors, or tuples whose first element is the model's input.
        calibration_type: See ``InputRangeCalibrationType``.
        quantile: Of QUANTILE, in (0, 1].
        std_alpha: Of STD, above 0.
        run: Runs the model on a batch, where it takes more than one tensor.

    Returns:
        The ranges, by the path of the tile.

    Raises:
        ConfigError: There is no tile with an input range, no batch, or a setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> config = fb.analog.InferenceRPUConfig(
        ...     forward=fb.analog.IOParameters(is_perfect=True), input_range=fb.analog.InputRangeParameter(enable=True)
        ... )
        >>> model = fb.analog.Linear(2, 2, config=config, seed=0)
        >>> fb.analog.calibrate_input_ranges(model, [fb.asarray([[0.5, -2.0]])], fb.analog.InputRangeCalibrationType.MAX)
        {'tiles.tiles.0.0': 2.0}
    """
    name = "analog.calibrate_input_ranges"
    tiles = [(p, t) for p, t in inference_tiles(model, name) if t.input_range is not None]
    if not tiles:
        remedy = "configure input_range=analog.InputRangeParameter(enable=True)"
        raise ConfigError(f"{name}: tiles with an input range", "none has one", remedy)
    if not isinstance(calibration_type, InputRangeCalibrationType):
        known = ", ".join(k.name for k in InputRangeCalibrationType)
        given = repr(calibration_type)[:60]
        raise ConfigError(f"{name}: calibration_type is an InputRangeCalibrationType: {known}", given, "pass one of them")
    numbers = all(isinstance(python_scalar(n), (int, float)) for n in (quantile, std_alpha))
    if not numbers or not 0.0 < quantile <= 1.0 or not 0.0 < std_alpha < float("inf"):
        raise ConfigError(
            f"{name}: quantile in (0, 1], std_alpha above 0", f"{quantile!r:.40}, {std_alpha!r:.40}", "correct them"
        )
    if not isinstance(batches, Iterable):
        raise ConfigError(f"{name}: batches is a list of tensors, or a loader", repr(batches)[:60], "pass e.g. [x]")
    seen: dict[int, list[np.ndarray[Any, Any]]] = {id(t): [] for _, t in tiles}
    twin = model.fork().eval()  # with exact products of inputs that are not clipped
    places = {p: t for p, t in twin.modules() if isinstance(t, InferenceTile)}
    for path, tile in tiles:
        other = places[path]
        vars(other).update(config=replace(other.config, forward=IOParameters(is_perfect=True)), input_range=None)
        other.register_forward_hook(partial(_keep, seen[id(tile)]))
    number = 0
    with no_grad():
        for batch in batches:
            number += 1
            run(twin, batch) if run is not None else twin(first_of(batch))
    if any(sum(v.size for v in values) == 0 for values in seen.values()):
        raise ConfigError(f"{name}: batches on which each tile runs", f"{number} batches", "pass at least one vector")
    found = {}
    for path, tile in tiles:
        values = np.concatenate([v.ravel() for v in seen[id(tile)]]).astype(np.float64)
        if calibration_type is InputRangeCalibrationType.MAX:
            bound = float(np.abs(values).max())
        elif calibration_type is InputRangeCalibrationType.QUANTILE:
            bound = float(np.quantile(np.abs(values), quantile))
        else:
            bound = float(values.std() * std_alpha)
        if not 0.0 < bound < float("inf"):
            raise ConfigError(
                f"{name}: inputs of {path} that are finite and not all 0", f"a range of {bound}", "pass other batches"
            )
        found[path] = bound
    for path, tile in tiles:
        tile.set_input_range(found[path])
    return found


def _keep(values: list[np.ndarray[Any, Any]], module: Any, args: tuple[Any, ...], result: Any) -> None:
    """The forward hook that keeps the inputs of a tile."""
    values.append(np.array(args[0].numpy()))


def first_of(batch: Any) -> Tensor:
    """The model's input of a batch.

    Args:
        batch: A tensor, or a tuple whose first element it is.
    """
    if isinstance(batch, (tuple, list)) and not batch:
        raise ConfigError("a batch is a tensor, or a tuple whose first element it is", repr(batch), "leave it out")
    found: Tensor = batch[0] if isinstance(batch, (tuple, list)) else batch
    return found
