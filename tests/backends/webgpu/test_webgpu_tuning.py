"""Variants of kernels on a WebGPU device: equal bits, forced and tuned ones, and planted ones that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu.lowering import launches_of
from firebrick.backends.webgpu.tuning import GpuBench, device_key
from firebrick.backends.webgpu.variants import variants
from firebrick.compiler.naive import Naive, naive
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.tune import bug_reports, choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant, add_variants
from firebrick.core.aval import Aval
from firebrick.ir import Graph

GPU = "webgpu:0"


def gpu() -> Any:
    device = fb.device(GPU)
    return device.backend.groups(device).gpu


def on_gpu(*shape: int, seed: int = 0) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device=GPU)


@pytest.fixture(autouse=True)
def _records(tmp_path: Path) -> Iterator[None]:
    """Records of their own, and none of what a test has tuned afterwards."""
    with fb.config.scope(cache_dir=str(tmp_path / "cache" / "objects")):
        choice.forget()
        yield
    choice.forget()


def chosen() -> dict[str, str]:
    return {c.problem.text.split(" ")[0]: c.variant for c in choice.choices()}


def test_all_blocks_of_a_product_have_equal_bits_also_for_long_sums() -> None:
    x, y = on_gpu(37, 301), on_gpu(301, 41, seed=1)
    want = (x @ y).numpy()
    exact = x.numpy().astype(np.float64) @ y.numpy().astype(np.float64)
    assert np.abs(want - exact).max() < 1e-5 * np.abs(exact).max()
    for shape in ("rows=8 columns=8", "rows=16 columns=4", "rows=1 columns=4", "rows=1 columns=1"):
        with fb.force_variant(shape):
            assert (x @ y).numpy().tobytes() == want.tobytes(), shape
        assert chosen() == {"matmul": shape}


def test_a_forced_variant_that_is_not_valid_is_refused_and_no_other_takes_its_place() -> None:
    x, y = on_gpu(5, 300), on_gpu(300, 6)
    with fb.force_variant("rows=8 columns=8"), pytest.raises(fb.UnsupportedError, match="whose valid_for is false"):
        x @ y
    with fb.force_variant("rows=8 columns=8"), pytest.raises(fb.UnsupportedError, match="whose valid_for is false"):
        fb.jit(lambda x, y: fb.relu(x @ y))(x, y)
    assert (x @ y).shape == (5, 6)


def test_all_ways_to_sort_have_equal_bits() -> None:
    x = fb.asarray(np.random.default_rng(0).integers(-99, 99, (2, 400)).astype(np.int8), device=GPU)
    want = fb.sort(x, axis=1).numpy()
    for name in ("digits group=64 each=4", "digits group=128 each=8", "naive"):
        with fb.force_variant(name):
            assert fb.sort(x, axis=1).numpy().tobytes() == want.tobytes(), name


def test_what_was_tuned_is_used_afterwards_with_the_default_s_bits() -> None:
    x, y = on_gpu(64, 40), on_gpu(40, 48)
    want = (x @ y).numpy()
    with fb.config.scope(tune="on"):
        found = (x @ y).numpy()
    name = chosen()["matmul"]
    (record,) = choice.records_of(device_key(gpu())).values()
    assert record.choice == name
    assert {"default", "rows=8 columns=8", "rows=1 columns=1"} <= set(record.times)
    assert record.barred == {}
    choice.forget()  # as a later process, which finds the records on disk
    record.choice = "rows=4 columns=8"
    choice.records_of(device_key(gpu())).add(record)
    assert fb.jit(lambda x, y: x @ y)(x, y).numpy().tobytes() == found.tobytes() == want.tobytes()
    assert chosen() == {"matmul": "rows=4 columns=8"}
    assert "the fastest that was measured" in fb.explain_tuning()
    assert (x[:63] @ y).numpy().tobytes() == want[:63].tobytes()
    assert choice.choices()[-1].reason == "not tuned", "a choice of one size served another"


def without_last_row(spec: Any, problem: KernelProblem, default: KernelVariant) -> list[KernelVariant]:
    """A variant that leaves the last items of its first launch out."""
    if not isinstance(spec, Contract):
        return []

    def build() -> Naive:
        form = launches_of(spec, gpu().measured)
        first = form.steps[0]
        assert isinstance(first.grid, int)
        return Naive((type(first)(first.function, first.buffers, first.scalars, first.grid - 1),), form.temporaries)

    return [KernelVariant("too few items", "default", build, cost_us=0.0)]


def test_a_wrong_variant_is_barred_reported_and_never_used() -> None:
    x, y = on_gpu(40, 33), on_gpu(33, 20)
    want = (x @ y).numpy()
    withdraw = add_variants(without_last_row)
    try:
        with fb.config.scope(tune="on"), pytest.warns(TuningWarning, match="'too few items' of matmul .* is barred"):
            assert (x @ y).numpy().tobytes() == want.tobytes()
        (record,) = choice.records_of(device_key(gpu())).values()
        assert "has other bits" in record.barred["too few items"]
        home = bug_reports.folder()
        assert home is not None
        assert any("@compute" in p.read_text() for p in home.iterdir())
        assert (x @ y).numpy().tobytes() == want.tobytes()
        assert "too few items" not in chosen().values()
    finally:
        withdraw()


def test_the_bench_holds_the_default_against_the_naive_form() -> None:
    """The check can fail, also where the right results of a run before are still in memory."""
    graph = Graph([Aval((9, 8), fb.float32), Aval((8, 7), fb.float32)])
    graph.outputs = graph.add(fb.ops.OPS["matmul"], 0, 1)
    spec, outputs = spec_of(graph), [graph.avals[v] for v in graph.outputs]
    default, *_ = variants(spec, gpu().measured)
    (few,) = without_last_row(spec, None, default)  # type: ignore[arg-type]
    wrong = replace(default, build=few.build)
    assert GpuBench(gpu(), graph.inputs, outputs, (), default, naive(spec)).check(default) == ""
    assert "it differs from its reference" in GpuBench(gpu(), graph.inputs, outputs, (), wrong, naive(spec)).check(wrong)
