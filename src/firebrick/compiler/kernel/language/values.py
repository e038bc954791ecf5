"""What an expression of a kernel's function stands for while the function is translated, and operations on that.

An operation is one of the op table, so a kernel computes what the same function of tensors does. Python's numbers are weak:
they take the dtype of what they are combined with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType, bool_, dtype, float32, int64, promote, scalar_fits
from firebrick.core.op import KINDS, Op, Operand
from firebrick.ops.table import OPS
from firebrick.scalar.expr import Expr, cast, const

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Weak:
    """A number that is known when the kernel is compiled, without a dtype of its own."""

    value: Number


@dataclass(frozen=True, slots=True)
class Open:
    """A value whose dtype is not decided yet: of a variable that only Python numbers were assigned to so far, or one of two
    numbers by a condition.

    Attributes:
        expr: The value in some dtype.
        kind: bool, int or float.
        choice: Of one of two numbers: the condition, and both, so that neither is rounded to the dtype of ``expr``.
    """

    expr: Expr
    kind: type
    choice: tuple[Expr, Weak | Open, Weak | Open] | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A Python object, such as a module or a function."""

    value: Any


@dataclass(frozen=True, slots=True)
class ArrayValue:
    """An array.

    Attributes:
        name: In the kernel.
        dtype: Of its elements.
        sizes: Of its axes, int64.
        role: ``In``, ``Out``, ``InOut`` or ``shared``.
    """

    name: str
    dtype: DType
    sizes: tuple[Expr, ...]
    role: str


@dataclass(frozen=True, slots=True)
class Registers:
    """An array of variables, whose indices are known when the kernel is compiled.

    Attributes:
        name: What the variables' names begin with.
        shape: Of the array.
    """

    name: str
    shape: tuple[int, ...]


Value = Expr | Weak | Open | Held | ArrayValue | Registers | tuple[Any, ...]
"""What an expression stands for."""

WEAK_DTYPES: dict[type, DType] = {bool: bool_, int: int64, float: float32}
"""The dtype of a variable that only Python numbers are assigned to."""


class Misfit(Exception):
    """An operation does not take its operands: what is expected, what was received, and what to do."""

    def __init__(self, expected: str, received: str, remedy: str) -> None:
        super().__init__(expected, received, remedy)
        self.texts = expected, received, remedy


def shown(v: Any) -> str:
    """A value for messages."""
    match v:
        case Expr():
            return v.dtype
        case Weak():
            return f"{type(v.value).__name__} {v.value!r}"
        case Open():
            return v.kind.__name__
        case ArrayValue():
            return f"the array {v.name}"
        case Registers():
            return f"registers of shape {v.shape}"
        case Held():
            return f"{v.value!r}"[:80]
        case tuple():
            return f"a tuple of {len(v)}"
    return repr(v)[:80]


def counted(n: int, noun: str) -> str:
    """A number with its noun: ``1 axis``, ``2 axes``."""
    plural = {"axis": "axes", "index": "indices"}.get(noun, f"{noun}s")
    return f"{n} {noun if n == 1 else plural}"


def number(v: Number, to: DType) -> Expr:
    """A Python number in a dtype.

    Raises:
        Misfit: The dtype does not hold it.
    """
    if not scalar_fits(v, to):
        raise Misfit(
            f"a Python number takes the dtype of what it is combined with, {to.name}", f"{type(v).__name__} {v!r}",
            f"write {v:d} for {v}" if isinstance(v, bool)
            else f"cast the other operand: fb.{'float32' if isinstance(v, float) else 'int64'}(…)",
        )  # fmt: skip
    if isinstance(v, int) and to.kind in ("int", "uint") and int(np.array(0, to.np).item()) == 0:
        info = np.iinfo(to.np)
        if not info.min <= v <= info.max:
            raise Misfit(f"a Python number fits {to.name}", repr(v), f"write a number from {info.min} to {info.max}")
    return const(v, to.name)


def check_number(v: Value, to: DType) -> None:
    """Check that Python numbers fit a dtype.

    Raises:
        Misfit: They do not.
    """
    match v:
        case Weak():
            number(v.value, to)
        case Open(choice=(_, a, b)):
            check_number(a, to)
            check_number(b, to)
        case Open():
            number(_LIKE[v.kind], to)


def as_dtype(v: Value, to: DType) -> Expr:
    """A number in a dtype, cast if it has another one."""
    match v:
        case Weak():
            if to.kind == "bool":
                return const(bool(v.value), "bool")
            held = v.value if to.kind == "float" or not isinstance(v.value, float) else int(v.value)
            return const(held, to.name)
        case Open(choice=(test, a, b)):
            return OPS["where"].scalar(test, as_dtype(a, to), as_dtype(b, to))  # type: ignore[misc, no-any-return]
        case Open():
            return cast(v.expr, to.name)
        case Expr():
            return _cast(v, to)
    raise Misfit("a number", shown(v), "cast numbers only")


def _cast(e: Expr, to: DType) -> Expr:
    return e if e.dtype == to.name else OPS["cast"].scalar(e, dtype=to)  # type: ignore[misc]


_NUMBERS = frozenset({Expr, Weak, Open})
_LIKE: dict[type, Number] = {bool: True, int: 1, float: 0.5}
"""A number of each kind."""

Origins = dict[Expr, tuple[str, tuple[Expr, ...]]]
"""Of expressions of a kernel, the operation that each is a result of, and its operands."""


def apply(op: Op, operands: Sequence[Value], origins: Origins | None = None, **params: Any) -> Value:
    """The result of an elementwise operation.

    Args:
        op: Operation.
        operands: Numbers.
        origins: Where the result's origin is noted.
        **params: The operation's.

    Raises:
        Misfit: It does not take these operands.
    """
    types = set(map(type, operands))
    if not types <= _NUMBERS:
        v = next(v for v in operands if type(v) not in _NUMBERS)
        remedy = {ArrayValue: "index the array: x[i]", tuple: "unpack the tuple: i, j = …"}.get(type(v), "pass numbers")
        raise Misfit(f"{op.name} takes numbers", shown(v), remedy)
    if types == {Weak}:
        return _folded(op, [v.value for v in operands if isinstance(v, Weak)], params)
    common: dict[str | int, DType] = {}
    declared, groups = _declared(op, len(operands))
    for group, v in zip(groups, operands, strict=True):
        if isinstance(v, Expr):
            common[group] = _common(op, common.get(group), dtype(v.dtype), operands)
    for group, o in zip(groups, declared, strict=True):
        if group not in common:  # python's numbers only
            members = [w for g, w in zip(groups, operands, strict=True) if g == group]
            kinds = [type(w.value) if isinstance(w, Weak) else w.kind for w in members if isinstance(w, Weak | Open)]
            kind = float if float in kinds or o.kind in ("floating", "inexact") else int if int in kinds else bool
            common[group] = WEAK_DTYPES[kind]
    exprs = []
    for i, (group, o, v) in enumerate(zip(groups, declared, operands, strict=True)):
        to = common[group]
        if to.kind not in KINDS[o.kind]:
            received = f"{op.operands[i].name}: {shown(v)}"
            raise Misfit(f"{op.name} takes {_KINDS[o.kind]}", received, _remedy(op, to, o.kind))
        if isinstance(v, Expr):
            exprs.append(_cast(v, to))
        else:
            check_number(v, to)
            exprs.append(as_dtype(v, to))
    assert op.scalar is not None
    made: Expr = op.scalar(*exprs, **params)
    if origins is not None and made.args and made not in exprs:  # not one of the operands, as of x + 0
        origins.setdefault(made, (op.name, tuple(exprs)))
    if Open in types and Expr not in types and made.dtype != "bool":
        return Open(made, {"bool": bool, "int": int, "uint": int, "float": float}[dtype(made.dtype).kind])
    return made


@lru_cache(maxsize=1024)
def _declared(op: Op, count: int) -> tuple[list[Operand], list[str | int]]:
    """The declarations of operands, and the group of each, or its number."""
    declared = [op.operand(i) for i in range(count)]
    return declared, [o.group or i for i, o in enumerate(declared)]


def _common(op: Op, a: DType | None, b: DType, operands: Sequence[Value]) -> DType:
    if a is None or a is b:
        return b
    found = promote(a, b)
    if found is None:
        raise Misfit(
            f"the operands of {op.name} have a common dtype", f"{a.name} and {b.name}, which have none",
            f"cast one of them, for example fb.{a.name if a.kind == 'float' else b.name}(…)",
        )  # fmt: skip
    return found


_KINDS = {
    "comparable": "numbers and bools", "numeric": "numbers other than bools", "real": "numbers other than bools",
    "inexact": "floats", "floating": "floats", "complex": "complex numbers", "integer": "integers",
    "bits": "integers and bools", "bool": "bools",
}  # fmt: skip
"""What operands of each kind are, in kernels."""


def _remedy(op: Op, to: DType, kind: str) -> str:
    if op.name == "divide":
        return "write a // b for whole numbers, or cast: fb.float32(a) / b"
    if kind == "bool":
        return "compare: x != 0"
    if to.kind == "bool":
        return "cast it: fb.int32(x)"
    return f"cast it: fb.{'float32' if kind in ('floating', 'inexact', 'numeric', 'real') else 'int64'}(x)"


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b, "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b, "pow": lambda a, b: a**b, "negative": lambda a: -a,
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_invert": lambda a: ~a, "bitwise_left_shift": lambda a, b: a << b, "bitwise_right_shift": lambda a, b: a >> b,
    "abs": abs, "minimum": min, "maximum": max,
    "logical_not": lambda a: not a, "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b),
    "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b, "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b,
    "floor": lambda a: float(np.floor(a)) if isinstance(a, float) else a,
}  # fmt: skip


def _folded(op: Op, numbers: list[Number], params: dict[str, Any]) -> Weak:
    """An operation on Python numbers, as Python computes it."""
    try:
        if op.name in _FOLDED and not params:
            found = _FOLDED[op.name](*numbers)
        else:
            found = np.asarray(op.reference(*(np.asarray(n, np.float64) for n in numbers), **params)).item()
    except (ArithmeticError, TypeError, ValueError) as e:
        raise Misfit(
            f"{op.name} of Python numbers has a value", f"{', '.join(map(repr, numbers))}: {e}", "correct them"
        ) from None
    if isinstance(found, complex) or not isinstance(found, bool | int | float):
        raise Misfit(f"{op.name} of Python numbers is a real number", repr(found), "correct them")
    return Weak(found)
