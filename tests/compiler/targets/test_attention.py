"""Attention in tiles: against the op table's reference, at every vector width; the same bits on any number of threads."""

from typing import Any

import numpy as np
import pytest

from firebrick.backends.cpu.runtime.addresses import AddressTable
from firebrick.backends.cpu.runtime.arena import aligned
from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.fusion.facts import ALONE
from firebrick.compiler.targets.llvm.host import AS_WRITTEN, compile_ir
from firebrick.compiler.targets.llvm.lower import kind_of, lower
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing.cases import samples_of

Arrays = tuple[np.ndarray[Any, Any], ...]


def group(name: str, arrays: Arrays, params: dict[str, Any]) -> Graph:
    graph = Graph([Aval(a.shape, dtype(a.dtype)) for a in arrays])
    graph.outputs = graph.add(OPS[name], *range(len(arrays)), **params)
    return graph


def run(name: str, arrays: Arrays, params: dict[str, Any], width: int = 0, pool: Pool | None = None) -> Arrays:
    """The op by its kernels; memory that they must not read holds NaN."""
    target = Target.host(width)
    body = group(name, arrays, params)
    made = lower(body, target)
    results = tuple(np.full(a.shape, 7e37, a.dtype.np) for a in body.nodes[0].avals)
    space = [aligned(nbytes) for nbytes in made.temporary]
    for s in space:
        s.view(np.float32)[:] = np.nan
    held = [*(np.ascontiguousarray(a) for a in arrays), *results, *space]
    table = AddressTable(len(held))
    table.put(0, held)
    module = compile_ir(made.text, target)
    Segment(made.launches(list(range(len(held)))), [module])(table.address, pool)
    return results


@pytest.mark.parametrize("width", [0, 256, 128])
@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.kind == "attention"])
def test_kernels_agree_with_the_reference_on_every_sample(name: str, width: int) -> None:
    op, tried = OPS[name], 0
    for dt in op.dtypes:
        for sample in samples_of(op, dt, 0):
            arrays = tuple(np.asarray(x) for x in sample.inputs)
            body = group(name, arrays, sample.params)
            if kind_of(body.nodes[0], tuple(body.inputs)) != ALONE:
                continue
            found = run(name, arrays, sample.params, width)
            worst = check_results(op, arrays, sample.params, found, run_reference(op, arrays, sample.params))
            assert worst.ok, f"{sample.name} {dt}: {worst}"
            tried += 1
    assert tried > 12


def operands(rng: np.random.Generator, shape: tuple[int, int, int, int, int], mask: str = "none") -> Arrays:
    batch, n, m, d, e = shape
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((batch, n, d), (batch, m, d), (batch, m, e)))
    seen = {"none": np.asarray(True), "keys": rng.random(m) > 0.3, "rows": rng.random((batch, n, 1)) > 0.3,
            "all": rng.random((batch, n, m)) > 0.3}[mask]  # fmt: skip
    return q, k, v, np.asarray(seen)


@pytest.mark.parametrize("mask", ["none", "keys", "rows", "all"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape", [(2, 64, 64, 16, 16), (1, 1, 300, 8, 8), (3, 130, 257, 33, 40), (1, 200, 129, 64, 1), (9, 5, 3, 1, 70)]
)
def test_blocks_of_any_size_agree_with_the_reference(shape: Any, causal: bool, mask: str) -> None:
    rng = np.random.default_rng(0)
    arrays = operands(rng, shape, mask)
    params = {"scale": shape[3] ** -0.5, "causal": causal}
    op = OPS["attention"]
    (y,) = run("attention", arrays, params)
    worst = check_results(op, arrays, params, (y,), run_reference(op, arrays, params))
    assert worst.ok, worst
    more = (rng.normal(size=y.shape).astype(np.float32), *arrays)
    op = OPS["attention_gradient"]
    worst = check_results(op, more, params, run(op.name, more, params), run_reference(op, more, params))
    assert worst.ok, worst


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_scores_of_any_size_are_safe(scale: float) -> None:
    arrays = operands(np.random.default_rng(1), (2, 70, 300, 16, 16))
    params = {"scale": scale, "causal": True}
    found = run("attention", arrays, params)
    assert all(np.isfinite(x).all() for x in found)
    worst = check_results(OPS["attention"], arrays, params, found, run_reference(OPS["attention"], arrays, params))
    assert worst.ok, worst


def test_a_row_without_keys_is_0_and_one_with_infinitely_small_scores_has_no_mean() -> None:
    q, k, v, _ = operands(np.random.default_rng(2), (1, 4, 150, 8, 8))
    seen = np.ones((4, 150), np.bool_)
    seen[1] = False
    q[0, 2], k[..., 0] = 0, np.abs(k[..., 0])
    q[0, 2, 0] = -np.inf
    params = {"scale": 1.0, "causal": False}
    (y,) = run("attention", (q, k, v, seen), params)
    assert (y[0, 1] == 0).all()
    assert np.isnan(y[0, 2]).all()
    assert np.isfinite(y[0, [0, 3]]).all()
    gq, _, _ = run("attention_gradient", (np.ones_like(y), q, k, v, seen), params)
    assert (gq[0, 1] == 0).all()
    assert np.isnan(gq[0, 2]).all()
    assert np.isfinite(gq[0, [0, 3]]).all()


@pytest.mark.parametrize("shape", [(6, 64, 64, 16, 16), (1, 700, 300, 16, 16), (2, 333, 65, 8, 24)])
def test_any_number_of_threads_gives_the_same_bits(shape: Any) -> None:
    rng = np.random.default_rng(3)
    arrays = operands(rng, shape)
    params = {"scale": 0.25, "causal": False}
    (y,) = run("attention", arrays, params)
    more = (rng.normal(size=y.shape).astype(np.float32), *arrays)
    found = []
    for threads in (1, 2, 4):
        pool = Pool(threads)
        found.append([x.tobytes() for x in (*run("attention", arrays, params, pool=pool),
                                            *run("attention_gradient", more, params, pool=pool))])  # fmt: skip
    assert found[0] == found[1] == found[2]


def test_attention_and_products_with_long_epilogues_are_compiled_without_passes_that_gain_nothing() -> None:
    arrays = operands(np.random.default_rng(0), (2, 8, 8, 16, 16))
    attention = group("attention", arrays, {"scale": 0.25, "causal": False})
    assert lower(attention, Target.host()).text.startswith(AS_WRITTEN)
    product = Graph([Aval((32, 32), dtype("float32"))] * 2)
    (made,) = product.add(OPS["matmul"], 0, 1)
    for _ in range(4):
        (made,) = product.add(OPS["erf"], made)
    product.outputs = (made,)
    lowered = lower(product, Target.host())
    assert lowered.text.startswith(AS_WRITTEN)


@pytest.mark.parametrize(
    ("seed", "count"), [*((s, 4) for s in range(4)), *(pytest.param(s, 12, marks=pytest.mark.soak) for s in range(20))]
)
def test_blocks_of_keys_that_no_query_sees_change_nothing_even_if_they_are_not_finite(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        lead = tuple(int(v) for v in rng.integers(1, 4, int(rng.integers(0, 3))))
        n, m = (int(v) for v in rng.choice([1, 63, 64, 65, 130, 200, 257, 300], 2))
        d, e = (int(v) for v in rng.choice([1, 3, 8, 17], 2))
        dt = str(rng.choice(["float32", "float64"]))
        shapes = (*lead, n, d), (*lead, m, d), (*lead, m, e), (*lead, n, e)
        query, key, value, g = (rng.standard_normal(s).astype(dt) for s in shapes)
        for x in (query, key, value, g):
            if rng.random() < 0.25:
                x.reshape(-1)[rng.integers(x.size)] = rng.choice([np.nan, np.inf, -np.inf])
        mask = rng.random((*lead, n, m)) < 0.8 if rng.integers(2) else np.ones((1, 1), bool)
        params = {"scale": 0.3, "causal": True}
        for name, arrays in (("attention", (query, key, value, mask)), ("attention_gradient", (g, query, key, value, mask))):
            found = run(name, arrays, params, int(rng.choice([0, 128])))
            verdict = check_results(OPS[name], arrays, params, found, run_reference(OPS[name], arrays, params))
            assert verdict.ok, f"{name} of {dt}{[x.shape for x in arrays]}: {verdict}"


def test_the_gradients_of_keys_that_the_first_rows_of_a_chunk_do_not_see_are_set() -> None:
    rng = np.random.default_rng(0)
    query, key, value, g = (rng.standard_normal((1024, 4)).astype(np.float32) for _ in range(4))
    arrays = (g, query, key, value, np.ones((1, 1), bool))
    found = run("attention_gradient", arrays, {"scale": 0.5, "causal": True})  # its rows are divided into eight chunks
    want = run_reference(OPS["attention_gradient"], arrays, {"scale": 0.5, "causal": True})
    assert check_results(OPS["attention_gradient"], arrays, {"scale": 0.5, "causal": True}, found, want).ok
