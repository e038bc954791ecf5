"""Distances of all pairs of vectors."""

from __future__ import annotations

import math

from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.precision import in_float32
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype, not_equal
from firebrick.functions.movement import expand_dims
from firebrick.functions.scaled import norm
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import sum as sum_


@in_float32
def cdist(x1: Tensor, x2: Tensor, /, *, p: float = 2.0) -> Tensor:
    """The distances ‖x1ᵢ - x2ⱼ‖ₚ of all pairs of vectors.

    The differences are computed as such, so near vectors keep their digits; eagerly, they take n · m · d elements of memory.

    Args:
        x1: Floating tensor [..., n, d].
        x2: Floating tensor [..., m, d]; the axes before the last two broadcast.
        p: Which norm: a number ≥ 0; 0 counts the elements that differ, ``fb.inf`` takes the largest difference. The
            gradient at distance 0 is 0.

    Returns:
        Tensor [..., n, m].

    Raises:
        ConfigError: p is no number ≥ 0.
        ShapeError: The vectors differ in size, or an operand has fewer than two axes.

    Example:
        >>> import firebrick as fb
        >>> fb.cdist(fb.asarray([[0.0, 0.0]]), fb.asarray([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[5.0, 1.0]]
    """
    for key, x in (("x1", x1), ("x2", x2)):
        check_operand("cdist", x, "floating", key)
    check_devices("cdist", x1=x1, x2=x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            "cdist takes vectors [..., n, d] and [..., m, d]", f"{describe('x1', x1)} and {describe('x2', x2)}",
            "check the sizes; one vector needs an axis of size 1 before it",
        )  # fmt: skip
    power = python_scalar(p)
    if isinstance(power, bool) or not isinstance(power, (int, float)) or not power >= 0:
        raise ConfigError("cdist: p is a number ≥ 0", f"p={p!r:.60}", "pass e.g. 2.0, 1.0 or fb.inf")
    apart = expand_dims(x1, axis=-2) - expand_dims(x2, axis=-3)
    if power == 0:
        return sum_(astype(not_equal(apart, 0.0), apart.dtype), axis=-1)
    if power == 1:
        return sum_(abs_(apart), axis=-1)
    if math.isinf(power):
        if not apart.shape[-1]:
            return sum_(apart, axis=-1)
        return max_(abs_(apart), axis=-1)
    return norm(apart, -1, False, float(power))


__all__ = ["cdist"]
