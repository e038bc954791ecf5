"""Kernels written by hand: the interpreter, the compiled kernel and NumPy agree, and arguments that do not fit are refused."""

from __future__ import annotations

import numpy as np
import pytest
from running_kernels import bits, both, compiled
from written_kernels import ITEM, WRITTEN, N, gather, saxpy, whole

from firebrick.compiler.kernel import ArrayParameter, Assign, Check, Fault, For, Function, If, Let, Store, While, interpret
from firebrick.core.errors import ExecutionError, LaunchError, OutOfRangeError
from firebrick.scalar.expr import const, local, ne

X, Y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "read_write")


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_kernel_computes_what_numpy_does(name: str) -> None:
    launch = WRITTEN[name]()
    found, fault = both(launch.function, launch.arrays, launch.scalars, launch.grid)
    assert fault is None
    for key, want in launch.want.items():
        if name == "exponentials":
            np.testing.assert_allclose(found[key], want, rtol=1e-15)
        else:
            assert np.array_equal(bits(found[key]), bits(want))


@pytest.mark.parametrize("name", WRITTEN)
def test_an_empty_grid_changes_nothing(name: str) -> None:
    launch = WRITTEN[name]()
    found, fault = both(launch.function, launch.arrays, launch.scalars, 0)
    assert fault is None
    assert all(np.array_equal(bits(found[k]), bits(launch.arrays[k])) for k in found)


def test_one_kernel_serves_every_size() -> None:
    f = saxpy().function
    for n in (1, 2, 63, 1000):
        x = np.arange(n, dtype=np.float32)
        found, _ = both(f, {"x": x, "y": x * 2}, {"a": 0.5}, n)
        assert np.array_equal(found["y"], x * 2.5)


def test_an_index_out_of_range_is_reported_and_clamped() -> None:
    launch = gather()
    launch.arrays["at"][[3, 8, 20]] = 10, -11, 99
    found, fault = both(launch.function, launch.arrays, launch.scalars, launch.grid)
    assert fault == Fault(site=7, payload=-11)
    assert np.array_equal(found["y"][[3, 8, 20]], launch.arrays["x"][[9, 0, 9]])
    assert compiled(launch.function, {k: v.copy() for k, v in launch.arrays.items()}, launch.scalars, launch.grid) == fault


def test_the_fault_that_is_kept_does_not_depend_on_the_order_of_items() -> None:
    checks = (Check(X[ITEM] < 10, 4, X[ITEM]), Check(X[ITEM] < 20, 2, -X[ITEM]))
    f = Function("checks", (X,), (), "i", checks)
    for order in ([5, 30, 25, 12], [12, 25, 30, 5]):
        assert interpret(f, {"x": np.array(order)}, {}, 4) == Fault(2, -30)
    assert interpret(f, {"x": np.array([5, 12])}, {}, 2) == Fault(4, 12)
    assert interpret(f, {"x": np.array([5, 9])}, {}, 2) is None


def test_a_counter_near_the_largest_number_does_not_wrap() -> None:
    top = (1 << 63) - 1
    total = Let("total", whole(0))
    for start, step in ((top - 3, 3), (top - 10, 4), (top - 2, 1), (-top - 1, top)):
        loop = For("j", whole(start), whole(top), step, (Assign("total", total.local + 1),))
        f = Function("counts", (Y,), (), "i", (total, loop, Store("y", ITEM, total.local)))
        found, _ = both(f, {"y": np.zeros(1, np.int64)}, {}, 1)
        assert found["y"][0] == len(range(start, top, step))


def test_bounds_of_a_loop_are_evaluated_once() -> None:
    stop = Let("stop", whole(4))
    loop = For("j", whole(0), stop.local, 1, (Assign("stop", whole(100)), Store("y", local("j", "int64"), stop.local)))
    f = Function("once", (Y,), (), "i", (stop, loop))
    found, _ = both(f, {"y": np.zeros(5, np.int64)}, {}, 1)
    assert found["y"].tolist() == [100, 100, 100, 100, 0]


def test_what_a_statement_reads_is_read_before_it_stores() -> None:
    swap = (Let("a", Y[whole(0)]), Store("y", whole(0), Y[whole(1)]), Store("y", whole(1), local("a", "int64")))
    found, _ = both(Function("swap", (Y,), (), "i", swap), {"y": np.array([3, 8])}, {}, 1)
    assert found["y"].tolist() == [8, 3]


def test_names_of_blocks_beside_each_other_are_apart() -> None:
    one = (Let("t", const(2.5, "float64")), Store("y", ITEM, whole(1)))
    other = (Let("t", whole(7)), Assign("t", local("t", "int64") + 1), Store("y", ITEM, local("t", "int64")))
    f = Function("apart", (Y,), (), "i", (If(ne(ITEM & 1, 0), one, other), Let("t", const(True, "bool"))))
    found, _ = both(f, {"y": np.zeros(4, np.int64)}, {}, 4)
    assert found["y"].tolist() == [8, 1, 8, 1]


def test_an_index_out_of_bounds_is_an_error_that_names_kernel_statement_and_item() -> None:
    for body, received in (
        ((If(ITEM > 1, (Store("y", ITEM, X[ITEM * 2]),)),), "item 2, in `y[i] = x[i * 2]`: index 4"),
        ((Store("y", ITEM - 1, ITEM),), "item 0, in `y[i - 1] = i`: index -1"),
    ):
        f = Function("beyond", (X, Y), (), "i", body)
        with pytest.raises(OutOfRangeError) as caught:
            interpret(f, {"x": np.arange(4), "y": np.arange(4)}, {}, 4)
        assert caught.value.expected.startswith("kernel beyond: an index of ")
        assert caught.value.expected.endswith(" is at least 0 and below 4")
        assert caught.value.received == received


@pytest.mark.parametrize(
    ("body", "received"),
    [
        ((Store("y", ITEM & 1, ITEM),), "item 0, in `y[i & 1] = i`: it stores to y[0], which item 2 accesses too"),
        ((Store("y", ITEM, ITEM), Let("t", Y[whole(1)])), "it reads y[1], which item 1 accesses too"),
        ((Let("t", Y[whole(1)]), Store("y", ITEM, ITEM)), "it stores to y[1], which several other items access too"),
        (
            (Let("t", Y[ITEM]), Store("y", 2 - ITEM, ITEM)),
            "in `y[2 - i] = i`: it stores to y[2], which item 2 accesses too",
        ),
        (
            (If(eq0 := (ITEM < 1), (Store("y", whole(0), ITEM),)), If(~eq0, (Store("y", whole(0), ITEM),))),
            "item 1, in `y[0] = i`: it stores to y[0], which item 0 accesses too",
        ),
    ],
)
def test_an_element_that_one_item_stores_and_another_accesses_is_an_error(body: tuple, received: str) -> None:
    f = Function("race", (Y,), (), "i", body)
    with pytest.raises(ExecutionError, match="an element that an item stores is accessed by that item alone") as caught:
        interpret(f, {"y": np.zeros(3, np.int64)}, {}, 3)
    assert received in caught.value.received


def test_items_may_read_one_element_and_store_their_own_more_than_once() -> None:
    body = (Store("y", ITEM, X[whole(0)]), Store("y", ITEM, Y[ITEM] + X[whole(0)]))
    found, _ = both(Function("fine", (X, Y), (), "i", body), {"x": np.array([4]), "y": np.zeros(3, np.int64)}, {}, 3)
    assert found["y"].tolist() == [8, 8, 8]


def test_an_endless_loop_is_an_error_of_the_interpreter() -> None:
    f = Function("endless", (), (), "i", (While(const(True, "bool"), ()),))
    with pytest.raises(ExecutionError, match="a loop ends after at most 50 rounds") as caught:
        interpret(f, {}, {}, 3, limit=50)
    assert "item 0, in `while True:`" in caught.value.received


def test_arguments_that_do_not_fit_are_refused() -> None:
    f = Function("fits", (X, Y), (N,), "i", (Store("y", ITEM, X[ITEM] + N.value),))
    good = {"x": np.zeros(4, np.int64), "y": np.zeros(4, np.int64)}
    readonly = np.zeros(4, np.int64)
    readonly.flags.writeable = False
    fixed = Function("fixed", (ArrayParameter("x", "int64", extent=3),), (), "i", ())
    for function, arrays, scalars, grid, text in (
        (f, {"x": good["x"]}, {"n": 1}, 4, "its arrays are x, y\nReceived: x."),
        (f, good, {}, 4, "its scalars are n\nReceived: none."),
        (f, good | {"x": np.zeros(4, np.int32)}, {"n": 1}, 4, "x: read int64[]\nReceived: int32[4], contiguous."),
        (f, good | {"x": np.zeros((2, 2), np.int64)}, {"n": 1}, 4, "Received: int64[2, 2], contiguous."),
        (f, good | {"x": np.zeros(8, np.int64)[::2]}, {"n": 1}, 4, "Received: int64[4], not contiguous."),
        (f, good | {"y": readonly}, {"n": 1}, 4, "Received: int64[4], contiguous, read-only."),
        (fixed, {"x": np.zeros(4, np.int64)}, {}, 4, "x: read int64[3]\nReceived: int64[4]"),
        (f, good, {"n": 1.5}, 4, "n is int64\nReceived: 1.5."),
        (f, good, {"n": 1 << 63}, 4, "n is int64\nReceived: 9223372036854775808."),
        (f, good, {"n": 1}, -1, "its grid is a number of items\nReceived: -1."),
    ):
        with pytest.raises(LaunchError) as caught:
            interpret(function, arrays, scalars, grid)
        assert text in str(caught.value)
