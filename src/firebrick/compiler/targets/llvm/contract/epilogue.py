"""``Epilogue``: elementwise work fused into a product, before its elements are stored.

An epilogue consists of scalar expressions of the product's element and of operands at the same position (a bias, a residual, a
mask). Operands have layouts over the axes of C, with stride 0 along axes where they are broadcast. Each expression is a result
with its own layout; the plain product is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value
from firebrick.compiler.targets.llvm.contract.problem import MatrixLayout, simplified_result
from firebrick.compiler.targets.llvm.emit import Emitter
from firebrick.compiler.targets.llvm.memory import Strip, read, read_uniform, stored_type, write
from firebrick.scalar.expr import Expr, load, walk
from firebrick.scalar.storage import computed

LIGHT = 8
"""Maximum number of operations of an epilogue in registers, whose code is repeated for each register of a tile."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Expressions of the element of a product, ``load(0)``, and of operands, ``load(1)``, ``load(2)``, …

    Attributes:
        operands: Layouts of the operands, of any dtype of ``storage``.
        results: Expressions, and the layouts of their results.
    """

    operands: tuple[MatrixLayout, ...]
    results: tuple[tuple[Expr, MatrixLayout], ...]

    @property
    def views(self) -> tuple[MatrixLayout, ...]:
        """Operands, then results, in the order of their buffers."""
        return *self.operands, *(r for _, r in self.results)

    @property
    def plain(self) -> bool:
        """Whether the product is the only result."""
        return [e for e, _ in self.results] == [product(self.results[0][1].dtype)]

    @property
    def light(self) -> bool:
        """Whether its code is short enough to be repeated for each vector of a tile, without a branch."""
        nodes = walk(e for e, _ in self.results)
        return sum(e.op not in ("load", "const") for e in nodes) <= LIGHT and all(e.op != "rarely" for e in nodes)

    def simplified(self) -> Epilogue:
        """The same epilogue with axes merged if strides allow it."""
        results = tuple((e, simplified_result(r)) for e, r in self.results)
        return Epilogue(tuple(simplified_result(x) for x in self.operands), results)

    def swapped(self) -> Epilogue:
        """The epilogue of the transposed product."""
        return Epilogue(tuple(map(_swapped, self.operands)), tuple((e, _swapped(r)) for e, r in self.results))


def product(dtype: str) -> Expr:
    """The element of a product of arrays of a dtype."""
    return load(0, computed(dtype))


def stored(c: MatrixLayout) -> Epilogue:
    """The epilogue of a plain product."""
    return Epilogue((), ((product(c.dtype), c),))


def _swapped(x: MatrixLayout) -> MatrixLayout:
    return replace(x, rows=x.lanes, lanes=x.rows)


def values(
    e: IRBuilder, epilogue: Epilogue, x: str, locations: Sequence[tuple[str, Value, int]], n: int, mask: str | None,
    loaded: dict[tuple[int, Value, str | None], str] | None = None,
) -> list[tuple[Strip, str]]:  # fmt: skip
    """The results for ``n`` lanes of a row, and the strip of each, for ``put``.

    Args:
        e: Builder to append to.
        epilogue: Expressions to compute.
        x: Elements of the product in the type of the arithmetic: a vector, or a scalar for one lane.
        locations: Pointer of each view, the offset of the first lane in elements, and the stride of the lanes.
        n: Number of lanes.
        mask: Lanes to load; the first one is always set. None for all.
        loaded: Operands that are loaded already, by number, offset and mask, in code that dominates this; others are added.
    """
    strips, loaded = [], {} if loaded is None else loaded
    for (pointer, offset, step), view in zip(locations, epilogue.views, strict=True):
        strips.append(Strip(view.dtype, e.at(pointer, offset, stored_type(view.dtype, e)), step))
    operands = strips[: len(epilogue.operands)]

    def leaf(node: Expr) -> str:
        k = int(node.value or 0)
        if k == 0:
            return x
        strip, key = operands[k - 1], (k, locations[k - 1][1], mask)
        if key not in loaded:
            if strip.stride == 0:
                read_uniform(e, strip, n)
            loaded[key] = read(e, strip, "0", n, mask or "")
        return loaded[key]

    results = Emitter(e, n, leaf, mask=mask or "").all(r for r, _ in epilogue.results)
    return list(zip(strips[len(operands) :], results, strict=True))


def put(e: IRBuilder, results: Sequence[tuple[Strip, str]], n: int, mask: str | None) -> None:
    """Store the results of ``values``."""
    for strip, value in results:
        write(e, strip, "0", value, n, mask or "")
