"""Kullback-Leibler divergences of two distributions of a family, in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from firebrick.core.autocast import NARROW
from firebrick.core.dtypes import float32, promote
from firebrick.core.errors import UnsupportedError
from firebrick.core.precision import narrowed
from firebrick.core.tensor import Tensor
from firebrick.distributions.base import Distribution
from firebrick.distributions.counting import Bernoulli, Binomial, Categorical, Geometric, Poisson, _of_log
from firebrick.distributions.large import log_excess, log_gamma_excess, log_ratio
from firebrick.distributions.positive import Beta, Dirichlet, Exponential, Gamma
from firebrick.distributions.real import _EULER, Gumbel, HalfNormal, Laplace, LogNormal, Normal, Uniform
from firebrick.distributions.vectors import Independent, MultivariateNormal
from firebrick.functions.elementwise import (
    equal,
    exp,
    expm1,
    greater_equal,
    less,
    less_equal,
    log,
    logical_and,
    square,
    where,
)
from firebrick.functions.matrices import solve_triangular
from firebrick.functions.special import lgamma
from firebrick.functions.statistical import sum as sum_


def _normal(p: Any, q: Any) -> Any:
    return _half_normal(p, q) + square((p.loc - q.loc) / q.scale) * 0.5


def _half_normal(p: Any, q: Any) -> Any:
    apart = (p.scale - q.scale) / q.scale
    return log_excess(apart * (apart + 2.0), square(p.scale / q.scale)) * 0.5


def _laplace(p: Any, q: Any) -> Any:
    apart, ratio = p.loc - q.loc, p.scale / q.scale
    apart = where(less(apart, 0.0), -apart, apart)  # abs has the slope 0 at 0, and with it the second derivative would be 0
    steps = apart / p.scale
    # not ratio · steps, and far apart not 1 taken from both ratio and exp(-steps): their slopes by p.scale cancel
    near = logical_and(_near(ratio), less(steps, 1.0))
    r, s = where(near, ratio, 1.0), where(near, steps, 0.0)
    close = log_excess(where(near, (p.scale - q.scale) / q.scale, 0.0), r) + r * expm1(-s)
    return apart / q.scale + where(near, close, ratio * exp(-steps) - 1.0 - log(ratio))


def _near(ratio: Tensor) -> Tensor:
    return logical_and(less(0.75, ratio), less(ratio, 1.25))


def _gumbel(p: Any, q: Any) -> Any:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -log(ratio) + apart + ratio * _EULER + exp(lgamma(ratio + 1.0) - apart) - (1.0 + _EULER)


def _uniform(p: Any, q: Any) -> Any:
    within = logical_and(greater_equal(p.low, q.low), less_equal(p.high, q.high))
    return where(within, log((q.high - q.low) / (p.high - p.low)), math.inf)


def _exponential(p: Any, q: Any) -> Any:
    return log_excess((q.rate - p.rate) / p.rate, q.rate / p.rate)


def _gamma(p: Any, q: Any) -> Any:
    apart, ratio = (q.rate - p.rate) / p.rate, q.rate / p.rate
    rates = p.alpha * log_excess(apart, ratio) - (q.alpha - p.alpha) * log_ratio(apart, ratio)
    return log_gamma_excess(p.alpha, q.alpha) + rates


def _beta(p: Any, q: Any) -> Any:
    return log_gamma_excess(p.a, q.a) + log_gamma_excess(p.b, q.b) - log_gamma_excess(p.a + p.b, q.a + q.b)


def _dirichlet(p: Any, q: Any) -> Any:
    total = log_gamma_excess(sum_(p.alpha, axis=-1), sum_(q.alpha, axis=-1))
    return sum_(log_gamma_excess(p.alpha, q.alpha), axis=-1) - total


def _difference(weight: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """weight · (first - second); 0 where the weight is 0."""
    none = equal(weight, 0.0)
    return where(none, 0.0, weight * (where(none, 0.0, first) - where(none, 0.0, second)))


def _bernoulli(p: Any, q: Any) -> Any:
    return _difference(p.probs, p._log_p, q._log_p) + _difference(p._rest(), p._log_rest, q._log_rest)


def _binomial(p: Any, q: Any) -> Any:
    return where(equal(p.n, q.n), p.n * _bernoulli(p, q), math.inf)


def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - _of_log(p.mean, q._log_rest) - q._log_p


def _poisson(p: Any, q: Any) -> Any:
    none = equal(p.rate, 0.0)
    rate = where(none, 1.0, p.rate)
    apart, ratio = where(none, 1.0, q.rate) - rate, where(none, 1.0, q.rate / rate)
    near = _near(ratio)
    # of far rates, the slopes of the two factors of rate · log_excess by p.rate cancel
    far = apart - rate * log(where(near, 1.0, ratio))
    return where(none, q.rate, where(near, rate * log_excess(where(near, apart / rate, 0.0), where(near, ratio, 1.0)), far))


def _categorical(p: Any, q: Any) -> Any:
    return sum_(_difference(p.probabilities, p.logits, q.logits), axis=-1)


def _multivariate(p: Any, q: Any) -> Any:
    apart = solve_triangular(q.scale_tril, (q.loc - p.loc)[..., None], upper=False)
    shared = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    parts = sum_(square(shared), axis=(-2, -1)) + sum_(square(apart), axis=(-2, -1)) - float(p.event_shape[0])
    return q.half_log_det() - p.half_log_det() + parts * 0.5


def _independent(p: Any, q: Any) -> Any:
    if p.axes != q.axes:
        raise _unknown(p, q)
    return p._summed(kl_divergence(p.base, q.base))


_RULES: dict[type[Distribution], Callable[[Any, Any], Any]] = {
    Normal: _normal, LogNormal: _normal, HalfNormal: _half_normal, Laplace: _laplace, Gumbel: _gumbel, Uniform: _uniform,
    Exponential: _exponential, Gamma: _gamma, Beta: _beta, Dirichlet: _dirichlet, Bernoulli: _bernoulli, Binomial: _binomial,
    Geometric: _geometric, Poisson: _poisson, Categorical: _categorical, MultivariateNormal: _multivariate,
    Independent: _independent,
}  # fmt: skip


def kl_divergence(p: Distribution, q: Distribution, /) -> Tensor:
    """Σ or ∫ of p(x) · (log p(x) - log q(x)), for two distributions of one family.

    Args:
        p: Distribution whose samples are looked at.
        q: Distribution of the same family; the batches broadcast.

    Returns:
        Tensor of the batches' shape; ∞ where p has values that q excludes.

    Raises:
        UnsupportedError: The distributions are of two families, or their divergence has no closed form here.

    Example:
        >>> import firebrick as fb
        >>> d = fb.distributions
        >>> d.kl_divergence(d.Normal(0.0, 1.0), d.Normal(1.0, 1.0)).item()
        0.5
    """
    rule = _RULES.get(type(p))
    if rule is None or type(p) is not type(q):
        raise _unknown(p, q)
    goal = promote(p.dtype, q.dtype) or float32
    found: Tensor = rule(p._widened(), q._widened())
    return narrowed(found, goal) if goal in NARROW else found


def _unknown(p: Any, q: Any) -> UnsupportedError:
    return UnsupportedError(
        "kl_divergence has a closed form for two distributions of one family", f"{p!r:.60} and {q!r:.60}",
        "estimate it: fb.mean(p.log_prob(x) - q.log_prob(x)) over samples x of p",
    )  # fmt: skip
