"""The scalar-expression IR: the computation of one element, as a typed graph shared by all code generators.

Nodes are hash-consed: equal expressions are one object, so common subexpressions merge by construction. All operations are
total. Integer arithmetic wraps, x / 0 = x % 0 = 0, shifts by a negative number or by at least the width shift all bits out,
casts of floats to integers truncate and saturate, and NaN becomes 0. ``min`` and ``max`` are NaN if either operand is; of zeros
with different signs, they may be either. Comparisons with NaN are false, except ``ne``. Operands need not be finite.

Computation is in bool, integers, float32 and float64. Narrower floats are storage dtypes: see ``storage``.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_float
from functools import lru_cache
from weakref import WeakValueDictionary

import numpy as np

from firebrick.core.locks import forkable

FLOATS = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
DTYPES = ("bool", *INTEGERS, *FLOATS)
COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""Dtypes of numbers with two parts, and that of each part. ``complex_numbers`` makes their expressions."""
BITS = {"bool": 1, "float32": 32, "float64": 64} | {d: int(d.lstrip("uint")) for d in INTEGERS}

Number = bool | int | float

_ANY, _ARITHMETIC = frozenset(DTYPES), frozenset((*INTEGERS, *FLOATS))
_FLOAT, _BITWISE, _INTEGER = frozenset(FLOATS), frozenset(("bool", *INTEGERS)), frozenset(INTEGERS)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# op → allowed dtypes; operands and result have the same dtype (comparisons give bool)
_SAME: dict[str, frozenset[str]] = {
    "add": _ARITHMETIC, "sub": _ARITHMETIC, "mul": _ARITHMETIC, "div": _ARITHMETIC, "rem": _INTEGER, "neg": _ARITHMETIC,
    "fma": _FLOAT, "muladd": _FLOAT, "nearest": _FLOAT, "kept": _FLOAT,
    "min": _ARITHMETIC, "max": _ARITHMETIC, "abs": _ARITHMETIC, "sqrt": _FLOAT, "copysign": _FLOAT,
    "scale": _FLOAT, "floor": _FLOAT, "ceil": _FLOAT, "trunc": _FLOAT, "rint": _FLOAT,
    "and": _BITWISE, "or": _BITWISE, "xor": _BITWISE, "not": _BITWISE, "shl": _INTEGER, "shr": _INTEGER,
} | dict.fromkeys(COMPARISONS, _ANY)  # fmt: skip
_COUNT = {
    "neg": 1,
    "abs": 1,
    "sqrt": 1,
    "floor": 1,
    "ceil": 1,
    "trunc": 1,
    "rint": 1,
    "not": 1,
    "kept": 1,
    "fma": 3,
    "muladd": 3,
}
IN_RANGE, CANCELS, VAST = "in range", "cancels", "vast"
COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"})
REDUCTIONS = ("sum", "prod", "max", "min")


class Expr:
    """One node. Use this module's functions and Python's operators to make nodes; numbers have the other operand's dtype.

    Attributes:
        op: Name of the operation.
        dtype: Dtype of the value.
        args: Operand nodes.
        value: The op's attribute: the number of a ``const``, the operand of a ``load``, the axis of an ``index`` (or its
            strides), the name of a ``local``, the array of an ``element``, the kind of a ``reduce``; ``IN_RANGE`` of a ``cast``
            of a float that is known to be among the integers of the dtype; ``CANCELS`` of a ``cancelling_fma``,
            ``VAST`` of a ``vast_fma``.
    """

    __slots__ = ("__weakref__", "args", "dtype", "op", "value")
    op: str
    dtype: str
    args: tuple[Expr, ...]
    value: Number | str | None

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args))
        if self.op == "const":
            return f"{self.value!r}:{self.dtype}"
        tag = "" if self.value is None else f"[{self.value}]"
        return f"{self.op}{tag}({inner}){':' + self.dtype if self.op in ('cast', 'bitcast', 'load') else ''}"

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("div", other, self)

    def __and__(self, other: Operand) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: Operand) -> Expr:
        return binary("or", self, other)

    def __xor__(self, other: Operand) -> Expr:
        return binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Expr:
        return binary("shr", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def __lt__(self, other: Operand) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return binary("ge", self, other)


Operand = Expr | bool | int | float
Key = tuple[str, str, tuple[Expr, ...], object]

_nodes: WeakValueDictionary[Key, Expr] = WeakValueDictionary()
_lock = forkable(threading.RLock())  # a finalizer that the collector runs within may compile a function


def node(op: str, dtype: str, args: tuple[Expr, ...] = (), value: Number | str | None = None) -> Expr:
    """The unique node with these fields, without checks or simplification."""
    tag: object = struct.pack("<d", value) if isinstance(value, float) else value  # distinguishes 0.0 and -0.0
    key = (op, dtype, args, tag)  # operands are unique, so equal ones are identical
    found = _nodes.get(key)
    if found is None:
        made = Expr()
        made.op, made.dtype, made.args, made.value = op, dtype, args, value
        with _lock:  # two threads that made it both take the one that is in the table
            found = _nodes.setdefault(key, made)
    return found


def load(place: int, dtype: str) -> Expr:
    """The element of operand ``place`` at the kernel's current position, as ``dtype`` (storage is converted by the kernel)."""
    return node("load", dtype if dtype in COMPLEX else _checked(dtype), (), place)


def index(axis: int) -> Expr:
    """The current position along ``axis`` of the kernel's shape, int64."""
    return node("index", "int64", (), axis)


def position(strides: Sequence[int]) -> Expr:
    """Σ ``index(a)`` · ``strides[a]`` over the axes of the kernel's shape, int64."""
    return node("index", "int64", (), ",".join(map(str, strides)))


def steps(e: Expr, rank: int) -> tuple[int, ...]:
    """The strides of an ``index`` node along each axis."""
    if isinstance(e.value, str):
        return tuple(int(s) for s in e.value.split(",") if s)
    return tuple(int(a == e.value) for a in range(rank))


def const(value: Number, dtype: str) -> Expr:
    """A number; integers wrap to ``dtype``, floats round to it."""
    if _checked(dtype) == "bool":
        return node("const", dtype, (), bool(value))
    if dtype in INTEGERS:
        bits = BITS[dtype]
        whole = int(value) & ((1 << bits) - 1)
        return node("const", dtype, (), whole - (1 << bits) if dtype in SIGNED and whole >> (bits - 1) else whole)
    return node("const", dtype, (), c_float(value).value if dtype == "float32" else float(value))


def _checked(dtype: str) -> str:
    if dtype not in BITS:
        raise TypeError(f"a scalar expression has one of the dtypes {', '.join(DTYPES)}. Received: {dtype!r}")
    return dtype


def _both(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    if isinstance(a, Expr):
        return a, b if isinstance(b, Expr) else const(b, a.dtype)
    if isinstance(b, Expr):
        return const(a, b.dtype), b
    raise TypeError(f"one operand must be an expression. Received: {a!r} and {b!r}")


def _apply(op: str, args: tuple[Expr, ...]) -> Expr:
    dtype = args[0].dtype
    if dtype not in _SAME[op] or len(args) != _COUNT.get(op, 2) or [a for a in args if a.dtype != dtype]:
        raise TypeError(f"{op} takes {_COUNT.get(op, 2)} operands of one dtype out of {sorted(_SAME[op])}. Received: {args}")
    if op in COMPARISONS:
        dtype = "bool"
    if op in COMMUTATIVE and args[0].op == "const":
        args = (args[1], args[0])
    return _simplified(op, dtype, args)


def unary(op: str, a: Expr) -> Expr:
    """``neg``, ``abs``, ``not`` (of bits), or of floats ``sqrt``, ``floor``, ``ceil``, ``trunc``, ``rint`` (halves to even)."""
    return _apply(op, (a,))


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """An operation of two operands of one dtype; at least one is an expression."""
    return _apply(op, _both(a, b))


def fma(a: Expr, b: Operand, c: Operand) -> Expr:
    """a · b + c, rounded once."""
    return _apply("fma", (a, _both(a, b)[1], _both(a, c)[1]))


def cancelling_fma(a: Expr, b: float, c: Expr) -> Expr:
    """a · b + c, rounded once, of an integer a of at most 12 bits: c is between half and twice -a · b, or a is 0, or NaN.

    Without an exact ``fma``, products of a and the halves of b are exact, and so is the sum of c and the first one.
    """
    found = fma(a, b, c)
    return node(found.op, found.dtype, found.args, CANCELS) if found.op == "fma" else found


def vast_fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """``fma`` of a product that may overflow although the sum does not."""
    found = fma(a, b, c)
    return node(found.op, found.dtype, found.args, VAST) if found.op == "fma" else found


def muladd(a: Expr, b: Operand, c: Operand) -> Expr:
    """a · b + c, rounded once if the target has an exact ``fma``, else twice. Use it if the product may be rounded."""
    return _apply("muladd", (a, _both(a, b)[1], _both(a, c)[1]))


def nearest(a: Expr, b: Operand = 1.0) -> Expr:
    """An integer nearest to a · b, as a float, for |a · b| < 2^p / 4, where p is the number of bits of the fraction.

    If two integers are almost equally near, it may be either. NaN stays NaN.
    """
    return _apply("nearest", _both(a, b))


def nearest_bits(a: Expr, b: Operand) -> Expr:
    """An integer of the float's width, whose lowest bits, but for one the bits of a fraction, are those of ``nearest(a, b)``.

    Its other bits are undefined.
    """
    x, y = _both(a, b)
    if x.dtype != y.dtype or x.dtype not in FLOATS:
        raise TypeError(f"nearest_bits takes two floats of one dtype. Received: {x.dtype} and {y.dtype}")
    return node("nearest_bits", f"int{BITS[x.dtype]}", (x, y))


def kept(a: Expr) -> Expr:
    """a, rounded to its dtype: an arithmetic fence, across which targets must not reassociate sums."""
    return _apply("kept", (a,))


def by_magic(e: Expr) -> Expr:
    """``nearest`` and ``nearest_bits`` by adding 1.5 · 2^p: the sum's lowest bits are the rounded integer.

    This is the fastest way if the target does not reassociate sums.
    """
    magic = 1.5 * 2.0 ** {"float32": 23, "float64": 52}[e.args[0].dtype]
    moved = fma(e.args[0], e.args[1], magic)
    return moved - magic if e.op == "nearest" else bitcast(moved, e.dtype)


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of a and b; NaN if either is NaN."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of a and b; NaN if either is NaN."""
    return binary("max", a, b)


def eq(a: Operand, b: Operand) -> Expr:
    """a = b."""
    return binary("eq", a, b)


def ne(a: Operand, b: Operand) -> Expr:
    """a ≠ b; true if either is NaN."""
    return binary("ne", a, b)


def scale(a: Operand, n: Expr) -> Expr:
    """a · 2^n, rounded once; n is an integer as a float, |n| < 250 for float32 and 2000 for float64, or NaN."""
    return binary("scale", a, n)


def copysign(a: Operand, b: Operand) -> Expr:
    """|a| with the sign of b."""
    return binary("copysign", a, b)


def sqrt(a: Expr) -> Expr:
    """The square root, correctly rounded; NaN below 0."""
    return unary("sqrt", a)


def absolute(a: Expr) -> Expr:
    """|a|; the smallest integer gives itself."""
    return a if a.dtype in UNSIGNED else unary("abs", a)


def select(condition: Expr, a: Operand, b: Operand) -> Expr:
    """a if the condition is true, else b."""
    return _choice("select", condition, a, b)


def rarely(condition: Expr, a: Operand, b: Operand) -> Expr:
    """``select`` with a condition that is rarely true: nodes that only ``a`` uses are computed in a branch."""
    return _choice("rarely", condition, a, b)


def where_flushed(condition: Expr, a: Operand, b: Operand) -> Expr:
    """b, whose steps may be denormal. On targets that flush such numbers, a where the condition is true: the same value without
    denormal steps, or with fewer."""
    return _choice("where_flushed", condition, a, b)


def _choice(op: str, condition: Expr, a: Operand, b: Operand) -> Expr:
    x, y = _both(a, b)
    if condition.dtype != "bool" or x.dtype != y.dtype:
        raise TypeError(f"{op} takes a bool and two operands of one dtype. Received: {condition.dtype}, {x.dtype}, {y.dtype}")
    if condition.op == "const":
        return x if condition.value else y
    return x if x is y else node(op, x.dtype, (condition, x, y))


def cast(a: Expr, dtype: str) -> Expr:
    """The value as another dtype: float → int truncates and saturates, int → int wraps, and to bool is a test for non-zero."""
    if a.dtype == _checked(dtype):
        return a
    if dtype == "bool":
        return ne(a, 0)
    return _simplified("cast", dtype, (a,))


def bitcast(a: Expr, dtype: str) -> Expr:
    """The same bits read as another dtype of the same width."""
    if BITS[_checked(dtype)] != BITS[a.dtype]:
        raise TypeError(f"bitcast keeps the width. Received: {a.dtype} to {dtype}")
    if a.op == "bitcast":
        a = a.args[0]
    return a if a.dtype == dtype else _simplified("bitcast", dtype, (a,))


def gather(place: int, dtype: str, position: Expr) -> Expr:
    """The element at an offset of ``position`` (int64) elements from the one that ``load`` reads. With strides of 0, that is an
    offset from the operand's first element."""
    if position.dtype != "int64":
        raise TypeError(f"a position is int64. Received: {position.dtype}")
    return node("gather", _checked(dtype), (position,), place)


def bounded(position: Expr, size: int, check: int) -> Expr:
    """An index (int64) into ``size`` > 0 elements, counted from the end if negative. An index out of range is clamped, and
    reported as a fault of the kernel's check ``check``."""
    if position.dtype != "int64" or size <= 0 or check < 0:
        raise TypeError(f"an index is int64, into at least one element. Received: {position.dtype}, {size}, {check}")
    return node("bounded", "int64", (position,), f"{size}:{check}")


def local(name: str, dtype: str) -> Expr:
    """The value of a name in a kernel (``compiler.kernel``): a local variable, a run-time argument or the item's index."""
    return node("local", _checked(dtype), (), name)


def element(array: str, dtype: str, at: Expr) -> Expr:
    """Element ``at`` of a kernel's array (``compiler.kernel``), loaded when its statement is executed.

    The index is int64; int32 in kernels that are legalized.
    """
    if at.dtype not in ("int64", "int32"):
        raise TypeError(f"the index of an element is int64 or int32. Received: {at.dtype}")
    return node("element", _checked(dtype), (at,), array)


def whole_number(at: Expr) -> Expr:
    """An index of any integer dtype as int64. Larger uint64 numbers become the largest int64, which exceeds any axis."""
    return cast(minimum(at, const((1 << 63) - 1, "uint64")) if at.dtype == "uint64" else at, "int64")


def philox(key: Sequence[Expr], position: Expr) -> Expr:
    """Word ``position`` (int64) of a random stream, uint32; ``key`` is its four uint32 words. See ``ops.philox_word``."""
    if [k.dtype for k in key] != ["uint32"] * 4 or position.dtype != "int64":
        raise TypeError(f"random words take four uint32 words and an int64 position. Received: {[*key, position]}")
    return node("philox", "uint32", (*key, position))


def reduce(kind: str, a: Expr) -> Expr:
    """The ``sum``, ``prod``, or NaN-propagating ``max`` or ``min`` of ``a`` over all elements of the row. Row kernels only."""
    if kind not in REDUCTIONS or a.dtype == "bool":
        raise TypeError(f"reduce takes one of {', '.join(REDUCTIONS)} and numbers. Received: {kind!r}, {a.dtype}")
    return node("reduce", a.dtype, (a,), kind)


def polynomial(x: Expr, coefficients: Iterable[float]) -> Expr:
    """c0 + c1·x + c2·x² + … by Horner's rule, with fused multiply-adds if the target has them."""
    rest = list(coefficients)
    out: Expr = const(rest.pop(), x.dtype)
    while rest:
        out = muladd(out, x, rest.pop())
    return out


def _simplified(op: str, dtype: str, args: tuple[Expr, ...]) -> Expr:
    """Constant folding, and identities that hold for all values, including NaN and signed zeros."""
    if args[-1].op == "const" and all(a.op == "const" for a in args):
        from firebrick.scalar.interpret import apply

        out = apply(op, dtype, [np.asarray(a.value, a.dtype) for a in args], None)
        return const(out.item(), dtype)
    if len(args) == 2 and args[1].op == "const":
        a, value = args[0], args[1].value
        zero = isinstance(value, (int, float)) and value == 0 and math.copysign(1.0, value) > 0  # x - (-0.0) is 0.0 for -0.0
        if (op in ("mul", "div") and value == 1) or (op in ("sub", "shl", "shr") and zero):
            return a
        if a.dtype in INTEGERS and op in ("add", "or", "xor") and value == 0:
            return a
    return node(op, dtype, args)


def walk(roots: Iterable[Expr]) -> tuple[Expr, ...]:
    """All nodes of ``roots`` in topological order, operands first."""
    return _walked(tuple(roots))


@lru_cache(maxsize=256)  # several analyses walk through the expressions of each statement, one after the other
def _walked(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    out: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[Expr | None] = list(roots)
    stack.reverse()
    while stack:
        at = stack.pop()
        if at is None:  # the operands of the node below it are done
            out.append(stack.pop())  # type: ignore[arg-type]
        elif at not in seen:
            seen.add(at)
            if at.args:
                stack += (at, None, *at.args[::-1])
            else:
                out.append(at)
    return tuple(out)


Rule = Callable[[Expr, tuple[Expr, ...]], Expr]
"""(node, rewritten operands) → its replacement."""


def rewritten(roots: Sequence[Expr], rule: Rule) -> list[Expr]:
    """Expressions with each node replaced by the result of a rule, operands first."""
    out: dict[Expr, Expr] = {}
    for e in walk(roots):
        out[e] = rule(e, tuple(map(out.__getitem__, e.args)))
    return [out[r] for r in roots]


def rebuilt(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same node with other operands."""
    return e if args == e.args else node(e.op, e.dtype, args, e.value)


def limits(dtype: str) -> tuple[int, int]:
    """The smallest and the largest integer of a dtype, or of bool."""
    bits = BITS[dtype]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)
