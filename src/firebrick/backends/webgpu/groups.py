"""Fusion groups as launches: the naive form of a group's specification, prepared for the device and printed as WGSL."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from firebrick.backends.webgpu.buffers import DeviceArray
from firebrick.backends.webgpu.commands import SITES, Gpu, PreparedLaunch
from firebrick.backends.webgpu.probes import LONGEST
from firebrick.compiler.fusion.facts import ALONE, COLUMNS, CONTRACT, MAP, ROWS
from firebrick.compiler.fusion.policy import FusionPolicy
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.kernel.ir import Function, While, statements
from firebrick.compiler.naive import Buffer, Naive, naive
from firebrick.compiler.naive.building import INPUT, RESULT, Builder, NaiveLaunch
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import FORWARD
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.elements import element, reduced_axes
from firebrick.compiler.spec.faults import LARGEST_SITE, FaultSite, sites_of
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.targets.wgsl.contraction_blocks import block_of, contraction_by_blocks
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import Shader, shader
from firebrick.compiler.targets.wgsl.staged_reductions import parts_of, staged
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.views import View
from firebrick.ir import Graph, Node
from firebrick.ir.keys import key_of
from firebrick.scalar.expr import COMPLEX, load, local
from firebrick.scalar.storage import STORAGE, computed

POLICY = FusionPolicy(
    most_nodes=64, one=0, two=0, more=0, reduced=0, shared_bytes=1 << 20, stretch=64, summed_rows=1 << 62
)  # fmt: skip
"""Every kernel pays: the alternative is the host."""
_KEPT = 512
"""Maximum number of groups whose kernels are kept."""


def kind_of(n: Node, operands: tuple[Aval, ...]) -> str:
    """How a node can be computed in kernels, one of ``facts.KINDS``; else why it cannot."""
    strange = [a.dtype.name for a in (*operands, *n.avals) if a.dtype.name not in STORAGE]
    kind = kinds.kind_of(n, operands)
    if strange and (not kind or not COMPLEX.keys() >= set(strange)):
        return f"no kernels of {strange[0]}"
    if not kind:
        return "no specification"
    if kind != "custom" and not all(a.size for a in (*operands, *n.avals)):
        return "no elements"
    if kind not in ("map", "row"):
        return CONTRACT if kind == "contract" and _grouped(n, operands) else ALONE
    if kind == "map" and n.op.access is not None:
        return MAP
    if len(n.avals) != 1:
        return "several results"
    try:
        made = element(n, [load(i, computed(a.dtype.name)) for i, a in enumerate(operands)], operands)
    except TypeError as e:
        return str(e)
    if made.dtype != computed(n.avals[0].dtype.name):
        return f"a result of dtype {made.dtype}"
    if kind == "map":
        return MAP
    axes = reduced_axes(n, operands[0].ndim)
    return ROWS if axes == (operands[0].ndim - 1,) else COLUMNS


def _grouped(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether other nodes may follow a contraction in its group."""
    if n.op.facts is None:
        return True
    facts = n.op.facts(operands, n.avals, **n.params)
    return bool(facts["direction"] == FORWARD and facts["groups"] == 1)


@dataclass(frozen=True, slots=True)
class _Step:
    """A launch of a group's kernel."""

    launch: PreparedLaunch
    arrays: tuple[int, ...]  # of inputs, results and temporaries, in this order


class CompiledGroup:
    """The kernels of a group on a device.

    Args:
        gpu: The device.
        form: Launches.
        inputs: Shapes and dtypes of the group's inputs.
        results: Of its results.
        sites: The checks of its kernels.

    Raises:
        DTypeError: A kernel needs a dtype that the device does not have.
        UnsupportedError: A kernel needs more than the device has.
    """

    def __init__(
        self, gpu: Gpu, form: Naive, inputs: Sequence[Aval], results: Sequence[Aval], sites: Sequence[FaultSite] = ()
    ) -> None:
        self._gpu, self._results, self._sites = gpu, tuple(results), tuple(sites)
        self._temporaries = [Aval((t.elements,), dtype(t.dtype)) for t in form.temporaries]
        bytes_of = {Buffer(INPUT, k): a.nbytes for k, a in enumerate(inputs)}
        bytes_of |= {Buffer(RESULT, k): a.nbytes for k, a in enumerate(results)}
        bytes_of |= {Buffer("t", k): a.nbytes for k, a in enumerate(self._temporaries)}
        for nbytes in bytes_of.values():
            if nbytes > gpu.binding_bytes:
                raise UnsupportedError(
                    f"arrays of a kernel have at most {gpu.binding_bytes:,} bytes on this device", f"{nbytes:,}",
                    "split the array along an axis",
                )  # fmt: skip
        if len(self._sites) > SITES:
            raise UnsupportedError(f"at most {SITES} checks", str(len(self._sites)), "")
        numbers = {b: k for k, b in enumerate(bytes_of)}
        self._steps = [self._step(s, bytes_of, numbers) for s in form.steps if 0 not in _grid(s)]

    def _step(self, s: NaiveLaunch, bytes_of: dict[Buffer, int], numbers: dict[Buffer, int]) -> _Step:
        gpu, sizes = self._gpu, [bytes_of[b] for b in s.buffers]
        launch = gpu.prepared(_shader(gpu, s, _grid(s), sizes), sizes, s.scalars, _grid(s))
        return _Step(launch, tuple(numbers[b] for b in s.buffers))

    def __call__(self, *arrays: DeviceArray) -> tuple[DeviceArray, ...]:
        """Record the launches.

        Raises:
            OutOfRangeError: An index is out of range.
        """
        gpu = self._gpu
        with gpu.lock:
            results = tuple([gpu.array(a) for a in self._results])
            memory = [x.lease for x in (*arrays, *results, *[gpu.array(a) for a in self._temporaries])]
            if self._sites:
                gpu.clear_faults()
            for s in self._steps:
                gpu.launch(s.launch, [memory[k] for k in s.arrays])
            if self._sites:
                self._raise_fault()
        return results

    def _raise_fault(self) -> None:
        words = self._gpu.faults(len(self._sites))
        if words[0]:
            site = LARGEST_SITE - int(words[0])
            payload = (0xFFFFFFFF - int(words[1 + site])) - (1 << 31)
            raise self._sites[site].error(payload)


_shaders: OrderedDict[object, Shader] = OrderedDict()
_lock = threading.Lock()


def _grid(s: NaiveLaunch) -> tuple[int, ...]:
    return s.grid if isinstance(s.grid, tuple) else (s.grid,)


def _shader(gpu: Gpu, s: NaiveLaunch, grid: tuple[int, ...], sizes: Sequence[int]) -> Shader:
    """The shader of a launch, for its sizes or for any up to the next powers of two."""
    f = s.function
    elements = [n // max(1, dtype(a.dtype).itemsize) for n, a in zip(sizes, f.arrays, strict=True)]
    rounded = _rounded(s.scalars), tuple(_rounded([n - 1 for n in grid])), _rounded(elements)
    for numbers in (rounded, ([(v, v) for v in s.scalars], [(0, n - 1) for n in grid], [(0, n) for n in elements])):
        key = f, gpu.measured.capabilities, *map(tuple, numbers)
        with _lock:
            found = _shaders.get(key)
        if found is None:
            try:
                made = prepared(f, gpu.measured.capabilities, _bounds(f, *numbers))
                found = shader(made, contracts=gpu.measured.contracts)
            except (UnsupportedError, DTypeError):
                if numbers is not rounded:
                    raise
                continue
            with _lock:
                _shaders[key] = found
                while len(_shaders) > _KEPT:
                    _shaders.popitem(last=False)
        return found
    raise AssertionError("the second form of the numbers is exact")


def _rounded(values: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """Bounds that many launches have in common: small numbers have up to 4, 8 or 12 bits."""
    bits = [(b + 3) & ~3 if b <= 12 else b for b in (int(abs(v)).bit_length() for v in values)]
    return tuple((-((1 << b) - 1) if v < 0 else 0, 0 if v < 0 else (1 << b) - 1) for v, b in zip(values, bits, strict=True))


def _bounds(f: Function, scalars: Any, grid: Any, elements: Any) -> dict[str, tuple[int, int]]:
    found = {p.name: b for p, b in zip(f.scalars, scalars, strict=True) if p.dtype not in ("float32", "float64")}
    found |= dict(zip((*f.outer, f.item), grid, strict=True))
    return found | {a.name: b for a, b in zip(f.arrays, elements, strict=True)}


def launches_of(spec: kinds.KernelSpec) -> Naive:
    """The kernels of a specification: a generator's, or its naive form."""
    if isinstance(spec, Contract) and (block := block_of(spec)) is not None:
        return contraction_by_blocks(spec, *block)
    if isinstance(spec, Nest) and (parts := parts_of(spec)) is not None:
        return staged(spec, parts)
    return naive(spec)


class Groups:
    """The compiled groups of a device, by their bodies; what cannot be compiled is remembered with the reason.

    Args:
        gpu: The device.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._made: OrderedDict[object, CompiledGroup | str] = OrderedDict()
        self._lock = threading.RLock()

    def of_body(self, body: Graph) -> CompiledGroup | str:
        """The kernels of a group, or why there are none."""
        lines = tuple(n.line for n in body.nodes)  # which faults report
        return self._kept(("body", key_of(body), lines), lambda: self._compiled(body))

    def of_view(self, view: View, source: Aval, result: Aval) -> CompiledGroup | str:
        """The kernel that copies a view of an array."""

        def compiled() -> CompiledGroup:
            dtype = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[result.dtype.itemsize]  # copies move bits
            b = Builder("view", result.shape)
            at = b.address(b.place(view), b.positions)
            b.store(Buffer(RESULT, 0), dtype, local("item", "int64"), b.read(Buffer(INPUT, 0), dtype, at))
            return CompiledGroup(self.gpu, Naive((b.step(),)), [source], [result])

        return self._kept(("view", view, source, result), compiled)

    def _kept(self, key: object, compiled: Callable[[], CompiledGroup]) -> CompiledGroup | str:
        with self._lock:
            found = self._made.get(key)
            if found is None:
                try:
                    found = compiled()
                except (UnsupportedError, DTypeError) as e:
                    found = str(e)
                self._made[key] = found
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
            else:
                self._made.move_to_end(key)
            return found

    def _check_loops(self, f: Function) -> None:
        """Refuse loops of unknown length on a driver that ends long ones; the compiler's own are short."""
        limit = self.gpu.measured.capabilities.loop_iterations
        if limit is not None and limit < LONGEST and any(isinstance(s, While) for s in statements(f.body)):
            raise UnsupportedError(
                f"kernel {f.name}: this driver ends loops after {limit:,} iterations", "a while loop, of any length",
                "write a for loop over a known range, or run the kernel on another device", kernel=f.name,
            )  # fmt: skip

    def _compiled(self, body: Graph) -> CompiledGroup:
        spec = kinds.spec_of(body)
        reason = doubt(body, spec)
        if reason:
            raise UnsupportedError("a group of nodes is proved before it is compiled", reason, "")
        results = [body.avals[v] for v in body.outputs]
        if isinstance(spec, Custom):
            self._check_loops(spec.function)
        return CompiledGroup(self.gpu, launches_of(spec), body.inputs, results, sites_of(spec))
