"""The command that measures variants of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

import firebrick as fb
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
    assert {c.reason for c in choice.choices()} == {"the fastest that was measured"}
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


def test_what_is_not_kept_or_not_compiled_is_said(run: Run, file: Path) -> None:
    arguments = ("tune", f"{file}:scores", "--input", "float32[48,64]", "--input", "float32[56,64]")
    with fb.config.scope(cache_dir="off"):
        assert "not kept" in run(*arguments).output
    choice.forget()
    with fb.config.scope(cpu_compile=False):
        assert "no kernel with variants" in run(*arguments).output
