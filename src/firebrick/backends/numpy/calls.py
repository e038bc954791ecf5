"""The kernels of compiled programs on NumPy arrays: expressions in which everything that does not depend on values is settled.

The results have the same bits as those of ``HostBackend.execute``: the same NumPy functions in the same order, without the
choices between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from firebrick.backends.numpy import blas, selection
from firebrick.backends.numpy.kernels import KERNELS, REAL_UFUNCS
from firebrick.compiler.program.expression import ANY, KEPT, ROWS, Kernel, call
from firebrick.core.aval import Aval
from firebrick.core.op import Op
from firebrick.core.rounding import NARROW, WIDE
from firebrick.ops.declare import size_of
from firebrick.ops.indexing import check_indices
from firebrick.ops.movement import key_of
from firebrick.ops.normalisation import inverse_spread
from firebrick.ops.reduction import PAIRWISE

Operands = tuple[Aval, ...]
Known = tuple[np.ndarray[Any, Any] | None, ...]

# references that are one ufunc on real operands
_PLAIN: dict[str, np.ufunc] = {
    **REAL_UFUNCS, "remainder": np.remainder, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite,
}  # fmt: skip
# references that are one ufunc on real floating operands
_FLOATING: dict[str, np.ufunc] = {"pow": np.power, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}
# references that are one ufunc on integers
_INTEGER: dict[str, np.ufunc] = {"floor_divide": np.floor_divide}


def _ufunc(op: Op, operands: Operands) -> np.ufunc | None:
    kernel: Any = KERNELS.get(op.name)
    kinds = {a.dtype.kind for a in operands}
    if kernel is None and "complex" not in kinds:
        kernel = _PLAIN.get(op.name)
    if kernel is None and kinds == {"float"}:
        kernel = _FLOATING.get(op.name)
    if kernel is None and kinds <= {"int", "uint"}:
        kernel = _INTEGER.get(op.name)
    return kernel if isinstance(kernel, np.ufunc) else None


# with a destination, which has to be named, NumPy's maximum and minimum take longer, which only memory in no cache is worth
_SLOW_INTO = frozenset({np.maximum, np.minimum})
_WORTH = 1 << 18  # bytes


def apply(ufunc: np.ufunc, operands: Operands, result: Aval) -> Kernel:
    """A ufunc on all operands."""
    args = ", ".join(f"{{{i}}}" for i in range(len(operands)))
    slow = ufunc in _SLOW_INTO
    into = f"{{f}}({args}, {'out=' if slow else ''}{{out}})"
    return Kernel(f"{{f}}({args})", {"f": ufunc}, None if slow and result.nbytes < _WORTH else into, layout=KEPT)


def _relu(x: Aval, **_: Any) -> Kernel:
    names: dict[str, Any] = {"f": np.maximum, "zero": np.zeros((), x.dtype.np)}
    return Kernel("{f}({0}, {zero})", names, "{f}({0}, {zero}, out={out})" if x.nbytes >= _WORTH else None, layout=KEPT)


def _sum(x: Aval, *, axes: tuple[int, ...], keepdims: bool) -> Kernel:
    count = size_of(x.shape[a] for a in axes)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    names: dict[str, Any] = {"reduce": np.add.reduce, "axes": axes, "dtype": x.dtype.np, "keepdims": keepdims}
    if x.dtype.kind not in ("float", "complex") or count <= PAIRWISE:
        return Kernel("{reduce}({0}, {axes}, {dtype}, None, {keepdims})", names, layout=KEPT)
    rows = (*(x.shape[i] for i in kept), count)
    moved = "{0}" if kept + axes == tuple(range(x.ndim)) else "{0}.transpose({order})"
    whole = moved if rows == x.shape and moved == "{0}" else f"{moved}.reshape({{rows}})"
    names |= {"order": kept + axes, "rows": rows, "contiguous": np.ascontiguousarray}
    expr = f"{{reduce}}({{contiguous}}({whole}), -1, {{dtype}})"
    if keepdims:
        names["shape"] = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
        expr += ".reshape({shape})"
    return Kernel(expr, names, layout=ROWS)


def _mean(x: Aval, *, axes: tuple[int, ...], keepdims: bool) -> Kernel:
    summed = _sum(x, axes=axes, keepdims=keepdims)
    count = np.asarray(size_of(x.shape[a] for a in axes), x.dtype.np)
    return Kernel(
        f"{{divide}}({summed.expr}, {{count}})", {**summed.names, "divide": np.divide, "count": count}, layout=summed.layout
    )


def _matmul(x1: Aval, x2: Aval) -> Kernel:
    kind = x1.dtype.kind
    inexact = kind in ("float", "complex")
    if x1.ndim == x2.ndim == 2 and (not inexact or blas.is_one_product(x1.shape, x2.shape)):
        alone = inexact and blas.keeps_alone(x1.shape[0], x1.shape[1], x2.shape[1])
        names: dict[str, Any] = {"matmul": blas.single_product if alone else np.matmul}
        return Kernel("{matmul}({0}, {1})", names, "{matmul}({0}, {1}, {out})", elementwise=False, layout=ROWS)
    return Kernel("{matmul}({0}, {1})", {"matmul": blas.matmul}, layout=ROWS)


def _cast(x: Aval, *, dtype: Any) -> Kernel | None:
    if (x.dtype.kind in ("float", "storage") and dtype.is_integer) or (dtype.np in NARROW and x.dtype.np in WIDE):
        return None
    return Kernel("{0}.astype({dtype})", {"dtype": dtype.np}, layout=KEPT)


def _where(operands: Operands, known: Known) -> Kernel:
    """NumPy's, but for a choice against 0, which is known here if the 0 is a constant."""
    condition, x1, _ = operands
    plain = Kernel("{f}({0}, {1}, {2})", {"f": np.where}, layout=KEPT)
    if condition.size <= selection.FEW or x1.dtype.np not in selection.BITS:
        return plain
    against = [i for i in (2, 1) if operands[i].ndim == 0 and operands[3 - i].shape == condition.shape]
    if not against:
        return plain
    zero = known[against[0]]
    if zero is None:
        return Kernel("{f}({0}, {1}, {2})", {"f": selection.where}, layout=KEPT)
    if not selection.is_zero(zero):
        return plain
    return Kernel("{f}({1}, {0})" if against[0] == 2 else "{f}({2}, ~{0})", {"f": selection.masked}, layout=KEPT)


def _clip(x: Aval, low: Aval, high: Aval) -> Kernel:
    names: dict[str, Any] = {"minimum": np.minimum, "maximum": np.maximum}
    into = "{minimum}({maximum}({0}, {1}), {2}, out={out})" if x.nbytes >= _WORTH else None
    return Kernel("{minimum}({maximum}({0}, {1}), {2})", names, into, layout=KEPT)


def _reshape(x: Aval, *, shape: tuple[int, ...]) -> Kernel:
    return Kernel("{0}.reshape({shape})", {"shape": shape}, layout=KEPT)


def _permute(x: Aval, *, axes: tuple[int, ...]) -> Kernel:
    return Kernel("{0}.transpose({axes})", {"axes": axes}, layout=KEPT if axes == tuple(range(x.ndim)) else ANY)


def _broadcast_to(x: Aval, *, shape: tuple[int, ...]) -> Kernel:
    return Kernel("{f}({0}, {shape})", {"f": np.broadcast_to, "shape": shape}, layout=KEPT)


def _slice(x: Aval, *, starts: Any, stops: Any, steps: Any, shape: Any = None) -> Kernel:
    expr = "{0}[{key}]" + ("" if shape is None else ".reshape({shape})")
    layout = KEPT if all(s > 0 for s in steps) else ANY
    return Kernel(expr, {"key": key_of(starts, stops, steps), "shape": shape}, layout=layout)


def _concat(*xs: Aval, axis: int) -> Kernel:
    return Kernel(
        f"{{f}}(({''.join(f'{{{i}}}, ' for i in range(len(xs)))}), {{axis}})", {"f": np.concatenate, "axis": axis}, layout=KEPT
    )


def _row_function(x: Aval, axis: int, finish: Callable[..., Any]) -> Kernel | None:
    """exp(x - max) and its sum along the last axis, and what ``finish`` makes of x - max, of these and of the sum."""
    if axis != x.ndim - 1 or not x.size:
        return None
    largest: Callable[..., Any] = np.maximum.reduce
    total, rows, dtype = np.add.reduce, np.ascontiguousarray, x.dtype.np
    shape = (*x.shape[:-1], 1)

    def function(x: Any) -> Any:
        x = rows(x)
        shifted = x - largest(x, axis, None, None, True)
        e = np.exp(shifted)
        return finish(shifted, e, total(e, axis, dtype).reshape(shape))

    return Kernel("{f}({0})", {"f": function}, layout=ROWS)


def _softmax(x: Aval, *, axis: int) -> Kernel | None:
    return _row_function(x, axis, lambda shifted, e, total: e / total)


def _log_softmax(x: Aval, *, axis: int) -> Kernel | None:
    return _row_function(x, axis, lambda shifted, e, total: shifted - np.log(total))


def _layer_norm(x: Aval, weight: Aval, bias: Aval, *, eps: float) -> Kernel | None:
    """The reference on row-major memory, written over its own values."""
    if not x.size:
        return None
    total: Callable[..., Any] = np.add.reduce
    rows, dtype, count = np.ascontiguousarray, x.dtype.np, x.shape[-1]
    least = np.asarray(eps, dtype)

    def function(x: Any, weight: Any, bias: Any) -> Any:
        x = rows(x)
        y = x - total(x, (-1,), dtype, None, True) / count
        y -= total(y, (-1,), dtype, None, True) / count  # what the mean's rounding lost
        y *= inverse_spread(total(y * y, (-1,), dtype, None, True) / count, least, np.sqrt)
        y *= weight
        y += bias
        return y

    return Kernel("{f}({0}, {1}, {2})", {"f": function}, layout=ROWS)


def _gather(x: Aval, indices: Aval, *, axis: int) -> Kernel:
    """``np.take_along_axis``, whose positions along the other axes are known here."""
    grid: list[Any] = [np.arange(n).reshape([-1 if k == i else 1 for k in range(x.ndim)]) for i, n in enumerate(indices.shape)]
    before, after, size = tuple(grid[:axis]), tuple(grid[axis + 1 :]), x.shape[axis]

    def function(x: Any, indices: Any) -> Any:
        check_indices(indices, size, "gather")
        return x[(*before, indices, *after)]

    return Kernel("{f}({0}, {1})", {"f": function})


_SETTLED: dict[str, Callable[..., Kernel | None]] = {
    "relu": _relu, "sum": _sum, "mean": _mean, "matmul": _matmul, "cast": _cast, "clip": _clip,
    "reshape": _reshape, "permute": _permute, "broadcast_to": _broadcast_to, "slice": _slice, "concat": _concat,
    "softmax": _softmax, "log_softmax": _log_softmax, "gather": _gather, "layer_norm": _layer_norm,
}  # fmt: skip

# kernels that give row-major results: whatever their operands; if their operands are
_IN_ROWS = frozenset({"attention", "conv", "conv_weight", "index_add", "scatter", "scatter_add", "pad", "take", "layer_norm"})
_AS_OPERANDS = frozenset({"gelu", "gelu_gradient", "erf", "split", "sigmoid"})


def _layout(op: Op, operands: Operands, params: dict[str, Any]) -> str:
    if op.name in _IN_ROWS or (op.name in ("softmax", "log_softmax") and params["axis"] == operands[0].ndim - 1):
        return ROWS
    return KEPT if op.name in _AS_OPERANDS else ANY


def settle(op: Op, operands: Operands, params: dict[str, Any], results: Operands, known: Known) -> Kernel:
    """The kernel of an op on operands whose dtypes NumPy computes with."""
    ufunc = _ufunc(op, operands)
    found: Kernel | None
    if ufunc is not None:
        found = apply(ufunc, operands, results[0])
    elif op.name == "where":
        found = _where(operands, known)
    else:
        choose = _SETTLED.get(op.name)
        found = None if choose is None else choose(*operands, **params)
    if found is None:
        found = call(KERNELS.get(op.name, op.reference), len(operands), params, _layout(op, operands, params))
    if any(a.ndim == 0 for a in results) and not op.view:  # NumPy returns scalars for arrays without axes
        name, whole = ("asarray", np.asarray) if len(results) == 1 else ("arrays", _arrays)
        return replace(found, expr=f"{{{name}}}({found.expr})", names={**found.names, name: whole})
    return found


def _arrays(results: Any) -> Any:
    return tuple(np.asarray(r) for r in results) if type(results) is tuple else np.asarray(results)


def widened(
    kernel: Kernel, operands: Operands, stored: np.dtype[Any], wide: np.dtype[Any], narrow: Callable[..., Any]
) -> Kernel:
    """A kernel on operands of a dtype that NumPy only stores: computed in a wider one and rounded once."""
    casts = [f"{{{i}}}.astype({{wide}})" if a.dtype.np == stored else f"{{{i}}}" for i, a in enumerate(operands)]
    expr = kernel.expr
    for i, text in enumerate(casts):
        expr = expr.replace(f"{{{i}}}", text)
    return Kernel(
        f"{{narrow}}({expr}, {{wide}}, {{stored}})", {**kernel.names, "wide": wide, "stored": stored, "narrow": narrow}
    )
