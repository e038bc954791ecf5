"""Launches of GPU templates for whole ops: each is asked of ``valid_for``, and executed as GPU code by fibers of this machine.

Operands lie where their alignment is what the problem says and no more. Results hold arbitrary bits before a launch, so an
element that no thread stores is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fibers_on_cpu import SimtKernel
from running_kernels import bits

from firebrick.compiler.templates import Template, TemplateProblem
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, dtype
from firebrick.scalar.storage import STORAGE, computed

Array = np.ndarray[Any, Any]
SHARED = 48 << 10
WIDEST = 16
_GARBAGE = 0xB5


class Unserved(Exception):
    """The templates do not take these operands; the text is the reason."""


def computed_in(of: DType | np.dtype[Any]) -> DType:
    """The dtype that a template computes operands of a dtype in."""
    found = dtype(of)
    return dtype(computed(found.name)) if found.name in STORAGE else found


def placed(shape: tuple[int, ...], of: np.dtype[Any], alignment: int) -> Array:
    """An array of arbitrary bits whose address is a multiple of ``alignment``, and not of twice as much."""
    count = int(np.prod(shape)) * of.itemsize
    room = np.full(count + 4 * alignment, _GARBAGE, np.uint8)
    start = -room.__array_interface__["data"][0] % (2 * alignment) + alignment
    return room[start : start + count].view(of).reshape(shape)


@dataclass(eq=False)
class Launches:
    """Launches of one sample's templates.

    Attributes:
        number: Which of the constants a template has a choice of are taken.
        wide: Whether addresses are multiples of 16 bytes, not of one element.
        witnessed: The number of launches that are compared with the interpreter, which also looks for races: the first ones.
        templates: Names of those that were launched.
    """

    number: int = 0
    wide: bool = True
    witnessed: int = 0
    templates: set[str] = field(default_factory=set)

    def one_of(self, *options: Any) -> Any:
        """One of several constants."""
        return options[self.number % len(options)]

    def vector(self, of: np.dtype[Any], *sizes: int, options: tuple[int, ...] = (4, 2, 1)) -> int:
        """The first option that the sizes are multiples of, and whose addresses are aligned."""
        if not self.wide:
            return 1
        return next(v for v in options if v * of.itemsize <= WIDEST and all(n % v == 0 for n in sizes))

    def launch(
        self, template: Template, operands: dict[str, Array], results: dict[str, tuple[tuple[int, ...], Any]],
        integers: dict[str, int] | None = None, **constants: Any,
    ) -> tuple[Array, ...]:  # fmt: skip
        """The results of a launch.

        Args:
            template: The template.
            operands: Of any layout; they are copied.
            results: Shape and dtype of each.
            integers: Numbers that sizes depend on.
            **constants: Of the template.

        Raises:
            Unserved: The template is not valid for the dtypes.
        """
        integers = integers or {}
        avals = {n: Aval(x.shape, dtype(x.dtype)) for n, x in operands.items()}
        avals |= {n: Aval(shape, dtype(of)) for n, (shape, of) in results.items()}
        alignment = WIDEST if self.wide else max(a.dtype.itemsize for a in avals.values())
        problem = TemplateProblem(avals, integers, alignment, SHARED)
        if not template.valid_for(problem, **constants):
            raise Unserved(_reason(template, problem, constants))
        self.templates.add(template.name)
        program = template.program({n: a.dtype.name for n, a in avals.items()}, **constants)
        given = []
        for name in program.operands:
            given.append(placed(avals[name].shape, avals[name].dtype.np, alignment))
            given[-1][...] = operands[name]
        before = [x.copy() for x in given]
        sizes = program.sizes([x.shape for x in given], integers)
        found = [placed(a.shape, a.dtype.np, alignment) for a in sizes.results]
        function = program.translated.function
        arrays = dict(zip([a.name for a in function.arrays], program.buffers(given, found), strict=True))
        assert _compiled(function, alignment).run(arrays, sizes.scalars, sizes.grid) is None
        assert all(np.array_equal(bits(x), bits(y)) for x, y in zip(before, given, strict=True)), "an operand has changed"
        if self.witnessed > 0:
            self.witnessed -= 1
            for name, x, y in zip(results, found, program.interpreted(before, integers, checked=True), strict=True):
                assert np.array_equal(bits(x), bits(y)), f"{name} of {template.name} has other bits by the interpreter"
        return tuple(found)


_kernels: dict[tuple[int, int], tuple[Any, SimtKernel]] = {}


def _compiled(function: Any, alignment: int) -> SimtKernel:
    """The code of a kernel, of which programs have one each."""
    key = id(function), alignment
    if key not in _kernels:
        _kernels[key] = function, SimtKernel(function, alignment)
    return _kernels[key][1]


def _reason(template: Template, problem: TemplateProblem, constants: dict[str, Any]) -> str:
    """Why a template is not valid for a problem; it is an error if dtypes are not the reason."""
    kinds = {a.dtype.kind for a in problem.arrays.values()}
    if "complex" in kinds:
        return "complex numbers"
    if template.floating and kinds & {"int", "uint"}:
        return "integers"
    raise AssertionError(f"{template.name} is not valid for {problem} with {constants}")
