"""Ops on WebGPU against their references, at once and under ``jit``, which take turns at the pairwise subset. ``make soak`` has
all cases."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pytest
from kernels_on_gpu import gpu, in_kernels

from firebrick.backends.webgpu import groups, lowering
from firebrick.core.config import config
from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, Case, Report, cases, conformance, engines, run_cases
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


ALIKE = {
    **dict.fromkeys(("int8", "int16", "uint8", "uint16"), "parts of words"), **dict.fromkeys(("int32", "uint32"), "words"),
    **dict.fromkeys(("int64", "uint64"), "two words"), **dict.fromkeys(("float16", "bfloat16"), "halves"),
    **dict.fromkeys(("complex64", "complex128"), "complex"), **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "storage"),
}  # fmt: skip
"""Classes of dtypes for which kernels differ in constants, comparisons and conversions only; others are alone."""


def _values(case: Case) -> set[tuple[str, str, str]]:
    """What a mode has of each op in some case."""
    factors = {"dtype": case.dtype, "sample": case.sample.name, "layout": case.layout, "destination": case.destination}
    return {(case.mode, factor, value) for factor, value in factors.items()}


def by_turns(every: Iterable[Case]) -> list[Case]:
    """Cases of an op in the modes ``eager`` and ``jit``, in each of which are every dtype, sample, layout and destination.

    A sample is in one dtype of each class and in one mode, both in turn. Where a mode has no case with some value otherwise, it
    has another one.
    """
    every = list(every)
    having: dict[tuple[str, str], list[str]] = {}  # by class and sample: its dtypes
    for case in every:
        of = having.setdefault((ALIKE.get(case.dtype, case.dtype), case.sample.name), [])
        of.extend([case.dtype] * (case.dtype not in of))
    classes, samples = (list(dict.fromkeys(key[k] for key in having)) for k in (0, 1))
    taken = []
    for case in every:
        kind, turn = ALIKE.get(case.dtype, case.dtype), samples.index(case.sample.name)
        of = having[kind, case.sample.name]
        taken.append(case.dtype == of[turn // 2 % len(of)] and (classes.index(kind) + turn) % 2 == case.compiled)
    missing = set().union(*map(_values, every)) - set().union(*(_values(c) for c, own in zip(every, taken, strict=True) if own))
    for k, case in enumerate(every):
        if _values(case) & missing:
            taken[k] = True
            missing -= _values(case)
    return [case for case, own in zip(every, taken, strict=True) if own]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_op_agrees_with_its_reference_on_webgpu(name: str, seed: int) -> None:
    report = Report("webgpu", seed)
    for verdict in run_cases(by_turns(cases("webgpu", [name], seed=seed, modes=["eager", "jit"]))):
        report.add(verdict)
    assert report.ok, report


def test_each_mode_has_every_value_and_each_sample_is_in_one_of_them_in_each_class_of_dtypes(seed: int) -> None:
    for name in NAMES[seed % 8 :: 8]:
        every = list(cases("numpy", [name], seed=seed, modes=["eager", "jit"]))
        chosen = by_turns(every)
        assert set().union(*map(_values, chosen)) == set().union(*map(_values, every))
        pairs = [{(ALIKE.get(c.dtype, c.dtype), c.sample.name) for c in of} for of in (chosen, every)]
        assert pairs[0] == pairs[1]
        assert len(every) < 20 or len(chosen) < 0.6 * len(every), name


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
