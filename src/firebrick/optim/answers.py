"""What optimizers answer to habits from PyTorch: a call of ``step``, and a model whose weights are plain tensors."""

from __future__ import annotations

from typing import Any, NoReturn

from firebrick.core.errors import ArgumentError, ConfigError, DataDependentError
from firebrick.core.tensor import Tensor
from firebrick.nn import Module


class Updates(int):
    """The number of updates done; a call of it, as PyTorch's optimizers have it, raises."""

    def __call__(self, *args: Any, **named: Any) -> NoReturn:
        raise ArgumentError(
            "optimizer.step is the number of updates done, and takes no arguments",
            "optimizer.step()",
            "write optimizer.update(model, gradients), with the gradients of fb.value_and_grad(function)(model, …)",
        )

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def updates(counter: Tensor) -> Updates:
    """The number of updates done, which a counter has.

    Raises:
        DataDependentError: A graph is made, so the counter has no value.
    """
    try:
        return Updates(counter)
    except DataDependentError:
        raise DataDependentError(
            "optimizer.step is the number of updates done, which has no value while a graph is made",
            "optimizer.step under jit",
            "write optimizer.update(model, gradients) to update; optimizer.counter is the number as a tensor",
        ) from None


def no_parameters(model: Any) -> ConfigError:
    """The error for a model without parameters; it names plain tensors that were meant to be parameters."""
    received, remedy = type(model).__name__, "pass a module or a list of its parameters"
    if isinstance(model, Module):
        attributes = [
            (path, name)
            for path, part in model.modules()
            for name, v in vars(part).items()
            if isinstance(v, Tensor) and v.dtype.kind == "float"
        ]
        if attributes:
            path, name = attributes[0]
            paths = ", ".join(f"{p}.{n}" if p else n for p, n in attributes)
            received += f" without parameters; plain tensors, which are constants: {paths:.200}"
            remedy = f"write self.{name} = nn.Parameter(…) in {type(dict(model.modules())[path]).__name__}"
    return ConfigError("an optimizer needs parameters", received, remedy)
