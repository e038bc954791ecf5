"""Programs with variants that were the fastest alone keep them if they are faster with them, and only then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_variants import chosen_in_trial, take_turns

import firebrick as fb
from firebrick.backends.cpu.tuning import device_key
from firebrick.compiler.program.python import Executable
from firebrick.compiler.tune import choice, whole_programs
from firebrick.compiler.tune.whole_programs import CALLS


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path) -> Iterator[None]:
    with fb.config.scope(cache_dir=str(tmp_path), num_threads=2, tune="on"):
        choice.forget()
        yield
    choice.forget()


def _scores(x: Any, w: Any) -> Any:
    return fb.softmax(x @ w.mT, axis=-1)


def _variants() -> set[str]:
    return {c.variant for c in choice.choices()}


@pytest.fixture
def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    return [fb.asarray(rng.normal(size=shape).astype(np.float32)) for shape in ((480, 256), (560, 256))]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call of a program that is compared: whether it ran the tuned kernels."""
    found: list[bool] = []
    keep = whole_programs.keep_if_faster

    def noted(program: Executable, tuned: Any, default: Any) -> None:
        def watched(p: Executable, is_tuned: bool) -> None:
            run = p._run
            p._run = lambda natives, begin: (found.append(is_tuned), run(natives, begin))[1]

        def made() -> Executable:
            other: Executable = default()
            watched(other, False)
            return other

        watched(program, True)
        keep(program, tuned, made)

    monkeypatch.setattr("firebrick.backends.cpu.engine.keep_if_faster", noted)
    return found


@pytest.mark.parametrize("faster", [True, False])
def test_the_first_calls_decide(arguments: list[Any], ran: list[bool], faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen_in_trial(monkeypatch)
    take_turns(monkeypatch, 3e-6 if faster else 4e-6, 4e-6 if faster else 3e-6)
    scores = fb.jit(_scores)
    with fb.config.scope(tune="off"):
        expected = fb.jit(_scores)(*arguments).numpy()
    for _ in range(CALLS + 5):
        assert np.array_equal(scores(*arguments).numpy(), expected)
    assert ran.count(False) == CALLS // 2
    assert ran[: 4 * whole_programs.RUN] == [*[True] * whole_programs.RUN, *[False] * whole_programs.RUN] * 2
    assert ran[CALLS:] == ([True] * 5 if faster else [])  # without variants there is nothing to compare
    assert ("threads=1" in _variants()) is faster
    reason = "a program took 4 µs with variants, and 3 µs without"
    assert (reason in fb.explain_tuning()) is not faster
    choice.forget()
    fb.jit(_scores)(*arguments)  # as in a later process
    assert ("threads=1" in _variants()) is faster
    assert (reason in fb.explain_tuning()) is not faster


def test_donated_memory_is_written_by_the_program_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen_in_trial(monkeypatch)
    model = fb.nn.Linear(256, 560)
    optimizer = fb.optim.SGD(model, lr=0.1, momentum=0.9)
    x = fb.random.normal((480, 256))

    @fb.jit
    def step(x: Any) -> Any:
        value, gradients = fb.value_and_grad(lambda m: fb.mean(m(x) ** 2))(model)
        optimizer.update(model, gradients)
        return value

    state = {name: p.numpy().copy() for name, p in model.named_parameters()}
    losses = [step(x).item() for _ in range(CALLS + 2)]
    assert "threads=1" in _variants() or "a program took" in fb.explain_tuning()
    with fb.config.scope(tune="off"):
        again = fb.nn.Linear(256, 560)
        for name, p in again.named_parameters():
            p[...] = fb.asarray(state[name])
        model, optimizer = again, fb.optim.SGD(again, lr=0.1, momentum=0.9)
        second = fb.jit(step.__wrapped__)
        assert [second(x).item() for _ in range(CALLS + 2)] == losses


def test_calls_that_raise_do_not_count(arguments: list[Any], ran: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen_in_trial(monkeypatch)
    x, w = arguments
    total = fb.zeros(480)

    @fb.jit
    def step(at: Any) -> None:
        nonlocal total
        total += fb.take(fb.sum(_scores(x, w) ** 2.0, axis=-1), at, axis=0)

    good, bad = fb.arange(480), fb.full(480, 480)
    step(good)
    once = total.numpy().copy()
    for _ in range(CALLS - 2):
        with pytest.raises(IndexError, match="take"):
            step(bad)
    assert np.array_equal(total.numpy(), once)
    assert ran == [True] * (CALLS - 1)
    step(good)
    assert np.array_equal(total.numpy(), once + once)
    for _ in range(CALLS):
        step(good)
    assert ran.count(False) == CALLS // 2


def test_forced_and_pinned_variants_are_not_compared(arguments: list[Any], ran: list[bool]) -> None:
    with fb.force_variant("threads=1"):
        fb.jit(_scores)(*arguments)
    choice.pin({})
    fb.jit(_scores)(*arguments)
    choice.pin(None)
    assert not ran


def test_a_program_that_is_dropped_while_it_is_compared_is_freed(arguments: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen_in_trial(monkeypatch)
    choice.active(device_key())  # from then on programs depend on the number of threads, and are compiled again
    made: list[weakref.ref[Executable]] = []
    keep = whole_programs.keep_if_faster

    def noted(program: Executable, *rest: Any) -> None:
        made.append(weakref.ref(program))
        keep(program, *rest)

    monkeypatch.setattr("firebrick.backends.cpu.engine.keep_if_faster", noted)
    scores = fb.jit(_scores)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            scores(*arguments)
        assert [w() is None for w in made] == [False]
        del scores
        assert made[0]() is None
    finally:
        gc.enable()


def test_what_was_measured_with_one_number_of_threads_serves_no_other(
    arguments: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen_in_trial(monkeypatch)
    scores = fb.jit(_scores)
    scores(*arguments)
    assert {(c.problem.threads, c.variant) for c in choice.choices()} == {(2, "threads=1")}
    with fb.config.scope(tune="cached"):
        scores(*arguments)
        fb.config.num_threads = 3
        scores(*arguments)
    assert {(c.problem.threads, c.variant) for c in choice.choices()} == {(2, "threads=1"), (3, "default")}
    device = choice.choices()[-1].problem.device
    assert choice.stamp(device, 2) != choice.stamp(device, 3)  # and stored programs
