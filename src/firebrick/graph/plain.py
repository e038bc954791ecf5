"""What a key of a graph is made of: plain values by their bits, objects by themselves; and which objects are libraries'."""

from __future__ import annotations

import enum
import sys
from typing import Any

from firebrick.core.device import Device
from firebrick.core.dtypes import DType

SCALARS = (bool, int, float, complex, str, bytes, type(None))
PLAIN = (*SCALARS, enum.Enum, DType, Device, range, slice)
LIBRARIES = frozenset({
    "firebrick", "numpy", "torch", "jax", "optree", "ml_dtypes", "scipy", "safetensors", "rich", "click", "pytest", "_pytest",
    "hypothesis", "opt_einsum", "matplotlib", "PIL", "einops", "sklearn",
}) | frozenset(sys.stdlib_module_names) - {"__main__", "test"}  # fmt: skip
OPEN = frozenset({
    "firebrick", "types", "collections", "functools", "argparse", "_thread", "configparser", "dataclasses", "numpy", "queue",
    "string",
})  # fmt: skip  # libraries whose objects hold what a user put there


class Same:
    """An object in a key, equal to itself only."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)

    def __repr__(self) -> str:
        return f"{type(self.of).__name__} object"


def of_library(name: str | None) -> bool:
    """Whether a Python module belongs to a library that reads nothing of the user's."""
    return (name or "").partition(".")[0] in LIBRARIES


def plain_key(v: Any) -> Any:
    """A plain value for a key: floats by their bits, types kept apart."""
    kind = type(v)
    if isinstance(v, float):  # NumPy's float64 and complex128 are kinds of Python's
        return kind, float.hex(v)
    if isinstance(v, complex):
        return kind, float.hex(v.real), float.hex(v.imag)
    if kind is slice:
        return slice, v.start, v.stop, v.step
    return kind, v
