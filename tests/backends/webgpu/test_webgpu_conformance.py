"""Ops on WebGPU against their references: cases of every op, in all dtypes. ``make soak`` has all cases."""

from __future__ import annotations

from itertools import islice
from zlib import crc32

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.contract import STORAGE
from firebrick.core.bind import bind
from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, cases
from firebrick.testing.cases import samples_of
from firebrick.testing.conformance import run_case

STEP = 24
"""Of the thin subset's cases of an op, one in so many is run; another seed runs others."""
ON_HOST = {"cumulative_logsumexp", "cumulative_prod", "nextafter", "prod"}
"""Ops of float32 that this engine leaves to the host, as docs/webgpu.md says, besides the families below."""
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


def in_kernels(name: str, dtype: str) -> bool:
    """Whether an op of operands with elements runs on the device alone."""
    device, op = fb.device("webgpu:0"), OPS[name]
    for sample in samples_of(op, dtype, 0):
        arrays = [np.asarray(x) for x in sample.inputs]
        stored = all(STORAGE in device.backend.dtype_usage(device, fb.dtype(x.dtype)) for x in arrays)
        if stored and all(x.size and x.ndim > 1 for x in arrays[:1]) and all(x.size and x.dtype.itemsize > 1 for x in arrays):
            with fb.config.scope(fallback="error"):
                try:
                    bind(op, tuple(fb.asarray(x, device=device) for x in arrays), sample.params)
                except fb.UnsupportedError:
                    return False
            return True
    return True


@pytest.mark.slow
def test_the_ops_that_run_on_the_host_are_those_that_the_documents_list() -> None:
    own = [n for n in NAMES if not OPS[n].reference.__module__.endswith(HOSTED)]
    found = {n for n in own if "float32" in OPS[n].dtypes and n != "cast" and not in_kernels(n, "float32")}
    assert found == ON_HOST
