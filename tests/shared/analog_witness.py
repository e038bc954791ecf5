"""The physics of analog devices and of their periphery in NumPy, written from the formulas, as a second witness."""

import math

import numpy as np


def constant(device, p, w, up):
    return p["dwmin_up"] if up else -p["dwmin_down"]


def linear(device, p, w, up):
    high, low = (device.w_max, device.w_min) if device.mean_bound_reference else (p["max_bound"], p["min_bound"])
    if up:
        return p["dwmin_up"] * (1.0 - abs(device.gamma_up) * w / high)
    return -p["dwmin_down"] * (1.0 - abs(device.gamma_down) * w / low)


def soft_with_reference(device, p, w, up):
    v = w + p["reference"]
    return p["dwmin_up"] * (1.0 - v / p["max_bound"]) if up else -p["dwmin_down"] * (1.0 - v / p["min_bound"])


def exponential(device, p, w, up):
    z = 2.0 * device.a * w / (p["max_bound"] - p["min_bound"]) + device.b
    if up:
        return p["dwmin_up"] * max(1.0 - device.A_up * math.exp(device.gamma_up * z), 0.0)
    return -p["dwmin_down"] * max(1.0 - device.A_down * math.exp(-device.gamma_down * z), 0.0)


def power(device, p, w, up):
    v, width = w + p.get("reference", 0.0), p["max_bound"] - p["min_bound"]
    if up:
        return p["dwmin_up"] * max((p["max_bound"] - v) / width, 0.0) ** p["gamma_up"]
    return -p["dwmin_down"] * max((v - p["min_bound"]) / width, 0.0) ** p["gamma_down"]


def piecewise(device, p, w, up):
    nodes = device.piecewise_up if up else device.piecewise_down
    at = np.linspace(p["min_bound"], p["max_bound"], len(nodes))
    return (p["dwmin_up"] if up else -p["dwmin_down"]) * float(np.interp(w, at, nodes))


STEPS = {
    "ConstantStepDevice": constant, "LinearStepDevice": linear, "SoftBoundsDevice": linear, "SoftBoundsPmaxDevice": linear,
    "SoftBoundsReferenceDevice": soft_with_reference, "ExpStepDevice": exponential, "PowStepDevice": power,
    "PowStepReferenceDevice": power, "PiecewiseStepDevice": piecewise,
}  # fmt: skip
"""Name of a device → its mean step: (device, parameters of one cross-point, weight, direction)."""


def course(device, p, w, directions):
    """The weight of one cross-point after each of a list of pulses without noise."""
    low, high = p["min_bound"] - p.get("reference", 0.0), p["max_bound"] - p.get("reference", 0.0)
    found = []
    for up in directions:
        w = min(max(w + STEPS[type(device).__name__](device, p, w, up), low), high)
        found.append(w)
    return found


def product(x, w, io, bounded=True):
    """W x through DAC and ADC, with noise and bound management, for one vector and without noise."""

    def rounded(v, step):
        return np.rint(np.float32(v) / np.float32(step)).astype(np.float64) * step if step else v

    scale, reduction = np.abs(x).max() or 1.0, 1.0
    while True:
        v = np.clip(rounded(x / (scale * reduction), io.inp_step), -io.inp_bound, io.inp_bound)
        y = rounded(w @ v, io.out_step)
        clipped = np.any(np.abs(y) > io.out_bound * (1 + 1e-6))
        y = np.clip(y, -io.out_bound, io.out_bound) * scale * reduction * io.out_scale
        limit = min(io.max_bm_factor, io.max_bm_res / (io.inp_step / 2.0) if io.inp_step else math.inf)
        if not bounded or not clipped or reduction > limit:
            return y
        reduction *= 2.0
