"""Python scalars as 0-d tensors and 0-d host arrays of a dtype that they fit."""

from __future__ import annotations

from functools import lru_cache
from math import copysign
from typing import Any

import numpy as np

from firebrick.core.dtypes import DType
from firebrick.core.errors import DTypeError
from firebrick.core.hooks import hooks
from firebrick.core.rounding import number, rounded
from firebrick.core.tensor import Tensor


def constant(value: Any, dtype: DType, device: Any) -> Tensor:
    """A 0-d tensor of a Python scalar. Programs use few different scalars, so their storages are cached; the handle is new."""
    kind = type(value).__name__
    if hooks.tracing:  # a trace has constants of its own
        return _make(value, dtype, device)
    if kind == "float":
        return _constant(kind, value, copysign(1.0, value), dtype, device).detach()  # 0.0 equals -0.0
    return _constant(kind, value, 1.0, dtype, device).detach() if kind in ("int", "bool") else _make(value, dtype, device)


@lru_cache(maxsize=512)
def _constant(kind: str, value: Any, sign: float, dtype: DType, device: Any) -> Tensor:
    made = _make(value, dtype, device)
    made.storage.uncount()
    return made


forget_constants = _constant.cache_clear  # called when another engine takes over a device


def _make(value: Any, dtype: DType, device: Any) -> Tensor:
    tensor: Tensor = hooks.from_host(host_scalar(value, dtype), device)
    return tensor


def host_scalar(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """A Python scalar as a 0-d array of a dtype that it fits.

    Raises:
        DTypeError: It does not fit.
    """
    if dtype.is_integer and not isinstance(value, bool):
        limits = np.iinfo(dtype.np)
        if not limits.min <= value <= limits.max:  # False for NaN
            raise DTypeError(
                f"a Python int combined with {dtype.name} must lie in [{limits.min}, {limits.max}]",
                repr(value),
                "cast the tensor to a wider integer dtype first",
            )
    try:
        with np.errstate(over="ignore"):  # a float too large for a narrow dtype is infinite, as in any cast
            if dtype.kind in ("float", "storage") and dtype.itemsize < 8:
                return np.asarray(rounded(np.asarray(number(value), np.float64), dtype))
            return np.asarray(value, dtype.np)
    except OverflowError:
        received = f"an int of {value.bit_length()} bits"
        raise DTypeError(
            f"a Python int combined with {dtype.name} must fit into a float", received, "use a smaller one"
        ) from None
