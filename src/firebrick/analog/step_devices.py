"""Devices whose step is constant, or linear in the weight."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from firebrick.analog.checks import check_numbers, keep_python_numbers
from firebrick.analog.pulsed_device import Array, Draw, PulsedDevice
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.core.docstrings import documented_like
from firebrick.core.errors import ConfigError
from firebrick.functions.kernels import kernel


@documented_like(PulsedDevice)
@dataclass(frozen=True)
class ConstantStepDevice(PulsedDevice):
    """Δw = ± s (1 + σ ξ): the step does not depend on the weight.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.ConstantStepDevice(w_max=1.0).granularity
        0.001
    """

    @kernel.function
    def pulse(w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, dw_min_std: Any) -> Any:
        """The weight after a pulse."""
        step = dwmin_up if up else -dwmin_down
        return w + step * (1.0 + dw_min_std * xi)

    def joint_pulses(self) -> HelperFunction | None:
        return _sum_of_steps if self.noisy and self.pulse_function() is ConstantStepDevice.pulse else None


@kernel.function
def _sum_of_steps(w: Any, ups: Any, downs: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, dw_min_std: Any) -> Any:
    """The sum of steps of constant size, and how far it comes: the noise of a part of the pulses is beyond 8 of its standard
    deviations with a probability below 1e-14."""
    rise, fall = ups * dwmin_up, downs * dwmin_down
    spread = dw_min_std * math.sqrt(rise * dwmin_up + fall * dwmin_down)
    reach = 8.0 * spread
    highest = w + max(rise, 0.0) + max(-fall, 0.0) + reach
    lowest = w - max(fall, 0.0) - max(-rise, 0.0) - reach
    return w + (rise - fall) + spread * xi, highest, lowest


@kernel.function
def _linear(w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, slope_up: Any, slope_down: Any, dw_min_std: Any) -> Any:
    step = slope_up * w + dwmin_up if up else -(slope_down * w + dwmin_down)
    return w + step * (1.0 + dw_min_std * xi)


@kernel.function
def _linear_with_additive_noise(
    w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, slope_up: Any, slope_down: Any, dw_min_std: Any
) -> Any:
    noise = 1.0 + dw_min_std * xi
    return w + (slope_up * w + dwmin_up * noise if up else -(slope_down * w + dwmin_down * noise))


@documented_like(PulsedDevice)
@dataclass(frozen=True)
class LinearStepDevice(PulsedDevice):
    """Δw = ± s (1 - γ w / w_bound) (1 + σ ξ): the step falls linearly towards the bound.

    Args:
        gamma_up: Slope γ of steps up: their share that is lost at the upper bound.
        gamma_down: Slope of steps down.
        gamma_up_dtod: Spread of γ for steps up.
        gamma_down_dtod: Spread of γ for steps down.
        allow_increasing: Whether γ that is drawn below 0 stays so, and steps grow towards the bound.
        mean_bound_reference: Whether the slope refers to the mean bound, not to the bound of the device.
        mult_noise: Whether the noise is a factor of the whole step, not of its constant part.
        write_noise_std: Standard deviation of the visible weight about the persistent one, in units of ``dw_min``.
        apply_write_noise_on_set: Whether setting the weights has that noise too.
        reverse_up: Whether steps up grow, from the lower bound, instead.
        reverse_down: Whether steps down grow, from the upper bound, instead.
        reverse_offset: Distance of the reference from that bound.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.LinearStepDevice(gamma_up=0.5, gamma_down=0.3).mult_noise
        True
    """

    gamma_up: float = 0.0
    gamma_down: float = 0.0
    gamma_up_dtod: float = 0.05
    gamma_down_dtod: float = 0.05
    allow_increasing: bool = False
    mean_bound_reference: bool = True
    mult_noise: bool = True
    write_noise_std: float = 0.0  # type: ignore[misc]
    apply_write_noise_on_set: bool = True  # type: ignore[misc]
    reverse_up: bool = False
    reverse_down: bool = False
    reverse_offset: float = 0.01

    def check(self) -> None:
        super().check()
        if (self.reverse_up or self.reverse_down) and not self.mult_noise:
            raise ConfigError(
                f"{type(self).__name__}: reversed steps have multiplicative noise", "mult_noise=False", "pass mult_noise=True"
            )

    def pulse_function(self) -> HelperFunction:
        return _linear if self.mult_noise else _linear_with_additive_noise

    def populate(self, shape: tuple[int, int], normal: Draw, uniform: Draw) -> dict[str, Array]:
        drawn = super().populate(shape, normal, uniform)
        mean = self.mean_bound_reference
        high, low = (self.w_max, self.w_min) if mean else (drawn["max_bound"], drawn["min_bound"])
        of_up = low - self.reverse_offset if self.reverse_up else high
        of_down = high + self.reverse_offset if self.reverse_down else low
        gamma_up = self.gamma_up + self.gamma_up_dtod * normal()
        gamma_down = self.gamma_down + self.gamma_down_dtod * normal()
        if not self.allow_increasing:
            gamma_up, gamma_down = np.abs(gamma_up), np.abs(gamma_down)
        return drawn | {
            "slope_up": -gamma_up * ratio(drawn["dwmin_up"], of_up),
            "slope_down": -gamma_down * ratio(drawn["dwmin_down"], of_down),
        }


def ratio(a: Array, b: Array | float) -> Array:
    """a / b, and 0 where b is 0."""
    b = np.broadcast_to(b, a.shape)
    return np.where(b == 0.0, 0.0, a / np.where(b == 0.0, 1.0, b))


@documented_like(
    LinearStepDevice, "gamma_up", "gamma_down", "gamma_up_dtod", "gamma_down_dtod", "allow_increasing", "mean_bound_reference"
)
@dataclass(frozen=True)
class SoftBoundsDevice(LinearStepDevice):
    """Δw = ± s (1 - w / b) (1 + σ ξ), with b the device's own bound: steps vanish at the bound.

    It is ``LinearStepDevice`` with γ = 1.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.SoftBoundsDevice(w_max=1.0).gamma_up
        1.0
    """

    gamma_up: float = field(default=1.0, init=False)
    gamma_down: float = field(default=1.0, init=False)
    gamma_up_dtod: float = field(default=0.0, init=False)
    gamma_down_dtod: float = field(default=0.0, init=False)
    allow_increasing: bool = field(default=False, init=False)
    mean_bound_reference: bool = field(default=False, init=False)


@documented_like(SoftBoundsDevice, "dw_min", "up_down", "w_max", "w_min")
@dataclass(frozen=True)
class SoftBoundsPmaxDevice(SoftBoundsDevice):
    """Soft bounds by a measured response w(p) = B (1 - exp(-α p)) + range_min of p pulses.

    Bounds, step and asymmetry follow from it: w_min = range_min, w_max = range_min + B, dw_min = α B and
    up_down = 1 + 2 range_min / B, with B = (range_max - range_min) / (1 - exp(-α p_max)).

    Args:
        p_max: Pulses from ``range_min`` to ``range_max``.
        alpha: Rate of saturation, per pulse.
        range_min: Weight at the start of the response, at most 0.
        range_max: Weight at its end.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> round(fb.analog.SoftBoundsPmaxDevice().dw_min, 5)
        0.00254
    """

    dw_min: float = field(default=0.0, init=False)
    up_down: float = field(default=0.0, init=False)
    w_max: float = field(default=0.0, init=False)
    w_min: float = field(default=0.0, init=False)
    p_max: float = 1000.0
    alpha: float = 0.0005
    range_min: float = -1.0
    range_max: float = 1.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        check_numbers(name, self, "p_max", "alpha", above=0.0)
        check_numbers(name, self, "range_min", "range_max")
        if not self.range_min < self.range_max:
            raise ConfigError(f"{name}: range_min < range_max", f"{self.range_min} and {self.range_max}", "swap them")
        amplitude = (self.range_max - self.range_min) / -math.expm1(-self.p_max * self.alpha)
        for key, value in {
            "w_min": self.range_min, "w_max": self.range_min + amplitude, "dw_min": amplitude * self.alpha,
            "up_down": 1.0 + 2.0 * self.range_min / amplitude,
        }.items():  # fmt: skip
            object.__setattr__(self, key, value)
        super().__post_init__()
