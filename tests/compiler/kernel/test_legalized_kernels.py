"""Kernels that are legalized for targets with fewer dtypes and operations give the bits of the original."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import loose
import numpy as np
import pytest
from custom_groups import program_group
from drawn_groups import draw_group
from drawn_kernels import draw
from kernel_programs import PROGRAMS
from naive_forms import WITH_KERNELS, Group, groups
from narrow_kernels import bounds_of_launch, draw_narrow, outcome
from written_kernels import ITEM, Launch, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Check,
    Fault,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Store,
    While,
    from_json,
    interpret,
    lockstep,
    to_json,
    verify,
)
from firebrick.compiler.kernel.intervals import Intervals
from firebrick.compiler.kernel.ir import expressions, statements
from firebrick.compiler.kernel.legalized import _legalized, legalized
from firebrick.compiler.kernel.scopes import Scope
from firebrick.compiler.kernel.shorter_loops import iterations, shorter_loops
from firebrick.compiler.naive import naive
from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY, Buffer
from firebrick.compiler.targets.llvm.lanes import lanes_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.dtypes import dtype
from firebrick.core.errors import DTypeError, KernelCompileError, UnsupportedError
from firebrick.scalar.capabilities import CONSERVATIVE_GPU, CPU, Capabilities
from firebrick.scalar.expr import Expr, cast, const, local, minimum, walk
from firebrick.scalar.legalize import legalize_values, missing

BLOCK, PARTS = 12, 4
FLAGS = [f.name for f in fields(Capabilities) if isinstance(getattr(CPU, f.name), bool) and f.name != "float16"]
ALONE = {name: replace(CPU, **{name: getattr(CONSERVATIVE_GPU, name)}) for name in FLAGS}
EXACT = ("int64", "narrow_integers", "nan_min_max", "nan_comparisons", "total_integers", "saturating_casts")
"""Capabilities without which kernels have the same bits, whatever the target does there; the arithmetic of others is exact."""
INTEGERS = replace(CPU, **{name: getattr(CONSERVATIVE_GPU, name) for name in (*EXACT, "float64")})
SETS = {**{name: ALONE[name] for name in EXACT}, "all": INTEGERS}


@contextmanager
def misbehaving(capabilities: Capabilities) -> Iterator[None]:
    """The interpreter does what a target without these capabilities may do at its worst."""

    def worst(op: str, dtype: str, args: list[Any], value: Any) -> Any:
        return loose._node(SimpleNamespace(op=op, dtype=dtype, value=value), args, capabilities)  # type: ignore[arg-type]

    with patch.object(lockstep, "apply", worst):
        yield


def check(launch: Launch, capabilities: Capabilities) -> Function:
    """Compare a launch of the legalized kernel, on a target that misbehaves, with that of the original."""
    want, fault = outcome(launch, launch.function)
    made = legalized(launch.function, capabilities, bounds_of_launch(launch))
    roots = [e for s in statements(made.body) for e in expressions(s)]
    assert missing(roots, capabilities) == ""
    assert from_json(to_json(made)) == made
    with misbehaving(capabilities):
        got, other = outcome(launch, made)
    if fault is not None and not capabilities.int64:
        fault = Fault(fault.site, int(np.clip(fault.payload, -(2**31), 2**31 - 1)))
    assert other == fault, f"{launch.function}\n{made}"
    for name, x in want.items():
        assert np.array_equal(x, got[name]), f"{name}\n{launch.function}\n{made}"
    return made


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
@pytest.mark.parametrize("name", SETS)
def test_random_kernels_keep_their_bits_without_integers_and_exceptions_of_targets(name: str, group: bool) -> None:
    for seed in range(BLOCK):
        check(draw_narrow(seed, group), SETS[name])


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 160))
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
@pytest.mark.parametrize("name", SETS)
def test_more_random_kernels_keep_their_bits(name: str, group: bool, block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check(draw_narrow(seed, group), SETS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in EXACT if n not in ("int64", "narrow_integers")])
def test_random_kernels_of_all_dtypes_keep_their_bits(name: str) -> None:
    for seed in range(BLOCK):
        check(draw(seed), ALONE[name])
        check(draw_group(seed), ALONE[name])


@pytest.mark.parametrize("name", sorted(set(ALONE) - {*EXACT, "exact_fma"}))
def test_random_kernels_keep_their_bits_where_arithmetic_is_as_good_as_it_was(name: str) -> None:
    """Rewrites of arithmetic, on a target whose arithmetic is exact; ``tests/scalar`` has them on others, and those of ``fma``,
    which are not exact near the ends of the range."""
    for seed in range(BLOCK):
        launch = draw_narrow(seed)
        want, fault = outcome(launch, launch.function)
        got, other = outcome(launch, legalized(launch.function, ALONE[name], bounds_of_launch(launch)))
        assert other == fault
        for array, x in want.items():
            assert np.array_equal(x, got[array]), f"{array}\n{launch.function}"


def naive_launches(part: int) -> Iterator[Launch]:
    """The launches of naive forms of a part of the ops, of one small sample for each dtype; of integers that run the same code
    at other widths, for one, in turn."""
    for turn, name in enumerate(WITH_KERNELS[part::PARTS]):
        small: dict[str, Group] = {}
        for g in groups(name):
            if sum(x.size for x in g.arrays) <= 200:
                small.setdefault(g.arrays[0].dtype.name, g)
        for kind in ("int", "uint"):
            alike = [d for d in small if d.startswith(kind)]
            for d in set(alike) - {alike[turn % len(alike)]} if alike else ():
                del small[d]
        for g in small.values():
            form = naive(g.spec)
            memory = {Buffer(INPUT, k): np.ascontiguousarray(x).reshape(-1) for k, x in enumerate(g.arrays)}
            memory |= {Buffer(RESULT, k): np.full(a.size, 77, a.dtype.np) for k, a in enumerate(g.results)}
            memory |= {Buffer(TEMPORARY, k): np.full(t.elements, 77, dtype(t.dtype).np) for k, t in enumerate(form.temporaries)}
            for step in form.steps:
                parameters = step.function.arrays
                arrays = {p.name: memory[b].view(dtype(p.dtype).np) for p, b in zip(parameters, step.buffers, strict=True)}
                scalars = dict(zip([s.name for s in step.function.scalars], step.scalars, strict=True))
                yield Launch(step.function, arrays, {}, step.grid, scalars)
                interpret(step.function, arrays, scalars, step.grid, checked=False)  # what the next step reads


def lacks(function: Function) -> bool:
    """Whether a kernel needs float64, or arrays of 64-bit integers."""
    nodes = walk(e for s in statements(function.body) for e in expressions(s))
    wide = {a.dtype for a in function.memory} & {"float64", "int64", "uint64"}
    return bool(wide) or any(e.dtype == "float64" for e in nodes)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_naive_forms_keep_their_bits_on_a_target_with_32_bit_integers_only(part: int) -> None:
    made = 0
    for launch in naive_launches(part):
        if lacks(launch.function):
            with pytest.raises(DTypeError, match=f"kernel {launch.function.name}: this target has no "):
                legalized(launch.function, INTEGERS, bounds_of_launch(launch))
            continue
        check(launch, INTEGERS)
        gpu = legalized(launch.function, replace(CONSERVATIVE_GPU, buffers=None), bounds_of_launch(launch))
        assert missing([e for s in statements(gpu.body) for e in expressions(s)], CONSERVATIVE_GPU) == ""
        made += 1
    assert made > 20


@pytest.mark.parametrize(
    "name", ["jacobi", "life", "crc", "histogram", "bitonic_sort", "tiled_product", "softmax", "block_histogram"]
)
def test_kernels_of_the_kernel_language_keep_their_bits(name: str) -> None:
    p = PROGRAMS[name]
    g = program_group(name, p.sizes[-1])
    assert g is not None
    f = g.spec.function
    first = {k: np.ascontiguousarray(x).reshape(-1) for k, x in enumerate(g.arrays)}
    results = [np.zeros(a.size, a.dtype.np) for a in g.results]
    arrays = dict(zip([a.name for a in f.arrays], ([*first.values(), *results][b] for b in g.spec.buffers), strict=True))
    launch = Launch(f, arrays, {}, g.spec.launch_grid, g.spec.numbers)
    made = check(launch, INTEGERS)
    assert name == "life" or "_low" not in str(made)  # every integer is found to fit in 32 bits


# intervals


N = ScalarParameter("n")
OUT = ArrayParameter("out", "int32", "read_write")


def intervals_of(*body: Any, **known: tuple[int, int]) -> dict[str, tuple[int, int]]:
    f = Function("f", (OUT,), (N,), "i", tuple(body))
    verify(f)
    return Intervals(f, {"n": (0, 100), "i": (0, 9), **known}).whole


def test_a_local_that_doubles_up_to_a_size_has_the_bounds_of_its_loop() -> None:
    d = Let("d", whole(1))
    found = intervals_of(d, While(d.local < N.value, (Assign("d", d.local * 2),)))
    assert found["d"] == (1, 198)


def test_a_local_that_is_counted_without_end_has_the_bounds_of_its_dtype() -> None:
    d = Let("d", whole(0))
    on = Let("on", OUT[ITEM])
    found = intervals_of(d, on, While(on.local > 0, (Assign("d", d.local + 1), Assign("on", OUT[ITEM]))))
    assert found["d"] == (-(2**63), 2**63 - 1)


def test_branches_and_counters_narrow_intervals() -> None:
    k, low = local("k", "int64"), Let("low", N.value - 50)
    inner = Let("inner", low.local)
    body = (low, For("k", ITEM, N.value, 3, (If((low.local >= 0) & (k < 8), (inner, Let("both", k + low.local))),)))
    found = intervals_of(*body)
    assert found["low"] == (-50, 50)
    assert found["inner"] == (0, 50)
    assert found["k"] == (0, 99)
    assert found["both"] == (0, 57)


@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_no_value_of_a_random_kernel_is_outside_of_its_interval(group: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    intervals: dict[int, Any] = {}
    execute = lockstep.Lockstep._statement
    tight = 0

    def watched(self: Any, s: Any, scope: Scope) -> None:
        nonlocal tight
        for name, (low, high) in intervals[id(s)].items():
            x = scope.read(name)
            assert low <= x.min(), f"{name} at {s}\n{launch.function}"
            assert x.max() <= high, f"{name} at {s}\n{launch.function}"
            tight += high - low < 1 << 20
        execute(self, s, scope)

    monkeypatch.setattr(lockstep.Lockstep, "_statement", watched)
    for seed in range(48):
        launch = draw_narrow(seed, group)
        found = Intervals(launch.function, bounds_of_launch(launch))
        intervals = {id(s): now for s, now in zip(statements(launch.function.body), found, strict=True)}
        outcome(launch, launch.function)
    assert tight > 1000


# refusals


@pytest.mark.parametrize(("change", "bounds", "error", "text"), [
    ({"arrays": (ArrayParameter("out", "float64", "read_write"),)}, {}, DTypeError, 'no float64(.|\n)*astype\\("float32"\\)'),
    ({"arrays": (ArrayParameter("out", "int64", "read_write"),)}, {}, DTypeError, 'no int64(.|\n)*out.astype\\("int32"\\)'),
    ({}, {"n": (0, 2**31)}, UnsupportedError, "sizes below 2³¹(.|\n)*: n\nReceived: from 0 to 2,147,483,648"),
    ({}, {"i": (0, 2**40)}, UnsupportedError, "32-bit indices only: i\nReceived"),
    ({}, {"out": (0, 2**31)}, UnsupportedError, "less than 2³¹ elements(.|\n)*: out"),
    ({"group": 512}, {}, UnsupportedError, "groups of at most 256 items"),
    ({"group": 4, "shared": (SharedArray("s", "float32", 5000),)}, {}, UnsupportedError, "16,384 bytes(.|\n)*20,000"),
])  # fmt: skip
def test_what_a_target_cannot_have_is_refused_by_name(
    change: dict[str, Any], bounds: dict[str, tuple[int, int]], error: type[Exception], text: str
) -> None:
    f = Function("f", (OUT,), (N,), "i", (Store("out", ITEM, const(0, "int32")),))
    known = {"n": (0, 9), "i": (0, 9), "out": (0, 10), **bounds}
    legalized(f, CONSERVATIVE_GPU, {"n": (0, 9), "i": (0, 9), "out": (0, 10)})
    made = replace(f, **change)
    if made.arrays[0].dtype != "int32":
        made = replace(made, body=(Store("out", ITEM, const(0, made.arrays[0].dtype)),))
    with pytest.raises(error, match=text):
        legalized(made, CONSERVATIVE_GPU, known)


def test_a_dtype_that_is_missing_is_refused_with_the_line_that_computes_in_it() -> None:
    wide = cast(OUT[ITEM], "float64") * 0.5
    f = Function("f", (OUT,), (), "i", (Store("out", ITEM, cast(wide, "int32"), line="model.py:7"),))
    with pytest.raises(DTypeError, match=r"kernel f: this target has no float64\nReceived: \w+ of float64, at model.py:7"):
        legalized(f, CONSERVATIVE_GPU, {"i": (0, 9), "out": (0, 10)})


SHARES = (SharedArray("s", "float32", 4000), SharedArray("t", "int8", 384))  # 16,384 bytes
LIMITS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "as large a group": ({"group": 256}, {}, ""),
    "a larger group": ({"group": 257}, {}, "groups of at most 256 items\nReceived: 257.\nRemedy: write a smaller group."),
    "a target with groups of one item": ({"group": 257}, {"group_items": 1}, ""),
    "as much shared memory": ({"group": 4, "shared": SHARES}, {}, ""),
    "more shared memory": (
        {"group": 4, "shared": (*SHARES, SharedArray("u", "bool", 1))}, {},
        "at most 16,384 bytes of shared arrays\nReceived: 16,385.\nRemedy: share smaller arrays.",
    ),
    "as many arrays": ({"arrays": (OUT, ArrayParameter("x", "int32"))}, {"buffers": 2}, ""),
    "more arrays": (
        {"arrays": (OUT, ArrayParameter("x", "int32"))}, {"buffers": 1},
        "at most 1 arrays\nReceived: 2.\nRemedy: put several arrays into one.",
    ),
    "any number of arrays": ({"arrays": (OUT, ArrayParameter("x", "int32"))}, {"buffers": None}, ""),
    "a number of float64": (
        {"scalars": (N, ScalarParameter("a", "float64"))}, {}, "this target has no float64\nReceived: a: float64.",
    ),
    "a number of float64 on a target that has it": (
        {"scalars": (N, ScalarParameter("a", "float64"))}, {"float64": True, "int64": True}, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_of_a_target_are_allowed_and_no_more(name: str) -> None:
    change, capabilities, text = LIMITS[name]
    f = replace(Function("f", (OUT,), (N,), "i", (Store("out", ITEM, const(0, "int32")),)), **change)
    known = {"n": (0, 9), "i": (0, 9), "out": (0, 10), "x": (0, 10), "index0": (0, 9)}
    c = replace(CONSERVATIVE_GPU, **capabilities)
    if not text:
        legalized(f, c, known)
        return
    with pytest.raises(UnsupportedError) as caught:
        legalized(f, c, known)
    assert str(caught.value).startswith(f"kernel f: {text}")


@pytest.mark.parametrize("has_float64", [True, False])
@pytest.mark.parametrize("has_int64", [True, False])
@pytest.mark.parametrize("name", ["float64", "int64", "uint64", "float32", "int8", "bool", "float16"])
@pytest.mark.parametrize("where", ["array", "shared"])
def test_arrays_of_each_dtype_on_targets_with_and_without_64_bits(
    where: str, name: str, has_int64: bool, has_float64: bool
) -> None:
    c = replace(CPU, int64=has_int64, float64=has_float64)
    array = ArrayParameter("out", name, "read_write")
    number = const(False, "bool") if name == "bool" else const(0, "float32" if name == "float16" else name)
    f = Function("f", (array,), (), "i", (Store("out", ITEM, number),))
    if where == "shared":
        stored = Store("out", ITEM, const(0, "int32"))
        f = Function("f", (OUT,), (), "i", (stored,), (), 4, (SharedArray("s", name, 4),))
    known = {"i": (0, 9), "out": (0, 10), "index0": (0, 9)}
    has = {"float64": has_float64, "int64": has_int64, "uint64": has_int64}.get(name, True)
    if has:
        assert legalized(f, c, known).memory[-1].dtype == name
    else:
        with pytest.raises((DTypeError, UnsupportedError), match=f"kernel f: this target has no {name}"):
            legalized(f, c, known)


@pytest.mark.parametrize(("start", "stop", "text"), [
    ((0, 1), (5, 4), ""), ((0, 1), (1, 1 << 27), ""), ((0, 0), ((1 << 31) - 1, 0), ""), ((-(1 << 31), 0), (0, 1), ""),
    ((0, 0), (1 << 31, 0), "from 0 to 2,147,483,648"), ((-(1 << 31) - 1, 0), (0, 0), "from -2,147,483,649 to 0"),
    ((0, 0), (0, 1 << 30), "from 0 to 9,663,676,416"), ((0, 1 << 32), (5, 0), "from 0 to 5"),
])  # fmt: skip
def test_a_loop_counts_in_32_bits_or_is_refused(start: tuple[int, int], stop: tuple[int, int], text: str) -> None:
    """Each bound is a number plus a multiple of n, which is at most 9."""
    first, last = (const(c, "int64") + local("n", "int64") * const(k, "int64") for c, k in (start, stop))
    loop = For("k", first, last, 1, (Store("out", ITEM, const(0, "int32")),), line="model.py:7")
    gpu = replace(CONSERVATIVE_GPU, loop_iterations=1 << 40)
    f, known = Function("f", (OUT,), (N,), "i", (loop,)), {"n": (0, 9), "i": (0, 9), "out": (0, 10)}
    legalized(f, replace(gpu, int64=True), known)
    if not text:
        (made,) = [s for s in statements(legalized(f, gpu, known).body) if isinstance(s, For)]
        assert made.line == "model.py:7"
        return
    for line, where in (("model.py:7", ", at model.py:7."), ("", ".")):
        with pytest.raises(UnsupportedError) as caught:
            legalized(replace(f, body=(replace(loop, line=line),)), gpu, known)
        expected = "kernel f: a loop counts below 2³¹, as this target has 32-bit indices only"
        assert str(caught.value).split("\n") == [
            expected, f"Received: one {text}{where}", "Remedy: count less far, or in two loops.",
        ]  # fmt: skip


def test_unknown_sizes_are_refused() -> None:
    f = Function("f", (OUT,), (), "i", (Store("out", ITEM, const(0, "int32")),))
    with pytest.raises(UnsupportedError, match="32-bit indices only: i\nReceived: not known"):
        legalized(f, CONSERVATIVE_GPU, {"out": (0, 10)})
    with pytest.raises(UnsupportedError, match="32-bit indices only: out\nReceived: a number that is not known"):
        legalized(f, CONSERVATIVE_GPU, {"i": (0, 9)})


def test_a_legalized_kernel_is_not_compiled_for_a_target_that_has_everything() -> None:
    f = Function("f", (OUT,), (), "i", (Store("out", ITEM, const(0, "int32")),))
    made = legalized(f, CONSERVATIVE_GPU, {"i": (0, 9), "out": (0, 10)})
    with pytest.raises(KernelCompileError, match="legalized for another one"):
        lanes_kernel(made, Target.named("x86_64"))
    with pytest.raises(KernelCompileError, match="legalized for another one"):
        legalized(made, CPU, {})
    assert legalized(f, CPU, {}) == f


def test_a_payload_beyond_32_bits_is_the_largest_that_there_is() -> None:
    big = cast(OUT[ITEM], "int64") << 33
    f = Function("f", (OUT,), (), "i", (Check(big < 0, 2, big), Store("out", ITEM, const(0, "int32"))))
    launch = Launch(f, {"out": np.ones(3, np.int32)}, {}, 3)
    made = legalized(f, CONSERVATIVE_GPU, bounds_of_launch(launch))
    assert outcome(launch, made)[1] == Fault(2, 2**31 - 1)


# loops


def sums(inner: int, times: int = 2) -> tuple[Launch, dict[str, tuple[int, int]]]:
    """A kernel with loops in loops, of ``times * (1 + inner)`` iterations."""
    a, b = local("a", "int64"), local("b", "int64")
    count = ArrayParameter("count", "int32", "read_write")
    total = Let("total", const(0, "int32"))
    innermost = For("b", whole(1), whole(1 + 3 * inner), 3, (
        Assign("total", total.local * 31 + cast(a * 7 + b, "int32")), Store("count", ITEM, count[ITEM] + 1),
    ))  # fmt: skip
    body = (total, For("a", whole(0), whole(times), 1, (innermost, innermost)), Store("out", ITEM, total.local))
    f = Function("sums", (OUT, count), (), "i", body)
    launch = Launch(f, {"out": np.zeros(4, np.int32), "count": np.zeros(4, np.int32)}, {}, 4)
    return launch, bounds_of_launch(launch)


@pytest.mark.parametrize("limit", [10, 11, 25, 100, 1000])
def test_loops_have_at_most_the_iterations_of_a_driver_and_the_same_results(limit: int) -> None:
    launch, known = sums(37)
    assert iterations(launch.function, known) == 2 * (1 + 2 * 37)
    made = shorter_loops(launch.function, limit, known)
    verify(made)
    assert iterations(made, known) <= limit
    want, got = outcome(launch, launch.function)[0], outcome(launch, made)[0]
    assert got["count"].view(np.int32).tolist() == [2 * 2 * 37] * 4
    assert all(np.array_equal(want[n], got[n]) for n in want)
    assert (made == launch.function) == (limit >= 150)


def test_the_sections_of_a_loop_are_counted_by_their_length() -> None:
    """Intervals alone would take each section for as long as the whole loop, and repeat its block for nothing."""
    n, first, count = N.value, local("first", "int64"), Let("count", const(0, "int32"))
    counted = (Assign("count", count.local + 1),)

    def sections(stop: Expr) -> int:
        inner = For("k", first, stop, 1, counted)
        f = Function("sections", (OUT,), (N,), "i", (count, For("first", whole(0), n, 14, (inner,)), Store("out", ITEM, n)))
        return iterations(f, {"n": (0, 500), "i": (0, 3), "out": (0, 4)})

    assert sections(minimum(first + 14, n)) == sections(minimum(n, first + 14)) == 36 * (1 + 14)
    assert sections(minimum(first + 500, n)) == sections(n) == sections(minimum(n, n + 14)) == 36 * (1 + 500)


def test_loops_that_cannot_be_short_enough_are_refused() -> None:
    launch, known = sums(370)
    with pytest.raises(UnsupportedError, match="at most 10 iterations of the loops of an item\nReceived: up to 1,482"):
        shorter_loops(launch.function, 10, known)
    c = replace(CONSERVATIVE_GPU, loop_iterations=100)
    assert iterations(shorter_loops(launch.function, 100, known), known) <= 100
    want, got = outcome(launch, launch.function)[0], outcome(launch, legalized(launch.function, c, known))[0]
    assert all(np.array_equal(want[n], got[n]) for n in want)


@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_random_kernels_with_shorter_loops_keep_their_bits(group: bool) -> None:
    shorter = 0
    for seed in range(20):
        launch = draw_narrow(seed, group)
        try:
            made = shorter_loops(launch.function, 6, bounds_of_launch(launch))
        except UnsupportedError:
            continue
        verify(made)
        shorter += made != launch.function
        want, fault = outcome(launch, launch.function)
        got, other = outcome(launch, made)
        assert other == fault
        assert all(np.array_equal(x, got[n]) for n, x in want.items())
    assert shorter > 2


# the tests can fail


@pytest.mark.parametrize("name", sorted(set(EXACT) - {"int64", "narrow_integers"}))
def test_a_kernel_that_is_not_legalized_differs_on_a_target_that_misbehaves(name: str) -> None:
    differs = 0
    for seed in range(BLOCK):
        launch = draw_narrow(seed)
        want, fault = outcome(launch, launch.function)
        with misbehaving(ALONE[name]):
            got, other = outcome(launch, launch.function)
        differs += other != fault or any(not np.array_equal(x, got[n]) for n, x in want.items())
    assert differs


def test_a_statement_that_kernels_have_in_common_is_rewritten_once_for_each_range_of_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rewritten: list[tuple[int, int]] = []

    def counted(roots: Any, capabilities: Capabilities, extents: Any, names: Any) -> Any:
        rewritten.extend([names.bounds["n"]] if "n" in names.bounds else [])
        return legalize_values(roots, capabilities, extents, names)

    monkeypatch.setattr(f"{legalized.__module__}.legalize_values", counted)
    _legalized.cache_clear()
    n, m = ScalarParameter("n"), ScalarParameter("m")
    y, z = ArrayParameter("y", "int32", "write"), ArrayParameter("z", "int32", "write")
    product = Let("product", n.value * n.value)
    store = Store("y", local("item", "int64"), cast(product.local >> 7, "int32"))

    def text(name: str, most: int, *more: Any) -> str:
        f = Function(name, (y, z), (n, m), "item", (product, *more, store))
        return str(legalized(f, CONSERVATIVE_GPU, {"n": (0, most), "m": (0, 9), "item": (0, 9), "y": (0, 10), "z": (0, 10)}))

    narrow = text("narrow", 9)
    other = text("other", 9, Store("z", local("item", "int64"), cast(m.value, "int32")))
    wide = text("wide", 1 << 30)
    _legalized.cache_clear()
    assert text("wide", 1 << 30) == wide
    assert "product_low" not in narrow + other
    assert "product_low" in wide
    assert rewritten == [(0, 9), (0, 1 << 30), (0, 1 << 30)]
