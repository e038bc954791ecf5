"""The fork-join pool: every chunk once, the same bits for any number of threads, nobody waits for an absent one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import plain_kernels as kernels
import pytest
from interrupts import interrupted
from plain_kernels import address, table

import firebrick as fb
from firebrick.backends.cpu.runtime import forkjoin
from firebrick.backends.cpu.runtime.pool import Pool, native, shared_pool
from firebrick.compiler.spec import faults
from firebrick.compiler.targets.llvm.host import Module, Target, compile_ir, emit_assembly, emit_object
from firebrick.core import sharing
from firebrick.core.sharing import sharing_cores, usable_cores

RUNTIME = "backends/cpu/runtime/pool.py"
WAYS = ["futex", "posix"] if sys.platform == "linux" else ["posix"] if os.name == "posix" else ["windows"]
TEXT = "declare i64 @firebrick_ticks()\n" + kernels.COUNT + kernels.PARTIAL + kernels.MEET + kernels.BUSY


@pytest.fixture(scope="module")
def code() -> Module:
    given = native().module
    return compile_ir(TEXT, imports={forkjoin.TICKS: given[forkjoin.TICKS]}, keep=[given])


@pytest.fixture(params=[(n, how) for how in WAYS for n in (1, 2, 3, 4, 12)], ids=lambda p: f"{p[0]}-{p[1]}")
def crew(request: pytest.FixtureRequest) -> Iterator[Pool]:
    made = Pool(*request.param)
    yield made
    made.close()
    assert not made.workers


def word(made: Pool, at: int) -> int:
    return int(made._record[at : at + 4].view(np.int32)[0])


def seconds(n: float) -> int:
    return int(n * 1e6 * native().ticks_per_us)


def test_every_unit_of_the_grid_is_done_once(crew: Pool, code: Module) -> None:
    x = np.zeros(1003, np.int64)
    bufs = table(x)
    for chunk in (1, 2, 7, 64, 500, 501, 502, 1002, 1003, 1004, 10**12):
        for _ in range(30):
            assert crew.parallel_for(code["count"], address(bufs), 1003, chunk) is None
        assert (x == 30).all(), chunk
        x[:] = 0
    crew.parallel_for(code["count"], address(bufs), 0, 4)
    assert not x.any()


@pytest.mark.parametrize("how", WAYS)
def test_a_reduction_has_the_same_bits_for_any_number_of_threads(how: str, code: Module) -> None:
    x = np.random.default_rng(0).standard_normal(200 * kernels.BLOCK).astype(np.float32)
    found = set()
    for threads in (1, 2, 4):
        crew = Pool(threads, how)
        for chunk in (1, 3, 50):
            for _ in range(10):
                partial = np.zeros(200, np.float32)
                bufs = table(x, partial)
                crew.parallel_for(code["partial"], address(bufs), 200, chunk)
                found.add(partial.tobytes())
        crew.close()
    assert len(found) == 1
    (bits,) = found
    np.testing.assert_allclose(np.frombuffer(bits, np.float32), x.reshape(200, -1).sum(1, dtype=np.float64), atol=1e-3)
    # another grid would show: the check can fail
    assert bits != x.reshape(200, -1)[:, ::-1].cumsum(1, dtype=np.float32)[:, -1].tobytes()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("threads", [2, 4, 12])
def test_threads_work_at_the_same_time_each_in_its_own_space(threads: int, how: str, code: Module) -> None:
    crew = Pool(threads, how)
    crew._put(forkjoin.STALL, seconds(1000))  # they wait for each other here, which is no stall
    for _ in range(5):
        x, y = np.zeros(1, np.int64), np.zeros(2 + threads, np.int64)
        y[:2] = threads, seconds(20)
        bufs = table(x, y)
        crew.parallel_for(code["meet"], address(bufs), threads, 1, scratch=1000)
        spaces = sorted(int(s) for s in y[2:])
        # each chunk waited until all had begun, so that each ran on a thread of its own
        assert len(set(spaces)) == threads
        assert all(s % 64 == 0 for s in spaces)
        assert min(b - a for a, b in pairwise(spaces)) >= 1000
    crew.close()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_a_thread_takes_the_chunks_of_its_own_part_first(threads: int, how: str, code: Module) -> None:
    crew = Pool(threads, how)
    crew._put(forkjoin.STALL, seconds(1000))
    for each in (1, 2, 5):
        x, y = np.zeros(1, np.int64), np.zeros(2 + each * threads, np.int64)
        y[:2] = threads, seconds(20)
        crew.parallel_for(code["meet"], address(table(x, y)), each * threads, 1, scratch=64)
        # each chunk waited until all threads were in one, so none could take another's
        spaces = y[2:].reshape(threads, each)
        assert (spaces == spaces[:, :1]).all()
        assert len(set(spaces[:, 0])) == threads
    crew.close()


def test_a_thread_that_has_taken_nothing_is_never_waited_for(code: Module) -> None:
    crew = Pool(4)
    crew.started = True  # so that its workers, of which there are none, might as well be without a core
    x = np.zeros(100, np.int64)
    bufs = table(x)
    for _ in range(10):
        crew.parallel_for(code["count"], address(bufs), 100, 3)
    assert (x == 10).all()


def test_small_work_wakes_nobody(code: Module) -> None:
    crew = Pool(2)
    x = np.zeros(100, np.int64)
    bufs = table(x)
    crew.parallel_for(code["count"], address(bufs), 100, 10)
    rung = word(crew, forkjoin.BELL)
    crew.parallel_for(code["count"], address(bufs), 100, 100)
    assert word(crew, forkjoin.BELL) == rung
    crew.parallel_for(code["count"], address(bufs), 100, 99)
    assert word(crew, forkjoin.BELL) == rung + 1
    crew.close()


def test_a_second_caller_does_its_work_itself_while_the_first_is_busy(code: Module) -> None:
    crew = Pool(2)
    x, y = np.zeros(1, np.int64), np.zeros(4, np.int64)
    y[:2] = 3, seconds(20)  # both chunks of the first caller wait for a third visitor
    first = threading.Thread(target=lambda: crew.parallel_for(code["meet"], address(table(x, y)), 2, 1, 64))
    first.start()
    while x[0] < 2:  # until both threads of the pool are held
        pass
    assert word(crew, forkjoin.OWNER) == 1
    counted = np.zeros(50, np.int64)
    crew.parallel_for(code["count"], address(table(counted)), 50, 5)
    assert (counted == 1).all()
    assert first.is_alive()
    x[0] = 3
    first.join()
    assert word(crew, forkjoin.OWNER) == 0
    crew.close()


def test_callers_in_several_threads_get_all_their_work_done(crew: Pool, code: Module) -> None:
    wrong: list[object] = []

    def call(seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = np.zeros(300, np.int64)
        bufs = table(x)
        for turn in range(1, 400):
            crew.parallel_for(code["count"], address(bufs), 300, int(rng.integers(1, 120)))
            if not (x == turn).all():
                wrong.append((seed, turn, x.copy()))
                return

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not wrong


def test_after_a_stall_callers_work_alone_for_a_while_and_then_together_again(code: Module) -> None:
    crew = Pool(2)
    x, y = np.zeros(1, np.int64), np.zeros(4, np.int64)
    y[:2] = 2, seconds(20)
    together, counted = table(x, y), np.zeros(50, np.int64)

    def rung(chunk: int) -> bool:
        before = word(crew, forkjoin.BELL)
        crew.parallel_for(code["count"], address(table(counted)), 50, chunk)
        return word(crew, forkjoin.BELL) != before

    def until() -> int:
        return int(crew._record[forkjoin.ALONE_UNTIL :][:8].view(np.int64)[0])

    crew._put(forkjoin.STALL, seconds(1000))
    crew.parallel_for(code["meet"], address(together), 2, 1, 64)
    assert until() == 0  # no wait is a stall
    assert rung(5)
    crew._put(forkjoin.STALL, -seconds(1000))
    x[0] = 0
    crew.parallel_for(code["meet"], address(together), 2, 1, 64)
    assert until() > 0  # any wait is one
    crew._put(forkjoin.ALONE_UNTIL, native().ticks() + seconds(1000))
    assert not rung(5)
    crew._put(forkjoin.ALONE_UNTIL, native().ticks())
    assert rung(5)
    assert (counted == 3).all()
    crew.close()


def test_working_space_grows_and_can_be_given_back(code: Module) -> None:
    crew = Pool(2)
    assert crew.caller().stride == 0
    assert crew.caller(1000).stride == 1024
    assert crew.caller(10) is crew.caller(1000)
    assert crew.caller().stride == 1024
    assert crew.release_scratch() == 2048
    assert crew.caller().stride == 0
    others: list[object] = []
    t = threading.Thread(target=lambda: others.append(crew.caller(64)))
    t.start()
    t.join()
    assert others[0] is not crew.caller(64)


@pytest.mark.parametrize(("scratch", "sites"), [(0, 0), (100, 70), (1 << 20, 3000)])
def test_an_interrupt_while_space_is_made_leaves_none_that_is_too_small(scratch: int, sites: int) -> None:
    crew = Pool(3)
    places = interrupted(lambda: crew.caller(1 << 20, 3000), None, RUNTIME)
    assert places > 15
    for at in range(1, places + 1):
        crew = Pool(3)
        crew.caller(100, 70)
        interrupted(lambda crew=crew: crew.caller(1 << 20, 3000), at, RUNTIME)
        found = crew.caller(scratch, sites)
        record = found._record
        stride = int(record[forkjoin.CALLER_STRIDE // 8])
        assert stride >= scratch
        assert record[forkjoin.CALLER_SCRATCH // 8] == found._scratch.ctypes.data
        assert found._scratch.nbytes >= stride * crew.threads
        assert found.faults_address == found.faults.ctypes.data
        assert found.faults.nbytes >= faults.table(sites).nbytes


def test_workers_have_numbers_of_their_own_after_an_interrupted_start(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    fake = SimpleNamespace(**vars(native()))
    fake.worker = lambda address, index: found.append(index)
    monkeypatch.setattr("firebrick.backends.cpu.runtime.pool.native", lambda how=None: fake)
    places = interrupted(Pool(4).start, None, RUNTIME)
    assert places > 10
    for at in range(1, places + 1):
        crew = Pool(4)
        found.clear()
        interrupted(crew.start, at, RUNTIME)
        crew.start()
        crew.close()
        assert sorted(found) == [1, 2, 3], at


def test_the_number_of_threads_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with fb.config.scope(num_threads=3):
        three = shared_pool()
        assert three.threads == 3
        assert shared_pool() is three
        three.start()
    crew = shared_pool()
    assert crew.threads == (fb.config.num_threads or usable_cores())
    assert crew is not three
    assert not three.workers  # they have ended
    for wrong in (-1, "many", 10**6):
        with pytest.raises(fb.ConfigError, match="num_threads"):
            fb.config.num_threads = wrong


def test_cores_are_those_the_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5}, raising=False)
    monkeypatch.setattr(sharing, "_quota", lambda: 1 << 20)
    assert usable_cores() == 3
    monkeypatch.setattr(sharing, "_quota", lambda: 2)
    assert usable_cores() == 2
    monkeypatch.undo()
    limit = tmp_path / "cpu.max"
    for text, cores in (("max 100000\n", 1 << 20), ("150000 100000\n", 2), ("50000 100000\n", 1), ("", 1 << 20)):
        limit.write_text(text)
        assert sharing._quota(str(limit)) == cores
    assert sharing._quota(str(tmp_path / "absent")) == 1 << 20


@pytest.mark.parametrize("how", forkjoin.PARKINGS)
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_pool_can_be_generated_for_every_system(arch: str, how: str) -> None:
    target = Target.named(arch)
    text = emit_assembly(forkjoin.pool_ir(target, how), target)
    assert {"futex": "syscall", "posix": "pthread_cond_wait", "windows": "WaitOnAddress"}[how] in text
    assert ("rdtsc" if arch == "x86_64" else "cntvct_el0".upper()) in text.replace("cntvct_el0", "CNTVCT_EL0")
    assert emit_object(forkjoin.pool_ir(target, how), target)


def test_the_clock_runs() -> None:
    clock = native()
    ticks = [clock.ticks() for _ in range(1000)]
    assert ticks == sorted(ticks)
    assert ticks[-1] > ticks[0]
    assert clock.ticks_per_us > 0


START = """
import os, sys, threading
import numpy as np
import plain_kernels as kernels
from plain_kernels import address, table
from firebrick.backends.cpu.runtime import forkjoin
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.backends.cpu.runtime.pool import native, shared_pool, Pool
given = native().module
text = "declare i64 @firebrick_ticks()\\n" + kernels.COUNT + kernels.BUSY
code = compile_ir(text, imports={forkjoin.TICKS: given[forkjoin.TICKS]}, keep=[given])
x = np.zeros(1000, np.int64)
def count(pool=None):
    (pool or shared_pool()).parallel_for(code["count"], address(table(x)), 1000, 10)
def endless():
    while True:
        count()
"""


def program(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(Path(kernels.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", START + code],
        env={**os.environ, "PYTHONPATH": paths, "FIREBRICK_NUM_THREADS": "2", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_parked_workers_do_not_keep_the_process_alive() -> None:
    done = program("count(); print(shared_pool().threads, len(shared_pool().workers), x.sum())", FIREBRICK_NUM_THREADS="3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 2 1000\n", "")


def test_the_process_ends_cleanly_in_the_middle_of_work() -> None:
    for _ in range(3):
        done = program(
            """
for _ in range(3):
    threading.Thread(target=endless, daemon=True).start()
while x.min() < 100:
    pass
print("end")
"""
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_an_error_in_the_program_still_ends_it() -> None:
    done = program("count(); raise SystemExit(7)")
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    done = program(
        """
count()
own = shared_pool()
threading.Thread(target=endless, daemon=True).start()  # the pool is in the middle of something when the process forks
old = Pool(2); old.start()
for _ in range(10):
    pid = os.fork()
    if not pid:
        x = np.zeros(1000, np.int64)
        assert shared_pool() is not own
        count(); count(own); count(old)
        assert (x == 3).all() and len(shared_pool().workers) == 1 and shared_pool().workers[0].is_alive()
        compile_ir("define void @child() {\\n  ret void\\n}\\n")
        old.close()
        os._exit(23)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 23, status
x2 = x.sum()
count()
print("parent")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "parent\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_multiprocessing_children_compute() -> None:
    done = program(
        """
import multiprocessing as mp
count()
def child(n):
    for _ in range(n):
        count()
    return int(x.sum())
with mp.get_context("fork").Pool(2) as processes:
    print(processes.map(child, [1, 1], chunksize=1)[0] in (2000, 3000))
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_calls_at_the_same_time_have_pools_of_their_own_that_share_the_cores() -> None:
    with fb.config.scope(num_threads=5):
        found = []
        for which in range(3):
            with sharing_cores(which, 3):
                found.append(shared_pool())
                assert shared_pool() is found[-1]
        assert len(set(map(id, [*found, shared_pool()]))) == 4
        assert sum(p.threads for p in found) == 5
        with sharing_cores(0, 1):
            assert shared_pool() is not found[0]
            assert shared_pool().threads == 5
    with fb.config.scope(num_threads=1), sharing_cores(2, 3):
        assert shared_pool().threads == 1


def test_a_part_of_the_cores_gives_the_same_bits() -> None:
    x = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)
    f = fb.jit(lambda a: fb.softmax(a @ fb.permute_dims(a, (1, 0))) * 2.0)
    a = fb.asarray(x, device="cpu")
    with fb.config.scope(num_threads=4):
        whole = f(a).numpy().tobytes()
        for which in range(2):
            with sharing_cores(which, 2):
                assert f(a).numpy().tobytes() == whole
