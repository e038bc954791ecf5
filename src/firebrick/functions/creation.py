"""Creation functions of the Array API standard, one-hot rows, and the triangles of matrices.

What the host can count is counted there, integers exactly and the rest in double precision, and moves to the device in the
dtype of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Never

import numpy as np

from firebrick.backends.contract import check_storable
from firebrick.backends.memory import out_of_memory
from firebrick.backends.registry import find_device
from firebrick.core import dtypes
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DTypeError, OperandError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_operand, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments, several_sizes, unknown_argument
from firebrick.core.rounding import number
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, weak_scalar
from firebrick.functions.checks import check_range, deferred, known_now
from firebrick.functions.conversion import cast_host, check_fits, default_dtype, dtype_for, number_later
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import _list, broadcast_to, permute_dims, reshape
from firebrick.ops import OPS


def _check_numbers(where: str, **values: Any) -> None:
    """Check that arguments are numbers, one each."""
    for name, value in values.items():
        if isinstance(value, Weak):
            raise value.unknown(f"{where}: {name}")
        if isinstance(value, int):  # of any size
            continue
        if isinstance(value, (str, bytes)) or np.ndim(value) or np.asarray(value).dtype.kind in "USOMm":
            raise OperandError(f"{where}: {name} is a number", f"{type(value).__name__} {value!r:.60}", "pass a Python scalar")


def _check_plain(where: str, **values: Any) -> None:
    """Check that arguments are Python's (or NumPy's) numbers, which the host counts with."""
    _check_numbers(where, **values)
    for name, value in values.items():
        if isinstance(value, Tensor):
            raise OperandError(f"{where}: {name} is a Python number", describe(name, value), f"read it: {name}.item()")


@answers_arguments
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one value.

    Args:
        shape: Sizes: an int or a tuple of ints ≥ 0.
        fill_value: One number; complex only with a complex dtype.
        dtype: Dtype of the result; by default bool, or the device's default integer, float or complex dtype, by the kind of
            fill_value.
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
    if deferred(fill_value) or (hooks.trace() is not None and isinstance(fill_value, Weak)):
        return _filled_later(where, sizes, fill_value, dtype, goal)
    return hooks.from_host(_host_filled(where, sizes, fill_value, dtype, goal), goal)


def _host_filled(where: str, sizes: tuple[int, ...], fill_value: Any, dtype: Any, goal: Device) -> np.ndarray[Any, Any]:
    """One element seen everywhere: the engine's own copy is the only one made."""
    if not isinstance(fill_value, int):  # which may be of any size
        _check_numbers(where, fill_value=fill_value)
    dt = dtype_for(fill_value, None if dtype is None else dtypes.dtype_argument(where, dtype), goal)
    check_storable(dt, goal)
    if isinstance(fill_value, Tensor):  # checked for range like any number
        fill_value = fill_value.item()
    if isinstance(fill_value, (bool, int, float, complex)):
        fill_value = _host_scalar(where, fill_value, dt)
    _check_room(where, sizes, dt, goal)
    return np.broadcast_to(cast_host(where, np.asarray(fill_value), dt), sizes)


def _filled_later(where: str, sizes: tuple[int, ...], value: Tensor | Weak, dtype: Any, device: Device) -> Tensor:
    """A tensor of one value that is known when the graph runs."""
    if isinstance(value, Weak):
        dt = None if dtype is None else dtypes.dtype_argument(where, dtype)
        if dt is not None and dt.is_integer:
            given, fitting = value.value, partial(_host_scalar, where, dt=dt)
            value = Weak(int, value.name, lambda numbers: int(fitting(value=given(numbers))), value.arguments)
        return broadcast_to(number_later(where, value, dtype, device), sizes)
    if value.ndim:
        _check_numbers(where, fill_value=value)
    kind = value.dtype.kind
    dt = dtype_for(np.empty((), value.dtype.np), None if dtype is None else dtypes.dtype_argument(where, dtype), device)
    check_storable(dt, device)
    if kind == "complex" and dt.kind != "complex":
        raise DTypeError(
            f"{where}: complex numbers need a complex dtype", describe("fill_value", value), "take the real part first"
        )
    if dt.is_integer and kind != "bool" and dtypes.promote(value.dtype, dt) is not dt:
        known_now(where, f"whether it fits {dt.name}", "fill_value", value, f"cast it: fb.astype(fill_value, fb.{dt.name})")
    return broadcast_to(astype(value.detach(), dt), sizes)


def _host_scalar(where: str, value: Any, dt: DType) -> np.ndarray[Any, Any]:
    """A Python scalar for the host, if it lies in the range of the dtype that it is to have."""
    if dt.is_integer and not isinstance(value, complex):
        info = dtypes.iinfo(dt)
        if not info.min <= value <= info.max:  # False for NaN
            want = f"{where}: fill_value must lie in the range of {dt.name}, [{info.min}, {info.max}]"
            raise DTypeError(want, f"fill_value={value!r:.60}", "choose a wider dtype")
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
        fill_value: One number; complex only with a complex dtype.
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
def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """start, start + step, … before stop (0, 1, … before start if stop is left out).

    Args:
        start: First number; the end, not included, if stop is left out.
        stop: End, not included.
        step: Distance of neighbours, not 0; negative to count down.
        dtype: Dtype of the result; by default the device's default integer dtype if all three are ints, else its default
            float.
        device: Device of the result; the default device if left out.

    Returns:
        Vector of max(0, ⌈(stop - start) / step⌉) elements. Integers are counted exactly.

    Raises:
        ShapeError: step is 0.
        ConfigError: An argument is infinite or NaN.
        DTypeError: An integer is not in the range of an integer dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    goal = find_device(device)
    start, stop, step = map(weak_scalar, (start, stop, step))
    low, high = (0, start) if stop is None else (start, stop)
    _check_plain("arange", start=low, stop=high, step=step)
    if any(isinstance(v, (complex, np.complexfloating)) for v in (low, high, step)):
        raise OperandError("arange: start, stop and step are real numbers", f"{low}, {high} and {step}", "use fb.linspace")
    if step == 0:
        raise ShapeError("arange needs a step other than 0", "step 0", "pass 1 or -1")
    if not all(-np.inf < v < np.inf for v in (low, high, step)):
        raise ConfigError("arange: start, stop and step are finite", f"{low}, {high} and {step}", "pass finite numbers")
    host = _range(low, high, step, goal)
    dt = dtype_for(host, None if dtype is None else dtypes.dtype_argument("arange", dtype), goal)
    check_fits("arange", host, dt)
    return hooks.from_host(cast_host("arange", host, dt), goal)


def _range(low: Any, high: Any, step: Any, device: Device) -> np.ndarray[Any, Any]:
    """What ``arange`` counts on the host: integers exactly, in uint64 where int64 does not hold them."""
    whole_numbers = all(isinstance(v, (int, np.integer)) for v in (low, high, step))
    if whole_numbers:
        low, high, step = int(low), int(high), int(step)
        count = max(0, -((low - high) // step))
    else:
        count = int(max(0, np.ceil((high - low) / step)))
    _check_room("arange", (count,), dtypes.int64, device)
    try:
        if whole_numbers and count:
            ends = sorted((low, low + (count - 1) * step))  # counting wraps, which these do not
            if ends[0] < -(1 << 63) or ends[1] >= 1 << (64 if ends[0] >= 0 else 63):
                raise DTypeError("arange: integers must fit 64 bits", f"{ends[0]} to {ends[1]}", "pass floats")
            bits = np.arange(count, dtype=np.uint64) * np.uint64(step % (1 << 64)) + np.uint64(low % (1 << 64))
            return bits.view(np.uint64 if ends[1] >= 1 << 63 else np.int64)
        return np.arange(low, high, step)
    except MemoryError:
        raise out_of_memory("arange", (Aval((count,), dtypes.int64),), device) from None


def _check_room(where: str, sizes: tuple[int, ...], dt: DType, device: Device) -> None:
    """Check that an address space can hold a tensor."""
    if prod(sizes) * dt.itemsize >= 1 << 63:
        raise out_of_memory(where, (Aval(sizes, dt),), device)


def _spaced(where: str, values: Any, dtype: Any, device: Any) -> Tensor:
    """Numbers that the host spaced in float64 or complex128, in the dtype asked for or the device's default."""
    goal = find_device(device)
    return hooks.from_host(cast_host(where, values, dtype_for(values, dtype, goal)), goal)


def _number(where: str, start: Any, stop: Any, num: Any) -> int:
    """How many elements to space, after a look at the ends."""
    _check_plain(where, start=start, stop=stop)
    (count,) = normalize_shape(num, f"{where}: num") if not isinstance(num, (tuple, list)) else (-1,)
    if count < 0:
        raise ShapeError(f"{where}: num is an int ≥ 0", repr(num), "pass how many numbers to make")
    return count


@answers_arguments
def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """``num`` numbers evenly spaced from start to stop.

    Args:
        start: First number.
        stop: Last number.
        num: How many, an int ≥ 0.
        dtype: Dtype of the result; the device's default float (complex, if an end is) if left out.
        device: Device of the result; the default device if left out.
        endpoint: Whether stop is the last number; if not, num + 1 are spaced and the last is left out.

    Returns:
        Vector [num], spaced in double precision before it is cast.

    Raises:
        ShapeError: num is no int ≥ 0.

    Example:
        >>> import firebrick as fb
        >>> fb.linspace(0.0, 1.0, 3).tolist()
        [0.0, 0.5, 1.0]
    """
    start, stop = weak_scalar(start), weak_scalar(stop)
    return _spaced(
        "linspace", np.linspace(start, stop, _number("linspace", start, stop, num), endpoint=endpoint), dtype, device
    )


@answers_arguments
def logspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    base: float = 10.0,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """``num`` powers of ``base`` whose exponents are evenly spaced from start to stop.

    Args:
        start: First exponent.
        stop: Last exponent.
        num: How many, an int ≥ 0.
        base: Base of the powers.
        dtype: Dtype of the result; the device's default float if left out.
        device: Device of the result; the default device if left out.
        endpoint: Whether stop is the last exponent; if not, num + 1 are spaced and the last is left out.

    Returns:
        Vector [num], spaced in double precision before it is cast.

    Raises:
        ShapeError: num is no int ≥ 0.

    Example:
        >>> import firebrick as fb
        >>> fb.logspace(0, 2, 3).tolist()
        [1.0, 10.0, 100.0]
    """
    start, stop, base = map(weak_scalar, (start, stop, base))
    found = np.logspace(start, stop, _number("logspace", start, stop, num), base=base, endpoint=endpoint)
    return _spaced("logspace", found, dtype, device)


@answers_arguments
def geomspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """``num`` numbers from start to stop, each a constant multiple of the one before.

    Args:
        start: First number, not 0.
        stop: Last number, not 0; of start's sign, if both are real.
        num: How many, an int ≥ 0.
        dtype: Dtype of the result; the device's default float (complex, if an end is) if left out.
        device: Device of the result; the default device if left out.
        endpoint: Whether stop is the last number; if not, num + 1 are spaced and the last is left out.

    Returns:
        Vector [num], spaced in double precision before it is cast.

    Raises:
        OutOfRangeError: An end is 0, or the signs of real ends differ.
        ShapeError: num is no int ≥ 0.

    Example:
        >>> import firebrick as fb
        >>> fb.geomspace(1.0, 8.0, 4).tolist()
        [1.0, 2.0, 4.0, 8.0]
    """
    start, stop = weak_scalar(start), weak_scalar(stop)
    count = _number("geomspace", start, stop, num)
    if start == 0 or stop == 0:
        raise OutOfRangeError("geomspace: start and stop must not be 0", f"{start} to {stop}", "use fb.linspace")
    if not isinstance(start, complex) and not isinstance(stop, complex) and (start < 0) != (stop < 0):
        raise OutOfRangeError("geomspace: start and stop must have one sign", f"{start} to {stop}", "use fb.linspace")
    return _spaced("geomspace", np.geomspace(start, stop, count, endpoint=endpoint), dtype, device)


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


@answers_arguments
def tril_indices(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and below the k-th diagonal, row by row: a key, ``x[fb.tril_indices(n)]``.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; n_rows if left out.
        k: Which diagonal: 0 the main one, positive above it, negative below it.
        device: Device of the result; the default device if left out.

    Returns:
        Two int64 vectors, with one entry for each element.

    Example:
        >>> import firebrick as fb
        >>> [at.tolist() for at in fb.tril_indices(2)]
        [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", n_rows, n_cols, k, device, lower=True)


@answers_arguments
def triu_indices(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and above the k-th diagonal, row by row: a key, ``x[fb.triu_indices(n)]``.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; n_rows if left out.
        k: Which diagonal: 0 the main one, positive above it, negative below it.
        device: Device of the result; the default device if left out.

    Returns:
        Two int64 vectors, with one entry for each element.

    Example:
        >>> import firebrick as fb
        >>> [at.tolist() for at in fb.triu_indices(2)]
        [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", n_rows, n_cols, k, device, lower=False)


def _triangle(where: str, n_rows: int, n_cols: int | None, k: int, device: Any, *, lower: bool) -> tuple[Tensor, Tensor]:
    goal = find_device(device)
    rows, columns = normalize_shape((n_rows, n_rows if n_cols is None else n_cols), where)
    k = whole(where, "k", k)
    below = np.tri(rows, columns, k if lower else k - 1, dtype=np.bool_)
    first, second = (hooks.from_host(at.astype(np.int64), goal) for at in np.nonzero(below if lower else ~below))
    return first, second


def _matrix(where: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise not_a_tensor(where, "x", x, None)
    if x.ndim < 2:
        raise ShapeError(f"{where} needs at least two axes", describe("x", x), "add an axis")
    return x


@answers_arguments
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two axes.

    Args:
        x: Tensor [..., m, n] of any dtype.
        k: Which diagonal: 0 the main one, positive above it, negative below it.

    Example:
        >>> import firebrick as fb
        >>> fb.tril(fb.ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    x, k = _matrix("tril", x), whole("tril", "k", k)
    keep = hooks.from_host(np.tri(x.shape[-2], x.shape[-1], k, dtype=np.bool_), x.device)
    return OPS["where"](keep, x, False if x.dtype.kind == "bool" else 0)  # type: ignore[no-any-return]


@answers_arguments
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two axes.

    Args:
        x: Tensor [..., m, n] of any dtype.
        k: Which diagonal: 0 the main one, positive above it, negative below it.

    Example:
        >>> import firebrick as fb
        >>> fb.triu(fb.ones((2, 2))).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    x, k = _matrix("triu", x), whole("triu", "k", k)
    drop = hooks.from_host(np.tri(x.shape[-2], x.shape[-1], k - 1, dtype=np.bool_), x.device)
    return OPS["where"](drop, False if x.dtype.kind == "bool" else 0, x)  # type: ignore[no-any-return]


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
