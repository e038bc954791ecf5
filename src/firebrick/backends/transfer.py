"""Moving tensors between devices.

Between engines that both work on host memory a move shares it (through DLPack): both handles keep showing the same values,
since shared memory is never written. Otherwise a move goes through host memory, staged by the receiving engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.backends.contract import check_storable
from firebrick.backends.handles import wrap
from firebrick.core import timeline
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor


class _Exported:
    """One tensor's memory, for the receiving engine to borrow."""

    def __init__(self, x: Tensor) -> None:
        self.backend, self.native = x.device.backend, x.storage.data

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.backend.to_dlpack(self.native, **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.backend.dlpack_device(self.native)
        return found


def move(x: Tensor, device: Device) -> Tensor:
    """``x`` on ``device``, sharing memory if both engines work on host memory.

    Raises:
        DTypeError: The device cannot store the dtype.
    """
    check_storable(x.dtype, device)
    with timeline.span(f"{x.device} to {device}", "transfer", device.name, bytes=x.aval.nbytes):
        return _moved(x, device)


def _moved(x: Tensor, device: Device) -> Tensor:
    source = x.device.backend
    if source.host_memory(x.device) and device.backend.host_memory(device):
        native = x.storage.data
        if source is not device.backend:
            try:
                native = device.backend.from_dlpack(_Exported(x), device)
            except (BufferError, RuntimeError, TypeError):  # DLPack or the engine has no such dtype or layout
                native = None
        if native is not None and device.backend.describe(native) == x.aval:
            return wrap(native, x.aval, device, base=x.storage.root)
    host = np.asarray(source.to_host(x.storage.data))
    (staged,) = device.backend.staging([host], device)
    return wrap(device.backend.from_host(staged, device), x.aval, device)
