"""A number that a method reads is read at each call, in whatever way code comes to run the method; what no method reached
reads is not looked at.

Each case is a class body, a way to read through it, and a change between two calls; eager and compiled results must agree.
"""

from __future__ import annotations

import contextlib
import functools
import operator  # noqa: F401 - ways to read name it
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pytest

import firebrick as fb

Case = tuple[Callable[[], float], Callable[[], Any]]  # reads a number that is 2.0; makes it 3.0
CASES: dict[str, Callable[[], Case]] = {}
T = TypeVar("T")


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


class Base:
    """Methods that read ``rate`` in one way each; a case reaches one of them."""

    def __init__(self) -> None:
        self.rate = 2.0
        self.other = 1.0

    def direct(self) -> float:
        return self.rate

    def nested(self) -> float:
        return self.between()

    def between(self) -> float:
        return (lambda: self.direct())()

    @property
    def shown(self) -> float:
        return self.direct()

    @functools.cached_property
    def kept(self) -> Any:
        return lambda: self.direct()

    @classmethod
    def of_class(cls) -> float:
        return cls.factor

    @staticmethod
    def of_object(owner: Any) -> float:
        return owner.direct()

    factor = 2.0


def through(read: Callable[[Any], float], kind: type = Base, name: str = "rate") -> Case:
    held = kind()
    return (lambda: read(held)), lambda: setattr(held, name, 3.0)


def closing(read: Callable[[Base], Callable[[], float]], kind: type = Base) -> Case:
    """The function's closure has what ``read`` returns."""
    held = kind()
    found = read(held)
    return found, lambda: setattr(held, "rate", 3.0)


def scaled(owner: Any) -> float:
    return owner.direct()


def decorated(fn: Any) -> Any:
    @functools.wraps(fn)
    def around(*args: Any) -> Any:
        return fn(*args)

    return around


def bare(fn: Any) -> Any:
    return lambda owner: fn(owner)


CLOSED: list[float] = []


class Ways(Base):
    def __len__(self) -> int:
        return int(self.rate)

    def __getitem__(self, i: int) -> float:
        return self.rate

    def __iter__(self) -> Iterator[float]:
        yield self.rate

    def __contains__(self, v: float) -> bool:
        return self.rate == v

    def __add__(self, v: float) -> float:
        return self.rate + v

    def __neg__(self) -> float:
        return -self.rate

    def __lt__(self, other: Any) -> bool:
        return self.rate < other

    def __float__(self) -> float:
        return self.rate

    def __str__(self) -> str:
        return str(self.rate)

    def __enter__(self) -> float:
        return self.rate

    def __exit__(self, *args: Any) -> None: ...

    def __call__(self) -> float:
        return self.rate

    def __bool__(self) -> bool:
        return self.rate == 2.0

    def write(self, text: str) -> None:
        assert text.strip() == "" or self.rate != 3.0, "seen"

    def close(self) -> None:
        CLOSED.append(self.rate)

    def tasks(self, v: float) -> float:
        return self.rate * v

    @decorated
    def wrapped(self) -> float:
        return self.rate

    @bare
    def rewritten(self) -> float:
        return self.rate

    @functools.singledispatchmethod
    def kinds(self, v: Any) -> float:
        return self.rate

    part = functools.partialmethod(tasks, 1.0)


def with_statement(v: Any) -> float:
    with v as found:
        return found


def matched(v: Any) -> float:
    match v:
        case Base(rate=found):
            return found
    return 0.0


def renamed(v: Any) -> float:
    other = v
    return other.direct()


def walrus(v: Any) -> float:
    return (w := v).direct() + 0.0 * w.other


def looped(v: Any) -> float:
    return sum(w.direct() for w in [v])


def chosen(v: Any) -> float:
    return (v if v is not None else None).direct()


def defined_inside(v: Any) -> float:
    class Inner:
        held = v

        def read(self) -> float:
            return self.held.direct()

    return Inner().read()


def executed(v: Any) -> float:
    found: list[float] = []
    exec("found.append(v.direct())", {"v": v, "found": found})
    return found[0]


def tried(v: Any) -> float:
    try:
        return v.missing
    except AttributeError:
        return v.direct()


WAYS = {
    "method": "v.direct()",
    "method of a method": "v.nested()",
    "property": "v.shown",
    "static method": "v.of_object(v)",
    "function given it": "scaled(v)",
    "method taken first": "(lambda m: m())(v.direct)",
    "method in a list": "[v.direct][0]()",
    "method in a dict": "{'m': lambda: v.direct()}['m']()",
    "partial": "functools.partial(v.direct)()",
    "partial of the function": "functools.partial(Base.direct, v)()",
    "unbound": "Base.direct(v)",
    "map": "next(map(lambda m: m(), [v.direct]))",
    "max": "max([0.0, 1.0], key=v.tasks) * v.direct()",
    "sorted": "sorted([2.0, 1.0], key=lambda k: v.tasks(k))[0] * v.direct()",
    "methodcaller": "operator.methodcaller('direct')(v)",
    "attrgetter": "operator.attrgetter('shown')(v)",
    "attrgetter of a method": "operator.attrgetter('direct')(v)()",
    "getattr": "getattr(v, 'direct')()",
    "getattr of a computed name": "getattr(v, ''.join(['di', 'rect']))()",
    "vars of the class": "vars(Base)['direct'](v)",
    "type": "type(v).direct(v)",
    "class": "v.__class__.direct(v)",
    "class called": "v.__class__.of_object(v)",
    "len": "float(len(v))",
    "item": "v[0]",
    "iteration": "next(iter(v))",
    "in": "2.0 + (3.0 in v)",
    "unpacking": "[*v][0]",
    "plus": "v + 0.0",
    "minus": "--v",
    "compared": "2.0 + (not v < 2.5)",
    "float": "float(v)",
    "str": "float(str(v))",
    "text": "float(f'{v}')",
    "format": "float('{0.rate}'.format(v))",
    "percent": "float('%s' % v)",
    "with": "with_statement(v)",
    "call": "v()",
    "pattern": "matched(v)",
    "truth": "2.0 if v else 3.0",
    "not": "3.0 if not v else 2.0",
    "or": "2.0 if v or 0 else 3.0",
    "another name": "renamed(v)",
    "walrus": "walrus(v)",
    "loop": "looped(v)",
    "choice": "chosen(v)",
    "class inside": "defined_inside(v)",
    "error": "tried(v)",
    "bound to itself": "v.direct.__self__.rate",
    "function of the method": "v.direct.__func__(v)",
    "closure of a lambda": "(lambda: v).__closure__[0].cell_contents.direct()",
    "exec": "executed(v)",
    "eval": "eval('v.nested()')",
    "locals": "locals()['v'].direct()",
    "decorated": "v.wrapped()",
    "decorated without wraps": "v.rewritten()",
    "partialmethod": "v.part()",
    "singledispatchmethod": "v.kinds(1)",
    "reduce": "v.__reduce_ex__(2)[2]['rate']",
    "getstate": "v.__getstate__()['rate']",
    "another function's argument": "(lambda a, *b: b[0].nested())(1, v)",
    "keyword": "(lambda **k: k['w'].nested())(w=v)",
    "default": "(lambda w=v: w.nested())()",
    "a library that calls close": "contextlib.closing(v).__exit__() or CLOSED.pop()",
    "generator": "next((w.direct() for w in (v,)))",
    "tuple": "(v, 1)[0].direct()",
    "zip": "next((w.direct() for w, _ in zip([v], [1], strict=True)))",
    "lambda in a dict": "{'a': v.direct}.get('a')()",
    "setattr": "setattr(v, 'other', 1.0) or v.direct()",
}  # how ``v`` is read
HOLD = {
    "given": "lambda v: (lambda w: lambda: read(w))(v)",
    "in the closure": "lambda v: lambda: {way}",
    "in an attribute": "lambda v: (lambda holder: lambda: {attribute})(Holder(v))",
    "as the default": "lambda v: lambda v=v: {way}",
}


def held_so(how: str, way: str) -> Case:
    """The object is held in one way by the function that reads it in another."""
    held = Ways()
    attribute = (
        re.sub(r"\bv\b", "holder.first", way)
        if "lambda v" not in way and "v=" not in way
        else f"(lambda v: {way})(holder.first)"
    )
    space = {**globals(), "read": eval(f"lambda v: {way}", globals())}
    return eval(HOLD[how].format(way=way, attribute=attribute), space)(held), lambda: setattr(held, "rate", 3.0)


_OF_ARGUMENTS = ("eval", "locals", "closure of a lambda")  # they name an argument ``v``
for _how in HOLD:
    _ways = {n: w for n, w in WAYS.items() if n not in _OF_ARGUMENTS or _how in ("given", "as the default")}
    CASES.update({f"{_name}, {_how}": functools.partial(held_so, _how, _way) for _name, _way in _ways.items()})


CASES.update({f"{name} held by the closure": functools.partial(closing, read) for name, read in {
    "a bound method": lambda v: v.direct, "a nested one": lambda v: v.nested, "partial": lambda v: functools.partial(v.direct),
    "partial of an argument": lambda v: functools.partial(scaled, v), "a lambda": lambda v: lambda: v.nested(),
    "a default": lambda v: lambda w=v: w.nested(), "a list of methods": lambda v: (lambda ms: lambda: ms[0]())([v.direct]),
    "a list of objects": lambda v: (lambda vs: lambda: vs[0].nested())([v]), "a jitted method": lambda v: fb.jit(v.nested),
    "a namespace": lambda v: (lambda n: lambda: n.held.nested())(types.SimpleNamespace(held=v)),
    "an object": lambda v: (lambda o: lambda: o.first.nested())(Holder(v)),
    "a chain": lambda v: (lambda o: o.run)(Holder(Holder(v))),
}.items()})  # fmt: skip


class Holder:
    def __init__(self, first: Any) -> None:
        self.first = first

    def run(self) -> float:
        return self.first.nested()

    def nested(self) -> float:
        return self.first.between()


@case
def a_cached_property() -> Case:
    held = Base()
    held.kept()  # computed before, since it sets an attribute
    return (lambda: held.kept()), lambda: setattr(held, "rate", 3.0)


@case
def inherited_and_super() -> Case:
    class Derived(Base):
        def direct(self) -> float:
            return super().direct()

    return through(lambda v: v.nested(), Derived)


@case
def super_taken_as_a_value() -> Case:
    class Derived(Base):
        def direct(self) -> float:
            above = super()
            return (lambda s: s.direct())(above)

    return through(lambda v: v.direct(), Derived)


@case
def a_mixin_that_calls_what_another_base_has() -> Case:
    class Mixin:
        def mixed(self) -> float:
            return self.hidden()

    class Derived(Mixin, Base):
        def hidden(self) -> float:
            return self.rate

    return through(lambda v: v.mixed(), Derived)


@case
def an_abstract_base() -> Case:
    class Abstract(ABC):
        rate = 2.0

        def template(self) -> float:
            return self.step()

        @abstractmethod
        def step(self) -> float: ...

    class Real(Abstract):
        def step(self) -> float:
            return self.rate

    return through(lambda v: v.template(), Real)


@case
def generic_and_protocol() -> Case:
    class Shown(Protocol):
        def show(self) -> float: ...

    class Real(Shown, Generic[T]):
        rate = 2.0

        def show(self) -> float:
            return self.rate

    return through(lambda v: v.show(), Real)


@case
def getattr_of_a_class() -> Case:
    class Lazy:
        def __init__(self) -> None:
            self.table = {"rate": 2.0}

        def __getattr__(self, name: str) -> Any:
            return self.look(name)

        def look(self, name: str) -> Any:
            return self.table[name]

    held = Lazy()
    return (lambda: held.rate), lambda: held.table.update(rate=3.0)


@case
def getattribute_of_a_class() -> Case:
    k = [2.0]

    class Eager:
        def __getattribute__(self, name: str) -> Any:
            return k[0] if name == "rate" else super().__getattribute__(name)

    held = Eager()
    return (lambda: held.rate), lambda: k.__setitem__(0, 3.0)


@case
def delegation() -> Case:
    class Outer:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    held = Base()
    outer = Outer(held)
    return (lambda: outer.nested()), lambda: setattr(held, "rate", 3.0)


class Descriptor:
    def __init__(self, read: Any) -> None:
        self.read, self.scale = read, 1.0

    def __get__(self, owner: Any, kind: Any = None) -> float:
        return self.scaled(owner)

    def scaled(self, owner: Any) -> float:
        return self.read(owner) * self.scale


@case
def a_descriptor_and_its_object() -> Case:
    class Mine(Base):
        found = Descriptor(lambda owner: owner.hidden())

        def hidden(self) -> float:
            return self.rate

    return through(lambda v: v.found, Mine)


@case
def a_bound_partial() -> Case:
    held = Base()
    bound = types.MethodType(functools.partial(lambda owner: owner.nested()), held)
    return (lambda: bound()), lambda: setattr(held, "rate", 3.0)


@case
def an_object_given_to_a_callable_attribute_of_its_class() -> Case:
    class Asks:
        def __call__(self, owner: Any) -> float:
            return owner.hidden()

    class Mine(Base):
        ask = Asks()

        def direct(self) -> float:
            return self.ask(self)

        def hidden(self) -> float:
            return self.rate

    return closing(lambda v: lambda: v.direct(), Mine)


@case
def a_method_of_object_that_calls_another() -> Case:
    class Mine(Base):
        def __repr__(self) -> str:
            return str(self.rate)

    held = Mine()
    return (lambda: float(held.__str__())), lambda: setattr(held, "rate", 3.0)


@case
def a_descriptor_that_has_a_function() -> Case:
    class Scaled:
        def __init__(self, func: Any) -> None:
            self.func, self.scale = func, 1.0

        def __get__(self, owner: Any, kind: Any = None) -> Any:
            return self.func(owner) * self.scale

    class Mine(Base):
        found = Scaled(lambda owner: owner.rate)

    held = Mine()
    return (lambda: held.found), lambda: setattr(vars(Mine)["found"], "scale", 1.5)


@case
def a_registered_method_of_a_single_dispatch() -> Case:
    class Mine(Base):
        @functools.singledispatchmethod
        def look(self, v: Any) -> float:
            return 0.0

        def of_int(self, v: int) -> float:
            return self.rate

        look.register(int, of_int)

    held = Mine()
    held.look(1)  # which fills its cache
    return (lambda: held.look(1)), lambda: setattr(held, "rate", 3.0)


@case
def a_registered_function_of_a_single_dispatch() -> Case:
    held = Base()

    @functools.singledispatch
    def look(v: Any) -> float:
        return 0.0

    look.register(int, lambda v: held.nested())
    look(1)
    return (lambda: look(1)), lambda: setattr(held, "rate", 3.0)


@case
def an_attribute_of_a_descriptor() -> Case:
    class Mine(Base):
        found = Descriptor(lambda owner: owner.rate)

    held = Mine()
    return (lambda: held.found), lambda: setattr(vars(Mine)["found"], "scale", 1.5)


@case
def a_setter() -> Case:
    k = [2.0]

    class Mine:
        @property
        def rate(self) -> float:
            return self.seen[0]

        @rate.setter
        def rate(self, v: float) -> None:
            assert self.limit() == k[0]

        def limit(self) -> float:
            return k[0]

        seen = (2.0,)

    held = Mine()

    def read() -> float:
        held.rate = 1.0
        return held.limit()

    return read, lambda: k.__setitem__(0, 3.0)


@case
def class_method_and_attribute() -> Case:
    class Mine(Base): ...

    held = Mine()
    return (lambda: held.of_class()), lambda: setattr(Mine, "factor", 3.0)


def made(hold: Callable[[type], Callable[[], Any]]) -> Callable[[], Case]:
    """The number is read by code that only making an object of a class runs."""

    def make() -> Case:
        k = [2.0]

        class Mine:
            def __init__(self) -> None:
                self.rate = self.start()

            def start(self) -> float:
                return k[0]

            @classmethod
            def make(cls) -> Any:
                return cls()

        make_one = hold(Mine)
        return (lambda: make_one().rate), lambda: k.__setitem__(0, 3.0)

    return make


CASES.update({
    "a class that makes an object": made(lambda kind: lambda: kind()),
    "a class that makes an object by a class method": made(lambda kind: lambda: kind.make()),
    "a class of an attribute": made(lambda kind: (lambda held: lambda: held.first())(Holder(kind))),
    "a class of a namespace": made(lambda kind: (lambda held: lambda: held.kind())(types.SimpleNamespace(kind=kind))),
    "a class method of an attribute": made(lambda kind: (lambda held: lambda: held.first.make())(Holder(kind))),
    "a class taken from an attribute": made(lambda kind: (lambda held: lambda: (lambda k: k())(held.first))(Holder(kind))),
})  # fmt: skip


@case
def a_class_made_through_a_class_method_of_an_object() -> Case:
    k = [2.0]

    class Mine:
        @classmethod
        def make(cls) -> Any:
            return cls()

        def unread(self) -> float:
            return self.more()

        def more(self) -> float:
            return k[0]

        def __mul__(self, v: float) -> float:
            return self.unread() * v

    held = Mine()
    return (lambda: held.make() * 1.0), lambda: k.__setitem__(0, 3.0)


@case
def dataclass_fields() -> Case:
    @dataclass
    class Mine:
        rate: float = 2.0
        more: list[float] = field(default_factory=list)

        def get(self) -> float:
            return self.rate

    return through(lambda v: v.get(), Mine)


@case
def dataclass_compared() -> Case:
    @dataclass
    class Mine:
        rate: float = 2.0

    held, other = Mine(), Mine()
    return (lambda: 2.0 if held == other else 3.0), lambda: setattr(other, "rate", 3.0)


@case
def slots() -> Case:
    class Mine:
        __slots__ = ("__hidden", "rate")

        def __init__(self) -> None:
            self.rate, self.__hidden = 2.0, 2.0

        def get(self) -> float:
            return self.look()

        def look(self) -> float:
            return self.__hidden + 0.0 * self.rate

        def put(self) -> None:
            self.__hidden = 3.0

    held = Mine()
    return (lambda: held.get()), held.put


@case
def private_names() -> Case:
    class Mine:
        def __init__(self) -> None:
            self.__rate = 2.0

        def get(self) -> float:
            return self.__look()

        def __look(self) -> float:
            return self.__rate

        def put(self) -> None:
            self.__rate = 3.0

    held = Mine()
    return (lambda: held.get()), held.put


def replaced(change: Callable[[Any, type], Any]) -> Case:
    class Mine(Base): ...

    held = Mine()
    return (lambda: held.nested()), lambda: change(held, Mine)


CASES.update({
    "a method replaced on the class": lambda: replaced(lambda v, kind: setattr(kind, "direct", lambda self: 3.0)),
    "a method replaced on the base": lambda: replaced_on_base(),
    "a method replaced on the object": lambda: replaced(lambda v, kind: setattr(v, "direct", lambda: 3.0)),
    "a bound method put on the object": lambda: replaced(
        lambda v, kind: setattr(v, "between", types.MethodType(lambda self: self.rate + 1.0, v))
    ),
    "another code of a method": lambda: replaced_code(),
    "a method that is added": lambda: added(),
    "another class": lambda: replaced(lambda v, kind: setattr(v, "__class__", Tripled)),
    "another base": lambda: replaced(lambda v, kind: setattr(kind, "__bases__", (Tripled,))),
})  # fmt: skip


class Tripled(Base):
    def direct(self) -> float:
        return 3.0


def replaced_on_base() -> Case:
    class Below(Base):
        def direct(self) -> float:
            return self.rate

    class Mine(Below): ...

    held = Mine()
    return (lambda: held.nested()), lambda: setattr(Below, "direct", lambda self: 3.0)


def replaced_code() -> Case:
    class Mine(Base):
        def direct(self) -> float:
            return 2.0

    held = Mine()
    return (lambda: held.nested()), lambda: setattr(Mine.direct, "__code__", Tripled.direct.__code__)


def added() -> Case:
    class Mine(Base):
        def __getattr__(self, name: str) -> Any:
            return lambda: 2.0

    held = Mine()
    return (lambda: held.late()), lambda: setattr(Mine, "late", lambda self: self.rate + 1.0)


@case
def callbacks() -> Case:
    class Callback(Base):
        def on_loss(self, v: float) -> float:
            return self.nested() * v

    class Loop:
        def __init__(self) -> None:
            self.callbacks = [Callback()]
            self.last: Any = self.callbacks[0]
            self.none = None

        def run(self) -> float:
            v = 1.0
            for c in self.callbacks:
                v = c.on_loss(v)
            if self.none is not None:
                return 0.0
            return v if self.last is not None else 0.0

    held = Loop()
    return (lambda: held.run()), lambda: setattr(held.last, "rate", 3.0)


@case
def one_of_two_objects_of_a_class_that_a_library_has() -> Case:
    """What a library has of one object of a class, code may have of another."""

    class Mine(Base):
        def close(self) -> None:
            found.append(self.rate)

    found: list[float] = []
    named, given = Mine(), Mine()

    def read() -> float:
        with contextlib.closing(given):
            named.other  # noqa: B018 - reads
        return found.pop()

    return read, lambda: setattr(given, "rate", 3.0)


@case
def an_object_that_a_library_keeps() -> Case:
    class Mine(Base):
        def close(self) -> None:
            found.append(self.rate)

    found: list[float] = []
    held = Mine()
    closing = contextlib.closing(held)

    def read() -> float:
        closing.__exit__(None, None, None)
        return found.pop() if held.other else 0.0

    return read, lambda: setattr(held, "rate", 3.0)


@case
def a_base_of_a_library_that_calls_its_methods() -> Case:
    import string

    class Mine(string.Formatter):
        rate = 2.0

        def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
            return self.look()

        def look(self) -> float:
            return self.rate

    held = Mine()
    return (lambda: float(held.format("{a}"))), lambda: setattr(held, "rate", 3.0)


@case
def a_method_given_to_sorted_as_a_key() -> Case:
    held = Base()
    return (lambda: sorted([held, Tripled()], key=lambda v: v.direct())[0].direct()), lambda: setattr(held, "rate", 3.0)


@case
def a_cache_that_compares_its_object() -> Case:
    class Mine(Base):
        def __hash__(self) -> int:
            return int(self.rate)

        def __eq__(self, other: object) -> bool:
            return True

        @functools.lru_cache  # noqa: B019
        def get(self) -> float:
            return self.rate

    return through(lambda v: v.get(), Mine)


def read_only(x: fb.Tensor, held: Any) -> fb.Tensor:
    return x * held.nested()


def passed_on(x: fb.Tensor, held: Any) -> fb.Tensor:
    return x * scaled(held)


@pytest.mark.parametrize("name", CASES)
def test_a_number_behind_methods_is_read_at_each_call(name: str) -> None:
    read, change = CASES[name]()
    compiled = fb.jit(lambda x: x * read())
    for _ in range(2):
        assert compiled(fb.ones(1)).item() == read() == 2.0
    change()
    assert read() == 3.0, "the case changes nothing"
    assert compiled(fb.ones(1)).item() == 3.0


@pytest.mark.parametrize("fn", [read_only, passed_on])
def test_a_number_behind_methods_of_an_argument_is_read_at_each_call(fn: Any) -> None:
    held = Base()
    compiled = fb.jit(fn)
    for v in (2.0, 3.0, 2.0):
        held.rate = v
        assert compiled(fb.ones(1), held).item() == compiled(fb.ones(1), held=held).item() == v
    assert compiled.traces == 2
    held.other = 5.0
    assert compiled(fb.ones(1), held).item() == 2.0
    assert compiled.traces == 2


def test_a_wrapper_may_give_its_arguments_other_names() -> None:
    """``x`` of the signature is ``held`` of the code."""

    def inner(held: Any, x: fb.Tensor) -> fb.Tensor:
        return x * held.direct()

    @functools.wraps(inner)
    def around(x: Any, held: Any) -> fb.Tensor:
        return held * contextlib.ExitStack().enter_context(x)

    class Entered(Base):
        def __enter__(self) -> float:
            return self.rate

        def __exit__(self, *args: Any) -> None: ...

    held, compiled = Entered(), fb.jit(around)
    for v in (2.0, 3.0):
        held.rate = v
        assert compiled(held, fb.ones(1)).item() == v
