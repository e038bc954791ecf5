"""Data sets refuse what would pick other samples than meant."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.data import ArrayDataset, LoaderError, Subset
from firebrick.data.dataset import works_by_rows


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
