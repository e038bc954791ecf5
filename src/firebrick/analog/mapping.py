"""``TileArray``: the weights of a layer in tiles of limited size."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from firebrick.analog.checks import array_of
from firebrick.analog.config import RPUConfig
from firebrick.analog.fixed_attributes import ANOTHER, check_assigned
from firebrick.analog.inference_config import InferenceRPUConfig
from firebrick.analog.inference_tile import InferenceTile
from firebrick.analog.tile import Tile
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import concat
from firebrick.nn import Module
from firebrick.random import Generator


def parts_of(size: int, most: int) -> list[slice]:
    """A size in as few parts of nearly equal sizes as the largest size allows.

    Args:
        size: The whole.
        most: Largest size of a part; 0 for any.
    """
    count = max(1, math.ceil(size / most)) if most else 1
    ends = [size * k // count for k in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


_FIXED = dict.fromkeys(("rows", "columns", "mapping", "of_rows", "of_columns", "tiles"), ANOTHER)


class TileArray(Module):
    """The tiles of one layer: a matrix in parts, whose products are computed by a tile each and added or joined digitally.

    Args:
        rows: Outputs of the layer.
        columns: Inputs of the layer.
        config: Of all tiles.
        generator: From which the tiles get their generators.
        device: Device of the tensors.

    Attributes:
        tiles: Tiles by row of parts and column of parts.

    Example:
        >>> import firebrick as fb
        >>> config = fb.analog.RPUConfig(mapping=fb.analog.MappingParameter(max_input_size=4))
        >>> array = fb.analog.TileArray(3, 10, config, fb.random.Generator(0))
        >>> [[(t.rows, t.columns) for t in row] for row in array.tiles]
        [[(3, 3), (3, 3), (3, 4)]]
    """

    def __init__(self, rows: int, columns: int, config: RPUConfig, generator: Generator, device: Any = None) -> None:
        mapping = config.mapping
        self.rows, self.columns, self.mapping = rows, columns, mapping
        self.of_rows, self.of_columns = parts_of(rows, mapping.max_output_size), parts_of(columns, mapping.max_input_size)
        kind: Any = InferenceTile if isinstance(config, InferenceRPUConfig) else Tile
        self.tiles: list[list[Tile]] = [
            [
                kind(a.stop - a.start, b.stop - b.start, config, generator=generator.fork(), device=device)
                for b in self.of_columns
            ]
            for a in self.of_rows
        ]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the module.

        Raises:
            ConfigError: It is one that only the making of the tiles decides.
        """
        check_assigned(self, name, value, _FIXED, {"config": ANOTHER, "weight": "call set_weights(…)"})
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """The product of the layer's weights with each vector.

        Args:
            x: Float32 tensor [..., columns].
        """
        parts = [x] if len(self.of_columns) == 1 else [x[..., b] for b in self.of_columns]
        found = []
        for row in self.tiles:
            y = row[0](parts[0])
            for tile, part in zip(row[1:], parts[1:], strict=True):
                y = y + tile(part)
            found.append(y)
        return found[0] if len(found) == 1 else concat(found, axis=-1)

    def set_weights(self, weights: Any) -> int:
        """Set the weights of the layer, scaled and clipped to the bounds of the devices.

        Args:
            weights: Array or tensor [rows, columns].

        Returns:
            Number of weights that were clipped.

        Raises:
            OperandError: They are no numbers, or a ragged list; nothing was changed.
            DTypeError: The weights are complex, or of a dtype that Firebrick has not; nothing was changed.
            ShapeError: The shape is not that of the layer; nothing was changed.
            OutOfRangeError: A weight is not finite; nothing was changed.
        """
        array = weights.numpy() if isinstance(weights, Tensor) else weights
        given = array_of("TileArray.set_weights: weights", array).astype(np.float32)
        if given.shape != (self.rows, self.columns):
            received = str(list(given.shape))
            raise ShapeError(f"TileArray.set_weights: weights are [{self.rows}, {self.columns}]", received, "reshape them")
        if not np.isfinite(given).all():
            bad = f"{np.count_nonzero(~np.isfinite(given))} of {given.size} that are not"
            raise OutOfRangeError("TileArray.set_weights: weights that are finite", bad, "find out where they came from")
        scales = self.mapping.scales(given)
        clipped = 0
        for row, a in zip(self.tiles, self.of_rows, strict=True):
            for tile, b in zip(row, self.of_columns, strict=True):
                own = None if scales is None else scales[a, 0]
                clipped += tile.place(given[a, b] if own is None else given[a, b] / own[:, None], own)
        return clipped

    def get_weights(self) -> Tensor:
        """The weights of the layer as the tiles show them, [rows, columns]."""
        rows = [[tile.scaled_weights() for tile in row] for row in self.tiles]
        joined = [row[0] if len(row) == 1 else concat(row, axis=1) for row in rows]
        return joined[0] if len(joined) == 1 else concat(joined, axis=0)

    def describe(self) -> str:
        return f"{self.rows}, {self.columns}"


def set_attribute(layer: Module, name: str, value: Any) -> None:
    """Set an attribute of a layer whose weights are in tiles: its ``__setattr__``.

    Args:
        layer: The layer.
        name: Of the attribute.
        value: Its value.

    Raises:
        ConfigError: It is the configuration of the tiles, or a matrix of weights.
    """
    of_tiles = isinstance(vars(layer).get(name), TileArray) and not isinstance(value, Module)
    fixed = {name: f"call layer.{name}.set_weights(…)"} if of_tiles else {}
    check_assigned(layer, name, value, fixed, {"config": ANOTHER, "weight": "call layer.tiles.set_weights(…)"})
    Module.__setattr__(layer, name, value)
