"""The components of all kinds of kernel specifications: operands, results, faults, and sizes that are separate from structure.

A specification is frozen data. Its sizes are fields of the types ``Size`` and ``Sizes``; its strides and offsets are in views.
``structure`` returns the specification with symbols instead of these numbers, and its binding, the numbers. ``with_binding``
replaces the numbers. ``key`` identifies the structure, for which one kernel with sizes as arguments suffices; ``problem``
identifies the structure with its sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from json import dumps
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.views import Digit, View
from firebrick.scalar.complex_numbers import parts
from firebrick.scalar.expr import COMPLEX, Expr, walk

Size = int
"""A number of a specification that belongs to its binding, not to its structure."""
Sizes = tuple[int, ...]
SizePairs = tuple[tuple[int, int], ...]
Triple = tuple[int, int, int]


def as_reals(array: Aval) -> Aval:
    """An array; of complex numbers the same memory, their parts along one more axis."""
    if array.dtype.kind != "complex":
        return array
    return Aval((*array.shape, 2), as_dtype(COMPLEX[array.dtype.name]))


def _symbolic(f: Field[Any]) -> bool:
    """Whether a field is declared with one of the types above, in a module whose annotations are text."""
    return f.type in ("Size", "Sizes", "SizePairs", "Triple")


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a kernel reads; of complex numbers, their real or their imaginary parts.

    Attributes:
        source: Number of the input.
        dtype: In memory; of an input of complex numbers, that of a part.
        view: View over the domain.
    """

    source: int
    dtype: str
    view: View


@dataclass(frozen=True, slots=True)
class Result:
    """An array that a kernel writes.

    Attributes:
        expression: Its element at a position of the domain; ``load(k)`` is the element of operand ``k``.
        dtype: In memory.
        view: View over the domain, with stride 0 along axes that are reduced.
        summed: Axes of the domain along which the values of the expression are summed.
    """

    expression: Expr
    dtype: str
    view: View
    summed: tuple[int, ...] = ()

    @property
    def reals(self) -> tuple[Result, ...]:
        """The arrays of reals that it is: of a complex result, the real and the imaginary parts in the same memory."""
        if self.dtype not in COMPLEX:
            return (self,)
        dtype = COMPLEX[self.dtype]
        return tuple(Result(e, dtype, self.view.of_parts(k), self.summed) for k, e in enumerate(parts(self.expression)))


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one run.

    Attributes:
        flops: Arithmetic operations.
        nbytes: Minimum bytes read and written.
    """

    flops: float
    nbytes: float


def _class_of(number: int, stride: bool) -> Any:
    """The part of a number that belongs to the structure: sizes and strides of 0 and 1 are distinguished from others."""
    return number if number in (0, 1) else ("s" if stride else "n")


class _Structure:
    """Walks through a specification; numbers that belong to the binding are collected in order."""

    def __init__(self) -> None:
        self.binding: list[int] = []
        self.exprs: dict[Expr, int] = {}
        self.nodes: list[Any] = []

    def of(self, x: Any, symbols: bool = False) -> Any:
        if isinstance(x, View):
            self.binding += [n for axis in x.axes for digit in axis for n in digit]
            self.binding.append(x.offset)
            axes = [[[_class_of(d.size, False), _class_of(d.stride, True)] for d in axis] for axis in x.axes]
            return {"view": axes, "offset": "s" if x.offset else 0}
        if isinstance(x, Expr):
            return {"expression": self._expression(x)}
        if is_dataclass(x):
            own = {f.name: self.of(getattr(x, f.name), _symbolic(f)) for f in fields(x) if f.name != "line"}
            return {"kind": type(x).__name__, **own}
        if isinstance(x, tuple):
            return [self.of(y, symbols) for y in x]
        if symbols and isinstance(x, int):
            self.binding.append(x)
            return _class_of(x, False)
        return x

    def _expression(self, root: Expr) -> int:
        for e in walk([root]):
            if e not in self.exprs:
                self.exprs[e] = len(self.nodes)
                self.nodes.append([e.op, e.dtype, [self.exprs[a] for a in e.args], _number(e.value)])
        return self.exprs[root]


def _number(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


def structure(spec: Any) -> tuple[Any, tuple[int, ...]]:
    """A specification with symbols for its sizes, as nested lists and dictionaries, and its binding: the sizes in order."""
    walked = _Structure()
    tree = walked.of(spec)
    return {"spec": tree, "nodes": walked.nodes}, tuple(walked.binding)


def key(spec: Any) -> str:
    """A hash of a specification's structure: equal for specifications that differ in sizes only."""
    return blake2b(dumps(structure(spec)[0], sort_keys=True).encode(), digest_size=16).hexdigest()


def problem(spec: Any) -> tuple[str, tuple[int, ...]]:
    """``key`` and the sizes."""
    tree, binding = structure(spec)
    return blake2b(dumps(tree, sort_keys=True).encode(), digest_size=16).hexdigest(), binding


def with_binding(spec: Any, binding: tuple[int, ...]) -> Any:
    """The same structure with other sizes.

    Raises:
        ValueError: There are more or fewer sizes than the structure has symbols.
    """
    numbers = iter(binding)
    try:
        made = _bound(spec, numbers)
    except StopIteration:
        raise ValueError(f"a structure takes {len(structure(spec)[1])} sizes. Received: {len(binding)}") from None
    if next(numbers, None) is not None:
        raise ValueError(f"a structure takes {len(structure(spec)[1])} sizes. Received: {len(binding)}")
    return made


def _bound(x: Any, numbers: Iterator[int], symbols: bool = False) -> Any:
    if isinstance(x, View):
        axes = tuple([tuple([Digit(next(numbers), next(numbers)) for _ in axis]) for axis in x.axes])
        return View(axes, next(numbers))
    if is_dataclass(x) and not isinstance(x, type):
        own = {f.name: _bound(getattr(x, f.name), numbers, _symbolic(f)) for f in fields(x) if f.name != "line"}
        return replace(x, **own)
    if isinstance(x, tuple):
        return tuple([_bound(y, numbers, symbols) for y in x])
    return next(numbers) if symbols and isinstance(x, int) else x
