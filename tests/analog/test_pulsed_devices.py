from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import analog_witness as witness
import numpy as np
import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog import device_array
from firebrick.core.errors import ConfigError

ONE_PULSE = analog.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


def quiet(model: analog.PulsedDevice) -> Any:
    """The device without noise from pulse to pulse."""
    names = ("dw_min_std", "write_noise_std", "dw_min_std_add", "dw_min_std_slope")
    return replace(model, **{f.name: 0.0 for f in fields(model) if f.name in names})


def made(
    model: Any, engine: str = "cpu", update: Any = ONE_PULSE, size: tuple[int, int] = (3, 5), seed: int = 7
) -> analog.Tile:
    return analog.Tile(*size, analog.RPUConfig(model, update=update), seed=seed, device=engine)


def pulses(tile: analog.Tile, direction: int, count: int, engine: str = "cpu") -> None:
    """One pulse on each device and vector."""
    tile.update(
        fb.ones((count, tile.columns), device=engine), fb.full((count, tile.rows), -float(direction), device=engine), 1.0
    )


@pytest.mark.parametrize("engine", ["cpu", pytest.param("numpy", marks=pytest.mark.soak)])  # whose bits are compared below
def test_a_pulse_is_the_formula_of_the_device(model: analog.PulsedDevice, engine: str) -> None:
    device = quiet(model)
    tile = made(device, engine)
    parameters = {n: b.numpy().astype(np.float64) for n, b in tile.parameters_of_devices.items()}
    parts = [(1, 1), (1, 29), (-1, 2), (-1, 40), (1, 1), (-1, 1)]
    seen = []
    for direction, count in parts:
        pulses(tile, direction, count, engine)
        seen.append(tile.weight.numpy())
    ends = np.cumsum([count for _, count in parts]) - 1
    for i in range(tile.rows):
        for j in range(tile.columns):
            own = {n: float(v[i, j]) for n, v in parameters.items()}
            want = np.array(witness.course(device, own, 0.0, [d > 0 for d, count in parts for _ in range(count)]))[ends]
            np.testing.assert_allclose([w[i, j] for w in seen], want, atol=3e-6)


def test_weights_have_the_same_bits_on_the_engine_and_in_the_interpreter(model: analog.PulsedDevice) -> None:
    rng = np.random.default_rng(3)
    x, d = (rng.normal(size=(6, n)).astype(np.float32) for n in (5, 3))
    found, counts = [], []
    for engine in ("cpu", "numpy"):
        tile = made(model, engine, analog.UpdateParameters())
        counts.append(tile.update(fb.asarray(x, device=engine), fb.asarray(d, device=engine), 0.1).numpy())
        found.append(tile.weight.numpy())
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_array_equal(found[0], found[1])
    assert np.sum(counts[0]) > 50


def deviation_of_batches(model: analog.PulsedDevice, sizes: list[int]) -> float:
    """How far the weights after batches of certain sizes are from those after as many single vectors."""
    device = quiet(model)
    one, many = made(device), made(device)
    for k, n in enumerate(sizes):
        direction = 1 if k % 2 == 0 else -1
        pulses(many, direction, n)
        for _ in range(n):
            pulses(one, direction, 1)
    return float(np.abs(one.weight.numpy() - many.weight.numpy()).max())


def test_a_batch_is_never_served_by_a_kernel_prepared_for_another(model: analog.PulsedDevice) -> None:
    """Whatever the order: a first batch of one vector, then larger, smaller and alternating ones."""
    assert deviation_of_batches(model, [1, 64, 7, 1, 64, 2]) == 0.0
    assert deviation_of_batches(model, [64, 1, 17]) == 0.0


def counts_of_batches(model: Any, sizes: list[int], update: Any, engine: str = "cpu") -> list[tuple[int, int]]:
    """The least and the largest number of pulses that a device got in batches of certain sizes, one for each vector."""
    tile, found = made(model, engine), []
    for k, n in enumerate(sizes):
        d = fb.full((n, tile.rows), -1.0 if k % 2 == 0 else 1.0, device=engine)
        counts = update(tile, fb.ones((n, tile.columns), device=engine), d).numpy()
        found.append((int(counts.min()), int(counts.max())))
    return found


SIZES = [1, 64, 7, 1, 64, 1, 7]


@pytest.mark.parametrize("engine", ["cpu", pytest.param("numpy", marks=pytest.mark.soak)])
def test_no_vector_is_left_out_whatever_batch_came_before(model: analog.PulsedDevice, engine: str) -> None:
    """With noise too, where the weights do not show it."""
    found = counts_of_batches(model, SIZES, lambda t, x, d: t.update(x, d, 1.0), engine)
    assert found == [(n, n) for n in SIZES]


def updated(tile: Any, x: Any, d: Any) -> Any:
    return tile.update(x, d, 1.0)


@pytest.mark.parametrize("device", [analog.ConstantStepDevice, analog.SoftBoundsDevice])
def test_no_vector_is_left_out_by_a_compiled_update(device: Any) -> None:
    sizes = [1, 64, 7, 1]
    assert counts_of_batches(device(dw_min=0.01), sizes, fb.jit(updated)) == [(n, n) for n in sizes]


@pytest.mark.soak
def test_no_vector_is_left_out_after_tuning(model: analog.PulsedDevice) -> None:
    wanted = [(n, n) for n in SIZES]
    for tune in ("off", "on", "cached"):
        with fb.config.scope(tune=tune):
            assert counts_of_batches(model, SIZES, fb.jit(updated)) == wanted
            assert deviation_of_batches(model, SIZES) == 0.0


@pytest.mark.parametrize(
    ("batch", "length"), [(150, 31), (3, 1500), (2, 2100), (40, 33), (3, 9), (14, 5), (900, 3)],
    ids=[
        "more pulses than a queue has room for", "trains longer than a piece", "trains longer than a queue", "two words",
        "several samples in a word", "more pulses than a word has bits", "more such pulses than a queue has room for",
    ],
)  # fmt: skip
def test_pulses_of_many_samples_and_of_long_trains_come_in_order(batch: int, length: int) -> None:
    """Steps of soft bounds up and down do not commute, so the weights show the order."""
    device = quiet(analog.SoftBoundsDevice(dw_min=0.003))
    update = analog.UpdateParameters(desired_bl=length, update_bl_management=False)
    tile = made(device, update=update, size=(2, 3))
    rng = np.random.default_rng(batch)
    x, d = (np.where(rng.random((batch, n)) < 0.5, -1.0, 1.0).astype(np.float32) for n in (3, 2))
    counts = tile.update(fb.asarray(x), fb.asarray(d), 0.003 * length).numpy()
    assert np.all(counts == batch * length)  # lines that are as large as the largest fire in each slot
    parameters = {n: b.numpy().astype(np.float64) for n, b in tile.parameters_of_devices.items()}
    for i in range(2):
        for j in range(3):
            own = {n: float(v[i, j]) for n, v in parameters.items()}
            rises = np.repeat(x[:, j] * d[:, i] < 0.0, length)
            want = witness.course(device, own, 0.0, rises.tolist())[-1]
            np.testing.assert_allclose(tile.weight.numpy()[i, j], want, atol=2e-5)


@pytest.mark.parametrize(
    "device",
    [analog.SoftBoundsDevice(write_noise_std=1.0), analog.ConstantStepDevice(), analog.SoftBoundsReferenceDevice()],
    ids=lambda d: type(d).__name__,
)
def test_an_update_as_a_program_has_the_bits_of_one_that_runs_as_it_is_written(
    device: analog.PulsedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    found = []
    x, d = (fb.asarray(rng.normal(size=(40, n)).astype(np.float32)) for n in (37, 5))
    for least in (1 << 60, 0):
        monkeypatch.setattr(device_array, "COMPILED", least)
        tile = made(device, update=analog.UpdateParameters(), size=(5, 37))
        counts = [tile.update(x, d * scale, 0.01).numpy() for scale in (1.0, 0.001)]
        found.append([*counts, tile.weight.numpy(), tile.arrays[0].acted_on.numpy()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.sum(found[0][0]) > 1000
    assert 0 < np.sum(found[0][1]) < 200


def sums_and_steps(monkeypatch: pytest.MonkeyPatch, w_max: float) -> list[Any]:
    """Weights after pulses up and down, of devices whose steps are summed, and of devices that take pulse after pulse."""
    rng = np.random.default_rng(5)
    x, d = (fb.asarray(rng.normal(size=(40, n)).astype(np.float32)) for n in (100, 100))
    plain = {"dw_min_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0, "up_down_dtod": 0.0}
    device = analog.ConstantStepDevice(dw_min=0.01, dw_min_std=0.5, w_max=w_max, w_min=-w_max, **plain)
    found = []
    for joint in (analog.ConstantStepDevice.joint_pulses, lambda model: None):
        monkeypatch.setattr(analog.ConstantStepDevice, "joint_pulses", joint)
        tile = made(device, update=analog.UpdateParameters(analog.PulseType.MEAN_COUNT), size=(100, 100))
        counts = tile.update(x, d, 0.05).numpy()
        found.append((counts, tile.weight.numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    return [w for _, w in found]


def test_sums_of_constant_steps_have_the_law_of_single_pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = sums_and_steps(monkeypatch, 10.0)
    spread = (one - other).astype(np.float64)
    counts = (one - other) != 0.0
    assert counts.mean() > 0.9  # other random numbers
    assert abs(spread.mean()) < 5.0 * spread.std() / 100.0
    quiet_one = analog.Tile(100, 100, analog.RPUConfig(
        analog.ConstantStepDevice(dw_min=0.01, dw_min_std=0.0, w_max=10.0, w_min=-10.0, dw_min_dtod=0.0, w_max_dtod=0.0,
                                  w_min_dtod=0.0, up_down_dtod=0.0),
        update=analog.UpdateParameters(analog.PulseType.MEAN_COUNT)), seed=7)  # fmt: skip
    rng = np.random.default_rng(5)
    x, d = (fb.asarray(rng.normal(size=(40, n)).astype(np.float32)) for n in (100, 100))
    pulses = quiet_one.update(x, d, 0.05).numpy()
    for w in (one, other):
        z = (w - quiet_one.weight.numpy()) / (0.005 * np.sqrt(np.maximum(pulses, 1)))
        z = z[pulses > 0]
        assert abs(z.mean()) < 5.0 / np.sqrt(z.size)
        assert abs((z**2).mean() - 1.0) < 5.0 * np.sqrt(2.0 / z.size)


def test_sums_of_constant_steps_stop_at_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = sums_and_steps(monkeypatch, 0.05)
    assert np.abs(one).max() <= np.float32(0.05)
    assert abs(np.mean(np.abs(one) == np.float32(0.05)) - np.mean(np.abs(other) == np.float32(0.05))) < 0.05
    assert abs(one.std() - other.std()) < 0.002


def test_a_kernel_that_computes_the_first_vector_only_is_found(
    model: analog.PulsedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = device_array.update_kernel

    def planted(*key: Any) -> Any:
        kernel = right(*key)

        def first_only(*given: Any) -> Any:
            length, fired = given[9].numpy(), given[13].numpy().copy()
            fired[0] &= (1 << int(length[0])) - 1
            fired[1:] = 0
            return kernel(*given[:13], fb.asarray(fired), *given[14:])

        return first_only

    monkeypatch.setattr(device_array, "update_kernel", planted)
    assert deviation_of_batches(model, [1, 64]) > 0.01


def test_pulses_stop_at_the_bounds_of_each_device(model: analog.PulsedDevice) -> None:
    device = quiet(model)
    tile = made(device)
    low, high = (t.numpy() for t in device.limits(dict(tile.parameters_of_devices)))
    for direction, bound in ((1, high), (-1, low)):
        pulses(tile, direction, 400)
        w = tile.weight.numpy()
        assert np.all(w >= low)
        assert np.all(w <= high)
        assert np.abs(w - bound).max() < 0.5  # steps become small there


def test_stuck_devices_do_not_move() -> None:
    device = analog.ConstantStepDevice(dw_min=0.01, corrupt_devices_prob=0.5)
    tile = made(device, size=(20, 20))
    stuck = tile.parameters_of_devices["dwmin_up"].numpy() == 0.0
    assert 0.35 < stuck.mean() < 0.65
    pulses(tile, 1, 5)
    before = tile.weight.numpy()
    pulses(tile, 1, 5)
    np.testing.assert_array_equal(tile.weight.numpy()[stuck], before[stuck])
    assert np.all(tile.weight.numpy()[~stuck] > before[~stuck])


@dataclass(frozen=True)
class QuadraticDevice(analog.PulsedDevice):
    """A device of a user: steps shrink with the square of the weight."""

    curvature: float = 0.5

    @fb.kernel.function
    def pulse(w: Any, up: Any, xi: Any, dwmin_up: Any, dwmin_down: Any, dw_min_std: Any, curvature: Any) -> Any:
        step = dwmin_up if up else -dwmin_down
        return w + step * (1.0 - curvature * w * w) * (1.0 + dw_min_std * xi)


def test_a_device_of_a_user_runs_on_every_engine() -> None:
    device = QuadraticDevice(dw_min=0.01, dw_min_std=0.0, w_max_dtod=0.0, dw_min_dtod=0.0, up_down_dtod=0.0)
    for engine in ("cpu", "numpy"):
        tile = made(device, engine)
        pulses(tile, 1, 20, engine)
        w = 0.0
        for _ in range(20):
            w += 0.01 * (1.0 - 0.5 * w * w)
        np.testing.assert_allclose(tile.weight.numpy(), w, rtol=1e-5)


@dataclass(frozen=True)
class MisspeltDevice(analog.PulsedDevice):
    @fb.kernel.function
    def pulse(w: Any, up: Any, xi: Any, dwmin_upp: Any) -> Any:
        return w + dwmin_upp


def test_a_device_whose_pulse_has_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"MisspeltDevice\.pulse has the parameters w, up and xi") as e:
        made(MisspeltDevice())
    assert "dwmin_upp, which is neither" in str(e.value)


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        (analog.ConstantStepDevice, {"dw_min": 0.0}, "dw_min is a finite number above 0"),
        (analog.ConstantStepDevice, {"dw_min": -0.1}, "dw_min is a finite number above 0"),
        (analog.ConstantStepDevice, {"w_max": -0.1}, "w_min ≤ 0 ≤ w_max"),
        (analog.ConstantStepDevice, {"w_min": float("nan")}, "w_min is a finite number"),
        (analog.ConstantStepDevice, {"dw_min_std": -1.0}, "dw_min_std is a finite number of at least 0"),
        (analog.ConstantStepDevice, {"corrupt_devices_prob": 1.5}, r"corrupt_devices_prob is in \[0, 1\]"),
        (analog.ConstantStepDevice, {"enforce_consistency": 1}, "enforce_consistency is True or False"),
        (analog.ConstantStepDevice, {"drift": 0.1}, "drift is a DriftParameter"),
        (analog.LinearStepDevice, {"reverse_up": True, "mult_noise": False}, "reversed steps have multiplicative noise"),
        (analog.SoftBoundsPmaxDevice, {"range_min": 1.0, "range_max": 0.5}, "range_min < range_max"),
        (analog.ExpStepDevice, {"A_up": 100.0, "A_down": 100.0}, "pulses change a weight of 0"),
        (analog.PiecewiseStepDevice, {"piecewise_up": (1.0, 0.5)}, "as many values"),
        (analog.PiecewiseStepDevice, {"piecewise_up": (1.0, 0.0), "piecewise_down": (1.0, 1.0)}, "middle value"),
        (analog.DriftParameter, {"t_0": 0.0}, "t_0 is a finite number above 0"),
        (analog.UpdateParameters, {"desired_bl": 0}, "desired_bl is an int from 1 to 65535"),
        (analog.UpdateParameters, {"pulse_type": "mean"}, "pulse_type is a PulseType"),
        (analog.IOParameters, {"inp_bound": 2.0}, "inp_bound is 1 with noise management"),
        (analog.IOParameters, {"out_noise": -0.1}, "out_noise is a finite number of at least 0"),
        (analog.IOParameters, {"mv_type": 1}, "mv_type is a AnalogMVType"),
        (analog.IOParameters, {"nm_decay": 2.0}, "nm_decay is in"),
        (analog.RPUConfig, {"device": "constant"}, "device is a PulsedDevice or ArithmeticDevice"),
        (analog.RPUConfig, {"forward": 3}, "forward is a IOParameters"),
    ],
)
def test_a_setting_without_meaning_is_refused(kind: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        kind(**settings)


@dataclass(frozen=True)
class OwnDevice(analog.ConstantStepDevice):
    curvature: float = 0.5


def test_numpys_scalars_become_python_numbers() -> None:
    nodes = (np.float32(1.0), np.int64(2))
    for got, want in (
        (OwnDevice(curvature=np.float32(0.25), dw_min=np.float64(0.01)), OwnDevice(curvature=0.25, dw_min=0.01)),
        (analog.PiecewiseStepDevice(piecewise_up=nodes, piecewise_down=nodes),
         analog.PiecewiseStepDevice(piecewise_up=(1.0, 2.0), piecewise_down=(1.0, 2.0))),
        (analog.SoftBoundsPmaxDevice(p_max=np.float32(100.0)), analog.SoftBoundsPmaxDevice(p_max=100.0)),
        (analog.UpdateParameters(analog.PulseType.MEAN_COUNT, np.int64(7), np.bool_(False)),
         analog.UpdateParameters(analog.PulseType.MEAN_COUNT, 7, False)),
        (analog.MappingParameter(max_input_size=np.int32(8)), analog.MappingParameter(max_input_size=8)),
        (analog.IOParameters(out_noise=np.float32(0.5)), analog.IOParameters(out_noise=0.5)),
    ):  # fmt: skip
        assert got == want
        assert repr(got) == repr(want)
    with pytest.raises(ConfigError, match="dw_min is a finite number"):
        analog.ConstantStepDevice(dw_min=np.bool_(True))
    with pytest.raises(ConfigError, match="desired_bl is an int"):
        analog.UpdateParameters(desired_bl=np.bool_(True))


def test_a_tile_drifts_for_numpys_seconds() -> None:
    tiles = [made(analog.ConstantStepDevice(drift=analog.DriftParameter(nu=0.1))) for _ in range(2)]
    for tile, seconds in zip(tiles, (np.float32(100.0), 100.0), strict=True):
        tile.set_weights(np.full((3, 5), 0.2, np.float32))
        tile.drift(seconds)
    assert tiles[0].weight.tolist() == tiles[1].weight.tolist()
    with pytest.raises(ConfigError, match="seconds is a number > 0"):
        tiles[0].drift(np.bool_(True))


def test_pulses_up_and_down_are_as_large_at_a_symmetry_point_that_is_subtracted() -> None:
    rng = np.random.default_rng(0)
    model = analog.SoftBoundsReferenceDevice(subtract_symmetry_point=True)
    d = model.populate((3, 4), lambda: rng.normal(size=(3, 4)), lambda: rng.uniform(size=(3, 4)))
    up = d["dwmin_up"] - d["slope_up"] * d["reference"]
    down = d["dwmin_down"] - d["slope_down"] * d["reference"]
    assert np.allclose(up, down, rtol=1e-4, atol=0.0) or np.allclose(up, -down, rtol=1e-4, atol=0.0)
    assert np.abs(d["reference"]).min() > 0.0


@pytest.mark.parametrize("kind", [analog.SoftBoundsReferenceDevice, analog.PowStepReferenceDevice])
def test_bounds_of_devices_with_a_reference_are_those_of_the_device_less_the_reference(kind: Any) -> None:
    tile = analog.Tile(3, 4, analog.RPUConfig(kind(reference_mean=0.2, reference_std=0.1)), seed=0)
    hidden = {k: v.numpy() for k, v in tile.arrays[0].hidden.items()}
    assert hidden["reference"].min() < hidden["reference"].max()
    for given, bound in ((9.0, "max_bound"), (-9.0, "min_bound")):
        with pytest.warns(UserWarning, match="12 of 12 weights were outside"):
            tile.set_weights(np.full((3, 4), given))
        np.testing.assert_allclose(tile.weight.numpy(), hidden[bound] - hidden["reference"], rtol=1e-6)
        for _ in range(3):  # pulses toward the bound and beyond
            tile.update(fb.ones((10, 4)), fb.full((10, 3), -given), lr=0.05)
        np.testing.assert_allclose(tile.weight.numpy(), hidden[bound] - hidden["reference"], atol=0.02)


def test_a_reference_at_the_symmetry_point_is_where_steps_up_and_down_are_equal() -> None:
    rng = np.random.default_rng(0)
    device = analog.PowStepReferenceDevice(
        subtract_symmetry_point=True, up_down=0.3, up_down_dtod=0.1, pow_gamma=1.5, pow_up_down=0.2, n_estimation_steps=20000
    )
    drawn = device.populate((4, 5), lambda: rng.standard_normal((4, 5)), lambda: rng.random((4, 5)))
    point, width = drawn["reference"], drawn["max_bound"] - drawn["min_bound"]
    rise = drawn["dwmin_up"] * ((drawn["max_bound"] - point) / width) ** drawn["gamma_up"]
    fall = drawn["dwmin_down"] * ((point - drawn["min_bound"]) / width) ** drawn["gamma_down"]
    assert np.abs(point).max() > 0.01
    np.testing.assert_allclose(rise, fall, rtol=1e-6)
