"""Operations on the bits of integers (and of bools), and on those of floats: signs and neighbours.

A shift by the operand's width or more, or by a negative number, shifts everything out: a left shift gives 0, a right shift
0, or -1 for a negative number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Laws, Nondifferentiable, Sample
from firebrick.ops.declare import (
    FLOATS,
    INTS,
    Array,
    Declare,
    binary_samples,
    broadcasted,
    per_result,
)
from firebrick.ops.elementwise import binary, sign, unary
from firebrick.ops.table import register
from firebrick.scalar import elements, expr

_BITS = Nondifferentiable("the operands are bits, not numbers")
_LOGICAL = ("bool", *INTS)


def _bits(scalar: Any, kind: str = "bits", dtypes: Any = _LOGICAL, samples: Any = None, **more: Any) -> Declare:
    return binary(_BITS, residuals=(), kind=kind, dtypes=dtypes, tolerance=0, samples=samples, scalar=scalar, **more)


@_bits(elements.bitwise_and, exact="integers", laws=Laws(absorbing=0, idempotent=True))
def bitwise_and(x1: Array, x2: Array) -> Array:
    """The bits set in both x1 and x2."""
    return np.bitwise_and(x1, x2)


@_bits(elements.bitwise_or, exact="integers", laws=Laws(neutral=(None, 0), idempotent=True))
def bitwise_or(x1: Array, x2: Array) -> Array:
    """The bits set in x1 or x2."""
    return np.bitwise_or(x1, x2)


@_bits(elements.bitwise_xor, exact="integers", laws=Laws(neutral=(None, 0), of_equals=0))
def bitwise_xor(x1: Array, x2: Array) -> Array:
    """The bits set in one of x1 and x2."""
    return np.bitwise_xor(x1, x2)


@unary(
    _BITS, residuals=(), kind="bits", dtypes=_LOGICAL, tolerance=0, scalar=elements.invert, exact="integers",
    laws=Laws(involution=True),
)  # fmt: skip
def bitwise_invert(x: Array) -> Array:
    """The bits not set in x."""
    return np.bitwise_invert(x)


@_bits(
    elements.bitwise_left_shift, "integer", INTS, binary_samples(low2=-0.3, high2=1.2), exact="integers",
    laws=Laws(neutral=(None, 0), sides=(1,)),
)  # fmt: skip
def bitwise_left_shift(x1: Array, x2: Array) -> Array:
    """x1 · 2^x2, wrapping; 0 where x2 is negative or at least x1's width."""
    return np.left_shift(x1, x2)  # NumPy defines the same edges


@_bits(
    elements.bitwise_right_shift, "integer", INTS, binary_samples(low2=-0.3, high2=1.2), exact="integers",
    laws=Laws(neutral=(None, 0), sides=(1,)),
)  # fmt: skip
def bitwise_right_shift(x1: Array, x2: Array) -> Array:
    """x1 / 2^x2 rounded towards -∞; 0 or -1 where x2 is negative or at least x1's width."""
    return np.right_shift(x1, x2)


# floats


def _copysign_vjp(g: Any, r: Any) -> Any:
    from firebrick.ops.reduction import zeros_like

    x1, x2 = r.inputs
    return g * (sign(x1) * copysign(1.0, x2)) if r.needs[0] else None, zeros_like(g) if r.needs[1] else None


@binary(_copysign_vjp, kind="floating", dtypes=FLOATS, tolerance=0, scalar=expr.copysign)
def copysign(x1: Array, x2: Array) -> Array:
    """|x1| with the sign of x2, also that of a zero."""
    return np.copysign(x1, x2)


def _next_samples(rng: np.random.Generator, name: str) -> list[Sample]:
    params = {"dtype": as_dtype(name)}
    return [Sample(s.inputs, params, False, s.name) for s in binary_samples()(rng, name)]


@register(
    operands="x1:floating=T x2:floating=T", infer=lambda x1, x2, *, dtype: Aval(broadcasted(x1, x2).shape, dtype),
    vjp=Nondifferentiable("a step between neighbouring numbers of a dtype has no useful slope"), residuals=(),
    samples=_next_samples, cost=per_result(1), bound="memory", fusion="opaque", tolerance=0, broadcasts=True, dtypes=FLOATS,
)  # fmt: skip
def nextafter(x1: Array, x2: Array, *, dtype: Any) -> Array:
    """The neighbour of x1 towards x2 among the numbers of the operands' own ``dtype``; x2 where they are equal."""
    return np.asarray(np.nextafter(x1.astype(dtype.np), x2.astype(dtype.np)))
