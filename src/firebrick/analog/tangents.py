"""Forward mode of products of tiles: inside ``fb.jvp`` a product is that of the values, and its tangent is the exact product.

Converters, noise and bounds of the periphery have no part in the tangent, as those of the forward pass have none in gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from firebrick.autodiff.forward import DIRECTIONS, taken_apart
from firebrick.core.duals import Dual, dual
from firebrick.core.errors import UnsupportedError
from firebrick.core.levels import Inner, enter, innermost_of, leave
from firebrick.core.tensor import Tensor

Linear = Callable[[Tensor], Tensor]
"""From the tangent of the vectors to that of a product."""
L = TypeVar("L", bound=Linear)


def inside_jvp(vectors: Tensor, made: Callable[[Tensor], tuple[Tensor, L]], exact: bool) -> tuple[Tensor, L] | None:
    """A product of vectors that have a tangent, and the linear function of tangents that it has; None for other vectors.

    Args:
        vectors: The vectors.
        made: Makes the product of their values.
        exact: Whether the product is made of operations that all have their own tangents.

    Raises:
        UnsupportedError: The vectors are examples of ``fb.vmap`` with a tangent from outside of it.
    """
    level = innermost_of((vectors,))
    if level is None:
        return None
    if level.kind is not DIRECTIONS:
        if not exact and _has_tangent(vectors):
            raise UnsupportedError(
                "the tangent of a tile's product inside fb.vmap is that of an fb.jvp inside of it", "an fb.jvp around fb.vmap",
                "put fb.vmap around fb.jvp, or pass the tile all vectors at once",
            )  # fmt: skip
        return None
    value, tangent = taken_apart(vectors, level)
    token = enter(level.parent)
    try:
        y, linear = made(value)
        along = None if tangent is None else linear(tangent)
    finally:
        leave(token)
    return dual(level, y, along), linear


def _has_tangent(t: Tensor) -> bool:
    """Whether a tensor has a tangent at any level."""
    data = t.storage.data
    while isinstance(data, Inner):
        if isinstance(data, Dual) and data.tangent is not None:
            return True
        data = data.value.storage.data
    return False
