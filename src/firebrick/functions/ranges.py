"""``arange``, ``linspace``, ``logspace`` and ``geomspace``: numbers at equal distances or ratios.

The host counts them, integers exactly and the rest in double precision, and moves them to the device in the dtype of the
result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.backends.memory import out_of_memory
from firebrick.backends.registry import find_device
from firebrick.core import dtypes
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.errors import ConfigError, DTypeError, OperandError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.core.weak import weak_scalar
from firebrick.functions.conversion import cast_host, check_fits, dtype_for
from firebrick.functions.creation_arguments import check_plain, check_room


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
    check_plain("arange", start=low, stop=high, step=step)
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
    check_room("arange", (count,), dtypes.int64, device)
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


def _spaced(where: str, values: Any, dtype: Any, device: Any) -> Tensor:
    """Numbers that the host spaced in float64 or complex128, in the dtype asked for or the device's default."""
    goal = find_device(device)
    return hooks.from_host(cast_host(where, values, dtype_for(values, dtype, goal)), goal)


def _number(where: str, start: Any, stop: Any, num: Any) -> int:
    """How many elements to space, after a look at the ends."""
    check_plain(where, start=start, stop=stop)
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
