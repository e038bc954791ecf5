"""``optimize_programming``: limits of the weights of programmed tiles that make their errors over time small, without training.

The largest weight of a tile gets the largest conductance, and noise is in proportion to that. A limit below the largest weight
changes a few weights and makes the noise of all others smaller. Which limit is best depends on the noise model and the time.

Source: Mackin et al., "Optimised weight programming for analogue memory-based deep neural networks", Nature
    Communications, 2022, of which this optimises the scale of the weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.analog.inference import inference_tiles
from firebrick.analog.inference_tile import InferenceTile, time_of
from firebrick.core.errors import ConfigError
from firebrick.core.settings import python_numbers, whole
from firebrick.nn import Module
from firebrick.random import Generator

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4)
"""Limits that are tried, relative to the largest absolute weight of a tile."""


@dataclass(frozen=True)
class ProgrammingLimit:
    """The limit that was found for a tile.

    Attributes:
        limit: Largest absolute weight.
        clipped: Number of weights that it clips.
        before: Root of the mean square of the errors of the weights without a limit, relative to that of the weights.
        after: That with the limit.

    Example:
        >>> import firebrick as fb
        >>> tile = fb.analog.InferenceTile(20, 20, fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> _ = tile.set_weights(fb.random.Generator(0).normal((20, 20)) ** 3)
        >>> found = fb.analog.optimize_programming(tile)[""]
        >>> found.after < found.before, found.clipped > 0
        (True, True)
    """

    limit: float
    clipped: int
    before: float
    after: float


def optimize_programming(
    model: Module, times: Sequence[float] = (1.0, 86400.0), *, repeats: int = 4, seed: int = 0,
    shares: Sequence[float] = SHARES,
) -> dict[str, ProgrammingLimit]:  # fmt: skip
    """Clip the weights of each inference tile at the limit with the smallest error over time.

    For each limit, a copy of the tile is programmed and read at the times; the error is that of the compensated weights. The
    tiles are not programmed afterwards.

    Args:
        model: With inference tiles, in evaluation mode; its weights are changed.
        times: Seconds since programming.
        repeats: How many times each limit is programmed.
        seed: Of the programming, drift and noise.
        shares: Limits that are tried, relative to the largest weight; 1, for no limit, is always tried.

    Returns:
        What was found, by the path of the tile.

    Raises:
        ConfigError: The model has no inference tiles, is in training mode or is programmed, or an argument has no meaning.

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(30, 10, config=fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> sorted(fb.analog.optimize_programming(model, (3600.0,), repeats=2))
        ['tiles.tiles.0.0']
    """
    name = "analog.optimize_programming"
    tiles = inference_tiles(model, name)
    given = tuple(time_of(name, t) for t in times)
    repeats = whole(name, "repeats", repeats, 1)
    tried = sorted({1.0, *python_numbers(list(shares))}, reverse=True)
    if not given or not all(0.0 < s <= 1.0 for s in tried):
        received = f"times {given}, shares {tuple(tried)}"[:200]
        raise ConfigError(f"{name}: at least one time, and shares in (0, 1]", received, "correct them")
    for path, tile in tiles:
        if tile.training or tile.programmed:
            why = "training mode" if tile.training else "programmed already"
            remedy = "call model.eval() before" if tile.training else "call discard_programming() of its tiles before"
            raise ConfigError(f"{name}: tiles in evaluation mode that are not programmed", f"{path}: {why}", remedy)
        for t in given:
            tile.config.noise_model.check_time(t)
    streams, found = Generator(seed), {}
    chosen: list[tuple[InferenceTile, Any]] = []
    for path, tile in tiles:
        wanted = tile.weight.numpy().astype(np.float64)
        top = float(np.abs(wanted).max())
        size = float(np.sqrt((wanted**2).mean())) or 1.0
        state = streams.fork().state()
        errors = {}
        for share in tried:
            limited = np.clip(wanted, -share * top, share * top)
            errors[share] = _error(tile, limited, wanted, given, repeats, state) / size
        best = min(errors, key=lambda s: errors[s])
        limited = np.clip(wanted, -best * top, best * top)
        found[path] = ProgrammingLimit(best * top, int((limited != wanted).sum()), errors[1.0], errors[best])
        chosen.append((tile, limited))
    for tile, limited in chosen:
        tile.place(limited.astype(np.float32))
    return found


def _error(tile: InferenceTile, limited: Any, wanted: Any, times: tuple[float, ...], repeats: int, state: Any) -> float:
    """Root of the mean square of the errors of compensated weights over times and repetitions, with the same random numbers."""
    twin = tile.fork()
    twin.generator.set_state(state)
    twin.place(limited.astype(np.float32))
    squares = []
    for _ in range(repeats):
        twin.program_weights(again=True)
        for t in times:
            twin.drift_weights(t)
            factor = twin.compensation.numpy().astype(np.float64)[:, None]
            squares.append(((twin.shown.numpy() * factor - wanted) ** 2).mean())
    return float(np.sqrt(np.mean(squares)))
