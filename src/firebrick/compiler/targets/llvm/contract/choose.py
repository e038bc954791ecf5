"""``choose``: selects the tile sizes of a product and how its operands are read.

The choice depends on the problem and the target only, never on the number of threads or on timings, so the order of every sum,
and with it every bit of the result, is a property of the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from firebrick.compiler.targets.llvm.contract.dot import COLUMNS, LONGEST, suits_dot
from firebrick.compiler.targets.llvm.contract.problem import Operand, Problem, Result, period
from firebrick.compiler.targets.llvm.contract.writer import bytes_of, compute_type
from firebrick.compiler.targets.llvm.target import Target

DIRECT, UNIT, PHASE = "direct", "unit", "phase"
SMALL = 2 << 20  # bytes of an operand that stays in second and third level caches, so that packing it gains nothing


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to compute a contraction.

    Attributes:
        mr: Rows of the micro-kernel's tile.
        nr: Columns of the tile, whole vectors.
        kc: Steps of k in a block; a multiple of the lanes of a vector, unless there is one block only.
        mc: Rows of a work unit, a multiple of ``mr``.
        nc: Columns of a work unit, a multiple of ``nr``.
        a: ``direct``, read without packing; ``unit``, packed by each work unit; ``phase``, packed once by a kernel before.
        b: The same for B.
        staged: Whether C is computed in scratch memory and written at the end, because of its layout or dtype.
        splits: Number of parts of k that separate work units sum; a second kernel adds the parts in order.
        dots: Whether sums are vectorised along k, for few rows; then only ``nc`` of the other fields is used.
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


def choose(p: Problem, target: Target) -> Variant:
    """The variant of a contraction.

    Args:
        p: The problem, simplified.
        target: What it is computed on.
    """
    type_ = compute_type(p.c.dtype)
    size = bytes_of(type_)
    vl = target.width_bits // (8 * size)
    if p.empty:
        return Variant(1, vl, vl, 1, vl, DIRECT, DIRECT, False)
    if suits_dot(p):
        each = -(-p.n // COLUMNS)
        nc = min(each, max(1, -(-each // 32), int(2e5 / (2.0 * p.m * COLUMNS * p.k)))) * COLUMNS
        return Variant(p.m, COLUMNS, p.k, p.m, nc, DIRECT, DIRECT, True, dots=True)
    mr, vectors = _tile(p, target, vl)
    nr = vectors * vl
    b = DIRECT if reads_directly(p.b, type_) and p.b.lanes[0].stride == 1 and _few_uses(p.m, p.k, p.n, nr, size) else UNIT
    once = b == DIRECT and p.m <= mr and p.k <= LONGEST  # nothing is read twice, so k needs no cache blocking
    kc = max(1, p.k) if once else _k_block(p.k, nr, vl, size, _whole(p.b, vl))
    staged = not stores_directly(p, nr) or (kc < p.k and p.c.dtype not in ("float32", "float64"))
    batch = prod(p.batch)
    a = DIRECT if reads_directly(p.a, type_) and _calm(p.m, p.k, p.a, p.n <= nr, size) else UNIT
    mc, nc = _unit(p, mr, nr, kc, size, batch, a == b == DIRECT)
    if b == DIRECT and p.m <= mr and kc < p.k:  # B is read once: long contiguous segments are fastest
        kc, nc = min(kc, 32), max(nc, -(-p.n // (8 * nr)) * nr)
    if a == UNIT and (p.n > nc or (kc % vl and kc < p.k)):
        a = PHASE
    return Variant(mr, nr, kc, mc, nc, a, b, staged, _splits(p, mc, nc, kc, batch, vl))


def reads_directly(x: Operand, type_: str) -> bool:
    """Whether a micro-kernel can read an operand without packing."""
    plain = x.dtype == {"float": "float32", "double": "float64"}[type_]
    return plain and len(x.lanes) == 1 and len(x.k) == 1 and not x.bounds


def stores_directly(p: Problem, nr: int) -> bool:
    """Whether a micro-kernel can write its tile to C directly: contiguous rows with one row stride."""
    return in_runs(p.c, nr) and (p.c.lanes[-1].stride == 1 or p.n == 1)


def in_runs(x: Result, nr: int) -> bool:
    """Whether the lanes of each tile are on one axis, and the rows too, so that one stride addresses each."""
    return len(x.rows) == 1 and (len(x.lanes) == 1 or x.lanes[-1].size % nr == 0)


def _tile(p: Problem, target: Target, vl: int) -> tuple[int, int]:
    """Rows and vectors of the tile: those with the fewest estimated cycles for all tiles, edges included.

    A step of a tile takes a cycle for two multiply-adds or two loads, and at least the latency of a multiply-add.
    """
    free = target.registers - 1  # one register holds the broadcast element of A
    best, found = float("inf"), (1, 1)
    for vectors in (2, 1, 3, 4, 6, 8):
        most = min(28, (free - vectors) // vectors)
        if most < 1:
            continue
        tiles = -(-p.m // most)
        rows = -(-p.m // tiles)
        whole, rest = divmod(p.m, rows)
        cycles = whole * _cycles(rows, vectors) + (_cycles(rest, vectors) if rest else 0)
        panels, left = divmod(p.n, vectors * vl)
        cost: float = cycles * panels
        if left:
            tail = -(-left // vl)
            cost += whole * _cycles(rows, tail) + (_cycles(rest, tail) if rest else 0)
        if cost < best * 0.97:  # a later shape must be clearly better, since the estimate is rough
            best, found = cost, (rows, vectors)
    return found


def _cycles(rows: int, vectors: int) -> float:
    return max(rows * vectors / 2, (rows + vectors) / 2, 4.0) + 0.25


def _k_block(k: int, nr: int, vl: int, size: int, whole: int) -> int:
    """Steps of k in a block, so that a panel of B fills two thirds of a 48 KiB first-level cache; blocks have similar sizes."""
    step = vl if whole == 1 else whole
    most = max(step, min(384, (32 << 10) // (nr * size)) // step * step)
    if k <= most * 3 // 2:
        return max(1, k)
    blocks = -(-k // most)
    return -(-k // (blocks * step)) * step


def _whole(b: Operand, vl: int) -> int:
    """Steps of k that a block should contain whole: the taps of a kernel, or a row of an image that is not whole vectors."""
    last = b.k[-1]
    if period(b) == 1 and len(b.k) > 1 and last.stride == 1 and last.size % vl and last.size <= 2 * vl:
        return last.size
    return period(b)


def _few_uses(m: int, k: int, n: int, nr: int, size: int) -> bool:
    """Whether B is read so few times, or is so small, that a packed copy costs more than it saves."""
    return m <= 32 or n <= nr or k * n * size <= SMALL


def _calm(m: int, k: int, a: Operand, once: bool, size: int) -> bool:
    """Whether several rows of A can be read at once without conflict misses in the caches."""
    if a.k[0].stride == 1:
        return not _collides(a.lanes[0].stride * size) or (m * k * size <= SMALL and a.lanes[0].stride * size % 4096 != 0)
    return a.lanes[0].stride == 1 and (once or m * k * size <= SMALL)


def _collides(stride: int) -> bool:
    # rows 2 KiB or a multiple apart share few sets of a first-level cache, whose sets repeat every 4 KiB
    return abs(stride) % 2048 == 0 and stride != 0


def _unit(p: Problem, mr: int, nr: int, kc: int, size: int, batch: int, direct: bool) -> tuple[int, int]:
    """Rows and columns of a work unit: a block of A in half of a second-level cache, and enough units for several threads."""
    few = (8 if direct else 96) << 10
    if p.k > 4 * p.n and p.m * p.n <= few:  # a small result of long sums: one unit, whose k is split instead, see _splits
        return -(-p.m // mr) * mr, -(-p.n // nr) * nr
    rows, columns = -(-p.m // mr), -(-p.n // nr)
    mc = min(rows, max(1, (448 << 10) // (kc * size * mr)))
    nc = max(1, 256 // nr)
    wanted = min(16 if p.flops > 2e8 else 8, max(1, int(p.flops / 1.5e6))) / batch
    if -(-rows // mc) * -(-columns // nc) < wanted:  # first narrower units, which only read A again
        nc = max(1, 64 // nr, min(nc, int(columns * -(-rows // mc) / wanted)))
    if -(-rows // mc) * -(-columns // nc) < wanted:  # then lower units, each of which packs B again
        mc = min(mc, max(2 if direct else -(-128 // mr), int(rows * -(-columns // nc) / wanted)))
    return -(-rows // -(-rows // mc)) * mr, -(-columns // -(-columns // nc)) * nr


def _splits(p: Problem, mc: int, nc: int, kc: int, batch: int, vl: int) -> int:
    """Number of parts of k; more than 1 for a result with too few tiles for several threads."""
    units = batch * -(-p.m // mc) * -(-p.n // nc)
    if units >= 8 or p.flops < 8e6 or p.k < 4 * kc:
        return 1
    return max(1, min(8 // units, p.k // (2 * kc)))
