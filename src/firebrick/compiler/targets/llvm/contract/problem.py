"""``Problem``: a contraction C[b, m, n] = Σ_k A[b, m, k] · B[b, k, n], with the memory layout of its operands.

Each of m, n and k is a flat index over several axes of an operand, the last one fastest. Each operand has axes of its own for
it, so that a patch of an image needs no copy: an element's address is a sum of indices times strides, and the element is 0 if a
coordinate of the image is outside of its ``Bound``. Matrix products and the three forms of convolution are such problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from firebrick.compiler.spec.convolution import FORWARD, INPUT, WEIGHT, Convolution
from firebrick.compiler.spec.parts import Bound, Factor, Part
from firebrick.core.views import Digit, Digits, View


@dataclass(frozen=True, slots=True)
class FactorLayout:
    """The layout of A or B in memory.

    Attributes:
        dtype: ``float32``, ``float64``, ``bfloat16`` or ``float16``.
        lanes: The axes of m (of A) or n (of B).
        k: The axes that are summed over.
        batch: Stride of each axis of the batch; 0 if it is broadcast.
        bounds: Coordinates, outside of whose bounds elements are 0.
        offset: Offset of the element at index 0 of all axes.
    """

    dtype: str
    lanes: tuple[Digit, ...]
    k: tuple[Digit, ...]
    batch: tuple[int, ...] = ()
    bounds: tuple[Bound, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """The layout of C, or of an operand of an epilogue, which is read at the positions of C.

    Attributes:
        dtype: Dtype of the elements.
        rows: The axes of m.
        lanes: The axes of n; their strides are 0 if the operand is broadcast along them.
        batch: Stride of each axis of the batch.
        offset: Offset of the element at index 0 of all axes.
    """

    dtype: str
    rows: tuple[Digit, ...]
    lanes: tuple[Digit, ...]
    batch: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction.

    Attributes:
        batch: Sizes of the axes of the batch.
        m: Rows of C.
        n: Columns of C.
        k: Length of each sum; 0 is allowed.
        a: The left operand.
        b: The right operand.
        c: The result.
        omits: Whether products with an element outside of its bounds are left out; see ``spec.parts.Part``.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: FactorLayout
    b: FactorLayout
    c: MatrixLayout
    omits: bool = False

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * prod(self.batch) * self.m * self.n * self.k

    @property
    def empty(self) -> bool:
        """Whether C has no elements."""
        return not (prod(self.batch) and self.m and self.n)


def period(x: FactorLayout) -> int:
    """Number of taps of a patch, after which k continues with the next channel; 1 for an operand without taps."""
    return prod(a.size for a in taps_of(x))


def taps_of(x: FactorLayout) -> tuple[Digit, ...]:
    """The inner axes of k, if they are at most 64 taps of a kernel, over which packing loops are unrolled."""
    taps = x.k[1:]
    if not x.bounds and len(x.k) == 1:
        return ()
    if any(b.k[0] for b in x.bounds):
        return ()
    return taps if prod(a.size for a in taps) <= 64 else ()


def merged(axes: Sequence[Digit], *others: Sequence[int]) -> tuple[tuple[Digit, ...], list[tuple[int, ...]]]:
    """Merge adjacent axes that are one axis by their strides and by the coefficients of ``others``; drop axes of size 1."""
    result: list[tuple[Digit, list[int]]] = []
    for i, axis in enumerate(axes):
        if axis.size == 1:
            continue
        coefficients = [o[i] for o in others]
        if result:
            outer, before = result[-1]
            follows = outer.stride == axis.stride * axis.size
            if follows and all(x == y * axis.size for x, y in zip(before, coefficients, strict=True)):
                result[-1] = (Digit(outer.size * axis.size, axis.stride), coefficients)
                continue
        result.append((axis, coefficients))
    if not result:
        result = [(Digit(1, 0), [0] * len(others))]
    return tuple(a for a, _ in result), [tuple(c[i] for _, c in result) for i in range(len(others))]


def simplified(p: Problem) -> Problem:
    """The same problem with axes merged where strides allow it, and without bounds that always hold."""
    return replace(p, a=_operand(p.a), b=_operand(p.b), c=simplified_result(p.c))


def _operand(x: FactorLayout) -> FactorLayout:
    bounds = [b for b in x.bounds if not _holds(b, x)]
    lanes, in_lanes = merged(x.lanes, *(b.lanes for b in bounds))
    k, in_k = merged(x.k, *(b.k for b in bounds))
    new_bounds = (Bound(b.size, b.start, i, j) for b, i, j in zip(bounds, in_lanes, in_k, strict=True))
    return replace(x, lanes=lanes, k=k, bounds=tuple(new_bounds))


def _holds(b: Bound, x: FactorLayout) -> bool:
    ranges = [c * (a.size - 1) for c, a in zip((*b.lanes, *b.k), (*x.lanes, *x.k), strict=True)]
    return b.start + sum(min(0, r) for r in ranges) >= 0 and b.start + sum(max(0, r) for r in ranges) < b.size


def simplified_result(c: MatrixLayout) -> MatrixLayout:
    """The same result with axes merged."""
    return replace(c, rows=merged(c.rows)[0], lanes=merged(c.lanes)[0])


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def matmul(
    shape_a: Sequence[int], shape_b: Sequence[int], dtype: str, strides_a: Sequence[int] | None = None,
    strides_b: Sequence[int] | None = None, strides_c: Sequence[int] | None = None,
) -> Problem:  # fmt: skip
    """The problem of ``a @ b`` with a [..., m, k], b [..., k, n] and c [..., m, n], leading axes broadcast.

    Args:
        shape_a: At least two axes.
        shape_b: At least two axes.
        dtype: Dtype of all three.
        strides_a: In elements, of any sign; row-major by default.
        strides_b: In elements.
        strides_c: In elements, of the broadcast shape.
    """
    sa, sb = strides_a or row_major(shape_a), strides_b or row_major(shape_b)
    rank = max(len(shape_a), len(shape_b)) - 2
    padded = [(1,) * (rank + 2 - len(s)) + tuple(s[:-2]) for s in (shape_a, shape_b)]
    batch = tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    sc = strides_c or row_major((*batch, m, n))

    def leading(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
        given = (0,) * (rank + 2 - len(strides)) + tuple(strides[:-2])
        return tuple(0 if size == 1 else s for size, s in zip(sizes, given, strict=True))

    return simplified(Problem(
        batch, m, n, k,
        FactorLayout(dtype, (Digit(m, sa[-2]),), (Digit(k, sa[-1]),), leading(padded[0], sa)),
        FactorLayout(dtype, (Digit(n, sb[-1]),), (Digit(k, sb[-2]),), leading(padded[1], sb)),
        MatrixLayout(dtype, (Digit(m, sc[-2]),), (Digit(n, sc[-1]),), tuple(sc[:-2])),
    ))  # fmt: skip


def problem_of(part: Part) -> Problem:
    """The problem of one part of a ``Contract``."""
    return simplified(Problem(part.batch, part.m, part.n, part.k, _factor(part.left), _factor(part.right), matrix_layout(
        part.left.dtype, part.result
    ), part.omits))  # fmt: skip


def _factor(x: Factor) -> FactorLayout:
    *batch, lanes, k = x.view.axes
    return FactorLayout(x.dtype, lanes, k, _strides(batch), x.bounds, x.view.offset)


def matrix_layout(dtype: str, view: View) -> MatrixLayout:
    """The layout of an array, by its view over [*batch, m, n]."""
    *batch, rows, lanes = view.axes
    return MatrixLayout(dtype, rows, lanes, _strides(batch), view.offset)


def _strides(batch: Sequence[Digits]) -> tuple[int, ...]:
    return tuple(stride for ((_, stride),) in batch)


def conv(g: Convolution) -> Problem:
    """The problem of ``conv``. A is the weight, B the image, C the result [batch, out, *positions]."""
    (part,) = replace(g, direction=FORWARD).parts(0, 1)
    return problem_of(part)


def conv_weight(g: Convolution) -> Problem:
    """The problem of ``conv_weight``. A is the cotangent [batch, out, *positions], B the image, C the weight's gradient."""
    (part,) = replace(g, direction=WEIGHT).parts(0, 1)
    return problem_of(part)


def conv_input(g: Convolution) -> list[Problem]:
    """The problems of ``conv_input``: one for each residue class of image positions modulo the stride.

    A is the weight, B the cotangent [batch, out, *positions], C the image's gradient.
    """
    return [problem_of(part) for part in replace(g, direction=INPUT).parts(0, 1)]
