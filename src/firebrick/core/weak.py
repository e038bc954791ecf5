"""``Weak``: a Python or NumPy number that a traced function got as an argument, so that another number runs the same graph.

It behaves as the number would when combined with tensors: it takes their dtype. Arithmetic of such numbers among themselves is
kept as an expression, which Python (or NumPy, for its scalars) computes at every call. An operation that needs the number
itself (``if``, ``range``, a shape) raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firebrick.core.dtypes import python_kind, python_scalar
from firebrick.core.errors import DataDependentError
from firebrick.core.hooks import hooks

Numbers = Sequence[Any]
# NumPy's own scalar types of real numbers. Their C code tests the type that an object really has, so a ``Weak`` that shows
# such a type as its ``__class__`` is never read as one. A type of another extension (``ml_dtypes.bfloat16``) may trust
# ``__class__`` and read the memory of what it takes for its own, so a ``Weak`` never shows it.
_NUMPY = frozenset(np.dtype(code).type for code in np.typecodes["AllInteger"] + np.typecodes["Float"])
# what each scalar of one NumPy type has in common with the others
_OF_TYPE = ("dtype", "device", "shape", "ndim", "size", "itemsize", "nbytes", "strides")


class Weak:
    """A number that is known when the graph runs.

    Args:
        kind: The type of the number, one that ``number_kind`` knows: ``int``, ``float``, or a scalar type of NumPy itself.
        name: What the user calls it.
        value: Function of the call's numbers that gives it.
        arguments: The arguments of the traced function that it is made of.
    """

    __slots__ = ("arguments", "kind", "name", "value")

    def __init__(
        self, kind: type, name: str, value: Callable[[Numbers], Any], arguments: tuple[str, ...] | None = None
    ) -> None:
        self.kind, self.name, self.value = kind, name, value
        self.arguments = (name.partition("[")[0],) if arguments is None else arguments

    @property
    def python(self) -> Weak:
        """The Python number that this one is treated as when combined with a tensor: itself, unless it is NumPy's."""
        kind = number_kind(self.kind)
        if kind is self.kind or kind is None:
            return self
        return Weak(kind, self.name, lambda numbers: python_scalar(self.value(numbers)), self.arguments)

    def unknown(self, what: str) -> DataDependentError:
        """The error for what needs the number now."""
        static = self.arguments[0] if len(self.arguments) == 1 else self.arguments
        error = DataDependentError(
            f"{what} needs the number {self.name} while the graph is made",
            f"{self.name}, a {self._library} {self.kind.__name__} that may differ from call to call",
            f"pass static_argnames={static!r} to jit: each value then gets a graph of its own",
        )
        trace = hooks.trace()
        if trace is not None:
            trace.root.refused = error
        return error

    @property
    def _library(self) -> str:
        return "NumPy" if issubclass(self.kind, np.generic) else "Python"

    @property  # type: ignore[misc]  # of every class mypy thinks that it may be set
    def __class__(self) -> type:
        """The number's type, so that ``isinstance`` answers as it does without jit."""
        return self.kind

    def __getattr__(self, name: str) -> Any:
        if name in _OF_TYPE and issubclass(self.kind, np.generic):
            return getattr(self.kind(0), name)
        if hasattr(self.kind, name):
            raise self.unknown(f".{name}")
        raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        """A function of NumPy of numbers, such as ``np.sqrt(n)`` or ``np.float32(2) * n``: computed at each call, as it is."""
        if any(hasattr(v, "storage") for v in inputs):
            return NotImplemented
        numbers = all(_counts_as(v, int, float) for v in inputs)
        if method != "__call__" or settings or ufunc.nout != 1 or not numbers:
            raise self.unknown(f"np.{ufunc.__name__}")
        made = _of(ufunc, f"{ufunc.__name__} ", *inputs)
        if not issubclass(made.kind, np.generic):  # it gives a bool, which decides something
            raise self.unknown(f"np.{ufunc.__name__}")
        return made

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise self.unknown("a NumPy array")

    def __bool__(self) -> bool:
        raise self.unknown("if, while, and, or, not")

    def __index__(self) -> int:
        raise self.unknown("a size, an index or range()")

    def __int__(self) -> int:
        raise self.unknown("int()")

    def __float__(self) -> float:
        raise self.unknown("float() or a function of math")

    def __complex__(self) -> complex:
        raise self.unknown("complex()")

    def __hash__(self) -> int:
        raise self.unknown("a set or a key of a dict")

    def __repr__(self) -> str:
        return f"<{self.kind.__name__} {self.name}, not known yet: see static_argnames>"

    def __neg__(self) -> Weak:
        return _of(operator.neg, "-", self)

    def __pos__(self) -> Weak:
        return self

    def __abs__(self) -> Weak:
        return _of(operator.abs, "abs ", self)

    def __invert__(self) -> Weak:
        return _of(operator.invert, "~", self)

    def __trunc__(self) -> Weak:
        return _of(math.trunc, "trunc ", self)

    def __floor__(self) -> Weak:
        return _of(math.floor, "floor ", self)

    def __ceil__(self) -> Weak:
        return _of(math.ceil, "ceil ", self)

    def __round__(self, digits: int | None = None) -> Weak:
        return _of(lambda v: round(v, digits), "round ", self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __format__(self, spec: str) -> str:
        return repr(self)  # in print there is no value to format


def number_kind(kind: type) -> type | None:
    """``int`` or ``float`` for the type of a number that a graph reads at each call, Python's or NumPy's own; else None."""
    if kind in _NUMPY:
        return int if issubclass(kind, np.integer) else float
    return kind if kind in (int, float) else None


def weak_scalar(value: Any) -> Any:
    """A NumPy scalar, also one of a traced call, as the Python number that it counts as; anything else as it is."""
    return value.python if type(value) is Weak else python_scalar(value)


def _of(fn: Callable[..., Any], sign: str, *parts: Any) -> Weak:
    values = [p.value if isinstance(p, Weak) else (lambda numbers, p=p: p) for p in parts]
    names = [p.name if isinstance(p, Weak) else repr(p) for p in parts]
    probe = [p.kind(3 if number_kind(p.kind) is int else 1.5) if isinstance(p, Weak) else p for p in parts]
    try:
        with np.errstate(all="ignore"):
            kind: type = type(fn(*probe))
    except ArithmeticError:  # a division by zero, which each run meets too
        kind = float
    if issubclass(kind, np.generic) and python_kind(kind) in (int, float) and not number_kind(kind):
        number = next(p for p in parts if isinstance(p, Weak))
        raise number.unknown(f"arithmetic that gives a {kind.__module__}.{kind.__name__}")
    name = f"({names[0]} {sign} {names[1]})" if len(names) == 2 else f"({sign}{names[0]})"
    arguments = tuple(dict.fromkeys(a for p in parts if isinstance(p, Weak) for a in p.arguments))
    return Weak(kind if number_kind(kind) else float, name, lambda numbers: fn(*(v(numbers) for v in values)), arguments)


def _counts_as(other: Any, *kinds: type) -> bool:
    """Whether it is a number of these Python types, another ``Weak`` or a NumPy scalar that counts as one."""
    return isinstance(other, kinds) or (isinstance(other, np.generic) and python_kind(other.__class__) in {*kinds, bool})


def _binary(name: str, fn: Callable[[Any, Any], Any], sign: str) -> None:
    def forward(self: Weak, other: Any) -> Any:
        if _counts_as(other, int, float):
            return _of(fn, sign, self, other)
        if _counts_as(other, complex):
            raise self.unknown("arithmetic with a complex number")
        return NotImplemented

    def reflected(self: Weak, other: Any) -> Any:
        if _counts_as(other, int, float):
            return _of(fn, sign, other, self)
        if _counts_as(other, complex):
            raise self.unknown("arithmetic with a complex number")
        return NotImplemented

    setattr(Weak, f"__{name}__", forward)
    setattr(Weak, f"__r{name}__", reflected)


for _name, _fn, _sign in (
    ("add", operator.add, "+"), ("sub", operator.sub, "-"), ("mul", operator.mul, "*"), ("truediv", operator.truediv, "/"),
    ("floordiv", operator.floordiv, "//"), ("mod", operator.mod, "%"), ("pow", operator.pow, "**"),
    ("and", operator.and_, "&"), ("or", operator.or_, "|"), ("xor", operator.xor, "^"), ("lshift", operator.lshift, "<<"),
    ("rshift", operator.rshift, ">>"),
):  # fmt: skip
    _binary(_name, _fn, _sign)


def _compared(name: str) -> None:
    def compare(self: Weak, other: Any) -> Any:
        if hasattr(other, "storage"):
            return NotImplemented  # the tensor's own comparison
        raise self.unknown("a comparison")

    setattr(Weak, f"__{name}__", compare)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compared(_name)


def as_tensor(number: Weak, dtype: Any, device: Any) -> Any:
    """The number as a 0-d tensor of a dtype, in the running trace."""
    trace = hooks.trace()
    if trace is None:
        raise number.unknown("a function outside the trace")
    return trace.weak(number, dtype, device)
