"""The plan of a program for web pages: WGSL kernels, launches and buffers, without an adapter.

A page runs on a GPU that is not known here, so kernels are printed for a driver that has the WebGPU specification's default
limits, no optional feature, and no property that specification leaves to it (``PAGE``). A page has no host to fall back to: a
graph with an operation that has no kernel is refused, with all such operations by name.

Results and temporaries share buffers: one whose values are dead before a group runs is given to its results. A group never
writes a buffer that it also reads, which WebGPU refuses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from firebrick.backends.webgpu.buffers import WORD, padded
from firebrick.backends.webgpu.lowering import POLICY, SITES, LoweredGroup, kind_of, lowered_body, lowered_view
from firebrick.backends.webgpu.probes import Measured
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.layout.views import viewed
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.targets.wgsl.shader import Shader
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.views import View, row_major
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.keys import key_of
from firebrick.scalar.capabilities import CONSERVATIVE_GPU

PAGE = Measured(replace(CONSERVATIVE_GPU, buffers=7), contracts=True, facts={})
"""Any driver of a browser: of the 8 storage buffers of a kernel one is the table of faults."""
MOST_BUFFER_BYTES = 256 * 1024 * 1024
"""Bytes of the largest buffer by default limits."""
_COMPILED = ("map", "rows", "columns", "contract", "alone")


@dataclass(frozen=True, slots=True)
class WebLaunch:
    """One launch of a program.

    Attributes:
        kernel: Number of its kernel.
        name: The operations that it belongs to.
        arrays: For each array of the kernel, its buffer and its bytes.
        words: Of the uniform buffer, uint32.
        workgroups: Along x and y.
    """

    kernel: int
    name: str
    arrays: tuple[tuple[int, int], ...]
    words: tuple[int, ...]
    workgroups: tuple[int, int]


@dataclass
class WebPlan:
    """A program for web pages.

    Attributes:
        kernels: Different kernels.
        launches: In order.
        buffers: Bytes of each buffer, a multiple of 4.
        inputs: The buffer of each input of the graph.
        outputs: The buffer of each output.
        constants: Arrays that are part of the program, by their buffers.
        sites: The checks of indices, by their numbers in the table of faults.
    """

    kernels: list[Shader] = field(default_factory=list)
    launches: list[WebLaunch] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    constants: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)


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
    return _Planner(graph).plan()


@dataclass(frozen=True, slots=True)
class _Step:
    """A group of launches: what it reads and writes, as values of the graph."""

    name: str
    group: LoweredGroup
    operands: tuple[int, ...]
    results: tuple[int, ...]


class _Planner:
    """Plans one graph. Values that are views of all elements of another share its buffer: each has an ``owner``."""

    def __init__(self, graph: Graph) -> None:
        self.known: dict[object, LoweredGroup | str] = {}  # by the keys of bodies, which networks repeat
        self.graph = fuse(graph, kind_of, POLICY, proved=lambda body: isinstance(self.lowered(body), LoweredGroup))
        self.avals = self.graph.avals
        self.made = WebPlan()
        self.refused: dict[str, None] = {}
        self.owner = list(range(len(self.avals)))
        self.buffer_of: dict[int, int] = {}  # by owner
        self.free: list[int] = []
        self.numbers: dict[object, int] = {}  # of kernels

    def plan(self) -> WebPlan:
        plan, graph = self.made, self.graph
        plan.inputs = tuple(self.own(i) for i in range(len(graph.inputs)))
        steps = [step for n in graph.nodes for step in self.steps(n)]
        if self.refused:
            raise UnsupportedError(
                "every operation of a page has a kernel, as a page has no host to fall back to", "; ".join(self.refused),
                "replace these operations, or compute what they compute before the export",
            )  # fmt: skip
        last: dict[int, int] = {}
        for k, step in enumerate(steps):
            last.update({self.owner[v]: k for v in (*step.operands, *step.results)})
        kept = {self.owner[v] for v in graph.outputs}.union(self.buffer_of)
        for k, step in enumerate(steps):
            self.launch(step, kept)
            for u in {self.owner[v] for v in (*step.operands, *step.results)} - kept:
                if last[u] == k:
                    self.free.append(self.buffer_of[u])
        for v in graph.outputs:
            self.own(self.owner[v])  # one without elements has none yet
        plan.outputs = tuple(self.buffer_of[self.owner[v]] for v in graph.outputs)
        for nbytes in plan.buffers:
            if nbytes > MOST_BUFFER_BYTES:
                raise UnsupportedError(
                    f"a buffer of a page has at most {MOST_BUFFER_BYTES:,} bytes", f"{nbytes:,}", "export smaller parts"
                )
        return plan

    # buffers

    def own(self, v: int) -> int:
        """The buffer of a value, one of its own if it has none yet."""
        if v not in self.buffer_of:
            self.buffer_of[v] = self.buffer(self.avals[v].nbytes)
        return self.buffer_of[v]

    def constant(self, v: int, value: Any) -> None:
        self.made.constants[self.own(v)] = np.asarray(value, self.avals[v].dtype.np).reshape(self.avals[v].shape)

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

    # nodes

    def lowered(self, body: Graph) -> LoweredGroup | str:
        """The launches of a group, or why there are none."""
        key = key_of(body)
        if key not in self.known:
            try:
                self.known[key] = lowered_body(body, PAGE)
            except (UnsupportedError, DTypeError) as e:
                self.known[key] = f"{e.expected} (received {e.received})"
        return self.known[key]

    def steps(self, n: Node) -> list[_Step]:
        """The groups of a node, as the engine would run it. What there is no kernel for is added to ``refused``."""
        operands, results = tuple(self.avals[i] for i in n.inputs), tuple(n.results)
        if n.op is CONSTANT:
            self.constant(n.first, n.params["value"])
            return []
        if n.op is FUSED:
            found = self.lowered(n.params["body"])
            assert isinstance(found, LoweredGroup), found
            return [_Step(", ".join(m.op.name for m in n.params["body"].nodes), found, n.inputs, results)]
        if not any(a.size for a in n.avals) and not n.op.indexes:
            return []
        if operands and not any(a.size for a in operands) and n.op.program is None:
            computed = n.op.reference(*(np.zeros(a.shape, a.dtype.np) for a in operands), **n.params)
            for v, value in zip(results, computed if isinstance(computed, tuple) else (computed,), strict=True):
                self.constant(v, value)
            return []
        if n.op.view is not None:
            views = [viewed(n, slot, row_major(operands[0].shape)) for slot in range(len(results))]
            if None not in views:
                return [step for v, view in zip(results, views, strict=True) if view for step in self.view(n, v, view)]
        body = Graph(list(operands))
        body.nodes.append(Node(n.op, tuple(range(len(operands))), n.params, len(operands), n.avals, "", ""))
        body.outputs = tuple(body.nodes[0].results)
        kind = kind_of(body.nodes[0], operands)
        found = self.lowered(body) if kind in _COMPILED else kind
        if isinstance(found, str):
            self.refused.setdefault(f"{n.op.name}: {found}")
            return []
        return [_Step(n.op.name, found, n.inputs, results)]

    def view(self, n: Node, v: int, view: View) -> list[_Step]:
        """The copy of a view; none if it is all elements of its operand."""
        source, result = self.avals[n.inputs[0]], self.avals[v]
        if view.in_rows and view.offset == 0 and result.size == source.size:
            self.owner[v] = self.owner[n.inputs[0]]
            return []
        return [_Step(n.op.name, lowered_view(view, source, result, PAGE), n.inputs[:1], (v,))] if result.size else []

    def launch(self, step: _Step, kept: Collection[int]) -> None:
        """Append the launches of a group."""
        plan, group = self.made, step.group
        for v in step.results:
            self.buffer_of[v] = self.buffer(self.avals[v].nbytes) if v in kept else self.shared(self.avals[v].nbytes)
        temporaries = [self.shared(a.nbytes) for a in group.temporaries]
        buffers = [*(self.own(self.owner[v]) for v in step.operands), *(self.buffer_of[v] for v in step.results), *temporaries]
        first = len(plan.sites)
        for site in group.sites:
            if not isinstance(site, Site):
                raise UnsupportedError(
                    "a page checks the indices of Firebrick's own operations",
                    f"a check in a kernel of one's own, at {step.name}",
                    "let fb.take read the elements at indices that are computed, and pass its result to the kernel",
                )  # fmt: skip
            plan.sites.append(site)
        if len(plan.sites) > SITES:
            raise UnsupportedError(f"at most {SITES} checks of indices", str(len(plan.sites)), "export parts of the program")
        for s in group.launches:
            arrays = tuple((buffers[k], max(padded(size), WORD)) for k, size in zip(s.arrays, s.sizes, strict=True))
            words = tuple(map(int, s.shader.words(s.scalars, s.grid, first)))
            plan.launches.append(WebLaunch(self.kernel(s.shader), step.name, arrays, words, s.shader.workgroups(s.grid)))
        self.free += temporaries

    def kernel(self, shader: Shader) -> int:
        """The number of a kernel; equal ones have one number."""
        key = shader.text, shader.access
        number = self.numbers.setdefault(key, len(self.made.kernels))
        if number == len(self.made.kernels):
            self.made.kernels.append(shader)
        return number
