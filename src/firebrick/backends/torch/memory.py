"""Torch tensors and host arrays: dtypes of both, copies between them, DLPack, and how an allocator's error is recognised.

bfloat16 and the 8-bit floats have no NumPy of their own, so they travel as the bits of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from firebrick.core import dtypes
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DTypeError, UnsupportedError

Array = np.ndarray[Any, Any]

TORCH: dict[DType, Any] = {d: getattr(torch, d.name) for d in dtypes.ALL}
FIREBRICK: dict[Any, DType] = {t: d for d, t in TORCH.items()}

# NumPy dtype → integer of its size, for the dtypes that NumPy itself lacks; and the same for PyTorch's
_BITS: dict[Any, Any] = {
    dtypes.bfloat16.np: np.dtype(np.int16),
    dtypes.float8_e4m3fn.np: np.dtype(np.uint8),
    dtypes.float8_e5m2.np: np.dtype(np.uint8),
}
_TORCH_BITS = {TORCH[dtypes.dtype(own)]: getattr(torch, bits.name) for own, bits in _BITS.items()}
# below this, pinning costs more than the slower copy
_PIN_FROM = 1 << 20


def aval(native: Any) -> Aval:
    """Shape and dtype of a tensor."""
    dtype = FIREBRICK.get(native.dtype)
    if dtype is None:
        raise DTypeError("a tensor of a dtype that Firebrick has", str(native.dtype), "convert it with PyTorch first")
    return Aval(tuple(native.shape), dtype)


def torch_device(device: Device) -> Any:
    """PyTorch's device. All logical CPU devices are one there."""
    return torch.device("cpu") if device.platform == "cpu" else torch.device(device.platform, device.index)


def from_host(array: Array, device: Device) -> Any:
    """A tensor on ``device`` with a copy of a host array."""
    host = np.asarray(array, order="C")
    if device.platform == "cpu" or not host.flags.writeable:
        host = np.array(array, order="C")
    bits: Any = _BITS.get(host.dtype)
    made = torch.from_numpy(host if bits is None else host.view(bits))
    if bits is not None:
        made = made.view(TORCH[dtypes.dtype(host.dtype)])
    return made if device.platform == "cpu" else made.to(torch_device(device))


def to_host(native: Any) -> Array:
    """The values as a NumPy array: the same memory on the CPU, a copy from elsewhere."""
    here = native.cpu().resolve_conj().resolve_neg()
    as_bits = _TORCH_BITS.get(here.dtype)
    if as_bits is not None:
        bits: Array = here.view(as_bits).numpy()
        return bits.view(FIREBRICK[here.dtype].np)
    array: Array = here.numpy()
    return array


def pinned(arrays: Sequence[Array]) -> list[Array]:
    """The arrays in page-locked memory, from which a GPU copies without an intermediate buffer; small ones as they are."""
    out = []
    for a in arrays:
        if a.nbytes < _PIN_FROM:
            out.append(a)
            continue
        own = TORCH[dtypes.dtype(a.dtype)]
        bits = _TORCH_BITS.get(own, own)
        staged: Array = torch.empty(a.shape, dtype=bits, device="cpu", pin_memory=True).numpy().view(a.dtype)
        staged[...] = a
        out.append(staged)
    return out


def to_dlpack(native: Any, **kwargs: Any) -> Any:
    """A DLPack capsule of a tensor; older PyTorch knows no keyword but ``stream``."""
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 9):
        return native.__dlpack__(**kwargs)
    if kwargs.get("copy"):
        native = native.clone()
    return native.__dlpack__(stream=kwargs.get("stream"))


def _runs_backwards(external: Any) -> bool:
    """Whether host memory has a negative stride, at the sight of which PyTorch ends the process."""
    lies_on = getattr(external, "__dlpack_device__", None)
    if lies_on is None or int(lies_on()[0]) != 1:
        return False
    try:
        return any(s < 0 for s in np.from_dlpack(external).strides)
    except (BufferError, RuntimeError, TypeError, ValueError):  # a dtype that NumPy lacks, hence no NumPy array
        return False


def from_dlpack(external: Any, device: Device) -> Any:
    """A tensor that shares the memory of another library's array."""
    if _runs_backwards(external):
        raise UnsupportedError(
            f"{device} can share only memory that runs forwards", "a negative stride", "copy it with fb.asarray"
        )
    try:
        made = torch.from_dlpack(external)
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        raise UnsupportedError(
            f"{device} can share only memory that DLPack describes and PyTorch accepts",
            f"{type(external).__name__}: {e}",
            "copy it with fb.asarray",
        ) from e
    if made.device != torch_device(device):
        raise UnsupportedError(
            f"memory shared with {device} must lie there", f"memory on {made.device}", "copy it with fb.asarray"
        )
    aval(made)
    return made.resolve_conj().resolve_neg()


def out_of_memory(error: RuntimeError) -> bool:
    """Whether PyTorch raised ``error`` because an allocation failed."""
    text = str(error)
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "can't allocate memory" in text
        or "not enough memory" in text
        or "out of memory" in text
    )
