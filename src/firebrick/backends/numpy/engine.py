"""Host engines on NumPy arrays: what ``numpy`` and ``cpu`` share.

Kernels are an op's reference at the operands' own dtype, unless ``kernels.py`` has a faster one. NumPy stores float16 and
bfloat16 but computes in them poorly, so arithmetic on them runs in float32 and is rounded once.
"""

from __future__ import annotations

import platform as host_platform
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import numpy as np

from firebrick.backends.contract import ARITHMETIC, STORAGE, Backend
from firebrick.backends.numpy.calls import settle, widened
from firebrick.backends.numpy.kernels import KERNELS, REAL_UFUNCS
from firebrick.compiler import Executable, Kernel, call, choose, kernel_function, plan_memory, write
from firebrick.compiler.fusion.fused import FUSED
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import _BY_NP, DType, bfloat16, dtype, float16, float32
from firebrick.core.op import Op
from firebrick.core.sources import defines
from firebrick.ir import CONSTANT, Graph, interpret
from firebrick.ops import OPS

_STORED = {float16.np: float32.np, bfloat16.np: float32.np}
# ops that only move, select or compare, and are exact on stored dtypes as they are
_MOVES = frozenset({
    "where", "take", "gather", "scatter", "slice_update", "reshape", "permute", "broadcast_to", "slice", "pad", "flip",
    "concat", "split", "cast", "negative", "abs", "random_bits", "random_uniform",
})  # fmt: skip


def _quiet(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` without NumPy's floating-point warnings: inf and NaN are results like any."""
    return np.errstate(all="ignore")(kernel)


# those of ops that others declare are not kept: another declaration may replace them
_KERNELS = {
    op.name: _quiet(KERNELS.get(op.name, op.reference)) for op in OPS.values() if defines(str(op.reference.__module__))
}  # fmt: skip


_UFUNCS = {name: _quiet(kernel) for name, kernel in KERNELS.items() if isinstance(kernel, np.ufunc)}
_OF_REAL = {name: _quiet(kernel) for name, kernel in REAL_UFUNCS.items()}


def _ufunc(op: Op, plane: bool) -> Callable[..., Any] | None:
    """The one ufunc that an op is on real operands, or on complex ones (``plane``)."""
    return _UFUNCS.get(op.name) or (None if plane else _OF_REAL.get(op.name))


def loud_ufunc(op: Op) -> np.ufunc:
    """The same ufunc with NumPy's floating-point warnings, of an op that has one."""
    found = KERNELS.get(op.name)
    return found if isinstance(found, np.ufunc) else REAL_UFUNCS[op.name]


class HostBackend(Backend):
    """An engine on NumPy arrays in host memory.

    Attributes:
        expensive: Names of the ops for which ``run_expensive`` is tried first.
    """

    expensive: Container[str] = ()
    replays = True

    def device_count(self, platform: str) -> int:
        return int(config.logical_devices)

    def properties(self, device: Device) -> dict[str, Any]:
        return {
            "name": host_platform.processor() or host_platform.machine(),
            "driver": f"NumPy {np.__version__}",
        }

    def host_memory(self, device: Device) -> bool:
        return True

    def dtype_usage(self, device: Device, dtype: DType) -> frozenset[str]:
        return frozenset({STORAGE} if dtype.np in _STORED or dtype.kind == "storage" else {STORAGE, ARITHMETIC})

    def compute_dtype(self, device: Device, dtype: DType) -> DType:
        return float32 if dtype.np in _STORED or dtype.kind == "storage" else dtype

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> np.ndarray[Any, Any]:
        return np.array(array, order="C")

    def to_host(self, native: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return native

    def describe(self, native: np.ndarray[Any, Any]) -> Aval:
        return Aval(native.shape, _BY_NP[native.dtype])

    def shares_memory(self, view: np.ndarray[Any, Any], whole: np.ndarray[Any, Any]) -> bool:
        return not view.size or bool(np.may_share_memory(view, whole))  # an empty view may be read-only

    def same_elements(self, view: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
        return view.__array_interface__["data"] == other.__array_interface__["data"] and view.strides == other.strides

    def nbytes(self, native: np.ndarray[Any, Any]) -> int:
        return int(native.nbytes)

    def to_dlpack(self, native: np.ndarray[Any, Any], **kwargs: Any) -> Any:
        # PyTorch ends the process at the sight of a negative stride
        shares = native.flags.writeable and all(s >= 0 for s in native.strides)
        shown = native.view() if shares else native.copy()
        if native.dtype.num >= 256:  # one of ml_dtypes'
            from firebrick.backends.numpy import dlpack

            return dlpack.exported(shown, _BY_NP[native.dtype], **kwargs)
        return shown.__dlpack__(**kwargs)

    def dlpack_device(self, native: np.ndarray[Any, Any]) -> tuple[int, int]:
        return (1, 0)

    def from_dlpack(self, external: Any, device: Device) -> np.ndarray[Any, Any]:
        from firebrick.backends.numpy import dlpack  # not needed by most programs

        return dlpack.imported(external)

    def supports(self, op: Op, dtypes: tuple[DType, ...]) -> bool:
        return True

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        if op.program is not None:
            return self.run_kernel(op, inputs, params)
        if op.name in self.expensive and (found := self.run_expensive(op, inputs, params)) is not None:
            return found
        if op is FUSED:
            return interpret(params["body"], inputs, self._inside)
        kernel = _KERNELS.get(op.name) or _quiet(op.reference)
        first = inputs[-1].dtype
        if first in _STORED and op.name not in _MOVES:
            wide = tuple(x.astype(_STORED[first]) if x.dtype == first else x for x in inputs)
            return _narrow(kernel(*wide, **params), np.dtype(np.float32), first)
        if (ufunc := _ufunc(op, first.kind == "c")) is not None:
            if out is None:
                out = self.destination(op, inputs)
            return _as_arrays(ufunc(*inputs, out=out))
        return _as_arrays(kernel(*inputs, **params))

    def destination(self, op: Op, inputs: tuple[np.ndarray[Any, Any], ...]) -> np.ndarray[Any, Any] | None:
        """Memory for the result of an op that is a ufunc; None to leave it to NumPy."""
        return None

    def run_expensive(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The result of an engine's own kernel, as ``execute`` returns it; None to run NumPy's."""
        return None

    def run_kernel(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The result of an op that is written in the kernel language: by the interpreter of kernel IR."""
        return op.reference(*inputs, **params)

    def _inside(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return params["value"] if op is CONSTANT else self.execute(op, inputs, params)

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:
        if type(self).execute is not HostBackend.execute:  # an engine with an execute of its own
            return super().kernel(op, operands, params, results, device, known)
        stored = operands[-1].dtype.np
        if op.program is not None:
            return call(lambda *natives: self.run_kernel(op, natives, params), len(operands), {})
        if stored not in _STORED or op.name in _MOVES:
            return settle(op, operands, params, results, known)
        wide = dtype(_STORED[stored])
        inside = tuple(Aval(a.shape, wide) if a.dtype.np == stored else a for a in operands)
        return widened(settle(op, inside, params, results, known), operands, stored, wide.np, _narrow)

    def replay(self, graph: Graph, device: Device, large: bool) -> Executable:
        # not written over dead values: NumPy gives a new result the order in memory of its operands, by which a sum may round
        kernels = [
            None if k is None else replace(k, into=None, first=None, outs=None) for k in choose(self, graph, device)
        ]  # fmt: skip
        return write(self, graph, kernels, plan_memory(graph, kernels), device)

    def kept_kernel(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device
    ) -> Callable[..., Any] | None:  # fmt: skip
        if op.program is not None or not defines(str(op.reference.__module__)):
            return None
        function = kernel_function(self.kernel(op, operands, params, results, device, (None,) * len(operands)), len(operands))
        return function if op.view is not None else _quiet(function)

    def around(self) -> tuple[str, dict[str, Any]]:
        return 'errstate(all="ignore")', {"errstate": np.errstate}

    def copy(self, native: np.ndarray[Any, Any], device: Device | None = None) -> np.ndarray[Any, Any]:
        return np.array(native, order="C")

    def fast_kernel(self, op: Op, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        ufunc = _ufunc(op, any(d.kind == "complex" for d in dtypes))
        return None if ufunc is None or any(d.np in _STORED for d in dtypes) else ufunc


def _as_arrays(result: Any) -> Any:
    if type(result) is tuple:
        return tuple(np.asarray(r) for r in result)
    return result if type(result) is np.ndarray else np.asarray(result)


@np.errstate(all="ignore")
def _narrow(result: Any, wide: Any, to: Any) -> Any:
    if type(result) is tuple:
        return tuple(_narrow(r, wide, to) for r in result)
    result = np.asarray(result)
    return result.astype(to) if result.dtype == wide else result


class NumpyBackend(HostBackend):
    """The reference engine: NumPy itself."""

    engine = "numpy"
    platforms = ("numpy",)
