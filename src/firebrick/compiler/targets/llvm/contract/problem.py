"""``Problem``: a contraction C[b, m, n] = Σ_k A[b, m, k] · B[b, k, n], with the memory that its operands lie in.

Each of m, n and k is one flat index that stands for several axes of an operand, the last fastest; each operand splits it in
its own way, so that a patch of an image needs no copy: its address is a sum of strides times indices, and it is 0 where a
coordinate of the image (a ``Bound``) is outside. Products of matrices and the three forms of convolution are such problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod


@dataclass(frozen=True, slots=True)
class Axis:
    """Part of a flat index: how many places, and elements of memory between them."""

    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A coordinate ``start + Σ coefficient·index`` that must be in [0, size) for an element to be read; it is 0 elsewhere.

    Attributes:
        size: Places along the axis of the image.
        start: The coordinate at index 0 of all axes.
        lanes: Coefficients of the axes of ``Operand.lanes``.
        k: Coefficients of the axes of ``Operand.k``.
    """

    size: int
    start: int
    lanes: tuple[int, ...]
    k: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A or B in memory.

    Attributes:
        dtype: ``float32``, ``float64``, ``bfloat16`` or ``float16``.
        lanes: The axes of m (of A) or n (of B).
        k: The axes that are summed over.
        batch: Stride of each axis of the batch; 0 where it is broadcast.
        bounds: Coordinates outside which elements are 0.
        offset: Of the element at index 0 of all axes.
    """

    dtype: str
    lanes: tuple[Axis, ...]
    k: tuple[Axis, ...]
    batch: tuple[int, ...] = ()
    bounds: tuple[Bound, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """C in memory, and each operand of an epilogue, which is read where C is written.

    Attributes:
        dtype: As in ``Operand``.
        rows: The axes of m.
        lanes: The axes of n; stride 0 where it is broadcast.
        batch: Stride of each axis of the batch.
        offset: Of the element at index 0 of all axes.
    """

    dtype: str
    rows: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
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
        """Whether there is no element of C."""
        return not (prod(self.batch) and self.m and self.n)


def period(x: Operand) -> int:
    """Steps of k after which the taps of a patch begin anew; 1 for an operand without."""
    return prod(a.size for a in taps_of(x))


def taps_of(x: Operand) -> tuple[Axis, ...]:
    """The inner axes of k, if they are few taps of a kernel, which a packing routine writes out one by one."""
    taps = x.k[1:]
    if not x.bounds and len(x.k) == 1:
        return ()
    if any(b.k[0] for b in x.bounds):
        return ()
    return taps if prod(a.size for a in taps) <= 64 else ()


def merged(axes: Sequence[Axis], *others: Sequence[int]) -> tuple[tuple[Axis, ...], list[tuple[int, ...]]]:
    """The fewest axes that walk memory, and each coordinate of ``others``, in the same order; axes of size 1 go."""
    kept: list[tuple[Axis, list[int]]] = []
    for i, axis in enumerate(axes):
        if axis.size == 1:
            continue
        coefficients = [o[i] for o in others]
        if kept:
            outer, before = kept[-1]
            follows = outer.stride == axis.stride * axis.size
            if follows and all(x == y * axis.size for x, y in zip(before, coefficients, strict=True)):
                kept[-1] = (Axis(outer.size * axis.size, axis.stride), coefficients)
                continue
        kept.append((axis, coefficients))
    if not kept:
        kept = [(Axis(1, 0), [0] * len(others))]
    return tuple(a for a, _ in kept), [tuple(c[i] for _, c in kept) for i in range(len(others))]


def simplified(p: Problem) -> Problem:
    """The same problem with axes merged where memory allows it, and bounds that always hold taken away."""
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
        Operand(dtype, (Axis(m, sa[-2]),), (Axis(k, sa[-1]),), leading(wide[0], sa)),
        Operand(dtype, (Axis(n, sb[-1]),), (Axis(k, sb[-2]),), leading(wide[1], sb)),
        Result(dtype, (Axis(m, sc[-2]),), (Axis(n, sc[-1]),), tuple(sc[:-2])),
    ))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Convolution:
    """The geometry of the three convolutions: image, kernel and result, and how they lie in memory.

    Attributes:
        dtype: Of all three arrays.
        image: Shape [batch, channels, *image].
        weight: Shape [out, channels / groups, *kernel].
        stride: One for each axis of the image.
        padding: (before, after) for each axis.
        dilation: One for each axis.
        groups: Groups of channels.
        image_strides: In elements; row-major by default, as are the other two.
        weight_strides: In elements.
        result_strides: In elements, of the result [batch, out, *places].
    """

    dtype: str
    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    image_strides: tuple[int, ...] = ()
    weight_strides: tuple[int, ...] = ()
    result_strides: tuple[int, ...] = ()

    @property
    def result(self) -> tuple[int, ...]:
        """Shape [batch, out, *places]."""
        each = zip(self.image[2:], self.weight[2:], self.stride, self.padding, self.dilation, strict=True)
        return (self.image[0], self.weight[0], *((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each))

    @property
    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Strides of image, weight and result."""
        return (
            self.image_strides or row_major(self.image),
            self.weight_strides or row_major(self.weight),
            self.result_strides or row_major(self.result),
        )


def _axes(sizes: Sequence[int], strides: Sequence[int], times: Sequence[int] | None = None) -> tuple[Axis, ...]:
    return tuple(Axis(n, s * t) for n, s, t in zip(sizes, strides, times or (1,) * len(sizes), strict=True))


def _unit(rank: int, at: int, value: int, before: int = 0, after: int = 0) -> tuple[int, ...]:
    return (0,) * before + tuple(value if i == at else 0 for i in range(rank)) + (0,) * after


def conv(g: Convolution) -> Problem:
    """The problem of ``conv``: rows are output channels, columns places of all images, sums over channels and taps.

    Operands: A the weight, B the image, C the result [batch, out, *places].
    """
    (xs, ws, ys), y, rank = g.strides, g.result, len(g.stride)
    out, channels = g.weight[0] // g.groups, g.weight[1]
    bounds = tuple(
        Bound(g.image[2 + i], -g.padding[i][0], _unit(rank, i, g.stride[i], 1), _unit(rank, i, g.dilation[i], 1))
        for i in range(rank)
    )
    weight = Operand(
        g.dtype, (Axis(out, ws[0]),), (Axis(channels, ws[1]), *_axes(g.weight[2:], ws[2:])), (out * ws[0],)
    )  # fmt: skip
    image = Operand(
        g.dtype, (Axis(y[0], xs[0]), *_axes(y[2:], xs[2:], g.stride)),
        (Axis(channels, xs[1]), *_axes(g.weight[2:], xs[2:], g.dilation)), (channels * xs[1],), bounds,
        -sum(p[0] * s for p, s in zip(g.padding, xs[2:], strict=True)),
    )  # fmt: skip
    c = Result(g.dtype, (Axis(out, ys[1]),), (Axis(y[0], ys[0]), *_axes(y[2:], ys[2:])), (out * ys[1],))
    return simplified(
        Problem((g.groups,), out, y[0] * prod(y[2:]), channels * prod(g.weight[2:]), weight, image, c)
    )  # fmt: skip


def conv_weight(g: Convolution) -> Problem:
    """The problem of ``conv_weight``: rows are output channels, columns the taps of each channel, sums over places.

    Operands: A the cotangent [batch, out, *places], B the image, C the weight's gradient.
    """
    (xs, ws, ys), y, rank = g.strides, g.result, len(g.stride)
    out, channels = g.weight[0] // g.groups, g.weight[1]
    bounds = tuple(
        Bound(g.image[2 + i], -g.padding[i][0], _unit(rank, i, g.dilation[i], 1), _unit(rank, i, g.stride[i], 1))
        for i in range(rank)
    )
    cotangent = Operand(
        g.dtype, (Axis(out, ys[1]),), (Axis(y[0], ys[0]), *_axes(y[2:], ys[2:])), (out * ys[1],)
    )  # fmt: skip
    image = Operand(
        g.dtype, (Axis(channels, xs[1]), *_axes(g.weight[2:], xs[2:], g.dilation)),
        (Axis(y[0], xs[0]), *_axes(y[2:], xs[2:], g.stride)), (channels * xs[1],), bounds,
        -sum(p[0] * s for p, s in zip(g.padding, xs[2:], strict=True)),
    )  # fmt: skip
    c = Result(g.dtype, (Axis(out, ws[0]),), (Axis(channels, ws[1]), *_axes(g.weight[2:], ws[2:])), (out * ws[0],))
    return simplified(
        Problem((g.groups,), out, channels * prod(g.weight[2:]), y[0] * prod(y[2:]), cotangent, image, c)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Residue:
    """One class of places of an image axis, those whose padded coordinate is ``r`` modulo the stride.

    Attributes:
        first: Coordinate of its first place; the others follow at the stride.
        count: How many places.
        tap: The first tap of the kernel that meets it.
        step: Distance of its taps.
        taps: How many.
        at: The place of the result that the first place and the first tap meet in.
        back: How many places of the result each further tap goes back.
    """

    first: int
    count: int
    tap: int
    step: int
    taps: int
    at: int
    back: int


def residues(size: int, kernel: int, stride: int, pad: int, dilation: int) -> list[Residue]:
    """The classes of places of an axis of an image that there are."""
    out = []
    step = stride // gcd(dilation, stride)
    for r in range(stride):
        t = -(-(pad - r) // stride)  # the first padded coordinate r + stride·t that lies in the image
        first = r + stride * t - pad
        count = max(0, -(-(size - first) // stride))
        tap = next((i for i in range(min(step, kernel)) if (i * dilation - r) % stride == 0), kernel)
        taps = max(0, -(-(kernel - tap) // step))
        if count:
            out.append(Residue(first, count, tap, step, taps, t + (r - tap * dilation) // stride, step * dilation // stride))
    return out


def conv_input(g: Convolution) -> list[Problem]:
    """The problems of ``conv_input``: one for each class of places of the image that the stride makes.

    Each is a dense convolution of the cotangent: rows are input channels, columns places of one class, sums over output
    channels and the taps that meet the class; a class without taps has k = 0, and its gradient is 0.
    Operands: A the weight, B the cotangent [batch, out, *places], C the image's gradient.
    """
    (xs, ws, ys), y, rank = g.strides, g.result, len(g.stride)
    out, channels = g.weight[0] // g.groups, g.weight[1]
    classes: list[list[Residue]] = [[]]
    for n, k, s, p, d in zip(g.image[2:], g.weight[2:], g.stride, g.padding, g.dilation, strict=True):
        classes = [[*c, r] for c in classes for r in residues(n, k, s, p[0], d)]
    problems = []
    for each in classes:
        counts, taps = [r.count for r in each], [r.taps for r in each]
        bounds = tuple(
            Bound(y[2 + i], r.at, _unit(rank, i, 1, 1), _unit(rank, i, -r.back, 1)) for i, r in enumerate(each)
        )  # fmt: skip
        weight = Operand(
            g.dtype, (Axis(channels, ws[1]),), (Axis(out, ws[0]), *_axes(taps, ws[2:], [r.step for r in each])),
            (out * ws[0],), (), sum(r.tap * s for r, s in zip(each, ws[2:], strict=True)),
        )  # fmt: skip
        cotangent = Operand(
            g.dtype, (Axis(y[0], ys[0]), *_axes(counts, ys[2:])),
            (Axis(out, ys[1]), *_axes(taps, ys[2:], [-r.back for r in each])), (out * ys[1],), bounds,
            sum(r.at * s for r, s in zip(each, ys[2:], strict=True)),
        )  # fmt: skip
        c = Result(
            g.dtype, (Axis(channels, xs[1]),), (Axis(y[0], xs[0]), *_axes(counts, xs[2:], g.stride)), (channels * xs[1],),
            sum(r.first * s for r, s in zip(each, xs[2:], strict=True)),
        )  # fmt: skip
        k = out * prod(taps)
        if k == 0:
            weight, cotangent = (replace(o, k=(Axis(0, 0),), bounds=()) for o in (weight, cotangent))
        problems.append(simplified(Problem((g.groups,), channels, y[0] * prod(counts), k, weight, cotangent, c)))
    return problems
