"""``TapReader``: the elements of a plane that the taps of a window read, in vectors of adjacent positions.

A vector has positions of one row, or of several whole rows where these are shorter than it. Elements outside of the plane are 0
and are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from firebrick.compiler.targets.llvm.contract.ir_builder import (
    IRBuilder,
    Value,
    bytes_of,
    compute_type,
    constant,
    memory,
    vector,
)
from firebrick.compiler.targets.llvm.contract.pack import strided


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


def read_taps(
    e: IRBuilder, w: TapGeometry, taps: Sequence[tuple[int, ...]], at: Sequence[Value], n: int, dtype: str,
    source: Callable[[int], tuple[str, Value]], beyond: str | None,
) -> Iterator[str]:  # fmt: skip
    """For each of some taps, the elements that it reads for ``n`` adjacent positions of a row.

    Args:
        e: Builder to append to.
        w: The window.
        taps: The taps.
        at: Position of the first lane.
        n: Lanes.
        dtype: Dtype of the elements.
        source: Index in ``taps`` → pointer and offset in elements of the plane.
        beyond: Mask of the lanes that are positions; None if all are.
    """
    type_ = compute_type(dtype)
    # every second element: two adjacent taps are the even and the odd elements of one load
    pairs = w.step[-1] == 2 and w.tap_step[-1] == 1 and w.strides[-1] == 1
    even: tuple[tuple[int, ...], str] | None = None  # a tap, and twice as many elements from its first one on
    for t, tap in enumerate(taps):
        each = zip(at, tap, w.start, w.step, w.tap_step, strict=True)
        coordinate = [e.add(start + tap_step * i, e.mul(p, step)) for p, i, start, step, tap_step in each]
        all_valid: str | None = None
        known = [(p, size) for p, size in zip(coordinate[:-1], w.sizes[:-1], strict=True) if isinstance(p, int)]
        if any(not 0 <= p < size for p, size in known):  # see ``no_lanes`` for why there is no load
            yield "zeroinitializer"
            continue
        for p, size in zip(coordinate[:-1], w.sizes[:-1], strict=True):
            if isinstance(p, int):
                continue
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
            if beyond is not None:
                v = vector(n, type_)
                x = e.let(f"select {vector(n, 'i1')} {beyond}, {v} {x}, {v} zeroinitializer")
        else:
            mask = e.inside(last, w.step[-1], w.sizes[-1], n)
            if beyond is not None:
                mask = e.let(f"and {vector(n, 'i1')} {mask}, {beyond}")
            x = strided(e, e.at(base, e.dot(coordinate, w.strides, offset), memory(dtype)), n, w.step[-1], dtype, mask)
        yield x


def sum_of_taps(
    e: IRBuilder, w: TapGeometry, at: Sequence[Value], n: int, dtype: str, source: Callable[[int], tuple[str, Value]],
    factor: Callable[[int], str] | None, acc: str | None = None,
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
        acc: A vector to which the sum is added.
    """
    type_ = compute_type(dtype)
    beyond = e.lanes_below(e.sub(w.positions[-1], at[-1]), n) if w.positions[-1] % n else None
    for t, x in enumerate(read_taps(e, w, list(product(*map(range, w.taps))), at, n, dtype, source, beyond)):
        if factor is not None:
            acc = e.fma(x, factor(t), acc or "zeroinitializer", n, type_)
        else:
            acc = x if acc is None else e.let(f"fadd {vector(n, type_)} {acc}, {x}")
    return acc or "zeroinitializer"


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of a vector.

    Attributes:
        index: Number of the first in the row-major plane of positions.
        beyond: Mask of the lanes that are positions; None if all are.
        taps: Pointer to a plane of elements → for each tap, what it reads.
    """

    index: Value
    beyond: str | None
    taps: Callable[[str], Iterator[str]]


Body = Callable[[Positions, list[str]], list[str]]
"""Positions of a vector, and the values of the vectors before → the values for the next."""


class TapReader:
    """Loops over all positions, row-major, in vectors.

    Args:
        e: Builder to append to, at the start of the function.
        w: The window. Elements of a row are adjacent.
        dtype: Dtype of the elements.
        taps: The taps that are read; all by default.

    Attributes:
        n: Lanes of a vector.
    """

    def __init__(self, e: IRBuilder, w: TapGeometry, dtype: str, taps: Sequence[tuple[int, ...]] | None = None) -> None:
        self.e, self.w, self.dtype = e, w, dtype
        self.type = compute_type(dtype)
        self.taps = list(product(*map(range, w.taps))) if taps is None else list(taps)
        lanes, width = e.target.width_bits // (8 * bytes_of(self.type)), w.positions[-1]
        plane = len(w.positions) == 2 and lanes % width == 0 and w.strides == (w.sizes[-1], 1)
        self._equal = plane and set(w.step) == {1} and w.positions == w.sizes
        self._halved = plane and w.step[-1] == 2 and w.sizes[-1] <= 2 * width and w.positions[0] % (lanes // width) == 0
        self.n = lanes if self._equal or self._halved else min(lanes, 1 << (width - 1).bit_length())
        # coordinates of each tap relative to those of a position times the step
        self._moved = [
            tuple(a + b * i for a, b, i in zip(w.start, w.tap_step, tap, strict=True)) for tap in self.taps
        ]  # fmt: skip
        self._columns: dict[int, str] = {}
        if self._equal or self._halved:
            self._mask_columns(2 * width if self._halved else width)

    def _mask_columns(self, size: int) -> None:
        """Masks of the lanes whose column is in [0, size), by where a tap reads. They are the same for all vectors."""
        e, w, n = self.e, self.w, self.n
        # 0, but not to LLVM, which replaces constant masks by shuffles that are slow
        zero = e.let(f"trunc i64 {e.let('lshr i64 %begin, 63')} to i32")
        for x in sorted({x for _, x in self._moved}):
            columns = [i % w.positions[-1] * w.step[-1] + x for i in range(n)]
            if all(0 <= c < size for c in columns):
                continue
            here = e.let(f"add {vector(n, 'i32')} {e.splat(zero, n, 'i32')}, {constant([str(c) for c in columns], 'i32')}")
            self._columns[x] = e.let(f"icmp ult {vector(n, 'i32')} {here}, {constant([str(size)] * n, 'i32')}")

    def loop(self, values: Sequence[str], body: Body) -> list[str]:
        """Instructions for the positions of each vector.

        Args:
            values: Vectors for the first positions.
            body: Writes the instructions; returns as many vectors for the next positions.

        Returns:
            The vectors after the last positions.
        """
        if not (self._equal or self._halved):
            return self._loop_in_rows(values, body)
        e, w, n, v = self.e, self.w, self.n, vector(self.n, self.type)
        width, size = w.positions[-1], prod(w.positions)
        rows = n // width
        # the rows of positions whose taps are all inside
        low, high = min(y for y, _ in self._moved), max(y for y, _ in self._moved)
        above, below = -(min(0, low) // w.step[0]), (w.sizes[0] - 1 - max(0, high)) // w.step[0] + 1
        first = min(size, -(-above // rows) * n)
        last = max(first, min(size, max(0, below) // rows * n))
        values = list(values)
        for begin, end, inside in ((0, first, False), (first, last, True), (last, size, False)):
            if begin >= end:
                continue
            with e.loop(begin, end, n, [(v, x) for x in values]) as loop:
                beyond = e.lanes_below(e.sub(size, loop.index), n) if size % n and not inside else None
                read = partial(self._read_equal if self._equal else self._read_halved, loop.index, beyond, inside)
                loop.next = body(Positions(loop.index, beyond, read), loop.values)
            values = loop.values
        return values

    def _loop_in_rows(self, values: Sequence[str], body: Body) -> list[str]:
        e, w, n, v = self.e, self.w, self.n, vector(self.n, self.type)
        width = w.positions[-1]
        with e.loop(0, prod(w.positions[:-1]), 1, [(v, x) for x in values]) as row:
            position = e.split(row.index, w.positions[:-1])
            with e.loop(0, width, n, [(v, x) for x in row.values]) as column:
                at = [*position, column.index]
                beyond = e.lanes_below(e.sub(width, column.index), n) if width % n else None

                def read(base: str, at: Sequence[Value] = at, beyond: str | None = beyond) -> Iterator[str]:
                    return read_taps(e, w, self.taps, at, n, self.dtype, lambda _: (base, 0), beyond)

                index = e.add(e.mul(row.index, width), column.index)
                column.next = body(Positions(index, beyond, read), column.values)
            row.next = column.values
        return row.values

    def _read_equal(self, index: Value, beyond: str | None, inside: bool, base: str) -> Iterator[str]:
        """Rows of positions that are as long as those of the elements: a tap reads adjacent elements."""
        e, n, (_, width) = self.e, self.n, self.w.positions
        for y, x in self._moved:
            masks = [self._columns[x]] if x in self._columns else []
            if not inside:
                masks.append(e.inside(e.add(index, y * width), 1, prod(self.w.positions), n))
            if beyond is not None:
                masks.append(beyond)
            here = e.at(base, e.add(index, y * width + x), memory(self.dtype))
            yield e.load(here, n, self.dtype, self._all_of(masks))

    def _read_halved(self, index: Value, beyond: str | None, inside: bool, base: str) -> Iterator[str]:
        """Every second element of rows: a tap of a row picks its elements from whole rows, which are read once."""
        e, n, (_, width) = self.e, self.n, self.w.positions
        first = e.div(index, width)
        loaded: dict[int, tuple[str, str]] = {}
        v = vector(n, self.type)
        for y, x in self._moved:
            if y not in loaded:
                loaded[y] = self._rows(base, first, y, inside)
            picked = []
            for lane in range(n):
                row, column = divmod(lane, width)
                at = 2 * column + x
                picked.append(row * 2 * width + at if 0 <= at < 2 * width else -1)
            found = e.shuffle(*loaded[y], picked, n, self.type)
            mask = self._columns.get(x)
            yield found if mask is None else e.let(f"select {vector(n, 'i1')} {mask}, {v} {found}, {v} zeroinitializer")

    def _rows(self, base: str, first: Value, y: int, inside: bool) -> tuple[str, str]:
        """The rows of elements that a row of taps reads for some rows of positions, as two vectors."""
        e, n, w, dtype = self.e, self.n, self.w, self.dtype
        width, (height, size) = w.positions[-1], w.sizes
        rows, length = n // width, 2 * width
        parts = []
        for row in range(rows):
            at = e.add(e.mul(e.add(first, row), w.step[0]), y)
            here = e.mul(at, w.strides[0])
            for begin in range(0, length, n):  # one part, or two if the vector has one row of positions
                lanes = min(n, length)
                if inside:
                    mask = e.lanes_below(size - begin, lanes)
                else:
                    valid = e.compare("ult", at, height)
                    mask = e.inside(e.let(f"select i1 {valid}, i64 {begin}, i64 {-(1 << 30)}"), 1, size, lanes)
                parts.append(e.load(e.at(base, e.add(here, begin), memory(dtype)), lanes, dtype, mask))
        lanes = min(n, length)
        while len(parts) > 2:
            lanes *= 2
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [e.shuffle(a, b, list(range(lanes)), lanes // 2, self.type) for a, b in pairs]
        return parts[0], parts[1]

    def _all_of(self, masks: Sequence[str]) -> str | None:
        found: str | None = None
        for mask in masks:
            found = mask if found is None else self.e.let(f"and {vector(self.n, 'i1')} {found}, {mask}")
        return found
