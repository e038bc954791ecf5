"""Layers without parameters: activations, reshaping and losses, thin over the functions of the same names."""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions import elementwise
from firebrick.functions.movement import reshape
from firebrick.functions.neural import cross_entropy, mse_loss
from firebrick.nn.module import Module


class ReLU(Module):
    """max(x, 0).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.ReLU()(fb.asarray([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.relu(x)


class GELU(Module):
    """x · Φ(x), with Φ the normal distribution function.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.GELU()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.gelu(x)


class SiLU(Module):
    """x · sigmoid(x).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.SiLU()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.silu(x)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Tanh()(fb.asarray([0.0])).tolist()
        [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.tanh(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Sigmoid()(fb.asarray([0.0])).tolist()
        [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        return elementwise.sigmoid(x)


class Identity(Module):
    """x itself.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Identity()(fb.ones(2)).tolist()
        [1.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return x


class Flatten(Module):
    """All axes after the first as one: [batch, …] to [batch, features].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Flatten()(fb.ones((2, 3, 4))).shape
        (2, 12)
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return x
        rest = 1
        for n in x.shape[1:]:
            rest *= n
        return reshape(x, (x.shape[0] if x.ndim else 1, rest))


def _check_reduction(kind: str, reduction: str) -> str:
    if reduction not in ("mean", "sum", "none"):
        raise ConfigError(f'{kind}: reduction is "mean", "sum" or "none"', repr(reduction), "use one of these")
    return reduction


class CrossEntropyLoss(Module):
    """-log softmax(logits)[label], averaged over samples.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.CrossEntropyLoss()(fb.zeros((2, 10)), fb.asarray([3, 7])).item(), 4)
        2.3026
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = _check_reduction("CrossEntropyLoss", reduction)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of floating logits [batch, classes] and integer labels [batch]."""
        return cross_entropy(logits, labels, reduction=self.reduction)

    def describe(self) -> str:
        return repr(self.reduction)


class MSELoss(Module):
    """(prediction - target)², averaged over elements.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MSELoss()(fb.ones(2), fb.zeros(2)).item()
        1.0
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = _check_reduction("MSELoss", reduction)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss of two floating tensors of one shape."""
        return mse_loss(prediction, target, reduction=self.reduction)

    def describe(self) -> str:
        return repr(self.reduction)


class Sequential(Module):
    """Layers one after another: each takes what the one before returned.

    Args:
        layers: Modules.

    Attributes:
        layers: The same, as a tuple; ``model[i]`` is layer i.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Sequential(fb.nn.Flatten(), fb.nn.Linear(6, 2))(fb.ones((5, 2, 3))).shape
        (5, 2)
    """

    def __init__(self, *layers: Module) -> None:
        for i, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise ConfigError(
                    "Sequential takes modules", f"layers[{i}]: {type(layer).__name__}", "use nn.ReLU() for fb.relu, and so on"
                )
        self.layers = layers

    def forward(self, *args: Any) -> Any:
        result = self.layers[0](*args) if self.layers else args[0]
        for layer in self.layers[1:]:
            result = layer(result)
        return result

    def __getitem__(self, i: int) -> Module:
        return self.layers[i]

    def __len__(self) -> int:
        return len(self.layers)
