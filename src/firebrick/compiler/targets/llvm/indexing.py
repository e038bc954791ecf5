"""The op table's indexing entries, and its random numbers, as scalar expressions: elements read elsewhere than at the kernel's
position.

An index out of range is clamped, and its operation's number goes into the kernel's status word. Operands that are read anywhere
lie row by row. A scatter with one index for each row is a choice for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from firebrick.compiler.fusion.indexed import RANDOM
from firebrick.compiler.program.launch import INDEX, Place, fault_word
from firebrick.core.aval import Aval
from firebrick.core.indexing import strides_of
from firebrick.ir import Node
from firebrick.scalar import elements
from firebrick.scalar.expr import (
    BITS,
    Expr,
    binary,
    bounded,
    cast,
    const,
    eq,
    gather,
    index,
    load,
    maximum,
    minimum,
    node,
    position,
    select,
    steps,
    walk,
    whole_number,
)
from firebrick.scalar.storage import computed

Strides = tuple[int, ...]

KNOWN_AS = {"gather": "take_along_axis", "ravel_index": "x[key]"}
"""What users call ops that have another name; the errors of their indices name that."""


class Lowering(Protocol):
    """What an expression can ask of the group that it is in."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the kernel."""

    @property
    def given(self) -> Sequence[Strides]:
        """How ``load(k)`` steps through its operand."""

    def place_of(self, v: int) -> int | None:
        """The input that a value is; None for one that is computed here."""

    def value(self, v: int) -> Expr:
        """A value's element at the kernel's position."""

    def operand(self, place: int, strides: Strides) -> int:
        """The number of an input as an operand of the kernel, with these strides."""

    def view(self, k: int, strides: Strides) -> int:
        """The number of operand ``k`` with other strides."""

    def fault(self, place: Place) -> int:
        """The number of a place that faults come from."""


def refused(n: Node, operands: Sequence[Aval]) -> str | None:
    """Why an indexing node has no scalar expression; empty if it has, None for other nodes."""
    name = n.op.name
    if name not in EXPRESSIONS:
        return None
    if name == "ravel_index":
        return "" if all(n.params["sizes"]) else "no elements"
    if name in RANDOM:
        return ""
    x, at = operands[0], operands[1]
    axis = n.params["axis"]
    if name not in ("take", "gather") and at.shape[axis] != 1:
        return None  # it has kernels of its own
    return "" if x.shape[axis] else "no elements"


def expression(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
    """The result's element at the kernel's position."""
    return EXPRESSIONS[n.op.name](n, operands, kernel)


def _spread(strides: Sequence[int], shape: Sequence[int], to: Sequence[int]) -> Strides:
    """Strides of an array of ``shape`` in the shape ``to``: 0 along axes that it lacks or that have size 1."""
    own = tuple(0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
    return (0,) * (len(to) - len(shape)) + own


def place_of(n: Node, size: int) -> Place:
    """Where a node's faults come from, an axis of length ``size``."""
    return Place(KNOWN_AS.get(n.op.name, n.op.name), size, n.line or "")


def _inside(n: Node, at: Expr, size: int, kernel: Lowering) -> Expr:
    """An index counted from the front."""
    number = kernel.fault(place_of(n, size))
    return bounded(whole_number(at), size, fault_word(INDEX, number))


def _take(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
    x, at = operands
    axis, to = n.params["axis"], n.avals[0].shape
    strides = strides_of(x.shape)
    if x.ndim == 1:
        found = kernel.value(n.inputs[1])
    else:
        along = [0] * axis + [*strides_of(at.shape), *(0 for _ in range(axis + 1, x.ndim))]
        where = kernel.place_of(n.inputs[1])
        assert where is not None
        k = kernel.operand(where, _spread(along, to, kernel.shape))
        found = load(k, computed(at.dtype.name))
    rest = [*strides[:axis], *(0 for _ in at.shape), *strides[axis + 1 :]]
    return _element(n, x, _spread(rest, to, kernel.shape), found, strides[axis], kernel)


def _gather(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
    x, at = operands
    axis = n.params["axis"]
    found = kernel.value(n.inputs[1])
    if kernel.place_of(n.inputs[0]) is None:
        here = _inside(n, found, x.shape[axis], kernel)
        return _at(kernel.value(n.inputs[0]), here, kernel)
    strides = strides_of(x.shape)
    rest = [0 if a == axis else s for a, s in enumerate(strides)]
    return _element(n, x, _spread(rest, at.shape, kernel.shape), found, strides[axis], kernel)


def _element(n: Node, x: Aval, strides: Strides, at: Expr, step: int, kernel: Lowering) -> Expr:
    """The element of the node's first operand whose index along an axis with stride ``step`` is ``at``."""
    place = kernel.place_of(n.inputs[0])
    assert place is not None
    here = _inside(n, at, x.shape[n.params["axis"]], kernel)
    return gather(kernel.operand(place, strides), computed(x.dtype.name), here * step)


def _at(e: Expr, here: Expr, kernel: Lowering) -> Expr:
    """The value of an expression at position ``here`` of the kernel's last axis; what is reduced stays as it is."""
    done: dict[Expr, Expr] = {}
    rank = len(kernel.shape)
    for x in walk([e]):
        args = tuple(done[a] for a in x.args)
        if x.op == "reduce":
            done[x] = x
        elif x.op == "index":
            *outer, last = steps(x, rank)
            done[x] = position((*outer, 0)) + here * last
        elif x.op in ("load", "gather"):
            *outer, last = kernel.given[int(x.value or 0)]
            if last == 0:
                done[x] = node(x.op, x.dtype, args, x.value)
                continue
            k = kernel.view(int(x.value or 0), (*outer, 0))
            done[x] = gather(k, x.dtype, args[0] + here * last if args else here * last)
        else:
            done[x] = x if args == x.args else node(x.op, x.dtype, args, x.value)
    return done[e]


def _ravel_index(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
    out = const(n.params["offset"], "int64")
    for v, size, stride in zip(n.inputs, n.params["sizes"], n.params["strides"], strict=True):
        out = out + _inside(n, kernel.value(v), size, kernel) * stride
    return out


def _scatter(put: Callable[[Expr, Expr], Expr]) -> Callable[[Node, Sequence[Aval], Lowering], Expr]:
    """One update for each row along the axis: where it falls, ``put`` of the element and the update."""

    def rule(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
        x, at, update = (kernel.value(v) for v in n.inputs)
        axis = n.params["axis"]
        size = operands[0].shape[axis]
        here = _inside(n, at, size, kernel)
        place = index(axis) if size > 1 else const(0, "int64")
        if size < 1 << 31 and BITS[x.dtype] <= 32:
            here, place = cast(here, "int32"), cast(place, "int32")
        return select(eq(place, here), put(x, update), x)

    return rule


def _scatter_reduce(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
    fold = {"mul": lambda a, b: binary("mul", a, b), "min": minimum, "max": maximum}[n.params["mode"]]
    return _scatter(fold)(n, operands, kernel)


def _random(n: Node, operands: Sequence[Aval], kernel: Lowering) -> Expr:
    shape = n.avals[0].shape
    place = kernel.place_of(n.inputs[0])
    assert place is not None
    k = kernel.operand(place, (0,) * len(kernel.shape))
    key = [gather(k, "uint32", const(i, "int64")) for i in range(4)]
    at = position(_spread(strides_of(shape), shape, kernel.shape)) + n.params["offset"]
    if n.op.name == "random_bits":
        return elements.random_bits(key, at)
    return elements.random_uniform(key, at, n.params["dtype"].name)


EXPRESSIONS: dict[str, Callable[[Node, Sequence[Aval], Lowering], Expr]] = {
    "take": _take, "gather": _gather, "ravel_index": _ravel_index, "random_bits": _random, "random_uniform": _random,
    "scatter": _scatter(lambda x, update: update), "scatter_add": _scatter(lambda x, update: x + update),
    "scatter_reduce": _scatter_reduce,
}  # fmt: skip
"""Name of an entry → (node, operands, the group it is in) → the result's element."""
