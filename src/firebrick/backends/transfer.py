"""Moving tensors between devices, and the report when a device has no room.

Within an engine a move is the engine's own copy; between engines it goes through host memory, staged by the receiving
engine. A moved tensor never shares memory with its source: two devices are two identities, even on one processor.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.errors import OutOfMemoryError
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor


def move(x: Tensor, device: Device) -> Tensor:
    """A copy of ``x`` on ``device``.

    Raises:
        DTypeError: The device cannot store the dtype.
    """
    from firebrick.backends.dispatch import check_storable, wrap

    check_storable(x.dtype, device)
    host = np.asarray(x.device.backend.to_host(x.storage.data))
    (staged,) = device.backend.staging([host], device)
    return wrap(device.backend.from_host(staged, device), x.aval, device)


def largest_allocations(device: Device, most: int = 5) -> list[tuple[int, str]]:
    """The largest live tensors of a device, as (bytes, description)."""
    rows = []
    seen: set[int] = set()
    for t in gc.get_objects():
        if isinstance(t, Tensor) and t.device is device:
            root: Storage = t.storage.root
            if id(root) not in seen:
                seen.add(id(root))
                rows.append((root.nbytes, f"{t.aval} {t.label or ''}".strip()))
    return sorted(rows, reverse=True)[:most]


def out_of_memory(op: str, avals: tuple[Aval, ...], device: Device) -> OutOfMemoryError:
    """The error for a failed allocation, with the largest live tensors."""
    wanted = sum(a.nbytes for a in avals)
    top = "; ".join(f"{n / 2**20:.1f} MiB {what}" for n, what in largest_allocations(device)) or "none"
    context: dict[str, Any] = {"op": op, "device": device.name, "bytes": wanted}
    return OutOfMemoryError(
        f"{op} on {device} needs {wanted / 2**20:.1f} MiB for its result",
        f"{device._memory.live / 2**20:.1f} MiB live there already; the largest: {top}",
        "use a smaller batch, fb.checkpoint, or free tensors you no longer need",
        **context,
    )
