"""Running maxima and minima along the last axis: neighbouring elements of a row are the lanes of a vector.

Of two runs of elements, the later one's extreme replaces the earlier one's only if it is better, so that extremes of runs
combine in any grouping: within a vector in log₂(lanes) steps, each with the vector that is 1, 2, 4, … lanes behind, and then
with the extreme of all before the vector. Nothing is rounded, so the results are those of one element after another. An item
computes several rows, since each vector waits for the one before.
"""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.compiler.spec.base import Size
from firebrick.compiler.spec.prefix import EXTREMES, Prefix
from firebrick.compiler.targets.llvm.emit import Code, Emitter, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.memory import Strip, read, stored_type, tail_mask, write
from firebrick.compiler.targets.llvm.native import NAME, Loop, NativeKernel, buffer_pointers, finish, lanes_for
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import FLOATS, Expr, eq, local, select

MOST_LANES = 16
ELEMENTS_PER_US = 2000.0
"""Assumed number of elements that a thread computes in a microsecond."""
Pair = tuple[str, str]


def lanes_of(spec: Prefix, target: Target) -> int:
    """Lanes of the kernel of a specification; 0 if it has none of this kind."""
    if spec.fold not in EXTREMES or spec.inner != 1:
        return 0
    lanes = min(MOST_LANES, lanes_for(target, [], [spec.total]))
    suits = lanes > 1 and 2 * lanes <= spec.size < 1 << 31 and not (spec.reverse and spec.size % lanes)
    return lanes if suits else 0


def better(fold: str, dtype: str) -> Expr:
    """Whether a later element replaces an earlier one; NaN is before every number, and stays."""
    new, total = local("x", dtype), local("total", dtype)
    if dtype in FLOATS:
        return ~(new <= total if fold == "max" else new >= total) & eq(total, total)
    return new > total if fold == "max" else new < total


def kernel(spec: Prefix, lanes: int, rows: Size, first: Size, chains: int, target: Target) -> NativeKernel:
    """The kernel of a part of the rows.

    Args:
        spec: A specification for which ``lanes_of`` is not 0.
        lanes: From ``lanes_of``.
        rows: Items, of ``chains`` rows each.
        first: The first element of the first item.
        chains: Rows of an item.
        target: The processor.
    """
    code, size = Code(target), spec.size
    combined = _Combined(spec, code, lanes)
    buffers = buffer_pointers(code, 3)
    items = Loop(code, "%begin", "%end", 1)
    start = code.put(f"add i64 {code.put(f'mul i64 {items.index}, {chains * size}')}, {first}")
    stride = -1 if spec.reverse else 1

    def vectors(at: str, states: Sequence[Pair], mask: str) -> list[Pair]:
        """The extremes after the vectors of all rows at position ``at`` in the order of the scan, with all before."""
        place = code.put(f"sub i64 {size - 1}, {at}") if spec.reverse else at
        from_row = code.put(f"add i64 {start}, {place}")
        along, found = combined.along(place), list[Pair]()
        for row in range(chains):
            at_row = code.put(f"add i64 {from_row}, {row * size}")
            strips = [
                Strip(dtype, code.put(f"getelementptr {stored_type(dtype, code)}, ptr {buffer}, i64 {at_row}"), stride)
                for dtype, buffer in zip((spec.dtype, spec.dtype, "int64"), buffers, strict=True)
            ]
            state = combined.within(read(code, strips[0], "0", lanes, mask), along)
            if states:
                state = combined.of(states[row], state)
            write(code, strips[1], "0", state[0], lanes, mask)
            write(code, strips[2], "0", code.put(f"sext <{lanes} x i32> {state[1]} to <{lanes} x i64>"), lanes, mask)
            found.append(combined.last(state))
        return found

    states = vectors("0", (), "")
    begin = [pair for state in states for pair in zip(combined.types, state, strict=True)]
    loop = Loop(code, str(lanes), str(size // lanes * lanes), lanes, begin)
    carried = [(loop.values[2 * row], loop.values[2 * row + 1]) for row in range(chains)]
    states = vectors(loop.index, carried, "")
    loop.close([value for state in states for value in state])
    if size % lanes:
        vectors(str(size // lanes * lanes), carried, tail_mask(code, str(size % lanes), lanes))
    items.close()
    return finish(NAME, code, len(buffers), rows)


class _Combined:
    """The code that combines extremes: vectors of values and of their positions, as int32."""

    def __init__(self, spec: Prefix, code: Code, lanes: int) -> None:
        self._spec, self._code, self._lanes = spec, code, lanes
        self.types = vector_type(scalar_type(spec.total), lanes), f"<{lanes} x i32>"
        total = spec.total
        wins = better(spec.fold, total)
        self._results = [
            select(wins, local("x", total), local("total", total)),
            select(wins, local("along", "int32"), local("where", "int32")),
        ]

    def of(self, before: Pair, after: Pair) -> Pair:
        """The extremes of earlier elements and of later ones."""
        names = {"total": before[0], "where": before[1], "x": after[0], "along": after[1]}
        value, where = Emitter(self._code, self._lanes, lambda e: names[str(e.value)]).all(self._results)
        return value, where

    def along(self, place: str) -> str:
        """The positions of a vector whose first element is at ``place``."""
        signs = -1 if self._spec.reverse else 1
        steps = ", ".join(f"i32 {signs * i}" for i in range(self._lanes))
        one = splat(self._code, "i32", self._code.put(f"trunc i64 {place} to i32"), self._lanes)
        return self._code.put(f"add {self.types[1]} {one}, <{steps}>")

    def within(self, x: str, along: str) -> Pair:
        """The extremes of the elements of a vector up to each."""
        state, behind = (x, along), 1
        while behind < self._lanes:
            state = self.of(self._moved(state, [i - behind if i >= behind else i for i in range(self._lanes)]), state)
            behind *= 2
        return state

    def last(self, state: Pair) -> Pair:
        """The extreme of all elements so far in all lanes."""
        return self._moved(state, [self._lanes - 1] * self._lanes)

    def _moved(self, state: Pair, order: Sequence[int]) -> Pair:
        picked = ", ".join(f"i32 {i}" for i in order)
        value, where = (
            self._code.put(f"shufflevector {t} {v}, {t} poison, <{self._lanes} x i32> <{picked}>")
            for t, v in zip(self.types, state, strict=True)
        )
        return value, where
