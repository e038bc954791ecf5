"""``OpPlan``: everything about one operation that its parameters and its operands' devices, dtypes and shapes decide.

An operation that has been through the general path of ``bind`` a few times with the same of these is known to pass all checks
of them, and the results' shapes and the engine's kernel are known too. ``Op.plans`` holds its plan from then on, under
``key_of``.
"""

from __future__ import annotations

from collections.abc import Callable
from marshal import dumps
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

BEFORE = 2
"""Times that an operation takes the general path before its plan is made."""
KEPT = 1024
"""Maximum number of entries of an op; all are dropped when there are more."""
_FORMAT = 2  # of marshal: without references between equal parts, so that equal parameters have equal bytes
_PLAIN = frozenset({int, bool, str, float, type(None)})


class OpPlan:
    """How one operation runs.

    Attributes:
        backend: The engine; a decorated one is another.
        kernel: Computes the native result, or a tuple of results, of native operands.
        in_avals, avals: Shapes and dtypes of the operands and of the results.
        single: Whether the operation returns a tensor, not a tuple.
        view: Whether a result may share memory with the first operand.
        tracks: Whether a gradient may flow through it.
        params: The parameters; none of an operation in the kernel language, whose objects from outside it would keep.
        dtypes: NumPy's dtypes of the results.
        nbytes: Bytes of the results.
        one: Of an operation with one result: its shape and dtype, NumPy's dtype and its bytes; else None.
        settings: The values of settings (``config.compiled_with``) for which the kernel was chosen.
        of_gradients: The plan itself, by which backward passes recognise an operation that they have run before; None for an
            operation in the kernel language, whose gradient rule is a user's.
    """

    __slots__ = (
        "avals", "backend", "dtypes", "in_avals", "kernel", "nbytes", "of_gradients", "one", "params", "settings", "single",
        "tracks", "view",
    )  # fmt: skip

    def __init__(
        self, op: Op, backend: Any, kernel: Callable[..., Any], in_avals: tuple[Aval, ...], avals: tuple[Aval, ...],
        params: dict[str, Any], single: bool,
    ) -> None:  # fmt: skip
        self.backend, self.kernel, self.in_avals, self.avals, self.single = backend, kernel, in_avals, avals, single
        self.params = params if op.program is None else {}
        self.view, self.settings = op.view is not None, config.compiled_with
        self.tracks = op.differentiable and any(a.dtype.is_inexact for a in avals)
        self.dtypes, self.nbytes = tuple(a.dtype.np for a in avals), tuple(a.nbytes for a in avals)
        self.of_gradients = self if op.program is None else None
        self.one = (avals[0], self.dtypes[0], self.nbytes[0]) if len(avals) == 1 else None


def key_of(op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """The key of a plan: devices, dtypes and shapes of tensors, and parameters by type and bits.

    Args:
        op: The operation.
        inputs: Its operands.
        params: Its parameters.

    Raises:
        AttributeError, TypeError, ValueError: An operand is no tensor, or a parameter is no plain value.
    """
    if len(inputs) == 1:
        (x,) = inputs
        key: tuple[Any, ...] = (x.device, x.dtype, x.shape)
    elif len(inputs) == 2:
        x, y = inputs
        key = (x.device, x.dtype, x.shape, y.device, y.dtype, y.shape)
    else:
        key = tuple([v for t in inputs for v in (t.device, t.dtype, t.shape)])
    if op.program is not None:  # without a number, its captures are the objects that are there when it runs
        return (*key, dumps((params["statics"], params["constants"]), _FORMAT), params["captures"].number)
    return (*key, dumps(params, _FORMAT)) if params else key


class NoPlan:
    """That an operation has no plan: its engine has no kernel to keep for it, with these settings.

    Attributes:
        settings: As of ``OpPlan``.
    """

    __slots__ = ("settings",)

    def __init__(self) -> None:
        self.settings = config.compiled_with


def made(
    op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...], single: bool
) -> OpPlan | NoPlan:  # fmt: skip
    """The plan of an operation that has passed all checks, if its engine has a kernel to keep for it."""
    if op.control is not None or op.transfers or not (op.program is not None or all(map(_is_plain, params.values()))):
        return NoPlan()
    device: Device = inputs[0].device
    in_avals = tuple(t.aval for t in inputs)
    kernel = device.backend.kept_kernel(op, in_avals, params, avals, device)
    return NoPlan() if kernel is None else OpPlan(op, device.backend, kernel, in_avals, avals, dict(params), single)


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _PLAIN


def run(plan: OpPlan, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Any:
    """The results, recorded if an operand is tracked; None if the general path must run: an engine's error, or a result that is
    not as planned, is reported there.

    Args:
        plan: Of the operation.
        op: The operation.
        inputs: Its operands.
        params: Its parameters, which are the plan's.
    """
    first = inputs[0]
    shown = first.storage  # read once, as its data: another thread's program may replace them
    data = shown.data
    try:
        if len(inputs) == 1:
            result = plan.kernel(data)
        elif len(inputs) == 2:
            result = plan.kernel(data, inputs[1].storage.data)
        else:
            result = plan.kernel(data, *[t.storage.data for t in inputs[1:]])
    except Exception:  # noqa: BLE001
        return None
    device = first.device
    memory = device._memory
    if plan.one is not None and type(result) is not tuple:
        (shape, dtype), stored, nbytes = plan.one
        if result.shape != shape or result.dtype != stored:
            return None
        if plan.view and (not result.size or np.may_share_memory(result, data)):
            storage = Storage(result, memory, 0, "owned", shown.root)
        else:
            storage = Storage(result, memory, nbytes)
        made = Tensor(storage, dtype, shape, device)
        if plan.tracks:
            for t in inputs:
                if t.node is not None:
                    if hooks.grad_enabled():
                        hooks.record(op, inputs, plan.params or params, (made,), plan.of_gradients)
                    break
        return made if plan.single else (made,)
    results = (result,) if type(result) is not tuple else result
    base, outputs = None, []
    for native, aval, stored, nbytes in zip(results, plan.avals, plan.dtypes, plan.nbytes, strict=True):
        if native.shape != aval.shape or native.dtype != stored:
            return None
        if plan.view:
            base = shown.root if not native.size or np.may_share_memory(native, data) else None
        storage = Storage(native, memory, nbytes if base is None else 0, "owned", base)
        outputs.append(Tensor(storage, aval.dtype, aval.shape, device))
    if plan.tracks:
        for t in inputs:
            if t.node is not None:
                if hooks.grad_enabled():
                    hooks.record(op, inputs, plan.params or params, tuple(outputs), plan.of_gradients)
                break
    return outputs[0] if plan.single else tuple(outputs)
