"""Buffers for plans: alignment, size classes, reuse, bounds, several threads."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firebrick.backends.cpu.runtime.arena import ALIGNMENT, ArenaPool, aligned, size_class


@given(st.integers(0, 2**40))
def test_a_size_class_holds_the_request_and_wastes_little(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size >= nbytes
    assert size == 4096 or size <= nbytes * 1.25
    assert size_class(size) == size
    assert size % 1024 == 0


@given(st.integers(1, 100_000), st.sampled_from([64, 128, 4096]))
def test_memory_is_aligned(nbytes: int, alignment: int) -> None:
    found = aligned(nbytes, alignment)
    assert found.ctypes.data % alignment == 0
    assert found.shape == (nbytes,)
    found[:] = 7  # all of it is there


def test_a_buffer_given_back_is_used_again_for_its_class() -> None:
    pool = ArenaPool()
    one = pool.take(10_000)
    assert one.ctypes.data % ALIGNMENT == 0
    where = one.ctypes.data
    pool.give(one)
    del one
    assert pool.take(30_000).ctypes.data != where
    again = pool.take(9_500)
    assert again.ctypes.data == where
    assert pool.take(9_500).ctypes.data != where  # it is in use


def test_the_statistics_tell_what_is_in_use() -> None:
    pool = ArenaPool()
    assert pool.stats() == {"live": 0, "peak": 0, "kept": 0}
    a, b = pool.take(4096), pool.take(8192)
    assert pool.stats() == {"live": 12288, "peak": 12288, "kept": 0}
    pool.give(a)
    assert pool.stats() == {"live": 8192, "peak": 12288, "kept": 4096}
    assert pool.release() == 4096
    assert pool.stats() == {"live": 8192, "peak": 8192, "kept": 0}
    pool.give(b)
    assert pool.stats() == {"live": 0, "peak": 8192, "kept": 8192}


def test_what_is_kept_is_bounded() -> None:
    pool = ArenaPool(most=3 * 4096)
    held = [pool.take(100) for _ in range(5)]
    for buffer in held:
        pool.give(buffer)
    assert pool.stats() == {"live": 0, "peak": 5 * 4096, "kept": 3 * 4096}


def test_a_run_gives_its_buffer_back_also_by_an_exception() -> None:
    pool = ArenaPool()
    with pytest.raises(RuntimeError, match="stop"), pool.run(5000):
        raise RuntimeError("stop")
    assert pool.stats()["live"] == 0
    with pool.run(5000) as buffer, pool.run(5000) as other:
        assert not np.shares_memory(buffer, other)


def test_where_memory_is_short_unused_buffers_go_first_and_then_it_is_said() -> None:
    pool = ArenaPool()
    pool.give(pool.take(10_000))
    before = pool.stats()["live"]
    with pytest.raises(MemoryError):
        pool.take(2**60)
    assert pool.stats()["live"] == before
    assert pool.stats()["kept"] == 0
    pool.take(10_000)[:] = 1


def test_threads_never_share_a_buffer() -> None:
    pool = ArenaPool()
    wrong: list[int] = []

    def work(number: int) -> None:
        for k in range(300):
            with pool.run(1000 * (1 + k % 9)) as buffer:
                buffer[:] = number
                if not (buffer == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert pool.stats()["live"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_does_not_wait_for_a_thread_it_does_not_have() -> None:
    pool = ArenaPool()
    with pool._lock:  # as if another thread were in it
        pid = os.fork()
        if not pid:
            pool.give(pool.take(100))
            os._exit(23)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 23
