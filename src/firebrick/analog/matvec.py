"""Products of a tile's weights with vectors through the analog periphery, as a program of tensor operations.

All random numbers are numbers of one draw of the tile's generator: the key of a call, and a place that is the stage, the
repetition by bound management, the vector (its number in the whole batch, of which a call may have a share) and the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from firebrick.analog.io_parameters import (
    AnalogMVType,
    BoundManagementType,
    IOParameters,
    NoiseManagementType,
    WeightNoiseType,
)
from firebrick.analog.normal_numbers import normals_of_rows, uniforms_of_rows
from firebrick.core.dtypes import float32
from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import full, ones_like, zeros
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import astype, clip, floor, less, maximum, minimum, sqrt, where
from firebrick.functions.elementwise import round as nearest
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import max as largest
from firebrick.functions.statistical import mean
from firebrick.functions.statistical import sum as total
from firebrick.functions.utility import any as any_of
from firebrick.graph import jit, while_loop

Drawn = dict[str, Tensor]


def drawn_of(io: IOParameters, rows: int, columns: int, normal: Any) -> dict[str, np.ndarray[Any, Any]]:
    """What is drawn once for the outputs of a tile.

    Args:
        io: Parameters.
        rows: Outputs.
        columns: Inputs.
        normal: Draws an array of normal numbers of a shape.
    """
    found = {}
    if io.out_noise_std > 0.0:
        found["out_noise"] = np.abs(io.out_noise * (1.0 + io.out_noise_std * normal((rows,))))
    if io.out_nonlinearity > 0.0 and io.out_bound > 0.0:
        found["nonlinearity"] = np.abs(io.out_nonlinearity / io.out_bound * (1.0 + io.out_nonlinearity_std * normal((rows,))))
    if io.v_offset_std > 0.0:
        found["v_offset"] = np.maximum(io.v_offset_std * normal((rows,)), 0.0)
    if io.w_read_asymmetry_dtod > 0.0 and io.mv_type is not AnalogMVType.ONE_PASS:
        found["read_asymmetry"] = 1.0 + io.w_read_asymmetry_dtod * normal((rows, columns))
    return found


def check_no_drawn(name: str, io: IOParameters) -> None:
    """Raise ConfigError if a product has parameters that are drawn once for a tile, or a running mean.

    Args:
        name: Of the setting, for messages.
        io: Parameters of the product.
    """
    drawn = io.out_noise_std or io.out_nonlinearity or io.v_offset_std or io.w_read_asymmetry_dtod
    if drawn or io.noise_management is NoiseManagementType.AVERAGE_ABS_MAX:
        raise ConfigError(
            f"{name} has nothing that is drawn once for a tile, and no running mean",
            "out_noise_std, out_nonlinearity, v_offset_std, w_read_asymmetry_dtod or AVERAGE_ABS_MAX", "leave it out",
        )  # fmt: skip


@dataclass(frozen=True)
class Noise:
    """Random numbers of one repetition of a product.

    Attributes:
        key: Of the call.
        repetition: Number of the repetition, int64 [].
        first: Number of the first vector.
    """

    key: Tensor
    repetition: Tensor
    first: int

    STAGES = 16

    def normal(self, stage: int, shape: tuple[int, ...]) -> Tensor:
        """Normal numbers of a stage."""
        stream = self.repetition * self.STAGES + stage
        found: Tensor = normals_of_rows(self.key, shape[0], shape[1], stream, self.first)
        return found

    def uniform(self, stage: int, shape: tuple[int, ...]) -> Tensor:
        """Uniform numbers of a stage in [0, 1)."""
        stream = self.repetition * self.STAGES + stage
        found: Tensor = uniforms_of_rows(self.key, shape[0], shape[1], stream, self.first)
        return found


COMPILED = 1 << 22
"""Multiplications of a product from which it runs as a program, which is compiled for its shapes at its first call, in about
0.1 s. By shape alone, so that a run that is resumed has the same bits."""


def analog_product(
    x: Tensor, weights: Tensor, io: IOParameters, drawn: Drawn, key: Tensor, average: Tensor | None, bounded: bool = True,
    first: int = 0, backward: bool = False,
) -> Tensor:  # fmt: skip
    """W x through the periphery, for each row of x; or Wᵀ x.

    Args:
        x: Vectors [samples, columns].
        weights: W, [rows, columns].
        io: Parameters.
        drawn: What ``drawn_of`` drew.
        key: Of the random numbers.
        average: For AVERAGE_ABS_MAX, the scale of each vector, [samples, 1].
        bounded: Whether there is bound management.
        first: Number of the first vector, where x is a share of a batch: the noise of a vector is that of its number.
        backward: Whether the product is Wᵀ x, of x [samples, rows], and drawn for it. Programs read transposed matrices
            where they are, but copy operands that are not row-major.

    Returns:
        [samples, rows], or [samples, columns].
    """
    large = x.shape[0] * weights.size >= COMPILED
    if not large or hooks.trace() is not None or hooks.levels:
        return _product(x, weights, drawn, key, average, io, bounded, first, backward)
    program = _program(io, bounded, first, backward, x.aval, weights.aval, x.device.name)
    found: Tensor = program(x, weights, drawn, key, average)
    return found


@lru_cache(maxsize=256)
def _program(io: IOParameters, bounded: bool, first: int, backward: bool, *_of_operands: Any) -> Any:
    """A product as a program, one for each shape."""
    return jit(partial(_product, io=io, bounded=bounded, first=first, backward=backward))


def _product(
    x: Tensor, weights: Tensor, drawn: Drawn, key: Tensor, average: Tensor | None, io: IOParameters, bounded: bool, first: int,
    backward: bool,
) -> Tensor:  # fmt: skip
    if io.is_perfect:
        return _scaled_back(matmul(x, _factor(weights, backward)), io)
    scale = _scale(x, io, io.noise_management, average)
    run = partial(_once, x, weights, io, drawn, key, first, backward)
    zero = asarray(0, device=x.device)
    if not bounded or io.bound_management is BoundManagementType.NONE or io.out_bound == 0.0:
        return _scaled_back(run(scale, zero)[0] * scale, io)
    worst = io.bound_management is BoundManagementType.ITERATIVE_WORST_CASE
    second = _scale(x, io, NoiseManagementType.ABS_MAX_NP_SUM, None) if worst else scale * 2.0
    y, clipped = run(scale, zero)
    limit = min(io.max_bm_factor, io.max_bm_res / (io.inp_step / (2.0 * io.inp_bound)) if io.inp_step else io.max_bm_factor)
    reductions = ones_like(scale)

    def more(state: Any) -> Tensor:
        return any_of(state[3])

    def again(state: Any) -> Any:
        y, scale, reduction, active, repetition = state
        y_new, clipped = run(scale, repetition)
        y = where(active, y_new * scale, y)
        active = active & clipped & less(reduction, limit_of_repetition)
        return y, where(active, scale * 2.0, scale), where(active, reduction * 2.0, reduction), active, repetition + 1

    limit_of_repetition = float(np.nextafter(np.float32(limit), np.float32(np.inf)))
    reductions = reductions if worst else reductions * 2.0
    active = clipped & (limit >= 1.0)
    state = (y * scale, second, reductions, active, zero + 1)
    found: Tensor = while_loop(more, again, state)[0]
    return _scaled_back(found, io)


def _factor(weights: Tensor, backward: bool) -> Tensor:
    """The matrix that vectors are multiplied by, as rows: Wᵀ, or W."""
    return weights if backward else matrix_transpose(weights)


def _scaled_back(y: Tensor, io: IOParameters) -> Tensor:
    return y if io.out_scale == 1.0 else y * io.out_scale


def _scale(x: Tensor, io: IOParameters, management: NoiseManagementType, average: Tensor | None) -> Tensor:
    """What each vector is divided by, [samples, 1]; 1 for vectors of zeros."""
    top = largest(absolute(x), axis=1, keepdims=True)
    if management is NoiseManagementType.ABS_MAX:
        found = minimum(top, io.nm_thres) if io.nm_thres > 0.0 else top
    elif management is NoiseManagementType.MAX:
        found = largest(x, axis=1, keepdims=True)
    elif management is NoiseManagementType.CONSTANT:
        found = full((x.shape[0], 1), io.nm_thres if io.nm_thres > 0.0 else 1.0, dtype=float32, device=x.device)
    elif management is NoiseManagementType.ABS_MAX_NP_SUM:
        positive = total(maximum(x, 0.0), axis=1, keepdims=True)
        negative = total(maximum(-x, 0.0), axis=1, keepdims=True)
        found = maximum(top, maximum(positive, negative) * (io.nm_assumed_wmax / (io.out_bound or 1.0)))
        if io.inp_step:
            found = minimum(found, top * (io.max_bm_res * 2.0 * io.inp_bound / io.inp_step))
    elif management is NoiseManagementType.AVERAGE_ABS_MAX and average is not None:
        found = average
    else:
        found = ones_like(top)
    return where(found > 0.0, found, 1.0)


def _converted(v: Tensor, step: float, stochastic: Tensor | None) -> Tensor:
    """Rounded to multiples of a step, in float32."""
    if step > 0.0:
        level = v / step
        v = (nearest(level) if stochastic is None else floor(level + stochastic)) * step
    return v


def _once(
    x: Tensor, weights: Tensor, io: IOParameters, drawn: Drawn, key: Tensor, first: int, backward: bool, scale: Tensor,
    repetition: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One product before it is scaled back, and which vectors, [samples, 1], had an output clipped."""
    noise = Noise(key, repetition, first)
    x = x / scale
    x = _converted(x, io.inp_step, noise.uniform(0, x.shape) if io.inp_sto_round else None)
    x = clip(x, -io.inp_bound, io.inp_bound)
    if io.inp_noise > 0.0:
        x = x + noise.normal(1, x.shape) * io.inp_noise
    if io.inp_asymmetry != 0.0:
        x = where(x < 0.0, x * (1.0 - io.inp_asymmetry), x)
    if io.mv_type is AnalogMVType.ONE_PASS:
        return _digital(_currents(x, weights, io, drawn, noise, backward, 2), io, drawn, noise, 4)
    of_negative = weights
    if "read_asymmetry" in drawn:
        asymmetry = drawn["read_asymmetry"]
        of_negative = weights * (matrix_transpose(asymmetry) if backward else asymmetry)
    up = _currents(maximum(x, 0.0), weights, io, drawn, noise, backward, 2)
    down = _currents(minimum(x, 0.0), of_negative, io, drawn, noise, backward, 3)
    if io.mv_type is AnalogMVType.POS_NEG_SEPARATE:
        return _digital(up + down, io, drawn, noise, 4)
    y, clipped = _digital(up, io, drawn, noise, 4)
    z, also = _digital(down, io, drawn, noise, 6)
    return y + z, clipped | also


def _currents(
    x: Tensor, weights: Tensor, io: IOParameters, drawn: Drawn, noise: Noise, backward: bool, stage: int
) -> Tensor:  # fmt: skip
    """Currents of the outputs, before the noise of the outputs."""
    factor = _factor(weights, backward)
    y = matmul(x, factor)
    if io.ir_drop > 0.0:
        n = x.shape[1]
        places = 1.0 - (1.0 - astype(arange(n, device=x.device), float32) / n) ** 2
        load = matmul(absolute(x), _factor(absolute(weights), backward)) * (n / io.ir_drop_g_ratio)
        share = load * (load * (load * 0.05 - 0.2) + 0.5)
        y = y - share * matmul(x * places, factor) * io.ir_drop
    if io.v_offset_std > 0.0 or io.r_series > 0.0:
        y = _offset(y, x, io, drawn)
    if io.w_noise > 0.0 and io.w_noise_type is WeightNoiseType.ADDITIVE_CONSTANT:
        norm = sqrt(total(x * x, axis=1, keepdims=True))
        y = y + noise.normal(stage, y.shape) * norm * io.w_noise
    elif io.w_noise > 0.0 and io.w_noise_type is WeightNoiseType.PCM_READ:
        y = y + noise.normal(stage, y.shape) * sqrt(matmul(x * x, _factor(absolute(weights), backward))) * io.w_noise
    slope = drawn.get("nonlinearity")
    if slope is not None:
        calibration = ((mean(slope) + io.r_series) * (io.slope_calibration * io.out_bound) + 1.0) ** 2
        y = y * calibration / (absolute(y * slope) + 1.0)
    if io.out_asymmetry != 0.0:
        y = where(y < 0.0, y * (1.0 - io.out_asymmetry), y)
    return y


def _offset(y: Tensor, x: Tensor, io: IOParameters, drawn: Drawn) -> Tensor:
    """Offset voltages and series resistances of the outputs."""
    v = drawn.get("v_offset", zeros((), dtype=float32, device=x.device))
    r = io.r_series
    if io.v_offset_w_min == 0.0:
        return y * (1.0 - v) / (absolute(y) * r + 1.0)
    reference = total(x, axis=1, keepdims=True) * -io.v_offset_w_min
    if r == 0.0:
        return y * (1.0 - v) - v * reference * 2.0
    whole = y + reference
    return (1.0 - v) * whole / (absolute(whole) * r + 1.0) - (v + 1.0) * reference / (absolute(reference) * r + 1.0)


def _digital(y: Tensor, io: IOParameters, drawn: Drawn, noise: Noise, stage: int) -> tuple[Tensor, Tensor]:
    """Outputs after their noise and the ADC, and which vectors had one clipped."""
    if io.out_noise > 0.0:
        y = y + noise.normal(stage, y.shape) * drawn.get("out_noise", io.out_noise)
    y = _converted(y, io.out_step, noise.uniform(stage + 1, y.shape) if io.out_sto_round else None)
    if io.out_bound == 0.0:
        return y, y[:, :1] != y[:, :1]
    over = (absolute(y) if io.bm_test_negative_bound else y) > io.out_bound
    return clip(y, -io.out_bound, io.out_bound), any_of(over, axis=1, keepdims=True)
