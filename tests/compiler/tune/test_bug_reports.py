"""Reports of barred variants: what they say, and how many are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firebrick.compiler.tune import bug_reports
from firebrick.compiler.tune.variant import KernelProblem

PROBLEM = KernelProblem("Contract", "structure", (3, 4), "a device\nwith a driver", 2, "matmul float32[3,4]")


def test_a_report_has_all_of_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_reports, "folder", lambda: tmp_path / "reports")
    path = bug_reports.write_report(PROBLEM, "mr=6 nr/32", "other bits", "define void @f()")
    assert path == tmp_path / "reports" / f"{PROBLEM.id}-mr=6_nr_32.txt"
    _, *lines = path.read_text().splitlines()
    assert lines == [
        "problem: matmul float32[3,4]", "variant: mr=6 nr/32", "reason: other bits", "threads: 2", "sizes: (3, 4)", "device:",
        "a device", "with a driver", "", "define void @f()",
    ]  # fmt: skip


def test_the_latest_reports_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bug_reports, "folder", lambda: tmp_path)
    for k in range(bug_reports.MOST + 3):
        path = bug_reports.write_report(PROBLEM, f"variant-{k}", "other bits", "")
        assert path is not None
        os.utime(path, (1000 + k, 1000 + k))
    left = {p.name.removeprefix(f"{PROBLEM.id}-variant-") for p in tmp_path.glob("*.txt")}
    assert left == {f"{k}.txt" for k in range(3, bug_reports.MOST + 3)}


def test_nothing_is_written_without_a_folder_or_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for home in (None, tmp_path / "file"):
        monkeypatch.setattr(bug_reports, "folder", lambda home=home: home)
        assert bug_reports.write_report(PROBLEM, "v", "other bits", "") is None
