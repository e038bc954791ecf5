"""The op table's scatters as kernels: their geometry, numbers among their operands, and which buffer is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from firebrick.compiler.targets.llvm.copies import copy_kernel, fill_kernel, moving_us
from firebrick.compiler.targets.llvm.indexing import place_of
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, Lowered, Part
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import View, item_bytes
from firebrick.compiler.targets.llvm.native import NAME, NativeKernel, module_text, named
from firebrick.compiler.targets.llvm.scatter import FEW, Scatter, scatter_kernel, summed_in
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.ir import Node
from firebrick.scalar.expr import cast, load
from firebrick.scalar.storage import HALVES, computed

OPS = ("scatter", "scatter_add", "scatter_reduce", "index_add")
UPDATES_PER_US = 500.0
"""Updates of single elements that one thread takes in a microsecond."""


def refused(n: Node, operands: Sequence[Aval]) -> str:
    """Why a scatter of these operands has no kernel; empty if it has."""
    x, at = operands[:2]
    if x.dtype.name == "float64" and n.op.name in ("index_add", "scatter_add") and prod(at.shape) > FEW:
        return "float64 sums that may be of many updates, which nothing wider adds up"
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
    x, at, updates = operands
    out = n.avals[0]
    own = 0 not in numbers
    inputs = own + 1 + (2 not in numbers)
    wide = what.total != what.dtype
    to = inputs + 1 if wide else inputs  # a wide result is rounded in the end
    size, itemsize = (prod(x.shape),), item_bytes(what.total)
    if not own:
        start = np.asarray(numbers[0]).astype(what.total if wide else x.dtype.np).reshape(1)
        first = fill_kernel(size, int(start.view(f"u{itemsize}")[0]), (1,), itemsize, target)
    elif wide:
        first = _converted(size, what.dtype, what.total, target)
    else:
        first = copy_kernel(size, (1,), (1,), itemsize, target, same=True)
    put = named(scatter_kernel(NAME, what, target), "scatter")
    work = (at.nbytes + 2 * updates.nbytes) / BYTES_PER_US + at.size / UPDATES_PER_US
    place = place_of(n, x.shape[n.params["axis"]])
    parts = [
        Part(first, (0, to) if own else (to,), moving_us(size, itemsize)),
        Part(put, (*range(int(own), inputs), to), work, (place,)),
    ]
    if wide:
        parts.append(Part(_converted(size, what.total, out.dtype.name, target), (to, inputs), moving_us(size, itemsize)))
    over = frozenset({0}) if own and not wide else frozenset[int]()
    temporary = (size[0] * itemsize,) if wide else ()
    return Lowered(tuple(parts), temporary, module_text({p.kernel.name: p.kernel for p in parts}.values()), (over,))


def _converted(size: tuple[int], source: str, to: str, target: Target) -> NativeKernel:
    """Elements in another dtype."""
    e = cast(load(0, computed(source)), computed(to))
    return named(map_kernel(NAME, size, [View(source, (1,))], [(e, View(to, (1,)))], target), "map")


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
    total = summed_in(fold, dtype, count)
    update = numbers[2].astype(computed(total)).item() if 2 in numbers else None
    return Scatter(fold, outer, size, inner, count, slices, dtype, at.dtype.name, total, update)
