"""Products of tiles inside ``fb.vmap``: one product of the vectors of all examples, made outside of it.

There the noise is that of the whole batch, and so are running means, and what tracks the vectors or the weights from outside of
``fb.vmap`` gets the gradient or tangent of that product. Where the weights have an axis of examples, or gradients are taken
inside of ``fb.vmap``, each example has a product of its own, and derivatives from outside are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from firebrick.analog.tape_entries import tape_entry
from firebrick.autodiff.batching import EXAMPLES, with_examples
from firebrick.autodiff.tape import grad_enabled
from firebrick.core.batched import batched
from firebrick.core.duals import Dual
from firebrick.core.errors import UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.journal import journaled
from firebrick.core.levels import Inner, Level, enter, innermost_of, leave, level_of
from firebrick.core.op import Vjp
from firebrick.core.tensor import Tensor


def of_all_examples(x: Tensor, weights: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The product of the vectors of one example, as a part of that of all examples; None where it is not made this way.

    Args:
        x: The vectors [..., size].
        weights: The weights of the tile.
        product: Makes the product of the vectors [examples, ..., size].
    """
    level = innermost_of((x, weights))
    if level is None or level.kind is not EXAMPLES:
        return None
    if level_of(x) is not level or level_of(weights) is level or _depends_inside(x, level):
        return None
    whole = with_examples(level, x)
    token = enter(level.parent)
    try:
        with changed_for_all(level):  # running means are those of the whole batch
            y = product(whole)
    finally:
        leave(token)
    y = batched(level, y)
    if grad_enabled() and (x.node is not None or weights.node is not None):
        hooks.record(_OF_ALL, (x, weights), {}, (y,))
    return y


@contextmanager
def changed_for_all(level: Level | None) -> Iterator[None]:
    """Let what a ``with`` block rebinds be changed for all examples of a level, and of those around it.

    Args:
        level: The innermost level; None where none runs.
    """
    if level is None:
        yield
        return
    with journaled() as journal:
        yield
    while level is not None:
        level.outside |= {id(t) for t in journal.rebound()}
        level = level.parent


def _depends_inside(x: Tensor, level: Level) -> bool:
    """Whether a tensor depends on a leaf that was made inside of a level: a gradient is taken there."""
    left, seen = [x.node], set()
    while left:
        node = left.pop()
        if node is None or node.id < level.began or node.id in seen:
            continue
        if node.op is None:
            return True
        seen.add(node.id)
        left += [p[0] for p in node.parents if p is not None]
    return False


def _refused(cotangents: Any, r: Vjp) -> NoReturn:
    raise UnsupportedError(
        "a product of a tile inside of fb.vmap, which is made of all examples, is differentiated outside of it alone",
        "fb.backward inside of fb.vmap, of a tensor that was tracked outside", "differentiate by fb.grad inside of it",
    )  # fmt: skip


_OF_ALL = tape_entry("analog product of all", "The part of one example of a product of all.", ("x", "weight"), _refused)


def check_examples(x: Tensor, *weights: Tensor | None) -> None:
    """Raise UnsupportedError if a product of one example is differentiated from outside of ``fb.vmap``.

    Args:
        x: The vectors.
        weights: Parameters of the product.
    """
    operands = [x, *(w for w in weights if w is not None)]
    level = innermost_of(operands)
    if level is None or level.kind is not EXAMPLES:
        return
    for t in operands:
        outer = t.storage.data.value if level_of(t) is level else t
        if _differentiated(outer):
            raise UnsupportedError(
                "a product of a tile that fb.vmap computes for each example by itself is differentiated inside of it",
                "a gradient or tangent from outside of fb.vmap, with gradients inside of it or with weights for each example",
                "differentiate inside of fb.vmap only, or pass the tile all vectors at once",
            )


def _differentiated(t: Tensor) -> bool:
    """Whether a tensor, or one beneath it, is tracked or has a tangent."""
    while True:
        if t.node is not None and grad_enabled():
            return True
        data = t.storage.data
        if not isinstance(data, Inner):
            return False
        if isinstance(data, Dual) and data.tangent is not None:
            return True
        t = data.value
