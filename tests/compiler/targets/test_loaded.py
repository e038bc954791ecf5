"""Code in memory: it is counted, freed with its last user, and never while something may still call it."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from firebrick.compiler.targets.llvm import loaded
from firebrick.compiler.targets.llvm.host import Target, compile_ir, emit_object, link
from firebrick.compiler.targets.llvm.loaded import LINKS, Module
from firebrick.compiler.targets.llvm.loaded import loaded as in_memory


def number(n: int) -> str:
    return f"define i64 @number() {{\n  ret i64 {n}\n}}\n"


def value(module: Module) -> int:
    return int(module.function("number", ctypes.c_int64)())


def linked(n: int) -> Module:
    """A module of its own, whatever others hold the same."""
    return link([emit_object(number(n), Target.host())], ["number"])


def executable() -> int:
    """Bytes of this process's executable memory that is no file's."""
    total = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            where, how, _, _, file, *name = line.split()
            if how == "r-xp" and file == "0" and not name:
                first, last = (int(x, 16) for x in where.split("-"))
                total += last - first
    return total


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_code_is_counted_and_freed_with_its_module_at_once() -> None:
    linux = sys.platform == "linux"  # there the count is compared with what the system knows
    before, code = in_memory(), executable() if linux else 0
    kept = [linked(n) for n in range(3 * LINKS)]
    now = in_memory()
    assert now.modules - before.modules == 3 * LINKS
    assert now.nbytes - before.nbytes == sum(len(emit_object(number(n), Target.host())) for n in range(3 * LINKS))
    if linux:
        assert executable() - code >= 3 * LINKS * 4096
    del kept[5]
    assert in_memory().modules == now.modules - 1
    kept.clear()
    after = in_memory()
    assert (after.modules, after.nbytes) == (before.modules, before.nbytes)
    if linux:
        assert executable() == code


def test_what_linkers_keep_of_modules_that_are_gone_is_freed_with_the_linkers() -> None:
    before = in_memory().linkers
    for n in range(4 * LINKS):
        linked(n)
    assert in_memory().linkers <= before + 1
    kept = [linked(n) for n in range(4 * LINKS)][::LINKS]  # each keeps a linker
    assert len(kept) <= in_memory().linkers <= before + len(kept)
    del kept
    assert in_memory().linkers <= before + 1


def test_code_that_two_programs_share_is_counted_once_and_stays_until_the_last_has_gone() -> None:
    before = in_memory().modules
    one = compile_ir(number(4001))
    function = one.function("number", ctypes.c_int64)
    two = compile_ir(number(4001))
    assert in_memory().modules == before + 1
    del one
    assert value(two) == 4001
    del two
    assert in_memory().modules == before + 1
    assert function() == 4001
    del function
    assert in_memory().modules == before


def test_a_module_that_cannot_be_linked_counts_for_nothing() -> None:
    before = in_memory()
    for _ in range(2 * LINKS):
        with pytest.raises(Exception, match="define the exported functions"):
            link([emit_object(number(1), Target.host())], ["other"])
    assert in_memory().modules == before.modules
    assert in_memory().linkers <= before.linkers + 1
    assert value(linked(3)) == 3


def test_what_owns_code_is_unknown_to_the_collector() -> None:
    module = linked(1)
    assert gc.is_tracked(module)
    assert not gc.is_tracked(module._owner)
    assert not gc.is_tracked(np.empty(0))


def test_code_that_is_dropped_while_llvm_is_in_use_waits_for_nothing_and_is_freed_after_that() -> None:
    before = in_memory().modules
    modules = [linked(1)]
    held, go = threading.Event(), threading.Event()

    def use() -> None:
        with loaded.llvm_in_use():
            held.set()
            go.wait(60)

    user = threading.Thread(target=use)
    user.start()
    held.wait(60)
    modules.clear()  # would wait for ever, if it waited for LLVM
    assert in_memory().modules == before + 1
    go.set()
    user.join()
    assert in_memory().modules == before


def test_threads_may_compile_run_and_drop_code_all_at_once() -> None:
    before = in_memory().modules
    wrong: list[object] = []

    def work(seed: int) -> None:
        for n in range(seed, seed + 24):
            found = value(compile_ir(number(5000 + n % 7))), value(linked(n))
            if found != (5000 + n % 7, n):
                wrong.append((n, found))

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert in_memory().modules == before


def python(code: str) -> str:
    """What a fresh process prints; a crash of it is an error here."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
    assert result.stderr == ""
    return result.stdout


def test_a_finalizer_may_call_code_that_is_garbage_together_with_it() -> None:
    made = python(
        """
import gc
import firebrick as fb
from firebrick.compiler.targets.llvm.loaded import loaded

class Late:
    def __init__(self):
        self.step = fb.jit(lambda x: fb.sum(fb.tanh(x) * x))
        self.x = fb.ones(900)
        self.first = self.step(self.x).item()
        self.me = self
    def __del__(self):
        print(self.step(self.x).item() == self.first)

fb.jit(lambda x: x)(fb.ones(2))
gc.disable()
for _ in range(3):  # pairs share one program, and either may be finalized first
    one, two = Late(), Late()
    one.other, two.other = two, one
    del one, two
    gc.collect()
print(loaded().modules)
"""
    )
    assert made.split() == ["True"] * 6 + ["1"]  # the pool


def test_a_process_may_end_with_code_in_use_and_with_code_that_waits_to_be_freed() -> None:
    made = python(
        """
import threading
import firebrick as fb
from firebrick.compiler.targets.llvm import loaded
step = fb.jit(lambda x: fb.sum(fb.tanh(x) * x))
x = fb.ones(900)
print(step(x).item())
def run():
    while True:
        step(x)
for _ in range(2):
    threading.Thread(target=run, daemon=True).start()
other = fb.jit(lambda x: fb.sum(fb.exp(x) * x))
other(x)
loaded._LOCK.acquire()  # as if LLVM were in use
threading.Thread(target=globals().pop, args=("other",)).start()
"""
    )
    assert float(made) > 600


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="a system without fork")
def test_a_forked_child_frees_its_own_copy_of_the_code() -> None:
    made = python(
        """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: that is what this is about
import firebrick as fb
from firebrick.compiler.targets.llvm.loaded import loaded
x = fb.ones(900)
step, other = fb.jit(lambda x: fb.sum(fb.tanh(x) * x)), fb.jit(lambda x: fb.sum(fb.exp(x) * x))
want = step(x).item(), other(x).item()
there = loaded().modules
child = os.fork()
if not child:
    got = step(x).item(), other(x).item()
    del step
    freed = there - loaded().modules
    new = fb.jit(lambda x: fb.sum(fb.tanh(x) * fb.exp(x)))(x).item()
    os._exit(0 if got == want and freed == 1 and other(x).item() == want[1] and new > 0 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), loaded().modules == there, (step(x).item(), other(x).item()) == want)
"""
    )
    assert made.split() == ["0", "True", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="mallinfo2 is glibc's")
def test_optimising_keeps_little_of_llvm_in_memory() -> None:
    made = python(
        """
import ctypes
from firebrick.compiler.targets.llvm.host import Target, emit_object
try:
    heap = ctypes.CDLL(None).mallinfo2
except AttributeError:  # another C library, or an older one
    print(0)
    raise SystemExit
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ord sm hblks hblkhd usm fsm uord ford keep".split()]
heap.restype = Info
def emit(n):
    emit_object(f"define i64 @f() {{\\n  ret i64 {n}\\n}}\\n", Target.host())
emit(0)
before = heap().uord
for n in range(200):
    emit(n)
print((heap().uord - before) / 200)
"""
    )
    assert float(made) < 4096  # 45,000 where pass managers are kept


def test_a_linker_with_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of these tests can fail: a module that something keeps is seen."""
    before = in_memory().modules
    leaked: list[Module] = []
    monkeypatch.setattr(Module, "__getitem__", lambda self, name: leaked.append(self) or self.addresses[name])
    assert linked(7)["number"]
    assert in_memory().modules == before + 1
    leaked.clear()
    assert in_memory().modules == before
