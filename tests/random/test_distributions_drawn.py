"""Draws of distributions: against SciPy for three seeds, equal on every engine and at any split, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import random
from firebrick.random import Generator

stats = pytest.importorskip("scipy.stats")

COUNT = 4000
SEEDS = [0, 1, 2]
ENGINES = ["numpy", "torch:cpu"]
INF = float("inf")
LEAST_P = 1e-4
"""Probability below which a test of a right sampler fails; about 100 are made, of fixed seeds."""

CONTINUOUS: dict[str, tuple[Callable[..., Any], Any]] = {
    "exponential": (lambda **how: random.exponential(COUNT, rate=2.5, **how), stats.expon(scale=0.4)),
    "gumbel": (lambda **how: random.gumbel(COUNT, loc=1.0, scale=2.0, **how), stats.gumbel_r(1, 2)),
    "laplace": (lambda **how: random.laplace(COUNT, loc=1.0, scale=2.0, **how), stats.laplace(1, 2)),
    "truncated normal": (
        lambda **how: random.truncated_normal(COUNT, low=-1.0, high=3.0, mean=0.5, std=1.5, **how),
        stats.truncnorm(-1, 2.5 / 1.5, 0.5, 1.5),
    ),
    "tail of a normal": (lambda **how: random.truncated_normal(COUNT, low=4.0, high=INF, **how), stats.truncnorm(4, np.inf)),
    **{
        f"gamma {a}": (lambda a=a, **how: random.gamma(COUNT, alpha=a, rate=2.0, **how), stats.gamma(a, scale=0.5))
        for a in (0.05, 0.7, 1.0, 3.3, 100.0)
    },
    "beta": (lambda **how: random.beta(COUNT, a=0.7, b=2.5, **how), stats.beta(0.7, 2.5)),
    "dirichlet": (
        lambda **how: random.dirichlet((COUNT, 3), alpha=fb.asarray([0.5, 1.0, 2.0]), **how)[:, 0],
        stats.beta(0.5, 3.0),
    ),
}
COUNTS: dict[str, tuple[Callable[..., Any], Any]] = {
    **{
        f"poisson {r}": (lambda r=r, **how: random.poisson(COUNT, rate=r, **how), stats.poisson(r))
        for r in (0.3, 9.9, 10.0, 60.0, 1e4)
    },
    **{
        f"binomial {n} {p}": (lambda n=n, p=p, **how: random.binomial(COUNT, n=n, p=p, **how), stats.binom(n, p))
        for n, p in ((5, 0.3), (100, 0.05), (100, 0.2), (1000, 0.9), (100_000, 0.37))
    },
    "multinomial": (
        lambda **how: random.multinomial((COUNT, 3), n=12, p=fb.asarray([0.2, 0.3, 0.5]), **how)[:, 1],
        stats.binom(12, 0.3),
    ),
}


def parted(x: np.ndarray[Any, Any], law: Any) -> float:
    """The p-value of a χ² test of counts."""
    edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 20)))
    seen = np.histogram(x, np.concatenate([[-np.inf], edges + 0.5, [np.inf]]))[0]
    wanted = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]])) * x.size
    used = wanted > 5
    return float(stats.chisquare(seen[used], wanted[used] * seen[used].sum() / wanted[used].sum()).pvalue)


def check_moments(x: np.ndarray[Any, Any], law: Any) -> None:
    mean, variance, kurtosis = law.stats("mvk")
    assert abs(x.mean() - mean) <= 4.5 * math.sqrt(variance / x.size)
    assert abs(x.var() - variance) <= 4.5 * variance * math.sqrt((kurtosis + 2) / x.size)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_have_the_distribution_function_and_moments_of_scipy(name: str, seed: int) -> None:
    sample, law = CONTINUOUS[name]
    x = sample(generator=Generator(seed), dtype=fb.float64).numpy()
    assert stats.kstest(x, law.cdf).pvalue > LEAST_P
    check_moments(x, law)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_have_the_probabilities_and_moments_of_scipy(name: str, seed: int) -> None:
    sample, law = COUNTS[name]
    x = sample(generator=Generator(seed)).numpy()
    assert x.dtype == np.int64
    assert parted(x, law) > LEAST_P
    check_moments(x, law)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_equal_on_every_engine_up_to_rounding(name: str, engine: str) -> None:
    sample, _ = CONTINUOUS[name]
    if name == "dirichlet":
        with fb.use_device(engine):
            there = sample(generator=Generator(7), dtype=fb.float64).numpy()
    else:
        there = sample(generator=Generator(7), dtype=fb.float64, device=engine).numpy()
    np.testing.assert_allclose(there, sample(generator=Generator(7), dtype=fb.float64).numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_equal_on_every_engine(name: str, engine: str) -> None:
    sample, _ = COUNTS[name]
    with fb.use_device(engine):
        there = sample(generator=Generator(7)).numpy()
    assert np.array_equal(there, sample(generator=Generator(7)).numpy())


def draws(name: str) -> Callable[[Generator, int], fb.Tensor]:
    """A draw of some rows of a batch."""
    return {
        "gamma": lambda g, n: random.gamma((n, 3), alpha=fb.asarray([0.3, 1.0, 5.0]), generator=g),
        "beta": lambda g, n: random.beta((n, 3), a=0.5, b=2.0, generator=g),
        "poisson": lambda g, n: random.poisson((n, 3), rate=fb.asarray([0.3, 5.0, 50.0]), generator=g),
        "binomial": lambda g, n: random.binomial((n, 3), n=100, p=fb.asarray([0.01, 0.5, 0.9]), generator=g),
        "categorical": lambda g, n: random.categorical(fb.broadcast_to(fb.asarray([0.0, 1.0, 2.0]), (n, 3)), 2, generator=g),
        "gumbel": lambda g, n: random.gumbel((n, 3), generator=g),
        "multinomial": lambda g, n: random.multinomial((n, 3), n=5, p=fb.ones(3), generator=g),
    }[name]


NAMES = ["gamma", "beta", "poisson", "binomial", "categorical", "gumbel", "multinomial"]


@pytest.mark.parametrize("name", NAMES)
def test_a_share_of_a_batch_draws_what_the_whole_one_would(name: str) -> None:
    whole = draws(name)(Generator(4), 10).numpy()
    with random.row_offset(6):
        assert np.array_equal(draws(name)(Generator(4), 4).numpy(), whole[6:])


@pytest.mark.parametrize("name", NAMES)
def test_compiled_functions_draw_the_same_and_go_on(name: str) -> None:
    eager, compiled = Generator(9), Generator(9)
    run = fb.jit(lambda: draws(name)(compiled, 8))
    for _ in range(2):
        np.testing.assert_allclose(run().numpy(), draws(name)(eager, 8).numpy(), rtol=1e-6)


# gradients


@pytest.mark.parametrize("alpha", [0.2, 1.0, 1.7, 9.0, 150.0])
def test_the_gradient_of_a_gamma_number_is_that_of_the_inverse_distribution_function(alpha: float) -> None:
    from firebrick.ops.special import gamma_slope

    a = max(alpha, 1.0)
    q = np.asarray([1e-4, 0.01, 0.2, 0.5, 0.8, 0.99, 0.9999])
    z = stats.gamma(a).ppf(q)
    step = 1e-4 * a
    points = [stats.gamma(a + k * step).ppf(q) for k in (-2, -1, 1, 2)]
    want = (points[0] - 8 * points[1] + 8 * points[2] - points[3]) / (12 * step) / z
    found = gamma_slope(fb.full(q.shape, a, dtype=fb.float64), fb.asarray(np.log(z))).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_gamma_number_has_first_and_second_derivatives_in_both_modes() -> None:
    def f(a: fb.Tensor) -> fb.Tensor:
        return fb.sum(random.gamma((5,), alpha=a, generator=Generator(0)))

    a, step = fb.asarray(2.0, dtype=fb.float64), 1e-3
    q = stats.gamma(2.0).cdf(random.gamma((5,), alpha=a, generator=Generator(0)).numpy())
    up, here, down = (stats.gamma(2.0 + k * step).ppf(q) for k in (1, 0, -1))
    assert fb.grad(f)(a).item() == pytest.approx((up - down).sum() / (2 * step), rel=1e-6)
    assert fb.jvp(f, (a,), (fb.ones_like(a),))[1].item() == pytest.approx((up - down).sum() / (2 * step), rel=1e-6)
    assert fb.grad(fb.grad(f))(a).item() == pytest.approx((up - 2 * here + down).sum() / step**2, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "mean"),
    [("gamma", lambda a: a * (a + 1)), ("beta", lambda a: a * (a + 1) / ((a + 2) * (a + 3)))],
)
@pytest.mark.parametrize("alpha", [0.6, 2.5])
def test_gradients_of_expectations_are_right(name: str, mean: Callable[[float], float], alpha: float) -> None:
    def f(a: fb.Tensor) -> fb.Tensor:
        if name == "gamma":
            x = random.gamma((20_000,), alpha=a, generator=Generator(0))
        else:
            x = random.beta((20_000,), a=a, b=2.0, generator=Generator(0))
        return fb.mean(x * x)

    slope = fb.grad(f)(fb.asarray(alpha, dtype=fb.float64)).item()
    want = (mean(alpha + 1e-5) - mean(alpha - 1e-5)) / 2e-5
    assert slope == pytest.approx(want, rel=0.05)


def test_gradients_pass_through_locations_and_scales() -> None:
    def f(p: dict[str, fb.Tensor]) -> fb.Tensor:
        g = Generator(2)
        return (
            fb.sum(random.gumbel((8,), loc=p["a"], scale=p["b"], generator=g))
            + fb.sum(random.laplace((8,), loc=p["a"], scale=p["b"], generator=g))
            + fb.sum(random.exponential((8,), rate=p["b"], generator=g))
            + fb.sum(random.truncated_normal((8,), low=-1.0, high=2.0, mean=p["a"], std=p["b"], generator=g))
            + fb.sum(random.dirichlet((8, 2), alpha=p["b"], generator=g)[:, 0])
        )

    start = {"a": fb.asarray(0.4, dtype=fb.float64), "b": fb.asarray(1.3, dtype=fb.float64)}
    found = fb.grad(f)(start)
    for key in start:
        ends = [f({**start, key: start[key] + s * 1e-5}).item() for s in (1, -1)]
        assert math.isfinite(found[key].item())
        if key == "a":  # the slope of the Dirichlet numbers is implicit, not that of draws from equal bits
            assert found[key].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


# choices


def test_what_has_no_weight_is_never_drawn_and_the_rest_in_proportion() -> None:
    weights = fb.asarray([0.0, 1.0, 0.0, 3.0, 0.0])
    found = random.choice(5, (COUNT,), p=weights, generator=Generator(0)).numpy()
    assert set(found) == {1, 3}
    assert abs((found == 3).mean() - 0.75) < 4.5 * math.sqrt(0.75 * 0.25 / COUNT)
    rows = random.categorical(fb.log(fb.asarray([[0.0, 1.0], [5.0, 0.0]])), 50, generator=Generator(0)).numpy()
    assert (rows == [[1], [0]]).all()


def test_draws_without_replacement_are_all_different() -> None:
    for p in (None, fb.asarray([1.0, 2.0, 3.0, 4.0, 5.0])):
        found = random.choice(5, (5,), replace=False, p=p, generator=Generator(3))
        assert sorted(found.tolist()) == [0, 1, 2, 3, 4]
    first = [random.choice(2, 1, replace=False, p=fb.asarray([1.0, 4.0]), generator=Generator(s)).item() for s in range(400)]
    assert abs(np.mean(first) - 0.8) < 0.09
    assert random.choice(fb.asarray([[1, 2], [3, 4]]), (3,), generator=Generator(0)).shape == (3, 2)


def test_smallest_gamma_numbers_do_not_underflow_in_ratios() -> None:
    x = random.dirichlet((200, 3), alpha=1e-3, generator=Generator(0)).numpy()
    np.testing.assert_allclose(x.sum(-1), 1.0, rtol=1e-6)
    assert np.isfinite(x).all()


# what does not fit

Call = Callable[[], Any]
REFUSED: list[tuple[Call, type[Exception], str]] = [
    (lambda: random.gamma((2,), alpha=0.0), fb.ConfigError, "gamma: alpha is finite and > 0"),
    (lambda: random.gamma((2,), alpha=fb.asarray([1.0, -1.0])), fb.OutOfRangeError, "gamma: alpha is finite and > 0"),
    (lambda: random.gamma((2,), alpha=fb.asarray([1.0, fb.nan])), fb.OutOfRangeError, "gamma: alpha"),
    (lambda: random.gamma((2,), alpha=fb.ones(3)), fb.ShapeError, "alpha broadcasts to the shape"),
    (lambda: random.gamma((2,), alpha=1.0, dtype=fb.int32), fb.DTypeError, "floating dtype"),
    (lambda: random.gamma((2,), alpha=fb.ones(2), device="numpy"), fb.DeviceMismatchError, "alpha"),
    (lambda: random.poisson((2,), rate=-1.0), fb.ConfigError, "rate is finite and ≥ 0"),
    (lambda: random.binomial((2,), n=3, p=1.5), fb.ConfigError, r"p is in \[0, 1\]"),
    (lambda: random.exponential((2,), rate=INF), fb.ConfigError, "rate is finite"),
    (lambda: random.gumbel((2,), scale=-1.0), fb.ConfigError, "scale is finite and ≥ 0"),
    (lambda: random.truncated_normal((2,), low=2.0, high=1.0), fb.OutOfRangeError, "a probability of 1e-12 or more"),
    (lambda: random.truncated_normal((2,), low=9.0, high=10.0), fb.OutOfRangeError, "a probability of 1e-12 or more"),
    (lambda: random.categorical(fb.asarray([-INF, -INF])), fb.OutOfRangeError, "categorical: each row has a largest number"),
    (lambda: random.categorical(fb.asarray([0.0, fb.nan])), fb.OutOfRangeError, "categorical"),
    (lambda: random.categorical(fb.zeros((2, 0))), fb.ShapeError, "at least one choice"),
    (lambda: random.multinomial((2,), n=-1, p=fb.ones(2)), fb.ConfigError, "n is an int ≥ 0"),
    (lambda: random.multinomial((2,), n=1, p=fb.zeros(2)), fb.OutOfRangeError, "a weight that is not 0"),
    (lambda: random.choice(0), fb.ConfigError, "at least 1 elements"),
    (lambda: random.choice(3, 4, replace=False), fb.ConfigError, "at least 4 elements"),
    (lambda: random.choice(3, p=fb.ones(2)), fb.ShapeError, "one weight for each of the 3"),
    (lambda: random.choice(3, 2, replace=False, p=fb.asarray([1.0, 0.0, 0.0])), fb.OutOfRangeError, "2 or more weights"),
    (lambda: random.dirichlet((), alpha=1.0), fb.ShapeError, "counts the components"),
    (lambda: random.multinomial((), n=1, p=1.0), fb.ShapeError, "the last axis of the shape counts the outcomes"),
    (lambda: random.multinomial((2, 0), n=1, p=1.0), fb.ShapeError, "the last axis of the shape counts the outcomes"),
    (lambda: random.choice(fb.asarray(3.0)), fb.ShapeError, "choice takes a tensor of at least one axis, or an int"),
    (lambda: random.poisson((2,), rate=1.0, dtype=fb.bool), fb.DTypeError, "poisson draws integers"),
    (lambda: random.poisson((2,), rate=1.0, dtype=fb.complex64), fb.DTypeError, "poisson draws integers"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_what_does_not_fit_is_refused(call: Call, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_compiled_functions_refuse_values_that_do_not_fit() -> None:
    run = fb.jit(lambda a: random.gamma((2,), alpha=a))
    run(fb.ones(2))
    with pytest.raises(fb.OutOfRangeError, match="gamma: alpha"):
        run(fb.asarray([1.0, -1.0]))


def test_parameters_may_be_integers_and_bounds_infinite() -> None:
    assert random.gamma((2,), alpha=fb.asarray([1, 2])).dtype is fb.float32
    x = random.truncated_normal((100, 2), low=fb.asarray([-INF, 0.0]), high=fb.asarray([0.0, INF]), generator=Generator(0))
    assert ((x.numpy() <= 0) == [True, False]).all()


def test_bounds_without_values_are_not_compared() -> None:
    assert random.truncated_normal((0, 2), low=fb.zeros(2), high=1.0).shape == (0, 2)
    of_meta = fb.full((2,), 2.0, device="meta")
    assert random.truncated_normal((3, 2), low=of_meta, high=1.0).shape == (3, 2)


def test_counts_may_be_of_a_floating_dtype() -> None:
    for dtype in (fb.float32, fb.uint8):
        assert random.poisson((2,), rate=1.0, dtype=dtype).dtype is dtype


def test_an_empty_draw_and_one_of_no_axes() -> None:
    assert random.gamma((0, 3), alpha=2.0).shape == (0, 3)
    assert random.poisson((), rate=3.0).shape == ()
    assert random.binomial((2, 0), n=3, p=0.5).shape == (2, 0)
    assert random.choice(7).shape == ()
    assert random.multinomial((0, 3), n=4, p=fb.ones(3)).shape == (0, 3)


@pytest.mark.parametrize("name", ["gamma", "poisson", "binomial", "categorical", "gumbel"])
def test_each_example_under_vmap_draws_its_row_of_the_batch(name: str) -> None:
    means = fb.asarray([0.5, 2.0, 20.0])

    def sample(a: fb.Tensor, shape: tuple[int, ...], g: Generator) -> fb.Tensor:
        if name == "binomial":
            return random.binomial(shape, n=30.0, p=a / 40.0, generator=g)
        if name == "categorical":
            return random.categorical(fb.zeros((*shape, 4)) * fb.expand_dims(a, axis=-1), generator=g)
        key = {"gamma": "alpha", "poisson": "rate", "gumbel": "loc"}[name]
        return getattr(random, name)(shape, **{key: a}, generator=g)

    one, other = Generator(5), Generator(5)
    rows = fb.vmap(lambda a: sample(a, (2,), one))(means)
    np.testing.assert_allclose(rows.numpy(), sample(means[:, None], (3, 2), other).numpy(), rtol=1e-6)
