"""``Distributed`` over ranks that are threads of this process, on a wire in memory: cheap enough to look at each decision."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, Queue
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.compiler.targets.llvm.target import Target
from firebrick.data import ArrayDataset, DataLoader
from firebrick.distributed import Group
from firebrick.distributed.wire import COLLECTIVE, Message, Wire, WireError
from firebrick.train import AUROC, DataParallel, Distributed, Learner, Minimizer, SingleDevice, Strategy, TrainingError
from firebrick.train.counted import Counted
from firebrick.train.measures import Measures
from firebrick.train.parallel import distributed

SECONDS = 20.0
Lines = defaultdict[tuple[int, int, int], Queue[Any]]


class InMemory(Wire):
    """Queues between the ranks of one process."""

    def __init__(self, lines: Lines, rank: int, size: int) -> None:
        self._lines, self.rank, self.size = lines, rank, size

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], deadline: float, tag: int = COLLECTIVE) -> None:
        for to, data in sends:
            self._lines[self.rank, to, tag].put(data.copy())
        for source, out in receives:
            try:
                out[:] = self._lines[source, self.rank, tag].get(timeout=SECONDS)
            except Empty:
                raise WireError("time is up", {source}) from None

    def close(self) -> None:
        """Nothing is held."""


Ranks = Callable[..., list[Distributed]]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Makes the strategies of so many ranks, each on a device of its own."""

    def made(size: int = 2, devices: Sequence[str] = (), **options: Any) -> list[Distributed]:
        lines: Lines = defaultdict(Queue)
        for rank in range(size):
            for other in range(size):
                lines[rank, other, COLLECTIVE]  # made before there are threads
        out = []
        for rank in range(size):
            group = Group(InMemory(lines, rank, size))
            monkeypatch.setattr(distributed, "_group", lambda backend, group=group: group)
            out.append(Distributed(devices[rank] if devices else f"numpy:{rank}", **options))
        return out

    return made


def together(*bodies: Callable[[], Any]) -> list[Any]:
    """What each body returns, or the TrainingError it raises; all of them at once."""

    def outcome(body: Callable[[], Any]) -> Any:
        try:
            return body()
        except TrainingError as e:
            return e

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(outcome, bodies))


def dataset(rows: int = 26) -> ArrayDataset:
    x = np.random.default_rng(3).normal(size=(rows, 4))
    return ArrayDataset(x, x[:, :3].argmax(1))


def learner(strategy: Strategy, seed: int = 5, norm: bool = False, **options: Any) -> Learner:
    fb.random.seed(seed)
    layers: list[Any] = [fb.nn.Linear(4, 6, dtype="float64"), fb.nn.Dropout(0.2), fb.nn.Linear(6, 3, dtype="float64")]
    if norm:
        layers.insert(1, fb.nn.BatchNorm1d(6, dtype="float64"))
    model = fb.nn.Sequential(*layers)
    options = {"jit": False, "seed": 1, "clip_norm": 0.3, **options}
    return Learner(model, fb.optim.SGD(model, lr=0.1, momentum=0.9), strategy=strategy, log=None, **options)


def named(x: Any, label: Any) -> dict[str, Any]:
    return {"x": x, "label": label}


def fitted(learner: Learner, batch: int = 8) -> Learner:
    given: dict[str, Any] = {"dtype": "float64", "transform": None if learner.target is None else named}
    learner.fit(DataLoader(dataset(), batch, shuffle=True, **given), DataLoader(dataset(7), 3, **given), epochs=2)
    return learner


@pytest.mark.parametrize(
    ("how", "options", "batch"),
    [
        ({}, {}, 8),
        ({}, {"jit": True}, 8),
        ({}, {"accumulate": 2, "ema": 0.9}, 8),
        ({"shares": [5.0, 1.0, 1.0]}, {}, 8),
        ({}, {}, 25),  # the last batch has one row
        ({"batch_norm": "synchronised"}, {"norm": True}, 13),
        ({"shares": [0.01, 9.0, 0.01]}, {"norm": True}, 13),
        ({"bucket_bytes": 64}, {}, 8),
        ({}, {"batches_per_step": 3}, 4),  # some ranks have no rows of the last batch
        ({}, {"batches_per_step": 2, "accumulate": 2, "jit": True}, 25),
        ({"batch_norm": "synchronised"}, {"batches_per_step": 2, "norm": True}, 13),
        ({}, {"target": "label"}, 8),
        ({}, {"target": "label", "batches_per_step": 2, "jit": True}, 25),
    ],
)
def test_three_ranks_train_as_one_device_does(ranks: Ranks, how: dict[str, Any], options: dict[str, Any], batch: int) -> None:
    strategies = ranks(3, check_every=1, **how)
    # what rank 0 draws first counts
    learners = [learner(s, seed=5 + i, **options) for i, s in enumerate(strategies)]
    found = together(*(partial(fitted, one, batch) for one in learners))
    assert found == learners
    alone = fitted(learner(SingleDevice("numpy:0"), **options), batch)
    want = {n: t.numpy() for n, t in alone.model.state_dict().items()}
    for one in learners:
        for name, t in one.model.state_dict().items():
            np.testing.assert_allclose(t.numpy(), want[name], rtol=0, atol=1e-10, err_msg=name)
        assert one.step == alone.step
        for got, expected in zip(one.history, alone.history, strict=True):
            assert (got.train_loss, got.valid_loss) == pytest.approx((expected.train_loss, expected.valid_loss), abs=1e-10)
            assert (got.train_accuracy, got.valid_accuracy) == (expected.train_accuracy, expected.valid_accuracy)


def test_one_rank_or_device_alone_synchronises_nothing(ranks: Ranks) -> None:
    alone = [*ranks(1, batch_norm="synchronised"), DataParallel(["numpy:0"], batch_norm="synchronised")]
    two = [*ranks(2, batch_norm="synchronised"), DataParallel(["numpy:0", "numpy:1"], batch_norm="synchronised")]
    assert [s.synchronised for s in [*alone, *two]] == [False, False, True, True, True]
    assert not any(s.synchronised for s in ranks(2))


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ({}, {}),
        ({}, {"accumulate": 2}),
        ({"shares": [7.0, 4.0], "batch_norm": "synchronised"}, {"accumulate": 3}),
        ({"batch_norm": "synchronised"}, {"accumulate": 2, "batches_per_step": 2}),
    ],
    ids=str,
)
def test_batch_norm_of_each_ranks_rows_is_that_of_as_many_devices(
    ranks: Ranks, how: dict[str, Any], options: dict[str, Any]
) -> None:
    learners = [learner(s, norm=True, **options) for s in ranks(2, check_every=1, **how)]
    assert together(*(partial(fitted, one, 13) for one in learners)) == learners
    devices = fitted(learner(DataParallel(["numpy:0", "numpy:1"], **how), norm=True, **options), 13)
    want = devices.model.state_dict()
    assert any(name.endswith("running_mean") for name in want)
    for one in learners:
        for name, t in one.model.state_dict().items():
            np.testing.assert_allclose(t.numpy(), want[name].numpy(), rtol=0, atol=1e-10, err_msg=name)


def two(ranks: Ranks, *models: fb.nn.Module, **options: Any) -> list[Distributed]:
    """Two ranks, each with its model and four batches of 8 rows placed."""
    strategies = ranks(2, **options)
    loaders = [DataLoader(dataset(32), 8) for _ in models]
    optimizers = [fb.optim.SGD(m, lr=0.1) for m in models]
    placed = together(*(partial(s.place, *args) for s, *args in zip(strategies, models, optimizers, loaders, strict=True)))
    assert all(isinstance(p, DataLoader) for p in placed), placed
    return strategies


def linear(bias: float = 0.0) -> fb.nn.Module:
    model = fb.nn.Sequential(fb.nn.Linear(4, 3), fb.nn.Dropout(0.5))
    model.load_state_dict({n: fb.full(t.shape, bias) for n, t in model.state_dict().items()})
    return model


def test_placed_models_have_the_values_and_generators_of_rank_0(ranks: Ranks) -> None:
    models = [linear(1.0), linear(2.0)]
    next(iter(models[0].generators().values())).uniform((2,))
    strategies = two(ranks, *models)
    assert {v for m in models for t in m.state_dict().values() for v in t.numpy().ravel()} == {1.0}
    marks = [s._marks(m) for s, m in zip(strategies, models, strict=True)]
    assert marks[0] == marks[1]
    assert [next(p for _, p in m.named_parameters()).device.name for m in models] == ["numpy:0", "numpy:1"]
    assert [(s.main, s.devices[0].name) for s in strategies] == [(True, "numpy:0"), (False, "numpy:1")]


def test_replicas_that_part_are_named_with_the_step(ranks: Ranks) -> None:
    models = [linear() for _ in range(3)]
    strategies = ranks(3, check_every=2)
    for strategy, m in zip(strategies, models, strict=True):
        m.to(strategy.device)
    spread = [partial(s.spread, m) for s, m in zip(strategies, models, strict=True)]
    assert together(*spread) == [None] * 3
    models[1].layers[0].bias = models[1].layers[0].bias + 1.0
    assert together(*spread) == [None] * 3  # every second step is compared
    for said in together(*spread):
        assert said.received == "rank 1 differs from rank 0, at step 2"
    models[0].layers[0].bias = models[1].layers[0].bias.to("numpy:0")
    for said in together(*(partial(s.check, m) for s, m in zip(strategies, models, strict=True))):
        assert said.received.startswith("rank 2 differs from rank 0")


def test_the_bits_of_optimizers_and_averages_are_compared_where_engines_are_alike(ranks: Ranks) -> None:
    models = [linear(), linear()]
    strategies = two(ranks, *models)
    optimizers = [fb.optim.SGD(m, lr=0.1, momentum=0.9) for m in models]
    averages = [fb.optim.EMA(m, 0.9) for m in models]
    for m, optimizer in zip(models, optimizers, strict=True):
        _, gradients = fb.value_and_grad(lambda m: fb.sum(m.layers[0].bias * m.layers[0].bias + m.layers[0].bias))(m)
        optimizer.update(m, gradients)
    for m in models:
        m.load_state_dict({n: fb.zeros(t.shape) for n, t in m.state_dict().items()})
    given: dict[str, Any] = {"optimizer": optimizers, "averages": averages}

    def checked(*names: str) -> list[Any]:
        parts = [{n: given[n][i] for n in names} for i in range(2)]
        return together(*(partial(s.check, m, **p) for s, m, p in zip(strategies, models, parts, strict=True)))

    assert checked() == checked("optimizer") == checked("averages") == [None, None]
    _, gradients = fb.value_and_grad(lambda m: fb.sum(m.layers[0].bias))(models[1])
    optimizers[1].update(models[1], gradients)
    averages[1].update()
    models[1].load_state_dict({n: fb.zeros(t.shape) for n, t in models[1].state_dict().items()})
    assert checked() == [None, None]
    for name in given:
        assert all(isinstance(said, TrainingError) for said in checked(name)), name
    for strategy in strategies:
        strategy._alike = False  # rounding parts optimizers then
    assert checked("optimizer", "averages") == [None, None]


@pytest.mark.parametrize(("devices", "alike"), [(["cpu:0", "cpu:1"], True), (["cpu:0", "numpy:1"], False)])
def test_where_engines_are_unlike_rank_0_sends_its_parameters_after_each_update(
    ranks: Ranks, devices: list[str], alike: bool
) -> None:
    models = [linear(), linear()]
    strategies = two(ranks, *models, devices=devices, check_every=0)
    models[1].layers[0].bias = models[1].layers[0].bias + 1.0  # as rounding would
    assert together(*(partial(s.spread, m) for s, m in zip(strategies, models, strict=True))) == [None, None]
    assert models[1].layers[0].bias.tolist() == [float(alike)] * 3
    assert models[1].layers[0].bias.device.name == devices[1]
    assert models[0].layers[0].bias.tolist() == [0.0] * 3


def test_what_decides_the_bits_of_a_computation_is_version_engine_and_processor() -> None:
    target = str(Target.host())
    processor = platform.processor() or platform.machine()
    assert distributed._machine(fb.device("cpu:1")) == f"{fb.__version__} cpu {target}"
    assert distributed._machine(fb.device("numpy:1")) == f"{fb.__version__} numpy {processor}"


def test_settings_that_differ_are_named_with_the_ranks(ranks: Ranks) -> None:
    def compared(*settings: dict[str, str]) -> list[Any]:
        return together(*(partial(s.compare, v) for s, v in zip(ranks(3), settings, strict=True)))

    same = {"learner's jit": "True", "epochs": "2"}
    assert compared(same, {"epochs": "2", "learner's jit": "True"}, same) == [None] * 3
    for said in compared(same, same, {**same, "epochs": "3", "more": "1"}):
        assert said.received == "epochs: 2 on rank 0, 3 on rank 2; more: nothing on rank 0, 1 on rank 2"
        assert "unwatched" not in said.remedy
    for part in ("model's", "loss's"):
        (said, *_) = compared({f"{part} p": "1"}, {}, {})
        assert said.received == f"{part} p: 1 on rank 0, nothing on rank 1; {part} p: 1 on rank 0, nothing on rank 2"
        assert "unwatched" in said.remedy
    many = {str(i): "1" for i in range(10)}
    assert compared(many, many, {})[0].received.endswith("7: 1 on rank 0, nothing on rank 2; and 2 more")


def wider(first: bool) -> tuple[Any, Any, Any]:
    model = fb.nn.Linear(4, 3) if first else fb.nn.Linear(4, 3).astype(fb.float64)
    return model, fb.optim.SGD(model, lr=0.1), None


def other_kind(first: bool) -> tuple[Any, Any, Any]:
    model = fb.nn.Linear(4, 3)
    return model, (fb.optim.SGD if first else fb.optim.Adagrad)(model, lr=0.1), None


def other_group(first: bool) -> tuple[Any, Any, Any]:
    model = fb.nn.Linear(4, 3)
    return model, fb.optim.SGD(model, lr=0.1, groups=[{"params": "bias" if first else "weight", "lr": 0.2}]), None


def other_averages(first: bool) -> tuple[Any, Any, Any]:
    model = fb.nn.Linear(4, 3)
    return model, fb.optim.SGD(model, lr=0.1), fb.optim.EMA(model, 0.5 if first else 0.75)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (wider, "model's weight holds: float32[3, 4] on rank 0, float64[3, 4] on rank 1"),
        (other_kind, "optimizer's class: 'SGD' on rank 0, 'Adagrad' on rank 1"),
        (other_group, "optimizer's groups[1]: ('bias') on rank 0, ('weight') on rank 1"),
        (other_averages, "optimizer's ema's decay: 0.5 on rank 0, 0.75 on rank 1"),
    ],
)
def test_what_ranks_are_to_have_replicas_of_is_compared_when_it_is_placed(
    ranks: Ranks, made: Callable[[bool], tuple[Any, Any, Any]], said: str
) -> None:
    calls = []
    for i, strategy in enumerate(ranks()):
        model, optimizer, averages = made(i == 0)
        calls.append(partial(strategy.place, model, optimizer, DataLoader(dataset(8), 8), averages))
    for error in together(*calls):
        assert isinstance(error, TrainingError), error
        assert said in error.received


@pytest.mark.parametrize("length", [0, 30, 46, 47, 48, 49, 200])
def test_notes_of_any_length_reach_all_ranks(ranks: Ranks, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(distributed, "NOTE", 64)  # 16 bytes of them for the length; JSON adds 2
    notes: list[Any] = ["x" * length, "ä"]
    got = together(*(partial(s._notes, n) for s, n in zip(ranks(), notes, strict=True)))
    assert got == [notes, notes]


def test_all_ranks_stop_and_save_after_the_step_in_which_one_was_asked_to(ranks: Ranks) -> None:
    models = [linear(), linear()]
    strategies = two(ranks, *models)

    def asked(stop: tuple[bool, bool], save: tuple[bool, bool]) -> list[tuple[bool, bool]]:
        return [(s.agree(a), s.agree_to_save(b)) for s, a, b in zip(strategies, stop, save, strict=True)]

    def step() -> None:
        batches = [DataLoader(dataset(8), 8).sharded(["numpy:0", "numpy:1"], s.divide, only=s.group.rank) for s in strategies]
        taken = together(*(partial(s.grads, mean, m, b.first()) for s, m, b in zip(strategies, models, batches, strict=True)))
        assert all(isinstance(t, list) for t in taken), taken

    def mean(model: Any, x: Any, y: Any) -> Any:
        return fb.mean(model(fb.astype(x, fb.float32))), {}

    no = (False, False)
    assert asked(no, (False, True)) == [no, no]
    step()
    assert asked(no, (False, True)) == [(False, True)] * 2
    step()
    assert asked(no, no) == [no, no]  # it was answered
    assert asked((True, False), no) == [no, no]
    step()
    assert asked(no, no) == [(True, False)] * 2
    step()
    assert asked(no, no) == [no, no]


def test_alone_a_rank_answers_itself(ranks: Ranks) -> None:
    (strategy,) = ranks(1)
    assert [strategy.agree(True), strategy.agree_to_save(True)] == [True, True]
    assert [strategy.agree(False), strategy.agree_to_save(False)] == [False, False]
    loader = DataLoader(dataset(8), 8)
    assert strategy.deal(linear(), loader) is loader
    assert strategy.begin(lambda m, *batch: (0, {}), linear(), loader) == ""
    assert strategy.arrivals is None
    assert not strategy.joins
    strategy.compare({"a": "b"})
    strategy.spread(linear())
    strategy.check(linear())


@pytest.mark.parametrize("odd", ["draws", "rows"])
def test_ranks_that_draw_or_get_other_than_their_rows_are_refused(ranks: Ranks, odd: str) -> None:
    class Mixed:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> Any:
            return np.full(5 if odd == "rows" and i >= 4 else 4, 0.5, np.float32), 0

    models = [linear(), linear()]
    strategies = two(ranks, *models)
    batches = [DataLoader(Mixed(), 8).sharded(["numpy:0", "numpy:1"], s.divide, only=s.group.rank) for s in strategies]
    if odd == "draws":
        next(iter(models[1].generators().values())).uniform((2,))

    def loss(model: Any, x: Any, y: Any) -> Any:
        return fb.mean(model(x[:, :4])), {}

    expected = {"draws": "all ranks draw the same random numbers", "rows": r"float32[4], int64[] and float32[5], int64[]"}[odd]
    for said in together(*(partial(s.grads, loss, m, b.first()) for s, m, b in zip(strategies, models, batches, strict=True))):
        assert isinstance(said, TrainingError), said
        assert expected in str(said)


def test_of_many_kinds_of_rows_two_are_shown() -> None:
    notes = [{"drawn": "a", "rows like": [("float32", [n]), ("int64", [])]} for n in (4, 5, 6)]
    with pytest.raises(TrainingError) as caught:
        distributed._check_same(notes)
    assert caught.value.received == "rows of float32[4], int64[] and float32[5], int64[]"
    distributed._check_same(notes[:1] * 3)


def test_batches_of_validation_are_dealt_in_turn_to_ranks_with_the_same_model(ranks: Ranks) -> None:
    models = [linear(1.0), linear(1.0)]
    strategies = two(ranks, *models)

    def dealt(*batch: int) -> list[Any]:
        loaders = [DataLoader(dataset(32), b) for b in batch]
        return together(*(partial(s.deal, m, x) for s, m, x in zip(strategies, models, loaders, strict=True)))

    assert [len(list(loader)) for loader in dealt(10, 10)] == [2, 2]
    for said in dealt(10, 11):
        assert "rank 0: epoch 0, position 0, batches of 10; another: epoch 0, position 0, batches of 11" in said.received
    models[1].layers[0].bias = models[1].layers[0].bias + 1.0
    for said in dealt(10, 10):
        assert "have the same bits of the model" in said.expected
    for strategy in strategies:
        strategy._alike = False  # the model was placed by these ranks: rank 0 sends its own
    assert [len(list(loader)) for loader in dealt(10, 10)] == [2, 2]
    assert models[1].layers[0].bias.tolist() == [1.0, 1.0, 1.0]


def test_what_ranks_have_counted_is_summed_also_of_one_that_had_no_batch(ranks: Ranks) -> None:
    counts = np.asarray([[1, 2], [3, 4]])
    for confusions in ((counts, None), (None, counts), (counts, counts), (None, None)):
        counted = [Counted(Measures(), 0 if c is None else 10, c) for c in confusions]
        found = together(*(partial(s.gather, c) for s, c in zip(ranks(), counted, strict=True)))
        had = sum(c is not None for c in confusions)
        assert [f.samples for f in found] == [10 * had] * 2
        for f in found:
            assert (f.confusion is None) is (had == 0)
            assert had == 0 or f.confusion.tolist() == (counts * had).tolist()


def test_what_the_ranks_say_of_themselves(ranks: Ranks) -> None:
    first, second = ranks(2)
    loader = DataLoader(dataset(32), 8)
    assert second.begin(lambda m, *batch: (0, {}), linear(), loader) == "2 ranks share each batch; this is rank 1"
    assert first.state() == {}
    assert first.arrivals is not None
    assert first.divide(5) == [3, 2]
    synchronised = ranks(2, batch_norm="synchronised")
    assert synchronised[0].arrivals is None
    with pytest.raises(TrainingError, match="1 rows for 2 ranks"):
        synchronised[0].begin(lambda m, *batch: (0, {}), linear(), DataLoader(dataset(33), 8))
    lone = DataLoader(dataset(1), 1).sharded(["numpy:0"] * 2, synchronised[0].divide, only=0)
    with pytest.raises(TrainingError, match="1 rows for 2 ranks"):
        synchronised[0].grads(lambda m, *batch: (0, {}), linear(), lone.first())
    ranks(2)[0].begin(lambda m, *batch: (0, {}), linear(), DataLoader(dataset(33), 8))
    with pytest.raises(TrainingError, match='"even" or one number a rank'):
        ranks(2, shares="measured")
    with pytest.raises(TrainingError, match="each of the 2 ranks"):
        ranks(2, shares=[1.0])


@pytest.mark.parametrize("unused", [1, 500])  # as many as no note says that travels with gradients
def test_parameters_without_gradients_on_every_rank_have_none_in_the_sum(ranks: Ranks, unused: int) -> None:
    def model() -> fb.nn.Module:
        own = fb.nn.Sequential(*(fb.nn.Linear(1, 1, bias=False) for _ in range(unused)), fb.nn.Linear(4, 3, bias=False))
        own.load_state_dict({n: fb.ones(t.shape) for n, t in own.state_dict().items()})
        return own

    models = [model(), model()]
    strategies = two(ranks, *models)
    loaders = [DataLoader(dataset(8), 8).sharded(["numpy:0", "numpy:1"], s.divide, only=s.group.rank) for s in strategies]

    def loss(model: Any, x: Any, y: Any) -> Any:
        out = fb.mean(model.layers[unused](fb.astype(x, fb.float32)))
        return (out if x.device.name == "numpy:0" else out + fb.sum(model.layers[0].weight)), {}

    for used in (loss, lambda m, x, y: (fb.mean(m.layers[unused](fb.astype(x, fb.float32))), {})):
        calls = [partial(s.grads, used, m, d.first()) for s, m, d in zip(strategies, models, loaders, strict=True)]
        (first,), (second,) = together(*calls)
        expected = {f"layers.{unused}.weight", *(["layers.0.weight"] if used is loss else [])}
        assert set(first.gradients) == set(second.gradients) == expected
        assert (first.samples, first.loss.item()) == (8, second.loss.item())
    assert first.gradients[f"layers.{unused}.weight"].shape == (3, 4)


def test_what_ranks_keep_for_further_metrics_is_counted_in_the_order_of_the_ranks(ranks: Ranks) -> None:
    counted = [Counted(Measures({"auroc": AUROC()}), 2), Counted(Measures({"auroc": AUROC()}), 2)]
    for c, scores, labels in zip(counted, ([0.1, 0.4], [0.35, 0.8]), ([0, 0], [1, 1]), strict=True):
        kept = AUROC()
        kept.update(fb.asarray(scores), fb.asarray(labels))
        c.further["auroc"] = kept.held()
    found = together(*(partial(s.gather, c) for s, c in zip(ranks(), counted, strict=True)))
    assert [f.measures.further_values() for f in found] == [{"auroc": 0.75}] * 2


class _Two(nn.Module):
    def __init__(self) -> None:
        self.a, self.b = nn.Linear(3, 2), nn.Linear(2, 1)


def _of_a(model: _Two, x: Any, y: Any) -> Any:
    return fb.mean(model.a(x) ** 2)


def _of_b(model: _Two, x: Any, y: Any) -> Any:
    return fb.mean((model.b(model.a(x).detach())[:, 0] - fb.astype(y, fb.float32)) ** 2)


def _both(minimizer: Minimizer, batch: Any) -> dict[str, Any]:
    return {"a": minimizer.minimize(_of_a, batch, "a"), "b": minimizer.minimize(_of_b, batch, "b")}


@pytest.mark.parametrize("jit", [True, False])
def test_a_step_of_ones_own_over_ranks_is_that_of_one_device(ranks: Ranks, jit: bool) -> None:
    def made(strategy: Strategy) -> Learner:
        fb.random.seed(2)
        model = _Two()
        rules = {n: optim.SGD(getattr(model, n), lr=0.1) for n in ("a", "b")}
        return Learner(model, rules, step=_both, strategy=strategy, log=None, jit=jit)

    def trained(learner: Learner) -> tuple[list[Any], list[np.ndarray[Any, Any]]]:
        data = ArrayDataset(np.linspace(-1.0, 1.0, 33).reshape(11, 3), np.arange(11) % 2)
        rows = learner.fit(DataLoader(data, 4), epochs=2)
        return [r.metrics for r in rows], [p.numpy() for p in learner.model.parameters()]

    alone = trained(made(SingleDevice("numpy:0")))
    for metrics, values in together(*(partial(trained, made(s)) for s in ranks(2))):
        for found, expected in zip(metrics, alone[0], strict=True):
            assert found == pytest.approx(expected, rel=1e-5)
        for a, b in zip(values, alone[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


class Unreadable(fb.data.Dataset):
    """Samples that lie on a disk which some ranks cannot read."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 26

    def __getitem__(self, i: int) -> Any:
        if self.error is not None and i > 20:
            raise self.error
        return np.full(4, float(i)), i % 3


def test_ranks_that_cannot_read_the_samples_are_named_with_the_error(ranks: Ranks) -> None:
    first, second = ranks()
    error = OSError(5, "Input/output error", "/data/25.npy")

    def body(strategy: Distributed, error: Exception | None) -> Callable[[], Any]:
        return lambda: learner(strategy).fit(DataLoader(Unreadable(error), 8, dtype="float64"), epochs=1)

    found = together(body(first, None), body(second, error))
    for e in found:
        assert isinstance(e, TrainingError)
        assert "Received: rank 1: reading its samples raised OSError: [Errno 5] Input/output error: '/data/25.npy'." in str(e)
        assert "fingerprint()" in e.remedy
