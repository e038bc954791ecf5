"""Indexing kernels: against the op table, the order of their sums, what they are fused with, and indices out of range."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from lowered_bodies import Array, Body, body_of, kernels_of
from native_kernels import widths

import firebrick as fb
from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.spec.scatter import scatter
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.scatter_kernels import split
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.errors import OutOfRangeError
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference

NAMES = (
    "take", "gather", "ravel_index", "scatter", "scatter_add", "scatter_reduce", "index_add", "argmax", "argmin",
    "random_bits", "random_uniform",
)  # fmt: skip
BITS = {"take", "gather", "scatter"}  # what moves elements keeps their bits, but for the payload of a NaN
every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))


@every_width
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_op_table(name: str, target: Target) -> None:
    op = OPS[name]
    tried = 0
    narrow = target is not widths()[-1]
    for kind in op.dtypes:
        if narrow and kind not in ("float32", "bfloat16", "int64", "uint32", "bool"):
            continue
        for sample in op.samples(np.random.default_rng(5), kind):
            arrays = tuple(np.asarray(a) for a in sample.inputs)
            g = body_of(arrays, (name, tuple(range(len(arrays))), sample.params))
            reason = kind_of(g.nodes[0], tuple(g.inputs))
            if reason not in ("map", "rows", "columns", "alone"):
                known = "no elements", "rows of one element", "no kernels of ", "along axes ", "float64 sums"
                assert reason.startswith(known), reason
                continue
            want = run_reference(op, arrays, sample.params)
            got = Body(g, target)(*arrays)
            assert got[0].dtype == g.nodes[0].avals[0].dtype.np
            found = check_results(op, arrays, sample.params, tuple(got), want)
            assert found.ok, f"{kind}, {sample.name}: {found}"
            if name in BITS:
                exact = op.reference(*arrays, **sample.params)
                nan = exact != exact
                assert exact[~nan].tobytes() == got[0][~nan].tobytes(), f"{kind}, {sample.name}"
            tried += 1
    assert tried >= 4


# where elements are read


@every_width
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_slices_are_taken_along_any_axis(axis: int, target: Target) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 33, 70)).astype(np.float32)
    axis %= 3
    at = rng.integers(-x.shape[axis], x.shape[axis], (4, 5)).astype(np.int32)
    (got,) = Body(body_of((x, at), ("take", (0, 1), {"axis": axis})), target)(x, at)
    assert np.array_equal(got, np.take(x, at, axis))


@every_width
def test_positions_are_64_bit_numbers(target: Target) -> None:
    # memory of zeros that is never written to takes no room
    size = (1 << 31) + 4096
    x = np.zeros(size, bool)
    far = np.array([size - 1, 5, -3, (1 << 31) + 7, 2**31 - 1])
    x[[size - 1, size - 3, (1 << 31) + 7]] = True
    (got,) = Body(body_of((x, far), ("take", (0, 1), {"axis": 0})), target)(x, far)
    assert got.tolist() == [True, False, True, True, False]
    rows = x.reshape(-1, 4096)
    last = np.array([rows.shape[0] - 1, -2])
    (found,) = Body(body_of((rows, last), ("take", (0, 1), {"axis": 0})), target)(rows, last)
    assert [row.nonzero()[0].tolist() for row in found] == [[7, 4093, 4095], []]


def test_a_number_that_is_scattered_into_is_that_of_its_dtype() -> None:
    at, large = np.array([[1], [0]]), (1 << 53) + 1
    for number in (np.array(large), np.array(0.5, np.float32), np.array(True)):
        new = np.zeros((2, 1), number.dtype)
        body = body_of(
            (at, new), ("constant", (), {"value": number}), ("broadcast_to", (2,), {"shape": (2, 3)}),
            ("scatter", (3, 0, 1), {"axis": 1}),
        )  # fmt: skip
        start = scatter(body).start
        assert start == number.item()
        assert type(start) is type(number.item())


def test_results_of_more_than_2_to_the_31_elements_are_written_in_place() -> None:
    size = (1 << 31) + 64
    x = np.zeros(size, np.uint8)
    at, new = np.array([size - 1, 3, -2, 3]), np.array([1, 2, 3, 4], np.uint8)
    body = Body(body_of((x, at, new), ("scatter_add", (0, 1, 2), {"axis": 0})))
    assert body.lowered.over == (frozenset({0}),)
    body(x, at, new, out=[x])  # the copy has nothing to do where both are the same memory
    assert x[[3, size - 2, size - 1]].tolist() == [6, 3, 1]


# sums in order


def test_equal_indices_are_summed_in_order_and_the_last_of_several_values_stays() -> None:
    rng = np.random.default_rng(1)
    x = np.zeros((3, 2048), np.float32)
    at = rng.integers(0, 3, 16)  # of more updates the sums are wider
    new = (rng.normal(size=(16, 2048)) * 10.0 ** rng.integers(-4, 5, (16, 2048))).astype(np.float32)
    (got,) = Body(body_of((x, at, new), ("index_add", (0, 1, 2), {"axis": 0})))(x, at, new)
    want = x.copy()
    for i, row in zip(at, new, strict=True):
        want[i] += row  # one after the other: other orders give other bits
    assert np.array_equal(got, want)
    assert not np.array_equal(got, sum_backwards(x, at, new))
    many = np.broadcast_to(at[:, None], new.shape).copy()
    (got,) = Body(body_of((x, many, new), ("scatter", (0, 1, 2), {"axis": 0})))(x, many, new)
    want = x.copy()
    for i, row in zip(at, new, strict=True):
        want[i] = row
    assert np.array_equal(got, want)


def sum_backwards(x: Array, at: Array, new: Array) -> Array:
    out = x.copy()
    for i, row in zip(at[::-1], new[::-1], strict=True):
        out[i] += row
    return out


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [3, 100_000])
def test_many_updates_of_an_element_are_summed_in_a_wider_dtype(kind: str, size: int) -> None:
    count = 200_000
    x = np.zeros(size, fb.dtype(kind).np)
    at = np.zeros(count, np.int64)
    new = np.full(count, 0.1, x.dtype)
    (got,) = Body(body_of((x, at, new), ("scatter_add", (0, 1, 2), {"axis": 0})))(x, at, new)
    exact = count * float(new[0])
    assert abs(float(got[0]) - exact) <= exact * float(fb.finfo(fb.dtype(kind)).eps)


SCATTERS = [
    ("index_add", (500, 64), (4000,), (4000, 64), 0),
    ("index_add", (7, 300, 2), (2000,), (7, 2000, 2), 1),
    ("scatter_add", (16, 30, 500), (16, 30, 900), (16, 30, 900), 2),
    ("scatter_add", (50, 4000), (900, 4000), (900, 4000), 0),
    ("scatter", (2, 90, 700), (2, 400, 700), (2, 400, 700), 1),
]


@pytest.mark.parametrize(("name", "shape", "indices", "updates", "axis"), SCATTERS)
def test_bits_are_the_same_on_any_number_of_threads(name: str, shape: Any, indices: Any, updates: Any, axis: int) -> None:
    rng = np.random.default_rng(2)
    x, new = (rng.normal(size=s).astype(np.float32) for s in (shape, updates))
    at = rng.integers(-shape[axis], shape[axis], indices)
    g = body_of((x, at, new), (name, (0, 1, 2), {"axis": axis}))
    body = Body(g)
    assert body.lowered.parts[1].kernel.grid >= 4
    found = set()
    for threads in (1, 2, 4):
        crew = Pool(threads)
        found.add(body(x, at, new, pool=crew)[0].tobytes())
        crew.close()
    in_place = x.copy()
    body(in_place, at, new, out=[in_place])
    found.add(in_place.tobytes())
    assert len(found) == 1
    wide, key = x.astype(np.float64), [slice(None)] * axis + [at]
    if name != "index_add":
        grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in at.shape)])
        key = [at if k == axis else g for k, g in enumerate(grid)]
    (np.add.at if name != "scatter" else np.ndarray.__setitem__)(wide, tuple(key), new)
    got = np.frombuffer(found.pop(), np.float32).reshape(shape)
    np.testing.assert_allclose(got, wide, rtol=1e-5, atol=1e-5)


def test_the_grid_of_a_scatter_covers_the_result_once() -> None:
    for name, shape, indices, updates, axis in SCATTERS:
        g = Graph([Aval(shape, fb.float32), Aval(indices, fb.int64), Aval(updates, fb.float32)])
        g.outputs = g.add(OPS[name], 0, 1, 2, axis=axis)
        what = scatter(g)
        ranges, stretch = split(what)
        assert what.outer * what.size * what.inner == np.prod(shape)
        assert 1 <= stretch <= what.inner
        assert 1 <= ranges <= what.size


# indices outside


def outside(name: str, arrays: tuple[Array, ...], params: dict[str, Any], known_as: str = "", size: int = 10) -> None:
    """One index is wrong in turn at each end; afterwards the kernel works as before."""
    body = Body(body_of(arrays, (name, tuple(range(len(arrays))), params)))
    at = next(i for i, a in enumerate(arrays) if a.dtype == np.int64)
    good = body(*arrays)[0]
    for wrong in (size, -size - 1, 2**62, -(2**63)):
        bad = arrays[at].copy()
        bad.reshape(-1)[-2] = wrong
        with pytest.raises(OutOfRangeError, match=re.escape(f"{known_as or name}: indices must lie in [-{size}, {size})")) as e:
            body(*(bad if i == at else a for i, a in enumerate(arrays)))
        assert isinstance(e.value, IndexError)
        assert body(*arrays)[0].tobytes() == good.tobytes()


def test_indices_outside_their_axis_raise_with_the_op() -> None:
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    def at(*shape: int) -> Array:
        return rng.integers(-10, 10, shape)

    outside("take", (draw(10, 70), at(9)), {"axis": 0})
    outside("take", (draw(3, 10), at(40)), {"axis": 1})
    outside("take", (draw(10), at(40)), {"axis": 0})
    outside("gather", (draw(4, 10), at(4, 33)), {"axis": 1}, "take_along_axis")
    outside("ravel_index", (at(50),), {"sizes": (10,), "strides": (3,), "offset": 1}, "x[key]")
    outside("scatter_add", (draw(5, 10), at(5, 1), draw(5, 1)), {"axis": 1})
    outside("scatter_add", (draw(5, 10), at(5, 4), draw(5, 4)), {"axis": 1})
    outside("scatter", (draw(10, 40), at(3, 40), draw(3, 40)), {"axis": 0})
    outside("scatter_reduce", (draw(10), at(30), draw(30)), {"axis": 0, "mode": "max"})
    outside("index_add", (draw(10, 300), at(2000), draw(2000, 300)), {"axis": 0})


# fused with what is around them


def groups(*nodes: tuple[str, tuple[int, ...], dict[str, Any]], inputs: list[Aval]) -> list[list[str]]:
    """The ops of each group that a graph of these nodes is fused into; what no node uses is an output."""
    g = Graph(inputs)
    for name, operands, params in nodes:
        g.add(OPS[name], *operands, **params)
    used = {v for n in g.nodes for v in n.inputs}
    g.outputs = tuple(v for n in g.nodes for v in n.results if v not in used)
    made = fuse(g, kind_of, POLICY)
    assert all(n.op is FUSED for n in made.nodes), [n.op.name for n in made.nodes]
    return [[m.op.name for m in n.params["body"].nodes] for n in made.nodes]


LABELS = [Aval((96, 50), fb.float32), Aval((96, 1), fb.int64), Aval((96, 1), fb.float32)]


def test_the_element_of_a_label_is_found_by_the_kernel_of_the_row() -> None:
    found = groups(
        ("log_softmax", (0,), {"axis": 1}), ("gather", (3, 1), {"axis": 1}), ("scatter_add", (0, 1, 2), {"axis": 1}),
        ("multiply", (3, 5), {}), inputs=LABELS,
    )  # fmt: skip
    assert found == [["log_softmax", "gather", "scatter_add", "multiply"]]


def test_what_is_read_anywhere_is_complete_before() -> None:
    # elements of other rows, or of what no row kernel makes, come from another kernel
    for first, axis in ((("softmax", (0,), {"axis": 1}), 0), (("exp", (0,), {}), 1)):
        at = Aval((1, 50) if axis == 0 else (96, 1), fb.int64)
        found = groups(first, ("gather", (3, 1), {"axis": axis}), inputs=[LABELS[0], at, LABELS[2]])
        assert found == [[first[0]], ["gather"]]
    maximum = ("max", (0,), {"axes": (1,), "keepdims": True})
    found = groups(maximum, ("gather", (3, 1), {"axis": 1}), inputs=LABELS)
    assert found == [["max"], ["gather"]], "a result of the row, which is no row itself"
    # an index is computed where it is used, but not the indices of whole slices
    found = groups(
        ("add", (1, 1), {}), ("take", (0, 2), {"axis": 0}), inputs=[Aval((9, 40), fb.float32), Aval((1 << 16,), fb.int64)]
    )
    assert found == [["add"], ["take"]]
    found = groups(("add", (1, 1), {}), ("take", (0, 2), {"axis": 0}), inputs=[Aval((9,), fb.float32), Aval((64,), fb.int64)])
    assert found == [["add", "take"]]


@every_width
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("length", [2, 9, 64, 1000])
def test_cross_entropy_and_its_gradient_are_one_kernel(length: int, kind: str, target: Target) -> None:
    rng = np.random.default_rng(length)
    x = (rng.normal(size=(37, length)) * 4).astype(fb.dtype(kind).np)
    at = rng.integers(-length, length, (37, 1))
    g = rng.normal(size=(37, 1)).astype(x.dtype)
    zero = np.zeros((), x.dtype)
    body = body_of(
        (x, at, g), ("constant", (), {"value": zero}), ("broadcast_to", (3,), {"shape": x.shape}),
        ("log_softmax", (0,), {"axis": 1}), ("gather", (5, 1), {"axis": 1}), ("scatter_add", (4, 1, 2), {"axis": 1}),
        ("exp", (5,), {}), ("sum", (7,), {"axes": (1,), "keepdims": True}), ("multiply", (8, 9), {}),
        ("subtract", (7, 10), {}), outputs=(6, 11),
    )  # fmt: skip
    kernel = Body(body, target)
    assert kernels_of(kernel.lowered) == ["rows"]
    loss, gradient = kernel(x, at, g)
    wide = x.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    scores = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    eps = float(fb.finfo(fb.dtype(kind)).eps)
    np.testing.assert_allclose(loss.astype(np.float64), np.take_along_axis(scores, at, 1), rtol=4 * eps, atol=8 * eps)
    want = -np.exp(scores) * g.astype(np.float64)
    want[np.arange(37), at[:, 0]] += g[:, 0].astype(np.float64)
    np.testing.assert_allclose(gradient.astype(np.float64), want, rtol=8 * eps, atol=8 * eps)
    bad = at.copy()
    bad[20] = length
    with pytest.raises(OutOfRangeError, match=r"\[-\d+, \d+\)"):
        kernel(x, bad, g)
    assert kernel(x, at, g)[1].tobytes() == gradient.tobytes()


# the public functions, compiled


def test_compiled_losses_and_embeddings_are_those_of_eager_runs() -> None:
    rng = np.random.default_rng(7)
    logits = fb.asarray(rng.normal(size=(64, 33)).astype(np.float32))
    labels = fb.asarray(rng.integers(0, 33, 64))
    some = fb.where(labels > 20, -1, labels)
    weight = fb.asarray(rng.uniform(0.5, 2, 33).astype(np.float32))
    table = fb.asarray(rng.normal(size=(33, 40)).astype(np.float32))
    cases = [
        lambda x: fb.cross_entropy(x, labels),
        lambda x: fb.cross_entropy(x, labels, weight, label_smoothing=0.1),
        lambda x: fb.cross_entropy(x, some, ignore_index=-1, reduction="sum"),
        lambda x: fb.nll_loss(x, labels, weight),
        lambda x: (fb.take(table, labels, axis=0) * fb.take(x, labels, axis=0)[:, :1]).sum(),
        lambda x: x[labels, labels % 7].sum(),
    ]
    for k, case in enumerate(cases):
        step = fb.value_and_grad(case)
        loss, gradient = step(logits)
        got, found = fb.jit(step)(logits)
        np.testing.assert_allclose(got.item(), loss.item(), rtol=2e-6, err_msg=str(k))
        np.testing.assert_allclose(found.numpy(), gradient.numpy(), rtol=2e-5, atol=1e-7, err_msg=str(k))


def test_wrong_labels_and_tokens_raise_in_compiled_programs_and_the_next_call_works() -> None:
    layer = fb.nn.Embedding(10, 4)
    x = fb.ones((4, 10))
    good, bad = fb.asarray([1, 2, 3, 9]), fb.asarray([1, 2, 30, 9])
    cases = [
        ("cross_entropy", fb.jit(lambda y: fb.cross_entropy(x, y))),
        ("Embedding", fb.jit(lambda y: layer(y))),
        ("take", fb.jit(lambda y: fb.take(x, y, axis=1))),
        ("x[key]", fb.jit(lambda y: x[y % 4, y])),
        ("take_along_axis", fb.jit(lambda y: fb.take_along_axis(x, y.reshape(4, 1), axis=1))),
    ]
    for name, program in cases:
        want = program(good).tolist()
        with pytest.raises(IndexError, match=re.escape(name)):
            program(bad).tolist()
        assert program(good).tolist() == want


def test_an_unsigned_index_beyond_all_signed_ones_is_outside() -> None:
    x, far = fb.ones((6, 3)), fb.asarray(np.array([0, 2**64 - 1], np.uint64))
    rows = fb.ones((2, 3))
    for program in (
        fb.jit(lambda at: fb.take(x, at, axis=0)),
        fb.jit(lambda at: fb.index_add(x, at, rows, axis=0)),
        fb.jit(lambda at: fb.take_along_axis(x, at.reshape(2, 1), axis=0)),
    ):
        with pytest.raises(OutOfRangeError):
            program(far).tolist()


def test_an_index_that_the_row_gives_is_used_in_its_kernel() -> None:
    x = np.random.default_rng(9).normal(size=(5, 7, 130)).astype(np.float32)
    x[2, 3, 50] = np.nan
    nodes = [("argmax", (0,), {"axis": 2, "keepdims": True}), ("gather", (0, 1), {"axis": 2}), ("negative", (2,), {})]
    body = Body(body_of((x,), *nodes, outputs=(1, 2, 3)))
    assert kernels_of(body.lowered) == ["rows"]
    at, best, negative = body(x)
    assert np.array_equal(at, np.argmax(x, 2, keepdims=True))
    assert np.array_equal(best, np.take_along_axis(x, at, 2), equal_nan=True)
    assert np.array_equal(negative, -best, equal_nan=True)
    made = fb.jit(lambda t: t - fb.take_along_axis(t, fb.argmax(t, axis=2, keepdims=True), axis=2))
    assert np.array_equal(made(fb.asarray(x)).numpy(), x - best, equal_nan=True)


@pytest.mark.parametrize("name", ["index_add", "take"])
def test_state_that_a_failing_step_would_have_overwritten_is_unharmed(name: str) -> None:
    count, table = fb.zeros((4,)), fb.ones((1000, 64))
    rows = fb.ones((5, 64))

    def step(at: fb.Tensor) -> None:
        count[...] = count + 1.0
        table[...] = fb.index_add(table, at, rows, axis=0) if name == "index_add" else table + fb.take(table, at, axis=0).sum()

    program = fb.jit(step)
    good, bad = fb.asarray([1, 2, 3, 4, 5]), fb.asarray([1, 2, 3, 4, 5000])
    program(good)
    before = (table * 1.0).numpy()  # memory that NumPy has seen is not donated
    with pytest.raises(IndexError, match=name):
        program(bad)
    assert count.tolist() == [1.0] * 4
    assert np.array_equal(table.numpy(), before)
    program(good)
    assert count.tolist() == [2.0] * 4
    assert not np.array_equal(table.numpy(), before)
