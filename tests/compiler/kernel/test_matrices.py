"""Cholesky decompositions and triangular solves: results and faults of the specification, its naive form and its blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_bodies import body_of
from naive_forms import run_naive

from firebrick.compiler.kernel import Fault
from firebrick.compiler.naive import Naive, naive
from firebrick.compiler.spec.evaluate import outcome
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.matrix import Cholesky, MatrixSite
from firebrick.compiler.targets.wgsl.cholesky_by_blocks import SECTION, cholesky_by_blocks
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results

Array = np.ndarray[Any, Any]
BY = ["specification", "interpreted naive form", "compiled naive form", "interpreted blocks", "compiled blocks"]
in_every_way = pytest.mark.parametrize("by", BY)
RNG = np.random.default_rng(3)


def positive(stack: tuple[int, ...], n: int) -> Array:
    """Positive definite matrices."""
    x = RNG.normal(size=(*stack, n, n))
    return np.asarray(x @ np.swapaxes(x, -1, -2) + n * np.eye(n)).astype(np.float32)


def computed(by: str, op: str, *arrays: Array, **params: Any) -> tuple[Array, Fault | None]:
    """The result and the fault; a solve has no other form than the naive one."""
    body = body_of(arrays, (op, tuple(range(len(arrays))), params))
    spec, results = spec_of(body), [body.avals[v] for v in body.outputs]
    if by == BY[0]:
        found, fault = outcome(spec, arrays, [results[0].size], ["float32"])
        return found[0].reshape(results[0].shape), fault
    form: Naive = cholesky_by_blocks(spec) if "blocks" in by and isinstance(spec, Cholesky) else naive(spec)
    found, fault = run_naive(form, arrays, results, native="compiled" in by)
    return found[0], fault


@in_every_way
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, SECTION - 1, SECTION, SECTION + 1, 2 * SECTION + 3])
def test_matrices_of_every_size_are_factored_and_solved_with(by: str, n: int) -> None:
    x = positive((2, 1), n)
    x += np.triu(RNG.normal(size=x.shape), 1).astype(np.float32) / 8  # the Hermitian part counts
    factor, fault = computed(by, "cholesky", x)
    assert fault is None
    assert check_results(OPS["cholesky"], (x,), {}, (factor,), (OPS["cholesky"].reference(x.astype(np.float64)),)).ok
    for upper, columns in ((False, 1), (True, 3), (False, 4), (True, 9)):
        t = np.swapaxes(factor, -1, -2).copy() if upper else factor.copy()
        t[..., *(np.tril_indices(n, -1) if upper else np.triu_indices(n, 1))] = np.nan  # which nothing reads
        y = RNG.normal(size=(3, n, columns)).astype(np.float32)
        found, fault = computed(by, "solve_triangular", t, y, upper=upper)
        assert fault is None
        t = np.nan_to_num(t)
        want = OPS["solve_triangular"].reference(t.astype(np.float64), y, upper=upper)
        assert check_results(OPS["solve_triangular"], (t, y), {"upper": upper}, (found,), (want,)).ok


@in_every_way
@pytest.mark.parametrize("n", [1, 3, SECTION + 2])
def test_the_first_matrix_without_an_answer_is_reported(by: str, n: int) -> None:
    x = positive((2, 3), n)
    x[1, 0, -1, -1] = x[1, 2, 0, 0] = -1.0
    assert computed(by, "cholesky", x)[1] == Fault(2, 3)
    for value in (np.nan, np.inf, -np.inf):
        spoiled = x.copy()
        spoiled[1, 1, 0, -1] = value
        assert computed(by, "cholesky", spoiled)[1] == Fault(0, 4)
        assert computed(by, "cholesky", np.swapaxes(spoiled, -1, -2).copy())[1] == Fault(0, 4)
    for upper in (False, True):
        x[1, 2, n // 2, n // 2] = -0.0
        assert computed(by, "solve_triangular", x, x, upper=upper)[1] == Fault(0, 5)


@in_every_way
def test_large_matrices_do_not_overflow(by: str) -> None:
    """x + xᵀ would."""
    factor, fault = computed(by, "cholesky", np.full((1, 1), 3e38, np.float32))
    assert fault is None
    assert factor == np.float32(np.sqrt(np.float64(np.float32(3e38))))


def test_the_error_has_the_place_of_a_matrix_and_their_number() -> None:
    text = str(MatrixSite("solve_triangular", "invertible", (2, 3)).error(4, -2))
    assert "matrix (1, 1) of a stack of shape (2, 3) is not (2 in all)" in text
    assert "the matrix is not." in str(MatrixSite("cholesky", "finite", ()).error(0, -1))
