"""What creation functions take: numbers, which the host counts with, and sizes that an address space has room for."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from firebrick.backends.memory import out_of_memory
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import OperandError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak


def check_numbers(where: str, **values: Any) -> None:
    """Check that arguments are numbers, one each."""
    for name, value in values.items():
        if isinstance(value, Weak):
            raise value.unknown(f"{where}: {name}")
        if isinstance(value, int):  # of any size
            continue
        if isinstance(value, Tensor) and not value.ndim:
            continue
        if isinstance(value, (str, bytes)) or np.ndim(value) or np.asarray(value).dtype.kind in "USOMm":
            raise OperandError(f"{where}: {name} is a number", f"{type(value).__name__} {value!r:.60}", "pass a Python scalar")


def check_plain(where: str, **values: Any) -> None:
    """Check that arguments are Python's (or NumPy's) numbers, which the host counts with."""
    check_numbers(where, **values)
    for name, value in values.items():
        if isinstance(value, Tensor):
            raise OperandError(f"{where}: {name} is a Python number", describe(name, value), f"read it: {name}.item()")


def check_room(where: str, sizes: tuple[int, ...], dt: DType, device: Device) -> None:
    """Check that an address space can hold a tensor."""
    if prod(sizes) * dt.itemsize >= 1 << 63:
        raise out_of_memory(where, (Aval(sizes, dt),), device)
