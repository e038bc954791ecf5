"""What a context manager of the package returns can be entered again: in turn, nested, and by several threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from threading import Barrier, Thread
from types import FrameType
from typing import Any

import pytest

import firebrick as fb
from firebrick.core.errors import ConfigError
from firebrick.core.scopes import Scope, scope

MADE: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: fb.autocast(fb.bfloat16),
    "detect_anomaly": fb.detect_anomaly,
    "disable_jit": fb.disable_jit,
    "force_variant": lambda: fb.force_variant("*"),
    "memory_persistent_allocations": fb.memory_persistent_allocations,
    "no_grad": fb.no_grad,
    "profile": fb.profile,
    "row_offset": lambda: fb.random.row_offset(2),
    "use_device": lambda: fb.use_device("cpu:1"),
    "verify": fb.verify,
}


@pytest.mark.parametrize("name", MADE)
def test_a_block_is_entered_inside_itself_and_again(name: str) -> None:
    block = MADE[name]()
    with block:
        with block:
            fb.ones(2) + 1.0
        fb.ones(2) + 1.0
    with block:
        fb.ones(2) + 1.0


def test_each_exit_puts_back_what_its_own_entry_found() -> None:
    there, here = fb.use_device("cpu:1"), fb.device()
    with there as found:
        with fb.use_device("numpy"), there:
            assert fb.zeros(1).device is found
        assert fb.zeros(1).device is found
    assert fb.zeros(1).device is here


def test_threads_that_share_a_block_leave_their_own_entry() -> None:
    shared, meet, seen = fb.use_device("cpu:1"), Barrier(2), []

    def work() -> None:
        for _ in range(20):
            with shared:
                meet.wait(10)
                seen.append(fb.zeros(1).device)
            seen.append(fb.zeros(1).device)

    threads = [Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen.count(fb.device("cpu:1")) == seen.count(fb.device()) == 40


def test_a_block_decorates_functions_and_generators_leave_in_any_order() -> None:
    assert fb.no_grad()(lambda x: (x * 2.0).tracked)(fb.ones(1).require_grad()) is False
    left: list[str] = []

    @scope
    def named(name: str) -> Iterator[None]:
        yield
        left.append(name)

    def inside(block: Any) -> Iterator[None]:
        with block:
            yield

    first, second = inside(named("first")), inside(named("second"))
    next(first)
    next(second)
    next(first, None)
    next(second, None)
    assert left == ["first", "second"]


def test_blocks_that_end_before_others_leave_those_to_be_left() -> None:
    left: list[str] = []

    @scope
    def named(name: str) -> Iterator[str]:
        yield name
        left.append(name)

    blocks = [named(name) for name in "abcd"]
    assert [b.__enter__() for b in blocks] == list("abcd")
    for k in (1, 0, 3, 2):
        blocks[k].__exit__(None, None, None)
    assert left == ["b", "a", "d", "c"]
    again = named("e")
    again.__enter__()
    again.__enter__()
    blocks[0].__enter__()
    for block in (again, again, blocks[0]):
        block.__exit__(None, None, None)
    assert left[4:] == ["e", "e", "a"]


def test_a_block_is_left_in_another_context_than_it_was_entered_in() -> None:
    left: list[int] = []

    @scope
    def numbered() -> Iterator[None]:
        number = len(entered)
        entered.append(number)
        yield
        left.append(number)

    entered: list[int] = []
    block = numbered()
    for _ in range(2):
        copy_context().run(block.__enter__)
    for _ in range(2):
        block.__exit__(None, None, None)
    assert left == [1, 0]
    with pytest.raises(ConfigError, match="was entered"):
        block.__exit__(None, None, None)


def test_an_error_may_be_swallowed_or_replaced_by_a_block() -> None:
    @scope
    def swallowing() -> Iterator[None]:
        with suppress(ValueError):
            yield

    with swallowing():
        raise ValueError("x")

    @scope
    def replacing() -> Iterator[None]:
        try:
            yield
        except ValueError:
            raise KeyError("other") from None

    with pytest.raises(KeyError, match="other"), replacing():
        raise ValueError("x")


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration("x"), RuntimeError("x"), KeyboardInterrupt()])
def test_an_error_leaves_a_block_as_it_is(error: BaseException) -> None:
    ended: list[BaseException] = []

    @scope
    def watching() -> Iterator[None]:
        try:
            yield
        except BaseException as e:
            ended.append(e)
            raise

    with pytest.raises(type(error)) as caught, watching():
        raise error
    assert caught.value is error
    assert ended == [error]


def test_an_interrupt_before_a_block_begins_leaves_nothing_set() -> None:
    def interrupted(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is Scope.__enter__.__code__:
            if event == "return":
                raise KeyboardInterrupt
            return interrupted
        return interrupted if event == "call" else None

    sys.settrace(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), fb.no_grad():
            pass
    finally:
        sys.settrace(None)
    gc.collect()
    x = fb.ones(()).require_grad()
    assert fb.backward(x * 2.0)[x].item() == 2.0


def test_a_block_that_was_not_entered_cannot_be_left() -> None:
    with pytest.raises(ConfigError, match="was entered"):
        fb.no_grad().__exit__(None, None, None)
