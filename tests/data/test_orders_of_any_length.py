"""Shuffled orders, splits and cursors at the lengths where their computation changes, and far beyond what fits into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firebrick.data import DataLoader, Dataset, holdout, random_split
from firebrick.data.order import Permutation

AROUND = (65535, 65536, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1)  # powers of 2, and where positions are computed singly


class Rows(Dataset):
    """The numbers below n as samples, a batch at a time."""

    by_rows = True

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return np.int64(i)

    def fetch(self, indices: Any) -> Any:
        return np.asarray(indices)


def every(parts: list[Any]) -> Any:
    """The samples of all parts, in order."""
    return np.sort(np.concatenate([batch.numpy() for part in parts for batch in DataLoader(part, 50_000)]))


def permutes(n: int, seed: int, epoch: int) -> None:
    found = Permutation(seed, epoch, n)(np.arange(n))
    assert len(found) == n
    assert np.array_equal(np.bincount(found, minlength=n), np.ones(n))


@pytest.mark.parametrize("n", AROUND[:3])
def test_a_permutation_has_each_index_once(n: int) -> None:
    for seed in (0, 2**64 - 1):
        permutes(n, seed, 1)


@pytest.mark.soak
@pytest.mark.parametrize("n", AROUND)
@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_a_permutation_has_each_index_once_in_every_epoch(n: int, seed: int) -> None:
    for epoch in (0, 1, 1_000_000):
        permutes(n, seed, epoch)


@pytest.mark.parametrize("n", [10**9, 2**40, 2**62])
def test_a_shuffled_epoch_of_any_length_starts_and_resumes(n: int) -> None:
    loader = DataLoader(Rows(n), 256, shuffle=True)
    batches = iter(loader)
    head = np.concatenate([next(batches).numpy() for _ in range(20)])
    assert len(set(head.tolist())) == len(head)
    assert head.min() >= 0
    assert head.max() < n
    assert head.max() > n // 2  # they come from anywhere
    cursor, following = loader.cursor(), next(batches).numpy()
    again = DataLoader(Rows(n), 256, shuffle=True)
    again.load_cursor(cursor)
    assert np.array_equal(next(iter(again)).numpy(), following)


def parted(n: int) -> None:
    thirds = random_split(Rows(n), [n // 2, 1, n - n // 2 - 1], seed=5)
    assert np.array_equal(every(thirds), np.arange(n))
    assert np.array_equal(every(list(holdout(Rows(n), 0.3))), np.arange(n))


@pytest.mark.parametrize("n", AROUND[:3])
def test_parts_of_a_data_set_hold_each_sample_once(n: int) -> None:
    parted(n)


@pytest.mark.soak
@pytest.mark.parametrize("n", AROUND[3:])
def test_parts_of_a_long_data_set_hold_each_sample_once(n: int) -> None:
    parted(n)


def test_parts_that_share_a_sample_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Permutation, "__call__", lambda self, places: np.asarray(places) // 2)
    with pytest.raises(AssertionError):
        parted(65537)
