"""Segments: kernels in order in one call, faults with the operation's name, turns for Python in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import plain_kernels as kernels
import pytest
from plain_kernels import address, gather, table

from firebrick.backends.cpu.runtime.pool import Pool, native, shared_pool
from firebrick.backends.cpu.runtime.segment import Segment, build_segment
from firebrick.compiler.program.launch import Launch, chunk_of, in_sequences, jump
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.core.errors import ExecutionError, KernelCompileError, OutOfRangeError

# y[i] = 10 x[i] + 1, so that the order of two applications shows
STEP = kernels.LOOP.format(
    name="step",
    body="""
  %y = load ptr, ptr %yp
  %p = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %p
  %m = mul i64 %v, 10
  %w = add i64 %m, 1
  %q = getelementptr i64, ptr %y, i64 %i
  store i64 %w, ptr %q""",
)


def arrays(n: int = 3, length: int = 8) -> list[np.ndarray]:
    return [np.zeros(length, np.int64) for _ in range(n)]


def test_kernels_run_in_order_on_the_buffers_they_name() -> None:
    a, b, c = arrays()
    run = build_segment(STEP, [Launch("step", (0, 1), 8), Launch("step", (1, 2), 8), Launch("step", (2, 0), 4)])
    for _ in range(2):
        a[:] = 5
        run(address(table(a, b, c)))
        assert (b == 51).all()
        assert (c == 511).all()
        assert (a == [5111] * 4 + [5] * 4).all()


def test_a_buffer_may_start_inside_another() -> None:
    a, b = arrays(2)
    a[:] = np.arange(8)
    build_segment(STEP, [Launch("step", ((0, 16), (1, 32)), 3)])(address(table(a, b)))
    assert b.tolist() == [0, 0, 0, 0, 21, 31, 41, 0]


def test_a_segment_of_nothing_and_grids_of_length_0_do_nothing() -> None:
    a, b = arrays(2)
    build_segment("", [])(address(table(a)))
    build_segment(STEP, [Launch("step", (0, 1), 0), Launch("absent", (0,), 0)])(address(table(a, b)))
    assert not b.any()


# the flag is whether the count, which it lowers, is not 0
COUNT_DOWN = kernels.LOOP.format(
    name="count_down",
    body="""
  %flag = load ptr, ptr %yp
  %v = load i64, ptr %x
  %w = sub i64 %v, 1
  store i64 %w, ptr %x
  %left = icmp ne i64 %w, 0
  %byte = zext i1 %left to i8
  store i8 %byte, ptr %flag""",
)


def test_jumps_go_over_launches_unless_a_bool_is_true() -> None:
    chain = [jump(4, unless=3), Launch("step", (0, 1), 0), Launch("step", (0, 1), 8), jump(2), Launch("step", (0, 2), 8)]
    for flag in (0, 1):
        a, b, c = arrays()
        a[:] = 5
        build_segment(STEP, chain)(address(table(a, b, c, np.full(1, flag, np.uint8))))
        assert b[0] == (51 if flag else 0)
        assert c[0] == (0 if flag else 51)


@pytest.mark.parametrize("budget", [None, 0])
def test_a_jump_back_repeats_launches_any_number_of_times(budget: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Pool(1)
    count, flag, x, y = np.full(1, 1000), np.ones(1, np.uint8), *arrays(2)
    rounds = [Launch("count_down", (0, 1), 1), Launch("step", (2, 3), 8), Launch("absent", (0,), 0)]
    run = build_segment(COUNT_DOWN + STEP, [jump(5, unless=1), *rounds, jump(-4)])
    caller, turns = crew.caller(), []
    if budget is not None:  # a turn for Python in each round
        caller.set_budget(budget)
    native_run = caller.run
    monkeypatch.setattr(caller, "run", lambda *args: turns.append(args) or native_run(*args))
    run(address(table(count, flag, x, y)), crew)
    assert len(turns) > 990 if budget == 0 else turns
    assert count[0] == 0
    assert (y == 1).all()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_parallel_kernels_are_complete_before_the_next_one_begins(threads: int) -> None:
    crew = Pool(threads)
    a, b, c = arrays(length=5000)
    chain = [Launch("step", (0, 1), 5000, 70), Launch("step", (1, 2), 5000), Launch("step", (2, 0), 5000, 900)]
    run = build_segment(STEP, chain * 3)
    for _ in range(50):
        a[:] = 0
        run(address(table(a, b, c)), crew)
        assert (a == 111111111).all()
    crew.close()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_sequences_run_in_order_each_and_are_complete_before_the_next_kernel_begins(threads: int) -> None:
    crew = Pool(threads)
    a, b, c = arrays(length=60)

    def part(k: int) -> list[Launch]:  # 10 elements from a to b, to c, and to b, for some of them more than once
        there, back = (((0, 80 * k), (1, 80 * k)), ((1, 80 * k), (2, 80 * k)))
        return [Launch("step", there, 10), Launch("step", back, 10), Launch("step", there, 0)] * (1 + k % 3)

    several = in_sequences([part(k) for k in range(6)])
    straight = [x for k in range(6) for x in part(k)]
    chain = [Launch("step", (0, 1), 60), several, Launch("step", (2, 0), 60), several, Launch("step", (2, 1), 60, 7)]
    other = [x for launch in chain for x in (straight if launch is several else [launch])]
    found = []
    for launches in (chain, other):
        run = build_segment(STEP, launches)
        assert run.parallel
        for _ in range(20):
            a[:], b[:], c[:] = 3, 0, 0
            run(address(table(a, b, c)), crew)
        found.append([x.tolist() for x in (a, b, c)])
    crew.close()
    assert found[0] == found[1]
    assert found[0][0] != [3] * 60


def test_a_sequence_with_a_kernel_that_is_nowhere_is_refused() -> None:
    with pytest.raises(KernelCompileError, match="other, nowhere"):
        build_segment(STEP, [in_sequences([[Launch("step", (0, 1), 8)], [Launch("other", (0, 1), 8)]])])


def test_a_whole_reduction_has_the_same_bits_for_1_2_and_4_threads() -> None:
    x = np.random.default_rng(1).standard_normal(100 * kernels.BLOCK).astype(np.float32)
    partial, result = np.zeros(100, np.float32), np.zeros(1, np.float32)
    text = kernels.PARTIAL + kernels.COMBINE.format(blocks=100)
    run = build_segment(text, [Launch("partial", (0, 1), 100, 6), Launch("combine", (1, 2), 1)])
    bits = set()
    for threads in (1, 2, 4):
        crew = Pool(threads)
        for _ in range(20):
            partial[:] = 0
            run(address(table(x, partial, result)), crew)
            bits.add(result.tobytes())
        crew.close()
    assert len(bits) == 1
    assert abs(result[0] - x.sum(dtype=np.float64)) < 0.05
    assert result.tobytes() != x.cumsum(dtype=np.float32)[-1:].tobytes()  # other orders give other bits


def test_kernels_of_other_modules_are_called_where_they_are() -> None:
    a, b = arrays(2)
    module = compile_ir(STEP)
    run = build_segment("", [Launch("step", (0, 1), 8)], modules=[module])
    del module
    run(address(table(a, b)))
    assert (b == 1).all()
    with pytest.raises(KernelCompileError, match="step, nowhere"):
        build_segment("", [Launch("step", (0, 1), 8)])


def test_working_space_is_as_large_as_the_largest_kernel_needs() -> None:
    crew = Pool(1)
    a, b = arrays(2)
    run = build_segment(STEP, [Launch("step", (0, 1), 8, scratch=100), Launch("step", (0, 1), 8, scratch=5000)])
    assert run.scratch == 5000
    run(address(table(a, b)), crew)
    assert crew.caller().stride >= 5000


def test_a_segment_without_parallel_kernels_starts_no_threads() -> None:
    crew = Pool(2)
    a, b = arrays(2)
    run = build_segment(STEP, [Launch("step", (0, 1), 8), Launch("step", (0, 1), 8, 8)])
    assert not run.parallel
    run(address(table(a, b)), crew)
    assert not crew.started


def test_an_index_outside_its_axis_raises_with_the_operation_and_what_is_read_is_clamped() -> None:
    a, b, index = arrays()
    a[:] = np.arange(8) + 100
    take, embedding = Site("take", 8), Site("embedding", 5, "model.py:12")
    run = build_segment(
        gather(0, 8) + gather(1, 5),
        [
            Launch("gather0", (0, 1, 2), 0),
            Launch("gather0", (0, 1, 2), 8, 2, sites=(take,)),
            Launch("gather1", (0, 1, 2), 8, sites=(take, embedding)),
        ],
    )
    bufs = table(a, b, index)
    run(address(bufs))
    index[3] = 6  # wrong for the second
    with pytest.raises(OutOfRangeError) as caught:
        run(address(bufs))
    assert str(caught.value).startswith("embedding: indices must lie in [-5, 5)\nReceived: 6, at model.py:12.\n")
    assert caught.value.context == {"op": "embedding", "index": 6}
    assert isinstance(caught.value, IndexError)
    assert b[3] == 100
    index[5] = -(2**62)  # wrong for both: the first tells
    with pytest.raises(OutOfRangeError, match=rf"take: indices .* \[-8, 8\)\nReceived: {-(2**62)}\."):
        run(address(bufs))
    index[:] = 4
    run(address(bufs))  # the fault is forgotten
    assert (b == 104).all()


def test_a_fault_that_no_check_explains_is_an_error_too() -> None:
    a, b, index = arrays()
    index[0] = 99
    run = build_segment(gather(3, 8), [Launch("gather3", (0, 1, 2), 8, sites=(Site("take", 8),))])
    with pytest.raises(ExecutionError, match="a fault of check 3 of gather3"):
        run(address(table(a, b, index)))


def test_a_long_segment_gives_python_a_turn_and_goes_on_where_it_was() -> None:
    crew = Pool(2)
    a, b, c = arrays()
    chain = [Launch("step", (0, 1), 8), Launch("step", (1, 2), 8, 3), Launch("step", (2, 0), 8)]
    run = build_segment(STEP, chain)
    caller = crew.caller()
    caller.set_budget(0)
    calls = []
    native_call = caller.run

    def counting(*operands: int) -> int:
        calls.append(operands[-1])
        return int(native_call(*operands))

    caller.run = counting
    run(address(table(a, b, c)), crew)
    assert calls == [0, 1, 2]
    assert (a == 111).all()
    caller.set_budget(10_000)
    run(address(table(a, b, c)), crew)
    assert calls == [0, 1, 2, 0]
    crew.close()


def test_short_kernels_do_not_look_at_the_clock() -> None:
    def looks(cost_us: float | None) -> list[int]:
        run = build_segment(STEP, [Launch("step", (0, 1), 1, cost_us=cost_us)] * 12)
        return [k for k, record in enumerate(run._program[4:].reshape(-1, 6)) if record[5]]

    assert looks(100.0) == [5, 10]
    assert looks(None) == looks(1e6) == list(range(1, 12))
    assert looks(1.0) == []


def test_a_fault_before_a_turn_for_python_is_not_lost() -> None:
    crew = Pool(1)
    a, b, index = arrays()
    index[0] = 99
    run = build_segment(gather(0, 8), [Launch("gather0", (0, 1, 2), 8, sites=(Site("take", 8),))] * 2)
    crew.caller().set_budget(0)
    with pytest.raises(OutOfRangeError, match="take"):
        run(address(table(a, b, index)), crew)


def test_the_chunk_comes_from_the_shape_and_the_estimate_alone() -> None:
    assert chunk_of(1000, 29.0) == 0
    assert chunk_of(1, 1e6) == 0
    assert chunk_of(1000, 60.0) == 250
    assert chunk_of(3, 1e6) == 1
    assert -(-100_000 // chunk_of(100_000, 1e9)) <= 256
    for grid in (2, 17, 1000, 12345):
        for cost in (30.0, 31.0, 500.0, 1e7):
            chunk = chunk_of(grid, cost)
            assert 1 <= chunk < grid


def test_extents_that_cannot_be_are_refused() -> None:
    with pytest.raises(KernelCompileError, match="a kernel has a grid ≥ 0"):
        build_segment(STEP, [Launch("step", (0, 1), -1)])
    with pytest.raises(KernelCompileError, match="chunks"):
        build_segment(STEP, [Launch("step", (0, 1), 2**40, 1)])
    assert build_segment(STEP, [Launch("step", (0, 1), 2**40, 2**20), Launch("step", (0, 1), 2**40)]).parallel


def test_names_with_odd_characters_are_quoted() -> None:
    a, b = arrays(2)
    odd = STEP.replace("@step", '@"step 1×2"')
    run = build_segment(odd, [Launch("step 1×2", (0, 1), 8)], name="plan/7")
    run(address(table(a, b)))
    assert (b == 1).all()


def test_threads_and_logical_devices_run_segments_at_once() -> None:
    run = build_segment(STEP, [Launch("step", (0, 1), 4000, 300), Launch("step", (1, 2), 4000, 300)])
    wrong: list[int] = []

    def work(start: int) -> None:
        a, b, c = arrays(length=4000)
        bufs = table(a, b, c)
        for k in range(start, start + 200):
            a[:] = k
            run(address(bufs))
            if not (c == 100 * k + 11).all():
                wrong.append(k)

    crowd = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for t in crowd:
        t.start()
    for t in crowd:
        t.join()
    assert not wrong


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_stops_a_long_segment_between_kernels_and_it_runs_again() -> None:
    code = """
import signal
import numpy as np
import plain_kernels as kernels
from plain_kernels import address, table
from firebrick.backends.cpu.runtime import forkjoin
from firebrick.backends.cpu.runtime.pool import native
from firebrick.backends.cpu.runtime.segment import build_segment
from firebrick.compiler.program.launch import Launch
limit, x = np.array([int(native().ticks_per_us * 100_000)]), np.zeros(100, np.int64)
text = "declare i64 @firebrick_ticks()\\n" + kernels.BUSY
long = build_segment(text, [Launch("busy", (0,), 1)] * 2000 + [Launch("busy", (0,), 4, 1)])
short = build_segment(kernels.COUNT, [Launch("count", (0,), 100, 10)])
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where who started the tests ignores it
try:
    print("ready", flush=True)
    long(address(table(limit)))
except KeyboardInterrupt:
    short(address(table(x)))
    print("stopped", x.sum(), flush=True)
"""
    paths = os.pathsep.join([str(Path(kernels.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, stderr=-1, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=100)  # alone it would take 200 s
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "stopped 100\n"), err


def test_the_process_has_one_pool_for_all_segments() -> None:
    assert shared_pool() is shared_pool()
    assert shared_pool().native is native()
    assert isinstance(build_segment("", []), Segment)
