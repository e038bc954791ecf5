"""The op table's ops that put arrays together (``concat``, ``pad``, ``slice_update``) as copies into parts of their result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from firebrick.compiler.targets.llvm.copies import SIZES, copy_kernel, fill_kernel, moving_us
from firebrick.compiler.targets.llvm.lowered import Lowered, Part
from firebrick.compiler.targets.llvm.native import NativeKernel, module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.indexing import strides_of
from firebrick.ir import Node

OPS = ("concat", "pad", "slice_update")
Axes = tuple[int, ...]


def refused(n: Node, operands: Sequence[Aval]) -> str:
    """Why a node has no kernels; empty if it has."""
    out = n.avals[0]
    if out.dtype.itemsize not in SIZES:
        return f"no copies of {out.dtype}"
    return "" if out.size else "no elements"


def lowered(n: Node, operands: Sequence[Aval], target: Target, numbers: Mapping[int, Any]) -> Lowered:
    """The kernels of a node.

    Args:
        n: A node of one of ``OPS``.
        operands: Its operands.
        target: What to generate for.
        numbers: Those of the operands that are numbers of the program, by position; they are no inputs.
    """
    moves = _Moves(n.avals[0], len(operands) - len(numbers), target)
    inputs = iter(range(len(operands)))
    places = [None if i in numbers else next(inputs) for i in range(len(operands))]
    over: frozenset[int] = frozenset()
    if n.op.name == "concat":
        axis, at = n.params["axis"], 0
        for i, x in enumerate(operands):
            moves.put(places[i], numbers.get(i), x.shape, at * moves.whole[axis], moves.whole)
            at += x.shape[axis]
    elif n.op.name == "pad":
        _pad(n, operands[0], moves)
    else:
        p = n.params
        moves.put(places[0], numbers.get(0), n.avals[0].shape, 0, moves.whole, same=True)
        start = sum(a * s for a, s in zip(p["starts"], moves.whole, strict=True))
        to = tuple(c * s for c, s in zip(p["steps"], moves.whole, strict=True))
        moves.put(places[1], numbers.get(1), operands[1].shape, start, to)
        over = frozenset() if places[0] is None else frozenset({places[0]})
    return Lowered(tuple(moves.parts), (), module_text(moves.kernels.values()), (over,))


def _pad(n: Node, x: Aval, moves: _Moves) -> None:
    """Slabs in front and behind, axis by axis, each of the axes before it without theirs; then what is in the middle."""
    widths, value = n.params["widths"], np.asarray(n.params["value"]).astype(x.dtype.np)
    shape = list(n.avals[0].shape)
    start = 0
    for axis, (before, after) in enumerate(widths):
        step = moves.whole[axis]
        for width, at in ((before, 0), (after, before + x.shape[axis])):
            slab = (*shape[:axis], width, *shape[axis + 1 :])
            moves.put(None, value, slab, start + at * step, moves.whole)
        shape[axis] = x.shape[axis]
        start += before * step
    moves.put(0, None, x.shape, start, moves.whole)


class _Moves:
    """Kernels that each write a part of one result."""

    def __init__(self, out: Aval, inputs: int, target: Target) -> None:
        self.out, self.inputs, self.target = out, inputs, target
        self.whole: Axes = tuple(strides_of(out.shape))
        self.parts: list[Part] = []
        self.kernels: dict[str, NativeKernel] = {}

    def put(self, source: int | None, number: Any, shape: Axes, start: int, to: Axes, same: bool = False) -> None:
        """Copy input ``source``, or a number, to the part of the result at ``start`` with strides ``to``."""
        if 0 in shape:
            return
        size = self.out.dtype.itemsize
        buffers: tuple[int | tuple[int, int], ...] = ((self.inputs, start * size),)
        if source is None:
            bits = int(np.asarray(number, self.out.dtype.np).reshape(1).view(f"u{size}")[0])
            kernel = fill_kernel(shape, bits, to, size, self.target)
        else:
            kernel, buffers = copy_kernel(shape, tuple(strides_of(shape)), to, size, self.target, same), (source, *buffers)
        self.kernels.setdefault(kernel.name, kernel)
        self.parts.append(Part(kernel, buffers, moving_us(shape, size)))
