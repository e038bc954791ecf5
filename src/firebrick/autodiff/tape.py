"""The tape: the operation and operands of each tracked result.

A node holds its op, the nodes of its operands and the values its gradient rule will read; a tensor holds its node. So
the graph stays alive exactly as long as something refers to it. A *leaf* node has no op; its id is the tensor's leaf id.

``residuals`` decides how values that a rule reads are kept. Cotangents are summed in the order of nodes, so gradients have
the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar
from weakref import ref

from firebrick.autodiff.residuals import Value, keep
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.hooks import hooks
from firebrick.core.levels import innermost
from firebrick.core.op import Op
from firebrick.core.planned import OpPlan
from firebrick.core.scopes import scope
from firebrick.core.tensor import Tensor

R = TypeVar("R")
_ids = count(1)
_leaf_ids = count(1)
enabled: ContextVar[bool] = ContextVar("firebrick_grad", default=True)
region: ContextVar[Any] = ContextVar("firebrick_checkpoint_region", default=None)
constant_above: ContextVar[int] = ContextVar("firebrick_constant_above", default=-1)
"""How deep the level was at which ``no_grad`` began: to it, and to the levels around it, what is computed now is constant."""
anomaly: ContextVar[bool] = ContextVar("firebrick_anomaly", default=False)
_chosen: ContextVar[int] = ContextVar("firebrick_choices_by_values", default=0)
choices = _chosen.get
"""How often values have decided in this context, outside of traces, which function runs or how often: ``fb.cond``,
``fb.while_loop``, and ``fb.scan`` without steps. A result may then be constant for these values only, so its gradient is zero,
as under ``jit``, where the loop and both branches are recorded."""


def note_choice() -> None:
    """Count a choice by values."""
    _chosen.set(_chosen.get() + 1)


def new_id() -> int:
    """A position on the tape: nodes recorded later have larger ids."""
    return next(_ids)


def next_leaf_id() -> int:
    """A leaf id that no tensor has had."""
    return next(_leaf_ids)


def _nobody() -> None:
    return None


class Node:
    """One recorded operation (or, without ``op``, a leaf).

    Attributes:
        id: Position on the tape; operands have smaller ids.
        parents: For each operand: (node, slot), or None where untracked.
        in_avals, out_avals: Shapes and dtypes.
        inputs, outputs: Residuals that the rule reads; emptied when the graph is freed.
        recipes: Under a checkpointing strategy: how to compute each result again, for the nodes that follow.
        hooks: Functions of the cotangent, for leaves and tensors with ``register_hook``.
        where: Label for messages.
        freed: Whether a backward pass has freed the residuals.
        leaf, handle: For a leaf: its leaf id, and the tensor it was made from if that still lives.
        plan: The plan by which the operation ran, if it had one.
        closed: For a leaf: whether the call that tracked it is over, so that its gradient is not needed any more.
        lasting: For a leaf: whether ``require_grad`` made it, so that copies of the tensor are tracked too.
    """

    __slots__ = (
        "__weakref__", "closed", "device", "freed", "handle", "hooks", "id", "in_avals",
        "inputs", "lasting", "leaf", "op", "out_avals", "outputs", "params", "parents", "plan", "recipes",
        "where",
    )  # fmt: skip

    def __init__(
        self, op: Op | None, out_avals: tuple[Aval, ...], device: Device, where: str | None,
        parents: tuple[tuple[Node, int] | None, ...] = (), in_avals: tuple[Aval, ...] = (),
        params: dict[str, Any] | None = None, plan: OpPlan | None = None,
    ) -> None:  # fmt: skip
        self.id = next(_ids)
        self.op, self.out_avals, self.device, self.where = op, out_avals, device, where
        self.parents, self.in_avals, self.plan = parents, in_avals, plan
        self.params: dict[str, Any] = {} if params is None else params
        self.inputs: tuple[Value, ...] = ()
        self.outputs: tuple[Value, ...] = ()
        self.recipes: tuple[Value, ...] = ()
        self.hooks: list[Callable[[Tensor], Tensor | None]] = []
        self.freed = False
        self.closed = self.lasting = False
        self.leaf = 0
        self.handle: Callable[[], Tensor | None] = _nobody


def repeating() -> bool:
    """Whether a checkpointed function runs again in this context: what it counts or averages was counted in its first run."""
    inside = region.get()
    return inside is not None and inside.repeats


def grad_enabled() -> bool:
    """Whether operations on tracked tensors are recorded in this context."""
    return enabled.get()


@contextmanager
def grad_mode(on: bool) -> Iterator[None]:
    """Record, or do not record, inside a ``with`` block."""
    token = enabled.set(on)
    try:
        yield
    finally:
        enabled.reset(token)


def unrecorded(fn: Callable[..., R], *args: Any) -> R:
    """``fn(*args)`` without recording, in a copy of this context: the mode ends with the call, also by an interrupt that comes
    where a ``with`` block would be left. What ``fn`` sets in the context ends as well."""
    return copy_context().run(_without_grad, fn, args)


def _without_grad(fn: Callable[..., R], args: tuple[Any, ...]) -> R:
    enabled.set(False)
    return fn(*args)


@scope
def no_grad() -> Iterator[None]:
    """Record nothing inside a ``with`` block: results are untracked, and have no tangents in forward mode.

    Example:
        >>> import firebrick as fb
        >>> x = fb.ones(2).require_grad()
        >>> with fb.no_grad():
        ...     (x + x).tracked
        False
    """
    level = innermost()
    depth = constant_above.set(-1 if level is None else level.depth)
    token = enabled.set(False)
    try:
        yield
    finally:
        enabled.reset(token)
        constant_above.reset(depth)


def record(
    op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], outputs: tuple[Tensor, ...], plan: OpPlan | None = None
) -> None:  # fmt: skip
    """Put one executed op on the tape and mark its inexact results as tracked."""
    if plan is None and not (op.differentiable and any(t.dtype.is_inexact for t in outputs)):
        return
    if anomaly.get():
        from firebrick.autodiff.anomaly import check_forward

        check_forward(op, inputs, outputs)
    if plan is None:
        in_avals, out_avals = tuple([t.aval for t in inputs]), tuple([t.aval for t in outputs])
    else:
        in_avals, out_avals = plan.in_avals, plan.avals
    parents = tuple([None if t.node is None else (t.node, t.slot) for t in inputs])
    node = Node(op, out_avals, outputs[0].device, outputs[0].label, parents, in_avals, params, plan)
    inside = region.get()
    if inside is not None:
        inside.keep(node, inputs, outputs)
    else:
        keep(node, inputs, outputs)
    for slot, t in enumerate(outputs):
        if t.dtype.is_inexact:
            t.node, t.slot = node, slot


def leaf_of(t: Tensor) -> Node:
    """A leaf for a handle. Its leaf id stays the same until it is rebound."""
    node = Node(None, (t.aval,), t.device, t.label)
    t.leaf = t.leaf if t.leaf > 0 else next(_leaf_ids)
    node.leaf, node.handle = t.leaf, ref(t)
    return node


def make_leaf(t: Tensor) -> Node:
    """Track a handle as a leaf."""
    node = leaf_of(t)
    t.node, t.slot = node, 0
    return node


def own_handle(t: Tensor) -> Tensor:
    """Another handle of the same values and tracking: its owner may rebind it."""
    other = t._another()
    other.node, other.slot = t.node, t.slot
    return other


hooks.record = record
hooks.grad_enabled = grad_enabled
