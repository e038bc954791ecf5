"""The ``torch`` engine: what PyTorch's devices are, and how ops reach its kernels.

PyTorch is imported when a device is first asked for. Natives are tensors that never require gradients: autodiff is
Firebrick's. Logical CPU devices (``torch:cpu:0``, ``torch:cpu:1``) are one device of PyTorch; their identity is
Firebrick's.
"""

from __future__ import annotations

import importlib
import platform as host_platform
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from firebrick.backends.contract import ACCELERATED, ARITHMETIC, STORAGE, Backend
from firebrick.backends.torch.capability import missing_capability
from firebrick.compiler import Executable, Kernel
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, bfloat16, complex128, float16, float32, float64, int64, uint16, uint32, uint64
from firebrick.core.errors import ExecutionError
from firebrick.core.op import Op
from firebrick.ir import Graph

_STORED_ONLY = frozenset({uint16, uint32, uint64})
# lowest compute capability with matrix units for a dtype
_MATRIX_UNITS = {float16: (7, 0), bfloat16: (8, 0)}


class TorchBackend(Backend):
    """An engine on PyTorch's tensors."""

    engine = "torch"
    platforms = ("cpu", "cuda", "mps", "xpu")

    @cached_property
    def _torch(self) -> Any:
        return importlib.import_module("torch")

    @cached_property
    def _memory(self) -> ModuleType:
        return importlib.import_module("firebrick.backends.torch.memory")

    @cached_property
    def _kernels(self) -> ModuleType:
        return importlib.import_module("firebrick.backends.torch.kernels")

    @cached_property
    def _calls(self) -> ModuleType:
        return importlib.import_module("firebrick.backends.torch.calls")

    @cached_property
    def _inductor(self) -> ModuleType:
        return importlib.import_module("firebrick.backends.torch.inductor")

    # what there is

    def unavailable(self, platform: str) -> str | None:
        try:
            torch = self._torch
        except ModuleNotFoundError as e:
            if e.name != "torch":
                raise
            return "PyTorch is not installed: pip install 'firebrick[torch]'"
        if platform == "cuda":
            return _no_cuda(torch)
        if platform == "mps" and not torch.backends.mps.is_available():
            return f"PyTorch {torch.__version__} finds no Apple GPU (MPS) here; use torch:cpu"
        if platform == "xpu" and not torch.xpu.is_available():
            return f"PyTorch {torch.__version__} finds no Intel GPU (XPU) here; use torch:cpu or its XPU build"
        return None

    def device_count(self, platform: str) -> int:
        if platform == "cpu":
            return int(config.logical_devices)
        return int(getattr(self._torch, platform).device_count())

    def properties(self, device: Device) -> dict[str, Any]:
        torch = self._torch
        driver = f"PyTorch {torch.__version__}"
        if device.platform == "cuda":
            found = torch.cuda.get_device_properties(device.index)
            runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
            return {
                "name": found.name,
                "driver": f"{driver}, {runtime}",
                "memory": int(found.total_memory),
                "capability": (int(found.major), int(found.minor)),
            }
        if device.platform == "xpu":
            found = torch.xpu.get_device_properties(device.index)
            return {"name": found.name, "driver": driver, "memory": int(found.total_memory)}
        return {"name": host_platform.processor() or host_platform.machine(), "driver": driver}

    def dtype_usage(self, device: Device, dtype: DType) -> frozenset[str]:
        if device.platform == "mps" and (dtype in (float64, complex128) or dtype.kind == "storage"):
            return frozenset()
        if dtype in _STORED_ONLY or dtype.kind == "storage":
            return frozenset({STORAGE})
        if device.platform == "cuda" and dtype in _MATRIX_UNITS:
            capability = self._torch.cuda.get_device_capability(device.index)
            if capability >= _MATRIX_UNITS[dtype]:
                return frozenset({STORAGE, ARITHMETIC, ACCELERATED})
        return frozenset({STORAGE, ARITHMETIC})

    def compute_dtype(self, device: Device, dtype: DType) -> DType:
        if dtype.kind == "storage":
            return float32
        return int64 if dtype in (uint16, uint32) else dtype

    # state and time

    def sync(self, device: Device) -> None:
        try:
            if device.platform == "mps":
                self._torch.mps.synchronize()
            elif device.platform != "cpu":
                getattr(self._torch, device.platform).synchronize(device.index)
        except RuntimeError as e:
            raise ExecutionError(f"work on {device} must finish", str(e), "check the ops before this wait") from e

    # memory

    def memory_stats(self, device: Device) -> dict[str, int]:
        stats = super().memory_stats(device)
        if device.platform in ("cuda", "xpu"):
            library = getattr(self._torch, device.platform)
            stats["torch_allocated"] = int(library.memory_allocated(device.index))
            stats["torch_peak"] = int(library.max_memory_allocated(device.index))
            stats["torch_reserved"] = int(library.memory_reserved(device.index))
        elif device.platform == "mps":
            stats["torch_allocated"] = int(self._torch.mps.current_allocated_memory())
        return stats

    def memory_cleanup(self, device: Device) -> None:
        super().memory_cleanup(device)
        if device.platform != "cpu":
            library = getattr(self._torch, device.platform)
            library.empty_cache()
            if device.platform != "mps":
                library.reset_peak_memory_stats(device.index)

    def staging(self, arrays: Sequence[np.ndarray[Any, Any]], device: Device) -> list[np.ndarray[Any, Any]]:
        if device.platform != "cuda":
            return list(arrays)
        pinned: list[np.ndarray[Any, Any]] = self._memory.pinned(arrays)
        return pinned

    # moving data

    def host_memory(self, device: Device) -> bool:
        return device.platform == "cpu"

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> Any:
        try:
            return self._memory.from_host(array, device)
        except RuntimeError as e:
            raise self._translated(e) from e

    def to_host(self, native: Any) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = self._memory.to_host(native)
        return array

    def describe(self, native: Any) -> Aval:
        found: Aval = self._memory.aval(native)
        return found

    def shares_memory(self, view: Any, whole: Any) -> bool:
        return bool(view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr())

    def same_elements(self, view: Any, other: Any) -> bool:
        return bool(view.data_ptr() == other.data_ptr() and view.stride() == other.stride())

    def nbytes(self, native: Any) -> int:
        return int(native.nbytes)

    def to_dlpack(self, native: Any, **kwargs: Any) -> Any:
        return self._memory.to_dlpack(native, **kwargs)

    def dlpack_device(self, native: Any) -> tuple[int, int]:
        kind, index = native.__dlpack_device__()
        return int(kind), int(index)

    def from_dlpack(self, external: Any, device: Device) -> Any:
        return self._memory.from_dlpack(external, device)

    # computing

    def supports(self, op: Op, dtypes: tuple[DType, ...]) -> bool:
        return bool(self._kernels.supports(op, dtypes))

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        try:
            return self._kernels.run(op, inputs, params, out)
        except RuntimeError as e:
            raise self._translated(e) from e

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        if not config.torch_compile:
            return super().compile(graph, device, donate, ready)
        made: Executable = self._inductor.Inductor(super().compile(graph, device))
        return made

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:
        own = type(self).execute is TorchBackend.execute
        if device is None or not own or not self.supports(op, tuple(a.dtype for a in operands)):
            return super().kernel(op, operands, params, results, device, known)
        found: Kernel = self._calls.settle(op, operands, params, device.platform, known)
        return found

    def translated(self, error: Exception) -> Exception:
        return self._translated(error) if isinstance(error, RuntimeError) else error

    def copy(self, native: Any, device: Device | None = None) -> Any:
        return native.clone(memory_format=self._torch.contiguous_format)

    def fast_kernel(self, op: Op, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        kernel: Callable[..., Any] | None = self._kernels.fast_kernel(op, dtypes)
        return kernel

    def _translated(self, error: RuntimeError) -> Exception:
        """PyTorch's errors as the contract's: a failed allocation is a MemoryError."""
        return MemoryError(str(error)) if self._memory.out_of_memory(error) else error


def _no_cuda(torch: Any) -> str | None:
    """Why PyTorch cannot use a GPU through CUDA or ROCm, or None."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
    if usable and torch.version.hip:
        return None
    if usable:
        found = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
        built = torch.cuda.get_arch_list()
        reasons = [missing_capability(c, built, torch.__version__, torch.version.cuda) for c in found]
        return None if None in reasons or not reasons else reasons[0]
    if not (torch.version.cuda or torch.version.hip):
        return (
            f"PyTorch {torch.__version__} was built without CUDA: install one of PyTorch's wheels with it, "
            "for example of cu128 (pytorch.org, Get Started)"
        )
    detail = f" ({said[-1].message})" if said else ""
    return f"PyTorch {torch.__version__} finds no usable GPU{detail}: check that nvidia-smi (rocm-smi) sees one"
