"""Slots of many tensors, read natively: what Python reads, whatever the objects are, and no reference too many or too few."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu.runtime import slots as native
from firebrick.backends.cpu.runtime.pool import native as pool
from firebrick.core import slots
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    pool()
    before = slots._native
    assert before is not None, "this interpreter's objects are laid out as the native functions take them to be"
    yield
    slots.install(before)


def handles(count: int = 100) -> list[Tensor]:
    made = [fb.asarray(np.full(k % 3, k, np.float32)) for k in range(count)]
    made[5] = fb.nn.Parameter(made[5])
    made[9] = fb.nn.Buffer(made[9])
    return made


def plainly(read: Callable[..., Any], *given: Any) -> Any:
    """What the reader gives without native functions."""
    before = slots.install(None)
    try:
        return read(*given)
    finally:
        slots.install(before)


class Asked:
    """Native functions that count whether they gave an answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[bool] = []
        before = slots._native
        assert before is not None

        def counted(fn: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                found = fn(*given)
                self.answers.append(found is not None)
                return found

            return call

        monkeypatch.setattr(slots, "_native", slots.Native(*(counted(fn) for fn in before)))


def test_the_native_functions_read_what_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, some = Asked(monkeypatch), handles()
    for given in (some, tuple(some), some[:3], []):
        found, wanted = slots.contents(given), plainly(slots.contents, given)
        assert [list(map(id, part)) for part in found[:2]] == [list(map(id, part)) for part in wanted[:2]]
        assert found[2] == wanted[2]
        assert slots.untracked(given) is plainly(slots.untracked, given) is True
    assert asked.answers == [True] * 4  # of the two long ones


def test_a_short_sequence_is_read_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, some = Asked(monkeypatch), handles(slots.LONG - 1)
    slots.contents(some)
    slots.untracked(some)
    slots.identical(tuple(some), tuple(some))
    assert asked.answers == []


@pytest.mark.parametrize("at", [0, 50, 99])
def test_one_tracked_tensor_is_seen(at: int) -> None:
    some = handles()
    some[at] = fb.ones(2).require_grad()
    assert not slots.untracked(some)
    some[at] = fb.ones(2)
    assert slots.untracked(some)


def _proxy(some: list[Any], kept: list[Any]) -> None:
    kept.append(some[50])
    some[50] = weakref.proxy(some[50])


def _own_class(some: list[Any], kept: list[Any]) -> None:
    class Mine(Tensor):
        __slots__ = ("more",)

    some[50] = Mine(some[50].storage, some[50].dtype, some[50].shape, some[50].device)


def _own_storage(some: list[Any], kept: list[Any]) -> None:
    class Own(Storage):
        __slots__ = ()

    old = some[50].storage
    some[50].storage = Own(old.data, old.memory, 0, base=old)


def _other_data(some: list[Any], kept: list[Any]) -> None:
    some[50].storage = Storage("no array", some[50].storage.memory, 0)


@pytest.mark.parametrize("change", [_proxy, _own_class, _own_storage, _other_data])
def test_objects_of_other_kinds_are_read_in_python(change: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    some: list[Any] = handles()
    kept: list[Any] = []
    change(some, kept)
    asked = Asked(monkeypatch)
    found, wanted = slots.contents(some), plainly(slots.contents, some)
    assert asked.answers == [False]
    assert [list(map(id, part)) for part in found[:2]] == [list(map(id, part)) for part in wanted[:2]]
    assert found[2] == wanted[2]
    assert slots.untracked(some) is plainly(slots.untracked, some) is True


@pytest.mark.parametrize("slot", ["storage", "node"])
def test_a_slot_that_is_not_set_raises_as_in_python(slot: str) -> None:
    some = handles()
    delattr(some[50], slot)
    with pytest.raises(AttributeError):
        (slots.contents if slot == "storage" else slots.untracked)(some)
    some = handles()
    del some[50].storage.data
    with pytest.raises(AttributeError):
        slots.contents(some)


def test_references_are_as_many_as_lists_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    for change in (lambda some, kept: None, _other_data):  # also where reading stops halfway
        some: list[Any] = handles()
        change(some, [])
        storages = [t.storage for t in some]
        before = [(getrefcount(s), getrefcount(s.data)) for s in storages], getrefcount(None)
        for _ in range(50):
            found = slots.contents(some)
        assert [getrefcount(s) for s in storages] == [n + 1 for n, _ in before[0]]
        del found
        assert [(getrefcount(s), getrefcount(s.data)) for s in storages] == before[0]
        assert abs(getrefcount(None) - before[1]) < 100  # 10,000 were replaced in lists


def test_identical_compares_objects_not_values() -> None:
    some = tuple(object() for _ in range(200))
    assert slots.identical(some, tuple(iter(some)))
    for at in (0, 100, 199):
        assert not slots.identical(some, (*some[:at], object(), *some[at + 1 :]))
    assert not slots.identical(some, some[:-1])
    equal = tuple(float(k) for k in range(200))
    assert equal == tuple(float(k) for k in range(200))
    assert not slots.identical(equal, tuple(float(k) for k in range(200)))


def test_where_objects_lie_otherwise_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    slots.install(None)
    monkeypatch.setattr(native.sys, "_is_gil_enabled", lambda: False, raising=False)
    assert not native.install(pytest.fail)
    assert slots._native is None
    monkeypatch.undo()
    monkeypatch.setattr(native, "_words", lambda sample, kind: [0] * 8)
    assert native.layout() is None


def test_classes_of_users_are_not_kept_alive() -> None:
    class Mine(Tensor):
        __slots__ = ()

    some = [Mine(t.storage, t.dtype, t.shape, t.device) for t in handles()]
    slots.contents(some)
    gone = weakref.ref(Mine)
    del Mine, some
    gc.collect()
    assert gone() is None


def test_tensors_that_other_threads_rebind_are_read_whole() -> None:
    some, stop = handles(), threading.Event()

    def rebind() -> None:
        k = 0
        while not stop.is_set():
            some[k % 100]._rebind(fb.asarray(np.full(3, k, np.float32)) if k % 2 else fb.asarray(np.zeros(1, np.float32)))
            k += 1

    thread = threading.Thread(target=rebind)
    thread.start()
    try:
        for _ in range(2000):
            storages, data, _ = slots.contents(some)
            assert all(type(s) is Storage for s in storages)
            assert all(a.size in (0, 1, 2, 3) for a in data)
    finally:
        stop.set()
        thread.join()
