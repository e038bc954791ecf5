"""What a loss divides by is found out from labels that no batch holds, and roundings are not taken for a difference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.train.divisor import apart, with_other_labels

NARROW, WIDE = {fb.float32}, {fb.float32, fb.bfloat16}


@pytest.mark.parametrize(
    ("whole", "first", "last", "share", "dtypes", "found"),
    [
        (1.5, 1.0, 2.0, 0.5, NARROW, None),
        (1.75, 1.0, 2.0, 0.25, NARROW, None),
        (1.25, 1.0, 2.0, 0.25, NARROW, 1.75),
        (-1.25, -1.0, -2.0, 0.25, NARROW, -1.75),
        (1.0, 1.0003, 1.0003, 0.5, NARROW, None),  # √eps of float32 is 3.5e-4
        (1.0, 1.0004, 1.0004, 0.5, NARROW, 1.0004),
        (-1.0, -1.0003, -1.0003, 0.5, NARROW, None),
        (0.0, 1000.0, -1000.3, 0.5, NARROW, None),  # of the largest of the three
        (0.0, -1000.0, 1000.3, 0.5, NARROW, None),
        (0.0, 1000.0, -1001.0, 0.5, NARROW, -0.5),
        (0.0, 1.5e-6, 1.5e-6, 0.5, NARROW, None),  # 16 eps of float32 is 1.9e-6
        (0.0, 2.5e-6, 2.5e-6, 0.5, NARROW, 2.5e-6),
        (1.0, 1.2, 1.2, 0.5, WIDE, None),  # 16 eps of bfloat16 is 1/8, and there are two of them
        (1.0, 1.5, 1.5, 0.5, WIDE, 1.5),
        (math.nan, 1.0, 1.0, 0.5, NARROW, None),
        (math.inf, 1.0, 1.0, 0.5, NARROW, None),
        (math.nan, math.nan, 1.0, 0.5, NARROW, None),
    ],
)
def test_two_parts_differ_from_the_whole_by_more_than_roundings(
    whole: float, first: float, last: float, share: float, dtypes: set[Any], found: float | None
) -> None:
    got = apart(whole, first, last, share, dtypes)
    assert got == (None if found is None else pytest.approx(found, rel=1e-12))


def test_a_part_in_which_no_label_counts_differs_from_a_whole_that_is_finite() -> None:
    got = apart(1.0, math.nan, 1.0, 0.5, NARROW)
    assert got is not None
    assert math.isnan(got)


def scores(rows: int = 6, classes: int = 3, **options: Any) -> fb.Tensor:
    return fb.zeros((rows, classes), **options)


def labels(rows: int = 6, dtype: str = "int64") -> fb.Tensor:
    return fb.asarray(np.arange(rows) % 3, dtype=dtype)


def weighted(output: Any, target: Any) -> Any:
    """Divides by the weights of the labels."""
    return fb.cross_entropy(output, target, weight=fb.asarray([1.0, 2.0, 3.0]))


def ignoring(mark: int) -> Any:
    def loss(output: Any, target: Any) -> Any:
        counted = fb.astype(fb.not_equal(target, mark), fb.float32)
        own = fb.cross_entropy(output, fb.where(fb.not_equal(target, mark), target, 0), reduction="none")
        return fb.sum(own * counted) / fb.sum(counted)

    return loss


def of_probabilities(output: Any, target: Any) -> Any:
    if bool(fb.any(output < 0.0)):
        raise fb.ConfigError("probabilities are ≥ 0", "others", "pass them")
    own = fb.cross_entropy(output, target, reduction="none") + fb.astype(target, fb.float32)
    return fb.sum(own * fb.astype(target, fb.float32)) / fb.sum(fb.astype(target, fb.float32))


@pytest.mark.parametrize(
    ("loss", "output", "target"),
    [
        (weighted, scores(), labels()),
        (weighted, scores(), labels() * 0),
        (weighted, scores(2), labels(2)),
        (weighted, scores(7), labels(7)),
        (ignoring(-100), scores(), labels()),
        (ignoring(-1), scores(), labels()),
        (ignoring(0), scores(), labels() + 0),
        (of_probabilities, scores() + 0.25, labels()),
        (lambda output, target: ignoring(255)(output, fb.astype(target, fb.int64)), scores(6, 300), labels(dtype="uint8")),
    ],
)
def test_a_loss_that_divides_by_labels_is_found_whatever_the_batch_holds(loss: Any, output: Any, target: Any) -> None:
    found = with_other_labels(loss, output, target, {fb.float32})
    assert found is not None
    whole, joined = found
    assert math.isfinite(whole)
    assert whole != pytest.approx(joined, rel=1e-3)


@pytest.mark.parametrize(
    ("output", "target"),
    [
        (scores(1), labels(1)),
        (scores(), fb.astype(labels(), fb.float32)),
        ([scores()], labels()),
        (fb.zeros((6, 3), dtype="int64"), labels()),
        (scores(5), labels()),
        (fb.zeros(()), labels()),
        (scores(), fb.asarray(1)),
        (fb.zeros((6, 3)), fb.zeros((6, 0), dtype="int64")),
    ],
)
def test_what_holds_no_classes_of_rows_is_not_looked_at(output: Any, target: Any) -> None:
    def loss(output: Any, target: Any) -> Any:
        raise AssertionError("it is not called")

    assert with_other_labels(loss, output, target, {fb.float32}) is None


def test_a_mean_over_rows_passes_with_every_class_in_turn_and_labels_that_it_refuses_are_left_out() -> None:
    seen: set[tuple[int, ...]] = set()

    def loss(output: Any, target: Any) -> Any:
        if target.shape[0] == 6:
            seen.add(tuple(target.tolist()))
        return fb.cross_entropy(output, target)  # refuses what is no class

    assert with_other_labels(loss, scores(6, 7), labels(), {fb.float32}) is None
    own = (0, 1, 2)
    assert seen == {(*first, *own) for first in ((0, 1, 2), (3, 4, 5), (6, 0, 1), (-100,) * 3, (-1,) * 3, (255,) * 3, (0,) * 3)}
