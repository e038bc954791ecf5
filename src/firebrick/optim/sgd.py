"""Stochastic gradient descent."""

from __future__ import annotations

from typing import ClassVar

from firebrick.core.dtypes import DType
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.optim.optimizer import Optimizer, Scalars, Target, check_range
from firebrick.optim.schedule import Schedule


class SGD(Optimizer):
    """g ← g + weight_decay · p;  b ← momentum · b + g;  p ← p - lr · b  (nesterov: p ← p - lr · (g + momentum · b)).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        momentum: In [0, 1).
        nesterov: Whether to look ahead; needs momentum.
        weight_decay: Weight of the penalty ‖p‖² / 2.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013.

    Example:
        >>> import firebrick as fb
        >>> p = fb.nn.Parameter(fb.asarray([1.0]))
        >>> model = fb.nn.Sequential(fb.nn.Linear(1, 1))
        >>> opt = fb.optim.SGD(model, lr=0.1, momentum=0.9)
        >>> grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 1)))))(model)
        >>> opt.update(model, grads)
        >>> opt.step
        1
    """

    settings: ClassVar[tuple[str, ...]] = ("momentum", "nesterov", "weight_decay")
    moments: ClassVar[tuple[str, ...]] = ("momentum",)

    def __init__(
        self, model: Target, lr: float | Schedule, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:  # fmt: skip
        check_range("SGD", "momentum", momentum, 0.0, 1.0)
        check_range("SGD", "weight_decay", weight_decay, 0.0, float("inf"))
        if nesterov and not momentum:
            raise ConfigError("SGD: nesterov needs momentum", "momentum = 0", "pass e.g. momentum=0.9")
        super().__init__(model, lr)
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    def _scalars(self, t: Tensor, lr: Tensor) -> Scalars:
        return (lr,)

    def _held(self, name: str, p: Tensor, dt: DType) -> list[Tensor]:
        return super()._held(name, p, dt) if self.momentum else []

    def _new(self, p: Tensor, g: Tensor, moments: list[Tensor], scalars: Scalars) -> tuple[Tensor, list[Tensor]]:
        (lr,) = scalars
        if self.weight_decay:
            g = g + p * self._constant(self.weight_decay, p)
        if not moments:
            return p - g * lr, []
        rate = self._constant(self.momentum, p)
        b = moments[0] * rate + g
        return p - (g + b * rate if self.nesterov else b) * lr, [b]
