"""Convolutions as direct sums over the taps of a window, in vectors of adjacent positions.

Convolutions with few channels in a group and their gradients are computed so, depthwise ones among them: a matrix product would
have few rows, and copy each element of the image for every tap. The input gradient of a convolution without padding is computed
as ``col2im``: the products of all taps are computed at the positions of the result, in scratch memory, image by image, and
each element of the image sums its own products. A convolution of the cotangent would need more multiplications, by zeros beyond
its border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
    memory,
    plain,
    vector,
)
from firebrick.compiler.targets.llvm.contract.omitted import flag_nan, mend_if, mending
from firebrick.compiler.targets.llvm.contract.problem import (
    FactorLayout,
    MatrixLayout,
    Problem,
    conv_input,
    row_major,
    simplified,
)
from firebrick.compiler.targets.llvm.contract.tap_vectors import Positions, TapGeometry, TapReader, sum_of_taps
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.views import Digit

FEW = 16
"""Maximum number of channels and of outputs of a group for which ``grouped_weight`` is expected to be faster."""
LEAST_TERMS = 16
"""Minimum number of products that a lane adds before its sum is added to that of the images before."""


def suits_depthwise(g: Convolution) -> bool:
    """Whether each group has one channel and one output, few taps, and a stride that vector loads support."""
    single = g.weight[1] == 1 and g.weight[0] == g.groups
    return single and 1 <= prod(g.weight[2:]) <= 64 and g.stride[-1] <= 4 and prod(g.result) > 0


def suits_groups(g: Convolution) -> bool:
    """Whether each group has few channels and outputs, so that products over packed patches would have few rows."""
    few = g.groups > 1 and g.weight[1] <= FEW and g.weight[0] // g.groups <= FEW
    return few and 1 <= prod(g.weight[2:]) <= 64 and g.stride[-1] <= 4 and prod(g.result) > 0


def grouped(g: Convolution, target: Target, name: str, adjoint: bool = False) -> Contraction:
    """Kernels of a ``conv`` with few channels in a group; with ``adjoint``, of its ``conv_input``, for strides of 1.

    A work unit computes some channels of the result from all channels of the group, for one sample, in registers. ``bufs``
    holds the weight, the image (or the cotangent) and the result, in this order.

    Args:
        g: The convolution; see ``suits_groups`` and ``suits_depthwise``.
        target: Processor to generate for.
        name: Name of the function.
        adjoint: Whether to compute the gradient of the image.
    """
    (xs, ws, ys), y = g.strides, g.result
    rows, terms, row_stride, term_stride = g.weight[0] // g.groups, g.weight[1], ws[0], ws[1]
    outer = [(p[0], d, k) for p, d, k in zip(g.padding, g.dilation, g.weight[2:], strict=True)]
    if adjoint:
        w = TapGeometry(g.image[2:], g.weight[2:], y[2:], ys[2:], tuple(p for p, _, _ in outer), (1,) * len(outer),
                        tuple(-d for _, d, _ in outer))  # fmt: skip
        source, written = ys, xs
        rows, terms, row_stride, term_stride = terms, rows, term_stride, row_stride
    else:
        w = TapGeometry(y[2:], g.weight[2:], g.image[2:], xs[2:], tuple(-p for p, _, _ in outer), g.stride, g.dilation)
        source, written = xs, ys
    type_ = compute_type(g.dtype)
    e = IRBuilder(target)
    e.start("%entry")
    weight, image, result = (e.operand(i) for i in range(3))
    reader = TapReader(e, w, g.dtype)
    n, taps = reader.n, list(product(*map(range, w.taps)))
    blocks = -(-rows // (target.registers // 2))
    count = -(-rows // blocks)  # of channels of the result in a work unit
    functions = {}
    if adjoint:
        (whole,) = conv_input(g)
        functions[f"{name}.mend"] = mending(IRBuilder(target, e.declared), whole, f"{name}.mend")
    with e.loop("%begin", "%end") as unit:
        sample, group, block = e.split(unit.index, [g.image[0], g.groups, blocks])
        # the last block has the last channels, some of which another one may have too
        first = e.min(e.mul(block, count), rows - count)
        weights = e.dot([group, first], [g.weight[0] // g.groups * ws[0], row_stride])
        plane = e.at(image, e.dot([sample, e.mul(group, terms)], source[:2]), memory(g.dtype))
        to = e.at(result, e.dot([sample, e.add(e.mul(group, rows), first)], written[:2]), memory(g.dtype))

        def factor(row: int, term: Value, tap: tuple[int, ...]) -> str:
            at = e.dot([row, term, *tap], [row_stride, term_stride, *ws[2:]], weights)
            return e.shuffle(e.load(e.at(weight, at, memory(g.dtype)), 1, g.dtype), None, [0] * n, 1, type_)

        kept = [factor(0, 0, tap) for tap in taps] if terms == count == 1 else []

        def put(at: Positions, nan: list[str]) -> list[str]:
            def add(term: Value, sums: Sequence[str]) -> list[str]:
                found = list(sums)
                for t, x in enumerate(at.taps(e.at(plane, e.mul(term, source[1]), memory(g.dtype)))):
                    found = [e.fma(x, kept[t] if kept else factor(i, term, taps[t]), s, n, type_) for i, s in enumerate(found)]
                return found

            sums = ["zeroinitializer"] * count
            if terms == 1:
                sums = add(0, sums)
            else:
                with e.loop(0, terms, 1, [(vector(n, type_), x) for x in sums]) as term:
                    term.next = add(term.index, term.values)
                sums = term.values
            for i, x in enumerate(sums):
                e.store(x, e.at(to, e.add(at.index, i * written[1]), memory(g.dtype)), n, g.dtype, at.beyond)
                if at.beyond is not None and nan:
                    v = vector(n, type_)
                    x = e.let(f"select {vector(n, 'i1')} {at.beyond}, {v} {x}, {v} zeroinitializer")
                nan = [e.fma(x, "zeroinitializer", found, n, type_) for found in nan]
            return nan

        # times 0 for each result, a sum that is NaN if one of them is
        nan = reader.loop(["zeroinitializer"] if adjoint else [], put)
        if adjoint:
            e.do("store i8 0, ptr %scratch")
            flag_nan(e, nan, n, type_, "%scratch")
            here = e.mul(sample, prod(w.positions))
            ranges = [group, first, e.add(first, count), here, e.add(here, prod(w.positions))]
            mend_if(e, "%scratch", f"{name}.mend", [weight, image, result], ranges)
    e.do("ret void")
    functions[name] = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
    flops = 2.0 * prod(y) * g.weight[1] * len(taps)
    kernel = ContractionKernel(name, g.image[0] * g.groups * blocks, 64 * adjoint, flops)
    return Contraction((kernel,), functions, frozenset(e.declared), 0, Variant(1, n, len(taps), 1, n, DIRECT, DIRECT, False))


def grouped_residues(g: Convolution, target: Target, name: str) -> Contraction:
    """Kernels of a ``conv_input`` of any strides with few channels in a group; arguments and buffers as for ``grouped``.

    A work unit computes one channel of one sample. Image positions of one class, those whose padded coordinates are equal
    modulo the stride, are read by the same taps. So a class is a sum of a part of the taps over adjacent positions of the
    cotangent.
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
        sample, group, channel = e.split(unit.index, [g.image[0], g.groups, g.weight[1]])
        output = e.mul(group, g.weight[0] // g.groups)
        weights = e.dot([output, channel], ws[:2])
        source_offset = e.dot([sample, output], ys[:2])
        result_offset = e.dot([sample, e.add(e.mul(group, g.weight[1]), channel)], xs[:2])
        e.do("store i8 0, ptr %scratch")
        for each, same in groupby(parts, lambda part: part[0][:-1]):
            lasts = [part[0][-1] for part in same]
            _class_rows(
                e, g, n, [(*each, last) for last in lasts], weight, weights, cotangent, source_offset, result, result_offset
            )
        for i, (each, _) in enumerate(parts):
            count = prod(r.count for r in each)
            first = e.mul(sample, count)
            ranges = [group, channel, e.add(channel, 1), first, e.add(first, count)]
            mend_if(e, "%scratch", f"{name}.mend{i}", [weight, cotangent, result], ranges)
    e.do("ret void")
    functions[name] = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
    kernel = ContractionKernel(name, g.image[0] * g.image[1], 64, 2.0 * prod(y) * prod(g.weight[1:]))
    variant = Variant(1, n, prod(g.weight[2:]), 1, n, DIRECT, DIRECT, False)
    return Contraction((kernel,), functions, frozenset(e.declared), 0, variant)


def _class_rows(
    e: IRBuilder, g: Convolution, n: int, classes: Sequence[tuple[Residue, ...]], weight: str, weights: Value, cotangent: str,
    source_offset: Value, result: str, result_offset: Value,
) -> None:  # fmt: skip
    """The rows of some classes that differ along the last axis only, so that their vectors are written together."""
    (xs, ws, ys), type_, v = g.strides, compute_type(g.dtype), vector(n, compute_type(g.dtype))
    windows, terms = [], g.weight[0] // g.groups

    def factor(each: tuple[Residue, ...], term: Value, tap: tuple[int, ...]) -> str:
        at = e.dot([term, *(r.tap + r.step * i for r, i in zip(each, tap, strict=True))], [ws[0], *ws[2:]], weights)
        return e.shuffle(e.load(e.at(weight, at, memory(g.dtype)), 1, g.dtype), None, [0] * n, 1, type_)

    taps_of = [list(product(*(range(r.taps) for r in each))) for each in classes]
    kept = [[factor(each, 0, tap) for tap in taps] for each, taps in zip(classes, taps_of, strict=True)] if terms == 1 else []
    for each in classes:
        windows.append(TapGeometry(
            tuple(r.count for r in each), tuple(r.taps for r in each), g.result[2:], ys[2:], tuple(r.at for r in each),
            (1,) * len(each), tuple(-r.back for r in each),
        ))  # fmt: skip
    outer, counts = classes[0][:-1], [each[-1].count for each in classes]
    pairs = g.stride[-1] == 2 and xs[-1] == 1 and len(classes) == 2 and len(set(counts)) == 1 and classes[0][-1].first == 0
    with e.loop(0, prod(r.count for r in outer), 1, [(v, "zeroinitializer")]) as row:
        position = e.split(row.index, [r.count for r in outer])
        image = [e.add(r.first, e.mul(i, s)) for r, i, s in zip(outer, position, g.stride, strict=False)]
        with e.loop(0, max(counts), n, [(v, x) for x in row.values]) as column:
            at = [*position, column.index]

            def add(term: Value, sums: Sequence[str], at: Sequence[Value] = at) -> list[str]:
                source = e.add(source_offset, e.mul(term, ys[1]))
                found: list[str] = []
                for i, (w, taps, acc) in enumerate(zip(windows, taps_of, sums, strict=True)):

                    def factor_of(t: int, i: int = i, taps: list[tuple[int, ...]] = taps) -> str:
                        return kept[i][t] if kept else factor(classes[i], term, taps[t])

                    found.append(sum_of_taps(e, w, at, n, g.dtype, lambda _: (cotangent, source), factor_of, acc))
                return found

            sums = ["zeroinitializer"] * len(classes)
            if terms == 1:
                sums = add(0, sums)
            else:
                with e.loop(0, terms, 1, [(v, x) for x in sums]) as term:
                    term.next = add(term.index, term.values)
                sums = term.values
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


def grouped_weight(g: Convolution, target: Target, name: str) -> Contraction:
    """Kernels of ``conv_weight`` with few channels in a group: each sums some taps of a channel for some outputs, in registers.

    A work unit adds the products of some images in vectors of adjacent positions, then the sums of all images in order.
    ``bufs`` holds the cotangent, the image and the weight's gradient.

    Args:
        g: The convolution; see ``suits_groups``.
        target: Processor to generate for.
        name: Name of the functions.
    """
    type_, y, taps = compute_type(g.dtype), g.result, list(product(*map(range, g.weight[2:])))
    outputs, row = g.weight[0] // g.groups, g.weight[-1]
    if outputs == 1:
        parts = -(-len(taps) // max(1, target.registers - 6))  # the others hold elements and masks
    else:  # a row of taps, which read the same elements, but at most five
        parts = len(taps) // row * -(-row // 5) if row > 1 else -(-len(taps) // 5)
    declared: set[str] = set()
    functions: dict[str, str] = {}
    kernels = []
    for k in range(parts):
        some = taps[len(taps) * k // parts : len(taps) * (k + 1) // parts]
        most = max(1, (target.registers - 4 - len(some)) // len(some))
        blocks = -(-outputs // most)
        e = IRBuilder(target, declared)
        n = _sum_of_positions(e, g, some, -(-outputs // blocks), type_)
        own = f"{name}.{k}"
        functions[own] = "\n".join([f"define void @{own}{SIGNATURE} {{", *e.lines, "}"])
        scratch = len(some) * -(-outputs // blocks) * n * bytes_of(type_)
        kernels.append(ContractionKernel(own, g.image[1] * blocks, scratch, 2.0 * prod(y) * g.weight[1] * len(some)))
    v = Variant(1, n, prod(y) // y[1], 1, n, DIRECT, DIRECT, False)
    return Contraction(tuple(kernels), functions, frozenset(declared), 0, v, False)


def _sum_of_positions(e: IRBuilder, g: Convolution, taps: Sequence[tuple[int, ...]], outputs: int, type_: str) -> int:
    """The body of a kernel of ``grouped_weight`` for some of the taps, and its number of lanes.

    A work unit is a channel of the image and a block of at most ``outputs`` outputs of its group.
    """
    (xs, ws, ys), y = g.strides, g.result
    e.start("%entry")
    cotangent, image, result = (e.operand(i) for i in range(3))
    start = tuple(-before for before, _ in g.padding)
    w = TapGeometry(y[2:], g.weight[2:], g.image[2:], xs[2:], start, g.stride, g.dilation)
    reader = TapReader(e, w, g.dtype, taps)
    n, v, of_group = reader.n, vector(reader.n, type_), g.weight[0] // g.groups
    blocks = -(-of_group // outputs)
    images = min(g.image[0], max(1, -(-LEAST_TERMS * n // prod(y[2:]))))
    cells = [(o, t) for o in range(outputs) for t in range(len(taps))]
    zeros = [(v, "zeroinitializer")] * len(cells)
    with e.loop("%begin", "%end") as unit:
        group, channel, block = e.split(unit.index, [g.groups, g.weight[1], blocks])
        # the last block has the last outputs, some of which another one may have too
        first = e.min(e.mul(block, outputs), of_group - outputs)
        output = e.add(e.mul(group, of_group), first)
        totals = [e.at("%scratch", i * n, type_) for i in range(len(cells))]
        for total_at in totals:
            e.store("zeroinitializer", total_at, n, plain(type_))
        with e.loop(0, g.image[0], images) as some:
            with e.loop(some.index, e.min(e.add(some.index, images), g.image[0]), 1, zeros) as sample:
                plane = e.at(image, e.dot([sample.index, e.add(e.mul(group, g.weight[1]), channel)], xs[:2]), memory(g.dtype))
                given = e.at(cotangent, e.dot([sample.index, output], ys[:2]), memory(g.dtype))

                def add(at: Positions, sums: list[str], plane: str = plane, given: str = given) -> list[str]:
                    read = list(at.taps(plane))
                    found: list[str] = []
                    for o in range(outputs):
                        here = e.at(given, e.add(at.index, o * ys[1]), memory(g.dtype))
                        u = e.load(here, n, g.dtype, at.beyond)
                        for x in read:
                            found.append(e.fma(x, u, sums[len(found)], n, type_))
                    return found

                sample.next = reader.loop(sample.values, add)
            for total_at, total in zip(totals, sample.values, strict=True):
                e.store(e.let(f"fadd {v} {e.load(total_at, n, plain(type_))}, {total}"), total_at, n, plain(type_))
        for total_at, (o, t) in zip(totals, cells, strict=True):
            total, lanes = e.load(total_at, n, plain(type_)), n
            while lanes > 1:  # the sum of the lanes, as a tree
                low, high = (e.shuffle(total, None, range(a, a + lanes // 2), lanes, type_) for a in (0, lanes // 2))
                lanes //= 2
                total = e.let(f"fadd {vector(lanes, type_)} {low}, {high}")
            to = e.dot([e.add(output, o), channel, *taps[t]], ws)
            e.store(total, e.at(result, to, memory(g.dtype)), 1, g.dtype)
    e.do("ret void")
    return n


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
