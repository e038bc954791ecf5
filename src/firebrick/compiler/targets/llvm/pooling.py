"""The op table's pooling as window kernels: the geometry that operands and parameters say."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, STEPS_PER_US, Lowered, Part
from firebrick.compiler.targets.llvm.native import NAME, module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.window import MOST, Triple, Windows, gradient_kernel, window_kernel
from firebrick.core.aval import Aval
from firebrick.ir import Node

OPS = ("max_pool", "max_pool_gradient", "avg_pool", "avg_pool_input")
_DTYPES = ("float32", "float64", "float16", "bfloat16")


def refused(n: Node, operands: Sequence[Aval]) -> str:
    """Why a node has no kernel; empty if it has."""
    if operands[0].dtype.name not in _DTYPES:
        return f"no windows of {operands[0].dtype.name}"
    w = windows_of(n, operands)
    if not all(prod(a.shape) for a in (*operands, *n.avals)):
        return "no elements"
    if prod(w.kernel) > MOST or prod(w.stride) > MOST:
        return f"windows of more than {MOST} elements"
    return "" if prod(w.image) < 1 << 31 and prod(w.places) < 1 << 31 else "images of 2³¹ elements"


def lowered(n: Node, operands: Sequence[Aval], target: Target) -> Lowered:
    """The kernel of a node."""
    w, dtype = windows_of(n, operands), operands[0].dtype.name
    if n.op.name in ("max_pool", "avg_pool"):
        kernel = window_kernel(NAME, w, dtype, n.op.name == "max_pool", target)
    else:
        kernel = gradient_kernel(NAME, w, dtype, operands[1].dtype.name if len(operands) > 1 else "", target)
    kernel = named(kernel, "window")
    moved = sum(a.nbytes for a in (*operands, *n.avals))
    steps = 3 * w.planes * prod(w.places) * prod(w.kernel)
    part = Part(kernel, tuple(range(len(operands) + len(n.avals))), moved / BYTES_PER_US + steps / STEPS_PER_US)
    return Lowered((part,), (), module_text([kernel]), (frozenset(),) * len(n.avals))


def windows_of(n: Node, operands: Sequence[Aval]) -> Windows:
    """The windows of a node."""
    p, backward = n.params, "size" in n.params
    image, places = (p["size"], operands[0].shape[2:]) if backward else (operands[0].shape[2:], n.avals[0].shape[2:])
    ones = (1,) * len(image)
    return Windows(
        prod(operands[0].shape[:2]), _triple(image, 1), _triple(places, 1), _triple(p["kernel"], 1), _triple(p["stride"], 1),
        _triple([before for before, _ in p["padding"]], 0), _triple(p.get("dilation", ones), 1),
    )  # fmt: skip


def _triple(axes: Sequence[int], missing: int) -> Triple:
    z, y, x = (missing,) * (3 - len(axes)) + tuple(axes)
    return z, y, x
