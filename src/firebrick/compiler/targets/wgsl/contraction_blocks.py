"""Contractions by blocks: an item computes several rows and columns of C, so each element that it reads is used several times.

Products and the three convolutions are one kernel, as in the naive form. Each element of C is summed in the order of k, in
sections of at most ``SECTION`` products; the sums of sections are added with what each addition loses, so that errors do not
grow with k. Up to ``SECTION`` the bits are those of the naive form. The digits of k are nested loops, so nothing is divided in
them. Items next to each other have columns next to each other: a block's columns are a number of items apart.

Products may share the rows that they read: ``width`` neighbouring items have the same rows. Each of them reads one step of
these, and the items take by shuffles what the others have read; each element of A is then read once by them, without a barrier
where shuffles are subgroup operations. Steps are added in the same order, so bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import and_

from firebrick.compiler.kernel.ir import For, Let, Shuffle
from firebrick.compiler.naive.building import INPUT, RESULT, ZERO, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.naive.nests import Operands
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.parts import Factor, Part
from firebrick.scalar.expr import FLOATS, Expr, absolute, const, kept, load, local, minimum, select, walk
from firebrick.scalar.storage import computed

LEAST_FLOPS = 1 << 18
"""Minimum work for which blocks pay: their code takes longer to compile."""
SECTION = 128
"""Maximum number of products that are summed one after the other."""
_ITEMS, _ITEMS_OF_PROCESSOR = 1024, 128
"""Minimum number of items of a launch with blocks, so that all of a GPU, or all cores, have work."""
_BLOCKS = ((8, 4), (4, 4), (2, 4), (2, 2))
"""Rows and columns of blocks, the largest first."""
_BLOCKS_OF_PROCESSOR = ((8, 8), *_BLOCKS)
"""Those of a driver that computes on the processor, whose cache holds what registers do not."""
SHAPES = ((8, 8), (16, 4), (8, 4), (4, 8), (4, 4), (2, 4), (2, 2), (1, 4), (1, 1))
"""Rows and columns of blocks among which the tuner chooses; the larger ones need more registers than most GPUs have."""
SHARED = ((8, 8), (8, 4), (4, 4), (1, 1))
"""Rows and columns of blocks with shared rows among which the tuner chooses."""
GROUP = 64
"""Items of a group that shares rows: several times ``width`` items."""
_LANE, _PLACE = local("lane", "int64"), local("place", "int64")
_STATEMENTS = 1200
"""Maximum number of operations on the elements of a block after its sums."""


def block_of(spec: Contract, processor: bool = False) -> tuple[int, int] | None:
    """Rows and columns of the block of an item; None if the naive form is as good.

    Args:
        spec: The contraction.
        processor: Whether the driver computes on the processor.
    """
    if spec.cost.flops < LEAST_FLOPS and all(p.k <= SECTION for p in spec.parts):
        return None
    least = _ITEMS_OF_PROCESSOR if processor else _ITEMS
    for rows, columns in _BLOCKS_OF_PROCESSOR if processor else _BLOCKS:
        items = sum(prod(p.domain[:-2]) * -(-p.m // rows) * -(-p.n // columns) for p in spec.parts)
        if items >= least and holds_block(spec, rows, columns):
            return rows, columns
    return 1, 1


def holds_block(spec: Contract, rows: int, columns: int) -> bool:
    """Whether results have this many rows and columns, and their kernel is not too long to compile."""
    steps = 8 + sum(e.op not in ("load", "const") for e in walk(r.expression for r in spec.results))
    return all(p.m >= rows and p.n >= columns for p in spec.parts) and rows * columns * steps <= _STATEMENTS


def shares_rows(spec: Contract) -> bool:
    """Whether rows may be shared: both operands are matrices, whose steps are an axis of one stride."""
    factors = [f for p in spec.parts for f in (p.left, p.right)]
    return all(p.k for p in spec.parts) and all(not f.bounds and len(f.view.axes[-1]) == 1 for f in factors)


def contraction_by_blocks(spec: Contract, rows: int, columns: int, width: int = 1) -> Naive:
    """The launches of a contraction, one for each part.

    Args:
        spec: The contraction.
        rows: Of the block of an item.
        columns: Of the block of an item.
        width: The number of items that share rows, a power of two up to ``GROUP``; 1 unless ``shares_rows``.
    """
    return Naive(tuple(_part(spec, p, rows, columns, width) for p in spec.parts))


def _part(spec: Contract, part: Part, rows: int, columns: int, width: int) -> NaiveLaunch:
    batch, blocks = part.domain[:-2], -(-part.n // columns)
    kind = f"contract_by_{width}" if width > 1 else "contract_blocks"
    b = Builder(kind, (*batch, -(-part.m // rows), -(-blocks // width)))
    dtype = computed(spec.dtype)
    *outer, i, j = b.positions
    m, n = b.number(part.m), b.number(part.n)
    inside: Expr | None = None  # whether the item has a block of its own
    if width > 1:
        j = b.let(j * width + (_LANE & (width - 1)), "column")
        inside = b.let((_block(width) < b.number(b.grid)) & (j < b.number(blocks)), "inside")
    at_rows = _apart(b, i, rows, part.m, "row")
    at_columns = _apart(b, j, columns, part.n, "column")
    left = _FactorLanes(b, part.left, [[*outer, minimum(r, m - 1)] for r in at_rows])
    right = _FactorLanes(b, part.right, [[*outer, minimum(c, n - 1)] for c in at_columns])
    whole = len(spec.parts) == 1
    results = [(k, x, b.place(x.view if whole else part.result)) for k, r in enumerate(spec.results) for x in r.reals]
    operands = Operands(b, spec.operands, first=1)
    totals = [[b.variable(const(0, dtype), "total") for _ in at_columns] for _ in at_rows]

    def step(xs: Sequence[_Element], ys: Sequence[_Element]) -> None:
        for (x, x_inside), row in zip(xs, totals, strict=True):
            for (y, y_inside), total in zip(ys, row, strict=True):
                within = [c for c in (x_inside, y_inside) if c is not None and part.omits]
                new = total.local + x * y
                b.assign(total, select(reduce(and_, within), new, total.local) if within else new)

    sums = _Sums(b, [t for row in totals for t in row])
    if width > 1:
        _along_shared_rows(b, part, left, right, step, sums, width)
    else:
        _along_k(b, part, left, right, step, sums)
    for r, row in zip(at_rows, totals, strict=True):
        for c, total in zip(at_columns, row, strict=True):

            def write(r: Expr = r, c: Expr = c, value: Expr = total.local) -> None:
                at = [*outer, r, c]
                values = operands.values([x.expression for _, x, _ in results], at, {load(0, dtype): value})
                values = [b.let(v) for v in values]
                for (k, x, placed), v in zip(results, values, strict=True):
                    b.store(Buffer(RESULT, k), x.dtype, b.address(placed, at), v)

            b.when((r < m) & (c < n) if inside is None else inside & (r < m) & (c < n), write)
    return b.step() if width == 1 else _grouped(b, width)


def _block(width: int) -> Expr:
    """The number of the block of ``width`` items that an item is of."""
    return _PLACE * (GROUP // width) + (_LANE >> (width.bit_length() - 1))


def _grouped(b: Builder, width: int) -> NaiveLaunch:
    """The launch of a kernel whose items are ``width`` items of a group each; those behind the last have its position."""
    b.body.insert(0, Let("item", minimum(_block(width), b.number(b.grid) - 1)))
    made = b.step()
    function = replace(made.function, outer=("place",), item="lane", group=GROUP)
    return replace(made, function=function, grid=(-(-b.grid * width // GROUP), GROUP))


def _apart(b: Builder, position: Expr, count: int, size: int, stem: str) -> list[Expr]:
    """The positions of a block along an axis, each as far from the next as there are blocks."""
    step = b.number(-(-size // count), "blocks")
    return [position, *(b.let(position + step * k, stem) for k in range(1, count))]


class _Sums:
    """The sums of sections: ``close`` adds those of a section to the sums so far, ``finish`` is what comes after the last.

    Source: Kahan, "Further remarks on reducing truncation errors", CACM 8, 1965.
    """

    def __init__(self, b: Builder, totals: Sequence[Let]) -> None:
        self._b, self._totals = b, totals
        self._sums: list[tuple[Let, Let | None]] = []

    def open(self) -> None:
        """Before the first section."""
        for t in self._totals:
            zero = const(0, t.value.dtype)
            lost = self._b.variable(zero, "lost") if t.value.dtype in FLOATS else None
            self._sums.append((self._b.variable(zero, "sum"), lost))

    def close(self) -> None:
        """After a section."""
        b = self._b
        for t, (total, lost) in zip(self._totals, self._sums, strict=True):
            if lost is None:
                b.assign(total, total.local + t.local)
            else:
                x = b.let(t.local + lost.local, "x")
                s = b.let(kept(total.local + x), "s")
                back = b.let(kept(s - total.local), "back")
                error = b.let(kept(kept(total.local - kept(s - back)) + kept(x - back)), "error")
                b.assign(lost, select(absolute(error) < float("inf"), error, 0.0))
                b.assign(total, s)
            b.assign(t, const(0, t.value.dtype))

    def finish(self) -> None:
        """After the last section: the sums are where those of a section were."""
        for t, (total, _) in zip(self._totals, self._sums, strict=True):
            self._b.assign(t, total.local)


_Element = tuple[Expr, Expr | None]
"""The value of an element, and whether it is inside of its bounds, where that is in doubt."""
_Step = Callable[[Sequence[_Element], Sequence[_Element]], None]
"""Adds the products of the elements of a step."""


def _along_shared_rows(
    b: Builder, part: Part, left: _FactorLanes, right: _FactorLanes, step: _Step, sums: _Sums, width: int
) -> None:  # fmt: skip
    """The loops over k, of which each item reads every ``width``-th step of the rows; steps behind the last are not taken."""
    k, own = b.number(part.k), b.let(_LANE & (width - 1), "own")

    def along(first: Expr, end: Expr) -> None:
        def several(at: Expr) -> None:
            mine = [x for x, _ in left.elements([b.let(minimum(at + own, k - 1), "mine")])]

            def one(s: Expr) -> None:
                shared = [Shuffle(b.fresh("shared"), x, s, width) for x in mine]
                b.body += shared
                step([(local(x.name, x.value.dtype), None) for x in shared], right.elements([b.let(at + s, "step")]))

            b.loop(ZERO, minimum(end - at, width), one)

        b.loop(first, end, several, width)

    if part.k <= SECTION:
        along(ZERO, k)
        return

    def section(first: Expr) -> None:
        along(first, minimum(first + SECTION, k))
        sums.close()

    sums.open()
    b.loop(ZERO, k, section, SECTION)
    sums.finish()


def _along_k(
    b: Builder, part: Part, left: _FactorLanes, right: _FactorLanes, step: _Step, sums: _Sums
) -> None:  # fmt: skip
    """The loops over k: a loop for each digit if both factors have the same ones."""
    sizes = [[d.size for d in f.view.axes[-1]] for f in (part.left, part.right)]
    if sizes[0] == sizes[1]:
        _sections(b, sizes[0], lambda digits: step(left.elements(digits), right.elements(digits)), sums)
        return

    def each(digits: list[Expr]) -> None:
        (k,) = digits
        xs = left.elements(b.digits(k, [size for size, _ in left.axis]))
        step(xs, right.elements(b.digits(k, [size for size, _ in right.axis])))

    _sections(b, [part.k], each, sums)


def _sections(b: Builder, sizes: Sequence[int], step: Callable[[list[Expr]], None], sums: _Sums) -> None:
    """Nested loops over an index space in sections of at most ``SECTION`` positions, each followed by ``sums.close``."""
    if prod(sizes) <= SECTION:
        b.loops(b.numbers(sizes), step)
        return
    level = next(k for k in range(len(sizes)) if prod(sizes[k + 1 :]) <= SECTION)
    count = max(1, SECTION // max(1, prod(sizes[level + 1 :])))
    outer, size, inner = b.numbers(sizes[:level]), b.number(sizes[level]), b.numbers(sizes[level + 1 :])
    sums.open()

    def along(digits: list[Expr]) -> None:
        first = b.fresh("first")
        start = local(first, "int64")

        def section() -> None:
            name = b.fresh("k")
            counter = local(name, "int64")
            body = b.block(lambda: b.loops(inner, step, [*digits, counter]))
            b.body.append(For(name, start, minimum(start + count, size), 1, body))
            sums.close()

        b.body.append(For(first, ZERO, size, count, b.block(section)))

    b.loops(outer, along)
    sums.finish()


class _FactorLanes:
    """A factor at several positions of batch and lane.

    Attributes:
        axis: Size and stride of the digits of k.
    """

    def __init__(self, b: Builder, factor: Factor, positions: Sequence[Sequence[Expr]]) -> None:
        self.b, self.factor = b, factor
        placed = b.place(factor.view)
        self.axis = placed.axes[-1]
        numbers = [(b.number(x.start), b.numbers(x.lanes), b.number(x.size), b.numbers(x.k)) for x in factor.bounds]
        self._bounds = [(size, coefficients) for _, _, size, coefficients in numbers]
        self._starts: list[Expr] = []
        self._coordinates: list[list[Expr]] = []
        for position in positions:
            at = placed.offset
            lanes: list[Expr] = []
            for axis, p in zip(placed.axes, position, strict=False):
                lanes = b.digits(b.let(p, "position"), [size for size, _ in axis])
                at = at + b.along(axis, lanes)
            self._starts.append(b.let(at, "start"))
            coordinates = []
            for first, steps, _, _ in numbers:
                coordinate = first
                for digit, step in zip(lanes, steps, strict=True):
                    coordinate = coordinate + digit * step
                coordinates.append(b.let(coordinate, "coordinate"))
            self._coordinates.append(coordinates)

    def elements(self, digits: Sequence[Expr]) -> list[_Element]:
        """The elements at an index of k, 0 where a coordinate is outside, and whether it is inside, where that is in doubt."""
        b, dtype = self.b, self.factor.dtype
        offset = b.let(b.along(self.axis, digits), "offset")
        moves = []
        for _, coefficients in self._bounds:
            move: Expr = const(0, "int64")
            for digit, coefficient in zip(digits, coefficients, strict=True):
                move = move + digit * coefficient
            moves.append(b.let(move, "move"))
        out: list[tuple[Expr, Expr | None]] = []
        for start, coordinates in zip(self._starts, self._coordinates, strict=True):
            at = start + offset
            inside: Expr | None = None
            for coordinate, move, (size, _) in zip(coordinates, moves, self._bounds, strict=True):
                where = b.let(coordinate + move, "where")
                here = (where >= 0) & (where < size)
                inside = here if inside is None else inside & here
            if inside is not None:
                inside = b.let(inside, "inside")
                at = select(inside, at, 0)  # some element, whose value does not matter
            x = b.let(b.read(Buffer(INPUT, self.factor.source), dtype, at), "x")
            out.append((x if inside is None else b.let(select(inside, x, 0), "x"), inside))
        return out
