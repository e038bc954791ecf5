"""Calls of functions with derivative rules of the user's own (``fb.custom_vjp``, ``fb.custom_jvp``) inside traces.

A graph may be differentiated after its trace: the body of a loop, a branch, a compiled function whose gradient has a gradient.
What a rule computes must then be part of the graph. So such a call is one node, ``custom``, whose parameters are the graph of
the function and, as ``Rule``, those of its rule. Passes put the function's graph in the node's place once gradients are taken.

Graphs close over nothing: what the function and its rule capture are operands in front of the arguments, through which no
gradient flows. A rule that calls its function again holds a node with the same ``Rule``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any

from firebrick.autodiff.backward import filled, reachable
from firebrick.autodiff.own_rules import Call, call, cotangents_of_call, mapped_call, refuse_captured, staging
from firebrick.autodiff.tape import grad_enabled, grad_mode
from firebrick.backends.contract import Backend
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.errors import ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.levels import here
from firebrick.core.lines import user_line
from firebrick.core.op import Batching, Cost, Forward, Op, Operand, Vjp
from firebrick.core.tensor import Tensor
from firebrick.graph.control import kernels
from firebrick.graph.control.body import ORDER, Body, Place, replay
from firebrick.graph.control.detach import DETACH
from firebrick.graph.trace import Trace, running
from firebrick.ir import INTERNAL, Graph, interpret

_serial = count()


class Rule:
    """The graphs of a call's derivative rule. Their first inputs are what is captured.

    Attributes:
        name: The function's.
        captured: How many values are captured.
        results: How many results the function has; further ones of the node are conditions that hold.
        shape: Their structure, where the function has one.
        forward: From the operands to the results and residuals; None without a gradient rule.
        backward: From residuals, then the cotangents of inexact results, to the cotangents of ``reached``.
        reached: Which operands have a cotangent.
        tangent: From the operands, then the tangents of inexact ones, to the tangents of ``moved``; None without such a rule.
        moved: Which results have a tangent.
    """

    __slots__ = ("backward", "captured", "forward", "moved", "name", "reached", "results", "run", "serial", "shape", "tangent")

    def __init__(self, name: str, captured: int, results: int, run: Graph) -> None:
        self.name, self.captured, self.results, self.run = name, captured, results, run
        self.serial = next(_serial)
        self.shape: tuple[Any, ...] = ()
        self.forward: Graph | None = None
        self.backward: Graph | None = None
        self.tangent: Graph | None = None
        self.reached: tuple[int, ...] = ()
        self.moved: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<rule of {self.name}>"

    def parts(self) -> tuple[Any, ...]:
        """What two rules that do the same have in common."""
        return (self.name, self.captured, self.results, self.run, self.forward, self.backward, self.reached, self.tangent,
                self.moved)  # fmt: skip

    def call(self, device: Device) -> Call:
        """The node as a call of functions of flat lists of tensors, what is captured included."""
        skipped, results = self.captured, self.results

        def run(operands: Sequence[Tensor]) -> list[Tensor]:
            return replay(self.run, operands, device)

        def forward(operands: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            assert self.forward is not None
            made = replay(self.forward, operands, device)
            flags = run(operands)[results:] if len(self.run.outputs) > results else []
            return [*made[:results], *flags], [*operands[:skipped], *made[results:]]

        def backward(residuals: Sequence[Tensor], cotangents: Sequence[Any]) -> list[Tensor | None]:
            assert self.backward is not None
            given = [g for g, a in zip(cotangents, self._avals(), strict=True) if a.dtype.is_inexact]
            made = replay(self.backward, [*residuals, *given], device)
            out: list[Tensor | None] = [None] * len(self.run.inputs)
            for i, g in zip(self.reached, made, strict=True):
                out[skipped + i] = g
            return out

        def tangent(operands: Sequence[Tensor], tangents: Sequence[Any]) -> list[Tensor | None]:
            assert self.tangent is not None
            given = [
                filled(0.0, x._another()) if t is None else t
                for x, t in zip(operands[skipped:], tangents[skipped:], strict=True)
                if x.dtype.is_inexact
            ]
            made = replay(self.tangent, [*operands, *given], device)
            out: list[Tensor | None] = [None] * len(self.run.outputs)
            for i, t in zip(self.moved, made, strict=True):
                out[i] = t
            return out

        return Call(
            self.name, run, None if self.forward is None else forward, None if self.backward is None else backward,
            None if self.tangent is None else tangent, ("rule", self.serial),
        )  # fmt: skip

    def _avals(self) -> list[Aval]:
        avals = self.run.avals
        return [avals[i] for i in self.run.outputs]


# the node


def _infer(*operands: Any, run: Graph, rule: Rule) -> tuple[Aval, ...]:
    given = [Aval(a.shape, a.dtype) for a in operands]
    if given != run.inputs:
        raise ShapeError(
            f"custom: the graph of {rule.name} gets its inputs, {', '.join(map(str, run.inputs))}",
            ", ".join(map(str, given)), "report this as a bug",
        )  # fmt: skip
    avals = run.avals
    return tuple(avals[i] for i in run.outputs)


def _reference(*operands: Any, run: Graph, rule: Rule) -> tuple[Any, ...]:
    return interpret(run, operands, lambda op, xs, params: op.reference(*xs, **params))


def _vjp(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
    rule: Rule = r.params["rule"]
    given = list(cotangents) if isinstance(cotangents, tuple) else [cotangents]
    return cotangents_of_call(rule.call(r.inputs[0].device), list(r.inputs), given, None)


def _jvp(f: Forward) -> tuple[Tensor | None, ...] | None:
    rule: Rule = f.params["rule"]
    read = {i for n in rule.run.nodes if n.op is not DETACH for i in n.inputs} | set(rule.run.outputs)
    if any(t is not None and i in read for i, t in enumerate(f.tangents[: rule.captured])):
        raise refuse_captured(rule.name)
    if rule.tangent is None:
        return None
    found = rule.call(f.operands[0].device).tangent
    assert found is not None
    return tuple(found(list(f.operands), f.tangents))


def _batch(b: Batching) -> tuple[Tensor, ...]:
    rule: Rule = b.params["rule"]
    return tuple(call(mapped_call(rule.call(b.operands[0].device), list(b.mapped), b.size), list(b.operands)))


def _kernel(backend: Backend, device: Device | None, *, run: Graph, rule: Rule) -> kernels.Kernel:
    program = backend.compile(run, device)
    return kernels.Kernel(lambda *operands: tuple(program(operands)), program.plan.peak)


CUSTOM = Op(
    name="custom",
    doc="A function with a derivative rule of its own.",
    operands=(Operand("operands", "any", "", True),),
    infer=_infer,
    reference=_reference,
    vjp=_vjp,
    residuals=("inputs",),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, float(sum(a.nbytes for a in (*inputs, *outputs)))),
    bound="compute",
    fusion="control",
    tolerance=0,
    control=lambda backend, params, device: kernels.compiled(_infer, _kernel, backend, params, device),
    batch=_batch,
    jvp=_jvp,
)
INTERNAL[CUSTOM.name] = CUSTOM


# tracing a call


class _RuleBody(Body):
    """The trace of a function with a rule, or of a part of the rule; it runs once wherever the trace around it does.

    Args:
        draws: Whether it may draw random numbers.
    """

    enters = False  # a rule's derivatives are by its arguments; what it captures is refused where it has a derivative

    def __init__(self, name: str, device: Device, draws: bool) -> None:
        super().__init__(name, device)
        self._draws = draws

    def keys(self, generator: Any, find: Callable[[], Any] | None, device: Device, count: int | None) -> Tensor:
        if self._draws and self.parent is not None:
            found: Tensor = self.parent.keys(generator, find, device, count)
            return found
        raise UnsupportedError(
            "under jit, a derivative rule of one's own draws no random numbers of its own: its function does",
            f"a draw at {user_line()}, in {self.name}", "draw in the forward rule, and keep what is drawn among the residuals",
        )  # fmt: skip


@contextmanager
def _body(name: str, device: Device, draws: bool = False) -> Iterator[_RuleBody]:
    with grad_mode(True), running(_RuleBody(f"{name} at {user_line()}", device, draws)) as trace:
        yield trace
        trace.unchanged()


@dataclass
class _Made:
    """One round of tracing: the rule, None if the function captures more than was known; its checks; all that is captured."""

    rule: Rule | None
    checks: list[Any]
    captured: dict[Place, Tensor]


_making: ContextVar[dict[Any, tuple[Rule, list[Tensor]]]] = ContextVar("firebrick_rules_in_progress", default={})  # noqa: B039
_plain: ContextVar[bool] = ContextVar("firebrick_functions_without_rules", default=False)


def staged(c: Call, operands: list[Tensor], recorded: bool) -> list[Tensor] | None:
    """The results of a call as a node of the running trace; None where the call needs none."""
    trace: Trace | None = hooks.trace()
    if trace is None or _plain.get() or not operands:
        return None
    if isinstance(trace, Body):  # whose values may be tracked beneath levels, where their handles here are not
        recorded = grad_enabled() or _has_directions()
    if not (recorded and trace.differentiated_later):
        return None
    device = trace.device or operands[0].device
    key = (c.key, tuple(t.aval for t in operands))
    inside = _making.get().get(key)
    if inside is not None:  # a rule that calls its function
        rule, extras = inside
        c.shape[:] = rule.shape
        return _bound(rule, [*extras, *operands])
    known: dict[Place, Tensor] = {}
    keys = _Keys(trace)
    made = _traced(c, key, trace, operands, known, device)
    while made.rule is None or not made.captured.keys() <= known.keys():
        known = known | made.captured
        keys.back()
        made = _traced(c, key, trace, operands, known, device)
    results = _bound(made.rule, [*known.values(), *operands], all_results=True)
    for check, flag in zip(made.checks, results[made.rule.results :], strict=True):
        trace.check(flag, check.error)
    return results[: made.rule.results]


def _has_directions() -> bool:
    """Whether forward mode runs around: it may reach what ``no_grad`` covers."""
    return any(not level.maps for level in here())


def _bound(rule: Rule, operands: Sequence[Tensor], all_results: bool = False) -> list[Tensor]:
    made = list(bind(CUSTOM, tuple(operands), {"run": rule.run, "rule": rule}))
    return made if all_results else made[: rule.results]


def _traced(c: Call, key: Any, trace: Trace, operands: list[Tensor], known: dict[Place, Tensor], device: Device) -> _Made:
    """Trace the function and its rule, given what they are known to capture."""
    extras = list(known.values())
    draws = _Keys(trace)
    token = _plain.set(True)
    try:
        with _body(c.name, device, draws=True) as b:
            given = [b.input(t, "carry") for t in operands]
            found = c.forward(given)[0] if c.forward is not None else c.run(given)
            if any(_dependent(t, b) for t in found):
                raise refuse_captured(c.name)
            checks = list(b.checks)
            b.finish([*found, *(b.handle(k.number, device) for k in checks)])
    finally:
        _plain.reset(token)
    if not b.outer.keys() <= known.keys():
        return _Made(None, [], {position: operand for position, (_, operand) in b.outer.items()})
    parts: dict[str, Body] = {"run": b}
    avals = [t.aval for t in found]
    rule = Rule(c.name, len(extras), len(found), _closed(b, known))
    rule.shape = tuple(c.shape)
    tokens = _making.set({**_making.get(), key: (rule, extras)}), _plain.set(False)
    try:
        if c.forward is not None and c.backward is not None:
            with draws.again(), _body(c.name, device, draws=True) as b:
                given = [b.input(t, "carry") for t in operands]
                found, residuals = c.forward(given)
                kept = [t.aval for t in residuals]
                b.finish([*found, *residuals])
                parts["forward"] = b
            with _body(f"the gradient rule of {c.name}", device) as b:
                left = [b.fresh(a, "carry", device) for a in kept]
                gs: list[Any] = [b.fresh(a, "x", device) if a.dtype.is_inexact else None for a in avals]
                back = c.backward(left, gs)
                _unchecked(c.name, b)
                rule.reached = tuple(i for i, g in enumerate(back) if g is not None and operands[i].dtype.is_inexact)
                b.finish([g for g in (back[i] for i in rule.reached) if g is not None])
                parts["backward"] = b
        if c.tangent is not None:
            with draws.again(), _body(f"the rule of {c.name}", device) as b:
                given = [b.input(t, "carry") for t in operands]
                along = [b.fresh(t.aval, "x", device) if t.dtype.is_inexact else None for t in operands]
                moved = c.tangent(given, along)
                _unchecked(c.name, b)
                rule.moved = tuple(i for i, t in enumerate(moved) if t is not None and avals[i].dtype.is_inexact)
                b.finish([t for t in (moved[i] for i in rule.moved) if t is not None])
                parts["tangent"] = b
    finally:
        _making.reset(tokens[0])
        _plain.reset(tokens[1])
    for what, body in parts.items():
        setattr(rule, what, _closed(body, known))
    union = {position: operand for body in parts.values() for position, (_, operand) in body.outer.items()}
    return _Made(rule, checks, union)


def _dependent(t: Tensor, b: Body) -> bool:
    """Whether a gradient would flow from a value of a body to what it captures."""
    return t.node is not None and any(n.id < b.start for n in reachable(t.node, frozenset(n.id for n in b.leaves)))


def _unchecked(name: str, b: Body) -> None:
    if b.checks:
        raise UnsupportedError(
            f"under jit, the derivative rule of {name} makes no check of values, such as the range of labels",
            f"a check in {b.name}", "make it in the function",
        )  # fmt: skip


def _closed(b: Body, known: dict[Place, Tensor]) -> Graph:
    """The graph of a body whose first inputs are the captured values in this order."""
    for position, operand in known.items():
        if position not in b.outer:
            b.outer[position] = b.take(operand)
    order = {position: i for i, position in enumerate(known)}
    at = {id(source): order.get(position, len(order)) for position, (source, _) in b.outer.items()}
    b.sources.sort(key=lambda s: (ORDER[s.kind], at.get(id(s), 0)))
    return b.made()


class _Keys:
    """The random keys that the function takes: the same ones each time it is traced."""

    def __init__(self, trace: Trace) -> None:
        while isinstance(trace, _RuleBody) and trace.parent is not None:
            trace = trace.parent
        self._trace = trace
        self._before = {known: d.next for known, d in trace.draws.items()}

    @contextmanager
    def again(self) -> Iterator[None]:
        """For a ``with`` block, take those that were taken since the beginning once more."""
        after = {known: d.next for known, d in self._trace.draws.items()}
        for known, d in self._trace.draws.items():
            d.next = self._before.get(known, 0)
        try:
            yield
        finally:
            for known, d in self._trace.draws.items():
                d.next = after.get(known, d.next)

    def back(self) -> None:
        """Take them once more from now on."""
        for known, d in self._trace.draws.items():
            d.next = self._before.get(known, 0)


staging.call = staged
