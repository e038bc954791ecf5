"""Distributed parameters: leaves whose gradients pass through a function as soon as a backward pass has finished them.

A strategy marks its parameters once with a name that all ranks share, and runs its backward passes inside ``reducing``. The
reduction of a parameter can then start while the rest of the backward pass still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import ref

from firebrick.core.errors import GradientError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor

Reduce = Callable[[str, Tensor], Tensor]

_names: dict[int, tuple[ref[Tensor], str]] = {}
reducer: ContextVar[Reduce | None] = ContextVar("firebrick_reduce", default=None)


def set_distributed_params(x: Tensor, name: str) -> Tensor:
    """Mark a leaf as distributed under a name that all ranks share; returns it.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.autodiff import is_distributed, reducing, set_distributed_params
        >>> w = set_distributed_params(fb.asarray(3.0).require_grad(), "w")
        >>> is_distributed(w)
        True
        >>> with reducing(lambda name, gradient: gradient * 10.0):
        ...     fb.backward(w * w)[w].item()
        60.0
    """
    if x.node is not None and x.node.op is not None:
        raise GradientError("a distributed parameter is a leaf", describe("x", x), "mark the parameter, not a result")
    key = id(x)
    _names[key] = (ref(x, lambda _: _names.pop(key, None)), name)
    return x


def distributed_params(x: Tensor | None) -> str | None:
    """The name under which a tensor is distributed, or None."""
    found = _names.get(id(x))
    return found[1] if found is not None and found[0]() is x else None


def is_distributed(x: Tensor) -> bool:
    """Whether a tensor is marked as distributed."""
    return distributed_params(x) is not None


@contextmanager
def reducing(reduce: Reduce | None) -> Iterator[None]:
    """Pass each finished gradient of a distributed parameter through ``reduce(name, gradient)`` inside this block.

    Gradients that a function takes while it is itself being differentiated, and those that hooks take, are not reduced.

    Args:
        reduce: Its result replaces the gradient, and must have its shape, dtype and device. None reduces nothing.
    """
    token = reducer.set(reduce)
    try:
        yield
    finally:
        reducer.reset(token)


def reduction() -> Reduce | None:
    """What gradients of distributed parameters pass through in this context."""
    return reducer.get()


def reduced(reduce: Reduce, leaf: Tensor | None, gradient: Tensor) -> Tensor:
    """The gradient of a leaf after a reduction, if the leaf is distributed."""
    name = distributed_params(leaf)
    if name is None:
        return gradient
    result = reduce(name, gradient)
    if result.aval != gradient.aval or result.device is not gradient.device:
        raise GradientError(
            "a reduction keeps a gradient's shape, dtype and device",
            f"{describe(name, gradient)} and {describe('reduced', result)}",
            "return a tensor like the one it got",
        )
    return result
