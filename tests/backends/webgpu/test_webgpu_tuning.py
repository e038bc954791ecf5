"""Variants of kernels on a WebGPU device: equal bits, forced and tuned ones, and planted ones that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu import trial
from firebrick.backends.webgpu.lowering import launches_of
from firebrick.backends.webgpu.trial import GpuBench
from firebrick.backends.webgpu.tuning import device_key
from firebrick.backends.webgpu.variants import variants
from firebrick.compiler.naive import Naive, naive
from firebrick.compiler.naive.building import RESULT, ZERO, Buffer, Builder
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.templates.tiled_product import SIZES
from firebrick.compiler.tune import bug_reports, choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant, add_variants
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.scalar.expr import cast, const

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


@pytest.fixture
def tunable() -> None:
    if device_key(gpu()) is None:
        pytest.skip("the adapter's driver does not report a version, so it is not tuned")


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


@pytest.mark.usefixtures("tunable")
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


@pytest.mark.usefixtures("tunable")
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
    graph, spec, default, bench = problem()
    outputs = [graph.avals[v] for v in graph.outputs]
    (few,) = without_last_row(spec, None, default)  # type: ignore[arg-type]
    wrong = replace(default, build=few.build)
    assert bench.check(default) == ""
    assert "it differs from its reference" in GpuBench(gpu(), graph.inputs, outputs, (), wrong, naive(spec)).check(wrong)


def problem() -> tuple[Graph, Any, KernelVariant, GpuBench]:
    """A product, and the bench that tries its variants."""
    graph = Graph([Aval((9, 8), fb.float32), Aval((8, 7), fb.float32)])
    graph.outputs = graph.add(fb.ops.OPS["matmul"], 0, 1)
    spec, outputs = spec_of(graph), [graph.avals[v] for v in graph.outputs]
    default, *_ = variants(spec, gpu().measured)
    return graph, spec, default, GpuBench(gpu(), graph.inputs, outputs, (), default, naive(spec))


def endless(spec: Any) -> Naive:
    """A form that takes hours, in loops that no driver ends early."""
    b = Builder("endless", (1 << 12, 1 << 12))
    total = b.variable(const(0.0, "float32"), "total")

    def add(counters: Any) -> None:
        b.assign(total, total.local * 0.5 + cast(counters[0], "float32"))

    b.loops(b.numbers([60_000]), add)
    b.store(Buffer(RESULT, 0), "float32", ZERO, total.local)
    return Naive((b.step(),))


def test_a_variant_that_does_not_return_or_ends_its_process_is_found_and_the_next_one_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, spec, default, bench = problem()
    hung = KernelVariant("endless", "default", lambda: endless(spec))
    blocks = next(v for v in variants(spec, gpu().measured) if v.name == "rows=2 columns=2")
    assert bench.check(default) == ""
    monkeypatch.setattr(trial, "DEADLINE", 1.0)
    assert bench.check(hung) == "it did not return within 1 s"
    monkeypatch.undo()
    assert bench.check(blocks) == ""
    process = trial.PROCESS._process
    assert process is not None
    process.kill()
    process.wait()
    assert bench.check(blocks) == ""  # by a new process


def test_a_variant_that_cannot_be_built_is_barred() -> None:
    _, _, _, bench = problem()

    def build() -> Naive:
        raise fb.UnsupportedError("a form", "none", "")

    variant = KernelVariant("unbuilt", "default", build)
    assert bench.check(variant).startswith("UnsupportedError: a form")
    assert bench.source(variant).startswith("none: a form")


def doubled(spec: Any, problem: KernelProblem, default: KernelVariant) -> list[KernelVariant]:
    """A variant whose results are too large."""
    if not isinstance(spec, Contract):
        return []
    wrong = replace(spec, results=tuple(replace(r, expression=r.expression * 2.0) for r in spec.results))
    return [KernelVariant("doubled", "default", lambda: launches_of(wrong, gpu().measured))]


@pytest.mark.parametrize("how", ["jit", "eager"])
def test_a_wrong_variant_is_found_by_verify_every(how: str) -> None:
    """One that was not tried, as ``force_variant`` uses it."""
    x, y = on_gpu(40, 33), on_gpu(33, 20)
    want = (x @ y).numpy()
    function = fb.jit(lambda x, y: x @ y) if how == "jit" else lambda x, y: x @ y
    withdraw = add_variants(doubled)
    try:
        with fb.force_variant("doubled"):
            assert function(x, y).numpy().tobytes() != want.tobytes(), "the planted variant is right"
            with fb.config.scope(verify_every=2):
                assert function(x, y).numpy().tobytes() != want.tobytes()
                with pytest.warns(TuningWarning, match="'doubled' of matmul"):
                    assert function(x, y).numpy().tobytes() == want.tobytes()
        found = next(iter(choice.choices())).problem
        assert list(choice.records_of(found.device).barred(found.structure)) == ["doubled"]
    finally:
        withdraw()
    with fb.force_variant("rows=2 columns=2"), fb.config.scope(verify_every=1):
        assert function(x, y).numpy().tobytes() == want.tobytes()  # one that is right is not barred


TILES = "tiles=32x32x8 group=64"
PRODUCTS: dict[str, tuple[Callable[..., fb.Tensor], tuple[tuple[int, ...], ...]]] = {
    "row-major": (lambda a, b: a @ b, ((37, 131), (131, 45))),
    "left transposed": (lambda a, b: a.T @ b, ((131, 37), (131, 45))),
    "right transposed": (lambda a, b: a @ b.T, ((37, 17), (45, 17))),
    "both transposed": (lambda a, b: a.T @ b.T, ((17, 37), (45, 17))),
    "a stack by a stack": (lambda a, b: a @ b, ((3, 2, 5, 7), (3, 2, 7, 9))),
    "a stack by one matrix": (lambda a, b, c: fb.relu(a @ b + c), ((3, 2, 5, 7), (7, 33), (33,))),
    "a residual": (lambda a, b, c: fb.tanh(a @ b) * c, ((5, 7), (7, 9), (5, 9))),
    "a transposed residual, equal sizes": (lambda a, b, c: a @ b + c.T - c, ((7, 7), (7, 7), (7, 7))),
    "a column and a number": (lambda a, b, c, d: (a @ b + c) * d, ((5, 7), (7, 9), (5, 1), (1,))),
    "one of all": (lambda a, b: a @ b, ((1, 1), (1, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_in_shared_memory_have_the_bits_of_blocks(name: str) -> None:
    function, shapes = PRODUCTS[name]
    arrays = [on_gpu(*shape, seed=k) for k, shape in enumerate(shapes)]
    want = fb.jit(function)(*arrays).numpy()
    exact = function(*(fb.astype(fb.asarray(x.numpy(), device="numpy"), fb.float64) for x in arrays)).numpy()
    assert np.abs(want - exact).max() <= 1e-5 * max(1.0, np.abs(exact).max())
    with fb.force_variant(TILES):
        assert fb.jit(function)(*arrays).numpy().tobytes() == want.tobytes()
    assert TILES in chosen().values()


@pytest.mark.parametrize("of", ["float16", "bfloat16"])
def test_tiles_round_halves_where_blocks_do(of: str) -> None:
    x, y, c = (fb.astype(on_gpu(*shape), fb.dtype(of)) for shape in ((9, 17), (17, 11), (11,)))
    function = lambda x, y, c: fb.relu(x @ y + c)  # noqa: E731
    want = fb.jit(function)(x, y, c).numpy()
    with fb.force_variant(TILES):
        assert fb.jit(function)(x, y, c).numpy().tobytes() == want.tobytes()
    assert TILES in chosen().values()


def test_what_tiles_do_not_compute_is_computed_while_they_are_forced() -> None:
    x, y = on_gpu(9, 17), on_gpu(17, 11)
    whole = fb.asarray(np.arange(20, dtype=np.int32).reshape(4, 5), device=GPU)
    with fb.force_variant("tiles=*"):
        found = fb.jit(lambda x, y: x @ y[:, 2:])(x, y)
        ints = whole @ whole.T
        both = fb.jit(lambda x, y: (x @ y, fb.exp(x @ y)))(x, y)
    np.testing.assert_allclose(found.numpy(), x.numpy() @ y.numpy()[:, 2:], rtol=1e-5, atol=1e-5)
    assert np.array_equal(ints.numpy(), whole.numpy() @ whole.numpy().T)
    np.testing.assert_allclose(both[1].numpy(), np.exp(both[0].numpy()), rtol=1e-5)


@pytest.mark.soak
def test_random_products_have_equal_bits_by_all_variants() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        m, k, n = (int(rng.choice([1, 2, 7, 8, 31, 33, 64, 127, 128, 129, 257])) for _ in range(3))
        left, right = bool(rng.integers(2)), bool(rng.integers(2))
        x = on_gpu(*((k, m) if left else (m, k)), seed=m)
        y = on_gpu(*((n, k) if right else (k, n)), seed=n)
        function = fb.jit(lambda x, y, left=left, right=right: (x.T if left else x) @ (y.T if right else y))
        want = function(x, y).numpy()
        exact = function(*(fb.asarray(a.numpy().astype(np.float64), device="numpy") for a in (x, y))).numpy()
        assert np.abs(want - exact).max() <= 1e-5 * np.abs(exact).max() + 1e-6
        for tiles in SIZES:
            with fb.force_variant(tiles.name):
                assert function(x, y).numpy().tobytes() == want.tobytes(), (m, k, n, left, right, tiles)
            assert choice.choices()[-1].variant == tiles.name
