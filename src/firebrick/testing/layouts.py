"""Operands in every memory layout: each is a view, made with Firebrick's own view ops, of a larger tensor on the device.

What lies around the operand in the larger tensor differs from it, so a kernel that ignores strides or offsets reads wrong
values. On an engine whose views are real, its native arrays really are strided.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.device import Device
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import broadcast_to, permute_dims, reshape
from firebrick.ops.declare import Array

LAYOUTS = ("contiguous", "strided", "negative", "offset", "broadcast", "mixed")
_MIXED = ("strided", "broadcast", "negative", "offset")


def of_operand(layout: str, i: int) -> str:
    """The layout of operand ``i``: under ``mixed`` each operand has another one."""
    return _MIXED[i % len(_MIXED)] if layout == "mixed" else layout


def _repeated_axis(shape: tuple[int, ...]) -> int | None:
    return next((a for a, d in enumerate(shape) if d > 1), None)


def values_in(layout: str, x: Array) -> Array:
    """The values that an operand has in a layout: its own, but repeated along an axis under ``broadcast``."""
    axis = _repeated_axis(x.shape) if layout == "broadcast" else None
    if axis is None:
        return x
    first = x[(slice(None),) * axis + (slice(0, 1),)]
    return np.array(np.broadcast_to(first, x.shape), order="C")


def place(layout: str, x: Array, device: Device) -> Tensor:
    """``x``, which must hold what ``values_in`` gives, on a device in a layout.

    Example:
        >>> import firebrick as fb, numpy as np
        >>> from firebrick.testing.layouts import place
        >>> t = place("negative", np.arange(3.0), fb.device("numpy"))
        >>> t.tolist(), t.storage.data.strides
        ([0.0, 1.0, 2.0], (-8,))
    """
    if layout == "contiguous":
        return _on(x, device)
    if not x.shape:
        return reshape(place("offset" if layout == "broadcast" else layout, x.reshape(1), device), ())
    made: Tensor = _BUILD[layout](x, device)
    return made


def _on(x: Array, device: Device) -> Tensor:
    made: Tensor = hooks.from_host(x, device)
    return made


def _around(x: Array, shape: tuple[int, ...]) -> Array:
    """An array to put ``x`` into, filled with its elements in another order (zeros where it has none)."""
    if not x.size:
        return np.zeros(shape, x.dtype)
    return np.resize(np.roll(x.reshape(-1)[::-1], 1), shape).astype(x.dtype)


def _strided(x: Array, device: Device) -> Tensor:
    if x.ndim > 1:
        axes = tuple(reversed(range(x.ndim)))
        return permute_dims(_on(np.ascontiguousarray(x.transpose(axes)), device), axes)
    base = _around(x, (2 * x.shape[0],))
    base[::2] = x
    return _on(base, device)[::2]


def _negative(x: Array, device: Device) -> Tensor:
    return _on(np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim]), device)[(slice(None, None, -1),) * x.ndim]


def _offset(x: Array, device: Device) -> Tensor:
    base = _around(x, tuple(d + 3 for d in x.shape))
    inner = tuple(slice(2, 2 + d) for d in x.shape)
    base[inner] = x
    return _on(base, device)[inner]


def _broadcast(x: Array, device: Device) -> Tensor:
    axis = _repeated_axis(x.shape)
    if axis is None:
        return _on(x, device)
    return broadcast_to(_on(x[(slice(None),) * axis + (slice(0, 1),)], device), x.shape)


_BUILD: dict[str, Any] = {
    "strided": _strided,
    "negative": _negative,
    "offset": _offset,
    "broadcast": _broadcast,
}
