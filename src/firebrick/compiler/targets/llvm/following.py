"""Groups with a contraction: a product of matrices or a convolution, and the elementwise nodes that follow from it.

Views of a product's operands become axes of its problem; what follows is its epilogue, whose operands may be broadcast or lie
in any way that has strides in the shape of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from math import prod

from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.layout.views import viewed
from firebrick.compiler.spec.description import Axes, Product, Tile
from firebrick.compiler.spec.elements import element
from firebrick.compiler.targets.llvm import convolutions, products
from firebrick.compiler.targets.llvm.contract import (
    Axis,
    Contraction,
    Epilogue,
    Operand,
    Result,
    contraction,
    conv,
    fits,
    forward,
    product,
    stored,
)
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, STEPS_PER_US, Lowered, contracted
from firebrick.compiler.targets.llvm.native import NAME
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.views import View, cuts, row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.scalar.expr import Expr, const, load, walk
from firebrick.scalar.storage import computed

OPS = ("matmul", "conv")


def contracts(n: Node) -> bool:
    """Whether a node is the contraction of such a group."""
    return n.op.name in OPS


def lowered(body: Graph, target: Target) -> Lowered:
    """The kernels of a body with one contraction."""
    return _Following(body, target).lowered()


@dataclass(slots=True)
class _Following:
    body: Graph
    target: Target
    seen: dict[int, tuple[int, View]] = field(init=False)  # views of inputs
    values: dict[int, Expr] = field(default_factory=dict)  # the element of other values at the place of the result
    operands: dict[tuple[int, View], int] = field(default_factory=dict)  # of the epilogue

    def lowered(self) -> Lowered:
        body, avals = self.body, self.body.avals
        self.seen = {i: (i, row_major(a.shape)) for i, a in enumerate(body.inputs)}
        (n,) = (n for n in body.nodes if contracts(n))
        shape = self.refined(n)
        for m in body.nodes:
            self.node(m, n, shape)
        exprs = [self.element(v, avals[v].shape, shape) for v in body.outputs]
        if fits(exprs):
            raise TypeError(fits(exprs))
        given = [(body.inputs[i].dtype.name, layout) for i, layout in self.operands]
        results = [(e, avals[v].dtype.name, row_major(shape)) for e, v in zip(exprs, body.outputs, strict=True)]
        (a, b), c, light, d = self.contraction(n, shape, given, results)
        taken = [i for i, _ in self.operands]
        steps = sum(e.op not in ("load", "const") for e in walk(exprs)) * prod(shape)
        moved = sum(min(body.inputs[i].nbytes, avals[n.first].nbytes) for i in taken)
        moved += sum(avals[v].nbytes for v in body.outputs)
        cost = steps / STEPS_PER_US + moved / BYTES_PER_US if steps else 0.0
        made = contracted([(c, (a, b, *taken))], len(body.inputs), len(exprs), cost, light)
        over = []
        for v in body.outputs:
            there = [i for i, x in enumerate(body.inputs) if c.in_place and x.dtype == avals[v].dtype and i not in (a, b)]
            over.append(frozenset(i for i in there if [k for k in self.operands if k[0] == i] == [(i, row_major(shape))]))
        return replace(made, over=tuple(over), doubt=doubt(body, d))

    def refined(self, n: Node) -> tuple[int, ...]:
        """The shape of the result, its leading axes cut where those of any value that follows are."""
        shape = n.avals[0].shape
        shapes = [m.avals[0].shape for m in self.body.nodes if m.op.name == "reshape" and prod(m.avals[0].shape) == prod(shape)]
        found = cuts(shape, *shapes) if n.op.name == "matmul" else None
        if found is None:
            return shape
        behind = prod(shape[-2:])
        return *(b // a for a, b in reversed(list(pairwise(x for x in found if x >= behind)))), *shape[-2:]

    def node(self, m: Node, n: Node, shape: tuple[int, ...]) -> None:
        """Make the result of a node known."""
        if m.op is CONSTANT:
            dtype = computed(m.avals[0].dtype.name)
            self.values[m.first] = const(m.params["value"].reshape(()).astype(dtype).item(), dtype)
        elif m is n:
            self.values[m.first] = product(m.avals[0].dtype.name)
        elif m.op.view:
            v = m.inputs[0]
            if v in self.seen:
                i, layout = self.seen[v]
                found = viewed(m, 0, layout)
                assert found is not None
                self.seen[m.first] = i, found
            else:
                self.values[m.first] = self.values[v]  # a number in any shape, or elements in the same order
        else:
            args = [self.element(v, m.avals[0].shape, shape) for v in m.inputs]
            operands = [self.body.avals[v] for v in m.inputs]
            self.values[m.first] = element(m, args, operands, (product(n.avals[0].dtype.name),))

    def element(self, v: int, where: Sequence[int], shape: tuple[int, ...]) -> Expr:
        """The element of a value, which is broadcast to the shape ``where``, at the place of the result."""
        if v not in self.seen:
            return self.values[v]
        i, layout = self.seen[v]
        found = layout.broadcast_to(where).reshaped(shape)
        assert found is not None
        return load(self.operands.setdefault((i, found), len(self.operands)) + 1, computed(self.body.avals[v].dtype.name))

    def contraction(
        self, n: Node, shape: tuple[int, ...], given: Sequence[tuple[str, View]], results: Sequence[tuple[Expr, str, View]]
    ) -> tuple[tuple[int, int], Contraction, bool, Product]:
        """Which inputs are A and B, the kernels, whether what follows is a light epilogue, and what the generator was given."""
        if n.op.name == "conv":
            x, w = n.inputs
            g = convolutions.geometry(n, [self.body.inputs[x], self.body.inputs[w]])

            def place(dtype: str, layout: View) -> Result:
                return convolutions.result(g, dtype, layout)

            epilogue = _epilogue(given, results, place)
            # a plain product in its own dtype has kernels of its own, which are given no epilogue
            plain = epilogue.plain and epilogue.results[0][1].dtype == g.dtype
            made = forward(g, self.target, NAME, None if plain else epilogue)
            images, channels, *spots = shape
            d = self.described((1,), (channels, images * prod(spots), 0), None, None, stored(conv(g).c) if plain else epilogue)
            return (w, x), _named(made, "conv"), epilogue.light, d
        (i, left), (j, right) = (self.seen[v] for v in n.inputs)
        batch, (rows, columns), lead = n.avals[0].shape[:-2], shape[-2:], shape[:-2]
        k = self.body.avals[n.inputs[0]].shape[-1]
        a = left.broadcast_to((*batch, rows, k)).reshaped((*lead, rows, k))
        b = right.broadcast_to((*batch, k, columns)).reshaped((*lead, k, columns))
        assert a is not None
        assert b is not None
        p = products.problem(n.avals[0].dtype.name, a, b)
        epilogue = _epilogue(given, results, products.result)
        d = self.described(p.batch, (p.m, p.n, p.k), _tile(i, p.a, p.a.k), _tile(j, p.b, p.b.k), epilogue)
        return (i, j), _named(contraction(p, self.target, NAME, epilogue), "matmul"), epilogue.light, d

    def described(
        self, batch: tuple[int, ...], sizes: tuple[int, int, int], left: Tile | None, right: Tile | None, epilogue: Epilogue
    ) -> Product:  # fmt: skip
        """What a generator is given."""
        reads = tuple(_tile(i, x, x.lanes) for (i, _), x in zip(self.operands, epilogue.operands, strict=True))
        writes = tuple((e, _tile(-1, x, x.lanes)) for e, x in epilogue.results)
        return Product(batch, *sizes, left, right, reads, writes)


def _tile(source: int, x: Operand | Result, columns: Sequence[Axis]) -> Tile:
    rows = x.rows if isinstance(x, Result) else x.lanes
    return Tile(source, x.dtype, _sizes(rows), _sizes(columns), x.batch, x.offset)


def _sizes(axes: Sequence[Axis]) -> Axes:
    return tuple((a.size, a.stride) for a in axes)


def _epilogue(
    given: Sequence[tuple[str, View]], results: Sequence[tuple[Expr, str, View]], place: Callable[[str, View], Result]
) -> Epilogue:
    return Epilogue(tuple(place(d, x) for d, x in given), tuple((e, place(d, x)) for e, d, x in results))


def _named(c: Contraction, kind: str) -> Contraction:
    """The same contraction, its functions named after a hash of their text."""
    name = f"{kind}_{blake2b(repr(c.functions).encode(), digest_size=12).hexdigest()}"
    functions = {k.replace(NAME, name): text.replace(f"@{NAME}", f"@{name}") for k, text in c.functions.items()}
    return replace(c, functions=functions, kernels=tuple(replace(k, name=k.name.replace(NAME, name)) for k in c.kernels))
