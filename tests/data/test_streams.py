"""Data sets that are read from their beginning: with and without a length, in any number of workers, resumed in the middle."""

from pathlib import Path
from typing import Any

import loading
import numpy as np
import pytest

from firebrick.data import (
    ArrayDataset,
    DataLoader,
    IterableDataset,
    LoaderError,
    RandomHorizontalFlip,
    SampleError,
    UnknownLengthError,
)

SETTINGS = [(0, "thread"), (1, "thread"), (3, "thread"), (1, "process"), (3, "process")]


def numbers(loader: DataLoader) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


@pytest.mark.parametrize(("count", "kind"), SETTINGS)
@pytest.mark.parametrize("data", [loading.Counting(17), loading.Counted(17)], ids=["unknown", "known"])
def test_a_stream_has_one_order_for_any_number_of_workers(data: IterableDataset, count: int, kind: str) -> None:
    loader = DataLoader(data, 4, num_workers=count, worker=kind, sample_transform=loading.noisy)
    assert [numbers(loader), numbers(loader)] == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16]]] * 2
    alone = DataLoader(data, 4, sample_transform=loading.noisy)
    loader.set_epoch(3)
    alone.set_epoch(3)
    assert [x.tolist() for x, _ in loader] == [x.tolist() for x, _ in alone]


@pytest.mark.parametrize(("count", "kind"), SETTINGS)
def test_a_stream_that_ends_with_a_batch_gives_no_empty_one(count: int, kind: str) -> None:
    loader = DataLoader(loading.Counting(8), 4, num_workers=count, worker=kind)
    assert numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    cursor = loader.cursor()
    assert [cursor[k] for k in ("epoch", "position", "samples", "seed")] == [1, 0, -1, 0]


@pytest.mark.parametrize("data", [loading.Counting(10), loading.Counted(10)], ids=["unknown", "known"])
@pytest.mark.parametrize("count", [0, 2])
def test_drop_last_leaves_out_the_small_batch_of_a_stream(data: IterableDataset, count: int) -> None:
    assert numbers(DataLoader(data, 4, drop_last=True, num_workers=count)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(("count", "kind"), SETTINGS)
@pytest.mark.parametrize("data", [loading.Counting(17), loading.Counted(17)], ids=["unknown", "known"])
def test_a_stream_goes_on_after_the_last_sample_that_was_handed_out(data: IterableDataset, count: int, kind: str) -> None:
    loader = DataLoader(data, 4, num_workers=2, worker="thread")
    running = iter(loader)
    assert [next(running)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    other = DataLoader(data, 4, num_workers=count, worker=kind)
    other.load_cursor(loader.cursor())
    resumed = iter(other)
    first = next(resumed)
    assert first[0].label == 'batch 2 of loader "train"'
    assert [first[1].tolist(), *(y.tolist() for _, y in resumed)] == [[8, 9, 10, 11], [12, 13, 14, 15], [16]]
    assert other.cursor()["epoch"] == 1


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_workers_that_are_kept_enter_a_stream_again(kind: str) -> None:
    loader = DataLoader(loading.Counting(17), 4, num_workers=2, worker=kind, keep_workers=True)
    first = numbers(loader)
    loader.set_epoch(0)
    assert numbers(loader) == first
    loader.close()


def test_without_workers_nothing_is_read_ahead_of_use(tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = iter(DataLoader(loading.Counting(100, log), 4))
    next(running)
    assert log.read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("count", [0, 2])
def test_a_stream_that_can_be_entered_in_the_middle_is(count: int) -> None:
    loader = DataLoader(loading.Epochs(), 4, num_workers=count)
    loader.load_cursor({**loader.cursor(), "epoch": 2, "position": 8})
    assert [b.tolist() for b in loader] == [[2008, 2009, 2010]]
    assert next(iter(loader)).tolist() == [3000, 3001, 3002, 3003]


def test_augmentations_of_a_stream_are_those_of_an_array_of_the_same_samples() -> None:
    class Images(IterableDataset):
        def __iter__(self) -> Any:
            return iter(arrays)

    arrays = np.random.default_rng(0).random((10, 4, 4))
    options: dict[str, Any] = {"augment": RandomHorizontalFlip(), "seed": 4}
    streamed = [b.tolist() for b in DataLoader(Images(), 3, **options)]
    assert streamed == [b[0].tolist() for b in DataLoader(ArrayDataset(arrays), 3, **options)]


def test_the_first_batch_of_a_stream_can_be_looked_at() -> None:
    loader = DataLoader(loading.Counting(2), 4)
    assert loader.first()[1].tolist() == [0, 1]
    assert loader.cursor()["position"] == 0
    with pytest.raises(LoaderError, match="full batch of 4"):
        DataLoader(loading.Counting(2), 4, drop_last=True).first()


def test_a_stream_is_divided_over_devices_and_moved() -> None:
    pieces = DataLoader(loading.Counting(5), 4).to("cpu:1").sharded(["cpu:1", "numpy"], lambda rows: [1, rows - 1]).first()
    assert [p[1].device.name for p in pieces] == ["cpu:1", "numpy:0"]


def test_the_length_of_a_stream_is_known_if_it_says_so() -> None:
    assert len(DataLoader(loading.Counted(17), 4)) == 5
    loader = DataLoader(loading.Counting(17), 4)
    with pytest.raises(UnknownLengthError, match="without __len__"):
        len(loader)
    assert repr(loader) == 'DataLoader("train", batches of 4, on cpu:0)'
    assert len(list(loader)) == 5


@pytest.mark.parametrize("count", [0, 2])
def test_a_stream_shorter_than_its_length_is_refused_where_it_ends(count: int) -> None:
    running = iter(DataLoader(loading.Short(6), 4, num_workers=count))
    assert next(running)[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(LoaderError, match="gives 9 samples") as caught:
        next(running)
    assert "6 samples in epoch 0" in str(caught.value)


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_of_a_stream_names_the_sample(count: int) -> None:
    def failing(sample: Any) -> Any:
        if sample[1] == 6:
            raise KeyError("six")
        return sample

    running = iter(DataLoader(loading.Counting(20), 4, num_workers=count, sample_transform=failing))
    next(running)
    with pytest.raises(SampleError, match="reading sample 6 raised KeyError"):
        next(running)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: DataLoader(loading.Counting(4), 2, shuffle=True), "one order"),
        (lambda: DataLoader(loading.Counting(4), 2, sampler=lambda seed, epoch: [0]), "one order"),
        (lambda: DataLoader(loading.Counting(4), 2).slice(0, 2), "slice chooses"),
        (lambda: DataLoader(loading.Counting(4), 2).split(["cpu:0"]), "split chooses"),
        (lambda: list(DataLoader(loading.Counting(0), 2)), "empty stream"),
        (lambda: list(DataLoader(loading.Counting(0), 2, num_workers=2)), "empty stream"),
        (lambda: DataLoader(loading.Counting(0), 2).first(), "empty stream"),
        (lambda: DataLoader(loading.Counted(0), 2), "empty data set"),
        (lambda: DataLoader(iter([1, 2]), 2), "IterableDataset"),  # type: ignore[arg-type]
        (lambda: DataLoader(loading.Counted(4), 2).load_cursor(DataLoader(loading.Counting(4), 2).cursor()), "samples -1"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(call: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=text) as caught:
        call()
    assert caught.value.remedy
