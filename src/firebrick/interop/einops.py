"""Layers of einops' functions: ``Rearrange``, ``Reduce`` and ``EinMix``, as einops has them for other libraries.

einops itself is imported when the first layer is made. Its functions need none of this: they take tensors as they are.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.tensor import Tensor
from firebrick.functions.contraction import einsum
from firebrick.nn import Module, Parameter, initial
from firebrick.random import Generator

__all__ = ["EinMix", "Rearrange", "Reduce"]


def _settings(*texts: str, **lengths: int) -> str:
    return ", ".join([*map(repr, texts), *(f"{axis}={length}" for axis, length in lengths.items())])


class Rearrange(Module):
    """``einops.rearrange`` as a layer.

    Args:
        pattern: Names of the axes of the input and of the output, such as "b c h w -> b (h w) c".
        lengths: Sizes of axes by name.

    Raises:
        EinopsError: The pattern is wrong.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.interop.einops import Rearrange
        >>> Rearrange("b c h w -> b (h w) c")(fb.ones((2, 3, 4, 5))).shape
        (2, 20, 3)
    """

    def __init__(self, pattern: str, **lengths: int) -> None:
        from einops.layers import RearrangeMixin

        RearrangeMixin(pattern, **lengths)  # which checks the pattern for all numbers of axes
        self.pattern, self.lengths = pattern, lengths

    def forward(self, x: Tensor) -> Any:
        from einops import rearrange

        return rearrange(x, self.pattern, **self.lengths)

    def describe(self) -> str:
        return _settings(self.pattern, **self.lengths)


class Reduce(Module):
    """``einops.reduce`` as a layer.

    Args:
        pattern: Names of the axes of the input and of those that are left, such as "b c (h 2) (w 2) -> b c h w".
        reduction: "min", "max", "sum", "mean", "prod", "any" or "all".
        lengths: Sizes of axes by name.

    Raises:
        EinopsError: The pattern or the reduction is wrong.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.interop.einops import Reduce
        >>> Reduce("b c (h 2) (w 2) -> b c h w", "max")(fb.ones((2, 3, 4, 6))).shape
        (2, 3, 2, 3)
    """

    def __init__(self, pattern: str, reduction: str, **lengths: int) -> None:
        from einops.layers import ReduceMixin

        ReduceMixin(pattern, reduction, **lengths)
        self.pattern, self.reduction, self.lengths = pattern, reduction, lengths

    def forward(self, x: Tensor) -> Any:
        from einops import reduce

        return reduce(x, self.pattern, self.reduction, **self.lengths)

    def describe(self) -> str:
        return _settings(self.pattern, self.reduction, **self.lengths)


class EinMix(Module):
    """einops' linear layer: an einsum of the input with a weight, between two rearrangements, and a bias.

    Args:
        pattern: Names of the axes of the input and of the output, such as "b t (head c) -> b head t d".
        weight_shape: Names of the axes of the weight, such as "head c d"; summed over where the output lacks them.
        bias_shape: Names of the axes of the bias; none if None.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.
        lengths: Sizes of the axes of weight and bias by name.

    Raises:
        EinopsError: Pattern and shapes do not fit together, or the size of an axis is missing.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.interop.einops import EinMix
        >>> layer = EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=4, d=3)
        >>> layer(fb.ones((2, 5, 4))).shape
        (2, 5, 3)
    """

    def __init__(
        self,
        pattern: str,
        weight_shape: str,
        bias_shape: str | None = None,
        *,
        generator: Generator | None = None,
        dtype: Any = None,
        device: Any = None,
        **lengths: int,
    ) -> None:
        plan = _plan(pattern, weight_shape, bias_shape, lengths)
        self.pattern, self.weight_shape, self.bias_shape, self.lengths = pattern, weight_shape, bias_shape, lengths
        self.einsum_pattern: str = plan.einsum_pattern
        place: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        weight, weight_bound, bias, bias_bound = plan.parameters
        self.weight = initial.uniform(tuple(weight), bound=weight_bound, **place)
        self.bias: Parameter | None = None if bias is None else initial.uniform(tuple(bias), bound=bias_bound, **place)
        before, lengths_before, after, lengths_after = plan.layers
        self.before = None if before is None else Rearrange(before, **lengths_before)
        self.after = None if after is None else Rearrange(after, **lengths_after)

    def forward(self, x: Tensor) -> Any:
        if self.before is not None:
            x = self.before(x)
        y = einsum(self.einsum_pattern, x, self.weight)
        if self.bias is not None:
            y = y + self.bias
        return y if self.after is None else self.after(y)

    def describe(self) -> str:
        shapes = [self.weight_shape] if self.bias_shape is None else [self.weight_shape, self.bias_shape]
        return _settings(self.pattern, *shapes, **self.lengths)


def _plan(pattern: str, weight_shape: str, bias_shape: str | None, lengths: dict[str, int]) -> Any:
    """What einops makes of the pattern: ``parameters``, ``layers`` and ``einsum_pattern``."""
    from einops.layers._einmix import _EinmixMixin

    class Plan(_EinmixMixin):
        def _create_parameters(self, *shapes_and_bounds: Any) -> None:
            self.parameters = shapes_and_bounds

        def _create_rearrange_layers(self, *patterns_and_lengths: Any) -> None:
            self.layers = patterns_and_lengths

    return Plan(pattern, weight_shape, bias_shape, **lengths)
