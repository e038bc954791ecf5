"""``Body``: the trace of a branch or of a loop's body, and its closed graph.

A value of an enclosing trace that a body uses becomes an operand of the control flow node. Such an operand is a value together
with its position on the tape: a value that is used tracked and untracked is two operands, so gradients flow where they flow
outside of graphs. Inside the graph, an edge through which no gradient may flow is a ``detach`` node: a body is differentiated
by running its graph through ``bind`` again, and needs no record of how it was traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from firebrick.autodiff.tape import grad_enabled, make_leaf, new_id, region
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, uint32
from firebrick.core.errors import StateChangedError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.levels import Inner, here
from firebrick.core.lines import user_line
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.control.detach import DETACH
from firebrick.graph.passes.dead import eliminate_dead_code
from firebrick.graph.trace import Draws, Source, Trace, current, running, saved_handle
from firebrick.graph.traced import Traced
from firebrick.ir import CONSTANT, Graph, Node

ORDER = {"outer": 0, "carry": 1, "x": 2, "key": 3}  # of a graph's inputs
Place = tuple[int, int, int, int]


class Body(Trace):
    """The trace of a branch or a body.

    Args:
        name: A description, for messages.
        steps: How often a scan runs it; None where that is not known, or known to be once.
    """

    enters = True  # whether operands of levels around it are leaves

    def __init__(self, name: str, device: Device | None, steps: int | None = None, alone: bool = False) -> None:
        super().__init__(name, None if alone else current.get())
        self.device = device or self.device
        self.steps = steps
        self.records = grad_enabled()
        self.start = new_id()
        self.outer: dict[Place, tuple[Source, Tensor]] = {}
        self.blocks: list[tuple[Any, int, int | None]] = []  # keys: the generator, the first of a step, how many
        self.finders: dict[int, Callable[[], Any] | None] = {}
        self._tracked: set[int] = set()
        self._entered: dict[int, Tensor] = {}
        self._outputs: list[int] = []

    @property
    def differentiated_later(self) -> bool:
        return True

    # inputs

    def number(self, t: Tensor) -> int:
        if type(t.storage.data) is Traced or not self.root.takes_values:
            return super().number(t)
        self.capture(t)
        return self._captured(t, id(t.storage), -1)

    def input(self, like: Tensor, kind: str) -> Tensor:
        """A new input with the shape, dtype and label of ``like``."""
        return self.fresh(like.aval, kind, like.device, like.label)

    def fresh(self, aval: Aval, kind: str, device: Device, label: str | None = None) -> Tensor:
        """A new input; tracked if gradients may have to flow through it."""
        number = self.source(aval, kind, None, label or "")
        t = self.handle(number, device, user_line(), label)
        if self.records and t.dtype.is_inexact:
            self._tracked.add(number)
            self.leaves.append(make_leaf(t))
        return t

    def own(self, t: Tensor) -> Tensor:
        """A handle of this trace on a tensor from outside, which may be rebound here."""
        made = self.handle(self.number(t), t.device, user_line(), t.label)
        (inside,) = self.entered((t,))
        made.node, made.slot = inside.node, inside.slot
        return made

    def entered(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Operands, with leaves of this trace for those of a level around it. Their values beneath the level may be tracked or
        have tangents, which their handles do not show; so what is detached from them here is marked as what is detached from
        tracked values is."""
        if not (self.enters and self.records):
            return inputs
        return tuple([self._inside(t) if t.node is None and isinstance(t.storage.data, Inner) else t for t in inputs])

    def _inside(self, t: Tensor) -> Tensor:
        data = t.storage.data
        if not (isinstance(data, Inner) and data.level.running and data.level.trace is not self and t.dtype.is_inexact):
            return t
        number = self.number(t)
        found = self._entered.get(number)
        if found is None:
            found = self._entered[number] = self.handle(number, t.device, user_line(), t.label)
            self._tracked.add(number)
            self.leaves.append(make_leaf(found))
        return found

    def lift(self, t: Tensor, data: Traced) -> int:
        if self.parent is None or not (data.trace.running and data.trace.within()):
            return super().lift(t, data)
        return self._captured(t, id(data.trace), data.number)

    def lift_inner(self, t: Tensor, data: Inner) -> int:
        if self.parent is None or not data.level.running:
            return super().lift_inner(t, data)
        return self._captured(t, id(data), -1)

    def _captured(self, t: Tensor, home: int, number: int) -> int:
        """The number here of a value from outside, which is known by ``home`` and ``number``."""
        node, slot = self._outside(t)
        position = (home, number, 0 if node is None else node.id, slot)
        found = self.outer.get(position)
        if found is None:
            operand = Tensor(t.storage, t.dtype, t.shape, t.device, t.label)
            operand.node, operand.slot = node, slot
            found = self.outer[position] = self.take(operand)
        return found[0].number

    def take(self, operand: Tensor) -> tuple[Source, Tensor]:
        """A value of the enclosing trace as an input."""
        number = self.source(operand.aval, "outer", None, operand.label or "")
        if operand.node is not None:
            self._tracked.add(number)
        return self.sources[-1], operand

    def _outside(self, t: Tensor) -> tuple[Any, int]:
        """Where a handle is on the tape outside of this body: leaves that were made here are skipped."""
        node, slot = (t.node, t.slot) if self.records else (None, 0)
        while node is not None and node.id >= self.start:
            node, slot = node.parents[0] if node.op is None and node.parents else (None, 0)
        return node, slot

    def capture(self, t: Tensor) -> None:
        if type(t.storage.data) is Traced:
            super().capture(t)
        else:
            self.root.capture(t)

    def constant(self, array: np.ndarray[Any, Any], device: Device) -> Tensor:
        if self.steps is None or self.parent is None or array.size <= 1 or not any(array.strides):
            return super().constant(array, device)
        # in a loop, of the enclosing trace: the steps of a compiled loop are kernels alone, without arrays of their own
        return self.own(self.parent.constant(array, device))

    def weak(self, number: Weak, dtype: DType, device: Device) -> Tensor:
        return super().weak(number, dtype, device) if self.parent is None else self.parent.weak(number, dtype, device)

    def keys(self, generator: Any, find: Callable[[], Any] | None, device: Device, count: int | None) -> Tensor:
        """Keys of each step: those that a plain loop would draw, one step after the other."""
        if self.steps is None:
            raise UnsupportedError(
                "under jit, random numbers are not drawn inside fb.cond and fb.while_loop: how many there are is not known",
                f"a draw at {user_line()}, in {self.name}",
                "draw them before and use the result, or use fb.scan, which runs a known number of steps",
            )
        if any(level.maps and level.trace is not self for level in here()):
            raise UnsupportedError(
                "under jit, random numbers are not drawn inside a fb.scan that is itself inside fb.vmap",
                f"a draw at {user_line()}, in {self.name}",
                "draw them before the scan, for all steps, and pass them as xs",
            )
        draws = self.draws.setdefault(id(generator), Draws(generator, lambda given: generator))
        self.finders[id(generator)] = find
        first = draws.next
        draws.next += 1 if count is None else count
        draws.count = max(draws.count, draws.next)
        key = ("key", id(generator), first, count)
        found = self._sourced.get(key)
        if found is None:
            found = self._sourced[key] = self.source(Aval((4,) if count is None else (count, 4), uint32), "key", None, "key")
            self.blocks.append((generator, first, count))
        return self.handle(found, device, user_line())

    # the end

    def replace_values(self, known: dict[int, int]) -> None:
        """Let values be read instead of others."""
        if known:
            self.nodes = [replace(n, inputs=tuple(known.get(i, i) for i in n.inputs)) for n in self.nodes]

    def finish(self, outputs: Sequence[Tensor]) -> None:
        """Set its outputs."""
        outputs = self.entered(tuple(outputs))
        self._outputs = [self.number(t) for t in outputs]
        if self.records:
            self._outputs = self._cut(self._outputs, [t.node is not None for t in outputs])
        for leaf in self.leaves:
            leaf.closed = True
        self.sources.sort(key=lambda s: ORDER[s.kind])

    def made(self) -> Graph:
        """The graph from the inputs (captured values, carries, elements of sequences, keys) to its outputs."""
        return eliminate_dead_code(self.graph(self._outputs))

    def unchanged(self) -> None:
        """Raise StateChangedError if a tensor that existed before was rebound."""
        for t, saved in self._known.values():
            if t.storage is not saved[0]:
                data = t.storage.data
                line = f" at {data.line}" if type(data) is Traced else ""
                raise StateChangedError(
                    f"{self.name} changes a tensor that existed before it, which a graph cannot repeat",
                    f"{t.label or 'a tensor'}, {t.aval}, changed{line}",
                    "make it part of the carry: take it from there, and return its new value",
                )

    def _cut(self, outputs: list[int], flowing: list[bool]) -> list[int]:
        """Put ``detach`` where a tracked value is used untracked; returns the outputs' numbers."""
        tracked = set(self._tracked)
        nodes: list[Node] = []
        cuts: dict[int, int] = {}

        def cut(i: int) -> int:
            if i not in cuts:
                aval = self.avals[i]
                cuts[i] = self._value(aval)
                nodes.append(Node(DETACH, (i,), {}, cuts[i], (aval,)))
            return cuts[i]

        for n, flow in zip(self.nodes, self.flows, strict=True):
            if n.op.differentiable and any(i in tracked and not flows for i, flows in zip(n.inputs, flow, strict=True)):
                inputs = tuple(i if flows or i not in tracked else cut(i) for i, flows in zip(n.inputs, flow, strict=True))
                n = replace(n, inputs=inputs)
            nodes.append(n)
            if n.op.differentiable and any(i in tracked for i in n.inputs):
                tracked.update(v for v in n.results if self.avals[v].dtype.is_inexact)
        found = [i if flows or i not in tracked else cut(i) for i, flows in zip(outputs, flowing, strict=True)]
        self.nodes = nodes
        return found

    def operands(self) -> list[Tensor]:
        """The captured values, in the order of the inputs."""
        at = {id(source): operand for source, operand in self.outer.values()}
        return [at[id(s)] for s in self.sources if s.kind == "outer"]


class Eager(Body):
    """The trace of a branch or a body outside of other traces: the tensors that it uses are its operands."""

    takes_values = True

    def capture(self, t: Tensor) -> None:
        if type(t.storage.data) is Traced:
            super().capture(t)
        elif id(t) not in self._known:  # which it must not rebind
            self._known[id(t)] = (t, saved_handle(t))


def share(bodies: Sequence[Body]) -> None:
    """Give branches the same captured values in the same order."""
    union = {position: operand for b in bodies for position, (_, operand) in b.outer.items()}
    order = {position: i for i, position in enumerate(union)}
    for b in bodies:
        for position, operand in union.items():
            if position not in b.outer:
                b.outer[position] = b.take(operand)
        at = {id(source): order[position] for position, (source, _) in b.outer.items()}
        b.sources.sort(key=lambda s: (ORDER[s.kind], at.get(id(s), 0)))


@contextmanager
def body(name: str, device: Device | None, steps: int | None = None, kind: type[Body] = Body) -> Iterator[Body]:
    """Trace a branch or body of the running trace for a ``with`` block."""
    token = region.set(None)
    try:
        with running(kind(f"{name} at {user_line()}", device, steps)) as trace:
            yield trace
            trace.unchanged()
    finally:
        region.reset(token)


def replay(graph: Graph, inputs: Sequence[Tensor], device: Device) -> list[Tensor]:
    """Run a graph through ``bind``, operation by operation; returns its outputs."""
    values = replayed(graph, inputs, device)
    return [values[i] for i in graph.outputs]


def replayed(graph: Graph, inputs: Sequence[Tensor], device: Device) -> dict[int, Tensor]:
    """Run a graph like ``replay``; returns all its values by number."""
    values: dict[int, Tensor] = dict(enumerate(inputs))
    for n in graph.nodes:
        if n.op is CONSTANT:
            values[n.first] = hooks.from_host(n.params["value"], device)
            continue
        made = n.op(*(values[i] for i in n.inputs), **n.params)
        for k, t in enumerate(made if isinstance(made, tuple) else (made,)):
            values[n.first + k] = t
    return values
