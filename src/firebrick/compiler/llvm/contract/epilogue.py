"""Epilogues: what happens to an element of a product before it is stored, without another walk through memory.

An epilogue is a function over vectors of accumulated values and of its operands (a bias, a residual), which lie in memory as
C does, with stride 0 where they are broadcast. ``bias``, ``residual`` and ``relu`` are ready made; ``then`` chains two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firebrick.compiler.llvm.contract.emit import STORAGE, Emitter, compute_type, constant, memory, vector
from firebrick.compiler.llvm.contract.problem import Result


@dataclass(frozen=True, slots=True)
class Site:
    """Where an epilogue is applied: ``n`` lanes of a row of C.

    Attributes:
        n: Lanes.
        type: ``float`` or ``double``.
        mask: Lanes that exist; None for all.
    """

    n: int
    type: str
    mask: str | None = None

    def read(self, e: Emitter, base: str, offset: int | str, step: int, dtype: str) -> str:
        """Lanes of an operand that are ``step`` elements apart, 0 for a broadcast one."""
        at = e.at(base, offset, memory(dtype))
        if step == 1:
            x = e.load(at, self.n, dtype, self.mask)
        elif step == 0:
            one = e.load(at, 1, dtype)
            x = e.shuffle(one, None, [0] * self.n, 1, compute_type(dtype))
        else:
            x = "poison"
            for i in range(self.n):
                here = e.at(at, i * step, memory(dtype))
                if self.mask is not None:  # the first lane always exists
                    there = e.let(f"extractelement {vector(self.n, 'i1')} {self.mask}, i64 {i}")
                    here = e.let(f"select i1 {there}, ptr {here}, ptr {at}")
                lane = e.load(here, 1, dtype)
                one = e.let(f"extractelement {vector(1, compute_type(dtype))} {lane}, i64 0")
                x = e.let(f"insertelement {vector(self.n, compute_type(dtype))} {x}, {compute_type(dtype)} {one}, i64 {i}")
        have = compute_type(dtype)
        if have == self.type:
            return x
        how = "fpext" if STORAGE[dtype][2] < 8 and self.type == "double" else "fptrunc"
        return e.let(f"{how} {vector(self.n, have)} {x} to {vector(self.n, self.type)}")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A function of the accumulated vector.

    Attributes:
        key: Names it: two epilogues with one key and one list of extras are the same.
        extras: Operands in memory, read at the place of C that is written.
        emit: ``(emitter, accumulated, values of extras, site) -> vector``, all in the type of the arithmetic.
    """

    key: str
    extras: tuple[Result, ...]
    emit: Callable[[Emitter, str, Sequence[str], Site], str]

    def then(self, after: Epilogue) -> Epilogue:
        """This one, then another on what it gives."""
        first, n = self.emit, len(self.extras)

        def both(e: Emitter, x: str, values: Sequence[str], site: Site) -> str:
            return after.emit(e, first(e, x, values[:n], site), values[n:], site)

        return Epilogue(f"{self.key};{after.key}", (*self.extras, *after.extras), both)


def bias(where: Result) -> Epilogue:
    """Add an operand: a bias of rows or columns (stride 0 along the other), or a residual of C's own shape."""
    return Epilogue("add", (where,), lambda e, x, v, s: e.let(f"fadd {vector(s.n, s.type)} {x}, {v[0]}"))


residual = bias


def relu() -> Epilogue:
    """The larger of the value and 0; NaN stays NaN."""

    def emit(e: Emitter, x: str, values: Sequence[str], s: Site) -> str:
        v = vector(s.n, s.type)
        zero = constant(["0.0"] * s.n, s.type)
        below = e.let(f"fcmp olt {v} {x}, {zero}")
        return e.let(f"select {vector(s.n, 'i1')} {below}, {v} {zero}, {v} {x}")

    return Epilogue("relu", (), emit)
