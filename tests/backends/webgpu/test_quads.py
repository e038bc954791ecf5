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
