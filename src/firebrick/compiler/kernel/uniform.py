"""``varying``: which locals of a kernel may differ between items that differ in the last index alone.

The items of a group are such items, and so are the lanes of a vector. A value is uniform if it follows from arguments, from
the indices along the outer axes, and from elements at uniform places of arrays that the kernel only reads. A local that is
assigned under a condition that varies, or in a loop whose number of iterations varies, varies. Source of the rules: WGSL's
uniformity analysis.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from firebrick.scalar.expr import Expr, walk


def varying(function: Function) -> frozenset[str]:
    """The names of a kernel, of locals, counters and indices, whose values may vary along the last axis of the grid."""
    found = {function.item}
    constant = {a.name for a in function.arrays if a.access == "read"}
    kept: Reads = {}
    size = 0
    while size != len(found):  # a loop's assignments reach the statements before them
        size = len(found)
        _block(function.body, found, constant, False, kept)
    return frozenset(found)


def varies(e: Expr, names: Iterable[str], function: Function) -> bool:
    """Whether an expression's value may vary along the last axis of the grid.

    Args:
        e: Expression of the kernel.
        names: Those of ``varying``.
        function: Kernel.
    """
    return _varies(e, set(names), {a.name for a in function.arrays if a.access == "read"}, {})


Reads = dict[Expr, tuple[frozenset[str], frozenset[str]]]
"""Of expressions, the locals and the arrays that they read."""


def _varies(e: Expr, names: set[str], constant: set[str], kept: Reads) -> bool:
    reads = kept.get(e)
    if reads is None:
        nodes = walk([e])
        local = frozenset(str(x.value) for x in nodes if x.op == "local")
        reads = kept[e] = local, frozenset(str(x.value) for x in nodes if x.op == "element")
    return not reads[0].isdisjoint(names) or not reads[1] <= constant


def _block(body: tuple[Statement, ...], found: set[str], constant: set[str], divergent: bool, kept: Reads) -> None:
    for s in body:
        match s:
            case Let():
                if _varies(s.value, found, constant, kept):
                    found.add(s.name)
            case Assign():  # items that do not execute it keep another value
                if divergent or _varies(s.value, found, constant, kept):
                    found.add(s.name)
            case Atomic() | CompareExchange() | Shuffle():
                found.add(s.name)
            case If():
                apart = divergent or _varies(s.condition, found, constant, kept)
                _block(s.then, found, constant, apart, kept)
                _block(s.otherwise, found, constant, apart, kept)
            case While():
                apart = divergent or _varies(s.condition, found, constant, kept)
                _block(s.body, found, constant, apart, kept)
            case For():
                bounds = any(_varies(e, found, constant, kept) for e in (s.start, s.stop))
                if _varies(s.start, found, constant, kept):
                    found.add(s.name)
                _block(s.body, found, constant, divergent or bounds, kept)
            case _:
                pass
