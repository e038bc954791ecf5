"""Forward mode of control flow: the ``jvp`` rules of ``cond``, ``while_loop``, ``while_gradient`` and ``scan``.

The graph of a branch or a body is made into one of values and tangents: it is run op by op inside a trace of its own, on
tensors of a level of ``fb.jvp`` that begins there. Tangents follow the values of their group: shared values, carry, elements,
results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from firebrick.autodiff.backward import filled
from firebrick.autodiff.forward import DIRECTIONS, taken_apart
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.duals import dual
from firebrick.core.levels import Level, enter, leave
from firebrick.core.op import Forward
from firebrick.core.tensor import Tensor
from firebrick.graph.control.body import replay
from firebrick.graph.control.gradients import alone, bind_scan, remembered
from firebrick.graph.control.while_gradients import parts, sizes_of
from firebrick.ir import INTERNAL, Graph

Flags = tuple[bool, ...]
Groups = tuple[int, ...]  # how many values each group has


@contextmanager
def _level() -> Iterator[Level]:
    level = Level("a graph", DIRECTIONS)
    token = enter(level)
    try:
        yield level
    finally:
        level.running = False
        leave(token)


def with_tangents(
    graph: Graph, moving: Flags, forced: Flags, inputs: Groups, outputs: Groups, device: Device
) -> tuple[Graph, Flags]:
    """The graph of values and tangents, and which of its outputs have tangents.

    Args:
        graph: The graph of values.
        moving: Which inputs have tangents.
        forced: Which outputs must have them; other inexact ones have them if they depend on those of the inputs.
        inputs: The groups of the inputs; each is followed by its tangents.
        outputs: Those of the outputs, likewise.
        device: Where the graph runs.
    """
    key = ("tangents", id(graph), moving, forced, inputs, outputs, device.name)
    return remembered(key, graph, lambda: _made(graph, moving, forced, inputs, outputs, device))  # type: ignore[no-any-return]


def _made(
    graph: Graph, moving: Flags, forced: Flags, inputs: Groups, outputs: Groups, device: Device
) -> tuple[Graph, Flags]:  # fmt: skip
    with alone("forward mode of a graph", device) as trace, _level() as level:
        given: list[Tensor] = []
        for start, stop in _ranges(inputs):
            values = [trace.fresh(a, "carry", device) for a in graph.inputs[start:stop]]
            along = [
                trace.fresh(t.aval, "carry", device) if m else None for t, m in zip(values, moving[start:stop], strict=True)
            ]
            given += [t if d is None else dual(level, t, d) for t, d in zip(values, along, strict=True)]
        found = [taken_apart(t, level) for t in replay(graph, given, device)]
        flags = tuple(f or t is not None for f, (_, t) in zip(forced, found, strict=True))
        results: list[Tensor] = []
        for start, stop in _ranges(outputs):
            part = list(zip(found[start:stop], flags[start:stop], strict=True))
            results += [value for (value, _), _ in part]
            results += [_tangent(value, t) for (value, t), f in part if f]
        trace.finish(results)
    return trace.made(), flags


def _ranges(groups: Groups) -> Iterator[tuple[int, int]]:
    start = 0
    for size in groups:
        yield start, start + size
        start += size


def _tangent(value: Tensor, tangent: Tensor | None) -> Tensor:
    return filled(0.0, value._another()) if tangent is None else tangent


def _steady(
    graph: Graph, moving: Flags, carry: tuple[int, int], first: int, inputs: Groups, outputs: Groups, device: Device
) -> tuple[Graph, Flags, Flags]:
    """The graph of a loop's body whose carry has tangents where it has them after any step.

    Args:
        graph: The body.
        moving: Which of its inputs have tangents before the first step.
        carry: The range of the carry among the inputs.
        first: The number of outputs before the carry.
        inputs: The groups of the inputs.
        outputs: Those of the outputs.
        device: Where it runs.

    Returns:
        The body of values and tangents, and which of its inputs and outputs have tangents.
    """
    start, stop = carry
    while True:
        others = len(graph.outputs) - first - (stop - start)
        forced = (*(False,) * first, *moving[start:stop], *(False,) * others)
        made, flags = with_tangents(graph, moving, forced, inputs, outputs, device)
        after = flags[first : first + stop - start]
        if after == moving[start:stop]:
            return made, moving, flags
        moving = (*moving[:start], *after, *moving[stop:])


def _moving(f: Forward) -> Flags:
    return tuple(t is not None and x.dtype.is_inexact for x, t in zip(f.operands, f.tangents, strict=True))


def _group(f: Forward, start: int, stop: int, moving: Sequence[bool]) -> list[Tensor]:
    """Operands, followed by the tangents of those that have one."""
    values = list(f.operands[start:stop])
    along = zip(values, f.tangents[start:stop], moving, strict=True)
    return [*values, *(_tangent(x, t) for x, t, m in along if m)]


def _tangents_of(made: Sequence[Tensor], flags: Sequence[bool]) -> list[Tensor | None]:
    """The tangents in a group of results, which has the values first."""
    left = iter(made[len(flags) :])
    return [next(left) if f else None for f in flags]


def of_cond(f: Forward) -> tuple[Tensor | None, ...]:
    """``cond``: the tangents of the branch that is chosen."""
    branches, device = f.params["branches"], f.operands[0].device
    moving = _moving(f)[1:]
    groups, count = (len(moving),), len(branches[0].outputs)
    forced: Flags = (False,) * count
    for _ in range(2):  # what moves in one branch moves in the other
        both = [with_tangents(g, moving, forced, groups, (count,), device) for g in branches]
        forced = tuple(a or b for a, b in zip(both[0][1], both[1][1], strict=True))
    graphs = tuple(g for g, _ in both)
    params = remembered(("cond of tangents", *map(id, graphs)), graphs, lambda: {"branches": graphs})
    made = bind(INTERNAL["cond"], (f.operands[0], *_group(f, 1, len(f.operands), moving)), params)
    return tuple(_tangents_of(made, forced))


def of_while(f: Forward) -> tuple[Tensor | None, ...]:
    """``while_loop``: a loop over the carry and its tangents."""
    body, consts, device = f.params["body"], f.params["consts"], f.operands[0].device
    carries = len(body.inputs) - consts
    given = _moving(f)
    inputs, outputs = (consts, carries), (1, carries)
    start = (*given[:consts], *given[consts + 1 :])
    made, moving, flags = _steady(body, start, (consts, consts + carries), 1, inputs, outputs, device)
    shared = _group(f, 0, consts, moving[:consts])
    carry = _group(f, consts + 1, len(f.operands), moving[consts:])
    params = remembered(("while of tangents", id(made)), made, lambda: {"body": made, "consts": len(shared)})
    found = bind(INTERNAL["while_loop"], (*shared, f.operands[consts], *carry), params)
    return tuple(_tangents_of(found, flags[1:]))


def of_while_gradient(f: Forward) -> tuple[Tensor | None, ...]:
    """``while_gradient``: the loop over the carry and its tangents, and passes over both."""
    body, backs, consts, device = f.params["body"], f.params["backs"], f.params["consts"], f.operands[0].device
    sizes = sizes_of(body, backs)
    given = _moving(f)
    moving = (*given[:consts], *given[consts + 1 : consts + 1 + sizes[0]])
    made, moving, _ = _steady(body, moving, (consts, consts + sizes[0]), 1, (consts, sizes[0]), (1, sizes[0]), device)
    shared = _group(f, 0, consts, moving[:consts])
    carries = _group(f, consts + 1, consts + 1 + sizes[0], moving[consts:])
    graphs: list[Graph] = []
    flags: list[Flags] = []
    for number, back in enumerate(backs):
        start = consts + sum(sizes[: number + 1])  # of the carry among the inputs of the pass; pred is an operand before it
        stop = start + sizes[number + 1]
        graph, moving, moves = _steady(
            back, (*moving, *given[start + 1 : stop + 1]), (start, stop), 0, (consts, *sizes[: number + 2]),
            (sizes[number + 1],), device,
        )  # fmt: skip
        graphs.append(graph)
        flags.append(moves)
        carries += _group(f, start + 1, stop + 1, moves)
    params = remembered(
        ("while gradient of tangents", id(made), *map(id, graphs)), (made, graphs),
        lambda: {"body": made, "backs": tuple(graphs), "consts": len(shared)},
    )  # fmt: skip
    found = bind(INTERNAL["while_gradient"], (*shared, f.operands[consts], *carries), params)
    results = parts(found, [len(moves) + sum(moves) for moves in flags])
    return tuple(t for result, moves in zip(results, flags, strict=True) for t in _tangents_of(result, moves))


def of_scan(f: Forward) -> tuple[Tensor | None, ...]:
    """``scan``: a scan over the carry and its tangents."""
    p, device = f.params, f.operands[0].device
    body, consts, carries = p["body"], p["consts"], p["carries"]
    ends = consts + carries
    inputs = (consts, carries, len(f.operands) - ends)
    results = len(body.outputs) - carries
    made, moving, flags = _steady(body, _moving(f), (consts, ends), 0, inputs, (carries, results), device)
    shared = _group(f, 0, consts, moving[:consts])
    carry = _group(f, consts, ends, moving[consts:ends])
    xs = _group(f, ends, len(f.operands), moving[ends:])
    found = bind_scan(made, shared, carry, xs, p["length"], p["reverse"])
    return (
        *_tangents_of(found[: len(carry)], flags[:carries]),
        *_tangents_of(found[len(carry) :], flags[carries:]),
    )
