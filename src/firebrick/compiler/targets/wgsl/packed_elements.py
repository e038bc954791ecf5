"""Elements of arrays in buffers: integers of 8 and 16 bits are packed in words, the lowest bits first, as on the host; float16
is a type of memory where the adapter has it (see ``prepared``).

WGSL has no memory of less than 32 bits. Items that store to one word at the same time change their own bits of it by atomic
operations, so neighbours need no order.
"""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.compiler.targets.wgsl.bindings import BoundArray
from firebrick.compiler.targets.wgsl.operations import TYPES

NARROW = {"bool": 8, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16}
"""Dtypes of elements that share a word, and their bits."""


@dataclass(frozen=True, slots=True)
class ElementMemory:
    """The elements of one array.

    Attributes:
        name: Of the variable.
        dtype: In memory.
        shared: Whether it is an array of a group: each element has a word, and is not packed.
        atomic: Whether its words are changed by atomic operations.
        windows: Number of its bindings.
        window: Bytes of each but the last; 0 for a single one.
    """

    name: str
    dtype: str
    shared: bool = False
    atomic: bool = False
    windows: int = 1
    window: int = 0

    @property
    def words(self) -> BoundArray:
        """Its words, or its elements if they are not packed."""
        return BoundArray(self.name, self.type, self.windows, self.window // (2 if self.dtype == "float16" else 4))

    @property
    def bits(self) -> int:
        """Bits of an element in a word; 0 if it is not packed."""
        return 0 if self.shared else NARROW.get(self.dtype, 0)

    @property
    def word(self) -> str:
        """The type of a word, or of an element that is not packed."""
        if self.bits:
            return "u32"
        if self.dtype == "float32":
            return "u32" if self.atomic else "f32"
        if self.dtype == "float16":
            return "f16"
        wide = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32", "bool": "uint32"}
        return TYPES[wide.get(self.dtype, self.dtype)]

    @property
    def type(self) -> str:
        """The type of the array's elements in WGSL."""
        return f"atomic<{self.word}>" if self.atomic else self.word

    def read(self, index: str) -> str:
        """The element at an index, u32, as an expression."""
        if not self.bits:
            found = self.words.load(index)
            if self.dtype in ("bool", "float16"):
                return f"({found} != 0u)" if self.dtype == "bool" else f"f32({found})"
            return f"bitcast<f32>({found})" if self.atomic and self.dtype == "float32" else found
        each = 32 // self.bits
        bits = f"({self.words.load(f'{index} / {each}u')} >> (({index} % {each}u) * {self.bits}u))"
        if self.dtype == "bool":
            return f"(({bits} & 0xffu) != 0u)"
        if self.dtype.startswith("int"):
            spare = 32 - self.bits
            return f"(bitcast<i32>({bits} << {spare}u) >> {spare}u)"
        return f"({bits} & {(1 << self.bits) - 1:#x}u)"

    def write(self, index: str, value: str) -> list[str]:
        """Statements that store a value at an index, u32."""
        if not self.bits:
            value = {"bool": f"u32({value})", "float16": f"f16({value})"}.get(self.dtype, value)
            value = f"bitcast<u32>({value})" if self.atomic and self.dtype == "float32" else value
            return [self.words.store(index, value)]
        each, mask = 32 // self.bits, (1 << self.bits) - 1
        value = f"bitcast<u32>({value})" if self.dtype.startswith("int") else f"u32({value})"
        shift, to = f"(({index} % {each}u) * {self.bits}u)", f"{index} / {each}u"
        return [
            self.words.atomic("And", to, f"~({mask:#x}u << {shift})") + ";",
            self.words.atomic("Or", to, f"({value} & {mask:#x}u) << {shift}") + ";",
        ]


FOUR = 4
"""Elements of a quad, which an item reads and stores together: a vector, two words of halves, or a word of bytes."""


@dataclass(frozen=True, slots=True)
class QuadMemory:
    """Four neighbouring elements of an array for each item.

    Attributes:
        name: Of the variable.
        dtype: In memory.
        windows: Number of its bindings.
        window: Bytes of each but the last; 0 for a single one.
    """

    name: str
    dtype: str
    windows: int = 1
    window: int = 0

    @property
    def quads(self) -> BoundArray:
        """Its quads."""
        return BoundArray(self.name, self.type, self.windows, self.window // (2 if self._half else self._bits // 8) // FOUR)

    @property
    def _bits(self) -> int:
        """Of an element in a word; 32 for elements of vectors."""
        return NARROW.get(self.dtype, 32)

    @property
    def _half(self) -> bool:
        return self.dtype == "float16"

    @property
    def type(self) -> str:
        """The type of the array's elements in WGSL."""
        return {8: "u32", 16: "vec2<u32>", 32: f"vec4<{'f16' if self._half else TYPES.get(self.dtype, '')}>"}[self._bits]

    def read(self, quad: str, k: int) -> str:
        """An element of a quad, as an expression."""
        if self._bits == 32:
            return f"f32({quad}.{'xyzw'[k]})" if self._half else f"{quad}.{'xyzw'[k]}"
        word, at = (quad, 8 * k) if self._bits == 8 else (f"{quad}.{'xy'[k // 2]}", 16 * (k % 2))
        if self.dtype == "bool":
            return f"((({word} >> {at}u) & 0xffu) != 0u)"
        if self.dtype.startswith("int"):
            return f"(bitcast<i32>({word} << {32 - self._bits - at}u) >> {32 - self._bits}u)"
        return f"(({word} >> {at}u) & {(1 << self._bits) - 1:#x}u)"

    @property
    def held(self) -> str:
        """The type of a variable for an element until it is stored."""
        if self._half:
            return "f16"
        return TYPES[self.dtype] if self._bits == 32 else "u32"

    def part(self, value: str) -> str:
        """A value as it is held."""
        if self._bits == 32:
            return f"f16({value})" if self._half else value
        word = f"bitcast<u32>({value})" if self.dtype.startswith("int") else f"u32({value})"
        return f"({word} & {(1 << self._bits) - 1:#x}u)"

    def quad(self, parts: list[str]) -> str:
        """Four held elements as one of the array's in WGSL."""
        if self._bits == 32:
            return f"{self.type}({', '.join(parts)})"
        each = 32 // self._bits
        words = [
            " | ".join(f"({part} << {self._bits * k}u)" for k, part in enumerate(parts[first : first + each]))
            for first in range(0, FOUR, each)
        ]
        return words[0] if len(words) == 1 else f"{self.type}({', '.join(words)})"
