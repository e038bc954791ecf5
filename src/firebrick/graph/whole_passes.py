"""Backward passes that are repeated run as one function each.

A backward pass is decided by the operations on the tape, by how they are connected, and by shapes and dtypes. When a pass of
one form has run a few times, its steps are written as one straight-line Python function: the programs of the gradient rules
(``graph.replays``) and, of rules without a program, the engine's kernels of their operations, with the sums of cotangents
between them. These are the computations that the pass does node by node, on the same arrays, so the bits stay the same and it
does not matter when this begins.

A pass frees each residual after its last use; the function keeps all of them until it returns. So only tapes of small results
(``LARGEST``) have one: there the time is that of Python. Whatever looks at single steps keeps the pass as it is: hooks, recipes
of a checkpointing strategy, reductions of gradients, profiles, checks, traces and levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firebrick.autodiff.rules import cotangents_of, replays, rule_key
from firebrick.autodiff.tape import Node
from firebrick.core import timeline
from firebrick.core.autocast import autocast_dtype
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device, Memory
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.graph import replays as programs
from firebrick.graph.passes import optimize
from firebrick.graph.replays import RULES, Replay
from firebrick.graph.trace import tracing
from firebrick.ir import CONSTANT, Graph
from firebrick.ops.elementwise import add

MORE = 3
"""Times that a pass runs node by node after its rules may have programs, before it gets a function."""
TRIES = 8
"""Times that making the function is tried, as the programs of some rules may come later."""
LARGEST = 1 << 24
"""Maximum bytes of all results on the tape."""
MOST_NODES = 2048
"""Maximum number of nodes."""
KEPT = 128
"""Maximum number of functions; the oldest half is dropped first."""

Kernel = Callable[..., Any]


class _Unsuited(Exception):
    """A pass that cannot be one function."""


class _Early(Exception):
    """A rule that may have a program later."""


class WholePass:
    """A backward pass as one function.

    Args:
        run: From the native cotangents and residuals to native values.
        leaves: For each leaf that has a gradient: its position among the nodes, the value of its gradient, and the value that
            owns the memory. A value is a number among what ``run`` returns, or, if negative, -1 - k for the operand k.
        device: Device of all values.
    """

    __slots__ = ("_leaves", "_run", "device")

    def __init__(self, run: Kernel, leaves: Sequence[tuple[int, int, int]], device: Device) -> None:
        self._run, self._leaves, self.device = run, tuple(leaves), device

    def __call__(self, nodes: Sequence[Node], operands: Sequence[Storage]) -> dict[Node, Tensor]:
        """The cotangents of the leaves among the nodes."""
        natives = self._run([s.data for s in operands])
        device = self.device
        memory, made, found = device._memory, dict[int, Storage](), dict[Node, Tensor]()
        for position, value, owner in self._leaves:
            node = nodes[position]
            ((shape, dtype),) = node.out_avals
            if value < 0:
                storage: Storage | None = operands[-1 - value]
            else:
                storage = made.get(value)
            if storage is None:
                native = natives[value]
                if owner == value:
                    storage = Storage(native, memory, native.nbytes)
                else:
                    storage = self._view(native, owner, natives, operands, made)
                made[value] = storage
            found[node] = Tensor(storage, dtype, shape, device)
        return found

    def _view(
        self, native: Any, owner: int, natives: Sequence[Any], operands: Sequence[Storage], made: dict[int, Storage]
    ) -> Storage:  # fmt: skip
        """The storage of a result that may be a view of another value."""
        memory = self.device._memory
        data = operands[-1 - owner].data if owner < 0 else natives[owner]
        if native.size and not np.may_share_memory(native, data):
            return Storage(native, memory, native.nbytes)
        if owner < 0:
            base = operands[-1 - owner]
        else:
            base = made.get(owner) or made.setdefault(owner, Storage(data, memory, data.nbytes))
        return Storage(native, memory, 0, "owned", base.root)


class Passes:
    """The functions of backward passes, by key. They are forgotten with the programs of rules."""

    def __init__(self) -> None:
        self._entries: dict[Any, WholePass | int | None] = {}
        self._rules: Any = None
        self._settings = config.compiled_with

    def __len__(self) -> int:
        if self._settings is not config.compiled_with:
            return 0
        return sum(type(entry) is WholePass for entry in self._entries.values())

    def run(
        self, nodes: Sequence[Node], cotangents: dict[tuple[int, int], Tensor], stop: frozenset[int]
    ) -> dict[Node, Tensor] | None:  # fmt: skip
        """The cotangents of the leaves, as ``autodiff.backward.run`` returns them; None if the pass must run node by node.

        Args:
            nodes: Those of the pass, newest first.
            cotangents: What it starts from, by node id and slot.
            stop: Leaves at which it stops.
        """
        if hooks.tracing or hooks.levels or timeline.active or len(nodes) > MOST_NODES:
            return None
        if any(g.node is not None for g in cotangents.values()):
            return None
        if self._rules is not RULES._entries or self._settings is not config.compiled_with:
            self._entries, self._rules, self._settings = {}, RULES._entries, config.compiled_with
        operands, key = _form(nodes, cotangents, stop)
        if key is None:
            return None
        entry = self._entries.get(key, 0)
        if type(entry) is int:
            entry = self._count(key, entry, nodes, cotangents, stop, operands)
        if type(entry) is not WholePass or not entry.device.backend.replays:
            return None
        try:
            return entry(nodes, operands)
        except Exception:  # noqa: BLE001 - node by node, the pass reports the cause
            return None

    def _count(
        self, key: Any, times: int, nodes: Sequence[Node], cotangents: dict[tuple[int, int], Tensor], stop: frozenset[int],
        operands: Sequence[Storage],
    ) -> WholePass | int | None:  # fmt: skip
        """Count a pass; make its function if that was often enough."""
        entry: WholePass | int | None = times + 1
        first = programs.BEFORE + MORE
        if times >= first:
            try:
                entry = _Writer(nodes, cotangents, operands).written()
            except _Early:
                entry = times + 1 if times < first + TRIES else None
            except Exception:  # noqa: BLE001 - what cannot be traced or written runs node by node
                entry = None
        if len(self._entries) >= KEPT and key not in self._entries:
            for old in list(self._entries)[: KEPT // 2]:
                self._entries.pop(old, None)
        self._entries[key] = entry
        return entry


def _form(
    nodes: Sequence[Node], cotangents: dict[tuple[int, int], Tensor], stop: frozenset[int]
) -> tuple[list[Storage], Any]:  # fmt: skip
    """What a pass reads, cotangents first, then residuals node by node; and the key of its form, None if it has none."""
    at = {n.id: i for i, n in enumerate(nodes)}
    operands = [g.storage for g in cotangents.values()]
    key: list[Any] = [autocast_dtype()]
    try:
        for number, slot in cotangents:
            key += (at[number], slot)
        for node in nodes:
            if node.hooks:
                return operands, None
            op = node.op
            if op is None:
                if node.parents and node.id not in stop:
                    return operands, None
                key.append(node.device)
                continue
            key += (node.plan, op.vjp)
            for p in node.parents:
                if p is None:
                    key.append(None)
                else:
                    key += (at[p[0].id], p[1])
            for v in node.inputs:
                operands.append(v._storage)  # type: ignore[attr-defined]
            for v in node.outputs:
                operands.append(v._storage)  # type: ignore[attr-defined]
            if node.plan is None or node.recipes:
                return operands, None
    except (AttributeError, KeyError):  # a residual that is computed again; a part of the tape that leads to no leaf
        return operands, None
    return operands, tuple(key)


class _Writer:
    """Writes a backward pass as a function: what ``autodiff.backward.run`` does, with numbers in place of tensors.

    Args:
        nodes: Those of the pass, newest first.
        cotangents: What it starts from.
        operands: From ``_form``.
    """

    def __init__(self, nodes: Sequence[Node], cotangents: dict[tuple[int, int], Tensor], operands: Sequence[Storage]) -> None:
        self.nodes = nodes
        self.device = nodes[0].device
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.texts: list[str] = []  # of each value
        self.avals: list[Aval] = []
        self.owners: list[int] = []  # the value whose memory it may share
        self.last: list[int] = []  # the line that reads it last
        self.operands = 0
        self.leaves: list[tuple[int, int]] = []
        self._at: dict[tuple[int, int], int] = {}
        for at, g in cotangents.items():
            self._at[at] = self._operand(g.aval)

    def written(self) -> WholePass:
        """The function.

        Raises:
            _Early: A rule may have a program later.
            _Unsuited: The pass has something that no function has.
        """
        nodes = self.nodes
        if any(n.device is not self.device for n in nodes):
            raise _Unsuited
        if sum(sum(n.plan.nbytes) for n in nodes if n.plan is not None) > LARGEST:
            raise _Unsuited
        residuals = [[self._operand(v.aval) for v in (*n.inputs, *n.outputs)] for n in nodes]
        numbers = frozenset(n.id for n in nodes)
        for position, (node, kept) in enumerate(zip(nodes, residuals, strict=True)):
            self._step(position, node, kept, numbers)
        return self._function()

    def _operand(self, aval: Aval) -> int:
        self.operands += 1
        return self._value(f"d[{self.operands - 1}]", aval, None)

    def _value(self, text: str, aval: Aval, owner: int | None) -> int:
        number = len(self.texts)
        self.texts.append(text or f"v{number}")
        self.avals.append(aval)
        self.owners.append(number if owner is None else self.owners[owner])
        self.last.append(-1)
        return number

    def _named(self, value: Any) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def _line(self, results: Sequence[int], function: Any, operands: Sequence[int], packed: bool, several: bool) -> None:
        """A line that calls a function of operands, given as one list (``packed``) or one by one."""
        for v in operands:
            self.last[v] = len(self.lines)
        for v in results:
            self.last[v] = len(self.lines)
        left = ", ".join(self.texts[v] for v in results) + ("," if several and len(results) == 1 else "")
        given = ", ".join(self.texts[v] for v in operands)
        self.lines.append(f"{left} = {self._named(function)}({f'[{given}]' if packed else given})")

    def _step(self, position: int, node: Node, kept: list[int], numbers: frozenset[int]) -> None:
        gs = [self._at.pop((node.id, slot), None) for slot in range(len(node.out_avals))]
        if all(g is None for g in gs):
            return
        if node.op is None:
            assert gs[0] is not None
            self.leaves.append((position, gs[0]))
            return
        needs = tuple([p is not None and p[0].id in numbers for p in node.parents])
        operands = [*[g for g in gs if g is not None], *kept]
        entry: Any = None
        if node.op.repeats:
            entry = RULES._entries.get(rule_key(node, gs, needs), 0)
            if type(entry) is int:
                raise _Early
        results = self._replayed(entry, operands) if entry is not None else self._traced(node, gs, operands, needs)
        for i, (g, p) in enumerate(zip(results, node.parents, strict=True)):
            if g is None or p is None or not needs[i]:
                continue
            if self.avals[g] != node.in_avals[i]:
                raise _Unsuited
            to = (p[0].id, p[1])
            held = self._at.get(to)
            self._at[to] = g if held is None else self._operation(add, (held, g), {}, (self.avals[g],))[0]

    def _replayed(self, program: Replay, operands: Sequence[int]) -> list[int | None]:
        """The results of a rule's program."""
        made: dict[int, int] = {}
        for result in program.results:
            if result is not None and result[1] is not None and result[0] not in made:
                made[result[0]] = self._value("", result[1], None)
        if sorted(made) != list(range(len(made))):
            raise _Unsuited
        self._line([made[at] for at in range(len(made))], program.program, operands, True, True)
        return [None if r is None else operands[r[0]] if r[1] is None else made[r[0]] for r in program.results]

    def _traced(
        self, node: Node, gs: Sequence[int | None], operands: Sequence[int], needs: tuple[bool, ...]
    ) -> list[int | None]:  # fmt: skip
        """The results of a rule that has no program: its operations, one after another."""
        given = [self._placeholder(self.avals[v]) for v in operands]
        left = iter(given)
        with tracing("a gradient rule that is repeated") as trace:
            for t in given:
                trace.enter(t, "")
            cotangents = [None if g is None else next(left) for g in gs]
            inputs = tuple(next(left) for _ in node.inputs)
            found = cotangents_of(node, cotangents, inputs, tuple(left), needs)
            numbers = [None if r is None else trace.number(r) for r in found]
            if trace.checks or trace.callbacks or trace.draws or len(trace.sources) > len(given):
                raise _Unsuited
            outputs = list(dict.fromkeys(n for n in numbers if n is not None))
            graph = optimize(trace.graph(outputs))
            trace.forget()
        values = self._inlined(graph, operands)
        at = dict(zip(outputs, graph.outputs, strict=True))
        return [None if n is None else values[at[n]] for n in numbers]

    def _inlined(self, graph: Graph, operands: Sequence[int]) -> dict[int, int]:
        """The values of a graph whose nodes become lines."""
        values = dict(enumerate(operands))
        for n in graph.nodes:
            if n.op is CONSTANT:
                array = self.device.backend.from_host(n.params["value"], self.device)
                values[n.results[0]] = self._value(self._named(array), n.avals[0], None)
                continue
            made = self._operation(n.op, tuple(values[i] for i in n.inputs), n.params, n.avals)
            values.update(zip(n.results, made, strict=True))
        return values

    def _operation(self, op: Op, operands: tuple[int, ...], params: dict[str, Any], avals: tuple[Aval, ...]) -> list[int]:
        """The results of one operation, by the kernel that ``bind`` would run."""
        if op.control is not None or op.transfers or op.program is not None:
            raise _Unsuited
        kernel = self.device.backend.kept_kernel(op, tuple(self.avals[v] for v in operands), params, avals, self.device)
        if kernel is None:
            raise _Unsuited
        results = [self._value("", a, operands[0] if op.view is not None else None) for a in avals]
        self._line(results, kernel, operands, False, len(avals) > 1)
        return results

    def _placeholder(self, aval: Aval) -> Tensor:
        """A tensor that a trace replaces."""
        data = np.broadcast_to(np.zeros((), aval.dtype.np), aval.shape)
        return Tensor(Storage(data, Memory(), 0), aval.dtype, aval.shape, self.device)

    def _function(self) -> WholePass:
        wanted = dict.fromkeys(v for _, value in self.leaves for v in (value, self.owners[value]) if v >= self.operands)
        if not wanted:
            raise _Unsuited
        numbers = {v: i for i, v in enumerate(wanted)}
        over: dict[int, list[str]] = {}
        for v, line in enumerate(self.last):
            if line >= 0 and v not in numbers and self.texts[v].startswith("v"):
                over.setdefault(line, []).append(self.texts[v])
        body: list[str] = []
        for i, text in enumerate(self.lines):
            body.append(text)
            if i in over:
                body.append(f"{' = '.join(over[i])} = None")
        body.append(f"return [{', '.join(self.texts[v] for v in wanted)}]")
        source = "def run(d):\n    " + "\n    ".join(body)
        exec(compile(source, "<firebrick backward pass>", "exec"), self.names)
        run = self.names.pop("run")
        leaves = [(at, self._number(v, numbers), self._number(self.owners[v], numbers)) for at, v in self.leaves]
        return WholePass(run, leaves, self.device)

    def _number(self, value: int, numbers: dict[int, int]) -> int:
        return -1 - value if value < self.operands else numbers[value]


PASSES = Passes()
replays.whole = PASSES.run
