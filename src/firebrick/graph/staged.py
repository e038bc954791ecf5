"""Callbacks on values before a run is over: ``tell``, and the stages that a graph is cut into for it.

A graph with callbacks is cut after the operations that make their arguments. Each stage is compiled by itself and passes values
to later stages that use them; constants and views, which cost nothing, are made again in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from firebrick.backends.contract import Backend
from firebrick.compiler import Executable
from firebrick.core import trees
from firebrick.core.device import Device
from firebrick.core.errors import UnsupportedError
from firebrick.core.lines import user_line
from firebrick.core.tensor import Tensor
from firebrick.graph.trace import current
from firebrick.ir import CONSTANT, Graph, Node

Reached = Callable[[dict[int, Any]], None]


def tell(fn: Callable[..., Any], *args: Any) -> None:
    """Call ``fn(*args)`` as soon as the tensors among ``args`` are computed: immediately, or under ``jit`` in each of its
    runs, before the rest of the graph runs.

    Results can so be sent while others are computed. Calls come in the order of the program. A run with callbacks
    overwrites no memory of tensors that it changes, and passes on nothing that depends on a condition that does not hold.

    Args:
        fn: A function; under ``jit`` one that the compiled function can find again at each call: a global, or what it or an
            argument holds. State that it changes belongs into an attribute that graphs do not depend on (``unwatched``):
            otherwise each new value makes a new graph.
        args: Tensors, numbers and containers of these. The tensors that ``fn`` gets are untracked.

    Raises:
        UnsupportedError: In a branch or body of ``fb.cond``, ``fb.while_loop`` or ``fb.scan`` under ``jit``.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.graph import tell
        >>> class Listener:
        ...     unwatched = frozenset({"heard"})
        ...
        ...     def __init__(self):
        ...         self.heard = []
        ...
        ...     def hear(self, x):
        ...         self.heard.append(x.item())
        >>> listener = Listener()
        >>> @fb.jit
        ... def f(x):
        ...     y = x * x
        ...     tell(listener.hear, y)
        ...     return y + 1.0
        >>> [f(fb.asarray(v)).item() for v in (2.0, 3.0)], listener.heard, f.traces
        ([5.0, 10.0], [4.0, 9.0], 1)
    """
    untracked = trees.tree_map(lambda v: v.detach() if isinstance(v, Tensor) else v, args)
    trace = current.get()
    if trace is None:
        fn(*untracked)
        return
    if trace.parent is not None:
        raise UnsupportedError(
            "a branch or body of fb.cond, fb.while_loop and fb.scan calls no callback under jit",
            f"tell in {trace.name}, at {user_line()}",
            "call tell on the operands or results, or do this part outside jit",
        )
    trace.callbacks.append((fn, untracked))


@dataclass(frozen=True)
class Stage:
    """A part of a graph.

    Attributes:
        graph: Its operations.
        inputs: Its inputs, as values of the whole graph.
        outputs: Its outputs, likewise.
        over: Values that no later stage needs.
    """

    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    over: tuple[int, ...]


def stages(graph: Graph, ends: Sequence[int]) -> list[Stage]:
    """A graph in parts that run one after the other.

    Args:
        graph: The whole.
        ends: How many of its nodes have run at the end of each part, rising; the last one is all of them.
    """
    makers = {v: n for n in graph.nodes for v in n.results}
    parts = []
    for start, stop in pairwise((0, *ends)):
        own = graph.nodes[start:stop]
        made = {v for n in own for v in n.results}
        again: dict[int, Node] = {}
        taken: dict[int, None] = {}
        wanted = [v for n in reversed(own) for v in reversed(n.inputs)]
        while wanted:
            v = wanted.pop()
            n = makers.get(v)
            if v in made or v in taken:
                continue
            if n is None or not (n.op is CONSTANT or n.op.view):
                taken[v] = None
            elif n.first not in again:
                again[n.first] = n
                wanted += n.inputs
        parts.append(([*(again[k] for k in sorted(again)), *own], made, tuple(taken)))
    needed, found = set(graph.outputs), []
    for nodes, made, inputs in reversed(parts):
        given = tuple(v for n in nodes for v in n.results if v in made and v in needed)
        over = tuple(v for v in inputs if v not in needed)
        needed.update(inputs)
        found.append(Stage(_alone(graph, nodes, inputs, given), inputs, given, over))
    return found[::-1]


def _alone(graph: Graph, nodes: Sequence[Node], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """Some nodes as a graph of their own."""
    avals = graph.avals
    at = {v: i for i, v in enumerate(inputs)}
    count, made = len(inputs), []
    for n in nodes:
        at.update((v, count + k) for k, v in enumerate(n.results))
        made.append(Node(n.op, tuple(at[i] for i in n.inputs), n.params, count, n.avals, n.label, n.line, n.region))
        count += len(n.avals)
    names = [graph.names[v] if v < len(graph.names) else "" for v in inputs]
    return Graph([avals[v] for v in inputs], made, tuple(at[v] for v in outputs), names)


class Staged:
    """A compiled graph that stops where callbacks get outputs.

    Args:
        engine: The engine that compiles it.
        graph: The program.
        device: Where it runs.
        stops: For each stop, in order: the positions of the outputs that must be computed.

    Attributes:
        peak: The most memory that intermediate values and outputs take at once, in bytes.
    """

    def __init__(self, engine: Backend, graph: Graph, device: Device, stops: Sequence[Sequence[int]]) -> None:
        made = {v: k + 1 for k, n in enumerate(graph.nodes) for v in n.results}
        self._stops: list[int] = []
        for positions in stops:
            last = self._stops[-1] if self._stops else 1
            self._stops.append(max([last, *(made.get(graph.outputs[p], 1) for p in positions)]))
        self._ends = sorted({*self._stops, len(graph.nodes)})
        self._outputs, self._count = graph.outputs, len(graph.inputs)
        self._copy = partial(engine.copy, device=device)
        self._parts: list[tuple[Stage, Executable]] = [(s, engine.compile(s.graph, device)) for s in stages(graph, self._ends)]
        self.peak = self._most(graph)

    def _most(self, graph: Graph) -> int:
        """The most memory that intermediate values and outputs take at once, in bytes."""
        avals, most = graph.avals, 0
        held: set[int] = set()
        for stage, exe in self._parts:
            most = max(most, sum(avals[v].nbytes for v in held) + exe.plan.peak)
            held.update(stage.outputs)
            held.difference_update(stage.over)
        return most

    def __call__(self, natives: Sequence[Any], reached: Reached) -> dict[int, Any]:
        """Run the stages.

        Args:
            natives: The graph's inputs.
            reached: Called at each stop, with the outputs computed so far, by position.

        Returns:
            All outputs, by position.
        """
        values: dict[int, Any] = dict(enumerate(natives))
        outputs: dict[int, Any] = {}
        stops = list(self._stops)
        for (stage, exe), end in zip(self._parts, self._ends, strict=True):
            values.update(zip(stage.outputs, exe([values[v] for v in stage.inputs]), strict=True))
            for position, v in enumerate(self._outputs):
                if v in values and position not in outputs:
                    outputs[position] = self._copy(values[v]) if v < self._count else values[v]
            for v in stage.over:
                values.pop(v, None)
            while stops and stops[0] == end:
                del stops[0]
                reached(outputs)
        return outputs

    def explain(self) -> str:
        """What each stage runs."""
        count = len(self._parts)
        return "\n".join(f"stage {i} of {count}: {exe.explain()}" for i, (_, exe) in enumerate(self._parts, 1))
