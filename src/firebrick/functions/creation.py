"""Creation functions of the Array API standard that fill a shape, one-hot rows, identity matrices and grids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any, Never

import numpy as np

from firebrick.backends.contract import check_storable
from firebrick.backends.registry import find_device
from firebrick.core import dtypes
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_operand, describe
from firebrick.core.other_arguments import answers_arguments, several_sizes, unknown_argument
from firebrick.core.rounding import number
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, weak_scalar
from firebrick.functions.checks import check_range, known_now
from firebrick.functions.conversion import cast_host, default_dtype, dtype_for, number_later
from firebrick.functions.creation_arguments import check_numbers, check_room
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import _list, broadcast_to, permute_dims, reshape, to_device
from firebrick.functions.ranges import arange
from firebrick.ops import OPS


@answers_arguments
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one value.

    Args:
        shape: Sizes: an int or a tuple of ints ≥ 0.
        fill_value: One number; complex only with a complex dtype. A tensor of shape () is differentiated.
        dtype: Dtype of the result; by default that of a tensor or a NumPy array, else bool, or the device's default integer,
            float or complex dtype, by the kind of fill_value.
        device: Device of the result; the default device if left out.

    Raises:
        DTypeError: A Python number is not in the range of the dtype, or the device cannot store the dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.full(2, 7.0).tolist()
        [7.0, 7.0]
    """
    return _filled("full", shape, fill_value, dtype, device)


def filler(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Callable[[], Tensor]:
    """A function that makes the same tensor as ``full`` at each call, and checks the arguments only now.

    Args:
        shape: As for ``full``.
        fill_value: A Python number.
        dtype: As for ``full``.
        device: As for ``full``.
    """
    goal = find_device(device)
    host = _host_filled("full", normalize_shape(shape, "full"), fill_value, dtype, goal)
    return lambda: hooks.from_host(host, goal)


def _filled(where: str, shape: Any, fill_value: Any, dtype: Any, device: Any) -> Tensor:
    goal = find_device(device)
    sizes = normalize_shape(shape, where)
    fill_value = weak_scalar(fill_value)
    if isinstance(fill_value, Tensor):
        return _filled_by_tensor(where, sizes, fill_value, dtype, goal)
    if hooks.trace() is not None and isinstance(fill_value, Weak):
        return _filled_later(where, sizes, fill_value, dtype, goal)
    if isinstance(fill_value, np.ndarray) and dtype is None:
        dtype = fill_value.dtype
    return hooks.from_host(_host_filled(where, sizes, fill_value, dtype, goal), goal)


def _host_filled(where: str, sizes: tuple[int, ...], fill_value: Any, dtype: Any, goal: Device) -> np.ndarray[Any, Any]:
    """One element seen everywhere: the engine's own copy is the only one made."""
    if not isinstance(fill_value, int):  # which may be of any size
        check_numbers(where, fill_value=fill_value)
    dt = dtype_for(fill_value, None if dtype is None else dtypes.dtype_argument(where, dtype), goal)
    check_storable(dt, goal)
    if isinstance(fill_value, (bool, int, float, complex)):
        fill_value = _host_scalar(where, fill_value, dt)
    check_room(where, sizes, dt, goal)
    return np.broadcast_to(cast_host(where, np.asarray(fill_value), dt), sizes)


def _filled_later(where: str, sizes: tuple[int, ...], value: Weak, dtype: Any, device: Device) -> Tensor:
    """A tensor of one Python number that is known when the graph runs."""
    dt = None if dtype is None else dtypes.dtype_argument(where, dtype)
    if dt is not None and dt.is_integer:
        given, fitting = value.value, partial(_host_scalar, where, dt=dt)
        value = Weak(int, value.name, lambda numbers: int(fitting(value=given(numbers))), value.arguments)
    return broadcast_to(number_later(where, value, dtype, device), sizes)


def _filled_by_tensor(where: str, sizes: tuple[int, ...], value: Tensor, dtype: Any, device: Device) -> Tensor:
    """A tensor of one element of a tensor, through which gradients pass."""
    if value.ndim:
        check_numbers(where, fill_value=value)
    dt = value.dtype if dtype is None else dtypes.dtype_argument(where, dtype)
    check_storable(dt, device)
    if value.dtype.kind == "complex" and dt.kind != "complex":
        raise DTypeError(
            f"{where}: complex numbers need a complex dtype", describe("fill_value", value), "take the real part first"
        )
    if dt.is_integer and value.dtype.kind != "bool" and dtypes.promote(value.dtype, dt) is not dt:
        known_now(where, f"whether it fits {dt.name}", "fill_value", value, f"cast it: fb.astype(fill_value, fb.{dt.name})")
        _host_scalar(where, value.item(), dt)
    check_room(where, sizes, dt, device)
    return broadcast_to(astype(to_device(value, device), dt), sizes)


def _host_scalar(where: str, value: Any, dt: DType) -> np.ndarray[Any, Any]:
    """A Python scalar for the host, if it lies in the range of the dtype that it is to have."""
    if dt.is_integer and not isinstance(value, complex):
        info = dtypes.iinfo(dt)
        if not info.min <= value <= info.max:  # False for NaN
            want = f"{where}: fill_value must lie in the range of {dt.name}, [{info.min}, {info.max}]"
            remedy = "choose a wider dtype" if isinstance(value, int) or isfinite(value) else "choose a floating dtype"
            raise DTypeError(want, f"fill_value={value!r:.60}", remedy)
        return np.asarray(value, dt.np)
    try:
        whole = float if dt.itemsize == 8 else number  # which any narrower float rounds once
        return np.asarray(whole(value) if type(value) is int else value)
    except OverflowError:
        want = f"{where}: fill_value must fit into a float"
        raise DTypeError(want, f"an int of {value.bit_length()} bits", "use a smaller one") from None


def zeros(shape: Any, *_sizes: Never, dtype: Any = None, device: Any = None, **_other: Never) -> Tensor:
    """Zeros.

    Args:
        shape: Sizes: an int or a tuple of ints ≥ 0.
        dtype: Dtype of the result; the device's default float if left out.
        device: Device of the result; the default device if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.zeros((1, 2)).tolist()
        [[0.0, 0.0]]
    """
    if _other:
        raise unknown_argument(zeros, _other)
    if _sizes:
        raise several_sizes("zeros", shape, _sizes)
    return _filled("zeros", shape, 0.0 if dtype is None else 0, dtype, device)


def ones(shape: Any, *_sizes: Never, dtype: Any = None, device: Any = None, **_other: Never) -> Tensor:
    """Ones.

    Args:
        shape: Sizes: an int or a tuple of ints ≥ 0.
        dtype: Dtype of the result; the device's default float if left out.
        device: Device of the result; the default device if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.ones(2).tolist()
        [1.0, 1.0]
    """
    if _other:
        raise unknown_argument(ones, _other)
    if _sizes:
        raise several_sizes("ones", shape, _sizes)
    return _filled("ones", shape, 1.0 if dtype is None else 1, dtype, device)


def empty(shape: Any, *_sizes: Never, dtype: Any = None, device: Any = None, **_other: Never) -> Tensor:
    """A tensor of unspecified values, to be filled by ``out=``; they are zeros.

    Args:
        shape: Sizes: an int or a tuple of ints ≥ 0.
        dtype: Dtype of the result; the device's default float if left out.
        device: Device of the result; the default device if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.empty((2, 0)).shape
        (2, 0)
    """
    if _other:
        raise unknown_argument(empty, _other)
    if _sizes:
        raise several_sizes("empty", shape, _sizes)
    return _filled("empty", shape, 0.0 if dtype is None else 0, dtype, device)


def _like(where: str, x: Any, fill_value: Any, dtype: Any, device: Any) -> Tensor:
    check_operand(where, x)
    dtype = x.dtype if dtype is None else dtype
    return _filled(where, x.shape, fill_value, dtype, x.device if device is None else device)


@answers_arguments
def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one value with x's shape.

    Args:
        x: Tensor of any shape and dtype.
        fill_value: One number; complex only with a complex dtype. A tensor of shape () is differentiated.
        dtype: Dtype of the result; x's if left out.
        device: Device of the result; x's if left out.

    Raises:
        DTypeError: A Python number is not in the range of the dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.full_like(fb.zeros(2), 3.0).tolist()
        [3.0, 3.0]
    """
    return _like("full_like", x, fill_value, dtype, device)


@answers_arguments
def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros with x's shape.

    Args:
        x: Tensor of any shape and dtype.
        dtype: Dtype of the result; x's if left out.
        device: Device of the result; x's if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.zeros_like(fb.ones(2)).tolist()
        [0.0, 0.0]
    """
    return _like("zeros_like", x, 0, dtype, device)


@answers_arguments
def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones with x's shape.

    Args:
        x: Tensor of any shape and dtype.
        dtype: Dtype of the result; x's if left out.
        device: Device of the result; x's if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.ones_like(fb.zeros(2)).tolist()
        [1.0, 1.0]
    """
    return _like("ones_like", x, 1, dtype, device)


@answers_arguments
def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of x's shape and unspecified values, to be filled by ``out=``; they are zeros.

    Args:
        x: Tensor of any shape and dtype.
        dtype: Dtype of the result; x's if left out.
        device: Device of the result; x's if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.empty_like(fb.ones((2, 3))).shape
        (2, 3)
    """
    return _like("empty_like", x, 0, dtype, device)


@answers_arguments
def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Matrix [n_rows, n_cols] of ones on a diagonal, zeros elsewhere.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; n_rows if left out.
        k: Which diagonal: 0 the main one, positive above it, negative below it.
        dtype: Dtype of the result; the device's default float if left out.
        device: Device of the result; the default device if left out.

    Example:
        >>> import firebrick as fb
        >>> fb.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    goal = find_device(device)
    dt = as_dtype(dtype) if dtype is not None else default_dtype("float", goal)
    rows, columns = normalize_shape((n_rows, n_rows if n_cols is None else n_cols), "eye")
    k = whole("eye", "k", k)
    return hooks.from_host(np.eye(rows, columns, k).astype(dt.np), goal)


@answers_arguments
def one_hot(x: Tensor, /, num_classes: int, *, dtype: Any = dtypes.float32) -> Tensor:
    """One row of zeros with a one at each index: shape [..., num_classes].

    Args:
        x: Integer tensor of any shape, with indices in [0, num_classes).
        num_classes: Length of the rows.
        dtype: Dtype of the result.

    Raises:
        OutOfRangeError: An index lies outside [0, num_classes).

    Example:
        >>> import firebrick as fb
        >>> fb.one_hot(fb.asarray([1]), 3).tolist()
        [[0.0, 1.0, 0.0]]
    """
    check_operand("one_hot", x, "integer")
    classes = whole("one_hot", "num_classes", num_classes, 0)
    goal = dtypes.dtype_argument("one_hot", dtype)
    check_range("one_hot", "x", x, 0, classes, "check the labels")
    rows = astype(reshape(x, (*x.shape, 1)), dtypes.int64, copy=False)
    return astype(OPS["equal"](rows, arange(classes, dtype=dtypes.int64, device=x.device)), goal)


def meshgrid(*arrays: Tensor, indexing: str = "xy", **_other: Never) -> list[Tensor]:
    """Coordinate tensors of a grid, from one vector for each axis.

    Args:
        *arrays: Vectors on one device, one at least; a tensor without axes counts as a vector of one element.
        indexing: ``"ij"``: axis i of the grid goes along the i-th vector; ``"xy"``: the first two axes are swapped.

    Returns:
        One tensor for each vector, of its dtype, all with the shape of the grid.

    Example:
        >>> import firebrick as fb
        >>> [g.tolist() for g in fb.meshgrid(fb.asarray([1, 2]), fb.asarray([3]), indexing="ij")]
        [[[1], [2]], [[3], [3]]]
    """
    if _other:
        raise unknown_argument(meshgrid, _other)
    found = _list("meshgrid", arrays)
    for i, a in enumerate(found):
        if a.ndim > 1:
            raise ShapeError("meshgrid takes vectors", describe(f"arrays[{i}]", a), "flatten it: fb.ravel")
    if indexing not in ("xy", "ij"):
        raise ShapeError('meshgrid: indexing is "xy" or "ij"', repr(indexing), "use one of these")
    n = len(found)
    shape = tuple(a.size for a in found)
    out = [broadcast_to(reshape(a, tuple(-1 if i == j else 1 for j in range(n))), shape) for i, a in enumerate(found)]
    if indexing == "xy" and n > 1:
        out = [permute_dims(g, (1, 0, *range(2, n))) for g in out]
    return out
