"""Faults: the same one is reported by every order of the work, on any number of threads, and by every reading of a kernel."""

from __future__ import annotations

import ctypes
import re
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of
from naive_forms import run_naive
from native_kernels import SITES, widths
from running_kernels import compiled
from threads_on_cpu import threads
from written_kernels import ITEM

from firebrick.backends.cpu.runtime.pool import Pool
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.kernel import ArrayParameter, Check, Function
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.evaluate import interpret, outcome
from firebrick.compiler.spec.faults import LARGEST_INDEX, LARGEST_SITE, Site, first_fault, found, table
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.llvm.emit import REPORT, report_function
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.scalar_kernel import cpu_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import OutOfRangeError
from firebrick.ir import Graph

Array = np.ndarray[Any, Any]
EXTREMES = [LARGEST_INDEX, LARGEST_INDEX - 1, -(2**63), -(2**63) + 1, -1, 0, 7, 2**32, -(2**32) - 1]
X = ArrayParameter("x", "int64")
TWO = Function("two", (X,), (), "i", (Check(X[ITEM] < 100, 2, X[ITEM]), Check(X[ITEM] >= -100, 5, X[ITEM])))
"""Two checks: site 2 reports numbers of at least 100, site 5 those below -100."""

every_width = pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))


# the table


def test_a_table_without_a_fault_is_zero_and_holds_none() -> None:
    words = table(3)
    assert not words.any()
    assert words.dtype == np.uint32
    assert words.size == 2 + 2 * 3
    assert words.ctypes.data % 8 == 0
    assert found(words) is None


@pytest.mark.parametrize("index", EXTREMES)
@pytest.mark.parametrize("site", [0, 2])
def test_every_index_is_read_from_a_table_as_it_was_written(index: int, site: int) -> None:
    """A kernel that reports every element: the payload has all 64 bits."""
    f = Function("every", (X,), (), "i", (Check(X[ITEM] < X[ITEM], site, X[ITEM]),))
    assert compiled(f, {"x": np.array([index])}, {}, 1) == Fault(site, index)
    words = table(SITES)
    words[0] = LARGEST_SITE - site
    key = (LARGEST_INDEX - index) % 2**64
    words[2 + 2 * site], words[3 + 2 * site] = key % 2**32, key >> 32
    assert found(words) == Fault(site, index)


def test_the_smallest_site_comes_first_and_then_the_smallest_index() -> None:
    faults = [Fault(1, 9), Fault(0, 30), None, Fault(0, -4), Fault(2, -99)]
    assert first_fault(*faults) == Fault(0, -4)
    assert first_fault(None, None) is None
    assert first_fault() is None


def test_an_error_shows_the_index_the_line_and_the_axis() -> None:
    e = Site("take", 5, "model.py:12").error(7)
    assert isinstance(e, IndexError)
    assert str(e).splitlines()[:2] == ["take: indices must lie in [-5, 5)", "Received: 7, at model.py:12."]
    assert e.context == {"op": "take", "index": 7}
    assert "Received: -6." in str(Site("take", 5).error(-6))
    assert f"Received: {LARGEST_INDEX} or more, at a.py:1." in str(Site("take", 5, "a.py:1").error(LARGEST_INDEX))


# the order of the work


def pieces(function: Function, x: Array, order: tuple[int, ...], text: str = "") -> Fault | None:
    """The fault of a kernel whose items are run one at a time, in an order."""
    target = Target.host()
    kernel = cpu_kernel(function, target)
    module = compile_ir(text or module_text([kernel]), target)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    run = module.function(kernel.name, None, pointer, number, number, pointer, pointer)
    buffers, words = (pointer * 1)(x.ctypes.data), table(SITES)
    for i in order:
        run(buffers, i, i + 1, None, words.ctypes.data)
    return found(words)


def test_no_order_of_the_items_changes_the_fault() -> None:
    x = np.array([-101, 300, 5, 200, -500])
    orders = list(permutations(range(x.size)))
    assert {pieces(TWO, x, order) for order in orders} == {Fault(2, 200)}
    # of a table that keeps the last fault, the order decides: the check above can fail
    kernel = re.sub(f"declare .*@{REPORT}.*", "", module_text([cpu_kernel(TWO, Target.host())]))
    report = report_function(Target.host()).replace("weak_odr", "internal")
    for last in (re.sub("umax (.*) i64", r"xchg \1 i64", report), re.sub("umax (.*) i32", r"xchg \1 i32", report)):
        assert last != report
        assert len({pieces(TWO, x, order, last + kernel) for order in orders[::7]}) > 1


def test_threads_of_a_gpu_report_the_same_fault_under_the_number_of_their_launch() -> None:
    x = np.array([-101, 300, 5, 200, -500])
    for order in list(permutations(range(x.size)))[::13]:
        assert threads(TWO, {"x": x[list(order)]}, {}, x.size, 2, first=40) == Fault(42, 200)
    assert threads(TWO, {"x": x[[0, 2, 4]]}, {}, 3, 2, first=3) == Fault(8, -500)


# readings of one specification

MAP_OF_TWO = (("take", (0, 2), {"axis": 0}), ("take", (1, 3), {"axis": 0}), ("add", (4, 5), {}))


def drawn(rng: np.random.Generator, size: int, shape: tuple[int, ...], wrong: int, kind: str = "int64") -> Array:
    """Indices into ``size`` elements, some of them out of range."""
    low = 0 if kind.startswith("u") else -size
    at = rng.integers(low, size, shape).astype(kind)
    bad = [size, size + 3, 2 * size + 1] + ([] if kind.startswith("u") else [-size - 1, -2 * size - 1])
    bad = [b for b in bad if np.iinfo(kind).min <= b <= np.iinfo(kind).max]
    for _ in range(wrong):
        at.reshape(-1)[rng.integers(at.size)] = rng.choice(bad)
    return at


def bodies(seed: int, wrong: int) -> list[tuple[Graph, tuple[Array, ...]]]:
    """Groups with one check or two, and their operands."""
    rng = np.random.default_rng([seed, wrong])

    def x(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    def one(name: str, arrays: tuple[Array, ...], **params: Any) -> tuple[Graph, tuple[Array, ...]]:
        return body_of(arrays, (name, tuple(range(len(arrays))), params)), arrays

    two = x(19), x(23), drawn(rng, 19, (77,), wrong), drawn(rng, 23, (77,), wrong, "int32")
    of = x(4, 9), drawn(rng, 9, (4, 1), wrong)
    return [
        (body_of(two, *MAP_OF_TWO), two),
        (body_of(of, ("softmax", (0,), {"axis": 1}), ("gather", (2, 1), {"axis": 1}), outputs=(2, 3)), of),
        one("take", (x(11, 37), drawn(rng, 11, (9,), wrong)), axis=0),
        one("take", (x(3, 11), drawn(rng, 11, (40,), wrong, "int8")), axis=1),
        one("gather", (x(4, 11), drawn(rng, 11, (4, 33), wrong, "uint8")), axis=1),
        one("ravel_index", (drawn(rng, 10, (50,), wrong),), sizes=(10,), strides=(3,), offset=1),
        one("scatter_add", (x(5, 10), drawn(rng, 10, (5, 4), wrong), x(5, 4)), axis=1),
        one("scatter", (x(10, 40), drawn(rng, 10, (3, 40), wrong), x(3, 40)), axis=0),
        one("index_add", (x(10, 7), drawn(rng, 10, (20,), wrong), x(20, 7)), axis=0),
    ]


def native_fault(body: Graph, arrays: tuple[Array, ...], target: Target, pool: Pool) -> tuple[list[Array], Fault | None]:
    """The results of a group's kernels, and the fault that they report; then the results are not complete."""
    made = Body(body, target)
    try:
        return made(*arrays, pool=pool), None
    except OutOfRangeError as e:
        fault = found(pool.caller().faults)
        return [], fault if fault is not None and fault.payload == e.context["index"] else None


@every_width
@pytest.mark.parametrize("wrong", [0, 1, 2, 9])
def test_kernels_interpreters_and_naive_forms_report_one_fault(wrong: int, target: Target) -> None:
    crew, seen = Pool(2), set()
    for body, arrays in bodies(3, wrong):
        spec, avals = spec_of(body), [body.avals[v] for v in body.outputs]
        sizes, dtypes = [a.size for a in avals], [a.dtype.name for a in avals]
        outs, fault = outcome(spec, arrays, sizes, dtypes)
        seen.add(fault)
        for native in (True, False):
            clamped, other = run_naive(naive(spec), arrays, avals, native)
            assert other == fault, body
            for x, y in zip(clamped, outs, strict=True):
                np.testing.assert_allclose(x.reshape(-1), y, rtol=1e-5, atol=1e-6)
        results, other = native_fault(body, arrays, target, crew)
        assert other == fault, body
        for x, y in zip(results, outs, strict=fault is None):
            np.testing.assert_allclose(x.reshape(-1), y, rtol=1e-5, atol=1e-6)
        if fault is not None:
            with pytest.raises(OutOfRangeError, match=rf"Received: {fault.payload}\b"):
                interpret(spec, arrays, sizes, dtypes)
    crew.close()
    assert (seen == {None}) == (wrong == 0)


def test_an_index_that_depends_on_an_element_found_by_another_has_the_larger_site() -> None:
    x, at, first = np.arange(5.0), np.array([3, 80, 1]), np.array([0, 1, -4])
    body = body_of((x, at, first), ("take", (1, 2), {"axis": 0}), ("take", (0, 3), {"axis": 0}))
    spec = spec_of(body)
    assert [s.size for s in spec.sites] == [3, 5]
    assert outcome(spec, (x, at, first), [3], ["float64"])[1] == Fault(0, -4)
    first[2] = 2
    assert outcome(spec, (x, at, first), [3], ["float64"])[1] == Fault(1, 80)


@pytest.mark.parametrize("count", [3, 70])
def test_a_kernel_may_have_any_number_of_checks(count: int) -> None:
    """More than the first table of a thread has payloads for."""
    arrays = [np.zeros(4), *(np.zeros(size) for size in range(5, 5 + count)), np.array([0, 1, 2, 3])]
    nodes, total, at = [], 0, count + 1
    for k in range(count):
        nodes += [("take", (1 + k, at), {"axis": 0}), ("add", (total, at + 1 + 2 * k), {})]
        total = at + 2 + 2 * k
    made = Body(body_of(arrays, *nodes))
    assert len(made.segment.launches) == 1
    crew = Pool(1)
    made(*arrays, pool=crew)
    for size in (5 + count - 1, 5 + count // 2):
        arrays[-1][2] = size  # out of range for all axes that are not longer
        with pytest.raises(OutOfRangeError, match=rf"\[-5, 5\)\nReceived: {size}\."):
            made(*arrays, pool=crew)
    arrays[-1][2] = -(5 + count)
    with pytest.raises(OutOfRangeError, match=rf"\[-5, 5\)\nReceived: {-5 - count}\."):
        made(*arrays, pool=crew)
    assert crew.caller().sites >= count
    arrays[-1][2] = 0
    made(*arrays, pool=crew)
    crew.close()


def test_a_fault_is_forgotten_with_its_run() -> None:
    """The index of an earlier run is smaller, and was at the same site."""
    x, at = np.zeros(9), np.zeros(5, np.int64)
    made, crew = Body(body_of((x, at), ("take", (0, 1), {"axis": 0}))), Pool(1)
    for wrong in (-100, 12, -10, 2**40):
        at[3] = wrong
        with pytest.raises(OutOfRangeError, match=rf"Received: {wrong}\."):
            made(x, at, pool=crew)
        at[3] = 1
        made(x, at, pool=crew)
    crew.close()


# threads


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_any_number_of_threads_reports_the_same_fault_every_time(workers: int) -> None:
    rng = np.random.default_rng(5)
    count = 1 << 17
    x, y, i, j = rng.normal(size=300), rng.normal(size=400), rng.integers(0, 300, count), rng.integers(0, 400, count)
    i[rng.integers(0, count, 4000)] = 301 + rng.integers(0, 1 << 20, 4000)
    j[rng.integers(0, count, 4000)] = -401 - rng.integers(0, 1 << 20, 4000)
    made = Body(body_of((x, y, i, j), *MAP_OF_TWO))
    launches = [type(a)(a.kernel, a.buffers, a.grid, 1, a.scratch, a.cost_us, a.sites) for a in made.segment.launches]
    made.segment = Segment(launches, made.segment.modules)
    assert made.segment.parallel
    crew, told = Pool(workers), set()
    for _ in range(60):
        with pytest.raises(OutOfRangeError) as e:
            made(x, y, i, j, pool=crew)
        told.add(str(e.value))
    crew.close()
    assert {t.splitlines()[1] for t in told} == {f"Received: {i[i >= 300].min()}."}
    assert len(told) == 1
