"""Samples of every distribution and sampler against SciPy: Kolmogorov-Smirnov tests of numbers, χ² tests of counts, for three
seeds that were chosen before any sample was drawn.

Each case gives numbers whose law SciPy knows: components and projections of vectors too. A test of a right sampler fails
with probability ``LEAST_P``; about 130 are made of each size. ``tests/random`` has more parameters of some samplers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import distributions as d
from firebrick import random
from firebrick.random import Generator

stats = pytest.importorskip("scipy.stats")

SEEDS = (2026, 11, 23)
SIZES = [2000, pytest.param(200_000, marks=pytest.mark.soak)]
LEAST_P = 1e-5
F64 = fb.float64
Draw = Callable[[int, Generator], fb.Tensor]


def value(x: Any) -> fb.Tensor:
    return fb.asarray(x, dtype=F64)


def of(make: Callable[[], d.Distribution], pick: Callable[[fb.Tensor], fb.Tensor] = lambda x: x) -> Draw:
    """Samples of a distribution, or one number of each."""
    return lambda count, generator: pick(make().sample((count,), generator=generator))


SPREAD = np.asarray([[2.0, 0.6], [0.6, 0.5]])
WEIGHTS = np.asarray([0.5, 0.0, 0.3, 0.2])
NUMBERS: dict[str, tuple[Draw, Any]] = {
    "Normal": (of(lambda: d.Normal(value(-1.0), 2.5)), stats.norm(-1, 2.5)),
    "LogNormal": (of(lambda: d.LogNormal(value(0.3), 0.8)), stats.lognorm(0.8, scale=math.exp(0.3))),
    "HalfNormal": (of(lambda: d.HalfNormal(value(1.5))), stats.halfnorm(scale=1.5)),
    "Laplace": (of(lambda: d.Laplace(value(1.0), 0.4)), stats.laplace(1, 0.4)),
    "Cauchy": (of(lambda: d.Cauchy(value(-2.0), 0.7)), stats.cauchy(-2, 0.7)),
    "Gumbel": (of(lambda: d.Gumbel(value(0.5), 3.0)), stats.gumbel_r(0.5, 3)),
    "Uniform": (of(lambda: d.Uniform(value(-3.0), 5.0)), stats.uniform(-3, 8)),
    "StudentT": (of(lambda: d.StudentT(value(3.5), 1.0, 2.0)), stats.t(3.5, 1, 2)),
    "Exponential": (of(lambda: d.Exponential(value(0.7))), stats.expon(scale=1 / 0.7)),
    "Gamma": (of(lambda: d.Gamma(value(0.4), 2.0)), stats.gamma(0.4, scale=0.5)),
    "Beta": (of(lambda: d.Beta(value(2.0), 0.8)), stats.beta(2, 0.8)),
    "Dirichlet": (of(lambda: d.Dirichlet(value([0.5, 1.5, 3.0])), lambda x: x[:, 1]), stats.beta(1.5, 3.5)),
    "MultivariateNormal": (
        of(lambda: d.MultivariateNormal(value([1.0, -1.0]), value(SPREAD)), lambda x: x @ value([0.6, -2.0])),
        stats.norm(2.6, math.sqrt(np.asarray([0.6, -2.0]) @ SPREAD @ np.asarray([0.6, -2.0]))),
    ),
    "Independent": (
        of(lambda: d.Independent(d.Normal(value([0.0, 1.0, 2.0]), 0.5), 1), lambda x: fb.sum(x, axis=-1)),
        stats.norm(3, 0.5 * math.sqrt(3)),
    ),
    "random.uniform": (lambda n, g: g.uniform((n,), low=-1.0, high=0.5, dtype=F64), stats.uniform(-1, 1.5)),
    "random.uniform, float32": (lambda n, g: g.uniform((n,)), stats.uniform()),
    "random.normal": (lambda n, g: g.normal((n,), mean=2.0, std=0.3, dtype=F64), stats.norm(2, 0.3)),
    "random.normal, float32": (lambda n, g: g.normal((n,)), stats.norm()),
    **{
        f"random.{name}, float32": (draw, law)
        for name, draw, law in (
            ("exponential", lambda n, g: random.exponential(n, rate=2.0, generator=g), stats.expon(scale=0.5)),
            ("gumbel", lambda n, g: random.gumbel(n, generator=g), stats.gumbel_r()),
            ("laplace", lambda n, g: random.laplace(n, generator=g), stats.laplace()),
            ("gamma", lambda n, g: random.gamma(n, alpha=1.7, generator=g), stats.gamma(1.7)),
            ("beta", lambda n, g: random.beta(n, a=3.0, b=0.6, generator=g), stats.beta(3, 0.6)),
            (
                "truncated_normal", lambda n, g: random.truncated_normal(n, low=-0.5, high=2.0, generator=g),
                stats.truncnorm(-0.5, 2),
            ),
        )
    },
    "random.dirichlet": (
        lambda n, g: random.dirichlet((n, 2), alpha=value([0.7, 1.1]), generator=g)[:, 0], stats.beta(0.7, 1.1)
    ),
}  # fmt: skip


def classes(p: Any) -> Any:
    """The law of class numbers with these probabilities."""
    return stats.rv_discrete(values=(np.arange(len(p)), np.asarray(p) / np.sum(p)))


COUNTS: dict[str, tuple[Draw, Any]] = {
    "Bernoulli": (of(lambda: d.Bernoulli(value(0.35))), stats.bernoulli(0.35)),
    "Binomial": (of(lambda: d.Binomial(40, value(0.15))), stats.binom(40, 0.15)),
    "Geometric": (of(lambda: d.Geometric(value(0.2))), stats.geom(0.2, loc=-1)),
    "Poisson": (of(lambda: d.Poisson(value(6.5))), stats.poisson(6.5)),
    "Categorical": (of(lambda: d.Categorical(value(WEIGHTS))), classes(WEIGHTS)),
    "Multinomial": (of(lambda: d.Multinomial(9, value(WEIGHTS)), lambda x: x[:, 2]), stats.binom(9, 0.3)),
    "random.bernoulli": (lambda n, g: fb.astype(g.bernoulli((n,), p=0.8), fb.int64), stats.bernoulli(0.8)),
    "random.integers": (lambda n, g: g.integers((n,), low=-3, high=7), stats.randint(-3, 7)),
    "random.integers, a power of two": (lambda n, g: g.integers((n,), low=0, high=8), stats.randint(0, 8)),
    "random.permutation": (
        lambda n, g: fb.stack([g.permutation(12)[3] for _ in range(min(n, 600))]), stats.randint(0, 12)
    ),
    "random.categorical": (
        lambda n, g: random.categorical(fb.log(value(WEIGHTS + 0.1)), n, generator=g), classes(WEIGHTS + 0.1)
    ),
    "random.choice": (lambda n, g: random.choice(6, (n,), generator=g), stats.randint(0, 6)),
    "random.choice with weights": (lambda n, g: random.choice(4, (n,), p=value(WEIGHTS), generator=g), classes(WEIGHTS)),
    "random.choice without replacement": (
        lambda n, g: fb.stack([random.choice(5, 2, replace=False, generator=g)[1] for _ in range(min(n, 600))]),
        stats.randint(0, 5),
    ),
    "random.binomial": (lambda n, g: random.binomial(n, n=300, p=0.6, generator=g), stats.binom(300, 0.6)),
    "random.poisson": (lambda n, g: random.poisson(n, rate=37.0, generator=g), stats.poisson(37)),
    "random.multinomial": (
        lambda n, g: random.multinomial((n, 4), n=7, p=value(WEIGHTS), generator=g)[:, 0], stats.binom(7, 0.5)
    ),
}  # fmt: skip


def p_of_numbers(x: np.ndarray[Any, Any], law: Any) -> float:
    assert np.isfinite(x).all()
    return float(stats.kstest(x.astype(np.float64), law.cdf).pvalue)


def p_of_counts(x: np.ndarray[Any, Any], law: Any) -> float:
    """The p-value of a χ² test over values, those at both ends together so that more than five are expected of each group."""
    low, high = int(law.ppf(1e-9)), int(law.ppf(1 - 1e-9))
    values = np.arange(low, high + 1)
    assert ((x >= law.support()[0]) & (x <= law.support()[1])).all()
    seen = np.asarray([(x == v).sum() for v in values])
    wanted = law.pmf(values) * x.size
    assert seen[wanted == 0].sum() == 0, "what has no probability is never drawn"
    groups, held = [], [0.0, 0.0]
    for s, w in zip(seen, wanted, strict=True):
        held = [held[0] + s, held[1] + w]
        if held[1] > 5:
            groups.append(held)
            held = [0.0, 0.0]
    groups[-1] = [groups[-1][0] + held[0], groups[-1][1] + held[1]]
    table = np.asarray(groups)
    return float(stats.chisquare(table[:, 0], table[:, 1] * table[:, 0].sum() / table[:, 1].sum()).pvalue)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_the_distribution_function_of_scipy(name: str, seed: int, size: int) -> None:
    draw, law = NUMBERS[name]
    assert p_of_numbers(draw(size, Generator(seed)).numpy(), law) > LEAST_P


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_have_the_probabilities_of_scipy(name: str, seed: int, size: int) -> None:
    draw, law = COUNTS[name]
    assert p_of_counts(draw(size, Generator(seed)).numpy(), law) > LEAST_P


def test_every_distribution_and_every_sampler_has_a_case() -> None:
    named = {name.partition(",")[0].partition(" ")[0] for name in (*NUMBERS, *COUNTS)}
    families = {n for n in d.__all__ if isinstance(getattr(d, n), type)} - {"Distribution"}
    no_samplers = {
        "Generator", "default_generator", "initial_generator", "row_offset", "seed", "set_state", "state",
    }  # fmt: skip
    samplers = {f"random.{n}" for n in random.__all__ if n not in no_samplers}
    assert named == families | samplers


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_that_are_slightly_wrong_are_noticed(seed: int) -> None:
    x = Generator(seed).normal((2000,), dtype=F64).numpy()
    for wrong in (x * 1.35, x + 0.2, np.abs(x), np.round(x, 0)):
        assert p_of_numbers(wrong, stats.norm()) < LEAST_P
    n = Generator(seed).integers((2000,), low=0, high=10).numpy()
    for bad in (np.minimum(n, 8), np.where(n == 3, 4, n), n[n != 0][: 10**6]):
        assert p_of_counts(bad, stats.randint(0, 10)) < LEAST_P
