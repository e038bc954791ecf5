"""The first results of programs are timed in processes of their own, without and with what the first one compiled."""

from __future__ import annotations

from pathlib import Path

from benchmarks import compiling


def test_a_program_is_compiled_once_and_read_from_the_cache_then(tmp_path: Path) -> None:
    assert compiling.seconds("firebrick", "tensors", 2, str(tmp_path)) > 0.0
    kept = sorted((tmp_path / "objects").iterdir())
    assert kept
    assert compiling.seconds("firebrick", "tensors", 2, str(tmp_path)) > 0.0
    assert sorted((tmp_path / "objects").iterdir()) == kept


def test_the_training_step_that_is_compiled_learns() -> None:
    run = compiling.firebrick("layers", 1)
    assert run() > run() > run()


def test_rows_of_the_table_are_medians_and_say_what_is_missing() -> None:
    found = {("layers", 2, "firebrick", "cold"): [3.0, 1.0, 2.0], ("layers", 2, "firebrick", "cached"): [0.5]}
    assert compiling.table(found, ["firebrick", "jax.jit"])[-1] == "| 2 layers | 2.00 s | 0.50 s | - | - |"
