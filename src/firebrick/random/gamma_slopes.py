"""The derivative of a gamma-distributed number by the shape of its distribution, at one value of the distribution function.

With z the number, P(α, z) the distribution function and p its density, dz/dα = -(∂P/∂α) / p, an integral over (0, z), or, with
the other sign, over (z, ∞); of the two, the exponent of this one decreases:

    dz/dα = z ∫₀^∞ (ψ(α) - log z + v) exp(z (1 - e^-v) - α v) dv       for z ≤ α
    dz/dα = z ∫₀^∞ (log z + v - ψ(α)) exp(α v - z (e^v - 1)) dv        for z > α
"""

from __future__ import annotations

import math

from firebrick.autodiff.tape import no_grad
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import exp, expm1, less_equal, minimum, sqrt, where
from firebrick.functions.special import digamma

_STEP = 1 / 6
# Source: Takahasi, Mori, "Double exponential formulas for numerical integration", 1974: v = exp(t - exp(-t))
_NODES = tuple(
    (math.exp(t - math.exp(-t)), _STEP * math.exp(t - math.exp(-t)) * (1 + math.exp(-t)))
    for t in (k * _STEP for k in range(-21, 28))
)


def relative_slope(alpha: Tensor, log_z: Tensor) -> Tensor:
    """(dz/dα) / z for α ≥ 1, by a quadrature of 49 nodes; its relative error is about 10⁻⁹ in float64."""
    with no_grad():
        z, psi = exp(log_z), digamma(alpha)
        low = less_equal(z, alpha)
        scale = 1.0 / (abs_(alpha - z) + minimum(sqrt(z), alpha))
        start = where(low, psi - log_z, log_z - psi)
        sign = where(low, -1.0, 1.0)
        total = alpha * 0.0
        for node, weight in _NODES:
            v = scale * node
            power = expm1(sign * v) * -z + sign * alpha * v
            total = total + (start + v) * exp(power) * weight
        return total * scale


__all__ = ["relative_slope"]
