from __future__ import annotations

import tracemalloc
from typing import Any

import analog_witness as witness
import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog import matvec
from firebrick.core.errors import ConfigError, DeviceMismatchError, DTypeError, OperandError, OutOfRangeError, ShapeError

RNG = np.random.default_rng(11)
W = (RNG.normal(size=(3, 5)) * 0.2).clip(-0.4, 0.4).astype(np.float32)
X = RNG.normal(size=(7, 5)).astype(np.float32)
EQUAL = {"w_max_dtod": 0.0, "w_min_dtod": 0.0}
QUIET = {"out_noise": 0.0}


def tile_of(engine: str = "cpu", device: Any = None, seed: int = 5, **io: Any) -> analog.Tile:
    periphery = analog.IOParameters(**io)
    device = analog.FloatingPointDevice() if device is None else device
    made = analog.Tile(3, 5, analog.RPUConfig(device, forward=periphery, backward=periphery), seed=seed, device=engine)
    made.set_weights(W)
    return made


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
@pytest.mark.parametrize(
    "io",
    [
        {}, {"out_bound": 0.7}, {"out_bound": 0.7, "max_bm_factor": 2.0}, {"inp_res": 14.0, "out_res": 62.0, "out_scale": 2.0},
        {"inp_res": 0.0, "out_res": 0.0, "out_bound": 0.2}, {"out_bound": 0.01},
    ],
    ids=str,
)  # fmt: skip
def test_a_product_is_that_of_the_formulas(engine: str, io: dict[str, Any]) -> None:
    tile = tile_of(engine, **QUIET, **io)
    for scale in (1.0, 1e-6, 1e6):
        x = (X * scale).astype(np.float32)
        y = tile(fb.asarray(x, device=engine)).numpy()
        want = np.stack([witness.product(v.astype(np.float64), W.astype(np.float64), tile.config.forward) for v in x])
        np.testing.assert_allclose(y, want, atol=2e-6 * np.abs(want).max())


EXACT = {"inp_res": 0.0, "out_res": 0.0}
MANAGEMENT, BOUNDS, PASSES = analog.NoiseManagementType, analog.BoundManagementType, analog.AnalogMVType
PERIPHERIES: list[dict[str, Any]] = [
    *({"out_bound": 0.3, "max_bm_factor": factor} for factor in (0.99, 1.0, 1.99, 2.0, 4.0, 8.0)),
    *({"out_bound": 0.1, "max_bm_res": share, "inp_res": 100.0} for share in (0.009, 0.01, 0.019, 0.02, 0.04)),
    *({"out_bound": 0.3, "max_bm_factor": f, "bound_management": BOUNDS.ITERATIVE_WORST_CASE} for f in (0.99, 1.0, 2.0, 64.0)),
    {"out_bound": 0.3, "bound_management": BOUNDS.NONE}, {"out_bound": 0.3, "bm_test_negative_bound": False},
    {"out_bound": 0.0}, {"out_bound": 0.0, "noise_management": MANAGEMENT.ABS_MAX_NP_SUM},
    *({"noise_management": kind, **EXACT} for kind in MANAGEMENT if kind is not MANAGEMENT.AVERAGE_ABS_MAX),
    {"noise_management": MANAGEMENT.NONE, "inp_bound": 0.5}, {"noise_management": MANAGEMENT.NONE, "inp_bound": 0.5, **EXACT},
    {"nm_thres": 1.1}, {"noise_management": MANAGEMENT.CONSTANT, "nm_thres": 1.1},
    {"noise_management": MANAGEMENT.ABS_MAX_NP_SUM, "out_bound": 0.5, "nm_assumed_wmax": 0.9},
    {"noise_management": MANAGEMENT.ABS_MAX_NP_SUM, "out_bound": 0.5, "inp_res": 100.0, "max_bm_res": 0.012},
    {"inp_asymmetry": 0.2}, {"out_asymmetry": 0.2}, {"ir_drop": 1.0, "ir_drop_g_ratio": 30.0},
    {"mv_type": PASSES.POS_NEG_SEPARATE, "out_bound": 0.4}, {"mv_type": PASSES.POS_NEG_SEPARATE_DIGITAL_SUM, "out_bound": 0.4},
    *({"mv_type": k, "w_read_asymmetry_dtod": 0.5, **EXACT} for k in PASSES),
    {"out_nonlinearity": 3.0, **EXACT}, {"out_nonlinearity": 3.0, "out_nonlinearity_std": 0.3, "out_bound": 2.0},
    {"out_nonlinearity": 3.0, "slope_calibration": 0.5, "r_series": 0.1, **EXACT}, {"r_series": 0.2, **EXACT},
    {"r_series": 0.2, "v_offset_w_min": 0.0, **EXACT}, {"v_offset_std": 0.2, **EXACT},
    {"v_offset_std": 0.2, "v_offset_w_min": -0.5, "r_series": 0.1, **EXACT},
    {"v_offset_std": 0.2, "v_offset_w_min": 0.0, **EXACT},
]  # fmt: skip


@pytest.mark.parametrize("io", PERIPHERIES, ids=str)
def test_each_setting_of_the_periphery_is_that_of_the_formulas(io: dict[str, Any]) -> None:
    tile = tile_of("numpy", **QUIET, **io)
    settings, drawn = tile.config.forward, {k: v.numpy().astype(np.float64) for k, v in tile.drawn_forward.items()}
    x = np.concatenate([X, -np.abs(X[:1])])
    want = np.stack([witness.product(v.astype(np.float64), W.astype(np.float64), settings, True, drawn) for v in x])
    np.testing.assert_allclose(tile(fb.asarray(x, device="numpy")).numpy(), want, atol=4e-6 * np.abs(want).max())


MANY = 4000
NOISE: dict[str, tuple[dict[str, Any], Any]] = {  # → the standard deviations of the outputs of x
    "of inputs": ({"inp_noise": 0.1}, lambda x, drawn: 0.1 * np.sqrt((W**2).sum(1))),
    "of outputs": ({"out_noise": 0.1}, lambda x, drawn: np.full(3, 0.1)),
    "of outputs, each its own": ({"out_noise": 0.1, "out_noise_std": 0.5}, lambda x, drawn: drawn["out_noise"]),
    "of weights": (
        {"w_noise": 0.1, "w_noise_type": analog.WeightNoiseType.ADDITIVE_CONSTANT},
        lambda x, drawn: np.full(3, 0.1 * np.sqrt((x**2).sum())),
    ),
    "of reads": (
        {"w_noise": 0.1, "w_noise_type": analog.WeightNoiseType.PCM_READ},
        lambda x, drawn: 0.1 * np.sqrt(np.abs(W) @ x**2),
    ),
    "of the rounding of inputs": (
        {"inp_res": 0.1, "inp_sto_round": True},
        lambda x, drawn: 0.2 * np.sqrt(W**2 @ ((x / 0.2 % 1.0) * (1.0 - x / 0.2 % 1.0))),
    ),
    "of the rounding of outputs": (
        {"out_res": 0.01, "out_bound": 10.0, "out_sto_round": True},
        lambda x, drawn: 0.2 * np.sqrt(((W @ x) / 0.2 % 1.0) * (1.0 - (W @ x) / 0.2 % 1.0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", NOISE)
def test_noise_has_the_deviation_of_its_formula_and_is_new_for_each_vector_and_output(kind: str, scaled: bool) -> None:
    settings, deviation = NOISE[kind]
    more = {"noise_management": MANAGEMENT.ABS_MAX, "out_scale": 1.5} if scaled else {"noise_management": MANAGEMENT.NONE}
    tile = tile_of("numpy", **{**QUIET, **EXACT, **settings, **more})
    drawn = {k: v.numpy().astype(np.float64) for k, v in tile.drawn_forward.items()}
    x = np.array([0.7, -0.33, 0.21, 0.9, -0.55])
    top = 0.9 if scaled else 1.0
    factor = 0.9 * 1.5 if scaled else 1.0
    found = tile(fb.asarray(np.tile(x, (MANY, 1)).astype(np.float32), device="numpy")).numpy()
    want = deviation(x / top, drawn) * factor
    apart = found - W @ x * (1.5 if scaled else 1.0)
    assert np.abs(apart.mean(0) / want).max() < 5.0 / np.sqrt(MANY)
    np.testing.assert_allclose(found.std(0), want, rtol=0.08)
    if "inputs" not in kind:  # all outputs of a vector have the same inputs
        assert np.abs(np.corrcoef(found.T) - np.eye(3)).max() < 5.0 / np.sqrt(MANY)
    assert np.abs(np.corrcoef(found[:-1, 0], found[1:, 0])[0, 1]) < 5.0 / np.sqrt(MANY)


def test_a_product_of_the_backward_pass_has_no_bound_management() -> None:
    tile, d = tile_of(**QUIET, out_bound=0.2), RNG.normal(size=(4, 3)).astype(np.float32)
    got = tile.backward(fb.asarray(d)).numpy()
    io = tile.config.backward
    want = np.stack([witness.product(v.astype(float), W.T.astype(float), io, bounded=False) for v in d])
    np.testing.assert_allclose(got, want, atol=2e-6)
    assert np.any(np.abs(want - d @ W) > 0.1)  # some are clipped


@pytest.mark.parametrize("least", [0, 1 << 40], ids=["program", "eager"])
@pytest.mark.parametrize(
    "io",
    [
        {}, {"is_perfect": True}, {"ir_drop": 1.0}, {"w_noise": 0.1, "w_noise_type": analog.WeightNoiseType.PCM_READ},
        {"mv_type": analog.AnalogMVType.POS_NEG_SEPARATE, "w_read_asymmetry_dtod": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_a_backward_product_is_the_forward_one_of_the_transposed_weights(
    io: dict[str, Any], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matvec, "COMPILED", least)
    periphery = analog.IOParameters(out_res=0.0, bound_management=analog.BoundManagementType.NONE, **io)
    tile = analog.Tile(3, 5, analog.RPUConfig(analog.FloatingPointDevice(), periphery, periphery), seed=5)
    other = analog.Tile(5, 3, tile.config, seed=5)
    tile.set_weights(W)
    other.set_weights(W.T)
    other.drawn_forward = tile.drawn_backward
    other.generator.set_state(tile.generator.state())
    d = fb.asarray(RNG.normal(size=(4, 3)).astype(np.float32))
    np.testing.assert_allclose(tile.backward(d).numpy(), other(d).numpy(), atol=1e-6)


def test_noise_is_equal_on_engines_and_new_in_each_product() -> None:
    io = {"inp_noise": 0.1, "out_noise": 0.2, "w_noise": 0.1, "w_noise_type": analog.WeightNoiseType.PCM_READ, "out_bound": 0.9}
    tiles = [tile_of(e, **io) for e in ("cpu", "numpy")]
    first = [t(fb.asarray(X, device=e)).numpy() for t, e in zip(tiles, ("cpu", "numpy"), strict=True)]
    second = [t(fb.asarray(X, device=e)).numpy() for t, e in zip(tiles, ("cpu", "numpy"), strict=True)]
    np.testing.assert_allclose(first[0], first[1], atol=0.01)
    assert np.mean(np.abs(first[0] - first[1]) > 1e-5) < 0.1  # a converter may decide otherwise at a tie
    assert np.abs(first[0] - second[0]).max() > 0.05


def test_zeros_and_no_vectors_are_products_too() -> None:
    tile = tile_of(**QUIET)
    assert tile(fb.zeros((2, 5))).tolist() == [[0.0] * 3] * 2
    assert tile(fb.zeros((0, 5))).shape == (0, 3)
    assert tile(fb.zeros((2, 0, 5))).shape == (2, 0, 3)
    assert tile(fb.ones(5)).shape == (3,)
    before = tile.weight.numpy()
    tile.update(fb.zeros((0, 5)), fb.zeros((0, 3)), 0.1)
    np.testing.assert_array_equal(tile.weight.numpy(), before)


def test_gradients_are_the_analog_product_and_the_outer_product() -> None:
    perfect = tile_of(is_perfect=True)
    x = fb.asarray(X)

    def loss(tile: analog.Tile, x: fb.Tensor) -> fb.Tensor:
        return fb.sum(tile(x) ** 2)

    grads = fb.grad(loss)(perfect, x)
    y = X @ W.T
    np.testing.assert_allclose(grads[perfect.weight].numpy(), 2.0 * y.T @ X, rtol=1e-5)
    of_x = fb.grad(lambda x: loss(perfect, x))(x)
    np.testing.assert_allclose(of_x.numpy(), 2.0 * y @ W, rtol=1e-4, atol=1e-5)
    coarse = analog.RPUConfig(
        analog.FloatingPointDevice(), analog.IOParameters(is_perfect=True), analog.IOParameters(out_noise=0.0, out_res=1 / 30)
    )
    tile = analog.Tile(3, 5, coarse, seed=1)
    tile.set_weights(W)
    want = tile.backward(fb.asarray((2.0 * y).astype(np.float32))).numpy()
    np.testing.assert_allclose(fb.grad(lambda x: loss(tile, x))(x).numpy(), want, atol=1e-5)


def test_updates_are_the_same_under_jit_for_batches_of_all_sizes() -> None:
    def step(tile: analog.Tile, x: fb.Tensor, d: fb.Tensor, lr: float) -> tuple[fb.Tensor, fb.Tensor]:
        y = tile(x)
        return y, tile.update(x, d, lr)

    compiled = fb.jit(step)
    one, other = (tile_of(device=analog.SoftBoundsDevice(dw_min=0.01, write_noise_std=1.0, **EQUAL)) for _ in range(2))
    for n in (1, 64, 3, 1, 64, 2):
        x, d = (fb.asarray(RNG.normal(size=(n, m)).astype(np.float32)) for m in (5, 3))
        (y, pulses), (z, more) = step(one, x, d, 0.05), compiled(other, x, d, 0.05)
        np.testing.assert_allclose(y.numpy(), z.numpy(), atol=1e-5)
        np.testing.assert_array_equal(pulses.numpy(), more.numpy())
        np.testing.assert_array_equal(one.weight.numpy(), other.weight.numpy())
        assert one.persistent is not None
        assert other.persistent is not None
        np.testing.assert_array_equal(one.persistent.numpy(), other.persistent.numpy())


def test_a_tile_goes_on_from_its_state() -> None:
    device = analog.LinearStepDevice(dw_min=0.01, write_noise_std=1.0, diffusion=0.01, lifetime=10.0, **EQUAL)
    first = tile_of(device=device)
    x, d = fb.asarray(X), fb.asarray(RNG.normal(size=(7, 3)).astype(np.float32))

    def run(tile: analog.Tile) -> Any:
        tile.update(x, d, 0.05)
        tile.end_mini_batch()
        return tile(x).numpy()

    run(first)
    second = tile_of(device=device, seed=6)
    second.load_state_dict(first.state_dict())
    second.generator.set_state(first.generator.state())
    for _ in range(3):
        np.testing.assert_array_equal(run(first), run(second))
        np.testing.assert_array_equal(first.weight.numpy(), second.weight.numpy())


def test_tiles_of_one_seed_are_equal_and_a_construction_seed_is_of_the_devices_alone() -> None:
    a, b = (analog.Tile(3, 5, seed=8, device=e).parameters_of_devices["max_bound"].numpy() for e in ("cpu", "numpy"))
    np.testing.assert_array_equal(a, b)
    config = analog.RPUConfig(analog.ConstantStepDevice(construction_seed=4))
    c, d = (analog.Tile(3, 5, config, seed=s).parameters_of_devices["max_bound"].numpy() for s in (1, 2))
    np.testing.assert_array_equal(c, d)
    assert np.any(a != c)


def test_weights_outside_of_the_bounds_are_clipped_and_counted() -> None:
    tile = analog.Tile(2, 2, analog.RPUConfig(analog.ConstantStepDevice(**EQUAL)), seed=0)
    assert tile.set_weights(np.array([[0.1, -0.1], [0.6, -0.6]])) == 0
    with pytest.warns(UserWarning, match="2 of 4 weights were outside"):
        assert tile.set_weights(np.array([[0.1, -0.1], [0.7, -0.9]])) == 2
    np.testing.assert_allclose(tile.weight.numpy(), [[0.1, -0.1], [0.6, -0.6]], atol=1e-6)


def test_decay_diffusion_and_resets_are_those_of_the_device() -> None:
    tile = tile_of(device=analog.ConstantStepDevice(lifetime=10.0, reset=0.1, reset_std=0.0, **EQUAL))
    tile.end_mini_batch()
    np.testing.assert_allclose(tile.weight.numpy(), (W - 0.1) * 0.9 + 0.1, atol=1e-6)
    tile.reset(first=4, count=2)
    np.testing.assert_allclose(tile.weight.numpy()[:, [0, 4]], 0.1, atol=1e-6)
    np.testing.assert_allclose(tile.weight.numpy()[:, 1:4], ((W - 0.1) * 0.9 + 0.1)[:, 1:4], atol=1e-6)
    still = tile_of(device=analog.ConstantStepDevice(**EQUAL))
    still.end_mini_batch()
    still.drift(10.0)
    np.testing.assert_array_equal(still.weight.numpy(), W)


def test_devices_are_reset_with_a_probability() -> None:
    tile = analog.Tile(40, 50, analog.RPUConfig(analog.ConstantStepDevice(reset=0.1, reset_std=0.0, **EQUAL)), seed=0)
    tile.set_weights(np.full((40, 50), 0.3))
    tile.reset(first=10, count=30, probability=0.25)
    back = np.abs(tile.weight.numpy() - 0.1) < 1e-6
    assert 0.2 < back[:, 10:40].mean() < 0.3
    assert not back[:, :10].any()
    assert not back[:, 40:].any()
    tile.reset()
    np.testing.assert_allclose(tile.weight.numpy(), 0.1, atol=1e-6)


def test_drift_starts_anew_for_devices_that_were_written() -> None:
    drift = analog.DriftParameter(nu=0.1)
    tile = tile_of(device=analog.ConstantStepDevice(drift=drift, **EQUAL))
    tile.drift(10.0)
    np.testing.assert_allclose(tile.weight.numpy(), W * 10**-0.1, rtol=1e-5)
    tile.drift(90.0)
    np.testing.assert_allclose(tile.weight.numpy(), W * 100**-0.1, rtol=1e-5)
    changed = tile.weight.numpy().copy()
    changed[0, 0] = 0.55
    tile.set_weights(changed)
    tile.drift(10.0)
    assert tile.weight.numpy()[0, 0] == pytest.approx(0.55 * 10**-0.1, rel=1e-5)
    np.testing.assert_allclose(tile.weight.numpy()[1:], W[1:] * 110**-0.1, rtol=1e-5)


def test_arguments_that_do_not_fit_are_refused() -> None:
    tile = tile_of()
    with pytest.raises(ShapeError, match="Tile: x"):
        tile(fb.ones((2, 4)))
    with pytest.raises(DTypeError, match="x is float32"):
        tile(fb.ones((2, 5), dtype=fb.float64))
    with pytest.raises(OperandError, match="x"):
        tile(X)
    with pytest.raises(ShapeError, match="as many vectors"):
        tile.update(fb.ones((2, 5)), fb.ones((3, 3)), 0.1)
    with pytest.raises(fb.DeviceMismatchError):
        tile.update(fb.ones((2, 5)), fb.ones((2, 3), device="numpy"), 0.1)
    with pytest.raises(ShapeError, match=r"weights are \[3, 5\]"):
        tile.set_weights(W.T)
    with pytest.raises(ConfigError, match="a device that can be reset"):
        tile.reset()
    with pytest.raises(ConfigError, match="seconds is a number > 0"):
        tile.drift(-1.0)
    with pytest.raises(ConfigError, match="config is an RPUConfig"):
        analog.Tile(2, 2, analog.ConstantStepDevice())  # type: ignore[arg-type]


@pytest.mark.parametrize("training", [True, False])
def test_vectors_of_zeros_start_no_running_mean_of_inputs(training: bool) -> None:
    def tile() -> analog.Tile:
        made = tile_of(**QUIET, noise_management=analog.NoiseManagementType.AVERAGE_ABS_MAX, nm_decay=0.25)
        return made if training else made.eval()

    x = np.zeros((11, 5), np.float32)
    x[2:5], x[6:] = X[:3], X[:5]
    whole, parts = tile(), tile()
    y = whole(fb.asarray(x)).numpy()
    one_by_one = np.concatenate([parts(fb.asarray(x[k : k + 1])).numpy() for k in range(11)])
    np.testing.assert_allclose(y, one_by_one, atol=1e-5)
    assert np.any(np.abs(y[2]) > 0.05)
    if training:
        mean = 0.0
        for top in np.abs(x).max(axis=1):
            mean = float(top) if mean == 0.0 else 0.75 * mean + 0.25 * float(top)
        assert whole.average_input is not None
        assert parts.average_input is not None
        assert whole.average_input.item() == pytest.approx(mean, rel=1e-5)
        assert parts.average_input.item() == pytest.approx(mean, rel=1e-5)


def test_the_running_mean_of_a_large_batch_takes_memory_for_its_vectors_only() -> None:
    io = analog.IOParameters(out_noise=0.0, noise_management=analog.NoiseManagementType.AVERAGE_ABS_MAX)
    tile = analog.Tile(1, 1, analog.RPUConfig(analog.FloatingPointDevice(), forward=io), seed=0)
    tops = RNG.uniform(0.5, 1.0, size=10_000).astype(np.float32)
    x = fb.asarray(tops[:, None])
    tracemalloc.start()
    try:
        tile(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000  # a matrix of weights for each pair of vectors is 800 MB
    want = float(tops[0])
    for top in tops:
        want = want * 0.999 + float(top) * 0.001
    assert tile.average_input is not None
    assert tile.average_input.item() == pytest.approx(want, rel=1e-4)


UPDATED: dict[str, analog.RPUConfig] = {
    "by pulses": analog.RPUConfig(analog.SoftBoundsDevice()),
    "by arithmetic": analog.RPUConfig(analog.FloatingPointDevice()),
    "within bounds": analog.RPUConfig(
        analog.SoftBoundsDevice(), update=analog.UpdateParameters(pulse_type=analog.PulseType.NONE_WITH_DEVICE)
    ),
    "with a digital sum": analog.RPUConfig(analog.MixedPrecisionCompound((analog.SoftBoundsDevice(),))),
    "by transfers": analog.RPUConfig(analog.TransferCompound((analog.SoftBoundsDevice(), analog.SoftBoundsDevice()))),
}


@pytest.mark.parametrize("kind", UPDATED)
def test_an_update_that_is_not_finite_is_refused_and_changes_nothing(kind: str) -> None:
    tile = analog.Tile(3, 5, UPDATED[kind], seed=0)
    x, d = np.ones((2, 5), np.float32), np.ones((2, 3), np.float32)
    tile.update(fb.asarray(x), fb.asarray(d), 0.1)
    before = {name: value.numpy() for name, value in tile.state_dict().items()}
    for bad in (np.nan, np.inf):
        for at in range(2):
            given = [x.copy(), d.copy()]
            given[at][1, 2] = bad
            with pytest.raises(OutOfRangeError, match="finite in float32"):
                tile.update(fb.asarray(given[0]), fb.asarray(given[1]), 0.1)
        for rate in (bad, fb.asarray(np.float32(bad))):
            with pytest.raises(OutOfRangeError, match="lr"):
                tile.update(fb.asarray(x), fb.asarray(d), rate)
    with pytest.raises(OutOfRangeError, match="lr=1e"):
        tile.update(fb.asarray(x), fb.asarray(d), 1e39)
    for rate, error in ((fb.ones(1), ShapeError), (fb.asarray(1), DTypeError), (True, OperandError), (None, OperandError)):
        with pytest.raises(error, match=r"lr|learning rate"):
            tile.update(fb.asarray(x), fb.asarray(d), rate)  # type: ignore[arg-type]
    for name, value in tile.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)


def test_an_error_that_is_not_finite_when_divided_by_the_scale_is_refused_and_changes_nothing() -> None:
    mapping = analog.MappingParameter(weight_scaling_omega=0.5)
    tile = analog.Tile(2, 2, analog.RPUConfig(analog.ConstantStepDevice(), mapping=mapping), seed=0)
    tile.place(np.full((2, 2), 0.3), scale=np.array([0.1, 1.0]))
    weight, place = tile.weight.numpy(), tile.generator.mark()
    with pytest.raises(OutOfRangeError, match="d / scale is finite in float32"):
        tile.update(fb.ones((1, 2)), fb.full((1, 2), 1e38), 0.1)
    np.testing.assert_array_equal(tile.weight.numpy(), weight)
    assert tile.generator.mark() == place


@pytest.mark.parametrize("device", [analog.SoftBoundsDevice(), analog.IdealDevice()], ids=["by pulses", "by arithmetic"])
def test_a_rate_on_another_device_is_refused_and_changes_nothing(device: Any) -> None:
    tile, rate = analog.Tile(3, 5, analog.RPUConfig(device), seed=0), fb.asarray(np.float32(0.1), device="cpu:1")
    place = tile.generator.mark()
    with pytest.raises(DeviceMismatchError, match=r"Tile\.update(.|\n)*lr: float32\[\] on cpu:1"):
        tile.update(fb.ones((2, 5)), fb.ones((2, 3)), rate)
    assert tile.generator.mark() == place
    if tile.by_arithmetic:
        with pytest.raises(DeviceMismatchError, match=r"Tile\.descend"):
            tile.descend(fb.ones((3, 5)), rate)


def test_weights_that_are_set_are_finite_and_become_float32() -> None:
    tile = tile_of()
    for given in (W.astype(np.float64), fb.asarray(W.astype(np.float64)), (W * 0).astype(np.int32), fb.asarray(W * 0 > 0)):
        tile.set_weights(given)
        assert tile.weight.dtype is fb.float32
    tile.set_weights(W)
    for bad in (np.nan, np.inf):
        wrong = W.copy()
        wrong[1, 1] = bad
        with pytest.raises(OutOfRangeError, match="weights"):
            tile.set_weights(wrong)
    with pytest.raises(DTypeError, match="real part"):
        tile.set_weights(fb.asarray(W.astype(np.complex64)))
    with pytest.raises(fb.DeviceMismatchError):
        tile.set_weights(fb.asarray(W, device="numpy"))
    np.testing.assert_array_equal(tile.weight.numpy(), W)
    layer = analog.Linear(5, 3, config=analog.RPUConfig(mapping=analog.MappingParameter(max_input_size=2)), seed=0)
    kept = layer.tiles.get_weights().numpy()
    wrong = W.copy()
    wrong[2, 4] = np.nan  # in the last tile
    for bad_weights, error in ((wrong, OutOfRangeError), (np.zeros((4, 5)), ShapeError), (np.zeros((3, 6)), ShapeError)):
        with pytest.raises(error, match="weights"):
            layer.tiles.set_weights(bad_weights)
    np.testing.assert_array_equal(layer.tiles.get_weights().numpy(), kept)


def test_a_gradient_of_another_shape_and_columns_that_are_no_ints_are_refused() -> None:
    tile = tile_of()
    for gradient in (fb.ones(5), fb.ones((1, 5)), fb.ones((5, 3))):
        with pytest.raises(ShapeError, match=r"a gradient \[3, 5\]"):
            tile.descend(gradient, 0.1)
    with pytest.raises(ShapeError, match="0-d"):
        tile.descend(fb.ones((3, 5)), fb.ones(5))
    pulsed = tile_of(device=analog.SoftBoundsDevice(**EQUAL))
    for wrong in ({"first": 1.5}, {"first": True}, {"count": 2.0}):
        with pytest.raises(ConfigError, match="is an int"):
            pulsed.reset(**wrong)  # type: ignore[arg-type]


def test_drift_by_the_logarithm_of_a_conductance_that_is_not_positive_is_refused() -> None:
    tile = tile_of(device=analog.ConstantStepDevice(drift=analog.DriftParameter(nu=0.1, nu_k=0.1), **EQUAL))
    before = tile.weight.numpy()
    with pytest.raises(OutOfRangeError, match=rf"{np.sum(W <= 0)} of 15 devices"):
        tile.drift(10.0)
    np.testing.assert_array_equal(tile.weight.numpy(), before)
    tile.set_weights(np.abs(W))
    tile.drift(10.0)
    assert np.isfinite(tile.weight.numpy()).all()


@pytest.mark.parametrize("kind", [analog.RPUConfig(), analog.InferenceRPUConfig()])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_tiles_that_were_cast_are_refused(kind: analog.RPUConfig, dtype: str) -> None:
    layer = analog.Linear(4, 3, config=kind, seed=0).astype(dtype)
    with pytest.raises(DTypeError, match="Tile: weights are float32"):
        layer(fb.ones((2, 4)))
