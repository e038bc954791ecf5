"""How rows are dealt: all of them, to the nearest whole number, always alike; and shares by measured speed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firebrick as fb
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import DataParallel, TrainingError
from firebrick.train.parallel import data_parallel
from firebrick.train.parallel.passes import cuts, rows_of
from firebrick.train.parallel.shares import balanced, check_shares, divided, sizes_of

WEIGHTS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=6)


@given(st.integers(0, 5000), WEIGHTS)
def test_all_rows_are_dealt_to_the_nearest_whole_numbers(rows: int, weights: list[float]) -> None:
    shares = check_shares(weights, len(weights))
    assert shares is not None
    dealt = divided(rows, shares)
    assert sum(dealt) == rows
    assert all(abs(n - rows * s) < 1.0 + 1e-6 for n, s in zip(dealt, shares, strict=True))
    assert dealt == divided(rows, shares)


@given(st.integers(1, 40), st.integers(1, 9))
def test_even_shares_differ_by_one_row_and_the_first_take_it(rows: int, count: int) -> None:
    shares = check_shares("even", count)
    assert shares is not None
    dealt = divided(rows, shares)
    assert dealt == sorted(dealt, reverse=True)
    assert dealt[0] - dealt[-1] <= 1


@given(st.integers(1, 100), st.integers(1, 12))
def test_parts_hold_all_rows_and_none_is_empty(rows: int, parts: int) -> None:
    ends = cuts(rows, parts)
    sizes = np.diff([0, *ends])
    assert ends[-1] == rows
    assert len(ends) == min(parts, rows)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


def test_rows_of_a_batch_keep_its_label_for_messages() -> None:
    batch = fb.asarray(np.arange(4))
    batch.label = "batch 3 of loader 'train'"
    part = rows_of(batch, 1, 3)
    assert (part.tolist(), part.label) == ([1, 2], batch.label)


def test_a_device_that_takes_twice_as_long_gets_half_the_rows() -> None:
    assert balanced([8, 8, 8], [1.0, 2.0, 4.0]) == pytest.approx((4 / 7, 2 / 7, 1 / 7))
    assert balanced([12, 4], [1.0, 1.0]) == pytest.approx((0.75, 0.25))


class Clock(threading.local):
    """The time of a thread, which moves by what ``slow`` takes in it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


clock = Clock()


def slow(model: Any, x: Any, y: Any) -> Any:
    clock.now += {"numpy:0": 0.0002, "numpy:1": 0.0008}[x.device.name] * x.shape[0] + 0.004
    fb.random.uniform((2,), device=x.device)
    return fb.cross_entropy(model(x), y), {}


def test_measured_shares_follow_the_speed_of_devices_and_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "perf_counter", clock)
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(4, 8), fb.nn.BatchNorm1d(8), fb.nn.Dropout(0.5), fb.nn.Linear(8, 4))
    optimizer = fb.optim.SGD(model, lr=0.01)
    strategy = DataParallel(["numpy:0", "numpy:1"], "measured")
    loader = strategy.place(model, optimizer, DataLoader(ArrayDataset(np.ones((64, 4)), np.arange(64) % 4), 64))
    before = {n: t.numpy().tobytes() for n, t in model.state_dict().items()}, str(fb.random.state()), str(model.generators())
    with fb.disable_jit():
        said = strategy.begin(slow, model, loader)
    assert strategy.shares is not None
    rows = strategy.divide(64)
    seconds = [0.0002 * rows[0], 0.0008 * rows[1]]
    assert abs(seconds[0] - seconds[1]) < 0.0016  # equally long, but for a row or two
    assert f"numpy:0 {strategy.shares[0]:.0%}" in said
    after = {n: t.numpy().tobytes() for n, t in model.state_dict().items()}, str(fb.random.state()), str(model.generators())
    assert after == before
    assert strategy.begin(slow, model, loader) == said  # they stay


@pytest.mark.parametrize(
    "shares",
    [
        [1.0],
        [1.0, 2.0, 3.0],
        [1, True, 2],
        [1, "2", 3],
        [1, True],
        [0, 1],
        [-1, 1],
        [1, float("inf")],
        (1,),
        {1: 2, 3: 4},
        "fast",
        2,
    ],
)
def test_shares_are_one_positive_number_for_each(shares: Any) -> None:
    with pytest.raises(TrainingError, match="each of the 2 ranks") as caught:
        check_shares(shares, 2, "rank")
    assert caught.value.received == repr(shares)
    assert "shares=[0.5, 0.5]" in caught.value.remedy


def test_shares_are_scaled_to_a_sum_of_one() -> None:
    assert check_shares((1, 3.0), 2) == (0.25, 0.75)
    assert check_shares("even", 4) == (0.25,) * 4
    assert check_shares("measured", 2) is None


@pytest.mark.parametrize(("rows", "batch", "sizes"), [(16, 8, [8]), (18, 8, [8, 2]), (5, 8, [5])])
def test_batches_of_an_epoch_have_one_or_two_sizes(rows: int, batch: int, sizes: list[int]) -> None:
    assert sizes_of(DataLoader(ArrayDataset(np.ones((rows, 2)), np.zeros(rows)), batch)) == sizes


def test_shares_of_a_checkpoint_are_taken_over_for_the_same_devices_only() -> None:
    state = {"devices": ["cpu:0", "numpy:0"], "shares": [0.9, 0.1]}
    same, other = DataParallel(["cpu:0", "numpy:0"], "measured"), DataParallel(["cpu:0", "cpu:1"], "measured")
    given = DataParallel(["cpu:0", "numpy:0"], [1, 1])
    for strategy in (same, other, given):
        strategy.load_state(state)
    assert same.shares == (0.9, 0.1)
    assert other.shares is None
    assert given.shares == (0.5, 0.5)


def test_measuring_needs_rows_for_every_device() -> None:
    fb.random.seed(0)
    model = fb.nn.Linear(4, 4)
    strategy = DataParallel(["numpy:0", "numpy:1", "cpu:0"], "measured")
    data = DataLoader(ArrayDataset(np.ones((2, 4)), np.arange(2)), 2)
    loader = strategy.place(model, fb.optim.SGD(model, lr=0.1), data)
    with pytest.raises(TrainingError, match="2 rows for 3 devices"):
        strategy.begin(slow, model, loader)
