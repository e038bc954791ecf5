"""Edges of elementwise ops that are defined the same on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
# uint64 has no right shift in PyTorch: it runs on the host, and says so
quiet = pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")


@quiet
@pytest.mark.parametrize("name", INTS)
def test_shifts_past_the_width_shift_everything_out(name: str, device: str) -> None:
    info = fb.iinfo(name)
    values = np.asarray([1, 5, info.max, info.min, info.min // 2], name)
    x = fb.asarray(values, device=device)
    for n in (0, 1, info.bits - 1, info.bits, info.bits + 5, 120):
        amount = fb.full(x.shape, n, dtype=name, device=device)
        left = [((int(v) << n) & (2**info.bits - 1)) for v in values]
        left = [v - 2**info.bits if info.min and v > info.max else v for v in left]
        assert fb.bitwise_left_shift(x, amount).tolist() == left
        assert fb.bitwise_right_shift(x, amount).tolist() == [int(v) >> n for v in values]
    if info.min:
        amount = fb.full(x.shape, -3, dtype=name, device=device)
        assert (x << amount).tolist() == [0] * 5
        assert (x >> amount).tolist() == [-1 if v < 0 else 0 for v in values]


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_neighbours_are_those_of_the_operands_dtype(name: str, device: str) -> None:
    info = fb.finfo(name)
    x = fb.asarray([1.0, -1.0, 0.0, -0.0, info.max, -info.max], dtype=name, device=device)
    up, down = fb.nextafter(x, float("inf")), fb.nextafter(x, float("-inf"))
    assert (up.dtype.name, down.dtype.name) == (name, name)
    host, low = up.numpy().astype(np.float64), down.numpy().astype(np.float64)
    tiny = info.smallest_normal * info.eps
    inner = -info.max + info.max * info.eps / (2 - info.eps)
    assert host.tolist() == [1 + info.eps, -1 + info.eps / 2, tiny, tiny, np.inf, inner]
    assert low.tolist()[:4] == [1 - info.eps / 2, -1 - info.eps, -tiny, -tiny]
    assert fb.nextafter(x, x).numpy().tobytes() == x.numpy().tobytes()
    assert np.isnan(fb.nextafter(x, float("nan")).numpy().astype(np.float64)).all()


def test_operators_on_bits_are_pythons(device: str) -> None:
    a, b = np.asarray([12, -7, 5]), np.asarray([10, 3, 1])
    x, y = fb.asarray(a, device=device), fb.asarray(b, device=device)
    for got, want in (
        (x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a), (x << y, a << b), (x >> y, a >> b),
        (x & 6, a & 6), (6 | x, 6 | a), (1 ^ x, 1 ^ a), (1 << y, 1 << b), (100 >> y, 100 >> b), (x << 2, a << 2),
    ):  # fmt: skip
        np.testing.assert_array_equal(got.numpy(), want)
    for got, want in zip(divmod(x, 4), divmod(a, 4), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    for got, want in zip(divmod(50, y), divmod(50, b), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    p = fb.asarray([True, False], device=device)
    assert ((p & True).tolist(), (p | True).tolist(), (p ^ p).tolist(), (~p).tolist()) == (
        [True, False], [True, True], [False, False], [False, True],
    )  # fmt: skip
    z = x
    z <<= 1
    z &= 15
    z |= 1
    z ^= 2
    z >>= 1
    np.testing.assert_array_equal(z.numpy(), ((((a << 1) & 15) | 1) ^ 2) >> 1)
    for bad in (lambda: x & 1.5, lambda: fb.ones(2) & fb.ones(2), lambda: p << 1, lambda: ~fb.ones(2)):
        with pytest.raises(fb.DTypeError):
            bad()


def test_signs_of_zeros_count(device: str) -> None:
    x = fb.asarray([0.0, -0.0, 2.0, -3.0, float("-inf")], device=device)
    assert fb.signbit(x).tolist() == [False, True, False, True, True]
    assert np.signbit(fb.copysign(x, -0.0).numpy()).all()
    assert fb.atan2(fb.asarray([0.0, -0.0], device=device), -1.0).numpy() == pytest.approx([np.pi, -np.pi])


def test_lengths_and_sums_of_exponentials_do_not_overflow(device: str) -> None:
    big = fb.asarray([3e38, 0.0], dtype=fb.float32, device=device)
    np.testing.assert_allclose(fb.hypot(big * 0.5, big * 0.5).numpy(), np.hypot(1.5e38, 1.5e38) * np.asarray([1, 0]), rtol=1e-6)
    x = fb.asarray([1e4, -1e4, -np.inf, np.inf], device=device)
    assert fb.logaddexp(x, x).numpy() == pytest.approx([1e4 + np.log(2), -1e4 + np.log(2), -np.inf, np.inf])
    assert fb.grad(lambda v: fb.sum(fb.logaddexp(v, v.detach())))(x).tolist() == [0.5] * 4


@pytest.mark.parametrize("fn", [fb.hypot, fb.atan2])
def test_the_gradient_at_the_origin_is_zero(fn: Any, device: str) -> None:
    zero = fb.zeros(2, device=device)
    for g in fb.grad(lambda p: fb.sum(fn(p[0], p[1])))((zero, fb.zeros(2, device=device))):
        assert g.tolist() == [0.0, 0.0]


def test_gelu_of_the_largest_numbers_is_themselves(device: str) -> None:
    x = fb.asarray([3e38, 1e20, float("inf"), -3e38, 1.0], dtype=fb.float32, device=device)
    assert fb.gelu(x).numpy() == pytest.approx(np.asarray([3e38, 1e20, np.inf, 0, 0.8413447]))


@pytest.mark.parametrize(("dtype", "values"), [
    ("float16", [1e-3, 300.0, 2e4]), ("bfloat16", [1e-25, 300.0, 1e25]), ("float32", [1e-30, 1.0, 1e25]),
    ("float64", [1e-200, 1.0, 1e200]),
])  # fmt: skip
def test_the_gradient_of_a_quotient_survives_a_square_that_its_dtype_cannot_hold(
    dtype: str, values: list[float], device: str
) -> None:
    x = fb.asarray(values, dtype=dtype, device=device)
    numerator, denominator = fb.grad(lambda p: fb.sum(p[0] / p[1]))((x, fb.asarray(x, copy=True)))
    inverse = 1.0 / np.asarray(x.numpy(), np.float64)
    within(numerator, inverse, fb.ops.OPS["divide"].tolerance)
    within(denominator, -inverse, 3 * fb.ops.OPS["divide"].tolerance)  # -(x / x) / x and the product with the cotangent


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_remainder_of_zero_has_the_sign_of_the_divisor(dtype: str, device: str) -> None:
    x = fb.asarray([0.0, -0.0, 6.0, -6.0, 6.0], dtype=dtype, device=device)
    y = fb.asarray([-1.0, 1.0, -2.0, 2.0, 4.0], dtype=dtype, device=device)
    found = np.asarray(fb.remainder(x, y).numpy(), np.float64)
    assert found.tolist() == [0.0, 0.0, 0.0, 0.0, 2.0]
    assert np.signbit(found).tolist() == [True, False, True, False, False]
