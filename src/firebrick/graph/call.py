"""Calls of compiled functions on tracked tensors: one node of the tape for the whole function.

Such a call has a graph of its own, traced with tracked inputs. While it is traced the backward pass is traced too, and the
graph is cut between the two: the first program returns the values that the second one reads. Derivatives of the derivative are
taken by running the first graph op by op through ``bind``, with the tracking that each op had in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firebrick.autodiff import tape
from firebrick.autodiff.backward import leading_to, reachable, run
from firebrick.autodiff.distributed import reducing
from firebrick.autodiff.residuals import Saved
from firebrick.autodiff.tape import grad_enabled
from firebrick.autodiff.transforms import track
from firebrick.core.bind import bind
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Op, Operand, Vjp
from firebrick.core.storage import Absent
from firebrick.core.tensor import Tensor
from firebrick.graph.program import Program
from firebrick.graph.trace import Trace
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ops.elementwise import add


@dataclass
class Linear:
    """The gradient of a traced function, for the tape.

    Attributes:
        tracked: Positions of the tracked ones among the call's tensors.
        results: Which of the program's results are tracked, in the order of the cotangents.
        back: The backward program: residuals, then cotangents, to a gradient for each entry of ``reached``.
        reached: Which of ``tracked`` (by order) have a gradient.
        residuals: The index of the first of the program's results that are residuals.
        forward: The graph before it was optimized, and for each node which operands were tracked.
    """

    tracked: tuple[int, ...]
    results: tuple[int, ...]
    back: Program
    reached: tuple[int, ...]
    residuals: int
    forward: Graph
    flows: list[tuple[bool, ...]]


@dataclass
class Pulled:
    """The traced backward pass of a trace.

    Attributes:
        start: The first node of it.
        cotangents: Its inputs.
        gradients: For each tracked tensor that the results depend on: (its order, the value's number).
    """

    start: int
    cotangents: list[int]
    gradients: list[tuple[int, int]]


def pull(trace: Trace, results: Sequence[Tensor], leaves: Sequence[Any]) -> Pulled:
    """Trace the backward pass from tracked results to tracked inputs."""
    start = len(trace.nodes)
    cotangents = [trace.source(t.aval, "cotangent", i, f"cotangent {i}") for i, t in enumerate(results)]
    pairs = [(t, trace.handle(number, t.device)) for t, number in zip(results, cotangents, strict=True)]
    with reducing(None):  # a part of the call's gradient, which the tape reduces as a whole
        grads = _gradients(pairs, leaves, False, last=True)
    gradients = [(i, trace.number(grads[n])) for i, n in enumerate(leaves) if n in grads]
    return Pulled(start, cotangents, gradients)


def _gradients(pairs: Sequence[tuple[Tensor, Tensor]], leaves: Sequence[Any], more: bool, last: bool = False) -> Any:
    """The gradients of the leaves from pairs of a tracked result and its cotangent; recorded if ``more`` derivatives follow."""
    stop = frozenset(n.id for n in leaves)
    seeds: dict[tuple[int, int], Tensor] = {}
    found: dict[int, Any] = {}
    for t, g in pairs:
        key = (t.node.id, t.slot)
        seeds[key] = g if key not in seeds else bind(add, (seeds[key], g), {})
        found.update((n.id, n) for n in reachable(t.node, stop))
    return run(leading_to(stop, sorted(found.values(), key=lambda n: -n.id)), seeds, more, stop, last=last)


def split(trace: Trace, pulled: Pulled) -> tuple[list[int], Graph]:
    """The values that the backward part reads, and the graph from these and the cotangents to the gradients."""
    back = trace.nodes[pulled.start :]
    made = {n.first + k for n in back for k in range(len(n.avals))} | set(pulled.cotangents)
    constants = {n.first: n for n in trace.nodes[: pulled.start] if n.op is CONSTANT}
    wanted: dict[int, None] = {}
    for i in (*(i for n in back for i in n.inputs), *(number for _, number in pulled.gradients)):
        if i not in made and i not in constants:
            wanted.setdefault(i)
    residuals = list(wanted)
    at = {number: i for i, number in enumerate([*residuals, *pulled.cotangents])}
    nodes: list[Node] = []
    count = len(at)
    used = {i for n in back for i in n.inputs} | {number for _, number in pulled.gradients}
    for n in [*(c for i, c in constants.items() if i in used), *back]:
        for k in range(len(n.avals)):
            at[n.first + k] = count + k
        nodes.append(Node(n.op, tuple(at[i] for i in n.inputs), n.params, count, n.avals, n.label, n.line, n.region))
        count += len(n.avals)
    avals = [trace.avals[i] for i in (*residuals, *pulled.cotangents)]
    return residuals, Graph(avals, nodes, tuple(at[number] for _, number in pulled.gradients))


def call(program: Program, linear: Linear, handles: Sequence[Tensor], numbers: Sequence[Any]) -> list[Tensor]:
    """Run a program on tracked tensors; its results, those that depend on them tracked."""
    given = [tape.own_handle(handles[p]) for p in linear.tracked]
    storages: list[Any] = []
    made = program.run(handles, numbers, kept=storages)
    others = [Tensor(s, a.dtype, a.shape, program.device) for s, a in zip(storages, program.graph.inputs, strict=True)]  # type: ignore[arg-type]
    results = [Tensor(s, a.dtype, a.shape, program.device) for s, (_, _, a) in zip(made, program.results, strict=True)]  # type: ignore[arg-type]
    residuals = results[linear.residuals :]
    tracked = tuple(results[i] for i in linear.results)
    if tracked:
        op = _op(program, linear, others)
        hooks.record(op, tuple(given), {}, tracked)
        node = tracked[0].node
        if node is not None and tape.region.get() is None:
            node.outputs = tuple(map(Saved, residuals))
    return results[: linear.residuals]


def _op(program: Program, linear: Linear, inputs: list[Tensor]) -> Op:
    """The entry of the tape for one call."""

    def vjp(cotangents: Any, r: Vjp) -> list[Tensor | None]:
        gs = cotangents if isinstance(cotangents, tuple) else (cotangents,)
        out: list[Tensor | None] = [None] * len(linear.tracked)
        kept = r.outputs or not linear.back.graph.inputs[: -len(gs) or None]
        # a program takes buffers, and no tensors of ``vmap``, ``jvp`` or a trace
        if grad_enabled() or not kept or any(isinstance(t.storage.data, Absent) for t in (*gs, *r.outputs)):
            return _replayed(program, linear, inputs, r.inputs, gs, out)
        made = linear.back.run([*r.outputs, *gs])
        for position, s, (_, _, aval) in zip(linear.reached, made, linear.back.results, strict=True):
            out[position] = Tensor(s, aval.dtype, aval.shape, program.device)  # type: ignore[arg-type]
        return out

    return Op(
        name=f"jit of {program.name}",
        doc="A compiled function.",
        operands=(Operand("x", "any", "", True),),
        infer=lambda *avals: tuple(program.results[i][2] for i in linear.results),
        reference=lambda *arrays: arrays,
        vjp=vjp,
        residuals=("inputs",),
        samples=lambda rng, dtype: [],
        cost=lambda inputs, outputs, params: Cost(0.0, float(sum(a.nbytes for a in outputs))),
        bound="compute",
        fusion="none",
        tolerance=0,
        recomputes=False,
    )


def _replayed(
    program: Program, linear: Linear, inputs: list[Tensor], tracked: Sequence[Tensor], gs: Sequence[Tensor],
    out: list[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    """Gradients through the tape itself: the forward graph again, op by op, and its backward pass recorded."""
    record_more = grad_enabled()
    leaves = []
    values: dict[int, Tensor] = {}
    for i, t in enumerate(inputs):
        values[program.sources[i]] = t
    at = {p: i for i, p in enumerate(linear.tracked)}
    with tape.grad_mode(True):
        nodes = []
        for t in tracked:
            own = tape.own_handle(t)
            leaves.append(own)
            nodes.append(track(own))
        for i, p in enumerate(program.positions):
            if p in at:
                values[program.sources[i]] = leaves[at[p]]
        _interpret(linear, values)
    results = [(values[number], g) for number, g in zip(linear.forward.outputs, gs, strict=True)]
    grads = _gradients([(t, g) for t, g in results if t.node is not None], nodes, record_more)
    for i, n in enumerate(nodes):
        n.closed = True
        if n in grads:
            out[i] = grads[n]
    return out


def _interpret(linear: Linear, values: dict[int, Tensor]) -> None:
    device = next(iter(values.values())).device
    for n, flow in zip(linear.forward.nodes, linear.flows, strict=True):
        if n.op is CONSTANT:
            values[n.first] = hooks.from_host(n.params["value"], device)
            continue
        operands = tuple(values[i] if tracks else values[i].detach() for i, tracks in zip(n.inputs, flow, strict=True))
        made = bind(n.op, operands, n.params)
        for k, t in enumerate(made if isinstance(made, tuple) else (made,)):
            values[n.first + k] = t
