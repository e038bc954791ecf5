"""The op table's scatters as kernels: their geometry, numbers among their operands, and which buffer is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from firebrick.compiler.llvm.lowered import BYTES_PER_US, Lowered, Part
from firebrick.compiler.llvm.map import map_kernel
from firebrick.compiler.llvm.memory import View
from firebrick.compiler.llvm.native import NAME, NativeKernel, module_text, named
from firebrick.compiler.llvm.scatter import Scatter, bytes_of, scatter_kernel, summed_in
from firebrick.compiler.llvm.segment import Place
from firebrick.compiler.llvm.target import Target
from firebrick.compiler.scalar.expr import cast, load
from firebrick.compiler.scalar.storage import HALVES, computed
from firebrick.core.aval import Aval
from firebrick.ir import Node

OPS = ("scatter", "scatter_add", "scatter_reduce", "index_add")
UPDATES_PER_US = 500.0
"""Updates of single elements that one thread takes in a microsecond."""

Number = bool | int | float


def refused(n: Node, operands: Sequence[Aval]) -> str:
    """Why a scatter of these operands has no kernel; empty if it has."""
    x = operands[0]
    return "" if prod(x.shape) else "no elements"


def lowered(n: Node, operands: Sequence[Aval], target: Target, numbers: Mapping[int, Any]) -> Lowered:
    """The kernels of a node.

    Args:
        n: A scatter.
        operands: The array, the indices and the updates.
        target: What to generate for.
        numbers: Those of the operands that are numbers of the program, by position; they are no inputs.
    """
    what = geometry(n, operands, numbers)
    x, at = operands[:2]
    out = n.avals[0]
    inputs = 3 - sum(k in numbers for k in (0, 2))
    whole = what.total == what.dtype
    place = Place(n.op.name, x.shape[n.params["axis"]], n.line or "")
    kernel = named(scatter_kernel(NAME, what, target), "scatter")
    moved = at.nbytes + sum(a.nbytes for k, a in enumerate(operands) if k != 1 and k not in numbers) + out.nbytes
    cost = moved / BYTES_PER_US + (at.size / UPDATES_PER_US)
    result = inputs if whole else inputs + 1
    parts = [Part(kernel, (*range(inputs), result), cost, (place,))]
    kernels: list[NativeKernel] = [kernel]
    if not whole:  # the sum, rounded
        size = (prod(x.shape),)
        e = cast(load(0, what.total), computed(out.dtype.name))
        rounded = map_kernel(NAME, size, [View(what.total, (1,))], [(e, View(out.dtype.name, (1,)))], target)
        kernels.append(named(rounded, "map"))
        parts.append(Part(kernels[1], (inputs + 1, inputs), (bytes_of(what) + out.nbytes) / BYTES_PER_US))
    over = frozenset({0}) if whole and 0 not in numbers else frozenset[int]()
    return Lowered(tuple(parts), () if whole else (bytes_of(what),), module_text(kernels), (over,))


def geometry(n: Node, operands: Sequence[Aval], numbers: Mapping[int, Any]) -> Scatter:
    """What a scatter does, as its kernel needs it."""
    x, at = operands[:2]
    axis = n.params["axis"]
    outer, size, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    slices = n.op.name == "index_add"
    fold = n.params["mode"] if n.op.name == "scatter_reduce" else "set" if n.op.name == "scatter" else "add"
    count = at.size if slices else at.shape[axis]
    dtype = x.dtype.name
    if fold == "set" and dtype in HALVES and not numbers:
        dtype = "uint16"  # bits are moved as they are
    total = summed_in(fold, dtype, size, count)
    known = [_number(numbers[k], computed(dtype)) if k in numbers else None for k in (0, 2)]
    return Scatter(fold, outer, size, inner, count, slices, dtype, at.dtype.name, total, *known)


def _number(value: Any, dtype: str) -> Number:
    return value.astype(dtype).item()  # type: ignore[no-any-return]
