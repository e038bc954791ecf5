"""``Contract``: matrix products and convolutions, C[b, m, n] = Σ_k A[b, m, k] · B[b, k, n], and elementwise functions of C.

Each of m, n and k is one index whose digits step through memory, so that a patch of an image needs no copy: its address is a
sum of strides times digits, and it is 0 where a coordinate of the image (a ``Bound``) is outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from firebrick.compiler.layout.views import viewed
from firebrick.compiler.spec.base import Cost, Operand, Result
from firebrick.compiler.spec.convolution import FORWARD, Convolution
from firebrick.compiler.spec.elements import element
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.parts import Factor, Part
from firebrick.core.views import View, cuts, row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.scalar.complex_numbers import Parts, number, paired
from firebrick.scalar.expr import COMPLEX, Expr, load, walk
from firebrick.scalar.storage import computed

_STEADY = frozenset({"index", "gather", "reduce", "bounded"})


@dataclass(frozen=True, slots=True)
class Contract:
    """Contractions, and elementwise work on their elements.

    Attributes:
        parts: One contraction, or several that compute disjoint parts of one result, and together all of it.
        dtype: Of A, B and C.
        operands: What ``load(1)``, ``load(2)``, … of the results' expressions read, over the domain [*batch, m, n] of the one
            part; ``load(0)`` is the element of C.
        results: Over the same domain. Of several parts: C itself, whose view each part gives.
        convolution: The convolution that it is, if it is one; a target may use it instead of the parts.
    """

    parts: tuple[Part, ...]
    dtype: str
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]
    convolution: Convolution | None = None

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        steps = sum(1 for e in walk(r.expression for r in self.results) if e.op not in ("load", "const"))
        flops = sum((2.0 * p.k + steps) * prod(p.domain) for p in self.parts)
        arrays: list[Factor | Operand | Result] = [f for p in self.parts for f in (p.left, p.right)]
        moved = sum(x.view.shown * itemsize(x.dtype) for x in [*arrays, *self.operands, *self.results])
        return Cost(flops, float(moved))


def contraction_of(body: Graph) -> Node:
    """The contraction of a group."""
    (n,) = (n for n in body.nodes if n.op.kind == "contract")
    return n


def contract(body: Graph) -> Contract:
    """The specification of a group of one contraction and the elementwise nodes that follow from it.

    Raises:
        TypeError: A node reads elements at other positions than that of the product's element.
    """
    return _ContractBuilder(body).spec()


class _ContractBuilder:
    def __init__(self, body: Graph) -> None:
        self.body, self.avals = body, body.avals
        self.seen: dict[int, tuple[int, View]] = {i: (i, row_major(a.shape)) for i, a in enumerate(body.inputs)}
        self.values: dict[int, Expr] = {}  # the element of other values at the position of C
        self.operands: dict[tuple[int, View], int] = {}
        self.n = contraction_of(body)
        self.product = load(0, computed(self.n.avals[0].dtype.name))
        self.shape = self._refined()

    def spec(self) -> Contract:
        n, dtype = self.n, self.n.avals[0].dtype.name
        for m in self.body.nodes:
            self._node(m)
        outputs = [(self._element(v, self.avals[v].shape), self.avals[v].dtype.name) for v in self.body.outputs]
        moving = sorted({e.op for e in walk(e for e, _ in outputs) if e.op in _STEADY})
        if moving:
            raise TypeError(f"{moving[0]} after a product")
        given = [a.dtype.name for a in self.body.inputs]
        operands = [(i, COMPLEX.get(given[i], given[i]), view) for i, view in self.operands]
        geometry: Convolution | None = None
        if n.op.facts is not None:
            geometry = Convolution(**n.op.facts([self.avals[v] for v in n.inputs], n.avals, **n.params))
            parts = geometry.parts(*(self.seen[v][0] for v in n.inputs))
            placed = geometry.placed
        else:
            parts, placed = (self._matrices(),), _matrix
        if geometry is not None and geometry.direction != FORWARD:  # nothing follows
            return Contract(parts, dtype, (), (Result(self.product, dtype, parts[0].result),), geometry)
        reads = tuple(Operand(i, d, placed(view)) for i, d, view in operands)
        results = tuple(Result(e, d, placed(row_major(self.shape))) for e, d in outputs)
        return Contract(parts, dtype, reads, results, geometry)

    def _refined(self) -> tuple[int, ...]:
        """The shape of C, with its leading axes split where those of any consumer's shape are."""
        shape = self.n.avals[0].shape
        if self.n.op.facts is not None:
            return shape
        views = [m.avals[0].shape for m in self.body.nodes if m.op.view and prod(m.avals[0].shape) == prod(shape)]
        found = cuts(shape, *views)
        if found is None:
            return shape
        behind = prod(shape[-2:])
        inner = [x for x in found if x >= behind]
        return *(b // a for a, b in reversed(list(pairwise(inner)))), *shape[-2:]

    def _node(self, m: Node) -> None:
        """Add the result of a node to ``values``."""
        if m.op is CONSTANT:
            dtype = computed(m.avals[0].dtype.name)
            self.values[m.first] = number(m.params["value"].reshape(()).astype(dtype).item(), dtype)
        elif m is self.n:
            self.values[m.first] = self.product
        elif m.op.view:
            v = m.inputs[0]
            if v in self.seen:
                i, view = self.seen[v]
                found = viewed(m, 0, view)
                assert found is not None
                self.seen[m.first] = i, found
            else:
                self.values[m.first] = self.values[v]  # a number in any shape, or elements in the same order
        else:
            args = [self._element(v, m.avals[0].shape) for v in m.inputs]
            self.values[m.first] = element(m, args, [self.avals[v] for v in m.inputs], (self.product,))

    def _element(self, v: int, shape: Sequence[int]) -> Expr:
        """The element, at the position of C, of a value that is broadcast to ``shape``."""
        if v not in self.seen:
            return self.values[v]
        i, view = self.seen[v]
        found = view.broadcast_to(shape).reshaped(self.shape)
        assert found is not None
        dtype = computed(self.avals[v].dtype.name)
        if dtype not in COMPLEX:
            return self._load(i, found, dtype)
        return paired(Parts(*(self._load(i, found.of_parts(k), COMPLEX[dtype]) for k in (0, 1))))

    def _load(self, source: int, view: View, dtype: str) -> Expr:
        return load(self.operands.setdefault((source, view), len(self.operands)) + 1, dtype)

    def _matrices(self) -> Part:
        """The product of two matrices for each position of the batch."""
        n, dtype = self.n, self.n.avals[0].dtype.name
        (i, left), (j, right) = (self.seen[v] for v in n.inputs)
        batch, (m, columns), lead = n.avals[0].shape[:-2], self.shape[-2:], self.shape[:-2]
        k = self.avals[n.inputs[0]].shape[-1]
        a = left.broadcast_to((*batch, m, k)).reshaped((*lead, m, k))
        b = right.broadcast_to((*batch, k, columns)).reshaped((*lead, k, columns))
        assert a is not None
        assert b is not None
        transposed = b.permuted((*range(len(lead)), len(lead) + 1, len(lead)))
        return Part(lead, m, columns, k, Factor(i, dtype, a), Factor(j, dtype, transposed), row_major(self.shape))


def _matrix(view: View) -> View:
    return view
