"""Distributions against ``torch.distributions``: logarithms of probabilities, moments, entropies, divergences and samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick import distributions as d
from firebrick.random import Generator
from firebrick.testing import engines

torch = pytest.importorskip("torch")
td = torch.distributions

RNG = np.random.default_rng(3)
A, B, C = (RNG.uniform(0.3, 4.0, 5) for _ in range(3))
REAL = RNG.normal(size=5)
CHANCE = RNG.uniform(0.05, 0.95, 5)
LOGITS = RNG.normal(size=(5, 4))
TRIL = np.tril(RNG.normal(size=(3, 3)) * 0.3, -1) + np.diag([0.7, 1.3, 2.0])
COVARIANCE = TRIL @ TRIL.T
OTHER_TRIL = np.eye(3) * 2 + np.tril(TRIL, -1)
POINTS = RNG.dirichlet(np.ones(4), 5)
COUNTS = RNG.multinomial(7, [0.1, 0.2, 0.3, 0.4], 5)

Make = Callable[[Any, Any], Any]
# name → how to make it from a library's arrays and distributions; values; whether there is an entropy
FAMILIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "Normal": (lambda t: d.Normal(t(REAL), t(A)), lambda t: td.Normal(t(REAL), t(A)), REAL * 3),
    "LogNormal": (lambda t: d.LogNormal(t(REAL), t(A)), lambda t: td.LogNormal(t(REAL), t(A)), B),
    "HalfNormal": (lambda t: d.HalfNormal(t(A)), lambda t: td.HalfNormal(t(A)), B),
    "Laplace": (lambda t: d.Laplace(t(REAL), t(A)), lambda t: td.Laplace(t(REAL), t(A)), REAL * 3),
    "Cauchy": (lambda t: d.Cauchy(t(REAL), t(A)), lambda t: td.Cauchy(t(REAL), t(A)), REAL * 3),
    "Gumbel": (lambda t: d.Gumbel(t(REAL), t(A)), lambda t: td.Gumbel(t(REAL), t(A)), REAL * 3),
    "Uniform": (lambda t: d.Uniform(t(-A), t(B)), lambda t: td.Uniform(t(-A), t(B)), REAL * 0.1),
    "StudentT": (lambda t: d.StudentT(t(A + 2), t(REAL), t(B)), lambda t: td.StudentT(t(A + 2), t(REAL), t(B)), REAL * 3),
    "Exponential": (lambda t: d.Exponential(t(A)), lambda t: td.Exponential(t(A)), B),
    "Gamma": (lambda t: d.Gamma(t(A), t(B)), lambda t: td.Gamma(t(A), t(B)), C),
    "Beta": (lambda t: d.Beta(t(A), t(B)), lambda t: td.Beta(t(A), t(B)), CHANCE),
    "Dirichlet": (lambda t: d.Dirichlet(t(POINTS * 9)), lambda t: td.Dirichlet(t(POINTS * 9)), POINTS[::-1].copy()),
    "Bernoulli": (lambda t: d.Bernoulli(t(CHANCE)), lambda t: td.Bernoulli(t(CHANCE)), np.asarray([0.0, 1, 1, 0, 1])),
    "Bernoulli logits": (
        lambda t: d.Bernoulli(logits=t(REAL)), lambda t: td.Bernoulli(logits=t(REAL)), np.asarray([0.0, 1, 1, 0, 1]),
    ),
    "Binomial": (lambda t: d.Binomial(9, t(CHANCE)), lambda t: td.Binomial(9, t(CHANCE)), np.asarray([0.0, 3, 9, 4, 1])),
    "Binomial logits": (
        lambda t: d.Binomial(9, logits=t(REAL)), lambda t: td.Binomial(9, logits=t(REAL)), np.asarray([0.0, 3, 9, 4, 1]),
    ),
    "Geometric": (lambda t: d.Geometric(t(CHANCE)), lambda t: td.Geometric(t(CHANCE)), np.asarray([0.0, 3, 9, 4, 1])),
    "Poisson": (lambda t: d.Poisson(t(A)), lambda t: td.Poisson(t(A)), np.asarray([0.0, 3, 9, 4, 1])),
    "Categorical": (
        lambda t: d.Categorical(logits=t(LOGITS)), lambda t: td.Categorical(logits=t(LOGITS)), np.asarray([0.0, 3, 1, 2, 1]),
    ),
    "Multinomial": (lambda t: d.Multinomial(7, t(POINTS)), lambda t: td.Multinomial(7, t(POINTS)), COUNTS.astype(float)),
    "MultivariateNormal": (
        lambda t: d.MultivariateNormal(t(LOGITS[:, :3]), t(COVARIANCE)),
        lambda t: td.MultivariateNormal(t(LOGITS[:, :3]), t(COVARIANCE)),
        LOGITS[::-1, :3].copy(),
    ),
    "Independent": (
        lambda t: d.Independent(d.Normal(t(LOGITS), t(POINTS)), 1),
        lambda t: td.Independent(td.Normal(t(LOGITS), t(POINTS)), 1),
        LOGITS[::-1].copy(),
    ),
}  # fmt: skip
OTHERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "Normal": (lambda t: d.Normal(t(-REAL), t(B)), lambda t: td.Normal(t(-REAL), t(B))),
    "LogNormal": (lambda t: d.LogNormal(t(-REAL), t(B)), lambda t: td.LogNormal(t(-REAL), t(B))),
    "HalfNormal": (lambda t: d.HalfNormal(t(B)), lambda t: td.HalfNormal(t(B))),
    "Laplace": (lambda t: d.Laplace(t(-REAL), t(B)), lambda t: td.Laplace(t(-REAL), t(B))),
    "Gumbel": (lambda t: d.Gumbel(t(-REAL), t(B)), lambda t: td.Gumbel(t(-REAL), t(B))),
    "Uniform": (lambda t: d.Uniform(t(-B - 1), t(B + 0.5)), lambda t: td.Uniform(t(-B - 1), t(B + 0.5))),
    "Exponential": (lambda t: d.Exponential(t(C)), lambda t: td.Exponential(t(C))),
    "Gamma": (lambda t: d.Gamma(t(C), t(A)), lambda t: td.Gamma(t(C), t(A))),
    "Beta": (lambda t: d.Beta(t(C), t(A)), lambda t: td.Beta(t(C), t(A))),
    "Dirichlet": (lambda t: d.Dirichlet(t(POINTS + 1)), lambda t: td.Dirichlet(t(POINTS + 1))),
    "Bernoulli": (lambda t: d.Bernoulli(t(1 - CHANCE)), lambda t: td.Bernoulli(t(1 - CHANCE))),
    "Binomial": (lambda t: d.Binomial(9, t(1 - CHANCE)), lambda t: td.Binomial(9, t(1 - CHANCE))),
    "Geometric": (lambda t: d.Geometric(t(1 - CHANCE)), lambda t: td.Geometric(t(1 - CHANCE))),
    "Poisson": (lambda t: d.Poisson(t(B)), lambda t: td.Poisson(t(B))),
    "Categorical": (lambda t: d.Categorical(t(POINTS)), lambda t: td.Categorical(t(POINTS))),
    "MultivariateNormal": (
        lambda t: d.MultivariateNormal(t(LOGITS[:, 1:]), scale_tril=t(OTHER_TRIL)),
        lambda t: td.MultivariateNormal(t(LOGITS[:, 1:]), scale_tril=t(OTHER_TRIL)),
    ),
    "Independent": (
        lambda t: d.Independent(d.Normal(t(-LOGITS), t(POINTS + 1)), 1),
        lambda t: td.Independent(td.Normal(t(-LOGITS), t(POINTS + 1)), 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_logarithms_of_probabilities_moments_and_entropies_are_pytorchs(name: str) -> None:
    ours, theirs, values = FAMILIES[name]
    mine, other = ours(fb.asarray), theirs(torch.tensor)
    found, want = mine.log_prob(fb.asarray(values)), other.log_prob(torch.tensor(values))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-12)
    if name != "Categorical":
        for key in ("mean", "variance"):
            np.testing.assert_allclose(getattr(mine, key).numpy(), getattr(other, key), rtol=1e-12, err_msg=key)
    if name not in ("Binomial", "Binomial logits", "Poisson", "Multinomial"):
        np.testing.assert_allclose(mine.entropy().numpy(), other.entropy(), rtol=1e-11, atol=1e-12)
    assert mine.shape == tuple(other.batch_shape)
    assert mine.event_shape == tuple(other.event_shape)


@pytest.mark.parametrize("name", OTHERS)
def test_divergences_are_pytorchs(name: str) -> None:
    p, q = (FAMILIES[name][0](fb.asarray), OTHERS[name][0](fb.asarray))
    want = td.kl_divergence(FAMILIES[name][1](torch.tensor), OTHERS[name][1](torch.tensor))
    np.testing.assert_allclose(d.kl_divergence(p, q).numpy(), want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(d.kl_divergence(p, p).numpy(), np.zeros(want.shape), atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_have_the_moments_and_shapes_that_they_should(name: str) -> None:
    mine = FAMILIES[name][0](fb.asarray)
    x = mine.sample(4000, generator=Generator(1))
    assert x.shape == (4000, *mine.shape, *mine.event_shape)
    assert np.isfinite(mine.log_prob(x).numpy()).all()
    if name not in ("Cauchy", "Categorical", "StudentT"):
        mean, std = mine.mean.numpy(), mine.std.numpy()
        np.testing.assert_array_less(np.abs(x.numpy().mean(0) - mean), 5 * std / 4000**0.5 + 1e-9)
    if mine.reparametrised:
        assert mine.rsample(generator=Generator(1)).shape == (*mine.shape, *mine.event_shape)
    else:
        with pytest.raises(fb.UnsupportedError, match="rsample"):
            mine.rsample()


@pytest.mark.parametrize("name", [n for n, f in FAMILIES.items() if n not in ("Independent",)])
def test_gradients_of_the_logarithm_of_the_probability(name: str) -> None:
    ours, theirs, values = FAMILIES[name]
    leaves: list[Any] = []

    def leaf(x: Any) -> Any:
        leaves.append(torch.tensor(x, requires_grad=True))
        return leaves[-1]

    theirs(leaf).log_prob(torch.tensor(values)).sum().backward()
    want = [t.grad.numpy() for t in leaves]

    def f(parameters: list[fb.Tensor]) -> fb.Tensor:
        left = list(parameters)
        return fb.sum(ours(lambda _: left.pop(0)).log_prob(fb.asarray(values)))

    found = fb.jit(fb.grad(f))([fb.asarray(t.detach().numpy()) for t in leaves])
    if name in ("Multinomial",):  # PyTorch's gradient is by probabilities that need not add up to 1
        return
    for got, expected in zip(found, want, strict=True):
        if name == "MultivariateNormal" and got.ndim == 2 and got.shape == (3, 3):
            expected = (expected + expected.T) / 2
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-10)


def test_impossible_values_have_the_probability_0() -> None:
    inf = -math.inf
    assert d.Exponential(1.0).log_prob(-1.0).item() == inf
    assert d.Gamma(2.0).log_prob(-1.0).item() == inf
    assert d.Beta(2.0, 2.0).log_prob(1.5).item() == inf
    assert d.Uniform(0.0, 1.0).log_prob(1.0).item() == inf
    assert d.LogNormal(0.0, 1.0).log_prob(0.0).item() == inf
    assert d.Poisson(2.0).log_prob(1.5).item() == inf
    assert d.Binomial(3, 0.5).log_prob(4.0).item() == inf
    assert d.Geometric(0.5).log_prob(-1.0).item() == inf
    assert d.Bernoulli(0.5).log_prob(0.5).item() == inf
    assert d.Categorical(fb.ones(3)).log_prob(3.0).item() == inf
    assert d.Multinomial(3, fb.ones(2)).log_prob(fb.asarray([1.0, 1.0])).item() == inf
    assert d.Dirichlet(fb.ones(2)).log_prob(fb.asarray([-0.5, 1.5])).item() == inf


def test_certain_and_impossible_events_have_finite_logarithms_where_they_should() -> None:
    sure, never = d.Bernoulli(1.0), d.Bernoulli(0.0)
    assert (sure.log_prob(1.0).item(), sure.log_prob(0.0).item(), sure.entropy().item()) == (0.0, -math.inf, 0.0)
    assert never.log_prob(0.0).item() == 0.0
    assert d.kl_divergence(sure, d.Bernoulli(0.5)).item() == pytest.approx(math.log(2))
    assert d.kl_divergence(d.Bernoulli(0.5), sure).item() == math.inf
    never = d.Categorical(logits=fb.asarray([0.0, -math.inf]))
    assert never.log_prob(fb.asarray([0, 1])).tolist() == [0.0, -math.inf]
    assert never.entropy().item() == 0.0
    assert d.Binomial(3, 1.0).log_prob(3.0).item() == 0.0
    assert d.Poisson(0.0).log_prob(0.0).item() == 0.0


def test_a_parameter_is_found_through_samples() -> None:
    def loss(m: fb.Tensor) -> fb.Tensor:
        x = d.Gamma(fb.exp(m), 2.0).rsample(400, generator=source)
        return fb.mean((x - 1.0) ** 2.0)

    source, log_alpha = Generator(0), fb.asarray(1.0)
    for _ in range(40):
        log_alpha = log_alpha - 0.3 * fb.grad(loss)(log_alpha)
    assert math.exp(log_alpha.item()) == pytest.approx(1.5, rel=0.15)  # where α / 4 + (α / 2 - 1)² is least


def apart(axes: int) -> d.Independent:
    return d.Independent(d.Normal(fb.zeros((2, 3)), 1.0), axes)


def test_a_distribution_of_ones_own_is_asked_for_each_part_that_it_lacks() -> None:
    class Own(d.Distribution):
        """Has nothing but a shape."""

        shape = event_shape = ()

    own = Own()
    for part, call in {
        "_draw": lambda: own.sample((2,)),
        "log_prob": lambda: own.log_prob(1.0),
        "mean": lambda: own.mean,
        "variance": lambda: own.variance,
    }.items():
        with pytest.raises(NotImplementedError, match=f"Own has no {part}: write"):
            call()
    with pytest.raises(NotImplementedError, match="Own has no variance: write"):
        own.std  # noqa: B018


def test_classes_have_no_moments() -> None:
    p = d.Categorical(fb.ones((2, 3)))
    for moment in (p.mean, p.variance):
        assert moment.shape == (2,)
        assert np.isnan(moment.numpy()).all()


def test_covariances_and_denominators_are_those_of_the_definition() -> None:
    factor = fb.asarray([[2.0, 0.0], [1.0, 3.0]])
    found = d.MultivariateNormal(fb.zeros(2), scale_tril=factor).covariance
    np.testing.assert_array_equal(found.numpy(), [[4.0, 2.0], [2.0, 10.0]])
    found = d.Dirichlet(fb.asarray([2.0, 3.0])).log_norm()  # Γ(2) Γ(3) / Γ(5)
    assert found.item() == pytest.approx(math.log(1 * 2 / 24), rel=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    for call, error, text in (
        (lambda: d.Normal(0.0, -1.0), fb.ConfigError, "Normal: scale is finite and > 0"),
        (lambda: d.Normal(1e300, 1.0), fb.ConfigError, r"loc is finite in float32(.|\n)*loc=1e\+300, which is inf there"),
        (lambda: d.Normal(0.0, 1e-300), fb.ConfigError, r"scale is finite and > 0 in float32(.|\n)*which is 0.0 there"),
        (lambda: d.Normal(fb.zeros(2), fb.asarray([1.0, 0.0])), fb.OutOfRangeError, "Normal: scale"),
        (lambda: d.Normal(fb.zeros(2), fb.ones(3)), fb.ShapeError, "Normal"),
        (lambda: d.Bernoulli(), fb.ConfigError, "either probs or logits is given"),
        (lambda: d.Bernoulli(0.5, logits=0.0), fb.ConfigError, "either probs or logits is given"),
        (lambda: d.Bernoulli(1.5), fb.ConfigError, r"probs is in \[0, 1\]"),
        (lambda: d.Categorical(fb.zeros((2, 3))), fb.OutOfRangeError, "a weight that is not 0"),
        (lambda: d.Categorical(fb.asarray(0.5)), fb.ShapeError, "1 axes or more"),
        (lambda: d.Dirichlet(fb.ones(3)).log_prob(fb.ones(2)), fb.ShapeError, "3 components"),
        (lambda: d.MultivariateNormal(fb.zeros(2), fb.eye(3)), fb.ShapeError, r"\[\.\.\., n, n\]"),
        (lambda: d.MultivariateNormal(fb.zeros(2), -fb.eye(2)), fb.LinAlgError, "positive definite"),
        (lambda: d.Independent(d.Normal(0.0, 1.0), 1), fb.ConfigError, "1 axes or more"),
        (lambda: d.kl_divergence(d.Normal(0.0, 1.0), d.Gamma(1.0)), fb.UnsupportedError, "two distributions of one family"),
        (lambda: d.Poisson(1.0).entropy(), fb.UnsupportedError, "no closed form"),
        (lambda: d.Categorical(fb.zeros((2, 0))), fb.ShapeError, "Categorical: there is at least one class"),
        (lambda: d.Multinomial(2, fb.ones(3)).log_prob(fb.ones(2)), fb.ShapeError, "Multinomial: value has 3 counts last"),
        (lambda: d.MultivariateNormal([0.0], fb.eye(1)), fb.ConfigError, "loc and the matrices are tensors"),
        (lambda: d.MultivariateNormal(fb.zeros(1), scale_tril=[[1.0]]), fb.ConfigError, "loc and the matrices are tensors"),
        (lambda: d.MultivariateNormal(fb.zeros(2), fb.eye(2)).log_prob(fb.ones(3)), fb.ShapeError, "value has 2 numbers last"),
        (lambda: d.Normal(0.0, 1.0).log_prob(fb.ones(2, device="cpu:1")), fb.DeviceMismatchError, "Normal: all tensors must"),
        (lambda: d.kl_divergence(apart(1), apart(2)), fb.UnsupportedError, "two distributions of one family"),
    ):
        with pytest.raises(error, match=text):
            call()
    wide = d.Normal(fb.asarray(1e300, dtype=fb.float64), 1e-300)
    assert (wide.loc.item(), wide.scale.item()) == (1e300, 1e-300)


def _slopes(log_prob: Callable[..., Any], *arguments: Any) -> list[Any]:
    found = fb.grad(lambda a: fb.sum(log_prob(*a)))(tuple(fb.asarray(np.asarray(a, np.float64)) for a in arguments))
    return [g.numpy() for g in found]


ONES = np.ones(3)
INNER = np.asarray([0.2, 0.5, 0.9])


@pytest.mark.parametrize("concentration", [1.0, 0.5, 2.0])
def test_slopes_along_a_concentration_of_one_are_those_of_its_neighbours(concentration: float) -> None:
    a, b = ONES * concentration, ONES * (concentration + 0.5)
    pairs = {
        "Gamma": (lambda lib: lambda a, b: lib.Gamma(a, b), INNER), "Beta": (lambda lib: lambda a, b: lib.Beta(a, b), INNER),
        "Beta turned": (lambda lib: lambda a, b: lib.Beta(b, a), INNER),
    }  # fmt: skip
    for name, (of, values) in pairs.items():
        got = _slopes(lambda x, a, b, of=of: of(d)(a, b).log_prob(x), values, a, b)
        held = [torch.tensor(v, requires_grad=True) for v in (values, a, b)]
        of(td)(*held[1:]).log_prob(held[0]).sum().backward()
        for g, t in zip(got, held, strict=True):
            np.testing.assert_allclose(g, t.grad, rtol=1e-11, err_msg=name)
    shares = np.asarray([0.2, 0.3, 0.5])
    (got,) = _slopes(lambda a: d.Dirichlet(a).log_prob(fb.asarray(shares)), a)
    held = torch.tensor(a, requires_grad=True)
    td.Dirichlet(held).log_prob(torch.tensor(shares)).backward()
    np.testing.assert_allclose(got, held.grad, rtol=1e-11)


def test_slopes_at_certain_events_are_numbers() -> None:
    p = np.asarray([0.0, 1.0, 0.5])
    (got,) = _slopes(lambda p: d.Bernoulli(p).log_prob(fb.asarray([0.0, 1.0, 1.0])), p)
    np.testing.assert_allclose(got, [-1.0, 1.0, 2.0])
    (got,) = _slopes(lambda p: d.Binomial(5, p).log_prob(fb.asarray([0.0, 5.0, 2.0])), p)
    np.testing.assert_allclose(got, [-5.0, 5.0, -2.0])
    (got,) = _slopes(lambda p: d.Geometric(p).log_prob(fb.asarray([0.0, 2.0])), [1.0, 0.5])
    np.testing.assert_allclose(got, [1.0, -2.0])
    weights = [0.0, 1.0, 3.0]  # a class that never occurs
    (got,) = _slopes(lambda w: d.Categorical(w).log_prob(fb.asarray(1.0)), weights)
    np.testing.assert_allclose(got, [-0.25, 0.75, -0.25])
    (got,) = _slopes(lambda w: d.Multinomial(3, w).log_prob(fb.asarray([0.0, 1.0, 2.0])), weights)
    np.testing.assert_allclose(got, [-0.75, 0.25, 2.0 / 3.0 - 0.75])
    for family in (d.Bernoulli, d.Categorical):
        (got,) = _slopes(lambda p, family=family: family(p).entropy(), weights if family is d.Categorical else p)
        assert np.isfinite(got).all()
        assert got[0] > 10.0, "it rises from certainty"
    impossible = d.Categorical(fb.asarray(weights)).log_prob(fb.asarray([0.0, 1.0])).tolist()
    assert impossible == [-math.inf, pytest.approx(math.log(0.25), rel=1e-6)]


def test_densities_of_huge_numbers_and_parameters_do_not_overflow() -> None:
    x = np.asarray([1e-200, 0.5, 1e7, 1e9, 1e160, -1e300])
    stats = pytest.importorskip("scipy.stats")
    for scale in (1e-3, 1.0, 1e3):
        got = d.Cauchy(0.0, fb.asarray(scale, dtype=fb.float64)).log_prob(fb.asarray(x)).numpy()
        np.testing.assert_allclose(got, -np.log(np.pi * scale) - 2 * np.log(np.hypot(1.0, x / scale)), rtol=1e-13)
    single = d.Cauchy(0.0, 1.0).log_prob(fb.asarray([1e25], dtype=fb.float32))
    assert abs(single.item() + math.log(math.pi) + 2 * math.log(1e25)) < 1e-4
    for df in (1e-3, 0.7, 29.0, 61.0, 1e3, 1e5, 1e9, 1e15):
        student = d.StudentT(fb.asarray(df, dtype=fb.float64))
        points = np.asarray([0.0, 0.3, 2.0])
        exact = stats.t(df).logpdf(points)  # whose logarithms of gamma functions cancel where df is large
        if df > 1e4:
            exact = stats.norm.logpdf(points) + (points**4 - 2 * points**2 - 1) / (4 * df)
        within = 1e-12 + (30.0 / df**2 if df > 1e4 else 0.0)
        np.testing.assert_allclose(student.log_prob(fb.asarray(points)).numpy(), exact, rtol=1e-12, atol=within)


def test_bounds_and_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(fb.OutOfRangeError, match="Uniform: low is less than high"):
        d.Uniform(1.0, fb.asarray([2.0, 1.0]))
    with pytest.raises(fb.OutOfRangeError, match="Uniform: low is less than high"):
        d.Uniform(1.0, 0.0)
    with pytest.raises(fb.OutOfRangeError, match="low is less than high"):
        fb.jit(lambda low: d.Uniform(low, 1.0).log_prob(0.5))(fb.asarray(2.0))
    full = fb.asarray([[1.0, 0.5], [0.5, 1.0]])
    for factor in (full, fb.asarray([[1.0, 0.0], [0.5, -1.0]]), fb.asarray([[0.0, 0.0], [0.5, 1.0]])):
        with pytest.raises(fb.OutOfRangeError, match="lower triangular, with a positive diagonal"):
            d.MultivariateNormal(fb.zeros(2), scale_tril=factor)


@pytest.mark.turns
@pytest.mark.parametrize("device", ["cpu", "numpy", "torch:cpu"])
@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64])
def test_every_sample_has_a_density(dtype: fb.DType, device: str) -> None:
    def t(value: Any) -> fb.Tensor:
        return fb.asarray(value, dtype=dtype, device=device)

    made = (
        d.Beta(t(0.01), t(0.01)), d.Beta(t(0.05), t(300.0)), d.Dirichlet(t([0.01, 0.02, 3.0])), d.Dirichlet(t([0.5])),
        d.Gamma(t(0.01)), d.Gamma(t(0.3), t(1e4)), d.Uniform(t(1.0), t(2.0)), d.Cauchy(t(0.0), t(1.0)), d.StudentT(t(0.5)),
        d.Exponential(t(2.0)), d.Gumbel(t(0.0), t(1.0)), d.Laplace(t(0.0), t(1.0)),
    )  # fmt: skip
    for of in made:
        density = of.log_prob(of.sample(20_000, generator=Generator(5)))
        assert bool(fb.all(fb.isfinite(density))), of


def test_slopes_through_samples_at_the_edge_are_numbers() -> None:
    def density(a: fb.Tensor) -> fb.Tensor:
        return fb.sum(d.Beta(a, 0.01).log_prob(d.Beta(a, 0.01).rsample(500, generator=Generator(0))))

    def moved(high: fb.Tensor) -> fb.Tensor:
        return fb.mean(d.Uniform(0.0, high).rsample(5000, generator=Generator(0)))

    assert np.isfinite(fb.grad(density)(fb.asarray(0.01)).item())
    ones = Generator(0).uniform(5000, dtype=fb.bfloat16)
    assert fb.grad(moved)(fb.asarray(1.0, dtype=fb.bfloat16)).item() == fb.mean(ones).item()


@pytest.mark.parametrize(
    "make",
    [
        lambda t: d.Beta(t((3,)), 1.0), lambda t: d.Gamma(t((3,))), lambda t: d.StudentT(t((3,))), lambda t: d.Poisson(t((3,))),
        lambda t: d.Binomial(5, t((3,))), lambda t: d.Uniform(t((3,)), 2.0), lambda t: d.Dirichlet(t((3, 4))),
        lambda t: d.Multinomial(5, t((3, 4))), lambda t: d.Categorical(t((3, 4))),
    ],
)  # fmt: skip
def test_samples_on_meta_have_shapes_alone(make: Callable[[Any], d.Distribution]) -> None:
    of = make(lambda shape: fb.ones(shape, device="meta"))
    x = of.sample((7,))
    assert x.shape == (7, *of.shape, *of.event_shape)
    assert of.log_prob(x).shape == (7, *of.shape)


# parameters of any size, of which mpmath with 60 digits has the entropies and the logarithm of B(a, b)

GAMMAS = [
    (16.0, 2.784071458928986), (30.0, 3.1083331192877876), (1e3, 4.8724827560179718), (1e5, 7.1753979323481203),
    (1e8, 10.629278901847522), (1e20, 24.44478946314513),
]  # fmt: skip
BETAS = [
    (0.3, 1e8, -19.476649704174383, -4.4304062273176339), (1e3, 1e3, -3.0749100021471314, -1388.4826016359023),
    (50.0, 3e4, -6.9431840107053366, -370.92269997937765), (3e4, 1e8, -11.847726919145247, -273360.57743435151),
    (1e8, 1e8, -8.831122612111428, -138629444.05681731), (2.0, 17.0, -1.3984116642789431, -5.7235851019523808),
    (15.5, 16.5, -1.0237259088202282, -22.277554547158882), (1e-8, 1e20, -100000027.20823675, 18.42068027766319),
]  # fmt: skip
STUDENTS = [
    (40.0, 1.4440921331930636), (1e3, 1.4199387830378814), (1e6, 1.4189395332049227), (1e8, 1.4189385432046728),
    (1e20, 1.4189385332046727),
]  # fmt: skip


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("dtype", "rtol"), [(fb.float32, 1e-5), (fb.float64, 1e-13)])
def test_entropies_of_large_parameters(dtype: fb.DType, rtol: float, jit: bool) -> None:
    def held(function: Callable[..., Any], rows: Any, inputs: int, at: int) -> None:
        columns = [fb.asarray(c, dtype=dtype) for c in np.asarray(rows).T]
        found = (fb.jit(function) if jit else function)(*columns[:inputs])
        np.testing.assert_allclose(found.numpy(), np.asarray(rows)[:, at], rtol=rtol)

    held(lambda a: d.Gamma(a).entropy(), GAMMAS, 1, 1)
    held(lambda a: d.StudentT(a).entropy(), STUDENTS, 1, 1)
    held(lambda a, b: d.Beta(a, b).entropy(), BETAS, 2, 2)
    held(lambda a, b: d.Beta(b, a).entropy(), BETAS, 2, 2)
    held(lambda a, b: d.Beta(a, b).log_norm(), BETAS, 2, 3)
    held(lambda a, b: d.Beta(b, a).log_norm(), BETAS, 2, 3)
    held(lambda a, b: d.Dirichlet(fb.stack([a, b], axis=-1)).entropy(), BETAS, 2, 2)


# parameters (a, b), and divergences by mpmath: of Gamma(a, 2) from Gamma(b, 2.125), Beta(a, b) from Beta(b, a), Poisson(a) from
# Poisson(b), Normal(0, a) from Normal(0, b), Exponential(a) from Exponential(b)

DIVERGENCES = [
    (16.0, 17.0, 0.00095682303292854541, 0.0625,
     0.030006050937042519, 0.0035311962108985104, 0.0018753781835651574),
    (1000.0, 1001.0, 1.8152536450820476, 0.001,
     0.00049966691646683319, 9.9833558053666281e-7, 4.9966691646683319e-7),
    (100000.0, 100064.0, 183.67831829495148, 0.040947103059416197,
     0.020471266058824328, 4.0916347052027452e-7, 2.0471266058824328e-7),
    (16777216.0, 16776704.0, 31494.672486310018, 0.015625238889105359,
     0.0078126589493574687, 9.3136994608283388e-10, 4.6567076142772845e-10),
    (30000.0, 20000.0, 2553.2414678583659, 4054.7344155723846,
     2163.9532432449315, 0.21953489189183562, 0.072131774774831049),
    (500.0, 2000000.0, 14469377.305879474, 16585951.922008696,
     1995352.975179949, 7.7940496713520277, 3990.705950359898),
    (20.0, 3.0, 12.920296996027681, 34.811574171442592,
     20.942399697717626, 19.825102237336341, 1.0471199848858813),
    (2.0, 40.0, 88.265970654244314, 123.63463547958229,
     32.008535452892018, 2.496982273553991, 16.004267726446009),
]  # fmt: skip


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("dtype", "rtol"), [(fb.float32, 2e-5), (fb.float64, 1e-13)])
def test_divergences_of_large_and_of_near_parameters(dtype: fb.DType, rtol: float, jit: bool) -> None:
    a, b, *want = (fb.asarray(c, dtype=dtype) for c in np.asarray(DIVERGENCES).T)

    def found(a: fb.Tensor, b: fb.Tensor) -> list[fb.Tensor]:
        pairs = [
            (d.Gamma(a, 2.0), d.Gamma(b, 2.125)), (d.Beta(a, b), d.Beta(b, a)), (d.Poisson(a), d.Poisson(b)),
            (d.Normal(0.0, a), d.Normal(0.0, b)), (d.Exponential(a), d.Exponential(b)),
            (d.Dirichlet(fb.stack([a, b], axis=-1)), d.Dirichlet(fb.stack([b, a], axis=-1))),
            (d.HalfNormal(a), d.HalfNormal(b)),
        ]  # fmt: skip
        return [d.kl_divergence(p, q) for p, q in pairs]

    for got, wanted in zip((fb.jit(found) if jit else found)(a, b), [*want, want[1], want[3]], strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=rtol)


LARGE_COUNTS = [(15, 15.5), (16, 16.25), (17, 9.0), (40, 55.0), (400, 390.625), (5000, 4900.0), (5000, 9000.0), (5000, 1.5)]
"""Counts, and rates that float32 has."""


@cache
def _log_factorial(n: int) -> Decimal:
    with localcontext(prec=60):
        return Decimal(math.factorial(n)).ln()


def _exact(k: int, rate: float, n: int) -> tuple[float, ...]:
    """The logarithms of densities below, and the slopes of the first two by the rate."""
    with localcontext(prec=60):
        m, p, whole = Decimal(rate), Decimal(rate) / n, Decimal(n)
        poisson = k * m.ln() - m - _log_factorial(k)
        binomial = _log_factorial(n) - _log_factorial(k) - _log_factorial(n - k) + k * p.ln() + (n - k) * (1 - p).ln()
        gamma = k * Decimal(2).ln() + (k - 1) * (m / 2).ln() - m - _log_factorial(k - 1)
        beta = _log_factorial(n - 1) - _log_factorial(k - 1) - _log_factorial(n - k - 1)
        beta += (k - 1) * p.ln() + (n - k - 1) * (1 - p).ln()
        return tuple(map(float, (poisson, binomial, gamma, beta, (k - m) / m, (k - m) / m / (1 - p) * whole / n)))


PLACES = [
    (d, t) for d in ("cpu", "torch:cpu", "webgpu:0") for t in (fb.float32, fb.float64) if (d, t) != ("webgpu:0", fb.float64)
]


@pytest.mark.parametrize(("place", "jit"), turns_of(PLACES, [False, True]), ids=str)
def test_densities_of_large_parameters_near_their_means(place: tuple[str, fb.DType], jit: bool) -> None:
    device, dtype = place
    if device == "webgpu:0" and "webgpu" in engines().missing:
        pytest.skip(f"engine webgpu cannot be used here: {engines().missing['webgpu']}")
    n = 16384  # by which rates are divided exactly
    wanted = np.asarray([_exact(k, rate, n) for k, rate in LARGE_COUNTS]).T
    k, rate = (fb.asarray(np.asarray(c, dtype.np), device=device) for c in zip(*LARGE_COUNTS, strict=True))

    def found(k: fb.Tensor, rate: fb.Tensor) -> list[fb.Tensor]:
        p = rate / n
        return [
            d.Poisson(rate).log_prob(k), d.Binomial(float(n), p).log_prob(k), d.Gamma(k, 2.0).log_prob(rate / 2.0),
            d.Beta(k, n - k).log_prob(p), d.Binomial(float(n), logits=fb.log(p) - fb.log1p(-p)).log_prob(k),
        ]  # fmt: skip

    def slopes(k: fb.Tensor, rate: fb.Tensor) -> list[fb.Tensor]:
        return [
            fb.grad(lambda r: fb.sum(d.Poisson(r).log_prob(k)))(rate),
            fb.grad(lambda r: fb.sum(d.Binomial(float(n), r / n).log_prob(k)))(rate),
        ]

    eps = float(fb.finfo(dtype).eps)
    results = (fb.jit(found) if jit else found)(k, rate)
    for at, (got, want) in enumerate(zip(results, [*wanted[:4], wanted[1]], strict=True)):
        # logits of a small chance have errors of their own, which a count multiplies
        own = 0 if at < 4 else np.abs(np.asarray([c - r for c, r in LARGE_COUNTS])) * 20 * eps
        assert (np.abs(got.numpy() - want) <= 40 * eps * np.maximum(1.0, np.abs(want)) + own).all(), (at, got.numpy(), want)
    for got, want in zip((fb.jit(slopes) if jit else slopes)(k, rate), wanted[4:], strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=40 * eps)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_counts_of_many_draws(dtype: fb.DType, jit: bool) -> None:
    weights = [8, 4, 2, 1, 1]  # over 16, which every dtype has
    counts = [
        [4096, 2048, 1024, 512, 512],
        [4100, 2050, 1020, 510, 512],
        [8000, 100, 20, 60, 12],
        [8192, 0, 0, 0, 0],
        [2, 3, 8187, 0, 0],
    ]
    wanted = []
    with localcontext(prec=60):
        for row in counts:
            ways = _log_factorial(8192) - sum(map(_log_factorial, row))
            wanted.append(float(ways + sum(k * (Decimal(w) / 16).ln() for k, w in zip(row, weights, strict=True))))

    def found(k: fb.Tensor, w: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        return d.Multinomial(8192, w).log_prob(k), d.Multinomial(8192, logits=fb.log(w)).log_prob(k)

    eps = float(fb.finfo(dtype).eps)
    for got in (fb.jit(found) if jit else found)(fb.asarray(counts, dtype=dtype), fb.asarray(weights, dtype=dtype)):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=40 * eps, atol=40 * eps)


@pytest.mark.parametrize("n", [15, 16, 40])
def test_the_slope_by_a_weight_of_0_is_that_of_the_sum(n: int) -> None:
    k = fb.asarray([0.0, n // 2, n - n // 2], dtype=fb.float64)
    for first in (0.0, 1e-12):
        weights = fb.asarray([first, 0.5, 0.5], dtype=fb.float64)
        slopes = fb.grad(lambda w: d.Multinomial(n, w).log_prob(k))(weights).numpy()
        np.testing.assert_allclose(slopes, [-n, k.numpy()[1] * 2 - n, k.numpy()[2] * 2 - n], atol=1e-9)


@pytest.mark.parametrize("n", [2.0, 20.0, 1000.0])
def test_the_slope_by_the_number_of_draws(n: float) -> None:
    for k in (0.0, 1.0, n - 1, n):
        for how in ({"probs": 0.6}, {"logits": math.log(1.5)}):
            given = {key: fb.asarray(v, dtype=fb.float64) for key, v in how.items()}
            got = fb.grad(lambda q, given=given, k=k: d.Binomial(q, **given).log_prob(k))(fb.asarray(n, dtype=fb.float64))
            at = torch.tensor([n + 1, n - k + 1], dtype=torch.float64)
            want = float(torch.digamma(at[0]) - torch.digamma(at[1])) + math.log(0.4)
            assert got.item() == pytest.approx(want, rel=1e-9, abs=1e-9), (n, k)


def test_densities_of_chances_that_are_0_or_1_and_of_extreme_logits() -> None:
    n, k = 100.0, fb.asarray([0.0, 30.0, 70.0, 100.0])
    assert d.Binomial(n, 0.0).log_prob(k).tolist() == [0.0, -math.inf, -math.inf, -math.inf]
    assert d.Binomial(n, 1.0).log_prob(k).tolist() == [-math.inf, -math.inf, -math.inf, 0.0]
    got = d.Binomial(n, logits=-200.0).log_prob(k).numpy()
    want = td.Binomial(100, logits=torch.tensor(-200.0, dtype=torch.float64)).log_prob(
        torch.tensor(k.numpy(), dtype=torch.float64)
    )
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert d.Poisson(0.0).log_prob(k).tolist() == [0.0, -math.inf, -math.inf, -math.inf]
    assert d.Beta(30.0, 30.0).log_prob(fb.asarray([0.0, 1.0])).tolist() == [-math.inf, -math.inf]
    assert d.Gamma(30.0, 1.0).log_prob(0.0).item() == -math.inf
    for of, x in (
        (lambda p: d.Binomial(n, p).log_prob(k), fb.asarray([0.25, 0.3, 0.7, 0.9])),
        (lambda r: d.Poisson(r).log_prob(k), fb.asarray([1.0, 30.0, 300.0, 100.0])),
        (lambda a: d.Gamma(a, 2.0).log_prob(15.0), fb.asarray([1.0, 29.0, 300.0, 30.0])),
        (lambda a: d.Beta(a, 40.0).log_prob(0.5), fb.asarray([1.0, 39.0, 300.0, 40.0])),
    ):
        assert np.isfinite(fb.grad(lambda x, of=of: fb.sum(of(x)))(x).numpy()).all()


def test_slopes_of_entropies_of_large_parameters() -> None:
    a, b = np.asarray([0.5, 3.0, 20.0, 20.0, 1e3]), np.asarray([0.5, 40.0, 20.0, 2.0, 1e4])
    for of in (lambda lib, a, b: lib.Beta(a, b), lambda lib, a, b: lib.Gamma(a, b), lambda lib, a, b: lib.StudentT(a, 0.0, b)):
        got = fb.grad(lambda p, of=of: fb.sum(of(d, *p).entropy()))((fb.asarray(a), fb.asarray(b)))
        held = [torch.tensor(v, requires_grad=True) for v in (a, b)]
        of(td, *held).entropy().sum().backward()
        for g, t in zip(got, held, strict=True):
            np.testing.assert_allclose(g.numpy(), t.grad, rtol=1e-8, atol=1e-12)
    got = fb.grad(lambda p: fb.sum(d.Beta(*p).log_norm()))((fb.asarray(a), fb.asarray(b)))
    for g, own in zip(got, (a, b), strict=True):
        want = torch.special.digamma(torch.tensor(own)) - torch.special.digamma(torch.tensor(a + b))
        np.testing.assert_allclose(g.numpy(), want, rtol=1e-11)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("device", ["cpu", "numpy", "torch:cpu"])
@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16])
def test_large_parameters_in_half_precision(dtype: fb.DType, device: str, jit: bool) -> None:
    size = [30_000.0, 1_000.0, 50.0]
    makes: dict[str, tuple[Callable[..., Any], float]] = {
        "Beta": (lambda lib, p: lib.Beta(p, p), 0.5), "Gamma": (lambda lib, p: lib.Gamma(p, 2.0 * p / p), 500.0),
        "StudentT": (lambda lib, p: lib.StudentT(p, 2.0 * p / p, p), 300.0),
    }  # fmt: skip
    reads = (lambda of, x: of.log_prob(x), lambda of, x: of.mean, lambda of, x: of.variance, lambda of, x: of.entropy())
    p = fb.asarray(size, dtype=dtype, device=device)
    exact = torch.tensor(p.numpy().astype(np.float64))
    for name, (make, value) in makes.items():
        for k, read in enumerate(reads):

            def of(p: fb.Tensor, make: Any = make, read: Any = read, value: float = value) -> Any:
                return read(make(d, p), value)

            got = (fb.jit(of) if jit else of)(p)
            want = read(
                make(td, exact), torch.tensor(float(fb.asarray(value, dtype=dtype).numpy()), dtype=torch.float64)
            ).numpy()
            limit = 65504.0 if dtype is fb.float16 else np.inf
            assert got.dtype is dtype
            want = np.where(np.abs(want) > limit, np.sign(want) * np.inf, want)
            np.testing.assert_allclose(
                got.numpy().astype(np.float64),
                want,
                rtol=2e-3 if dtype is fb.float16 else 1e-2,
                atol=2e-3,
                err_msg=f"{name} {k}",
            )


@pytest.mark.parametrize("jit", [False, True])
def test_counts_and_divergences_in_half_precision(jit: bool) -> None:
    def half(value: Any) -> fb.Tensor:
        return fb.asarray(value, dtype=fb.float16)

    def double(value: Any) -> Any:
        return torch.tensor(value, dtype=torch.float64)

    of: dict[str, Callable[[Any, Any, Any], Any]] = {
        "Poisson": lambda lib, t, _: lib.Poisson(t(2e4)).log_prob(t(2e4)),
        "Binomial": lambda lib, t, _: lib.Binomial(20_000, t(0.5)).log_prob(t(1e4)),
        "Multinomial": lambda lib, t, _: lib.Multinomial(20_000, t([0.5, 0.5])).log_prob(t([1e4, 1e4])),
        "Uniform": lambda lib, t, _: lib.Uniform(t(-6e4), t(6e4)).log_prob(t(1.0)),
        "Uniform's entropy": lambda lib, t, _: lib.Uniform(t(-6e4), t(6e4)).entropy(),
        "Beta": lambda lib, t, kl: kl(lib.Beta(t(1e3), t(1e3)), lib.Beta(t(1.1e3), t(1e3))),
        "Gamma": lambda lib, t, kl: kl(lib.Gamma(t(1e4), t(1.0)), lib.Gamma(t(1.1e4), t(1.0))),
        "Dirichlet": lambda lib, t, kl: kl(lib.Dirichlet(t([1e3, 2e3])), lib.Dirichlet(t([1.1e3, 2e3]))),
        "Normal": lambda lib, t, kl: kl(
            lib.Independent(lib.Normal(t([300.0, 1.0]), t([1.0, 1.0])), 1),
            lib.Independent(lib.Normal(t([0.0, 0.0]), t([300.0, 1.0])), 1),
        ),
    }
    for name, make in of.items():
        got = (fb.jit(make) if jit else make)(d, half, d.kl_divergence)
        assert got.dtype is fb.float16, name
        want = make(td, lambda v: double(half(v).numpy().astype(np.float64)), td.kl_divergence)
        np.testing.assert_allclose(got.item(), want.item(), rtol=3e-3, err_msg=name)


@pytest.mark.parametrize("jit", [False, True])
def test_uniform_numbers_of_half_precision_whose_width_has_no_half(jit: bool) -> None:
    low, high = (fb.asarray(v, dtype=fb.float16) for v in (-60000.0, 60000.0))

    def draw(low: fb.Tensor, high: fb.Tensor) -> fb.Tensor:
        return d.Uniform(low, high).sample((400,), generator=Generator(0))

    x = (fb.jit(draw) if jit else draw)(low, high).numpy().astype(np.float64)
    assert -60000.0 <= x.min() < -50000.0 < 50000.0 < x.max() < 60000.0
    assert abs(x.mean()) < 5 * 120000.0 / math.sqrt(12 * 400)


def test_an_impossible_number_of_failures_changes_no_gradient_also_where_the_first_trial_succeeds() -> None:
    for p in (1.0, 0.5):
        slope = fb.grad(lambda p: fb.sum(fb.exp(d.Geometric(p).log_prob(fb.asarray([-1.0, 0.5, 0.0])))))(fb.asarray(p))
        assert slope.item() == 1.0


def test_weights_of_one_are_weights_like_others() -> None:
    probs = fb.asarray([1.0, 1.0, 2.0, 0.0])
    want = np.log(np.array([0.25, 0.25, 0.5, 0.0]), where=[True, True, True, False], out=np.full(4, -np.inf))
    np.testing.assert_allclose(fb.distributions.Categorical(probs).logits.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(fb.distributions.Multinomial(3, probs).logits.numpy(), want, rtol=1e-6)
