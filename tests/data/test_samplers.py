"""Orders of samples as functions of seed and epoch, and how samples are joined to batches."""

import functools
import itertools
from typing import Any

import loading
import numpy as np
import pytest

import firebrick as fb
from firebrick.data import (
    ArrayDataset,
    BucketSampler,
    DataLoader,
    LoaderError,
    RandomSampler,
    SampleError,
    SequentialSampler,
    SubsetSampler,
    WeightedSampler,
    collate,
    holdout,
    pad_collate,
    permutation,
    samplers,
)
from firebrick.data.assembly import Job, reading
from firebrick.data.augment import augmentation_words
from firebrick.data.order import keys

N = 23


def made(batch_size: int = 4, **options: Any) -> DataLoader:
    return DataLoader(ArrayDataset(np.arange(N)), batch_size, **options)


def flat(loader: DataLoader) -> list[int]:
    return list(itertools.chain(*(y.tolist() for (y,) in loader)))


# orders


def test_shuffle_is_the_random_sampler_and_its_absence_the_sequential_one() -> None:
    assert flat(made(sampler=RandomSampler(N), seed=9)) == flat(made(shuffle=True, seed=9))
    assert flat(made(sampler=SequentialSampler(N))) == flat(made())


def test_a_subset_is_visited_each_once_in_the_order_of_the_epoch() -> None:
    loader = made(sampler=SubsetSampler([3, 20, 7, 11, 2]))
    assert (loader.samples, len(loader)) == (5, 2)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == [2, 3, 7, 11, 20]
    assert first != second
    assert flat(made(sampler=SubsetSampler([3, 20, 7], shuffle=False))) == [3, 20, 7]


def test_weights_are_the_frequencies_of_samples() -> None:
    weights = np.array([0.0, 1.0, 2.0, 0.0, 5.0, 0.0])
    drawn = np.concatenate([WeightedSampler(weights, 2000)(1, epoch) for epoch in range(4)])
    counts = np.bincount(drawn, minlength=6)
    assert counts[weights == 0].tolist() == [0, 0, 0]
    spread = np.sqrt(8000 * weights / 8 * (1 - weights / 8))
    assert (np.abs(counts - 1000 * weights) <= 5 * spread).all()
    assert len({tuple(WeightedSampler(weights)(seed, epoch)) for seed in (0, 1) for epoch in range(3)}) > 1
    assert WeightedSampler(weights)(0, 0).tolist() == WeightedSampler(weights * 1e-300)(0, 0).tolist()


def test_all_that_is_drawn_is_pinned_so_that_runs_can_be_repeated_years_later() -> None:
    seed, epoch = (3 << 32) | 5, 7
    assert permutation(seed, epoch, 8).tolist() == [5, 6, 7, 4, 2, 1, 3, 0]
    assert keys(seed, epoch, 3, 2).tolist() == [12174108267855481080, 5403697613894074559]
    assert keys(seed, epoch, 3, 2, 9).tolist() == [7055643565081781089, 4685865773906833210]
    assert SubsetSampler([7, 2, 9, 4])(seed, epoch).tolist() == [9, 2, 4, 7]
    assert WeightedSampler([1.0, 0, 3, 2], 8)(seed, epoch).tolist() == [2, 3, 2, 2, 0, 2, 3, 3]
    lengths = [5, 1, 4, 1, 3, 9, 2, 6, 8, 7, 2]
    assert BucketSampler(lengths, 2, pool=2)(seed, epoch).tolist() == [6, 7, 9, 5, 3, 0, 2, 8, 1, 4, 10]
    words = [[1124003529, 2163649529, 907568074], [3701165935, 616702232, 2591845528]]
    assert augmentation_words(seed, epoch, np.array([1, 2]), 3).tolist() == words
    assert holdout(ArrayDataset(np.arange(9)), 0.4, seed=seed)[1].indices.tolist() == [2, 4, 5, 6]
    none = np.empty((2, 0), np.uint32)
    with reading(Job(0, np.arange(2), np.array([4, 2]), none, seed, epoch, 0)) as info:
        assert info.seeds.tolist() == [4659931314040632912, 16336556369745211615]
        assert (info.seed, info.worker, info.workers) == (info.seeds[0], 0, 0)
        info.at(1)
        assert info.seed == info.seeds[1]


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_no_uniform_number_draws_a_sample_without_weight(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "keys_at", lambda seed, epoch, positions, purpose: np.full(len(positions), word, np.uint64))
    assert WeightedSampler([0.0, 1.0, 3.0, 0.0], 1)(0, 0).tolist() == [1 if word == 0 else 2]


def test_buckets_hold_samples_of_like_length_and_each_sample_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1003)
    sampler = BucketSampler(lengths, 8, pool=20)
    order = sampler(2, 0)
    assert sorted(order.tolist()) == list(range(1003))
    assert order.tolist() == sampler(2, 0).tolist() != sampler(2, 1).tolist()
    batches = [lengths[order[at : at + 8]] for at in range(0, 1000, 8)]
    padding = sum(8 * int(b.max()) - int(b.sum()) for b in batches)
    shuffled = [lengths[RandomSampler(1003)(2, 0)[at : at + 8]] for at in range(0, 1000, 8)]
    assert padding < 0.1 * sum(8 * int(b.max()) - int(b.sum()) for b in shuffled)
    one_pool = BucketSampler(lengths, 8, pool=1000)(2, 0)
    longest = [int(lengths[one_pool[at : at + 8]].max()) for at in range(0, 1000, 8)]
    assert longest != sorted(longest)  # batches are not visited by length


@pytest.mark.parametrize("count", [1, 7, 8, 9])
def test_buckets_of_few_samples_are_whole(count: int) -> None:
    assert sorted(BucketSampler(range(count), 8)(0, 0).tolist()) == list(range(count))


def test_a_sampler_of_ones_own_gets_seed_and_epoch_and_slices_splits_and_resumes() -> None:
    def odd_ones_backwards(seed: int, epoch: int) -> list[int]:
        return [n for n in range(N - 1, -1, -1) if n % 2][:: 1 if (seed + epoch) % 2 else -1]

    loader = made(sampler=odd_ones_backwards, seed=1)
    wanted = list(range(21, 0, -2))
    assert [flat(loader), flat(loader)] == [wanted, wanted[::-1]]
    loader.set_epoch(0)
    assert flat(loader.slice(2, 5)) == wanted[2:5]
    assert sorted(itertools.chain(*(flat(s) for s in loader.split(["cpu:0", "cpu:1"])))) == sorted(wanted)
    next(running := iter(loader))
    other = made(sampler=odd_ones_backwards, seed=1, num_workers=2)
    other.load_cursor(loader.cursor())
    assert flat(other) == wanted[4:]
    del running


def test_a_sampler_of_another_length_in_a_later_epoch_is_refused() -> None:
    loader = made(sampler=lambda seed, epoch: np.arange(5 + epoch))
    flat(loader)
    with pytest.raises(LoaderError, match="5 in epoch 0, 6 in epoch 1"):
        flat(loader)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: made(sampler=SequentialSampler(N), shuffle=True), "leave out shuffle"),
        (lambda: made(sampler=lambda seed, epoch: [0, 23]), r"in \[0, 23\).*from 0 to 23"),
        (lambda: made(sampler=lambda seed, epoch: [-1]), "from -1 to -1"),
        (lambda: made(sampler=lambda seed, epoch: []), r"float64\[0\]"),
        (lambda: made(sampler=lambda seed, epoch: [0.5]), r"float64\[1\]"),
        (lambda: made(sampler=lambda seed, epoch: [[1]]), r"int64\[1, 1\]"),
        (lambda: SubsetSampler([-1]), "SubsetSampler"),
        (lambda: SubsetSampler([]), "at least one"),
        (lambda: WeightedSampler([0.0, 0.0]), "not all 0"),
        (lambda: WeightedSampler([1.0, -1.0]), "from -1.0"),
        (lambda: WeightedSampler([1.0, float("nan")]), "finite"),
        (lambda: BucketSampler([-1], 2), "lengths are whole numbers from 0, at least one"),
        (lambda: WeightedSampler([]), r"shape \[0\]\."),
        (lambda: WeightedSampler([[1.0]]), r"shape \[1, 1\], from 1.0 to 1.0"),
    ],
)
def test_orders_that_cannot_be_are_refused(call: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=f"(?s){text}") as caught:
        call()
    assert caught.value.remedy


@pytest.mark.parametrize("call", [lambda: BucketSampler([1], 0), lambda: WeightedSampler([1.0], 0), lambda: RandomSampler(0)])
def test_sizes_below_one_are_refused(call: Any) -> None:
    with pytest.raises(fb.ConfigError, match="≥ 1"):
        call()


# joining


def test_ragged_samples_are_padded_and_come_with_their_lengths() -> None:
    x, lengths, y = DataLoader(loading.Ragged(), 3, collate=pad_collate).first()
    assert x.tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 2]]
    assert (lengths.tolist(), y.tolist()) == ([1, 2, 3], [0, 1, 2])
    x, lengths, _ = DataLoader(loading.Ragged(), 2, collate=functools.partial(pad_collate, value=-1)).first()
    assert x.tolist() == [[0, -1], [0, 1]]


def test_only_the_first_axis_is_padded_and_in_the_columns_that_are_named() -> None:
    samples = [(7, np.ones((2, 3)), [1]), (8, np.ones((1, 3)), [4, 5])]
    kind, x, lengths, words, counts = pad_collate(samples, columns=(1, 2))
    assert (kind.tolist(), x.shape, lengths.tolist()) == ([7, 8], (2, 2, 3), [2, 1])
    assert x[1].tolist() == [[1, 1, 1], [0, 0, 0]]
    assert (words.tolist(), counts.tolist()) == ([[1, 0], [4, 5]], [1, 2])
    assert lengths.dtype == counts.dtype == np.int64
    (mixed, _) = pad_collate([np.ones(1, np.float32), np.ones(2, np.float16)])
    assert mixed.dtype == np.float32
    alone = pad_collate([[1, 2], [3]])
    assert [a.tolist() for a in alone] == [[[1, 2], [3, 0]], [2, 1]]


def test_a_collate_of_ones_own_makes_the_arrays() -> None:
    loader = DataLoader(loading.Numbers(), 4, collate=lambda samples: np.array([y for _, y in samples]).sum(keepdims=True))
    assert [b.tolist() for b in loader][:2] == [[6], [22]]


def test_a_sample_transform_changes_each_sample_and_a_transform_the_batch() -> None:
    x, _ = DataLoader(loading.Numbers(), 2, sample_transform=loading.doubled, transform=loading.shifted).first()
    assert x.tolist() == [[1.0] * 3, [3.0] * 3]
    whole = ArrayDataset(np.arange(6.0), np.arange(6))  # has fetch, and is asked for samples
    assert DataLoader(whole, 3, sample_transform=loading.doubled).first()[0].tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("samples", "columns", "text"),
    [
        ([(1, 2), (1,)], (0,), r"\[1, 2\] values"),
        ([([1],)], (1,), "columns"),
        ([([1],)], (-1,), "columns"),
        ([(1,), (2,)], (0,), r"\[length"),
        ([(np.ones((1, 2)),), (np.ones((1, 3)),)], (0,), r"\[1, 2\].*\[1, 3\]"),
    ],
)
def test_what_cannot_be_padded_is_refused(samples: Any, columns: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=text):
        pad_collate(samples, columns=columns)


@pytest.mark.parametrize("samples", [[np.ones(2), np.ones(3)], [(np.ones(2), 0), (np.ones(3), 0)]])
def test_what_cannot_be_stacked_is_refused_with_the_shapes(samples: Any) -> None:
    with pytest.raises(LoaderError, match="shapes") as caught:
        collate(samples)
    assert "pad_collate" in caught.value.remedy


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([(1, 2), (1,)], "(array, array) in sample 0 of the batch and (array,) in sample 1"),
        ([(1,), 2], "(array,) in sample 0 of the batch and array in sample 1"),
        ([(1, 2), {"a": 1, "b": 2}], "(array, array) in sample 0 of the batch and {'a': array, 'b': array} in sample 1"),
    ],
)
def test_samples_of_another_structure_are_refused_with_both_structures(samples: Any, text: str) -> None:
    with pytest.raises(LoaderError, match="one structure") as caught:
        collate(samples)
    assert caught.value.received == text


MIXED = [
    [0, 0.5],
    [1.5, 2],
    [True, 2],
    [1 + 2j, 1.0],
    [1, 2**63],
    [-1, 1, np.uint64(2**63)],
    [np.int64(2**53 + 1), np.float64(0)],
]


@pytest.mark.parametrize("samples", MIXED, ids=str)
def test_samples_of_several_kinds_of_dtype_are_refused_and_not_converted(samples: list[Any]) -> None:
    text = rf"one kind of dtype(?s:.*)in sample 0 of the batch and \w+ in sample {len(samples) - 1}"
    for joined in (collate, lambda v: collate([(0, x) for x in v]), lambda v: pad_collate([[x] for x in v])):
        with pytest.raises(LoaderError, match=text):
            joined(samples)


def test_widths_of_one_kind_are_joined_in_the_widest() -> None:
    half = [np.asarray(1.5, fb.bfloat16.np), np.float32(2.0)]
    for samples, dtype in (([np.int8(1), np.uint8(200)], "int16"), ([np.float16(1), 0.25], "float64"), (half, "float32")):
        made = collate(samples)
        assert made.dtype == dtype
        assert made.tolist() == [float(v) for v in samples]


def test_unequal_samples_are_shown_by_three_shapes_at_most() -> None:
    with pytest.raises(LoaderError) as caught:
        collate([np.ones(n) for n in (1, 1, 2, 3, 4)])
    assert caught.value.received.endswith("shapes [1] and [2] and [3]")
    with pytest.raises(LoaderError, match=r"shapes \(\[\], ragged\)"):
        collate([(1, [[1], [1, 2]])])


def test_an_error_in_joining_names_the_batch() -> None:
    with pytest.raises(SampleError, match=r"batch 0 of loader.*samples 0, 1, 2"):
        DataLoader(loading.Ragged(), 3).first()
