"""``scan``, ``while_loop``, ``cond`` and checks of indices in programs for web pages: steps that the page repeats or skips.

Carries of a loop are in the buffers of the loop's results. What a round computes is copied there at its end, unless nothing
reads the carry after the kernel that computes the next one: that kernel writes there itself. Elements of sequences are copied
to a buffer of one element before a round, and elements of results to their places after it. A check of indices whose elements
nothing reads is a graph that takes these elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from firebrick.backends.webgpu.buffers import padded
from firebrick.backends.webgpu.web_program import WebCond, WebCopy, WebScan, WebStep, WebWhile
from firebrick.compiler.targets.wgsl.bindings import WORD
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, float32, int32
from firebrick.core.op import Op
from firebrick.ir import Graph, Node
from firebrick.ir.index_check import CHECK_INDICES
from firebrick.ops import OPS

_CAST = OPS["cast"]


@dataclass(frozen=True)
class Emitted:
    """The steps of a graph.

    Attributes:
        steps: In order.
        outputs: The buffer of each output: its goal, or where it is until it is copied there.
        borrowed: Those of the outputs' buffers that are to be released.
    """

    steps: list[WebStep]
    outputs: list[int]
    borrowed: list[int]


class Scope(Protocol):
    """A graph that is planned: that of the program, of a branch, or of a round of a loop."""

    @property
    def graph(self) -> Graph: ...

    def emitted(self, inputs: Sequence[int], goals: Sequence[int | None], carries: Mapping[int, int]) -> Emitted:
        """The steps.

        Args:
            inputs: Buffers of the graph's inputs, which are not written but as goals.
            goals: For each output, the buffer where it should be, or None.
            carries: For outputs whose goal is the buffer of an input, the number of that input.
        """
        ...

    def shared(self, nbytes: int) -> int:
        """A buffer whose values are dead."""
        ...

    def release(self, buffers: Sequence[int]) -> None:
        """Give back buffers of ``shared``."""
        ...


def graphs_of(n: Node, operand: Aval | None) -> tuple[Graph, ...] | None:
    """The graphs that a node runs; None if pages do not run it.

    Args:
        n: The node.
        operand: Shape and dtype of its first operand.
    """
    if n.op.control is None or n.op.name not in _STEPS:
        return None
    if n.op is CHECK_INDICES:
        assert operand is not None
        return (_check(operand, n.params["size"]),)
    return n.params["branches"] if n.op.name == "cond" else (n.params["body"],)


def control_steps(n: Node, bodies: Sequence[Scope], operands: Sequence[int], results: Sequence[int]) -> list[WebStep]:
    """The steps of a node.

    Args:
        n: A node with ``graphs_of``.
        bodies: Its graphs.
        operands: Buffers of its operands.
        results: Buffers of its results, other than those.
    """
    return _STEPS[n.op.name](n, bodies, operands, results)


def _copy(source: int, goal: int, nbytes: int, **strides: int) -> list[WebStep]:
    return [WebCopy(source, goal, padded(nbytes), **strides)] if nbytes and source != goal else []


def _cond(n: Node, bodies: Sequence[Scope], operands: Sequence[int], results: Sequence[int]) -> list[WebStep]:
    lists: list[tuple[WebStep, ...]] = []
    for body in bodies:
        made = body.emitted(operands[1:], results, {})
        steps = made.steps
        for buffer, goal, a in zip(made.outputs, results, n.avals, strict=True):
            steps += _copy(buffer, goal, a.nbytes)
        body.release(made.borrowed)
        lists.append(tuple(steps))
    return [WebCond(operands[0], lists[0], lists[1])]


def _while_loop(n: Node, bodies: Sequence[Scope], operands: Sequence[int], results: Sequence[int]) -> list[WebStep]:
    (body,), consts = bodies, n.params["consts"]
    sizes = [a.nbytes for a in n.avals]
    flag = body.shared(WORD)
    steps = _copy(operands[consts], flag, WORD)
    for buffer, goal, nbytes in zip(operands[consts + 1 :], results, sizes, strict=True):
        steps += _copy(buffer, goal, nbytes)
    goals = [flag, *results]
    made = body.emitted([*operands[:consts], *results], goals, {1 + k: consts + k for k in range(len(results))})
    inner = made.steps + _moved(body, made.outputs, goals, [WORD, *sizes])
    body.release([flag, *made.borrowed])
    return [*steps, WebWhile(flag, tuple(inner))]


def _scan(n: Node, bodies: Sequence[Scope], operands: Sequence[int], results: Sequence[int]) -> list[WebStep]:
    (body,), consts, carries, length = bodies, n.params["consts"], n.params["carries"], n.params["length"]
    sizes = [a.nbytes for a in n.avals]
    first, sequences = operands[consts : consts + carries], operands[consts + carries :]
    carry, lists = results[:carries], results[carries:]
    steps: list[WebStep] = []
    for buffer, goal, nbytes in zip(first, carry, sizes, strict=False):
        steps += _copy(buffer, goal, nbytes)
    if not length:
        return steps
    elements = [a.nbytes for a in body.graph.inputs[consts + carries :]]
    places = [body.shared(nbytes) for nbytes in elements]
    inner: list[WebStep] = []
    for buffer, place, nbytes in zip(sequences, places, elements, strict=True):
        inner += _copy(buffer, place, nbytes, source_stride=nbytes)
    made = body.emitted(
        [*operands[:consts], *carry, *places], [*carry, *[None] * len(lists)], {k: consts + k for k in range(carries)}
    )
    inner += made.steps
    for buffer, goal, nbytes in zip(made.outputs[carries:], lists, sizes[carries:], strict=True):
        inner += _copy(buffer, goal, nbytes // length, goal_stride=nbytes // length)
    inner += _moved(body, made.outputs[:carries], carry, sizes[:carries])
    body.release([*places, *made.borrowed])
    return [*steps, WebScan(length, n.params["reverse"], tuple(inner))]


def _moved(body: Scope, sources: Sequence[int], goals: Sequence[int], sizes: Sequence[int]) -> list[WebStep]:
    """Copies of next carries to their buffers, all at once: a carry that another one becomes is saved before it is written."""
    steps: list[WebStep] = []
    saved: dict[int, int] = {}
    for source, goal, nbytes in zip(sources, goals, sizes, strict=True):
        if source != goal and source in goals and source not in saved:
            saved[source] = body.shared(nbytes)
            steps += _copy(source, saved[source], nbytes)
    for source, goal, nbytes in zip(sources, goals, sizes, strict=True):
        if source != goal:
            steps += _copy(saved.get(source, source), goal, nbytes)
    body.release(list(saved.values()))
    return steps


# checks of indices


def _check(indices: Aval, size: int) -> Graph:
    """True for indices of an axis; its kernels check them."""
    graph = Graph([indices])
    whole = graph.add(OPS["broadcast_to"], graph.constant(np.asarray(True)), shape=(size,))
    taken = graph.add(OPS["take"], *whole, 0, axis=0)
    graph.outputs = graph.add(OPS["all"], *taken, axes=tuple(range(indices.ndim)), keepdims=False)
    return graph


def _inlined(n: Node, bodies: Sequence[Scope], operands: Sequence[int], results: Sequence[int]) -> list[WebStep]:
    (body,) = bodies
    made = body.emitted(operands, results, {})
    body.release(made.borrowed)
    return made.steps + _copy(made.outputs[0], results[0], n.avals[0].nbytes)


_STEPS: dict[str, Callable[[Node, Sequence[Scope], Sequence[int], Sequence[int]], list[WebStep]]] = {
    "cond": _cond, "while_loop": _while_loop, "scan": _scan, CHECK_INDICES.name: _inlined,
}  # fmt: skip


# sequences of narrow elements


def with_whole_words(graph: Graph) -> Graph:
    """The graph with scans over elements of whole words, as buffers are copied by words: a narrow element is cast to 32 bits,
    which every value of a narrow dtype survives."""
    if not any(_narrow(n) for n in graph.nodes):
        return graph
    made = _Renumbered(graph.inputs)
    for n in graph.nodes:
        inputs = tuple(made.new[i] for i in n.inputs)
        if not _narrow(n):
            made.new += made.put(n.op, inputs, n.params, n.avals, n)
            continue
        first = n.params["consts"] + n.params["carries"]
        body, carries = n.params["body"], n.params["carries"]
        goals = [_wide(a) for a in body.inputs[first:]]
        inputs = (*inputs[:first], *(made.cast(v, d, n) for v, d in zip(inputs[first:], goals, strict=True)))
        wide = _wide_body(body, first, carries)
        avals = [
            a if k < carries else Aval(a.shape, wide.avals[v].dtype)
            for k, (a, v) in enumerate(zip(n.avals, wide.outputs, strict=True))
        ]
        results = made.put(n.op, inputs, {**n.params, "body": wide}, avals, n)
        made.new += [made.cast(v, a.dtype, n) for v, a in zip(results, n.avals, strict=True)]
    made.graph.outputs = tuple(made.new[v] for v in graph.outputs)
    return made.graph


def _wide(a: Aval) -> DType:
    """The dtype of an element whose bytes are whole words."""
    if a.nbytes % WORD == 0:
        return a.dtype
    return float32 if a.dtype.is_inexact else int32


def _narrow(n: Node) -> bool:
    """Whether a node is a scan over elements or results that are no whole words."""
    if n.op.name != "scan" or n.op.control is None:
        return False
    body, first = n.params["body"], n.params["consts"] + n.params["carries"]
    avals = body.avals
    elements = [*body.inputs[first:], *(avals[v] for v in body.outputs[n.params["carries"] :])]
    return any(_wide(a) is not a.dtype for a in elements)


def _wide_body(body: Graph, first: int, carries: int) -> Graph:
    """The body of a scan, which casts its elements back, and its results to the wider dtype."""
    made = _Renumbered([a if k < first else Aval(a.shape, _wide(a)) for k, a in enumerate(body.inputs)])
    like = body.nodes[0] if body.nodes else None
    made.new = [made.cast(k, a.dtype, like) for k, a in enumerate(body.inputs)]
    for n in body.nodes:
        made.new += made.put(n.op, tuple(made.new[i] for i in n.inputs), n.params, n.avals, n)
    avals = body.avals
    made.graph.outputs = tuple(
        made.new[v] if k < carries else made.cast(made.new[v], _wide(avals[v]), like) for k, v in enumerate(body.outputs)
    )
    return made.graph


class _Renumbered:
    """A graph under construction; ``new`` has the new number of each value of an old one."""

    def __init__(self, inputs: Sequence[Aval]) -> None:
        self.graph = Graph(list(inputs))
        self.avals = list(inputs)
        self.new = list(range(len(inputs)))

    def put(
        self, op: Op, inputs: tuple[int, ...], params: dict[str, Any], avals: Sequence[Aval], like: Node | None
    ) -> range:  # fmt: skip
        line, region = (None, 0) if like is None else (like.line, like.region)
        node = Node(op, inputs, params, len(self.avals), tuple(avals), "", line, region)
        self.graph.nodes.append(node)
        self.avals += avals
        return node.results

    def cast(self, v: int, to: DType, like: Node | None) -> int:
        a = self.avals[v]
        return v if a.dtype is to else self.put(_CAST, (v,), {"dtype": to}, [Aval(a.shape, to)], like)[0]
