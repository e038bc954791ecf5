"""Special functions against mpmath and SciPy, on every engine, with gradients of every order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import firebrick as fb

special = pytest.importorskip("scipy.special")

ENGINES = ["numpy", "cpu", "torch:cpu"]
POSITIVE = np.linspace(0.1, 20.0, 60)
REFERENCES: dict[str, tuple[Any, Any, np.ndarray[Any, Any]]] = {
    "lgamma": (fb.lgamma, special.gammaln, POSITIVE),
    "digamma": (fb.digamma, special.psi, POSITIVE),
    "polygamma(1)": (lambda x: fb.polygamma(1, x), lambda x: special.polygamma(1, x), POSITIVE),
    "polygamma(3)": (lambda x: fb.polygamma(3, x), lambda x: special.polygamma(3, x), POSITIVE),
    "erfinv": (fb.erfinv, special.erfinv, np.linspace(-0.999, 0.999, 60)),
    "i0": (fb.i0, special.i0, np.linspace(-30.0, 30.0, 60)),
    "i1": (fb.i1, special.i1, np.linspace(-30.0, 30.0, 60)),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", REFERENCES)
def test_values_are_those_of_scipy(name: str, engine: str) -> None:
    function, reference, x = REFERENCES[name]
    got = function(fb.asarray(x, device=engine)).numpy()
    np.testing.assert_allclose(got, reference(x), rtol=1e-13, atol=1e-13)
    half = function(fb.asarray(x.astype(np.float16), device=engine)).numpy()
    assert half.dtype == np.float16
    exact = reference(x.astype(np.float16).astype(np.float64))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(half, exact.astype(np.float16), rtol=2e-3, atol=1e-4)


def test_negative_numbers_are_reflected() -> None:
    x = np.asarray([-0.5, -1.25, -2.6, -7.1, -40.3])
    np.testing.assert_allclose(fb.lgamma(fb.asarray(x)).numpy(), special.gammaln(x), rtol=1e-14)
    np.testing.assert_allclose(fb.digamma(fb.asarray(x)).numpy(), special.psi(x), rtol=1e-13)
    mpmath = pytest.importorskip("mpmath")
    want = [float(mpmath.polygamma(2, mpmath.mpf(float(v)))) for v in x]
    np.testing.assert_allclose(fb.polygamma(2, fb.asarray(x)).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_poles_and_ends(engine: str) -> None:
    x = fb.asarray([0.0, -1.0, -7.0, math.inf, math.nan], device=engine, dtype=fb.float64)
    assert fb.lgamma(x).tolist()[:4] == [math.inf] * 4
    found = fb.digamma(x).tolist()
    assert found[0] == -math.inf
    assert all(map(math.isnan, [found[1], found[2], found[4]]))
    assert found[3] == math.inf
    assert fb.polygamma(1, x).tolist()[:4] == [math.inf, math.inf, math.inf, 0.0]
    y = fb.erfinv(fb.asarray([-1.0, 1.0, 1.5], device=engine)).tolist()
    assert y[:2] == [-math.inf, math.inf]
    assert math.isnan(y[2])
    assert fb.i0(fb.asarray([700.0], device=engine, dtype=fb.float64)).tolist() == pytest.approx([1.5295933476718737e302])


def test_the_zeros_keep_their_digits() -> None:
    mpmath = pytest.importorskip("mpmath")
    near = np.asarray([1 + 1e-9, 2 - 1e-9, 1.4616321449683622])
    with mpmath.workdps(40):
        gamma = [float(mpmath.loggamma(mpmath.mpf(v))) for v in near.tolist()]
        slope = float(mpmath.digamma(mpmath.mpf(near.tolist()[2])))
    np.testing.assert_allclose(fb.lgamma(fb.asarray(near)).numpy(), gamma, rtol=2e-15)
    assert fb.digamma(fb.asarray(near))[2].item() == pytest.approx(slope, rel=1e-14)


@pytest.mark.parametrize("name", REFERENCES)
def test_gradients_of_gradients(name: str) -> None:
    function, _, _ = REFERENCES[name]
    x = fb.asarray([0.3, 0.7, 0.9], dtype=fb.float64)
    fb.gradcheck(function, [x], order=2)


def test_slopes_where_a_quotient_is_not_defined() -> None:
    assert fb.grad(lambda v: fb.sum(fb.i1(v)))(fb.asarray([0.0])).tolist() == [0.5]
    assert fb.grad(lambda v: fb.sum(fb.erfinv(v)))(fb.asarray([1.0])).tolist() == [math.inf]


def test_orders_that_are_no_ints_are_refused() -> None:
    x = fb.ones(2)
    for order in (-1, 1.5, True, "2"):
        with pytest.raises(fb.ConfigError, match="polygamma: n is an int ≥ 0"):
            fb.polygamma(order, x)
    with pytest.raises(fb.DTypeError, match="lgamma"):
        fb.lgamma(fb.asarray([1, 2]))
    assert fb.polygamma(0, x).tolist() == fb.digamma(x).tolist()


def test_a_compiled_function_fuses_them() -> None:
    f = fb.jit(lambda v: fb.sum(fb.exp(fb.lgamma(v)) * fb.erfinv(v * 0.1) + fb.i0(v) - fb.polygamma(2, v)))
    x = fb.asarray(np.linspace(0.5, 4.0, 4096))
    want = special.gamma(x.numpy()) * special.erfinv(x.numpy() * 0.1) + special.i0(x.numpy()) - special.polygamma(2, x.numpy())
    assert f(x).item() == pytest.approx(want.sum(), rel=1e-12)
