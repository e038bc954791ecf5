"""Functions of kernels that Python calls, defaults of parameters, and annotations with names that have no value yet."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.kernel.language.annotations import Size, floating_of, sizes_of
from firebrick.compiler.kernel.language.calls import IndexedFunction, InlinedExpression
from firebrick.core.errors import ShapeError, UnsupportedError
from firebrick.scalar.expr import load

K = fb.kernel


@K.function
def summed(a: Any, b: Any = 2.0) -> Any:
    """Adds."""
    return a + b


@K(grid="n")
def scaled(
    x: K.In[fb.float32, "n"],
    out: K.Out[fb.float32, "n"],
    by: float = 2.0,
    shift: int = 3,
    k: K.Constant[int] = 4,
) -> None:
    i = K.index()
    out[i] = x[i] * by + fb.float32(shift) * 10.0 + k * 100.0


def test_a_number_that_a_call_leaves_out_has_its_default() -> None:
    x = fb.ones(2, device="numpy")
    for given, expected in (({}, 432.0), ({"by": 5.0}, 435.0), ({"shift": 1}, 412.0), ({"k": 1}, 132.0)):
        assert np.array_equal(scaled(x, **given).numpy(), [expected] * 2)


def test_a_function_of_kernels_is_a_function_of_numbers_for_python() -> None:
    assert summed(1.0) == 3.0
    assert summed(1.0, b=5.0) == 6.0
    assert (summed.__name__, summed.__doc__, summed.__module__) == ("summed", "Adds.", __name__)
    assert summed.__reduce__() == "summed"


def test_what_kernels_call_is_refused_outside_of_them() -> None:
    inlined = InlinedExpression("gelu", load(0, "float32"))
    with pytest.raises(UnsupportedError, match="gelu is called by kernels\nReceived: a call outside of a kernel"):
        inlined(1.0)
    with pytest.raises(UnsupportedError, match="a kernel calls this function\nReceived: a call outside of a kernel"):
        IndexedFunction(inlined)(1.0)


def test_a_size_is_an_expression_of_names() -> None:
    assert sizes_of("") == sizes_of("  ") == ()
    assert [s.text for s in sizes_of("n, 4,m + 1")] == ["n", "4", "m + 1"]
    assert [s.simple for s in sizes_of("n, 4, m + 1, (k)")] == [True, True, False, True]
    sizes = {"n": 7, "m": -3}
    for text in ("n", "12", "n + m", "n - m", "n * m", "n // 2", "m // 2", "n % 4", "m % 4", "(n + 3) // 4 * m"):
        assert Size.of(text).value(sizes) == eval(text, dict(sizes))
    assert Size.of("n * m + n").names == ("n", "m")
    for text in ("n // (m + 3)", "n % (m + 3)"):
        with pytest.raises(ShapeError, match=r"a size is not divided by 0\nReceived: n (//|%) \(m \+ 3\)"):
            Size.of(text).value(sizes)
    for text in ("", "n,", "-n", "n / 2", "n ** 2", "n[0]", "f(n)", "1.5", "n if m else 2", "n < m", "True", "'n'", "n << 1"):
        with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
            Size.of(text)


def test_a_float_has_the_dtype_of_the_first_floating_array() -> None:
    assert floating_of({}) is fb.float32
    assert floating_of({"a": fb.int64}) is fb.float32
    assert floating_of({"a": fb.int64, "b": fb.float64, "c": fb.float32}) is fb.float64
    assert floating_of({"b": fb.float16, "c": fb.float64}) is fb.float32


def _late() -> Any:
    @K(grid="n")
    def late(x: K.In[fb.float32, "n"], out: K.Out["x", "n"]) -> None:
        i = K.index()
        out[i] = x[i] * factor

    if fb.config.tune == "never":
        factor = 2.0
    return late


def test_a_name_that_gets_its_value_later_is_not_defined() -> None:
    with pytest.raises(fb.KernelCompileError, match="the name factor is defined"):
        _late()(fb.ones(3, device="numpy"))
