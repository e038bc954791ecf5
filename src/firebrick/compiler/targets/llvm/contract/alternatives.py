"""``alternatives``: other ways to compute a contraction than ``choose`` selects, for the autotuner to measure.

Tiles, work units and packing do not change which numbers are combined in which order; blocks and parts of k do, and so do
other algorithms of convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import FORWARD, INPUT
from firebrick.compiler.targets.llvm.contract.choose import (
    DIRECT,
    PHASE,
    UNIT,
    Variant,
    choose,
    k_step,
    reads_directly,
    stores_directly,
    tile_cycles,
)
from firebrick.compiler.targets.llvm.contract.direct import suits_col2im, suits_depthwise, suits_groups
from firebrick.compiler.targets.llvm.contract.ir_builder import bytes_of, compute_type
from firebrick.compiler.targets.llvm.contract.problem import Problem, matrix_layout, problem_of
from firebrick.compiler.targets.llvm.contract.sides import oriented
from firebrick.compiler.targets.llvm.contract.taps import tap_sums
from firebrick.compiler.targets.llvm.contract.winograd import tiling
from firebrick.compiler.targets.llvm.target import Target

PATCHES, WINOGRAD = "patches", "winograd"
"""Algorithms of convolutions: a product over patches, and one of transforms."""
_FLOPS = 4e6  # least flops of a part of a split k


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to compute a contraction.

    Attributes:
        name: For people, and in records.
        order: Order of combination; empty for that of the default.
        algorithm: ``PATCHES`` or ``WINOGRAD``; empty for that of the default.
        blocks: Fields of ``Variant`` that differ from what ``choose`` selects.
        cost: Estimated time, in units of the default's.
    """

    name: str
    order: str = ""
    algorithm: str = ""
    blocks: tuple[tuple[str, int | str | bool], ...] = ()
    cost: float = 1.0

    def adjusted(self, p: Problem, v: Variant, target: Target) -> Variant:
        """The variant of a problem with these blocks, where it would have had ``v``."""
        if not self.blocks or p.empty:
            return v
        new = dict(self.blocks)
        if v.dots and not new.get("dots", True):
            v = choose(p, target, dots=False)
        changed = replace(v, **new)  # type: ignore[arg-type]
        return _consistent(p, changed, target, "kc" in new)


def _consistent(p: Problem, v: Variant, target: Target, blocked: bool) -> Variant:
    """The variant with what follows from its tile, its blocks of k and its packing.

    Args:
        p: The problem.
        v: The variant.
        target: The target.
        blocked: Whether the blocks of k are other ones than ``choose`` selects. Those that it selects stay as they are, since
            they decide which numbers are added in which order.
    """
    if v.dots:
        return v
    type_ = compute_type(p.c.dtype)
    vl = target.width_bits // (8 * bytes_of(type_))
    step = k_step(p.b, vl)
    kc = -(-v.kc // step) * step if blocked and v.kc < p.k else v.kc
    mc, nc = -(-v.mc // v.mr) * v.mr, -(-v.nc // v.nr) * v.nr
    staged = not stores_directly(p, v.nr) or (kc < p.k and p.c.dtype not in ("float32", "float64"))
    b = v.b if v.b != DIRECT or (reads_directly(p.b, type_) and p.b.lanes[0].stride == 1) else UNIT
    a = v.a if v.a != DIRECT or reads_directly(p.a, type_) else UNIT
    a = PHASE if a == UNIT and (p.n > nc or (kc % vl and kc < p.k)) else a
    return replace(v, kc=kc, mc=mc, nc=nc, staged=staged, a=a, b=b)


def alternatives(spec: Contract, target: Target) -> list[Alternative]:
    """The alternatives of a contraction, those of the default's order first."""
    g = spec.convolution
    p = problem_of(spec.parts[0])
    c = matrix_layout(spec.results[0].dtype, spec.results[0].view) if g is None or g.direction == FORWARD else p.c
    p, _ = oriented(p, c)
    if p.empty:
        return []
    special, winograd = False, False
    if g is not None:
        plain = len(spec.results) == 1 and spec.results[0].expression.op == "load"
        few = (suits_groups(g) or suits_depthwise(g)) and (plain or g.direction != FORWARD)
        taps = g.direction not in (FORWARD, INPUT) and tap_sums(g, target) is not None
        special = few or taps or (g.direction == INPUT and suits_col2im(g, target))
        winograd = g.direction in (FORWARD, INPUT) and tiling(g, target, adjoint=g.direction == INPUT) is not None
    found = [] if special else list(_blocks(p, target))
    if special:
        found.append(Alternative(PATCHES, PATCHES, PATCHES, cost=1.5))
    if winograd:
        found.append(Alternative(WINOGRAD, WINOGRAD, WINOGRAD, cost=0.6))
    return found


def _blocks(p: Problem, target: Target) -> Iterator[Alternative]:
    v = choose(p, target)
    seen = {v}

    def new(name: str, cost: float, order: str = "", **blocks: int | str | bool) -> Iterator[Alternative]:
        made = Alternative(name, order, "", tuple(blocks.items()), cost)
        found = made.adjusted(p, v, target)
        if found not in seen:
            seen.add(found)
            yield made

    if v.dots:
        for columns in (v.nc // 2, v.nc * 2, v.nc * 4):
            nc = columns // v.nr * v.nr  # whole groups, which a kernel computes
            if nc:
                yield from new(f"nc={nc}", 1.1, nc=nc)
        yield from new("blocked", 1.2, "blocked", dots=False)
        return
    size = bytes_of(compute_type(p.c.dtype))
    vl = target.width_bits // (8 * size)
    least = tile_cycles(p, vl, v.mr, v.nr // vl)
    for vectors in (1, 2, 3, 4, 6):
        for part in (1, 2):
            mr = min(28, (target.registers - 1 - vectors) // vectors, p.m) // part
            if mr < 1 or vectors * vl > max(vl, -(-p.n // vl) * vl):
                continue
            mr = -(-p.m // -(-p.m // mr))
            cost = tile_cycles(p, vl, mr, vectors) / least
            if cost < 1.6:
                yield from new(f"mr={mr} nr={vectors * vl}", cost, mr=mr, nr=vectors * vl)
    for a in (DIRECT, UNIT, PHASE):
        yield from new(f"a={a}", 1.05, a=a)
    for b in (DIRECT, UNIT, PHASE):
        yield from new(f"b={b}", 1.05, b=b)
    for times, text in ((2.0, "×2"), (0.5, "/2")):
        yield from new(f"mc{text}", 1.02, mc=max(v.mr, int(v.mc * times)))
        yield from new(f"nc{text}", 1.02, nc=max(v.nr, int(v.nc * times)))
    for kc in (128, 256, 512, 1024):
        if kc < p.k and kc != v.kc:
            yield from new(f"kc={kc}", 1.1, f"kc={kc}", kc=kc)
    for splits in (2, 4, 8):
        if splits != v.splits and p.k >= 64 * splits and p.flops / splits >= _FLOPS:
            kc = min(v.kc, -(-p.k // splits))
            yield from new(f"splits={splits}", 1.1, f"kc={kc} splits={splits}", splits=splits, kc=kc)
