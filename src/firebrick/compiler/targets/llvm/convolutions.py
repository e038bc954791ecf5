"""The op table's convolutions as contractions: the geometry that operands and parameters say, and which buffer is which."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import prod

from firebrick.compiler.targets.llvm.contract import (
    Axis,
    Contraction,
    Convolution,
    Result,
    forward,
    input_gradient,
    weight_gradient,
)
from firebrick.compiler.targets.llvm.lowered import Lowered, contracted
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.views import View
from firebrick.ir import Node

OPS = ("conv", "conv_input", "conv_weight")
_DTYPES = ("float32", "float64", "float16", "bfloat16")


def refused(n: Node, operands: Sequence[Aval]) -> str:
    """Why a convolution of these operands has no kernels; empty if it has."""
    if operands[0].dtype.name not in _DTYPES:
        return f"no contractions of {operands[0].dtype.name}"
    return "" if all(prod(a.shape) for a in operands) else "no elements"


def geometry(n: Node, operands: Sequence[Aval]) -> Convolution:
    """The geometry of a node, whose arrays lie row by row."""
    p, (x, y) = n.params, operands
    image, weight = {
        "conv": lambda: (x.shape, y.shape),
        "conv_input": lambda: (n.avals[0].shape, y.shape),
        "conv_weight": lambda: (x.shape, n.avals[0].shape),
    }[n.op.name]()
    return Convolution(
        x.dtype.name, tuple(image), tuple(weight), tuple(p["stride"]), tuple((a, b) for a, b in p["padding"]),
        tuple(p["dilation"]), p["groups"],
    )  # fmt: skip


def result(g: Convolution, dtype: str, x: View) -> Result:
    """Where an array of the shape of ``conv``'s result lies, in its problem."""
    ((_, stride),) = x.axes[1]
    out = g.weight[0] // g.groups
    lanes = tuple(Axis(n, step) for axis in (x.axes[0], *x.axes[2:]) for n, step in axis)
    return Result(dtype, (Axis(out, stride),), lanes, (out * stride,))


def contractions(n: Node, operands: Sequence[Aval], target: Target) -> list[tuple[Contraction, tuple[int, int]]]:
    """The contractions of a node, to be run one after another, and for each which operands are its A and its B."""
    g = geometry(n, operands)
    name = f"{n.op.name}_{blake2b(f'{g} {target}'.encode(), digest_size=12).hexdigest()}"
    if n.op.name == "conv":
        return [(forward(g, target, name), (1, 0))]
    if n.op.name == "conv_input":
        return [(c, (1, 0)) for c in input_gradient(g, target, name)]
    return [(weight_gradient(g, target, name), (1, 0))]


def lowered(n: Node, operands: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a node."""
    return contracted(contractions(n, operands, target), 2)
