"""Acceptance and rejection: every element is drawn again, from bits of its own, until its draw is accepted.

Attempt i of a draw reads the stream of the draw's key with the word i added, at the element's own place. So an element depends
on its place alone, and a share of a batch draws what the whole one would.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.core.dtypes import DType, int64, uint32
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import full, zeros
from firebrick.functions.elementwise import astype, bitwise_xor, less, logical_and, logical_not, logical_or, where
from firebrick.functions.utility import all as all_
from firebrick.graph.control.verbs import while_loop
from firebrick.ops.bits import random_uniform
from firebrick.random.draws import draw, levels_here

MOST = 1000
"""Attempts after which the last draw is kept; with an acceptance of one half or more, nobody sees that many."""
UNROLLED = 32
"""Attempts inside ``vmap``; of 0.7, the least acceptance, fewer than one in 10¹⁶ draws needs more."""
_MARK = 1 << 30
"""In the high word of a counter: a key's attempts, which neither draws nor forks reach."""

Attempt = Callable[[Tensor], tuple[Tensor, Tensor]]


def until_accepted(
    key: Tensor, shape: tuple[int, ...], uniforms: int, dtype: DType, attempt: Attempt, done: Tensor | None = None
) -> Tensor:
    """The first accepted draw of each element.

    Args:
        key: Random key, uint32 [4].
        shape: Shape of the draw.
        uniforms: Uniform numbers that an attempt needs for each element.
        dtype: Dtype of the numbers and of the result.
        attempt: From uniform numbers [*shape, uniforms] to the draw and whether it is accepted.
        done: Elements that need no draw; they are 0.
    """
    device = key.device
    place: Tensor = hooks.from_host(np.asarray([0, 0, 0, 1], np.uint32), device)
    full_shape = (*shape, uniforms)

    def body(carry: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        count, ready, kept = carry
        own = bitwise_xor(key, place * astype(count + _MARK, uint32))
        u = draw(random_uniform, lambda: own, full_shape, dtype=dtype)
        found, accepted = attempt(u)
        return count + 1, logical_or(ready, accepted), where(ready, kept, found)

    def more(carry: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        count, ready, _ = carry
        return logical_and(less(count, MOST), logical_not(all_(ready)))

    with no_grad():
        ready = full(shape, False, device=device) if done is None else done
        start = full((), 0, dtype=int64, device=device), ready, zeros(shape, dtype=dtype, device=device)
        if device.engine == "meta":  # which has no values that a loop could end by
            return start[2]
        if not levels_here():
            return while_loop(more, body, start)[2]
        # inside vmap the count of a loop is one for each example, and so would be the key
        carry = start
        for i in range(UNROLLED):
            _, ready, kept = body(carry)
            carry = full((), i + 1, dtype=int64, device=device), ready, kept
        return carry[2]
