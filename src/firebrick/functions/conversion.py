"""Data of others as tensors, and tensors for others: Python numbers and lists, NumPy arrays, and DLPack.

NumPy arrays keep their dtype and Python numbers get the device's default one, unless another is named. Memory that was
borrowed is never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from firebrick.autodiff.tape import grad_enabled
from firebrick.backends.contract import check_storable
from firebrick.backends.handles import check_present, wrap
from firebrick.backends.registry import default_device, find_device
from firebrick.core import dtypes
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.duals import Dual
from firebrick.core.errors import ConfigError, DTypeError, GradientError, OperandError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.levels import Inner
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.storage import BORROWED, Storage
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, as_tensor, number_kind
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import reshape, stack, to_device
from firebrick.ops import OPS


def default_dtype(kind: str, device: Device) -> DType:
    """The device's default dtype of a kind, ``"int"`` or ``"float"``."""
    found = device.backend.default_int(device) if kind == "int" else device.backend.default_float(device)
    return as_dtype(found)


def dtype_for(value: Any, dtype: Any, device: Device) -> DType:
    """The dtype asked for, or the device's default for numbers of the value's kind."""
    if dtype is not None:
        return as_dtype(dtype)
    kind = np.asarray(value).dtype.kind
    if kind == "b":
        return dtypes.bool_
    if kind in "iu" or isinstance(value, int):  # NumPy makes an object of one of more than 64 bits
        return default_dtype("int", device)
    if kind == "c":
        return dtypes.complex64 if default_dtype("float", device) is dtypes.float32 else dtypes.complex128
    return default_dtype("float", device)


@answers_arguments
def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor from Python scalars and nested lists, NumPy arrays, tensors, or any object that supports DLPack.

    Args:
        obj: What to convert. A NumPy array keeps its dtype, as does what NumPy makes an array of: buffers and objects with
            ``__array__``. Python numbers get the device's default float or int.
        dtype: Dtype of the result. Nothing narrows unless this says so. An integer scalar, also one in a list, must lie in its
            range; an array or a tensor is cast as by ``astype``.
        device: Device of the result; by default that of a tensor, else the default device.
        copy: An array of NumPy or another library is copied unless False, which borrows its memory (never written) or raises.
            A tensor that needs no cast and no move is returned itself unless True.

    Raises:
        ConfigError: copy is False, and the conversion needs a copy.
        DTypeError: The device cannot store the dtype, a scalar lies outside its range, or the object has none of Firebrick's
            dtypes.
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
    if isinstance(obj, Weak):
        return number_later("asarray", obj, dtype, goal)
    if isinstance(obj, np.ma.MaskedArray):
        raise OperandError("asarray takes arrays without a mask", "a NumPy masked array", "fill it first: x.filled(value)")
    if isinstance(obj, np.generic) and dtype is not None:
        check_fits("asarray", np.asarray(obj), dtypes.dtype_argument("asarray", dtype))
    if isinstance(obj, (np.ndarray, np.generic)):
        return _from_numpy(np.asarray(obj), dtype, goal, copy)
    if isinstance(obj, (list, tuple)) and _has_tensors(obj):
        return _stack(obj, dtype, goal if device is not None else None)
    if not isinstance(obj, (bool, int, float, complex, list, tuple)) and hasattr(obj, "__dlpack__"):
        x = from_dlpack(obj, device=device, copy=copy is not False)
        return x if dtype is None else astype(x, dtype, copy=False)
    if copy is False:
        raise ConfigError(
            "asarray: Python objects are always copied, and copy=False forbids it", "copy=False", "leave copy out"
        )
    try:
        host = np.asarray(obj)
    except ValueError:
        raise OperandError(
            "asarray: nested lists must be rectangular", f"{type(obj).__name__} {obj!r:.60}", "pad the rows to one length"
        ) from None
    if host.dtype.kind == "O" and host.size and all(isinstance(v, (int, float)) for v in host.flat):  # ints beyond 64 bits
        dt = (
            default_dtype("int" if _whole(obj) else "float", goal) if dtype is None else dtypes.dtype_argument("asarray", dtype)
        )
        check_fits("asarray", host, dt)
        try:
            host = host.astype(np.float64)
        except OverflowError:
            raise DTypeError("asarray: numbers lie in the range of float64", f"{obj!r:.60}", "scale them") from None
    if host.dtype.kind not in "biufc" and dtypes.python_kind(host.dtype.type) is None:
        raise OperandError("asarray takes numbers", f"{type(obj).__name__} {obj!r:.60}", "convert it to numbers first")
    if host.dtype.kind == "f" and host.size and np.abs(host).max() >= 1 << 53 and _whole(obj):
        dt = default_dtype("int", goal) if dtype is None else dtypes.dtype_argument("asarray", dtype)
        if dt.is_integer:  # NumPy has made floats of integers beyond int64 beside others
            exact = np.asarray(obj, object)
            check_fits("asarray", exact, dt)
            check_storable(dt, goal)
            return hooks.from_host(exact.astype(dt.np), goal)
    if not isinstance(obj, (bool, int, float, complex, list, tuple)) and _has_numpy(obj):
        return _from_numpy(host, dtype, goal, None)
    if dtype is None and _has_numpy(obj):
        dtype = as_dtype(host.dtype)
    dt = dtype_for(host, dtype, goal)
    check_fits("asarray", host, dt)
    return hooks.from_host(cast_host("asarray", host, dt), goal)


def number_later(where: str, value: Weak, dtype: Any, device: Device) -> Tensor:
    """A Python number that is known when the graph runs, as a 0-d tensor."""
    numpy, kind = issubclass(value.kind, np.generic), number_kind(value.kind)
    own = as_dtype(np.dtype(value.kind)) if numpy else default_dtype("int" if kind is int else "float", device)
    dt = own if dtype is None else dtypes.dtype_argument(where, dtype)
    check_storable(dt, device)
    if (numpy or kind is float) and dt.kind in ("bool", "int", "uint"):  # the host casts it, as it would now
        given = value.value

        def cast(numbers: Any) -> int:
            host = np.asarray(given(numbers))
            check_fits(where, host, dt)
            return int(cast_host(where, host, dt))

        value = Weak(int, value.name, cast, value.arguments)
    made: Tensor = as_tensor(value.python, dt, device)
    return made


def cast_host(where: str, host: np.ndarray[Any, Any], dt: DType) -> np.ndarray[Any, Any]:
    """A host array as another dtype, by the rules of ``astype``."""
    if host.dtype.kind == "c" and dt.kind != "complex":
        given = f"{host.dtype} as {dt.name}"
        raise DTypeError(f"{where}: complex numbers need a complex dtype", given, "take the real part first")
    with np.errstate(all="ignore"):
        return np.asarray(OPS["cast"].reference(host, dtype=dt))


def check_fits(where: str, host: np.ndarray[Any, Any], dt: DType) -> None:
    """Check that integers on the host lie in the range of a dtype."""
    if dt.is_integer and host.dtype.kind in "iuO" and host.size:  # objects are Python's integers, of any size
        info = dtypes.iinfo(dt)
        low, high = int(host.min()), int(host.max())
        if low < info.min or high > info.max:
            want = f"{where}: values must lie in the range of {dt.name}, [{info.min}, {info.max}]"
            raise DTypeError(want, f"{low} to {high}", "choose a wider dtype")


def _whole(obj: Any) -> bool:
    """Whether a nested list holds integers alone."""
    if isinstance(obj, (list, tuple)):
        return all(map(_whole, obj))
    return isinstance(obj, (int, np.integer)) or (isinstance(obj, np.ndarray) and obj.dtype.kind in "iu")


def _has_numpy(obj: Any) -> bool:
    """Whether a nested list holds NumPy values, or objects that NumPy makes arrays of, which keep their dtype."""
    if isinstance(obj, (list, tuple)):
        return any(map(_has_numpy, obj))
    if isinstance(obj, (bool, int, float, complex, range, Tensor, Weak)):
        return isinstance(obj, np.generic)  # np.float64 is a float
    if isinstance(obj, (np.ndarray, np.generic)) or hasattr(obj, "__array__") or hasattr(obj, "__array_interface__"):
        return True
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _numpy_dtype(obj: Any) -> DType | None:
    """The dtype of a nested list of numbers of a traced call where NumPy's are among them; None where tensors are."""
    if any(isinstance(o, Tensor) for o in obj):
        return None

    def shown(o: Any) -> Any:
        return o.kind(1) if type(o) is Weak else list(map(shown, o)) if isinstance(o, (list, tuple)) else o

    numbers = shown(obj)
    return as_dtype(np.asarray(numbers).dtype) if _has_numpy(numbers) else None


def _has_tensors(obj: Any) -> bool:
    """Whether a nested list holds tensors, or numbers that become such."""
    return any(isinstance(o, (Tensor, Weak)) or (isinstance(o, (list, tuple)) and _has_tensors(o)) for o in obj)


def _stack(obj: Any, dtype: Any, device: Device | None) -> Tensor:
    """A nested list that holds tensors, as one tensor."""
    if dtype is None:
        dtype = _numpy_dtype(obj)
    tensors = list(_tensors(obj))
    numbers = _dtype_beside(tensors, obj) if dtype is None else dtype
    if device is None and tensors:
        device = tensors[0].device
    parts = [o if isinstance(o, Tensor) else asarray(o, dtype=numbers if _is_plain(o) else dtype, device=device) for o in obj]
    if any(p.shape != parts[0].shape for p in parts):
        shapes = ", ".join(str(p.shape) for p in parts)
        raise ShapeError("asarray: tensors in a list need equal shapes", shapes[:80], "reshape or pad them")
    return asarray(stack(parts), dtype=dtype, device=device)


def _tensors(obj: Any) -> Iterator[Tensor]:
    """The tensors of a nested list."""
    for o in obj:
        if isinstance(o, Tensor):
            yield o
        elif isinstance(o, (list, tuple)):
            yield from _tensors(o)


def _is_plain(obj: Any) -> bool:
    """Whether a nested list, or a number, is of Python's numbers alone."""
    if isinstance(obj, (list, tuple)):
        return all(map(_is_plain, obj))
    kind = obj.kind if type(obj) is Weak else type(obj)
    return issubclass(kind, (bool, int, float, complex)) and not issubclass(kind, np.generic)


def _dtype_beside(tensors: Sequence[Tensor], obj: Any) -> DType | None:
    """The dtype that Python's numbers have beside tensors in a list, as in arithmetic; None if they have none in common."""
    kinds: set[type] = set()

    def look(o: Any) -> None:
        if isinstance(o, (list, tuple)):
            for part in o:
                look(part)
        elif isinstance(o, (Weak, bool, int, float, complex)) and _is_plain(o):
            kinds.add(o.kind if type(o) is Weak else type(o))

    look(obj)
    if not tensors or not kinds:
        return None
    try:
        return dtypes.result_type(*tensors, *(kind(1) for kind in kinds))
    except DTypeError:
        return None


def _from_numpy(host: np.ndarray[Any, Any], dtype: Any, device: Device, copy: bool | None) -> Tensor:
    """A NumPy array as a tensor that owns a copy, or borrows the memory if ``copy`` is False."""
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
        host = cast_host("asarray", host, goal)
    return hooks.from_host(np.asarray(host, goal.np), device)


@answers_arguments
def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor that borrows the memory of another library's array (never written by Firebrick), or copies it.

    Args:
        x: Object with ``__dlpack__``.
        device: Device of the result: by default the default device for host memory, or ``cpu`` where that is an accelerator;
            ``torch:cuda:0`` etc. for other memory.
        copy: True to copy, False to raise where borrowing is impossible; by default it is copied only there.

    Raises:
        OperandError: x has no ``__dlpack__``, or is on a device that no engine of Firebrick can read.

    Example:
        >>> import firebrick as fb, numpy as np
        >>> fb.from_dlpack(np.arange(3.0)).tolist()
        [0.0, 1.0, 2.0]
    """
    if isinstance(x, Tensor):
        found = asarray(x, device=device, copy=copy)
        return reshape(found, found.shape) if found is x else found  # another handle, which += of x does not change
    if not hasattr(x, "__dlpack__"):
        raise OperandError("from_dlpack takes an object with __dlpack__", type(x).__name__, "use fb.asarray")
    if getattr(x, "requires_grad", False) is True and hasattr(x, "detach"):
        raise OperandError(
            "no gradient of another library passes into a tensor",
            f"a {type(x).__name__} that requires a gradient",
            "pass x.detach()",
        )
    for lazy in ("neg", "conj"):  # of PyTorch's views, whose memory holds other numbers
        if hasattr(x, f"resolve_{lazy}"):
            x = getattr(x, f"resolve_{lazy}")()
    kind, index = x.__dlpack_device__()
    kind = int(kind)
    if device is None:
        own = default_device()
        named = {1: own if own.backend.host_memory(own) else find_device("cpu"),
                 2: f"torch:cuda:{index}", 8: "torch:mps", 14: f"torch:xpu:{index}"}  # fmt: skip
        if kind not in named:
            raise OperandError("DLPack memory must be on a device that an engine serves", f"device type {kind}", "copy it")
        goal = find_device(named[kind])
    else:
        goal = find_device(device)
    try:
        native = goal.backend.from_dlpack(x, goal)
    except (BufferError, RuntimeError, TypeError):
        if copy is False or kind != 1:
            raise
        from firebrick.backends.numpy import dlpack

        return asarray(np.array(dlpack.imported(x)), device=goal)
    made = wrap(native, goal.backend.describe(native), goal)
    made.storage = Storage(native, goal._memory, 0, BORROWED)
    return made if not copy else astype(made, made.dtype)


def is_differentiated(x: Tensor) -> bool:
    """Whether gradients or tangents pass through a tensor here."""
    t: Tensor | None = x
    while t is not None:  # also those of what is around the innermost call of fb.jvp
        data = t.storage.data
        if (t.tracked and grad_enabled()) or (isinstance(data, Dual) and data.tangent is not None):
            return True
        t = data.readable() if isinstance(data, Inner) else None
    return False


def check_constant(x: Tensor, kind: str) -> None:
    """Check that no gradient is lost when a tensor becomes an array without being asked for its values.

    Args:
        x: The tensor.
        kind: What it becomes.

    Raises:
        GradientError: Gradients or tangents pass through it.
    """
    if is_differentiated(x):
        raise GradientError(
            f"a tensor that is differentiated becomes no {kind} by itself, since its gradient would be lost",
            describe("x", x),
            "use Firebrick's functions, as fb.clip(x, …) for np.clip; for its values alone write x.detach().numpy()",
        )


def to_dlpack(x: Tensor, **kwargs: Any) -> Any:
    """The DLPack capsule of a tensor; its memory counts as handed out from now on.

    Args:
        x: Tensor of any dtype that DLPack has.
        **kwargs: Those of the standard's ``__dlpack__`` that were given: stream, max_version, dl_device, copy.
    """
    check_present((x,))
    check_constant(x, "array of another library")
    x.storage.export()
    return x.device.backend.to_dlpack(x.storage.data, **kwargs)


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Where the memory of x lies: DLPack's (device type, device id)."""
    found: tuple[int, int] = x.device.backend.dlpack_device(x.storage.data)
    return found
