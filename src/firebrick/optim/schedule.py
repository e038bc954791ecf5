"""Schedules: the learning rate as a function of the number of updates done, from a 0-d tensor to a 0-d tensor.

They are written with tensor operations, in the dtype and on the device of the step they are given, so a compiled step takes
the rate as data and never recompiles when it changes. As small dataclasses they print, compare and go into a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import pi
from typing import Any

from firebrick.core.bind import constant as scalar
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import clip, cos, less, where

Schedule = Callable[[Tensor], Tensor]


def _check(where_: str, **rates: Any) -> None:
    for name, v in rates.items():
        if not (isinstance(v, (int, float)) and 0.0 <= v < float("inf")):
            raise ConfigError(f"{where_}: {name} is a finite number ≥ 0", f"{name} = {v!r}", "pass e.g. 1e-3")


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

    lr: float

    def __post_init__(self) -> None:
        _check("constant", lr=self.lr)

    def __call__(self, step: Tensor) -> Tensor:
        return scalar(float(self.lr), step.dtype, step.device)


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
        _check("cosine", lr=self.lr, final=self.final)
        if not 0 <= self.warmup < self.steps:
            raise ConfigError(
                "cosine: warmup lies in [0, steps)", f"warmup = {self.warmup}, steps = {self.steps}", "count steps in updates"
            )

    def __call__(self, step: Tensor) -> Tensor:
        done = clip((step - float(self.warmup)) * (1.0 / (self.steps - self.warmup)), 0.0, 1.0)
        rate = (cos(done * pi) + 1.0) * (0.5 * (self.lr - self.final)) + float(self.final)
        if not self.warmup:
            return rate
        return where(less(step, float(self.warmup)), (step + 1.0) * (self.lr / self.warmup), rate)


KINDS: dict[str, Any] = {"constant": constant, "cosine": cosine}


def schedule(lr: float | Schedule) -> Schedule:
    """A number as a constant schedule; a schedule as it is.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(lr, (int, float)) and not isinstance(lr, bool):
        return constant(float(lr))
    if not callable(lr):
        raise ConfigError("a learning rate is a number or a schedule", repr(lr), "pass e.g. 1e-3 or optim.cosine(1e-3, 1000)")
    return lr


def to_state(of: Schedule) -> dict[str, Any]:
    """A schedule as plain values; one that is not from this module leaves only its type's name."""
    kind = type(of).__name__
    return {"kind": kind, **asdict(of)} if isinstance(of, tuple(KINDS.values())) else {"kind": f"custom:{kind}"}  # type: ignore[call-overload, unused-ignore]


def from_state(state: dict[str, Any], current: Schedule) -> Schedule:
    """The schedule of ``to_state``; ``current`` if that was one it cannot rebuild."""
    values = dict(state)
    made = KINDS.get(values.pop("kind"))
    found: Schedule = current if made is None else made(**values)
    return found
