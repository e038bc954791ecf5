"""Reductions along any axes: fused with elementwise work, at every vector width, in order, and the graphs they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import combinations, permutations
from math import prod
from typing import Any

import numpy as np
import pytest
from native_kernels import Array, widths

import firebrick as fb
from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.fusion.expand import expanded
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.policy import thresholds
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.targets.llvm.axes import kept_last, reduction_stages, split
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.ir import Graph, interpret
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.table import OPS
from firebrick.scalar.expr import Expr, load, reduce, sqrt

every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
F = fb.float32
GUARD = 64


def strides(x: Array, shape: Sequence[int]) -> tuple[int, ...]:
    steps = np.broadcast_to(x, shape).strides
    return tuple(0 if d == 1 else s // x.itemsize for d, s in zip(shape, steps, strict=True))


def run_stages(
    shape: Sequence[int], axes: Sequence[int], arrays: list[Array], results: list[tuple[Expr, Array]], target: Target,
    threads: int = 1,
) -> None:  # fmt: skip
    """Run the kernels of a group, with other memory full of NaN, and units of every grid one by one."""
    views = [BufferView(a.dtype.name, strides(a, shape)) for a in arrays]
    goals = [(e, BufferView(out.dtype.name, strides(out, shape))) for e, out in results]
    made = reduction_stages(shape, axes, views, goals, target, "axes")
    temporary = [np.full(n + 2 * GUARD, 0xFF, np.uint8) for n in made.temporary]
    table = AddressTable(len(arrays) + len(results) + len(temporary))
    table.put(0, (*arrays, *(out for _, out in results), *(t[GUARD:] for t in temporary)))
    module = compile_ir(module_text([k for k, _ in made.kernels]), target)
    launches = [Launch(k.name, b, k.grid, 1, k.scratch) for k, b in made.kernels]
    with closing(Pool(threads)) as pool:
        Segment(launches, [module])(table.address, pool)
    for t in temporary:
        assert (t[:GUARD] == 0xFF).all()
        assert (t[-GUARD:] == 0xFF).all()


SHAPES = ((4, 3, 5), (7, 1, 6), (40, 5, 17), (300, 20), (2, 70, 3, 33), (64, 16, 6, 6), (2, 40, 1), (1, 1), (50, 3, 20, 40))
LARGE = ((2, 70001), (70001, 3), (3, 15000, 7), (40, 3, 31, 33))


@every_width
@pytest.mark.parametrize("shape", [*SHAPES, *LARGE], ids=str)
def test_any_axes_with_work_before_between_and_after(shape: tuple[int, ...], target: Target) -> None:
    rng = np.random.default_rng(0)
    subsets = [a for r in range(1, len(shape) + 1) for a in combinations(range(len(shape)), r)]
    some = shape in LARGE or (len(shape) == 4 and target != Target.host())
    for axes in subsets[:: max(1, len(subsets) // 5)] if some else subsets:
        kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
        x, y = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        w, last = rng.normal(size=kept).astype(np.float32), rng.normal(size=shape[-1:]).astype(np.float32)
        a, b, c, d = (load(i, "float32") for i in range(4))
        product = reduce("sum", a * b)
        results = [(product / 7.0, kept), (reduce("max", a + d) * c, kept), (a * d, shape)]
        total, size = x.astype(np.float64) * y, prod(shape[i] for i in axes)
        want = [
            (np.sum(total, axes, keepdims=True) / 7, np.sum(np.abs(total), axes, keepdims=True) / 7),
            ((x + last).max(axes, keepdims=True).astype(np.float64) * w, 0.0),
            (x.astype(np.float64) * last, 0.0),
        ]
        if not split(shape, axes):  # nested
            mean = reduce("sum", a) / float(size)
            variance = reduce("sum", (a - mean) * (a - mean)) / float(size)
            results.append(((a - mean) / sqrt(variance + 1.0) * c, shape))
            m, v = x.mean(axes, keepdims=True, dtype=np.float64), x.var(axes, keepdims=True, dtype=np.float64)
            want.append(((x - m) / np.sqrt(v + 1) * w, 4 * np.abs(w)))
        outs = [np.full(s, np.nan, np.float32) for _, s in results]
        run_stages(shape, axes, [x, y, w, last], [(e, o) for (e, _), o in zip(results, outs, strict=True)], target)
        for k, (got, (expected, scale)) in enumerate(zip(outs, want, strict=True)):
            error = np.abs(got - expected) / (np.abs(expected) + scale + 1e-30)
            assert error.max() < 16 * 2**-24, f"{axes}, result {k}: {error.max() * 2**24} units"


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_results_of_elements_and_of_reductions_may_be_in_any_order(order: tuple[int, ...]) -> None:
    x, row = (np.random.default_rng(0).normal(size=s).astype(np.float32) for s in ((3000, 5), (1, 5)))
    a, b = load(0, "float32"), load(1, "float32")
    results = [(reduce("sum", a) * b, (1, 5)), (reduce("max", a), (1, 5)), (a * b, (3000, 5))]
    want = [x.sum(0, keepdims=True, dtype=np.float64) * row, x.max(0, keepdims=True), x * row]
    outs = [np.full(s, np.nan, np.float32) for _, s in results]
    run_stages((3000, 5), (0,), [x, row], [(results[k][0], outs[k]) for k in order], Target.host())
    for got, expected in zip(outs, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("shape", "axes"), [((64, 3, 40, 40), (0, 2, 3)), ((5000, 40), (0,)), ((4, 3000, 50), (1,)),
                                             ((200, 16, 20, 20), (0, 2, 3)), ((100, 30, 40), (0, 1, 2))])  # fmt: skip
def test_every_number_of_threads_gives_the_same_bits(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
    found = []
    for threads in (1, 2, 4):
        outs = [np.full(kept, np.nan, np.float32), np.full(shape, np.nan, np.float32)]
        a = load(0, "float32")
        run_stages(shape, axes, [x], [(reduce("sum", a * a), outs[0]), (a + 1.0, outs[1])], Target.host(), threads)
        found.append(outs)
    for outs in found[1:]:
        for one, other in zip(outs, found[0], strict=True):
            np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
    np.testing.assert_allclose(found[0][0], np.sum(x.astype(np.float64) ** 2, axes, keepdims=True), rtol=1e-6)


def test_a_long_sum_keeps_its_rounding_errors_in_every_layout() -> None:
    for shape, axes in (((400, 8, 9, 50), (0, 2, 3)), ((180000, 8), (0,)), ((8, 180000), (1,)), ((3, 60000, 8), (0, 1))):
        x = np.full(shape, 0.1, np.float32)
        kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
        out = np.empty(kept, np.float32)
        run_stages(shape, axes, [x], [(reduce("sum", load(0, "float32")), out)], Target.host())
        exact = float(np.float32(0.1)) * 180000
        assert np.abs(out - exact).max() <= 4 * np.spacing(np.float32(exact)), shape


def test_nan_and_infinities_reach_the_result() -> None:
    for shape, axes in (((6, 5, 20), (0, 2)), ((90, 20), (0,)), ((4, 40, 6), (1,)), ((50000,), (0,))):
        kept = tuple(1 if i in axes else d for i, d in enumerate(shape))
        for value in (np.nan, np.inf, -np.inf):
            x = np.ones(shape, np.float32)
            x.reshape(-1)[-1] = value
            outs = [np.empty(kept, np.float32) for _ in range(3)]
            kinds = [reduce(k, load(0, "float32")) for k in ("sum", "max", "min")]
            run_stages(shape, axes, [x], list(zip(kinds, outs, strict=True)), Target.host())
            for out, fn in zip(outs, (np.sum, np.max, np.min), strict=True):
                np.testing.assert_array_equal(out, fn(x, axes, keepdims=True))


# the op table through compiled graphs


@pytest.fixture
def eager_to_fuse() -> Iterator[None]:
    with thresholds(one=1, two=1, reduced=1):
        yield


ENTRIES = ("sum", "mean", "prod", "max", "min", "all", "any", "standardize", "standardize_gradient")


@pytest.mark.usefixtures("eager_to_fuse")
@pytest.mark.parametrize("name", ENTRIES)
def test_entries_are_within_the_tables_tolerance(name: str) -> None:
    op, native = OPS[name], 0
    for dtype in op.dtypes:
        for sample in op.samples(np.random.default_rng(4), dtype):
            arrays = tuple(np.array(a, order="C") for a in sample.inputs)
            run = fb.jit(lambda *xs, params=sample.params: bind(op, xs, params))
            xs = [fb.asarray(a) for a in arrays]
            made = run(*xs)
            got = tuple(t.numpy() for t in (made if isinstance(made, tuple) else (made,)))
            found = check_results(op, arrays, sample.params, got, run_reference(op, arrays, sample.params))
            assert found.ok, f"{dtype}, {sample.name}: {found}"
            native += "compiled kernels: 0" not in run.explain(*xs)
    assert native >= 8


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 3), (0, 2, 3), (1, 3), (2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_take_in_what_they_reduce(name: str, axes: tuple[int, ...], keepdims: bool) -> None:
    g = Graph([Aval((8, 6, 10, 12), F), Aval((6, 1, 1), F)])
    product = g.add(OPS["multiply"], 0, g.add(OPS["exp"], g.add(OPS["negative"], 1)[0])[0])[0]
    found = g.add(OPS[name], product, axes=axes, keepdims=keepdims)[0]
    g.outputs = (found, g.add(OPS["relu"], product)[0])
    made = fuse(g, kind_of, POLICY)
    big = [n for n in made.nodes if n.op is FUSED]
    assert len(big) <= 2  # what has few elements may stand alone
    assert {"multiply", name, "relu"} <= {m.op.name for n in big[-1:] for m in n.params["body"].nodes}
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=a.shape).astype(np.float32) for a in g.inputs]
    got = fb.device("cpu").backend.compile(g)(arrays)
    want = interpret(g, [a.astype(np.float64) for a in arrays], lambda op, xs, params: op.reference(*xs, **params))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-6, atol=1e-5)


def test_a_batch_norm_is_one_kernel_with_what_follows_it() -> None:
    g = Graph([Aval((8, 16, 10, 10), F), Aval((1, 16, 1, 1), F), Aval((1, 16, 1, 1), F), Aval((8, 16, 10, 10), F)])
    y, _, _ = g.add(OPS["standardize"], 0, 1, 2, axes=(0, 2, 3), eps=1e-5)
    g.outputs = (g.add(OPS["relu"], g.add(OPS["add"], y, 3)[0])[0],)
    assert len(fuse(g, kind_of, POLICY).nodes) == 1
    back = Graph([*(Aval((8, 16, 10, 10), F),) * 3, *(Aval((1, 16, 1, 1), F),) * 3])
    dy = back.add(OPS["multiply"], 0, 1)[0]
    back.outputs = back.add(OPS["standardize_gradient"], dy, 2, 3, 4, 5, axes=(0, 2, 3), eps=1e-5)
    (node,) = fuse(back, kind_of, POLICY).nodes
    assert sum(n.op.name == "sum" for n in node.params["body"].nodes) == 2


def test_sums_along_columns_share_a_pass_and_wait_for_nothing_in_it() -> None:
    g = Graph([Aval((4000, 16), F), Aval((4000, 16), F)])
    total = g.add(OPS["mean"], 0, axes=(0,), keepdims=True)[0]
    by_place = g.add(OPS["mean"], g.add(OPS["multiply"], 0, 1)[0], axes=(0,), keepdims=True)[0]
    g.outputs = (g.add(OPS["subtract"], g.add(OPS["subtract"], 0, total)[0], by_place)[0],)
    first, second = fuse(g, kind_of, POLICY).nodes
    assert [n.op.name for n in first.params["body"].nodes].count("mean") == 2
    assert "mean" not in [n.op.name for n in second.params["body"].nodes]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=a.shape).astype(np.float32) for a in g.inputs]
    x, y = (a.astype(np.float64) for a in arrays)
    (got,) = fb.device("cpu").backend.compile(g)(arrays)
    np.testing.assert_allclose(got, x - x.mean(0) - (x * y).mean(0), rtol=1e-5, atol=1e-6)


def test_an_old_value_is_not_read_again_for_a_kernel_of_long_ago() -> None:
    g = Graph([Aval((256, 256), F)])
    a = g.add(OPS["relu"], g.add(OPS["negative"], 0)[0])[0]
    b = g.add(OPS["matmul"], a, a)[0]
    c = g.add(OPS["multiply"], b, g.add(OPS["subtract"], a, 0)[0])[0]
    g.outputs = (g.add(OPS["matmul"], c, a)[0],)
    made = fuse(g, kind_of, POLICY)
    assert [n.avals for n in made.nodes[:1]] == [(Aval((256, 256), F),)]
    assert "subtract" not in {m.op.name for m in made.nodes[0].params["body"].nodes}


@pytest.mark.parametrize("op", [name for name, op in OPS.items() if op.expand])
def test_an_expansion_computes_what_its_op_does(op: str) -> None:
    tried = 0
    for sample in OPS[op].samples(np.random.default_rng(6), "float64"):
        g = Graph([Aval(a.shape, as_dtype(a.dtype)) for a in sample.inputs])
        g.outputs = g.add(OPS[op], *range(len(sample.inputs)), **sample.params)
        full = expanded(g)
        assert full.avals[: len(g.inputs)] == g.inputs
        tried += full is not g
        with np.errstate(invalid="ignore"):  # samples of attention have infinities
            got = interpret(full, sample.inputs, lambda o, xs, params: o.reference(*xs, **params))
            want = interpret(g, sample.inputs, lambda o, xs, params: o.reference(*xs, **params))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert tried or "pool" in op


def test_pools_of_whole_images_are_means() -> None:
    params: dict[str, Any] = {"kernel": (9, 10), "stride": (1, 1), "padding": ((0, 0), (0, 0))}
    g = Graph([Aval((2, 3, 9, 10), F), Aval((2, 3, 1, 1), F)])
    g.outputs = (g.add(OPS["avg_pool"], 0, **params)[0], g.add(OPS["avg_pool_input"], 1, size=(9, 10), **params)[0])
    full = expanded(g)
    assert not {"avg_pool", "avg_pool_input"} & {n.op.name for n in full.nodes}
    x, y = np.random.default_rng(0).normal(size=(2, 3, 9, 10)), np.random.default_rng(1).normal(size=(2, 3, 1, 1))
    got = interpret(full, [x, y], lambda o, xs, p: o.reference(*xs, **p))
    np.testing.assert_allclose(got[0], x.mean((2, 3), keepdims=True))
    np.testing.assert_allclose(got[1], np.broadcast_to(y / 90, x.shape))


def test_where_the_innermost_axis_is_kept() -> None:
    assert kept_last((4, 5), (0,))
    assert not kept_last((4, 5), (1,))
    assert not kept_last((4, 5, 1), (1,))
    assert not kept_last((1, 1), (0,))
