"""The full product: cut into units that can be stopped, shared and gone on with, and never mixed with other code's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from firebrick.ops import OPS
from firebrick.testing import faults, soak
from firebrick.testing.soak import Outcome, Unit, main, units

# the ops with the fewest cases of those with one dtype and of those with gradients
ARGS = ["--device", "numpy", "--op", "logical_not", "--op", "rfft", "--jobs", "1"]


def soaked(tmp_path: Path, *more: str) -> Any:
    return CliRunner().invoke(main, [*ARGS, "--state", str(tmp_path / "state"), *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is done."""
    folder = tmp_path_factory.mktemp("finished")
    assert soaked(folder).exit_code == 0
    return folder


def test_units_cover_every_op_and_dtype_once() -> None:
    found = units(["numpy", "cpu"])
    assert len(found) == len(set(found))
    assert {(u.op, u.dtype) for u in found} == {(n, d) for n, op in OPS.items() for d in op.dtypes if n != "to_device"}
    assert {u.device for u in found} == {"numpy", "cpu"}


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Unit] = []
    right = soak.run_unit

    def some(unit: Unit, seed: int, folder: str) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(unit)
        return right(unit, seed, folder)

    monkeypatch.setattr(soak, "run_unit", some)
    assert soaked(tmp_path).exit_code != 0
    monkeypatch.setattr(soak, "run_unit", right)
    every = len(units(["numpy"], ["logical_not", "rfft"]))
    result = soaked(tmp_path)
    assert result.exit_code == 0, result.output
    assert f"2 done before, {every - 2} to do" in result.output
    assert f"{every} done before, 0 to do" in soaked(tmp_path).output


def test_shards_share_the_work_and_the_last_one_writes_the_figures(tmp_path: Path) -> None:
    goal = tmp_path / "accuracy.md"
    first = soaked(tmp_path, "--shard", "1/2", "--write", str(goal))
    assert "left to other shards" in first.output
    assert not goal.exists()
    assert soaked(tmp_path, "--shard", "2/2", "--write", str(goal)).exit_code == 0
    text = goal.read_text()
    assert "| rfft | " in text
    assert "| `numpy` |" in text
    cases = int(next(line for line in text.splitlines() if line.startswith("| `numpy`")).split("|")[2].replace(",", ""))
    assert cases == soaked_cases("logical_not") + soaked_cases("rfft")


def test_the_figures_take_the_place_of_older_ones_and_leave_the_rest_of_the_document(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.md"
    soak.write_part(path, "ops", "old figures")
    assert path.read_text().startswith("# Accuracy\n\n<!-- ops: generated, do not edit -->\n\nold figures\n")
    path.write_text(path.read_text() + "\n## By hand\nwords\n")
    soak.write_part(path, "programs", "eight of them")
    soak.write_part(path, "ops", "new figures")
    text = path.read_text()
    assert "old figures" not in text
    assert [text.count(w) for w in ("new figures", "eight of them", "## By hand\nwords\n", "<!-- end of ops -->")] == [1] * 4
    assert text.index("new figures") < text.index("## By hand") < text.index("eight of them")
    again = text
    soak.write_part(path, "ops", "new figures")
    assert path.read_text() == again


def soaked_cases(op: str) -> int:
    from firebrick.testing import cases

    return sum(1 for _ in cases("numpy", [op], subset="full"))


def test_outcomes_of_other_code_do_not_count(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(soak, "fingerprint", lambda seed: "other")
    assert " 0 done before" in soaked(tmp_path).output
    assert soak.fingerprint(0) == "other"
    monkeypatch.undo()
    assert soak.fingerprint(0) != soak.fingerprint(1)


@pytest.mark.parametrize("change", [{"failed": None}, {"cases": "12"}, {"op": "rfft"}, {"failures": None}])
def test_an_outcome_that_holds_something_else_is_done_again(finished: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    copytree(finished, tmp_path, dirs_exist_ok=True)
    (folder,) = (tmp_path / "state").iterdir()
    file = folder / "numpy.logical_not.bool.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    result = soaked(tmp_path)
    assert result.exit_code == 0, result.output
    assert "1 to do" in result.output


def test_a_file_for_the_figures_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    result = soaked(tmp_path, "--write", str(tmp_path / "none" / "accuracy.md"))
    assert result.exit_code == 2
    assert "must exist" in result.output
    assert not (tmp_path / "state").exists()


def test_a_damaged_outcome_is_done_again(finished: Path, tmp_path: Path) -> None:
    copytree(finished, tmp_path, dirs_exist_ok=True)
    (folder,) = (tmp_path / "state").iterdir()
    next(folder.iterdir()).write_text("{")
    assert "1 to do" in soaked(tmp_path).output


def test_failures_are_shown_and_fail_the_run(tmp_path: Path) -> None:
    goal = tmp_path / "accuracy.md"
    with faults.planted(faults.reads_zero("rfft")):
        what = ["--device", faults.ENGINE, "--op", "rfft", "--jobs", "1"]
        result = CliRunner().invoke(main, [*what, "--state", str(tmp_path), "--write", str(goal)])
    assert result.exit_code == 1
    assert f"FAILED {faults.ENGINE} rfft float32" in result.output
    assert "**failed**" in goal.read_text()


def test_a_run_says_what_it_does_what_failed_and_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(folder: Path, todo: list[Unit], seed: int, jobs: int) -> Iterator[Outcome]:
        for u in todo:
            bad = u.op == "rfft"
            yield Outcome(u.device, u.op, u.dtype, 1000, 2 * bad, 0.0, 0.0, 0.0, False, ["rfft: a case"] * bad)

    monkeypatch.setattr(soak, "run", ran)
    monkeypatch.setattr(soak, "perf_counter", count(100.0, 8.0).__next__)
    monkeypatch.setattr(soak, "engines", lambda: SimpleNamespace(usable=["numpy"], missing={"torch": "it is not installed"}))
    what = ["--op", "logical_not", "--op", "rfft", "--jobs", "1", "--state", str(tmp_path)]
    *lines, last = CliRunner().invoke(main, what).output.splitlines()
    assert lines == [
        "engine torch is not tested: it is not installed",
        "3 units, 0 done before, 3 to do in 1 processes",
        "FAILED numpy rfft float64: 2 of 1000",
        "  rfft: a case",
        "2 of 3 units, 24 s",
        "FAILED numpy rfft float32: 2 of 1000",
        "  rfft: a case",
    ]
    assert last.startswith("3,000 cases, 4 failed; ")


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1"])
def test_a_shard_is_i_of_n(tmp_path: Path, shard: str) -> None:
    result = soaked(tmp_path, "--shard", shard)
    assert result.exit_code == 2
    assert "such as 2/4" in result.output


def test_the_figures_are_those_of_each_engine_and_op_with_the_dtype_of_the_worst() -> None:
    def outcome(device: str, op: str, dtype: str, worst: float, slope: float = 0.0, **more: Any) -> soak.Outcome:
        settings = {"cases": 1000, "failed": 0, "seconds": 90.0, "fallback": False, **more}
        return soak.Outcome(device, op, dtype, worst=worst, worst_gradient=slope, **settings)

    text = soak.document(
        [
            outcome("numpy", "add", "float32", 0.5, 0.25),
            outcome("numpy", "add", "float64", 0.75),
            outcome("numpy", "add", "bfloat16", 9.0, cases=0),
            outcome("cpu", "add", "float32", 0.0, 1.5, cases=7, fallback=True),
            outcome("numpy", "sign", "float32", 0.0),
            outcome("numpy", "matmul", "float32", 1.0, failed=2, failures=["off by 3", "off by 4"]),
            outcome("cpu", "matmul", "float32", 1.0, 2.0, cases=3),
        ],
        seed=5,
    )
    lines = text.splitlines()
    engines = [line for line in lines if line.startswith(("| `numpy` | 4", "| `cpu` | 1"))]
    assert engines == ["| `numpy` | 4,000 | 2 | 3 | 2 | 7.5 min |", "| `cpu` | 10 | 0 | 2 | 1 | 3.0 min |"]
    assert "| op | k | `numpy` | gradient | `cpu` | gradient | gradient rule |" in lines
    assert lines.count("|---" * 7 + "|") == 1
    rows = [line for line in lines if line.startswith(("| add", "| sign", "| matmul"))]
    matmul, sign = OPS["matmul"], OPS["sign"]
    k = f"{matmul.tolerance:g}" + (
        f", complex {matmul.complex_tolerance:g}" if matmul.complex_tolerance != matmul.tolerance else ""
    )
    assert rows == [
        f"| add | {OPS['add'].tolerance:g} | 0.75 float64 | 0.25 float32 | exact* | 1.5 float32* | checked |",
        f"| sign | {sign.tolerance:g} | exact |  | none stored |  | {sign.vjp.reason} |",  # type: ignore[union-attr]
        f"| matmul | {k} | **failed** | **failed** | 1 float32 | 2 float32 | checked |",
    ]
    assert "- `numpy` matmul float32: 2 of 1000, such as off by 3" in lines
    assert "`make soak`, seed 5, Python " in text
    assert all(f"{n} (" in lines[-1] for n in soak.EXCLUDED)
    assert "Failures:" not in soak.document([outcome("numpy", "add", "float32", 0.5)], 0)
