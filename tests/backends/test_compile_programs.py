"""Compiled programs of many nodes: the bits of eager execution, inputs untouched, outputs that share no memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.program import python
from firebrick.compiler.program.python import Executable
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph, interpret
from firebrick.ops import OPS

ENGINES = ["numpy", "cpu", "torch:cpu"]
UNARY = ("negative", "tanh", "sqrt", "relu", "exp", "sigmoid", "abs", "floor", "gelu")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "divide")


def random_graph(rng: np.random.Generator, nodes: int) -> Graph:
    """A program over matrices with elementwise ops, views, sums and products; some outputs are views or inputs."""
    shapes = [(4, 6), (4, 6), (6, 4), (6,), ()]
    dtype = fb.float32 if rng.random() < 0.7 else fb.float64
    graph = Graph([Aval(s, dtype) for s in shapes])
    values = list(range(len(shapes)))
    avals = graph.avals

    def add(op: str, *operands: int, **params: Any) -> None:
        made = graph.add(OPS[op], *operands, **params)
        values.extend(made)
        avals.extend(graph.nodes[-1].avals)

    def pick(ok: Any) -> int | None:
        found = [v for v in values[-12:] + values[:5] if ok(avals[v])]
        return int(rng.choice(found)) if found else None

    while len(graph.nodes) < nodes:
        kind = int(rng.integers(12))
        a = int(rng.choice(values[-8:]))
        shape = avals[a].shape
        if kind <= 2:
            add(str(rng.choice(UNARY)), a)
        elif kind <= 5:
            b = pick(lambda x, s=shape: x.shape == s or x.shape == ())
            assert b is not None or shape == ()
            add(str(rng.choice(BINARY)), a, a if b is None else b)
        elif kind == 6 and len(shape) == 2:
            add("permute", a, axes=(1, 0))
        elif kind == 7 and shape:
            add("reshape", a, shape=(shape[1], shape[0]) if len(shape) == 2 else (len(shape), shape[0]))
        elif kind == 8 and len(shape) == 2:
            b = pick(lambda x, s=shape: len(x.shape) == 2 and x.shape[0] == s[1])
            if b is not None:
                add("matmul", a, b)
        elif kind == 9 and shape:
            axis = int(rng.integers(len(shape)))
            keep = bool(rng.integers(2))
            add("sum", a, axes=(axis,), keepdims=keep)
            if keep:
                add("broadcast_to", values[-1], shape=shape)
        elif kind == 10 and shape:
            n = shape[0]
            add("slice", a, starts=(n // 2,) + (0,) * (len(shape) - 1), stops=shape, steps=(1,) * len(shape))
        elif kind == 11 and len(shape) == 2:
            add("split", a, sizes=(1, shape[1] - 1), axis=1) if shape[1] > 1 else add("negative", a)
        if rng.random() < 0.1:
            values.append(graph.constant(np.asarray(rng.uniform(0.5, 1.5, shape), dtype.np)))
            avals.append(graph.nodes[-1].avals[0])
    count = int(rng.integers(1, 6))
    graph.outputs = (*(int(v) for v in rng.choice(values, count)), values[-1])
    return graph


def arrays_of(graph: Graph, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(rng.uniform(0.3, 1.7, a.shape), a.dtype.np) for a in graph.inputs]


def share(backend: Any, a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.size > 0 and b.size > 0 and bool(np.shares_memory(a, b))
    return a.numel() > 0 and b.numel() > 0 and bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


def same_bits(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=True)) and np.array_equal(np.signbit(a), np.signbit(b))


def agree(engine: str, got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits; on ``cpu``, whose compiled kernels round exp, tanh, … in their own way, floats of nearly equal value."""
    if engine != "cpu" or got.dtype != want.dtype or got.dtype.kind != "f":
        return same_bits(got, want)
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= 256 * np.finfo(got.dtype).eps * np.abs(want)
    return got.shape == want.shape and bool(np.all(near | (got == want) | (np.isnan(got) & np.isnan(want))))


@pytest.mark.turns
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(60))
def test_a_random_program_gives_the_bits_of_its_nodes_one_by_one(engine: str, seed: int) -> None:
    if engine.startswith("torch"):
        pytest.importorskip("torch")
    device = fb.device(engine)
    backend = device.backend
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(3, 40)))
    arrays = arrays_of(graph, rng)

    def execute(op: Any, inputs: Any, params: Any) -> Any:
        return backend.from_host(params["value"], device) if op is CONSTANT else backend.execute(op, inputs, params)

    for donate in ((), tuple(i for i in range(len(arrays)) if rng.random() < 0.6), tuple(range(len(arrays)))):
        program = backend.compile(graph, device, donate)
        natives = [backend.from_host(a, device) for a in arrays]
        want = [np.array(backend.to_host(w)) for w in interpret(program.graph, natives, execute)]
        told = f"{graph}\n{program.explain(source=True)}"
        assert program.writes <= set(donate), told
        for _ in range(2):  # constants are as they were
            natives = [backend.from_host(a, device) for a in arrays]
            began: list[bool] = []

            def begin(natives: Any = natives, began: Any = began, told: str = told) -> None:
                began.append(True)
                for x, a in zip(natives, arrays, strict=True):
                    assert same_bits(backend.to_host(x), a), f"written before begin\n{told}"

            got = program(natives, begin)
            assert len(began) == bool(program.writes), told
            for g, w in zip(got, want, strict=True):
                assert agree(engine, np.asarray(backend.to_host(g)), w), told
            for i, (x, a) in enumerate(zip(natives, arrays, strict=True)):
                assert i in program.writes or same_bits(backend.to_host(x), a), f"%{i} was written\n{told}"
                if i not in program.writes:
                    assert not any(share(backend, g, x) for g in got), f"an output shares memory with %{i}\n{told}"
            for i, g in enumerate(got):
                assert not any(share(backend, g, other) for other in got[:i]), told
                if isinstance(g, np.ndarray):
                    assert g.flags.writeable, told
                    g[...] = 0  # whoever writes outputs does not write constants
        assert program.plan.peak <= program.plan.unplanned, told


def test_programs_of_one_source_are_compiled_once_and_have_files_of_their_own() -> None:
    python._code_of.cache_clear()
    made = list[Executable]()
    for n in (3, 4, 5):
        graph = Graph([Aval((n,), fb.float32)] * 2)
        graph.outputs = graph.add(OPS["add"], 0, 1)
        made.append(fb.device("numpy").backend.compile(graph))
        x = np.arange(n, dtype=np.float32)
        assert made[-1]((x, x))[0].tolist() == [2.0 * k for k in range(n)]
    assert len({p.source for p in made}) == python._code_of.cache_info().misses == 1
    files = [p._run.__code__.co_filename for p in made]  # type: ignore[attr-defined]
    assert files == [p._file for p in made]
    assert len(set(files)) == 3


def test_the_code_of_a_long_program_is_not_kept() -> None:
    graph = Graph([Aval((2, 3), fb.float32)])
    last = (0,)
    for _ in range(200):
        last = graph.add(OPS["negative"], *last)
    graph.outputs = last
    before = python._code_of.cache_info()
    fb.device("numpy").backend.compile(graph)
    assert python._code_of.cache_info() == before
