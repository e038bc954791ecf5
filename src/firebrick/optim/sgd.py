"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import equal, where
from firebrick.optim.checks import check_settings
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer, Scalars, Target, Updated
from firebrick.optim.schedule import Schedule


@dataclass(frozen=True)
class SGDSettings:
    """Settings of ``SGD``, which documents them."""

    momentum: float | Schedule = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    dampening: float = 0.0


class SGD(Optimizer):
    """g ← g + weight_decay · p;  b ← momentum · b + (1 - dampening) · g;  p ← p - lr · b.

    The first b is g itself. With nesterov, p ← p - lr · (g + momentum · b).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        momentum: In [0, 1), or a schedule of it.
        nesterov: Whether to look ahead; needs momentum, and no dampening.
        weight_decay: Weight of the penalty ‖p‖² / 2.
        dampening: Share of the gradient left out of the momentum, in [0, 1].
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Sequential(fb.nn.Linear(1, 1))
        >>> opt = fb.optim.SGD(model, lr=0.1, momentum=0.9, groups=[{"params": "*.bias", "lr_scale": 2.0}])
        >>> grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 1)))))(model)
        >>> opt.update(model, grads)
        >>> opt.step
        1
    """

    moments: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(
        self, model: Target, lr: float | Schedule, momentum: float | Schedule = 0.0, *,
        nesterov: bool = False, weight_decay: float = 0.0, dampening: float = 0.0, groups: Rows = (),
    ) -> None:  # fmt: skip
        super().__init__(model, lr, SGDSettings(momentum, nesterov, weight_decay, dampening), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_settings("SGD", settings, shares=("momentum",), sizes=("weight_decay",))
        if isinstance(settings.dampening, bool) or not (
            isinstance(settings.dampening, (int, float)) and 0.0 <= settings.dampening <= 1.0
        ):
            raise ConfigError("SGD: dampening lies in [0, 1]", repr(settings.dampening), "see the class's documentation")
        if settings.nesterov and not settings.momentum:
            raise ConfigError("SGD: nesterov needs momentum", "momentum = 0", "pass e.g. momentum=0.9")
        if settings.nesterov and settings.dampening:
            raise ConfigError("SGD: nesterov has no dampening", f"dampening = {settings.dampening}", "leave one of them out")

    def kept(self, p: Tensor, settings: Any) -> tuple[str, ...]:
        return self.moments if settings.momentum else ()

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        if not settings.momentum:
            return (lr,)
        rate = self.value(settings.momentum, step)
        if not settings.dampening:
            return lr, rate
        return lr, rate, where(equal(t, 1.0), 1.0, self._constant(1.0 - settings.dampening, t))

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        g = self.decayed(p, g, settings.weight_decay)
        if not held:
            return p - g * scalars[0], []
        rate = scalars[1]
        b = held[0] * rate + (g * scalars[2] if settings.dampening else g)
        return p - (g + b * rate if settings.nesterov else b) * scalars[0], [b]
