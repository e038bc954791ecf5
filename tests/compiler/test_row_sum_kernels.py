"""Sums along columns beside the rows they are of: which nodes become one, and what their kernels compute."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from native_kernels import run_kernel, view, widths

import firebrick as fb
from firebrick.compiler.fusion.facts import COLUMNS
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of, lower
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.row import blocks_of
from firebrick.compiler.targets.llvm.row_sums import row_sum_kernels
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.scalar import rows
from firebrick.scalar.expr import load

F = fb.float32


def bodies(g: Graph) -> list[Graph]:
    return [n.params["body"] for n in fuse(g, kind_of, POLICY).nodes if n.op is FUSED]


def norm_gradient(shape: tuple[int, ...], name: str = "float32") -> tuple[Graph, list[Any]]:
    """The graph of layer norm's three gradients, and operands."""
    rng = np.random.default_rng(3)
    operands = [rng.normal(size=s) for s in (shape, shape[-1:], shape[-1:], shape)]
    tensors = [fb.asarray(a.astype(np.float32)).astype(getattr(fb, name)) for a in operands]
    run = fb.jit(lambda x, w, b, g: fb.vjp(lambda t, u, v: fb.layer_norm(t, weight=u, bias=v), x, w, b)[1](g))
    return run.graph(*tensors), [run, tensors]


@pytest.mark.parametrize("shape", [(200, 3), (300, 4), (200, 17), (1000, 64), (2, 70, 33), (5000, 130)])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_the_gradients_of_a_norm_are_one_kernel_and_the_sum_of_its_blocks(shape: tuple[int, ...], name: str) -> None:
    g, (run, tensors) = norm_gradient(shape, name)
    (body,) = (b for b in bodies(g) if any(n.op.name == "sum" for n in b.nodes))
    made = lower(body, Target.host())
    assert 2 <= len(made.parts) <= 3
    got = [np.asarray(t.astype(fb.float64).numpy()) for t in run(*tensors)]
    x, w, _, c = (np.asarray(t.astype(fb.float64).numpy()) for t in tensors)
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    h, u = (x - x.mean(-1, keepdims=True)) / spread, c * w
    axes = tuple(range(len(shape) - 1))
    want = [(u - u.mean(-1, keepdims=True) - h * (u * h).mean(-1, keepdims=True)) / spread, (c * h).sum(axes), c.sum(axes)]
    eps = getattr(fb, name).eps
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        # half precision loses most where it is stored; what a sum loses is of the size of its terms
        assert np.allclose(a, b, rtol=8 * eps, atol=40 * min(eps, fb.float32.eps) * prod(shape[:-1]) ** 0.5)


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
def test_sums_do_not_depend_on_how_the_grid_is_cut(target: Target) -> None:
    shape = (3000, 100)
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    a, b = load(0, "float32"), load(1, "float32")
    made = row_sum_kernels(
        shape, [view(x), view(g)], [(rows.softmax(a), view(x))], [(a * b, "float32"), (b, "float32")], target
    )
    blocks = blocks_of(shape)
    assert made.partial == (blocks * 100 * 4,) * 2
    found = []
    for cuts in ((), (1,), tuple(range(1, blocks))):
        y, parts = np.empty_like(x), [np.full((blocks, 100), np.nan, np.float32) for _ in range(2)]
        run_kernel(made.rows, [x, g, y, *parts], target, cuts)
        sums = [np.full(100, np.nan, np.float32) for _ in range(2)]
        further = [np.empty(size // 4, np.float32) for size in made.further]
        for kernel in made.columns.kernels[:-1]:
            run_kernel(kernel, [*parts, *further], target)
        run_kernel(made.columns.kernels[-1], [*parts, *further, *sums], target)
        found.append([y, *sums])
    for other in found[1:]:
        assert all(np.array_equal(p, q) for p, q in zip(found[0], other, strict=True))
    assert np.allclose(found[0][1], (x.astype(np.float64) * g).sum(0), atol=1e-4)
    assert np.allclose(found[0][2], g.astype(np.float64).sum(0), atol=1e-4)


def test_a_result_may_lie_over_an_operand_that_only_a_sum_reads() -> None:
    shape = (300, 40)
    rng = np.random.default_rng(1)
    x, g = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    a, b = load(0, "float32"), load(1, "float32")
    made = row_sum_kernels(shape, [view(x), view(g)], [(rows.softmax(a), view(x))], [(b, "float32")], Target.host())
    part = np.empty((blocks_of(shape), 40), np.float32)
    over = g.copy()
    run_kernel(made.rows, [x, over, over, part], Target.host())
    assert np.allclose(part.sum(0), g.sum(0), atol=1e-4)
    assert np.allclose(over.sum(-1), 1, atol=1e-5)


def graph_with_sum(shape: tuple[int, ...], axes: tuple[int, ...], name: str = "sum", dtype: Any = F) -> Graph:
    """A softmax and a reduction of its operand."""
    g = Graph([Aval(shape, dtype)])
    y = g.add(OPS["softmax"], 0, axis=len(shape) - 1)[0]
    g.outputs = (y, g.add(OPS[name], 0, axes=axes, keepdims=False)[0])
    return g


def test_only_sums_of_floats_over_all_rows_of_many_join() -> None:
    assert len(bodies(graph_with_sum((POLICY.summed_rows, 32), (0,)))) == 1
    assert len(bodies(graph_with_sum((2, POLICY.summed_rows, 32), (0, 1)))) == 1
    for g in (
        graph_with_sum((POLICY.summed_rows - 1, 32), (0,)),
        graph_with_sum((2, POLICY.summed_rows, 32), (0,)),
        graph_with_sum((POLICY.summed_rows, 32), (0,), "max"),
    ):
        assert len(bodies(g)) == 2
    alone = Graph([Aval((POLICY.summed_rows, 32), F)])
    alone.outputs = alone.add(OPS["sum"], 0, axes=(0,), keepdims=False)
    (body,) = bodies(alone)
    assert {p.kernel.name.split("_")[0] for p in lower(body, Target.host()).parts} == {COLUMNS}


def test_what_waits_for_a_sum_does_not_go_before_it() -> None:
    # softmax(x) · Σ x along columns: the product needs all rows
    for views in (False, True):
        g = Graph([Aval((128, 32), F)])
        y = g.add(OPS["softmax"], 0, axis=1)[0]
        s = g.add(OPS["sum"], 0, axes=(0,), keepdims=True)[0]
        wide = g.add(OPS["broadcast_to"], s, shape=(128, 32))[0] if views else s
        g.outputs = (g.add(OPS["multiply"], y, wide)[0],)
        assert len(bodies(g)) == 2
    x = np.random.default_rng(2).normal(size=(128, 32)).astype(np.float32)
    e = np.exp(x - x.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) * x.astype(np.float64).sum(0)
    got = fb.jit(lambda x: fb.softmax(x) * fb.sum(x, axis=0, keepdims=True))(fb.asarray(x)).numpy()
    assert np.allclose(got, want, atol=1e-5)


def test_partial_sums_are_as_wide_as_what_is_added() -> None:
    shape = (4096, 8)
    made = row_sum_kernels(shape, [BufferView("bfloat16", (8, 1))], [], [(load(0, "float32"), "bfloat16")], Target.host())
    assert made.partial == (blocks_of(shape) * 8 * 4,)
