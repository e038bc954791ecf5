"""Every model of ``models`` trains alike with and without ``jit``: one trace, and the same state after four steps."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from combinations import turns_of
from rounding import Exact, exact

import firebrick as fb
from firebrick.testing import assert_max_traces

STEPS = 4
IMAGES: dict[str, Any] = {"image_size": 8}
SERIES: dict[str, Any] = {"series": 2, "window": 12, "horizon": 3}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {**IMAGES, "hidden": (16, 8)},
    "cnn": {**IMAGES, "width": 2, "features": 8, "dropout": 0.2},
    "lenet": {"image_size": 12},
    "resnet18": {**IMAGES, "width": 2},
    "transformer-classifier": {**IMAGES, "dim": 8, "heads": 2, "layers": 2, "dropout": 0.1},
    "lstm-forecaster": {**SERIES, "hidden": 5, "layers": 2, "dropout": 0.2},
    "patchtst": {**SERIES, "patch": 4, "stride": 2, "dim": 8, "heads": 2, "hidden": 8, "layers": 2, "dropout": 0.1},
}
ENGINES = ["numpy", "cpu", "torch:cpu"]


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


def made(name: str, device: str, dtype: str, wide: bool = False) -> Run:
    """A training run of a model; ``wide`` makes it of float64 with the values that it has in ``dtype``."""
    fb.random.seed(0)
    model = fb.models.build(name, dtype=dtype, device=device, **MODELS[name])
    model = model.astype(fb.float64) if wide else model
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
    if wide:
        data = [tuple(fb.astype(t, fb.float64) if t.dtype.is_inexact else t for t in pair) for pair in data]
    error = fb.mse_loss if series else fb.cross_entropy
    return Run(model, optimizer, fb.optim.EMA(model, 0.9, warmup=True), data, lambda m, x, y: error(m(x), y))


def step_of(run: Run) -> Callable[[fb.Tensor, fb.Tensor], tuple[fb.Tensor, fb.Tensor]]:
    model, optimizer, ema, gradient = run.model, run.optimizer, run.ema, fb.value_and_grad(run.loss)

    def step(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        loss, grads = gradient(model, x, y)
        norm = fb.optim.clip_norm(grads, 1.0)
        optimizer.update(model, grads)
        ema.update()
        return loss, norm

    return step


def trained(run: Run, step: Callable[..., Any], steps: int = STEPS) -> list[np.ndarray]:
    return [np.asarray([t.item() for t in step(*run.data[k % len(run.data)])]) for k in range(steps)]


@cache
def eager(name: str, device: str, dtype: str) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    run = made(name, device, dtype)
    return trained(run, step_of(run)), run.state()


@cache
def exactly(name: str) -> Exact:
    """Losses, norms and the state after training in float64, with what rounding of float32 may change."""

    def run() -> tuple[np.ndarray, dict[str, np.ndarray]]:
        run = made(name, "numpy", "float32", wide=True)
        return np.asarray(trained(run, step_of(run))), determined(run.state())

    return exact(run, "float32", trials=3)


@cache
def exactly_once(name: str) -> Exact:
    """Two forward passes, losses, gradients and states in float64, with what rounding of float32 may change."""
    return exact(lambda: passes(made(name, "numpy", "float32", wide=True), lambda f: f), "float32", trials=3)


def passes(run: Run, compiled: Callable[..., Any]) -> list[Any]:
    """What two passes and one of evaluation give: dropout draws anew, running statistics move on."""
    x, y = run.data[0]
    forward, gradient = compiled(run.model), compiled(fb.value_and_grad(run.loss))
    found: list[Any] = []
    for _ in range(2):
        found.append(forward(x).numpy())
        loss, grads = gradient(run.model, x, y)
        found += [loss.numpy(), {n: grads[p].numpy() for n, p in run.model.named_parameters()}, run.state()]
    run.model.eval()
    return [*found, forward(x).numpy()]


def same(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    """Assert that arrays have the same names and dtypes, and are equal; floats within a tolerance."""
    assert got.keys() == want.keys()
    for name, value in got.items():
        expected = want[name]
        assert value.dtype == expected.dtype, name
        if tolerance and value.dtype.kind == "f":
            worst = np.abs(value - expected).max(initial=0.0)
            assert worst <= tolerance * np.abs(expected).max(initial=1e-6), name
        else:
            np.testing.assert_array_equal(value, expected, err_msg=name)


def determined(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state without the biases of attention's keys.

    What is added to all scores of a query changes no softmax, so their gradient is 0 but for rounding, and Adam divides it by
    its own size; the moments tell that it is.
    """
    return {n: _without_keys(v) if n.endswith("qkv.bias") and "moments" not in n else v for n, v in state.items()}


def _without_keys(bias: np.ndarray) -> np.ndarray:
    queries, _, values = np.split(bias, 3)
    return np.concatenate([queries, values])


def rounded(name: str, device: str, dtype: str) -> float:
    """How far eager and jit may differ, in terms of the largest magnitude in an array."""
    if device == "cpu":
        # compiled kernels round exp, tanh and long sums as NumPy's do not; batch normalisation of four images multiplies what
        # is rounded
        return 2e-11 if name == "resnet18" else 1e-12
    # the gradient of a scan's weights is one product of all its steps, which adds in another order than the steps do
    return 1e-12 if name == "lstm-forecaster" else 0.0


def check_training(name: str, device: str, dtype: str, tolerance: float) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    curve, state = eager(name, device, dtype)
    assert not np.array_equal(curve[0], curve[-1])
    run = made(name, device, dtype)
    step = fb.jit(step_of(run))
    with assert_max_traces(1, step):
        shown = trained(run, step)
    assert step.traces == 1
    found = run.state()
    if tolerance and dtype == "float32":
        exactly(name).check((np.asarray(shown), determined(found)), f"training {name}")
    else:
        same({"losses and norms": np.asarray(shown)}, {"losses and norms": np.asarray(curve)}, tolerance)
        same(*((determined(found), determined(state)) if device == "cpu" else (found, state)), tolerance)
    assert run.optimizer.step == run.ema.step == STEPS
    assert run.optimizer.learning_rate == pytest.approx(0.0, abs=1e-9)  # the schedule's end


@pytest.mark.parametrize(("name", "device", "dtype"), turns_of(MODELS, ENGINES, ["float32", "float64"]))
def test_four_steps_of_training_give_the_same_state_and_one_trace(name: str, device: str, dtype: str) -> None:
    check_training(name, device, dtype, rounded(name, device, dtype))


@pytest.mark.parametrize(("name", "device"), turns_of(MODELS, ENGINES))
def test_a_forward_pass_and_gradients_are_the_same(name: str, device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    compiled = []

    def jit(function: Callable[..., Any]) -> Any:
        compiled.append(fb.jit(function))
        return compiled[-1]

    found = passes(made(name, device, "float32"), jit)
    if rounded(name, device, "float32"):
        exactly_once(name).check(found, name)
    else:
        for got, want in zip(found, passes(made(name, device, "float32"), lambda f: f), strict=True):
            same(*({"": x} if isinstance(x, np.ndarray) else x for x in (got, want)))
    assert [f.traces for f in compiled] == [2, 1]


@pytest.mark.parametrize("name", ["transformer-classifier", "patchtst"])
def test_training_does_not_determine_the_biases_of_keys(name: str) -> None:
    _, state = eager(name, "numpy", "float64")
    moments = [v for n, v in state.items() if n.endswith("qkv.bias") and "moments.first" in n]
    assert moments
    for m in moments:
        queries, keys, values = np.split(m, 3)
        assert np.abs(keys).max() <= 1e-12 * np.abs(values).max()
        assert np.abs(queries).max() >= 1e-6 * np.abs(values).max()


def test_one_bit_of_one_parameter_changes_batch_normalisation_of_few_images_as_much_as_rounding() -> None:
    _, state = eager("resnet18", "cpu", "float64")
    run = made("resnet18", "cpu", "float64")
    name, weight = next(iter(run.model.named_parameters()))
    changed = weight.numpy().copy()
    changed.flat[0] = np.nextafter(changed.flat[0], np.inf)
    run.model.load_state_dict({name: fb.asarray(changed, device="cpu")}, strict=False)
    trained(run, step_of(run))
    with pytest.raises(AssertionError):
        same(run.state(), state, 1e-13)
    same(run.state(), state, 1e-9)


def test_the_comparison_sees_one_step_more_and_one_draw_more() -> None:
    _, state = eager("cnn", "cpu", "float32")
    run = made("cnn", "cpu", "float32")
    trained(run, step_of(run), STEPS - 1)
    with pytest.raises(AssertionError):
        same(run.state(), state)
    trained(run, lambda x, y: run.model(x)[0, :2], 1)
    before = run.state()
    run.model(run.data[0][0])
    changed = [n for n, v in run.state().items() if not np.array_equal(v, before[n])]
    assert changed
    assert all("generator" in n for n in changed)


@pytest.mark.turns
@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize(
    ("name", "choices"), [("resnet18", {"width": 4}), ("transformer-classifier", {"dim": 16, "heads": 2, "layers": 3})]
)
def test_a_compiled_step_takes_no_more_memory_than_an_eager_one(name: str, choices: dict[str, Any], device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")

    def peak(jit: bool) -> int:
        fb.random.seed(0)
        model = fb.models.build(name, 16, device=device, **choices)
        run = Run(model, fb.optim.Adam(model), fb.optim.EMA(model), [], lambda m, x, y: fb.cross_entropy(m(x), y))
        x, y = fb.zeros((8, 1, 16, 16), device=device), fb.zeros(8, dtype=fb.int64, device=device)
        step = fb.jit(step_of(run)) if jit else step_of(run)
        step(x, y)
        gc.collect()
        fb.memory_cleanup(fb.device(device))
        before = fb.memory_stats(fb.device(device))["live"]
        step(x, y)
        return fb.memory_stats(fb.device(device))["peak"] - before

    assert 0 < peak(True) <= peak(False)
