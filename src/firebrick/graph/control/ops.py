"""The operations of control flow: ``cond``, ``while_loop``, ``while_gradient`` and ``scan``.

Their parameters hold the graphs that they run. Operands that every step sees come first (``consts`` of them), then the
carry, then sequences. The rule of each gradient makes graphs of the gradients of its graphs, so it is again made
of these operations, and may be differentiated like any other. So does the rule of forward mode with graphs of values and
tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Batching, Cost, Forward, Op, Operand, Vjp
from firebrick.graph.control import examples, gradients, kernels, tangents, while_gradients
from firebrick.ir import INTERNAL, Graph, interpret


def _outputs(graph: Graph) -> list[Aval]:
    avals = graph.avals
    return [avals[i] for i in graph.outputs]


def _fits(name: str, operands: Sequence[Any], graph: Graph) -> None:
    given = [Aval(a.shape, a.dtype) for a in operands]
    if given != graph.inputs:
        raise ShapeError(
            f"{name}: a graph gets its inputs, {', '.join(map(str, graph.inputs))}",
            ", ".join(map(str, given)),
            "report this as a bug",
        )


def _run(graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    return interpret(graph, arrays, lambda op, xs, params: op.reference(*xs, **params))


def _cost(inputs: Any, outputs: Any, params: Any) -> Cost:
    return Cost(0.0, float(sum(a.nbytes for a in (*inputs, *outputs))))


def _control(
    operands: tuple[Operand, ...],
    infer: Callable[..., Any],
    vjp: Callable[[Any, Vjp], Sequence[Any]],
    residuals: tuple[str, ...],
    kernel: Callable[..., Any],
    batch: Callable[[Batching], Any],
    jvp: Callable[[Forward], Any],
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an operation by its reference, which runs graphs by their references."""

    def declare(reference: Callable[..., Any]) -> Op:
        op = Op(
            name=reference.__name__.rstrip("_"), doc=reference.__doc__ or "", operands=operands, infer=infer,
            reference=reference, vjp=vjp, residuals=residuals, samples=lambda rng, dtype: [], cost=_cost, bound="compute",
            fusion="control", tolerance=0, control=partial(kernels.compiled, infer, kernel),
            batch=batch, jvp=jvp,
        )  # fmt: skip
        INTERNAL[op.name] = op
        return op

    return declare


_SOME = (Operand("operands", "any", "", True),)


# cond: pred, then the operands of both branches


def _infer_cond(pred: Any, *operands: Any, branches: tuple[Graph, Graph]) -> tuple[Aval, ...]:
    for graph in branches:
        _fits("cond", operands, graph)
    first, second = map(_outputs, branches)
    if first != second:
        raise ShapeError("cond: both graphs have the same results", f"{first} and {second}", "report this as a bug")
    return tuple(first)


@_control(_SOME, _infer_cond, gradients.of_cond, ("inputs",), kernels.cond, examples.of_cond, tangents.of_cond)
def cond_(pred: Any, *operands: Any, branches: tuple[Graph, Graph]) -> tuple[Any, ...]:
    """The results of the first of two graphs if pred holds, else those of the second."""
    return _run(branches[0 if pred else 1], operands)


# while_loop: consts, pred, carry; the graph maps consts and carry to the next pred and carry


def _infer_while(*operands: Any, body: Graph, consts: int) -> tuple[Aval, ...]:
    carry = operands[consts + 1 :]
    _fits("while_loop", (*operands[:consts], *carry), body)
    found = [Aval(a.shape, a.dtype) for a in operands[consts:]]
    if _outputs(body) != found:
        raise ShapeError("while_loop: a carry keeps its shapes", f"{_outputs(body)} from {found}", "report this as a bug")
    return tuple(found[1:])


@_control(_SOME, _infer_while, gradients.of_while, ("inputs",), kernels.while_loop, examples.of_while, tangents.of_while)
def while_loop_(*operands: Any, body: Graph, consts: int) -> tuple[Any, ...]:
    """The carry after running a graph as long as pred holds."""
    pred, carry = operands[consts], operands[consts + 1 :]
    while pred:
        pred, *found = _run(body, (*operands[:consts], *carry))
        carry = tuple(found)
    return tuple(np.array(c) for c in carry)


# while_gradient: consts, pred, carry, then the first carry of each pass over the steps (see ``while_gradients``); the graph of
# a pass maps consts, the carries before the step of the loop and of earlier passes, and its own carry to the next one


def _infer_while_gradient(*operands: Any, body: Graph, backs: tuple[Graph, ...], consts: int) -> tuple[Aval, ...]:
    carries = len(body.inputs) - consts
    _infer_while(*operands[: consts + 1 + carries], body=body, consts=consts)
    shared, end = operands[:consts], consts + 1 + carries
    for back in backs:
        start, end = end, end + len(back.outputs)
        _fits("while_gradient", (*shared, *operands[consts + 1 : end]), back)
        found = [Aval(a.shape, a.dtype) for a in operands[start:end]]
        if _outputs(back) != found:
            raise ShapeError(
                "while_gradient: a carry keeps its shapes", f"{_outputs(back)} from {found}", "report this as a bug"
            )
    return tuple(Aval(a.shape, a.dtype) for a in operands[consts + 1 + carries :])


@_control(
    _SOME,
    _infer_while_gradient,
    while_gradients.of_while_gradient,
    ("inputs",),
    kernels.while_gradient,
    examples.of_while_gradient,
    tangents.of_while_gradient,
)
def while_gradient(*operands: Any, body: Graph, backs: tuple[Graph, ...], consts: int) -> tuple[Any, ...]:
    """The last carries of passes over the steps of a while_loop, which runs first: the first pass in reverse order, and each
    one in the other direction than the one before."""
    carries = len(body.inputs) - consts
    shared, pred, carry = operands[:consts], operands[consts], operands[consts + 1 : consts + 1 + carries]
    steps: list[tuple[Any, ...]] = []
    while pred:
        steps.append(tuple(carry))
        pred, *found = _run(body, (*shared, *carry))
        carry = tuple(found)
    results: list[Any] = []
    end = consts + 1 + carries
    for back in backs:
        start, end = end, end + len(back.outputs)
        carry = operands[start:end]
        steps.reverse()
        for k, before in enumerate(steps):
            steps[k] = (*before, *carry)
            carry = _run(back, (*shared, *before, *carry))
        results += carry
    return tuple(np.array(c) for c in results)


# scan: consts, carry, sequences; the graph maps consts, carry and elements to the next carry and elements of the results


def _infer_scan(
    *operands: Any, body: Graph, consts: int, carries: int, length: int, reverse: bool, kept: int
) -> tuple[Aval, ...]:
    elements = []
    for i, x in enumerate(operands[consts + carries :]):
        if x.shape[:1] != (length,):
            raise ShapeError(f"scan: sequences have {length} elements", f"sequence {i}: {Aval(x.shape, x.dtype)}", "cut them")
        elements.append(Aval(x.shape[1:], x.dtype))
    _fits("scan", (*operands[: consts + carries], *elements), body)
    found = _outputs(body)
    start = body.inputs[consts : consts + carries]
    if found[:carries] != start:
        raise ShapeError("scan: a carry keeps its shapes", f"{found[:carries]} from {start}", "report this as a bug")
    return (*start, *(Aval((length, *a.shape), a.dtype) for a in found[carries:]))


@_control(_SOME, _infer_scan, gradients.of_scan, ("inputs", "outputs"), kernels.scan, examples.of_scan, tangents.of_scan)
def scan_(
    *operands: Any, body: Graph, consts: int, carries: int, length: int, reverse: bool, kept: int
) -> tuple[Any, ...]:  # fmt: skip
    """A graph run over the elements of sequences: the last carry, and the elements' results as sequences.

    The last ``kept`` of these are the carries before each step, and other values of it, which the gradient starts from.
    """
    shared, carry, xs = operands[:consts], operands[consts : consts + carries], operands[consts + carries :]
    ys = [np.empty((length, *a.shape), a.dtype.np) for a in _outputs(body)[carries:]]
    for t in reversed(range(length)) if reverse else range(length):
        found = _run(body, (*shared, *carry, *(x[t] for x in xs)))
        carry = found[:carries]
        for y, v in zip(ys, found[carries:], strict=True):
            y[t] = v
    return (*(np.array(c) for c in carry), *ys)
