"""Ops on WebGPU against their references, at once and under ``jit``: the pairwise subset. ``make soak`` has all cases."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from kernels_on_gpu import gpu, in_kernels

from firebrick.backends.webgpu import groups, lowering
from firebrick.core.config import config
from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, conformance, engines
from firebrick.testing.gradients import references_kept

ON_HOST = {"nextafter"}
"""Ops that this engine leaves to the host on adapters with float64, as docs/webgpu.md says, besides the families below."""
WITHOUT_FLOAT64 = {"prod", "cumulative_prod", "cumulative_logsumexp"}
"""Further ops on the host on adapters without float64."""
HOSTED = ("linalg", "decomposition", "factorization", "fft")
NAMES = [n for n in OPS if n not in EXCLUDED]
KEPT = 2048
"""Groups, shaders and pipelines that are kept when no program has them: cases of all ops share kernels for views, sums and
updates. Their launches are also stored for the next run with the same sources: ``test_stored_launches.py`` has the cache."""


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Iterator[None]:
    if "webgpu" in engines().missing:  # each test is skipped
        yield
        return
    with pytest.MonkeyPatch.context() as patch, references_kept(), config.scope(cache_plans=True):
        patch.setattr(groups, "_KEPT", KEPT)
        patch.setattr(lowering, "_KEPT", KEPT)
        patch.setattr(gpu(), "_last", deque(gpu()._last, KEPT))
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_op_agrees_with_its_reference_on_webgpu(name: str, seed: int) -> None:
    report = conformance("webgpu", [name], seed=seed, modes=["eager", "jit"])
    assert report.ok, report


@pytest.mark.slow
def test_operations_that_are_repeated_agree_with_their_references_on_webgpu(seed: int) -> None:
    with config.scope(cache_plans=False):  # the compiler is asked each time
        report = conformance("webgpu", ["add", "slice", "sum"], subset="turns", seed=seed, modes=["repeated"])
    assert report.ok, report


@pytest.mark.slow
def test_the_ops_that_run_on_the_host_are_those_that_the_documents_list() -> None:
    own = [n for n in NAMES if not OPS[n].reference.__module__.endswith(HOSTED)]
    wide = gpu().measured.float64 is not None
    for dtype in ("float32", "float64") if wide else ("float32",):
        found = {n for n in own if dtype in OPS[n].dtypes and n != "cast" and not in_kernels(n, dtype)}
        assert found == (ON_HOST if wide else ON_HOST | WITHOUT_FLOAT64)
