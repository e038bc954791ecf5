"""``Problem``: a contraction C[b, m, n] = Σ_k A[b, m, k] · B[b, k, n], with the memory layout of its operands.

Each of m, n and k is a flat index over several axes of an operand, the last fastest. Each operand splits it into its own axes,
so that a patch of an image needs no copy: its address is a sum of strides times indices, and it is 0 where a coordinate of the
image (a ``Bound``) is outside. Products of matrices and the three forms of convolution are such problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from firebrick.compiler.spec.convolution import FORWARD, INPUT, WEIGHT, Convolution
from firebrick.compiler.spec.parts import Bound, Factor, Part
from firebrick.core.views import Digit, Digits, View


@dataclass(frozen=True, slots=True)
class Operand:
    """A or B in memory.

    Attributes:
        dtype: ``float32``, ``float64``, ``bfloat16`` or ``float16``.
        lanes: The axes of m (of A) or n (of B).
        k: The axes that are summed over.
        batch: Stride of each axis of the batch; 0 where it is broadcast.
        bounds: Coordinates outside which elements are 0.
        offset: Offset of the element at index 0 of all axes.
    """

    dtype: str
    lanes: tuple[Digit, ...]
    k: tuple[Digit, ...]
    batch: tuple[int, ...] = ()
    bounds: tuple[Bound, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The layout of C, or of an operand of an epilogue, which is read at the same positions.

    Attributes:
        dtype: As in ``Operand``.
        rows: The axes of m.
        lanes: The axes of n; stride 0 where it is broadcast.
        batch: Stride of each axis of the batch.
        offset: Of the element at index 0 of all axes.
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
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Result

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * prod(self.batch) * self.m * self.n * self.k

    @property
    def empty(self) -> bool:
        """Whether C has no elements."""
        return not (prod(self.batch) and self.m and self.n)


def period(x: Operand) -> int:
    """Number of taps of a patch, after which k moves to the next channel; 1 for an operand without taps."""
    return prod(a.size for a in taps_of(x))


def taps_of(x: Operand) -> tuple[Digit, ...]:
    """The inner axes of k, if they are few taps of a kernel, over which packing loops are unrolled."""
    taps = x.k[1:]
    if not x.bounds and len(x.k) == 1:
        return ()
    if any(b.k[0] for b in x.bounds):
        return ()
    return taps if prod(a.size for a in taps) <= 64 else ()


def merged(axes: Sequence[Digit], *others: Sequence[int]) -> tuple[tuple[Digit, ...], list[tuple[int, ...]]]:
    """Merge axes whose strides, and coefficients of ``others``, are those of one axis, and drop axes of size 1."""
    kept: list[tuple[Digit, list[int]]] = []
    for i, axis in enumerate(axes):
        if axis.size == 1:
            continue
        coefficients = [o[i] for o in others]
        if kept:
            outer, before = kept[-1]
            follows = outer.stride == axis.stride * axis.size
            if follows and all(x == y * axis.size for x, y in zip(before, coefficients, strict=True)):
                kept[-1] = (Digit(outer.size * axis.size, axis.stride), coefficients)
                continue
        kept.append((axis, coefficients))
    if not kept:
        kept = [(Digit(1, 0), [0] * len(others))]
    return tuple(a for a, _ in kept), [tuple(c[i] for _, c in kept) for i in range(len(others))]


def simplified(p: Problem) -> Problem:
    """The same problem with axes merged where strides allow it, and without bounds that always hold."""
    return replace(p, a=_operand(p.a), b=_operand(p.b), c=simplified_result(p.c))


def _operand(x: Operand) -> Operand:
    bounds = [b for b in x.bounds if not _holds(b, x)]
    lanes, in_lanes = merged(x.lanes, *(b.lanes for b in bounds))
    k, in_k = merged(x.k, *(b.k for b in bounds))
    made = (Bound(b.size, b.start, i, j) for b, i, j in zip(bounds, in_lanes, in_k, strict=True))
    return replace(x, lanes=lanes, k=k, bounds=tuple(made))


def _holds(b: Bound, x: Operand) -> bool:
    reach = [c * (a.size - 1) for c, a in zip((*b.lanes, *b.k), (*x.lanes, *x.k), strict=True)]
    return b.start + sum(min(0, r) for r in reach) >= 0 and b.start + sum(max(0, r) for r in reach) < b.size


def simplified_result(c: Result) -> Result:
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
        dtype: Of all three.
        strides_a: In elements, of any sign; row-major by default.
        strides_b: In elements.
        strides_c: In elements, of the broadcast shape.
    """
    sa, sb = strides_a or row_major(shape_a), strides_b or row_major(shape_b)
    rank = max(len(shape_a), len(shape_b)) - 2
    wide = [(1,) * (rank + 2 - len(s)) + tuple(s[:-2]) for s in (shape_a, shape_b)]
    batch = tuple(y if x == 1 else x for x, y in zip(*wide, strict=True))
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    sc = strides_c or row_major((*batch, m, n))

    def leading(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
        given = (0,) * (rank + 2 - len(strides)) + tuple(strides[:-2])
        return tuple(0 if size == 1 else s for size, s in zip(sizes, given, strict=True))

    return simplified(Problem(
        batch, m, n, k,
        Operand(dtype, (Digit(m, sa[-2]),), (Digit(k, sa[-1]),), leading(wide[0], sa)),
        Operand(dtype, (Digit(n, sb[-1]),), (Digit(k, sb[-2]),), leading(wide[1], sb)),
        Result(dtype, (Digit(m, sc[-2]),), (Digit(n, sc[-1]),), tuple(sc[:-2])),
    ))  # fmt: skip


def problem_of(part: Part) -> Problem:
    """The problem of a part of a specification."""
    return simplified(Problem(part.batch, part.m, part.n, part.k, _factor(part.left), _factor(part.right), placed(
        part.left.dtype, part.result
    )))  # fmt: skip


def _factor(x: Factor) -> Operand:
    *batch, lanes, k = x.view.axes
    return Operand(x.dtype, lanes, k, _strides(batch), x.bounds, x.view.offset)


def placed(dtype: str, view: View) -> Result:
    """The layout of an array, by its view over [*batch, m, n]."""
    *batch, rows, lanes = view.axes
    return Result(dtype, rows, lanes, _strides(batch), view.offset)


def _strides(batch: Sequence[Digits]) -> tuple[int, ...]:
    return tuple(stride for ((_, stride),) in batch)


def conv(g: Convolution) -> Problem:
    """The problem of ``conv``. Operands: A the weight, B the image, C the result [batch, out, *places]."""
    (part,) = replace(g, direction=FORWARD).parts(0, 1)
    return problem_of(part)


def conv_weight(g: Convolution) -> Problem:
    """The problem of ``conv_weight``. Operands: A the cotangent [batch, out, *places], B the image, C the weight's gradient."""
    (part,) = replace(g, direction=WEIGHT).parts(0, 1)
    return problem_of(part)


def conv_input(g: Convolution) -> list[Problem]:
    """The problems of ``conv_input``: one for each residue class of image positions modulo the stride.

    Operands: A the weight, B the cotangent [batch, out, *places], C the image's gradient.
    """
    return [problem_of(part) for part in replace(g, direction=INPUT).parts(0, 1)]
