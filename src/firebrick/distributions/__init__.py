"""Probability distributions: samples, logarithms of probabilities, moments, entropies and divergences."""

import firebrick.random as _random  # noqa: F401  before its parts
from firebrick.distributions.base import Distribution
from firebrick.distributions.counting import Bernoulli, Binomial, Categorical, Geometric, Multinomial, Poisson
from firebrick.distributions.divergence import kl_divergence
from firebrick.distributions.positive import Beta, Dirichlet, Exponential, Gamma
from firebrick.distributions.real import Cauchy, Gumbel, HalfNormal, Laplace, LogNormal, Normal, StudentT, Uniform
from firebrick.distributions.vectors import Independent, MultivariateNormal

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "Poisson",
    "StudentT",
    "Uniform",
    "kl_divergence",
]
