"""Tensors on native arrays: a handle for what an engine returned, and the check that a handle has values.

The lowest module of ``backends``: the contract's fallback, the dispatch and moves between devices all make tensors here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.errors import ExecutionError
from firebrick.core.storage import Absent, Storage
from firebrick.core.tensor import Tensor


def wrap(native: Any, aval: Aval, device: Device, base: Storage | None = None) -> Tensor:
    """A handle on a native array that an engine returned, after checking that it is what was inferred.

    Args:
        native: The engine's array.
        aval: Shape and dtype that it must have.
        device: Where it is.
        base: The storage whose memory ``native`` is a view of; None if the new storage owns its memory.

    Raises:
        ExecutionError: The array has another shape or dtype.
    """
    got = device.backend.describe(native)
    if got != aval:
        raise ExecutionError(f"an engine must return {aval}", f"{got} from {device}", "report this as a bug of the engine")
    storage = Storage(native, device._memory, 0 if base else device.backend.nbytes(native), base=base)
    return Tensor(storage, aval.dtype, aval.shape, device)


def check_present(tensors: Sequence[Tensor]) -> None:
    """Raise the reason if a tensor has no values: it belongs to a trace, or a program that failed was writing it."""
    for t in tensors:
        data = t.storage.data
        if isinstance(data, Absent) and (error := data.why(t)) is not None:
            raise error
