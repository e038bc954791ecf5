"""The command that shows the forms of a kernel of the kernel language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

import firebrick as fb

Run = Callable[..., Result]

SOURCE = """
import firebrick as fb

K = fb.kernel

@K
def axpy(a: float, x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = a * x[i]

@K
def grid(n: int, out: K.Out[fb.int64, "n"]):
    out[K.index()] = K.index()

def samples(rng, dtype):
    return [(2.0, rng.normal(size=3).astype("float32"))]

twice = fb.op("twice_explained", replace=True, kernel=axpy, samples=samples)

def plain(x):
    return x + 1.0
"""


@pytest.fixture(autouse=True)
def without_its_operation() -> Iterator[None]:
    yield
    fb.ops.OPS.pop("twice_explained", None)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("explained") / "model.py"
    found.write_text(SOURCE, encoding="utf-8")
    return found


def test_a_kernel_is_shown_as_kernel_ir(run: Run, file: Path) -> None:
    result = run("explain", f"{file}:axpy", "--input", "2.0", "--input", "float32[8]")
    assert result.exit_code == 0
    assert "out[index] = a_value * x[index]" in result.output


@pytest.mark.parametrize("name", ["axpy", "twice"])
def test_shapes_that_a_call_refuses_are_refused(run: Run, file: Path, name: str) -> None:
    result = run("explain", f"{file}:{name}", "--input", "2.0", "--input", "float32[8,8]")
    assert result.exit_code == 1
    assert "error: axpy: x has 1 axis\nReceived: a: float32[]" in result.stderr


def test_the_forms_of_a_kernel_are_not_those_of_another_engine(run: Run, file: Path) -> None:
    result = run("explain", f"{file}:axpy", "--input", "2.0", "--input", "float32[8]", "--device", "numpy")
    assert result.exit_code == 1
    assert "the forms of a kernel are those of the cpu engine, for any --target\nReceived: --device numpy." in result.stderr


def test_numbers_that_sizes_depend_on_are_inputs(run: Run, file: Path) -> None:
    result = run("explain", f"{file}:grid", "--input", "8")
    assert result.exit_code == 0
    assert "out[index] = index" in result.output


@pytest.mark.parametrize(
    ("target", "instruction"), [("sm_80", "mul.rn.f32"), ("gfx90a", "v_mul_f32"), ("aarch64", "fmul"), ("x86_64", "vmulps")]
)
def test_the_assembly_of_any_target_is_shown(run: Run, file: Path, target: str, instruction: str) -> None:
    options = ("--input", "2.0", "--input", "float32[8]", "--form", "assembly", "--target", target)
    result = run("explain", f"{file}:axpy", *options)
    assert result.exit_code == 0
    assert instruction in result.output


def test_an_operation_of_ones_own_is_shown_as_its_kernel(tmp_path: Path, run: Run) -> None:
    (tmp_path / "own.py").write_text(SOURCE, encoding="utf-8")
    result = run("explain", f"{tmp_path}/own.py:twice", "--input", "2.0", "--input", "float32[8]", "--form", "code")
    assert result.exit_code == 0
    assert "fmul" in result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("axpy", "--input", "2.0", "--input", "float32[8]", "--form", "graph"), "are ir, code, assembly"),
        (("axpy", "--input", "2.0", "--input", "float32[8]", "--form", "code", "--target", "z80"), "a GPU such as sm_80"),
        (("axpy", "--input", "2.0", "--input", "float64[8]"), "x has dtype float32"),
        (("axpy", "--input", "2.0"), "none for x"),
        (("plain", "--input", "float32[8]", "--target", "sm_80"), "a target is of a kernel"),
        (("plain", "--input", "float32[8]", "--form", "ir"), "are graph, groups, specs, naive, code"),
    ],
)
def test_bad_input_is_one_message(run: Run, file: Path, arguments: tuple[str, ...], text: str) -> None:
    result = run("explain", f"{file}:{arguments[0]}", *arguments[1:])
    assert result.exit_code != 0
    assert text in result.output
    assert "Traceback" not in result.output
