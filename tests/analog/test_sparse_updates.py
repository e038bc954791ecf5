from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog import column_lists

NEVER = 1 << 62
COMPRESSED = analog.PulseType.STOCHASTIC_COMPRESSED


def updates(
    model: Any, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], batch: int, *, sparse: bool, engine: str = "cpu",
    update: Any = None, scale: float = 0.002, rate: float = 0.1, rounds: int = 2,
) -> tuple[list[Any], list[int]]:  # fmt: skip
    """Counts and weights of updates, and which of these were sparse; their lists are used whatever the number of pulses."""
    monkeypatch.setattr(column_lists, "LARGE", 0 if sparse else NEVER)
    monkeypatch.setattr(column_lists, "SPARSE", 0)
    listed, right = [], column_lists._of_columns

    def seen(*given: Any) -> Any:
        lists = right(*given)
        listed.append(int(lists[0].item()))
        return lists

    with monkeypatch.context() as m:
        m.setattr(column_lists, "_of_columns", seen)
        tile = analog.Tile(*size, analog.RPUConfig(model, update=update or analog.UpdateParameters()), seed=3, device=engine)
        rng = np.random.default_rng(5)
        found = []
        for k in range(rounds):
            x, d = (rng.normal(size=(batch, n)).astype(np.float32) for n in (size[1], size[0]))
            given = (fb.asarray(v, device=engine) for v in (x, d * np.float32(scale)))
            found.append(tile.update(*given, rate if k % 2 == 0 else -rate).numpy())
        return [*found, tile.weight.numpy(), tile.arrays[0].acted_on.numpy()], listed


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


SIZES = [(1, 1, 65), (31, 33, 2), (33, 31, 65), (32, 32, 1), (5, 129, 64), (3, 4, 0)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_sparse_update_has_the_bits_of_one_of_all_cross_points(
    model: analog.PulsedDevice, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    *shape, batch = size
    wanted, none = updates(model, monkeypatch, tuple(shape), batch, sparse=False)
    found, listed = updates(model, monkeypatch, tuple(shape), batch, sparse=True)
    same(found, wanted)
    joint = model.joint_pulses() is not None
    assert none == []
    assert listed == ([] if joint else [1, 1])
    assert np.sum(wanted[0]) > (0 if batch > 2 and shape[0] > 1 else -1)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "update",
    [
        analog.UpdateParameters(analog.PulseType.STOCHASTIC),
        analog.UpdateParameters(desired_bl=40, update_bl_management=False),
        analog.UpdateParameters(desired_bl=3, update_bl_management=False),
        analog.UpdateParameters(res=0.01, sto_round=True),
    ],
    ids=["stochastic", "samples of two words", "several samples in a word", "levels of a resolution"],
)  # fmt: skip
def test_all_kinds_of_trains_are_visited(update: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = analog.SoftBoundsDevice(dw_min=0.01, write_noise_std=2.0)
    with fb.config.scope(num_threads=threads):
        wanted, _ = updates(device, monkeypatch, (33, 70), 7, sparse=False, update=update)
        found, listed = updates(device, monkeypatch, (33, 70), 7, sparse=True, update=update)
    same(found, wanted)
    assert listed == [1, 1]
    assert np.sum(wanted[0]) > 100


def test_sparse_updates_are_equal_on_the_engine_and_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    device = analog.ExpStepDevice(dw_min=0.01, write_noise_std=2.0)
    found, listed = updates(device, monkeypatch, (5, 35), 9, sparse=True, scale=0.02)
    wanted, also = updates(device, monkeypatch, (5, 35), 9, sparse=True, scale=0.02, engine="numpy")
    same(found, wanted)
    assert listed == also == [1, 1]
    assert np.sum(found[0]) > 20


@pytest.mark.parametrize(
    "device", [analog.SoftBoundsDevice(dw_min=0.01), analog.SoftBoundsReferenceDevice(dw_min=0.01, write_noise_std=1.0)]
)
def test_items_of_a_sparse_update_do_not_race(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``fb.verify`` the interpreter reports accesses of two items without a barrier between them."""
    with fb.verify():
        found, listed = updates(device, monkeypatch, (2, 40), 5, sparse=True, scale=0.1)
    assert listed == [1, 1]
    assert np.max(found[0]) > 1


def test_one_sided_devices_get_their_pulses_of_a_sparse_update(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for least in (0, NEVER):
        monkeypatch.setattr(column_lists, "LARGE", least)
        monkeypatch.setattr(column_lists, "SPARSE", 0)
        cell = analog.OneSidedUnitCell((analog.SoftBoundsDevice(dw_min=0.01),) * 2)
        tile = analog.Tile(9, 35, analog.RPUConfig(cell), seed=1)
        rng = np.random.default_rng(5)
        x, d = (fb.asarray(rng.normal(size=(6, n)).astype(np.float32)) for n in (35, 9))
        counts = tile.update(x, d * 0.1, 0.1).numpy()
        found.append([counts, *(a.weight.numpy() for a in tile.arrays)])
    same(*found)
    assert np.sum(found[0][0]) > 20


def test_an_update_is_sparse_where_few_cross_points_get_pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    listed, right = [], column_lists._of_columns

    def seen(*given: Any) -> Any:
        lists = right(*given)
        listed.append((int(lists[0].item()), lists))
        return lists

    monkeypatch.setattr(column_lists, "_of_columns", seen)
    tile = analog.Tile(128, 130, analog.RPUConfig(analog.SoftBoundsDevice()), seed=1)
    for batch, scale in ((8, 0.01), (8, 1.0), (600, 0.001)):  # few pulses, many, and more slots than are listed
        x, d = (fb.asarray(rng.normal(size=(batch, n)).astype(np.float32)) for n in (130, 128))
        with monkeypatch.context() as m:
            m.setattr("firebrick.analog.device_array.COMPILED", NEVER)
            tile.update(x, d * scale, 0.01)
    assert [sparse for sparse, _ in listed] == [1, 0, 0]
    small = analog.Tile(32, 32, analog.RPUConfig(analog.SoftBoundsDevice()), seed=1)
    small.update(fb.ones((2, 32)), fb.ones((2, 32)), 0.001)
    assert len(listed) == 3
