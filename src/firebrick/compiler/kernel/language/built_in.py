"""The built-in functions of the kernel language (``intrinsics``), each as the statements and expressions that it becomes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import prod
from typing import Any

from firebrick.compiler.kernel.ir import Assign, Atomic, Barrier, CompareExchange, Let, SharedArray, Shuffle
from firebrick.compiler.kernel.language import intrinsics
from firebrick.compiler.kernel.language.values import (
    WEAK_DTYPES,
    ArrayValue,
    Held,
    Open,
    Registers,
    Value,
    Weak,
    apply,
    as_dtype,
    counted,
    shown,
)
from firebrick.compiler.kernel.language.writing import ElementPlace, Variable
from firebrick.core.dtypes import DType, dtype
from firebrick.ops.table import OPS
from firebrick.scalar import elements
from firebrick.scalar.expr import Expr, const, element, local
from firebrick.scalar.expr import fma as fused
from firebrick.scalar.storage import STORAGE

Arguments = dict[str, ast.expr]


def _index(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    if t.instance.group:
        if len(t.indices_of_grid) > 1:
            t.refuse(
                node,
                "a kernel of groups with several axes has indices of its groups and lanes",
                "index()",
                "use group() and lane()",
            )
        first = local(t.indices_of_grid[0], "int64")
        return first * const(t.instance.group, "int64") + local(t.item, "int64")
    return _of_grid(t, node, given)


def _group(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    _grouped(t, node, "group()")
    return _of_grid(t, node, given)


def _lane(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    _grouped(t, node, "lane()")
    return local(t.item, "int64")


def _of_grid(t: Any, node: ast.Call, given: Arguments) -> Value:
    found: tuple[Expr, ...] = tuple(local(name, "int64") for name in t.indices_of_grid)
    if "axis" in given:
        axis = t.constant(given["axis"], "the axis")
        if not 0 <= axis < len(found):
            t.refuse(node, f"the grid has {counted(len(found), 'axis')}", f"axis {axis}", f"write an axis below {len(found)}")
        return found[int(axis)]
    return found if len(found) > 1 else found[0]


def _grouped(t: Any, node: ast.Call, what: str) -> None:
    if not t.instance.group:
        t.refuse(
            node, f"{what} is in kernels of groups", "a kernel without groups",
            "write @fb.kernel(group=256, grid=…), where the grid is that of the groups",
        )  # fmt: skip


def _shape(t: Any, node: ast.expr) -> tuple[int, ...]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    shape = tuple(t.constant(p, "a size") for p in parts)
    if any(n < 1 for n in shape):
        t.refuse(node, "sizes of at least 1", str(shape), "write larger ones")
    return shape


def _dtype(t: Any, node: ast.expr) -> DType:
    found = t.value(node)
    if isinstance(found, Held) and isinstance(found.value, DType) and found.value.name in STORAGE:
        return found.value
    t.refuse(node, f"a dtype of kernels: {', '.join(STORAGE)}", shown(found), "write one, such as fb.float32")
    raise AssertionError


def _shared(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    _grouped(t, node, "shared(…)")
    if len(t.frame.path) or t.out is not t.top:
        t.refuse(
            node,
            "shared arrays are made at the beginning of a kernel, outside of branches and loops",
            "one inside",
            "move it to the beginning",
        )
    of, shape = _dtype(t, given["dtype"]), _shape(t, given["shape"])
    name = t.fresh("shared")
    t.shared.append(SharedArray(name, of.name, prod(shape)))
    t.initial.add(name)
    return ArrayValue(name, of, tuple(const(n, "int64") for n in shape), "shared")


def _registers(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    first, shape = t.number(given["value"]), _shape(t, given["shape"])
    name = t.fresh("%registers")
    of = WEAK_DTYPES[type(first.value)] if isinstance(first, Weak) else dtype(as_expr(first).dtype)
    value = as_dtype(first, of)
    t.registers[name] = t.frame
    for number in range(prod(shape)):
        at, rest = [], number
        for n in reversed(shape):
            rest, i = divmod(rest, n)
            at.append(i)
        place = ".".join([name, *map(str, reversed(at))])
        own = t.fresh(place)
        t.emit(Let(own, value, line=t.line))
        t.frame.names[place] = Variable(own, of)
    return Registers(name, shape)


def as_expr(v: Value) -> Expr:
    """A number as an expression."""
    if isinstance(v, Weak):
        return as_dtype(v, WEAK_DTYPES[type(v.value)])
    found = v.expr if isinstance(v, Open) else v
    assert isinstance(found, Expr)
    return found


def _barrier(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    _grouped(t, node, "barrier()")
    t.emit(Barrier(line=t.line))
    return Weak(0)


def _unrolled(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    t.refuse(node, "unrolled(…) is what a loop is over", "a call of it", "write for i in fb.kernel.unrolled(4):")
    raise AssertionError


def _changed(
    t: Any, node: ast.Call, given: Arguments, used: bool, names: tuple[str, ...]
) -> tuple[ArrayValue, ElementPlace, list[Expr]]:
    """An atomic operation's array, the place of its element, the condition that it exists, and the values."""
    of = t.value(given["array"])
    if not isinstance(of, ArrayValue):
        t.refuse(node, "an atomic operation changes an element of an array", shown(of), "pass an array")
    if of.role == "In" or (of.role == "Out" and of.name not in t.initial):
        t.refuse(
            node, "an atomic operation changes an array that is read and written, with values before", f"{of.name}: {of.role}",
            f"annotate it as InOut, or give a first value: Out[fb.{of.dtype.name}, …, 0]",
        )  # fmt: skip
    if of.dtype.kind not in ("int", "uint", "float") or of.dtype.itemsize < 4:
        t.refuse(
            node,
            "atomic operations are on int32, int64, uint32, uint64, float32 and float64",
            of.dtype.name,
            "use an array of int32",
        )
    if of.dtype.kind == "float" and t.instance.deterministic:
        t.refuse(
            node, "the order of atomic operations is not determined, so sums of floats differ from run to run", of.dtype.name,
            "sum in integers, or in a loop over the elements, or write @fb.kernel(deterministic=False)",
        )  # fmt: skip
    if used and t.instance.deterministic:
        t.refuse(
            node, "the value before an atomic operation depends on the order of the items, which is not determined",
            "a use of it", "do not use it, or write @fb.kernel(deterministic=False)",
        )  # fmt: skip
    subscript = ast.copy_location(ast.Subscript(given["array"], given["index"], ast.Load()), node)
    indices = t.indices(subscript, of)
    values = [t.fitting(node, v, of.dtype, f"an element of {of.name}") for v in t.values([given[n] for n in names])]
    place = t.place(node, of, indices)
    t.reads.add(of.name)
    t.stored.add(of.name)
    return of, place, values


def _atomic(op: str) -> Callable[[Any, ast.Call, Arguments, bool], Value]:
    def rule(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
        of, place, (value,) = _changed(t, node, given, used, ("value",))
        if of.dtype.kind == "float" and op in ("and", "or", "xor"):
            t.refuse(node, f"atomic_{op} is of integers", of.dtype.name, "use an array of integers")
        name = t.fresh("before") if used else ""
        return _guarded(t, of, place, name, lambda own: Atomic(op, of.name, place.at, value, own, line=t.line))

    return rule


def _exchange(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    of, place, (expected, value) = _changed(t, node, given, used, ("expected", "value"))
    if of.dtype.kind == "float":
        t.refuse(node, "compare_exchange is of integers", of.dtype.name, "use an array of integers")
    name = t.fresh("before")
    return _guarded(t, of, place, name, lambda own: CompareExchange(own, of.name, place.at, expected, value, line=t.line))


def _guarded(t: Any, of: ArrayValue, place: ElementPlace, name: str, made: Callable[[str], Any]) -> Value:
    """An atomic operation where its element exists."""
    if not name or place.inside is None:
        t.access(place, (made(name),))
        return local(name, of.dtype.name) if name else Weak(0)
    own = t.fresh("old")
    t.emit(Let(name, const(0, of.dtype.name), line=t.line))
    t.access(place, (made(own), Assign(name, local(own, of.dtype.name), line=t.line)))
    return local(name, of.dtype.name)


def _shuffle(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    _grouped(t, node, "shuffle(…)")
    v, source = t.values([given["value"], given["source"]])
    if not isinstance(v, Expr | Weak | Open):
        t.refuse(node, "a number is needed here", shown(v), "write one")
    at = t.as_integer(node, source, "the source of a shuffle")
    width = t.constant(given["width"], "the width of a shuffle")
    if width < 1 or width & (width - 1) or t.instance.group % width:
        t.refuse(node, f"a power of two that divides the group of {t.instance.group}", str(width), "write another width")
    name, value = t.fresh("shuffled"), as_expr(v)
    t.emit(Shuffle(name, value, at, width, line=t.line))
    return local(name, value.dtype)


def _key(t: Any, node: ast.Call, given: Arguments) -> tuple[list[Expr], Expr]:
    of, position = t.value(given["key"]), t.integer(given["position"], "a position")
    if (
        not isinstance(of, ArrayValue)
        or of.dtype.name != "uint32"
        or len(of.sizes) != 1
        or of.sizes[0] is not const(4, "int64")
    ):
        t.refuse(
            node, "the key of random numbers is four uint32 words", shown(of),
            "annotate it as fb.kernel.In[fb.uint32, \"4\"], and pass generator.key()",
        )  # fmt: skip
    return [element(of.name, "uint32", const(k, "int64")) for k in range(4)], position


def _random_bits(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    return elements.random_bits(*_key(t, node, given))


def _random_uniform(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    of = _dtype(t, given["dtype"]).name if "dtype" in given else "float32"
    if of not in ("float32", "float64"):
        t.refuse(node, "uniform numbers are float32 or float64", of, "cast the number")
    key, position = _key(t, node, given)
    return elements.random_uniform(key, position, of)


def _fma(t: Any, node: ast.Call, given: Arguments, used: bool) -> Value:
    operands = t.values([given["a"], given["b"], given["c"]])
    total = apply(OPS["add"], (apply(OPS["multiply"], operands[:2]), operands[2]))
    if not isinstance(total, Expr) or dtype(total.dtype).kind != "float":
        t.refuse(node, "fma is of floats", ", ".join(map(shown, operands)), "cast them")
    to = dtype(total.dtype)  # type: ignore[union-attr]
    return fused(*(as_dtype(v, to) for v in operands))


BUILT_IN: dict[Any, Callable[[Any, ast.Call, Arguments, bool], Value]] = {
    intrinsics.index: _index, intrinsics.group: _group, intrinsics.lane: _lane, intrinsics.shared: _shared,
    intrinsics.registers: _registers, intrinsics.barrier: _barrier, intrinsics.unrolled: _unrolled,
    intrinsics.atomic_add: _atomic("add"), intrinsics.atomic_min: _atomic("min"), intrinsics.atomic_max: _atomic("max"),
    intrinsics.atomic_and: _atomic("and"), intrinsics.atomic_or: _atomic("or"), intrinsics.atomic_xor: _atomic("xor"),
    intrinsics.atomic_exchange: _atomic("exchange"), intrinsics.compare_exchange: _exchange, intrinsics.shuffle: _shuffle,
    intrinsics.random_bits: _random_bits, intrinsics.random_uniform: _random_uniform, intrinsics.fma: _fma,
}  # fmt: skip
"""Function → what a call of it becomes: (translator, call, arguments by name, whether its value is used)."""
