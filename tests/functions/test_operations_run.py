"""Which operations a call runs: a setting that changes nothing costs nothing, and what is asked for alone is computed alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import firebrick as fb

V, M, Z = fb.asarray([0.5, 1.0, -2.0]), fb.asarray([[0.5, 1.0], [1.0, 3.0]]), fb.asarray([1.0 + 2.0j])
I, IMAGE, MASK = fb.asarray([0, 1]), fb.ones((1, 4, 8, 6)), fb.asarray([True, False, True])  # noqa: E741
Q = fb.ones((1, 2, 3, 4))


CALLS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "adaptive pooling to the same size": (lambda: fb.adaptive_avg_pool2d(IMAGE, (8, 6)), []),
    "adaptive pooling to parts of the size": (lambda: fb.adaptive_avg_pool2d(IMAGE, (4, 3)), ["avg_pool"]),
    "adaptive pooling of one axis": (lambda: fb.adaptive_avg_pool2d(IMAGE, (5, 6)), ["take", "multiply", "where", "sum"]),
    "adaptive maximum to parts of the size": (lambda: fb.adaptive_max_pool2d(IMAGE, (4, 3)), ["max_pool"]),
    "average pooling": (lambda: fb.avg_pool2d(IMAGE, 2, count_include_pad=False), ["avg_pool"]),
    "average pooling with its padding": (lambda: fb.avg_pool2d(IMAGE, 3, padding=1), ["avg_pool"]),
    "average pooling without its padding": (
        lambda: fb.avg_pool2d(IMAGE, 3, padding=1, count_include_pad=False), ["avg_pool", "multiply"]
    ),
    "interpolation to the same size": (lambda: fb.interpolate(IMAGE, (8, 6), mode="bilinear"), []),
    "softplus": (lambda: fb.softplus(V), ["logaddexp"]),
    "softplus with a beta": (lambda: fb.softplus(V, beta=2.0), ["multiply", "logaddexp", "divide"]),
    "a real part of real numbers": (lambda: fb.real(V), []),
    "a conjugate of real numbers": (lambda: fb.conj(V), []),
    "a cast to the same dtype": (lambda: fb.astype(V, fb.float32, copy=False), []),
    "a cast": (lambda: fb.astype(V, fb.float64, copy=False), ["cast"]),
    "a sum of float32": (lambda: fb.sum(V), ["sum"]),
    "a turn by nothing": (lambda: fb.rot90(M, 4), ["reshape"]),
    "a turn by half": (lambda: fb.rot90(M, 2), ["flip"]),
    "a roll by nothing": (lambda: fb.roll(M, (0, 2), axis=(0, 1)), ["reshape"]),
    "a roll of one axis": (lambda: fb.roll(M, (1, 2), axis=(0, 1)), ["reshape", "split", "concat"]),
    "a shift of one element": (lambda: fb.fft.fftshift(V[:1]), ["reshape", "slice"]),
    "a transform of the same length": (lambda: fb.fft.fft(Z, n=1), ["fft"]),
    "a product of matrices": (lambda: fb.einsum("ij,jk->ik", M, M), ["matmul"]),
    "a product of elements": (lambda: fb.einsum("ij,ij->ij", M, M), ["reshape", "reshape", "multiply", "reshape"]),
    "a sum of one operand": (lambda: fb.einsum("ij->i", M), ["sum"]),
    "a matrix to the power 1": (lambda: fb.linalg.matrix_power(M, 1), ["reshape"]),
    "a matrix to the power 4": (lambda: fb.linalg.matrix_power(M, 4), ["reshape", "matmul", "matmul"]),
    "a matrix to the power 3": (lambda: fb.linalg.matrix_power(M, 3), ["reshape", "matmul", "matmul"]),
    "all singular vectors of a square": (lambda: fb.linalg.svd(M), ["svd", "permute", "permute"]),
    "a maximum by norm": (lambda: fb.linalg.vector_norm(V, ord=float("inf")), ["abs", "max"]),
    "a sum by norm": (lambda: fb.linalg.vector_norm(V, ord=1), ["abs", "sum"]),
    "layer norm of one axis": (lambda: fb.layer_norm(IMAGE, weight=fb.ones(6), bias=fb.zeros(6)), ["layer_norm"]),
    "attention": (lambda: fb.scaled_dot_product_attention(Q, Q, Q), ["attention"]),
    "causal attention": (lambda: fb.scaled_dot_product_attention(Q, Q, Q, causal=True), ["attention"]),
    "mean squared error": (lambda: fb.mse_loss(V, V), ["subtract", "multiply", "mean"]),
    "errors one by one": (lambda: fb.mse_loss(V, V, reduction="none"), ["subtract", "multiply"]),
    "a product without bias": (lambda: fb.conv2d(IMAGE, fb.ones((1, 4, 1, 1))), ["conv"]),
    "a row by number": (lambda: M[1], ["slice"]),
    "rows by numbers": (lambda: M[I], ["take"]),
    "columns by numbers": (lambda: M[:, I], ["take"]),
    "elements by number": (lambda: M[I, I], ["ravel_index", "reshape", "take"]),
    "a row of a stack by numbers": (lambda: M[I, 0], ["slice", "reshape", "take"]),
    "a number put": (lambda: V.__setitem__(0, 1.0), ["reshape", "slice_update"]),
    "a number put at true elements": (lambda: V.__setitem__(MASK, 1.0), ["reshape", "where"]),
    "a list of the same shape": (lambda: fb.broadcast_arrays(V, V), ["broadcast_to", "broadcast_to"]),
    "the maximum of a row": (lambda: fb.argmax(M, axis=1), ["argmax"]),
    "the place of the maximum": (lambda: fb.argmax(M), ["reshape", "argmax"]),
    "quantiles of the last axis": (lambda: fb.sort(M), ["sort"]),
    "a value for true elements": (lambda: fb.masked_fill(V, MASK, 0.0), ["where"]),
    "numbers without NaN": (lambda: fb.nansum(I), ["sum"]),
    "a maximum of integers without NaN": (lambda: fb.nanmax(I), ["max"]),
    "a sign of real numbers": (lambda: fb.sign(V), ["sign"]),
    "rounding of real numbers": (lambda: fb.round(V), ["round"]),
    "a diagonal": (lambda: fb.diagonal(M), ["reshape", "slice"]),
    "a matrix of a diagonal": (lambda: fb.diag_embed(V), ["broadcast_to", "slice_update", "reshape"]),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_call_runs_no_operation_that_it_does_not_need(what: str) -> None:
    call, operations = CALLS[what]
    with fb.profile() as report:
        call()
    run = {name: row.calls for (_, name), row in report.rows.items()}
    assert run == {name: operations.count(name) for name in operations}
