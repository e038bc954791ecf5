"""Complex numbers: parts, promotion, casts, and gradients in PyTorch's convention, in which x - lr · gradient descends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

RNG = np.random.default_rng(3)
Z = RNG.uniform(-2, 2, (3, 4)) + 1j * RNG.uniform(-2, 2, (3, 4))
W = RNG.uniform(-2, 2, (3, 4)) + 1j * RNG.uniform(-2, 2, (3, 4))
R = RNG.uniform(0.5, 2, (3, 4))


def test_parts_and_what_is_made_of_them(device: str) -> None:
    z = fb.asarray(Z, device=device)
    for got, want in (
        (fb.real(z), Z.real),
        (fb.imag(z), Z.imag),
        (z.real, Z.real),
        (z.imag, Z.imag),
        (fb.conj(z), Z.conj()),
        (fb.abs(z), np.abs(Z)),
        (fb.angle(z), np.angle(Z)),
        (fb.sign(z), Z / np.abs(Z)),
        (fb.complex(z.real, z.imag), Z),
        (fb.complex(z.real, 1.0), Z.real + 1j),
        (fb.reciprocal(z), 1 / Z),
        (fb.square(z), Z * Z),
        (z * 2.0 + 1j, Z * 2 + 1j),
        (1 / z, 1 / Z),
        (fb.mean(z), Z.mean()),
        (fb.prod(z, axis=0), Z.prod(0)),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
        assert got.dtype.name == np.asarray(want).dtype.name
    assert fb.sign(fb.asarray([0j], device=device)).tolist() == [0j]
    assert fb.angle(fb.asarray([-1.0, 2.0, 0.0], device=device)).numpy() == pytest.approx([np.pi, 0, 0])
    single = fb.astype(z, fb.complex64)
    assert [fb.real(single).dtype, fb.abs(single).dtype, single.imag.dtype] == [fb.float32] * 3
    half = fb.ones(2, dtype=fb.float16, device=device)
    assert fb.complex(half, half).dtype is fb.complex64


def test_parts_of_real_tensors_cost_nothing_and_are_handles_of_their_own(device: str) -> None:
    x = fb.asarray([1.0, -2.0], device=device)
    for fn in (fb.conj, fb.real):
        y = fn(x)
        assert y.storage is x.storage
        y += 1.0
        assert x.tolist() == [1.0, -2.0]
        assert fb.grad(lambda v, fn=fn: fb.sum(fn(v) * 3.0))(x).tolist() == [3.0, 3.0]
        out = fb.zeros(2, device=device)
        assert fn(x, out=out) is out
        assert out.tolist() == [1.0, -2.0]
    assert x.imag.tolist() == [0.0, 0.0]
    assert fb.real(fb.asarray([1, 2], device=device)).dtype.is_integer


@pytest.mark.parametrize("fn", [fb.real, fb.imag, fb.conj])
def test_a_destination_on_another_device_is_refused_for_real_tensors_too(fn: Any) -> None:
    for x in (fb.ones(2), fb.ones(2, dtype=fb.complex64)):
        out = fb.zeros(2, dtype=fb.float32, device="cpu:1")
        with pytest.raises(fb.DeviceMismatchError, match=f"{fn.__name__}: out must be on the operands' device, cpu:0"):
            fn(x, out=out)
        assert out.tolist() == [0.0, 0.0]


def test_scalars_and_real_tensors_promote_to_complex_and_nothing_comes_back_unasked(device: str) -> None:
    z, x = fb.asarray(Z, dtype=fb.complex64, device=device), fb.asarray(R, dtype=fb.float32, device=device)
    assert (z * x).dtype is fb.complex64
    assert (fb.asarray(R, dtype=fb.float64, device=device) + z).dtype is fb.complex128
    assert (z + 1).dtype is (z * 0.5).dtype is (z - 2j).dtype is fb.complex64
    with pytest.raises(fb.DTypeError, match="complex"):
        x * 1j
    with pytest.raises(fb.DTypeError, match=r"take its real part first: fb\.astype\(fb\.real\(x\), fb\.float32\)"):
        fb.astype(z, fb.float32)
    for fn in (fb.maximum, fb.less, fb.floor_divide):
        with pytest.raises(fb.DTypeError, match="no complex form"):
            fn(z, z)


SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    name: (getattr(fb, name), lambda t, z, name=name: getattr(t, name)(z))
    for name in (
        "exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
        "log2", "log10", "log1p", "expm1", "abs", "angle", "square", "reciprocal", "negative", "real", "conj",
    )
}  # fmt: skip
SAME |= {
    "sign": (fb.sign, lambda t, z: t.sgn(z)),
    "imag": (fb.imag, lambda t, z: z.imag),
    "rsqrt": (fb.rsqrt, lambda t, z: t.rsqrt(z)),
    "pow": (lambda z: z**2.5, lambda t, z: z**2.5),
    "whole pow": (lambda z: z**3, lambda t, z: z**3),
    "prod": (lambda z: fb.prod(z, axis=1), lambda t, z: t.prod(z, 1)),
    "mean": (lambda z: fb.mean(z, axis=0), lambda t, z: z.mean(0)),
    "matmul": (lambda z: z @ z.mT, lambda t, z: z @ z.mT),
    "cumulative_sum": (lambda z: fb.cumulative_sum(z, axis=1), lambda t, z: t.cumsum(z, 1)),
    "cumulative_prod": (lambda z: fb.cumulative_prod(z, axis=1), lambda t, z: t.cumprod(z, 1)),
    "where": (lambda z: fb.where(fb.real(z) > 0.0, z, 2.0), lambda t, z: t.where(z.real > 0, z, 2.0)),
}


@pytest.mark.parametrize("name", SAME)
def test_values_and_gradients_are_pytorchs(name: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    fn, reference = SAME[name]
    z = fb.asarray(Z, device=device)
    t = torch.tensor(Z, requires_grad=True)
    want = reference(torch, t)
    np.testing.assert_allclose(fn(z).numpy(), want.detach().resolve_conj().numpy(), rtol=1e-10, atol=1e-12)

    def loss(v: Any) -> Any:
        y = fn(v)
        return fb.sum(fb.square(fb.abs(y)) if y.dtype.kind == "complex" else fb.sin(y))

    (want.abs() ** 2 if want.is_complex() else want.sin()).sum().backward()
    np.testing.assert_allclose(fb.grad(loss)(z).numpy(), t.grad.resolve_conj().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "pow"])
def test_gradients_of_both_operands_are_pytorchs(name: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    for a, b in ((Z, W), (Z, R), (R, W), (Z, W[0]), (R, W[:, :1])):
        got = fb.grad(lambda p: fb.sum(fb.abs(getattr(fb, name)(p[0], p[1]))))(
            (fb.asarray(a, device=device), fb.asarray(b, device=device))
        )
        t, u = (torch.tensor(v, requires_grad=True) for v in (a, b))
        getattr(torch, name)(t, u).abs().sum().backward()
        for g, v in zip(got, (t, u), strict=True):
            assert g.dtype.name == str(v.dtype).removeprefix("torch.")
            np.testing.assert_allclose(g.numpy(), v.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_a_step_against_the_gradient_descends(device: str) -> None:
    z = fb.asarray(Z, device=device)
    target = fb.asarray(W, device=device)

    def loss(v: Any) -> Any:
        return fb.sum(fb.square(fb.abs(v * v - target)))

    before = loss(z).item()
    for _ in range(200):
        z = (z - 0.02 * fb.grad(loss)(z)).detach()
    assert loss(z).item() < 1e-2 * before


def test_the_slope_of_abs_and_sign_at_zero_is_zero(device: str) -> None:
    z = fb.asarray([0j, 3 + 4j], device=device)
    assert fb.grad(lambda v: fb.sum(fb.abs(v)))(z).numpy() == pytest.approx([0, 0.6 + 0.8j])
    assert np.isfinite(fb.grad(lambda v: fb.sum(fb.real(fb.sign(v))))(z).numpy()).all()


def test_a_real_tensor_gets_the_real_part_of_its_gradient(device: str) -> None:
    x = fb.asarray(R, device=device)
    weight = fb.asarray(W, device=device)
    got = fb.grad(lambda v: fb.sum(fb.real(fb.astype(v, fb.complex128) * weight)))(x)
    assert got.dtype is fb.float64
    np.testing.assert_allclose(got.numpy(), W.real)


def test_gradcheck_moves_both_parts_and_finds_a_forgotten_conjugate() -> None:
    z = fb.asarray(Z)
    fb.gradcheck(lambda v: fb.exp(v) * v, [z], order=2)
    op = fb.ops.OPS["sin"]
    rule = op.vjp
    try:
        object.__setattr__(op, "vjp", lambda g, r: (g * fb.cos(r.inputs[0]),))
        with pytest.raises(fb.GradientError, match="central difference"):
            fb.gradcheck(fb.sin, [z])
    finally:
        object.__setattr__(op, "vjp", rule)
    fb.gradcheck(fb.sin, [z])
    with pytest.raises(fb.DTypeError, match="gradcheck needs complex128"):
        fb.gradcheck(fb.sin, [fb.astype(z, fb.complex64)])


def test_jvp_of_a_complex_function_is_its_derivative_times_the_tangent() -> None:
    z, v = fb.asarray(Z), fb.asarray(W)
    np.testing.assert_allclose(fb.jvp(fb.sin, (z,), (v,))[1].numpy(), np.cos(Z) * W, rtol=1e-12)


def test_a_complex_loss_is_refused() -> None:
    with pytest.raises(fb.DTypeError, match="real scalar"):
        fb.grad(lambda v: fb.sum(v))(fb.asarray(Z))
