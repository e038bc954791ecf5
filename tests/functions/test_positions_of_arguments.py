"""Arguments stand where NumPy has them, so that ``fb.sum(x, 1)`` means what ``np.sum(x, 1)`` does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import firebrick as fb

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
OTHER = {
    "cross": "axisa, axisb, axisc and axis, and no axis at its place",
    "trapezoid": "x before it",
}
"""Functions of NumPy whose axis has no place, and why."""


def shared() -> Iterator[tuple[str, int]]:
    """Functions that NumPy and Firebrick have by one name, with the place of NumPy's ``axis``."""
    for name in fb.__all__:
        try:
            theirs = inspect.signature(getattr(np, name, None) or getattr(np.linalg, name))  # type: ignore[arg-type]
            own = inspect.signature(getattr(fb, name)).parameters
        except (AttributeError, TypeError, ValueError):
            continue
        places = [n for n, p in theirs.parameters.items() if p.kind in POSITIONAL]
        if "axis" in places and "axis" in own and name not in OTHER:
            yield name, places.index("axis")


def test_many_functions_are_compared() -> None:
    found = dict(shared())
    assert len(found) > 40
    assert {"sum": 1, "diff": 2, "take": 2, "roll": 2, "quantile": 2}.items() <= found.items()


@pytest.mark.parametrize(("name", "place"), list(shared()))
def test_axis_stands_where_numpy_has_it(name: str, place: int) -> None:
    own = [n for n, p in inspect.signature(getattr(fb, name)).parameters.items() if p.kind in POSITIONAL]
    assert own[place : place + 1] == ["axis"]


X = np.arange(12.0, dtype=np.float32).reshape(3, 4)[::-1].copy()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("sum", (1,)), ("prod", (0,)), ("mean", (-1,)), ("var", (0,)), ("std", (1,)), ("max", (1,)), ("min", (0,)),
        ("ptp", (1,)), ("any", (0,)), ("all", (1,)), ("argmax", (0,)), ("argmin", (1,)), ("median", (0,)),
        ("quantile", (0.25, 1)),
        ("count_nonzero", (1,)), ("flip", (0,)), ("roll", (1, 0)), ("repeat", (2, 1)), ("sort", (0,)), ("argsort", (0,)),
        ("diff", (2,)), ("diff", (1, 0)), ("expand_dims", (1,)), ("nansum", (0,)), ("average", (0,)), ("nanmax", (1,)),
    ],
)  # fmt: skip
def test_values_by_position_are_those_of_numpy(name: str, given: tuple[Any, ...]) -> None:
    found = getattr(fb, name)(fb.asarray(X), *given).numpy()
    np.testing.assert_allclose(found, getattr(np, name)(X, *given), rtol=1e-6)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_joining_by_position(name: str) -> None:
    x = fb.asarray(X)
    assert np.array_equal(getattr(fb, name)([x, x], 1).numpy(), getattr(np, name)([X, X], 1))


def test_softmax_by_position() -> None:
    x = fb.asarray(X)
    assert np.array_equal(fb.softmax(x, 0).numpy(), fb.softmax(x, axis=0).numpy())
    assert np.array_equal(fb.logsumexp(x, 0).numpy(), fb.logsumexp(x, axis=0).numpy())
    assert [t.shape for t in fb.split(x, [1, 3], 1)] == [(3, 1), (3, 3)]


# numbers where tensors stand


@pytest.mark.parametrize(
    ("x1", "x2", "dtype"),
    [
        (1, 0, "int64"), (1, 0.5, "float32"), (1.5, 0, "float32"), (True, False, "bool"), (1j, 0, "complex64"),
        (np.float64(1.5), 0, "float32"), (np.int8(1), np.int16(0), "int64"), (-0.0, 0, "float32"),
    ],
)  # fmt: skip
def test_where_of_two_numbers_has_their_default_dtype(x1: Any, x2: Any, dtype: str) -> None:
    condition = np.array([[True, False], [False, True]])
    for where in (fb.where, fb.jit(fb.where)):
        found = where(fb.asarray(condition), x1, x2)
        assert found.dtype.name == dtype
        expected = np.where(condition, x1, x2).astype(found.dtype.np)
        assert found.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("x1", ["a", None, [1], b"1"])
def test_where_refuses_what_is_no_number(x1: Any) -> None:
    with pytest.raises(fb.OperandError, match="x1 must be a Firebrick tensor"):
        fb.where(fb.asarray([True]), x1, 0)
    with pytest.raises(fb.OperandError, match="condition must be a Firebrick tensor"):
        fb.where([True], 1, 0)  # type: ignore[arg-type]


def test_a_tensor_of_one_element_is_formatted_as_its_number() -> None:
    assert f"{fb.asarray(2.0 / 3.0):.4f} {fb.asarray([[7]]):>4d} {fb.asarray(True)!s:.6}" == "0.6667    7 tensor"
    assert f"{fb.asarray(1.5)}" == str(fb.asarray(1.5))
    assert f"{fb.asarray(0.1, dtype=fb.bfloat16):.3f}" == "0.100"
    for x in (fb.asarray([1.0, 2.0]), fb.zeros(0)):
        with pytest.raises(fb.ShapeError, match=r"the format '.2f' is one of a number"):
            f"{x:.2f}"
    with pytest.raises(ValueError, match="Unknown format code"):
        f"{fb.asarray(1.5):d}"
