"""Compiled functions in many threads, across a fork, under Ctrl-C, at the interpreter's end, and when one fails half way."""

from __future__ import annotations

import faulthandler
import itertools
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.graph.program import Program, Taken
from firebrick.testing import assert_max_traces

pytestmark = pytest.mark.usefixtures("nothing_left")

THREADS = 8
SECONDS = 0.3  # that threads call at once in each test of that: three seconds in all


@pytest.fixture(autouse=True)
def no_deadlock() -> Iterator[None]:
    """A deadlock ends the run with the stack of every thread."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Threads take turns often, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run ``work(i)`` in many threads that begin at once; raises what one of them raised."""
    barrier, errors = threading.Barrier(threads), []

    def run(i: int) -> None:
        try:
            barrier.wait(60)
            work(i)
        except BaseException as e:  # noqa: BLE001 - raised below
            errors.append(e)

    running = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for t in running:
        t.start()
    for t in running:
        t.join(100)
        assert not t.is_alive()
    if errors:
        raise errors[0]


def rounds() -> Iterator[int]:
    """0, 1, 2, … for ``SECONDS``."""
    end = time.perf_counter() + SECONDS
    for k in itertools.count():
        if time.perf_counter() > end:
            return
        yield k


def python(code: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip


# at once


def test_one_key_is_compiled_once_and_every_thread_gets_its_own_result(device) -> None:
    w = fb.asarray([1.0, 2.0, 3.0], device=device)
    f = fb.jit(lambda x, n: fb.sum(fb.tanh(x * w) * n) + x[0])

    def work(i: int) -> None:
        x = fb.full((3,), float(i), device=device)
        expected = f.fn(x, float(i)).item()
        for _ in rounds():
            assert f(x, float(i)).item() == pytest.approx(expected, rel=1e-6)

    with assert_max_traces(1, f):
        together(work)
    assert f.traces == 1


def test_each_of_many_keys_is_compiled_once() -> None:
    f = fb.jit(lambda x: fb.sum(x) * 2.0)

    def work(i: int) -> None:
        for k in rounds():
            n = (i + k) % 6 + 1
            assert f(fb.ones(n)).item() == 2.0 * n

    together(work)
    assert f.traces == 6


def test_threads_trace_functions_that_share_a_model() -> None:
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(4, 8), fb.nn.ReLU(), fb.nn.Linear(8, 1))
    x = fb.random.normal((3, 4))
    expected = model(x).numpy()

    def work(i: int) -> None:
        for k in rounds():
            f = fb.jit(lambda x, k=k: model(x) + float(k))
            for _ in range(3):
                assert np.allclose(f(x).numpy(), expected + k, atol=1e-5)
                assert np.allclose(model(x).numpy(), expected, atol=1e-5)  # eager, while others trace

    together(work)


def test_updates_under_a_lock_are_all_done_and_readers_see_finished_steps(device) -> None:
    state = [fb.zeros(64, device=device), fb.zeros(64, device=device)]
    lock, done = threading.Lock(), [0]

    @fb.jit
    def step(x: fb.Tensor) -> fb.Tensor:
        state[0][...] = state[0] + x
        state[1][...] = state[1] - x
        return fb.sum(state[0])

    total = fb.jit(lambda: fb.max(state[0]) - fb.min(state[0]))
    x = fb.ones(64, device=device)

    def work(i: int) -> None:
        for _ in rounds():
            if i % 2:
                with lock:
                    step(x)
                    done[0] += 1
            else:
                seen = state[0].numpy()
                assert (seen == seen[0]).all()
                seen = (state[1] * 2.0).numpy()
                assert (seen == seen[0]).all()
                assert total().item() == 0.0

    together(work)
    assert state[0].tolist() == [float(done[0])] * 64
    assert state[1].tolist() == [-float(done[0])] * 64
    assert step.traces == 1


def test_a_step_that_ends_while_another_thread_traces_its_state_is_not_lost(device) -> None:
    state, x = fb.zeros(3, device=device), fb.ones(3, device=device)
    computed, traced = threading.Event(), threading.Event()

    @fb.jit
    def step(x: fb.Tensor) -> None:
        state[...] = state + x

    step(x)
    program = next(iter(step._entries.graphs.values())).program
    run = program._run

    def slow(*args):
        made = run(*args)
        computed.set()
        assert traced.wait(60)
        return made

    program._run = slow
    stepping = threading.Thread(target=step, args=(x,))
    stepping.start()
    assert computed.wait(60)

    @fb.jit
    def read() -> fb.Tensor:
        traced.set()
        stepping.join(60)
        return state * 1.0

    assert read().tolist() == [2.0, 2.0, 2.0]
    assert state.tolist() == [2.0, 2.0, 2.0]


def test_training_in_one_thread_while_others_evaluate() -> None:
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(4, 4), fb.nn.Dropout(0.1, seed=0), fb.nn.Linear(4, 1))
    optimizer = fb.optim.Adam(model, lr=0.01)
    grads = fb.value_and_grad(lambda m, x: fb.mean(m(x) ** 2.0))
    x = fb.random.normal((8, 4))

    @fb.jit
    def train(x: fb.Tensor) -> fb.Tensor:
        loss, g = grads(model, x)
        optimizer.update(model, g)
        return loss

    evaluate = fb.jit(lambda x: model(x))
    losses = [train(x).item()]

    def work(i: int) -> None:
        for _ in rounds():
            if i == 0:
                losses.append(train(x).item())
            else:
                assert np.isfinite((evaluate if i % 2 else model)(x).numpy()).all()

    together(work)
    assert losses[-1] < losses[0]
    assert (train.traces, evaluate.traces) == (1, 1)


def test_what_another_thread_looks_at_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    f = fb.jit(lambda x: x * 2.0)
    x = fb.asarray([1.0, 2.0])
    f(x)
    find = Program.inputs

    def taken_after(self: Program, *args: Any) -> list[Any]:
        found = find(self, *args)
        data, x.storage.data = x.storage.data, Taken("another thread's step")
        x.storage.data.thread = -1
        Timer(0.01, setattr, (x.storage, "data", data)).start()
        return found

    monkeypatch.setattr(Program, "inputs", taken_after)
    assert f(x).tolist() == [2.0, 4.0]


def test_gradients_through_one_compiled_function_in_many_threads() -> None:
    f = fb.jit(lambda x: fb.sum(x**3.0))

    def work(i: int) -> None:
        x = fb.full((4,), float(i))
        for _ in rounds():
            assert fb.grad(f)(x).tolist() == [3.0 * i * i] * 4

    together(work)
    assert f.traces == 1


def test_a_trace_that_fails_in_one_thread_does_not_stop_the_others() -> None:
    f = fb.jit(lambda x, bad: x.item() if bad else x + 1.0)

    def work(i: int) -> None:
        for _ in rounds():
            if i % 2:
                with pytest.raises(fb.DataDependentError):
                    f(fb.asarray(1.0), True)
            else:
                assert f(fb.asarray(1.0), False).item() == 2.0

    together(work)


# processes


def _in_child() -> None:
    f = fb.jit(lambda x: x * 2.0)
    assert f(fb.ones(2)).tolist() == [2.0, 2.0]


def test_a_spawned_process_compiles_for_itself() -> None:
    process = multiprocessing.get_context("spawn").Process(target=_in_child)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork, which this system lacks")
def test_a_forked_process_uses_compiled_functions_and_is_not_in_its_parents_trace() -> None:
    done = python("""
        import os, threading, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import firebrick as fb
        w = fb.ones(3)
        f = fb.jit(lambda x: x * w)
        f(fb.ones(3))
        heard, told = os.pipe()
        allowed = threading.Lock()
        allowed.acquire()

        def slow(x):
            y = x * w
            os.write(told, b"inside")
            allowed.acquire()
            return y

        thread = threading.Thread(target=lambda: fb.jit(slow)(fb.ones(3)))
        thread.start()
        os.read(heard, 6)
        pid = os.fork()
        if pid == 0:
            try:
                assert w.tolist() == [1.0, 1.0, 1.0]
                assert f(fb.ones(3)).tolist() == [1.0, 1.0, 1.0]
                assert fb.jit(lambda x: x + w)(fb.ones(3)).tolist() == [2.0, 2.0, 2.0]
                assert fb.jit(lambda x: x + 3.0)(w).tolist() == [4.0, 4.0, 4.0]
                os._exit(0)
            except BaseException as e:
                os.write(2, repr(e).encode())
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        allowed.release()
        thread.join(60)
        assert w.tolist() == [1.0, 1.0, 1.0]
        print("status", status)
    """)
    assert (done.stdout, done.stderr) == ("status 0\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork, which this system lacks")
def test_a_forked_process_finds_all_locks_free_that_other_threads_held() -> None:
    done = python("""
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        import firebrick as fb
        from firebrick.backends import registry
        from firebrick.backends.numpy import blas
        from firebrick.core.device import Device
        from firebrick.random import defaults
        from firebrick.scalar import expr

        inside, allowed = threading.Barrier(8), threading.Event()
        heard, told = os.pipe()
        gate = threading.Lock()
        gate.acquire()

        def body(x):
            os.write(told, b"inside")
            gate.acquire()
            return fb.sin(x) + 1.0

        f = fb.jit(body)
        fb.random.normal((1,))
        generator = fb.random.default_generator()
        locks = [expr._lock, Device._lock, registry._lock, blas._lock, defaults._lock, generator._lock]
        locks.append(fb.device("cpu").backend._eager._lock)

        def hold(lock):
            with lock:
                inside.wait()
                allowed.wait()

        x = fb.ones(3)
        threads = [threading.Thread(target=hold, args=(lock,)) for lock in locks]
        threads.append(threading.Thread(target=lambda: f(x)))
        for thread in threads:
            thread.start()
        inside.wait()
        os.read(heard, 6)
        pid = os.fork()
        if pid == 0:
            try:
                gate.release()
                assert f(x).shape == (3,)
                assert fb.jit(lambda x: fb.exp(x) * 2.0 - x)(x).shape == (3,)
                assert fb.random.normal((2,)).shape == (2,)
                assert (fb.ones((8, 8), device="numpy") @ fb.ones((8, 8), device="numpy")).shape == (8, 8)
                fb.device("numpy:1"), fb.exp(fb.ones((2000, 2000)))
                os._exit(0)
            except BaseException as e:
                os.write(2, repr(e).encode())
                os._exit(1)
        for _ in range(100):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                break
            threading.Event().wait(0.05)
        else:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            status = "hung"
        allowed.set()
        gate.release()
        for thread in threads:
            thread.join(60)
        print("status", status)
    """)
    assert (done.stdout, done.stderr) == ("status 0\n", "")


def test_ctrl_c_in_compiled_steps_leaves_the_values_of_a_finished_step() -> None:
    done = python(
        """
        import os, signal, sys, threading, time
        import numpy as np
        import firebrick as fb
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a process that was begun in the background
        a, b, c = (fb.zeros(2000) for _ in range(3))

        @fb.jit
        def step(x):
            a[...] = a + x
            b[...] = b + fb.sin(a) * 0.0 + x
            c[...] = c + x
            return fb.sum(a)

        x = fb.ones(2000)
        step(x)
        main, rng, hit, swallowed = threading.get_ident(), np.random.default_rng(0), 0, []
        sys.unraisablehook = swallowed.append  # Python drops an interrupt that falls into a __del__
        for _ in range(40):
            timer = threading.Timer(float(rng.uniform(0.0, 0.01)), lambda: signal.pthread_kill(main, signal.SIGINT))
            try:
                timer.start()
                known = len(swallowed)
                end = time.perf_counter() + 30
                while time.perf_counter() < end and len(swallowed) == known:
                    step(x)
            except KeyboardInterrupt:
                hit += 1
            timer.join()
            values = [v.numpy() for v in (a, b, c)]
            assert all((v == v[0]).all() for v in values), values
            assert values[0][0] == values[1][0] == values[2][0], [v[0] for v in values]
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        before = a.numpy()[0]
        step(x)
        assert a.numpy()[0] == before + 1
        assert hit >= 20
        print(hit + len(swallowed))
    """,
        timeout=100,
    )
    assert (done.stdout, done.stderr) == ("40\n", "")


def test_ctrl_c_in_a_trace_puts_everything_back() -> None:
    done = python("""
        import os, signal
        import firebrick as fb
        from firebrick.core.hooks import hooks
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a process that was begun in the background
        model = fb.nn.Linear(2, 2)
        optimizer = fb.optim.Adam(model, lr=0.1)
        grads = fb.value_and_grad(lambda m, x: fb.sum(m(x)))
        stop = [True]

        @fb.jit
        def step(x):
            loss, g = grads(model, x)
            optimizer.update(model, g)
            if stop[0]:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(10000):
                    x = x + 1.0
            return loss

        before = model.weight.tolist()
        try:
            step(fb.ones((1, 2)))
        except KeyboardInterrupt:
            print("interrupted")
        assert model.weight.tolist() == before
        assert hooks.tracing == 0
        stop[0] = False
        step(fb.ones((1, 2)))
        assert model.weight.tolist() != before
    """)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_the_interpreter_ends_cleanly_with_compiled_functions_and_threads_alive() -> None:
    done = python("""
        import threading
        import firebrick as fb
        w = fb.zeros(100)

        @fb.jit
        def step(x):
            w[...] = w + x
            return fb.sum(w)

        def run():
            x = fb.ones(100)
            while True:
                step(x)

        step(fb.ones(100))
        started = threading.Thread(target=run, daemon=True)
        started.start()
        class Odd:
            f = fb.jit(lambda x: x + 1.0)
        Odd.f(fb.ones(3))
        kept = [Odd.f, step, fb.jit(fb.nn.Linear(2, 2))]
        print("end")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


# failing half way


class Failing:
    """An executable that fails, before or after it said that it writes."""

    def __init__(self, real, writes: frozenset[int], begins: bool) -> None:
        self.plan, self.writes, self.begins = real.plan, writes, begins

    def __call__(self, natives, begin=None):
        if self.begins:
            begin()
        raise ZeroDivisionError("a broken kernel")


def make_fail(f, begins: bool) -> None:
    (entry,) = f._entries.graphs.values()
    program = entry.program
    real = program.executable()
    assert program._donate
    failing = Failing(real, frozenset(program._donate), begins)
    program.executable = lambda: failing


def test_a_failure_before_the_first_write_leaves_everything_as_it_was(device) -> None:
    w, fixed = fb.zeros(4, device=device), fb.ones(4, device=device)

    @fb.jit
    def step(x: fb.Tensor) -> None:
        w[...] = w + x * fixed

    x = fb.ones(4, device=device)
    step(x)
    storage = w.storage
    make_fail(step, begins=False)
    with pytest.raises(ZeroDivisionError):
        step(x)
    assert w.storage is storage
    assert (w.tolist(), x.tolist(), fixed.tolist()) == ([1.0] * 4, [1.0] * 4, [1.0] * 4)


def test_a_failure_after_the_first_write_poisons_what_was_given_away(device) -> None:
    w, fixed = fb.zeros(4, device=device), fb.ones(4, device=device)

    @fb.jit
    def step(x: fb.Tensor) -> None:
        w[...] = w + x * fixed

    x = fb.ones(4, device=device)
    step(x)
    kept = w.detach()
    step(x)
    make_fail(step, begins=True)
    with pytest.raises(ZeroDivisionError):
        step(x)
    other = fb.jit(lambda v: v * 2.0)
    reads = [
        lambda: w.tolist(), lambda: w + 1.0, lambda: w + fixed, lambda: fixed * w, lambda: w == fixed, lambda: fb.exp(w),
        lambda: fb.concat([fixed, w]), lambda: other(w), lambda: w[0], lambda: step(x), lambda: w.item(),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises((fb.ExecutionError, fb.ShapeError), match=r"(?s)wrote into .*a broken kernel|one element"):
            read()
    assert "lost when" in repr(w)
    assert (kept.tolist(), x.tolist(), fixed.tolist()) == ([1.0] * 4, [1.0] * 4, [1.0] * 4)
    fb.multiply(fixed, 1.0, out=w)  # a new value makes it good again
    assert w.tolist() == [1.0] * 4


def test_memory_that_others_can_see_is_not_given_away(device) -> None:
    w = fb.zeros(4, device=device)

    @fb.jit
    def step(x: fb.Tensor) -> None:
        w[...] = w + x

    x = fb.ones(4, device=device)
    step(x)
    kept = w.detach()
    make_fail(step, begins=True)
    with pytest.raises(ZeroDivisionError):
        step(x)
    assert w.tolist() == kept.tolist() == [1.0] * 4
