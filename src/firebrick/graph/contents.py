"""Values that libraries' objects hold outside of Python attributes, and how they are read, so that a walk compares them at each
call."""

from __future__ import annotations

import ctypes
import decimal
import io
import mmap
import queue
import sys
import threading
from _abc import _get_dump  # type: ignore[import-not-found]
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from firebrick.core.errors import TraceError

_MOST = 1 << 20  # bytes that are compared at each call
_CData: Any = ctypes.c_int.__mro__[2]
_Pointer: Any = ctypes.POINTER(ctypes.c_int).__mro__[1]
_Function: Any = ctypes.CFUNCTYPE(None).__mro__[1]


def _of_torch(name: str) -> Any:
    return getattr(sys.modules["torch"], name)()


SETTINGS: dict[str, dict[str, Callable[[], Any]]] = {
    "numpy": {"geterr": np.geterr, "get_printoptions": np.get_printoptions},
    "sys": {
        "getrecursionlimit": sys.getrecursionlimit,
        "getswitchinterval": sys.getswitchinterval,
        "get_int_max_str_digits": sys.get_int_max_str_digits,
    },
    "torch": {n: partial(_of_torch, n) for n in ("get_default_dtype", "get_num_threads", "is_grad_enabled")},
}  # settings of the process, by the functions that read them
STATES: dict[type, tuple[str, ...]] = {
    threading.Event: ("is_set", "isSet", "wait"),
    type(threading.Lock()): ("locked",),
    queue.SimpleQueue: ("qsize", "empty", "get", "get_nowait"),
}  # methods that read the state; it is compared if the code names one of them


def decimal_context() -> Any:
    """The settings that arithmetic of decimal numbers depends on in this context."""
    return _arithmetic(decimal.getcontext())


def _arithmetic(c: decimal.Context) -> Any:
    return c.prec, c.rounding, c.Emin, c.Emax, c.capitals, c.clamp, tuple(k.__name__ for k, on in c.traps.items() if on)


def content_of(path: str, v: Any) -> Callable[[], Any] | None:
    """A function that reads the bytes that ctypes, mmap and files in memory hold, or the position in an open file; None for
    others.

    Raises:
        TraceError: They are too many to be compared at each call, or lie behind a pointer.
    """
    if isinstance(v, _CData) and not isinstance(v, _Function):
        if _points(type(v)):
            raise _unreadable(path, v, "it points to memory that cannot be read")
        return _small(path, v, ctypes.sizeof(v), lambda: bytes(memoryview(v).cast("B")))
    if isinstance(v, mmap.mmap):
        return _small(path, v, 0 if v.closed else len(v), lambda: None if v.closed else (v.tell(), v[:]))
    if isinstance(v, (bytearray, array)):
        return _small(
            path,
            v,
            memoryview(v).nbytes,
            lambda: (getattr(v, "typecode", None), v.tobytes() if isinstance(v, array) else bytes(v)),
        )
    if isinstance(v, memoryview):
        return _small(path, v, v.nbytes, partial(_shown, v))
    if is_shared_memory(v):
        return lambda: v.size
    if isinstance(v, np.void):
        return lambda: (repr(v.dtype), v.tobytes())
    if isinstance(v, np.flatiter):
        return lambda: v.index
    if isinstance(v, decimal.Context):
        return partial(_arithmetic, v)
    if isinstance(v, (io.StringIO, io.BytesIO)):
        return lambda: None if v.closed else (v.tell(), v.getvalue())
    if isinstance(v, io.IOBase) and not v.closed and v.readable() and v.seekable() and not v.writable():
        return lambda: None if v.closed else v.tell()  # read while the function is traced, it has moved
    return None


def is_shared_memory(v: Any) -> bool:
    return type(v).__name__ == "SharedMemory" and type(v).__module__ == "multiprocessing.shared_memory"


def registered(v: type) -> frozenset[Any]:
    """The classes that were registered with an abstract one."""
    return frozenset(_get_dump(v)[0])


def _shown(v: memoryview) -> Any:
    try:
        return v.format, v.shape, v.tobytes()
    except ValueError:  # it was released
        return None


def _small(path: str, v: Any, nbytes: int, read: Callable[[], Any]) -> Callable[[], Any]:
    if nbytes > _MOST:
        raise _unreadable(path, v, f"{nbytes} bytes, of which a graph would need to compare each at each call")
    return read


def _points(kind: Any) -> bool:
    if issubclass(kind, (_Pointer, ctypes.py_object, ctypes.c_char_p, ctypes.c_wchar_p, ctypes.c_void_p)):
        return True
    parts = [kind._type_] if issubclass(kind, ctypes.Array) else [f[1] for f in getattr(kind, "_fields_", ())]
    return any(_points(part) for part in parts)


def _unreadable(path: str, v: Any, why: str) -> TraceError:
    return TraceError(
        "a function under jit reads at each call what it captures",
        f"{path}: {type(v).__name__}, {why}",
        "make a tensor of what it holds, before the call: fb.asarray(np.array(…)), and pass that in",
    )
