"""Window kernels: the op table's pooling at every vector width, ties and NaN, shapes around vectors, and threads."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from native_kernels import Array, run_kernel, run_units, widths

import firebrick as fb
from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.fusion.facts import ALONE
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.spec.window import windows_of
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.native import NAME, NativeKernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.window_kernels import Windows, gradient_kernel, window_kernel
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.ir import Graph, Node
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.pooling import pooled_shape
from firebrick.ops.table import OPS

every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
GUARD = 64


def node_of(name: str, arrays: list[Array], params: dict[str, Any]) -> tuple[Node, tuple[Aval, ...]]:
    graph = Graph([Aval(a.shape, as_dtype(a.dtype)) for a in arrays])
    graph.add(OPS[name], *range(len(arrays)), **params)
    return graph.nodes[0], tuple(graph.inputs)


def kernel_of(name: str, arrays: list[Array], params: dict[str, Any], target: Target) -> NativeKernel:
    """The kernel that a node gets, under a name that can be run."""
    n, operands = node_of(name, arrays, params)
    assert n.op.facts is not None
    w, dtype = windows_of(n.op.facts(operands, n.avals, **n.params)), arrays[0].dtype.name
    if name in ("max_pool", "avg_pool"):
        return window_kernel(NAME, w, dtype, name == "max_pool", target)
    return gradient_kernel(NAME, w, dtype, arrays[1].dtype.name if len(arrays) > 1 else "", target)


def guarded(shape: Any, dtype: Any) -> tuple[Array, Array]:
    """An array amid bytes that no kernel may touch, and those bytes."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(nbytes + 2 * GUARD, 0xA5, np.uint8)
    return memory[GUARD : GUARD + nbytes].view(dtype).reshape(shape), memory


def pooled(name: str, arrays: list[Array], params: dict[str, Any], target: Target, cuts: Any = ()) -> tuple[Array, ...]:
    n, _ = node_of(name, arrays, params)
    outs, guards = zip(*(guarded(a.shape, a.dtype.np) for a in n.avals), strict=True)
    run_kernel(kernel_of(name, arrays, params, target), [*arrays, *outs], target, cuts)
    for memory in guards:
        assert (memory[:GUARD] == 0xA5).all()
        assert (memory[-GUARD:] == 0xA5).all()
    return tuple(outs)


def check(name: str, arrays: list[Array], params: dict[str, Any], target: Target, cuts: Any = ()) -> None:
    op = OPS[name]
    got, want = pooled(name, arrays, params, target, cuts), run_reference(op, tuple(arrays), params)
    found = check_results(op, tuple(arrays), params, got, want)
    assert found.ok, f"{name} {arrays[0].dtype} {arrays[0].shape} {params}: {found}"
    if name == "max_pool":
        np.testing.assert_array_equal(got[1], want[1])


@every_width
@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.kind == "window"])
def test_entries_are_within_the_tables_tolerance(name: str, target: Target) -> None:
    tried = 0
    for dtype in OPS[name].dtypes:
        for sample in OPS[name].samples(np.random.default_rng(3), dtype):
            arrays = [np.array(a, order="C") for a in sample.inputs]
            n, operands = node_of(name, arrays, sample.params)
            if 0 in arrays[0].shape:
                assert kind_of(n, operands) == "no elements"
                continue
            assert kind_of(n, operands) == ALONE
            check(name, arrays, sample.params, target)
            tried += 1
    assert tried >= 20


# image, kernel, stride, padding, dilation: rows shorter and longer than vectors, strides that are woven and gathered
SHAPES: tuple[Any, ...] = (
    ((3, 2, 33, 40), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    ((2, 3, 9, 70), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    ((2, 2, 13, 131), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    ((1, 2, 20, 100), (2, 5), (3, 3), ((0, 0), (2, 2)), (1, 1)),
    ((1, 2, 31, 90), (2, 4), (5, 4), ((1, 0), (3, 3)), (1, 2)),
    ((2, 1, 17, 19), (2, 2), (4, 8), ((0, 0), (0, 0)), (1, 1)),
    ((1, 1, 8, 600), (7, 9), (1, 2), ((3, 3), (4, 4)), (1, 1)),
    ((5, 4, 50), (3,), (2,), ((1, 1),), (1,)),
    ((1, 3, 5, 7, 21), (2, 3, 3), (1, 2, 2), ((0, 1), (1, 1), (1, 1)), (1, 1, 1)),
    ((1, 2, 7, 6, 35), (2, 2, 2), (2, 2, 2), ((1, 1), (0, 0), (1, 0)), (3, 1, 2)),
    ((1, 1, 300, 300), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
)


DTYPES = "float64", "float16", "bfloat16"
RUNS = [
    *((case, "float32", target) for case in range(len(SHAPES)) for target in widths()),
    *((case, DTYPES[case % 3], Target.host()) for case in range(len(SHAPES))),
]


@pytest.mark.parametrize(("case", "dtype", "target"), RUNS, ids=str)
def test_shapes_around_vectors_and_every_stride(case: int, dtype: str, target: Target) -> None:
    shape, kernel, stride, padding, dilation = SHAPES[case]
    rng, dt = np.random.default_rng(case), as_dtype(dtype).np
    x = np.asarray(rng.integers(-3, 4, shape), dt)  # many ties
    windows: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding}
    all_of = {**windows, "dilation": dilation}
    check("max_pool", [x], all_of, target, (1,))
    _, at = OPS["max_pool"].reference(x.astype(np.float64), **all_of)
    g = np.asarray(rng.normal(size=at.shape), dt)
    check("max_pool_gradient", [g, at if case % 2 else at.astype(np.int32)], {**all_of, "size": shape[2:]}, target)
    if set(dilation) == {1}:
        check("avg_pool", [x], windows, target)
        check("avg_pool_input", [g], {**windows, "size": shape[2:]}, target, (1,))


@every_width
@pytest.mark.parametrize("padding", [0, 1])
def test_the_first_maximum_and_the_first_nan_win(padding: int, target: Target) -> None:
    rng = np.random.default_rng(5)
    odd = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    x = rng.choice(odd, (4, 3, 12, 37))
    params = {"kernel": (3, 3), "stride": (2, 1), "padding": ((padding,) * 2,) * 2, "dilation": (1, 1)}
    got, at = pooled("max_pool", [x], params, target)
    want, places = OPS["max_pool"].reference(x, **params)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(at, places)
    flat = x.reshape(4, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, at.reshape(4, 3, -1), 2), got.reshape(4, 3, -1))


@every_width
def test_a_cotangent_goes_nowhere_if_its_place_is_not_in_its_window(target: Target) -> None:
    params = {"kernel": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "size": (4, 6)}
    at = np.asarray([[[[0, 3, -1], [2, 1 << 32, 23]]]])
    g = np.asarray(np.arange(1.0, 7.0).reshape(at.shape), np.float32)
    (got,) = pooled("max_pool_gradient", [g, at], params, target)
    want = np.zeros(24, np.float32)
    want[[0, 3, 23]] = 1.0, 2.0, 6.0
    np.testing.assert_array_equal(got.reshape(-1), want)
    np.testing.assert_array_equal(OPS["max_pool_gradient"].reference(g, at, **params).reshape(-1), want)


def test_windows_without_a_kernel_say_why() -> None:
    x = np.zeros((1, 1, 20, 20), np.float32)
    n, operands = node_of("avg_pool", [x], {"kernel": (9, 9), "stride": (1, 1), "padding": ((0, 0), (0, 0))})
    assert kind_of(n, operands) == "windows of more than 64 elements"
    big = Aval((1, 1, 1 << 16, 1 << 16), fb.float32)
    graph = Graph([big])
    graph.add(OPS["avg_pool"], 0, kernel=(2, 2), stride=(2, 2), padding=((0, 0), (0, 0)))
    assert kind_of(graph.nodes[0], (big,)) == "images of 2³¹ elements"


@pytest.mark.parametrize("backward", [False, True])
def test_every_number_of_threads_gives_the_same_bits(backward: bool) -> None:
    rng, target = np.random.default_rng(9), Target.host()
    x = rng.normal(size=(6, 5, 64, 64)).astype(np.float32)
    params = {"kernel": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1))}
    arrays, name = [x], "avg_pool"
    if backward:
        g = rng.normal(size=pooled_shape("", x.shape, dilation=(1, 1), **params)).astype(np.float32)
        arrays, name, params = [g], "avg_pool_input", {**params, "size": (64, 64)}
    kernel = kernel_of(name, arrays, params, target)
    assert kernel.grid > 4
    n, _ = node_of(name, arrays, params)
    module = compile_ir(kernel.text, target)
    found = []
    for threads in (1, 2, 4):
        out = np.full(n.avals[0].shape, np.nan, np.float32)
        table = AddressTable(2)
        table.put(0, (arrays[0], out))
        with closing(Pool(threads)) as pool:
            Segment([Launch(kernel.name, (0, 1), kernel.grid, 1)], [module])(table.address, pool)
        found.append(out)
    for out in found[1:]:
        np.testing.assert_array_equal(out.view(np.uint32), found[0].view(np.uint32))
    check(name, arrays, params, target)


def test_a_unit_writes_its_own_part_only() -> None:
    target, w = Target.host(), Windows(4, (1, 96, 96), (1, 48, 48), (1, 2, 2), (1, 2, 2), (0, 0, 0), (1, 1, 1))
    kernel = window_kernel(NAME, w, "float32", False, target)
    x = np.random.default_rng(0).normal(size=(4, 96, 96)).astype(np.float32)
    whole = np.empty((4, 48, 48), np.float32)
    run_kernel(kernel, [x, whole], target)
    times = np.zeros(whole.shape, np.int64)
    for unit in range(kernel.grid):
        out = np.full(whole.shape, np.nan, np.float32)
        assert run_units(kernel, [x, out], target, unit, unit + 1) is None
        times += ~np.isnan(out)
        np.testing.assert_array_equal(out[~np.isnan(out)], whole[~np.isnan(out)])
    assert (times == 1).all()


def test_a_compiled_step_pools_natively_and_gives_the_tapes_gradient() -> None:
    rng = np.random.default_rng(1)
    x, y = fb.asarray(rng.normal(size=(8, 4, 12, 12)).astype(np.float32)), fb.asarray(rng.normal(size=(8, 4, 6, 6)))

    def loss(x: fb.Tensor) -> fb.Tensor:
        pooled = fb.max_pool2d(fb.relu(x), 2) + fb.avg_pool2d(x, 2)
        return (pooled * fb.astype(y, fb.float32)).sum() + fb.adaptive_avg_pool2d(x, 1).sum()

    step = fb.jit(fb.grad(loss))
    text = step.explain(x)
    assert "max_pool" in text
    assert "operations without" not in text
    np.testing.assert_allclose(step(x).numpy(), fb.grad(loss)(x).numpy(), rtol=2e-6, atol=1e-6)
