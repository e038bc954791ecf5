"""``tiled_product``: a ``Contract`` that is a product of matrices by the template ``product``; what follows is its epilogue.

Operands are row-major or transposed; a stack of matrices times one matrix is one tall matrix times it. Sums are those of
sections of steps, whatever the tiles, so their bits do not depend on these. What has another layout, several results or the
bounds of a convolution is not computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from firebrick.compiler.kernel.language.calls import InlinedExpression
from firebrick.compiler.naive.building import INPUT, RESULT, Buffer, Naive
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.templates.epilogues import WithOperands, same
from firebrick.compiler.templates.launched import launched
from firebrick.compiler.templates.product import product
from firebrick.compiler.templates.template import Template
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.views import View
from firebrick.scalar.capabilities import Capabilities
from firebrick.scalar.expr import Expr, load
from firebrick.scalar.storage import HALVES, computed

Strides = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ProductTiles:
    """The sizes of a template's tiles; see ``tiles``.

    Attributes:
        stored: The dtype of tiles in shared memory, for operands of that dtype; empty for the dtype that is computed in.
    """

    group_size: int
    tile_m: int
    tile_n: int
    tile_k: int
    rows: int
    columns: int
    stored: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return f"tiles={self.tile_m}x{self.tile_n}x{self.tile_k} group={self.group_size}{self.stored and f' {self.stored}'}"

    @property
    def constants(self) -> dict[str, int]:
        """The constants of the template."""
        return {f: getattr(self, f) for f in self.__slots__ if f != "stored"}


SIZES = (
    ProductTiles(64, 64, 64, 8, 8, 8), ProductTiles(64, 64, 32, 8, 8, 4), ProductTiles(64, 32, 32, 8, 4, 4),
    ProductTiles(256, 64, 64, 8, 4, 4), ProductTiles(256, 128, 64, 8, 8, 4),
)  # fmt: skip
HALF_SIZES = (
    ProductTiles(256, 64, 64, 16, 4, 4, "float16"), ProductTiles(256, 128, 128, 8, 8, 8, "float16"),
    ProductTiles(256, 128, 128, 16, 8, 8, "float16"),
)  # fmt: skip
"""Tiles of float16 in shared memory, of which half as many bytes hold as many elements."""


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand of the epilogue.

    Attributes:
        source: Number of the input.
        dtype: In memory.
        axes: Names of the template's axes that it has, the outermost first.
        shape: Sizes of these.
    """

    source: int
    dtype: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Matrices:
    """Products of row-major or transposed matrices.

    Attributes:
        batch: Number of products.
        m: Rows of each.
        left_transposed: Whether A is [k, m].
        right_transposed: Whether B is [n, k].
        operands: Of the epilogue.
    """

    batch: int
    m: int
    left_transposed: bool
    right_transposed: bool
    operands: tuple[_Side, ...]


def tiled_product(spec: Contract, capabilities: Capabilities, tiles: ProductTiles, section: int) -> Naive | None:
    """The launch of a product; None if the template does not compute it, or needs more than the target has.

    Args:
        spec: The contraction.
        capabilities: Of the target.
        tiles: Sizes of tiles. Tiles of float16 are for targets that have memory of it.
        section: Steps of a section, as of ``product``.
    """
    found = _matrices(spec)
    if found is None:
        return None
    (part,), (result,) = spec.parts, spec.results
    if tiles.stored and not (capabilities.float16 and {part.left.dtype, part.right.dtype} == {tiles.stored}):
        return None
    k, n, m, batch = part.k, part.n, found.m, found.batch
    of, names = dtype(computed(part.left.dtype)), tuple(f"operand{i}" for i in range(len(found.operands)))
    x = (batch, k, m, 1) if found.left_transposed else (batch, m, k, 1)
    y = (batch, n, 1, k, 1) if found.right_transposed else (batch, k, n, 1)
    arrays = {
        "x": (Buffer(INPUT, part.left.source), Aval(x, dtype(part.left.dtype))),
        "y": (Buffer(INPUT, part.right.source), Aval(y, dtype(part.right.dtype))),
        "out": (Buffer(RESULT, 0), Aval((batch, m, n, 1), dtype(result.dtype))),
    }
    for name, o in zip(names, found.operands, strict=True):
        arrays[name] = Buffer(INPUT, o.source), Aval(o.shape, dtype(o.dtype))
    axes = tuple(zip(names, (o.axes for o in found.operands), strict=True))
    template = _template(result.expression, axes, section, found.left_transposed, found.right_transposed, tiles.stored)
    step = launched(template, arrays, capabilities, vector=1, of=of, **tiles.constants)
    return None if step is None else Naive((step,))


@lru_cache(maxsize=128)
def _template(
    expression: Expr, axes: tuple[tuple[str, tuple[str, ...]], ...], section: int, left: bool, right: bool, stored: str
) -> Template:  # fmt: skip
    operands = tuple((name, ", ".join(own)) for name, own in axes)
    plain = expression.op == "load"
    function = same if plain else InlinedExpression("epilogue", expression)
    epilogue = WithOperands(function, operands) if operands else function
    tiles_of = dtype(stored) if stored else None
    return product(epilogue=epilogue, section=section, left_transposed=left, right_transposed=right, stored=tiles_of)


def _matrices(spec: Contract) -> _Matrices | None:
    if len(spec.parts) != 1 or len(spec.results) != 1 or spec.convolution is not None:
        return None
    (part,), (result,) = spec.parts, spec.results
    lead = prod(part.batch)
    if not lead * part.m * part.n * part.k or part.left.bounds or part.right.bounds or result.summed:
        return None
    if part.left.dtype not in (*HALVES, "float32") or result.expression.dtype != load(0, computed(part.left.dtype)).dtype:
        return None
    return _as(spec, 1, lead * part.m) or _as(spec, lead, part.m)


def _as(spec: Contract, batch: int, m: int) -> _Matrices | None:
    """The product as ``batch`` ones of ``m`` rows, if all views have strides in these axes; ``batch`` 1 is one tall matrix."""
    (part,), (result,) = spec.parts, spec.results
    n, k = part.n, part.k
    left = _strides(part.left.view, (batch, m, k))
    stacked = batch == 1 and prod(part.batch) > 1  # with the same right matrix for all of the stack
    right_view = _without_batch(part.right.view, len(part.batch)) if stacked else part.right.view
    right = None if right_view is None else _strides(right_view, (batch, n, k))
    out = _strides(result.view, (batch, m, n))
    left_order, right_order = _order(left, (batch, m, k)), _order(right, (batch, n, k))
    if left_order is None or right_order is None or _order(out, (batch, m, n)) is not False:
        return None
    operands = []
    for o in spec.operands:
        found = _operand(o.source, o.dtype, _strides(o.view, (batch, m, n)), (batch, m, n))
        if found is None:
            return None
        operands.append(found)
    return _Matrices(batch, m, left_order, not right_order, tuple(operands))


def _without_batch(view: View, axes: int) -> View | None:
    """A view without its first axes, along which nothing changes."""
    if any(d.stride and d.size > 1 for axis in view.axes[:axes] for d in axis):
        return None
    return View(view.axes[axes:], view.offset)


def _strides(view: View, shape: Sequence[int]) -> Strides | None:
    """The strides of a view at the start of its buffer, seen in a shape."""
    found = view.reshaped(tuple(shape)) if view.offset == 0 else None
    if found is None:
        return None
    strides = []
    for axis, size in zip(found.axes, shape, strict=True):
        digits = [d for d in axis if d.size > 1]
        if len(digits) > 1:
            return None
        strides.append(digits[0].stride if size > 1 else 0)
    a, b, c = strides
    return a, b, c


def _order(strides: Strides | None, shape: Strides) -> bool | None:
    """False for row-major matrices one after the other, True for transposed ones, else None."""
    if strides is None:
        return None
    _, m, k = shape
    for transposed, wanted in ((False, (m * k, k, 1)), (True, (m * k, 1, m))):
        if all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True)):
            return transposed
    return None


def _operand(source: int, of: str, strides: Strides | None, shape: Strides) -> _Side | None:
    """An operand whose elements lie one after the other along the axes that it has; None for others."""
    if strides is None:
        return None
    own = [(s, name, n) for s, name, n in zip(strides, ("batch", "m", "n_vectors"), shape, strict=True) if s and n > 1]
    own.sort(reverse=True)
    expected = 1
    for stride, _, n in reversed(own):
        if stride != expected:
            return None
        expected *= n
    return _Side(source, of, tuple(name for _, name, _ in own), tuple(n for *_, n in own))
