"""Attention on a WebGPU device: its forms, forced, against the references of the op table, and random problems in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu.lowering import launches_of
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing.cases import samples_of

GPU = "webgpu:0"
FORMS = ("naive", "products")
KINDS = ("attention", "attention_gradient")


def on_gpu(x: Any) -> fb.Tensor:
    return fb.asarray(np.asarray(x), device=GPU)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_forced_forms_agree_with_the_reference(form: str, kind: str) -> None:
    op, forced = OPS[kind], 0
    samples = [s for s in samples_of(op, "float32", 0) if all(np.asarray(x).size for x in s.inputs)]
    with fb.force_variant(form):
        for sample in samples:
            arrays = tuple(np.asarray(x) for x in sample.inputs)
            found = bind(op, tuple(map(on_gpu, arrays)), sample.params)
            results = tuple(t.numpy() for t in (found if isinstance(found, tuple) else (found,)))
            worst = check_results(op, arrays, sample.params, results, run_reference(op, arrays, sample.params))
            assert worst.ok, (sample, worst)
            forced += choice.choices()[-1].variant == form
    assert forced > 0


def test_products_are_the_default_of_problems_with_work() -> None:
    """And the naive form that of others."""
    gpu = fb.device(GPU).backend.groups(fb.device(GPU)).gpu
    for shape, launches in (((1, 2, 128, 64), 3), ((1, 1, 4, 8), 2)):
        graph = Graph([Aval(shape, fb.float32)] * 3 + [Aval((1, 1), fb.bool)])
        graph.outputs = graph.add(OPS["attention"], 0, 1, 2, 3, scale=0.5, causal=False)
        assert len(launches_of(spec_of(graph), gpu.measured).steps) == launches


def compared(seed: int) -> None:
    """A random problem, its results and gradients by each form, against float64."""
    rng = np.random.default_rng(seed)
    lead = tuple(map(int, rng.integers(1, 4, rng.integers(1, 3))))
    n, m, d, e = (int(rng.choice([1, 2, 7, 16, 33, 65, 130])) for _ in range(4))
    causal, masked = bool(rng.integers(2)), bool(rng.integers(2))
    arrays = [rng.normal(size=(*lead, *s)) for s in ((n, d), (m, d), (m, e), (n, e))]
    mask = rng.random((n, m)) < 0.7 if masked else np.ones((1, 1), bool)
    exact = [fb.asarray(x, device="numpy") for x in arrays]

    def fn(q: fb.Tensor, k: fb.Tensor, v: fb.Tensor, g: fb.Tensor, where: fb.Tensor) -> list[fb.Tensor]:
        params = {"scale": float(d) ** -0.5, "causal": causal}
        y = bind(OPS["attention"], (q, k, v, where), params)
        return [y, *bind(OPS["attention_gradient"], (g, q, k, v, where), params)]

    want = [t.numpy() for t in fn(*exact, fb.asarray(mask, device="numpy"))]
    for form in FORMS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TuningWarning)  # where the form is the default
            with fb.force_variant(form):
                found = fn(*(on_gpu(x.astype(np.float32)) for x in arrays), on_gpu(mask))
        for k, (a, b) in enumerate(zip(found, want, strict=True)):
            error = np.abs(a.numpy() - b).max() / max(1.0, np.abs(b).max())
            assert error < 3e-6, (seed, form, k, error)


def test_random_problems() -> None:
    for seed in range(2):
        compared(seed)


@pytest.mark.soak
def test_many_random_problems() -> None:
    for seed in range(2, 60):
        compared(seed)
