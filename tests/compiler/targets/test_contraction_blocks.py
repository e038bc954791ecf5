"""Contractions by blocks have the bits of their naive forms, whatever the sizes of the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_bodies import body_of
from naive_forms import groups, run_naive
from running_kernels import bits

from firebrick.compiler.naive import naive
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.wgsl.contraction_blocks import (
    LEAST_FLOPS,
    SECTION,
    block_of,
    contraction_by_blocks,
    shares_rows,
)
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference


@pytest.mark.parametrize("block", [(1, 1), (2, 4), (8, 3)], ids=str)
@pytest.mark.parametrize("name", ["matmul", "conv", "conv_input", "conv_weight"])
def test_blocks_of_any_size_have_the_bits_of_the_naive_form(name: str, block: tuple[int, int]) -> None:
    tried = 0
    for g in groups(name):
        if g.arrays[0].dtype != np.float32 or not isinstance(g.spec, Contract):
            continue
        want, _ = run_naive(naive(g.spec), g.arrays, g.results, native=True)
        got, _ = run_naive(contraction_by_blocks(g.spec, *block), g.arrays, g.results, native=True)
        if all(p.k <= SECTION for p in g.spec.parts):
            for x, y in zip(got, want, strict=True):
                assert np.array_equal(bits(x), bits(y)), g.title
            tried += 1
        truth = run_reference(OPS[name], g.arrays, g.sample.params)
        assert check_results(OPS[name], g.arrays, g.sample.params, tuple(got), truth).ok, g.title
    assert tried > 5


@pytest.mark.parametrize("sizes", [(3, 1000, 5), (2, 20_000, 1)], ids=str)
def test_errors_of_long_sums_do_not_grow(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 2, (m, k)).astype(np.float32), rng.uniform(0, 2, (k, n)).astype(np.float32)
    body = body_of((x, y), ("matmul", (0, 1), {}))
    spec = spec_of(body)
    assert isinstance(spec, Contract)
    block = block_of(spec)
    assert block is not None
    (got,), _ = run_naive(contraction_by_blocks(spec, *block), (x, y), [body.avals[2]], native=True)
    want = x.astype(np.float64) @ y.astype(np.float64)
    assert np.abs(got / want - 1).max() < 8 * np.finfo(np.float32).eps


@pytest.mark.parametrize("taps", [(12, 12), (3, 50), (50, 3), (1, 150), (150, 1), (2, 100)])
def test_a_section_of_several_axes_is_no_longer_than_others(taps: tuple[int, int]) -> None:
    """What is small is lost next to a large number in its section alone."""
    image, weight = np.full((1, 1, *taps), 2.0**-20, np.float32), np.ones((1, 1, *taps), np.float32)
    image[0, 0, 0, 0] = 16.0
    params = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    body = body_of((image, weight), ("conv", (0, 1), params))
    spec = spec_of(body)
    assert isinstance(spec, Contract)
    (found,), _ = run_naive(contraction_by_blocks(spec, 1, 1), (image, weight), [body.avals[2]], native=False)
    assert found.item() >= 16.0 + (image.size - SECTION) * 2.0**-20


def test_what_follows_a_product_is_computed_for_each_element_of_a_block() -> None:
    rng = np.random.default_rng(1)
    x, w, bias, other = (rng.normal(size=s).astype(np.float32) for s in ((2, 5, 3), (3, 7), (7,), (2, 5, 7)))
    nodes = ("matmul", (0, 1), {}), ("add", (4, 2), {}), ("relu", (5,), {}), ("multiply", (6, 3), {})
    body = body_of((x, w, bias, other), *nodes, outputs=(5, 7))
    spec, results = spec_of(body), [body.avals[v] for v in body.outputs]
    want, _ = run_naive(naive(spec), (x, w, bias, other), results, native=False)
    got, _ = run_naive(contraction_by_blocks(spec, 2, 4), (x, w, bias, other), results, native=False)
    for a, b in zip(got, want, strict=True):
        assert np.array_equal(a, b)


def test_a_coordinate_outside_reads_no_element_that_does_not_exist() -> None:
    """The interpreter checks every access."""
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(1, 2, 3, 3)).astype(np.float32), rng.normal(size=(3, 2, 3, 3)).astype(np.float32)
    geometry = {"stride": (1, 1), "padding": ((2, 1), (1, 2)), "dilation": (1, 1), "groups": 1}
    body = body_of((x, w), ("conv", (0, 1), geometry))
    spec, results = spec_of(body), [body.avals[v] for v in body.outputs]
    (want,), _ = run_naive(naive(spec), (x, w), results, native=False)
    (got,), _ = run_naive(contraction_by_blocks(spec, 4, 4), (x, w), results, native=False)
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("m", "n", "k", "block"),
    [(512, 512, 512, (8, 4)), (64, 64, 512, (2, 2)), (3, 512, 4096, (1, 1)), (8, 8, 8, None), (1, 4096, 4096, (1, 1))],
)
def test_blocks_are_as_large_as_leaves_work_for_all_of_a_gpu(m: int, n: int, k: int, block: tuple[int, int] | None) -> None:
    x, y = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
    spec = spec_of(body_of((x, y), ("matmul", (0, 1), {})))
    assert isinstance(spec, Contract)
    found = block_of(spec)
    assert found == block
    assert found is None or spec.cost.flops >= LEAST_FLOPS


@pytest.mark.parametrize(("sizes", "block"), [((512, 512, 512), (8, 8)), ((64, 64, 512), (8, 4)), ((8, 8, 8), None)])
def test_blocks_of_a_processor_are_larger(sizes: tuple[int, int, int], block: tuple[int, int] | None) -> None:
    m, n, k = sizes
    x, y = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
    spec = spec_of(body_of((x, y), ("matmul", (0, 1), {})))
    assert isinstance(spec, Contract)
    assert block_of(spec, processor=True) == block


@pytest.mark.parametrize("width", [2, 4, 16, 64])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1, 1), (1, 1)),
        ((3, 7), (7, 5)),
        ((4, 4), (4, 4)),
        ((2, 3, 17), (17, 9)),
        ((2, 5, 6), (2, 6, 33)),
        ((3, 131), (131, 31)),
    ],
    ids=str,
)
def test_shared_rows_have_the_bits_of_blocks(left: tuple[int, ...], right: tuple[int, ...], width: int) -> None:
    """The interpreter checks every access, and that shuffles are executed by all items."""
    rng = np.random.default_rng(width)
    for of in (np.float32, np.float16, np.int8, np.int64):
        x, y = (
            rng.normal(size=s).astype(of) if np.issubdtype(of, np.floating) else rng.integers(-99, 99, s).astype(of)
            for s in (left, right)
        )
        body = body_of((x, y), ("matmul", (0, 1), {}))
        spec = spec_of(body)
        assert isinstance(spec, Contract)
        assert shares_rows(spec)
        for rows, columns in ((1, 1), (2, 3)):
            (want,), _ = run_naive(contraction_by_blocks(spec, rows, columns), (x, y), [body.avals[2]], native=False)
            (got,), _ = run_naive(contraction_by_blocks(spec, rows, columns, width), (x, y), [body.avals[2]], native=False)
            assert np.array_equal(bits(got), bits(want)), (of, rows, columns)
