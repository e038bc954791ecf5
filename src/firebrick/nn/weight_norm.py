"""Weight normalisation: a layer's weight as a magnitude times a direction, which training changes apart from each other."""

from __future__ import annotations

from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.core.errors import ConfigError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import sqrt
from firebrick.functions.scaled import divisor
from firebrick.functions.statistical import sum as sum_of
from firebrick.nn.module import Module
from firebrick.nn.parameter import Parameter


def call_with(layer: Module, name: str, weight: Tensor, /, *args: Any, **kwargs: Any) -> Any:
    """What a layer computes with a tensor as its weight, which it has during this call only."""
    object.__setattr__(layer, name, weight)
    try:
        return layer(*args, **kwargs)
    finally:
        object.__delattr__(layer, name)


class WeightNorm(Module):
    """A layer whose weight is magnitude · direction / ‖direction‖, the norm taken for each index of one axis.

    The magnitude starts from the weight's norm and the direction from the weight itself, so the layer first computes what it
    did. The wrapped layer has no such parameter any more, but its weight for each call, which ``normalized`` returns; another
    module that shared it keeps the parameter to itself.

    Args:
        layer: Module with a parameter of that name.
        name: Name of the parameter.
        axis: Axis whose indices have a magnitude each, 0 being the outputs; None for one magnitude in all.

    Attributes:
        layer: The module.
        magnitude: Parameter of the weight's shape with 1 for every axis but ``axis``.
        direction: Parameter of the weight's shape.

    Raises:
        ConfigError: The layer has no such parameter.

    Source: Salimans, Kingma, "Weight Normalization", arXiv:1602.07868.

    Example:
        >>> import firebrick as fb
        >>> layer = fb.nn.WeightNorm(fb.nn.Linear(3, 2))
        >>> [name for name, _ in layer.named_parameters()], layer.magnitude.shape
        (['layer.bias', 'magnitude', 'direction'], (2, 1))
    """

    def __init__(self, layer: Module, name: str = "weight", axis: int | None = 0) -> None:
        weight = getattr(layer, name, None)
        if not isinstance(weight, Parameter):
            shown = describe(name, weight) if isinstance(weight, Tensor) else repr(weight)
            raise ConfigError(
                f"WeightNorm: {type(layer).__name__} has a parameter {name}", shown, "name one of its own parameters"
            )
        self.layer, self.name = layer, name
        self.axis = None if axis is None else normalize_axis(axis, weight.ndim, "WeightNorm")
        with no_grad():
            self.magnitude = Parameter(_norm(weight.detach(), self.axis), frozen=weight.frozen)
        self.direction = Parameter(weight.detach(), frozen=weight.frozen)
        delattr(layer, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes with the weight that magnitude and direction give.

        Args:
            *args: Those of the layer.
            **kwargs: Those of the layer.
        """
        return call_with(self.layer, self.name, self.normalized(), *args, **kwargs)

    def normalized(self) -> Tensor:
        """The weight with which the layer computes, magnitude · direction / ‖direction‖.

        Returns:
            Tensor of the weight's shape.

        Example:
            >>> import firebrick as fb
            >>> fb.nn.WeightNorm(fb.nn.Linear(3, 2)).normalized().shape
            (2, 3)
        """
        return self.direction * (self.magnitude / _norm(self.direction, self.axis))

    def describe(self) -> str:
        return f"{self.name}, axis={self.axis}"


@answers_arguments
def weight_norm(layer: Module, name: str = "weight", axis: int | None = 0) -> WeightNorm:
    """``WeightNorm(layer, name, axis)``.

    Args:
        layer: Layer with the weight.
        name: Name of the weight.
        axis: Axis whose indices have a magnitude each; None for one magnitude of the whole weight.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.weight_norm(fb.nn.Conv2d(1, 4, 3)).magnitude.shape
        (4, 1, 1, 1)
    """
    return WeightNorm(layer, name, axis)


def _norm(weight: Tensor, axis: int | None) -> Tensor:
    others = tuple(i for i in range(weight.ndim) if i != axis)
    return divisor(sqrt(sum_of(weight * weight, axis=others, keepdims=True)))
