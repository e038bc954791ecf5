"""Programs on disk: a process can run a graph that another process has compiled, without planning it again.

An entry has the launches of a program's segments, the keys of the objects with their kernels, and the host nodes, whose kernels
the engine chooses again. It is data; the program's Python text is generated from it as from a plan. What only serves inspection
(steps, explanations) is not stored: ``Restored`` compiles the graph when it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from firebrick.backends.cpu.native import Linked, functions
from firebrick.backends.cpu.runtime.pool import shared_pool
from firebrick.backends.cpu.tuning import device_key
from firebrick.compiler import Executable, Kernel, Plan, Step, choose, reuse, write
from firebrick.compiler.fusion.policy import in_force
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.program.python import Engine
from firebrick.compiler.program.segments import NodeSegment
from firebrick.compiler.spec.custom import KernelSite, LoopSite
from firebrick.compiler.spec.faults import FaultSite, Site
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.host import find_many, identities
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.tune.choice import stamp
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.errors import KernelCompileError
from firebrick.core.op import Cost, Nondifferentiable, Op
from firebrick.ir import CONSTANT, INTERNAL, Graph, Node
from firebrick.ir.encoding import NotEncodable, Tables, encoded

KIND = "program"
_FIGURES = ("peak", "unplanned", "reused", "donated", "constants")
_DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, KernelCompileError)

_SEGMENT = Op(
    name="native_segment",
    doc="A segment in the graph of a stored program.",
    operands=(),
    infer=lambda: (),
    reference=lambda: (),
    vjp=Nondifferentiable("a compiled program has no gradient"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, 0.0),
    bound="memory",
    fusion="opaque",
    tolerance=0,
    control=lambda engine, params, device: _never,
)
INTERNAL[_SEGMENT.name] = _SEGMENT


def _never() -> Any:
    raise AssertionError("a segment is called by the program")


@dataclass(frozen=True, slots=True)
class Form:
    """The identity of a program: its graph, its donated inputs, the outputs that are ready before these are overwritten, the
    processor, and the settings."""

    tables: Tables
    text: bytes


def form_of(graph: Graph, donate: Sequence[int], ready: Sequence[int]) -> Form | None:
    """The form of a program; None if it is not stored."""
    if not reuse.wanted(len(graph.nodes)) or config.tune == "on" or config.verify_every:
        return None
    found = encoded(graph)
    if found is None:
        return None
    tables, text = found
    chosen = stamp(device_key(), shared_pool().threads)
    settings = astuple(in_force(POLICY)), astuple(Target.host()), config.compiled_with, chosen
    return Form(tables, text + json.dumps([sorted(donate), list(ready), *settings]).encode())


# writing


def keep(form: Form, graph: Graph, kernels: Sequence[Kernel | None], linked: Linked) -> None:
    """Store a program, if all of it can be encoded.

    Args:
        form: Of the graph that was compiled.
        graph: The graph that runs, with its fused nodes.
        kernels: Of its nodes.
        linked: Its native part.
    """
    if not linked.texts:
        return
    try:
        content = _Writing(form, graph, kernels, linked).content()
    except NotEncodable:
        return
    reuse.save(KIND, form.text, content)


class _Writing:
    """A program as JSON. Only values that are arrays are stored, and they are numbered anew."""

    def __init__(self, form: Form, graph: Graph, kernels: Sequence[Kernel | None], linked: Linked) -> None:
        self.form, self.graph, self.kernels, self.linked = form, graph, kernels, linked
        self.avals, self.plan = graph.avals, linked.segment_plan.plan
        self.number = {v: v for v in range(len(graph.inputs))}
        self.nodes: list[Node] = []  # of the new graph
        self.functions: dict[str, int] = {}

    def content(self) -> dict[str, Any]:
        plan, functions = self.plan, self.linked.functions
        inside = functions.skipped.union(*(segment.nodes for segment, _ in functions.pairs))
        ends = {segment.nodes[-1]: i for i, (segment, _) in enumerate(functions.pairs)}
        begin = -1
        listed: list[list[Any]] = []  # of each new node: its segment or -1, what it is written over, what dies with it
        for n in self.graph.nodes:
            if n.op is CONSTANT:
                self._put(n, n.results)
                listed.append([-1, [], []])
        for p, k in enumerate(plan.order):
            n = self.graph.nodes[k]
            if p == plan.begin:
                begin = len(listed)
            if k in ends:
                segment = functions.pairs[ends[k]][0]
                self._put(Node(_SEGMENT, (), {}, 0, ()), segment.results)
                listed.append([ends[k], [], plan.dies.get(p, [])])
            if n.op is CONSTANT or k in inside:
                continue
            self._put(n, n.results)
            into = [[n.first, plan.into[k]]] if k in plan.into else []
            listed.append([-1, [into, [[v, plan.outs[v]] for v in n.results if v in plan.outs]], plan.dies.get(p, [])])
        keys, names = identities(self.linked.texts)
        self.functions = {name: i for i, name in enumerate(names)}
        number = self.number
        tables, sizes = self.form.tables, self.form.tables.sizes()
        rows = tables.rows(self.nodes)
        return {
            "keys": [key.hex() for key in keys],
            "names": names,
            "arena": self.linked.segment_plan.arena,
            "nodes": rows,
            "places": [
                [segment, [[[number[v], number[u]] for v, u in pairs] for pairs in over], [number[v] for v in dies]]
                for segment, over, dies in listed
            ],
            "segments": [self._run(segment) for segment, _ in functions.pairs],
            "launches": [[self._launch(x) for x in launches] for launches in self.linked.launches],
            "begin": begin,
            "outputs": [number[v] for v in self.graph.outputs],
            "writes": sorted(plan.writes),
            "copied": sorted(plan.copied),
            "ready": list(plan.ready),
            "figures": [getattr(plan, name) for name in _FIGURES],
            "tables": tables.beyond(sizes),
        }

    def _put(self, n: Node, results: Sequence[int]) -> None:
        """Append a node of the new graph, which computes these values."""
        first = self.nodes[-1].first + len(self.nodes[-1].avals) if self.nodes else len(self.graph.inputs)
        self.number.update(zip(results, range(first, first + len(results)), strict=True))
        avals = tuple([self.avals[v] for v in results])
        inputs = tuple([self.number[v] for v in n.inputs])
        self.nodes.append(Node(n.op, inputs, n.params, first, avals, n.label, n.line, n.region))

    def _run(self, segment: NodeSegment) -> list[Any]:
        number = self.number
        into = [[number[v], number[u]] for v, u in segment.into.items()]
        return [[number[v] for v in segment.arrays], [number[v] for v in segment.results], into]

    def _launch(self, x: Launch) -> list[Any]:
        sites = [_written_site(p, self.form.tables) for p in x.sites]
        function = self.functions[x.kernel] if x.kernel else -1
        sequences = [[self._launch(y) for y in part] for part in x.sequences]
        return [function, x.buffers, x.grid, x.chunk, x.scratch, x.cost_us, sites, x.jump, sequences]


# reading


class Restored(Executable):
    """A stored program. ``graph``, ``source``, ``notes`` and everything derived from them need its graph to be compiled."""

    def __init__(self, program: Executable, compile: Callable[[], Executable]) -> None:
        self._run, self._lines, self._file = program._run, program._lines, program._file
        self._engine, self._count = program._engine, program._count
        self.plan, self.writes = program.plan, program.writes
        self._compile = compile

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_compile", "_whole"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    @property
    def whole(self) -> Executable:
        """The program, compiled from its graph."""
        found: Executable | None = self.__dict__.get("_whole")
        if found is None:
            found = self._whole = self._compile()
        return found

    @property
    def steps(self) -> list[Step]:
        return self.whole.steps

    def stepwise(self, natives: Sequence[Any], run: Callable[[Step, tuple[Any, ...]], tuple[Any, ...]]) -> tuple[Any, ...]:
        return self.whole.stepwise(natives, run)

    def explain(self, source: bool = False) -> str:
        return self.whole.explain(source)


def find(
    form: Form, engine: Engine, graph: Graph, device: Device | None, compile: Callable[[], Executable]
) -> Restored | None:  # fmt: skip
    """The program of a form, if it is stored and its objects are in the cache; else None.

    Args:
        form: Form of the graph.
        engine: Engine of the host nodes' kernels.
        graph: The graph.
        device: Device on which it runs.
        compile: Compiles the graph, for what is not stored.
    """
    content = reuse.load(KIND, form.text)
    if content is None:
        return None
    try:
        return Restored(_read(content, form, engine, graph, device), compile)
    except _DAMAGED:  # or an object is no longer in the cache: the program is compiled, and the entry replaced
        return None


def _read(d: dict[str, Any], form: Form, engine: Engine, graph: Graph, device: Device | None) -> Executable:
    names: list[str] = d["names"]
    module = find_many([bytes.fromhex(key) for key in d["keys"]], names)
    if module is None:
        raise LookupError("an object is no longer in the cache")
    tables = form.tables
    tables.extend(d["tables"])
    made = Graph(list(graph.inputs), tables.nodes(d["nodes"], len(graph.inputs)), tuple(d["outputs"]), list(graph.names))
    plan = Plan(list(range(len(made.nodes))), begin=d["begin"] if d["begin"] >= 0 else len(made.nodes))
    plan.writes, plan.copied, plan.ready = frozenset(d["writes"]), frozenset(d["copied"]), tuple(d["ready"])
    for name, value in zip(_FIGURES, d["figures"], strict=True):
        setattr(plan, name, value)
    segments = [NodeSegment([], [], dict.fromkeys(arrays), results, dict(into)) for arrays, results, into in d["segments"]]
    for k, (segment, over, dies) in enumerate(d["places"]):
        plan.dies[k] = dies
        if segment >= 0:
            segments[segment].nodes.append(k)
        elif over:
            (into, outs) = over
            plan.into.update((k, u) for _, u in into)
            plan.outs.update(map(tuple, outs))
    launches = [[_launch(x, names, tables) for x in found] for found in d["launches"]]
    native = functions(segments, launches, module, made.avals, d["arena"])
    return write(engine, made, choose(engine, made, device), plan, device, native)


def _launch(x: Sequence[Any], names: Sequence[str], tables: Tables) -> Launch:
    function, buffers, grid, chunk, scratch, cost, sites, distance, parts = x
    at = tuple([b if type(b) is int else tuple(b) for b in buffers])
    where = tuple([_read_site(p, tables) for p in sites])
    sequences = tuple([tuple([_launch(y, names, tables) for y in part]) for part in parts])
    return Launch(names[function] if function >= 0 else "", at, grid, chunk, scratch, cost, where, distance, sequences)


# checks: lines of the program are numbers of the form's table


def _written_site(site: FaultSite, tables: Tables) -> list[Any]:
    match site:
        case Site():
            return ["op", site.op, site.size, tables.line(site.line or None)]
        case KernelSite():
            return ["kernel", site.kernel, site.array, site.axis, site.size, site.message, tables.line(site.line)]
        case LoopSite():
            return ["loop", site.kernel, [[tables.line(line), counted] for line, counted in site.lines]]
    raise NotEncodable(f"a check of another kind: {type(site).__name__}")


def _read_site(written: Sequence[Any], tables: Tables) -> FaultSite:
    if written[0] == "loop":
        _, kernel, found = written
        return LoopSite(kernel, tuple([(tables.lines[k] or "", counted) for k, counted in found]))
    if written[0] == "kernel":
        _, kernel, array, axis, size, message, line = written
        return KernelSite(kernel, array, axis, size, message, tables.lines[line] or "")
    _, op, size, line = written
    return Site(op, size, tables.lines[line] or "")
