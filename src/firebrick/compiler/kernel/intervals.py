"""``Intervals``: the least and greatest value of the integers of a kernel at each of its statements.

An interval of a name is that of the values it may have there: branches and loops narrow it by their conditions. Loops are
followed until nothing changes; a bound that keeps growing becomes that of the dtype, and is then narrowed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from firebrick.compiler.kernel.ir import (
    Assign,
    Atomic,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    Shuffle,
    Statement,
    While,
)
from firebrick.scalar.expr import COMPARISONS, INTEGERS, Expr, limits
from firebrick.scalar.wide import Bounds, bounds_of

Interval = dict[str, Bounds]
_PATIENCE, _NARROWINGS = 3, 2
"""Rounds of a loop before bounds that grow are given up, and rounds in which they are narrowed again."""
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


class Intervals:
    """The intervals of a kernel.

    Args:
        function: Kernel.
        known: Intervals of its scalars and of the indices of its items; those of others are the limits of their dtypes.

    Attributes:
        whole: The interval of all values that a name is ever given.
    """

    def __init__(self, function: Function, known: Mapping[str, Bounds]) -> None:
        self.whole: Interval = {}
        self._dtypes: dict[str, str] = {}
        self._at: list[Interval] = []
        start: Interval = {}
        for name, dtype in [(s.name, s.dtype) for s in function.scalars] + [
            (n, "int64") for n in (*function.outer, function.item)
        ]:
            if dtype in INTEGERS:
                start[name] = known.get(name, limits(dtype))
                self._dtypes[name] = dtype
                self._meet(name, start[name])
        self._block(function.body, start, True)

    def __iter__(self) -> Iterator[Interval]:
        """The intervals before each statement, in the order of the text."""
        return iter(self._at)

    def _meet(self, name: str, found: Bounds) -> None:
        before = self.whole.get(name, found)
        self.whole[name] = min(before[0], found[0]), max(before[1], found[1])

    def _define(self, now: Interval, name: str, dtype: str, found: Bounds | None, record: bool) -> None:
        if dtype not in INTEGERS:
            now.pop(name, None)
            return
        now[name] = found or limits(dtype)
        self._dtypes[name] = dtype
        if record:
            self._meet(name, now[name])

    def _block(self, body: tuple[Statement, ...], before: Interval, record: bool) -> Interval:
        now = dict(before)
        for s in body:
            if record:
                self._at.append(dict(now))
            now = self._statement(s, now, record)
        return {n: b for n, b in now.items() if n in before}

    def _statement(self, s: Statement, now: Interval, record: bool) -> Interval:
        match s:
            case Let() | Assign():
                self._define(now, s.name, s.value.dtype, _bounds(s.value, now), record)
            case Shuffle():
                self._define(now, s.name, s.value.dtype, _bounds(s.value, now), record)
            case Atomic() if s.name:
                self._define(now, s.name, s.value.dtype, None, record)
            case CompareExchange():
                self._define(now, s.name, s.value.dtype, None, record)
            case If():
                parts = [
                    self._block(b, refined(s.condition, now, holds), record)
                    for b, holds in ((s.then, True), (s.otherwise, False))
                ]
                return _joined(*parts)
            case For():
                start, stop = (_bounds(e, now) or limits("int64") for e in (s.start, s.stop))
                counter = start[0], max(start[0], stop[1] - 1)

                def turn(head: Interval, last: bool, s: For = s, counter: Bounds = counter) -> Interval:
                    inside = dict(head)
                    self._define(inside, s.name, "int64", counter, last)
                    return {n: b for n, b in self._block(s.body, inside, last).items() if n in head}

                return self._loop(now, turn, record)
            case While():

                def again(head: Interval, last: bool, s: While = s) -> Interval:
                    return self._block(s.body, refined(s.condition, head, True), last)

                return refined(s.condition, self._loop(now, again, record), False)
        return now

    def _loop(self, before: Interval, turn: Callable[[Interval, bool], Interval], record: bool) -> Interval:
        """The intervals where a loop decides whether its block is executed once more."""
        head = before
        for _ in range(_PATIENCE):
            after = _joined(head, turn(head, False))
            if after == head:
                break
            head = after
        else:
            while True:
                after = _joined(head, turn(head, False))
                if after == head:
                    break
                head = {n: self._given_up(n, head[n], b) for n, b in after.items()}
            for _ in range(_NARROWINGS):
                head = _joined(before, turn(head, False))
        if record:
            turn(head, True)
        return head

    def _given_up(self, name: str, before: Bounds, after: Bounds) -> Bounds:
        least, greatest = limits(self._dtypes[name])
        return least if after[0] < before[0] else before[0], greatest if after[1] > before[1] else before[1]


def _bounds(e: Expr, now: Interval) -> Bounds | None:
    return bounds_of([e], (), now).get(e)


def _joined(a: Interval, b: Interval) -> Interval:
    return {n: (min(a[n][0], b[n][0]), max(a[n][1], b[n][1])) for n in a if n in b}


def refined(condition: Expr, now: Interval, holds: bool) -> Interval:
    """The intervals where a condition holds, or does not.

    Args:
        condition: bool.
        now: Intervals where it is evaluated.
        holds: Whether it is true.

    Example:
        >>> from firebrick.compiler.kernel.intervals import refined
        >>> from firebrick.scalar.expr import local
        >>> refined(local("i", "int64") < 8, {"i": (0, 100)}, True)
        {'i': (0, 7)}
    """
    if condition.op == "not":
        return refined(condition.args[0], now, not holds)
    if condition.op == ("and" if holds else "or"):
        for part in condition.args:
            now = refined(part, now, holds)
        return now
    if condition.op not in COMPARISONS or condition.args[0].dtype not in INTEGERS:
        return now
    op = condition.op if holds else _OPPOSITE[condition.op]
    a, b = condition.args
    now = dict(now)
    for x, y, sign in ((a, b, op), (b, a, _MIRRORED[op])):
        other = _bounds(y, now)
        if x.op != "local" or str(x.value) not in now or other is None:
            continue
        low, high = now[str(x.value)]
        if sign in ("lt", "le", "eq"):
            high = min(high, other[1] - (sign == "lt"))
        if sign in ("gt", "ge", "eq"):
            low = max(low, other[0] + (sign == "gt"))
        if low <= high:  # else nothing is executed here
            now[str(x.value)] = low, high
    return now
