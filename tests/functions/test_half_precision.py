"""Every public function of float16 and bfloat16 gives what float64 gives, rounded once: nothing is rounded or overflows inside.

Operands near 300 square past float16's largest number, means of 300 lose what is centred to rounding, and small operands
square to zero. Where the function's own result is an ordinary number, it must come out, and so must its gradient.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forced import kernels_of_any_size
from sample_arguments import Call, calls

import firebrick as fb
from firebrick.compiler.fusion import expand
from firebrick.core import precision, trees

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
PROFILES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda a: a,
    "near 300": lambda a: a * 200,
    "mean far above the spread": lambda a: 300 + 2 * a,
    "small": lambda a: a * 1e-4,
    "near the maximum": lambda a: np.clip(a * 2e4, -6e4, 6e4),
}
PLACES = [("numpy", False), ("torch:cpu", False), ("cpu", True)]
"""Device, and whether under ``jit`` with kernels of any size."""

# arguments that are no magnitudes, and stay as they are
FIXED = {"sign", "q", "probability"}
BOUNDED = {("binary_cross_entropy_with_logits", "target")}
# their results are known by values, or are whole numbers and choices, which one rounding may change
LEFT_OUT = {
    "argwhere", "flatnonzero", "nonzero", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "bincount", "masked_select", "repeat", "allclose", "nextafter", "floor_divide", "remainder", "empty_like", "clip",
    "masked_fill", "isclose", "astype", "histogram",
}  # fmt: skip

ROWS = np.random.default_rng(0).normal(size=(6, 300)).astype(np.float32)
IMAGES = np.random.default_rng(1).normal(size=(4, 6, 7, 8)).astype(np.float32)
VECTOR_NORM, MATRIX_NORM = fb.linalg.vector_norm, fb.linalg.matrix_norm
LARGER: dict[str, tuple[Callable[..., Any], Any]] = {
    "vector_norm of all": (VECTOR_NORM, ROWS),
    "vector_norm of rows": (lambda x: VECTOR_NORM(x, axis=1), ROWS),
    "vector_norm of power 3": (lambda x: VECTOR_NORM(x, axis=1, ord=3), ROWS),
    "vector_norm of power -2": (lambda x: VECTOR_NORM(x, axis=1, ord=-2), ROWS),
    "matrix_norm": (MATRIX_NORM, ROWS),
    "norm": (fb.linalg.norm, ROWS),
    "var of rows": (lambda x: fb.var(x, axis=1), ROWS),
    "var of columns": (lambda x: fb.var(x, axis=0), ROWS),
    "std of all": (fb.std, ROWS),
    "nanvar": (lambda x: fb.nanvar(x, axis=1), ROWS),
    "nanstd": (lambda x: fb.nanstd(x, axis=0), ROWS),
    "mean of columns": (lambda x: fb.mean(x, axis=0), ROWS),
    "cumulative_sum": (lambda x: fb.cumulative_sum(x, axis=1), ROWS),
    "logsumexp": (lambda x: fb.logsumexp(x, axis=1), ROWS),
    "log_softmax": (lambda x: fb.log_softmax(x, axis=1), ROWS),
    "layer_norm": (fb.layer_norm, ROWS),
    "rms_norm": (lambda x: fb.rms_norm(x, eps=1e-5), ROWS),
    "batch_norm of rows": (fb.batch_norm, ROWS),
    "batch_norm of images": (fb.batch_norm, IMAGES),
    "instance_norm": (fb.instance_norm, IMAGES),
    "group_norm": (lambda x: fb.group_norm(x, 2), IMAGES),
    "local_response_norm": (lambda x: fb.local_response_norm(x, 3), IMAGES),
    "avg_pool2d of whole images": (lambda x: fb.avg_pool2d(x, (7, 8)), IMAGES),
    "adaptive_avg_pool2d": (lambda x: fb.adaptive_avg_pool2d(x, 3), IMAGES),
    "interpolate": (lambda x: fb.interpolate(x, (13, 17), mode="bilinear"), IMAGES),
    "trapezoid": (fb.trapezoid, ROWS),
    "cov": (fb.cov, ROWS),
    "corrcoef": (fb.corrcoef, ROWS),
    "mse_loss": (lambda x: fb.mse_loss(x, x[::-1]), ROWS),
    "cosine_similarity": (lambda x: fb.cosine_similarity(x, x[::-1]), ROWS),
    "triplet_margin_loss": (lambda x: fb.triplet_margin_loss(x, x[::-1], x[:, ::-1]), ROWS),
    "cross_entropy": (lambda x: fb.cross_entropy(x, fb.asarray(range(6), device=x.device), label_smoothing=0.1), ROWS),
    "third differences": (lambda x: fb.diff(x, n=3), ROWS),
}
CASES = {c.name: c for c in calls() if c.name not in LEFT_OUT}
CASES |= {name: Call(name, function, {"x": x}) for name, (function, x) in LARGER.items()}


def rounded(call: Call, profile: str, half: str) -> dict[str, Any]:
    """A call's arguments with floats of a magnitude, rounded to half precision, as float64."""
    out = dict(call.arrays)
    for key, value in out.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            fixed = key in FIXED or call.name == "binary_cross_entropy" or (call.name, key) in BOUNDED
            made = (value if fixed else PROFILES[profile](value)).astype(np.float64)
            out[key] = made.astype(HALVES[half]).astype(np.float64)
    return out


def floats(result: Any) -> list[fb.Tensor]:
    return [t for t in trees.flatten(result)[0] if isinstance(t, fb.Tensor) and t.dtype.kind == "float"]


def computed(call: Call, arrays: dict[str, Any], device: str, dtype: str, compiled: bool, half: str) -> list[list[Any]]:
    """The floating results, and the gradients by floating arguments of a sum of results with weights in half precision."""
    arguments = {k: fb.asarray(v, device=device) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
    names = [k for k, v in arrays.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    tensors = [fb.astype(arguments[n], getattr(fb, dtype)) for n in names]
    wide = fb.float64 if dtype == "float64" else fb.float32

    def function(given: list[fb.Tensor]) -> Any:
        keywords = {"eps": 1e-5} if call.name == "rms_norm" and len(arrays) > 1 else {}  # its own is the dtype's precision
        return call({**arguments, **dict(zip(names, given, strict=True))}, **keywords)

    def weighed(given: list[fb.Tensor]) -> Any:
        total: Any = None
        for k, t in enumerate(floats(function(given))):
            weights = np.cos(np.arange(t.size) + k).astype(HALVES[half]).astype(np.float64).reshape(t.shape)
            part = fb.sum(fb.astype(t, wide) * fb.asarray(weights, dtype=wide, device=device))
            total = part if total is None else total + part
        return total

    gradient = fb.grad(weighed)
    values, slopes = (fb.jit(function), fb.jit(gradient)) if compiled else (function, gradient)
    found = [[t.numpy() for t in floats(values(tensors))]]
    if found[0]:
        try:
            found.append([t.numpy() for t in floats(slopes(tensors))])
        except (fb.GradientError, fb.OperandError):  # no result depends on an operand
            found.append([])
    return found


def check(call: Call, device: str, compiled: bool, profile: str, half: str) -> None:
    arrays = rounded(call, profile, half)
    if not any(isinstance(v, np.ndarray) and v.dtype.kind == "f" for v in arrays.values()):
        return
    want = computed(call, arrays, "numpy", "float64", False, half)
    single = computed(call, arrays, "numpy", "float32", False, half)
    got = computed(call, arrays, device, half, compiled, half)
    for gots, wants, singles in zip(got, want, single, strict=True):
        for g, w, s in zip(gots, wants, singles, strict=True):
            close(g, w.astype(np.float64), s.astype(np.float64))


@np.errstate(all="ignore")
def close(got: Any, want: Any, single: Any) -> None:
    """Assert that results are within three roundings of the largest, plus what float32 loses, where they can be had."""
    assert got.shape == want.shape
    limits = ml_dtypes.finfo(got.dtype)
    exact = want.astype(got.dtype).astype(np.float64)  # infinite where the dtype has no such number
    lost = np.abs(single - want)
    defined = np.isfinite(exact) & np.isfinite(lost) & (np.abs(want) < 0.97 * float(limits.max))
    size = np.max(np.abs(want), initial=0.0, where=defined)
    bound = 3 * float(limits.eps) * size + 4 * lost + 2 * float(limits.smallest_subnormal)
    error = np.abs(got.astype(np.float64) - want)
    wrong = defined & ~(error <= bound)
    assert not wrong.any(), f"got {got[wrong][:5]}, want {want[wrong][:5]}, to {size * float(limits.eps)}"


@pytest.fixture(autouse=True)
def small_kernels() -> Iterator[None]:
    with kernels_of_any_size():
        yield


@pytest.mark.turns
@pytest.mark.parametrize(("device", "compiled"), PLACES)
@pytest.mark.parametrize("name", CASES)
def test_half_precision_rounds_once(name: str, device: str, compiled: bool) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch")
    # each function meets other magnitudes on another engine
    turn = zlib.crc32(name.encode()) + [d for d, _ in PLACES].index(device)
    profiles = [(profile, half) for half in HALVES for profile in PROFILES]
    check(CASES[name], device, compiled, *profiles[turn % len(profiles)])
    if device == "numpy":
        check(CASES[name], device, compiled, "near 300", "float16")


def test_the_sweep_sees_a_function_that_squares_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "widened", lambda x: x)
    with pytest.raises(AssertionError, match="got"):
        check(CASES["cosine_similarity"], "numpy", False, "near the maximum", "float16")
    with pytest.raises(AssertionError, match="got"):
        check(CASES["batch_norm"], "numpy", False, "near the maximum", "float16")


def test_the_sweep_sees_a_mean_that_is_rounded_between_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def unrounded(self: Any, rule: Any) -> Any:
        return rule(self, *(self.into.number[v] for v in self.node.inputs))

    monkeypatch.setattr(expand._Expansion, "values", unrounded)
    with pytest.raises(AssertionError, match="got"):
        check(CASES["batch_norm of rows"], "cpu", True, "mean far above the spread", "bfloat16")


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_a_batch_near_300_is_normalised_as_in_float64(device: str) -> None:
    x = fb.asarray([[300, 1], [-300, 2], [310, 4]], dtype=fb.float16, device=device)
    wide = x.numpy().astype(np.float64)
    want = (wide - wide.mean(0)) / wide.std(0)
    for function in (fb.batch_norm, fb.jit(lambda x: fb.batch_norm(x))):
        np.testing.assert_allclose(function(x).numpy().astype(np.float64), want, rtol=2e-3)
        got = function(fb.astype(x, fb.bfloat16)).numpy().astype(np.float64)
        np.testing.assert_allclose(got, (b := x.numpy().astype(ml_dtypes.bfloat16).astype(np.float64)) * 0
                                   + (b - b.mean(0)) / b.std(0), rtol=2e-2)  # fmt: skip


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_a_long_vector_near_300_has_its_norm_and_gradient(device: str) -> None:
    x = fb.full((300,), 300.0, dtype=fb.float16, device=device)
    for function in (VECTOR_NORM, fb.jit(lambda x: VECTOR_NORM(x))):
        assert function(x).item() == np.float16(300 * 300**0.5)
        slopes = fb.grad(function)(x).numpy()
        np.testing.assert_allclose(slopes.astype(np.float64), np.full(300, 300**-0.5), rtol=1e-3)


def test_errors_name_the_caller_s_half_precision_tensors() -> None:
    x = fb.zeros((2, 3), dtype=fb.float16)
    with pytest.raises(fb.ShapeError, match=r"prediction: float16\[2,3\]"):
        fb.mse_loss(x, x[:1])


def test_autocast_keeps_what_it_computes_in_float32() -> None:
    x = fb.ones((2, 3), dtype=fb.float16)
    assert fb.mse_loss(x, x).dtype is fb.float16
    with fb.autocast("float16"):
        assert fb.mse_loss(x, x).dtype is fb.float32
        assert fb.silu(x).dtype is fb.float16
