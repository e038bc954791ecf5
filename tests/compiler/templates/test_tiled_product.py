"""Products of specifications by the template: run by the interpreter, they have the bits of the naive form and of blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from naive_forms import run_naive

import firebrick as fb
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.contract import Contract, contract
from firebrick.compiler.targets.wgsl.contraction_blocks import SECTION, contraction_by_blocks
from firebrick.compiler.templates.tiled_product import SIZES, ProductTiles, tiled_product
from firebrick.core.aval import Aval
from firebrick.core.views import strided
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.scalar.capabilities import CONSERVATIVE_GPU

SMALL = ProductTiles(16, 16, 16, 4, 4, 4)


def product_of(m: int, k: int, n: int, of: fb.DType = fb.float32) -> tuple[Contract, Aval]:
    graph = Graph([Aval((m, k), of), Aval((k, n), of)])
    graph.outputs = graph.add(OPS["matmul"], 0, 1)
    return contract(graph), graph.avals[graph.outputs[0]]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 7, 3), (17, 16, 18), (2, 131, 3)])
def test_sums_of_sections_have_the_bits_of_blocks(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    spec, result = product_of(m, k, n)
    rng = np.random.default_rng(k)
    x, y = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    x[0, 0] = 1e4  # whose sum is rounded, and what is lost counts
    form = tiled_product(spec, CONSERVATIVE_GPU, SMALL, SECTION)
    assert form is not None
    (found,), _ = run_naive(form, [x, y], [result], native=False)
    (want,), _ = run_naive(contraction_by_blocks(spec, 1, 1), [x, y], [result], native=False)
    assert found.tobytes() == want.tobytes()
    if k <= SECTION:
        (plain,), _ = run_naive(naive(spec), [x, y], [result], native=False)
        assert found.tobytes() == plain.tobytes()


def test_short_sections_are_summed_with_what_is_lost() -> None:
    """All but those of the large number's own section: one after the other, each would be lost."""
    spec, result = product_of(1, 64, 1)
    x, y = np.full((1, 64), 2.0**-20, np.float32), np.ones((64, 1), np.float32)
    x[0, 0] = 16.0
    form = tiled_product(spec, CONSERVATIVE_GPU, SMALL, 4)
    assert form is not None
    (found,), _ = run_naive(form, [x, y], [result], native=False)
    (chain,), _ = run_naive(naive(spec), [x, y], [result], native=False)
    assert found[0, 0] == np.float32(16.0 + 60 * 2.0**-20)
    assert chain[0, 0] == 16.0


def test_layouts_and_limits_that_the_template_does_not_serve() -> None:
    spec, _ = product_of(8, 8, 8)
    assert all(tiled_product(spec, CONSERVATIVE_GPU, tiles, SECTION) is not None for tiles in SIZES)
    (part,) = spec.parts
    for view in (strided((8, 8), (16, 1)), strided((8, 8), (8, 1), 3), strided((8, 8), (-8, 1), 56), strided((8, 8), (0, 1))):
        other = replace(spec, parts=(replace(part, left=replace(part.left, view=view)),))
        assert tiled_product(other, CONSERVATIVE_GPU, SMALL, SECTION) is None, view
    assert tiled_product(product_of(8, 8, 8, fb.int32)[0], CONSERVATIVE_GPU, SMALL, SECTION) is None
    assert tiled_product(product_of(8, 0, 8)[0], CONSERVATIVE_GPU, SMALL, SECTION) is None
    assert tiled_product(spec, replace(CONSERVATIVE_GPU, shared_bytes=1024), SMALL, SECTION) is None
    assert tiled_product(spec, replace(CONSERVATIVE_GPU, buffers=2), SMALL, SECTION) is None
    assert tiled_product(spec, CONSERVATIVE_GPU, SMALL, 6) is None, "a section of one tile and a half"
