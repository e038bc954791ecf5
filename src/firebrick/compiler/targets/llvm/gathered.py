"""Gathered reads of a row, with loop-invariant indices and addresses hoisted out of the loop over its elements.

An index that is constant along a row is read and checked once for each row, and the contiguous elements that it selects are
read as whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from firebrick.compiler.targets.llvm.emit import Code, Emitter, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.memory import Strip, positions, read, read_at, stored_type
from firebrick.scalar.expr import Expr


def uniform(nodes: Iterable[Expr], inner: Sequence[int], indices: Mapping[Expr, int]) -> set[Expr]:
    """Nodes that are invariant along the innermost axis.

    Args:
        nodes: Nodes in topological order, operands first.
        inner: The operands' strides along that axis.
        indices: Strides of the ``index`` nodes along that axis.
    """
    out: set[Expr] = set()
    for e in nodes:
        if e.op == "load":
            invariant = inner[int(e.value or 0)] == 0
        elif e.op == "index":
            invariant = indices[e] == 0
        elif e.op == "gather":
            invariant = inner[int(e.value or 0)] == 0 and e.args[0] in out
        else:
            invariant = e.op == "reduce" or all(a in out for a in e.args)
        if invariant:
            out.add(e)
    return out


class Gathered:
    """The gathered reads of one row.

    Args:
        code: Function to append to.
        nodes: Nodes of the kernel's expressions, in topological order.
        invariant: Nodes that are invariant along the row.
        strips: The operands' elements.
        lanes: Elements of a vector.
        leaf: The scalar value of a loop-invariant ``load`` or ``index``.

    Attributes:
        emitter: Scalar emitter of the loop-invariant values.
        splats: Hoisted values, broadcast to all lanes.
    """

    def __init__(
        self, code: Code, nodes: Sequence[Expr], invariant: Collection[Expr], strips: Sequence[Strip], lanes: int,
        leaf: Callable[[Expr], str],
    ) -> None:  # fmt: skip
        self.code, self.strips, self.lanes = code, strips, lanes
        self.splats: dict[Expr, str] = {}
        self._shifted: dict[Expr, Strip] = {}
        self.emitter = Emitter(code, 1, leaf, lambda e, at: read_at(code, strips[int(e.value or 0)], at, 1))
        later: set[Expr] = set()  # nodes that depend on a reduction, which is not computed in front of the loop
        for e in nodes:
            if e.op == "reduce" or any(a in later for a in e.args):
                later.add(e)
                continue
            if e.op not in ("bounded", "gather"):
                continue
            root = e if e in invariant else e.args[0]
            if root not in invariant:
                continue
            value = self.emitter.value(root)
            self.splats[root] = splat(code, scalar_type(root.dtype), value, lanes)
            strip = strips[int(e.value or 0)] if e.op == "gather" else None
            if root is not e and strip is not None:
                start = code.put(f"getelementptr {stored_type(strip.dtype, code)}, ptr {strip.pointer}, i64 {value}")
                self._shifted[e] = Strip(strip.dtype, start, strip.stride)

    def element(self, e: Expr, offsets: str, at: str, mask: str) -> str:
        """``lanes`` values of a ``gather`` node from position ``at`` on."""
        code, lanes = self.code, self.lanes
        if e in self._shifted:
            return read(code, self._shifted[e], at, lanes, mask)
        strip = self.strips[int(e.value or 0)]
        if strip.stride:
            row_offsets = positions(code, at, strip.stride, lanes)
            offsets = code.put(f"add {vector_type('i64', lanes)} {row_offsets}, {offsets}")
        return read_at(code, strip, offsets, lanes, mask)
