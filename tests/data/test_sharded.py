"""A loader whose batches are divided over several devices: the same rows, in the same order, on the right devices."""

import itertools
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import ArrayDataset, DataLoader, LoaderError, RandomCrop, RandomHorizontalFlip, Subset, collate, worker_info

N = 23


def made(batch_size: int = 4, **options: Any) -> DataLoader:
    numbers = np.arange(N)
    return DataLoader(ArrayDataset(numbers.astype(np.float64), numbers), batch_size, **options)


def by_70_30(rows: int) -> list[int]:
    return [rows - rows * 3 // 10, rows * 3 // 10]


def joined(loader: DataLoader) -> list[list[int]]:
    return [list(itertools.chain(*(p[1].tolist() for p in pieces if p is not None))) for pieces in loader]


def test_the_pieces_of_a_batch_are_its_rows_in_order_each_on_its_device() -> None:
    wanted = [y.tolist() for _, y in made(shuffle=True, seed=3)]
    loader = made(shuffle=True, seed=3, device="numpy").sharded(["cpu:1", "numpy:1"], by_70_30)
    assert joined(loader) == wanted
    loader.set_epoch(0)
    for pieces in loader:
        rows = sum(len(p[0].tolist()) for p in pieces if p is not None)
        wanted_on = [{"cpu:1"}, {"numpy:1"}] if rows == 4 else [{"cpu:1"}]  # of the last 3 rows all fall to the first
        assert [{t.device.name for t in p} for p in pieces if p is not None] == wanted_on


def test_a_device_without_rows_gets_none() -> None:
    loader = made().sharded(["cpu:0", "cpu:1", "cpu:2"], lambda rows: [rows - 1, 0, 1])
    first = loader.first()
    assert first[1] is None
    assert (first[0][1].tolist(), first[2][1].tolist()) == ([0, 1, 2], [3])


def test_each_piece_says_which_rows_of_which_batch_it_is() -> None:
    loader = made(8).sharded(["cpu:0", "cpu:1"], lambda rows: [rows - 1, 1])
    second = list(itertools.islice(loader, 2))[1]
    assert [p[0].label for p in second] == ['rows 0 to 6 of batch 1 of loader "train"', 'row 7 of batch 1 of loader "train"']


def test_a_batch_of_one_tensor_is_divided_into_tensors() -> None:
    pieces = made(transform=lambda x, y: x).sharded(["cpu:0", "cpu:1"], by_70_30).first()
    assert [p.tolist() for p in pieces] == [[0.0, 1.0, 2.0], [3.0]]


def test_samples_length_and_cursor_are_those_of_the_loader_divided() -> None:
    loader = made(shuffle=True)
    divided = loader.sharded(["cpu:1", "cpu:2"], by_70_30)
    assert (divided.samples, len(divided), divided.cursor()) == (loader.samples, len(loader), loader.cursor())
    running = iter(divided)
    next(running)
    loader.load_cursor(divided.cursor())
    assert joined(divided)[1:] == [y.tolist() for _, y in loader]


def test_the_last_device_wins_over_shards_too() -> None:
    divided = made(device="numpy").sharded(["cpu:1", "cpu:2"], by_70_30)
    assert divided.device.name == "cpu:1"
    assert divided.to("cpu:3").first()[0].device.name == "cpu:3"
    assert [s.first()[0].device.name for s in divided.split(["cpu:2", "cpu:3"])] == ["cpu:2", "cpu:3"]
    (again,) = divided.sharded(["numpy:1"], lambda rows: [rows]).first()
    assert again[0].device.name == "numpy:1"
    assert joined(divided.slice(3, 9)) == [[3, 4, 5, 6], [7, 8]]


def test_one_rank_of_several_is_given_its_rows_and_the_number_of_all() -> None:
    whole = [list(pieces) for pieces in made(shuffle=True).sharded(["cpu:1", "cpu:1"], by_70_30)]
    for rank in (0, 1):
        portions = list(made(shuffle=True).sharded(["cpu:1", "cpu:1"], by_70_30, only=rank))
        assert [p.rows for p in portions] == [4, 4, 4, 4, 4, 3]
        for portion, pieces in zip(portions, whole, strict=True):
            if pieces[rank] is None:
                assert portion.piece is None
            else:
                assert portion.piece[1].tolist() == pieces[rank][1].tolist()
                assert portion.piece[0].label == pieces[rank][0].label


class Rows:
    """Numbers, and which of them were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int, /) -> tuple[Any, Any]:
        self.read.append(index)
        return np.random.default_rng(worker_info().seed).random((2, 2)), index  # type: ignore[union-attr]


def unequal(rows: int) -> list[int]:
    return [rows - rows // 4 * 2, 0, rows // 4 * 2]


def by_row(x: Any, y: Any) -> Any:
    return x * 2.0, y


by_row.by_rows = True  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "worker": "process"}])
@pytest.mark.parametrize("changes", [{}, {"transform": by_row}, {"augment": [RandomHorizontalFlip(0.5), RandomCrop(1)]}])
def test_a_rank_reads_its_rows_alone_and_gets_what_it_would_of_the_whole(options: Any, changes: Any) -> None:
    devices = ["cpu:0"] * 3
    whole = DataLoader(Rows(), 4, shuffle=True, seed=5, **changes).sharded(devices, unequal)
    expected = [[list(pieces) for pieces in whole] for _ in range(2)]
    for rank in range(3):
        data = Rows()
        loader = DataLoader(data, 4, shuffle=True, seed=5, **changes, **options).sharded(devices, unequal, only=rank)
        assert loader.samples == N
        for epoch in expected:
            found = list(loader)
            assert [p.rows for p in found] == [4, 4, 4, 4, 4, 3]
            for portion, pieces in zip(found, epoch, strict=True):
                assert (portion.piece is None) == (pieces[rank] is None)
                for a, b in zip(portion.piece or (), pieces[rank] or (), strict=True):
                    assert a.tolist() == b.tolist()
                    assert a.label == b.label
        if "worker" not in options:  # else others have read
            assert len(data.read) == 2 * sum(unequal(n)[rank] for n in (4, 4, 4, 4, 4, 3))


def test_samples_of_a_subset_have_seeds_of_their_own_on_every_rank() -> None:
    kept = Subset(Rows(), range(3, N))
    whole = [x.tolist() for x, _ in DataLoader(kept, 4, seed=5)]
    plain = [x.tolist() for x, _ in DataLoader(Rows(), 4, seed=5)]
    assert whole[0] == plain[0]  # the seed is the place's, whatever sample lies there
    assert len({str(row) for row in whole[0]}) == 4
    own = DataLoader(kept, 4, seed=5).sharded(["cpu:0"] * 2, by_70_30, only=1)
    assert [p.piece[0].tolist() for p in own] == [x[3:] for x in whole]


class Padded(Rows):
    """Reads whole batches, and looks at all of one."""

    def fetch(self, indices: Any) -> Any:
        self.read += indices.tolist()
        return np.asarray([[i, indices.max()] for i in indices]), indices


class Stated(Padded):
    by_rows = True


class Derived(Stated):
    def fetch(self, indices: Any) -> Any:
        return Padded.fetch(self, indices)


class Marked(RandomHorizontalFlip):
    pass


class Rewritten(RandomHorizontalFlip):
    def __call__(self, words: Any, *arrays: Any) -> Any:
        return super().__call__(words, *arrays)


@pytest.mark.parametrize(
    ("data", "changes", "alone"),
    [
        (Padded, {}, False),
        (Stated, {}, True),
        (Derived, {}, False),
        (Rows, {"augment": [Marked()]}, True),
        (Rows, {"augment": [Rewritten()]}, False),
    ],
)
def test_what_says_nothing_of_rows_gets_the_whole_batch(data: Any, changes: Any, alone: bool) -> None:
    made = data()
    for portion in DataLoader(made, 4, **changes).sharded(["cpu:0"] * 2, by_70_30, only=1):
        if not alone and data is not Rows and portion.piece is not None:
            assert portion.piece[0].tolist()[-1][1] == portion.piece[0].tolist()[-1][0]
    assert len(made.read) == (5 if alone else N)  # of five batches a row is the second rank's


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_is_not_divided_right_is_refused_in_its_turn(workers: int) -> None:
    def wrong(rows: int) -> list[int]:
        return [rows, 0] if rows == 4 else [rows + 1, 0]

    running = iter(DataLoader(Rows(), 4, num_workers=workers).sharded(["cpu:0"] * 2, wrong, only=0))
    assert [next(running).rows for _ in range(5)] == [4] * 5
    with pytest.raises(LoaderError, match=r"divide\(3\) gives 2 numbers"):
        next(running)


# batches in turn


def dealt(loader: DataLoader) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"shuffle": True, "drop_last": True}])
def test_batches_are_dealt_in_turn_and_each_once(options: Any) -> None:
    whole = dealt(made(**options))
    parts = [dealt(made(**options).dealt(4, n)) for n in range(4)]
    assert parts == [whole[n::4] for n in range(4)]
    again = made(**options).dealt(2, 1).dealt(2, 0)
    assert dealt(again) == whole[1::4]


def test_a_dealt_loader_goes_on_where_it_stood() -> None:
    whole = dealt(made())
    loader = made().dealt(2, 0)
    running = iter(loader)
    next(running)
    again = made().dealt(2, 0)
    again.load_cursor(loader.cursor())
    assert dealt(again) == whole[2::2]


def test_what_cannot_be_dealt_is_refused() -> None:
    for number, count in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(LoaderError, match="from 0 up to their count"):
            made().dealt(count, number)
    with pytest.raises(LoaderError, match="call slice first"):
        made().dealt(2, 1).slice(0, 4)
    with pytest.raises(LoaderError, match="none of its 6 batches"):
        made().dealt(8, 7).first()
    assert dealt(made().dealt(8, 7)) == []


def test_a_ranks_cursor_counts_the_rows_of_all() -> None:
    loader = DataLoader(Rows(), 4, shuffle=True, seed=5).sharded(["cpu:0"] * 3, unequal, only=1)
    running = iter(loader)
    assert [next(running).piece for _ in range(2)] == [None, None]
    assert loader.cursor()["position"] == 8
    again = DataLoader(Rows(), 4, shuffle=True, seed=5).sharded(["cpu:0"] * 3, unequal, only=0)
    again.load_cursor(loader.cursor())
    assert next(iter(again)).piece[0].label == 'rows 0 to 1 of batch 2 of loader "train"'


@pytest.mark.parametrize(
    "changes",
    [
        {"transform": lambda x, y: (x - x.mean(0), y)},
        {"collate": collate},
        {"augment": type("Mixed", (), {"per_sample": 1, "__call__": lambda self, words, x, y: (x[::-1], y)})()},
    ],
)
def test_what_may_look_at_other_rows_gets_the_whole_batch(changes: Any) -> None:
    data = Rows()
    whole = DataLoader(Rows(), 4, **changes).sharded(["cpu:0"] * 2, by_70_30)
    own = DataLoader(data, 4, **changes).sharded(["cpu:0"] * 2, by_70_30, only=1)
    for pieces, portion in zip(whole, own, strict=True):
        if pieces[1] is not None:
            assert pieces[1][0].tolist() == portion.piece[0].tolist()
    assert len(data.read) == N


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: made().sharded([], by_70_30), "at least one device"),
        (lambda: made().sharded("cpu:0", by_70_30), "list of devices"),
        (lambda: made().sharded(["cpu:0", "cpu:1"], by_70_30, only=2), "only 2"),
        (lambda: made().sharded(["cpu:0", "cpu:1"], lambda rows: [rows]).first(), "2 numbers of rows"),
        (lambda: made().sharded(["cpu:0", "cpu:1"], lambda rows: [rows, 1]).first(), r"\[4, 1\]"),
        (lambda: made().sharded(["cpu:0", "cpu:1"], lambda rows: [rows + 1, -1]).first(), r"\[5, -1\]"),
        (lambda: made(transform=lambda x, y: (x[:1], y)).sharded(["cpu:0"], lambda n: [n]).first(), r"float64\[1\]"),
    ],
)
def test_a_division_that_cannot_be_is_refused(call: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=text) as caught:
        call()
    assert caught.value.remedy


def test_an_unknown_device_among_several_is_refused() -> None:
    with pytest.raises(fb.DeviceError):
        made().sharded(["cpu:0", "tpu"], by_70_30)
