"""``Part``: one contraction over one domain, with the memory layout of its factors."""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.compiler.spec.base import Size, Sizes
from firebrick.core.views import View


@dataclass(frozen=True, slots=True)
class Bound:
    """A coordinate ``start + Σ coefficient · digit``. An element is read if the coordinate is in [0, size), and is 0 otherwise.

    Attributes:
        size: Of the axis of the image.
        start: The coordinate at index 0 of all axes.
        lanes: Coefficients of the digits of m (of A) or n (of B).
        k: Coefficients of the digits of k.
    """

    size: Size
    start: Size
    lanes: Sizes
    k: Sizes


@dataclass(frozen=True, slots=True)
class Factor:
    """A or B.

    Attributes:
        source: Number of the input.
        dtype: In memory.
        view: Over [*batch, m, k] of A, [*batch, n, k] of B.
        bounds: Coordinates outside of which elements are 0.
    """

    source: int
    dtype: str
    view: View
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A contraction.

    Attributes:
        batch: Sizes of the axes of the batch.
        m: Rows of C.
        n: Columns of C.
        k: Length of each sum; 0 is allowed.
        left: A.
        right: B.
        result: View of C over [*batch, m, n].
        omits: Whether a product with an element outside of its bounds is left out of the sum. Otherwise the element is 0, and
            its product with an infinity or NaN is NaN.
    """

    batch: Sizes
    m: Size
    n: Size
    k: Size
    left: Factor
    right: Factor
    result: View
    omits: bool = False

    @property
    def domain(self) -> tuple[int, ...]:
        """Of C."""
        return *self.batch, self.m, self.n
