"""``bind``: the only door to an operation.

Every call, from a user, a gradient rule or a layer, comes through here, and every operand is checked before any engine
sees it: that it is a tensor, on one device with the others, of an accepted dtype, promoted with its group. Then the
engine runs it, and if an operand is tracked the tape records it. ``operands`` has the errors, ``constants`` the tensors of
scalars.

``binary`` and ``unary`` are the fast path: equal shapes, untracked, dtypes and device that have been through the
general path before. ``Op.fast`` holds the engine's kernel for them; engines under a decorator offer none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core import planned, timeline
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.constants import constant
from firebrick.core.dtypes import DType, bool_, promote, scalar_fits, scalar_misfit
from firebrick.core.errors import DTypeError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import KINDS, Op
from firebrick.core.operands import check_out, device_mismatch, misfit, mixed_dtypes, no_tensor, not_a_tensor, wrong_kind
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, as_tensor, weak_scalar

_ADMITTED = (Tensor, Weak, bool, int, float, complex)
_new = object.__new__


def bind(op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Tensor | None = None) -> Any:
    """Run ``op`` on ``inputs``, and record it if an operand is tracked.

    Args:
        op: Entry of the op table.
        inputs: Tensors on one device; Python and NumPy scalars are admitted as weak constants.
        params: The op's keyword parameters.
        out: Handle to rebind to the result; its shape, dtype and device must be the result's.

    Raises:
        OperandError: An operand is no tensor.
        DeviceMismatchError: Operands (or ``out``) lie on different devices.
        DTypeError: An operand's dtype is not accepted, or the operands have no common one.
        ShapeError: The shapes do not fit.
    """
    for t in inputs:
        if not isinstance(t, Tensor):
            inputs = _admit(op, inputs)
            break
    key = None
    if out is None and not (hooks.tracing or hooks.levels or timeline.active):
        try:
            key = planned.key_of(op, inputs, params)
            plan = op.plans.get(key)
        except (AttributeError, TypeError, ValueError):
            plan = None
        if type(plan) is planned.OpPlan and plan.backend is inputs[0].device.backend and plan.settings is config.compiled_with:
            found = planned.run(plan, op, inputs, params)
            if found is not None:
                return found
    device = inputs[0].device
    for t in inputs:
        if t.device is not device:
            raise device_mismatch(op.shown, list(zip(op.operand_names(len(inputs)), inputs, strict=True)))
    given, inputs = inputs, _promote(op, inputs)
    if hooks.tracing and hooks.levels and (trace := hooks.trace()) is not None:
        inputs = trace.entered(inputs)
    try:
        inferred = op.infer(*inputs, **params)
    except ShapeError as e:
        raise misfit(op, inputs, e) from None
    single = type(inferred) is Aval
    avals: tuple[Aval, ...] = (inferred,) if single else inferred
    if out is not None:
        check_out(op.shown, out, device, avals[0])
    tracked = False
    for t in inputs:
        if t.node is not None:
            tracked = hooks.grad_enabled()
            break
    outputs = hooks.in_level(op, inputs, params, avals) if hooks.levels else None  # ``execute``, without a call
    if outputs is None:
        outputs = hooks.execute(op, inputs, params, avals, out)
        if key is not None and given is inputs:
            _count(op, key, inputs, params, avals, single)
    if tracked:
        hooks.record(op, inputs, params, outputs)
    if out is not None:
        out._rebind(outputs[0])
        return out
    return outputs[0] if single else outputs


def execute(op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...]) -> tuple[Tensor, ...]:
    """Run ``op`` on checked operands, unrecorded: by the rules of the level that an operand belongs to, if there is one."""
    made: tuple[Tensor, ...] | None = hooks.in_level(op, inputs, params, avals) if hooks.levels else None
    if made is None:
        made = hooks.execute(op, inputs, params, avals, None)
    assert made is not None
    return made


def _count(
    op: Op, key: tuple[Any, ...], inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...], single: bool
) -> None:  # fmt: skip
    """Count an operation that the general path has run; make its plan if that was often enough."""
    if not inputs[0].device.backend.replays:  # an engine without kernels to keep, or one that is decorated
        return
    times = op.plans.get(key, 0)
    if type(times) is not int:
        if times.settings is config.compiled_with:
            return
        times = planned.BEFORE
    if len(op.plans) >= planned.KEPT:
        op.plans.clear()
    op.plans[key] = times + 1 if times < planned.BEFORE else planned.made(op, inputs, params, avals, single)


def bind_as(where: str, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """``bind`` for a public function of another name than the op's, which its errors report."""
    try:
        return bind(op, inputs, params)
    except (DTypeError, OutOfRangeError, ShapeError) as e:
        if e.expected.startswith(op.shown):
            raise type(e)(where + e.expected[len(op.shown) :], e.received, e.remedy, op=where) from None
        raise


def binary(op: Op, x1: Any, x2: Any) -> Any:
    """``bind(op, (x1, x2), {})``, with the fast path for an elementwise ``op``."""
    try:
        device = x1.device
        kernel, dtype = op.fast[device, x1.dtype, x2.dtype]
        shape = x1.shape
        if (
            x2.device is not device
            or shape != x2.shape
            or not shape
            or x1.node is not None
            or x2.node is not None
            or hooks.tracing
            or hooks.levels
        ):
            kernel = None
    except (KeyError, AttributeError, TypeError):
        kernel = None
    if kernel is None:
        return bind(op, (x1, x2), {})
    try:
        data = kernel(x1.storage.data, x2.storage.data)
    except (MemoryError, RuntimeError):  # the general path reports the cause
        return bind(op, (x1, x2), {})
    t = _new(Tensor)
    t.device = device
    t.storage = Storage(data, device._memory, data.nbytes)
    t.dtype = dtype
    t.shape = shape
    t.node = t.label = None
    t.slot = t.leaf = 0
    return t


def unary(op: Op, x: Any) -> Any:
    """``bind(op, (x,), {})``, with the fast path for an elementwise ``op``."""
    try:
        kernel, dtype = op.fast[x.device, x.dtype]
        if not x.shape or x.node is not None or hooks.tracing or hooks.levels:
            kernel = None
    except (KeyError, AttributeError, TypeError):
        kernel = None
    if kernel is None:
        return bind(op, (x,), {})
    try:
        data = kernel(x.storage.data)
    except (MemoryError, RuntimeError):  # the general path reports the cause
        return bind(op, (x,), {})
    device = x.device
    return Tensor(Storage(data, device._memory, data.nbytes), dtype, x.shape, device)


def _admit(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace Python and NumPy scalars by constants of the dtype of their group's tensors; refuse everything else."""
    names = op.operand_names(len(inputs))
    if any(isinstance(t, np.generic) for t in inputs):
        inputs = tuple(map(weak_scalar, inputs))
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    for name, t in zip(names, inputs, strict=True):
        if not isinstance(t, _ADMITTED):
            raise not_a_tensor(op.shown, name, t, tensors[0].device.name if tensors else None)
    if not tensors:
        raise no_tensor(op, inputs)
    out: list[Any] = []
    for i, t in enumerate(inputs):
        if isinstance(t, Tensor):
            out.append(t)
            continue
        declared = op.operand(i)
        peers = [o for j, o in enumerate(inputs) if isinstance(o, Tensor) and op.operand(j).group == declared.group]
        if declared.kind == "bool" and isinstance(t, bool) and not (declared.group and peers):
            dt = bool_
        elif not peers:
            raise not_a_tensor(op.shown, names[i], t, tensors[0].device.name)
        else:
            dt = peers[0].dtype
            for o in peers[1:]:
                dt = promote(dt, o.dtype) or dt
            value, shown = (t.kind(1), f"{t.kind.__name__} {t.name}") if isinstance(t, Weak) else (t, "")
            if not scalar_fits(value, dt):
                raise scalar_misfit(op.shown, value, dt, shown)
        try:
            out.append(as_tensor(t, dt, tensors[0].device) if isinstance(t, Weak) else constant(t, dt, tensors[0].device))
        except DTypeError as e:
            raise DTypeError(f"{op.shown}: {e.expected}", f"{names[i]}={e.received}", e.remedy, op=op.shown) from None
    return tuple(out)


def _promote(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check each operand's dtype kind; cast the members of each group to their common dtype."""
    declared = op.operands
    if not declared:
        return inputs
    common: dict[str, DType] = {}
    mixed = False
    last = len(declared) - 1
    for i, t in enumerate(inputs):
        o = declared[i if i < last else last]
        dt = t.dtype
        if dt.kind not in KINDS[o.kind]:
            raise wrong_kind(op, i, inputs)
        if o.group:
            held = common.setdefault(o.group, dt)
            if held is not dt:
                wide = promote(held, dt)
                if wide is None:
                    raise mixed_dtypes(op, i, inputs)
                common[o.group] = wide
                mixed = True
    if not mixed:
        return inputs
    cast = hooks.methods["astype"]
    return tuple(
        t if not (g := op.operand(i).group) or t.dtype is common[g] else cast(t, common[g]) for i, t in enumerate(inputs)
    )
