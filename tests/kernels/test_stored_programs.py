"""Compiled programs with kernels of the kernel language, on disk: found by the code of the kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import engine
from firebrick.backends.cpu.restored import Restored
from firebrick.compiler import cache, reuse
from firebrick.compiler.cache import ObjectStore

TEXT = """
import firebrick as fb

K = fb.kernel
FACTOR = {factor}


@K(grid="n")
def picked(x: K.In[{dtype}, "m"], at: K.In[fb.int64, "n"], out: K.Out["x", "n"]):
    i = K.index()
    out[i] = x[at[i]] * FACTOR


@K(grid="n")
def counting(x: K.In[{dtype}, "n"], most: int, out: K.Out[fb.int64, "n"]):
    i = K.index()
    count = 0
    while fb.float32(count) < x[i]:
        count += {step}
    out[i] = count


@K
def halved(x: K.In[None, "n"], out: K.Out["x", "n"]):
    i = K.index()
    out[i] = x[i] * 0.5


def f(x, at):
    y = halved(picked(x + 1.0, at))
    return fb.exp(y) - 1.0, counting(y, 3), fb.softmax(y, axis=0)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of its own, in which programs of any size are kept."""
    monkeypatch.setattr(cache, "store", ObjectStore())
    monkeypatch.setattr(reuse, "MIN_NODES", 1)
    with fb.config.scope(cache_dir=str(tmp_path / "cache"), cache_plans=True, verify_graphs=False):
        yield tmp_path


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each program that was planned anew."""
    seen: list[str] = []
    fuse = engine.fuse
    monkeypatch.setattr(engine, "fuse", lambda *args, **more: seen.append("plan") or fuse(*args, **more))
    return seen


def program(home: Path, name: str, lines: int = 0, **values: Any) -> Any:
    """``f`` under jit, from a file of this name, so many lines further down in it."""
    path = home / f"{name}.py"
    path.write_text("\n" * lines + TEXT.format(**{"factor": 2.0, "dtype": "fb.float32", "step": 1} | values))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return fb.jit(module.f)


def executable(made: Any) -> Any:
    (entry,) = made._entries.graphs.values()
    return entry.program.executable()


X, AT = np.linspace(0, 2, 5, dtype=np.float32), np.array([0, 3, 1])


def results(f: Any, at: Any = AT) -> list[bytes]:
    return [t.numpy().tobytes() for t in f(fb.asarray(X), fb.asarray(at))]


def test_a_program_with_kernels_is_not_planned_again_by_a_process_with_the_same_text(home: Path, planned: list[str]) -> None:
    with fb.config.scope(cache_plans=False):
        want = results(program(home, "first"))
    planned.clear()
    assert results(program(home, "second")) == want
    assert planned
    planned.clear()
    made = program(home, "third")
    assert results(made) == want
    assert not planned
    assert isinstance(executable(made), Restored)


def test_an_error_of_a_stored_kernel_names_the_line_as_it_is_now(home: Path) -> None:
    for number, lines in enumerate((0, 7)):
        made = program(home, f"lines{number}", lines)
        results(made)
        assert isinstance(executable(made), Restored) == bool(lines)
        with pytest.raises(
            fb.OutOfRangeError, match=rf"axis 0 of x .* below 5(.|\n)*Received: 9, at .*lines{number}\.py:{lines + 11}"
        ):
            results(made, np.array([0, 9, 1]))


def test_an_endless_loop_of_a_stored_kernel_is_reported_with_the_limit_of_now(home: Path, planned: list[str]) -> None:
    with fb.config.scope(kernel_loop_limit=4):
        results(program(home, "four"))
    planned.clear()
    with fb.config.scope(kernel_loop_limit=2):
        for number, lines in enumerate((0, 7)):
            made = program(home, f"endless{number}", lines)
            with pytest.raises(fb.ExecutionError, match=rf"at most 2 rounds(.|\n)*endless{number}\.py:{lines + 18}"):
                results(made)
    assert len(planned) == 1


@pytest.mark.parametrize("change", [{"factor": 3.0}, {"factor": -0.0}, {"step": 2}])
def test_other_kernels_are_planned_anew(home: Path, planned: list[str], change: dict[str, Any]) -> None:
    before = results(program(home, "before"))
    planned.clear()
    with fb.config.scope(cache_plans=False):
        want = results(program(home, "plain", **change))
    planned.clear()
    assert results(program(home, "after", **change)) == want != before
    assert planned


def test_a_stored_program_runs_kernels_that_are_not_part_of_a_segment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels whose groups are refused are operations of the engine, which the restored program chooses again."""
    proofs = engine.Proofs.__call__
    monkeypatch.setattr(
        engine.Proofs, "__call__",
        lambda self, body: body.nodes[-1].op.name != "kernel_picked" and proofs(self, body),
    )  # fmt: skip
    want = results(program(home, "first"))
    made = program(home, "second")
    assert results(made) == want
    assert isinstance(executable(made), Restored)
