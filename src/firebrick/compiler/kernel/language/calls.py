"""Calls in kernels: operations of the op table, casts, built-in functions, and helper functions, which are inlined."""

from __future__ import annotations

import ast
import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from firebrick.compiler.kernel.language.built_in import BUILT_IN
from firebrick.compiler.kernel.language.expressions import Expressions
from firebrick.compiler.kernel.language.homes import Body, body_of
from firebrick.compiler.kernel.language.outside import plain
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.values import ArrayValue, Held, Misfit, Open, Value, Weak, as_dtype, counted, shown
from firebrick.compiler.kernel.language.writing import Frame
from firebrick.core.dtypes import DType, dtype, float32, int64
from firebrick.core.errors import UnsupportedError
from firebrick.ops.table import OPS
from firebrick.scalar import elements
from firebrick.scalar.expr import Expr, rebuilt, rewritten, walk
from firebrick.scalar.storage import STORAGE, computed

_MOST_CALLS = 50


class HelperFunction:
    """A function that kernels call: ``@fb.kernel.function``. Its body becomes part of the kernel.

    Args:
        function: Python function, whose parameters take any values of a kernel, arrays among them.
    """

    __jit_through__ = "function"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.source = Source(function)
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self.__wrapped__, self.__module__, self.__qualname__ = function, function.__module__, function.__qualname__

    def __reduce__(self) -> str:
        """Copies are the function itself, and pickles its name."""
        return str(self.__qualname__)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The Python function itself, on numbers: for tests of it."""
        return self.function(*args, **named)


@dataclass(frozen=True, slots=True)
class InlinedExpression:
    """A scalar expression that kernels call like a function: operand k is its leaf ``load(k)``.

    Attributes:
        name: For messages.
        expr: Expression, without other leaves than constants.
    """

    name: str
    expr: Expr

    def __call__(self, *operands: Any) -> Any:
        """Kernels call it; Python does not."""
        raise UnsupportedError(f"{self.name} is called by kernels", "a call outside of a kernel", "evaluate the expression")

    def of(self, operands: Sequence[Value]) -> Expr:
        """The expression of operands, which are cast to the dtypes of the leaves.

        Raises:
            Misfit: There are fewer operands than leaves.
        """
        count = 1 + max((int(e.value or 0) for e in walk([self.expr]) if e.op == "load"), default=-1)
        if len(operands) < count:
            raise Misfit(f"{self.name} has {count} operands", str(len(operands)), "correct the call")

        def leaf(e: Expr, args: tuple[Expr, ...]) -> Expr:
            return as_dtype(operands[int(e.value or 0)], dtype(e.dtype)) if e.op == "load" else rebuilt(e, args)

        return rewritten([self.expr], leaf)[0]


@dataclass(frozen=True, slots=True)
class IndexedFunction:
    """A function of numbers and of elements of arrays. Kernels call it with a number or a tuple of them, a tuple of arrays, and
    indices.

    Attributes:
        function: Called with the numbers, and one element of each array.
        axes: For each axis of each array, which of the indices is its own.
    """

    function: HelperFunction | InlinedExpression
    axes: tuple[tuple[int, ...], ...] = ()

    def __call__(self, *operands: Any) -> Any:
        """Kernels call it; Python does not."""
        raise UnsupportedError("a kernel calls this function", "a call outside of a kernel", "call the function in it")


class Calls(Expressions):
    """Translates calls; see ``Expressions``."""

    def __init__(self, unchecked: bool) -> None:
        super().__init__(unchecked)
        self._depth = 0
        self._result: Value = Weak(0)
        self._signatures: dict[Any, inspect.Signature] = {}

    @abstractmethod
    def enter(self, frame: Frame, body: Body) -> None:
        """Note the homes of a function's variables."""

    @abstractmethod
    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Translate a block."""

    def _call(self, node: ast.Call, used: bool = True) -> Value:
        callee = self.value(node.func)
        if not isinstance(callee, Held):
            self.refuse(
                node, "functions are called", shown(callee), "call a function of firebrick, math or @fb.kernel.function"
            )
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse(node, "arguments are written one by one", "*", "write them")
        f = callee.value
        if isinstance(f, HelperFunction):
            given = self.arguments(node, f.function)
            return self._inlined(node, f, dict(zip(given, self.values(list(given.values())), strict=True)), used)
        if isinstance(f, InlinedExpression):
            return f.of(self.values(node.args))
        if isinstance(f, IndexedFunction):
            return self._indexed(node, f)
        rule = BUILT_IN.get(f) if _hashable(f) else None
        if rule is not None:
            return rule(self, node, self.arguments(node, f), used)
        return self._operation(node, f)

    def arguments(self, node: ast.Call, f: Callable[..., Any]) -> dict[str, ast.expr]:
        """The arguments of a call by the names of the parameters."""
        try:
            bound = self._signature(f).bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})
        except TypeError as e:
            names = ", ".join(self._signature(f).parameters)
            self.refuse(node, f"{f.__name__} has the parameters {names or 'none'}", str(e), "correct the arguments")
        return dict(bound.arguments)

    def _signature(self, f: Callable[..., Any]) -> inspect.Signature:
        """The parameters of a function, which a loop that is written out may call thousands of times."""
        found = self._signatures.get(f)
        if found is None:
            found = self._signatures[f] = inspect.signature(f)
        return found

    def _indexed(self, node: ast.Call, f: IndexedFunction) -> Value:
        numbers, arrays, at = self.values(node.args)
        assert isinstance(arrays, tuple)
        assert isinstance(at, tuple)
        operands = list(numbers) if isinstance(numbers, tuple) else [numbers]
        for array, axes in zip(arrays, f.axes, strict=True):
            operands.append(self.element_of(node, array, [self.as_integer(node, at[a], "an index") for a in axes]))
        if isinstance(f.function, InlinedExpression):
            return f.function.of(operands)
        names = list(self._signature(f.function.function).parameters)
        if len(names) != len(operands):
            self.refuse(
                node, f"{f.function.__name__} has a parameter for an element and {counted(len(arrays), 'operand')}",
                ", ".join(names) or "none", "write a parameter for each",
            )  # fmt: skip
        return self._inlined(node, f.function, dict(zip(names, operands, strict=True)), True)

    def _inlined(self, node: ast.Call, f: HelperFunction, given: dict[str, Value], used: bool) -> Value:
        if self._depth >= _MOST_CALLS:
            self.refuse(node, "functions of kernels do not call themselves", f.__name__, "write a loop")
        outer, line = self.frame, self.line
        frame = Frame(f.source, (*outer.path, getattr(node, "lineno", 0), getattr(node, "col_offset", 0)), {})
        for name, p in self._signature(f.function).parameters.items():
            if name in given:
                frame.names[name] = self.settled(given[name], name)
            else:
                frame.names[name] = self.constants_of(plain(p.default))
        body = body_of(f.source, True)
        returns = bool(body.statements) and isinstance(body.statements[-1], ast.Return)
        if used and not returns:
            self.refuse(node, f"{f.__name__} returns a value", "nothing", "return one, or call it as a statement")
        self.frame, self._result = frame, Weak(0)
        self._depth += 1
        self.enter(frame, body)
        self.statements(body.statements)
        self._depth -= 1
        self.frame, self.line = outer, line
        return self._result

    def returned(self, s: ast.Return) -> None:
        if s.value is not None:
            self._result = self.settled(self.value(s.value), self.frame.source.name)

    def _operation(self, node: ast.Call, f: Any) -> Value:
        """A function of the op table, of math, or of Python."""
        to = f if isinstance(f, DType) else _CASTS.get(f) if _hashable(f) else None
        if to is not None:
            if len(node.args) != 1 or node.keywords:
                self.refuse(node, "a cast has one operand", f"{len(node.args)}", "cast one number")
            return self._cast(node, self.number(node.args[0]), to)
        name = _operation_name(f)
        if name is None:
            self.refuse(
                node, "kernels call elementwise functions of firebrick and math, and those that @fb.kernel.function decorates",
                f"{ast.unparse(node.func)}", _instead(f),
            )  # fmt: skip
        if name == "len":
            of = self.value(node.args[0]) if len(node.args) == 1 else None
            if not isinstance(of, ArrayValue | tuple):
                self.refuse(node, "the length of an array or tuple", ast.unparse(node), "pass an array")
            return self._size(of.sizes[0]) if isinstance(of, ArrayValue) else Weak(len(of))
        if name == "astype":
            operands = self.values(node.args)
            if len(operands) != 2 or not isinstance(operands[1], Held) or not isinstance(operands[1].value, DType):
                self.refuse(node, "a number and a dtype", ast.unparse(node), "write fb.astype(x, fb.float32)")
            return self._cast(node, operands[0], operands[1].value)
        op = OPS[name]
        if node.keywords:
            self.refuse(
                node, f"{name} has no keyword arguments in kernels", node.keywords[0].arg or "**", "write the operands only"
            )
        operands = self.values(node.args)
        if name in ("minimum", "maximum") and f in (min, max) and len(operands) > 2:
            out = operands[0]
            for v in operands[1:]:
                out = self.apply(name, out, v)
            return out
        if len(operands) != len(op.operands):
            self.refuse(node, f"{name} has {counted(len(op.operands), 'operand')}", str(len(operands)), "correct the call")
        return self.apply(name, *operands)

    def _cast(self, node: ast.AST, v: Value, to: DType) -> Value:
        if to.name not in STORAGE:
            self.refuse(node, f"a dtype of kernels: {', '.join(STORAGE)}", to.name, "cast to one of these")
        if not isinstance(v, Expr | Weak | Open):
            self.refuse(node, "a number is cast", shown(v), "cast an element or a variable")
        if to.name != computed(to.name):  # rounded to half precision, as which it is stored
            wide = as_dtype(v, float32)
            return elements.to_dtype(wide, dtype=to)
        return as_dtype(v, to)


def _hashable(f: Any) -> bool:
    try:
        hash(f)
    except TypeError:
        return False
    return True


_CASTS: dict[Any, DType] = {int: int64, float: float32, bool: dtype("bool")}
_BUILTINS: dict[Any, str] = {abs: "abs", min: "minimum", max: "maximum", round: "round", pow: "pow", len: "len"}
_MATH = {
    "fabs": "abs", "exp": "exp", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "hypot": "hypot", "erf": "erf", "lgamma": "lgamma",
    "copysign": "copysign", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "pow": "pow",
}  # fmt: skip


def _instead(f: Any) -> str:
    """What to write instead of a function that kernels do not call."""
    name, module = getattr(f, "__name__", ""), str(getattr(f, "__module__", ""))
    op = OPS.get(name)
    if module.split(".")[0] in ("numpy", "None", "math") and op is not None and op.kind == "map" and op.scalar is not None:
        return f"write fb.{name}"
    if inspect.isfunction(f) and not module.startswith("firebrick."):
        return f"decorate {name} with @fb.kernel.function"
    if f is print:
        return "remove it, and store the number in an Out array"
    return "write a loop over the elements"


def _operation_name(f: Any) -> str | None:
    """The op that a function is; None if it is none of a kernel's."""
    if _hashable(f) and f in _BUILTINS:
        return _BUILTINS[f]
    name, module = getattr(f, "__name__", ""), str(getattr(f, "__module__", ""))
    if module == "math":
        return _MATH.get(name)
    if not module.startswith("firebrick."):
        return None
    if name == "astype":
        return name
    op = OPS.get(name)
    return name if op is not None and op.scalar is not None and op.kind == "map" and name != "cast" else None
