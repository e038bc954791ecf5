"""What functions along axes share: checks of operands at the entry, the dtype that sums have, and rows.

Nothing here is public: each check names the public function that the user called, and its argument.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.dtypes import DType, bool_, dtype_argument, float32, float64
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.operands import check_operand, check_out, describe
from firebrick.core.shapes import normalize_axes, normalize_axis, reduced_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import permute_dims, reshape
from firebrick.ops import OPS

Axis = int | tuple[int, ...] | None

operand = check_operand


def nonempty(where: str, x: Tensor, axes: tuple[int, ...]) -> None:
    """Check that no axis which a reduction looks along is empty."""
    if any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{where} of no elements is undefined", describe("x", x), "check for emptiness first", op=where)


def one_axis(where: str, x: Tensor, axis: int | None) -> int:
    """The axis to go along, which a tensor of one axis need not be told."""
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"{where} needs axis= unless x has one axis", describe("x", x), "name the axis", op=where)
        return 0
    return normalize_axis(axis, x.ndim, where)


def reduce(name: str, x: Tensor, axis: Axis, keepdims: bool, out: Tensor | None = None) -> Tensor:
    """A reduction of the op table."""
    operand(name, x)
    params = {"axes": normalize_axes(axis, x.ndim, name), "keepdims": bool(keepdims)}
    return bind(OPS[name], (x,), params, out)  # type: ignore[no-any-return]


def check_reduced(where: str, x: Tensor, axis: Axis, keepdims: bool, dtype: DType, out: Tensor | None) -> None:
    """Check ``out`` at the entry of a function that computes something else first."""
    if out is not None:
        shape = reduced_shape(x.shape, normalize_axes(axis, x.ndim, where), keepdims)
        check_out(where, out, x.device, Aval(shape, dtype))


def default_int(x: Tensor) -> DType:
    """The default integer dtype of a tensor's device."""
    return as_dtype(x.device.backend.default_int(x.device))


def accumulator(where: str, x: Tensor, dtype: Any) -> DType:
    """The dtype that sums and products have: the one asked for, or the default integer width for narrower integers."""
    if dtype is not None:
        goal = dtype_argument(where, dtype)
        if goal.kind in ("bool", "storage") or (x.dtype.kind == "complex" and goal.kind != "complex"):
            raise DTypeError(
                f"{where}: dtype is one to accumulate {x.dtype.name} in",
                f"dtype={goal.name}, {describe('x', x)}",
                f"accumulate in a numeric dtype, and cast the result: fb.astype(…, fb.{goal.name})"
                if goal.kind != "float"
                else "take the real part first: fb.real(x)",
                op=where,
            )
        return goal
    if x.dtype.kind == "bool":
        return default_int(x)
    if x.dtype.is_integer:
        wide = as_dtype(default_int(x).name.replace("int", "uint") if x.dtype.kind == "uint" else default_int(x))
        return wide if x.dtype.itemsize < wide.itemsize else x.dtype
    return x.dtype


def widest(x: Tensor) -> DType:
    """float64, or float32 on a device that does not compute in float64."""
    return float64 if x.device.backend.supports_dtype(x.device, float64) else float32


def truth(x: Tensor) -> Tensor:
    """Whether each element is non-zero."""
    true: Tensor = bind(OPS["not_equal"], (x, 0), {}) if x.dtype.kind == "complex" else astype(x, bool_, copy=False)
    return true


def rows(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """``x`` with ``axes`` moved last and flattened into one."""
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = permute_dims(x, (*kept, *axes)) if [*kept, *axes] != list(range(x.ndim)) else x
    size = 1
    for a in axes:
        size *= x.shape[a]
    return reshape(moved, (*(x.shape[i] for i in kept), size))
