"""Unusual but legal kernels: changed globals and closures, generic dtypes, arrays of any rank and size, extreme numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from python_reference import run_in_python

import firebrick as fb

K = fb.kernel
DEVICES = ["cpu", "numpy"]
SCALE = 2
PAIR = (3, 5)
Array = np.ndarray[Any, Any]


def _same(kernel: Any, *arguments: Any, device: str = "cpu") -> list[Array]:
    """The results of a kernel, which are equal to those of Python."""
    given = [fb.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in arguments]
    found = kernel(*given)
    results = [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]
    for a, b in zip(results, run_in_python(kernel, arguments), strict=True):
        np.testing.assert_array_equal(a, b)
    return results


@K
def scaled(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """Uses globals."""
    i = K.index()
    a, b = PAIR
    out[i] = x[i] * SCALE + a * b + PAIR[1]


def test_a_global_that_changes_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(3)
    compiled = fb.jit(lambda t: scaled(t))
    assert _same(scaled, x)[0].tolist() == compiled(fb.asarray(x)).tolist() == [20, 22, 24]
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert _same(scaled, x)[0].tolist() == [20, 23, 26]
    monkeypatch.setitem(globals(), "PAIR", (0, 1))
    assert _same(scaled, x)[0].tolist() == [1, 4, 7]


@K
def noted(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    i = K.index()
    """A text is no statement,"""
    if x[i] > 1:
        ...
    else:
        "nor is an ellipsis."
    out[i] = x[i] + 1


def test_texts_and_ellipses_between_statements_do_nothing() -> None:
    assert _same(noted, np.arange(3))[0].tolist() == [1, 2, 3]


def _kernel_of(weight: Any) -> Any:
    @K
    def weighted(x: K.In[fb.float64, "n"], out: K.Out[fb.float64, "n"]):
        i = K.index()
        out[i] = x[i] * weight

    return weighted


def test_closures_of_one_function_are_kernels_of_their_own() -> None:
    x = fb.ones(2, dtype=fb.float64)
    assert [_kernel_of(w)(x).tolist() for w in (2, 0.5, np.float64(3))] == [[2, 2], [0.5, 0.5], [3, 3]]


@K
def extremes(x: K.In[None, "n"], y: K.In["x", "n"], total: K.Out["x", "n"], most: K.Out["x", "n"], same: K.Out[fb.bool, "n"]):
    """Arithmetic that wraps around, in any dtype of integers."""
    i = K.index()
    total[i] = (x[i] + y[i]) * x[i] - 1
    most[i] = max(x[i], y[i]) // 3
    same[i] = x[i] - y[i] == y[i] - x[i]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_each_dtype_wrap_around(dtype: str, device: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 0, 1, 3, info.max // 2], dtype)
    x, y = (v.ravel().copy() for v in np.meshgrid(values, values))
    _same(extremes, x, y, device=device)


@K
def storage(x: K.In[None, "n"], out: K.Out["x", "n"], wide: K.Out[fb.float32, "n"]):
    """Computes in float32 what is stored in half precision."""
    i = K.index()
    v = x[i]
    for _ in range(3):
        v = v * v + 0.1
    wide[i] = fb.float32(v)
    out[i] = v


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: fb.DType, device: str) -> None:
    x = fb.astype(fb.linspace(-2, 2, 37, device=device), dtype)
    found, wide = storage(x)
    assert found.dtype is dtype
    v = fb.astype(x, fb.float32).numpy()
    for _ in range(3):
        v = v * v + np.float32(0.1)
    np.testing.assert_array_equal(wide.numpy(), v)
    np.testing.assert_array_equal(fb.astype(found, fb.float32).numpy(), fb.astype(fb.astype(wide, dtype), fb.float32).numpy())


@K
def truth(a: K.In[fb.bool, "n"], b: K.In[fb.bool, "n"], out: K.Out[fb.bool, "n"], count: K.Out[fb.int32, "n"]):
    """Bools: stored, combined, counted."""
    i = K.index()
    both = a[i] and b[i]
    either = a[i] | b[i]
    out[i] = (not both) if either else (a[i] ^ True)
    count[i] = fb.int32(a[i]) + fb.int32(b[i]) * 2 if not both or either else -1


@pytest.mark.parametrize("device", DEVICES)
def test_bools(device: str) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    _same(truth, a, b, device=device)


@K
def point(x: K.In[fb.float64, ""], n: K.In[fb.int64, "1"], out: K.Out[fb.float64, ""]):
    """Arrays without axes."""
    out[()] = x[()] * fb.float64(n[0])


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_without_axes(device: str) -> None:
    found = point(fb.asarray(2.5, dtype=fb.float64, device=device), fb.asarray([3], device=device, dtype=fb.int64))
    assert (found.shape, found.item()) == ((), 7.5)


@K
def turned(x: K.In[fb.int32, "a, b, c"], out: K.Out[fb.int32, "c, a, b"]):
    """An array of three axes, whose axes change places."""
    p = K.index()
    k, i, j = p
    out[p] = x[i, j, k] + fb.int32(x.ndim * x.size)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 1, 1), (3, 0, 2), (7, 1, 17)])
def test_arrays_of_three_axes(shape: tuple[int, ...], device: str) -> None:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    found = turned(fb.asarray(x, device=device)).numpy()
    np.testing.assert_array_equal(found, x.transpose(2, 0, 1) + 3 * x.size)


@K
def loops(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    """Loops in loops, left at many levels; counters that shadow each other."""
    i = K.index()
    total = fb.int64(0)
    for a in range(x.size, 0, -3):
        if a % 5 == 4:
            continue
        for b in range(a):
            if b > i:
                break
            for a_ in range(b, -2, -2):
                if (total + a_) % 7 == 6:
                    break
                total += a_ * b + a
                if total > 10_000:
                    out[i] = -total
                    return
            else_ = b
            total -= else_
        c = 0
        while True:
            c += 1
            if c * c > a + i:
                break
            if c == 3:
                continue
            total ^= c
    for _ in range(3):
        for _ in range(2):
            total += 1
        total *= 3
    out[i] = total


@pytest.mark.parametrize("device", DEVICES)
def test_loops_that_are_left_at_many_levels(device: str) -> None:
    for n in (1, 2, 13, 40):
        _same(loops, np.arange(n), device=device)


@K
def ranges(x: K.In[fb.int64, "n, 2"], out: K.Out[fb.int64, "n, 6"]):
    """Loops between numbers of arrays, in both directions, with extreme bounds."""
    i, j = K.index()
    first, last = x[i, 0], x[i, 1]
    total, rounds = fb.int64(0), fb.int64(0)
    if j == 0:
        for k in range(first, last):
            total, rounds = total + k, rounds + 1
    elif j == 1:
        for k in range(last, first, -1):
            total, rounds = total + k, rounds + 1
    elif j == 2:
        for k in range(first, last, 1 << 40):
            total, rounds = total + k, rounds + 1
    elif j == 3:
        for k in range(last, first, -(1 << 61)):
            total, rounds = total + k, rounds + 1
            if rounds > 5:
                break
    elif j == 4:
        for k in range(first, last, 7):
            if k % 2 == 0:
                continue
            total, rounds = total + k, rounds + 1
    out[i, j] = total * 31 + rounds


@pytest.mark.parametrize("device", DEVICES)
def test_loops_between_extreme_numbers_end(device: str) -> None:
    most, least = 2**63 - 1, -(2**63)
    bounds = [[0, 0], [5, 2], [-3, 4], [most - 3, most], [least, least + 3], [most, least], [most, most], [-1, 1]]
    _same(ranges, np.array(bounds), device=device)


@K.function
def sorted_pair(a, b, *, down=False):
    """Two numbers in order."""
    if down:
        return (a, b) if a > b else (b, a)
    if a > b:
        return b, a
    return a, b


@K
def tuples(x: K.In[fb.int64, "n, 3"], out: K.Out[fb.int64, "n, 3"]):
    """Tuples that are swapped, passed and returned."""
    i, j = K.index()
    a, b, c = x[i, 0], x[i, 1], x[i, 2]
    a, b = sorted_pair(a, b)
    b, c = sorted_pair(b, c)
    a, b = sorted_pair(b=b, a=a)
    order = (a, b, c)
    largest, _ = sorted_pair(order[0], order[-1], down=True)
    pair = (largest, a)
    if b > 2:
        pair = pair[1], pair[0]
    out[i, j] = order[0] + 10 * order[1] + 100 * c + 1000 * pair[0] - pair[1] if j == 0 else (a if j == 1 else largest)


@pytest.mark.parametrize("device", DEVICES)
def test_tuples(device: str) -> None:
    _same(tuples, np.array([[3, 1, 2], [1, 2, 3], [5, 5, 1], [0, -1, -2]]), device=device)


@K
def lazy(x: K.In[fb.int32, "n"], y: K.In[fb.int32, "m"], out: K.Out[fb.int32, "n"]):
    """Reads that only their guards keep inside, and a division that its guard keeps from 0."""
    i = K.index()
    last = x[i - 1] if i > 0 else y[0] if y.size > 0 else fb.int32(-1)
    k = x[i]
    inside = 0 <= k < len(y) and y[k] > 1 and y[y[k] % len(y)] != 0
    outside = not (0 <= k < len(y)) or y[k] == 7
    out[i] = last + (1000 if inside else 0) + (100 if outside else 0) + (60 // k if k != 0 else 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("m", [0, 1, 4])
def test_reads_that_are_guarded(m: int, device: str) -> None:
    x = np.array([0, 3, -5, 2, 1, 2**31 - 1, -(2**31), 0], np.int32)
    _same(lazy, x, np.array([7, 3, 2, 0], np.int32)[:m], device=device)


@K
def optional(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"], times: int = 2, plus: float = 0.5):
    """Defaults of numbers."""
    i = K.index()
    out[i] = x[i] * fb.float32(times) + plus


def test_defaults_and_named_arguments() -> None:
    x = fb.ones(1)
    found = [optional(x), optional(x, 3), optional(x, plus=1), optional(plus=fb.asarray(2.0), x=x, times=0)]
    assert [t.item() for t in found] == [2.5, 3.5, 3.0, 2.0]


@K
def one_loop(y: K.InOut[fb.int64, "n"], x: K.In[fb.int64, "n"]):
    for k in range(5):
        if x[K.index()] < k:
            return
        y[K.index()] += k


@K
def one_branch(y: K.InOut[fb.int64, "n"], x: K.In[fb.int64, "n"]):
    if x[K.index()] > 2:
        y[K.index()] += 1
    else:
        return


@K.function
def chosen(v):
    if v > 2:
        return v * 10
    else:
        return v - 10


@K.function
def searched(v):
    while True:
        if v % 7 == 0:
            return v
        v += 1
    return v


@K
def one_store(y: K.InOut[fb.int64, "n"], x: K.In[fb.int64, "n"]):
    y[K.index()] += chosen(x[K.index()]) + searched(x[K.index()])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", [one_loop, one_branch, one_store], ids=lambda k: k.name)
def test_kernels_of_one_statement(kernel: Any, device: str) -> None:
    _same(kernel, np.arange(6) * 100, np.arange(6) - 1, device=device)


def test_an_element_of_an_array_without_elements_is_refused() -> None:
    @K(grid="n")
    def first_of_none(x: K.In[fb.float32, "n"], none: K.In[fb.float32, "0"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        out[i] = x[i] + none[0]

    with pytest.raises(fb.KernelCompileError, match=r"an index of none is below 0\nReceived: 0, in `none\[0\]`"):
        first_of_none(fb.ones(3), fb.ones(0))


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 6, 31])
def test_an_integer_to_a_constant_power_wraps_as_that_of_numpy(n: int, device: str) -> None:
    exponent = n

    @fb.kernel
    def raised(x: fb.kernel.In[fb.int32, "n"], out: fb.kernel.Out[fb.int32, "n"]):
        i = fb.kernel.index()
        out[i] = x[i] ** exponent

    x = np.asarray([2, -3, 7, 0, -1, 46341], np.int32)
    assert raised(fb.asarray(x, device=device)).tolist() == (x**n).tolist()
