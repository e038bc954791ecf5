"""``shorter_loops``: a kernel whose items execute at most so many iterations of loops, for drivers that end loops after more.

Such a driver counts the iterations of all loops of an item together, so loops within loops would not help: an innermost loop
executes its block several times in each iteration instead. ``While`` loops are not counted: how long they are depends on
elements, and a target that ends them reports a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from firebrick.compiler.kernel.intervals import Interval, Intervals
from firebrick.compiler.kernel.ir import BLOCKS, For, Function, If, Let, Statement, While, statements
from firebrick.core.errors import UnsupportedError
from firebrick.scalar.expr import const, local
from firebrick.scalar.wide import Bounds, bounds_of

MOST = 64
"""Most copies of a block in one iteration."""


def shorter_loops(function: Function, limit: int, known: Mapping[str, Bounds]) -> Function:
    """A kernel with the same results whose ``For`` loops have at most so many iterations in each item.

    Args:
        function: Kernel.
        limit: Iterations of all loops of an item together.
        known: Intervals of its scalars and indices.

    Raises:
        UnsupportedError: There are more, however often a block is repeated in an iteration.
    """
    times = 1
    made, found = function, iterations(function, known)
    first = found
    while found > limit and times < MOST:
        times *= 2
        made = replace(function, body=_Copies(function, times).block(function.body))
        found = iterations(made, known)
    if found > limit:
        raise UnsupportedError(
            f"kernel {function.name}: this target executes at most {limit:,} iterations of the loops of an item",
            f"up to {first:,}", "let more items do less each", kernel=function.name,
        )  # fmt: skip
    return made


def iterations(function: Function, known: Mapping[str, Bounds]) -> int:
    """The iterations of all ``For`` loops of an item together, at most.

    Args:
        function: Kernel.
        known: Intervals of its scalars and indices.
    """
    return _block(function.body, iter(Intervals(function, known)))


def _block(body: Sequence[Statement], at: Iterator[Interval]) -> int:
    total = 0
    for s in body:
        now = next(at)
        inside = [_block(getattr(s, name), at) for name in BLOCKS.get(type(s), ())]
        if isinstance(s, For):
            start, stop = (bounds_of([e], (), now)[e] for e in (s.start, s.stop))
            length = min([stop[1] - start[0], *_section(s)])
            total += max(0, -(-length // s.step)) * (1 + inside[0])
        elif isinstance(s, If):
            total += max(inside)
        else:
            total += sum(inside)
    return total


def _section(s: For) -> list[int]:
    """The length of a loop over a section, from ``start`` to ``min(start + length, …)``; intervals do not show it."""
    if s.stop.op != "min":
        return []
    sums = [e for e in s.stop.args if e.op == "add" and e.args[0] == s.start and e.args[1].op == "const"]
    return [int(e.args[1].value or 0) for e in sums]


class _Copies:
    """Repeats the blocks of innermost loops, several times in each iteration."""

    def __init__(self, function: Function, times: int) -> None:
        self._times = times
        self._taken = {str(getattr(s, "name", "")) for s in statements(function.body)}
        self._taken |= {a.name for a in function.memory} | {x.name for x in function.scalars}
        self._taken |= {function.item, *function.outer}

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def block(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """The statements of a block."""
        out: list[Statement] = []
        for s in body:
            if isinstance(s, For) and not any(isinstance(t, For | While) for t in statements(s.body)):
                out += self._loop(s)
            elif isinstance(s, For | While):
                out.append(replace(s, body=self.block(s.body)))
            elif isinstance(s, If):
                out.append(replace(s, then=self.block(s.then), otherwise=self.block(s.otherwise)))
            else:
                out.append(s)
        return tuple(out)

    def _loop(self, s: For) -> list[Statement]:
        stop = Let(self._fresh(f"{s.name}_stop"), s.stop, line=s.line)
        first = self._fresh(f"{s.name}_first")
        copies = []
        for k in range(self._times):
            at = local(first, "int64") + const(k * s.step, "int64")
            copies.append(If(at < stop.local, (Let(s.name, at, line=s.line), *s.body), line=s.line))
        return [stop, For(first, s.start, stop.local, s.step * self._times, tuple(copies), line=s.line)]
