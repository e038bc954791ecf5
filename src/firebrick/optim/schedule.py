"""Schedules made of others, the one that waits for a metric, and how all of them go into a checkpoint.

A schedule is any function of the number of updates done, from a 0-d tensor to a 0-d tensor. Those of ``rates.py`` and of
this file are rebuilt from a checkpoint; one of the caller's own (a function) is taken from the optimizer that loads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any

from firebrick.core.constants import constant as scalar
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, python_scalar
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import clip, less, where
from firebrick.nn import StateError
from firebrick.optim import rates
from firebrick.optim.rates import check_count, check_rates, constant, shown_as, with_python_settings

Schedule = Callable[[Tensor], Tensor]


@with_python_settings
@dataclass(frozen=True)
class warmup:
    """A linear rise from start · r to r over ``steps`` updates, with r the first rate of ``after``, which then begins.

    Attributes:
        after: The schedule that follows, counted from the end of the rise; a number is a constant rate.
        steps: Updates of the rise.
        start: First factor.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.warmup(fb.optim.exponential(1.0, 0.5), steps=4)
        >>> [rate(fb.asarray(float(t))).item() for t in (0, 1, 4, 5)]
        [0.0, 0.25, 1.0, 0.5]
    """

    after: Schedule | float
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        check_count("warmup", "steps", self.steps)
        check_rates("warmup", start=self.start)
        object.__setattr__(self, "after", schedule(self.after))

    def __call__(self, step: Tensor) -> Tensor:
        after: Any = self.after  # a schedule since it was made
        rate: Tensor = after(clip(step - float(self.steps), 0.0))
        return rate * (clip(step / float(self.steps), 0.0, 1.0) * (1.0 - self.start) + float(self.start))


@with_python_settings
@dataclass(frozen=True)
class sequential:
    """One schedule after another, each counted from where it begins.

    Attributes:
        schedules: The schedules; numbers are constant rates.
        milestones: The update at which each but the first begins, increasing.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.sequential((1.0, fb.optim.exponential(0.5, 0.5)), milestones=(2,))
        >>> [rate(fb.asarray(float(t))).item() for t in (1, 2, 3)]
        [1.0, 0.5, 0.25]
    """

    schedules: tuple[Schedule | float, ...]
    milestones: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedules", _all("sequential", self.schedules))
        if not isinstance(self.milestones, (tuple, list)):
            raise ConfigError("sequential: milestones are ints", repr(self.milestones), "pass e.g. (1000,)")
        object.__setattr__(self, "milestones", tuple(self.milestones))
        for m in self.milestones:
            check_count("sequential", "each milestone", m)
        increasing = all(a < b for a, b in pairwise(self.milestones))
        if len(self.milestones) != len(self.schedules) - 1 or not increasing:
            raise ConfigError(
                "sequential: milestones increase, and there is one less than schedules",
                f"{len(self.schedules)} schedules, milestones {self.milestones}",
                "say at which update each schedule but the first begins",
            )

    def __call__(self, step: Tensor) -> Tensor:
        schedules: Any = self.schedules
        rate: Tensor = schedules[0](step)
        for begin, after in zip(self.milestones, schedules[1:], strict=True):
            rate = where(less(step, float(begin)), rate, after(clip(step - float(begin), 0.0)))
        return rate


@with_python_settings
@dataclass(frozen=True)
class product:
    """The product of schedules: one gives the rate, the others factors of it.

    Attributes:
        schedules: The schedules; numbers are constant factors.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.product((fb.optim.exponential(1.0, 0.5), fb.optim.linear(1.0, steps=2, start=0.5)))
        >>> [rate(fb.asarray(float(t))).item() for t in (0, 1, 2)]
        [0.5, 0.375, 0.25]
    """

    schedules: tuple[Schedule | float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedules", _all("product", self.schedules))
        if not self.schedules:
            raise ConfigError("product: at least one schedule", "none", "pass e.g. (cosine(1e-3, 1000), 0.5)")

    def __call__(self, step: Tensor) -> Tensor:
        schedules: Any = self.schedules
        rate: Tensor = schedules[0](step)
        for other in schedules[1:]:
            rate = rate * other(step)
        return rate


@with_python_settings
@dataclass(eq=False)
class reduce_on_plateau:
    """A rate that is multiplied by ``factor`` when a metric has not improved for more than ``patience`` observations.

    ``observe(metric)`` feeds it: a ``Learner`` does so after each epoch, with the validation loss (the training loss without
    validation), or with the accuracy for mode "max". It may be a factor of another schedule: ``product((cosine(…),
    reduce_on_plateau(1.0)))``. The rate is a tensor that ``observe`` rebinds, so a compiled step sees each change.

    Attributes:
        lr: First rate.
        factor: Of each reduction, in (0, 1).
        patience: Observations without improvement that are waited for.
        threshold: By how much a metric must be better to count.
        threshold_mode: "rel": better than best · (1 ∓ threshold); "abs": better than best ∓ threshold.
        cooldown: Observations after a reduction that are not counted.
        least: Lowest rate.
        eps: Reductions smaller than this are left out.
        mode: "min" or "max": which metric is better.
        rate: The rate now.
        best: Best metric so far.
        waited: Observations since.
        cooling: Observations left of the cooldown.

    Example:
        >>> import firebrick as fb
        >>> rate = fb.optim.reduce_on_plateau(1.0, factor=0.5, patience=1)
        >>> [rate.observe(loss) for loss in (3.0, 2.0, 2.0, 2.0)]
        [1.0, 1.0, 1.0, 0.5]
        >>> rate(fb.asarray(7.0)).item()
        0.5
    """

    unwatched = frozenset({"rate", "best", "waited", "cooling"})  # compiled steps read the rate from a tensor

    lr: float
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: str = "rel"
    cooldown: int = 0
    least: float = 0.0
    eps: float = 1e-8
    mode: str = "min"
    rate: float | None = None
    best: float | None = None
    waited: int = 0
    cooling: int = 0
    _shown: dict[tuple[DType, Device], Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        name = "reduce_on_plateau"
        check_rates(name, lr=self.lr, threshold=self.threshold, least=self.least, eps=self.eps)
        check_count(name, "patience", self.patience, 0)
        check_count(name, "cooldown", self.cooldown, 0)
        if not 0.0 < self.factor < 1.0:
            raise ConfigError(f"{name}: factor lies in (0, 1)", repr(self.factor), "pass e.g. 0.1")
        for setting, known in (("mode", ("min", "max")), ("threshold_mode", ("rel", "abs"))):
            if getattr(self, setting) not in known:
                raise ConfigError(f'{name}: {setting} is "{known[0]}" or "{known[1]}"', repr(getattr(self, setting)), "use one")
        self.rate = float(self.lr) if self.rate is None else self.rate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, reduce_on_plateau) and _plain_fields(self) == _plain_fields(other)

    def __call__(self, step: Tensor) -> Tensor:
        assert self.rate is not None
        return shown_as(self._shown, self.rate, step).detach()  # what becomes of the result does not reach the rate

    def observe(self, metric: float) -> float:
        """Take the next value of the metric; returns the rate from now on. NaN is never better.

        Args:
            metric: A number.
        """
        assert self.rate is not None
        if self._better(float(metric)):
            self.best, self.waited = float(metric), 0
        else:
            self.waited += 1
        if self.cooling:
            self.cooling -= 1
            self.waited = 0
        if self.waited > self.patience:
            self.cooling, self.waited = self.cooldown, 0
            lower = max(self.rate * self.factor, self.least)
            if self.rate - lower > self.eps:
                self.rate = lower
                for (dtype, device), shown in self._shown.items():
                    shown._rebind(scalar(lower, dtype, device))
        return self.rate

    def _better(self, metric: float) -> bool:
        if self.best is None:
            return metric < math.inf if self.mode == "min" else metric > -math.inf
        sign = -1.0 if self.mode == "min" else 1.0
        wanted = (
            self.best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else self.best + sign * self.threshold
        )
        return metric < wanted if self.mode == "min" else metric > wanted


KINDS: dict[str, Any] = {
    k.__name__: k
    for k in (
        constant, rates.step, rates.multi_step, rates.exponential, rates.linear, rates.polynomial, rates.cosine,
        rates.cosine_restarts, rates.one_cycle, rates.one_cycle_momentum, warmup, sequential, product, reduce_on_plateau,
    )
}  # fmt: skip


def schedule(lr: float | Schedule) -> Schedule:
    """A number as a constant schedule; a schedule as it is.

    Raises:
        ConfigError: It is neither.
    """
    lr = python_scalar(lr)
    if isinstance(lr, (int, float)) and not isinstance(lr, bool):
        check_rates("an optimizer", lr=lr)
        return constant(float(lr))
    if not callable(lr) or isinstance(lr, type):
        raise ConfigError("a learning rate is a number or a schedule", repr(lr), "pass e.g. 1e-3 or optim.cosine(1e-3, 1000)")
    return lr


def _all(name: str, given: Any) -> tuple[Schedule, ...]:
    if not isinstance(given, (tuple, list)):
        raise ConfigError(f"{name}: schedules is a tuple of schedules", repr(given), "pass e.g. (cosine(1e-3, 1000), 0.5)")
    return tuple(schedule(s) for s in given)


def plateaus(of: Schedule | float) -> list[reduce_on_plateau]:
    """The schedules within this one that wait for a metric."""
    if isinstance(of, reduce_on_plateau):
        return [of]
    if isinstance(of, warmup):
        return plateaus(of.after)
    return [p for s in of.schedules for p in plateaus(s)] if isinstance(of, (sequential, product)) else []


# state


def _plain_fields(of: Any) -> dict[str, Any]:
    return {f.name: getattr(of, f.name) for f in fields(of) if f.init}


def to_state(of: Schedule) -> dict[str, Any]:
    """A schedule as plain values, those within it too; one that is not from this module leaves only its type's name."""
    kind = type(of).__name__
    if not is_dataclass(of) or KINDS.get(kind) is not type(of):
        return {"kind": f"custom:{kind}"}
    return {"kind": kind, **{k: _state(v) for k, v in _plain_fields(of).items()}}


def _state(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_state(v) for v in value)
    return to_state(value) if callable(value) else value


def from_state(state: Mapping[str, Any], current: Schedule | None) -> Schedule:
    """The schedule of ``to_state``; ``current``, or its part in the same place, for what it cannot rebuild.

    Raises:
        ConfigError: It holds a function of the caller's own, and ``current`` has none in its place.
        StateError: It holds settings that the schedule does not have.
    """
    values = dict(state)
    kind = values.pop("kind")
    made = KINDS.get(kind)
    if made is None:
        if current is None:
            raise ConfigError(
                "a schedule that is a function of your own is given again when its state is loaded",
                f"{kind.removeprefix('custom:')} in the state, none in its place",
                "make the optimizer with the same schedules as before",
            )
        return current
    check_fields(made, values)
    found: Schedule = made(**{k: _from(v, getattr(current, k, None)) for k, v in values.items()})
    if isinstance(found, (constant, reduce_on_plateau)) and isinstance(current, type(found)):
        rate = found.lr if isinstance(found, constant) else found.rate
        found._shown.update((key, scalar(rate, *key)) for key in current._shown)  # so that a compiled step goes on with it
    return found


def check_fields(made: Any, values: Mapping[str, Any]) -> None:
    """Raise StateError unless each value is a field of the dataclass that is rebuilt from them."""
    known = [f.name for f in fields(made) if f.init]
    if unknown := [k for k in values if k not in known]:
        raise StateError(
            f"a state of {made.__name__} holds {', '.join(known)}",
            f"unknown: {', '.join(unknown)}",
            "it is of another version of Firebrick: load it with that one, or begin with a new optimizer",
        )


def _from(value: Any, current: Any) -> Any:
    if isinstance(value, (tuple, list)):
        beside = current if isinstance(current, tuple) and len(current) == len(value) else (None,) * len(value)
        return tuple(_from(v, c) for v, c in zip(value, beside, strict=True))
    return from_state(value, current if callable(current) else None) if isinstance(value, Mapping) else value
