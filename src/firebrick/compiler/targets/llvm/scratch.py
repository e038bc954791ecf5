"""``Scratch``: arrays in the private memory of a call, at fixed byte offsets from its ``scratch`` pointer."""

from __future__ import annotations

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import Strip, item_bytes

LINE = 64
"""Every array begins at a multiple of this, as the pointer does."""


class Scratch:
    """Allocates arrays.

    Args:
        code: Function to append to.

    Attributes:
        bytes: Of all arrays so far.
    """

    def __init__(self, code: Code) -> None:
        self.code, self.bytes = code, 0

    def array(self, dtype: str, count: int) -> Strip:
        """A new array of ``count`` elements; its address is computed here."""
        return self.at(self.room(dtype, count), dtype)

    def room(self, dtype: str, count: int) -> int:
        """The offset of a new array."""
        offset = self.bytes
        self.bytes += -(-count * item_bytes(dtype) // LINE) * LINE
        return offset

    def at(self, offset: int, dtype: str) -> Strip:
        """The array at an offset; its address is computed here."""
        return Strip(dtype, self.code.put(f"getelementptr i8, ptr %scratch, i64 {offset}"), 1)
