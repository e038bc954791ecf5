"""Arrays in bindings. An array of more bytes than a binding may have is in several, its *windows*: parts of one buffer that
follow each other, of the same size but for the last. A function finds the window of an index.
"""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.compiler.kernel.ir import ATOMIC

WORD = 4
"""Bytes that sizes of bindings and copies are multiples of."""
OFFSETS = 256
"""Bytes of which the offset of a binding is a multiple on every adapter; they are whole quads of the largest elements.

Source: the specification of WebGPU: ``minStorageBufferOffsetAlignment`` is at most 256."""
_ATOMIC = tuple(op.title() for op in ATOMIC)


def window_bytes(limit: int) -> int:
    """Bytes of a window, by the maximum of a binding."""
    return limit // OFFSETS * OFFSETS


def windows_of(nbytes: int, limit: int | None) -> int:
    """The number of windows of an array, by the maximum bytes of a binding; None if it is unlimited."""
    return 1 if limit is None else max(1, -(-nbytes // window_bytes(limit)))


@dataclass(frozen=True, slots=True)
class BoundArray:
    """An array of WGSL in one binding or in several.

    Attributes:
        name: Of the variable of its first window.
        type: Of its elements in WGSL.
        windows: Number of its bindings.
        each: Elements of a window; of no meaning for a single one.
    """

    name: str
    type: str
    windows: int = 1
    each: int = 0

    @property
    def _atomic(self) -> bool:
        return self.type.startswith("atomic<")

    @property
    def _word(self) -> str:
        return self.type.removeprefix("atomic<").removesuffix(">") if self._atomic else self.type

    def load(self, index: str) -> str:
        """The element at an index, u32, as an expression."""
        if self.windows > 1:
            return f"load_{self.name}({index})"
        return f"atomicLoad(&{self.name}[{index}])" if self._atomic else f"{self.name}[{index}]"

    def store(self, index: str, value: str) -> str:
        """The statement that stores an element."""
        if self.windows > 1:
            return f"store_{self.name}({index}, {value});"
        return f"atomicStore(&{self.name}[{index}], {value});" if self._atomic else f"{self.name}[{index}] = {value};"

    def atomic(self, operation: str, index: str, *values: str) -> str:
        """The expression of an atomic operation, ``CompareExchangeWeak`` or one of the kernel IR."""
        if self.windows > 1:
            return f"atomic{operation}_{self.name}({', '.join((index, *values))})"
        return f"atomic{operation}({', '.join((f'&{self.name}[{index}]', *values))})"

    def declarations(self, binding: int, access: str) -> list[str]:
        """The variables of its windows.

        Args:
            binding: Number of the first.
            access: ``read`` or ``read_write``.
        """
        return [
            f"@group(0) @binding({binding + k}) var<storage, {access}> {self._window(k)}: array<{self.type}>;"
            for k in range(self.windows)
        ]

    def functions(self, text: str) -> list[str]:
        """The functions that a text calls; none for a single window."""
        if self.windows == 1:
            return []
        word, one, tried = self._word, f"value: {self._word}", f"Tried_{self.name}"  # WGSL has no name for the latter's type
        weak = "let tried = atomicCompareExchangeWeak(&{0}, expected, value);"
        load, store = ("atomicLoad(&{0})", "atomicStore(&{0}, value)") if self._atomic else ("{0}", "{0} = value")
        lines = [
            *self._function(text, "load", "", word, f"return {load};"),
            *self._function(text, "store", one, "", f"{store};"),
        ]
        for op in _ATOMIC:
            lines += self._function(text, f"atomic{op}", one, word, f"return atomic{op}(&{{0}}, value);")
        exchange = f"{weak} return {tried}(tried.old_value, tried.exchanged);"
        found = self._function(text, "atomicCompareExchangeWeak", f"expected: {word}, {one}", tried, exchange)
        if found:
            lines += [f"struct {tried} {{ old_value: {word}, exchanged: bool }}", *found]
        return lines

    def _window(self, k: int) -> str:
        return self.name if k == 0 else f"{self.name}_window{k}"

    def _function(self, text: str, name: str, parameters: str, result: str, body: str) -> list[str]:
        """A function of an index and further parameters; no lines if the text does not call it.

        Args:
            text: What may call it.
            name: Its name, before that of the array.
            parameters: Further ones.
            result: Type of its result, empty for none.
            body: Statements, with ``{0}`` for the element.
        """
        if f"{name}_{self.name}(" not in text:
            return []
        more, returned = f", {parameters}" if parameters else "", f" -> {result}" if result else ""
        lines = [f"fn {name}_{self.name}(at: u32{more}){returned} {{"]
        for k in range(self.windows):
            done = body.format(f"{self._window(k)}[{f'at - {k * self.each}u' if k else 'at'}]")
            if k + 1 < self.windows:
                done = f"if (at < {(k + 1) * self.each}u) {{ {done}{'' if result else ' return;'} }}"
            lines.append(f"    {done}")
        return [*lines, "}"]
