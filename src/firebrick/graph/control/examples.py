"""Control flow for all examples of ``fb.vmap`` at once: the ``batch`` rules of ``cond``, ``while_loop`` and ``scan``.

The graph of a branch or a body is made into one for all examples: it is run op by op inside a trace of its own, on tensors
of one example of a level that begins there. Where examples choose branches differently, both are run and selected from. A
loop whose examples end at different steps runs until the last one ends, and an example that has ended keeps its carry. What
an example does not take is computed for it on the operands of one that does, and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from firebrick.autodiff.batching import EXAMPLES, taken, with_examples
from firebrick.autodiff.tape import note_choice
from firebrick.core.aval import Aval
from firebrick.core.batched import Batched, batched
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.dtypes import bool_, int32
from firebrick.core.hooks import hooks
from firebrick.core.levels import Level, enter, leave, readable
from firebrick.core.op import Batching
from firebrick.core.tensor import Tensor
from firebrick.graph.control.body import Body, replay
from firebrick.graph.control.gradients import alone, bind_scan, remembered
from firebrick.graph.control.while_gradients import sizes_of
from firebrick.ir import CONSTANT, INTERNAL, Graph
from firebrick.ops import OPS
from firebrick.ops.batch_rules import operand_of_all

Flags = tuple[bool, ...]


@contextmanager
def _level(size: int) -> Iterator[Level]:
    level = Level("a graph", EXAMPLES, size)
    token = enter(level)
    try:
        yield level
    finally:
        level.running = False
        leave(token)


def _value(trace: Body, level: Level, aval: Aval, mapped: bool, device: Device) -> Tensor:
    """An input of all examples."""
    return trace.fresh(Aval((level.size, *aval.shape), aval.dtype) if mapped else aval, "carry", device)


def _input(trace: Body, level: Level, aval: Aval, mapped: bool, device: Device) -> Tensor:
    """An input for one example."""
    made = _value(trace, level, aval, mapped, device)
    return batched(level, made) if mapped else made


def for_examples(graph: Graph, mapped: Flags, forced: Flags, size: int, device: Device) -> tuple[Graph, Flags]:
    """The graph of all examples, and which of its outputs have them as first axis.

    Args:
        graph: The graph of one example.
        mapped: Which inputs have the examples as first axis.
        forced: Which outputs must have it; others have it if they differ between examples.
        size: How many examples there are.
        device: Where the graph runs.
    """
    key = ("examples", id(graph), mapped, forced, size, device.name)
    return remembered(key, graph, lambda: _made(graph, mapped, forced, size, device))  # type: ignore[no-any-return]


def _made(graph: Graph, mapped: Flags, forced: Flags, size: int, device: Device) -> tuple[Graph, Flags]:
    with alone("a graph of all examples", device) as trace, _level(size) as level:
        given = [_input(trace, level, a, m, device) for a, m in zip(graph.inputs, mapped, strict=True)]
        outputs = replay(graph, given, device)
        found = [taken(t, level) for t in outputs]
        flags = tuple(f or mapped for f, (_, mapped) in zip(forced, found, strict=True))
        trace.finish([with_examples(level, t) if f else value for f, t, (value, _) in zip(flags, outputs, found, strict=True)])
    return trace.made(), flags


def _steady(
    graph: Graph, shared: Flags, carry: Flags, rest: Flags, first: int, size: int, device: Device
) -> tuple[Graph, Flags]:
    """The graph of a loop's body whose carry has examples where it has them after any step.

    Args:
        graph: The body for one example.
        shared: Which shared values have examples.
        carry: Which parts of the first carry have them.
        rest: Which of the other inputs have them.
        first: The number of outputs before the carry.
        size: How many examples there are.
        device: Where it runs.

    Returns:
        The body for all, and which of its outputs have examples.
    """
    while True:
        others = len(graph.outputs) - first - len(carry)
        forced = (*(False,) * first, *carry, *(False,) * others)
        made, flags = for_examples(graph, (*shared, *carry, *rest), forced, size, device)
        after = flags[first : first + len(carry)]
        if after == carry:
            return made, flags
        carry = after


def _whole(b: Batching, i: int, mapped: bool) -> Tensor:
    x: Tensor = operand_of_all(b, i) if mapped else b.operands[i]
    return x


def of_cond(b: Batching) -> tuple[Tensor, ...]:
    """``cond``: one branch for all examples if they share ``pred``, else the branches that at least one takes, and a selection.

    An example that does not take a branch computes it on the operands of one that does: so what a branch does outside of its
    condition, such as a loop without end, an index out of range or a NaN, comes into no result and no gradient. A branch that
    no example takes is run only where it can do no harm.
    """
    branches, device = b.params["branches"], b.operands[0].device
    forced = (True,) * len(branches[0].outputs)
    graphs = tuple(for_examples(g, b.mapped[1:], forced, b.size, device)[0] for g in branches)
    if not b.mapped[0]:
        params = remembered(("cond of examples", *map(id, graphs)), graphs, lambda: {"branches": graphs})
        made: tuple[Tensor, ...] = bind(INTERNAL["cond"], b.operands, params)
        return made
    pred, operands = b.operands[0], list(zip(b.operands[1:], b.mapped[1:], strict=True))
    found = []
    for takes, graph in zip((pred, bind(OPS["logical_not"], (pred,), {})), graphs, strict=True):
        one = _one_of(takes)
        given = [_of_those(takes, x, one) if mapped else x for x, mapped in operands]
        some = None if _is_harmless(graph, b.mapped[1:]) else _some(takes)
        found.append(replay(graph, given, device) if some is None else _if_some(some, graph, given, device))
    return tuple(bind(OPS["where"], (_beside(pred, x), x, y), {}) for x, y in zip(*found, strict=True))


def _beside(flags: Tensor, x: Tensor) -> Tensor:
    """Flags of examples, in a shape that broadcasts with values of examples."""
    found: Tensor = bind(OPS["reshape"], (flags,), {"shape": (*flags.shape, *(1,) * (x.ndim - 1))})
    return found


def _one_of(takes: Tensor) -> Tensor:
    """The index of the first example that takes a branch or goes on, in a shape of one element; 0 if there is none."""
    if not takes.size:
        return takes
    numbers = bind(OPS["cast"], (takes,), {"dtype": int32})
    found: Tensor = bind(OPS["argmax"], (numbers,), {"axis": 0, "keepdims": True})
    return found


def _of_those(takes: Tensor, x: Tensor, one: Tensor) -> Tensor:
    """The values of those examples that take a branch; for the others, as constants, those of ``one`` of them."""
    if not takes.size:
        return x
    instead = bind(OPS["take"], (x.detach(), one), {"axis": 0})
    found: Tensor = bind(OPS["where"], (_beside(takes, x), x, instead), {})
    return found


def _is_harmless(graph: Graph, mapped: Flags) -> bool:
    """Whether a graph may run although no example takes it: it is made of operations on elements, which end and raise no error,
    and a NaN reaches no operand that examples share."""
    shared = any(a.dtype.is_inexact and not m for a, m in zip(graph.inputs, mapped, strict=True))
    return not shared and all(n.op is CONSTANT or (n.op.fusion in ("map", "move") and not n.op.indexes) for n in graph.nodes)


def _if_some(some: Tensor, graph: Graph, operands: Sequence[Tensor], device: Device) -> Sequence[Tensor]:
    """The results of a graph of all examples, or zeros if no example takes it, in which case it does not run."""
    if hooks.trace() is not None or type(readable(some).storage.data) is Batched:
        params = remembered(("cond of some examples", id(graph)), graph, lambda: {"branches": (graph, _zeros_of(graph))})
        made: tuple[Tensor, ...] = bind(INTERNAL["cond"], (some, *operands), params)
        return made
    note_choice()
    return replay(graph if some else _zeros_of(graph), operands, device)


def _zeros_of(graph: Graph) -> Graph:
    """The graph from the same inputs to zeros in place of its outputs."""
    g = Graph(graph.inputs, [], (), graph.names)
    avals = graph.avals
    outputs = []
    for i in graph.outputs:
        zero = g.constant(np.zeros((), avals[i].dtype.np))
        outputs.append(g.add(OPS["broadcast_to"], zero, shape=avals[i].shape)[0])
    g.outputs = tuple(outputs)
    return g


def of_while(b: Batching) -> tuple[Tensor, ...]:
    """``while_loop``: as many steps as the example with the most."""
    body, consts, device = b.params["body"], b.params["consts"], b.operands[0].device
    shared, carry = b.mapped[:consts], b.mapped[consts + 1 :]
    made, flags = _steady(body, shared, carry, (), 1, b.size, device)
    several = b.mapped[consts] or flags[0]
    if several:
        made = remembered(
            ("while of examples", id(body), shared, b.size, device.name), body,
            lambda: _until_all_end(body, shared, b.size, device),
        )  # fmt: skip
        flags = (True,) * (len(carry) + 1)
    start = [_whole(b, consts + 1 + k, f) for k, f in enumerate(flags[1:])]
    operands = [*b.operands[:consts], b.operands[consts], *start]
    if several:
        going = _whole(b, consts, True)
        operands = [*b.operands[:consts], _some(going), *start, going]
    params = remembered(("while params", id(made), consts), made, lambda: {"body": made, "consts": consts})
    found = bind(INTERNAL["while_loop"], tuple(operands), params)[: len(carry)]
    return tuple(_repeated(t, f, b.size) for t, f in zip(found, flags[1:], strict=True))


def _some(flags: Tensor) -> Tensor:
    found: Tensor = bind(OPS["any"], (flags,), {"axes": (0,), "keepdims": False})
    return found


def _until_all_end(body: Graph, shared: Flags, size: int, device: Device) -> Graph:
    """A step of all examples: those that go on, which the last input and output hold, take it."""
    consts = len(shared)
    flags = (*shared, *(True,) * (len(body.inputs) - consts))
    with alone("a step of all examples", device) as trace, _level(size) as level:
        given = [_value(trace, level, a, m, device) for a, m in zip(body.inputs, flags, strict=True)]
        going = _value(trace, level, Aval((), bool_), True, device)
        more, *after = [with_examples(level, t) for t in replay(body, _of_going(level, going, given, flags), device)]
        still = bind(OPS["logical_and"], (going, more), {})
        trace.finish([_some(still), *_kept(going, after, given[consts:]), still])
    return trace.made()


def _of_going(level: Level, going: Tensor, values: Sequence[Tensor], mapped: Sequence[bool]) -> list[Tensor]:
    """Inputs for one example: those of an example that has ended are those of one that goes on."""
    one = _one_of(going)
    return [batched(level, _of_those(going, x, one)) if m else x for x, m in zip(values, mapped, strict=True)]


def _kept(going: Tensor, after: Sequence[Tensor], before: Sequence[Tensor]) -> list[Tensor]:
    """The carries of all examples after a step, which those take that go on."""
    return [bind(OPS["where"], (_beside(going, x), x, y), {}) for x, y in zip(after, before, strict=True)]


def _repeated(t: Tensor, mapped: bool, size: int) -> Tensor:
    if mapped:
        return t
    found: Tensor = bind(OPS["broadcast_to"], (t,), {"shape": (size, *t.shape)})
    return found


def of_while_gradient(b: Batching) -> tuple[Tensor, ...]:
    """``while_gradient``: where examples have different numbers of steps, one that has ended takes no part in those that are
    left, in any pass."""
    body, backs, consts, device = b.params["body"], b.params["backs"], b.params["consts"], b.operands[0].device
    sizes = sizes_of(body, backs)
    shared, carry = b.mapped[:consts], b.mapped[consts + 1 : consts + 1 + sizes[0]]
    forward, flags = _steady(body, shared, carry, (), 1, b.size, device)
    several = b.mapped[consts] or flags[0]
    if several:
        forward = remembered(
            ("while of examples", id(body), shared, b.size, device.name), body,
            lambda: _until_all_end(body, shared, b.size, device),
        )  # fmt: skip
    first = (True,) * sizes[0] if several else flags[1:]
    pred, start = b.operands[consts], [_whole(b, consts + 1 + k, f) for k, f in enumerate(first)]
    if several:
        going = _whole(b, consts, True)
        pred, start = _some(going), [*start, going]
    graphs: list[Graph] = []
    for number, back in enumerate(backs):
        own = (True,) * sizes[number + 1]
        before = (*shared, *first, *(True,) * sum(sizes[1 : number + 1]))
        if several:
            graphs.append(_while_going(back, before, consts + sizes[0], b.size, device))
        else:
            graphs.append(for_examples(back, (*before, *own), own, b.size, device)[0])
    rest = [_whole(b, k, True) for k in range(consts + 1 + sizes[0], len(b.operands))]
    params = remembered(
        ("while gradient of examples", id(forward), *map(id, graphs), consts), (forward, graphs),
        lambda: {"body": forward, "backs": tuple(graphs), "consts": consts},
    )  # fmt: skip
    made: tuple[Tensor, ...] = bind(INTERNAL["while_gradient"], (*b.operands[:consts], pred, *start, *rest), params)
    return made


def _while_going(back: Graph, before: Flags, ends: int, size: int, device: Device) -> Graph:
    key = ("pass of those that go on", id(back), before, ends, size, device.name)
    made: Graph = remembered(key, back, lambda: _make_while_going(back, before, ends, size, device))
    return made


def _make_while_going(back: Graph, before: Flags, ends: int, size: int, device: Device) -> Graph:
    """A step of a pass for all examples, which those take that go on; which these are follows the carry of the loop.

    Args:
        back: The step for one example.
        before: Which inputs before its own carry have examples.
        ends: How many of these are shared values and the carry of the loop.
        size: How many examples there are.
        device: Where it runs.
    """
    count = len(back.outputs)
    flags = (*before, *(True,) * count)
    with alone("a step of all examples", device) as trace, _level(size) as level:
        avals = list(zip(back.inputs, flags, strict=True))
        given = [_value(trace, level, a, m, device) for a, m in avals[:ends]]
        going = _value(trace, level, Aval((), bool_), True, device)
        given += [_value(trace, level, a, m, device) for a, m in avals[ends:]]
        after = [with_examples(level, t) for t in replay(back, _of_going(level, going, given, flags), device)]
        trace.finish(_kept(going, after, given[len(given) - count :]))
    return trace.made()


def of_scan(b: Batching) -> tuple[Tensor, ...]:
    """``scan``: the sequences of all examples have the steps as first axis and the examples as second."""
    body, consts, carries, device = b.params["body"], b.params["consts"], b.params["carries"], b.operands[0].device
    ends = consts + carries
    shared, carry, elements = b.mapped[:consts], b.mapped[consts:ends], b.mapped[ends:]
    made, flags = _steady(body, shared, carry, elements, 0, b.size, device)
    start = [_whole(b, consts + k, f) for k, f in enumerate(flags[:carries])]
    xs = [_steps_first(x) if m else x for x, m in zip(b.operands[ends:], elements, strict=True)]
    found = bind_scan(made, b.operands[:consts], start, xs, b.params["length"], b.params["reverse"])
    last = [_repeated(t, f, b.size) for t, f in zip(found[:carries], flags[:carries], strict=True)]
    results = [
        _steps_first(t) if f else _repeated(t, False, b.size) for t, f in zip(found[carries:], flags[carries:], strict=True)
    ]
    return (*last, *results)


def _steps_first(x: Tensor) -> Tensor:
    """``x`` with its first two axes exchanged."""
    found: Tensor = bind(OPS["permute"], (x,), {"axes": (1, 0, *range(2, x.ndim))})
    return found
