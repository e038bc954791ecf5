"""The tape: what each tracked result came from.

A node holds its op, the nodes of its operands and the values its gradient rule will look at; a tensor holds its node. So
the graph lives exactly as long as something needs it. A *leaf* node has no op; its id is the tensor's leaf id.

Values that a rule looks at are kept as ``Saved`` (the storage itself) or, under a checkpointing strategy, as ``Recipe``
(how to compute it again). Cotangents are summed in the order of nodes, so gradients have the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, Protocol
from weakref import ref

from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

_ids = count(1)
_leaf_ids = count(1)
_enabled: ContextVar[bool] = ContextVar("firebrick_grad", default=True)
strategy: ContextVar[str] = ContextVar("firebrick_checkpointing", default="none")
region: ContextVar[Any] = ContextVar("firebrick_checkpoint_region", default=None)
anomaly: ContextVar[bool] = ContextVar("firebrick_anomaly", default=False)


def new_id() -> int:
    """A position on the tape: what is recorded from here on has larger ids."""
    return next(_ids)


class Value(Protocol):
    """A residual: something that can give back a tensor's storage."""

    aval: Aval
    device: Device

    def storage(self, memo: dict[Any, Storage]) -> Storage: ...


class Saved:
    """A residual that is kept."""

    __slots__ = ("_storage", "aval", "device")

    def __init__(self, t: Tensor) -> None:
        self._storage, self.aval, self.device = t.storage, t.aval, t.device

    def storage(self, memo: dict[Any, Storage]) -> Storage:
        return self._storage


class Recipe:
    """A residual that is computed again when needed: a result of a memory-bound op, from its operands' residuals."""

    __slots__ = ("aval", "device", "inputs", "key", "op", "params", "slot")

    def __init__(self, op: Op, inputs: tuple[Value, ...], params: dict[str, Any], t: Tensor, slot: int, key: object) -> None:
        self.op, self.inputs, self.params, self.slot, self.key = op, inputs, params, slot, key
        self.aval, self.device = t.aval, t.device

    def storage(self, memo: dict[Any, Storage]) -> Storage:
        found = memo.get((self.key, self.slot))
        if found is None:
            handles = tuple(handle(v, memo) for v in self.inputs)
            inferred = self.op.infer(*handles, **self.params)
            avals = (inferred,) if type(inferred) is Aval else inferred
            for i, t in enumerate(hooks.execute(self.op, handles, self.params, avals, None)):
                memo[(self.key, i)] = t.storage
            found = memo[(self.key, self.slot)]
        return found


def handle(v: Value, memo: dict[Any, Storage], node: Any = None, slot: int = 0) -> Tensor:
    """A tensor on a residual; tracked by ``node`` if one is given."""
    t = Tensor(v.storage(memo), v.aval.dtype, v.aval.shape, v.device)
    t.node, t.slot = node, slot
    return t


def _nobody() -> None:
    return None


class Node:
    """One recorded operation (or, without ``op``, a leaf).

    Attributes:
        id: Position on the tape; operands have smaller ids.
        parents: For each operand: (node, slot), or None where untracked.
        in_avals, out_avals: Shapes and dtypes.
        inputs, outputs: Residuals that the rule looks at; emptied when the graph is freed.
        recipes: Under ``balanced``: how to compute each result again, for the nodes that follow.
        hooks: Functions of the cotangent, for leaves and tensors with ``register_hook``.
        where: Label for messages.
        freed: Whether a backward pass let go of the residuals.
        leaf, handle: For a leaf: its leaf id, and the tensor it was made from if that still lives.
        closed: For a leaf: whether the call that tracked it is over, so that nobody wants its gradient any more.
    """

    __slots__ = (
        "__weakref__", "closed", "device", "freed", "handle", "hooks", "id", "in_avals",
        "inputs", "leaf", "op", "out_avals", "outputs", "params", "parents", "recipes",
        "where",
    )  # fmt: skip

    def __init__(self, op: Op | None, out_avals: tuple[Aval, ...], device: Device, where: str | None) -> None:
        self.id = next(_ids)
        self.op, self.out_avals, self.device, self.where = op, out_avals, device, where
        self.parents: tuple[tuple[Node, int] | None, ...] = ()
        self.in_avals: tuple[Aval, ...] = ()
        self.inputs: tuple[Value, ...] = ()
        self.outputs: tuple[Value, ...] = ()
        self.recipes: tuple[Value, ...] = ()
        self.params: dict[str, Any] = {}
        self.hooks: list[Callable[[Tensor], Tensor | None]] = []
        self.freed = False
        self.closed = False
        self.leaf = 0
        self.handle: Callable[[], Tensor | None] = _nobody


def grad_enabled() -> bool:
    """Whether operations on tracked tensors are recorded in this context."""
    return _enabled.get()


@contextmanager
def grad_mode(on: bool) -> Iterator[None]:
    """Record, or do not record, inside a ``with`` block."""
    token = _enabled.set(on)
    try:
        yield
    finally:
        _enabled.reset(token)


def no_grad() -> Any:
    """Record nothing inside a ``with`` block: results are untracked.

    Example:
        >>> import firebrick as fb
        >>> x = fb.ones(2).require_grad()
        >>> with fb.no_grad():
        ...     (x + x).tracked
        False
    """
    return grad_mode(False)


def record(op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], outputs: tuple[Tensor, ...]) -> None:
    """Put one executed op on the tape and mark its inexact results as tracked."""
    if not op.differentiable or not any(t.dtype.is_inexact for t in outputs):
        return
    if anomaly.get():
        from firebrick.autodiff.anomaly import check_forward

        check_forward(op, inputs, outputs)
    node = Node(op, tuple(t.aval for t in outputs), outputs[0].device, outputs[0].label)
    node.parents = tuple(None if t.node is None else (t.node, t.slot) for t in inputs)
    node.in_avals = tuple(t.aval for t in inputs)
    node.params = params
    inside = region.get()
    if inside is not None:
        inside.keep(node, inputs, outputs)
    elif strategy.get() == "balanced":
        _keep_balanced(node, inputs, outputs)
    else:
        if "inputs" in op.residuals:
            node.inputs = tuple(Saved(t) for t in inputs)
        if "outputs" in op.residuals:
            node.outputs = tuple(Saved(t) for t in outputs)
    for slot, t in enumerate(outputs):
        if t.dtype.is_inexact:
            t.node, t.slot = node, slot


def _keep_balanced(node: Node, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    """Keep results of compute-bound ops; keep only recipes for those of memory-bound ones."""
    op = node.op
    assert op is not None
    kept = tuple(
        t.node.recipes[t.slot] if t.node is not None and t.node.recipes else Saved(t) for t in inputs
    )  # fmt: skip
    again = op.bound == "memory" and op.name != "to_device"
    if again:
        key = object()
        results: tuple[Value, ...] = tuple(Recipe(op, kept, node.params, t, i, key) for i, t in enumerate(outputs))
        node.recipes = results
    else:
        results = tuple(Saved(t) for t in outputs) if "outputs" in op.residuals else ()
    if "inputs" in op.residuals:
        node.inputs = kept
    if "outputs" in op.residuals:
        node.outputs = results


def make_leaf(t: Tensor) -> Node:
    """Track a handle as a leaf from here on. Its leaf id stays the same until it is rebound."""
    node = Node(None, (t.aval,), t.device, t.label)
    t.leaf = t.leaf if t.leaf > 0 else next(_leaf_ids)
    node.leaf, node.handle = t.leaf, ref(t)
    t.node, t.slot = node, 0
    return node


hooks.record = record
hooks.grad_enabled = grad_enabled
