"""``work_of``: an estimate of the work of a launch, counted from the statements of its kernel.

Operations on addresses and on bounds of loops are not counted. A loop whose bounds depend on elements is taken to have
``ROUNDS`` iterations; other bounds are those of the item in the middle of the grid. Of two branches the one with more work
counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from firebrick.compiler.kernel.ir import (
    Atomic,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    Statement,
    Store,
    While,
    assigned,
    expressions,
)
from firebrick.scalar.expr import Expr, walk

ROUNDS = 32
"""Iterations of a loop whose number is not known."""
_FREE = frozenset({"const", "local", "element", "cast", "bitcast", "kept", "where_flushed"})
"""Operations that are not counted as arithmetic."""


@dataclass(slots=True)
class Work:
    """The work of a launch.

    Attributes:
        flops: Operations on numbers.
        reads: For each array the number of reads.
        writes: For each array the number of stores.
    """

    flops: float = 0.0
    reads: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    writes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Work, times: float = 1.0) -> None:
        """Add the work of statements that are executed so many times."""
        self.flops += other.flops * times
        for own, more in ((self.reads, other.reads), (self.writes, other.writes)):
            for name, count in more.items():
                own[name] += count * times

    @property
    def size(self) -> float:
        """Operations and accesses together."""
        return self.flops + sum(self.reads.values()) + sum(self.writes.values())


def work_of(function: Function, scalars: Mapping[str, int], grid: Sequence[int]) -> Work:
    """The work of a launch.

    Args:
        function: Kernel.
        scalars: The numbers of the launch that are known.
        grid: Sizes of its grid, the item's axis last.

    Example:
        >>> from firebrick.compiler.kernel.ir import ArrayParameter, Function, Store
        >>> from firebrick.compiler.kernel.work import work_of
        >>> from firebrick.scalar.expr import local
        >>> x, i = ArrayParameter("x", "float32", "read_write"), local("i", "int64")
        >>> work_of(Function("square", (x,), (), "i", (Store("x", i, x[i] * x[i] + 1.0),)), {}, (8,)).flops
        16.0
    """
    names = dict(scalars) | {n: max(0, size - 1) // 2 for n, size in zip((*function.outer, function.item), grid, strict=True)}
    total = Work()
    total.add(_block(function.body, names, assigned(function.body)), float(prod(grid)))
    return total


def _block(body: Sequence[Statement], names: dict[str, int], changed: set[str]) -> Work:
    """The work of a block; ``names`` are the integers that are known in it."""
    names, found = dict(names), Work()
    for s in body:
        _count(s, found)
        if isinstance(s, Let) and s.name not in changed and (number := _number(s.value, names)) is not None:
            names[s.name] = number
        if isinstance(s, If):
            found.add(max((_block(b, names, changed) for b in (s.then, s.otherwise)), key=lambda w: w.size))
        elif isinstance(s, While):
            found.add(_block(s.body, names, changed), ROUNDS)
        elif isinstance(s, For):
            start, stop = _number(s.start, names), _number(s.stop, names)
            if start is None or stop is None:
                found.add(_block(s.body, names, changed), ROUNDS)
            else:
                rounds = max(0, -(-(stop - start) // s.step))
                found.add(_block(s.body, names | {s.name: start + max(0, rounds - 1) // 2 * s.step}, changed), rounds)
    return found


def _count(s: Statement, found: Work) -> None:
    """Add a statement, without its blocks."""
    bounds = isinstance(s, For)
    values = [e for e in expressions(s) if not (bounds or (isinstance(s, Store | Atomic | CompareExchange) and e is s.index))]
    found.flops += sum(e.op not in _FREE for e in _without_addresses(values))
    for e in walk(expressions(s)):
        if e.op == "element":
            found.reads[str(e.value)] += 1
    if isinstance(s, Store | Atomic | CompareExchange):
        found.writes[s.array] += 1
        found.flops += not isinstance(s, Store)
    if isinstance(s, Atomic | CompareExchange):
        found.reads[s.array] += 1


def _without_addresses(roots: Sequence[Expr]) -> set[Expr]:
    """The nodes of expressions that are not only part of an element's address."""
    found: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e not in found:
            found.add(e)
            stack += () if e.op == "element" else e.args[2:] if e.op == "where_flushed" else e.args
    return found


def _number(root: Expr, names: Mapping[str, int]) -> int | None:
    """An integer expression as a number; None if it depends on what is not known."""
    found: dict[Expr, int | None] = {}
    for e in walk([root]):
        args = [found[a] for a in e.args]
        if e.op == "const":
            found[e] = int(e.value) if isinstance(e.value, int) else None
        elif e.op == "local":
            found[e] = names.get(str(e.value))
        elif e.op in _KNOWN and all(a is not None for a in args):
            found[e] = _KNOWN[e.op](*args)
        else:
            found[e] = None
    return found[root]


_KNOWN: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
    "div": lambda a, b: a // b if b else 0, "rem": lambda a, b: a % b if b else 0, "min": min, "max": max, "cast": lambda a: a,
    "shl": lambda a, b: a << min(max(b, 0), 63), "shr": lambda a, b: a >> min(max(b, 0), 63),
}  # fmt: skip
"""Operations on integers that are known, which need not be exact: they are for estimates."""
