"""Convolutions of 3 × 3 taps at stride 1, and their input gradients, with 16 multiplications for four positions instead of 36.

Winograd's F(2×2, 3×3): patches of 4 × 4 elements and the weight are transformed (``Bᵀ d B``, ``G g Gᵀ``), a matrix product over
the channels is computed for each of the 16 elements of the transforms, and ``Aᵀ m A`` of the products is four positions of the
result. Each position of the result depends on its own patch only.

The error is that of a sum of the same length over the patch, relative to the patch's largest elements. If elements of a patch
differ by orders of magnitude, it exceeds the op table's tolerance, which is relative to Σ|x||w| of each position: 178 eps were
measured for normal values times e to the power of three normal ones, and the table allows 16. Therefore it is a variant for
the autotuner, which is used only if the setting ``deterministic`` is off, or if it is forced. Overflow, infinities and NaN make
some position of the result non-finite. The whole result is then computed again as a product over patches, so that special
values are those of the plain sum.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015. Here the factors ½ of G are moved to Aᵀ, so
that denormal weights lose no bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import gcd, prod

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.contract.blocked import SIGNATURE, Contraction, ContractionKernel, contraction
from firebrick.compiler.targets.llvm.contract.choose import PHASE, UNIT, Variant
from firebrick.compiler.targets.llvm.contract.epilogue import Epilogue, put, stored, values
from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, constant, vector
from firebrick.compiler.targets.llvm.contract.micro import Strides, Tile, micro_kernel
from firebrick.compiler.targets.llvm.contract.pack import power_of_two
from firebrick.compiler.targets.llvm.contract.problem import Problem, conv, conv_input
from firebrick.compiler.targets.llvm.target import Target

ELEMENTS = 16  # elements of a transform
_WEIGHT, _IMAGE = 0, 1  # positions in bufs
FALLBACK_FLOPS = 1e7  # stated flops of the second computation, enough for several threads: it rarely runs, but is expensive


@dataclass(frozen=True, slots=True)
class Tiling:
    """Patches and block sizes of a convolution; an input gradient is the convolution of the cotangent.

    Attributes:
        vl: Lanes of a vector.
        adjoint: Whether it is an input gradient, for which the weight is flipped and transposed.
        channels: Channels that are summed over.
        outputs: Channels of the result.
        image: Rows and columns of the input.
        positions: Rows and columns of the result.
        padding: Padding before the first row and column.
        patches: Patches in a column and in a row of a result.
        samples: Images.
        across: Rows of patches in a block.
        lanes: Patches of a block, padded to a multiple of a vector.
        rows: Rows of the micro-kernel's tile.
        depth: Channels in a block of the sums.
        block: Outputs whose products are in scratch memory at a time, a multiple of ``rows``.
        separate: Whether a separate kernel transforms the patches, so that several work units, each for some of the outputs,
            share them. Otherwise each work unit transforms its own patches.
    """

    vl: int
    adjoint: bool
    channels: int
    outputs: int
    image: tuple[int, int]
    positions: tuple[int, int]
    padding: tuple[int, int]
    patches: tuple[int, int]
    samples: int
    across: int
    lanes: int
    rows: int
    depth: int
    block: int
    separate: bool

    @property
    def strips(self) -> int:
        """Rows of patches of all images."""
        return self.samples * self.patches[0]

    @property
    def blocks(self) -> int:
        """Blocks of patches."""
        return -(-self.strips // self.across)

    @property
    def piece(self) -> int:
        """Patches of a row that are transformed at once."""
        return min(self.vl, 1 << (self.patches[1] - 1).bit_length())

    @property
    def group(self) -> int:
        """Rows of patches that share a vector; a power of two."""
        n = 1
        while 2 * n * self.patches[1] <= self.vl and self.across % (2 * n) == 0 == self.strips % (2 * n):
            n *= 2
        return n

    @property
    def cycles(self) -> float:
        """Estimated cycles: of the products by steps of tiles, and of the transforms at about 50 for each vector."""
        vectors, groups = self.lanes // self.vl, -(-self.patches[1] // self.vl) * self.strips / self.group
        step = max(self.rows * vectors / 2, (self.rows + vectors) / 2, 4.0) * 1.1 + 0.25
        tile = self.channels * step + self.depth_blocks * (self.rows * vectors + 20.0)
        products = ELEMENTS * self.blocks * -(-self.outputs // self.rows) * tile
        weights = self.channels * self.outputs * (8.0 + self.blocks / 2)  # the transform, and a read of it for each block
        return products + (self.channels + self.outputs) * groups * 50.0 + weights

    @property
    def depth_blocks(self) -> int:
        """Blocks of the sums."""
        return -(-self.channels // self.depth)

    @property
    def weight_stride(self) -> int:
        """Stride of the elements of the weight's transform; the padding by a vector avoids conflict misses in the caches."""
        return self.outputs * self.depth + self.vl

    @property
    def patch_stride(self) -> int:
        """Stride of the elements of the patches' transforms, padded likewise."""
        return self.channels * self.lanes + self.vl

    @property
    def product_stride(self) -> int:
        """Stride of the elements of the products, padded likewise."""
        return self.block * self.lanes + self.vl

    @property
    def patch_elements(self) -> int:
        """Elements of the transforms of a block of patches."""
        return ELEMENTS * self.patch_stride


def tiling(g: Convolution, target: Target, adjoint: bool, worth: float = 0.8) -> Tiling | None:
    """The tiling; None if another algorithm is expected to be faster. The choice depends on shapes alone.

    Args:
        g: The convolution.
        target: Processor to generate for.
        adjoint: Whether to compute the input gradient.
        worth: Maximum estimated time, relative to that of the plain sum.
    """
    masks = target.arch == "x86_64" and target.width_bits >= 256
    if g.dtype != "float32" or not masks or g.groups != 1 or g.weight[2:] != (3, 3) or prod(g.result) == 0:
        return None
    (xs, ws, ys), vl = g.strides, target.width_bits // 32
    if g.stride != (1, 1) or g.dilation != (1, 1) or ws[2:] != (3, 1) or xs[3] != 1 or ys[3] != 1:
        return None
    outputs, channels = (g.weight[1], g.weight[0]) if adjoint else (g.weight[0], g.weight[1])
    read, made = (g.result, g.image) if adjoint else (g.image, g.result)
    padding = tuple(2 - p[0] if adjoint else p[0] for p in g.padding)
    height, wide = -(-made[2] // 2), -(-made[3] // 2)
    strips = g.image[0] * height
    best, best_tiling = worth * 9.0 * channels * outputs * g.image[0] * made[2] * made[3] / (2 * vl), None
    # at most about four vectors of patches: the more vectors, the fewer rows of the tile fit in the registers
    for across in range(1, min(strips, max(1, 4 * vl // wide)) + 1):
        lanes = -(-across * wide // vl) * vl
        vectors = lanes // vl
        max_rows = min(28, target.registers - 2 - vectors) // vectors
        if max_rows * vectors < 8:  # too few independent sums to hide the latency of a multiply-add
            continue
        rows = -(-outputs // -(-outputs // max_rows))
        depth = -(-channels // -(-channels * lanes * 4 // (36 << 10)))
        depth = -(-depth // vl) * vl
        block = min(-(-outputs // rows), max(1, (192 << 10) // (ELEMENTS * 4 * lanes * rows))) * rows
        t = Tiling(
            vl, adjoint, channels, outputs, (read[2], read[3]), (made[2], made[3]), (padding[0], padding[1]), (height, wide),
            g.image[0], across, lanes, rows, depth, block, ELEMENTS * channels * lanes * 4 > 640 << 10,
        )  # fmt: skip
        cycles = t.cycles
        if cycles < best:
            best, best_tiling = cycles, t
    return best_tiling


def winograd(g: Convolution, t: Tiling, target: Target, name: str, epilogue: Epilogue | None = None) -> Contraction:
    """Kernels of ``conv`` or ``conv_input``; ``bufs`` holds weight, input, the epilogue's operands, result and workspace.

    Args:
        g: The convolution.
        t: Its tiling.
        target: Processor to generate for.
        name: Name of the functions.
        epilogue: Over rows [outputs] and columns [batch · positions], for ``conv``.
    """
    p = conv_input(g)[0] if t.adjoint else conv(g)
    return _WinogradGenerator(g, t, target, name, p, epilogue).generate()


def _aligned(n: int) -> int:
    return -(-n // 64) * 64


class _WinogradGenerator:
    def __init__(
        self, g: Convolution, t: Tiling, target: Target, name: str, p: Problem, epilogue: Epilogue | None
    ) -> None:  # fmt: skip
        self.g, self.t, self.target, self.name, self.p = g, t, target, name, p
        self.epilogue = (epilogue or stored(p.c)).simplified()
        self.declared: set[str] = set()
        self.functions: dict[str, str] = {}
        self.kernels: list[ContractionKernel] = []
        self.space_slot = 2 + len(self.epilogue.views)
        self.fallback = contraction(p, target, f"{name}.whole", epilogue)
        self.units = t.blocks * (-(-t.outputs // t.block) if t.separate else 1)
        contiguous_lanes = all(r.lanes[-1].stride == 1 for _, r in self.epilogue.results)
        contiguous = contiguous_lanes and t.positions == (2 * t.patches[0], 2 * t.patches[1])
        sizes = [2 * t.group * t.positions[1], *(x.lanes[-1].size for x in self.epilogue.views if len(x.lanes) > 1)]
        self.segment = power_of_two(gcd(*sizes), t.vl) if contiguous else 0  # contiguous positions on one axis of all results
        # the workspace: the transforms of the weight and the patches, whose memory the second computation reuses, and the flag
        # that requests it
        self.weights = 0
        self.patches = _aligned(4 * ELEMENTS * t.weight_stride * t.depth_blocks)
        transforms = self.patches + (4 * t.blocks * t.patch_elements if t.separate else 0)
        self.flag = _aligned(max(transforms, self.fallback.workspace))
        self.workspace = self.flag + 64

    def emitter(self) -> IRBuilder:
        e = IRBuilder(self.target, self.declared)
        e.start("%entry")
        return e

    def kernel(self, e: IRBuilder, ending: str, grid: int, scratch: int, flops: float) -> None:
        e.do("ret void")
        name = f"{self.name}.{ending}" if ending else self.name
        self.functions[name] = "\n".join([f"define void @{name}{SIGNATURE} {{", *e.lines, "}"])
        self.kernels.append(ContractionKernel(name, grid, scratch, flops))

    def generate(self) -> Contraction:
        t = self.t
        self.weight_kernel()
        if t.separate:
            self.patch_kernel()
        self.product()
        self.repeat_if_not_finite()
        variant = Variant(t.rows, t.lanes, t.depth, t.block, t.lanes, PHASE, PHASE if t.separate else UNIT, True)
        return Contraction(tuple(self.kernels), self.functions, frozenset(self.declared), self.workspace, variant, False)

    def space(self, e: IRBuilder, offset: int) -> str:
        return e.at(e.operand(self.space_slot), offset, "i8")

    # ---- transforms
    def weight_kernel(self) -> None:
        """Write the kernel of G g Gᵀ, with vectors along the channels. It stores [block of channels][element][output][channel].
        A work unit is one output."""
        t, vl, ws = self.t, self.t.vl, self.g.strides[1]
        out, channel = (ws[1], ws[0]) if t.adjoint else (ws[0], ws[1])
        e = self.emitter()
        source, to, v = e.operand(_WEIGHT), self.space(e, self.weights), vector(vl, "float")

        def weight_combinations(a: str, b: str, c: str) -> list[str]:
            outer = e.let(f"fadd {v} {a}, {c}")
            return [a, e.let(f"fadd {v} {outer}, {b}"), e.let(f"fsub {v} {outer}, {b}"), c]

        with e.when(e.compare("eq", "%begin", 0)):
            e.do(f"store i64 0, ptr {self.space(e, self.flag)}, align 8")
        with e.loop("%begin", "%end") as unit, e.loop(0, t.channels, vl) as first:
            rows = []
            for i in range(vl):
                c = e.add(first.index, i)
                c = e.min(c, t.channels - 1) if t.channels % vl else c
                rows.append(e.at(source, e.dot([unit.index, c], [out, channel]), "float"))
            values = [x for start in (0, 4) for x in self.transposed_quads(e, rows, start)]
            values.append(self.transposed_quads(e, rows, 5)[3])  # the ninth tap, by a load that ends with it
            values = values[::-1] if t.adjoint else values
            columns = [weight_combinations(*(values[3 * i + j] for i in range(3))) for j in range(3)]
            block, within = e.div(first.index, t.depth), e.mod(first.index, t.depth)
            for i in range(4):
                for j, x in enumerate(weight_combinations(*(columns[k][i] for k in range(3)))):
                    at = e.dot([block, 4 * i + j, unit.index], self.weight_strides(), within)
                    e.store(x, e.at(to, at, "float"), vl, "float32")
        self.kernel(e, "weight", t.outputs, 0, 40.0 * t.channels * t.outputs)

    def transposed_quads(self, e: IRBuilder, rows: Sequence[str], start: int) -> list[str]:
        """Transpose four adjacent elements of each row into four vectors along the rows, as 4 × 4 blocks in 128-bit lanes."""
        loaded = [e.load(e.at(row, start, "float"), 4, "float32") for row in rows]
        quads = []
        for i in range(4):  # rows i, i + 4, … in one register: shuffles within 128-bit lanes are cheaper than across them
            side, n = loaded[i::4], 4
            while len(side) > 1:
                side = [e.shuffle(a, b, range(2 * n), n, "float") for a, b in zip(side[::2], side[1::2], strict=True)]
                n *= 2
            quads.append(side[0])
        n = len(rows)
        quarters = range(0, n, 4)
        pairs = []
        for ks in ((0, 1), (2, 3)):
            lanes = [q + k + j * n for q in quarters for k in ks for j in (0, 1)]
            pairs += [e.shuffle(quads[i], quads[i + 1], lanes, n, "float") for i in (0, 2)]
        out = []
        for low, high in (pairs[:2], pairs[2:]):
            for at in (0, 2):
                lanes = [q + at + k + j * n for q in quarters for j in (0, 1) for k in (0, 1)]
                out.append(e.shuffle(low, high, lanes, n, "float"))
        return out

    def weight_strides(self) -> tuple[int, int, int]:
        """Strides of blocks of channels, elements and outputs in the weight's transform."""
        t = self.t
        return ELEMENTS * t.weight_stride, t.weight_stride, t.depth

    def patch_kernel(self) -> None:
        """Write the kernel that transforms all patches. A work unit is some channels of a block of patches."""
        t, channels_at_once = self.t, 32
        e = self.emitter()
        source, to = e.operand(_IMAGE), self.space(e, self.patches)
        with e.loop("%begin", "%end") as unit:
            block, part = e.split(unit.index, [t.blocks, -(-t.channels // channels_at_once)])
            first = e.mul(part, channels_at_once)
            destination = e.at(to, e.mul(block, t.patch_elements), "float")
            self.transform(e, source, block, first, e.min(e.add(first, channels_at_once), t.channels), destination)
        self.kernel(e, "patches", t.blocks * -(-t.channels // channels_at_once), 0, 80.0 * t.channels * t.blocks * t.lanes)

    def transform(self, e: IRBuilder, source: str, block: Value, c0: Value, c1: Value, to: str) -> None:
        """Bᵀ d B of the patches of a block, for channels [c0, c1), as [element][channel][patch]."""
        t, wide = self.t, self.t.patches[1]
        if t.across * wide < t.lanes:  # padding lanes are set to 0, since arithmetic on random denormals is slow
            with e.loop(0, ELEMENTS) as element, e.loop(c0, c1) as channel:
                at = e.at(to, e.dot([element.index, channel.index], [t.patch_stride, t.lanes]), "float")
                for lane in range(t.across * wide, t.lanes):
                    e.store("zeroinitializer", e.at(at, lane, "float"), 1, "float32")
        first = e.mul(block, t.across)
        if t.image[1] <= 2 * t.vl:
            self.transform_rows(e, source, first, c0, c1, to)
        else:
            self.wide(e, source, first, c0, c1, to)

    def transform_rows(self, e: IRBuilder, source: str, first: Value, c0: Value, c1: Value, to: str) -> None:
        """Patches of whole rows of an image: a row is loaded once, and patches are selected from registers by shuffles."""
        t, strides = self.t, self.strides
        (height, across), width = t.patches, t.image[1]
        m = 1 << (width - 1).bit_length()
        n = 1 << (t.group * across - 1).bit_length()
        wide, inside = t.group * m, e.lanes_below(width, m)
        stored_lanes = e.lanes_below(t.group * across, n)
        with e.loop(0, e.min(t.across, e.sub(t.strips, first)), t.group) as strip:
            rows: list[dict[Value, tuple[Value, str | None]]] = []  # for each strip: row of the image → offset and mask
            for s in range(t.group):
                sample, row = e.split(e.add(e.add(first, strip.index), s), [t.samples, height])
                if t.group % height == 0:  # a group begins at the first row of an image
                    row = s % height
                y0 = e.sub(e.mul(row, 2), t.padding[0])
                image_rows: dict[Value, tuple[Value, str | None]] = {}
                for i in range(4):
                    y, mask = e.add(y0, i), inside
                    if isinstance(y, int) and not 0 <= y < t.image[0]:
                        continue
                    if not isinstance(y, int):
                        ok = e.splat(e.compare("ult", y, t.image[0]), m, "i1")
                        mask = ok if inside is None else e.let(f"and {vector(m, 'i1')} {ok}, {inside}")
                    image_rows[i] = e.dot([sample, y], [strides[0], strides[2]]), mask
                rows.append(image_rows)
            lane = e.mul(strip.index, across)
            with e.loop(c0, c1) as channel:
                plane = e.at(source, e.mul(channel.index, strides[1]), "float")
                lines = []
                for i in range(4):
                    parts = []
                    for image_rows in rows:
                        at, mask = image_rows.get(i, (None, None))
                        parts.append("zeroinitializer" if at is None else e.load(e.at(plane, at, "float"), m, "float32", mask))
                    size = m
                    while len(parts) > 1:
                        pairs = zip(parts[::2], parts[1::2], strict=True)
                        parts = [e.shuffle(a, b, range(2 * size), size, "float") for a, b in pairs]
                        size *= 2
                    lines.append(parts[0])
                destination = e.at(to, e.add(e.mul(channel.index, t.lanes), lane), "float")
                for i, line in enumerate(self.differences(e, lines, wide)):
                    d = []
                    for j in range(4):
                        columns = [(s, 2 * x - t.padding[1] + j) for s in range(t.group) for x in range(across)]
                        picked = [s * m + x if 0 <= x < width else wide for s, x in columns]
                        picked += [wide] * (n - len(picked))
                        d.append(e.shuffle(line, "zeroinitializer", picked, wide, "float"))
                    for j, x in enumerate(self.differences(e, d, n)):
                        e.store(x, e.at(destination, (4 * i + j) * t.patch_stride, "float"), n, "float32", stored_lanes)

    def differences(self, e: IRBuilder, d: Sequence[str], n: int) -> list[str]:
        """Bᵀ of four vectors."""
        v = vector(n, "float")
        pairs = (("fsub", 0, 2), ("fadd", 1, 2), ("fsub", 2, 1), ("fsub", 1, 3))
        return [e.let(f"{how} {v} {d[i]}, {d[j]}") for how, i, j in pairs]

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of the image, or of the cotangent."""
        return self.g.strides[2] if self.t.adjoint else self.g.strides[0]

    def wide(self, e: IRBuilder, source: str, first: Value, c0: Value, c1: Value, to: str) -> None:
        """Patches of a row that is too long for registers, in pieces."""
        t, n, strides, wide = self.t, self.t.piece, self.strides, self.t.patches[1]
        with e.loop(0, e.min(t.across, e.sub(t.strips, first))) as strip, e.loop(0, wide, n) as column:
            sample, row = e.split(e.add(first, strip.index), [t.samples, t.patches[0]])
            y0, x0 = e.sub(e.mul(row, 2), t.padding[0]), e.sub(e.mul(column.index, 2), t.padding[1])
            base = e.dot([sample, y0, x0], [strides[0], *strides[2:]])
            masks = []
            for i in range(4):
                inside = e.compare("ult", e.add(y0, i), t.image[0])
                x_start = e.let(f"select i1 {inside}, i64 {x0}, i64 {-(1 << 30)}")
                masks.append([e.inside(e.add(x_start, j), 1, t.image[1], 2 * n) for j in (0, 2)])
            stored_lanes = e.lanes_below(e.sub(wide, column.index), n) if wide % n else None
            lane = e.add(e.mul(strip.index, wide), column.index)
            with e.loop(c0, c1) as channel:
                at = e.dot([channel.index], [strides[1]], base)
                lines = []
                for i in range(4):
                    d = []
                    for j in range(2):
                        patch_row = e.at(source, e.add(at, i * strides[2] + 2 * j), "float")
                        x = e.load(patch_row, 2 * n, "float32", masks[i][j])
                        d += [e.shuffle(x, None, range(k, 2 * n, 2), 2 * n, "float") for k in range(2)]
                    lines.append(self.differences(e, d, n))
                destination = e.at(to, e.add(e.mul(channel.index, t.lanes), lane), "float")
                for j in range(4):
                    for i, x in enumerate(self.differences(e, [line[j] for line in lines], n)):
                        e.store(x, e.at(destination, (4 * i + j) * t.patch_stride, "float"), n, "float32", stored_lanes)

    # ---- the products
    def product(self) -> None:
        """Write the kernel of the products. A work unit computes the 16 products, and the result, of a block of patches."""
        t = self.t
        e = self.emitter()
        pointers = [e.operand(i) for i in range(self.space_slot)]
        weights, flag = self.space(e, self.weights), self.space(e, self.flag)
        own = 0 if t.separate else _aligned(4 * t.patch_elements)
        patches = self.space(e, self.patches) if t.separate else "%scratch"
        products = e.at("%scratch", own, "i8")
        n = self.lanes
        v = vector(n, "float")
        with e.loop("%begin", "%end") as unit:
            if t.separate:
                block, part = e.split(unit.index, [t.blocks, -(-t.outputs // t.block)])
                first = e.mul(part, t.block)
                last = e.min(e.add(first, t.block), t.outputs)
                patch = e.at(patches, e.mul(block, t.patch_elements), "float")
            else:
                block, first, last, patch = unit.index, 0, t.outputs, patches
                self.transform(e, pointers[_IMAGE], block, 0, t.channels, patch)
            with e.loop(first, last, t.block, [(v, "zeroinitializer")]) as outputs:
                end = e.min(e.add(outputs.index, t.block), last)
                with e.loop(0, ELEMENTS) as element, e.loop(0, t.channels, t.depth) as k:
                    kc = e.min(t.depth, e.sub(t.channels, k.index))
                    b = e.at(patch, e.dot([element.index, k.index], [t.patch_stride, t.lanes]), "float")
                    with e.loop(outputs.index, end, t.rows) as row:
                        deep = e.div(k.index, t.depth)
                        a = e.at(weights, e.dot([deep, element.index, row.index], self.weight_strides()), "float")
                        at = e.dot([element.index, e.sub(row.index, outputs.index)], [t.product_stride, t.lanes])
                        first_k = e.compare("eq", k.index, 0)
                        self.call(e, row.index, [a, b, kc, e.at(products, at, "float"), first_k])
                outputs.next = [self.results(e, pointers, block, outputs.index, end, products, outputs.values[0])]
            flagged = e.let(f"fcmp uno {v} {outputs.values[0]}, {outputs.values[0]}")
            with e.when(e.intrinsic("i1", f"llvm.vector.reduce.or.v{n}i1", (vector(n, "i1"), flagged))):
                e.do(f"store atomic i64 1, ptr {flag} monotonic, align 8")
        scratch = own + _aligned(4 * ELEMENTS * t.product_stride)
        self.kernel(e, "", self.units, scratch, 2.0 * ELEMENTS * t.channels * t.outputs * t.blocks * t.lanes)

    def call(self, e: IRBuilder, row: Value, args: list[Value]) -> None:
        """Call the micro-kernel of a tile: that of complete tiles, or that of the last rows."""
        t = self.t
        text = ", ".join(f"{k} {x}" for k, x in zip(("ptr", "ptr", "i64", "ptr", "i1"), args, strict=True))
        if not t.outputs % t.rows:
            e.do(f"call void @{self.micro(t.rows)}({text})")
            return
        for rows, how in ((t.rows, "sle"), (t.outputs % t.rows, "sgt")):
            with e.when(e.compare(how, e.add(row, t.rows), t.outputs)):
                e.do(f"call void @{self.micro(rows)}({text})")

    def micro(self, rows: int) -> str:
        t = self.t
        tile = Tile(
            rows, t.lanes, t.vl, "float", Strides(t.depth, 1), Strides(1, t.lanes), True, t.lanes, "float32", False,
            t.depth_blocks,
        )  # fmt: skip
        text = micro_kernel(IRBuilder(self.target, self.declared), tile, None)
        name = f"micro.{sha256(text.encode()).hexdigest()[:20]}"
        self.functions[name] = f"define internal void @{name}{text}"
        return name

    def results(
        self, e: IRBuilder, pointers: Sequence[str], block: Value, o0: Value, o1: Value, products: str, not_finite: str
    ) -> str:  # fmt: skip
        """Store Aᵀ m A of the products. Returns ``not_finite``, with NaN in lanes where some position is not finite."""
        t, n = self.t, self.lanes
        v, group, wide = vector(n, "float"), (t.group if self.segment else 1), t.patches[1]
        along = wide if group == 1 else group * wide  # adjacent patches
        first = e.mul(block, t.across)
        count = e.min(t.across, e.sub(t.strips, first))
        zero, half = constant(["0.0"] * n, "float"), constant(["0.5"] * n, "float")

        def output_combinations(m: Sequence[str]) -> list[str]:
            sums = [e.let(f"{how} {v} {m[1]}, {m[2]}") for how in ("fadd", "fsub")]
            return [e.fma(sums[0], half, m[0], n, "float"), e.fma(sums[1], half, e.let(f"fneg {v} {m[3]}"), n, "float")]

        with e.loop(o0, o1, 1, [(v, not_finite)]) as output:
            with e.loop(0, count, group, [(v, output.values[0])]) as strip:
                with e.loop(0, along, n, [(v, strip.values[0])]) as column:
                    loaded_lanes = e.lanes_below(e.sub(along, column.index), n) if along % n else None
                    lane = e.add(e.mul(strip.index, wide), column.index)
                    first_product = e.at(products, e.add(e.mul(e.sub(output.index, o0), t.lanes), lane), "float")
                    m = [
                        e.load(e.at(first_product, i * t.product_stride, "float"), n, "float32", loaded_lanes)
                        for i in range(ELEMENTS)
                    ]
                    lines = [output_combinations([m[4 * i + j] for i in range(4)]) for j in range(4)]
                    pairs = [output_combinations([line[i] for line in lines]) for i in range(2)]
                    seen = column.values[0]
                    for x in (*pairs[0], *pairs[1]):  # x · 0 is 0 for finite x, else NaN
                        seen = e.fma(x, zero, seen, n, "float")
                    if self.segment and along <= n:
                        self.store_segment(e, pointers, output.index, e.add(first, strip.index), pairs)
                    else:
                        self.store_rows(e, pointers, output.index, e.add(first, strip.index), column.index, pairs)
                    column.next = [seen]
                strip.next = [column.values[0]]
            output.next = [strip.values[0]]
        return output.values[0]

    @property
    def lanes(self) -> int:
        """Patches whose results are computed at once."""
        t = self.t
        return min(t.vl, 1 << ((t.group if self.segment else 1) * t.patches[1] - 1).bit_length())

    def store_segment(self, e: IRBuilder, pointers: Sequence[str], output: Value, strip: Value, pairs: list[list[str]]) -> None:
        """Store the positions of a group of rows of patches, which are contiguous in each image."""
        t, n, width = self.t, self.lanes, self.t.positions[1]
        low, high = (e.shuffle(even, odd, range(2 * n), n, "float") for even, odd in pairs)
        for start in range(0, 2 * t.group * width, self.segment):
            picked = []
            for i in range(start, start + self.segment):
                strips, (line, x) = i // (2 * width), divmod(i % (2 * width), width)
                picked.append(2 * n * line + n * (x % 2) + strips * t.patches[1] + x // 2)
            segment = e.shuffle(low, high, picked, 2 * n, "float")
            self.finish(e, pointers, output, e.add(e.mul(strip, 2 * width), start), segment, self.segment, None)

    def store_rows(
        self, e: IRBuilder, pointers: Sequence[str], output: Value, strip: Value, column: Value, pairs: list[list[str]]
    ) -> None:  # fmt: skip
        """Store segments of the two rows of the result that belong to a row of patches."""
        t = self.t
        sample, row = e.split(strip, [t.samples, t.patches[0]])
        for i, pair in enumerate(pairs):
            position = [sample, e.add(e.mul(row, 2), i), e.mul(column, 2)]
            if i == 1 and t.positions[0] % 2:
                with e.when(e.compare("ult", position[1], t.positions[0])):
                    self.store_row(e, pointers, output, position, pair)
            else:
                self.store_row(e, pointers, output, position, pair)

    def store_row(self, e: IRBuilder, pointers: Sequence[str], output: Value, at: list[Value], pair: list[str]) -> None:
        """Interleave the even and odd positions of a row, apply the epilogue and store them."""
        t, n = self.t, self.lanes
        width = t.positions[1]
        each = min(t.vl, 2 * n)
        for start in range(0, 2 * n, each):
            lanes = [(start + i) // 2 + ((start + i) % 2) * n for i in range(each)]
            x = e.shuffle(pair[0], pair[1], lanes, n, "float")
            column = e.add(at[2], start)
            mask = e.lanes_below(e.sub(width, column), each) if width % (2 * n) else None
            flat = e.dot([at[0], at[1], column], [prod(t.positions), width, 1])
            self.finish(e, pointers, output, flat, x, each, mask)

    def finish(
        self, e: IRBuilder, pointers: Sequence[str], row: Value, column: Value, x: str, n: int, mask: str | None
    ) -> None:  # fmt: skip
        """Apply the epilogue to lanes of a row of an image, and store them."""
        locations: list[tuple[str, Value, int]] = []
        for pointer, r in zip(pointers[2:], self.epilogue.views, strict=True):
            rows, lanes = e.split(row, [a.size for a in r.rows]), e.split(column, [a.size for a in r.lanes])
            offset = e.dot([*rows, *lanes], [a.stride for a in (*r.rows, *r.lanes)], r.offset)
            locations.append((pointer, offset, r.lanes[-1].stride))
        first_lane = e.let(f"extractelement {vector(n, 'i1')} {mask}, i64 0") if mask else None
        if n == 1:
            x, mask = e.let(f"extractelement <1 x float> {x}, i64 0"), None
        if first_lane is None or (mask and not self.epilogue.operands):
            put(e, values(e, self.epilogue, x, locations, n, mask), n, mask)
            return
        with e.when(first_lane):
            put(e, values(e, self.epilogue, x, locations, n, mask), n, mask)

    # ---- non-finite results
    def repeat_if_not_finite(self) -> None:
        """Write kernels that compute the result again as a product over patches, if a work unit has set the flag."""
        for name, text in self.fallback.functions.items():
            self.functions[name] = text.replace("define void", "define internal void", 1)
        self.declared |= self.fallback.declarations
        for i, kernel in enumerate(self.fallback.kernels):
            e = self.emitter()
            flag = e.let(f"load i64, ptr {self.space(e, self.flag)}, align 8")
            with e.when(e.compare("ne", flag, 0)):
                e.do(f"call void @{kernel.name}(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults)")
            self.kernel(e, f"again{i}", kernel.grid, kernel.scratch, FALLBACK_FLOPS)
