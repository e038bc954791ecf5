"""Recurrent layers in jit: one scan a layer and direction, with the numbers of the loop over the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from combinations import pairs_of

import firebrick as fb
from firebrick import nn
from firebrick.ir import Graph

LAYERS: list[tuple[str, dict[str, Any]]] = [
    (name, settings)
    for name in ("RNN", "LSTM", "GRU")
    for settings in ({}, {"num_layers": 2, "bidirectional": True, "dropout": 0.3}, {"bias": False, "batch_first": False})
]
LAYERS += [("LSTM", {"proj_size": 3, "bidirectional": True}), ("RNN", {"nonlinearity": "relu"})]


HOMES = ("numpy", "cpu", "torch:cpu")


@pytest.fixture(params=HOMES)
def home(request: pytest.FixtureRequest) -> Any:
    if request.param.startswith("torch"):
        pytest.importorskip("torch", reason="torch, an engine")
    with fb.use_device(request.param):
        yield request.param


def training(name: str, settings: dict[str, Any], lengths: Any, compiled: bool) -> tuple[Any, Any]:
    """Losses, and then results and parameters, of five steps."""
    model = getattr(nn, name)(4, 5, dtype=fb.float64, generator=fb.random.Generator(0), **settings)
    optimizer = fb.optim.SGD(model, lr=0.1)

    def loss(model: nn.Module, x: fb.Tensor, n: Any) -> fb.Tensor:
        y, state = model(x, lengths=n)
        return fb.sum(y * y) + sum(fb.sum(fb.sin(s)) for s in (state if isinstance(state, tuple) else (state,)))

    def step(x: fb.Tensor, n: Any) -> fb.Tensor:
        value, grads = fb.value_and_grad(loss)(model, x, n)
        optimizer.update(model, grads)
        return value

    run = fb.jit(step) if compiled else step
    rng = np.random.default_rng(1)
    n = None if lengths is None else fb.asarray(lengths)
    losses = [run(fb.asarray(rng.normal(size=(3, 3, 4))), n).item() for _ in range(5)]
    if compiled:
        assert run.traces == 1
    x = fb.asarray(rng.normal(size=(3, 3, 4)))
    model.eval()
    ahead = lambda x: model(x, lengths=n)  # noqa: E731
    y, state = (fb.jit(ahead) if compiled else ahead)(x)
    return losses, [t.numpy() for t in (y, *(state if isinstance(state, tuple) else (state,)), *model.parameters())]


@pytest.mark.parametrize(("home", "layer", "lengths"), pairs_of(HOMES, LAYERS, [None, [2, 3, 1]]), indirect=["home"])
def test_training_in_jit_has_the_numbers_of_the_loop(home: str, layer: tuple[str, dict[str, Any]], lengths: Any) -> None:
    name, settings = layer
    (a, left), (b, right) = (training(name, settings, lengths, compiled) for compiled in (False, True))
    np.testing.assert_allclose(a, b, rtol=1e-12)
    for x, y in zip(left, right, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_second_derivatives_of_a_layer_in_jit_are_those_of_the_loop() -> None:
    model = nn.GRU(3, 3, dtype=fb.float64, generator=fb.random.Generator(0))
    x = fb.asarray(np.random.default_rng(0).normal(size=(2, 4, 3)))
    slope = fb.grad(lambda x: fb.sum(model(x)[0] ** 2.0))
    curve = fb.grad(lambda x: fb.sum(slope(x) ** 2.0))
    np.testing.assert_allclose(fb.jit(curve)(x).numpy(), curve(x).numpy(), rtol=1e-12, atol=1e-12)


def test_lengths_outside_the_sequence_raise_at_each_run() -> None:
    run = fb.jit(lambda model, x, n: model(x, lengths=n)[0])
    model, x = nn.LSTM(4, 5), fb.ones((3, 5, 4))
    assert run(model, x, fb.asarray([5, 1, 2])).shape == (3, 5, 5)
    for lengths in ([5, 0, 2], [6, 1, 2]):
        with pytest.raises(fb.OutOfRangeError, match=r"LSTM: lengths lie in \[1, 5\], the length of x"):
            run(model, x, fb.asarray(lengths))
    assert run.traces == 1


def test_what_lies_behind_a_rows_length_may_be_nan_in_jit_too() -> None:
    model = nn.LSTM(2, 3, bidirectional=True)
    x = fb.ones((2, 4, 2))
    x[0, 2:] = float("nan")
    n = fb.asarray([2, 4])
    loss = fb.value_and_grad(lambda model, x: fb.sum(model(x, lengths=n)[0]))
    value, grads = fb.jit(loss)(model, x)
    assert np.isfinite(value.item())
    assert all(np.isfinite(grads[p].numpy()).all() for p in model.parameters())


def test_a_layers_graph_has_a_scan_for_each_layer_and_direction() -> None:
    model = nn.GRU(4, 4, num_layers=2, bidirectional=True)
    graph: Graph = fb.jit(lambda x: model(x)[0]).graph(fb.ones((2, 6, 4)))
    assert sum(n.op.name == "scan" for n in graph.nodes) == 4
