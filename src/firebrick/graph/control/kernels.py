"""How engines run control flow: a host loop around compiled graphs, whatever the engine.

Graphs inside are compiled once, with the program that they are part of. A carry that is not kept is donated to the body,
so that sums over the steps are added in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.backends.contract import Backend
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

Run = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Kernel:
    """A function, and the bytes that it takes besides its operands and results."""

    run: Run
    scratch: int

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        return self.run(*operands)


def _bytes(avals: Iterable[Aval]) -> int:
    return sum(a.nbytes for a in avals)


def _results(graph: Graph) -> int:
    """Bytes of a graph's outputs."""
    avals = graph.avals
    return _bytes(avals[i] for i in graph.outputs)


_RESHAPE, _SPLIT, _CONCAT = OPS["reshape"], OPS["split"], OPS["concat"]


def compiled(
    infer: Callable[..., Any], kernel: Callable[..., Kernel], backend: Backend, params: dict[str, Any], device: Device | None
) -> Run:  # fmt: skip
    """An operation's kernel on an engine; on an engine without values, its shape rule."""
    if backend.engine == "meta":
        return lambda *avals: tuple(infer(*avals, **params))
    return kernel(backend, device, **params)


def _copied(backend: Backend, device: Device | None, natives: Iterable[Any]) -> list[Any]:
    return [backend.copy(x, device) for x in natives]


def _condition(backend: Backend, pred: Any) -> bool:
    """The value of a condition, for which nothing waits if it came from the host."""
    known = backend.known_ranges([pred])
    if known is not None and known[0] is not None and known[0][0] == known[0][1]:
        return bool(known[0][0])
    return bool(backend.to_host(pred))


def cond(backend: Backend, device: Device | None, *, branches: tuple[Graph, Graph]) -> Kernel:
    first, second = (backend.compile(graph, device) for graph in branches)

    def run(pred: Any, *operands: Any) -> tuple[Any, ...]:
        return (first if _condition(backend, pred) else second)(operands)

    return Kernel(run, max(first.plan.peak, second.plan.peak) - _results(branches[0]))


def while_loop(backend: Backend, device: Device | None, *, body: Graph, consts: int) -> Kernel:
    step = backend.compile(body, device, range(consts, len(body.inputs)))

    def run(*operands: Any) -> tuple[Any, ...]:
        shared, pred = operands[:consts], operands[consts]
        carry: Sequence[Any] = _copied(backend, device, operands[consts + 1 :])
        while backend.to_host(pred):
            pred, *carry = step((*shared, *carry))
        return tuple(carry)

    return Kernel(run, step.plan.peak)


def while_gradient(backend: Backend, device: Device | None, *, body: Graph, backs: Sequence[Graph], consts: int) -> Kernel:
    step = backend.compile(body, device)
    carries = len(body.inputs) - consts
    # the carries of the last pass are not kept, so its steps may write over them
    donated = range(len(backs[-1].inputs) - len(backs[-1].outputs), len(backs[-1].inputs))
    passes = [backend.compile(back, device, donated if back is backs[-1] else ()) for back in backs]

    def run(*operands: Any) -> tuple[Any, ...]:
        shared, pred = operands[:consts], operands[consts]
        carry: Sequence[Any] = operands[consts + 1 : consts + 1 + carries]
        seen: list[tuple[Any, ...]] = []  # for each step, the carries before it of the loop and of all passes until now
        while backend.to_host(pred):
            seen.append(tuple(carry))
            pred, *carry = step((*shared, *carry))
        results: list[Any] = []
        at = consts + 1 + carries
        for number, (back, undo) in enumerate(zip(backs, passes, strict=True)):
            end = at + len(back.outputs)
            carry, at = _copied(backend, device, operands[at:end]), end
            final = number == len(backs) - 1
            seen.reverse()  # each pass goes the other way than the one before
            for k in range(len(seen)):
                before = (*seen[k], *carry)
                seen[k] = () if final else before
                carry = undo((*shared, *before))
                del before
            results += carry
        return tuple(results)

    # and the carries of all steps, whose number is not known
    return Kernel(run, max(step.plan.peak, *(undo.plan.peak for undo in passes)))


def scan(
    backend: Backend, device: Device | None, *, body: Graph, consts: int, carries: int, length: int, reverse: bool, kept: int
) -> Kernel:  # fmt: skip
    avals = body.avals
    start = body.inputs[consts : consts + carries]
    elements = body.inputs[consts + carries :]
    after, results = body.outputs[:carries], body.outputs[carries:]
    made = list(dict.fromkeys([*after, *(v for v in results if not consts <= v < consts + carries)]))
    at = {v: i for i, v in enumerate(made)}
    lists = [carries + at[v] if v in at else v - consts for v in results]  # among a step's carry, then its results
    held = {v - consts for v in results if v not in at}  # carries that the next step must not write over
    held |= {k for k, v in enumerate(after) if v in results or after.count(v) > 1}
    framed = _framed(body, consts, made)
    step = backend.compile(framed, device, [consts + k for k in range(carries) if k not in held])
    cut = [
        _runner(backend, device, _SPLIT, [Aval((length, *a.shape), a.dtype)], {"sizes": (1,) * length, "axis": 0})
        for a in elements
    ]
    joined = [avals[v] for v in results]
    join = [_runner(backend, device, _CONCAT, [Aval((1, *a.shape), a.dtype)] * length, {"axis": 0}) for a in joined]
    frame = [_runner(backend, device, _RESHAPE, [a], {"shape": (1, *a.shape)}) for a in start]
    unframe = [_runner(backend, device, _RESHAPE, [Aval((1, *a.shape), a.dtype)], {"shape": a.shape}) for a in start]
    next_carry = [at[v] for v in after]
    seen = sorted(set(lists))
    order = range(length - 1, -1, -1) if reverse else range(length)

    def run(*operands: Any) -> tuple[Any, ...]:
        shared, first = operands[:consts], operands[consts : consts + carries]
        if not length:
            empty = [backend.from_host(np.empty((0, *a.shape), a.dtype.np), device) for a in joined]  # type: ignore[arg-type]
            return (*_copied(backend, device, first), *empty)
        carry = [f(backend.copy(x, device) if k not in held else x) for k, (f, x) in enumerate(zip(frame, first, strict=True))]
        xs = [f(x) for f, x in zip(cut, operands[consts + carries :], strict=True)]
        ys: dict[int, list[Any]] = {i: [None] * length for i in seen}
        for t in order:
            found = step((*shared, *carry, *[x[t] for x in xs]))
            for i in seen:
                ys[i][t] = carry[i] if i < carries else found[i - carries]
            carry = [found[i] for i in next_carry]
        stacked = {i: f(*ys[i]) for i, f in zip(lists, join, strict=True)}
        used: set[int] = set()
        out = []
        for i in lists:  # two results of one value are two arrays
            out.append(backend.copy(stacked[i], device) if i in used else stacked[i])
            used.add(i)
        return (*(f(c) for f, c in zip(unframe, _distinct(backend, device, carry), strict=True)), *out)

    # results lie there a second time, element by element, until they are joined
    elements_kept = length * _bytes(dict(zip(lists, joined, strict=True)).values())
    return Kernel(run, step.plan.peak + elements_kept)


def _distinct(backend: Backend, device: Device | None, natives: Sequence[Any]) -> list[Any]:
    """Arrays that are all different."""
    out: list[Any] = []
    for x in natives:
        out.append(backend.copy(x, device) if any(x is y for y in out) else x)
    return out


def _framed(body: Graph, consts: int, made: Sequence[int]) -> Graph:
    """The body with an axis of size 1 before those of carries, elements and results: parts of sequences, as they are cut."""
    count = len(body.inputs)
    inputs = [*body.inputs[:consts], *(Aval((1, *a.shape), a.dtype) for a in body.inputs[consts:])]
    graph = Graph(inputs)
    number = list(range(consts))
    number += [graph.add(_RESHAPE, i, shape=body.inputs[i].shape)[0] for i in range(consts, count)]
    shift = len(inputs) + len(graph.nodes) - count
    for n in body.nodes:
        operands = tuple(number[i] if i < count else i + shift for i in n.inputs)
        graph.nodes.append(Node(n.op, operands, n.params, n.first + shift, n.avals, n.label, n.line, n.region))
    avals = body.avals
    outputs = []
    size = body.size + shift
    for v in made:
        inner = number[v] if v < count else v + shift
        shape = (1, *avals[v].shape)
        graph.nodes.append(Node(_RESHAPE, (inner,), {"shape": shape}, size, (Aval(shape, avals[v].dtype),)))
        outputs.append(size)
        size += 1
    graph.outputs = tuple(outputs)
    return graph


def _runner(
    backend: Backend, device: Device | None, op: Any, operands: Sequence[Aval], params: dict[str, Any]
) -> Callable[..., Any]:  # fmt: skip
    """One operation on native arrays; compiled, with a copy, if the engine lacks it."""
    if backend.supports(op, tuple(a.dtype for a in operands)):
        return lambda *natives: backend.execute(op, natives, params)
    graph = Graph(list(operands))
    graph.outputs = graph.add(op, *range(len(operands)), **params)
    program = backend.compile(graph, device)
    if op is _SPLIT:
        return lambda *natives: program(natives)
    return lambda *natives: program(natives)[0]
