"""Numbers in places where a walk through attributes and plain containers does not come by are read anew all the same."""

from __future__ import annotations

import argparse
import collections
import copy
import ctypes
import enum
import functools
import importlib
import operator
import os
import pickle
import queue
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import firebrick as fb

pytestmark = pytest.mark.usefixtures("nothing_left")

Made = tuple[Callable[[], Any], Callable[[], None]]
CASES: dict[str, Callable[[], Made]] = {}
SCALE = 2.0


def ones() -> fb.Tensor:
    return fb.ones(2)


def case(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register what makes a way to read a number that is 2, and what makes it 3."""
    CASES[make.__name__] = make
    return make


def beside(kind: type, *args: Any) -> Made:
    """The number is an attribute of a plain value or container whose class is a user's."""
    held = type("Mine", (kind,), {"__module__": __name__})(*args)
    held.scale = 2.0

    def change() -> None:
        held.scale = 3.0

    return (lambda: held.scale), change


for _kind, _args in {dict: (), list: (), tuple: (), set: (), float: (1.0,), str: ("a",), collections.deque: ()}.items():
    CASES[f"attribute_of_a_{_kind.__name__}"] = functools.partial(beside, _kind, *_args)


@case
def a_cached_function() -> Made:
    held = {"scale": 2.0}

    @functools.cache
    def scale() -> float:
        return held["scale"]

    def change() -> None:
        held["scale"] = 3.0
        scale.cache_clear()

    return scale, change


def within(kind: type, read: Callable[[Any], Any], members: Callable[[list[float]], dict[str, Any]], *args: Any) -> Made:
    """The number is in what a method of such a class captures."""
    k = [2.0]
    held = type("Mine", (kind,), {"__module__": __name__, **members(k)})(*args)

    def change() -> None:
        k[0] = 3.0

    return (lambda: read(held)), change


CASES["getitem_of_a_dict"] = lambda: within(dict, lambda d: d["a"], lambda k: {"__getitem__": lambda d, i: k[0]})
CASES["missing_of_a_dict"] = lambda: within(dict, lambda d: d["a"], lambda k: {"__missing__": lambda d, i: k[0]})
CASES["method_of_a_str"] = lambda: within(str, lambda s: s.get(), lambda k: {"get": lambda s: k[0]})
CASES["property_of_a_tuple"] = lambda: within(tuple, lambda t: t.get, lambda k: {"get": property(lambda t: k[0])})


@case
def attribute_of_an_enum_member() -> Made:
    class Mode(enum.Enum):
        A = 1

    Mode.A.scale = 2.0
    return (lambda: Mode.A.scale), lambda: setattr(Mode.A, "scale", 3.0)


@case
def attribute_of_an_array() -> Made:
    class Mine(np.ndarray):
        pass

    held = np.zeros(2).view(Mine)
    held.scale = 2.0
    return (lambda: held.scale), lambda: setattr(held, "scale", 3.0)


@case
def default_factory() -> Made:
    k = [2.0]
    held = collections.defaultdict(lambda: k[0])
    return (lambda: held.default_factory()), lambda: k.__setitem__(0, 3.0)


@case
def mapping_proxy() -> Made:
    d = {"a": 2.0}
    shown = types.MappingProxyType(d)
    return (lambda: shown["a"]), lambda: d.update(a=3.0)


@case
def dict_view() -> Made:
    d = {"a": 2.0}
    shown = d.values()
    return (lambda: sum(shown)), lambda: d.update(a=3.0)


class Held:
    def __init__(self) -> None:
        self.scale = 2.0


@case
def weak_values() -> Made:
    held = Held()
    shown = weakref.WeakValueDictionary(a=held)
    return (lambda: shown["a"].scale), lambda: setattr(held, "scale", 3.0)


@case
def weak_proxy() -> Made:
    held = Held()
    shown = weakref.proxy(held)
    return (lambda: shown.scale), lambda: setattr(held, "scale", 3.0)


@case
def number_of_c() -> Made:
    held = ctypes.c_double(2.0)
    return (lambda: held.value), lambda: setattr(held, "value", 3.0)


@case
def first_of_a_queue() -> Made:
    held: queue.Queue[float] = queue.Queue()
    held.put(2.0)
    return (lambda: held.queue[0]), lambda: held.queue.__setitem__(0, 3.0)


@case
def polynomial() -> Made:
    held = np.poly1d([0.0, 2.0])
    return (lambda: float(held(0.0))), lambda: held.coeffs.__setitem__(-1, 3.0)


@case
def variable_of_the_process() -> Made:
    os.environ["FIREBRICK_TEST_SCALE"] = "2"
    return (lambda: float(os.environ["FIREBRICK_TEST_SCALE"])), lambda: os.environ.update(FIREBRICK_TEST_SCALE="3")


@case
def variable_of_the_process_by_getenv() -> Made:
    os.environ["FIREBRICK_TEST_SCALE"] = "2"
    return (lambda: float(os.getenv("FIREBRICK_TEST_SCALE", ""))), lambda: os.environ.update(FIREBRICK_TEST_SCALE="3")


def through(read: Callable[[Any], Any]) -> Made:
    """An attribute whose name the function's code does not have."""

    class Mine:
        def get(self) -> float:
            return self.scale

    held = Mine()
    held.scale = 2.0

    def change() -> None:
        held.scale = 3.0

    return (lambda: read(held)), change


def matched_by_keyword(v: Any) -> float:
    match v:
        case object(scale=found):
            return found
    return 0.0


CASES["attrgetter"] = lambda: through(operator.attrgetter("scale"))
CASES["methodcaller"] = lambda: through(operator.methodcaller("get"))
CASES["getattr_under_another_name"] = lambda: through((lambda g: lambda v: g(v, "scale"))(getattr))
CASES["getattr_in_a_partial"] = lambda: through(lambda v: functools.partial(getattr, v)("scale"))
CASES["pattern_with_a_keyword"] = lambda: through(matched_by_keyword)


@case
def bound_getattribute() -> Made:
    held = types.SimpleNamespace(scale=2.0)
    get = held.__getattribute__
    return (lambda: get("scale")), lambda: setattr(held, "scale", 3.0)


@case
def bound_len() -> Made:
    held = [1, 2]
    count = held.__len__
    return (lambda: float(count())), lambda: held.append(3)


@case
def pattern_with_a_place() -> Made:
    class Mine:
        __match_args__ = ("scale",)

    held = Mine()
    held.scale = 2.0

    def read() -> float:
        match held:
            case Mine(found):
                return found
        return 0.0

    return read, lambda: setattr(held, "scale", 3.0)


@case
def property_of_an_attrgetter() -> Made:
    class Mine:
        scale = property(operator.attrgetter("inner"))

    held = Mine()
    held.inner = 2.0
    return (lambda: held.scale), lambda: setattr(held, "inner", 3.0)


def _global() -> None:
    globals()["SCALE"] = 3.0


CASES["globals"] = lambda: ((lambda: globals()["SCALE"]), _global)
CASES["eval_of_a_global"] = lambda: ((lambda: eval("SCALE")), _global)
CASES["globals_of_a_function"] = lambda: ((lambda: ones.__globals__["SCALE"]), _global)


def imported(read: Callable[[], Any]) -> Made:
    module = sys.modules["firebrick_test_settings"] = types.ModuleType("firebrick_test_settings")
    module.scale = 2.0
    return read, lambda: setattr(module, "scale", 3.0)


CASES["module_by_name"] = lambda: imported(lambda: importlib.import_module("firebrick_test_settings").scale)
CASES["module_in_sys"] = lambda: imported(lambda: sys.modules["firebrick_test_settings"].scale)


@case
def module_that_computes_attributes() -> Made:
    module, k = types.ModuleType("settings"), [2.0]
    module.__getattr__ = lambda name: k[0]
    return (lambda: module.scale), lambda: k.__setitem__(0, 3.0)


@case
def attribute_of_a_metaclass() -> Made:
    class Meta(type):
        scale = 2.0

    class Mine(metaclass=Meta):
        pass

    return (lambda: Mine.scale), lambda: setattr(Meta, "scale", 3.0)


@case
def property_of_a_metaclass() -> Made:
    k = [2.0]

    class Meta(type):
        @property
        def scale(cls) -> float:
            return k[0]

    class Mine(metaclass=Meta):
        pass

    return (lambda: Mine.scale), lambda: k.__setitem__(0, 3.0)


class Two:
    def get(self) -> float:
        return 2.0


class Three:
    def get(self) -> float:
        return 3.0


@case
def object_of_another_class_now() -> Made:
    held = Two()
    return (lambda: held.get()), lambda: setattr(held, "__class__", Three)


@case
def class_with_another_base_now() -> Made:
    class Mine(Two):
        pass

    held = Mine()
    return (lambda: held.get()), lambda: setattr(Mine, "__bases__", (Three,))


@case
def number_in_torchs_memory() -> Made:
    torch = pytest.importorskip("torch")
    held = torch.full((1,), 2.0)
    return (lambda: float(held.sum())), lambda: held.numpy().__setitem__(0, 3.0)


@case
def parameter_of_a_torch_module() -> Made:
    torch = pytest.importorskip("torch")
    held = torch.nn.Linear(1, 1, bias=False)
    held.weight.data.fill_(2.0)
    return (lambda: held.weight.sum().item()), lambda: held.weight.data.fill_(3.0)


@pytest.fixture(autouse=True)
def world_as_it_was() -> Iterator[None]:
    global SCALE
    yield
    SCALE = 2.0
    os.environ.pop("FIREBRICK_TEST_SCALE", None)
    sys.modules.pop("firebrick_test_settings", None)


@case
def init_of_a_class_that_is_made_anew() -> Made:
    k = [2.0]

    class Mine:
        def __init__(self) -> None:
            self.scale = k[0]

    return (lambda: Mine().scale), lambda: k.__setitem__(0, 3.0)


@pytest.mark.parametrize("name", CASES)
def test_a_number_wherever_it_is_held_is_read_anew(name) -> None:
    read, change = CASES[name]()
    f = fb.jit(lambda x: x * read())
    assert f(ones()).tolist() == [2.0, 2.0]
    assert f(ones()).tolist() == [2.0, 2.0]
    change()
    assert read() == 3.0
    assert f(ones()).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (fb.nn.ReLU(), fb.nn.Sigmoid()),
        (argparse.Namespace(k=2.0), types.SimpleNamespace(k=2.0)),
        ({"k": 2.0}, collections.Counter(k=2.0)),
        ([2.0], collections.deque([2.0])),
        ({2.0}, frozenset({2.0})),
    ],
    ids=lambda v: type(v).__name__,
)
def test_an_object_of_another_class_that_holds_the_same_has_a_graph_of_its_own(one: Any, other: Any) -> None:
    held, kind = types.SimpleNamespace(), type(one)
    captured = fb.jit(lambda x: x * (2.0 if type(held.value) is kind else 3.0))
    given = fb.jit(lambda x, o: x * (2.0 if type(o.value) is kind else 3.0))
    for value, want in ((one, 2.0), (other, 3.0), (one, 2.0)):
        held.value = value
        assert captured(ones()).tolist() == given(ones(), types.SimpleNamespace(value=value)).tolist() == [want, want]
    assert (captured.traces, given.traces) == (2, 2)


def test_a_function_that_chooses_by_the_type_of_its_argument_runs_compiled_and_notices_what_is_registered() -> None:
    @functools.singledispatch
    def scaled(x: Any) -> Any:
        return x

    scaled.register(fb.Tensor, lambda x: x * 2.0)
    compiled = fb.jit(lambda x: scaled(x))
    assert compiled(ones()).tolist() == [2.0, 2.0]
    assert compiled(ones()).tolist() == [2.0, 2.0]
    assert compiled.traces == 1
    scaled.register(fb.Tensor, lambda x: x * 3.0)
    assert compiled(ones()).tolist() == [3.0, 3.0]
    scaled.dispatch(int)  # which keeps what it found
    assert compiled(ones()).tolist() == [3.0, 3.0]
    assert compiled.traces == 2


def test_what_only_the_making_of_an_object_reads_makes_no_new_graph_for_one_that_is_there() -> None:
    k = [2.0]

    class Mine:
        def __init__(self) -> None:
            self.scale = k[0]

    held = Mine()
    f = fb.jit(lambda x: x * held.scale)
    f(ones())
    k[0] = 3.0
    assert f(ones()).tolist() == [2.0, 2.0]
    assert f.traces == 1


class Rows(list):
    def __init__(self, scale: float, items: list[Any]) -> None:
        super().__init__(items)
        self.scale = scale


class Named(dict):
    pass


def test_what_an_argument_has_beside_its_items_is_part_of_the_key() -> None:
    f = fb.jit(lambda rows, n: rows[0] * rows.scale + rows[1] * n)
    for scale in (2.0, 3.0):
        assert f(Rows(scale, [ones(), 1.5]), 2).tolist() == [scale + 3.0] * 2
    assert f(Rows(3.0, [ones(), 2.5]), 2).tolist() == [8.0] * 2
    assert f.traces == 2
    k = [2.0]
    d = collections.defaultdict(lambda: k[0], x=ones())
    g = fb.jit(lambda d: d["x"] * d.default_factory())
    assert g(d).tolist() == [2.0, 2.0]
    k[0] = 3.0
    assert g(d).tolist() == [3.0, 3.0]
    named = Named(x=ones())
    named.w = ones()
    h = fb.jit(lambda d: d["x"] * d.w)
    assert h(named).tolist() == [1.0, 1.0]
    named.w += 1.0
    assert h(named).tolist() == [2.0, 2.0]


def test_keys_of_a_dict_that_are_equal_and_yet_differ_make_graphs_of_their_own() -> None:
    f = fb.jit(lambda d: {k: v * 2.0 for k, v in d.items()})
    assert [repr(next(iter(f({k: ones()})))) for k in (1, True, 1.0)] == ["1", "True", "1.0"]


def test_an_object_that_is_returned_is_that_of_the_call() -> None:
    class Mine:
        def __init__(self) -> None:
            self.scale = 2.0

        def get(self) -> float:
            return self.scale

    a, b = Mine(), Mine()
    given = fb.jit(lambda x, o: (x * o.scale, o, [o], o.get))
    held = [a]
    captured = fb.jit(lambda x: (x, held[0]))
    rows = [1.0]
    for o in (a, b):
        _, back, (inside,), method = given(ones(), o)
        assert (back is o, inside is o, method.__self__ is o) == (True, True, True)
        held[0] = o
        assert captured(ones())[1] is o
    assert (given.traces, captured.traces) == (1, 1)
    assert fb.jit(lambda x: (x, rows))(ones())[1] is rows


def test_containers_and_objects_that_are_made_inside_are_made_anew() -> None:
    class Slotted:
        __slots__ = ("t",)

        def __init__(self, t: fb.Tensor) -> None:
            self.t = t

    makes: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
        (lambda t: {t}, lambda v: next(iter(v))),
        (lambda t: frozenset([t]), lambda v: next(iter(v))),
        (lambda t: collections.deque([t], 3), lambda v: v[0]),
        (lambda t: Rows(3.0, [t]), lambda v: v[0]),
        (lambda t: Named(x=t), lambda v: v["x"]),
        (Slotted, lambda v: v.t),
    ]
    for make, read in makes:
        for inner in (lambda x: x, lambda x: x * 2.0):
            f = fb.jit(lambda x, make=make, inner=inner: make(inner(x)))
            for k in (1.0, 2.0):
                x = fb.full((2,), k)
                made = f(x)
                assert type(made) is type(make(x))
                assert read(made).tolist() == inner(x).tolist()
    f = fb.jit(lambda x: (x, np.zeros(2), bytearray(2), {1, 2}, Rows(3.0, [])))
    for v in f(ones())[1:]:
        (v.add if isinstance(v, set) else v.append if isinstance(v, list) else functools.partial(v.__setitem__, 0))(7)
    assert [list(v) for v in f(ones())[1:]] == [[0.0, 0.0], [0, 0], [1, 2], []]


@fb.jit
def decorated(x: fb.Tensor) -> fb.Tensor:
    return x * 2.0


def test_a_compiled_function_is_copied_and_pickled_with_what_it_belongs_to() -> None:
    class Net(fb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = fb.nn.Parameter(ones())
            self.step = fb.jit(self.run)

        def run(self, x: fb.Tensor) -> fb.Tensor:
            return x * self.weight

    net = Net()
    assert net.step(ones()).tolist() == [1.0, 1.0]
    other = copy.deepcopy(net)
    other.weight += 1.0
    assert (net.step(ones()).tolist(), other.step(ones()).tolist()) == ([1.0, 1.0], [2.0, 2.0])
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    double = pickle.loads(pickle.dumps(fb.jit(operator.neg)))
    assert double(ones()).tolist() == [-1.0, -1.0]
