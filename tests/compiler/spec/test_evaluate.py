"""Specifications, interpreted, against the references of the nodes that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_bodies import body_of
from naive_forms import groups
from random_groups import drawn, groups_of

from firebrick.compiler.fusion.facts import KINDS
from firebrick.compiler.spec.base import key, problem, structure, with_binding
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.llvm import lower
from firebrick.core.errors import OutOfRangeError
from firebrick.ir import Graph
from firebrick.ir import interpret as interpret_graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing.cases import samples_of, thinned

Array = np.ndarray[Any, Any]
FAMILIES = sorted({op.reference.__module__ for op in OPS.values()})


def results_of(body: Graph, arrays: list[Array]) -> list[Array]:
    """What a group's specification gives."""
    avals = [body.avals[v] for v in body.outputs]
    outs = interpret(spec_of(body), arrays, [a.size for a in avals], [a.dtype.name for a in avals])
    return [x.reshape(a.shape) for x, a in zip(outs, avals, strict=True)]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["in turn", "every dtype"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_op_that_has_kernels_is_what_its_specification_says(family: str, every: bool) -> None:
    """Groups of one node, of every sample in one dtype of each class and of every dtype at some sample. Long scans, which are
    made for the blocks of kernels, are in soak, in float32."""
    for op in [op for op in OPS.values() if op.reference.__module__ == family]:
        tried = 0
        rows = [(d, k, s) for d in op.dtypes for k, s in enumerate(samples_of(op, d, 0))]
        rows = [
            r for r in rows if not (r[2].name.startswith("long") and op.kind == "prefix" and (r[0] != "float32" or not every))
        ]
        for dtype, _, sample in rows if every else thinned(rows):
            arrays = [np.asarray(a) for a in sample.inputs]
            body = body_of(arrays, (op.name, tuple(range(len(arrays))), sample.params))
            found = lower.kind_of(body.nodes[0], tuple(body.inputs))
            if found not in KINDS and not (found == lower.LAPACK and all(a.size for a in arrays)):
                continue
            got = tuple(results_of(body, arrays))
            want = run_reference(op, tuple(arrays), sample.params)
            verdict = check_results(op, tuple(arrays), sample.params, got, want, sample.edges and op.kind == "copy")
            assert verdict.ok, f"{op.name} {dtype}, {sample.name}: {verdict}"
            tried += 1
        assert tried or not (op.kind and (op.facts or op.scalar or op.access))


@pytest.mark.parametrize("name", ["sort", "top_k", "cumulative_sum", "cumulative_prod"])
def test_what_the_processor_leaves_to_the_host_is_what_its_specification_says(name: str) -> None:
    for g in groups(name):
        got = tuple(results_of(g.body, list(g.arrays)))
        found = check_results(OPS[name], g.arrays, g.sample.params, got, run_reference(OPS[name], g.arrays, g.sample.params))
        assert found.ok, f"{name} {g.title}: {found}"


@pytest.mark.parametrize("seeds", [range(i, i + 10) for i in range(0, 40, 10)], ids=str)
def test_groups_of_random_programs_are_what_their_specifications_say(seeds: range) -> None:
    tried = 0
    for seed in seeds:
        for body in [b for gradients in (False, True) for b in groups_of(seed, gradients)]:
            if any(a.dtype.is_floating and a.dtype.itemsize < 4 for a in body.avals):
                continue  # the references round half precision at every node
            arrays = [drawn(a, np.random.default_rng([seed, i])) for i, a in enumerate(body.inputs)]
            try:
                want = interpret_graph(body, arrays, lambda op, xs, params: op.reference(*xs, **params))
                got = results_of(body, arrays)
            except OutOfRangeError:
                continue
            for x, y in zip(got, want, strict=True):
                assert x.dtype == y.dtype
                wide, truth = (np.asarray(v).astype(np.complex128 if x.dtype.kind == "c" else np.float64) for v in (x, y))
                close = np.abs(wide - truth) <= 64 * 2.0**-23 * (1 + np.abs(truth).max(initial=0))
                assert (close | (wide == truth) | (np.isnan(wide) & np.isnan(truth))).all(), f"seed {seed}: {spec_of(body)}"
            tried += 1
    assert tried > len(seeds)


def test_specifications_that_differ_in_sizes_only_have_one_key() -> None:
    def of(n: int, m: int) -> Any:
        return spec_of(body_of([np.zeros((n, m), np.float32)] * 2, ("add", (0, 1), {}), ("exp", (2,), {})))

    assert key(of(3, 5)) == key(of(7, 2)) != key(of(1, 5))
    assert problem(of(3, 5)) != problem(of(7, 2))
    assert with_binding(of(3, 5), structure(of(7, 2))[1]) == of(7, 2)
    with pytest.raises(ValueError, match="takes"):
        with_binding(of(3, 5), (1, 2))


def test_equal_sizes_of_different_axes_are_different_symbols() -> None:
    x = np.zeros((4, 4), np.float32)
    over = [spec_of(body_of([x], ("sum", (0,), {"axes": (a,), "keepdims": False}))) for a in (0, 1)]
    assert key(over[0]) != key(over[1])
    turned = spec_of(body_of([x], ("permute", (0,), {"axes": (1, 0)}), ("exp", (1,), {})))
    assert key(turned) != key(spec_of(body_of([x], ("exp", (0,), {}))))


def test_a_view_that_leaves_its_buffer_is_seen() -> None:
    body = body_of([np.zeros((3, 5), np.float32)], ("exp", (0,), {}))
    with pytest.raises(IndexError, match="of a buffer of 14"):
        interpret(spec_of(body), [np.zeros(14, np.float32)], [15], ["float32"])


def test_an_index_outside_is_reported_with_the_name_of_the_operation() -> None:
    body = body_of([np.zeros((3, 5), np.float32), np.array([0, 3])], ("take", (0, 1), {"axis": 0}))
    with pytest.raises(OutOfRangeError, match=r"take: indices must lie in \[-3, 3\)"):
        results_of(body, [np.zeros((3, 5), np.float32), np.array([0, 3])])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_rows_are_reduced_along_the_last_axis_whatever_is_summed_first(order: tuple[int, int]) -> None:
    """Sums of the elements of rows along the other axes are of the same group, before or after the reductions of rows."""
    x = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    sums = [("sum", (0,), {"axes": (axis,), "keepdims": False}) for axis in order]
    body = body_of([x], *sums, outputs=(1, 2))
    spec = spec_of(body)
    assert type(spec).__name__ == "Row"
    assert (spec.domain, spec.reduced) == ((6, 5), (1,))
    for axis, found in zip(order, results_of(body, [x]), strict=True):
        np.testing.assert_allclose(found, x.sum(axis), rtol=1e-5)
