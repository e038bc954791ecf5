"""From the body of a ``fused`` node to kernels: scalar expressions of its results, and views of its operands.

Operands and results lie row by row; what a view in the body does to an operand becomes strides. A kernel's name is a hash of
its code, so that equal bodies are one kernel, whatever plan they are part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any
from weakref import WeakValueDictionary

from firebrick.compiler.fusion.groups import ALONE, COLUMNS, CONTRACT, MAP, ROWS, is_added
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.layout.views import strided_view
from firebrick.compiler.program.launch import Place
from firebrick.compiler.spec.description import LoopNest, Read, Write
from firebrick.compiler.spec.elements import element, is_elementwise, is_reduction, reduced_axes
from firebrick.compiler.targets.llvm import following, indexing, products
from firebrick.compiler.targets.llvm.added import added_kernels
from firebrick.compiler.targets.llvm.axes import reduction_stages, split
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, STEPS_PER_US, At, Lowered, Part, behind
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import View
from firebrick.compiler.targets.llvm.native import NAME, module_text, named
from firebrick.compiler.targets.llvm.row import Result, row_kernel
from firebrick.compiler.targets.llvm.rules import RULES
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.indexing import strides_of
from firebrick.core.views import View as ArrayView
from firebrick.core.views import row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.keys import key_of
from firebrick.scalar.expr import Expr, const, load, walk
from firebrick.scalar.storage import STORAGE, computed

FEW, LONG = 4, 1 << 15
"""Fewer rows of at least that length are left to the engine's own reductions."""
FACTORS = 9
"""Up to so many factors, n, two products in float64 agree to the op table's 2 · (1 + √n) eps in any order: each rounds n - 1
times at most, by half an eps. Of more, that of equal ones may err by more, as the errors are alike."""


def kind_of(n: Node, operands: tuple[Aval, ...]) -> str:
    """How a node can be computed in kernels, one of ``fuse.KINDS``; else why it cannot."""
    strange = [a.dtype.name for a in (*operands, *n.avals) if a.dtype.name not in STORAGE]
    if strange:
        return f"no kernels of {strange[0]}"
    elsewhere = indexing.refused(n, operands)
    if elsewhere is not None:
        return elsewhere or MAP
    if n.op.name in RULES:
        alone = not following.contracts(n) or n.params.get("groups", 1) > 1
        return RULES[n.op.name].refused(n, operands) or (ALONE if alone else CONTRACT)
    if len(n.avals) != 1:
        return "several results"
    if n.op.name == "matmul":
        return products.refused(operands) or CONTRACT
    kind = MAP
    if not is_elementwise(n):
        kind = _reduced(n, operands[0].shape) if is_reduction(n) else "no scalar expression"
        if kind not in (ROWS, COLUMNS):
            return kind
    try:
        made = element(n, [load(i, computed(a.dtype.name)) for i, a in enumerate(operands)], operands)
    except TypeError as e:
        return str(e)
    return kind if made.dtype == computed(n.avals[0].dtype.name) else f"a result of dtype {made.dtype}"


def _reduced(n: Node, shape: tuple[int, ...]) -> str:
    """Along what a node reduces an operand of this shape; else why it has no kernel."""
    last = len(shape) - 1
    if prod(shape) == 0:
        return "no elements"
    axes = reduced_axes(n, len(shape))
    if n.op.name == "prod" and n.avals[0].dtype.name == "float64" and prod(shape[a] for a in axes) > FACTORS:
        return "float64 products of many factors"
    if axes == (last,):
        if shape[last] < 2:
            return "rows of one element"
        if prod(shape[:-1]) >= FEW or shape[last] < LONG:
            return ROWS
    if "axes" not in n.params or not axes:
        return "few long rows" if axes == (last,) else f"along axes {axes}"
    return COLUMNS if split(shape, axes) else ROWS


_lowered: WeakValueDictionary[Any, Lowered] = WeakValueDictionary()


def lower(body: Graph, target: Target) -> Lowered:
    """The kernels of a body, whose nodes are one group of ``fuse``; equal bodies that are alive have the same."""
    key = key_of(body), tuple(n.line for n in body.nodes), target  # faults tell the line
    found = _lowered.get(key)
    if found is None:
        found = _lowered[key] = _generated(body, target)
    return found


def _generated(body: Graph, target: Target) -> Lowered:
    n = body.nodes[-1]
    avals = body.avals
    if n.op.name in RULES and kind_of(n, tuple(avals[v] for v in n.inputs)) == ALONE:
        return _alone(body, target)
    if any(map(following.contracts, body.nodes)):
        return following.lowered(body, target)
    return _Lowering(body).lowered(target)


def _alone(body: Graph, target: Target) -> Lowered:
    """The kernels of a body's last node; the others are numbers that it takes."""
    n, avals = body.nodes[-1], body.avals
    rule, operands = RULES[n.op.name], tuple(avals[v] for v in n.inputs)
    inputs = [v for v in n.inputs if v < len(body.inputs)]
    if len(inputs) == len(n.inputs):
        return rule.lower(n, operands, target).of(inputs, len(body.inputs))
    numbers: dict[int, Any] = {}
    for m in body.nodes[:-1]:
        numbers[m.first] = m.params["value"].reshape(()) if m.op is CONSTANT else numbers[m.inputs[0]]
    assert rule.numbered is not None
    known = {i: numbers[v] for i, v in enumerate(n.inputs) if v in numbers}
    return rule.numbered(n, operands, target, known).of(inputs, len(body.inputs))


class _Lowering:
    def __init__(self, body: Graph) -> None:
        self.body, self.avals = body, body.avals
        reduced = [n for n in body.nodes if n.op.fusion == "row"]
        inside = [n for n in reduced if not is_added(n, self._operands(n))]
        reduced = inside or reduced
        self.added: set[int] = set()  # values that are sums along the columns, known as what is added up
        self.kind = kind_of(reduced[0], self._operands(reduced[0])) if reduced else MAP
        self.shape = self.avals[reduced[0].inputs[0] if reduced else body.outputs[0]].shape
        self.axes = reduced_axes(reduced[0], len(self.shape)) if reduced else ()
        self.views: dict[int, tuple[int, ArrayView]] = {i: (i, row_major(a.shape)) for i, a in enumerate(body.inputs)}
        self.places: dict[tuple[At, tuple[int, ...]], int] = {}  # of what begins in an input, with strides: the operand
        self.faults: list[Place] = []
        self.values: dict[int, Expr] = {}
        for n in body.nodes:
            self._node(n)

    def _node(self, n: Node) -> None:
        if n.op is CONSTANT:
            value, dtype = n.params["value"], computed(n.avals[0].dtype.name)
            self.values[n.first] = const(value.reshape(()).astype(dtype).item(), dtype)
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
        elif self.kind == ROWS and is_added(n, self._operands(n)):
            self.values[n.first] = self.value(n.inputs[0])
            self.added.add(n.first)
        elif n.op.name in indexing.EXPRESSIONS:
            self.values[n.first] = indexing.expression(n, self._operands(n), self)
        else:
            self.values[n.first] = element(n, [self.value(v) for v in n.inputs], self._operands(n))

    def _operands(self, n: Node) -> tuple[Aval, ...]:
        return tuple(self.avals[v] for v in n.inputs)

    @property
    def given(self) -> list[tuple[int, ...]]:
        """How the kernel steps through each operand."""
        return [strides for _, strides in self.places]

    def operand(self, place: At, strides: tuple[int, ...]) -> int:
        """The number of an input, or of what lies at a distance in it, as an operand with these strides in the kernel."""
        return self.places.setdefault((place, strides), len(self.places))

    def view(self, k: int, strides: tuple[int, ...]) -> int:
        """The number of operand ``k`` with other strides."""
        return self.operand(list(self.places)[k][0], strides)

    def place_of(self, v: int) -> int | None:
        """The input that a value is."""
        return v if v < len(self.body.inputs) else None

    def fault(self, place: Place) -> int:
        """The number of a place that faults come from."""
        if place not in self.faults:
            self.faults.append(place)
        return self.faults.index(place)

    def value(self, v: int) -> Expr:
        """The element of a value at the kernel's position."""
        if v not in self.views:
            return self.values[v]
        (i, view), aval = self.views[v], self.avals[v]
        place = behind(i, view.offset * aval.dtype.itemsize)
        strides = view.broadcast_to(self.shape).strides
        assert strides is not None
        return load(self.operand(place, strides), computed(aval.dtype.name))

    def described(self) -> LoopNest:
        """What a generator is given."""
        body, shape = self.body, self.shape
        outs = [self.value(v) for v in body.outputs]
        reads = []
        for place, strides in self.places:
            source, nbytes = place if isinstance(place, tuple) else (place, 0)
            dtype = body.inputs[source].dtype
            reads.append(Read(source, nbytes // dtype.itemsize, dtype.name, strides))
        writes = []
        for e, v in zip(outs, body.outputs, strict=True):
            aval = self.avals[v]
            strides = (1,) if v in self.added else _row_view(aval.shape, shape, self.axes)
            writes.append(Write(e, aval.dtype.name, strides, v in self.added))
        faults = tuple((p.size, p.line) for p in self.faults)
        return LoopNest(shape, self.axes, tuple(reads), tuple(writes), faults)

    def lowered(self, target: Target) -> Lowered:
        d = self.described()
        return replace(self._generated(d, target), doubt=doubt(self.body, d))

    def _generated(self, d: LoopNest, target: Target) -> Lowered:
        body, shape = self.body, d.shape
        avals = [self.avals[v] for v in body.outputs]
        given = [body.inputs[r.source] for r in d.reads]
        inputs = [behind(r.source, r.offset * a.dtype.itemsize) for r, a in zip(d.reads, given, strict=True)]
        results = list(range(len(body.inputs), len(body.inputs) + len(avals)))
        outs = [w.expression for w in d.writes]
        steps = sum(e.op not in ("load", "const") for e in walk(outs)) * prod(shape) * max(a.dtype.itemsize for a in avals) / 4
        moved = sum(min(a.nbytes, a.dtype.itemsize * prod(shape)) for a in given)
        moved += sum(a.nbytes for a in avals)
        cost = moved / BYTES_PER_US + steps / STEPS_PER_US
        operands = [View(r.dtype, r.strides) for r in d.reads]
        written = [(w.expression, View(w.dtype, w.strides)) for w in d.writes]
        if self.added:
            return self._with_sums(operands, written, inputs, cost, target)
        if self.kind == COLUMNS or d.axes not in ((), (len(shape) - 1,)):
            return self._staged(operands, written, [*inputs, *results], cost, target)
        generate = row_kernel if self.kind == ROWS else map_kernel
        kernel = named(generate(NAME, shape, operands, written, target), self.kind)
        part = Part(kernel, (*inputs, *results), cost, tuple(self.faults))
        return Lowered((part,), (), module_text([kernel]), self._over())

    def _over(self) -> tuple[frozenset[int], ...]:
        """For each result, the inputs that are read only where its element is written."""
        body, shape, whole = self.body, self.shape, _row_view(self.shape, self.shape)
        read = [(*j, s) if isinstance(j, tuple) else (j, 0, s) for j, s in self.places]
        free = [all((o, s) == (0, whole) for j, o, s in read if j == i) for i in range(len(body.inputs))]
        return tuple(
            frozenset(i for i, x in enumerate(body.inputs) if free[i] and x == self.avals[v] and x.shape == shape)
            for v in body.outputs
        )

    def _with_sums(
        self, operands: list[View], written: list[Result], inputs: list[At], cost: float, target: Target
    ) -> Lowered:  # fmt: skip
        """Rows, and sums over them."""
        body = self.body
        own, count = len(body.inputs), len(body.outputs)
        of_rows = [k for k, v in enumerate(body.outputs) if v not in self.added]
        of_columns = [k for k, v in enumerate(body.outputs) if v in self.added]
        sums = [(written[k][0], written[k][1].dtype) for k in of_columns]
        made = added_kernels(self.shape, operands, [written[k] for k in of_rows], sums, target)
        partial = [own + count + i for i in range(len(sums))]
        further = [own + count + len(sums) + i for i in range(len(made.further))]
        to = [own + k for k in of_columns]
        kernels = [named(made.rows, ROWS), *(named(kernel, COLUMNS) for kernel in made.columns.kernels)]
        buffers = [(*inputs, *(own + k for k in of_rows), *partial)]
        buffers += [(*partial, *further), (*partial, *further, *to)] if further else [(*partial, *to)]
        costs = [cost, sum(made.partial) / BYTES_PER_US, sum(made.further) / BYTES_PER_US]
        parts = [Part(*part) for part in zip(kernels, buffers, costs, strict=False)]
        parts[0] = replace(parts[0], places=tuple(self.faults))
        over = self._over()  # nothing for sums, whose shape is not the rows'
        return Lowered(tuple(parts), (*made.partial, *made.further), module_text(kernels), over)

    def _staged(
        self, operands: list[View], written: list[Result], buffers: list[At], cost: float, target: Target
    ) -> Lowered:  # fmt: skip
        """Reductions along any axes."""
        made = reduction_stages(self.shape, self.axes, operands, written, target, self.kind)
        first = len(self.body.inputs) + len(self.body.outputs)
        numbers = [*buffers, *range(first, first + len(made.temporary))]
        further = sum(made.temporary) / BYTES_PER_US
        parts = [
            Part(kernel, tuple(numbers[b] for b in own), further if k else cost, tuple(self.faults))
            for k, (kernel, own) in enumerate(made.kernels)
        ]
        return Lowered(tuple(parts), made.temporary, module_text([p.kernel for p in parts]), self._over())


def _row_view(shape: Sequence[int], whole: Sequence[int], axes: Sequence[int] = ()) -> tuple[int, ...]:
    """Strides of a result that lies row by row, in the shape of its kernel: 0 along ``axes`` if it lacks them."""
    rest = iter(shape)
    own = [1 if i in axes else next(rest) for i in range(len(whole))] if len(shape) < len(whole) else shape
    return _broadcast(own, strides_of(tuple(own)), whole)


def _broadcast(shape: Sequence[int], strides: Sequence[int], to: Sequence[int]) -> tuple[int, ...]:
    """Strides of a view in a shape that it broadcasts to: 0 along axes that it lacks or that have size 1."""
    missing = len(to) - len(shape)
    return (0,) * missing + tuple(0 if d == 1 else s for d, s in zip(shape, strides, strict=True))
