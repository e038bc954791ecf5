"""The inner part of a row of items, where comparisons of an item's index are decided: code without tests for a grid's border.

A stencil asks at each item whether it is at the border. For whole rows of vectors this is known: between two bounds, which are
found once for each row, all comparisons of the index with numbers that are the same along the row come out one way. Code for
that part has their results as constants. It also writes large results past the caches, as other kernels do (``native.STREAM``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firebrick.compiler.kernel.ir import (
    Atomic,
    CompareExchange,
    For,
    Function,
    Let,
    Store,
    While,
    assigned,
    expressions,
    statements,
)
from firebrick.compiler.targets.llvm.lane_forms import LaneForm
from firebrick.compiler.targets.llvm.masked import TWICE, Masked
from firebrick.compiler.targets.llvm.memory import address, item_bytes, store_bytes
from firebrick.compiler.targets.llvm.native import STREAM
from firebrick.scalar.expr import Expr, walk

_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_PLAIN = frozenset({"local", "const", "add", "sub", "neg", "mul", "min", "max"})
_FAR = 1 << 40
"""Constants that an index and what it is compared with differ by are smaller than this, so that no sum wraps around."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A comparison of the item's index, decided where the index is on one side of a bound.

    Attributes:
        comparison: It.
        truth: Its value there.
        bound: A number that is the same along a row.
        shift: The index is at least bound + shift there, or below it.
        low: Whether it is at least.
    """

    comparison: Expr
    truth: bool
    bound: Expr
    shift: int
    low: bool


def decisions(function: Function) -> tuple[Decision, ...]:
    """The comparisons of a kernel that are decided along a row, but for its ends."""
    changing = assigned(function.body)
    along = {*function.outer, *(s.name for s in function.scalars)} - changing
    names = [s.name for s in statements(function.body) if isinstance(s, Let)]
    near = {} if function.item in changing else {function.item: 0}
    found: dict[Expr, Decision] = {}
    for s in statements(function.body):
        for e in walk(expressions(s)):
            if e.op in _FLIPPED and e.args[0].dtype == "int64" and e not in found:
                decision = _decided(e, near, along)
                if decision is not None:
                    found[e] = decision
        if isinstance(s, Let) and names.count(s.name) == 1 and s.name not in changing:
            distance = _distance(s.value, near)
            if distance is not None:
                near[s.name] = distance
    return tuple(found.values())


def _distance(e: Expr, near: dict[str, int]) -> int | None:
    """The constant that an integer and the item's index differ by; None if there is none."""
    found: int | None = None
    if e.op == "local":
        found = near.get(str(e.value))
    elif e.op in ("add", "sub") and e.args[1].op == "const" and e.dtype == "int64":
        before, number = _distance(e.args[0], near), int(e.args[1].value or 0)
        found = None if before is None else before + (number if e.op == "add" else -number)
    return found if found is not None and abs(found) < _FAR else None


def _decided(e: Expr, near: dict[str, int], along: set[str]) -> Decision | None:
    a, b, op = *e.args, e.op
    distance = _distance(a, near)
    if distance is None:
        a, b, op = b, a, _FLIPPED[op]
        distance = _distance(a, near)
    if distance is None or any(x.op not in _PLAIN or (x.op == "local" and x.value not in along) for x in walk([b])):
        return None
    # most indices are larger than a constant, and smaller than a size
    low = b.op == "const"
    includes = op in ("lt", "ge") if low else op in ("lt", "ge", "eq", "ne")
    shift = (0 if includes else 1) - distance
    truth = op == "ne" or (op in ("gt", "ge") if low else op in ("lt", "le"))
    return Decision(e, truth, b, shift, low)


def streamed(function: Function, masked: Masked) -> dict[str, Expr]:
    """The arrays that are written at one index for each item and not read, with that index."""
    changing = assigned(function.body)
    known = {function.item, *function.outer, *(s.name for s in function.scalars)} - changing
    indices: dict[str, set[Expr]] = {}
    for s in statements(function.body):
        if isinstance(s, Store):
            indices.setdefault(s.array, set()).add(s.index)
        elif isinstance(s, Atomic | CompareExchange):
            indices.setdefault(s.array, set()).update((s.index, s.value))
    written = {a.name: a.dtype for a in function.arrays if a.access == "write"}
    read = {str(e.value) for s in statements(function.body) for e in walk(expressions(s)) if e.op == "element"}
    return {
        name: next(iter(found))
        for name, found in indices.items()
        if name in written and name not in read and len(found) == 1
        and store_bytes(written[name], masked.lanes.lanes) >= 16
        and all(x.op in _PLAIN and (x.op != "local" or x.value in known) for e in found for x in walk([e]))
    }  # fmt: skip


class InnerItems:
    """Writes the inner part of rows.

    Args:
        masked: Writes statements.
        function: Kernel.
        sizes: Of the grid (i64).

    Attributes:
        any: Whether there is code of its own for that part.
    """

    def __init__(self, masked: Masked, function: Function, sizes: Sequence[str]) -> None:
        self._masked, self._function, self._sizes = masked, function, sizes
        self._decisions: tuple[Decision, ...] = ()
        self._streamed: dict[str, Expr] = {}
        if masked.lanes.lanes > 1 and _short(function):
            self._decisions = decisions(function)
            if masked.code.target.arch == "x86_64":
                self._streamed = streamed(function, masked)
        self.any = bool(self._decisions or self._streamed)
        if self._streamed:
            self._large = self._is_large()

    def _is_large(self) -> str:
        """Whether a result of the size of the grid is too large for the caches."""
        code, count = self._masked.code, self._sizes[0]
        for n in self._sizes[1:]:
            count = code.put(f"mul i64 {count}, {n}")
        item = max(item_bytes(a.dtype) for a in self._function.arrays if a.name in self._streamed)
        return code.put(f"icmp sge i64 {count}, {STREAM // item}")

    def bounds(self, first: str, last: str) -> tuple[str, str]:
        """The vectors of a row in which all comparisons are decided, of those from ``first`` up to ``last``."""
        code, lanes, size = self._masked.code, self._masked.lanes, self._sizes[-1]
        low, high = "0", size
        for d in self._decisions:
            bound = lanes.evaluated([d.bound], "")[0].base
            at = code.call("i64", "llvm.sadd.sat.i64", ("i64", bound), ("i64", str(d.shift)))
            if d.low:
                low = code.call("i64", "llvm.smax.i64", ("i64", low), ("i64", at))
            else:
                high = code.call("i64", "llvm.smin.i64", ("i64", high), ("i64", at))
        low = code.call("i64", "llvm.smin.i64", ("i64", low), ("i64", size))
        start = code.put(f"sdiv i64 {code.put(f'add i64 {low}, {lanes.lanes - 1}')}, {lanes.lanes}")
        stop = code.put(f"ashr i64 {high}, {lanes.lanes.bit_length() - 1}")
        start = code.call("i64", "llvm.smax.i64", ("i64", start), ("i64", first))
        start = code.call("i64", "llvm.smin.i64", ("i64", start), ("i64", last))
        stop = code.call("i64", "llvm.smin.i64", ("i64", stop), ("i64", last))
        return start, code.call("i64", "llvm.smax.i64", ("i64", stop), ("i64", start))

    def aligned(self, start: str) -> str:
        """Whether the results of a row may be written past the caches, from a vector on (i1); empty if they never are."""
        masked, code = self._masked, self._masked.code
        if not self._streamed:
            return ""
        lanes = masked.lanes
        outer = masked.values
        masked.values = outer | {self._function.item: LaneForm(code.put(f"mul i64 {start}, {lanes.lanes}"))}
        found = self._large
        for name, index in self._streamed.items():
            strip = lanes.arrays[name]
            there = address(code, strip, lanes.evaluated([index], "")[0].base)
            bits = code.put(f"and i64 {code.put(f'ptrtoint ptr {there} to i64')}, {store_bytes(strip.dtype, lanes.lanes) - 1}")
            found = code.put(f"and i1 {found}, {code.put(f'icmp eq i64 {bits}, 0')}")
        masked.values = outer
        return found

    def enter(self, stream: bool) -> None:
        """What follows is code of the inner part, until ``leave``."""
        lanes = self._masked.lanes
        lanes.decided = {d.comparison: d.truth for d in self._decisions}
        lanes.streamed = frozenset(self._streamed) if stream else frozenset()

    def leave(self) -> None:
        """What follows is code of other items."""
        self._masked.lanes.decided, self._masked.lanes.streamed = {}, frozenset()

    def end(self) -> None:
        """Make what was written past the caches visible to other threads."""
        if self._streamed:
            self._masked.code.call("void", "llvm.x86.sse.sfence")


def _short(function: Function) -> bool:
    """Whether a kernel is worth code of its own for its inner part."""
    body = list(statements(function.body))
    return not any(isinstance(s, For | While) for s in body) and len(walk([e for s in body for e in expressions(s)])) <= TWICE
