"""Distributions of real numbers: a standard one, moved and scaled."""

from __future__ import annotations

import math

from firebrick.core.errors import OutOfRangeError
from firebrick.core.operands import describe
from firebrick.core.precision import in_float32
from firebrick.core.tensor import Tensor
from firebrick.distributions.base import Distribution, Value, inside
from firebrick.distributions.large import digamma_half_step
from firebrick.functions.elementwise import (
    abs as abs_,
)
from firebrick.functions.elementwise import (
    erf,
    exp,
    expm1,
    greater,
    greater_equal,
    less,
    log,
    log1p,
    logical_and,
    minimum,
    nextafter,
    sqrt,
    square,
    tan,
    where,
)
from firebrick.functions.special import erfinv, lgamma
from firebrick.random import Generator
from firebrick.random import gamma as gamma_numbers
from firebrick.random import gumbel as gumbel_numbers
from firebrick.random import laplace as laplace_numbers
from firebrick.random.defaults import source_of
from firebrick.random.settings import ANY, POSITIVE, check_values

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_EULER = 0.5772156649015329


def _source(d: Distribution, generator: Generator | None) -> Generator:
    return source_of(type(d).__name__, generator, d.device)


def _log1p_square(y: Tensor) -> Tensor:
    """log(1 + y²), also where y² overflows."""
    large = greater(abs_(y), 1e8 if y.dtype.itemsize > 2 else 128.0)
    return where(large, 2.0 * log(abs_(where(large, y, 1.0))), log1p(square(where(large, 0.0, y))))


def _half_step(a: Tensor) -> Tensor:
    """log Γ(a + 1/2) - log Γ(a); of large numbers by its asymptotic series, since their logarithms cancel.

    Source: Tricomi and Erdélyi, "The asymptotic expansion of a ratio of gamma functions" (1951).
    """
    large = greater(a, 30.0)
    b = where(large, a, 30.0)
    r = 1.0 / b
    rr = r * r
    series = 0.5 * log(b) + r * (-0.125 + rr * (1.0 / 192.0 + rr * (-1.0 / 640.0 + rr * (17.0 / 14336.0))))
    c = where(large, 30.0, a)
    return where(large, series, lgamma(c + 0.5) - lgamma(c))


@in_float32
def _log_width(low: Tensor, high: Tensor) -> Tensor:
    return log(high - low)


@in_float32
def _between(u: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return u * (high - low) + low


@in_float32
def _student(x: Tensor, df: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    factor = log(df) * 0.5 - _half_step(df * 0.5) + math.log(math.pi) * 0.5 + log(scale)
    return -(df + 1.0) * 0.5 * _log1p_square((x - loc) / scale / sqrt(df)) - factor


@in_float32
def _student_variance(df: Tensor, scale: Tensor) -> Tensor:
    finite = greater(df, 2.0)
    found = square(scale) * (df / (inside(finite, df, 3.0) - 2.0))
    return where(finite, found, where(greater(df, 1.0), scale * math.inf, math.nan))


@in_float32
def _student_entropy(df: Tensor, scale: Tensor) -> Tensor:
    half = df * 0.5
    beta = 0.5 * math.log(math.pi) - _half_step(half)
    return log(scale) + (half + 0.5) * digamma_half_step(half) + log(df) * 0.5 + beta


class Normal(Distribution):
    """Normal numbers, of density exp(-((x - loc) / scale)² / 2) / (scale · √(2π)).

    Args:
        loc: Mean; a number or a floating tensor.
        scale: Standard deviation, > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Normal(1.0, 2.0).variance.item()
        4.0
    """

    reparametrised = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value) -> None:
        self._take({"loc": (loc, ANY), "scale": (scale, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        z = _source(self, generator).normal(shape, dtype=self.dtype, device=self.device)
        return z * self.scale + self.loc

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        return square((x - self.loc) / self.scale) * -0.5 - log(self.scale) - _HALF_LOG_2PI

    def cdf(self, value: Value, /) -> Tensor:
        """The probability of numbers up to ``value``.

        Args:
            value: Number or tensor that broadcasts with the batch.

        Example:
            >>> import firebrick as fb
            >>> fb.distributions.Normal(0.0, 1.0).cdf(0.0).item()
            0.5
        """
        return (erf((self._value(value) - self.loc) / (self.scale * math.sqrt(2.0))) + 1.0) * 0.5

    def icdf(self, probability: Value, /) -> Tensor:
        """The number up to which the probability is ``probability``.

        Args:
            probability: Number or tensor in [0, 1] that broadcasts with the batch.

        Example:
            >>> import firebrick as fb
            >>> fb.distributions.Normal(3.0, 1.0).icdf(0.5).item()
            3.0
        """
        return erfinv(self._value(probability) * 2.0 - 1.0) * (self.scale * math.sqrt(2.0)) + self.loc

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return square(self.scale)

    def entropy(self) -> Tensor:
        return log(self.scale) + (0.5 + _HALF_LOG_2PI)


class LogNormal(Distribution):
    """Numbers whose logarithms are normal.

    Args:
        loc: Mean of the logarithm; a number or a floating tensor.
        scale: Standard deviation of the logarithm, > 0.

    Example:
        >>> import firebrick as fb
        >>> round(fb.distributions.LogNormal(0.0, 1.0).mean.item(), 4)
        1.6487
    """

    reparametrised = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value) -> None:
        self._take({"loc": (loc, ANY), "scale": (scale, POSITIVE)})

    @property
    def logarithm(self) -> Normal:
        """The distribution of the logarithm."""
        return Normal(self.loc, self.scale)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return exp(self.logarithm._draw(shape, generator))

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = greater(x, 0.0)
        y = log(inside(possible, x, 1.0))
        return where(possible, self.logarithm.log_prob(y) - y, -math.inf)

    @property
    def mean(self) -> Tensor:
        return exp(self.loc + square(self.scale) * 0.5)

    @property
    def variance(self) -> Tensor:
        square_ = square(self.scale)
        return expm1(square_) * exp(self.loc * 2.0 + square_)

    def entropy(self) -> Tensor:
        return self.logarithm.entropy() + self.loc


class HalfNormal(Distribution):
    """Sizes of normal numbers of mean 0.

    Args:
        scale: Standard deviation of the normal numbers, > 0; a number or a floating tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.HalfNormal(1.0).log_prob(-1.0).item()
        -inf
    """

    reparametrised = True
    scale: Tensor

    def __init__(self, scale: Value) -> None:
        self._take({"scale": (scale, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return abs_(Normal(0.0, self.scale)._draw(shape, generator))

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        return where(greater_equal(x, 0.0), Normal(0.0, self.scale).log_prob(x) + math.log(2.0), -math.inf)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2.0 / math.pi)

    @property
    def variance(self) -> Tensor:
        return square(self.scale) * (1.0 - 2.0 / math.pi)

    def entropy(self) -> Tensor:
        return Normal(0.0, self.scale).entropy() - math.log(2.0)


class Laplace(Distribution):
    """Numbers of density exp(-|x - loc| / scale) / (2 · scale).

    Args:
        loc: Mean; a number or a floating tensor.
        scale: Mean size of the deviation, > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Laplace(0.0, 1.0).variance.item()
        2.0
    """

    reparametrised = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value) -> None:
        self._take({"loc": (loc, ANY), "scale": (scale, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return laplace_numbers(shape, loc=self.loc, scale=self.scale, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        return -abs_(self._value(value) - self.loc) / self.scale - log(self.scale * 2.0)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return square(self.scale) * 2.0

    def entropy(self) -> Tensor:
        return log(self.scale * 2.0) + 1.0


class Cauchy(Distribution):
    """Numbers of density 1 / (π · scale · (1 + ((x - loc) / scale)²)), without a mean.

    Args:
        loc: Median; a number or a floating tensor.
        scale: Half of the distance between the quartiles, > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Cauchy(0.0, 1.0).mean.item()
        nan
    """

    reparametrised = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value) -> None:
        self._take({"loc": (loc, ANY), "scale": (scale, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        u = _source(self, generator).uniform(shape, dtype=self.dtype, device=self.device)
        return tan((u - 0.5) * math.pi) * self.scale + self.loc

    def log_prob(self, value: Value, /) -> Tensor:
        y = (self._value(value) - self.loc) / self.scale
        return -_log1p_square(y) - log(self.scale) - math.log(math.pi)

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def variance(self) -> Tensor:
        return self.scale * 0.0 + math.inf

    def entropy(self) -> Tensor:
        return log(self.scale) + math.log(4 * math.pi)


class Gumbel(Distribution):
    """The largest of many numbers: distribution function exp(-exp(-(x - loc) / scale)).

    Args:
        loc: Mode; a number or a floating tensor.
        scale: Scale, > 0.

    Example:
        >>> import firebrick as fb
        >>> round(fb.distributions.Gumbel(0.0, 1.0).mean.item(), 4)
        0.5772
    """

    reparametrised = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value) -> None:
        self._take({"loc": (loc, ANY), "scale": (scale, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return gumbel_numbers(shape, loc=self.loc, scale=self.scale, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        y = (self._value(value) - self.loc) / self.scale
        return -y - exp(-y) - log(self.scale)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:
        return square(self.scale) * (math.pi**2 / 6)

    def entropy(self) -> Tensor:
        return log(self.scale) + (1.0 + _EULER)


class Uniform(Distribution):
    """Numbers of equal density in [low, high).

    Args:
        low: Least number; a number or a floating tensor.
        high: Upper bound, greater than low.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Uniform(0.0, 4.0).mean.item()
        2.0
    """

    reparametrised = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Value, high: Value) -> None:
        self._take({"low": (low, ANY), "high": (high, ANY)})
        if self.device.engine != "meta" and self.low.size:
            low_now, high_now = self.low.detach(), self.high.detach()
            check_values(lambda: less(low_now, high_now), lambda: _empty(low_now, high_now))

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        u = _source(self, generator).uniform(shape, dtype=self.dtype, device=self.device)
        x = _between(u, self.low, self.high)
        below = nextafter(self.high, self.low).detach()  # rounding may reach high, which has the probability 0
        return x + (minimum(x, below) - x).detach()

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = logical_and(greater_equal(x, self.low), less(x, self.high))
        return where(possible, -_log_width(self.low, self.high), -math.inf)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) * 0.5

    @property
    def variance(self) -> Tensor:
        return square(self.high - self.low) / 12.0

    def entropy(self) -> Tensor:
        return _log_width(self.low, self.high)


def _empty(low: Tensor, high: Tensor) -> OutOfRangeError:
    return OutOfRangeError(
        "Uniform: low is less than high", f"{describe('low', low)}, {describe('high', high)}", "look at their values",
        op="Uniform",
    )  # fmt: skip


class StudentT(Distribution):
    """Student's t distribution: normal numbers over the roots of independent χ² numbers divided by df.

    Args:
        df: Degrees of freedom, > 0; a number or a floating tensor.
        loc: Location.
        scale: Scale, > 0.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.StudentT(4.0).variance.item()
        2.0
    """

    reparametrised = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(self, df: Value, loc: Value = 0.0, scale: Value = 1.0) -> None:
        self._take({"df": (df, POSITIVE), "loc": (loc, ANY), "scale": (scale, POSITIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        z = _source(self, generator).normal(shape, dtype=self.dtype, device=self.device)
        half = self.df * 0.5
        share = gamma_numbers(shape, alpha=half, generator=generator) / half
        return self.loc + self.scale * z * share**-0.5

    def log_prob(self, value: Value, /) -> Tensor:
        return _student(self._value(value), self.df, self.loc, self.scale)

    @property
    def mean(self) -> Tensor:
        return where(greater(self.df, 1.0), self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return _student_variance(self.df, self.scale)

    def entropy(self) -> Tensor:
        return _student_entropy(self.df, self.scale)
