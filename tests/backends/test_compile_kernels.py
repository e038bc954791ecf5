"""Compiled programs of one node: every op of the table, on every engine, gives the bits of ``execute``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.fusion.fused import FUSED
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Op, Sample
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing.cases import EXCLUDED, avals_of, samples_of, storable, thinned

ENGINES = ["numpy", "cpu", "torch:cpu"]


def one_node(op: Op, sample: Sample) -> Graph:
    ins, _ = avals_of(op, sample)
    graph = Graph(list(ins))
    graph.outputs = graph.add(op, *range(len(ins)), **sample.params)
    return graph


def bits(x: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    """Equal bits, where any NaN is as good as another."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if got.dtype.kind not in "fcV":
        return bits(got) == bits(want)
    if got.dtype.kind == "c":
        return same(got.real, want.real) and same(got.imag, want.imag)
    nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    return bits(np.where(nan, 0, got).astype(got.dtype)) == bits(np.where(nan, 0, want).astype(want.dtype))


@pytest.mark.filterwarnings("ignore::firebrick.core.errors.FallbackWarning")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["in turn", "every dtype"])
@pytest.mark.parametrize("name", [n for n in OPS if n not in EXCLUDED])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.turns
def test_a_program_of_one_node_gives_the_bits_of_execute(engine: str, name: str, every: bool) -> None:
    """At every sample in one dtype of each class, in turn; on numpy, which calls the same reference in every dtype, and for
    kernels of cpu that test_cpu_engine.py compiles in every dtype, at every sample in some dtype."""
    if engine.startswith("torch"):
        pytest.importorskip("torch")
    device, op = fb.device(engine), OPS[name]
    backend = device.backend
    rows = [(d, k, s) for d in op.dtypes for k, s in enumerate(samples_of(op, d, 0)) if storable(device, op, s)]
    some = engine == "numpy" or (engine == "cpu" and op.fusion in ("map", "row", "contract"))
    for dtype, _, sample in rows if every else thinned(rows, "turns" if some else "thin"):
        ins, outs = avals_of(op, sample)
        natives = [backend.from_host(np.asarray(x), device) for x in sample.inputs]
        if not backend.supports(op, tuple(a.dtype for a in ins)):
            continue
        executable = backend.compile(one_node(op, sample), device)
        before = [np.array(backend.to_host(x)) for x in natives]
        got = executable(natives)
        want = backend.execute(op, tuple(natives), sample.params)
        want = want if type(want) is tuple else (want,)
        told = f"{name} {dtype} {sample.name}\n{executable.source}"
        assert tuple(backend.describe(g) for g in got) == outs, told
        if any(n.op is FUSED for n in executable.graph.nodes):  # a compiled kernel, which adds and rounds in its own way
            arrays = tuple(np.asarray(x) for x in sample.inputs)
            worst = check_results(op, arrays, sample.params, got, run_reference(op, arrays, sample.params))
            assert worst.ok, f"{worst} {told}"
        else:
            for g, w in zip(got, want, strict=True):
                assert same(backend.to_host(g), backend.to_host(w)), told
        for x, b in zip(natives, before, strict=True):
            assert same(backend.to_host(x), b), told


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("other", [0.0, -0.0, 2.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_choice_against_a_constant_has_the_bits_of_numpys_where(engine: str, other: float, dtype: str) -> None:
    if engine.startswith("torch"):
        pytest.importorskip("torch")
    device = fb.device(engine)
    backend = device.backend
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 50)).astype(dtype)
    if x.dtype.kind == "f":
        x[::7, 0], x[::5, 1], x[::3, 2] = np.nan, -0.0, np.inf
    keep = rng.random(x.shape) > 0.5
    scalar = np.asarray(other, dtype)
    avals = [Aval(a.shape, as_dtype(a.dtype)) for a in (keep, x, scalar)]
    for swapped in (False, True):
        want = np.where(keep, scalar, x) if swapped else np.where(keep, x, scalar)
        natives = [backend.from_host(a, device) for a in (keep, x, scalar)]
        order = (0, 2, 1) if swapped else (0, 1, 2)
        eager = backend.execute(OPS["where"], tuple(natives[i] for i in order), {})
        assert same(backend.to_host(eager), want)
        graph = Graph(list(avals))
        graph.outputs = graph.add(OPS["where"], *order)
        assert same(backend.to_host(backend.compile(graph, device)(natives)[0]), want)
        graph = Graph(avals[:2])
        known = graph.constant(scalar)
        graph.outputs = graph.add(OPS["where"], *(i if i < 2 else known for i in order))
        assert same(backend.to_host(backend.compile(graph, device)(natives[:2])[0]), want)
