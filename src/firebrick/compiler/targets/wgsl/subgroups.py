"""Shuffles by subgroup operations, in kernels that are right for subgroups of any size.

A driver chooses the size of subgroups for each pipeline, and how the items of a workgroup become subgroups. So a kernel moves
the number of each item first, by the shuffles that it is going to use: only if all items of a workgroup receive the numbers
that they should do they exchange values by subgroup operations, else all of them do by workgroup memory.

Drivers need not bring the items of a subgroup together again behind a branch that some of them take. So only kernels without
such branches in front of a shuffle use these operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firebrick.compiler.kernel.ir import (
    Atomic,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Shuffle,
    Statement,
    While,
    statements,
)
from firebrick.compiler.kernel.uniform import varies, varying
from firebrick.scalar.expr import walk

WIDTHS = (32, 16, 8, 4)
"""Widths of shuffles that are measured, the largest first."""
PARAMETERS = ", @builtin(subgroup_size) subgroup: u32, @builtin(subgroup_invocation_id) within: u32"
"""Further parameters of a shader."""
GLOBALS = ("var<workgroup> apart: atomic<u32>;", "var<workgroup> agreed: u32;")
"""Variables of a shader. They are stored before they are read: lavapipe does not set them to zero."""
TOGETHER = 4
"""Most values that one shuffle moves."""


def width_of(function: Function, most: int) -> int:
    """The largest width of a kernel's shuffles that are subgroup operations; 1 if it has none.

    Args:
        function: The kernel.
        most: Items of a subgroup among which shuffles were measured to be right.
    """
    width = max((s.width for s in statements(function.body) if isinstance(s, Shuffle) and moves(s, most)), default=1)
    return width if width > 1 and _together(function) else 1


def moves(s: Shuffle, most: int) -> bool:
    """Whether subgroup operations do a shuffle, if they are right among ``most`` items; of float64 they were not measured."""
    return 1 < s.width <= most and s.value.dtype != "float64"


def _together(function: Function) -> bool:
    """Whether all items of a group execute the same code up to the last statement that has a shuffle."""
    body = function.body
    while not any(isinstance(s, Shuffle) for s in statements(body[-1:])):
        body = body[:-1]
    names = varying(function)

    def apart(s: Statement) -> bool:
        match s:
            case For():
                return varies(s.start, names, function) or varies(s.stop, names, function)
            case If() | While():
                return varies(s.condition, names, function)
        return isinstance(s, Check | CompareExchange | Atomic)  # which are printed as branches or loops

    return not any(map(apart, statements(body)))


def source(width: int, item: str) -> str:
    """The number within its subgroup of an item of this item's block of ``width``."""
    return f"(within & ~{width - 1}u) | ({item} & {width - 1}u)"


def test(width: int) -> list[str]:
    """Statements that find whether shuffles within blocks of ``width`` items reach the right items: ``together``."""
    moved = f"subgroupShuffle(own, {source(width, 's')}) == ((own & ~{width - 1}u) | s)"
    return [
        f"var together = subgroup >= {width}u;",
        f"for (var s = 0u; s < {width}u; s++) {{ together = together & ({moved}); }}",
    ]


def agreement() -> list[str]:
    """Statements by which the items of a workgroup learn whether ``together`` is true for all of them; ``agreed`` is 0 then."""
    return [
        "if (own == 0u) { atomicStore(&apart, 0u); }",
        "workgroupBarrier();",
        "if (!together) { atomicStore(&apart, 1u); }",
        "workgroupBarrier();",
        "if (own == 0u) { agreed = atomicLoad(&apart); }",
    ]


def moved_together(body: Sequence[Statement]) -> Iterator[Statement | list[Shuffle]]:
    """The statements of a block, where shuffles of the same dtype from the same item are lists of up to four."""
    run: list[Shuffle] = []
    for s in body:
        if run and not (isinstance(s, Shuffle) and _fits(run, s)):
            yield run
            run = []
        if isinstance(s, Shuffle):
            run.append(s)
        else:
            yield s
    if run:
        yield run


def _fits(run: Sequence[Shuffle], s: Shuffle) -> bool:
    first = run[0]
    names = {x.name for x in run}
    reads = {e.value for e in walk([s.value, s.source]) if e.op == "local"}
    same = (s.width, s.value.dtype, s.source) == (first.width, first.value.dtype, first.source)
    return same and len(run) < TOGETHER and not names & reads
