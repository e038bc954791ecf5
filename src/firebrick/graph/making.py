"""From a finished trace to a program: its inputs, its results, and the gradient's program for the tape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from firebrick.core.tensor import Tensor
from firebrick.graph.call import Linear, Pulled
from firebrick.graph.passes.dead import without_inputs
from firebrick.graph.passes.optimized import optimized as optimize
from firebrick.graph.program import Program
from firebrick.graph.results import Results
from firebrick.graph.trace import Trace
from firebrick.ir import Graph


@dataclass
class Making:
    """Makes programs of a finished trace, for calls with these tensors."""

    name: str
    trace: Trace
    tensors: list[Tensor]

    def program(
        self, values: list[int], own: int, changes: list[tuple[int, int]], also: tuple[int, ...] = (), end: int | None = None,
        callbacks: Sequence[tuple[int, ...]] = (),
    ) -> Program:  # fmt: skip
        """The program of ``values``. Inputs that are unused and not in ``also`` are left out."""
        trace = self.trace
        made = {v for n in trace.nodes[:end] for v in ((n.first,) if len(n.avals) == 1 else n.results)}
        outputs = list(dict.fromkeys(v for v in values if v in made))
        checks = [c for c in trace.checks if c.number in made]
        graph = optimize(trace.graph([*outputs, *(c.number for c in checks)], end))
        used = set(chain(graph.outputs, *[n.inputs for n in graph.nodes]))
        used.update(also)
        shown = set(values)
        kept = [i for i, s in enumerate(trace.sources) if i in used or s.number in shown]
        graph = without_inputs(graph, kept)
        sources = [trace.sources[i] for i in kept]
        at = {s.number: i for i, s in enumerate(sources)}
        first: dict[int, int] = {}
        for i, t in enumerate(self.tensors):
            first.setdefault(id(t), i)
        positions, fixed = [], {}
        numbers, keys, draws = [], [], list(trace.draws)
        for i, s in enumerate(sources):
            position = -1
            if s.kind == "leaf":
                t = trace.handles[s.payload]
                position = first.get(id(t), -1)
                if position < 0:
                    fixed[i] = t
            elif s.kind == "weak":
                numbers.append((i, *s.payload))
            else:
                keys.append((i, draws.index(s.payload[0]), s.payload[1]))
            positions.append(position)
        used_up = set(kept)
        numbers += [(-1, *s.payload) for i, s in enumerate(trace.sources) if s.kind == "weak" and i not in used_up]
        order = {v: k for k, v in enumerate(outputs)}
        results = [("out", order[v], trace.avals[v]) if v in order else ("in", at[v], trace.avals[v]) for v in values]
        updates = []
        for position, slot in changes:
            t = trace.handles[position]
            now = first.get(id(t), -1)
            updates.append((now, None if now >= 0 else t, slot))
        return Program(
            self.name, graph, trace.device if graph.nodes or numbers or keys else None, positions, fixed, numbers, keys,
            list(trace.draws.values()),
            results, own, updates, [(len(outputs) + k, c) for k, c in enumerate(checks)], tuple(kept),
            list(callbacks),
        )  # fmt: skip

    def linear(
        self, results: Results, own: int, changes: list[tuple[int, int]], pulled: Pulled, residuals: list[int],
        backward: Graph, tracked: tuple[int, ...],
    ) -> tuple[Program, Linear]:  # fmt: skip
        """The forward program, which returns residuals too, and the gradient's program for the tape."""
        trace = self.trace
        slots = sorted(results.tracked)
        forward, flows = pruned(trace.graph([results.values[i] for i in slots], pulled.start), trace.flows)
        used = {i for n in forward.nodes for i in n.inputs if i < len(forward.inputs)} | set(forward.outputs)
        values = [*results.values, *residuals]
        program = self.program(values, own, changes, tuple(used), pulled.start)
        count = len(backward.inputs)
        graph = optimize(backward)
        outs = list(dict.fromkeys(graph.outputs))
        order = {v: k for k, v in enumerate(outs)}
        avals = graph.avals
        shown = [("in", v, backward.inputs[v]) if v < count else ("out", order[v], avals[v]) for v in graph.outputs]
        graph = Graph(graph.inputs, graph.nodes, tuple(outs), graph.names)
        back = Program(
            f"the gradient of {self.name}", graph, trace.device if graph.nodes else None, list(range(count)), {}, [], [], [],
            shown, len(shown), [], [], tuple(range(count)),
        )  # fmt: skip
        reached = tuple(i for i, _ in pulled.gradients)
        return program, Linear(tracked, tuple(slots), back, reached, len(results.values), forward, flows)


def pruned(graph: Graph, flows: list[tuple[bool, ...]]) -> tuple[Graph, list[tuple[bool, ...]]]:
    """The nodes that the outputs depend on, with their flows; numbers stay as they are."""
    wanted = set(graph.outputs)
    nodes, kept = [], []
    for n, flow in zip(reversed(graph.nodes), reversed(flows[: len(graph.nodes)]), strict=True):
        if wanted.intersection(n.results):
            wanted.update(n.inputs)
            nodes.append(n)
            kept.append(flow)
    return Graph(graph.inputs, nodes[::-1], graph.outputs, graph.names), kept[::-1]
