"""Straight-line programs: a graph as one Python function, with a line for each node and no checks between the lines.

Kernels are chosen when the graph is compiled; by the memory plan, results are written over dead values. ``explain()`` shows the
source, and exceptions report the node that raised them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from keyword import iskeyword
from math import isfinite
from operator import itemgetter
from types import CodeType
from typing import Any, Protocol

import numpy as np

from firebrick.compiler.program.expression import Kernel, call
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.compiler.program.segments import NodeSegment
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.errors import ShapeError
from firebrick.core.op import Op
from firebrick.ir import CONSTANT, Graph, Node

Begin = Callable[..., None]
_numbers = itertools.count()
_SHORT = 1 << 12
"""Maximum length of the source of a program whose code is kept: those of one operation differ in their kernels alone."""


@lru_cache(maxsize=128)
def _code_of(source: str) -> CodeType:
    """The code of a program, of no file."""
    return compile(source, "", "exec")


def _in_file(code: CodeType, name: str) -> CodeType:
    """Code whose lines are those of a file of this name."""
    constants = [_in_file(c, name) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=name, co_consts=tuple(constants))


_WRAPPERS = frozenset({"run", "kernel"})  # names of wrappers, which do not describe the wrapped function
_TAKEN = frozenset({"args", "arena", "begin", "program", "space"})
LONG = 256
"""Maximum number of values in a list that have names in the source: compiling the text of more takes longer than planning."""


class Engine(Protocol):
    """The interface of an engine that the compiler uses."""

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:
        """The kernel of one node."""

    def around(self) -> tuple[str, dict[str, Any]] | None:
        """A context manager, as an expression, in which all kernels run."""

    def translated(self, error: Exception) -> Exception:
        """Translate a library's error to an error of the contract."""

    def from_host(self, array: np.ndarray[Any, Any], device: Any) -> Any:
        """A native copy of a host array."""

    def copy(self, native: Any, device: Device | None = None) -> Any:
        """A native copy, on its device, that shares no memory."""


@dataclass(frozen=True)
class Step:
    """One node of a program: ``run(*operands)`` is the kernel that the program runs; it returns a tuple."""

    node: Node
    run: Callable[..., tuple[Any, ...]]


class Executable:
    """A compiled graph: call it with the inputs' native arrays.

    Attributes:
        graph: The graph that runs: the compiled graph after the engine's own rewrites.
        plan: Its order and memory, in bytes.
        writes: Numbers of the donated inputs that a call overwrites.
        source: The program as Python.
    """

    def __init__(self, graph: Graph, plan: Plan, source: str, names: dict[str, Any], engine: Engine) -> None:
        self.graph, self.plan, self.writes, self.source = graph, plan, plan.writes, source
        self._engine = engine
        self._count = len(graph.inputs)
        self._names = names
        self._copy: Callable[[Any], Any] = names["copy"]
        self._file = f"<firebrick program {next(_numbers)}>"
        self.notes: list[str] = []  # further lines of ``explain``
        self._lines: dict[int, Node] = {}
        self._texts: dict[int, str] = {}
        code = _code_of(source) if len(source) <= _SHORT else compile(source, "", "exec")
        exec(_in_file(code, self._file), names)
        # removed from its own globals, so that there is no reference cycle and a dropped executable frees its code at once
        self._run: Callable[[Sequence[Any], Begin | None], tuple[Any, ...]] = names.pop("program")

    def __call__(self, natives: Sequence[Any], begin: Begin | None = None) -> tuple[Any, ...]:
        """Run the program.

        Args:
            natives: The inputs, of the graph's shapes and dtypes.
            begin: Called immediately before the first write to a donated input, if there is one; its argument is a tuple of the
                outputs that ``ready`` lists, if there are any.

        Returns:
            The outputs. They share memory with no input, constant or other output, except with donated inputs in ``writes``.
        """
        try:
            return self._run(natives, begin)
        except Exception as e:
            if len(natives) != self._count:
                raise ShapeError(
                    "a program takes the inputs of its graph", f"{len(natives)} of {self._count}", "pass each one"
                ) from None
            error = self._engine.translated(e)
            try:
                _locate(error, e, self._file, self._lines)
                if error is not e:
                    raise error from e
            finally:
                del error  # its traceback and this frame would form a reference cycle that keeps the program
            raise

    @property
    def whole(self) -> Executable:
        """The program with its graph and steps; a program from the cache on disk has only the code."""
        return self

    @cached_property
    def steps(self) -> list[Step]:
        """The nodes in the order in which the program runs them, but a view before all that reads it: kernels that read
        through it may run before its node does. Constants are steps without operands."""
        avals = self.graph.avals
        around = self._engine.around()
        steps = []
        for k in _topological(self.graph, self.plan.order):
            n = self.graph.nodes[k]
            args = ", ".join(f"a{i}" for i in range(len(n.inputs)))
            text = self._texts[k] if n.op is not CONSTANT and _packed(n, avals) else f"({self._texts[k]},)"
            lines = [f"return {text}"] if around is None else [f"with {around[0]}:", f"    return {text}"]
            space: dict[str, Any] = dict(self._names)
            exec("\n".join([f"def step({args}):", *(f"    {line}" for line in lines)]), space)
            steps.append(Step(n, space.pop("step")))
        return steps

    def stepwise(self, natives: Sequence[Any], run: Callable[[Step, tuple[Any, ...]], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The outputs, computed node by node: ``run(step, operands)`` returns a node's results. No result is written over
        another value, and no input is overwritten."""
        graph = self.graph
        left = Counter(i for n in graph.nodes for i in n.inputs)
        left.update(graph.outputs)
        values: dict[int, Any] = dict(enumerate(natives))
        for step in self.steps:
            n = step.node
            values.update(zip(n.results, run(step, tuple(values[i] for i in n.inputs)), strict=True))
            left.subtract(n.inputs)
            for i in (*n.inputs, *n.results):
                if not left[i]:
                    values.pop(i, None)
        return tuple(self._copy(values[v]) if i in self.plan.copied else values[v] for i, v in enumerate(graph.outputs))

    def explain(self, source: bool = False) -> str:
        """A description: ops and their counts, reused and peak memory, donated inputs; with ``source``, also the program."""
        counts = Counter(n.op.name for n in self.graph.nodes)
        ops = ", ".join(f"{name} × {n}" if n > 1 else name for name, n in counts.most_common())
        lines = [f"{len(self.graph.nodes)} nodes: {ops or 'none'}", str(self.plan)]
        if self.plan.copied:
            lines.append(f"outputs copied, since they would share memory: {', '.join(map(str, sorted(self.plan.copied)))}")
        lines += self.notes
        if source:
            lines.append(self.source)
        return "\n".join(lines)


def _topological(graph: Graph, order: Iterable[int]) -> list[int]:
    """An order of nodes in which each comes after those whose results it reads, and as in ``order`` else."""
    maker = {v: k for k, n in enumerate(graph.nodes) for v in n.results}
    made: dict[int, None] = {}
    for last in order:
        waiting = [last]
        while waiting:
            k = waiting[-1]
            missing = [maker[v] for v in graph.nodes[k].inputs if v in maker and maker[v] not in made]
            waiting += missing
            if not missing:
                made[waiting.pop()] = None
    return list(made)


def _locate(error: Exception, raised: Exception, file: str, lines: dict[int, Node]) -> None:
    """Add a note to ``error`` with the node that raised it, found by the program's line in the traceback of ``raised``."""
    at = raised.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == file:
            n = lines.get(at.tb_lineno)
            if n is not None:
                error.add_note(f"in a compiled program, at {n.op.name}" + (f", {n.line}" if n.line else ""))
        at = at.tb_next


def build(
    engine: Engine, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = (),
    segments: Segments | None = None,
) -> Executable:  # fmt: skip
    """Compile a graph for an engine.

    Args:
        engine: Engine whose kernels run.
        graph: The program.
        device: Device on which it runs; constants are copied there.
        donate: Numbers of inputs whose memory the program may overwrite.
        ready: Positions of outputs that are computed before the first donated input is overwritten, and passed to ``begin``.
        segments: Makes segments of a program, each of which is one call for many nodes, from its graph, the kernels of its
            nodes and its plan; and the plan with them.

    Raises:
        ShapeError: ``donate`` has a number that is no input.
    """
    given = tuple(donate)
    if any(not 0 <= i < len(graph.inputs) for i in given):
        raise ShapeError(f"donated inputs are numbers below {len(graph.inputs)}", str(given), "donate inputs only")
    kernels = choose(engine, graph, device)
    plan = plan_memory(graph, kernels, given, ready)
    if segments is None:
        return write(engine, graph, kernels, plan, device)
    plan, functions = segments(graph, kernels, plan)
    return write(engine, graph, kernels, plan, device, functions)


def choose(
    engine: Engine, graph: Graph, device: Device | None, own: Callable[[Node], Kernel | None] = lambda n: None
) -> list[Kernel | None]:
    """The kernel of each node of a graph; None for constants.

    Args:
        engine: Engine of the kernels.
        graph: The program.
        device: Device on which it runs.
        own: The engine's kernel of a node that runs graphs; None if the node runs on the host.
    """
    avals = graph.avals
    known: dict[int, np.ndarray[Any, Any]] = {n.first: n.params["value"] for n in graph.nodes if n.op is CONSTANT}
    kernels: list[Kernel | None] = []
    for n in graph.nodes:
        if n.op is CONSTANT:
            kernels.append(None)
            continue
        if n.op.control is not None:
            found = own(n)
            if found is not None:
                kernels.append(found)
                continue
            control = n.op.control(engine, n.params, device)
            kernels.append(call(control, len(n.inputs), {}, scratch=getattr(control, "scratch", 0)))
            continue
        operands = tuple([avals[i] for i in n.inputs])
        kernels.append(engine.kernel(n.op, operands, n.params, n.avals, device, tuple([known.get(i) for i in n.inputs])))
    return kernels


Segments = Callable[[Graph, "Sequence[Kernel | None]", Plan], "tuple[Plan, SegmentFunctions]"]
"""Makes the segments of a program."""


@dataclass(frozen=True)
class SegmentFunctions:
    """The segments of a program as functions.

    Attributes:
        pairs: Each segment with a function of the arena, the arrays that it reads, and the arrays whose memory its results
            use; it returns a tuple of the results.
        skipped: Indices of nodes that need no line.
        arena: Returns a context manager whose value is the arena of one call of the program; None if the functions need none.
        reads: Whether ``arena`` takes the program's arguments.
    """

    pairs: Sequence[tuple[NodeSegment, Callable[..., tuple[Any, ...]]]]
    skipped: frozenset[int]
    arena: Callable[..., Any] | None
    reads: bool = False


def write(
    engine: Engine, graph: Graph, kernels: Sequence[Kernel | None], plan: Plan, device: Device | None,
    native: SegmentFunctions = SegmentFunctions((), frozenset(), None),
) -> Executable:  # fmt: skip
    """The program of a graph, by its kernels and its memory plan."""
    return _ProgramWriter(engine, graph, kernels, plan, device, native).executable()


@dataclass
class _ProgramWriter:
    engine: Engine
    graph: Graph
    kernels: Sequence[Kernel | None]
    plan: Plan
    device: Device | None
    native: SegmentFunctions
    space: dict[str, Any] = field(default_factory=lambda: {"copy": None})
    known: dict[int, str] = field(default_factory=dict)
    further: dict[str, Iterator[str]] = field(default_factory=dict)  # stem of a name → numbers not used yet

    def __post_init__(self) -> None:
        self.avals = self.graph.avals
        self.items: dict[int, tuple[str, int]] = {}  # values that are items of a sequence → its name, and their index
        self.lengths: dict[str, int] = {}  # of the sequences, by name
        self.inside = self.native.skipped.union(*(segment.nodes for segment, _ in self.native.pairs))
        self.ends = {segment.nodes[-1]: (segment, function) for segment, function in self.native.pairs}

    def executable(self) -> Executable:
        graph, plan, engine = self.graph, self.plan, self.engine
        self.space["copy"] = partial(engine.copy, device=self.device)
        names: dict[int, str] = {}
        head = ["def program(args, begin=None):", *("    " + line for line in self.opening(names))]
        body: list[str] = []
        self.inputs = set(names.values())
        places: dict[int, Node] = {}
        texts: dict[int, str] = {}
        for n in graph.nodes:
            if n.op is CONSTANT:
                names[n.first] = self.name("constant", engine.from_host(np.asarray(n.params["value"]), self.device))
        for p, k in enumerate(plan.order):
            if p == plan.begin:
                ready = ", ".join(names[graph.outputs[position]] for position in plan.ready)
                body += ["if begin is not None:", f"    begin(({ready},))" if ready else "    begin()"]
            n, kernel = graph.nodes[k], self.kernels[k]
            if kernel is None:
                texts[k] = names[n.first]
                continue
            texts[k] = self.text(kernel.expr, n, kernel, [f"a{i}" for i in range(len(n.inputs))])
            if k in self.ends:
                body += self.segment_lines(*self.ends[k], names, plan.dies.get(p, ()))
            if k in self.inside:
                continue
            places[len(body)] = n
            body += self.lines(n, k, kernel, names, plan.dies.get(p, ()))
        body.append(f"return {self.listed(graph.outputs, names, plan.copied)}")
        indent = "    "
        for context in self.around():
            head.append(f"{indent}with {context}:")
            indent += "    "
        made = Executable(graph, plan, "\n".join([*head, *(indent + line for line in body), ""]), self.space, engine)
        made._texts = texts
        made._lines = {len(head) + 1 + at: n for at, n in places.items()}
        return made

    @cached_property
    def named(self) -> set[int]:
        """The values that need a name: those that a line of a single node reads or assigns, or that a line deletes."""
        nodes, plan = self.graph.nodes, self.plan
        single = [k for k, kernel in enumerate(self.kernels) if kernel is not None and k not in self.inside]
        found = {v for dies in plan.dies.values() for v in dies}.union(*(nodes[k].inputs for k in single))
        found.update(plan.into[k] for k in single if k in plan.into)
        return found.union(*([plan.outs[v] for v in nodes[k].results if v in plan.outs] for k in single))

    def opening(self, names: dict[int, str]) -> list[str]:
        """Lines that give the inputs their names."""
        count = len(self.graph.inputs)
        unnamed = [i for i in range(count) if i not in self.named] if count > LONG else []
        if len(unnamed) <= LONG:
            names.update({i: f"v{i}" for i in range(count)})
            return [f"({', '.join(names.values())}{',' if count == 1 else ''}) = args"]
        names.update({i: f"v{i}" for i in range(count)} | {i: f"args[{i}]" for i in unnamed})
        self.items.update((i, ("args", i)) for i in unnamed)
        self.lengths["args"] = count
        lines = [f"if len(args) != {count}: raise ValueError(len(args))"]
        return lines + [f"{name} = args[{i}]" for i, name in names.items() if i not in self.items]

    def listed(self, values: Sequence[int], names: dict[int, str], copied: Collection[int] = ()) -> str:
        """A tuple of values; of those at the positions ``copied``, copies."""
        texts = [f"copy({names[v]})" if i in copied else names[v] for i, v in enumerate(values)]
        if len(values) <= LONG or self.items.keys().isdisjoint(values):
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        sources: dict[str, int] = {}  # name of a sequence → where its items begin in all sequences together
        single: list[str] = []  # values that are not items
        length = 0
        for i, v in enumerate(values):
            if v in self.items and i not in copied:
                source = self.items[v][0]
                if source not in sources:
                    sources[source], length = length, length + self.lengths[source]
            else:
                single.append(texts[i])
        others = iter(range(length, length + len(single)))
        where = [
            sources[self.items[v][0]] + self.items[v][1] if v in self.items and i not in copied else next(others)
            for i, v in enumerate(values)
        ]
        text = (
            next(iter(sources))
            if len(sources) == 1 and not single
            else f"({', '.join([*(f'*{s}' for s in sources), *single])},)"
        )
        return f"{self.name('pick', itemgetter(*where))}({text})"

    def around(self) -> list[str]:
        """The context managers, as expressions, in which the program runs: not the engine's own where views are all that it
        computes."""
        found: list[str] = []
        around = self.engine.around()
        if around is not None:
            self.space.update(around[1])
            nodes = self.graph.nodes
            if any(
                kernel is not None and k not in self.inside and not nodes[k].op.view for k, kernel in enumerate(self.kernels)
            ):
                found.append(around[0])
        if self.native.arena is not None:
            self.space["arena"] = self.native.arena
            found.append(f"arena({'args' if self.native.reads else ''}) as space")
        return found

    def segment_lines(
        self, segment: NodeSegment, function: Callable[..., Any], names: dict[int, str], dies: Iterable[int]
    ) -> list[str]:  # fmt: skip
        """One call for many nodes."""
        args = ["space"] if self.native.arena is not None else []
        given = [*segment.arrays, *segment.outside]
        args += [names[v] for v in given] if len(given) <= LONG else [f"*{self.listed(given, names)}"]
        text = f"{self.name('native', function)}({', '.join(args)})"
        if len(segment.results) > LONG and self.named.isdisjoint(segment.results):
            made = self.name("made", object())
            self.items.update((v, (made, i)) for i, v in enumerate(segment.results))
            self.lengths[made] = len(segment.results)
            names.update((v, f"{made}[{i}]") for i, v in enumerate(segment.results))
            text = f"{made} = {text}"
        else:
            names.update((v, f"v{v}") for v in segment.results)
            if segment.results:
                text = f"({', '.join(names[v] for v in segment.results)},) = {text}"
        dead = [names[v] for v in dies if names[v] not in self.inputs]
        return [text, f"del {', '.join(dead)}"] if dead else [text]

    def lines(self, n: Node, k: int, kernel: Kernel, names: dict[int, str], dies: Iterable[int]) -> list[str]:
        """One node: its expression, then the values that die with it."""
        operands = [names[i] for i in n.inputs]
        into = self.plan.into.get(k)
        if into is not None:
            form = kernel.first if kernel.first is not None and n.inputs[0] == into else kernel.into
            assert form is not None
            names[n.first] = names[into]
            text = f"{names[into]} = {self.text(form, n, kernel, operands, names[into])}"
        else:
            outs = [names[self.plan.outs[v]] if v in self.plan.outs else "None" for v in n.results]
            for v in n.results:
                names[v] = f"v{v}"
            target = ", ".join(names[v] for v in n.results)
            if len(n.avals) == 1 and _packed(n, self.avals):
                target += ","
            form = kernel.outs if kernel.outs and outs.count("None") < len(outs) else kernel.expr
            text = f"{target} = {self.text(form, n, kernel, operands, outs=outs)}"
        # an overwritten value's name is that of the result; inputs are deleted by the caller
        dead = [names[v] for v in dies if v != into and names[v] not in self.inputs]
        return [text, f"del {', '.join(dead)}"] if dead else [text]

    def text(
        self, form: str, n: Node, kernel: Kernel, operands: list[str], out: str = "", outs: Sequence[str] = ()
    ) -> str:  # fmt: skip
        """An expression with operands, destination and names filled in."""
        spelt = {
            key: _literal(value) or self.name(n.op.name if callable(value) else key, value)
            for key, value in kernel.names.items()
        }
        return form.format(*operands, out=out, **{f"out{i}": name for i, name in enumerate(outs)}, **spelt)

    def name(self, stem: str, value: Any) -> str:
        """The program's name for an object: its own, or one made from ``stem``."""
        found = self.known.get(id(value))
        if found is None:
            own = str(getattr(value, "__name__", ""))
            stem = own if own.isidentifier() and own not in _WRAPPERS else stem
            further = self.further.setdefault(stem, (f"{stem}_{i}" for i in itertools.count(1)))
            choices = itertools.chain([stem], further)
            found = next(c for c in choices if c not in self.space and c not in _TAKEN and not iskeyword(c))
            self.space[found] = value  # keeps the object alive, so that its id is unique
            self.known[id(value)] = found
        return found


def _packed(n: Node, avals: Sequence[Aval]) -> bool:
    """Whether a node's kernel returns a tuple."""
    return len(n.avals) != 1 or type(n.op.infer(*(avals[i] for i in n.inputs), **n.params)) is not Aval


def _literal(value: Any) -> str | None:
    """Python text of plain values, which is faster than a name and readable; None for others."""
    if value is None or type(value) in (bool, int) or (type(value) is float and isfinite(value)):
        return repr(value)
    if type(value) is tuple and all(_literal(v) for v in value):
        return repr(value)
    return None
