"""Kernels in which an item computes four neighbouring elements have the bits of those in which it computes one."""

from dataclasses import replace

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu import lowering
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.groups import CompiledGroup
from firebrick.compiler.targets.wgsl.shader import in_quads
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS

DEVICE = "webgpu:0"
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "int64", "complex64")
SIZES = (256, 257, 258, 259, 260, 1023, 4096)


def _gpu() -> Gpu:
    device = fb.device(DEVICE)
    found: Gpu = device.backend.groups(device).gpu
    return found


def _both(graph: Graph, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """The results of a group by quads and by single elements, and how many elements an item of the former computes."""
    device, gpu, found, elements = fb.device(DEVICE), _gpu(), [], 1
    for quads in (True, False):
        group = lowering.lowered_body(graph, replace(gpu.measured, quads=quads))
        given = [device.backend.from_host(x, device) for x in arrays]
        found.append([gpu.read(x) for x in CompiledGroup(gpu, group)(*given)])
        if quads:
            elements = max(s.shader.elements for s in group.launches)
        else:
            assert all(s.shader.elements == 1 for s in group.launches)
    return found[0], found[1], elements


def _drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    np_dtype = fb.dtype(dtype).np
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if "int" in dtype:
        info = np.iinfo(np_dtype)
        return rng.integers(info.min, info.max, shape, np_dtype, endpoint=True)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-3], shape)
    values = np.where(rng.random(shape) < 0.2, special, rng.normal(size=shape))
    return (values + 1j * rng.normal(size=shape) if dtype == "complex64" else values).astype(np_dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_each_dtype_have_the_same_bits(dtype: str) -> None:
    rng = np.random.default_rng(len(dtype))
    for size in SIZES:
        aval = Aval((size,), fb.dtype(dtype))
        graph = Graph([aval, aval])
        if dtype == "bool":
            (made,) = graph.add(OPS["logical_xor"], 0, 1)
            graph.outputs = [*graph.add(OPS["logical_not"], made)]
        else:
            (made,) = graph.add(OPS["add"], 0, 1)
            graph.outputs = [*graph.add(OPS["multiply"], made, 0)]
        quads, single, elements = _both(graph, [_drawn(rng, dtype, (size,)) for _ in range(2)])
        assert elements == (1 if dtype in ("int64", "complex64") else 4), "64 bits are two words"
        for a, b in zip(quads, single, strict=True):
            assert a.tobytes() == b.tobytes(), size


@pytest.mark.parametrize(
    ("first", "second"), [("float32", "float16"), ("int32", "bool"), ("uint8", "float32"), ("int16", "int8")]
)
def test_kernels_of_several_dtypes_have_the_same_bits(first: str, second: str) -> None:
    rng = np.random.default_rng(0)
    for size in (257, 1022):
        a, b = Aval((size,), fb.dtype(first)), Aval((size,), fb.dtype(second))
        graph = Graph([a, b])
        (less,) = graph.add(OPS["less"], 0, *graph.add(OPS["cast"], 1, dtype=fb.dtype(first)))
        (chosen,) = graph.add(OPS["where"], less, 0, *graph.add(OPS["cast"], 1, dtype=fb.dtype(first)))
        graph.outputs = [less, *graph.add(OPS["cast"], chosen, dtype=fb.dtype(second))]
        quads, single, elements = _both(graph, [_drawn(rng, first, (size,)), _drawn(rng, second, (size,))])
        assert elements == 4
        for x, y in zip(quads, single, strict=True):
            assert x.tobytes() == y.tobytes()


SHAPES = [
    ((16, 33), (33,)),
    ((16, 33), (16, 1)),
    ((7, 5, 11), (5, 1)),
    ((300,), ()),
    ((1, 300), (300, 1)),
    ((4, 8, 9, 2), (9, 1)),
]


@pytest.mark.parametrize(("shape", "other"), SHAPES)
def test_operands_that_broadcast_have_the_same_bits(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    graph = Graph([Aval(shape[::-1], fb.float32), Aval(other, fb.float32)])
    (turned,) = graph.add(OPS["permute"], 0, axes=tuple(reversed(range(len(shape)))))
    graph.outputs = [*graph.add(OPS["tanh"], *graph.add(OPS["add"], turned, 1))]
    quads, single, elements = _both(graph, [_drawn(rng, "float32", shape[::-1]), _drawn(rng, "float32", other)])
    assert elements == 4
    for a, b in zip(quads, single, strict=True):
        assert a.tobytes() == b.tobytes()


def test_neighbours_behind_the_end_of_an_array_are_nobodys() -> None:
    """The last item writes whole quads: other arrays and what is read later are as they were."""
    rng = np.random.default_rng(2)
    tensors = []
    for size in (*range(256, 272), 1025, 1026, 1027):
        x = rng.integers(0, 200, size).astype(np.uint8)
        t = fb.asarray(x, device=DEVICE)
        tensors.append((x, t, t + t, fb.astype(t, fb.float32) * 2.0, t > 100))
    for x, t, double, real, large in tensors:
        assert np.array_equal(t.numpy(), x)
        assert np.array_equal(double.numpy(), x + x)
        assert np.array_equal(real.numpy(), x.astype(np.float32) * 2)
        assert np.array_equal(large.numpy(), x > 100)
        assert np.array_equal((t + t).numpy(), x + x)


def test_kernels_that_store_elsewhere_or_choose_are_not_in_quads() -> None:
    K = fb.kernel

    @K(grid="n")
    def reversed_(x: K.In[fb.float32, "n"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i = fb.kernel.index()
        y[x.shape[0] - 1 - i] = x[i]

    K = fb.kernel

    @K(grid="n")
    def some(x: K.In[fb.float32, "n"], y: K.Out[fb.float32, "n", 7.0]) -> None:  # noqa: F821
        i = fb.kernel.index()
        if x[i] > 0.0:
            y[i] = x[i]

    x = np.random.default_rng(3).normal(size=301).astype(np.float32)
    with fb.config.scope(fallback="error"):
        assert np.array_equal(reversed_(fb.asarray(x, device=DEVICE)).numpy(), x[::-1])
        assert np.array_equal(some(fb.asarray(x, device=DEVICE)).numpy(), np.where(x > 0, x, 7.0))


def test_which_arrays_are_in_quads() -> None:
    graph = Graph([Aval((512,), fb.float32), Aval((), fb.float32)])
    graph.outputs = [*graph.add(OPS["multiply"], 0, 1)]
    step = lowering.launches_of(lowering.kinds.spec_of(graph), _gpu().measured).steps[0]
    names = {b.origin + str(b.number): a.name for a, b in zip(step.function.arrays, step.buffers, strict=True)}
    prepared = lowering.prepared(
        step.function, _gpu().measured.capabilities, {"item": (0, 511), "x0": (0, 512), "x1": (0, 1), "y0": (0, 512)}
    )
    assert in_quads(prepared) == {names["x0"], names["y0"]}


ROW_OPS = {
    "softmax": {"axis": 1}, "log_softmax": {"axis": 1}, "sum": {"axes": (1,), "keepdims": False},
    "mean": {"axes": (1,), "keepdims": True}, "max": {"axes": (1,), "keepdims": False},
    "min": {"axes": (1,), "keepdims": False}, "layer_norm": {"eps": 1e-5}, "rms_norm": {"eps": 1e-5},
}  # fmt: skip


def _loops(graph: Graph) -> int:
    """How many loops of its kernels take four elements a round."""
    group = lowering.lowered_body(graph, _gpu().measured)
    return sum(s.shader.text.count(" += 4i)") for s in group.launches)


@pytest.mark.parametrize("columns", [4, 64, 100, 1023, 1024, 1026])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
def test_loops_over_rows_have_the_same_bits(dtype: str, columns: int) -> None:
    rng, rows = np.random.default_rng(columns), max(1, 4500 // columns)
    aval = Aval((rows, columns), fb.dtype(dtype))
    for name, params in ROW_OPS.items():
        if "float" not in dtype and name not in ("sum", "max"):
            continue
        graph = Graph([aval, Aval((columns,), fb.dtype(dtype))])
        (scaled,) = graph.add(OPS["multiply"], 0, 1)
        weights = (1,) * (len(OPS[name].operands) - 1)
        graph.outputs = [*graph.add(OPS[name], scaled, *weights, **params)]
        x = _drawn(rng, dtype, aval.shape) if columns != 64 else np.ones(aval.shape, aval.dtype.np)
        quads, single, _ = _both(graph, [x, _drawn(rng, dtype, (columns,))])
        for a, b in zip(quads, single, strict=True):
            if "float" in dtype:  # the sign of a NaN depends on the order of a sum's operands, which is the driver's
                a, b = (np.where(np.isnan(t), np.abs(t), t) for t in (a, b))
            assert a.tobytes() == b.tobytes(), name
        if name in ("sum", "max"):
            assert (_loops(graph) > 0) == (columns % 4 == 0), name


def test_which_loops_are_taken_by_four() -> None:
    """Of loops that look alike, only those whose index is the counter and what is a multiple of four."""
    K = fb.kernel
    rows, columns = 64, 128
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    sums = x.sum(axis=1, dtype=np.float64)

    @K(grid="n")
    def summed(x: K.In[fb.float32, "n, m"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i, total = K.index(), 0.0
        for k in range(x.shape[1]):
            total = total + x[i, k]
        y[i] = total

    @K(grid="n")
    def doubled(x: K.InOut[fb.float32, "n, m"]) -> None:  # noqa: F821
        i = K.index()
        for k in range(x.shape[1]):
            x[i, k] = x[i, k] * 2.0

    @K(grid="n")
    def running(x: K.In[fb.float32, "n, m"], y: K.Out[fb.float32, "n, m"]) -> None:  # noqa: F821
        i, total = K.index(), 0.0
        for k in range(x.shape[1]):
            total = total + x[i, k]
            y[i, k] = total

    @K(grid="n")
    def neighbours(x: K.In[fb.float32, "n, m"], y: K.Out[fb.float32, "n, m"]) -> None:  # noqa: F821
        i = K.index()
        for k in range(x.shape[1]):
            y[i, k] = x[i, k] + x[i, (k + 1) % x.shape[1]]

    @K(grid="n")
    def skewed(x: K.In[fb.float32, "n, m"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i, total, at = K.index(), 0.0, 0
        for k in range(x.shape[1]):
            total = total + x[at // x.shape[1], k] * 0.0 + x[i, at]
            at = (at + 3) % x.shape[1]
        y[i] = total

    @K(grid="n")
    def stored_first(x: K.InOut[fb.float32, "n, m"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i, total = K.index(), 0.0
        for k in range(x.shape[1]):
            x[i, k] = x[i, k] * 2.0
            total = total + x[i, k]
        y[i] = total

    @K(grid="n")
    def strided(x: K.In[fb.float32, "n, m"], z: K.In[fb.float32, "n, h"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i, total = K.index(), 0.0
        for k in range(z.shape[1]):
            total = total + x[i, k + k] * z[i, k] + x[i, 0]
        y[i] = total

    @K(grid="n")
    def first(x: K.In[fb.float32, "n, m"], z: K.In[fb.float32, "n, m"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i, total = K.index(), 0.0
        for k in range(z.shape[1]):
            total = total + x[i, 0] * z[i, k]
        y[i] = total

    given = fb.asarray(x, device=DEVICE)
    with fb.config.scope(fallback="error"):
        np.testing.assert_allclose(first(given, given).numpy(), sums * x[:, 0], rtol=1e-4, atol=1e-3)
        changed, of_changed = stored_first(given)
        assert np.array_equal(changed.numpy(), 2 * x)
        np.testing.assert_allclose(of_changed.numpy(), 2 * sums, rtol=1e-4, atol=1e-4)
        half = rng.normal(size=(rows, columns // 2)).astype(np.float32)
        products = (x[:, ::2].astype(np.float64) * half + x[:, :1]).sum(axis=1)
        np.testing.assert_allclose(strided(given, fb.asarray(half, device=DEVICE)).numpy(), products, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(summed(given).numpy(), sums, rtol=1e-4, atol=1e-4)
        assert np.array_equal(doubled(given).numpy(), x * 2)
        running_sums = np.cumsum(x, axis=1, dtype=np.float32)
        np.testing.assert_allclose(running(given).numpy(), running_sums, rtol=1e-3, atol=1e-4)
        assert np.array_equal(neighbours(given).numpy(), x + np.roll(x, -1, axis=1))
        skew = x[:, (3 * np.arange(columns)) % columns].sum(axis=1, dtype=np.float64)
        np.testing.assert_allclose(skewed(given).numpy(), skew, rtol=1e-4, atol=1e-4)


def test_an_element_that_is_read_after_it_was_stored_is_the_new_one() -> None:
    K = fb.kernel

    @K(grid="n")
    def both(x: K.InOut[fb.float32, "n"], y: K.Out[fb.float32, "n"]) -> None:  # noqa: F821
        i = K.index()
        x[i] = x[i] + 1.0
        y[i] = x[i] * 2.0

    x = np.arange(300, dtype=np.float32)
    with fb.config.scope(fallback="error"):
        first, second = both(fb.asarray(x, device=DEVICE))
    assert np.array_equal(first.numpy(), x + 1)
    assert np.array_equal(second.numpy(), 2 * (x + 1))
