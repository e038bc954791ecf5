"""A run that is ended by ``kill -9``, wherever it is, goes on to the bits of one that was never ended."""

import json
import os
from pathlib import Path
from typing import Any

import forked
import pytest

from firebrick.train.writing import STEPS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="lives are forks")
LIVES = Path(__file__).with_name("lives.py")
SHARED = Path(__file__).parents[1] / "shared"


def lives(place: str, folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """What became of each run of ``lives.py``."""
    needs = ("torch",) if place.startswith("torch") else ()
    done = forked.run(LIVES, place, str(folder), *map(str, arguments), cwd=folder, paths=[SHARED], needs=needs, timeout=3600)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_run_killed_at_every_boundary_of_a_write_loses_no_checkpoint_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    (run,) = lives("numpy", tmp_path, "none")
    assert (run["ended"], run["other"]) == (0, [])
    assert run["steps"] == sorted(run["steps"])  # each time the one before is there, or the new one
    assert run["steps"][-1] > run["steps"][0]
    for step in STEPS:
        for when in ("before", "after"):
            assert any(death.startswith(f"io {when} {step} ") for death in run["deaths"]), f"{when} {step}"
    assert sum("amid" in death for death in run["deaths"]) == 5  # half of each file


def test_a_write_that_takes_the_old_checkpoint_away_first_is_found_out(tmp_path: Path) -> None:
    (run,) = lives("numpy", tmp_path, "no old")
    assert run["deaths"][-1] == "io after rename old checkpoint"
    assert run["steps"][-1] == -1


def test_a_run_that_forgets_its_place_in_the_data_is_found_out(tmp_path: Path) -> None:
    runs = lives("numpy", tmp_path, "no cursor", 2, 5)
    assert any({"weights", "order"} <= set(run["other"]) for run in runs)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "seed"), [("cpu", 6), ("torch:cpu", 7), ("cpu+workers", 8), ("cpu:0,numpy:0", 9)])
def test_a_run_killed_at_four_moments_ends_with_the_same_bits(tmp_path: Path, place: str, seed: int) -> None:
    if place.startswith("torch"):
        pytest.importorskip("torch")
    runs = lives(place, tmp_path, "none", seed, 4)
    assert sum(len(run["deaths"]) for run in runs) == 4
    assert [(run["ended"], run["other"]) for run in runs] == [(0, [])] * len(runs)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["cpu", "torch:cpu", "cpu+workers", "cpu:0,numpy:0"])
def test_a_run_killed_at_two_hundred_moments_ends_with_the_same_bits(tmp_path: Path, place: str) -> None:
    if place.startswith("torch"):
        pytest.importorskip("torch")
    runs = lives(place, tmp_path, "none", 0, 200)
    assert sum(len(run["deaths"]) for run in runs) == 200
    assert [(run["ended"], run["other"]) for run in runs] == [(0, [])] * len(runs)
