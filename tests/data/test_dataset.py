"""Data sets refuse what would pick other samples than meant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import ArrayDataset, LoaderError, Subset
from firebrick.data.assembly import Assembly, Job, Maker
from firebrick.data.dataset import works_by_rows
from firebrick.data.owning import owned


def test_a_mask_is_no_list_of_sample_numbers() -> None:
    with pytest.raises(LoaderError, match=r"np.flatnonzero"):
        Subset(ArrayDataset(np.arange(3)), [True, False, True])
    assert Subset(ArrayDataset(np.arange(3)), []).indices.size == 0


def test_rows_by_themselves_are_those_of_the_class_that_writes_the_method() -> None:
    class Other(ArrayDataset):
        def fetch(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
            return super().fetch(indices[::-1])

    class Again(Other):
        by_rows = True

    class Unrelated(ArrayDataset):
        def __len__(self) -> int:
            return 1

    data = np.arange(3)
    assert [works_by_rows(kind(data), "fetch") for kind in (ArrayDataset, Other, Again, Unrelated)] == [True, False, True, True]
    own = ArrayDataset(data)
    own.by_rows = False
    assert not works_by_rows(own, "fetch")
    assert not works_by_rows(object(), "fetch")
    assert [Subset(kind(data), [0]).by_rows for kind in (ArrayDataset, Other)] == [True, False]
    assert Subset(ArrayDataset(data), np.array([2, 0], np.uint8))[1] == (0,)
    assert not hasattr(Subset([1, 2, 3], [0]), "fetch")  # type: ignore[arg-type]
    assert not hasattr(Subset([1, 2, 3], [0]), "fingerprint")  # type: ignore[arg-type]


def test_an_owned_sample_holds_nothing_that_the_data_set_may_change_later() -> None:
    class Point(NamedTuple):
        x: np.ndarray
        y: float

    array, label = np.zeros(2), fb.ones(2)
    sample = {"a": array, "b": [array, (array, 3)], "c": Point(array, 2.0), "d": label, "e": "text", "f": np.float32(1)}
    kept = owned(sample)
    array += 7
    assert kept["a"].tolist() == kept["b"][0].tolist() == kept["b"][1][0].tolist() == kept["c"].x.tolist() == [0.0, 0.0]
    assert (kept["b"][1][1], kept["c"].y, kept["e"], kept["f"]) == (3, 2.0, "text", 1.0)
    assert (type(kept["b"]), type(kept["b"][1]), type(kept["c"])) == (list, tuple, Point)
    assert kept["d"] is not label
    assert kept["d"].tolist() == [1.0, 1.0]
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    assert owned(masked) is not masked
    assert type(owned(masked)) is type(masked)


def test_a_part_without_rows_asks_nothing_of_the_data_set() -> None:
    class Asked(ArrayDataset):
        def fetch(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
            raise AssertionError("it was asked for nothing")

    none = np.arange(0)
    job = Job(0, none, none, np.empty((0, 0), np.uint32), 0, 0, 0)
    made = Maker(Assembly("train", Asked(np.arange(3)), None, None, (), None))(job)
    assert (made.arrays, made.rows) == ([], 0)
