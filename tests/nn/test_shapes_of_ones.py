"""Every layer and loss at shapes of ones, where any axis can be taken for another: against torch, and under ``verify``."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("torch", reason="torch, to compare layers with")
from networks.drawing import Drawing, Network, Part
from networks.layers import LAYERS, Choices
from networks.losses import LOSSES, takes
from networks.running import Unusable, Way, judge

WAYS = [
    Way("numpy", "eager"), Way("cpu", "eager"), Way("cpu", "jit"), Way("cpu", "forced"), Way("cpu", "verify"),
    Way("torch:cpu", "jit"),
]  # fmt: skip
MEAN = ("MSELoss", "nn.MSELoss(reduction='mean')")


OTHERS = [w for w in WAYS if w != Way("cpu", "forced")]


def right(networks: list[Network], judged: int = 1, *, several: bool = True, everywhere: bool = False) -> None:
    """Assert that networks train as torch's do, in kernels of any size and one of the other ways, in turns, or in all of them,
    or in one alone (not ``several``); at least ``judged`` runs of them can be judged."""
    wrong, runs = [], 0
    for number, network in enumerate(networks):
        chosen = [Way("cpu", "forced"), OTHERS[number % len(OTHERS)]] if several else [WAYS[number % len(WAYS)]]
        for way in WAYS if everywhere else chosen:
            try:
                failure = judge(network, way)
            except Unusable:
                continue
            runs += 1
            if failure is not None:
                wrong.append(f"{failure.way}: {failure.kind}\n{failure.text}\n{failure.program()}")
    assert not wrong, "\n\n".join(wrong)
    assert runs >= judged


def layers_of(name: str, training: bool) -> list[Network]:
    """Networks of one layer, at all ranks that it takes: with an input of ones alone, and of two rows."""
    ranks, _, rule = LAYERS[name]
    found: dict[str, Network] = {}
    for rank in ranks:
        for k in range(16):
            batch = 1 + (k % 3 == 2)
            # what needs several values, or an even number of them, gets them along one axis
            sizes = [1] * (rank - 1)
            if k % 2:
                sizes[k // 4 % (rank - 1)] = 2 if k % 4 == 1 else 4
            shape = (batch, *sizes)
            drawn = rule(Choices(Random(k), [1]), shape, training)
            if drawn is None:
                continue
            part = Part(drawn, drawn) if isinstance(drawn, str) else Part(*drawn)
            drawing = Drawing(k)
            drawing.training = training
            if drawing.shape_after(part, shape) is not None:
                network = Network(k, shape, 0, (part,), MEAN, training, "momentum", 2)
                found.setdefault(f"{rank} {min(k, 2)} {part.text()}", network)
    return list(found.values())[:6]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_one_value_is_torchs(name: str) -> None:
    networks = layers_of(name, True)[:4:2] + layers_of(name, False)[:1]
    assert networks
    right(networks[:1])  # the first in two ways, the others in one each, in turn
    right(networks[1:], len(networks) > 1, several=False)


@pytest.mark.soak
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_one_value_is_torchs_in_all_ways(name: str) -> None:
    right(layers_of(name, True) + layers_of(name, False), everywhere=True)


def losses_of(name: str) -> list[Network]:
    """Networks of one linear layer and a loss, at all shapes of ones that it takes."""
    shapes = [(1, 1), (1, 1, 1), (1, 1, 3), (1, 3), (3, 1), (1, 3, 1), (1, 1, 1, 1)]
    shapes = [s for s in shapes if takes(name, s)]
    texts = [t.format(r=repr(r)) for t in LOSSES[name].texts for r in dict.fromkeys(LOSSES[name].reductions)]
    networks = []
    for k, shape in enumerate(shapes):
        part = Part(f"nn.Linear({shape[-1]}, {shape[-1]})", f"nn.Linear({shape[-1]}, {shape[-1]})")
        for text in texts if k == 0 else texts[:1]:
            networks.append(Network(k, shape, 0, (part,), (name, text), True, "sgd", 2))
    return networks


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_one_value_is_torchs(name: str) -> None:
    networks = losses_of(name)
    right(networks[:1], 2)  # the first in two ways, the others in one each, in turn
    right(networks[1:], len(networks) - 1, several=False)


@pytest.mark.soak
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_one_value_is_torchs_in_all_ways(name: str) -> None:
    right(losses_of(name), len(WAYS), everywhere=True)
