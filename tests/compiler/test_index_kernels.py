"""Indexing kernels, and random numbers in kernels: against the op table, in compiled graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import CpuBackend
from firebrick.backends.cpu.native import Native
from firebrick.compiler.fuse import fuse
from firebrick.compiler.fused import FUSED
from firebrick.compiler.llvm.lower import kind_of
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.errors import OutOfRangeError
from firebrick.core.op import Op
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference

ENGINE = CpuBackend()
Array = np.ndarray[Any, Any]


def graph_of(op: Op, arrays: tuple[Array, ...], params: dict[str, Any]) -> Graph:
    """One node."""
    g = Graph([Aval(a.shape, dtype(a.dtype)) for a in arrays])
    g.outputs = g.add(op, *range(len(arrays)), **params)
    return g


def compiled(g: Graph) -> Any:
    """The graph, all of it native kernels."""
    made = ENGINE.compile(g)
    assert all(n.op is FUSED for n in made.graph.nodes), [n.op.name for n in made.graph.nodes]
    return made


NAMES = ("take", "gather", "ravel_index", "scatter", "scatter_add", "scatter_reduce", "index_add", "random_bits", "random_uniform")


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_op_table(name: str) -> None:
    op = OPS[name]
    tried = 0
    for kind in op.dtypes:
        for sample in op.samples(np.random.default_rng(5), kind):
            arrays = tuple(np.asarray(a) for a in sample.inputs)
            g = graph_of(op, arrays, sample.params)
            reason = kind_of(g.nodes[0], tuple(g.inputs))
            if reason not in ("map", "alone"):
                assert reason == "no elements" or reason.startswith("no kernels of "), reason
                continue
            want = run_reference(op, arrays, sample.params)
            got = compiled(g)(arrays)
            assert got[0].dtype == op.reference(*arrays, **sample.params).dtype
            found = check_results(op, arrays, sample.params, got, want)
            assert found.ok, f"{kind}, {sample.name}: {found}"
            tried += 1
    assert tried >= 5
