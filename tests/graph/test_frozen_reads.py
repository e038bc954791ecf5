"""What a function under jit reads is read at each call, in whatever way it reads it; what cannot be compared raises."""

from __future__ import annotations

import abc
import builtins
import colorsys
import contextvars
import ctypes
import decimal
import functools
import inspect
import io
import mmap
import multiprocessing
import multiprocessing.shared_memory
import operator
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy import geterr

import firebrick as fb

MODULE = ModuleType("a_module_of_a_user")
sys.modules[MODULE.__name__] = MODULE
NAME = "s"
number = 2.0


class Plain:
    s = 1.0

    def __init__(self) -> None:
        self.s = 2.0


class Slotted:
    __slots__ = ("s",)


class Struct(ctypes.Structure):
    _fields_ = [("s", ctypes.c_double)]


def put(owner: Any) -> Callable[[float], None]:
    return lambda v: setattr(owner, "s", v)


def own(v: float) -> None:
    globals()["number"] = v


def precision(v: float) -> None:
    decimal.getcontext().prec = int(v) + 4


def item(owner: Any, at: Any = 0, kind: Callable[[float], Any] = float) -> Callable[[float], None]:
    return lambda v: operator.setitem(owner, at, kind(v))


Case = tuple[Callable[[Any], Any], Callable[[float], None]]  # a function of a tensor, and what changes what it reads
GETTERS: dict[str, Callable[[Any], Any]] = {
    "getattr": lambda m: getattr(m, "s"),  # noqa: B009 - the way of reading is what is tested
    "getattr of a computed name": lambda m: getattr(m, "".join(NAME)),
    "vars": lambda m: vars(m)["s"],
    "__dict__": lambda m: m.__dict__["s"],
    "attrgetter": lambda m: operator.attrgetter("s")(m),
    "getattr_static": lambda m: inspect.getattr_static(m, "s"),
    "getmembers": lambda m: dict(inspect.getmembers(m))["s"],
}


def of_owner(make: Callable[[], Any], get: Callable[[Any], Any]) -> Callable[[], Case]:
    def case() -> Case:
        m = make()
        m.s = 2.0
        return lambda x: x * get(m), put(m)

    return case


CASES: dict[str, Callable[[], Case]] = {
    f"{get} of {name}": of_owner(make, GETTERS[get])
    for name, make in {"an object": Plain, "a namespace": SimpleNamespace, "a module": lambda: MODULE}.items()
    for get in GETTERS
}
CASES.update({
    "getattr of a function": of_owner(lambda: functools.partial(lambda: None).func, lambda m: getattr(m, NAME)),
    "sys.modules": of_owner(lambda: MODULE, lambda m: sys.modules["a_module_of_a_user"].s),
    "getattr of sys.modules": of_owner(lambda: MODULE, lambda m: getattr(sys.modules["a_module_of_a_user"], NAME)),
    "vars of sys.modules": of_owner(lambda: MODULE, lambda m: vars(sys.modules["a_module_of_a_user"])["s"]),
})  # fmt: skip


def _own_module() -> Case:
    own(2.0)
    return lambda x: x * getattr(sys.modules[__name__], "number"), own  # noqa: B009


def _frame() -> Case:
    own(2.0)
    return lambda x: x * sys._getframe().f_globals["number"], own


def _weak_keys() -> Case:
    key, held = Plain(), Plain()
    d = weakref.WeakKeyDictionary({key: held})
    return lambda x: x * d[key].s, put(held)


def _weak_set() -> Case:
    held = Plain()
    d = weakref.WeakSet([held])
    return lambda x: x * next(iter(d)).s, put(held)


def _ctypes_array() -> Case:
    a = (ctypes.c_double * 2)(2.0, 2.0)
    return lambda x: x * a[0], item(a)


def _ctypes_number() -> Case:
    a = ctypes.c_double(2.0)
    return lambda x: x * a.value, lambda v: setattr(a, "value", v)


def _ctypes_structs() -> Case:
    a = (Struct * 2)()
    a[0].s = 2.0
    return lambda x: x * a[0].s, put(a[0])


def _mmap() -> Case:
    a = mmap.mmap(-1, 16)
    a[0] = 2
    return lambda x: x * float(a[0]), item(a, 0, int)


def _decimal() -> Case:
    precision(2.0)
    return lambda x: x * float(decimal.Decimal(1) / 3), precision


def _decimal_context() -> Case:
    precision(2.0)
    return lambda x: x * decimal.getcontext().prec, precision


def _decimal_value() -> Case:
    precision(2.0)
    third = decimal.Decimal(3)
    return lambda x: x * float(1 / third), precision


def _text() -> Case:
    held = io.StringIO("2.0")

    def change(v: float) -> None:
        held.seek(0)
        held.write(str(v))

    return lambda x: x * float(held.getvalue()), change


def _partial() -> Case:
    p = functools.partial(float, 2.0)
    return lambda x: x * p(), lambda v: p.__setstate__((float, (v,), {}, None))


def _errors() -> Case:
    return lambda x: x * len(np.geterr()["over"]), lambda v: np.seterr(over="ignore" if v == 3.0 else "warn") and None


def _errors_by_the_function() -> Case:
    return lambda x: x * len(geterr()["over"]), lambda v: np.seterr(over="ignore" if v == 3.0 else "warn") and None


def _decimal_class() -> Case:
    precision(2.0)
    kind = decimal.Decimal
    return lambda x: x * float(kind(1) / 3), precision


def _objects_of_a_record() -> Case:
    held = [2.0]
    record = np.zeros((), dtype=[("a", "O"), ("b", "f4")])[()]
    record["a"] = held
    return lambda x: x * record["a"][0], lambda v: held.__setitem__(0, v)


CASES.update({f.__name__.strip("_"): f for f in (
    _errors_by_the_function, _decimal_class, _objects_of_a_record,
    _own_module, _frame, _weak_keys, _weak_set, _ctypes_array, _ctypes_number, _ctypes_structs, _mmap, _decimal,
    _decimal_context, _decimal_value, _text, _partial, _errors,
)})  # fmt: skip


def _partial_keywords() -> Case:
    p = functools.partial(lambda x, s: x * s, s=2.0)
    return p, lambda v: p.keywords.update(s=v)


def _slot() -> Case:
    owner, descriptor = Slotted(), Slotted.__dict__["s"]
    owner.s = 2.0
    return lambda x: x * descriptor.__get__(owner), put(owner)


def _bound_slot() -> Case:
    owner, get = Slotted(), Slotted.__dict__["s"].__get__
    owner.s = 2.0
    return lambda x: x * get(owner), put(owner)


def _property() -> Case:
    owner, read = Plain(), property(operator.attrgetter("s"))
    return lambda x: x * read.__get__(owner), put(owner)


def _context_default() -> Case:
    held = [2.0]
    variable = contextvars.ContextVar("variable", default=held)
    return lambda x: x * variable.get()[0], item(held)


def _set_environment(v: float) -> None:
    os.environ["A_NUMBER"] = str(v)


def _getenv() -> Case:
    _set_environment(2.0)
    read = os.getenv
    return lambda x: x * float(read("A_NUMBER") or 0), _set_environment


def _expandvars() -> Case:
    _set_environment(2.0)
    return lambda x: x * float(os.path.expandvars("$A_NUMBER")), _set_environment


def _environment_named_by_inner_code() -> Case:
    _set_environment(2.0)

    def fn(x: fb.Tensor) -> fb.Tensor:
        import os  # is looked at before the code that names ``environ``

        return x * (lambda module: float(module.environ["A_NUMBER"]))(os)

    return fn, _set_environment


def _torch_buffer() -> Case:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", torch.tensor(2.0))

    m = Own()
    return lambda x: x * (m.b * 2.0).item(), m.b.fill_


def _context_of_decimal() -> Case:
    c = decimal.Context(prec=3)
    return lambda x: x * float(c.divide(1, 3)), lambda v: setattr(c, "prec", int(v) + 3)


def _record() -> Case:
    record = np.array([(2.0,)], [("s", "f8")])[0]
    return lambda x: x * float(record["s"]), item(record, "s")


def _object_in_a_record() -> Case:
    held = [2.0]
    records = np.array([(held,)], [("s", object)])
    return lambda x: x * records["s"][0][0], item(held)


def _flat() -> Case:
    a = np.array([1.0, 2.0])
    flat = a.flat
    return lambda x: x * float(flat[1]), item(a, 1)


def _memory_order() -> Case:
    held = [np.arange(4.0).reshape(2, 2)]
    return lambda x: x * float(held[0].ravel("K")[1]), lambda v: operator.setitem(
        held, 0, np.array(held[0], order="FC"[v == 4.0])
    )


def _writeable() -> Case:
    a = np.ones(2)
    return lambda x: x * (2.0 if a.flags.writeable else 3.0), lambda v: a.setflags(write=v != 3.0)


def _arguments_of_an_exception() -> Case:
    error = ValueError(2.0)
    return lambda x: x * error.args[0], lambda v: setattr(error, "args", (v,))


def _shared_number() -> Case:
    held = multiprocessing.Value("d", 2.0)
    return lambda x: x * held.value, lambda v: setattr(held, "value", v)


def _buffer() -> Case:
    held = bytearray(b"\2")
    return lambda x: x * held[-1], lambda v: held.append(int(v))


def _memoryview() -> Case:
    held = memoryview(bytearray(b"\2"))
    return lambda x: x * held[0], item(held, 0, int)


def _another_module() -> Case:
    def change(v: float) -> None:
        sys.modules["another_module"] = module = ModuleType("another_module")
        module.s = v  # type: ignore[attr-defined]

    change(2.0)
    return lambda x: x * sys.modules["another_module"].s, change


def _number_of_a_library() -> Case:
    colorsys.ONE_THIRD = 2.0  # type: ignore[misc]
    return lambda x: x * colorsys.ONE_THIRD, lambda v: setattr(colorsys, "ONE_THIRD", v if v == 3.0 else 1 / 3)


def _arguments_of_the_program() -> Case:
    return lambda x: x * len(sys.argv), lambda v: operator.setitem(sys.argv, slice(None), ["a"] * int(v))


def _builtins() -> Case:
    def change(v: float) -> None:
        builtins.A_NUMBER = v  # type: ignore[attr-defined]

    change(2.0)
    return lambda x: x * A_NUMBER, change  # type: ignore[name-defined]  # noqa: F821


def _bases() -> Case:
    class A: ...

    class Other: ...

    class B(A): ...

    b = B()
    return lambda x: x * (2.0 if isinstance(b, A) else 3.0), lambda v: setattr(B, "__bases__", (Other,) if v == 3.0 else (A,))


def _registered() -> Case:
    class A(abc.ABC): ...  # noqa: B024 - it is what others are registered with

    class B: ...

    b = B()
    return lambda x: x * (2.0 if isinstance(b, A) else 3.0), lambda v: A.register(B) and None


def _event() -> Case:
    event = threading.Event()
    return lambda x: x * (2.0 if event.is_set() else 3.0), lambda v: event.set() if v == 3.0 else event.clear()


def _lock() -> Case:
    lock = threading.Lock()
    return lambda x: x * (2.0 if lock.locked() else 3.0), lambda v: lock.acquire() and None if v == 3.0 else None


def _queue() -> Case:
    numbers: queue.SimpleQueue[float] = queue.SimpleQueue()
    return lambda x: x * numbers.qsize(), numbers.put


def _label() -> Case:
    t = fb.ones(1)
    return lambda x: x * t * len(t.label or ""), lambda v: setattr(t, "label", "a" * int(v))


def _setting() -> Case:
    return lambda x: x * fb.config.num_threads, lambda v: setattr(fb.config, "num_threads", int(v))


def _dtype_of_torch() -> Case:
    def change(v: float) -> None:
        torch.set_default_dtype(torch.float64 if v == 3.0 else torch.float32)

    return lambda x: x * torch.get_default_dtype().itemsize, change


CASES.update({f.__name__.strip("_"): f for f in (
    _partial_keywords, _slot, _bound_slot, _property, _context_default, _getenv, _expandvars,
    _environment_named_by_inner_code, _torch_buffer,
    _context_of_decimal, _record, _object_in_a_record, _flat, _memory_order, _writeable, _arguments_of_an_exception,
    _shared_number, _buffer, _memoryview, _another_module, _number_of_a_library, _arguments_of_the_program, _builtins, _bases,
    _registered, _event, _lock, _queue, _label, _setting, _dtype_of_torch,
)})  # fmt: skip


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what the cases change of the process."""
    monkeypatch.setenv("A_NUMBER", "0")
    monkeypatch.setattr(colorsys, "ONE_THIRD", colorsys.ONE_THIRD)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(builtins, "A_NUMBER", 0, raising=False)
    monkeypatch.setattr(fb.config, "num_threads", fb.config.num_threads)
    monkeypatch.setitem(sys.modules, "another_module", MODULE)


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_read_at_each_call(name: str) -> None:
    with decimal.localcontext(), np.errstate():
        fn, change = CASES[name]()
        compiled = fb.jit(fn)
        seen = set()
        for v in (None, 3.0, 4.0, 4.0):
            if v is not None:
                change(v)
            want = fn(fb.ones(1)).item()
            assert compiled(fb.ones(1)).item() == want
            seen.add(want)
        assert len(seen) > 1, "the case changes nothing"


def test_memory_behind_a_pointer_cannot_be_compared_and_raises() -> None:
    held = ctypes.c_double(2.0)
    pointer = ctypes.pointer(held)
    for fn in (lambda x: x * pointer.contents.value, fb.jit(lambda x: x * pointer[0])):
        with pytest.raises(fb.TraceError, match=r"pointer: .*points to memory") as caught:
            fb.jit(fn)(fb.ones(1))
        assert "fb.asarray" in str(caught.value)


def test_a_large_map_of_a_file_cannot_be_compared_and_raises() -> None:
    large = mmap.mmap(-1, 1 << 21)
    with pytest.raises(fb.TraceError, match=r"large: mmap, 2097152 bytes"):
        fb.jit(lambda x: x * float(large[0]))(fb.ones(1))


def test_a_file_that_is_read_on_raises(tmp_path: Any) -> None:
    (tmp_path / "numbers").write_text("2.0\n3.0\n")
    with (tmp_path / "numbers").open() as file:
        with pytest.raises(fb.StateChangedError):
            fb.jit(lambda x: x * float(file.readline()))(fb.ones(1))
        fb.jit(lambda x: x * (1.0 if file is not None else 2.0))(fb.ones(1))


def test_what_moves_on_as_it_is_read_raises() -> None:
    flat, numbers, part = np.arange(3.0).flat, np.nditer(np.arange(3.0)), mmap.mmap(-1, 16)
    for fn in (lambda x: x * float(next(flat)), lambda x: x * float(next(numbers)), lambda x: x * part.read_byte()):
        with pytest.raises(fb.TraceError):
            fb.jit(fn)(fb.ones(1))


def test_shared_memory_is_read_at_each_call_and_can_be_closed() -> None:
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
    try:
        shared.buf[0] = 2
        compiled = fb.jit(lambda x: x * shared.buf[0])
        assert compiled(fb.ones(1)).item() == 2.0
        shared.buf[0] = 3
        assert compiled(fb.ones(1)).item() == 3.0
    finally:
        shared.close()
        shared.unlink()


def test_bytes_that_a_function_changes_raise_and_are_put_back() -> None:
    held = bytearray(b"ab")

    def appends(x: fb.Tensor) -> fb.Tensor:
        held.append(1)
        return x

    with pytest.raises(fb.StateChangedError):
        fb.jit(appends)(fb.ones(1))
    assert held == b"ab"


def test_an_iterator_of_the_module_matters_only_to_code_that_names_it() -> None:
    space: dict[str, Any] = {"count": iter([1.0, 2.0]), "G": 2.0}
    exec("by_text = lambda x: x * globals()['G']", space)
    compiled = fb.jit(space["by_text"])
    assert compiled(fb.ones(1)).item() == 2.0
    space["G"] = 3.0
    assert compiled(fb.ones(1)).item() == 3.0
    exec("taking = lambda x: x * next(globals()['count'])", space)
    with pytest.raises(fb.TraceError, match="takes no items from an iterator"):
        fb.jit(space["taking"])(fb.ones(1))


def test_other_names_of_a_module_make_no_other_graph() -> None:
    MODULE.s, MODULE.other = 2.0, [1]  # type: ignore[attr-defined]
    compiled = fb.jit(lambda x: x * getattr(MODULE, NAME))
    compiled(fb.ones(1))
    MODULE.other.append(2)
    MODULE.further = object()  # type: ignore[attr-defined]
    compiled(fb.ones(1))
    assert compiled.traces == 1


def test_a_function_that_exchanges_two_tensors_alike_raises_and_leaves_them_where_they_were() -> None:
    a, b = Plain(), Plain()
    a.s, b.s = fb.zeros(1), fb.ones(1)  # type: ignore[assignment]

    @fb.jit
    def exchange(x: fb.Tensor) -> fb.Tensor:
        a.s, b.s = b.s, a.s
        return x + a.s

    with pytest.raises(fb.StateChangedError, match=r"a\.s → b\.s"):
        exchange(fb.ones(1))
    assert (a.s.tolist(), b.s.tolist()) == ([0.0], [1.0])  # type: ignore[attr-defined]
    a.s, b.s = b.s, a.s
    assert fb.jit(lambda x: x + a.s)(fb.ones(1)).item() == 2.0


def test_a_first_import_in_a_trace_draws_its_own_numbers() -> None:
    """``fb.random`` is imported when it is first used, and its generators are no part of the graph."""
    code = "import firebrick as fb; f = fb.jit(lambda x: x + fb.random.uniform((1,))); x = fb.zeros(1); assert f(x) != f(x)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
