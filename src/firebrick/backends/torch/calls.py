"""The kernels of compiled programs on PyTorch's tensors: expressions in which everything is settled that does not depend on
values.

The results have the same bits as those of ``kernels.run``: the same functions of PyTorch, without the choices between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from firebrick.backends.torch import contraction, elementwise, kernels, precision, reduction
from firebrick.backends.torch.memory import FIREBRICK, TORCH
from firebrick.compiler.program.expression import ANY, KEPT, ROWS, Kernel, call
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, bfloat16, float16, float32, float64
from firebrick.core.op import Op
from firebrick.core.rounding import NARROW, WIDE
from firebrick.core.shapes import slice_length

_HALVES = (float16, bfloat16)
_DETOURS = frozenset(FIREBRICK[d] for d in kernels.SIGNED)


def _apply(op: Op, operands: tuple[Aval, ...]) -> Kernel | None:
    """One of PyTorch's functions that also write into ``out=``, or over their first operand."""
    function = elementwise.into(op.name, any(a.dtype.kind == "complex" for a in operands))
    if function is None:
        return None
    args = ", ".join(f"{{{i}}}" for i in range(len(operands)))
    rest = ", ".join(f"{{{i}}}" for i in range(1, len(operands)))
    method = f"{getattr(function, '__name__', '')}_"
    first = f"{{out}}.{method}({rest})" if hasattr(torch.Tensor, method) else None
    return Kernel(f"{{f}}({args})", {"f": function}, f"{{f}}({args}, out={{out}})", first, layout=KEPT)


def _relu(x: Aval) -> Kernel:
    names = {"f": torch.threshold, "into": torch.threshold_}
    return Kernel("{f}({0}, 0, 0)", names, first="{into}({out}, 0, 0)", layout=KEPT)


def _sum(x: Aval, *, axes: tuple[int, ...], keepdims: bool) -> Kernel | None:
    if not axes:
        return None
    names = {"f": torch.sum, "axes": axes, "keepdims": keepdims, "dtype": TORCH[x.dtype]}
    return Kernel("{f}({0}, {axes}, {keepdims}, dtype={dtype})", names, layout=KEPT)


def _mean(x: Aval, *, axes: tuple[int, ...], keepdims: bool) -> Kernel | None:
    if not axes or x.dtype in _HALVES:
        return None
    return Kernel("{f}({0}, {axes}, {keepdims})", {"f": torch.mean, "axes": axes, "keepdims": keepdims}, layout=KEPT)


def _reshape(x: Aval, *, shape: tuple[int, ...]) -> Kernel:
    return Kernel("{0}.reshape({shape})", {"shape": shape}, layout=KEPT)


def _permute(x: Aval, *, axes: tuple[int, ...]) -> Kernel:
    return Kernel("{0}.permute({axes})", {"axes": axes}, layout=KEPT if axes == tuple(range(x.ndim)) else ANY)


def _broadcast_to(x: Aval, *, shape: tuple[int, ...]) -> Kernel:
    return Kernel("{0}.expand({shape})", {"shape": shape}, layout=KEPT)


def _slice(x: Aval, *, starts: Any, stops: Any, steps: Any, shape: Any = None) -> Kernel | None:
    if any(s < 0 for s in steps):
        return None
    key = []
    for a, b, c in zip(starts, stops, steps, strict=True):
        n = slice_length(a, b, c)
        key.append(slice(a, a + c * (n - 1) + 1, c) if n else slice(0, 0))
    expr = "{0}[{key}]" + ("" if shape is None else ".reshape({shape})")
    return Kernel(expr, {"key": tuple(key), "shape": shape}, layout=KEPT)


def _cast(x: Aval, *, dtype: DType) -> Kernel | None:
    if x.dtype is dtype:
        return Kernel("{0}.clone()", layout=KEPT)
    plain = dtype.kind != "storage" and not (x.dtype.kind == "float" and dtype.is_integer)
    plain = plain and not (dtype.np in NARROW and x.dtype.np in WIDE)
    return Kernel("{0}.to({dtype})", {"dtype": TORCH[dtype]}, layout=KEPT) if plain else None


def _concat(*xs: Aval, axis: int) -> Kernel | None:
    if len(xs) == 1:
        return None
    return Kernel(
        f"{{f}}(({', '.join(f'{{{i}}}' for i in range(len(xs)))}), {{axis}})", {"f": torch.cat, "axis": axis}, layout=KEPT
    )


def _softmax(function: Any, exactly: bool = False) -> Callable[..., Kernel | None]:
    def choose(x: Aval, *, axis: int) -> Kernel | None:
        if (axis != x.ndim - 1 and x.shape[axis] > reduction.LONG) or (exactly and x.dtype in _HALVES):
            return None
        return Kernel("{f}({0}, {axis})", {"f": function, "axis": axis}, layout=KEPT)

    return choose


def _where_plain() -> Kernel:
    return Kernel("{f}({0}, {1}, {2})", {"f": torch.where}, layout=KEPT)


_SETTLED: dict[str, Callable[..., Kernel | None]] = {
    "relu": _relu, "sum": _sum, "mean": _mean, "reshape": _reshape, "permute": _permute, "broadcast_to": _broadcast_to,
    "slice": _slice, "cast": _cast, "concat": _concat, "softmax": _softmax(torch.softmax),
    "log_softmax": _softmax(torch.log_softmax, exactly=True),
}  # fmt: skip


def _where(operands: tuple[Aval, ...], known: tuple[np.ndarray[Any, Any] | None, ...]) -> Kernel:
    """A choice against a constant 0 by a mask of bits, as ``elementwise.where`` does when it finds the 0."""
    condition, x1, x2 = operands
    if x1.dtype not in (float32, float64):
        return _where_plain()
    against = [i for i, x in ((2, x2), (1, x1)) if x.ndim == 0 and operands[3 - i].shape == condition.shape]
    if not against:
        return _where_plain()
    zero = known[against[0]]
    if zero is None or len(against) > 1:
        return Kernel("{f}({0}, {1}, {2})", {"f": elementwise.where}, layout=KEPT)
    if zero != 0 or np.signbit(zero):
        return _where_plain()
    bits = {"int": torch.int32 if x1.dtype is float32 else torch.int64, "own": TORCH[x1.dtype]}
    keep, kept = ("{0}", "{1}") if against[0] == 2 else ("{0}.logical_not()", "{2}")
    return Kernel(f"{keep}.to({{int}}).neg_().bitwise_and_({kept}.view({{int}})).view({{own}})", bits, layout=KEPT)


def _matmul(x1: Aval, x2: Aval) -> Kernel | None:
    if contraction.is_one_product(x1.shape, x2.shape, x1.dtype.is_inexact):
        return Kernel("{f}({0}, {1})", {"f": torch.matmul}, "{f}({0}, {1}, out={out})", elementwise=False, layout=ROWS)
    return None


def settle(
    op: Op,
    operands: tuple[Aval, ...],
    params: dict[str, Any],
    platform: str,
    known: tuple[np.ndarray[Any, Any] | None, ...],
) -> Kernel:
    """The kernel of an op that ``kernels.supports``."""
    dtypes = [a.dtype for a in operands]
    if any(d in _DETOURS for d in dtypes):
        return call(lambda *natives: kernels.run(op, natives, params), len(operands), {})
    half = dtypes[-1] in _HALVES
    found = _apply(op, operands)
    if found is None and op.name in _SETTLED:
        found = _SETTLED[op.name](*operands, **params)
    elif op.name == "where" and platform == "cpu":
        found = _where(operands, known)
    elif op.name == "matmul" and platform == "cpu" and not half:
        found = _matmul(*operands)
    if found is not None:
        return found
    kernel = kernels.KERNELS[op.name]
    if not half:
        kernel = precision.plain(kernel)
    kept = op.name in elementwise.PLAIN or op.name == "split"
    return call(kernel, len(operands), params, ROWS if op.name in ("layer_norm", "attention") else KEPT if kept else ANY)
