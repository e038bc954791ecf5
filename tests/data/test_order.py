"""The order of an epoch is a permutation, looks random, takes constant memory, and is the same however it is entered."""

import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from combinations import turns_of

from firebrick.data import (
    ArrayDataset,
    BucketSampler,
    DataLoader,
    LoaderError,
    RandomHorizontalFlip,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetSampler,
    WeightedSampler,
    holdout,
    order,
    permutation,
    random_split,
)
from firebrick.data.identity import digest_of
from firebrick.data.listed import Computed, digest, ranged
from firebrick.data.order import BLOCK, SORTED, Permutation, keys, keys_at, words_at
from firebrick.data.positions import Positions, Shard, Slice

Array = np.ndarray[Any, Any]
LONG = SORTED + 4321  # computed by position


class Lazy:
    """Samples that are their own numbers, and take no memory."""

    by_rows = True

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return np.int64(index)

    def fetch(self, indices: Array) -> Array:
        return indices.copy()


def keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute every permutation by position, also those that are sorted otherwise."""
    monkeypatch.setattr(order, "SORTED", 1)


# it is a permutation


@pytest.mark.parametrize("by_position", [False, True])
def test_it_is_a_permutation_of_any_number_of_samples(by_position: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if by_position:
        keyed(monkeypatch)
    for count in range(301):
        for seed in range(20):
            assert (np.sort(permutation(seed, 0, count)) == np.arange(count)).all(), (count, seed)


def test_it_is_a_permutation_of_many_samples() -> None:
    for i, count in enumerate([SORTED - 1, SORTED, SORTED + 1, 257**2, 257**2 + 1, *map(int, keys(0, 0, 0, 6) % 900_000)]):
        assert (np.sort(permutation(i, i, count)) == np.arange(count)).all(), count


@pytest.mark.parametrize("count", [10**9, 2**40 + 1, 2**62 - 57, 2**63 - 1])
def test_numbers_of_huge_orders_are_in_range_and_differ(count: int) -> None:
    drawn = Permutation(3, 1, count)(np.append(np.arange(50_000), count - 1))
    assert len(np.unique(drawn)) == 50_001
    assert drawn.min() >= 0
    assert drawn.max() < count
    assert drawn.max() > 0.99 * count


def test_the_permutation_by_position_is_pinned_so_that_runs_can_be_repeated_years_later() -> None:
    assert Permutation(0, 0, 10**6)(np.arange(4)).tolist() == PINNED[0]
    assert Permutation((3 << 32) | 5, 7, 10**9)(np.array([0, 10**9 - 1])).tolist() == PINNED[1]


PINNED = ([486181, 3053, 124217, 657441], [405065241, 80097730])


# it looks random

SIZES = (2, 3, 5, 100, 1023, 1025, SORTED + 1, 10**6)


def deviations(drawn: Array, count: int) -> dict[str, float]:
    """How far statistics of orders (int64 [orders, positions]) are from those of fair ones, in standard deviations."""
    orders, length = drawn.shape
    bins = min(count, 64)
    edges = np.arange(bins + 1) * count // bins
    chances = np.diff(edges) / count
    binned = np.searchsorted(edges, drawn, side="right") - 1
    found: dict[str, float] = {}
    at = min(length, 8)
    for position in range(at):  # where samples are seen at one position of many orders
        counts = np.bincount(binned[:, position], minlength=bins)
        chi = ((counts - orders * chances) ** 2 / (orders * chances)).sum()
        found[f"position {position}"] = (chi - (bins - 1)) / np.sqrt(2 * (bins - 1))
    fixed = (drawn == np.arange(length)).sum()
    found["fixed points"] = (fixed - orders * length / count) / np.sqrt(max(orders * length / count, 1))
    if count >= 100:
        x = drawn / count - 0.5
        pairs = (x[:, :-1] * x[:, 1:]).sum() + orders * (length - 1) / (12 * count)  # without replacement: -1/(12 n) each
        found["consecutive"] = pairs / np.sqrt(orders * (length - 1) / 144)
        steps = (drawn[:, 1:] - drawn[:, :-1]) % count - 1  # 0 … count-2, each alike
        counts = np.bincount((steps * 32 // (count - 1)).ravel(), minlength=32)
        even = steps.size * np.bincount(np.arange(count - 1) * 32 // (count - 1)) / (count - 1)
        found["steps"] = (((counts - even) ** 2 / even).sum() - 31) / np.sqrt(62)
    return found


@pytest.mark.parametrize(("count", "vary"), turns_of(SIZES, ["seed", "epoch"]))
def test_orders_look_random(count: int, vary: str) -> None:
    orders = 4000 if count < SORTED else 400
    length = np.arange(min(count, 2000))
    drawn = np.array([Permutation(*((i, 5) if vary == "seed" else (5, i)), count)(length) for i in range(orders)])
    for name, deviation in deviations(drawn, count).items():
        assert abs(deviation) < 6, (name, deviation)


@pytest.mark.parametrize("rounds", [1, 2])
def test_too_few_rounds_are_caught_by_these_statistics(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_ROUNDS", rounds)
    drawn = np.array([Permutation(i, 5, 10**6)(np.arange(20_000)) for i in range(40)])
    assert max(map(abs, deviations(drawn, 10**6).values())) > 6


def test_a_sample_is_seen_at_each_place_of_an_epoch_alike() -> None:
    places = []
    for seed in range(60):
        drawn = permutation(seed, 0, LONG)
        places.append(np.argsort(drawn)[:: LONG // 64][:64])
    counts = np.bincount((np.array(places) * 16 // LONG).ravel(), minlength=16)
    even = counts.sum() / 16
    assert abs(((counts - even) ** 2 / even).sum() - 15) / np.sqrt(30) < 6


# it is the same however it is entered


def test_random_words_at_any_positions_are_those_of_the_stream() -> None:
    whole = keys(7, 3, 0, 100, 9)
    at = np.array([99, 0, 5, 6, 7, 5, 42])
    assert (keys_at(7, 3, at, 9) == whole[at]).all()
    assert (keys_at(7, 3, np.arange(13, 57), 9) == whole[13:57]).all()
    assert words_at(7, 3, at, 0, 9).shape == (7, 0)
    assert keys_at(7, 3, at[:0], 9).shape == (0,)
    for each in (1, 3, 5):
        assert (words_at(7, 3, at, each, 9) == words_at(7, 3, np.arange(100), each, 9)[at]).all()


@pytest.mark.parametrize(
    "sampler",
    [
        RandomSampler(LONG),
        SequentialSampler(LONG),
        SubsetSampler(np.arange(0, LONG, 3)),
        SubsetSampler(range(5, 900), shuffle=False),
        WeightedSampler(np.arange(LONG) % 7, 1000),
    ],
)
def test_a_sampler_gives_at_any_positions_what_the_whole_order_has_there(sampler: Any) -> None:
    whole = sampler(4, 2)
    at = keys(1, 1, 0, 500) % np.uint64(sampler.samples)
    assert (sampler.at(4, 2, at.astype(np.int64)) == whole[at]).all()
    assert whole.max() < sampler.limit
    assert (sampler.at(4, 2, np.arange(min(40, sampler.samples))) == whole[:40]).all()


def shards(samples: int, size: int, ranks: int) -> list[list[int]]:
    """The rows of each rank, dealt batch by batch."""
    rows: list[list[int]] = [[] for _ in range(ranks)]
    for at in range(0, samples, size):
        batch = list(range(at, min(at + size, samples)))
        for rank, piece in enumerate(np.array_split(batch, ranks)):
            rows[rank] += piece.tolist()
    return rows


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 9, 31, 32, 33])
@pytest.mark.parametrize(("size", "ranks"), [(1, 1), (4, 2), (4, 3), (8, 3), (8, 8), (5, 2)])
def test_shards_are_the_rows_of_each_batch_dealt_evenly(samples: int, size: int, ranks: int) -> None:
    for rank, wanted in enumerate(shards(samples, size, ranks)):
        part = Shard(samples, size, ranks, rank)
        assert part.count == len(wanted)
        assert part(np.arange(part.count)).tolist() == wanted


def test_parts_of_parts_are_positions_of_the_epoch() -> None:
    inner = Positions(100).part(Slice(10, 61)).part(Shard(61, 8, 3, 1)).part(Slice(2, 9))
    wanted = np.arange(100)[10:71][shards(61, 8, 3)[1]][2:11]
    assert len(inner) == 9
    assert inner(np.arange(9)).tolist() == wanted.tolist()


OPTIONS: dict[str, Any] = {"shuffle": True, "seed": 5}


def read(loader: Any) -> list[int]:
    return [int(v) for batch in loader for v in batch.numpy()]


def test_a_long_epoch_is_one_order_for_workers_slices_shards_deals_and_batch_sizes() -> None:
    data = Lazy(LONG)
    wanted = permutation(5, 0, LONG).tolist()
    assert read(DataLoader(data, 999, **OPTIONS)) == wanted
    assert read(DataLoader(data, 20_000, num_workers=2, **OPTIONS)) == wanted
    assert read(DataLoader(data, 100_000, **OPTIONS)) == wanted
    loader = DataLoader(data, 1000, **OPTIONS)
    assert read(loader.slice(BLOCK - 5, LONG - 7).slice(3)) == wanted[BLOCK - 2 : LONG - 7]
    for rank, shard in enumerate(loader.split(["cpu:0", "cpu:1", "cpu:2"])):
        assert read(shard) == [wanted[i] for i in shards(LONG, 1000, 3)[rank]]
    dealt = [read(loader.dealt(2, number)) for number in range(2)]
    assert sorted(dealt[0] + dealt[1]) == list(range(LONG))
    assert dealt[0][:2000] == wanted[:1000] + wanted[2000:3000]
    assert len(read(DataLoader(data, 1000, drop_last=True, **OPTIONS))) == LONG // 1000 * 1000


@pytest.mark.parametrize("batch_size", [1000, 7, 40_000])
def test_a_long_epoch_goes_on_in_the_middle_with_any_batch_size(batch_size: int) -> None:
    loader = DataLoader(Lazy(LONG), 1001, **OPTIONS)
    running = iter(loader)
    for _ in range(40):
        next(running)
    other = DataLoader(Lazy(LONG), batch_size, **OPTIONS)
    other.load_cursor(loader.cursor())
    first = next(iter(other)).numpy()
    assert first.tolist() == permutation(5, 0, LONG)[40 * 1001 :][:batch_size].tolist()


def test_the_random_changes_of_a_sample_depend_on_its_place_alone() -> None:
    images = np.arange(2.0 * LONG, dtype=np.float32).reshape(LONG, 1, 2)
    loader = DataLoader(ArrayDataset(images), 1000, augment=RandomHorizontalFlip(), **OPTIONS)
    shard = loader.split(["cpu:0", "cpu:1", "cpu:2"])[1]
    whole = np.concatenate([x.numpy() for (x,) in loader])
    found = np.concatenate([x.numpy() for (x,) in shard])
    assert (found == whole[shards(LONG, 1000, 3)[1]]).all()


# memory


def peak(start: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        start()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BILLION = 10**9


@pytest.mark.parametrize(
    "made",
    [
        lambda data: DataLoader(data, 64, shuffle=True),
        lambda data: DataLoader(data, 64),
        lambda data: DataLoader(data, 64, shuffle=True, augment=RandomHorizontalFlip(), collate=lambda x: np.zeros((64, 2, 2))),
        lambda data: DataLoader(data, 64, shuffle=True).slice(17, BILLION - 2).slice(5),
        lambda data: DataLoader(data, 64, shuffle=True).split(["cpu:0", "cpu:1"])[1],
        lambda data: DataLoader(data, 64, shuffle=True).dealt(2, 1),
        lambda data: DataLoader(data, 64, sampler=SubsetSampler(range(0, BILLION, 2))),
        lambda data: DataLoader(Subset(data, range(2)), 64, sampler=WeightedSampler([1.0, 2.0], BILLION)),
        lambda data: DataLoader(holdout(data, 0.1)[0], 64, shuffle=True),
        lambda data: DataLoader(random_split(data, [0.5, 0.25, 0.25])[1], 64),
        lambda data: DataLoader(Subset(data, range(BILLION - 1, 0, -1)), 64, shuffle=True),
    ],
)
def test_an_epoch_of_a_billion_samples_starts_within_constant_memory(made: Callable[[Any], DataLoader]) -> None:
    def start() -> None:
        loader = made(Lazy(BILLION))
        batches = iter(loader)
        next(batches)
        next(batches)
        loader.load_cursor(loader.cursor() | {"position": 10**8 // 2})
        next(iter(loader))

    assert peak(start) < 20e6


# cursors


def cursor_of_an_earlier_version(loader: DataLoader) -> dict[str, Any]:
    """A cursor whose order is digested whole."""
    facts = loader.cursor()
    kind = "shuffled" if loader.shuffle else facts["order"]["kind"]
    numbers = loader._order(loader.seed, 0) if not loader.shuffle else np.argsort(keys(loader.seed, 0, 0, LONG), kind="stable")  # type: ignore[misc]
    return facts | {"order": {"kind": kind, **digest_of(len(numbers), numbers.__getitem__, whole=True)}, "position": 64}


def test_a_long_order_that_an_earlier_version_sorted_is_refused_by_name() -> None:
    loader = DataLoader(Lazy(LONG), 64, **OPTIONS)
    with pytest.raises(LoaderError, match="order: shuffled saved, shuffled by a keyed permutation found"):
        loader.load_cursor(cursor_of_an_earlier_version(loader))


@pytest.mark.parametrize(
    "options",
    [{}, {"sampler": WeightedSampler(np.arange(LONG) % 5)}, {"sampler": SubsetSampler(np.arange(LONG - 9), shuffle=False)}],
)
def test_other_long_orders_of_earlier_versions_go_on_exactly(options: dict[str, Any]) -> None:
    loader = DataLoader(Lazy(LONG), 64, **options)
    wanted = read(DataLoader(Lazy(LONG), 64, **options))[64:128]
    loader.load_cursor(cursor_of_an_earlier_version(loader))
    assert next(iter(loader)).tolist() == wanted


def test_long_orders_that_differ_where_no_number_is_compared_are_told_apart_by_their_settings() -> None:
    weights = np.ones(LONG)
    weights[1] = 0.99999999
    loaders = [DataLoader(Lazy(LONG), 64, sampler=WeightedSampler(w)) for w in (np.ones(LONG), weights)]
    cursors = [loader.cursor() for loader in loaders]
    with pytest.raises(LoaderError, match="order: sampler WeightedSampler, with one order"):
        loaders[1].load_cursor(cursors[0])
    chosen = np.arange(LONG)
    chosen[[1, 2]] = [2, 1]
    subsets = [DataLoader(Lazy(LONG), 64, sampler=SubsetSampler(c, shuffle=False)) for c in (np.arange(LONG), chosen)]
    with pytest.raises(LoaderError, match="order: sampler SubsetSampler"):
        subsets[1].load_cursor(subsets[0].cursor())


def test_a_long_order_made_in_another_way_goes_on() -> None:
    cursor = DataLoader(Lazy(LONG), 64, **OPTIONS).cursor() | {"position": 640}
    for sampler in (RandomSampler(LONG), lambda seed, epoch: permutation(seed, epoch, LONG)):
        loader = DataLoader(Lazy(LONG), 64, sampler=sampler, seed=5)
        loader.load_cursor(cursor)
        assert next(iter(loader)).tolist() == permutation(5, 0, LONG)[640:704].tolist()


# samplers and lists


class Halves(RandomSampler):
    """Derived from a sampler that computes positions, with an order of its own."""

    def __call__(self, seed: int, epoch: int, /) -> Any:
        return np.arange(self.samples)[::-1]


class Evens:
    """One's own sampler that computes positions."""

    samples = 50

    def __call__(self, seed: int, epoch: int, /) -> Any:
        raise AssertionError("the whole order is never asked for")

    def at(self, seed: int, epoch: int, positions: Array) -> Any:
        return 2 * positions


def test_a_samplers_own_order_wins_over_positions_that_it_inherits() -> None:
    assert read(DataLoader(Lazy(5), 2, sampler=Halves(5))) == [4, 3, 2, 1, 0]


def test_a_sampler_of_ones_own_may_compute_positions() -> None:
    assert read(DataLoader(Lazy(100), 7, sampler=Evens())) == list(range(0, 100, 2))
    with pytest.raises(LoaderError, match=r"(?s)in \[0, 90\).*from 0 to 98"):
        DataLoader(Lazy(90), 7, sampler=Evens())


def wrong(found: Any, samples: Any = 4) -> Any:
    sampler = Evens()
    sampler.samples = samples
    sampler.at = lambda seed, epoch, positions: found  # type: ignore[method-assign]
    return sampler


@pytest.mark.parametrize(
    ("sampler", "text"),
    [
        (wrong([1, 2]), "2 numbers for 4 positions"),
        (wrong([0.5] * 4), "float64"),
        (wrong([0, 1, 2, -1]), "from -1 to 2"),
        (wrong([0, 1, 2, 3], 0), "0 numbers"),
        (wrong([0, 1, 2, 3], -3), "-3 numbers"),
        (wrong([0, 1, 2, 3], 2.5), "samples of the sampler .* is a whole number"),
        (RandomSampler(200), "from 0 to 199"),
        (SubsetSampler([3, 100]), "from 0 to 100"),
        (WeightedSampler([0.0] * 150 + [1.0]), "from 0 to 150"),
        (WeightedSampler(np.ones(99)), "99 weights for 100 samples"),
        (BucketSampler(range(99), 7), "99 lengths for 100 samples"),
        (WeightedSampler([1.0] + [0.0] * 100), "101 weights for 100 samples"),
        ([3, 1, 2], r"function of seed and epoch(.|\n)*SubsetSampler\(indices\) draws those of a list"),
        (RandomSampler, "function of seed and epoch"),
    ],
)
def test_samplers_that_compute_other_numbers_are_refused(sampler: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=text):
        DataLoader(Lazy(100), 7, sampler=sampler)


def test_a_computed_list_is_indexed_as_an_array_is() -> None:
    for numbers in (range(3, 50, 4), range(50, 3, -7), range(0)):
        computed, array = ranged(numbers), np.array(numbers, np.int64)
        assert np.asarray(computed).tolist() == list(computed) == array.tolist()
        assert len(computed) == len(array)
        assert computed[1:4].tolist() == array[1:4].tolist()
        if len(array):
            assert (computed[0], computed[-1]) == (array[0], array[-1])
            assert computed[[0, -1, 1]].tolist() == array[[0, -1, 1]].tolist()
            assert (computed.least, computed.most) == (array.min(), array.max())
        assert pickle.loads(pickle.dumps(computed))[:].tolist() == array.tolist()
        assert digest(computed) == digest(array)
        for key in (len(array), -len(array) - 1):
            with pytest.raises(IndexError, match=f"list of {len(array)} numbers"):
                computed[key]
    with pytest.raises(ValueError, match="shared"):
        np.asarray(ranged(range(3)), copy=False)


def test_parts_of_many_samples_are_computed_hold_each_sample_once_and_pickle() -> None:
    data = Lazy((1 << 20) + 5)
    kept, held = holdout(data, 0.25, seed=3)
    parts = [kept, held, *random_split(data, [0.5, 0.5], seed=3)]
    for a, b in (parts[:2], parts[2:]):
        assert isinstance(a.indices, Computed)
        both = np.concatenate([a.indices, b.indices])
        assert (np.sort(both) == np.arange(len(data))).all()
    again = pickle.loads(pickle.dumps(held))
    assert again[5] == held[5] == held.indices[5]
    assert (held.fetch(np.array([0, 7])) == held.indices[[0, 7]]).all()
    assert (np.asarray(holdout(data, 0.25, seed=4)[1].indices) != np.asarray(held.indices)).any()
    short = holdout(Lazy(1 << 20), 0.25)[1].indices
    assert (np.diff(short) > 0).all()


@pytest.mark.parametrize("indices", [range(-1, 2_000_000), range(2_000_001), range(2_000_000, -2, -1)])
def test_a_long_range_out_of_the_data_set_is_refused(indices: range) -> None:
    with pytest.raises(LoaderError, match=r"in \[0, 2000000\)"):
        Subset(Lazy(2_000_000), indices)
    with pytest.raises(LoaderError):
        DataLoader(Lazy(2_000_000), 4, sampler=SubsetSampler(indices))
