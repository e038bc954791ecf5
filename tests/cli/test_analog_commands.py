from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

import firebrick as fb
from firebrick import analog, nn
from firebrick.cli import analog as commands
from firebrick.train import TrainingInterrupted

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
    assert fitted.stdout.splitlines()[-1] == "picture    f.png"
    assert shown.stdout.splitlines()[-2:] == ["response   c.csv", "picture    c.png"]
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


class Planned:
    """Takes the place of a learner: remembers the run that it was made for, and learns nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.epoch, self.step = analog.Linear(3, 2, config=analog.preset("IdealizedPreset"), seed=0), 2, 40
        self.configs: list[dict[str, Any]] = []
        self.done: list[Any] = []
        self.error: BaseException | None = None
        self.out, self.digital = Path(), None
        monkeypatch.setattr(commands, "_prepared", self.prepared)
        monkeypatch.setattr(commands, "run_config", lambda config: config)  # without what the data set is known by
        monkeypatch.setattr(
            commands, "task_of", lambda config: SimpleNamespace(say_result=lambda r: self.done.append(("say", r)))
        )

    def prepared(self, config: dict[str, Any], run: Path, goal: Any, digital: Any) -> tuple[Any, ...]:
        self.configs.append(config)
        self.out, self.digital = run, digital
        return self, SimpleNamespace(samples=1294), "validation", SimpleNamespace(samples=359)

    def resume(self) -> None:
        self.done.append("resume")

    def fit(self, training: Any, validation: Any, **how: Any) -> None:
        self.done.append(("fit", training.samples, validation, how))
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "metrics.csv").touch()
        if self.error is not None:
            raise self.error

    def evaluate(self, testing: Any) -> str:
        return f"{testing.samples} tested"

    def draw(self, found: str, what: str) -> None:
        self.done.append(("draw", found, what))


def test_a_run_is_planned_trained_and_described(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    made = run("analog", "train", "mnist", "--device", "cpu:1")
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines() == [
        "mnist, mlp, sgd with EcRam: 1,294 images to train, 359 to test, on cpu:1",
        "  tiles                2 x 3 in tiles of 2 x 3",
        "checkpoint  runs/mnist-analog-sgd/checkpoint",
    ]  # fmt: skip
    result = "359 tested"
    fitted = ("fit", 1294, "validation", {"epochs": 3, "draw": False})
    assert planned.done == [fitted, ("draw", result, "test images"), ("say", result)]
    assert planned.digital is None
    (config,) = planned.configs
    chosen = {"algorithm": "sgd", "device_model": "EcRam", "noise": 0.1, "seed": 0}
    expected = {"batch_size": 32, "lr": 0.1, "seed": 0, "epochs": 3, "analog": chosen, "data_dir": None, "model_settings": {}}
    assert {k: config[k] for k in expected} == expected
    second = run("analog", "train", "mnist", "--epochs", 2, "--data-dir", "images")
    assert second.stdout.startswith("runs/mnist-analog-sgd holds something already: this run goes to runs/mnist-analog-sgd-2\n")
    assert second.stdout.endswith("checkpoint  runs/mnist-analog-sgd-2/checkpoint\n")
    assert planned.configs[1]["epochs"] == 2
    assert planned.configs[1]["data_dir"] == str(Path("images").resolve())


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (("--algorithm", "hwa"), "lr", 0.003), (("--algorithm", "hwa", "--lr", 0.5), "lr", 0.5), (("--lr", 0.5), "lr", 0.5),
        (("--batch-size", 7), "batch_size", 7), (("--seed", 9), "seed", 9), (("--model", "cnn"), "model", "cnn"),
        (("--algorithm", "hwa"), "title", "digits, mlp, hwa with pcm"),
        (("--device-model", "PCM", "--model", "lenet"), "title", "digits, lenet, sgd with PCM"),
        (("--algorithm", "hwa", "--noise", 0.25, "--seed", 4), "analog",
         {"algorithm": "hwa", "device_model": "pcm", "noise": 0.25, "seed": 4}),
        ((), "epochs", 20),
    ],
    ids=str,
)  # fmt: skip
def test_an_option_of_training_goes_into_the_runs_config(
    options: tuple[Any, ...], name: str, value: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = Planned(monkeypatch)
    made = run("analog", "train", "digits", *options)
    assert made.exit_code == 0, made.output
    assert planned.configs[0][name] == value


def test_an_interrupted_run_tells_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    planned.error = TrainingInterrupted(Path("a run/checkpoint"), 2, 40)
    made = run("analog", "train", "digits", "--out", "a run")
    assert made.exit_code == 130
    assert made.stderr.splitlines()[-2:] == [
        "stopped in epoch 2 after step 40; saved in a run/checkpoint",
        "go on with: firebrick analog train digits --out 'a run' --resume",
    ]
    assert [d[0] for d in planned.done] == ["fit"]


def test_a_run_goes_on_with_its_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    config = {"dataset": "digits", "model": "mlp", "analog": {"algorithm": "sgd"}, "title": "a title", "epochs": 5}
    monkeypatch.setattr(commands, "load_checkpoint", lambda path: SimpleNamespace(config=config, path=path))
    monkeypatch.setattr(commands, "known", lambda checkpoint: checkpoint.config)
    made = run("analog", "train", "digits", "--resume", "--out", "mine", "--epochs", 5)
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[:2] == [
        "resumed mine after epoch 2, step 40",
        "a title: 1,294 images to train, 359 to test, on cpu:0",
    ]
    assert planned.configs == [config]
    assert planned.done[0] == "resume"
    assert planned.done[1][3] == {"epochs": 5, "draw": False}
    for options, text in {
        ("--epochs", 4): "the run was planned for 5 epochs",
        ("--lr", 0.1): "Invalid value for --lr: a run goes on with the settings it was started with",
        ("--algorithm", "sgd"): "Invalid value for --algorithm",
    }.items():
        wrong = run("analog", "train", "digits", "--resume", "--out", "mine", *options)
        assert wrong.exit_code == 2
        assert text in wrong.output
    for name, value in (("dataset", "mnist"), ("analog", None)):
        monkeypatch.setitem(config, name, value)
        wrong = run("analog", "train", "digits", "--resume", "--out", "mine")
        assert wrong.exit_code == 1
        assert "--resume goes on with an analog run of digits\nReceived: mine, of a title" in wrong.output


def test_a_run_begins_with_the_model_of_a_digital_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, model = Planned(monkeypatch), nn.Linear(3, 2)
    before = {"dataset": "digits", "model": "cnn", "model_settings": {"width": 3}, "title": "a digital run"}
    asked: list[Any] = []
    monkeypatch.setattr(
        commands, "load_run", lambda path, device: (asked.append((path, device)), (model, SimpleNamespace(config=before)))[1]
    )
    made = run("analog", "train", "digits", "--from", ".", "--device", "cpu:1")
    assert made.exit_code == 0, made.output
    assert asked == [(Path("."), "cpu:1")]
    assert planned.digital is model
    assert (planned.configs[0]["model"], planned.configs[0]["model_settings"]) == ("cnn", {"width": 3})
    assert run("analog", "train", "digits", "--from", ".", "--model", "cnn").exit_code == 0
    for name, value in (("dataset", "mnist"), ("analog", {})):
        with monkeypatch.context() as m:
            m.setitem(before, name, value)
            wrong = run("analog", "train", "digits", "--from", ".")
            assert wrong.exit_code == 1
            assert "--from: a digital run of digits\nReceived: ., of a digital run" in wrong.output


def test_runs_on_other_data_than_images_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(config={"dataset": "a series", "title": "a forecast"})
    monkeypatch.setattr(commands, "load_run", lambda path, device=None: (nn.Linear(2, 2), found))
    monkeypatch.setattr(commands, "task_of", lambda config: SimpleNamespace())
    names = ("energy_per_mac", "energy_per_dac", "energy_per_adc", "time_per_product", "area_per_tile", "source")
    Path("costs.json").write_text(json.dumps(dict.fromkeys(names, 1e-12) | {"source": "made up"}))
    for command in (("drift", "."), ("estimate", ".", "--costs", "costs.json")):
        wrong = run("analog", *command)
        assert wrong.exit_code == 1
        assert "a run on images\nReceived: ., of a series.\nRemedy: choose another run." in wrong.output
    for text, received in (("[1]", "costs.json: list"), ('{"a": 1}', "costs.json: a"), ("{", "costs.json: ")):
        Path("costs.json").write_text(text)
        wrong = run("analog", "estimate", ".", "--costs", "costs.json")
        assert wrong.exit_code == 1
        assert f"Received: {received}" in wrong.output


def test_a_learner_is_made_of_the_runs_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Any] = []
    task = SimpleNamespace(
        training_loaders=lambda config, folder, goal: (made.append((config["seed"], folder, goal)), ([0] * 6, "valid"))[1],
        test_loader=lambda config, folder, goal: ("test", folder, goal), build_model=lambda config: nn.Linear(2, 2),
        loss_of=lambda config: fb.cross_entropy, names_of=lambda config: ("a", "b"),
    )  # fmt: skip
    monkeypatch.setattr(commands, "task_of", lambda config: task)
    monkeypatch.setattr(commands.random, "seed", lambda seed: made.append(f"seed {seed}"))
    analog_of = {"algorithm": "hwa", "device_model": "pcm", "noise": 0.0, "seed": 0}
    config = {"seed": 3, "data_dir": "images", "lr": 0.25, "epochs": 2, "analog": analog_of}
    goal = fb.device("cpu:1")
    learner, training, validation, testing = commands._prepared(config, tmp_path / "run", goal, None)
    assert (training, validation, testing) == ([0] * 6, "valid", ("test", "images", goal))
    assert made == [(3, "images", goal), "seed 3"]
    assert {p.device for p in learner.model.parameters()} == {goal}
    schedule = learner.optimizer.schedule
    assert (schedule.lr, schedule.steps) == (0.25, 12)
    assert (learner.out, learner.config, learner.class_names) == (tmp_path / "run", config, ("a", "b"))
    digital = nn.Linear(2, 2).eval()
    learner, *_ = commands._prepared(config, tmp_path / "other", fb.device("cpu"), digital)
    assert type(learner.model) is analog.Linear
    assert digital.training


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
