"""``choose``: selects the tile sizes of a product and how its operands are read.

The choice depends on the problem and the target only, never on the number of threads or on timings. The shapes therefore
determine the order of every sum, and with it every bit of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from firebrick.compiler.targets.llvm.contract.dot import COLUMNS, LONGEST, suits_dot
from firebrick.compiler.targets.llvm.contract.ir_builder import bytes_of, compute_type
from firebrick.compiler.targets.llvm.contract.problem import FactorLayout, MatrixLayout, Problem, period
from firebrick.compiler.targets.llvm.target import Target

DIRECT, UNIT, PHASE = "direct", "unit", "phase"
SMALL = 2 << 20  # maximum bytes of an operand that is assumed to stay in the second and third level caches without packing


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to compute a contraction.

    Attributes:
        mr: Rows of the micro-kernel's tile.
        nr: Columns of the tile, a multiple of the lanes of a vector.
        kc: Steps of k in a block; a multiple of the lanes of a vector, unless there is one block only.
        mc: Rows of a work unit, a multiple of ``mr``.
        nc: Columns of a work unit, a multiple of ``nr``.
        a: ``direct``: read without packing. ``unit``: packed by each work unit. ``phase``: packed once, by a preceding kernel.
        b: The same for B.
        staged: Whether C is computed in scratch memory and stored at the end, because of its layout or dtype.
        splits: Number of parts of k (split-k), summed by separate work units; a second kernel adds the partial sums in order.
        dots: Whether sums are vectorised along k, for few rows. Of the other fields, only ``nc`` is used then.
    """

    mr: int
    nr: int
    kc: int
    mc: int
    nc: int
    a: str
    b: str
    staged: bool
    splits: int = 1
    dots: bool = False


def choose(p: Problem, target: Target, dots: bool = True) -> Variant:
    """The variant of a contraction.

    Args:
        p: The problem, simplified.
        target: Processor to generate for.
        dots: Whether sums may be vectorised along k.
    """
    type_ = compute_type(p.c.dtype)
    size = bytes_of(type_)
    vl = target.width_bits // (8 * size)
    if p.empty:
        return Variant(1, vl, vl, 1, vl, DIRECT, DIRECT, False)
    if dots and suits_dot(p):
        groups = -(-p.n // COLUMNS)
        # about 2e5 flops a work unit, which outweigh its dispatch, but at most 32 work units
        nc = min(groups, max(1, -(-groups // 32), int(2e5 / (2.0 * p.m * COLUMNS * p.k)))) * COLUMNS
        return Variant(p.m, COLUMNS, p.k, p.m, nc, DIRECT, DIRECT, True, dots=True)
    mr, vectors = _tile(p, target, vl)
    nr = vectors * vl
    b_direct = reads_directly(p.b, type_) and p.b.lanes[0].stride == 1
    b = DIRECT if b_direct and _packing_costs_more(p.m, p.k, p.n, nr, size) else UNIT
    once = b == DIRECT and p.m <= mr and p.k <= LONGEST  # no element is read twice, so k needs no cache blocking
    kc = max(1, p.k) if once else _k_block(p.k, nr, vl, size, k_step(p.b, vl))
    staged = not stores_directly(p, nr) or (kc < p.k and p.c.dtype not in ("float32", "float64"))
    batch = prod(p.batch)
    a = DIRECT if reads_directly(p.a, type_) and _rows_avoid_conflicts(p.m, p.k, p.a, p.n <= nr, size) else UNIT
    mc, nc = _unit_size(p, mr, nr, kc, size, batch, a == b == DIRECT)
    # B is read once, from memory: few steps of many columns read longer contiguous segments of its rows
    if b == DIRECT and p.m <= mr and kc < p.k:
        kc, nc = min(kc, 32), max(nc, -(-p.n // (8 * nr)) * nr)
    # several work units would pack the same rows of A, or blocks would not begin at multiples of a vector, as packing requires
    if a == UNIT and (p.n > nc or (kc % vl and kc < p.k)):
        a = PHASE
    return Variant(mr, nr, kc, mc, nc, a, b, staged, _splits(p, mc, nc, kc, batch, vl))


def reads_directly(x: FactorLayout, type_: str) -> bool:
    """Whether a micro-kernel can read an operand without packing."""
    plain = x.dtype == {"float": "float32", "double": "float64"}[type_]
    return plain and len(x.lanes) == 1 and len(x.k) == 1 and not x.bounds


def stores_directly(p: Problem, nr: int) -> bool:
    """Whether a micro-kernel can store its tile in C directly: its rows are contiguous and have a single stride."""
    return has_single_strides(p.c, nr) and (p.c.lanes[-1].stride == 1 or p.n == 1)


def has_single_strides(x: MatrixLayout, nr: int) -> bool:
    """Whether a single stride addresses the rows of each tile, and a single stride its lanes."""
    return len(x.rows) == 1 and (len(x.lanes) == 1 or x.lanes[-1].size % nr == 0)


def _tile(p: Problem, target: Target, vl: int) -> tuple[int, int]:
    """Rows and vectors of the tile that minimize the estimated cycles of all tiles, partial ones at the edges included.

    Two multiply-adds or two loads are assumed to take one cycle. A step takes at least the latency of a multiply-add, since
    it depends on the previous step.
    """
    # of the registers, one holds the broadcast element of A, ``vectors`` hold a row of B, the others the tile itself
    free = target.registers - 1
    best, shape = float("inf"), (1, 1)
    for vectors in (2, 1, 3, 4, 6, 8):
        max_rows = min(28, (free - vectors) // vectors)
        if max_rows < 1:
            continue
        tiles = -(-p.m // max_rows)
        rows = -(-p.m // tiles)
        cost = tile_cycles(p, vl, rows, vectors)
        if cost < best * 0.97:  # the estimate is rough, so a later candidate must be better by 3 %
            best, shape = cost, (rows, vectors)
    return shape


def tile_cycles(p: Problem, vl: int, rows: int, vectors: int) -> float:
    """Estimated cycles of one step of k of all tiles, partial ones at the edges included.

    Args:
        p: The problem.
        vl: Lanes of a vector.
        rows: Rows of a tile.
        vectors: Vectors of a row of a tile.
    """
    whole, rest = divmod(p.m, rows)
    cycles = whole * _cycles(rows, vectors) + (_cycles(rest, vectors) if rest else 0)
    panels, left = divmod(p.n, vectors * vl)
    cost: float = cycles * panels
    if left:
        tail = -(-left // vl)
        cost += whole * _cycles(rows, tail) + (_cycles(rest, tail) if rest else 0)
    return cost


def _cycles(rows: int, vectors: int) -> float:
    """Estimated cycles of one step of a tile: multiply-adds, loads, or latency, and the loop's own instructions."""
    return max(rows * vectors / 2, (rows + vectors) / 2, 4.0) + 0.25


def _k_block(k: int, nr: int, vl: int, size: int, step: int) -> int:
    """Steps of k in a block: a panel of B fills two thirds of a 48 KiB first-level cache, and blocks have similar sizes."""
    largest = max(step, min(384, (32 << 10) // (nr * size)) // step * step)
    if k <= largest * 3 // 2:  # one block somewhat too large costs less than adding a second one to C
        return max(1, k)
    blocks = -(-k // largest)
    return -(-k // (blocks * step)) * step


def k_step(b: FactorLayout, vl: int) -> int:
    """The number of steps that a block of k should be a multiple of: the taps of a kernel, a row of an image whose length is
    no multiple of a vector, or a vector."""
    taps, last = period(b), b.k[-1]
    if taps == 1 and len(b.k) > 1 and last.stride == 1 and last.size % vl and last.size <= 2 * vl:
        return last.size
    return taps if taps > 1 else vl


def _packing_costs_more(m: int, k: int, n: int, nr: int, size: int) -> bool:
    """Whether packing B costs more than it saves: B is read only a few times, or fits in the caches."""
    return m <= 32 or n <= nr or k * n * size <= SMALL


def _rows_avoid_conflicts(m: int, k: int, a: FactorLayout, once: bool, size: int) -> bool:
    """Whether several rows of A can be read in turn without conflict misses in the caches."""
    if a.k[0].stride == 1:
        return not _collides(a.lanes[0].stride * size) or (m * k * size <= SMALL and a.lanes[0].stride * size % 4096 != 0)
    return a.lanes[0].stride == 1 and (once or m * k * size <= SMALL)


def _collides(stride: int) -> bool:
    # a first-level cache's sets repeat every 4 KiB: rows at a multiple of 2 KiB fall into one or two sets, which overflow
    return abs(stride) % 2048 == 0 and stride != 0


def _unit_size(p: Problem, mr: int, nr: int, kc: int, size: int, batch: int, direct: bool) -> tuple[int, int]:
    """Rows and columns of a work unit: its block of A fits in half of a second-level cache, and there are enough units for
    several threads."""
    small = (8 if direct else 96) << 10
    if p.k > 4 * p.n and p.m * p.n <= small:  # a small result of long sums is one unit; ``_splits`` divides k instead
        return -(-p.m // mr) * mr, -(-p.n // nr) * nr
    rows, columns = -(-p.m // mr), -(-p.n // nr)
    mc = min(rows, max(1, (448 << 10) // (kc * size * mr)))
    nc = max(1, 256 // nr)
    wanted = min(16 if p.flops > 2e8 else 8, max(1, int(p.flops / 1.5e6))) / batch
    if -(-rows // mc) * -(-columns // nc) < wanted:  # first fewer columns, which costs only further reads of A
        nc = max(1, 64 // nr, min(nc, int(columns * -(-rows // mc) / wanted)))
    if -(-rows // mc) * -(-columns // nc) < wanted:  # then fewer rows, although each unit packs B again
        mc = min(mc, max(2 if direct else -(-128 // mr), int(rows * -(-columns // nc) / wanted)))
    return -(-rows // -(-rows // mc)) * mr, -(-columns // -(-columns // nc)) * nr


def _splits(p: Problem, mc: int, nc: int, kc: int, batch: int, vl: int) -> int:
    """Number of parts of k: more than 1 if C has too few blocks to occupy several threads."""
    units = batch * -(-p.m // mc) * -(-p.n // nc)
    if units >= 8 or p.flops < 8e6 or p.k < 4 * kc:
        return 1
    return max(1, min(8 // units, p.k // (2 * kc)))
