"""What changes the state of a tile, or looks as if it did: it takes effect, or is refused by name."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, nn, optim
from firebrick.core.errors import ConfigError
from firebrick.nn import StateError

SOFT = analog.SoftBoundsDevice(dw_min=0.01)
DEVICES = {
    "soft bounds": SOFT, "vector": analog.VectorUnitCell((SOFT, SOFT)), "reference": analog.ReferenceUnitCell((SOFT, SOFT)),
    "transfer": analog.BufferedTransferCompound((SOFT, SOFT)),
}  # fmt: skip


def layer_of(device: Any) -> tuple[analog.Linear, analog.Tile]:
    layer = analog.Linear(4, 3, config=analog.RPUConfig(device), seed=0)
    return layer, layer.tiles.tiles[0][0]


def times_two(tile: analog.Tile) -> None:
    tile.weight *= 2.0


def state_of(model: nn.Module) -> dict[str, Any]:
    return {n: t.numpy().copy() for n, t in model.state_dict().items()}


def assert_same(model: nn.Module, before: dict[str, Any]) -> None:
    after = state_of(model)
    assert after.keys() == before.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, name)


ONES = np.ones((3, 4), np.float32)
WRITES: dict[str, Callable[[analog.Tile], Any]] = {
    "elements": lambda t: t.weight.__setitem__(..., 3.0), "in place": times_two,
    "assigned": lambda t: setattr(t, "weight", fb.asarray(ONES)), "out": lambda t: fb.add(fb.asarray(ONES), 1.0, out=t.weight),
    "initial": lambda t: nn.initial.constant(t.weight, 2.0),
    "another": lambda t: setattr(t, "weight", nn.Parameter(fb.asarray(ONES))), "weight norm": nn.weight_norm,
    "spectral norm": nn.spectral_norm, "optimizer": lambda t: optim.SGD([t.weight], lr=0.1),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_write_past_the_devices_is_refused_and_changes_nothing(device: Any, write: Callable[[Any], Any]) -> None:
    layer, tile = layer_of(device)
    before = state_of(layer)
    with pytest.raises(ConfigError, match=r"set_weights|use analog\.SGD"):
        write(tile)
    assert_same(layer, before)
    tile.set_weights(ONES * 0.1)
    np.testing.assert_allclose(tile.weight.numpy(), 0.1, rtol=1e-5)


def test_a_write_past_the_devices_is_refused_in_a_graph_and_in_copies() -> None:
    layer, _ = layer_of(SOFT)

    @fb.jit
    def written(model: analog.Linear) -> fb.Tensor:
        model.tiles.tiles[0][0].weight[...] = 3.0
        return model(fb.ones((1, 4)))

    for model in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        with pytest.raises(ConfigError, match="set_weights"):
            written(model)


def test_weights_without_bounds_may_be_written() -> None:
    layer, tile = layer_of(analog.IdealDevice())
    tile.weight[...] = 3.0
    tile.update(fb.ones((1, 4)), fb.ones((1, 3)), 1.0)
    np.testing.assert_array_equal(layer.tiles.get_weights().numpy(), 2.0)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_weights_without_the_state_of_their_devices_are_not_loaded(device: Any) -> None:
    layer, _ = layer_of(device)
    other = analog.Linear(4, 3, config=analog.RPUConfig(device), seed=1)
    before, model = state_of(layer), nn.Sequential(layer)
    with pytest.raises(StateError, match=r"layers\.0\.tiles\.tiles\.0\.0\.weight without arrays"):
        model.load_state_dict({f"layers.0.{n}": p.detach() for n, p in other.named_parameters()}, strict=False)
    assert_same(layer, before)
    layer.load_state_dict({"bias": other.bias.detach()}, strict=False)  # type: ignore[union-attr]
    layer.load_state_dict(other.state_dict(), strict=False)
    assert_same(layer, state_of(other))


def test_devices_of_one_array_of_a_cell_are_shown() -> None:
    _, tile = layer_of(DEVICES["reference"])
    tile.arrays[0].place(fb.asarray(ONES * 0.25))
    tile.arrays[1].place(fb.asarray(ONES * 0.125))
    tile.show()
    np.testing.assert_array_equal(tile.weight.numpy(), 0.125)


FIXED: dict[str, tuple[Callable[[Any], nn.Module], str]] = {
    "configuration": (lambda m: m.tiles.tiles[0][0], "config"), "generator": (lambda m: m.tiles.tiles[0][0], "generator"),
    "rows": (lambda m: m.tiles.tiles[0][0], "rows"), "rate": (lambda m: m.tiles.tiles[0][0], "lr"),
    "pulses": (lambda m: m.tiles.tiles[0][0], "pulsed"),
    "learning rate": (lambda m: m.tiles.tiles[0][0], "learning_rate"), "mapping": (lambda m: m.tiles, "mapping"),
    "configuration of a layer": (lambda m: m, "config"), "weight of a layer": (lambda m: m, "weight"),
    "weight of an array": (lambda m: m.tiles, "weight"),
}  # fmt: skip


@pytest.mark.parametrize(("of", "name"), FIXED.values(), ids=FIXED)
@pytest.mark.parametrize("config", [analog.RPUConfig(SOFT), analog.InferenceRPUConfig()], ids=["pulsed", "inference"])
@pytest.mark.parametrize("make", [analog.Linear, partial(analog.Conv1d, kernel=1)], ids=["linear", "convolution"])
def test_what_only_making_decides_is_not_assigned(make: Any, config: Any, of: Any, name: str) -> None:
    layer = make(4, 3, config=config, seed=0)
    with pytest.raises(ConfigError, match=rf"{name}(.|\n)*(set_weights|set_state|learning_rate|make a)"):
        setattr(of(layer), name, analog.RPUConfig())


def test_matrices_of_recurrent_layers_stay_in_tiles() -> None:
    layer = analog.LSTM(3, 4, seed=0)
    for value in (fb.ones((16, 3)), nn.Parameter(fb.ones((16, 3)))):
        with pytest.raises(ConfigError, match=r"LSTM\.weight_ih_l0 stays(.|\n)*layer\.weight_ih_l0\.set_weights"):
            layer.weight_ih_l0 = value


@pytest.mark.parametrize("name", ["lr", "momentum", "weight_decay", "param_groups"])
@pytest.mark.parametrize("kind", [analog.SGD, optim.SGD])
def test_a_setting_of_an_optimizer_is_not_assigned_where_nothing_reads_it(kind: Any, name: str) -> None:
    model = nn.Linear(4, 3) if kind is optim.SGD else layer_of(SOFT)[0]
    optimizer = kind(model, lr=0.1)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': write optimizer\.(learning_rate|groups)"):
        setattr(optimizer, name, 0.5)
    with pytest.raises(AttributeError, match="lr"):
        optimizer.groups[0].lr = 0.5


def test_the_learning_rate_and_the_settings_of_an_optimizer_are_those_that_are_assigned() -> None:
    model = analog.convert(nn.Linear(4, 3), analog.RPUConfig(analog.IdealDevice()), seed=0)
    optimizer = analog.SGD(model, lr=0.1)

    @fb.jit
    def step(model: Any, x: fb.Tensor) -> None:
        optimizer.update(model, fb.grad(lambda m: fb.sum(m(x)))(model))

    def changes() -> tuple[float, float]:
        before = model.bias.numpy().copy(), model.tiles.get_weights().numpy()
        step(model, fb.ones((1, 4)))
        return float((before[0] - model.bias.numpy())[0]), float((before[1] - model.tiles.get_weights().numpy())[0, 0])

    np.testing.assert_allclose(changes(), 0.1, rtol=1e-5)
    optimizer.learning_rate = 0.5
    np.testing.assert_allclose(changes(), 0.5, rtol=1e-5)
    optimizer.groups[0].lr_scale = 2.0
    np.testing.assert_allclose(changes(), 1.0, rtol=1e-5)
    optimizer.groups[0].settings = replace(optimizer.settings, momentum=0.5)
    changes()
    np.testing.assert_allclose(changes(), (1.5, 1.0), rtol=1e-5)


class OwnSGD(optim.Optimizer):
    """An optimizer whose class has a setting under another name."""

    def __init__(self, model: Any, lr: float) -> None:
        super().__init__(model, lr, Settings())
        self.lr = lr

    def new_values(self, p: Any, g: Any, moments: Any, scalars: Any, settings: Any) -> Any:
        return p - g * scalars[0], []


@dataclass(frozen=True)
class Settings:
    """None."""


def test_an_optimizer_of_ones_own_may_have_any_attribute() -> None:
    assert OwnSGD(nn.Linear(2, 2), lr=0.5).lr == 0.5


@pytest.mark.parametrize("change", [{"lifetime": 10.0}, {"diffusion": 0.01}], ids=str)
@pytest.mark.parametrize("kind", ["pulsed", "cell", "inference"])
def test_devices_of_a_frozen_tile_decay_and_diffuse_with_a_warning(kind: str, change: dict[str, float]) -> None:
    device = SOFT if kind != "inference" else analog.IdealDevice()
    device = replace(device, **change)
    config: Any = analog.InferenceRPUConfig(device) if kind == "inference" else analog.RPUConfig(device)
    if kind == "cell":
        config = analog.RPUConfig(analog.VectorUnitCell((device, device)))
    model = analog.Linear(4, 3, config=config, seed=0)
    optimizer = analog.SGD(model, lr=0.1)
    model.tiles.freeze()
    before = model.tiles.get_weights().numpy()
    gradients = fb.grad(lambda m: fb.sum(m(fb.ones((1, 4)))))(model)
    with pytest.warns(UserWarning, match=r"tiles\.tiles\.0\.0\.weight is frozen, but its devices decay or diffuse"):
        optimizer.update(model, gradients)
    after = model.tiles.get_weights().numpy()
    if "lifetime" in change:
        np.testing.assert_allclose(after, before * 0.9, rtol=1e-5)
    assert np.all(after != before)


def test_a_frozen_tile_of_lasting_devices_stays_as_it_is() -> None:
    model, _ = layer_of(SOFT)
    model.tiles.freeze()
    before = model.tiles.get_weights().numpy()
    analog.SGD(model, lr=0.1).update(model, fb.grad(lambda m: fb.sum(m(fb.ones((1, 4)))))(model))
    np.testing.assert_array_equal(model.tiles.get_weights().numpy(), before)


def test_optimizers_that_end_no_mini_batch_are_named() -> None:
    model = analog.Linear(4, 3, config=analog.RPUConfig(analog.IdealDevice(lifetime=10.0)), seed=0)
    with pytest.warns(UserWarning, match="Adam ends no mini-batch of the tile"):
        optim.Adam(model)
    analog.SGD(model, lr=0.1)


BOUNDED = {
    "bounds": (SOFT, analog.PulseType.NONE_WITH_DEVICE),
    "write noise": (replace(SOFT, write_noise_std=1.0), analog.PulseType.NONE),
}


@pytest.mark.parametrize(("device", "kind"), BOUNDED.values(), ids=BOUNDED)
def test_optimizers_that_pass_by_bounds_or_write_noise_are_refused(device: Any, kind: analog.PulseType) -> None:
    config = analog.RPUConfig(device, update=analog.UpdateParameters(kind))
    model = analog.Linear(4, 3, config=config, seed=0)
    with pytest.raises(ConfigError, match="change by the updates of its device"):
        optim.Adam(model)
    analog.SGD(model, lr=0.1)


def test_an_analog_optimizer_is_made_for_a_model() -> None:
    _, tile = layer_of(analog.IdealDevice())
    with pytest.raises(ConfigError, match="SGD: a module, whose tiles it updates"):
        analog.SGD([tile.weight], lr=0.1)  # type: ignore[arg-type]


NO_WEIGHTS: dict[str, Any] = {
    "text": "abc", "nothing": None, "ragged": [[1.0, 2.0], [3.0]], "texts": [["1"] * 4] * 3, "objects": ONES.astype(object),
    "masked": np.ma.masked_array(ONES), "other": object(),
}  # fmt: skip


@pytest.mark.parametrize("given", NO_WEIGHTS.values(), ids=NO_WEIGHTS)
def test_weights_that_are_no_array_of_numbers_are_refused(given: Any) -> None:
    layer, tile = layer_of(SOFT)
    before = state_of(layer)
    for owner in (layer.tiles, tile):
        with pytest.raises(fb.OperandError, match=rf"{type(owner).__name__}\.set_weights: weights are numbers in rows"):
            owner.set_weights(given)
    with pytest.raises(fb.DTypeError):
        tile.set_weights(ONES.astype("M8[s]"))
    assert_same(layer, before)


def test_weights_may_be_lists_and_arrays_of_any_real_dtype_also_in_a_graph() -> None:
    layer, tile = layer_of(SOFT)
    for given in (ONES * 0.25, (ONES * 0.25).tolist(), (ONES * 0.25).astype(np.float16), fb.asarray(ONES * 0.25)):
        for set_weights in (tile.set_weights, layer.tiles.set_weights):
            tile.set_weights(ONES * 0.0)
            set_weights(given)
            np.testing.assert_array_equal(tile.weight.numpy(), 0.25)
            tile.set_weights(ONES * 0.0)
            if not isinstance(given, fb.Tensor):
                fb.jit(lambda x, given=given, set_weights=set_weights: (set_weights(given), x)[1])(fb.ones(1))
            else:
                fb.jit(lambda w: (tile.set_weights(w), w)[1])(given)
            np.testing.assert_array_equal(tile.weight.numpy(), 0.25)


@pytest.mark.parametrize("batches", [None, 5, [()]], ids=str)
def test_what_is_no_batch_calibrates_nothing(batches: Any) -> None:
    config = analog.InferenceRPUConfig(
        forward=analog.IOParameters(is_perfect=True), input_range=analog.InputRangeParameter(enable=True)
    )
    with pytest.raises(ConfigError, match="batch"):
        analog.calibrate_input_ranges(analog.Linear(4, 3, config=config, seed=0), batches)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("write", ["elements", "in place", "assigned", "optimizer", "loaded", "average"])
def test_weights_that_are_written_are_not_those_that_were_programmed(write: str, jit: bool) -> None:
    model = analog.Linear(4, 3, False, config=analog.InferenceRPUConfig(forward=analog.IOParameters(is_perfect=True)), seed=0)
    tile, x = model.eval().tiles.tiles[0][0], fb.asarray(np.eye(4, dtype=np.float32))
    run = fb.jit(lambda m, x: m(x)) if jit else lambda m, x: m(x)
    first = tile.weight.numpy()
    analog.program_weights(model)
    analog.drift_weights(model, 1e6)
    shown = run(model, x).numpy()
    assert np.abs(shown.T - first).max() > 1e-3
    ema = optim.EMA(model, decay=0.5)
    ones = fb.asarray(ONES)
    if write == "optimizer":
        optimizer = optim.SGD(model, lr=1.0)
        optimizer.update(model, fb.grad(lambda m: fb.sum(m(x)))(model))
    elif write == "loaded":
        model.load_state_dict({"tiles.tiles.0.0.weight": ones}, strict=False)
    elif write == "average":
        tile.weight[...] = ones
        ema.update()
        tile.weight[...] = fb.asarray(first)
        np.testing.assert_array_equal(run(model, x).numpy(), shown)
        with ema.applied():
            np.testing.assert_allclose(run(model, x).numpy().T, (first + 1.0) / 2.0, rtol=1e-6)
        np.testing.assert_array_equal(run(model, x).numpy(), shown)
        return
    else:
        WRITES[write](tile)
    np.testing.assert_allclose(run(model, x).numpy().T, tile.weight.numpy(), rtol=1e-6)
    np.testing.assert_allclose(tile.backward(fb.asarray(np.eye(3, dtype=np.float32))).numpy(), tile.weight.numpy(), rtol=1e-6)
    assert not tile.programmed
    with pytest.raises(ConfigError, match="programmed"):
        tile.drift_weights(1.0)


@pytest.mark.parametrize("compensation", [analog.GlobalDriftCompensation(), analog.PerColumnDriftCompensation()])
@pytest.mark.parametrize("forward", [analog.IOParameters(), analog.IOParameters(is_perfect=True)], ids=["noisy", "perfect"])
def test_a_tile_of_zeros_stays_one_of_noise(compensation: Any, forward: Any) -> None:
    config = analog.InferenceRPUConfig(forward=forward, drift_compensation=compensation)
    tile = analog.InferenceTile(6, 8, config, seed=0).eval()
    tile.program_weights()
    for seconds in (1.0, 86400.0, 3.15e7):
        tile.drift_weights(seconds)
        factors = tile.compensation.numpy()
        assert np.all((factors > 0.1) & (factors < 10.0))
        assert np.abs(tile(fb.ones((1, 8))).numpy()).max() < 0.5


NOISY = analog.SoftBoundsReferenceDevice(dw_min=0.01, reference_std=0.05, subtract_symmetry_point=True, write_noise_std=1.0)
LASTING = {
    "write noise": NOISY,
    "decay, diffusion and drift": analog.ConstantStepDevice(
        dw_min=0.01, lifetime=50.0, diffusion=0.002, drift=analog.DriftParameter(nu=0.1, nu_std=0.1, w_noise_std=0.001)
    ),
    "next device": analog.VectorUnitCell((SOFT, NOISY), update_policy=analog.VectorUnitCellUpdatePolicy.SINGLE_SEQUENTIAL),
    "one-sided": analog.OneSidedUnitCell((SOFT, SOFT)), "dynamic": analog.DynamicTransferCompound((SOFT, SOFT)),
    "mixed precision": analog.MixedPrecisionCompound((analog.ReferenceUnitCell((SOFT, SOFT)),)),
}  # fmt: skip
X = np.random.default_rng(0).normal(size=(6, 7, 4)).astype(np.float32)


@pytest.mark.parametrize("device", LASTING.values(), ids=LASTING)
def test_copies_and_loaded_tiles_go_on_with_the_same_bits_on_every_engine(device: Any) -> None:
    forward = analog.IOParameters(
        out_noise_std=0.1, v_offset_std=0.1, noise_management=analog.NoiseManagementType.AVERAGE_ABS_MAX
    )
    mapping = analog.MappingParameter(weight_scaling_omega=0.4)

    def made(engine: str, seed: int) -> analog.Linear:
        return analog.Linear(4, 3, config=analog.RPUConfig(device, forward, mapping=mapping), seed=seed, device=engine)

    def trained(model: analog.Linear, optimizer: analog.SGD, batches: Any) -> None:
        for x in batches:
            given = fb.asarray(x, device=model.bias.device)  # type: ignore[union-attr]
            optimizer.update(model, fb.grad(lambda m, x=given: fb.mean((m(x) - 0.3) ** 2))(model))
        model.tiles.tiles[0][0].drift(3.0)

    model = made("cpu", 0)
    optimizer = analog.SGD(model, lr=0.1)
    trained(model, optimizer, X[:3])
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.fork("numpy"), made("cpu", 1), made("numpy", 1)]
    for twin in copies[3:]:
        twin.load_state_dict(model.state_dict().numpy())
        twin.set_generator_states(model.generator_states())
    state = optimizer.state_dict()
    trained(model, optimizer, X[3:])
    for twin in copies:
        again = analog.SGD(twin, lr=0.1)
        again.load_state_dict(state)
        trained(twin, again, X[3:])
        assert_same(twin, state_of(model))
