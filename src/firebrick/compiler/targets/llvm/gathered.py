"""Gathered reads of a row: what is the same all along it (an index, where its elements begin) is found once, in front.

An index that is looked at for each row instead of each element costs nothing, and elements that lie side by side behind it are
read as whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from firebrick.compiler.targets.llvm.emit import Code, Emitter, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.memory import Strip, positions, read, read_at, stored_type
from firebrick.scalar.expr import Expr


def uniform(nodes: Iterable[Expr], inner: Sequence[int], indices: Mapping[Expr, int]) -> set[Expr]:
    """Nodes with one value along the innermost axis.

    Args:
        nodes: Operands before what uses them.
        inner: The operands' strides along that axis.
        indices: The same of the ``index`` nodes.
    """
    out: set[Expr] = set()
    for e in nodes:
        if e.op == "load":
            same = inner[int(e.value or 0)] == 0
        elif e.op == "index":
            same = indices[e] == 0
        elif e.op == "gather":
            same = inner[int(e.value or 0)] == 0 and e.args[0] in out
        else:
            same = e.op == "reduce" or all(a in out for a in e.args)
        if same:
            out.add(e)
    return out


class Gathered:
    """The gathered reads of one row.

    Args:
        code: Where to.
        nodes: Of the kernel's expressions, operands before what uses them.
        same: Those with one value along the row.
        strips: The operands' elements.
        lanes: Elements at a time.
        leaf: The value of a ``load`` or ``index`` that is the same along the row, as a scalar.

    Attributes:
        emitter: Of what is the same along the row, as scalars.
        splats: What was found in front of the row, in all lanes.
    """

    def __init__(
        self, code: Code, nodes: Sequence[Expr], same: Collection[Expr], strips: Sequence[Strip], lanes: int,
        leaf: Callable[[Expr], str],
    ) -> None:  # fmt: skip
        self.code, self.strips, self.lanes = code, strips, lanes
        self.splats: dict[Expr, str] = {}
        self._moved: dict[Expr, Strip] = {}
        self.emitter = Emitter(code, 1, leaf, lambda e, at: read_at(code, strips[int(e.value or 0)], at, 1))
        later: set[Expr] = set()  # what waits for a reduction
        for e in nodes:
            if e.op == "reduce" or any(a in later for a in e.args):
                later.add(e)
                continue
            if e.op not in ("bounded", "gather"):
                continue
            root = e if e in same else e.args[0]
            if root not in same:
                continue
            value = self.emitter.value(root)
            self.splats[root] = splat(code, scalar_type(root.dtype), value, lanes)
            strip = strips[int(e.value or 0)] if e.op == "gather" else None
            if root is not e and strip is not None:
                start = code.put(f"getelementptr {stored_type(strip.dtype, code)}, ptr {strip.pointer}, i64 {value}")
                self._moved[e] = Strip(strip.dtype, start, strip.stride)

    def element(self, e: Expr, places: str, at: str, mask: str) -> str:
        """``lanes`` values of a ``gather`` node from position ``at`` on."""
        code, lanes = self.code, self.lanes
        if e in self._moved:
            return read(code, self._moved[e], at, lanes, mask)
        strip = self.strips[int(e.value or 0)]
        if strip.stride:
            here = positions(code, at, strip.stride, lanes)
            places = code.put(f"add {vector_type('i64', lanes)} {here}, {places}")
        return read_at(code, strip, places, lanes, mask)
