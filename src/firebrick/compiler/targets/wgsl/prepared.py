"""``prepared``: a kernel as WGSL can express it on any adapter.

Elements of half precision are read and stored by their bits, but for float16 on adapters that convert it; float64 and 64-bit
integers are two words of a uint32 array of twice the extent; ``legalized`` rewrites the rest. The 64-bit integers that some
adapters have are not used but as the bits of float64: lavapipe's compares them with constants wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firebrick.compiler.kernel.ir import (
    BLOCKS,
    VALUES,
    ArrayParameter,
    Atomic,
    CompareExchange,
    Function,
    Let,
    SharedArray,
    Statement,
    Store,
    statements,
)
from firebrick.compiler.kernel.legalized import legalized
from firebrick.core.errors import UnsupportedError
from firebrick.scalar.capabilities import Capabilities
from firebrick.scalar.expr import Expr, cast, element, rebuilt, rewritten
from firebrick.scalar.storage import HALVES, decode, encode
from firebrick.scalar.wide import WIDE, Bounds, Words, float64_of_words, words_of_float64


def prepared(function: Function, capabilities: Capabilities, bounds: Mapping[str, Bounds]) -> Function:
    """A kernel in operations that WGSL has on an adapter, with the same results.

    Args:
        function: Kernel.
        capabilities: Of the adapter, without 64-bit integers.
        bounds: As of ``legalized``.

    Raises:
        DTypeError: An array or an expression has a dtype that the adapter does not have.
        UnsupportedError: A size, a loop, a group or shared memory may be too large for the adapter.
    """
    in_words = (*WIDE, "float64") if capabilities.float64 else WIDE
    found = {a.name: a.dtype for a in function.memory if a.dtype in HALVES or a.dtype in in_words}
    if capabilities.float16:
        # an array that is read and written stays: a driver may skip the rounding of what it stored and reads
        native = {a.name for a in function.memory if isinstance(a, SharedArray) or a.access in ("read", "write")}
        found = {name: of for name, of in found.items() if of != "float16" or name not in native}
    words = {name: (0, 2 * bounds[name][1]) for name, dtype in found.items() if dtype in in_words and name in bounds}
    made = _Bits(function, found).function() if found else function
    return legalized(made, capabilities, {**bounds, **words})


class _Bits:
    """Replaces arrays of half precision by arrays of uint16, and of float64 and 64-bit integers by arrays of uint32.

    Args:
        function: Kernel.
        dtypes: The arrays that are replaced, and their dtypes.
    """

    def __init__(self, function: Function, dtypes: Mapping[str, str]) -> None:
        self._function, self._dtypes = function, dtypes
        self._count = 0

    def function(self) -> Function:
        """The kernel."""
        f = self._function
        for s in statements(f.body):
            if isinstance(s, Atomic | CompareExchange) and s.array in self._dtypes:
                raise UnsupportedError(
                    f"kernel {f.name}: atomic operations are of 32 bits on this target",
                    f"{s.array} of {self._dtypes[s.array]}", "make it an array of int32 or float32", kernel=f.name,
                )  # fmt: skip
        arrays, shared = tuple(map(self._array, f.arrays)), tuple(map(self._shared, f.shared))
        return replace(f, arrays=arrays, shared=shared, body=self._block(f.body))

    def _array(self, a: ArrayParameter) -> ArrayParameter:
        dtype = self._dtypes.get(a.name)
        if dtype is None or dtype in HALVES:
            return a if dtype is None else replace(a, dtype="uint16")
        return replace(a, dtype="uint32", extent=None if a.extent is None else 2 * a.extent)

    def _shared(self, a: SharedArray) -> SharedArray:
        dtype = self._dtypes.get(a.name)
        if dtype is None or dtype in HALVES:
            return a if dtype is None else replace(a, dtype="uint16")
        return replace(a, dtype="uint32", extent=2 * a.extent)

    def _rule(self, e: Expr, args: tuple[Expr, ...]) -> Expr:
        dtype = self._dtypes.get(str(e.value)) if e.op == "element" else None
        if dtype is None:
            return rebuilt(e, args)
        name, (at,) = str(e.value), args
        if dtype in HALVES:
            return decode(element(name, "uint16", at), dtype)
        low, high = (element(name, "uint32", at * 2 + k) for k in (0, 1))
        if dtype == "float64":
            return float64_of_words(Words(low, high))
        return cast(low, dtype) | (cast(high, dtype) << 32)

    def _block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(new for s in body for new in self._statement(s))

    def _statement(self, s: Statement) -> list[Statement]:
        names = VALUES[type(s)]
        values = rewritten([getattr(s, name) for name in names], self._rule)
        if isinstance(s, Store) and s.array in self._dtypes:
            return self._stored(s, *values)
        changed: dict[str, Any] = dict(zip(names, values, strict=True))
        changed |= {name: self._block(getattr(s, name)) for name in BLOCKS.get(type(s), ())}
        return [replace(s, **changed)]

    def _stored(self, s: Store, at: Expr, value: Expr) -> list[Statement]:
        dtype = self._dtypes[s.array]
        if dtype in HALVES:
            return [replace(s, index=at, value=encode(value, dtype))]
        self._count += 1
        first = Let(f"first_of_store_{self._count}", at * 2, line=s.line)
        stored = Let(f"value_of_store_{self._count}", value, line=s.line)
        if dtype == "float64":
            bits = words_of_float64(stored.local)
            low, high = bits.low, bits.high
        else:
            low, high = (cast(stored.local >> k, "uint32") for k in (0, 32))
        return [
            first, stored, replace(s, index=first.local, value=low), replace(s, index=first.local + 1, value=high),
        ]  # fmt: skip
