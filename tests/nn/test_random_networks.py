"""Random networks from all layers, trained beside torch's with the same weights; and that they find each planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch, to compare networks with")
from networks import drawing
from networks.drawing import Network, Part, draw
from networks.layers import LAYERS, Choices
from networks.losses import LOSSES
from networks.running import Failure, Unusable, Way, check, judge, shrunk, truth

import firebrick as fb
from firebrick import nn

GROUP = 5


@pytest.mark.parametrize("group", [0, 1, *(pytest.param(k, marks=pytest.mark.soak) for k in (2, 3, 4))])
def test_random_networks_train_as_torchs_do(group: int) -> None:
    found = [check(seed) for seed in range(group * GROUP, (group + 1) * GROUP)]
    assert sum(v.ways for v in found) >= GROUP, "most networks can be judged"
    shown = [f"{f.way}: {f.kind}\n{f.text}\n{f.program()}" for v in found for f in v.failures]
    assert not shown, "\n\n".join(shown)


def test_all_layers_and_losses_are_drawn() -> None:
    texts = []
    for ranks, _, rule in LAYERS.values():
        for k in range(120):
            d = Random(k)
            choices = Choices(d, [1, 2, 4, 8])
            shape = tuple(choices.size() for _ in range(d.choice(ranks)))
            texts.append(str(rule(choices, shape, k % 2 == 0)))
    text = " ".join(texts) + " nn.Embedding( nn.EmbeddingBag("  # which Drawing.network begins with
    layers = {n for n in nn.__all__ if isinstance(getattr(nn, n), type) and issubclass(getattr(nn, n), nn.Module)}
    losses = {n for n in layers if n.endswith("Loss")}
    assert losses == {n.split()[0] for n in LOSSES}
    elsewhere = {
        "Module": "the base", "Sequential": "Chain", "MultiheadAttention": "Attention", "TransformerDecoderLayer": "Decoder",
        "TransformerEncoder": "layers of its own in a row", "TransformerDecoder": "likewise",
        "RotaryPositions": "torch has none; tests/nn/test_attention.py compares them with complex products",
        "KeyValueCache": "state of a generation, which is not trained",
        "ZeroPad": "torch has one for each rank; tests/nn/test_padding_and_norms.py compares them",
        "SpectralNorm": "around another layer; tests/nn/test_padding_and_norms.py compares it with torch's",
    }  # fmt: skip
    missing = {n for n in layers - losses - set(elsewhere) if f"nn.{n}(" not in text}
    assert not missing, f"never drawn: {sorted(missing)}"


def test_a_network_is_the_same_for_the_same_seed_and_is_printed_as_a_program() -> None:
    assert draw(3) == draw(3) != draw(4)
    network = draw(3)
    assert eval(repr(network), {"Network": Network, "Part": Part}) == network


# planted faults


def layer(text: str) -> Part:
    return Part(text, text)


def network(*texts: str, shape: tuple[int, ...] = (4, 3), **changes: Any) -> Network:
    loss = ("MSELoss", "nn.MSELoss(reduction='mean')")
    made = Network(1, shape, 0, tuple(map(layer, texts)), loss, training=True, optimizer="adam", steps=5)
    return replace(made, **changes)


def found(net: Network, way: Way) -> Failure:
    """The failure of a network, which there is none of without the fault."""
    failure = judge(net, way)
    assert failure is not None
    return failure


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """No truth of a faulty library is kept for the next test."""
    truth.cache_clear()
    yield
    truth.cache_clear()


def test_a_mean_that_is_rounded_to_half_precision_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    net, way = (
        network("nn.BatchNorm1d(3)", shape=(8, 3), steps=1, optimizer="sgd", offset=30.0),
        Way("cpu", "eager", dtype="bfloat16"),
    )
    assert judge(net, way) is None

    def rounded(self: Any, x: fb.Tensor) -> fb.Tensor:
        if x.dtype is fb.float64:
            return right(self, x)
        centred = x - fb.mean(x, axis=0)
        return centred * fb.rsqrt(fb.mean(fb.square(centred), axis=0) + 1e-5) * self.weight + self.bias

    right = nn.BatchNorm1d.forward
    monkeypatch.setattr(nn.BatchNorm1d, "forward", rounded)
    assert "output: " in found(net, way).text


def test_a_gradient_that_is_lost_at_batch_1_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = nn.Linear.forward

    def forgetful(self: Any, x: fb.Tensor) -> fb.Tensor:
        return right(self, x.detach() + 0.0 * x) if x.shape[0] == 1 and x.dtype is fb.float32 else right(self, x)

    monkeypatch.setattr(nn.Linear, "forward", forgetful)
    assert judge(network("nn.Linear(3, 2)"), Way()) is None
    failure = found(network("nn.Linear(3, 2)", shape=(1, 3)), Way("numpy", "eager"))
    assert failure.text.startswith("gradient of x: ")


def test_running_statistics_of_a_wrong_momentum_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = nn.BatchNorm1d.forward

    def hasty(self: Any, x: fb.Tensor) -> fb.Tensor:
        self.momentum = 0.1001 if x.dtype is fb.float32 else 0.1
        return right(self, x)

    monkeypatch.setattr(nn.BatchNorm1d, "forward", hasty)
    failure = found(network("nn.BatchNorm1d(3)"), Way("cpu", "eager"))
    assert "running_mean after 5 steps" in failure.text
    assert "gradient" not in failure.text


def test_an_optimizer_of_other_settings_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(drawing.OPTIMIZERS, "adam", ("Adam({}, lr=0.02, eps=1e-3)", "Adam({}, lr=0.02, eps=1.0001e-3)"))
    failure = found(network("nn.Linear(3, 2)"), Way())
    assert failure.way.dtype == "float64", "our float64 is already not torch's"
    assert "weight after 5 steps" in failure.text


def test_recomputation_without_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("Checkpointed(nn.Tanh(), nn.Linear(3, 3))")
    net = replace(net, parts=(Part("Checkpointed({})", "Chain({})", (layer("nn.Tanh()"), layer("nn.Linear(3, 3)"))),))
    way = Way("cpu", "eager", "balanced")
    assert judge(net, way) is None
    right = nn.Tanh.forward

    def wasteful(self: Any, x: fb.Tensor) -> fb.Tensor:
        for _ in range(100 if x.dtype is fb.float32 else 0):
            right(self, x)
        return right(self, x)

    monkeypatch.setattr(nn.Tanh, "forward", wasteful)
    assert found(net, way).kind == "WorkExceededError"


def test_a_failure_is_shrunk_to_the_layer_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = nn.Tanh.forward
    monkeypatch.setattr(nn.Tanh, "forward", lambda self, x: right(self, x) * (1.001 if x.dtype is fb.float32 else 1.0))
    inner = Part("Residual({})", "Residual({})", (layer("nn.LayerNorm(3)"), layer("nn.Tanh()")))
    net = replace(network(shape=(4, 5)), steps=2, parts=(layer("nn.Linear(5, 3)"), inner))
    least = shrunk(found(net, Way("numpy", "eager")))
    assert least.network.text() == "Chain(nn.Tanh())"
    assert (least.network.steps, least.network.optimizer, least.network.training) == (1, "sgd", False)
    assert "from networks.drawing import Network, Part" in least.program()
    assert "seed 1" in least.program()


def test_a_network_of_nothing_but_rounding_is_not_judged() -> None:
    with pytest.raises(Unusable, match="mostly rounding"):
        judge(network("nn.LayerNorm(3)", shape=(4, 3), offset=1e9), Way())


# networks that were wrong

GATE = Part(
    "Parallel({}, 'product')", "Parallel({}, 'product')",
    (Part("Chain({})", "Chain({})", (layer("nn.Linear(1, 1)"), layer("nn.Sigmoid()"))), Part("Chain({})", "Chain({})")),
)  # fmt: skip
ONCE_WRONG = {
    "a layer norm of one value": (network("nn.LayerNorm(1)", shape=(1, 1)), Way()),
    "an rms norm of one value": (network("nn.RMSNorm(1, 1e-5)", "nn.RMSNorm(1, 1e-5)", shape=(1, 1)), Way(mode="forced")),
    "a response norm of one value": (network("nn.LocalResponseNorm(2, 0.1)", shape=(1, 1, 1, 1)), Way()),
    "a batch norm of one value in evaluation": (
        network("nn.Linear(2, 1)", "nn.BatchNorm1d(1)", shape=(1, 2), training=False), Way(mode="forced"),
    ),
    "a gate of one row and one unit": (replace(network(shape=(1, 3)), parts=(layer("nn.Linear(3, 1)"), GATE)), Way()),
    "a triplet loss of one row": (
        network("nn.Linear(3, 3)", shape=(1, 1, 3), seed=2, loss=("TripletMarginLoss", "nn.TripletMarginLoss()")), Way(),
    ),
    "a triplet loss of one row that swaps": (
        network("nn.Linear(2, 2)", shape=(1, 1, 2), loss=("TripletMarginLoss", "nn.TripletMarginLoss(swap=True)")), Way(),
    ),
    "a batch norm of float16 far from 0": (
        network("nn.BatchNorm1d(3)", shape=(8, 3), steps=1, optimizer="sgd", offset=30.0), Way(dtype="float16"),
    ),
    "a batch norm of bfloat16 far from 0": (
        network("nn.BatchNorm1d(3)", shape=(8, 3), steps=1, optimizer="sgd", offset=30.0), Way(dtype="bfloat16"),
    ),
    "a transposed convolution of half precision whose gradient is cast": (
        network("nn.ConvTranspose1d(4, 4, 2, 2)", shape=(1, 4, 3), steps=1, optimizer="sgd"), Way(autocast="float16"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_a_network_that_was_wrong_is_right(name: str) -> None:
    net, way = ONCE_WRONG[name]
    failure = judge(net, way)
    assert failure is None, f"{failure.text}\n{failure.program()}"
