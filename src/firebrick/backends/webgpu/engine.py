"""``WebGpuBackend``: operations and graphs on GPUs through Vulkan, Metal or DirectX 12.

All computation is in kernels of the compiler: an eager operation is a graph of one node. Kernels, also those of compiled
programs, are recorded and run later, in order; reading a value waits for it. What has no kernel runs on the host, with a
warning.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.backends.contract import ARITHMETIC, STORAGE, Backend
from firebrick.backends.fallback import substitute
from firebrick.backends.webgpu.adapters import DRIVERS, adapters
from firebrick.backends.webgpu.buffers import DeviceArray
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.groups import CompiledGroup, Groups
from firebrick.backends.webgpu.lowering import POLICY, checks_without_results, kind_of, lowered_body
from firebrick.backends.webgpu.recorded import AllResults, OneResult, SameMemory, recorded_segments
from firebrick.backends.webgpu.tuning import selected
from firebrick.compiler import Executable, Kernel, build, call
from firebrick.compiler.forms import forms_text
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.layout.views import viewed
from firebrick.compiler.spec.kinds import KINDS
from firebrick.compiler.spec.ranges import Ranges
from firebrick.compiler.tune.compared import collected, compare, untuned
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, bool_, complex128, dtype, float32, float64
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.views import row_major
from firebrick.ir import Graph, Node
from firebrick.ir.keys import key_of

_OF_FLOAT64 = frozenset({float64, complex128})
"""Dtypes that some adapters have."""
_ELEMENTWISE_SCATTERS = frozenset({"scatter", "scatter_add"})
"""Ops that scatter elements and not slices, of which complex ones have no kernels."""
_EAGER = 512
"""Maximum number of eager operations whose kernels are kept."""


class WebGpuBackend(Backend):
    """An engine on the adapters that wgpu finds."""

    engine = "webgpu"
    platforms = ("webgpu",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._opened: dict[int, Groups] = {}
        self._eager: OrderedDict[Any, tuple[Callable[..., Any], _KnownResults | None]] = OrderedDict()

    # devices and dtypes

    def unavailable(self, platform: str) -> str | None:
        try:
            found = adapters()
        except ModuleNotFoundError as e:
            if e.name != "wgpu":
                raise
            return "wgpu is not installed: pip install 'firebrick[webgpu]'"
        except OSError as e:
            return f"wgpu cannot be loaded ({e}): {DRIVERS}"
        return None if found else f"wgpu finds no adapter with Vulkan, Metal or DirectX 12: {DRIVERS}"

    def device_count(self, platform: str) -> int:
        return len(adapters())

    def aliased(self, name: str) -> list[int]:
        return [k for k, a in enumerate(adapters()) if a.api == name]

    def name(self, device: Device) -> str:
        return f"webgpu<{adapters()[device.index].api}>"

    def properties(self, device: Device) -> dict[str, Any]:
        a = adapters()[device.index]
        facts: dict[str, Any] = {"name": a.name, "driver": f"{a.driver} through {a.api}"}
        if device.index in self._opened:
            facts["measured"] = "; ".join(f"{k}: {v}" for k, v in self.groups(device).gpu.measured.facts.items())
        return facts

    def dtype_usage(self, device: Device, dtype: DType) -> frozenset[str]:
        if dtype in _OF_FLOAT64 and self.groups(device).gpu.measured.float64 is None:
            return frozenset()
        return frozenset({STORAGE} if dtype.kind == "storage" else {STORAGE, ARITHMETIC})

    def flushes_denormals(self, device: Device) -> bool:
        return not self.groups(device).gpu.measured.capabilities.denormals

    def flushed_denormals(self, native: DeviceArray) -> bool:
        return not native.gpu.measured.capabilities.denormals

    def compute_dtype(self, device: Device, dtype: DType) -> DType:
        return float32 if dtype.kind == "storage" else dtype

    def groups(self, device: Device) -> Groups:
        """The kernels of a device, which is opened by the first call."""
        found = self._opened.get(device.index)
        if found is None:
            with self._lock:
                found = self._opened.get(device.index)
                if found is None:
                    found = self._opened[device.index] = Groups(Gpu(adapters()[device.index], device.index), selected)
        return found

    # state and memory

    def sync(self, device: Device) -> None:
        if device.index in self._opened:
            self.groups(device).gpu.wait()

    def flush(self, device: Device) -> None:
        if device.index in self._opened:
            self.groups(device).gpu.submit()

    def timed(self, device: Device, run: Callable[[], Any]) -> tuple[Any, list[tuple[int, int]]]:
        found: tuple[Any, list[tuple[int, int]]] = self.groups(device).gpu.timed(run)
        return found

    def memory_stats(self, device: Device) -> dict[str, int]:
        """Besides what every engine has: ``buffers``, bytes of all of the device's buffers, and ``kept`` of those that are
        kept for new tensors."""
        stats = super().memory_stats(device)
        if device.index in self._opened:
            pool = self.groups(device).gpu.pool
            stats |= {"buffers": pool.created, "kept": pool.kept}
        return stats

    def memory_cleanup(self, device: Device) -> None:
        super().memory_cleanup(device)
        if device.index in self._opened:
            gpu = self.groups(device).gpu
            with gpu.lock:
                gpu.submit()
                gpu.pool.release()

    # moving data

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> DeviceArray:
        return self.groups(device).gpu.uploaded(array, Aval(array.shape, dtype(array.dtype)))

    def to_host(self, native: DeviceArray) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = native.gpu.read(native)
        return found

    def read(self, natives: Sequence[DeviceArray]) -> list[np.ndarray[Any, Any]]:
        by_device: dict[Gpu, list[DeviceArray]] = {}
        for x in natives:
            by_device.setdefault(x.gpu, []).append(x)
        found = {gpu: iter(gpu.read_all(arrays)) for gpu, arrays in by_device.items()}
        return [next(found[x.gpu]) for x in natives]

    def known_ranges(self, natives: Sequence[DeviceArray]) -> list[tuple[int, int] | None] | None:
        return [native.known_range for native in natives]

    def describe(self, native: DeviceArray) -> Aval:
        return native.aval

    def shares_memory(self, view: DeviceArray, whole: DeviceArray) -> bool:
        return view.lease is whole.lease

    def same_elements(self, view: DeviceArray, other: DeviceArray) -> bool:
        return view.lease is other.lease  # a view shows all elements of its memory, in their order

    def copy(self, native: DeviceArray, device: Device | None = None) -> DeviceArray:
        found: DeviceArray = native.gpu.copied(native)
        return found

    # computing

    def supports(self, op: Op, dtypes: tuple[DType, ...]) -> bool:
        if any(d.kind == "storage" for d in dtypes) and op.view is None:
            return False
        if any(d.kind == "complex" for d in dtypes) and (
            op.name in _ELEMENTWISE_SCATTERS or (op.kind in KINDS and not KINDS[op.kind].takes_complex)
        ):
            return False
        return op.kind in KINDS or op.view is not None or op.expand is not None or op.access is not None or op is FUSED

    def execute(self, op: Op, inputs: tuple[DeviceArray, ...], params: dict[str, Any], out: Any = None) -> Any:
        gpu = inputs[0].gpu
        avals = tuple(x.aval for x in inputs)
        key = op, gpu.index, avals, key_of(params), config.compiled_with, config.tune
        with self._lock:
            found = self._eager.get(key)
            if found is not None:
                self._eager.move_to_end(key)
        if found is None:
            found = self._made(op, avals, params, self._device(gpu.index)), _KnownResults.of(op, avals, params)
            with self._lock:
                found = self._eager.setdefault(key, found)
                while len(self._eager) > _EAGER:
                    self._eager.popitem(last=False)
        run, known = found
        made = run(*inputs)
        if known is not None:
            known.keep(inputs, made if type(made) is tuple else (made,))
        return made

    def _made(self, op: Op, avals: tuple[Aval, ...], params: dict[str, Any], device: Device) -> Callable[..., Any]:
        """The function that runs an op on operands: its kernel, or a program of the simpler ops that replace it."""
        inferred = op.infer(*avals, **params)
        results = (inferred,) if type(inferred) is Aval else tuple(inferred)
        if not config.verify_every and (op.expand is None or op.expand(avals, results, **params) is None):
            return self._run(op, avals, params, results, device)
        graph = Graph(list(avals))
        graph.outputs = graph.add(op, *range(len(avals)), **params)
        program = self.compile(graph, device)
        if type(inferred) is Aval:
            return lambda *xs: program(xs)[0]
        return lambda *xs: program(xs)

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        device = device or self.first_device()
        given, wanted = tuple(donate), tuple(ready)
        with collected() as tuned:
            fused, reasons, refused, _held = self._fused(graph, device)
            segments = partial(recorded_segments, self.groups(device).gpu, graph)
            program = build(self, fused, device, given, wanted, segments)
        tuned = list(dict.fromkeys(tuned))
        program.notes += [f"no kernel: {line}" for line in dict.fromkeys([*reasons, *refused])]
        program.notes += [f"tuned: {name!r} computes {problem.text}" for problem, name, _ in tuned]
        if tuned and config.verify_every:
            compare(
                program,
                config.verify_every,
                tuned,
                lambda: self._untuned(graph, device, given, wanted),
                self.copy,
                self.to_host,
            )
        return program

    def _untuned(self, graph: Graph, device: Device, donate: tuple[int, ...], ready: tuple[int, ...]) -> Executable:
        with untuned():
            return self.compile(graph, device, donate, ready)

    def _fused(self, graph: Graph, device: Device) -> tuple[Graph, list[str], list[str], list[CompiledGroup]]:
        """A program with its groups, why operations are in none, why groups have no kernels, and the kernels of the others,
        which are compiled again if nothing holds them."""
        groups = self.groups(device)
        reasons: list[str] = []
        refused: list[str] = []
        held: list[CompiledGroup] = []

        def proved(body: Graph) -> bool:
            found = groups.of_body(body)
            if isinstance(found, str):
                refused.append(f"{', '.join(n.op.name for n in body.nodes)}: {found}")
            else:
                held.append(found)
            return not isinstance(found, str)

        return fuse(graph, kind_of, POLICY, reasons, proved=proved), reasons, refused, held

    def forms(self, graph: Graph, which: tuple[str, ...], device: Device | None = None) -> str:
        device = device or self.first_device()
        fused, reasons, refused, _ = self._fused(graph, device)
        driver = self.groups(device).gpu.measured

        def code(body: Graph) -> str:
            launches = lowered_body(body, driver).launches
            return "\n".join(f"// launch {k}, grid {s.grid}\n{s.shader.text}" for k, s in enumerate(launches))

        return forms_text(graph, fused, which, f"WGSL for {self.properties(device)['name']}", code, reasons, refused)

    def kernel(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:  # fmt: skip
        device = device or self.first_device()
        run = self._run(op, operands, params, results, device)
        return call(run, len(operands), {})

    def _run(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device
    ) -> Callable[..., Any]:
        groups = self.groups(device)
        packed = op is FUSED or len(results) != 1 or type(op.infer(*operands, **params)) is not Aval
        if op is FUSED:
            found = groups.of_body(params["body"])
            assert isinstance(found, CompiledGroup), found
            return found
        if not any(a.size for a in results) and not checks_without_results(op, operands, params):
            return _all([_maker(groups.gpu, a) for a in results], packed)
        if operands and not any(a.size for a in operands) and op.program is None:
            return _all(_constants(groups.gpu, op, operands, params, results, packed), packed)
        if op.view is not None:
            parts = [self._view(op, operands, params, results, k, groups) for k in range(len(results))]
            if all(parts):
                return _all(parts, packed)  # type: ignore[arg-type]
        body = Graph(list(operands))
        node = Node(op, tuple(range(len(operands))), params, len(operands), results, "", "")
        body.nodes.append(node)
        body.outputs = tuple(node.results)
        if op.view is None and kind_of(node, operands) in ("map", "rows", "columns", "contract", "alone"):
            group = groups.of_body(body)
            if isinstance(group, CompiledGroup):
                return group if packed else OneResult(group, len(operands))
        return substitute(op, operands, params, results, packed, device)

    def _view(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], slot: int, groups: Groups
    ) -> Callable[..., DeviceArray] | None:
        """The function that makes one result of an op whose results are views."""
        (source, *_), result = operands, results[slot]
        if not result.size:
            return _maker(groups.gpu, result)
        node = Node(op, tuple(range(len(operands))), params, len(operands), results, "", "")
        view = viewed(node, slot, row_major(source.shape))
        if view is None:
            return None
        if view.in_rows and view.offset == 0 and result.size == source.size:
            return SameMemory(result)
        group = groups.of_view(view, source, result)
        return None if isinstance(group, str) else OneResult(group, 1)

    def _device(self, index: int) -> Device:
        found: Device = hooks.find_device(f"webgpu:{index}")
        return found

    def translated(self, error: Exception) -> Exception:
        return error


class _KnownResults:
    """What is known of the integers of an operation's results by those of its operands.

    Args:
        graph: The operation.
    """

    def __init__(self, graph: Graph) -> None:
        self._outputs = graph.outputs
        self._ranges = Ranges(graph, graph.outputs, indices=False)

    @classmethod
    def of(cls, op: Op, avals: tuple[Aval, ...], params: dict[str, Any]) -> _KnownResults | None:
        """What is known of an operation's results; None if that is never anything."""
        if op.control is not None or not any(a.dtype.is_integer or a.dtype is bool_ for a in avals):
            return None
        graph = Graph(list(avals))
        graph.outputs = graph.add(op, *range(len(avals)), **params)
        made = cls(graph)
        return made if made._ranges.inputs else None

    def keep(self, inputs: Sequence[DeviceArray], results: Sequence[DeviceArray]) -> None:
        """Tell the results what is known of them."""
        given = [inputs[i].known_range for i in self._ranges.inputs]
        if any(r is not None for r in given):
            known = self._ranges.known(given)
            for v, x in zip(self._outputs, results, strict=True):
                if v in known and x.known_range is None:
                    x.know(*known[v])


def _maker(gpu: Gpu, aval: Aval) -> Callable[..., DeviceArray]:
    """A function of any operands that makes an array without elements."""
    return lambda *xs: gpu.array(aval)


def _constants(
    gpu: Gpu, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], packed: bool
) -> list[Callable[..., DeviceArray]]:
    """Functions that make the results of an op whose operands have no elements: the same at every call."""
    host = hooks.find_device("numpy").backend  # not the reference, which NumPy cannot compute in bfloat16
    found = host.execute(op, tuple(np.zeros(a.shape, a.dtype.np) for a in operands), params)
    arrays = [np.asarray(x, a.dtype.np) for x, a in zip(found if packed else (found,), results, strict=True)]

    def maker(x: np.ndarray[Any, Any], a: Aval) -> Callable[..., DeviceArray]:
        return lambda *xs: gpu.uploaded(x, a)

    return [maker(x, a) for x, a in zip(arrays, results, strict=True)]


def _all(parts: Sequence[Callable[..., DeviceArray]], packed: bool) -> Callable[..., Any]:
    """A function of the operands that returns what all parts return."""
    return AllResults(tuple(parts)) if packed else parts[0]
