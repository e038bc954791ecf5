"""NumPy's functions of tensors: operators of its scalars compute, functions called by name are answered by the name here."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.functions.numpy_functions import OPERATORS, REFLECTED, SAME

X = fb.asarray([1.0, 2.0])
UNARY = sorted(n for n in dir(np) if isinstance(f := getattr(np, n), np.ufunc) and f.nin == 1)
BINARY = sorted(n for n in dir(np) if isinstance(f := getattr(np, n), np.ufunc) and f.nin == 2)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_a_function_of_numpy_is_answered_by_what_to_write(name: str) -> None:
    function: np.ufunc = getattr(np, name)
    with pytest.raises(
        fb.OperandError, match=rf"np\.{function.__name__} takes NumPy arrays\nReceived: x: float32\[2\]"
    ) as caught:
        function(*[X] * function.nin)
    remedy = str(caught.value).partition("Remedy: ")[2]
    assert f"np.{function.__name__}(x.numpy()" in remedy
    if hasattr(fb, name):
        assert remedy.startswith(f"write fb.{name}(")


def test_every_name_of_the_tables_is_a_public_function() -> None:
    for here in {*OPERATORS.values(), *REFLECTED.values(), *SAME.values()}:
        assert callable(getattr(fb, here)), here


def test_a_function_of_another_name_here_is_answered_by_it() -> None:
    for name, here in {
        "arcsin": "fb.asin(x)",
        "absolute": "fb.abs(x)",
        "power": "fb.pow(x, y)",
        "mod": "fb.remainder(x, y)",
    }.items():
        function: np.ufunc = getattr(np, name)
        with pytest.raises(fb.OperandError) as caught:
            function(*[X] * function.nin)
        assert f"Remedy: write {here}, or " in str(caught.value)


@pytest.mark.parametrize(
    "call", [lambda: np.add.reduce(X), lambda: np.add(np.ones(2), 1.0, out=X), lambda: np.add.at(X, 0, 1.0)]
)  # type: ignore[call-overload]
def test_other_forms_of_a_function_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(fb.OperandError, match=r"np\.add takes NumPy arrays"):
        call()


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne"])
def test_an_operator_of_a_numpy_array_and_a_tensor_is_refused(name: str) -> None:
    for call in (getattr(operator, name), getattr(operator, f"i{name}", getattr(operator, name))):
        with pytest.raises(fb.OperandError, match=r"x[12]: a NumPy array float64\[2\]"):
            call(np.ones(2), X)


def test_divmod_of_a_numpy_scalar_and_a_tensor() -> None:
    quotient, rest = divmod(np.float32(7.0), X)
    assert (quotient.tolist(), rest.tolist()) == ([7.0, 3.0], [0.0, 1.0])


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_a_reduction_of_numpy_is_answered_by_the_one_here(name: str) -> None:
    with pytest.raises(fb.ArgumentError, match=rf"write fb\.{name}\(x\), also for np\.{name}\(x\)"):
        getattr(np, name)(X)
