"""Forward mode of products of tiles: inside ``fb.jvp`` a product is that of the values, and its tangent is the exact product.

Converters, noise and bounds of the periphery have no part in the tangent, as those of the forward pass have none in gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from firebrick.autodiff.forward import DIRECTIONS, taken_apart
from firebrick.core.duals import dual
from firebrick.core.levels import enter, innermost_of, leave
from firebrick.core.tensor import Tensor

Linear = Callable[[Tensor], Tensor]
"""From the tangent of the vectors to that of a product."""
L = TypeVar("L", bound=Linear)


def inside_jvp(vectors: Tensor, made: Callable[[Tensor], tuple[Tensor, L]]) -> tuple[Tensor, L] | None:
    """A product of vectors that have a tangent, and the linear function of tangents that it has; None for other vectors.

    Args:
        vectors: The vectors.
        made: Makes the product of their values.
    """
    level = innermost_of((vectors,))
    if level is None or level.kind is not DIRECTIONS:
        return None
    value, tangent = taken_apart(vectors, level)
    token = enter(level.parent)
    try:
        y, linear = made(value)
        along = None if tangent is None else linear(tangent)
    finally:
        leave(token)
    return dual(level, y, along), linear
