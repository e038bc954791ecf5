"""Runs pinned programs, and compares what they compute with interpreters, before their lines are recorded.

Each group of nodes is run alone, on the values that it has in the program, and compared with the interpreter of its
specification; then the program is run as a whole, with its plan of memory, and compared with its groups. Kernels in kernel IR
are compared with their interpreter. Code for drivers is run by wgpu's first adapter, which has more than each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
from drawn_segments import DrawnSegments, run_in_numpy
from kernels_on_gpu import SITES, gpu
from narrow_kernels import bounds_of_launch
from running_kernels import bits, both
from running_lanes import Compiled, agree

from firebrick.backends.cpu.native import kernel_with
from firebrick.backends.cpu.runtime.pool import native as native_pool
from firebrick.backends.registry import find_device
from firebrick.backends.webgpu import lowering as webgpu
from firebrick.backends.webgpu.groups import CompiledGroup
from firebrick.backends.webgpu.probes import Measured
from firebrick.backends.webgpu.variants import variants as webgpu_variants
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.kernel import interpret as interpret_kernel
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.faults import LARGEST_SITE
from firebrick.compiler.targets.llvm import lower, naive_form
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.variants import variants as llvm_variants
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import shader
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.dtypes import dtype
from firebrick.core.errors import DTypeError, FirebrickError, OutOfRangeError, UnsupportedError
from firebrick.ir import CONSTANT, Graph
from pinned import functions, graphs, others
from pinned.drawn import Drawn
from pinned.emission import _ANY, DRIVERS, PROCESSORS, THREADS, WAYS, forget
from pinned.functions import Kernel
from pinned.programs import graph_of

Array = np.ndarray[Any, Any]
TOLERANCE = {"float64": 1e-8, "complex128": 1e-8, "float32": 5e-4, "complex64": 5e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""Of the largest element: what is found is another order of sums, of some hundred elements, at most."""


class Unverified(Exception):
    """This machine cannot run a program."""


def compared(found: Array, want: Array, what: str, tolerance: float = 0.0) -> None:
    """Compare an array with the one that it must be, with a tolerance of its dtype or a larger one."""
    assert (found.shape, found.dtype) == (want.shape, want.dtype), f"{what}: {found.dtype}{found.shape}, {want.shape}"
    if want.dtype.name not in TOLERANCE:
        wrong = int((found != want).sum())
        assert wrong == 0, f"{what}: {wrong} of {want.size} elements differ"
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = found.astype(wide), want.astype(wide)
        finite = np.isfinite(b)
        assert bool(((a == b) | (np.isnan(a) & np.isnan(b)))[~finite].all()), f"{what}: other infinities or NaN"
        scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
        far = float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale
    assert far <= max(tolerance, TOLERANCE[want.dtype.name]), f"{what}: {far:.2g} of the largest element"


@contextmanager
def generating(target: Target) -> Iterator[None]:
    """Within, the cpu engine compiles and runs code for a target that this machine has."""
    forget()
    native_pool()  # is code for this machine
    with pytest.MonkeyPatch.context() as patch, config.scope(verify_graphs=False, tune="off", cache_plans=False):
        patch.setattr(Target, "host", staticmethod(lambda width_bits=0: target))
        yield


Run = Callable[[Graph, Any, Sequence[Array]], None]
"""(group, specification, operands): compares a group's kernels with the interpreter."""


def wanted(body: Graph, spec: Any, arrays: Sequence[Array]) -> list[Array]:
    """The results of a group, by the interpreter of its specification."""
    avals = [body.avals[v] for v in body.outputs]
    flat = interpret(spec, arrays, [a.size for a in avals], [a.dtype.name for a in avals])
    return [x.reshape(a.shape) for x, a in zip(flat, avals, strict=True)]


def same(run: Callable[[], Sequence[Array]], body: Graph, spec: Any, arrays: Sequence[Array], what: str) -> None:
    """Compare results with those of the interpreter, or an error with its error."""
    try:
        want = wanted(body, spec, arrays)
    except OutOfRangeError as e:
        _check_raises(run, str(e), what)
        return
    for k, (x, y) in enumerate(zip(run(), want, strict=True)):
        compared(np.asarray(x), y, f"{what}, result {k}", coarsest(body))


def _check_raises(run: Callable[[], Sequence[Array]], error: str, what: str) -> None:
    with pytest.raises(OutOfRangeError) as raised:
        run()
    assert str(raised.value).splitlines()[:2] == error.splitlines()[:2], what


def coarsest(graph: Graph) -> float:
    """The tolerance of the dtype with the fewest digits."""
    return max((TOLERANCE.get(a.dtype.name, 0.0) for a in graph.avals), default=0.0)


def followed(graph: Graph, arrays: Sequence[Array], check: Run) -> list[Array] | None:
    """The results of a program by the interpreter, while each group is checked; None if an index is out of range."""
    values: dict[int, Array] = {k: np.asarray(x) for k, x in enumerate(arrays)}
    for n in graph.nodes:
        xs = [values[v] for v in n.inputs]
        if n.op is CONSTANT:
            found: Any = (np.asarray(n.params["value"], n.avals[0].dtype.np).reshape(n.avals[0].shape),)
        elif n.op is FUSED:
            body = n.params["body"]
            spec = kinds.spec_of(body)
            check(body, spec, xs)
            try:
                found = wanted(body, spec, xs)
            except OutOfRangeError:
                return None
        elif n.op.control is not None:
            raise Unverified("loops and branches")
        else:
            try:
                found = n.op.reference(*xs, **n.params)
            except OutOfRangeError:
                return None
            found = found if isinstance(found, tuple) else (found,)
        for v, x, a in zip(n.results, found, n.avals, strict=True):
            values[v] = np.asarray(x).astype(a.dtype.np, copy=False).reshape(a.shape)
    return [values[v] for v in graph.outputs]


def alone(body: Graph, lowered: Lowered, arrays: Sequence[Array]) -> Sequence[Array]:
    """The results of a group's kernels."""
    found: Sequence[Array] = kernel_with(body, lowered).names["run"](*map(np.ascontiguousarray, arrays))
    return found


def _by_the_other_engine(program: Any, drawn: Drawn, graph: Graph) -> None:
    """Compare a program with loops, or of many groups, with NumPy's engine."""
    want = find_device("numpy").backend.compile(graph)([x.copy() for x in drawn.operands])
    found = program([x.copy() for x in drawn.operands])
    for k, (x, y) in enumerate(zip(found, want, strict=True)):
        compared(np.asarray(x), np.asarray(y), f"result {k} of the program", coarsest(graph))


def on_processor(drawn: Drawn, target: Target, any_size: bool = True) -> None:
    """Run a program on this processor, as code for a target."""
    with generating(target):
        home = find_device("cpu")
        policy = _ANY if any_size else POLICY
        program = home.backend._compiled(drawn.graph, home, tuple(drawn.donate), (), None, policy)  # type: ignore[attr-defined]

        def check(body: Graph, spec: Any, arrays: Sequence[Array]) -> None:
            found = lower.lower(body, target)
            same(lambda: alone(body, found, arrays), body, spec, arrays, ", ".join(n.op.name for n in body.nodes))

        if any(n.op.control is not None for n in program.graph.nodes):
            _by_the_other_engine(program, drawn, drawn.graph)
            return
        want = followed(program.graph, [x.copy() for x in drawn.operands], check)
        given = [x.copy() for x in drawn.operands]
        if want is None:
            with pytest.raises(OutOfRangeError):
                program(given)
            return
        for k, (x, y) in enumerate(zip(program(given), want, strict=True)):
            compared(np.asarray(x), y, f"result {k} of the program", coarsest(drawn.graph))


def variants_on_processor(drawn: Drawn, target: Target) -> None:
    """Run the variants of each group."""
    with generating(target):

        def check(body: Graph, spec: Any, arrays: Sequence[Array]) -> None:
            outputs = [body.avals[v] for v in body.outputs]
            default = lower.lower(body, target)
            for v in llvm_variants(spec, body.inputs, outputs, target, default, THREADS):
                made = v.build()
                same(lambda made=made: alone(body, made, arrays), body, spec, arrays, v.name)  # type: ignore[misc]

        _each_group(drawn, fuse(drawn.graph, lower.kind_of, _ANY), check)


def naive_on_processor(drawn: Drawn, target: Target) -> None:
    """Run the naive form of each group."""
    with generating(target):

        def check(body: Graph, spec: Any, arrays: Sequence[Array]) -> None:
            if not isinstance(spec, Custom):
                made = naive_form.lowered(spec, body.inputs, [body.avals[v] for v in body.outputs], target)
                same(lambda: alone(body, made, arrays), body, spec, arrays, "naive form")

        _each_group(drawn, fuse(drawn.graph, lower.kind_of, _ANY), check)


def _each_group(drawn: Drawn, fused: Graph, check: Run) -> None:
    followed(fused, [x.copy() for x in drawn.operands], check)


def on_driver(drawn: Drawn, driver: Measured, variants: bool = False) -> None:
    """Run the groups of a program on the first adapter, as code for a driver."""
    device = gpu()
    if not device.measured.processor:
        raise Unverified("an adapter that is not a driver in software")
    forget()
    made: dict[int, Any] = {}
    kept: list[Graph] = []

    def lowered(body: Graph) -> webgpu.LoweredGroup | None:
        try:
            return webgpu.lowered_body(body, driver)
        except (UnsupportedError, DTypeError):
            return None

    def proved(body: Graph) -> bool:
        kept.append(body)
        made[id(body)] = lowered(body)
        return made[id(body)] is not None

    def run(body: Graph, spec: Any, arrays: Sequence[Array], group: webgpu.LoweredGroup, what: str) -> None:
        def results() -> list[Array]:
            given = [device.uploaded(np.ascontiguousarray(x), Aval(x.shape, dtype(x.dtype))) for x in arrays]
            return [device.read(x) for x in CompiledGroup(device, group)(*given)]

        same(results, body, spec, arrays, what)

    def check(body: Graph, spec: Any, arrays: Sequence[Array]) -> None:
        group = lowered(body)
        if group is None:
            return
        run(body, spec, arrays, group, ", ".join(n.op.name for n in body.nodes))
        for v in webgpu_variants(spec, driver) if variants else ():
            try:
                found = webgpu.lowered(v.build(), body.inputs, [body.avals[o] for o in body.outputs], driver, group.sites)
            except (UnsupportedError, DTypeError):
                continue
            run(body, spec, arrays, found, v.name)

    with config.scope(verify_graphs=False, tune="off"):
        _each_group(drawn, fuse(drawn.graph, webgpu.kind_of, webgpu.POLICY, proved=proved), check)


def lanes_on_processor(k: Kernel, target: Target) -> None:
    """Run the code with items as lanes."""
    with generating(target):
        for width in dict.fromkeys((0, (0, 4, 1, 8, 16, 2)[k.number % 6])):
            agree(Compiled(k.function, 0, width), dict(k.arrays), k.scalars, k.grid)


def scalar_on_processor(k: Kernel, target: Target) -> None:
    """Run the code of one item after the other."""
    if k.function.group or k.function.outer:
        raise Unverified("code for GPUs only")
    with generating(target):
        both(k.function, dict(k.arrays), k.scalars, prod(k.grid))


def shader_on_driver(k: Kernel, driver: Measured) -> None:
    """Run the code for a driver, and compare it with the interpreter of the prepared kernel."""
    device = gpu()
    function = prepared(k.function, driver.capabilities, bounds_of_launch(k.launch))
    made = shader(function, contracts=driver.contracts)
    memory = {n: device.uploaded(np.ascontiguousarray(x), Aval(x.shape, dtype(x.dtype))) for n, x in k.arrays.items()}
    device.clear_faults()
    if 0 not in k.grid:
        used = [memory[a.name] for a in function.arrays]
        launch = device.prepared(made, [x.aval.nbytes for x in used], [k.scalars[s.name] for s in function.scalars], k.grid)
        device.launch(launch, [x.lease for x in used])
    words = device.faults(SITES)
    want = {n: np.array(x) for n, x in k.arrays.items()}
    flat = {a.name: want[a.name].reshape(-1).view(dtype(a.dtype).np) for a in function.arrays}
    fault = interpret_kernel(function, flat, k.scalars, k.grid, checked=False)
    assert (fault is None) == (words[0] == 0), "faults"
    assert fault is None or LARGEST_SITE - int(words[0]) == fault.site, "faults"
    for n, x in want.items():
        got = device.read(memory[n])
        differ = bits(x.reshape(-1)) != bits(got.reshape(-1))
        assert not differ.any(), f"{n}: {int(differ.sum())} elements differ"


def interpreted(k: Kernel) -> None:
    """Compare the interpreter with compiled code."""
    agree(Compiled(k.function), dict(k.arrays), k.scalars, k.grid)


def verify(unit: str) -> bool:
    """Run a program: true if it computed what it must, false if no machine here runs it.

    Raises:
        AssertionError: It computed something else.
    """
    program, _, way = unit.partition(" @ ")
    family, _, name = program.partition(":")
    if family == "segments":
        run_in_numpy(DrawnSegments(Random(int(name))))
        return True
    if family in others.FAMILIES:
        return False
    try:
        if family in functions.FAMILIES:
            kernel = functions.FAMILIES[family](name)
            first, _, last = way.partition(" ")
            match first:
                case "lanes" if last != "neon":
                    lanes_on_processor(kernel, PROCESSORS[last])
                case "scalar":
                    scalar_on_processor(kernel, PROCESSORS["avx512"])
                case "shader" if last != "exact":
                    shader_on_driver(kernel, DRIVERS[last])
                case "interpreted":
                    interpreted(kernel)
                case _:
                    return False
            return True
        assert family in graphs.FAMILIES
        if not WAYS[way].runs:
            return False
        found, (first, _, last) = graph_of(program), way.partition(" ")
        if way == "naive":
            naive_on_processor(found, PROCESSORS["avx512"])
        elif first in DRIVERS:
            on_driver(found, DRIVERS[first], last == "variants")
        elif last == "variants":
            variants_on_processor(found, PROCESSORS[first])
        else:
            on_processor(found, PROCESSORS[first], last != "small")
    except Unverified:
        return False
    except (UnsupportedError, DTypeError):  # what is refused has no text
        return False
    return True


def explained(error: BaseException) -> str:
    """An error as a line."""
    text = str(error) if isinstance(error, AssertionError | FirebrickError) else repr(error)
    return " ".join(text.split())[:300]
