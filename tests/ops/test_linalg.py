"""The ruler for decompositions: errors of vectors grow with the condition, errors of values do not; matrices are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.numpy import engine
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.linalg import singular

EPS = np.finfo(np.float32).eps


def narrow(results: Any) -> Any:
    return tuple(np.array(r, np.float32) for r in results)


def test_close_eigenvalues_excuse_errors_of_the_vectors_but_not_of_the_values() -> None:
    x = (np.diag([1.0, 1.001, 3.0]).astype(np.float32),)
    want = run_reference(OPS["eigh"], x, {})
    w, v = narrow(want)
    turn = np.float32(200 * EPS)
    turned = np.array(v)
    turned[:2, 0] += turn * v[:2, 1]
    assert check_results(OPS["eigh"], x, {}, (w, turned), want).ok
    assert not check_results(OPS["eigh"], x, {}, (w + turn, v), want).ok
    apart = (np.diag([1.0, 2.0, 3.0]).astype(np.float32),)
    assert not check_results(OPS["eigh"], apart, {}, (narrow(run_reference(OPS["eigh"], apart, {}))[0], turned),
                             run_reference(OPS["eigh"], apart, {})).ok  # fmt: skip


def test_errors_of_the_exponential_of_a_tiny_matrix_are_relative_to_the_ones_of_its_diagonal() -> None:
    x = (np.full((2, 2), 1e-6, np.float32),)
    want = run_reference(OPS["expm"], x, {})
    (y,) = narrow(want)
    for units, ok in ((2, True), (50, False)):
        assert check_results(OPS["expm"], x, {}, (y + units * EPS,), want).ok is ok


@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_errors_of_solutions_may_grow_with_the_condition(condition: float) -> None:
    x = (np.diag([condition, 1.0]).astype(np.float32), np.ones((2, 1), np.float32))
    want = run_reference(OPS["solve"], x, {})
    (y,) = narrow(want)
    assert check_results(OPS["solve"], x, {}, (y + np.float32(0.5 * EPS * condition),), want).ok
    assert not check_results(OPS["solve"], x, {}, (y + np.float32(20 * EPS * condition),), want).ok


def test_verify_finds_vectors_of_the_other_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.asarray(np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32), device="numpy")
    right = engine._KERNELS["svd"]

    def turned(x: Any) -> Any:
        u, s, vh = right(x)
        return -u, s, -vh

    with fb.verify():
        fb.linalg.svd(x)
        monkeypatch.setitem(engine._KERNELS, "svd", turned)
        with pytest.raises(fb.ExecutionError, match="svd on numpy must agree with its reference"):
            fb.linalg.svd(x)


def test_the_error_names_the_first_matrix_and_counts_the_others() -> None:
    text = str(singular("inv", np.asarray([[False, True], [True, True]])))
    assert "inv: every matrix must be invertible" in text
    assert "matrix (0, 1) of a stack of shape (2, 2) is not (3 in all)" in text
    assert "the matrix is not" in str(singular("inv", np.asarray(True)))
