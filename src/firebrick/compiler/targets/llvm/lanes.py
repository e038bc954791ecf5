"""``lanes_kernel``: kernel IR for processors, with work items as the lanes of vectors.

A kernel has the signature of all generated kernels (``native``). ``bufs`` holds a pointer for each array, in the order of the
parameters, then one to a block of words of 8 bytes: the scalars as in ``argument_words``, then the sizes of the grid (int64),
the last one along the item's axis. So one kernel serves all sizes. A work unit is a vector of items that are neighbours along
the last axis of the grid; the last one of a row may be shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.kernel.uniform import varying
from firebrick.compiler.kernel.verify import check_plain, verify
from firebrick.compiler.program.launch import chunk_of
from firebrick.compiler.targets.llvm.emit import Code, Limit
from firebrick.compiler.targets.llvm.group_lanes import GroupLanes
from firebrick.compiler.targets.llvm.inner_items import InnerItems
from firebrick.compiler.targets.llvm.lane_forms import LaneForm
from firebrick.compiler.targets.llvm.lane_width import cycles_of, lanes_of
from firebrick.compiler.targets.llvm.masked import Masked
from firebrick.compiler.targets.llvm.memory import Strip, read_at, tail_mask
from firebrick.compiler.targets.llvm.native import Loop, NativeKernel, buffer_pointers, finish
from firebrick.compiler.targets.llvm.scalar_kernel import WORD
from firebrick.compiler.targets.llvm.scratch import Scratch
from firebrick.compiler.targets.llvm.target import Target

CYCLES_PER_US = 3000.0
"""Of a processor, for estimates, which must not depend on the machine."""


@dataclass(frozen=True, slots=True)
class LanesKernel:
    """A kernel for work items as lanes.

    Attributes:
        kernel: The code; its grid is 0, as sizes are arguments.
        lanes: Number of items that a work unit has along the last axis of the grid.
        cycles: Estimate of the processor cycles of a work unit.
        group: Items of a group, which is a work unit then; 0 for kernels without groups.
    """

    kernel: NativeKernel
    lanes: int
    cycles: float
    group: int = 0

    def units(self, grid: Sequence[int]) -> int:
        """The number of work units.

        Args:
            grid: Sizes of the grid; the last one is that of the item's axis.
        """
        return math.prod(grid[:-1]) * (grid[-1] // self.group if self.group else -(-grid[-1] // self.lanes))

    def cost_us(self, grid: Sequence[int]) -> float:
        """An estimate of the time of a launch on one thread, in microseconds."""
        return self.units(grid) * self.cycles / CYCLES_PER_US

    def chunk(self, grid: Sequence[int]) -> int:
        """How many work units a thread takes at a time: whole rows of the grid, if more than one; 0 for direct."""
        chunk = chunk_of(self.units(grid), self.cost_us(grid))
        row = self.units(grid[-1:])
        return -(-chunk // row) * row if chunk > row else chunk


def lanes_kernel(
    function: Function, target: Target, width: int = 0, limit: Limit | None = None, words: Sequence[int] | None = None
) -> LanesKernel:  # fmt: skip
    """The kernel of a function for a processor.

    Args:
        function: Kernel.
        target: Processor.
        width: Number of lanes, a power of two; by default as many as a register has of the widest dtype that matters.
        limit: Of the rounds of each loop.
        words: The block of words of a kernel whose scalars are all int64: they are constants of the code then, and there is
            no pointer to them. The code is for these sizes alone: a row of half as many items as a register has lanes, or
            fewer, is one vector of so many lanes, without a mask.

    Raises:
        KernelCompileError: The kernel breaks a rule of kernel IR.
    """
    verify(function)
    check_plain(function)
    lanes = width or lanes_of(function, target)
    if words and not function.group and 2 * words[-1] <= lanes:
        lanes = max(words[-1], 1)
    code = Code(target)
    pointers = buffer_pointers(code, len(function.arrays) + (words is None))
    arrays = {a.name: Strip(a.dtype, p, 1) for a, p in zip(function.arrays, pointers, strict=False)}
    read = _ArgumentWords(code, pointers[-1]).read if words is None else _Literals(words).read
    values = {s.name: LaneForm(read(s.dtype)) for s in function.scalars}
    sizes = [read("int64") for _ in (*function.outer, function.item)]
    scratch = Scratch(code)
    arrays |= {a.name: scratch.array(a.dtype, a.extent) for a in function.shared}
    names = varying(function)
    masked = Masked(code, function, lanes, names, arrays, values, scratch, limit or Limit())
    if function.group:
        _groups(masked, GroupLanes(masked, names), sizes)
    else:
        _items(masked, sizes)
    kernel = finish(function.name, code, len(pointers), 0, scratch.bytes)
    cycles = cycles_of(function, lanes, target) * max(1, -(-function.group // lanes))
    return LanesKernel(kernel, lanes, cycles, function.group)


class _Literals:
    """Words that are known, in order."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words = iter(words)

    def read(self, dtype: str) -> str:
        assert dtype == "int64", "words that are known are sizes"
        return str(next(self._words))


class _ArgumentWords:
    """The block of words, read in order."""

    def __init__(self, code: Code, pointer: str) -> None:
        self._code, self._pointer, self._next = code, pointer, 0

    def read(self, dtype: str) -> str:
        word = self._code.put(f"getelementptr i8, ptr {self._pointer}, i64 {self._next * WORD}")
        self._next += 1
        return read_at(self._code, Strip(dtype, word, 1), "0", 1)


def _items(masked: Masked, sizes: Sequence[str]) -> None:
    """The loops over units: rows, the full vectors of a row, and its last one under a mask.

    One division for each row that a call touches gives the indices.
    """
    code, function, lanes = masked.code, masked.function, masked.lanes.lanes
    inner, size = InnerItems(masked, function, sizes), sizes[-1]
    full = code.put(f"sdiv i64 {size}, {lanes}")
    rest = code.put(f"srem i64 {size}, {lanes}")
    per_row = code.put(f"add i64 {full}, {code.put(f'zext i1 {_positive(code, rest)} to i64')}")
    before, row, done = code.block, code.fresh("row"), code.fresh("done")
    unit, following = f"%{code.fresh('u')}", f"%{code.fresh('u')}"
    start = code.put("icmp slt i64 %begin, %end")
    code.do(f"br i1 {start}, label %{row}, label %{done}")
    code.label(row)
    place = len(code.lines)
    number = code.put(f"sdiv i64 {unit}, {per_row}")
    column = code.put(f"sub i64 {unit}, {code.put(f'mul i64 {number}, {per_row}')}")
    left = code.put(f"add i64 {column}, {code.put(f'sub i64 %end, {unit}')}")
    stop = code.call("i64", "llvm.smin.i64", ("i64", per_row), ("i64", left))
    code.do(f"{following} = add i64 {unit}, {code.put(f'sub i64 {stop}, {column}')}")
    masked.values |= _indices(code, function.outer, sizes, number)
    last = code.call("i64", "llvm.smin.i64", ("i64", full), ("i64", stop))
    outer = masked.values

    def vector(at: str, mask: str) -> None:
        item = code.put(f"mul i64 {at}, {lanes}") if lanes > 1 else at
        masked.values = outer | {function.item: LaneForm(item, 1 if lanes > 1 else 0, near=0 if lanes > 1 else None)}
        masked.block(function.body, frozenset(), mask)

    if inner.any and size != str(lanes):  # else the row is one vector
        _parts(masked, inner, column, last, vector)
    else:
        _vectors(code, column, last, vector)
    if lanes > 1:
        tail, ended = code.fresh("tail"), code.fresh("ended")
        code.do(f"br i1 {code.put(f'icmp sgt i64 {stop}, {full}')}, label %{tail}, label %{ended}")
        code.label(tail)
        vector(full, tail_mask(code, rest, lanes))
        code.do(f"br label %{ended}")
        code.label(ended)
    end = code.block
    code.do(f"br i1 {code.put(f'icmp slt i64 {following}, %end')}, label %{row}, label %{done}")
    code.lines.insert(place, f"  {unit} = phi i64 [ %begin, %{before} ], [ {following}, %{end} ]")
    code.label(done)
    inner.end()


def _vectors(code: Code, start: str, stop: str, vector: Callable[[str, str], None]) -> None:
    """A loop over full vectors of a row."""
    loop = Loop(code, start, stop, 1)
    vector(loop.index, "")
    loop.close()


def _parts(masked: Masked, inner: InnerItems, first: str, last: str, vector: Callable[[str, str], None]) -> None:
    """The full vectors of a row: those before its inner part, the inner part, and those behind it, by the code of the first."""
    code, outer = masked.code, masked.values
    start, stop = inner.bounds(first, last)
    stream = inner.aligned(start)
    before, part = code.block, code.fresh("part")
    code.do(f"br label %{part}")
    code.label(part)
    place, at = len(code.lines), f"%{code.fresh('u')}"
    ahead = code.put(f"icmp slt i64 {at}, {stop}")
    _vectors(code, at, code.put(f"select i1 {ahead}, i64 {start}, i64 {last}"), vector)
    end = code.put(f"select i1 {ahead}, i64 {stop}, i64 {last}")

    def whole(streams: bool) -> None:
        masked.values = outer
        inner.enter(streams)
        _vectors(code, code.put(f"select i1 {ahead}, i64 {start}, i64 {last}"), end, vector)
        inner.leave()

    if stream:
        past, usual, met = code.fresh("stream"), code.fresh("usual"), code.fresh("after")
        code.do(f"br i1 {stream}, label %{past}, label %{usual}")
        for label, streams in ((past, True), (usual, False)):
            code.label(label)
            whole(streams)
            code.do(f"br label %{met}")
        code.label(met)
    else:
        whole(False)
    ended = code.block
    after = code.fresh("after")
    code.do(f"br i1 {code.put(f'icmp slt i64 {end}, {last}')}, label %{part}, label %{after}")
    code.lines.insert(place, f"  {at} = phi i64 [ {first}, %{before} ], [ {end}, %{ended} ]")
    code.label(after)


def _groups(masked: Masked, group: GroupLanes, sizes: Sequence[str]) -> None:
    """The loop over groups."""
    loop = Loop(masked.code, "%begin", "%end", 1)
    masked.values |= _indices(masked.code, masked.function.outer, sizes, loop.index)
    group.unit()
    loop.close()


def _positive(code: Code, value: str) -> str:
    return code.put(f"icmp sgt i64 {value}, 0")


def _indices(code: Code, outer: Sequence[str], sizes: Sequence[str], number: str) -> dict[str, LaneForm]:
    """The indices along the outer axes of a row, by its number."""
    found: dict[str, LaneForm] = {}
    for k in range(len(outer) - 1, 0, -1):
        rows = code.put(f"sdiv i64 {number}, {sizes[k]}")
        found[outer[k]] = LaneForm(code.put(f"sub i64 {number}, {code.put(f'mul i64 {rows}, {sizes[k]}')}"))
        number = rows
    if outer:
        found[outer[0]] = LaneForm(number)
    return found
