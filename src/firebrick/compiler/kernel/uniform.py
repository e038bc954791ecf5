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
    size = 0
    while size != len(found):  # a loop's assignments reach the statements before them
        size = len(found)
        _block(function.body, found, constant, False)
    return frozenset(found)


def varies(e: Expr, names: Iterable[str], function: Function) -> bool:
    """Whether an expression's value may vary along the last axis of the grid.

    Args:
        e: Expression of the kernel.
        names: Those of ``varying``.
        function: Kernel.
    """
    return _varies(e, set(names), {a.name for a in function.arrays if a.access == "read"})


def _varies(e: Expr, names: set[str], constant: set[str]) -> bool:
    return any((x.op == "local" and x.value in names) or (x.op == "element" and x.value not in constant) for x in walk([e]))


def _block(body: tuple[Statement, ...], found: set[str], constant: set[str], divergent: bool) -> None:
    for s in body:
        match s:
            case Let():
                if _varies(s.value, found, constant):
                    found.add(s.name)
            case Assign():  # items that do not execute it keep another value
                if divergent or _varies(s.value, found, constant):
                    found.add(s.name)
            case Atomic() | CompareExchange() | Shuffle():
                found.add(s.name)
            case If():
                apart = divergent or _varies(s.condition, found, constant)
                _block(s.then, found, constant, apart)
                _block(s.otherwise, found, constant, apart)
            case While():
                apart = divergent or _varies(s.condition, found, constant)
                _block(s.body, found, constant, apart)
            case For():
                bounds = any(_varies(e, found, constant) for e in (s.start, s.stop))
                if _varies(s.start, found, constant):
                    found.add(s.name)
                _block(s.body, found, constant, divergent or bounds)
            case _:
                pass
