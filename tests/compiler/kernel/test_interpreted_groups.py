"""The interpreter on kernels of groups: NumPy's results in every order, and each planted mistake found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from written_groups import GROUPS, MEET, ROW, bitonic_sort, histogram, prefix_sums, tiled_product
from written_kernels import ITEM, Launch, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    Fault,
    For,
    Function,
    If,
    Let,
    SharedArray,
    Shuffle,
    Statement,
    Store,
    While,
    interpret,
)
from firebrick.compiler.kernel.ir import BLOCKS, statements
from firebrick.core.errors import ExecutionError, FirebrickError, KernelCompileError, LaunchError, OutOfRangeError
from firebrick.scalar.expr import Expr, cast, eq, local

X, Y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "read_write")
S = SharedArray("s", "int64", 8)
ONE = whole(1)


def run(launch: Launch, **how: object) -> dict[str, np.ndarray]:
    memory = {name: x.copy() for name, x in launch.arrays.items()}
    assert interpret(launch.function, memory, launch.scalars, launch.grid, **how) is None
    return memory


@pytest.mark.parametrize("name", GROUPS)
def test_a_written_kernel_of_groups_computes_what_numpy_does_in_every_order(name: str) -> None:
    launch = GROUPS[name]()
    for checked in (True, False):
        for seed in (None, *range(20)):
            memory = run(launch, checked=checked, seed=seed)
            for key, want in launch.want.items():
                np.testing.assert_array_equal(memory[key], want, f"{checked=} {seed=}")


@pytest.mark.parametrize("name", GROUPS)
def test_an_empty_grid_of_groups_changes_nothing(name: str) -> None:
    launch = GROUPS[name]()
    empty = replace(launch, grid=(0, *launch.grid[1:]))
    for checked in (True, False):
        for seed in (None, 1):
            memory = run(empty, checked=checked, seed=seed)
            assert all(np.array_equal(memory[k], launch.arrays[k]) for k in memory)


# planted mistakes


def changed(body: tuple[Statement, ...], change: Callable[[Statement], Statement | None]) -> tuple[Statement, ...]:
    """A body with each statement as ``change`` makes it, or without it."""
    out = []
    for s in body:
        blocks = {field: changed(getattr(s, field), change) for field in BLOCKS.get(type(s), ())}
        new = change(replace(s, **blocks) if blocks else s)
        out += [] if new is None else [new]
    return tuple(out)


@pytest.mark.parametrize("make", [prefix_sums, bitonic_sort, histogram, tiled_product])
def test_each_missing_barrier_is_found_in_every_order(make: Callable[[], Launch]) -> None:
    launch = make()
    count = sum(isinstance(s, Barrier) for s in statements(launch.function.body))
    assert count >= 2
    for k in range(count):
        left = iter(range(count))
        body = changed(launch.function.body, lambda s, left=left, k=k: None if s == MEET and next(left) == k else s)
        hasty = replace(launch, function=replace(launch.function, body=body))
        for seed in (None, 0, 1, 2):
            with pytest.raises(ExecutionError, match=r"with a barrier between|either by atomics or plainly"):
                run(hasty, seed=seed)


def grouped(*body: Statement, arrays: tuple[ArrayParameter, ...] = (X, Y)) -> Function:
    return Function("k", arrays, (), "i", body, ("r",), 8, (S,))


def fails(
    function: Function, kind: type[FirebrickError], seed: int | None = None, grid: tuple[int, ...] = (3, 8)
) -> FirebrickError:
    arrays = {a.name: np.arange(24, dtype=a.dtype) for a in function.arrays}
    with pytest.raises(kind) as caught:
        interpret(function, arrays, {}, grid, seed=seed)
    return caught.value


AT = ROW * 8 + ITEM
LINE = "model.py:7"
ALONE = (
    "kernel k: an element that an item stores is accessed by that item alone, or by others of its group with a barrier between"
)


@pytest.mark.parametrize(
    ("body", "received"),
    [
        # two items of a group
        (
            (Store("y", ROW * 8 + (ITEM & 3), ITEM, line=LINE),),
            "item (0, 0), in `y[(r * 8) + (i & 3)] = i` at model.py:7: it stores to y[0], which item (0, 4) accesses too",
        ),
        (
            (Store("s", ITEM, ITEM), Let("t", S[(ITEM + 1) & 7], line=LINE)),
            "item (0, 0), in `let t: int64 = s[(i + 1) & 7]` at model.py:7: it reads s[1], which item (0, 1) accesses too",
        ),
        (
            (Store("s", ITEM, ITEM), MEET, Let("t", S[whole(5)]), Store("s", ITEM, ONE)),
            "item (0, 5), in `s[i] = 1`: it stores to s[5], which several other items access too",
        ),
        (
            (Store("s", ITEM, ITEM), MEET, Let("t", S[7 - ITEM]), If(ITEM < 3, (Store("s", ITEM, ONE),))),
            "item (0, 0), in `s[i] = 1`: it stores to s[0], which item (0, 7) accesses too",
        ),
        # items of different groups: a barrier does not help
        (
            (Store("y", ITEM, ITEM),),
            "item (0, 0), in `y[i] = i`: it stores to y[0], which item (2, 0) accesses too",
        ),
        (
            (Store("y", AT, ITEM), MEET, Let("t", Y[(AT + 8) & 15])),
            "item (0, 0), in `let t: int64 = y[(((r * 8) + i) + 8) & 15]`: it reads y[8], which item (1, 0) accesses too",
        ),
        (
            (Let("t", Y[ITEM]), MEET, If(eq(ROW, 2), (Store("y", ITEM, ONE),))),
            "item (2, 0), in `y[i] = 1`: it stores to y[0], which several other items access too",
        ),
        (
            (If(eq(ROW, 0), (Let("t", Y[ITEM]),)), MEET, If(eq(ROW, 2), (Store("y", ITEM, ONE),))),
            "item (2, 0), in `y[i] = 1`: it stores to y[0], which item (0, 0) accesses too",
        ),
        # atomics beside plain accesses, in groups that do not meet
        (
            (If(eq(ROW, 0), (Store("y", whole(0), ONE),)), MEET, Atomic("add", "y", ITEM, ONE)),
            "item (0, 0), in `y[0] = 1`: it stores to y[0], which item (0, 7) accesses too",
        ),
        (
            (Atomic("add", "y", ITEM, ONE), MEET, Store("y", AT, ONE, line=LINE)),
            "item (0, 0), in `y[(r * 8) + i] = 1` at model.py:7: it stores to y[0], which several other items access too",
        ),
        (
            (Store("y", AT, ONE), MEET, Atomic("add", "y", ITEM, ONE)),
            "item (1, 0), in `atomic add y[i], 1`: it updates y[0], which item (0, 0) accesses too",
        ),
        (
            (Let("t", Y[AT]), MEET, CompareExchange("u", "y", ITEM, ONE, ONE)),
            "item (1, 0), in `let u = atomic exchange y[i], 1 -> 1`: it updates y[0], which item (0, 0) accesses too",
        ),
    ],
)  # fmt: skip
def test_a_race_is_reported_with_line_item_and_index(body: tuple[Statement, ...], received: str) -> None:
    error = fails(grouped(*body), ExecutionError)
    assert error.expected == ALONE
    assert error.received == received
    assert error.context["indices"] == error.received[5:11]
    assert error.context.get("line", "") == (LINE if LINE in received else "")
    for seed in range(5):  # whatever the order, some item meets another
        assert fails(grouped(*body), ExecutionError, seed).expected == ALONE


@pytest.mark.parametrize(
    ("body", "received"),
    [
        ((Let("t", X[AT + 1], line=LINE),), "item (2, 7), in `let t: int64 = x[((r * 8) + i) + 1]` at model.py:7: index 24"),
        ((Store("s", ITEM + 1, ONE),), "item (0, 7), in `s[i + 1] = 1`: index 8"),
        ((Store("s", ITEM, ONE), MEET, Let("t", S[ITEM - 1])), "item (0, 0), in `let t: int64 = s[i - 1]`: index -1"),
        ((Atomic("add", "s", ITEM * 2, ONE),), "item (0, 4), in `atomic add s[i * 2], 1`: index 8"),
        ((CompareExchange("t", "y", AT * 2, ONE, ONE),), "item (1, 4), in `let t = atomic exchange y[((r * 8) + i) * 2], "),
        (
            (For("j", whole(0), ITEM + 1, 1, (Store("s", local("j", "int64") + 1, ONE),)),),
            "item (0, 7), in `s[j + 1] = 1`: index 8",
        ),
    ],
)
def test_a_bound_that_is_off_by_one_is_reported_with_line_item_and_index(body: tuple[Statement, ...], received: str) -> None:
    if isinstance(body[0], For):  # only the item that goes too far stores
        body = (If(eq(ITEM, 7), body),)
    error = fails(grouped(*body), OutOfRangeError)
    assert error.received.startswith(received)
    for seed in range(5):
        fails(grouped(*body), OutOfRangeError, seed)


@pytest.mark.parametrize(
    ("body", "received"),
    [
        (
            (Let("t", S[ITEM], line=LINE),),
            "item (0, 0), in `let t: int64 = s[i]` at model.py:7: s[0], which no item of the group",
        ),
        (
            (If(ITEM < 6, (Store("s", ITEM, ONE),)), MEET, Let("t", S[7 - ITEM])),
            "item (0, 0), in `let t: int64 = s[7 - i]`: s[7]",
        ),
        ((If(eq(ROW, 0), (Store("s", ITEM, ONE),)), MEET, Let("t", S[ITEM])), "item (1, 0), in `let t: int64 = s[i]`: s[0]"),
        ((Atomic("add", "s", ITEM, ONE),), "item (0, 0), in `atomic add s[i], 1`: s[0]"),
        ((Atomic("exchange", "s", ITEM, ONE, "t"),), "item (0, 0), in `let t = atomic exchange s[i], 1`: s[0]"),
        ((CompareExchange("t", "s", ITEM, ONE, ONE),), "item (0, 0), in `let t = atomic exchange s[i], 1 -> 1`: s[0]"),
    ],
)
def test_a_shared_element_that_was_not_stored_is_not_read(body: tuple[Statement, ...], received: str) -> None:
    error = fails(grouped(*body), ExecutionError)
    assert error.expected == "kernel k: an element that has no value is stored before it is read"
    assert error.received.startswith(received)
    for seed in range(5):
        fails(grouped(*body), ExecutionError, seed)


def test_an_element_that_is_stored_by_an_exchange_may_be_read() -> None:
    body = (Atomic("exchange", "s", ITEM, AT), MEET, Store("y", AT, S[7 - ITEM]))
    for checked in (True, False):
        y = np.zeros(24, np.int64)
        interpret(grouped(*body), {"x": y.copy(), "y": y}, {}, (3, 8), checked=checked)
        assert np.array_equal(y, np.arange(24).reshape(3, 8)[:, ::-1].ravel())


def test_an_element_of_an_array_without_values_is_not_read_before_it_is_stored() -> None:
    body = (If(ITEM < 3, (Store("y", ITEM, ITEM),)), Let("t", Y[ITEM], line=LINE))
    f = Function("k", (Y,), (), "i", body)
    interpret(f, {"y": np.zeros(4, np.int64)}, {}, 4)
    interpret(f, {"y": np.zeros(4, np.int64)}, {}, 3, unset={"y"})
    for seed in (None, 0, 1):
        with pytest.raises(ExecutionError, match="an element that has no value is stored before it is read") as caught:
            interpret(f, {"y": np.zeros(4, np.int64)}, {}, 4, unset={"y"}, seed=seed)
        assert caught.value.received == "item 3, in `let t: int64 = y[i]` at model.py:7: y[3], which no item has stored"


def test_a_race_is_found_when_an_array_is_passed_twice() -> None:
    f = Function("k", (X, Y), (), "i", (Store("y", ITEM, X[3 - ITEM]),))
    memory = np.arange(4)
    interpret(f, {"x": memory.copy(), "y": memory}, {}, 4)
    for seed in (None, 0, 1):
        with pytest.raises(ExecutionError, match="an element that an item stores is accessed by that item alone"):
            interpret(f, {"x": memory, "y": memory}, {}, 4, seed=seed)
    own = Function("k", (X, Y), (), "i", (Store("y", ITEM, X[ITEM] * 2),))
    interpret(own, {"x": memory, "y": memory}, {}, 4)


def test_barriers_and_shuffles_that_not_all_items_execute_are_refused_before_they_run() -> None:
    for inner in (MEET, Shuffle("t", ITEM, ITEM, 4)):
        for body in (
            (If(ITEM < 4, (inner,)),),
            (Let("n", ITEM), While(local("n", "int64") > 0, (inner, Assign("n", local("n", "int64") - 1)))),
            (For("j", whole(0), X[ITEM], 1, (inner,)),),
        ):
            error = fails(grouped(*body), KernelCompileError)
            assert "all items of a group execute a" in error.expected


def test_atomics_beside_plain_accesses_are_refused_before_they_run() -> None:
    for body in (
        (Atomic("add", "y", ITEM, ONE), Let("t", Y[ITEM])),
        (Store("s", ITEM, ONE), Atomic("add", "s", whole(0), ONE)),
    ):
        assert "either by atomics or plainly" in fails(grouped(*body), KernelCompileError).expected


def test_a_wrong_mask_after_a_loop_is_found_by_an_element_that_another_item_stores() -> None:
    """The first item of each pair goes on after the loop for both; an inverted condition lets both items store."""
    n = Let("n", ITEM & 1)
    loop = While(n.local > 0, (Assign("n", n.local - 1),))
    right = (n, loop, If(eq(ITEM & 1, 0), (Store("y", ROW * 8 + (ITEM >> 1), ITEM),)))
    y = np.zeros(24, np.int64)
    interpret(grouped(*right), {"x": y.copy(), "y": y}, {}, (3, 8))
    wrong = (n, loop, If(eq(n.local, 0), (Store("y", ROW * 8 + (ITEM >> 1), ITEM),)))
    assert "it stores to y[0], which item (0, 1) accesses too" in fails(grouped(*wrong), ExecutionError).received


def test_the_values_of_items_that_left_a_loop_stay() -> None:
    n, total = Let("n", X[AT]), Let("total", whole(0))
    odd = If(eq(n.local & 1, 1), (Assign("total", total.local + n.local), Let("u", n.local)), (Let("u", whole(0)),))
    inner = For("j", whole(0), n.local, 2, (Assign("total", total.local + 100),))
    body = (n, total, While(n.local > 2, (odd, inner, Assign("n", n.local - 3))), Store("y", AT, total.local * 1000 + n.local))
    xs = np.random.default_rng(0).permutation(24)

    def one(n: int) -> int:
        total = 0
        while n > 2:
            total += (n if n & 1 else 0) + 100 * len(range(0, n, 2))
            n -= 3
        return total * 1000 + n

    for checked in (True, False):
        for seed in (None, 4):
            y = np.zeros(24, np.int64)
            interpret(grouped(*body), {"x": xs, "y": y}, {}, (3, 8), checked=checked, seed=seed)
            assert y.tolist() == [one(int(v)) for v in xs]


# atomic operations and orders

OPS = {
    "add": lambda a, b: a + b, "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "exchange": lambda a, b: b,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "float32", "float64"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("places", [1, 5, 1000])
def test_an_atomic_operation_finds_what_those_before_it_left(op: str, dtype: str, places: int) -> None:
    if "float" in dtype and op in ("and", "or", "xor"):
        return
    x, at, y = ArrayParameter("x", dtype), ArrayParameter("at", "int64"), ArrayParameter("y", dtype, "read_write")
    old, out = local("old", dtype), ArrayParameter("out", dtype, "write")
    rng = np.random.default_rng(places)
    raw = rng.integers(0, 1 << 63, 300, np.int64).astype(dtype)
    xs = (rng.normal(size=300) * 8.0 ** rng.integers(-9, 9, 300)).astype(dtype) if "float" in dtype else raw
    indices = rng.integers(0, places, 300)
    with np.errstate(over="ignore"):
        want, found = np.ones(places, dtype), np.zeros(300, dtype)
        for k in range(300):
            found[k] = want[indices[k]]
            want[indices[k]] = OPS[op](want[indices[k]], xs[k])
    for body in ((Atomic(op, "y", at[ITEM], x[ITEM]),), (Atomic(op, "y", at[ITEM], x[ITEM], "old"), Store("out", ITEM, old))):
        for checked in (True, False):
            arrays = {"x": xs, "at": indices, "y": np.ones(places, dtype), "out": np.zeros(300, dtype)}
            interpret(Function("k", (x, at, y, out), (), "i", body), arrays, {}, 300, checked=checked)
            assert np.array_equal(arrays["y"], want)
            assert len(body) == 1 or np.array_equal(arrays["out"], found)


@pytest.mark.parametrize("places", [1, 7, 1000])
def test_a_compare_exchange_finds_what_those_before_it_left(places: int) -> None:
    x, at, y = ArrayParameter("x", "int32"), ArrayParameter("at", "int64"), ArrayParameter("y", "int32", "read_write")
    out = ArrayParameter("out", "int32", "write")
    rng = np.random.default_rng(places)
    xs, indices = rng.integers(0, 3, 300, np.int32), rng.integers(0, places, 300)
    want, found = np.zeros(places, np.int32), np.zeros(300, np.int32)
    for k in range(300):
        found[k] = want[indices[k]]
        if found[k] == xs[k]:
            want[indices[k]] = (xs[k] + 1) % 3
    new = cast((cast(x[ITEM], "int64") + 1) & 3, "int32")
    new = new - cast(eq(new, 3), "int32") * 3
    body = (CompareExchange("old", "y", at[ITEM], x[ITEM], new), Store("out", ITEM, local("old", "int32")))
    for checked in (True, False):
        arrays = {"x": xs, "at": indices, "y": np.zeros(places, np.int32), "out": np.zeros(300, np.int32)}
        interpret(Function("k", (x, at, y, out), (), "i", body), arrays, {}, 300, checked=checked)
        assert np.array_equal(arrays["y"], want)
        assert np.array_equal(arrays["out"], found)


def test_a_seed_draws_an_order_of_atomic_operations_and_gives_it_again() -> None:
    ticket = (Atomic("add", "y", whole(0), ONE, "t"), Store("x", ITEM, local("t", "int64")))
    f = Function("tickets", (replace(X, access="write"), Y), (), "i", ticket)

    def tickets(seed: int | None, checked: bool) -> list[int]:
        x = np.zeros(50, np.int64)
        interpret(f, {"x": x, "y": np.zeros(1, np.int64)}, {}, 50, checked=checked, seed=seed)
        assert sorted(x) == list(range(50))
        return x.tolist()

    for checked in (True, False):
        assert tickets(None, checked) == list(range(50))
        drawn = [tickets(seed, checked) for seed in range(5)]
        assert len({tuple(d) for d in drawn}) == 5
        assert drawn == [tickets(seed, checked) for seed in range(5)]


def test_without_checks_an_index_out_of_range_accesses_the_nearest_element_and_no_other_memory() -> None:
    body = (
        Store("s", ITEM * 3, X[AT - 100]), MEET, Store("y", AT + 90, S[ITEM - 30]), Atomic("exchange", "z", ITEM - 4, whole(7)),
    )  # fmt: skip
    f = grouped(*body, arrays=(X, Y, ArrayParameter("z", "int64", "read_write")))
    for seed in (None, 3):
        around = np.zeros(30, np.int64)
        arrays = {"x": np.arange(5, 29), "y": around[3:27], "z": np.zeros(2, np.int64)}
        interpret(f, arrays, {}, (3, 8), checked=False, seed=seed)
        assert np.flatnonzero(around).tolist() == [26]
        assert around[26] == 5
        assert arrays["z"].tolist() == [7, 7]
        empty = {"x": np.zeros(0, np.int64), "y": np.zeros(0, np.int64), "z": np.zeros(0, np.int64)}
        interpret(f, empty, {}, (3, 8), checked=False, seed=seed)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_the_same_with_checks_and_without(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, y, s = ArrayParameter("x", dtype), ArrayParameter("y", dtype, "write"), SharedArray("s", dtype, 256)
    at = ROW * 256 + ITEM
    f = Function(
        "k", (x, y), (), "i", (Store("s", ITEM, x[at] * 1.5), MEET, Store("y", at, s[255 - ITEM] * 0.3)), ("r",), 256, (s,)
    )
    xs = np.arange(1 << 16, dtype=np.uint16).view(kind)
    found = []
    for checked in (True, False):
        y_ = np.zeros_like(xs)
        interpret(f, {"x": xs, "y": y_}, {}, (256, 256), checked=checked)
        found.append(y_.astype(np.float32))
    assert np.array_equal(found[0], found[1], equal_nan=True)


def test_the_fault_of_groups_has_the_smallest_site_and_payload_in_every_order() -> None:
    f = grouped(Check(AT < 20, 4, AT), Check(AT < 9, 2, -AT), Check(AT < 24, 1, AT))
    for checked in (True, False):
        for seed in (None, 0, 1):
            arrays = {"x": np.zeros(24, np.int64), "y": np.zeros(24, np.int64)}
            assert interpret(f, arrays, {}, (3, 8), checked=checked, seed=seed) == Fault(2, -23)


def test_an_endless_loop_of_one_item_is_an_error_with_its_indices() -> None:
    forever: Expr = eq(AT, 13)
    f = grouped(While(forever, (), line=LINE))
    for checked in (True, False):
        arrays = {"x": np.zeros(24, np.int64), "y": np.zeros(24, np.int64)}
        with pytest.raises(ExecutionError, match="a loop ends after at most 9 rounds") as caught:
            interpret(f, arrays, {}, (3, 8), limit=9, checked=checked)
        assert "item (1, 5), in `while ((r * 8) + i) == 13:` at model.py:7" in caught.value.received


def test_a_grid_that_does_not_fit_is_refused() -> None:
    f, arrays = grouped(), {"x": np.zeros(1, np.int64), "y": np.zeros(1, np.int64)}
    for grid, text in (
        (8, "its grid is a number of items for each of r, i\nReceived: 8."),
        ((8,), "Received: (8,)."),
        ((1, 2, 8), "for each of r, i\nReceived: (1, 2, 8)."),
        ((-1, 8), "Received: (-1, 8)."),
        ((1.0, 8), "Received: (1.0, 8)."),
        ((2, 16), "the last axis of its grid is a group of 8\nReceived: (2, 16)."),
    ):
        with pytest.raises(LaunchError) as caught:
            interpret(f, arrays, {}, grid)
        assert text in str(caught.value)
