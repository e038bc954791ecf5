"""Devices whose visible weight is that of the physical device less a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.analog.nonlinear_devices import PowStepDevice, _power
from firebrick.analog.pulsed_device import Array, Draw, PulsedDevice
from firebrick.analog.step_devices import ratio
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.core.docstrings import documented_like
from firebrick.functions.kernels import kernel


@kernel.function
def _soft(
    w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, slope_up: Any, slope_down: Any, reference: Any, dw_min_std: Any
) -> Any:
    v = w + reference
    step = dwmin_up - slope_up * v if up else -(dwmin_down - slope_down * v)
    return w + step * (1.0 + dw_min_std * xi)


@kernel.function
def _soft_with_additive_noise(
    w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, slope_up: Any, slope_down: Any, reference: Any, dw_min_std: Any
) -> Any:
    v = w + reference
    noise = dw_min_std * xi
    up_step, down_step = dwmin_up - slope_up * v + dwmin_up * noise, dwmin_down - slope_down * v + dwmin_down * noise
    return w + (up_step if up else -down_step)


@documented_like(PulsedDevice)
@dataclass(frozen=True)
class SoftBoundsReferenceDevice(PulsedDevice):
    """Soft bounds of v = w + reference: v ← v ± s (1 - v / b) (1 + σ ξ), or ± s (1 - v / b + σ ξ).

    Args:
        slope_up_dtod: Relative spread of the slope s / b of steps up, with which the bounds change.
        slope_down_dtod: Relative spread of that of steps down.
        reference_mean: Mean reference.
        reference_std: Its spread.
        subtract_symmetry_point: Whether the reference has the weight at which steps up and down are equal added.
        mult_noise: Whether the noise is a factor of the whole step, not of its constant part.
        write_noise_std: Standard deviation of the visible weight about the persistent one, in units of ``dw_min``.
        apply_write_noise_on_set: Whether setting the weights has that noise too.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.SoftBoundsReferenceDevice(reference_std=0.05, subtract_symmetry_point=True).reference_mean
        0.0
    """

    slope_up_dtod: float = 0.0
    slope_down_dtod: float = 0.0
    reference_mean: float = 0.0
    reference_std: float = 0.0
    subtract_symmetry_point: bool = False
    mult_noise: bool = False
    write_noise_std: float = 0.0  # type: ignore[misc]
    apply_write_noise_on_set: bool = True  # type: ignore[misc]

    def pulse_function(self) -> HelperFunction:
        return _soft if self.mult_noise else _soft_with_additive_noise

    def populate(self, shape: tuple[int, int], normal: Draw, uniform: Draw) -> dict[str, Array]:
        drawn = super().populate(shape, normal, uniform)
        up, down, high, low = (drawn[n] for n in ("dwmin_up", "dwmin_down", "max_bound", "min_bound"))
        free = (high > 0.0) & (low < 0.0)
        slope_up = np.where(free, ratio(up, high) * np.abs(1.0 + self.slope_up_dtod * normal()), 0.0)
        slope_down = np.where(free, ratio(down, low) * np.abs(1.0 + self.slope_down_dtod * normal()), 0.0)
        drawn["max_bound"] = np.where(slope_up > 0.0, ratio(up, slope_up), high)
        drawn["min_bound"] = np.where(slope_down < 0.0, ratio(down, slope_down), low)
        reference = self.reference_mean + self.reference_std * normal()
        if self.subtract_symmetry_point:
            point = ratio(up - down, slope_up - slope_down)
            reference = reference + point
            drawn["reset_bias"] = drawn["reset_bias"] + point
        return drawn | {"slope_up": slope_up, "slope_down": slope_down, "reference": reference}

    def limits(self, parameters: dict[str, Any]) -> tuple[Any, Any]:
        return _shifted(parameters)


def _shifted(parameters: dict[str, Any]) -> tuple[Any, Any]:
    reference = parameters["reference"]
    return parameters["min_bound"] - reference, parameters["max_bound"] - reference


@kernel.function
def _power_with_reference(
    w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, max_bound: Any, min_bound: Any, gamma_up: Any, gamma_down: Any,
    reference: Any, dw_min_std: Any,
) -> Any:  # fmt: skip
    step = _power(w + reference, up, dwmin_up, dwmin_down, max_bound, min_bound, gamma_up, gamma_down)
    return w + step * (1.0 + dw_min_std * xi)


@documented_like(PowStepDevice)
@dataclass(frozen=True)
class PowStepReferenceDevice(PowStepDevice):
    """``PowStepDevice`` of v = w + reference.

    Args:
        n_estimation_steps: Steps of the search for the symmetry point; -1 for ten times the range over the smallest step, at
            most 10000.
        reference_mean: Mean reference.
        reference_std: Its spread.
        subtract_symmetry_point: Whether the reference has the weight at which steps up and down are equal added.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.PowStepReferenceDevice(reference_mean=0.1).subtract_symmetry_point
        False
    """

    n_estimation_steps: int = -1
    reference_mean: float = 0.0
    reference_std: float = 0.0
    subtract_symmetry_point: bool = False

    def pulse_function(self) -> HelperFunction:
        return _power_with_reference

    def populate(self, shape: tuple[int, int], normal: Draw, uniform: Draw) -> dict[str, Array]:
        drawn = super().populate(shape, normal, uniform)
        reference = self.reference_mean + self.reference_std * normal()
        if self.subtract_symmetry_point:
            point = self._symmetry_point(drawn)
            reference = reference + point
            drawn["reset_bias"] = drawn["reset_bias"] + point
        return drawn | {"reference": reference}

    def _symmetry_point(self, drawn: dict[str, Array]) -> Array:
        """Where the steps up and down of each device are equal, found by adding both."""
        up, down, high, low = (drawn[n] for n in ("dwmin_up", "dwmin_down", "max_bound", "min_bound"))
        width = np.where(high > low, high - low, 1.0)
        point = np.zeros_like(up)
        steps = self.n_estimation_steps
        if steps < 0:
            smaller = np.minimum(up, down)
            least = float(np.min(smaller, initial=1.0, where=smaller > 0.0))
            steps = int(min(round(10.0 * float(width.max()) / least), 10000))
        for _ in range(steps):
            rise = up * np.clip((high - point) / width, 0.0, 1.0) ** drawn["gamma_up"]
            fall = down * np.clip((point - low) / width, 0.0, 1.0) ** drawn["gamma_down"]
            point = point + (rise - fall)
        return point

    def limits(self, parameters: dict[str, Any]) -> tuple[Any, Any]:
        return _shifted(parameters)
