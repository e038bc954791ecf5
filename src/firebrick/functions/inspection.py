"""What the Array API standard asks of a namespace: its dtypes, devices and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.backends.registry import default_device, find_device
from firebrick.backends.registry import devices as all_devices
from firebrick.core import dtypes
from firebrick.core.device import Device
from firebrick.core.dtypes import ALL, DType
from firebrick.core.dtypes import dtype as as_dtype


class NamespaceInfo:
    """The Array API's inspection namespace."""

    def capabilities(self) -> dict[str, Any]:
        """What the namespace can do beyond the minimum."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new tensors."""
        return default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Default dtypes of a device."""
        goal = find_device(device)
        real = as_dtype(goal.backend.default_float(goal))
        return {
            "real floating": real,
            "complex floating": dtypes.complex64 if real is dtypes.float32 else dtypes.complex128,
            "integral": as_dtype(goal.backend.default_int(goal)),
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes, or those of a kind."""
        found = {d.name: d for d in ALL if d.name not in ("float16", "bfloat16") and d.kind != "storage"}
        return {n: d for n, d in found.items() if kind is None or dtypes.isdtype(d, kind)}

    def devices(self) -> Sequence[Device]:
        """Every device that is there."""
        return all_devices()


def __array_namespace_info__() -> NamespaceInfo:
    """The Array API's inspection namespace.

    Example:
        >>> import firebrick as fb
        >>> fb.__array_namespace_info__().default_dtypes()["integral"]
        firebrick.int64
    """
    return NamespaceInfo()
