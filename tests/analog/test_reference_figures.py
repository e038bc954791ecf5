"""Tiles beside the measured figures of a reference simulator, where ANALOG_FIGURES names their folder.

The seeds of our side are stated in ``analog_figures``. Every deviation is below 5 standard errors. Neighbouring points of a
curve are not independent, so the mean of their squares may be above 1; see ``check``.
"""

from __future__ import annotations

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
    squares = [d.z.ravel() ** 2 for d in deviations if d.random]
    if squares:
        assert np.concatenate(squares).mean() < 2.0 * len(squares) ** 0.5


def test_a_wrong_figure_is_found() -> None:
    case = figures.figures("populate")["constant_default"]
    changed: Any = case | {"device": case["device"] | {"dw_min_dtod": 0.32}}
    with pytest.raises(AssertionError, match="dwmin_up"):
        check(figures.population_deviations("constant", changed, 101))


@pytest.mark.soak
@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", cases("response"))
def test_response_curves_are_those_of_the_figures(name: str, seed: int) -> None:
    for variant in figures.VARIANTS:
        found = figures.response_deviations(name, figures.figures("response")[name], seed, variants=(variant,))
        for d in found:
            assert np.abs(d.z).max() < 5.0, (d.what, np.abs(d.z).max())


@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", cases("populate"))
def test_populations_are_those_of_the_figures(name: str, seed: int) -> None:
    check(figures.population_deviations(name, figures.figures("populate")[name], seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", cases("pulses"))
def test_pulse_statistics_are_those_of_the_figures(name: str, seed: int) -> None:
    case = figures.figures("pulses")[name]
    for key in case["modes"]:
        check(figures.pulse_deviations(name, case, key, seed))


@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", cases("state"))
def test_changes_of_state_are_those_of_the_figures(name: str, seed: int) -> None:
    check(figures.state_deviations(name, figures.figures("state")[name], seed))


@pytest.mark.parametrize("name", [n for n in cases("forward") if not n.startswith("tiles")])
def test_products_are_those_of_the_figures(name: str) -> None:
    found = figures.figures("forward")
    for seed in figures.SEEDS:
        check(figures.forward_deviations(name, found[name], found["inputs"], seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", [n for n in cases("forward") if n.startswith("tiles")])
def test_what_is_drawn_once_for_a_tile_is_that_of_the_figures(name: str, seed: int) -> None:
    found = figures.figures("forward")
    check(figures.forward_deviations(name, found[name], found["inputs"], seed))


@pytest.mark.parametrize("name", [n for n in cases("compound") if n.startswith("exact")])
def test_noise_free_courses_of_training_are_met_pulse_by_pulse(name: str) -> None:
    found = figures.figures("compound")
    check(figures.course_deviations(name, found[name], found["task0"], 101))


def inference_cases(kind: str) -> list[str]:
    """The cases of a kind, but those that the reference has no figures of."""
    return [k for k in cases("inference") if k.startswith(kind) and "error" not in figures.figures("inference")[k]]


@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", inference_cases("noise"))
def test_programming_drift_and_reads_are_those_of_the_figures(name: str, seed: int) -> None:
    check(inference.noise_deviations(name, figures.figures("inference")[name], seed))


@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", inference_cases("drift_compensation"))
def test_compensated_drift_is_that_of_the_figures(name: str, seed: int) -> None:
    found = figures.figures("inference")
    check(inference.compensation_deviations(name, found[name], found["drift_inputs"], seed))


@pytest.mark.parametrize("key", [k for k in (figures.figures("inference")["exact_maps"] if figures.FOLDER else []) if k != "w"])
def test_maps_of_weights_are_those_of_the_figures(key: str) -> None:
    check(inference.map_deviations(figures.figures("inference")["exact_maps"], key))


@pytest.mark.parametrize("seed", figures.SEEDS)
@pytest.mark.parametrize("name", [k for k in inference_cases("modifier") if k not in inference.DIFFERENT])
def test_modified_weights_are_those_of_the_figures(name: str, seed: int) -> None:
    found = figures.figures("inference")
    check(inference.modifier_deviations(name, found[name], found["exact_maps"], seed))


def test_the_course_of_an_input_range_is_that_of_the_figures() -> None:
    found = figures.figures("inference")
    check(inference.input_range_deviations(found["input_range"], found["exact_maps"]))
