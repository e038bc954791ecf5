"""``Copy``: a result that is assembled from pieces, each copied from an array or filled with a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.compiler.spec.base import Cost, Size
from firebrick.compiler.spec.single import single
from firebrick.core.views import View, row_major
from firebrick.ir import Graph


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the result. Pieces are written in order; later pieces overwrite earlier ones.

    Attributes:
        source: Number of the input that is copied; None for a number.
        bits: Bits of the number, as an unsigned integer of an element's size.
        read: View of the elements in the input.
        write: View of the elements in the result, of the same shape.
        whole: Whether the input is copied as a whole, in the same order, so that the result may use its memory.
    """

    source: int | None
    bits: int
    read: View
    write: View
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """Elements are unsigned integers of their size.

    Attributes:
        itemsize: Bytes of an element.
        elements: Of the result.
        pieces: Its parts.
    """

    itemsize: int
    elements: Size
    pieces: tuple[Piece, ...]

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        return Cost(0.0, float(sum(p.write.shown * self.itemsize * (1 + (p.source is not None)) for p in self.pieces)))


def copy(body: Graph) -> Copy:
    """The specification of a group of one node that assembles arrays."""
    s = single(body)
    out = s.node.avals[0]
    size = out.dtype.itemsize

    def bits(value: Any) -> int:
        return int.from_bytes(np.asarray(value).astype(out.dtype.np).tobytes(), "little")

    pieces = []
    for operand, value, write in s.facts["pieces"]:
        shape = write.shape
        if 0 in shape:
            continue
        source = None if operand is None else s.sources[operand]
        number = s.numbers.get(operand, value)
        whole = write == row_major(out.shape)
        pieces.append(Piece(source, 0 if source is not None else bits(number), row_major(shape), write, whole))
    return Copy(size, out.size, tuple(pieces))


def in_place(spec: Copy) -> frozenset[int]:
    """The inputs whose memory the result may use: those that only the first piece reads, and copies as a whole."""
    first = spec.pieces[0] if spec.pieces else None
    if first is None or first.source is None or not first.whole or len(spec.pieces) < 2:
        return frozenset()
    return frozenset({first.source}) - {p.source for p in spec.pieces[1:]}
