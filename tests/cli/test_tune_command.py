"""The command that measures variants of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from slow_variants import chosen_in_trial, take_turns

import firebrick as fb
from firebrick import models, nn
from firebrick.cli import tune
from firebrick.compiler.tune import choice

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path) -> Iterator[None]:
    with fb.config.scope(cache_dir=str(tmp_path / "cache"), num_threads=2):
        choice.forget()
        yield
    choice.forget()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "model.py"
    found.write_text("import firebrick as fb\n\ndef scores(x, w):\n    return fb.softmax(x @ w.T, axis=-1)\n", encoding="utf-8")
    return found


def test_a_function_is_tuned_and_listed(run: Run, file: Path) -> None:
    result = run("tune", f"{file}:scores", "--input", "float32[48,64]", "--input", "float32[56,64]")
    assert result.exit_code == 0, result.output
    assert "matmul float32[48,64], float32[56,64] → float32[48,56]" in result.output
    assert "1 kernel in" in result.output
    assert "(tuning of " in run("cache", "list", "--all").output
    choice.forget()
    with fb.config.scope(tune="cached"):
        fb.jit(lambda x, w: fb.softmax(x @ w.T, axis=-1))(fb.ones((48, 64)), fb.ones((56, 64)))
    (found,) = choice.choices()
    assert found.reason == "the fastest that was measured" or found.reason.startswith("a program took "), found.reason
    assert run("cache", "clear").exit_code == 0
    assert "(tuning of " not in run("cache", "list", "--all").output


def test_bad_arguments_are_refused(run: Run, file: Path) -> None:
    for arguments, text in (
        (["no-model"], "a model is one of"),
        ([f"{file}:other"], "defines a function other"),
        (["nowhere.py:step"], "tune takes FILE:FUNCTION"),
        ([f"{file}:scores", "--input", "float32[3,4]"], "an --input for each"),
        (["mlp", "--input", "float32[3]"], "--input gives the arguments of FILE:FUNCTION"),
        (["mlp", "--device", "numpy"], "devices with variants of kernels are those of the engines cpu and webgpu"),
    ):
        result = run("tune", *arguments)
        assert result.exit_code == 1, arguments
        assert text in result.output


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(
    run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("nothing is measured")

    monkeypatch.setattr("firebrick.graph.jit", measured)
    (tmp_path / "place").write_text("a file where the folder should be", encoding="utf-8")
    with fb.config.scope(cache_dir=str(tmp_path / "place")):
        result = run("tune", f"{file}:scores", "--input", "float32[48,64]", "--input", "float32[56,64]")
    assert result.exit_code == 1
    assert "error: what tuning finds is kept in a folder that can be written\nReceived: " in result.output
    assert f"{tmp_path / 'place' / 'objects'}: " in result.output
    assert "FIREBRICK_CACHE_DIR" in result.output


def test_records_that_are_not_kept_are_an_error(run: Run, file: Path) -> None:
    with fb.config.scope(cache_size=1):
        result = run("tune", f"{file}:scores", "--input", "float32[48,64]", "--input", "float32[56,64]")
    assert result.exit_code == 1
    assert "1 of 1 kernels that are not: permute matmul float32[48,64], float32[56,64]" in result.output
    assert "FIREBRICK_CACHE_SIZE, 1 bytes" in result.output
    assert "used from now on" not in result.output


def test_what_is_not_kept_or_not_compiled_is_said(run: Run, file: Path) -> None:
    arguments = ("tune", f"{file}:scores", "--input", "float32[48,64]", "--input", "float32[56,64]")
    with fb.config.scope(cache_dir="off"):
        assert "not kept" in run(*arguments).output
    choice.forget()
    with fb.config.scope(cpu_compile=False):
        assert "no kernel with variants" in run(*arguments).output


ARGUMENTS = ("--input", "float32[480,256]", "--input", "float32[560,256]")


@pytest.mark.parametrize("slower", [True, False])
def test_variants_that_make_the_program_slower_are_not_kept(
    run: Run, file: Path, slower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen_in_trial(monkeypatch)
    take_turns(monkeypatch, 4e-6 if slower else 3e-6, 3e-6 if slower else 4e-6)
    result = run("tune", f"{file}:scores", *ARGUMENTS)
    assert result.exit_code == 0, result.output
    text = "defaults are kept: a program took 4 µs with variants, and 3 µs without"
    assert (text in result.output) is slower
    assert ("threads=1" in result.output) is not slower
    choice.forget()
    with fb.config.scope(tune="cached"):
        fb.jit(lambda x, w: fb.softmax(x @ w.mT, axis=-1))(fb.ones((480, 256)), fb.ones((560, 256)))
    assert ("threads=1" in {c.variant for c in choice.choices()}) is not slower


class Stub(nn.Module):
    """A model of any family: its inputs and modes are noted, and its result has the shape that is asked for."""

    def __init__(self, *shape: int) -> None:
        self.shape, self.scale = shape, nn.Parameter(fb.ones(()))
        self.seen: list[Any] = []

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.seen.append((x.shape, x.dtype, self.training))
        return fb.zeros((x.shape[0], *self.shape)) * self.scale + self.scale


@pytest.mark.parametrize(
    ("name", "shape", "built", "seen"),
    [
        (models.names("forecasting")[0], (tune.HORIZON, tune.SERIES),
         {"series": tune.SERIES, "window": tune.WINDOW, "horizon": tune.HORIZON},
         ((3, tune.WINDOW, tune.SERIES), fb.float32)),
        ("gpt", (tune.CONTEXT, tune.VOCABULARY), {"vocabulary": tune.VOCABULARY, "length": tune.CONTEXT},
         ((3, tune.CONTEXT), fb.int64)),
        ("cnn", (10,), (12, 2), ((3, 2, 12, 12), fb.float32)),
    ],
)  # fmt: skip
def test_a_model_of_each_family_is_trained_and_evaluated_on_random_data(
    name: str, shape: tuple[int, ...], built: Any, seen: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, asked = Stub(*shape), list[Any]()
    monkeypatch.setattr(models, "build", lambda name, *sizes, **named: (asked.append((name, named or sizes)), model)[1])
    train, infer = tune._model(name, 3, 12, 2)
    assert asked == [(name, built)]
    with fb.disable_jit():
        assert train().shape == ()
        assert infer().shape == (3, *shape)
        assert train().shape == ()
    assert model.seen == [(*seen, True), (*seen, False), (*seen, True)]
    assert model.scale.item() != 1.0
