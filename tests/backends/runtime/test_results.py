"""Memory of results: it is reused when nothing shows it, never before, by any number of threads, and within bounds."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import eager
from firebrick.backends.cpu.runtime import results
from firebrick.backends.cpu.runtime.arena import ALIGNMENT, size_class
from firebrick.backends.cpu.runtime.results import AGE, LEAST, ResultMemory

FLOAT = np.dtype(np.float32)
COUNT = 1 << 20


def made(memory: ResultMemory, nbytes: int = 1 << 20) -> np.ndarray[Any, Any]:
    return memory.empty((nbytes // 4,), FLOAT, nbytes)


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("shape", [(LEAST,), (3, 100_001), (0, 7), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128", "bool"])
def test_a_result_is_an_ordinary_array_aligned_if_it_is_large(shape: tuple[int, ...], dtype: str) -> None:
    np_dtype = fb.core.dtypes.dtype(dtype).np
    nbytes = np_dtype.itemsize * int(np.prod(shape))
    found = ResultMemory().empty(shape, np_dtype, nbytes)
    assert type(found) is np.ndarray
    assert (found.shape, found.dtype, found.nbytes) == (shape, np_dtype, nbytes)
    assert found.flags.c_contiguous
    assert found.flags.writeable
    if nbytes >= LEAST:
        assert address(found) % ALIGNMENT == 0
    found[...] = 1
    assert (found == 1).all()


def test_memory_is_used_again_when_the_array_is_gone() -> None:
    memory = ResultMemory()
    first = made(memory)
    where = address(first)
    assert address(made(memory)) != where
    del first
    again = made(memory, (1 << 20) - 4096)  # of the same size class
    assert address(again) == where
    assert address(made(memory)) != where


def _torch(a: np.ndarray[Any, Any]) -> Any:
    return pytest.importorskip("torch").from_numpy(a)


SHOWN: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "view": lambda a: a.view(),
    "part": lambda a: a[5:7],
    "view of a view": lambda a: a.reshape(2, -1).T[3:5, :1].view(np.uint8),
    "element": lambda a: a[3:4].reshape(()),
    "memoryview": memoryview,
    "part of a memoryview": lambda a: memoryview(a)[2:3],
    "dlpack": lambda a: a.__dlpack__(),
    "by dlpack": np.from_dlpack,
    "by the buffer": lambda a: np.frombuffer(memoryview(a), np.uint8),
    "by the interface": lambda a: np.asarray(_Shows(a)),
    "matrix": lambda a: a.view(np.matrix),
    "record": lambda a: a.view([("x", np.float32), ("y", np.float32)])["y"],
    "flat": lambda a: a.flat,
    "iterator": lambda a: iter(a[:10]),
    "torch": _torch,
    "part of torch": lambda a: _torch(a)[1:3],
    "closure": lambda a: lambda: a,
}


class _Shows:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    @property
    def __array_interface__(self) -> Any:
        return self._array.__array_interface__


@pytest.mark.parametrize("how", SHOWN)
def test_memory_that_something_shows_is_not_used_again(how: str) -> None:
    memory = ResultMemory()
    array = made(memory)
    where = address(array)
    shown = SHOWN[how](array)
    del array
    held = [made(memory) for _ in range(3)]
    assert where not in map(address, held)
    del shown
    gc.collect()
    assert address(made(memory)) == where


def test_copies_have_memory_of_their_own() -> None:
    memory = ResultMemory()
    array = made(memory)
    array[...] = 3
    others = [copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array)), array + 0]
    del array
    made(memory)[...] = 7
    assert all((other == 3).all() for other in others)


def test_memory_in_a_cycle_of_references_becomes_free_when_the_cycle_is_collected() -> None:
    memory = ResultMemory()
    array = made(memory)
    where = address(array)
    cycle: list[Any] = [array]
    cycle.append(cycle)
    del array, cycle
    gc.collect()
    assert address(made(memory)) == where


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    memory = ResultMemory()
    with fb.config.scope(kept_results=3 << 20):
        held = [made(memory) for _ in range(5)]
        where = [address(a) for a in held]
        while held:
            held.pop(0)
        assert memory.kept == 3 << 20
        assert {address(a) for a in [made(memory) for _ in range(3)]} <= set(where[2:])
        del held
        large = made(memory, 4 << 20)
        del large  # larger than the bound: nothing else is dropped for it
        assert memory.kept == 3 << 20


def test_nothing_is_kept_where_that_is_said() -> None:
    memory = ResultMemory()
    with fb.config.scope(kept_results=0):
        made(memory)
        assert memory.kept == 0
    made(memory)
    assert memory.kept == 1 << 20
    with fb.config.scope(kept_results=0):
        made(memory, 1 << 21)
        assert memory.kept == 0


def test_memory_that_serves_nothing_for_long_is_given_back() -> None:
    memory = ResultMemory()
    made(memory, 1 << 22)
    for _ in range(AGE + 100):
        made(memory)
    assert memory.kept == 1 << 20


def test_release_gives_back_what_is_free_and_nothing_else() -> None:
    memory = ResultMemory()
    used, free = made(memory), made(memory)
    used[...] = 5
    del free
    assert memory.release() == 1 << 20
    assert memory.kept == 0
    assert (used == 5).all()


def test_where_memory_is_short_free_buffers_go_first_and_then_it_is_said() -> None:
    memory = ResultMemory()
    made(memory)
    with pytest.raises(MemoryError):
        memory.empty((2**60,), np.dtype(np.uint8), 2**60)
    assert memory.kept == 0
    made(memory)[...] = 1


def test_a_lease_may_end_while_its_memory_is_locked() -> None:
    memory = ResultMemory()
    array = made(memory)
    with memory._lock:  # as in a collection of garbage inside of a method, or beside another thread in one
        del array
    assert memory.kept == 0
    made(memory)
    assert memory.kept == 1 << 20
    assert not memory._ended


def test_threads_never_share_memory() -> None:
    memory = ResultMemory()
    wrong: list[int] = []
    passed: list[Any] = [None] * 4

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(400):
            array = made(memory, LEAST << int(rng.integers(0, 3)))
            array[:] = number
            view = array[100:200]
            del array
            passed[int(rng.integers(0, 4))] = made(memory, LEAST)  # ends in another thread
            if not (view == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    passed.clear()
    made(memory)
    assert not memory._ended
    assert memory.kept == sum(b.size for b in memory._kept.values()) <= 40 << 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_child_has_memory_of_its_own_and_waits_for_no_thread_it_does_not_have() -> None:
    memory = ResultMemory()
    kept = made(memory)
    kept[:] = 1
    made(memory, 1 << 21)
    with memory._lock:  # as if another thread were in it
        pid = os.fork()
        if not pid:
            ended = memory.kept == 0
            made(memory)[:] = 2
            right = bool((kept == 1).all())
            del kept
            os._exit(23 if ended and right and memory.kept == 2 << 20 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 23
    assert (kept == 1).all()


def test_a_buffer_is_as_large_as_its_size_class() -> None:
    memory = ResultMemory()
    array = made(memory, (5 << 20) + 4)
    del array
    assert memory.kept == size_class((5 << 20) + 4)


# the engine's results


def large(value: float = 1.0) -> fb.Tensor:
    return fb.asarray(np.full((1024, 1024), value, np.float32), device="cpu")


@fb.jit
def compiled(x: fb.Tensor) -> fb.Tensor:
    return fb.tanh(x) * 2 + fb.exp(x)


OPERATIONS: dict[str, Callable[[fb.Tensor], fb.Tensor]] = {
    "binary": lambda x: x + x,
    "unary": lambda x: -x,
    "broadcast": lambda x: x * x[:1],
    "comparison": lambda x: x < x,
    "copied": lambda x: fb.asarray(x.numpy(), device="cpu", copy=True),
    "compiled": compiled,
    "eager, compiled": fb.sigmoid,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_large_tensors_use_memory_of_results_that_are_gone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "LARGE", 1 << 20)
    x = large()
    OPERATIONS[name](x)
    fb.memory_cleanup("cpu")
    y = OPERATIONS[name](x)
    where = address(y.numpy())
    del y
    assert fb.memory_stats("cpu")["results"] > 0
    assert address(OPERATIONS[name](x).numpy()) == where
    fb.memory_cleanup("cpu")
    assert fb.memory_stats("cpu")["results"] == 0


def test_results_that_anything_still_shows_keep_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "LARGE", 1 << 20)
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    held: list[tuple[Any, float]] = []
    read: dict[str, Callable[[fb.Tensor], Any]] = {
        "tensor": lambda t: t,
        "view": lambda t: t[5:9].reshape((2, 2, -1)),
        "array": lambda t: t.numpy(),
        "part": lambda t: t.numpy()[3:5, ::2],
        "memoryview": lambda t: memoryview(t.numpy()),
        "dlpack": lambda t: np.from_dlpack(t),
        "torch": lambda t: torch.from_dlpack(t),
        "closure": lambda t: fb.jit(lambda: t * 1),
    }  # fmt: skip

    def values(shown: Any) -> np.ndarray[Any, Any]:
        if callable(shown):
            shown = shown()
        return np.asarray(shown.numpy() if isinstance(shown, fb.Tensor) else shown)

    for step in range(120):
        value = float(step)
        x = fb.full((300, 1024), value, dtype=fb.float32, device="cpu")
        made_by = [
            lambda x=x: x + 0.0,
            lambda x=x: fb.jit(lambda y: y * 1.0)(x),
            lambda x=x: fb.astype(x, fb.float32, copy=True),
        ]
        result = made_by[step % 3]()
        how = list(read)[int(rng.integers(len(read)))]
        held.append((read[how](result), value))
        del x, result, made_by
        if len(held) > 12:
            held.pop(int(rng.integers(len(held))))
        shown, wanted = held[int(rng.integers(len(held)))]
        assert (values(shown) == wanted).all()
    for shown, wanted in held:
        assert (values(shown) == wanted).all()


def test_changing_what_was_exported_does_not_reach_later_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "LARGE", 1 << 20)
    x = large(1.0)
    exported = np.from_dlpack(x + 1.0)
    later = x + 2.0
    if exported.flags.writeable:
        exported[...] = 100.0
    assert (later.numpy() == 3.0).all()
    assert (exported == (100.0 if exported.flags.writeable else 2.0)).all()


def test_a_gradient_through_reused_memory_has_the_bits_of_one_through_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "LARGE", 1 << 20)
    x = fb.asarray(np.random.default_rng(0).normal(size=(512, 1024)).astype(np.float32), device="cpu")

    def loss(x: fb.Tensor) -> fb.Tensor:
        y = fb.exp(-x * x) + fb.sin(x)
        return fb.sum(y * y / (1 + x * x))

    with fb.config.scope(kept_results=0):
        fb.memory_cleanup("cpu")
        wanted = fb.grad(loss)(x).numpy().tobytes()
    for _ in range(3):
        assert fb.grad(loss)(x).numpy().tobytes() == wanted


def test_leases_end_with_their_arrays_not_with_a_collection() -> None:
    gc.disable()
    try:
        array = results.RESULTS.empty((COUNT,), FLOAT, 4 * COUNT)
        ended = weakref.ref(array)
        before = results.RESULTS.kept
        del array
        assert ended() is None
        assert results.RESULTS.kept > before
    finally:
        gc.enable()
