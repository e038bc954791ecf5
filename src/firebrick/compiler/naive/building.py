"""What the naive forms of all kinds are built with: launches, run-time arguments, positions and addresses.

A number of a specification is 0, 1 or an argument, as in ``spec.base.structure``: specifications that differ in sizes only have
the same kernels. Names of arguments follow from the order in which they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import prod
from operator import is_

from firebrick.compiler.kernel.ir import (
    ArrayParameter,
    Assign,
    Atomic,
    Check,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    Statement,
    Store,
    expressions,
    statements,
)
from firebrick.compiler.kernel.serialize import to_json
from firebrick.core.views import View
from firebrick.scalar.expr import BITS, Expr, absolute, binary, bitcast, const, local, maximum, minimum, select, walk

INPUT, RESULT, TEMPORARY = "x", "y", "t"
"""The origin of a buffer, the prefix of its name in a kernel."""
ZERO, ONE = const(0, "int64"), const(1, "int64")
_INFINITY = {"float32": 0x7F800000, "float64": 0x7FF << 52}
"""The bits of infinity."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of a program of launches.

    Attributes:
        origin: ``INPUT``, ``RESULT`` or ``TEMPORARY``.
        number: Which of these.
    """

    origin: str
    number: int

    @property
    def name(self) -> str:
        """Its name in kernels."""
        return f"{self.origin}{self.number}"


@dataclass(frozen=True, slots=True)
class NaiveLaunch:
    """A launch.

    Attributes:
        function: Kernel.
        buffers: One for each of its arrays.
        scalars: One for each of its scalars.
        grid: Number of its items; of a kernel with several axes, or groups, the size of each axis.
    """

    function: Function
    buffers: tuple[Buffer, ...]
    scalars: tuple[int, ...]
    grid: int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A temporary array of a naive form.

    Attributes:
        dtype: Of its elements.
        elements: How many there are.
    """

    dtype: str
    elements: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A view whose numbers are expressions.

    Attributes:
        offset: Of the element at position 0.
        axes: For each axis the size and the stride of its digits.
        in_order: Whether it has an element for each item of the kernel, one after the other.
    """

    offset: Expr
    axes: tuple[tuple[tuple[Expr, Expr], ...], ...]
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Naive:
    """The naive form of a specification: launches, one after the other.

    Attributes:
        steps: The launches.
        temporaries: Memory that they share.
    """

    steps: tuple[NaiveLaunch, ...]
    temporaries: tuple[Array, ...] = ()


class Builder:
    """Builds one kernel, and the arguments of its launch.

    Args:
        kind: What its name begins with.
        sizes: Of the index space of its items, the last axis fastest.

    Attributes:
        body: The statements of the block that is being written.
        positions: The item's position along each of ``sizes``.
    """

    def __init__(self, kind: str, sizes: Sequence[int]) -> None:
        self.kind, self.grid, self._sizes = kind, prod(sizes), tuple(sizes)
        self.body: list[Statement] = []
        self._arrays: dict[Buffer, tuple[str, set[str]]] = {}
        self._scalars: dict[str, int] = {}
        self._names = 0
        self.positions = self.digits(local("item", "int64"), self.numbers(sizes))

    def fresh(self, stem: str) -> str:
        """A name that is not in use."""
        self._names += 1
        return f"{stem}_{self._names}"

    # arguments

    def number(self, value: int, stem: str = "n") -> Expr:
        """A size or a stride: 0 and 1 are constants, others are arguments."""
        return const(value, "int64") if value in (0, 1) else self._argument(value, stem)

    def numbers(self, values: Sequence[int], stem: str = "n") -> list[Expr]:
        """Several sizes or strides."""
        return [self.number(v, stem) for v in values]

    def place(self, view: View) -> Placed:
        """A view's offset, sizes and strides; an offset is 0 or an argument."""
        offset = self._argument(view.offset, "offset") if view.offset else ZERO
        axes = (((self.number(d.size), self.number(d.stride, "stride")) for d in axis) for axis in view.axes)
        return Placed(offset, tuple(tuple(axis) for axis in axes), _in_order(view, self._sizes))

    def _argument(self, value: int, stem: str) -> Expr:
        name = self.fresh(stem)
        self._scalars[name] = value
        return local(name, "int64")

    # statements

    def let(self, value: Expr, stem: str = "v") -> Expr:
        """Define a local variable for an expression; a constant or a name is returned unchanged."""
        if value.op in ("const", "local"):
            return value
        s = Let(self.fresh(stem), value)
        self.body.append(s)
        return s.local

    def variable(self, value: Expr, stem: str) -> Let:
        """Define a local variable that is assigned to."""
        s = Let(self.fresh(stem), value)
        self.body.append(s)
        return s

    def block(self, write: Callable[[], None]) -> tuple[Statement, ...]:
        """The statements that a function writes."""
        outer, self.body = self.body, []
        write()
        inner, self.body = tuple(self.body), outer
        return inner

    def loops(self, sizes: Sequence[Expr], write: Callable[[list[Expr]], None], counters: Sequence[Expr] = ()) -> None:
        """Nested loops over an index space; ``write`` receives the counters. An axis of size 1 has no loop."""
        if not sizes:
            write(list(counters))
        elif sizes[0] is ONE:
            self.loops(sizes[1:], write, [*counters, ZERO])
        else:
            name = self.fresh("k")
            inner = [*counters, local(name, "int64")]
            body = self.block(lambda: self.loops(sizes[1:], write, inner))
            self.body.append(For(name, ZERO, sizes[0], 1, body))

    def loop(self, start: Expr, stop: Expr, write: Callable[[Expr], None], step: int = 1) -> None:
        """A loop from ``start`` to ``stop``; ``write`` receives the counter."""
        name = self.fresh("k")
        body = self.block(lambda: write(local(name, "int64")))
        self.body.append(For(name, start, stop, step, body))

    def when(self, condition: Expr, write: Callable[[], None]) -> None:
        """Statements that are executed if a condition is true."""
        self.body.append(If(condition, self.block(write)))

    def assign(self, variable: Let, value: Expr) -> None:
        """Assign to a variable."""
        self.body.append(Assign(variable.name, value))

    def bounded(self, at: Expr, size: Expr, site: int) -> Expr:
        """An index into ``size`` elements, counted from the end if negative; clamped, and a fault, if it is out of range."""
        given = self.let(at, "index")
        front = self.let(select(given < 0, given + size, given), "front")
        self.body.append(Check((front >= 0) & (front < size), site, given))
        return minimum(maximum(front, 0), size - 1)

    # memory

    def read(self, buffer: Buffer, dtype: str, at: Expr) -> Expr:
        """The expression that reads an element."""
        return self._array(buffer, dtype, "read")[at]

    def store(self, buffer: Buffer, dtype: str, at: Expr, value: Expr) -> None:
        """Write an element."""
        self.body.append(Store(self._array(buffer, dtype, "write").name, at, value))

    def atomic(self, op: str, buffer: Buffer, dtype: str, at: Expr, value: Expr) -> Expr:
        """Combine an element with a value by an operation of ``kernel.ir.ATOMIC``; the element before."""
        for access in ("read", "write"):
            array = self._array(buffer, dtype, access)
        name = self.fresh("before")
        self.body.append(Atomic(op, array.name, at, value, name))
        return local(name, dtype)

    def _array(self, buffer: Buffer, dtype: str, access: str) -> ArrayParameter:
        found, accesses = self._arrays.setdefault(buffer, (dtype, set()))
        if found != dtype:
            raise TypeError(f"{buffer} has elements of one dtype. Received: {found} and {dtype}")
        accesses.add(access)
        return ArrayParameter(buffer.name, dtype)

    # index arithmetic

    def digits(self, index: Expr, sizes: Sequence[Expr]) -> list[Expr]:
        """The position along each axis of an index into all of them, the last axis fastest."""
        out: list[Expr] = []
        first = next((a for a, n in enumerate(sizes) if n is not ONE), 0)
        for a in range(len(sizes) - 1, -1, -1):
            if sizes[a] is ONE:
                out.append(ZERO)
            elif a == first:
                out.append(index)
            else:
                out.append(self.let(binary("rem", index, sizes[a]), "i"))
                index = self.let(binary("div", index, sizes[a]), "rest")
        return out[::-1]

    def address(self, placed: Placed, positions: Sequence[Expr]) -> Expr:
        """The address of the element at a position."""
        if placed.in_order and len(positions) == len(self.positions) and all(map(is_, positions, self.positions)):
            return local("item", "int64")
        at = placed.offset
        for axis, position in zip(placed.axes, positions, strict=True):
            at = at + self.along(axis, self.digits(position, [size for size, _ in axis]))
        return self.let(at, "at")

    def along(self, axis: Sequence[tuple[Expr, Expr]], digits: Sequence[Expr]) -> Expr:
        """The offset of an index along one axis, by the strides of its digits."""
        at = ZERO
        for digit, (_, stride) in zip(digits, axis, strict=True):
            at = at + digit * stride
        return at

    def step(self) -> NaiveLaunch:
        """The launch."""
        arrays = sorted(self._arrays, key=lambda b: (b.origin != INPUT, b.origin, b.number))
        parameters = tuple(
            ArrayParameter(b.name, dtype, "_".join(sorted(accesses)))
            for b, (dtype, accesses) in ((b, self._arrays[b]) for b in arrays)
        )
        nodes = walk(e for s in statements(tuple(self.body)) for e in expressions(s))
        read = {e.value for e in nodes if e.op == "local"}
        scalars = {name: value for name, value in self._scalars.items() if name in read}
        function = Function("kernel", parameters, tuple(map(ScalarParameter, scalars)), "item", tuple(self.body))
        # kernels of one module have different names, and equal kernels the same
        name = f"naive_{self.kind}_{blake2b(to_json(function).encode(), digest_size=8).hexdigest()}"
        return NaiveLaunch(replace(function, name=name), tuple(arrays), tuple(scalars.values()), self.grid)


def _in_order(view: View, sizes: Sequence[int]) -> bool:
    """Whether the elements of a view lie one after the other from the beginning of its buffer, in the order of positions."""
    if view.offset or len(view.axes) != len(sizes):
        return False
    stride = 1
    for axis, size in zip(view.axes[::-1], sizes[::-1], strict=True):
        if size > 1 and [(d.size, d.stride) for d in axis if d.size > 1] != [(size, stride)]:
            return False
        stride *= size
    return True


def compensated(b: Builder, total: Expr, lost: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The next value of a sum of floats, and what its addition loses, which is added with the next element, so that the error
    does not grow with the number of elements; where a sum is infinite or NaN, nothing is lost. Nothing is -0.0, to which -0.0
    can be added.

    Source: Kahan, "Further remarks on reducing truncation errors", CACM 8, 1965; the loss of one addition by Knuth, The Art of
    Computer Programming, volume 2, 4.2.2.
    """
    x = b.let(x + lost, "x")
    s = b.let(total + x, "s")
    t = b.let(s - total, "t")
    error = b.let((total - (s - t)) + (x - t), "error")
    bits = bitcast(absolute(error), f"uint{BITS[x.dtype]}")  # one comparison says 0 < size < infinity
    return s, select(bits - 1 < _INFINITY[x.dtype] - 1, error, -0.0)
