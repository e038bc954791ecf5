"""The ``cpu`` engine's compiled graphs: every elementwise op as a kernel, memory, threads, the cache, and the switch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.backends.cpu import engine as engine_module
from firebrick.backends.cpu.engine import CompiledWarning, CpuBackend
from firebrick.compiler.fusion.facts import KINDS
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.targets.llvm import lower as lower_module
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.core.aval import Aval
from firebrick.core.errors import KernelCompileError
from firebrick.ir import Graph, to_json
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing.cases import avals_of, samples_of

F = fb.float32


@pytest.fixture
def every() -> Iterator[None]:
    """Kernels for single nodes of any size."""
    with kernels_of_any_size():
        yield


def backend() -> CpuBackend:
    found = fb.device("cpu").backend
    assert isinstance(found, CpuBackend)
    return found


def compiled(graph: Graph, donate: Any = ()) -> Any:
    return backend().compile(graph, donate=donate)


def one_node(op: Any, sample: Any) -> Graph:
    ins, _ = avals_of(op, sample)
    graph = Graph(list(ins))
    graph.outputs = graph.add(op, *range(len(ins)), **sample.params)
    return graph


WITH_KERNELS = {
    *(n for n, op in OPS.items() if op.scalar is not None and "arg" not in n),
    *(n for n, op in OPS.items() if op.kind == "contract"),
}
KERNELS = [op for op in OPS.values() if op.fusion in ("map", "row", "contract")]


@pytest.mark.parametrize("op", KERNELS, ids=lambda op: op.name)
def test_every_op_with_a_kernel_agrees_with_its_reference(op: Any, every: None) -> None:
    tried = 0
    for dtype in op.dtypes:
        for sample in samples_of(op, dtype, 0)[:4]:
            graph = one_node(op, sample)
            if kind_of(graph.nodes[0], tuple(graph.inputs)) not in KINDS:
                continue
            program = compiled(graph)
            assert [n.op for n in program.graph.nodes] == [FUSED]
            arrays = tuple(np.asarray(x) for x in sample.inputs)
            native = [backend().from_host(a, fb.device("cpu")) for a in arrays]
            worst = check_results(op, arrays, sample.params, program(native), run_reference(op, arrays, sample.params))
            assert worst.ok, f"{op.name} {sample.name} {dtype}: {worst}"
            tried += 1
    assert tried or op.name not in WITH_KERNELS


def chain(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
    z = fb.relu(x * 2.0 + y) - y
    return z * x, z


@pytest.mark.parametrize("how", ["rows", "transposed", "sliced", "reversed", "broadcast"])
def test_operands_may_lie_in_any_way(how: str) -> None:
    rng = np.random.default_rng(0)
    base = fb.asarray(rng.normal(size=(300, 600)).astype(np.float32))
    y = fb.asarray(rng.normal(size=(300, 300)).astype(np.float32))
    x = {
        "rows": lambda: base[:, :300], "transposed": lambda: fb.permute_dims(base[:, :300], (1, 0)),
        "sliced": lambda: base[:, ::2], "reversed": lambda: base[::-1, :300],
        "broadcast": lambda: fb.broadcast_to(base[:1, :300], (300, 300)),
    }[how]()  # fmt: skip
    for got, want in zip(fb.jit(chain)(x, y), chain(x, y), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (33, 1, 5), (1000, 257)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8"])
def test_shapes_of_all_kinds_keep_their_bits(shape: tuple[int, ...], dtype: str, every: None) -> None:
    rng = np.random.default_rng(1)
    x, y = (fb.asarray(rng.integers(0, 100, shape).astype(dtype)) for _ in range(2))
    step = fb.jit(lambda x, y: (fb.maximum(x * y + x, y) - y, fb.where(x > y, x, y)))
    for got, want in zip(step(x, y), step.fn(x, y), strict=True):
        assert got.dtype is want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def adam(p: Any, m: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    m = m + (g - m) * 0.1
    v = v + (g * g - v) * 0.001
    return p - m / (fb.sqrt(v) + 1e-8) * 0.01, m, v


def test_several_results_of_one_kernel_are_written_over_the_state() -> None:
    graph = Graph([Aval((64, 64), F)] * 4)
    m = graph.add(OPS["add"], 1, graph.add(OPS["subtract"], 3, 1)[0])[0]
    v = graph.add(OPS["multiply"], graph.add(OPS["add"], 2, 3)[0], 3)[0]
    p = graph.add(OPS["subtract"], 0, graph.add(OPS["divide"], m, v)[0])[0]
    graph.outputs = (p, m, v)
    program = compiled(graph, (0, 1, 2))
    assert program.writes == {0, 1, 2}
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(64, 64)).astype(np.float32) for _ in range(4)]
    want = compiled(graph)(arrays)
    natives = [a.copy() for a in arrays]
    began = []
    got = program(natives, lambda: began.append([np.array_equal(x, a) for x, a in zip(natives, arrays, strict=True)]))
    assert began == [[True] * 4]
    assert {id(x) for x in got} == {id(x) for x in natives[:3]}
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(natives[3], arrays[3])


def test_state_that_does_not_lie_row_by_row_is_not_written_over() -> None:
    graph = Graph([Aval((64, 64), F)])
    graph.outputs = graph.add(OPS["add"], *graph.add(OPS["negative"], *graph.add(OPS["abs"], 0)), 0)
    program = compiled(graph, (0,))
    assert program.writes == {0}
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    (got,) = program([np.asfortranarray(x)])
    np.testing.assert_array_equal(got, x - np.abs(x))


def test_training_is_the_same_with_compiled_kernels_and_without() -> None:
    found = []
    for on in (True, False):
        with fb.config.scope(cpu_compile=on):
            rng = np.random.default_rng(0)
            state = [fb.asarray(rng.uniform(1, 2, (128, 65)).astype(np.float64)) for _ in range(3)]
            g = fb.asarray(rng.normal(size=(128, 65)))
            step = fb.jit(lambda p, m, v, g: adam(p, m, v, g))
            for _ in range(3):
                state = list(step(*state, g))
            assert ("compiled kernels: 1" in step.explain(*state, g)) is on
            found.append([s.numpy() for s in state])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def _maps(x: fb.Tensor, y: fb.Tensor) -> Any:
    return fb.sigmoid(x + y) * fb.tanh(x), fb.exp(-x * x)


def _rows(x: fb.Tensor, y: fb.Tensor) -> Any:
    return fb.softmax(x * y, axis=-1), fb.sum(x, axis=0), fb.sum(x * x), fb.mean(x, axis=1)


def _products(x: fb.Tensor, y: fb.Tensor) -> Any:
    image = fb.reshape(x[:1000, :1000], (10, 10, 100, 100))
    return x @ fb.permute_dims(x, (1, 0)), fb.conv2d(image, fb.reshape(x[:25, :10], (1, 10, 5, 5)), padding=2)


@pytest.mark.parametrize("f", [_maps, _rows, _products])
def test_any_number_of_threads_gives_the_same_bits(f: Any) -> None:
    rng = np.random.default_rng(0)
    x = fb.asarray(rng.normal(size=(1000, 1003)).astype(np.float32))
    y = fb.asarray(rng.normal(size=(1003,)).astype(np.float32))
    step = fb.jit(f)
    found = []
    for threads in (1, 2, 4):
        with fb.config.scope(num_threads=threads):
            found.append([t.numpy().tobytes() for t in step(x, y)])
    assert found[0] == found[1] == found[2]
    assert "compiled kernels" in step.explain(x, y)


def test_several_threads_may_run_one_program() -> None:
    rng = np.random.default_rng(0)
    step = fb.jit(chain)
    data = [tuple(fb.asarray(rng.normal(size=(200, 200)).astype(np.float32)) for _ in range(2)) for _ in range(4)]
    want = [tuple(t.numpy() for t in chain(*d)) for d in data]
    step(*data[0])
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            got = step(*data[k])
            if not all(np.array_equal(g.numpy(), w) for g, w in zip(got, want[k], strict=True)):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


_CHILD = """
import hashlib, numpy as np, firebrick as fb
x = fb.asarray(np.linspace(-9, 9, 100003, dtype=np.float32))
step = fb.jit(lambda x: fb.sigmoid(x) * fb.exp(x) + fb.tanh(x) * x)
print(hashlib.sha256(step(x).numpy().tobytes()).hexdigest())
"""


def test_cold_and_cached_objects_in_two_processes_give_the_same_bits(tmp_path: Any) -> None:
    found = []
    for cache in (str(tmp_path / "objects"), str(tmp_path / "objects"), "off"):
        env = {**os.environ, "FIREBRICK_CACHE_DIR": cache}
        done = subprocess.run([sys.executable, "-c", _CHILD], env=env, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip())
    assert len(set(found)) == 1
    assert list((tmp_path / "objects").rglob("*"))


def test_a_system_without_code_in_memory_is_told_once_and_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise KernelCompileError("a system that lets a program run code it made", "it does not", "allow it")

    monkeypatch.setattr(engine_module, "native_pool", forbidden)
    fresh = CpuBackend()
    graph = Graph([Aval((100, 100), F)])
    graph.outputs = graph.add(OPS["exp"], *graph.add(OPS["negative"], *graph.add(OPS["abs"], 0)))
    x = np.ones((100, 100), np.float32)
    with pytest.warns(CompiledWarning, match=r"(?s)NumPy's kernels.*it does not"):
        program = fresh.compile(graph, fb.device("cpu"))
    assert FUSED not in [n.op for n in program.graph.nodes]
    np.testing.assert_array_equal(program([x])[0], np.exp(-x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh.compile(graph, fb.device("cpu"))


def test_explain_lists_runs_their_kernels_what_stays_outside_and_why() -> None:
    x = fb.ones((300, 300))
    step = fb.jit(lambda x: fb.relu(x * 2.0 + 1.0) * fb.sigmoid(x) + fb.linalg.inv(fb.exp(x[:20, :20])).sum())
    text = step.explain(x)
    assert "native segments: 2, with an arena of " in text
    assert "outside of them: solve" in text
    assert re.search(r"segment 0: \d nodes, 1 arrays in, \d out, 1 copies of views \(1.6 KiB\)", text)
    assert re.search(
        r"float32\[300,300\] = multiply × 2, .*sigmoid.*: \d+\.\d (k|M)FLOP, \d+\.\d KiB, about \d+\.\d µs on one", text
    )
    assert "solve float32[20,20]: no scalar expression" in text
    small = fb.jit(lambda x: fb.exp(x))
    assert "exp float32[2]: 1 so small" in small.explain(x[:2, 0])


def test_a_fused_graph_runs_on_every_engine() -> None:
    graph = Graph([Aval((64, 64), F)])
    graph.outputs = graph.add(OPS["add"], *graph.add(OPS["negative"], *graph.add(OPS["abs"], 0)), 0)
    program = compiled(graph)
    assert "fused" in to_json(program.graph)
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    for name in ("numpy", "cpu"):
        engine = fb.device(name).backend
        np.testing.assert_array_equal(engine.compile(program.graph)([x])[0], x - np.abs(x))
    with fb.config.scope(cpu_compile=False):
        np.testing.assert_array_equal(backend().compile(program.graph)([x])[0], x - np.abs(x))
    (aval,) = fb.device("meta").backend.compile(program.graph)([Aval((64, 64), F)])
    assert aval == Aval((64, 64), F)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 16, 9, 9), (0, 2, 3)), ((5, 7, 300), (1, 2)), ((5, 7, 300), (0, 1, 2)), ((70000,), (0,)), ((2, 40000), (1,)),
        ((2, 3, 40000), (0, 2)), ((1000, 33), (0,)), ((3, 50, 33), (0, 1)), ((1, 6, 1), (0, 2)), ((40, 1, 40), (0, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "all", "any"])
def test_reductions_along_first_and_last_axes(name: str, shape: Any, axes: Any, keepdims: bool, every: None) -> None:
    rng = np.random.default_rng(0)
    op = OPS[name]
    for dtype in ("bool",) if name in ("all", "any") else ("float32", "float64", "float16"):
        x = rng.normal(size=shape) if name != "prod" else rng.uniform(0.99, 1.01, shape)
        x = x > 2.5 if dtype == "bool" and name == "any" else x > -2.5 if dtype == "bool" else x.astype(dtype)
        graph = Graph([Aval(shape, fb.dtype(dtype))])
        graph.outputs = graph.add(op, 0, axes=axes, keepdims=keepdims)
        program = compiled(graph)
        exact = name == "prod" and dtype == "float64" and np.prod([shape[a] for a in axes]) > lower_module.FACTORS
        assert [n.op for n in program.graph.nodes] == [op if exact else FUSED]
        params = {"axes": axes, "keepdims": keepdims}
        worst = check_results(op, (x,), params, program([x]), run_reference(op, (x,), params))
        assert worst.ok, f"{dtype}: {worst}"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_products_of_equal_factors_whose_roundings_are_alike(dtype: str, axis: int, every: None) -> None:
    op, params = OPS["prod"], {"axes": (axis,), "keepdims": False}
    for seed in range(5):
        rows = np.random.default_rng(seed).uniform(0.99, 1.01, (3, 1)).astype(dtype)
        x = np.broadcast_to(rows, (3, 1000)).T if axis == 0 else np.broadcast_to(rows, (3, 1000))
        graph = Graph([Aval(x.shape, fb.dtype(dtype))])
        graph.outputs = graph.add(op, 0, **params)
        want = run_reference(op, (x,), params)
        for results in (compiled(graph)([x]), (backend().execute(op, (x,), params),)):
            worst = check_results(op, (x,), params, results, want)
            assert worst.ok, worst


def test_contractions_and_reductions_of_numbers_and_views(every: None) -> None:
    rng = np.random.default_rng(0)
    x = fb.asarray(rng.normal(size=(6, 8)))

    def f(x: fb.Tensor) -> Any:
        ones, wide = fb.ones((8, 3), dtype=x.dtype), fb.broadcast_to(x[:1], (5, 8))
        image = fb.broadcast_to(x[:1, :1], (1, 2, 6, 6))
        return (
            x @ ones, fb.sum(wide, axis=0), fb.sum(fb.broadcast_to(x[0, 0], (40, 3))), wide @ fb.permute_dims(x, (1, 0)),
            fb.conv2d(image, fb.ones((3, 2, 3, 3), dtype=x.dtype)), fb.sum(ones, axis=0) * x[0, 0],
        )  # fmt: skip

    for got, want in zip(fb.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


def test_what_half_precision_decides_agrees_with_what_it_shows(every: None) -> None:
    x = fb.astype(fb.asarray([3.5, 4.0, 5.0, -4.0]), fb.bfloat16)  # tanh of these rounds to ±1
    y, whole, one, down = fb.jit(
        lambda x: (fb.tanh(x), fb.astype(fb.tanh(x), fb.int8), fb.tanh(x) == 1.0, fb.floor(fb.tanh(x)))
    )(x)
    assert y.tolist() == down.tolist() == [1.0, 1.0, 1.0, -1.0]
    assert whole.tolist() == [1, 1, 1, -1]
    assert one.tolist() == [True, True, True, False]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_state_that_an_index_outside_depends_on_is_kept(device: str, every: None) -> None:
    def late(x: fb.Tensor, w: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        x *= 2.0
        w[...] = w + fb.take(x, i)
        return x

    def together(x: fb.Tensor, w: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        x *= 2.0
        return fb.max(fb.take(w, fb.broadcast_to(i[:, None], (4, 3))) + x[0], axis=1)

    for step in (late, together):
        x, w, i = fb.ones(5, device=device), fb.ones(4, device=device), fb.asarray([0, 4, 5, 1], device=device)
        with pytest.raises(IndexError, match="indices must lie in"):
            fb.jit(step)(x, w, i)
        assert x.tolist() == [1.0] * 5
        assert w.tolist() == [1.0] * 4
