"""Every sample counts once, whatever batch it came in."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import ConfigError, OperandError, train
from firebrick.train import Accuracy, ConfusionMatrix, Loss, settle
from firebrick.train.metrics.metric import Metric


def test_the_mean_loss_of_uneven_batches_weighs_by_samples() -> None:
    values = np.arange(10.0)
    loss = Loss()
    for low, high in ((0, 7), (7, 9), (9, 10)):
        loss.update(fb.asarray(values[low:high].mean()), high - low)
    assert loss.compute() == pytest.approx(4.5)
    naive = np.mean([values[:7].mean(), values[7:9].mean(), 9.0])
    assert naive != pytest.approx(4.5)  # the mistake this guards against


def test_accuracy_over_uneven_batches_counts_samples() -> None:
    accuracy = Accuracy()
    accuracy.update(fb.asarray(np.eye(3)[[0, 1, 2, 0]]), fb.asarray([0, 1, 2, 1]))
    accuracy.update(fb.asarray(np.eye(3)[[2]]), fb.asarray([0]))
    assert accuracy.compute() == pytest.approx(3 / 5)


def test_the_confusion_matrix_has_labels_in_rows() -> None:
    confusion = ConfusionMatrix(3)
    confusion.update(fb.asarray([0, 2, 2]), fb.asarray([0, 1, 2]))
    confusion.update(fb.asarray([[0.0, 1.0, 0.0]]), fb.asarray([2]))
    assert confusion.compute().tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 1]]


def test_many_metrics_are_read_with_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fb.device("cpu:0")
    calls = []
    read = type(device.backend).read
    monkeypatch.setattr(type(device.backend), "read", lambda self, natives: calls.append(len(natives)) or read(self, natives))
    loss, accuracy, confusion = Loss(), Accuracy(), ConfusionMatrix(2)
    for _ in range(3):
        loss.update(fb.asarray(1.0), 2)
        accuracy.update(fb.asarray([0, 1]), fb.asarray([0, 0]))
        confusion.update(fb.asarray([0, 1]), fb.asarray([0, 0]))
    settle(loss, accuracy, confusion)
    assert calls == [3 + 6 + 6]
    assert loss.recent == [1.0, 1.0, 1.0]


def test_a_metric_goes_on_from_its_state_and_forgets_on_reset() -> None:
    loss, accuracy, confusion = Loss(), Accuracy(), ConfusionMatrix(2)
    loss.update(fb.asarray(0.1), 3)
    accuracy.update(fb.asarray([1]), fb.asarray([1]))
    confusion.update(fb.asarray([1]), fb.asarray([1]))
    again, hits, counts = Loss(), Accuracy(), ConfusionMatrix(2)
    again.load_state(loss.state())
    hits.load_state(accuracy.state())
    counts.load_state(confusion.state())
    assert again.compute() == loss.compute()
    assert hits.compute() == accuracy.compute()
    assert counts.compute().tolist() == confusion.compute().tolist()
    assert all(m.used for m in (again, hits, counts))
    assert not any(m.load_state(type(m)(*k).state()).used for m, k in ((again, ()), (hits, ()), (counts, (2,))))
    again.load_state(loss.state())
    again.reset()
    hits.reset()
    assert np.isnan(again.compute())
    assert not hits.used


def test_a_state_replaces_batches_that_are_not_read_yet() -> None:
    loss = Loss()
    loss.update(fb.asarray(0.5), 2)
    state = loss.state()
    loss.update(fb.asarray(8.0), 2)
    assert loss.load_state(state).compute() == 0.5


def test_scores_that_do_not_fit_the_labels_are_refused() -> None:
    with pytest.raises(fb.ShapeError, match="Accuracy"):
        Accuracy().update(fb.zeros((3, 2)), fb.asarray([0, 1]))


def test_pending_tensors_do_not_pile_up() -> None:
    loss, accuracy, waiting = Loss(), Accuracy(), []
    for _ in range(600):
        loss.update(fb.asarray(1.0), 1)
        waiting.append(len(loss.pending()))
    assert waiting == [*range(1, 513), 0, *range(1, 88)]
    assert loss.compute() == 1.0
    for _ in range(256):
        accuracy.update(fb.asarray([0]), fb.asarray([0]))
    assert len(accuracy.pending()) == 512  # two of each batch
    other = Accuracy()
    other.take([*accuracy.held(), *accuracy.held()[:1]])
    assert (len(accuracy.held()), other.held()) == (256, [])
    accuracy.reset()
    accuracy.update(fb.asarray([0]), fb.asarray([1]))
    assert len(accuracy.pending()) == 2
    assert (other.compute(), accuracy.compute()) == (1.0, 0.0)


@pytest.mark.parametrize("metric", [Accuracy(), ConfusionMatrix(2)])
def test_a_metric_was_used_once_a_batch_was_added(metric: Metric) -> None:
    assert not metric.used
    metric.update(fb.asarray([[1.0, 0.0]]), fb.asarray([0]))
    assert metric.used
    metric.reset()
    assert not metric.used


LABELS, SCORES, NUMBERS = fb.asarray([1, 0]), fb.asarray([[0.1, 0.9], [0.8, 0.2]]), fb.asarray([[0.5], [1.5]])
UPDATES: dict[str, tuple[Callable[[], Metric], tuple[Any, ...]]] = {
    "Accuracy": (Accuracy, (SCORES, LABELS)), "TopKAccuracy": (lambda: train.TopKAccuracy(1), (SCORES, LABELS)),
    "ConfusionMatrix": (lambda: ConfusionMatrix(2), (SCORES, LABELS)),
    "Precision": (lambda: train.Precision(2), (SCORES, LABELS)),
    "Recall": (lambda: train.Recall(2), (SCORES, LABELS)), "F1": (lambda: train.F1(2), (SCORES, LABELS)),
    "AUROC": (lambda: train.AUROC(2), (SCORES, LABELS)),
    "AveragePrecision": (lambda: train.AveragePrecision(2), (SCORES, LABELS)),
    "MeanSquaredError": (train.MeanSquaredError, (NUMBERS, NUMBERS)),
    "MeanAbsoluteError": (train.MeanAbsoluteError, (NUMBERS, NUMBERS)), "R2Score": (train.R2Score, (NUMBERS, NUMBERS)),
    "Perplexity": (train.Perplexity, (SCORES, LABELS)), "Loss": (Loss, (fb.asarray(0.5), 2, fb.asarray(1.5))),
}  # fmt: skip


def test_every_metric_is_in_the_table_of_updates() -> None:
    found = {n for n in train.__all__ if isinstance(v := getattr(train, n), type) and issubclass(v, Metric) and v is not Metric}
    assert found == set(UPDATES)


@pytest.mark.parametrize("name", UPDATES)
def test_every_metric_refuses_each_argument_that_is_no_tensor_or_on_another_device(name: str) -> None:
    make, given = UPDATES[name]
    for i, argument in enumerate(signature(make().update).parameters):
        if not isinstance(given[i], fb.Tensor):
            continue
        with pytest.raises(fb.OperandError, match=f"{name}: {argument} must be a Firebrick tensor"):
            make().update(*given[:i], given[i].numpy(), *given[i + 1 :])
        if len([x for x in given if isinstance(x, fb.Tensor)]) > 1:
            with pytest.raises(fb.DeviceMismatchError, match=argument):
                make().update(*given[:i], given[i].to("numpy:0"), *given[i + 1 :])
    make().update(*given)


class _MeanError(Metric):
    def initial(self) -> dict[str, Any]:
        return {"total": 0.0, "elements": 0}

    def update(self, predicted: fb.Tensor, target: fb.Tensor) -> None:
        self.keep(target.size, fb.sum(predicted - target))

    def add(self, values: Any, samples: int) -> None:
        self.totals["total"] += float(values[0])
        self.totals["elements"] += samples

    def compute(self) -> float:
        return self.totals["total"] / self.totals["elements"]


def test_a_metric_of_ones_own_counts_reads_late_and_goes_on_from_its_state() -> None:
    metric, rng = _MeanError(), np.random.default_rng(0)
    batches = [(rng.normal(size=n), rng.normal(size=n)) for n in (3, 1, 5)]
    for predicted, target in batches[:2]:
        metric.update(fb.asarray(predicted), fb.asarray(target))
    assert len(metric.pending()) == 2
    state = metric.state()
    other = _MeanError().load_state(state)
    for m in (metric, other):
        m.update(fb.asarray(batches[2][0]), fb.asarray(batches[2][1]))
    expected = np.concatenate([p - t for p, t in batches]).mean()
    assert metric.compute() == other.compute() == pytest.approx(expected, rel=1e-12)


def test_a_metric_of_ones_own_with_wrong_parts_is_refused_by_name() -> None:
    class Wrong(_MeanError):
        def initial(self) -> dict[str, Any]:
            return {"total": "none"}

    with pytest.raises(ConfigError, match=r"Wrong\.initial returns a dict of whole numbers"):
        Wrong()
    with pytest.raises(OperandError, match=r"_MeanError\.keep"):
        _MeanError().keep(1, 3.0)  # type: ignore[arg-type]


def test_a_batch_that_a_metric_refuses_is_refused_whenever_it_is_read() -> None:
    f1 = train.F1(2)
    f1.update(fb.asarray([0, 1]), fb.asarray([0, 1]))
    assert f1.compute() == 1.0
    f1.update(fb.asarray([0, 1]), fb.asarray([1, 0]))
    f1.update(fb.asarray([0, 1]), fb.asarray([0, 5]))
    f1.update(fb.asarray([0, 1]), fb.asarray([0, 1]))
    for _ in range(2):  # and never a number without some batches
        with pytest.raises(fb.OutOfRangeError):
            f1.compute()
    f1.reset()
    f1.update(fb.asarray([0, 1]), fb.asarray([0, 1]))
    assert f1.compute() == 1.0
