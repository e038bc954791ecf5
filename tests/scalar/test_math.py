"""Accuracy of the scalar IR's mathematics, compiled and interpreted, over all magnitudes and at special values."""

from __future__ import annotations

import math as cmath
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from native_kernels import run_map, widths

from firebrick.compiler.targets.llvm.target import Target
from firebrick.ops.table import OPS
from firebrick.scalar import evaluate, inverse, math, periodic, remainder
from firebrick.scalar.expr import Expr, load, walk
from firebrick.scalar.power import power
from firebrick.scalar.storage import STORAGE, computed

mpmath = pytest.importorskip("mpmath")
Array = np.ndarray[Any, Any]

# name → (expression, mpmath's function of a number, limit in units of the last place)
FUNCTIONS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Any], Any], float]] = {
    "exp": (math.exp, mpmath.exp, 1.0),
    "exp2": (math.exp2, lambda x: mpmath.mpf(2) ** x, 1.0),
    "expm1": (math.expm1, mpmath.expm1, 2.0),
    "log": (math.log, mpmath.log, 1.5),
    "log1p": (math.log1p, mpmath.log1p, 1.5),
    "log2": (math.log2, lambda x: mpmath.log(x, 2), 1.5),
    "log10": (math.log10, mpmath.log10, 1.5),
    "tanh": (math.tanh, mpmath.tanh, 1.5),
    "sinh": (math.sinh, mpmath.sinh, 2.0),
    "cosh": (math.cosh, mpmath.cosh, 1.5),
    "sigmoid": (math.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), 2.0),
    "erf": (math.erf, mpmath.erf, 1.5),
    "rsqrt": (math.rsqrt, lambda x: 1 / mpmath.sqrt(x), 1.5),
    "sin": (periodic.sin, mpmath.sin, 2.0),
    "cos": (periodic.cos, mpmath.cos, 2.0),
    "tan": (periodic.tan, mpmath.tan, 1.1),
    "asin": (inverse.asin, mpmath.asin, 1.2),
    "acos": (inverse.acos, mpmath.acos, 1.2),
    "atan": (inverse.atan, mpmath.atan, 1.4),
    "asinh": (inverse.asinh, mpmath.asinh, 1.4),
    "acosh": (inverse.acosh, mpmath.acosh, 1.3),
    "atanh": (inverse.atanh, mpmath.atanh, 1.1),
}
POSITIVE = {"log", "log2", "log10", "rsqrt"}
NUMPY = {name: "arc" + name[1:] for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}
DTYPES = ("float32", "float64")


def operands(name: str, dtype: str, count: int) -> Array:
    """Numbers of all magnitudes, and many where functions change."""
    rng = np.random.default_rng(17)
    word = np.uint32 if dtype == "float32" else np.uint64
    bits = rng.integers(0, np.iinfo(word).max, count, dtype=word).view(dtype)
    parts = [bits, rng.uniform(-90, 90, count), rng.uniform(-2, 2, count), rng.normal(size=count) * 1e-4]
    if dtype == "float64":
        parts.append(rng.uniform(-745, 710, count))
    x = np.concatenate([np.asarray(p, dtype) for p in parts])
    x = x[np.isfinite(x)]
    if name == "acosh":
        x = np.concatenate([np.abs(x[np.abs(x) > 1]), 1 + np.abs(rng.normal(size=count) * 1e-3).astype(dtype)])
        return x[x > 1]
    if name in ("asin", "acos", "atanh"):
        return x[np.abs(x) < 1]
    x = np.abs(x[x != 0]) if name in POSITIVE else x
    return x[x > -1] if name == "log1p" else x


def exact(f: Callable[[Any], Any], x: Array) -> list[Any]:
    """f at each number, to 40 digits beyond what the result cancels."""
    with mpmath.workprec(160):
        return [f(mpmath.mpf(float(v))) for v in x]


def units(got: Array, want: list[Any]) -> Array:
    """Errors in units of the last place of the exact results; beyond the largest number the limit is infinity."""
    info = np.finfo(got.dtype)
    out = np.empty(len(want))
    with mpmath.workprec(160):
        top = mpmath.mpf(float(info.max)) * (1 + mpmath.mpf(2) ** (-info.nmant - 2))
        for i, (a, b) in enumerate(zip(got.tolist(), want, strict=True)):
            if abs(b) >= top:
                out[i] = 0.0 if a == float(mpmath.sign(b)) * np.inf else np.inf
                continue
            place = max(mpmath.frexp(b)[1] - info.nmant - 1, info.minexp - info.nmant) if b else info.minexp - info.nmant
            out[i] = float(abs(mpmath.mpf(a) - b) / mpmath.mpf(2) ** place) if np.isfinite(a) else np.inf
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_errors_stay_within_two_units_of_the_last_place(name: str, dtype: str) -> None:
    function, reference, limit = FUNCTIONS[name]
    x = operands(name, dtype, 300)
    e = function(load(0, dtype))
    error = units(run_map(e, [x], x.shape, dtype, Target.host()), exact(reference, x))
    worst = int(np.argmax(error))
    assert error[worst] <= limit, (x[worst], error[worst])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_is_within_two_units_of_its_operand_and_five_of_itself(dtype: str) -> None:
    rng = np.random.default_rng(5)
    end = 12 if dtype == "float32" else 36
    x = np.concatenate([rng.uniform(-end, 6, 1000), rng.normal(size=200) * 1e-3]).astype(dtype)
    want = exact(lambda v: v * mpmath.erfc(-v / mpmath.sqrt(2)) / 2, x)
    got = run_map(math.gelu(load(0, dtype)), [x], x.shape, dtype, Target.host())
    assert units(got, want).max() <= 5
    by_operand = [abs(float(mpmath.mpf(float(a)) - b)) for a, b in zip(got, want, strict=True)]
    assert (np.asarray(by_operand) <= 2 * np.finfo(dtype).eps * np.abs(x)).all()


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_at_special_values(dtype: str, target: Target) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, np.finfo(dtype).max, -np.finfo(dtype).max], dtype)
    want = np.array([0.0, -0.0, np.inf, np.nan, np.nan, 1e30, -0.0, np.finfo(dtype).max, -0.0], dtype)
    got = run_map(math.gelu(load(0, dtype)), [x], x.shape, dtype, target)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[:2]), np.signbit(want[:2]))
    slope = run_map(math.gelu_gradient(load(0, dtype), load(1, dtype)), [np.ones_like(x), x], x.shape, dtype, target)
    assert np.array_equal(np.nan_to_num(slope, nan=9.0), [0.5, 0.5, 9.0, 9.0, 9.0, 1.0, 0.0, 1.0, 0.0])


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_special_values_and_signs_of_zeros(name: str, dtype: str, target: Target) -> None:
    info = np.finfo(dtype)
    tiny = info.smallest_subnormal
    x = np.array([0.0, -0.0, tiny, -tiny, np.inf, -np.inf, np.nan, -1.0, 1.0, -2.0, info.max, -info.max], dtype)
    plain = {
        "sigmoid": lambda v: np.asarray([0.5 if v0 == 0 else 1 / (1 + np.exp(-v0)) for v0 in v]),
        "rsqrt": lambda v: 1 / np.sqrt(v),
        "erf": lambda v: np.asarray([cmath.erf(v0) for v0 in v]),
    }
    with np.errstate(all="ignore"):
        want = (plain.get(name) or getattr(np, NUMPY.get(name, name)))(
            x.astype(np.longdouble if name not in ("sin", "cos", "tan") else dtype)
        )
        want = np.asarray(want).astype(dtype)
    got = run_map(FUNCTIONS[name][0](load(0, dtype)), [x], x.shape, dtype, target)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    close = np.isfinite(want)
    assert np.array_equal(got[~close & ~np.isnan(want)], want[~close & ~np.isnan(want)])
    assert np.allclose(got[close], want[close], rtol=4 * info.eps, atol=2 * float(tiny))
    zero = (want == 0) & (got == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "expm1", "log1p", "erf", "gelu", "tan", *NUMPY])
def test_all_float32_bit_patterns_by_stride(name: str) -> None:
    x = np.arange(0, 2**32, 40009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    fine = {
        "sigmoid": lambda v: np.where(v >= 0, 1, np.exp(-np.abs(v))) / (1 + np.exp(-np.abs(v))),
        "erf": lambda v: np.frompyfunc(cmath.erf, 1, 1)(v).astype(np.float64),
        "gelu": lambda v: v * 0.5 * np.frompyfunc(cmath.erfc, 1, 1)(-v * 0.5**0.5).astype(np.float64),
    }
    function: Any = FUNCTIONS[name][0] if name in FUNCTIONS else math.gelu
    got = run_map(function(load(0, "float32")), [x], x.shape, np.float32, Target.host())
    with np.errstate(all="ignore"):
        want = (fine.get(name) or getattr(np, NUMPY.get(name, name)))(x.astype(np.float64))
        rounded = want.astype(np.float32)
        spacing = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)))
        error = np.abs(got.astype(np.float64) - want) / spacing
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    if name == "gelu":  # where it vanishes, relative to the operand
        error = np.where(np.abs(want) < 1e-30, 0.0, error)
    assert np.where(same, 0.0, error).max() <= (5 if name == "gelu" else 2)


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_that_are_floats_come_out_exactly(dtype: str, target: Target) -> None:
    most = 2.0 ** (np.finfo(dtype).nmant + 1)
    pairs = [(b / 8, k) for b in range(-300, 301) for k in range(50) if abs(b) ** k < most and b]
    x, y = (np.asarray(v, dtype) for v in zip(*pairs, strict=True))
    want = np.asarray([b**k for b, k in pairs], dtype)
    assert np.array_equal(run_map(power(load(0, dtype), load(1, dtype)), [x, y], x.shape, dtype, target), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_and_their_special_cases(dtype: str) -> None:
    rng = np.random.default_rng(23)
    base = np.exp(rng.uniform(-60, 60, 600)).astype(dtype)
    most = 88 if dtype == "float32" else 700
    to = (rng.uniform(-most, most, 600) / np.log(base)).astype(dtype)
    near = (1 + rng.normal(size=300) * 1e-2).astype(dtype)
    far = (rng.uniform(-most, most, 300) / np.log(near)).astype(dtype)
    x, y = np.concatenate([base, near]), np.concatenate([to, far])
    e = power(load(0, dtype), load(1, dtype))
    got = run_map(e, [x, y], x.shape, dtype, Target.host())
    with mpmath.workprec(200):
        want = [mpmath.mpf(float(a)) ** mpmath.mpf(float(b)) for a, b in zip(x, y, strict=True)]
    assert units(got, want).max() <= 0.8
    s = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e30, -1e30, np.inf, -np.inf, np.nan, 2**25 + 2], dtype)
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(s, s))
    with np.errstate(all="ignore"):
        plain = np.power(a, b)
    for result in (run_map(e, [a, b], a.shape, dtype, Target.host()), evaluate([e], [a, b])[0]):
        assert np.allclose(result, plain, rtol=4 * np.finfo(dtype).eps, equal_nan=True)
        zero = plain == 0
        assert np.array_equal(np.signbit(result[zero]), np.signbit(plain[zero]))


# the floats closest to a multiple of π/2. Source: Muller, Elementary Functions, 3rd edition, 2016, table 11.1
CLOSEST = {"float32": 16367173 * 2.0**72, "float64": 6381956970095103 * 2.0**797}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles_are_reduced_exactly(name: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    most = 127 if dtype == "float32" else 1023
    x = rng.uniform(-1, 1, 800) * 2.0 ** rng.uniform(10, most, 800)
    edges = [65536.0, 16777216.0, float(np.finfo(dtype).max), CLOSEST[dtype], -CLOSEST[dtype]]
    near = np.asarray([float(v * mpmath.pi / 2) for v in (2**17 + 1, 2**24 + 3, 2**40 + 1, 3 * 2**50)])
    x = np.concatenate([x, edges, near]).astype(dtype)
    with mpmath.workprec(1400):
        want = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
    got = run_map(FUNCTIONS[name][0](load(0, dtype)), [x], x.shape, dtype, Target.host())
    assert units(got, want).max() <= 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_interpreter_gives_the_compiled_bits(name: str, dtype: str) -> None:
    x = operands(name, dtype, 300)
    e = FUNCTIONS[name][0](load(0, dtype))
    got = run_map(e, [x], x.shape, dtype, Target.host())
    assert np.array_equal(evaluate([e], [x])[0], got, equal_nan=True)
    for narrower in widths():
        again = run_map(e, [x], x.shape, dtype, narrower)
        if narrower.fma:
            assert np.array_equal(again, got, equal_nan=True)


def magnitudes(dtype: str, count: int, seed: int) -> Array:
    """Finite operands of all magnitudes, denormals among them."""
    word = np.uint32 if dtype == "float32" else np.uint64
    bits = np.random.default_rng(seed).integers(0, np.iinfo(word).max, count, dtype=word)
    x = bits.view(dtype)
    return np.where(np.isfinite(x), x, np.asarray(0.75, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["atan2", "hypot"])
def test_functions_of_a_points_coordinates_are_within_two_units(name: str, dtype: str) -> None:
    rng = np.random.default_rng(9)
    y, x = magnitudes(dtype, 500, 1), magnitudes(dtype, 500, 2)
    y = np.concatenate([y, (x * 2.0 ** rng.uniform(-6, 0, 500) * rng.choice([-1, 1], 500)).astype(dtype)])
    x = np.concatenate([x, x])
    function = {"atan2": inverse.atan2, "hypot": math.hypot}[name]
    got = run_map(function(load(0, dtype), load(1, dtype)), [y, x], y.shape, dtype, Target.host())
    with mpmath.workprec(2300):
        want = [getattr(mpmath, name)(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(y, x, strict=True)]
    assert units(got, want).max() <= 1.6


@pytest.mark.turns
@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("dtype", DTYPES)
def test_floor_divide_and_remainder_are_those_of_exact_quotients(dtype: str, target: Target) -> None:
    rng = np.random.default_rng(11)
    a, b = magnitudes(dtype, 3000, 3), magnitudes(dtype, 3000, 4)
    near = np.asarray(a * rng.uniform(-1, 1, 3000) * 2.0 ** -rng.integers(0, 60, 3000), dtype)
    whole = np.asarray(rng.integers(1, 1000, 3000), dtype)  # quotients that are whole, and next to whole ones
    a, b = np.concatenate([a, a, b, whole * 3]), np.concatenate([b, near, a, whole])
    a[-1000:] = np.nextafter(a[-1000:], np.asarray(0, dtype))
    kept = (b != 0) & np.isfinite(a)
    a, b = a[kept], b[kept]
    x, y = load(0, dtype), load(1, dtype)
    q = run_map(remainder.floor_divide(x, y), [a, b], a.shape, dtype, target)
    r = run_map(remainder.remainder(x, y), [a, b], a.shape, dtype, target)
    top = Fraction(float(np.finfo(dtype).max))
    for one, other, quotient, rest in zip(a.tolist(), b.tolist(), q.tolist(), r.tolist(), strict=True):
        down, left = divmod(Fraction(one), Fraction(other))
        assert rest == float(np.asarray(_nearest(left, dtype))), (one, other)
        if abs(down) <= top:
            assert quotient == float(np.asarray(_nearest(Fraction(down), dtype))), (one, other)
        else:
            assert abs(quotient) >= float(top)
        assert cmath.copysign(1, rest) == cmath.copysign(1, other)


def _nearest(value: Fraction, dtype: str) -> Any:
    """A fraction rounded once; NumPy's float32 of a float64 would round twice."""
    first = np.asarray(float(value), dtype)
    near = [np.nextafter(first, -np.inf, dtype=dtype), first, np.nextafter(first, np.inf, dtype=dtype)]
    finite = [n for n in near if np.isfinite(n)]
    return min(finite, key=lambda n: (abs(Fraction(float(n)) - value), int(n.view(np.dtype(f"u{n.itemsize}"))) & 1))


def test_nothing_but_float64_itself_is_computed_in_float64() -> None:
    for name, op in OPS.items():
        if op.fusion != "map" or op.scalar is None:
            continue
        for dtype in set(op.dtypes) & (set(STORAGE) - {"float64"}):
            for sample in op.samples(np.random.default_rng(3), dtype)[:2]:
                dtypes = [np.asarray(a).dtype.name for a in sample.inputs]
                if set(dtypes) <= set(STORAGE) and "float64" not in str(sample.params):
                    e = op.scalar(*(load(i, computed(d)) for i, d in enumerate(dtypes)), **sample.params)
                    assert all(n.dtype != "float64" for n in walk([e])), (name, dtype)


def test_the_coefficients_are_what_their_derivation_gives() -> None:
    import importlib.util
    from pathlib import Path

    from firebrick.scalar import coefficients as kept
    from firebrick.scalar import special_coefficients as special

    spec = importlib.util.spec_from_file_location("derive", Path(__file__).with_name("derive_coefficients.py"))
    assert spec is not None
    assert spec.loader is not None
    derive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(derive)
    with mpmath.workdps(60):
        for (name, dtype), row in (kept.TABLE | special.TABLE).items():
            assert derive.coefficients(name, dtype) == list(row), (name, dtype)
        for (name, dtype), parts in kept.NUMBERS.items():
            assert derive.split(derive.NUMBERS[name], dtype) == list(parts)
        for dtype, root in special.DIGAMMA_ROOT.items():
            assert derive.split(derive.DIGAMMA_ROOT, dtype)[:2] == list(root)
        assert derive.two_over_pi(len(kept.TWO_OVER_PI)) == list(kept.TWO_OVER_PI)
