"""Losses: values and gradients against torch's in float64 on every engine, edges by their definition, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb
from firebrick import nn

torch = pytest.importorskip("torch", reason="torch, to compare losses with")
F = torch.nn.functional
REDUCTIONS = ("mean", "sum", "none")
TOLERANCE = 1e-10


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def alike(
    ours: Callable[..., fb.Tensor],
    theirs: Callable[..., Any],
    arrays: list[np.ndarray],
    device: str,
    by: tuple[int, ...] = (0,),
) -> None:
    """Value and gradients by the arrays in ``by``, both weighted where the loss is not reduced."""
    tensors = [torch.asarray(np.array(a), dtype=None).requires_grad_(i in by) for i, a in enumerate(arrays)]
    want = theirs(*tensors)
    weights = _rng(9).normal(size=tuple(want.shape))
    wanted = torch.autograd.grad((want * torch.asarray(weights)).sum(), [tensors[i] for i in by])

    mine = [fb.asarray(a, device=device) for a in arrays]
    assert ours(*mine).dtype is fb.float64
    np.testing.assert_allclose(ours(*mine).numpy(), want.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)

    def weighted(chosen: list[fb.Tensor]) -> fb.Tensor:
        given = list(mine)
        for i, t in zip(by, chosen, strict=True):
            given[i] = t
        return fb.sum(ours(*given) * fb.asarray(weights, device=device))

    for got, expected in zip(fb.grad(weighted)([mine[i] for i in by]), wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=TOLERANCE, atol=TOLERANCE)


# classification

LOGITS = {"[batch, classes]": (6, 5), "[classes]": (5,), "[batch, classes, d1]": (3, 5, 4), "four axes": (2, 5, 3, 2)}


def _labels(shape: tuple[int, ...], classes: int) -> np.ndarray:
    return np.asarray(_rng(1).integers(0, classes, shape[:1] + shape[2:] if len(shape) > 1 else ()))


@pytest.mark.parametrize("shape", LOGITS.values(), ids=LOGITS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_of_labels_with_every_option(shape: tuple[int, ...], reduction: str, device: str) -> None:
    logits, labels = _rng().normal(size=shape) * 3, _labels(shape, 5)
    weight = np.asarray([0.5, 2.0, 0.1, 1.5, 3.0])
    for smoothing, weighted, ignored in product((0.0, 0.3), (False, True), (None, 2)):
        if ignored is not None and len(shape) == 1:
            continue
        options = {"label_smoothing": smoothing, "reduction": reduction}
        alike(
            lambda x, w, o=options, i=ignored, u=weighted: fb.cross_entropy(
                x, fb.asarray(labels, device=device), w if u else None, ignore_index=i, **o
            ),
            lambda x, w, o=options, i=ignored, u=weighted: F.cross_entropy(
                x, torch.asarray(labels), w if u else None, ignore_index=-100 if i is None else i, **o
            ),
            [logits, weight],
            device,
        )


@pytest.mark.parametrize("shape", LOGITS.values(), ids=LOGITS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_of_probabilities(shape: tuple[int, ...], reduction: str, device: str) -> None:
    logits, p = _rng().normal(size=shape), _rng(1).uniform(size=shape)
    weight = np.asarray([0.5, 2.0, 0.1, 1.5, 3.0])
    for smoothing, weighted in product((0.0, 0.2), (False, True)):
        options = {"label_smoothing": smoothing, "reduction": reduction}
        alike(
            lambda x, y, w, o=options, u=weighted: fb.cross_entropy(x, y, w if u else None, **o),
            lambda x, y, w, o=options, u=weighted: F.cross_entropy(x, y, w if u else None, **o),
            [logits, p, weight],
            device,
            (0, 1),
        )


@pytest.mark.parametrize("shape", LOGITS.values(), ids=LOGITS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(shape: tuple[int, ...], reduction: str, device: str) -> None:
    scores, labels = _rng().normal(size=shape), _labels(shape, 5)
    weight = np.asarray([0.5, 2.0, 0.1, 1.5, 3.0])
    for weighted, ignored in product((False, True), (None, 1)):
        if ignored is not None and len(shape) == 1:
            continue
        alike(
            lambda x, w, i=ignored, u=weighted: fb.nll_loss(
                x, fb.asarray(labels, device=device), w if u else None, ignore_index=i, reduction=reduction
            ),
            lambda x, w, i=ignored, u=weighted: F.nll_loss(
                x, torch.asarray(labels), w if u else None, ignore_index=-100 if i is None else i, reduction=reduction
            ),
            [scores, weight],
            device,
        )


def test_a_batch_in_which_every_label_is_ignored_has_the_loss_0_and_no_gradient(device: str) -> None:
    x, labels = fb.asarray(_rng().normal(size=(3, 4)), device=device), fb.asarray([7, 7, 7], device=device)
    for smoothing in (0.0, 0.1):
        value, gradient = fb.value_and_grad(
            lambda x, s=smoothing: fb.cross_entropy(x, labels, ignore_index=7, label_smoothing=s)
        )(x)
        assert value.item() == 0.0
        assert not gradient.numpy().any()


@pytest.mark.parametrize("settings", [{}, {"ignore_index": -1}, {"label_smoothing": 0.1}, {"weight": True}], ids=str)
def test_an_empty_batch_has_the_loss_0_however_it_is_counted(settings: dict[str, Any], device: str) -> None:
    x, labels = fb.zeros((0, 3), device=device), fb.zeros((0,), dtype=fb.int64, device=device)
    settings = {k: fb.ones(3, device=device) if k == "weight" else v for k, v in settings.items()}
    for compiled in (False, True):
        loss = lambda x: fb.cross_entropy(x, labels, **settings)  # noqa: E731
        value, gradient = (fb.jit if compiled else lambda f: f)(fb.value_and_grad(loss))(x)
        assert (value.item(), gradient.shape) == (0.0, (0, 3))
    if "label_smoothing" not in settings:
        assert fb.nll_loss(x, labels, **settings).item() == 0.0
    if "ignore_index" not in settings:
        assert fb.cross_entropy(x, x, **settings).item() == 0.0  # probabilities


def test_weights_of_the_labels_divide_their_mean_and_weights_of_zero_leave_no_nan(device: str) -> None:
    x, labels = fb.asarray(_rng().normal(size=(3, 2)), device=device), fb.asarray([0, 0, 0], device=device)
    assert fb.cross_entropy(x, labels, fb.asarray([0.0, 1.0], dtype=fb.float64, device=device)).item() == 0.0


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_with_logits(reduction: str, device: str) -> None:
    x = np.concatenate([_rng().normal(size=(4, 3)) * 4, [[0.0, 800.0, -800.0]]])
    y, w, pw = _rng(1).uniform(size=(5, 3)), _rng(2).uniform(size=(5, 1)), np.asarray([0.5, 1.0, 3.0])
    for weighted, positive in product((False, True), (False, True)):
        alike(
            lambda x, y, w, p, u=weighted, v=positive: fb.binary_cross_entropy_with_logits(
                x, y, w if u else None, pos_weight=p if v else None, reduction=reduction
            ),
            lambda x, y, w, p, u=weighted, v=positive: F.binary_cross_entropy_with_logits(
                x, y, w if u else None, pos_weight=p if v else None, reduction=reduction
            ),
            [x, y, w, pw],
            device,
            (0, 1),
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction: str, device: str) -> None:
    p, y, w = (_rng(i).uniform(0.01, 0.99, size=(4, 3)) for i in range(3))
    alike(
        lambda p, y, w: fb.binary_cross_entropy(p, y, w, reduction=reduction),
        lambda p, y, w: F.binary_cross_entropy(p, y, w, reduction=reduction),
        [p, y, w],
        device,
    )


def test_certain_probabilities_cost_at_most_100_and_have_finite_gradients(device: str) -> None:
    p, y = np.asarray([0.0, 1.0, 0.0, 1.0]), np.asarray([0.0, 1.0, 1.0, 0.0])
    ours = fb.binary_cross_entropy(fb.asarray(p, device=device), fb.asarray(y, device=device), reduction="none")
    np.testing.assert_array_equal(ours.numpy(), F.binary_cross_entropy(*map(torch.asarray, (p, y)), reduction="none").numpy())
    gradient = fb.grad(lambda p: fb.binary_cross_entropy(p, fb.asarray(y, device=device)))(fb.asarray(p, device=device))
    assert np.isfinite(gradient.numpy()).all()
    for outside in (-0.1, 1.1, np.inf):
        with pytest.raises(fb.OutOfRangeError, match=r"the values of probability must be in \[0, 1\]"):
            fb.binary_cross_entropy(fb.asarray([0.5, outside], device=device), fb.zeros(2, device=device))
    assert np.isnan(fb.binary_cross_entropy(fb.asarray([np.nan], device=device), fb.zeros(1, device=device)).item())


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(reduction: str, device: str) -> None:
    x, p = _rng().normal(size=(4, 3)), _rng(1).uniform(size=(4, 3))
    for log_target in (False, True):
        alike(
            lambda x, y, g=log_target: fb.kl_div(x, y, log_target=g, reduction=reduction),
            lambda x, y, g=log_target: F.kl_div(x, y, log_target=g, reduction=reduction),
            [x, np.log(p) if log_target else p],
            device,
            (0, 1),
        )
    p[1] = 0.0
    alike(lambda x, y: fb.kl_div(x, y, reduction=reduction), lambda x, y: F.kl_div(x, y, reduction=reduction), [x, p], device)


# regression and likelihoods

X, Y = _rng().normal(size=(4, 3)) * 2, _rng(1).normal(size=(4, 3)) * 2
X[0] = Y[0]  # differences of exactly zero
PAIRED: dict[str, tuple[str, dict[str, Any]]] = {
    "mse": ("mse_loss", {}),
    "l1": ("l1_loss", {}),
    "huber": ("huber_loss", {}),
    "huber, small delta": ("huber_loss", {"delta": 0.3}),
    "smooth l1": ("smooth_l1_loss", {}),
    "smooth l1, beta": ("smooth_l1_loss", {"beta": 2.5}),
    "smooth l1, no beta": ("smooth_l1_loss", {"beta": 0.0}),
    "poisson": ("poisson_nll_loss", {}),
    "poisson, full": ("poisson_nll_loss", {"full": True}),
    "poisson of rates": ("poisson_nll_loss", {"log_input": False, "eps": 1e-3}),
}


@pytest.mark.parametrize("case", PAIRED)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_of_pairs(case: str, reduction: str, device: str) -> None:
    name, options = PAIRED[case]
    arrays = [np.abs(X) + 0.1, np.abs(Y) * 2] if "poisson" in case else [X, Y]
    alike(
        lambda x, y: getattr(fb, name)(x, y, reduction=reduction, **options),
        lambda x, y: getattr(F, name)(x, y, reduction=reduction, **options),
        arrays,
        device,
    )


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gaussian_nll(reduction: str, full: bool, device: str) -> None:
    variance = _rng(2).uniform(0.1, 2.0, size=(4, 1))
    options = {"reduction": reduction, "full": full, "eps": 0.05}
    alike(
        lambda *a: fb.gaussian_nll_loss(*a, **options), lambda *a: F.gaussian_nll_loss(*a, **options), [X, Y, variance], device,
        (0, 1, 2),
    )  # fmt: skip


def test_the_halves_of_huber_meet_in_value_and_slope(device: str) -> None:
    at = fb.asarray([1.0, -1.0, 0.0], dtype=fb.float64, device=device)
    values, slopes = fb.value_and_grad(lambda x: fb.huber_loss(x, x.detach() * 0.0, reduction="sum"))(at)
    assert (values.item(), slopes.tolist()) == (1.0, [1.0, -1.0, 0.0])


# vectors

SIGNS = np.asarray([1, -1, -1, 1])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cosine_similarity(axis: int, device: str) -> None:
    alike(
        lambda a, b: fb.cosine_similarity(a, b, axis=axis), lambda a, b: F.cosine_similarity(a, b, dim=axis), [X, Y + 0.1],
        device, (0, 1),
    )  # fmt: skip


@pytest.mark.parametrize("one", [0, 1])
def test_cosine_similarity_of_a_vector_of_size_1_is_that_of_the_vector_repeated(one: int, device: str) -> None:
    arrays = [_rng(k).normal(size=(1 if k == one else 3, 4)) for k in (0, 1)]
    for axis in (0, -2):
        alike(
            lambda a, b, axis=axis: fb.cosine_similarity(a, b, axis=axis),
            lambda a, b, axis=axis: F.cosine_similarity(a, b, dim=axis), arrays, device, (0, 1),
        )  # fmt: skip


def test_cosine_similarity_broadcasts_and_takes_no_gradient_from_a_zero_vector(device: str) -> None:
    a, b = _rng().normal(size=(2, 3, 4)), _rng(1).normal(size=(3, 4))
    alike(
        lambda a, b: fb.cosine_similarity(a, b, axis=2), lambda a, b: F.cosine_similarity(a, b, dim=2), [a, b], device, (0, 1)
    )
    zero = fb.zeros((1, 3), dtype=fb.float64, device=device)
    gradient = fb.grad(lambda z: fb.sum(fb.cosine_similarity(z, z + 1.0)))(zero)
    assert np.isfinite(gradient.numpy()).all()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("margin", [0.0, 0.4, -0.5])
def test_cosine_embedding(margin: float, reduction: str, device: str) -> None:
    alike(
        lambda a, b: fb.cosine_embedding_loss(a, b, fb.asarray(SIGNS, device=device), margin=margin, reduction=reduction),
        lambda a, b: F.cosine_embedding_loss(a, b, torch.asarray(SIGNS), margin=margin, reduction=reduction),
        [_rng(3).normal(size=(4, 3)), Y],
        device,
        (0, 1),
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 1.5, math.inf])
def test_triplet_margin(p: float, reduction: str, device: str) -> None:
    triplet = [_rng(i).normal(size=(6, 4)) for i in range(3)]
    for swap, margin in product((False, True), (0.5, 2.0)):
        options = {"p": p, "swap": swap, "margin": margin, "reduction": reduction}
        alike(
            lambda *t, o=options: fb.triplet_margin_loss(*t, **o),
            lambda *t, o=options: F.triplet_margin_loss(*t, **o),
            triplet,
            device,
            (0, 1, 2),
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_of_signs(reduction: str, device: str) -> None:
    sign = np.asarray(_rng(5).choice([-1, 1], size=(4, 3)))
    mine, its = fb.asarray(sign, device=device), torch.asarray(sign)
    for margin in (0.0, 0.7):
        options = {"margin": margin, "reduction": reduction}
        alike(
            lambda a, b, o=options: fb.margin_ranking_loss(a, b, mine, **o),
            lambda a, b, o=options: F.margin_ranking_loss(a, b, its, **o),
            [X + 0.01, Y],
            device,
            (0, 1),
        )
        alike(
            lambda a, o=options: fb.hinge_embedding_loss(a, mine, **o),
            lambda a, o=options: F.hinge_embedding_loss(a, its, **o),
            [X],
            device,
        )
    alike(
        lambda a: fb.soft_margin_loss(a, mine, reduction=reduction),
        lambda a: F.soft_margin_loss(a, its, reduction=reduction),
        [X],
        device,
    )


def test_soft_margin_does_not_overflow(device: str) -> None:
    x = fb.asarray([-1000.0, 1000.0], device=device)
    assert fb.soft_margin_loss(x, fb.asarray([1, 1], device=device), reduction="none").tolist() == [1000.0, 0.0]


# CTC

TIME, BATCH, CLASSES = 9, 4, 5
INPUTS, OUTPUTS = [9, 7, 9, 8], [3, 2, 0, 4]


def _ctc(seed: int = 0, blank: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = _rng(seed).normal(size=(TIME, BATCH, CLASSES))
    targets = _rng(seed + 1).integers(1, CLASSES, size=(BATCH, 4))
    targets[0, :2] = 2  # a repeat, which needs a blank between
    return x, np.where(targets == blank, 0, targets)


def _scored(x: fb.Tensor) -> fb.Tensor:
    return fb.log_softmax(x, axis=-1)


@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ctc(reduction: str, blank: int, device: str) -> None:
    x, targets = _ctc(blank=blank)
    for mine in (targets, np.concatenate([row[:n] for row, n in zip(targets, OUTPUTS, strict=True)])):
        alike(
            lambda x, t=mine: fb.ctc_loss(
                _scored(x), fb.asarray(t, device=device), INPUTS, OUTPUTS, blank=blank, reduction=reduction
            ),
            lambda x: F.ctc_loss(x.log_softmax(-1), torch.asarray(targets), INPUTS, OUTPUTS, blank=blank, reduction=reduction),
            [x],
            device,
        )


def test_ctc_takes_lengths_as_tensors_and_ignores_what_pads_targets(device: str) -> None:
    x, targets = _ctc()
    scores = _scored(fb.asarray(x, device=device))
    lengths = [fb.asarray(n, device=device) for n in (INPUTS, OUTPUTS)]
    whole = fb.ctc_loss(scores, fb.asarray(targets, device=device), INPUTS, OUTPUTS)
    for padding in (-1, 0, 99):
        padded = np.where(np.arange(4)[None] < np.asarray(OUTPUTS)[:, None], targets, padding)
        assert fb.ctc_loss(scores, fb.asarray(padded, device=device), *lengths).item() == whole.item()


@pytest.mark.parametrize("zero", [False, True])
def test_a_target_longer_than_its_input_allows_costs_infinity_or_nothing_and_has_no_gradient(zero: bool, device: str) -> None:
    x, targets = _ctc()
    short = [3, 7, 9, 8]  # three labels with a repeat need four steps
    mine = fb.asarray(targets, device=device)

    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.ctc_loss(_scored(x), mine, short, OUTPUTS, reduction="none", zero_infinity=zero)

    theirs = F.ctc_loss(
        torch.asarray(x).log_softmax(-1), torch.asarray(targets), short, OUTPUTS, reduction="none", zero_infinity=zero
    )
    np.testing.assert_allclose(loss(fb.asarray(x, device=device)).numpy(), theirs.numpy(), rtol=TOLERANCE)
    gradient = fb.grad(lambda x: fb.sum(loss(x)))(fb.asarray(x, device=device)).numpy()
    assert np.isfinite(gradient).all()
    assert not gradient[:, 0].any()
    assert gradient[:, 1].any()


def test_ctc_of_impossible_emissions_has_no_nan(device: str) -> None:
    x, targets = _ctc()
    scores = _scored(fb.asarray(x, device=device)).numpy().copy()
    scores[:, 1, :] = -math.inf
    value, gradient = fb.value_and_grad(
        lambda s: fb.sum(fb.ctc_loss(s, fb.asarray(targets, device=device), INPUTS, OUTPUTS, zero_infinity=True))
    )(fb.asarray(scores, device=device))
    assert math.isfinite(value.item())
    assert np.isfinite(gradient.numpy()).all()


def test_ctc_in_float32_stays_near_float64(device: str) -> None:
    x, targets = _ctc()
    values = [
        fb.ctc_loss(_scored(fb.asarray(x, dtype=d, device=device)), fb.asarray(targets, device=device), INPUTS, OUTPUTS)
        for d in (fb.float32, fb.float64)
    ]
    assert values[0].dtype is fb.float32
    np.testing.assert_allclose(values[0].item(), values[1].item(), rtol=1e-6)


def test_ctc_sums_over_every_alignment() -> None:
    x = _rng().normal(size=(4, 1, 3))
    scores = _scored(fb.asarray(x))
    p, total = np.exp(scores.numpy()[:, 0]), 0.0
    for path in product(range(3), repeat=4):
        merged = [c for i, c in enumerate(path) if i == 0 or path[i - 1] != c]
        if [c for c in merged if c != 0] == [1, 1]:
            total += math.prod(p[t, c] for t, c in enumerate(path))
    got = fb.ctc_loss(scores, fb.asarray([[1, 1]]), [4], [2], reduction="sum")
    np.testing.assert_allclose(got.item(), -math.log(total), rtol=1e-12)


# gradients of second order, narrow dtypes


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: fb.cross_entropy(x, fb.asarray([0, 2]), label_smoothing=0.1),
        lambda x: fb.binary_cross_entropy_with_logits(x, fb.asarray(np.full((2, 3), 0.3))),
        lambda x: fb.cosine_embedding_loss(x, x * x + 1.0, fb.asarray([1, -1])),
        lambda x: fb.triplet_margin_loss(x, x * 0.5, x + 2.0, p=3.0, margin=9.0),
        lambda x: fb.ctc_loss(fb.log_softmax(fb.reshape(x, (2, 1, 3))), fb.asarray([[1]]), [2], [1]),
    ],
    ids=["cross entropy", "bce", "cosine", "triplet", "ctc"],
)
def test_losses_are_differentiable_twice(loss: Callable[[fb.Tensor], fb.Tensor]) -> None:
    x = fb.asarray(_rng().normal(size=(2, 3)))
    fb.gradcheck(loss, [x])
    fb.gradcheck(lambda x: fb.sum(fb.grad(loss)(x) ** 2.0), [x])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_losses_keep_the_dtype_of_predictions(dtype: str, device: str) -> None:
    x = fb.asarray(X, dtype=dtype, device=device)
    labels = fb.asarray([0, 1, 2, 0], device=device)
    assert fb.cross_entropy(x, labels).dtype.name == dtype
    assert fb.smooth_l1_loss(x, x * 0.5).dtype.name == dtype
    assert fb.binary_cross_entropy_with_logits(x, x * 0.0).dtype.name == dtype


# layers

LAYERS: dict[str, tuple[nn.Module, Any, list[np.ndarray]]] = {
    "CrossEntropyLoss": (
        nn.CrossEntropyLoss("sum", weight=fb.asarray([0.5, 1.0, 2.0], dtype=fb.float64), label_smoothing=0.1, ignore_index=1),
        torch.nn.CrossEntropyLoss(
            torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64), reduction="sum", label_smoothing=0.1, ignore_index=1
        ),
        [X, np.asarray([0, 1, 2, 0])],
    ),
    "NLLLoss": (nn.NLLLoss(ignore_index=2), torch.nn.NLLLoss(ignore_index=2), [X, np.asarray([0, 1, 2, 0])]),
    "BCEWithLogitsLoss": (
        nn.BCEWithLogitsLoss(pos_weight=fb.asarray([1.0, 2.0, 3.0], dtype=fb.float64)),
        torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
        [X, np.abs(Y) % 1.0],
    ),
    "BCELoss": (nn.BCELoss("sum"), torch.nn.BCELoss(reduction="sum"), [np.abs(X) % 1.0, np.abs(Y) % 1.0]),
    "KLDivLoss": (nn.KLDivLoss("batchmean"), torch.nn.KLDivLoss(reduction="batchmean"), [X, np.abs(Y)]),
    "MSELoss": (nn.MSELoss(), torch.nn.MSELoss(), [X, Y]),
    "L1Loss": (nn.L1Loss("none"), torch.nn.L1Loss(reduction="none"), [X, Y]),
    "HuberLoss": (nn.HuberLoss(delta=0.5), torch.nn.HuberLoss(delta=0.5), [X, Y]),
    "SmoothL1Loss": (nn.SmoothL1Loss(beta=0.5), torch.nn.SmoothL1Loss(beta=0.5), [X, Y]),
    "PoissonNLLLoss": (nn.PoissonNLLLoss(full=True), torch.nn.PoissonNLLLoss(full=True), [X, np.abs(Y)]),
    "GaussianNLLLoss": (nn.GaussianNLLLoss(full=True), torch.nn.GaussianNLLLoss(full=True), [X, Y, np.abs(Y) + 0.1]),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss(margin=0.2), torch.nn.CosineEmbeddingLoss(margin=0.2), [X, Y, SIGNS]),
    "TripletMarginLoss": (
        nn.TripletMarginLoss(p=1.0, swap=True), torch.nn.TripletMarginLoss(p=1.0, swap=True), [X, Y, X + Y]
    ),
    "MarginRankingLoss": (nn.MarginRankingLoss(margin=0.1), torch.nn.MarginRankingLoss(margin=0.1), [X, Y, np.sign(X * Y)]),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss(margin=2.0), torch.nn.HingeEmbeddingLoss(margin=2.0), [X, np.sign(Y)]),
    "SoftMarginLoss": (nn.SoftMarginLoss(), torch.nn.SoftMarginLoss(), [X, np.sign(Y)]),
    "CTCLoss": (
        nn.CTCLoss(blank=4, zero_infinity=True), torch.nn.CTCLoss(blank=4, zero_infinity=True),
        [_ctc()[0], _ctc(blank=4)[1], np.asarray(INPUTS), np.asarray(OUTPUTS)],
    ),
}  # fmt: skip


def test_every_loss_layer_has_a_row() -> None:
    from firebrick.nn import losses

    found = {n for n, v in vars(losses).items() if isinstance(v, type) and issubclass(v, nn.Module) and n != "Module"}
    assert found == set(LAYERS)
    assert all(getattr(nn, n) is getattr(losses, n) for n in found)


@pytest.mark.parametrize("name", LAYERS)
def test_loss_layers_hand_their_settings_on(name: str) -> None:
    ours, theirs, arrays = LAYERS[name]
    got, want = ours(*(fb.asarray(a) for a in arrays)), theirs(*(torch.asarray(a) for a in arrays))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=TOLERANCE, atol=TOLERANCE)
    assert name in repr(ours)


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_trains_with_each_loss_as_with_torchs(name: str, train_alike: Callable[..., None]) -> None:
    ours, theirs, (like, *rest) = LAYERS[name]
    before = {"NLLLoss": "log_softmax", "CTCLoss": "log_softmax", "BCELoss": "sigmoid"}.get(name)

    def call(m: nn.Module, x: fb.Tensor) -> fb.Tensor:
        y = m(x) if before is None else getattr(fb, before)(m(x), **({} if before == "sigmoid" else {"axis": -1}))
        return ours(y, *(fb.asarray(a) for a in rest))

    def their_call(m: Any, x: Any) -> Any:
        y = m(x) if before is None else getattr(torch, before)(m(x), **({} if before == "sigmoid" else {"dim": -1}))
        return theirs(y, *(torch.asarray(a) for a in rest))

    n = like.shape[-1]
    train_alike(
        nn.Linear(2, n, dtype=fb.float64), torch.nn.Linear(2, n, dtype=torch.float64),
        lambda rng: [rng.normal(size=(*like.shape[:-1], 2))], ours_call=call, theirs_call=their_call, lr=0.1,
    )  # fmt: skip


def test_at_its_kink_a_loss_of_margins_passes_its_gradient_as_torchs_does(device: str) -> None:
    a, sign = np.asarray([1.0, 1.0, 2.0, 0.5]), np.asarray([1, -1, -1, -1])
    mine, its = fb.asarray(sign, device=device), torch.asarray(sign)
    alike(
        lambda x, y: fb.margin_ranking_loss(x, y, mine), lambda x, y: F.margin_ranking_loss(x, y, its), [a, a], device, (0, 1)
    )
    alike(lambda x: fb.hinge_embedding_loss(x, mine), lambda x: F.hinge_embedding_loss(x, its), [a], device)
    e = np.eye(2)[:1]
    alike(
        lambda x, y: fb.cosine_embedding_loss(x, y, mine[1:2]), lambda x, y: F.cosine_embedding_loss(x, y, its[1:2]),
        [e, e[:, ::-1].copy()], device, (0, 1),
    )  # fmt: skip
    triplet = [np.zeros((1, 2)), np.asarray([[3.0, 4.0]]), np.asarray([[6.0, 0.0]])]
    alike(
        lambda *t: fb.triplet_margin_loss(*t, eps=0.0), lambda *t: F.triplet_margin_loss(*t, eps=0.0), triplet, device,
        (0, 1, 2),
    )  # fmt: skip


def test_smoothing_over_labels_of_no_weight_costs_nothing(device: str) -> None:
    x = fb.asarray(_rng().normal(size=(2, 3)), device=device)
    labels, weight = fb.asarray([1, 1], device=device), fb.asarray([1.0, 0.0, 1.0], dtype=fb.float64, device=device)
    value, gradient = fb.value_and_grad(lambda x: fb.cross_entropy(x, labels, weight, label_smoothing=0.1))(x)
    assert value.item() == 0.0
    assert not gradient.numpy().any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_means_over_many_samples_or_classes_do_not_overflow(dtype: str, device: str) -> None:
    x, labels = fb.zeros((70000, 3), dtype=dtype, device=device), fb.zeros(70000, dtype=fb.int64, device=device)
    weight = fb.ones(3, dtype=dtype, device=device)
    for options in ({"ignore_index": 1}, {"weight": weight}, {"label_smoothing": 0.1, "ignore_index": 1}):
        within(fb.cross_entropy(x, labels, **options), math.log(3), 2)
    many = fb.cross_entropy(fb.zeros((2, 30000), dtype=dtype, device=device), labels[:2], label_smoothing=0.1)
    within(many, math.log(30000), 2)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_labels_and_lengths_of_a_narrow_dtype(dtype: str, device: str) -> None:
    """What they are compared with need not fit into it."""
    x = fb.asarray(_rng().normal(size=(2, 300)), device=device)
    wide, narrow = fb.asarray([1, 2], device=device), fb.asarray(np.asarray([1, 2], dtype), device=device)
    for ignored in (-100, 1, 299):
        options = {"ignore_index": ignored, "label_smoothing": 0.1}
        assert fb.cross_entropy(x, narrow, **options).item() == fb.cross_entropy(x, wide, **options).item()
        assert fb.nll_loss(x, narrow, ignore_index=ignored).item() == fb.nll_loss(x, wide, ignore_index=ignored).item()
    scores = fb.log_softmax(fb.asarray(_rng().normal(size=(300, 1, 300)), device=device))
    targets, lengths = np.tile([1, 2], (1, 55)), ([127], [100])
    want = fb.ctc_loss(scores, fb.asarray(targets, device=device), *lengths, blank=299).item()
    given = [fb.asarray(np.asarray(a, dtype), device=device) for a in (targets, *lengths)]
    assert fb.ctc_loss(scores, *given, blank=299).item() == want


def test_ctc_hides_no_nan(device: str) -> None:
    x = fb.full((3, 1, 2), math.nan, dtype=fb.float64, device=device)
    for zero in (False, True):
        assert math.isnan(fb.ctc_loss(x, fb.asarray([[1]], device=device), [3], [1], zero_infinity=zero).item())


def test_a_class_weight_is_saved_and_moves_with_the_layer() -> None:
    loss = nn.CrossEntropyLoss(weight=fb.asarray([1.0, 3.0]))
    assert list(loss.state_dict()) == ["weight"]
    loss.to("numpy")
    labels = fb.asarray([0, 1], device="numpy")
    np.testing.assert_allclose(loss(fb.zeros((2, 2), device="numpy"), labels).item(), math.log(2.0), rtol=1e-6)


# refusals

V, W = fb.zeros((2, 3)), fb.zeros((3, 2))
BAD: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "labels too large": (IndexError, lambda: fb.nll_loss(V, fb.asarray([0, 3])), r"nll_loss: labels must lie in \[0, 3\)"),
    "an ignored label apart": (
        fb.OutOfRangeError, lambda: fb.cross_entropy(V, fb.asarray([-100, -1]), ignore_index=-100), "labels from -1 to -1",
    ),
    "torch's default is no default here": (IndexError, lambda: fb.cross_entropy(V, fb.asarray([-100, 1])), "ignore_index"),
    "labels of another shape": (fb.ShapeError, lambda: fb.cross_entropy(V, fb.asarray([0])), r"\[batch, classes, …\]"),
    "float labels": (fb.DTypeError, lambda: fb.nll_loss(V, fb.ones(2)), "labels need an integer dtype"),
    "integer logits": (fb.DTypeError, lambda: fb.cross_entropy(fb.asarray([[1, 2]]), fb.asarray([0])), "logits needs a float"),
    "weights of another length": (
        fb.ShapeError, lambda: fb.cross_entropy(V, fb.asarray([0, 1]), fb.ones(2)), r"weight is \[3\]",
    ),
    "weights of an array": (
        fb.OperandError, lambda: fb.cross_entropy(V, fb.asarray([0, 1]), np.ones(3)), "weight must be a Firebrick",  # type: ignore[arg-type]
    ),
    "smoothing beyond 1": (
        fb.ConfigError, lambda: fb.cross_entropy(V, fb.asarray([0, 1]), label_smoothing=1.5), "label_smoothing lies in",
    ),
    "ignored probabilities": (fb.ConfigError, lambda: fb.cross_entropy(V, V, ignore_index=0), "ignore_index is for labels"),
    "numbers for probabilities": (
        fb.OutOfRangeError, lambda: fb.cross_entropy(V, V - 1.0), r"the values of labels must be in \[0, 1\]",
    ),
    "probabilities of one class": (
        fb.ShapeError, lambda: fb.cross_entropy(V[:, :1], V[:, :1]), "of one, the loss is 0 for any logits",
    ),
    "signs for targets": (
        fb.OutOfRangeError, lambda: fb.binary_cross_entropy_with_logits(V, V - 1.0), r"values of target must be in \[0, 1\]",
    ),
    "class numbers for targets": (
        fb.OutOfRangeError, lambda: fb.binary_cross_entropy(V, V + 2.0), r"values of target must be in \[0, 1\]",
    ),
    "an unknown reduction": (
        fb.ConfigError, lambda: fb.mse_loss(V, V, reduction="avg"), 'mse_loss: reduction is "mean", "sum" or "none"',
    ),
    "kl's reductions": (fb.ConfigError, lambda: fb.kl_div(V, V, reduction="batch"), '"none" or "batchmean"'),
    "kl of no batch": (fb.ShapeError, lambda: fb.kl_div(V[0, 0], V[0, 0], reduction="batchmean"), "batchmean needs a batch"),
    "targets that broadcast": (fb.ShapeError, lambda: fb.l1_loss(V, W), "l1_loss needs equal shapes"),
    "bce of other shapes": (fb.ShapeError, lambda: fb.binary_cross_entropy(V, W), "probability: float32.2,3."),
    "a weight that does not broadcast": (
        fb.ShapeError, lambda: fb.binary_cross_entropy_with_logits(V, V, pos_weight=fb.ones(2)), "pos_weight broadcasts to",
    ),
    "delta 0": (fb.ConfigError, lambda: fb.huber_loss(V, V, delta=0.0), "delta is a finite number > 0"),
    "a negative beta": (fb.ConfigError, lambda: fb.smooth_l1_loss(V, V, beta=-1.0), "beta is a finite number ≥ 0"),
    "labels for signs": (
        fb.OutOfRangeError, lambda: fb.hinge_embedding_loss(V[0], fb.asarray([0, 1, 1])), "signs are 1 or -1\nReceived: .* 0 a",
    ),
    "a margin no cosine has": (
        fb.ConfigError, lambda: fb.cosine_embedding_loss(V, V, fb.ones(2), margin=2.0), r"margin lies in \[-1, 1\]",
    ),
    "triplets of unlike shapes": (fb.ShapeError, lambda: fb.triplet_margin_loss(V, V, W), "negative: float32.3,2."),
    "p below 1": (fb.ConfigError, lambda: fb.triplet_margin_loss(V, V, V, p=0.5), "p is a number ≥ 1"),
    "ctc of two axes": (fb.ShapeError, lambda: fb.ctc_loss(V, fb.asarray([[1]]), [2], [1]), r"\[time, batch, classes\]"),
    "a target that is the blank": (
        fb.OutOfRangeError, lambda: fb.ctc_loss(V[:, None], fb.asarray([[0]]), [2], [1]), "no target is the blank, 0",
    ),
    "a target that is no class": (
        fb.OutOfRangeError, lambda: fb.ctc_loss(V[:, None], fb.asarray([[3]]), [2], [1]), r"targets must lie in \[0, 3\)",
    ),
    "an input too long": (
        fb.OutOfRangeError, lambda: fb.ctc_loss(V[:, None], fb.asarray([[1]]), [3], [1]), r"input_lengths lie in \[0, 2\]",
    ),
    "a length too many": (
        fb.ShapeError, lambda: fb.ctc_loss(V[:, None], fb.asarray([[1]]), [2, 2], [1]), "input_lengths holds 1 numbers",
    ),
    "targets that do not add up": (
        fb.ShapeError, lambda: fb.ctc_loss(V[:, None], fb.asarray([1, 1]), [2], [1]), "lengths that add up to 1",
    ),
    "a blank that is no class": (
        fb.ConfigError, lambda: fb.ctc_loss(V[:, None], fb.asarray([[1]]), [2], [1], blank=3), r"blank is a class, in \[0, 3\)",
    ),
    "a layer's reduction": (fb.ConfigError, lambda: nn.HuberLoss("avg"), "HuberLoss: reduction is"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_has_no_meaning_is_refused(case: str) -> None:
    kind, call, text = BAD[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("jit", [False, True])
def test_targets_that_are_no_probabilities_are_refused_in_each_run_and_rounded_ones_are_not(jit: bool, device: str) -> None:
    loss = fb.jit(fb.binary_cross_entropy_with_logits) if jit else fb.binary_cross_entropy_with_logits
    x = fb.zeros(2, device=device)
    for target in ([0.0, 1.0], [-1e-4, 1.0005]):
        assert abs(loss(x, fb.asarray(target, device=device)).item() - math.log(2.0)) < 1e-3
    with pytest.raises(fb.OutOfRangeError, match="of labels -1 and 1"):
        loss(x, fb.asarray([-1.0, 1.0], device=device)).item()


def test_losses_of_the_meta_device_have_shapes_only() -> None:
    x, labels = fb.zeros((4, 3), device="meta"), fb.zeros((4,), dtype=fb.int64, device="meta")
    assert fb.cross_entropy(x, labels, ignore_index=1).shape == ()
    assert fb.hinge_embedding_loss(x, x, reduction="none").shape == (4, 3)
    assert fb.ctc_loss(x[:, None], fb.zeros((1, 2), dtype=fb.int64, device="meta"), [4], [2], reduction="none").shape == (1,)


@pytest.mark.parametrize("scale", [1e-3, 200.0])
def test_cosines_of_half_precision_survive_squares_that_it_cannot_hold(scale: float, device: str) -> None:
    a = (np.random.default_rng(0).uniform(0.5, 1.0, (2, 60)) * scale).astype(np.float16)
    x, y = (fb.asarray(v, device=device) for v in (a, a[::-1].copy()))
    a = a.astype(np.float64)
    want = (a[0] @ a[1]) / np.linalg.norm(a[0]) / np.linalg.norm(a[1])
    found = fb.cosine_similarity(x, y)
    assert found.dtype is fb.float16
    within(found, want, 1)
    loss = fb.cosine_embedding_loss(x, y, fb.asarray([1, 1], device=device))
    within(loss, 1.0 - want, 2, scale=1.0)  # a difference of cosines
    assert np.isfinite(fb.grad(lambda v: fb.sum(fb.cosine_similarity(v, y)))(x).numpy()).all()


def test_ctc_of_scores_whose_batch_comes_first_says_to_swap_the_axes() -> None:
    scores, targets = fb.zeros((3, 7, 5)), fb.ones((3, 2), dtype=fb.int64)
    lengths = fb.asarray([7, 7, 7]), fb.asarray([2, 1, 2])
    with pytest.raises(fb.ShapeError, match=r"swapaxes\(log_probabilities, 0, 1\)"):
        fb.ctc_loss(scores, targets, *lengths)
    fb.ctc_loss(fb.swapaxes(scores, 0, 1), targets, *lengths)
    with pytest.raises(fb.ShapeError, match="pad the targets to one length"):
        fb.ctc_loss(fb.zeros((7, 4, 5)), targets, *lengths)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda w: fb.nn.CrossEntropyLoss(weight=w), "CrossEntropyLoss: the values of weight"),
        (lambda w: fb.nn.NLLLoss(weight=w), "NLLLoss: the values of weight"),
        (lambda w: fb.nn.BCELoss(weight=w), "BCELoss: the values of weight"),
        (lambda w: fb.nn.BCEWithLogitsLoss(weight=w), "BCEWithLogitsLoss: the values of weight"),
        (lambda w: fb.nn.BCEWithLogitsLoss(pos_weight=w), "BCEWithLogitsLoss: the values of pos_weight"),
    ],
)
def test_a_loss_is_not_made_with_negative_weights(make: Any, name: str) -> None:
    with pytest.raises(fb.OutOfRangeError, match=f"{name} must be ≥ 0"):
        make(fb.asarray([1.0, -0.5]))
    assert make(fb.asarray([1.0, 0.0])) is not None
