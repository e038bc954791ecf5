"""Batches in a seeded order that no device, slice or split changes, and always on the loader's device."""

import itertools
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import ArrayDataset, DataLoader, LoaderError, Pixels, SampleError, Subset, holdout, permutation

N = 23
PINNED = [7, 0, 6, 2, 1, 3, 5, 4]  # permutation(0, 0, 8)


def made(batch_size: int = 4, **options: Any) -> DataLoader:
    numbers = np.arange(N)
    return DataLoader(ArrayDataset(numbers.astype(np.float64), numbers.astype(np.uint8)), batch_size, **options)


def labels(loader: DataLoader) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


def flat(loader: DataLoader) -> list[int]:
    return list(itertools.chain(*labels(loader)))


def devices(loader: DataLoader) -> set[str]:
    """Where all batches of an epoch lie; the loader's own cursor stays."""
    return {t.device.name for batch in copy(loader) for t in batch}


# on the right device, whatever was done before


def test_a_loader_built_on_numpy_and_moved_gives_batches_on_the_new_device() -> None:
    assert devices(made(device="numpy").to("cpu:1")) == {"cpu:1"}


def test_slice_then_to_and_to_then_slice_are_the_same() -> None:
    one = made(device="numpy", shuffle=True).slice(3, 17).to("cpu:1")
    other = made(device="numpy", shuffle=True).to("cpu:1").slice(3, 17)
    assert devices(one) == devices(other) == {"cpu:1"}
    assert labels(one) == labels(other)


def test_a_split_over_one_device_moves_the_batches_there() -> None:
    (shard,) = made(device="numpy", shuffle=True).split(["cpu:1"])
    assert devices(shard) == {"cpu:1"}
    assert labels(shard) == labels(made(shuffle=True))
    assert shard.name == "train"


def test_each_shard_of_a_split_is_on_its_own_device() -> None:
    assert [devices(s) for s in made().split(["cpu:1", "numpy", "cpu:3"])] == [{"cpu:1"}, {"numpy:0"}, {"cpu:3"}]


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_device_wins_with_one_shard_as_with_many(count: int) -> None:
    for shard in made(device="numpy").split(["cpu:1"] * count):
        assert devices(shard.to("cpu:2").slice(0, 4)) == {"cpu:2"}
    for shard in made(device="numpy").to("cpu:2").split(["cpu:1"] * count):
        assert devices(shard) == {"cpu:1"}


def test_without_a_device_the_default_at_construction_is_used() -> None:
    with fb.use_device("cpu:3"):
        loader = made()
    assert devices(loader) == {"cpu:3"}


def test_an_unknown_device_is_refused_at_construction() -> None:
    with pytest.raises(fb.DeviceError):
        made(device="tpu")


# the order


def test_every_device_and_split_sees_the_same_order() -> None:
    wanted = labels(made(shuffle=True, seed=7))
    assert labels(made(shuffle=True, seed=7, device="numpy:1")) == wanted
    for count in (1, 2, 3, 4):
        shards = [labels(s) for s in made(shuffle=True, seed=7).split([f"cpu:{i}" for i in range(count)])]
        joined = [list(itertools.chain(*pieces)) for pieces in itertools.zip_longest(*shards, fillvalue=[])]
        assert joined == wanted


def test_an_epoch_shows_each_sample_once_in_an_order_of_its_own() -> None:
    loader = made(shuffle=True)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == list(range(N))
    assert first != second
    loader.set_epoch(0)
    assert flat(loader) == first
    assert flat(made(shuffle=True, seed=1)) != first
    assert flat(made()) == list(range(N))


def test_the_permutation_is_pinned_so_that_runs_can_be_repeated_years_later() -> None:
    assert permutation(0, 0, 8).tolist() == PINNED
    assert permutation(1 << 40, 3, 100).tolist() != permutation(0, 3, 100).tolist()


def test_a_permutation_is_fair() -> None:
    counts = np.zeros((4, 4), np.int64)
    for epoch in range(2000):
        counts[np.arange(4), permutation(5, epoch, 4)] += 1
    assert np.abs(counts - 500).max() < 100  # 5 standard deviations of a fair one are 97


def test_slices_are_of_positions_after_the_shuffle_and_nest() -> None:
    whole = flat(made(shuffle=True))
    assert flat(made(shuffle=True).slice(5, 20)) == whole[5:20]
    assert flat(made(shuffle=True).slice(5, 20).slice(2, 9)) == whole[7:14]
    assert flat(made(shuffle=True).slice(5)) == whole[5:]


def test_new_loaders_leave_the_old_one_as_it_was() -> None:
    loader = made(shuffle=True)
    wanted = flat(loader)
    loader.set_epoch(0)
    for other in (loader.slice(2, 9), loader.to("cpu:1"), *loader.split(["cpu:1", "cpu:2"])):
        flat(other)
    assert loader.cursor()["epoch"] == 0
    assert flat(loader) == wanted
    assert loader.device.name == "cpu:0"


def test_drop_last_leaves_out_the_small_batch_in_every_shard() -> None:
    loader = made(drop_last=True)
    assert [len(b) for b in labels(loader)] == [4] * 5
    assert len(loader) == 5
    assert loader.samples == 20
    assert sorted(itertools.chain(*(flat(s) for s in loader.split(["cpu:0", "cpu:1"])))) == list(range(20))


# what a batch is


def test_floats_come_as_float32_and_integers_as_the_devices_default(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = made().first()
    assert (x.dtype, y.dtype) == (fb.float32, fb.int64)
    assert made(dtype="float64").first()[0].dtype is fb.float64
    device = fb.device("cpu:2")
    monkeypatch.setattr(type(device.backend), "default_int", lambda self, device: "int32")
    assert made(device=device).first()[1].dtype is fb.int32
    huge = DataLoader(ArrayDataset(np.array([1 << 40])), 1, device=device)
    with pytest.raises(LoaderError, match="range of int32"):
        huge.first()


@pytest.mark.parametrize(("dtype", "number"), [("float32", 1e300), ("float16", 70000.0)])
def test_numbers_out_of_the_range_of_the_loaders_dtype_are_refused_and_not_made_infinite(dtype: str, number: float) -> None:
    data = ArrayDataset(np.array([np.inf, 1.0, number]))
    with pytest.raises(
        LoaderError, match=rf'range of {dtype}\nReceived: arrays\[0\] of batch 0 of loader "train": up to'
    ) as caught:
        DataLoader(data, 3, dtype=dtype).first()
    assert "dtype='float64'" in caught.value.remedy
    assert DataLoader(data, 3, dtype="float64").first()[0].tolist() == [np.inf, 1.0, number]


def test_batches_carry_their_number_and_loader_for_error_messages() -> None:
    assert [x.label for x, _ in made(10)] == [f'batch {i} of loader "train"' for i in range(3)]
    assert made(name="test").split(["cpu:0", "cpu:1"])[1].first()[0].label == 'batch 0 of loader "test, shard 1 of 2"'


def test_a_data_set_without_fetch_is_asked_sample_by_sample() -> None:
    class Squares:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return np.float64(index * index)

    (first, *_, last) = DataLoader(Squares(), 2)
    assert first.tolist() == [0.0, 1.0]
    assert last.tolist() == [16.0]


@dataclass(frozen=True)
class Pair:
    x: Any
    y: Any


def _pairs(x: Any) -> dict[str, Any]:
    """Data sets that give rows of one array, in samples of every structure."""
    return {
        "tuple": [(row, 0) for row in x],
        "list": [[row, 0] for row in x],
        "dict": [{"x": row, "y": 0} for row in x],
        "dataclass": [Pair(row, 0) for row in x],
        "array": ArrayDataset(x),
    }


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "dataclass", "array"])
@pytest.mark.parametrize("of_torch", [False, True])
def test_a_sample_transform_that_writes_into_its_sample_leaves_the_data_set_as_it_was(kind: str, of_torch: bool) -> None:
    x: Any = np.arange(6.0).reshape(3, 2)
    if of_torch:
        if kind == "array":
            pytest.skip("an ArrayDataset holds NumPy arrays")
        x = pytest.importorskip("torch", reason="torch, whose rows are views too").from_numpy(x)

    def halved(sample: Any) -> Any:
        row = sample.x if isinstance(sample, Pair) else sample["x"] if isinstance(sample, dict) else sample[0]
        row *= 0.5
        return sample

    loader = DataLoader(_pairs(x)[kind], 3, sample_transform=halved, dtype="float64")
    for _ in range(2):
        (batch,) = loader
        rows = batch.x if isinstance(batch, Pair) else batch["x"] if isinstance(batch, dict) else batch[0]
        assert rows.tolist() == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]]
    assert x.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_samples_of_unequal_shape_are_named() -> None:
    class Ragged:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return (np.zeros(index + 1), 0)

    with pytest.raises(LoaderError, match="samples 0, 1"):
        DataLoader(Ragged(), 2).first()


def test_a_transform_sees_host_arrays_and_its_result_is_placed() -> None:
    loader = made(device="cpu:1", transform=lambda x, y: (x[:, None] * 2, y == 3))
    x, y = loader.first()
    assert x.tolist() == [[0.0], [2.0], [4.0], [6.0]]
    assert y.tolist() == [False, False, False, True]
    assert x.device is y.device is fb.device("cpu:1")


def test_pixels_normalises_with_a_channel_axis() -> None:
    images = np.array([[[0, 255], [51, 102]]], np.uint8)
    out, _ = Pixels(255, 0.2, 0.4)(images, None)
    assert out.shape == (1, 1, 2, 2)
    np.testing.assert_allclose(out[0, 0], (images[0] / 255 - 0.2) / 0.4, rtol=1e-6)
    with pytest.raises(LoaderError, match="uint8"):
        Pixels(255, 0.2, 0.4)(images.astype(np.float32))
    with pytest.raises(LoaderError, match=r"uint8\[1, 1, 2, 2\]"):
        Pixels(255, 0.2, 0.4)(images[:, None])
    assert Pixels(1, 0.0, 1.0)(images, None)[0].max() == 255.0
    for settings in ((0, 0.2, 0.4), (256, 0.2, 0.4), (255, 0.2, 0.0), (255, 0.2, float("nan"))):
        with pytest.raises(LoaderError, match="a maximum from 1 to 255 and a standard deviation above 0"):
            Pixels(*settings)


# where it is


def test_a_cursor_goes_on_to_the_sample_in_another_process_s_loader() -> None:
    loader = made(shuffle=True)
    flat(loader)
    running = iter(loader)
    seen = [next(running)[1].tolist() for _ in range(2)]
    cursor = loader.cursor()
    assert (cursor["epoch"], cursor["position"]) == (1, 8)
    fresh = made(shuffle=True)
    fresh.load_cursor(cursor)
    rest = labels(fresh)
    assert seen + rest == [y.tolist() for _, y in _epoch(1)]
    assert fresh.cursor()["epoch"] == 2


def _epoch(number: int) -> DataLoader:
    loader = made(shuffle=True)
    loader.set_epoch(number)
    return loader


def test_the_cursor_of_an_epoch_that_was_chosen_is_at_its_first_sample() -> None:
    loader = made(shuffle=True)
    next(iter(loader))
    loader.set_epoch(3)
    cursor = loader.cursor()
    assert (cursor["epoch"], cursor["position"]) == (3, 0)


def test_a_cursor_may_go_on_with_another_batch_size_and_keeps_batch_numbers() -> None:
    loader = made(4)
    running = iter(loader)
    next(running)
    other = made(2)
    other.load_cursor(loader.cursor())
    first = next(iter(other))
    assert first[1].tolist() == [4, 5]
    assert first[0].label == 'batch 2 of loader "train"'


def test_looking_at_the_first_batch_moves_nothing() -> None:
    loader = made(shuffle=True)
    loader.set_epoch(1)
    loader.load_cursor({**loader.cursor(), "position": 8})
    loader.first()
    assert loader.cursor()["position"] == 8
    assert len(flat(loader)) == N - 8


def test_an_epoch_left_early_starts_again() -> None:
    loader = made(shuffle=True)
    early = next(iter(loader))[1].tolist()
    assert labels(loader)[0] == early


@pytest.mark.parametrize(("change", "text"), [({"seed": 1}, "seed 1"), ({"samples": 9}, "samples 9"), ({"position": 99}, "99")])
def test_a_foreign_cursor_is_refused(change: dict[str, int], text: str) -> None:
    with pytest.raises(LoaderError, match=text):
        made().load_cursor({**made().cursor(), **change})


# what is refused


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: made(0), "at least one sample"),
        (lambda: made(-3), "batch_size -3"),
        (lambda: made(2.5), "whole number"),
        (lambda: DataLoader(ArrayDataset(np.zeros((0, 3))), 4), "empty data set"),
        (lambda: made(30, drop_last=True), "full batch of 30"),
        (lambda: made().slice(5, 5), "start 5, stop 5"),
        (lambda: made().slice(-1, 5), "start -1"),
        (lambda: made().slice(0, 24), "≤ 23"),
        (lambda: made().slice(0, 2.0), "stop is a whole number"),
        (lambda: made().split([]), "0 devices"),
        (lambda: made().split(["cpu:0"] * 5), "5 devices"),
        (lambda: made().split("cpu:0"), "list of devices"),
        (lambda: made().set_epoch(-1), "from 0"),
        (lambda: ArrayDataset(), "at least one array"),
        (lambda: ArrayDataset(np.zeros(3), np.zeros(4)), r"arrays\[1\]: float64\[4\]"),
        (lambda: ArrayDataset(fb.zeros(3)), "numpy()"),
        (lambda: Subset(ArrayDataset(np.zeros(3)), [3]), r"\[0, 3\)"),
        (lambda: holdout(ArrayDataset(np.zeros(3)), 1.5), "fraction 1.5"),
        (lambda: holdout(ArrayDataset(np.zeros(3)), 1.0), "fraction 1.0, 3 samples"),
        (lambda: holdout(ArrayDataset(np.zeros(3)), 0.0), "fraction 0.0"),
        (lambda: holdout(ArrayDataset(np.zeros(1)), 0.5), "1 samples"),
        (lambda: Subset(ArrayDataset(np.zeros(3)), [-1, 2]), "-1 to 2"),
        (lambda: Subset(ArrayDataset(np.zeros(3)), [[0]]), r"shape \(1, 1\)"),
        (lambda: ArrayDataset(np.zeros(3), np.zeros(())), r"arrays\[1\]: float64\[\]"),
        (lambda: made(drop_last=True).slice(0, 3), "3 samples"),
        (lambda: made().dealt(2, 2), "number 2 of 2"),
        (lambda: made().dealt(2, -1), "number -1 of 2"),
        (lambda: made().dealt(2, 0).slice(0, 5), "every 2th batch"),
        (lambda: made().dealt(2, 0).split(["cpu:0"]), "split first, then dealt"),
        (lambda: made().sharded([], len), "at least one device"),
        (lambda: made().sharded(["cpu:0"], len, only=1), "0 to 0"),
        (lambda: made().sharded(["cpu:0"], len, only=-1), "only -1"),
        (lambda: made(24).dealt(2, 1).first(), "none of its 1 batches is dealt"),
        (lambda: made(num_workers=257), "0 to 256 workers"),
        (lambda: DataLoader(ArrayDataset(np.array(["a"])), 1).first(), "holds numbers"),
        (lambda: made(shuffle="no"), "shuffle is True or False"),
        (lambda: made(shuffle=1), "shuffle is True or False"),
        (lambda: made(drop_last="x"), "drop_last is True or False"),
        (lambda: made(keep_workers="no"), "keep_workers is True or False"),
        (lambda: made(seed=-1), r"seed is an int in \[0, 2\^64\)"),
        (lambda: made(seed=2**64), r"seed is an int in \[0, 2\^64\)"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(call: Any, text: str) -> None:
    with pytest.raises(LoaderError, match=text) as caught:
        call()
    assert caught.value.remedy


def test_parts_of_a_part_leave_out_its_small_last_batch_too() -> None:
    part = made(4, drop_last=True).slice(1, 12)  # 11 positions, of which 8 are in whole batches
    assert labels(part) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert labels(part.slice(2)) == [[3, 4, 5, 6]]
    first, second = part.split(["cpu:0", "cpu:1"])
    assert (labels(first), labels(second)) == ([[1, 2], [5, 6]], [[3, 4], [7, 8]])
    assert part.cursor()["samples"] == 8


def test_the_limits_of_settings_are_settings() -> None:
    loader = made(4, num_workers=256, prefetch=64 * 256, seed=0)
    assert (loader.num_workers, loader.prefetch, made(num_workers=3).prefetch) == (256, 16384, 6)
    assert made(drop_last=True).slice(16, 20).samples == 4
    assert [s.batch_size for s in made(5).split(["cpu:0", "cpu:1", "cpu:2"])] == [2, 2, 1]
    assert [len(x) for (x,) in DataLoader(ArrayDataset(np.arange(3)), 3, drop_last=True)] == [3]
    with pytest.raises(fb.DTypeError, match="dtype is the dtype of floating arrays"):
        made(dtype="int32")


def test_batches_dealt_twice_are_those_of_the_product_of_both() -> None:
    loader = made(2)
    dealt = [[y for _, y in loader.dealt(2, n).dealt(3, m)] for n in range(2) for m in range(3)]
    assert [[int(y[0]) // 2 for y in ys] for ys in dealt] == [[0, 6], [2, 8], [4, 10], [1, 7], [3, 9], [5, 11]]


def test_numpys_scalars_are_settings_of_a_loader() -> None:
    loader = made(np.int64(4), shuffle=np.bool_(True), drop_last=np.bool_(True), seed=np.uint64(2**64 - 1))
    assert labels(loader) == labels(made(4, shuffle=True, drop_last=True, seed=2**64 - 1))


def test_a_holdout_is_fixed_by_its_seed_and_parts_everything() -> None:
    data = ArrayDataset(np.arange(100))
    kept, held = holdout(data, 0.1, seed=3)
    assert sorted([*kept.indices, *held.indices]) == list(range(100))
    assert held.indices.tolist() == holdout(data, 0.1, seed=3)[1].indices.tolist()
    assert held.indices.tolist() == holdout(data, 0.1, seed=np.int32(3))[1].indices.tolist()  # type: ignore[arg-type]
    assert held.indices.tolist() != holdout(data, 0.1, seed=4)[1].indices.tolist()
    for seed in (True, -1, 0.5):
        with pytest.raises(fb.ConfigError, match="a seed is an int"):
            holdout(data, 0.1, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("samples", "fraction", "held"), [(2, 0.999, 1), (3, 0.99, 2), (100, 0.9999, 99), (100, 1e-9, 1), (2, 1e-9, 1)]
)
def test_a_holdout_leaves_at_least_one_sample_on_each_side(samples: int, fraction: float, held: int) -> None:
    parts = holdout(ArrayDataset(np.arange(samples)), fraction)
    assert [len(p) for p in parts] == [samples - held, held]
    assert sorted([*parts[0].indices, *parts[1].indices]) == list(range(samples))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iteration_that_an_error_ended_does_not_seem_to_be_at_its_end(workers: int) -> None:
    class FailsOnce:
        failed = False

        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> float:
            if index == 3 and not FailsOnce.failed:
                FailsOnce.failed = True
                raise OSError("no sample")
            return float(index)

    loader = DataLoader(FailsOnce(), 2, num_workers=workers)
    batches = iter(loader)
    assert next(batches).tolist() == [0.0, 1.0]
    with pytest.raises(SampleError, match="no sample"):
        next(batches)
    for _ in range(2):
        with pytest.raises(LoaderError, match=r'iteration of loader "train" ends with its first error(?s:.*)after SampleError'):
            next(batches)
    loader.load_cursor(loader.cursor())
    assert [batch.tolist() for batch in loader] == [[2.0, 3.0], [4.0, 5.0]]
