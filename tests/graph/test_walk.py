"""A walk: what it compares at the next call, one kind of thing after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from io import FileIO
from operator import attrgetter
from random import SystemRandom
from subprocess import Popen
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.graph.plain import PLAIN
from firebrick.graph.record import Record
from firebrick.graph.spaces import bits_of, defaults_of, slots_of
from firebrick.graph.walk import Walk


def closure(*values: Any) -> tuple[Callable[[], Any], Callable[[Any], None], Callable[[], None]]:
    """A function of a variable that may have no value yet, how it gets one, and how it loses it."""
    if values:
        (held,) = values

    def put(v: Any) -> None:
        nonlocal held
        held = v

    def drop() -> None:
        nonlocal held
        del held

    return lambda: held, put, drop


@pytest.mark.parametrize(("values", "changes"), [((), ["put"]), ((1,), ["put", "drop"])])
def test_a_closure_variable_is_as_it_was_until_it_gets_another_value_or_loses_it(values: Any, changes: list[str]) -> None:
    for change in changes:
        f, put, drop = closure(*values)
        walk = Walk([("f", f)])
        assert walk.fresh()
        if change == "put":
            put(2)
        else:
            drop()
        assert not walk.fresh()


HELD: dict[str, Any] = {"list": [1, 2], "dict": {"n": 1}, "set": {1}, "array": np.ones(2), "bytes": bytearray(b"ab")}


def read() -> Any:
    return HELD


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a list grows": (lambda: HELD["list"].append(3), lambda: HELD["list"].pop()),
    "an item of a list": (lambda: HELD["list"].__setitem__(0, 7), lambda: HELD["list"].__setitem__(0, 1)),
    "an entry of a dict": (lambda: HELD["dict"].update(n=2), lambda: HELD["dict"].update(n=1)),
    "another entry of a dict": (lambda: HELD["dict"].update(m=2), lambda: HELD["dict"].pop("m")),
    "a set grows": (lambda: HELD["set"].add(2), lambda: HELD["set"].discard(2)),
    "an array": (lambda: HELD["array"].__setitem__(1, 5.0), lambda: HELD["array"].__setitem__(1, 1.0)),
    "bytes": (lambda: HELD["bytes"].__setitem__(1, 5), lambda: HELD["bytes"].__setitem__(1, 98)),
    "a default": (lambda: setattr(read, "__defaults__", (1,)), lambda: setattr(read, "__defaults__", None)),
    "a default by name": (lambda: setattr(read, "__kwdefaults__", {"a": 1}), lambda: setattr(read, "__kwdefaults__", None)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_global_holds_is_as_it_was_until_a_part_of_it_changes(name: str) -> None:
    change, back = CHANGES[name]
    walk = Walk([("read", read)])
    assert walk.fresh()
    change()
    try:
        assert not walk.fresh()
    finally:
        back()


class Text(str): ...


class Number(float): ...


class Row(list): ...


class Pair(tuple): ...


class Table(dict): ...


class Group(set): ...


class Frozen(frozenset): ...


class Array(np.ndarray): ...


OWN = [Text("a"), Number(1.5), Row([1]), Pair((1, 2)), Table(n=1), Group({1}), Frozen({1}), np.ones(2).view(Array)]


@pytest.mark.parametrize("value", OWN, ids=lambda v: type(v).__name__)
def test_a_value_of_a_users_class_is_as_it_was_until_an_attribute_of_it_changes(value: Any) -> None:
    value.scale = 2.0
    walk = Walk([("arguments", {"x": value})])
    assert walk.fresh()
    value.scale = 3.0
    assert not walk.fresh()
    assert Walk([("arguments", {"x": value})]).key != walk.key


DICE, FILE, SHELL, BY, NUMBER = SystemRandom, FileIO, Popen, attrgetter, Fraction


@pytest.mark.parametrize(
    ("fn", "outside", "every"),
    [
        (lambda x: DICE().random() * x, True, False), (lambda x: FILE("a"), True, False), (lambda x: SHELL("a"), True, False),
        (lambda x: BY("a")(x), False, True), (lambda x: NUMBER(1) * x, False, False),
    ],
    ids=["SystemRandom", "FileIO", "Popen", "attrgetter", "Fraction"],
)  # fmt: skip
def test_a_class_of_a_library_is_known_for_what_it_reads_by_another_name_too(fn: Any, outside: bool, every: bool) -> None:
    walk = Walk([("f", fn)])
    assert (walk.outside, walk.every_name) == (outside, every)


def test_what_an_instance_may_hide_are_plain_attributes_of_firebricks_bases() -> None:
    class Own(fb.nn.Linear):
        width = 3

    found = defaults_of(Own)
    assert found == defaults_of(fb.nn.Linear)
    assert found["training"] is True
    assert all(isinstance(v, PLAIN) for v in found.values())
    assert not [n for n in found if n.startswith("__") or n in ("versioned", "width")]


def test_slots_are_names_and_bits_of_arrays_tell_meaning_and_layout() -> None:
    class One:
        __slots__ = "only"  # Python takes one name, too

    class Two(One):
        __slots__ = ("a", "b")

    assert [slots_of(c) for c in (One, Two, int)] == [("only",), ("a", "b"), ()]
    x = np.arange(6.0).reshape(2, 3)
    frozen = x.copy()
    frozen.flags.writeable = False
    others = [x + 1, x.reshape(3, 2), x.view(np.int64), np.asfortranarray(x), frozen, x.astype([("a", "f8")])]
    assert len({bits_of(v) for v in (x, *others)}) == 7
    assert bits_of(x) == bits_of(x.copy())


def passes(monkeypatch: pytest.MonkeyPatch, f: Callable[..., Any]) -> int:
    """How often a walk from a function begins."""
    begun: list[Record] = []
    begin = Record.begin

    def noted(self: Record) -> None:
        begun.append(self)
        begin(self)

    with monkeypatch.context() as patch:
        patch.setattr(Record, "begin", noted)
        Walk([("f", f)])
    return len(begun) - 1  # the first is that of a new record


def test_a_walk_that_reads_names_before_it_chooses_by_them_goes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder()
    assert passes(monkeypatch, lambda: fb.add(holder.first, 1)) == 1


def test_a_walk_that_learns_of_names_after_it_chose_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Holder(), Holder()
    a.first, a.second = lambda: b.second, fb.ones(1)
    f = lambda: a.first()  # noqa: E731
    assert passes(monkeypatch, f) == 2
    assert [path for path, _ in Walk([("f", f)]).leaves] == ["a.second"]


class Holder:
    """An object whose attributes are chosen by the names that code reads."""

    first: Any = 0
    second: Any = 0


@pytest.mark.filterwarnings("ignore::firebrick.RecompileWarning")
def test_one_of_many_values_in_a_namespace_is_noticed_when_it_changes() -> None:
    held: dict[str, Any] = {f"k{i}": float(i) for i in range(6)}
    lazy: Any = defaultdict(lambda: 1.0, held)
    space = SimpleNamespace(**held)

    def total(x: fb.Tensor) -> fb.Tensor:
        return x + sum(held.values()) + sum(lazy.values()) + space.k0 + space.k1 + space.k2 + space.k3 + space.k5

    compiled = fb.jit(total)
    x = fb.zeros(1)

    def same() -> bool:
        return bool(compiled(x).item() == total(x).item())

    assert same()
    for i in range(6):
        held[f"k{i}"] += 10.0
        assert same(), i
        lazy[f"k{i}"] += 100.0
        assert same(), i
        setattr(space, f"k{i}", i + 1000.0)
        assert same(), i
    del held["k3"]
    assert same()
    held["k3"] = -1.0  # another place in the order
    assert same()
    del lazy["k2"]
    assert same()
    assert "k2" not in lazy, "looking did not make it"
    del space.k5
    with pytest.raises(AttributeError):
        compiled(x)


class _Many(fb.nn.Module):
    def __init__(self, count: int) -> None:
        self.leaves = [fb.nn.Parameter(fb.full((2,), float(i))) for i in range(count)]
        self.scale = 1.0

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        total = x
        for p in self.leaves:
            total = total + p * self.scale
        return total


def test_one_of_many_tensors_is_noticed_whatever_of_it_changes() -> None:
    model, x = _Many(40), fb.zeros(2)
    compiled = fb.jit(model)

    def look(traces: int) -> None:
        assert compiled(x).tolist() == model(x).tolist()
        assert compiled.traces == traces

    look(1)
    model.leaves[-1] += 1.0
    look(1)
    model.leaves[17][...] = fb.asarray([5.0, 6.0])
    look(1)
    model.leaves[5].require_grad()
    assert compiled(x).tracked, "a tracked parameter has a gradient"
    model.leaves[5].node = None
    look(2)
    model.scale = 2.0
    look(3)
    model.leaves[30] = fb.nn.Parameter(fb.ones(1))
    look(4)
    model.leaves[31] = model.leaves[30]
    look(5)
    model.leaves.pop()
    look(6)
    model.leaves[3] = fb.nn.Parameter(fb.ones(2, dtype=fb.float64))
    look(7)
    model.leaves[4] = fb.nn.Parameter(fb.ones(2, device="cpu:1"))
    with pytest.raises(fb.DeviceMismatchError):
        compiled(x)
