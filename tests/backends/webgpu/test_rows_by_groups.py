"""Rows of which the items of a group share the elements: the form of GPUs, here on any driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu.lowering import launches_of
from firebrick.backends.webgpu.probes import Measured
from firebrick.backends.webgpu.variants import variants
from firebrick.compiler.naive import Naive, naive
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.wgsl import rows_by_groups as groups
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.testing import cases
from firebrick.testing.conformance import run_case

REDUCTIONS = (
    "sum", "mean", "max", "min", "argmax", "all", "any", "softmax", "log_softmax", "layer_norm",
    "standardize",
)  # fmt: skip


@pytest.fixture
def on_gpu(anew: fb.Device) -> fb.Device:
    """The first device, taken for one that does not compute on the processor."""
    gpu = anew.backend.groups(anew).gpu
    gpu.measured = replace(gpu.measured, processor=False)
    return anew


@pytest.mark.parametrize("shape", [(5, 64), (1, 65), (3, 2, 127), (2, 1000), (70, 129)])
def test_reductions_and_what_follows_them(shape: tuple[int, ...], on_gpu: fb.Device) -> None:
    v = np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
    w, x = v.astype(np.float64), fb.asarray(v, device=on_gpu)
    exact = np.exp(w - w.max(-1, keepdims=True))
    with fb.config.scope(fallback="error"):
        np.testing.assert_allclose(fb.softmax(x, axis=-1).numpy(), exact / exact.sum(-1, keepdims=True), rtol=2e-6)
        np.testing.assert_allclose(fb.var(x, axis=-1).numpy(), w.var(-1), rtol=1e-6)
        np.testing.assert_array_equal(fb.min(x, axis=-1).numpy(), v.min(-1))
        np.testing.assert_array_equal(fb.argmax(x, axis=-1).numpy(), v.argmax(-1))
        found = fb.jit(lambda t: t / fb.sum(t * t, axis=-1, keepdims=True) - fb.mean(t, axis=-1, keepdims=True))(x).numpy()
        np.testing.assert_allclose(found, w / (w * w).sum(-1, keepdims=True) - w.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_sums_keep_what_additions_lose(on_gpu: fb.Device) -> None:
    v = np.ones((3, 4000), np.float32)
    v[:, ::64], v[:, 1::64] = 1e9, -1e9  # lane 0 has the one, lane 1 the other
    found = fb.sum(fb.asarray(v, device=on_gpu), axis=1).numpy()
    np.testing.assert_array_equal(found, v.sum(1, dtype=np.float64))


@pytest.mark.slow
def test_rows_of_any_length_agree_with_the_reference(on_gpu: fb.Device, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With four lanes the rows of samples are long enough: each run takes three cases of each op."""
    made: list[object] = []

    def grouped(spec: Any) -> Naive:
        made.append(spec)
        return rows_by_groups(spec, 4)

    rows_by_groups = groups.rows_by_groups
    monkeypatch.setattr(groups, "LANES", 4)
    monkeypatch.setattr(groups, "rows_by_groups", grouped)
    for name in REDUCTIONS:
        found = list(cases("webgpu", [name], subset="thin", seed=seed, modes=["eager", "jit"]))
        for k in range(3):
            case = found[crc32(f"{name}{seed}{k}".encode()) % len(found)]
            verdict = run_case(case)
            assert verdict.ok, f"{case.name}: {verdict.message}"
    assert len(made) > len(REDUCTIONS)


def form(op: str, dtype: fb.DType, driver: Measured) -> dict[str, str]:
    """Variants of the reduction of a row, and their orders."""
    graph = Graph([Aval((3, 100), dtype)])
    graph.outputs = graph.add(OPS[op], 0, axes=(1,), keepdims=False)
    return {v.name: v.order for v in variants(spec_of(graph), driver)}


def test_the_tuner_tries_other_numbers_of_items_for_a_row(on_gpu: fb.Device) -> None:
    gpu = on_gpu.backend.groups(on_gpu).gpu.measured
    processor = replace(gpu, processor=True)
    assert form("max", fb.float32, gpu) == dict.fromkeys(("default", "lanes=32", "lanes=256", "naive"), "default")
    assert form("sum", fb.int32, processor) == dict.fromkeys(("default", "lanes=32", "lanes=64", "lanes=256"), "default")
    assert form("sum", fb.float32, gpu) == {"default": "default"} | {n: n for n in ("lanes=32", "lanes=256", "naive")}
    assert form("sum", fb.float32, replace(gpu, capabilities=replace(gpu.capabilities, group_items=128))).keys() == {
        "default", "lanes=32", "naive"
    }  # fmt: skip


def test_all_numbers_of_items_have_one_result_where_the_order_does_not_matter(on_gpu: fb.Device) -> None:
    x = fb.asarray(np.random.default_rng(0).integers(-(2**31), 2**31, (5, 777)).astype(np.int32), device=on_gpu)
    wanted = [f(x, axis=1).numpy() for f in (fb.max, fb.argmin)] + [fb.sum(x, axis=1, dtype=fb.int32).numpy()]
    for name in ("lanes=32", "lanes=256", "naive"):
        with fb.force_variant(name):
            found = [f(x, axis=1).numpy() for f in (fb.max, fb.argmin)] + [fb.sum(x, axis=1, dtype=fb.int32).numpy()]
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=name)


def test_few_and_strided_rows_keep_other_forms(on_gpu: fb.Device) -> None:
    driver = on_gpu.backend.groups(on_gpu).gpu.measured
    for shape, axis, shared in (((64, 300), 0, False), ((300, 63), 1, False), ((300, 64), 1, True)):
        graph = Graph([Aval(shape, fb.float32)])
        graph.outputs = graph.add(OPS["sum"], 0, axes=(axis,), keepdims=False)
        spec = spec_of(graph)
        assert (launches_of(spec, driver) == naive(spec)) is not shared
