"""Accuracy of the special functions of the scalar IR, compiled, against mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_kernels import run_map

from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar import bessel, evaluate, gamma, inverse_erf
from firebrick.scalar.expr import Expr, load

mpmath = pytest.importorskip("mpmath")
Array = np.ndarray[Any, Any]
ROOT = 1.4616321449683622

# name → (expression, mpmath's function of a number, worst error in units of eps, relative to the result)
FUNCTIONS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Any], Any], float]] = {
    "lgamma": (gamma.lgamma, mpmath.loggamma, 6.0),
    "digamma": (gamma.digamma, mpmath.digamma, 3.5),
    "polygamma 1": (lambda x: gamma.polygamma(x, n=1), lambda x: mpmath.polygamma(1, x), 6.0),
    "polygamma 2": (lambda x: gamma.polygamma(x, n=2), lambda x: mpmath.polygamma(2, x), 7.0),
    "erfinv": (inverse_erf.erfinv, mpmath.erfinv, 3.0),
    "i0": (bessel.i0, lambda x: mpmath.besseli(0, x), 4.0),
    "i1": (bessel.i1, lambda x: mpmath.besseli(1, x), 4.0),
}


def numbers(name: str, dtype: str) -> Array:
    rng = np.random.default_rng(3)
    if name == "erfinv":
        x = np.concatenate([rng.uniform(-1, 1, 200), 1 - np.exp(-rng.uniform(0, 36, 100)), rng.normal(size=50) * 1e-5])
    elif name in ("i0", "i1"):
        x = np.concatenate([rng.uniform(-9, 9, 200), rng.uniform(8, 85, 100), rng.normal(size=50) * 1e-4])
    else:
        near = [c + rng.normal(size=60) * 1e-3 for c in (1.0, 2.0, ROOT)]
        x = np.concatenate([rng.uniform(0, 3, 200), rng.uniform(3, 30, 100), np.exp(rng.uniform(-20, 20, 80)), *near])
    x = x.astype(dtype)
    return x[np.abs(x) < 1] if name == "erfinv" else x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_stay_within_their_limits(name: str, dtype: str) -> None:
    function, reference, limit = FUNCTIONS[name]
    x, e = numbers(name, dtype), function(load(0, dtype))
    got = run_map(e, [x], x.shape, dtype, Target.host())
    assert np.array_equal(got, evaluate([e], [x])[0])
    with mpmath.workprec(160):
        want = [reference(mpmath.mpf(float(v))) for v in x]
        error = [float(abs(mpmath.mpf(float(a)) - b) / abs(b)) for a, b in zip(got, want, strict=True)]
    worst = int(np.argmax(error))
    assert error[worst] <= limit * float(np.finfo(dtype).eps), (x[worst], error[worst])
