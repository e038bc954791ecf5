"""Native functions that read one slot of thousands of Python objects (``core.slots``), some nanoseconds each.

A slot of a class lies at the same distance from the beginning of each object of it, and so does the object's class. Both
distances are found by looking for known objects in the memory of samples; if they are not found there, or the interpreter has
no global lock, which protects objects while they are read, nothing is installed. Each object's class is compared before its
memory is read: an object that only claims to be a tensor (a weak proxy) has no such slots. New references are made by Python's
own functions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firebrick.core import slots
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

CONTENTS, UNTRACKED, IDENTICAL = "firebrick_contents", "firebrick_untracked", "firebrick_identical"
_TUPLE = tuple.__basicsize__
_WORD = ctypes.sizeof(ctypes.c_void_p)
MOST_KINDS = 16
"""Maximum number of classes of tensors that native functions know."""

# The layout is a list of words: addresses of Py_IncRef and PyList_SetItem, the distances of an object's class, of a tensor's
# storage and node and of a storage's data, the addresses of Storage and None, then the number of classes of tensors and their
# addresses.
SLOTS = f"""
; whether an object's class is one of those of tensors
define internal i1 @firebrick_is_tensor(ptr %layout, ptr %object) alwaysinline {{
entry:
  %typeatp = getelementptr i64, ptr %layout, i64 2
  %typeat = load i64, ptr %typeatp
  %kindp = getelementptr i8, ptr %object, i64 %typeat
  %kind = load ptr, ptr %kindp
  %countp = getelementptr i64, ptr %layout, i64 8
  %count = load i64, ptr %countp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %other ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %compare, label %no
compare:
  %at = add i64 %i, 9
  %knownp = getelementptr ptr, ptr %layout, i64 %at
  %known = load ptr, ptr %knownp
  %same = icmp eq ptr %kind, %known
  br i1 %same, label %yes, label %other
other:
  %next = add i64 %i, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}}

; the storages of tensors, and their data, all of one class, as items of two lists; gives how many there are up to the first
; that is of another kind
define i64 @{CONTENTS}(ptr %items, i64 %count, ptr %layout, ptr %storages, ptr %contents) {{
entry:
  %incref = load ptr, ptr %layout
  %setp = getelementptr ptr, ptr %layout, i64 1
  %set = load ptr, ptr %setp
  %typeatp = getelementptr i64, ptr %layout, i64 2
  %typeat = load i64, ptr %typeatp
  %storageatp = getelementptr i64, ptr %layout, i64 3
  %storageat = load i64, ptr %storageatp
  %dataatp = getelementptr i64, ptr %layout, i64 5
  %dataat = load i64, ptr %dataatp
  %ownp = getelementptr ptr, ptr %layout, i64 6
  %own = load ptr, ptr %ownp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %store ]
  %class = phi ptr [ null, %entry ], [ %contentkind, %store ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %handle, label %leave
handle:
  %itemp = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %itemp
  %good = call i1 @firebrick_is_tensor(ptr %layout, ptr %item)
  br i1 %good, label %storage, label %leave
storage:
  %storagep = getelementptr i8, ptr %item, i64 %storageat
  %held = load ptr, ptr %storagep
  %unset = icmp eq ptr %held, null
  br i1 %unset, label %leave, label %kind
kind:
  %heldkindp = getelementptr i8, ptr %held, i64 %typeat
  %heldkind = load ptr, ptr %heldkindp
  %isown = icmp eq ptr %heldkind, %own
  br i1 %isown, label %data, label %leave
data:
  %datap = getelementptr i8, ptr %held, i64 %dataat
  %content = load ptr, ptr %datap
  %none = icmp eq ptr %content, null
  br i1 %none, label %leave, label %datakind
datakind:
  %contentkindp = getelementptr i8, ptr %content, i64 %typeat
  %contentkind = load ptr, ptr %contentkindp
  %first = icmp eq i64 %i, 0
  %isclass = icmp eq ptr %contentkind, %class
  %alike = or i1 %first, %isclass
  br i1 %alike, label %store, label %leave
store:
  call void %incref(ptr %held)
  %one = call i32 %set(ptr %storages, i64 %i, ptr %held)
  call void %incref(ptr %content)
  %two = call i32 %set(ptr %contents, i64 %i, ptr %content)
  %next = add i64 %i, 1
  br label %loop
leave:
  ret i64 %i
}}

; 1 if no tensor has a node, 0 if one has, -1 if one of the objects is of another kind
define i64 @{UNTRACKED}(ptr %items, i64 %count, ptr %layout) {{
entry:
  %nodeatp = getelementptr i64, ptr %layout, i64 4
  %nodeat = load i64, ptr %nodeatp
  %nonep = getelementptr ptr, ptr %layout, i64 7
  %none = load ptr, ptr %nonep
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %found = phi i64 [ 1, %entry ], [ %now, %again ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %handle, label %leave
handle:
  %itemp = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %itemp
  %good = call i1 @firebrick_is_tensor(ptr %layout, ptr %item)
  br i1 %good, label %node, label %bad
node:
  %nodep = getelementptr i8, ptr %item, i64 %nodeat
  %held = load ptr, ptr %nodep
  %unset = icmp eq ptr %held, null
  br i1 %unset, label %bad, label %again
again:
  %isnone = icmp eq ptr %held, %none
  %now = select i1 %isnone, i64 %found, i64 0
  %next = add i64 %i, 1
  br label %loop
leave:
  ret i64 %found
bad:
  ret i64 -1
}}

; whether so many items of two tuples are the same objects
define i64 @{IDENTICAL}(ptr %a, ptr %b, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %compare ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %compare, label %yes
compare:
  %ap = getelementptr ptr, ptr %a, i64 %i
  %bp = getelementptr ptr, ptr %b, i64 %i
  %x = load ptr, ptr %ap
  %y = load ptr, ptr %bp
  %same = icmp eq ptr %x, %y
  %next = add i64 %i, 1
  br i1 %same, label %loop, label %no
yes:
  ret i64 1
no:
  ret i64 0
}}
"""


def _at(kind: type, name: str) -> int | None:
    """The distance of a slot from the beginning of an object; None if it cannot be told."""
    found = set()
    for _ in range(3):
        sample: Any = object.__new__(kind)
        value = object()
        kind.__dict__[name].__set__(sample, value)
        words = _words(sample, kind)
        if words.count(id(value)) != 1:
            return None
        found.add(_WORD * words.index(id(value)))
        kind.__dict__[name].__set__(sample, None)
    return found.pop() if len(found) == 1 else None


def _words(sample: Any, kind: type) -> list[int | None]:
    return list((ctypes.c_void_p * (kind.__basicsize__ // _WORD)).from_address(id(sample)))


class Reader:
    """The native functions of ``core.slots``.

    Args:
        function: ``(name, result, *operands)`` returns a callable of a compiled function that keeps the global lock.
        words: The layout, with room for the addresses of ``MOST_KINDS`` classes of tensors at its end.
    """

    def __init__(self, function: Callable[..., Any], words: Sequence[int]) -> None:
        word, pointer, an_object = ctypes.c_int64, ctypes.c_void_p, ctypes.py_object
        self._words = np.zeros(len(words) + 1 + MOST_KINDS, np.int64)
        self._words[: len(words)] = words
        self._count = len(words)
        self._address = int(self._words.ctypes.data)
        self._kinds: list[type] = []
        self._contents = function(CONTENTS, word, pointer, word, pointer, an_object, an_object)
        self._untracked = function(UNTRACKED, word, pointer, word, pointer)
        self._identical = function(IDENTICAL, word, pointer, pointer, word)

    def contents(self, handles: tuple[Any, ...]) -> slots.Contents | None:
        count = len(handles)
        for _ in range(2):
            storages: list[Any] = [None] * count
            data: list[Any] = [None] * count
            if self._contents(id(handles) + _TUPLE, count, self._address, storages, data) == count:
                return storages, data, {type(data[0])} if count else set()
            if not self._learn(handles):
                break
        return None

    def untracked(self, handles: tuple[Any, ...]) -> bool | None:
        for _ in range(2):
            found = self._untracked(id(handles) + _TUPLE, len(handles), self._address)
            if found >= 0:
                return bool(found)
            if not self._learn(handles):
                break
        return None

    def identical(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
        return bool(self._identical(id(a) + _TUPLE, id(b) + _TUPLE, len(a)))

    def _learn(self, handles: tuple[Any, ...]) -> bool:
        """Note the classes of these tensors that are the package's own and were not known; whether there are any."""
        new = [
            kind
            for kind in set(map(type, handles)).difference(self._kinds)
            if issubclass(kind, Tensor) and kind.__module__.startswith("firebrick.")
        ]
        if not new or len(self._kinds) + len(new) > MOST_KINDS:
            return False
        self._kinds += new  # held, so that no other class gets such an address
        self._words[self._count + 1 : self._count + 1 + len(self._kinds)] = list(map(id, self._kinds))
        self._words[self._count] = len(self._kinds)
        return True


def layout() -> list[int] | None:
    """The words that the native functions read, without classes of tensors; None if this interpreter's objects are not laid out
    as these functions take them to be."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    items = (object(), object())
    if list((ctypes.c_void_p * 2).from_address(id(items) + _TUPLE)) != [id(item) for item in items]:
        return None
    classes = {_class_at(sample) for sample in (Tensor.__new__(Tensor), Storage.__new__(Storage), np.zeros(1))}
    functions = (ctypes.pythonapi.Py_IncRef, ctypes.pythonapi.PyList_SetItem)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    slots_at = [_at(Tensor, "storage"), _at(Tensor, "node"), _at(Storage, "data")]
    found = [*addresses, classes.pop() if len(classes) == 1 else None, *slots_at, id(Storage), id(None)]
    known = [n for n in found if n is not None]
    return known if len(known) == len(found) else None


def _class_at(sample: Any) -> int | None:
    """The distance of an object's class from its beginning."""
    words = _words(sample, type(sample))
    return _WORD * words.index(id(type(sample))) if words.count(id(type(sample))) == 1 else None


def install(function: Callable[..., Any]) -> bool:
    """Install the native functions, where this interpreter allows it; whether it does.

    Args:
        function: ``(name, result, *operands)`` returns a callable of a compiled function that keeps the global lock.
    """
    words = layout()
    if words is None:
        return False
    reader = Reader(function, words)
    slots.install(slots.Native(reader.contents, reader.untracked, reader.identical))
    return True
