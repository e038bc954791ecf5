"""Optimizers with a rate for each element, from the squares of its gradients: RMSprop, Adagrad and Adadelta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import relu, sqrt
from firebrick.functions.scaled import divisor
from firebrick.optim.checks import check_settings
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer, Scalars, Target, Updated
from firebrick.optim.schedule import Schedule


@dataclass(frozen=True)
class RMSpropSettings:
    """Settings of ``RMSprop``, which documents them."""

    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float | Schedule = 0.0
    centered: bool = False


class RMSprop(Optimizer):
    """v ← alpha · v + (1 - alpha) · g²;  b ← momentum · b + g / (√v + eps);  p ← p - lr · b.

    Centered, √v is √(v - a²), with a the average of g.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        alpha: Decay of the averages, in [0, 1).
        eps: Added to √v.
        weight_decay: Weight of the penalty ‖p‖² / 2, whose gradient is added to g.
        momentum: In [0, 1), or a schedule of it.
        centered: Whether to divide by the standard deviation in place of the root mean square.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Hinton, "Neural Networks for Machine Learning", lecture 6, 2012; Graves, arXiv:1308.0850 (centered).

    Example:
        >>> import firebrick as fb
        >>> fb.optim.RMSprop(fb.nn.Linear(2, 1), centered=True).settings.alpha
        0.99
    """

    moments: ClassVar[tuple[str, ...]] = ("square", "average", "momentum")

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
        momentum: float | Schedule = 0.0, centered: bool = False, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, RMSpropSettings(alpha, eps, weight_decay, momentum, centered), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_settings("RMSprop", settings, shares=("alpha", "momentum"), sizes=("eps", "weight_decay"))

    def kept(self, p: Tensor, settings: Any) -> tuple[str, ...]:
        return ("square", *(("average",) if settings.centered else ()), *(("momentum",) if settings.momentum else ()))

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        return (lr, self.value(settings.momentum, step)) if settings.momentum else (lr,)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        g = self.decayed(p, g, settings.weight_decay)
        share = self._constant(1.0 - settings.alpha, p)
        v = held[0] + (g * g - held[0]) * share
        kept, spread = [v], v
        if settings.centered:
            average = held[1] + (g - held[1]) * share
            kept.append(average)
            spread = relu(v - average * average)  # a variance that rounding made negative is 0
        b = g / (sqrt(spread) + self._constant(settings.eps, p))
        if settings.momentum:
            b = held[-1] * scalars[1] + b
            kept.append(b)
        return p - b * scalars[0], kept


@dataclass(frozen=True)
class AdagradSettings:
    """Settings of ``Adagrad``, which documents them."""

    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial: float = 0.0
    eps: float = 1e-10


class Adagrad(Optimizer):
    """v ← v + g²;  p ← p - lr / (1 + (t - 1) · lr_decay) · g / (√v + eps).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        lr_decay: How fast the rate falls with the number t of a parameter's updates.
        weight_decay: Weight of the penalty ‖p‖² / 2, whose gradient is added to g.
        initial: What v starts from.
        eps: Added to √v.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Duchi, Hazan, Singer, "Adaptive Subgradient Methods", JMLR 12, 2011.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.Adagrad(fb.nn.Linear(2, 1)).learning_rate
        0.01
    """

    moments: ClassVar[tuple[str, ...]] = ("square",)

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial: float = 0.0, eps: float = 1e-10, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, AdagradSettings(lr_decay, weight_decay, initial, eps), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_settings("Adagrad", settings, sizes=("lr_decay", "weight_decay", "initial", "eps"))

    def start(self, moment: str, settings: Any) -> float:
        return float(settings.initial)

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        return (lr / ((t - 1.0) * settings.lr_decay + 1.0) if settings.lr_decay else lr,)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        g = self.decayed(p, g, settings.weight_decay)
        v = held[0] + g * g
        return p - g / divisor(sqrt(v) + self._constant(settings.eps, p)) * scalars[0], [v]


@dataclass(frozen=True)
class AdadeltaSettings:
    """Settings of ``Adadelta``, which documents them."""

    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0


class Adadelta(Optimizer):
    """v ← rho · v + (1 - rho) · g²;  d = √(u + eps) / √(v + eps) · g;  u ← rho · u + (1 - rho) · d²;  p ← p - lr · d.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        rho: Decay of the averages, in [0, 1).
        eps: Added to v and u.
        weight_decay: Weight of the penalty ‖p‖² / 2, whose gradient is added to g.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", arXiv:1212.5701.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.Adadelta(fb.nn.Linear(2, 1)).learning_rate
        1.0
    """

    moments: ClassVar[tuple[str, ...]] = ("square", "change")

    def __init__(
        self, model: Target, lr: float | Schedule = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, *,
        groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, AdadeltaSettings(rho, eps, weight_decay), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_settings("Adadelta", settings, shares=("rho",), sizes=("eps", "weight_decay"))

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        return (lr,)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        v, u = held
        share, eps = self._constant(1.0 - settings.rho, p), self._constant(settings.eps, p)
        g = self.decayed(p, g, settings.weight_decay)
        v = v + (g * g - v) * share
        d = sqrt(u + eps) / sqrt(v + eps) * g
        return p - d * scalars[0], [v, u + (d * d - u) * share]
