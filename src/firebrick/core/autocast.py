"""``autocast``: matrix products, convolutions and attention in a narrow floating dtype, sums and normalisations in float32.

Functions call it at their entry: ``narrow`` casts the operands of functions that gain from few bits, ``wide`` those of
functions that lose digits or overflow in them. Outside of the context both return what they are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from firebrick.core.dtypes import DType, bfloat16, float16, float32
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.scopes import scope
from firebrick.core.tensor import Tensor

NARROW = (bfloat16, float16)
_goal: ContextVar[DType | None] = ContextVar("firebrick_autocast", default=None)

autocast_dtype = _goal.get


@scope
def autocast(dtype: Any) -> Iterator[None]:
    """In a ``with`` block, compute in mixed precision; gradients of float32 tensors stay float32.

    Linear layers, matrix products, ``einsum``, convolutions and attention cast float32 operands to ``dtype``. Softmax and its
    logarithm, sums, means, products, variances, norms, normalisations and losses of logits and differences cast narrow
    operands to float32. Everything else takes operands as they come, promoted as always. Float64 operands stay float64.

    Args:
        dtype: ``fb.bfloat16`` or ``fb.float16``, or its name; None switches an outer block off.

    Raises:
        ConfigError: It is another dtype.

    Example:
        >>> import firebrick as fb
        >>> x = fb.ones((2, 2))
        >>> with fb.autocast("bfloat16"):
        ...     y = x @ x
        ...     total = fb.sum(y)
        >>> y.dtype.name, total.dtype.name
        ('bfloat16', 'float32')
    """
    goal = None if dtype is None else as_dtype(dtype)
    if goal is not None and goal not in NARROW:
        raise ConfigError("autocast computes in bfloat16 or float16", goal.name, "pass one of them, or None")
    token = _goal.set(goal)
    try:
        yield
    finally:
        _goal.reset(token)


def narrow(x: Tensor) -> Tensor:
    """A float32 or narrower tensor in the dtype of the context."""
    goal = _goal.get()
    if goal is None or x.dtype is goal or x.dtype not in (float32, *NARROW):
        return x
    return hooks.methods["astype"](x, goal)


def wide(x: Tensor) -> Tensor:
    """A tensor narrower than float32 in float32, inside of the context."""
    if _goal.get() is None or x.dtype not in NARROW:
        return x
    return hooks.methods["astype"](x, float32)
