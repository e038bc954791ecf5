"""Pinned compilations: what the compiler decides and prints for each chosen program is what was verified and recorded.

Nothing is compiled by LLVM or run here. ``PYTHONPATH=src:tests/shared python -m pinned --write`` runs what changed, compares
it with interpreters, and records it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pinned import records
from pinned.programs import lines_of

RECORDS = records.read()


@pytest.mark.parametrize("unit", RECORDS)
def test_a_pinned_program_is_compiled_as_it_was_when_it_was_verified(unit: str) -> None:
    before, after = RECORDS[unit][1], lines_of(unit)
    if before != after:
        pytest.fail(records.difference(unit, before, after), pytrace=False)


def test_records_are_small_and_in_order(tmp_path: Path) -> None:
    files = sorted(records.FOLDER.glob("*.txt"))
    assert sum(f.stat().st_size for f in files) < 400_000
    records.write(RECORDS, tmp_path)
    for f in files:
        assert (tmp_path / f.name).read_text() == f.read_text(), f.name


def test_a_change_of_a_decision_is_reported_with_both_lines_and_what_to_do() -> None:
    text = records.difference("map:1 @ avx2", ["program", "a grid 3"], ["program", "a grid 4"])
    assert "-a grid 3\n+a grid 4\n" in text
    assert "-m pinned --show 'map:1 @ avx2'" in text
    assert "-m pinned --write" in text
