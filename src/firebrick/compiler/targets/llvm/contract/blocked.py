"""Kernels of a problem and a variant: the loops of a work unit around packing and micro-kernels.

A contraction is one kernel, or several that run one after another: packing of A or B, the product, and the sum over the parts
of a split k. Their grids depend on shapes alone. Each element of C is computed by one work unit, in a fixed order of sums,
whichever thread runs it.

The loops of a work unit are, from the outside: blocks of k, panels of B, panels of A. A panel of B stays in the first-level
cache while it is multiplied by every panel of A of the unit, which stay in the second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import gcd, prod

from firebrick.compiler.targets.llvm.contract.choose import (
    DIRECT,
    PHASE,
    UNIT,
    Variant,
    choose,
    has_single_strides,
    stores_directly,
)
from firebrick.compiler.targets.llvm.contract.dot import COLUMNS, dots
from firebrick.compiler.targets.llvm.contract.epilogue import Epilogue, put, stored, values
from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, bytes_of, compute_type, plain
from firebrick.compiler.targets.llvm.contract.micro import Strides, Tile, micro_kernel
from firebrick.compiler.targets.llvm.contract.omitted import flag_nan, mend_if, mending
from firebrick.compiler.targets.llvm.contract.pack import Panels, pack_panel, power_of_two
from firebrick.compiler.targets.llvm.contract.problem import FactorLayout, MatrixLayout, Problem, period, row_major
from firebrick.compiler.targets.llvm.contract.sides import oriented
from firebrick.compiler.targets.llvm.memory import stored_type, tail_mask
from firebrick.compiler.targets.llvm.target import Target


@dataclass(frozen=True, slots=True)
class ContractionKernel:
    """One function ``void name(ptr bufs, i64 begin, i64 end, ptr scratch, ptr faults)`` and its grid.

    Attributes:
        name: Of the function.
        grid: Number of work units.
        scratch: Bytes of memory that a worker needs, aligned to 64.
        flops: Flops of the whole grid.
        packs: Position in ``bufs`` of the operand that the kernel packs, and the only one that it reads; -1 for other kernels.
    """

    name: str
    grid: int
    scratch: int
    flops: float
    packs: int = -1


@dataclass(frozen=True, slots=True)
class Contraction:
    """A contraction as code.

    ``bufs`` holds, in this order, A, B, the operands of the epilogue, its results, and memory of ``workspace`` bytes, aligned
    to 64, which passes values from one kernel to the next.

    Attributes:
        kernels: In the order in which they run.
        functions: Text of the functions, by name. Names that begin with ``micro.`` contain a hash of the text, so that equal
            micro-kernels of several contractions are one function in a module.
        declarations: Declarations that a module needs.
        workspace: Bytes.
        variant: Variant that the kernels implement.
        in_place: Whether a result may be stored in the memory of an operand of the epilogue with the same layout: each element
            is read for the last time before it is written.
    """

    kernels: tuple[ContractionKernel, ...]
    functions: dict[str, str]
    declarations: frozenset[str]
    workspace: int
    variant: Variant
    in_place: bool = True

    @property
    def module(self) -> str:
        """A module of LLVM IR with these functions alone."""
        return "\n".join([*sorted(self.declarations), *self.functions.values(), ""])


SIGNATURE = "(ptr noalias %bufs, i64 %begin, i64 %end, ptr noalias %scratch, ptr noalias %faults) nounwind"


def contraction(
    p: Problem, target: Target, name: str, epilogue: Epilogue | None = None, variant: Variant | None = None,
    adjusted: Callable[[Problem, Variant, Target], Variant] | None = None,
) -> Contraction:  # fmt: skip
    """Kernels for a problem.

    Args:
        p: The problem.
        target: Processor to generate for.
        name: Name of the functions, to which each kernel adds a suffix.
        epilogue: The results; by default the product, with the layout ``p.c``.
        variant: Variant to implement; by default that of ``choose``.
        adjusted: Changes the variant of ``choose``.
    """
    epilogue, sides = (epilogue or stored(p.c)).simplified(), (0, 1)
    if variant is None:
        p, transposed = oriented(p, epilogue.results[0][1])
        if transposed:
            epilogue, sides = epilogue.swapped(), (1, 0)
    same = [r for _, r in epilogue.results if epilogue.plain or r.dtype == plain(compute_type(p.c.dtype))]
    p = replace(p, c=same[0]) if same else p
    if variant is None:
        variant = choose(p, target)
        variant = adjusted(p, variant, target) if adjusted is not None else variant
    return _BlockedGenerator(p, target, name, epilogue, variant, sides).generate()


Consumer = Callable[[IRBuilder, Sequence[str], Sequence[Value], str], None]


def staged_contraction(p: Problem, target: Target, name: str, variant: Variant, consumer: Consumer) -> Contraction:
    """Kernels that compute all of C for one index of the batch in scratch memory, where ``consumer`` reads it.

    Args:
        p: Problem; the layout of C is ignored.
        target: Processor to generate for.
        name: Name of the functions.
        variant: Variant with all rows and columns in one work unit, staged, with one split. Rows of C in scratch memory are
            ``variant.nc`` elements apart.
        consumer: ``(builder, pointers, batch, scratch)``: generates the code that reads C; pointers are those of A, B and the
            result.
    """
    return _BlockedGenerator(p, target, name, stored(p.c), variant, consumer=consumer).generate()


def _aligned(n: int) -> int:
    return -(-n // 64) * 64


# Destinations of tiles of C: C itself; C as an accumulator, to which the epilogue is applied in place after the last block of
# k; the epilogue, in registers; scratch memory of one tile, or of a work unit's block, which the epilogue reads; a partial sum
# over a part of a split k.
_C, _ACCUMULATED, _REGISTERS, _TILE, _BLOCK, _PARTIAL = "c", "accumulated", "registers", "tile", "block", "partial"


class _BlockedGenerator:
    def __init__(
        self, p: Problem, target: Target, name: str, epilogue: Epilogue, v: Variant, sides: tuple[int, int] = (0, 1),
        consumer: Consumer | None = None,
    ) -> None:  # fmt: skip
        self.slots = dict(zip("ab", sides, strict=True))  # positions of A and B in bufs
        self.p, self.target, self.name, self.epilogue, self.v, self.consumer = p, target, name, epilogue, v, consumer
        self.declared: set[str] = set()
        self.functions: dict[str, str] = {}
        self.kernels: list[ContractionKernel] = []
        self.micro_names: dict[tuple[int, int], str] = {}
        self.type = compute_type(p.c.dtype)
        self.size = bytes_of(self.type)
        self.vl = target.width_bits // (8 * self.size)
        self.plain = plain(self.type)
        self.space_slot = 2 + len(epilogue.views)
        self.k_part = p.k if v.splits == 1 else -(-p.k // (v.splits * v.kc)) * v.kc
        self.splits = max(1, -(-p.k // max(1, self.k_part)))
        self.k_blocks = max(1, -(-self.k_part // v.kc))
        self.sides = {
            "a": Panels(p.a, p.m, p.k, v.mr, self.block(v.a, p.a)),
            "b": Panels(p.b, p.n, p.k, v.nr, self.block(v.b, p.b)),
        }
        self.workspace = 0
        self.destination = self._destination()
        self.mends = p.omits and bool(p.a.bounds or p.b.bounds)

    def _destination(self) -> str:
        """The destination of tiles of C."""
        p, v, epilogue, once = self.p, self.v, self.epilogue, self.k_blocks == 1
        if self.splits > 1:
            return _PARTIAL
        if self.consumer is None and not v.staged:
            if epilogue.plain and stores_directly(p, v.nr) and (once or p.c.dtype == self.plain):
                return _C
            contiguous = all(has_single_strides(x, v.nr) and x.lanes[-1].stride in (0, 1) for x in epilogue.views)
            if once and contiguous and epilogue.light and not epilogue.plain:
                return _REGISTERS
            if not once and stores_directly(p, v.nr) and p.c.dtype == self.plain and p.c in self.results:
                return _ACCUMULATED
        return _TILE if once and self.consumer is None else _BLOCK

    def block(self, how: str, x: FactorLayout) -> int:
        """Steps of k that are packed at once: a block of the product, or about as many as a first-level cache holds."""
        step = period(x) if period(x) > 1 else self.vl
        return self.v.kc if how == UNIT else -(-128 // step) * step

    def emitter(self) -> IRBuilder:
        return IRBuilder(self.target, self.declared)

    def generate(self) -> Contraction:
        p, v = self.p, self.v
        if v.dots and not p.empty:
            self.dot_products()
        elif not p.empty:
            phases = {side: self.packing(side) for side in "ab" if getattr(v, side) == PHASE and p.k}
            partial = self.workspace
            if self.splits > 1:
                self.workspace += _aligned(self.splits * prod(p.batch) * p.m * p.n * self.size)
            self.product(phases, partial)
            if self.splits > 1:
                self.sum_of_parts(partial)
        return Contraction(
            tuple(self.kernels), self.functions, frozenset(self.declared), self.workspace, v, self.destination != _ACCUMULATED
        )  # fmt: skip

    def kernel(self, e: IRBuilder, ending: str, grid: int, scratch: int, flops: float = 0.0, packs: int = -1) -> None:
        e.do("ret void")
        name = f"{self.name}.{ending}" if ending else self.name
        self.functions[name] = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
        self.kernels.append(ContractionKernel(name, grid, scratch, flops, packs))

    # ---- packing as a separate kernel
    def packed_batch(self, side: str) -> list[int]:
        """Sizes of the batch axes of a packed operand; 1 for axes along which it is broadcast."""
        strides = self.sides[side].operand.batch
        return [n if s else 1 for n, s in zip(self.p.batch, strides, strict=True)]

    def packing(self, side: str) -> int:
        """Write the kernel that packs a whole operand; returns its offset in the workspace."""
        x, at = self.sides[side], self.workspace
        sizes = self.packed_batch(side)
        panels = -(-x.lanes // x.width)
        count = x.elements(x.k, self.vl)
        self.workspace += _aligned(prod(sizes) * panels * count * self.size)
        e = self.emitter()
        e.start("%entry")
        source, space = e.operand(self.slots[side]), e.operand(self.space_slot)
        with e.loop("%begin", "%end") as unit:
            *batch, panel = e.split(unit.index, [*sizes, panels])
            to = e.at(e.at(space, at, "i8"), e.mul(unit.index, count), self.type)
            lane = e.mul(panel, x.width)
            with e.loop(0, x.k, x.block) as k:  # blocks that fit in a first-level cache
                length = e.min(x.block, e.sub(x.k, k.index))
                pack_panel(e, x, source, batch, lane, k.index, length, e.at(to, e.mul(k.index, x.width), self.type))
        self.kernel(e, f"pack_{side}", prod(sizes) * panels, 0, packs=self.slots[side])
        return at

    # ---- the product
    def product(self, phases: dict[str, int], partial: int) -> None:
        p, v = self.p, self.v
        e = self.emitter()
        e.start("%entry")
        sources, views = self.pointers(e)
        space = e.operand(self.space_slot) if self.workspace else ""
        # The last index is fastest: adjacent work units, which one thread takes in turn, read the same columns of B, or the
        # same rows of A if these are more. Samples of a batch are many rows, so a thread takes neighbouring ones.
        across, down, tall = -(-p.n // v.nc), -(-p.m // v.mc), p.m > p.n
        sizes = [*p.batch, self.splits, *((down, across) if tall else (across, down))]
        step = {s: x.elements(min(v.kc, p.k) if getattr(v, s) == UNIT else p.k, self.vl) for s, x in self.sides.items()}
        a_bytes = _aligned(v.mc // v.mr * step["a"] * self.size) if v.a == UNIT else 0
        b_bytes = _aligned(step["b"] * self.size) if v.b == UNIT else 0
        rows = {_TILE: v.mr, _BLOCK: min(v.mc, -(-p.m // v.mr) * v.mr)}.get(self.destination, 0)
        stage_bytes = _aligned(rows * self.stage_row * self.size)
        a_scratch, b_scratch = "%scratch", e.at("%scratch", a_bytes, "i8")
        stage = e.at("%scratch", a_bytes + b_bytes, "i8")
        flags = self.mends and self.destination != _PARTIAL
        flag = e.at("%scratch", a_bytes + b_bytes + stage_bytes, "i8") if flags else ""
        blocked = self.k_blocks > 1
        with e.loop("%begin", "%end") as unit:
            *batch, part, slow, fast = e.split(unit.index, sizes)
            it, jt = (slow, fast) if tall else (fast, slow)
            m0, n0 = e.mul(it, v.mc), e.mul(jt, v.nc)
            m1, n1 = e.min(e.add(m0, v.mc), p.m), e.min(e.add(n0, v.nc), p.n)
            if flags:
                e.do(f"store i8 0, ptr {flag}")
            k_first = e.mul(part, self.k_part)
            k_end = e.min(e.add(k_first, self.k_part), p.k) if self.splits > 1 else p.k
            # if k is 0, the loop runs once, so that the epilogue is applied to zeros
            with e.loop(k_first, k_end if p.k else 1, max(1, v.kc)) as kb:
                k0: Value = kb.index if p.k else 0
                kc = e.min(v.kc, e.sub(k_end, k0)) if blocked or self.splits > 1 else p.k
                first = e.compare("eq", k0, k_first) if blocked else "true"
                if v.a == UNIT and p.k:
                    with e.loop(m0, m1, v.mr) as i:
                        to = e.at(a_scratch, e.mul(e.div(e.sub(i.index, m0), v.mr), step["a"]), self.type)
                        pack_panel(e, self.sides["a"], sources["a"], batch, i.index, k0, kc, to)
                with e.loop(n0, n1, v.nr) as j:
                    b = self.source(e, "b", sources["b"], space, phases, batch, j.index, k0, b_scratch, step["b"])
                    if v.b == UNIT and p.k:
                        pack_panel(e, self.sides["b"], sources["b"], batch, j.index, k0, kc, b_scratch)
                    with e.loop(m0, m1, v.mr) as i:
                        if v.a == UNIT:
                            a = e.at(a_scratch, e.mul(e.div(e.sub(i.index, m0), v.mr), step["a"]), self.type)
                        else:
                            a = self.source(e, "a", sources["a"], space, phases, batch, i.index, k0, a_scratch, step["a"])
                        c, locations = self.target_of(e, views, space, partial, stage, batch, part, i.index, j.index, m0, n0)
                        self.call(e, i.index, j.index, [a, b, kc, c, first, *locations, *([flag] if flags else [])])
                        m2, n2 = e.min(e.add(i.index, v.mr), m1), e.min(e.add(j.index, v.nr), n1)
                        if self.destination == _TILE:
                            self.write_out(e, views, batch, stage, i.index, m2, j.index, n2)
                        elif self.destination == _ACCUMULATED:
                            with e.when(e.compare("sge", e.add(k0, v.kc), k_end)):
                                self.write_out(e, views, batch, c, i.index, m2, j.index, n2)
            if self.consumer is not None:
                self.consumer(e, [sources["a"], sources["b"], *views], batch, stage)
            elif self.destination == _BLOCK:
                self.write_out(e, views, batch, stage, m0, m1, n0, n1)
            if flags:
                self.mend_if(e, flag, [*sources.values(), *views], [*batch, m0, m1, n0, n1])
        self.kernel(e, "", prod(sizes), a_bytes + b_bytes + stage_bytes + 64 * flags, p.flops)

    def pointers(self, e: IRBuilder) -> tuple[dict[str, str], list[str]]:
        """The pointers of A and B, and those of the epilogue's views."""
        return {s: e.operand(i) for s, i in self.slots.items()}, [e.operand(i) for i in range(2, self.space_slot)]

    @property
    def stage_row(self) -> int:
        """Stride of the rows of C that the epilogue reads, in elements."""
        return {_TILE: self.v.nr, _ACCUMULATED: self.p.c.rows[0].stride}.get(self.destination, self.v.nc)

    @property
    def results(self) -> list[MatrixLayout]:
        """The layouts of the results."""
        return [r for _, r in self.epilogue.results]

    def source(
        self, e: IRBuilder, side: str, pointer: str, space: str, phases: dict[str, int], batch: Sequence[Value], lane: Value,
        k0: Value, scratch: str, step: int,
    ) -> str:  # fmt: skip
        """The pointer that the micro-kernel reads a panel from."""
        x, how = self.sides[side], getattr(self.v, side)
        if not self.p.k:
            return pointer
        if how == DIRECT:
            o = x.operand
            offset = e.dot([*batch, lane, k0], [*o.batch, o.lanes[0].stride, o.k[0].stride], o.offset)
            return e.at(pointer, offset, self.type)
        if how == UNIT:
            return scratch
        panels = -(-x.lanes // x.width)
        index = e.dot(batch, [s if n > 1 else 0 for n, s in zip(self.packed_batch(side), self.strides(side), strict=True)])
        panel = e.add(e.mul(index, panels), e.div(lane, x.width))
        at = e.add(e.mul(panel, step), e.mul(k0, x.width))
        return e.at(e.at(space, phases[side], "i8"), at, self.type)

    def strides(self, side: str) -> tuple[int, ...]:
        return row_major(self.packed_batch(side))

    def target_of(
        self, e: IRBuilder, views: Sequence[str], space: str, partial: int, stage: str, batch: Sequence[Value], part: Value,
        row: Value, column: Value, m0: Value, n0: Value,
    ) -> tuple[str, list[str]]:  # fmt: skip
        """The pointer that the micro-kernel writes its tile to, and the pointers of an epilogue in registers."""
        p = self.p
        if self.destination == _PARTIAL:
            index = e.dot([part, *batch, row, column], row_major((self.splits, *p.batch, p.m, p.n)))
            return e.at(e.at(space, partial, "i8"), index, self.type), []
        if self.destination == _TILE:
            return stage, []
        if self.destination == _BLOCK:
            return e.at(stage, e.add(e.mul(e.sub(row, m0), self.v.nc), e.sub(column, n0)), self.type), []
        offsets = self.columns(e, column, self.rows(e, batch, row))
        locations = zip(views, self.epilogue.views, offsets, strict=True)
        out = [e.at(pointer, offset, stored_type(x.dtype, e)) for pointer, x, offset in locations]
        if self.destination == _REGISTERS:
            return "null", out
        return out[len(self.epilogue.operands) + self.results.index(p.c)], []

    def rows(self, e: IRBuilder, batch: Sequence[Value], row: Value) -> list[Value]:
        """The offset of a row in each view of the epilogue."""
        offsets = []
        for x in self.epilogue.views:
            rows = e.split(row, [a.size for a in x.rows]) if any(a.stride for a in x.rows) else [0] * len(x.rows)
            offsets.append(e.dot([*batch, *rows], [*x.batch, *(a.stride for a in x.rows)], x.offset))
        return offsets

    def columns(self, e: IRBuilder, column: Value, rows: Sequence[Value]) -> list[Value]:
        """The offset of an element of a row in each view of the epilogue."""
        offsets: list[Value] = []
        split: dict[tuple[int, ...], list[Value]] = {}
        for x, row in zip(self.epilogue.views, rows, strict=True):
            sizes = tuple(a.size for a in x.lanes)
            if sizes not in split:
                split[sizes] = e.split(column, sizes)
            offsets.append(e.dot(split[sizes], [a.stride for a in x.lanes], row))
        return offsets

    def dot_products(self) -> None:
        """Write the kernel for few rows, which is vectorised along k."""
        p, v = self.p, self.v
        e = self.emitter()
        e.start("%entry")
        sources, views = self.pointers(e)
        n = COLUMNS  # reduced to lanes that are on one axis in every view, so that a single stride addresses them
        for view in self.epilogue.views:
            n = power_of_two(view.lanes[-1].size, n) if len(view.lanes) > 1 else n
        with e.loop("%begin", "%end") as unit:
            *batch, j = e.split(unit.index, [*p.batch, -(-p.n // v.nc)])
            n0 = e.mul(j, v.nc)
            with e.loop(n0, e.min(e.add(n0, v.nc), p.n), COLUMNS) as column:
                sums = dots(e, p, sources["a"], sources["b"], batch, column.index, self.vl, self.type)
                for row, x in enumerate(sums):
                    rows = self.rows(e, batch, row)
                    for at in range(0, COLUMNS, n):
                        part = x if n == COLUMNS else e.shuffle(x, None, list(range(at, at + n)), COLUMNS, self.type)
                        first = e.add(column.index, at)
                        if n == 1:
                            with e.when(e.compare("slt", first, p.n)):
                                one = e.let(f"extractelement <1 x {self.type}> {part}, i64 0")
                                self.finish(e, views, rows, first, one, 1, None)
                            continue
                        # vectors that begin beyond the last column are skipped: the epilogue requires that a mask's first
                        # lane is set
                        mask = e.lanes_below(e.sub(p.n, first), n) if p.n % n else None
                        if mask is None and p.n % COLUMNS == 0:
                            self.finish(e, views, rows, first, part, n, None)
                        else:
                            with e.when(e.compare("slt", first, p.n)):
                                self.finish(e, views, rows, first, part, n, mask)
        self.kernel(e, "", prod(p.batch) * -(-p.n // v.nc), 0, p.flops)

    # ---- micro-kernels
    def call(self, e: IRBuilder, row: Value, column: Value, args: list[Value]) -> None:
        """Call the micro-kernel of a tile: that of complete tiles, or one of the smaller tiles at the edges of C."""
        p, v = self.p, self.v
        row_tail, column_tail = p.m % v.mr, p.n % v.nr
        text = ", ".join(f"{t} {x}" for t, x in zip(["ptr", "ptr", "i64", "ptr", "i1"] + ["ptr"] * 99, args, strict=False))
        rows = [(v.mr, "sle" if row_tail else "")] if p.m >= v.mr else []
        rows += [(row_tail, "sgt" if rows else "")] if row_tail else []
        columns = [(v.nr, "sle" if column_tail else "")] if p.n >= v.nr else []
        columns += [(column_tail, "sgt" if columns else "")] if column_tail else []
        for r, how_row in rows:
            for c, how_column in columns:
                conditions = []
                if how_row:
                    conditions.append(e.compare(how_row, e.add(row, v.mr), p.m))
                if how_column:
                    conditions.append(e.compare(how_column, e.add(column, v.nr), p.n))
                name = self.micro(r, c)
                if not conditions:
                    e.do(f"call void @{name}({text})")
                    continue
                test = conditions[0] if len(conditions) == 1 else e.let(f"and i1 {conditions[0]}, {conditions[1]}")
                with e.when(test):
                    e.do(f"call void @{name}({text})")

    def micro(self, rows: int, columns: int) -> str:
        """The name of a micro-kernel, which is generated at its first use."""
        p, v = self.p, self.v
        if (rows, columns) in self.micro_names:
            return self.micro_names[rows, columns]

        def side(which: str, width: int) -> Strides:
            o = self.sides[which].operand
            return Strides(o.lanes[0].stride, o.k[0].stride) if getattr(v, which) == DIRECT else Strides(1, width)

        c_row = {_C: p.c.rows[0].stride, _REGISTERS: 0, _PARTIAL: p.n}.get(self.destination, self.stage_row)
        t = Tile(
            rows, columns, self.vl, self.type, side("a", v.mr), side("b", v.nr), v.b != DIRECT, c_row,
            p.c.dtype if self.destination == _C else self.plain, self.destination not in (_TILE, _BLOCK), self.k_blocks,
            p.k if self.k_blocks == self.splits == 1 else gcd(v.kc, p.k), self.mends and self.destination != _PARTIAL,
        )  # fmt: skip
        text = micro_kernel(self.emitter(), t, self.epilogue if self.destination == _REGISTERS else None)
        name = f"micro.{sha256(text.encode()).hexdigest()[:20]}"
        self.functions[name] = f"define internal void @{name}{text}"
        self.micro_names[rows, columns] = name
        return name

    # ---- writing C
    def write_out(
        self, e: IRBuilder, views: Sequence[str], batch: Sequence[Value], stage: str, m0: Value, m1: Value, n0: Value, n1: Value
    ) -> None:  # fmt: skip
        """Apply the epilogue to rows and columns of C in memory at ``stage``, with a row stride of ``stage_row`` elements."""
        with e.loop(m0, m1) as row:
            start = e.mul(e.sub(row.index, m0), self.stage_row)

            def element(column: Value, mask: str | None) -> str:
                at = e.add(start, e.sub(column, n0))
                mask = mask if self.destination == _ACCUMULATED else None  # scratch memory is padded to whole vectors
                return e.load(e.at(stage, at, self.type), self.vl, self.plain, mask)

            self.write_row(e, views, batch, row.index, n0, n1, element)

    def write_row(
        self, e: IRBuilder, views: Sequence[str], batch: Sequence[Value], row: Value, n0: Value, n1: Value,
        element: Callable[[Value, str | None], str],
    ) -> None:  # fmt: skip
        """Apply the epilogue to columns [n0, n1) of a row, vector by vector; ``n0`` is a multiple of a vector's lanes."""
        p, n = self.p, self.vl
        inner = min([x.lanes[-1].size for x in self.epilogue.views if len(x.lanes) > 1], default=p.n)
        rows = self.rows(e, batch, row)
        with e.loop(n0, n1, n) as column:
            left = e.sub(n1, column.index)
            if inner < p.n and inner % n:  # a vector must not cross the end of an axis, beyond which the stride changes
                left = e.min(left, e.sub(inner, e.mod(column.index, inner)))
                column.step = e.min(left, n)
            mask = tail_mask(e, str(left), n) if p.n % n or inner % n else None
            self.finish(e, views, rows, column.index, element(column.index, mask), n, mask)

    def finish(
        self, e: IRBuilder, views: Sequence[str], rows: Sequence[Value], column: Value, x: str, n: int, mask: str | None
    ) -> None:
        """Apply the epilogue to lanes of a row, and store them."""
        steps = [r.lanes[-1].stride for r in self.epilogue.views]
        locations = list(zip(views, self.columns(e, column, rows), steps, strict=True))
        put(e, values(e, self.epilogue, x, locations, n, mask), n, mask)

    # ---- the sum over parts of k
    def sum_of_parts(self, partial: int) -> None:
        """Write the kernel that sums the partial products, first to last, and writes C."""
        p, n = self.p, self.vl
        e = self.emitter()
        e.start("%entry")
        sources, views = self.pointers(e)
        space = e.at(e.operand(self.space_slot), partial, "i8")
        count = prod(p.batch) * p.m * p.n
        with e.loop("%begin", "%end") as unit:
            *batch, row = e.split(unit.index, [*p.batch, p.m])
            start = e.mul(unit.index, p.n)

            def element(column: Value, mask: str | None) -> str:
                at = e.add(start, column)
                x = e.load(e.at(space, at, self.type), n, self.plain, mask)
                for s in range(1, self.splits):
                    y = e.load(e.at(space, e.add(at, s * count), self.type), n, self.plain, mask)
                    x = e.let(f"fadd <{n} x {self.type}> {x}, {y}")
                if self.mends:
                    flag_nan(e, [x], n, self.type, "%scratch")
                return x

            if self.mends:
                e.do("store i8 0, ptr %scratch")
            self.write_row(e, views, batch, row, 0, p.n, element)
            if self.mends:
                self.mend_if(e, "%scratch", [*sources.values(), *views], [*batch, row, e.add(row, 1), 0, p.n])
        self.kernel(e, "sum", prod(p.batch) * p.m, 64 * self.mends, float(self.splits * count))

    # ---- products outside of bounds
    def mend_if(self, e: IRBuilder, flag: str, pointers: Sequence[str], ranges: Sequence[Value]) -> None:
        """Call ``mend`` for rows and columns if ``flag`` was set; see ``omitted.mend_if``."""
        mend_if(e, flag, self.mend(), pointers, ranges)

    def mend(self) -> str:
        """The name of the function that computes NaN of C again."""
        name = f"{self.name}.mend"
        if name not in self.functions:
            self.functions[name] = mending(self.emitter(), self.p, name)
        return name
