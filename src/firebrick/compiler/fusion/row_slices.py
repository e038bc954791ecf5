"""``sliced``: the body of a loop for some rows of its carries and sequences, if each row is computed from itself alone.

Rows are positions along axis 0, as the examples of a batch in a recurrent layer. A thread can then run all steps for some of
them, without waiting for other threads after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firebrick.core.aval import Aval
from firebrick.ir import Graph, Node


def sliced(body: Graph, consts: int, rows: int) -> Graph | None:
    """The body for ``rows`` rows; None if a row may depend on others, or an output has no rows.

    Args:
        body: Maps constants, carries and elements of sequences to the next carries and elements of results.
        consts: Number of constants, which have no rows.
        rows: Number of rows of the new body.
    """
    given = body.inputs[consts:]
    if not given or not all(a.shape for a in given) or len({a.shape[0] for a in given}) != 1:
        return None
    whole, avals = given[0].shape[0], body.avals
    by_row = set(range(consts, len(body.inputs)))
    nodes = []
    for n in body.nodes:
        if by_row.isdisjoint(n.inputs):
            nodes.append(n)
            continue
        if not _keeps_rows(n, [avals[v] for v in n.inputs], [v in by_row for v in n.inputs], whole):
            return None
        by_row.update(n.results)
        nodes.append(replace(n, avals=tuple(_with_rows(a, rows) for a in n.avals)))
    if not by_row.issuperset(body.outputs):
        return None
    inputs = [*body.inputs[:consts], *(_with_rows(a, rows) for a in given)]
    return Graph(inputs, nodes, body.outputs, list(body.names))


def _with_rows(a: Aval, rows: int) -> Aval:
    return Aval((rows, *a.shape[1:]), a.dtype)


def _keeps_rows(n: Node, operands: Sequence[Aval], by_row: Sequence[bool], whole: int) -> bool:
    """Whether row i of the results depends on row i of the operands with rows, and on the others."""
    (result, *_), rank = n.avals, len(n.avals[0].shape)
    if any(a.shape[:1] != (whole,) for a in n.avals):
        return False
    if n.op.name == "matmul":
        return tuple(by_row) == (True, False) and all(len(a.shape) == 2 for a in operands)
    if n.op.name in ("split", "concat"):
        return all(by_row) and n.params["axis"] % rank != 0
    if n.op.fusion != "map" or n.op.scalar is None or n.op.access is not None:
        return False
    # elements at the same position; operands without rows are the same for each row
    return all(
        a.shape[:1] == (whole,) and len(a.shape) == rank if rows else len(a.shape) < rank or a.shape[0] == 1
        for a, rows in zip(operands, by_row, strict=True)
    ) and (n.op.broadcasts or all(a.shape == result.shape for a in operands))
