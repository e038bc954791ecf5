"""Rows by groups: the items of a group take every n-th element of a row, and combine their parts of a reduction in shared
memory.

An item of the naive form goes along a row of its own. On a GPU, neighbouring items then read memory far apart, and few rows
occupy few of its processors; here neighbours read neighbours. Sums of floats carry what each addition loses, also in the tree
of the parts. The order of additions depends on the number of lanes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from firebrick.compiler.kernel.ir import Barrier, For, Let, SharedArray, Store
from firebrick.compiler.naive.building import Buffer, Naive, NaiveLaunch, compensated
from firebrick.compiler.naive.nests import COMBINE, Rows, nest
from firebrick.compiler.spec.base import Result
from firebrick.compiler.spec.nest import Nest
from firebrick.scalar.expr import FLOATS, Expr, const, eq, local, walk

LANES = 64
"""Items of a row, unless the tuner finds another number to be faster."""
_LANE = local("lane", "int64")


def pays(spec: Nest) -> bool:
    """Whether rows are contiguous and so long that each item has an element."""
    last = len(spec.domain) - 1
    return last in spec.reduced and prod(spec.domain[a] for a in spec.reduced) >= LANES


def keeps_bits(spec: Nest) -> bool:
    """Whether results do not depend on the order of combination."""
    nodes = [e for e in walk(r.expression for r in spec.results) if e.op == "reduce"]
    return all(e.value in ("max", "min") or e.dtype not in FLOATS for e in nodes)


def rows_by_groups(spec: Nest, lanes: int = LANES) -> Naive:
    """The launches of a specification with reductions.

    Args:
        spec: The specification.
        lanes: Items of a row, a power of two.
    """
    return nest(spec, partial(_GroupedRows, lanes))


class _GroupedRows(Rows):
    def __init__(self, lanes: int, spec: Nest, results: Sequence[tuple[Buffer, Result]]) -> None:
        self.lanes, self.shared = lanes, list[SharedArray]()
        self.kind = f"row_by_{lanes}"
        super().__init__(spec, results)
        self.length = self.b.number(prod(spec.domain[a] for a in spec.reduced))

    def step(self) -> NaiveLaunch:
        made = super().step()
        f = replace(made.function, outer=(made.function.item,), item="lane", group=self.lanes, shared=tuple(self.shared))
        return replace(made, function=f, grid=(self.b.grid, self.lanes))

    def loops(self, write: Callable[[list[Expr]], None]) -> None:
        b, name = self.b, self.b.fresh("k")
        body = b.block(lambda: write(b.digits(local(name, "int64"), self.reduced)))
        b.body.append(For(name, _LANE, self.length, self.lanes, body))

    def once(self, write: Callable[[], None]) -> None:
        self.b.when(eq(_LANE, 0), write)

    def combined(self, kind: str, total: Let, lost: Let | None = None) -> Expr:
        """A tree of the parts of all lanes. What additions lose is summed beside it, and added last: a part, which may be as
        large as the whole, would lose it again."""
        b = self.b
        parts, rests = self._part(total), None if lost is None else self._part(lost)
        b.body.append(Barrier())
        step = self.lanes // 2
        while step:

            def combine(step: int = step) -> None:
                here, there = parts[_LANE], parts[_LANE + step]
                if rests is None:
                    b.body.append(Store(parts.name, _LANE, here + there if kind == "sum" else COMBINE[kind](here, there)))
                    return
                following, rest = compensated(b, here, const(-0.0, total.value.dtype), there)
                rest = rests[_LANE] + rests[_LANE + step] + rest
                b.body += [Store(parts.name, _LANE, following), Store(rests.name, _LANE, rest)]

            b.when(step > _LANE, combine)
            b.body.append(Barrier())
            step //= 2
        first = const(0, "int64")
        return b.let(parts[first] if rests is None else parts[first] + rests[first], "all")

    def _part(self, own: Let) -> SharedArray:
        """An array with the variables of all lanes."""
        made = SharedArray(self.b.fresh("parts"), own.value.dtype, self.lanes)
        self.shared.append(made)
        self.b.body.append(Store(made.name, _LANE, own.local))
        return made
