"""Convolutions as direct sums over the taps of a window, vector by vector along a row of an image.

Two kernels use this. A depthwise convolution and its input gradient have one channel in each group, so a matrix product would
have one row. The input gradient of a convolution without padding is computed as ``col2im``: the products of all taps are
computed for the result's positions only, in scratch memory, one image at a time, and each element of the image sums its own
products. A convolution of the cotangent would need more multiplications, by zeros beyond its border.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import prod

from firebrick.compiler.spec.convolution import Convolution, Residue, residues
from firebrick.compiler.targets.llvm.contract.blocked import SIGNATURE, Contraction, ContractionKernel, staged_contraction
from firebrick.compiler.targets.llvm.contract.choose import DIRECT, PHASE, Variant, choose
from firebrick.compiler.targets.llvm.contract.ir_builder import (
    IRBuilder,
    Value,
    bytes_of,
    compute_type,
    constant,
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
    # every second element: two adjacent taps are the even and the odd elements of one load
    pairs = w.step[-1] == 2 and w.tap_step[-1] == 1 and w.strides[-1] == 1
    even: tuple[tuple[int, ...], str] | None = None  # a tap, and twice as many elements from its first one on
    for t, tap in enumerate(product(*map(range, w.taps))):
        each = zip(at, tap, w.start, w.step, w.tap_step, strict=True)
        coordinate = [e.add(start + tap_step * i, e.mul(p, step)) for p, i, start, step, tap_step in each]
        all_valid: str | None = None
        for p, size in zip(coordinate[:-1], w.sizes[:-1], strict=True):
            valid = e.compare("ult", p, size)
            all_valid = valid if all_valid is None else e.let(f"and i1 {all_valid}, {valid}")
        # an invalid coordinate masks all lanes, and costs less than a second mask
        last = coordinate[-1] if all_valid is None else e.let(f"select i1 {all_valid}, i64 {coordinate[-1]}, i64 {-(1 << 30)}")
        base, offset = source(t)
        if pairs:
            second = even is not None and tap == (*even[0][:-1], even[0][-1] + 1)
            if even is None or not second:
                both = e.inside(last, 1, w.sizes[-1], 2 * n)
                even = tap, e.load(e.at(base, e.dot(coordinate, w.strides, offset), memory(dtype)), 2 * n, dtype, both)
            x = e.shuffle(even[1], None, list(range(int(second), 2 * n, 2)), 2 * n, type_)
            even = None if second else even
        else:
            mask = e.inside(last, w.step[-1], w.sizes[-1], n)
            if beyond is not None:
                mask = e.let(f"and {vector(n, 'i1')} {mask}, {beyond}")
            x = strided(e, e.at(base, e.dot(coordinate, w.strides, offset), memory(dtype)), n, w.step[-1], dtype, mask)
        if factor is not None:
            acc = e.fma(x, factor(t), acc or "zeroinitializer", n, type_)
        else:
            acc = x if acc is None else e.let(f"fadd {v} {acc}, {x}")
    return acc or "zeroinitializer"


def _in_one_row(w: TapGeometry, source: Sequence[int], written: Sequence[int], n: int) -> bool:
    """Whether images and results are rows of equal length that a vector of ``n`` lanes has one or several of."""
    if len(w.positions) != 2 or w.positions != w.sizes or set(w.step) != {1}:
        return False
    return n % w.positions[-1] == 0 and all(tuple(s) == (w.positions[-1], 1) for s in (source, written))


def rows_of_taps(
    e: IRBuilder, w: TapGeometry, n: int, dtype: str, image: Callable[[Value], str], factors: Sequence[str],
    nan: Sequence[str], put: Callable[[str, Value, str | None], None],
) -> list[str]:  # fmt: skip
    """The sums over all taps of whole images, ``n`` adjacent elements of which may be of several rows.

    The masks of columns are the same for all vectors; those of rows are needed at the top and at the bottom only.

    Args:
        e: Builder to append to.
        w: The window; see ``_in_one_row``.
        n: Lanes.
        dtype: Dtype of the image.
        image: Index of an element → pointer to it; the index may be outside of the image.
        factors: Of each tap, the vector that the image is multiplied by.
        nan: Empty, or the first of a sum of the results times 0.
        put: Stores a vector of results at the index of the first, under a mask.

    Returns:
        The last of ``nan``.
    """
    height, width = w.positions
    size, v = height * width, vector(n, compute_type(dtype))
    moved = [[a + b * i for a, b, i in zip(w.start, w.tap_step, tap, strict=True)] for tap in product(*map(range, w.taps))]
    low, high = min(y for y, _ in moved) * width, max(y for y, _ in moved) * width
    columns: dict[int, str] = {}
    # 0, but not to LLVM, which replaces constant masks by shuffles that are slow
    zero = e.let(f"trunc i64 {e.let('lshr i64 %begin, 63')} to i32")
    for x in sorted({x for _, x in moved if x}):
        here = e.let(
            f"add {vector(n, 'i32')} {e.splat(zero, n, 'i32')}, {constant([str(i % width + x) for i in range(n)], 'i32')}"
        )
        columns[x] = e.let(f"icmp ult {vector(n, 'i32')} {here}, {constant([str(width)] * n, 'i32')}")
    first = min(size, -(min(0, low) // n) * n)
    last = max(first, (size - max(0, high)) // n * n)
    for begin, end, inside in ((0, first, False), (first, last, True), (last, size, False)):
        if begin >= end:
            continue
        with e.loop(begin, end, n, [(v, x) for x in nan]) as loop:
            acc = "zeroinitializer"
            for (y, x), factor in zip(moved, factors, strict=True):
                mask = columns.get(x)
                if not inside:
                    rows = e.inside(e.add(loop.index, y * width), 1, size, n)
                    mask = rows if mask is None else e.let(f"and {vector(n, 'i1')} {mask}, {rows}")
                acc = e.fma(
                    e.load(image(e.add(loop.index, y * width + x)), n, dtype, mask), factor, acc, n, compute_type(dtype)
                )
            beyond = e.lanes_below(e.sub(size, loop.index), n) if size % n and not inside else None
            put(acc, loop.index, beyond)
            if beyond is not None:
                acc = e.let(f"select {vector(n, 'i1')} {beyond}, {v} {acc}, {v} zeroinitializer")
            loop.next = [e.fma(acc, "zeroinitializer", found, n, compute_type(dtype)) for found in loop.values]
        nan = loop.values
    return list(nan)


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
    lanes = target.width_bits // (8 * bytes_of(type_))
    in_rows = _in_one_row(w, source[2:], written[2:], lanes)
    n = lanes if in_rows else min(lanes, 1 << (w.positions[-1] - 1).bit_length())
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
        nan = ["zeroinitializer"] if adjoint else []
        if in_rows:
            nan = rows_of_taps(
                e, w, n, g.dtype, lambda i: e.at(image, e.add(source_offset, i), memory(g.dtype)), factors, nan,
                lambda x, i, mask: e.store(x, e.at(result, e.add(result_offset, i), memory(g.dtype)), n, g.dtype, mask),
            )  # fmt: skip
        else:
            with e.loop(0, prod(w.positions[:-1]), 1, [(vector(n, type_), x) for x in nan]) as row:
                position = e.split(row.index, w.positions[:-1])
                with e.loop(0, w.positions[-1], n, [(vector(n, type_), x) for x in row.values]) as column:
                    at = [*position, column.index]
                    x = sum_of_taps(e, w, at, n, g.dtype, lambda _: (image, source_offset), lambda t: factors[t])
                    to = e.at(result, e.dot(at, written[2:], result_offset), memory(g.dtype))
                    mask = e.lanes_below(e.sub(w.positions[-1], column.index), n) if w.positions[-1] % n else None
                    e.store_strided(x, to, n, written[-1], g.dtype, mask)
                    column.next = [e.fma(x, "zeroinitializer", found, n, type_) for found in column.values]
                row.next = column.values
            nan = row.values
        if adjoint:
            e.do("store i8 0, ptr %scratch")
            flag_nan(e, nan, n, type_, "%scratch")
            first = e.mul(sample, prod(w.positions))
            ranges = [channel, 0, 1, first, e.add(first, prod(w.positions))]
            mend_if(e, "%scratch", f"{name}.mend", [weight, image, result], ranges)
    e.do("ret void")
    text = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
    flops = 2.0 * prod(y) * len(taps)
    kernel = ContractionKernel(name, g.image[0] * g.groups, 64 * adjoint, flops)
    functions[name] = text
    return Contraction((kernel,), functions, frozenset(e.declared), 0, Variant(1, n, len(taps), 1, n, DIRECT, DIRECT, False))


def depthwise_residues(g: Convolution, target: Target, name: str) -> Contraction:
    """Kernels of a depthwise ``conv_input`` of any strides; arguments and buffers as for ``depthwise``.

    Image positions of one class, those whose padded coordinates are equal modulo the stride, are read by the same taps. So a
    class is a sum of a part of the taps over adjacent positions of the cotangent.
    """
    (xs, ws, ys), y = g.strides, g.result
    axes = [
        residues(n, k, s, p[0], d)
        for n, k, s, p, d in zip(g.image[2:], g.weight[2:], g.stride, g.padding, g.dilation, strict=True)
    ]
    type_ = compute_type(g.dtype)
    n = min(target.width_bits // (8 * bytes_of(type_)), 1 << (max(r.count for r in axes[-1]) - 1).bit_length())
    e = IRBuilder(target)
    e.start("%entry")
    weight, cotangent, result = (e.operand(i) for i in range(3))
    parts = list(zip(product(*axes), conv_input(g), strict=True))
    functions = {
        f"{name}.mend{i}": mending(IRBuilder(target, e.declared), part, f"{name}.mend{i}") for i, (_, part) in enumerate(parts)
    }
    with e.loop("%begin", "%end") as unit:
        sample, channel = e.split(unit.index, [g.image[0], g.groups])
        weights = e.mul(channel, ws[0])
        source_offset, result_offset = e.dot([sample, channel], ys[:2]), e.dot([sample, channel], xs[:2])
        e.do("store i8 0, ptr %scratch")
        for each, same in groupby(parts, lambda part: part[0][:-1]):
            lasts = [part[0][-1] for part in same]
            _class_rows(
                e, g, n, [(*each, last) for last in lasts], weight, weights, cotangent, source_offset, result, result_offset
            )
        for i, (each, _) in enumerate(parts):
            count = prod(r.count for r in each)
            first = e.mul(sample, count)
            mend_if(e, "%scratch", f"{name}.mend{i}", [weight, cotangent, result], [channel, 0, 1, first, e.add(first, count)])
    e.do("ret void")
    functions[name] = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
    kernel = ContractionKernel(name, g.image[0] * g.groups, 64, 2.0 * prod(y) * prod(g.weight[2:]))
    variant = Variant(1, n, prod(g.weight[2:]), 1, n, DIRECT, DIRECT, False)
    return Contraction((kernel,), functions, frozenset(e.declared), 0, variant)


def _class_rows(
    e: IRBuilder, g: Convolution, n: int, classes: Sequence[tuple[Residue, ...]], weight: str, weights: Value, cotangent: str,
    source_offset: Value, result: str, result_offset: Value,
) -> None:  # fmt: skip
    """The rows of some classes that differ along the last axis only, so that their vectors are written together."""
    (xs, ws, ys), type_, v = g.strides, compute_type(g.dtype), vector(n, compute_type(g.dtype))
    windows, factors = [], []
    for each in classes:
        windows.append(TapGeometry(
            tuple(r.count for r in each), tuple(r.taps for r in each), g.result[2:], ys[2:], tuple(r.at for r in each),
            (1,) * len(each), tuple(-r.back for r in each),
        ))  # fmt: skip
        found = []
        for tap in product(*(range(r.taps) for r in each)):
            here = e.dot([r.tap + r.step * i for r, i in zip(each, tap, strict=True)], ws[2:], weights)
            found.append(e.shuffle(e.load(e.at(weight, here, memory(g.dtype)), 1, g.dtype), None, [0] * n, 1, type_))
        factors.append(found)
    outer, counts = classes[0][:-1], [each[-1].count for each in classes]
    pairs = g.stride[-1] == 2 and xs[-1] == 1 and len(classes) == 2 and len(set(counts)) == 1 and classes[0][-1].first == 0
    with e.loop(0, prod(r.count for r in outer), 1, [(v, "zeroinitializer")]) as row:
        position = e.split(row.index, [r.count for r in outer])
        image = [e.add(r.first, e.mul(i, s)) for r, i, s in zip(outer, position, g.stride, strict=False)]
        with e.loop(0, max(counts), n, [(v, x) for x in row.values]) as column:
            at = [*position, column.index]
            sums = [
                sum_of_taps(e, w, at, n, g.dtype, lambda _: (cotangent, source_offset), fs.__getitem__)
                for w, fs in zip(windows, factors, strict=True)
            ]
            whole = len(set(counts)) == 1 and counts[0] % n == 0
            masks = [None if whole else e.lanes_below(e.sub(count, column.index), n) for count in counts]
            starts = [e.add(each[-1].first, e.mul(column.index, g.stride[-1])) for each in classes]
            to = [e.at(result, e.dot([*image, x], xs[2:], result_offset), memory(g.dtype)) for x in starts]
            if pairs and masks[0] is None:
                both = [i for pair in zip(range(n), range(n, 2 * n), strict=True) for i in pair]
                for half, place in ((both[:n], starts[0]), (both[n:], e.add(starts[0], n))):
                    there = e.at(result, e.dot([*image, place], xs[2:], result_offset), memory(g.dtype))
                    e.store(e.shuffle(sums[0], sums[1], half, n, type_), there, n, g.dtype)
            else:
                for x, there, mask in zip(sums, to, masks, strict=True):
                    e.store_strided(x, there, n, g.stride[-1] * xs[-1], g.dtype, mask)
            nan = column.values
            for x, mask in zip(sums, masks, strict=True):
                x = x if mask is None else e.let(f"select {vector(n, 'i1')} {mask}, {v} {x}, {v} zeroinitializer")
                nan = [e.fma(x, "zeroinitializer", found, n, type_) for found in nan]
            column.next = nan
        row.next = column.values
    flag_nan(e, row.values, n, type_, "%scratch")


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
