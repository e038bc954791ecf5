"""Discrete distributions: indices by weights, and counts.

Decisions compare numbers of float64, where the device has it, with uniform numbers of 53 bits. So two engines, whose logarithms
and exponentials may differ in the last place, draw another number about once in 10¹² draws. Without weights, decisions are
those of integers, equal to the bit.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.core.dtypes import float32, float64, int64
from firebrick.core.errors import ConfigError, OutOfRangeError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import whole
from firebrick.core.shapes import normalize_axis, normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import ones, zeros
from firebrick.functions.elementwise import (
    abs,
    astype,
    equal,
    exp,
    floor,
    greater,
    greater_equal,
    isfinite,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    minimum,
    nextafter,
    sqrt,
    where,
)
from firebrick.functions.indexing import scatter_add, take
from firebrick.functions.movement import expand_dims, moveaxis, reshape
from firebrick.functions.searching import searchsorted
from firebrick.functions.sorting import argsort
from firebrick.functions.special import lgamma
from firebrick.functions.statistical import cumulative_sum
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.utility import all as all_
from firebrick.graph.control.verbs import while_loop
from firebrick.random.attempts import until_accepted
from firebrick.random.defaults import source_of
from firebrick.random.generator import Generator, shape_first
from firebrick.random.settings import NONNEGATIVE, PROBABILITY, Parameter, check_values, draw, finished

_FEW = 10.0
"""Expected counts below which they are found by adding up probabilities."""


# indices


def at_share(weights: Tensor, share: Tensor) -> Tensor:
    """The index of each row [..., n] of weights at which their running sum exceeds a share [...] in [0, 1) of it."""
    sums = cumulative_sum(weights, axis=-1)
    total = sums[..., -1:]
    at = expand_dims(share, axis=-1) * total
    at = minimum(at, nextafter(total, zeros((), dtype=total.dtype, device=total.device)))
    return sum_(astype(less_equal(sums, at), int64), axis=-1)


def by_weights(weights: Tensor, generator: Generator, draws: int = 1) -> Tensor:
    """Indices drawn with probabilities in proportion to weights ≥ 0 along the last axis: int64 [..., draws].

    Index i is drawn if the uniform number times the sum lies between the sums of the weights before i and up to i.
    """
    sums = cumulative_sum(weights, axis=-1)
    total = sums[..., -1:]
    lead = weights.shape[:-1]
    u = generator._uniform((*lead, draws), weights.dtype, weights.device)
    at = minimum(u * total, nextafter(total, zeros((), dtype=total.dtype, device=total.device)))
    if not lead:
        return searchsorted(sums, at, side="right")
    if draws == 1:
        return sum_(astype(less_equal(sums, at), int64), axis=-1, keepdims=True)
    return sum_(astype(less_equal(expand_dims(sums, axis=-2), expand_dims(at, axis=-1)), int64), axis=-1)


def _wide(x: Tensor) -> Tensor:
    device = x.device
    return astype(x, float64 if device.backend.supports_dtype(device, float64) else float32, copy=False)


def _check_rows(name: str, key: str, x: Tensor, ok: Tensor, want: str) -> None:
    if x.device.engine != "meta" and x.size:
        check_values(lambda: ok, lambda: OutOfRangeError(f"{name}: {want}", describe(key, x), "look at its values", op=name))


@answers_arguments
def categorical(
    logits: Tensor, /, draws: int | None = None, *, axis: int = -1, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Indices along an axis, index i with the probability exp(logits_i) / Σ exp(logits).

    Args:
        logits: Floating tensor with at least one axis: logarithms of probabilities, up to a constant; -∞ for what is never
            drawn.
        draws: How many indices for each row, with replacement; by default one, without an axis of its own.
        axis: Axis of the choices.
        generator: Source of the bits; the device's default generator by default.

    Returns:
        int64 tensor of logits' shape without the axis, and with ``draws`` last if it is given.

    Raises:
        OutOfRangeError: A row has NaN or ∞, or nothing but -∞.
        ShapeError: The axis is empty.

    Example:
        >>> import firebrick as fb
        >>> fb.random.categorical(fb.asarray([[0.0, -fb.inf], [-fb.inf, 3.0]])).tolist()
        [0, 1]
        >>> fb.random.categorical(fb.zeros(6), 4).shape
        (4,)
    """
    check_operand("categorical", logits, "floating", "logits")
    at = normalize_axis(axis, logits.ndim, "categorical") if logits.ndim else 0
    if not logits.ndim or not logits.shape[at]:
        raise ShapeError("categorical: logits have at least one choice along the axis", describe("logits", logits), "reshape")
    rows = _wide(moveaxis(logits.detach(), at, -1))
    top = max_(rows, axis=-1, keepdims=True)
    _check_rows("categorical", "logits", logits, isfinite(top), "each row has a largest number, which is finite")
    count = 1 if draws is None else whole("categorical", "draws", draws, 0)
    source = source_of("categorical", generator, logits.device)
    found = by_weights(exp(rows - top), source, count)
    return found[..., 0] if draws is None else found


@shape_first
def multinomial(
    shape: Any, *, n: int, p: Tensor, dtype: Any = None, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """How often each of k outcomes occurs in n draws.

    Args:
        shape: Sizes of the axes, as one argument; the last one is k, to which p broadcasts.
        n: How many draws, an int ≥ 0; each takes memory.
        p: Real tensor [..., k]: probabilities, or weights in proportion to them, ≥ 0.
        dtype: Integer or floating dtype; the device's default int by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: n is no int ≥ 0.
        OutOfRangeError: A weight is negative or not finite, or all weights of a row are 0.
        ShapeError: p does not broadcast to the shape, or there is no outcome.

    Example:
        >>> import firebrick as fb
        >>> fb.random.multinomial((2,), n=7, p=fb.asarray([1.0, 0.0])).tolist()
        [7, 0]
    """
    times = whole("multinomial", "n", n, 0)
    d = draw("multinomial", shape, {"p": (p, NONNEGATIVE)}, dtype, None, generator, True)
    if not d.shape or not d.shape[-1]:
        raise ShapeError("multinomial: the last axis of the shape counts the outcomes", f"shape {d.shape}", "pass e.g. (6,)")
    weights = d.parameters["p"].detach()
    _check_rows("multinomial", "p", weights, greater(sum_(weights, axis=-1), 0.0), "each row has a weight that is not 0")
    found = by_weights(weights, d.generator, times)
    counts = scatter_add(zeros(d.shape, dtype=int64, device=d.device), found, ones(found.shape, dtype=int64, device=d.device))
    return finished(d, counts)


@answers_arguments
def choice(
    x: Any, /, shape: Any = (), *, replace: bool = True, p: Tensor | None = None, generator: Generator | None = None,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """Elements of x, or of 0 … x - 1, drawn along the first axis.

    Args:
        x: Tensor of at least one axis, or an int ≥ 1.
        shape: Sizes of the axes of the draw, as one argument; one element by default.
        replace: Whether an element may be drawn more than once.
        p: Real tensor [n]: probabilities, or weights in proportion to them, ≥ 0; equal ones by default.
        generator: Source of the bits; the device's default generator by default.
        device: Device of the draw from an int; that of p or the default device by default.

    Returns:
        Tensor [*shape, *x.shape[1:]], of x's dtype, or int64.

    Raises:
        ConfigError: There is nothing to draw from, or fewer elements than are drawn without replacement.
        OutOfRangeError: A weight is negative or not finite, or too few of them are not 0.
        ShapeError: p is not of shape [n].

    Source: Efraimidis, Spirakis, "Weighted random sampling with a reservoir", 2006 (weights without replacement).

    Example:
        >>> import firebrick as fb
        >>> sorted(fb.random.choice(4, 4, replace=False).tolist())
        [0, 1, 2, 3]
        >>> fb.random.choice(fb.asarray([5, 6]), (2,), p=fb.asarray([0.0, 1.0])).tolist()
        [6, 6]
    """
    sizes = normalize_shape(shape, "choice")
    if isinstance(x, Tensor):
        check_devices("choice", x=x, p=p)
        if not x.ndim:
            raise ShapeError("choice takes a tensor of at least one axis, or an int", describe("x", x), "pass x.item()")
        n, goal = x.shape[0], x.device
    else:
        n = whole("choice", "x", x, 0)
        goal = p.device if isinstance(p, Tensor) and device is None else ones((), device=device).device
    count = math.prod(sizes)
    if n < 1 or (not replace and count > n):
        need = max(1, 0 if replace else count)
        raise ConfigError(f"choice: there are at least {need} elements to draw from", f"{n}", "draw fewer, or with replacement")
    source = source_of("choice", generator, goal)
    at = _equally(n, sizes, replace, source, goal) if p is None else _by_p(n, sizes, replace, p, source)
    return take(x, at, axis=0) if isinstance(x, Tensor) else at


def _equally(n: int, sizes: tuple[int, ...], replace: bool, source: Generator, device: Any) -> Tensor:
    if replace:
        return source.integers(sizes, low=0, high=n, dtype=int64, device=device)
    return reshape(source.permutation(n, device=device)[: math.prod(sizes)], sizes)


def _by_p(n: int, sizes: tuple[int, ...], replace: bool, p: Any, source: Generator) -> Tensor:
    check_operand("choice", p, "real", "p")
    if p.shape != (n,):
        raise ShapeError(f"choice: p has one weight for each of the {n} elements", describe("p", p), "check its size")
    weights = _wide(p.detach())
    count = math.prod(sizes)
    usable = logical_and(greater_equal(weights, 0.0), isfinite(weights))
    _check_rows("choice", "p", p, all_(usable), "weights are finite and ≥ 0")
    needed = 1 if replace else count
    enough = greater_equal(sum_(astype(greater(weights, 0.0), int64)), needed)
    _check_rows("choice", "p", p, enough, f"{needed} or more weights are not 0")
    if replace:
        return reshape(by_weights(weights, source, count), sizes)
    waits = -log1p(-source._uniform((n,), weights.dtype, weights.device))
    times = where(equal(weights, 0.0), math.inf, waits / where(equal(weights, 0.0), 1.0, weights))
    return reshape(argsort(times)[:count], sizes)


# counts


@shape_first
def poisson(
    shape: Any, *, rate: Parameter, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Poisson-distributed counts: k with probability rate^k · exp(-rate) / k!.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        rate: Number or tensor, ≥ 0: the mean.
        dtype: Integer or floating dtype; the device's default int by default.
        device: Device or device string; that of rate or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: rate is a number that is out of range.
        OutOfRangeError: An element of rate is out of range.
        ShapeError: rate does not broadcast to the shape.

    Source: Hörmann, "The transformed rejection method for generating Poisson random variables", 1993 (rates from 10).

    Example:
        >>> import firebrick as fb
        >>> fb.random.poisson((3,), rate=0.0).tolist()
        [0, 0, 0]
    """
    d = draw("poisson", shape, {"rate": (rate, NONNEGATIVE)}, dtype, device, generator, True)
    rates = d.parameters["rate"].detach()
    few = less(rates, _FEW)
    small, large = where(few, rates, 0.0), where(few, _FEW, rates)

    def next_term(term: Tensor, k: Tensor) -> Tensor:
        return term * (small / k)

    low = _added_up(exp(-small), next_term, d.generator._uniform(d.shape, d.wide, d.device))
    root, logarithm = sqrt(large), log(large)
    b = root * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse, ready = 1.1328 / (b - 3.4) + 1.1239, -3.6224 / (b - 2.0) + 0.9277

    def attempt(u: Tensor) -> tuple[Tensor, Tensor]:
        x, v = u[..., 0] - 0.5, u[..., 1]
        edge = 0.5 - abs(x)
        k = floor((2.0 * a / edge + b) * x + large + 0.43)
        safe = where(greater_equal(k, 0.0), k, 0.0)
        bound = safe * logarithm - large - lgamma(safe + 1.0)
        exact = less_equal(log(v * inverse / (a / (edge * edge) + b)), bound)
        return safe, _decided(edge, v, ready, exact, greater_equal(k, 0.0))

    high = until_accepted(d.generator._next_on(d.device), d.shape, 2, d.wide, attempt, few)
    return finished(d, where(few, low, high))


def _decided(edge: Tensor, v: Tensor, ready: Tensor, exact: Tensor, possible: Tensor) -> Tensor:
    """Whether a draw of the transformed rejection method is accepted: at once in the middle, never at the steep edge."""
    at_once = logical_and(greater_equal(edge, 0.07), less_equal(v, ready))
    never = logical_and(less(edge, 0.013), greater(v, edge))
    return logical_and(possible, logical_or(at_once, logical_and(logical_not(never), exact)))


def _added_up(first: Tensor, next_term: Any, u: Tensor) -> Tensor:
    """The least k whose probabilities up to k add up to more than u."""

    def body(carry: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        step, k, term, total, _ = carry
        term = next_term(term, step)
        more = greater_equal(u, total)
        return step + 1.0, where(more, step, k), term, where(more, total + term, total), more

    def unfinished(carry: tuple[Tensor, ...]) -> Tensor:
        step, _, _, total, _ = carry
        return logical_and(less(step, 200.0), logical_not(all_(less(u, total))))

    with no_grad():
        one = ones((), dtype=u.dtype, device=u.device)
        start = one, u * 0.0, first, first, greater_equal(u, first)
        if u.device.engine == "meta":  # which has no values that a loop could end by
            return start[1]
        return while_loop(unfinished, body, start)[1]


@shape_first
def binomial(
    shape: Any, *, n: Parameter, p: Parameter, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """How often an event of probability p occurs in n independent draws.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        n: Number or tensor ≥ 0, rounded down.
        p: Number or tensor in [0, 1].
        dtype: Integer or floating dtype; the device's default int by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: A parameter does not broadcast to the shape.

    Source: Hörmann, "The generation of binomial random variates", 1993 (expected counts from 10).

    Example:
        >>> import firebrick as fb
        >>> fb.random.binomial((3,), n=5, p=1.0).tolist()
        [5, 5, 5]
    """
    d = draw("binomial", shape, {"n": (n, NONNEGATIVE), "p": (p, PROBABILITY)}, dtype, device, generator, True)
    times, chance = floor(d.parameters["n"].detach()), d.parameters["p"].detach()
    turned = greater(chance, 0.5)
    q = where(turned, 1.0 - chance, chance)
    few = less(times * q, _FEW)
    low = _few_successes(where(few, times, 0.0), where(few, q, 0.0), d.generator._uniform(d.shape, d.wide, d.device))
    attempt = _many_successes(where(few, 4.0 * _FEW, times), where(few, 0.5, q))
    high = until_accepted(d.generator._next_on(d.device), d.shape, 2, d.wide, attempt, few)
    found = where(few, low, high)
    return finished(d, where(turned, times - found, found))


def _few_successes(n: Tensor, q: Tensor, u: Tensor) -> Tensor:
    odds = q / (1.0 - q)

    def next_term(term: Tensor, k: Tensor) -> Tensor:
        return term * (odds * ((n - k + 1.0) / k))

    return minimum(_added_up(exp(n * log1p(-q)), next_term, u), n)


def _many_successes(n: Tensor, q: Tensor) -> Any:
    spread = sqrt(n * q * (1.0 - q))
    b = spread * 2.53 + 1.15
    a = b * 0.0248 + q * 0.01 - 0.0873
    middle, ready = n * q + 0.5, 0.92 - 4.2 / b
    slope, mode = (5.1 / b + 2.83) * spread, floor((n + 1.0) * q)
    odds = log(q / (1.0 - q))
    peak = lgamma(mode + 1.0) + lgamma(n - mode + 1.0)

    def attempt(u: Tensor) -> tuple[Tensor, Tensor]:
        x, v = u[..., 0] - 0.5, u[..., 1]
        edge = 0.5 - abs(x)
        k = floor((2.0 * a / edge + b) * x + middle)
        possible = logical_and(greater_equal(k, 0.0), less_equal(k, n))
        safe = where(possible, k, 0.0)
        bound = peak - lgamma(safe + 1.0) - lgamma(n - safe + 1.0) + (safe - mode) * odds
        exact = less_equal(log(v * slope / (a / (edge * edge) + b)), bound)
        at_once = logical_and(greater_equal(edge, 0.07), less_equal(v, ready))
        return safe, logical_and(possible, logical_or(at_once, exact))

    return attempt


__all__ = ["binomial", "categorical", "choice", "multinomial", "poisson"]
