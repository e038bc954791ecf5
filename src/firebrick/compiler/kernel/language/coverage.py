"""``stores_all``: whether each item certainly stores the element at its own index, so that a result needs no values before."""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.compiler.kernel.ir import Function, If, Statement, Store
from firebrick.scalar.expr import Expr, const, local


def own_place(function: Function, sizes: Sequence[Expr]) -> Expr | None:
    """Where the element at an item's own index lies in an array; None if the array has another number of axes.

    Args:
        function: Kernel without groups.
        sizes: Of the array's axes.
    """
    indices = (*function.outer, function.item)
    if not sizes:
        return const(0, "int64")
    if len(indices) != len(sizes):
        return None
    place: Expr | None = None
    for name, n in zip(indices, sizes, strict=True):
        e = local(name, "int64")
        place = e if place is None else place * n + e
    return place


def stores_all(function: Function, array: str, sizes: Sequence[Expr]) -> bool:
    """Whether every item stores the element of an array at its own index, on each path.

    Args:
        function: Kernel whose grid has the array's sizes.
        array: Name of the array.
        sizes: Of its axes.
    """
    place = None if function.group else own_place(function, sizes)
    return place is not None and _stored(function.body, array, place)


def _stored(body: tuple[Statement, ...], array: str, place: Expr) -> bool:
    return any(
        (isinstance(s, Store) and s.array == array and s.index is place)
        or (isinstance(s, If) and _stored(s.then, array, place) and _stored(s.otherwise, array, place))
        for s in body
    )
