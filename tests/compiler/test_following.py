"""Contractions and what follows them as one kernel: what joins, what stays apart, and results as in the op table."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forced import kernels_of_any_size
from rounding import exact_graph

import firebrick as fb
from firebrick.backends.cpu.engine import CpuBackend
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.core.aval import Aval
from firebrick.ir import Graph, verify_graph
from firebrick.ops import OPS

F = fb.float32


def add(g: Graph, name: str, *inputs: int, **params: Any) -> int:
    return g.add(OPS[name], *inputs, **params)[0]


def groups(g: Graph) -> list[list[str]]:
    """The op names of each group, in order, of which views and numbers that were taken in are left out."""
    made = fuse(g, kind_of, POLICY)
    verify_graph(made)
    return [
        [m.op.name for m in n.params["body"].nodes if m.op.name not in ("constant", "broadcast_to", "permute")]
        for n in made.nodes
        if n.op is FUSED
    ]


def run(g: Graph, *arrays: Any) -> list[np.ndarray]:
    """The results of the compiled graph, which are near those of the op table's references, in any number of threads."""
    device = fb.device("cpu")
    backend = device.backend
    assert isinstance(backend, CpuBackend)
    program = backend.compile(g)
    truth = exact_graph(
        g, arrays, max((g.avals[v].dtype for v in g.outputs if g.avals[v].dtype.is_inexact), key=lambda d: d.eps)
    )
    before, found = fb.config.num_threads, []
    try:
        for threads in (1, 2, 4):
            fb.config.num_threads = threads
            found.append([np.array(x) for x in program([backend.from_host(np.copy(a), device) for a in arrays])])
    finally:
        fb.config.num_threads = before
    for other in found[1:]:
        assert [x.tobytes() for x in other] == [x.tobytes() for x in found[0]]
    for got, want, v in zip(found[0], truth.values, g.outputs, strict=True):
        assert got.dtype == g.avals[v].dtype.np
        if got.dtype == np.bool_:
            assert (got != want).mean() < 1e-3  # signs of sums near 0
    truth.check([want if got.dtype == np.bool_ else got for got, want in zip(found[0], truth.values, strict=True)])
    return found[0]


def drawn(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]


def test_a_bias_an_activation_and_its_mask_join_the_product() -> None:
    g = Graph([Aval((64, 300), F), Aval((300, 50), F), Aval((50,), F)])
    h = add(g, "add", add(g, "matmul", 0, 1), 2)
    zero = g.constant(np.zeros((), np.float32))
    g.outputs = (add(g, "relu", h), add(g, "greater", h, zero))
    assert groups(g) == [["matmul", "add", "relu", "greater"]]
    run(g, *drawn((64, 300), (300, 50), (50,)))


@pytest.mark.parametrize("k", [20, 128, 900])
def test_what_follows_behind_a_reshape_joins_and_what_is_saved_is_a_result(k: int) -> None:
    g = Graph([Aval((32, k), F), Aval((48, k), F), Aval((48,), F), Aval((8, 48), F)])
    h = add(g, "add", add(g, "matmul", 0, add(g, "permute", 1, axes=(1, 0))), 2)
    wide = add(g, "reshape", h, shape=(4, 8, 48))
    a = add(g, "gelu", add(g, "add", wide, 3))
    g.outputs = (add(g, "reshape", a, shape=(32, 48)), wide)
    assert groups(g)[0] == ["matmul", "add", "reshape", "add", "gelu"]
    run(g, *drawn((32, k), (48, k), (48,), (8, 48)))


def test_a_mask_over_batches_that_are_merged_in_the_product_is_read_where_it_lies() -> None:
    g = Graph([Aval((12, 9, 20), F), Aval((12, 20, 17), F), Aval((3, 1, 1, 17), fb.bool)])
    s = add(g, "reshape", add(g, "matmul", 0, 1), shape=(3, 4, 9, 17))
    least = g.constant(np.asarray(-1.0, np.float32))
    g.outputs = (add(g, "where", 2, s, least),)
    assert groups(g) == [["matmul", "reshape", "where"]]
    x, y = drawn((12, 9, 20), (12, 20, 17))
    run(g, x, y, np.random.default_rng(1).random((3, 1, 1, 17)) < 0.5)


def test_merged_heads_are_read_by_the_product_without_a_copy() -> None:
    g = Graph([Aval((4, 8, 16, 6), F), Aval((48, 30), F)])
    merged = add(g, "reshape", add(g, "permute", 0, axes=(0, 2, 1, 3)), shape=(64, 48))
    up = add(g, "permute", merged, axes=(1, 0))
    y = add(g, "matmul", merged, 1)
    g.outputs = (y, add(g, "matmul", up, y))
    made = fuse(g, kind_of, POLICY)
    assert [n.op for n in made.nodes] == [FUSED, FUSED]
    run(g, *drawn((4, 8, 16, 6), (48, 30)))


def test_the_next_state_of_an_input_does_not_join_its_gradient() -> None:
    g = Graph([Aval((64, 32), F), Aval((64, 48), F), Aval((32, 48), F)])
    d = add(g, "matmul", add(g, "permute", 0, axes=(1, 0)), 1)
    step = add(g, "multiply", d, g.constant(np.asarray(0.1, np.float32)))
    g.outputs = (add(g, "subtract", 2, add(g, "add", step, step)),)
    assert groups(g)[0] == ["matmul"]
    assert len(groups(g)) == 2


def test_two_products_take_in_what_follows_one_of_them() -> None:
    g = Graph([Aval((64, 40), F), Aval((40, 32), F), Aval((64, 24), F), Aval((24, 32), F)])
    s = add(g, "add", add(g, "matmul", 0, 1), add(g, "matmul", 2, 3))
    g.outputs = (add(g, "tanh", add(g, "sigmoid", s)),)
    assert sorted(map(len, groups(g))) == [1, 4]
    run(g, *drawn((64, 40), (40, 32), (64, 24), (24, 32)))


def test_nothing_joins_that_waits_for_what_waits_for_the_product() -> None:
    g = Graph([Aval((64, 64), F), Aval((64, 64), F)])
    m = add(g, "matmul", 0, 1)
    other = add(g, "matmul", m, 0)
    g.outputs = (add(g, "tanh", add(g, "add", add(g, "exp", m), other)),)
    found = groups(g)
    assert sorted(n.count("matmul") for n in found) == [1, 1]
    run(g, *(x * 0.1 for x in drawn((64, 64), (64, 64))))


@pytest.mark.parametrize("geometry", [
    ((2, 3, 9, 7), (5, 3, 3, 3), 1, 1), ((2, 16, 14, 14), (32, 16, 3, 3), 1, 1), ((3, 1, 12, 12), (4, 1, 5, 5), 1, 0),
    ((2, 8, 9, 9), (6, 8, 3, 3), 2, 1), ((2, 8, 7, 7), (16, 8, 1, 1), 1, 0),
], ids=str)  # fmt: skip
def test_a_convolution_takes_in_channel_scales_residuals_and_activations(geometry: Any) -> None:
    image, weight, stride, pad = geometry
    out = (image[0], weight[0], *((n + 2 * pad - k) // stride + 1 for n, k in zip(image[2:], weight[2:], strict=True)))
    g = Graph([Aval(image, F), Aval(weight, F), Aval((weight[0],), F), Aval(out, F)])
    y = add(g, "conv", 0, 1, stride=(stride,) * 2, padding=((pad, pad),) * 2, dilation=(1, 1), groups=1)
    b = add(g, "reshape", 2, shape=(1, weight[0], 1, 1))
    h = add(g, "add", add(g, "multiply", y, b), 3)
    flat = (int(np.prod(out)),)
    g.outputs = (add(g, "reshape", add(g, "relu", h), shape=flat), add(g, "reshape", h, shape=flat))
    assert groups(g)[0].count("conv") == 1
    assert {"multiply", "add", "relu"} <= set(groups(g)[0])
    run(g, *drawn(image, weight, (weight[0],), out))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
def test_other_dtypes_are_rounded_where_they_are_stored(dtype: Any) -> None:
    aval = fb.dtype(np.dtype(dtype).name) if hasattr(fb, "dtype") else getattr(fb, np.dtype(dtype).name)
    g = Graph([Aval((33, 500), aval), Aval((500, 21), aval), Aval((21,), aval)])
    g.outputs = (add(g, "relu", add(g, "add", add(g, "matmul", 0, 1), 2)),)
    assert groups(g) == [["matmul", "add", "relu"]]
    run(g, *drawn((33, 500), (500, 21), (21,), dtype=dtype))


def test_nan_and_infinity_go_through_what_follows() -> None:
    g = Graph([Aval((40, 30), F), Aval((30, 50), F)])
    m = add(g, "matmul", 0, 1)
    g.outputs = (add(g, "relu", m), add(g, "isnan", m))
    x, y = np.ones((40, 30), np.float32), np.ones((30, 50), np.float32)
    x[3, 4], y[7, 9] = np.nan, -np.inf
    relu, nan = run(g, x, y)
    assert np.isnan(relu[3]).all()
    assert nan.sum() == 50
    assert (relu[:3, 9] == 0).all()


def test_what_only_reductions_read_is_left_to_them() -> None:
    g = Graph([Aval((64, 40), F), Aval((40, 48), F), Aval((64, 48), F)])
    m = add(g, "matmul", 0, 1)
    g.outputs = (m, add(g, "sum", add(g, "multiply", m, 2), axes=(0,), keepdims=False))
    assert ["matmul"] in groups(g)
    run(g, *drawn((64, 40), (40, 48), (64, 48)))


def test_special_values_of_a_convolution_go_through_what_follows() -> None:
    g = Graph([Aval((2, 16, 14, 14), F), Aval((32, 16, 3, 3), F), Aval((32,), F)])
    y = add(g, "conv", 0, 1, stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)
    g.outputs = (add(g, "relu", add(g, "add", y, add(g, "reshape", 2, shape=(1, 32, 1, 1)))),)
    x, w, b = drawn((2, 16, 14, 14), (32, 16, 3, 3), (32,))
    x[1, 3, 5, 5], x[0, 2, 0, 0], b[4] = np.nan, np.inf, -np.inf
    (got,) = run(g, x, w, b)
    assert np.isnan(got[1]).sum() == 9 * 31 + (0 if not np.isnan(got[1, 4]).any() else 9)


def test_a_view_inside_a_group_is_a_result_for_those_outside() -> None:
    g = Graph([Aval((12, 20), F), Aval((20, 24), F), Aval((20, 24), F)])
    m = add(g, "tanh", add(g, "matmul", 0, 1))
    same = add(g, "reshape", m, shape=(12, 24))
    inside = add(g, "subtract", m, same)
    up = add(g, "permute", same, axes=(1, 0))
    g.outputs = (inside, add(g, "matmul", add(g, "matmul", 2, up), m), add(g, "exp", same))
    run(g, *drawn((12, 20), (20, 24), (20, 24)))


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_with_products_compute_what_their_references_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = (int(x) for x in rng.choice([2, 6, 12, 16, 24, 36], 3))
    b = int(rng.choice([1, 2, 4]))
    g = Graph([Aval(s, F) for s in ((b, m, k), (b, k, n), (n,), (b, m, n), (m, 1), (b * m, n))])
    shapes = [(b, m, n), (b * m, n), (b, 2, m // 2, n)]
    made = {(b, m, n): [add(g, "matmul", 0, 1), 3], (b * m, n): [5]}
    scale = g.constant(np.asarray(0.3, np.float32))
    for _ in range(int(rng.integers(4, 14))):
        shape = list(made)[rng.integers(len(made))]
        v = made[shape][rng.integers(len(made[shape]))]
        kind = rng.integers(7)
        if kind == 0:
            to = shapes[rng.integers(3)]
            made.setdefault(to, []).append(add(g, "reshape", v, shape=to))
            continue
        if kind == 1:
            v = add(g, "add", v, 2)
        elif kind == 2 and shape == (b, m, n):
            v = add(g, "multiply", v, 4)
        elif kind == 3:
            v = add(g, ("tanh", "sigmoid", "relu", "gelu")[rng.integers(4)], v)
        elif kind == 4 and shape == (b * m, n):
            v = add(g, "matmul", add(g, "tanh", add(g, "matmul", v, add(g, "permute", v, axes=(1, 0)))), v)
        elif kind == 5:
            v = add(g, "multiply", v, add(g, "sum", v, axes=(len(shape) - 1,), keepdims=True))
        else:
            v = add(g, "subtract", v, made[shape][rng.integers(len(made[shape]))])
        made[shape].append(add(g, "multiply", v, scale))
    values = [v for found in made.values() for v in found if v > 5]
    g.outputs = tuple(int(v) for v in rng.choice(values, min(3, len(values)), replace=False))
    arrays = [rng.uniform(-1, 1, a.shape).astype(np.float32) for a in g.inputs]
    run(g, *arrays)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_product_or_convolution_that_is_cast_is_stored_in_the_wider_dtype_and_rounded_before(dtype: str, stride: int) -> None:
    # a convolution wrote half precision into the float32 result
    rng = np.random.default_rng(0)
    x, w = (fb.asarray(rng.normal(size=s).astype(np.float32)).astype(dtype) for s in ((2, 4, 7), (4, 4, 2)))
    for f in (
        lambda x, w: fb.astype(fb.conv1d(x, w, stride=stride), fb.float32),
        lambda x, w: fb.astype(x[0, :, :4] @ w[..., 0], fb.float32),
        lambda x, w: fb.astype(fb.reshape(x[0, :, :4] @ w[..., 0], (2, 8)), fb.float32),
    ):
        with kernels_of_any_size():
            got = fb.jit(f)(x, w).numpy()
        half = fb.dtype(dtype)
        assert np.array_equal(got, got.astype(half.np).astype(np.float32))
        np.testing.assert_allclose(got, f(x, w).numpy(), rtol=0, atol=8 * half.eps * np.abs(got).max())
