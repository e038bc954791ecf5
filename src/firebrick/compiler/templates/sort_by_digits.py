"""``sort_by_digits``: a ``Sort`` by the templates of ``radix_sort``: its work grows with the length of lines, not its square.

All lines are sorted at once: the places of all elements are sorted by the elements' keys, and then, as the sort is stable, by
their lines. A key is an unsigned integer in the order of the elements, equal for equal elements; NaN has the largest. Keys of
64 bits are sorted by their lower half first. There is one right result, so its bits are those of the naive form.
"""

from __future__ import annotations

from dataclasses import dataclass

from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY, ZERO, Array, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.templates.epilogues import add
from firebrick.compiler.templates.launched import launched
from firebrick.compiler.templates.radix_sort import BITS, DIGITS, digit_counts, digit_scatter
from firebrick.compiler.templates.scan import scan
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, int32, uint32
from firebrick.core.views import row_major
from firebrick.scalar.capabilities import Capabilities
from firebrick.scalar.expr import Expr, bitcast, cast, const, eq, ne, select
from firebrick.scalar.storage import computed

SIZES = ((256, 8), (128, 8), (64, 4))
"""Items of a group and elements of an item, the most first: on a target with few groups of few items, the last."""
LEAST, PAIRS = 1024, 48
"""Minimum length of a line, and minimum length for each digit, for which digits pay: on lavapipe one digit of one element takes
as long as 40 comparisons of the naive form."""
_FULL = 0xFFFFFFFF
_ROW = 64
"""Items of the group that scans the counts of digits."""


@dataclass(frozen=True, slots=True)
class _Key:
    """Which bits of the keys of a dtype decide, in passes of 32 bits from the lowest to the highest.

    Attributes:
        low: The first of them.
        high: Behind the last of them.
    """

    low: int
    high: int


_KEYS = {
    "bool": _Key(0, 1), "int8": _Key(0, 8), "uint8": _Key(0, 8), "int16": _Key(0, 16), "uint16": _Key(0, 16),
    "int32": _Key(0, 32), "uint32": _Key(0, 32), "int64": _Key(0, 64), "uint64": _Key(0, 64), "float32": _Key(0, 32),
    "bfloat16": _Key(16, 32), "float16": _Key(12, 32),
}  # fmt: skip
"""Halves have the keys of float32, whose lower bits depend on the sign alone."""


def passes_of(spec: Sort) -> int | None:
    """The number of digits that are sorted by; None if there are no keys for the dtype."""
    key = _KEYS.get(spec.dtype)
    lines = spec.outer * spec.inner
    return None if key is None else -(-(key.high - key.low) // BITS) + _digits(lines)


def _digits(count: int) -> int:
    """The number of digits of numbers below ``count``."""
    return -(-(count - 1).bit_length() // BITS)


def pays(spec: Sort) -> bool:
    """Whether lines are so long that their digits are sorted by."""
    passes = passes_of(spec)
    return passes is not None and spec.size >= max(LEAST, PAIRS * passes)


def sort_by_digits(spec: Sort, capabilities: Capabilities, group_size: int, each: int) -> Naive | None:
    """The launches of a sort; None if the templates do not compute it, or need more than the target has.

    Args:
        spec: The sort.
        capabilities: Of the target.
        group_size: Items of a group, a multiple of 32.
        each: Elements of an item.
    """
    if spec.dtype not in _KEYS or not spec.outer * spec.size * spec.inner * spec.kept:
        return None
    return _SortByDigits(spec, capabilities, group_size, each).form()


class _SortByDigits:
    def __init__(self, spec: Sort, capabilities: Capabilities, group_size: int, each: int) -> None:
        self.spec, self.capabilities, self.group_size, self.each = spec, capabilities, group_size, each
        self.lines = spec.outer * spec.inner
        self.count = self.lines * spec.size
        self.groups = -(-self.count // (group_size * each))
        self.steps: list[NaiveLaunch | None] = []
        self.keys, self.places = ([Buffer(TEMPORARY, 2 * k + j) for k in (0, 1)] for j in (0, 1))
        self.counts, self.starts, self.zero = (Buffer(TEMPORARY, 4 + k) for k in range(3))
        self.now = 0  # which of the two buffers has the keys and places

    def form(self) -> Naive | None:
        """The launches."""
        self.steps.append(self._zero())
        key = _KEYS[self.spec.dtype]
        for word in range(key.low // 32, -(-key.high // 32)):
            self.steps.append(self._element_keys(word, first=len(self.steps) == 1))
            self._passes(max(0, key.low - 32 * word), min(32, key.high - 32 * word))
        if self.lines > 1:
            self.steps.append(self._line_keys())
            self._passes(0, BITS * _digits(self.lines))
        self.steps.append(self._moved())
        if None in self.steps:
            return None
        counts = Array("int32", DIGITS * self.groups)
        elements = [Array("uint32", self.count), Array("int32", self.count)]
        temporaries = (*elements, *elements, counts, counts, Array("int32", 1))
        return Naive(tuple(s for s in self.steps if s is not None), temporaries)

    def _passes(self, low: int, high: int) -> None:
        """Sort by the digits from bit ``low`` on."""
        shared = {"group_size": self.group_size, "each": self.each}
        counts = (DIGITS, self.groups)

        def line(buffer: Buffer, of: DType) -> tuple[Buffer, Aval]:
            return buffer, Aval((self.count,), of)

        for shift in range(low, high, BITS):
            keys, places = self.keys[self.now], self.places[self.now]
            self.now = 1 - self.now
            counted = {"keys": line(keys, uint32), "counts": (self.counts, Aval(counts, int32))}
            self.steps.append(launched(digit_counts(), counted, self.capabilities, shift=shift, **shared))
            row = Aval((1, DIGITS * self.groups, 1), int32)
            scanned = {"x": (self.counts, row), "start": (self.zero, Aval((1,), int32)), "out": (self.starts, row)}
            constants = {"group_size": _ROW, "vector": 1, "exclusive": True, "of": int32}
            self.steps.append(launched(scan(add, 0), scanned, self.capabilities, **constants))
            moved = {
                "keys": line(keys, uint32), "values": line(places, int32), "starts": (self.starts, Aval(counts, int32)),
                "keys_out": line(self.keys[self.now], uint32), "values_out": line(self.places[self.now], int32),
            }  # fmt: skip
            self.steps.append(launched(digit_scatter(), moved, self.capabilities, shift=shift, **shared))

    def _zero(self) -> NaiveLaunch:
        """What the scan of counts begins with."""
        b = Builder("zero", (1,))
        b.store(self.zero, "int32", ZERO, const(0, "int32"))
        return b.step()

    def _element_keys(self, word: int, first: bool) -> NaiveLaunch:
        """The keys of the elements at their places, which are those of the operand's lines at first."""
        spec, b = self.spec, Builder("sort_keys", (self.count,))
        (item,) = b.positions
        place = item if first else b.let(cast(b.read(self.places[self.now], "int32", item), "int64"), "place")
        key = _key(b, b.let(b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, self._address(b, place)), "x"), spec.dtype, word)
        if spec.descending:
            bits = min(32, _KEYS[spec.dtype].high - 32 * word)
            key = key ^ const((1 << bits) - 1, "uint32")
        b.store(self.keys[self.now], "uint32", item, key)
        if first:
            b.store(self.places[self.now], "int32", item, cast(item, "int32"))
        return b.step()

    def _line_keys(self) -> NaiveLaunch:
        """The lines that places are of."""
        b = Builder("sort_lines", (self.count,))
        (item,) = b.positions
        line, _ = self._line(b, b.let(cast(b.read(self.places[self.now], "int32", item), "int64"), "place"))
        b.store(self.keys[self.now], "uint32", item, cast(line, "uint32"))
        return b.step()

    def _line(self, b: Builder, place: Expr) -> tuple[Expr, Expr]:
        """The line of a place, and the index in it."""
        line, own = b.digits(place, b.numbers([self.lines, self.spec.size]))
        return line, own

    def _address(self, b: Builder, place: Expr) -> Expr:
        """The address in the operand of the element at a place."""
        spec = self.spec
        outer, inner, own = b.digits(place, b.numbers([spec.outer, spec.inner, spec.size]))
        return b.address(b.place(row_major((spec.outer, spec.size, spec.inner))), [outer, own, inner])

    def _moved(self) -> NaiveLaunch:
        """The results: the first elements of each line."""
        spec = self.spec
        b = Builder("sort_moved", (spec.outer, spec.kept, spec.inner))
        outer, own, inner = b.positions
        size, lines = b.numbers([spec.size, spec.inner])
        line = b.let(outer * lines + inner, "line")
        found = b.let(cast(b.read(self.places[self.now], "int32", line * size + own), "int64"), "place")
        value = b.let(b.read(Buffer(INPUT, spec.sources[0]), spec.dtype, self._address(b, found)), "x")
        at = b.address(b.place(row_major((spec.outer, spec.kept, spec.inner))), [outer, own, inner])
        b.store(Buffer(RESULT, 0), spec.dtype, at, value)
        if spec.index:
            b.store(Buffer(RESULT, 1), spec.index, at, cast(found - line * size, computed(spec.index)))
        return b.step()


def _key(b: Builder, x: Expr, dtype: str, word: int) -> Expr:
    """32 bits of the key of an element, uint32; ``word`` is 1 for the upper bits of 64."""
    top = const(1 << 31, "uint32")
    if x.dtype == "float32":
        given = b.let(bitcast(x, "uint32"), "given")
        # one zero for both signs, by its bits: a comparison may take denormal numbers for zeros
        bits = b.let(select(eq(given & 0x7FFFFFFF, 0), const(0, "uint32"), given), "bits")
        key = select(ne(bits & top, 0), ~bits, bits | top)
        return select((bits & 0x7FFFFFFF) > 0x7F800000, const(_FULL, "uint32"), key)
    if x.dtype == "bool":
        return select(x, const(1, "uint32"), const(0, "uint32"))
    if dtype in ("int64", "uint64"):
        half = x if word == 0 else x >> 32
        key = cast(half & _FULL, "uint32")
        return key ^ top if word and dtype == "int64" else key
    if dtype == "int32":
        return bitcast(x, "uint32") ^ top
    if dtype in ("int8", "int16"):
        return cast(cast(x, "int32") + (128 if dtype == "int8" else 1 << 15), "uint32")
    return cast(x, "uint32")
