"""Packing: copies one panel of an operand to contiguous memory, in the order in which a micro-kernel reads it.

A panel is ``width`` lanes (rows of A or columns of B) by a range of k, stored as [k][width] in the type of the arithmetic. If
lanes are contiguous in memory, they are copied as vectors, one k after another. If elements along k are contiguous, square
blocks are loaded along k and transposed in registers. Images are read through their bounds, so that patches of a convolution
exist in panels only. Lanes beyond the operand repeat the last lane or are 0; results computed from them are never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from firebrick.compiler.targets.llvm.contract.ir_builder import (
    IRBuilder,
    Value,
    all_lanes,
    bytes_of,
    compute_type,
    constant,
    memory,
    no_lanes,
    plain,
    vector,
)
from firebrick.compiler.targets.llvm.contract.problem import FactorLayout, period, taps_of

_VECTOR_STRIDES = (1, 2, 3, 4)  # such elements are read by a contiguous load and a shuffle; farther ones, one by one


@dataclass(frozen=True, slots=True)
class Panels:
    """The packing of an operand.

    Attributes:
        operand: Operand that is packed.
        lanes: Lanes of the whole operand.
        k: Length of the sums.
        width: Lanes of a panel.
        block: Steps of k that are packed at once.
    """

    operand: FactorLayout
    lanes: int
    k: int
    width: int
    block: int

    @property
    def by_taps(self) -> bool:
        """Whether each block consists of whole periods of taps."""
        taps = period(self.operand)
        return taps > 1 and (self.block % taps == 0 or self.block >= self.k)

    def rows(self, k: int, vl: int) -> int:
        """Steps of k that a panel has memory for: a multiple of a vector, since transposed blocks are stored whole."""
        return -(-k // vl) * vl

    def elements(self, k: int, vl: int) -> int:
        """Elements of memory of a panel of ``k`` steps, padded by a vector: the last store of a row may exceed the row."""
        return self.rows(k, vl) * self.width + vl


def power_of_two(n: int, most: int) -> int:
    """The largest power of two that divides ``n``, at most ``most``."""
    return min(n & -n, most) if n else most


def pack_panel(
    e: IRBuilder, p: Panels, source: str, batch: Sequence[Value], lane: Value, k0: Value, kc: Value, to: str
) -> None:
    """Pack the lanes from ``lane`` (a multiple of the width) and k in [k0, k0 + kc) to ``to``.

    Args:
        e: Builder to append to.
        p: What is packed.
        source: Pointer to the operand, before the offset of the batch is added.
        batch: The indices of the batch.
        lane: First lane.
        k0: First k, a multiple of the lanes of a vector.
        kc: Steps of k; a multiple of the lanes of a vector, or all that are left.
        to: Pointer to the panel.
    """
    x = p.operand
    type_ = compute_type(x.dtype)
    vl = e.target.width_bits // (8 * bytes_of(type_))
    base = e.dot(batch, x.batch, x.offset)
    # the direction in which one load covers more elements is the faster one
    if e.masks and _odd_segment(p, vl) > max(_lane_reach(p, vl, True), _k_piece(p, vl)):
        _by_k(e, p, source, base, lane, k0, kc, to, vl)
    elif _lane_reach(p, vl, e.masks) >= _k_piece(p, vl):
        _by_lanes(e, p, source, base, lane, k0, kc, to, vl)
    else:
        _by_k(e, p, source, base, lane, k0, kc, to, vl)


def _lane_piece(p: Panels, vl: int) -> int:
    """Lanes of one load if the loop runs over k one by one."""
    x = p.operand
    if x.lanes[-1].stride not in _VECTOR_STRIDES:
        return 1
    if len(x.lanes) == 1 and not x.bounds:
        return vl
    return power_of_two(x.lanes[-1].size, power_of_two(p.width, vl))


def _lane_reach(p: Panels, vl: int, masks: bool) -> int:
    """Average number of lanes of one load; with masks, a load may end at the end of a row."""
    piece = _lane_piece(p, vl)
    return max(piece, min(vl, p.operand.lanes[-1].size)) if masks and _loads_end_at_rows(p, vl) else piece


def _loads_end_at_rows(p: Panels, vl: int) -> bool:
    """Whether loads are masked at the ends of rows of lanes, which are no multiple of a vector."""
    last = p.operand.lanes[-1]
    return last.stride in _VECTOR_STRIDES and _lane_piece(p, vl) < min(vl, last.size)


def _odd_segment(p: Panels, vl: int) -> int:
    """Length of the contiguous segments of k (taps of a kernel), if each block is a multiple of a segment; else 0."""
    last = p.operand.k[-1]
    whole = p.block % max(1, last.size) == 0 or p.block >= p.k
    return min(vl, last.size) if len(p.operand.k) > 1 and last.stride == 1 and whole and last.size <= 2 * vl else 0


def _k_piece(p: Panels, vl: int) -> int:
    """Elements along k of one load, before they are transposed."""
    x = p.operand
    if x.k[-1].stride not in _VECTOR_STRIDES:
        return 1
    return vl if len(x.k) == 1 and not x.bounds else power_of_two(x.k[-1].size, vl)


def _by_lanes(
    e: IRBuilder, p: Panels, source: str, base: Value, lane: Value, k0: Value, kc: Value, to: str, vl: int
) -> None:  # fmt: skip
    """Pack contiguous lanes, one k after another."""
    x, type_ = p.operand, compute_type(p.operand.dtype)
    piece = _lane_piece(p, vl)
    if len(x.lanes) == 1 and not x.bounds and piece > 1:
        whole, rest = divmod(p.width, vl)
        pieces = [(0, whole, vl)] if whole else []
        if rest:
            pieces.append((whole * vl, 1, vl if not whole else rest))
    else:
        pieces = [(0, p.width // piece, piece)]
    row_ends = e.masks and _loads_end_at_rows(p, vl)
    if row_ends:
        pieces = [(0, p.width, vl)]
    for start, count, n in pieces:
        with e.loop(0, count) as piece_loop:
            at = piece_loop.index if row_ends else e.add(start, e.mul(piece_loop.index, n))
            first = e.add(lane, at)
            index = e.split(first, [a.size for a in x.lanes])
            stored = None
            if row_ends:
                left = e.sub(p.width, at)
                if len(x.lanes) > 1:  # a single axis has no row ends; beyond its last lane the step would be 0 or less
                    left = e.min(left, e.sub(x.lanes[-1].size, index[-1]))
                piece_loop.step = e.min(left, n)
                stored = e.lanes_below(piece_loop.step, n)
            offset = e.dot(index, [a.stride for a in x.lanes], base)
            coordinates = [e.dot(index, b.lanes, b.start) for b in x.bounds]
            readable = None
            if (p.lanes - 1) // p.width * p.width + start + (count if row_ends else count * n) > p.lanes:
                readable = e.lanes_below(e.sub(p.lanes, first), n)
            if stored is not None:
                readable = _and(e, readable, stored, n)
            here = _LaneRange(n, offset, coordinates, readable, stored, e.at(to, at, type_))
            (_by_taps if p.by_taps else _by_segments)(e, p, source, here, k0, kc)


@dataclass(frozen=True, slots=True)
class _LaneRange:
    """Contiguous lanes of a panel.

    Attributes:
        n: Number of lanes.
        offset: Offset of the first lane in the operand, in elements.
        coordinates: Coordinates of the first lane, one for each bound.
        readable: Mask of the lanes that are read; None for all.
        stored: Mask of the lanes that are stored; None for all.
        to: Pointer to the lanes in the panel's first row.
    """

    n: int
    offset: Value
    coordinates: list[Value]
    readable: str | None
    stored: str | None
    to: str


def _by_segments(e: IRBuilder, p: Panels, source: str, piece: _LaneRange, k0: Value, kc: Value) -> None:
    """Pack lanes for any range of k, one segment of the innermost axis of k at a time.

    The bounds of the other axes are constant in a segment, so they are tested once for each segment.
    """
    x, n, type_, end, inner = p.operand, piece.n, compute_type(p.operand.dtype), e.add(k0, kc), p.operand.k[-1]
    step, bounds = x.lanes[-1].stride, list(zip(x.bounds, piece.coordinates, strict=True))
    with e.loop(k0, end) as segment:
        ks = e.split(segment.index, [a.size for a in x.k])
        length = e.sub(end, segment.index)
        if len(x.k) > 1:
            length = e.min(length, e.sub(inner.size, ks[-1]))
        segment.step = length
        src = e.at(source, e.dot(ks, [a.stride for a in x.k], piece.offset), memory(x.dtype))
        row = e.at(piece.to, e.mul(e.sub(segment.index, k0), p.width), type_)
        fixed = piece.readable
        for b, c in bounds:
            if b.k[-1] == 0:
                fixed = _and(e, fixed, e.inside(e.dot(ks, b.k, c), b.lanes[-1], b.size, n), n)

        def copy(masks: list[str | None]) -> None:
            with e.loop(0, length) as each:
                mask = masks[0]
                for b, c in bounds:
                    if b.k[-1]:
                        coordinate = e.add(e.dot(ks, b.k, c), e.mul(each.index, b.k[-1]))
                        mask = _and(e, mask, e.inside(coordinate, b.lanes[-1], b.size, n), n)
                at = e.at(src, e.mul(each.index, inner.stride), memory(x.dtype))
                value = strided(e, at, n, step, x.dtype, mask)
                e.store(value, e.at(row, e.mul(each.index, p.width), type_), n, plain(type_), piece.stored)

        _with_masks(e, [fixed], n, copy)


def _by_taps(e: IRBuilder, p: Panels, source: str, piece: _LaneRange, k0: Value, kc: Value) -> None:
    """Pack lanes for whole periods of taps, with a loop over the outer axis of k.

    The loop over the taps is unrolled, so that each tap's mask is computed once, in front of the loop.
    """
    x, n, type_ = p.operand, piece.n, compute_type(p.operand.dtype)
    taps = taps_of(x)
    all_taps = list(product(*(range(a.size) for a in taps)))
    masks: list[str | None] = []
    for tap in all_taps:
        mask = piece.readable
        for b, c in zip(x.bounds, piece.coordinates, strict=True):
            mask = _and(e, mask, e.inside(e.add(c, e.dot(tap, b.k[1:])), b.lanes[-1], b.size, n), n)
        masks.append(mask)
    first = e.div(k0, len(all_taps))

    def copy(masks: list[str | None]) -> None:
        with e.loop(0, e.div(kc, len(all_taps))) as outer:
            src = e.at(source, e.add(piece.offset, e.mul(e.add(first, outer.index), x.k[0].stride)), memory(x.dtype))
            row = e.at(piece.to, e.mul(outer.index, p.width * len(all_taps)), type_)
            for i, (tap, mask) in enumerate(zip(all_taps, masks, strict=True)):
                at = e.at(src, e.dot(tap, [a.stride for a in taps]), memory(x.dtype))
                value = strided(e, at, n, x.lanes[-1].stride, x.dtype, mask)
                e.store(value, e.at(row, i * p.width, type_), n, plain(type_), piece.stored)

    _with_masks(e, masks, n, copy)


def _with_masks(e: IRBuilder, masks: list[str | None], n: int, copy: Callable[[list[str | None]], None]) -> None:
    """Copy with masks; on targets with slow masked loads, a copy without masks is used if all lanes of all masks are set."""
    every: str | None = None
    for m in masks:
        every = every if m is None else _and(e, every, m, n)
    if every is None or e.masks or n == 1:
        copy(masks)
        return
    bits = e.let(f"bitcast {vector(n, 'i1')} {every} to i{n}")
    full = e.let(f"icmp eq i{n} {bits}, -1")
    with e.when(full):
        copy([None] * len(masks))
    with e.when(e.let(f"xor i1 {full}, true")):
        copy(masks)


def _by_k(e: IRBuilder, p: Panels, source: str, base: Value, lane: Value, k0: Value, kc: Value, to: str, vl: int) -> None:
    """Pack blocks that are loaded along k and transposed in registers."""
    if p.width % vl:
        # a row's last vector overwrites the start of the next row, so each row is stored completely before the next one
        _blocks(e, p, source, base, lane, k0, kc, to, vl, [(c, min(vl, p.width - c)) for c in range(0, p.width, vl)])
        return
    type_ = compute_type(p.operand.dtype)
    with e.loop(0, p.width, vl) as chunk:
        _blocks(e, p, source, base, e.add(lane, chunk.index), k0, kc, e.at(to, chunk.index, type_), vl, [(0, vl)])


def _blocks(
    e: IRBuilder, p: Panels, source: str, base: Value, lane: Value, k0: Value, kc: Value, to: str, vl: int,
    chunks: list[tuple[int, int]],
) -> None:  # fmt: skip
    x, type_ = p.operand, compute_type(p.operand.dtype)
    r = _k_piece(p, vl)
    offsets: list[Value] = []
    lane_coordinates: list[list[Value]] = []
    for j in (c + i for c, n in chunks for i in range(n)):
        at = e.min(e.add(lane, j), p.lanes - 1) if p.lanes % p.width else e.add(lane, j)
        index = e.split(at, [a.size for a in x.lanes])
        offsets.append(e.dot(index, [a.stride for a in x.lanes], base))
        lane_coordinates.append([e.dot(index, b.lanes, b.start) for b in x.bounds])
    end, tail = e.add(k0, kc), p.k % r

    def block(k: Value, valid: str | None, r: int, stored: int) -> None:
        ks = e.split(k, [a.size for a in x.k])
        along = e.dot(ks, [a.stride for a in x.k])
        k_coordinates = [e.dot(ks, b.k) for b in x.bounds]
        rows = []
        for offset, starts in zip(offsets, lane_coordinates, strict=True):
            now = [e.add(coordinate, start) for coordinate, start in zip(k_coordinates, starts, strict=True)]
            mask = _within(e, p, now, r, valid)
            rows.append(strided(e, e.at(source, e.add(offset, along), memory(x.dtype)), r, x.k[-1].stride, x.dtype, mask))
        columns = []
        for c, n in chunks:
            own_rows, rows = rows[:n], rows[n:]
            columns.append((c, transposed(e, own_rows, r, vl, type_)))
        row = e.at(to, e.mul(e.sub(k, k0), p.width), type_)
        for j in range(stored):
            for c, vectors in columns:
                value, n = vectors[j]
                e.store(value, e.at(row, j * p.width + c, type_), n, plain(type_))

    segment = _odd_segment(p, vl)
    if e.masks and segment > r:
        size = x.k[-1].size
        with e.loop(k0, end, size) as loop:
            for at in range(0, size, vl):
                n = min(vl, size - at)
                wide = 1 << (n - 1).bit_length()
                block(e.add(loop.index, at), e.lanes_below(n, wide), wide, n)
        return
    if tail and e.masks:
        with e.loop(k0, end, r) as loop:
            block(loop.index, e.lanes_below(e.sub(p.k, loop.index), r), r, r)
        return
    with e.loop(k0, e.min(end, p.k - tail), r) as loop:
        block(loop.index, None, r, r)
    if tail:
        with e.when(e.compare("eq", end, p.k)):
            block(p.k - tail, e.lanes_below(tail, r), r, r)


def _within(e: IRBuilder, p: Panels, coordinates: list[Value], n: int, mask: str | None) -> str | None:
    """Mask of ``n`` elements along k that are inside all bounds. A bound that does not vary along k needs one scalar test."""
    bounds = p.operand.bounds
    ok: str | None = None
    for b, coordinate in zip(bounds, coordinates, strict=True):
        if b.k[-1] == 0 and isinstance(coordinate, int):
            if not 0 <= coordinate < b.size:
                return no_lanes(n)
        elif b.k[-1] == 0:
            one = e.compare("ult", coordinate, b.size)
            ok = one if ok is None else e.let(f"and i1 {ok}, {one}")
    varying = [(b, coordinate) for b, coordinate in zip(bounds, coordinates, strict=True) if b.k[-1]]
    for b, coordinate in varying:
        if ok is not None:  # an invalid coordinate masks all lanes, and costs less than a second mask
            coordinate, ok = e.let(f"select i1 {ok}, i64 {coordinate}, i64 {-(1 << 30)}"), None
        mask = _and(e, mask, e.inside(coordinate, b.k[-1], b.size, n), n)
    return mask if ok is None else _and(e, mask, e.splat(ok, n, "i1"), n)


def strided(e: IRBuilder, at: str, n: int, step: int, dtype: str, mask: str | None) -> str:
    """``n`` lanes ``step`` elements apart, in the type of the arithmetic; lanes outside a mask are 0."""
    if n == 1 or step == 1 or mask == no_lanes(n):
        return e.load(at, n, dtype, mask)
    type_ = compute_type(dtype)
    # One contiguous load and a shuffle are faster than a gather. The load is masked: the elements between the lanes may lie
    # outside of the operand's memory.
    wide = (n - 1) * step + 1
    size = 1 << (wide - 1).bit_length()
    if mask is None:
        spread: str | None = constant([str(int(i < wide and i % step == 0)) for i in range(size)], "i1")
    else:
        v = vector(n, "i1")
        picked = constant([str(i // step if i < wide and i % step == 0 else n) for i in range(size)], "i32")
        spread = e.let(f"shufflevector {v} {mask}, {v} zeroinitializer, {vector(size, 'i32')} {picked}")
    loaded = e.load(at, size, dtype, spread)
    return e.shuffle(loaded, None, [i * step for i in range(n)], size, type_)


def transposed(e: IRBuilder, rows: list[str], r: int, vl: int, type_: str) -> list[tuple[str, int]]:
    """Transpose rows of ``r`` lanes into ``r`` pairs (vector, lanes), one for each lane; padding rows are poison.

    Each of log2(rows) rounds interleaves the first half of the rows with the second half.
    """
    full = 1 << (len(rows) - 1).bit_length()
    items: list[list[tuple[str, int]]] = [[(v, r)] for v in rows] + [[("poison", r)]] * (full - len(rows))
    while len(items) > 1:
        half = len(items) // 2
        items = [_interleaved(e, a, b, vl, type_) for a, b in zip(items[:half], items[half:], strict=True)]
    flat = items[0]
    each = full
    out: list[tuple[str, int]] = []
    for value, n in flat:
        if n == each:
            out.append((value, n))
        else:
            out.extend((e.shuffle(value, None, list(range(i, i + each)), n, type_), each) for i in range(0, n, each))
    return out


def _interleaved(
    e: IRBuilder, a: list[tuple[str, int]], b: list[tuple[str, int]], vl: int, type_: str
) -> list[tuple[str, int]]:  # fmt: skip
    out = []
    for (x, n), (y, _) in zip(a, b, strict=True):
        lanes = [i // 2 + (n if i % 2 else 0) for i in range(2 * n)]
        for part in (lanes,) if 2 * n <= vl else (lanes[:n], lanes[n:]):
            if x == y == "poison":
                out.append(("poison", len(part)))
            else:
                out.append((e.shuffle(x, y, part, n, type_), len(part)))
    return out


def _and(e: IRBuilder, a: str | None, b: str, n: int) -> str | None:
    """The lanes of both masks; None for all lanes."""
    if b == all_lanes(n) or a == no_lanes(n):
        return a
    return b if a is None or b == no_lanes(n) else e.let(f"and {vector(n, 'i1')} {a}, {b}")
