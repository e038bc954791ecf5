"""Loads and stores of vectors of elements: contiguous, broadcast, reversed and strided, masked or not, of any storage dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firebrick.compiler.targets.llvm.emit import Code, Emitter, fenced, scalar_type, splat, suffix, vector_type
from firebrick.scalar.expr import BITS, COMPLEX, FLOATS, Expr, load
from firebrick.scalar.storage import HALVES, computed, decode, encode


@dataclass(frozen=True, slots=True)
class BufferView:
    """The layout of an operand or result in its buffer, whose pointer is that of the element at index 0 of every axis.

    Attributes:
        dtype: Storage dtype.
        strides: Stride of each axis of the kernel's shape, in elements; 0 if the operand is broadcast. They may be negative.
    """

    dtype: str
    strides: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        return item_bytes(self.dtype)


def item_bytes(dtype: str) -> int:
    """Bytes of one element in memory."""
    if dtype in COMPLEX:
        return 2 * item_bytes(COMPLEX[dtype])
    return 2 if dtype in HALVES else max(1, BITS[computed(dtype)] // 8)


def store_bytes(dtype: str, lanes: int) -> int:
    """Bytes of a vector that a store writes at once; those of parts of complex numbers take two."""
    return lanes * item_bytes(COMPLEX.get(dtype, dtype))


def stored_type(dtype: str, code: Code) -> str:
    """LLVM's type of an element in memory: bools are bytes; float16 is i16 if the target cannot convert it."""
    if dtype == "bool":
        return "i8"
    if dtype in COMPLEX:
        return f"[2 x {scalar_type(COMPLEX[dtype])}]"
    if dtype == "float16" and _converts(code):
        return "half"
    return "i16" if dtype in HALVES else scalar_type(dtype)


def _converts(code: Code) -> bool:
    return code.target.has("f16c") or code.target.has("avx512f") or code.target.arch in ("aarch64", "nvptx64", "amdgcn")


@dataclass(slots=True)
class Strip:
    """Elements of one operand along the innermost axis.

    Attributes:
        dtype: Storage dtype.
        pointer: Pointer to element 0.
        stride: Stride in elements.
        uniform: The value of a broadcast operand in all lanes, if it is loaded in front of the loop.
    """

    dtype: str
    pointer: str
    stride: int
    uniform: str = ""


def address(code: Code, strip: Strip, at: str) -> str:
    """The address of the element at position ``at`` (i64)."""
    if strip.stride != 1:
        at = code.put(f"mul i64 {at}, {strip.stride}") if strip.stride else "0"
    return code.put(f"getelementptr {stored_type(strip.dtype, code)}, ptr {strip.pointer}, i64 {at}")


def read_uniform(code: Code, strip: Strip, lanes: int) -> None:
    """Load a broadcast operand's element into all lanes, in front of the loop."""
    element = stored_type(strip.dtype, code)
    one = code.put(f"load {element}, ptr {strip.pointer}, align {item_bytes(strip.dtype)}")
    strip.uniform = splat(code, scalar_type(computed(strip.dtype)), _decoded(code, strip.dtype, one, 1), lanes)


def read(code: Code, strip: Strip, at: str, lanes: int, mask: str = "") -> str:
    """``lanes`` elements from position ``at`` on, in the dtype they are computed in; 0 in lanes where ``mask`` is false."""
    if strip.uniform:
        return strip.uniform
    element, align = stored_type(strip.dtype, code), item_bytes(strip.dtype)
    vector = vector_type(element, lanes)
    if lanes == 1:
        raw = code.put(f"load {element}, ptr {address(code, strip, at)}, align {align}")
    elif strip.stride == 1:
        where = address(code, strip, at)
        if mask:
            name = f"llvm.masked.load.{suffix(element, lanes)}.p0"
            raw = code.call(vector, name, (f"ptr align {align}", where), (f"<{lanes} x i1>", mask), (vector, "zeroinitializer"))
        else:
            raw = code.put(f"load {vector}, ptr {where}, align {align}")
    elif strip.stride == -1 and not mask:
        low = code.put(f"add i64 {at}, {lanes - 1}")
        raw = code.put(f"load {vector}, ptr {address(code, strip, low)}, align {align}")
        reversed_lanes = ", ".join(f"i32 {i}" for i in range(lanes - 1, -1, -1))
        raw = code.put(f"shufflevector {vector} {raw}, {vector} poison, <{lanes} x i32> <{reversed_lanes}>")
    elif strip.stride == 2:
        raw = _every_second(code, strip, element, at, lanes, mask)
    else:
        active = mask or "splat (i1 true)"
        name = f"llvm.masked.gather.{suffix(element, lanes)}.v{lanes}p0"
        raw = code.call(
            vector, name, (f"<{lanes} x ptr> align {align}", _addresses(code, strip, at, lanes)), (f"<{lanes} x i1>", active),
            (vector, "zeroinitializer"),
        )  # fmt: skip
    return _decoded(code, strip.dtype, raw, lanes)


def _every_second(code: Code, strip: Strip, element: str, at: str, lanes: int, mask: str) -> str:
    """Elements at a stride of 2, such as parts of complex numbers: two loads, which read nothing beyond the last element."""
    vector, align = vector_type(element, lanes), item_bytes(strip.dtype)
    first = address(code, strip, at)
    second = code.put(f"getelementptr {element}, ptr {first}, i64 {lanes - 1}")
    half = lanes // 2
    loads = []
    for number, where in enumerate((first, second)):
        if not mask:
            loads.append(code.put(f"load {vector}, ptr {where}, align {align}"))
            continue
        # the elements between are not read: the last one may be beyond the array
        order = [half * number + i // 2 if i % 2 == number else lanes for i in range(lanes)]
        on = shuffled(code, "i1", mask, "zeroinitializer", order, lanes)
        name = f"llvm.masked.load.{suffix(element, lanes)}.p0"
        loads.append(
            code.call(vector, name, (f"ptr align {align}", where), (f"<{lanes} x i1>", on), (vector, "zeroinitializer"))
        )
    return shuffled(code, element, loads[0], loads[1], [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)], lanes)


def shuffled(code: Code, element: str, a: str, b: str, order: Sequence[int], lanes: int) -> str:
    """Lanes of two vectors of ``lanes``, in an order of numbers below 2 · ``lanes``."""
    picked, t = ", ".join(f"i32 {i}" for i in order), vector_type(element, lanes)
    return code.put(f"shufflevector {t} {a}, {t} {b}, <{len(order)} x i32> <{picked}>")


def read_at(code: Code, strip: Strip, positions: str, lanes: int, mask: str = "", align: int = 0) -> str:
    """The elements at ``lanes`` offsets in elements (i64) from the strip's pointer; the strip's stride is not applied.

    ``align`` is the address's alignment in bytes if it is more than an element's.
    """
    element, align = stored_type(strip.dtype, code), max(align, item_bytes(strip.dtype))
    if lanes == 1:
        where = code.put(f"getelementptr {element}, ptr {strip.pointer}, i64 {positions}")
        return _decoded(code, strip.dtype, code.put(f"load {element}, ptr {where}, align {align}"), 1)
    vector, active = vector_type(element, lanes), mask or "splat (i1 true)"
    addresses = code.put(f"getelementptr {element}, ptr {strip.pointer}, <{lanes} x i64> {positions}")
    name = f"llvm.masked.gather.{suffix(element, lanes)}.v{lanes}p0"
    raw = code.call(
        vector,
        name,
        (f"<{lanes} x ptr> align {align}", addresses),
        (f"<{lanes} x i1>", active),
        (vector, "zeroinitializer"),
    )
    return _decoded(code, strip.dtype, raw, lanes)


def write(
    code: Code, strip: Strip, at: str, value: str, lanes: int, mask: str = "", stream: int = 0, align: int = 0
) -> None:  # fmt: skip
    """Store ``lanes`` values from position ``at`` on, where ``mask`` is true. ``stream`` is 0, or the alignment in bytes of a
    non-temporal store; ``align`` the address's alignment in bytes if it is more than an element's."""
    if strip.dtype in COMPLEX:
        _write_pairs(code, strip, at, value, lanes, mask, stream)
        return
    raw = _encoded(code, strip.dtype, value, lanes)
    element, align = stored_type(strip.dtype, code), max(align, item_bytes(strip.dtype))
    vector = vector_type(element, lanes)
    if lanes == 1:
        code.do(f"store {element} {raw}, ptr {address(code, strip, at)}, align {align}")
    elif strip.stride == 1 and not mask:
        how = f"align {stream}, !nontemporal !0" if stream else f"align {align}"
        code.do(f"store {vector} {raw}, ptr {address(code, strip, at)}, {how}")
    elif strip.stride == 1:
        name = f"llvm.masked.store.{suffix(element, lanes)}.p0"
        where = address(code, strip, at)
        if code.target.has("avx512f") and strip.dtype not in FLOATS:
            mask = opaque(code, mask, where, lanes)
        code.call("void", name, (vector, raw), (f"ptr align {align}", where), (f"<{lanes} x i1>", mask))
    else:
        active = mask or "splat (i1 true)"
        name = f"llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0"
        to = _addresses(code, strip, at, lanes)
        code.call("void", name, (vector, raw), (f"<{lanes} x ptr> align {align}", to), (f"<{lanes} x i1>", active))


def write_at(code: Code, strip: Strip, positions: str, value: str, lanes: int, mask: str = "") -> None:
    """Store ``lanes`` values at offsets in elements (i64) from the strip's pointer, where ``mask`` is true."""
    raw = _encoded(code, strip.dtype, value, lanes)
    element, align = stored_type(strip.dtype, code), item_bytes(strip.dtype)
    places = code.put(f"getelementptr {element}, ptr {strip.pointer}, <{lanes} x i64> {positions}")
    name = f"llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0"
    on = mask or "splat (i1 true)"
    code.call(
        "void", name, (vector_type(element, lanes), raw), (f"<{lanes} x ptr> align {align}", places), (f"<{lanes} x i1>", on)
    )


def _write_pairs(code: Code, strip: Strip, at: str, value: str, lanes: int, mask: str, stream: int) -> None:
    """Store complex numbers, given as one vector of their parts in the order of memory."""
    part = COMPLEX[strip.dtype]
    element, align = scalar_type(part), item_bytes(part)
    both = f"<{2 * lanes} x {element}>"
    if lanes == 1 or (strip.stride == 1 and not mask):
        how = f"align {stream}, !nontemporal !0" if stream else f"align {align}"
        code.do(f"store {both} {value}, ptr {address(code, strip, at)}, {how}")
    elif strip.stride == 1:
        on = shuffled(code, "i1", mask, "poison", [i // 2 for i in range(2 * lanes)], lanes)
        name = f"llvm.masked.store.{suffix(element, 2 * lanes)}.p0"
        where = address(code, strip, at)
        code.call("void", name, (both, value), (f"ptr align {align}", where), (f"<{2 * lanes} x i1>", on))
    else:
        vector, to = vector_type(element, lanes), _addresses(code, strip, at, lanes)
        name = f"llvm.masked.scatter.{suffix(element, lanes)}.v{lanes}p0"
        for k in (0, 1):
            one = shuffled(code, element, value, "poison", range(k, 2 * lanes, 2), 2 * lanes)
            there = code.put(f"getelementptr {element}, <{lanes} x ptr> {to}, i64 {k}")
            on = mask or "splat (i1 true)"
            code.call("void", name, (vector, one), (f"<{lanes} x ptr> align {align}", there), (f"<{lanes} x i1>", on))


def opaque(code: Code, mask: str, where: str, lanes: int) -> str:
    """The same mask, by an expression that LLVM does not fold to a constant.

    LLVM 22 replaces a masked store with one constant lane by a plain store. If the stored value was truncated before, that
    store has the width before the truncation, and writes beyond the element.
    """
    there = splat(code, "i1", code.put(f"icmp ne ptr {where}, null"), lanes)
    return code.put(f"and <{lanes} x i1> {mask}, {there}")


def positions(code: Code, at: str, stride: int, lanes: int) -> str:
    """(at + 0 … lanes - 1) · stride, i64."""
    if lanes == 1:
        return at if stride == 1 else code.put(f"mul i64 {at}, {stride}")
    vector = f"<{lanes} x i64>"
    start = at if stride == 1 else code.put(f"mul i64 {at}, {stride}")
    steps = ", ".join(f"i64 {i * stride}" for i in range(lanes))
    return code.put(f"add {vector} {splat(code, 'i64', start, lanes)}, <{steps}>")


def tail_mask(code: Code, left: str, lanes: int) -> str:
    """The mask of lanes below ``left`` (i64)."""
    if left.isdigit() and code.target.has("avx512f"):
        # LLVM 22 replaces constant masks by shuffles, some of which (vexpandpd) are very slow. This adds begin >> 63, which is
        # 0, since begin ≥ 0, but not to LLVM
        left = code.put(f"add i64 {left}, {code.put('lshr i64 %begin, 63')}")
    steps = ", ".join(f"i32 {i}" for i in range(lanes))
    count = splat(code, "i32", code.put(f"trunc i64 {left} to i32"), lanes)
    return code.put(f"icmp ugt <{lanes} x i32> {count}, <{steps}>")


def _addresses(code: Code, strip: Strip, at: str, lanes: int) -> str:
    element = stored_type(strip.dtype, code)
    offsets = positions(code, at, strip.stride, lanes)
    return code.put(f"getelementptr {element}, ptr {strip.pointer}, <{lanes} x i64> {offsets}")


def _decoded(code: Code, dtype: str, raw: str, lanes: int) -> str:
    if dtype == "bool":
        vector = vector_type("i8", lanes)
        return code.put(f"icmp ne {vector} {raw}, {'0' if lanes == 1 else 'zeroinitializer'}")
    if dtype == "float16" and _converts(code):
        return fenced(
            code, code.put(f"fpext {vector_type('half', lanes)} {raw} to {vector_type('float', lanes)}"), "float", lanes
        )
    if dtype in HALVES:
        return _inline(code, decode(load(0, "uint16"), dtype), raw, lanes)
    return raw


def _encoded(code: Code, dtype: str, value: str, lanes: int) -> str:
    if dtype == "bool":
        return code.put(f"zext {vector_type('i1', lanes)} {value} to {vector_type('i8', lanes)}")
    if dtype == "float16" and _converts(code):
        return code.put(f"fptrunc {vector_type('float', lanes)} {value} to {vector_type('half', lanes)}")
    if dtype in HALVES:
        return _inline(code, encode(load(0, "float32"), dtype), value, lanes)
    return value


def _inline(code: Code, e: Expr, value: str, lanes: int) -> str:
    return Emitter(code, lanes, lambda _: value).value(e)
