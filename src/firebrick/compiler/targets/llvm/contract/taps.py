"""Weight gradients of convolutions with few outputs, without patches: each tap is a sum over positions of unpacked images.

With few outputs, packing the patches of the images takes longer than their products. Here the images are the operand of which
the micro-kernel broadcasts single elements, at any offset and stride, so they are copied only to add padding. The cotangent,
which is smaller than the patches by the number of taps, is transposed so that vectors run along the outputs. Each group of
images has a partial sum [channels][taps][outputs]; a second kernel adds the partial sums in order and transposes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from math import prod

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.contract.blocked import SIGNATURE, Contraction, ContractionKernel
from firebrick.compiler.targets.llvm.contract.choose import UNIT, Variant
from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, bytes_of, compute_type, vector
from firebrick.compiler.targets.llvm.contract.pack import transposed
from firebrick.compiler.targets.llvm.target import Target

MAX_OUTPUTS = 128
_PARTS = 8  # approximate number of groups of images, each of which has a partial sum


@dataclass(frozen=True, slots=True)
class TapSums:
    """Block sizes of a weight gradient.

    Attributes:
        vl: Lanes of a vector.
        vectors: Vectors of outputs of a tile.
        tiles: (channels, first tap, taps) of each tile of the taps of one channel, or of a few channels.
        parts: Groups of images.
        images: Images of a group.
        channels: Channels of a work unit.
        rows: Rows of positions that are transposed at once.
        samples: Images that are transposed at once, if an image has few positions.
        padded: Rows and columns of an image with the padding that taps read; None if they read none.
    """

    vl: int
    vectors: int
    tiles: tuple[tuple[int, int, int], ...]
    parts: int
    images: int
    channels: int
    rows: int
    samples: int
    padded: tuple[int, int] | None


def tap_sums(g: Convolution, target: Target) -> TapSums | None:
    """The block sizes; None if another algorithm is expected to be faster. The choice depends on shapes alone.

    Args:
        g: The convolution.
        target: Processor to generate for.
    """
    masks, (xs, ws, ys), y = target.arch == "x86_64" and target.width_bits >= 256, g.strides, g.result
    if not masks or g.dtype not in ("float32", "float64") or g.groups != 1 or len(g.stride) != 2 or prod(y) == 0:
        return None
    taps, size = prod(g.weight[2:]), bytes_of(compute_type(g.dtype))
    contiguous = xs[3] == ys[3] == ws[3] == 1 and ys[2] == y[3] and ws[1:3] == (taps, g.weight[3])
    if not contiguous or g.weight[0] > MAX_OUTPUTS or taps > 64 or prod(y) // y[1] < 1024:
        return None
    vl = target.width_bits // (8 * size)
    vectors = min(2, -(-y[1] // vl))
    # of the registers, ``vectors`` hold the cotangent and two a broadcast element and an address; the others are accumulators
    max_rows = min(14, (target.registers - 2 - vectors) // vectors)
    if taps > max_rows:
        count = -(-taps // max_rows)
        tiles = [(1, a, b - a) for a, b in pairwise(taps * i // count for i in range(count + 1))]
    else:
        tiles = [(max_rows // taps, 0, taps)]
    extent = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(y[2:], g.stride, g.dilation, g.weight[2:], strict=True)]
    inside = all(p[0] == 0 and r <= n for p, r, n in zip(g.padding, extent, g.image[2:], strict=True))
    padded = None if inside else (extent[0], extent[1])
    images = -(-g.image[0] // _PARTS)
    parts = -(-g.image[0] // images)
    # padded channels of one image fit in half of a second-level cache
    max_channels = g.image[1] if padded is None else max(1, (448 << 10) // (prod(padded) * size))
    blocks = max(-(-g.image[1] // max_channels), -(-_PARTS // parts))
    channels_at_once = tiles[0][0]
    channels = min(g.image[1], -(-g.image[1] // (blocks * channels_at_once)) * channels_at_once)
    depth = max(1, (32 << 10) // (vectors * vl * size))  # positions of a panel that fills two thirds of a first-level cache
    rows = min(y[2], max(1, depth // y[3]))
    samples = max(1, min(images, depth // prod(y[2:]))) if rows == y[2] else 1
    if padded is not None:
        samples = max(1, min(samples, (448 << 10) // (channels * prod(padded) * size)))
    return TapSums(vl, vectors, tuple(tiles), parts, images, channels, rows, samples, padded)


def tap_sum_kernels(g: Convolution, t: TapSums, target: Target, name: str) -> Contraction:
    """Kernels of ``conv_weight``; ``bufs`` holds the cotangent, the image, the weight's gradient and the workspace.

    Args:
        g: The convolution.
        t: Its block sizes.
        target: Processor to generate for.
        name: Name of the functions.
    """
    return _TapSumGenerator(g, t, target, name).generate()


def _aligned(n: int) -> int:
    return -(-n // 64) * 64


class _TapSumGenerator:
    def __init__(self, g: Convolution, t: TapSums, target: Target, name: str) -> None:
        self.g, self.t, self.target, self.name = g, t, target, name
        self.declared: set[str] = set()
        self.functions: dict[str, str] = {}
        self.kernels: list[ContractionKernel] = []
        self.type = compute_type(g.dtype)
        self.size = bytes_of(self.type)
        self.width = t.vectors * t.vl  # lanes of a panel of the cotangent
        self.taps, (_, self.outputs, *self.positions) = prod(g.weight[2:]), g.result
        self.panels = -(-self.outputs // self.width)
        self.part = g.image[1] * self.taps * self.panels * self.width  # elements of a partial sum
        if t.padded is None:
            self.image_strides = g.strides[0]
        else:
            plane = prod(t.padded)
            self.image_strides = (t.channels * plane, plane, t.padded[1], 1)

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
        self.sums()
        self.add_parts()
        k = t.rows * t.samples * self.positions[1]
        v = Variant(max(c * n for c, _, n in t.tiles), self.width, k, t.channels, self.width, UNIT, UNIT, True, t.parts)
        return Contraction(
            tuple(self.kernels), self.functions, frozenset(self.declared), _aligned(t.parts * self.part * self.size), v, False
        )

    # ---- partial sums
    def sums(self) -> None:
        """Write the kernel of partial sums. A work unit transposes the cotangent, pads images, and sums all taps of some
        channels."""
        g, t = self.g, self.t
        (width, positions), blocks = self.positions[::-1], -(-g.image[1] // t.channels)
        e = self.emitter()
        cotangent, image = e.operand(0), e.operand(1)
        space = e.operand(3)
        depth = t.samples * t.rows * width
        panel = depth * self.width + t.vl * self.width  # padded, since the last transposed block is stored whole
        image_bytes = _aligned((t.samples * t.channels * prod(t.padded) + t.vl) * self.size) if t.padded else 0
        copy, transposed_cotangent = "%scratch", e.at("%scratch", image_bytes, "i8")
        with e.loop("%begin", "%end") as unit:
            part, block = e.split(unit.index, [t.parts, blocks])
            n0, c0 = e.mul(part, t.images), e.mul(block, t.channels)
            n1, c1 = e.min(e.add(n0, t.images), g.image[0]), e.min(e.add(c0, t.channels), g.image[1])
            to = e.at(space, e.mul(part, self.part), self.type)
            with e.loop(n0, n1, t.samples) as n:
                count = e.min(t.samples, e.sub(n1, n.index))
                if t.padded is None:
                    source_at = e.at(image, e.dot([n.index, c0], self.image_strides[:2]), self.type)
                else:
                    source_at = copy
                    self.pad(e, image, n.index, count, c0, c1, copy)
                with e.loop(0, positions, t.rows) as row:
                    rows = e.min(t.rows, e.sub(positions, row.index))
                    self.transpose_cotangent(e, cotangent, n.index, count, row.index, rows, transposed_cotangent, panel)
                    new = e.compare("eq", e.add(e.sub(n.index, n0), row.index), 0)
                    start = e.mul(row.index, g.stride[0] * self.image_strides[2])
                    with e.loop(0, self.panels) as p:
                        b = e.at(transposed_cotangent, e.mul(p.index, panel), self.type)
                        self.tiles(e, source_at, start, b, count, rows, to, p.index, c0, c1, new)
        scratch = image_bytes + _aligned(self.panels * panel * self.size)
        self.kernel(e, "", t.parts * blocks, scratch, 2.0 * prod(g.result) * prod(g.weight[1:]))

    def pad(self, e: IRBuilder, image: str, n: Value, count: Value, c0: Value, c1: Value, to: str) -> None:
        """Copy the rows of images that taps read, with zeros for padding."""
        assert self.t.padded is not None
        (height, width), vl, xs = self.t.padded, self.t.vl, self.g.strides[0]
        (top, _), (left, _) = self.g.padding
        with e.loop(0, count) as sample, e.loop(c0, c1) as channel:
            source = e.dot([e.add(n, sample.index), channel.index], xs[:2])
            plane = e.dot([sample.index, e.sub(channel.index, c0)], self.image_strides[:2])
            with e.loop(0, height) as row:
                y = e.sub(row.index, top)
                inside = e.compare("ult", y, self.g.image[2])
                for x in range(0, width, vl):  # lanes that cross the end of a row are overwritten by the next row
                    place = e.let(f"select i1 {inside}, i64 {x - left}, i64 {-(1 << 30)}")
                    mask = e.inside(place, 1, self.g.image[3], vl)
                    at = e.add(source, e.add(e.mul(y, xs[2]), x - left))
                    value = e.load(e.at(image, at, self.type), vl, self.g.dtype, mask)
                    destination = e.add(plane, e.add(e.mul(row.index, width), x))
                    e.store(value, e.at(to, destination, self.type), vl, self.g.dtype)

    def transpose_cotangent(
        self, e: IRBuilder, cotangent: str, n: Value, count: Value, row: Value, rows: Value, to: str, panel: int
    ) -> None:  # fmt: skip
        """Transpose the cotangent's rows of positions to [panel][position][output]."""
        vl, width, ys = self.t.vl, self.positions[1], self.g.strides[2]
        length = e.mul(rows, width)
        with e.loop(0, count) as sample, e.loop(0, self.panels * self.width, vl) as first:
            source = e.dot([e.add(n, sample.index), row], [ys[0], ys[2]])
            outputs = [e.min(e.add(first.index, i), self.outputs - 1) for i in range(vl)]
            at = [e.at(cotangent, e.add(source, e.mul(o, ys[1])), self.type) for o in outputs]
            number, lane = e.div(first.index, self.width), e.mod(first.index, self.width)
            base = e.add(e.mul(number, panel), e.add(e.mul(e.mul(sample.index, length), self.width), lane))
            with e.loop(0, length, vl) as k:
                mask = e.lanes_below(e.sub(length, k.index), vl) if width % vl else None
                loaded = [e.load(e.at(a, k.index, self.type), vl, self.g.dtype, mask) for a in at]
                block_start = e.add(base, e.mul(k.index, self.width))
                for i, (x, _) in enumerate(transposed(e, loaded, vl, vl, self.type)):
                    e.store(x, e.at(to, e.add(block_start, i * self.width), self.type), vl, self.g.dtype)

    def tiles(
        self, e: IRBuilder, image: str, start: Value, b: str, count: Value, rows: Value, to: str, panel: Value, c0: Value,
        c1: Value, new: str,
    ) -> None:  # fmt: skip
        """Sums of all taps of the channels with a panel of outputs."""
        t = self.t
        channels_at_once = t.tiles[0][0]

        def call(channel: Value, count_of: int) -> None:
            for _, first, taps in t.tiles:
                y, x = divmod(first, self.g.weight[3])
                tap = y * self.g.dilation[0] * self.image_strides[2] + x * self.g.dilation[1]
                inner = e.dot([e.sub(channel, c0)], [self.image_strides[1]], e.add(start, tap))
                a = e.at(image, inner, self.type)
                strides = [self.taps * self.panels * self.width, self.panels * self.width, self.width]
                c = e.at(to, e.dot([channel, first, panel], strides), self.type)
                micro = self.micro(count_of, first, taps)
                sizes = f"i64 {count}, i64 {rows}, i64 {self.positions[1]}"
                e.do(f"call void @{micro}(ptr {a}, ptr {b}, {sizes}, ptr {c}, i1 {new})")

        with e.loop(c0, c1, channels_at_once) as channel:
            if channels_at_once == 1:
                call(channel.index, 1)
            else:
                whole = e.compare("sle", e.add(channel.index, channels_at_once), c1)
                with e.when(whole):
                    call(channel.index, channels_at_once)
                with e.when(e.let(f"xor i1 {whole}, true")), e.loop(channel.index, c1) as one:
                    call(one.index, 1)

    def micro(self, channels: int, first: int, taps: int) -> str:
        """The name of the micro-kernel that sums some taps of some channels over rows of positions, in registers.

        ``void micro(ptr a, ptr b, i64 samples, i64 rows, i64 columns, ptr c, i1 new)``; C is not initialised if ``new``. Steps
        along a row are not unrolled: adjacent taps read the same elements in adjacent steps, and LLVM would keep more of them
        than there are registers.
        """
        t, g, type_, v = self.t, self.g, self.type, vector(self.t.vl, self.type)
        width, (sy, sx) = self.positions[1], g.stride
        e = self.emitter()
        origin = self.tap(first)
        offsets = [i * self.image_strides[1] + self.tap(first + j) - origin for i in range(channels) for j in range(taps)]
        rows = [i * self.taps + j for i in range(channels) for j in range(taps)]
        initialised = e.splat(e.let("xor i1 %new, true"), t.vl, "i1")
        cells = [(i, j) for i in range(len(offsets)) for j in range(t.vectors)]
        c_at = [e.at("%c", rows[i] * self.panels * self.width + j * t.vl, type_) for i, j in cells]
        acc = [e.load(at, t.vl, g.dtype, initialised) for at in c_at]

        def step(acc: Sequence[str], a: str, b: str, x: Value) -> list[str]:
            b = e.at(b, e.mul(x, self.width), type_)
            bs = [e.load(e.at(b, j * t.vl, type_), t.vl, g.dtype) for j in range(t.vectors)]
            a = e.at(a, e.mul(x, sx), type_)
            out = []
            for i, offset in enumerate(offsets):
                one = e.let(f"load {type_}, ptr {e.at(a, offset, type_)}, align {self.size}")
                every = e.splat(one, t.vl, type_)
                out += [e.fma(every, y, acc[i * t.vectors + j], t.vl, type_) for j, y in enumerate(bs)]
            return out

        with e.loop(0, "%samples", 1, [(v, x) for x in acc]) as sample:
            with e.loop(0, "%rows", 1, [(v, x) for x in sample.values]) as row:
                a = e.at("%a", e.dot([sample.index, row.index], [self.image_strides[0], sy * self.image_strides[2]]), type_)
                k = e.mul(e.add(e.mul(sample.index, "%rows"), row.index), width * self.width)
                b = e.at("%b", k, type_)
                with e.loop(0, "%columns", 1, [(v, x) for x in row.values]) as column:
                    column.next = step(column.values, a, b, column.index)
                row.next = column.values
            sample.next = row.values
        for x, at in zip(sample.values, c_at, strict=True):
            e.store(x, at, t.vl, g.dtype)
        e.do("ret void")
        head = "(ptr noalias %a, ptr noalias %b, i64 %samples, i64 %rows, i64 %columns, ptr noalias %c, i1 %new)"
        text = "\n".join([f"{head} noinline nounwind {{", *e.lines, "}"])
        name = f"micro.{sha256(text.encode()).hexdigest()[:20]}"
        self.functions[name] = f"define internal void @{name}{text}"
        return name

    def tap(self, number: int) -> int:
        """The offset of a tap from the first tap, in elements of the image."""
        y, x = divmod(number, self.g.weight[3])
        return y * self.g.dilation[0] * self.image_strides[2] + x * self.g.dilation[1]

    # ---- the sum of the partial sums
    def add_parts(self) -> None:
        """Write the kernel that adds the partial sums, first to last, and stores [output][channel][tap]. A work unit is one
        vector of channels and taps."""
        t, g, vl, v = self.t, self.g, self.t.vl, vector(self.t.vl, self.type)
        count, row = g.image[1] * self.taps, self.panels * self.width
        e = self.emitter()
        to, space = e.operand(2), e.operand(3)
        with e.loop("%begin", "%end") as unit:
            first = e.mul(unit.index, vl)
            mask = e.lanes_below(e.sub(count, first), vl) if count % vl else None
            each = [e.mul(e.min(e.add(first, i), count - 1), row) for i in range(vl)]
            with e.loop(0, row, vl) as output:
                sums = []
                for at in each:
                    partial_sum = e.at(space, e.add(at, output.index), self.type)
                    total = e.load(partial_sum, vl, g.dtype)
                    for p in range(1, t.parts):
                        y = e.load(e.at(partial_sum, p * self.part, self.type), vl, g.dtype)
                        total = e.let(f"fadd {v} {total}, {y}")
                    sums.append(total)
                store = e.at("%scratch", 0, self.type)
                for i, (output_row, _) in enumerate(transposed(e, sums, vl, vl, self.type)):
                    e.store(output_row, e.at(store, i * vl, self.type), vl, g.dtype)
                with e.loop(0, e.min(vl, e.sub(self.outputs, output.index))) as lane:
                    line = e.load(e.at(store, e.mul(lane.index, vl), self.type), vl, g.dtype)
                    destination = e.add(e.mul(e.add(output.index, lane.index), g.strides[1][0]), first)
                    e.store(line, e.at(to, destination, self.type), vl, g.dtype, mask)
        self.kernel(e, "sum", -(-count // vl), vl * vl * self.size, float(t.parts * self.part))
