from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, nn, optim
from firebrick.analog.training import tiles_of
from firebrick.core.errors import ConfigError, DTypeError, GradientError, OutOfRangeError, UnsupportedError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.random import Generator
from firebrick.train import Learner, TrainingError

PERFECT = analog.IOParameters(is_perfect=True)
IDEAL = {"forward": PERFECT, "backward": PERFECT}
RNG = np.random.default_rng(21)


def ideal(**mapping: Any) -> analog.RPUConfig:
    """Tiles that compute and update exactly."""
    return analog.RPUConfig(analog.FloatingPointDevice(), **IDEAL, mapping=analog.MappingParameter(**mapping))


def digital() -> nn.Module:
    fb.random.seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(64, 10), nn.Tanh(), nn.Linear(10, 3)
    )


X, Y = RNG.normal(size=(12, 1, 8, 8)).astype(np.float32), RNG.integers(0, 3, 12)


def loss(model: Any, x: Any, y: Any) -> Any:
    return fb.cross_entropy(model(x), y)


@pytest.mark.parametrize(
    "mapping",
    [{}, {"max_input_size": 7, "max_output_size": 3}, {"weight_scaling_omega": 0.5},
     {"weight_scaling_omega": 0.7, "weight_scaling_columnwise": True, "max_input_size": 20}],
    ids=str,
)  # fmt: skip
def test_an_ideal_analog_model_trains_like_the_digital_one(mapping: dict[str, Any]) -> None:
    one = digital()
    other = analog.convert(one, ideal(**mapping), seed=0)
    first, second = optim.SGD(one, lr=0.3, momentum=0.0), analog.SGD(other, lr=0.3)
    x, y = fb.asarray(X), fb.asarray(Y)
    for _ in range(4):
        a, of_one = fb.value_and_grad(loss)(one, x, y)
        b, of_other = fb.value_and_grad(loss)(other, x, y)
        assert a.item() == pytest.approx(b.item(), rel=1e-4)
        first.update(one, of_one)
        second.update(other, of_other)
    for before, after in zip(one.layers, other.layers, strict=True):
        if isinstance(after, analog.Linear | analog.Conv2d):
            w = after.tiles.get_weights().numpy()
            np.testing.assert_allclose(w, before.weight.numpy().reshape(w.shape), atol=2e-5)
            np.testing.assert_allclose(after.bias.numpy(), before.bias.numpy(), atol=2e-5)


def test_large_layers_have_several_tiles_of_nearly_equal_sizes() -> None:
    layer = analog.Linear(1100, 600, config=ideal(), seed=0)
    row = analog.mapping_report(nn.Sequential(layer))[0]
    assert row.name == "layers.0"
    assert row.tiles == tuple((300, n) for _ in range(2) for n in (366, 367, 367))
    assert row.utilisation == pytest.approx(1100 * 600 / (6 * 512 * 512))
    assert analog.mapping_report(analog.Linear(1100, 600, config=ideal(max_input_size=0, max_output_size=0)))[0].tiles == (
        (600, 1100),
    )


def points() -> tuple[Any, Any]:
    x = RNG.normal(size=(96, 6)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0.0).astype(np.int64)


POINTS = points()


def pulsed(seed: int = 5, **io: analog.IOParameters) -> nn.Module:
    device = analog.SoftBoundsDevice(dw_min=0.002, write_noise_std=1.0, diffusion=1e-4, lifetime=1e4)
    config = analog.RPUConfig(device, **io)
    return nn.Sequential(
        analog.Linear(6, 8, config=config, seed=seed), nn.Tanh(), nn.Linear(8, 2, generator=fb.random.Generator(1))
    )


def learner(model: nn.Module, out: Path | None = None, **settings: Any) -> tuple[Learner, DataLoader]:
    loader = DataLoader(ArrayDataset(*POINTS), batch_size=40, shuffle=True, seed=0)
    return Learner(model, analog.SGD(model, lr=0.1, momentum=0.5), log=None, out=out, **settings), loader


def state_of(model: nn.Module) -> dict[str, Any]:
    return model.state_dict().numpy()


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole, loader = learner(pulsed())
    history = whole.fit(loader, epochs=3)
    part, loader = learner(pulsed(), tmp_path / "run")
    part.fit(loader, epochs=1)
    again, loader = learner(pulsed(seed=6), tmp_path / "run")
    again.resume(tmp_path / "run")
    rest = again.fit(loader, epochs=3)
    assert history[-1].train_loss == rest[-1].train_loss
    for name, value in state_of(whole.model).items():
        np.testing.assert_array_equal(value, state_of(again.model)[name], err_msg=name)


def test_training_has_the_same_bits_compiled_and_as_it_is_written() -> None:
    compiled, loader = learner(pulsed())
    compiled.fit(loader, epochs=1)
    model = pulsed()
    optimizer = analog.SGD(model, lr=0.1, momentum=0.5)
    for x, y in loader:
        _, gradients = fb.value_and_grad(loss)(model, x, y)
        optimizer.update(model, gradients)
    counts = [np.abs(v - state_of(model)[n]).max() for n, v in state_of(compiled.model).items()]
    assert max(counts) < 1e-5
    assert optimizer.step == 3


@pytest.mark.parametrize("settings", [{"clip_norm": 0.01}, {"batches_per_step": 2}, {"accumulate": 2}], ids=str)
def test_a_learner_whose_gradients_are_not_of_one_pass_is_refused_before_it_runs(settings: dict[str, Any]) -> None:
    ((name, value),), text = settings.items(), r"layers\.0\.tiles\.tiles\.0\.0\.weight, which pulses update, have the gradient"
    with pytest.raises(TrainingError, match=rf"{text}(.|\n)*{name}={value}(.|\n)*leave it out"):
        learner(pulsed(**IDEAL), **settings)


def test_a_learner_whose_loss_is_scaled_is_refused_before_it_runs() -> None:
    with pytest.raises(TrainingError, match=r"which pulses update, .*\nReceived: a precision that scales the loss \(float16\)"):
        learner(pulsed(**IDEAL), precision="float16")
    learner(pulsed(**IDEAL), precision="bfloat16")


def test_gradients_that_are_not_of_one_pass_are_refused_by_name() -> None:
    model = pulsed(**IDEAL)
    before, optimizer = state_of(model), analog.SGD(model, lr=0.1)
    gradients = fb.grad(lambda m: fb.sum(m(fb.ones((2, 6)))))(model)
    for p in model.parameters():
        gradients[p] = gradients[p] * 0.5
    with pytest.raises(GradientError, match=r"of layers\.0\.tiles\.tiles\.0\.0\.weight, which was computed from others"):
        optimizer.update(model, gradients)
    np.testing.assert_array_equal(state_of(model)["layers.2.weight"], before["layers.2.weight"])


def test_frozen_tiles_stay_as_they_are_and_groups_have_rates_of_their_own() -> None:
    model = nn.Sequential(analog.Linear(4, 4, config=ideal(), seed=0), analog.Linear(4, 4, config=ideal(), seed=1))
    model.layers[0].tiles.tiles[0][0].weight.frozen = True
    optimizer = analog.SGD(model, lr=0.1, groups=[{"params": "layers.1.*weight", "lr_scale": 3.0}])
    before = [m.tiles.get_weights().numpy() for m in model.layers]
    gradients = fb.grad(lambda m: fb.sum(m(fb.ones((1, 4)))))(model)
    h = model.layers[0](fb.ones((1, 4))).numpy()
    optimizer.update(model, gradients)
    np.testing.assert_array_equal(model.layers[0].tiles.get_weights().numpy(), before[0])
    np.testing.assert_allclose(before[1] - model.layers[1].tiles.get_weights().numpy(), 0.3 * np.repeat(h, 4, 0), rtol=1e-4)


class AnalogAdam(analog.AnalogOptimizer, optim.Adam):
    """Adam for what is digital."""


def test_digital_layers_may_have_any_optimizer() -> None:
    model = pulsed()
    x, y = map(fb.asarray, POINTS)
    optimizer = AnalogAdam(model, lr=0.05)
    before = state_of(model)
    losses = []
    for _ in range(25):
        value, gradients = fb.value_and_grad(loss)(model, x, y)
        optimizer.update(model, gradients)
        losses.append(value.item())
    assert losses[-1] < 0.9 * losses[0]
    assert np.any(state_of(model)["layers.0.tiles.tiles.0.0.weight"] != before["layers.0.tiles.tiles.0.0.weight"])


def test_conversion_leaves_out_what_it_is_told_to() -> None:
    model = digital()
    made = analog.convert(model, ideal(), exclude=["layers.3"], seed=0)
    assert [type(m) for m in made.layers if not isinstance(m, nn.Tanh | nn.Flatten)] == [
        analog.Conv2d,
        nn.Linear,
        analog.Linear,
    ]
    chosen = analog.convert(model, lambda path, layer: ideal() if path == "layers.5" else None, seed=0)
    assert [row.name for row in analog.mapping_report(chosen)] == ["layers.5"]
    assert isinstance(analog.convert(nn.Linear(3, 2), ideal(), seed=0), analog.Linear)
    assert isinstance(model.layers[3], nn.Linear)  # the model itself stays digital
    with pytest.raises(ConfigError, match=r"a pattern of exclude matches a layer: layers\.0, layers\.3, layers\.5"):
        analog.convert(model, ideal(), exclude=["head"])
    with pytest.raises(ConfigError, match=r"a model with layers that can be mapped to tiles \(Linear, Conv1d, Conv2d"):
        analog.convert(nn.Sequential(nn.ReLU()), ideal())


def test_weights_that_conversion_clips_are_counted() -> None:
    model = nn.Linear(4, 2, bias=False)
    model.weight = fb.full((2, 4), 2.0)
    device = analog.ConstantStepDevice(w_max_dtod=0.0, w_min_dtod=0.0)
    with pytest.warns(UserWarning, match=r"8 of 8 weights were outside .* scale them with MappingParameter"):
        made = analog.convert(model, analog.RPUConfig(device), seed=0)
    np.testing.assert_allclose(made.tiles.get_weights().numpy(), 0.6, atol=1e-6)
    scaled = analog.convert(model, analog.RPUConfig(device, mapping=analog.MappingParameter(weight_scaling_omega=0.5)), seed=0)
    np.testing.assert_allclose(scaled.tiles.get_weights().numpy(), 2.0, atol=1e-6)


def test_arguments_of_a_conversion_have_their_types() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    cases: tuple[tuple[Any, Any, Any, str], ...] = (
        (3, analog.RPUConfig(), (), "model is a module"), (model, 3, (), "config is an RPUConfig"),
        (model, lambda path, layer: 3, (), r"the configuration of layers\.0"),
        (model, analog.RPUConfig(), "layers.0", r"pass exclude=\['layers\.0'\]"),
    )  # fmt: skip
    for wrong, config, exclude, text in cases:
        with pytest.raises(ConfigError, match=text):
            analog.convert(wrong, config, exclude=exclude)


class Branches(nn.Module):
    """Two tiles beside each other, each with a digital bias."""

    def __init__(self, config: analog.RPUConfig) -> None:
        self.first = analog.Linear(3, 2, config=config, seed=0)
        self.second = analog.Linear(3, 2, config=config, seed=1)

    def forward(self, x: Any, factors: tuple[float, float]) -> Any:
        return fb.sum(self.first(x) * factors[0]) + fb.sum(self.second(x) * factors[1])


def whole_state(model: nn.Module, optimizer: Any) -> list[Any]:
    """All that an update may change, as plain values."""
    moments = {m: {n: t.tolist() for n, t in held.items()} for m, held in optimizer.state_dict()["moments"].items()}
    weights = {n: v.tolist() for n, v in state_of(model).items()}
    return [weights, moments, optimizer.step, [t.generator.state for t in tiles_of(model)]]


@pytest.mark.parametrize("device", [analog.SoftBoundsDevice(), analog.FloatingPointDevice()], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("kind", [analog.SGD, AnalogAdam])
def test_an_update_that_one_tile_refuses_changes_nothing(device: Any, kind: Any) -> None:
    """Neither the tiles before it, nor digital parameters, nor the state of the optimizer, nor what is drawn next."""
    for bad in ((0.1, float("nan")), (float("inf"), 0.1)):
        model = Branches(analog.RPUConfig(device, **IDEAL))
        optimizer = kind(model, lr=0.1)
        x = fb.asarray(RNG.normal(size=(5, 3)).astype(np.float32))

        def updated(factors: tuple[float, float], model: Any = model, optimizer: Any = optimizer, x: Any = x) -> None:
            _, gradients = fb.value_and_grad(lambda m: m(x, factors))(model)
            optimizer.update(model, gradients)

        updated((0.1, 0.2))
        _, gradients = fb.value_and_grad(lambda m, x=x, bad=bad: m(x, bad))(model)
        before = whole_state(model, optimizer)
        with pytest.raises(OutOfRangeError, match=r"Tile.update: d is finite(.|\n)*, of \w+\.tiles\.tiles\.0\.0\.weight\."):
            optimizer.update(model, gradients)
        assert whole_state(model, optimizer) == before
        updated((0.1, 0.2))


@pytest.mark.parametrize("dtype", [fb.float64, fb.float16, fb.int32], ids=lambda d: d.name)
def test_a_convolution_refuses_images_of_another_dtype_by_their_shape(dtype: Any) -> None:
    layer = analog.convert(nn.Sequential(nn.Conv2d(1, 2, 3)), analog.RPUConfig(analog.IdealDevice()), seed=0)
    with pytest.raises(fb.DTypeError, match=rf"analog.Conv2d: x is float32\nReceived: x: {dtype.name}\[1,1,5,5\]"):
        layer(fb.ones((1, 1, 5, 5), dtype=dtype))


def test_optimizers_that_pass_by_the_devices_are_refused() -> None:
    config = analog.RPUConfig(analog.SoftBoundsDevice())
    digital = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    digital[0].weight *= 0.1
    model = analog.convert(digital, config, exclude=["layers.1"], seed=0)
    for made in (lambda: optim.Adam(model), lambda: optim.SGD(model, lr=0.1), lambda: optim.LBFGS(model)):
        with pytest.raises(
            ConfigError, match=r"weights of the tile layers.0.\S+ change by the updates(.|\n)*use analog.SGD\(model"
        ):
            made()

    class AnalogAdam(analog.AnalogOptimizer, optim.Adam):
        pass

    for optimizer in (analog.SGD(model, lr=0.1), AnalogAdam(model)):
        assert optimizer.step == 0
    by_arithmetic = replace(config, update=analog.UpdateParameters(pulse_type=analog.PulseType.NONE))
    optim.Adam(analog.convert(digital[0], by_arithmetic, seed=0))
    model.layers[0].freeze()
    optim.Adam(model)
    limited = analog.InferenceRPUConfig(clip=analog.WeightClipParameter(type=analog.WeightClipType.FIXED_VALUE))
    with pytest.warns(UserWarning, match="Adam does not clip and remap the weights of the tile"):
        optim.Adam(analog.convert(digital[0], limited, seed=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnalogAdam(analog.convert(digital[0], limited, seed=0))
        optim.Adam(analog.convert(digital[0], analog.InferenceRPUConfig(), seed=0))


def test_what_is_converted_already_or_is_no_configuration_is_named() -> None:
    config = analog.RPUConfig(analog.SoftBoundsDevice())
    with pytest.raises(ConfigError, match=r"a digital model(.|\n)*with tiles(.|\n)*this one was converted from"):
        analog.convert(nn.Sequential(analog.Linear(4, 3, config=config, seed=0)), config)
    with pytest.raises(ConfigError, match="config is an RPUConfig"):
        analog.convert(nn.Linear(4, 3), analog.InferenceRPUConfig)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [np.full((2, 3), 0.1 + 1j), fb.full((2, 3), 0.1 + 1j, dtype=fb.complex64)], ids=["array", "tensor"]
)
def test_complex_weights_of_a_layer_are_refused(given: Any) -> None:
    layer = analog.Linear(3, 2, config=ideal(), seed=0)
    before = layer.tiles.get_weights().numpy()
    with pytest.raises(DTypeError, match=r"TileArray\.set_weights: weights are real"):
        layer.tiles.set_weights(given)
    np.testing.assert_array_equal(layer.tiles.get_weights().numpy(), before)


class Keeps(nn.Module):
    """A layer that is used as an attribute, by a bound method, a partial function, a closure, and a default."""

    def __init__(self, use: str) -> None:
        self.layer = nn.Linear(3, 2, generator=Generator(0))
        self.calls = {
            "attribute": self._through, "method": self.layer.forward, "argument": partial(self._of, self.layer),
        }  # fmt: skip
        self.use = use
        if use == "closure":
            self.calls[use] = lambda x: self.layer(x)
        elif use == "default":
            self.calls[use] = lambda x, layer=self.layer: layer(x)

    def _through(self, x: fb.Tensor) -> fb.Tensor:
        return self.layer(x)

    def _of(self, layer: nn.Linear, x: fb.Tensor) -> fb.Tensor:
        return layer(x)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.calls[self.use](x)


@pytest.mark.parametrize("use", ["method", "argument"])
def test_a_digital_layer_that_a_converted_model_has_kept_is_not_used_unnoticed(use: str) -> None:
    made = analog.convert(Keeps(use), ideal(), seed=0)
    with pytest.raises(UnsupportedError, match=r"used through the model's attributes(.|\n)*self\.layer\(x\)"):
        made(fb.ones((2, 3)))
    model = Keeps("attribute")
    made, x = analog.convert(model, ideal(), seed=0), fb.ones((2, 3))
    np.testing.assert_allclose(made(x).numpy(), model(x).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(model.calls["method"](x).numpy(), model(x).numpy())


@pytest.mark.parametrize("use", ["closure", "default"])
def test_a_function_that_has_kept_the_digital_model_is_named(use: str) -> None:
    with pytest.warns(UserWarning, match=rf"have kept the digital model(.|\n)*: calls\.{use}"):
        analog.convert(Keeps(use), ideal(), seed=0)


def test_a_projection_that_a_model_with_attention_has_kept_is_not_used_unnoticed() -> None:
    class Projects(nn.Module):
        def __init__(self) -> None:
            self.attention = nn.MultiheadAttention(4, 2)
            name = next(n for n, v in vars(self.attention).items() if isinstance(v, nn.Linear))
            self.kept = [getattr(self.attention, name).forward]

    made = analog.convert(Projects(), ideal(), seed=0)
    with pytest.raises(UnsupportedError, match="used through the model's attributes"):
        made.kept[0](fb.ones((2, 4)))


def test_all_of_a_layer_is_on_the_device_that_is_named() -> None:
    layer = analog.Linear(3, 2, config=ideal(), seed=0, device="numpy")
    assert {t.device.name for t in layer.state_dict().values()} == {"numpy:0"}
    assert layer(fb.ones((4, 3), device="numpy")).device.name == "numpy:0"
