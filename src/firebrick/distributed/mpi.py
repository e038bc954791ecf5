"""``MPIGroup``: ranks that an MPI launcher started, over mpi4py, with the same operations and the same bits.

MPI itself ends all ranks when one dies, and its launcher says which. A rank that lives but does not come is named by the ranks
that wait for its message.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from firebrick.core.errors import UnsupportedError
from firebrick.distributed.group import Group
from firebrick.distributed.wire import COLLECTIVE, Message, Wire, WireError


class MPIGroup(Group):
    """The ranks of an MPI communicator. Start them with ``firebrick launch --backend mpi`` or ``mpiexec``.

    Args:
        communicator: An mpi4py communicator, duplicated for the group; all ranks that were started if None.
        timeout: Seconds that an operation may take; ``config.distributed_timeout`` if None.

    Raises:
        UnsupportedError: mpi4py or an MPI library is missing, or the library does not let a thread of ours call it.
    """

    def __init__(self, communicator: Any = None, *, timeout: float | None = None) -> None:
        super().__init__(MPIWire(communicator), timeout=timeout)


class MPIWire(Wire):
    """Host memory by MPI messages."""

    def __init__(self, communicator: Any = None) -> None:
        try:
            self._mpi = import_module("mpi4py.MPI")
        except (ImportError, RuntimeError) as e:
            raise UnsupportedError(
                "MPI groups need mpi4py and an MPI library",
                str(e).partition("\n")[0],
                "pip install 'firebrick[mpi]' mpich, or load your cluster's MPI module before",
            ) from e
        if self._mpi.Query_thread() < self._mpi.THREAD_SERIALIZED:
            raise UnsupportedError(
                "MPI groups call MPI from a thread of their own",
                "an MPI library started without MPI_THREAD_SERIALIZED",
                "leave mpi4py.rc.thread_level as it is, or use a library with thread support",
            )
        self._ranks = (communicator or self._mpi.COMM_WORLD).Dup()
        self._ranks.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.rank, self.size = self._ranks.Get_rank(), self._ranks.Get_size()
        self._failed = False
        atexit.register(self._end)

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], deadline: float, tag: int = COLLECTIVE) -> None:
        """See ``Wire``."""
        byte, pause = self._mpi.BYTE, 0.0
        try:
            waiting = [(p, self._ranks.Irecv([b.view("u1"), byte], p, tag)) for p, b in receives]
            waiting += [(p, self._ranks.Isend([b.view("u1"), byte], p, tag)) for p, b in sends]
            while waiting := [(p, request) for p, request in waiting if not request.Test()]:
                if time.monotonic() > deadline:
                    self._failed = True
                    raise WireError("time is up", {p for p, _ in waiting})
                time.sleep(pause)  # at first only lets others run, then up to a millisecond
                pause = min(1e-3, pause + 2e-5)
        except self._mpi.Exception as e:
            self._failed = True
            raise WireError(str(e), {p for p, _ in sends} | {p for p, _ in receives}) from e

    def close(self) -> None:
        """Give the communicator back, unless messages are under way on it for ever."""
        if not self._failed and not self._mpi.Is_finalized():
            self._ranks.Free()

    def _end(self) -> None:
        """After a failure, end the other ranks instead of waiting for them in MPI_Finalize."""
        if self._failed and not self._mpi.Is_finalized():
            self._ranks.Abort(1)
