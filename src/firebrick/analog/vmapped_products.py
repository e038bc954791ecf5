"""Products of tiles inside ``fb.vmap``: one product of the vectors of all examples, made outside of it.

There the noise is that of the whole batch, and so are running means, and what tracks the vectors or the weights from outside of
``fb.vmap`` gets the gradient or tangent of that product. Where the weights have an axis of examples, or gradients are taken
inside of ``fb.vmap``, each example has a product of its own, and derivatives from outside are refused.
"""

from __future__ import annotations

from collections.abc import Callable

from firebrick.autodiff.batching import EXAMPLES, with_examples
from firebrick.autodiff.tape import grad_enabled
from firebrick.core.batched import batched
from firebrick.core.duals import Dual
from firebrick.core.errors import UnsupportedError
from firebrick.core.journal import journaled
from firebrick.core.levels import Inner, enter, innermost_of, leave, level_of
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
    if x.node is not None or level_of(x) is not level or level_of(weights) is level:
        return None
    whole = with_examples(level, x)
    token = enter(level.parent)
    try:
        with journaled() as journal:  # of running means, and of what is programmed: those of the whole batch
            y = product(whole)
    finally:
        leave(token)
    level.outside |= {id(t) for t in journal.rebound()}
    return batched(level, y)


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
