"""Mixed precision: what is narrow and what is not, the scale of the loss, steps that are left out, and exact resume."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from after_steps import after_steps

import firebrick as fb
from firebrick import nn, optim
from firebrick.cli.classification import facts, training_loaders
from firebrick.data import DataLoader
from firebrick.train import (
    DataParallel,
    Learner,
    LossScaler,
    LossScaleWarning,
    SingleDevice,
    TrainingError,
    TrainingInterrupted,
)

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]
ENGINES = ("cpu", "torch:cpu", "numpy")


class Looking(nn.Module):
    """Says which dtypes it saw, and what its parameters are."""

    def __init__(self) -> None:
        self.dense, self.norm, self.head = nn.Linear(2, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = fb.relu(self.dense(x))
        y = self.head(self.norm(h))
        seen.append((x.dtype.name, h.dtype.name, self.norm(h).dtype.name, y.dtype.name, self.dense.weight.dtype.name))
        return y


seen: list[tuple[str, ...]] = []


def tensors(learner: Learner) -> list[bytes]:
    held = [t for _, t in learner.model.named_parameters()]
    held += [t for m in learner.optimizer.state_dict()["moments"].values() for t in m.values()]
    held += [] if learner.ema is None else list(learner.ema.averages.values())
    return [t.detach().numpy().tobytes() for t in held]


@pytest.mark.turns
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("engine", ENGINES)
def test_digits_are_learned_as_well_as_in_float32_in_one_graph(engine: str, precision: str) -> None:
    config: dict[str, Any] = {"dataset": "digits", "batch_size": 64, "seed": 0}
    config |= facts(config, None)
    training, valid = training_loaders(config, None, fb.device(engine))
    found = {}
    for name in (None, precision):
        fb.random.seed(0)
        model = fb.models.build("mlp", 8, channels=1, classes=10).to(engine)
        learner = Learner(
            model, optim.Adam(model, 3e-3), strategy=SingleDevice(engine), seed=0, precision=name, log=None, clip_norm=1.0
        )
        found[name] = learner.fit(training, valid, epochs=3)[-1]
        assert learner.compiled["training step"].reason is None
        assert learner.compiled["training step"].traces <= 2  # the last batch is smaller
        assert {p.dtype for p in model.parameters()} == {fb.float32}
    assert found[None].valid_accuracy is not None
    shown = found[None].valid_accuracy
    sigma = (shown * (1 - shown) / len(valid.dataset)) ** 0.5  # of the accuracy of one network on samples of this size
    assert abs(found[precision].valid_accuracy - shown) <= 2 * sigma
    # losses of later epochs have no bound of their own: rounding alone leads trajectories apart
    assert found[precision].train_loss != found[None].train_loss  # or nothing was narrow


def test_the_model_computes_in_the_narrow_dtype_and_parameters_norms_and_loss_do_not(make: Make, loaders: Loaders) -> None:
    losses = []

    def loss(output: Any, target: Any) -> Any:
        losses.append(output.dtype.name)
        return fb.cross_entropy(output, target)

    seen.clear()
    learner = make(model=Looking(), precision="bfloat16", loss=loss, jit=False)
    learner.fit(*loaders, epochs=1)
    assert ("float32", "bfloat16", "float32", "bfloat16", "float32") in seen
    assert set(losses) == {"float32"}
    seen.clear()
    learner.predict(fb.ones((1, 2)))
    assert {s[3] for s in seen} == {"float32"}


@pytest.mark.parametrize("engine", ["cpu", "torch:cpu"])
@pytest.mark.parametrize("jit", [True, False])
def test_a_step_whose_gradients_overflow_changes_nothing_but_the_scale(
    make: Make, loaders: Loaders, engine: str, jit: bool
) -> None:
    learner = make(precision="float16", ema=0.9, clip_norm=1.0, strategy=SingleDevice(engine), jit=jit)
    scaler = learner.precision.scaler  # type: ignore[union-attr]
    assert scaler is not None
    learner.fit(loaders[0], epochs=1)
    before, updates = tensors(learner), learner.optimizer.step
    assert updates == learner.step == 7
    scaler.load_state_dict({"scale": 2.0**60, "good": 5})
    learner.fit(loaders[0], epochs=2)
    assert tensors(learner) == before
    assert (learner.optimizer.step, learner.ema.step) == (updates, updates)  # type: ignore[union-attr]
    assert scaler.state_dict() == {"scale": 2.0**53, "good": 0}
    scaler.load_state_dict({"scale": 2.0**15, "good": 0})
    learner.fit(loaders[0], epochs=3)
    assert learner.optimizer.step == updates + 7
    assert tensors(learner) != before
    assert not jit or learner.compiled["training step"].reason is None


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"jit": False}])
def test_devices_share_one_scale_and_leave_out_the_same_steps(make: Make, loaders: Loaders, options: dict[str, Any]) -> None:
    learner = make(precision="float16", ema=0.9, strategy=DataParallel(["cpu:0", "numpy:0"]), **options)
    scaler = learner.precision.scaler  # type: ignore[union-attr]
    assert scaler is not None
    scaler.load_state_dict({"scale": 2.0**60, "good": 0})
    learner.fit(loaders[0], epochs=1)
    assert learner.optimizer.step == 0
    assert [float(scaler.at(d)) for d in learner.strategy.devices] == [2.0**53] * 2
    scaler.load_state_dict({"scale": 2.0**15, "good": 0})
    learner.fit(loaders[0], epochs=2)
    assert learner.optimizer.step == 7
    assert [float(scaler.at(d)) for d in learner.strategy.devices] == [2.0**15] * 2
    assert scaler.state_dict()["good"] == 7


def test_the_first_step_may_overflow(make: Make, loaders: Loaders) -> None:
    learner = make(precision="float16", ema=0.9)
    learner.precision.scaler.load_state_dict({"scale": 2.0**60, "good": 0})  # type: ignore[union-attr]
    before = [p.numpy().tobytes() for p in learner.model.parameters()]
    learner.fit(loaders[0], epochs=1)
    assert [p.numpy().tobytes() for p in learner.model.parameters()] == before
    assert not any(t.numpy().any() for m in learner.optimizer.state_dict()["moments"].values() for t in m.values())


def test_gradients_are_those_of_the_loss_whatever_the_scale() -> None:
    x = fb.asarray([3.0, -4.0]).require_grad()
    for scale in (1.0, 2.0**15):
        scaler = LossScaler([x.device], scale)
        grads = fb.backward(fb.sum(x * x) * scaler.at(x.device))
        scaler.unscale(grads)
        assert grads[x].tolist() == [6.0, -8.0]
        assert bool(grads.valid)


def test_the_scale_doubles_after_so_many_finite_steps_and_halves_after_one_that_is_not() -> None:
    x = fb.asarray([1.0]).require_grad()
    scaler = LossScaler([x.device], 4.0, interval=3)

    def step(factor: float) -> tuple[float, bool]:
        grads = fb.backward(fb.sum(x) * factor)
        scaler.unscale(grads)
        return scaler.scale, bool(grads.valid)

    assert [step(1.0) for _ in range(4)] == [(4.0, True), (4.0, True), (8.0, True), (8.0, True)]
    assert step(float("inf")) == (4.0, False)
    assert step(float("nan")) == (2.0, False)
    assert [step(1.0)[0] for _ in range(3)] == [2.0, 2.0, 4.0]
    scaler.load_state_dict({"scale": LossScaler.LARGEST, "good": 2})
    assert step(1.0)[0] == LossScaler.LARGEST


def test_a_scale_below_one_is_warned_of_once(make: Make, loaders: Loaders) -> None:
    learner = make(precision="float16")
    learner.precision.scaler.load_state_dict({"scale": 0.5, "good": 0})  # type: ignore[union-attr]
    with pytest.warns(LossScaleWarning, match='fell to 0.5: gradients overflow.*precision="bfloat16"') as caught:
        learner.fit(loaders[0], epochs=1)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.fit(loaders[0], epochs=2)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("at", [3, 10])
def test_a_resumed_run_has_the_bits_of_a_whole_one_and_its_scale(
    make: Make, loaders: Loaders, tmp_path: Path, precision: str, at: int
) -> None:
    def fresh(**options: Any) -> Learner:
        learner = make(precision=precision, ema=0.9, clip_norm=1.0, **options)
        if learner.precision.scaler is not None:  # type: ignore[union-attr]
            learner.precision.scaler.interval = 4  # type: ignore[union-attr]
            learner.precision.scaler.load_state_dict({"scale": 2.0**18, "good": 0})  # type: ignore[union-attr]
        return learner

    whole = fresh()
    whole.fit(*loaders, epochs=3)
    stopped = fresh(out=tmp_path / "run")
    after_steps(stopped, lambda: stopped.interrupts.stop() if stopped.step == at else None)
    with pytest.raises(TrainingInterrupted):
        stopped.fit(*loaders, epochs=3, draw=False)
    resumed = fresh(out=tmp_path / "run")
    resumed.resume()
    resumed.fit(*loaders, epochs=3, draw=False)
    assert tensors(resumed) == tensors(whole)
    assert resumed.precision.state_dict() == whole.precision.state_dict()  # type: ignore[union-attr]
    assert [r.train_loss for r in resumed.history] == [r.train_loss for r in whole.history]


def test_float32_is_the_precision_of_a_learner_without_one(make: Make) -> None:
    """The command line and the messages of a resumed run call it so."""
    for name in (None, "float32", fb.float32):
        assert make(precision=name).precision is None


def test_a_precision_that_is_none_and_narrow_parameters_are_refused(make: Make) -> None:
    with pytest.raises(TrainingError, match=r'precision is "float32", "bfloat16" or "float16".*\s.*\'float64\''):
        make(precision="float64")
    with pytest.raises(TrainingError, match=r"parameters themselves are float32\s.*dense.weight: bfloat16\[8,2\]"):
        make(model=Looking().astype(fb.bfloat16), precision="bfloat16")


def test_autocast_narrows_products_and_widens_sums_inside_graphs_too() -> None:
    x, w = fb.ones((2, 3, 8, 8)), fb.ones((4, 3, 3, 3))

    def run(x: Any, w: Any) -> tuple[Any, ...]:
        y = fb.conv2d(x, w)
        rows = fb.reshape(y, (2, -1))
        return (
            y,
            rows @ fb.matrix_transpose(rows),
            fb.einsum("ab,cb->ac", rows, rows),
            fb.softmax(rows),
            fb.mean(rows),
            fb.var(rows),
            fb.mse_loss(rows, rows),
            fb.binary_cross_entropy_with_logits(rows, fb.sigmoid(rows)),
            fb.cross_entropy(rows, fb.zeros((2,), dtype=fb.int64)),
            fb.relu(y),
            fb.scaled_dot_product_attention(rows, rows, rows),
        )

    def dtypes(fn: Any) -> list[str]:
        return [t.dtype.name for t in fn(x, w)]

    names = ["bfloat16", "bfloat16", "bfloat16", *["float32"] * 6, "bfloat16", "bfloat16"]
    for fn in (run, fb.jit(run)):  # the context is part of a graph's key
        assert dtypes(fn) == ["float32"] * len(names)
        with fb.autocast(fb.bfloat16):
            assert dtypes(fn) == names
            with fb.autocast(None):
                assert dtypes(fn) == ["float32"] * len(names)
            assert (fb.astype(rows := fb.ones((2, 2)), fb.float64) @ fb.astype(rows, fb.float64)).dtype is fb.float64
    with pytest.raises(fb.ConfigError, match="bfloat16 or float16"), fb.autocast("float32"):
        pass


def test_a_checkpointed_function_runs_again_in_the_dtype_it_ran_in() -> None:
    w = fb.asarray(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))

    def loss(w: Any, block: Any) -> Any:
        with fb.autocast("bfloat16"):
            return fb.sum(block(w))

    def block(w: Any) -> Any:
        return fb.tanh(w @ w)

    plain = fb.grad(loss)(w, block)
    assert plain.dtype is fb.float32
    assert np.array_equal(fb.grad(loss)(w, fb.checkpoint(block)).numpy(), plain.numpy())


@pytest.mark.parametrize("layer", [lambda: nn.RNN(3, 4, bias=False), lambda: nn.LSTM(3, 4), lambda: nn.GRU(3, 4, bias=False)])
@pytest.mark.parametrize("jit", [True, False])
def test_recurrent_states_stay_float32(layer: Any, jit: bool) -> None:
    made = layer()

    def run(x: Any) -> Any:
        with fb.autocast("float16"):
            return made(x)[0]

    out = (fb.jit(run) if jit else run)(fb.ones((2, 5, 3)))
    assert out.dtype is fb.float32
