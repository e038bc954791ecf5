"""Long reductions in stages: the values of the naive forms, for every reduction of the op table."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_bodies import body_of
from naive_forms import WITH_KERNELS, groups, run_naive

from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.targets.wgsl.staged_reductions import LONG, parts_of, staged
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference

REDUCING = [n for n in WITH_KERNELS if OPS[n].fusion == "row"]


@pytest.mark.parametrize("name", REDUCING)
def test_reductions_in_parts_have_the_results_of_the_reference(name: str) -> None:
    tried = 0
    for g in groups(name):
        if not isinstance(g.spec, Nest) or not g.spec.reduced or g.arrays[0].dtype.name in ("float64", "complex128"):
            continue
        for parts in (2, 7):
            found, fault = run_naive(staged(g.spec, parts, ranges=tried % 2 == 0), g.arrays, g.results, native=parts == 7)
            assert fault is None
            want = run_reference(OPS[name], g.arrays, g.sample.params)
            verdict = check_results(OPS[name], g.arrays, g.sample.params, tuple(found), want)
            assert verdict.ok, f"{g.title} in {parts} parts: {verdict}"
        tried += 1
        if tried == 12:
            return
    assert tried


@pytest.mark.parametrize(("shape", "axes"), [
    ((3, 40, 1), (1, 2)), ((3, 1, 40), (1, 2)), ((1, 3, 40), (0, 2)), ((40, 3, 1), (0, 2)), ((1, 40), (0, 1)),
    ((3, 40, 1), (1,)),
])  # fmt: skip
@pytest.mark.parametrize("name", ["sum", "max"])
def test_axes_of_size_1_are_reduced_with_others(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    factor = np.arange(1, 1 + x.size // np.prod([x.shape[a] for a in axes]), dtype=np.float32)
    factor = factor.reshape([1 if a in axes else d for a, d in enumerate(shape)])
    nodes = (name, (0,), {"axes": axes, "keepdims": True}), ("subtract", (0, 2), {}), ("multiply", (2, 1), {})
    body = body_of((x, factor), *nodes, outputs=(2, 3, 4))
    results = [body.avals[v] for v in body.outputs]
    (reduced, less, scaled), _ = run_naive(staged(spec_of(body), 3), (x, factor), results, native=False)
    want = getattr(np, name)(x.astype(np.float64), axis=axes, keepdims=True)
    np.testing.assert_allclose(reduced, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(less, x - want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scaled, want * factor, rtol=1e-5, atol=1e-5)


def test_a_group_of_reductions_and_elementwise_work_is_computed_in_stages() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 5000)).astype(np.float32)
    over = {"axes": (1,), "keepdims": True}
    nodes = (
        ("multiply", (0, 1), {}),
        ("mean", (2,), over),
        ("subtract", (2, 3), {}),
        ("multiply", (4, 4), {}),
        ("sum", (5,), over),
    )
    body = body_of((x, y), *nodes, outputs=(4, 6))
    spec = spec_of(body)
    assert parts_of(spec) == 20
    (centred, squares), _ = run_naive(staged(spec, 20), (x, y), [body.avals[v] for v in body.outputs], native=True)
    wide = (x * y).astype(np.float64)
    wide -= wide.mean(1, keepdims=True)
    np.testing.assert_allclose(centred, wide, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(squares, (wide * wide).sum(1, keepdims=True), rtol=1e-5)


def test_a_long_sum_in_parts_is_as_precise_as_one_in_float64() -> None:
    x = np.full(1_000_003, 0.1, np.float32)
    body = body_of((x,), ("sum", (0,), {"axes": (0,), "keepdims": False}))
    spec = spec_of(body)
    parts = parts_of(spec)
    assert parts is not None
    (got,), _ = run_naive(staged(spec, parts), (x,), [body.avals[1]], native=True)
    assert got == np.float32(x.astype(np.float64).sum())


@pytest.mark.parametrize(("shape", "axes"), [((LONG - 1,), (0,)), ((1 << 20, 64), (1,)), ((1 << 14, 4096), (1,))])
def test_short_reductions_and_many_of_them_are_not_taken_in_parts(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    body = body_of((np.broadcast_to(np.float32(0), shape),), ("sum", (0,), {"axes": axes, "keepdims": False}))
    assert parts_of(spec_of(body)) is None
