"""Clipping and remapping of a tile's weights, which follow each update of a model that is trained for hardware."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from firebrick.analog.checks import check_numbers, keep_python_numbers
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import clip, maximum, minimum, where
from firebrick.functions.statistical import max as largest
from firebrick.functions.statistical import mean
from firebrick.functions.statistical import std as deviation


class WeightClipType(Enum):
    """How weights are clipped.

    Attributes:
        NONE: Not at all.
        FIXED_VALUE: To ± ``fixed_value``.
        LAYER_GAUSSIAN: To ± ``sigma`` standard deviations of the tile's weights.
        AVERAGE_CHANNEL_MAX: To ± the mean over outputs of the largest absolute weight.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.WeightClipType.FIXED_VALUE.name
        'FIXED_VALUE'
    """

    NONE = "none"
    FIXED_VALUE = "fixed value"
    LAYER_GAUSSIAN = "layer gaussian"
    AVERAGE_CHANNEL_MAX = "average channel max"


class WeightRemapType(Enum):
    """How the range of the weights is moved to the digital factors of the outputs.

    Attributes:
        NONE: Not at all.
        LAYERWISE_SYMMETRIC: The largest absolute weight of a tile becomes ``remapped_wmax``.
        CHANNELWISE_SYMMETRIC: That of each output does.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.WeightRemapType.CHANNELWISE_SYMMETRIC.name
        'CHANNELWISE_SYMMETRIC'
    """

    NONE = "none"
    LAYERWISE_SYMMETRIC = "layerwise symmetric"
    CHANNELWISE_SYMMETRIC = "channelwise symmetric"


@dataclass(frozen=True)
class WeightClipParameter:
    """Settings of the clipping of weights.

    Args:
        type: See ``WeightClipType``.
        fixed_value: Largest absolute weight of FIXED_VALUE.
        sigma: Standard deviations of LAYER_GAUSSIAN.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.WeightClipParameter(fb.analog.WeightClipType.LAYER_GAUSSIAN).sigma
        2.5
    """

    type: WeightClipType = WeightClipType.NONE
    fixed_value: float = 1.0
    sigma: float = 2.5

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        if not isinstance(self.type, WeightClipType):
            known = ", ".join(k.name for k in WeightClipType)
            raise ConfigError(
                f"WeightClipParameter: type is a WeightClipType: {known}",
                repr(self.type)[:60],
                "pass WeightClipType.FIXED_VALUE",
            )
        check_numbers("WeightClipParameter", self, "fixed_value", "sigma", above=0.0)

    @property
    def fixed(self) -> bool:
        """Whether the limit does not depend on the weights, so that clipping again changes nothing."""
        return self.type is WeightClipType.FIXED_VALUE

    def clipped(self, w: Tensor) -> Tensor:
        """Weights within the limit.

        Args:
            w: Weights [rows, columns].
        """
        if self.type is WeightClipType.NONE:
            return w
        if self.type is WeightClipType.FIXED_VALUE:
            return clip(w, -self.fixed_value, self.fixed_value)
        if self.type is WeightClipType.LAYER_GAUSSIAN:
            if w.size < 2:
                return w
            limit = deviation(w, correction=1.0) * self.sigma
        else:
            limit = mean(largest(absolute(w), axis=1))
        return maximum(minimum(w, limit), -limit)


@dataclass(frozen=True)
class WeightRemapParameter:
    """Settings of the remapping of weights.

    Args:
        type: See ``WeightRemapType``.
        remapped_wmax: Largest absolute weight afterwards.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.WeightRemapParameter(fb.analog.WeightRemapType.LAYERWISE_SYMMETRIC).remapped_wmax
        1.0
    """

    type: WeightRemapType = WeightRemapType.NONE
    remapped_wmax: float = 1.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        if not isinstance(self.type, WeightRemapType):
            known = ", ".join(k.name for k in WeightRemapType)
            raise ConfigError(
                f"WeightRemapParameter: type is a WeightRemapType: {known}", repr(self.type)[:60],
                "pass WeightRemapType.CHANNELWISE_SYMMETRIC",
            )  # fmt: skip
        check_numbers("WeightRemapParameter", self, "remapped_wmax", above=0.0)

    def factors(self, w: Tensor) -> Tensor | None:
        """What weights are divided by and outputs multiplied by, [rows, 1]; None without remapping.

        Args:
            w: Weights [rows, columns].
        """
        if self.type is WeightRemapType.NONE:
            return None
        top = largest(absolute(w), axis=1, keepdims=True)
        top = top if self.type is WeightRemapType.CHANNELWISE_SYMMETRIC else top * 0.0 + largest(top)
        return where(top > 0.0, top / self.remapped_wmax, 1.0)
