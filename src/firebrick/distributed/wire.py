"""``Wire``: what carries bytes between ranks, and the memory that they are sent from and received into.

A wire has one verb, ``exchange``: start all of these sends and receives, and wait for all of them until a deadline. The
collective operations (``collectives``) are written over it once. Here memory is the host's, as flat NumPy arrays; a wire
between GPUs puts other memory in its place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.distributed.reductions import FOLDS, fold_dtype

Message = tuple[int, Any]
"""A peer's rank and the flat buffer that is sent to it or received from it."""
COLLECTIVE, DIRECT = 0, 1
"""Tags: messages of collective operations, and those of ``send`` and ``recv``."""


class WireError(Exception):
    """An exchange did not complete.

    Args:
        reason: What the library said, or that time is up.
        peers: The ranks that did not answer, as far as the wire can tell.
    """

    def __init__(self, reason: str, peers: Iterable[int] = ()) -> None:
        super().__init__(reason)
        self.reason, self.peers = reason, tuple(sorted(peers))


class Wire(ABC):
    """Carries flat host arrays between the ranks of a group.

    Attributes:
        rank: This process's place, from 0.
        size: Number of ranks.
    """

    rank: int
    size: int

    @abstractmethod
    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], deadline: float, tag: int = COLLECTIVE) -> None:
        """Send and receive, all at once, and return when all is done.

        Messages between two ranks under one tag arrive in the order in which they were sent; both sides know their size.

        Args:
            sends: What goes to whom.
            receives: Where to put what comes from whom.
            deadline: ``time.monotonic()`` at which to give up.
            tag: Messages of different tags do not meet.

        Raises:
            WireError: Time is up, or a peer is gone.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections."""

    def carries(self, tensors: Sequence[Tensor]) -> bool:
        """Whether it takes these tensors where they lie; host memory takes all."""
        return True

    def beside(self) -> AbstractContextManager[Any]:
        """What an operation runs in, on the group's own thread; GPUs have a stream for it."""
        return nullcontext()

    def pack(self, tensors: Sequence[Tensor]) -> Any:
        """The elements of tensors of one dtype in a flat buffer that nobody writes.

        A single tensor's memory serves as it is: having been read, it is not written while anyone holds it.
        """
        parts = [host.reshape(-1) for host in read(tensors)]
        if len(parts) == 1 and isinstance(parts[0].base, np.ndarray) and parts[0].base.flags.writeable:
            parts[0].flags.writeable = True  # gloo and MPI take no read-only memory, though they only read it
            return parts[0]
        return np.concatenate(parts)

    def unpack(self, flat: Any, like: Sequence[Tensor]) -> list[Tensor]:
        """Tensors shaped and placed as ``like``, with the elements of a flat buffer."""
        out, start = [], 0
        for x in like:
            out.append(hooks.from_host(flat[start : start + x.size].reshape(x.shape), x.device))
            start += x.size
        return out

    def empty(self, size: int, like: Any) -> Any:
        """A buffer of ``size`` elements, of the dtype of the buffer ``like``."""
        return np.empty(size, like.dtype)

    def fold(self, op: str, terms: Sequence[Any], out: Any, like: Tensor) -> None:
        """Fold buffers in their order (see ``reductions``) into the buffer ``out``; ``like`` names the dtype."""
        wide, step = fold_dtype(like.dtype).np, getattr(np, FOLDS[op])
        with np.errstate(all="ignore"):  # an overflow is part of the result, as in every operation
            total = terms[0].astype(wide, copy=False)
            place = out if out.dtype == wide else np.empty(out.shape, wide)
            for term in terms[1:]:
                total = step(total, term.astype(wide, copy=False), out=place)
            if total is not out:
                out[:] = total


class Alone(Wire):
    """The wire of a group of one."""

    rank, size = 0, 1

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], deadline: float, tag: int = COLLECTIVE) -> None:
        """Nobody is there to send to."""

    def close(self) -> None:
        """Nothing is held."""
