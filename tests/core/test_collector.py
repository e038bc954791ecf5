"""The garbage collector while a program is compiled: rarer, never off, and as it was before afterwards."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator

import pytest

import firebrick as fb
from firebrick.core.collector import fewer_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield before
    gc.set_threshold(*before)


def test_the_threshold_is_higher_inside_and_what_it_was_afterwards() -> None:
    with fewer_collections():
        assert gc.get_threshold()[0] > 10_000
        assert gc.isenabled()
        with fewer_collections():
            assert gc.get_threshold()[0] > 10_000
        assert gc.get_threshold()[0] > 10_000
    assert gc.get_threshold() == (700, 10, 10)


def test_the_threshold_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), fewer_collections():
        1 / 0  # noqa: B018 - raises
    assert gc.get_threshold() == (700, 10, 10)


def test_a_function_is_compiled_with_fewer_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    making = sys.modules["firebrick.graph.making"]
    optimize = making.optimize
    monkeypatch.setattr(making, "optimize", lambda graph: seen.append(gc.get_threshold()[0]) or optimize(graph))
    fb.jit(lambda x: x + 1.0)(fb.ones(2))
    assert seen[0] > 10_000
    assert gc.get_threshold() == (700, 10, 10)


def test_what_a_function_reaches_is_looked_through_with_fewer_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    entries = sys.modules["firebrick.graph.entries"]
    whole = entries.Walk
    monkeypatch.setattr(entries, "Walk", lambda roots: seen.append(gc.get_threshold()[0]) or whole(roots))
    fb.jit(lambda x: x + 1.0)(fb.ones(2))
    assert seen
    assert min(seen) > 10_000
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 10, 10)])
def test_a_collector_that_is_off_or_rarer_stays_so(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with fewer_collections():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_a_threshold_that_is_set_meanwhile_stays() -> None:
    with fewer_collections():
        gc.set_threshold(1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)


def test_the_last_of_several_threads_restores_it() -> None:
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with fewer_collections():
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=work)
    with fewer_collections():
        thread.start()
        assert inside.wait(60)
    assert gc.get_threshold()[0] > 10_000
    done.set()
    thread.join(60)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_process_has_the_threshold_of_its_own_thread() -> None:
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with fewer_collections():
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if gc.get_threshold() == (700, 10, 10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    done.set()
    thread.join(60)
