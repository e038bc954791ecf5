"""Cholesky and triangular solve on the device: random stacks of matrices against float64, and the errors of ``numpy``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results

DEVICE = "webgpu:0"
CASES = 6
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 47, 48, 56, 57, 64, 65, 128)
STACKS: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (2,), (5,), (2, 3), (3, 1, 2), (100,))
Array = np.ndarray[Any, Any]
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def _on_the_device() -> Any:
    with fb.config.scope(fallback="error"):
        yield


@dataclass
class Drawn:
    """An operation on stacks of matrices.

    Attributes:
        op: Its name.
        arrays: The operands.
        params: Its parameters.
    """

    op: str
    arrays: tuple[Array, ...]
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(str(x.shape) for x in self.arrays)}, {self.params})"


def positive(rng: np.random.Generator, stack: tuple[int, ...], n: int, condition: float) -> Array:
    """Positive definite matrices of a condition."""
    u = np.linalg.qr(rng.normal(size=(*stack, n, n)))[0]
    values = np.geomspace(1, 1 / condition, n) * 10.0 ** rng.uniform(-3, 3)
    return np.asarray((u * values) @ np.swapaxes(u, -1, -2)).astype(np.float32)


def spoiled(rng: np.random.Generator, x: Array, op: str, upper: bool) -> Array:
    """Some matrices without an answer, or with special values where nothing reads them."""
    x = x.copy()
    n, kind = x.shape[-1], rng.integers(3)
    if not x.size or kind == 0:
        return x
    flat = x.reshape(-1, n, n)
    for k in rng.choice(len(flat), min(len(flat), int(rng.integers(1, 4))), replace=False):
        i, j = rng.integers(n, size=2)
        if op == "cholesky":
            flat[k, i, j if kind == 1 else i] = rng.choice([np.nan, np.inf, -np.inf, -1.0]) if kind == 1 else -1.0
        elif kind == 1:
            flat[k, i, i] = rng.choice([0.0, -0.0])
        elif i != j:
            flat[(k, j, i) if (i < j) == upper else (k, i, j)] = rng.choice([np.nan, np.inf])
    return x


def drawn(rng: np.random.Generator) -> Drawn:
    """An operation: conditions up to 10⁵, stacks that broadcast, few or many columns."""
    stack, n = STACKS[rng.integers(len(STACKS))], int(rng.choice(SIZES))
    if n > 33:
        stack = stack[:1] if stack[:1] != (100,) else (2,)
    x = positive(rng, stack, n, 10.0 ** rng.uniform(0, 5))
    if rng.integers(2):
        return Drawn("cholesky", (spoiled(rng, x, "cholesky", False),), {})
    upper = bool(rng.integers(2))
    exact = np.linalg.cholesky(x.astype(np.float64))
    t = (np.swapaxes(exact, -1, -2) if upper else exact).astype(np.float32)
    t = t + (np.tril if upper else np.triu)(rng.normal(size=t.shape).astype(np.float32), -1 if upper else 1)
    t = spoiled(rng, t, "solve_triangular", upper)
    columns = int(rng.choice([1, 2, 3, 4, 5, 17, max(n, 1)]))
    own = [stack, (), tuple(1 for _ in stack), (2, *stack)][rng.integers(4)]
    return Drawn("solve_triangular", (t, rng.normal(size=(*own, n, columns)).astype(np.float32)), {"upper": upper})


WAYS: dict[str, Callable[[Run], Run]] = {
    "eagerly": lambda f: f,
    "under jit": lambda f: fb.jit(f),
    "in a program": lambda f: fb.jit(lambda *xs: f(*(x * 2.0 * 0.5 for x in xs)) + 0.0),
    "in a scan": lambda f: fb.jit(lambda *xs: fb.scan(lambda c, _: (c, f(*xs)), fb.zeros((), device=DEVICE), length=2)[1][1]),
}


def outcome(f: Run, *xs: Any) -> Any:
    """A result, or the text of the error."""
    try:
        return f(*xs).numpy()
    except fb.LinAlgError as e:
        return str(e)


@pytest.mark.parametrize("part", [*range(4), *(pytest.param(k, marks=pytest.mark.soak) for k in range(4, 500))])
def test_random_matrices_have_the_factors_and_the_errors_of_numpy(part: int, seed: int) -> None:
    rng = np.random.default_rng([seed, part])
    flushes = fb.device(DEVICE).backend.flushes_denormals(fb.device(DEVICE))
    for _ in range(CASES):
        case = drawn(rng)
        op = OPS[case.op]
        way = str(rng.choice(list(WAYS)))

        def run(*xs: Any, case: Drawn = case, op: Any = op) -> Any:
            return op(*xs, **case.params)

        with np.errstate(all="ignore"):
            want = outcome(lambda *xs, run=run: run(*xs), *(fb.asarray(x, device="numpy:0") for x in case.arrays))
        on_device = [fb.asarray(x, device=DEVICE) for x in case.arrays]
        if not all(x.size for x in case.arrays):
            with fb.config.scope(fallback="silent"):
                found = outcome(WAYS[way](run), *on_device)
        else:
            found = outcome(WAYS[way](run), *on_device)
        if isinstance(want, str) or isinstance(found, str):
            assert found == want, f"{case} {way}"
            continue
        with np.errstate(all="ignore"):
            exact = op.reference(*(x.astype(np.float64) for x in case.arrays), **case.params)
        if not np.isfinite(exact).all():  # infinite elements of a triangle
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(exact), str(case))
            continue
        verdict = check_results(op, case.arrays, case.params, (found,), (np.asarray(exact),), flushes=flushes)
        assert verdict.ok, f"{case} {way}: {verdict}"
