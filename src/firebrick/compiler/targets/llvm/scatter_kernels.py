"""Scatter kernels: updates are assigned to, or added to, indexed elements of an array.

The array is first copied to the result's memory. It is viewed as [outer, size, inner], where size is that of the indexed axis.
Each work unit owns one outer position, a range of the indexed axis, and a range of inner elements, and applies all updates of
these elements in order. So no two threads write the same element, and of several assignments to one element, the last is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firebrick.compiler.spec.base import as_reals
from firebrick.compiler.spec.scatter import FOLDS, Scatter
from firebrick.compiler.targets.llvm.copy_kernels import copy_kernel, fill_kernel, moving_us
from firebrick.compiler.targets.llvm.emit import Code, Emitter, literal
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView, Strip, item_bytes, read, stored_type, tail_mask, write
from firebrick.compiler.targets.llvm.native import NAME, Loop, NativeKernel, buffer_pointers, finish, module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.scalar.expr import BITS, bounded, cast, load, select, whole_number
from firebrick.scalar.storage import computed

UNITS = 16
"""Approximate number of work units of a large scatter."""
LARGE = 1 << 14
"""Minimum number of updates of a scatter with several work units."""
MAX_RANGES = 4
"""Maximum number of ranges of the indexed axis, since each work unit reads all indices."""
MIN_SEGMENT = 32
"""Minimum number of inner elements of a work unit."""
UPDATES_PER_US = 500.0
"""Updates of single elements by one thread in a microsecond."""


def lowered(spec: Scatter, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``."""
    out = as_reals(outputs[0])
    copied = spec.start is None
    given = len(spec.sources)
    widened = spec.total != spec.dtype
    result = given + 1 if widened else given  # accumulated in a wider dtype in a temporary buffer, and rounded once at the end
    size, itemsize = (out.size,), item_bytes(spec.total)
    if not copied:
        start = np.asarray(spec.start).astype(spec.total if widened else out.dtype.np).reshape(1)
        first = fill_kernel(size, int(start.view(f"u{itemsize}")[0]), (1,), itemsize, target)
    elif widened:
        first = _cast_kernel(size, spec.dtype, spec.total, target)
    else:
        first = copy_kernel(size, (1,), (1,), itemsize, target, same=True)
    put = named(scatter_kernel(NAME, spec, target), "scatter")
    at = inputs[spec.sources[int(copied)]]
    updates = spec.outer * spec.count * spec.inner * out.dtype.itemsize
    work = (at.nbytes + 2 * updates) / BYTES_PER_US + at.size / UPDATES_PER_US
    parts = [
        LoweredKernel(first, (0, result) if copied else (result,), moving_us(size, itemsize)),
        LoweredKernel(put, (*range(int(copied), given), result), work, spec.sites),
    ]
    if widened:
        parts.append(
            LoweredKernel(_cast_kernel(size, spec.total, out.dtype.name, target), (result, given), moving_us(size, itemsize))
        )
    over = frozenset({0}) if copied and not widened else frozenset[int]()
    temporary = (size[0] * itemsize,) if widened else ()
    text = module_text({p.kernel.name: p.kernel for p in parts}.values())
    return Lowered(tuple(parts), temporary, text, (over,)).of(spec.sources, len(inputs))


def _cast_kernel(size: tuple[int], source: str, result: str, target: Target) -> NativeKernel:
    """The kernel that casts each element to another dtype."""
    e = cast(load(0, computed(source)), computed(result))
    return named(map_kernel(NAME, size, [BufferView(source, (1,))], [(e, BufferView(result, (1,)))], target), "map")


def scatter_kernel(name: str, spec: Scatter, target: Target) -> NativeKernel:
    """Generate the kernel of the updates. Its buffers are the indices, the updates unless they are a constant, and the result.
    Its faults are those of check 0."""
    return _ScatterGenerator(name, spec, target).kernel()


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


def split(spec: Scatter) -> tuple[int, int]:
    """The number of ranges of the indexed axis, and of inner elements of a work unit; they depend on the shape alone."""
    work = spec.outer * spec.inner * spec.count
    wanted = -(-UNITS // max(1, spec.outer)) if work >= LARGE else 1
    segment = max(MIN_SEGMENT, -(-spec.inner // wanted))
    segment = min(spec.inner, -(-segment // MIN_SEGMENT) * MIN_SEGMENT)
    across = -(-spec.inner // max(1, segment))
    # ranges are for slices only: each work unit reads all indices, which costs as much as updating single elements
    ranges = min(MAX_RANGES, -(-wanted // max(1, across)), spec.size) if spec.slices else 1
    return ranges, segment


class _ScatterGenerator:
    def __init__(self, name: str, spec: Scatter, target: Target) -> None:
        self.name, self.spec, self.code = name, spec, Code(target)
        self.ranges, self.segment = split(spec)
        self.length = -(-spec.size // self.ranges)  # indices of a range
        widest = max(BITS[computed(spec.dtype)], BITS[computed(spec.total)], 8)
        self.lanes = min(64, target.lanes(widest))
        while self.lanes > 1 and self.lanes > self.segment:
            self.lanes //= 2
        self.buffers = 2 + (spec.update is None)
        pointers = buffer_pointers(self.code, self.buffers)
        self.indices, self.updates, self.out = pointers[0], pointers[1], pointers[-1]

    def kernel(self) -> NativeKernel:
        spec, code = self.spec, self.code
        across = -(-spec.inner // max(1, self.segment))
        grid = spec.outer * self.ranges * across if spec.inner else 0
        unit = Loop(code, "%begin", "%end", 1)
        rest, part, strip = unit.index, "0", "0"
        if across > 1:
            strip, rest = code.put(f"urem i64 {rest}, {across}"), code.put(f"udiv i64 {rest}, {across}")
        if self.ranges > 1:
            part, rest = code.put(f"urem i64 {rest}, {self.ranges}"), code.put(f"udiv i64 {rest}, {self.ranges}")
        self.outer_index = rest if spec.outer > 1 else "0"
        self.low, self.high = self._range(part, self.length, spec.size)
        self.first, self.last = self._range(strip, self.segment, spec.inner)
        self._apply_updates()
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
        e = cast(load(0, computed(self.spec.dtype)), computed(self.spec.total))
        return Emitter(self.code, lanes, lambda _: value).value(e)

    def _apply_updates(self) -> None:
        spec, code = self.spec, self.code
        loop = Loop(code, "0", str(spec.count), 1)
        if spec.slices:
            row = self._row(loop.index)
            source = self._sum(self._times(self.outer_index, spec.count), loop.index)
            self._if_in_range(row, lambda: self._update_slice(row, self._times(source, spec.inner)))
        else:
            source = self._sum(self._times(self.outer_index, spec.count), loop.index)
            start = self._times(source, spec.inner)
            if spec.inner == 1:
                self._single_update(start, "0")
            else:
                each = Loop(code, self.first, self.last, 1)
                self._single_update(self._sum(start, each.index), each.index)
                each.close()
        loop.close()

    def _row(self, at: str) -> str:
        """Index number ``at``, checked, with negative indices counted from the end."""
        spec, code = self.spec, self.code
        value = read(code, Strip(spec.index, self.indices, 1), at, 1)
        index = whole_number(load(0, computed(spec.index)))
        e = bounded(index, spec.size, 0) if spec.sites else select(index < 0, index + spec.size, index)
        return Emitter(code, 1, lambda _: value).value(e)

    def _if_in_range(self, row: str, body: Callable[[], None]) -> None:
        """Write ``body``, executed if a row is in the work unit's range."""
        code = self.code
        if self.ranges == 1:
            body()
            return
        # one unsigned comparison tests both bounds
        off = code.put(f"sub i64 {row}, {self.low}")
        in_range = code.put(f"icmp ult i64 {off}, {code.put(f'sub i64 {self.high}, {self.low}')}")
        yes, after = code.fresh("mine"), code.fresh("after")
        code.do(f"br i1 {in_range}, label %{yes}, label %{after}")
        code.label(yes)
        body()
        code.do(f"br label %{after}")
        code.label(after)

    def _target(self, row: str) -> str:
        """The offset of a row of the result."""
        return self._times(self._sum(self._times(self.outer_index, self.spec.size), row), self.spec.inner)

    def _update_slice(self, row: str, source: str) -> None:
        spec = self.spec
        result = self._strip(self.out, spec.total, self._target(row))
        update = None if spec.update is not None else self._strip(self.updates, spec.dtype, source)
        vectors(
            self.code, self.first, self.last, self.lanes, lambda at, mask: self._combine(result, update, at, self.lanes, mask)
        )

    def _single_update(self, source: str, along: str) -> None:
        """Update number ``source``, of inner element ``along``."""
        spec = self.spec
        row = self._row(source)

        def body() -> None:
            result = self._strip(self.out, spec.total, self._sum(self._target(row), along))
            update = None if spec.update is not None else self._strip(self.updates, spec.dtype, source)
            self._combine(result, update, "0", 1, "")

        self._if_in_range(row, body)

    def _combine(self, result: Strip, update: Strip | None, at: str, lanes: int, mask: str) -> None:
        spec, code = self.spec, self.code
        dtype = computed(spec.total)
        if update is None:
            new = literal(spec.update, dtype, lanes)
        else:
            new = self._widened(read(code, update, at, lanes, mask), lanes)
        e = FOLDS[spec.fold](load(0, dtype), load(1, dtype))
        old = "" if spec.fold == "set" else read(code, result, at, lanes, mask)
        write(code, result, at, Emitter(code, lanes, lambda x: (old, new)[int(x.value or 0)]).value(e), lanes, mask)
