"""Code in memory: objects are linked into modules, whose code is freed with the last reference to the module.

A ``Module`` owns its code. Everything that may call the code holds a reference to the module: a segment, and the frame that
runs the segment; a callable; another module that calls it. So no code is freed while a thread runs it. Threads of the pool
are in a kernel only while its caller waits for them; the pool's own functions, which they never leave, are pinned.

A module may be dropped in any thread at any time, by the garbage collector too, also while LLVM is in use. Dropping a module
therefore takes no lock: its number is appended to a list, which is emptied at once if LLVM is not in use, and otherwise by the
thread that uses LLVM, at the end of that use. A module has no finalizer: the collector runs the finalizers of a garbage cycle
in any order, so an object's ``__del__`` could call code that is freed. The code is freed with an array that the module owns,
which the collector does not track and which is alive until all finalizers have run. Nothing is freed at the end of the process,
since threads may still be in the code.

LLVM's linker keeps about 9 KiB for each library that it has linked, also after the library's code is freed. A linker
therefore links ``LINKS`` modules, and is freed with the last of them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np

LINKS = 8
"""Modules of one linker. A linker takes 0.5 ms and 120 KiB, and what it keeps of every module is freed with its last module."""

# Held during each use of LLVM, whose library is not thread-safe, and while the process forks: otherwise a child could inherit
# the lock held by a thread that does not exist in the child.
_LOCK = RLock()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The amount of code in memory.

    Attributes:
        modules: Number of modules whose code is not freed.
        nbytes: Bytes of the objects that they were linked from.
        linkers: Number of LLVM's linkers that are not freed.
    """

    modules: int
    nbytes: int
    linkers: int


class _Linker:
    """One of LLVM's linkers."""

    def __init__(self, jit: Any) -> None:
        self.jit = jit
        self.made = 0
        # freed by `retire` only: not at interpreter shutdown, when threads may be in its code
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(jit))

    def retire(self) -> None:
        """Link no further modules. LLVM's libraries share ownership of the linker, so the last of them frees it."""
        self.jit.close()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self.jit))


@dataclass(slots=True, eq=False)
class _LoadedCode:
    """The code of one module: LLVM's handle of the library, its size for statistics, and a weak reference to its owner."""

    tracker: Any
    nbytes: int
    linker: _Linker
    gone: ref[Any]


# The owner of all code. LLVM's handles are kept here and not in modules, since a handle frees the code when it is collected.
_codes: dict[int, _LoadedCode] = {}
_dropped: deque[int] = deque()  # numbers of modules that no longer exist
_pinned: list[Module] = []
_linker: _Linker | None = None
_count = 0
_ending = False


@contextmanager
def llvm_in_use() -> Iterator[None]:
    """Lock LLVM for one use. Code that is dropped during the use is freed at its end."""
    try:
        with _LOCK:
            yield
    finally:
        _free()


def _drop(number: int, _: object) -> None:
    """Callback of the weak reference to a module's owner."""
    _dropped.append(number)
    _free()


def _free() -> None:
    """Free the code of dropped modules, unless another thread uses LLVM: that thread frees it at the end of its use."""
    # tested again after each release: a module may have been dropped between the last test and the release
    while _dropped and not _ending and _LOCK.acquire(blocking=False):
        try:
            while _dropped:
                number = _dropped.popleft()
                with suppress(RuntimeError):  # LLVM cannot unload the library: it stays in memory and is counted
                    _codes[number].tracker.close()
                    del _codes[number]
        finally:
            _LOCK.release()


class Module:
    """Compiled functions in memory.

    Attributes:
        addresses: Address of each function, by name.
    """

    __slots__ = ("__weakref__", "_keep", "_owner", "addresses")

    def __init__(self, owner: object, addresses: Mapping[str, int], keep: tuple[Module, ...] = ()) -> None:
        self._owner = owner
        self._keep = keep
        self.addresses = dict(addresses)

    def __getitem__(self, name: str) -> int:
        """The address of a function."""
        return self.addresses[name]

    def function(self, name: str, result: Any = None, *operands: Any, locked: bool = False) -> Callable[..., Any]:
        """A callable that calls a function without the GIL; it keeps the module in memory.

        Args:
            name: Name of the function.
            result: ``ctypes`` type of its result; None for void.
            operands: ``ctypes`` types of its arguments.
            locked: Whether the call keeps the GIL, for functions that read Python objects.
        """
        made = (ctypes.PYFUNCTYPE if locked else ctypes.CFUNCTYPE)(result, *operands)(self.addresses[name])
        made.module = self  # type: ignore[attr-defined]  # the callable keeps the code alive
        return made

    def pin(self) -> Module:
        """Keep the code in memory until the process ends, since threads may never leave it."""
        _pinned.append(self)
        return self


def link(
    images: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int], keep: Sequence[Module], new: Callable[[], Any]
) -> Module:
    """Link objects into one module in memory.

    Args:
        images: Object files for this machine.
        exports: Functions whose addresses the module holds.
        imports: Addresses of functions that none of the objects defines.
        keep: Modules to keep in memory as long as this one.
        new: Creates one of LLVM's linkers.

    Raises:
        RuntimeError: A function is missing.
    """
    global _linker, _count
    import llvmlite.binding as llvm

    with llvm_in_use():
        if _linker is not None and _linker.made == LINKS:
            _linker.retire()
            _linker = None
        if _linker is None:
            _linker = _Linker(new())
        library = llvm.JITLibraryBuilder().add_current_process()
        for image in images:
            library.add_object_img(image)
        for name in exports:
            library.export_symbol(name)
        for name, address in imports.items():
            library.import_symbol(name, address)
        _count += 1
        _linker.made += 1  # also if linking fails, which leaves a partial library
        tracker = library.link(_linker.jit, f"firebrick.{_count}")
        owner = np.empty(0)  # the garbage collector does not track arrays
        _codes[_count] = _LoadedCode(tracker, sum(map(len, images)), _linker, ref(owner, partial(_drop, _count)))
        return Module(owner, {name: tracker[name] for name in exports}, tuple(keep))


def loaded() -> Loaded:
    """The amount of code in memory, pinned code included. Code that two programs share is counted once."""
    codes = list(_codes.values())
    linkers = {id(c.linker) for c in codes} | ({id(_linker)} if _linker is not None else set())
    return Loaded(len(codes), sum(c.nbytes for c in codes), len(linkers))


def _end() -> None:
    global _ending
    _ending = True
    for code in list(_codes.values()):
        code.tracker.detach()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
