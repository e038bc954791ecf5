"""``Alignments``: what the addresses of a kernel's accesses are multiples of, as far as its index expressions show.

LLVM joins loads of neighbours into one of a vector only where their alignment is written on the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from firebrick.compiler.kernel.ir import ArrayParameter, For, Function, Let, SharedArray, assigned, statements
from firebrick.compiler.targets.llvm.memory import item_bytes
from firebrick.scalar.expr import Expr, walk

_MOST = 1 << 12
"""What 0 is taken to be a multiple of."""


class Alignments:
    """The alignment of accesses.

    Args:
        function: Kernel.
        bytes: What the address of each array is a multiple of.
    """

    def __init__(self, function: Function, bytes: Mapping[str, int]) -> None:
        self._bytes = bytes
        arrays: tuple[ArrayParameter | SharedArray, ...] = (*function.arrays, *function.shared)
        self._items = {a.name: item_bytes(a.dtype) for a in arrays}
        self._factors: dict[str, int] = {}
        changing = assigned(function.body)
        defined: dict[str, int] = {}  # blocks that do not contain each other may use one name
        for s in statements(function.body):
            if isinstance(s, Let) and s.value.dtype == "int64":
                found = 1 if s.name in changing else self.factor(s.value)
            elif isinstance(s, For):
                found = min(self.factor(s.start), s.step & -s.step)
            else:
                continue
            defined[s.name] = min(defined.get(s.name, found), found)
            self._factors[s.name] = defined[s.name]

    def factor(self, e: Expr) -> int:
        """A power of two that divides the value of an expression."""
        found: dict[Expr, int] = {}
        for x in walk([e]):  # operands first
            a = [found[y] for y in x.args]
            match x.op:
                case "const" if x.dtype == "int64":
                    number = int(x.value or 0) or _MOST
                    factor = number & -number
                case "local":
                    factor = self._factors.get(str(x.value), 1)
                case "add" | "sub" | "min" | "max":
                    factor = min(a[0], a[1])
                case "mul":
                    factor = a[0] * a[1]
                case "neg":
                    factor = a[0]
                case "shl" if x.args[1].op == "const" and 0 <= int(x.args[1].value or 0) < 12:
                    factor = a[0] << int(x.args[1].value or 0)
                case "select":
                    factor = min(a[1], a[2])
                case _:
                    factor = 1
            found[x] = min(factor, _MOST)
        return found[e]

    def of(self, array: str, index: Expr) -> int:
        """The alignment in bytes of an element: a power of two, at least the size of the element if the array has that.

        Products of indices may wrap around, which keeps their powers of two.
        """
        return gcd(self._bytes[array], self.factor(index) * self._items[array])
