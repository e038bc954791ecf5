"""Tiled attention and its gradient: a kernel holds the scores of one block of rows by one block of keys at a time.

Keys (for the gradient, values too) are packed into transposed panels first, so that a block of scores is a matrix product.
Weights are computed row by row; their products with the values read the values from memory, not from panels. The forward
kernel keeps each row's maximum score and its Σ exp, and rescales its partial results when a larger score appears. The gradient
kernel computes both again, and the weighted mean of the weights' cotangents, before it computes the weights. The gradients of
keys and values are summed over blocks of rows in a fixed order.

With ``causal``, blocks of keys that no query of a block of rows sees are skipped. Their weights are 0, and so are the products
with these unless the other factor is infinite or NaN, which kernels look for first.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; Dao et al., "FlashAttention",
arXiv:2205.14135.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from hashlib import blake2b
from math import prod

import numpy as np

from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.targets.llvm import reduction
from firebrick.compiler.targets.llvm.contract.blocked import SIGNATURE
from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, bytes_of, vector
from firebrick.compiler.targets.llvm.contract.micro import Strides, Tile, micro_kernel
from firebrick.compiler.targets.llvm.contract.omitted import flag_nan
from firebrick.compiler.targets.llvm.contract.pack import Panels, pack_panel
from firebrick.compiler.targets.llvm.contract.problem import FactorLayout
from firebrick.compiler.targets.llvm.emit import Emitter, literal
from firebrick.compiler.targets.llvm.host import AS_WRITTEN
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, FLOPS_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.memory import Strip, read
from firebrick.compiler.targets.llvm.native import NativeKernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.indexing import strides_of
from firebrick.core.views import Digit
from firebrick.scalar import math
from firebrick.scalar.expr import load

BLOCK_ROWS = 64
"""Approximate number of rows of a block."""
MAX_VECTORS = 8
"""Maximum number of vectors in a row of a block of scores."""
MIN_CHUNKS = 8
"""Minimum number of work units of the gradient, if there are enough blocks of rows. Each has its own sums of the gradients of
keys and values."""


def lowered(s: Attention, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``."""
    name = f"attention{'_gradient' if s.gradient else ''}_{blake2b(f'{s} {target}'.encode(), digest_size=12).hexdigest()}"
    return (_AttentionGradient if s.gradient else _AttentionForward)(s, target, name).lowered().of(s.sources, len(inputs))


class _AttentionGenerator:
    """Code that the forward kernel and the gradient kernel share."""

    def __init__(self, s: Attention, target: Target, name: str) -> None:
        self.s, self.target, self.name = s, target, name
        self.type = "float" if s.dtype == "float32" else "double"
        self.size = bytes_of(self.type)
        self.vl = target.width_bits // (8 * self.size)
        self.v = vector(self.vl, self.type)
        self.batch = prod(s.lead)
        self.many_registers = target.registers > 16
        # a tile of two vectors: 28 accumulators of 32 registers, or 12 of 16; the others hold B and a broadcast element of A
        max_rows = 14 if self.many_registers else 6
        tiles = -(-min(s.n, BLOCK_ROWS) // max_rows)
        self.tile = -(-min(s.n, BLOCK_ROWS) // tiles)
        self.rows = tiles * self.tile  # of a block
        self.row_blocks = -(-s.n // self.rows)
        self.vectors = min(MAX_VECTORS, -(-s.m // self.vl))
        self.keys = self.vectors * self.vl  # of a block
        self.key_blocks = -(-s.m // self.keys)
        self.last_keys = s.m - (self.key_blocks - 1) * self.keys
        self.declared: set[str] = set()
        self.functions: dict[str, str] = {}
        self.kernels: list[LoweredKernel] = []
        self.temporary: list[int] = []
        self.used = 0  # bytes of scratch
        missing = len(s.lead) + 2 - len(s.mask)
        strides = [0 if a == 1 else b for a, b in zip(s.mask, strides_of(s.mask), strict=True)]
        self.mask_strides = [*[0] * missing, *strides]
        self.skips = s.causal and self.key_blocks > 1  # whether there may be blocks of keys that no query of a block sees

    # ---- kernels

    def emitter(self) -> IRBuilder:
        e = IRBuilder(self.target, self.declared)
        e.start("%entry")
        return e

    def finish(self, e: IRBuilder, ending: str, buffers: Sequence[int], grid: int, cost_us: float) -> None:
        """Complete a kernel: add its text and its launch."""
        e.do("ret void")
        name = f"{self.name}.{ending}" if ending else self.name
        self.functions[name] = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
        self.kernels.append(
            LoweredKernel(NativeKernel(name, "", frozenset(), len(buffers), grid, self.used), tuple(buffers), cost_us)
        )
        self.used = 0

    def lowered_kernels(self, results: int) -> Lowered:
        text = AS_WRITTEN + "\n".join([*sorted(self.declared), *self.functions.values(), ""])
        return Lowered(tuple(self.kernels), tuple(self.temporary), text, (frozenset(),) * results)

    def allocate(self, e: IRBuilder, elements: int) -> str:
        """Allocate elements of the worker's scratch memory, at a multiple of a cache line."""
        at = self.used
        self.used += -(-elements * self.size // 64) * 64
        return e.at("%scratch", at, "i8")

    def panels(self, features: int) -> Panels:
        """The packing of [batch, m, features] into blocks of keys, with a row for each feature."""
        o = FactorLayout(self.s.dtype, (Digit(self.s.m, features),), (Digit(features, 1),), (self.s.m * features,))
        return Panels(o, self.s.m, features, self.keys, features)

    def packing(self, ending: str, features: int, source: int, to: int, flagged: tuple[int, int, int] | None = None) -> None:
        """Write the kernel that packs buffer ``source`` into the panels of buffer ``to``.

        ``flagged`` holds a buffer of keys or values, its features, and the buffer of bytes for its blocks that the kernel sets
        to whether an element is infinite or NaN.
        """
        p = self.panels(features)
        panel_size = p.elements(features, self.vl)
        e = self.emitter()
        pointer, panels = e.operand(0), e.operand(1)
        looked_at, flags = (e.operand(2), e.operand(3)) if flagged else ("", "")
        with e.loop("%begin", "%end") as unit:
            batch, block = e.split(unit.index, [self.batch, self.key_blocks])
            key0, count = self.keys_of(e, block)
            pack_panel(e, p, pointer, [batch], key0, 0, features, e.at(panels, e.mul(unit.index, panel_size), self.type))
            if flagged:
                start = e.mul(e.add(e.mul(batch, self.s.m), key0), flagged[1])
                flag = e.at(flags, unit.index, "i8")
                e.do(f"store i8 0, ptr {flag}")
                self.flag_not_finite(e, e.at(looked_at, start, self.type), e.mul(count, flagged[1]), flag)
        grid = self.batch * self.key_blocks
        self.temporary.append(grid * panel_size * self.size)
        buffers = (source, to, flagged[0], flagged[2]) if flagged else (source, to)
        self.finish(e, ending, buffers, grid, 2.0 * self.temporary[-1] / BYTES_PER_US)

    # ---- blocks that are skipped

    def flag_not_finite(self, e: IRBuilder, pointer: str, count: Value, flag: str) -> None:
        """Set the byte at ``flag`` to 1 if one of contiguous elements is infinite or NaN, whose product with 0 is NaN."""
        with e.loop(0, count, self.vl, [(self.v, "zeroinitializer")]) as i:
            mask = e.lanes_below(e.sub(count, i.index), self.vl)
            x = e.load(e.at(pointer, i.index, self.type), self.vl, self.s.dtype, mask)
            i.next = [e.fma(x, "zeroinitializer", i.values[0], self.vl, self.type)]
        flag_nan(e, i.values, self.vl, self.type, flag)

    def flag_rows(self, e: IRBuilder, rows: Value, totals: str, means: str, flag: str) -> None:
        """Set the byte at ``flag`` to 1 if weights of a row may be NaN, those of keys that it does not see too."""
        ones = literal(1.0, self.s.dtype, self.vl)
        with e.loop(0, rows, self.vl, [(self.v, "zeroinitializer")]) as i:
            mask = e.lanes_below(e.sub(rows, i.index), self.vl)
            total, mean = (e.load(e.at(x, i.index, self.type), self.vl, self.s.dtype, mask) for x in (totals, means))
            if mask is not None:
                total = e.let(f"select {vector(self.vl, 'i1')} {mask}, {self.v} {total}, {self.v} {ones}")
            inverse = e.let(f"fdiv {self.v} {ones}, {total}")
            acc = e.fma(inverse, "zeroinitializer", i.values[0], self.vl, self.type)
            i.next = [e.fma(mean, "zeroinitializer", acc, self.vl, self.type)]
        flag_nan(e, i.values, self.vl, self.type, flag)

    def seen(self, e: IRBuilder, row: Value, key: Value) -> str:
        """Whether a query of the block of rows sees a key of the block of keys (i1), with ``causal``."""
        return e.compare("slt", key, e.add(row, self.rows))

    def not_finite(self, e: IRBuilder, flag: str) -> str:
        """Whether a byte is set (i1)."""
        return e.let(f"icmp ne i8 {e.let(f'load i8, ptr {flag}, align 1')}, 0")

    @contextmanager
    def unless_skipped(self, e: IRBuilder, conditions: Callable[[], Sequence[str]]) -> Iterator[None]:
        """Instructions that are executed if one of the conditions (i1) holds, or always if no block is skipped."""
        if not self.skips:
            yield
            return
        with e.when(reduce(lambda x, y: e.let(f"or i1 {x}, {y}"), conditions())):
            yield

    def panel(self, e: IRBuilder, panels: str, batch: Value, block: Value, features: int) -> str:
        """The address of the panel of a block of keys."""
        panel_size = self.panels(features).elements(features, self.vl)
        return e.at(panels, e.mul(e.add(e.mul(batch, self.key_blocks), block), panel_size), self.type)

    # ---- products

    def product(
        self, e: IRBuilder, rows: int, tile: int, columns: int, a: tuple[str, Strides], b: tuple[str, int, bool], kc: Value,
        c: tuple[str, int], first: str = "",
    ) -> None:  # fmt: skip
        """C = A B if ``first`` is true or empty, else C += A B.

        Args:
            e: Builder of the kernel.
            rows: Rows of C.
            tile: Rows of one call of the micro-kernel.
            columns: Columns of C.
            a: Pointer and strides of A, by row and by term.
            b: Pointer of B, stride of its rows, and whether these may be read to the end of their last vector.
            kc: Terms of each sum.
            c: Pointer of C, and stride of its rows.
            first: Condition (i1).
        """
        whole, rest = divmod(rows, tile)
        width = 2 * self.vl
        for at in range(0, columns, width):
            part = min(width, columns - at)
            from_b, to_c = e.at(b[0], at, self.type), e.at(c[0], at, self.type)

            def call(height: int, i: Value, part: int = part, from_b: str = from_b, to_c: str = to_c) -> None:
                # with two blocks, the micro-kernel adds the tile to C unless its argument ``first`` is true
                t = Tile(
                    height, part, self.vl, self.type, a[1], Strides(1, b[1]), b[2], c[1], self.s.dtype, True, 2 if first else 1
                )
                from_a = e.at(a[0], e.mul(i, a[1].lanes), self.type)
                to_row = e.at(to_c, e.mul(i, c[1]), self.type)
                e.do(f"call void @{self.micro(t)}(ptr {from_a}, ptr {from_b}, i64 {kc}, ptr {to_row}, i1 {first or 'true'})")

            if whole == 1:
                call(tile, 0)
            elif whole:
                with e.loop(0, whole * tile, tile) as i:
                    call(tile, i.index)
            if rest:
                call(rest, whole * tile)

    def micro(self, t: Tile) -> str:
        text = micro_kernel(IRBuilder(self.target, self.declared), t, None)
        name = f"micro.{blake2b(text.encode(), digest_size=10).hexdigest()}"
        self.functions[name] = f"define internal void @{name}{text}"
        return name

    # ---- rows

    def vectors_of(self, e: IRBuilder, pointer: str) -> list[str]:
        return [e.load(e.at(pointer, j * self.vl, self.type), self.vl, self.s.dtype) for j in range(self.vectors)]

    def store_all(self, e: IRBuilder, pointer: str, values: Sequence[str]) -> None:
        for j, x in enumerate(values):
            e.store(x, e.at(pointer, j * self.vl, self.type), self.vl, self.s.dtype)

    def load_scalar(self, e: IRBuilder, pointer: str, at: Value) -> str:
        return e.let(f"load {self.type}, ptr {e.at(pointer, at, self.type)}, align {self.size}")

    def store_scalar(self, e: IRBuilder, x: str, pointer: str, at: Value) -> None:
        e.do(f"store {self.type} {x}, ptr {e.at(pointer, at, self.type)}, align {self.size}")

    def number(self, x: float, lanes: int = 1) -> str:
        return literal(float(np.dtype(self.s.dtype).type(x)), self.s.dtype, lanes)

    def exp(self, e: IRBuilder, x: str, lanes: int) -> str:
        return Emitter(e, lanes, lambda _: x).value(math.exp(load(0, self.s.dtype)))

    def for_each_vector(self, e: IRBuilder, count: Value, body: Callable[[Value, int, str | None], None]) -> None:
        """Loop over ``count`` contiguous elements in vectors: ``body(first, lanes, mask)``."""
        with e.loop(0, count, self.vl) as i:
            known = isinstance(count, int) and count % self.vl == 0
            body(i.index, self.vl, None if known else e.lanes_below(e.sub(count, i.index), self.vl))

    def scaled(self, e: IRBuilder, source: str, to: str, count: Value, factor: float) -> None:
        """Copy contiguous elements, multiplied by a constant."""

        def body(at: Value, lanes: int, mask: str | None) -> None:
            x = e.load(e.at(source, at, self.type), lanes, self.s.dtype, mask)
            if factor != 1.0:
                x = e.let(f"fmul {self.v} {x}, {self.number(factor, lanes)}")
            e.store(x, e.at(to, at, self.type), lanes, self.s.dtype, mask)

        self.for_each_vector(e, count, body)

    def fill_zero(self, e: IRBuilder, to: str, count: Value) -> None:
        """Set contiguous elements to 0."""

        def body(at: Value, lanes: int, mask: str | None) -> None:
            e.store("zeroinitializer", e.at(to, at, self.type), lanes, self.s.dtype, mask)

        self.for_each_vector(e, count, body)

    def mask_at(self, e: IRBuilder, pointer: str, batch: Value, row: Value, key: Value) -> str:
        """The address of the mask's element for a query and a key."""
        positions = [*e.split(batch, self.s.lead), row, key]
        return e.at(pointer, e.dot(positions, self.mask_strides), "i8")

    def mask_of_keys(self, e: IRBuilder, pointer: str, batch: Value, row: Value, key: Value) -> list[str]:
        """The attention mask of the query ``row`` for each vector of the block of keys that starts at ``key``."""
        lanes, b = self.vl, vector(self.vl, "i1")
        contiguous = self.mask_strides[-1] == 1
        strip = Strip("bool", self.mask_at(e, pointer, batch, row, key), 1)
        one = ""
        if not contiguous:
            one = e.splat(e.let(f"icmp ne i8 {e.let(f'load i8, ptr {strip.pointer}, align 1')}, 0"), lanes, "i1")
        tail, out = self.s.m % self.keys != 0, []
        for j in range(self.vectors):
            at = j * lanes
            inside = e.lanes_below(e.sub(self.s.m, e.add(key, at)), lanes) if tail else None
            mask = read(e, strip, str(at), lanes, inside or "") if contiguous else one
            if inside is not None:
                mask = e.let(f"and {b} {mask}, {inside}")
            if self.s.causal:
                before = e.lanes_below(e.sub(e.add(row, 1), e.add(key, at)), lanes)
                mask = e.let(f"and {b} {mask}, {before}") if before is not None else mask
            out.append(mask)
        return out

    def unmasked_or(self, e: IRBuilder, mask: str, x: str, other: float) -> str:
        return e.let(f"select {vector(self.vl, 'i1')} {mask}, {self.v} {x}, {self.v} {self.number(other, self.vl)}")

    def initialise_rows(self, e: IRBuilder, rows: Value, maxima: str, *sums: str) -> None:
        """Set the maxima of a block of rows to -inf and their sums to 0, before the first block of keys."""
        with e.loop(0, rows) as i:
            self.store_scalar(e, self.number(float("-inf")), maxima, i.index)
            for to in sums:
                self.store_scalar(e, self.number(0.0), to, i.index)

    def scores(self, e: IRBuilder, a: str, panel: str, features: int, to: str) -> None:
        """The products of a block of rows and a packed block of keys or values."""
        b = panel, self.keys, True
        self.product(e, self.rows, self.tile, self.keys, (a, Strides(features, 1)), b, features, (to, self.keys))

    def masked(self, e: IRBuilder, mask: str, batch: Value, row: Value, key: Value, at: str) -> tuple[list[str], list[str]]:
        """A row's scores, with -inf for masked keys, and the mask."""
        masks = self.mask_of_keys(e, mask, batch, row, key)
        return [self.unmasked_or(e, m, x, float("-inf")) for m, x in zip(masks, self.vectors_of(e, at), strict=True)], masks

    def shift(self, e: IRBuilder, top: str) -> str:
        """The number to subtract from a row's scores: their maximum, or 0 if that is -inf, since -inf - (-inf) is NaN."""
        none = e.let(f"fcmp oeq {self.type} {top}, {self.number(float('-inf'))}")
        return e.let(f"select i1 {none}, {self.type} {self.number(0.0)}, {self.type} {top}")

    def exponentials(
        self,
        e: IRBuilder,
        scores: Sequence[str],
        i: Value,
        first: str,
        maxima: str,
        totals: str,
        rescale: Callable[[str], None],
    ) -> list[str]:
        """exp(score - maximum of the row's scores so far). If that maximum has grown, the row's sums are rescaled."""
        dtype, lanes = self.s.dtype, self.vl
        best = reduction.across(e, "max", dtype, reduction.tree(e, "max", dtype, scores, lanes), lanes)
        old = self.load_scalar(e, maxima, i)
        top = reduction.step(e, "max", dtype, old, best, 1)
        shift = self.shift(e, top)
        wide_shift = e.splat(shift, lanes, self.type)
        powers = [self.exp(e, e.let(f"fsub {self.v} {x}, {wide_shift}"), lanes) for x in scores]
        if self.key_blocks > 1:
            # not in the first block: its sums are 0, and the result's rows are not initialised
            later = e.let(f"xor i1 {first}, true")
            changed = e.let(f"fcmp une {self.type} {top}, {old}")
            with e.when(e.let(f"and i1 {later}, {changed}")):
                factor = self.exp(e, e.let(f"fsub {self.type} {old}, {shift}"), 1)
                self.store_scalar(e, e.let(f"fmul {self.type} {self.load_scalar(e, totals, i)}, {factor}"), totals, i)
                rescale(factor)
        part = reduction.across(e, "sum", dtype, reduction.tree(e, "sum", dtype, powers, lanes), lanes)
        self.store_scalar(e, e.let(f"fadd {self.type} {self.load_scalar(e, totals, i)}, {part}"), totals, i)
        self.store_scalar(e, top, maxima, i)
        return powers

    def inverse_total(self, e: IRBuilder, mask: str, batch: Value, row: Value, i: Value, maxima: str, totals: str) -> str:
        """1 / Σ exp of a row: 0 if all keys are masked; NaN, as in softmax, if not all are, but all scores are -inf."""
        t = self.type
        nothing = e.let(f"fcmp oeq {t} {self.load_scalar(e, maxima, i)}, {self.number(float('-inf'))}")
        with e.when(nothing):
            any_ = self.any_unmasked(e, mask, batch, row)
            self.store_scalar(
                e, e.let(f"select i1 {any_}, {t} {self.number(float('nan'))}, {t} {self.number(float('inf'))}"), totals, i
            )
        return e.let(f"fdiv {t} {self.number(1.0)}, {self.load_scalar(e, totals, i)}")

    def scale_row(self, e: IRBuilder, at: str, factor: str, count: int, to: str = "") -> None:
        """Multiply contiguous elements, padded to a multiple of a vector, in place or into the buffer ``to``."""
        factors = e.splat(factor, self.vl, self.type)
        for j in range(0, count, self.vl):
            x = e.load(e.at(at, j, self.type), self.vl, self.s.dtype)
            mask = e.lanes_below(count - j, self.vl) if to else None
            e.store(e.let(f"fmul {self.v} {x}, {factors}"), e.at(to or at, j, self.type), self.vl, self.s.dtype, mask)

    def any_unmasked(self, e: IRBuilder, pointer: str, batch: Value, row: Value) -> str:
        """Whether any key of a query is not masked (i1), by a loop over the mask."""
        count = e.min(self.s.m, e.add(row, 1)) if self.s.causal else self.s.m
        with e.loop(0, count, 1, [("i1", "false")]) as key:
            byte = e.let(f"load i8, ptr {self.mask_at(e, pointer, batch, row, key.index)}, align 1")
            key.next = [e.let(f"or i1 {key.values[0]}, {e.let(f'icmp ne i8 {byte}, 0')}")]
        return key.values[0]

    def rows_of(self, e: IRBuilder, block: Value) -> tuple[Value, Value]:
        """The first row of a block, and its number of rows."""
        first = e.mul(block, self.rows)
        return first, e.min(self.rows, e.sub(self.s.n, first)) if self.s.n % self.rows else self.rows

    def keys_of(self, e: IRBuilder, block: Value) -> tuple[Value, Value]:
        """The first key of a block, and its number of keys."""
        first = e.mul(block, self.keys)
        return first, e.min(self.keys, e.sub(self.s.m, first)) if self.s.m % self.keys else self.keys


class _AttentionForward(_AttentionGenerator):
    def lowered(self) -> Lowered:
        s = self.s
        self.packing("keys", s.d, 1, 5, (2, s.e, 6) if self.skips else None)
        buffers = [0, 2, 3, 4, 5]
        if self.skips:
            self.temporary.append(-(-self.batch * self.key_blocks // 64) * 64)
            buffers.append(6)
        width = -(-s.e // self.vl) * self.vl
        e = self.emitter()
        query, value, mask, result, panels, *flags = (e.operand(i) for i in range(len(buffers)))
        q, weights, out, maxima, totals = (
            self.allocate(e, k) for k in (self.rows * s.d, self.rows * self.keys, self.rows * width, self.rows, self.rows)
        )
        with e.loop("%begin", "%end") as unit:
            batch, block = e.split(unit.index, [self.batch, self.row_blocks])
            row, rows = self.rows_of(e, block)
            start = e.add(e.mul(batch, s.n), row)
            self.scaled(e, e.at(query, e.mul(start, s.d), self.type), q, e.mul(rows, s.d), s.scale)
            self.initialise_rows(e, rows, maxima, totals)
            with e.loop(0, self.key_blocks) as keys:
                key, count = self.keys_of(e, keys.index)
                first = e.compare("eq", keys.index, 0)

                def needed(block: Value = keys.index, row: Value = row, key: Value = key, batch: Value = batch) -> list[str]:
                    flag = e.at(flags[0], e.add(e.mul(batch, self.key_blocks), block), "i8")
                    return [self.seen(e, row, key), self.not_finite(e, flag)]

                with self.unless_skipped(e, needed):
                    self.scores(e, q, self.panel(e, panels, batch, keys.index, s.d), s.d, weights)
                    with e.loop(0, rows) as i:
                        at = e.at(weights, e.mul(i.index, self.keys), self.type)
                        x, _ = self.masked(e, mask, batch, e.add(row, i.index), key, at)

                        def rescale(factor: str, i: Value = i.index) -> None:
                            self.scale_row(e, e.at(out, e.mul(i, width), self.type), factor, width)

                        self.store_all(e, at, self.exponentials(e, x, i.index, first, maxima, totals, rescale))
                    values = e.at(value, e.mul(e.add(e.mul(batch, s.m), key), s.e), self.type)
                    self.product(
                        e, self.rows, self.tile, s.e, (weights, Strides(self.keys, 1)), (values, s.e, False), count,
                        (out, width), first if self.key_blocks > 1 else "",
                    )  # fmt: skip
            with e.loop(0, rows) as i:
                inverse_total = self.inverse_total(e, mask, batch, e.add(row, i.index), i.index, maxima, totals)
                to = e.at(result, e.mul(e.add(start, i.index), s.e), self.type)
                self.scale_row(e, e.at(out, e.mul(i.index, width), self.type), inverse_total, s.e, to)
        flops = self.batch * s.n * s.m * (2.0 * (s.d + s.e) + 30)
        self.finish(e, "", buffers, self.batch * self.row_blocks, flops / FLOPS_PER_US)
        return self.lowered_kernels(1)


class _AttentionGradient(_AttentionGenerator):
    def lowered(self) -> Lowered:
        s = self.s
        max_chunks = max(1, min(self.row_blocks, MIN_CHUNKS // self.batch))
        blocks = -(-self.row_blocks // max_chunks)  # blocks of rows of one work unit
        chunks = -(-self.row_blocks // blocks)
        # operands 0 … 4, results 5, 6, 7, panels 8 and 9, then the gradients of each chunk and the flags
        of_blocks = 12 if chunks > 1 else 10
        self.packing("keys", s.d, 2, 8, (2, s.d, of_blocks) if self.skips else None)
        self.packing("values", s.e, 3, 9)
        buffers = [0, 1, 2, 4, 5, 6, 7, 8, 9]
        if chunks > 1:
            buffers[5:7] = 10, 11
            self.temporary += [chunks * self.batch * s.m * k * self.size for k in (s.d, s.e)]
        if self.skips:
            buffers.append(of_blocks)
            self.temporary.append(-(-self.batch * self.key_blocks // 64) * 64)
        e = self.emitter()
        g, query, key, mask, to_query, to_key, to_value, keys, values, *flags = (e.operand(i) for i in range(len(buffers)))
        width = -(-s.d // self.vl) * self.vl
        q, h, p, u, grad, maxima, totals, means = (
            self.allocate(e, k)
            for k in (self.rows * s.d, self.rows * s.e, *[self.rows * self.keys] * 2, self.rows * width, *[self.rows] * 3)
        )
        of_rows = self.allocate(e, 1) if self.skips else ""
        with e.loop("%begin", "%end") as unit:
            chunk, batch = e.split(unit.index, [chunks, self.batch])
            begin = e.mul(chunk, blocks)
            with e.loop(begin, e.min(e.add(begin, blocks), self.row_blocks)) as block:
                row, rows = self.rows_of(e, block.index)
                start = e.add(e.mul(batch, s.n), row)
                first = e.compare("eq", block.index, begin) if blocks > 1 else ""
                self.scaled(e, e.at(query, e.mul(start, s.d), self.type), q, e.mul(rows, s.d), s.scale)
                self.scaled(e, e.at(g, e.mul(start, s.e), self.type), h, e.mul(rows, s.e), 1.0)
                self.initialise_rows(e, rows, maxima, totals, means)
                if self.skips:
                    e.do(f"store i8 0, ptr {of_rows}")
                    self.flag_not_finite(e, q, e.mul(rows, s.d), of_rows)
                    self.flag_not_finite(e, h, e.mul(rows, s.e), of_rows)

                def both(at: Value, batch: Value = batch) -> None:
                    self.scores(e, q, self.panel(e, keys, batch, at, s.d), s.d, p)
                    self.scores(e, h, self.panel(e, values, batch, at, s.e), s.e, u)

                # the first loop computes each row's maximum, Σ exp and mean, which every weight's cotangent depends on
                with e.loop(0, self.key_blocks) as at:
                    key0, _ = self.keys_of(e, at.index)

                    def sees(row: Value = row, key0: Value = key0) -> list[str]:
                        return [self.seen(e, row, key0)]

                    with self.unless_skipped(e, sees):
                        both(at.index)
                        with e.loop(0, rows) as i:
                            query_row = e.add(row, i.index)
                            self.update_statistics(
                                e, mask, batch, query_row, i.index, at.index, key0, p, u, maxima, totals, means
                            )
                if self.skips:
                    self.flag_rows(e, rows, totals, means, of_rows)
                with e.loop(0, self.key_blocks) as at:
                    key0, count = self.keys_of(e, at.index)
                    first_key = e.add(e.mul(batch, s.m), key0)
                    to_keys = e.add(e.mul(unit.index, s.m), key0) if chunks > 1 else first_key

                    def needed(
                        block: Value = at.index, row: Value = row, key0: Value = key0, batch: Value = batch, first: str = first,
                        count: Value = count, to_keys: Value = to_keys,
                    ) -> list[str]:  # fmt: skip
                        flag = e.at(flags[0], e.add(e.mul(batch, self.key_blocks), block), "i8")
                        reasons = [self.seen(e, row, key0), self.not_finite(e, flag), self.not_finite(e, of_rows)]
                        # nothing is added to these keys' gradients; the first block of rows initialises them
                        with e.when(first or "true"), e.when(e.let(f"xor i1 {reasons[0]}, true")):
                            for to, f in ((to_value, s.e), (to_key, s.d)):
                                self.fill_zero(e, e.at(to, e.mul(to_keys, f), self.type), e.mul(count, f))
                        return reasons

                    with self.unless_skipped(e, needed):
                        if self.key_blocks > 1:  # the scores of a single block are still in scratch memory
                            both(at.index)
                        with e.loop(0, rows) as i:
                            self.store_weights(
                                e, mask, batch, e.add(row, i.index), i.index, key0, p, u, maxima, totals, means
                            )  # fmt: skip
                        begins = e.compare("eq", at.index, 0) if self.key_blocks > 1 else ""
                        self.product(
                            e, self.rows, self.tile, s.d, (u, Strides(self.keys, 1)),
                            (e.at(key, e.mul(first_key, s.d), self.type), s.d, False), count, (grad, width), begins,
                        )  # fmt: skip
                        for a, b, f, to in ((p, h, s.e, to_value), (u, q, s.d, to_key)):
                            c = e.at(to, e.mul(to_keys, f), self.type)
                            self.product_over_keys(
                                e, at.index, f, (a, Strides(1, self.keys)), (b, f, False), rows, (c, f), first
                            )
                with e.loop(0, rows) as i:
                    to = e.at(to_query, e.mul(e.add(start, i.index), s.d), self.type)
                    self.scaled(e, e.at(grad, e.mul(i.index, width), self.type), to, s.d, s.scale)
        recomputed = 2.0 * (s.d + s.e) if self.key_blocks > 1 else 0.0
        flops = self.batch * s.n * s.m * (4.0 * (s.d + s.e) + 2.0 * s.d + recomputed + 40)
        self.finish(e, "", buffers, self.batch * chunks, flops / FLOPS_PER_US)
        for k, (ending, f) in enumerate((("sum_keys", s.d), ("sum_values", s.e)) if chunks > 1 else ()):
            self.sum(ending, chunks, self.batch * s.m * f, 10 + k, 6 + k)
        return self.lowered_kernels(3)

    def update_statistics(
        self, e: IRBuilder, mask: str, batch: Value, row: Value, i: Value, block: Value, key: Value, p: str, u: str,
        maxima: str, totals: str, means: str,
    ) -> None:  # fmt: skip
        """Update a row's maximum score, Σ exp and Σ exp · w by a block of keys. For a single block, exp and w are stored."""
        dtype, lanes = self.s.dtype, self.vl
        to_p, to_u = (e.at(x, e.mul(i, self.keys), self.type) for x in (p, u))
        x, masks = self.masked(e, mask, batch, row, key, to_p)

        def rescale(factor: str) -> None:
            self.store_scalar(e, e.let(f"fmul {self.type} {self.load_scalar(e, means, i)}, {factor}"), means, i)

        powers = self.exponentials(e, x, i, e.compare("eq", block, 0), maxima, totals, rescale)
        w = [self.unmasked_or(e, m, y, 0.0) for m, y in zip(masks, self.vectors_of(e, to_u), strict=True)]
        products = [e.let(f"fmul {self.v} {a}, {b}") for a, b in zip(powers, w, strict=True)]
        part = reduction.across(e, "sum", dtype, reduction.tree(e, "sum", dtype, products, lanes), lanes)
        self.store_scalar(e, e.let(f"fadd {self.type} {self.load_scalar(e, means, i)}, {part}"), means, i)
        if self.key_blocks == 1:
            self.store_all(e, to_p, powers)
            self.store_all(e, to_u, w)

    def store_weights(
        self, e: IRBuilder, mask: str, batch: Value, row: Value, i: Value, key: Value, p: str, u: str, maxima: str, totals: str,
        means: str,
    ) -> None:  # fmt: skip
        """Store the weights of a row and a block of keys, and the cotangents of their scores."""
        lanes, t = self.vl, self.type
        to_p, to_u = (e.at(x, e.mul(i, self.keys), t) for x in (p, u))
        inverse_total = self.inverse_total(e, mask, batch, row, i, maxima, totals)
        mean = e.splat(e.let(f"fmul {t} {self.load_scalar(e, means, i)}, {inverse_total}"), lanes, t)
        factors = e.splat(inverse_total, lanes, t)
        if self.key_blocks == 1:
            powers, w = self.vectors_of(e, to_p), self.vectors_of(e, to_u)
        else:
            x, masks = self.masked(e, mask, batch, row, key, to_p)
            shifts = e.splat(self.shift(e, self.load_scalar(e, maxima, i)), lanes, t)
            powers = [self.exp(e, e.let(f"fsub {self.v} {y}, {shifts}"), lanes) for y in x]
            w = [self.unmasked_or(e, m, y, 0.0) for m, y in zip(masks, self.vectors_of(e, to_u), strict=True)]
        weights = [e.let(f"fmul {self.v} {x}, {factors}") for x in powers]
        self.store_all(e, to_p, weights)
        cotangents = [
            e.let(f"fmul {self.v} {x}, {e.let(f'fsub {self.v} {y}, {mean}')}") for x, y in zip(weights, w, strict=True)
        ]
        self.store_all(e, to_u, cotangents)

    def product_over_keys(
        self, e: IRBuilder, block: Value, columns: int, a: tuple[str, Strides], b: tuple[str, int, bool], rows: Value,
        c: tuple[str, int], first: str,
    ) -> None:  # fmt: skip
        """A product whose rows are the keys of a block, of which the last one may be shorter."""
        tile = min(self.keys, (8 if columns > self.vl else 16) if self.many_registers else 4)
        last = self.last_keys
        if last == self.keys:
            self.product(e, self.keys, tile, columns, a, b, rows, c, first)
        elif self.key_blocks == 1:
            self.product(e, last, tile, columns, a, b, rows, c, first)
        else:
            ends = e.compare("eq", block, self.key_blocks - 1)
            with e.when(ends):
                self.product(e, last, tile, columns, a, b, rows, c, first)
            with e.when(e.let(f"xor i1 {ends}, true")):
                self.product(e, self.keys, tile, columns, a, b, rows, c, first)

    def sum(self, ending: str, chunks: int, count: int, source: int, to: int) -> None:
        """Write the kernel that sums the gradients of the chunks, first to last."""
        e = self.emitter()
        pointer, result = e.operand(0), e.operand(1)
        step = 64 * self.vl
        with e.loop("%begin", "%end") as unit:
            first = e.mul(unit.index, step)
            with e.loop(first, e.min(e.add(first, step), count), self.vl) as i:
                mask = e.lanes_below(e.sub(count, i.index), self.vl) if count % self.vl else None
                x = e.load(e.at(pointer, i.index, self.type), self.vl, self.s.dtype, mask)
                for k in range(1, chunks):
                    y = e.load(e.at(pointer, e.add(i.index, k * count), self.type), self.vl, self.s.dtype, mask)
                    x = e.let(f"fadd {self.v} {x}, {y}")
                e.store(x, e.at(result, i.index, self.type), self.vl, self.s.dtype, mask)
        self.finish(e, ending, (source, to), -(-count // step), (chunks + 1.0) * count * self.size / BYTES_PER_US)
