"""``Group``: the collective operations as a program calls them, over any wire, with a timeout that names who is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar, overload

import numpy as np

from firebrick.backends.registry import find_device
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.errors import CollectiveTimeoutError, ConfigError, DTypeError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.distributed import collectives
from firebrick.distributed.header import BYTES, Header, check
from firebrick.distributed.lane import Lane, Work
from firebrick.distributed.reductions import check_fold, constants, rows, slices, weighed
from firebrick.distributed.wire import DIRECT, Alone, Wire, WireError

__all__ = ["Group", "Watch", "Work"]

T = TypeVar("T")
NOTE = 1024
"""Bytes for a rank's note, behind the header of each operation."""
Body = Callable[[Wire, Any, float], Any]


class Watch(Protocol):
    """Knows which ranks of a group live, and where they are."""

    def at(self, number: int, op: str) -> None:
        """Say that this rank is in its call ``number``, of the operation ``op``."""
        ...

    def verdict(self) -> CollectiveTimeoutError | None:
        """The error that the group ended with, if it did."""
        ...

    def explain(self, op: str, number: int, error: WireError) -> CollectiveTimeoutError:
        """Find out who is missing after an exchange failed; all ranks come to one verdict."""
        ...

    def close(self) -> None:
        """Say that this rank leaves."""
        ...


class Group:
    """Ranks that run collective operations together. ``distributed.init()`` makes one; without arguments it is a group of one.

    All ranks call the same operations in the same order, with tensors of the same dtype and shape; each call first sends its
    description to the others, so that a disagreement is an error on every rank. Operands are not changed, and not
    differentiated: those that are tracked are refused. Results are untracked and lie on the operand's device. Reductions fold
    in the order of the ranks (see ``reductions``), so every rank has the same bits, which for sums and products of real numbers
    are those of ``LocalGroup`` on any engines.

    With ``wait=False`` an operation returns a ``Work`` at once and runs while the caller goes on; ``Work.wait()`` gives the
    result. Operations of a group run one after the other, in the order of the calls.

    Args:
        wire: Transport of the data; None for a group of one.
        timeout: Seconds after which an operation gives up; ``config.distributed_timeout`` if None.
        watch: Source of the ranks that are alive.
        gpu_wire: Transport between GPUs, for operations whose tensors are all on GPUs.

    Attributes:
        rank: This process's place, from 0.
        size: Number of ranks.
        timeout: Seconds after which an operation gives up; may be set.

    Example:
        >>> import firebrick as fb
        >>> with fb.distributed.Group() as group:
        ...     group.all_reduce(fb.ones(2), weight=0.5).tolist(), group.rank, group.size
        ([0.5, 0.5], 0, 1)
    """

    def __init__(
        self,
        wire: Wire | None = None,
        *,
        timeout: float | None = None,
        watch: Watch | None = None,
        gpu_wire: Wire | None = None,
    ) -> None:
        self.timeout = config.distributed_timeout if timeout is None else timeout
        self._wire, self._gpu_wire, self._watch = wire or Alone(), gpu_wire, watch
        self.rank, self.size = self._wire.rank, self._wire.size
        self._lane = Lane(f"firebrick-collectives-{self.rank}")
        self._calling, self._number = Lock(), 0
        self._failure: CollectiveTimeoutError | None = None
        self.closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    # reductions

    @overload
    def all_reduce(self, x: Tensor, op: str = ..., *, weight: float | None = ..., wait: Literal[True] = ...) -> Tensor: ...
    @overload
    def all_reduce(self, x: Tensor, op: str = ..., *, weight: float | None = ..., wait: Literal[False]) -> Work[Tensor]: ...
    @overload
    def all_reduce(
        self, x: Sequence[Tensor], op: str = ..., *, weight: float | None = ..., wait: Literal[True] = ...
    ) -> list[Tensor]: ...
    @overload
    def all_reduce(
        self, x: Sequence[Tensor], op: str = ..., *, weight: float | None = ..., wait: Literal[False]
    ) -> Work[list[Tensor]]: ...
    def all_reduce(self, x: Any, op: str = "sum", *, weight: float | None = None, wait: bool = True) -> Any:
        """The reduction of all ranks' terms, on every rank: for ``sum``, Σ weight_r · x_r in the order of the ranks.

        Args:
            x: This rank's term, or a list of terms of one dtype that travel together (a bucket).
            op: ``sum``, ``prod``, ``max`` or ``min``.
            weight: A factor for this rank's term; for sums of floats. Ranks may have different ones.
            wait: Whether to wait for the result, or return a ``Work``.

        Raises:
            CollectiveMismatchError: Ranks gave other dtypes or shapes, or called something else.
            CollectiveTimeoutError: A rank did not come within the timeout, or is gone.
            DTypeError: The dtype cannot be reduced so, or those of a list differ.
        """
        terms = _operands("all_reduce", x)
        check_fold("all_reduce", op, terms[0].dtype)

        def body(wire: Wire, flat: Any, deadline: float) -> Any:
            return collectives.reduce_all(wire, flat, op, terms[0], deadline)

        weighted = [weighed("all_reduce", t, op, weight) for t in terms]
        return self._call(f"all_reduce({op})", weighted, body, _as_given(x), wait)

    def all_reduce_noted(
        self, x: Sequence[Tensor], note: bytes, *, weight: float | None = None
    ) -> Work[tuple[list[Tensor], list[bytes]]]:  # fmt: skip
        """Start an ``all_reduce(x, weight=weight)`` with a note from each rank to all, without a further message.

        Args:
            x: Terms of one dtype, as of ``all_reduce``.
            note: Bytes of this rank: up to ``NOTE`` bytes, none of them zero.
            weight: As of ``all_reduce``.

        Returns:
            Through ``wait()``: the sums, and the notes by rank.

        Raises:
            ConfigError: The note is too long, or holds a zero.
            CollectiveMismatchError: As of ``all_reduce``.
            CollectiveTimeoutError: As of ``all_reduce``.
        """
        if len(note) > NOTE or 0 in note:
            raise ConfigError(
                f"a note has up to {NOTE} bytes, none of them zero", f"{len(note)} bytes", "send more by all_gather"
            )
        terms = _operands("all_reduce", x)
        check_fold("all_reduce", "sum", terms[0].dtype)

        def body(wire: Wire, flat: Any, deadline: float) -> Any:
            return collectives.reduce_all(wire, flat, "sum", terms[0], deadline)

        weighted = [weighed("all_reduce", t, "sum", weight) for t in terms]
        work: Work[tuple[list[Tensor], list[bytes]]] = self._started(
            "all_reduce(sum, noted)", weighted, body, _as_given(list(x)), note
        )
        return work

    @overload
    def reduce_scatter(self, x: Tensor, op: str = ..., *, weight: float | None = ..., wait: Literal[True] = ...) -> Tensor: ...
    @overload
    def reduce_scatter(self, x: Tensor, op: str = ..., *, weight: float | None = ..., wait: Literal[False]) -> Work[Tensor]: ...
    def reduce_scatter(self, x: Tensor, op: str = "sum", *, weight: float | None = None, wait: bool = True) -> Any:
        """The reduction, divided among the ranks: of its n rows, rank r of P gets rows ⌊n · r / P⌋ to ⌊n · (r + 1) / P⌋ - 1.

        Args:
            x: This rank's term, ``[n, …]``.
            op: ``sum``, ``prod``, ``max`` or ``min``.
            weight: A factor for this rank's term; for sums of floats.
            wait: Whether to wait for the result, or return a ``Work``.

        Raises:
            ShapeError: x has no axis.
            CollectiveMismatchError: As of ``all_reduce``.
            CollectiveTimeoutError: As of ``all_reduce``.
        """
        terms = _operands("reduce_scatter", x)
        check_fold("reduce_scatter", op, x.dtype)
        n = rows("reduce_scatter", x)
        shares, width = slices(n, self.size), x.size // n if n else 0
        cuts, mine = [slice(c.start * width, c.stop * width) for c in shares], shares[self.rank]

        def body(wire: Wire, flat: Any, deadline: float) -> Any:
            own = cuts[self.rank]
            out = wire.empty(own.stop - own.start, flat)
            collectives.scatter_fold(wire, flat, cuts, op, out, x, deadline)
            return out

        def finish(wire: Wire, flat: Any) -> Tensor:
            like = Tensor(x.storage, x.dtype, (mine.stop - mine.start, *x.shape[1:]), x.device)
            return wire.unpack(flat, [like])[0]

        weighted = [weighed("reduce_scatter", t, op, weight) for t in terms]
        return self._call(f"reduce_scatter({op})", weighted, body, finish, wait)

    # copies

    @overload
    def all_gather(self, x: Tensor, *, wait: Literal[True] = ...) -> list[Tensor]: ...
    @overload
    def all_gather(self, x: Tensor, *, wait: Literal[False]) -> Work[list[Tensor]]: ...
    def all_gather(self, x: Tensor, *, wait: bool = True) -> Any:
        """The tensors of all ranks, by rank, on every rank; errors as of ``all_reduce``.

        Args:
            x: Tensor of the same shape and dtype on each rank.
            wait: As of ``all_reduce``.
        """
        terms = _operands("all_gather", x)

        def finish(wire: Wire, parts: list[Any]) -> list[Tensor]:
            return [wire.unpack(part, terms)[0] for part in parts]

        return self._call("all_gather", terms, collectives.gather, finish, wait)

    @overload
    def broadcast(self, x: Tensor, root: int = ..., *, wait: Literal[True] = ...) -> Tensor: ...
    @overload
    def broadcast(self, x: Tensor, root: int = ..., *, wait: Literal[False]) -> Work[Tensor]: ...
    @overload
    def broadcast(self, x: Sequence[Tensor], root: int = ..., *, wait: Literal[True] = ...) -> list[Tensor]: ...
    @overload
    def broadcast(self, x: Sequence[Tensor], root: int = ..., *, wait: Literal[False]) -> Work[list[Tensor]]: ...
    def broadcast(self, x: Any, root: int = 0, *, wait: bool = True) -> Any:
        """The values of rank ``root`` on every rank.

        Args:
            x: What is sent, on the root; on the others tensors of the same dtype and shape, whose device the result gets.
            root: The rank whose values are sent.
            wait: Whether to wait for the result, or return a ``Work``.

        Raises:
            ConfigError: There is no such rank.
            CollectiveMismatchError: As of ``all_reduce``.
            CollectiveTimeoutError: As of ``all_reduce``.
        """
        self._check_rank("broadcast", "root", root)

        def body(wire: Wire, flat: Any, deadline: float) -> Any:
            return collectives.spread(wire, flat, root, deadline)

        return self._call(f"broadcast(from rank {root})", _operands("broadcast", x), body, _as_given(x), wait)

    def barrier(self) -> None:
        """Return when every rank has called it; errors as of ``all_reduce``."""
        self._call("barrier", [], lambda wire, flat, deadline: None, lambda wire, flat: None, True)

    # one to one

    def send(self, x: Tensor, to: int) -> None:
        """Send a tensor to another rank, which calls ``recv``.

        Args:
            x: Tensor.
            to: Number of the rank that receives it.

        Raises:
            ConfigError: There is no such rank, or it is this one.
            CollectiveTimeoutError: As of ``all_reduce``.
        """
        self._check_rank("send", "to", to, other=True)
        (term,) = _operands("send", x)
        header, flat = Header.of("send", 0, [term]).encode(), self._wire.pack([term])

        def job() -> None:
            deadline = time.monotonic() + self.timeout
            self._guarded(f"send(to rank {to})", lambda: self._wire.exchange([(to, header)], [], deadline, DIRECT))
            if term.size:
                self._guarded(f"send(to rank {to})", lambda: self._wire.exchange([(to, flat)], [], deadline, DIRECT))

        self._lane.put(job, Work(lambda nothing: None)).wait()

    def recv(self, source: int, device: Device | str | None = None) -> Tensor:
        """The tensor that another rank sends; its dtype, shape and label come along.

        Args:
            source: The rank that calls ``send``.
            device: Where the tensor is placed; the default device if None.

        Raises:
            ConfigError: There is no such rank, or it is this one.
            CollectiveTimeoutError: As of ``all_reduce``.
        """
        self._check_rank("recv", "source", source, other=True)
        goal, op = find_device(device), f"recv(from rank {source})"

        def job() -> tuple[Header, Any]:
            deadline, head = time.monotonic() + self.timeout, np.empty(BYTES, np.uint8)
            self._guarded(op, lambda: self._wire.exchange([], [(source, head)], deadline, DIRECT))
            header = Header.decode(head)
            data = np.empty(header.shape, header.np_dtype)
            if data.size:
                self._guarded(op, lambda: self._wire.exchange([], [(source, data.reshape(-1))], deadline, DIRECT))
            return header, data

        def finish(found: tuple[Header, Any]) -> Tensor:
            made: Tensor = hooks.from_host(found[1], goal)
            made.label = found[0].label or None
            return made

        return self._lane.put(job, Work(finish)).wait()

    # the end

    def close(self) -> None:
        """Leave the group after the operations that were started; closing twice does nothing."""
        if self.closed:
            return
        self.closed = True
        idle = self._lane.close(self.timeout)
        if self._watch is not None:
            self._watch.close()
        if idle:  # else its thread is still waiting on the wire
            self._wire.close()
            if self._gpu_wire is not None:
                self._gpu_wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # how

    def _call(self, op: str, tensors: list[Tensor], body: Body, finish: Callable[[Wire, Any], Any], wait: bool) -> Any:
        """One collective operation, waited for or not."""
        work = self._started(op, tensors, body, finish)
        return work.wait() if wait else work

    def _started(
        self, op: str, tensors: list[Tensor], body: Body, finish: Callable[[Wire, Any], Any], note: bytes | None = None
    ) -> Any:  # fmt: skip
        """Start one collective operation: tell the others, compare, then run ``body`` on the packed tensors."""
        wire = self._wire
        if self._gpu_wire is not None and tensors and self._gpu_wire.carries(tensors):
            wire, op = self._gpu_wire, f"{op} on GPUs"
        with self._calling:
            if self.closed:
                raise ConfigError("a group that was closed has no operations", op, "make another with distributed.init()")
            number = self._number
            header = Header.of(op, number, tensors)
            sent = np.concatenate([header.encode(), np.frombuffer((note or b"").ljust(NOTE, b"\0"), np.uint8)])
            flat = wire.pack(tensors) if tensors else None
            self._number += 1

            def job() -> Any:
                deadline = time.monotonic() + self.timeout
                if self._watch is not None:
                    self._watch.at(number, op)

                def run() -> Any:
                    found = [sent]
                    if self.size > 1:
                        found = collectives.gather(self._wire, sent, deadline)
                        check([Header.decode(h[:BYTES]) for h in found], self.rank)
                    with wire.beside():
                        return body(wire, flat, deadline), [h[BYTES:].tobytes().rstrip(b"\0") for h in found]

                return self._guarded(op, run, number)

            def finished(out: Any) -> Any:
                made = finish(wire, out[0])
                return made if note is None else (made, out[1])

            return self._lane.put(job, Work(finished))

    def _guarded(self, op: str, run: Callable[[], T], number: int = -1) -> T:
        """``run()``; if the wire fails, the error that names who is missing, for this call and all that follow."""
        if self._failure is None and self._watch is not None:
            self._failure = self._watch.verdict()
        if self._failure is not None:
            raise self._failure
        try:
            return run()
        except WireError as e:
            if self._watch is not None:
                self._failure = self._watch.explain(op, number, e)
            else:
                self._failure = missing(op, self.rank, dict.fromkeys(e.peers, "it did not answer"), e.reason)
            raise self._failure from None

    def _check_rank(self, op: str, name: str, rank: Any, *, other: bool = False) -> None:
        if not isinstance(rank, int) or not 0 <= rank < self.size or (other and rank == self.rank):
            but = f" but {self.rank}" if other else ""
            raise ConfigError(f"{op}: {name} is a rank from 0 to {self.size - 1}{but}", f"{name}={rank!r}", "name another rank")


def missing(op: str, rank: int, ranks: dict[int, str], reason: str) -> CollectiveTimeoutError:
    """The error of an operation that could not complete.

    Args:
        op: The operation.
        rank: The rank that found it out.
        ranks: Who is missing, and what is known of each.
        reason: What the wire said.
    """
    names = "; ".join(f"rank {r}: {what}" for r, what in sorted(ranks.items())) or "unknown which: all ranks give signs of life"
    return CollectiveTimeoutError(
        f"{op} needs every rank of the group",
        f"missing {names} (seen by rank {rank}: {reason})",
        "look at the output of the missing rank first, and start the run again from its last checkpoint; if the rank was only "
        "slow, raise the timeout: distributed.init(timeout=…) or FIREBRICK_DISTRIBUTED_TIMEOUT",
        operation=op,
        missing=sorted(ranks),
    )


def _operands(op: str, x: Any) -> list[Tensor]:
    """The tensors of an argument, untracked."""
    given = [x] if isinstance(x, Tensor) else x
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(t, Tensor) for t in given):
        raise OperandError(f"{op} takes a tensor or a list of tensors", type(x).__name__, "convert it with fb.asarray")
    if len({t.dtype for t in given}) > 1:
        names = ", ".join(sorted({t.dtype.name for t in given}))
        raise DTypeError(f"{op}: the tensors of a list are of one dtype", names, "call it once for each dtype")
    return constants(op, given)


def _as_given(x: Any) -> Callable[[Wire, Any], Any]:
    """Makes the result in the form of the argument: a tensor, or a list of them."""
    like = [x] if isinstance(x, Tensor) else list(x)
    return lambda wire, flat: wire.unpack(flat, like)[0] if isinstance(x, Tensor) else wire.unpack(flat, like)
