"""What ranges of a graph's inputs prove of its indices and conditions, so that nothing has to wait for them.

A device that computes while the host goes on must be waited for before the host knows that all indices of a program were in
range. Where the least and the greatest value of the integers that came from the host are known, interval arithmetic often
shows that no index can be out of range, and that the conditions that ``jit`` checks hold: for labels of a loss, and tokens of
an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.compiler.spec.elements import element, is_complex, is_elementwise, is_reduction
from firebrick.core.dtypes import bool_
from firebrick.ir import CONSTANT, Graph, Node
from firebrick.ir.index_check import checked, raises
from firebrick.scalar.expr import Expr, local
from firebrick.scalar.storage import computed
from firebrick.scalar.wide import bounds_of

Range = tuple[int, int]
"""The least and the greatest value of an array of integers, or of bools, which are 0 and 1."""
KEPT = 8
"""Maximum number of ranges that are remembered as proved, and as not proved."""


class Ranges:
    """The checks of a graph as statements of the ranges of its inputs.

    Args:
        graph: The graph, before nodes are fused.
        conditions: Values, bool, that must be true.
        indices: Whether its indices must be in range, too.

    Attributes:
        inputs: Numbers of the inputs that the statements depend on.
    """

    def __init__(self, graph: Graph, conditions: Sequence[int] = (), indices: bool = True) -> None:
        self._avals = graph.avals
        needs: list[tuple[int, Range]] = [(v, (1, 1)) for v in conditions]
        self._possible = True
        for n in graph.nodes if indices else ():
            found = checked(n, self._avals)
            needs += [(v, (-size, size - 1)) for v, size in found]
            # a kernel with checks, or matrices; programs of loops have their own
            if not found and n.op.control is None and (raises(n) or n.op.partial):
                self._possible = False
        self._needs = list(dict.fromkeys(needs))
        self._steps: list[tuple[Node, Expr | None]] = []
        used = {v for v, _ in self._needs}
        for n in reversed(graph.nodes):
            if used.isdisjoint(n.results):
                continue
            elements_of_others = n.op is CONSTANT or _moves(n)
            expression = None if elements_of_others else self._expression(n)
            if elements_of_others or expression is not None:
                self._steps.append((n, expression))
                used.update(n.inputs)
        self._steps.reverse()
        self.inputs = [i for i, a in enumerate(graph.inputs) if i in used and (a.dtype.is_integer or a.dtype is bool_)]
        self._proved: dict[tuple[Range | None, ...], None] = {}
        self._open: dict[tuple[Range | None, ...], None] = {}

    def _expression(self, n: Node) -> Expr | None:
        """The element of a node's result as an expression of ``local`` operands x0, x1, …; None if there is none."""
        operands = [self._avals[i] for i in n.inputs]
        if len(n.avals) != 1 or is_complex(n, operands) or not (is_elementwise(n) or is_reduction(n)):
            return None
        if not (n.avals[0].dtype.is_integer or n.avals[0].dtype is bool_) or not all(a.size for a in operands):
            return None
        try:
            return element(n, [local(f"x{k}", computed(a.dtype.name)) for k, a in enumerate(operands)], operands)
        except TypeError:  # the op has none for these dtypes
            return None

    def hold(self, given: Sequence[Range | None]) -> bool:
        """Whether no check can fail.

        Args:
            given: What is known of each of ``inputs``.
        """
        if not self._needs or not self._possible:
            return self._possible
        box = tuple(given)
        # lists, since another thread may remember a box meanwhile
        if box in self._proved or any(_inside(box, known) for known in list(self._proved)):
            return True
        if box in self._open:
            return False
        if not self._prove(box):
            _keep(self._open, box)
            return False
        for known in list(self._proved):  # what holds of larger ranges holds of those inside
            hull = tuple(map(_hull, box, known))
            if hull != box and self._prove(hull):
                box = hull
        _keep(self._proved, box)
        return True

    def known(self, given: Sequence[Range | None]) -> dict[int, Range]:
        """The ranges of values that the checks depend on, as far as they are known.

        Args:
            given: As for ``hold``.
        """
        known: dict[int, Range] = {i: r for i, r in zip(self.inputs, given, strict=True) if r is not None}
        for n, expression in self._steps:
            found = self._range(n, expression, known)
            if found is not None:
                known.update(dict.fromkeys(n.results, found))
        return known

    def _prove(self, box: tuple[Range | None, ...]) -> bool:
        known = self.known(box)
        return all(v in known and least <= known[v][0] and known[v][1] <= most for v, (least, most) in self._needs)

    def _range(self, n: Node, expression: Expr | None, known: dict[int, Range]) -> Range | None:
        if n.op is CONSTANT:
            value = n.params["value"]
            return (int(value.min()), int(value.max())) if value.size and value.dtype.kind in "biu" else None
        if expression is not None:
            names = {f"x{k}": known[i] for k, i in enumerate(n.inputs) if i in known}
            return bounds_of([expression], (), names)[expression]
        moved = [known.get(i) for i in n.inputs if self._avals[i].dtype == n.avals[0].dtype]
        if not moved or None in moved:
            return None
        found = [r for r in moved if r is not None]
        if "value" in n.params:  # elements that a padded array gets
            found.append((int(n.params["value"]), int(n.params["value"])))
        return min(r[0] for r in found), max(r[1] for r in found)


def _moves(n: Node) -> bool:
    """Whether all elements of a node's results are elements of its operands, or its parameter ``value``."""
    return n.op.exact == "moved" and not is_elementwise(n) and all(a.dtype.is_integer or a.dtype is bool_ for a in n.avals)


def _inside(box: Sequence[Range | None], known: Sequence[Range | None]) -> bool:
    return all(k is None or (r is not None and k[0] <= r[0] and r[1] <= k[1]) for r, k in zip(box, known, strict=True))


def _hull(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _keep(kept: dict[tuple[Range | None, ...], None], box: tuple[Range | None, ...]) -> None:
    """Remember a box, and no more than ``KEPT``. Another thread may do the same."""
    for old in list(kept)[: max(0, len(kept) - KEPT + 1)]:
        kept.pop(old, None)
    kept[box] = None
