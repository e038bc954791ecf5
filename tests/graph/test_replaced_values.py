"""Values that change between two calls of a compiled function, in ways that a comparison can miss: items that lie where freed
ones lay, attributes that only a library's code names, and what a user's subclass of a library's type has besides."""

import argparse
import collections
import decimal
import fractions
import functools
import queue
import random
import string
import threading
import types
import weakref
from array import array

import numpy as np
import pytest

import firebrick as fb


class Holder:
    k = 1.5

    def __init__(self, k=1.5):
        self.k = k

    def get(self):
        return self.k


class Bare:
    k = 1.5


class Fraction(fractions.Fraction):
    pass


class Sum(list):
    factor = 1.5

    def total(self):
        return sum(self) * self.factor


class Missing(dict):
    default = 1.5

    def __missing__(self, key):
        return self.default


class WithSlot(list):
    __slots__ = ("factor",)


class Getting(property):
    factor = 1.5

    def __get__(self, held, kind=None):
        return self.factor


class HasGetting:
    value = Getting(lambda self: 1.0)


class Calling(functools.partial):
    factor = 1.5


class Reference(weakref.ref):
    factor = 1.5


class Module(types.ModuleType):
    @property
    def value(self):
        return self.hidden


def of_base(base, *args, **given):
    """An object of a new class over a library's, as a user writes it."""
    kind = types.new_class("Own", (base,), {}, lambda space: space.update(__module__=__name__, factor=1.5))
    return kind(*args, **given)


def exchanged(make, put):
    """A change of a container that frees what it holds before the next value, which may lie in the same place, is made."""

    def change(held):
        put(held, None)
        put(held, make(2.5))

    return change


def at_0(held, value):
    held[0] = value


def only(held, value):
    held.clear()
    if value is not None:
        held.add(value)


def once(make):
    """How values of a kind are made anew: a constant of the test's code would never be freed."""
    return lambda number: make(float(str(number)))


def fortran():
    held = np.empty((2, 2), dtype=object, order="F")
    held[:] = 1.0
    return held


def put(name, value):
    return lambda held: setattr(held, name, value)


FORMAT = "{0.k}"

# what is held, how the function reads it, and how it changes
CASES = {
    "a float in a list": ([once(float)(1.5)], lambda h: h[0], exchanged(once(float), at_0)),
    "a float in a deque": (collections.deque([once(float)(1.5)]), lambda h: h[0], exchanged(once(float), at_0)),
    "a float in a set": ({once(float)(1.5)}, sum, exchanged(once(float), only)),
    "a tuple in a list": ([(once(float)(1.5),)], lambda h: h[0][0], exchanged(once(lambda v: (v,)), at_0)),
    "objects in a tuple in a list": ([(Holder(), 1)], lambda h: h[0][0].k, exchanged(lambda v: (Holder(v), 1), at_0)),
    "a bound method in a list": ([Holder().get], lambda h: h[0](), exchanged(lambda v: Holder(v).get, at_0)),
    "a scalar of NumPy in a list": ([np.float64(1.5)], lambda h: float(h[0]), exchanged(np.float64, at_0)),
    "an object in an array in another order": (fortran(), lambda h: h[0, 1], lambda h: h.__setitem__((0, 1), 5.0)),
    "an attribute in a text": (Bare(), lambda h: float("{0.k}".format(h)), put("k", 2.5)),  # noqa: UP030, UP032 - what is tested
    "an attribute in a text elsewhere": (Bare(), lambda h: float(FORMAT.format(h)), put("k", 2.5)),
    "an attribute in a text of a mapping": (Bare(), lambda h: float("{a.k}".format_map({"a": h})), put("k", 2.5)),
    "an attribute for a formatter": (Bare(), lambda h: float(string.Formatter().format("{0.k}", h)), put("k", 2.5)),
    "a UserDict": (of_base(collections.UserDict, k=1.5), lambda h: h["k"], lambda h: h.update(k=2.5)),
    "a UserList": (of_base(collections.UserList, [1.5]), lambda h: h[0], put("data", [2.5])),
    "a ChainMap": (of_base(collections.ChainMap, {"k": 1.5}), lambda h: h["k"], put("maps", [{"k": 2.5}])),
    "names compared": (
        of_base(types.SimpleNamespace, k=1.5), lambda h: 1.0 if h == types.SimpleNamespace(k=2.5) else 2.0, put("k", 2.5),
    ),
    "arguments of a program": (of_base(argparse.Namespace, k=1.5), lambda h: 1.0 if "z" in h else 2.0, put("z", 2.5)),
    "a fraction": ([Fraction(3, 2)], lambda h: float(h[0]), lambda h: at_0(h, Fraction(5, 2))),
    "a template": (string.Template("1.5"), lambda h: float(h.substitute()), put("template", "2.5")),
    "a queue": (of_base(queue.Queue), lambda h: 1.0 + h.qsize(), lambda h: h.put(1)),
    "the first attribute of a list": (Sum([1.0]), lambda h: h.total(), put("factor", 2.5)),
    "the first attribute of a dict": (Missing(), lambda h: h["z"], put("default", 2.5)),
    "a slot of a list": ((given := WithSlot(), setattr(given, "factor", 1.5))[0], lambda h: h.factor, put("factor", 2.5)),
    "a property of an own kind": (HasGetting(), lambda h: h.value, lambda h: setattr(vars(HasGetting)["value"], "factor", 2.5)),
    "a partial": (Calling(float, 1.5), lambda h: h() * h.factor, put("factor", 2.5)),
    "the class of a partial": (Calling(float, 1.5), lambda h: h(), lambda h: setattr(Calling, "__call__", lambda self: 7.5)),
    "a weak reference": (Reference(Holder), lambda h: h.factor, put("factor", 2.5)),
    "a property of a module": ((m := Module("m"), setattr(m, "hidden", 1.5))[0], lambda h: h.value, put("hidden", 2.5)),
    **{
        f"an attribute of {name}": (of_base(base, *args), lambda h: h.factor, put("factor", 2.5))
        for name, base, args in (
            ("a bytearray", bytearray, (b"a",)),
            ("an array", array, ("d", [1.0])),
            ("an event", threading.Event, ()),
            ("a generator", random.Random, (1,)),
            ("a decimal number", decimal.Decimal, ("1.5",)),
            ("a simple queue", queue.SimpleQueue, ()),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_change_between_two_calls_is_seen(name):
    held, read, change = CASES[name]
    x = fb.ones(2)
    compiled = fb.jit(lambda x: x * read(held))
    before = read(held)
    assert compiled(x).tolist() == [before, before]
    change(held)
    after = read(held)
    assert after != before
    assert compiled(x).tolist() == [after, after]


def test_a_counter_beside_texts_without_attributes_makes_no_new_graph():
    held = Holder()
    compiled = fb.jit(lambda x: x * float("{:.1f}".format(held.k)))  # noqa: UP032 - what is tested
    for held.count in range(4):
        compiled(fb.ones(2))
    assert compiled.traces == 1


def test_a_counter_in_an_implementation_of_an_interface_makes_no_new_graph():
    class Numbers(collections.abc.Sequence):
        def __init__(self):
            self.items, self.count = [1.0, 2.0], 0

        def __len__(self):
            return len(self.items)

        def __getitem__(self, index):
            return self.items[index]

    held = Numbers()
    compiled = fb.jit(lambda x: x * sum(held))
    for held.count in range(4):
        assert compiled(fb.ones(2)).tolist() == [3.0, 3.0]
    assert compiled.traces == 1
