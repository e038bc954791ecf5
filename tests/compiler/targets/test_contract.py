"""Generated products of matrices against NumPy in float64: every layout, dtype, width of vectors and variant."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from contractions import Compiled

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm import host
from firebrick.compiler.targets.llvm.contract import Epilogue, MatrixLayout, choose, contraction, conv, matmul
from firebrick.compiler.targets.llvm.contract import product as product_of
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import UnsupportedError
from firebrick.core.views import Digit
from firebrick.scalar import math
from firebrick.scalar.expr import Expr, const, load, maximum, select
from firebrick.scalar.interpret import evaluate

TOLERANCE = 16  # that of matmul in the op table, in eps of Σ|a||b|
DTYPES = {
    "float32": np.dtype(np.float32), "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip


def host_target(width: int) -> Target:
    try:
        return Target.host(width)
    except UnsupportedError:
        pytest.skip(f"no vectors of {width} bits here")


@pytest.fixture(params=[512, 256, 128])
def target(request: pytest.FixtureRequest) -> Target:
    return host_target(request.param)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, how: str) -> np.ndarray:
    """Values in [-1, 1) in rows, transposed, every second column, or columns backwards."""
    if how == "t":
        return rng.uniform(-1, 1, (*shape[:-2], shape[-1], shape[-2])).astype(DTYPES[dtype]).swapaxes(-1, -2)
    if how == "s":
        return rng.uniform(-1, 1, (*shape[:-1], 2 * shape[-1])).astype(DTYPES[dtype])[..., ::2]
    if how == "r":
        return rng.uniform(-1, 1, shape).astype(DTYPES[dtype])[..., ::-1]
    return rng.uniform(-1, 1, shape).astype(DTYPES[dtype])


def strides(x: np.ndarray) -> list[int]:
    return [s // x.itemsize for s in x.strides]


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray, done=lambda x: x) -> None:
    """The result is within the table's tolerance, and NaN nowhere."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    eps = float(ml_dtypes.finfo(c.dtype).eps)
    scale = np.abs(wide_a) @ np.abs(wide_b)
    error = np.abs(c.astype(np.float64) - done(wide_a @ wide_b))
    assert (error <= TOLERANCE * eps * np.maximum(scale, 1.0)).all(), float(np.nanmax(error / np.maximum(scale, 1.0)) / eps)


def run(m, k, n, dtype, target, form="nn", seed=0, **changes) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a, b = drawn(rng, (m, k), dtype, form[0]), drawn(rng, (k, n), dtype, form[1])
    c = np.full((m, n), np.nan, DTYPES[dtype])
    p = matmul(a.shape, b.shape, dtype, strides(a), strides(b))
    v = replace(choose(p, target), **changes)
    Compiled(contraction(p, target, "product", variant=v), target)(a, b, c)
    check(c, a, b)
    return c


SHAPES = [
    (1, 1, 1), (5, 7, 3), (13, 17, 31), (14, 64, 32), (1, 100, 257), (257, 100, 1), (3, 5, 130), (61, 67, 71), (40, 700, 50),
]  # fmt: skip


def test_the_check_of_these_tests_finds_a_wrong_row_and_a_missing_one() -> None:
    rng = np.random.default_rng(0)
    a, b = drawn(rng, (8, 50), "float32", "n"), drawn(rng, (50, 9), "float32", "n")
    for wrong in (1e-3, np.nan):
        c = a @ b
        check(c, a, b)
        c[7, 8] += wrong
        with pytest.raises(AssertionError):
            check(c, a, b)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_of_any_shape_is_within_the_tables_tolerance(shape, dtype, target) -> None:
    run(*shape, dtype, target)


@pytest.mark.parametrize("form", ["".join(f) for f in product("ntsr", repeat=2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operands_may_lie_in_any_way(form, dtype, target) -> None:
    run(30, 45, 70, dtype, target, form)


@pytest.mark.parametrize("form", ["nn", "tt", "ns"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_float32_and_rounded_once(form, dtype, target) -> None:
    run(30, 800, 50, dtype, target, form)


def test_bfloat16_rounds_to_even_and_keeps_nan() -> None:
    target = host_target(0)
    bf = ml_dtypes.bfloat16
    a = np.array([[1.0, 1.0]], bf)
    b = np.array([[1.0, 1.0, np.nan, np.inf, 3e38], [2**-8, 3 * 2**-8, 0.0, 1.0, 3e38]]).astype(bf)
    c = np.zeros((1, 5), bf)
    Compiled(contraction(matmul((1, 2), (2, 5), "bfloat16"), target, "product"), target)(a, b, c)
    with np.errstate(all="ignore"):
        want = (a.astype(np.float32) @ b.astype(np.float32)).astype(bf)
    assert c.tobytes()[:4] == want.tobytes()[:4]
    assert np.isnan(c[0, 2].astype(np.float32))
    assert np.isinf(c[0, 3:].astype(np.float32)).all()


BATCHES = [((3, 5, 7), (3, 7, 4)), ((3, 1, 5, 7), (2, 7, 4)), ((5, 7), (6, 7, 4)), ((1, 5, 7), (4, 7, 3))]


@pytest.mark.parametrize("shapes", BATCHES, ids=str)
@pytest.mark.parametrize("how", ["direct", "unit", "phase"])
def test_leading_axes_broadcast(shapes, how) -> None:
    target, rng = host_target(0), np.random.default_rng(1)
    a, b = (drawn(rng, s, "float32", "n") for s in shapes)
    c = np.full(np.matmul(a, b).shape, np.nan, np.float32)
    p = matmul(a.shape, b.shape, "float32")
    v = replace(choose(p, target), a=how, b=how)
    Compiled(contraction(p, target, "product", variant=v), target)(a, b, c)
    check(c, a, b)


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_a_product_without_elements_has_no_kernels(shape) -> None:
    m, k, n = shape
    assert contraction(matmul((m, k), (k, n), "float32"), host_target(0), "product").kernels == ()


def test_an_empty_sum_is_zero(target) -> None:
    c = run(33, 0, 70, "float32", target)
    assert (c == 0).all()


@pytest.mark.parametrize("changes", [
    {"a": x, "b": y, "staged": s, "splits": n}
    for x in ("direct", "unit", "phase") for y in ("direct", "unit", "phase") for s in (False, True) for n in (1, 3)
], ids=str)  # fmt: skip
def test_every_variant_computes_the_same_product(changes) -> None:
    target = host_target(0)
    run(45, 500, 75, "float32", target, mr=7, nr=32, mc=21, nc=64, kc=64, **changes)


def test_results_may_lie_transposed_or_in_a_larger_array(target) -> None:
    rng = np.random.default_rng(2)
    a, b = drawn(rng, (20, 30), "float32", "n"), drawn(rng, (30, 37), "float32", "n")
    for whole in (np.full((37, 20), 7.0, np.float32), np.full((37, 26), 7.0, np.float32)):
        c = whole.T[:20]
        p = matmul(a.shape, b.shape, "float32", None, None, strides(c))
        Compiled(contraction(p, target, "product"), target)(a, b, c)
        check(c, a, b)
        assert (whole[:, 20:] == 7.0).all()


def test_nothing_beside_the_result_is_written(target) -> None:
    whole = np.full((25, 90), 7.0, np.float32)
    rng = np.random.default_rng(2)
    a, b = drawn(rng, (20, 30), "float32", "n"), drawn(rng, (30, 37), "float32", "n")
    c = whole[2:22, 5:42]
    Compiled(contraction(matmul(a.shape, b.shape, "float32", None, None, strides(c)), target, "product"), target)(a, b, c)
    check(c, a, b)
    c[...] = 7.0
    assert (whole == 7.0).all()


@pytest.mark.parametrize("shape", [(70, 900, 300), (200, 64, 500), (16, 4000, 25)], ids=str)
def test_any_cut_of_the_grids_gives_the_same_bits(shape) -> None:
    target, (m, k, n) = host_target(0), shape
    rng = np.random.default_rng(3)
    a, b = drawn(rng, (m, k), "float32", "t"), drawn(rng, (k, n), "float32", "n")
    p = matmul(a.shape, b.shape, "float32", strides(a), strides(b))
    for v in (choose(p, target), replace(choose(p, target), a="phase", b="phase", splits=3, kc=64)):
        made = Compiled(contraction(p, target, "product", variant=v), target)
        found = set()
        for cuts in (0, 1, 3, 20):
            c = np.full((m, n), np.nan, np.float32)
            made(a, b, c, cuts=cuts, seed=cuts)
            found.add(c.tobytes())
        assert len(found) == 1


def test_nan_and_infinity_stay_in_their_rows_and_columns(target) -> None:
    a, b = np.ones((20, 33), np.float32), np.ones((33, 40), np.float32)
    a[3, 5], b[7, 39] = np.nan, np.inf
    c = np.zeros((20, 40), np.float32)
    Compiled(contraction(matmul(a.shape, b.shape, "float32"), target, "product"), target)(a, b, c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a @ b)


# ---- epilogues
def rows_and_columns(m: int, n: int, row: int, column: int, dtype: str = "float32") -> MatrixLayout:
    return MatrixLayout(dtype, (Digit(m, row),), (Digit(n, column),))


X, Y = product_of("float32"), load(1, "float32")


def relu(e: Expr) -> Expr:
    return maximum(e, const(0.0, "float32"))


@pytest.mark.parametrize("changes", [{}, {"staged": True}, {"splits": 2}, {"kc": 32}], ids=str)
@pytest.mark.parametrize("which", ["column", "row", "residual", "transposed"])
def test_bias_residual_and_relu_are_applied_once_to_the_whole_sum(which, changes, target) -> None:
    m, k, n = 29, 130, 53
    rng = np.random.default_rng(4)
    a, b = drawn(rng, (m, k), "float32", "n"), drawn(rng, (k, n), "float32", "n")
    x, where, wide = {
        "column": (drawn(rng, (1, n), "float32", "n"), rows_and_columns(m, n, 0, 1), lambda v: v),
        "row": (drawn(rng, (1, m), "float32", "n"), rows_and_columns(m, n, 1, 0), lambda v: v.T),
        "residual": (drawn(rng, (m, n), "float32", "n"), rows_and_columns(m, n, n, 1), lambda v: v),
        "transposed": (drawn(rng, (n, m), "float32", "n"), rows_and_columns(m, n, 1, m), lambda v: v.T),
    }[which]
    p = matmul(a.shape, b.shape, "float32")
    v = replace(choose(p, target), **changes)
    c = np.full((m, n), np.nan, np.float32)
    Compiled(contraction(p, target, "product", Epilogue((where,), ((relu(X + Y), p.c),)), v), target)(a, b, x, c)
    check(c, a, b, lambda s: np.maximum(s + wide(x).astype(np.float64), 0))
    assert (c == 0).any()
    assert (c > 0).any()


@pytest.mark.parametrize("changes", [{}, {"staged": True}, {"splits": 2}, {"kc": 32}], ids=str)
def test_several_results_of_any_dtype_are_stored_at_once(changes, target) -> None:
    m, k, n = 29, 130, 53
    rng = np.random.default_rng(4)
    a, b = drawn(rng, (m, k), "float32", "n"), drawn(rng, (k, n), "float32", "n")
    x, keep = drawn(rng, (n,), "float32", "n"), rng.random((m, n)) < 0.5
    p = matmul(a.shape, b.shape, "float32")
    h = X + Y
    results = (
        (relu(h), p.c),
        (h > 0.0, rows_and_columns(m, n, n, 1, "bool")),
        (select(load(2, "bool"), h, const(0.0, "float32")), rows_and_columns(m, n, 1, m, "float16")),
        (X, rows_and_columns(m, n, n + 3, 1)),
    )
    epilogue = Epilogue((rows_and_columns(m, n, 0, 1), rows_and_columns(m, n, n, 1, "bool")), results)
    c, mask = np.full((m, n), np.nan, np.float32), np.zeros((m, n), bool)
    narrow, beside = np.full((n, m), np.nan, np.float16), np.full((m, n + 3), 7.0, np.float32)
    made = contraction(p, target, "product", epilogue, replace(choose(p, target), **changes))
    Compiled(made, target)(a, b, x, keep, c, mask, narrow, beside)
    check(beside[:, :n], a, b)
    assert (beside[:, n:] == 7.0).all()
    whole = beside[:, :n] + x
    np.testing.assert_array_equal(c, np.maximum(whole, 0))
    np.testing.assert_array_equal(mask, whole > 0)
    np.testing.assert_array_equal(narrow.T, np.where(keep, whole, 0).astype(np.float16))


@pytest.mark.parametrize("changes", [{}, {"splits": 2}, {"kc": 32}], ids=str)
@pytest.mark.parametrize("inner", [1, 7, 16, 20])
def test_views_may_split_rows_and_columns_in_ways_of_their_own(inner, changes, target) -> None:
    m, k, n = 24, 100, 7 * inner * 2
    rng = np.random.default_rng(4)
    a, b = drawn(rng, (m, k), "float32", "n"), drawn(rng, (k, n), "float32", "n")
    x = drawn(rng, (8, 14), "float32", "n")  # repeated along three groups of rows, and along the inner columns
    p = matmul(a.shape, b.shape, "float32")
    at = MatrixLayout("float32", (Digit(3, 0), Digit(8, 14)), (Digit(14, 1), Digit(inner, 0)))
    # the result is [14, 24, inner]
    to = MatrixLayout("float32", (Digit(m, inner),), (Digit(14, m * inner), Digit(inner, 1)))
    c = np.full((14, m, inner), np.nan, np.float32)
    v = replace(choose(p, target), **changes)
    Compiled(contraction(p, target, "product", Epilogue((at,), ((X + Y, to),)), v), target)(a, b, x, c)
    wide = np.broadcast_to(x[None, :, :, None], (3, 8, 14, inner)).reshape(m, n)
    check(c.transpose(1, 0, 2).reshape(m, n), a, b, lambda s: s + wide)


def test_heavy_epilogues_are_written_once_and_light_ones_for_each_register() -> None:
    target = host_target(0)
    p = matmul((56, 64), (64, 64), "float32")
    heavy = math.gelu(X)
    assert Epilogue((), ((relu(X), p.c),)).light
    assert not Epilogue((), ((heavy, p.c),)).light
    rng = np.random.default_rng(0)
    a, b = drawn(rng, (56, 64), "float32", "n"), drawn(rng, (64, 64), "float32", "n")
    plain, c = np.zeros((56, 64), np.float32), np.zeros((56, 64), np.float32)
    Compiled(contraction(p, target, "product"), target)(a, b, plain)
    Compiled(contraction(p, target, "product", Epilogue((), ((heavy, p.c),))), target)(a, b, c)
    (want,) = evaluate([heavy], [plain])
    np.testing.assert_allclose(c, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"staged": True}, {"splits": 2}, {"kc": 32}, {"kc": 400}], ids=str)
def test_a_residual_may_be_the_result_itself_where_the_contraction_says_so(changes) -> None:
    target, rng = host_target(0), np.random.default_rng(6)
    a, b = drawn(rng, (29, 400), "float32", "n"), drawn(rng, (400, 53), "float32", "n")
    before = drawn(rng, (29, 53), "float32", "n")
    p = matmul(a.shape, b.shape, "float32")
    epilogue = Epilogue((rows_and_columns(29, 53, 53, 1),), ((X + Y, p.c),))
    made = contraction(p, target, "product", epilogue, replace(choose(p, target), **changes))
    one_block = replace(choose(p, target), **changes).kc >= 400  # else what is there already is added to
    assert made.in_place == (one_block or bool(changes.keys() & {"staged", "splits"}))
    c = before.copy()
    if made.in_place:
        Compiled(made, target)(a, b, c, c)
        check(c, a, b, lambda s: s + before)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("n", [37, 1, 40])
def test_few_rows_take_epilogues_and_batches(m, n, target) -> None:
    rng = np.random.default_rng(9)
    a, b = drawn(rng, (2, m, 100), "float32", "n"), drawn(rng, (2, 100, n), "float32", "t")
    x = drawn(rng, (1, n), "float32", "n")
    where = MatrixLayout("float32", (Digit(m, 0),), (Digit(n, 1),), (0,))
    p = matmul(a.shape, b.shape, "float32", strides(a), strides(b))
    assert choose(p, target).dots
    c = np.full((2, m, n), np.nan, np.float32)
    Compiled(contraction(p, target, "product", Epilogue((where,), ((X + Y, p.c),))), target)(a, b, x, c)
    check(c, a, b, lambda s: s + x)
    if n == 1:
        return
    q = matmul((2, n, 100), (2, 100, m), "float32", strides(b.swapaxes(1, 2)), strides(a.swapaxes(1, 2)))
    d = np.full((2, n, m), np.nan, np.float32)
    by_row = MatrixLayout("float32", (Digit(n, 1),), (Digit(m, 0),), (0,))
    made = contraction(q, target, "product", Epilogue((by_row,), ((X + Y, q.c),)))
    assert made.variant.dots
    Compiled(made, target)(b.swapaxes(1, 2), a.swapaxes(1, 2), x, d)
    np.testing.assert_array_equal(d, c.swapaxes(1, 2))


def test_a_bias_of_channels_is_added_to_a_convolution() -> None:
    target, rng = host_target(0), np.random.default_rng(5)
    g = Convolution("float32", (2, 3, 9, 7), (5, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    x, w, b = (rng.uniform(-1, 1, s).astype(np.float32) for s in (g.image, g.weight, (5,)))
    plain, biased = np.zeros(g.result, np.float32), np.zeros(g.result, np.float32)
    p = conv(g)
    Compiled(contraction(p, target, "conv"), target)(w, x, plain)
    epilogue = Epilogue((MatrixLayout("float32", (Digit(5, 1),), (Digit(2 * 63, 0),), (5,)),), ((X + Y, p.c),))
    Compiled(contraction(p, target, "conv", epilogue), target)(w, x, b, biased)
    np.testing.assert_array_equal(biased, plain + b[:, None, None])


# ---- other machines
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_code_for_neon_uses_its_fused_multiply_add(dtype) -> None:
    target = Target.named("aarch64")
    text = host.emit_assembly(contraction(matmul((60, 70), (70, 80), dtype), target, "product").module, target)
    assert "fmla" in text
    assert "bl\tfma" not in text


def test_code_for_the_widest_vectors_keeps_its_tile_in_registers() -> None:
    target = Target.named("x86_64", 512)
    text = host.emit_assembly(contraction(matmul((140, 256), (256, 320), "float32"), target, "product").module, target)
    inner = [block for block in text.split("\n.L") if block.count("vfmadd") >= 28]
    assert inner
    assert not any("rsp" in line and "zmm" in line for block in inner for line in block.splitlines() if "vfmadd" in line)
