"""Adam, and AdamW, whose weight decay acts on the parameters themselves."""

from __future__ import annotations

from math import log
from typing import ClassVar

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import expm1, sqrt
from firebrick.optim.optimizer import Optimizer, Scalars, Target, check_range
from firebrick.optim.schedule import Schedule


class Adam(Optimizer):
    """m ← m + (g - m)(1 - β₁);  v ← v + (g² - v)(1 - β₂);  p ← p - lr · m̂ / (√v̂ + eps).

    m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ) at update t of the parameter. The two corrections are 0-d: the update is computed
    as p - a · m / (√v + e), with a = lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) and e = eps · √(1 - β₂ᵗ), and 1 - βᵗ as -expm1(t · ln β).

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1).
        eps: Added to √v̂.
        weight_decay: Weight of the penalty ‖p‖² / 2, whose gradient is added to g.

    Source: Kingma, Ba, "Adam: A Method for Stochastic Optimization", arXiv:1412.6980.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Linear(2, 1)
        >>> opt = fb.optim.Adam(model, lr=1e-2)
        >>> loss, grads = fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0))(model, fb.ones((4, 2)))
        >>> opt.update(model, grads)
        >>> opt.step, opt.learning_rate
        (1, 0.01)
    """

    settings: ClassVar[tuple[str, ...]] = ("betas", "eps", "weight_decay")
    moments: ClassVar[tuple[str, ...]] = ("first", "second")

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        if len(betas) != 2:
            raise ConfigError(f"{name}: betas are two numbers", repr(betas), "pass e.g. (0.9, 0.999)")
        for i, beta in enumerate(betas):
            check_range(name, f"betas[{i}]", beta, 0.0, 1.0)
        check_range(name, "eps", eps, 0.0, float("inf"))
        check_range(name, "weight_decay", weight_decay, 0.0, float("inf"))
        super().__init__(model, lr)
        self.betas = (float(betas[0]), float(betas[1]))
        self.eps, self.weight_decay = eps, weight_decay

    def _scalars(self, t: Tensor, lr: Tensor) -> Scalars:
        one, two = (self._correction(beta, t) for beta in self.betas)
        root = sqrt(two)
        return lr * root / one, root * self._constant(self.eps, t)

    def _correction(self, beta: float, t: Tensor) -> Tensor:
        """1 - βᵗ, without cancellation."""
        return -expm1(t * self._constant(log(beta), t)) if beta else self._constant(1.0, t)

    def _new(self, p: Tensor, g: Tensor, moments: list[Tensor], scalars: Scalars) -> tuple[Tensor, list[Tensor]]:
        if self.weight_decay:
            g = g + p * self._constant(self.weight_decay, p)
        return self._moved(p, g, moments, scalars)

    def _moved(self, p: Tensor, g: Tensor, moments: list[Tensor], scalars: Scalars) -> tuple[Tensor, list[Tensor]]:
        m, v = moments
        m = m + (g - m) * self._constant(1.0 - self.betas[0], p)
        v = v + (g * g - v) * self._constant(1.0 - self.betas[1], p)
        return p - m / (sqrt(v) + scalars[1]) * scalars[0], [m, v]


class AdamW(Adam):
    """p ← p · (1 - lr · weight_decay), then Adam's update without decay.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule.
        betas: β₁ and β₂, in [0, 1).
        eps: Added to √v̂.
        weight_decay: Share of a parameter that a step of length 1 takes away.

    Source: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", arXiv:1711.05101.

    Example:
        >>> import firebrick as fb
        >>> fb.optim.AdamW(fb.nn.Linear(2, 1)).weight_decay
        0.01
    """

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:  # fmt: skip
        super().__init__(model, lr, betas, eps, weight_decay)

    def _scalars(self, t: Tensor, lr: Tensor) -> Scalars:
        return (*super()._scalars(t, lr), 1.0 - lr * self._constant(self.weight_decay, t))

    def _new(self, p: Tensor, g: Tensor, moments: list[Tensor], scalars: Scalars) -> tuple[Tensor, list[Tensor]]:
        return self._moved(p * scalars[2], g, moments, scalars)
