"""LAMB, which scales each step by the norm of the parameter, and Lion, whose steps are signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import greater, logical_and, sign, sqrt, where
from firebrick.functions.statistical import sum as sum_
from firebrick.optim.adam import check_betas
from firebrick.optim.checks import check_settings
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer, Scalars, Target, Updated
from firebrick.optim.schedule import Schedule


@dataclass(frozen=True)
class LAMBSettings:
    """Settings of ``LAMB``, which documents them."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.0
    adapt: bool = True


class LAMB(Optimizer):
    """u = m̂ / (√v̂ + eps) + weight_decay · p;  p ← p - lr · ‖p‖ / ‖u‖ · u, with Adam's m̂ and v̂.

    The ratio of norms, one a parameter, is 1 where either norm is 0.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1).
        eps: Added to √v̂.
        weight_decay: Weight of the parameter in its update.
        adapt: Whether steps scale with the ratio of norms; groups of biases and norms often do without.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", arXiv:1904.00962.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.LAMB(fb.nn.Linear(2, 1), groups=[{"params": "bias", "adapt": False}]).groups[1].names
        ('bias',)
    """

    moments: ClassVar[tuple[str, ...]] = ("first", "second")

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 0.0, adapt: bool = True, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, LAMBSettings(betas, eps, weight_decay, adapt), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas("LAMB", settings.betas)
        check_settings("LAMB", settings, shares=("betas",), sizes=("eps", "weight_decay"))

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        root = sqrt(self.complement_of_power(settings.betas[1], t, step))
        return lr, root / self.complement_of_power(settings.betas[0], t, step), root * self._constant(settings.eps, t)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        m, v = held
        lr, ratio, eps = scalars
        m = m + (g - m) * self._constant(1.0 - settings.betas[0], p)
        v = v + (g * g - v) * self._constant(1.0 - settings.betas[1], p)
        u = self.decayed(p, m / (sqrt(v) + eps) * ratio, settings.weight_decay)
        return p - u * (lr * _ratio(p, u) if settings.adapt else lr), [m, v]


def _ratio(p: Tensor, u: Tensor) -> Tensor:
    """‖p‖ / ‖u‖; 1 where either is 0."""
    a, b = sqrt(sum_(p * p)), sqrt(sum_(u * u))
    both = logical_and(greater(a, 0.0), greater(b, 0.0))
    return where(both, a / where(both, b, 1.0), 1.0)


@dataclass(frozen=True)
class LionSettings:
    """Settings of ``Lion``, which documents them."""

    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0


class Lion(Optimizer):
    """p ← p · (1 - lr · weight_decay) - lr · sign(β₁ · m + (1 - β₁) · g);  m ← β₂ · m + (1 - β₂) · g.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule; about a tenth of AdamW's.
        betas: β₁ and β₂, in [0, 1).
        weight_decay: Share of a parameter that a step of length 1 takes away; about ten times AdamW's.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.Lion(fb.nn.Linear(2, 1)).learning_rate
        0.0001
    """

    moments: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0,
        *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, LionSettings(betas, weight_decay), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas("Lion", settings.betas)
        check_settings("Lion", settings, shares=("betas",), sizes=("weight_decay",))

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        return lr, 1.0 - lr * self._constant(settings.weight_decay, t)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        lr, kept = scalars
        (m,) = held
        change = g - m
        direction = sign(m + change * self._constant(1.0 - settings.betas[0], p))
        p = p * kept if settings.weight_decay else p
        return p - direction * lr, [m + change * self._constant(1.0 - settings.betas[1], p)]
