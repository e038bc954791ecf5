"""Each noise model of inference beside its formulas in NumPy: programming, coefficients of drift and reads, at any time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog

TIMES = (0.0, 1.0, 3600.0, 86400.0, 172800.0, 3.0e7)
Array = np.ndarray[Any, Any]


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    return sum(c * x**k for k, c in enumerate(coefficients))


def growth(t: float, t_read: float) -> float:
    return math.sqrt(max(math.log((t + t_read) / (2.0 * t_read)), 0.0))


def logarithm(share: Array) -> Array:
    return np.log(np.maximum(share, 1e-7))


def power_law(m: Any, g: Array, nu: Array, t: float) -> Array:
    return g * ((t + m.t_0) / m.t_0) ** -nu


def pcm_programming(m: Any, g: Array, xi: float) -> Array:
    sigma = np.maximum(polynomial(g / m.g_max, m.prog_coeff), 0.0) * m.g_max / m.prog_coeff_g_max_reference
    return np.maximum(g + m.prog_noise_scale * sigma * xi, 0.0)


def pcm_exponents(m: Any, target: Array, g: Array, xi: float) -> Array:
    mean = np.clip(-0.0155 * logarithm(g / m.g_max) + 0.0244, 0.049, 0.1)
    return m.drift_scale * np.abs(mean + np.clip(-0.0125 * logarithm(g / m.g_max) - 0.0059, 0.008, 0.045) * xi)


def pcm_read(m: Any, g: Array, nu: Array, t: float, xi: float) -> Array:
    noise = np.minimum(0.0088 / np.maximum((g / m.g_max) ** 0.65, 1e-3), 0.2) * growth(t + m.t_0, m.t_read)
    return np.maximum(power_law(m, g, nu, t) * (1.0 + m.read_noise_scale * noise * xi), 0.0)


def table_exponents(m: Any, target: Array, g: Array, xi: float) -> Array:
    mean, std = np.interp(g, m.g_lst, m.nu_mean_lst), np.interp(g, m.g_lst, m.nu_std_lst)
    return m.drift_scale * np.abs(mean + std * xi)


def independent_programming(m: Any, g: Array, xi: float) -> Array:
    return np.maximum(g + m.prog_noise_scale * np.maximum(polynomial(g / m.g_max, m.prog_coeff), 0.0) * xi, 0.0)


def independent_exponents(m: Any, target: Array, g: Array, xi: float) -> Array:
    return np.full_like(g, m.drift_scale * abs(m.drift_nu_mean + m.drift_nu_std * xi))


def independent_read(m: Any, g: Array, nu: Array, t: float, xi: float) -> Array:
    noise = growth(t + m.t_0, m.t_read) / m.g_max
    return np.maximum(power_law(m, g, nu, t) * (1.0 + m.read_noise_scale * noise * xi), 0.0)


def two_parts(share: Array, border: float, slope: float, offset: float, low: float, high: float, *above: float) -> Array:
    return np.where(share < border, np.clip(slope * logarithm(share) + offset, low, high), polynomial(share, above))


HERMES_STD = {
    1: (0.3039, -0.012, -0.0023, 0.0124, 0.04, 0.0104, 0.0116, -0.0165),
    2: (0.3055, -0.0117, -0.0057, 0.0091, 0.04, 0.0073, 0.0093, -0.0118),
}
HERMES_READ = {
    1: (0.1591, -0.0078, 0.0038, 0.0179, 0.04, 0.0088, 0.0768, -0.1352, 0.0664),
    2: (0.16, -0.0117, -0.0069, 0.015, 0.04, 0.0123, 0.0211, -0.028, 0.0069),
}


def hermes_programming(m: Any, g: Array, xi: float) -> Array:
    sigma = np.maximum(polynomial(g / m.g_max, m.prog_coeff), 0.0) * m.g_max / (10.35 * m.num_devices)
    return np.maximum(g + m.prog_noise_scale * sigma * xi, 0.0)


def hermes_exponents(m: Any, target: Array, g: Array, xi: float) -> Array:
    share = target / m.g_max
    mean = two_parts(share, 0.0945, -0.0387, -0.0182, 0.072, 0.13, 0.0736, -0.0126, -0.0436)
    return m.drift_scale * np.abs(mean + two_parts(share, *HERMES_STD[m.num_devices]) * xi)


def hermes_read(m: Any, g: Array, nu: Array, t: float, xi: float) -> Array:
    noise = two_parts(g / m.g_max, *HERMES_READ[m.num_devices]) * growth(t + m.t_0, m.t_read)
    return np.maximum(power_law(m, g, nu, t) * (1.0 + m.read_noise_scale * noise * xi), 0.0)


WAN = {
    1.0: (0.348, 16.03, -43.853, 45.393, -16.815), 86400.0: (0.701, 22.086, -50.773, 47.095, -16.458),
    172800.0: (0.782, 20.274, -43.507, 37.062, -11.934),
}  # fmt: skip


def wan_read(m: Any, g: Array, target: Array, t: float, xi: float) -> Array:
    sigma = np.maximum(polynomial(target / m.g_max, WAN[t]), 0.0) * m.g_max / 25.0
    return np.maximum(target + m.noise_scale * sigma * xi, 0.0)


CMO = {0.2: (0.00081107, 0.00106879), 2.0: (0.0112185, 0.01129027)}


def cmo_programming(m: Any, g: Array, xi: float) -> Array:
    return np.clip(g + m.prog_noise_scale * polynomial(g, CMO[m.acceptance_range]) * xi, m.g_min, m.g_max)


def cmo_read(m: Any, g: Array, own: Array, t: float, xi: float) -> Array:
    if t == 0.0:
        return g
    now = g + m.drift_scale * ((0.04201137 * math.log(t) + 0.41183342) * own - 0.08900206 * math.log(t))
    noise = 0.0277316 * np.log10(np.maximum(now, 1.0)) * growth(t, m.t_read)
    return np.clip(now + m.read_noise_scale * noise * xi, m.g_min, m.g_max)


SCALES = {"prog_noise_scale": 1.5, "read_noise_scale": 2.0, "drift_scale": 0.7}
TIMING = {"t_0": 30.0, "t_read": 1e-3}
Formulas = tuple[Callable[..., Array], Callable[..., Array], Callable[..., Array]]
PCM: Formulas = pcm_programming, pcm_exponents, pcm_read
TABLE: Formulas = pcm_programming, table_exponents, pcm_read
INDEPENDENT: Formulas = independent_programming, independent_exponents, independent_read
HERMES: Formulas = hermes_programming, hermes_exponents, hermes_read
OF_WAN: Formulas = (lambda m, g, xi: wan_read(m, g, g, 1.0, xi)), (lambda m, target, g, xi: target), wan_read
OF_CMO: Formulas = cmo_programming, (lambda m, target, g, xi: np.full_like(g, xi)), cmo_read
ROWS: list[tuple[Any, Formulas]] = [
    (analog.PCMLikeNoiseModel(), PCM),
    (analog.PCMLikeNoiseModel(20.0, (0.5, -2.0, 1.0), 15.0, **SCALES, **TIMING), PCM),
    (analog.CustomDriftPCMLikeNoiseModel(), TABLE),
    (analog.CustomDriftPCMLikeNoiseModel((2.0, 5.0, 20.0), (0.1, 0.02, 0.3), (0.0, 0.2, 0.1), **SCALES, **TIMING), TABLE),
    (analog.CustomDriftPCMLikeNoiseModel(g_max=20.0, prog_coeff=(0.5, 0.1), prog_coeff_g_max_reference=15.0), TABLE),
    (analog.StateIndependentNoiseModel(), INDEPENDENT),
    (analog.StateIndependentNoiseModel(20.0, (0.5, -2.0, 1.0), drift_nu_mean=0.2, drift_nu_std=0.3, **SCALES, **TIMING),
     INDEPENDENT),
    *((analog.HermesNoiseModel(n), HERMES) for n in (1, 2)),
    (analog.HermesNoiseModel(2, 15.0, (0.5, -2.0, 1.0), **SCALES, **TIMING), HERMES),
    (analog.ReRamWan2022NoiseModel(), OF_WAN), (analog.ReRamWan2022NoiseModel(20.0, 1.5), OF_WAN),
    (analog.ReRamCMONoiseModel(), OF_CMO), (analog.ReRamCMONoiseModel(2.0, 60.0, 5.0, **SCALES, t_read=1e-3), OF_CMO),
]  # fmt: skip


@pytest.mark.parametrize(("model", "formulas"), ROWS, ids=[f"{type(m).__name__}-{k}" for k, (m, _) in enumerate(ROWS)])
def test_a_model_is_that_of_its_formulas(model: Any, formulas: Formulas) -> None:
    programming, exponents, read = formulas
    target = np.linspace(0.0, model.g_max, 41)
    for xi in (0.0, 1.0, -3.0):

        def normal(xi: float = xi) -> fb.Tensor:
            return fb.full(target.shape, xi, dtype=fb.float64)

        aim = fb.asarray(target)
        g = model.apply_programming_noise_to_conductance(aim, normal)
        want = programming(model, target, xi)
        np.testing.assert_allclose(g.numpy(), want, rtol=1e-5, atol=1e-6)
        nu = model.generate_drift_coefficients(aim, g, normal)
        want_nu = exponents(model, target, want, xi)
        np.testing.assert_allclose(nu.numpy(), want_nu, rtol=1e-5, atol=1e-6)
        for t in TIMES:
            try:
                model.check_time(t)
            except fb.ConfigError:
                continue
            found = model.apply_drift_noise_to_conductance(g, nu, t, normal).numpy()
            np.testing.assert_allclose(found, read(model, want, want_nu, t, xi), rtol=1e-5, atol=1e-6)


def test_measured_figures_are_those_of_the_publications() -> None:
    for devices, g_max, t_0, prog_coeff in (
        (1, 10.35, 200.0, (0.15781817, 2.32443916, -2.16310839, 0.68841818)),
        (2, 20.7, 300.0, (0.16603222, 4.71806468, -8.48101252, 4.68961419)),
    ):
        model = analog.HermesNoiseModel(devices)
        assert (model.g_max, model.t_0, model.prog_coeff) == (g_max, t_0, prog_coeff)
    pcm = analog.PCMLikeNoiseModel()
    assert (pcm.prog_coeff, pcm.prog_coeff_g_max_reference) == ((0.26348, 1.9650, -1.1731), 25.0)


def test_times_that_were_not_measured_are_refused() -> None:
    wan, cmo, pcm = analog.ReRamWan2022NoiseModel(), analog.ReRamCMONoiseModel(), analog.PCMLikeNoiseModel()
    taken = {m: [t for t in (0.0, 0.5, *TIMES[1:]) if _takes(m, t)] for m in (wan, cmo, pcm)}
    assert taken[wan] == [1.0, 86400.0, 172800.0]
    assert taken[cmo] == [0.0, *TIMES[1:]]
    assert taken[pcm] == [0.0, 0.5, *TIMES[1:]]


@pytest.mark.parametrize(
    "table",
    [
        ((0.0, 1.0), (0.1, 0.1), (0.0,)), ((0.0, 1.0), (0.1,), (0.0, 0.0)), ((0.0, 1.0, 2.0), (0.1, 0.1), (0.0, 0.0)),
        ((0.0,), (0.1,), (0.0,)), ((1.0, 1.0), (0.1, 0.1), (0.0, 0.0)), ((0.0, 1.0), (0.1, 0.1), (0.0, -0.1)),
    ],
)  # fmt: skip
def test_a_table_of_exponents_that_is_none_is_refused(table: Any) -> None:
    with pytest.raises(fb.ConfigError, match="g_lst increases; nu_mean_lst and nu_std_lst have as many"):
        analog.CustomDriftPCMLikeNoiseModel(*table)


def _takes(model: Any, t: float) -> bool:
    try:
        model.check_time(t)
    except fb.ConfigError:
        return False
    return True


def test_a_model_of_ones_own_is_asked_for_each_part_that_it_lacks() -> None:
    g, own = fb.ones(2), analog.NoiseModel()
    for part, call in {
        "apply_programming_noise_to_conductance": lambda: own.apply_programming_noise_to_conductance(g, lambda: g),
        "generate_drift_coefficients": lambda: own.generate_drift_coefficients(g, g, lambda: g),
        "apply_drift_noise_to_conductance": lambda: own.apply_drift_noise_to_conductance(g, g, 1.0, lambda: g),
    }.items():
        with pytest.raises(NotImplementedError, match=f"NoiseModel has no {part}: write it"):
            call()


@pytest.mark.parametrize("model", [m for m, _ in ROWS[::2]], ids=lambda m: type(m).__name__)
def test_each_setting_without_a_meaning_is_refused_by_its_name(model: Any) -> None:
    kind, own = type(model), analog.SinglePairConductanceConverter(g_max=3.0)
    assert kind(g_converter=own).converter is own
    for name in ("prog_noise_scale", "read_noise_scale", "drift_scale", "drift_nu_std", "noise_scale"):
        if hasattr(model, name):
            kind(**{name: 0.0})
            for wrong in (-1e-9, math.nan, math.inf, "1", True):
                with pytest.raises(fb.ConfigError, match=f"{kind.__name__}: .*{name}"):
                    kind(**{name: wrong})
    for name in ("g_max", "t_0", "t_read", "prog_coeff_g_max_reference"):
        if hasattr(model, name):
            for wrong in (0.0, -1.0, math.nan, math.inf, "1"):
                with pytest.raises(fb.ConfigError, match=f"{kind.__name__}: .*{name}"):
                    kind(**{name: wrong}, g_converter=own)
    for name in ("prog_coeff", "g_lst", "nu_mean_lst", "nu_std_lst"):
        if hasattr(model, name):
            for row in ((), [1.0], (1.0, math.nan), (True,), 1.0):
                with pytest.raises(fb.ConfigError, match=f"{kind.__name__}: {name} is a tuple of finite numbers"):
                    kind(**{name: row})
    with pytest.raises(fb.ConfigError, match=f"{kind.__name__}: g_converter is a ConductanceConverter"):
        kind(g_converter=25.0)
