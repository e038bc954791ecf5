"""Data-parallel training: the result of one device, for any devices, shares, parts and models."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from combinations import pairs_of

import firebrick as fb
from firebrick.core.errors import OutOfRangeError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import DataParallel, Learner, SingleDevice, Strategy, TrainingError, parts_of, together

Array = np.ndarray[Any, Any]
TWO, THREE = ["cpu:0", "cpu:1"], ["cpu:0", "torch:cpu", "numpy:0"]


def data(rows: int = 118, dtype: str = "float64", batch: int = 12) -> DataLoader:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 6))
    return DataLoader(ArrayDataset(x, x[:, :3].argmax(1)), batch, shuffle=True, dtype=dtype)


def network(dtype: str = "float64", norm: bool = False, dropout: float = 0.2) -> Any:
    fb.random.seed(5)
    first, last = fb.nn.Linear(6, 16, dtype=dtype), fb.nn.Linear(16, 3, dtype=dtype)
    layers: list[Any] = [first, fb.nn.Tanh(), fb.nn.Dropout(dropout), last]
    if norm:
        layers.insert(1, fb.nn.BatchNorm1d(16, dtype=dtype))
    return fb.nn.Sequential(*layers)


OPTIMIZERS = {
    "sgd": lambda model: fb.optim.SGD(model, lr=0.1, momentum=0.9),
    "adamw": lambda model: fb.optim.AdamW(model, lr=0.01),
}


def trained(strategy: Strategy, optimizer: str = "sgd", *, epochs: int = 5, dtype: str = "float64", **options: Any) -> Learner:
    norm, dropout = options.pop("norm", False), options.pop("dropout", 0.2)
    model = network(dtype, norm, dropout)
    learner = Learner(model, OPTIMIZERS[optimizer](model), strategy=strategy, log=None, seed=1, **options)
    learner.fit(data(dtype=dtype), epochs=epochs)
    return learner


def values(learner: Learner) -> dict[str, Array]:
    return {n: t.numpy() for n, t in learner.model.state_dict().items()}


def furthest(a: Learner, b: Learner) -> float:
    one, other = values(a), values(b)
    return max(float(np.abs(one[n] - other[n]).max()) for n in one)


# the result of one device

SPLITS: list[tuple[list[str], Any]] = [
    (TWO, "even"),
    (THREE, [70, 20, 10]),
    (["numpy:0", "cpu:3"], [11, 1]),
    (["torch:cpu", "cpu:0", "cpu:1", "numpy:2"], [1, 1, 1, 0.1]),  # the last device has no rows in small batches
]


@cache
def on_one_device(optimizer: str) -> Learner:
    return trained(SingleDevice("cpu:0"), optimizer, clip_norm=0.3)


@pytest.mark.parametrize(
    ("split", "optimizer", "accumulate"), pairs_of(SPLITS, OPTIMIZERS, [1, 3]), ids=lambda v: str(v).replace(" ", "")
)
def test_weights_after_50_steps_are_those_of_one_device(split: Any, optimizer: str, accumulate: int) -> None:
    # with dropout, clipping and a smaller last batch
    devices, shares = split
    alone = on_one_device(optimizer)
    found = trained(DataParallel(devices, shares), optimizer, clip_norm=0.3, accumulate=accumulate)
    assert found.step == alone.step == 50
    assert furthest(alone, found) < 1e-10
    assert [r.train_loss for r in found.history] == pytest.approx([r.train_loss for r in alone.history], rel=1e-12)
    assert found.history[-1].train_accuracy == alone.history[-1].train_accuracy


def test_parts_on_one_device_give_what_the_whole_batch_gives() -> None:
    whole = trained(SingleDevice("cpu:0"), clip_norm=0.3)
    assert furthest(whole, trained(SingleDevice("cpu:0"), clip_norm=0.3, accumulate=5)) < 1e-10
    assert furthest(whole, trained(SingleDevice("cpu:0"), clip_norm=0.3, accumulate=5, jit=False)) < 1e-10


def test_dropped_elements_would_differ_without_the_rows_place_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = trained(SingleDevice("cpu:0"), epochs=1)
    from firebrick.train.parallel import passes

    monkeypatch.setattr(passes, "row_offset", lambda rows: fb.random.row_offset(0))
    assert furthest(alone, trained(DataParallel(TWO), epochs=1)) > 1e-4


def test_one_device_gives_the_bits_of_a_single_device() -> None:
    alone, split = trained(SingleDevice("cpu:0")), trained(DataParallel(["cpu:0"]))
    assert furthest(alone, split) == 0.0
    assert split.compiled["training step"].traces == alone.compiled["training step"].traces


def test_in_float32_gradients_of_a_step_agree_and_losses_follow() -> None:
    alone = trained(SingleDevice("cpu:0"), dtype="float32")
    split = trained(DataParallel(THREE, [70, 20, 10]), dtype="float32")
    assert [r.train_loss for r in split.history] == pytest.approx([r.train_loss for r in alone.history], abs=1e-3)
    model = network("float32")
    batch = next(iter(data(dtype="float32")))
    first = gradients_of(SingleDevice("cpu:0"), model.fork(), batch)
    second = gradients_of(DataParallel(THREE, [70, 20, 10]), model.fork(), batch)
    for name, g in first.items():
        assert np.abs(g - second[name]).max() <= 64 * np.finfo(np.float32).eps * np.abs(g).max(), name


def gradients_of(strategy: Any, model: Any, batch: Any) -> dict[str, Array]:
    optimizer = fb.optim.SGD(model, lr=0.1)
    loader = strategy.place(model, optimizer, data(dtype=batch[0].dtype.name))
    shares = strategy.grads(lambda m, x, y: (fb.cross_entropy(m(x), y), None), model, loader.first())
    found = strategy.reduce(model, *parts_of(shares))
    return {n: found[p].numpy() for n, p in model.named_parameters()}


# batch norm


@pytest.mark.parametrize(("devices", "shares"), SPLITS[:3], ids=lambda v: str(v).replace(" ", ""))
def test_synchronised_batch_norm_gives_the_result_of_one_device(devices: Any, shares: Any) -> None:
    alone = trained(SingleDevice("cpu:0"), norm=True)
    split = trained(DataParallel(devices, shares, batch_norm="synchronised"), norm=True)
    assert furthest(alone, split) < 1e-10  # running statistics as well


def test_local_batch_norm_gives_another_result() -> None:
    alone = trained(SingleDevice("cpu:0"), norm=True)
    assert furthest(alone, trained(DataParallel(TWO), norm=True)) > 1e-3


def test_a_device_that_fails_lets_no_other_wait_for_it_in_batch_norm() -> None:
    strategy = DataParallel(TWO, batch_norm="synchronised")
    model = network(norm=True)
    loader = strategy.place(model, fb.optim.SGD(model, lr=0.1), data())

    def failing(m: Any, x: Any, y: Any) -> Any:
        if x.device.index == 1:
            raise ArithmeticError("the second device")
        return fb.cross_entropy(m(x), y), None

    with pytest.raises(ArithmeticError, match="the second device"):
        strategy.grads(failing, model, loader.first())


def test_local_batch_norm_joins_running_statistics_by_samples() -> None:
    strategy = DataParallel(TWO, [3, 1])
    model = network(norm=True)
    twin = model.fork()
    optimizer = fb.optim.SGD(model, lr=0.0)
    batch = strategy.place(model, optimizer, data()).first()
    shares = strategy.grads(lambda m, x, y: (fb.cross_entropy(m(x), y), None), model, batch)
    strategy.update(optimizer, model, strategy.reduce(model, *parts_of(shares)))
    strategy.spread(model)
    apart = [twin.fork(), twin.fork()]
    for m, (x, _) in zip(apart, batch, strict=True):
        m(x.to("cpu:0"))
    want = [0.75 * a.numpy() + 0.25 * b.numpy() for (_, a), (_, b) in zip(*(m.named_buffers() for m in apart), strict=True)]
    for replica in strategy.replicas(model):
        for (name, b), w in zip(replica.named_buffers(), want, strict=True):
            np.testing.assert_allclose(b.numpy(), w, rtol=1e-12, err_msg=name)


ACCUMULATED: list[tuple[Strategy, int]] = [
    (SingleDevice("cpu:0"), 1),
    (SingleDevice("numpy:0"), 3),
    (SingleDevice("torch:cpu"), 5),
    (DataParallel(TWO, [2, 1]), 2),
    (DataParallel(TWO, [7, 4], batch_norm="synchronised"), 3),
    (DataParallel(THREE, batch_norm="synchronised"), 2),
]


@pytest.mark.parametrize(("compiled", "momentum"), [(True, 0.1), (False, None)])
@pytest.mark.parametrize(("strategy", "parts"), ACCUMULATED, ids=lambda v: str(v).replace(" ", "") if type(v) is int else "")
def test_running_statistics_move_once_for_a_batch_in_parts(
    strategy: Strategy, parts: int, compiled: bool, momentum: float | None
) -> None:
    rng = np.random.default_rng(4)
    x, rows = rng.normal(2.0, 3.0, (33, 6)), 11
    norm = fb.nn.BatchNorm1d(6, momentum=momentum, dtype="float64")
    model = fb.nn.Sequential(norm, fb.nn.Linear(6, 3, dtype="float64"))
    learner = Learner(
        model, fb.optim.SGD(model, lr=0.0), fb.nn.MSELoss(), strategy=strategy, accumulate=parts, jit=compiled, log=None
    )
    learner.fit(DataLoader(ArrayDataset(x, np.zeros((33, 3))), rows, dtype="float64"), epochs=1)
    mean, variance = np.zeros(6), np.ones(6)
    for step, batch in enumerate(np.split(x, 3), 1):
        found = []
        shares = [batch] if isinstance(strategy, SingleDevice) else np.split(batch, np.cumsum(strategy.divide(rows))[:-1])
        cuts = [np.split(s, [len(s) * (k + 1) // parts for k in range(parts - 1)]) for s in shares]
        if getattr(strategy, "synchronised", False):
            cuts = [[np.concatenate(same) for same in zip(*cuts, strict=True)]]
        for part in (p for c in cuts for p in c):
            found.append((len(part), part.mean(0), part.var(0, ddof=1)))
        newest = 1 / step if momentum is None else momentum
        mean = mean + newest * (sum(n * m for n, m, _ in found) / rows - mean)
        variance = variance + newest * (sum(n * v for n, _, v in found) / rows - variance)
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(norm.running_var.numpy(), variance, rtol=1e-12)
    assert norm.num_batches_tracked.item() == 3
    for replica in strategy.replicas(model) if isinstance(strategy, DataParallel) else ():
        np.testing.assert_array_equal(replica.layers[0].running_var.numpy(), norm.running_var.numpy())
        assert replica.layers[0].num_batches_tracked.item() == 3


def test_each_of_several_batches_of_a_step_moves_running_statistics() -> None:
    x = np.random.default_rng(5).normal(2.0, 3.0, (40, 6))
    found = []
    for batches, parts in ((1, 1), (2, 1), (2, 2)):
        model = fb.nn.Sequential(fb.nn.BatchNorm1d(6, dtype="float64"), fb.nn.Linear(6, 3, dtype="float64"))
        learner = Learner(
            model, fb.optim.SGD(model, lr=0.0), fb.nn.MSELoss(), batches_per_step=batches, accumulate=parts, log=None
        )
        learner.fit(DataLoader(ArrayDataset(x, np.zeros((40, 3))), 10, dtype="float64"), epochs=1)
        found.append({n: b.numpy() for n, b in model.named_buffers()})
    for name in found[0]:
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-12)
        if "var" not in name:  # a mean of means is the mean
            np.testing.assert_allclose(found[2][name], found[0][name], rtol=1e-12)


# several losses, backward passes, unused parameters


class Forked(fb.nn.Module):
    """Two heads; the second is used where there are many rows."""

    def __init__(self) -> None:
        self.first = fb.nn.Linear(6, 3, dtype="float64")
        self.second = fb.nn.Linear(6, 3, dtype="float64")
        self.never = fb.nn.Linear(6, 3, dtype="float64")

    def forward(self, x: Any) -> Any:
        return self.first(x) + self.second(x) if x.shape[0] > 4 else self.first(x)


def test_a_parameter_that_one_share_does_not_use_counts_as_zero_there() -> None:
    fb.random.seed(0)
    model = Forked()
    strategy = DataParallel(TWO, [9, 3])
    batch = strategy.place(model, fb.optim.SGD(model, lr=0.1), data()).first()
    fn = lambda m, x, y: (fb.cross_entropy(m(x), y), None)  # noqa: E731
    found = strategy.reduce(model, *parts_of(strategy.grads(fn, model, batch)))
    big = fb.value_and_grad(fn, has_aux=True)(model, *batch[0])[1]
    np.testing.assert_allclose(found[model.second.weight].numpy(), big[model.second.weight].numpy() * 0.75, rtol=1e-13)
    assert found.get(model.never.weight) is None


class OneHead(Forked):
    """The second is never used."""

    def forward(self, x: Any) -> Any:
        return self.first(x)


def test_a_learner_trains_models_with_unused_parameters() -> None:
    def run(strategy: Strategy) -> Learner:
        fb.random.seed(0)
        model = OneHead()
        learner = Learner(model, fb.optim.AdamW(model, lr=0.01), strategy=strategy, log=None)
        learner.fit(data(rows=24), epochs=3)
        return learner

    alone, split = run(SingleDevice("cpu:0")), run(DataParallel(TWO))
    assert furthest(alone, split) < 1e-10


def test_several_losses_and_backward_passes_a_step() -> None:
    def cross(m: Any, x: Any, y: Any) -> Any:
        return fb.cross_entropy(m(x), y), None

    def size(m: Any, x: Any, y: Any) -> Any:
        return fb.mean(m(x) ** 2.0), None

    def loop(strategy: Any) -> dict[str, Array]:
        model = network(dropout=0.0)
        optimizer = fb.optim.AdamW(model, lr=0.01)
        for batch in strategy.place(model, optimizer, data()):
            shares = together(strategy.grads(cross, model, batch), strategy.grads(size, model, batch))
            gradients = strategy.reduce(model, *parts_of(shares))
            fb.optim.clip_norm(gradients, 0.5)
            strategy.update(optimizer, model, gradients)
            strategy.spread(model)
        return {n: p.numpy() for n, p in model.named_parameters()}

    alone, split = loop(SingleDevice("cpu:0")), loop(DataParallel(THREE, [5, 4, 1]))
    assert max(np.abs(alone[n] - split[n]).max() for n in alone) < 1e-10


# replicas and generators


def test_replicas_are_equal_bit_for_bit_on_unlike_engines() -> None:
    strategy = DataParallel(THREE, [5, 3, 2])
    learner = trained(strategy, "adamw", dtype="float32", norm=True)
    states = [{n: t.numpy().tobytes() for n, t in m.state_dict().items()} for m in strategy.replicas(learner.model)]
    assert states[0] == states[1] == states[2]
    places = [m.named_parameters()[0][1].device.name for m in strategy.replicas(learner.model)]
    assert places == ["cpu:0", "torch:cpu:0", "numpy:0"]
    drawn = [{n: str(g.state()) for n, g in m.generators().items()} for m in strategy.replicas(learner.model)]
    assert drawn[0] == drawn[1] == drawn[2]


def test_a_replica_that_loses_what_is_written_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: DataParallel, model: Any) -> None:
        spread(self, model)
        weight = self.replicas(model)[1].named_parameters()[0][1]
        weight._rebind(fb.zeros(weight.shape, dtype=weight.dtype, device=weight.device))
        self.check_replicas()

    spread = DataParallel.spread
    monkeypatch.setattr(DataParallel, "spread", forgetful)
    with pytest.raises(TrainingError, match=r"0\.weight.*cpu:1.*differs from the one on cpu:0"):
        trained(DataParallel(TWO))


def test_a_step_is_traced_once_for_each_size_of_batch() -> None:
    learner = trained(DataParallel(TWO), epochs=6)
    assert learner.compiled["training step"].reason is None
    assert learner.compiled["training step"].traces == 5  # a pass on each device, again for the last batch, and the update


class Looking(fb.nn.Module):
    """A layer that looks at its values where there are few rows, which no graph can."""

    def forward(self, x: Any) -> Any:
        return x * 2.0 if x.shape[0] > 4 or float(fb.max(x)) > -99.0 else x


def test_a_step_that_one_device_cannot_trace_runs_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(jit: bool) -> Learner:
        fb.random.seed(5)
        first, last = fb.nn.Linear(6, 16, dtype="float64"), fb.nn.Linear(16, 3, dtype="float64")
        norm = fb.nn.BatchNorm1d(16, dtype="float64")
        model = fb.nn.Sequential(first, norm, fb.nn.Dropout(0.2), Looking(), last)
        strategy = DataParallel(["numpy:0", "cpu:1"], [3, 1])
        learner = Learner(model, fb.optim.SGD(model, lr=0.1), strategy=strategy, log=None, seed=1, jit=jit)
        learner.fit(data(), epochs=1)
        return learner

    written = run(jit=False)
    with pytest.warns(fb.train.EagerTrainingWarning, match="training step is not compiled"):
        assert furthest(run(jit=True), written) < 1e-12
    from firebrick.train.parallel import graphs

    monkeypatch.setattr(graphs, "put_back", lambda models: nullcontext())
    with pytest.warns(fb.train.EagerTrainingWarning):
        assert furthest(run(jit=True), written) > 1e-6  # what the first device drew for a step that was not taken


def test_an_error_on_one_device_is_the_run_s_own() -> None:
    rng = np.random.default_rng(0)
    targets = np.zeros(24, np.int64)
    targets[23] = 7  # of three classes
    loader = DataLoader(ArrayDataset(rng.normal(size=(24, 6)), targets), 12, dtype="float64")
    model = network()
    learner = Learner(model, fb.optim.SGD(model, lr=0.1), strategy=DataParallel(TWO), log=None)
    with pytest.raises(OutOfRangeError, match="cross_entropy"):
        learner.fit(loader, epochs=1)


def test_the_trial_before_a_run_leaves_the_model_in_its_mode() -> None:
    model = network(norm=True).eval()
    learner = Learner(model, fb.optim.SGD(model, lr=0.1), strategy=DataParallel(TWO), log=None)
    learner.fit(data(rows=24), epochs=1)
    assert not any(m.training for _, m in model.modules())


# what is refused


@pytest.mark.parametrize(
    ("devices", "shares", "message"),
    [
        ([], "even", "at least one device"),
        (["cpu", "cpu:0"], "even", "distinct devices"),
        ("cpu:0", "even", "list of devices"),
        (TWO, "fast", "shares are"),
        (TWO, [1.0], "one number > 0 for each of the 2 devices"),
        (TWO, [1.0, 0.0], "one number > 0"),
        (TWO, [1.0, float("nan")], "one number > 0"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(devices: Any, shares: Any, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        DataParallel(devices, shares)


def test_an_unknown_device_is_refused_at_once() -> None:
    with pytest.raises(fb.DeviceError):
        DataParallel(["cpu:0", "abacus:0"])
