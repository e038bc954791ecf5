"""Faults of compiled programs: the same error in every run, with the index and the line, and state as it was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu.eager import ESTIMATES
from firebrick.compiler.program import plan
from firebrick.core.errors import ExecutionError, OutOfRangeError
from firebrick.functions.checks import staged
from firebrick.graph.program import Program
from firebrick.ops import OPS
from firebrick.random import Generator

LONG = 1 << 17
"""Indices of an operation that runs on several threads."""


def indices(size: int, seed: int, *wrong: int) -> fb.Tensor:
    """Indices into ``size`` elements, with some others at random positions."""
    rng = np.random.default_rng(seed)
    at = rng.integers(0, size, LONG)
    at[rng.choice(LONG, len(wrong), replace=False)] = wrong
    return fb.asarray(at)


def text(call: Callable[[], Any]) -> str:
    """The error of a call."""
    with pytest.raises(OutOfRangeError) as caught:
        call()
    return str(caught.value)


def line_of(f: Callable[..., Any], down: int) -> str:
    """A line of a function, as errors show it."""
    code = getattr(f, "__wrapped__", f).__code__
    return f"test_faults_of_programs.py:{code.co_firstlineno + down} in {code.co_name}"


def around_the_host(a: fb.Tensor, b: fb.Tensor, i: fb.Tensor, j: fb.Tensor, k: fb.Tensor) -> fb.Tensor:
    x = fb.take(a, i) * 2.0
    y = fb.take(b, j) + 1.0
    m = fb.linalg.inv(fb.reshape(x[:16] + 1.0, (4, 4)) + 9.0 * fb.eye(4))  # on the host, between two segments
    return fb.sum(x + y) * fb.sum(fb.exp(fb.take(fb.reshape(m, (16,)), k)))


WRONG = {
    "the first segment": ((300, 90_000), (), (), 1, 300),
    "two kernels of the first segment": ((2**40, 301), (-401, 400), (), 1, 301),
    "the second line": ((), (400, -(2**33), 401), (), 2, -(2**33)),
    "the last segment": ((), (), (16, -17), 4, -17),
    "the first and the last segment": ((), (401, 400), (16, -17), 2, 400),
    "all": ((-301, 300), (401, 400), (16, -17), 1, -301),
}
"""Wrong indices of the three operations, the line of the error, and its index."""


@pytest.mark.parametrize("name", WRONG)
def test_a_program_reports_the_same_fault_in_every_run_on_any_number_of_threads(name: str) -> None:
    a, b = fb.asarray(np.linspace(0.1, 0.9, 300)), fb.asarray(np.linspace(0.0, 1.0, 400))
    good = indices(300, 0), indices(400, 1), indices(16, 2)
    *wrong, line, index = WRONG[name]
    bad = tuple(indices(size, seed, *w) for seed, (size, w) in enumerate(zip((300, 400, 16), wrong, strict=True)))
    program = fb.jit(around_the_host)
    want, told = program(a, b, *good).item(), set()
    for threads in (1, 2, 3, 4):
        with fb.config.scope(num_threads=threads):
            for _ in range(12):
                told.add(text(lambda: program(a, b, *bad)))
            assert program(a, b, *good).item() == want
    (message,) = told
    assert message.startswith("take: indices must lie in")
    assert f"\nReceived: {index}, at " in message
    assert line_of(around_the_host, line) in message


def test_the_error_has_the_index_for_programs_too() -> None:
    f = fb.jit(lambda x, i: fb.take(x * 2.0, i))
    with pytest.raises(OutOfRangeError) as caught:
        f(fb.ones((5,)), fb.asarray([4, 9, -7, 6]))
    assert caught.value.context["index"] == -7


class State:
    """A weight and a counter, changed by compiled steps that look up elements at an index."""

    def __init__(self) -> None:
        self.w, self.n, self.generator = fb.asarray(np.linspace(0.0, 1.0, 600).reshape(20, 30)), fb.zeros(()), Generator(4)

    def bits(self) -> tuple[Any, ...]:
        # read through a copy: memory that NumPy has seen is not donated
        return (self.w * 1.0).numpy().tobytes(), (self.n * 1.0).item(), self.generator.mark()


def before_the_update(s: State, i: fb.Tensor) -> fb.Tensor:
    y = fb.take(s.w, i, axis=0)
    s.n += 1.0
    s.w -= 0.1 * fb.exp(s.w)
    return fb.sum(y + s.generator.uniform((30,)))


def of_the_updated_weight(s: State, i: fb.Tensor) -> fb.Tensor:
    s.n += 1.0
    s.w -= 0.1 * fb.exp(s.w) * s.generator.uniform((30,))
    return fb.sum(fb.take(s.w, i, axis=0))


def at_an_index_that_the_update_gives(s: State, i: fb.Tensor) -> fb.Tensor:
    s.n += 1.0
    s.w += s.generator.uniform((30,))
    return fb.sum(fb.take(s.w, fb.argmax(s.w, axis=1) + i[0] - fb.argmax(s.w, axis=1), axis=0))


def in_place_at_the_indices(s: State, i: fb.Tensor) -> fb.Tensor:
    s.n += 1.0
    s.w[...] = fb.index_add(s.w, i, fb.ones((i.shape[0], 30)) * s.generator.uniform((30,)), axis=0)
    return fb.sum(s.w)


def after_the_host(s: State, i: fb.Tensor) -> fb.Tensor:
    s.n += 1.0
    s.w *= 0.5
    m = fb.linalg.inv(s.w[:20, :20] @ s.w[:20, :20].T + 9.0 * fb.eye(20) + s.generator.uniform((20,)))
    return fb.sum(fb.take(m, i, axis=0))


STEPS = (before_the_update, of_the_updated_weight, at_an_index_that_the_update_gives, in_place_at_the_indices, after_the_host)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_state_is_as_it_was_after_a_fault_in_any_part_of_a_step(step: Any, threads: int) -> None:
    good, bad = fb.asarray([1, 5, -3]), fb.asarray([25, -41, 2])
    with fb.config.scope(num_threads=threads):
        s, compiled = State(), fb.jit(step)
        compiled(s, good)
        for _ in range(3):
            before = s.bits()
            with pytest.raises(OutOfRangeError):
                compiled(s, bad)
            assert s.bits() == before
            compiled(s, good)
            assert s.bits() != before
            assert s.n.item() == before[1] + 1.0


@pytest.mark.parametrize("step", STEPS[1:], ids=lambda f: f.__name__)
def test_state_that_a_plan_overwrote_before_its_fault_is_lost_and_says_so(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that does not check indices first: the test before this one can fail."""
    monkeypatch.setattr(plan, "_checked", lambda *_: set())
    with fb.config.scope(cache_dir="off"):
        s, compiled = State(), fb.jit(step)
        compiled(s, fb.asarray([1, 5, -3]))
        with pytest.raises(OutOfRangeError):
            compiled(s, fb.asarray([25, -41, 2]))
        with pytest.raises(ExecutionError, match=rf"its values are lost\n(.|\n)*{step.__name__}"):
            s.bits()


def test_eager_operations_with_kernels_of_their_own_check_no_indices() -> None:
    assert [name for name in ESTIMATES if OPS[name].indexes is not None] == []


@pytest.mark.parametrize("known", [(0, 2), (0, 3), None])
def test_a_check_that_is_known_to_hold_is_not_looked_at_before_state_is_overwritten(
    known: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that knows the values of integers without a wait need not wait for what they decide."""
    device = fb.device("cpu:0")
    monkeypatch.setattr(type(device.backend), "known_ranges", lambda self, natives: [known for _ in natives])
    looked: list[int] = []
    look = Program.look
    monkeypatch.setattr(Program, "look", lambda *a: (looked.append(1), look(*a))[1])
    w = fb.zeros(1 << 14)

    def step(count: fb.Tensor) -> None:
        nonlocal w
        assert staged(lambda: fb.less(count, 3), lambda: fb.OutOfRangeError("a count below 3", "3", "pass less"))
        w += 1.0

    run = fb.jit(step)
    for _ in range(3):
        run(fb.asarray(2))
    assert w[0].item() == 3.0
    assert len(looked) == (0 if known == (0, 2) else 3)
