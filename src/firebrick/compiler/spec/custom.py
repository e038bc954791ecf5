"""``Custom``: a kernel of the kernel language.

It holds the kernel IR itself, with what a launch needs: its arrays as operands and results with the values that their elements
have before, its numbers, and its grid. Arrays are row-major.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.kernel.interpret import interpret as run
from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.kernel.language.reports import assertion_error, index_error, limit_error, loop_lines
from firebrick.compiler.kernel.work import work_of
from firebrick.compiler.spec.base import Cost, Operand, Size, Sizes
from firebrick.compiler.spec.faults import number_of
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import single
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.errors import FirebrickError
from firebrick.core.views import View, row_major
from firebrick.ir import Graph
from firebrick.scalar.expr import Expr, const
from firebrick.scalar.storage import computed

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class KernelSite:
    """A check of a user's kernel.

    Attributes:
        kernel: Name of the kernel.
        array: The array that is indexed; empty for an assertion.
        axis: Which of its axes.
        size: Of the axis.
        message: Of an assertion.
        line: Of the user's function.
    """

    kernel: str
    array: str
    axis: int
    size: Size
    message: str
    line: str = ""

    def error(self, index: int, bits: int = 64) -> FirebrickError:
        """The error of a fault here.

        Args:
            index: The index that is out of range.
            bits: Of the table's payloads: an index that they cannot hold was clamped.

        Example:
            >>> from firebrick.compiler.spec.custom import KernelSite
            >>> print(KernelSite("picked", "x", 0, 5, "", "model.py:12").error(7))
            picked: an index of axis 0 of x is at least 0 and below 5
            Received: 7, at model.py:12.
            Remedy: correct the index, or test it with if.
        """
        if not self.array:
            return assertion_error(self.kernel, self.message, self.line)
        return index_error(self.kernel, self.array, self.axis, self.size, self.line, number_of(index, bits))


@dataclass(frozen=True, slots=True)
class LoopSite:
    """The check of the number of rounds of a user's loops.

    Attributes:
        kernel: Name of the kernel.
        lines: The line of each loop, and whether it counts.
    """

    kernel: str
    lines: tuple[tuple[str, bool], ...]

    def error(self, index: int) -> FirebrickError:
        """The error of the loop of that number, which passes the limit."""
        return limit_error(self.kernel, self.lines[index])


@dataclass(frozen=True, slots=True)
class CustomResult:
    """An array that a kernel of the kernel language writes.

    Attributes:
        dtype: In memory.
        view: View of its elements by their indices.
        copied: Number of the operand whose values its elements have before the launch; None for none.
        filled: The value that all of them have before the launch, a constant; None for none.
        unread: Whether nothing reads the elements that the kernel does not store, so that they need no value before.
    """

    dtype: str
    view: View
    copied: int | None = None
    filled: Expr | None = None
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Custom:
    """A kernel and a launch of it.

    Attributes:
        name: For messages.
        function: Kernel IR.
        operands: What it reads; the view of each is that of its elements by their indices.
        results: What it writes.
        buffers: For each array of the function the number of its operand, or ``len(operands)`` more than that of its result.
        scalars: For each scalar of the function its number.
        grid: Sizes of the grid; without that of a group, which is part of the function.
        checks: Its checks, by number.
    """

    name: str
    function: Function
    operands: tuple[Operand, ...]
    results: tuple[CustomResult, ...]
    buffers: tuple[int, ...]
    scalars: Sizes
    grid: Sizes
    checks: tuple[KernelSite, ...]

    @property
    def sources(self) -> tuple[int, ...]:
        """The inputs that the operands are."""
        return tuple(x.source for x in self.operands)

    @property
    def sites(self) -> tuple[KernelSite | LoopSite, ...]:
        """The checks, and at last that of the rounds of loops if there are any."""
        lines = loop_lines(self.function)
        return (*self.checks, LoopSite(self.name, lines)) if lines else self.checks

    @property
    def launch_grid(self) -> tuple[int, ...]:
        """Sizes of the grid of the function, whose last axis is a group if there are groups."""
        return (*self.grid, self.function.group) if self.function.group else self.grid

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each scalar of the function, by name."""
        return dict(zip([s.name for s in self.function.scalars], self.scalars, strict=True))

    @property
    def cost(self) -> Cost:
        """Work of one run, counted from the statements; an array is read and written once at most."""
        work = work_of(self.function, self.numbers, self.launch_grid)
        nbytes = 0.0
        for a, b in zip(self.function.arrays, self.buffers, strict=True):
            x = self.operands[b] if b < len(self.operands) else self.results[b - len(self.operands)]
            count = prod(x.view.shape)
            nbytes += sum(min(n, count) * itemsize(a.dtype) for n in (work.reads[a.name], work.writes[a.name]))
        for r in self.results:
            whole = prod(r.view.shape) * itemsize(r.dtype)
            nbytes += whole * ((r.filled is not None) + 2 * (r.copied is not None))
        return Cost(work.flops, nbytes)

    def interpret(self, inputs: Sequence[Array], outs: Sequence[Array]) -> Fault | None:
        """Write the results by the interpreter of kernel IR; arrays are flat. Gives the fault of its checks."""
        operands = [inputs[x.source] for x in self.operands]
        for r, out in zip(self.results, outs, strict=True):
            if r.copied is not None:
                out[:] = operands[r.copied]
            elif r.filled is not None:
                out[:] = r.filled.value
        arrays = dict(zip([a.name for a in self.function.arrays], ([*operands, *outs][b] for b in self.buffers), strict=True))
        return run(self.function, arrays, self.numbers, self.launch_grid, config.kernel_loop_limit, checked=False)


def custom(body: Graph) -> Custom:
    """The specification of a group of one kernel of the kernel language."""
    s = single(body)
    return launched(s.facts["program"], s.operands, s.inputs, dict(s.node.params["statics"]))


def launched(
    program: KernelProgram, operands: Sequence[Aval], sources: Sequence[int], statics: Mapping[str, int]
) -> Custom:  # fmt: skip
    """The specification of a launch of a kernel.

    Args:
        program: Kernel.
        operands: Shapes and dtypes of its operands. A kernel without any has one that says where it runs.
        sources: The inputs of the group that they are.
        statics: Integers that sizes depend on.
    """
    signature, function = program.signature, program.translated.function
    sizes = program.sizes([a.shape for a in operands[: len(program.operands)]], statics)
    results = []
    for (name, array), aval in zip(signature.results.items(), sizes.results, strict=True):
        copied = program.operands.index(name) if array.role == "InOut" else None
        dtype = aval.dtype.name
        filled = const(program.filled[name], computed(dtype)) if name in program.filled else None
        results.append(CustomResult(dtype, row_major(aval.shape), copied, filled, array.unread))
    number = {n: k for k, n in enumerate(program.operands)}
    number |= {n: len(operands) + k for k, n in enumerate(signature.results)}
    return Custom(
        program.name,
        function,
        tuple(Operand(i, a.dtype.name, row_major(a.shape)) for i, a in zip(sources, operands, strict=True)),
        tuple(results),
        tuple(number[a.name] for a in function.arrays),
        tuple(sizes.scalars[x.name] for x in function.scalars),
        sizes.grid[:-1] if function.group else sizes.grid,
        _checks(program, sizes.scalars),
    )


def _checks(program: KernelProgram, scalars: Mapping[str, int]) -> tuple[KernelSite, ...]:
    made = []
    for x in program.translated.sites:
        size = 0 if not x.array else scalars[x.size] if x.size in scalars else int(x.size)
        made.append(KernelSite(program.name, x.array, x.axis, size, "" if x.array else x.size, x.line))
    return tuple(made)
