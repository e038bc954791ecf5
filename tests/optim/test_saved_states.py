"""States of optimizers that someone changed: a moment left out or a setting no constructor takes is refused, not guessed."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim


def trained(make: Callable[..., Any] = optim.Adam, **settings: Any) -> tuple[nn.Module, Any]:
    fb.random.seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    opt = make(model, lr=0.1, **settings)
    opt.update(model, fb.grad(lambda m: fb.sum(m(fb.ones((1, 2)))))(model))
    return model, opt


def plain(state: Any) -> Any:
    """A state with arrays for its tensors, as a checkpoint gives it back."""
    if isinstance(state, dict):
        return {k: plain(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(plain(v) for v in state)
    return np.array(state) if isinstance(state, fb.Tensor) else state


def refused(opt: Any, change: Callable[[dict[str, Any]], Any], match: str) -> None:
    state = plain(opt.state_dict())
    changed = deepcopy(state)
    change(changed)
    with pytest.raises(nn.StateError, match=match):
        opt.load_state_dict(changed)
    assert repr(plain(opt.state_dict())) == repr(state)
    opt.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda s: s["moments"]["first"].pop("layers.0.bias"), r"first of layers\.0\.bias: not there"),
        (lambda s: s["moments"].update(second={}), r"second of layers\.0\.bias: not there"),
        (lambda s: s.update(moments={}), "not there"),
        (lambda s: s.update(moments=5), "moments are tensors"),
        (lambda s: s["moments"].update(third=s["moments"]["first"]), "third of layers.0.bias: there is no such moment"),
        (lambda s: s["moments"]["first"].update({"layers.0.bias": np.zeros(3)}), "float64 for float32"),
        (lambda s: s["moments"]["first"].update({"layers.0.bias": 0.5}), "layers.0.bias"),
        (lambda s: s["groups"][0]["settings"].update(betas="x"), "betas are two numbers"),
        (lambda s: s["groups"][0]["settings"].update(betas=-1), "betas are two numbers"),
        (lambda s: s["groups"][0]["settings"].update(betas=(0.9, "x")), r"betas\[1\]"),
        (lambda s: s["groups"][0]["settings"].update(amsgrad=float("nan")), "amsgrad is True or False"),
        (lambda s: s["groups"][0]["settings"].update(amsgrad=True), "largest of .*: not there"),
        (lambda s: s["groups"][0]["settings"].update(weight_decay="x"), "weight_decay"),
        (lambda s: s["groups"][0]["settings"].update(weight_decay=float("nan")), "weight_decay"),
        (lambda s: s["groups"][0]["settings"].update(eps=None), "eps"),
        (lambda s: s["groups"][0].update(lr_scale=-1.0), "lr_scale"),
        (lambda s: s["groups"][0].update(lr_scale="2"), "lr_scale"),
        (lambda s: s["groups"][0].pop("settings"), "KeyError"),
        (lambda s: s.update(groups=5), "groups of a state"),
        (lambda s: s.update(schedule=5), "learning rate"),
        (lambda s: s.update(step=-1), "number of updates"),
        (lambda s: s.update(step=0.5), "number of updates"),
        (lambda s: s.update(missed={"layers.0.bias": 2}), "missed at most the 1 updates"),
        (lambda s: s.update(missed={"other": 1}), "missed at most"),
        (lambda s: s.update(missed=[1]), "missed"),
    ],
)
def test_a_changed_state_is_refused_by_name_and_changes_nothing(change: Callable[[dict[str, Any]], Any], match: str) -> None:
    refused(trained()[1], change, match)


@pytest.mark.parametrize("name", ["Adadelta", "Adagrad", "Adamax", "LAMB", "Lion", "Muon", "NAdam", "RAdam", "RMSprop", "SGD"])
def test_a_moment_left_out_is_refused_by_each_optimizer(name: str) -> None:
    _, opt = trained(getattr(optim, name), **({"momentum": 0.9} if name == "SGD" else {}))
    moment, held = next((m, held) for m, held in opt.state_dict()["moments"].items() if held)
    refused(opt, lambda s: s["moments"][moment].pop(next(iter(held))), f"{moment} of .*: not there")


def test_a_parameter_that_was_never_updated_needs_no_moments() -> None:
    model, _ = trained()
    model.layers[0].freeze()
    opt = optim.Adam(model, lr=0.1)
    opt.update(model, fb.grad(lambda m: fb.sum(m(fb.ones((1, 2)))))(model))
    state = plain(opt.state_dict())
    again = optim.Adam(model, lr=0.1)
    again.load_state_dict(state)
    assert repr(plain(again.state_dict())) == repr(state)
    refused(opt, lambda s: s["missed"].clear(), r"layers\.0\.bias: not there")


def test_a_flag_among_the_settings_is_a_bool() -> None:
    with pytest.raises(fb.ConfigError, match="amsgrad is True or False"):
        optim.Adam(nn.Linear(1, 1), amsgrad="no")
    with pytest.raises(fb.ConfigError, match="nesterov is True or False"):
        optim.SGD(nn.Linear(1, 1), 0.1, 0.9, groups=[{"params": "bias", "nesterov": "no"}])
