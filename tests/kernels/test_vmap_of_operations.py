"""``vmap`` of operations of one's own: with a ``batch`` rule, and in a loop without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

X = np.arange(6.0).reshape(2, 3)
K = fb.kernel


def power(name: str, batch: Callable[..., Any] | None) -> Any:
    return fb.op(
        name,
        infer=lambda x, p: x,
        reference=lambda x, *, p: x**p,
        vjp=lambda g, x, p: g * float(p) * x ** float(p - 1),
        samples=lambda rng, dtype: [((rng.normal(size=3).astype(dtype),), {"p": 3})],
        batch=batch,
    )


def test_the_rule_of_an_operation_of_ones_own_is_used_inside_gradients_and_jit(device: str) -> None:
    calls = []

    def batch(mapped: tuple[bool, ...], x: fb.Tensor, *, p: int) -> Any:
        calls.append((mapped, x.shape, p))
        return [cube(x, p=p)]

    cube = power("vmapped_power", batch)
    x = fb.asarray(X, device=device)
    with fb.config.scope(fallback="error" if device in ("numpy", "cpu") else "silent"):
        assert fb.vmap(lambda t: cube(t, p=3))(x).tolist() == (X**3).tolist()
        assert calls == [((True,), (2, 3), 3)]
        silent = power("vmapped_power_again", lambda mapped, x, p: silent(x, p=p))
        slope = fb.vmap(fb.grad(lambda t: fb.sum(silent(t, p=3))))
        assert slope(x).tolist() == (3 * X**2).tolist()
        assert fb.jit(slope)(x).tolist() == (3 * X**2).tolist()


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (lambda mapped, x, p: 1 / 0, r"batch\(mapped, \*operands, \*\*params\) of wrong_power returns .*\n.*ZeroDivisionError"),
        (lambda mapped, x, p: x[0], r"batch rule of wrong_power must return float64\[2,3\]\nReceived: float64\[3\]"),
        (lambda mapped, x, p: 3, "batch rule of wrong_power returns tensors\nReceived: int"),
    ],
)
def test_a_wrong_rule_is_named(batch: Callable[..., Any], text: str) -> None:
    wrong = power("wrong_power", batch)
    with pytest.raises(fb.FirebrickError, match=text):
        fb.vmap(lambda t: wrong(t, p=2))(fb.asarray(X, device="numpy"))


def test_forward_mode_uses_the_rule_of_an_operation_or_its_gradient_rule() -> None:
    def tangent(tangents: tuple[Any, ...], x: fb.Tensor, *, p: int) -> Any:
        return tangents[0] * float(p) * x ** float(p - 1) * 10.0  # another one than the gradient rule's

    x = fb.asarray(X, device="numpy")
    for jvp, factor in ((None, 1.0), (tangent, 10.0)):
        cube = fb.op(
            "forward_power",
            infer=lambda x, p: x,
            reference=lambda x, *, p: x**p,
            vjp=lambda g, x, p: g * float(p) * x ** float(p - 1),
            samples=[((X[0],), {"p": 3})],
            jvp=jvp,
            replace=True,
        )
        assert fb.jvp(lambda t, cube=cube: cube(t, p=3), (x,), (x,))[1].tolist() == (factor * 3 * X**3).tolist()
    still = fb.op("still", infer=lambda x: x, reference=lambda x: x * 0, samples=[(X[0],)], jvp=lambda tangents, x: None)
    assert fb.jvp(still, (x,), (x,))[1].tolist() == (X * 0).tolist()
    wrong = fb.op("wrong_tangent", infer=lambda x: x, reference=lambda x: x, samples=[(X[0],)], jvp=lambda t, x: 1 / 0)
    with pytest.raises(fb.GradientError, match="of wrong_tangent returns the tangents"):
        fb.jvp(wrong, (x,), (x,))


def test_a_rule_is_a_function() -> None:
    with pytest.raises(fb.OperandError, match="batch of no_rule must be a function\nReceived: 5"):
        power("no_rule", 5)  # type: ignore[arg-type]


def test_without_a_rule_operations_and_kernels_run_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firebrick.autodiff.batching._announced", set())
    plain = power("unmapped_power", None)
    with pytest.warns(fb.FallbackWarning, match="unmapped_power has no batch rule .* 2 examples"):
        found = fb.vmap(lambda t: plain(t, p=2))(fb.asarray(X, device="cpu"))
    assert found.tolist() == (X**2).tolist()

    @K
    def scaled(x: K.In[fb.float32, "n"], y: K.Out[fb.float32, "n"]) -> None:
        i = K.index()
        y[i] = x[i] * 2.0

    with fb.config.scope(fallback="silent"):
        rows = fb.vmap(lambda t: scaled(t))(fb.asarray(X.astype(np.float32), device="cpu"))
    assert rows.tolist() == (2 * X).tolist()
