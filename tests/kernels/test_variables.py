"""Variables and Python numbers of kernels: what has which dtype, and parameters that are assigned to."""
# ruff: noqa: B007

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb

K = fb.kernel
j = 12345
"""A global of the name of a counter."""


@K.function
def divisor(a, b):
    """The greatest common divisor."""
    while b != 0:
        a, b = b, a % b
    return a


@K
def divisors(x: K.In[fb.int64, "n"], most: int, out: K.Out[fb.int64, "n"]):
    """Divisors that numbers have in common with another one; both parameters are assigned to."""
    i = K.index()
    most += i
    out[i] = divisor(x[i], most)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_parameters_are_variables_whose_first_value_is_the_argument(device: str) -> None:
    x = np.arange(1, 40) * 6
    assert divisors(fb.asarray(x, device=device), 60).tolist() == np.gcd(x, 60 + np.arange(39)).tolist()


@K
def tenths(x: K.In[None, "n"], out: K.Out["x", "n"]):
    """Adds one of two Python numbers."""
    i = K.index()
    step = 0.1 if x[i] > 0 else 0.3
    out[i] = x[i] + step


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_one_of_two_python_numbers_is_not_rounded_to_another_dtype(dtype: fb.DType) -> None:
    x = fb.asarray([1.0, -1.0], dtype=dtype)
    assert tenths(x).tolist() == (np.asarray([1, -1], dtype.np) + np.asarray([0.1, 0.3], dtype.np)).tolist()


@K
def signs(x: K.In[fb.int8, "n"], out: K.Out[fb.int8, "n"]):
    """Adds a sign, which has the dtype of the elements."""
    i = K.index()
    s = 1 if x[i] > 0 else -1
    out[i] = x[i] + s


def test_one_of_two_python_integers_takes_the_dtype_of_an_array() -> None:
    assert signs(fb.asarray([5, -5], dtype=fb.int8)).tolist() == [6, -6]


@K
def after(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """Uses the counter of a loop after it."""
    for j in range(3):
        pass
    out[K.index()] = x[0] + j


def test_a_counter_after_its_loop_is_no_global_of_the_same_name() -> None:
    with pytest.raises(fb.KernelCompileError, match="the counter j has a value in its loop only"):
        after(fb.ones(3, dtype=fb.int64))
