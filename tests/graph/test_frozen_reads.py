"""What a function under jit reads is read at each call, in whatever way it reads it; what cannot be compared raises."""

from __future__ import annotations

import ctypes
import decimal
import functools
import inspect
import io
import mmap
import operator
import subprocess
import sys
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb

MODULE = ModuleType("a_module_of_a_user")
sys.modules[MODULE.__name__] = MODULE
NAME = "s"
number = 2.0


class Plain:
    s = 1.0

    def __init__(self) -> None:
        self.s = 2.0


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


CASES.update({f.__name__.strip("_"): f for f in (
    _own_module, _frame, _weak_keys, _weak_set, _ctypes_array, _ctypes_number, _ctypes_structs, _mmap, _decimal,
    _decimal_context, _decimal_value, _text, _partial, _errors,
)})  # fmt: skip


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
