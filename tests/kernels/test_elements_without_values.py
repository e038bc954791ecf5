"""Elements of a result are read where they have a value: other reads are refused; the checked interpreter takes the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb

K = fb.kernel
X = np.arange(4.0, dtype=np.float32)


@K
def reading(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = out[i] + x[i]


@K
def adding(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n", 2.0]):
    i = K.index()
    out[i] = out[i] + x[i]


@K
def changing(x: K.In[fb.float32, "n"], y: K.InOut[fb.float32, "n"]):
    i = K.index()
    y[i] = y[i] + x[i]


def checked(kernel: Any, *arrays: np.ndarray[Any, Any]) -> Any:
    operation, _, params = kernel.operation(*(fb.asarray(a, device="cpu") for a in arrays), device="cpu")
    assert operation is not None
    return kernel.checked(arrays, params)


def test_a_result_without_a_first_value_is_not_read() -> None:
    with pytest.raises(fb.KernelCompileError, match="out is read, so its elements have a value before"):
        checked(reading, X)


def test_first_values_and_operands_are_values() -> None:
    assert checked(adding, X)[0].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert checked(changing, X, X)[0].tolist() == [0.0, 2.0, 4.0, 6.0]
