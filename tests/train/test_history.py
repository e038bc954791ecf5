"""An epoch's row: which one is best, what waits for it, and the files that rows are kept in."""

import csv
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from firebrick.train import Epoch, TrainingError, history


def row(epoch: int = 1, loss: float = 1.0, accuracy: Any = None, valid: Any = None, right: Any = None, **errors: Any) -> Epoch:
    return Epoch(epoch, 9 * epoch, loss, accuracy, valid, right, 1e-3, 100.0, 2.0, **errors)


def test_the_best_epoch_has_the_highest_accuracy_then_the_lowest_loss_of_the_validation_if_there_is_one() -> None:
    validated = [
        row(valid=v, right=r) for r, v in ((None, math.nan), (None, 2.0), (None, 1.0), (0.1, 3.0), (0.1, 2.0), (0.2, 9.0))
    ]
    alone = [
        row(loss=v, accuracy=r) for r, v in ((None, math.nan), (None, 2.0), (None, 1.0), (0.1, 3.0), (0.1, 2.0), (0.2, 9.0))
    ]
    for rows in (validated, alone):
        for worse, better in pairwise(rows):
            assert better.better_than(worse)
            assert not worse.better_than(better)
        assert all(r.better_than(None) for r in rows)
        assert not any(r.better_than(r) for r in rows)
    # training is not asked where there is a validation
    assert not row(loss=0.0, accuracy=1.0, valid=2.0, right=0.5).better_than(row(loss=9.0, accuracy=0.0, valid=1.0, right=0.5))


@pytest.mark.parametrize(("mode", "trained", "both"), [("min", 0.5, 0.25), ("max", 0.75, 0.875)])
def test_plateaus_are_shown_the_metric_of_the_validation_if_there_is_one(mode: str, trained: float, both: float) -> None:
    seen: list[float] = []

    class Plateau:
        def observe(self, metric: float) -> None:
            seen.append(metric)

    class Optimizer:
        def plateaus(self) -> list[Any]:
            found = Plateau()
            found.mode = mode  # type: ignore[attr-defined]
            return [found]

    row(loss=0.5, accuracy=0.75).show_to(Optimizer())
    row(loss=0.5, accuracy=0.75, valid=0.25, right=0.875).show_to(Optimizer())
    assert seen == [trained, both]
    row().show_to(object())  # an optimizer of one's own
    if mode == "max":
        with pytest.raises(TrainingError, match='use mode="min"'):
            row(accuracy=0.5, valid=1.0).show_to(Optimizer())


def test_a_number_is_found_by_its_name() -> None:
    found = row(3, 0.5, 0.25, metrics={"train_f1": 0.75, "valid_f1": None})
    assert [found.value(n) for n in ("epoch", "train_loss", "train_accuracy", "valid_loss")] == [3, 0.5, 0.25, None]
    assert (found.value("train_f1"), found.value("valid_f1"), found.value("valid_auroc")) == (0.75, None, None)
    with pytest.raises(TrainingError) as caught:
        found.value("f1")
    assert (caught.value.received, caught.value.remedy) == ("'f1'", f"name one of {', '.join(found.values())}")


def test_a_file_that_gets_new_columns_is_written_anew(tmp_path: Path) -> None:
    rows = [row(1), row(2, metrics={"train_f1": 0.5})]
    for count in (1, 2):
        history.append(tmp_path, rows[:count])
    header, *lines = csv.reader((tmp_path / "metrics.csv").read_text().splitlines())
    assert header[-1] == "train_f1"
    assert [line[-1] for line in lines] == ["", "0.5"]


def test_files_hold_the_columns_of_classes_or_of_numbers_and_the_same_whether_added_or_rewritten(tmp_path: Path) -> None:
    of_classes = [row(1, 0.5, 0.25, math.inf, None), row(2, math.nan, 0.5, 1.0, 0.75)]
    of_numbers = [
        row(1, 0.5, train_mse=0.5, train_mae=0.25),
        row(2, 0.5, None, 1.0, None, train_mse=1.0, train_mae=2.0, valid_mse=3.0),
    ]
    shared = ["learning_rate", "samples_per_second", "seconds"]
    names = {
        "classes": ["epoch", "step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy", *shared],
        "numbers": ["epoch", "step", "train_loss", "valid_loss", *shared, "train_mse", "train_mae", "valid_mse", "valid_mae"],
    }
    for kind, rows in (("classes", of_classes), ("numbers", of_numbers)):
        added, whole = tmp_path / f"{kind} added", tmp_path / f"{kind} whole"
        added.mkdir()
        whole.mkdir()
        for count in range(1, len(rows) + 1):
            history.append(added, rows[:count])
        (whole / ".metrics.csv.new").write_text("what a crash left")
        history.rewrite(whole, rows)
        for name in ("metrics.csv", "metrics.jsonl"):
            assert (added / name).read_bytes() == (whole / name).read_bytes()
        assert sorted(f.name for f in whole.iterdir()) == ["metrics.csv", "metrics.jsonl"]
        found = list(csv.reader((added / "metrics.csv").read_bytes().decode().split("\r\n")))
        assert found[0] == names[kind]
        values = [[getattr(r, n) for n in names[kind]] for r in rows]
        assert found[1:3] == [["" if v is None else str(v) for v in line] for line in values]
        lines = [json.loads(line) for line in (added / "metrics.jsonl").read_text().splitlines()]
        finite = [[v if v is None or math.isfinite(v) else None for v in line] for line in values]
        assert [list(line) for line in lines] == [names[kind]] * 2
        assert [list(line.values()) for line in lines] == finite
        history.rewrite(whole, [])
        history.rewrite(whole, [])
        assert list(whole.iterdir()) == []
