"""Products of specifications by the template: run by the interpreter, they have the bits of the naive form and of blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lowered_bodies import body_of
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


M, K, N, B = 5, 6, 7, 3
SWAPPED = {"axes": (1, 0)}
EPILOGUES: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[Any, ...]]] = {
    "a vector along rows": (((M, K), (K, N), (N,)), (("matmul", (0, 1), {}), ("subtract", (3, 2), {}))),
    "a vector along columns": (((M, K), (K, N), (M, 1)), (("matmul", (0, 1), {}), ("subtract", (2, 3), {}))),
    "a matrix and a vector": (((M, K), (K, N), (M, N), (N,)), (
        ("matmul", (0, 1), {}), ("multiply", (4, 2), {}), ("subtract", (5, 3), {}),
    )),
    "the matrix in front": (((M, K), (K, N), (N,), (M, N)), (
        ("matmul", (0, 1), {}), ("multiply", (4, 2), {}), ("subtract", (5, 3), {}),
    )),
    "a transposed matrix": (((M, K), (K, N), (N, M)), (
        ("permute", (2,), SWAPPED), ("matmul", (0, 1), {}), ("subtract", (4, 3), {}),
    )),
    "a number": (((M, K), (K, N), (1, 1)), (("matmul", (0, 1), {}), ("subtract", (3, 2), {}))),
    "no operand": (((M, K), (K, N)), (("matmul", (0, 1), {}), ("abs", (2,), {}))),
    "a transposed right matrix": (((M, K), (N, K), (N,)), (
        ("permute", (1,), SWAPPED), ("matmul", (0, 3), {}), ("subtract", (4, 2), {}),
    )),
    "a transposed left matrix": (((K, M), (K, N)), (("permute", (0,), SWAPPED), ("matmul", (2, 1), {}))),
    "both transposed": (((K, M), (N, K)), (("permute", (0,), SWAPPED), ("permute", (1,), SWAPPED), ("matmul", (2, 3), {}))),
    "a batch": (((B, M, K), (B, K, N), (B, 1, 1), (M, 1), (N,)), (
        ("matmul", (0, 1), {}), ("multiply", (5, 2), {}), ("subtract", (6, 3), {}), ("multiply", (7, 4), {}),
    )),
    "a batch and all of its elements": (((B, M, K), (B, K, N), (B, M, N)), (("matmul", (0, 1), {}), ("subtract", (3, 2), {}))),
    "a batch of transposed matrices": (((B, K, M), (B, N, K), (B, M, 1)), (
        ("permute", (0,), {"axes": (0, 2, 1)}), ("permute", (1,), {"axes": (0, 2, 1)}), ("matmul", (3, 4), {}),
        ("subtract", (5, 2), {}),
    )),
    "a stack times one matrix": (((B, M, K), (K, N), (B, M, 1), (N,)), (
        ("matmul", (0, 1), {}), ("subtract", (4, 2), {}), ("multiply", (5, 3), {}),
    )),
    "the two inputs exchanged": (((K, N), (M, K), (N,)), (("matmul", (1, 0), {}), ("subtract", (3, 2), {}))),
}  # fmt: skip


@pytest.mark.parametrize(("name", "of"), [*((name, "float32") for name in EPILOGUES), ("a batch", "float16")])
def test_layouts_and_operands_have_the_bits_of_the_naive_form(name: str, of: str) -> None:
    shapes, nodes = EPILOGUES[name]
    rng = np.random.default_rng(len(name))
    arrays = [rng.standard_normal(shape).astype(of) for shape in shapes]
    body = body_of(arrays, *nodes)
    spec, results = contract(body), [body.avals[v] for v in body.outputs]
    form = tiled_product(spec, CONSERVATIVE_GPU, SMALL, SECTION)
    assert form is not None
    (found,), _ = run_naive(form, arrays, results, native=False)
    (want,), _ = run_naive(naive(spec), arrays, results, native=False)
    assert found.tobytes() == want.tobytes()


REFUSED: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[Any, ...]]] = {
    "a part of a vector": (((M, K), (K, N), (2 * N,)), (
        ("slice", (2,), {"starts": (N,), "stops": (2 * N,), "steps": (1,)}), ("matmul", (0, 1), {}), ("subtract", (4, 3), {}),
    )),
    "every other number": (((M, K), (K, N), (2 * N,)), (
        ("slice", (2,), {"starts": (0,), "stops": (2 * N,), "steps": (2,)}), ("matmul", (0, 1), {}), ("subtract", (4, 3), {}),
    )),
    "a batch times one matrix in front": (((M, K), (B, K, N)), (("matmul", (0, 1), {}),)),
    "a result of another dtype": (((M, K), (K, N)), (("matmul", (0, 1), {}), ("cast", (2,), {"dtype": fb.int32}))),
    "an outer axis between": (((M, B, K), (B, K, N)), (("permute", (0,), {"axes": (1, 0, 2)}), ("matmul", (2, 1), {}))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_operands_in_another_order_are_not_served(name: str) -> None:
    shapes, nodes = REFUSED[name]
    body = body_of([np.zeros(shape, np.float32) for shape in shapes], *nodes)
    assert tiled_product(contract(body), CONSERVATIVE_GPU, SMALL, SECTION) is None


def test_several_results_are_not_served() -> None:
    body = body_of([np.zeros((M, K), np.float32), np.zeros((K, N), np.float32)], ("matmul", (0, 1), {}), ("abs", (2,), {}),
                   outputs=(2, 3))  # fmt: skip
    assert tiled_product(contract(body), CONSERVATIVE_GPU, SMALL, SECTION) is None


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


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_of_sections_that_are_less_than_half_a_unit_are_not_lost(sign: float) -> None:
    spec, result = product_of(1, 64, 2)
    x, y = np.full((1, 64), sign * 2.0**-23, np.float32), np.ones((64, 2), np.float32)
    x[0, 0] = 16.0
    y[0, 1] = np.inf
    form = tiled_product(spec, CONSERVATIVE_GPU, SMALL, 4)
    assert form is not None
    (found,), _ = run_naive(form, [x, y], [result], native=False)
    unit = float(np.spacing(np.float32(16.0 if sign > 0 else 15.9)))
    # 15 sections of a quarter of a unit, or of half a unit below 16; what is lost of each is added to the next one
    assert found[0, 0] != 16.0
    assert abs(float(found[0, 0]) - (16.0 + sign * 15 * 2.0**-21)) <= unit / 2
    assert found[0, 1] == np.inf, "and not NaN"
