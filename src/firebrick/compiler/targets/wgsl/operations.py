"""Scalar operations as WGSL expressions: ``OPERATIONS`` has one row for each operation that is left after ``legalize``.

Drivers treat floating-point arithmetic as that of real numbers: they reorder sums, cancel terms and replace x * 0 by 0. Where
the measured capabilities say so, results of arithmetic and its constants are *fenced*: their bits are combined with a zero that
the driver does not know, since it is an argument of the launch. Signs and magnitudes are always computed by bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from firebrick.scalar.expr import COMPARISONS, FLOATS, Expr

TYPES = {"bool": "bool", "int32": "i32", "uint32": "u32", "float32": "f32", "float64": "f64"}
"""The types of values, by dtype."""
UNKNOWN_ZERO = "zero"
"""A local of each shader: 0u, as an argument of the launch."""

_ROUNDED = frozenset({"add", "sub", "mul", "div", "sqrt", "fma", "muladd"})
"""Operations of floats that a driver may combine with others."""
_BITS = {
    "float32": ("f32", "u32", "0x80000000u", "0x7fffffffu"),
    "float64": ("f64", "u64", "0x8000000000000000lu", "0x7ffffffffffffffflu"),
}
"""The types of a float and of its bits, that of the sign, and the others."""
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def fenced(text: str, dtype: str = "float32", by: str = "|") -> str:
    """A float whose value the driver does not know. Two exclusive ors with one number cancel, and two ors are one: results take
    an or, and operands, which may be results, an exclusive or."""
    kind, bits, zero = ("f32", "u32", UNKNOWN_ZERO) if dtype == "float32" else ("f64", "u64", f"u64({UNKNOWN_ZERO})")
    return f"bitcast<{kind}>(bitcast<{bits}>({text}) {by} {zero})"


def float64_of(low: str, high: str) -> str:
    """A float64 of its bits, two expressions of type u32."""
    return f"bitcast<f64>((u64({high}) << 32u) | u64({low}))"


def constant(e: Expr, opaque: bool = False) -> str:
    """A number; ``opaque`` floats are unknown to the driver, as are those that are infinite, NaN or denormal."""
    if e.dtype == "bool":
        return "true" if e.value else "false"
    if e.dtype == "float64":
        low, high = struct.unpack("<II", struct.pack("<d", e.value))
        return float64_of(f"{low:#010x}u", f"({high:#010x}u | {UNKNOWN_ZERO})")
    if e.dtype in FLOATS:
        (bits,) = struct.unpack("<I", struct.pack("<f", e.value))
        special = (bits >> 23) & 0xFF in (0, 0xFF)
        return f"bitcast<f32>({bits:#010x}u{f' | {UNKNOWN_ZERO}' if special or opaque else ''})"
    number = int(e.value or 0)
    if e.dtype == "int32":
        return f"{number}i" if number > -(1 << 31) else "bitcast<i32>(0x80000000u)"
    return f"{number}u"


def _binary(e: Expr, args: Sequence[str]) -> str:
    if e.args[0].dtype == "bool" and e.op in COMPARISONS and e.op not in ("eq", "ne"):
        args = [f"u32({a})" for a in args]
    sign = "!=" if e.op == "xor" and e.dtype == "bool" else _INFIX[e.op]
    return f"({args[0]} {sign} {args[1]})"


def _shift(e: Expr, args: Sequence[str]) -> str:
    return f"({args[0]} {'<<' if e.op == 'shl' else '>>'} u32({args[1]}))"


def _negative(e: Expr, args: Sequence[str]) -> str:
    if e.dtype in FLOATS:
        kind, bits, sign, _ = _BITS[e.dtype]
        return f"bitcast<{kind}>(bitcast<{bits}>({args[0]}) ^ {sign})"
    return f"({TYPES[e.dtype]}(0) - {args[0]})"


def _magnitude(e: Expr, args: Sequence[str]) -> str:
    if e.dtype in FLOATS:
        kind, bits, _, rest = _BITS[e.dtype]
        return f"bitcast<{kind}>(bitcast<{bits}>({args[0]}) & {rest})"
    zero = f"{TYPES[e.dtype]}(0)"
    return f"select({args[0]}, {zero} - {args[0]}, {args[0]} < {zero})"


def _copysign(e: Expr, args: Sequence[str]) -> str:
    kind, bits, sign, rest = _BITS[e.dtype]
    return f"bitcast<{kind}>((bitcast<{bits}>({args[0]}) & {rest}) | (bitcast<{bits}>({args[1]}) & {sign}))"


def _extreme(e: Expr, args: Sequence[str]) -> str:
    sign = "<" if e.op == "min" else ">"
    return f"select({args[1]}, {args[0]}, {args[0]} {sign} {args[1]})"


def _cast(e: Expr, args: Sequence[str]) -> str:
    if e.dtype == "float64" and e.args[0].dtype == "bool":
        return f"f64(u32({args[0]}))"
    return f"{TYPES[e.dtype]}({args[0]})"


def _bitcast(e: Expr, args: Sequence[str]) -> str:
    return f"bitcast<{TYPES[e.dtype]}>({args[0]})"


def _call(name: str) -> Callable[[Expr, Sequence[str]], str]:
    return lambda e, args: f"{name}({', '.join(args)})"


def _select(e: Expr, args: Sequence[str]) -> str:
    return f"select({args[2]}, {args[1]}, {args[0]})"


def _not(e: Expr, args: Sequence[str]) -> str:
    return f"{'!' if e.dtype == 'bool' else '~'}({args[0]})"


OPERATIONS: dict[str, Callable[[Expr, Sequence[str]], str]] = {
    **dict.fromkeys(_INFIX, _binary), "shl": _shift, "shr": _shift, "neg": _negative, "abs": _magnitude,
    "copysign": _copysign, "min": _extreme, "max": _extreme, "cast": _cast, "bitcast": _bitcast,
    "select": _select, "rarely": _select, "sqrt": _call("sqrt"), "floor": _call("floor"), "ceil": _call("ceil"),
    "trunc": _call("trunc"), "rint": _call("round"), "fma": _call("fma"), "muladd": _call("fma"), "not": _not,
    "kept": lambda e, args: fenced(args[0], e.dtype), "low_word": lambda e, args: f"u32(bitcast<u64>({args[0]}))",
    "high_word": lambda e, args: f"u32(bitcast<u64>({args[0]}) >> 32u)", "from_words": lambda e, args: float64_of(*args),
}  # fmt: skip
"""Operation → (node, its operands) → WGSL."""


def operation(e: Expr, args: Sequence[str], fences: bool) -> str:
    """A node as WGSL.

    Args:
        e: The node, whose dtype is one of ``TYPES``.
        args: Its operands.
        fences: Whether results of float arithmetic are fenced.
    """
    if fences and e.op == "kept" and e.args[0].op in _ROUNDED:
        return args[0]
    if fences and e.dtype in FLOATS and e.op in ("sub", "div"):  # x - x is 0 to a driver and x / x is 1, also of NaN
        args = [args[0], fenced(args[1], e.dtype, "^")]
    text = OPERATIONS[e.op](e, args)
    return fenced(text, e.dtype) if fences and e.dtype in FLOATS and e.op in _ROUNDED else text
