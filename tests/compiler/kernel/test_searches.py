"""Searches in ordered arrays: special values, equals, limits and empty arrays, of the specification and its naive form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from naive_forms import run_naive

from firebrick.compiler.kernel.ir import Let
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.base import key
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.search import Search
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import OutOfRangeError
from firebrick.scalar.storage import STORAGE

Array = np.ndarray[Any, Any]
BY = ["interpreted specification", "interpreted naive form", "compiled naive form"]
in_every_way = pytest.mark.parametrize("by", BY)
NAN = float("nan")


def found_by(by: str, array: Array, wanted: Array, right: bool, index: str = "int64") -> list[int]:
    """The indices."""
    spec = Search(array.size, wanted.size, right, array.dtype.name, index, (0, 1))
    if by == BY[0]:
        (found,) = interpret(spec, (array, wanted), [wanted.size], [index])
    else:
        (found,), fault = run_naive(naive(spec), (array, wanted), [Aval(wanted.shape, dtype(index))], native=by == BY[2])
        assert fault is None
    assert found.dtype == index
    out: list[int] = found.tolist()
    return out


@in_every_way
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_nan_is_the_largest_and_zeros_are_equal(by: str, name: str) -> None:
    array = np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, NAN, NAN]).astype(dtype(name).np)
    wanted = np.array([-np.inf, 0.0, -0.0, 0.5, np.inf, NAN]).astype(dtype(name).np)
    assert found_by(by, array, wanted, right=False) == [0, 2, 2, 4, 5, 6]
    assert found_by(by, array, wanted, right=True) == [1, 4, 4, 4, 6, 8]


@in_every_way
@pytest.mark.parametrize("name", STORAGE)
def test_every_dtype_is_searched_up_to_its_limits(by: str, name: str) -> None:
    kind = dtype(name)
    if kind.kind == "bool":
        array = np.array([False, False, True, True, True])
    elif kind.is_integer:
        info = np.iinfo(kind.np)
        array = np.array([info.min, info.min + 1, 3, 3, info.max - 1, info.max], kind.np)
    else:
        array = np.array([-65280.0, -1.0, 2.5, 2.5, 65280.0]).astype(kind.np)
    wanted = np.unique(array)
    numbers, ordered = wanted.astype(np.float64).tolist(), array.astype(np.float64).tolist()
    if kind.is_integer:
        numbers, ordered = wanted.tolist(), array.tolist()
    assert found_by(by, array, wanted, right=False) == [sum(y < x for y in ordered) for x in numbers]
    assert found_by(by, array, wanted, right=True) == [sum(y <= x for y in ordered) for x in numbers]


@in_every_way
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9])
def test_arrays_of_any_size_are_searched(by: str, size: int) -> None:
    array = 2 * np.arange(size, dtype=np.int32)
    wanted = np.arange(-1, 2 * size + 1, dtype=np.int32)
    for right in (False, True):
        assert found_by(by, array, wanted, right) == np.searchsorted(array, wanted, "right" if right else "left").tolist()


@in_every_way
def test_indices_have_the_dtype_of_the_specification(by: str) -> None:
    assert found_by(by, np.arange(4.0), np.array([2.5, 0.0]), right=False, index="int32") == [3, 0]


@in_every_way
def test_nothing_is_looked_for_and_results_have_no_elements(by: str) -> None:
    assert found_by(by, np.arange(4.0), np.zeros(0), right=False) == []


def test_an_array_in_no_order_is_read_inside_of_it_only() -> None:
    rng = np.random.default_rng(0)
    array, wanted = rng.normal(size=50), np.append(rng.normal(size=40), [NAN, np.inf, -np.inf])
    found = found_by(BY[1], array, wanted, right=True)  # the interpreter checks every read
    assert set(found) <= set(range(51))


def test_a_part_that_does_not_shrink_is_noticed() -> None:
    """The comparisons above can fail: a search that goes one element too far reads outside of the array."""
    array, wanted = np.arange(5.0), np.array([9.0])
    form = naive(Search(5, 1, False, "float64", "int64", (0, 1)))
    (step,) = form.steps
    body = tuple(
        replace(s, value=s.value + 2) if isinstance(s, Let) and s.name.startswith("high") else s for s in step.function.body
    )
    wrong = replace(form, steps=(replace(step, function=replace(step.function, body=body)),))
    with pytest.raises(OutOfRangeError, match="an index of x0 is at least 0 and below 5"):
        run_naive(wrong, (array, wanted), [Aval((1,), dtype("int64"))], native=False)


def test_searches_of_all_sizes_have_one_structure() -> None:
    first, second = (Search(n, m, False, "float32", "int64", (0, 1)) for n, m in ((5, 7), (300, 2)))
    assert key(first) == key(second) != key(replace(first, right=True))
    assert [s.function for s in naive(first).steps] == [s.function for s in naive(second).steps]


def test_the_work_of_a_search_is_that_of_its_comparisons() -> None:
    cost = Search(16, 10, False, "float32", "int64", (0, 1)).cost
    assert cost.flops == 40
    assert cost.nbytes == 26 * 4 + 10 * 8
    assert Search(1, 10, False, "float32", "int64", (0, 1)).cost.flops == 10
