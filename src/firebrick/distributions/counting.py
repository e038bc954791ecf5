"""Discrete distributions: events, classes and counts.

Probabilities of events and classes are given as such or by their logits: log(p / (1 - p)) of an event, log(p) of a class up
to a constant.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.autocast import NARROW
from firebrick.core.dtypes import finfo, int64
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.distributions.base import Distribution, Value, inside, one_of
from firebrick.distributions.large import comparable, log_beta, log_poisson, log_poisson_of_mean
from firebrick.distributions.positive import times_log
from firebrick.functions.activation import log_sigmoid
from firebrick.functions.elementwise import (
    astype,
    clip,
    equal,
    exp,
    floor,
    greater,
    greater_equal,
    isfinite,
    isinf,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_or,
    sigmoid,
    square,
    where,
)
from firebrick.functions.indexing import take_along_axis
from firebrick.functions.movement import broadcast_to
from firebrick.functions.normalisation import log_softmax
from firebrick.functions.scaled import divisor
from firebrick.functions.special import lgamma
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.utility import all as all_
from firebrick.random import Generator, categorical, exponential
from firebrick.random import binomial as binomial_counts
from firebrick.random import multinomial as multinomial_counts
from firebrick.random import poisson as poisson_counts
from firebrick.random.defaults import source_of
from firebrick.random.settings import ANY, NONNEGATIVE, PROBABILITY, Bounds, check_values

_CHANCE = Bounds(0.0, 1.0, strict=True)


class _Event(Distribution):
    """What distributions with the probability of an event share."""

    probs: Tensor

    def _chance(self, probs: Value | None, logits: Value | None) -> dict[str, tuple[object, Bounds]]:
        given = one_of(type(self).__name__, probs=probs, logits=logits)
        return {"probs": (probs, PROBABILITY)} if given == "probs" else {"logits": (logits, ANY)}

    def _settle(self) -> None:
        """The logarithms of the probability and of the rest."""
        logits = vars(self).get("logits")
        if logits is None:
            self._log_p, self._log_rest = log(self.probs), log1p(-self.probs)
        else:
            self.probs = sigmoid(logits)
            self._log_p, self._log_rest = log_sigmoid(logits), log_sigmoid(-logits)

    def _rest(self) -> Tensor:
        logits = vars(self).get("logits")
        return 1.0 - self.probs if logits is None else sigmoid(-logits)

    def _log_of(self, events: Tensor, others: Tensor) -> Tensor:
        """events · log p + others · log (1 - p), 0 where a factor is 0 and the other -∞: such a p, 0 or 1, gets no gradient."""
        none, all_of = equal(events, 0.0), equal(others, 0.0)
        if "logits" in vars(self):
            log_p = where(logical_and(none, isinf(self._log_p)), 0.0, self._log_p)
            log_rest = where(logical_and(all_of, isinf(self._log_rest)), 0.0, self._log_rest)
        else:
            log_p = log(where(logical_and(none, equal(self.probs, 0.0)), 1.0, self.probs))
            log_rest = log1p(-where(logical_and(all_of, equal(self.probs, 1.0)), 0.0, self.probs))
        return events * log_p + others * log_rest

    def _uncertainty(self) -> Tensor:
        """-p · log p - (1 - p) · log (1 - p), whose slope is steep and finite where p is 0 or 1."""
        p, rest = self.probs, self._rest()
        if "logits" in vars(self):
            return -(_of_log(p, self._log_p) + _of_log(rest, self._log_rest))
        limits = finfo(self.dtype)
        lowest, highest = float(limits.smallest_normal), 1.0 - float(limits.eps)
        log_rest = log1p(-where(equal(rest, 0.0), highest, p))
        return -(p * log(where(equal(p, 0.0), lowest, p)) + rest * log_rest)


def _of_log(x: Tensor, logarithm: Tensor) -> Tensor:
    """x · log p; 0 where x is 0."""
    none = equal(x, 0.0)
    return where(none, 0.0, x * where(none, 0.0, logarithm))


class Bernoulli(_Event):
    """1 with a probability, else 0.

    Args:
        probs: Probability in [0, 1]; a number or a floating tensor.
        logits: In its place, log(p / (1 - p)).

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Bernoulli(0.25).variance.item()
        0.1875
    """

    def __init__(self, probs: Value | None = None, *, logits: Value | None = None) -> None:
        self._take(self._chance(probs, logits))
        self._settle()

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        source = source_of(type(self).__name__, generator, self.device)
        u = source.uniform(shape, dtype=self.dtype, device=self.device)
        return astype(less(u, self.probs.detach()), self.dtype)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = logical_or(equal(x, 0.0), equal(x, 1.0))
        k = inside(possible, x, 0.0)
        return where(possible, self._log_of(k, 1.0 - k), -math.inf)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * self._rest()

    def entropy(self) -> Tensor:
        return self._uncertainty()


class Binomial(_Event):
    """How often an event occurs in n independent draws.

    Args:
        n: How many draws, ≥ 0; a number or a tensor.
        probs: Probability of the event in [0, 1].
        logits: In its place, log(p / (1 - p)).

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Binomial(10, 0.5).mean.item()
        5.0
    """

    n: Tensor

    def __init__(self, n: Value, probs: Value | None = None, *, logits: Value | None = None) -> None:
        self._take({"n": (n, NONNEGATIVE), **self._chance(probs, logits)})
        self._settle()

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        p = self.probs.detach()
        return binomial_counts(shape, n=self.n.detach(), p=p, dtype=self.dtype, device=self.device, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        if x.dtype in NARROW:
            return self._in_float32(x)
        possible = logical_and(logical_and(greater_equal(x, 0.0), less_equal(x, self.n)), equal(x, floor(x)))
        k = inside(possible, x, 0.0)
        others = where(possible, self.n - k, 0.0)
        mean, rest = self.n * self.probs, self.n * self._rest()
        near = logical_and(comparable(k, mean), comparable(others, rest))
        a, b, n = where(near, k, 16.0), where(near, others, 16.0), where(near, self.n, 32.0)
        of_large = log_poisson(a, where(near, mean, 16.0)) + log_poisson(b, where(near, rest, 16.0)) - log_poisson(n, n)
        plain = self._ways(k, others) + self._log_of(where(near, 0.0, k), where(near, 0.0, others))
        return where(possible, where(near, of_large, plain), -math.inf)

    def _ways(self, k: Tensor, others: Tensor) -> Tensor:
        """The logarithm of the number of ways to choose k of n."""
        many = greater_equal(self.n, 16.0)
        few = lgamma(self.n + 1.0) - lgamma(k + 1.0) - lgamma(others + 1.0)
        return where(many, -log_beta(k + 1.0, others + 1.0) - log1p(self.n), few)

    @property
    def mean(self) -> Tensor:
        return self.n * self.probs

    @property
    def variance(self) -> Tensor:
        return self.n * self.probs * self._rest()


class Geometric(_Event):
    """How often an event of the probability ``probs`` fails to occur before it first does: 0, 1, 2, …

    Args:
        probs: Probability in (0, 1]; a number or a floating tensor.
        logits: In its place, log(p / (1 - p)).

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Geometric(0.25).mean.item()
        3.0
    """

    def __init__(self, probs: Value | None = None, *, logits: Value | None = None) -> None:
        given = self._chance(probs, logits)
        self._take({k: (v, _CHANCE if k == "probs" else b) for k, (v, b) in given.items()})
        self._settle()

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        waits = exponential(shape, dtype=self.dtype, device=self.device, generator=generator)
        return floor(waits / -self._log_rest.detach())

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = logical_and(greater_equal(x, 0.0), equal(x, floor(x)))
        failures = inside(possible, x, 0.0)
        return where(possible, self._log_of(failures * 0.0 + 1.0, failures), -math.inf)

    @property
    def mean(self) -> Tensor:
        return self._rest() / self.probs

    @property
    def variance(self) -> Tensor:
        return self._rest() / square(self.probs)

    def entropy(self) -> Tensor:
        return self._uncertainty() / self.probs


class Poisson(Distribution):
    """Counts k = 0, 1, 2, … with the probability rate^k · exp(-rate) / k!.

    Args:
        rate: Mean, ≥ 0; a number or a floating tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Poisson(3.0).variance.item()
        3.0
    """

    rate: Tensor

    def __init__(self, rate: Value) -> None:
        self._take({"rate": (rate, NONNEGATIVE)})

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return poisson_counts(shape, rate=self.rate.detach(), dtype=self.dtype, device=self.device, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        if x.dtype in NARROW:
            return self._in_float32(x)
        possible = logical_and(greater_equal(x, 0.0), equal(x, floor(x)))
        k = inside(possible, x, 0.0)
        near = comparable(k, self.rate)
        of_large = log_poisson(where(near, k, 16.0), where(near, self.rate, 16.0))
        few, rate = where(near, 0.0, k), where(near, 1.0, self.rate)
        return where(possible, where(near, of_large, times_log(few, rate) - rate - lgamma(few + 1.0)), -math.inf)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate


class _Classes(Distribution):
    """What distributions over classes share: the normalised logarithms of their probabilities, [..., classes]."""

    logits: Tensor

    def _normalise(self, probs: Tensor | None, logits: Tensor | None) -> None:
        name = type(self).__name__
        if one_of(name, probs=probs, logits=logits) == "probs":
            self._take({"probs": (probs, NONNEGATIVE)}, events=1)
            weights: Tensor = vars(self)["probs"]
            if weights.device.engine != "meta" and weights.size:
                check_values(lambda: greater(sum_(weights.detach(), axis=-1), 0.0), lambda: _without_weight(name, weights))
            self._weights: Tensor | None = weights
            total = log(divisor(sum_(weights, axis=-1, keepdims=True)))
            none = equal(weights, 0.0)  # has no gradient of its own here: ``_log_of_weights``
            self.logits = where(none, -math.inf, log(where(none, 1.0, weights)) - total)
        else:
            self._weights = None
            held = logits.detach() if isinstance(logits, Tensor) else logits
            # -∞ is the logit of a class that never occurs
            low = held if not isinstance(held, Tensor) else where(less(held, -1e30), -1e30, held)
            self._take({"logits": (low, ANY)}, events=1)
            assert isinstance(logits, Tensor)
            self.logits = log_softmax(astype(logits, self.dtype, copy=False), axis=-1)
        self.classes = self.event_shape[0]
        if not self.classes:
            raise ShapeError(f"{name}: there is at least one class", describe("logits", self.logits), "check the last axis")

    @property
    def probabilities(self) -> Tensor:
        """The probability of each class, [..., classes]."""
        return exp(self.logits)

    def _log_of_weights(self, weights: Tensor) -> Tensor:
        """The logarithm of weights of this distribution, [...], over their sum."""
        assert self._weights is not None
        return log(weights) - log(divisor(sum_(self._weights, axis=-1)))

    def _entropy(self) -> Tensor:
        if self._weights is not None:  # whose slope is steep and finite where a weight is 0
            p = self._weights / divisor(sum_(self._weights, axis=-1, keepdims=True))
            lowest = float(finfo(self.dtype).smallest_normal)
            return -sum_(p * log(where(equal(p, 0.0), lowest, p)), axis=-1)
        possible = isfinite(self.logits)
        return -sum_(where(possible, self.probabilities * where(possible, self.logits, 0.0), 0.0), axis=-1)


def _without_weight(name: str, weights: Tensor) -> OutOfRangeError:
    want = f"{name}: each row of probs has a weight that is not 0"
    return OutOfRangeError(want, describe("probs", weights), "look at its values", op=name)


class Categorical(_Classes):
    """Classes 0 … k - 1, each with a probability.

    Args:
        probs: Floating tensor [..., k] of probabilities, or of weights in proportion to them.
        logits: In its place, their logarithms up to a constant.

    Attributes:
        logits: Logarithms of the probabilities, normalised.
        classes: k.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Categorical(fb.asarray([0.0, 1.0, 0.0])).sample(3).tolist()
        [1, 1, 1]
    """

    def __init__(self, probs: Tensor | None = None, *, logits: Tensor | None = None) -> None:
        self._normalise(probs, logits)
        self.event_shape = ()

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return categorical(broadcast_to(self.logits.detach(), (*shape, self.classes)), generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        possible = logical_and(logical_and(greater_equal(x, 0.0), less(x, float(self.classes))), equal(x, floor(x)))
        at = astype(clip(inside(possible, x, 0.0), 0.0, float(self.classes)), int64)
        lead = (at + 0 * astype(self.logits[..., 0] * 0.0, int64)).shape if self.shape else at.shape
        rows = broadcast_to(self.logits if self._weights is None else self._weights, (*lead, self.classes))
        found = take_along_axis(rows, broadcast_to(at, lead)[..., None], axis=-1)[..., 0]
        if self._weights is not None:
            found = self._log_of_weights(where(possible, found, 1.0))
        return where(possible, found, -math.inf)

    @property
    def mean(self) -> Tensor:
        """NaN: classes are no numbers."""
        return self.logits[..., 0] * math.nan

    @property
    def variance(self) -> Tensor:
        """NaN: classes are no numbers."""
        return self.logits[..., 0] * math.nan

    def entropy(self) -> Tensor:
        return self._entropy()


class Multinomial(_Classes):
    """How often each of k classes occurs in n independent draws.

    Args:
        n: How many draws, an int ≥ 0.
        probs: Floating tensor [..., k] of probabilities, or of weights in proportion to them.
        logits: In its place, their logarithms up to a constant.

    Attributes:
        logits: Logarithms of the probabilities, normalised.
        classes: k.

    Example:
        >>> import firebrick as fb
        >>> fb.distributions.Multinomial(4, fb.asarray([0.5, 0.5])).mean.tolist()
        [2.0, 2.0]
    """

    def __init__(self, n: int, probs: Tensor | None = None, *, logits: Tensor | None = None) -> None:
        self.n = whole("Multinomial", "n", n, 0)
        self._normalise(probs, logits)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        p = self.probabilities.detach()
        return multinomial_counts((*shape, self.classes), n=self.n, p=p, dtype=self.dtype, generator=generator)

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        if x.shape[-1:] != (self.classes,):
            raise ShapeError(f"Multinomial: value has {self.classes} counts last", describe("value", x), "check its last axis")
        if x.dtype in NARROW:
            return self._in_float32(x)
        each = all_(logical_and(greater_equal(x, 0.0), equal(x, floor(x))), axis=-1)
        possible = logical_and(each, equal(sum_(x, axis=-1), float(self.n)))
        k = where(possible[..., None], x, 0.0)
        n, weights = float(self.n), self._weights
        total: Any = None if weights is None else divisor(sum_(weights, axis=-1, keepdims=True))
        mean = n * (self.probabilities if weights is None else weights / total)
        near = comparable(k, mean)  # whose terms would cancel with those of n
        few = where(near, 0.0, k)
        if weights is None:
            each = _of_log(few, self.logits)
        else:
            none = equal(few, 0.0)
            each = where(none, 0.0, few * log(where(none, 1.0, weights))) - few * log(total)
        if self.n < 16:
            return where(possible, math.lgamma(n + 1.0) + sum_(each - lgamma(few + 1.0), axis=-1), -math.inf)
        of_large = log_poisson(where(near, k, 16.0), where(near, mean, 16.0))
        each = where(near, of_large, each + few * math.log(n) - mean - lgamma(few + 1.0))
        return where(possible, sum_(each, axis=-1) - log_poisson_of_mean(n), -math.inf)

    @property
    def mean(self) -> Tensor:
        return self.probabilities * float(self.n)

    @property
    def variance(self) -> Tensor:
        return self.probabilities * (1.0 - self.probabilities) * float(self.n)
