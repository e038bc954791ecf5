"""Second derivatives where a formula takes another branch: at 0 and at equal operands, against differences of the gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import firebrick as fb
from firebrick import distributions

STEP = 1e-5
FUNCTIONS: dict[str, Callable[[fb.Tensor], fb.Tensor]] = {
    "softplus": fb.softplus,
    "softplus with beta": lambda x: fb.softplus(x, beta=3.0),
    "log_sigmoid": fb.log_sigmoid,
    "logaddexp": lambda x: fb.logaddexp(x, x * 3.0),
    "binary_cross_entropy_with_logits": lambda x: fb.binary_cross_entropy_with_logits(
        x, fb.ones_like(x) * 0.3, reduction="none"
    ),
    "soft_margin_loss": lambda x: fb.soft_margin_loss(x, fb.ones_like(x), reduction="none"),
    "huber_loss": lambda x: fb.huber_loss(x, fb.zeros_like(x), delta=0.7, reduction="none"),
    "smooth_l1_loss": lambda x: fb.smooth_l1_loss(x, fb.zeros_like(x), beta=0.3, reduction="none"),
    "Bernoulli": lambda x: distributions.Bernoulli(logits=x).log_prob(fb.ones_like(x)),
    "Bernoulli's entropy": lambda x: distributions.Bernoulli(logits=x).entropy(),
    "Geometric": lambda x: distributions.Geometric(logits=x).log_prob(fb.ones_like(x)),
    "Binomial": lambda x: distributions.Binomial(5, logits=x).log_prob(fb.ones_like(x)),
}


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_second_derivative_at_zero_is_that_of_the_smooth_function(name: str, device: str) -> None:
    fn = FUNCTIONS[name]
    at = np.array([0.0, -0.0, 0.2, -2.0])

    def gradient(x: fb.Tensor) -> fb.Tensor:
        return fb.grad(lambda x: fb.sum(fn(x)))(x)

    def placed(x: np.ndarray) -> fb.Tensor:
        return fb.asarray(x, device=device)

    expected = (gradient(placed(at + STEP)).numpy() - gradient(placed(at - STEP)).numpy()) / (2 * STEP)
    second = fb.grad(lambda x: fb.sum(gradient(x)))

    def forward(x: fb.Tensor) -> fb.Tensor:
        return fb.jvp(gradient, (x,), (fb.ones_like(x),))[1]

    for derivative in (second, forward, fb.jit(second)):
        np.testing.assert_allclose(derivative(placed(at)).numpy(), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_newtons_method_finds_a_logistic_regression_from_weights_of_zero(device: str) -> None:
    rng = np.random.default_rng(0)
    x = fb.asarray(rng.normal(size=(31, 3)), device=device)
    y = fb.asarray((rng.uniform(size=31) < 0.5).astype(np.float64), device=device)

    def loss(w: fb.Tensor) -> fb.Tensor:
        return fb.binary_cross_entropy_with_logits(x @ w, y)

    w = fb.zeros((3,), dtype=fb.float64, device=device)
    for _ in range(6):
        w = w - fb.linalg.solve(fb.hessian(loss)(w), fb.grad(loss)(w))
    assert fb.max(fb.abs(fb.grad(loss)(w))).item() < 1e-12


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_equal_infinities_share_the_gradient_of_logaddexp(device: str) -> None:
    inf = fb.asarray([np.inf, -np.inf, np.inf, -np.inf], dtype=fb.float64, device=device)
    other = fb.asarray([np.inf, -np.inf, -np.inf, 1.0], dtype=fb.float64, device=device)
    first, second = fb.vjp(fb.logaddexp, inf, other)[1](fb.ones_like(inf))
    assert first.tolist() == [0.5, 0.5, 1.0, 0.0]
    assert second.tolist() == [0.5, 0.5, 0.0, 1.0]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_the_slope_of_a_power_along_its_exponent_counts_at_an_exponent_of_zero(device: str) -> None:
    base = fb.asarray([2.0, 0.5, 3.0], dtype=fb.float64, device=device)
    exponent = fb.zeros((3,), dtype=fb.float64, device=device)

    def of_base(b: fb.Tensor) -> fb.Tensor:
        return fb.grad(lambda a: fb.sum(a**b))(base)

    mixed = fb.grad(lambda b: fb.sum(of_base(b)))
    for derivative in (mixed, fb.jit(mixed)):
        np.testing.assert_allclose(derivative(exponent).numpy(), 1.0 / base.numpy(), rtol=1e-15)
    slope = fb.grad(lambda a, b: fb.sum(a**b))
    special = fb.asarray([0.0, float("nan"), -0.0], dtype=fb.float64, device=device)
    assert slope(special, exponent).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_derivatives_of_a_bessel_function_near_zero_are_no_differences_of_large_numbers(device: str) -> None:
    x = fb.asarray([0.0, 1e-9, -0.3, 0.4999], dtype=fb.float64, device=device)
    first = fb.grad(lambda x: fb.sum(fb.i1(x)))
    second = fb.grad(lambda x: fb.sum(first(x)))
    third = fb.grad(lambda x: fb.sum(second(x)))
    # derivatives of the power series, DLMF 10.25.2
    expected = np.polynomial.Polynomial(
        [0.0, 1 / 2, 0.0, 1 / 16, 0.0, 1 / 384, 0.0, 1 / 18432, 0.0, 1 / 1474560, 0.0, 1 / 176947200]
    )
    for order, derivative in enumerate((first, second, third), 1):
        for run in (derivative, fb.jit(derivative)):
            np.testing.assert_allclose(run(x).numpy(), expected.deriv(order)(x.numpy()), rtol=3e-10, atol=1e-15)
