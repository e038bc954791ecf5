"""Activation functions against PyTorch's in float64: values and gradients, at kinks, in tails and between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

torch = pytest.importorskip("torch")
F = torch.nn.functional

KINKS = [-6.0, -3.0, -1.0, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 1.0, 3.0, 6.0]
TAILS = [-700.0, -50.0, -19.5, 19.5, 50.0, 700.0]
X = np.asarray(KINKS + TAILS + list(np.random.default_rng(0).uniform(-8, 8, 46)))

SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gelu": (fb.gelu, F.gelu),
    "gelu tanh": (lambda x: fb.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "silu": (fb.silu, F.silu),
    "mish": (fb.mish, F.mish),
    # PyTorch's softplus is the identity past a threshold: put past every x here
    "softplus": (fb.softplus, lambda x: F.softplus(x, threshold=1e9)),
    "softplus beta": (lambda x: fb.softplus(x, beta=0.5), lambda x: F.softplus(x, beta=0.5, threshold=1e9)),
    "log_sigmoid": (fb.log_sigmoid, F.logsigmoid),
    "leaky_relu": (fb.leaky_relu, F.leaky_relu),
    "leaky_relu slope": (lambda x: fb.leaky_relu(x, negative_slope=0.2), lambda x: F.leaky_relu(x, 0.2)),
    "elu": (fb.elu, F.elu),
    "elu alpha": (lambda x: fb.elu(x, alpha=0.5), lambda x: F.elu(x, 0.5)),
    "celu": (lambda x: fb.celu(x, alpha=0.5), lambda x: F.celu(x, 0.5)),
    "selu": (fb.selu, F.selu),
    "relu": (fb.relu, F.relu),
    "relu6": (fb.relu6, F.relu6),
    "hardtanh": (lambda x: fb.hardtanh(x, min_val=-0.5, max_val=1.0), lambda x: F.hardtanh(x, -0.5, 1.0)),
    # PyTorch's own slope is 1/6 in float32 only
    "hardsigmoid": (fb.hardsigmoid, lambda x: F.relu6(x + 3) / 6),
    "hardswish": (fb.hardswish, F.hardswish),
    "softsign": (fb.softsign, F.softsign),
    "tanhshrink": (fb.tanhshrink, F.tanhshrink),
    "softshrink": (fb.softshrink, F.softshrink),
    "hardshrink": (fb.hardshrink, F.hardshrink),
    "threshold": (lambda x: fb.threshold(x, 0.5, -3.0), lambda x: F.threshold(x, 0.5, -3.0)),
    "glu": (fb.glu, F.glu),
    "swiglu": (fb.swiglu, lambda x: F.silu(x[: len(x) // 2]) * x[len(x) // 2 :]),
}


def ours(fn: Callable[..., Any], x: Any, device: str, dtype: Any = fb.float64) -> tuple[Any, Any]:
    t = fb.asarray(x, dtype=dtype, device=device)
    value, slope = fb.value_and_grad(lambda v: fb.sum(fn(v)))(t)
    assert np.isfinite(value.item())
    return fn(t).numpy(), slope.numpy()


def theirs(fn: Callable[..., Any], x: Any) -> tuple[Any, Any]:
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    y = fn(t)
    y.sum().backward()
    return y.detach().numpy(), t.grad.numpy()


@pytest.mark.parametrize("name", SAME)
def test_values_and_slopes_are_pytorchs_also_at_kinks_and_in_tails(name: str, device: str) -> None:
    fn, reference = SAME[name]
    for got, want in zip(ours(fn, X, device), theirs(reference, X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SAME)
def test_single_precision_neither_overflows_nor_loses_the_tails(name: str, device: str) -> None:
    fn, reference = SAME[name]
    x = np.asarray([-200.0, -95.0, -20.0, -1e-4, 1e-4, 20.0, 95.0, 200.0])
    for got, want in zip(ours(fn, x, device, fb.float32), theirs(reference, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in SAME if n not in ("glu", "swiglu")])
def test_nan_goes_through(name: str, device: str) -> None:
    fn = SAME[name][0]
    assert np.isnan(fn(fb.asarray([float("nan")], device=device)).numpy()).all()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_second_derivative_of_gelu_is_pytorchs(approximate: str, device: str) -> None:
    got = fb.grad(lambda v: fb.sum(fb.grad(lambda w: fb.sum(fb.gelu(w, approximate=approximate)))(v)))(
        fb.asarray(X, dtype=fb.float64, device=device)
    )
    t = torch.tensor(X, requires_grad=True)
    (first,) = torch.autograd.grad(F.gelu(t, approximate=approximate).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t)
    np.testing.assert_allclose(got.numpy(), second.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("shape", "n"), [((2, 3, 4), 3), ((2, 3), 3), ((2, 3, 2, 2), 1), ((5,), 1), ((), 1)])
def test_prelu_has_a_weight_for_all_channels_or_one_each(shape: tuple[int, ...], n: int, device: str) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=shape), rng.uniform(0, 1, n)
    gx, gw = fb.grad(lambda p: fb.sum(fb.prelu(p[0], p[1])))((fb.asarray(x, device=device), fb.asarray(w, device=device)))
    tx, tw = (torch.tensor(v, requires_grad=True) for v in (x, w))
    y = F.prelu(tx, tw)
    y.sum().backward()
    np.testing.assert_allclose(gx.numpy(), tx.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(gw.numpy(), tw.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gates_halve_any_axis(axis: int, device: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 2, 6))
    t = fb.asarray(x, device=device)
    np.testing.assert_allclose(fb.glu(t, axis=axis).numpy(), F.glu(torch.tensor(x), axis).numpy(), rtol=1e-12)
    a, b = torch.tensor(x).chunk(2, axis)
    np.testing.assert_allclose(fb.swiglu(t, axis=axis).numpy(), (F.silu(a) * b).numpy(), rtol=1e-12)


BAD: dict[str, tuple[type[Exception], Callable[[], Any], str]] = {
    "an odd axis": (fb.ShapeError, lambda: fb.glu(fb.ones((2, 3))), "glu: axis -1 of x must have an even size"),
    "an absent axis": (fb.OutOfRangeError, lambda: fb.swiglu(fb.ones((2, 4)), axis=2), "swiglu: axis must lie in"),
    "an approximation": (fb.ConfigError, lambda: fb.gelu(fb.ones(2), approximate="erf"), 'approximate is "none" or "tanh"'),
    "weights": (fb.ShapeError, lambda: fb.prelu(fb.ones((2, 3)), fb.ones(2)), "each of the 3 channels"),
    "limits": (fb.ConfigError, lambda: fb.hardtanh(fb.ones(2), min_val=1.0, max_val=0.0), "min_val is smaller"),
    "a beta": (fb.ConfigError, lambda: fb.softplus(fb.ones(2), beta=0.0), "beta is > 0"),
    "an alpha": (fb.ConfigError, lambda: fb.celu(fb.ones(2), alpha=0.0), "alpha is > 0"),
    "a lambd": (fb.ConfigError, lambda: fb.softshrink(fb.ones(2), lambd=-1.0), "lambd is ≥ 0"),
    "integers": (fb.DTypeError, lambda: fb.elu(fb.ones(2, dtype=fb.int32)), "elu: x needs a floating dtype"),
    "an array": (fb.OperandError, lambda: fb.leaky_relu(np.ones(2)), "leaky_relu: x must be a Firebrick tensor"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_by_the_functions_own_name(what: str) -> None:
    kind, call, text = BAD[what]
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)


@pytest.mark.parametrize("engine", ["cpu", "numpy", "torch:cpu"])
@pytest.mark.parametrize("name", ["elu", "celu", "selu", "hardtanh", "relu6"])
def test_an_activation_of_a_negative_zero_has_one_sign_eagerly_and_under_jit(engine: str, name: str) -> None:
    """It had the sign that the engine's minimum or maximum of two zeros happened to give: 1/elu(x) was inf or -inf."""
    f = getattr(fb, name)
    for dtype in ("float32", "float64"):
        for shape in ((1,), (9,), (70, 70)):
            x = fb.full(shape, -0.0, dtype=dtype, device=engine)
            for run in (f, fb.jit(lambda x: f(x) * 1.0)):
                assert (np.signbit(run(x).numpy()) == (name != "relu6")).all()
                assert not np.signbit(run(-x).numpy()).any()


def test_the_gradient_of_softsign_keeps_its_digits_far_out(device: str) -> None:
    x = fb.asarray([0.0, 0.5, -1.0, 3.0, 1e3, -1e5, 1e8, 1e15, np.inf, -np.inf], dtype=fb.float32, device=device)
    exact = 1.0 / (1.0 + np.abs(x.numpy().astype(np.float64))) ** 2
    value, slope = fb.softsign(x), fb.grad(lambda x: fb.sum(fb.softsign(x)))
    assert value.tolist()[-2:] == [1.0, -1.0]
    for found in (slope(x), fb.jit(slope)(x)):
        np.testing.assert_allclose(found.numpy(), exact, rtol=4 * 2.0**-23, atol=0)


@pytest.mark.parametrize("shape", [(2, 3), (2, 0)])
def test_prelu_names_an_empty_weight(shape: tuple[int, ...]) -> None:
    with pytest.raises(fb.ShapeError, match=r"prelu: weight holds 1 number(?s:.*)weight: float32\[0\]"):
        fb.prelu(fb.ones(shape), fb.zeros(0))
