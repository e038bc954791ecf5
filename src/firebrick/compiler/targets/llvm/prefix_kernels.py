"""Kernels of ``Prefix``: several lines along the axis at a time, since each line is a chain of dependent operations.

Neighbouring lines are the lanes of vectors if there is an axis behind the scanned one. A work item scans several vectors of
lines, or, where no vector is full, lines of several rows, so that the processor computes while it waits for the others.
Every line is scanned in its own order: the results do not depend on the number of lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firebrick.compiler.spec.base import Size
from firebrick.compiler.spec.prefix import EXTREMES, Prefix
from firebrick.compiler.spec.running import RUNNING
from firebrick.compiler.targets.llvm import running_extremes
from firebrick.compiler.targets.llvm.emit import Code, Emitter, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.memory import Strip, read, stored_type, tail_mask, write
from firebrick.compiler.targets.llvm.native import (
    NAME,
    Loop,
    NativeKernel,
    buffer_pointers,
    finish,
    lanes_for,
    module_text,
    named,
)
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.scalar.expr import Expr, cast, local, select
from firebrick.scalar.storage import computed

CHAINS = 4
"""Vectors of lines that an item scans at the same time."""
ROWS = 4
"""Rows that an item scans at the same time where the lines of one do not fill a vector."""
STEPS_PER_US = 300.0
"""Assumed number of elements of one line that a thread scans in a microsecond."""
FLOPS_PER_US = 1.0e4
"""Assumed number of operations of all lines of an item that a thread does in a microsecond."""


@dataclass(frozen=True, slots=True)
class _ScannedLines:
    """Lines that one kernel scans.

    Attributes:
        grid: Work items: (number, distance of their first elements) of the slower axis and of the faster one.
        first: The first element of the first item.
        offsets: Where an item's vectors of lines begin, from its first element.
        lanes: Lines of a vector.
        filled: How many of the lanes are used.
        stride: Distance of the elements of neighbouring lanes.
    """

    grid: tuple[tuple[Size, Size], tuple[Size, Size]]
    first: Size
    offsets: tuple[Size, ...]
    lanes: int
    filled: int
    stride: int = 1


def lowered(spec: Prefix, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``."""
    lanes = lanes_for(target, [], [spec.total, computed(spec.dtype), *(["int64"] if spec.fold in EXTREMES else [])])
    buffers = (*spec.sources, *range(len(inputs), len(inputs) + len(outputs)))
    in_rows = running_extremes.lanes_of(spec, target)
    parts = list(_extremes_in_rows(spec, in_rows, buffers, target)) if in_rows else []
    for part in () if in_rows else _parts(spec, lanes):
        items = part.grid[0][0] * part.grid[1][0]
        share = items * len(part.offsets) * part.filled / (spec.outer * spec.inner)
        steps = items * spec.size / STEPS_PER_US
        cost = max(steps, share * spec.cost.flops / FLOPS_PER_US, share * spec.cost.nbytes / BYTES_PER_US)
        parts.append(LoweredKernel(named(_kernel(spec, part, target), "prefix"), buffers, cost))
    return Lowered(tuple(parts), (), module_text([p.kernel for p in parts]), (frozenset(),) * len(outputs))


def _extremes_in_rows(spec: Prefix, lanes: int, buffers: tuple[int, ...], target: Target) -> Iterator[LoweredKernel]:
    """The kernels of running extremes along the last axis."""
    done, chains = 0, ROWS
    while done < spec.outer:
        chains = min(chains, spec.outer - done)
        groups = (spec.outer - done) // chains
        kernel = running_extremes.kernel(spec, lanes, groups, done * spec.size, chains, target)
        cost = groups * chains * spec.size / running_extremes.ELEMENTS_PER_US
        yield LoweredKernel(named(kernel, "prefix"), buffers, cost)
        done += groups * chains


def _parts(spec: Prefix, lanes: int) -> Iterator[_ScannedLines]:
    """All lines: those of whole vectors, then the last ones of each row; of both, first those of items with many chains."""
    if spec.fold == "logsumexp" and spec.inner == 1 and spec.outer > 1:
        yield from _gathered(spec, lanes)
        return
    row, whole, rest = spec.size * spec.inner, spec.inner // lanes, spec.inner % lanes
    chains = CHAINS
    done = 0
    while done < whole:
        chains = min(chains, whole - done)
        tiles = (whole - done) // chains
        offsets = tuple(range(0, chains * lanes, lanes))
        yield _ScannedLines(((spec.outer, row), (tiles, chains * lanes)), done * lanes, offsets, lanes, lanes)
        done += tiles * chains
    while rest and lanes // 2 >= rest:
        lanes //= 2
    chains = ROWS
    done = 0
    while rest and done < spec.outer:
        chains = min(chains, spec.outer - done)
        groups = (spec.outer - done) // chains
        offsets = tuple(range(0, chains * row, row))
        yield _ScannedLines(((groups, chains * row), (1, 0)), done * row + spec.inner - rest, offsets, lanes, rest)
        done += groups * chains


def _gathered(spec: Prefix, lanes: int) -> Iterator[_ScannedLines]:
    """Rows as lanes, whose elements lie apart: a step that computes for longer than it takes to gather them."""
    done = 0
    while lanes // 2 >= spec.outer:
        lanes //= 2
    for chains, filled in ((CHAINS, lanes), (1, lanes), (1, spec.outer % lanes)):
        count = (spec.outer - done) // (chains * filled) if filled else 0
        offsets = tuple(range(0, chains * lanes * spec.size, lanes * spec.size))
        if count:
            far = chains * lanes * spec.size
            yield _ScannedLines(((count, far), (1, 0)), done * spec.size, offsets, lanes, filled, spec.size)
        done += count * chains * filled


def _kernel(spec: Prefix, part: _ScannedLines, target: Target) -> NativeKernel:
    """The kernel of one part."""
    code, lanes = Code(target), part.lanes
    step = _RunningValue(spec, code, lanes)
    count = spec.operands
    buffers = buffer_pointers(code, count + (2 if step.where else 1))
    mask = tail_mask(code, str(part.filled), lanes) if part.filled < lanes else ""
    items = Loop(code, "%begin", "%end", 1)
    (_, far), (tiles, near) = part.grid
    outer, tile = (code.put(f"{op} i64 {items.index}, {tiles}") for op in ("udiv", "urem"))
    start = code.put(f"add i64 {code.put(f'mul i64 {outer}, {far}')}, {code.put(f'mul i64 {tile}, {near}')}")
    start = code.put(f"add i64 {start}, {part.first}")

    def strips(k: str, buffer: int) -> list[Strip]:
        """The elements of all chains in a buffer at index ``k`` of the axis."""
        at = code.put(f"add i64 {start}, {code.put(f'mul i64 {k}, {spec.inner}')}")
        dtype = "int64" if buffer > count else spec.dtype
        element = stored_type(dtype, code)
        base = code.put(f"getelementptr {element}, ptr {buffers[buffer]}, i64 {at}")
        pointers = [code.put(f"getelementptr {element}, ptr {base}, i64 {offset}") for offset in part.offsets]
        return [Strip(dtype, pointer, part.stride) for pointer in pointers]

    def elements(k: str) -> list[tuple[str, ...]]:
        """The elements of each chain at index ``k``, one of each operand."""
        found = ([read(code, strip, "0", lanes, mask) for strip in strips(k, buffer)] for buffer in range(count))
        return list(zip(*found, strict=True))

    def put(k: str, states: Sequence[Sequence[str]]) -> None:
        """Store the running values of all chains as the results at index ``k``."""
        results = zip(*(step.stored(state) for state in states), strict=True)
        for buffer, values in enumerate(results, count):
            for strip, value in zip(strips(k, buffer), values, strict=True):
                write(code, strip, "0", value, lanes, mask)

    first = str(spec.size - 1) if spec.reverse else "0"
    states = [step.first(xs, first) for xs in elements(first)]
    put(first, states)
    carried = [pair for state in states for pair in zip(step.types, state, strict=True)]
    loop = Loop(code, "1", str(spec.size), 1, carried)
    width = len(step.types)
    along = code.put(f"sub i64 {first}, {loop.index}") if spec.reverse else loop.index
    states = [step.next(loop.values[c * width : (c + 1) * width], xs, along) for c, xs in enumerate(elements(along))]
    put(along, states)
    loop.close([value for state in states for value in state])
    items.close()
    return finish(NAME, code, len(buffers), part.grid[0][0] * part.grid[1][0])


@dataclass(slots=True)
class _RunningValue:
    """The code that takes an element into a running value: the total, and for extremes the index of its element."""

    spec: Prefix
    code: Code
    lanes: int

    @property
    def where(self) -> bool:
        """Whether indices are results."""
        return self.spec.fold in EXTREMES

    @property
    def types(self) -> list[str]:
        """LLVM's types of a running value."""
        spec = self.spec
        if spec.fold in RUNNING:
            dtypes = [e.dtype for e in RUNNING[spec.fold].named(spec.dtype, spec.total)]
        else:
            dtypes = [spec.total, "int64"] if self.where else [spec.total]
        return [vector_type(scalar_type(d), self.lanes) for d in dtypes]

    def _values(self, roots: Sequence[Expr], names: dict[str, str]) -> list[str]:
        return Emitter(self.code, self.lanes, lambda e: names[str(e.value)]).all(roots)

    def first(self, xs: Sequence[str], along: str) -> list[str]:
        """The running value of the first element, which is its own result: the sum of -0.0 is -0.0."""
        if self.spec.fold in RUNNING:
            return self._running((), xs)
        (x,) = xs
        wide = self._values([cast(local("x", computed(self.spec.dtype)), self.spec.total)], {"x": x})
        return [*wide, splat(self.code, "i64", along, self.lanes)] if self.where else wide

    def _running(self, state: Sequence[str], xs: Sequence[str]) -> list[str]:
        """The state of a fold of ``RUNNING`` after an element, the first one if there is no state."""
        spec, fold = self.spec, RUNNING[self.spec.fold]
        names, elements = fold.named(spec.dtype, spec.total), fold.elements(spec.dtype)
        values = {str(e.value): v for e, v in zip((*names[: len(state)], *elements), (*state, *xs), strict=True)}
        return self._values(fold.step(names, elements, spec.total) if state else fold.first(elements, spec.total), values)

    def next(self, state: Sequence[str], xs: Sequence[str], along: str) -> list[str]:
        """The running value after an element; NaN is before every number, and stays."""
        spec = self.spec
        if spec.fold in RUNNING:
            return self._running(state, xs)
        (x,) = xs
        new, total = cast(local("x", computed(spec.dtype)), spec.total), local("total", spec.total)
        names = {"x": x, "total": state[0]}
        if not self.where:
            return self._values([total + new if spec.fold == "sum" else total * new], names)
        better = running_extremes.better(spec.fold, spec.total)
        names |= {"where": state[1], "along": splat(self.code, "i64", along, self.lanes)}
        return self._values(
            [select(better, new, total), select(better, local("along", "int64"), local("where", "int64"))], names
        )

    def stored(self, state: Sequence[str]) -> list[str]:
        """The results of a running value."""
        spec = self.spec
        if spec.fold in RUNNING:
            fold = RUNNING[spec.fold]
            names = fold.named(spec.dtype, spec.total)
            result = fold.result(names, computed(spec.dtype))
            return self._values([result], {str(e.value): v for e, v in zip(names, state, strict=True)})
        values = self._values([cast(local("total", self.spec.total), computed(self.spec.dtype))], {"total": state[0]})
        return [*values, *state[1:]]
