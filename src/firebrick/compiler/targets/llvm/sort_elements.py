"""What sorts move: the key of each element, an unsigned integer in the order of the elements, with the element's index.

NaN has the largest key, and zeros of both signs have one key. In descending order keys are inverted, so that equal elements are
still in the order of their indices. Keys of up to 32 bits are packed into a word with the index; wider ones have an array of
their own, beside one of the indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import item_bytes
from firebrick.scalar.expr import FLOATS, SIGNED
from firebrick.scalar.storage import computed

INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
"""The bits of infinity: those of NaN, without the sign, are more."""
MOST = 1 << 31
"""Number of elements of a line that has too many for the indices."""

Room = tuple[str, ...]
"""Pointers to the arrays that elements are kept in."""
Element = tuple[str, ...]
"""The values of an element: a word of key and index, or the key and the index."""


def at(code: Code, dtype: str, pointer: str, index: str) -> str:
    """The address of an element of an array."""
    return code.put(f"getelementptr {dtype}, ptr {pointer}, i64 {index}")


@dataclass(frozen=True, slots=True)
class SortElements:
    """How elements of a dtype are kept while they are sorted.

    Attributes:
        dtype: Of the elements in memory.
        descending: Whether the largest element comes first.
    """

    dtype: str
    descending: bool

    @property
    def bits(self) -> int:
        """Number of bits of an element and of its key."""
        return 8 * item_bytes(self.dtype)

    @property
    def packed(self) -> bool:
        """Whether key and index are one word."""
        return self.bits <= 32

    @property
    def arrays(self) -> tuple[str, ...]:
        """LLVM's types of the arrays of a room."""
        return ("i64",) if self.packed else ("i64", "i32")

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of an element in each array of a room."""
        return (8,) if self.packed else (8, 4)

    def key(self, code: Code, source: str) -> str:
        """The key (i64) of the element at an address."""
        bits, put = self.bits, code.put
        raw = put(f"load i{bits}, ptr {source}, align {bits // 8}")
        if self.dtype in INFINITY:
            sign = 1 << (bits - 1)
            size = put(f"and i{bits} {raw}, {sign - 1}")
            negative = put(f"ashr i{bits} {raw}, {bits - 1}")  # all ones: the order of negative numbers is reversed
            ordered = put(f"xor i{bits} {raw}, {put(f'or i{bits} {negative}, {-sign}')}")
            zero = put(f"icmp eq i{bits} {size}, 0")
            ordered = put(f"select i1 {zero}, i{bits} {-sign}, i{bits} {ordered}")
            odd = put(f"icmp ugt i{bits} {size}, {INFINITY[self.dtype]}")
            raw = put(f"select i1 {odd}, i{bits} -1, i{bits} {ordered}")
        elif computed(self.dtype) in SIGNED:
            raw = put(f"xor i{bits} {raw}, {-(1 << (bits - 1))}")
        assert self.dtype in INFINITY or computed(self.dtype) not in FLOATS
        if self.descending:
            raw = put(f"xor i{bits} {raw}, -1")
        return raw if bits == 64 else put(f"zext i{bits} {raw} to i64")

    def made(self, code: Code, key: str, index: str) -> Element:
        """The element of a key and an index (i64)."""
        if self.packed:
            return (code.put(f"or i64 {code.put(f'shl i64 {key}, 32')}, {index}"),)
        return key, code.put(f"trunc i64 {index} to i32")

    def load(self, code: Code, room: Room, index: str) -> Element:
        """The element at an index of a room."""
        return tuple(code.put(f"load {t}, ptr {at(code, t, p, index)}") for t, p in zip(self.arrays, room, strict=True))

    def store(self, code: Code, room: Room, index: str, element: Element) -> None:
        """Put an element at an index of a room."""
        for t, p, value in zip(self.arrays, room, element, strict=True):
            code.do(f"store {t} {value}, ptr {at(code, t, p, index)}")

    def digit(self, code: Code, element: Element, shift: str, bits: int) -> str:
        """``bits`` bits (i64) of the key from bit ``shift`` (i64)."""
        shift = code.put(f"add i64 {shift}, 32") if self.packed else shift
        return code.put(f"and i64 {code.put(f'lshr i64 {element[0]}, {shift}')}, {(1 << bits) - 1}")

    def index(self, code: Code, element: Element) -> str:
        """The index (i64)."""
        if self.packed:
            return code.put(f"and i64 {element[0]}, {(1 << 32) - 1}")
        return code.put(f"zext i32 {element[1]} to i64")

    def part(self, code: Code, room: Room, index: str) -> Room:
        """The room that begins at an index."""
        return tuple(at(code, t, p, index) for t, p in zip(self.arrays, room, strict=True))


def chosen(code: Code, condition: str, first: Sequence[str], second: Sequence[str]) -> Room:
    """One of two rooms."""
    return tuple(code.put(f"select i1 {condition}, ptr {a}, ptr {b}") for a, b in zip(first, second, strict=True))
