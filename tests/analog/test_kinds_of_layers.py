"""Convolutions, recurrent layers and attention with their weights in tiles, and tiles that are used several times in a pass."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, models, nn, optim
from firebrick.core.errors import ConfigError, GradientError, UnsupportedError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import DataParallel, Learner, TrainingError

PERFECT = analog.IOParameters(is_perfect=True)
IDEAL = analog.RPUConfig(analog.FloatingPointDevice(), PERFECT, PERFECT)
QUIET = analog.SoftBoundsDevice(dw_min=0.01, dw_min_std=0.0)
IMPLICIT = analog.UpdateParameters(analog.PulseType.DETERMINISTIC_IMPLICIT)
RNG = np.random.default_rng(41)


def first(y: Any) -> Any:
    return y[0] if isinstance(y, tuple) else y


KINDS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "Conv1d": (lambda: nn.Conv1d(3, 6, 3, stride=2, padding=2, dilation=2), [(4, 3, 9)]),
    "Conv1d, empty batch": (lambda: nn.Conv1d(3, 2, 3), [(0, 3, 5)]),
    "Conv2d, groups": (lambda: nn.Conv2d(4, 6, 3, padding="same", groups=2), [(3, 4, 5, 6)]),
    "Conv2d, depthwise": (lambda: nn.Conv2d(3, 3, 2, stride=(2, 1), groups=3, bias=False), [(2, 3, 4, 3)]),
    "Conv3d": (
        lambda: nn.Conv3d(2, 3, (2, 3, 1), stride=(1, 2, 1), padding=((1, 0), (1, 2), (0, 0))), [(2, 2, 4, 5, 3)]
    ),
    "RNN": (lambda: nn.RNN(3, 5, batch_first=False, nonlinearity="relu"), [(4, 6, 3)]),
    "LSTM": (lambda: nn.LSTM(3, 5, num_layers=2, bidirectional=True, proj_size=2), [(4, 6, 3)]),
    "LSTM, one step": (lambda: nn.LSTM(3, 5, bias=False), [(1, 1, 3)]),
    "GRU": (lambda: nn.GRU(3, 5), [(4, 6, 3)]),
    "RNNCell": (lambda: nn.RNNCell(3, 5), [(4, 3)]),
    "LSTMCell": (lambda: nn.LSTMCell(3, 5), [(4, 3)]),
    "GRUCell": (lambda: nn.GRUCell(3, 5), [(4, 3)]),
    "attention": (lambda: nn.MultiheadAttention(8, 2), [(2, 5, 8)]),
    "attention to a memory": (lambda: nn.MultiheadAttention(8, 2), [(2, 5, 8), (2, 4, 8)]),
    "attention, other features": (lambda: nn.MultiheadAttention(8, 2, key_features=6), [(2, 5, 8), (2, 4, 6)]),
    "encoder": (lambda: nn.TransformerEncoder(8, 2, 1), [(2, 5, 8)]),
    "decoder": (lambda: nn.TransformerDecoderLayer(8, 2, activation="swiglu"), [(2, 5, 8), (2, 4, 8)]),
}  # fmt: skip


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def loss(model: Any, *x: Any) -> Any:
    y = first(model(*x))
    return fb.sum((y - 0.3) ** 2) / (y.size + 1.0)


def test_an_ideal_analog_layer_trains_like_the_digital_one(kind: Any) -> None:
    make, shapes = kind
    fb.random.seed(3)
    one = make()
    other = analog.convert(one, IDEAL, seed=0)
    assert analog.digital_layers(other) == []
    x = [fb.asarray(RNG.normal(size=s).astype(np.float32)) for s in shapes]
    updates = optim.SGD(one, lr=0.3), analog.SGD(other, lr=0.3)
    for _ in range(3):
        for model, optimizer in zip((one, other), updates, strict=True):
            optimizer.update(model, fb.value_and_grad(loss)(model, *x)[1])
    want, got = (first(m(*x)).numpy() for m in (one, other))
    np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_allclose(first(fb.jit(lambda m, *x: m(*x))(other, *x)).numpy(), want, atol=2e-5)


def test_what_is_frozen_stays_frozen_in_a_layer_of_each_kind(kind: Any) -> None:
    """The weights alone, the biases alone, or nothing."""
    make, _ = kind
    for part in ("weight", "bias", ""):
        one = make()
        for name, p in one.named_parameters():
            p.frozen = bool(part) and part in name
        made = analog.convert(one, IDEAL, seed=0)
        tiles = [m for _, m in made.modules() if isinstance(m, analog.Tile)]
        assert {t.weight.frozen for t in tiles} == {part == "weight"}
        biases = [p for name, p in made.named_parameters() if "bias" in name]
        assert {p.frozen for p in biases} <= {part == "bias"}
        assert bool(biases) == any("bias" in name for name, _ in one.named_parameters())


def quiet() -> analog.RPUConfig:
    return analog.RPUConfig(QUIET, PERFECT, PERFECT, IMPLICIT)


def test_a_tile_that_is_used_twice_is_updated_by_the_vectors_of_both_uses_in_their_order() -> None:
    layer = analog.Linear(4, 4, config=quiet(), seed=0, bias=False)
    tile = layer.tiles.tiles[0][0]
    x = fb.asarray(RNG.normal(size=(3, 4)).astype(np.float32))
    h = layer(x)
    of_y = fb.ones((3, 4))
    vectors, errors = [x, h.detach()], [fb.matmul(of_y, tile.weight.detach()), of_y]
    twins = {order: tile.fork() for order in (1, -1)}
    for order, twin in twins.items():
        twin.update(fb.concat(vectors[::order]), fb.concat(errors[::order]), 0.3)
    analog.SGD(layer, lr=0.3).update(layer, fb.grad(lambda m: fb.sum(m(m(x))))(layer))
    np.testing.assert_array_equal(tile.weight.numpy(), twins[1].weight.numpy())
    assert np.abs(tile.weight.numpy() - twins[-1].weight.numpy()).max() > 1e-6


def test_no_step_of_a_sequence_is_left_out_of_an_update() -> None:
    layer = analog.GRU(2, 3, config=quiet(), seed=0)
    tile = layer.weight_hh_l0.tiles[0][0]
    x = fb.asarray(RNG.normal(size=(2, 7, 2)).astype(np.float32))
    pulses: list[int] = []
    for length in (1, 3, 7):
        model = layer.fork()
        found = model.weight_hh_l0.tiles[0][0]
        seen: list[int] = []
        right = found.update_checked
        object.__setattr__(
            found, "update_checked", lambda v, d, lr, seen=seen, right=right: (seen.append(v.shape[0]), right(v, d, lr))[1]
        )
        analog.SGD(model, lr=5.0).update(model, fb.grad(loss)(model, x[:, :length]))
        assert seen == [2 * length]
        pulses.append(int(np.sum(found.weight.numpy() != tile.weight.numpy())))
    assert pulses[0] == 0  # the first state is 0
    assert pulses[2] > 0


def test_a_penalty_of_the_weights_is_refused_not_dropped() -> None:
    layer = analog.Linear(4, 4, config=quiet(), seed=0)
    tile = layer.tiles.tiles[0][0]
    before = tile.weight.numpy()

    def penalised(m: Any) -> Any:
        return fb.sum(m(fb.ones((2, 4)))) + fb.sum(m.tiles.tiles[0][0].weight ** 2)

    with pytest.raises(GradientError, match="or of an expression of the weights"):
        analog.SGD(layer, lr=0.1).update(layer, fb.grad(penalised)(layer))
    np.testing.assert_array_equal(tile.weight.numpy(), before)


class Net(nn.Module):
    """An LSTM with a digital head."""

    def __init__(self, config: analog.RPUConfig, seed: int = 1) -> None:
        self.rnn = analog.LSTM(3, 6, config=config, seed=seed)
        self.head = nn.Linear(6, 2, generator=fb.random.Generator(2))

    def forward(self, x: Any) -> Any:
        return self.head(self.rnn(x)[0][:, -1])


X = RNG.normal(size=(36, 4, 3)).astype(np.float32)
Y = (X.sum((1, 2)) > 0).astype(np.int64)


def learner(model: nn.Module, out: Path | None = None, **settings: Any) -> tuple[Learner, DataLoader]:
    loader = DataLoader(ArrayDataset(X, Y), batch_size=12, shuffle=True, seed=0)
    return Learner(model, analog.SGD(model, lr=0.1), log=None, out=out, **settings), loader


PULSED = analog.RPUConfig(analog.SoftBoundsDevice(dw_min=0.005, write_noise_std=0.5))


def test_a_resumed_run_of_a_recurrent_model_has_the_bits_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole, loader = learner(Net(PULSED))
    whole.fit(loader, epochs=2)
    part, loader = learner(Net(PULSED), tmp_path / "run")
    part.fit(loader, epochs=1)
    again, loader = learner(Net(PULSED, seed=5), tmp_path / "run")
    again.resume(tmp_path / "run")
    again.fit(loader, epochs=2)
    want = whole.model.state_dict().numpy()
    for name, value in again.model.state_dict().numpy().items():
        np.testing.assert_array_equal(value, want[name], err_msg=name)


BY_ARITHMETIC = (analog.RPUConfig(analog.FloatingPointDevice()), analog.InferenceRPUConfig(backward=analog.IOParameters()))


@pytest.mark.parametrize("config", BY_ARITHMETIC, ids=lambda c: type(c).__name__)
def test_noise_is_that_of_the_vector_for_any_split_over_devices(config: analog.RPUConfig) -> None:
    losses = []
    for settings in ({}, {"strategy": DataParallel(["cpu:0", "cpu:1"])}):
        made, loader = learner(Net(config), **settings)
        losses.append([row.train_loss for row in made.fit(loader, epochs=2)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


class Mapped(nn.Module):
    """Two analog layers that compute one vector after the other."""

    def __init__(self, config: analog.RPUConfig, mapped: bool) -> None:
        self.mapped = mapped
        self.layers = [analog.Linear(4, 5, config=config, seed=0), analog.Linear(5, 3, config=config, seed=1)]

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.vmap(self.product)(x) if self.mapped else self.product(x)

    def product(self, x: fb.Tensor) -> fb.Tensor:
        return self.layers[1](fb.tanh(self.layers[0](x)))


@pytest.mark.parametrize("config", BY_ARITHMETIC, ids=lambda c: type(c).__name__)
def test_a_model_inside_vmap_trains_as_one_of_batches_also_over_several_devices(config: analog.RPUConfig) -> None:
    x, y = (RNG.normal(size=(16, n)).astype(np.float32) for n in (4, 3))
    states = []
    for settings in ({}, {"strategy": DataParallel(["cpu:0", "cpu:1"])}):
        for mapped in (False, True):
            model = Mapped(config, mapped)
            loader = DataLoader(ArrayDataset(x, y), batch_size=8, shuffle=True, seed=0)
            optimizer = analog.SGD(model, lr=0.1)
            Learner(model, optimizer, lambda out, y: fb.mean((out - y) ** 2), log=None, **settings).fit(loader, epochs=2)
            states.append(model.state_dict().numpy())
    for state in states[1:]:
        for name, value in states[0].items():
            np.testing.assert_allclose(state[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("config", BY_ARITHMETIC, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("shape", [(6, 3), (6, 2, 3)], ids=str)
def test_a_share_of_a_batch_has_the_noise_of_its_rows(shape: tuple[int, ...], config: analog.RPUConfig) -> None:
    x = fb.asarray(RNG.normal(size=shape).astype(np.float32))

    def products(x: fb.Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The product and its gradient by a new layer."""
        layer = analog.Linear(3, 5, config=config, seed=0)
        y, pull = fb.vjp(layer, x)
        return y.numpy(), pull(fb.ones_like(y))[0].numpy()

    with fb.random.row_offset(2):
        parts = products(x[2:])
    for whole, part, first in zip(products(x), parts, products(x[2:]), strict=True):
        np.testing.assert_array_equal(part, whole[2:])
        assert np.any(first != part)


def test_pulses_over_several_devices_are_refused_by_name() -> None:
    config = analog.RPUConfig(analog.SoftBoundsDevice(), PERFECT, PERFECT)
    named = r"rnn\.weight_ih_l0\.tiles\.0\.0\.weight and \d others, which pulses update(.|\n)*"
    for text, settings in {
        r"divides batches \(DataParallel, cpu:0, cpu:1\)": {"strategy": DataParallel(["cpu:0", "cpu:1"])},
        r"accumulate=2 and clip_norm=1\.0": {"accumulate": 2, "clip_norm": 1.0},
        "batches_per_step=2": {"batches_per_step": 2},
    }.items():
        with pytest.raises(
            TrainingError, match=named + text + r"(.|\n)*train on one device; devices that are updated by arith"
        ):
            learner(Net(config), **settings)  # before anything runs


@pytest.mark.parametrize("mapping", [{}, {"weight_scaling_omega": 0.5}], ids=str)
def test_a_tile_that_is_updated_by_arithmetic_takes_any_gradient(mapping: dict[str, Any]) -> None:
    fb.random.seed(2)
    one = nn.Linear(3, 2)
    config = analog.RPUConfig(analog.FloatingPointDevice(), PERFECT, PERFECT, mapping=analog.MappingParameter(**mapping))
    other = analog.convert(one, config, seed=0)
    x = fb.asarray(X[:, 0])
    for model, optimizer in ((one, optim.SGD(one, lr=0.1)), (other, analog.SGD(other, lr=0.1))):
        gradients = fb.grad(loss)(model, x)
        for p in model.parameters():
            gradients[p] = gradients[p] * 0.5
        optimizer.update(model, gradients)
    np.testing.assert_allclose(other.tiles.get_weights().numpy(), one.weight.numpy(), atol=1e-5)
    with pytest.raises(UnsupportedError, match=r"a tile that is updated by arithmetic(.|\n)*SoftBoundsDevice"):
        analog.Tile(2, 3, analog.RPUConfig(QUIET), seed=0).descend(fb.ones((2, 3)), 0.1)


class Own(nn.Linear):
    """A layer of a user."""


def test_what_cannot_be_mapped_is_reported_by_name() -> None:
    tied = nn.Linear(4, 4)
    partner = nn.Linear(4, 4)
    partner.weight = tied.weight  # values
    object.__setattr__(partner, "weight", tied.weight)  # the parameter
    model = nn.Sequential(
        nn.Linear(4, 4), Own(4, 4), nn.ConvTranspose1d(4, 4, 1), nn.weight_norm(nn.Linear(4, 4)), tied, partner,
        nn.Linear(4, 2),
    )  # fmt: skip
    reasons = {
        "layers.1": "Own is a subclass of nn.Linear", "layers.2": "nn.ConvTranspose1d has no analog form",
        "layers.3.layer": "its weight is computed by another module", "layers.4": "it shares layers.5.weight",
        "layers.5": "it shares layers.4.weight",
    }  # fmt: skip
    shown = r"these layers stay digital: layers\.1 \(Own is a subclass of nn\.Linear\), layers\.2 .*layers\.5"
    with pytest.warns(UserWarning, match=shown):
        made = analog.convert(model, IDEAL, seed=0)
    assert {row.name: row.reason for row in analog.digital_layers(made)} == reasons
    assert [row.name for row in analog.mapping_report(made)] == ["layers.0", "layers.6"]
    made = analog.convert(model, IDEAL, exclude=[*reasons, "layers.0"], seed=0)  # without a warning
    assert {row.name: row.reason for row in analog.digital_layers(made)} == {"layers.0": "", **reasons}
    with pytest.raises(ConfigError, match=r"2 layers that multiply by weights, but layers\.0 \(it shares"):
        analog.convert(nn.Sequential(tied, partner), IDEAL, seed=0)


class OwnAttention(nn.MultiheadAttention):
    """An attention of a user."""


def test_the_projections_of_an_attention_are_chosen_one_by_one() -> None:
    model = nn.Sequential(nn.MultiheadAttention(8, 2), nn.Linear(8, 2))
    made = analog.convert(model, IDEAL, exclude=["layers.0.qkv"], seed=0)
    assert [row.name for row in analog.mapping_report(made)] == ["layers.0.out", "layers.1"]
    assert made(fb.ones((1, 3, 8))).shape == (1, 3, 2)
    names = [row.name for row in analog.mapping_report(analog.convert(model, IDEAL, seed=0))]
    assert names == [*(f"layers.0.{n}" for n in ("q", "k", "v", "out")), "layers.1"] or sorted(names) == sorted(
        [*(f"layers.0.{n}" for n in ("q", "k", "v", "out")), "layers.1"]
    )
    own = nn.Sequential(OwnAttention(8, 2), nn.Linear(8, 2))
    with pytest.warns(UserWarning, match=r"layers\.0\.qkv \(part of OwnAttention, a subclass"):
        analog.convert(own, IDEAL, seed=0)


def test_conversion_keeps_what_is_frozen_hooks_and_modes() -> None:
    model = nn.Sequential(nn.LSTM(3, 4), nn.Linear(4, 2))
    model.layers[0].freeze()
    model.layers[0].eval()
    model.layers[1].register_forward_hook(lambda m, args, y: y * 0.0)

    def run(m: Any, x: Any) -> Any:
        return m.layers[1](m.layers[0](x)[0])

    made = analog.convert(model, IDEAL, seed=0)
    assert all(p.frozen for p in made.layers[0].parameters())
    assert not made.layers[0].training
    assert not np.any(run(made, fb.ones((1, 2, 3))).numpy())
    assert [row.name for row in analog.mapping_report(made)] == [
        "layers.0.weight_ih_l0", "layers.0.weight_hh_l0", "layers.1",
    ]  # fmt: skip


def test_inputs_of_other_shapes_are_refused() -> None:
    layer = analog.Conv1d(3, 2, 3, seed=0)
    with pytest.raises(fb.ShapeError, match=r"analog\.Conv1d: x is \[batch, 3, length\]"):
        layer(fb.ones((2, 5, 3)))
    with pytest.raises(fb.ShapeError, match=r"analog\.Conv1d: the kernel must fit into the padded image"):
        layer(fb.ones((2, 3, 2)))
    with pytest.raises(ConfigError, match="groups divides in_channels and out_channels"):
        analog.Conv2d(3, 4, 3, groups=2)


class Pair(NamedTuple):
    first: nn.Module
    second: nn.Module


class Kept(nn.Module):
    """Layers in containers of several types."""

    def __init__(self) -> None:
        self.pair, self.ordered = Pair(nn.Linear(3, 3), nn.Tanh()), OrderedDict(second=nn.Tanh(), first=nn.Linear(3, 3))
        self.ordered.move_to_end("second")

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        for layer in (self.pair.first, self.pair.second, *self.ordered.values()):
            x = layer(x)
        return x


def test_containers_of_layers_keep_their_types_and_orders() -> None:
    made = analog.convert(Kept(), analog.RPUConfig(analog.IdealDevice()), seed=0)
    assert type(made.pair) is Pair
    assert type(made.ordered) is OrderedDict
    assert list(made.ordered) == ["first", "second"]
    assert [row.name for row in analog.mapping_report(made)] == ["pair.0", "ordered.first"]


@pytest.mark.parametrize("kept", [lambda w: [w], lambda w: {"w": w}, lambda w: ((w,),)], ids=["list", "dict", "tuple"])
def test_a_weight_that_a_list_or_dict_of_the_model_shares_stays_digital(kept: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model.shared = kept(model.layers[0].weight)
    with pytest.warns(UserWarning, match=r"stay digital: layers\.0 \(it shares shared\."):
        made = analog.convert(model, analog.RPUConfig(analog.IdealDevice()), seed=0)
    assert [row.name for row in analog.mapping_report(made)] == ["layers.1"]


QUANTISED = analog.IOParameters(out_noise=0.0)
BOUNDED = analog.SoftBoundsDevice(w_max_dtod=0.0, w_min_dtod=0.0)
SCALED = analog.RPUConfig(BOUNDED, QUANTISED, mapping=analog.MappingParameter(weight_scaling_omega=0.5))


@pytest.mark.parametrize("config", [SCALED, analog.InferenceRPUConfig(forward=QUANTISED)], ids=lambda c: type(c).__name__)
def test_a_transformer_has_the_logits_of_the_whole_sequence_token_by_token(config: analog.RPUConfig) -> None:
    gpt = models.GPT(20, length=16, dim=16, heads=4, layers=2, tied=False, generator=fb.random.Generator(0))
    model = analog.convert(gpt, config, seed=0).eval()
    if isinstance(config, analog.InferenceRPUConfig):
        analog.program_weights(model)
        analog.drift_weights(model, 1000.0)
    tokens = np.random.default_rng(0).integers(0, 20, (2, 8))
    whole, cache, pads = model(fb.asarray(tokens)).numpy(), model.new_cache(2, 8), fb.zeros(2, dtype=fb.int64)
    for k in range(8):
        logits, cache = model.extend(fb.asarray(tokens[:, k : k + 1]), cache, k, pads)
        np.testing.assert_allclose(logits.numpy(), whole[:, k], rtol=1e-4, atol=1e-5)


def test_a_convolution_names_the_settings_that_are_not_the_usual_ones() -> None:
    assert analog.Conv2d(1, 2, 3).describe() == "1, 2, (3, 3)"
    shown = analog.Conv1d(2, 4, 3, stride=2, padding=1, dilation=3, groups=2, bias=False).describe()
    assert shown == "2, 4, (3,), stride=(2,), padding=1, dilation=(3,), groups=2, bias=False"
