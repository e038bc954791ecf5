"""DLPack of host arrays with the dtypes that NumPy's own DLPack lacks: bfloat16 and float8.

NumPy exchanges the memory as unsigned integers of the same width, and the dtype is written into the capsule, or read out of it,
here. A capsule holds a ``DLManagedTensor`` or, from version 1 on, a ``DLManagedTensorVersioned``; both belong to whoever got
the capsule, and neither's deleter looks at the dtype.

Source: the structures of dlpack.h, https://dmlc.github.io/dlpack/latest/c_api.html.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType, bfloat16, float8_e4m3fn, float8_e5m2

_UNSIGNED = 1
_CODES: dict[DType, int] = {bfloat16: 4, float8_e4m3fn: 10, float8_e5m2: 12}
_BY_CODE = {(code, 8 * d.itemsize): d for d, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    """The beginning of ``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Versioned(ctypes.Structure):
    """The beginning of ``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _tensor(capsule: Any) -> _Tensor | None:
    """The tensor in a capsule that nobody has taken yet; None if it is no such capsule."""
    if _valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor"))
    if _valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        return found.tensor if found.major == 1 else None
    return None


def exported(array: np.ndarray[Any, Any], dtype: DType, **kwargs: Any) -> Any:
    """The capsule of an array with one of the dtypes that NumPy's DLPack lacks.

    Args:
        array: The array.
        dtype: Its dtype.
        kwargs: Those of ``__dlpack__``.

    Raises:
        BufferError: DLPack has no such dtype.
    """
    if dtype not in _CODES:
        raise BufferError(f"DLPack has no {dtype.name}: cast it first, fb.astype(x, fb.float32)")
    capsule = array.view(f"u{dtype.itemsize}").__dlpack__(**kwargs)
    tensor = _tensor(capsule)
    if tensor is None:
        raise BufferError(f"NumPy's capsule is of an unknown version: cast {dtype.name} to float32 first")
    tensor.code = _CODES[dtype]
    return capsule


class _AsIntegers:
    """Memory of another library, whose dtype NumPy's DLPack may lack, as unsigned integers; ``dtype`` keeps the real one."""

    def __init__(self, external: Any) -> None:
        self.external = external
        self.dtype: DType | None = None

    def __dlpack__(self, **kwargs: Any) -> Any:
        capsule = self.external.__dlpack__(**kwargs)
        tensor = _tensor(capsule)
        if tensor is not None and tensor.device_type == 1 and tensor.lanes == 1:
            self.dtype = _BY_CODE.get((tensor.code, tensor.bits))
            if self.dtype is not None:
                tensor.code = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.external.__dlpack_device__()


def imported(external: Any) -> np.ndarray[Any, Any]:
    """Host memory of another library as an array, without a copy."""
    given = _AsIntegers(external)
    found = np.from_dlpack(given)
    return found if given.dtype is None else found.view(given.dtype.np)
