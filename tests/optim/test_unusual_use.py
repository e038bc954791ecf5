"""Optimizers without parameters or gradients, lists in another order, states that no optimizer wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_a_subclass_may_have_another_base_that_takes_keywords_of_the_class() -> None:
    class Tagged:
        tag = ""

        def __init_subclass__(cls, *, tag: str = "", **named: Any) -> None:
            super().__init_subclass__(**named)
            cls.tag = tag

    class Mine(optim.SGD, Tagged, tag="mine"):
        """Both."""

    assert Mine.tag == "mine"
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        type("Other", (optim.SGD,), {}, colour="red")
