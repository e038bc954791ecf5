"""Labels that a loss leaves out are left out by what a learner counts, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Accuracy, Learner, Loss, evaluate

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(50, 4)).astype(np.float32), RNG.integers(0, 3, 50)
KEPT = np.arange(50) % 5 != 0


def loader(labels: np.ndarray, name: str = "train") -> DataLoader:
    return DataLoader(ArrayDataset(X, labels), 16, name=name)


@pytest.mark.parametrize("ignored", [-1, -100, 255, 0])
@pytest.mark.parametrize("jit", [True, False])
def test_the_accuracy_and_the_confusion_matrix_leave_out_the_label_that_the_loss_ignores(ignored: int, jit: bool) -> None:
    labels = np.where(KEPT, LABELS, ignored)
    fb.random.seed(0)
    model = nn.Linear(4, 3)
    right = model(fb.asarray(X)).numpy().argmax(axis=1) == labels
    counted = labels != ignored
    learner = Learner(model, optim.SGD(model, lr=0.0), nn.CrossEntropyLoss(ignore_index=ignored), jit=jit, log=None)
    row = learner.fit(loader(labels), loader(labels, "valid"), epochs=1)[0]
    assert row.train_accuracy == row.valid_accuracy == right[counted].mean()
    found = learner.evaluate(loader(labels, "test"))
    assert found.confusion is not None
    assert found.confusion.sum() == counted.sum()
    assert found.confusion.trace() == right[counted].sum()


def test_labels_beyond_the_classes_are_refused_beside_the_ignored_one() -> None:
    accuracy = Accuracy(ignore_index=-1)
    accuracy.update(fb.asarray([[0.1, 0.9], [0.8, 0.2]]), fb.asarray([-1, 2]))
    with pytest.raises(fb.OutOfRangeError, match="1 that are not"):
        accuracy.compute()
    empty = Accuracy(ignore_index=-1)
    empty.update(fb.asarray([1]), fb.asarray([-1]))
    assert np.isnan(empty.compute())


def test_a_learner_with_a_function_as_loss_says_how_samples_without_a_class_are_left_out() -> None:
    model = nn.Linear(4, 3)
    labels = np.where(KEPT, LABELS, -1)
    with pytest.raises(fb.OutOfRangeError, match=r"nn\.CrossEntropyLoss\(ignore_index=-1\)"):
        evaluate(model, loader(labels, "test"), lambda output, target: fb.cross_entropy(output, target, ignore_index=-1))


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("of", [nn.CrossEntropyLoss, nn.NLLLoss])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_an_evaluation_is_that_of_all_samples_at_once(of: Any, smoothing: float, jit: bool) -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(23, 4)).astype(np.float32), rng.integers(0, 3, 23)
    labels[:9] = -1  # a whole batch, and more
    weight = fb.asarray([0.1, 5.0, 1.0])
    options = {"label_smoothing": smoothing} if of is nn.CrossEntropyLoss else {}
    model = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax())
    for loss in (of(weight=weight, ignore_index=-1, **options), of(ignore_index=-1, **options)):
        whole = loss(model(fb.asarray(x)), fb.asarray(labels)).item()
        for size in (1, 4, 8, 23):
            found = evaluate(model, DataLoader(ArrayDataset(x, labels), size), loss, jit=jit)
            assert found.loss == pytest.approx(whole, rel=1e-5)
            assert found.samples == 23


def test_the_loss_of_an_evaluation_without_labels_that_count_is_0() -> None:
    data = DataLoader(ArrayDataset(np.ones((4, 2), np.float32), np.full(4, -1)), 2)
    assert evaluate(nn.Linear(2, 2), data, nn.CrossEntropyLoss(ignore_index=-1)).loss == 0.0


def test_a_state_of_an_earlier_version_weighs_losses_by_samples() -> None:
    old = Loss().load_state({"total": 8.0, "samples": 4})
    assert old.compute() == 2.0
    old.update(fb.asarray(5.0), 4, fb.asarray(2.0))
    assert old.compute() == 3.0
    assert Loss().load_state(old.state()).compute() == 3.0
