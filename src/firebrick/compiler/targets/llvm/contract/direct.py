"""Convolutions as direct sums over the taps of a window, vector by vector along a row of an image.

Two kernels use this. A depthwise convolution and its input gradient have one channel in each group, so a matrix product would
have one row. The input gradient of a convolution without padding is computed as ``col2im``: the products of all taps are
computed for the result's positions only, in scratch memory, one image at a time, and each element of the image sums its own
products. A convolution of the cotangent would need more multiplications, by zeros beyond its border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from firebrick.compiler.spec.convolution import Convolution, Residue, residues
from firebrick.compiler.targets.llvm.contract.blocked import SIGNATURE, Contraction, ContractionKernel, staged_contraction
from firebrick.compiler.targets.llvm.contract.choose import DIRECT, PHASE, Variant, choose
from firebrick.compiler.targets.llvm.contract.ir_builder import (
    IRBuilder,
    Value,
    bytes_of,
    compute_type,
    memory,
    plain,
    vector,
)
from firebrick.compiler.targets.llvm.contract.omitted import flag_nan, mend_if, mending
from firebrick.compiler.targets.llvm.contract.pack import strided
from firebrick.compiler.targets.llvm.contract.problem import (
    FactorLayout,
    MatrixLayout,
    Problem,
    conv_input,
    row_major,
    simplified,
)
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.views import Digit


@dataclass(frozen=True, slots=True)
class TapGeometry:
    """For each axis of an image: an output position reads the coordinates ``start + step·position + tap_step·tap``.

    Coordinates outside of [0, size) read 0.

    Attributes:
        positions: Shape of the output.
        taps: Number of taps of each axis.
        sizes: Shape of the input.
        strides: Strides of the input, in elements.
        start: Coordinate of position 0 and tap 0.
        step: Distance of the coordinates of adjacent positions.
        tap_step: Distance of the coordinates of adjacent taps.
    """

    positions: tuple[int, ...]
    taps: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    start: tuple[int, ...]
    step: tuple[int, ...]
    tap_step: tuple[int, ...]


def sum_of_taps(
    e: IRBuilder, w: TapGeometry, at: Sequence[Value], n: int, dtype: str, source: Callable[[int], tuple[str, Value]],
    factor: Callable[[int], str] | None,
) -> str:  # fmt: skip
    """The sum over all taps, in row-major order, of the input for ``n`` adjacent output positions, times the tap's factor.

    Args:
        e: Builder to append to.
        w: The window.
        at: Output position of the first lane.
        n: Lanes.
        dtype: Dtype of the input.
        source: Number of a tap → pointer and offset in elements of the input.
        factor: Number of a tap → vector that the input is multiplied by; None for 1.
    """
    type_ = compute_type(dtype)
    v = vector(n, type_)
    beyond = e.lanes_below(e.sub(w.positions[-1], at[-1]), n) if w.positions[-1] % n else None
    acc: str | None = None
    for t, tap in enumerate(product(*map(range, w.taps))):
        each = zip(at, tap, w.start, w.step, w.tap_step, strict=True)
        coordinate = [e.add(start + tap_step * i, e.mul(p, step)) for p, i, start, step, tap_step in each]
        all_valid: str | None = None
        for p, size in zip(coordinate[:-1], w.sizes[:-1], strict=True):
            valid = e.compare("ult", p, size)
            all_valid = valid if all_valid is None else e.let(f"and i1 {all_valid}, {valid}")
        # an invalid coordinate masks all lanes, and costs less than a second mask
        last = coordinate[-1] if all_valid is None else e.let(f"select i1 {all_valid}, i64 {coordinate[-1]}, i64 {-(1 << 30)}")
        mask = e.inside(last, w.step[-1], w.sizes[-1], n)
        if beyond is not None:
            mask = e.let(f"and {vector(n, 'i1')} {mask}, {beyond}")
        base, offset = source(t)
        x = strided(e, e.at(base, e.dot(coordinate, w.strides, offset), memory(dtype)), n, w.step[-1], dtype, mask)
        if factor is not None:
            acc = e.fma(x, factor(t), acc or "zeroinitializer", n, type_)
        else:
            acc = x if acc is None else e.let(f"fadd {v} {acc}, {x}")
    return acc or "zeroinitializer"


def suits_depthwise(g: Convolution) -> bool:
    """Whether each group has one channel and one output, few taps, and a stride that vector loads support."""
    single = g.weight[1] == 1 and g.weight[0] == g.groups
    return single and 1 <= prod(g.weight[2:]) <= 64 and g.stride[-1] <= 4 and prod(g.result) > 0


def depthwise(g: Convolution, target: Target, name: str, adjoint: bool = False) -> Contraction:
    """Kernels of a depthwise ``conv``; with ``adjoint``, of its ``conv_input``, for strides of 1.

    ``bufs`` holds the weight, the image (or the cotangent) and the result, in this order.

    Args:
        g: The convolution; see ``suits_depthwise``.
        target: Processor to generate for.
        name: Name of the function.
        adjoint: Whether to compute the gradient of the image.
    """
    (xs, ws, ys), y = g.strides, g.result
    outer = [(p[0], d, k) for p, d, k in zip(g.padding, g.dilation, g.weight[2:], strict=True)]
    if adjoint:
        w = TapGeometry(g.image[2:], g.weight[2:], y[2:], ys[2:], tuple(p for p, _, _ in outer), (1,) * len(outer),
                   tuple(-d for _, d, _ in outer))  # fmt: skip
        source, written = ys, xs
    else:
        w = TapGeometry(y[2:], g.weight[2:], g.image[2:], xs[2:], tuple(-p for p, _, _ in outer), g.stride, g.dilation)
        source, written = xs, ys
    type_ = compute_type(g.dtype)
    n = min(target.width_bits // (8 * bytes_of(type_)), 1 << (w.positions[-1] - 1).bit_length())
    e = IRBuilder(target)
    e.start("%entry")
    weight, image, result = (e.operand(i) for i in range(3))
    taps = list(product(*map(range, w.taps)))
    functions = {}
    if adjoint:
        (whole,) = conv_input(g)
        functions[f"{name}.mend"] = mending(IRBuilder(target, e.declared), whole, f"{name}.mend")
    with e.loop("%begin", "%end") as unit:
        sample, channel = e.split(unit.index, [g.image[0], g.groups])
        weights = e.mul(channel, ws[0])
        factors = []
        for tap in taps:
            x = e.load(e.at(weight, e.dot(tap, ws[2:], weights), memory(g.dtype)), 1, g.dtype)
            factors.append(e.shuffle(x, None, [0] * n, 1, type_))
        source_offset, result_offset = e.dot([sample, channel], source[:2]), e.dot([sample, channel], written[:2])
        # times 0 for each result, a sum that is NaN if one of them is
        nan = [(vector(n, type_), "zeroinitializer")] if adjoint else []
        with e.loop(0, prod(w.positions[:-1]), 1, nan) as row:
            position = e.split(row.index, w.positions[:-1])
            with e.loop(0, w.positions[-1], n, [(vector(n, type_), x) for x in row.values]) as column:
                at = [*position, column.index]
                x = sum_of_taps(e, w, at, n, g.dtype, lambda _: (image, source_offset), lambda t: factors[t])
                to = e.at(result, e.dot(at, written[2:], result_offset), memory(g.dtype))
                mask = e.lanes_below(e.sub(w.positions[-1], column.index), n) if w.positions[-1] % n else None
                e.store_strided(x, to, n, written[-1], g.dtype, mask)
                column.next = [e.fma(x, "zeroinitializer", found, n, type_) for found in column.values]
            row.next = column.values
        if adjoint:
            e.do("store i8 0, ptr %scratch")
            flag_nan(e, row.values, n, type_, "%scratch")
            first = e.mul(sample, prod(w.positions))
            ranges = [channel, 0, 1, first, e.add(first, prod(w.positions))]
            mend_if(e, "%scratch", f"{name}.mend", [weight, image, result], ranges)
    e.do("ret void")
    text = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
    flops = 2.0 * prod(y) * len(taps)
    kernel = ContractionKernel(name, g.image[0] * g.groups, 64 * adjoint, flops)
    functions[name] = text
    return Contraction((kernel,), functions, frozenset(e.declared), 0, Variant(1, n, len(taps), 1, n, DIRECT, DIRECT, False))


def depthwise_weight(g: Convolution, target: Target, name: str) -> Contraction:
    """Kernels of a depthwise ``conv_weight``: each sums some taps of a channel, in registers.

    A work unit adds the products of an image in vectors along rows of positions, then the sums of the images in order.
    ``bufs`` holds the cotangent, the image and the weight's gradient.

    Args:
        g: The convolution; see ``suits_depthwise``.
        target: Processor to generate for.
        name: Name of the functions.
    """
    type_, y = compute_type(g.dtype), g.result
    n = min(target.width_bits // (8 * bytes_of(type_)), 1 << (y[-1] - 1).bit_length())
    taps = list(product(*map(range, g.weight[2:])))
    count = -(-len(taps) // max(1, target.registers - 6))  # the others hold elements and masks
    declared: set[str] = set()
    functions: dict[str, str] = {}
    kernels = []
    for k in range(count):
        some = taps[len(taps) * k // count : len(taps) * (k + 1) // count]
        e = IRBuilder(target, declared)
        _sum_of_positions(e, g, some, n, type_)
        own = f"{name}.{k}"
        functions[own] = "\n".join([f"define void @{own}{SIGNATURE} {{", *e.lines, "}"])
        scratch = len(some) * n * bytes_of(type_)
        kernels.append(ContractionKernel(own, g.groups, scratch, 2.0 * prod(y) * len(some)))
    v = Variant(1, n, prod(y) // y[1], 1, n, DIRECT, DIRECT, False)
    return Contraction(tuple(kernels), functions, frozenset(declared), 0, v, False)


def _sum_of_positions(e: IRBuilder, g: Convolution, taps: Sequence[tuple[int, ...]], n: int, type_: str) -> None:
    """The body of a kernel of ``depthwise_weight``, for some of the taps; a work unit is a channel."""
    (xs, ws, ys), y, v = g.strides, g.result, vector(n, type_)
    zeros = [(v, "zeroinitializer")] * len(taps)
    e.start("%entry")
    cotangent, image, result = (e.operand(i) for i in range(3))
    totals = [e.at("%scratch", i * n, type_) for i in range(len(taps))]
    with e.loop("%begin", "%end") as channel:
        for total_at in totals:
            e.store("zeroinitializer", total_at, n, plain(type_))
        with e.loop(0, g.image[0]) as sample:
            x_offset = e.dot([sample.index, channel.index], xs[:2])
            y_offset = e.dot([sample.index, channel.index], ys[:2])
            with e.loop(0, prod(y[2:-1]), 1, zeros) as row:
                outer = e.split(row.index, y[2:-1])
                with e.loop(0, y[-1], n, [(v, x) for x in row.values]) as column:
                    at = [*outer, column.index]
                    mask = e.lanes_below(e.sub(y[-1], column.index), n) if y[-1] % n else None
                    u = e.load(e.at(cotangent, e.dot(at, ys[2:], y_offset), memory(g.dtype)), n, g.dtype, mask)
                    column.next = []
                    for tap, total in zip(taps, column.values, strict=True):
                        x = _read_by_tap(e, g, at, tap, n, image, x_offset, mask)
                        column.next.append(e.fma(x, u, total, n, type_))
                row.next = column.values
            for total_at, total in zip(totals, row.values, strict=True):
                e.store(e.let(f"fadd {v} {e.load(total_at, n, plain(type_))}, {total}"), total_at, n, plain(type_))
        for total_at, tap in zip(totals, taps, strict=True):
            total, lanes = e.load(total_at, n, plain(type_)), n
            while lanes > 1:  # the sum of the lanes, as a tree
                low, high = (e.shuffle(total, None, range(a, a + lanes // 2), lanes, type_) for a in (0, lanes // 2))
                lanes //= 2
                total = e.let(f"fadd {vector(lanes, type_)} {low}, {high}")
            to = e.dot([channel.index, *tap], [ws[0], *ws[2:]])
            e.store(total, e.at(result, to, memory(g.dtype)), 1, g.dtype)
    e.do("ret void")


def _read_by_tap(
    e: IRBuilder, g: Convolution, at: Sequence[Value], tap: Sequence[int], n: int, image: str, offset: Value, beyond: str | None
) -> str:
    """The elements of an image that a tap reads for ``n`` adjacent positions from ``at`` on; 0 outside of the image."""
    each = zip(at, tap, g.stride, g.padding, g.dilation, strict=True)
    coordinate = [e.add(e.mul(p, s), d * t - before) for p, t, s, (before, _), d in each]
    last = coordinate[-1]
    for p, size in zip(coordinate[:-1], g.image[2:-1], strict=True):
        last = e.let(f"select i1 {e.compare('ult', p, size)}, i64 {last}, i64 {-(1 << 30)}")
    mask = e.inside(last, g.stride[-1], g.image[-1], n)
    if beyond is not None:
        mask = e.let(f"and {vector(n, 'i1')} {mask}, {beyond}")
    from_ = e.at(image, e.dot(coordinate, g.strides[0][2:], offset), memory(g.dtype))
    return strided(e, from_, n, g.stride[-1], g.dtype, mask)


def suits_col2im(g: Convolution, target: Target) -> bool:
    """Whether ``col2im`` is expected to be the faster input gradient, as the image is much larger than the result.

    The products of an image must fit in the second-level cache, where the sums read them again.
    """
    size = bytes_of(compute_type(g.dtype))
    y, dense = g.result[2:], set(g.stride) == {1}
    grows = prod(g.image[2:]) >= 1.25 * prod(y) > 0
    masks = target.arch == "x86_64" and target.width_bits >= 256  # every tap's load is masked
    small = g.weight[1] * prod(g.weight[2:]) * (prod(y) + 32) * size <= (384 if dense else 704) << 10
    # with strides, a vector must not be mostly padding, and ``col2im`` interleaves at most two residues
    full = dense or (prod(y) * size * 8 >= target.width_bits and g.stride[-1] <= 2)
    return grows and masks and small and full and prod(g.weight[2:]) <= 64 and g.weight[0] // g.groups >= 8


def col2im(g: Convolution, target: Target, name: str) -> Contraction:
    """Kernels of ``conv_input``: the products of all taps in scratch memory, image by image, then their sums.

    Positions of the image that are equal modulo the stride read the same taps, so they form vectors. With stride 2 along the
    last axis, the vectors of both residues are interleaved before they are stored.

    ``bufs`` holds the weight, the cotangent and the image's gradient, in this order, and the workspace.

    Args:
        g: The convolution; see ``suits_col2im``.
        target: Processor to generate for.
        name: Name of the functions.
    """
    (xs, ws, ys), y = g.strides, g.result
    out, channels, taps = g.weight[0] // g.groups, g.weight[1], prod(g.weight[2:])

    def axes(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Digit, ...]:
        return tuple(Digit(n, s) for n, s in zip(sizes, strides, strict=True))

    rows, columns = channels * taps, prod(y[2:])
    p = simplified(Problem(
        (g.image[0], g.groups), rows, columns, out,
        FactorLayout(g.dtype, axes(g.weight[1:], ws[1:]), (Digit(out, ws[0]),), (0, out * ws[0])),
        FactorLayout(g.dtype, axes(y[2:], ys[2:]), (Digit(out, ys[1]),), (ys[0], out * ys[1])),
        MatrixLayout(g.dtype, (Digit(rows, columns),), (Digit(columns, 1),), (0, 0)),
    ))  # fmt: skip
    v = choose(p, target)
    nc = -(-columns // v.nr) * v.nr
    v = replace(v, a=PHASE, mc=-(-rows // v.mr) * v.mr, nc=nc, staged=True, splits=1, dots=False)
    each = zip(g.image[2:], g.weight[2:], g.stride, g.padding, g.dilation, strict=True)
    classes = [sorted(residues(size, k, s, p[0], d), key=lambda r: r.first) for size, k, s, p, d in each]
    type_, step = compute_type(g.dtype), g.stride[-1]
    wide = max(r.count for r in classes[-1])
    n = min(target.width_bits // (8 * bytes_of(type_)), 1 << (wide - 1).bit_length())
    tap_strides = row_major(g.weight[2:])

    def gather(e: IRBuilder, axes: Sequence[Residue], at: Sequence[Value], stage: str, first: Value) -> str:
        w = TapGeometry(tuple(r.count for r in axes), tuple(r.taps for r in axes), y[2:], row_major(y[2:]),
                        tuple(r.at for r in axes), (1,) * len(axes), tuple(-r.back for r in axes))  # fmt: skip
        taps_of_class = list(product(*(range(r.tap, r.tap + r.taps * r.step, r.step) for r in axes)))

        def source(i: int) -> tuple[str, Value]:
            return stage, e.add(first, sum(t * m for t, m in zip(taps_of_class[i], tap_strides, strict=True)) * nc)

        return sum_of_taps(e, w, at, n, plain(type_), source, None)

    def consume(e: IRBuilder, pointers: Sequence[str], batch: Sequence[Value], stage: str) -> None:
        image_offset = e.dot([batch[0], e.mul(batch[1], channels)], xs[:2])
        with e.loop(0, channels) as channel:
            first = e.mul(channel.index, taps * nc)
            for outer in product(*classes[:-1]):
                with e.loop(0, prod(r.count for r in outer)) as row, e.loop(0, wide, n) as column:
                    at = [*e.split(row.index, [r.count for r in outer]), column.index]
                    position = [e.add(r.first, e.mul(i, s)) for r, i, s in zip(outer, at, g.stride, strict=False)]
                    vectors = [gather(e, (*outer, r), at, stage, first) for r in classes[-1]]
                    line = e.dot([channel.index, *position], xs[1:-1], image_offset)
                    if len(vectors) == step <= 2:
                        x = vectors[0]
                        if step == 2:
                            x = e.shuffle(x, vectors[1], [i // 2 + i % 2 * n for i in range(2 * n)], n, type_)
                        begin = e.mul(column.index, step)
                        beyond = e.sub(g.image[-1], begin)
                        mask = e.lanes_below(beyond, step * n) if g.image[-1] % (step * n) else None
                        to = e.at(pointers[-1], e.add(line, e.mul(begin, xs[-1])), memory(g.dtype))
                        e.store_strided(x, to, step * n, xs[-1], g.dtype, mask)
                        continue
                    for r, x in zip(classes[-1], vectors, strict=True):
                        start = e.add(line, e.mul(e.add(r.first, e.mul(column.index, step)), xs[-1]))
                        mask = e.lanes_below(e.sub(r.count, column.index), n) if r.count % n else None
                        e.store_strided(x, e.at(pointers[-1], start, memory(g.dtype)), n, step * xs[-1], g.dtype, mask)

    return staged_contraction(p, target, name, v, consume)
