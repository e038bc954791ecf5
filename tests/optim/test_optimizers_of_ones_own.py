"""An optimizer written through the public methods has groups, state, schedules, half precision and graphs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Learner


@dataclass(frozen=True)
class Settings:
    momentum: float = 0.9
    weight_decay: float = 0.0


class HeavyBall(optim.Optimizer):
    """SGD with momentum, written as a user would."""

    moments = ("velocity",)

    def __init__(self, model: Any, lr: Any = 0.1, momentum: float = 0.9, weight_decay: float = 0.0, groups: Any = ()) -> None:
        super().__init__(model, lr, Settings(momentum, weight_decay), groups)

    @classmethod
    def check(cls, settings: Any) -> None:
        if not 0.0 <= settings.momentum < 1.0:
            raise fb.ConfigError("HeavyBall: momentum lies in [0, 1)", repr(settings.momentum), "pass e.g. 0.9")

    def new_values(self, p: Any, g: Any, moments: list[Any], scalars: Any, settings: Any) -> Any:
        g = g + p * settings.weight_decay
        velocity = moments[0] * settings.momentum + g
        return p - velocity * scalars[0], [velocity]


GROUPS = [{"params": "*.bias", "weight_decay": 0.0, "lr_scale": 0.5}]


def model() -> nn.Module:
    fb.random.seed(2)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def loader() -> DataLoader:
    rng = np.random.default_rng(0)
    return DataLoader(ArrayDataset(rng.normal(size=(24, 3)), rng.integers(0, 2, 24)), 8, shuffle=True, seed=1)


def trained(kind: Any, jit: bool, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    made = model()
    rule = kind(made, lr=optim.cosine(0.2, steps=12), momentum=0.8, weight_decay=0.01, groups=GROUPS)
    Learner(made, rule, log=None, jit=jit, **options).fit(loader(), epochs=3)
    return {n: t.numpy() for n, t in made.state_dict().items()}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("precision", [None, "bfloat16"])
def test_it_trains_as_the_one_that_it_equals(jit: bool, precision: str | None) -> None:
    own, sgd = (trained(kind, jit, precision=precision) for kind in (HeavyBall, optim.SGD))
    for name, value in own.items():
        np.testing.assert_allclose(value, sgd[name], rtol=2e-5, atol=1e-6, err_msg=name)


def test_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = model()
    Learner(whole, HeavyBall(whole), log=None, seed=1).fit(loader(), epochs=3)
    for epochs in (1, 3):
        part = model()
        learner = Learner(part, HeavyBall(part), log=None, seed=1, out=tmp_path / "run")
        if epochs == 3:
            learner.resume()
        learner.fit(loader(), epochs=epochs, draw=False)
    for (name, a), (_, b) in zip(whole.named_parameters(), part.named_parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes(), name


def test_its_check_is_that_of_constructor_groups_and_states() -> None:
    made = model()
    with pytest.raises(fb.ConfigError, match=r"momentum lies in \[0, 1\)"):
        HeavyBall(made, momentum=1.0)
    with pytest.raises(fb.ConfigError, match=r"momentum lies in \[0, 1\)"):
        HeavyBall(made, groups=[{"params": "*.bias", "momentum": 2.0}])
    state = HeavyBall(made).state_dict()
    state["groups"][0]["settings"]["momentum"] = 2.0
    with pytest.raises(fb.nn.StateError, match="momentum"):
        HeavyBall(made).load_state_dict(state)
    assert repr(HeavyBall(made)).startswith("HeavyBall(lr=")


def test_scalars_default_to_the_learning_rate() -> None:
    class Plain(HeavyBall):
        def new_values(self, p: Any, g: Any, moments: list[Any], scalars: Any, settings: Any) -> Any:
            (lr,) = scalars
            return p - g * lr, moments

    layer = nn.Linear(1, 1, bias=False)
    before = layer.weight.item()
    _, gradients = fb.value_and_grad(lambda m: fb.sum(m.weight * 3.0))(layer)
    Plain(layer, lr=0.25).update(layer, gradients)
    assert layer.weight.item() == pytest.approx(before - 0.75)


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (lambda p, m: p, r"float32\[1,1\]\."),
        (lambda p, m: (fb.sum(p), [m]), r"\(float32\[\], \[float32\[1,1\]\]\)"),
        (lambda p, m: (p, []), r"\(float32\[1,1\], \[\]\)"),
        (lambda p, m: (p, [fb.astype(m, fb.float64)]), r"\(float32\[1,1\], \[float64\[1,1\]\]\)"),
        (lambda p, m: None, "NoneType None"),
    ],
)
@pytest.mark.parametrize("jit", [False, True])
def test_what_is_no_new_value_of_the_parameter_and_its_moments_is_refused(returned: Any, shown: str, jit: bool) -> None:
    class Wrong(HeavyBall):
        def new_values(self, p: Any, g: Any, moments: list[Any], scalars: Any, settings: Any) -> Any:
            return returned(p, moments[0])

    layer = nn.Linear(1, 1, bias=False)
    before, wrong = layer.weight.item(), Wrong(layer)
    gradient = fb.grad(lambda m: fb.sum(m.weight))

    def update() -> None:
        wrong.update(layer, gradient(layer))

    with pytest.raises(fb.ConfigError, match=rf"Wrong\.new_values returns a pair(?s:.*){shown}"):
        (fb.jit(update) if jit else update)()
    assert (layer.weight.shape, layer.weight.item(), wrong.step) == ((1, 1), before, 0)


@pytest.mark.parametrize("wrong", [None, {"momentum": 0.9}, Settings])
def test_settings_that_are_no_dataclass_are_refused(wrong: Any) -> None:
    class Bare(HeavyBall):
        def __init__(self, model: Any) -> None:
            optim.Optimizer.__init__(self, model, 0.1, wrong, ())

    with pytest.raises(fb.ConfigError, match="Bare: the settings of an optimizer are a frozen dataclass"):
        Bare(model())
