"""Sorts: the order of special values, ties, all dtypes and empty lines, of the specification and its naive form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lowered_bodies import body_of
from naive_forms import groups, run_naive

from firebrick.compiler.kernel.ir import For, Let
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.base import key
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.sort import Sort
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import ExecutionError
from firebrick.scalar.storage import STORAGE

Array = np.ndarray[Any, Any]
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
NAN = float("nan")

BY = ["interpreted specification", "interpreted naive form", "compiled naive form"]
in_every_way = pytest.mark.parametrize("by", BY)


def computed_by(by: str, spec: Sort, x: Array) -> tuple[Array, Array]:
    """Values and indices, [outer, kept, inner]."""
    shape = spec.outer, spec.kept, spec.inner
    avals = [Aval(shape, dtype(spec.dtype)), Aval(shape, dtype(spec.index))]
    if by == BY[0]:
        values, at = interpret(spec, (x,), [a.size for a in avals], [a.dtype.name for a in avals])
        return values.reshape(shape), at.reshape(shape)
    (values, at), fault = run_naive(naive(spec), (x,), avals, native=by == BY[2])
    assert fault is None
    return values, at


def line(x: Array, kept: int | None = None, descending: bool = False, index: str = "int64") -> Sort:
    """The specification of a sort of one line."""
    return Sort(1, x.size, 1, x.size if kept is None else kept, descending, x.dtype.name, index, (0,))


def bits(x: Array) -> list[int]:
    out: list[int] = x.reshape(-1).view(BITS[x.itemsize]).tolist()
    return out


@in_every_way
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("descending", "order"), [(False, [6, 5, 1, 3, 0, 4, 2, 7]), (True, [2, 7, 4, 0, 1, 3, 5, 6])])
def test_nan_is_the_largest_and_zeros_are_equal(by: str, name: str, descending: bool, order: list[int]) -> None:
    x = np.array([1.0, 0.0, NAN, -0.0, np.inf, -1.0, -np.inf, NAN]).astype(dtype(name).np)
    values, at = computed_by(by, line(x, descending=descending), x)
    assert at.reshape(-1).tolist() == order
    assert np.isnan(x[order]).tolist() == np.isnan(values).reshape(-1).tolist()
    number = ~np.isnan(x[order])
    assert bits(values.reshape(-1)[number]) == bits(x[order][number])  # zeros keep their signs


@in_every_way
@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order(by: str, descending: bool) -> None:
    x = np.array([3, 1, 3, 1, 2, 3, 1], np.int32)
    _, at = computed_by(by, line(x, descending=descending), x)
    assert at.reshape(-1).tolist() == ([0, 2, 5, 4, 1, 3, 6] if descending else [1, 3, 6, 4, 0, 2, 5])


@in_every_way
@pytest.mark.parametrize("name", STORAGE)
def test_every_dtype_is_sorted_up_to_its_limits(by: str, name: str) -> None:
    kind = dtype(name)
    if kind.kind == "bool":
        x = np.array([True, False, True, False])
    elif kind.is_integer:
        info = np.iinfo(kind.np)
        x = np.array([info.max, 1, info.min, 0, info.max - 1, info.min + 1], kind.np)
    else:
        x = np.array([2.5, -1.0, 65280.0, 6e-8, -65280.0]).astype(kind.np)
    for descending in (False, True):
        values, at = computed_by(by, line(x, descending=descending), x)
        want = sorted(range(x.size), key=lambda i: (-1 if descending else 1) * float(x[i]) if not kind.is_integer else (
            -int(x[i]) if descending else int(x[i])))  # fmt: skip
        assert at.reshape(-1).tolist() == want
        assert bits(values) == bits(x[want])


@in_every_way
@pytest.mark.parametrize("index", ["int64", "int32", "uint8"])
def test_indices_have_the_dtype_of_the_specification(by: str, index: str) -> None:
    x = np.array([5.0, 7.0, 6.0])
    _, at = computed_by(by, line(x, kept=2, descending=True, index=index), x)
    assert at.dtype == index
    assert at.reshape(-1).tolist() == [1, 2]


@in_every_way
@pytest.mark.parametrize("sizes", [(0, 3, 2, 3), (2, 0, 2, 0), (2, 3, 0, 3), (2, 3, 2, 0), (3, 1, 2, 1), (1, 1, 1, 1)], ids=str)
def test_lines_and_results_may_be_empty_and_lines_of_one_element(by: str, sizes: tuple[int, int, int, int]) -> None:
    outer, size, inner, kept = sizes
    x = np.arange(outer * size * inner, dtype=np.float32)
    values, at = computed_by(by, Sort(outer, size, inner, kept, True, "float32", "int64", (0,)), x)
    assert values.size == at.size == outer * kept * inner
    if values.size:
        assert values.reshape(-1).tolist() == x.tolist()
        assert not at.any()


@in_every_way
def test_lines_along_an_axis_in_the_middle_are_sorted_each_by_itself(by: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 7, 4)).astype(np.int16)
    values, at = computed_by(by, Sort(3, 7, 4, 5, False, "int16", "int64", (0,)), x)
    want = np.argsort(x, axis=1, kind="stable")[:, :5]
    assert np.array_equal(at, want)
    assert np.array_equal(values, np.take_along_axis(x, want, 1))


def test_elements_of_one_rank_would_be_a_race_that_the_interpreter_sees() -> None:
    """Without the comparison with the elements in front, equal elements have one rank."""
    x = np.array([2.0, 1.0, 2.0])
    form = naive(line(x))
    (step,) = form.steps
    body = list(step.function.body)
    first = next(k for k, s in enumerate(body) if isinstance(s, For))
    del body[first]
    wrong = replace(form, steps=(replace(step, function=replace(step.function, body=tuple(body))),))
    avals = [Aval((3,), dtype("float64")), Aval((3,), dtype("int64"))]
    with pytest.raises(ExecutionError, match="an element that an item stores is accessed by that item alone"):
        run_naive(wrong, (x,), avals, native=False)


def test_a_rank_that_starts_elsewhere_is_noticed() -> None:
    """The comparisons above can fail."""
    x = np.array([2.0, 1.0, 3.0, 0.0])
    form = naive(line(x, kept=2))
    (step,) = form.steps
    body = tuple(
        replace(s, value=s.value + 1) if isinstance(s, Let) and s.name.startswith("rank") else s for s in step.function.body
    )
    wrong = replace(form, steps=(replace(step, function=replace(step.function, body=body)),))
    avals = [Aval((2,), dtype("float64")), Aval((2,), dtype("int64"))]
    (values, _), _ = run_naive(wrong, (x,), avals, native=False)
    assert values.tolist() == [77, 0]


def test_the_smallest_of_all_elements_are_a_sort() -> None:
    x = np.zeros((4, 6), np.float32)
    ordered = body_of((x,), ("sort", (0,), {"axis": 1, "descending": False}))
    smallest = body_of((x,), ("top_k", (0,), {"axis": 1, "k": 6, "largest": False}))
    few = body_of((x,), ("top_k", (0,), {"axis": 1, "k": 2, "largest": False}))
    assert spec_of(ordered) == spec_of(smallest)
    assert key(spec_of(ordered)) == key(spec_of(few))


def test_the_work_of_a_sort_is_that_of_its_comparisons() -> None:
    cost = Sort(2, 8, 4, 3, False, "float32", "int64", (0,)).cost
    assert cost.flops == 64 * 3
    assert cost.nbytes == 64 * 4 + 24 * (4 + 8)
    assert Sort(2, 1, 4, 1, False, "float32", "int64", (0,)).cost.flops == 8


@pytest.mark.parametrize("name", ["sort", "top_k"])
def test_samples_of_the_op_table_have_long_lines_which_the_processor_sorts_by_digits(name: str) -> None:
    """Naive forms of all of them run in ``test_naive_forms``, whatever the processor's policy is."""
    sizes = {g.spec.size for g in groups(name) if isinstance(g.spec, Sort)}
    assert {7, 600} <= sizes
