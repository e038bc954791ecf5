"""Random kernels that a target without 64-bit integers can have, with or without float64, and launches of legalized kernels.

Other arrays and scalars have dtypes of at most 32 bits. The int64 numbers of expressions may have any value, but quotients and
remainders, and shifts of what is divided, are of small ones: those of large ones are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import drawn_groups
import drawn_kernels
import numpy as np
from drawn_groups import DrawnGroup
from drawn_kernels import Drawn, Names
from running_kernels import bits
from written_kernels import Launch

from firebrick.compiler.kernel import Fault, Function, interpret
from firebrick.scalar import expr
from firebrick.scalar.expr import Expr, binary, cast, select, unary
from firebrick.scalar.wide import Bounds

Array = np.ndarray[Any, Any]
STORED = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32")
COMPUTED = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32", "int64")


class _Narrow(Drawn):
    """A kernel while it is drawn, whose int64 numbers are computed by what two words can."""

    def value(self, visible: Names, dtype: str, depth: int = 3) -> Expr:
        if dtype != "int64":
            found = super().value(visible, dtype, depth)
            return found
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf(visible, dtype)

        def inner(other: str = dtype) -> Expr:
            return self.value(visible, other, depth - 1)

        ops = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr")
        makers: list[Callable[[], Expr]] = [lambda op=op: binary(op, inner(), inner()) for op in ops]
        makers += [lambda op=op: binary(op, (inner() & 1023) - 300, (inner() & 15) - 3) for op in ("div", "rem")]
        makers += [lambda op=op: unary(op, inner()) for op in ("neg", "not")]
        makers += [lambda: expr.absolute(inner()), lambda: select(inner("bool"), inner(), inner())]
        makers += [lambda: cast(inner(str(self.rng.choice(("bool", "int8", "uint16", "int32", "uint32")))), "int64")]
        return makers[self.rng.integers(len(makers))]()

    def leaf(self, visible: Names, dtype: str) -> Expr:
        found = super().leaf(visible, dtype)
        if dtype == "int64" and found.op == "cast" and found.args[0].dtype == "float32":
            return self.leaf(visible, dtype)  # casts of floats to int64 are refused
        return found

    def launch(self) -> Launch:
        found = super().launch()
        small = {s.name: int(found.scalars[s.name]) % 2001 - 1000 for s in self.scalars if s.dtype == "int64"}
        counts = {s.name for s in getattr(self, "counts", ())}
        scalars = found.scalars | {name: number for name, number in small.items() if name not in counts}
        return replace(found, scalars=scalars)


class _NarrowGroup(_Narrow, DrawnGroup):
    """A kernel of groups while it is drawn."""


@contextmanager
def _narrow(more: tuple[str, ...]) -> Iterator[None]:
    names, stored = SimpleNamespace(**{**vars(expr), "DTYPES": (*COMPUTED, *more)}), (*STORED, *more)
    with (
        patch.object(drawn_kernels, "STORAGE", stored), patch.object(drawn_kernels, "expr", names),
        patch.object(drawn_groups, "STORAGE", stored), patch.object(drawn_groups, "WORDS", ("int32", "uint32")),
        patch.object(drawn_groups, "FLOATS", ("float32",)),
    ):  # fmt: skip
        yield


def draw_narrow(seed: int, group: bool = False, float64: bool = False) -> Launch:
    """The random kernel of a seed, with a launch; with ``float64`` half of the dtypes that are drawn are float64."""
    with _narrow(("float64",) * len(STORED) if float64 else ()):
        return (_NarrowGroup if group else _Narrow)(seed).launch()


def bounds_of_launch(launch: Launch) -> dict[str, Bounds]:
    """What ``legalized`` may know of a launch."""
    f = launch.function
    grid = launch.grid if isinstance(launch.grid, tuple) else (launch.grid,)
    found: dict[str, Bounds] = {n: (0, max(0, size - 1)) for n, size in zip((*f.outer, f.item), grid, strict=True)}
    found |= {name: (0, x.size) for name, x in launch.arrays.items()}
    return found | {name: (int(v), int(v)) for name, v in launch.scalars.items() if isinstance(v, bool | int)}


def outcome(launch: Launch, function: Function) -> tuple[dict[str, Array], Fault | None]:
    """The arrays, as bits, and the fault of a launch of a kernel with the arguments of another one."""
    memory = {name: x.copy() for name, x in launch.arrays.items()}
    fault = interpret(function, memory, launch.scalars, launch.grid, checked=False)
    return {name: bits(x) for name, x in memory.items()}, fault
