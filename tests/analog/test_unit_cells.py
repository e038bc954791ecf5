from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.core.errors import ConfigError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Learner

PLAIN = {
    "dw_min_dtod": 0.0, "dw_min_std": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0, "up_down_dtod": 0.0,
}  # fmt: skip
PERFECT = analog.IOParameters(is_perfect=True)
IMPLICIT = analog.UpdateParameters(pulse_type=analog.PulseType.DETERMINISTIC_IMPLICIT)
SINGLE = analog.UpdateParameters(
    analog.PulseType.DETERMINISTIC_IMPLICIT, desired_bl=1, update_management=False, update_bl_management=False
)
SOFT, STEP = analog.SoftBoundsDevice(dw_min=0.01, **PLAIN), analog.ConstantStepDevice(dw_min=0.002, **PLAIN)
UP = analog.LinearStepDevice(
    dw_min=0.004, w_min=0.0, gamma_up=0.4, gamma_up_dtod=0.0, gamma_down_dtod=0.0, reset_std=0.0, **PLAIN
)
Policy = analog.VectorUnitCellUpdatePolicy
CELLS: dict[str, analog.UnitCell] = {
    "vector": analog.VectorUnitCell((STEP, SOFT), gamma_vec=(1.0, 0.5)),
    "vector, one fixed": analog.VectorUnitCell(
        (STEP, SOFT), gamma_vec=(0.5, 1.0), update_policy=Policy.SINGLE_FIXED, first_update_idx=1
    ),
    "vector, in turn": analog.VectorUnitCell((STEP, SOFT), update_policy=Policy.SINGLE_SEQUENTIAL),
    "vector, at random": analog.VectorUnitCell((STEP, SOFT), update_policy=Policy.SINGLE_RANDOM),
    "reference": analog.ReferenceUnitCell((SOFT, STEP)),
    "one-sided": analog.OneSidedUnitCell((UP, UP)),
    "one-sided, refreshed": analog.OneSidedUnitCell(
        (UP, UP), refresh_every=2, refresh_upper_thres=0.3, refresh_lower_thres=0.05, refresh_forward=PERFECT
    ),
    "Tiki-Taka": analog.TransferCompound((SOFT, STEP), gamma=0.1, transfer_forward=PERFECT),
    "Tiki-Taka of three": analog.TransferCompound((SOFT, SOFT, STEP), transfer_forward=PERFECT, transfer_lr=5.0),
    "Tiki-Taka, buffered": analog.BufferedTransferCompound((SOFT, STEP), transfer_forward=PERFECT, transfer_lr=3.0),
    "Tiki-Taka of rows": analog.TransferCompound((SOFT, STEP), gamma=0.1, transfer_forward=PERFECT, transfer_columns=False),
    "Tiki-Taka, at random with resets": analog.TransferCompound(
        (SOFT, STEP), transfer_forward=PERFECT, transfer_lr=3.0, random_selection=True, with_reset_prob=0.3
    ),
    "Tiki-Taka of three, own factors": analog.TransferCompound(
        (SOFT, SOFT, STEP),
        gamma_vec=(0.1, 0.3, 2.0),
        transfer_every_vec=(1.0, 3.0),
        transfer_lr_vec=(2.0, 1.0),
        transfer_forward=PERFECT,
    ),
    "Tiki-Taka, buffered, of rows": analog.BufferedTransferCompound(
        (SOFT, STEP), transfer_forward=PERFECT, transfer_lr=3.0, transfer_columns=False
    ),
    "chopped, residual": analog.ChoppedTransferCompound(
        (SOFT, STEP), gamma=0.5, fast_lr=0.1, out_chop_prob=0.1, transfer_forward=PERFECT
    ),
    "chopped, corrected": analog.ChoppedTransferCompound(
        (SOFT, STEP), fast_lr=0.3, correct_gradient_magnitudes=True, transfer_every=-0.2, transfer_forward=PERFECT
    ),
    "dynamic, corrected": analog.DynamicTransferCompound(
        (SOFT, STEP),
        fast_lr=0.1,
        in_chop_prob=0.25,
        experimental_correct_accumulation=True,
        transfer_lr=3.0,
        transfer_forward=PERFECT,
    ),
    "mixed precision, random rows": analog.MixedPrecisionCompound((STEP,), n_rows_per_transfer=2, random_row=True),
    "chopped": analog.ChoppedTransferCompound((SOFT, STEP), fast_lr=0.1, out_chop_prob=0.1, transfer_forward=PERFECT),
    "chopped, scaled": analog.ChoppedTransferCompound((SOFT, STEP), fast_lr=0.3, auto_scale=True, transfer_forward=PERFECT),
    "dynamic": analog.DynamicTransferCompound((SOFT, STEP), fast_lr=0.1, in_chop_prob=0.25, transfer_forward=PERFECT),
    "mixed precision": analog.MixedPrecisionCompound((STEP,), n_x_bins=63, n_d_bins=63),
    "mixed precision, by rows": analog.MixedPrecisionCompound((STEP,), transfer_every=2, n_rows_per_transfer=3),
}
"""Cells of devices without spread and noise."""


SLOW = ("dynamic, corrected", "Tiki-Taka of three, own factors")
UPDATES = {
    "Tiki-Taka of three": 30, "chopped, scaled": 50, "dynamic": 70, "chopped, residual": 80, "chopped": 100,
    "Tiki-Taka, buffered": 120, "Tiki-Taka, buffered, of rows": 150, "chopped, corrected": 150, **dict.fromkeys(SLOW, 150),
}  # fmt: skip
"""In which cells learn; others do in 20."""


@pytest.fixture(params=[pytest.param(c, id=n, marks=pytest.mark.soak if n in SLOW else ()) for n, c in CELLS.items()])
def cell(request: pytest.FixtureRequest) -> Any:
    return request.param


SHARED = (
    "vector, one fixed", "vector, in turn", "one-sided", "Tiki-Taka", "Tiki-Taka, buffered, of rows", "chopped, corrected",
    "chopped, scaled", "mixed precision", "mixed precision, random rows",
)  # fmt: skip
"""Cells whose kernels other cells of their class have: both engines are compared for the others."""
BY_CLASS = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.soak if n in SHARED + SLOW else ()) for n in CELLS]
)


def tile_of(cell: Any, engine: str = "cpu", update: Any = None, rows: int = 4, columns: int = 3, seed: int = 3) -> analog.Tile:
    config = analog.RPUConfig(cell, PERFECT, PERFECT, update or analog.UpdateParameters())
    return analog.Tile(rows, columns, config, seed=seed, device=engine)


RNG = np.random.default_rng(31)
X = RNG.normal(size=(40, 3)).astype(np.float32)
TARGET = (RNG.normal(size=(4, 3)) * 0.15).astype(np.float32)


def regress(tile: analog.Tile, updates: int, size: int = 5, rate: float = 0.1, engine: str = "cpu") -> float:
    """Fit y = x Wᵀ by mini-batches; the mean square of the error at the end."""
    for k in range(updates):
        rows = X[[(k * size + i) % len(X) for i in range(size)]]
        x = fb.asarray(rows, device=engine)
        d = (tile(x) - fb.asarray(rows @ TARGET.T, device=engine)) / size
        tile.update(x, d, rate)
        tile.end_mini_batch()
    return float(((X @ tile.weight.numpy().T - X @ TARGET.T) ** 2).mean())


def test_a_cell_learns(cell: Any) -> None:
    before = float(((X @ TARGET.T) ** 2).mean())
    name = next(n for n, c in CELLS.items() if c is cell)
    assert regress(tile_of(cell), UPDATES.get(name, 20)) < 0.6 * before


@BY_CLASS
def test_a_cell_has_the_same_bits_on_the_engine_and_in_the_interpreter(name: str) -> None:
    found = []
    for engine in ("cpu", "numpy"):
        tile = tile_of(CELLS[name], engine, IMPLICIT)
        regress(tile, 4, engine=engine)
        found.append([tile.weight.numpy(), *(a.weight.numpy() for a in tile.arrays)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_cell_goes_on_from_its_state(cell: Any) -> None:
    first = tile_of(cell)
    regress(first, 7)
    second = tile_of(cell, seed=4)
    second.load_state_dict(first.state_dict())
    second.generator.set_state(first.generator.state())
    for tile in (first, second):
        regress(tile, 3)
    for (name, a), (_, b) in zip(first.named_buffers(), second.named_buffers(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=name)
    np.testing.assert_array_equal(first.weight.numpy(), second.weight.numpy())


def test_weights_that_are_set_are_those_of_the_cell(cell: Any) -> None:
    tile = tile_of(cell)
    assert tile.set_weights(TARGET) == 0
    np.testing.assert_allclose(tile.weight.numpy(), TARGET, atol=1e-6)


def test_each_vector_goes_to_the_next_device() -> None:
    tile = tile_of(CELLS["vector, in turn"], update=SINGLE)
    for batch in (3, 1, 2):
        tile.update(fb.ones((batch, 3)), -fb.ones((batch, 4)), 1.0)
    counts = [round(float(np.mean(a.weight.numpy())) / d.dw_min, 1) for a, d in zip(tile.arrays, (STEP, SOFT), strict=True)]
    assert counts[0] == 3.0
    assert 2.8 < counts[1] <= 3.0


def test_a_refresh_keeps_the_difference_and_empties_the_devices() -> None:
    device = analog.ConstantStepDevice(dw_min=0.001, w_min=0.0, reset_std=0.0, **PLAIN)
    update = analog.UpdateParameters(analog.PulseType.NONE_WITH_DEVICE)
    cell = analog.OneSidedUnitCell((device, device), refresh_every=1, refresh_forward=PERFECT, refresh_update=update)
    tile = tile_of(cell)
    tile.arrays[0].place(fb.full((4, 3), 0.3))
    tile.arrays[1].place(fb.full((4, 3), 0.5))
    cell.refresh(tile)
    np.testing.assert_allclose(tile.arrays[0].weight.numpy(), 0.0, atol=1e-6)
    np.testing.assert_allclose(tile.arrays[1].weight.numpy(), 0.2, atol=1e-6)
    cell.refresh(tile)
    np.testing.assert_allclose(tile.arrays[1].weight.numpy(), 0.2, atol=1e-6)


def witness_of_buffered(cell: Any, updates: int, size: int = 5, rate: float = 0.1) -> Any:
    """Tiki-Taka, version 2, in NumPy: one pulse after the other."""
    fast, slow, held = np.zeros((4, 3)), np.zeros((4, 3)), np.zeros((4, 3))
    g, vectors, column = cell.granularity, 0, 0
    for k in range(updates):
        rows = X[[(k * size + i) % len(X) for i in range(size)]].astype(float)
        errors = (rows @ slow.T - rows @ TARGET.T.astype(float)) / size
        for x, d in zip(rows, errors, strict=True):
            top = rate * np.abs(x).max() * np.abs(d).max() / g
            length = min(int(np.ceil(top)), 31)
            p = np.outer(np.abs(d) / np.abs(d).max(), np.abs(x) / np.abs(x).max()) * min(top, 31) / max(length, 1)
            for at in np.ndindex(4, 3):
                up = d[at[0]] * x[at[1]] < 0.0
                for _ in range(int(np.rint(length * p[at]))):
                    fast[at] += 0.01 * (1.0 - fast[at] / 0.6) if up else -0.01 * (1.0 + fast[at] / 0.6)
        vectors += size
        held[:, column] += rate * cell.transfer_lr * fast[:, column]
        n = np.clip(np.trunc(held[:, column] / 0.002), -1, 1)
        held[:, column] = np.where(n != 0, held[:, column] * cell.momentum, held[:, column])
        slow[:, column] += 0.002 * n
        column = (column + 1) % 3
    return slow


def test_buffered_transfer_is_that_of_the_formulas() -> None:
    cell = analog.BufferedTransferCompound((SOFT, STEP), transfer_forward=PERFECT, transfer_update=SINGLE, transfer_lr=3.0)
    tile = tile_of(cell, update=IMPLICIT)
    regress(tile, 60)
    want = witness_of_buffered(cell, 60)
    assert np.abs(want).max() > 0.02
    np.testing.assert_allclose(tile.weight.numpy(), want, atol=3e-6)


def test_residual_learning_adds_the_fast_array_with_the_signs_of_its_choppers() -> None:
    cell: Any = CELLS["chopped, residual"]
    tile = tile_of(cell, rows=5, columns=3)
    rng = np.random.default_rng(2)
    signs, seen = set(), 0.0
    for _ in range(30):
        x, d = (fb.asarray(rng.normal(size=(4, n)).astype(np.float32)) for n in (3, 5))
        tile.update(x, d, 0.1)
        columns, rows = (np.where(tile.state_of_cell[f"chopper_{n}"].numpy(), -1.0, 1.0) for n in ("in", "out"))
        fast, slow = (a.weight.numpy() for a in tile.arrays)
        np.testing.assert_allclose(tile.weight.numpy(), 0.5 * rows[:, None] * columns * fast + slow, atol=1e-6)
        signs.add((*rows, *columns))
        seen = max(seen, float(np.abs(fast).max()))
    assert len(signs) > 4
    assert seen > 0.05


@pytest.mark.parametrize("kind", [analog.TransferCompound, analog.BufferedTransferCompound])
def test_transfers_of_rows_are_those_of_columns_of_the_transposed_tile(kind: Any) -> None:
    tiles = []
    for columns in (True, False):
        cell = kind((SOFT, STEP), transfer_forward=PERFECT, transfer_lr=10.0, transfer_columns=columns,
                    transfer_update=IMPLICIT)  # fmt: skip
        tiles.append(tile_of(cell, update=IMPLICIT, rows=4 if columns else 3, columns=3 if columns else 4))
    rng = np.random.default_rng(4)
    for _ in range(40):
        x, d = (fb.asarray(rng.normal(size=(3, n)).astype(np.float32)) for n in (3, 4))
        tiles[0].update(x, d, 0.01)  # too small for trains to be clipped, which d would be alone
        tiles[1].update(d, x, 0.01)
    for one, other in zip(tiles[0].arrays, tiles[1].arrays, strict=True):
        np.testing.assert_allclose(one.weight.numpy(), other.weight.numpy().T, atol=1e-6)
        assert np.abs(one.weight.numpy()).max() > 0.01


def test_a_cell_has_the_same_bits_in_graphs(cell: Any) -> None:
    one, other = tile_of(cell), tile_of(cell)
    step = fb.jit(lambda t, x, d: t.update(x, d, 0.1))
    few = list(CELLS.values()).index(cell) % 2  # no vector or a single one, in turn
    for n in (6, few, 6):
        x, d = (fb.asarray(RNG.normal(size=(n, m)).astype(np.float32)) for m in (3, 4))
        np.testing.assert_array_equal(one.update(x, d, 0.1).numpy(), step(other, x, d).numpy())
        for a, b in zip(one.arrays, other.arrays, strict=True):
            np.testing.assert_array_equal(a.weight.numpy(), b.weight.numpy())
        np.testing.assert_array_equal(one.weight.numpy(), other.weight.numpy())


@pytest.mark.parametrize("make", [analog.VectorUnitCell, analog.TransferCompound, analog.OneSidedUnitCell])
def test_trains_that_grow_have_the_same_bits_in_graphs_where_only_a_run_knows_the_learning_rate(make: Any) -> None:
    """Eager updates have trains of 100 slots, which is 4 words; graphs have room for 65536."""
    update = analog.UpdateParameters(desired_bl=5, fixed_bl=False, update_management=False, update_bl_management=False)
    device = analog.ConstantStepDevice(dw_min=0.001)
    one, other = (tile_of(make((device, device)), update=update, rows=2, columns=2) for _ in range(2))
    step = fb.jit(lambda t, x, d, lr: t.update(x, d, lr))
    for rate in (0.1, 0.01, 0.1):
        x, d = (fb.asarray(RNG.normal(size=(3, 2)).astype(np.float32)) for _ in range(2))
        given = fb.asarray(np.float32(rate))
        np.testing.assert_array_equal(one.update(x, d, rate).numpy(), step(other, x, d, given).numpy())
        np.testing.assert_array_equal(one.weight.numpy(), other.weight.numpy())
    assert one.update(fb.ones((1, 2)), fb.ones((1, 2)), 0.1).numpy().max() >= 100


def test_long_trains_of_a_graph_that_are_too_many_are_refused() -> None:
    update = analog.UpdateParameters(fixed_bl=False, update_bl_management=False)
    tile = analog.Tile(20, 20, analog.RPUConfig(update=update), seed=0)
    x, step = fb.ones((1000, 20)), fb.jit(lambda t, x, lr: t.update(x, x, lr))
    with pytest.raises(ConfigError, match=r"or they are few: at most 32768 samples times lines(.|\n)*1000 · 40"):
        step(tile, x, fb.asarray(np.float32(0.1)))


ONE_SIDED = analog.OneSidedUnitCell(
    (UP, UP), refresh_every=1, refresh_upper_thres=0.2, refresh_lower_thres=0.1, refresh_forward=PERFECT
)


@pytest.mark.parametrize(
    "inner", [ONE_SIDED, analog.VectorUnitCell((STEP, SOFT), gamma_vec=(1.0, 0.5)), analog.ReferenceUnitCell((SOFT, STEP))]
)
def test_mixed_precision_writes_cells(inner: Any) -> None:
    cell = analog.MixedPrecisionCompound((inner,))
    tile, compiled = tile_of(cell), tile_of(cell)
    assert len(tile.arrays) == 2
    before = float(((X @ TARGET.T) ** 2).mean())
    assert regress(tile, 60) < 0.5 * before
    step, eager = fb.jit(lambda t, x, d: t.update(x, d, 0.1)), tile_of(cell)
    for n in (5, 5, 2):
        x, d = (fb.asarray(RNG.normal(size=(n, m)).astype(np.float32)) for m in (3, 4))
        eager.update(x, d, 0.1)
        step(compiled, x, d)
        np.testing.assert_array_equal(eager.weight.numpy(), compiled.weight.numpy())


def test_mixed_precision_of_one_sided_cells_writes_whole_steps_and_keeps_the_rest() -> None:
    """The sum of what is visible and what is still digital is the gradient: lr · Σ d xᵀ, as long as steps are constant."""
    device = analog.ConstantStepDevice(dw_min=0.01, w_min=0.0, w_max=50.0, **(PLAIN | {"w_max_dtod": 0.0}))
    cell = analog.MixedPrecisionCompound((analog.OneSidedUnitCell((device, device)),))
    tile = tile_of(cell, update=analog.UpdateParameters(analog.PulseType.DETERMINISTIC_IMPLICIT, desired_bl=1000))
    rng, want = np.random.default_rng(8), np.zeros((4, 3))
    for _ in range(20):
        x, d = (rng.normal(size=(5, n)).astype(np.float32) for n in (3, 4))
        tile.update(fb.asarray(x), fb.asarray(d), 0.01)
        want -= 0.01 * d.T.astype(float) @ x.astype(float)
    kept = -tile.state_of_cell["gradient"].numpy()
    assert np.abs(kept).max() < 0.01
    np.testing.assert_allclose(tile.weight.numpy() + kept, want, atol=1e-5)
    assert min(a.weight.numpy().max() for a in tile.arrays) > 0.02


def test_a_learner_trains_a_model_of_cells_in_a_graph() -> None:
    model = analog.Linear(3, 2, config=analog.RPUConfig(CELLS["Tiki-Taka, buffered"], PERFECT, PERFECT), seed=0)
    y = (X[:, 0] > X[:, 1]).astype(np.int64)
    learner = Learner(model, analog.SGD(model, lr=0.5), log=None)
    learner.fit(DataLoader(ArrayDataset(X, y), batch_size=20), epochs=1)  # an EagerTrainingWarning would be an error
    assert learner.optimizer.step == 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: analog.VectorUnitCell(()), "unit_cell_devices is a tuple of pulsed devices"),
        (lambda: analog.VectorUnitCell((STEP,), gamma_vec=(1.0, 2.0)), "a factor of each device"),
        (lambda: analog.VectorUnitCell((STEP,), first_update_idx=1), "first_update_idx is below 1"),
        (lambda: analog.ReferenceUnitCell((STEP,)), "ReferenceUnitCell: two devices"),
        (lambda: analog.TransferCompound((STEP,)), "at least two devices"),
        (lambda: analog.TransferCompound((STEP, STEP), transfer_every=0.0), "transfer_every is a finite number above 0"),
        (
            lambda: analog.TransferCompound((STEP, STEP), transfer_forward=analog.IOParameters(out_noise_std=0.1)),
            "transfer_forward has nothing that is drawn once",
        ),
        (lambda: analog.ChoppedTransferCompound((STEP,) * 3), "two devices"),
        (lambda: analog.ChoppedTransferCompound((STEP, STEP), in_chop_prob=2.0), r"in_chop_prob is in \[0, 1\]"),
        (lambda: analog.ChoppedTransferCompound((STEP, STEP), n_reads_per_transfer=2), "n_reads_per_transfer is 1"),
        (lambda: analog.ChoppedTransferCompound((STEP, STEP), transfer_columns=False), "transfer_columns is True"),
        (lambda: analog.ChoppedTransferCompound((STEP, STEP), transfer_every=0.0), "a number other than 0"),
        (lambda: analog.TransferCompound((STEP, STEP), gamma_vec=(1.0,)), "gamma_vec has 2 numbers"),
        (lambda: analog.TransferCompound((STEP, STEP), gamma_vec=(1.0, 0.0)), "ends with a number other than 0"),
        (lambda: analog.TransferCompound((STEP, STEP), transfer_lr_vec=(0.0,)), "transfer_lr_vec has 1 numbers above 0"),
        (lambda: analog.TransferCompound((STEP, STEP), with_reset_prob=0.5, transfer_columns=False), "of devices of columns"),
        (lambda: analog.DynamicTransferCompound((STEP, STEP), in_chop_prob=0.0), "in_chop_prob is above 0"),
        (lambda: analog.MixedPrecisionCompound((STEP, STEP)), "one device"),
        (
            lambda: analog.MixedPrecisionCompound((analog.TransferCompound((STEP, STEP)),)),
            "one vector, reference or one-sided cell",
        ),
        (lambda: analog.MixedPrecisionCompound((STEP,), n_x_bins=1), "n_x_bins is an int of at least 2, or 0"),
        (lambda: analog.OneSidedUnitCell((UP, UP), refresh_forward=3), "reads have IOParameters"),
    ],
)  # fmt: skip
def test_a_cell_without_meaning_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


TRANSFERS = [n for n, c in CELLS.items() if isinstance(c, analog.TransferCompound) and n not in SLOW]


@pytest.mark.parametrize("name", TRANSFERS)
def test_transfers_follow_the_sign_of_the_learning_rate(name: str) -> None:
    tiles = [tile_of(CELLS[name]) for _ in range(2)]
    for k in range(15):
        x = fb.asarray(X[5 * k % 40 : 5 * k % 40 + 5])
        d = fb.asarray(np.tile(-TARGET.sum(axis=1), (5, 1)))
        for tile, sign in zip(tiles, (1.0, -1.0), strict=True):
            tile.update(x, d * sign, 0.1 * sign)
    assert fb.max(fb.abs(tiles[0].weight)).item() > 0.0
    np.testing.assert_array_equal(tiles[0].weight.numpy(), tiles[1].weight.numpy())


@pytest.mark.parametrize("name", TRANSFERS)
def test_a_learning_rate_of_zero_gives_no_pulses(name: str) -> None:
    assert not np.any(tile_of(CELLS[name]).update(fb.asarray(X), fb.asarray(X @ TARGET.T), 0.0).numpy())


@pytest.mark.parametrize("every", [1e19, 1e308])
def test_a_period_longer_than_any_run_transfers_nothing(every: float) -> None:
    device = analog.SoftBoundsDevice(dw_min=0.01)
    for cell in (
        analog.TransferCompound((device,) * 3, transfer_every=every),
        analog.TransferCompound((device,) * 3, transfer_every=1.0, n_reads_per_transfer=1, transfer_every_vec=(every, every)),
        analog.BufferedTransferCompound((device, device), transfer_every=every, units_in_mbatch=True),
        analog.DynamicTransferCompound((device, device), transfer_every=-every),
    ):
        tile = analog.Tile(3, 4, analog.RPUConfig(cell), seed=0)
        first = [a.weight.numpy() for a in tile.arrays]
        tile.update(fb.ones((5, 4)), fb.ones((5, 3)), lr=0.1)
        after = [a.weight.numpy() for a in tile.arrays]
        assert not np.array_equal(after[0], first[0])
        assert all(np.array_equal(a, b) for a, b in zip(after[1:], first[1:], strict=True))


def test_devices_of_a_cell_that_are_no_tuple_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"is a tuple of one pulsed device.*\n.*\n.*\(analog.SoftBoundsDevice\(\),\)"):
        analog.MixedPrecisionCompound(STEP)
