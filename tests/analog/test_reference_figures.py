"""Tiles beside the measured figures of a reference simulator, where ANALOG_FIGURES names their folder.

The seeds of our side are stated in ``analog_figures``. Every deviation is below 5 standard errors. For each family of figures
(``FAMILIES``), and all seeds together, the largest deviation has a family-wise probability of at least 10⁻³, and the mean of z²
is in its interval; see ``family_deviations``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import analog_figures as figures
import analog_inference_figures as inference
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(figures.FOLDER is None, reason="ANALOG_FIGURES names no folder of figures")
LEFT_BEHIND = {"bm_neg_bound_off_exact"}
"""Cases that show errors of the reference: a clipped negative output there undoes the bound management of positive ones."""


def cases(name: str) -> list[str]:
    return [k for k in figures.figures(name) if k != "inputs" and k not in LEFT_BEHIND] if figures.FOLDER else []


def check(deviations: list[figures.Deviation]) -> None:
    assert deviations
    for d in deviations:
        assert np.all(np.isfinite(d.z)), d.what
        assert np.abs(d.z).max() < 5.0, (d.what, np.abs(d.z).max())


def inference_cases(*kinds: str) -> list[str]:
    """The cases of kinds, but those that the reference has no figures of, or other ones."""
    found = [k for k in cases("inference") if k.startswith(kinds) and "error" not in figures.figures("inference")[k]]
    return [k for k in found if k not in inference.DIFFERENT]


def inference_deviations(name: str, seed: int) -> list[figures.Deviation]:
    """Deviations of a case of inference."""
    found = figures.figures("inference")
    if name.startswith("noise"):
        return inference.noise_deviations(name, found[name], seed)
    if name.startswith("drift_compensation"):
        return inference.compensation_deviations(name, found[name], found["drift_inputs"], seed)
    return inference.modifier_deviations(name, found[name], found["exact_maps"], seed)


def pulses_of_case(name: str, seed: int) -> list[figures.Deviation]:
    """Deviations of a case of pulses, in all its modes."""
    case = figures.figures("pulses")[name]
    return [d for key in case["modes"] for d in figures.pulse_deviations(name, case, key, figures.seed_of(seed, key))]


def product(name: str, seed: int) -> list[figures.Deviation]:
    """Deviations of a case of products."""
    found = figures.figures("forward")
    return figures.forward_deviations(name, found[name], found["inputs"], seed)


def training(name: str, seed: int) -> list[figures.Deviation]:
    """Deviations of a course of training of noisy devices."""
    found = figures.figures("compound")
    return figures.training_deviations(name, found[name], found["task0"], seed)


Case = Callable[[str, int], list[figures.Deviation]]
FAMILIES: dict[str, tuple[list[str], Case]] = {
    "response": (cases("response"), lambda n, seed: figures.response_deviations(n, figures.figures("response")[n], seed)),
    "populations": (cases("populate"), lambda n, seed: figures.population_deviations(n, figures.figures("populate")[n], seed)),
    "pulses": (cases("pulses"), pulses_of_case),
    "state": (cases("state"), lambda n, seed: figures.state_deviations(n, figures.figures("state")[n], seed)),
    "products": ([n for n in cases("forward") if not n.startswith("tiles")], product),
    "products of tiles": ([n for n in cases("forward") if n.startswith("tiles")], product),
    "training": ([n for n in cases("compound") if not n.startswith(("exact", "task"))], training),
    "inference": (inference_cases("noise", "drift_compensation", "modifier"), inference_deviations),
}
"""Name → the cases, and their deviations with a seed."""


@lru_cache(maxsize=1024)
def deviations(family: str, name: str, seed: int) -> list[figures.Deviation]:
    """The deviations of a case with one of the stated seeds."""
    return FAMILIES[family][1](name, figures.seed_of(seed, name))


SOON = ("populations", "state")


@pytest.mark.parametrize("family", [pytest.param(n, marks=() if n in SOON else pytest.mark.soak) for n in FAMILIES])
def test_a_family_of_figures_is_met_as_a_whole(family: str) -> None:
    names = FAMILIES[family][0]
    assert figures.family_deviations([[d for s in figures.SEEDS for d in deviations(family, n, s)] for n in names]) == []


def test_a_family_with_a_wrong_standard_error_or_one_wrong_value_is_found() -> None:
    found = [[d for s in figures.SEEDS for d in deviations("populations", n, s)] for n in FAMILIES["populations"][0]]
    wide = [[replace(d, z=d.z * 1.3) for d in one] for one in found]
    assert any("the mean of z² over 24 cases" in text for text in figures.family_deviations(wide))
    narrow = [[replace(d, z=d.z * 0.6) for d in one] for one in found]
    assert any("the mean of z² over 24 cases" in text for text in figures.family_deviations(narrow))
    off = [*found, [figures.Deviation("one", np.array([5.5]))]]
    assert any(text.startswith("the largest of 4594 deviations is 5.50") for text in figures.family_deviations(off))


def test_a_wrong_figure_is_found() -> None:
    case = figures.figures("populate")["constant_default"]
    changed: Any = case | {"device": case["device"] | {"dw_min_dtod": 0.32}}
    with pytest.raises(AssertionError, match="dwmin_up"):
        check(figures.population_deviations("constant", changed, 101))


def every(*families: str) -> list[tuple[str, str]]:
    """The family and the name of each case."""
    return [(f, n) for f in families for n in FAMILIES[f][0]]


@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize(("family", "name"), every("populations", "state", "products", "inference"))
def test_figures_are_met(family: str, name: str, seed: int) -> None:
    check(deviations(family, name, seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize(("family", "name"), every("response", "pulses", "products of tiles", "training"))
def test_figures_of_long_measurements_are_met(family: str, name: str, seed: int) -> None:
    check(deviations(family, name, seed))


@pytest.mark.parametrize("name", [n for n in cases("compound") if n.startswith("exact")])
def test_noise_free_courses_of_training_are_met_pulse_by_pulse(name: str) -> None:
    found = figures.figures("compound")
    check(figures.course_deviations(name, found[name], found["task0"], 101))


@pytest.mark.parametrize("key", [k for k in (figures.figures("inference")["exact_maps"] if figures.FOLDER else []) if k != "w"])
def test_maps_of_weights_are_those_of_the_figures(key: str) -> None:
    check(inference.map_deviations(figures.figures("inference")["exact_maps"], key))


def test_the_course_of_an_input_range_is_that_of_the_figures() -> None:
    found = figures.figures("inference")
    check(inference.input_range_deviations(found["input_range"], found["exact_maps"]))
