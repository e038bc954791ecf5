"""Every model of ``models`` trains alike with and without ``jit``: one trace, and the same state after twenty steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.testing import assert_max_traces

STEPS = 20
IMAGES: dict[str, Any] = {"image_size": 8}
SERIES: dict[str, Any] = {"series": 2, "window": 12, "horizon": 3}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {**IMAGES, "hidden": (16, 8), "dropout": 0.2},
    "cnn": {**IMAGES, "width": 2, "features": 8, "dropout": 0.2},
    "lenet": {"image_size": 12},
    "resnet18": {**IMAGES, "width": 2},
    "transformer-classifier": {**IMAGES, "dim": 8, "heads": 2, "layers": 2, "dropout": 0.1},
    "lstm-forecaster": {**SERIES, "hidden": 5, "layers": 2, "dropout": 0.2},
    "patchtst": {**SERIES, "patch": 4, "stride": 2, "dim": 8, "heads": 2, "hidden": 8, "layers": 2, "dropout": 0.1},
}
ENGINES = ["numpy", "cpu", "torch:cpu"]
# float32 rounds differently where a pass or a kernel changes the order of additions; twenty steps let the difference grow
TOLERANCE = {"float64": 1e-12, "float32": 2e-4}
"""Of the largest magnitude in the tensor."""


@dataclass
class Run:
    """A model with all that training changes."""

    model: fb.nn.Module
    optimizer: fb.optim.Optimizer
    ema: fb.optim.EMA
    data: list[tuple[fb.Tensor, fb.Tensor]]
    loss: Callable[[fb.nn.Module, fb.Tensor, fb.Tensor], fb.Tensor]

    def state(self) -> dict[str, np.ndarray]:
        """Parameters, buffers, generators, moments, counters and averages as arrays, by name."""
        found = {f"model.{n}": t for n, t in self.model.state_dict().items()}
        found |= {f"optimizer.{n}": t for n, t in self.optimizer.state_dict().items()}
        found |= {f"ema.{n}": t for n, t in self.ema.state_dict().items()}
        for name, generator in self.model.generators().items():
            found[f"generator.{name}"] = generator.state()
        return {n: np.asarray(a) for n, t in found.items() for n, a in _arrays(n, t)}


def _arrays(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in _arrays(f"{name}.{k}", v)]
    if isinstance(value, (list, tuple)):
        return [pair for k, v in enumerate(value) for pair in _arrays(f"{name}.{k}", v)]
    return [(name, value.numpy() if isinstance(value, fb.Tensor) else value)]


def made(name: str, device: str, dtype: str) -> Run:
    fb.random.seed(0)
    model = fb.models.build(name, dtype=dtype, device=device, **MODELS[name])
    rate = fb.optim.cosine(5e-3, STEPS)
    optimizer: fb.optim.Optimizer = (
        fb.optim.SGD(model, lr=rate, momentum=0.9) if name in ("resnet18", "mlp") else fb.optim.Adam(model, lr=rate)
    )
    rng = np.random.default_rng(0)
    series = name in fb.models.names("forecasting")
    side = MODELS[name].get("image_size")
    data = []
    for _ in range(3):
        if series:
            x, y = rng.normal(size=(4, 12, 2)), rng.normal(size=(4, 3, 2))
            data.append((fb.asarray(x, dtype=dtype, device=device), fb.asarray(y, dtype=dtype, device=device)))
        else:
            images = fb.asarray(rng.normal(size=(4, 1, side, side)), dtype=dtype, device=device)
            data.append((images, fb.asarray(rng.integers(0, 10, 4), device=device)))
    error = fb.mse_loss if series else fb.cross_entropy
    return Run(model, optimizer, fb.optim.EMA(model, 0.9, warmup=True), data, lambda m, x, y: error(m(x), y))


def step_of(run: Run) -> Callable[[fb.Tensor, fb.Tensor], tuple[fb.Tensor, fb.Tensor]]:
    gradient = fb.value_and_grad(run.loss)

    def step(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        loss, grads = gradient(run.model, x, y)
        norm = fb.optim.clip_norm(grads, 1.0)
        run.optimizer.update(run.model, grads)
        run.ema.update()
        return loss, norm

    return step


def trained(run: Run, step: Callable[..., Any], steps: int = STEPS) -> list[np.ndarray]:
    return [np.asarray([t.item() for t in step(*run.data[k % len(run.data)])]) for k in range(steps)]


@cache
def eager(name: str, device: str, dtype: str) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    run = made(name, device, dtype)
    return trained(run, step_of(run)), run.state()


def same(got: Any, want: Any, tolerance: float, what: str) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype, what
    if got.dtype.kind != "f" or not tolerance:
        np.testing.assert_array_equal(got, want, err_msg=what)
    elif got.size:
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(np.abs(want).max(), 1e-6), err_msg=what)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_twenty_steps_under_jit_are_twenty_steps(name: str, device: str, dtype: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    curve, state = eager(name, device, dtype)
    run = made(name, device, dtype)
    step = fb.jit(step_of(run))
    with assert_max_traces(1):
        found = trained(run, step)
    worst=0.
    for k,v in run.state().items():
        if v.dtype.kind=="f" and v.size: worst=max(worst, np.abs(v-state[k]).max()/max(np.abs(state[k]).max(),1e-6))
    print("WORST", name, device, dtype, worst, [max(abs(a-b)/abs(b)) for a,b in zip(found,curve)][-1])
    assert step.traces == 1
    assert state.keys() == run.state().keys()
