"""Creation functions, exchange with other libraries, and what the Array API standard asks of a namespace."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from firebrick.backends.dispatch import check_storable, wrap
from firebrick.backends.registry import default_device, find_device
from firebrick.backends.transfer import out_of_memory
from firebrick.core import dtypes
from firebrick.core.aval import Aval
from firebrick.core.bind import check_operand, describe, not_a_tensor
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DTypeError, OperandError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_shape
from firebrick.core.storage import BORROWED, Storage
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import _list, broadcast_to, permute_dims, reshape, stack, to_device
from firebrick.ops import OPS


def _default(kind: str, device: Device) -> DType:
    found = device.backend.default_int(device) if kind == "int" else device.backend.default_float(device)
    return as_dtype(found)


def _dtype_for(value: Any, dtype: Any, device: Device) -> DType:
    if dtype is not None:
        return as_dtype(dtype)
    kind = np.asarray(value).dtype.kind
    if kind == "b":
        return dtypes.bool_
    if kind in "iu":
        return _default("int", device)
    if kind == "c":
        return dtypes.complex64 if _default("float", device) is dtypes.float32 else dtypes.complex128
    return _default("float", device)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor from Python scalars and nested lists, NumPy arrays, tensors, or anything that speaks DLPack.

    Args:
        obj: What to convert. A NumPy array keeps its dtype; Python numbers get the device's default float or int.
        dtype: Dtype of the result. Nothing narrows unless this says so.
        device: Device of the result; by default that of a tensor, else the default device.
        copy: A NumPy array is copied unless False, which borrows its memory (host engines; never written) or raises.

    Raises:
        DTypeError: The device cannot store the dtype, or the object has none of Firebrick's dtypes.
        OperandError: The object is no array, or is ragged.

    Example:
        >>> import firebrick as fb
        >>> fb.asarray([[1, 2], [3, 4]])
        tensor([[1, 2],
                [3, 4]], dtype=int64, device=cpu:0)
    """
    if isinstance(obj, Tensor):
        x = obj if device is None else to_device(obj, device)
        if dtype is not None and as_dtype(dtype) is not x.dtype:
            if copy is False:
                raise ConfigError(
                    "asarray: a cast needs a copy, and copy=False forbids it", "copy=False", "leave copy out, or keep the dtype"
                )
            return astype(x, dtype)
        if copy is False and x is not obj:
            raise ConfigError("asarray: a move needs a copy, and copy=False forbids it", "copy=False", "leave copy out")
        return astype(x, x.dtype) if copy and x is obj else x
    goal = find_device(device)
    if isinstance(obj, np.ma.MaskedArray):
        raise OperandError("asarray takes arrays without a mask", "a NumPy masked array", "fill it first: x.filled(value)")
    if isinstance(obj, (np.ndarray, np.generic)):
        return _from_numpy(np.asarray(obj), dtype, goal, copy)
    if isinstance(obj, (list, tuple)) and _has_tensors(obj):
        return _stack(obj, dtype, goal if device is not None else None)
    if not isinstance(obj, (bool, int, float, complex, list, tuple)) and hasattr(obj, "__dlpack__"):
        x = from_dlpack(obj, device=device, copy=copy)
        return x if dtype is None else astype(x, dtype, copy=False)
    if copy is False:
        raise ConfigError(
            "asarray: Python objects are always copied, and copy=False forbids it", "copy=False", "leave copy out"
        )
    try:
        host = np.asarray(obj)
    except ValueError as e:
        raise OperandError("asarray: nested lists must be rectangular", str(e), "pad the rows to one length") from None
    if host.dtype.kind not in "biufc":
        raise OperandError("asarray takes numbers", f"{type(obj).__name__} {obj!r:.60}", "convert it to numbers first")
    if dtype is None and _has_numpy(obj):
        dtype = as_dtype(host.dtype)
    dt = _dtype_for(host, dtype, goal)
    _check_range("asarray", host, dt)
    return hooks.from_host(_cast_host("asarray", host, dt), goal)  # type: ignore[no-any-return]


def _cast_host(where: str, host: np.ndarray[Any, Any], dt: DType) -> np.ndarray[Any, Any]:
    """A host array as another dtype, by the rules of ``astype``."""
    if host.dtype.kind == "c" and dt.kind != "complex":
        given = f"{host.dtype} as {dt.name}"
        raise DTypeError(f"{where}: complex numbers need a complex dtype", given, "take the real part first")
    with np.errstate(all="ignore"):
        return np.asarray(OPS["cast"].reference(host, dtype=dt))


def _check_range(where: str, host: np.ndarray[Any, Any], dt: DType) -> None:
    if dt.is_integer and host.dtype.kind in "iu" and host.size:
        info = dtypes.iinfo(dt)
        low, high = int(host.min()), int(host.max())
        if low < info.min or high > info.max:
            want = f"{where}: values must lie in the range of {dt.name}, [{info.min}, {info.max}]"
            raise DTypeError(want, f"{low} to {high}", "choose a wider dtype")


def _has_numpy(obj: Any) -> bool:
    """Whether a nested list holds NumPy values, which keep their dtype."""
    if isinstance(obj, (list, tuple)):
        return any(map(_has_numpy, obj))
    return isinstance(obj, (np.ndarray, np.generic))


def _has_tensors(obj: Any) -> bool:
    return any(isinstance(o, Tensor) or (isinstance(o, (list, tuple)) and _has_tensors(o)) for o in obj)


def _stack(obj: Any, dtype: Any, device: Device | None) -> Tensor:
    parts = [o if isinstance(o, Tensor) else asarray(o, dtype=dtype, device=device) for o in obj]
    if any(p.shape != parts[0].shape for p in parts):
        shapes = ", ".join(str(p.shape) for p in parts)
        raise ShapeError("asarray: tensors in a list need equal shapes", shapes[:80], "reshape or pad them")
    return asarray(stack(parts), dtype=dtype, device=device)


def _from_numpy(host: np.ndarray[Any, Any], dtype: Any, device: Device, copy: bool | None) -> Tensor:
    own = dtypes.dtype_argument("asarray", host.dtype)
    goal = own if dtype is None else dtypes.dtype_argument("asarray", dtype)
    if copy is False:
        if goal is not own or not host.dtype.isnative:
            raise ConfigError(
                "asarray: a cast needs a copy, and copy=False forbids it", "copy=False", "leave copy out, or keep the dtype"
            )
        check_storable(own, device)
        native = device.backend.from_dlpack(host, device)
        x = wrap(native, device.backend.describe(native), device)
        x.storage = Storage(native, device._memory, 0, BORROWED)
        return x
    if goal is not own:
        host = _cast_host("asarray", host, goal)
    return hooks.from_host(np.asarray(host, goal.np), device)  # type: ignore[no-any-return]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that borrows the memory of another library's array (never written by Firebrick), or copies it.

    Args:
        x: Object with ``__dlpack__``.
        device: Device of the result: ``cpu`` for host memory by default, ``torch:cuda:0`` etc. for others.
        copy: True to copy, False to raise where borrowing is impossible.

    Example:
        >>> import firebrick as fb, numpy as np
        >>> fb.from_dlpack(np.arange(3.0)).tolist()
        [0.0, 1.0, 2.0]
    """
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    if not hasattr(x, "__dlpack__"):
        raise OperandError("from_dlpack takes an object with __dlpack__", type(x).__name__, "use fb.asarray")
    kind, index = x.__dlpack_device__()
    kind = int(kind)
    if device is None:
        named = {1: default_device() if default_device().engine in ("cpu", "numpy") else find_device("cpu"),
                 2: f"torch:cuda:{index}", 8: "torch:mps", 14: f"torch:xpu:{index}"}  # fmt: skip
        if kind not in named:
            raise OperandError("DLPack memory must be on a device that an engine serves", f"device type {kind}", "copy it")
        goal = find_device(named[kind])
    else:
        goal = find_device(device)
    try:
        native = goal.backend.from_dlpack(x, goal)
    except (BufferError, RuntimeError, TypeError) as e:
        if copy is False:
            raise
        return asarray(np.array(np.from_dlpack(x)), device=goal) if kind == 1 else _raise(e)
    made = wrap(native, goal.backend.describe(native), goal)
    made.storage = Storage(native, goal._memory, 0, BORROWED)
    return made if not copy else astype(made, made.dtype)


def _raise(e: Exception) -> Any:
    raise e


def to_dlpack(x: Tensor, **kwargs: Any) -> Any:
    """The DLPack capsule of a tensor; its memory counts as handed out from now on."""
    x.storage.export()
    return x.device.backend.to_dlpack(x.storage.data, **kwargs)


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """DLPack's (device type, device id)."""
    found: tuple[int, int] = x.device.backend.dlpack_device(x.storage.data)
    return found


def _check_numbers(where: str, **values: Any) -> None:
    """Check that arguments are numbers, one each."""
    for name, value in values.items():
        if isinstance(value, int):  # of any size
            continue
        if isinstance(value, (str, bytes)) or np.ndim(value) or np.asarray(value).dtype.kind in "USO":
            raise OperandError(f"{where}: {name} is a number", f"{type(value).__name__} {value!r:.60}", "pass a Python scalar")


def _check_plain(where: str, **values: Any) -> None:
    """Check that arguments are Python's (or NumPy's) numbers, which the host counts with."""
    _check_numbers(where, **values)
    for name, value in values.items():
        if isinstance(value, Tensor):
            raise OperandError(f"{where}: {name} is a Python number", describe(name, value), f"read it: {name}.item()")


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one value.

    Example:
        >>> import firebrick as fb
        >>> fb.full(2, 7.0).tolist()
        [7.0, 7.0]
    """
    return _filled("full", shape, fill_value, dtype, device)


def _filled(where: str, shape: Any, fill_value: Any, dtype: Any, device: Any) -> Tensor:
    goal = find_device(device)
    sizes = normalize_shape(shape, where)
    if not isinstance(fill_value, int):  # which may be of any size
        _check_numbers(where, fill_value=fill_value)
    dt = _dtype_for(fill_value, None if dtype is None else dtypes.dtype_argument(where, dtype), goal)
    check_storable(dt, goal)
    if isinstance(fill_value, (bool, int, float, complex)):
        fill_value = _host_scalar(where, fill_value, dt)
    _check_room(where, sizes, dt, goal)
    # one element seen everywhere: the engine's own copy is the only one made
    return hooks.from_host(np.broadcast_to(_cast_host(where, np.asarray(fill_value), dt), sizes), goal)  # type: ignore[no-any-return]


def _host_scalar(where: str, value: Any, dt: DType) -> np.ndarray[Any, Any]:
    """A Python scalar for the host, if it lies in the range of the dtype that it is to have."""
    if dt.is_integer and not isinstance(value, complex):
        info = dtypes.iinfo(dt)
        if not info.min <= value <= info.max:  # False for NaN
            want = f"{where}: fill_value must lie in the range of {dt.name}, [{info.min}, {info.max}]"
            raise DTypeError(want, f"fill_value={value!r:.60}", "choose a wider dtype")
        return np.asarray(value, dt.np)
    try:
        return np.asarray(float(value) if type(value) is int else value)
    except OverflowError:
        want = f"{where}: fill_value must fit into a float"
        raise DTypeError(want, f"an int of {value.bit_length()} bits", "use a smaller one") from None


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros, of the device's default float by default.

    Example:
        >>> import firebrick as fb
        >>> fb.zeros((1, 2)).tolist()
        [[0.0, 0.0]]
    """
    return _filled("zeros", shape, 0.0 if dtype is None else 0, dtype, device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones, of the device's default float by default.

    Example:
        >>> import firebrick as fb
        >>> fb.ones(2).tolist()
        [1.0, 1.0]
    """
    return _filled("ones", shape, 1.0 if dtype is None else 1, dtype, device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor to be filled (``out=``); its values mean nothing, and are zeros.

    Example:
        >>> import firebrick as fb
        >>> fb.empty((2, 0)).shape
        (2, 0)
    """
    return _filled("empty", shape, 0.0 if dtype is None else 0, dtype, device)


def _like(where: str, x: Any, fill_value: Any, dtype: Any, device: Any) -> Tensor:
    check_operand(where, x)
    dtype = x.dtype if dtype is None else dtype
    return _filled(where, x.shape, fill_value, dtype, x.device if device is None else device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one value with x's shape, dtype and device.

    Example:
        >>> import firebrick as fb
        >>> fb.full_like(fb.zeros(2), 3.0).tolist()
        [3.0, 3.0]
    """
    return _like("full_like", x, fill_value, dtype, device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros with x's shape, dtype and device.

    Example:
        >>> import firebrick as fb
        >>> fb.zeros_like(fb.ones(2)).tolist()
        [0.0, 0.0]
    """
    return _like("zeros_like", x, 0, dtype, device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones with x's shape, dtype and device.

    Example:
        >>> import firebrick as fb
        >>> fb.ones_like(fb.zeros(2)).tolist()
        [1.0, 1.0]
    """
    return _like("ones_like", x, 1, dtype, device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor to be filled, with x's shape, dtype and device.

    Example:
        >>> import firebrick as fb
        >>> fb.empty_like(fb.ones((2, 3))).shape
        (2, 3)
    """
    return _like("empty_like", x, 0, dtype, device)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """start, start + step, … before stop (0, 1, … before start if stop is left out).

    Example:
        >>> import firebrick as fb
        >>> fb.arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    goal = find_device(device)
    low, high = (0, start) if stop is None else (start, stop)
    _check_plain("arange", start=low, stop=high, step=step)
    if any(isinstance(v, (complex, np.complexfloating)) for v in (low, high, step)):
        raise OperandError("arange: start, stop and step are real numbers", f"{low}, {high} and {step}", "use fb.linspace")
    if step == 0:
        raise ShapeError("arange needs a step other than 0", "step 0", "pass 1 or -1")
    if not all(-np.inf < v < np.inf for v in (low, high, step)):
        raise ConfigError("arange: start, stop and step are finite", f"{low}, {high} and {step}", "pass finite numbers")
    host = _range(low, high, step, goal)
    dt = _dtype_for(host, None if dtype is None else dtypes.dtype_argument("arange", dtype), goal)
    _check_range("arange", host, dt)
    return hooks.from_host(_cast_host("arange", host, dt), goal)  # type: ignore[no-any-return]


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
    return hooks.from_host(_cast_host(where, values, _dtype_for(values, dtype, goal)), goal)  # type: ignore[no-any-return]


def _number(where: str, start: Any, stop: Any, num: Any) -> int:
    """How many elements to space, after a look at the ends."""
    _check_plain(where, start=start, stop=stop)
    (count,) = normalize_shape(num, f"{where}: num") if not isinstance(num, (tuple, list)) else (-1,)
    if count < 0:
        raise ShapeError(f"{where}: num is an int ≥ 0", repr(num), "pass how many numbers to make")
    return count


def linspace(
    start: complex, stop: complex, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """``num`` numbers evenly spaced from start to stop.

    Example:
        >>> import firebrick as fb
        >>> fb.linspace(0.0, 1.0, 3).tolist()
        [0.0, 0.5, 1.0]
    """
    return _spaced(
        "linspace", np.linspace(start, stop, _number("linspace", start, stop, num), endpoint=endpoint), dtype, device
    )


def logspace(
    start: float, stop: float, /, num: int, *, base: float = 10.0, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """``num`` powers of ``base`` whose exponents are evenly spaced from start to stop.

    Example:
        >>> import firebrick as fb
        >>> fb.logspace(0, 2, 3).tolist()
        [1.0, 10.0, 100.0]
    """
    found = np.logspace(start, stop, _number("logspace", start, stop, num), base=base, endpoint=endpoint)
    return _spaced("logspace", found, dtype, device)


def geomspace(
    start: complex, stop: complex, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """``num`` numbers from start to stop, each a constant multiple of the one before.

    Example:
        >>> import firebrick as fb
        >>> fb.geomspace(1.0, 8.0, 4).tolist()
        [1.0, 2.0, 4.0, 8.0]
    """
    count = _number("geomspace", start, stop, num)
    if start == 0 or stop == 0:
        raise OutOfRangeError("geomspace: start and stop must not be 0", f"{start} to {stop}", "use fb.linspace")
    if not isinstance(start, complex) and not isinstance(stop, complex) and (start < 0) != (stop < 0):
        raise OutOfRangeError("geomspace: start and stop must have one sign", f"{start} to {stop}", "use fb.linspace")
    return _spaced("geomspace", np.geomspace(start, stop, count, endpoint=endpoint), dtype, device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on a diagonal, zeros elsewhere.

    Example:
        >>> import firebrick as fb
        >>> fb.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    goal = find_device(device)
    dt = as_dtype(dtype) if dtype is not None else _default("float", goal)
    rows, columns = normalize_shape((n_rows, n_rows if n_cols is None else n_cols), "eye")
    k = whole("eye", "k", k)
    return hooks.from_host(np.eye(rows, columns, k).astype(dt.np), goal)  # type: ignore[no-any-return]


def one_hot(x: Tensor, /, num_classes: int, *, dtype: Any = dtypes.float32) -> Tensor:
    """One row of zeros with a one at each index: shape [..., num_classes].

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
    if x.size and x.device.engine != "meta":
        host = hooks.to_host(x)
        low, high = int(host.min()), int(host.max())
        if low < 0 or high >= classes:
            raise OutOfRangeError(
                f"one_hot: indices must lie in [0, {classes})", f"{low} to {high} in {describe('x', x)}", "check the labels"
            )
    rows = astype(reshape(x, (*x.shape, 1)), dtypes.int64, copy=False)
    return astype(OPS["equal"](rows, arange(classes, dtype=dtypes.int64, device=x.device)), goal)


def tril_indices(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and below the k-th diagonal, row by row: a key, ``x[fb.tril_indices(n)]``.

    Example:
        >>> import firebrick as fb
        >>> [at.tolist() for at in fb.tril_indices(2)]
        [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", n_rows, n_cols, k, device, lower=True)


def triu_indices(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the elements on and above the k-th diagonal, row by row: a key, ``x[fb.triu_indices(n)]``.

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


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two axes.

    Example:
        >>> import firebrick as fb
        >>> fb.tril(fb.ones((2, 2))).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    x, k = _matrix("tril", x), whole("tril", "k", k)
    keep = hooks.from_host(np.tri(x.shape[-2], x.shape[-1], k, dtype=np.bool_), x.device)
    return OPS["where"](keep, x, False if x.dtype.kind == "bool" else 0)  # type: ignore[no-any-return]


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two axes.

    Example:
        >>> import firebrick as fb
        >>> fb.triu(fb.ones((2, 2))).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    x, k = _matrix("triu", x), whole("triu", "k", k)
    drop = hooks.from_host(np.tri(x.shape[-2], x.shape[-1], k - 1, dtype=np.bool_), x.device)
    return OPS["where"](drop, False if x.dtype.kind == "bool" else 0, x)  # type: ignore[no-any-return]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate tensors of a grid from one vector an axis.

    Example:
        >>> import firebrick as fb
        >>> [g.tolist() for g in fb.meshgrid(fb.asarray([1, 2]), fb.asarray([3]), indexing="ij")]
        [[[1], [2]], [[3], [3]]]
    """
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
