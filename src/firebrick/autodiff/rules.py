"""An op's gradient rule: run as it is, or, where it has run before for operands of the same kind, as a program.

``graph.replays`` installs what finds and makes the programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firebrick.autodiff.residuals import Memo
from firebrick.autodiff.tape import Node
from firebrick.core.autocast import NARROW, autocast_dtype
from firebrick.core.aval import Aval
from firebrick.core.constants import constant
from firebrick.core.dtypes import float32
from firebrick.core.hooks import hooks
from firebrick.core.op import Vjp
from firebrick.core.precision import narrowed, widened
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.ir.keys import key_of
from firebrick.ops.movement import broadcast_to, permute
from firebrick.ops.reduction import sum_to


class _Replays:
    """Slots that ``graph.replays`` fills.

    Attributes:
        find: ``(key, device)`` gives the program for a key; False if none may run, True if ``count`` may make one.
        count: ``(key, compute, operands)`` counts a call without a program, and gives the program if it makes one.
        whole: ``(nodes, cotangents, stop)`` gives the results of a backward pass that runs as one function; None if it may not.
    """

    find: Callable[..., Any] = staticmethod(lambda key, device: False)
    count: Callable[..., Any] = staticmethod(lambda key, compute, operands: None)
    whole: Callable[..., Any] = staticmethod(lambda nodes, cotangents, stop: None)


replays = _Replays()


def repeated(node: Node, gs: list[Tensor | None], memo: Memo, needs: tuple[bool, ...]) -> Sequence[Any]:
    """The cotangents of an op's operands, untracked; a rule that has run before runs as a program."""
    op = node.op
    assert op is not None
    given = [g for g in gs if g is not None]
    residuals = [v.storage(memo) for v in node.inputs], [v.storage(memo) for v in node.outputs]
    if not op.repeats or hooks.levels:  # inside ``fb.vmap`` an operand is many
        return cotangents_of(node, gs, *_handles(node, *residuals), needs)
    key = rule_key(node, gs, needs)
    found = replays.find(key, node.device)
    if found is False:
        return cotangents_of(node, gs, *_handles(node, *residuals), needs)
    if found is True:

        def compute(*operands: Tensor) -> list[Any]:
            return _of_operands(node, operands, [g is not None for g in gs], needs)

        inputs, outputs = _handles(node, *residuals)
        found = replays.count(key, compute, [*given, *inputs, *outputs])
        if found is None:
            return cotangents_of(node, gs, inputs, outputs, needs)
    try:
        results = found([*[g.storage.data for g in given], *[s.data for part in residuals for s in part]])
    except Exception:  # noqa: BLE001 - operation by operation, the rule reports the cause
        return cotangents_of(node, gs, *_handles(node, *residuals), needs)
    return [given[r] if type(r) is int else r for r in results]


def rule_key(node: Node, gs: Sequence[Any], needs: tuple[bool, ...]) -> tuple[Any, ...]:
    """What the operations of a node's rule depend on, with the cotangents that are given (not None) among ``gs``."""
    op = node.op
    assert op is not None
    axes: tuple[Any, ...] = ()
    if op.fusion == "contract":  # whose rule asks whether an operand is a transpose
        axes = tuple([p[0].params["axes"] if p is not None and p[0].op is permute else None for p in node.parents])
    call: Any = node.plan or (op, node.device, node.in_avals, key_of(node.params) if node.params else ())
    return call, op.vjp, needs, len(gs) == 1 or tuple([g is not None for g in gs]), axes, autocast_dtype()


def _of_operands(node: Node, operands: Sequence[Tensor], given: Sequence[bool], needs: tuple[bool, ...]) -> list[Any]:
    """A node's rule as a function of the cotangents that are given, the kept operands and the kept results."""
    left = iter(operands)
    gs = [next(left) if g else None for g in given]
    inputs = tuple(next(left) for _ in node.inputs)
    return cotangents_of(node, gs, inputs, tuple(left), needs)


def _handles(
    node: Node, inputs: Sequence[Storage], outputs: Sequence[Storage]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:  # fmt: skip
    """Untracked tensors on a node's residuals."""
    device = node.device
    return (
        tuple([Tensor(s, v.aval.dtype, v.aval.shape, v.device) for s, v in zip(inputs, node.inputs, strict=True)]),
        tuple([Tensor(s, v.aval.dtype, v.aval.shape, device) for s, v in zip(outputs, node.outputs, strict=True)]),
    )


def cotangents_of(
    node: Node,
    gs: Sequence[Any],
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    needs: tuple[bool, ...],
) -> list[Any]:
    """The cotangents that an op's rule returns, summed to the operands' shapes; zeros replace those that are None among
    ``gs``. A rule of several steps computes half precision in float32 and rounds it once."""
    op, avals = node.op, node.in_avals
    given = tuple([g is not None for g in gs])
    gs = [
        g if g is not None or not a.dtype.is_inexact else _zeros(node, slot)
        for slot, (g, a) in enumerate(zip(gs, node.out_avals, strict=True))
    ]
    assert op is not None
    assert callable(op.vjp)
    shape = node.out_avals[0].shape
    summed = op.broadcasts and any(n and a.shape != shape for n, a in zip(needs, avals, strict=True))
    several = op.widens or summed  # one step and a sum over what was broadcast are two
    wide = several and any(a.dtype in NARROW for a in avals)
    if wide:
        gs = [g if g is None else widened(g) for g in gs]
        inputs, outputs = tuple(map(widened, inputs)), tuple(map(widened, outputs))
        avals = tuple(Aval(a.shape, float32) if a.dtype in NARROW else a for a in avals)
    rule = Vjp(inputs, outputs, avals, needs, node.params, given, node.parents, wide)
    found: list[Any] = []
    for g, aval in zip(op.vjp(gs[0] if len(gs) == 1 else tuple(gs), rule), node.in_avals, strict=True):
        if g is not None and op.broadcasts and g.shape != aval.shape:
            g = sum_to(g, aval.shape)
        found.append(narrowed(g, aval.dtype) if wide and aval.dtype in NARROW else g)
    return found


def _zeros(node: Node, slot: int) -> Tensor:
    aval = node.out_avals[slot]
    out: Tensor = broadcast_to(constant(0, aval.dtype, node.device), shape=aval.shape)
    return out
