"""What commands print of their results, in full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import firebrick as fb
from firebrick.cli import classification, forecasting, predict
from firebrick.testing import doctor

Run = Callable[..., Result]


def test_parts_and_result_of_a_classification(capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = SimpleNamespace(confusion=np.array([[3, 1, 0], [0, 12, 0], [0, 0, 0]]), loss=0.12344, accuracy=0.98765)
    classification.say_parts({"class_names": ("cat", "a dog", "eel")}, found)
    classification.say_result(found)
    assert capsys.readouterr().out.splitlines() == [
        "  cat        3 of 4     0.7500", "  a dog     12 of 12    1.0000", "  eel        0 of 0     0.0000",
        "test loss 0.1234", "test accuracy 0.9877",
    ]  # fmt: skip


def test_parts_and_result_of_a_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = SimpleNamespace(mae=0.12344, mse=0.98765)
    forecasting.say_parts({"columns": ["oil", "a load"], "mean": [1234.5678, 0.5], "std": [2.0, 0.33333]}, found)
    forecasting.say_result(found)
    assert capsys.readouterr().out.splitlines() == [
        "  oil     1 in scaled values is 2; its training mean is 1235",
        "  a load  1 in scaled values is 0.3333; its training mean is 0.5",
        "test MAE 0.1234", "test MSE 0.9877",
    ]  # fmt: skip


def test_each_picture_has_its_class_and_all_probabilities(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path, size: int, largest: int) -> Any:
        assert (size, largest) == (8, 16)
        if path.name == "bad.png":
            raise predict.ImageError("bad.png is no picture")
        return np.full((2,), int(path.stem), np.float32)

    monkeypatch.setattr(predict, "read_image", read)
    monkeypatch.setattr(classification, "pixels_of", lambda config: lambda x: (x,))
    config = {"class_names": ("cat", "dog"), "image_size": 8, "pixel_max": 16}
    model: Any = lambda x: fb.log(fb.asarray([[0.25, 0.75], [0.5, 0.5]])[: len(x)])  # noqa: E731
    assert not predict._classify(model, config, (Path("1.png"), Path("bad.png"), Path("2.png")), None)
    found = capsys.readouterr()
    assert found.out.splitlines() == [
        "1.png: dog  (probability 0.7500)", "  cat 0.2500  dog 0.7500",
        "2.png: cat  (probability 0.5000)", "  cat 0.5000  dog 0.5000",
    ]  # fmt: skip
    assert "bad.png is no picture" in found.err
    assert predict._classify(model, config, (Path("1.png"),), None)
    assert not predict._classify(model, config, (Path("bad.png"),), None)


def test_a_series_that_cannot_be_read_is_an_error_and_the_others_are_forecast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path) -> Any:
        if path.name == "bad.csv":
            raise predict.DataError("bad.csv is no series")
        values = np.arange(6.0).reshape(3, 2)
        return SimpleNamespace(
            values=values, columns=["oil", "load"], start=np.datetime64("2020-01-01"), step=np.timedelta64(1, "D")
        )

    class Series:
        def __init__(self, found: Any) -> None:
            self.__dict__.update(vars(found))

        def __len__(self) -> int:
            return 3

    monkeypatch.setattr(predict, "read_series", lambda path: Series(read(path)))
    monkeypatch.setattr(forecasting, "check_series", lambda *_: None)
    monkeypatch.setattr(forecasting, "scaled", lambda config, values: values * 2.0)
    monkeypatch.setattr(forecasting, "unscaled", lambda config, values: values / 2.0)
    config = {"look_back": 2, "horizon": 2, "columns": ["oil", "load"]}
    model: Any = lambda x: x + 0.25  # noqa: E731
    assert not predict._forecast(model, config, (Path("bad.csv"), Path("a.csv")), None)
    found = capsys.readouterr()
    assert found.out.splitlines() == ["date,oil,load", "2020-01-04,2.125,3.125", "2020-01-05,4.125,5.125"]
    assert "bad.csv is no series" in found.err
    assert predict._forecast(model, config, (Path("a.csv"),), None)


def finding(ok: bool, device: str = "cpu:0") -> doctor.Finding:
    return doctor.Finding("transfers", device, "one", ok, message="" if ok else "it is wrong")


def examined(*findings: doctor.Finding) -> doctor.Examination:
    return doctor.Examination(
        facts={"firebrick": "9", "cpu:0": "a fact", "numpy:0": "another"}, findings=[*findings], seconds=2.6
    )


@pytest.mark.parametrize("report", [True, False])
def test_an_examination_ends_with_its_facts_and_a_verdict(report: bool, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def examine(devices: Any, ops: Any, *, seed: int, watch: Any) -> doctor.Examination:
        asked.append((devices, ops, seed))
        watch("cpu:0", "transfers")
        return found

    monkeypatch.setattr(doctor, "examine", examine)
    options = ("--report", "r.txt") if report else ()
    found = examined(finding(True), finding(True, "numpy:0"))
    made = run("doctor", "--device", "cpu", "--op", "add", "--seed", 5, *options)
    assert made.exit_code == 0, made.output
    assert [(list(d), list(o), s) for d, o, s in asked] == [(["cpu"], ["add"], 5)]
    assert made.stderr == "checking cpu:0: transfers\n"
    written = ["report written to r.txt"] if report else []
    assert made.stdout.splitlines()[-3 - len(written) :] == [
        "cpu:0: a fact", "numpy:0: another", *written, "all is well: 2 checks on 2 devices, 3 s",
    ]  # fmt: skip
    found = examined(finding(True))
    assert run("doctor").stdout.splitlines()[-1] == "all is well: 1 checks on 1 device, 3 s"
    assert asked[1:] == [(None, None, 0)]
    found = examined(finding(True), finding(False))
    wrong = run("doctor", *options)
    assert wrong.exit_code == 1
    assert wrong.stderr.splitlines()[-1] == "1 checks failed"
    text = ["report written to r.txt"] if report else [
        "", "----- paste this into a bug report -----", *found.text().splitlines(), "-" * 40,
    ]  # fmt: skip
    assert wrong.stdout.splitlines()[-len(text) - 1 :] == ["cpu:0: a fact", *text]
    if report:
        assert Path("r.txt").read_text() == found.text()
