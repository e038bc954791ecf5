"""``MappingParameter``: how the weights of a layer are mapped to tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers, keep_python_numbers
from firebrick.core.errors import ConfigError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MappingParameter:
    """How a layer is mapped to tiles.

    Args:
        weight_scaling_omega: Largest absolute weight of a tile, to which those of the layer are scaled when they are set; the
            factor is digital. 0 for no scaling.
        weight_scaling_columnwise: Whether each output has a factor of its own.
        max_input_size: Most inputs of a tile; 0 for any number. Larger layers have several tiles, whose outputs are added.
        max_output_size: Most outputs of a tile; 0 for any number.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.MappingParameter(max_input_size=128).max_output_size
        512
    """

    weight_scaling_omega: float = 0.0
    weight_scaling_columnwise: bool = False
    max_input_size: int = 512
    max_output_size: int = 512

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        check_flags(name, self, "weight_scaling_columnwise")
        check_numbers(name, self, "weight_scaling_omega", least=0.0)
        for field in ("max_input_size", "max_output_size"):
            size = getattr(self, field)
            if type(size) is not int or size < 0:
                raise ConfigError(f"{name}: {field} is an int of at least 0", f"{field}={size!r:.60}", "pass e.g. 512")

    def scales(self, weights: Array) -> Array | None:
        """The digital factors of a layer's outputs, [outputs, 1]; None without scaling.

        Args:
            weights: Of the layer, [outputs, inputs].
        """
        if self.weight_scaling_omega == 0.0 or not weights.size:
            return None
        top = np.abs(weights).max(axis=1 if self.weight_scaling_columnwise else None, keepdims=True)
        top = np.where(top > 0.0, top / self.weight_scaling_omega, 1.0)
        return np.broadcast_to(top, (len(weights), 1))
