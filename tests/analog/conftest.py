"""Devices of which each test of the pulsed update has one."""

from __future__ import annotations

from functools import partial

import pytest

from firebrick import analog

linear = partial(analog.LinearStepDevice, dw_min=0.01, gamma_up_dtod=0.0, gamma_down_dtod=0.0)
DEVICES = {
    "constant": analog.ConstantStepDevice(dw_min=0.01), "linear": linear(gamma_up=0.5, gamma_down=0.3),
    "linear, own bound": linear(gamma_up=0.5, mean_bound_reference=False),
    "linear, additive noise": linear(gamma_up=0.5, mult_noise=False),
    "soft bounds": analog.SoftBoundsDevice(dw_min=0.01),
    "soft bounds of a response": analog.SoftBoundsPmaxDevice(p_max=200.0, alpha=0.01),
    "soft bounds, write noise": analog.SoftBoundsDevice(dw_min=0.01, write_noise_std=2.0),
    "soft bounds, reference": analog.SoftBoundsReferenceDevice(dw_min=0.01, reference_std=0.05, subtract_symmetry_point=True),
    "soft bounds, reference, multiplicative": analog.SoftBoundsReferenceDevice(dw_min=0.01, mult_noise=True, slope_up_dtod=0.1),
    "exponential": analog.ExpStepDevice(dw_min=0.01),
    "exponential, complex noise": analog.ExpStepDevice(dw_min=0.01, dw_min_std_add=0.01, dw_min_std_slope=0.1),
    "power": analog.PowStepDevice(dw_min=0.01, pow_gamma=1.5),
    "power, reference": analog.PowStepReferenceDevice(
        dw_min=0.01, reference_mean=0.1, subtract_symmetry_point=True, n_estimation_steps=200, w_max_dtod=0.1, w_min_dtod=0.1
    ),
    "piecewise": analog.PiecewiseStepDevice(
        dw_min=0.01, piecewise_up=(1.2, 1.0, 0.6, 0.8, 0.3), piecewise_down=(0.2, 0.9, 1.0, 1.1, 1.5)
    ),
}  # fmt: skip


@pytest.fixture(params=list(DEVICES.values()), ids=list(DEVICES))
def model(request: pytest.FixtureRequest) -> analog.PulsedDevice:
    """A device of each kind."""
    found: analog.PulsedDevice = request.param
    return found
