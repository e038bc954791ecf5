"""The contract between Firebrick and an engine.

An engine is one subclass of ``Backend``. It sees only its own arrays ("native" arrays): Firebrick has checked devices,
dtypes and shapes before, wraps the results, and compares every engine with one reference. What must be written is
``device_count``, ``from_host``, ``to_host``, ``describe``, ``supports`` and ``execute``; the other methods have a
default, whose docstring says what it means.

Two duties go with ``execute``: operands are never written, and a result never shares memory with an operand, except for ops
whose entry says ``view=True``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from firebrick.backends.fallback import substitute
from firebrick.compiler import Executable, Kernel, build, call
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.ir import Graph
from firebrick.ops import OPS

STORAGE, ARITHMETIC, ACCELERATED = "storage", "arithmetic", "accelerated"


class Backend:
    """An engine that runs ops on the devices of its platforms.

    Attributes:
        engine: Its name, the first part of its device strings.
        platforms: Its platforms; one equal to ``engine`` is left out of device strings.
        replays: Whether eager computations that are repeated, such as gradient rules, run as programs made by ``replay``.
    """

    engine: str = ""
    platforms: tuple[str, ...] = ()
    replays: bool = False

    def __init__(self) -> None:
        self.seeds: dict[Device, int] = {}

    def _unwritten(self, hook: str) -> UnsupportedError:
        return UnsupportedError(
            "an engine writes device_count, from_host, to_host, describe, supports and execute",
            f"{type(self).__name__} without {hook}",
            f"write {type(self).__name__}.{hook} as the contract's docstring says",
        )

    # devices and dtypes

    def unavailable(self, platform: str) -> str | None:
        """Why a platform cannot be used and what to do, or None if it can."""
        return None

    def device_count(self, platform: str) -> int:
        """How many devices a platform has now."""
        raise self._unwritten("device_count")

    def aliased(self, name: str) -> list[int]:
        """The numbers of the devices that another name stands for, such as ``vulkan`` for some of ``webgpu``."""
        return []

    def name(self, device: Device) -> str:
        """The engine and platform of a device, for people."""
        return f"{self.engine}<{device.platform}>"

    def properties(self, device: Device) -> dict[str, Any]:
        """Facts about a device; those it knows of ``name``, ``driver``, ``memory`` in bytes, ``capability``, peak rates, and
        ``target``, the processor that an engine with a compiler generates code for, by which its bits may differ."""
        return {"name": self.name(device)}

    def dtype_usage(self, device: Device, dtype: DType) -> frozenset[str]:
        """Which of STORAGE, ARITHMETIC and ACCELERATED a dtype has. With STORAGE alone, the engine computes in
        ``compute_dtype`` and rounds once."""
        return frozenset({STORAGE, ARITHMETIC})

    def compute_dtype(self, device: Device, dtype: DType) -> DType:
        """The dtype in which arithmetic on ``dtype`` runs."""
        return dtype

    def supports_dtype(self, device: Device, dtype: DType) -> bool:
        """Whether a dtype has both STORAGE and ARITHMETIC."""
        return {STORAGE, ARITHMETIC} <= self.dtype_usage(device, dtype)

    def flushes_denormals(self, device: Device) -> bool:
        """Whether results of arithmetic in float32 that are denormal may be 0, or the smallest normal number of their sign."""
        return False

    def flushed_denormals(self, native: Any) -> bool:
        """``flushes_denormals`` of the device that holds an array."""
        return False

    def default_float(self, device: Device) -> str:
        """Name of the dtype that creation functions use for floats."""
        return "float32"

    def default_int(self, device: Device) -> str:
        """Name of the dtype that creation functions use for integers."""
        return "int64"

    def default_quant_scheme(self, device: Device) -> str | None:
        """Name of the quantisation scheme the device runs best, or None if it has no preference."""
        return None

    def ad_enabled(self, device: Device) -> bool:
        """Whether gradients can be taken there. Autodiff decorates every engine, so: yes."""
        return True

    # state and time

    def seed(self, device: Device, n: int) -> None:
        """Restart the default random generator of a device from ``n``."""
        self.seeds[device] = n

    def sync(self, device: Device) -> None:
        """Wait for all work; raises ExecutionError if some of it failed. Engines that run at once have nothing to wait for."""

    def flush(self, device: Device) -> None:
        """Start all queued work without waiting. Engines without a queue have started it."""

    def timed(self, device: Device, run: Callable[[], Any]) -> tuple[Any, list[tuple[int, int]]]:
        """Run a function, and wait for the work on a device that it asks for.

        Returns:
            What it returns; and when each kernel that it launched began and ended, in nanoseconds of the device's own clock:
            none where a device has no such clock, or where something else than kernels was waited for.
        """
        made = run()
        self.sync(device)
        return made, []

    # memory

    def memory_stats(self, device: Device) -> dict[str, int]:
        """Bytes that live tensors own: ``live`` now, ``peak`` since the last ``memory_cleanup``, and ``persistent``, those of
        the live ones that were allocated to stay; engines may add more."""
        memory = device._memory
        return {"live": memory.live, "peak": memory.peak, "persistent": memory.persistent}

    def memory_cleanup(self, device: Device) -> None:
        """Return unused memory to the system, and restart the peak from what is live."""
        device._memory.peak = device._memory.live

    @contextmanager
    def memory_persistent_allocations(self, device: Device) -> Iterator[None]:
        """Allocations in this block live long (parameters): they are counted as ``persistent``, and an engine with pools
        keeps them apart. The mode ends with the block, also by an exception."""
        with device.persistent_allocations():
            yield

    def staging(self, arrays: Sequence[np.ndarray[Any, Any]], device: Device) -> list[np.ndarray[Any, Any]]:
        """The arrays in the memory that this device copies from fastest (pinned memory if it has any)."""
        return list(arrays)

    # moving data

    def host_memory(self, device: Device) -> bool:
        """Whether its arrays lie in the host's memory, so that DLPack shares them with other host engines."""
        return False

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> Any:
        """A native copy of a host array."""
        raise self._unwritten("from_host")

    def to_host(self, native: Any) -> np.ndarray[Any, Any]:
        """The values as a NumPy array, after all work that makes them; it may share memory with ``native``."""
        raise self._unwritten("to_host")

    def read(self, natives: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Many results with one wait."""
        return [self.to_host(n) for n in natives]

    def known_ranges(self, natives: Sequence[Any]) -> list[tuple[int, int] | None] | None:
        """The least and the greatest value of arrays of integers or bools that are known without a wait, such as of those that
        came from the host; None for one where they are not. None if to read them needs no wait, so that nobody has to ask."""
        return None

    def describe(self, native: Any) -> Aval:
        """Shape and dtype of a native array as it really is."""
        raise self._unwritten("describe")

    def shares_memory(self, view: Any, whole: Any) -> bool:
        """Whether ``view``, made by an op that may return memory of its operand ``whole``, does so. True if in doubt."""
        return True

    def same_elements(self, view: Any, other: Any) -> bool:
        """Whether two views of the same memory, of one shape and dtype, show the same elements. False if in doubt."""
        return view is other

    def nbytes(self, native: Any) -> int:
        """Bytes of a native array."""
        return self.describe(native).nbytes

    def to_dlpack(self, native: Any, **kwargs: Any) -> Any:
        """A DLPack capsule that shares the memory of ``native``."""
        raise UnsupportedError(f"{self.engine} tensors cannot be exported by DLPack", "", "copy through x.numpy()")

    def dlpack_device(self, native: Any) -> tuple[int, int]:
        """DLPack's (device type, device id) of ``native``."""
        raise UnsupportedError(f"{self.engine} tensors cannot be exported by DLPack", "", "copy through x.numpy()")

    def from_dlpack(self, external: Any, device: Device) -> Any:
        """A native array that shares the memory of another library's array."""
        raise UnsupportedError(f"{self.engine} cannot import DLPack", "", "copy with fb.asarray")

    # computing

    def supports(self, op: Op, dtypes: tuple[DType, ...]) -> bool:
        """Whether ``execute`` can run an op on operands of these dtypes."""
        raise self._unwritten("supports")

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        """Run one op on native arrays; returns a native array, or a tuple of them for ops with several results.

        Args:
            op: Entry of the table that ``supports`` accepted.
            inputs: Native operands on one device, promoted and checked.
            params: The op's parameters.
            out: A native array of the (first) result's shape and dtype that nobody else sees: memory to write the result
                into, if that helps. Only the *returned* array counts.
        """
        raise self._unwritten("execute")

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        """A program that runs a graph: ``executable(natives, begin=None)`` returns the outputs' native arrays.

        Outputs share memory with no input, constant or other output. Only the inputs in ``executable.writes`` are written,
        which the program takes over; ``begin()`` is called right before the first such write. Several threads may call one
        executable at once.

        Args:
            graph: The program; its inputs and outputs are native arrays of one device.
            device: Where it runs; the engine's first device by default.
            donate: Numbers of inputs that the caller donates, so that their memory may be reused.
            ready: Positions of outputs (conditions, say) that are computed before the first write and handed to ``begin``
                as a tuple.

        Raises:
            UnsupportedError: The engine lacks one of the graph's ops, and ``config.fallback`` forbids the host.
        """
        return build(self, graph, device or self.first_device(), donate, ready)

    def replay(self, graph: Graph, device: Device, large: bool) -> Executable:
        """A program that runs a small graph of eager code, as ``compile`` does.

        Args:
            graph: The program.
            device: Where it runs.
            large: Whether the graph's work runs by this program from its first time on, so that kernels of its own may compute
                it. Otherwise the bits must be those of its operations one by one.
        """
        return self.compile(graph, device)

    def forms(self, graph: Graph, which: tuple[str, ...], device: Device | None = None) -> str:
        """The forms that a graph takes on its way to machine code, as text; the graph alone where the engine compiles none.

        Args:
            graph: The program.
            which: Of ``"graph"``, ``"groups"``, ``"specs"``, ``"naive"`` and ``"code"``.
            device: The device; the first of the engine if left out.
        """
        return f"# Graph\n{graph}\n\n{self.engine} runs it operation by operation: it has no other forms"

    def first_device(self) -> Device:
        """The device that the engine's name alone refers to."""
        platform = self.platforms[0]
        found: Device = hooks.find_device(self.engine if platform == self.engine else f"{self.engine}:{platform}")
        return found

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:
        """The kernel that ``compile`` uses for one node; by default ``execute``, or the fallback for an op that the engine
        lacks.

        Args:
            op: The operation.
            operands: Shape and dtype of each operand.
            params: The op's parameters.
            results: Shape and dtype of each result.
            device: Where the program runs.
            known: Values of operands that are constants of the program, None for others.
        """
        if self.supports(op, tuple(a.dtype for a in operands)):
            return call(lambda *natives: self.execute(op, natives, params), len(operands), {})
        packed = len(results) != 1 or type(op.infer(*operands, **params)) is not Aval
        return call(substitute(op, operands, params, results, packed, device or self.first_device()), len(operands), {})

    def around(self) -> tuple[str, dict[str, Any]] | None:
        """A context manager in which a compiled program runs, as a Python expression and the values of its names."""
        return None

    def translated(self, error: Exception) -> Exception:
        """An error of the engine's library in a compiled program, translated to the contract's: a failed allocation is a
        MemoryError."""
        return error

    def copy(self, native: Any, device: Device | None = None) -> Any:
        """A native copy on its own device that shares memory with nothing and may be written: a cast to its own dtype, or,
        a copy through the host if the engine has no ``cast``."""
        cast, dtype = OPS["cast"], self.describe(native).dtype
        if self.supports(cast, (dtype,)):
            return self.execute(cast, (native,), {"dtype": dtype})
        return self.from_host(np.array(self.to_host(native)), device or self.first_device())

    def kept_kernel(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device
    ) -> Callable[..., Any] | None:  # fmt: skip
        """A function of native operands, of these shapes and dtypes, that is equivalent to ``execute`` with these parameters
        and may be kept for later operations; None to go through ``execute`` every time.

        Args:
            op: The operation.
            operands: Shape and dtype of each operand.
            params: Its parameters.
            results: Shape and dtype of each result.
            device: Where it runs.
        """
        return None

    def fast_kernel(self, op: Op, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        """For an elementwise op: a function of native arrays of equal, non-empty shape that is equivalent to ``execute`` and
        may be cached; None to go through ``execute`` every time."""
        return None


def check_storable(dt: DType, device: Device) -> None:
    """Raise DTypeError unless ``device`` can store ``dt``: nothing narrows silently."""
    if STORAGE not in device.backend.dtype_usage(device, dt):
        narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}.get(dt.name, "float32")
        raise DTypeError(
            f"{device} cannot store {dt.name}",
            "",
            f"cast first: fb.astype(x, fb.{narrow})",
            dtype=dt.name,
            device=device.name,
        )
