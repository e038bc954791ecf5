"""A cursor goes on with the samples and the order that it was saved in, and with no others."""

import json
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loading
import numpy as np
import pytest
import torch

import firebrick as fb
from firebrick.data import (
    ArrayDataset,
    BucketSampler,
    DataLoader,
    IterableDataset,
    LoaderError,
    RandomHorizontalFlip,
    RandomSampler,
    Subset,
    UncheckedCursorWarning,
    WeightedSampler,
    WindowDataset,
)
from firebrick.data.assembly import Job, reading, worker_info
from firebrick.data.identity import chosen_rows, fingerprint

N = 20
X = np.random.default_rng(0).normal(size=(N, 3))
Y = np.arange(N)


def loader(data: Any = None, **options: Any) -> DataLoader:
    options = {"shuffle": "sampler" not in options, "seed": 3, **options}
    return DataLoader(ArrayDataset(X, Y) if data is None else data, 4, **options)


def saved(of: DataLoader, batches: int = 3) -> dict[str, Any]:
    """A loader's cursor after some batches, as a checkpoint gives it back."""
    running = iter(of)
    for _ in range(batches):
        next(running)
    cursor = json.loads(json.dumps(of.cursor()))
    running.close()
    return cursor


def other(change: Callable[[np.ndarray[Any, Any]], Any]) -> ArrayDataset:
    x = X.copy()
    return ArrayDataset(change(x), Y)


def negated(x: Any) -> Any:
    x[:] = -x
    return x


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (lambda: loader(shuffle=False), "order: shuffled saved, as stored found"),
        (lambda: loader(sampler=WeightedSampler(np.ones(N))), "order: shuffled saved, sampler WeightedSampler found"),
        (lambda: loader(seed=4), "seed 3 saved, 4 found"),
        (lambda: loader(other(negated)), "values of the samples"),
        (lambda: loader(other(lambda x: x.astype(np.float32))), r"a sample: \(float64\[3\], int64\[\]\) saved, \(float32"),
        (lambda: loader(other(lambda x: x[:, :2])), r"float64\[2\], int64\[\]\) found"),
        (lambda: loader(ArrayDataset(X[:16], Y[:16])), "samples 20 saved, 16 found"),
        (lambda: loader(ArrayDataset(np.tile(X, (2, 1)), np.tile(Y, 2))).slice(0, N), "samples of the data set: 20 saved, 40"),
        (lambda: DataLoader(ArrayDataset(X, Y), 3, shuffle=True, seed=3, drop_last=True), "samples 20 saved, 18 found"),
    ],
)
def test_a_cursor_of_another_order_or_of_other_data_is_refused_by_name(found: Callable[[], DataLoader], text: str) -> None:
    cursor, goal = saved(loader()), found()
    before = goal.cursor()
    with pytest.raises(LoaderError, match=text) as caught:
        goal.load_cursor(cursor)
    assert "set_epoch(0)" in caught.value.remedy
    assert goal.cursor() == before


def test_all_that_differs_is_listed() -> None:
    with pytest.raises(LoaderError) as caught:
        loader(ArrayDataset(X[:16, :2], Y[:16]), seed=9).load_cursor(saved(loader()))
    assert all(t in caught.value.received for t in ("samples 20", "seed 3", "samples of the data set: 20", "a sample: "))


def backwards(seed: int, epoch: int) -> Any:
    return np.arange(N)[::-1]


def rolled(seed: int, epoch: int) -> Any:
    return np.roll(np.arange(N), epoch + 1)


@pytest.mark.parametrize(
    ("was", "found"),
    [
        (backwards, rolled),
        (WeightedSampler(np.arange(N) + 1.0), WeightedSampler(np.arange(N)[::-1] + 1.0)),
        (BucketSampler(range(N), 4), BucketSampler(range(N), 5)),
    ],
)
def test_samplers_are_told_apart_by_the_numbers_they_give(was: Any, found: Any) -> None:
    cursor = saved(loader(sampler=was))
    with pytest.raises(LoaderError, match="order: sampler"):
        loader(sampler=found).load_cursor(cursor)
    again = loader(sampler=was)
    again.load_cursor(cursor)
    assert [y.tolist() for _, y in again] == [y.tolist() for _, y in loader(sampler=was)][3:]


def test_what_gives_the_same_order_of_the_same_samples_goes_on_however_it_was_made() -> None:
    rest = [y.tolist() for _, y in loader()][3:]
    ways = [
        loader(sampler=RandomSampler(N)),
        loader(Subset(ArrayDataset(X, Y), range(N))),
        loader(num_workers=2, worker="thread"),
        pickle.loads(pickle.dumps(loader())),
        loader().to("numpy:1"),
        loader().slice(0),
    ]
    for found in ways:
        found.load_cursor(saved(loader()))
        assert [y.tolist() for _, y in found] == rest


def test_slices_and_shards_go_on_with_their_own_samples_alone() -> None:
    halves = [lambda: loader().slice(0, 10), lambda: loader().slice(10, 20)]
    halves[0]().load_cursor(saved(halves[0](), 1))
    with pytest.raises(LoaderError, match="order: shuffled, with one order"):
        halves[1]().load_cursor(saved(halves[0](), 1))
    shards = loader().split(["cpu:0", "cpu:1"])
    with pytest.raises(LoaderError, match="order"):
        shards[1].load_cursor(saved(shards[0], 1))
    ranks = [loader().sharded(["cpu:0"] * 2, lambda rows: [rows // 2, rows - rows // 2], only=r) for r in range(2)]
    ranks[1].load_cursor(saved(ranks[0]))
    assert ranks[0].cursor()["data"] == ranks[1].cursor()["data"]


class Lines(IterableDataset):
    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Any:
        return (np.float64(i) for i in range(self.first, self.first + N))


def test_streams_are_told_apart_by_their_first_samples() -> None:
    cursor = saved(DataLoader(Lines(0), 4))
    with pytest.raises(LoaderError, match="values of the samples"):
        DataLoader(Lines(1), 4).load_cursor(cursor)
    with pytest.raises(LoaderError, match="order: a stream saved, as stored found"):
        DataLoader(ArrayDataset(np.arange(0.0, N)), 4).load_cursor({**cursor, "samples": N})
    going = DataLoader(Lines(0), 4)
    going.load_cursor(cursor)
    assert next(iter(going)).tolist() == [12, 13, 14, 15]


def test_a_cursor_of_an_earlier_version_is_taken_with_a_warning() -> None:
    found = loader()
    with pytest.warns(UncheckedCursorWarning, match="earlier versions"):
        found.load_cursor({"epoch": 0, "position": 12, "samples": N, "seed": 3})
    assert found.cursor()["position"] == 12
    with pytest.raises(LoaderError, match="samples 9"):
        loader().load_cursor({"epoch": 0, "position": 8, "samples": 9, "seed": 3})


class Drawing(loading.Numbers):
    """Samples changed at random, by generators that a fingerprint must leave as they are."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw

    def __getitem__(self, index: int) -> Any:
        return index + self.draw()


class OwnGenerator(loading.Numbers):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def __getitem__(self, index: int) -> Any:
        return index + self.rng.random()


class Handle(loading.Numbers):
    """A sample with a value that no array holds."""

    def __getitem__(self, index: int) -> Any:
        return object()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (lambda: Drawing(random.random), "draw random numbers from random"),
        (lambda: Drawing(np.random.random), "draw random numbers from numpy.random"),
        (lambda: Drawing(lambda: torch.rand(()).item()), "draw random numbers from torch"),
        (lambda: Drawing(lambda: fb.random.uniform(()).item()), "draw random numbers from firebrick.random"),
        (OwnGenerator, "differ from one reading to the next"),
        (Handle, "holds a object, which is no array"),
        (lambda: loading.Raising(0), "ZeroDivisionError: the cat ate it"),
    ],
)
def test_data_that_cannot_be_compared_say_why_and_stay_as_they_were(data: Callable[[], Any], why: str) -> None:
    def seeded() -> None:
        random.seed(1), np.random.seed(1), fb.random.seed(1), torch.manual_seed(1)  # noqa: NPY002 - what users do

    def drawn() -> tuple[float, ...]:
        return random.random(), np.random.random(), fb.random.uniform(()).item(), torch.rand(()).item()  # noqa: NPY002

    seeded()
    made = data()
    first, second = fingerprint(made), fingerprint(made)
    assert first == second
    assert why in first["unread"]
    after = drawn()
    seeded()
    assert after == drawn()
    if isinstance(made, OwnGenerator):
        assert made.rng.random() == np.random.default_rng(5).random()
    with pytest.warns(UncheckedCursorWarning, match=why.split(",")[0]):
        loader(made).load_cursor({**loader(made).cursor(), "position": 8})


def test_samples_drawn_with_their_own_seed_can_be_compared() -> None:
    assert fingerprint(loading.Noise())["digest"] == fingerprint(loading.Noise())["digest"]
    with pytest.raises(LoaderError, match="values of the samples"):
        DataLoader(loading.Noise(), 4).load_cursor(saved(DataLoader(loading.Numbers(), 4)) | {
            "data": {**fingerprint(loading.Noise()), "digest": "0"}
        })  # fmt: skip


def test_who_reads_is_known_within_a_reading_only_and_within_another_one_again() -> None:
    places = np.arange(2)
    job = Job(0, places, places, np.empty((2, 0), np.uint32), 0, 0, 0)
    assert worker_info() is None
    with reading(job, 1, 3) as outer:
        with reading(job, 2, 3) as inner:
            assert worker_info() is inner
        assert worker_info() is outer
        with pytest.raises(ZeroDivisionError), reading(job):
            raise ZeroDivisionError
        assert worker_info() is outer
    assert worker_info() is None


class Opening(loading.Numbers):
    """What opens a file when it is first read, and pickles only before that."""

    file: Any = None

    def __getitem__(self, index: int) -> Any:
        self.file = self.file or open(__file__)  # noqa: SIM115 - as data sets do
        return index


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_cursor_leaves_a_data_set_as_it_pickles() -> None:
    for data in (Opening(), Subset(Opening(), range(8))):
        assert "digest" in DataLoader(data, 4).cursor()["data"]
        pickle.dumps(data)


@pytest.mark.parametrize(
    "sample",
    [
        None,
        "text",
        b"bytes",
        3,
        2.5,
        True,
        1 << 70,
        {"a": [1, (2.0, "b")]},
        np.float32(1),
        Path("a/b.png"),
        np.array([[1, None]]),
    ],
)
def test_samples_of_any_plain_values_have_a_fingerprint(sample: Any) -> None:
    class Same(loading.Numbers):
        def __getitem__(self, index: int) -> Any:
            return sample, np.datetime64("2020-01-01"), fb.ones(2)

    assert "digest" in fingerprint(Same()), fingerprint(Same())


def test_a_data_set_may_say_itself_what_it_holds() -> None:
    class Named(loading.Numbers):
        def __init__(self, name: str) -> None:
            self.name = name

        def fingerprint(self) -> str:
            return self.name

    cursor = saved(DataLoader(Named("a"), 4))
    DataLoader(Named("a"), 4).load_cursor(cursor)
    for data in (Named("b"), Subset(Named("b"), range(loading.SAMPLES))):
        with pytest.raises(LoaderError, match="values of the samples"):
            DataLoader(data, 4).load_cursor(cursor)


def test_a_fingerprint_reads_few_samples_once_and_changes_no_augmentation() -> None:
    read: list[int] = []

    class Counting(loading.Numbers):
        def __getitem__(self, index: int) -> Any:
            read.append(index)
            return np.full((4, 4), index)

    made = DataLoader(Counting(), 4, augment=RandomHorizontalFlip(), shuffle=True)
    for _ in range(3):
        made.cursor()
        made.to("numpy").cursor()
    assert len(read) == 16
    assert {0, loading.SAMPLES - 1} <= set(read)
    plain = DataLoader(Counting(), 4, augment=RandomHorizontalFlip(), shuffle=True)
    assert [b.tolist() for b in made] == [b.tolist() for b in plain]


def test_a_cursor_within_an_epoch_has_the_digest_of_its_order_without_making_the_order_again() -> None:
    asked: list[int] = []

    def sampler(seed: int, epoch: int) -> Any:
        asked.append(epoch)
        return np.roll(np.arange(N), epoch)

    made = loader(sampler=sampler)
    running = iter(made)
    asked.clear()
    for _ in range(2):
        next(running)
        made.cursor()
    assert asked == [0]


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    program = (
        "import json, numpy as np\nfrom firebrick.data import *\nfrom firebrick.data.identity import fingerprint\n"
        "x = np.random.default_rng(0).normal(size=(20, 3))\n"
        "print(json.dumps([fingerprint(ArrayDataset(x, np.arange(20))), fingerprint(WindowDataset(x, 3, 2))]))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(found.stdout) == [fingerprint(ArrayDataset(X, Y)), fingerprint(WindowDataset(X, 3, 2))]


def test_an_equal_cursor_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader().load_cursor(saved(loader()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: None, "NoneType None"),
        (lambda c: "x", "str 'x'"),
        (lambda c: [c], "list"),
        (lambda c: {}, "dict {}"),
        (lambda c: {"seed": 3}, "no epoch, no position"),
        (lambda c: {**c, "epoch": 2**70}, "epoch 1180591620717411303424"),
        (lambda c: {**c, "epoch": None}, "epoch None"),
        (lambda c: {**c, "position": 1.5}, r"position 1\.5"),
        (lambda c: {**c, "position": True}, "position True"),
        *((lambda c, v=v: {**c, "samples": v}, "samples ") for v in ("x", None, [1], True, 2.0)),
        (lambda c: {**c, "batch_size": "x"}, "batch_size 'x'"),
        (lambda c: {**c, "order": {"kind": 3}}, "order {'kind': 3}"),
        (lambda c: {**c, "order": "shuffled"}, "order 'shuffled'"),
        (lambda c: {**c, "data": [1]}, r"data \[1\]"),
        (lambda c: {**c, "data": {"digest": "x"}}, "data {'digest': 'x'}"),
    ],
)
def test_what_is_no_cursor_is_refused_and_changes_nothing(change: Callable[[Any], Any], text: str) -> None:
    data, cursor = loader(), saved(loader())
    with pytest.raises(LoaderError, match="a cursor is a dict") as caught:
        data.load_cursor(change(cursor))
    caught.match(text)
    assert (data.cursor()["epoch"], data.cursor()["position"]) == (0, 0)


def test_each_sample_that_is_compared_is_read_with_the_seed_of_its_place() -> None:
    read: list[tuple[int, int]] = []

    class Seeds(loading.Numbers):
        def __getitem__(self, index: int) -> Any:
            info = worker_info()
            assert info is not None
            read.append((index, info.seed))
            return index

    fingerprint(Seeds())
    places = np.array(chosen_rows(loading.SAMPLES))
    with reading(Job(0, places, places, np.empty((8, 0), np.uint32), 0, 0, 0)) as info:
        want = list(zip(places.tolist(), info.seeds.tolist(), strict=True))
    assert read == want * 2
    assert len({seed for _, seed in read}) == 8
    assert chosen_rows(loading.SAMPLES) == [0, 5, 10, 15, 20, 25, 30, 36]
    assert chosen_rows(3) == [0, 1, 2]
    assert chosen_rows(1) == [0]
