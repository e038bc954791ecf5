"""Numbers become narrower floats by one rounding, however they get there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.core.dtypes import DType
from firebrick.core.rounding import rounded

NARROW = [fb.float16, fb.bfloat16, fb.float8_e4m3fn, fb.float8_e5m2]
DEVICES = ["numpy", "cpu", "torch:cpu"]


@pytest.fixture(autouse=True)
def small_kernels() -> Iterator[None]:
    with kernels_of_any_size():
        yield


def numbers(dtype: DType) -> np.ndarray[Any, Any]:
    """All finite numbers of a narrow dtype, in order, as float64."""
    bits = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        every = bits.view(dtype.np).astype(np.float64)
    return np.unique(every[np.isfinite(every)])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_next_to_the_middle_of_two_numbers_the_nearer_one_is_taken(dtype: DType) -> None:
    known = numbers(dtype)
    middle = (known[1:] + known[:-1]) / 2
    assert np.array_equal(rounded(np.nextafter(middle, np.inf), dtype).astype(np.float64), known[1:])
    assert np.array_equal(rounded(np.nextafter(middle, -np.inf), dtype).astype(np.float64), known[:-1])
    assert not np.any(rounded(middle, dtype).view(f"u{dtype.itemsize}") & 1), "a tie goes to the even one"


@pytest.mark.parametrize("own", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16], ids=str)
def test_integers_next_to_the_middle_are_rounded_once(dtype: DType, own: Any) -> None:
    known = numbers(dtype)
    low, high = np.iinfo(own).min, np.iinfo(own).max
    middle = (known[1:] + known[:-1]) / 2
    fits = (middle > float(low) + 2) & (middle < float(high) * 0.9) & (np.diff(known) > 2)
    whole = np.asarray([int(m) for m in middle[fits]], own)
    assert np.array_equal(rounded(whole + own(1), dtype).astype(np.float64), known[1:][fits])
    assert np.array_equal(rounded(whole - own(1), dtype).astype(np.float64), known[:-1][fits])


ABOVE = 1 + 2.0**-8 + 2.0**-40
"""Rounded to float32 first it is the middle between 1 and 1.0078125."""
WAYS: dict[str, Callable[[str], Any]] = {
    "astype": lambda d: fb.astype(fb.asarray([ABOVE], dtype=fb.float64, device=d), fb.bfloat16),
    "astype under jit": lambda d: fb.jit(lambda x: fb.astype(x, fb.bfloat16))(fb.asarray([ABOVE], dtype=fb.float64, device=d)),
    "an integer": lambda d: fb.astype(fb.asarray([2**62 + 2**54 + 1], device=d), fb.bfloat16) * 2.0**-62,
    "an integer under jit": lambda d: fb.jit(lambda x: fb.astype(x + 1, fb.bfloat16) * 2.0**-62)(
        fb.asarray([2**62 + 2**54], device=d)
    ),
    "a large Python int": lambda d: fb.full((1,), 2**100 + 2**92 + 1, dtype=fb.bfloat16, device=d) * 2.0**-100,
    "asarray of a number": lambda d: fb.asarray(ABOVE, dtype=fb.bfloat16, device=d),
    "asarray of a list": lambda d: fb.asarray([ABOVE], dtype=fb.bfloat16, device=d),
    "asarray of an array": lambda d: fb.asarray(np.asarray([ABOVE]), dtype=fb.bfloat16, device=d),
    "asarray of a NumPy scalar": lambda d: fb.asarray(np.float64(ABOVE), dtype=fb.bfloat16, device=d),
    "full": lambda d: fb.full((1,), ABOVE, dtype=fb.bfloat16, device=d),
    "linspace": lambda d: fb.linspace(ABOVE, ABOVE, 1, dtype=fb.bfloat16, device=d),
    "pad": lambda d: fb.pad(fb.zeros(1, dtype=fb.bfloat16, device=d), (1, 0), value=ABOVE)[:1],
    "a Python number": lambda d: fb.zeros(1, dtype=fb.bfloat16, device=d) + ABOVE,
    "a traced number": lambda d: fb.jit(lambda x, s: x + s)(fb.zeros(1, dtype=fb.bfloat16, device=d), ABOVE),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", WAYS)
def test_a_number_just_above_a_tie_is_rounded_up_on_every_way(way: str, device: str) -> None:
    assert WAYS[way](device).reshape(()).item() == 1.0078125


@pytest.mark.parametrize("device", DEVICES)
def test_a_cast_of_float64_to_float16_rounds_once(device: str) -> None:
    x = fb.asarray([1 + 2.0**-11 + 2.0**-40, -(1 + 2.0**-11 + 2.0**-40)], dtype=fb.float64, device=device)
    for cast in (lambda x: fb.astype(x, fb.float16), fb.jit(lambda x: fb.astype(x, fb.float16))):
        assert cast(x).tolist() == [1 + 2.0**-10, -(1 + 2.0**-10)]


@pytest.mark.parametrize("device", DEVICES)
def test_hyperbolic_functions_reach_the_largest_float64(device: str) -> None:
    x = fb.asarray([710.404, -710.47], dtype=fb.float64, device=device)
    for function, want in ((fb.sinh, np.sinh), (fb.cosh, np.cosh)):
        np.testing.assert_allclose(function(x).numpy(), want(x.numpy()), rtol=1e-15)
        assert fb.isinf(function(x * 1.001)).numpy().all()


def test_zeros_have_the_same_sign_under_jit() -> None:
    x = fb.asarray([-2387.0, -30.0, -0.0, 0.0, 2387.0])
    gelu = fb.gelu(x).numpy(), fb.jit(lambda x: fb.gelu(x))(x).numpy()
    assert np.array_equal(*map(np.signbit, gelu))
    a, b = fb.asarray([-0.0, 0.0, -0.0, 0.0, -3.0, 3.0]), fb.asarray([np.inf, np.inf, -np.inf, -np.inf, np.inf, -np.inf])
    quotients = fb.floor_divide(a, b).numpy(), fb.jit(lambda a, b: fb.floor_divide(a, b))(a, b).numpy()
    assert np.array_equal(*quotients)
    assert np.array_equal(*map(np.signbit, quotients))
