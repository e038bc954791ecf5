"""Random words for consecutive positions: each block of the generator, which is four words, is computed once.

The words are stored in scratch memory before the loop that uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from firebrick.compiler.targets.llvm.emit import Code, Emitter, splat, vector_type
from firebrick.compiler.targets.llvm.memory import Strip, read
from firebrick.compiler.targets.llvm.native import Loop
from firebrick.scalar.elements import PHILOX
from firebrick.scalar.expr import Expr

ROUNDS = 10
MIN_COUNT = 8
"""Minimum number of elements of a row; in shorter rows, each word is computed separately."""


def consecutive(nodes: Sequence[Expr], invariant: Collection[Expr], indices: Mapping[Expr, int]) -> list[Expr]:
    """The ``philox`` nodes with a loop-invariant key whose positions are consecutive along the innermost axis.

    Args:
        nodes: Nodes of a kernel.
        invariant: Nodes that are invariant along that axis.
        indices: Stride of each ``index`` node along that axis.
    """

    def terms(e: Expr) -> list[Expr]:
        return [t for a in e.args for t in terms(a)] if e.op == "add" else [e]

    out = []
    for e in nodes:
        if e.op == "philox" and all(k in invariant for k in e.args[:4]):
            varying = [t for t in terms(e.args[4]) if t not in invariant]
            if len(varying) == 1 and indices.get(varying[0]) == 1:
                out.append(e)
    return out


class Streams:
    """Random words in scratch memory, for the streams of one kernel.

    Args:
        code: Function to append to.
        nodes: ``philox`` nodes with consecutive positions.
        count: Maximum number of positions at a time.
        scratch: Byte offset of their buffers in scratch memory.

    Attributes:
        bytes: Bytes of their buffers.
    """

    def __init__(self, code: Code, nodes: Sequence[Expr], count: int, scratch: int) -> None:
        self.code, self.nodes, self.scratch = code, list(nodes) if count >= MIN_COUNT else [], scratch
        self.buffer_bytes = buffer_bytes(code, count)
        self.bytes = len(self.nodes) * self.buffer_bytes
        self._words: dict[Expr, Strip] = {}

    def fill(self, emitter: Emitter, start: str, count: str) -> None:
        """Compute the words of positions ``start`` to ``start`` + ``count`` (i64) of the innermost axis.

        Args:
            emitter: Scalar emitter at position 0.
            start: First position.
            count: Number of positions.
        """
        code = self.code
        for i, e in enumerate(self.nodes):
            *key, at = emitter.all(e.args)
            first = at if start == "0" else code.put(f"add i64 {at}, {start}")
            buffer = code.put(f"getelementptr i8, ptr %scratch, i64 {self.scratch + i * self.buffer_bytes}")
            words = fill(code, key, first, count, buffer)
            if start != "0":  # the loop indexes by position, so the pointer is that of position 0
                words = code.put(f"getelementptr i32, ptr {words}, i64 {code.put(f'sub i64 0, {start}')}")
            self._words[e] = Strip("uint32", words, 1)

    def values(self, at: str, lanes: int, mask: str) -> dict[Expr, str]:
        """The words of ``lanes`` positions from ``at`` on."""
        return {e: read(self.code, words, at, lanes, mask) for e, words in self._words.items()}


def buffer_bytes(code: Code, count: int) -> int:
    """Scratch memory for the words of at most ``count`` positions, a multiple of a cache line."""
    group = 4 * code.target.lanes(64)
    return -(-(count + 3 + group) * 4 // 64) * 64


def fill(code: Code, key: Sequence[str], first: str, count: str, buffer: str) -> str:
    """Store the words of ``count`` positions from ``first`` on (i64) into a buffer; returns the pointer to the first word.

    Args:
        code: Function to append to.
        key: The stream's four words, i32.
        first: The first position.
        count: Number of positions, i64.
        buffer: Pointer to ``buffer_bytes`` of memory.
    """
    lanes = code.target.lanes(64)
    wide = vector_type("i64", lanes)
    # the first block may begin before the first position, and the last one may end after the last position
    block = code.put(f"lshr i64 {first}, 2")
    skipped = code.put(f"and i64 {first}, 3")
    end = code.put(f"add i64 {code.put(f'add i64 {count}, {skipped}')}, 3")
    blocks = code.put(f"lshr i64 {end}, 2")
    words = [code.put(f"zext i32 {k} to i64") for k in key]
    streams = [splat(code, "i64", w, lanes) for w in words[2:]]
    keys = []
    for k, grows in zip(key[:2], PHILOX[2:], strict=True):
        steps = [code.put(f"add i32 {k}, {grows * i % (1 << 32)}") if i else k for i in range(ROUNDS)]
        keys.append([splat(code, "i64", code.put(f"zext i32 {s} to i64"), lanes) for s in steps])
    # one block in each lane, of 64 bits, since a round needs both halves of 32-bit products
    loop = Loop(code, "0", blocks, lanes)
    at = splat(code, "i64", code.put(f"add i64 {block}, {loop.index}"), lanes)
    if lanes > 1:
        at = code.put(f"add {wide} {at}, <{', '.join(f'i64 {i}' for i in range(lanes))}>")
    low_mask, thirty = (_all(n, lanes) for n in (0xFFFFFFFF, 32))
    # the low 32 bits of each lane are the word; the high bits are arbitrary, and are masked before a multiplication
    c = [at, code.put(f"lshr {wide} {at}, {thirty}"), *streams]
    for i in range(ROUNDS):
        p = []
        for word, multiplier in ((c[0], PHILOX[0]), (c[2], PHILOX[1])):
            p.append(code.put(f"mul {wide} {code.put(f'and {wide} {word}, {low_mask}')}, {_all(multiplier, lanes)}"))
        high = [code.put(f"lshr {wide} {x}, {thirty}") for x in p]
        c = [
            code.put(f"xor {wide} {code.put(f'xor {wide} {high[1]}, {c[1]}')}, {keys[0][i]}"), p[1],
            code.put(f"xor {wide} {code.put(f'xor {wide} {high[0]}, {c[3]}')}, {keys[1][i]}"), p[0],
        ]  # fmt: skip
    pairs = []
    for even, odd in ((c[0], c[1]), (c[2], c[3])):
        above = code.put(f"shl {wide} {odd}, {thirty}")
        pairs.append(code.put(f"or {wide} {code.put(f'and {wide} {even}, {low_mask}')}, {above}"))
    to = code.put(f"getelementptr i32, ptr {buffer}, i64 {code.put(f'shl i64 {loop.index}, 2')}")
    if lanes == 1:
        code.do(f"store i64 {pairs[0]}, ptr {to}, align 8")
        code.do(f"store i64 {pairs[1]}, ptr {code.put(f'getelementptr i64, ptr {to}, i64 1')}, align 8")
    else:
        order = ", ".join(f"i32 {i // 2 + i % 2 * lanes}" for i in range(2 * lanes))
        both = code.put(f"shufflevector {wide} {pairs[0]}, {wide} {pairs[1]}, <{2 * lanes} x i32> <{order}>")
        code.do(f"store <{2 * lanes} x i64> {both}, ptr {to}, align 16")
    loop.close()
    return code.put(f"getelementptr i32, ptr {buffer}, i64 {skipped}")


def _all(number: int, lanes: int) -> str:
    return str(number) if lanes == 1 else f"splat (i64 {number})"
