"""The parameters of a kernel, from the annotations of its function: arrays, numbers and compile-time constants.

Array parameters name their sizes. Equal names are equal sizes, which a launch checks; the sizes of results are integer
expressions of names.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from firebrick.compiler.kernel.language.parsing import parsed
from firebrick.core.dtypes import DType, bool_, dtype_argument, float32, int64
from firebrick.core.errors import FirebrickError, KernelCompileError, ShapeError
from firebrick.scalar.storage import STORAGE

Number = bool | int | float


@dataclass(frozen=True, slots=True)
class Size:
    """A size as an integer expression of names: ``n``, ``16``, ``(n + 255) // 256``.

    Attributes:
        text: The expression.
        names: The names in it.
    """

    text: str
    names: tuple[str, ...]

    @staticmethod
    def of(text: str) -> Size:
        """A size from its text.

        Raises:
            ValueError: The text is no expression of names, integers, ``+``, ``-``, ``*``, ``//``, ``%`` and parentheses.
        """
        try:
            tree = parsed(text.strip(), "eval").body
        except SyntaxError:
            raise ValueError(text) from None
        for x in ast.walk(tree):
            allowed = isinstance(x, ast.BinOp | ast.Name | ast.operator | ast.expr_context)
            if not allowed and not (isinstance(x, ast.Constant) and type(x.value) is int):
                raise ValueError(text)
            if isinstance(x, ast.operator) and not isinstance(x, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod):
                raise ValueError(text)
        return Size(ast.unparse(tree), tuple(dict.fromkeys(x.id for x in ast.walk(tree) if isinstance(x, ast.Name))))

    @property
    def simple(self) -> bool:
        """Whether it is a name or a number."""
        return self.text.isidentifier() or self.text.isdecimal()

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size, for values of its names."""
        return _whole(parsed(self.text, "eval").body, sizes)


def _whole(e: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(e, ast.Constant):
        return int(e.value)  # type: ignore[arg-type]
    if isinstance(e, ast.Name):
        return sizes[e.id]
    assert isinstance(e, ast.BinOp)
    a, b = _whole(e.left, sizes), _whole(e.right, sizes)
    if isinstance(e.op, ast.FloorDiv | ast.Mod) and b == 0:
        raise ShapeError("a size is not divided by 0", ast.unparse(e), "pass arrays for which the divisor is not 0")
    operations: dict[type, Callable[[int, int], int]] = {
        ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__, ast.Mod: int.__mod__,
    }  # fmt: skip
    return operations[type(e.op)](a, b)


def sizes_of(text: str) -> tuple[Size, ...]:
    """The sizes of a shape, separated by commas: ``"n, m"``; empty for no axes."""
    return tuple(Size.of(part) for part in text.split(",")) if text.strip() else ()


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The type of an array parameter.

    Attributes:
        role: ``In``, ``Out`` or ``InOut``.
        dtype: Of its elements; the name of another parameter for the dtype of that; None for that of the argument.
        sizes: Of its axes; None where an ``In`` or ``InOut`` does not name them.
        initial: The value of all elements before the launch, of an ``Out``; None for none.
        unread: Of an ``Out``: the elements that the kernel does not store are not read by anything. They are 0 where operations
            run one by one, and may be anything in programs.
    """

    role: str
    dtype: DType | str | None
    sizes: tuple[Size | None, ...]
    initial: Number | None = None
    unread: bool = False

    @property
    def rank(self) -> int:
        """Number of its axes."""
        return len(self.sizes)


def _array(role: str, item: Any) -> ArrayType:
    parts = item if isinstance(item, tuple) else (item,)
    example = f'fb.kernel.{role}[fb.float32, "n, m"]'

    def refuse(expected: str, received: Any) -> NoReturn:
        raise KernelCompileError(f"fb.kernel.{role}[…]: {expected}", repr(received), f"write it like {example}")

    if not 2 <= len(parts) <= (3 if role == "Out" else 2):
        refuse("a dtype and the sizes" + (", and for some a first value" if role == "Out" else ""), item)
    of, shape = parts[:2]
    if of is None and role == "Out":
        refuse("a result has a dtype, or the name of the parameter that has the same", of)
    found: DType | str | None = of
    if of is not None and not (isinstance(of, str) and of not in STORAGE):
        found = dtype_argument(f"fb.kernel.{role}", of)
        if found.name not in STORAGE:
            refuse(f"the elements of an array are {', '.join(STORAGE)}", found.name)
    sizes: tuple[Size | None, ...]
    if type(shape) is int and shape >= 0 and role != "Out":
        sizes = (None,) * shape
    elif isinstance(shape, str):
        try:
            sizes = named = sizes_of(shape)
        except ValueError:
            refuse("sizes are names, or integer expressions of names, separated by commas", shape)
        if role != "Out" and not all(s.simple for s in named):
            refuse("the sizes of an argument are names or integers", shape)
    else:
        refuse("sizes are text" + ("" if role == "Out" else ", or the number of axes"), shape)
    initial = parts[2] if len(parts) == 3 else None
    if initial is not None and not isinstance(initial, bool | int | float):
        refuse("a first value is a Python number", initial)
    return ArrayType(role, found, sizes, initial)


class In:
    """An array that a kernel reads: ``In[dtype, sizes]``.

    The dtype is one of Firebrick's, or None for that of the argument. The sizes are names, separated by commas, or the number
    of axes.

    Example:
        >>> import firebrick as fb
        >>> fb.kernel.In[fb.float32, "n, m"].rank
        2
    """

    def __class_getitem__(cls, item: Any) -> Any:
        return _array("In", item)


class Out:
    """An array that a kernel writes and a call returns: ``Out[dtype, sizes]``, or ``Out[dtype, sizes, value]`` if all elements
    have a value before.

    The dtype is one of Firebrick's, or the name of a parameter that has the same. The sizes are integer expressions of names.

    Example:
        >>> import firebrick as fb
        >>> fb.kernel.Out["x", "n // 2"].rank
        1
    """

    def __class_getitem__(cls, item: Any) -> Any:
        return _array("Out", item)


class InOut:
    """An array that a kernel changes: ``InOut[dtype, sizes]``. A call returns the changed array; its argument stays as it is.

    Example:
        >>> import firebrick as fb
        >>> fb.kernel.InOut[fb.float32, 1].rank
        1
    """

    def __class_getitem__(cls, item: Any) -> Any:
        return _array("InOut", item)


class Constant:
    """A number or dtype that is known when a kernel is compiled; each value has code of its own: ``Constant[int]``.

    Example:
        >>> import firebrick as fb
        >>> fb.kernel.Constant[int].kind.__name__
        'int'
    """

    kinds: ClassVar[tuple[type, ...]] = (bool, int, float, DType)

    def __class_getitem__(cls, item: Any) -> Any:
        if item not in cls.kinds:
            raise KernelCompileError(
                "fb.kernel.Constant[…]: bool, int, float or DType", repr(item), "write fb.kernel.Constant[int]"
            )
        return ConstantType(item)


@dataclass(frozen=True, slots=True)
class ConstantType:
    """The type of a compile-time constant.

    Attributes:
        kind: bool, int, float or DType.
        least: The smallest value that the kernel is right for; None for any.
    """

    kind: type
    least: int | None = None


@dataclass(frozen=True, slots=True)
class NumberType:
    """The type of a number that is an argument of each call.

    Attributes:
        dtype: None for Python's ``float``: the dtype of the kernel's first floating array, float32 if there is none.
    """

    dtype: DType | None


ParameterType = ArrayType | ConstantType | NumberType


@dataclass(frozen=True, slots=True)
class ArrayTuple:
    """Array parameters that the function has as one tuple.

    Attributes:
        arrays: Name and type of each.
    """

    arrays: tuple[tuple[str, ArrayType], ...]


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel.

    Attributes:
        parameters: Type of each, by name, in order.
        defaults: Values of those that a call may leave out.
        grid: Sizes of the grid.
        tuples: Names of the arrays that the function has as one tuple, by the name of that.
    """

    parameters: dict[str, ParameterType]
    defaults: dict[str, Any]
    grid: tuple[Size, ...]
    tuples: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def arrays(self) -> dict[str, ArrayType]:
        """The array parameters."""
        return {n: p for n, p in self.parameters.items() if isinstance(p, ArrayType)}

    @cached_property
    def results(self) -> dict[str, ArrayType]:
        """The arrays that a call returns."""
        return {n: p for n, p in self.arrays.items() if p.role != "In"}

    @cached_property
    def given(self) -> dict[str, ParameterType]:
        """The parameters that a call has arguments for."""
        return {n: p for n, p in self.parameters.items() if not (isinstance(p, ArrayType) and p.role == "Out")}

    @cached_property
    def static(self) -> tuple[str, ...]:
        """Integer arguments that sizes depend on."""
        names = {n for s in self._sizes() for n in s.names}
        return tuple(n for n, p in self.parameters.items() if isinstance(p, NumberType) and n in names)

    def _sizes(self) -> list[Size]:
        return [*(s for a in self.arrays.values() for s in a.sizes if s is not None), *self.grid]


def size_name(array: str, axis: int, size: Size | None) -> str:
    """The name of a size in a kernel: its own, or one for the axis of an array whose sizes have no names; a number's is its
    text."""
    return f"{array}_size{axis}" if size is None else size.text


def signature_of(function: Callable[..., Any], grid: str | None) -> Signature:
    """The parameters of a kernel's function.

    Args:
        function: Whose annotations are read.
        grid: Sizes of the grid; None for those of the first result.

    Raises:
        KernelCompileError: A parameter has no annotation, or one that is no type of a kernel's parameter.
    """
    name = function.__name__

    def refuse(expected: str, received: str, remedy: str) -> NoReturn:
        where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        raise KernelCompileError(f"kernel {name}: {expected}", f"{received}, at {where}", remedy, kernel=name, line=where)

    annotations = _annotations(function, refuse)
    parameters: dict[str, ParameterType] = {}
    defaults: dict[str, Any] = {}
    tuples: dict[str, tuple[str, ...]] = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            refuse("a kernel has a fixed number of parameters", f"*{p.name}", "name each parameter")
        if p.name not in annotations:
            refuse("each parameter has a type", f"{p.name} without one", _TYPES)
        annotation = annotations[p.name]
        if isinstance(annotation, ArrayTuple):
            tuples[p.name] = tuple(n for n, _ in annotation.arrays)
            for n, t in annotation.arrays:
                if n in parameters or n in annotations:
                    refuse("each parameter has a name of its own", f"two of the name {n}", f"rename the operand {n}")
                parameters[n] = t
            continue
        parameters[p.name] = found = _type(annotation, p.name, refuse)
        if p.default is not p.empty:
            if isinstance(found, ArrayType):
                refuse("arrays have no default", f"{p.name}={p.default!r}", "pass the array in each call")
            defaults[p.name] = p.default
    signature = Signature(parameters, defaults, (), tuples)
    for array, t in signature.arrays.items():
        if isinstance(t.dtype, str) and not (t.dtype in signature.arrays and signature.arrays[t.dtype].role != "Out"):
            refuse(
                "a dtype is one of Firebrick's, or the name of an argument that has it", f"{array}: {t.dtype!r}",
                "write the dtype, such as fb.float32",
            )  # fmt: skip
    if not signature.results:
        refuse("a kernel has a result", "neither Out nor InOut", 'add a parameter such as out: fb.kernel.Out[fb.float32, "n"]')
    first_name, first = next(iter(signature.results.items()))
    if grid is None:
        sizes = tuple(Size.of(size_name(first_name, a, s)) for a, s in enumerate(first.sizes))
    else:
        try:
            sizes = sizes_of(grid)
        except ValueError:
            refuse("the grid is sizes, separated by commas", repr(grid), 'write it like grid="n, m"')
    signature = Signature(parameters, defaults, sizes, tuples)
    known = {size_name(n, a, s) for n, t in signature.arrays.items() if t.role != "Out" for a, s in enumerate(t.sizes)}
    whole = {n for n, p in parameters.items() if p == NumberType(int64) or (isinstance(p, ConstantType) and p.kind is int)}
    for n in sorted(known & (parameters.keys() - whole)):
        refuse(
            "a size has a name of its own, or that of an integer parameter",
            f"a size and a parameter {n}",
            f"rename the size {n}",
        )
    known |= whole
    for s in signature._sizes():
        missing = [n for n in s.names if n not in known]
        if missing:
            refuse(
                f"a size is made of the sizes of arguments, and integer parameters: {', '.join(sorted(known)) or 'none'}",
                missing[0] if s.text == missing[0] else f"{missing[0]} in {s.text}",
                f"name a size of an argument {missing[0]}, or add a parameter {missing[0]}: int",
            )  # fmt: skip
    return signature


_TYPES = (
    'annotate it with fb.kernel.In[fb.float32, "n"], Out[…] or InOut[…] for an array, float, int, bool or a dtype for a '
    "number, or fb.kernel.Constant[int] for a compile-time constant"
)


def _type(annotation: Any, name: str, refuse: Callable[[str, str, str], NoReturn]) -> ParameterType:
    if isinstance(annotation, ArrayType | ConstantType):
        return annotation
    plain: dict[Any, DType | None] = {float: None, int: int64, bool: bool_}
    if isinstance(annotation, type) and annotation in plain:
        return NumberType(plain[annotation])
    if isinstance(annotation, DType) and annotation.name in STORAGE:
        return NumberType(annotation)
    refuse("a parameter is an array, a number or a constant", f"{name}: {annotation!r}", _TYPES)


def _annotations(function: Any, refuse: Callable[[str, str, str], NoReturn]) -> dict[str, Any]:
    """The annotations as objects, also where they are kept as text."""
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    out: dict[str, Any] = {}
    for name, found in function.__annotations__.items():
        if name == "return":
            continue
        if isinstance(found, str):
            try:
                found = eval(found, names)
            except FirebrickError:
                raise
            except Exception as e:  # noqa: BLE001 - any error of the user's expression
                refuse("annotations can be evaluated", f"{name}: {found} ({type(e).__name__}: {e})", "import the names in it")
        out[name] = found
    return out


def floating_of(dtypes: Mapping[str, DType]) -> DType:
    """The dtype of parameters annotated ``float``: that of the first floating array, as it is computed in."""
    for found in dtypes.values():
        if found.kind == "float":
            return found if found.itemsize > 2 else float32
    return float32
