"""Each weight modifier and each conductance converter beside its formulas in NumPy, with draws that are stated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog.weight_modifiers import modified

RNG = np.random.default_rng(5)
W = np.concatenate([RNG.normal(size=(3, 30)) * 0.5, np.zeros((1, 30))]).astype(np.float32)
NORMAL = [RNG.normal(size=W.shape) for _ in range(4)]
UNIFORM = [RNG.random(W.shape) for _ in range(4)]
Array = np.ndarray[Any, Any]
Kind = analog.WeightModifierType


class Draws:
    """Stated numbers, in the order in which they are asked for."""

    def __init__(self, wrap: Callable[[Array], Any] = lambda a: a) -> None:
        numbers = {"normal": iter(NORMAL), "uniform": iter(UNIFORM)}
        self.normal, self.uniform = (lambda kind=kind: wrap(next(numbers[kind])) for kind in numbers)


def rounded(level: Array, p: Any, draw: Draws) -> Array:
    return np.floor(level + draw.uniform()) if p.sto_round else np.rint(level)


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    return sum(c * x**k for k, c in enumerate(coefficients))


def phase_change_memory(w: Array, a: float, p: Any, draw: Draws) -> Array:
    g = np.minimum(np.abs(w) / a, 1.0) * 25.0
    g[g < p.pcm_zero_thres] = 0.0
    share = g / 25.0
    now = np.abs(g + p.std_dev * polynomial(share, (0.26348, 1.9650, -1.1731)) * draw.normal())
    t = p.pcm_t_inference + p.pcm_t0
    if p.pcm_t_inference > 0.0:
        exponent = np.clip(-0.0125 * np.log(np.maximum(share, 1e-7)) - 0.0059, 0.008, 0.045) * draw.normal()
        now = now * (t / p.pcm_t0) ** (-p.std_dev * exponent)
        read = np.minimum(0.0088 / np.maximum(share**0.65, 1e-3), 0.2) * math.sqrt(math.log((t + 250e-9) / 500e-9))
        now = np.abs(now * (1.0 + p.std_dev * read * draw.normal()))
    reset, full, anywhere = p.pcm_prob_at_reset, p.pcm_prob_at_gmax, p.pcm_prob_at_random
    if reset + full + anywhere > 0.0:
        chance, level = draw.uniform(), draw.uniform() * 25.0
        now = np.select([chance < reset, chance < reset + full, chance < reset + full + anywhere], [0.0, 25.0, level], now)
    return np.where(w < 0.0, -now, now) * a / 25.0


def changed(w: Array, p: Any, draw: Draws) -> Array:
    """The modified weights by the formulas."""
    a = (np.abs(w).max() or 1.0) if p.rel_to_actual_wmax else p.assumed_wmax
    if p.type is Kind.NONE:
        return w
    if p.type in (Kind.DISCRETIZE, Kind.DISCRETIZE_ADD_NORMAL):
        found = rounded(w / (a * p.res), p, draw) * a * p.res
        found = found + (draw.normal() * a * p.std_dev if p.type is Kind.DISCRETIZE_ADD_NORMAL else 0.0)
    elif p.type is Kind.MULT_NORMAL:
        found = w * (1.0 + p.std_dev * draw.normal())
    elif p.type is Kind.ADD_NORMAL:
        found = w + p.std_dev * a * draw.normal()
    elif p.type is Kind.DOREFA:
        found = rounded(p.dorefa_clip * np.tanh(w) / np.tanh(a) / p.res, p, draw) * p.res
    elif p.type is Kind.POLY:
        found = w + p.std_dev * a * draw.normal() * polynomial(np.abs(w) / a, p.coeffs or (0.0105392, 0.0768, -0.046925))
    elif p.type is Kind.PROG_NOISE:
        sigma = polynomial(np.abs(w) / a, p.coeffs or (0.26348, 1.9650, -1.1731)) / p.g_max
        found = np.where(w < 0.0, -1.0, 1.0) * np.abs(np.abs(w) + p.std_dev * a * draw.normal() * sigma)
    elif p.type is Kind.PCM_NOISE:
        found = phase_change_memory(w, a, p, draw)
    else:
        found = w
    return np.where(draw.uniform() < p.pdrop, 0.0, found) if p.pdrop > 0.0 else found


DRIFT = {"std_dev": 0.8, "pcm_t_inference": 3600.0, "pcm_t0": 40.0}
STUCK = {"pcm_prob_at_reset": 0.2, "pcm_prob_at_gmax": 0.3, "pcm_prob_at_random": 0.1}
SETTINGS: list[dict[str, Any]] = [
    {"type": Kind.NONE, "pdrop": 0.5}, {"type": Kind.COPY}, {"type": Kind.COPY, "pdrop": 0.5},
    {"type": Kind.DROP_CONNECT, "pdrop": 0.3},
    {"type": Kind.DISCRETIZE, "res": 0.1}, {"type": Kind.DISCRETIZE, "res": 0.1, "sto_round": True, "pdrop": 0.2},
    {"type": Kind.DISCRETIZE_ADD_NORMAL, "res": 0.1, "std_dev": 0.2}, {"type": Kind.MULT_NORMAL, "std_dev": 0.2},
    {"type": Kind.ADD_NORMAL, "std_dev": 0.2}, {"type": Kind.DOREFA, "res": 0.05},
    {"type": Kind.DOREFA, "res": 0.05, "dorefa_clip": 0.9, "sto_round": True}, {"type": Kind.POLY, "std_dev": 3.0},
    {"type": Kind.POLY, "std_dev": 3.0, "coeffs": (0.1, 0.2)}, {"type": Kind.PROG_NOISE, "std_dev": 4.0},
    {"type": Kind.PROG_NOISE, "std_dev": 2.0, "coeffs": (1.0, 2.0, -1.0), "g_max": 9.0},
    {"type": Kind.PCM_NOISE, "std_dev": 0.8}, {"type": Kind.PCM_NOISE, "std_dev": 0.8, "pcm_zero_thres": 9.0},
    {"type": Kind.PCM_NOISE, **DRIFT}, {"type": Kind.PCM_NOISE, **DRIFT, **STUCK},
    *({"type": Kind.PCM_NOISE, "std_dev": 0.8, name: share} for name, share in STUCK.items()),
]  # fmt: skip


@pytest.mark.parametrize("largest", [{}, {"rel_to_actual_wmax": False, "assumed_wmax": 0.7}], ids=["own", "assumed"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_modifier_is_that_of_its_formulas(settings: dict[str, Any], largest: dict[str, Any]) -> None:
    p, draw = analog.WeightModifierParameter(**settings, **largest), Draws(fb.asarray)
    found = modified(fb.asarray(W.astype(np.float64)), p, draw.normal, draw.uniform).numpy()
    np.testing.assert_allclose(found, changed(W.astype(np.float64), p, Draws()), rtol=1e-6, atol=1e-7)


def test_a_tile_of_zeros_is_modified() -> None:
    for settings in SETTINGS:
        p, draw = analog.WeightModifierParameter(**settings), Draws(fb.asarray)
        found = modified(fb.zeros(W.shape, dtype=fb.float64), p, draw.normal, draw.uniform).numpy()
        np.testing.assert_allclose(found, changed(W.astype(np.float64) * 0.0, p, Draws()), rtol=1e-6, atol=1e-7)


CHANCES = ("pdrop", "pcm_prob_at_reset", "pcm_prob_at_gmax", "pcm_prob_at_random")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        *(({n: v}, n)
          for n in ("std_dev", "res", "pcm_t_inference", "pcm_zero_thres", *CHANCES) for v in (-1e-9, math.nan, "1")),
        *(({n: v}, n) for n in ("dorefa_clip", "assumed_wmax", "g_max", "pcm_t0") for v in (0.0, -1.0, math.inf)),
        *(({n: v}, n) for n in ("sto_round", "enable_during_test", "rel_to_actual_wmax") for v in (1, None, "yes")),
        *(({n: 1.0001}, "probabilities are at most 1") for n in CHANCES),
        ({"pcm_prob_at_reset": 0.5, "pcm_prob_at_random": 0.5001}, "1.0001 in all for stuck devices"),
        *(({"type": Kind[k]}, f"{k} has a res above 0") for k in ("DISCRETIZE", "DISCRETIZE_ADD_NORMAL", "DOREFA")),
        *(({"type": Kind[k]}, f"{k} has a std_dev above 0")
          for k in ("MULT_NORMAL", "ADD_NORMAL", "POLY", "PROG_NOISE", "PCM_NOISE")),
        ({"type": Kind.DROP_CONNECT}, "DROP_CONNECT has a pdrop above 0"),
        *(({"coeffs": row}, "coeffs are finite numbers") for row in ((), (math.nan,), ("1",))),
    ],
)  # fmt: skip
def test_a_setting_of_a_modifier_without_a_meaning_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(fb.ConfigError, match=f"WeightModifierParameter: .*{text}|{text}"):
        analog.WeightModifierParameter(**settings)


def test_the_largest_settings_of_a_modifier_are_taken() -> None:
    for name in CHANCES:
        assert getattr(analog.WeightModifierParameter(**{name: 1.0}), name) == 1.0
    assert analog.WeightModifierParameter(coeffs=[1, 2]).coeffs == (1, 2)  # type: ignore[arg-type]


def pairs(w: Array, low: float, high: float, factors: tuple[float, ...]) -> tuple[Array, float]:
    """Conductances of pairs that are filled one after the other, and that of a unit of weight."""
    top = np.abs(w).max()
    scale = sum(factors) * (high - low) / top
    found, before = [], 0.0
    for f in factors:
        part = np.clip((np.abs(w) * scale - before) / f, 0.0, high - low)
        found += [np.where(w > 0.0, part, 0.0) + low, np.where(w < 0.0, part, 0.0) + low]
        before += f * (high - low)
    return np.concatenate(found), scale


LISTS = ((1.0, 3.0, 2.0, 9.0), (9.0, 2.0, 2.0, 1.0), (1.0, 1.0, 1.0, 5.0), (4.0, 1.0, 1.0, 2.0))


def custom(w: Array) -> tuple[Array, float]:
    top = np.abs(w).max()
    found = [np.interp(w, np.linspace(-top, top, len(values)), values) for values in LISTS]
    return np.concatenate(found), (2.0 * (9.0 - 1.0) + 0.5 * (5.0 - 2.0)) / top


@pytest.mark.parametrize(
    ("converter", "formula"),
    [
        (analog.SinglePairConductanceConverter(20.0, 1.0), lambda w: pairs(w, 1.0, 20.0, (1.0,))),
        (analog.DualPairConductanceConverter(20.0, 1.0, (1.0, 3.0)), lambda w: pairs(w, 1.0, 20.0, (1.0, 3.0))),
        (analog.NPairConductanceConverter(9.0, 2.0, (4.0, 0.5, 2.0)), lambda w: pairs(w, 2.0, 9.0, (4.0, 0.5, 2.0))),
        (analog.CustomPairConductanceConverter(10.0, 1.0, (2.0, 0.5), LISTS), custom),
    ],
    ids=lambda c: type(c).__name__,
)
def test_a_converter_of_pairs_is_that_of_its_formulas(converter: Any, formula: Callable[[Array], tuple[Array, float]]) -> None:
    g, conversion = converter.convert_to_conductances(fb.asarray(W))
    want, scale = formula(W.astype(np.float64))
    np.testing.assert_allclose(g.numpy(), want, rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(conversion.numpy(), [scale, 0.0], rtol=1e-6)
    assert converter.devices * len(W) == len(want)
    parts = want.reshape(-1, 2, *W.shape)
    factors = np.asarray(getattr(converter, "f_lst", (1.0,))).reshape(-1, 1, 1)
    back = converter.convert_back_to_weights(g, conversion).numpy()
    np.testing.assert_allclose(back, ((parts[:, 0] - parts[:, 1]) * factors).sum(0) / scale, rtol=1e-5, atol=1e-5)


def test_a_converter_to_one_device_is_that_of_its_formulas() -> None:
    converter = analog.SingleDeviceConductanceConverter(50.0, 10.0)
    g, conversion = converter.convert_to_conductances(fb.asarray(W))
    low, high = float(W.min()), float(W.max())
    np.testing.assert_allclose(g.numpy(), 10.0 + (W - low) * 40.0 / (high - low), rtol=1e-5)
    np.testing.assert_allclose(conversion.numpy(), [40.0 / (high - low), 10.0 - low * 40.0 / (high - low)], rtol=1e-5)
    np.testing.assert_allclose(converter.convert_back_to_weights(g, conversion).numpy(), W, atol=1e-6)
    g, conversion = converter.convert_to_conductances(fb.full((2, 2), 0.7))
    np.testing.assert_allclose(g.numpy(), 30.0)  # in the middle
    np.testing.assert_allclose(converter.convert_back_to_weights(g, conversion).numpy(), 0.7, rtol=1e-6)


PAIR = analog.CustomPairConductanceConverter


@pytest.mark.parametrize(
    "make",
    [
        *(lambda k=k, f=f: k(f_lst=f) for k in (analog.NPairConductanceConverter, analog.DualPairConductanceConverter, PAIR)
          for f in ((), (0.0, 1.0), (1.0, -1.0), (1.0, math.inf), ("1", 1.0), [1.0, 1.0], 1.0)),
        lambda: analog.DualPairConductanceConverter(f_lst=(1.0,)),
        lambda: PAIR(f_lst=(1.0, 1.0)), lambda: PAIR(g_lst=[(0.0, 1.0), (1.0, 0.0)]),
        lambda: PAIR(g_lst=([0.0, 1.0], [1.0, 0.0])),
        lambda: PAIR(g_lst=((1.0,), (0.0,))), lambda: PAIR(g_lst=((0.0, 26.0), (1.0, 0.0))),
        lambda: PAIR(g_min=1.0, g_lst=((0.0, 9.0), (9.0, 1.0))), lambda: PAIR(g_lst=((0.0, 1.0), (1.0, 1.0))),
        lambda: analog.SinglePairConductanceConverter(5.0, 5.0), lambda: analog.SinglePairConductanceConverter(5.0, -1.0),
        lambda: analog.SinglePairConductanceConverter(math.inf), lambda: analog.SinglePairConductanceConverter("5"),
    ],
)  # fmt: skip
def test_a_setting_of_a_converter_without_a_meaning_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(fb.ConfigError, match="ConductanceConverter: "):
        make()


def test_a_converter_of_ones_own_is_asked_for_each_part_that_it_lacks() -> None:
    own = analog.ConductanceConverter()
    for part, call in {
        "convert_to_conductances": lambda: own.convert_to_conductances(fb.ones((1, 1))),
        "convert_back_to_weights": lambda: own.convert_back_to_weights(fb.ones((2, 1)), fb.ones(2)),
    }.items():
        with pytest.raises(NotImplementedError, match=f"ConductanceConverter has no {part}: write it"):
            call()
    assert own.devices == 2
