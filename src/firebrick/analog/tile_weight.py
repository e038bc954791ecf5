"""``TileWeight``: the visible weights of devices that have bounds, or of cells of several devices.

They are what the devices show. Written past the devices, they would be outside of the bounds, or undone by the next update.
"""

from __future__ import annotations

from typing import Any, NoReturn

from firebrick.core.errors import ConfigError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.nn import Parameter


class TileWeight(Parameter):
    """Weights that change by the operations of a tile alone: other writes raise ConfigError.

    Args:
        value: As of ``nn.Parameter``.
        frozen: Likewise.
        label: Likewise.
    """

    __slots__ = ()

    def _rebind(self, to: Tensor) -> NoReturn:
        raise ConfigError(
            "the weights of a tile change by pulses and operations of its devices, which have bounds",
            f"a write past the devices to {describe('weight', self)}",
            "call set_weights(…) of the tile, or of its layer: layer.tiles.set_weights(…)",
        )

    def _optimized_by(self, name: str, optimizer: Any) -> NoReturn:
        raise ConfigError(
            f"{type(optimizer).__name__}: the model with the tile that {name} belongs to", "a list of parameters",
            "use analog.SGD(model, lr=…)",
        )  # fmt: skip
