"""Weight modifiers: what weights are changed by in each training pass, so that training sees the noise of the hardware.

The modified weights are used in the pass and in its gradient. The weights that the optimizer updates keep their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from firebrick.analog.checks import check_flags, check_numbers, keep_python_numbers
from firebrick.analog.noise_models import polynomial
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import clip, exp, floor, less, log, maximum, minimum, tanh, where
from firebrick.functions.elementwise import pow as power
from firebrick.functions.elementwise import round as nearest
from firebrick.functions.statistical import max as largest

PCM_G_MAX, PCM_T_READ = 25.0, 250e-9
PCM_PROG_COEFF = (0.26348, 1.9650, -1.1731)


class WeightModifierType(Enum):
    r"""How weights are modified. In the formulas a is the largest absolute weight of the tile, or ``assumed_wmax``.

    Attributes:
        NONE: Not at all.
        COPY: Not at all, but for ``pdrop``.
        DISCRETIZE: Rounded to multiples of a · ``res``.
        MULT_NORMAL: w (1 + ``std_dev`` ξ).
        ADD_NORMAL: w + ``std_dev`` a ξ.
        DISCRETIZE_ADD_NORMAL: Both of DISCRETIZE and ADD_NORMAL.
        DOREFA: Multiples of ``res`` of ``dorefa_clip`` tanh(w) / tanh(a).
        POLY: w + ``std_dev`` a ξ Σ cᵢ (\|w\| / a)ⁱ.
        PROG_NOISE: Likewise with ``coeffs`` in microsiemens of ``g_max``; a weight that changes sign is reflected.
        PCM_NOISE: Programming noise, variation of drift and read noise of phase-change memory at ``pcm_t_inference``.
        DROP_CONNECT: 0 with probability ``pdrop``.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.WeightModifierType.ADD_NORMAL.name
        'ADD_NORMAL'
    """

    NONE = "none"
    COPY = "copy"
    DISCRETIZE = "discretize"
    MULT_NORMAL = "multiplicative normal"
    ADD_NORMAL = "additive normal"
    DISCRETIZE_ADD_NORMAL = "discretize, additive normal"
    DOREFA = "dorefa"
    POLY = "polynomial"
    PROG_NOISE = "programming noise"
    PCM_NOISE = "phase-change memory noise"
    DROP_CONNECT = "drop connect"


@dataclass(frozen=True)
class WeightModifierParameter:
    """Settings of the weight modifier.

    Args:
        type: See ``WeightModifierType``.
        std_dev: Standard deviation of the noise, relative to the largest weight; for MULT_NORMAL to each weight.
        res: Resolution, relative to the largest weight; for DOREFA absolute.
        sto_round: Whether rounding is stochastic.
        dorefa_clip: Largest weight of DOREFA.
        pdrop: Probability that a weight is 0, with every type but NONE.
        enable_during_test: Whether evaluation modifies weights too; then each product draws anew.
        rel_to_actual_wmax: Whether the largest absolute weight is that of the tile; else it is ``assumed_wmax``.
        assumed_wmax: See there.
        coeffs: Coefficients of POLY and PROG_NOISE.
        g_max: Largest conductance of PROG_NOISE and of its coefficients, in microsiemens.
        pcm_t_inference: Time after programming of PCM_NOISE, in seconds.
        pcm_t0: Time from programming to the time 0, in seconds.
        pcm_zero_thres: Conductance of PCM_NOISE below which devices are 0, in microsiemens.
        pcm_prob_at_reset: Probability that a device of PCM_NOISE is stuck at 0.
        pcm_prob_at_gmax: Probability that one is stuck at the largest conductance.
        pcm_prob_at_random: Probability that one is stuck at any conductance.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> modifier = fb.analog.WeightModifierParameter(fb.analog.WeightModifierType.ADD_NORMAL, std_dev=0.1)
        >>> config = fb.analog.InferenceRPUConfig(modifier=modifier)
        >>> tile = fb.analog.InferenceTile(2, 3, config, seed=0)
        >>> y, z = tile(fb.ones((1, 3))), tile(fb.ones((1, 3)))  # two training passes have different weights
    """

    type: WeightModifierType = WeightModifierType.NONE
    std_dev: float = 0.0
    res: float = 0.0
    sto_round: bool = False
    dorefa_clip: float = 0.6
    pdrop: float = 0.0
    enable_during_test: bool = False
    rel_to_actual_wmax: bool = True
    assumed_wmax: float = 1.0
    coeffs: tuple[float, ...] | None = None
    g_max: float = 25.0
    pcm_t_inference: float = 0.0
    pcm_t0: float = 20.0
    pcm_zero_thres: float = 0.0
    pcm_prob_at_reset: float = 0.0
    pcm_prob_at_gmax: float = 0.0
    pcm_prob_at_random: float = 0.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = "WeightModifierParameter"
        if not isinstance(self.type, WeightModifierType):
            known = ", ".join(k.name for k in WeightModifierType)
            raise ConfigError(
                f"{name}: type is a WeightModifierType: {known}",
                repr(self.type)[:60],
                "pass e.g. WeightModifierType.ADD_NORMAL",
            )
        check_flags(name, self, "sto_round", "enable_during_test", "rel_to_actual_wmax")
        check_numbers(name, self, "std_dev", "res", "pdrop", "pcm_t_inference", "pcm_zero_thres", least=0.0)
        check_numbers(name, self, "dorefa_clip", "assumed_wmax", "g_max", "pcm_t0", above=0.0)
        chances = ("pdrop", "pcm_prob_at_reset", "pcm_prob_at_gmax", "pcm_prob_at_random")
        check_numbers(name, self, *chances, least=0.0)
        stuck = self.pcm_prob_at_reset + self.pcm_prob_at_gmax + self.pcm_prob_at_random
        if self.pdrop > 1.0 or stuck > 1.0:
            given = f"pdrop={self.pdrop}, {stuck:g} in all for stuck devices"
            raise ConfigError(f"{name}: probabilities are at most 1", given, "lower them")
        needs = {"DISCRETIZE": "res", "DISCRETIZE_ADD_NORMAL": "res", "DOREFA": "res", "DROP_CONNECT": "pdrop"}
        needs |= dict.fromkeys(("MULT_NORMAL", "ADD_NORMAL", "POLY", "PROG_NOISE", "PCM_NOISE"), "std_dev")
        needed = needs.get(self.type.name)
        if needed is not None and getattr(self, needed) == 0.0:
            raise ConfigError(
                f"{name}: {self.type.name} has a {needed} above 0", f"{needed}={getattr(self, needed)}",
                f"pass {needed}=0.1, or WeightModifierType.NONE",
            )  # fmt: skip
        if self.coeffs is not None:
            held: Any = self.coeffs
            coeffs: tuple[Any, ...] = tuple(held) if isinstance(held, (tuple, list)) else ()
            if not coeffs or not all(isinstance(c, (int, float)) and math.isfinite(c) for c in coeffs):
                raise ConfigError(f"{name}: coeffs are finite numbers", f"{held!r:.60}", "pass e.g. (0.1, 0.5)")
            object.__setattr__(self, "coeffs", coeffs)

    @property
    def active(self) -> bool:
        """Whether weights are modified at all."""
        return self.type is not WeightModifierType.NONE


def modified(w: Tensor, p: WeightModifierParameter, normal: Callable[[], Tensor], uniform: Callable[[], Tensor]) -> Tensor:
    """Modified weights.

    Args:
        w: Weights [rows, columns].
        p: Settings.
        normal: Draws a normal number for each weight; each call draws others.
        uniform: Draws a number in [0, 1) for each weight; each call draws others.
    """
    if not p.active:
        return w
    top = largest(absolute(w)) if p.rel_to_actual_wmax else w[0, 0] * 0.0 + p.assumed_wmax
    top = where(top > 0.0, top, 1.0)
    found = _KINDS.get(p.type, _same)(w, top, p, normal, uniform)
    return where(less(uniform(), p.pdrop), 0.0, found) if p.pdrop > 0.0 else found


Draw = Callable[[], Tensor]


def _same(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    return w


def _rounded(level: Tensor, p: WeightModifierParameter, uniform: Draw) -> Tensor:
    return floor(level + uniform()) if p.sto_round else nearest(level)


def _discretize(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    step = top * p.res
    return _rounded(w / step, p, uniform) * step


def _mult_normal(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    return w * (normal() * p.std_dev + 1.0)


def _add_normal(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    return w + normal() * top * p.std_dev


def _discretize_add_normal(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    return _add_normal(_discretize(w, top, p, normal, uniform), top, p, normal, uniform)


def _dorefa(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    return _rounded(tanh(w) * p.dorefa_clip / tanh(top) / p.res, p, uniform) * p.res


def _poly(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    coefficients = p.coeffs or (0.0105392, 0.0768, -0.046925)
    return w + top * polynomial(absolute(w) / top, coefficients) * normal() * p.std_dev


def _prog_noise(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    coefficients = tuple(c / p.g_max for c in p.coeffs or PCM_PROG_COEFF)
    changed = absolute(w) + top * polynomial(absolute(w) / top, coefficients) * normal() * p.std_dev
    return _signed(w, absolute(changed))


def _signed(w: Tensor, size: Tensor) -> Tensor:
    """Absolute values with the signs of weights, of which 0 counts as positive."""
    return where(w < 0.0, -size, size)


def _pcm_noise(w: Tensor, top: Tensor, p: WeightModifierParameter, normal: Draw, uniform: Draw) -> Tensor:
    g = minimum(absolute(w) / top, 1.0) * PCM_G_MAX
    g = where(less(g, p.pcm_zero_thres), 0.0, g)
    share = g / PCM_G_MAX
    logarithm = log(maximum(share, 1e-7))
    now = absolute(g + polynomial(share, PCM_PROG_COEFF) * normal() * p.std_dev)
    if p.pcm_t_inference > 0.0:  # the mean of the drift is corrected; its variation is not
        variation = clip(logarithm * -0.0125 - 0.0059, 0.008, 0.045) * normal()
        now = now * exp(variation * -math.log((p.pcm_t_inference + p.pcm_t0) / p.pcm_t0) * p.std_dev)
        growth = math.sqrt(math.log((p.pcm_t_inference + p.pcm_t0 + PCM_T_READ) / (2.0 * PCM_T_READ)))
        read = minimum(0.0088 / maximum(power(share, 0.65), 1e-3), 0.2)
        now = absolute(now + now * read * normal() * (growth * p.std_dev))
    stuck = p.pcm_prob_at_reset, p.pcm_prob_at_gmax, p.pcm_prob_at_random
    if sum(stuck) > 0.0:
        chance, any_level = uniform(), uniform() * PCM_G_MAX
        a, b, c = stuck[0], stuck[0] + stuck[1], sum(stuck)
        at = where(less(chance, a), 0.0, where(less(chance, b), PCM_G_MAX, any_level))
        now = where(less(chance, c), at, now)
    return _signed(w, now) * top / PCM_G_MAX


_KINDS: dict[WeightModifierType, Callable[..., Tensor]] = {
    WeightModifierType.DISCRETIZE: _discretize, WeightModifierType.MULT_NORMAL: _mult_normal,
    WeightModifierType.ADD_NORMAL: _add_normal, WeightModifierType.DISCRETIZE_ADD_NORMAL: _discretize_add_normal,
    WeightModifierType.DOREFA: _dorefa, WeightModifierType.POLY: _poly, WeightModifierType.PROG_NOISE: _prog_noise,
    WeightModifierType.PCM_NOISE: _pcm_noise,
}  # fmt: skip
"""Type → the weights, their largest absolute value, the settings and two draws ↦ modified weights."""
