"""Parts of a data set share no sample and hold all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import (
    ArrayDataset,
    LoaderError,
    SharedRowsWarning,
    Subset,
    TokenWindows,
    WindowDataset,
    holdout,
    random_split,
)


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


@pytest.mark.parametrize("split", [lambda data: holdout(data, 0.25), lambda data: random_split(data, [0.5, 0.5])])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (WindowDataset(np.zeros((20, 1)), 3, 2), "a sample has rows in common with the next 4"),
        (WindowDataset(np.zeros((20, 1)), 1, 1), "a sample has rows in common with the next 1"),
        (TokenWindows(np.arange(50), 7, 3), "a sample has rows in common with the next 2"),
        (Subset(WindowDataset(np.zeros((20, 1)), 3, 2), range(0, 16, 4)), "a sample has rows in common with the next 4"),
        (Subset(Subset(ArrayDataset(np.arange(6)), [5, 3, 1]), [0, 1, 0]), "samples occur several times"),
        (Subset(TokenWindows(np.arange(50), 4), [0, 1, 1]), "samples occur several times"),
    ],
)
def test_parts_that_would_share_rows_are_warned_of(split: Any, data: Any, reason: str) -> None:
    with pytest.warns(SharedRowsWarning, match=reason) as caught:
        split(data)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "data",
    [
        TokenWindows(np.arange(50), 4),
        TokenWindows(np.arange(50), 4, 9),
        Subset(WindowDataset(np.zeros((20, 1)), 3, 2), range(0, 16, 5)),
        Subset(Subset(WindowDataset(np.zeros((20, 1)), 3, 2), [15, 0, 7]), [2, 0, 1]),
        ArrayDataset(np.arange(6)),
        Subset(ArrayDataset(np.arange(6)), [5, 3, 1]),
        Subset(ArrayDataset(np.arange(6)), range(4)),
    ],
)
def test_parts_without_rows_in_common_are_made_without_a_word(data: Any) -> None:
    assert sum(map(len, holdout(data, 0.5))) == len(data)
