"""Distributions of positive numbers and of shares: exponential, gamma, beta and Dirichlet."""

from __future__ import annotations

import math

from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe
from firebrick.core.precision import in_float32
from firebrick.core.tensor import Tensor
from firebrick.distributions.base import Distribution, Value, inside
from firebrick.distributions.large import comparable, log_beta, log_poisson, spread
from firebrick.functions.elementwise import (
    equal,
    greater_equal,
    isinf,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_or,
    square,
    where,
)
from firebrick.functions.scaled import divisor
from firebrick.functions.special import digamma, lgamma
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.utility import all as all_
from firebrick.random import Generator
from firebrick.random import beta as beta_numbers
from firebrick.random import dirichlet as dirichlet_numbers
from firebrick.random import exponential as exponential_numbers
from firebrick.random import gamma as gamma_numbers
from firebrick.random.settings import POSITIVE


def times_log(x: Tensor, y: Tensor) -> Tensor:
    """x · log y; 0 where x is 0 and log y infinite. Elsewhere an x of 0 has its gradient, log y."""
    none = logical_and(equal(x, 0.0), isinf(log(y)))
    return where(none, 0.0, x * log(where(none, 1.0, y)))


class Exponential(Distribution):
    """Numbers ≥ 0 of density rate · exp(-rate · x).

    Args:
        rate: 1 / mean, > 0; a number or a floating tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Exponential(4.0).mean.item()
        0.25
    """

    reparametrised = True
    rate: Tensor

    def __init__(self, rate: Value) -> None:
        self._take({"rate": (rate, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return exponential_numbers(shape, rate=self.rate, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        return where(greater_equal(x, 0.0), log(self.rate) - self.rate * x, -math.inf)

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1.0 / square(self.rate)

    def entropy(self) -> Tensor:
        return 1.0 - log(self.rate)


class Gamma(Distribution):
    """Numbers > 0 of density rate^alpha · x^(alpha - 1) · exp(-rate · x) / Γ(alpha).

    ``Gamma(k / 2, 0.5)`` is the χ² distribution with k degrees of freedom.

    Args:
        alpha: Shape of the distribution, > 0; a number or a floating tensor.
        rate: Rate, > 0: the mean is alpha / rate.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Gamma(3.0, 2.0).mean.item()
        1.5
    """

    reparametrised = True
    alpha: Tensor
    rate: Tensor

    def __init__(self, alpha: Value, rate: Value = 1.0) -> None:
        self._take({"alpha": (alpha, POSITIVE), "rate": (rate, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return gamma_numbers(shape, alpha=self.alpha, rate=self.rate, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = greater_equal(x, 0.0)
        return where(possible, _gamma(inside(possible, x, 1.0), self.alpha, self.rate), -math.inf)

    @property
    def mean(self) -> Tensor:
        return self.alpha / self.rate

    @property
    def variance(self) -> Tensor:
        return self.alpha / self.rate / self.rate

    def entropy(self) -> Tensor:
        return _gamma_entropy(self.alpha, self.rate)


class Beta(Distribution):
    """Numbers in [0, 1], of which 0 and 1 are not drawn, of density x^(a - 1) · (1 - x)^(b - 1) / B(a, b).

    Args:
        a: Number or floating tensor, > 0.
        b: Number or floating tensor, > 0: the mean is a / (a + b).

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Beta(1.0, 3.0).mean.item()
        0.25
    """

    reparametrised = True
    a: Tensor
    b: Tensor

    def __init__(self, a: Value, b: Value) -> None:
        self._take({"a": (a, POSITIVE), "b": (b, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return beta_numbers(shape, a=self.a, b=self.b, generator=generator)

    def log_norm(self) -> Tensor:
        """log B(a, b).

        Example:
            >>> import firebrick as fb
            >>> fb.distributions.Beta(1.0, 1.0).log_norm().item()
            0.0
        """
        return _log_beta(self.a, self.b)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = logical_and(greater_equal(x, 0.0), less_equal(x, 1.0))
        return where(possible, _beta(inside(possible, x, 0.5), self.a, self.b), -math.inf)

    @property
    def mean(self) -> Tensor:
        return _beta_mean(self.a, self.b)

    @property
    def variance(self) -> Tensor:
        return _beta_variance(self.a, self.b)

    def entropy(self) -> Tensor:
        return _beta_entropy(self.a, self.b)


class Dirichlet(Distribution):
    """Points of the simplex, k numbers ≥ 0 with the sum 1, of a density in proportion to Π x_i^(alpha_i - 1).

    Args:
        alpha: Floating tensor [..., k], > 0: the concentration of each component.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Dirichlet(fb.asarray([1.0, 3.0])).mean.tolist()
        [0.25, 0.75]
    """

    reparametrised = True
    alpha: Tensor

    def __init__(self, alpha: Tensor) -> None:
        self._take({"alpha": (alpha, POSITIVE)}, events=1)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return dirichlet_numbers((*shape, *self.event_shape), alpha=self.alpha, generator=generator)

    def log_norm(self) -> Tensor:
        """The logarithm of the density's denominator, Π Γ(alpha_i) / Γ(Σ alpha_i).

        Example:
            >>> import firebrick as fb
            >>> fb.distributions.Dirichlet(fb.ones(2)).log_norm().item()
            0.0
        """
        return _dirichlet_norm(self.alpha)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        if x.shape[-1:] != self.event_shape:
            raise ShapeError(
                f"Dirichlet: value has {self.event_shape[0]} components last", describe("value", x), "check its last axis"
            )
        possible = all_(logical_and(greater_equal(x, 0.0), less_equal(x, 1.0)), axis=-1)
        y = where(possible[..., None], x, 1.0 / self.event_shape[0])
        return where(possible, _dirichlet(y, self.alpha), -math.inf)

    @property
    def mean(self) -> Tensor:
        return _dirichlet_mean(self.alpha)

    @property
    def variance(self) -> Tensor:
        return _dirichlet_variance(self.alpha)

    def entropy(self) -> Tensor:
        return _dirichlet_entropy(self.alpha)


# formulas: in float32 for half precision, where sums of shapes and logarithms of gamma functions overflow


@in_float32
def _gamma(x: Tensor, alpha: Tensor, rate: Tensor) -> Tensor:
    near = comparable(alpha, rate * x)
    a, y, m = where(near, alpha, 16.0), where(near, x, 16.0), where(near, rate * x, 16.0)
    b, z, r = where(near, 1.0, alpha), where(near, 1.0, x), where(near, 1.0, rate)
    return where(near, log_poisson(a, m) + log(a / y), b * log(r) + times_log(b - 1.0, z) - r * z - lgamma(b))


@in_float32
def _gamma_entropy(alpha: Tensor, rate: Tensor) -> Tensor:
    return spread(alpha) - log(rate)


_log_beta = in_float32(log_beta)


@in_float32
def _beta(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    total, y = a + b, 1.0 - x
    near = logical_and(comparable(a, total * x), comparable(b, total * y))
    p, q, s = where(near, a, 16.0), where(near, b, 16.0), where(near, total, 32.0)
    u, v = where(near, x, 0.5), where(near, y, 0.5)
    of_large = log_poisson(p, s * u) + log_poisson(q, s * v) - log_poisson(s, s) + log(p / (s * u)) + log(q / v)
    rest = b - 1.0
    none = logical_or(near, logical_and(equal(rest, 0.0), equal(x, 1.0)))
    other = where(none, 0.0, rest * log1p(-where(none, 0.0, x)))
    return where(near, of_large, times_log(a - 1.0, x) + other - log_beta(a, b))


@in_float32
def _beta_mean(a: Tensor, b: Tensor) -> Tensor:
    return a / divisor(a + b)


@in_float32
def _beta_variance(a: Tensor, b: Tensor) -> Tensor:
    total = a + b
    return a / total * (b / total) / (total + 1.0)


@in_float32
def _beta_entropy(a: Tensor, b: Tensor) -> Tensor:
    total = a + b
    return spread(a) + spread(b) - spread(total) - digamma(total)


@in_float32
def _dirichlet_norm(alpha: Tensor) -> Tensor:
    return sum_(lgamma(alpha), axis=-1) - lgamma(sum_(alpha, axis=-1))


@in_float32
def _dirichlet(x: Tensor, alpha: Tensor) -> Tensor:
    return sum_(times_log(alpha - 1.0, x), axis=-1) - _dirichlet_norm(alpha)


@in_float32
def _dirichlet_mean(alpha: Tensor) -> Tensor:
    return alpha / divisor(sum_(alpha, axis=-1, keepdims=True))


@in_float32
def _dirichlet_variance(alpha: Tensor) -> Tensor:
    total = sum_(alpha, axis=-1, keepdims=True)
    return alpha / total * ((total - alpha) / total) / (total + 1.0)


@in_float32
def _dirichlet_entropy(alpha: Tensor) -> Tensor:
    total, others = sum_(alpha, axis=-1), float(alpha.shape[-1] - 1)
    return sum_(spread(alpha), axis=-1) - spread(total) - others * digamma(total)
