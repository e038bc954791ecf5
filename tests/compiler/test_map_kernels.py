"""Map kernels: layouts, tails, several results, storage dtypes and grids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forced import kernels_of_any_size
from native_kernels import Array, run_kernel, run_map, run_units, view, widths

import firebrick as fb
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.targets.llvm.host import emit_assembly
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import STREAM, UNIT, module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar import computed, evaluate, math, periodic
from firebrick.scalar.expr import (
    binary,
    bounded,
    cast,
    const,
    gather,
    index,
    load,
    maximum,
    minimum,
    position,
    rarely,
    select,
)  # fmt: skip
from firebrick.scalar.storage import decode, encode

every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))


def layouts(dtype: Any) -> dict[str, Array]:
    """Arrays of shape [37, 129] that lie differently in memory."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Array:
        return (rng.normal(size=shape) * 9).astype(dtype)

    return {
        "contiguous": draw(37, 129),
        "transposed": draw(129, 37).T,
        "reversed": draw(37, 129)[::-1, ::-1],
        "strided": draw(74, 387)[::2, 1::3],
        "row": np.broadcast_to(draw(129), (37, 129)),
        "column": np.broadcast_to(draw(37, 1), (37, 129)),
        "scalar": np.broadcast_to(draw(1, 1), (37, 129)),
    }


@every_width
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16, "int64", "int16", "uint8"])
def test_operands_of_every_layout_are_read_where_they_lie(dtype: Any, target: Target) -> None:
    name = np.dtype(dtype).name
    for label, x in layouts(dtype).items():
        for other, y in layouts(dtype).items():
            if "contiguous" not in (label, other) and label != other:
                continue
            a, b = (load(i, computed(name)) for i in (0, 1))
            got = run_map(a + b * 2, [x, y], (37, 129), dtype, target)
            with np.errstate(over="ignore"):
                want = (x.astype(computed(name)) + y.astype(computed(name)) * np.asarray(2, computed(name))).astype(dtype)
            assert np.array_equal(got, want), (label, other)


@every_width
@pytest.mark.parametrize("layout", ["transposed", "reversed", "strided"])
def test_results_are_written_where_they_belong_and_nowhere_else(layout: str, target: Target) -> None:
    x = np.random.default_rng(1).normal(size=(37, 129)).astype(np.float32)
    out = layouts(np.float32)[layout]
    whole: Any = out
    while whole.base is not None:
        whole = whole.base
    whole[...] = 7
    e = load(0, "float32") * 3.0
    run_kernel(map_kernel("k", x.shape, [view(x)], [(e, view(out))], target), [x, out], target)
    assert np.array_equal(out, x * np.float32(3))
    assert np.count_nonzero(whole == 7) == whole.size - out.size


@every_width
@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 63, 64, 65, UNIT, UNIT + 1, 3 * UNIT + 5])
def test_tails_leave_what_lies_behind_alone(size: int, target: Target) -> None:
    x = np.arange(size + 64, dtype=np.float32)
    out = np.full(size + 64, -1, np.float32)
    k = map_kernel("k", (size,), [view(x[:size])], [(load(0, "float32") + 1.0, view(out[:size]))], target)
    run_kernel(k, [x[:size], out[:size]], target)
    assert np.array_equal(out[:size], x[:size] + 1)
    assert (out[size:] == -1).all()


def test_several_results_of_unlike_dtypes_come_from_one_kernel() -> None:
    target = Target.host()
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 5, 77)).astype(np.float32)
    a, b = load(0, "float32"), load(1, "float32")
    e = [a * b, (a < b), cast(a * 10.0, "int8"), cast(maximum(a, b), "float64")]
    outs = [np.empty((5, 77), d) for d in ("float16", "bool", "int8", "float64")]
    k = map_kernel("k", (5, 77), [view(x), view(y)], [(v, view(o)) for v, o in zip(e, outs, strict=True)], target)
    run_kernel(k, [x, y, *outs], target)
    for got, want in zip(outs, evaluate(e, [x, y]), strict=True):
        assert np.array_equal(got, want.astype(got.dtype))


@every_width
@pytest.mark.parametrize("to", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_outside_of_an_integers_range_become_its_ends_and_nan_0(dtype: str, to: str, target: Target) -> None:
    bounds = [2.0**n for n in (31, 32, 63, 64)]
    edges = [0.0, 0.5, 1.5, *bounds, *(np.nextafter(np.array(bounds, dtype), np.zeros((), dtype))), np.inf, np.nan]
    x = np.array([*edges, *(-np.array(edges))], dtype)
    drawn = np.random.default_rng(8)
    x = np.concatenate([x, (drawn.normal(size=500) * 10.0 ** drawn.integers(-2, 22, 500)).astype(dtype)])
    found = run_map(cast(load(0, dtype), to), [x], x.shape, to, target)
    least, most = np.iinfo(to).min, np.iinfo(to).max
    assert found.tolist() == [
        0 if v != v else max(least, min(most, int(v) if abs(v) < 2.0**70 else int(np.sign(v)) << 70)) for v in x
    ]


@every_width
def test_a_result_may_lie_over_its_operand(target: Target) -> None:
    x = np.random.default_rng(4).normal(size=(3, 1000)).astype(np.float32)
    want = x * 2 + 1
    run_kernel(map_kernel("k", x.shape, [view(x)], [(load(0, "float32") * 2.0 + 1.0, view(x))], target), [x, x], target)
    assert np.array_equal(x, want)


def test_any_cut_of_the_grid_gives_the_same_bits() -> None:
    target = Target.host()
    x = np.random.default_rng(5).normal(size=(301, 333)).astype(np.float32)
    e = math.tanh(load(0, "float32"))
    outs = [np.zeros_like(x) for _ in range(3)]
    k = map_kernel("k", x.shape, [view(x)], [(e, view(outs[0]))], target)
    assert k.grid > 8
    for out, cuts in zip(outs, [(), (1, 2, 5), (k.grid - 1,)], strict=True):
        run_kernel(k, [x, out], target, cuts)
    assert np.array_equal(outs[0], outs[1])
    assert np.array_equal(outs[0], outs[2])


@every_width
def test_indices_are_those_of_the_shape_whatever_the_order_of_axes(target: Target) -> None:
    shape = (3, 5, 40)
    out = np.empty((40, 5, 3), np.int64).T
    e = index(0) * 10000 + index(1) * 100 + index(2)
    run_kernel(map_kernel("k", shape, [], [(e, view(out))], target), [out], target)
    i, j, k = np.indices(shape)
    assert np.array_equal(out, i * 10000 + j * 100 + k)


def test_index_arithmetic_is_64_bit() -> None:
    # 2^40 elements are described, the last few alone are computed: on memory whose strides are 0
    target = Target.host()
    n = 1 << 40
    out = np.zeros(1, np.int64)
    k = map_kernel("k", (n,), [], [(index(0), BufferView("int64", (0,)))], target, stream=False)
    assert k.grid == n
    run_units(k, [out], target, k.grid - 1000, k.grid)
    assert n - 64 <= out[0] < n


def test_contiguous_elements_of_any_number_have_one_code() -> None:
    target = Target.host()
    e = load(0, "float32") * load(1, "float32") + load(2, "float32")
    made = set()
    for shape in ((7,), (300, 4), (5, 6, 9000)):
        rows = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        views = [BufferView("float32", rows), BufferView("float32", (0,) * len(shape)), BufferView("float32", rows)]
        made.add(map_kernel("k", shape, views, [(e, BufferView("float32", rows))], target).text)
    assert len(made) == 1


@every_width
def test_half_precision_is_rounded_to_nearest_even(target: Target) -> None:
    bits = np.concatenate([np.arange(0, 2**32, 65537 * 7, dtype=np.uint64), np.arange(0x33000000, 0x33000200)])
    ties = np.arange(0x3F800000, 0x3F830000, 0x800)  # halfway between neighbours of both dtypes, and next to it
    bits = np.concatenate([bits, ties, ties + 1, ties - 1]).astype(np.uint32)
    x = np.concatenate(
        [bits.view(np.float32), np.float32([65519.99, 65520, 65504, 5.9e-8, 2.9e-8, np.inf, -np.inf, np.nan, -0.0])]
    )
    for dtype in (np.float16, ml_dtypes.bfloat16):
        got = run_map(load(0, "float32"), [x], x.shape, dtype, target)
        with np.errstate(all="ignore"):
            want = x.astype(dtype)
        name = np.dtype(dtype).name
        portable = evaluate([encode(load(0, "float32"), name)], [x])[0].view(dtype)
        for result in (got, portable):
            nan = np.isnan(want)
            assert np.array_equal(np.isnan(result), nan)
            assert np.array_equal(result.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


@every_width
def test_every_half_precision_number_is_read_exactly(target: Target) -> None:
    bits = np.arange(2**16).astype(np.uint16)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = bits.view(dtype)
        want = x.astype(np.float32)
        assert np.array_equal(run_map(load(0, "float32"), [x], x.shape, np.float32, target), want, equal_nan=True)
        portable = evaluate([decode(load(0, "uint16"), np.dtype(dtype).name)], [bits])[0]
        assert np.array_equal(portable, want, equal_nan=True)


@every_width
def test_integer_edges(target: Target) -> None:
    for dtype in ("int8", "int32", "int64", "uint8", "uint32", "uint64"):
        info = np.iinfo(dtype)
        s = np.array([info.min, info.max, 0, 1, 2, 7, info.max - 1] + ([-1, -7] if info.min else [31, 64]), dtype)
        a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(s, s))
        x, y = load(0, dtype), load(1, dtype)
        for op in ("div", "rem", "shl", "shr"):
            e = binary(op, x, y)
            assert np.array_equal(run_map(e, [a, b], a.shape, dtype, target), evaluate([e], [a, b])[0]), (op, dtype)
        assert (run_map(binary("div", x, y), [a, b], a.shape, dtype, target)[b == 0] == 0).all()


@every_width
@pytest.mark.parametrize("rare", [[], [3], [3, 40], list(range(70))])
def test_a_rare_branch_mends_only_its_lanes(rare: list[int], target: Target) -> None:
    x = np.linspace(0.1, 0.9, 70).astype(np.float32)
    x[rare] += 10
    a = load(0, "float32")
    e = rarely(a > 5.0, math.log(a), math.exp(a)) + a
    want = evaluate([select(a > 5.0, math.log(a), math.exp(a)) + a], [x])[0]
    assert np.array_equal(run_map(e, [x], x.shape, np.float32, target), want)


@every_width
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slow_operands_that_occur_often_are_calls_of_one_function(dtype: str, target: Target) -> None:
    x = np.linspace(-9.0, 9.0, 70).astype(dtype)
    x[[3, 40, 68]] = 1e6, -3e30, np.inf
    e = load(0, dtype)
    for k in range(8):
        e = periodic.sin(load(0, dtype) * (k + 1.0)) + e * 0.5
    k = map_kernel("k", x.shape, [view(x)], [(e, view(x))], target)
    text = module_text([k])
    assert text.count("define internal") == 1
    assert text.count(" cold nounwind") > 0
    few = map_kernel("k", x.shape, [view(x)], [(periodic.sin(load(0, dtype)), view(x))], target)
    assert "define internal" not in module_text([few])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(run_map(e, [x], x.shape, dtype, target), evaluate([e], [x])[0], equal_nan=True)


def test_functions_of_slow_operands_are_generated_for_other_architectures() -> None:
    target = Target.named("aarch64")
    e = load(0, "float64")
    for _ in range(8):
        e = periodic.sin(e * 1.5)
    k = map_kernel("k", (1000,), [BufferView("float64", (1,))], [(e, BufferView("float64", (1,)))], target)
    assert "bl\tfirebrick_slow" in emit_assembly(module_text([k]), target)


@pytest.mark.parametrize("shift", [0, 1])
def test_large_results_are_written_past_the_caches_only_where_they_are_aligned(shift: int) -> None:
    target = Target.host()
    n = STREAM // 4
    x = np.arange(n, dtype=np.float32)
    memory = np.zeros(n + 32, np.float32)
    start = (-memory.ctypes.data % 64) // 4 + shift
    out = memory[start : start + n]
    k = map_kernel("k", (n,), [view(x)], [(load(0, "float32") + 1.0, view(out))], target)
    run_kernel(k, [x, out], target)
    assert np.array_equal(out, x + 1)
    assert "nontemporal" in k.text


def test_vectors_of_other_architectures_are_generated() -> None:
    target = Target.named("aarch64")
    e = math.gelu(load(0, "float32")) * const(2.0, "float32")
    k = map_kernel("k", (1000,), [BufferView("float16", (1,))], [(e, BufferView("bfloat16", (1,)))], target)
    text = emit_assembly(module_text([k]), target)
    assert "fmla" in text
    assert ".4s" in text


def test_a_result_of_another_dtype_than_its_storage_is_refused() -> None:
    with pytest.raises(TypeError, match="stored as int8 is computed as int8"):
        map_kernel("k", (4,), [BufferView("float32", (1,))], [(load(0, "float32"), BufferView("int8", (1,)))], Target.host())


@every_width
@pytest.mark.parametrize("wrong", [None, 9, -10, 2**40])
def test_gathered_rows_and_indices_out_of_range(wrong: int | None, target: Target) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(9, 21)).astype(np.float16)
    at = rng.integers(-9, 9, 50)
    if wrong is not None:
        at[33] = wrong
    out = np.empty((50, 21), np.float32)
    row = bounded(load(1, "int64"), 9, 7)
    e = gather(0, "float32", row * 21 + index(1))
    views = [BufferView("float16", (0, 0)), BufferView("int64", (1, 0))]
    k = map_kernel("k", out.shape, views, [(e, view(out))], target)
    fault = run_units(k, [x, at, out], target, 0, k.grid)
    assert fault == (None if wrong is None else Fault(7, wrong))
    keep = np.arange(50) != (-1 if wrong is None else 33)
    assert np.array_equal(out[keep], x[at[keep]].astype(np.float32))
    if wrong is not None:  # clamped
        assert np.array_equal(out[33], x[0 if wrong < 0 else 8].astype(np.float32))


def test_half_precision_is_rounded_where_it_is_cast_to_a_wider_dtype() -> None:
    # overflow and rounding of float16 were lost: 90000 for inf
    x = fb.asarray([1 / 3, 300.123, 2.7])

    def f(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor, fb.Tensor]:
        h = fb.astype(x, fb.float16) * 300.0
        wide = fb.astype(h, fb.float32)
        return h, wide, fb.isfinite(wide)

    with kernels_of_any_size():
        half, wide, finite = fb.jit(f)(x)
    assert wide.tolist() == [100.0, float("inf"), 810.0] == fb.astype(half, fb.float32).tolist()
    assert finite.tolist() == [True, False, True]


def test_signs_of_zero_are_those_of_eager_operations() -> None:
    x = fb.asarray([-2387.0, -0.0, 0.0, -1.0, 3.0] * 20)
    y = fb.asarray([float("inf"), float("inf"), -2.0, 5.0, float("inf")] * 20)
    for f in (fb.gelu, fb.relu, lambda x: fb.floor_divide(x, y), lambda x: fb.remainder(x, y)):
        want, got = f(x).numpy(), fb.jit(f)(x).numpy()
        with kernels_of_any_size():
            compiled = fb.jit(lambda x: f(x))(x).numpy()  # noqa: B023
        assert np.array_equal(np.signbit(got), np.signbit(want))
        assert np.array_equal(np.signbit(compiled), np.signbit(want))


@every_width
@pytest.mark.parametrize("compared", ["gt", "lt"])
@pytest.mark.parametrize(("stored", "result"), [("float16", "float32"), ("float32", "float64"), ("float64", "float32")])
def test_a_negative_zero_passes_choices_on_the_number_before_its_cast(
    stored: str, result: str, compared: str, target: Target
) -> None:
    x = np.tile(np.array([-0.0, 0.0, 1.0, -1.0, np.nan, np.inf], stored), 23)
    before = load(0, computed(stored))
    number, zero = cast(before, result), const(0.0, result)
    chosen = binary(compared, before, const(0.0, computed(stored)))
    for e in (select(chosen, zero, number), select(chosen, number, select(chosen, zero, number))):
        got = run_map(e, [x], x.shape, result, target)
        want = evaluate([e], [x.astype(computed(stored))])[0]
        assert np.array_equal(got, want, equal_nan=True)
        assert np.array_equal(np.signbit(got), np.signbit(want))


@every_width
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_choices_by_comparisons_of_choices_are_no_minima_and_maxima_of_their_own(dtype: str, target: Target) -> None:
    values = np.array([np.nan, -np.inf, -1.0, -0.0, 0.0, 0.5, 2.0, np.inf], dtype)
    x = np.tile(values, 5)
    e, k = load(0, dtype), const(0.0, dtype)
    inner = [
        maximum(e, 0.0),
        minimum(e, 0.0),
        minimum(maximum(e, 0.0), 2.0),
        select(e > 0.0, e, k),
        select(binary("lt", k, e), k, e),
    ]
    wrong = []
    for n, m in enumerate(inner):
        for compared in ("lt", "gt"):
            for bound in (0.0, 2.0):
                b = const(bound, dtype)
                for first, second in ((m, b), (b, m)):
                    outer = select(binary(compared, m, b), first, second)
                    got, want = run_map(outer, [x], x.shape, dtype, target), evaluate([outer], [x])[0]
                    if not np.array_equal(got, want, equal_nan=True):  # of two zeros a maximum may be either
                        wrong.append((n, compared, bound, (first is m, second is m)))
    assert not wrong


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (4, 1, 6)])
def test_a_processor_without_vectors_computes_elements_one_by_one(shape: tuple[int, ...]) -> None:
    target = replace(Target.host(128), width_bits=64)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape), rng.normal(size=shape[-1:])
    out = np.full(shape, np.nan)
    strides = tuple(s // 8 for s in np.zeros(shape).strides)
    e = load(0, "float64") * 2.0 + load(1, "float64") * cast(position(strides), "float64")
    kernel = map_kernel("kernel", shape, [view(x, shape), view(y, shape)], [(e, view(out))], target)
    run_kernel(kernel, [x, y, out], target)
    np.testing.assert_array_equal(out, x * 2 + y * np.arange(x.size).reshape(shape))
