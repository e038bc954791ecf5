from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from extras import need

import firebrick as fb
from firebrick import analog, nn
from firebrick.analog import response_curves
from firebrick.core.errors import ConfigError

ONE_PULSE = analog.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
DEVICES = {
    "soft bounds": analog.SoftBoundsDevice(dw_min=0.03),
    "reference": analog.SoftBoundsReferenceDevice(dw_min=0.03, reference_std=0.05, subtract_symmetry_point=True),
    "exponential": analog.ExpStepDevice(dw_min=0.03),
    "piecewise": analog.PiecewiseStepDevice(dw_min=0.03, piecewise_up=(1.2, 0.6, 0.3), piecewise_down=(0.2, 0.9, 1.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_a_response_is_that_of_single_pulses_of_a_tile(name: str) -> None:
    device = replace(DEVICES[name], dw_min_std=0.0)
    found = analog.response(device, 6, devices=4, seed=9)
    generator = fb.random.Generator(9)
    tile = analog.Tile(4, 1, analog.RPUConfig(device, update=ONE_PULSE), generator=generator)
    course = [tile.weight.numpy().ravel()]
    for sign in found.directions:
        tile.update(fb.ones((1, 1)), fb.full((1, 4), -float(sign)), 1.0)
        course.append(tile.weight.numpy().ravel())
    np.testing.assert_array_equal(found.weights, np.stack(course, 1))
    assert found.directions.tolist() == [1] * 6 + [-1] * 6


def test_noise_and_spread_of_a_response_can_be_left_out_and_repeat_by_the_seed() -> None:
    device = analog.SoftBoundsDevice(dw_min=0.02, write_noise_std=1.0)
    both = analog.response(device, 20, devices=30, seed=1)
    np.testing.assert_array_equal(both.weights, analog.response(device, 20, devices=30, seed=1).weights)
    assert np.any(both.weights != analog.response(device, 20, devices=30, seed=2).weights)
    quiet = analog.response(device, 20, devices=30, noise=False, seed=1)
    assert quiet.std[20] > 0.01
    alike = analog.response(device, 20, devices=30, spread=False, noise=False)
    assert np.all(alike.weights == alike.weights[0])
    expected = [0.0]
    for _ in range(20):
        expected.append(expected[-1] + 0.02 * (1.0 - expected[-1] / 0.6))
    np.testing.assert_allclose(alike.mean[:21], expected, rtol=1e-5)
    reads = analog.response(replace(device, dw_min_std=0.0), 20, devices=200, spread=False)
    assert reads.std[1:].mean() == pytest.approx(0.02, rel=0.05)
    assert reads.std[0] == 0.0
    other = analog.response(device, 20, devices=30, seed=1, on="numpy")
    np.testing.assert_allclose(both.weights, other.weights, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (analog.SoftBoundsDevice, {"w_max": 0.8, "w_min": -0.4}),
        (analog.ExpStepDevice, {"gamma_up": 12.0, "gamma_down": 13.0}),
        (analog.PowStepDevice, {"pow_gamma": 2.0}),
    ],
)
def test_a_fit_begins_with_a_step_near_the_measured_one(kind: Any, settings: dict[str, float], factor: float) -> None:
    made = analog.response(kind(dw_min=0.01, **settings), 150, spread=False, noise=False)
    found = analog.fit(kind(dw_min=0.01 * factor), (made.directions, made.mean), parameters=("dw_min", *settings))
    assert found.parameters == pytest.approx({"dw_min": 0.01, **settings}, rel=1e-3)


def test_a_fit_refuses_other_directions() -> None:
    for directions, received in (([2, 1], "2"), ([1, 0], "0")):
        with pytest.raises(fb.ConfigError, match=f"directions 1 or -1, at least one\nReceived: {received}\\."):
            analog.fit(analog.SoftBoundsDevice, (np.array(directions), np.array([0.0, 0.1, 0.2])))


def test_a_fit_leaves_a_parameter_of_0_whose_sign_has_no_meaning() -> None:
    true = analog.LinearStepDevice(dw_min=0.012, gamma_up=0.7, gamma_down=0.3)
    made = analog.response(true, 150, spread=False, noise=False)
    found = analog.fit(analog.LinearStepDevice, (made.directions, made.mean), parameters=("dw_min", "gamma_up", "gamma_down"))
    assert found.parameters == pytest.approx({"dw_min": 0.012, "gamma_up": 0.7, "gamma_down": 0.3}, rel=2e-3)
    assert all(0.0 <= e < 1e-3 for e in found.errors.values())


def test_a_fit_finds_the_parameters_that_a_response_was_made_with(tmp_path: Path) -> None:
    true = analog.LinearStepDevice(
        dw_min=0.012, up_down=0.1, gamma_up=0.7, gamma_down=0.3, w_max=0.8, w_min=-0.5, gamma_up_dtod=0.0, gamma_down_dtod=0.0
    )
    made = analog.response(true, 150, spread=False, noise=False)
    names = ("dw_min", "up_down", "gamma_up", "gamma_down")
    start = analog.LinearStepDevice(
        gamma_up=0.2, gamma_down=0.2, w_max=0.8, w_min=-0.5, gamma_up_dtod=0.0, gamma_down_dtod=0.0, dw_min=0.02
    )
    found = analog.fit(start, made.save(tmp_path / "measured.csv"), parameters=names)
    assert {n: pytest.approx(getattr(true, n), rel=2e-3, abs=1e-4) for n in names} == found.parameters
    assert found.device.dw_min == found.parameters["dw_min"]
    assert found.deviation < 1e-4
    rng = np.random.default_rng(0)
    noisy = made.mean + 0.01 * rng.normal(size=made.mean.size)
    again = analog.fit(start, (made.directions, noisy), parameters=names)
    assert again.deviation == pytest.approx(0.01, rel=0.15)
    for name in names:
        assert abs(again.parameters[name] - getattr(true, name)) < 5.0 * again.errors[name]
        assert again.errors[name] < 0.3 * getattr(true, name)
    useless = analog.fit(start, (made.directions[:5], made.mean[:6]), parameters=("dw_min", "reset"))
    assert np.isnan(useless.errors["reset"])
    assert "± unknown" in str(useless)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("pulse,weight\n1,2\n", "pulse, weight"),
        ("direction,weight\n2,0.1\n", "line 2: direction '2'"),
        ("direction,weight\n1,0.1\n0,0.1\n", "line 3: direction '0'"),
        ("direction,weight\n1,nan\n", "line 2: direction '1', weight 'nan'"),
        ("direction,weight\n1,0.1\n1\n", "line 3: direction '1', weight None"),
        ("direction,weight\n0,0.1\n", "at least one pulse"),
    ],
)
def test_a_file_that_is_no_response_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "measured.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        analog.fit(analog.SoftBoundsDevice, file)


COSTS = analog.OperationCosts(1e-15, 2e-12, 3e-12, 1e-7, 2e-7, source="made up for this test")


def test_costs_count_the_vectors_of_each_tile() -> None:
    mapping = analog.MappingParameter(max_input_size=20, max_output_size=3)
    config = analog.RPUConfig(analog.IdealDevice(), mapping=mapping)
    model = analog.convert(nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 5)), config, seed=0)
    found = analog.estimate(model, fb.ones((2, 2, 7, 7)), COSTS)
    conv, dense = found.layers
    assert (conv.tiles, conv.products, conv.macs) == (2, 2 * 9, 18 * 4 * 18)
    assert (conv.dac_conversions, conv.adc_conversions) == (18 * 2 * 18, 18 * 4)
    assert (dense.tiles, dense.products, dense.macs) == (4, 2, 2 * 36 * 5)
    assert (dense.dac_conversions, dense.adc_conversions) == (2 * 2 * 36, 2 * 2 * 5)
    assert conv.energy == pytest.approx(1296e-15 + 648 * 2e-12 + 72 * 3e-12)
    assert found.latency == pytest.approx(20e-7)
    assert found.area == pytest.approx(6 * 2e-7)
    assert str(found).splitlines()[-1].startswith("figures: made up for this test")
    assert all(not t._forward_hooks for _, t in model.modules())


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a device without pulses": (lambda: analog.response(analog.IdealDevice()), "a device that pulses change"),  # type: ignore[arg-type]
    "a class": (lambda: analog.response(analog.SoftBoundsDevice), "SoftBoundsDevice"),  # type: ignore[arg-type]
    "no pulses": (lambda: analog.response(analog.SoftBoundsDevice(), 0), "pulses is an int ≥ 1"),
    "other directions": (lambda: analog.response(analog.SoftBoundsDevice(), directions=[1, 0]), "1 or -1"),
    "a start that is none": (lambda: analog.response(analog.SoftBoundsDevice(), start=float("nan")), "finite"),
    "a fit of no device": (lambda: analog.fit(analog.IdealDevice, ([1], [0.0, 1.0])), "pulses change"),  # type: ignore[arg-type]
    "an unknown parameter": (
        lambda: analog.fit(analog.SoftBoundsDevice, ([1], [0.0, 1.0]), parameters=("gain",)), "dw_min, .*Received: gain"
    ),
    "a parameter twice": (
        lambda: analog.fit(analog.SoftBoundsDevice, ([1], [0.0, 1.0]), parameters=("dw_min", "dw_min")), "each once"
    ),
    "weights of another length": (lambda: analog.fit(analog.SoftBoundsDevice, ([1], [0.0])), "before the first pulse"),
    "costs without a source": (lambda: replace(COSTS, source=" "), "where the figures are from"),
    "negative costs": (lambda: replace(COSTS, energy_per_mac=-1.0), "at least 0"),
    "costs of a digital model": (lambda: analog.estimate(nn.Linear(2, 2), fb.ones((1, 2)), COSTS), "analog layers"),
    "no costs": (lambda: analog.estimate(nn.Linear(2, 2), fb.ones((1, 2)), {}), "an OperationCosts"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_by_name(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        call()


@pytest.mark.slow
def test_pictures_are_written_in_the_format_of_their_ending(tmp_path: Path) -> None:
    need("matplotlib")
    found = analog.response(analog.SoftBoundsDevice(dw_min=0.05), 20, devices=5)
    fitted = analog.fit(analog.SoftBoundsDevice(dw_min=0.05), (found.directions, found.mean), iterations=2)
    curve = analog.AccuracyOverTime((0.0, 1.0, 86400.0), np.array([[0.9, 0.8, 0.7], [0.9, 0.9, 0.8]]), 0.95, "accuracy")
    for made, ending, magic in ((found, ".png", b"\x89PNG"), (fitted, ".svg", b"<?xml"), (curve, ".pdf", b"%PDF")):
        assert made.plot(tmp_path / f"picture{ending}").read_bytes().startswith(magic)
    single = analog.AccuracyOverTime((1.0,), np.array([[0.9]]), 0.95, "accuracy")
    assert curve.plot(tmp_path / "two.png", others={"other": single}).stat().st_size > 10_000
    with pytest.raises(ConfigError, match=r"ends in \.png, \.svg, \.pdf"):
        found.plot(tmp_path / "picture.txt")
    with pytest.raises(ConfigError, match="a folder that exists"):
        found.plot(tmp_path / "none" / "picture.png")


def test_without_matplotlib_a_picture_is_refused_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("firebrick.analog.pictures.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"firebrick\[train\]"):
        analog.response(analog.SoftBoundsDevice(), 2).plot(tmp_path / "picture.png")


def test_a_picture_of_a_response_has_a_label_for_all_devices_and_one_for_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = MagicMock()
    monkeypatch.setattr(response_curves, "dressed", lambda *_: (None, axes))
    monkeypatch.setattr(response_curves, "saved", lambda *_: None)
    analog.response(analog.SoftBoundsDevice(dw_min=0.05), 2, devices=3).plot("none.png")
    assert [call.kwargs["label"] for call in axes.plot.call_args_list] == ["devices", None, None, "mean"]
