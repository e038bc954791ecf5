"""Kernels with work items as lanes of vectors have the interpreter's bits, at every width and for every size of grid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from assembling import PROCESSORS, object_for
from drawn_groups import draw_group
from drawn_kernels import OWN, draw
from drawn_masks import draw_masks
from running_lanes import Compiled, agree
from written_kernels import DTYPES, ITEM, WRITTEN, N, collatz, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Barrier,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Store,
    While,
)
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.targets.llvm import masked
from firebrick.compiler.targets.llvm.emit import Limit
from firebrick.compiler.targets.llvm.lane_width import lanes_of
from firebrick.compiler.targets.llvm.lanes import lanes_kernel
from firebrick.compiler.targets.llvm.native import module_text, named
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import binary, cast, const, eq, fma, local, philox, select

WIDTHS = [(0, 16), (128, 4), (0, 1), (256, 8), (0, 0), (0, 2)]
"""Bits of a vector, and lanes; 0 for the printer's choice."""
BLOCK = 20


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(("vector", "width"), WIDTHS[:3])
def test_written_kernels_in_lanes_have_the_bits_of_their_interpretation(name: str, vector: int, width: int) -> None:
    launch = WRITTEN[name]()
    found = agree(Compiled(launch.function, vector, width), launch.arrays, launch.scalars, (launch.grid,))
    for array, want in launch.want.items():
        np.testing.assert_allclose(found[array].astype(np.float64), want.astype(np.float64), rtol=1e-6)


@pytest.mark.parametrize("block", range(5))
def test_random_kernels_in_lanes_have_the_bits_of_their_interpretation(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        launch = draw(seed)
        compiled = Compiled(launch.function, *WIDTHS[seed % len(WIDTHS)])
        lanes, rng = compiled.lanes.lanes, np.random.default_rng(seed)
        for size in sorted({0, 1, lanes - 1, lanes, lanes + 1, launch.grid}):
            arrays = dict(launch.arrays)
            for a in launch.function.arrays:
                if a.access != "read":
                    arrays[a.name] = rng.choice(launch.arrays[a.name], size * OWN)
            agree(compiled, arrays, launch.scalars, (size,))


@pytest.mark.parametrize("block", range(5))
def test_random_groups_in_lanes_have_the_bits_of_their_interpretation(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        launch = draw_group(seed)
        agree(Compiled(launch.function, *WIDTHS[seed % len(WIDTHS)]), launch.arrays, launch.scalars, launch.grid)


@pytest.mark.parametrize("block", range(5))
def test_random_masks_in_lanes_have_the_bits_of_their_interpretation(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        launch = draw_masks(seed)
        agree(Compiled(launch.function, *WIDTHS[seed % len(WIDTHS)]), launch.arrays, {}, (launch.grid,))


@pytest.mark.parametrize("block", range(2))
def test_random_kernels_for_short_rows_have_the_bits_of_their_interpretation(block: int) -> None:
    """Programs know the sizes of a grid: a vector has as many lanes as a short row has items."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        launch, size, rng = draw(seed), seed % 9 + 1, np.random.default_rng(seed)
        scalars = (Let(s.name, const(launch.scalars[s.name], s.dtype)) for s in launch.function.scalars)
        f = replace(launch.function, scalars=(), body=(*scalars, *launch.function.body))
        compiled = Compiled(f, (0, 128)[seed % 2], grid=(size,))
        assert compiled.lanes.lanes in (size, lanes_of(f, Target.host((0, 128)[seed % 2])))
        written = {a.name for a in f.arrays if a.access != "read"}
        arrays = {k: rng.choice(x, size * OWN) if k in written else x for k, x in launch.arrays.items()}
        agree(compiled, arrays, {}, (size,))
        launch = draw_masks(seed)
        size = min(size, launch.grid)
        agree(Compiled(launch.function, (0, 128)[seed % 2], grid=(size,)), launch.arrays, {}, (size,))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(5, 835))
def test_more_random_kernels_in_lanes_have_the_bits_of_their_interpretation(block: int) -> None:
    test_random_kernels_in_lanes_have_the_bits_of_their_interpretation(block)
    test_random_groups_in_lanes_have_the_bits_of_their_interpretation(block)
    test_random_masks_in_lanes_have_the_bits_of_their_interpretation(block)
    test_random_kernels_for_short_rows_have_the_bits_of_their_interpretation(block)


def test_rows_of_a_grid_may_be_cut_anywhere() -> None:
    """Work units are vectors of a row, so a call may begin and end in the middle of one."""
    x, w = ArrayParameter("x", "int64", "read_write"), ScalarParameter("w")
    at = (local("a", "int64") * N.value + local("b", "int64")) * w.value + ITEM
    f = Function("number", (x,), (N, w), "i", (Store("x", at, x[at] * 100 + at),), ("a", "b"))
    compiled = Compiled(f)
    grid = (3, 2, compiled.lanes.lanes * 2 + 3)
    count, units = math.prod(grid), compiled.lanes.units(grid)
    assert units == 3 * 2 * 3
    for cut in range(units + 1):
        data = np.ones(count, np.int64)
        compiled({"x": data}, {"n": grid[1], "w": grid[2]}, grid, (cut, min(units, cut + 4)))
        np.testing.assert_array_equal(data, 100 + np.arange(count))


def test_a_lane_keeps_the_values_of_the_round_in_which_it_left_a_loop() -> None:
    """And a name that is read after the loop is kept though another one that is not is overwritten."""
    x, y = ArrayParameter("x", "int32"), ArrayParameter("y", "int32", "write")
    n, twice = Let("n", const(0, "int32")), Let("twice", const(0, "int32"))
    loop = While(n.local < x[ITEM], (Assign("n", n.local + 1), Assign("twice", n.local * 2)))
    f = Function("count", (x, y), (), "i", (n, twice, loop, Store("y", ITEM, twice.local)))
    found = np.zeros(50, np.int32)
    given = (np.arange(50, dtype=np.int32) * 7) % 11
    Compiled(f)({"x": given, "y": found}, {}, (50,))
    np.testing.assert_array_equal(found, given * 2)


def test_comparisons_of_an_index_with_any_number_are_those_of_integers() -> None:
    """They are of the lane's number in the vector, so a difference beyond the range of int64 must not wrap around."""
    y, n = ArrayParameter("y", "int32", "write"), N.value
    found = const(0, "int32")
    for k, op in enumerate(("lt", "le", "gt", "ge", "eq", "ne")):
        for m, (a, b) in enumerate(((ITEM, n), (n, ITEM + 3), (ITEM - 20, n))):
            found = found | select(binary(op, a, b), const(1 << (3 * k + m), "int32"), const(0, "int32"))
    compiled = Compiled(Function("compared", (y,), (N,), "i", (Store("y", ITEM, found),)), 0, 16)
    least, most = -(1 << 63), (1 << 63) - 1
    for number in (least, least + 1, least + 15, -(1 << 31), -21, -1, 0, 3, 15, 16, 17, 30, 1 << 31, 1 << 32, most - 16, most):
        agree(compiled, {"y": np.zeros(40, np.int32)}, {"n": number}, (40,))


@pytest.mark.parametrize("width", [16, 4, 1])
def test_sums_of_indices_with_steps_that_are_known_and_others_are_those_of_integers(width: int) -> None:
    """Steps between lanes: numbers, arguments of the launch, and none."""
    x, y, n = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "write"), N.value
    terms = (ITEM, ITEM * n, ITEM * 3 - 5, n, n * n, x[ITEM], ITEM * n + x[ITEM], whole(4))
    found = (
        [binary(op, a, b) for op in ("add", "sub") for a in terms for b in terms] + [-a for a in terms] + [a * 5 for a in terms]
    )
    found = [e for e in found if e.op != "const"]
    stores = tuple(Store("y", ITEM * len(found) + k, e) for k, e in enumerate(found))
    compiled = Compiled(Function("sums", (x, y), (N,), "i", stores), 0, width)
    values = np.arange(21, dtype=np.int64) ** 3
    for number in (0, 1, -7, 1 << 40):
        agree(compiled, {"x": values, "y": np.zeros(21 * len(found), np.int64)}, {"n": number}, (21,))


@pytest.mark.parametrize("width", [16, 4, 1])
def test_quotients_and_remainders_of_an_index_are_those_of_integers(width: int) -> None:
    """Those of vectors that a divisor does not part are scalars, and a step between lanes."""
    numbers = (0, 1, 3, 7, 15, 16, 31, 48, 63, (1 << 63) - 1, -1, -16)
    ops = ("div", "rem", "shr", "and")
    found = [binary(op, i, whole(c)) for i in (ITEM, ITEM - 16) for op in ops for c in numbers]
    y = ArrayParameter("y", "int64", "write")
    stores = tuple(Store("y", ITEM * len(found) + k, e) for k, e in enumerate(found))
    agree(Compiled(Function("parts", (y,), (), "i", stores), 0, width), {"y": np.zeros(70 * len(found), np.int64)}, {}, (70,))


@pytest.mark.parametrize("dtype", ["uint64", "int64", "uint32"])
def test_a_division_by_a_number_shifted_out_does_not_trap(dtype: str) -> None:
    x = ArrayParameter("x", dtype, "read_write")
    three, by = const(3, dtype), x[ITEM]
    f = Function("shifted", (x,), (), "i", (Store("x", ITEM, binary("div", const(1000, dtype), three << by)),))
    agree(Compiled(f, 0, 16), {"x": np.arange(80, dtype=dtype)}, {}, (80,))


@pytest.mark.parametrize("mistake", ["values after a loop", "masks"])
def test_a_planted_mistake_is_found_by_random_kernels(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mistake == "masks":  # of a branch or loop in another one: the lanes that the outer one has left come back
        monkeypatch.setattr(masked.Lanes, "both", lambda self, a, b: b)
    else:  # those of the last round of any lane, not of the lane's own
        monkeypatch.setattr(masked.Masked, "select", lambda self, name, mask, a, b: a)
    found = 0
    for seed in range(20):
        launch = draw_masks(seed)
        arrays = {name: np.resize(x, 64) for name, x in launch.arrays.items()}
        try:
            agree(Compiled(launch.function, 0, 16), arrays, {}, (64,))
        except AssertionError:
            found += 1
    assert found > 2


def test_lanes_that_are_not_active_read_and_write_nothing() -> None:
    """Their indices are out of range by far, and the elements around the array keep their values."""
    x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "read_write")
    far = select(N.value > ITEM, ITEM * 3, const(1 << 40, "int64"))
    f = Function("some", (x, y), (N,), "i", (If(N.value > ITEM, (Store("y", far, x[far] + 1.0),)),))
    for width in (16, 1, 8):
        data = np.zeros(90, np.float32)
        Compiled(f, 0, width)({"x": np.arange(90, dtype=np.float32), "y": data}, {"n": 29}, (100,))
        want = np.zeros(90, np.float32)
        want[:87:3] = np.arange(90)[:87:3] + 1
        np.testing.assert_array_equal(data, want)


@pytest.mark.parametrize("dtype", ["bool", "float16", "uint8", "float32", "int64"])
@pytest.mark.parametrize("side", [1, -1])
def test_consecutive_elements_are_read_and_written_in_either_direction(dtype: str, side: int) -> None:
    """At the borders of a grid and with a mask, every second lane."""
    x, y = ArrayParameter("x", dtype), ArrayParameter("y", dtype, "read_write")
    at = ITEM if side > 0 else N.value - 1 - ITEM
    even = If(eq(ITEM & 1, 0), (Store("y", N.value - 1 - at, x[at]),))
    f = Function("turn", (x, y), (N,), "i", (even, If(ITEM >= 7, (Store("y", N.value - 1 - at, x[at]),))))
    for vector, width in ((0, 16), (128, 8)):
        raw = np.random.default_rng(4).integers(0, 256, 53 * DTYPES[dtype].itemsize).astype(np.uint8)
        given = raw < 128 if dtype == "bool" else raw.view(DTYPES[dtype])
        agree(Compiled(f, vector, width), {"x": given, "y": np.zeros(53, DTYPES[dtype])}, {"n": 53}, (53,))


@pytest.mark.parametrize("width", [0, 1])
def test_an_endless_loop_ends_at_its_limit_and_reports_a_fault(width: int) -> None:
    x, n = ArrayParameter("x", "int32", "read_write"), Let("n", const(0, "int32"))
    f = Function(
        "endless", (x,), (), "i", (n, While(n.local < x[ITEM], (Assign("n", n.local & 7),)), Store("x", ITEM, n.local))
    )
    data = np.zeros(20, np.int32)
    data[3] = 1
    compiled = Compiled(f, 0, width, Limit(1000, 5))
    assert compiled({"x": data}, {}, (20,)) == Fault(5, 0)
    data[:] = 0
    assert compiled({"x": data}, {}, (20,)) is None


def test_a_loop_of_as_many_rounds_as_its_limit_reports_nothing() -> None:
    x, n = ArrayParameter("x", "int32", "read_write"), Let("n", const(0, "int32"))
    f = Function("count", (x,), (), "i", (n, While(n.local < x[ITEM], (Assign("n", n.local + 1),)), Store("x", ITEM, n.local)))
    for rounds, fault in ((100, None), (99, Fault(5, 0))):
        data = np.arange(101, dtype=np.int32)
        assert Compiled(f, limit=Limit(rounds, 5))({"x": data}, {}, (101,)) == fault


def test_locals_live_across_barriers_whether_they_differ_between_items_or_not() -> None:
    """One is kept for each item, one is computed again, and one is a scalar that a loop around the barrier changes."""
    x, y = ArrayParameter("x", "int32"), ArrayParameter("y", "int32", "write")
    shared = SharedArray("shared", "int32", 40)
    row, k = local("row", "int64"), local("k", "int64")
    at = Let("at", row * 40 + ITEM)
    mine, power = Let("mine", x[at.local]), Let("power", const(1, "int32"))
    turn = (
        Store("shared", ITEM, mine.local), Barrier(),
        Assign("mine", mine.local * power.local + shared[binary("rem", ITEM + k, whole(40))]),
        Assign("power", power.local * 3), Barrier(),
    )  # fmt: skip
    body = (at, mine, power, For("k", whole(0), whole(4), 1, turn), Store("y", at.local, mine.local + power.local))
    f = Function("turns", (x, y), (), "i", body, ("row",), 40, (shared,))
    given = np.random.default_rng(1).integers(-(2**31), 2**31, (5, 40), np.int32)
    want = given.copy()
    for turn_number in range(4):
        want = want * np.int32(3**turn_number) + np.roll(want, -turn_number, 1)
    for width in (0, 1, 4):
        found = np.zeros(200, np.int32)
        Compiled(f, 0, width)({"x": given.ravel(), "y": found}, {}, (5, 40))
        np.testing.assert_array_equal(found.reshape(5, 40), want + np.int32(81))


@pytest.mark.parametrize("vector", [128, 0])
def test_a_fused_product_and_sum_is_rounded_once_at_every_width(vector: int) -> None:
    """Without an instruction for it the sum is rounded to odd in float64, so that only rounding it to float32 counts."""
    x = ArrayParameter("x", "float32", "read_write")
    f = Function("fused", (x,), (), "i", (Store("x", ITEM * 3, fma(x[ITEM * 3], x[ITEM * 3 + 1], x[ITEM * 3 + 2])),))
    rng = np.random.default_rng(2)
    data = rng.integers(0, 1 << 32, 30_000, np.uint32).view(np.float32)
    a = np.float32(1 + 2.0**-12)  # its square is halfway between two float32 numbers, and the sum a little more
    data[:6] = [a, a, 2.0**-60, a, a, -(2.0**-60)]
    near = rng.normal(size=(5000, 3)).astype(np.float32)
    near[:, 2] *= np.float32(2.0) ** rng.integers(-60, 1, 5000).astype(np.float32)
    data[15_000:] = near.ravel()
    agree(Compiled(f, vector), {"x": data}, {}, (10_000,))


def test_words_of_one_block_of_random_numbers_are_those_of_the_stream() -> None:
    y, key = ArrayParameter("y", "uint32", "write"), [const(k, "uint32") for k in (5, 6, 7, 8)]
    start = Let("start", ITEM * 4)
    positions = [start.local + k for k in range(-1, 6)] + [ITEM * 2 + 1, ITEM, ITEM * 6 + 3]
    stores = tuple(Store("y", ITEM * len(positions) + k, philox(key, p)) for k, p in enumerate(positions))
    f = Function("words", (y,), (), "i", (start, *stores))
    agree(Compiled(f), {"y": np.zeros(30 * len(positions), np.uint32)}, {}, (30,))


@pytest.mark.parametrize("name", PROCESSORS)
def test_kernels_in_lanes_become_objects_for_other_processors(name: str) -> None:
    functions = [make().function for make in WRITTEN.values()] + [draw_group(seed).function for seed in range(12)]
    target = PROCESSORS[name]
    made = [named(lanes_kernel(f, target, target.lanes(32)).kernel, f.name) for f in functions]
    image = object_for(name, module_text(made))
    assert all(k.name.encode() in image for k in made)


def test_lanes_follow_the_widest_float_and_not_the_indices() -> None:
    target = Target.named("x86_64", 512)
    assert lanes_of(WRITTEN["saxpy"]().function, target) == 16
    assert lanes_of(WRITTEN["exponentials"]().function, target) == 8
    assert lanes_of(WRITTEN["copies of int64"]().function, target) == 8
    assert lanes_of(WRITTEN["gcd"]().function, target) == 1, "no processor divides vectors of integers"


def test_short_loops_without_memory_accesses_have_two_registers_of_lanes() -> None:
    assert lanes_of(collatz().function, Target.named("x86_64", 512)) == 32
    assert lanes_of(collatz().function, Target.named("x86_64", 128)) == 8


def test_groups_that_draw_numbers_in_a_loop_have_two_registers_of_lanes_and_those_of_four_have_four() -> None:
    """The processor computes for one register while the other waits."""
    out, total = ArrayParameter("out", "uint32", "write"), Let("total", const(0, "uint32"))
    drawn = philox([const(k, "uint32") for k in (5, 6, 7, 8)], ITEM * 16 + local("r", "int64"))
    loop = For("r", whole(0), whole(7), 1, (Assign("total", total.local + drawn),))

    def draws(group: int) -> Function:
        place = local("g", "int64") * group + ITEM
        return Function("draws", (out,), (), "i", (total, loop, Store("out", place, total.local)), ("g",), group)

    target = Target.named("x86_64", 512)
    assert [lanes_of(draws(group), target) for group in (32, 64, 128, 16, 48)] == [32, 64, 32, 16, 16]
    assert lanes_of(draws(32), Target.named("x86_64", 256)) == 16
    for group in (16, 32, 64):
        agree(Compiled(draws(group)), {"out": np.zeros(3 * group, np.uint32)}, {}, (3, group))


def test_a_kernel_that_does_little_but_read_elements_anywhere_is_scalar_code() -> None:
    x, at, y = ArrayParameter("x", "float32"), ArrayParameter("at", "int32"), ArrayParameter("y", "float32", "write")
    k, total = local("k", "int64"), Let("total", const(0.0, "float32"))
    start, stop = (cast(at[ITEM + n], "int64") for n in (0, 1))
    add = For("k", start, stop, 1, (Assign("total", total.local + x[k] * x[cast(at[k], "int64")]),))
    sparse = Function("sparse", (x, at, y), (), "i", (total, add, Store("y", ITEM, total.local)))
    assert lanes_of(sparse, Target.named("x86_64", 512)) == 1
    j = local("j", "int64")
    dense = For("j", whole(0), N.value, 1, (Assign("total", total.local + x[j * N.value + ITEM]),))
    f = Function("dense", (x, at, y), (N,), "i", (total, dense, Store("y", ITEM, total.local)))
    assert lanes_of(f, Target.named("x86_64", 512)) == 16
