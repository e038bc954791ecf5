"""Window kernels: the maximum or the mean of each window of images, and their gradients, without a scatter.

Vectors run along the last axis of the result. Elements at the same offset in adjacent windows are ``stride`` elements apart:
contiguous vectors are loaded, and shuffles select the elements. The gradient gathers instead of scattering: each element of the
image sums the cotangents of the windows that contain it (for a maximum: of which it is the maximum). Elements whose indices are
equal modulo the stride are at the same offsets in their windows, so they form a vector. Loops over the elements of a window are
unrolled, so windows must be small. Lanes outside of an image are masked, not read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from firebrick.compiler.spec.base import Triple
from firebrick.compiler.spec.window import Window, Windows
from firebrick.compiler.targets.llvm.emit import Code, literal, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, STEPS_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.memory import Strip, read, stored_type, write
from firebrick.compiler.targets.llvm.native import NAME, UNIT, Loop, NativeKernel, buffer_pointers, finish, module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.scalar.expr import BITS, SIGNED
from firebrick.scalar.storage import computed

MOST = 64
"""Maximum number of elements of a window, and maximum product of the strides, as both are unrolled."""
INTERLEAVED = (1, 2, 4)
"""Strides for which shuffles select elements from contiguous vectors and interleave results. Others use gathers, scatters."""


def lowered(spec: Window, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernel of a specification; arguments as for ``loop_kernels.lowered``."""
    w = spec.windows
    if spec.gradient:
        kernel = gradient_kernel(NAME, w, spec.dtype, spec.index, target)
    else:
        kernel = window_kernel(NAME, w, spec.dtype, spec.fold == "max", target)
    kernel = named(kernel, "window")
    moved = sum(inputs[i].nbytes for i in spec.sources) + sum(a.nbytes for a in outputs)
    steps = 3 * w.planes * prod(w.places) * prod(w.kernel)
    buffers = tuple(range(len(spec.sources) + len(outputs)))
    part = LoweredKernel(kernel, buffers, moved / BYTES_PER_US + steps / STEPS_PER_US)
    kernels = Lowered((part,), (), module_text([kernel]), (frozenset(),) * len(outputs))
    return kernels.of(spec.sources, len(inputs))


def window_kernel(name: str, w: Windows, dtype: str, largest: bool, target: Target) -> NativeKernel:
    """The maximum of each window and its index in the image (int64), or the mean. Buffers are the images, then the results.

    Of equal values the first is chosen; the first NaN is chosen before any number. Padding is -inf for a maximum, 0 for a mean.
    """
    code = Code(target)
    return _WindowForward(code, w, dtype, largest).kernel(name)


def gradient_kernel(name: str, w: Windows, dtype: str, at: str, target: Target) -> NativeKernel:
    """The gradient. Buffers are the cotangents, the maxima's indices if their dtype ``at`` is not empty, the image's gradient.

    With indices, each cotangent is added to the element at its index, if that is in its window. Without, it is divided among
    all elements of the window.
    """
    code = Code(target)
    return _WindowGradient(code, w, dtype, at).kernel(name)


def lanes_of(target: Target, dtype: str, size: int) -> int:
    """Lanes for rows of ``size`` elements: at least two, since ``read`` has no mask for a single element."""
    lanes = target.lanes(BITS[computed(dtype)])
    while lanes > 2 and lanes // 2 >= size:
        lanes //= 2
    return max(2, lanes)


class _WindowGenerator(ABC):
    """The code that both directions share: the grid, and the loops over planes of ``rows`` × ``size`` elements."""

    def __init__(self, code: Code, w: Windows, dtype: str, rows: Sequence[int], size: int, buffers: int) -> None:
        self.code, self.w, self.dtype = code, w, dtype
        self.outer, self.size = rows, size
        self.lanes = lanes_of(code.target, dtype, size)
        self.vector = vector_type(scalar_type(computed(dtype)), self.lanes)
        self.pointers = buffer_pointers(code, buffers)

    def kernel(self, name: str) -> NativeKernel:
        code, w = self.code, self.w
        rows = prod(self.outer)
        unit = Loop(code, "%begin", "%end", 1)
        if prod(w.image) > UNIT and rows > 1:  # work units are parts of one plane, else several planes
            each = max(1, UNIT * rows // prod(w.image))
            parts = -(-rows // each)
            grid = w.planes * parts
            first = code.put(f"mul i64 {code.put(f'urem i64 {unit.index}, {parts}')}, {each}")
            last = self._min(code.put(f"add i64 {first}, {each}"), rows)
            self._plane(code.put(f"udiv i64 {unit.index}, {parts}"), first, last)
        else:
            each = max(1, UNIT // prod(w.image))
            grid = -(-w.planes // each)
            start = code.put(f"mul i64 {unit.index}, {each}")
            loop = Loop(code, start, self._min(code.put(f"add i64 {start}, {each}"), w.planes), 1)
            self._plane(loop.index, "0", str(rows))
            loop.close()
        unit.close()
        return finish(name, code, len(self.pointers), grid if rows * self.size else 0)

    def _min(self, a: str, b: int) -> str:
        return self.code.call("i64", "llvm.smin.i64", ("i64", a), ("i64", str(b)))

    def _plane(self, plane: str, first: str, last: str) -> None:
        self.start(plane)
        loop = Loop(self.code, first, last, 1)
        y, z = loop.index, "0"
        if self.outer[0] > 1:
            z, y = (self.code.put(f"{op} i64 {loop.index}, {self.outer[1]}") for op in ("udiv", "urem"))
        self.row(z, y)
        end = self.size - self.size % self.lanes
        if end:
            vectors = Loop(self.code, "0", str(end), self.lanes)
            self.body(vectors.index)
            vectors.close()
        if self.size > end:
            self.body(str(end))
        loop.close()

    @abstractmethod
    def start(self, plane: str) -> None:
        """Write the code at the start of a plane."""

    @abstractmethod
    def row(self, z: str, y: str) -> None:
        """Write the code at the start of a row."""

    @abstractmethod
    def body(self, at: str) -> None:
        """Write the code of ``lanes`` elements from position ``at`` on: an SSA name in the loop, a number for the remainder."""

    # scalars and masks

    def times(self, a: str, factor: int, plus: int = 0) -> str:
        """a · factor + plus, i64."""
        code = self.code
        if not a.startswith("%"):
            return str(int(a) * factor + plus)
        a = a if factor == 1 else code.put(f"mul i64 {a}, {factor}")
        return a if plus == 0 else code.put(f"add i64 {a}, {plus}")

    def sum(self, a: str, b: str) -> str:
        if not a.startswith("%") and not b.startswith("%"):
            return str(int(a) + int(b))
        return self.code.put(f"add i64 {a}, {b}")

    def shifted(self, pointer: str, dtype: str, offset: str) -> str:
        if offset == "0":
            return pointer
        return self.code.put(f"getelementptr {stored_type(dtype, self.code)}, ptr {pointer}, i64 {offset}")

    def plane_of(self, k: int, dtype: str, plane: str, shape: Triple) -> str:
        """The pointer to a plane of this shape in buffer ``k``."""
        return self.shifted(self.pointers[k], dtype, self.times(plane, prod(shape)))

    def in_range(self, at: str, step: int, start: int, limit: int, lanes: int, end: int, flag: str = "") -> str:
        """The mask of lanes i with 0 ≤ at · step + start + i < limit if ``flag`` is true; empty for all lanes. ``end`` is the
        largest value of ``at``."""
        return self._mask(at, step, [start + i for i in range(lanes)], limit, end, flag)

    def each_in_range(self, at: str, step: int, start: int, limit: int, end: int, flag: str = "") -> str:
        """The mask of lanes i with 0 ≤ (at + i) · step + start < limit; other arguments as for ``in_range``."""
        return self._mask(at, step, [i * step + start for i in range(self.lanes)], limit, end, flag)

    def _mask(self, at: str, step: int, places: list[int], limit: int, end: int, flag: str) -> str:
        code, lanes = self.code, len(places)
        if not at.startswith("%"):
            on = [0 <= int(at) * step + p < limit for p in places]
            if not flag:
                return "" if all(on) else "<" + ", ".join(f"i1 {'true' if b else 'false'}" for b in on) + ">"
        elif places[0] >= 0 and end * step + places[-1] < limit and not flag:
            return ""
        vector = f"<{lanes} x i32>"
        bound = f"splat (i32 {limit})"
        if flag:  # with a limit of 0 no lane is in range: cheaper than combining the mask with the condition
            bound = splat(code, "i32", code.put(f"select i1 {flag}, i32 {limit}, i32 0"), lanes)
        base = self.times(at, step)
        base_lanes = splat(code, "i32", code.put(f"trunc i64 {base} to i32") if base.startswith("%") else base, lanes)
        place = code.put(f"add {vector} {base_lanes}, <{', '.join(f'i32 {p}' for p in places)}>")
        return code.put(f"icmp ult {vector} {place}, {bound}")

    def all_of(self, flags: Sequence[str]) -> str:
        """The conjunction of scalar conditions; empty ones are true."""
        flags = [f for f in flags if f]
        while len(flags) > 1:
            flags = [self.code.put(f"and i1 {flags[0]}, {flags[1]}"), *flags[2:]]
        return flags[0] if flags else ""

    @property
    def last(self) -> int:
        """Position of the last whole vector."""
        return max(0, self.size - self.size % self.lanes - self.lanes)

    def numbers(self, start: str, step: int, element: str) -> str:
        """start + step · lane."""
        base_lanes = splat(self.code, element, start, self.lanes)
        steps = ", ".join(f"{element} {step * i}" for i in range(self.lanes))
        return self.code.put(f"add <{self.lanes} x {element}> {base_lanes}, <{steps}>")


class _WindowForward(_WindowGenerator):
    def __init__(self, code: Code, w: Windows, dtype: str, largest: bool) -> None:
        super().__init__(code, w, dtype, w.places[:2], w.places[2], 3 if largest else 2)
        self.largest = largest
        self.whole = all(w.inside(axis, w.offset(at, axis)) for at in w.elements for axis in range(3))

    def start(self, plane: str) -> None:
        w = self.w
        self.source = self.plane_of(0, self.dtype, plane, w.image)
        self.results = [self.plane_of(1, self.dtype, plane, w.places)]
        if self.largest:
            self.results.append(self.plane_of(2, "int64", plane, w.places))

    def row(self, z: str, y: str) -> None:
        code, w = self.code, self.w
        number = self.sum(self.times(z, w.places[1]), y)
        self.begin = self.times(number, w.places[2])
        self.corner = self.sum(
            self.times(z, w.stride[0] * w.image[1] * w.image[2]),
            self.times(y, w.stride[1] * w.image[2], -sum(b * prod(w.image[a + 1 :]) for a, b in enumerate(w.before))),
        )
        self.rows: dict[tuple[int, int], tuple[str, str]] = {}
        window_starts = [self.times(z, w.stride[0]), self.times(y, w.stride[1])]
        self.first = "0"  # offset from a window's corner to its first row inside of the image, if the window has one
        for axis in range(2) if self.largest else ():
            for k in range(w.kernel[axis]):
                offset = w.offset((k, k, k), axis)
                if offset < 0:
                    off = code.put(f"icmp slt i64 {window_starts[axis]}, {-offset}")
                    size = w.dilation[axis] * prod(w.image[axis + 1 :])
                    self.first = self.sum(self.first, code.put(f"select i1 {off}, i64 {size}, i64 0"))
        for at in w.elements:
            if at[:2] in self.rows:
                continue
            flags, places = [], []
            for axis in range(2):
                offset = w.offset(at, axis)
                place = self.times(window_starts[axis], 1, offset)
                places.append(place)
                always_inside = w.inside(axis, offset)
                flags.append("" if always_inside else code.put(f"icmp ult i64 {place}, {w.image[axis]}"))
            row = self.sum(self.times(places[0], w.image[1]), places[1])
            self.rows[at[:2]] = self.shifted(self.source, self.dtype, self.times(row, w.image[2])), self.all_of(flags)

    def body(self, at: str) -> None:
        w, code, lanes = self.w, self.code, self.lanes
        self.loaded: dict[tuple[int, int, int], str] = {}
        mask = self.in_range(at, 1, 0, self.size, lanes, self.last)
        values = ((e, self._element(e, at)) for e in w.elements)
        place = ""
        if self.largest:
            found, place = self._largest(values, at)
        else:
            found = ""
            for _, value in values:
                found = code.put(f"fadd {self.vector} {found}, {value}") if found else value
            found = code.put(f"fdiv {self.vector} {found}, {literal(float(prod(w.kernel)), computed(self.dtype), lanes)}")
        where = self.sum(self.begin, at)
        write(code, Strip(self.dtype, self.results[0], 1), where, found, lanes, mask)
        if self.largest:
            write(code, Strip("int64", self.results[1], 1), where, place, lanes, mask)

    def _element(self, e: Triple, at: str) -> str:
        """Element ``e`` of the windows from ``at`` on; outside of the image 0, or -inf for a maximum."""
        w, code, lanes = self.w, self.code, self.lanes
        pointer, flag = self.rows[e[:2]]
        offset, step, width = w.offset(e, 2), w.stride[2], w.image[2]
        if step not in INTERLEAVED:
            mask = self.each_in_range(at, step, offset, width, self.last, flag)
            strip = Strip(self.dtype, self.shifted(pointer, self.dtype, str(offset)), step)
            return self._padded(read(code, strip, at, lanes, mask), lanes, mask)
        block, phase = divmod(offset, step)
        key = (e[0] * w.kernel[1] + e[1], block, -1)
        if key not in self.loaded:
            wide = step * lanes
            mask = self.in_range(at, step, step * block, width, wide, self.last, flag)
            value = read(code, Strip(self.dtype, pointer, 1), self.times(at, step, step * block), wide, mask)
            self.loaded[key] = self._padded(value, wide, mask)
        if step == 1:
            return self.loaded[key]
        key = (*key[:2], phase)
        if key not in self.loaded:
            self.loaded[key] = self._phase(self.loaded[(*key[:2], -1)], step, phase)
        return self.loaded[key]

    def _phase(self, wide: str, step: int, phase: int) -> str:
        t = vector_type(scalar_type(computed(self.dtype)), step * self.lanes)
        picked = ", ".join(f"i32 {step * i + phase}" for i in range(self.lanes))
        return self.code.put(f"shufflevector {t} {wide}, {t} poison, <{self.lanes} x i32> <{picked}>")

    def _padded(self, value: str, lanes: int, mask: str) -> str:
        if self.whole or not self.largest or not mask:
            return value
        t, lowest = vector_type(scalar_type(computed(self.dtype)), lanes), literal(float("-inf"), computed(self.dtype), lanes)
        return self.code.put(f"select <{lanes} x i1> {mask}, {t} {value}, {t} {lowest}")

    def _largest(self, values: Iterator[tuple[Triple, str]], at: str) -> tuple[str, str]:
        """The maximum and its index in the image."""
        w, code, lanes, t = self.w, self.code, self.lanes, self.vector
        ints, bits = f"<{lanes} x i32>", f"<{lanes} x i1>"
        best = which = ""
        if not self.whole:  # padding must not be chosen: if all elements are -inf, the result is the first one in the image
            best, which = literal(float("-inf"), computed(self.dtype), lanes), self._first(at)
        for e, value in values:
            step = (e[0] * w.dilation[0] * w.image[1] + e[1] * w.dilation[1]) * w.image[2] + e[2] * w.dilation[2]
            if not best:
                best, which = value, f"splat (i32 {step})"
                continue
            # ugt: greater, or NaN; ord: no NaN is chosen yet. Ties keep the first element
            wins = code.put(f"fcmp ugt {t} {value}, {best}")
            wins = code.put(f"and {bits} {wins}, {code.put(f'fcmp ord {t} {best}, {best}')}")
            best = code.put(f"select {bits} {wins}, {t} {value}, {t} {best}")
            which = code.put(f"select {bits} {wins}, {ints} splat (i32 {step}), {ints} {which}")
        corner = self.sum(self.corner, self.times(at, w.stride[2]))
        base = code.put(f"trunc i64 {corner} to i32") if corner.startswith("%") else corner
        place = code.put(f"add {ints} {self.numbers(base, w.stride[2], 'i32')}, {which}")
        return best, code.put(f"sext {ints} {place} to <{lanes} x i64>")

    def _first(self, at: str) -> str:
        """The offset from a window's corner to its first element inside of the image."""
        w, code, ints = self.w, self.code, f"<{self.lanes} x i32>"
        row = code.put(f"trunc i64 {self.first} to i32") if self.first.startswith("%") else self.first
        found = splat(code, "i32", row, self.lanes)
        outside = [offset for k in range(w.kernel[2]) if (offset := w.offset((0, 0, k), 2)) < 0]
        if not outside:
            return found
        base = self.times(at, w.stride[2])
        places = self.numbers(code.put(f"trunc i64 {base} to i32") if base.startswith("%") else base, w.stride[2], "i32")
        for offset in outside:
            off = code.put(f"icmp slt {ints} {places}, splat (i32 {-offset})")
            step = code.put(f"select <{self.lanes} x i1> {off}, {ints} splat (i32 {w.dilation[2]}), {ints} zeroinitializer")
            found = code.put(f"add {ints} {found}, {step}")
        return found


class _WindowGradient(_WindowGenerator):
    def __init__(self, code: Code, w: Windows, dtype: str, at: str) -> None:
        groups = tuple(-(-n // s) for n, s in zip(w.image, w.stride, strict=True))
        super().__init__(code, w, dtype, groups[:2], groups[2], 3 if at else 2)
        self.at = at
        # axis → index modulo the stride → (element of the window, offset of the window) for each window with such elements
        self.windows_of: list[list[list[tuple[int, int]]]] = [
            [
                [(k, (a - o) // s) for k in range(w.kernel[axis]) if (a - (o := w.offset((k, k, k), axis))) % s == 0]
                for a in range(s)
            ]
            for axis, s in enumerate(w.stride)
        ]

    def start(self, plane: str) -> None:
        w = self.w
        self.sources = [self.plane_of(0, self.dtype, plane, w.places)]
        if self.at:
            self.sources.append(self.plane_of(1, self.at, plane, w.places))
        self.result = self.plane_of(len(self.pointers) - 1, self.dtype, plane, w.image)

    def row(self, z: str, y: str) -> None:
        code, w = self.code, self.w
        self.z, self.y = z, y
        # offset of a window in planes and rows → offset of its row of cotangents, and condition (i1) that the row exists
        self.rows: dict[tuple[int, int], tuple[str, str]] = {}
        for dz, dy in {(dz, dy) for a in self.windows_of[0] for _, dz in a for b in self.windows_of[1] for _, dy in b}:
            flags, places = [], []
            for axis, (base_lanes, d) in enumerate(((z, dz), (y, dy))):
                place = self.times(base_lanes, 1, d)
                places.append(place)
                always_inside = d >= 0 and self.outer[axis] - 1 + d < w.places[axis]
                flags.append("" if always_inside else code.put(f"icmp ult i64 {place}, {w.places[axis]}"))
            number = self.sum(self.times(places[0], w.places[1]), places[1])
            self.rows[dz, dy] = self.times(number, w.places[2]), self.all_of(flags)

    def body(self, at: str) -> None:
        w, code = self.w, self.code
        self.loaded: dict[tuple[int, int, int], tuple[str, str]] = {}
        for a, b in product(range(w.stride[0]), range(w.stride[1])):
            z, y = self.times(self.z, w.stride[0], a), self.times(self.y, w.stride[1], b)
            flags = [
                code.put(f"icmp ult i64 {place}, {n}") if n % s else ""
                for place, n, s in ((z, w.image[0], w.stride[0]), (y, w.image[1], w.stride[1]))
            ]
            start = self.times(self.sum(self.times(z, w.image[1]), y), w.image[2])
            values = [self._gathered(a, b, c, start, at) for c in range(w.stride[2])]
            self._put(values, self.shifted(self.result, self.dtype, start), self.all_of(flags), at)

    def _gathered(self, a: int, b: int, c: int, start: str, at: str) -> str:
        """The gradient of the image's elements with indices (a, b, c) modulo the stride."""
        w, code, t, lanes = self.w, self.code, self.vector, self.lanes
        total = ""
        here = ""
        for (_, dz), (_, dy), (_, dx) in product(self.windows_of[0][a], self.windows_of[1][b], self.windows_of[2][c]):
            g, place = self._window((dz, dy, dx), at)
            if self.at:
                if not here:
                    here = self.numbers(self.sum(start, self.times(at, w.stride[2], c)), w.stride[2], "i64")
                chosen = code.put(f"icmp eq <{lanes} x i64> {place}, {here}")
                g = code.put(f"select <{lanes} x i1> {chosen}, {t} {g}, {t} zeroinitializer")
            total = code.put(f"fadd {t} {total}, {g}") if total else g
        return total or "zeroinitializer"

    def _window(self, off: Triple, at: str) -> tuple[str, str]:
        """Cotangents (for a mean, divided by the window's size) and indices of the windows at offset ``off`` from ``at``."""
        if off not in self.loaded:
            w, code, lanes = self.w, self.code, self.lanes
            row, flag = self.rows[off[:2]]
            mask = self.in_range(at, 1, off[2], w.places[2], lanes, self.last, flag)
            where = self.times(self.sum(row, at), 1, off[2])
            g, place = read(code, Strip(self.dtype, self.sources[0], 1), where, lanes, mask), ""
            if self.at:
                place = read(code, Strip(self.at, self.sources[1], 1), where, lanes, mask)
                if BITS[self.at] < 64:
                    wider = "sext" if self.at in SIGNED else "zext"
                    place = code.put(f"{wider} <{lanes} x i{BITS[self.at]}> {place} to <{lanes} x i64>")
            else:
                g = code.put(f"fdiv {self.vector} {g}, {literal(float(prod(w.kernel)), computed(self.dtype), lanes)}")
            self.loaded[off] = g, place
        return self.loaded[off]

    def _put(self, values: list[str], pointer: str, flag: str, at: str) -> None:
        w, code, lanes = self.w, self.code, self.lanes
        step, width = w.stride[2], w.image[2]
        if step not in INTERLEAVED:
            for c, value in enumerate(values):
                mask = self.each_in_range(at, step, c, width, self.last, flag)
                write(code, Strip(self.dtype, self.shifted(pointer, self.dtype, str(c)), step), at, value, lanes, mask)
            return
        mask = self.in_range(at, step, 0, width, step * lanes, self.last, flag)
        write(code, Strip(self.dtype, pointer, 1), self.times(at, step), self._interleaved(values), step * lanes, mask)

    def _interleaved(self, values: list[str]) -> str:
        """Interleave vectors: the first half with the second half, in rounds, until one vector is left."""
        lanes = self.lanes
        while len(values) > 1:
            half = len(values) // 2
            t = vector_type(scalar_type(computed(self.dtype)), lanes)
            order = ", ".join(f"i32 {i // 2 + lanes * (i % 2)}" for i in range(2 * lanes))
            values = [
                self.code.put(f"shufflevector {t} {a}, {t} {b}, <{2 * lanes} x i32> <{order}>")
                for a, b in zip(values[:half], values[half:], strict=True)
            ]
            lanes *= 2
        return values[0]
