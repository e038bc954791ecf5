"""Gradients of control flow, as graphs made of graphs.

``pulled`` makes of a graph the one that maps its inputs and the cotangents of its outputs to the cotangents of its inputs,
by running it on the tape inside a trace of its own. A branch's gradient is the branch run again and pulled back. A scan's is
a scan in the other direction over the carries that the first one kept: each step is run again from its carry. A while_loop's
runs the loop again to keep its carries, since how many there are is not known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from firebrick.autodiff.backward import filled, reachable, run
from firebrick.autodiff.residuals import again, strategy
from firebrick.autodiff.tape import grad_enabled, grad_mode, region
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.op import Vjp
from firebrick.core.tensor import Tensor
from firebrick.graph.control.body import Body, replay
from firebrick.graph.trace import running
from firebrick.ir import INTERNAL, Graph
from firebrick.ops import OPS

_KEPT = 256  # graphs made of graphs that are remembered
_made: dict[Any, tuple[Any, Any]] = {}


def _remembered(key: tuple[Any, ...], holds: Any, make: Callable[[], Any]) -> Any:
    """What ``make`` makes, once for each key; ``holds`` are the objects whose ids are in it."""
    found = _made.get(key)
    if found is None:
        found = _made[key] = make(), holds
        for oldest in list(_made)[:-_KEPT]:
            _made.pop(oldest, None)
    return found[0]


@contextmanager
def _alone(name: str, device: Device) -> Iterator[Body]:
    """A trace that has nothing around it, in which everything is recorded."""
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


def pulled(graph: Graph, wanted: tuple[int, ...], given: tuple[int, ...], device: Device) -> tuple[Graph, tuple[int, ...]]:
    """The graph from ``graph``'s inputs and the cotangents of its outputs ``given`` to the cotangents of its inputs.

    Args:
        graph: What is differentiated.
        wanted: Inputs whose cotangents are asked for, inexact ones.
        given: Outputs that have a cotangent, inexact ones; where two are one value, cotangents are added in this order.
        device: Where the graph runs.

    Returns:
        The graph, and those of ``wanted`` that the outputs depend on: its results are theirs.
    """
    key = ("pulled", id(graph), wanted, given, device.name)
    return _remembered(key, graph, lambda: _pull(graph, wanted, given, device))  # type: ignore[no-any-return]


def _pull(graph: Graph, wanted: tuple[int, ...], given: tuple[int, ...], device: Device) -> tuple[Graph, tuple[int, ...]]:
    avals = graph.avals
    with _alone("a gradient", device) as trace:
        inputs = _inputs(trace, graph.inputs, "carry", device)
        cotangents = _inputs(trace, [avals[graph.outputs[i]] for i in given], "x", device)
        outputs = replay(graph, inputs, device)
        seeds: dict[tuple[int, int], Tensor] = {}
        found: dict[int, Any] = {}
        leaves = {i: inputs[i].node for i in wanted}
        stop = frozenset(n.id for n in leaves.values())
        for i, g in zip(given, cotangents, strict=True):
            t = outputs[i]
            if t.node is not None:
                place = (t.node.id, t.slot)
                seeds[place] = g if place not in seeds else _add(seeds[place], g)
                found.update((n.id, n) for n in reachable(t.node, stop))
        grads = run(sorted(found.values(), key=lambda n: -n.id), seeds, True, stop)
        reached = tuple(i for i in wanted if leaves[i] in grads)
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
    graphs, reached = _remembered(key, branches, lambda: _branches(branches, wanted, given, device))
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
    """The gradients of two branches, by what at least one of them depends on."""
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


# a step of a loop, and the way back over it


def _step_back(
    body: Graph, consts: int, carries: int, wanted: tuple[int, ...], results: tuple[int, ...], device: Device
) -> tuple[Graph, list[int], list[int]]:
    """The way back over a step of a loop.

    Args:
        body: The step: shared values, carry and elements to the next carry and results.
        consts: How many shared values there are.
        carries: How many parts the carry has.
        wanted: Shared values and elements whose cotangents are asked for.
        results: Results that have a cotangent, by number among the body's outputs.
        device: Where the graph runs.

    Returns:
        The graph from shared values, sums of their cotangents, cotangents of the carry, the carry before the step, elements
        and cotangents of results to the next sums, cotangents of the carry before, and cotangents of elements; the shared
        values that have a sum, and the elements that have a cotangent, by number among the body's inputs.
    """
    key = ("step", id(body), consts, carries, wanted, results, device.name)
    return _remembered(  # type: ignore[no-any-return]
        key, body, lambda: _make_step(body, consts, carries, wanted, results, device)
    )


def _make_step(
    body: Graph, consts: int, carries: int, wanted: tuple[int, ...], results: tuple[int, ...], device: Device
) -> tuple[Graph, list[int], list[int]]:
    flowing = [consts + k for k in _inexact(body.inputs[consts : consts + carries])]
    asked = tuple(sorted({*wanted, *flowing}))
    back, reached = pulled(body, asked, (*results, *(i - consts for i in flowing)), device)
    summed = [i for i in reached if i < consts]
    elements = [i for i in reached if i >= consts + carries]
    avals = body.avals
    with _alone("the way back over a step", device) as trace:
        shared = _inputs(trace, body.inputs[:consts], "outer", device)
        sums = _inputs(trace, [body.inputs[i] for i in summed], "carry", device)
        ahead = _inputs(trace, [body.inputs[i] for i in flowing], "carry", device)
        rest = _inputs(trace, body.inputs[consts:], "x", device)
        given = _inputs(trace, [avals[body.outputs[i]] for i in results], "x", device)
        found = dict(zip(reached, replay(back, [*shared, *rest, *given, *ahead], device), strict=True))
        total = [_add(s, found[i]) for i, s in zip(summed, sums, strict=True)]
        before = [found[i] if i in found else filled(0.0, t) for i, t in zip(flowing, ahead, strict=True)]
        trace.finish([*total, *before, *(found[i] for i in elements)])
    return trace.made(), summed, elements


# while_loop


def of_while(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    gs = _listed(cotangents)
    body, consts = r.params["body"], r.params["consts"]
    carries = len(body.inputs) - consts
    device = r.inputs[0].device
    key = ("while", id(body), consts, device.name)
    # the graph's first output is pred: without it, it is a step like that of a scan
    step = _remembered(key, body, lambda: Graph(body.inputs, body.nodes, body.outputs[1:], body.names))
    wanted = tuple(i for i in _inexact(body.inputs[:consts]) if r.needs[i])
    back, summed, _ = _step_back(step, consts, carries, wanted, (), device)
    flowing = _inexact(body.inputs[consts:])
    zeros = [filled(0.0, r.inputs[i].detach()) for i in summed]
    ordered = _remembered(
        ("carry first", id(back), consts, carries),
        back,
        lambda: _carry_first(back, consts, len(summed) + len(flowing), carries),
    )
    with again():
        made = bind(
            INTERNAL["while_gradient"],
            (*r.inputs, *zeros, *(gs[i] for i in flowing)),
            {"body": body, "back": ordered, "consts": consts},
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
    """A scan; where its gradient may be asked for, one that keeps the carries before each step."""
    operands = (*shared, *init, *xs)
    consts, carries = len(shared), len(init)
    recorded = grad_enabled() and any(t.node is not None for t in operands)
    results = len(body.outputs)
    kept = recorded and carries > 0
    params = {
        "body": _keeping(body, consts, carries) if kept else body, "consts": consts, "carries": carries, "length": length,
        "reverse": reverse, "kept": kept,
    }  # fmt: skip
    made: tuple[Tensor, ...] = bind(INTERNAL["scan"], operands, params)
    return made[:results]


def of_scan(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    gs = _listed(cotangents)
    p = r.params
    body, consts, carries, length = p["body"], p["consts"], p["carries"], p["length"]
    device = r.inputs[0].device
    shared, xs = r.inputs[:consts], r.inputs[consts + carries :]
    starts = r.outputs[len(r.outputs) - carries :] if carries else ()
    if carries and not p["kept"]:
        made = bind(INTERNAL["scan"], r.inputs, {**p, "body": _keeping(body, consts, carries), "kept": True})
        starts = made[len(made) - carries :]
    flowing = _inexact(body.inputs[consts : consts + carries])
    ends = consts + carries
    wanted = tuple(i for i in _inexact(body.inputs) if r.needs[i] and not consts <= i < ends)
    results = tuple(i for i in range(carries, len(gs)) if gs[i] is not None and r.given[i])
    back, summed, elements = _step_back(body, consts, carries, wanted, results, device)
    if not (summed or flowing or elements):
        return [None] * len(r.inputs)
    zeros = [filled(0.0, r.inputs[i].detach()) for i in summed]
    with again():
        found = bind_scan(
            back, shared, (*zeros, *(gs[k] for k in flowing)), (*starts, *xs, *(gs[i] for i in results)), length,
            not p["reverse"],
        )  # fmt: skip
    out: list[Tensor | None] = [None] * len(r.inputs)
    for i, g in zip((*summed, *(consts + k for k in flowing), *elements), found, strict=True):
        out[i] = g
    return out


def _keeping(body: Graph, consts: int, carries: int) -> Graph:
    outputs = (*body.outputs, *range(consts, consts + carries))
    made: Graph = _remembered(
        ("kept", id(body), consts, carries), body, lambda: Graph(body.inputs, body.nodes, outputs, body.names)
    )
    return made
