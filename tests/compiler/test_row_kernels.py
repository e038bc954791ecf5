"""Row and column kernels: the op table's entries, lengths around vectors and blocks, order of sums, special values."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest
import row_gradients
from native_kernels import Array, loads, run_kernel, view, widths

from firebrick.compiler.targets.llvm.column import column_kernels
from firebrick.compiler.targets.llvm.long_row import PART, long_row_kernels
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.row import blocks_of, row_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.table import OPS
from firebrick.scalar import rows
from firebrick.scalar.expr import Expr, cast, const, index, load, reduce, select, walk
from firebrick.scalar.math import exp_down
from firebrick.scalar.storage import computed

REDUCTIONS = [n for n, op in OPS.items() if op.scalar is not None and "axes" in signature(op.reference).parameters]

every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
LENGTHS = (1, 2, 15, 16, 17, 64, 100, 1023, 5000, 20001)


def run_rows(e: Expr, arrays: list[Array], out: Array, target: Target, cuts: Any = ()) -> Array:
    """One expression over rows of the shape the arrays broadcast to; ``out`` has last axis 1 for one value a row."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    goal = BufferView(out.dtype.name, (*view(out).strides[:-1], 0)) if out.shape != shape else view(out)
    kernel = row_kernel("k", shape, [view(a, shape) for a in arrays], [(e, goal)], target)
    run_kernel(kernel, [*arrays, out], target, cuts)
    return out


@every_width
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_entries_are_within_the_tables_tolerance(name: str, target: Target) -> None:
    op, tried = OPS[name], 0
    rules: dict[str, Callable[..., Expr]] = {
        "softmax": lambda x, n, eps: rows.softmax(x),
        "log_softmax": lambda x, n, eps: rows.log_softmax(x),
        "layer_norm": lambda x, w, b, n, eps: rows.layer_norm(x, w, b, n, eps),
        "rms_norm": lambda x, w, n, eps: rows.rms_norm(x, w, n, eps),
    }
    for dtype in op.dtypes:
        for sample in op.samples(np.random.default_rng(7), dtype):
            arrays = [np.asarray(a) for a in sample.inputs]
            x = arrays[0]
            if sample.params.get("axis", x.ndim - 1) != x.ndim - 1 or x.size == 0:
                continue
            e = rules[name](*loads(arrays), x.shape[-1], sample.params.get("eps"))
            got = run_rows(e, arrays, np.empty(x.shape, x.dtype), target)
            found = check_results(op, tuple(arrays), sample.params, (got,), run_reference(op, tuple(arrays), sample.params))
            assert found.ok, f"{dtype}, {sample.name}: {found}"
            tried += 1
    assert tried > 8


@every_width
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_within_the_tables_tolerance(name: str, target: Target) -> None:
    op, tried = OPS[name], 0
    for dtype in op.dtypes:
        for sample in op.samples(np.random.default_rng(8), dtype):
            x = np.asarray(sample.inputs[0])
            axes = sample.params["axes"]
            if dtype.startswith("complex") or x.size == 0 or not axes or axes != tuple(range(x.ndim - len(axes), x.ndim)):
                continue
            kept = x.shape[: x.ndim - len(axes)]
            flat = x.reshape(*kept, -1)
            e = op.scalar(load(0, computed(dtype)), count=flat.shape[-1])
            out = run_rows(e, [flat], np.empty((*kept, 1), x.dtype), target)
            want = run_reference(op, (x,), sample.params)
            found = check_results(op, (x,), sample.params, (out.reshape(want[0].shape),), want)
            assert found.ok, f"{dtype}, {sample.name}: {found}"
            tried += 1
    assert tried


@every_width
@pytest.mark.parametrize("length", LENGTHS)
def test_gradients_agree_with_float64(length: int, target: Target) -> None:
    rng = np.random.default_rng(length)
    x, g = rng.normal(size=(2, 5, length)).astype(np.float32)
    w = rng.uniform(0.5, 1.5, length).astype(np.float32)
    label = rng.integers(0, length, (5, 1)).astype(np.int32)
    a, b, c, d = loads([x, g, w, label])
    place = cast(index(1), "int32")
    wide, cotangent, weight = x.astype(np.float64), g.astype(np.float64), w.astype(np.float64)

    def soft(v: Array) -> Array:
        e = np.exp(v - v.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    hot = np.arange(length) == label
    y = soft(wide)
    i = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    h, u = (wide - wide.mean(-1, keepdims=True)) * i, cotangent * weight
    j = 1 / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
    cases = {
        "softmax": (
            row_gradients.softmax_gradient(b, rows.softmax(a)), y * (cotangent - (cotangent * y).sum(-1, keepdims=True))
        ),
        "log_softmax": (
            row_gradients.log_softmax_gradient(b, rows.log_softmax(a)), cotangent - y * cotangent.sum(-1, keepdims=True)
        ),
        "layer_norm": (
            row_gradients.layer_norm_gradient(b, a, c, length, 1e-5),
            (u - u.mean(-1, keepdims=True) - h * (u * h).mean(-1, keepdims=True)) * i,
        ),
        "rms_norm": (
            row_gradients.rms_norm_gradient(b, a, c, length, 1e-5), (u - wide * (u * wide).mean(-1, keepdims=True) * j * j) * j
        ),
        "cross_entropy": (row_gradients.cross_entropy_gradient(const(0.25, "float32"), a, d, place), 0.25 * (y - hot)),
    }  # fmt: skip
    for name, (e, want) in cases.items():
        got = run_rows(e, [x, g, w, label], np.empty_like(x), target)
        spread = 300 if length == 1 else 1  # one value has no variance: its rounding error is divided by √eps
        assert np.allclose(got, want, rtol=1e-5, atol=4e-6 * spread), (name, np.abs(got - want).max())
    loss = run_rows(row_gradients.cross_entropy(a, d, place), [x, g, w, label], np.empty((5, 1), np.float32), target)
    assert np.allclose(loss, -np.log(y[hot])[:, None], rtol=1e-5, atol=2e-6)


@every_width
def test_expensive_values_of_a_pass_are_kept_for_the_next_and_give_the_same(target: Target) -> None:
    x = np.random.default_rng(1).normal(size=(3, 1000)).astype(np.float32)
    a = load(0, "float32")
    e = rows.softmax(a)
    kernel = row_kernel("k", x.shape, [view(x)], [(e, view(x))], target)
    assert kernel.scratch >= 4 * 1000
    long = row_kernel("k", (1, 1 << 20), [BufferView("float32", (0, 1))], [(e, BufferView("float32", (0, 1)))], target)
    assert long.scratch == 0  # too long to keep: computed again
    got = run_rows(e, [x], np.empty_like(x), target)
    again = exp_down(a - reduce("max", a))
    assert any(n is again for n in walk([e]))
    assert np.allclose(got.sum(-1), 1, atol=1e-6)


@every_width
def test_nan_and_infinities_go_through_reductions(target: Target) -> None:
    x = np.ones((6, 200), np.float32)
    x[0, 137], x[1, 3], x[2, 199], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4, 0], x[4, 1], x[5, :2] = np.nan, 5, (np.inf, -np.inf)
    a = load(0, "float32")
    for kind, function in (("max", np.max), ("min", np.min), ("sum", np.sum)):
        got = run_rows(reduce(kind, a), [x], np.empty((6, 1), np.float32), target)
        with np.errstate(invalid="ignore"):
            want = function(x, -1, keepdims=True)
        assert np.array_equal(got, want, equal_nan=True)


@every_width
@pytest.mark.parametrize("value", [0.1, 0.7, 1.9])
def test_a_long_sum_of_equal_numbers_errs_by_little(value: float, target: Target) -> None:
    n = 1 << 20
    x = np.full((1, n), value, np.float32)
    got = run_rows(rows.total(load(0, "float32")), [x], np.empty((1, 1), np.float32), target)
    exact = n * float(np.float32(value))
    assert abs(got[0, 0] - exact) < 8 * np.finfo(np.float32).eps * exact
    tall = np.full((n // 4, 5), value, np.float32)
    made = column_kernels(
        "k", n // 4, 5, [view(tall)], [(rows.total(load(0, "float32")), BufferView("float32", (0, 1)))], target
    )
    out, part = np.empty(5, np.float32), np.empty((made.blocks, 5), np.float32)
    run_kernel(made.kernels[0], [tall, part], target)
    run_kernel(made.kernels[1], [tall, part, out], target)
    assert (np.abs(out - exact / 4) < 8 * np.finfo(np.float32).eps * exact / 4).all()


@every_width
def test_long_sums_keep_infinities(target: Target) -> None:
    x = np.ones((4, 40000), np.float32)
    x[0, 100], x[1, 30000], x[2, [5, 39000]], x[3] = np.inf, -np.inf, (np.inf, -np.inf), 3e38
    got = run_rows(rows.total(load(0, "float32")), [x], np.empty((4, 1), np.float32), target)
    assert np.array_equal(got[:, 0], [np.inf, -np.inf, np.nan, np.inf], equal_nan=True)


def test_any_cut_of_the_grid_gives_the_same_bits() -> None:
    target = Target.host()
    x = np.random.default_rng(9).normal(size=(200, 400)).astype(np.float32)
    e = rows.softmax(load(0, "float32"))
    first = run_rows(e, [x], np.empty_like(x), target)
    assert np.array_equal(first, run_rows(e, [x], np.empty_like(x), target, cuts=(1, 4)))


@every_width
@pytest.mark.parametrize("shape", [(1, 2 * PART), (1, 3 * PART + 11), (2, 2, 2 * PART + 1)])
def test_long_rows_are_cut_by_their_length_and_combined(shape: tuple[int, ...], target: Target) -> None:
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    outer = shape[:-1]
    a = load(0, "float32")
    exprs = [rows.average(a * a, shape[-1]), reduce("max", a), reduce("sum", a) * 2.0]
    outs = [np.empty((*outer, 1), np.float32) for _ in exprs]
    goals = [BufferView("float32", (*view(o).strides[:-1], 0)) for o in outs]
    made = long_row_kernels("k", shape, [view(x)], list(zip(exprs, goals, strict=True)), target)
    parts = [np.full((*outer, made.parts), np.nan, np.float32) for _ in made.partials]
    run_kernel(made.kernels[0], [x, *parts], target, cuts=(1,))
    run_kernel(made.kernels[1], [x, *parts, *outs], target)
    wide = x.astype(np.float64)
    for got, want in zip(outs, ((wide**2).mean(-1), wide.max(-1), 2 * wide.sum(-1)), strict=True):
        assert np.allclose(got[..., 0], want, rtol=1e-6, atol=1e-3)


@every_width
@pytest.mark.parametrize("shape", [(1, 5), (3, 17), (63, 16), (64, 64), (130, 1), (500, 33), (1111, 2050), (0, 7)])
def test_columns_are_reduced_with_values_of_rows_and_columns(shape: tuple[int, int], target: Target) -> None:
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, *shape)).astype(np.float32)
    mean, weight = rng.normal(size=(shape[0], 1)).astype(np.float32), rng.normal(size=(1, shape[1])).astype(np.float32)
    a, b, c, d = loads([x, g, mean, weight])
    exprs = [reduce("sum", b * (a - c)) * d, reduce("max", a), reduce("sum", select(a > 0.0, b, 0.0))]
    outs = [np.full(shape[1], 7, np.float32) for _ in exprs]
    views = [
        BufferView("float32", (shape[1], 1)),
        BufferView("float32", (shape[1], 1)),
        BufferView("float32", (1, 0)),
        BufferView("float32", (0, 1)),
    ]
    made = column_kernels("k", *shape, views, [(e, BufferView("float32", (0, 1))) for e in exprs], target)
    parts = [np.full((made.blocks, shape[1]), np.nan, np.float32) for _ in made.partials]
    arrays = [x, g, mean, weight]
    if made.blocks == 1:
        run_kernel(made.kernels[0], [*arrays, *outs], target)
    else:
        run_kernel(made.kernels[0], [*arrays, *parts], target, cuts=(1,))
        run_kernel(made.kernels[1], [*arrays, *parts, *outs], target)
    wide = g.astype(np.float64)
    centred = x - mean.astype(np.float64)
    want = [(wide * centred).sum(0) * weight[0], x.max(0, initial=-np.inf), np.where(x > 0, wide, 0).sum(0)]
    for got, w in zip(outs, want, strict=True):
        assert np.allclose(got, w, rtol=2e-5, atol=2e-4)


@every_width
@pytest.mark.parametrize("shape", [(1, 7), (9, 16), (100, 300), (3, 40, 33)])
def test_a_row_kernel_adds_up_columns_beside_its_rows(shape: tuple[int, ...], target: Target) -> None:
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(2, *shape)).astype(np.float32)
    n = shape[-1]
    a, b = loads([x, g])
    h, _ = row_gradients.standardized(a, n, 1e-5)
    blocks = blocks_of(shape)
    y, parts = np.empty_like(x), [np.full((blocks, n), np.nan, np.float32) for _ in range(2)]
    kernel = row_kernel("k", shape, [view(x), view(g)], [(h, view(y))], target, sums=[b * h, b])
    assert kernel.grid == blocks
    run_kernel(kernel, [x, g, y, *parts], target, cuts=(blocks // 2,))
    wide = x.astype(np.float64)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    axes = tuple(range(len(shape) - 1))
    assert np.allclose(y, want, atol=1e-4)
    assert np.allclose(parts[0].sum(0), (g * want).sum(axes), atol=1e-3)
    assert np.allclose(parts[1].sum(0), g.astype(np.float64).sum(axes), atol=1e-3)


def test_a_result_that_varies_along_the_row_needs_a_place_for_each_element() -> None:
    with pytest.raises(TypeError, match="has a last stride"):
        row_kernel(
            "k", (2, 8), [BufferView("float32", (8, 1))], [(load(0, "float32"), BufferView("float32", (1, 0)))], Target.host()
        )
