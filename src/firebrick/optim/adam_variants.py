"""Optimizers that change one thing about Adam: the norm (Adamax), the momentum (NAdam), or the first steps (RAdam)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import greater, maximum, pow, sqrt, where
from firebrick.optim.adam import check_betas
from firebrick.optim.checks import check_settings
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer, Scalars, Target, Updated
from firebrick.optim.schedule import Schedule


@dataclass(frozen=True)
class AdamaxSettings:
    """Settings of ``Adamax``, which documents them."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0


class Adamax(Optimizer):
    """m ← m + (g - m)(1 - β₁);  u ← max(β₂ · u, |g| + eps);  p ← p - lr / (1 - β₁ᵗ) · m / u.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1).
        eps: Added to |g|, > 0.
        weight_decay: Weight of the penalty ‖p‖² / 2, whose gradient is added to g.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Kingma, Ba, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980, section 7.1.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.Adamax(fb.nn.Linear(2, 1)).settings.eps
        1e-08
    """

    moments: ClassVar[tuple[str, ...]] = ("first", "norm")

    def __init__(
        self, model: Target, lr: float | Schedule = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, AdamaxSettings(betas, eps, weight_decay), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas("Adamax", settings.betas)
        check_settings("Adamax", settings, shares=("betas",), sizes=("weight_decay",))
        _check_eps("Adamax", settings.eps)

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        return (lr / self.complement_of_power(settings.betas[0], t, step),)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        m, u = held
        g = self.decayed(p, g, settings.weight_decay)
        m = m + (g - m) * self._constant(1.0 - settings.betas[0], p)
        u = maximum(u * self._constant(settings.betas[1], p), abs_(g) + self._constant(settings.eps, p))
        return p - m / u * scalars[0], [m, u]


@dataclass(frozen=True)
class NAdamSettings:
    """Settings of ``NAdam``, which documents them."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled: bool = False


class NAdam(Optimizer):
    """Adam with Nesterov's look-ahead: p ← p - lr · (μ̂ₜ₊₁ · m + ĝ · g) / (√v̂ + eps).

    m and v are Adam's. With μₜ = β₁ (1 - 0.96^(t · momentum_decay) / 2) and Πₜ = μ₁ · … · μₜ, the factors are
    μ̂ₜ₊₁ = μₜ₊₁ / (1 - Πₜ₊₁) and ĝ = (1 - μₜ) / (1 - Πₜ).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1).
        eps: Added to √v̂.
        weight_decay: Weight of the penalty ‖p‖² / 2, or AdamW's share if ``decoupled``.
        momentum_decay: How soon the momentum reaches β₁.
        decoupled: Whether decay acts on the parameters themselves.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.NAdam(fb.nn.Linear(2, 1)).settings.momentum_decay
        0.004
    """

    moments: ClassVar[tuple[str, ...]] = ("first", "second", "rest")
    scalar_moments: ClassVar[tuple[str, ...]] = ("rest",)  # 1 - Πₜ, which starts from 0 and is exact near 1

    def __init__(
        self, model: Target, lr: float | Schedule = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 4e-3, decoupled: bool = False, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, NAdamSettings(betas, eps, weight_decay, momentum_decay, decoupled), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas("NAdam", settings.betas)
        check_settings("NAdam", settings, shares=("betas",), sizes=("eps", "weight_decay", "momentum_decay"))

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        def momentum(t: Tensor) -> Tensor:
            reached: Tensor = (1.0 - pow(self._constant(0.96, t), t * settings.momentum_decay) * 0.5) * settings.betas[0]
            return reached

        root = sqrt(self.complement_of_power(settings.betas[1], t, step))
        now, after = momentum(t), momentum(t + 1.0)
        rest, eps = 1.0 - now, root * self._constant(settings.eps, t)
        return eps, now, rest, after, 1.0 - after, lr * root * after, lr * root * rest, 1.0 - lr * settings.weight_decay

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        m, v, rest = held
        eps, now, rest_now, after, rest_next, along_m, along_g, kept = scalars
        if settings.decoupled:
            p = p * kept
        else:
            g = self.decayed(p, g, settings.weight_decay)
        m = m + (g - m) * self._constant(1.0 - settings.betas[0], p)
        v = v + (g * g - v) * self._constant(1.0 - settings.betas[1], p)
        rest = rest * now + rest_now
        ahead = m * (along_m / (rest * after + rest_next)) + g * (along_g / rest)
        return p - ahead / (sqrt(v) + eps), [m, v, rest]


@dataclass(frozen=True)
class RAdamSettings:
    """Settings of ``RAdam``, which documents them."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False


class RAdam(Optimizer):
    """Adam without the adaptive rate until its variance can be estimated: p ← p - lr · m̂ · r, with r = 1 at first.

    With ρ∞ = 2 / (1 - β₂) - 1 and ρₜ = ρ∞ - 2t · β₂ᵗ / (1 - β₂ᵗ), from ρₜ > 5 on
    r = √((ρₜ - 4)(ρₜ - 2) ρ∞ / ((ρ∞ - 4)(ρ∞ - 2) ρₜ)) · √(1 - β₂ᵗ) / (√v + eps).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1).
        eps: Added to √v, > 0.
        weight_decay: Weight of the penalty ‖p‖² / 2, or AdamW's share if ``decoupled``.
        decoupled: Whether decay acts on the parameters themselves.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", arXiv:1908.03265.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.RAdam(fb.nn.Linear(2, 1)).settings.betas
        (0.9, 0.999)
    """

    moments: ClassVar[tuple[str, ...]] = ("first", "second")

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, decoupled: bool = False, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, RAdamSettings(betas, eps, weight_decay, decoupled), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas("RAdam", settings.betas)
        check_settings("RAdam", settings, shares=("betas",), sizes=("weight_decay",))
        _check_eps("RAdam", settings.eps)

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        rest = self.complement_of_power(settings.betas[1], t, step)
        most = 2.0 / (1.0 - settings.betas[1]) - 1.0
        length = most - t * 2.0 * (1.0 - rest) / rest
        known = greater(length, 5.0)
        safe = where(known, length, 6.0)
        ratio = sqrt((safe - 4.0) * (safe - 2.0) / safe * (most / ((most - 4.0) * (most - 2.0)))) if most > 5.0 else safe * 0.0
        plain = lr / self.complement_of_power(settings.betas[0], t, step)
        zero = plain * 0.0
        return where(known, plain * ratio * sqrt(rest), zero), where(known, zero, plain), 1.0 - lr * settings.weight_decay

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        m, v = held
        adaptive, plain, kept = scalars
        if settings.decoupled:
            p = p * kept
        else:
            g = self.decayed(p, g, settings.weight_decay)
        m = m + (g - m) * self._constant(1.0 - settings.betas[0], p)
        v = v + (g * g - v) * self._constant(1.0 - settings.betas[1], p)
        return p - m * (adaptive / (sqrt(v) + self._constant(settings.eps, p)) + plain), [m, v]


def _check_eps(kind: str, eps: Any) -> None:
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0.0 < eps < float("inf"):
        raise ConfigError(f"{kind}: eps is a finite number > 0", repr(eps), "pass e.g. 1e-8")
