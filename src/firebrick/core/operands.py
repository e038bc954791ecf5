"""What is wrong with an operand, in the user's words: the checks at the entry of public functions, and the errors.

Every error reports the operand by the user's name for it, its dtype, shape, device and label, and what to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import no_common_dtype
from firebrick.core.errors import DeviceMismatchError, DTypeError, OperandError, ShapeError
from firebrick.core.op import KIND_TEXT, KINDS, Op
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak


def describe(name: str, t: Tensor) -> str:
    """``x2: float32[3,4] on cpu:1 (conv1.weight)``, as errors show an operand."""
    return describe_unnamed(name, t) + (f" ({t.label})" if t.label else "")


def describe_unnamed(name: str, t: Tensor) -> str:
    """The same without the label, for errors of a graph: it runs with other batches than the one it was made with."""
    return f"{name}: {t.dtype.name}[{','.join(map(str, t.shape))}] on {t.device}"


# checks


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


# errors


def not_a_tensor(where: str, name: str, value: Any, device: str | None) -> OperandError:
    """The error for an operand that is no tensor, with how to make it one."""
    if type(value) is Weak:  # whose class is that of the number
        got = f"{name}: {value!r}"
    elif isinstance(value, np.ndarray):
        got = f"{name}: a NumPy array {value.dtype}{list(value.shape)}"
    else:
        got = f"{name}: {type(value).__name__} {value!r:.80}"
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) for v in value):
        return OperandError(
            f"{where}: {name} must be one Firebrick tensor",
            f"{name}: a {type(value).__name__} of {len(value)} tensors",
            "pass one of them, or join them: fb.stack(tensors) along a new axis, fb.concat(tensors) along the first",
        )
    where_to = f', device="{device}"' if device else ""
    return OperandError(
        f"{where}: {name} must be a Firebrick tensor",
        got,
        f"convert it once with fb.asarray({name}{where_to}), or a tensor to NumPy with x.numpy()",
    )


def no_tensor(op: Op, inputs: tuple[Any, ...]) -> OperandError:
    """The error for operands that are all scalars."""
    return OperandError(
        f"{op.shown}: at least one operand must be a tensor",
        ", ".join(f"{n}: {t!r}" for n, t in zip(op.operand_names(len(inputs)), inputs, strict=True)),
        "wrap one with fb.asarray(…)",
    )


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


def wrong_kind(op: Op, i: int, inputs: tuple[Any, ...]) -> DTypeError:
    """The error for operand ``i``, whose dtype is not of the kind that the op takes."""
    name = op.operand_names(len(inputs))[i]
    kind = op.operand(i).kind
    goal = {"bool": "bool", "integer": "int64", "bits": "int64", "complex": "complex64"}.get(kind, "float32")
    no_complex = inputs[i].dtype.kind == "complex"
    return DTypeError(
        f"{op.shown}: {name} needs {KIND_TEXT[kind]} dtype",
        describe(name, inputs[i]),
        "this operation has no complex form: use a real tensor" if no_complex else f"cast it: fb.astype({name}, fb.{goal})",
        op=op.shown,
    )


def mixed_dtypes(op: Op, i: int, inputs: tuple[Any, ...]) -> DTypeError:
    """The error for operand ``i``, whose dtype has no common one with those before it in its group."""
    names = op.operand_names(len(inputs))
    group = op.operand(i).group
    members = [j for j in range(i + 1) if op.operand(j).group == group]
    return no_common_dtype(op.shown, [(describe(names[j], inputs[j]), inputs[j].dtype) for j in members])


def misfit(op: Op, inputs: tuple[Any, ...], e: ShapeError) -> ShapeError:
    """A shape rule's error, with the operands by the user's names and labels."""
    names = op.operand_names(len(inputs))
    shown = ", ".join(describe(n, t) for n, t in zip(names, inputs, strict=True))
    expected = e.expected.removeprefix("operands: ")
    expected = expected if expected.startswith(op.shown) else f"{op.shown}: {expected}"
    return type(e)(expected, f"{shown} ({e.received})" if e.received else shown, e.remedy, op=op.shown)
