"""Numbers of extreme magnitude: a finite result is the right one, and a sum that overflowed is not divided by without notice.

Arguments of every public function are drawn from denormal numbers to the largest finite one: all of one magnitude, mixed,
equal, or with an infinity. Float64 gives what float32 should, and how far that moves when the arguments move by a rounding.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sample_arguments import Call, calls

import firebrick as fb
from firebrick.core import trees
from firebrick.functions import normalisation
from firebrick.testing import engines

TOP, TINY, EPS = (float(getattr(np.finfo(np.float32), name)) for name in ("max", "smallest_normal", "eps"))
MAGNITUDES = [*(10.0**e for e in (-37, -25, -19, -15, -10, 0, 0, 0, 7, 10, 15, 19, 25, 37)), TINY / 64, TOP / 2.1]
TIES = [1e7, 1e10, 1e15, 1e19, TOP / 4, TOP]

# results that may be differences, of numbers which are rounded before, far smaller than these
CANCEL = {
    "triplet_margin_loss", "corrcoef", "trapezoid", "cosine_embedding_loss", "ctc_loss", "cross_entropy",
    "binary_cross_entropy_with_logits", "local_response_norm",
}  # fmt: skip
# products on the way that are denormal numbers, of factors far apart
UNDERFLOW = {
    "nll_loss", "average", "nanprod", "prod", "batch_norm", "rms_norm", "pow", "local_response_norm", "cosine_similarity",
    "layer_norm",
}  # fmt: skip
OTHERS = {
    "dropout", "empty_like", "nextafter", "nan_to_num",  # no function of the numbers, or of the dtype too
    "complex", "astype",  # a part that is infinite; a dtype that is given
    "scaled_dot_product_attention",  # scores overflow to an infinity of either sign
}  # fmt: skip
CASES = {c.name: c for c in calls() if any(a.dtype.kind == "f" for a in c.arrays.values() if isinstance(a, np.ndarray))}


def drawn(call: Call, seed: int) -> dict[str, Any]:
    """Values for the floating arguments, as float32."""
    rng = np.random.default_rng([seed, zlib.crc32(call.name.encode())])
    positive, found = rng.random() < 0.4, {}
    for key, like in call.arrays.items():
        if not isinstance(like, np.ndarray) or like.dtype.kind != "f":
            continue
        kind = rng.choice(["one", "mixed", "ties", "infinity"], p=[0.5, 0.3, 0.1, 0.1])
        magnitudes = [m for m in MAGNITUDES if call.name not in UNDERFLOW or m >= 1e-10]
        if call.name in UNDERFLOW and kind == "mixed":
            kind = "one"
        if kind == "ties":
            x = np.full(like.shape, rng.choice(TIES))
        else:
            x = rng.choice(magnitudes, like.shape if kind == "mixed" else ()) * rng.uniform(0.5, 2, like.shape)
        if kind == "infinity":
            x.flat[rng.integers(x.size)] = np.inf
        found[key] = (x if positive else x * rng.choice([-1, 1], x.shape)).astype(np.float32)
    return found


def computed(call: Call, values: dict[str, Any], device: str, gradients: bool = False, compiled: bool = False) -> list[Any]:
    """The floating results, or the gradients of their sum with weights, as float64."""
    given = call.on(device)

    def function(tensors: list[fb.Tensor]) -> list[fb.Tensor]:
        keywords = {"eps": 1e-6} if call.name == "rms_norm" else {}  # its own is the dtype's precision
        found = trees.flatten(call({**given, **dict(zip(values, tensors, strict=True))}, **keywords))[0]
        return [t for t in found if isinstance(t, fb.Tensor) and t.dtype.kind == "float"]

    def pulled(tensors: list[fb.Tensor]) -> list[fb.Tensor]:
        y, pullback = fb.vjp(lambda *x: fb.concat([t.reshape(-1) for t in function(list(x))]), *tensors)
        return list(trees.flatten(pullback(fb.asarray(1.0 + np.arange(y.size) % 3 / 4, device=device, dtype=y.dtype)))[0])

    run = pulled if gradients else function
    found = (fb.jit(run) if compiled else run)([fb.asarray(v, device=device) for v in values.values()])
    return [np.asarray(t.numpy(), np.float64) for t in found]


@np.errstate(all="ignore")
def wrong(call: Call, values: dict[str, Any], devices: tuple[str, ...], gradients: bool, compiled: bool = False) -> str | None:
    """What is finite and not right, on the first device that has it."""
    wide = {k: v.astype(np.float64) for k, v in values.items()}
    rng = np.random.default_rng(0)
    moved = {k: v * (1 + EPS * rng.uniform(-1, 1, v.shape)) for k, v in wide.items()}
    try:
        if gradients and not all(np.all(np.abs(y) <= TOP) for y in computed(call, wide, "numpy")):
            return None  # the result shows it
        want = computed(call, wide, "numpy", gradients)
        apart = [np.abs(a - b) for a, b in zip(want, computed(call, moved, "numpy", gradients), strict=True)]
    except (fb.FirebrickError, ValueError):  # values that are refused, or no float that depends on them
        return None
    for device in devices:
        for k, (got, right, far) in enumerate(
            zip(computed(call, values, device, gradients, compiled), want, apart, strict=True)
        ):
            known = np.isfinite(right) & (np.abs(right) <= TOP)
            size = np.max(np.abs(right), where=known, initial=0.0) if gradients else np.abs(right)
            off = known & np.isfinite(far) & (np.abs(got - right) > 50 * far + 1e-3 * size + 64 * TINY)
            lost = ~(np.abs(right) <= 1.01 * TOP) & (np.isfinite(far) | ~np.isfinite(right))
            at = np.isfinite(got) & (off | lost)
            if at.any():
                return f"{call.name} on {device}, result {k}: {got[at][:3]} is {right[at][:3]}, of {values}"
    return None


def faults(names: Any, seeds: range, devices: tuple[str, ...], gradients: bool, compiled: bool = False) -> list[str]:
    found = [wrong(CASES[n], drawn(CASES[n], s), devices, gradients, compiled) for n in names for s in seeds]
    return [f for f in found if f]


DATA_DEPENDENT = {
    "allclose", "bincount", "masked_select", "nonzero", "argwhere", "flatnonzero", "repeat", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "histogram",
}  # fmt: skip
VALUES = sorted(CASES.keys() - OTHERS - {"triplet_margin_loss"})
GRADIENTS = sorted(CASES.keys() - OTHERS - CANCEL)
HOSTS = tuple(d for d in engines().usable if d != "webgpu")


ROW, IMAGE = np.asarray([[1.0, 2.0, -3.0, 0.5]]) * 5e24, np.asarray([[[1.0, 2.0, -3.0], [4.0, 0.5, 1.0]]]) * 5e24
ONES = np.ones((1, 4))
OVERFLOWS: dict[str, tuple[Callable[..., Any], Any]] = {
    "layer_norm": (fb.layer_norm, ROW),
    "layer_norm, weight and bias": (lambda x: fb.layer_norm(x, weight=x[0] * 0.0 + 1.0, bias=x[0] * 0.0), ROW),
    "layer_norm of few numbers": (lambda x: fb.layer_norm(x, weight=x[0] * 0.0, bias=x[0] * 0.0), ROW[:, :2] * [[1.0, 1e13]]),
    "rms_norm": (fb.rms_norm, ROW),
    "batch_norm": (fb.batch_norm, ROW.T),
    "batch_norm, statistics": (lambda x: fb.batch_norm(x, mean=x[0], variance=x[0] * x[0]), ROW),
    "group_norm": (lambda x: fb.group_norm(x, 1), ROW),
    "instance_norm": (fb.instance_norm, IMAGE),
    "local_response_norm": (lambda x: fb.local_response_norm(x, 2, alpha=1.0), IMAGE),
    "cosine_similarity": (lambda x: fb.cosine_similarity(x, x / 4.0), ONES * 3e38),
    "cosine_embedding_loss": (lambda x: fb.cosine_embedding_loss(x, x * 1e-25, fb.ones(1, device=x.device)), ROW),
    "corrcoef": (lambda x: fb.corrcoef(x.reshape(2, 2) * 2.0), np.asarray([[1.0, -1, 1, 1]]) * 1.6e38),
    "average": (lambda x: fb.average(x / 1e38 / 1e10, weights=x), ONES * 1e38),
    "nll_loss": (lambda x: fb.nll_loss(x / 1e38 / 1e10 + x.T * 0.0, fb.asarray(range(4), device=x.device), x[0]), ONES * 1e38),
    "mean of Beta": (lambda x: fb.distributions.Beta(x, x).mean, ONES * 2e38),
    "mean of Dirichlet": (lambda x: fb.distributions.Dirichlet(x).mean, ONES * 1e38),
    "entropy of Categorical": (lambda x: fb.distributions.Categorical(probs=x).entropy(), ONES * 1e38),
    "mean of Multinomial": (lambda x: fb.distributions.Multinomial(3, probs=x).mean, ONES * 1e38),
}  # fmt: skip


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_is_divided_by_a_sum_that_overflowed_is_not_zero(name: str, device: Any) -> None:
    """All were 0, or what 0 gives, and most gradients too."""
    function, x = OVERFLOWS[name]
    tensor = fb.asarray(x.astype(np.float32), device=device)
    gradient = fb.grad(lambda x: fb.sum(function(x)))
    for run in (function, gradient):
        for f in (run, fb.jit(lambda x, run=run: run(x))):
            assert not np.isfinite(f(tensor).numpy()).any()


def test_a_row_that_overflows_beside_one_that_is_nan_is_not_zero(device: Any) -> None:
    x = fb.asarray(np.asarray([[np.nan, 1.0, 2.0], [0.0, -2.9e19, 0.0], [1.0, 2.0, 3.0]], np.float32), device=device)
    for found in (fb.layer_norm(x, weight=fb.ones(3, device=device), bias=fb.zeros(3, device=device)), fb.batch_norm(x.T)):
        assert np.isfinite(found.numpy()).sum() == 3


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("large", [1e9, 1e30])
def test_the_gradient_of_cumulative_logsumexp_is_that_of_smaller_numbers_of_equal_differences(
    large: float, reverse: bool, device: Any
) -> None:
    """It took exp(x - y) for the part of x in its sum, where y is rounded: two parts of equal numbers were 1 and 1."""
    weights = np.asarray([1.0, 2.0, 3.0, 4.0], np.float32)

    def loss(x: Any) -> Any:
        y = fb.cumulative_logsumexp(fb.flip(x) if reverse else x)
        return fb.sum(y * fb.asarray(weights, device=x.device))

    want = np.asarray([4 / 3, 17 / 6, 29 / 6, 1.0] if reverse else [13 / 3, 10 / 3, 7 / 3, 0.0])
    for gradient in (fb.grad(loss), fb.jit(lambda x: fb.grad(loss)(x))):
        got = gradient(fb.asarray(np.asarray([large] * 3 + [-large], np.float32), device=device)).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_the_gradient_of_a_norm_of_large_numbers_is_that_of_small_ones_scaled(device: Any) -> None:
    """On numpy it was off by half: three small factors were multiplied first."""
    x, weight = np.random.default_rng(0).normal(size=(1, 2, 9)).astype(np.float32), np.asarray([2e-16, 3e-16], np.float32)

    def gradient(scale: float) -> Any:
        w = fb.asarray(weight, device=device)
        loss = lambda x: fb.sum(fb.instance_norm(x, weight=w, eps=0.0) * fb.cos(fb.arange(9.0, device=device)))  # noqa: E731
        return fb.grad(loss)(fb.asarray(x * np.float32(scale), device=device)).numpy() * np.float32(scale)

    np.testing.assert_allclose(gradient(2.0**52), gradient(1.0), rtol=1e-4, atol=1e-21)


def test_the_cosine_of_large_vectors_is_a_cosine(device: Any) -> None:
    """The product of two sums of squares overflowed from 1e10 on, and the loss was that of a cosine of 0."""
    x, y = (fb.asarray(np.asarray([v], np.float32) * 1e15, device=device) for v in ([3.0, 4.0], [4.0, 3.0]))
    assert fb.cosine_embedding_loss(x, y, fb.ones(1, device=device)).item() == pytest.approx(0.04, abs=1e-6)


def test_finite_results_and_gradients_are_right() -> None:
    assert not faults(VALUES, range(2), HOSTS, False)
    assert not faults(GRADIENTS, range(1), HOSTS, True)


@pytest.mark.soak
@pytest.mark.parametrize("gradients", [False, True])
def test_finite_results_and_gradients_are_right_of_many_draws(gradients: bool) -> None:
    assert not faults(GRADIENTS if gradients else VALUES, range(2, 60), HOSTS, gradients)


@pytest.mark.soak
@pytest.mark.parametrize("gradients", [False, True])
def test_finite_results_and_gradients_of_compiled_functions_are_right(gradients: bool) -> None:
    devices = tuple(d for d in engines().usable if d in ("cpu", "webgpu"))
    names = set(GRADIENTS if gradients else VALUES) - DATA_DEPENDENT
    assert not faults(sorted(names), range(3), devices, gradients, True)


def test_the_draws_see_a_sum_that_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not faults(["local_response_norm"], range(20), ("numpy",), False)
    monkeypatch.setattr(normalisation, "divisor", lambda total: total)
    assert faults(["local_response_norm"], range(20), ("numpy",), False)
