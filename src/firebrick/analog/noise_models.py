"""Noise models of inference: what programming, time and reading do to conductances.

A model has three functions of conductances in microsiemens: programming, the parameters of the drift that each device gets when
it is programmed, and the conductance that a read at a time finds. Each takes a function that draws normal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from firebrick.analog.checks import check_numbers, keep_python_numbers
from firebrick.analog.conductance_converters import (
    ConductanceConverter,
    SingleDeviceConductanceConverter,
    SinglePairConductanceConverter,
)
from firebrick.core.docstrings import documented_like
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import clip, exp, less, log, maximum, minimum, where
from firebrick.functions.elementwise import pow as power

Normal = Callable[[], Tensor]
"""Draws a normal number for each conductance."""
DAY = 86400.0


def polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """c₀ + c₁ x + c₂ x² + …

    Args:
        x: Tensor.
        coefficients: c₀, c₁, ….
    """
    found = x * 0.0 + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        found = found * x + c
    return found


@dataclass(frozen=True)
class NoiseModel:
    """Base of noise models. A model of one's own is a frozen dataclass with the three functions below.

    Args:
        g_converter: Which conductances a weight has; by default a pair with the model's ``g_max``.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        A model whose programming is off by 0.1 microsiemens, and that does not drift:

        >>> from dataclasses import dataclass
        >>> import firebrick as fb
        >>> @dataclass(frozen=True)
        ... class Steady(fb.analog.NoiseModel):
        ...     def apply_programming_noise_to_conductance(self, g_target, normal):
        ...         return fb.maximum(g_target + normal() * 0.1, 0.0)
        ...
        ...     def generate_drift_coefficients(self, g_target, g, normal):
        ...         return fb.zeros_like(g)
        ...
        ...     def apply_drift_noise_to_conductance(self, g, coefficients, t_inference, normal):
        ...         return g
        >>> tile = fb.analog.InferenceTile(4, 3, fb.analog.InferenceRPUConfig(noise_model=Steady()), seed=0)
        >>> _ = tile.set_weights(fb.ones((4, 3)))
        >>> tile.eval().program_weights()
        >>> 0.0 < tile.statistics().error_std < 0.02
        True
    """

    g_converter: ConductanceConverter | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        if self.g_converter is None:
            object.__setattr__(self, "g_converter", self.default_converter())
        if not isinstance(self.g_converter, ConductanceConverter):
            raise ConfigError(
                f"{name}: g_converter is a ConductanceConverter", repr(self.g_converter)[:80],
                "pass e.g. analog.SinglePairConductanceConverter(g_max=25.0)",
            )  # fmt: skip
        for key in ("prog_noise_scale", "read_noise_scale", "drift_scale", "drift_nu_std", "noise_scale"):
            if hasattr(self, key):
                check_numbers(name, self, key, least=0.0)
        for key in ("g_max", "t_0", "t_read", "prog_coeff_g_max_reference"):
            if hasattr(self, key):
                check_numbers(name, self, key, above=0.0)
        for key in ("prog_coeff", "g_lst", "nu_mean_lst", "nu_std_lst"):
            given = getattr(self, key, (0.0,))
            if not isinstance(given, tuple) or not given or not all(_is_number(v) for v in given):
                raise ConfigError(f"{name}: {key} is a tuple of finite numbers", f"{key}={given!r:.80}", "pass a tuple")

    def default_converter(self) -> ConductanceConverter:
        """The converter where none is given."""
        return SinglePairConductanceConverter(g_max=getattr(self, "g_max", 25.0))

    @property
    def converter(self) -> ConductanceConverter:
        """Which conductances a weight has."""
        assert self.g_converter is not None
        return self.g_converter

    def check_time(self, t_inference: float) -> None:
        """Raise ConfigError for a time after programming that the model says nothing of.

        Args:
            t_inference: In seconds, at least 0.
        """

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        """The conductances after programming.

        Args:
            g_target: Those that are aimed at, in microsiemens.
            normal: Draws a normal number for each device.
        """
        raise NotImplementedError(f"{type(self).__name__} has no apply_programming_noise_to_conductance: write it")

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        """What decides the drift of each device, such as its exponent; drawn once, when it is programmed.

        Args:
            g_target: Conductances that were aimed at, in microsiemens.
            g: Conductances after programming, in microsiemens.
            normal: Draws a normal number for each device.
        """
        raise NotImplementedError(f"{type(self).__name__} has no generate_drift_coefficients: write it")

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        """The conductances that a read at a time after programming finds.

        Args:
            g: Conductances after programming, in microsiemens.
            coefficients: From ``generate_drift_coefficients``.
            t_inference: Seconds since programming.
            normal: Draws a normal number for each device.
        """
        raise NotImplementedError(f"{type(self).__name__} has no apply_drift_noise_to_conductance: write it")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _read_growth(t: float, t_read: float) -> float:
    """√ln((t + t_read) / (2 t_read)): how 1/f noise grows with the time since programming."""
    return math.sqrt(max(math.log((t + t_read) / (2.0 * t_read)), 0.0))


def _drifted(g: Tensor, exponents: Tensor, t: float, t_0: float) -> Tensor:
    """g · ((t + t₀) / t₀)^-ν."""
    return g * exp(exponents * -math.log((t + t_0) / t_0))


def _spread(g: Tensor, normal: Normal, deviation: Tensor) -> Tensor:
    return maximum(g + deviation * normal(), 0.0)


@documented_like(NoiseModel)
@dataclass(frozen=True)
class PCMLikeNoiseModel(NoiseModel):
    r"""Phase-change memory: programming noise by a polynomial, drift by power laws, and 1/f read noise.

    With g_r = g / g_max: g = max(g_T + σ ξ, 0) with σ = Σ cᵢ g_rⁱ · g_max / 25 of the target; exponents
    ν = \|μ + σ ξ\| with μ = clip(-0.0155 ln g_r + 0.0244, 0.049, 0.1) and σ = clip(-0.0125 ln g_r - 0.0059, 0.008, 0.045);
    g(t) = g ((t + t₀) / t₀)^-ν, read with the relative noise min(0.0088 / g_r^0.65, 0.2) √ln((t + t₀ + t_read) / (2 t_read)).

    Args:
        g_max: Largest conductance, in microsiemens.
        prog_coeff: Coefficients c of the programming noise, in microsiemens.
        prog_coeff_g_max_reference: Largest conductance for which they were measured.
        prog_noise_scale: Factor of the programming noise.
        read_noise_scale: Factor of the read noise.
        drift_scale: Factor of the exponents.
        t_0: Time from programming to the read that is called time 0, in seconds.
        t_read: Duration of a read, in seconds.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.PCMLikeNoiseModel(read_noise_scale=0.0).t_0
        20.0

    Source: Joshi et al., "Accurate deep neural network inference using computational phase-change memory", Nature
        Communications, 2020.
    """

    g_max: float = 25.0
    prog_coeff: tuple[float, ...] = (0.26348, 1.9650, -1.1731)
    prog_coeff_g_max_reference: float = 25.0
    prog_noise_scale: float = 1.0
    read_noise_scale: float = 1.0
    drift_scale: float = 1.0
    t_0: float = 20.0
    t_read: float = 250e-9

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        deviation = maximum(polynomial(g_target / self.g_max, self.prog_coeff), 0.0)
        return _spread(g_target, normal, deviation * (self.prog_noise_scale * self.g_max / self.prog_coeff_g_max_reference))

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        logarithm = _log_share(g, self.g_max)
        mean, deviation = clip(logarithm * -0.0155 + 0.0244, 0.049, 0.1), clip(logarithm * -0.0125 - 0.0059, 0.008, 0.045)
        return absolute(mean + deviation * normal()) * self.drift_scale

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        share = minimum(0.0088 / maximum(power(maximum(g / self.g_max, 0.0), 0.65), 1e-3), 0.2)
        now = _drifted(g, coefficients, t_inference, self.t_0)
        growth = _read_growth(t_inference + self.t_0, self.t_read) * self.read_noise_scale
        return _spread(now, normal, now * share * growth)


def _log_share(g: Tensor, g_max: float) -> Tensor:
    """ln(g / g_max), with conductances of 0 far below all limits that it is clipped to."""
    return log(maximum(g / g_max, 1e-7))


@documented_like(NoiseModel)
@dataclass(frozen=True)
class CustomDriftPCMLikeNoiseModel(NoiseModel):
    """``PCMLikeNoiseModel`` with drift exponents from a table, linear between its conductances.

    Args:
        g_lst: Conductances, in microsiemens, increasing.
        nu_mean_lst: Mean exponent at each.
        nu_std_lst: Standard deviation of the exponent at each.
        g_max: Largest conductance, in microsiemens.
        prog_coeff: As of ``PCMLikeNoiseModel``, and so are all that follow.
        prog_coeff_g_max_reference: See there.
        prog_noise_scale: See there.
        read_noise_scale: See there.
        drift_scale: See there.
        t_0: See there.
        t_read: See there.

    Raises:
        ConfigError: A setting has no meaning, or the table is not increasing.

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.CustomDriftPCMLikeNoiseModel((0.0, 25.0), (0.1, 0.05), (0.0, 0.0))
        >>> g = fb.asarray([0.0, 12.5])
        >>> fb.round(model.generate_drift_coefficients(g, g, lambda: fb.zeros(2)) * 1000.0).tolist()
        [100.0, 75.0]
    """

    g_lst: tuple[float, ...] = (0.0, 25.0)
    nu_mean_lst: tuple[float, ...] = (0.06, 0.06)
    nu_std_lst: tuple[float, ...] = (0.0, 0.0)
    g_max: float = 25.0
    prog_coeff: tuple[float, ...] = (0.26348, 1.9650, -1.1731)
    prog_coeff_g_max_reference: float = 25.0
    prog_noise_scale: float = 1.0
    read_noise_scale: float = 1.0
    drift_scale: float = 1.0
    t_0: float = 20.0
    t_read: float = 250e-9

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = {len(self.g_lst), len(self.nu_mean_lst), len(self.nu_std_lst)}
        if len(sizes) != 1 or len(self.g_lst) < 2 or any(b <= a for a, b in pairwise(self.g_lst)) or min(self.nu_std_lst) < 0.0:
            raise ConfigError(
                "CustomDriftPCMLikeNoiseModel: g_lst increases; nu_mean_lst and nu_std_lst have as many, the latter ≥ 0",
                f"{self.g_lst!r:.40}, {self.nu_mean_lst!r:.40}, {self.nu_std_lst!r:.40}", "pass three tuples of equal length",
            )  # fmt: skip

    @property
    def _like(self) -> PCMLikeNoiseModel:
        return PCMLikeNoiseModel(
            self.g_max, self.prog_coeff, self.prog_coeff_g_max_reference, self.prog_noise_scale, self.read_noise_scale,
            self.drift_scale, self.t_0, self.t_read,
        )  # fmt: skip

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        return self._like.apply_programming_noise_to_conductance(g_target, normal)

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        mean, deviation = self._between(g, self.nu_mean_lst), self._between(g, self.nu_std_lst)
        return absolute(mean + deviation * normal()) * self.drift_scale

    def _between(self, g: Tensor, values: tuple[float, ...]) -> Tensor:
        found = g * 0.0 + values[0]
        for (a, b), (u, v) in zip(pairwise(self.g_lst), pairwise(values), strict=True):
            found = found + clip((g - a) / (b - a), 0.0, 1.0) * (v - u)
        return found

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        return self._like.apply_drift_noise_to_conductance(g, coefficients, t_inference, normal)


@documented_like(NoiseModel)
@dataclass(frozen=True)
class StateIndependentNoiseModel(NoiseModel):
    """Phase-change memory whose programming noise and drift do not depend on the conductance.

    Args:
        g_max: Largest conductance, in microsiemens.
        prog_coeff: Coefficients of the programming noise, a polynomial of g / g_max, in microsiemens.
        prog_noise_scale: Its factor.
        drift_nu_mean: Mean exponent.
        drift_nu_std: Its standard deviation.
        drift_scale: Factor of the exponents.
        read_noise_scale: Factor of the read noise, whose deviation is g · (g / g_max) √ln((t + t₀ + t_read) / (2 t_read)) / g.
        t_0: Time from programming to the read that is called time 0, in seconds.
        t_read: Duration of a read, in seconds.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.StateIndependentNoiseModel().drift_nu_mean
        0.1
    """

    g_max: float = 25.0
    prog_coeff: tuple[float, ...] = (0.2, 0.0, 0.0)
    prog_noise_scale: float = 1.0
    drift_nu_mean: float = 0.1
    drift_nu_std: float = 0.05
    drift_scale: float = 1.0
    read_noise_scale: float = 1.0
    t_0: float = 20.0
    t_read: float = 250e-9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(type(self).__name__, self, "drift_nu_mean")

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        deviation = maximum(polynomial(g_target / self.g_max, self.prog_coeff), 0.0)
        return _spread(g_target, normal, deviation * self.prog_noise_scale)

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        return absolute(normal() * self.drift_nu_std + self.drift_nu_mean) * self.drift_scale

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        now = _drifted(g, coefficients, t_inference, self.t_0)
        growth = _read_growth(t_inference + self.t_0, self.t_read) * self.read_noise_scale / self.g_max
        return _spread(now, normal, now * growth)


_HERMES: dict[int, dict[str, Any]] = {
    1: {
        "g_max": 10.35, "t_0": 200.0, "prog_coeff": (0.15781817, 2.32443916, -2.16310839, 0.68841818),
        "deviation": (0.3039, (-0.012, -0.0023, 0.0124, 0.04), (0.0104, 0.0116, -0.0165)),
        "read": (0.1591, (-0.0078, 0.0038, 0.0179, 0.04), (0.0088, 0.0768, -0.1352, 0.0664)),
    },
    2: {
        "g_max": 20.7, "t_0": 300.0, "prog_coeff": (0.16603222, 4.71806468, -8.48101252, 4.68961419),
        "deviation": (0.3055, (-0.0117, -0.0057, 0.0091, 0.04), (0.0073, 0.0093, -0.0118)),
        "read": (0.16, (-0.0117, -0.0069, 0.015, 0.04), (0.0123, 0.0211, -0.028, 0.0069)),
    },
}  # fmt: skip
"""By number of devices: what is measured. Below the first share of g_max a logarithm, clipped, above it a polynomial."""


@documented_like(NoiseModel)
@dataclass(frozen=True)
class HermesNoiseModel(NoiseModel):
    """The phase-change memory of the 64-core Hermes chip, with one or two devices for a conductance.

    Args:
        num_devices: 1 or 2.
        g_max: Largest conductance, in microsiemens; 10.35 for one device, 20.7 for two if None.
        prog_coeff: Coefficients of the programming noise, a polynomial of g / g_max, in microsiemens; those measured if None.
        prog_noise_scale: Factor of the programming noise.
        read_noise_scale: Factor of the read noise.
        drift_scale: Factor of the exponents.
        t_0: Time from programming to the read that is called time 0, in seconds; 200 or 300 if None.
        t_read: Duration of a read, in seconds.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.HermesNoiseModel(num_devices=2).g_max
        20.7

    Source: Le Gallo et al., "A 64-core mixed-signal in-memory compute chip based on phase-change memory for deep neural network
        inference", Nature Electronics, 2023.
    """

    num_devices: int = 1
    g_max: float | None = None
    prog_coeff: tuple[float, ...] | None = None
    prog_noise_scale: float = 1.0
    read_noise_scale: float = 1.0
    drift_scale: float = 1.0
    t_0: float | None = None
    t_read: float = 512e-9

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        if type(self.num_devices) is not int or self.num_devices not in _HERMES:
            raise ConfigError("HermesNoiseModel: num_devices is 1 or 2", repr(self.num_devices)[:40], "pass 1 or 2")
        for name in ("g_max", "prog_coeff", "t_0"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, _HERMES[self.num_devices][name])
        super().__post_init__()

    @property
    def _measured(self) -> tuple[float, float, tuple[float, ...]]:
        """g_max, t_0 and prog_coeff, which are set by now."""
        assert self.g_max is not None
        assert self.t_0 is not None
        assert self.prog_coeff is not None
        return self.g_max, self.t_0, self.prog_coeff

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        g_max, _, coefficients = self._measured
        deviation = maximum(polynomial(g_target / g_max, coefficients), 0.0)
        return _spread(g_target, normal, deviation * (self.prog_noise_scale * g_max / _HERMES[self.num_devices]["g_max"]))

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        g_max, _, _ = self._measured
        g = g_target
        mean = _in_two_parts(g, g_max, (0.0945, (-0.0387, -0.0182, 0.072, 0.13), (0.0736, -0.0126, -0.0436)))
        deviation = _in_two_parts(g, g_max, _HERMES[self.num_devices]["deviation"])
        return absolute(mean + deviation * normal()) * self.drift_scale

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        g_max, t_0, _ = self._measured
        share = _in_two_parts(g, g_max, _HERMES[self.num_devices]["read"])
        now = _drifted(g, coefficients, t_inference, t_0)
        return _spread(now, normal, now * share * (_read_growth(t_inference + t_0, self.t_read) * self.read_noise_scale))


def _in_two_parts(g: Tensor, g_max: float, form: tuple[float, tuple[float, ...], tuple[float, ...]]) -> Tensor:
    """A logarithm of g / g_max, clipped, below a share of g_max, and a polynomial above it."""
    border, (slope, offset, low, high), coefficients = form
    share = g / g_max
    return where(less(share, border), clip(_log_share(g, g_max) * slope + offset, low, high), polynomial(share, coefficients))


_WAN = {
    1.0: (0.348, 16.03, -43.853, 45.393, -16.815), DAY: (0.701, 22.086, -50.773, 47.095, -16.458),
    2.0 * DAY: (0.782, 20.274, -43.507, 37.062, -11.934),
}  # fmt: skip
"""Time since programming in seconds → coefficients of the deviation from the target, in microsiemens of 25."""


@documented_like(NoiseModel)
@dataclass(frozen=True)
class ReRamWan2022NoiseModel(NoiseModel):
    """Resistive memory whose deviation from the target was measured one second, one day and two days after programming.

    The conductance at a time is the target plus a deviation of that time, drawn at each read; there is no course of one device,
    and no other time.

    Args:
        g_max: Largest conductance, in microsiemens.
        noise_scale: Factor of the deviations.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.ReRamWan2022NoiseModel().check_time(60.0)
        Traceback (most recent call last):
        ...
        firebrick.core.errors.ConfigError: ReRamWan2022NoiseModel: a time of 1, 86400 or 172800 s...

    Source: Wan et al., "A compute-in-memory chip based on resistive random-access memory", Nature, 2022.
    """

    g_max: float = 25.0
    noise_scale: float = 1.0

    def check_time(self, t_inference: float) -> None:
        if t_inference not in _WAN:
            raise ConfigError(
                f"{type(self).__name__}: a time of {', '.join(f'{t:g}' for t in list(_WAN)[:-1])} or {list(_WAN)[-1]:g} s",
                f"{t_inference:g} s", "pass one of those: nothing was measured at others",
            )  # fmt: skip

    def _at(self, g_target: Tensor, seconds: float, normal: Normal) -> Tensor:
        deviation = maximum(polynomial(g_target / self.g_max, _WAN[seconds]), 0.0)
        return _spread(g_target, normal, deviation * (self.noise_scale * self.g_max / 25.0))

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        return self._at(g_target, 1.0, normal)

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        return g_target  # about which the deviations of all times are drawn

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        self.check_time(t_inference)
        return self._at(coefficients, t_inference, normal)


_CMO = {0.2: (0.00081107, 0.00106879), 2.0: (0.0112185, 0.01129027)}
"""Acceptance range in percent → coefficients of the programming noise in microsiemens, a polynomial of g in microsiemens."""


@documented_like(NoiseModel)
@dataclass(frozen=True)
class ReRamCMONoiseModel(NoiseModel):
    """Resistive memory with a conductive metal oxide, one device for a weight by default.

    σ_prog is linear in g. g(t) = g + drift_scale · ((0.042 ln t + 0.4118) ξ - 0.089 ln t) for t ≥ 1 s, with one ξ for each
    device, read with the deviation 0.0277 log₁₀ g √ln((t + t_read) / (2 t_read)). At t = 0 it is that after programming.

    Args:
        acceptance_range: Of the programming, in percent: 0.2 or 2.
        g_max: Largest conductance, in microsiemens.
        g_min: Smallest conductance, in microsiemens.
        prog_noise_scale: Factor of the programming noise.
        read_noise_scale: Factor of the read noise.
        drift_scale: Factor of the drift.
        t_read: Duration of a read, in seconds.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.ReRamCMONoiseModel(acceptance_range=2.0).converter.devices
        1
    """

    acceptance_range: float = 0.2
    g_max: float = 88.19
    g_min: float = 9.0
    prog_noise_scale: float = 1.0
    read_noise_scale: float = 1.0
    drift_scale: float = 1.0
    t_read: float = 1e-6

    def __post_init__(self) -> None:
        if self.acceptance_range not in _CMO:
            raise ConfigError(
                "ReRamCMONoiseModel: acceptance_range is 0.2 or 2 percent", repr(self.acceptance_range)[:40], "pass 0.2 or 2.0"
            )
        super().__post_init__()

    def default_converter(self) -> ConductanceConverter:
        return SingleDeviceConductanceConverter(g_max=self.g_max, g_min=self.g_min)

    def check_time(self, t_inference: float) -> None:
        if 0.0 < t_inference < 1.0:
            raise ConfigError("ReRamCMONoiseModel: a time of 0 or at least 1 s", f"{t_inference:g} s", "pass 0 or 1")

    def apply_programming_noise_to_conductance(self, g_target: Tensor, normal: Normal) -> Tensor:
        deviation = polynomial(g_target, _CMO[self.acceptance_range]) * self.prog_noise_scale
        return clip(g_target + deviation * normal(), self.g_min, self.g_max)

    def generate_drift_coefficients(self, g_target: Tensor, g: Tensor, normal: Normal) -> Tensor:
        return normal()

    def apply_drift_noise_to_conductance(self, g: Tensor, coefficients: Tensor, t_inference: float, normal: Normal) -> Tensor:
        self.check_time(t_inference)
        if t_inference == 0.0:
            return g
        logarithm = math.log(t_inference)
        now = g + (coefficients * (0.04201137 * logarithm + 0.41183342) - 0.08900206 * logarithm) * self.drift_scale
        growth = 0.0277316 * _read_growth(t_inference, self.t_read) * self.read_noise_scale / math.log(10.0)
        deviation = log(maximum(now, 1.0)) * growth
        return clip(now + deviation * normal(), self.g_min, self.g_max)
