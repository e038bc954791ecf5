"""Input ranges: the largest input of a tile, from the first batches, then learned; larger inputs are clipped."""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.analog.checks import check_flags, check_numbers, keep_python_numbers
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import astype, less, maximum, minimum, where
from firebrick.functions.statistical import mean
from firebrick.functions.statistical import sum as total


@dataclass(frozen=True)
class InputRangeParameter:
    """Settings of the input range of a tile.

    Inputs x are clipped to ± r and divided by r; outputs are multiplied by it. In the first training passes
    r is a running mean of ``init_std_alpha`` standard deviations of the inputs.

    Args:
        enable: Whether tiles have an input range.
        learn_input_range: Whether it is a parameter that is trained; else the first passes alone decide it.
        init_value: At the start.
        init_from_data: Training passes that set it.
        init_std_alpha: See above.
        decay: Gradient, relative to the range, where more than ``input_min_percentage`` of the inputs are not clipped.
        input_min_percentage: See there, a share.
        gradient_scale: Factor of the gradient.
        gradient_relative: Whether the gradient is in proportion to the range.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.InputRangeParameter(enable=True, init_value=2.0).init_from_data
        100
    """

    enable: bool = False
    learn_input_range: bool = True
    init_value: float = 3.0
    init_from_data: int = 100
    init_std_alpha: float = 3.0
    decay: float = 0.001
    input_min_percentage: float = 0.95
    gradient_scale: float = 1.0
    gradient_relative: bool = True

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = "InputRangeParameter"
        check_flags(name, self, "enable", "learn_input_range", "gradient_relative")
        check_numbers(name, self, "init_value", "init_std_alpha", above=0.0)
        check_numbers(name, self, "decay", "gradient_scale", "input_min_percentage", least=0.0)
        if type(self.init_from_data) is not int or self.init_from_data < 0:
            given = f"init_from_data={self.init_from_data!r:.40}"
            raise ConfigError(f"{name}: init_from_data is an int of at least 0", given, "pass e.g. 100")

    def gradient(self, x: Tensor, bound: Tensor, g: Tensor) -> Tensor:
        """The gradient of a range: clipped inputs whose gradient points outwards widen it, unclipped ones narrow it.

        Args:
            x: Inputs [samples, columns].
            bound: The range, 0-d.
            g: Gradient of the clipped inputs.
        """
        above = total(where(x >= bound, minimum(g, 0.0), 0.0))
        below = total(where(x <= -bound, maximum(g, 0.0), 0.0))
        found = (above - below) * self.gradient_scale
        found = found * bound if self.gradient_relative else found
        if self.decay == 0.0:
            return found
        inside = mean(astype(less(absolute(x), bound), x.dtype))
        return found + where(inside > self.input_min_percentage, bound * self.decay, 0.0)
