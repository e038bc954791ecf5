"""Traps that compilers of Python functions are known for, one test each, with what happens here.

What a function captures is read at each call, and nothing that it captured is kept alive by its graphs.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from array import array
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.commit import Commit
from firebrick.testing import assert_max_traces

pytestmark = pytest.mark.usefixtures("nothing_left")

SCALE = fb.asarray(2.0)
FACTOR = 3.0
TABLE = {"a": fb.asarray(1.0), "n": 1}


def ones(n: int = 2) -> fb.Tensor:
    return fb.ones(n)


# tensors that are captured


def test_a_captured_tensor_changed_in_place_is_read_anew() -> None:
    w = fb.asarray([1.0, 2.0])
    f = fb.jit(lambda x: x * w)
    assert f(ones()).tolist() == [1.0, 2.0]
    w[0] = 5.0
    assert f(ones()).tolist() == [5.0, 2.0]
    w += 1.0
    assert f(ones()).tolist() == [6.0, 3.0]
    fb.multiply(w, 2.0, out=w)
    assert f(ones()).tolist() == [12.0, 6.0]
    assert f.traces == 1


def test_a_closure_variable_bound_to_another_tensor_is_read_anew_without_a_new_trace() -> None:
    w = fb.asarray(2.0)

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        return x * w

    assert f(ones()).tolist() == [2.0, 2.0]
    w = fb.asarray(7.0)
    assert f(ones()).tolist() == [7.0, 7.0]
    w = fb.asarray([1.0, 3.0])
    assert f(ones()).tolist() == [1.0, 3.0]
    assert f.traces == 2  # another shape


def test_a_global_tensor_bound_anew_is_read_anew() -> None:
    global SCALE
    f = fb.jit(lambda x: x * SCALE)
    try:
        assert f(ones()).tolist() == [2.0, 2.0]
        SCALE = fb.asarray(4.0)
        assert f(ones()).tolist() == [4.0, 4.0]
        assert f.traces == 1
    finally:
        SCALE = fb.asarray(2.0)


def test_a_tensor_in_an_attribute_list_or_dict_is_read_anew() -> None:
    held = SimpleNamespace(w=fb.asarray(1.0))
    items = [fb.asarray(10.0)]
    f = fb.jit(lambda x: x * held.w + items[0] + TABLE["a"])
    assert f(ones()).tolist() == [12.0, 12.0]
    held.w = fb.asarray(2.0)
    assert f(ones()).tolist() == [13.0, 13.0]
    items[0] = fb.asarray(20.0)
    assert f(ones()).tolist() == [23.0, 23.0]
    before = TABLE["a"]
    TABLE["a"] = fb.asarray(2.0)
    try:
        assert f(ones()).tolist() == [24.0, 24.0]
    finally:
        TABLE["a"] = before
    assert f.traces == 1


class Plain:
    factor = 2.0
    table = fb.asarray(1.0)

    def __init__(self) -> None:
        self.w = fb.asarray(1.0)
        self.n = 1

    def __call__(self, x: fb.Tensor) -> fb.Tensor:
        return x * self.w * self.n * self.factor + self.table

    @property
    def doubled(self) -> fb.Tensor:
        return self.w * 2.0 * self.n

    @fb.jit
    def step(self, x: fb.Tensor) -> fb.Tensor:
        self.w += x
        return self.w * self.n


class Slots:
    __slots__ = ("n", "w")

    def __init__(self) -> None:
        self.w = fb.asarray(1.0)
        self.n = 1


@dataclass
class Record:
    w: fb.Tensor
    n: int = 1


@pytest.mark.parametrize(
    "make", [Plain, Slots, lambda: Record(fb.asarray(1.0)), lambda: SimpleNamespace(w=fb.asarray(1.0), n=1)]
)
def test_tensors_and_numbers_of_any_object_are_read_anew(make) -> None:
    held = make()
    f = fb.jit(lambda x: x * held.w + held.n)
    assert f(ones()).tolist() == [2.0, 2.0]
    held.w = fb.asarray(3.0)
    assert f(ones()).tolist() == [4.0, 4.0]
    held.w += 1.0
    assert f(ones()).tolist() == [5.0, 5.0]
    assert f.traces == 1
    held.n = 2
    assert f(ones()).tolist() == [6.0, 6.0]
    assert f.traces == 2
    assert "held.n: int 1 → int 2" in fb.explain_recompiles(f)[-1].reason
    held = make()
    assert f(ones()).tolist() == [2.0, 2.0]
    assert f.traces == 2


def test_a_class_attribute_is_read_anew() -> None:
    held = Plain()
    f = fb.jit(held)
    assert f(ones()).tolist() == [3.0, 3.0]
    try:
        Plain.factor = 4.0
        assert f(ones()).tolist() == [5.0, 5.0]
        Plain.table = fb.asarray(10.0)
        assert f(ones()).tolist() == [14.0, 14.0]
    finally:
        Plain.factor, Plain.table = 2.0, fb.asarray(1.0)
    held.factor = 1.0  # hides the class's
    assert f(ones()).tolist() == [2.0, 2.0]
    del held.factor
    assert f(ones()).tolist() == [3.0, 3.0]


def test_a_class_attribute_read_through_the_class_is_read_anew() -> None:
    f = fb.jit(lambda x: x * Plain.factor)
    assert f(ones()).tolist() == [2.0, 2.0]
    try:
        Plain.factor = 5.0
        assert f(ones()).tolist() == [5.0, 5.0]
    finally:
        Plain.factor = 2.0


def test_a_method_replaced_on_its_class_is_seen() -> None:
    class Thing:
        def scaled(self, x: fb.Tensor) -> fb.Tensor:
            return x * 2.0

    thing = Thing()
    f = fb.jit(lambda x: thing.scaled(x))
    assert f(ones()).tolist() == [2.0, 2.0]
    Thing.scaled = lambda self, x: x * 3.0
    assert f(ones()).tolist() == [3.0, 3.0]


def test_an_attribute_of_a_python_module_is_read_anew() -> None:
    lib = ModuleType("user_settings")
    lib.rate, lib.w, lib.unread = 2.0, fb.asarray(1.0), 0
    f = fb.jit(lambda x: x * lib.rate + lib.w)
    assert f(ones()).tolist() == [3.0, 3.0]
    lib.unread = 5
    assert f(ones()).tolist() == [3.0, 3.0]
    lib.w = fb.asarray(2.0)
    assert f(ones()).tolist() == [4.0, 4.0]
    assert f.traces == 1
    lib.rate = 3.0
    assert f(ones()).tolist() == [5.0, 5.0]
    assert f.traces == 2


def test_a_function_of_another_python_module_reads_its_own_globals() -> None:
    lib = ModuleType("user_library")
    exec("rate = 2.0\ndef scaled(x):\n    return inner(x)\ndef inner(x):\n    return x * rate\n", lib.__dict__)
    f = fb.jit(lambda x: lib.scaled(x))
    assert f(ones()).tolist() == [2.0, 2.0]
    lib.rate = 3.0
    assert f(ones()).tolist() == [3.0, 3.0]
    exec("def inner(x):\n    return x * rate + 1.0\n", lib.__dict__)
    assert f(ones()).tolist() == [4.0, 4.0]


def test_a_default_argument_is_read_anew() -> None:
    w = fb.asarray(2.0)

    def g(x: fb.Tensor, scale: fb.Tensor = w, n: float = 1.0, *, k: float = 0.0) -> fb.Tensor:
        return x * scale + n + k

    f = fb.jit(g)
    assert f(ones()).tolist() == [3.0, 3.0]
    w += 1.0
    assert f(ones()).tolist() == [4.0, 4.0]
    g.__defaults__ = (w, 5.0)
    assert f(ones()).tolist() == [8.0, 8.0]
    g.__kwdefaults__ = {"k": 1.0}
    assert f(ones()).tolist() == [9.0, 9.0]


def test_what_a_partial_holds_is_read_anew() -> None:
    w, items = fb.asarray(2.0), [1.0]
    f = fb.jit(partial(lambda w, items, x, k: x * w + items[0] + k, w, items, k=fb.asarray(0.0)))
    assert f(ones()).tolist() == [3.0, 3.0]
    w += 1.0
    assert f(ones()).tolist() == [4.0, 4.0]
    items[0] = 2.0
    assert f(ones()).tolist() == [5.0, 5.0]


def test_a_nested_helper_sees_what_its_own_closure_holds_now() -> None:
    rate = 2.0

    def helper(x: fb.Tensor) -> fb.Tensor:
        def inner(y: fb.Tensor) -> fb.Tensor:
            return y * rate * FACTOR

        return inner(x)

    f = fb.jit(lambda x: sum(helper(v) for v in (x,)))
    assert f(ones()).tolist() == [6.0, 6.0]
    rate = 3.0
    assert f(ones()).tolist() == [9.0, 9.0]


def test_a_global_number_changed_later_makes_another_graph_that_is_explained() -> None:
    global FACTOR
    f = fb.jit(lambda x: x * FACTOR)
    try:
        assert f(ones()).tolist() == [3.0, 3.0]
        FACTOR = 4.0
        assert f(ones()).tolist() == [4.0, 4.0]
        assert [r.reason for r in fb.explain_recompiles(f)] == ["first call", "FACTOR: float 3.0 → float 4.0"]
        FACTOR = 3.0
        assert f(ones()).tolist() == [3.0, 3.0]
        assert f.traces == 2
    finally:
        FACTOR = 3.0


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0), (float("inf"), 1e300), ("a", b"a"), (None, False)]
)
def test_numbers_that_are_equal_and_yet_differ_make_graphs_of_their_own(one, other) -> None:
    seen = []
    value = one

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        seen.append.__self__  # noqa: B018 - reads, changes nothing
        return x + (0.0 if not isinstance(value, (int, float)) else 1.0 / value if value else np.copysign(1.0, value).item())

    def eager(x: fb.Tensor) -> fb.Tensor:
        return f.fn(x)

    for value in (one, other, one):  # noqa: B007 - the function reads it
        assert f(ones()).tolist() == eager(ones()).tolist()
    assert f.traces == 2


def test_a_nan_in_a_closure_does_not_retrace_at_each_call() -> None:
    value = float("nan")
    f = fb.jit(lambda x: x * value)
    for _ in range(3):
        assert np.isnan(f(ones()).numpy()).all()
        value = float("nan")
    assert f.traces == 1


# host arrays


def test_a_captured_numpy_array_changed_in_place_is_seen() -> None:
    host = np.array([1.0, 2.0], np.float32)
    f = fb.jit(lambda x: x * fb.asarray(host))
    assert f(ones()).tolist() == [1.0, 2.0]
    host[0] = 9.0
    assert f(ones()).tolist() == [9.0, 2.0]
    host[1] = np.nan
    assert np.isnan(f(ones()).numpy()[1])
    traces = f.traces
    assert np.isnan(f(ones()).numpy()[1])
    assert f.traces == traces


def test_signed_zeros_of_a_captured_array_are_told_apart() -> None:
    host = np.zeros(2, np.float32)
    f = fb.jit(lambda x: x / fb.asarray(host))
    assert f(ones()).tolist() == [np.inf, np.inf]
    host[:] = -0.0
    assert f(ones()).tolist() == [-np.inf, -np.inf]


def test_a_captured_numpy_scalar_bound_anew_is_seen() -> None:
    n = np.float32(2.0)
    f = fb.jit(lambda x: x * float(n))
    assert f(ones()).tolist() == [2.0, 2.0]
    n = np.float32(3.0)
    assert f(ones()).tolist() == [3.0, 3.0]


def test_a_large_captured_array_raises_rather_than_being_kept_as_it_is() -> None:
    host = np.ones(1 << 20, np.float32)
    f = fb.jit(lambda x: fb.sum(x * fb.asarray(host)))
    with pytest.raises(fb.TraceError, match=r"(?s)host: float32\[1048576\].*fb\.asarray\(host\)"):
        f(fb.ones(1 << 20))


# objects


def test_a_jitted_method_serves_each_instance_with_its_own_state() -> None:
    a, b = Plain(), Plain()
    b.w = fb.asarray(10.0)
    assert a.step(fb.asarray(1.0)).item() == 2.0
    assert b.step(fb.asarray(1.0)).item() == 11.0
    assert a.step(fb.asarray(1.0)).item() == 3.0
    assert (a.w.item(), b.w.item()) == (3.0, 11.0)


def test_properties_and_callable_objects_are_looked_into() -> None:
    held = Plain()
    f = fb.jit(lambda x: x + held.doubled)
    assert f(ones()).tolist() == [3.0, 3.0]
    held.n = 2
    assert f(ones()).tolist() == [5.0, 5.0]
    held.w = fb.asarray(2.0)
    assert f(ones()).tolist() == [9.0, 9.0]
    called = fb.jit(held)
    assert called(ones()).tolist() == held(ones()).tolist()


def test_attributes_that_the_code_does_not_read_make_no_new_graph() -> None:
    held = Plain()
    f = fb.jit(lambda x: x * held.w)
    with assert_max_traces(1, f):
        for i in range(5):
            held.counter = i
            held.history = [i] * i
            f(ones())


def test_an_attribute_with_a_computed_name_is_read_anew() -> None:
    held = SimpleNamespace(alpha=2.0)
    name = "alpha"
    f = fb.jit(lambda x: x * getattr(held, name))
    assert f(ones()).tolist() == [2.0, 2.0]
    held.alpha = 3.0
    assert f(ones()).tolist() == [3.0, 3.0]


def test_a_computed_attribute_is_read_anew() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.store = {"w": fb.asarray(1.0), "n": 1.0}

        def __getattr__(self, name: str):
            return self.store[name]

    held = Lazy()
    f = fb.jit(lambda x: x * held.w * held.n)
    assert f(ones()).tolist() == [1.0, 1.0]
    held.store["w"] = fb.asarray(3.0)
    assert f(ones()).tolist() == [3.0, 3.0]
    held.store["n"] = 2.0
    assert f(ones()).tolist() == [6.0, 6.0]


def test_numbers_in_any_container_are_read_anew() -> None:
    local, variable = threading.local(), ContextVar("rate", default=2.0)
    local.rate = 2.0
    places = {
        "deque": (deque([2.0]), lambda v: v[0], lambda v: v.__setitem__(0, 3.0)),
        "bytes": (bytearray(b"\x02"), lambda v: v[0], lambda v: v.__setitem__(0, 3)),
        "array": (array("d", [2.0]), lambda v: v[0], lambda v: v.__setitem__(0, 3.0)),
        "objects": (np.array([2.0, None], object), lambda v: v[0], lambda v: v.__setitem__(0, 3.0)),
        "local": (local, lambda v: v.rate, lambda v: setattr(v, "rate", 3.0)),
        "variable": (variable, lambda v: v.get(), lambda v: v.set(3.0)),
        "set": ({2.0}, lambda v: sum(v), lambda v: (v.clear(), v.add(3.0))),
        "nested": (([{"a": (2.0,)}],), lambda v: v[0][0]["a"][0], lambda v: v[0][0].update(a=(3.0,))),
        "function": (lambda: None, lambda v: v.rate, lambda v: setattr(v, "rate", 3.0)),
    }
    places["function"][0].rate = 2.0
    for name, (held, read, change) in places.items():
        f = fb.jit(lambda x, held=held, read=read: x * read(held))
        assert f(ones()).tolist() == [2.0, 2.0], name
        change(held)
        assert f(ones()).tolist() == [3.0, 3.0], name


def test_what_is_imported_inside_is_read_anew() -> None:
    lib = ModuleType("user_settings_inside")
    lib.rate = 2.0
    sys.modules[lib.__name__] = lib

    def g(x: fb.Tensor) -> fb.Tensor:
        import user_settings_inside
        from user_settings_inside import rate

        return x * user_settings_inside.rate * rate

    try:
        f = fb.jit(g)
        assert f(ones()).tolist() == [4.0, 4.0]
        lib.rate = 3.0
        assert f(ones()).tolist() == [9.0, 9.0]
    finally:
        del sys.modules[lib.__name__]


def test_a_name_that_is_defined_later_is_seen() -> None:
    space = {"__name__": "user_space"}
    exec("def g(x):\n    try:\n        return x * late\n    except NameError:\n        return x * abs(-2.0)\n", space)
    f = fb.jit(space["g"])
    assert f(ones()).tolist() == [2.0, 2.0]
    space["abs"] = lambda v: 5.0
    assert f(ones()).tolist() == [5.0, 5.0]
    space["late"] = 3.0
    assert f(ones()).tolist() == [3.0, 3.0]


def test_a_class_that_is_an_attribute_of_itself_is_looked_into_once() -> None:
    class Root:
        rate = 2.0
        root: type

        def scaled(self, x: fb.Tensor) -> fb.Tensor:
            return x * self.root.root.rate

    Root.root = Root
    held = Root()
    f = fb.jit(lambda x: held.scaled(x))
    assert f(ones()).tolist() == [2.0, 2.0]
    Root.rate = 3.0
    assert f(ones()).tolist() == [3.0, 3.0]


def test_operators_static_and_inherited_methods_of_a_users_class_are_looked_into() -> None:
    class Base:
        rate = 2.0

        def __mul__(self, x: fb.Tensor) -> fb.Tensor:
            return x * self.rate

        @staticmethod
        def fixed(x: fb.Tensor) -> fb.Tensor:
            return x * Base.rate

        @classmethod
        def own(cls, x: fb.Tensor) -> fb.Tensor:
            return x * cls.rate

    class Derived(Base):
        def above(self, x: fb.Tensor) -> fb.Tensor:
            return super().own(x)

    held = Derived()
    f = fb.jit(lambda x: held * x + Derived.fixed(x) + Derived.own(x) + held.above(x))
    assert f(ones()).tolist() == [8.0, 8.0]
    Base.rate = 3.0
    assert f(ones()).tolist() == [12.0, 12.0]
    Derived.rate = 1.0
    assert f(ones()).tolist() == [6.0, 6.0]
    held.rate = 2.0
    assert f(ones()).tolist() == [7.0, 7.0]


def test_a_torch_tensor_whose_number_is_read_is_read_anew() -> None:
    torch = pytest.importorskip("torch")
    rate = torch.tensor(2.0)
    f = fb.jit(lambda x: x * rate.item())
    assert f(ones()).tolist() == [2.0, 2.0]
    rate.fill_(3.0)
    assert f(ones()).tolist() == [3.0, 3.0]


def test_a_tensor_that_jit_cannot_find_raises_rather_than_being_kept_as_it_is() -> None:
    hidden = SimpleQueue()
    hidden.put(fb.asarray(2.0))
    f = fb.jit(lambda x: x * hidden.get())
    with pytest.raises(fb.TraceError, match="held elsewhere"):
        f(ones())


def test_an_inner_jit_is_part_of_the_outer_graph() -> None:
    w = fb.asarray(2.0)
    inner = fb.jit(lambda x: x * w)
    outer = fb.jit(lambda x: inner(x) + inner(x + 1.0))
    assert outer(ones()).tolist() == [6.0, 6.0]
    w += 1.0
    assert outer(ones()).tolist() == [9.0, 9.0]
    assert (inner.traces, outer.traces) == (0, 1)
    twice = fb.jit(fb.jit(lambda x: x * w))
    assert twice(ones()).tolist() == [3.0, 3.0]
    w += 1.0
    assert twice(ones()).tolist() == [4.0, 4.0]


# memory


def test_dropping_the_function_frees_its_graphs_and_what_it_captured() -> None:
    def make() -> tuple[weakref.ref, weakref.ref]:
        w = fb.ones(1000)
        f = fb.jit(lambda x: x * w)
        f(fb.ones(1000))
        return weakref.ref(f), weakref.ref(w)

    refs = make()
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_a_graph_keeps_no_argument_alive() -> None:
    f = fb.jit(lambda x, rest: x + rest["y"])
    x, y = fb.ones(10), fb.ones(10)
    refs = [weakref.ref(x), weakref.ref(y)]
    f(x, {"y": y})
    f(x, {"y": y})
    del x, y
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_a_model_given_as_an_argument_is_not_kept_alive() -> None:
    f = fb.jit(lambda m, x: m(x))

    def call() -> weakref.ref:
        model = fb.nn.Linear(2, 2)
        f(model, fb.ones((1, 2)))
        return weakref.ref(model.weight)

    held = call()
    gc.collect()
    assert held() is None


def test_two_models_of_one_kind_share_a_graph() -> None:
    f = fb.jit(lambda m, x: m(x))
    for _ in range(3):
        model = fb.nn.Linear(2, 2)
        x = fb.ones((1, 2))
        assert np.allclose(f(model, x).numpy(), model(x).numpy(), atol=1e-6)
    assert f.traces == 1


def test_memory_of_repeated_calls_does_not_grow() -> None:
    w = fb.ones(1000)

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        w[...] = w + x
        return fb.sum(w)

    x = fb.ones(1000)
    f(x)
    device = x.device
    live = device.backend.memory_stats(device)
    for _ in range(20):
        f(x)
    assert device.backend.memory_stats(device) == live


def test_batches_that_an_object_holds_are_no_reason_for_another_graph() -> None:
    class Run:
        def __init__(self) -> None:
            self.weight = fb.asarray(2.0)
            self.batches = [fb.full((3,), float(i)) for i in range(5)]

        @fb.jit
        def loss(self, x: fb.Tensor) -> fb.Tensor:
            assert len(self.batches) == 5
            return fb.sum(x) * self.weight

    run = Run()
    assert [run.loss(x).item() for x in run.batches] == [0.0, 6.0, 12.0, 18.0, 24.0]
    assert Run.loss.traces == 1


def test_an_argument_that_is_captured_and_changed_is_one_tensor() -> None:
    held = [ones(), ones()]

    @fb.jit
    def bump(x: fb.Tensor) -> fb.Tensor:
        x += 1.0
        return held[0] * 10.0

    other = ones()
    assert bump(other).tolist() == [10.0, 10.0]
    assert bump(held[0]).tolist() == [20.0, 20.0]
    assert [t.tolist() for t in (held[0], other)] == [[2.0, 2.0], [2.0, 2.0]]
    assert bump(held[1]).tolist() == [20.0, 20.0]
    assert held[1].tolist() == [2.0, 2.0]


def test_elements_of_a_large_array_are_seen_to_change() -> None:
    table = np.zeros(1 << 18)

    @fb.jit
    def scaled(x: fb.Tensor) -> fb.Tensor:
        return x * float(table[7])

    assert scaled(ones()).tolist() == [0.0, 0.0]
    table[7] = 3.0
    assert scaled(ones()).tolist() == [3.0, 3.0]


def by_commit(t: fb.Tensor, to: fb.Tensor) -> None:
    commit = Commit()
    commit.rebind(t, to)
    commit.apply()


@pytest.mark.parametrize("rebind", [fb.Tensor._rebind, by_commit])
@pytest.mark.parametrize("shown", [True, False], ids=["the new value", "the handle"])
def test_a_handle_is_not_changed_where_jit_cannot_find_it_or_its_new_value(rebind: Any, shown: bool) -> None:
    hidden: SimpleQueue[fb.Tensor] = SimpleQueue()
    hidden.put(fb.asarray([3.0, 4.0]))
    x = ones()
    f = fb.jit(lambda x: rebind(x, hidden.get()) if shown else rebind(hidden.get(), x))
    with pytest.raises(fb.TraceError, match="held elsewhere"):
        f(x)
    assert x.tolist() == [1.0, 1.0]


def test_what_the_function_of_a_bound_method_captures_is_read_at_each_call() -> None:
    rate = [2.0]
    bound = MethodType(lambda self, x: x * rate[0] + self.shift, SimpleNamespace(shift=1.0))
    for f in (fb.jit(lambda x: bound(x)), fb.jit(bound)):
        rate[0] = 2.0
        assert f(ones()).tolist() == [3.0, 3.0]
        rate[0] = 3.0
        assert f(ones()).tolist() == [4.0, 4.0]
