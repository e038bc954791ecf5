"""Adam, and AdamW, whose weight decay acts on the parameters themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import maximum, sqrt
from firebrick.optim.checks import check_settings
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer, Scalars, Target, Updated
from firebrick.optim.schedule import Schedule

Betas = tuple[float | Schedule, float]


@dataclass(frozen=True)
class AdamSettings:
    """Settings of ``Adam`` and ``AdamW``, which document them."""

    betas: Betas = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False


def check_betas(kind: str, betas: Any) -> None:
    """Raise ConfigError unless betas are two."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ConfigError(f"{kind}: betas are two numbers", repr(betas), "pass e.g. (0.9, 0.999)")


class Adam(Optimizer):
    """m ← m + (g - m)(1 - β₁);  v ← v + (g² - v)(1 - β₂);  p ← p - lr · m̂ / (√v̂ + eps).

    m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ) at update t of the parameter. The two corrections are 0-d: the update is computed
    as p - a · m / (√v + e), with a = lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) and e = eps · √(1 - β₂ᵗ), and 1 - βᵗ as -expm1(t · ln β).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1); β₁ may be a schedule.
        eps: Added to √v̂.
        weight_decay: Weight of the penalty ‖p‖² / 2, whose gradient is added to g.
        amsgrad: Whether v̂ is of the largest v so far.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Kingma, Ba, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980; Reddi et al., "On the Convergence of
        Adam and Beyond", arXiv:1904.09237 (amsgrad).

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Linear(2, 1)
        >>> opt = fb.optim.Adam(model, lr=1e-2)
        >>> loss, grads = fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0))(model, fb.ones((4, 2)))
        >>> opt.update(model, grads)
        >>> opt.step, opt.learning_rate
        (1, 0.01)
    """

    moments: ClassVar[tuple[str, ...]] = ("first", "second", "largest")

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, AdamSettings(betas, eps, weight_decay, amsgrad), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas(cls.__name__, settings.betas)
        check_settings(cls.__name__, settings, shares=("betas",), sizes=("eps", "weight_decay"))

    def kept(self, p: Tensor, settings: Any) -> tuple[str, ...]:
        return self.moments if settings.amsgrad else self.moments[:2]

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        root = sqrt(self.complement_of_power(settings.betas[1], t, step))
        length = lr * root / self.complement_of_power(settings.betas[0], t, step)
        return length, root * self._constant(settings.eps, t), self.complement(settings.betas[0], step)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        return self._moved(p, self.decayed(p, g, settings.weight_decay), held, scalars, settings)

    def _moved(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        m, v = held[:2]
        m = m + (g - m) * scalars[2]
        v = v + (g * g - v) * self._constant(1.0 - settings.betas[1], p)
        kept = [maximum(held[2], v)] if settings.amsgrad else []
        return p - m / (sqrt(kept[0] if kept else v) + scalars[1]) * scalars[0], [m, v, *kept]


class AdamW(Adam):
    """p ← p · (1 - lr · weight_decay), then Adam's update without decay.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1); β₁ may be a schedule.
        eps: Added to √v̂.
        weight_decay: Share of a parameter that a step of length 1 takes away.
        amsgrad: Whether v̂ is of the largest v so far.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", arXiv:1711.05101.

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.mlp(4, (8,), 2)
        >>> opt = fb.optim.AdamW(model, groups=[{"params": "*.bias", "weight_decay": 0.0}])
        >>> [(len(g.names), g.settings.weight_decay) for g in opt.groups]
        [(2, 0.01), (2, 0.0)]
    """

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, betas, eps, weight_decay, amsgrad, groups=groups)

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        return (*super().scalars(t, lr, step, settings), 1.0 - lr * self._constant(settings.weight_decay, t))

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        return self._moved(p * scalars[3] if settings.weight_decay else p, g, held, scalars, settings)
