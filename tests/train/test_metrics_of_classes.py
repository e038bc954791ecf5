"""Metrics of classes and rankings, held against formulas written out over all samples at once."""

import json
import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.train import (
    AUROC,
    F1,
    Accuracy,
    AveragePrecision,
    ConfusionMatrix,
    Metric,
    Precision,
    Recall,
    TopKAccuracy,
    TrainingError,
    UndefinedMetricWarning,
    evaluate,
)

CUTS = (0, 7, 8, 30, 64)  # uneven batches


def fed(metric: Any, first: np.ndarray, second: np.ndarray, cuts: tuple[int, ...] = CUTS) -> Any:
    for low, high in pairwise(cuts):
        metric.update(fb.asarray(first[low:high]), fb.asarray(second[low:high]))
    return metric


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    """64 samples of 5 classes with some skill and many equal scores; class 4 is called now and then, but never there."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 64)
    scores = np.round(rng.normal(size=(64, 5)) + 1.2 * np.eye(5)[labels], 1)
    return scores, labels


def by_hand(calls: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, list[float]]:
    """Precision, recall, F1 and support of each class, counted one sample at a time."""
    out: dict[str, list[float]] = {"precision": [], "recall": [], "f1": [], "support": []}
    for c in range(classes):
        tp = sum(1 for p, t in zip(calls, labels, strict=True) if p == c == t)
        called = sum(1 for p in calls if p == c)
        seen = sum(1 for t in labels if t == c)
        precision, recall = tp / called if called else 0.0, tp / seen if seen else 0.0
        out["precision"].append(precision)
        out["recall"].append(recall)
        out["f1"].append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
        out["support"].append(seen)
    return out


@pytest.mark.parametrize(("kind", "name"), [(Precision, "precision"), (Recall, "recall"), (F1, "f1")])
def test_precision_recall_and_f1_equal_those_counted_by_hand(kind: Any, name: str, sample: Any) -> None:
    scores, labels = sample
    calls = scores.argmax(1)
    hand = by_hand(calls, labels, 5)
    assert (calls == 4).any()
    each = fed(kind(5, average=None), scores, labels).compute()
    assert each.tolist() == pytest.approx(hand[name], abs=1e-15)
    assert fed(kind(5), scores, labels).compute() == pytest.approx(np.mean(hand[name]), abs=1e-15)
    weighted = np.average(hand[name], weights=hand["support"])
    assert fed(kind(5, average="weighted"), scores, labels).compute() == pytest.approx(weighted, abs=1e-15)
    assert fed(kind(5, average="micro"), scores, labels).compute() == pytest.approx(np.mean(calls == labels), abs=1e-15)


def test_a_class_neither_seen_nor_called_is_nan_and_left_out_of_averages() -> None:
    labels = np.array([0, 1, 1, 0])
    metric = fed(F1(3, average=None), labels, labels, (0, 3, 4))
    assert metric.compute().tolist()[:2] == [1.0, 1.0]
    assert math.isnan(metric.compute()[2])
    assert fed(F1(3), labels, labels, (0, 3, 4)).compute() == 1.0
    seen_never_called = fed(Precision(2, average=None), np.array([0, 0]), np.array([0, 1]), (0, 2))
    assert seen_never_called.compute().tolist() == [0.5, 0.0]


def test_top_k_equals_a_stable_sort_also_with_ties(sample: Any) -> None:
    scores, labels = sample
    for k in (1, 2, 3, 5):
        ranked = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        expected = np.mean([t in row for t, row in zip(labels, ranked, strict=True)])
        assert fed(TopKAccuracy(k), scores, labels).compute() == expected
    assert fed(TopKAccuracy(1), scores, labels).compute() == fed(Accuracy(), scores, labels).compute()


def area_by_pairs(scores: np.ndarray, positive: np.ndarray) -> float:
    """The share of (positive, negative) pairs in the right order, ties half: the definition."""
    difference = scores[positive][:, None] - scores[~positive][None, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def precision_by_thresholds(scores: np.ndarray, positive: np.ndarray) -> float:
    total, before = 0.0, 0.0
    for t in sorted(set(scores.tolist()), reverse=True):
        called = scores >= t
        recall = (called & positive).sum() / positive.sum()
        total += (recall - before) * (called & positive).sum() / called.sum()
        before = recall
    return total


@pytest.mark.parametrize(("kind", "rule"), [(AUROC, area_by_pairs), (AveragePrecision, precision_by_thresholds)])
def test_rankings_equal_their_definitions_with_ties(kind: Any, rule: Callable[..., float], sample: Any) -> None:
    scores, labels = sample
    assert len(set(scores[:, 0].tolist())) < 64
    assert fed(kind(), scores[:, 0], (labels == 0) * 1).compute() == pytest.approx(rule(scores[:, 0], labels == 0), abs=1e-14)
    rates = [rule(scores[:, c], labels == c) for c in range(4)]
    with pytest.warns(UndefinedMetricWarning, match="class 4 is not defined"):
        each = fed(kind(5, average=None), scores, labels).compute()
    assert each[:4].tolist() == pytest.approx(rates, abs=1e-14)
    assert math.isnan(each[4])
    with pytest.warns(UndefinedMetricWarning):
        assert fed(kind(5), scores, labels).compute() == pytest.approx(np.mean(rates), abs=1e-14)
    with pytest.warns(UndefinedMetricWarning):
        weighted = fed(kind(5, average="weighted"), scores, labels).compute()
    assert weighted == pytest.approx(np.average(rates, weights=np.bincount(labels)), abs=1e-14)


def test_the_area_of_one_class_alone_is_nan_with_a_warning() -> None:
    metric = fed(AUROC(), np.array([0.1, 0.7]), np.array([1, 1]), (0, 2))
    with pytest.warns(UndefinedMetricWarning, match="no negative ones"):
        assert math.isnan(metric.compute())
    with pytest.warns(UndefinedMetricWarning, match="among 0 samples"):
        assert math.isnan(AUROC().compute())
    with pytest.warns(UndefinedMetricWarning, match="no positive ones"):
        assert math.isnan(fed(AveragePrecision(), np.array([0.1]), np.array([0]), (0, 1)).compute())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fed(AveragePrecision(), np.array([0.1, 0.2]), np.array([1, 1]), (0, 2)).compute() == 1.0


def test_a_score_that_is_nan_is_refused() -> None:
    metric = AUROC()
    metric.update(fb.asarray([0.5, math.nan]), fb.asarray([0, 1]))
    with pytest.raises(TrainingError, match="NaN has no rank"):
        metric.compute()


@pytest.mark.parametrize(
    "make",
    [Accuracy, lambda: TopKAccuracy(2), lambda: ConfusionMatrix(5), lambda: Precision(5), lambda: F1(5), lambda: AUROC(5)],
)
def test_a_metric_saved_as_json_goes_on_to_the_same_value(make: Callable[[], Metric], sample: Any) -> None:
    scores, labels = sample
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        whole = fed(make(), scores, labels).compute()
        half = fed(make(), scores, labels, CUTS[:3])
        again = make().load_state(json.loads(json.dumps(half.state())))
        assert np.array_equal(fed(again, scores, labels, CUTS[2:]).compute(), whole)
        again.reset()
        assert not again.used


def test_empty_metrics_are_nan_and_bad_arguments_are_named() -> None:
    for metric in (Accuracy(), TopKAccuracy(2), F1(3), Precision(2, average="micro")):
        assert math.isnan(metric.compute())
    with pytest.raises(fb.ConfigError, match="micro, macro, weighted or None"):
        F1(3, average="mean")
    with pytest.raises(fb.ConfigError, match="AUROC: average is macro, weighted or None"):
        AUROC(3, average="micro")
    with pytest.raises(fb.DTypeError, match="AUROC takes real scores and whole labels"):
        AUROC().update(fb.zeros(2, dtype=fb.complex64), fb.asarray([0, 1]))
    with pytest.raises(fb.DTypeError, match="AUROC takes real scores and whole labels"):
        AUROC().update(fb.zeros(2), fb.zeros(2))
    with pytest.raises(fb.ConfigError, match="TopKAccuracy: k is an int ≥ 1"):
        TopKAccuracy(0)
    with pytest.raises(fb.ShapeError, match="at least 6 classes"):
        TopKAccuracy(6).update(fb.zeros((2, 5)), fb.asarray([0, 1]))
    metric = Recall(2)
    metric.update(fb.asarray([0, 1]), fb.asarray([0, 2]))
    with pytest.raises(IndexError, match=r"labels are class numbers in \[0, 2\)"):
        metric.compute()
    with pytest.raises(fb.ShapeError, match="pass classes="):
        AUROC().update(fb.zeros((2, 3)), fb.asarray([0, 1]))
    wrong = AUROC()
    wrong.update(fb.zeros(2), fb.asarray([0, 2]))
    with pytest.raises(IndexError, match="pass classes="):
        wrong.compute()


def test_class_numbers_are_whole_numbers() -> None:
    probability = fb.asarray([0.3, 0.9])
    for metric in (Accuracy(), ConfusionMatrix(2), Recall(2)):
        with pytest.raises(fb.DTypeError, match=f"{type(metric).__name__}: predicted are class numbers"):
            metric.update(probability, fb.asarray([0, 1]))
    with pytest.raises(fb.DTypeError, match="TopKAccuracy: labels are class numbers"):
        TopKAccuracy(1).update(fb.zeros((2, 3)), fb.zeros(2))
    with pytest.raises(fb.FirebrickError, match="Accuracy: predicted must be a Firebrick tensor"):
        Accuracy().update(np.array([1]), np.array([1]))  # type: ignore[arg-type]


def test_a_negative_label_is_refused_and_not_the_last_class() -> None:
    top = TopKAccuracy(1)
    top.update(fb.zeros((2, 3)), fb.asarray([0, -1]))
    with pytest.raises(IndexError, match=r"TopKAccuracy: labels are class numbers.*\n.*1 that are not"):
        top.compute()


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_top_1_is_the_accuracy_where_scores_are_nan(device: str) -> None:
    scores = np.array([[np.nan] * 3, [0.0, np.nan, np.nan], [0.0, np.nan, 5.0], [1.0, 0.0, -np.inf]], np.float32)
    for labels in ([0, 1, 1, 0], [2, 2, 2, 1]):
        top, accuracy = TopKAccuracy(1), Accuracy()
        for metric in (top, accuracy):
            metric.update(fb.asarray(scores, device=device), fb.asarray(labels, device=device))
        assert top.compute() == accuracy.compute()
    assert accuracy.compute() == 0.0


CLASSIFYING = {
    "accuracy": Accuracy, "top 2": lambda: TopKAccuracy(2), "confusion": lambda: ConfusionMatrix(2), "f1": lambda: F1(2),
    "precision": lambda: Precision(2), "recall": lambda: Recall(2),
    "auroc": lambda: AUROC(2), "average precision": lambda: AveragePrecision(2),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "numpy", "torch:cpu"])
@pytest.mark.parametrize("name", CLASSIFYING)
@pytest.mark.parametrize("label", [5, 2, -1, -(2**40)])
def test_a_label_that_is_no_class_is_refused_by_every_metric(name: str, label: int, device: str) -> None:
    """Accuracy took it, and counted a miss."""
    metric = CLASSIFYING[name]()
    metric.update(fb.asarray([[0.1, 0.9], [0.8, 0.2]], device=device), fb.asarray([1, label], device=device))
    with pytest.raises(fb.OutOfRangeError, match=r"labels (are class numbers|lie)"):
        metric.compute()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint64", "int64"])
@pytest.mark.parametrize("name", ["accuracy", "top 2", "confusion", "f1"])
def test_labels_may_be_of_any_whole_dtype(name: str, dtype: str) -> None:
    labels = fb.asarray([1, 0, 0]).astype(fb.dtype(dtype))
    metric, same = CLASSIFYING[name](), CLASSIFYING[name]()
    metric.update(fb.asarray([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), labels)
    same.update(fb.asarray([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), fb.asarray([1, 0, 0]))
    assert np.array_equal(metric.compute(), same.compute())


@pytest.mark.parametrize("classes", [1, 300])
def test_a_number_of_classes_that_the_labels_dtype_cannot_hold_is_no_obstacle(classes: int) -> None:
    for metric in (Accuracy(), TopKAccuracy(1)):
        metric.update(fb.zeros((2, classes)), fb.asarray([0, 0], dtype=fb.uint8))
        assert metric.compute() == 1.0
        metric.update(fb.zeros((2, classes)), fb.asarray([0, 255], dtype=fb.uint8))
        if classes == 1:
            with pytest.raises(fb.OutOfRangeError):
                metric.compute()
        else:
            assert metric.compute() == 0.75


@pytest.mark.parametrize("device", ["cpu", "numpy", "torch:cpu"])
def test_a_score_that_is_nan_is_never_right_and_never_a_class(device: str) -> None:
    """As argmax has it, NaN is the largest score: a model gone NaN was right about every sample of class 0."""
    scores = fb.asarray([[math.nan, 0.0], [0.0, 1.0], [1.0, math.nan], [math.nan, math.nan]], dtype=fb.float32, device=device)
    labels = fb.asarray([0, 1, 0, 0], device=device)
    for metric in (Accuracy(), TopKAccuracy(1), TopKAccuracy(2)):
        metric.update(scores, labels)
        assert metric.compute() == 0.25
    for name in ("confusion", "f1", "precision", "recall", "auroc", "average precision"):
        metric = CLASSIFYING[name]()
        metric.update(scores, labels)
        with pytest.raises(TrainingError, match="NaN"):
            metric.compute()


@pytest.mark.parametrize("jit", [False, True])
def test_an_evaluation_of_a_model_gone_nan_has_no_right_samples(jit: bool) -> None:
    model = fb.nn.Linear(3, 2)
    model.bias = fb.nn.Parameter(fb.asarray([math.nan, 0.0]))
    loader = fb.data.DataLoader(fb.data.ArrayDataset(np.ones((4, 3)), np.array([0, 0, 1, 0])), 2)
    found = evaluate(model, loader, jit=jit)
    assert math.isnan(found.loss)
    assert found.accuracy == 0.0
    assert found.confusion is not None
    assert found.confusion.sum() == 0


def test_a_ranking_takes_an_empty_batch_and_goes_on_from_an_empty_state() -> None:
    for make in (AUROC, AveragePrecision):
        metric = make().load_state(make().state())
        metric.update(fb.zeros(0), fb.zeros(0, dtype=fb.int64))
        metric.update(fb.asarray([0.1, 0.9]), fb.asarray([0, 1]))
        assert metric.compute() == 1.0


def test_the_state_of_a_metric_with_other_settings_is_refused() -> None:
    for metric, other in ((ConfusionMatrix(2), ConfusionMatrix(3)), (ConfusionMatrix(2), Accuracy())):
        with pytest.raises(fb.ConfigError, match="a state comes from a metric with the same settings"):
            metric.load_state(other.state())
