"""Random kernels: well-formed, without races, with loops that end, and with one value for every element that is not NaN.

Left out is what ``scalar.expr`` leaves open: the sign of a zero that ``min`` and ``max`` choose, the bits of a NaN, and float64
``fma``, which the interpreter does not round exactly near the ends of the range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from written_kernels import DTYPES, ITEM, Launch, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Check,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    Statement,
    Store,
    While,
)
from firebrick.scalar import expr
from firebrick.scalar.expr import BITS, FLOATS, INTEGERS, Expr, binary, bitcast, cast, const, eq, local, select, unary
from firebrick.scalar.storage import STORAGE, computed

Array = np.ndarray[Any, Any]
Names = dict[str, tuple[str, bool]]
"""The visible names, with their dtypes and whether they may be assigned to."""
Maker = Callable[[Names, int], list[Statement]]
"""Draws a statement from the visible names and the number of blocks that it may still contain in each other."""
SIZE, OWN = 16, 4
"""Elements of an array that is read, and of an array that is written for each item: powers of two."""


def draw(seed: int) -> Launch:
    """The random kernel of a seed, with a launch; what it makes is not known."""
    return Drawn(seed).launch()


class Drawn:
    """A kernel while it is drawn.

    Attributes:
        number: Of the item in the grid.
    """

    number = ITEM

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.count = 0
        chosen = [str(d) for d in self.rng.choice(STORAGE, 4, replace=False)]
        self.inputs = [ArrayParameter(f"in{k}", d, "read", SIZE) for k, d in enumerate(chosen)]
        self.outputs = [ArrayParameter(f"out{k}", str(self.rng.choice(STORAGE)), "read_write") for k in range(3)]
        self.scalars = [ScalarParameter(f"s{k}", str(self.rng.choice(expr.DTYPES))) for k in range(2)]
        self.dtypes = sorted({computed(a.dtype) for a in (*self.inputs, *self.outputs)} | {"int64", "float32", "bool"})

    def launch(self) -> Launch:
        visible: Names = {s.name: (s.dtype, False) for s in self.scalars} | {"i": ("int64", False)}
        body = self.block(visible, 3, 6)
        body += (*self.store(visible), *self.store(visible))
        f = Function(f"drawn{self.seed}", (*self.inputs, *self.outputs), tuple(self.scalars), "i", body)
        grid = int(self.rng.integers(1, 40))
        arrays = {a.name: self.numbers(a.dtype, SIZE) for a in self.inputs}
        arrays |= {a.name: self.numbers(a.dtype, grid * OWN) for a in self.outputs}
        scalars = {s.name: self.numbers(s.dtype, 1).item() for s in self.scalars}
        return Launch(f, arrays, {}, grid, scalars)

    def numbers(self, dtype: str, count: int) -> Array:
        """Any bits, small numbers and special values."""
        kind = DTYPES[dtype]
        if dtype == "bool":
            return self.rng.random(count) < 0.5
        out = self.rng.integers(0, 256, count * kind.itemsize).astype(np.uint8).view(kind)
        small = self.rng.integers(-4 if dtype[0] != "u" else 0, 5, count).astype(kind)
        out = np.where(self.rng.random(count) < 0.6, small, out)
        if "float" in dtype:
            with np.errstate(invalid="ignore"):
                special = self.rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 65504.0]), count).astype(kind)
            out = np.where(self.rng.random(count) < 0.2, special, out)
        return out

    # statements

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def block(self, visible: Names, depth: int, most: int) -> tuple[Statement, ...]:
        visible, out = dict(visible), []
        for _ in range(self.rng.integers(1, most + 1)):
            kinds = self.kinds(depth)
            out += kinds[self.rng.integers(len(kinds))](visible, depth)
        return tuple(out)

    def kinds(self, depth: int) -> list[Maker]:
        """What may be the next statement, some of it more often."""
        return [self.let, self.let, self.assign, self.store, self.check] + [self.branch, self.counted, self.loop] * (depth > 0)

    def let(self, visible: Names, depth: int) -> list[Statement]:
        s = Let(self.name(), self.value(visible, self.dtype()))
        visible[s.name] = (s.value.dtype, True)
        return [s]

    def assign(self, visible: Names, depth: int) -> list[Statement]:
        names = [n for n, (_, mutable) in visible.items() if mutable]
        if not names:
            return self.let(visible, depth)
        name = str(self.rng.choice(names))
        return [Assign(name, self.value(visible, visible[name][0]))]

    def store(self, visible: Names, depth: int = 0) -> list[Statement]:
        array = self.outputs[self.rng.integers(len(self.outputs))]
        return [Store(array.name, self.own(visible), self.value(visible, computed(array.dtype)))]

    def check(self, visible: Names, depth: int) -> list[Statement]:
        holds = self.value(visible, "bool") | (self.value(visible, "int64", 1) < 100)
        return [Check(holds, int(self.rng.integers(4)), self.value(visible, "int64", 1))]

    def branch(self, visible: Names, depth: int) -> list[Statement]:
        both = self.rng.random() < 0.6
        then, otherwise = self.block(visible, depth - 1, 3), self.block(visible, depth - 1, 3) if both else ()
        return [If(self.value(visible, "bool"), then, otherwise)]

    def counted(self, visible: Names, depth: int) -> list[Statement]:
        name, start = self.name(), self.value(visible, "int64", 1) & 7
        body = self.block(visible | {name: ("int64", False)}, depth - 1, 3)
        return [For(name, start - 4, self.value(visible, "int64", 1) & 7, int(self.rng.integers(1, 4)), body)]

    def loop(self, visible: Names, depth: int) -> list[Statement]:
        rounds = Let(self.name(), self.value(visible, "int64", 1) & 3)
        body = self.block(visible | {rounds.name: ("int64", False)}, depth - 1, 3)
        more = (rounds.local > 0) & self.value(visible, "bool", 1)
        return [rounds, While(more, (*body, Assign(rounds.name, rounds.local - 1)))]

    # expressions

    def dtype(self) -> str:
        return str(self.rng.choice(self.dtypes))

    def own(self, visible: Names) -> Expr:
        """The index of an element that belongs to the item."""
        return self.number * OWN + (self.value(visible, "int64", 1) & (OWN - 1))

    def value(self, visible: Names, dtype: str, depth: int = 3) -> Expr:
        """An expression of a dtype."""
        if depth == 0 or self.rng.random() < 0.15:
            return self.leaf(visible, dtype)

        def inner(other: str = dtype) -> Expr:
            return self.value(visible, other, depth - 1)

        makers: list[Callable[[], Expr]] = [
            lambda: select(inner("bool"), inner(), inner()),
            lambda: expr.rarely(inner("bool"), inner(), inner()),
            lambda: cast(inner(self.dtype()), dtype),
        ]
        if dtype == "bool":
            makers += [lambda: self.compared(inner)] * 5 + [lambda: ~inner()]
            makers += [lambda op=op: binary(op, inner(), inner()) for op in ("and", "or", "xor", "eq", "ne", "lt")]
        elif dtype in INTEGERS:
            ops = ("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr")
            makers += [lambda op=op: binary(op, inner(), inner()) for op in ops]
            makers += [lambda op=op: unary(op, inner()) for op in ("neg", "not")] + [lambda: expr.absolute(inner())]
            makers += [lambda: self.bits_of(inner, dtype)]
        else:
            makers += [lambda op=op: binary(op, inner(), inner()) for op in ("add", "sub", "mul", "div")]
            makers += [lambda op=op: _positive(binary(op, inner(), inner())) for op in ("min", "max")]
            makers += [lambda op=op: unary(op, inner()) for op in ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint")]
            makers += [lambda: expr.copysign(inner(), _a_number(inner()))]
            makers += [lambda: expr.scale(inner(), cast(self.value(visible, "int64", 1) & 63, dtype) - 40.0)]
            makers += [lambda: bitcast(inner("int32" if dtype == "float32" else "int64"), dtype)]
            if dtype == "float32":
                makers += [lambda: expr.fma(inner(), inner(), inner())]
        return makers[self.rng.integers(len(makers))]()

    def compared(self, inner: Callable[[str], Expr]) -> Expr:
        dtype = self.dtype()
        return binary(str(self.rng.choice(expr.COMPARISONS)), inner(dtype), inner(dtype))

    def bits_of(self, inner: Callable[[str], Expr], dtype: str) -> Expr:
        if BITS[dtype] not in (32, 64):
            return inner(dtype)
        return bitcast(_a_number(inner(f"float{BITS[dtype]}")), dtype)

    def leaf(self, visible: Names, dtype: str) -> Expr:
        names = [n for n, (d, _) in visible.items() if d == dtype]
        if names and self.rng.random() < 0.5:
            return local(str(self.rng.choice(names)), dtype)
        if self.rng.random() < 0.5:
            number = self.numbers(dtype, 1).item()
            return const(number, dtype)
        place = self.number + int(self.rng.integers(SIZE))
        if self.rng.random() < 0.6:
            array = self.inputs[self.rng.integers(len(self.inputs))]
            return cast(array[place & (SIZE - 1)], dtype)
        array = self.outputs[self.rng.integers(len(self.outputs))]
        return cast(array[self.number * OWN + whole(int(self.rng.integers(OWN)))], dtype)


def _a_number(x: Expr) -> Expr:
    """``x``, or 1 in the place of a NaN, whose bits are open."""
    return select(eq(x, x), x, 1.0) if x.dtype in FLOATS else x


def _positive(x: Expr) -> Expr:
    """``x``, but 0 for -0. (LLVM 22 takes ``max(a + 0.0, b + 0.0) + 0.0`` for ``max(a, b)``, whatever the sign of a zero.)"""
    return select(eq(x, 0.0), 0.0, x)
