"""The micro-kernel: a tile of C in registers, ``rows`` by ``vectors``, to which products of A and B are added one k at a time.

Each k reads the vectors of B once and each row of A as a broadcast scalar, so that a tile of 14 × 32 (AVX-512: 28 accumulators,
2 vectors of B and a broadcast, of 32 registers) needs 16 loads for 28 multiply-adds. The tile is added to C once for each block
of k. If k is one block, a light epilogue is applied to the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firebrick.compiler.targets.llvm.contract.epilogue import Epilogue, put, values
from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, bytes_of, memory, vector
from firebrick.compiler.targets.llvm.contract.omitted import flag_nan

FAR = 1024
"""Minimum number of elements between rows of operands that are prefetched: hardware prefetches within a page only."""


@dataclass(frozen=True, slots=True)
class Strides:
    """Elements between neighbours of a side along its lanes and along k."""

    lanes: int
    k: int


@dataclass(frozen=True, slots=True)
class Tile:
    """One shape of micro-kernel.

    Attributes:
        rows: Rows of the tile.
        columns: Columns that are stored; the last vector is masked if they are no multiple of a vector.
        vl: Lanes of a vector.
        type: ``float`` or ``double``.
        a: How A is read.
        b: How B is read; its lanes are contiguous.
        b_padded: Whether B may be read to the end of the last vector.
        c_row: Elements between rows of C.
        c_dtype: Dtype of C in memory.
        masked: Whether memory beyond the tile's columns must not be written.
        blocks: Number of blocks of k. With one block, C is never read.
        multiple: A divisor of the number of steps of every block.
        flags: Whether NaN in the tile are reported: the last parameter points to a byte that is then set to 1.
    """

    rows: int
    columns: int
    vl: int
    type: str
    a: Strides
    b: Strides
    b_padded: bool
    c_row: int
    c_dtype: str
    masked: bool
    blocks: int
    multiple: int = 1
    flags: bool = False

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return -(-self.columns // self.vl)


def micro_kernel(e: IRBuilder, t: Tile, epilogue: Epilogue | None) -> str:
    """The text of ``void micro(ptr a, ptr b, i64 kc, ptr c, i1 first, ptr view…)``, from the parameter list on.

    Args:
        e: A builder without instructions.
        t: The tile.
        epilogue: Applied to the only block of k. Each of its views has one stride for the tile's rows, one for its columns, and
            one parameter. None for a plain product, which is stored in ``c``.
    """
    e.start("%entry")
    # unrolled further for small tiles, where the loop's own instructions are a larger part of the time
    v, size, unroll = vector(t.vl, t.type), bytes_of(t.type), 4 if t.rows * t.vectors < 16 else 2
    cells = [(i, j) for i in range(t.rows) for j in range(t.vectors)]
    last = e.lanes_below(t.columns - (t.vectors - 1) * t.vl, t.vl)
    plain = "float32" if t.type == "float" else "float64"
    b_masks = [None if t.b_padded or j < t.vectors - 1 else last for j in range(t.vectors)]
    c_masks = [last if t.masked and j == t.vectors - 1 else None for j in range(t.vectors)]

    def step(acc: list[str], k: Value) -> list[str]:
        b_at = e.at("%b", e.mul(k, t.b.k), t.type)
        b_row = [e.load(e.at(b_at, j * t.vl, t.type), t.vl, plain, b_masks[j]) for j in range(t.vectors)]
        a_at = e.at("%a", e.mul(k, t.a.k), t.type)
        out = []
        for i in range(t.rows):
            x = e.let(f"load {t.type}, ptr {e.at(a_at, i * t.a.lanes, t.type)}, align {size}")
            wide = e.splat(x, t.vl, t.type)
            out += [e.fma(wide, b_row[j], acc[i * t.vectors + j], t.vl, t.type) for j in range(t.vectors)]
        return out

    if t.blocks > 1:  # C is at best in the second-level cache; it is needed after the sums, which hide the prefetch's latency
        for i in range(t.rows):
            for j in range(0, t.vectors * t.vl * size, 64):
                at = e.at(e.at("%c", i * t.c_row, memory(t.c_dtype)), j, "i8")
                e.intrinsic("void", "llvm.prefetch.p0", ("ptr", at), ("i32", 1), ("i32", 3), ("i32", 1))
    for n, operand in enumerate(epilogue.operands if epilogue else ()):
        if abs(operand.rows[0].stride) >= FAR and operand.lanes[-1].stride == 1:  # likewise
            for i, j in cells:
                at = e.at(f"%x{n}", i * operand.rows[0].stride + j * t.vl, memory(operand.dtype))
                e.intrinsic("void", "llvm.prefetch.p0", ("ptr", at), ("i32", 0), ("i32", 3), ("i32", 1))
    zero = [(v, "zeroinitializer")] * len(cells)
    whole = t.multiple % unroll == 0
    main = "%kc" if whole else e.let(f"and i64 %kc, {-unroll}")
    with e.loop(0, main, unroll, zero) as loop:
        acc = loop.values
        for u in range(unroll):
            acc = step(acc, e.add(loop.index, u))
        loop.next = acc
    acc = loop.values
    if not whole:
        with e.loop(main, "%kc", 1, [(v, x) for x in acc]) as rest:
            rest.next = step(rest.values, rest.index)
        acc = rest.values

    def c_at(i: int, j: int) -> str:
        return e.at("%c", i * t.c_row + j * t.vl, memory(t.c_dtype))

    if t.blocks > 1:
        acc = _accumulated(e, cells, acc, v, lambda i, j: e.load(c_at(i, j), t.vl, t.c_dtype, c_masks[j]))
    if t.flags:
        flag_nan(e, acc, t.vl, t.type, "%flag")
    if epilogue is None:
        for (i, j), x in zip(cells, acc, strict=True):
            e.store(x, c_at(i, j), t.vl, t.c_dtype, c_masks[j])
    else:
        steps = [(x.rows[0].stride, x.lanes[-1].stride) for x in epilogue.views]
        results = []
        loaded: dict[tuple[int, Value, str | None], str] = {}
        for (i, j), x in zip(cells, acc, strict=True):
            locations = [(f"%x{n}", i * row + j * t.vl * lane, lane) for n, (row, lane) in enumerate(steps)]
            results.append((values(e, epilogue, x, locations, t.vl, c_masks[j], loaded), c_masks[j]))
        for vectors, mask in results:  # after all loads, since a result may use an operand's memory
            put(e, vectors, t.vl, mask)
    e.do("ret void")
    args = "".join(f", ptr %x{n}" for n in range(len(epilogue.views) if epilogue else 0)) + ", ptr %flag" * t.flags
    # noinline: all calls, also those of other contractions in the module, share one function
    head = f"(ptr noalias %a, ptr noalias %b, i64 %kc, ptr %c, i1 %first{args})"
    return "\n".join([f"{head} noinline nounwind {{", *e.lines, "}"])


def _accumulated(
    e: IRBuilder, cells: list[tuple[int, int]], acc: list[str], v: str, read: Callable[[int, int], str]
) -> list[str]:  # fmt: skip
    """The tile plus C, or the tile alone at the first block, before which C is not initialised."""
    load_c, out = e.name("more"), e.name("out")
    before = e.block
    e.do(f"br i1 %first, label {out}, label {load_c}")
    e.start(load_c)
    sums = [e.let(f"fadd {v} {read(i, j)}, {x}") for (i, j), x in zip(cells, acc, strict=True)]
    after = e.block
    e.do(f"br label {out}")
    e.start(out)
    return [
        e.let(f"phi {v} [ {x}, %{before} ], [ {s}, %{after} ]") for x, s in zip(acc, sums, strict=True)
    ]  # fmt: skip
