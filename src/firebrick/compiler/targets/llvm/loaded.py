"""Code in memory: objects are linked into modules, counted, and freed with the last that uses them.

A ``Module`` owns its code. Whoever may call it keeps the module: a segment, which the frame that runs it keeps as well, a
callable of it, another module that calls it. So no code is freed while a thread runs it. Threads of the pool are in a kernel
only while its caller waits for them; the pool's own functions, which they never leave, are pinned.

A module may be dropped in any thread and at any moment, by the garbage collector too, also while LLVM is in use. Its end
therefore waits for nothing: the code is put on a list, which is emptied at once if LLVM is free, and otherwise by the thread
that uses it, when that is done. Where a module is garbage together with an object whose ``__del__`` calls it, the collector
runs finalizers in any order; so a module has none. Its code ends with an object that the collector does not know, an array,
which lives until all finalizers have run. Nothing is freed once the process ends: threads may be in the code until then.

LLVM's linker keeps some 9 KiB of each library that it ever linked, also after the library's code is gone. A linker therefore
makes ``LINKS`` modules, and is freed with the last of them.
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
"""Modules of one linker. A linker takes 0.5 ms and 120 KiB; a module that lives keeps what is left of the others' libraries."""

# Held for each use of LLVM, whose library is not thread safe, and while the process forks: a child never finds it taken by a
# thread that it does not have.
_LOCK = RLock()


@dataclass(frozen=True, slots=True)
class Loaded:
    """How much code is in memory.

    Attributes:
        modules: Modules whose code is not freed.
        nbytes: Bytes of the objects that they were linked from.
        linkers: LLVM's linkers that are not freed.
    """

    modules: int
    nbytes: int
    linkers: int


class _Linker:
    """One of LLVM's linkers."""

    def __init__(self, jit: Any) -> None:
        self.jit = jit
        self.made = 0
        # LLVM's object is freed by `retire` alone, not by an interpreter that ends while threads are in its code
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(jit))

    def retire(self) -> None:
        """Make no further modules. LLVM shares the linker's ownership among its libraries, so the last of them frees it."""
        self.jit.close()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self.jit))


@dataclass(slots=True, eq=False)
class _Code:
    """The code of one module: LLVM's handle of the library, what it is counted as, and the callback of its owner's end."""

    tracker: Any
    nbytes: int
    linker: _Linker
    gone: ref[Any]


# What owns all code. LLVM's handles are kept here and not in modules, since they free the code too where they are garbage.
_codes: dict[int, _Code] = {}
_dropped: deque[int] = deque()  # numbers of modules that are gone
_pinned: list[Module] = []
_linker: _Linker | None = None
_count = 0
_ending = False


@contextmanager
def llvm_in_use() -> Iterator[None]:
    """The one use of LLVM at a time. Code that was dropped meanwhile is freed at its end."""
    try:
        with _LOCK:
            yield
    finally:
        _free()


def _drop(number: int, _: object) -> None:
    """The module of a code is gone."""
    _dropped.append(number)
    _free()


def _free() -> None:
    """Free the code of modules that are gone, unless another thread uses LLVM: that one does it, at the end of its use."""
    # asked again after each release: a module may have been dropped between the last look at the list and the release
    while _dropped and not _ending and _LOCK.acquire(blocking=False):
        try:
            while _dropped:
                number = _dropped.popleft()
                with suppress(RuntimeError):  # LLVM's: it cannot unload the library, which stays in memory, and counted
                    _codes[number].tracker.close()
                    del _codes[number]
        finally:
            _LOCK.release()


class Module:
    """Compiled functions in memory.

    Attributes:
        addresses: Where each function is, by name.
    """

    __slots__ = ("__weakref__", "_keep", "_owner", "addresses")

    def __init__(self, owner: object, addresses: Mapping[str, int], keep: tuple[Module, ...] = ()) -> None:
        self._owner = owner
        self._keep = keep
        self.addresses = dict(addresses)

    def __getitem__(self, name: str) -> int:
        """The address of a function."""
        return self.addresses[name]

    def function(self, name: str, result: Any = None, *operands: Any) -> Callable[..., Any]:
        """A function, to be called from Python without the GIL; it keeps the module in memory.

        Args:
            name: Of the function.
            result: ``ctypes`` type of its result; None for void.
            operands: ``ctypes`` types of its arguments.
        """
        made = ctypes.CFUNCTYPE(result, *operands)(self.addresses[name])
        made.module = self  # type: ignore[attr-defined]  # the code lives as long as what calls it
        return made

    def pin(self) -> Module:
        """Keep the code in memory until the process ends, for threads that never leave it."""
        _pinned.append(self)
        return self


def link(
    images: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int], keep: Sequence[Module], new: Callable[[], Any]
) -> Module:
    """Put objects together into one module in memory.

    Args:
        images: Object files of this machine.
        exports: Functions whose addresses are wanted.
        imports: Addresses of functions that none of the objects defines.
        keep: Modules to keep as long as this one.
        new: Makes one of LLVM's linkers.

    Raises:
        RuntimeError: LLVM's, of a function that is missing.
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
        _linker.made += 1  # also of one that fails, which leaves a part of it
        tracker = library.link(_linker.jit, f"firebrick.{_count}")
        owner = np.empty(0)  # the garbage collector does not look at arrays
        _codes[_count] = _Code(tracker, sum(map(len, images)), _linker, ref(owner, partial(_drop, _count)))
        return Module(owner, {name: tracker[name] for name in exports}, tuple(keep))


def loaded() -> Loaded:
    """How much code is in memory now; pinned code counts. Code that two programs share is counted once."""
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
