"""Recurrent layers: torch's numbers in float64 over 20 steps, states at each row's own end, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, OperandError, OutOfRangeError, ShapeError

F64 = {"dtype": fb.float64}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2},
    {"bias": False},
    {"bidirectional": True, "num_layers": 2},
    {"batch_first": False},
]
KINDS = [(name, s) for name in ("RNN", "LSTM", "GRU") for s in SETTINGS]
KINDS += [
    ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
    ("LSTM", {"proj_size": 2, "bidirectional": True, "num_layers": 2}),
]
LENGTHS = [4, 1, 6]


def pair(name: str, settings: dict[str, Any]) -> tuple[nn.Module, Any]:
    """A layer of ours and torch's."""
    torch = pytest.importorskip("torch", reason="torch, to compare layers with")
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(3, 5, dtype=torch.float64, **{"batch_first": True, **settings})
    return getattr(nn, name)(3, 5, **settings, **F64), theirs


def joined(result: Any) -> Any:
    """Outputs and all states as one vector."""
    y, state = result
    parts = [y, *(state if isinstance(state, (tuple, list)) else [state])]
    if isinstance(y, fb.Tensor):
        return fb.concat([fb.reshape(p, (-1,)) for p in parts])
    import torch

    return torch.cat([p.reshape(-1) for p in parts])


@pytest.mark.parametrize(("name", "settings"), KINDS)
def test_a_layer_trains_as_torchs_does(name: str, settings: dict[str, Any], train_alike: Callable[..., None]) -> None:
    ours, theirs = pair(name, settings)
    train_alike(
        ours, theirs, lambda rng: [rng.normal(size=(3, 6, 3))], lr=0.5,
        ours_call=lambda m, x: joined(m(x)), theirs_call=lambda m, x: joined(m(x)),
    )  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), KINDS)
def test_lengths_and_initial_states_mean_what_torchs_packed_sequences_do(
    name: str, settings: dict[str, Any], train_alike: Callable[..., None]
) -> None:
    ours, theirs = pair(name, settings)
    first = settings.get("batch_first", True)
    states = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
    sizes = {"LSTM": (settings.get("proj_size") or 5, 5)}.get(name, (5,))

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        x = rng.normal(size=(3, 6, 3) if first else (6, 3, 3))
        return [x, *(rng.normal(size=(states, 3, n)) for n in sizes)]

    def call(m: nn.Module, x: fb.Tensor, *state: fb.Tensor) -> fb.Tensor:
        return joined(m(x, state if len(state) == 2 else state[0], lengths=LENGTHS))

    def their_call(m: Any, x: Any, *state: Any) -> Any:
        import torch
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        packed = pack_padded_sequence(x, torch.asarray(LENGTHS), batch_first=first, enforce_sorted=False)
        y, after = m(packed, state if len(state) == 2 else state[0])
        return joined((pad_packed_sequence(y, batch_first=first)[0], after))

    train_alike(ours, theirs, inputs, ours_call=call, theirs_call=their_call, steps=5, lr=0.5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
def test_a_cell_trains_as_torchs_does(name: str, bias: bool, train_alike: Callable[..., None]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare layers with")
    ours, theirs = getattr(nn, name)(3, 5, bias, **F64), getattr(torch.nn, name)(3, 5, bias=bias, dtype=torch.float64)
    two = name == "LSTMCell"

    def call(m: Any, x: Any, *state: Any) -> Any:
        again = m(x, m(x, state if two else state[0]))
        return again[0] * again[1] if two else again

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        return [rng.normal(size=(2, 3)), *(rng.normal(size=(2, 5)) for _ in range(1 + two))]

    train_alike(ours, theirs, inputs, ours_call=call, theirs_call=call, lr=0.5)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_state_dict_has_torchs_paths_in_torchs_order(name: str) -> None:
    more = {"proj_size": 2} if name == "LSTM" else {}
    ours, theirs = pair(name, {"num_layers": 2, "bidirectional": True, **more})
    assert [(n, v.shape) for n, v in ours.state_dict().items()] == [(n, tuple(v.shape)) for n, v in theirs.state_dict().items()]


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_cell_repeated_is_the_layer(name: str) -> None:
    layer, cell = getattr(nn, name)(3, 5, **F64), getattr(nn, f"{name}Cell")(3, 5, **F64)
    cell.load_state_dict({n.removesuffix("_l0"): v for n, v in layer.state_dict().items()})
    x = fb.random.Generator(0).normal((2, 4, 3), dtype=fb.float64)
    y, _ = layer(x)
    state = None
    for t in range(4):
        state = cell(x[:, t], state)
        h = state[0] if name == "LSTM" else state
        np.testing.assert_allclose(h.numpy(), y[:, t].numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_sequence_in_two_calls_is_the_sequence_in_one(name: str, device: str) -> None:
    layer = getattr(nn, name)(3, 5, 2, device=device, **F64)
    x = fb.random.Generator(0).normal((2, 7, 3), device=device, **F64)
    whole, end = layer(x)
    first, state = layer(x[:, :4])
    second, last = layer(x[:, 4:], state)
    np.testing.assert_allclose(fb.concat([first, second], axis=1).numpy(), whole.numpy(), rtol=1e-12, atol=1e-12)
    for a, b in zip(fb.core.trees.flatten(last)[0], fb.core.trees.flatten(end)[0], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)


def test_what_follows_a_rows_length_is_never_looked_at(device: str) -> None:
    layer = nn.LSTM(3, 5, 2, bidirectional=True, device=device, **F64)
    x = np.random.default_rng(0).normal(size=(3, 6, 3))
    other = x.copy()
    for row, n in zip(other, LENGTHS, strict=True):
        row[n:] = np.nan
    for lengths in (LENGTHS, fb.asarray(LENGTHS, device=device), fb.asarray(LENGTHS, dtype=fb.int32, device=device)):
        y, (h, c) = layer(fb.asarray(x, device=device), lengths=lengths)
        z, (hh, cc) = layer(fb.asarray(other, device=device), lengths=lengths)
        assert y.tolist() == z.tolist()
        assert h.tolist() == hh.tolist()
        assert c.tolist() == cc.tolist()
    for row, n in zip(y.numpy(), LENGTHS, strict=True):
        assert not row[n:].any()
    alone, (end, _) = layer(fb.asarray(x[:1, : LENGTHS[0]], device=device))
    np.testing.assert_allclose(alone[0].numpy(), y[0, : LENGTHS[0]].numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(end[:, 0].numpy(), h[:, 0].numpy(), rtol=1e-12, atol=1e-12)


def test_gradients_do_not_pass_through_padding() -> None:
    layer = nn.GRU(3, 5, bidirectional=True, **F64)
    x = fb.random.Generator(0).normal((3, 6, 3), dtype=fb.float64)
    g = fb.grad(lambda x: fb.sum(layer(x, lengths=LENGTHS)[0]))(x).numpy()
    for row, n in zip(g, LENGTHS, strict=True):
        assert np.abs(row[:n]).min() > 0
        assert not row[n:].any()


def test_dropout_acts_between_layers_and_in_training_only() -> None:
    layer = nn.LSTM(3, 5, 2, dropout=0.5)
    x = fb.random.Generator(0).normal((4, 6, 3))
    a, b = layer(x)[0].tolist(), layer(x)[0].tolist()
    assert a != b
    layer.eval()
    assert layer(x)[0].tolist() == layer(x)[0].tolist()
    one = nn.LSTM(3, 5, 1, dropout=0.5)
    assert one(x)[0].tolist() == one(x)[0].tolist()


def test_a_split_batch_drops_between_layers_what_the_whole_one_would() -> None:
    fb.random.seed(0)
    x = fb.random.Generator(0).normal((6, 4, 3), **F64)
    layer = nn.GRU(3, 5, 3, dropout=0.5, **F64)
    twin = layer.fork()
    whole = layer(x)[0].numpy()
    with fb.random.row_offset(4):
        part = twin(x[4:])[0].numpy()
    np.testing.assert_allclose(part, whole[4:], rtol=1e-12, atol=1e-12)


def test_every_engine_gives_the_same_outputs_and_gradients(device: str) -> None:
    def run(d: str) -> list[np.ndarray]:
        layer = nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2, generator=fb.random.Generator(1), device=d, **F64)
        x = fb.random.Generator(0).normal((3, 5, 3), dtype=fb.float64, device=d)

        def loss(m: nn.Module) -> tuple[fb.Tensor, fb.Tensor]:
            y, (h, c) = m(x, lengths=[5, 2, 3])
            return fb.sum(y * y) + fb.sum(h) + fb.sum(c), y

        (_, y), grads = fb.value_and_grad(loss, has_aux=True)(layer)
        return [y.numpy(), *(grads[p].numpy() for p in layer.parameters())]

    for a, b in zip(run(device), run("numpy"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


X = fb.ones((2, 4, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.LSTM(0, 4), ConfigError, "LSTM: input_size is an int ≥ 1\nReceived: input_size = 0"),
        (lambda: nn.GRU(3, 4, 0), ConfigError, "GRU: num_layers is an int ≥ 1"),
        (lambda: nn.GRU(3, 4, 2, dropout=1.0), ConfigError, r"GRU: dropout lies in \[0, 1\)"),
        (lambda: nn.GRU(3, 4, 2, dropout=-0.1), ConfigError, r"GRU: dropout lies in \[0, 1\)"),
        (lambda: nn.RNN(3, 4, nonlinearity="gelu"), ConfigError, 'RNN: nonlinearity is "tanh" or "relu"'),
        (lambda: nn.LSTM(3, 4, proj_size=4), ConfigError, "LSTM: proj_size is less than hidden_size"),
        (lambda: nn.LSTMCell(3, 0), ConfigError, "LSTMCell: hidden_size is an int ≥ 1"),
        (lambda: nn.LSTM(3, 4)(fb.ones((2, 4, 5))), ShapeError, r"LSTM: x is \[batch, length, 3\]"),
        (lambda: nn.LSTM(3, 4, batch_first=False)(fb.ones((2, 4, 5))), ShapeError, r"LSTM: x is \[length, batch, 3\]"),
        (lambda: nn.LSTM(3, 4)(fb.ones((4, 3))), ShapeError, r"LSTM: x is \[batch, length, 3\]"),
        (lambda: nn.LSTM(3, 4)(fb.ones((2, 0, 3))), ShapeError, "LSTM: x has at least one step"),
        (lambda: nn.LSTM(3, 4)(X, fb.zeros((1, 2, 4))), ShapeError, r"LSTM: state is a pair of tensors, \(h, c\)"),
        (lambda: nn.LSTM(3, 4)(X, (fb.zeros((1, 2, 4)), fb.zeros((2, 2, 4)))), ShapeError, r"state\[1\] .* \[1, 2, 4\]"),
        (lambda: nn.GRU(3, 4, 2)(X, fb.zeros((1, 2, 4))), ShapeError, r"GRU: state is .*, here \[2, 2, 4\]"),
        (lambda: nn.GRUCell(3, 4)(fb.ones((2, 3)), fb.zeros((1, 4))), ShapeError, r"state is \[batch, size\], here"),
        (lambda: nn.GRUCell(3, 4)(fb.ones((3,))), ShapeError, r"GRUCell: x is \[batch, 3\]"),
        (lambda: nn.GRU(3, 4)(X, lengths=[4, 0]), OutOfRangeError, r"lie in \[1, 4\].*\nReceived: .*0 to 4"),
        (lambda: nn.GRU(3, 4)(X, lengths=[5, 1]), OutOfRangeError, "lengths from 1 to 5"),
        (lambda: nn.GRU(3, 4)(X, lengths=[4]), ShapeError, r"GRU: lengths is \[batch\]"),
        (lambda: nn.GRU(3, 4)(X, lengths=fb.ones(2)), DTypeError, "GRU: lengths need an integer dtype"),
        (lambda: nn.GRU(3, 4)(X, lengths=[1.0, 2.0]), OperandError, "GRU: lengths must be"),
        (lambda: nn.GRU(3, 4)(fb.asarray([[[1, 2, 3]]])), DTypeError, "GRU: x needs a floating dtype"),
        (lambda: nn.GRU(3, 4)(np.ones((2, 4, 3))), OperandError, "GRU: x must be a Firebrick tensor"),
        (lambda: nn.LSTM(3, 4)(fb.ones((2, 4, 3), device="cpu:1")), fb.DeviceMismatchError, "LSTM: all tensors must be on one"),
        (lambda: nn.GRU(3, 4)(X, lengths=fb.asarray([1, 2], device="cpu:1")), fb.DeviceMismatchError, "lengths"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected_and_received(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_repr_shows_the_settings() -> None:
    assert (
        repr(nn.LSTM(3, 8, 2, bidirectional=True, proj_size=4)) == "LSTM(3, 8, num_layers=2, bidirectional=True, proj_size=4)"
    )
    assert repr(nn.RNN(3, 8, nonlinearity="relu")) == "RNN(3, 8, nonlinearity='relu')"
    kinds: Sequence[type[nn.Module]] = (nn.RNNCell, nn.LSTMCell, nn.GRUCell)
    assert [repr(k(1, 2)) for k in kinds] == ["RNNCell(1, 2)", "LSTMCell(1, 2)", "GRUCell(1, 2)"]


@pytest.mark.turns
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_what_follows_a_rows_end_may_be_nan(name: str, device: str) -> None:
    """It is not looked at: outputs, gradients of weights and of x are those of zeros in its place."""
    layer = getattr(nn, name)(3, 4, 2, bidirectional=True, dtype="float64").to(device)
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    found = []
    for filling in (0.0, np.nan, np.inf):
        x[1, 2:] = filling
        given = fb.asarray(x, device=device)
        value, grads = fb.value_and_grad(lambda m, x=given: fb.sum(m(x, lengths=[5, 2])[0] ** 2))(layer)
        by_x = fb.grad(lambda x: fb.sum(layer(x, lengths=[5, 2])[0] ** 2))(given)
        found.append([value.numpy(), by_x.numpy(), *(grads[p].numpy() for p in layer.parameters())])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_lengths_of_a_narrow_dtype_serve_longer_sequences(device: str) -> None:
    layer = nn.GRU(1, 2).to(device)
    x = fb.random.Generator(0).normal((2, 300, 1)).to(device)
    narrow = fb.asarray(np.asarray([200, 10], np.uint8), device=device)
    for a, b in zip(layer(x, lengths=narrow), layer(x, lengths=[200, 10]), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
