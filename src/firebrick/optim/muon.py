"""Muon: momentum whose matrix is made orthogonal before it is a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import clip, sqrt
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose
from firebrick.functions.scaled import divisor
from firebrick.functions.statistical import sum as sum_
from firebrick.optim.adam import check_betas
from firebrick.optim.checks import check_settings
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer, Scalars, Target, Updated
from firebrick.optim.schedule import Schedule

ADJUSTMENTS = ("original", "match_rms_adamw")


@dataclass(frozen=True)
class MuonSettings:
    """Settings of ``Muon``, which documents them."""

    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    steps: int = 5
    eps: float = 1e-7
    adjust: str = "original"
    orthogonal: bool = True
    betas: tuple[float, float] = (0.9, 0.999)
    adamw_eps: float = 1e-8


class Muon(Optimizer):
    """b ← momentum · b + (1 - momentum) · g;  p ← p · (1 - lr · weight_decay) - lr · a · orthogonal(u).

    u is b, or g + (b - g) · momentum with nesterov. The orthogonal matrix nearest to u is approached by ``steps`` of
    Newton–Schulz: x ← c₀ x + (c₁ x xᵀ + c₂ (x xᵀ)²) x, from x = u / ‖u‖. Parameters that are no matrices are updated by AdamW
    with the same rate and decay; embeddings and output layers should be as well, in a group with ``orthogonal=False``.

    Args:
        model: Module or list of parameters.
        lr: Learning rate: a number or a schedule. AdamW's rate suits both kinds with adjust="match_rms_adamw"; otherwise give
            the parameters that AdamW updates a group with a rate of their own.
        weight_decay: Share of a parameter that a step of length 1 takes away.
        momentum: In [0, 1).
        nesterov: Whether to look ahead.
        coefficients: c₀, c₁ and c₂.
        steps: Steps of Newton–Schulz.
        eps: Least norm that u is divided by.
        adjust: a for a matrix [n, m]: "original" √max(1, n / m), "match_rms_adamw" 0.2 · √max(n, m).
        orthogonal: Whether matrices are updated so; False leaves them to AdamW.
        betas: Of AdamW.
        adamw_eps: Of AdamW.
        groups: Parameters with settings of their own (see ``Optimizer``).

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon is Scalable for
        LLM Training", arXiv:2502.16982 (match_rms_adamw).

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.mlp(4, (8,), 2)
        >>> last = model.named_parameters()[-2][0]
        >>> opt = fb.optim.Muon(model, adjust="match_rms_adamw", groups=[{"params": last, "orthogonal": False}])
        >>> [g.settings.orthogonal for g in opt.groups]
        [True, False]
    """

    moments: ClassVar[tuple[str, ...]] = ("momentum", "first", "second")

    def __init__(
        self, model: Target, lr: float | Schedule = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), *, steps: int = 5,
        eps: float = 1e-7, adjust: str = "original", orthogonal: bool = True, betas: tuple[float, float] = (0.9, 0.999),
        adamw_eps: float = 1e-8, groups: Rows = (),
    ) -> None:  # fmt: skip
        settings = MuonSettings(
            weight_decay, momentum, nesterov, coefficients, steps, eps, adjust, orthogonal, betas, adamw_eps
        )
        super().__init__(model, lr, settings, groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        check_betas("Muon", settings.betas)
        check_settings("Muon", settings, shares=("momentum", "betas"), sizes=("weight_decay", "eps", "adamw_eps"))
        if settings.adjust not in ADJUSTMENTS:
            raise ConfigError('Muon: adjust is "original" or "match_rms_adamw"', repr(settings.adjust), "use one of these")
        if isinstance(settings.steps, bool) or not isinstance(settings.steps, int) or not 0 < settings.steps < 100:
            raise ConfigError("Muon: steps is an int in [1, 100)", repr(settings.steps), "pass e.g. 5")
        if len(settings.coefficients) != 3:
            raise ConfigError("Muon: coefficients are three numbers", repr(settings.coefficients), "leave them out")

    def kept(self, p: Tensor, settings: Any) -> tuple[str, ...]:
        return ("momentum",) if settings.orthogonal and p.ndim == 2 else ("first", "second")

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        root = sqrt(self.complement_of_power(settings.betas[1], t, step))
        length = lr * root / self.complement_of_power(settings.betas[0], t, step)
        return lr, 1.0 - lr * self._constant(settings.weight_decay, t), length, root * self._constant(settings.adamw_eps, t)

    def new_values(self, p: Tensor, g: Tensor, held: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        lr, kept, length, eps = scalars
        p = p * kept if settings.weight_decay else p
        if len(held) == 1:
            b = held[0] + (g - held[0]) * self._constant(1.0 - settings.momentum, p)
            u = g + (b - g) * self._constant(settings.momentum, p) if settings.nesterov else b
            return p - newton_schulz(u, settings.coefficients, settings.steps, settings.eps) * (
                lr * _adjustment(p, settings.adjust)
            ), [b]
        m, v = held
        m = m + (g - m) * self._constant(1.0 - settings.betas[0], p)
        v = v + (g * g - v) * self._constant(1.0 - settings.betas[1], p)
        return p - m / (sqrt(v) + eps) * length, [m, v]


def _adjustment(p: Tensor, adjust: str) -> float:
    n, m = p.shape
    return math.sqrt(max(1.0, n / max(m, 1))) if adjust == "original" else 0.2 * math.sqrt(max(n, m))


def newton_schulz(
    x: Tensor, coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), steps: int = 5, eps: float = 1e-7
) -> Tensor:
    """The orthogonal matrix nearest to x [n, m], approximately: singular values between about 0.7 and 1.2.

    Args:
        x: Floating tensor [n, m].
        coefficients: Of x, (x xᵀ) x and (x xᵀ)² x.
        steps: How often.
        eps: Least norm that x is divided by.
    """
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = matrix_transpose(x)
    x = x / divisor(clip(sqrt(sum_(x * x)), eps))
    a, b, c = coefficients
    for _ in range(steps):
        gram = matmul(x, matrix_transpose(x))
        x = x * a + matmul(gram * b + matmul(gram, gram) * c, x)
    return matrix_transpose(x) if tall else x
