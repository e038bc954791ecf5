"""The naive form of every specification that an op of the table has: the results of the op's reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from firebrick.compiler.spec.kinds import kind_of, spec_of
from lowered_bodies import body_of
from naive_forms import run_naive

from firebrick.compiler.kernel.naive import naive
from firebrick.core.op import Op, Sample
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.scalar.storage import STORAGE

Array = np.ndarray[Any, Any]


def bodies(op: Op) -> Iterator[tuple[str, Sample, list[Array], Graph]]:
    """A group of one node for each sample of an op that has a kernel."""
    for dtype in op.dtypes:
        for sample in op.samples(np.random.default_rng(3), dtype):
            arrays = [np.asarray(x) for x in sample.inputs]
            body = body_of(arrays, (op.name, tuple(range(len(arrays))), sample.params))
            avals = [*body.inputs, *(body.avals[v] for v in body.outputs)]
            if any(a.dtype.itemsize > 8 for a in avals):
                continue  # numbers of complex128 have no bits in the specification of a copy
            if op.kind != "copy" and not {a.dtype.name for a in avals} <= set(STORAGE):
                continue
            if kind_of(body.nodes[0], body.inputs) and all(a.size for a in avals):
                yield f"{dtype}, {sample.name}", sample, arrays, body


WITH_KERNELS = sorted(name for name, op in OPS.items() if op.kind)


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_the_naive_form_has_the_results_of_the_reference(name: str) -> None:
    op = OPS[name]
    for title, sample, arrays, body in bodies(op):
        form = naive(spec_of(body))
        avals = [body.avals[v] for v in body.outputs]
        found, fault = run_naive(form, arrays, avals, native=True)
        assert fault is None
        want = run_reference(op, tuple(arrays), sample.params)
        verdict = check_results(op, tuple(arrays), sample.params, tuple(found), want)
        assert verdict.ok, f"{title}: {verdict}"
