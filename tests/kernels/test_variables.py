"""Variables and Python numbers of kernels: what has which dtype, and parameters that are assigned to."""
# ruff: noqa: B007, SIM108

from __future__ import annotations

from importlib import import_module

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


@K
def carried(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """Variables of loops that are written out: one that the first iteration alone assigns to, and some of inner blocks."""
    i = K.index()
    total = fb.int64(0)
    for k in K.unrolled(3):
        if k == 0:
            v = x[i] * 10
        total += v
        for step in (1, 2):
            if x[i] > 2:
                count = fb.int64(0)
                while count < step:
                    count += 1
                total += count
    out[i] = total


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_variables_of_loops_that_are_written_out_keep_their_values(device: str) -> None:
    x = fb.asarray([1, 2, 3, 4], dtype=fb.int64, device=device)
    assert carried(x).tolist() == [30, 60, 90 + 9, 120 + 9]


@K
def undecided(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """A variable that branches assign integers to, and operations of integers on it."""
    i = K.index()
    if x[i] > 2:
        v = 5
    else:
        v = 6
    out[i] = (v >> 1) + ~v + x[i]


def test_a_variable_that_branches_assign_integers_to_is_an_integer_after_them() -> None:
    assert undecided(fb.asarray([1, 3], dtype=fb.int64)).tolist() == [1 + 3 + ~6, 3 + 2 + ~5]


@K
def first_values(x: K.In[fb.float32, "n"], out: K.Out[fb.float16, "n", 3]):
    """Changes a result of half precision, whose elements are rounded each time."""
    i = K.index()
    out[i] += x[i]
    out[i] *= 2


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_an_element_of_half_precision_is_rounded_when_it_is_stored(device: str) -> None:
    x = np.float32([1.0, 1 / 3, 2049.5])
    want = (np.float16(x + np.float32(3)).astype(np.float32) * np.float32(2)).astype(np.float16)
    given = fb.asarray(x, device=device)
    assert first_values(given).tolist() == want.tolist()
    assert fb.jit(lambda t: first_values(t * 1))(given).tolist() == want.tolist()


@K
def counted_up(x: K.In[fb.int32, "n"], out: K.Out[fb.int32, "n", 5]):
    """Changes a result that has a first value: an elementwise operation."""
    i = K.index()
    out[i] += x[i]


def test_an_elementwise_kernel_reads_the_first_value_of_its_result() -> None:
    assert counted_up(fb.asarray([1, 2], dtype=fb.int32)).tolist() == [6, 7]


@K.function
def clipped(v):
    """Returns at several levels."""
    if v > 3:
        if v > 5:
            return v - 5
        for _ in range(2):
            if v == 4:
                return v * 100
            v += 1
        return v
    return v


@K
def clip(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """Calls a function with early returns."""
    out[K.index()] = clipped(x[K.index()])


def test_a_function_that_returns_at_several_levels() -> None:
    assert clip(fb.asarray([1, 4, 5, 9], dtype=fb.int64)).tolist() == [1, 400, 7, 4]


@K.function
def either(a, b):
    """Returns in a branch."""
    if a > b:
        return a
    return b


@K
def scaled(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """A variable whose dtype is that of a function's result, which is decided late."""
    i = K.index()
    h = either(x[i], i)
    h = h if x[i] > 3 else (5 * h)
    out[i] = h


def test_a_number_on_the_left_decides_no_dtype() -> None:
    assert scaled(fb.asarray([1, 3, 4], dtype=fb.int64)).tolist() == [5, 15, 4]


@K(grid="n // 4", group=4)
def offered(x: K.In[fb.int32, "n"], out: K.Out[fb.int32, "n"]):
    """Exchanges a variable whose dtype is decided in branches."""
    i = K.index()
    if x[i] > 2:
        v = x[i]
    else:
        v = x[i] + 10
    w = K.shuffle(v, K.lane() ^ 1, 4)
    w *= 100
    r = K.registers(v, 2)
    r[1] = w
    out[i] = r[0] + r[1]


def test_an_exchanged_variable_has_the_dtype_that_it_gets_in_branches() -> None:
    assert offered(fb.asarray([1, 3, 4, 2], dtype=fb.int32)).tolist() == [311, 1103, 1204, 412]


@K
def doubled(x: K.In[fb.int32, "n"], out: K.Out[fb.int32, "n"]):
    """A variable that has the dtype of an element from its first assignment on."""
    v = x[K.index()]
    v = v + v
    out[K.index()] = v


@K
def counted(x: K.In[fb.int32, "n"], out: K.Out[fb.int32, "n"]):
    """A variable that begins as a Python number."""
    v = 0
    v = v + x[K.index()]
    out[K.index()] = v


def test_a_function_is_walked_again_only_if_a_dtype_is_decided_after_statements_that_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("firebrick.compiler.kernel.language.translate")
    walks: list[int] = []
    kernel = module._Translator.kernel
    monkeypatch.setattr(module._Translator, "kernel", lambda self: walks.append(1) or kernel(self))
    x = fb.asarray([1, -3], dtype=fb.int32)
    assert doubled(x).tolist() == [2, -6]
    assert len(walks) == 1
    assert counted(x).tolist() == [1, -3]
    assert len(walks) == 3
