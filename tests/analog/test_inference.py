from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, nn, optim
from firebrick.core.errors import ConfigError, OutOfRangeError, UnsupportedError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Learner

PERFECT = analog.IOParameters(is_perfect=True)
RNG = np.random.default_rng(5)
W, X = RNG.normal(size=(5, 7)).astype(np.float32), RNG.normal(size=(9, 7)).astype(np.float32)
NO_NOISE = analog.CustomDriftPCMLikeNoiseModel(
    (0.0, 25.0), (0.05, 0.05), (0.0, 0.0), prog_noise_scale=0.0, read_noise_scale=0.0
)
MODELS = {
    "pcm": analog.PCMLikeNoiseModel(), "custom drift": analog.CustomDriftPCMLikeNoiseModel(),
    "hermes, one device": analog.HermesNoiseModel(), "hermes, two devices": analog.HermesNoiseModel(num_devices=2),
    "state independent": analog.StateIndependentNoiseModel(), "reram, chip": analog.ReRamWan2022NoiseModel(),
    "reram, oxide": analog.ReRamCMONoiseModel(),
}  # fmt: skip


def tile_of(config: analog.InferenceRPUConfig, w: Any = W, seed: int = 3, device: str = "cpu") -> analog.InferenceTile:
    tile = analog.InferenceTile(*w.shape, config, seed=seed, device=device)
    tile.set_weights(w)
    return tile


def perfect(**parts: Any) -> analog.InferenceRPUConfig:
    return analog.InferenceRPUConfig(forward=PERFECT, **parts)


NOISE_OF_TRAINING = analog.WeightModifierParameter(analog.WeightModifierType.PCM_NOISE, std_dev=1.0, pcm_t_inference=3600.0)


@pytest.mark.turns
@pytest.mark.parametrize("name", MODELS)
def test_programmed_and_drifted_weights_are_the_same_on_every_engine(name: str, device: str) -> None:
    found = []
    for where in ("cpu", device):
        with fb.config.scope(fallback="silent"):
            tile = tile_of(perfect(noise_model=MODELS[name], modifier=NOISE_OF_TRAINING), device=where)
            seen = tile(fb.asarray(np.eye(7, dtype=np.float32), device=where)).numpy()
            tile.eval().program_weights()
            tile.drift_weights(86400.0)
            outputs = tile(fb.asarray(X, device=where))
            found.append([seen, *(t.numpy() for t in (tile.conductances, tile.drift_coefficients, tile.shown, outputs))])
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-5, atol=2e-5)
    assert np.all(found[1][1] >= 0.0)
    assert 0.0 < np.abs(found[1][3] - W).max() < 1.2 * np.abs(W).max()


def test_without_noise_weights_follow_the_power_law_and_compensation_undoes_it() -> None:
    for compensation in (analog.GlobalDriftCompensation(), analog.PerColumnDriftCompensation()):
        tile = tile_of(perfect(noise_model=NO_NOISE, drift_compensation=compensation)).eval()
        tile.program_weights()
        np.testing.assert_allclose(tile.shown.numpy(), W, rtol=1e-6, atol=1e-7)
        for t in (0.0, 60.0, 31536000.0):
            tile.drift_weights(t)
            share = ((t + 20.0) / 20.0) ** -0.05
            np.testing.assert_allclose(tile.shown.numpy(), W * share, rtol=3e-6, atol=1e-7)
            np.testing.assert_allclose(tile.compensation.numpy(), 1.0 / share, rtol=1e-5)
            np.testing.assert_allclose(tile(fb.asarray(X)).numpy(), X @ W.T, rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(tile.backward(fb.asarray(X[:, :5])).numpy(), X[:, :5] @ W, rtol=2e-5, atol=2e-5)
    plain = tile_of(perfect(noise_model=NO_NOISE, drift_compensation=None)).eval()
    plain.program_weights()
    plain.drift_weights(31536000.0)
    np.testing.assert_allclose(plain(fb.asarray(X)).numpy(), X @ W.T * share, rtol=2e-5, atol=2e-5)


def test_a_read_has_new_read_noise_and_the_exponents_of_its_device() -> None:
    tile = tile_of(perfect()).eval()
    tile.program_weights()
    exponents = tile.drift_coefficients.numpy()
    tile.drift_weights(3600.0)
    first = tile.shown.numpy()
    tile.drift_weights(3600.0)
    assert np.all(tile.shown.numpy() != first)
    np.testing.assert_array_equal(tile.drift_coefficients.numpy(), exponents)
    quiet = tile_of(perfect(noise_model=analog.PCMLikeNoiseModel(read_noise_scale=0.0))).eval()
    quiet.program_weights()
    quiet.drift_weights(3600.0)
    first = quiet.shown.numpy()
    quiet.drift_weights(60.0)  # an earlier time after a later one
    quiet.drift_weights(3600.0)
    np.testing.assert_array_equal(quiet.shown.numpy(), first)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 4), (5, 7)], ids=str)
@pytest.mark.parametrize("value", [0.0, -0.3, 1e-40], ids=str)
def test_weights_that_are_all_equal_are_programmed(shape: tuple[int, int], value: float) -> None:
    for model in (NO_NOISE, MODELS["pcm"], MODELS["reram, oxide"]):
        tile = tile_of(perfect(noise_model=model), np.full(shape, value, np.float32)).eval()
        tile.program_weights()
        tile.drift_weights(1.0)
        assert np.all(np.isfinite(tile.shown.numpy()))
        assert np.all(np.isfinite(tile(fb.ones((2, shape[1]))).numpy()))
        if model is NO_NOISE:
            np.testing.assert_allclose(tile.shown.numpy(), value, atol=1e-2)


CONVERTERS = [
    analog.SinglePairConductanceConverter(20.0, 1.0), analog.DualPairConductanceConverter(f_lst=(1.0, 3.0)),
    analog.NPairConductanceConverter(g_min=2.0, f_lst=(1.0, 2.0, 4.0)), analog.SingleDeviceConductanceConverter(),
    analog.CustomPairConductanceConverter(g_lst=((1.0, 1.0, 25.0), (25.0, 1.0, 1.0))),
]  # fmt: skip


@pytest.mark.parametrize("converter", CONVERTERS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("w", [W, np.zeros((2, 3), np.float32), W[:1, :1], np.abs(W)], ids=["any", "zeros", "one", "positive"])
def test_converters_give_back_the_weights_with_conductances_in_range(converter: Any, w: Any) -> None:
    g, conversion = converter.convert_to_conductances(fb.asarray(w))
    assert g.shape == (converter.devices * len(w), w.shape[1])
    assert g.numpy().min() >= converter.g_min - 1e-5
    assert g.numpy().max() <= converter.g_max + 1e-4
    back = converter.convert_back_to_weights(g, conversion).numpy()
    np.testing.assert_allclose(back, w, atol=2e-6 * max(1.0, np.abs(w).max()) * 25.0)


def network(config: analog.InferenceRPUConfig, seed: int = 7) -> nn.Module:
    layers = nn.Sequential(
        nn.Linear(6, 8, generator=fb.random.Generator(1)), nn.Tanh(), nn.Linear(8, 2, generator=fb.random.Generator(2))
    )
    return analog.convert(layers, config, seed=seed)


P = RNG.normal(size=(96, 6)).astype(np.float32)
POINTS = P, (P[:, 0] * P[:, 1] > 0.0).astype(np.int64)


def noisy_training(**parts: Any) -> analog.InferenceRPUConfig:
    modifier = analog.WeightModifierParameter(analog.WeightModifierType.ADD_NORMAL, std_dev=0.1, pdrop=0.05)
    remap = analog.WeightRemapParameter(analog.WeightRemapType.CHANNELWISE_SYMMETRIC)
    clip = analog.WeightClipParameter(analog.WeightClipType.LAYER_GAUSSIAN)
    return analog.InferenceRPUConfig(modifier=modifier, remap=remap, clip=clip, **parts)


class AnalogAdam(analog.AnalogOptimizer, optim.Adam):
    """Adam that also clips and remaps weights."""


def learner(model: nn.Module, out: Path | None = None) -> tuple[Learner, DataLoader]:
    loader = DataLoader(ArrayDataset(*POINTS), batch_size=32, shuffle=True, seed=0)
    return Learner(model, AnalogAdam(model, lr=0.05), log=None, out=out), loader


@pytest.mark.slow
def test_a_resumed_hardware_aware_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    forward = analog.IOParameters(noise_management=analog.NoiseManagementType.NONE)
    ranges = analog.InputRangeParameter(enable=True, init_from_data=4)
    config = noisy_training(forward=forward, input_range=ranges)

    def layer(seed: int) -> nn.Module:
        return analog.convert(nn.Linear(6, 2, generator=fb.random.Generator(1)), config, seed=seed)

    whole, loader = learner(layer(7))
    history = whole.fit(loader, epochs=3)
    part, loader = learner(layer(7), tmp_path / "run")
    part.fit(loader, epochs=1)
    again, loader = learner(layer(8), tmp_path / "run")
    again.resume(tmp_path / "run")
    rest = again.fit(loader, epochs=3)
    assert history[-1].train_loss == rest[-1].train_loss < history[0].train_loss
    state = again.model.state_dict().numpy()
    for name, value in whole.model.state_dict().numpy().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)
    bounds = [v for k, v in state.items() if k.endswith("input_range")]
    assert len(bounds) == 1
    assert all(v != 0.0 for v in bounds)


@pytest.mark.slow
def test_any_optimizer_trains_the_weights_compiled_and_as_it_is_written() -> None:
    def trained(jit: bool) -> tuple[nn.Module, list[float]]:
        model = network(analog.InferenceRPUConfig(modifier=noisy_training().modifier))
        optimizer = optim.Adam(model, lr=0.05)
        x, y = map(fb.asarray, POINTS)

        def step(model: Any) -> Any:
            value, gradients = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))(model)
            optimizer.update(model, gradients)
            return value

        run = fb.jit(step) if jit else step
        return model, [run(model).item() for _ in range(12)]

    (one, first), (two, second) = trained(False), trained(True)
    assert first[-1] < first[0]
    np.testing.assert_allclose(first, second, rtol=1e-4)
    for name, value in one.state_dict().numpy().items():
        np.testing.assert_allclose(value, two.state_dict().numpy()[name], atol=1e-3, err_msg=name)


def test_a_programmed_model_is_saved_and_loaded() -> None:
    model = network(perfect()).eval()
    analog.program_weights(model)
    analog.drift_weights(model, 3600.0)
    other = network(perfect(), seed=99).eval()
    other.load_state_dict(model.state_dict())
    x = fb.asarray(P)
    np.testing.assert_array_equal(model(x).numpy(), other(x).numpy())
    assert analog.tile_statistics(model) == analog.tile_statistics(other)
    copy = model.fork()
    for each in (model, copy):
        analog.drift_weights(each, 86400.0)
    np.testing.assert_array_equal(model(x).numpy(), copy(x).numpy())


def test_a_training_pass_an_update_and_new_weights_discard_what_was_programmed() -> None:
    tile = tile_of(perfect(clip=analog.WeightClipParameter(analog.WeightClipType.FIXED_VALUE, 9.0))).eval()
    changes: list[Callable[[], Any]] = [
        lambda: tile.train()(fb.asarray(X)), tile.end_mini_batch, lambda: tile.set_weights(W), tile.discard_programming,
        lambda: tile.update(fb.zeros((1, 7)), fb.zeros((1, 5)), 0.1), tile.decay, tile.diffuse, lambda: tile.reset(0, 0),
    ]  # fmt: skip
    for change in changes:
        tile.eval().program_weights()
        tile.drift_weights(86400.0)
        assert tile.compensation.numpy().min() > 1.2
        change()
        assert not tile.programmed
        np.testing.assert_allclose(tile.eval()(fb.asarray(X)).numpy(), X @ W.T, rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_the_weights_of_the_pass() -> None:
    dropped = analog.WeightModifierParameter(analog.WeightModifierType.DROP_CONNECT, pdrop=1.0)
    x, y = fb.asarray(X).require_grad(), fb.asarray(X[:, :5])
    for modifier, w in ((analog.WeightModifierParameter(), W), (dropped, W * 0.0)):
        tile = tile_of(perfect(modifier=modifier))
        np.testing.assert_allclose(tile(x).numpy(), X @ w.T, rtol=1e-5, atol=1e-5)
        of_weights = fb.grad(lambda t: fb.sum(t(x.detach()) * y))(tile)[tile.weight]
        np.testing.assert_allclose(of_weights.numpy(), X[:, :5].T @ X, rtol=1e-5, atol=1e-5)
        of_inputs = fb.grad(lambda x: fb.sum(tile(x) * y))(x.detach())  # noqa: B023
        np.testing.assert_allclose(of_inputs.numpy(), X[:, :5] @ w, rtol=1e-5, atol=1e-5)
    tile = tile_of(perfect(noise_model=NO_NOISE, drift_compensation=None)).eval()
    tile.program_weights()
    tile.drift_weights(31536000.0)
    share = ((31536000.0 + 20.0) / 20.0) ** -0.05
    of_inputs = fb.grad(lambda x: fb.sum(tile(x) * y))(x.detach())
    np.testing.assert_allclose(of_inputs.numpy(), X[:, :5] @ W * share, rtol=2e-5, atol=1e-5)


KINDS = {
    "DISCRETIZE": {"res": 0.1, "sto_round": True}, "MULT_NORMAL": {"std_dev": 0.1}, "ADD_NORMAL": {"std_dev": 0.1},
    "DISCRETIZE_ADD_NORMAL": {"std_dev": 0.1, "res": 0.1}, "POLY": {"std_dev": 1.0}, "PROG_NOISE": {"std_dev": 1.0},
    "DOREFA": {"res": 0.05, "sto_round": True}, "COPY": {"pdrop": 0.5}, "DROP_CONNECT": {"pdrop": 0.5},
    "PCM_NOISE": {"std_dev": 1.0, "pcm_t_inference": 86400.0, "pcm_prob_at_gmax": 0.1, "pcm_prob_at_random": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_training_pass_draws_its_own_modification_also_in_a_graph(kind: str) -> None:
    modifier = analog.WeightModifierParameter(analog.WeightModifierType[kind], **KINDS[kind])
    x = fb.asarray(np.eye(7, dtype=np.float32))
    one, two = tile_of(perfect(modifier=modifier)), tile_of(perfect(modifier=modifier))
    run = fb.jit(lambda: two(x))
    eager, compiled = [one(x).numpy() for _ in range(3)], [run().numpy() for _ in range(3)]
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert np.any(eager[0] != eager[1])
    assert np.any(eager[1] != eager[2])
    assert np.all(np.isfinite(eager[0]))
    assert np.abs(eager[0]).max() <= 2.0 * np.abs(W).max()
    np.testing.assert_array_equal(one.weight.numpy(), W)
    np.testing.assert_allclose(one.eval()(x).numpy(), W.T, rtol=1e-6)


def test_stuck_devices_of_phase_change_memory_are_where_they_are_said_to_be() -> None:
    w = np.full((40, 50), 0.5, np.float32)
    w[0, 0] = 1.0
    chances = {"pcm_prob_at_reset": 0.2, "pcm_prob_at_gmax": 0.3}
    modifier = analog.WeightModifierParameter(analog.WeightModifierType.PCM_NOISE, std_dev=1e-6, **chances)
    seen = tile_of(perfect(modifier=modifier), w)(fb.asarray(np.eye(50, dtype=np.float32))).numpy().T
    assert abs((seen == 0.0).mean() - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 2000)
    assert abs((np.abs(seen - 1.0) < 1e-5).mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 2000)


def test_a_fixed_limit_holds_in_training_and_programming_and_counts_what_it_clips() -> None:
    clip = analog.WeightClipParameter(analog.WeightClipType.FIXED_VALUE, 1.0)
    tile = tile_of(perfect(clip=clip, noise_model=NO_NOISE))
    np.testing.assert_allclose(tile(fb.asarray(X)).numpy(), X @ np.clip(W, -1, 1).T, rtol=1e-5, atol=1e-5)
    count = int((np.abs(W) > 1.0).sum())
    assert count > 3
    with pytest.warns(UserWarning, match=rf"program_weights: {count} of 35 weights were outside of ±1 and are clipped"):
        tile.eval().program_weights()
    np.testing.assert_allclose(tile.shown.numpy(), np.clip(W, -1, 1), atol=1e-6)


@pytest.mark.parametrize("kind", ["LAYERWISE_SYMMETRIC", "CHANNELWISE_SYMMETRIC"])
def test_remapping_moves_the_range_and_keeps_the_products(kind: str) -> None:
    w = W.copy()
    w[2] = 0.0
    tile = tile_of(perfect(remap=analog.WeightRemapParameter(analog.WeightRemapType[kind], 0.5)), w)
    for _ in range(2):
        tile.end_mini_batch()
    np.testing.assert_allclose(tile(fb.asarray(X)).numpy(), X @ w.T, rtol=1e-5, atol=1e-5)
    top = np.abs(tile.weight.numpy()).max(1)
    assert top.max() == pytest.approx(0.5, rel=1e-6)
    if kind == "CHANNELWISE_SYMMETRIC":
        np.testing.assert_allclose(np.delete(top, 2), 0.5, rtol=1e-6)


def test_frozen_weights_are_neither_clipped_nor_remapped_and_nan_is_not_programmed() -> None:
    clip = analog.WeightClipParameter(analog.WeightClipType.LAYER_GAUSSIAN, sigma=1.0)
    tile = tile_of(perfect(clip=clip, remap=analog.WeightRemapParameter(analog.WeightRemapType.LAYERWISE_SYMMETRIC)))
    tile.weight.frozen = True
    tile.end_mini_batch()
    np.testing.assert_array_equal(tile.weight.numpy(), W)
    tile.weight.frozen = False
    tile.end_mini_batch()
    assert np.any(tile.weight.numpy() != W)
    tile.weight = fb.full(W.shape, float("nan"))
    with pytest.raises(OutOfRangeError, match="weights that are finite"):
        tile.eval().program_weights()


def test_a_limit_of_the_weights_makes_the_errors_of_outliers_small() -> None:
    w = RNG.normal(size=(40, 30)).astype(np.float32) ** 3

    def error(tile: analog.InferenceTile) -> float:
        tile.program_weights(again=True)
        tile.drift_weights(86400.0)
        return float(np.sqrt(((tile.shown.numpy() * tile.compensation.numpy()[:, None] - w) ** 2).mean()))

    plain, limited = tile_of(perfect(), w).eval(), tile_of(perfect(), w, seed=8).eval()
    found = analog.optimize_programming(limited, (86400.0,), repeats=2, seed=11)[""]
    assert found.clipped == int((np.abs(w) > found.limit * 1.0001).sum()) > 0
    assert found.after < found.before
    assert np.abs(limited.weight.numpy()).max() == pytest.approx(found.limit, rel=1e-6)
    assert not limited.programmed
    assert np.mean([error(limited) for _ in range(5)]) < 0.97 * np.mean([error(plain) for _ in range(5)])
    exact = tile_of(perfect(noise_model=NO_NOISE), w).eval()
    assert analog.optimize_programming(exact, (86400.0,), repeats=1)[""].clipped == 0
    np.testing.assert_array_equal(exact.weight.numpy(), w)


def test_layers_of_several_tiles_are_programmed_tile_by_tile() -> None:
    config = perfect(noise_model=NO_NOISE, mapping=analog.MappingParameter(max_input_size=3, max_output_size=4))
    layer = nn.Linear(7, 5, generator=fb.random.Generator(0))
    made = analog.convert(layer, config, seed=0).eval()
    analog.program_weights(made)
    analog.drift_weights(made, 86400.0)
    assert len(analog.tile_statistics(made)) == 6
    np.testing.assert_allclose(made(fb.asarray(X)).numpy(), layer(fb.asarray(X)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.25])
@pytest.mark.parametrize("share", [0.4, 0.5])
def test_the_gradient_of_an_input_range_is_that_of_the_formula(relative: bool, decay: float, share: float) -> None:
    x = np.asarray([[0.5, -3.0, 2.0], [-2.0, 1.0, 4.0]], np.float32)  # half of them lie inside of the range
    g = np.asarray([[1.0, 0.5, -2.0], [3.0, -4.0, 8.0]], np.float32)
    ranges = analog.InputRangeParameter(
        enable=True, gradient_relative=relative, decay=decay, input_min_percentage=share, gradient_scale=3.0
    )
    bound = 2.0
    outwards = np.minimum(g, 0.0)[x >= bound].sum() - np.maximum(g, 0.0)[x <= -bound].sum()
    inside = (np.abs(x) < bound).mean()
    want = outwards * 3.0 * (bound if relative else 1.0) + (bound * decay if inside > share else 0.0)
    found = ranges.gradient(fb.asarray(x), fb.asarray(bound), fb.asarray(g))
    assert found.item() == pytest.approx(want)


def test_input_ranges_are_calibrated_to_what_each_tile_gets() -> None:
    forward = analog.IOParameters(noise_management=analog.NoiseManagementType.NONE, out_noise=0.0)
    ranges = analog.InputRangeParameter(enable=True, init_value=0.5)
    model = network(analog.InferenceRPUConfig(forward=forward, input_range=ranges))
    before = model.state_dict().numpy()
    batches = [fb.asarray(P[:50]), (fb.asarray(P[50:]), fb.asarray(POINTS[1][50:]))]
    found = analog.calibrate_input_ranges(model, batches, analog.InputRangeCalibrationType.MAX)
    first, second = found.values()
    assert first == pytest.approx(np.abs(P).max(), rel=1e-6)
    layer = model.layers[0]
    hidden = np.tanh(P @ layer.tiles.get_weights().numpy().T + layer.bias.numpy())
    assert second == pytest.approx(np.abs(hidden).max(), rel=1e-6)
    after = model.state_dict().numpy()
    assert {k for k in before if np.any(before[k] != after[k])} == {
        f"layers.{n}.tiles.tiles.0.0.{k}" for n in (0, 2) for k in ("range_of_data", "range_batches")
    }
    assert model.training
    half = analog.calibrate_input_ranges(model, batches, quantile=0.5)
    assert next(iter(half.values())) == pytest.approx(np.median(np.abs(P)), rel=1e-6)
    std = analog.calibrate_input_ranges(model, batches, analog.InputRangeCalibrationType.STD, std_alpha=2.0)
    assert next(iter(std.values())) == pytest.approx(2.0 * P.std(), rel=1e-6)
    tile = model.eval().layers[0].tiles.tiles[0][0]
    tile.set_input_range(0.5)
    wide, at_bound = tile(fb.full((1, 6), 7.0)), tile(fb.full((1, 6), 0.5))
    np.testing.assert_array_equal(wide.numpy(), at_bound.numpy())  # clipped


def test_accuracy_over_time_is_decided_by_its_seed_and_leaves_the_model_alone(tmp_path: Path) -> None:
    model = network(analog.InferenceRPUConfig())
    before, mark = model.state_dict().numpy(), model.layers[0].tiles.tiles[0][0].generator.mark()
    batches = [(fb.asarray(P), fb.asarray(POINTS[1]))]
    found = analog.accuracy_over_time(model, batches, (1.0, 86400.0), repeats=3, seed=4)
    longer = analog.accuracy_over_time(model, batches, (1.0, 86400.0), repeats=4, seed=4)
    other = analog.accuracy_over_time(model, batches, (1.0, 86400.0), repeats=3, seed=5)
    np.testing.assert_array_equal(found.scores, longer.scores[:3])
    assert np.any(found.scores != other.scores)
    assert found.reference == longer.reference
    assert model.training
    assert model.layers[0].tiles.tiles[0][0].generator.mark() == mark
    for name, value in model.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_allclose(found.mean, found.scores.mean(0))
    np.testing.assert_allclose(found.std, found.scores.std(0, ddof=1))
    assert found.at(86400.0) == found.mean[1]
    lines = str(found).splitlines()
    assert lines[1].split() == ["not", "programmed", f"{found.reference:.4f}"]
    assert lines[3].split() == ["1", "day", f"{found.mean[1]:.4f}", f"{found.std[1]:.4f}"]
    assert str(analog.accuracy_over_time(model, batches, (90.0,), repeats=1)).splitlines()[2].split()[:2] == ["90", "seconds"]
    seen: list[Any] = []

    def kept(model: nn.Module) -> float:
        seen.append(model.layers[0].tiles.tiles[0][0].conductances.numpy())
        return 0.0

    analog.accuracy_over_time(model, [], (1.0, 60.0), repeats=2, score=kept)
    analog.accuracy_over_time(model, [], (60.0,), repeats=2, score=kept)
    np.testing.assert_array_equal(seen[1], seen[6])  # each repetition is programmed alike, whatever is read
    np.testing.assert_array_equal(seen[3], seen[7])
    assert np.any(seen[1] != seen[3])
    by_score = analog.accuracy_over_time(model, [], (1.0,), repeats=2, score=lambda m: float(fb.max(m(batches[0][0])).item()))
    assert by_score.scores.shape == (2, 1)


def test_times_that_are_no_sequence_are_refused() -> None:
    model = analog.Linear(3, 2, config=perfect(), seed=0)
    for times in (5, "1", None):
        with pytest.raises(ConfigError, match="a sequence of times"):
            analog.accuracy_over_time(model, [], times)  # type: ignore[arg-type]


def test_pulsed_and_digital_models_become_models_for_inference() -> None:
    mapping = analog.MappingParameter(weight_scaling_omega=0.3, max_input_size=4)
    pulsed = analog.convert(
        nn.Sequential(nn.Linear(7, 5, generator=fb.random.Generator(0)), nn.ReLU()),
        analog.RPUConfig(analog.ConstantStepDevice(w_max_dtod=0.0, w_min_dtod=0.0), PERFECT, PERFECT, mapping=mapping), seed=0,
    )  # fmt: skip
    made = analog.convert_for_inference(pulsed, perfect(noise_model=NO_NOISE), seed=1).eval()
    np.testing.assert_allclose(made(fb.asarray(X)).numpy(), pulsed(fb.asarray(X)).numpy(), rtol=1e-4, atol=1e-5)
    analog.program_weights(made)
    assert [row.tiles for row in analog.mapping_report(made)] == [((5, 7),)]
    digital = analog.convert_for_inference(nn.Linear(3, 2), perfect(), seed=1)
    assert isinstance(digital.tiles.tiles[0][0], analog.InferenceTile)
    single = analog.convert_for_inference(analog.Linear(3, 2, config=analog.RPUConfig(), seed=0), perfect(), seed=1)
    assert isinstance(single.tiles.tiles[0][0], analog.InferenceTile)


@dataclass(frozen=True)
class Halved(analog.NoiseModel):
    """A model of one's own: conductances after programming are half of the targets."""

    def apply_programming_noise_to_conductance(self, g_target: Any, normal: Any) -> Any:
        return g_target * 0.5

    def generate_drift_coefficients(self, g_target: Any, g: Any, normal: Any) -> Any:
        return g_target - g

    def apply_drift_noise_to_conductance(self, g: Any, coefficients: Any, t_inference: float, normal: Any) -> Any:
        return g + coefficients


def test_a_noise_model_is_a_small_class() -> None:
    tile = tile_of(perfect(noise_model=Halved(), drift_compensation=None)).eval()
    tile.program_weights()
    np.testing.assert_allclose(tile(fb.asarray(X)).numpy(), 0.5 * X @ W.T, rtol=1e-5, atol=1e-5)
    assert tile.statistics().error_std == pytest.approx(0.5 * W.std() / np.abs(W).max(), rel=1e-4)
    tile.drift_weights(5.0)
    np.testing.assert_allclose(tile(fb.asarray(X)).numpy(), X @ W.T, rtol=1e-5, atol=1e-5)
    with pytest.raises(NotImplementedError, match="NoiseModel has no apply_programming_noise_to_conductance"):
        tile_of(perfect(noise_model=analog.NoiseModel())).eval().program_weights()


def programmed() -> analog.InferenceTile:
    tile = tile_of(perfect()).eval()
    tile.program_weights()
    return tile


SETTINGS = analog.WeightModifierParameter(analog.WeightModifierType.COPY)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "programmed twice": (lambda: programmed().program_weights(), "a tile that is not programmed yet"),
    "programmed in training": (lambda: tile_of(perfect()).program_weights(), "a tile in evaluation mode"),
    "drift of nothing": (lambda: tile_of(perfect()).eval().drift_weights(1.0), "weights that are programmed"),
    "a negative time": (lambda: programmed().drift_weights(-1.0), "a number of seconds of at least 0"),
    "no time": (lambda: programmed().drift_weights(float("nan")), "a number of seconds of at least 0"),
    "an infinite time": (lambda: analog.drift_weights(nn.Sequential(programmed()), float("inf")), "of at least 0"),
    "a time without a measurement": (
        lambda: tile_of(perfect(noise_model=MODELS["reram, chip"])).eval().drift_weights(60.0), "1, 86400 or 172800 s"
    ),
    "a time below a second": (lambda: MODELS["reram, oxide"].check_time(0.5), "0 or at least 1 s"),
    "drift of training": (lambda: programmed().drift(1.0), "call drift_weights with the time since programming"),
    "statistics of nothing": (lambda: tile_of(perfect()).statistics(), "a programmed tile"),
    "a model without tiles": (lambda: analog.program_weights(nn.Linear(2, 2)), "a model with inference tiles"),
    "a model twice": (lambda: analog.program_weights(nn.Sequential(programmed())), "1 of 1 that are already"),
    "a model in training": (lambda: analog.program_weights(network(perfect())), "a model in evaluation mode"),
    "a pulsed device": (lambda: analog.InferenceRPUConfig(analog.SoftBoundsDevice()), "updated by arithmetic"),
    "an unknown noise model": (lambda: analog.InferenceRPUConfig(noise_model="pcm"), "noise_model is a NoiseModel"),
    "an unknown compensation": (
        lambda: analog.InferenceRPUConfig(drift_compensation="global"), r"PerColumnDriftCompensation\(\), or None"
    ),
    "a range and a scale": (
        lambda: analog.InferenceRPUConfig(input_range=analog.InputRangeParameter(enable=True)), "NONE or CONSTANT"
    ),
    "no range": (lambda: tile_of(perfect()).set_input_range(1.0), "a tile with an input range"),
    "no range to calibrate": (lambda: analog.calibrate_input_ranges(network(perfect()), []), "none has one"),
    "noise of 0": (
        lambda: analog.WeightModifierParameter(analog.WeightModifierType.ADD_NORMAL), "ADD_NORMAL has a std_dev above 0"
    ),
    "a wrong type": (lambda: analog.WeightModifierParameter("add"), "NONE, COPY, DISCRETIZE"),
    "a wrong clip": (lambda: analog.WeightClipParameter("fixed"), "FIXED_VALUE, LAYER_GAUSSIAN"),
    "a wrong remap": (lambda: analog.WeightRemapParameter("fixed"), "LAYERWISE_SYMMETRIC"),
    "probabilities above 1": (lambda: replace(SETTINGS, pdrop=1.5), "at most 1"),
    "conductances that cross": (lambda: analog.SinglePairConductanceConverter(5.0, 9.0), "g_max is larger"),
    "no factors": (lambda: analog.NPairConductanceConverter(f_lst=()), "a tuple of positive numbers"),
    "three factors": (lambda: analog.DualPairConductanceConverter(f_lst=(1.0, 1.0, 1.0)), "two factors"),
    "lists of unlike length": (
        lambda: analog.CustomPairConductanceConverter(g_lst=((0.0, 1.0), (1.0,))), "two equally long tuples a factor"
    ),
    "a list that falls": (
        lambda: analog.CustomPairConductanceConverter(g_lst=((1.0, 0.0), (0.0, 1.0))), "a positive conductance"
    ),
    "an unknown acceptance": (lambda: analog.ReRamCMONoiseModel(acceptance_range=0.02), "0.2 or 2 percent"),
    "an unknown chip": (lambda: analog.HermesNoiseModel(num_devices=3), "num_devices is 1 or 2"),
    "a table that falls": (lambda: analog.CustomDriftPCMLikeNoiseModel(g_lst=(1.0, 0.0)), "g_lst increases"),
    "negative noise": (lambda: analog.PCMLikeNoiseModel(prog_noise_scale=-1.0), "at least 0"),
    "times that fall": (lambda: analog.accuracy_over_time(network(perfect()), [], (2.0, 1.0)), "times that increase"),
    "no repetition": (lambda: analog.accuracy_over_time(network(perfect()), [], repeats=0), "repeats is an int ≥ 1"),
    "no sample": (lambda: analog.accuracy_over_time(network(perfect()), [], (1.0,)), "at least one sample"),
    "classes of another size": (
        lambda: analog.accuracy_over_time(network(perfect()), [(fb.ones((2, 6)), fb.zeros(3))], (1.0,)), "a class for each"
    ),
    "a limit of 0": (lambda: analog.optimize_programming(network(perfect()).eval(), shares=(0.0,)), r"shares in \(0, 1\]"),
    "a limit in training": (lambda: analog.optimize_programming(network(perfect())), "training mode"),
    "a limit afterwards": (lambda: analog.optimize_programming(nn.Sequential(programmed())), "programmed already"),
    "pulsed configuration": (lambda: analog.InferenceTile(2, 2, analog.RPUConfig()), "an InferenceRPUConfig"),
    "pulsed conversion": (lambda: analog.convert_for_inference(nn.Linear(2, 2), analog.RPUConfig()), "an InferenceRPUConfig"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_by_name(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as raised:
        call()
    assert "Received" in str(raised.value)
    assert "Remedy" in str(raised.value)


def test_programming_inside_a_graph_is_refused() -> None:
    tile = tile_of(perfect()).eval()
    with pytest.raises(UnsupportedError, match="acts on the host"):
        fb.jit(lambda: tile.program_weights() or fb.zeros(1))()


def test_a_model_that_is_programmed_in_part_is_refused_and_not_changed() -> None:
    model = network(perfect()).eval()
    model.layers[2].tiles.tiles[0][0].program_weights()
    before = model.state_dict().numpy()
    with pytest.raises(ConfigError, match=r"1 of 2 that are not, such as layers\.0\.tiles\.tiles\.0\.0"):
        analog.drift_weights(model, 5.0)
    for name, value in model.state_dict().numpy().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("kind", analog.InputRangeCalibrationType, ids=lambda k: k.name)
def test_batches_without_vectors_calibrate_nothing(kind: analog.InputRangeCalibrationType) -> None:
    config = perfect(input_range=analog.InputRangeParameter(enable=True))
    layer = analog.Linear(3, 2, config=config, seed=0)
    with pytest.raises(ConfigError, match="batches on which each tile runs"):
        analog.calibrate_input_ranges(layer, [fb.zeros((0, 3))], kind)
    with pytest.raises(ConfigError, match=r"quantile in \(0, 1\], std_alpha above 0\nReceived: 'a'"):
        analog.calibrate_input_ranges(layer, [fb.ones((1, 3))], kind, quantile="a")  # type: ignore[arg-type]


def test_a_time_that_float32_does_not_hold_is_refused() -> None:
    tile = tile_of(perfect()).eval()
    tile.program_weights()
    with pytest.raises(ConfigError, match="a time is a number of seconds"):
        tile.drift_weights(1e300)
    tile.drift_weights(3e38)
    assert np.isfinite(tile.statistics().time)
