"""Expressions of complex numbers as pairs of reals, interpreted and compiled for each width, against entries' references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of
from native_kernels import widths

from firebrick.compiler.spec.elements import element
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Op, Sample
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.declare import COMPLEX, STORAGE8
from firebrick.ops.table import OPS
from firebrick.scalar import evaluate
from firebrick.scalar.complex_numbers import Parts, divide, paired, parts
from firebrick.scalar.expr import COMPLEX as PARTS
from firebrick.scalar.expr import Expr, load

Array = np.ndarray[Any, Any]
RULES = sorted(name for name, op in OPS.items() if op.complex_scalar is not None)
FUNCTIONS = sorted(n for n in RULES if OPS[n].complex_tolerance > OPS[n].tolerance and len(OPS[n].operands) == 1 and n != "abs")
WITHOUT = {"prod"}
"""Entries with a real scalar expression and complex samples whose complex ones run on the host."""


def samples(op: Op) -> Iterator[Sample]:
    """The samples with complex operands or results."""
    for d in [d for d in op.dtypes if d not in STORAGE8]:
        for s in op.samples(np.random.default_rng(3), d):
            made = op.infer(*(Aval(np.shape(x), as_dtype(np.asarray(x).dtype)) for x in s.inputs), **s.params)
            kinds = {np.asarray(x).dtype.kind for x in s.inputs} | {np.dtype(made.dtype.np).kind}
            if "c" in kinds and np.prod(made.shape, dtype=int) and all(np.size(x) for x in s.inputs):
                yield s


def interpreted(op: Op, arrays: Sequence[Array], params: dict[str, Any]) -> Array:
    """A result of an entry's expression."""
    body = body_of(arrays, (op.name, tuple(range(len(arrays))), params))
    loads: list[Expr] = []
    reals: list[Array] = []
    for x in arrays:
        dtype = x.dtype.name
        if dtype in PARTS:
            loads.append(paired(Parts(*(load(len(reals) + k, PARTS[dtype]) for k in (0, 1)))))
            reals += [x.real, x.imag]
        else:
            loads.append(load(len(reals), "float32" if dtype in ("float16", "bfloat16") else dtype))
            reals.append(x)
    made, aval = element(body.nodes[0], loads, body.inputs), body.nodes[0].avals[0]
    out = np.empty(aval.shape, aval.dtype.np)
    if made.dtype in PARTS:
        out.real, out.imag = evaluate(list(parts(made)), reals)
    else:
        out[...] = evaluate([made], reals)[0]
    return out


@pytest.mark.parametrize("name", [n for n in RULES if OPS[n].fusion == "map"])
def test_expressions_have_the_results_of_the_reference_at_edges_too(name: str) -> None:
    op, tried = OPS[name], 0
    for s in samples(op):
        arrays = tuple(np.asarray(x) for x in s.inputs)
        want = run_reference(op, arrays, s.params)
        found = check_results(op, arrays, s.params, (interpreted(op, arrays, s.params),), want, s.edges)
        assert found.ok, f"{arrays[0].dtype}, {s.name}: {found}"
        tried += 1
    assert tried


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("name", RULES)
def test_kernels_of_every_width_have_the_results_of_the_reference(name: str, target: Target) -> None:
    op, tried, narrow = OPS[name], 0, target is not widths()[-1]
    for s in samples(op):
        if narrow and s.name not in ("long", "special values", "row"):
            continue  # the shapes are the same code for every width
        arrays = tuple(np.asarray(x) for x in s.inputs)
        body = body_of(arrays, (name, tuple(range(len(arrays))), s.params))
        if kind_of(body.nodes[0], tuple(body.inputs)) not in ("map", "rows", "columns"):
            continue
        kernel = Body(body, target)
        assert not kernel.lowered.doubt
        found = check_results(op, arrays, s.params, tuple(kernel(*arrays)), run_reference(op, arrays, s.params), s.edges)
        assert found.ok, f"{arrays[0].dtype}, {s.name}: {found}"
        tried += 1
    assert tried or narrow


def _spread(rng: np.random.Generator, low: float, high: float, count: int) -> Array:
    """Numbers of either sign between powers of 10."""
    return rng.choice([-1, 1], count) * 10.0 ** rng.uniform(low, high, count)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate_of_small_and_large_numbers_next_to_one_and_next_to_the_unit_circle(
    name: str, dtype: str
) -> None:
    rng = np.random.default_rng(7)
    top = 2 if name in ("exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh") else 18
    places = {
        "wide": _spread(rng, -5, top, 2000) + 1j * _spread(rng, -5, top, 2000),
        "circle": np.exp(1j * rng.uniform(-4, 4, 2000)) * (1 + _spread(rng, -7, -1, 2000)),
        "one": 1 + _spread(rng, -7, 0, 2000) + 1j * _spread(rng, -8, 0, 2000),
    }
    if name != "pow":  # parts that are 0, ½ or 1, where formulas have cases of their own
        sizes = np.array([0.0, 1e-20, 1e-6, 1e-3, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 50.0])
        parts = np.concatenate([sizes, -sizes])
        grid = parts[:, None] + 1j * parts
        places["grid"] = grid[grid != 0]
    if name in ("sqrt", "log", "log2", "log10"):
        low, high = (-45, -37) if dtype == "complex64" else (-323, -307)
        places["denormal"] = _spread(rng, low, high, 2000) + 1j * _spread(rng, low, high, 2000)
        places["large"] = _spread(rng, -high - 3, -high, 2000) + 1j * _spread(rng, -high - 3, -high, 2000)
    for place, z in places.items():
        x = (z.astype(dtype),)
        found = check_results(OPS[name], x, {}, (interpreted(OPS[name], x, {}),), run_reference(OPS[name], x, {}))
        assert found.ok, f"{place}: {found}"


@pytest.mark.parametrize("dtype", COMPLEX)
def test_the_imaginary_part_of_a_hyperbolic_tangent_has_its_digits_however_small_it_is(dtype: str) -> None:
    end = 40.0 if dtype == "complex64" else 320.0
    x, y = np.meshgrid(np.linspace(-end, end, 161), [-1.0, -0.4, 0.3, 0.7, 1.2])
    z = (x + 1j * y).astype(dtype)
    found = interpreted(OPS["tanh"], (z,), {})
    with np.errstate(over="ignore"):
        exact = np.sin(2 * y) / (np.cosh(2 * x) + np.cos(2 * y))
    np.testing.assert_allclose(found.imag, exact, rtol=64 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_square_root_has_the_same_digits_whatever_power_of_4_its_operand_is_multiplied_by(dtype: str) -> None:
    """Those of large and of small numbers are computed of scaled ones: by powers of 2, which round nothing."""
    rng = np.random.default_rng(5)
    parts_of = np.dtype(dtype).type(0).real.dtype
    z = (rng.choice([-1, 1], (2, 200)) * rng.uniform(0.5, 1.0, (2, 200))).astype(parts_of)
    limits = np.finfo(parts_of)
    wanted = interpreted(OPS["sqrt"], [(z[0] + 1j * z[1]).astype(dtype)], {}).view(parts_of)
    for k in range((limits.minexp + 3) // 2, limits.maxexp // 2, 1 if dtype == "complex64" else 11):
        x = np.ldexp(z, 2 * k)
        got = interpreted(OPS["sqrt"], [(x[0] + 1j * x[1]).astype(dtype)], {}).view(parts_of)
        assert (got == np.ldexp(wanted, k)).all(), k


@pytest.mark.parametrize("dtype", COMPLEX)
def test_quotients_are_right_up_to_the_limits_of_the_dtype(dtype: str) -> None:
    rng, part = np.random.default_rng(1), np.dtype(PARTS[dtype])
    high = float(np.finfo(part).maxexp) * 0.30
    x, y = np.empty(300, dtype), np.empty(300, dtype)
    for z in (x, y):
        size = rng.uniform(-high, high, 300)
        z.real, z.imag = (rng.uniform(-1, 1, 300) * 10.0**size for _ in range(2))
    got = interpreted(OPS["divide"], (x, y), {})
    tiny, top = float(np.finfo(part).smallest_normal), float(np.finfo(part).max)
    checked = 0
    for a, b, q in zip(x, y, got, strict=True):
        ar, ai, br, bi = (Fraction(float(v)) for v in (a.real, a.imag, b.real, b.imag))
        below = br * br + bi * bi
        exact = (ar * br + ai * bi) / below, (ai * br - ar * bi) / below
        size = max(abs(v) for v in exact)
        if not tiny / float(np.finfo(part).eps) < size < top / 2:
            continue
        error = max(abs(Fraction(float(v)) - e) for v, e in zip((q.real, q.imag), exact, strict=True))
        assert error <= 4 * Fraction(float(np.finfo(part).eps)) * size, (a, b, q)
        checked += 1
    assert checked > 100


def test_a_quotient_without_scaling_would_overflow() -> None:
    """The test above can fail."""
    huge, one = np.complex64(2e38 + 1.5e38j), np.complex64(1.9e38 - 2e38j)
    with np.errstate(all="ignore"):
        assert not np.isfinite((huge * np.conj(one)) / (abs(one) ** 2))
    z, w = (Parts(load(2 * k, "float32"), load(2 * k + 1, "float32")) for k in (0, 1))
    re, im = evaluate(list(divide(z, w)), [np.float32(v) for v in (huge.real, huge.imag, one.real, one.imag)])
    want = np.complex128(huge) / np.complex128(one)
    assert abs(complex(re, im) - want) <= 4 * 2.0**-23 * abs(want)


def test_entries_with_complex_samples_have_a_complex_expression_or_run_on_the_host() -> None:
    taking = {n for n, op in OPS.items() if set(COMPLEX) <= set(op.dtypes) and op.scalar is not None}
    assert taking - set(RULES) == WITHOUT
    assert {OPS[n].complex_scalar is None for n in RULES} == {False}
