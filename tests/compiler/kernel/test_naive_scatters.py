"""Scatters into many elements, which are given their first values in a kernel of their own."""

from __future__ import annotations

import numpy as np
import pytest
from naive_forms import WITH_KERNELS, run_naive, some_groups
from running_kernels import bits

from firebrick.compiler.naive import naive, scatters
from firebrick.compiler.spec.scatter import Scatter
from firebrick.ops import OPS

SCATTERS = sorted(name for name in WITH_KERNELS if OPS[name].kind == "scatter")


def _bits(x: np.ndarray) -> np.ndarray:
    parts = x.reshape(-1)
    return bits(parts.view(parts.real.dtype))


def test_the_ops_are_known() -> None:
    assert {"index_add", "scatter_add"} <= set(SCATTERS)


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize("name", SCATTERS)
def test_kernels_apart_have_the_bits_of_one_kernel(name: str, float64: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = 0
    for g in some_groups(name):
        if not isinstance(g.spec, Scatter):
            continue
        one = naive(g.spec, float64)
        monkeypatch.setattr(scatters, "MANY", 1)
        found = naive(g.spec, float64)
        monkeypatch.undo()
        assert len(one.steps) == 1
        apart += len(found.steps) > 1
        want, fault = run_naive(one, g.arrays, g.results, native=False)
        got, found_fault = run_naive(found, g.arrays, g.results, native=False)
        assert found_fault == fault, g.title
        for x, y in zip(got, want, strict=True):
            assert (_bits(x) == _bits(y)).all(), g.title
    assert apart
