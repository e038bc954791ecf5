"""The collective operations, over any ``Wire``: which slices go where, and in which order they are folded.

Every rank owns one slice of the elements. A reduction sends each slice to its owner, who folds the terms in the order of the
ranks; gathering sends each owner's result to all. For n bytes on P ranks, an all-reduce sends and receives 2 n (P - 1) / P
bytes a rank, the least there is; a reduce-scatter or all-gather half of that; in two (one) steps of P - 1 messages. All owners
work at once, no rank passes on what it has not folded, and the result does not depend on which message came first.

Small operands (``SMALL`` bytes) go whole to every rank, who fold them all: one step instead of two, the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firebrick.core.tensor import Tensor
from firebrick.distributed.reductions import slices
from firebrick.distributed.wire import Wire

SMALL = 4096


def peers(wire: Wire) -> list[int]:
    """The other ranks, each rank's list starting behind itself, so that not all send to the same one first."""
    return [(wire.rank + i) % wire.size for i in range(1, wire.size)]


def gather(wire: Wire, own: Any, deadline: float) -> list[Any]:
    """Every rank's buffer, by rank; all are of one size."""
    parts = [own if r == wire.rank else wire.empty(own.shape[0], own) for r in range(wire.size)]
    _exchange(wire, [(p, own) for p in peers(wire)], [(p, parts[p]) for p in peers(wire)], deadline)
    return parts


def scatter_fold(wire: Wire, flat: Any, cuts: Sequence[slice], op: str, out: Any, like: Tensor, deadline: float) -> None:
    """The reduction of this rank's slice of ``flat``, into ``out``."""
    own = flat[cuts[wire.rank]]
    parts = [own if r == wire.rank else wire.empty(own.shape[0], flat) for r in range(wire.size)]
    _exchange(wire, [(p, flat[cuts[p]]) for p in peers(wire)], [(p, parts[p]) for p in peers(wire)], deadline)
    wire.fold(op, parts, out, like)


def reduce_all(wire: Wire, flat: Any, op: str, like: Tensor, deadline: float) -> Any:
    """The reduction of ``flat``, whole, on every rank."""
    out = wire.empty(flat.shape[0], flat)
    if flat.shape[0] * like.dtype.itemsize <= SMALL:
        wire.fold(op, gather(wire, flat, deadline), out, like)
        return out
    cuts = slices(flat.shape[0], wire.size)
    scatter_fold(wire, flat, cuts, op, out[cuts[wire.rank]], like, deadline)
    _join(wire, out, cuts, deadline)
    return out


def spread(wire: Wire, flat: Any, root: int, deadline: float) -> Any:
    """The buffer of rank ``root`` on every rank: it hands out slices, and all exchange them, so it sends 2 n bytes at most."""
    cuts, me = slices(flat.shape[0], wire.size), wire.rank
    if me == root:
        _exchange(wire, [(p, flat[cuts[p]]) for p in peers(wire)], [], deadline)
        out = flat
    else:
        out = wire.empty(flat.shape[0], flat)
        _exchange(wire, [], [(root, out[cuts[me]])], deadline)
    _join(wire, out, cuts, deadline)
    return out


def _join(wire: Wire, out: Any, cuts: Sequence[slice], deadline: float) -> None:
    """Every rank's slice of ``out``, to every rank."""
    _exchange(wire, [(p, out[cuts[wire.rank]]) for p in peers(wire)], [(p, out[cuts[p]]) for p in peers(wire)], deadline)


def _exchange(wire: Wire, sends: list[tuple[int, Any]], receives: list[tuple[int, Any]], deadline: float) -> None:
    """An exchange without its empty messages; both sides leave the same ones out."""
    wire.exchange([m for m in sends if m[1].shape[0]], [m for m in receives if m[1].shape[0]], deadline)
