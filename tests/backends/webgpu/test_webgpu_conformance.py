"""Ops on WebGPU against their references: cases of every op, in all dtypes. ``make soak`` has all cases."""

from __future__ import annotations

from itertools import islice
from zlib import crc32

import pytest
from kernels_on_gpu import gpu, in_kernels

from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, cases
from firebrick.testing.conformance import run_case

STEP = 36
"""Of the thin subset's cases of an op, one in so many is run; another seed runs others."""
ON_HOST = {"nextafter"}
"""Ops that this engine leaves to the host on adapters with float64, as docs/webgpu.md says, besides the families below."""
WITHOUT_FLOAT64 = {"prod", "cumulative_prod", "cumulative_logsumexp"}
"""Further ops on the host on adapters without float64."""
HOSTED = ("linalg", "decomposition", "factorization", "fft")
FAMILIES = sorted({op.reference.__module__ for op in OPS.values()})
NAMES = [n for n in OPS if n not in EXCLUDED]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_some_cases_of_every_op_agree_with_the_reference_on_webgpu(family: str, seed: int) -> None:
    for name in NAMES:
        if OPS[name].reference.__module__ != family:
            continue
        first = (crc32(name.encode()) + seed) % STEP
        for case in islice(cases("webgpu", [name], subset="thin", seed=seed), first, None, STEP):
            verdict = run_case(case)
            assert verdict.ok, f"{case.name}: {verdict.message}"


@pytest.mark.slow
def test_the_ops_that_run_on_the_host_are_those_that_the_documents_list() -> None:
    own = [n for n in NAMES if not OPS[n].reference.__module__.endswith(HOSTED)]
    wide = gpu().measured.float64 is not None
    for dtype in ("float32", "float64") if wide else ("float32",):
        found = {n for n in own if dtype in OPS[n].dtypes and n != "cast" and not in_kernels(n, dtype)}
        assert found == (ON_HOST if wide else ON_HOST | WITHOUT_FLOAT64)
