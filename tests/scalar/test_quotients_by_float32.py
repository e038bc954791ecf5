"""Quotients of positive 32-bit integers by float32, whatever a driver makes of the reciprocal within WGSL's limits."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.compiler.kernel.ir import ArrayParameter, Function, ScalarParameter, Store
from firebrick.compiler.kernel.legalized import legalized
from firebrick.scalar.capabilities import CONSERVATIVE_GPU
from firebrick.scalar.expr import Expr, binary, cast, const, local, rebuilt, rewritten, walk
from firebrick.scalar.interpret import evaluate
from firebrick.scalar.wide_quotients import EXACT, of_positive

TOP = (1 << 31) - 1


def _cases(largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers next to multiples of divisors and to powers of two, and random ones."""
    rng = np.random.default_rng(largest % 1000)
    special = np.array([1, 2, 3, 4, 5, 7, 10, 16, 31, 64, 100, 127, 255, 256, 1000, 1021, 1024, 4097])
    powers = np.array([(1 << k) + d for k in range(1, 31) for d in (-1, 0, 1)])
    drawn = np.exp(rng.random(2000) * np.log(TOP)).astype(np.int64)
    b = np.unique(np.concatenate([special, powers, drawn, [largest, TOP - 1, TOP]]))
    b = b[(b >= 1) & (b <= TOP)]
    times = np.exp(rng.random((len(b), 12)) * np.log(np.maximum(largest // b, 1))[:, None]).astype(np.int64)
    near = times[:, :, None] * b[:, None, None] + np.array([-1, 0, 1])
    some = rng.integers(0, largest, (len(b), 8), endpoint=True)
    a = np.concatenate([near.reshape(len(b), -1), some, np.full((len(b), 1), largest)], axis=1)
    a = np.clip(a, 0, largest)
    return a.reshape(-1).astype(np.int32), np.repeat(b, a.shape[1]).astype(np.int32)


@pytest.mark.parametrize("largest", [100, 4095, EXACT - 1, EXACT, 1 << 23, (1 << 24) + 1, 1 << 28, TOP])
@pytest.mark.parametrize("error", [0.0, 2.5, -2.5])
def test_they_are_exact(largest: int, error: float) -> None:
    a, b = _cases(largest)

    def perturbed(e: Expr, args: tuple[Expr, ...]) -> Expr:
        found = rebuilt(e, args)
        return found * const(1.0 + error * 2.0**-23, "float32") if e.op == "div" and error else found

    roots = rewritten(of_positive(local("a", "int32"), local("b", "int32"), largest), perturbed)
    assert sum(e.op == "div" for e in walk(roots)) == 1
    q, r = evaluate(roots, locals={"a": a, "b": b})
    assert np.array_equal(q, a // b)
    assert np.array_equal(r, a % b)


def _divisions(bounds: dict[str, tuple[int, int]], divisor: Expr) -> set[str]:
    """The dtypes of the quotients of a kernel for a target without 64-bit integers."""
    y, i = ArrayParameter("y", "int32", "write"), local("i", "int64")
    f = Function("f", (y,), (ScalarParameter("n"),), "i", (Store("y", i, cast(binary("div", i, divisor), "int32")),))
    made = legalized(f, CONSERVATIVE_GPU, {"y": (0, 100), **bounds})
    (store,) = made.body
    assert isinstance(store, Store)
    return {e.dtype for e in walk([store.value]) if e.op in ("div", "rem")}


def test_they_are_used_where_both_are_known_to_be_positive_and_the_divisor_varies() -> None:
    n = local("n", "int64")
    assert _divisions({"i": (0, 99), "n": (1, 7)}, n) == {"float32"}
    assert _divisions({"i": (0, 99), "n": (0, 7)}, n) == {"int32"}
    assert _divisions({"i": (-1, 99), "n": (1, 7)}, n) == {"int32"}
    assert _divisions({"i": (0, 99), "n": (1, 7)}, const(3, "int64")) == {"int32"}
