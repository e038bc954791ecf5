"""Settings with a range: the last value that is allowed gives a result, and the first that is not is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from limits import check_limit

import firebrick as fb

V, M = fb.asarray([0.5, 1.0, -2.0]), fb.asarray([[0.5, 1.0, -2.0], [1.0, 0.0, 3.0]])
I = fb.asarray([0, 2])  # noqa: E741
SIGNS, TABLE, IMAGE, KERNEL = fb.asarray([1.0, -1.0]), fb.ones((3, 2)), fb.ones((1, 4, 4, 4)), fb.ones((4, 4, 2, 2))
SCORES = fb.log_softmax(fb.ones((4, 1, 3)))
ABOVE_ONE, ABOVE_HUNDRED = math.nextafter(1.0, 2.0), math.nextafter(100.0, 200.0)

# a call with one setting; values that are allowed, and values that are not
LIMITS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "hardtanh min_val": (lambda v: fb.hardtanh(V, min_val=v), (0.999,), (1.0, math.nan)),
    "softplus beta": (lambda v: fb.softplus(V, beta=v), (1e-3,), (0.0, -1.0)),
    "celu alpha": (lambda v: fb.celu(V, alpha=v), (1e-3,), (0.0, -1.0)),
    "softshrink lambd": (lambda v: fb.softshrink(V, lambd=v), (0.0,), (-1e-9,)),
    "hardshrink lambd": (lambda v: fb.hardshrink(V, lambd=v), (0.0,), (-1e-9,)),
    "label_smoothing": (lambda v: fb.cross_entropy(M, I, label_smoothing=v), (0.0, 1.0), (-1e-9, ABOVE_ONE)),
    "huber delta": (lambda v: fb.huber_loss(V, V, delta=v), (1e-3, 1), (0.0, math.inf, True)),
    "smooth_l1 beta": (lambda v: fb.smooth_l1_loss(V, V, beta=v), (0.0, 1), (-1e-9, math.inf, True)),
    "poisson eps": (lambda v: fb.poisson_nll_loss(V, V, eps=v), (0.0,), (-1e-9, math.inf)),
    "gaussian eps": (lambda v: fb.gaussian_nll_loss(V, V, fb.abs(V), eps=v), (1e-9,), (0.0, math.inf)),
    "cosine eps": (lambda v: fb.cosine_similarity(M, M, eps=v), (1e-9,), (0.0, math.inf)),
    "cosine margin": (lambda v: fb.cosine_embedding_loss(M, M, SIGNS, margin=v), (-1.0, 1.0), (-ABOVE_ONE, ABOVE_ONE)),
    "triplet margin": (lambda v: fb.triplet_margin_loss(M, M, M, margin=v), (1e-3,), (0.0,)),
    "triplet eps": (lambda v: fb.triplet_margin_loss(M, M, M, eps=v), (0.0,), (-1e-9,)),
    "triplet p": (lambda v: fb.triplet_margin_loss(M, M, M, p=v), (1.0, math.inf), (0.999, math.nan)),
    "quantile q": (lambda v: fb.quantile(V, v), (0.0, 1.0, [0, 1]), (-1e-9, ABOVE_ONE)),
    "percentile q": (lambda v: fb.percentile(V, v), (0.0, 100.0), (-1e-9, ABOVE_HUNDRED)),
    "cov correction": (lambda v: fb.cov(V, correction=v), (2.999, -1.0), (3.0, 4)),
    "top_k k": (lambda v: fb.top_k(V, v), (0, 3), (-1, 4)),
    "chunk": (lambda v: fb.chunk(V, v), (1,), (0, -1)),
    "array_split places": (lambda v: fb.array_split(V, v), ([0, 3], [], [1, 1]), ([-1, 3], [0, 4], [2, 1])),
    "split size": (lambda v: fb.split(V, v), (1, 3, 4, [3, 0]), (0, [])),
    "diff n": (lambda v: fb.diff(V, n=v), (0, 2), (-1,)),
    "repeat": (lambda v: fb.repeat(V, v), (0, [0, 1, 2]), (-1, [0, 1, -1])),
    "tensordot axes": (lambda v: fb.tensordot(M, M, axes=v), (0, 2), (-1, 3)),
    "vecdot axis": (lambda v: fb.vecdot(M, M, axis=v), (-1, -2), (0, -3)),
    "multi_dot": (lambda v: fb.linalg.multi_dot([fb.eye(2)] * v), (2, 3), (0, 1)),
    "local_response_norm size": (lambda v: fb.local_response_norm(IMAGE, v), (1,), (0, -1, True)),
    "group_norm groups": (lambda v: fb.group_norm(IMAGE, v), (1, 4), (0, -1, 8, True)),
    "histogram bins": (lambda v: fb.histogram(V, v), (1, [0.0, 0.0], [0.0, 1.0]), (0, True, [0.0], [1.0, 0.0])),
    "histogram range": (
        lambda v: fb.histogram(V, range=v), ((0, 1), (1, 1)), ((1, 0), (0, math.inf), (-math.inf, 0), (0, 1, 2))
    ),
    "bincount minlength": (lambda v: fb.bincount(I, minlength=v), (0, 9), (-1,)),
    "bincount size": (lambda v: fb.bincount(I, size=v), (3, 9), (2, 0, -1)),
    "nonzero size": (lambda v: fb.nonzero(V, size=v), (0, 9), (-1,)),
    "one_hot classes": (lambda v: fb.one_hot(I, v), (3,), (2, 0, -1)),
    "embedding padding_index": (lambda v: fb.embedding(I, TABLE, padding_index=v), (2, -3), (3, -4, True)),
    "ctc blank": (lambda v: fb.ctc_loss(SCORES, fb.asarray([[1]]), [4], [1], blank=v), (0, 2), (1, 3, -1, True)),
    "ctc input_lengths": (lambda v: fb.ctc_loss(SCORES, fb.asarray([[1]]), [v], [1]), (0, 4), (-1, 5, True)),
    "ctc target_lengths": (lambda v: fb.ctc_loss(SCORES, fb.asarray([[1]]), [4], [v]), (0, 1), (-1, 2, True)),
    "attention dropout": (
        lambda v: fb.scaled_dot_product_attention(M, M, M, dropout=v, generator=fb.random.Generator(0)),
        (0.0, 0.999), (-1e-9, 1.0),
    ),
    "output_padding": (lambda v: fb.conv_transpose2d(IMAGE, KERNEL, stride=2, output_padding=v), (0, 1), (-1, 2)),
    "conv padding": (lambda v: fb.conv2d(IMAGE, KERNEL, padding=v), (0, (0, 1), ((0, 1), (2, 0))), (-1, (0, 1, 2), True)),
    "conv dilation": (lambda v: fb.conv2d(IMAGE, KERNEL, dilation=v), (1, 3), (0, 4)),
    "conv_transpose padding": (lambda v: fb.conv_transpose2d(IMAGE, KERNEL, padding=v), (0, 2), (-1, 3)),
    "max_pool kernel": (lambda v: fb.max_pool2d(IMAGE, v), (1, 4), (0, 5)),
    "max_pool padding": (lambda v: fb.max_pool2d(IMAGE, 2, padding=v), (0, 1), (-1, 2)),
    "adaptive size": (lambda v: fb.adaptive_avg_pool2d(IMAGE, v), (1, 9, (None, 2)), (0, (1,), (1, 2, 3))),
    "interpolate size": (lambda v: fb.interpolate(IMAGE, v), (1, (1, 9)), (0, (1, 0), (1, 2, 3))),
    "interpolate factor": (
        lambda v: fb.interpolate(IMAGE, scale_factor=v), (0.25, 1, (1, 2.0)), (0.24, 0, math.inf, True, (1,))
    ),
    "pixel_shuffle": (lambda v: fb.pixel_shuffle(IMAGE, v), (1, 2), (0, 4)),
    "pixel_unshuffle": (lambda v: fb.pixel_unshuffle(IMAGE, v), (1, 4), (0, 8)),
    "linspace num": (lambda v: fb.linspace(0, 1, v), (0, 1), (-1, (1,))),
    "geomspace start": (lambda v: fb.geomspace(v, 2.0, 3), (1e-9, 2.0), (0.0, -1e-9)),
    "arange step": (lambda v: fb.arange(0, 3, v), (-1, 0.5), (0, math.inf, math.nan)),
    "full of int8": (lambda v: fb.full(1, v, dtype=fb.int8), (-128, 127), (-129, 128, math.nan)),
    "asarray of int8": (lambda v: fb.asarray([v], dtype=fb.int8), (-128, 127), (-129, 128)),
    "fft n": (lambda v: fb.fft.fft(V, n=v), (1, 9), (0, -1)),
    "fftfreq d": (lambda v: fb.fft.fftfreq(4, d=v), (-1.0, 1e-9), (0.0, 0)),
    "irfft of one element": (lambda v: fb.fft.irfft(V[:v]), (2,), (1,)),
    "rot90 axes": (lambda v: fb.rot90(M, axes=v), ((1, 0), (-1, 0)), ((0, 0), (1, -1), (0,), (0, 1, 1))),
    "norm axes": (lambda v: fb.linalg.norm(M, "fro", axis=v), ((0, 1), (1, 0)), ((0, 0), (0, 1, 0), ())),
    "solve x2": (lambda v: fb.linalg.solve(fb.eye(2), fb.ones(v)), (2, (2, 1)), (1, 3)),
    "isclose rtol": (lambda v: fb.isclose(V, V, rtol=v), (0.0, 1), (-1e-9, math.nan, "0")),
    "isclose atol": (lambda v: fb.isclose(V, V, atol=v), (0.0, 1), (-1e-9, math.nan, "0")),
    "pad": (lambda v: fb.pad(V, v), (0, (1, 0), ((0, 1),), {0: (1, 1)}), (-1, ((0, 1), (0, 1)), ((0, 1, 2),), (1, -1), 0.5)),
    "pad by reflection": (lambda v: fb.pad(V, v, mode="reflect"), (2, (0, 2)), (3, (0, 3))),
    "pad by symmetry": (lambda v: fb.pad(V, v, mode="symmetric"), (3, (0, 3)), (4, (0, 4))),
    "pad by wrapping": (lambda v: fb.pad(V, v, mode="wrap"), (3, (0, 3)), (4, (0, 4))),
    "pad by the edge": (lambda v: fb.pad(V[:v], 9, mode="edge"), (1,), (0,)),
    "unfold size": (lambda v: fb.unfold(V, axis=0, size=v), (1, 3), (0, 4, True, 1.0)),
    "unfold step": (lambda v: fb.unfold(V, axis=0, size=2, step=v), (1, 9), (0, True)),
    "unfold2d kernel": (lambda v: fb.unfold2d(IMAGE, v), (1, 4, (1, 4)), (0, 5, (1,), (1, 5), True)),
    "unfold2d stride": (lambda v: fb.unfold2d(IMAGE, 2, stride=v), (1, 9), (0, True)),
    "unfold2d padding": (lambda v: fb.unfold2d(IMAGE, 5, padding=v), (1, 2), (0, -1, True)),
    "unfold2d dilation": (lambda v: fb.unfold2d(IMAGE, 2, dilation=v), (1, 3), (0, 4, True)),
    "fold2d size": (lambda v: fb.fold2d(fb.ones((1, 4, 9)), v, 2), (4, (4, 4)), (3, 5, (4, 3), 0)),
    "fold2d columns": (lambda v: fb.fold2d(fb.ones(v), 4, 2), ((1, 4, 9), (2, 8, 9)), ((4, 9), (1, 3, 9), (1, 4, 8))),
    "triangle k": (lambda v: fb.tril(M, k=v), (-9, 9), (0.5, True)),
}  # fmt: skip


@pytest.mark.parametrize("what", LIMITS)
def test_the_last_allowed_value_gives_a_result_and_the_next_is_refused(what: str) -> None:
    check_limit(LIMITS[what])
