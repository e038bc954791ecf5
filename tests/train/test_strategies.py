"""What users do around several devices: the result of one device, or an error before the first step."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from threading import Event
from typing import Any

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick.core.constants import constant
from firebrick.core.errors import ConfigError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.functions.parts import part_of_batch
from firebrick.train import DataParallel, Distributed, Learner, SingleDevice, Strategy, TrainingError, together
from firebrick.train.parallel.replicas import follow

Act = Callable[[Learner], Any]
TWO = ["cpu:0", "cpu:1"]


def data(rows: int = 46, batch: int = 12) -> DataLoader:
    x = np.random.default_rng(3).normal(size=(rows, 6))
    return DataLoader(ArrayDataset(x, x[:, :3].argmax(1)), batch, shuffle=True, dtype="float64")


class Net(fb.nn.Module):
    """Two dense layers with a function and dropout between them, and settings that its parts read."""

    def __init__(self) -> None:
        fb.random.seed(5)
        self.first = fb.nn.Linear(6, 16, dtype="float64")
        self.bend: fb.nn.Module = fb.nn.Tanh()
        self.drop = fb.nn.Dropout(0.2)
        self.last = fb.nn.Linear(16, 3, dtype="float64")
        self.factors = [1.0, 1.0]

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(self.bend(self.first(x)))) * self.factors[0]


def epochs(count: int) -> Act:
    return lambda learner: learner.fit(data(), epochs=count)


def trained(strategy: Strategy, *, model: Any = None, act: Act | None = None, loss: Any = None, **options: Any) -> Learner:
    net = Net() if model is None else model()
    optimizer = fb.optim.SGD(net, lr=0.1, momentum=0.9)
    learner = Learner(net, optimizer, loss or fb.cross_entropy, strategy=strategy, log=None, seed=1, **options)
    (act or epochs(2))(learner)
    return learner


def furthest(a: Learner, b: Learner) -> float:
    one, other = a.model.state_dict(), b.model.state_dict()
    return max(float(np.abs(one[n].numpy() - other[n].numpy()).max()) for n in one)


def alike(strategy: Strategy, **options: Any) -> bool:
    return furthest(trained(SingleDevice("cpu:0"), **options), trained(strategy, **options)) < 1e-10


# what changes between two fits


def less_dropout(net: Any) -> None:
    net.drop.p = 0.7


def another_list(net: Any) -> None:
    net.factors[0] = 0.5


def another_layer(net: Any) -> None:
    net.bend = fb.nn.ReLU()


def frozen(net: Any) -> None:
    net.first.freeze()


@pytest.mark.parametrize(("change", "jit"), turns_of([less_dropout, another_list, another_layer, frozen], [True, False]))
def test_replicas_follow_what_is_changed_between_two_fits(change: Callable[[Any], None], jit: bool) -> None:
    def act(learner: Learner) -> None:
        learner.fit(data(), epochs=1)
        change(learner.model)
        learner.fit(data(), epochs=2)

    assert alike(DataParallel(TWO, [2, 1]), act=act, jit=jit)
    assert not furthest(trained(SingleDevice("cpu:0"), act=act), trained(SingleDevice("cpu:0"))) < 1e-10  # it matters


def test_a_replica_is_given_copies_of_the_settings_that_differ_and_of_nothing_else() -> None:
    def made() -> Any:
        net = fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.Dropout(0.5))
        net.same, net.sizes, net.mark, net.kind, net.flag = [1, 2], [3], object(), "kind", 1
        net.by_name, net.parts, net.either = {"a": (1, {2})}, [object()], {1, 2}
        return net

    net, replica = made(), made()
    before = dict(vars(replica))
    follow(net, replica)
    assert all(vars(replica)[n] is v for n, v in before.items())  # equal settings stay, and so do graphs that depend on them
    net.sizes.append(4)
    net.by_name["a"] = (1, {3})
    net.flag, net.kind, net.added, net.named = True, "other", None, "named"
    net.mark = net.parts[0]
    net.layers[1].p = 0.25
    net.layers[1].eval()
    net.layers[0].freeze()
    follow(net, replica)
    assert (replica.sizes, replica.by_name, replica.kind, replica.named) == ([3, 4], {"a": (1, {3})}, "other", "named")
    assert replica.flag is True
    assert vars(replica)["added"] is None
    assert replica.sizes is not net.sizes
    assert replica.by_name["a"][1] is not net.by_name["a"][1]
    assert all(vars(replica)[n] is before[n] for n in ("same", "mark", "parts", "either"))
    assert (replica.layers[1].p, replica.layers[1].training, replica.training) == (0.25, False, True)
    assert [p.frozen for _, p in replica.named_parameters()] == [True, True]
    net.unfreeze()
    follow(net, replica)
    assert [p.frozen for _, p in replica.named_parameters()] == [False, False]


# buffers


class Counting(fb.nn.Module):
    """Counts its steps in a buffer, which scales what it gives."""

    def __init__(self) -> None:
        fb.random.seed(5)
        self.dense = fb.nn.Linear(6, 3, dtype="float64")
        self.seen = fb.nn.Buffer(constant(0.0, fb.float64, fb.device("cpu:0")))

    def forward(self, x: Any) -> Any:
        if self.training:
            with fb.no_grad():
                self.seen += 1.0
        return self.dense(x) / (1.0 + self.seen)


def test_buffers_are_those_of_a_device_that_had_rows() -> None:
    # the owner has none
    assert alike(DataParallel(["numpy:0", "cpu:1", "torch:cpu"], [0.1, 5, 5]), model=Counting)
    assert alike(DataParallel(TWO), model=Counting)


# random numbers between steps


class Drawing(fb.nn.Module):
    """Adds random numbers to its rows, in evaluation too."""

    def __init__(self) -> None:
        fb.random.seed(5)
        self.dense = fb.nn.Linear(6, 3, dtype="float64")

    def forward(self, x: Any) -> Any:
        return self.dense(x + fb.random.normal(x.shape, dtype="float64", device=x.device))


def test_numbers_that_an_evaluation_draws_do_not_part_the_replicas() -> None:
    assert alike(DataParallel(TWO), model=Drawing, act=lambda learner: learner.fit(data(), data(), epochs=3))


# batches that cannot be divided


class Noisy(fb.nn.Module):
    """Multiplies its columns by random numbers that are the same for all rows, in training."""

    def __init__(self) -> None:
        fb.random.seed(5)
        self.dense = fb.nn.Linear(6, 3, dtype="float64")

    def forward(self, x: Any) -> Any:
        return self.dense(x * fb.random.uniform((6,), dtype="float64", device=x.device) if self.training else x)


def summed(output: Any, target: Any) -> Any:
    return fb.cross_entropy(output, target, reduction="sum")


def ignoring(output: Any, target: Any) -> Any:
    return fb.cross_entropy(output, target, ignore_index=0)


def weighted(output: Any, target: Any) -> Any:
    return fb.cross_entropy(output, target, fb.asarray([1.0, 5.0, 0.2], dtype="float64", device=output.device))


def log_likelihood(output: Any, target: Any) -> Any:
    return fb.nll_loss(fb.log_softmax(output, axis=1), target, ignore_index=0)


def contrasting(output: Any, target: Any) -> Any:
    return fb.cross_entropy(output @ fb.permute_dims(output, (1, 0)), fb.arange(output.shape[0], device=output.device))


@pytest.mark.parametrize("loss", [summed, contrasting])
def test_a_loss_that_is_no_mean_over_rows_is_refused_before_the_first_step(loss: Any) -> None:
    for strategy, accumulate in ((DataParallel(TWO), 1), (SingleDevice("cpu:0"), 2)):
        net = Net()
        learner = Learner(net, fb.optim.SGD(net, lr=0.1), loss, strategy=strategy, log=None, accumulate=accumulate)
        with pytest.raises(TrainingError, match=r"the mean of the losses of its rows[\s\S]*in two parts"):
            learner.fit(data(), epochs=1)
        assert learner.step == 0
        assert net.training
    trained(SingleDevice("cpu:0"), loss=loss)  # which takes any loss


LABELS = [1, 2] * 6 + [0] * 12  # the first batch holds no label 0


@pytest.mark.parametrize("place", ["numpy:0", "cpu:0", "torch:cpu"])
@pytest.mark.parametrize("loss", [ignoring, weighted, fb.nn.CrossEntropyLoss(ignore_index=0), log_likelihood])
def test_a_mean_over_the_labels_that_count_is_refused_whatever_labels_the_first_batch_holds(loss: Any, place: str) -> None:
    x = np.random.default_rng(3).normal(size=(24, 6))
    for strategy, accumulate in (
        (DataParallel([place, place[:-1] + "1"] if ":0" in place else TWO), 1),
        (SingleDevice(place), 2),
    ):
        for jit in (False, True):
            net = Net()
            learner = Learner(
                net, fb.optim.SGD(net, lr=0.1), loss, strategy=strategy, log=None, accumulate=accumulate, jit=jit
            )  # fmt: skip
            with pytest.raises(TrainingError, match=r"the mean of the losses of its rows[\s\S]*ignore_index=0|class weights"):
                learner.fit(DataLoader(ArrayDataset(x, LABELS), 12, dtype="float64"), epochs=1)
            assert learner.step == 0


def own_mask(output: Any, target: Any) -> Any:
    kept = fb.astype(target != 0, output.dtype)
    return fb.sum(fb.cross_entropy(output, target, reduction="none") * kept) / fb.sum(kept)


def own_weights(output: Any, target: Any) -> Any:
    weights = fb.take(fb.asarray([5.0, 1.0, 1.0], dtype="float64", device=output.device), target, axis=0)
    return fb.sum(fb.cross_entropy(output, target, reduction="none") * weights) / fb.sum(weights)


def own_padding(output: Any, target: Any) -> Any:
    kept = target != -100
    losses = fb.cross_entropy(output, fb.where(kept, target, 0), reduction="none") * fb.astype(kept, output.dtype)
    return fb.sum(losses) / fb.sum(fb.astype(kept, output.dtype))


@pytest.mark.parametrize("place", ["numpy:0", "cpu:0", "torch:cpu"])
@pytest.mark.parametrize("loss", [own_mask, own_weights, own_padding])
@pytest.mark.parametrize("start", [None, 0.0])  # zeros: all rows have the same loss
def test_a_function_that_divides_by_the_labels_that_count_is_refused_whatever_the_first_batch_holds(
    loss: Any, start: float | None, place: str
) -> None:
    net = Net()
    if start is not None:
        net.last.load_state_dict({n: t * start for n, t in net.last.state_dict().items()})
    x = np.random.default_rng(3).normal(size=(24, 6))
    optimizer = fb.optim.SGD(net, lr=0.1)
    learner = Learner(net, optimizer, loss, strategy=SingleDevice(place), log=None, accumulate=2)
    with pytest.raises(TrainingError, match=r"the mean of the losses of its rows[\s\S]*with other labels"):
        learner.fit(DataLoader(ArrayDataset(x, LABELS), 12, dtype="float64"), epochs=1)
    assert learner.step == 0


@pytest.mark.parametrize("mark", [-100, -1, 255])
def test_a_function_that_ignores_a_customary_label_is_refused_though_no_batch_holds_it(mark: int) -> None:
    def loss(output: Any, target: Any) -> Any:
        kept = target != mark
        losses = fb.cross_entropy(output, fb.where(kept, target, 0), reduction="none") * fb.astype(kept, output.dtype)
        return fb.sum(losses) / fb.sum(fb.astype(kept, output.dtype))

    net = Net()
    learner = Learner(net, fb.optim.SGD(net, lr=0.1), loss, strategy=SingleDevice("numpy:0"), log=None, accumulate=2)
    with pytest.raises(TrainingError, match="with other labels"):
        learner.fit(data(), epochs=1)


def test_a_loop_of_ones_own_is_refused_a_mean_over_the_labels_that_count() -> None:
    x, y = fb.asarray(np.ones((4, 6))), fb.asarray([1, 2, 1, 2])
    for strategy, parts in ((DataParallel(TWO), 1), (SingleDevice("cpu:0"), 2)):
        net = Net()
        loader = strategy.place(
            net, fb.optim.SGD(net, lr=0.1), DataLoader(ArrayDataset(x.numpy(), y.numpy()), 4, dtype="float64")
        )
        with pytest.raises(ConfigError, match="ignore_index=0"):
            strategy.grads(lambda net, x, y: (ignoring(net(x), y), None), net, next(iter(loader)), parts)
    strategy.grads(lambda net, x, y: (ignoring(net(x), y), None), net, (x, y))  # whole


@pytest.mark.parametrize("loss", [fb.cross_entropy, fb.nll_loss])
def test_within_a_part_of_a_batch_a_mean_by_other_numbers_than_rows_is_refused_with_its_own_name(loss: Any) -> None:
    scores, labels, weight = fb.zeros((2, 3)), fb.asarray([0, 1]), fb.ones(3)
    with part_of_batch():
        for options, text in (
            ({"weight": weight}, "class weights, which divides by the sum of the weights"),
            ({"ignore_index": 0}, "ignore_index=0, which divides by the number of labels that count"),
        ):
            with pytest.raises(ConfigError, match=rf"{loss.__name__}: where a batch is divided(.|\n)*{text}"):
                loss(scores, labels, **options)
            loss(scores, labels, reduction="sum", **options)
        loss(scores, labels)


def test_ignored_labels_are_trained_with_by_a_mean_over_all_rows() -> None:
    def loss(output: Any, target: Any) -> Any:
        return fb.mean(fb.cross_entropy(output, target, ignore_index=0, reduction="none"))

    assert alike(DataParallel(TWO, [2, 1]), loss=loss)


def test_random_numbers_that_are_no_rows_are_refused_before_the_first_step() -> None:
    with pytest.raises(TrainingError, match="tensors whose first axis is the batch"):
        trained(DataParallel(TWO), model=Noisy)


def test_trial_passes_draw_nothing_and_count_nothing() -> None:
    def state(strategy: Strategy) -> tuple[str, float]:
        net = Counting()
        learner = Learner(net, fb.optim.SGD(net, lr=0.1), strategy=strategy, log=None, accumulate=2)
        learner.fit(data(rows=12), epochs=1)
        return str(fb.random.state()), net.seen.item()

    assert state(SingleDevice("cpu:0"))[1] == 2.0  # the parts of the one step
    assert state(DataParallel(TWO))[1] == 2.0


# a strategy and its models


def test_a_strategy_refuses_a_model_that_it_did_not_place_last() -> None:
    def fn(m: Any, x: Any, y: Any) -> Any:
        return fb.cross_entropy(m(x), y), None

    strategy, one, other = DataParallel(TWO), Net(), Net()
    batch = data().sharded([*strategy.devices], strategy.divide).first()
    with pytest.raises(TrainingError, match=r"call strategy\.place"):
        strategy.grads(fn, one, batch)
    strategy.place(one, fb.optim.SGD(one, lr=0.1), data())
    strategy.place(other, fb.optim.SGD(other, lr=0.1), data())
    with pytest.raises(TrainingError, match="another Net was placed"):
        strategy.grads(fn, one, batch)
    with pytest.raises(TrainingError, match="a batch is a list with the rows of each of the 2 devices"):
        strategy.grads(fn, other, data().first())
    assert len(strategy.grads(fn, other, batch)) == 2


THING = object()


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "strategy", [SingleDevice, lambda: DataParallel(TWO), Distributed], ids=["single", "parallel", "ranks"]
)
@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        2.5,
        True,
        "text",
        THING,
        [],
        (),
        {"a": (None, 1), "b": [THING]},
        {"loss": None},
        np.float32(2.0),
        {1: 2, "x": 3},
    ],
    ids=lambda value: repr(value).replace(repr(THING), "THING"),
)
def test_whatever_a_function_returns_with_its_loss_comes_back_once_for_each_part(value, strategy, parts) -> None:
    """In parts, and with two ranks or more, None and most others crashed."""
    made, net = strategy(), Net()
    try:
        batch = made.place(net, fb.optim.SGD(net, lr=0.1), data()).first()
        shares = made.grads(lambda m, x, y: (fb.cross_entropy(m(x), y), value), net, batch, parts)
        assert [s.extra for s in shares] == [(value,) * parts] * len(made.devices)
        assert [s.extra for s in together(shares, shares)] == [((value,) * parts,) * 2] * len(made.devices)
    finally:
        fb.distributed.shutdown()


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("strategy", [SingleDevice, lambda: DataParallel(["cpu:0", "numpy:0"])], ids=["single", "parallel"])
def test_tensors_of_any_kind_come_back_untracked_and_in_the_order_of_the_rows(strategy, parts) -> None:
    def fn(m: Any, x: Any, y: Any) -> Any:
        kinds = {d: fb.astype(x > 0, fb.dtype(d)) for d in ("bool", "int8", "bfloat16", "float32", "complex64", "float8_e5m2")}
        return fb.cross_entropy(m(x), y), {"x": x, "scores": [m(x)], "kinds": kinds, "empty": x[:0], "none": None}

    made, net = strategy(), Net()
    batch = made.place(net, fb.optim.SGD(net, lr=0.1), data()).first()
    extras = [e for s in made.grads(fn, net, batch, parts) for e in s.extra]
    assert not any(e["scores"][0].tracked for e in extras)
    pieces = batch if isinstance(batch, list) else [batch]
    for name in ("x", *extras[0]["kinds"]):
        joined = np.concatenate([(e["kinds"].get(name, e["x"]) if name != "x" else e["x"]).numpy() for e in extras])
        rows = np.concatenate([p[0].numpy() for p in pieces])
        want = rows if name == "x" else (rows > 0).astype(joined.dtype)
        assert (joined == want).all()


@pytest.mark.parametrize("result", [lambda loss: loss, lambda loss: (loss,), lambda loss: (loss, 1, 2)])
def test_a_function_that_returns_no_pair_is_refused_with_the_remedy(result) -> None:
    made, net = SingleDevice(), Net()
    batch = made.place(net, fb.optim.SGD(net, lr=0.1), data()).first()
    with pytest.raises(fb.GradientError, match=r"(?s)returns a pair.*return \(loss, None\)"):
        made.grads(lambda m, x, y: result(fb.cross_entropy(m(x), y)), net, batch)


def test_an_interrupt_leaves_no_device_at_work() -> None:
    strategy, net, done = DataParallel(TWO), Net(), Event()
    batch = strategy.place(net, fb.optim.SGD(net, lr=0.1), data()).first()

    def fn(m: Any, x: Any, y: Any) -> Any:
        if x.device.index == 1:
            time.sleep(0.3)  # the first device is ready, and waits for this one
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)  # what would be left at work
            done.set()
        return fb.cross_entropy(m(x), y), None

    with pytest.raises(KeyboardInterrupt):
        strategy.grads(fn, net, batch)
    assert done.is_set()
