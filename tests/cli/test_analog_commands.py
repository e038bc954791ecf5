from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from firebrick import analog

Run = Callable[..., Result]


def test_a_response_is_shown_written_and_fitted(run: Run) -> None:
    arguments = ("--pulses", 60, "--devices", 3, "--no-spread", "--no-noise")
    shown = run("analog", "response", "Capacitor", *arguments, "--csv", "c.csv", "--plot", "c.png")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[0] == "LinearStepDevice, 3 devices"
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    fitted = run("analog", "fit", "Capacitor", "c.csv", "--parameters", "dw_min, up_down", "--plot", "f.png")
    assert fitted.exit_code == 0, fitted.output
    assert fitted.stdout.splitlines()[:2] == ["LinearStepDevice, deviation 0.0000", "dw_min   0.005 ± 0"]
    wrong = run("analog", "fit", "Capacitor", "c.csv", "--parameters", "gain")
    assert wrong.exit_code == 1
    assert "Received: gain" in wrong.output
    assert run("analog", "response", "Vacuum").exit_code == 2


@pytest.mark.slow
def test_a_hardware_aware_run_is_trained_evaluated_and_followed_over_time(run: Run, trained: Path) -> None:
    out = ("--epochs", 1, "--out", "aware")
    made = run("analog", "train", "digits", "--algorithm", "hwa", "--from", trained, *out)
    assert made.exit_code == 0, made.output
    assert float(made.stdout.split()[-1]) > 0.7
    tested = run("evaluate", "aware")
    assert tested.exit_code == 0, tested.output
    assert float(tested.stdout.split()[-1]) > 0.7
    options = ("--times", "1,86400", "--repeats", 2, "--noise-model", "hermes-1", "--plot", "drift.png")
    found = run("analog", "drift", "aware", *options)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[0].endswith("digits, mlp, hwa with pcm, hermes-1, drift compensation global")
    assert [line.split("  ")[0] for line in lines[3:5]] == ["1 second", "1 day"]
    assert Path("drift.png").stat().st_size > 10_000
    again = run("analog", "drift", "aware", *options)
    assert again.stdout == found.stdout
    resumed = run("train", "digits", "--resume", "--out", "aware")
    assert resumed.exit_code == 1
    assert "--resume goes on with a digital run" in resumed.output
    page = run("export", "web", "aware", "--out", "page")
    assert page.exit_code == 1
    assert "aware, of `firebrick analog train`, whose tiles read with noise.\nRemedy: export a digital run" in page.output
    assert not Path("page").exists()
    again = run("analog", "train", "digits", "--out", "aware", "--resume")
    assert again.exit_code == 0, again.output
    assert "resumed aware after epoch 1" in again.stdout
    assert run("analog", "train", "digits", "--out", "aware", "--resume", "--lr", 1).exit_code == 2
    assert run("analog", "train", "digits", "--out", "aware", "--resume", "--epochs", 3).exit_code == 2
    wrong = run("analog", "train", "digits", "--out", trained, "--resume")
    assert "--resume goes on with an analog run of digits" in wrong.output


def test_drift_and_costs_of_a_digital_run(run: Run, trained: Path) -> None:
    found = run("analog", "drift", trained, "--noise-model", "reram-wan", "--repeats", 1, "--compensation", "none")
    assert found.exit_code == 0, found.output
    assert [line.split("  ")[0] for line in found.stdout.splitlines()[3:6]] == ["1 second", "1 day", "2 days"]
    wrong = run("analog", "drift", trained, "--noise-model", "reram-wan", "--times", "60")
    assert "nothing was measured at others" in wrong.output
    assert run("analog", "drift", trained, "--times", "soon").exit_code == 2
    figures = dict.fromkeys(("energy_per_mac", "energy_per_dac", "energy_per_adc", "time_per_product", "area_per_tile"), 1e-12)
    Path("costs.json").write_text(json.dumps({**figures, "source": "made up"}))
    costs = run("analog", "estimate", trained, "--costs", "costs.json")
    assert costs.exit_code == 0, costs.output
    assert costs.stdout.splitlines()[-1].startswith("figures: made up")
    Path("costs.json").write_text(json.dumps(figures))
    lacking = run("analog", "estimate", trained, "--costs", "costs.json")
    assert lacking.exit_code == 1
    assert "source" in lacking.output


@pytest.mark.soak
def test_a_model_is_trained_by_pulses(run: Run) -> None:
    made = run("analog", "train", "digits", "--device-model", "Idealized", "--epochs", 1, "--batch-size", 64)
    assert made.exit_code == 0, made.output
    assert "layers.1             256 x 64 in tiles of 256 x 64" in made.stdout
    assert float(made.stdout.split()[-1]) > 0.3
    second = run("analog", "drift", "runs/digits-analog-sgd", "--times", "1", "--repeats", 1)
    assert second.exit_code == 0, second.output
    refused = run("analog", "train", "digits", "--from", "runs/digits-analog-sgd")
    assert "--from: a digital run of digits" in refused.output


def test_what_training_has_not_is_refused(run: Run, trained: Path) -> None:
    for option in ("--noise", "--lr"):
        assert run("analog", "train", "digits", "--algorithm", "hwa", option, "nan").exit_code == 2
    refused = {
        ("--algorithm", "agad", "--device-model", "PCM"): "a device model for agad: one of ReRamES",
        ("--algorithm", "hwa", "--device-model", "EcRam"): "a noise model for hwa: one of pcm",
        ("--from", str(trained), "--model", "cnn"): "--from: a run of the model",
    }
    for options, message in refused.items():
        wrong = run("analog", "train", "digits", *options)
        assert wrong.exit_code == 1, wrong.output
        assert message in wrong.output


@pytest.mark.parametrize("name", ["sgd", "tiki-taka", "ttv2", "c-ttv2", "agad", "mixed-precision"])
def test_each_algorithm_has_presets_of_device_models(name: str) -> None:
    from firebrick.cli.analog_models import ALGORITHMS, config_of

    config = config_of({"algorithm": name, "device_model": "EcRam", "noise": 0.1})
    assert isinstance(config, analog.RPUConfig)
    assert ALGORITHMS[name].format("EcRam") in analog.preset_names()
