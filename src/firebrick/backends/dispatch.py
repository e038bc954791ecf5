"""``Dispatch``: the global backend. It routes each op by its operands' device and wraps the arrays that the engine returned.

An op that an engine lacks is decomposed if its entry has a decomposition; otherwise it runs on the host (see ``fallback.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from firebrick.backends import registry, transfer
from firebrick.backends.contract import Backend, check_storable
from firebrick.backends.fallback import on_host
from firebrick.backends.handles import check_present, wrap
from firebrick.backends.memory import out_of_memory
from firebrick.core import timeline
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ExecutionError
from firebrick.core.hooks import hooks
from firebrick.core.levels import readable
from firebrick.core.op import Op
from firebrick.core.storage import Absent, Storage
from firebrick.core.tensor import Tensor

_KERNELS = 128  # ops with graphs whose compiled forms are kept
_kernels: dict[Any, tuple[Any, Any]] = {}


def _hint(out: Tensor | None, inputs: tuple[Tensor, ...]) -> Any:
    """Memory of ``out`` for the engine to write, if nobody else can see it."""
    if out is None:
        return None
    if hooks.journals:  # before the memory is written: a journal keeps the old values
        hooks.note(out)
    for t in inputs:
        if t.storage.root is out.storage:
            return None
    return out.storage.data if out.storage.unique() else None


def execute(
    op: Op,
    inputs: tuple[Tensor, ...],
    params: dict[str, Any],
    avals: tuple[Aval, ...],
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Run one op on its operands' device; the results are new handles."""
    if op.transfers:
        check_present(inputs)
        return (transfer.move(inputs[0], params["device"]),)
    device = inputs[0].device
    if op.control is not None:
        return _controlled(op, inputs, params, avals, device)
    engine: Backend = device.backend
    dtypes = tuple(t.dtype for t in inputs)
    if engine.supports(op, dtypes):
        natives = tuple(t.storage.data for t in inputs)
        if timeline.active:
            timeline.here.device = device.name
        try:
            result = engine.execute(op, natives, params, _hint(out, inputs))
        except MemoryError as e:
            raise out_of_memory(op.shown, avals, device) from e
        except Exception:
            if not any(isinstance(n, Absent) for n in natives):
                raise
            check_present(inputs)  # raises, or waits for the thread that is writing it
            return execute(op, inputs, params, avals, out)
        results = result if type(result) is tuple else (result,)
        base = inputs[0].storage.root if op.view else None
        made = []
        describe, memory = engine.describe, device._memory
        for native, aval in zip(results, avals, strict=True):
            got = describe(native)
            if got != aval:
                raise ExecutionError(
                    f"{op.shown} on {device} must return {aval}",
                    str(got),
                    "report this as a bug of the engine",
                    op=op.shown,
                )
            if base is not None and not engine.shares_memory(native, natives[0]):  # a reshape that had to copy
                base = None
            storage = Storage(native, memory, 0 if base else aval.nbytes, base=base)
            made.append(Tensor(storage, aval.dtype, aval.shape, device))
        if op.fusion == "map" and (device, *dtypes) not in op.fast:
            kernel = engine.fast_kernel(op, dtypes)
            op.fast[(device, *dtypes)] = (kernel, avals[0].dtype)
        return tuple(made)
    if op.decompose is not None:
        result = op.decompose(*(t.detach() for t in inputs), **params)
        return tuple(t.detach() for t in (result if type(result) is tuple else (result,)))
    return _on_host(op, inputs, params, avals, device)


def _controlled(
    op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...], device: Device
) -> tuple[Tensor, ...]:
    """Run one op that runs graphs; the compiled graphs are kept for the next calls."""
    check_present(inputs)
    key = (op, device, device.backend, id(params))
    found = _kernels.get(key)
    if found is None:
        assert op.control is not None
        found = _kernels[key] = op.control(device.backend, params, device), params
        for oldest in list(_kernels)[:-_KERNELS]:
            _kernels.pop(oldest, None)
    result = found[0](*(t.storage.data for t in inputs))
    base = inputs[0].storage.root if op.view else None
    results = result if type(result) is tuple else (result,)
    return tuple(wrap(native, aval, device, base) for native, aval in zip(results, avals, strict=True))


def _on_host(
    op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], avals: tuple[Aval, ...], device: Device
) -> tuple[Tensor, ...]:
    check_present(inputs)
    with timeline.span(op.name, "fallback", device.name):
        natives = on_host(op, tuple(t.storage.data for t in inputs), params, avals, device)
    return tuple(wrap(native, aval, device) for native, aval in zip(natives, avals, strict=True))


def from_host(array: np.ndarray[Any, Any], device: Device) -> Tensor:
    """A tensor holding a copy of a host array on ``device``.

    Raises:
        DTypeError: The device cannot store the dtype.
    """
    dt = as_dtype(array.dtype)
    check_storable(dt, device)
    aval = Aval(array.shape, dt)
    try:
        native = device.backend.from_host(array, device)
    except MemoryError as e:
        raise out_of_memory("a new tensor", (aval,), device) from e
    return wrap(native, aval, device)


def to_host(x: Tensor) -> np.ndarray[Any, Any]:
    """The values as a read-only NumPy array; waits for the work that makes them."""
    if hooks.levels:
        x = readable(x)
    data = x.storage.data
    while isinstance(data, Absent):
        check_present((x,))
        data = x.storage.data
    if timeline.active:
        timeline.here.device = x.device.name
    host: np.ndarray[Any, Any] = x.device.backend.to_host(data)
    if host.flags.writeable or host.base is not None:
        x.storage.export()
        host = host.view()
        host.setflags(write=False)
    return host


def known_range(x: Tensor) -> tuple[int, int] | None:
    """The least and the greatest value of integers, or of bools, that are known without a wait; None if they are not, or if the
    engine never waits."""
    data = readable(x).storage.data
    if isinstance(data, Absent):
        return None
    known: list[tuple[int, int] | None] | None = x.device.backend.known_ranges([data])
    return known[0] if known is not None else None


def read(tensors: Sequence[Tensor]) -> list[np.ndarray[Any, Any]]:
    """The values of many tensors, with one synchronization for each engine.

    Args:
        tensors: Tensors on any devices.

    Returns:
        Read-only NumPy arrays, one for each tensor and in their order.

    Example:
        >>> import firebrick as fb
        >>> [a.tolist() for a in fb.read([fb.ones(2), fb.zeros(1)])]
        [[1.0, 1.0], [0.0]]
    """
    out: list[Any] = [None] * len(tensors)
    groups: dict[Device, list[int]] = {}
    for i, t in enumerate(tensors):
        groups.setdefault(t.device, []).append(i)
    if hooks.levels:
        tensors = [readable(t) for t in tensors]
    check_present(tensors)
    for device, indices in groups.items():
        if timeline.active:
            timeline.here.device = device.name
        hosts = device.backend.read([tensors[i].storage.data for i in indices])
        for i, host in zip(indices, hosts, strict=True):
            tensors[i].storage.export()
            view = host.view()
            view.flags.writeable = False
            out[i] = view
    return out


class Dispatch(Backend):
    """The global backend: every hook of the contract, routed by device."""

    engine = "dispatch"

    @property
    def platforms(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(registry.engines())

    def name(self, device: Device) -> str:
        return f"dispatch<{device.backend.name(device)}>"

    def device_count(self, platform: str) -> int:
        found = registry.backend(platform)
        return sum(found.device_count(p) for p in found.platforms if found.unavailable(p) is None)

    def properties(self, device: Device) -> dict[str, Any]:
        return dict(device.backend.properties(device))

    def dtype_usage(self, device: Device, dtype: DType) -> frozenset[str]:
        return frozenset(device.backend.dtype_usage(device, dtype))

    def compute_dtype(self, device: Device, dtype: DType) -> DType:
        found: DType = device.backend.compute_dtype(device, dtype)
        return found

    def default_quant_scheme(self, device: Device) -> str | None:
        found: str | None = device.backend.default_quant_scheme(device)
        return found

    def ad_enabled(self, device: Device) -> bool:
        return bool(device.backend.ad_enabled(device))

    def seed(self, device: Device, n: int) -> None:
        device.backend.seed(device, n)

    def sync(self, device: Device) -> None:
        device.backend.sync(device)

    def flush(self, device: Device) -> None:
        device.backend.flush(device)

    def memory_stats(self, device: Device) -> dict[str, int]:
        return dict(device.backend.memory_stats(device))

    def memory_cleanup(self, device: Device) -> None:
        device.backend.memory_cleanup(device)

    @contextmanager
    def memory_persistent_allocations(self, device: Device) -> Iterator[None]:
        with device.backend.memory_persistent_allocations(device):
            yield

    def staging(self, arrays: Sequence[np.ndarray[Any, Any]], device: Device) -> list[np.ndarray[Any, Any]]:
        return list(device.backend.staging(arrays, device))

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> Tensor:
        return from_host(array, device)

    def to_host(self, native: Tensor) -> np.ndarray[Any, Any]:
        return to_host(native)

    def read(self, natives: Sequence[Tensor]) -> list[np.ndarray[Any, Any]]:
        return read(natives)

    def describe(self, native: Tensor) -> Aval:
        return native.aval

    def supports(self, op: Op, dtypes: tuple[DType, ...]) -> bool:
        return True

    def execute(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any], out: Tensor | None = None) -> Any:
        inferred = op.infer(*inputs, **params)
        return execute(op, inputs, params, (inferred,) if type(inferred) is Aval else inferred, out)


dispatch = Dispatch()

hooks.execute = execute
hooks.from_host = from_host
hooks.to_host = to_host
