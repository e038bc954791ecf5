"""``Map``, ``Row`` and ``Fold``: elementwise work and reductions over the positions of one domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from firebrick.compiler.layout.views import strided_view
from firebrick.compiler.spec.base import Cost, Operand, Result, Sizes
from firebrick.compiler.spec.elements import element, reduced_axes
from firebrick.compiler.spec.faults import Site
from firebrick.core.views import View, row_major, strided
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops.access import spread
from firebrick.scalar.complex_numbers import Parts, number, paired
from firebrick.scalar.expr import COMPLEX, Expr, bounded, gather, load, node, position, steps, walk, whole_number
from firebrick.scalar.storage import computed


@dataclass(frozen=True, slots=True)
class Nest:
    """The fields of the three kinds.

    Attributes:
        domain: Sizes of the axes.
        reduced: Axes that ``reduce`` nodes reduce.
        operands: Arrays that ``load(k)`` and ``gather(k, …)`` read.
        results: Arrays that are written, in order.
        sites: Checks of indices, by the numbers in ``bounded`` nodes.
    """

    domain: Sizes
    reduced: tuple[int, ...]
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    sites: tuple[Site, ...] = ()

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        steps = sum(1 for e in walk(r.expression for r in self.results) if e.op not in ("load", "const"))
        arrays: list[Operand | Result] = [*self.operands, *self.results]
        moved = sum(x.view.shown * itemsize(x.dtype) for x in arrays)
        return Cost(float(steps * prod(self.domain)), float(moved))


class Map(Nest):
    """Elementwise: no reductions."""


class Row(Nest):
    """Reductions along the last axis, fused with elementwise work, and sums of a row's values over all other axes."""


class Fold(Nest):
    """Reductions along any axes, fused with elementwise work."""


def itemsize(dtype: str) -> int:
    """Bytes of an element in memory."""
    return {"bool": 1, "bfloat16": 2}.get(dtype) or int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def nest(body: Graph) -> Nest:
    """The specification of a group of elementwise nodes, views of its inputs, and reductions.

    Args:
        body: The nodes. Reductions are along the same axes of one shape; besides reductions along its last axis there may be
            sums along all others.
    """
    return _NestBuilder(body).spec()


class _NestBuilder:
    def __init__(self, body: Graph) -> None:
        self.body, self.avals = body, body.avals
        rows = [n for n in body.nodes if n.op.fusion == "row"]
        axes = {n.first: reduced_axes(n, self.avals[n.inputs[0]].ndim) for n in rows}
        last = [n for n in rows if axes[n.first] == (self.avals[n.inputs[0]].ndim - 1,)]
        first = next(iter(last or rows), None)
        self.domain = self.avals[body.outputs[0] if first is None else first.inputs[0]].shape
        self.reduced = () if first is None else axes[first.first]
        self.summed = {n.first for n in rows if axes[n.first] != self.reduced}  # of the elements of rows, along other axes
        self.views: dict[int, tuple[int, View]] = {i: (i, row_major(a.shape)) for i, a in enumerate(body.inputs)}
        self.operands: dict[Operand, int] = {}
        self.sites: dict[Site, int] = {}
        self.values: dict[int, Expr] = {}
        for n in body.nodes:
            self._node(n)

    def spec(self) -> Nest:
        results = tuple(self._result(v) for v in self.body.outputs)
        last = self.reduced == (len(self.domain) - 1,)
        kind = Map if not self.reduced else Row if last else Fold
        return kind(self.domain, self.reduced, tuple(self.operands), results, tuple(self.sites))

    def _result(self, v: int) -> Result:
        aval, rank = self.avals[v], len(self.domain)
        if v in self.summed:
            last = strided(self.domain, [int(a == rank - 1) for a in range(rank)])
            return Result(self.value(v), aval.dtype.name, last, tuple(range(rank - 1)))
        rest = iter(aval.shape)
        shape = [1 if a in self.reduced else next(rest) for a in range(rank)] if aval.ndim < rank else aval.shape
        return Result(self.value(v), aval.dtype.name, row_major(shape).broadcast_to(self.domain))

    def _node(self, n: Node) -> None:
        operands = [self.avals[v] for v in n.inputs]
        if n.op is CONSTANT:
            value, dtype = n.params["value"], computed(n.avals[0].dtype.name)
            self.values[n.first] = number(value.reshape(()).astype(dtype).item(), dtype)
        elif n.op.view:
            v = n.inputs[0]
            if v in self.views:
                i, view = self.views[v]
                for slot, result in enumerate(n.results):
                    found = strided_view(n, slot, view)
                    assert found is not None
                    self.views[result] = i, found
            else:
                self.values[n.first] = self.values[v]  # a number is the same in any shape
        elif n.first in self.summed:
            self.values[n.first] = self.value(n.inputs[0])
        elif n.op.access is not None:
            shape = n.avals[0]
            self.values[n.first] = n.op.access.element(_NestReader(self, n), operands, shape, **n.params)
        else:
            self.values[n.first] = element(n, [self.value(v) for v in n.inputs], operands)

    def read(self, source: int, strides: Sequence[int], offset: int = 0) -> int:
        """The number of the operand that is an input with these strides along the domain; of a complex one, of its parts."""
        dtype = self.body.inputs[source].dtype.name
        x = Operand(source, COMPLEX.get(dtype, dtype), strided(self.domain, strides, offset))
        return self.operands.setdefault(x, len(self.operands))

    def element(self, source: int, strides: Sequence[int], offset: int = 0, at: Expr | None = None) -> Expr:
        """The element of an input through strides along the domain, ``at`` elements behind that one if given."""
        dtype = computed(self.body.inputs[source].dtype.name)
        if dtype not in COMPLEX:
            k = self.read(source, strides, offset)
            return load(k, dtype) if at is None else gather(k, dtype, at)
        twice, part = [2 * s for s in strides], COMPLEX[dtype]
        ks = [self.read(source, twice, 2 * offset + i) for i in (0, 1)]
        return paired(Parts(*(load(k, part) if at is None else gather(k, part, at * 2) for k in ks)))

    def value(self, v: int) -> Expr:
        """The element of a value at the position in the domain."""
        if v not in self.views:
            return self.values[v]
        i, view = self.views[v]
        strides = view.broadcast_to(self.domain).strides
        assert strides is not None
        return self.element(i, strides, view.offset)


class _NestReader:
    """``ops.access.Reader`` for a node of a group."""

    def __init__(self, builder: _NestBuilder, n: Node) -> None:
        self.builder, self.n = builder, n
        self.rank = len(builder.domain)

    def value(self, operand: int) -> Expr:
        return self.builder.value(self.n.inputs[operand])

    def stored(self, operand: int) -> bool:
        return self.n.inputs[operand] < len(self.builder.body.inputs)

    def _spread(self, strides: Sequence[int]) -> tuple[int, ...]:
        return spread(strides, self.n.avals[0].shape, self.builder.domain)

    def load(self, operand: int, strides: Sequence[int]) -> Expr:
        assert self.stored(operand)
        return self.builder.element(self.n.inputs[operand], self._spread(strides))

    def gather(self, operand: int, strides: Sequence[int], at: Expr) -> Expr:
        assert self.stored(operand)
        return self.builder.element(self.n.inputs[operand], self._spread(strides), at=at)

    def inside(self, at: Expr, size: int) -> Expr:
        if self.n.op.indexes is None:  # they have been checked
            return whole_number(at)
        sites = self.builder.sites
        site = Site(self.n.op.known_as or self.n.op.name, size, self.n.line or "")
        return bounded(whole_number(at), size, sites.setdefault(site, len(sites)))

    def position(self, strides: Sequence[int]) -> Expr:
        return position(self._spread(strides))

    def moved(self, operand: int, at: Expr) -> Expr:
        """The element of an operand at another index of the last axis; its reductions do not change."""
        done: dict[Expr, Expr] = {}
        root = self.value(operand)
        for x in walk([root]):
            args = tuple(done[a] for a in x.args)
            if x.op == "reduce":
                done[x] = x
            elif x.op == "index":
                *outer, last = steps(x, self.rank)
                done[x] = position((*outer, 0)) + at * last
            elif x.op in ("load", "gather"):
                read = list(self.builder.operands)[int(x.value or 0)]
                strides = read.view.strides
                assert strides is not None
                if strides[-1] == 0:
                    done[x] = node(x.op, x.dtype, args, x.value)
                    continue
                k = self.builder.read(read.source, (*strides[:-1], 0), read.view.offset)
                done[x] = gather(k, x.dtype, args[0] + at * strides[-1] if args else at * strides[-1])
            else:
                done[x] = x if args == x.args else node(x.op, x.dtype, args, x.value)
        return done[root]
