"""Atomic operations of vector lanes: one active lane after the other.

On arrays of the launch they are the processor's atomic operations, relaxed. A group runs on one thread, so on shared arrays
they are a load, the operation and a store.
"""

from __future__ import annotations

from collections.abc import Callable

from firebrick.compiler.targets.llvm.emit import Code, Emitter, scalar_type
from firebrick.compiler.targets.llvm.lane_forms import LaneForm, Lanes
from firebrick.compiler.targets.llvm.memory import Strip, address, item_bytes, read, write
from firebrick.compiler.targets.llvm.scratch import Scratch
from firebrick.scalar.expr import BITS, FLOATS, SIGNED, binary, load

_ORDER = "monotonic"


def each_lane(
    lanes: Lanes, scratch: Scratch, operands: list[tuple[LaneForm, str]], dtype: str, mask: str,
    operation: Callable[[list[str]], str],
) -> LaneForm:  # fmt: skip
    """The results of an operation with scalar operands, executed for each active lane in turn.

    Args:
        lanes: Of the vector.
        scratch: Where the operands and results of the lanes are meanwhile.
        operands: Each with its dtype.
        dtype: Of the results.
        mask: Active lanes; empty for all.
        operation: Appends the code for one lane.
    """
    code, count = lanes.code, lanes.lanes
    if count == 1:
        return LaneForm(operation([form.base for form, _ in operands]))
    rooms = []
    for form, d in operands:
        rooms.append(scratch.array(d, count) if not form.uniform else None)
        if rooms[-1] is not None:
            write(code, rooms[-1], "0", lanes.vector(form, d), count)
    results = scratch.array(dtype, count)
    bits = code.put(f"bitcast {lanes.type('bool')} {lanes.full(mask)} to i{count}")
    bits = bits if count == 64 else code.put(f"zext i{count} {bits} to i64")
    before, head, after = code.block, code.fresh("lane"), code.fresh("after")
    left, rest = f"%{code.fresh('c')}", f"%{code.fresh('c')}"
    code.do(f"br label %{head}")
    code.label(head)
    place = len(code.lines)
    lane = code.call("i64", "llvm.cttz.i64", ("i64", left), ("i1", "true"))
    scalars = [
        form.base if room is None else read(code, room, lane, 1) for (form, _), room in zip(operands, rooms, strict=True)
    ]
    write(code, results, lane, operation(scalars), 1)
    code.do(f"{rest} = and i64 {left}, {code.put(f'sub i64 {left}, 1')}")
    code.do(f"br i1 {code.put(f'icmp ne i64 {rest}, 0')}, label %{head}, label %{after}")
    code.lines.insert(place, f"  {left} = phi i64 [ {bits}, %{before} ], [ {rest}, %{code.block} ]")
    code.label(after)
    return LaneForm(vector=read(code, results, "0", count))


def update(code: Code, op: str, array: Strip, index: str, value: str, shared: bool) -> str:
    """Combine an element with a value; returns the element's value before.

    Args:
        code: Function to append to.
        op: Of ``Atomic``.
        array: The array.
        index: i64.
        value: Of the array's dtype.
        shared: Whether the array is shared by a group.
    """
    dtype, kind = array.dtype, scalar_type(array.dtype)
    where, align = address(code, array, index), item_bytes(array.dtype)
    if shared:
        old = code.put(f"load {kind}, ptr {where}, align {align}")
        code.do(f"store {kind} {_combined(code, op, dtype, old, value)}, ptr {where}, align {align}")
        return old
    if dtype not in FLOATS or op == "exchange":
        name = _INTEGER.get(op, op)
        if op in ("min", "max") and dtype not in SIGNED:
            name = "u" + op
        return code.put(f"atomicrmw {name} ptr {where}, {kind} {value} {_ORDER}, align {align}")
    return _exchanged(code, op, dtype, where, value)


_INTEGER = {"exchange": "xchg"}


def compare_exchange(code: Code, array: Strip, index: str, expected: str, value: str, shared: bool) -> str:
    """Store a value if the element is the expected one; returns the element's value before. Arguments as of ``update``."""
    kind, align = scalar_type(array.dtype), item_bytes(array.dtype)
    where = address(code, array, index)
    if shared:
        old = code.put(f"load {kind}, ptr {where}, align {align}")
        same = code.put(f"icmp eq {kind} {old}, {expected}")
        new = code.put(f"select i1 {same}, {kind} {value}, {kind} {old}")
        code.do(f"store {kind} {new}, ptr {where}, align {align}")
        return old
    pair = code.put(f"cmpxchg ptr {where}, {kind} {expected}, {kind} {value} {_ORDER} {_ORDER}, align {align}")
    return code.put(f"extractvalue {{ {kind}, i1 }} {pair}, 0")


def _combined(code: Code, op: str, dtype: str, old: str, value: str) -> str:
    if op == "exchange":
        return value
    return Emitter(code, 1, lambda e: (old, value)[int(e.value or 0)]).value(binary(op, load(0, dtype), load(1, dtype)))


def _exchanged(code: Code, op: str, dtype: str, where: str, value: str) -> str:
    """A loop that tries until no other thread comes between: processors have no atomic operations of floats."""
    kind, whole, align = scalar_type(dtype), f"i{BITS[dtype]}", BITS[dtype] // 8
    first = code.put(f"load atomic {whole}, ptr {where} {_ORDER}, align {align}")
    before, head, after = code.block, code.fresh("again"), code.fresh("after")
    code.do(f"br label %{head}")
    code.label(head)
    place, old = len(code.lines), f"%{code.fresh('c')}"
    number = code.put(f"bitcast {whole} {old} to {kind}")
    new = code.put(f"bitcast {kind} {_combined(code, op, dtype, number, value)} to {whole}")
    pair = code.put(f"cmpxchg ptr {where}, {whole} {old}, {whole} {new} {_ORDER} {_ORDER}, align {align}")
    found = code.put(f"extractvalue {{ {whole}, i1 }} {pair}, 0")
    done = code.put(f"extractvalue {{ {whole}, i1 }} {pair}, 1")
    code.lines.insert(place, f"  {old} = phi {whole} [ {first}, %{before} ], [ {found}, %{code.block} ]")
    code.do(f"br i1 {done}, label %{after}, label %{head}")
    code.label(after)
    return number
