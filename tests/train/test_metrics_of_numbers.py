"""Errors, R² and perplexity over uneven batches, held against NumPy over all samples at once."""

import json
import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Learner, Loss, MeanAbsoluteError, MeanSquaredError, Perplexity, R2Score, UndefinedMetricWarning

CUTS = (0, 1, 9, 40)


@pytest.fixture
def numbers() -> tuple[np.ndarray, np.ndarray]:
    """Predictions and targets [40, 2, 3] far from 0, where sums of squares would cancel."""
    rng = np.random.default_rng(0)
    target = rng.normal(size=(40, 2, 3)) + 1e4
    return target + 0.3 * rng.normal(size=target.shape), target


@pytest.mark.parametrize("where", ["predicted", "target"])
@pytest.mark.parametrize("targets", [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]], ids=["spread", "equal"])
def test_a_number_that_is_nan_makes_every_metric_nan(where: str, targets: list[float]) -> None:
    """R² was 0 for a NaN among the targets, and for one among predictions of equal targets."""
    predicted, target = np.array([1.0, 2.0, 2.5]), np.array(targets)
    (predicted if where == "predicted" else target)[1] = math.nan
    for metric in (MeanSquaredError(), MeanAbsoluteError(), R2Score()):
        assert math.isnan(fed(metric, predicted, target, (0, 2, 3)).compute())
    two = R2Score(2)
    two.update(fb.asarray(np.stack([predicted, np.ones(3)], 1)), fb.asarray(np.stack([target, np.arange(3.0)], 1)))
    assert math.isnan(two.compute())
    perplexity = Perplexity()
    perplexity.update(fb.asarray([[0.0, math.nan], [0.0, 1.0]]), fb.asarray([0, 1]))
    assert math.isnan(perplexity.compute())


def fed(metric: Any, predicted: np.ndarray, target: np.ndarray, cuts: tuple[int, ...] = CUTS) -> Any:
    for low, high in pairwise(cuts):
        metric.update(fb.asarray(predicted[low:high]), fb.asarray(target[low:high]))
    return metric


def test_errors_count_every_element_once(numbers: Any) -> None:
    predicted, target = numbers
    off = predicted - target
    assert fed(MeanSquaredError(), predicted, target).compute() == pytest.approx(np.mean(off**2), rel=1e-13)
    assert fed(MeanAbsoluteError(), predicted, target).compute() == pytest.approx(np.mean(np.abs(off)), rel=1e-13)


def test_r2_is_the_mean_over_outputs_without_cancellation(numbers: Any) -> None:
    predicted, target = (a.reshape(40, 6) for a in numbers)
    expected = np.mean(1 - ((predicted - target) ** 2).sum(0) / ((target - target.mean(0)) ** 2).sum(0))
    assert fed(R2Score(outputs=6), *numbers).compute() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("center", [0.0, 1e4, -3e6])
def test_r2_of_float32_far_from_0_is_that_of_float64_in_any_order_of_batches(center: float) -> None:
    rng = np.random.default_rng(2)
    target = (center + rng.normal(size=400)).astype(np.float32)
    predicted = (target + 0.5 * rng.normal(size=400)).astype(np.float32)
    wide = [a.astype(np.float64) for a in (predicted, target)]
    expected = 1 - ((wide[0] - wide[1]) ** 2).sum() / ((wide[1] - wide[1].mean()) ** 2).sum()
    for _ in range(5):
        order = rng.permutation(400)
        cuts = (0, *sorted(rng.choice(np.arange(1, 400), 9, replace=False).tolist()), 400)
        assert fed(R2Score(), predicted[order], target[order], cuts).compute() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_r2_of_large_and_of_small_numbers_is_that_of_others(scale: float) -> None:
    """Sums of squares overflowed or were 0, and the worst predictions had an R² of 1."""
    target = np.asarray([1.0, 2.0, 3.0, 5.0]) * scale
    for predicted, want in ((target, 1.0), (target[::-1], 1 - 34 / 8.75), (target * 1e-9, 1 - 39 / 8.75)):
        narrow = [a.astype(np.float32) for a in (predicted, target)]
        assert fed(R2Score(), *narrow, (0, 3, 4)).compute() == pytest.approx(want, rel=1e-5)


def test_r2_of_a_constant_target_is_one_if_exact_and_else_zero() -> None:
    constant = np.full(4, 2.0)
    assert fed(R2Score(), constant, constant, (0, 1, 4)).compute() == 1.0
    assert fed(R2Score(), constant + 1, constant, (0, 1, 4)).compute() == 0.0


def test_an_empty_batch_changes_no_sum() -> None:
    x, y = fb.asarray([1.0, 2.0, 4.0]), fb.asarray([1.0, 3.0, 4.0])
    for metric in (R2Score(), MeanSquaredError(), MeanAbsoluteError()):
        metric.update(x, y)
        before = metric.compute()
        metric.update(fb.zeros((0, 5)), fb.zeros((0, 5)))
        assert metric.compute() == before


def test_a_perplexity_beyond_float64_is_infinite() -> None:
    metric = Perplexity()
    metric.update(fb.asarray([[[-1000.0, 0.0]]]), fb.asarray([[0]]))
    assert metric.compute() == math.inf


def test_r2_needs_two_samples() -> None:
    with pytest.warns(UndefinedMetricWarning, match="has 1"):
        assert math.isnan(fed(R2Score(), np.ones(1), np.ones(1), (0, 1)).compute())


def test_perplexity_leaves_ignored_tokens_out() -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(6, 4, 9)), rng.integers(0, 9, (6, 4))
    labels[2:, 1:] = -1
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    kept = [log_p[i, j, labels[i, j]] for i, j in np.ndindex(6, 4) if labels[i, j] != -1]
    found = fed(Perplexity(ignore_index=-1), logits, labels, (0, 1, 6)).compute()
    assert found == pytest.approx(math.exp(-np.mean(kept)), rel=1e-12)
    assert math.isnan(Perplexity().compute())


@pytest.mark.parametrize("make", [MeanSquaredError, MeanAbsoluteError, lambda: R2Score(6)])
def test_a_metric_of_numbers_goes_on_from_its_state(make: Any, numbers: Any) -> None:
    half = fed(make(), *numbers, CUTS[:3])
    again = make().load_state(json.loads(json.dumps(half.state())))
    assert fed(again, *numbers, CUTS[2:]).compute() == fed(make(), *numbers).compute()
    assert again.used
    again.reset()
    assert not again.used


def test_shapes_and_kinds_that_do_not_fit_are_refused() -> None:
    with pytest.raises(fb.ShapeError, match="of one shape"):
        MeanSquaredError().update(fb.zeros((3, 2)), fb.zeros(3))
    with pytest.raises(fb.DTypeError, match="floating"):
        MeanAbsoluteError().update(fb.zeros(3), fb.asarray([1, 2, 3]))
    with pytest.raises(fb.ShapeError, match="made for 1 outputs"):
        R2Score().update(fb.zeros((3, 2)), fb.zeros((3, 2)))
    with pytest.raises(fb.ShapeError, match="classes on the last axis"):
        Perplexity().update(fb.zeros((2, 3)), fb.asarray([[1], [2]]))


def test_sums_of_narrow_numbers_neither_overflow_nor_lose_digits() -> None:
    far, zero = fb.full((1000,), 200.0, dtype="float16"), fb.zeros(1000, dtype="float16")
    mse, mae, perplexity = MeanSquaredError(), MeanAbsoluteError(), Perplexity()
    mse.update(far, zero)
    mae.update(far, zero)
    perplexity.update(fb.zeros((40000, 8), dtype="float16"), fb.zeros(40000, dtype=fb.int64))
    assert (mse.compute(), mae.compute()) == (40000.0, 200.0)
    assert perplexity.compute() == pytest.approx(8.0, rel=1e-5)


def test_a_target_that_is_constant_but_for_rounding_has_no_spread() -> None:
    r2 = R2Score()  # the float32 mean of seven times 0.1 is not 0.1
    for n in (7, 3, 11):
        r2.update(fb.arange(n, dtype="float32"), fb.full((n,), 0.1))
    assert r2.compute() == 0.0
    with pytest.raises(fb.ConfigError, match="R2Score: outputs is an int ≥ 1"):
        R2Score(0)


def test_a_loss_is_one_number() -> None:
    with pytest.raises(fb.ShapeError, match="the mean loss of a batch"):
        Loss().update(fb.ones(3), 3)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("loss", "estimates"),
    [
        (fb.nn.MSELoss(), True),
        (fb.nn.BCELoss(), True),
        (fb.nn.PoissonNLLLoss(log_input=False), True),
        (lambda output, target: fb.mean((output - target) ** 2), True),
        (fb.nn.BCEWithLogitsLoss(), False),
        (fb.binary_cross_entropy_with_logits, False),
        (partial(fb.binary_cross_entropy_with_logits, reduction="mean"), False),
        (fb.nn.CrossEntropyLoss(), False),
        (fb.nn.KLDivLoss("batchmean"), False),
        (fb.nn.PoissonNLLLoss(), False),
    ],
)
def test_scores_are_not_compared_with_probabilities_as_numbers(loss: Any, estimates: bool, jit: bool) -> None:
    x = np.random.default_rng(0).random((8, 3)).astype(np.float32)
    loader = DataLoader(ArrayDataset(x, np.full((8, 2), 0.5, np.float32)), 4)
    model = fb.nn.Sequential(fb.nn.Linear(3, 2), fb.nn.LogSoftmax() if isinstance(loss, fb.nn.KLDivLoss) else fb.nn.Sigmoid())
    learner = Learner(model, fb.optim.SGD(model, lr=0.1), loss, jit=jit, log=None)
    (epoch,) = learner.fit(loader, loader, epochs=1)
    found = learner.evaluate(loader)
    for error in (epoch.train_mse, epoch.train_mae, epoch.valid_mse, epoch.valid_mae, found.mse, found.mae):
        assert (error is not None) is estimates
    assert epoch.train_accuracy is None
