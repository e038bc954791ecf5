"""The command that shows the forms of a function."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

SOURCE = """
import firebrick as fb

def scores(x, w):
    return fb.softmax(x @ w.T + 1.0, axis=-1)

@fb.jit
def compiled(x):
    return fb.exp(x) * 2.0

number = 3

@fb.kernel(grid="n")
def picked(x: fb.kernel.In[fb.float32, "m"], at: fb.kernel.In[fb.int64, "n"], out: fb.kernel.Out[fb.float32, "n"]):
    i = fb.kernel.index()
    out[i] = x[at[i]]

def around(x, at):
    return fb.exp(picked(x * 2.0, at))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "model.py"
    found.write_text(SOURCE, encoding="utf-8")
    return found


def test_graph_groups_and_specifications_are_shown(run: Run, file: Path) -> None:
    result = run("explain", f"{file}:scores", "--input", "float32[256,256]", "--input", "float32[256,256]")
    assert result.exit_code == 0
    graph, groups, specs = re.split(r"^# ", result.output, flags=re.MULTILINE)[1:]
    assert "matmul(%0, %2)" in graph
    assert groups.count("fused(") == 2
    assert "C[256, 256] over k = 256" in specs
    assert "Row over [256, 256], reduced along [1]" in specs
    assert "Naive forms" not in result.output


@pytest.mark.parametrize(("form", "shown"), [
    ("naive", "kernel naive_map_"), ("code", "define weak_odr void @map_"), ("graph", "exp(%0)"), ("groups", "fused(%0"),
])  # fmt: skip
def test_one_form_of_a_function_under_jit_is_shown(run: Run, file: Path, form: str, shown: str) -> None:
    result = run("explain", f"{file}:compiled", "--input", "float32[512, 512]", "--form", form)
    assert result.exit_code == 0
    assert len(re.findall(r"^# ", result.output, re.MULTILINE)) == 1
    assert shown in result.output


def test_a_kernel_in_a_function_has_a_specification_like_other_groups(run: Run, file: Path) -> None:
    arguments = ("explain", f"{file}:around", "--input", "float32[7]", "--input", "int64[5]")
    specs = run(*arguments, "--form", "specs").output
    assert specs.count("Map over") == 2
    for line in (
        "Custom over [5]",
        "operand 0 x: input 0, float32[7], strides [1]",
        "check 0: axis 0 of x has 7, ",
        "kernel picked(x: read float32[], at",
    ):
        assert line in specs
    assert "kernel picked(" in run(*arguments, "--form", "naive").output
    assert "define weak_odr void @kernel_picked_" in run(*arguments, "--form", "code").output


def test_an_engine_that_compiles_nothing_shows_the_graph(run: Run, file: Path) -> None:
    result = run("explain", f"{file}:compiled", "--input", "float32[4]", "--device", "numpy")
    assert result.exit_code == 0
    assert "numpy runs it operation by operation" in result.output


@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere.py:f"], "explain takes FILE:FUNCTION"), (["f"], "explain takes FILE:FUNCTION"),
    (["{file}:other"], "defines a function other"), (["{file}:number"], "defines a function number"),
    (["{file}:compiled", "--input", "float32"], "an input is DTYPE"), (["{file}:compiled", "--input", "float31[2]"], "float31"),
    (["{file}:compiled", "--input", "float32[2]", "--device", "nothing"], "nothing"),
    (["{file}:scores", "--input", "float32[2,3]", "--input", "float32[2,4]"], "matmul"),
    (["{file}:compiled"], "0 inputs"), (["{file}:compiled", "--input", "float32[2]", "--input", "float32[2]"], "2 inputs"),
    (["{file}:compiled", "--input", "float32[6 4]"], "an input is DTYPE"),
    (["{file}:compiled", "--input", "float32[,2]"], "an input is DTYPE"),
    (["{file}:compiled", "--input", f"float32[{'9' * 5000}]"], "an input is DTYPE"),
])  # fmt: skip
def test_what_cannot_be_shown_is_one_message(run: Run, file: Path, arguments: list[str], message: str) -> None:
    result = run("explain", *(a.format(file=file) for a in arguments))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


FAILING = """import firebrick as fb

def scores(x):
    y = x * 2.0
    return y + missing

def inner(x):
    return fb.vmap(lambda v: [][3])(x)
"""


@pytest.mark.parametrize(
    ("name", "line"), [("scores", "5: return y + missing"), ("inner", r"8: return fb.vmap(lambda v: [][3])(x)")]
)
@pytest.mark.parametrize("command", [("explain",), ("tune",)])
def test_an_error_of_the_function_is_one_message_with_its_line(
    run: Run, tmp_path: Path, command: tuple[str, ...], name: str, line: str
) -> None:
    file = tmp_path / "failing.py"
    file.write_text(FAILING, encoding="utf-8")
    result = run(*command, f"{file}:{name}", "--input", "float32[3]")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    error = "NameError: name 'missing' is not defined" if name == "scores" else "IndexError: list index out of range"
    text = (
        f"error: {file}:{name} runs without an error\nReceived: {error}\nAt {file}, line {line}.\nRemedy: correct it; --debug"
    )
    assert text in result.output.replace("  ", " ")
    assert "Traceback" in run(*command, f"{file}:{name}", "--input", "float32[3]", "--debug").output


@pytest.mark.parametrize(("text", "error"), [
    ("def f(x:\n", "SyntaxError: '(' was never closed"), ("import no_such_module_\n", "ModuleNotFoundError: No module named"),
    ("raise SystemExit(3)\n", "SystemExit: 3"),
])  # fmt: skip
def test_an_error_of_the_file_is_one_message(run: Run, tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "failing.py"
    file.write_text(text, encoding="utf-8")
    result = run("explain", f"{file}:f")
    assert result.exit_code == 1
    assert f"error: {file} runs without an error\nReceived: {error}" in result.output
