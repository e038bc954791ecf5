"""Gradients by parameters at which a term of a density vanishes: a shape of 1, equal locations."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb
from firebrick import distributions as d

DEVICES = ["cpu", "numpy"]
STEP = 1e-5
X = np.array([0.2, 0.5, 0.9])


def on(device: str, *values: float) -> fb.Tensor:
    return fb.asarray(np.array(values), device=device)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_a_shape_of_one_has_the_gradient_of_its_density(device: str, compiled: bool) -> None:
    x = on(device, *X)
    densities = {
        "Gamma": lambda a: fb.sum(d.Gamma(a, 2.0).log_prob(x)),
        "Beta, first": lambda a: fb.sum(d.Beta(a, 2.5).log_prob(x)),
        "Beta, second": lambda a: fb.sum(d.Beta(2.5, a).log_prob(x)),
        "Dirichlet": lambda a: fb.sum(d.Dirichlet(a).log_prob(x / fb.sum(x)) * 2.0),
    }
    at = np.ones(3)
    for name, density in densities.items():
        gradient = fb.grad(density)
        expected = np.empty(3)
        for i, step in enumerate(np.eye(3) * STEP):
            expected[i] = (density(on(device, *(at + step))).item() - density(on(device, *(at - step))).item()) / (2 * STEP)
        found = (fb.jit(gradient) if compiled else gradient)(on(device, *at))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-7, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
def test_a_shape_of_one_at_the_end_of_the_support_has_no_nan(device: str) -> None:
    one, ends = on(device, 1.0, 1.0), on(device, 0.0, 1.0)
    for density in (
        lambda a, x: fb.sum(d.Gamma(a, 1.0).log_prob(x)),
        lambda a, x: fb.sum(d.Beta(a, 1.0).log_prob(x)),
        lambda a, x: fb.sum(d.Beta(1.0, a).log_prob(x)),
        lambda a, x: fb.sum(d.Dirichlet(a).log_prob(x)),
    ):
        value, (by_shape, by_value) = fb.value_and_grad(lambda both, density=density: density(*both))((one, ends))
        assert np.isfinite(value.item())
        assert not np.isnan(by_shape.numpy()).any()
        assert not np.isnan(by_value.numpy()).any()


@pytest.mark.parametrize("device", DEVICES)
def test_the_divergence_of_laplace_distributions_curves_where_they_are_equal(device: str) -> None:
    scale = on(device, 2.0)

    def divergence(loc):
        return fb.sum(d.kl_divergence(d.Laplace(loc, scale), d.Laplace(on(device, 0.0), scale * 1.5)))

    assert fb.grad(divergence)(on(device, 0.0)).tolist() == [0.0]
    # |m| / q + s / q · exp(-|m| / s) has the second derivative 1 / (s · q) at 0
    np.testing.assert_allclose(fb.hessian(divergence)(on(device, 0.0)).numpy(), [[1 / (2.0 * 3.0)]], rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_divergences_of_distributions_far_apart_have_their_gradients(device: str) -> None:
    """In float32 that of a Poisson distribution with mean 1e-10 from one with mean 1 had the slope 0 by its mean, in place of
    -23, and that of Laplace distributions 1e8 scales apart the slope 0 by the scale."""
    rates = [(1e-10, 1.0), (1e-4, 1e4), (1e8, 1e-8), (3.0, 4.0), (1.0, 1.0001)]
    p, q = (fb.asarray(np.array(r, np.float32), device=device) for r in zip(*rates, strict=True))
    slope = fb.grad(lambda p: fb.sum(d.kl_divergence(d.Poisson(p), d.Poisson(q))))(p).numpy()
    wide = [t.numpy().astype(np.float64) for t in (p, q)]
    np.testing.assert_allclose(slope, np.log(wide[0] / wide[1]), rtol=1e-5)
    apart, scale = np.array([1e8, 1e5, 3.0, 0.5, 1e5, 0.1], np.float32), np.array([2.0, 1, 2, 2, 1e-6, 1e-6], np.float32)
    far = d.Laplace(fb.asarray(apart, device=device), fb.asarray(scale, device=device))
    first = fb.asarray(np.ones(6, np.float32), device=device)
    slope = fb.grad(lambda s: fb.sum(d.kl_divergence(d.Laplace(s * 0.0, s), far)))(first).numpy()
    np.testing.assert_allclose(slope, -1.0 + np.exp(-apart) * (1 + apart) / scale, rtol=1e-5)
