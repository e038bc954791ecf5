"""``Window``: an item for each window, or, for the gradient, for each element of the images."""

from __future__ import annotations

from functools import reduce as fold

from firebrick.compiler.naive.building import INPUT, RESULT, Buffer, Builder, Naive
from firebrick.compiler.spec.window import Window
from firebrick.core.views import row_major
from firebrick.scalar.expr import FLOATS, Expr, binary, cast, const, eq, ne
from firebrick.scalar.storage import computed


def window(spec: Window) -> Naive:
    """The naive form."""
    return _gradient(spec) if spec.gradient else _forward(spec)


class _Geometry:
    """The numbers of the windows, as arguments of a kernel."""

    def __init__(self, b: Builder, spec: Window) -> None:
        w = spec.windows
        self.images, self.windows = (b.place(row_major((w.planes, *sizes))) for sizes in (w.image, w.places))
        self.image, self.places, self.kernel, self.stride, self.before, self.dilation = (
            b.numbers(sizes) for sizes in (w.image, w.places, w.kernel, w.stride, w.before, w.dilation)
        )

    def index(self, at: list[Expr]) -> Expr:
        """The index in an image of a position."""
        return (at[0] * self.image[1] + at[1]) * self.image[2] + at[2]

    def count(self, dtype: str) -> Expr:
        """Elements of a window."""
        z, y, x = self.kernel
        return cast(z * y * x, dtype)


def _all(conditions: list[Expr]) -> Expr:
    return fold(lambda a, b: a & b, conditions)


def _forward(spec: Window) -> Naive:
    b = Builder("window", (spec.windows.planes, *spec.windows.places))
    g, dtype = _Geometry(b, spec), computed(spec.dtype)
    plane, *place = b.positions
    starts = [b.let(p * s - before) for p, s, before in zip(place, g.stride, g.before, strict=True)]
    largest = spec.fold == "max"
    total = b.variable(const(0, dtype), spec.fold)
    found = b.variable(const(-1, "int64"), "found") if largest else None

    def look(taps: list[Expr]) -> None:
        at = [b.let(start + t * d) for start, t, d in zip(starts, taps, g.dilation, strict=True)]

        def take() -> None:
            x = b.let(b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, b.address(g.images, [plane, *at])))
            if found is None:
                b.assign(total, total.local + x)
                return
            better = (x > total.local) | (found.local < 0)
            if dtype in FLOATS:  # the first NaN is before all
                better = better | (ne(x, x) & eq(total.local, total.local))

            def keep() -> None:
                b.assign(found, g.index(at))
                b.assign(total, x)

            b.when(better, keep)

        b.when(_all([(a >= 0) & (a < size) for a, size in zip(at, g.image, strict=True)]), take)

    b.loops(g.kernel, look)
    to = b.address(g.windows, b.positions)
    b.store(Buffer(RESULT, 0), spec.dtype, to, total.local if largest else total.local / g.count(dtype))
    if found is not None:
        b.store(Buffer(RESULT, 1), "int64", to, found.local)
    return Naive((b.step(),))


def _gradient(spec: Window) -> Naive:
    b = Builder("window_gradient", (spec.windows.planes, *spec.windows.image))
    g, dtype = _Geometry(b, spec), computed(spec.dtype)
    plane, *at = b.positions
    own = b.let(g.index(at), "own")
    total = b.variable(const(0, dtype), "total")

    def look(taps: list[Expr]) -> None:
        # stride · place = position + padding - tap · dilation
        steps = [b.let(a + p - t * d) for a, p, t, d in zip(at, g.before, taps, g.dilation, strict=True)]
        places = [b.let(binary("div", n, s)) for n, s in zip(steps, g.stride, strict=True)]
        inside = [
            (n >= 0) & eq(p * s, n) & (p < size)
            for n, p, s, size in zip(steps, places, g.stride, g.places, strict=True)
        ]  # fmt: skip

        def take() -> None:
            there = b.address(g.windows, [plane, *places])
            x = b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, there)
            if spec.fold == "mean":
                b.assign(total, total.local + x)
                return
            index = cast(b.read(Buffer(INPUT, spec.sources[1]), spec.index, there), "int64")
            b.when(eq(index, own), lambda: b.assign(total, total.local + x))

        b.when(_all(inside), take)

    b.loops(g.kernel, look)
    share = total.local if spec.fold == "max" else total.local / g.count(dtype)
    b.store(Buffer(RESULT, 0), spec.dtype, b.address(g.images, b.positions), share)
    return Naive((b.step(),))
