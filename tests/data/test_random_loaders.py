"""Loaders of random settings: every sample once in each epoch, in one order for any workers, resumes, splits and slices."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from firebrick.data import (
    BucketSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetSampler,
    holdout,
    random_split,
)

SMALL = (1, 2, 3, 4, 5, 7, 13, 31, 64, 97, 127, 500)
LARGE = (65535, 65536, 65537, 65539, (1 << 17) + 1)  # around the length from which the order is computed by position
SEEDS = (0, 1, 2**63, 2**64 - 1)


class One(Dataset):
    """The numbers below n as samples, one at a time."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        assert 0 <= i < self.n
        return np.int64(i)


class Rows(One):
    """The same, a batch at a time."""

    by_rows = True

    def fetch(self, indices: Any) -> Any:
        assert np.all((indices >= 0) & (indices < self.n))
        return np.asarray(indices, np.int64)


class Stream(IterableDataset):
    """The same, in order."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        return iter(np.arange(self.n))


def samples(batch: Any) -> Any:
    return np.atleast_1d((batch[0] if isinstance(batch, tuple) else batch).numpy())


def epoch(loader: Any) -> Any:
    """The samples of one epoch."""
    return np.concatenate([np.empty(0, np.int64), *map(samples, loader)])


@dataclass
class Drawn:
    """A data set with the samples that it has, and settings of a loader of it."""

    r: random.Random
    n: int
    size: int
    dataset: Any = None
    has: Any = None
    settings: dict[str, Any] = field(default_factory=dict)

    def loader(self, size: int = 0, workers: int = 0) -> Any:
        threads = {"num_workers": workers, "worker": "thread"} if workers else {}
        return DataLoader(self.dataset, size or self.size, **self.settings, **threads)


def subset(d: Drawn, base: Any) -> None:
    d.has = np.asarray([d.r.randrange(d.n) for _ in range(d.r.randint(1, d.n if d.n < 1000 else 9))])
    d.dataset = Subset(base, d.r.choice((d.has, d.has.tolist())))


def split(d: Drawn, base: Any) -> None:
    """One part of a split, whose parts hold each sample once."""
    cuts = sorted(d.r.sample(range(1, d.n), d.r.randint(0, min(3, d.n - 1)))) if d.n > 1 else []
    lengths = [b - a for a, b in zip([0, *cuts], [*cuts, d.n], strict=True)]
    parts = random_split(base, lengths, seed=d.n)
    held = [epoch(DataLoader(part, d.size)) for part in parts]
    assert [len(one) for one in held] == lengths
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(d.n))
    which = d.r.randrange(len(parts))
    d.dataset, d.has = parts[which], held[which]
    if len(d.has) > 1:
        halves = random_split(d.dataset, [1, len(d.has) - 1], seed=3)
        again = np.concatenate([epoch(DataLoader(half, d.size)) for half in halves])
        assert np.array_equal(np.sort(again), np.sort(d.has))


def held_out(d: Drawn, base: Any) -> None:
    kept, out = holdout(base, d.r.choice((0.25, 0.5)), seed=d.n)
    held = [epoch(DataLoader(part, d.size)) for part in (kept, out)]
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(d.n))
    d.dataset, d.has = out, held[1]


def stream(d: Drawn, _: Any) -> None:
    d.dataset, d.has = Stream(d.n), np.arange(d.n)
    if buffer := d.r.choice((0, 1, 2, 5, d.n, d.n + 5)):
        d.dataset = d.dataset.shuffled(buffer, seed=d.n)


def whole(d: Drawn, base: Any) -> None:
    d.dataset, d.has = base, np.arange(d.n)


KINDS = {"whole": whole, "subset": subset, "split": split, "held out": held_out, "stream": stream}


def order(d: Drawn) -> dict[str, Any]:
    """Settings of the order of samples."""
    m = len(d.has)
    samplers = (
        lambda: RandomSampler(m), lambda: SequentialSampler(m), lambda: SubsetSampler(range(m)),
        lambda: BucketSampler([i % 7 + 1 for i in range(m)], d.size),
    )  # fmt: skip
    chosen = d.r.random()
    how: dict[str, Any] = {"shuffle": True} if chosen < 0.5 else {}
    if 0.5 <= chosen < 0.65:
        how = {"sampler": d.r.choice(samplers)()}
    return {**how, "seed": d.r.choice(SEEDS)}


def draw(seed: int) -> tuple[Drawn, str]:
    r = random.Random(seed)
    n = r.choice(LARGE) if r.random() < 0.03 else r.choice(SMALL)
    d = Drawn(r, n, r.choice((1, 2, 3, 5, 7, 16, n, n + 3)) if n < 1000 else r.choice((4096, 5000, n // 3)))
    kind = r.choice([k for k in KINDS if n > 3 or k != "held out"])
    KINDS[kind](d, r.choice((One, Rows))(n) if n < 1000 else Rows(n))
    d.settings = {} if kind == "stream" else order(d)
    d.settings["drop_last"] = r.random() < 0.2 and len(d.has) >= d.size
    return d, kind


def resumed(d: Drawn, first: Any, second: Any) -> None:
    """A loader that goes on from the cursor of another, with other workers and batches, gives the rest."""
    before = d.loader(workers=d.r.choice((0, 2)))
    batches = iter(before)
    done = d.r.randint(0, math.ceil(len(first) / d.size))
    head = [samples(batch) for _, batch in zip(range(done), batches, strict=False)]
    cursor = before.cursor()
    batches.close()
    after = d.loader(d.size if d.settings["drop_last"] else d.r.choice((d.size, d.size + 1)), d.r.choice((0, 2)))
    after.load_cursor(cursor)
    got = np.concatenate([np.empty(0, np.int64), *head, epoch(after)])
    whole = np.concatenate([first, second]) if len(got) > len(first) else first  # a cursor at the end is the next epoch's start
    assert np.array_equal(got, whole)


def check(seed: int) -> None:
    d, kind = draw(seed)
    loader = d.loader()
    first, second = epoch(loader), epoch(loader)
    if not d.settings["drop_last"]:
        assert np.array_equal(np.sort(first), np.sort(d.has))
        assert np.array_equal(np.sort(second), np.sort(d.has))
    threads = d.loader(workers=d.r.randint(1, 3))
    assert np.array_equal(epoch(threads), first)
    assert np.array_equal(epoch(threads), second)
    resumed(d, first, second)
    pairs = list(zip(map(samples, d.loader()), map(samples, d.loader()), strict=True))  # two loaders by turns
    assert all(np.array_equal(a, b) for a, b in pairs)
    if kind == "stream" or d.settings["drop_last"] or "sampler" in d.settings:
        return
    count = d.r.randint(1, 4)
    if d.size >= count:
        shares = d.loader().split([f"cpu:{i}" for i in range(count)])
        assert np.array_equal(np.sort(np.concatenate([epoch(share) for share in shares])), np.sort(d.has))
    low, high = sorted((d.r.randint(0, len(d.has)), d.r.randint(0, len(d.has))))
    if low < high:
        assert np.array_equal(epoch(d.loader().slice(low, high)), first[low:high])


@pytest.mark.parametrize("seed", range(40))
def test_a_loader_of_random_settings_gives_every_sample_once_and_in_one_order(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(100))
def test_many_loaders_of_random_settings_give_every_sample_once(block: int) -> None:
    for seed in range(40 + 50 * block, 90 + 50 * block):
        check(seed)


def test_the_check_notices_a_sample_that_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "fetch", lambda self, indices: np.asarray(indices, np.int64) // 2)
    monkeypatch.setattr(One, "__getitem__", lambda self, i: np.int64(i // 2))
    failed = 0
    for seed in range(12):
        try:
            check(seed)
        except AssertionError:
            failed += 1
    assert failed >= 6
