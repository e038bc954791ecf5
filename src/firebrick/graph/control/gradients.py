"""Gradients of control flow, as graphs made of graphs.

``pulled`` returns the graph from a graph's inputs and its outputs' cotangents to its inputs' cotangents, by running it on
the tape inside a trace of its own. A branch's gradient is the branch run again and pulled back. A scan's is
a scan in the other direction over the carries that the first one kept: each step is run again from its carry. A while_loop's
runs the loop again to keep its carries, since how many there are is not known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firebrick.autodiff.backward import filled, leading_to, reachable, run
from firebrick.autodiff.residuals import again, strategy
from firebrick.autodiff.tape import grad_enabled, grad_mode, region
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.op import Vjp
from firebrick.core.tensor import Tensor
from firebrick.graph.control.body import Body, replayed
from firebrick.graph.control.sums import Later, later
from firebrick.graph.trace import running
from firebrick.ir import INTERNAL, Graph, Node
from firebrick.ops import OPS

_KEPT = 256  # gradients of graphs that are kept
_made: dict[Any, tuple[Any, Any]] = {}


def remembered(key: tuple[Any, ...], holds: Any, make: Callable[[], Any]) -> Any:
    """The result of ``make``, called once for each key; ``holds`` are the objects whose ids are in the key."""
    found = _made.get(key)
    if found is None:
        found = _made[key] = make(), holds
        for oldest in list(_made)[:-_KEPT]:
            _made.pop(oldest, None)
    return found[0]


@contextmanager
def alone(name: str, device: Device) -> Iterator[Body]:
    """A trace without an enclosing one, in which everything is recorded."""
    tokens = region.set(None), strategy.set("none")
    try:
        with grad_mode(True), running(Body(name, device, alone=True)) as trace:
            yield trace
    finally:
        region.reset(tokens[0])
        strategy.reset(tokens[1])


def _inputs(trace: Body, avals: Sequence[Aval], kind: str, device: Device) -> list[Tensor]:
    return [trace.fresh(a, kind, device) for a in avals]


def _add(x: Tensor, y: Tensor) -> Tensor:
    total: Tensor = bind(OPS["add"], (x, y), {})
    return total


def pulled(
    graph: Graph, wanted: tuple[int, ...], given: tuple[int, ...], device: Device, known: tuple[int, ...] = ()
) -> tuple[Graph, tuple[int, ...]]:
    """The graph from ``graph``'s inputs, the cotangents of its outputs ``given``, and the values ``known``, to the cotangents
    of its inputs.

    Args:
        graph: The graph to differentiate.
        wanted: Inputs whose cotangents are needed, inexact ones.
        given: Outputs that have a cotangent, inexact ones; where two are one value, cotangents are added in this order.
        device: Where the graph runs.
        known: Values that are not recomputed.

    Returns:
        The graph, and those of ``wanted`` that the outputs depend on: its results are theirs.
    """
    key = ("pulled", id(graph), wanted, given, device.name, known)
    return remembered(key, graph, lambda: _pull(graph, wanted, given, device, known))  # type: ignore[no-any-return]


def _pull(
    graph: Graph, wanted: tuple[int, ...], given: tuple[int, ...], device: Device, known: tuple[int, ...]
) -> tuple[Graph, tuple[int, ...]]:
    avals = graph.avals
    with alone("a gradient", device) as trace:
        inputs = _inputs(trace, graph.inputs, "carry", device)
        cotangents = _inputs(trace, [avals[graph.outputs[i]] for i in given], "x", device)
        held = _inputs(trace, [avals[v] for v in known], "key", device)
        values = replayed(graph, inputs, device)
        outputs = [values[v] for v in graph.outputs]
        seeds: dict[tuple[int, int], Tensor] = {}
        found: dict[int, Any] = {}
        leaves = {i: inputs[i].node for i in wanted}
        stop = frozenset(n.id for n in leaves.values())
        for i, g in zip(given, cotangents, strict=True):
            t = outputs[i]
            if t.node is not None:
                position = (t.node.id, t.slot)
                seeds[position] = g if position not in seeds else _add(seeds[position], g)
                found.update((n.id, n) for n in reachable(t.node, stop))
        grads = run(leading_to(stop, sorted(found.values(), key=lambda n: -n.id)), seeds, True, stop)
        reached = tuple(i for i in wanted if leaves[i] in grads)
        trace.replace_values({trace.number(values[v]): trace.number(t) for v, t in zip(known, held, strict=True)})
        trace.finish([grads[leaves[i]] for i in reached])
    return trace.made(), reached


def _inexact(avals: Sequence[Aval]) -> list[int]:
    return [i for i, a in enumerate(avals) if a.dtype.is_inexact]


def _listed(cotangents: Any) -> tuple[Any, ...]:
    return cotangents if isinstance(cotangents, tuple) else (cotangents,)


# cond


def of_cond(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    gs = _listed(cotangents)
    branches = r.params["branches"]
    device = r.inputs[0].device
    avals = branches[0].inputs
    wanted = tuple(i for i, a in enumerate(avals) if r.needs[i + 1] and a.dtype.is_inexact)
    given = tuple(i for i, g in enumerate(gs) if g is not None and r.given[i])
    key = ("cond", *map(id, branches), wanted, given, device.name)
    graphs, reached = remembered(key, branches, lambda: _branches(branches, wanted, given, device))
    out: list[Tensor | None] = [None] * len(r.inputs)
    if reached:
        with again():
            made = bind(INTERNAL["cond"], (*r.inputs, *(gs[i] for i in given)), {"branches": graphs})
        for i, g in zip(reached, made, strict=True):
            out[i + 1] = g
    return out


def _branches(
    branches: tuple[Graph, Graph], wanted: tuple[int, ...], given: tuple[int, ...], device: Device
) -> tuple[tuple[Graph, ...], list[int]]:  # fmt: skip
    """The gradients of two branches, for the inputs that at least one of them depends on."""
    both = [pulled(g, wanted, given, device) for g in branches]
    reached = sorted(set(both[0][1]) | set(both[1][1]))
    graphs = []
    for graph, own in both:
        g = Graph(graph.inputs, list(graph.nodes), (), graph.names)
        at = dict(zip(own, graph.outputs, strict=True))
        for i in reached:
            if i not in at:
                aval = g.inputs[i]
                at[i] = g.add(OPS["broadcast_to"], g.constant(np.zeros((), aval.dtype.np)), shape=aval.shape)[0]
        g.outputs = tuple(at[i] for i in reached)
        graphs.append(g)
    return tuple(graphs), reached


# a step of a loop, and its backward step


@dataclass(frozen=True)
class _Back:
    """The backward step of a step of a loop.

    Attributes:
        graph: From shared values, sums of their cotangents, cotangents of the carry, the carry before the step, elements,
            cotangents of results and known values to the next sums, cotangents of the carry before, cotangents of elements,
            and factors.
        summed: The shared values that have a sum, by number among the body's inputs.
        elements: The elements that have a cotangent, likewise.
        later: The shared values whose cotangents are summed at the end, likewise, and how. Factors are numbered from 0: first
            the graph's inputs after the carry's cotangents, then of cotangents of elements, then of the factors that it gives.
        factors: How many such factors there are.
    """

    graph: Graph
    summed: list[int]
    elements: list[int]
    later: list[tuple[int, Later]]
    factors: int


def _step_back(
    body: Graph, consts: int, carries: int, wanted: tuple[int, ...], results: tuple[int, ...], device: Device,
    known: tuple[int, ...] = (), ends: bool = False,
) -> _Back:  # fmt: skip
    """The backward step of a step of a loop.

    Args:
        body: The step: shared values, carry and elements to the next carry and results.
        consts: Number of shared values.
        carries: Number of parts of the carry.
        wanted: Shared values and elements whose cotangents are needed.
        results: Results that have a cotangent, by number among the body's outputs.
        device: Where the graph runs.
        known: Values of the body that are kept from its run.
        ends: Whether sums over all steps may be taken at the end.
    """
    key = ("step", id(body), consts, carries, wanted, results, device.name, known, ends)
    return remembered(  # type: ignore[no-any-return]
        key, body, lambda: _make_step(body, consts, carries, wanted, results, device, known, ends)
    )


def _make_step(
    body: Graph, consts: int, carries: int, wanted: tuple[int, ...], results: tuple[int, ...], device: Device,
    known: tuple[int, ...], ends: bool,
) -> _Back:  # fmt: skip
    flowing = [consts + k for k in _inexact(body.inputs[consts : consts + carries])]
    asked = tuple(sorted({*wanted, *flowing}))
    back, reached = pulled(body, asked, (*results, *(i - consts for i in flowing)), device, known)
    outputs = dict(zip(reached, back.outputs, strict=True))
    # the pulled graph's inputs: shared values, the rest of the body's, cotangents of results and of the carry, known values
    rest, given = range(consts, len(body.inputs)), range(len(body.inputs), len(body.inputs) + len(results))
    kept = range(len(back.inputs) - len(known), len(back.inputs))
    seen = {v: k for k, v in enumerate((*rest, *given, *kept))}  # values that are kept of all steps
    found = {i: later(back, outputs[i]) for i in reached if ends and i < consts}
    at_end = [(i, how) for i, how in found.items() if how is not None and all(v >= consts for v in how.factors)]
    elements = [i for i in reached if i >= consts + carries]
    behind = len(seen)
    seen.update({outputs[i]: behind + k for k, i in enumerate(elements) if outputs[i] not in seen})
    behind += len(elements)
    factors = list(dict.fromkeys(v for _, how in at_end for v in how.factors if v not in seen))
    seen.update({v: behind + k for k, v in enumerate(factors)})
    made_later = [(i, replace(how, factors=tuple(seen[v] for v in how.factors))) for i, how in at_end]
    summed = [i for i in reached if i < consts and i not in dict(at_end)]
    avals = body.avals
    with alone("the backward step", device) as trace:
        shared = _inputs(trace, body.inputs[:consts], "outer", device)
        sums = _inputs(trace, [body.inputs[i] for i in summed], "carry", device)
        ahead = _inputs(trace, [body.inputs[i] for i in flowing], "carry", device)
        others = _inputs(trace, body.inputs[consts:], "x", device)
        cotangents = _inputs(trace, [avals[body.outputs[i]] for i in results], "x", device)
        held = _inputs(trace, [avals[v] for v in known], "x", device)
        values = replayed(back, [*shared, *others, *cotangents, *ahead, *held], device)
        total = [_add(s, values[outputs[i]]) for i, s in zip(summed, sums, strict=True)]
        before = [values[outputs[i]] if i in outputs else filled(0.0, t) for i, t in zip(flowing, ahead, strict=True)]
        trace.finish([*total, *before, *(values[outputs[i]] for i in elements), *(values[v] for v in factors)])
    return _Back(trace.made(), summed, elements, made_later, len(factors))


# while_loop


def of_while(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    gs = _listed(cotangents)
    body, consts = r.params["body"], r.params["consts"]
    carries = len(body.inputs) - consts
    device = r.inputs[0].device
    key = ("while", id(body), consts, device.name)
    # the graph's first output is pred: without it, it is a step like that of a scan
    step = remembered(key, body, lambda: Graph(body.inputs, body.nodes, body.outputs[1:], body.names))
    wanted = tuple(i for i in _inexact(body.inputs[:consts]) if r.needs[i])
    made_back = _step_back(step, consts, carries, wanted, (), device)
    back, summed = made_back.graph, made_back.summed
    flowing = _inexact(body.inputs[consts:])
    zeros = [filled(0.0, r.inputs[i].detach()) for i in summed]
    ordered = remembered(
        ("carry first", id(back), consts, carries),
        back,
        lambda: _carry_first(back, consts, len(summed) + len(flowing), carries),
    )
    with again():
        made = bind(
            INTERNAL["while_gradient"],
            (*r.inputs, *zeros, *(gs[i] for i in flowing)),
            {"body": body, "backs": (ordered,), "consts": consts},
        )
    out: list[Tensor | None] = [None] * len(r.inputs)
    for i, g in zip((*summed, *(consts + 1 + k for k in flowing)), made, strict=True):
        out[i] = g
    return out


def _carry_first(graph: Graph, consts: int, cotangents: int, carries: int) -> Graph:
    """The graph with its inputs in another order: shared values, the carry before the step, then sums and cotangents."""
    middle, end = consts + cotangents, consts + cotangents + carries
    order = [*range(consts), *range(middle, end), *range(consts, middle)]
    new = {old: i for i, old in enumerate(order)}
    nodes = [replace(n, inputs=tuple(new.get(i, i) for i in n.inputs)) for n in graph.nodes]
    return Graph([graph.inputs[i] for i in order], nodes, tuple(new.get(i, i) for i in graph.outputs))


# scan


def bind_scan(
    body: Graph, shared: Sequence[Tensor], init: Sequence[Tensor], xs: Sequence[Tensor], length: int, reverse: bool
) -> tuple[Tensor, ...]:
    """A scan; if its gradient may be needed, one that keeps the carries before each step."""
    operands = (*shared, *init, *xs)
    consts, carries = len(shared), len(init)
    recorded = grad_enabled() and any(t.node is not None for t in operands)
    results = len(body.outputs)
    extra = _worth_keeping(body, consts, carries) if recorded and carries > 0 else ()
    params = {
        "body": _keeping(body, extra) if extra else body, "consts": consts, "carries": carries, "length": length,
        "reverse": reverse, "kept": len(extra),
    }  # fmt: skip
    made: tuple[Tensor, ...] = bind(INTERNAL["scan"], operands, params)
    return made[:results]


def of_scan(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    gs = _listed(cotangents)
    p = r.params
    body, consts, carries, length, kept = p["body"], p["consts"], p["carries"], p["length"], p["kept"]
    device = r.inputs[0].device
    shared, xs = r.inputs[:consts], r.inputs[consts + carries :]
    all_steps = r.outputs[len(r.outputs) - kept :] if kept else ()
    extra = tuple(body.outputs[len(body.outputs) - kept :]) if kept else ()
    if carries and not kept:
        extra = _worth_keeping(body, consts, carries)
        made = bind(INTERNAL["scan"], r.inputs, {**p, "body": _keeping(body, extra), "kept": len(extra)})
        all_steps = made[len(made) - len(extra) :]
    starts, products = all_steps[:carries], all_steps[carries:]
    flowing = _inexact(body.inputs[consts : consts + carries])
    ends = consts + carries
    wanted = tuple(i for i in _inexact(body.inputs) if r.needs[i] and not consts <= i < ends)
    results = tuple(i for i in range(carries, len(gs)) if gs[i] is not None and r.given[i])
    back = _step_back(body, consts, carries, wanted, results, device, extra[carries:], True)
    if not (back.summed or back.later or flowing or back.elements):
        return [None] * len(r.inputs)
    zeros = [filled(0.0, r.inputs[i].detach()) for i in back.summed]
    sequences = (*starts, *xs, *(gs[i] for i in results), *products)
    with again():
        found = bind_scan(
            back.graph, shared, (*zeros, *(gs[k] for k in flowing)), sequences, length, not p["reverse"]
        )  # fmt: skip
        last = len(found) - back.factors
        steps = (*sequences, *found[last - len(back.elements) :])
        totals = [how.total(*(steps[k] for k in how.factors)) for _, how in back.later]
    out: list[Tensor | None] = [None] * len(r.inputs)
    for i, g in zip((*back.summed, *(consts + k for k in flowing), *back.elements), found[:last], strict=True):
        out[i] = g
    for (i, _), g in zip(back.later, totals, strict=True):
        out[i] = g
    return out


def _worth_keeping(body: Graph, consts: int, carries: int) -> tuple[int, ...]:
    """The values that a scan keeps of each step for its gradient: the carry before it, and products, which are expensive to
    recompute."""
    products = (v for n in body.nodes if n.op.fusion == "contract" for v in n.results)
    users: dict[int, list[Node]] = {}
    for n in body.nodes:
        for v in n.inputs:
            users.setdefault(v, []).append(n)
    return (*range(consts, consts + carries), *(_added(body, users, v) for v in products))


def _added(body: Graph, users: dict[int, list[Node]], v: int) -> int:
    """The sum of a value and others, of its shape and dtype, if it has no other consumer: the gradient then needs the sum
    only."""
    aval, makes = body.avals[v], users.get(v, [])
    while v not in body.outputs and len(makes) == 1 and makes[0].op.name == "add" and makes[0].avals == (aval,):
        v = makes[0].first
        makes = users.get(v, [])
    return v


def _keeping(body: Graph, extra: tuple[int, ...]) -> Graph:
    made: Graph = remembered(
        ("kept", id(body), extra), body, lambda: Graph(body.inputs, body.nodes, (*body.outputs, *extra), body.names)
    )
    return made
