"""Data sets refuse what would pick other samples than meant."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.data import ArrayDataset, LoaderError, Subset


def test_a_mask_is_no_list_of_sample_numbers() -> None:
    with pytest.raises(LoaderError, match=r"np.flatnonzero"):
        Subset(ArrayDataset(np.arange(3)), [True, False, True])
    assert Subset(ArrayDataset(np.arange(3)), []).indices.size == 0
