"""Devices whose step is an exponential, a power or a piecewise linear function of the weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from firebrick.analog.pulsed_device import Array, Draw, PulsedDevice
from firebrick.compiler.kernel.language.calls import HelperFunction, InlinedExpression
from firebrick.core.docstrings import documented_like
from firebrick.core.errors import ConfigError
from firebrick.functions.kernels import kernel
from firebrick.scalar.expr import load, maximum
from firebrick.scalar.math import FORMATS, exp_down, log_of_normal


@kernel.function
def _exponential(
    w: Any, up: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, A_up: Any, A_down: Any, gamma_up: Any,
    gamma_down: Any, a: Any, b: Any,
) -> Any:  # fmt: skip
    """The mean step of a pulse."""
    width = max_bound - min_bound
    step = 0.0
    if width > 0.0:
        z = (2.0 * a / width) * w + b
        amplitude, exponent = A_up if up else A_down, gamma_up if up else -gamma_down  # one exponential, not one of each
        step = max(1.0 - amplitude * math.exp(exponent * z), 0.0) * (dwmin_up if up else -dwmin_down)
    return step


@documented_like(PulsedDevice)
@dataclass(frozen=True)
class ExpStepDevice(PulsedDevice):
    """Δw = ± s · max(1 - A exp(± γ z), 0) (1 + σ ξ), with z = 2 a w / (b_max - b_min) + b.

    Args:
        A_up: Amplitude A of steps up.
        A_down: Amplitude of steps down.
        gamma_up: Exponent γ of steps up.
        gamma_down: Exponent of steps down.
        a: Slope of z.
        b: Offset of z.
        dw_min_std_add: Part of the noise that does not depend on the step. The noise of a pulse is
            σ (abs(Δw) + ``dw_min_std_add`` + ``dw_min_std_slope`` · abs(w)) ξ.
        dw_min_std_slope: Part of the noise in proportion to the weight.
        write_noise_std: Standard deviation of the visible weight about the persistent one, in units of ``dw_min``.
        apply_write_noise_on_set: Whether setting the weights has that noise too.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> round(fb.analog.ExpStepDevice().granularity, 6)
        0.000983
    """

    A_up: float = 0.00081
    A_down: float = 0.36833
    gamma_up: float = 12.44625
    gamma_down: float = 12.78785
    a: float = 0.244
    b: float = 0.2425
    dw_min_std_add: float = 0.0
    dw_min_std_slope: float = 0.0
    write_noise_std: float = 0.0  # type: ignore[misc]
    apply_write_noise_on_set: bool = True  # type: ignore[misc]

    long_pulse = True

    @kernel.function
    def pulse(
        w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, A_up: Any, A_down: Any,
        gamma_up: Any, gamma_down: Any, a: Any, b: Any, dw_min_std: Any,
    ) -> Any:  # fmt: skip
        """The weight after a pulse."""
        step = _exponential(w, up, dwmin_up, dwmin_down, max_bound, min_bound, A_up, A_down, gamma_up, gamma_down, a, b)
        return w + step * (1.0 + dw_min_std * xi)

    def pulse_function(self) -> HelperFunction:
        plain = self.dw_min_std_add == 0.0 and self.dw_min_std_slope == 0.0
        return type(self).pulse if plain else _exponential_with_noise

    @property
    def granularity(self) -> float:
        """Mean of the steps up and down at the weight 0."""
        up = max(1.0 - self.A_up * math.exp(self.gamma_up * self.b), 0.0)
        down = max(1.0 - self.A_down * math.exp(-self.gamma_down * self.b), 0.0)
        return 0.5 * (up + down) * self.dw_min

    def check(self) -> None:
        super().check()
        if self.granularity <= 0.0:
            raise ConfigError(
                "ExpStepDevice: pulses change a weight of 0", "steps of 0 there, up and down", "pass smaller A_up and A_down"
            )


@kernel.function
def _exponential_with_noise(
    w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, A_up: Any, A_down: Any,
    gamma_up: Any, gamma_down: Any, a: Any, b: Any, dw_min_std: Any, dw_min_std_add: Any, dw_min_std_slope: Any,
) -> Any:  # fmt: skip
    step = _exponential(w, up, dwmin_up, dwmin_down, max_bound, min_bound, A_up, A_down, gamma_up, gamma_down, a, b)
    if max_bound <= min_bound:
        xi = 0.0 * xi
    after = w + step
    return after + dw_min_std * (abs(step) + dw_min_std_add + dw_min_std_slope * abs(w)) * xi


@documented_like(PulsedDevice)
@dataclass(frozen=True)
class PowStepDevice(PulsedDevice):
    """Δw = s ((b_max - w) / (b_max - b_min))^γ (1 + σ ξ) up, and Δw = -s ((w - b_min) / (b_max - b_min))^γ (1 + σ ξ) down.

    Args:
        pow_gamma: Mean exponent γ.
        pow_gamma_dtod: Its relative spread.
        pow_up_down: Asymmetry of the exponent, as ``up_down`` is of the step.
        pow_up_down_dtod: Its spread.
        write_noise_std: Standard deviation of the visible weight about the persistent one, in units of ``dw_min``.
        apply_write_noise_on_set: Whether setting the weights has that noise too.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.PowStepDevice(dw_min=0.01).granularity
        0.005
    """

    pow_gamma: float = 1.0
    pow_gamma_dtod: float = 0.1
    pow_up_down: float = 0.0
    pow_up_down_dtod: float = 0.0
    write_noise_std: float = 0.0  # type: ignore[misc]
    apply_write_noise_on_set: bool = True  # type: ignore[misc]

    long_pulse = True

    @kernel.function
    def pulse(
        w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, gamma_up: Any,
        gamma_down: Any, dw_min_std: Any,
    ) -> Any:  # fmt: skip
        """The weight after a pulse."""
        return w + _power(w, up, dwmin_up, dwmin_down, max_bound, min_bound, gamma_up, gamma_down) * (1.0 + dw_min_std * xi)

    @property
    def granularity(self) -> float:
        """The step at the weight 0 for equal bounds."""
        return float(self.dw_min * 0.5**self.pow_gamma)

    def populate(self, shape: tuple[int, int], normal: Draw, uniform: Draw) -> dict[str, Array]:
        return _with_exponents(self, super().populate(shape, normal, uniform), normal)


_SHARE_TO = InlinedExpression(
    "a power", exp_down(load(0, "float32") * log_of_normal(maximum(load(1, "float32"), FORMATS["float32"].smallest)))
)
"""A share in (0, 1] to the power of an exponent ≥ 0: within some 1e-6, and in less than half of the time of a power."""


@kernel.function
def _power(
    w: Any, up: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, gamma_up: Any, gamma_down: Any
) -> Any:  # fmt: skip
    """The mean step of a pulse."""
    width = max_bound - min_bound
    step = 0.0
    if width > 0.0:
        share = min(max((max_bound - w if up else w - min_bound) * (1.0 / width), 0.0), 1.0)
        exponent = gamma_up if up else gamma_down
        power = _SHARE_TO(exponent, share)
        if share == 0.0:
            power = 1.0 if exponent == 0.0 else 0.0
        step = power * (dwmin_up if up else -dwmin_down)
    return step


def _with_exponents(device: Any, drawn: dict[str, Array], normal: Draw) -> dict[str, Array]:
    gain, r = 1.0 + device.pow_gamma_dtod * normal(), device.pow_up_down_dtod * normal()
    return drawn | {
        "gamma_up": np.abs(min(device.pow_up_down, 0.0) + gain + r) * device.pow_gamma,
        "gamma_down": np.abs(-max(device.pow_up_down, 0.0) + gain - r) * device.pow_gamma,
    }


@documented_like(PulsedDevice)
@dataclass(frozen=True)
class PiecewiseStepDevice(PulsedDevice):
    """Δw = ± s f(w) (1 + σ ξ), with f linear between values at equidistant weights from the lower to the upper bound.

    Args:
        piecewise_up: Values of f for steps up, from the lower to the upper bound.
        piecewise_down: Values of f for steps down, as many.
        write_noise_std: Standard deviation of the visible weight about the persistent one, in units of ``dw_min``.
        apply_write_noise_on_set: Whether setting the weights has that noise too.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.PiecewiseStepDevice(piecewise_up=(1.0, 0.5, 0.2), piecewise_down=(0.3, 0.6, 1.0)).granularity
        0.0005
    """

    piecewise_up: tuple[float, ...] = (1.0,)
    piecewise_down: tuple[float, ...] = (1.0,)
    write_noise_std: float = 0.0  # type: ignore[misc]
    apply_write_noise_on_set: bool = True  # type: ignore[misc]

    def check(self) -> None:
        super().check()
        for name in ("piecewise_up", "piecewise_down"):
            nodes = getattr(self, name)
            good = isinstance(nodes, (tuple, list)) and len(nodes) > 0
            if not good or not all(type(v) in (int, float) and math.isfinite(v) for v in nodes):
                raise ConfigError(
                    f"PiecewiseStepDevice: {name} is a tuple of finite numbers", repr(nodes)[:60], "pass (1.0, 0.5)"
                )
            object.__setattr__(self, name, tuple(map(float, nodes)))
        if len(self.piecewise_up) != len(self.piecewise_down):
            raise ConfigError(
                "PiecewiseStepDevice: piecewise_up and piecewise_down have as many values",
                f"{len(self.piecewise_up)} and {len(self.piecewise_down)}", "pass as many",
            )  # fmt: skip
        if self.granularity <= 0.0:
            raise ConfigError(
                "PiecewiseStepDevice: the middle value of piecewise_up is above 0",
                repr(self.piecewise_up[len(self.piecewise_up) // 2]), "correct it",
            )  # fmt: skip

    @property
    def granularity(self) -> float:
        """The step up at the middle value."""
        return self.dw_min * self.piecewise_up[len(self.piecewise_up) // 2]

    def pulse_function(self) -> HelperFunction:
        return _piecewise(self.piecewise_up, self.piecewise_down)


@lru_cache(maxsize=64)
def _piecewise(of_up: tuple[float, ...], of_down: tuple[float, ...]) -> HelperFunction:
    """The pulse of a device with these nodes."""
    gaps = len(of_up) - 1
    first_up, first_down = of_up[0], of_down[0]
    rises = tuple((k, of_up[k + 1] - of_up[k], of_down[k + 1] - of_down[k]) for k in range(gaps))

    @kernel.function
    def pulse(
        w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, dw_min_std: Any
    ) -> Any:  # fmt: skip
        width = max_bound - min_bound
        place = (w - min_bound) * (gaps / width) if width > 0.0 else 0.0
        factor = first_up if up else first_down
        for k, rise_up, rise_down in rises:
            factor += min(max(place - k, 0.0), 1.0) * (rise_up if up else rise_down)
        step = dwmin_up if up else -dwmin_down
        return w + step * factor * (1.0 + dw_min_std * xi)

    return pulse
