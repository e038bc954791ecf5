"""Kernels of naive forms: every kind runs on this processor without a generator of its own."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
from lowered_bodies import Body, body_of, kernels_of
from naive_forms import WITH_KERNELS, groups

from firebrick.compiler.fusion.facts import ALONE
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.targets.llvm import lower
from firebrick.compiler.targets.llvm.cpu_policy import RANKED
from firebrick.compiler.targets.llvm.naive_form import lowered
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import OutOfRangeError
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference

SAMPLES = 4
"""Of each op: a kernel of its own is compiled for each."""


@pytest.fixture
def without_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kind has a generator, and no kernels are known."""
    monkeypatch.setattr(lower, "EMIT", {})
    monkeypatch.setattr(lower, "_lowered", WeakValueDictionary())


@pytest.mark.usefixtures("without_generators")
@pytest.mark.parametrize("name", [n for n in WITH_KERNELS if OPS[n].kind not in ("map", "row")])
def test_every_kind_runs_without_a_generator_of_its_own(name: str) -> None:
    found = [g for g in groups(name) if "float32" in g.title or "int32" in g.title]
    assert found
    for g in found[:: max(1, len(found) // SAMPLES)]:
        made = Body(g.body)
        assert all(kernel.startswith("naive_") for kernel in kernels_of(made.lowered))
        got = tuple(made(*(np.ascontiguousarray(a) for a in g.arrays)))
        want = run_reference(OPS[name], g.arrays, g.sample.params)
        verdict = check_results(OPS[name], g.arrays, g.sample.params, got, want)
        assert verdict.ok, f"{g.title}: {verdict}"


@pytest.mark.usefixtures("without_generators")
def test_a_softmax_and_a_sum_of_columns_run_in_their_naive_forms() -> None:
    x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    (weights,) = Body(body_of((x,), ("softmax", (0,), {"axis": 1})))(x)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)
    (total,) = Body(body_of((x,), ("sum", (0,), {"axes": (0,), "keepdims": False})))(x)
    np.testing.assert_allclose(total, x.sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("without_generators")
def test_an_index_out_of_range_is_reported_by_a_naive_form_with_its_operation() -> None:
    x, at, updates = np.zeros((4, 3)), np.array([1, 9]), np.ones((2, 3))
    made = Body(body_of((x, at, updates), ("index_add", (0, 1, 2), {"axis": 0})))
    with pytest.raises(OutOfRangeError, match=r"index_add: indices must lie in \[-4, 4\)\nReceived: 9\."):
        made(x, at, updates)


def test_sizes_are_constants_of_the_code() -> None:
    made = [lowered(Prefix("sum", n, 5, 1, False, "float64", "float64", (0,)), [], [], Target.host()) for n in (6, 7)]
    assert {p.kernel.buffers for low in made for p in low.parts} == {2}
    assert made[0].parts[0].kernel.grid == 6
    assert made[1].parts[0].kernel.grid == 7


def test_a_running_sum_is_that_of_the_reference_bit_by_bit() -> None:
    x = np.random.default_rng(1).normal(size=(3, 400, 5)).astype(np.float32)
    x[0, 0] = -0.0
    for axis in range(3):
        for reverse in (False, True):
            params = {"axis": axis, "reverse": reverse}
            (got,) = Body(body_of((x,), ("cumulative_sum", (0,), params)))(x)
            assert got.tobytes() == OPS["cumulative_sum"].reference(x, **params).tobytes()


def test_a_running_maximum_keeps_the_first_nan_and_the_first_of_equal_elements() -> None:
    x = np.array([1.0, 3.0, 3.0, np.nan, 5.0, np.nan])
    values, at = Body(body_of((x,), ("cumulative_max", (0,), {"axis": 0, "reverse": False})))(x)
    np.testing.assert_array_equal(values, [1, 3, 3, np.nan, np.nan, np.nan])
    assert at.tolist() == [0, 1, 1, 3, 3, 3]
    values, at = Body(body_of((x,), ("cumulative_max", (0,), {"axis": 0, "reverse": True})))(x)
    assert np.isnan(values).all()
    assert at.tolist() == [5] * 6


def test_a_running_sum_of_half_precision_is_rounded_at_each_element_only() -> None:
    x = np.full(4096, 1.0, np.float16)  # a float16 sum would stay at 2048
    (got,) = Body(body_of((x,), ("cumulative_sum", (0,), {"axis": 0, "reverse": False})))(x)
    assert got[-1] == 4096


@pytest.mark.parametrize(("name", "params"), [("sort", {"descending": False}), ("top_k", {"k": 3, "largest": True})])
def test_the_elements_of_short_lines_are_compared_with_each_other(name: str, params: dict[str, Any]) -> None:
    for shape, axis in (((3, RANKED), 1), ((RANKED + 1, RANKED), 1), ((3, RANKED + 1), 1), ((RANKED + 1, 3), 0)):
        body = body_of((np.zeros(shape, np.float32),), (name, (0,), {"axis": axis, **params}))
        assert lower.kind_of(body.nodes[0], tuple(body.inputs)) == ALONE
        (kernel,) = lower.lower(body, Target.host()).parts
        assert kernel.kernel.name.startswith("naive_sort" if shape[axis] == RANKED else "sort")


def test_a_sort_in_a_kernel_is_that_of_the_reference_bit_by_bit() -> None:
    x = np.random.default_rng(2).normal(size=(3, RANKED, 5)).astype(np.float32).round(1)
    x[0, ::3], x[1, ::4], x[2, ::5] = np.nan, -0.0, 0.0
    for axis in range(3):
        for descending in (False, True):
            params = {"axis": axis, "descending": descending}
            got = Body(body_of((x,), ("sort", (0,), params)))(x)
            for a, b in zip(got, OPS["sort"].reference(x, **params), strict=True):
                assert a.tobytes() == b.tobytes()


def test_an_array_without_elements_has_no_kernel() -> None:
    body = body_of((np.zeros((0, 4), np.float32),), ("cumulative_sum", (0,), {"axis": 1, "reverse": False}))
    assert lower.kind_of(body.nodes[0], tuple(body.inputs)) == "no elements"
