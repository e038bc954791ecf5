"""``live_after``: which names' values a kernel may still read after each statement of a block."""

from __future__ import annotations

from firebrick.compiler.kernel.ir import (
    Assign,
    Atomic,
    CompareExchange,
    For,
    If,
    Let,
    Shuffle,
    Statement,
    While,
    expressions,
)
from firebrick.scalar.expr import walk

Names = frozenset[str]


def live_after(body: tuple[Statement, ...], after: Names) -> list[Names]:
    """For each statement of a block the names that may be read once it is done.

    Args:
        body: Block.
        after: Names that may be read after the block. For the block of a loop: those of ``live_at_head``.
    """
    found: list[Names] = []
    for s in reversed(body):
        found.append(after)
        after = live_before(s, after)
    return found[::-1]


def live_before(s: Statement, after: Names) -> Names:
    """The names that may be read when a statement begins, if those of ``after`` may be read once it is done."""
    match s:
        case Let() | Assign():
            return (after - {s.name}) | _reads(s)
        case Atomic() | CompareExchange() | Shuffle():
            return (after - {s.name}) | _reads(s)
        case If():
            return _reads(s) | block_before(s.then, after) | block_before(s.otherwise, after)
        case While() | For():
            return _reads(s) | live_at_head(s, after)
        case _:
            return after | _reads(s)


def block_before(body: tuple[Statement, ...], after: Names) -> Names:
    """``live_before`` of a block."""
    for s in reversed(body):
        after = live_before(s, after)
    return after


def live_at_head(s: While | For, after: Names) -> Names:
    """The names that may be read where a loop decides whether its block is executed once more, and so after its block."""
    outside = after | _reads(s) if isinstance(s, While) else after
    counter = {s.name} if isinstance(s, For) else set()
    # reads and assignments of a block do not depend on what follows it, so one pass is enough
    return outside | (block_before(s.body, outside) - counter)


def _reads(s: Statement) -> Names:
    return frozenset(str(e.value) for e in walk(expressions(s)) if e.op == "local")
