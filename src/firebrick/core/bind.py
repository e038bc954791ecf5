"""``bind``: the only door to an operation.

Every call, from a user, a gradient rule or a layer, comes through here, and every operand is checked before any engine
sees it: that it is a tensor, on one device with the others, of an accepted dtype, promoted with its group. Then the
engine runs it, and if an operand is tracked the tape records it.

``binary`` and ``unary`` are the fast path: equal shapes, untracked, dtypes and device that have been through the
general path before. ``Op.fast`` holds the engine's kernel for them; engines under a decorator offer none.
"""

from __future__ import annotations

from functools import lru_cache
from math import copysign
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, no_common_dtype, promote, scalar_fits, scalar_misfit
from firebrick.core.errors import DeviceMismatchError, DTypeError, OperandError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.op import KIND_TEXT, KINDS, Op
from firebrick.core.rounding import number, rounded
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
    device = inputs[0].device
    for t in inputs:
        if t.device is not device:
            raise device_mismatch(op.name, list(zip(op.operand_names(len(inputs)), inputs, strict=True)))
    inputs = _promote(op, inputs)
    try:
        inferred = op.infer(*inputs, **params)
    except ShapeError as e:
        raise _misfit(op, inputs, e) from None
    single = type(inferred) is Aval
    avals: tuple[Aval, ...] = (inferred,) if single else inferred
    if out is not None:
        check_out(op.name, out, device, avals[0])
    tracked = False
    for t in inputs:
        if t.node is not None:
            tracked = hooks.grad_enabled()
            break
    outputs = hooks.execute(op, inputs, params, avals, out)
    if tracked:
        hooks.record(op, inputs, params, outputs)
    if out is not None:
        out._rebind(outputs[0])
        return out
    return outputs[0] if single else outputs


def bind_as(where: str, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """``bind`` for a public function of another name than the op's, which its errors are to bear."""
    try:
        return bind(op, inputs, params)
    except (DTypeError, OutOfRangeError, ShapeError) as e:
        if e.expected.startswith(op.name):
            raise type(e)(where + e.expected[len(op.name) :], e.received, e.remedy, op=where) from None
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
        ):
            kernel = None
    except (KeyError, AttributeError, TypeError):
        kernel = None
    if kernel is None:
        return bind(op, (x1, x2), {})
    try:
        data = kernel(x1.storage.data, x2.storage.data)
    except (MemoryError, RuntimeError):  # the general path says what happened
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
        if not x.shape or x.node is not None or hooks.tracing:
            kernel = None
    except (KeyError, AttributeError, TypeError):
        kernel = None
    if kernel is None:
        return bind(op, (x,), {})
    try:
        data = kernel(x.storage.data)
    except (MemoryError, RuntimeError):  # the general path says what happened
        return bind(op, (x,), {})
    device = x.device
    return Tensor(Storage(data, device._memory, data.nbytes), dtype, x.shape, device)


def _admit(op: Op, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace Python and NumPy scalars by constants beside the tensors of their group; refuse everything else."""
    names = op.operand_names(len(inputs))
    if any(isinstance(t, np.generic) for t in inputs):
        inputs = tuple(map(weak_scalar, inputs))
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    for name, t in zip(names, inputs, strict=True):
        if not isinstance(t, _ADMITTED):
            raise not_a_tensor(op.name, name, t, tensors[0].device.name if tensors else None)
    if not tensors:
        raise OperandError(
            f"{op.name}: at least one operand must be a tensor",
            ", ".join(f"{n}: {t!r}" for n, t in zip(names, inputs, strict=True)),
            "wrap one with fb.asarray(…)",
        )
    out: list[Any] = []
    for i, t in enumerate(inputs):
        if isinstance(t, Tensor):
            out.append(t)
            continue
        declared = op.operand(i)
        beside = [o for j, o in enumerate(inputs) if isinstance(o, Tensor) and op.operand(j).group == declared.group]
        if declared.kind == "bool" and isinstance(t, bool) and not (declared.group and beside):
            dt = _bool_dtype()
        elif not beside:
            raise not_a_tensor(op.name, names[i], t, tensors[0].device.name)
        else:
            dt = beside[0].dtype
            for o in beside[1:]:
                dt = promote(dt, o.dtype) or dt
            value, shown = (t.kind(1), f"{t.kind.__name__} {t.name}") if isinstance(t, Weak) else (t, "")
            if not scalar_fits(value, dt):
                raise scalar_misfit(op.name, value, dt, shown)
        try:
            out.append(as_tensor(t, dt, tensors[0].device) if isinstance(t, Weak) else constant(t, dt, tensors[0].device))
        except DTypeError as e:
            raise DTypeError(f"{op.name}: {e.expected}", f"{names[i]}={e.received}", e.remedy, op=op.name) from None
    return tuple(out)


def _bool_dtype() -> DType:
    from firebrick.core.dtypes import bool_

    return bool_


def constant(value: Any, dtype: DType, device: Any) -> Tensor:
    """A 0-d tensor of a Python scalar. Programs use few different ones, so their values are kept; the handle is new."""
    kind = type(value).__name__
    if hooks.tracing:  # a trace has constants of its own
        return _make(value, dtype, device)
    if kind == "float":
        return _constant(kind, value, copysign(1.0, value), dtype, device).detach()  # 0.0 equals -0.0
    return _constant(kind, value, 1.0, dtype, device).detach() if kind in ("int", "bool") else _make(value, dtype, device)


@lru_cache(maxsize=512)
def _constant(kind: str, value: Any, sign: float, dtype: DType, device: Any) -> Tensor:
    made = _make(value, dtype, device)
    made.storage.uncount()
    return made


forget_constants = _constant.cache_clear  # when another engine takes over a device


def _make(value: Any, dtype: DType, device: Any) -> Tensor:
    tensor: Tensor = hooks.from_host(host_scalar(value, dtype), device)
    return tensor


def host_scalar(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """A Python scalar as a 0-d array of a dtype that it fits.

    Raises:
        DTypeError: It does not fit.
    """
    if dtype.is_integer and not isinstance(value, bool):
        limits = np.iinfo(dtype.np)
        if not limits.min <= value <= limits.max:  # False for NaN
            raise DTypeError(
                f"a Python int beside {dtype.name} must lie in [{limits.min}, {limits.max}]",
                repr(value),
                "cast the tensor to a wider integer dtype first",
            )
    try:
        with np.errstate(over="ignore"):  # a float too large for a narrow dtype is infinite, as in any cast
            if dtype.kind in ("float", "storage") and dtype.itemsize < 8:
                return np.asarray(rounded(np.asarray(number(value), np.float64), dtype))
            return np.asarray(value, dtype.np)
    except OverflowError:
        received = f"an int of {value.bit_length()} bits"
        raise DTypeError(f"a Python int beside {dtype.name} must fit into a float", received, "use a smaller one") from None


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
            raise _wrong_kind(op, i, inputs)
        if o.group:
            held = common.setdefault(o.group, dt)
            if held is not dt:
                wide = promote(held, dt)
                if wide is None:
                    names = op.operand_names(len(inputs))
                    texts = [(describe(n, v), v.dtype) for n, v in zip(names, inputs, strict=True)]
                    members = [texts[j] for j in range(i + 1) if declared[j if j < last else last].group == o.group]
                    raise no_common_dtype(op.name, members)
                common[o.group] = wide
                mixed = True
    if not mixed:
        return inputs
    cast = hooks.methods["astype"]
    return tuple(
        t if not (g := op.operand(i).group) or t.dtype is common[g] else cast(t, common[g]) for i, t in enumerate(inputs)
    )


def describe(name: str, t: Tensor) -> str:
    """``x2: float32[3,4] on cpu:1 (conv1.weight)``, as errors show an operand."""
    label = f" ({t.label})" if t.label else ""
    return f"{name}: {t.dtype.name}[{','.join(map(str, t.shape))}] on {t.device}{label}"


def device_mismatch(where: str, operands: list[tuple[str, Tensor]]) -> DeviceMismatchError:
    """The error for operands on more than one device."""
    first, home = operands[0]
    name, other = next((n, t) for n, t in operands if t.device is not home.device)
    return DeviceMismatchError(
        f"{where}: all tensors must be on one device",
        f"{describe(first, home)} and {describe(name, other)}",
        f'move one of them: {name}.to("{home.device}") or {first}.to("{other.device}")',
        op=where,
        operands=[name, first],
        devices=[other.device.name, home.device.name],
    )


def check_devices(where: str, **operands: Any) -> None:
    """Check, at the entry of a public function or layer, that its tensor arguments share one device.

    Lists and tuples of tensors are looked into and named ``arrays[1]``; None and other values are passed over.
    """
    named: list[tuple[str, Tensor]] = []
    for name, value in operands.items():
        if isinstance(value, Tensor):
            named.append((name, value))
        elif isinstance(value, (list, tuple)):
            named += [(f"{name}[{i}]", v) for i, v in enumerate(value) if isinstance(v, Tensor)]
    if len({t.device for _, t in named}) > 1:
        raise device_mismatch(where, named)


def check_operand(where: str, x: Any, kind: str = "any", name: str = "x") -> None:
    """Check, at the entry of a public function, that an argument is a tensor of a kind of dtypes (see ``core.op.KINDS``)."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, name, x, None)
    if x.dtype.kind not in KINDS[kind]:
        no_complex = x.dtype.kind == "complex"
        goal = {"bool": "bool", "integer": "int64"}.get(kind, "float32")
        raise DTypeError(
            f"{where}: {name} needs {KIND_TEXT[kind]} dtype",
            describe(name, x),
            f"{where} has no complex form: use a real tensor" if no_complex else f"cast it: fb.astype({name}, fb.{goal})",
            op=where,
        )


def check_out(where: str, out: Any, device: Any, aval: Aval) -> None:
    """Check that ``out`` is a tensor of the result's device, dtype and shape."""
    if not isinstance(out, Tensor):
        raise not_a_tensor(where, "out", out, device.name)
    if out.device is not device:
        raise DeviceMismatchError(
            f"{where}: out must be on the operands' device, {device}",
            describe("out", out),
            f'make it there: fb.empty({out.shape}, dtype=fb.{aval.dtype}, device="{device}")',
            op=where,
            operands=["out"],
            devices=[out.device.name, device.name],
        )
    if out.dtype is not aval.dtype:
        raise DTypeError(
            f"{where}: out must have the result's dtype, {aval.dtype.name}",
            describe("out", out),
            f"make it with dtype=fb.{aval.dtype.name}, or cast the result with fb.astype",
        )
    if out.shape != aval.shape:
        raise ShapeError(
            f"{where}: out must have the result's shape, {aval.shape}",
            describe("out", out),
            f"make it with fb.empty({aval.shape}, …)",
        )


def not_a_tensor(where: str, name: str, value: Any, device: str | None) -> OperandError:
    """The error for an operand that is no tensor, with how to make it one."""
    if type(value) is Weak:  # whose class is that of the number
        got = f"{name}: {value!r}"
    elif isinstance(value, np.ndarray):
        got = f"{name}: a NumPy array {value.dtype}{list(value.shape)}"
    else:
        got = f"{name}: {type(value).__name__} {value!r:.80}"
    place = f', device="{device}"' if device else ""
    return OperandError(
        f"{where}: {name} must be a Firebrick tensor",
        got,
        f"convert it once with fb.asarray({name}{place}), or a tensor to NumPy with x.numpy()",
    )


def _misfit(op: Op, inputs: tuple[Any, ...], e: ShapeError) -> ShapeError:
    """A shape rule's error, with the operands as the user knows them."""
    names = op.operand_names(len(inputs))
    shown = ", ".join(describe(n, t) for n, t in zip(names, inputs, strict=True))
    expected = e.expected.removeprefix("operands: ")
    expected = expected if expected.startswith(op.name) else f"{op.name}: {expected}"
    return type(e)(expected, f"{shown} ({e.received})" if e.received else shown, e.remedy, op=op.name)


def _wrong_kind(op: Op, i: int, inputs: tuple[Any, ...]) -> DTypeError:
    name = op.operand_names(len(inputs))[i]
    kind = op.operand(i).kind
    goal = {"bool": "bool", "integer": "int64", "bits": "int64", "complex": "complex64"}.get(kind, "float32")
    no_complex = inputs[i].dtype.kind == "complex"
    return DTypeError(
        f"{op.name}: {name} needs {KIND_TEXT[kind]} dtype",
        describe(name, inputs[i]),
        "this operation has no complex form: use a real tensor" if no_complex else f"cast it: fb.astype({name}, fb.{goal})",
        op=op.name,
    )
