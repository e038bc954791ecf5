"""Random words of a stream in vector lanes: ``philox`` nodes as arithmetic in 64-bit lanes, one block for words that share it.

A block of the generator has four words, and most of what a word costs is its block. Words at positions ``4 * i + 1`` and
``4 * i + 2`` are of one block, which is computed once: its nodes are equal, as expressions or as LLVM's instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firebrick.scalar.elements import PHILOX
from firebrick.scalar.expr import BITS, INTEGERS, Expr, bitcast, cast, const, eq, rebuilt, rewritten, select

ROUNDS = 10
_LOW, _HALF = 0xFFFFFFFF, 32


def with_blocks(roots: Sequence[Expr], powers: Mapping[str, int]) -> list[Expr]:
    """Expressions whose ``philox`` nodes are written as arithmetic.

    Args:
        roots: Expressions.
        powers: For integer locals, n where 2^n is known to divide the value; 0 for others.
    """

    def rule(e: Expr, args: tuple[Expr, ...]) -> Expr:
        return _word(args[:4], args[4], powers) if e.op == "philox" else rebuilt(e, args)

    return rewritten(roots, rule)


def power(e: Expr, powers: Mapping[str, int]) -> int:
    """The largest n for which 2^n is known to divide an integer, 64 for 0. Arguments as of ``with_blocks``."""
    if e.dtype not in INTEGERS:
        return 0
    if e.op == "const":
        number = int(e.value or 0)
        return (number & -number).bit_length() - 1 if number else 64
    if e.op == "local":
        return powers.get(str(e.value), 0)
    if e.op not in ("add", "sub", "neg", "mul", "shl"):
        return 0
    if e.op == "shl":
        by = int(e.args[1].value or 0) if e.args[1].op == "const" else -1
        found = power(e.args[0], powers) + by if 0 <= by < BITS[e.dtype] else 0
    else:
        parts = [power(a, powers) for a in e.args]
        found = sum(parts) if e.op == "mul" else min(parts)
    return min(64, found)


def _word(key: Sequence[Expr], position: Expr, powers: Mapping[str, int]) -> Expr:
    start, places = position, 0
    if position.op == "add" and position.args[1].op == "const":
        places = int(position.args[1].value or 0)
        start = position.args[0]
    known = min(2, power(start, powers))
    # adding less than 2^known to a multiple of it changes neither the block nor the higher bits of the word's number
    within = places & ((1 << known) - 1)
    start = start + (places - within)
    words = _block(key, bitcast(start, "uint64") >> 2)
    if known == 2:
        return cast(words[within], "uint32")
    if known == 1:
        return cast(select(eq(start & 2, 0), words[within], words[within + 2]), "uint32")
    odd = eq(start & 1, 0)
    return cast(select(eq(start & 2, 0), select(odd, words[0], words[1]), select(odd, words[2], words[3])), "uint32")


def _block(key: Sequence[Expr], block: Expr) -> list[Expr]:
    """The words of a block in the low halves of uint64; the high halves are anything.

    32-bit products of both halves are one instruction of 64-bit lanes, and nothing moves between lanes.
    """
    c = [block, block >> _HALF, cast(key[2], "uint64"), cast(key[3], "uint64")]
    k0, k1 = key[0], key[1]
    for _ in range(ROUNDS):
        p0, p1 = (c[0] & _LOW) * PHILOX[0], (c[2] & _LOW) * PHILOX[1]
        c = [(p1 >> _HALF) ^ c[1] ^ cast(k0, "uint64"), p1, (p0 >> _HALF) ^ c[3] ^ cast(k1, "uint64"), p0]
        k0, k1 = k0 + const(PHILOX[2], "uint32"), k1 + const(PHILOX[3], "uint32")
    return c
