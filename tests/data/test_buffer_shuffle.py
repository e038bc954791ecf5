"""A stream shuffled in a buffer: each sample once, in one order for any workers, resumed exactly, within its memory."""

import json
from collections.abc import Iterator
from typing import Any

import loading
import numpy as np
import pytest

import firebrick as fb
from firebrick.data import (
    ArrayDataset,
    DataLoader,
    IterableDataset,
    LoaderError,
    SampleError,
    UncheckedCursorWarning,
    worker_info,
)
from firebrick.data.buffered import BufferShuffle

SETTINGS = [(0, "thread"), (1, "thread"), (3, "thread"), (2, "process")]


def drawn(stream: IterableDataset, epoch: int = 0, start: int = 0) -> list[int]:
    return [number for _, number in stream.stream(epoch, start)]


def numbers(loader: DataLoader) -> list[int]:
    return [n for _, y in loader for n in y.tolist()]


@pytest.mark.parametrize("samples", [0, 1, 2, 9, 10, 11, 100])
@pytest.mark.parametrize("size", [1, 2, 10, 1000])
def test_each_sample_comes_once_and_none_before_it_can_be_in_the_buffer(samples: int, size: int) -> None:
    order = drawn(loading.Counting(samples).shuffled(size, seed=3))
    assert sorted(order) == list(range(samples))
    assert all(position >= sample - size + 1 for position, sample in enumerate(order))
    if size == 1:
        assert order == list(range(samples))


def test_an_order_depends_on_seed_epoch_and_size_alone_and_is_pinned() -> None:
    stream = loading.Counting(10)
    assert drawn(stream.shuffled(4, seed=3)) == drawn(loading.Counted(10).shuffled(4, seed=3)) == PINNED
    orders = {tuple(drawn(stream.shuffled(size, seed=seed), epoch)) for size in (4, 5) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 8


PINNED = [3, 0, 5, 4, 1, 2, 8, 7, 6, 9]


def test_a_buffer_of_the_whole_stream_shuffles_fairly() -> None:
    counts = np.zeros((4, 4), np.int64)
    for seed in range(2000):
        counts[np.arange(4), drawn(loading.Counting(4).shuffled(4, seed=seed))] += 1
    assert np.abs(counts - 500).max() < 100


def test_every_slot_of_the_buffer_is_drawn_alike() -> None:
    order = np.array(drawn(loading.Counting(60_000).shuffled(100)))
    waited = np.argsort(order)[:50_000] - np.arange(50_000) + 99  # geometric, with chance 1/100
    assert abs(waited.mean() - 99) < 5 * 100 / np.sqrt(50_000)
    assert abs((waited > 200).mean() - 0.99**201) < 0.01


@pytest.mark.parametrize(("count", "kind"), SETTINGS)
@pytest.mark.parametrize("data", [loading.Counting(37), loading.Counted(37)], ids=["unknown", "known"])
def test_any_number_of_workers_gives_one_order_that_changes_by_epoch(data: Any, count: int, kind: str) -> None:
    wanted = [drawn(data.shuffled(10, seed=3), epoch) for epoch in (0, 1)]
    loader = DataLoader(data.shuffled(10, seed=3), 4, num_workers=count, worker=kind, sample_transform=loading.noisy)
    assert [numbers(loader), numbers(loader)] == wanted
    loader.set_epoch(1)
    alone = DataLoader(data.shuffled(10, seed=3), 4, sample_transform=loading.noisy)
    alone.set_epoch(1)
    assert [x.tolist() for x, _ in loader] == [x.tolist() for x, _ in alone]


@pytest.mark.parametrize(("count", "kind"), SETTINGS)
@pytest.mark.parametrize("batches", [0, 1, 5, 9])
def test_it_goes_on_exactly_with_any_batch_size(count: int, kind: str, batches: int) -> None:
    stream = loading.Counting(37).shuffled(10, seed=3)
    loader = DataLoader(stream, 4, num_workers=2)
    numbers(loader)  # of epoch 0
    running = iter(loader)
    before = [n for _ in range(batches) for n in next(running)[1].tolist()]
    cursor = json.loads(json.dumps(loader.cursor()))
    running.close()
    other = DataLoader(stream, 7, num_workers=count, worker=kind)
    other.load_cursor(cursor)
    assert before + numbers(other) == drawn(stream, 1)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (lambda s: s, "a stream shuffled in a buffer of 10 with seed 3 saved, a stream found"),
        (lambda s: s.shuffled(11, seed=3), "a buffer of 10 with seed 3 saved, a stream shuffled in a buffer of 11 with"),
        (lambda s: s.shuffled(10, seed=4), "with seed 3 saved, .* with seed 4 found"),
        (lambda s: s.shuffled(10, seed=3).shuffled(2), "seed 3, of 2 with seed 0 found"),
    ],
)
def test_a_cursor_of_another_buffer_is_refused_by_name(found: Any, text: str) -> None:
    stream = loading.Counting(37)
    cursor = DataLoader(stream.shuffled(10, seed=3), 4).cursor()
    with pytest.raises(LoaderError, match=f"order: .*{text}"):
        DataLoader(found(stream), 4).load_cursor(cursor)


class Reused(IterableDataset):
    """Fills one array again and again."""

    def __iter__(self) -> Iterator[Any]:
        row = np.zeros(2)
        for i in range(9):
            row[:] = i
            yield row


def test_the_buffer_holds_what_was_read_where_a_stream_fills_one_array() -> None:
    rows = np.concatenate([batch.numpy() for batch in DataLoader(Reused().shuffled(4), 2)])
    assert sorted(rows[:, 0].tolist()) == list(range(9))


class Far(IterableDataset):
    """Counts what is read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        for i in range(10**9):
            self.read += 1
            yield np.int64(i)


def test_no_more_is_read_than_the_buffer_needs() -> None:
    stream = Far()
    running = iter(DataLoader(stream.shuffled(50), 4))
    next(running)
    assert stream.read == 54


class Drawing(IterableDataset):
    """Draws random numbers where it is read."""

    def __iter__(self) -> Iterator[Any]:
        for i in range(9):
            info = worker_info()
            yield np.random.default_rng(0 if info is None else info.seed).random() + i


def test_random_numbers_of_a_stream_that_is_read_ahead_are_refused_with_the_remedy() -> None:
    with pytest.raises(SampleError, match="draw them in sample_transform"):
        DataLoader(Drawing().shuffled(4), 2).first()
    assert worker_info() is None
    loader = DataLoader(Drawing().shuffled(4), 2)
    with pytest.warns(UncheckedCursorWarning, match="read ahead"):
        loader.load_cursor(loader.cursor())


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "4", None])
def test_a_buffer_of_no_size_is_refused(size: Any) -> None:
    with pytest.raises(fb.ConfigError, match="buffer_size"):
        loading.Counting(5).shuffled(size)


def test_bad_seeds_and_data_sets_with_numbers_are_refused() -> None:
    with pytest.raises(fb.ConfigError, match="seed"):
        loading.Counting(5).shuffled(4, seed=-1)
    with pytest.raises(LoaderError, match="shuffle=True"):
        BufferShuffle(ArrayDataset(np.arange(3)), 2)  # type: ignore[arg-type]
    with pytest.raises(LoaderError, match=r"dataset\.shuffled\(buffer_size=1000\)"):
        DataLoader(loading.Counting(5), 2, shuffle=True)
