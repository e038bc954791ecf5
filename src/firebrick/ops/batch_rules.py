"""How ops run for all examples of ``fb.vmap`` at once: the ``batch`` rules that entries share.

A rule gets the operands of one example, each either the same for all or with the examples along a new first axis, and
returns results with that axis. It is written with ops. A rule that returns None leaves these operands to a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from firebrick.core.op import Batching

Rule = Callable[[Batching], Any]


def operand_of_all(b: Batching, i: int) -> Any:
    """Operand ``i`` with the examples as first axis, also where it is the same for all."""
    from firebrick.ops.movement import broadcast_to

    x = b.operands[i]
    return x if b.mapped[i] else broadcast_to(x, shape=(b.size, *b.shapes[i]))


def aligned(b: Batching, i: int, rank: int) -> Any:
    """Operand ``i``, which broadcasts with others of up to ``rank`` axes: where it is mapped, the axes that it lacks are put
    between the examples and its own."""
    from firebrick.ops.movement import reshape

    x, shape = b.operands[i], b.shapes[i]
    if not b.mapped[i] or len(shape) == rank:
        return x
    return reshape(x, shape=(b.size, *(1,) * (rank - len(shape)), *shape))


def broadcasting(b: Batching) -> Any:
    """For ops whose operands broadcast together."""
    rank = max(map(len, b.shapes))
    return b.op(*(aligned(b, i, rank) for i in range(len(b.shapes))), **b.params)


def stacks(b: Batching) -> Any:
    """For ops of matrices in the last two axes, whose other axes broadcast."""
    return broadcasting(b)


def _shifted(params: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Parameters whose axes are counted from the examples on."""
    moved = {n: params[n] + 1 if isinstance(params[n], int) else tuple(a + 1 for a in params[n]) for n in names}
    return {**params, **moved}


def leading(*names: str) -> Rule:
    """For ops that take more leading axes as they are; the parameters of these names count axes from the first."""

    def rule(b: Batching) -> Any:
        return b.op(*(operand_of_all(b, i) for i in range(len(b.operands))), **_shifted(b.params, names))

    return rule


def decomposed(b: Batching) -> Any:
    """For ops whose decomposition has rules of its own."""
    assert b.op.decompose is not None
    return b.each(b.op.decompose)


def first_only(*names: str) -> Rule:
    """``leading(*names)`` where only the first operand differs between examples; the decomposition elsewhere."""

    def rule(b: Batching) -> Any:
        if any(b.mapped[1:]):
            return decomposed(b)
        return b.op(*b.operands, **_shifted(b.params, names))

    return rule


def derived(broadcasts: bool, elementwise: bool, operands: int, parameters: set[str]) -> Rule | None:
    """The rule that follows from an entry's other fields; None where none does.

    Args:
        broadcasts: Whether operands broadcast.
        elementwise: Whether an element of the result depends on the elements at its own index only.
        operands: How many operands it has.
        parameters: The names of its parameters.
    """
    if broadcasts:
        return broadcasting
    if elementwise:
        return leading()
    axes = parameters & {"axis", "axes"}
    return leading(*axes) if operands == 1 and axes else None


# movement


def reshaped(b: Batching) -> Any:
    """``reshape``."""
    return b.op(b.operands[0], shape=(b.size, *b.params["shape"]))


def broadcast(b: Batching) -> Any:
    """``broadcast_to``."""
    shape = b.params["shape"]
    return b.op(aligned(b, 0, len(shape)), shape=(b.size, *shape))


def permuted(b: Batching) -> Any:
    """``permute``."""
    return b.op(b.operands[0], axes=(0, *(a + 1 for a in b.params["axes"])))


def padded(b: Batching) -> Any:
    """``pad``."""
    return b.op(b.operands[0], **{**b.params, "widths": ((0, 0), *b.params["widths"])})


def sliced(b: Batching) -> Any:
    """``slice`` and ``slice_update``."""
    first = {"starts": 0, "stops": b.size, "steps": 1}
    params = {**b.params, **{k: (v, *b.params[k]) for k, v in first.items()}}
    if params.get("shape") is not None:
        params["shape"] = (b.size, *params["shape"])
    return b.op(*(operand_of_all(b, i) for i in range(len(b.operands))), **params)


# indexing


def _to_front(x: Any, axis: int, count: int = 1) -> Any:
    """``x`` with ``count`` axes from ``axis`` on directly after the first axis."""
    from firebrick.ops.movement import permute

    moved = range(axis, axis + count)
    rest = (a for a in range(1, len(x.shape)) if a not in moved)
    return permute(x, axes=(0, *moved, *rest))


def _back(x: Any, axis: int, count: int = 1) -> Any:
    """The inverse of ``_to_front``."""
    from firebrick.ops.movement import permute

    rest = list(range(count + 1, len(x.shape)))
    before = axis - 1
    return permute(x, axes=(0, *rest[:before], *range(1, count + 1), *rest[before:]))


def _by_element(indices: Any, rest: int) -> Any:
    """Indices [examples, …] of slices as indices [examples, count, rest] of their elements."""
    from firebrick.ops.movement import broadcast_to, reshape

    n, count = indices.shape[0], prod(indices.shape[1:])
    return broadcast_to(reshape(indices, shape=(n, count, 1)), shape=(n, count, rest))


def taken(b: Batching) -> Any:
    """``take``: where the indices differ between examples, elements are gathered."""
    from firebrick.ops.indexing import gather
    from firebrick.ops.movement import permute, reshape

    (x, indices), axis = b.operands, b.params["axis"]
    if not b.mapped[1]:
        return b.op(x, indices, axis=axis + 1)
    count = len(b.shapes[1])
    if not b.mapped[0]:
        found = b.op(x, indices, axis=axis)
        return permute(found, axes=(axis, *range(axis), *range(axis + 1, len(found.shape))))
    rows = _to_front(x, axis + 1)
    rest = prod(rows.shape[2:])
    found = gather(reshape(rows, shape=(*rows.shape[:2], rest)), _by_element(indices, rest), axis=1)
    return _back(reshape(found, shape=(*indices.shape, *rows.shape[2:])), axis + 1, count)


def added(b: Batching) -> Any:
    """``index_add``: where the indices differ between examples, elements are scattered."""
    from firebrick.ops.indexing import scatter_add
    from firebrick.ops.movement import reshape

    axis = b.params["axis"]
    x, updates = operand_of_all(b, 0), operand_of_all(b, 2)
    if not b.mapped[1]:
        return b.op(x, b.operands[1], updates, axis=axis + 1)
    indices = b.operands[1]
    rows = _to_front(x, axis + 1)
    rest = prod(rows.shape[2:])
    by_element = _by_element(indices, rest)
    lines = reshape(_to_front(updates, axis + 1, len(b.shapes[1])), shape=by_element.shape)
    flat = scatter_add(reshape(rows, shape=(*rows.shape[:2], rest)), by_element, lines, axis=1)
    return _back(reshape(flat, shape=rows.shape), axis + 1)


def searched(b: Batching) -> Any:
    """``searchsorted``. In several sorted arrays: what is searched for is sorted together with the array, before or after the
    elements that equal it; its place there less its place among what is searched for counts the elements before it."""
    from firebrick.ops.movement import concat, reshape, slice_
    from firebrick.ops.sorting import sort

    if not b.mapped[0]:
        return b.op(*b.operands, **b.params)
    right, (n, m) = b.params["right"], (b.shapes[0][0], prod(b.shapes[1]))
    x1, x2 = operand_of_all(b, 0), reshape(operand_of_all(b, 1), shape=(b.size, m))

    def places(x: Any) -> Any:
        order = sort(x, axis=1, descending=False)[1]
        return sort(order, axis=1, descending=False)[1]

    both = places(concat(x1, x2, axis=1) if right else concat(x2, x1, axis=1))
    first = n if right else 0
    found = slice_(both, starts=(0, first), stops=(b.size, first + m), steps=(1, 1)) - places(x2)
    return reshape(found, shape=(b.size, *b.shapes[1]))


# products


def multiplied(b: Batching) -> Any:
    """``matmul``. A product with a matrix that all examples share is one product of the rows of all of them."""
    from firebrick.ops.matmul import matmul, swap
    from firebrick.ops.movement import reshape

    (x1, x2), (s1, s2) = b.operands, b.shapes
    if b.mapped == (True, False) and len(s2) == 2:
        rows = reshape(x1, shape=(b.size * prod(s1[:-1]), s1[-1]))
        return reshape(matmul(rows, x2), shape=(b.size, *s1[:-1], s2[1]))
    if b.mapped == (False, True) and len(s1) == 2:
        columns = swap(x2)
        rows = reshape(columns, shape=(b.size * prod(s2[:-2]) * s2[-1], s2[-2]))
        return swap(reshape(matmul(rows, swap(x1)), shape=(*columns.shape[:-1], s1[0])))
    return stacks(b)


def pseudo_inverse(b: Batching) -> Any:
    """``pinv``: the matrices of all examples, and a number for each stack of them."""
    lead = len(b.shapes[0]) - 2
    return b.op(operand_of_all(b, 0), aligned(b, 1, lead))


def attended(first: int) -> Rule:
    """Attention, whose mask broadcasts; the query is operand ``first``."""

    def rule(b: Batching) -> Any:
        dense = [operand_of_all(b, i) for i in range(len(b.operands) - 1)]
        mask = aligned(b, len(b.operands) - 1, len(b.shapes[first]))
        return b.op(*dense, mask, **b.params)

    return rule


# convolutions and windows


def _folded(x: Any) -> Any:
    """[examples, batch, …] as one batch."""
    from firebrick.ops.movement import reshape

    return reshape(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:]))


def _unfolded(x: Any, size: int, batch: int) -> Any:
    from firebrick.ops.movement import reshape

    return reshape(x, shape=(size, batch, *x.shape[1:]))


def windows(b: Batching) -> Any:
    """For ops of windows over images [batch, channels, …]: the images of all examples are one batch."""
    made = b.op(*(_folded(operand_of_all(b, i)) for i in range(len(b.operands))), **b.params)
    several = made if isinstance(made, tuple) else (made,)
    out = tuple(_unfolded(y, b.size, b.shapes[0][0]) for y in several)
    return out if isinstance(made, tuple) else out[0]


def _into(x: Any, axis: int, groups: int) -> Any:
    """[examples, …] with the examples within an axis: each of its groups is followed by the group of the next example."""
    from firebrick.ops.movement import permute, reshape

    n, shape = x.shape[0], x.shape[1:]
    parts = (n, *shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    order = (*range(1, axis + 1), axis + 1, 0, axis + 2, *range(axis + 3, len(parts)))
    moved = permute(reshape(x, shape=parts), axes=order)
    return reshape(moved, shape=(*shape[:axis], n * shape[axis], *shape[axis + 1 :]))


def _out_of(y: Any, axis: int, groups: int, size: int) -> Any:
    """The inverse of ``_into``."""
    from firebrick.ops.movement import permute, reshape

    shape = y.shape
    each = shape[axis] // size
    parts = (*shape[:axis], groups, size, each // groups, *shape[axis + 1 :])
    order = (axis + 1, *range(axis), axis, axis + 2, *range(axis + 3, len(parts)))
    return reshape(permute(reshape(y, shape=parts), axes=order), shape=(size, *shape[:axis], each, *shape[axis + 1 :]))


Side = tuple[int, bool]


def convolved(both: tuple[int, int, int], first: tuple[Side, Side], second: tuple[Side, Side]) -> Rule:
    """The rule of one of the three convolutions.

    Args:
        both: Where both operands differ between examples, these are groups: along which axis of each operand and the result.
        first: Where only the first operand differs: the axis of it and that of the result along which the examples go, and
            whether this axis has the groups of channels.
        second: The same where only the second operand differs.
    """

    def rule(b: Batching) -> Any:
        (x, y), groups = b.operands, b.params["groups"]
        if all(b.mapped):
            params = {**b.params, "groups": groups * b.size}
            return _out_of(b.op(_into(x, both[0], 1), _into(y, both[1], 1), **params), both[2], 1, b.size)
        (axis, grouped), (to, spread) = first if b.mapped[0] else second
        parts, into = groups if grouped else 1, groups if spread else 1
        pair = (_into(x, axis, parts), y) if b.mapped[0] else (x, _into(y, axis, parts))
        return _out_of(b.op(*pair, **b.params), to, into, b.size)

    return rule
