"""``Copy``: a launch for each piece, an item for each of its words."""

from __future__ import annotations

from firebrick.compiler.naive.building import INPUT, RESULT, ZERO, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.spec.copy import Copy, Piece
from firebrick.scalar.expr import const, eq, select

WORD = 8
"""Bytes of the widest element that a kernel copies; wider ones are several."""


def copy(spec: Copy) -> Naive:
    """The naive form. Elements are unsigned integers; those of 16 bytes are two of them."""
    return Naive(tuple(_piece(spec, p) for p in spec.pieces))


def _piece(spec: Copy, piece: Piece) -> NaiveLaunch:
    words, dtype = max(1, spec.itemsize // WORD), f"uint{8 * min(WORD, spec.itemsize)}"
    b = Builder("copy", (*piece.write.shape, words))
    *position, word = b.positions
    to = b.address(b.place(piece.write), position)
    if piece.source is not None:
        at = b.address(b.place(piece.read), position)
        value = b.read(Buffer(INPUT, piece.source), dtype, at * words + word)
    elif words == 1:
        value = const(piece.bits, dtype)
    else:
        value = select(eq(word, ZERO), const(piece.bits, dtype), const(piece.bits >> 64, dtype))
    b.store(Buffer(RESULT, 0), dtype, to * words + word, value)
    return b.step()
