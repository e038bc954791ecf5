"""``plot_weights``: histograms of the weights of tiles, and of what programmed tiles show, as a picture."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from firebrick.analog.drift_accuracy import name_of
from firebrick.analog.inference_tile import InferenceTile
from firebrick.analog.pictures import dressed_panels, saved
from firebrick.analog.tile import Tile
from firebrick.core.errors import ConfigError
from firebrick.nn import Module

_MOST = 12


def plot_weights(model: Module, path: str | Path) -> Path:
    """Draw the distributions of the weights of the first 12 tiles of a model, as a PNG, SVG or PDF.

    A programmed inference tile has a second histogram: of the weights that its last read found.

    Args:
        model: With analog layers.
        path: File to write; its ending is the format.

    Returns:
        The path.

    Raises:
        ConfigError: The model has no tiles, matplotlib is not installed, or the ending is none of the formats.

    Example:
        >>> import tempfile, pathlib
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(20, 10, config=fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> fb.analog.program_weights(model)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fb.analog.plot_weights(model, pathlib.Path(folder) / "weights.png").name
        'weights.png'
    """
    tiles = [(p, m) for p, m in model.modules() if isinstance(m, Tile)][:_MOST]
    if not tiles:
        raise ConfigError(
            "analog.plot_weights: a model with analog layers", type(model).__name__, "convert it: analog.convert(…)"
        )
    columns = math.ceil(math.sqrt(len(tiles)))
    titles = [p.replace(".tiles.tiles.", ", tile ") or "tile" for p, _ in tiles]
    figure, panels = dressed_panels("analog.plot_weights", titles, columns, "weight", "number of weights")
    for axes, (_, tile) in zip(panels, tiles, strict=True):
        shown = isinstance(tile, InferenceTile) and tile.programmed
        wanted = (tile.targets if isinstance(tile, InferenceTile) and shown else tile.weight).numpy().ravel()
        values = [(wanted, "weights", "#57606a")]
        if isinstance(tile, InferenceTile) and shown:
            values.append((tile.shown.numpy().ravel(), f"read after {name_of(float(tile.time.item()))}", "#1f6feb"))
        low, high = (float(f([f(v) for v, _, _ in values])) for f in (np.min, np.max))
        edges = np.linspace(low, high if high > low else low + 1.0, 41)
        for v, label, colour in values:
            axes.hist(v, edges, color=colour, alpha=0.5, label=label)
        axes.legend(frameon=False, fontsize=8)
    return saved("analog.plot_weights", figure, path)
