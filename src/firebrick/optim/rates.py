"""Schedules of one formula: the learning rate as a function of the number of updates done, 0-d tensor to 0-d tensor.

They are written with tensor operations, in the dtype and on the device of the step they are given, so a compiled step takes
the rate as data and never recompiles when it changes. As small dataclasses they print, compare and go into a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import pi
from typing import Any, TypeVar

import numpy as np

from firebrick.core.constants import constant as scalar
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.other_names import OF_SCHEDULES, UnknownNameError
from firebrick.core.settings import python_settings
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, clip, cos, floor_divide, greater_equal, less, pow, remainder, where
from firebrick.functions.statistical import max as max_
from firebrick.graph.trace import new_state

T = TypeVar("T")
COUNTED = 1 << 53
"""Whole numbers up to this one are exact in a float64."""


def with_python_settings(schedule: type[T]) -> type[T]:
    """A schedule that keeps NumPy scalars among its settings as Python numbers, and answers names of PyTorch's."""
    made: Any = schedule
    made.__init__ = python_settings(made.__init__)
    made.__getattr__ = _no_such_name
    return schedule


def _no_such_name(of: Any, name: str) -> Any:
    raise UnknownNameError(f"{type(of).__name__!r} object", name, OF_SCHEDULES, lambda: dir(type(of)), "schedule.{}")


def check_rates(where_: str, **rates: Any) -> None:
    """Raise ConfigError unless all are finite numbers ≥ 0."""
    for name, v in rates.items():
        if isinstance(v, bool) or not (isinstance(v, (int, float)) and 0.0 <= v < float("inf")):
            raise ConfigError(f"{where_}: {name} is a finite number ≥ 0", f"{name} = {v!r}", "pass e.g. 1e-3")


def check_count(where_: str, name: str, value: Any, least: int = 1) -> None:
    """Raise ConfigError unless it is an int ≥ ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{where_}: {name} is an int ≥ {least}", f"{name} = {value!r}", "count in updates")


def _number(value: float, like: Tensor) -> Tensor:
    return scalar(float(value), like.dtype, like.device)


def _power(base: float, exponent: Tensor) -> Tensor:
    return pow(_number(base, exponent), exponent)


def shown_as(shown: dict[Any, Tensor], rate: float, like: Tensor) -> Tensor:
    """A rate as a tensor that lasts: compiled steps read it at each run."""
    key = like.dtype, like.device
    found = shown.get(key)
    if found is None:
        found = shown[key] = new_state(lambda: scalar(rate, *key))
        hooks.version += 1
    return found


@with_python_settings
@dataclass(frozen=True)
class constant:
    """The same rate at every step.

    Attributes:
        lr: Learning rate.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.constant(0.5)(fb.asarray(3.0)).item()
        0.5
    """

    unwatched = frozenset({"lr"})  # compiled steps read it from a tensor

    lr: float
    _shown: dict[Any, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_rates("constant", lr=self.lr)

    def __call__(self, step: Tensor) -> Tensor:
        return shown_as(self._shown, self.lr, step).detach()


@with_python_settings
@dataclass(frozen=True)
class step:
    """lr · gammaᵏ with k = ⌊t / every⌋.

    Attributes:
        lr: First rate.
        every: Updates between two changes.
        gamma: Factor of each change.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.step(1.0, every=3, gamma=0.5)
        >>> [rate(fb.asarray(float(t))).item() for t in (0, 2, 3, 6)]
        [1.0, 1.0, 0.5, 0.25]
    """

    lr: float
    every: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_rates("step", lr=self.lr, gamma=self.gamma)
        check_count("step", "every", self.every)

    def __call__(self, step: Tensor) -> Tensor:
        return _power(self.gamma, floor_divide(step, float(self.every))) * float(self.lr)


@with_python_settings
@dataclass(frozen=True)
class multi_step:
    """lr · gammaᵏ, with k the number of milestones reached.

    Attributes:
        lr: First rate.
        milestones: Updates at which the rate changes; one that is named twice counts twice.
        gamma: Factor of each change.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.multi_step(1.0, (2, 5), gamma=0.5)
        >>> [rate(fb.asarray(float(t))).item() for t in (1, 2, 5)]
        [1.0, 0.5, 0.25]
    """

    lr: float
    milestones: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_rates("multi_step", lr=self.lr, gamma=self.gamma)
        if not isinstance(self.milestones, (tuple, list)):
            raise ConfigError("multi_step: milestones are ints", repr(self.milestones), "pass e.g. (30, 60)")
        for m in self.milestones:
            check_count("multi_step", "each milestone", m, 0)
        object.__setattr__(self, "milestones", tuple(self.milestones))

    def __call__(self, step: Tensor) -> Tensor:
        reached = step * 0.0
        for m in self.milestones:
            reached = reached + astype(greater_equal(step, float(m)), step.dtype)
        return _power(self.gamma, reached) * float(self.lr)


@with_python_settings
@dataclass(frozen=True)
class exponential:
    """lr · gammaᵗ.

    Attributes:
        lr: First rate.
        gamma: Factor of each update.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.exponential(1.0, gamma=0.5)(fb.asarray(3.0)).item()
        0.125
    """

    lr: float
    gamma: float

    def __post_init__(self) -> None:
        check_rates("exponential", lr=self.lr, gamma=self.gamma)

    def __call__(self, step: Tensor) -> Tensor:
        return _power(self.gamma, step) * float(self.lr)


@with_python_settings
@dataclass(frozen=True)
class linear:
    """lr · f, with the factor f going from ``start`` to ``end`` in ``steps`` updates, where it stays.

    Attributes:
        lr: Rate at factor 1.
        steps: Updates until ``end``.
        start: First factor.
        end: Last factor.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.linear(1.0, steps=4, start=0.0)
        >>> [rate(fb.asarray(float(t))).item() for t in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """

    lr: float
    steps: int
    start: float = 1.0 / 3.0
    end: float = 1.0

    def __post_init__(self) -> None:
        check_rates("linear", lr=self.lr, start=self.start, end=self.end)
        check_count("linear", "steps", self.steps)

    def __call__(self, step: Tensor) -> Tensor:
        done = clip(step / float(self.steps), 0.0, 1.0)
        return (done * float(self.end - self.start) + float(self.start)) * float(self.lr)


@with_python_settings
@dataclass(frozen=True)
class polynomial:
    """final + (lr - final) · (1 - t / steps)ᵖ, then ``final``.

    Attributes:
        lr: First rate.
        steps: Updates until ``final``.
        power: The power p.
        final: Last rate.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.polynomial(1.0, steps=4, power=2.0)(fb.asarray(2.0)).item()
        0.25
    """

    lr: float
    steps: int
    power: float = 1.0
    final: float = 0.0

    def __post_init__(self) -> None:
        check_rates("polynomial", lr=self.lr, power=self.power, final=self.final)
        check_count("polynomial", "steps", self.steps)

    def __call__(self, step: Tensor) -> Tensor:
        left = 1.0 - clip(step / float(self.steps), 0.0, 1.0)
        return pow(left, float(self.power)) * float(self.lr - self.final) + float(self.final)


@with_python_settings
@dataclass(frozen=True)
class cosine:
    """A linear rise over ``warmup`` updates, then half a cosine down to ``final``, where it stays.

    lr · (t + 1) / warmup for t < warmup, then final + (lr - final) · (1 + cos(π · s)) / 2, with
    s = min((t - warmup) / (steps - warmup), 1).

    Attributes:
        lr: Highest rate.
        steps: Updates until ``final`` is reached, those of the rise included.
        warmup: Updates of the rise.
        final: Last rate.

    Raises:
        ConfigError: A rate is negative, or warmup is not within [0, steps).

    Source: Loshchilov, Hutter, "SGDR", arXiv:1608.03983.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.cosine(1.0, steps=10, warmup=2)
        >>> [round(rate(fb.asarray(float(t))).item(), 3) for t in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    lr: float
    steps: int
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        check_rates("cosine", lr=self.lr, final=self.final)
        check_count("cosine", "steps", self.steps)
        check_count("cosine", "warmup", self.warmup, 0)
        if not 0 <= self.warmup < self.steps:
            raise ConfigError(
                "cosine: warmup lies in [0, steps)", f"warmup = {self.warmup}, steps = {self.steps}", "count steps in updates"
            )

    def __call__(self, step: Tensor) -> Tensor:
        done = clip((step - float(self.warmup)) / float(self.steps - self.warmup), 0.0, 1.0)
        rate = (cos(done * pi) + 1.0) * (0.5 * (self.lr - self.final)) + float(self.final)
        if not self.warmup:
            return rate
        return where(less(step, float(self.warmup)), (step + 1.0) / float(self.warmup) * float(self.lr), rate)


@with_python_settings
@dataclass(frozen=True)
class cosine_restarts:
    """Half a cosine from lr down to ``final`` over ``period`` updates, and again, each time ``factor`` times as long.

    Attributes:
        lr: Highest rate.
        period: Updates of the first descent.
        factor: How much longer each descent is than the one before, an int ≥ 1.
        final: Lowest rate.

    Source: Loshchilov, Hutter, "SGDR", arXiv:1608.03983.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.cosine_restarts(1.0, period=2, factor=2)
        >>> [round(rate(fb.asarray(float(t))).item(), 3) for t in (0, 1, 2, 4, 6)]
        [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    lr: float
    period: int
    factor: int = 1
    final: float = 0.0

    def __post_init__(self) -> None:
        check_rates("cosine_restarts", lr=self.lr, final=self.final)
        check_count("cosine_restarts", "period", self.period)
        check_count("cosine_restarts", "factor", self.factor)

    def __call__(self, step: Tensor) -> Tensor:
        # whole numbers, which floats compare, subtract and divide with a remainder exactly
        period, f = float(self.period), self.factor
        if f == 1:
            done = remainder(step, period) / period
        else:
            begins = hooks.from_host(np.asarray(self._begins(), step.dtype.np), step.device)
            begin = max_(where(greater_equal(step, begins), begins, 0.0))
            done = (step - begin) / (
                begin * float(f - 1) + period
            )  # a descent is as long as all before it times f - 1, and one
        return (cos(done * pi) + 1.0) * (0.5 * (self.lr - self.final)) + float(self.final)

    def _begins(self) -> list[int]:
        """The updates at which descents begin, period · (fⁿ - 1) / (f - 1), as far as a float64 counts."""
        begins, length = [0], self.period
        while begins[-1] + length <= COUNTED:
            begins.append(begins[-1] + length)
            length *= self.factor
        return begins


@with_python_settings
@dataclass(frozen=True)
class one_cycle:
    """A rise from lr / div_factor to lr over the share ``pct_start`` of the updates, then a fall to far below the start.

    The last rate is lr / (div_factor · final_div_factor). With ``three_phase`` the fall goes back to the start as fast as the
    rise came, and then to the last rate.

    Attributes:
        lr: Highest rate.
        steps: Updates of the cycle; after it the rate stays at the last one.
        pct_start: Share of the rise, in (0, 1).
        div_factor: Highest rate over first rate.
        final_div_factor: First rate over last rate.
        anneal: "cos" or "linear".
        three_phase: Whether the fall has two parts.

    Source: Smith, Topin, "Super-Convergence", arXiv:1708.07120.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.one_cycle(1.0, steps=10, pct_start=0.5, anneal="linear")
        >>> [round(rate(fb.asarray(float(t))).item(), 3) for t in (0, 2, 4)]
        [0.04, 0.52, 1.0]
    """

    lr: float
    steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    anneal: str = "cos"
    three_phase: bool = False

    def __post_init__(self) -> None:
        check_rates("one_cycle", lr=self.lr)
        _check_cycle("one_cycle", self.steps, self.pct_start, self.anneal, self.three_phase)
        check_rates("one_cycle", div_factor=self.div_factor, final_div_factor=self.final_div_factor)
        for name in ("div_factor", "final_div_factor"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"one_cycle: {name} is a number > 0", repr(getattr(self, name)), "pass e.g. 25.0")

    def __call__(self, step: Tensor) -> Tensor:
        first = self.lr / self.div_factor
        ends = _cycle_ends(self.steps, self.pct_start, self.three_phase)
        values = [first, self.lr, first, first / self.final_div_factor] if self.three_phase else [
            first, self.lr, first / self.final_div_factor
        ]  # fmt: skip
        return _annealed(step, ends, values, self.anneal)

    def momentum(self, low: float = 0.85, high: float = 0.95) -> one_cycle_momentum:
        """The momentum that goes with this cycle: it falls while the rate rises.

        Args:
            low: Momentum at the highest rate.
            high: Momentum at the first rate and the last.
        """
        return one_cycle_momentum(low, high, self.steps, self.pct_start, self.anneal, self.three_phase)


@with_python_settings
@dataclass(frozen=True)
class one_cycle_momentum:
    """A momentum that falls from ``high`` to ``low`` while ``one_cycle``'s rate rises, and rises back while it falls.

    Attributes:
        low: Lowest momentum.
        high: Highest momentum, < 1.
        steps: Updates of the cycle.
        pct_start: Share of the fall, in (0, 1).
        anneal: "cos" or "linear".
        three_phase: Whether the rate's fall has two parts; momentum rises in the first.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.one_cycle(0.1, steps=10, pct_start=0.5)
        >>> opt = fb.optim.SGD(fb.nn.Linear(2, 1), lr=rate, momentum=rate.momentum(0.85, 0.95))
        >>> round(opt.settings.momentum(fb.asarray(4.0)).item(), 2)
        0.85
    """

    low: float
    high: float
    steps: int
    pct_start: float = 0.3
    anneal: str = "cos"
    three_phase: bool = False

    def __post_init__(self) -> None:
        _check_cycle("one_cycle_momentum", self.steps, self.pct_start, self.anneal, self.three_phase)
        check_rates("one_cycle_momentum", low=self.low, high=self.high)
        if not 0.0 <= self.low <= self.high < 1.0:
            raise ConfigError(
                "one_cycle_momentum: 0 ≤ low ≤ high < 1", f"low = {self.low}, high = {self.high}", "pass e.g. 0.85 and 0.95"
            )

    def __call__(self, step: Tensor) -> Tensor:
        ends = _cycle_ends(self.steps, self.pct_start, self.three_phase)
        values = [self.high, self.low, self.high] + [self.high] * self.three_phase
        return _annealed(step, ends, values, self.anneal)


def _check_cycle(name: str, steps: int, pct_start: float, anneal: str, three_phase: bool) -> None:
    check_count(name, "steps", steps, 2)
    check_rates(name, pct_start=pct_start)
    if anneal not in ("cos", "linear"):
        raise ConfigError(f'{name}: anneal is "cos" or "linear"', repr(anneal), "use one of these")
    if not 0.0 < pct_start < 1.0:
        raise ConfigError(f"{name}: pct_start lies in (0, 1)", repr(pct_start), "pass e.g. 0.3")
    ends = [0.0, *_cycle_ends(steps, pct_start, three_phase)]
    if any(b <= a for a, b in pairwise(ends)):
        raise ConfigError(
            f"{name}: each part of the cycle has at least one update",
            f"parts end at {', '.join(f'{e:g}' for e in ends[1:])}",
            "take more steps, or another pct_start",
        )


def _cycle_ends(steps: int, pct_start: float, three_phase: bool) -> list[float]:
    """The step at which each part of a cycle ends."""
    top = pct_start * steps - 1.0
    return [top, 2.0 * pct_start * steps - 2.0, steps - 1.0] if three_phase else [top, steps - 1.0]


def _annealed(step: Tensor, ends: list[float], values: list[float], anneal: str) -> Tensor:
    """Values at 0 and at the ends of parts, joined by half cosines or lines."""
    rate: Tensor | None = None
    begins = [0.0, *ends[:-1]]
    for begin, end, a, b in reversed(list(zip(begins, ends, values[:-1], values[1:], strict=True))):
        done = clip((step - begin) / (end - begin), 0.0, 1.0)
        part = done * (b - a) + a if anneal == "linear" else (cos(done * pi) + 1.0) * ((a - b) / 2.0) + b
        rate = part if rate is None else where(step <= end, part, rate)
    assert rate is not None
    return rate
