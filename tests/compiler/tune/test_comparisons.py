"""Comparisons of results by the tuner: of trials, of every n-th call, and of the first calls of a program, by tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from firebrick.compiler.tune import choice, compared, whole_programs
from firebrick.compiler.tune.compared import collect, collected, compare, is_untuned, untuned
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.trial_values import SPREAD, differences, drawn
from firebrick.compiler.tune.variant import KernelProblem
from firebrick.compiler.tune.whole_programs import CALLS, ROUNDS, RUN, WARM, keep_if_faster

PROBLEM = KernelProblem("Map", "structure", (64,), "a device", 1, "a kernel")
NAN, INF = float("nan"), float("inf")
EPS = float(np.finfo(np.float32).eps)


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def bits(word: int) -> np.ndarray[Any, Any]:
    return np.array([word], np.uint32).view(np.float32)


# results that are expected and found → the elements whose bits differ, the distance that is too far, and that of exact sums
FINITE = "is not finite at other elements"
DIFFERENCES: dict[str, tuple[Any, Any, str, str, str]] = {
    "equal": (f32(1, 2), f32(1, 2), "", "", ""),
    "one element": (f32(1, 4), f32(1, 3), "1 of 2 elements, first at 1", "1", "1"),
    "near": (f32(1, 4), f32(1, 4 * (1 + 999 * EPS)), "1 of 2 elements, first at 1", "", "0.000476"),
    "not near": (f32(1, 4), f32(1, 4 * (1 + 1001 * EPS)), "1 of 2 elements, first at 1", "0.000477", "0.000477"),
    "the size of the largest counts": (f32(0, -4000), f32(0.4, -4000), "1 of 2 elements, first at 0", "", "0.4"),
    "signs of zeros": (f32(0.0), f32(-0.0), "1 of 1 elements, first at 0", "", ""),
    "bits of NaN": (bits(0x7FC00000), bits(0x7FC00001), "", "", ""),
    "NaN and a number": (f32(NAN), f32(0), "1 of 1 elements, first at 0", FINITE, FINITE),
    "infinite and NaN": (f32(INF, 1), f32(NAN, 1), "1 of 2 elements, first at 0", "", ""),
    "infinite elsewhere": (f32(INF, 1), f32(1, INF), "2 of 2 elements, first at 0", FINITE, FINITE),
    "no elements": (f32(), f32(), "", "", ""),
    "integers": (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements, first at 1", *["differs at 1 elements"] * 2),
    "bools": (np.array([True]), np.array([False]), "1 of 1 elements, first at 0", *["differs at 1 elements"] * 2),
    "half precision": (
        np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 3], ml_dtypes.bfloat16), "1 of 2 elements, first at 1", "", "1",
    ),
    "complex": (
        np.array([[1, 1 + 2j]], np.complex64), np.array([[1, 1 + 3j]], np.complex64), "1 of 2 elements, first at 1", "1", "1",
    ),
    "both parts": (np.array([1 + 2j]), np.array([2 + 3j]), "1 of 1 elements, first at 0", "1.41", "1.41"),
    "complex: bits of NaN": (np.array([complex(NAN, 1)]), np.array([complex(-NAN, 1)]), "", "", ""),
    "an error": ("IndexError", "IndexError", "", "", ""),
    "another error": ("IndexError", "ValueError", *["it reports 'ValueError' in place of 'IndexError'"] * 3),
    "an error for a result": (f32(1), "ValueError", *["it reports 'ValueError' in place of [array([1.], dtype=float32)]"] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_differs_in_a_trial(name: str) -> None:
    x, y, *expected = DIFFERENCES[name]
    wanted, found = (v if isinstance(v, str) else [v] for v in (x, y))
    for (same, exact), text in zip(((True, True), (False, False), (False, True)), expected, strict=True):
        if text and not isinstance(y, str):
            eps = np.finfo(np.asarray(x).real.dtype).eps if x.dtype.kind in "fc" else 0
            limit = 0.0 if exact or same else SPREAD * float(eps) * float(np.abs(x).max())
            far = f"differs by {text}, where at most {limit:.3g} is allowed" if text[0].isdigit() else text
            text = f"result 0 has other bits at {text}" if same else f"result 0 {far}"
        assert differences(wanted, found, same, exact) == text


def test_the_result_that_differs_is_named() -> None:
    wanted, found = [f32(1), f32(2), f32(3)], [f32(1), f32(2), f32(4)]
    assert differences(wanted, found, True, True).startswith("result 2 has other bits")
    assert differences(wanted, found, False, True).startswith("result 2 differs by 1")
    with pytest.raises(ValueError, match="zip"):
        differences(wanted, found[:2], True, True)


def test_operands_of_a_trial_are_drawn_as_they_were() -> None:
    """Bits of what is drawn decide what a trial finds, so they are those of the seed."""
    rng = np.random.default_rng(0)
    special = drawn(rng, "special", (970,), np.dtype("float64"))
    odd = ~np.isfinite(special) | (special == 0) | (np.abs(special) == 1e-40)
    assert 5 <= odd.sum() <= 10, "one of 97"
    values = np.concatenate([drawn(rng, "special", (97,), np.dtype("float64")) for _ in range(200)])
    assert np.isnan(values).any()
    assert {INF, -INF, 1e-40, 0.0} <= set(values[~np.isnan(values)].tolist())
    assert (np.signbit(values) & (values == 0)).any()
    exact = drawn(rng, "exact", (4000,), np.dtype("complex64"))
    assert set(exact.real.tolist()) == set(exact.imag.tolist()) == {-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0}
    assert 0.4 < drawn(rng, "normal", (4000,), np.dtype("bool")).mean() < 0.6
    assert set(drawn(rng, "normal", (4000,), np.dtype("int8")).tolist()) == {0, 1, 2, 3}
    assert abs(drawn(rng, "normal", (4000,), np.dtype("float32")).std() - 1) < 0.1


# results of the tuned and of the default kernels → whether they differ if bits must be the same, and if they need not
CALLED: dict[str, tuple[Any, Any, bool, bool]] = {
    "equal": (f32(1, 2), f32(1, 2), False, False),
    "near": (f32(1, 2), f32(1, 2.0019), True, False),
    "not near": (f32(1, 2), f32(1, 2.0021), True, True),
    "NaN": (bits(0x7FC00000), bits(0x7FC00001), False, False),
    "NaN and infinite": (f32(NAN, 1), f32(INF, 1), True, False),
    "NaN and a number": (f32(NAN, 1), f32(1, 1), True, True),
    "zeros": (f32(0.0), f32(-0.0), False, False),
    "integers": (np.array([1000000]), np.array([1000001]), True, True),
    "bools": (np.array([True]), np.array([False]), True, True),
    "unsigned": (np.array([1], np.uint8), np.array([2], np.uint8), True, True),
    "complex": (np.array([1 + 2000j]), np.array([1 + 2001j]), True, False),
    "complex, far": (np.array([1 + 2j]), np.array([1 + 3j]), True, True),
    "half precision": (np.array([2], np.float16), np.array([3], np.float16), True, True),
    "no elements": (f32(), f32(), False, False),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED)
def test_what_differs_in_a_call(name: str) -> None:
    x, y, same, loose = CALLED[name]
    assert compared._differ(x, y, True) is same
    assert compared._differ(x, y, False) is loose


@pytest.fixture
def barred(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(choice, "bar", lambda *args: found.append(args))
    monkeypatch.setattr(choice, "withdraw", lambda problems, reason: found.append((list(problems), reason)))
    return found


def test_every_nth_call_is_compared_with_the_defaults(barred: list[Any]) -> None:
    ran: list[str] = []

    def tuned(natives: Any, begin: Any) -> tuple[Any, ...]:
        assert begin == "begin"
        ran.append("tuned")
        (x,) = natives
        x += 1  # it may write over its inputs
        return x, x * (1 if x[0] < 100 else 2)

    def made() -> Any:
        ran.append("made")
        return lambda natives: (ran.append("default"), (natives[0] + 1, natives[0] + 1))[1]

    program = SimpleNamespace(_run=tuned)
    compare(program, 3, [(PROBLEM, "fast", True), (PROBLEM, "odd", True)], made)  # type: ignore[arg-type]
    for k in range(6):
        assert program._run([f32(k)], "begin")[1] == k + 1
    assert ran == ["tuned", "tuned", "tuned", "made", "default", "tuned", "tuned", "tuned", "default"]
    for _ in range(2):
        program._run([f32(0)], "begin")
    text = (
        "output 1 differs from the default kernels', whose results are used now. In this program: 'fast' of a kernel; 'odd' of"
    )
    with pytest.warns(TuningWarning, match=text):
        assert [x.tolist() for x in program._run([f32(200)], "begin")] == [[201.0], [201.0]]
    reason = "output 1 of a program with it differed from the default kernels'"
    assert barred == [(PROBLEM, "fast", reason), (PROBLEM, "odd", reason)]


@pytest.mark.parametrize(("orders", "wrong"), [((True, True), True), ((True, False), False), ((False,), False), ((), True)])
def test_bits_must_be_the_same_if_all_variants_have_them(orders: tuple[bool, ...], wrong: bool, barred: list[Any]) -> None:
    program = SimpleNamespace(_run=lambda natives, begin: (f32(2.0001),))
    tuned = [(PROBLEM, "fast", order) for order in orders]
    copied, read = [], []
    compare(
        program, 1, tuned, lambda: lambda natives: (f32(2),),  # type: ignore[arg-type]
        lambda x: copied.append(x) or x, lambda x: read.append(float(x[0])) or np.asarray(x),
    )  # fmt: skip
    if wrong:
        with pytest.warns(TuningWarning):
            assert program._run(["x"], None)[0] == f32(2)
    else:
        assert program._run(["x"], None)[0] == f32(2.0001)
    assert copied == ["x"]
    assert len(read) == 2


def test_what_is_tuned_is_collected_where_somebody_asks() -> None:
    one, other = (PROBLEM, "fast", True), (PROBLEM, "odd", False)
    collect(one)
    with collected() as outer:
        collect(one)
        collect(None)
        with collected() as inner:
            collect(other)
        collect(other)
    collect(one)
    assert (outer, inner) == ([one, other], [other])
    assert not is_untuned()
    with untuned():
        with untuned():
            assert is_untuned()
        assert is_untuned()
    assert not is_untuned()


class Clock:
    """Counts what programs take."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Program:
    """A program that takes some time in each call: other times in calls that do not count."""

    def __init__(self, name: str, took: int, clock: Clock, ran: list[str], plan: Any = "ready", writes: Any = "writes") -> None:
        self.name, self.took, self.clock, self.ran = name, took, clock, ran
        self.plan, self.writes, self.fails = SimpleNamespace(ready=plan), writes, False
        self._run = self.run

    def run(self, natives: Any, begin: Any) -> tuple[Any, ...]:
        number = len(self.ran)
        self.ran.append(self.name)
        if self.fails:
            self.ran.pop()
            raise IndexError
        counts = number // RUN >= 2 * WARM and number % RUN
        self.clock.now += self.took if counts else 10**9 * (self.name == "tuned")
        return natives, begin

    def __call__(self, natives: Any, begin: Any = None) -> tuple[Any, ...]:
        return self.run(natives, begin)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(whole_programs, "perf_counter", found)
    return found


@pytest.mark.parametrize(("took", "kept"), [(97, True), (98, False), (100, False), (50, True)])
def test_a_program_keeps_its_variants_if_it_is_faster_by_more_than_2_percent(
    took: int, kept: bool, clock: Clock, barred: list[Any]
) -> None:
    ran: list[str] = []
    program, other = Program("tuned", took, clock, ran), Program("default", 100, clock, ran)
    keep_if_faster(program, [(PROBLEM, "fast", True), (PROBLEM, "odd", True)], lambda: other)  # type: ignore[arg-type]
    turn = ["tuned"] * RUN + ["default"] * RUN
    for k in range(CALLS - 1):
        assert program._run(k, "begin") == (k, "begin")
        if k in (5, 40):
            program.fails = other.fails = True
            with pytest.raises(IndexError):
                program._run(k, None)
            program.fails = other.fails = False
    assert not barred
    assert program._run != program.run
    program._run(0, None)
    assert ran == turn * (WARM + ROUNDS)
    assert program._run == program.run, "what runs from now on"
    reason = f"a program took {took}000000 µs with variants, and 100000000 µs without"
    assert barred == ([] if kept else [([PROBLEM, PROBLEM], reason)])
    for _ in range(4):
        program._run(0, None)
    assert ran[CALLS:] == ["tuned"] * 4


def test_a_call_that_is_under_way_when_it_is_decided_runs_the_variants(clock: Clock, barred: list[Any]) -> None:
    ran: list[str] = []
    program, other = Program("tuned", 1, clock, ran), Program("default", 1, clock, ran)
    keep_if_faster(program, [(PROBLEM, "fast", True)], lambda: other)  # type: ignore[arg-type]
    measured = program._run
    for _ in range(CALLS + 5):
        measured(0, None)
    assert ran[CALLS:] == ["tuned"] * 5
    assert len(barred) == 1


@pytest.mark.parametrize("other", [{"plan": "another"}, {"writes": "others"}])
def test_programs_of_other_memory_are_not_compared(other: dict[str, Any], clock: Clock) -> None:
    program = Program("tuned", 1, clock, [])
    keep_if_faster(program, [(PROBLEM, "fast", True)], lambda: Program("default", 1, clock, [], **other))  # type: ignore[arg-type, return-value]
    assert program._run == program.run
