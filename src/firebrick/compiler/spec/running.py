"""``RUNNING``: running folds whose step is more than one operation, as scalar expressions that all targets share.

A running fold keeps a state of one or two numbers for each line. ``log Σ exp`` keeps the largest element so far, and the sum of
the exponentials of the differences from it: no exponential is larger than 1. A linear recurrence keeps its last result, or,
shifted, also the factor that multiplies it in the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firebrick.scalar import math
from firebrick.scalar.expr import Expr, absolute, cast, const, eq, local, ne, select
from firebrick.scalar.storage import computed

Values = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class RunningFold:
    """The step of a running fold; elements are in the dtype that the operands are computed in.

    Attributes:
        operands: Number of operands.
        states: (dtype of the elements, dtype of totals) → the dtypes of a state.
        first: (the first elements, dtype of totals) → their state.
        step: (state, elements, dtype of totals) → the next state.
        result: (state, dtype of the elements) → the result.
    """

    operands: int
    states: Callable[[str, str], tuple[str, ...]]
    first: Callable[[Sequence[Expr], str], Values]
    step: Callable[[Sequence[Expr], Sequence[Expr], str], Values]
    result: Callable[[Sequence[Expr], str], Expr]

    def named(self, dtype: str, total: str) -> Values:
        """A state as names, ``state0`` and ``state1``, for operands that are ``dtype`` in memory."""
        return tuple(local(f"state{i}", d) for i, d in enumerate(self.states(computed(dtype), total)))

    def elements(self, dtype: str) -> Values:
        """Elements as names, ``x0`` and ``x1``."""
        return tuple(local(f"x{i}", computed(dtype)) for i in range(self.operands))


def _more_exp(state: Sequence[Expr], xs: Sequence[Expr], total: str) -> Values:
    top, parts = state
    (x,) = xs
    apart = select(eq(x, top), const(0.0, x.dtype), -absolute(x - top))  # of equal infinities as well
    small = cast(math.exp(apart), total)
    larger = (x > top) | ne(x, x)  # NaN stays
    return select(larger, x, top), select(larger, parts * small + 1.0, parts + small)


RUNNING: dict[str, RunningFold] = {
    "logsumexp": RunningFold(
        1, lambda element, total: (element, total), lambda xs, total: (xs[0], const(1.0, total)), _more_exp,
        lambda state, element: state[0] + math.log(cast(state[1], element)),
    ),
    "recurrence": RunningFold(
        2, lambda element, total: (total,), lambda xs, total: (cast(xs[1], total),),
        lambda state, xs, total: (cast(xs[1], total) + cast(xs[0], total) * state[0],),
        lambda state, element: cast(state[0], element),
    ),
    "shifted_recurrence": RunningFold(
        2, lambda element, total: (total, element), lambda xs, total: (cast(xs[1], total), xs[0]),
        lambda state, xs, total: (cast(xs[1], total) + cast(state[1], total) * state[0], xs[0]),
        lambda state, element: cast(state[0], element),
    ),
}  # fmt: skip
"""Folds by name."""
