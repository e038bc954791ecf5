"""Parts of a data set share no sample and hold all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import ArrayDataset, LoaderError, random_split


@pytest.mark.parametrize(
    ("count", "lengths", "expected"),
    [
        (10, [7, 3], [7, 3]),
        (10, [0.5, 0.5], [5, 5]),
        (11, [0.5, 0.5], [6, 5]),
        (10, [1 / 3, 1 / 3, 1 / 3], [4, 3, 3]),
        (3, [0.7, 0.1, 0.1, 0.1], [3, 0, 0, 0]),
        (1, [1], [1]),
        (5, [1.0], [5]),
        (5, [0, 5, 0], [0, 5, 0]),
        (0, [0.5, 0.5], [0, 0]),
        (7, [np.int64(3), np.int32(4)], [3, 4]),
        (1000, [0.1] * 10, [100] * 10),
    ],
)
def test_parts_have_their_lengths_and_all_samples_once(count: int, lengths: list[Any], expected: list[int]) -> None:
    parts = random_split(ArrayDataset(np.arange(count)), lengths, seed=3)
    assert [len(p) for p in parts] == expected
    samples = [
        int(s) for p in parts for i in range(len(p)) for s in np.atleast_1d(p[i][0] if isinstance(p[i], tuple) else p[i])
    ]
    assert sorted(samples) == list(range(count))
    assert all((np.diff(p.indices) > 0).all() for p in parts)


def test_the_seed_decides() -> None:
    data = ArrayDataset(np.arange(50))
    first, again, other = (random_split(data, [25, 25], seed=s)[0].indices.tolist() for s in (1, 1, 2))
    assert first == again != other
    assert first != list(range(25))


@pytest.mark.parametrize(
    "lengths", [[7, 4], [0.5, 0.4], [-1, 11], [1.5, -0.5], ["a"], [True], [0.5, float("nan")], [5.0, 5.0], [], [float("inf")]]
)
def test_lengths_that_do_not_add_up_are_refused(lengths: list[Any]) -> None:
    with pytest.raises(LoaderError, match="add up to 10, or fractions that add up to 1"):
        random_split(ArrayDataset(np.arange(10)), lengths)
    with pytest.raises(fb.ConfigError, match="seed"):
        random_split(ArrayDataset(np.arange(2)), [1, 1], seed=-1)
