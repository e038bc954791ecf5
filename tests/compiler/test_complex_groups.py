"""Groups of complex nodes: what their specifications read and write, what validation refuses, and random graphs of them."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assembling import PROCESSORS, object_for
from forced import kernels_of_any_size
from graphs import execute
from lowered_bodies import Body, body_of
from native_kernels import run_kernel, widths
from random_groups import drawn

import firebrick as fb
from firebrick.backends.cpu.engine import CpuBackend
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.nest import Map, Nest
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.scatter import Scatter
from firebrick.compiler.spec.text import from_json, to_json
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of, lower
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.native import UNIT
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.views import strided
from firebrick.ir import Graph
from firebrick.ir import interpret as interpret_graph
from firebrick.ops import OPS
from firebrick.scalar.complex_numbers import Parts, paired, parts
from firebrick.scalar.expr import load

from naive_forms import run_naive  # isort: skip

C, F, N = fb.complex64, fb.float32, 12


def number(shape: tuple[int, ...], dtype: Any = np.complex64, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def square_and_sum() -> Graph:
    """z · w and the sums of its rows, of matrices."""
    z = number((N, N))
    return body_of(
        (z, z), ("multiply", (0, 1), {}), ("conj", (2,), {}), ("sum", (3,), {"axes": (1,), "keepdims": False}), outputs=(3, 4)
    )


def nest_of(body: Graph) -> Nest:
    found = spec_of(body)
    assert isinstance(found, Nest)
    return found


def test_a_specification_reads_parts_and_writes_pairs() -> None:
    z = number((3, 5))
    d = spec_of(body_of((z, z), ("permute", (0,), {"axes": (1, 0)}), ("permute", (2,), {"axes": (1, 0)}), ("add", (3, 1), {})))
    assert isinstance(d, Map)
    assert [(x.source, x.dtype, x.view) for x in d.operands] == [
        (k, "float32", strided((3, 5), (10, 2), part)) for k in (0, 1) for part in (0, 1)
    ]
    (r,) = d.results
    assert (r.dtype, r.view) == ("complex64", strided((3, 5), (5, 1)))
    assert r.expression.op == "pair"
    assert [(x.dtype, x.view) for x in r.reals] == [("float32", strided((3, 5), (10, 2), part)) for part in (0, 1)]
    assert from_json(to_json(d)) == d


def test_a_product_may_lie_over_an_operand_of_its_shape_and_dtype_that_is_read_in_place() -> None:
    z, row, x = number((4, 4)), number((4,)), np.ones((4, 4), np.float32)
    found = lower(body_of((z, row, x), ("multiply", (0, 1), {}), ("multiply", (3, 0), {})), Target.host())
    assert found.over == (frozenset({0}),)
    turned = body_of((z,), ("flip", (0,), {"axes": (0,)}), ("multiply", (0, 1), {}))
    assert lower(turned, Target.host()).over == (frozenset(),)
    kernel = Body(body_of((z, z), ("multiply", (0, 1), {}), ("add", (2, 0), {})))
    over, other = z.copy(), number((4, 4), seed=1)
    kernel(over, other, out=[over])
    np.testing.assert_allclose(over, z * other + z, rtol=1e-5)


# validation


def _operands(d: Nest, change: Callable[[Any], Any]) -> Nest:
    return replace(d, operands=tuple(map(change, d.operands)))


def _result(d: Nest, number: int, change: Callable[[Any], Any]) -> Nest:
    return replace(d, results=tuple(change(r) if i == number else r for i, r in enumerate(d.results)))


def _of_parts(change: Callable[[Parts], Parts]) -> Callable[[Any], Any]:
    return lambda r: replace(r, expression=paired(change(parts(r.expression))))


WRONG: dict[str, Callable[[Nest], Nest]] = {
    "imaginary parts for real ones": lambda d: _operands(
        d, lambda x: replace(x, view=strided(x.view.shape, x.view.strides or (), 1 - x.view.offset))
    ),
    "parts of the next number": lambda d: _operands(
        d, lambda x: replace(x, view=strided(x.view.shape, x.view.strides or (), 2 + x.view.offset))
    ),
    "strides of numbers, not of parts": lambda d: _operands(
        d, lambda x: replace(x, view=strided(x.view.shape, (N, 1), x.view.offset))
    ),
    "complex operands": lambda d: _operands(d, lambda x: replace(x, dtype="complex64")),
    "parts exchanged": lambda d: _result(d, 0, _of_parts(lambda z: Parts(z.im, z.re))),
    "no conjugate": lambda d: _result(d, 0, _of_parts(lambda z: Parts(z.re, -z.im))),
    "a part twice": lambda d: _result(d, 1, _of_parts(lambda z: Parts(z.re, z.re))),
    "the real part alone": lambda d: _result(d, 0, lambda r: replace(r, expression=parts(r.expression).re, dtype="float32")),
    "elements for sums": lambda d: _result(d, 1, lambda r: replace(r, expression=d.results[0].expression)),
    "strides of parts in a result": lambda d: _result(d, 0, lambda r: replace(r, view=strided((N, N), (2 * N, 2)))),
}


def test_the_specification_of_complex_nodes_is_proved() -> None:
    body = square_and_sum()
    assert doubt(body, nest_of(body)) == ""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_specification_of_complex_nodes_is_refused(name: str) -> None:
    body = square_and_sum()
    assert doubt(body, WRONG[name](nest_of(body))) != ""


def test_rows_of_complex_numbers_are_added_and_summed_up_as_rows_of_twice_as_many_reals() -> None:
    z, at, update = number((5, 3)), np.array([4, 0, 4]), number((3, 3), seed=1)
    added = spec_of(body_of((z, at, update), ("index_add", (0, 1, 2), {"axis": 0})))
    assert isinstance(added, Scatter)
    assert (added.inner, added.dtype) == (6, "float32")
    summed = spec_of(body_of((z,), ("cumulative_sum", (0,), {"axis": 0, "reverse": False})))
    assert isinstance(summed, Prefix)
    assert (summed.inner, summed.dtype) == (6, "float32")
    for spec, node, operands in (
        (added, ("index_add", (0, 1, 2), {"axis": 0}), (z, at, update)),
        (summed, ("cumulative_sum", (0,), {"axis": 0, "reverse": False}), (z,)),
    ):
        body = body_of(operands, node)
        assert doubt(body, spec) == ""
        for wrong in (replace(spec, inner=3), replace(spec, outer=2), replace(spec, dtype="float64")):
            assert doubt(body, wrong) != ""


def test_numbers_that_updates_are_stay_arrays_where_they_are_complex() -> None:
    g = Graph([Aval((3,), fb.int64), Aval((3, 4), C)])
    start = g.add(OPS["broadcast_to"], g.constant(np.asarray(1 + 2j, np.complex64)), shape=(5, 4))
    g.outputs = g.add(OPS["index_add"], *start, 0, 1, axis=0)
    at, update = np.array([0, 4, 0]), number((3, 4))
    want = np.full((5, 4), 1 + 2j, np.complex64)
    np.add.at(want, at, update)
    with kernels_of_any_size():
        (got,) = CpuBackend().compile(g)([at, update])
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_numbers_around_complex_ones_keep_both_of_their_parts(dtype: str) -> None:
    z = number((2, 3), dtype)
    body = body_of((z,), ("pad", (0,), {"widths": ((1, 0), (0, 2)), "value": 2.5}))
    want = np.full((3, 5), 2.5, dtype)
    want[1:, :3] = z
    kernel, spec = Body(body), spec_of(body)
    assert not kernel.lowered.doubt
    (found,) = interpret(spec, [z], [15], [dtype])
    (named,), _ = run_naive(naive(spec), (z,), [body.avals[1]], native=True)
    for got in (kernel(z)[0], found.reshape(3, 5), named):
        assert np.array_equal(got, want)


def test_sums_of_many_updates_in_complex128_stay_on_the_host_as_those_in_float64_do() -> None:
    for dtype in ("complex128", "float64"):
        z, at = np.ones((3, 2), dtype), np.zeros(17, int)
        body = body_of((z, at, np.ones((17, 2), dtype)), ("index_add", (0, 1, 2), {"axis": 0}))
        assert kind_of(body.nodes[0], tuple(body.inputs)).startswith("float64 sums")


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
def test_large_complex_results_are_written_past_the_caches(target: Target) -> None:
    part, n = BufferView("float32", (1,)), UNIT + 3
    e = paired(Parts(load(0, "float32"), load(0, "float32") * 2.0))
    kernel = map_kernel("k", (n,), [part], [(e, BufferView("complex64", (1,)))], target, stream=True)
    assert f"align {target.width_bits // 8}, !nontemporal" in kernel.text
    x = np.arange(n, dtype=np.float32)
    memory = np.zeros(n + 16, np.complex64)
    for first in (-memory.ctypes.data % 64 // 8, -memory.ctypes.data % 64 // 8 + 1):  # aligned, and not
        out = memory[first : first + n]
        run_kernel(kernel, [x, out], target)
        assert np.array_equal(out, x + 2j * x)


@pytest.mark.parametrize("rows", [1, 3], ids=["one axis", "rows"])
def test_what_is_written_past_the_caches_is_visible_to_others_at_the_end(rows: int) -> None:
    part = BufferView("float32", (0 if rows > 1 else UNIT + 3, 1))  # rows of a broadcast operand stay an axis of their own
    result = (load(0, "float32"), BufferView("float32", (UNIT + 3, 1)))
    for target in widths():
        text = map_kernel("k", (rows, UNIT + 3), [part], [result], target, stream=True).text
        assert text.count("!nontemporal") == 1 == text.count("call void @llvm.x86.sse.sfence"), target
        assert text.index("!nontemporal") < text.index("call void @llvm.x86.sse.sfence"), target


def test_a_result_of_a_product_of_matrices_may_become_complex_in_its_kernel() -> None:
    x, w, z = (np.random.default_rng(k).normal(size=(40, 40)).astype(np.float32) for k in range(3))
    z = z + 1j * x[::-1]
    body = body_of((x, w, z.astype(np.complex64)), ("matmul", (0, 1), {}), ("complex", (3, 3), {}), ("multiply", (4, 2), {}))
    assert isinstance(spec_of(body), Contract)
    kernel = Body(body)
    assert not kernel.lowered.doubt
    (got,) = kernel(x, w, z.astype(np.complex64))
    want = (x @ w) * (1 + 1j) * z
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    (named,), fault = run_naive(naive(spec_of(body)), (x, w, z.astype(np.complex64)), [body.avals[5]], native=True)
    assert fault is None
    np.testing.assert_allclose(named, want, rtol=1e-4, atol=1e-4)


def test_the_document_lists_the_operations_that_stay_on_the_host() -> None:
    text = (Path(__file__).parents[2] / "docs" / "compiler.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", text.split("These stay on the host:")[1].split("\n\n")[0]))
    for name, op in OPS.items():
        if "complex64" not in op.dtypes or op.view is not None or name == "to_device":
            continue
        found = set()
        for s in op.samples(np.random.default_rng(0), "complex64"):
            arrays = [np.asarray(x) for x in s.inputs]
            body = body_of(arrays, (name, tuple(range(len(arrays))), s.params))
            found.add("no kernels of complex64" not in kind_of(body.nodes[0], tuple(body.inputs)))
        assert (name in listed or op.reference.__module__.endswith(("linalg", "decomposition", "factorization"))) == (
            False in found
        ), name


# random graphs

UNARY = ("negative", "conj", "exp", "sqrt", "sin", "log", "tanh")
BINARY = ("add", "subtract", "multiply", "divide")


def random_graph(seed: int, dtype: Any) -> Graph:
    """Complex and real values of a few shapes, in elementwise operations, sums, reads by index and views."""
    rng = np.random.default_rng(seed)
    g = Graph([Aval(s, dtype) for s in ((4, 6), (6,), (4, 1), ())] + [Aval((4, 6), F if dtype is C else fb.float64)])
    at = g.constant(np.asarray([3, 0, 2, 2]))

    def add(name: str, *inputs: int, **params: Any) -> None:
        g.add(OPS[name], *inputs, **params)

    def pick(kind: str) -> int:
        found = [v for v, a in enumerate(g.avals) if a.dtype.kind == kind]
        return int(rng.choice(found[-8:] if rng.random() < 0.6 else found))

    for _ in range(14):
        z, w, x = pick("complex"), pick("complex"), pick("float")
        shape = g.avals[z].shape
        how = rng.integers(17)
        try:
            if how < 4:
                add(str(rng.choice(BINARY)), z, w)
            elif how < 7:
                add(str(rng.choice(UNARY)), z)
            elif how == 7:
                add(str(rng.choice(["real", "imag", "abs"])), z)
            elif how == 8:
                add("complex", x, pick("float"))
            elif how == 9:
                add("cast", x, dtype=dtype)
            elif how == 10:
                add(
                    "sum" if rng.random() < 0.6 else "mean",
                    z,
                    axes=(int(rng.integers(len(shape))),),
                    keepdims=bool(rng.integers(2)),
                )
            elif how == 11:
                add("permute", z, axes=tuple(range(len(shape)))[::-1])
            elif how == 12 and shape[:1] == (4,):
                add("take", z, at, axis=0)
            elif how == 13 and shape[-1:] == (6,):
                lead = (0,) * (len(shape) - 1)
                add("slice", z, starts=(*lead, 1), stops=(*shape[:-1], 6), steps=(*(1 for _ in lead), 2))
            elif how == 14 and shape:
                add("cumulative_sum", z, axis=int(rng.integers(len(shape))), reverse=bool(rng.integers(2)))
            elif how == 15 and shape == g.avals[w].shape and shape:
                add("concat", z, w, axis=len(shape) - 1)
            elif how == 16 and shape == (4, 6):
                add("index_add", z, at, w, axis=0)
        except (ValueError, IndexError):  # shapes that do not fit
            continue
    made = [v for v in range(len(g.inputs), g.size) if g.avals[v].dtype.is_inexact]
    g.outputs = tuple(dict.fromkeys([*map(int, rng.choice(made, 3)), made[-1]]))
    return g


def close(got: Any, want: Any, digits: int) -> bool:
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    x, y = np.asarray(got).astype(wide), np.asarray(want).astype(wide)
    size = np.abs(y[np.isfinite(y)]).max(initial=1.0)
    near = np.abs(x - y) <= digits * float(np.finfo(got.dtype).eps) * size
    return bool((near | ~np.isfinite(y)).all())


@pytest.mark.parametrize("dtype", [fb.complex64, fb.complex128], ids=str)
@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(s, marks=pytest.mark.soak) for s in range(20, 40))])
def test_random_complex_graphs_compute_the_same_in_kernels(seed: int, dtype: Any) -> None:
    g = random_graph(seed, dtype)
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(drawn(a, rng)) for a in g.inputs]
    want = interpret_graph(g, arrays, execute)
    if any(np.abs(np.where(np.isfinite(x), x, 0)).max(initial=0) > 1e6 for x in map(np.asarray, want)):
        pytest.skip("numbers so large that rounding errors are, too")
    with kernels_of_any_size():
        program = CpuBackend().compile(g)
        refused = [line for line in program.notes if "not proved" in line]
    assert not refused
    for got, expected in zip(program(arrays), want, strict=True):
        assert close(np.asarray(got), expected, 1 << 12), g
    # every group: its specification, and its naive form
    for body in [n.params["body"] for n in fuse(g, kind_of, POLICY).nodes if n.op is FUSED]:
        spec, avals = spec_of(body), [body.avals[v] for v in body.outputs]
        values = [np.asarray(drawn(a, rng)) for a in body.inputs]
        expected = interpret_graph(body, values, execute)
        found = interpret(spec, values, [a.size for a in avals], [a.dtype.name for a in avals])
        forms, fault = run_naive(naive(spec), values, avals, native=True)
        assert fault is None
        for x, y, z, a in zip(expected, found, forms, avals, strict=True):
            assert close(y.reshape(a.shape), x, 1 << 12)
            assert close(z, x, 1 << 12)


def test_random_graphs_have_groups_with_complex_results() -> None:
    """The tests above hold something."""
    with kernels_of_any_size():
        made = [fuse(random_graph(seed, C), kind_of, POLICY) for seed in range(40)]
    groups = [n.params["body"] for g in made for n in g.nodes if n.op is FUSED]
    several = [b for b in groups if len(b.nodes) > 2 and any(b.avals[v].dtype is C for v in b.outputs)]
    assert len(several) > 15
    assert any(n.op.fusion == "row" for b in several for n in b.nodes)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_kernels_of_complex_numbers_are_generated_for_other_processors(processor: str) -> None:
    z, x, at = number((8, 37)), np.ones((37,), np.float32), np.array([3, 1])
    bodies = [
        body_of((z, x), ("complex", (1, 1), {}), ("divide", (0, 2), {}), ("exp", (3,), {}), ("flip", (4,), {"axes": (1,)}),
                ("add", (4, 0), {})),
        body_of((z,), ("sum", (0,), {"axes": (1,), "keepdims": True}), ("multiply", (0, 1), {})),
        body_of((z,), ("mean", (0,), {"axes": (0,), "keepdims": False})),
        body_of((z, at), ("take", (0, 1), {"axis": 1}), ("sqrt", (2,), {})),
        body_of((z, z), ("concat", (0, 1), {"axis": 1})),
    ]  # fmt: skip
    for body in bodies:
        assert object_for(processor, lower(body, PROCESSORS[processor]).text)


# memory


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect of Linux")
@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_at_the_end_of_memory_are_read_without_reading_beyond(dtype: str, target: Target) -> None:
    part = {"complex64": "float32", "complex128": "float64"}[dtype]
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    try:
        whole = np.frombuffer(memory, np.uint8)[:page]
        for n in (1, 2, 3, 5, 8, 13, 16, 17, 33, 100):
            z = whole[page - n * np.dtype(dtype).itemsize :].view(dtype)
            z[:] = number((n,), dtype, n)
            out = np.zeros(n, dtype)
            reads = [BufferView(part, (2,)), BufferView(part, (2,))]
            e = paired(Parts(load(1, part), load(0, part)))
            kernel = map_kernel("k", (n,), reads, [(e, BufferView(dtype, (1,)))], target)
            run_kernel(kernel, [z.real, z.imag, out], target)
            assert np.array_equal(out, z.imag + 1j * z.real)
    finally:
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + page), page, 3)


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("stride", [1, 3])
def test_what_lies_beside_a_complex_result_stays(stride: int, target: Target) -> None:
    for dtype, part in (("complex64", "float32"), ("complex128", "float64")):
        for n in (1, 2, 3, 5, 9, 17, 33, 65):
            x = np.ones(n, part)
            e = paired(Parts(load(0, part), load(0, part)))
            kernel = map_kernel("k", (n,), [BufferView(part, (1,))], [(e, BufferView(dtype, (stride,)))], target)
            memory = np.full(n * stride + 32, 7j, dtype)
            run_kernel(kernel, [x, memory[16:]], target)
            want = np.full(n * stride + 32, 7j, dtype)
            want[16 : 16 + n * stride : stride] = 1 + 1j
            assert np.array_equal(memory, want), (n, dtype)
