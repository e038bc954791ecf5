"""Optimizers without parameters or gradients, lists in another order, states that no optimizer wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim


def parameter() -> nn.Parameter:
    return nn.Parameter(fb.asarray([1.0, 2.0]))


def nothing() -> fb.Gradients:
    x = fb.ones(1).require_grad()
    found = fb.backward(fb.sum(x))
    found.remove(x)
    return found


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: optim.LBFGS([]), fb.ConfigError, "an optimizer needs parameters\nReceived: list"),
        (lambda: optim.SGD({"a": parameter()}, lr=0.1), fb.ConfigError, "a list of parameters is updated\nReceived: dict"),
        (lambda: optim.EMA(parameter()), fb.ConfigError, "a module or a list of parameters is updated"),
        (lambda: optim.clip_norm(nothing(), 1.0), fb.GradientError, "gradients have a norm if there are any"),
    ],
)  # fmt: skip
def test_it_is_refused_with_the_remedy(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_group_may_be_one_parameter() -> None:
    layer = nn.Linear(2, 1)
    opt = optim.SGD(layer, lr=0.1, groups=[{"params": layer.bias, "lr": 0.0}])
    assert [g.names for g in opt.groups] == [("weight",), ("bias",)]


def test_a_list_of_the_same_parameters_in_another_order_is_the_same_model() -> None:
    a, b = parameter(), parameter()
    model = nn.Module()
    model.a, model.b = a, b
    opt = optim.SGD([a, b], lr=1.0)
    opt.update([b, a], fb.grad(lambda m: fb.sum(m.a * 2.0 + m.b))(model))
    assert (a.tolist(), b.tolist()) == ([-1.0, 0.0], [0.0, 1.0])


def test_an_average_of_no_parameters_does_nothing() -> None:
    ema = optim.EMA(nn.ReLU())
    ema.update()
    with ema.applied():
        pass
    assert (ema.step, ema.averages) == (0, {})


def test_lbfgs_shows_its_settings() -> None:
    shown = repr(optim.LBFGS([parameter()], lr=0.5, history=3))
    assert shown.startswith("LBFGS(lr=0.5, iterations=20, evaluations=None, history=3, line_search=None, ")
    assert shown.endswith(", 1 parameters)")


@pytest.mark.parametrize("betas", [None, 3, ("a", "b")])
def test_settings_of_a_state_that_no_constructor_takes_are_refused_before_anything_changes(betas: Any) -> None:
    layer = nn.Linear(2, 1)
    opt = optim.Muon(layer, lr=0.1)
    state = opt.state_dict()
    state["groups"][0]["settings"]["betas"] = betas
    with pytest.raises(nn.StateError, match="Muon: a state holds settings that the constructor takes"):
        opt.load_state_dict(state)
    broken = opt.state_dict()
    broken["groups"][0]["settings"]["coefficients"] = 1.0
    with pytest.raises(nn.StateError, match="Muon: a state holds settings that the constructor takes"):
        opt.load_state_dict(broken)
    assert opt.settings == optim.Muon(layer, lr=0.1).settings


# random numbers


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fb.random.row_offset(-1).__enter__(), "a row offset is an int ≥ 0"),
        (lambda: fb.random.Generator(0).fork(-1), r"a stream's number is an int in \[0, 2\^63\)"),
        (lambda: fb.random.Generator(0).fork(1 << 63), r"a stream's number is an int in \[0, 2\^63\)"),
    ],
)
def test_offsets_and_streams_have_their_range(call: Callable[[], Any], text: str) -> None:
    with fb.random.row_offset(0):
        fb.random.Generator(0).fork((1 << 63) - 1)
    with pytest.raises(fb.ConfigError, match=text):
        call()


def test_a_setting_of_a_draw_may_be_a_tensor_without_axes() -> None:
    low, high = fb.asarray(2.0), fb.asarray(3.0)
    a = fb.random.Generator(0).uniform((4,), low=low, high=high).numpy()
    np.testing.assert_array_equal(a, fb.random.Generator(0).uniform((4,), low=2.0, high=3.0).numpy())
    with pytest.raises(fb.OperandError, match="uniform: low is a number"):
        fb.random.Generator(0).uniform((4,), low=fb.zeros(1))


@pytest.mark.parametrize("words", [[1.0, 2.0], [-1, 0], [0, 1 << 32]])
def test_words_of_a_state_are_two_of_32_bits(words: Any) -> None:
    generator = fb.random.Generator(3)
    state = generator.state()
    before = generator.uniform((3,)).tolist()
    generator.set_state(state)
    name = next(k for k, v in state.items() if np.shape(np.asarray(v.numpy() if isinstance(v, fb.Tensor) else v)) == (2,))
    with pytest.raises(fb.ConfigError):
        generator.set_state({**state, name: np.asarray(words)})
    assert generator.uniform((3,)).tolist() == before
