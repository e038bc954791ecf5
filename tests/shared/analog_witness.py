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


def product(x, w, io, bounded=True, drawn=None, average=None):
    """W x through DAC and ADC, with bound management, for one vector and without noise; ``drawn`` is what a tile has drawn."""

    def rounded(v, step):
        return np.rint(np.float32(v) / np.float32(step)).astype(np.float64) * step if step else v

    drawn, largest = drawn or {}, np.abs(x).max()
    of_sums = max(largest, max(x[x > 0].sum(), -x[x < 0].sum()) * io.nm_assumed_wmax / (io.out_bound or 1.0))
    if io.inp_step:
        of_sums = min(of_sums, largest * io.max_bm_res / (io.inp_step / (2.0 * io.inp_bound)))
    scale = {
        "NONE": 1.0, "ABS_MAX": min(largest, io.nm_thres or math.inf), "ABS_MAX_NP_SUM": of_sums, "MAX": x.max(),
        "CONSTANT": io.nm_thres, "AVERAGE_ABS_MAX": average,
    }[io.noise_management.name]  # fmt: skip
    scale, reduction = (scale if scale > 0.0 else 1.0), 1.0
    limit = min(io.max_bm_factor, io.max_bm_res / (io.inp_step / (2.0 * io.inp_bound)) if io.inp_step else math.inf)
    kind = io.bound_management.name
    worst = kind == "ITERATIVE_WORST_CASE"
    while True:
        v = np.clip(rounded(x / (scale * reduction), io.inp_step), -io.inp_bound, io.inp_bound)
        v = np.where(v < 0.0, v * (1.0 - io.inp_asymmetry), v)
        if io.mv_type.name == "ONE_PASS":
            parts = [currents(v, w, io, drawn)]
        else:
            up, down = np.maximum(v, 0.0), np.minimum(v, 0.0)
            parts = [currents(up, w, io, drawn), currents(down, w * drawn.get("read_asymmetry", 1.0), io, drawn)]
        if io.mv_type.name == "POS_NEG_SEPARATE":
            parts = [sum(parts)]
        parts = [rounded(y, io.out_step) for y in parts]
        bound = io.out_bound or math.inf
        clipped = any(np.any((np.abs(y) if io.bm_test_negative_bound else y) > bound * (1 + 1e-6)) for y in parts)
        y = sum(np.clip(y, -bound, bound) for y in parts) * scale * reduction * io.out_scale
        if not bounded or kind == "NONE" or not clipped or reduction > limit:
            return y
        if worst:
            scale, worst = of_sums, False
        else:
            reduction *= 2.0


def currents(v, w, io, drawn):
    """W v with the voltage drop, the offset, the compression and the asymmetry of outputs."""
    y = w @ v
    if io.ir_drop:
        n = len(v)
        load = np.abs(w) @ np.abs(v) * n / io.ir_drop_g_ratio
        share = 0.05 * load**3 - 0.2 * load**2 + 0.5 * load
        y = y - io.ir_drop * share * (w @ (v * (1.0 - (1.0 - np.arange(n) / n) ** 2)))
    offset, r = drawn.get("v_offset", 0.0), io.r_series
    reference = -io.v_offset_w_min * v.sum()

    def behind_resistance(current):
        return current / (1.0 + r * np.abs(current))

    y = (1.0 - offset) * behind_resistance(y + reference) - (1.0 + offset) * behind_resistance(reference)
    slope = drawn.get("nonlinearity", 0.0)
    if io.out_nonlinearity:
        y = y * (1.0 + io.slope_calibration * io.out_bound * (np.mean(slope) + r)) ** 2 / (1.0 + np.abs(slope * y))
    return np.where(y < 0.0, y * (1.0 - io.out_asymmetry), y)
