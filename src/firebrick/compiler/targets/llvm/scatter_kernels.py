"""Scatter kernels: updates are assigned to, or added to, indexed elements of an array.

The array has been copied to the result's memory, and is viewed as [outer, size, inner], where size is that of the indexed axis.
Each work unit owns one outer position, a range of the indexed axis, and a range of inner elements. It applies all updates of
these elements, in order. So updates of equal indices are applied in order, the last assigned value is kept, and no two threads
write the same element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firebrick.compiler.spec.scatter import FOLDS, Scatter
from firebrick.compiler.targets.llvm.copy_kernels import copy_kernel, fill_kernel, moving_us
from firebrick.compiler.targets.llvm.emit import Code, Emitter, literal
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, Lowered, Part
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView, Strip, item_bytes, read, stored_type, tail_mask, write
from firebrick.compiler.targets.llvm.native import NAME, Loop, NativeKernel, buffer_pointers, finish, module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.scalar.expr import BITS, bounded, cast, load, whole_number
from firebrick.scalar.storage import computed

UNITS = 16
"""Approximate number of work units of a large scatter."""
LARGE = 1 << 14
"""Minimum number of updates of a scatter with several work units."""
RANGES = 4
"""Maximum number of ranges of the indexed axis, since each work unit reads all indices."""
STRETCH = 32
"""Minimum number of inner elements of a work unit."""
UPDATES_PER_US = 500.0
"""Updates of single elements by one thread in a microsecond."""


def lowered(spec: Scatter, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``."""
    (out,) = outputs
    own = spec.start is None
    given = len(spec.sources)
    wide = spec.total != spec.dtype
    to = given + 1 if wide else given  # accumulated in a wider dtype in a temporary buffer, and rounded once at the end
    size, itemsize = (out.size,), item_bytes(spec.total)
    if not own:
        start = np.asarray(spec.start).astype(spec.total if wide else out.dtype.np).reshape(1)
        first = fill_kernel(size, int(start.view(f"u{itemsize}")[0]), (1,), itemsize, target)
    elif wide:
        first = _converted(size, spec.dtype, spec.total, target)
    else:
        first = copy_kernel(size, (1,), (1,), itemsize, target, same=True)
    put = named(scatter_kernel(NAME, spec, target), "scatter")
    at = inputs[spec.sources[int(own)]]
    updates = spec.outer * spec.count * spec.inner * out.dtype.itemsize
    work = (at.nbytes + 2 * updates) / BYTES_PER_US + at.size / UPDATES_PER_US
    parts = [
        Part(first, (0, to) if own else (to,), moving_us(size, itemsize)),
        Part(put, (*range(int(own), given), to), work, (spec.fault,)),
    ]
    if wide:
        parts.append(Part(_converted(size, spec.total, out.dtype.name, target), (to, given), moving_us(size, itemsize)))
    over = frozenset({0}) if own and not wide else frozenset[int]()
    temporary = (size[0] * itemsize,) if wide else ()
    text = module_text({p.kernel.name: p.kernel for p in parts}.values())
    return Lowered(tuple(parts), temporary, text, (over,)).of(spec.sources, len(inputs))


def _converted(size: tuple[int], source: str, to: str, target: Target) -> NativeKernel:
    """The kernel that casts all elements to another dtype."""
    e = cast(load(0, computed(source)), computed(to))
    return named(map_kernel(NAME, size, [BufferView(source, (1,))], [(e, BufferView(to, (1,)))], target), "map")


def scatter_kernel(name: str, what: Scatter, target: Target) -> NativeKernel:
    """Generate the kernel of the updates. Its buffers are the indices, the updates unless they are a constant, and the result.
    Its faults are those of check 0."""
    return _ScatterGenerator(name, what, target).kernel()


def vectors(code: Code, start: str, stop: str, lanes: int, body: Callable[[str, str], None]) -> None:
    """Loop over the vectors of [start, stop), then the masked remainder: ``body(at, mask)``."""
    if lanes == 1:
        loop = Loop(code, start, stop, 1)
        body(loop.index, "")
        loop.close()
        return
    size = code.put(f"sub i64 {stop}, {start}")
    whole = code.put(f"sub i64 {stop}, {code.put(f'urem i64 {size}, {lanes}')}")
    loop = Loop(code, start, whole, lanes)
    body(loop.index, "")
    loop.close()
    left = code.put(f"sub i64 {stop}, {whole}")
    tail, after = code.fresh("tail"), code.fresh("after")
    code.do(f"br i1 {code.put(f'icmp sgt i64 {left}, 0')}, label %{tail}, label %{after}")
    code.label(tail)
    body(whole, tail_mask(code, left, lanes))
    code.do(f"br label %{after}")
    code.label(after)


def split(what: Scatter) -> tuple[int, int]:
    """The number of ranges of the indexed axis, and the inner elements of a work unit, by the shape alone."""
    work = what.outer * what.inner * what.count
    wanted = -(-UNITS // max(1, what.outer)) if work >= LARGE else 1
    stretch = max(STRETCH, -(-what.inner // wanted))
    stretch = min(what.inner, -(-stretch // STRETCH) * STRETCH)
    across = -(-what.inner // max(1, stretch))
    # only for slices: for single elements, reading all indices in each work unit costs as much as the updates
    ranges = min(RANGES, -(-wanted // max(1, across)), what.size) if what.slices else 1
    return ranges, stretch


class _ScatterGenerator:
    def __init__(self, name: str, what: Scatter, target: Target) -> None:
        self.name, self.what, self.code = name, what, Code(target)
        self.ranges, self.stretch = split(what)
        self.length = -(-what.size // self.ranges)  # indices of a range
        widest = max(BITS[computed(what.dtype)], BITS[computed(what.total)], 8)
        self.lanes = min(64, target.lanes(widest))
        while self.lanes > 1 and self.lanes > self.stretch:
            self.lanes //= 2
        self.buffers = 2 + (what.update is None)
        pointers = buffer_pointers(self.code, self.buffers)
        self.indices, self.updates, self.out = pointers[0], pointers[1], pointers[-1]

    def kernel(self) -> NativeKernel:
        what, code = self.what, self.code
        across = -(-what.inner // max(1, self.stretch))
        grid = what.outer * self.ranges * across if what.inner else 0
        unit = Loop(code, "%begin", "%end", 1)
        rest, part, strip = unit.index, "0", "0"
        if across > 1:
            strip, rest = code.put(f"urem i64 {rest}, {across}"), code.put(f"udiv i64 {rest}, {across}")
        if self.ranges > 1:
            part, rest = code.put(f"urem i64 {rest}, {self.ranges}"), code.put(f"udiv i64 {rest}, {self.ranges}")
        self.place = rest if what.outer > 1 else "0"
        self.low, self.high = self._range(part, self.length, what.size)
        self.first, self.last = self._range(strip, self.stretch, what.inner)
        self._put()
        unit.close()
        return finish(self.name, code, self.buffers, grid)

    def _range(self, number: str, length: int, size: int) -> tuple[str, str]:
        if length >= size:
            return "0", str(size)
        low = self.code.put(f"mul i64 {number}, {length}")
        return low, self.code.call("i64", "llvm.smin.i64", ("i64", self._sum(low, str(length))), ("i64", str(size)))

    def _sum(self, a: str, b: str) -> str:
        return b if a == "0" else a if b == "0" else self.code.put(f"add i64 {a}, {b}")

    def _times(self, a: str, by: int) -> str:
        return a if by == 1 or a == "0" else self.code.put(f"mul i64 {a}, {by}")

    def _strip(self, pointer: str, dtype: str, at: str) -> Strip:
        """The strip of a buffer that starts at element ``at``."""
        return Strip(dtype, self.code.put(f"getelementptr {stored_type(dtype, self.code)}, ptr {pointer}, i64 {at}"), 1)

    def _widened(self, value: str, lanes: int) -> str:
        """An update, cast to the dtype of the accumulation."""
        e = cast(load(0, computed(self.what.dtype)), computed(self.what.total))
        return Emitter(self.code, lanes, lambda _: value).value(e)

    def _put(self) -> None:
        what, code = self.what, self.code
        loop = Loop(code, "0", str(what.count), 1)
        if what.slices:
            row = self._row(loop.index)
            source = self._sum(self._times(self.place, what.count), loop.index)
            self._owned(row, lambda: self._slice(row, self._times(source, what.inner)))
        else:
            source = self._sum(self._times(self.place, what.count), loop.index)
            start = self._times(source, what.inner)
            if what.inner == 1:
                self._one(start, "0")
            else:
                each = Loop(code, self.first, self.last, 1)
                self._one(self._sum(start, each.index), each.index)
                each.close()
        loop.close()

    def _row(self, at: str) -> str:
        """Index number ``at``, checked and counted from the front."""
        what, code = self.what, self.code
        value = read(code, Strip(what.index, self.indices, 1), at, 1)
        e = bounded(whole_number(load(0, computed(what.index))), what.size, 0)
        return Emitter(code, 1, lambda _: value).value(e)

    def _owned(self, row: str, body: Callable[[], None]) -> None:
        """Write ``body`` under the condition that a row is in the work unit's range."""
        code = self.code
        if self.ranges == 1:
            body()
            return
        # one unsigned comparison tests both bounds
        off = code.put(f"sub i64 {row}, {self.low}")
        mine = code.put(f"icmp ult i64 {off}, {code.put(f'sub i64 {self.high}, {self.low}')}")
        yes, after = code.fresh("mine"), code.fresh("after")
        code.do(f"br i1 {mine}, label %{yes}, label %{after}")
        code.label(yes)
        body()
        code.do(f"br label %{after}")
        code.label(after)

    def _target(self, row: str) -> str:
        """The offset of a row of the result."""
        return self._times(self._sum(self._times(self.place, self.what.size), row), self.what.inner)

    def _slice(self, row: str, source: str) -> None:
        what = self.what
        to = self._strip(self.out, what.total, self._target(row))
        update = None if what.update is not None else self._strip(self.updates, what.dtype, source)
        vectors(self.code, self.first, self.last, self.lanes, lambda at, mask: self._fold(to, update, at, self.lanes, mask))

    def _one(self, source: str, along: str) -> None:
        """Update number ``source``, of inner element ``along``."""
        what = self.what
        row = self._row(source)

        def body() -> None:
            to = self._strip(self.out, what.total, self._sum(self._target(row), along))
            update = None if what.update is not None else self._strip(self.updates, what.dtype, source)
            self._fold(to, update, "0", 1, "")

        self._owned(row, body)

    def _fold(self, to: Strip, update: Strip | None, at: str, lanes: int, mask: str) -> None:
        what, code = self.what, self.code
        dtype = computed(what.total)
        if update is None:
            new = literal(what.update, dtype, lanes)
        else:
            new = self._widened(read(code, update, at, lanes, mask), lanes)
        e = FOLDS[what.fold](load(0, dtype), load(1, dtype))
        old = "" if what.fold == "set" else read(code, to, at, lanes, mask)
        write(code, to, at, Emitter(code, lanes, lambda x: (old, new)[int(x.value or 0)]).value(e), lanes, mask)
