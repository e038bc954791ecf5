"""Arrays that a kernel reads and stores in *quads*: four neighbouring elements at once, which are a vector or whole words.

Either an item computes four elements in place of one (``in_quads``), or a round of a loop over a row takes four of its elements
(``LoopQuads``). Each element is computed by the same statements in the same order, so no bit changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from firebrick.compiler.kernel.ir import (
    Assign,
    Atomic,
    CompareExchange,
    For,
    Function,
    Let,
    Statement,
    Store,
    expressions,
    statements,
)
from firebrick.compiler.targets.wgsl.operations import TYPES
from firebrick.compiler.targets.wgsl.packed_elements import FOUR, NARROW
from firebrick.scalar.expr import Expr, walk
from firebrick.scalar.rewrite import replaced

LONGEST = 320
"""Most operations of a loop whose rounds are taken by four: drivers need long for long shaders."""


def in_quads(function: Function) -> frozenset[str]:
    """The arrays of a kernel whose elements each item reads or stores at its own index alone; none if the kernel stores
    elsewhere, reads what it stores, or does anything but to compute values and to store them."""
    body = [s for s in function.body if isinstance(s, Let | Store)]
    if function.group or function.outer or len(body) < len(function.body):
        return frozenset()
    own, other, stored, read = set[str](), set[str](), set[str](), set[str]()
    for s in body:
        if isinstance(s, Store):
            (own if _is_item(s.index, function) else other).add(s.array)
            stored.add(s.array)
        for e in walk([s.value, s.index] if isinstance(s, Store) else [s.value]):
            if e.op == "element":
                (own if _is_item(e.args[0], function) else other).add(str(e.value))
                read.add(str(e.value))
    found = {a.name for a in function.arrays if a.name in own - other and _fits(a.dtype)}
    return frozenset(found) if stored <= found - read else frozenset()


def _is_item(e: Expr, function: Function) -> bool:
    return e.op == "local" and e.value == function.item


def _fits(dtype: str) -> bool:
    return dtype in NARROW or dtype == "float16" or (dtype in TYPES and dtype != "float64")


class LoopQuads:
    """The loops of a kernel whose rounds are taken by four.

    Such a loop counts from 0 to a multiple of four, and has no loops, branches or checks inside. All accesses to an array of
    quads are in such loops, at the counter plus a multiple of four; no array is both read and stored.

    Args:
        function: Legalized kernel.
        fours: Its scalars that are multiples of four.

    Attributes:
        arrays: The arrays that are accessed in quads.
        accesses: Each loop → its accesses to these: the array, the index (see ``index``), and whether it is a store.
    """

    def __init__(self, function: Function, fours: Collection[str]) -> None:
        self._fours = fours
        every = list(statements(function.body))
        changed = {s.name for s in every if isinstance(s, Assign)}
        self._lets = {s.name: s.value for s in every if isinstance(s, Let) and s.name not in changed}
        self._steady = {s.name for s in function.scalars} | {function.item, *function.outer}
        self._steady |= {s.name for s in every if isinstance(s, For)}
        self._known: dict[Expr, Expr] = {}
        loops = [s for s in every if isinstance(s, For) and self._simple(s)] if not function.group else []
        found = {s: self._accesses(s.body) for s in loops}
        whole = self._accesses(every)
        names = {a.name for a in function.arrays if _fits(a.dtype)}
        names -= {n for s in loops for n, at, _ in found[s] if not self._steps(at, s.name)}
        names -= {n for n, _, writes in whole if writes} & {n for n, _, writes in whole if not writes}
        inside = Counter(n for s in loops for n, _, _ in found[s])
        self.arrays = frozenset(n for n, count in Counter(n for n, _, _ in whole).items() if n in names and inside[n] == count)
        accesses = {s: [x for x in dict.fromkeys(found[s]) if x[0] in self.arrays] for s in loops}
        self.accesses = {s: x for s, x in accesses.items() if x}

    def _accesses(self, body: Sequence[Statement]) -> list[tuple[str, Expr, bool]]:
        """The reads and stores of elements by statements, without those of their blocks: array, index, whether it stores."""
        found = []
        for s in body:
            reads = [e for e in walk(expressions(s)) if e.op == "element"]
            found += [(str(e.value), self.index(e.args[0]), False) for e in reads]
            if isinstance(s, Store | Atomic | CompareExchange):
                found.append((s.array, self.index(s.index), True))
        return found

    def index(self, at: Expr) -> Expr:
        """An index by scalars, counters and the item alone: locals are replaced by their values."""

        def value(e: Expr) -> Expr | None:
            return self.index(self._lets[str(e.value)]) if e.op == "local" and e.value in self._lets else None

        if at not in self._known:
            (self._known[at],) = replaced([at], value)
        return self._known[at]

    def _simple(self, s: For) -> bool:
        start, stop = s.start, self.index(s.stop)
        return (
            s.step == 1 and start.op == "const" and start.value == 0 and self._is_four(stop)
            and all(isinstance(x, Let | Assign | Store) for x in s.body)
            and len(walk([e for x in s.body for e in expressions(x)])) <= LONGEST
        )  # fmt: skip

    def _is_four(self, e: Expr) -> bool:
        """Whether a value is known to be a multiple of four."""
        match e.op:
            case "const":
                return isinstance(e.value, int) and e.value % FOUR == 0
            case "local":
                return e.value in self._fours
            case "mul":
                return any(map(self._is_four, e.args))
            case "add" | "sub" | "min" | "max":
                return all(map(self._is_four, e.args))
        return False

    def _steps(self, at: Expr, counter: str) -> bool:
        """Whether an index is a multiple of four plus the counter, and nothing in it changes in the loop."""
        if any(e.op == "element" or (e.op == "local" and e.value not in self._steady) for e in walk([at])):
            return False
        terms, counters = [at], 0
        while terms:
            e = terms.pop()
            if e.op == "add":
                terms += e.args
            elif e.op == "local" and e.value == counter:
                counters += 1
            elif not self._is_four(e):
                return False
        return counters == 1
