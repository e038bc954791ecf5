"""Draws inside ``fb.vmap``: one draw for all examples, whose first axes are those of the examples.

So the draw of an example is what a function of the whole batch would have drawn in its row.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import prod
from typing import Any

from firebrick.core.batched import batched
from firebrick.core.levels import Level, here, running
from firebrick.core.op import Op
from firebrick.core.tensor import Tensor

rows: ContextVar[int] = ContextVar("firebrick_row_offset", default=0)


def levels_here() -> list[Level]:
    """The levels that run here, the outermost first."""
    innermost = running()
    return [] if innermost is None else [level for level in here() if level.maps and level.trace is innermost.trace][::-1]


def of_levels(levels: list[Level], whole: Tensor) -> Tensor:
    """The tensor of one example; the first axes of ``whole`` are those of the levels."""
    for level in levels:
        whole = batched(level, whole)
    return whole


def place_of(shape: tuple[int, ...]) -> int:
    """The place, in the whole draw, of this share's first element."""
    before = rows.get()
    return before * prod(shape[1:]) if before and shape else 0


def draw(op: Op, key: Callable[[], Tensor], shape: tuple[int, ...], *, split: bool = True, **params: Any) -> Tensor:
    """Words or numbers of a key.

    Args:
        op: The random op.
        key: Gives the key.
        shape: The shape of the draw of one example.
        split: Whether the first axis of the draw is a batch, of which this may be a share.
        **params: Of the op.
    """
    levels = levels_here()
    whole = (*(level.size for level in levels), *shape)
    offset = place_of(whole) if split or levels else 0
    return of_levels(levels, op(key(), shape=whole, offset=offset, **params))
