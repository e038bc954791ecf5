"""The plan of a program for web pages: WGSL kernels, launches and buffers, without an adapter.

A page runs on a GPU that is not known here, so kernels are printed for a driver that has the WebGPU specification's default
limits, no optional feature, and no property that specification leaves to it (``PAGE``). A page has no host to fall back to: a
graph with an operation that has no kernel is refused, with all such operations by name. Graphs of loops and branches are
planned like that of the program, and share its kernels and buffers (``web_control``).

Results and temporaries share buffers: one whose values are dead before a group runs is given to its results. A group never
writes a buffer that it also reads, which WebGPU refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firebrick.backends.webgpu.buffers import padded
from firebrick.backends.webgpu.lowering import (
    POLICY,
    SITES,
    LoweredGroup,
    checks_without_results,
    kind_of,
    lowered_body,
    lowered_view,
)
from firebrick.backends.webgpu.probes import Measured
from firebrick.backends.webgpu.web_control import Emitted, control_steps, graphs_of, with_whole_words
from firebrick.backends.webgpu.web_program import WebLaunch, WebPlan, WebStep
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.layout.views import viewed
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.matrix import MatrixSite
from firebrick.compiler.targets.wgsl.bindings import WORD
from firebrick.compiler.targets.wgsl.shader import Shader
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.views import View, row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.keys import key_of
from firebrick.scalar.capabilities import CONSERVATIVE_GPU

PAGE = Measured(replace(CONSERVATIVE_GPU, buffers=7), contracts=True, facts={}, quads=False)
"""Any driver of a browser: of the 8 storage buffers of a kernel one is the table of faults."""
MOST_BUFFER_BYTES = 256 * 1024 * 1024
"""Bytes of the largest buffer by default limits."""
_COMPILED = ("map", "rows", "columns", "contract", "alone")


def web_plan(graph: Graph) -> WebPlan:
    """The plan of a graph.

    Args:
        graph: Program; its inputs, outputs and constants have buffers of their own.

    Raises:
        UnsupportedError: Operations have no kernel; all of them are listed with the reasons.

    Example:
        >>> from firebrick.backends.webgpu.web_plan import web_plan
        >>> from firebrick.core.aval import Aval
        >>> from firebrick.core.dtypes import float32
        >>> from firebrick.ir import Graph
        >>> from firebrick.ops import OPS
        >>> g = Graph([Aval((3,), float32)])
        >>> g.outputs = g.add(OPS["exp"], *g.add(OPS["negative"], 0))
        >>> plan = web_plan(g)
        >>> [launch.name for launch in plan.launches], plan.buffers
        (['negative, exp'], [12, 12])
    """
    program = _Program()
    plan = program.made
    whole = _Scope(program, graph)
    plan.inputs = tuple(program.buffer(a.nbytes) for a in graph.inputs)
    if program.refused:
        raise UnsupportedError(
            "every operation of a page has a kernel, as a page has no host to fall back to", "; ".join(program.refused),
            "replace these operations, or compute what they compute before the export",
        )  # fmt: skip
    made = whole.emitted(plan.inputs, [None] * len(graph.outputs), {})
    plan.steps, plan.outputs = made.steps, tuple(made.outputs)
    for nbytes in plan.buffers:
        if nbytes > MOST_BUFFER_BYTES:
            raise UnsupportedError(
                f"a buffer of a page has at most {MOST_BUFFER_BYTES:,} bytes", f"{nbytes:,}", "export smaller parts"
            )
    return plan


class _Program:
    """What all graphs of a program share: kernels, buffers, and what there is no kernel for."""

    def __init__(self) -> None:
        self.made = WebPlan()
        self.known: dict[object, LoweredGroup | str] = {}  # by the keys of bodies, which networks repeat
        self.refused: dict[str, None] = {}
        self.free: list[int] = []
        self.numbers: dict[object, int] = {}  # of kernels

    def lowered(self, body: Graph) -> LoweredGroup | str:
        """The launches of a group, or why there are none."""
        key = key_of(body)
        if key not in self.known:
            try:
                self.known[key] = lowered_body(body, PAGE)
            except (UnsupportedError, DTypeError) as e:
                self.known[key] = f"{e.expected} (received {e.received})"
        return self.known[key]

    def buffer(self, nbytes: int) -> int:
        """A new buffer."""
        self.made.buffers.append(max(padded(nbytes), WORD))
        return len(self.made.buffers) - 1

    def shared(self, nbytes: int) -> int:
        """A buffer whose values are dead: the smallest that is large enough, else the largest, which grows; else a new one."""
        if not self.free:
            return self.buffer(nbytes)
        sizes = self.made.buffers
        fitting = [b for b in self.free if sizes[b] >= nbytes]
        b = min(fitting, key=lambda b: sizes[b]) if fitting else max(self.free, key=lambda b: sizes[b])
        self.free.remove(b)
        sizes[b] = max(sizes[b], padded(nbytes))
        return b

    def kernel(self, shader: Shader) -> int:
        """The number of a kernel; equal ones have one number."""
        key = shader.text, shader.access
        number = self.numbers.setdefault(key, len(self.made.kernels))
        if number == len(self.made.kernels):
            self.made.kernels.append(shader)
        return number


@dataclass(frozen=True, slots=True)
class _Part:
    """A group of launches, or a node that runs graphs: what it reads and writes, as values of the graph."""

    name: str
    group: LoweredGroup | None
    operands: tuple[int, ...]
    results: tuple[int, ...]
    node: Node | None = None
    bodies: tuple[_Scope, ...] = ()


class _Scope:
    """Plans one graph. Values that are views of all elements of another share its buffer: each has an ``owner``.

    Args:
        program: What it is part of.
        graph: That of the program, of a branch, or of a round of a loop.
        inside: Whether it is one of the latter: its outputs are copied elsewhere, and may be in buffers that others use later.
        checks: Name of the operation whose indices it checks, if it does nothing else.
    """

    def __init__(self, program: _Program, graph: Graph, inside: bool = False, checks: str = "") -> None:
        self.program, self.inside, self.checks = program, inside, checks
        graph = with_whole_words(graph)
        self.graph = fuse(graph, kind_of, POLICY, proved=lambda body: isinstance(program.lowered(body), LoweredGroup))
        self.avals = self.graph.avals
        self.owner = list(range(len(self.avals)))
        self.buffer_of: dict[int, int] = {}  # by owner
        self.parts = [part for n in self.graph.nodes for part in self.parts_of(n)]

    def emitted(self, inputs: Sequence[int], goals: Sequence[int | None], carries: Mapping[int, int]) -> Emitted:
        graph, owner = self.graph, self.owner
        given = set(self.buffer_of).union(range(len(inputs)))  # constants and inputs
        self.buffer_of.update(enumerate(inputs))
        last: dict[int, int] = {}
        made: dict[int, int] = {}
        for k, part in enumerate(self.parts):
            last.update({owner[v]: k for v in (*part.operands, *part.results)})
            made.update({owner[v]: k for v in part.results})
        last.update({owner[v]: len(self.parts) for v in graph.outputs})
        places: dict[int, int] = {}  # of outputs that are made at their goals
        for k, (v, goal) in enumerate(zip(graph.outputs, goals, strict=True)):
            u = owner[v]
            unread = k not in carries or last.get(carries[k], -1) < made.get(u, -1)
            if goal is not None and u in made and u not in places and unread:
                places[u] = goal
        kept = {owner[v] for v in graph.outputs} | given
        steps: list[WebStep] = []
        for k, part in enumerate(self.parts):
            steps += self.steps(part, kept, places)
            for u in {owner[v] for v in (*part.operands, *part.results)} - kept:
                if last[u] == k:
                    self.release([self.buffer_of[u]])
        for v in graph.outputs:
            self.own(owner[v])  # one without elements has none yet
        outputs = [self.buffer_of[owner[v]] for v in graph.outputs]
        borrowed = {self.buffer_of[u] for u in made if u in kept and u not in places}
        return Emitted(steps, outputs, sorted(borrowed))

    # buffers

    def own(self, v: int) -> int:
        """The buffer of a value, one of its own if it has none yet."""
        if v not in self.buffer_of:
            self.buffer_of[v] = self.program.buffer(self.avals[v].nbytes)
        return self.buffer_of[v]

    def constant(self, v: int, value: Any) -> None:
        aval = self.avals[v]
        self.program.made.constants[self.own(v)] = np.asarray(value, aval.dtype.np).reshape(aval.shape)

    def shared(self, nbytes: int) -> int:
        return self.program.shared(nbytes)

    def release(self, buffers: Sequence[int]) -> None:
        self.program.free += buffers

    # nodes

    def parts_of(self, n: Node) -> list[_Part]:
        """The groups of a node, as the engine would run it. What there is no kernel for is added to ``refused``."""
        operands, results = tuple(self.avals[i] for i in n.inputs), tuple(n.results)
        if n.op is CONSTANT:
            self.constant(n.first, n.params["value"])
            return []
        if n.op is FUSED:
            found = self.program.lowered(n.params["body"])
            assert isinstance(found, LoweredGroup), found
            return [_Part(", ".join(m.op.name for m in n.params["body"].nodes), found, n.inputs, results)]
        graphs = graphs_of(n, operands[0] if operands else None)
        if graphs is not None:
            bodies = tuple(_Scope(self.program, g, True, n.params.get("of", "")) for g in graphs)
            return [_Part(n.op.name, None, n.inputs, results, n, bodies)]
        if not any(a.size for a in n.avals) and not checks_without_results(n.op, operands, n.params):
            return []
        if operands and not any(a.size for a in operands) and n.op.program is None:
            computed = n.op.reference(*(np.zeros(a.shape, a.dtype.np) for a in operands), **n.params)
            for v, value in zip(results, computed if isinstance(computed, tuple) else (computed,), strict=True):
                self.constant(v, value)
            return []
        if n.op.view is not None:
            views = [viewed(n, slot, row_major(operands[0].shape)) for slot in range(len(results))]
            if None not in views:
                return [part for v, view in zip(results, views, strict=True) if view for part in self.view(n, v, view)]
        body = Graph(list(operands))
        body.nodes.append(Node(n.op, tuple(range(len(operands))), n.params, len(operands), n.avals, "", ""))
        body.outputs = tuple(body.nodes[0].results)
        kind = kind_of(body.nodes[0], operands)
        found = self.program.lowered(body) if kind in _COMPILED else kind
        if isinstance(found, str):
            self.program.refused.setdefault(f"{n.op.name}: {found}")
            return []
        return [_Part(n.op.name, found, n.inputs, results)]

    def view(self, n: Node, v: int, view: View) -> list[_Part]:
        """The copy of a view; none if it is all elements of its operand."""
        source, result = self.avals[n.inputs[0]], self.avals[v]
        if view.in_rows and view.offset == 0 and result.size == source.size:
            self.owner[v] = self.owner[n.inputs[0]]
            return []
        if not result.size:
            return []
        try:
            return [_Part(n.op.name, lowered_view(view, source, result, PAGE), n.inputs[:1], (v,))]
        except DTypeError as e:
            self.program.refused.setdefault(f"{n.op.name}: {e.expected} (received {e.received})")
            return []

    def steps(self, part: _Part, kept: Collection[int], places: Mapping[int, int]) -> list[WebStep]:
        """The steps of a part, whose results get buffers."""
        for v in part.results:
            nbytes = self.avals[v].nbytes
            if v in places:
                self.buffer_of[v] = places[v]
            else:
                self.buffer_of[v] = self.program.buffer(nbytes) if v in kept and not self.inside else self.shared(nbytes)
        operands = [self.own(self.owner[v]) for v in part.operands]
        results = [self.buffer_of[v] for v in part.results]
        if part.group is None:
            assert part.node is not None
            return control_steps(part.node, part.bodies, operands, results)
        return self.launches(part.name, part.group, [*operands, *results])

    def launches(self, name: str, group: LoweredGroup, buffers: Sequence[int]) -> list[WebStep]:
        """The launches of a group on buffers."""
        plan = self.program.made
        temporaries = [self.shared(a.nbytes) for a in group.temporaries]
        buffers = [*buffers, *temporaries]
        first = len(plan.sites)
        for site in group.sites:
            if not isinstance(site, Site | MatrixSite):
                raise UnsupportedError(
                    "a page checks the indices of Firebrick's own operations",
                    f"a check in a kernel of one's own, at {name}",
                    "let fb.take read the elements at indices that are computed, and pass its result to the kernel",
                )  # fmt: skip
            named = self.checks if isinstance(site, Site) else ""
            plan.sites.append(replace(site, op=named or site.op))
        if len(plan.sites) > SITES:
            raise UnsupportedError(f"at most {SITES} checks", str(len(plan.sites)), "export parts of the program")
        steps: list[WebStep] = []
        for s in group.launches:
            bindings = tuple((buffers[s.arrays[k]], offset, size) for k, offset, size in s.shader.bindings(s.sizes))
            words = tuple(map(int, s.shader.words(s.scalars, s.grid, first)))
            steps.append(WebLaunch(self.program.kernel(s.shader), name, bindings, words, s.shader.workgroups(s.grid)))
        self.release(temporaries)
        return steps
