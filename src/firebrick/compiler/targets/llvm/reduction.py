"""Reductions on vectors: identities, steps, and the fixed order in which lanes and accumulators are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from firebrick.compiler.targets.llvm.emit import Code, Emitter, literal, scalar_type, vector_type
from firebrick.scalar.expr import FLOATS, Expr, binary, eq, load, select

_STEP = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def identity(kind: str, dtype: str, lanes: int) -> str:
    """The identity element of a reduction."""
    if kind in ("sum", "prod"):
        value: float | int = int(kind == "prod")
        return literal(float(value) if dtype in FLOATS else value, dtype, lanes)
    if dtype in FLOATS:
        return literal(float("-inf" if kind == "max" else "inf"), dtype, lanes)
    info = np.iinfo(dtype)
    return literal(int(info.min if kind == "max" else info.max), dtype, lanes)


def step(code: Code, kind: str, dtype: str, a: str, b: str, lanes: int) -> str:
    """Combine ``a``, the accumulator, with ``b``."""
    e = binary(_STEP[kind], load(0, dtype), load(1, dtype))
    # min and max also test their first operand for NaN; with b first, that test is not on the accumulator's dependency chain
    operands = (b, a) if kind in ("max", "min") else (a, b)
    return Emitter(code, lanes, lambda x: operands[int(x.value or 0)]).value(e)


def add_exactly(code: Code, dtype: str, total: str, error: str, part: str, lanes: int) -> tuple[str, str]:
    """total + part, and ``error`` plus the rounding error of that sum.

    Source: Knuth, The Art of Computer Programming, volume 2, 4.2.2; Neumaier, "Rundungsfehleranalyse einiger Verfahren zur
    Summation endlicher Summen", Zeitschrift für Angewandte Mathematik und Mechanik 54, 1974.
    """
    operands = (total, error, part)
    emitter = Emitter(code, lanes, lambda x: operands[int(x.value or 0)])
    t, c, p = (load(i, dtype) for i in range(3))
    s = t + p
    other = s - t
    return emitter.value(s), emitter.value(c + ((t - (s - other)) + (p - other)))


def settle(code: Code, dtype: str, total: str, error: str, lanes: int) -> str:
    """total + error. If the total is infinite or NaN, its rounding error is NaN, and is ignored."""
    operands = (total, error)
    t, c = load(0, dtype), load(1, dtype)
    return Emitter(code, lanes, lambda x: operands[int(x.value or 0)]).value(t + select(eq(c, c), c, 0.0))


def tree(code: Code, kind: str, dtype: str, values: Sequence[str], lanes: int) -> str:
    """Combine several accumulators pairwise."""
    rest = list(values)
    while len(rest) > 1:
        pairs = [step(code, kind, dtype, a, b, lanes) for a, b in zip(rest[::2], rest[1::2], strict=False)]
        rest = pairs + rest[2 * len(pairs) :]
    return rest[0]


def across(code: Code, kind: str, dtype: str, value: str, lanes: int) -> str:
    """Combine all lanes by halves: lane i with lane i + lanes/2, and so on."""
    element = scalar_type(dtype)
    while lanes > 1:
        half = lanes // 2
        t = vector_type(element, lanes)
        parts = []
        for start in (0, half):
            if half == 1:
                parts.append(code.put(f"extractelement {t} {value}, i64 {start}"))
                continue
            picked = ", ".join(f"i32 {start + i}" for i in range(half))
            parts.append(code.put(f"shufflevector {t} {value}, {t} poison, <{half} x i32> <{picked}>"))
        value, lanes = step(code, kind, dtype, parts[0], parts[1], half), half
    return value


def masked(code: Code, kind: str, dtype: str, value: str, mask: str, lanes: int) -> str:
    """The value, or the identity where ``mask`` is false."""
    t = vector_type(scalar_type(dtype), lanes)
    return code.put(f"select <{lanes} x i1> {mask}, {t} {value}, {t} {identity(kind, dtype, lanes)}")


def weight(e: Expr, available: Callable[[Expr], bool] = lambda e: False) -> int:
    """Approximate number of instructions of an expression, without loads and without nodes that are ``available``."""
    instructions = {"div": 5, "sqrt": 5, "min": 2, "max": 2, "load": 0, "const": 0, "index": 0}
    total, stack, seen = 0, [e], {e}
    while stack:
        at = stack.pop()
        if available(at):
            continue
        total += instructions.get(at.op, 1)
        new = set(at.args) - seen
        seen |= new
        stack.extend(new)
    return total
