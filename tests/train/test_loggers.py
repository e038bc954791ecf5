"""Loggers: what they write of a run, and that a resumed run goes on without doubled rows."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from combinations import turns_of
from event_curves import curves

import firebrick as fb
from firebrick.core.errors import ConfigError, UnsupportedError
from firebrick.data import DataLoader
from firebrick.train import (
    Callback,
    CSVLogger,
    EventFileLogger,
    JSONLinesLogger,
    Learner,
    Metric,
    MLflowLogger,
    TrainingError,
    TrainingInterrupted,
    WandbLogger,
)

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]
TIMED = ("seconds", "samples_per_second")


def in_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return [{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(stream)]


def in_json(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in TIMED} for row in rows]


class Late(Metric):
    """A metric that is there from the second epoch on."""

    def initial(self) -> dict[str, Any]:
        return {"samples": 0}

    def update(self, output: Any, target: Any) -> None:
        self.keep(target.shape[0], target)

    def add(self, values: Any, samples: int) -> None:
        self.totals["samples"] += samples

    def compute(self) -> float:
        return float(self.totals["samples"])


def test_an_epoch_is_a_row_and_a_step_a_line(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    table, lines = CSVLogger(tmp_path / "deep" / "run.csv"), JSONLinesLogger(tmp_path / "deep" / "run.jsonl", every=3)
    learner = make(callbacks=[table, lines], clip_norm=1.0, metrics={"count": Late()})
    rows = learner.fit(*loaders, epochs=2)
    assert [r["epoch"] for r in in_csv(table.path)] == ["1", "2"]
    assert [float(r["valid_loss"]) for r in in_csv(table.path)] == [r.valid_loss for r in rows]
    assert [r["train_count"] for r in in_csv(table.path)] == ["50.0", "50.0"]
    written = in_json(lines.path)
    assert [(r["step"], "epoch" in r) for r in written] == [
        (3, False), (6, False), (7, True), (9, False), (12, False), (14, True)
    ]  # fmt: skip
    assert set(written[0]) == {"step", "loss", "gradient_norm"}
    assert written[2]["train_loss"] == rows[0].train_loss


class Stops(Callback):
    """Saves after a step and fails after another, or is interrupted there."""

    def __init__(self, saved: int | None, ended: int) -> None:
        self.saved, self.ended = saved, ended

    def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
        if step == self.saved:
            learner.interrupts.save()
        if step == self.ended:
            if self.saved is None:
                learner.interrupts.stop()
            else:
                raise MemoryError("died")


@pytest.mark.parametrize(
    ("steps", "left"),
    turns_of([(None, 5), (3, 6), (None, 10), (9, 12), (8, 14)], ["", '{"step": 6, "lo', "9,63,0.1"]),
)
def test_a_resumed_run_goes_on_with_the_same_files(
    make: Make, loaders: Loaders, tmp_path: Path, steps: tuple[int | None, int], left: str
) -> None:
    saved, ended = steps

    def fresh(name: str, *more: Callback) -> Learner:
        folder = tmp_path / name
        own = [
            CSVLogger(folder / "a.csv"),
            JSONLinesLogger(folder / "a.jsonl", every=1),
            EventFileLogger(folder / "events", every=2),
        ]
        return make(out=folder / "run", callbacks=[*own, *more])

    fresh("whole").fit(*loaders, epochs=3, draw=False)
    with pytest.raises((TrainingInterrupted, MemoryError)):
        fresh("parts", Stops(saved, ended)).fit(*loaders, epochs=3, draw=False)
    for name in ("a.csv", "a.jsonl"):
        with (tmp_path / "parts" / name).open("a") as stream:
            stream.write(left)  # as a crash does
    resumed = fresh("parts")
    resumed.resume()
    resumed.fit(*loaders, epochs=3, draw=False)
    assert in_csv(tmp_path / "parts" / "a.csv") == in_csv(tmp_path / "whole" / "a.csv")
    assert in_json(tmp_path / "parts" / "a.jsonl") == in_json(tmp_path / "whole" / "a.jsonl")
    whole, parts = (curves(tmp_path / n / "events") for n in ("whole", "parts"))
    timed = tuple(f"run/{n}" for n in TIMED)
    assert {t: c for t, c in parts.items() if t not in timed} == {t: c for t, c in whole.items() if t not in timed}


def test_a_learner_that_failed_goes_on_with_its_files(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    logger = JSONLinesLogger(tmp_path / "a.jsonl", every=1)
    learner = make(callbacks=[logger, Stops(99, 4)])
    with pytest.raises(MemoryError):
        learner.fit(*loaders, epochs=1)
    learner.fit(*loaders, epochs=1)
    assert [r["step"] for r in in_json(logger.path)] == [1, 2, 3, 4, 5, 6, 7, 7]


@pytest.mark.parametrize("kind", [CSVLogger, JSONLinesLogger])
def test_a_new_run_overwrites_no_log_and_no_other_file(make: Make, loaders: Loaders, tmp_path: Path, kind: Any) -> None:
    make(callbacks=[kind(tmp_path / "log")]).fit(*loaders, epochs=1)
    before = (tmp_path / "log").read_bytes()
    with pytest.raises(TrainingError, match=r"overwrites nothing(?s:.*)which is not empty"):
        make(callbacks=[kind(tmp_path / "log")]).fit(*loaders, epochs=1)
    assert (tmp_path / "log").read_bytes() == before
    (tmp_path / "notes").write_text("my notes\nof the year\n")
    learner = make(callbacks=[])
    learner.fit(*loaders, epochs=1)
    learner.callbacks = (kind(tmp_path / "notes"),)
    with pytest.raises(TrainingError, match="this one stays as it is"):
        learner.fit(*loaders, epochs=2)
    assert (tmp_path / "notes").read_text() == "my notes\nof the year\n"
    (tmp_path / "folder").mkdir()
    learner.callbacks = (kind(tmp_path / "folder"),)
    with pytest.raises(TrainingError, match=r"is a file of rows(?s:.*)a directory"):
        learner.fit(*loaders, epochs=2)


@pytest.mark.parametrize("kind", [CSVLogger, JSONLinesLogger, EventFileLogger])
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_first_step(
    make: Make, loaders: Loaders, tmp_path: Path, kind: Any
) -> None:
    (tmp_path / "file").write_text("")
    learner = make(callbacks=[kind(tmp_path / "file" / "deep" / "log")])
    with pytest.raises(TrainingError, match="a logger writes into"):
        learner.fit(*loaders, epochs=1)
    assert learner.step == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder where no one may write")
def test_a_folder_that_is_there_and_cannot_be_written_to_is_refused(make: Make, loaders: Loaders) -> None:
    learner = make(callbacks=[CSVLogger("/proc/log")])
    with pytest.raises(TrainingError, match="a logger writes into /proc"):
        learner.fit(*loaders, epochs=1)
    assert learner.step == 0


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "3"])
def test_a_number_of_steps_that_is_none_is_refused(tmp_path: Path, every: Any) -> None:
    for kind in (JSONLinesLogger, EventFileLogger):
        with pytest.raises(ConfigError, match="every"):
            kind(tmp_path / "log", every=every)


def test_a_loss_that_is_no_number_is_null(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    class NaN(Late):
        def compute(self) -> float:
            return float("nan")

    make(callbacks=[JSONLinesLogger(tmp_path / "log")], metrics={"n": NaN()}).fit(*loaders, epochs=1)
    assert in_json(tmp_path / "log")[0]["train_n"] is None


# services


class Client:
    """MLflow's client, with its signatures; runs are kept here."""

    runs: ClassVar[dict[str, Any]] = {}

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        self.uri = tracking_uri

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="0") if name == "Default" else None

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        return f"experiment {name}"

    def create_run(self, experiment_id: str, start_time: Any = None, tags: Any = None, run_name: str | None = None) -> Any:
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = {"of": experiment_id, "name": run_name, "metrics": [], "params": {}, "status": "RUNNING"}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def update_run(self, run_id: str, status: str | None = None, name: str | None = None) -> None:
        self.runs[run_id]["status"] = status

    def log_batch(
        self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = (), synchronous: bool | None = None
    ) -> None:
        self.runs[run_id]["metrics"] += [(m.key, m.step, m.value) for m in metrics]
        self.runs[run_id]["params"] |= {p.key: p.value for p in params}

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [SimpleNamespace(key=k, step=s, value=v) for k, s, v in self.runs[run_id]["metrics"] if k == key]

    def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
        self.runs[run_id]["status"] = status


class Run:
    """A run of Weights & Biases: numbers of steps before the last one are left out."""

    def __init__(self, run_id: str, config: Any) -> None:
        self.id, self.config = run_id, config
        self.history: dict[int, dict[str, float]] = {}
        self.summary: dict[str, Any] = {}
        self.dropped = 0
        self.codes: list[int | None] = []

    @property
    def step(self) -> int:
        return max(self.history, default=-1) + 1

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        assert step is not None
        if step < max(self.history, default=-1):
            self.dropped += 1
            return
        self.summary.update(data)
        self.history.setdefault(step, {}).update(data)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        self.codes.append(exit_code)


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> dict[str, Run]:
    mlflow: Any = ModuleType("mlflow")
    mlflow.MlflowClient = Client
    Client.runs = {}
    mlflow.entities = SimpleNamespace(
        Metric=lambda key, value, timestamp, step: SimpleNamespace(key=key, value=value, timestamp=timestamp, step=step),
        Param=lambda key, value: SimpleNamespace(key=key, value=value),
    )
    runs: dict[str, Run] = {}

    def init(
        entity: str | None = None, project: str | None = None, dir: Any = None, id: str | None = None,
        name: str | None = None, config: Any = None, resume: Any = None, mode: str | None = None,
    ) -> Run:  # fmt: skip
        assert resume == "allow"
        key = id or f"w{len(runs)}"
        return runs.setdefault(key, Run(key, config))

    wandb: Any = ModuleType("wandb")
    wandb.init = init
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return runs


@pytest.mark.parametrize(("saved", "ended"), [(None, 5), (3, 6), (8, 14)])
def test_services_get_each_number_once_and_a_resumed_run_is_the_same_run(
    services: dict[str, Run], make: Make, loaders: Loaders, tmp_path: Path, saved: int | None, ended: int
) -> None:
    def fresh(name: str, *more: Callback) -> Learner:
        own = [MLflowLogger("mine", name="first", every=1), WandbLogger("mine", every=1, options={"mode": "offline"})]
        return make(out=tmp_path / name, callbacks=[*own, *more], config={"width": 3})

    fresh("whole").fit(*loaders, epochs=3, draw=False)
    with pytest.raises((TrainingInterrupted, MemoryError)):
        fresh("parts", Stops(saved, ended)).fit(*loaders, epochs=3, draw=False)
    assert Client.runs["run1"]["status"] == ("KILLED" if saved is None else "FAILED")
    resumed = fresh("parts")
    resumed.resume()
    resumed.fit(*loaders, epochs=3, draw=False)
    assert list(Client.runs) == ["run0", "run1"]
    whole, parts = (
        [m for m in Client.runs[k]["metrics"] if m[0] not in TIMED] for k in ("run0", "run1")
    )  # fmt: skip
    assert parts == whole
    assert len({m[:2] for m in parts}) == len(parts)
    assert {k: v for k, v in Client.runs["run1"].items() if k != "metrics"} == {
        "of": "experiment mine", "name": "first", "params": {"width": "3"}, "status": "FINISHED"
    }  # fmt: skip
    assert [r.dropped for r in services.values()] == [0, 0]
    assert [r.summary["epoch"] for r in services.values()] == [3, 3]
    logged = []
    for run in services.values():
        names = {n for row in run.history.values() for n in row if n not in TIMED}
        logged.append({n: [row[n] for _, row in sorted(run.history.items()) if n in row] for n in names})
    assert logged[0] == logged[1]
    assert services["w1"].codes == [1, 0]
    assert services["w1"].config == {"width": 3}


@pytest.mark.parametrize(("module", "make_logger"), [("mlflow", MLflowLogger), ("wandb", lambda: WandbLogger("mine"))])
def test_a_service_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, module: str, make_logger: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError, match=f"logs by the package {module}(?s:.*)pip install {module}"):
        make_logger()


def test_options_that_are_arguments_are_refused(services: Any) -> None:
    with pytest.raises(ConfigError, match="project, resume"):
        WandbLogger("mine", options={"resume": True, "project": "x"})


def test_ranks_but_the_main_one_write_nothing(make: Make, loaders: Loaders, tmp_path: Path, services: Any) -> None:
    class Other(fb.train.SingleDevice):
        main = False

    own = [CSVLogger(tmp_path / "a"), JSONLinesLogger(tmp_path / "b", every=1), EventFileLogger(tmp_path / "c", every=1)]
    make(strategy=Other("cpu"), callbacks=[*own, MLflowLogger(every=1), WandbLogger("mine", every=1)]).fit(*loaders, epochs=1)
    assert not list(tmp_path.iterdir())
    assert (Client.runs, services) == ({}, {})
