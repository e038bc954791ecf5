"""Gradients of gradients of ``while_loop``, of any order: the reverse-mode rule of ``while_gradient``.

A ``while_gradient`` is a loop whose carries are kept, and passes over its steps: each goes the other way than the one
before, and a step of it sees the carries that the loop and earlier passes had before that step. The gradient of a loop is
one such pass. The gradient of passes is that of each of them, the last one first, so it is a ``while_gradient`` with twice as
many passes.

In the pass of cotangents of pass i, a step runs step i backwards, and then those of all later passes that saw the carry of i:
what they need, the cotangent of their next carry, is the carry of their own pass of cotangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from firebrick.autodiff.backward import filled
from firebrick.autodiff.residuals import again
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.op import Vjp
from firebrick.core.tensor import Tensor
from firebrick.graph.control.body import replay
from firebrick.graph.control.gradients import alone, pulled, remembered
from firebrick.ir import INTERNAL, Graph
from firebrick.ops import OPS


def without_pred(body: Graph) -> Graph:
    """The step of a loop: its body without the first output, which says whether the loop goes on."""
    step: Graph = remembered(("step", id(body)), body, lambda: Graph(body.inputs, body.nodes, body.outputs[1:], body.names))
    return step


def parts(values: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    """Values in groups of these sizes."""
    return [values[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


def sizes_of(body: Graph, backs: Sequence[Graph]) -> list[int]:
    """How many values the carry of the loop has, and that of each pass."""
    return [len(body.outputs) - 1, *(len(back.outputs) for back in backs)]


def _inexact(avals: Sequence[Aval]) -> list[int]:
    return [k for k, a in enumerate(avals) if a.dtype.is_inexact]


def of_while_gradient(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    """The rule: the same loop and passes, and a pass of cotangents of each."""
    gs = cotangents if isinstance(cotangents, tuple) else (cotangents,)
    body, backs, consts = r.params["body"], r.params["backs"], r.params["consts"]
    graphs, sizes = (without_pred(body), *backs), sizes_of(body, backs)
    device = r.inputs[0].device
    shared, carries = r.inputs[:consts], parts(r.inputs[consts + 1 :], sizes)
    wanted = tuple(i for i, t in enumerate(shared) if r.needs[i] and t.dtype.is_inexact)
    flowing = [_inexact([t.aval for t in carry]) for carry in carries]
    key = ("passes of cotangents", *map(id, graphs), consts, wanted, device.name)
    order = range(len(graphs) - 1, -1, -1)
    made = remembered(key, graphs, lambda: tuple([_step(graphs, consts, sizes, flowing, wanted, i, device) for i in order]))
    given = iter([g if g is not None and on else None for g, on in zip(gs, r.given, strict=True)])
    ends = [[None] * sizes[0], *([next(given) for _ in range(size)] for size in sizes[1:])]  # cotangents of the last carries
    operands = list(r.inputs)
    for i in order:
        operands += [filled(0.0, shared[k].detach()) for k in wanted]
        for k in flowing[i]:
            g = ends[i][k]
            operands.append(filled(0.0, carries[i][k].detach()) if g is None else g)
    params = remembered(
        ("while again", id(body), *map(id, backs), *map(id, made), consts), (body, backs, made),
        lambda: {"body": body, "backs": (*backs, *made), "consts": consts},
    )  # fmt: skip
    with again():
        found = bind(INTERNAL["while_gradient"], tuple(operands), params)
    out: list[Tensor | None] = [None] * len(r.inputs)
    results = parts(found[sum(sizes[1:]) :], [len(wanted) + len(flowing[i]) for i in order])
    starts = [consts + 1 + sum(sizes[:i]) for i in range(len(graphs))]
    for i, result in zip(order, results, strict=True):
        for k, t in zip(wanted, result[: len(wanted)], strict=True):
            until = out[k]
            out[k] = t if until is None else bind(OPS["add"], (until, t), {})
        for k, t in zip(flowing[i], result[len(wanted) :], strict=True):
            out[starts[i] + k] = t
    return out


def _step(
    graphs: Sequence[Graph], consts: int, sizes: Sequence[int], flowing: Sequence[Sequence[int]], wanted: tuple[int, ...],
    i: int, device: Device,
) -> Graph:  # fmt: skip
    """A step of the pass of cotangents of pass ``i``.

    Its inputs are the shared values, the carries of all passes before the step, the carries of the passes of cotangents of
    later passes, the last one first, and its own carry: the sums of cotangents of ``wanted`` shared values, and the cotangents
    of the carry of pass i.
    """
    last = len(graphs) - 1
    own = [graph.inputs[len(graph.inputs) - size :] for graph, size in zip(graphs, sizes, strict=True)]
    sums = [graphs[0].inputs[k] for k in wanted]

    def behind(j: int) -> list[Aval]:
        return [*sums, *(own[j][k] for k in flowing[j])]

    with alone("the gradient of a step", device) as trace:

        def inputs(avals: Sequence[Aval]) -> list[Tensor]:
            return [trace.fresh(a, "carry", device) for a in avals]

        shared, carries = inputs(graphs[0].inputs[:consts]), [inputs(avals) for avals in own]
        cotangents = {j: inputs(behind(j)) for j in range(last, i - 1, -1)}

        def back(j: int, asked: tuple[int, ...]) -> dict[int, Tensor]:
            """The cotangents of some inputs of a step of pass j."""
            graph, reached = pulled(graphs[j], asked, tuple(flowing[j]), device)
            before = [t for carry in carries[: j + 1] for t in carry]
            found = replay(graph, [*shared, *before, *cotangents[j][len(wanted) :]], device)
            return dict(zip(reached, found, strict=True))

        first = consts + sum(sizes[:i])  # of the carry of pass i, among the inputs of its step and those of later passes
        places = tuple(first + k for k in flowing[i])
        found = back(i, (*wanted, *places))
        total: dict[int, Tensor | None] = {k: found.get(first + k) for k in flowing[i]}
        for j in range(i + 1, last + 1):
            for place, t in back(j, places).items():
                until = total[place - first]
                total[place - first] = t if until is None else bind(OPS["add"], (until, t), {})
        summed = cotangents[i][: len(wanted)]
        trace.finish([
            *(s if k not in found else bind(OPS["add"], (s, found[k]), {}) for k, s in zip(wanted, summed, strict=True)),
            *(filled(0.0, carries[i][k].detach()) if (g := total[k]) is None else g for k in flowing[i]),
        ])  # fmt: skip
    return trace.made()
