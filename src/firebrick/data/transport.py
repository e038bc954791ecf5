"""Objects between processes: a pickle through a pipe, and the arrays in it through shared memory.

An array of 256 bytes or more is not pickled but copied into memory that both processes map, and read where it lies. The memory
is anonymous (``memfd_create``): it has no name that could be left behind, no limit but that of the machine's memory, and goes
when the last process that maps it ends, however it ends. Where the system has no such memory (it is Linux's), all goes through
the pipe. A *slot* is a piece of memory that is used again; who receives an object reads its arrays before the sender uses the
slot for another.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import socket
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from firebrick.data.errors import LoaderError

SHARED_MEMORY = sys.platform == "linux" and hasattr(os, "memfd_create")
_INLINE = 256  # bytes of an array that is pickled
_ALIGN = 64  # bytes


@dataclass(slots=True)
class Memory:
    """Memory that processes share: a descriptor to send, and the map of it here."""

    descriptor: int
    map: mmap.mmap

    @classmethod
    def of(cls, size: int) -> Memory:
        """New memory of at least ``size`` bytes.

        Raises:
            LoaderError: The system has no memory or no open file left.
        """
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            descriptor = os.memfd_create("firebrick-loader")
            try:
                os.ftruncate(descriptor, size)
                return cls(descriptor, mmap.mmap(descriptor, size))
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as e:
            raise shortage(str(e)) from e

    def close_descriptor(self) -> None:
        """Nobody else will be sent it; the map stays."""
        os.close(self.descriptor)


def shortage(received: str) -> LoaderError:
    """The error of a system that has too little for workers."""
    return LoaderError(
        "process workers find memory and open files: each batch ahead of use takes a piece of memory, which is two open files",
        received,
        "lower num_workers or prefetch, or raise the limit of open files (ulimit -n)",
    )


class Parcel:
    """An object ready to be sent: its pickle, and the arrays that travel beside it."""

    def __init__(self, value: Any, shared: bool) -> None:
        self.arrays: list[memoryview] = []
        self.text = pickle.dumps(value, 5, buffer_callback=self._beside if shared else None)
        self.spans: list[tuple[int, int]] = []
        end = 0
        for array in self.arrays:
            start = -(-end // _ALIGN) * _ALIGN
            end = start + array.nbytes
            self.spans.append((start, end))
        self.size = end

    def _beside(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _INLINE:
            return True
        self.arrays.append(raw)
        return False

    def write(self, memory: Memory) -> None:
        """Copy the arrays into memory of at least ``size`` bytes."""
        with memoryview(memory.map) as whole:
            for array, (start, end) in zip(self.arrays, self.spans, strict=True):
                whole[start:end] = array


class Channel:
    """One end of a connection between two processes.

    Args:
        connection: A duplex one.
        shared: Whether arrays go through shared memory.
    """

    def __init__(self, connection: Connection, shared: bool) -> None:
        self.connection, self.shared = connection, shared
        self._socket = socket.socket(fileno=os.dup(connection.fileno())) if shared else None
        self._mine: dict[int, Memory] = {}
        self._theirs: dict[int, mmap.mmap] = {}

    def send(self, value: Any, slot: int) -> None:
        """Send an object, its arrays in a slot of this end's.

        Raises:
            OSError: The other end is closed.
            LoaderError: There is no memory or no open file left.
        """
        parcel = Parcel(value, self.shared)
        memory = self._mine.get(slot)
        new = bool(parcel.size) and (memory is None or len(memory.map) < parcel.size)
        if new:
            memory = self._mine[slot] = Memory.of(parcel.size + parcel.size // 4)  # room for a ragged batch to be longer
        if parcel.size and memory is not None:
            parcel.write(memory)
        try:
            self.post(parcel, slot, memory if new else None)
        finally:
            if new and memory is not None:
                memory.close_descriptor()

    def post(self, parcel: Parcel, slot: int, memory: Memory | None) -> None:
        """Send a parcel whose arrays are written, with the memory they are in if the other end does not have it."""
        size = 0 if memory is None else len(memory.map)
        self.connection.send_bytes(pickle.dumps((slot, parcel.spans, size, parcel.text), 5))
        if memory is not None and self._socket is not None:
            socket.send_fds(self._socket, [b"m"], [memory.descriptor])

    def receive(self) -> Any:
        """The next object; its arrays are views that hold until the other end uses their slot again, and are not written.

        Raises:
            EOFError, OSError: The other end is closed.
            LoaderError: There is no memory or no open file left.
        """
        slot, spans, size, text = pickle.loads(self.connection.recv_bytes())
        if size and self._socket is not None:
            content, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
            if not content:
                raise EOFError
            if not descriptors:  # the system had none to give
                raise shortage(os.strerror(errno.EMFILE))
            # private: a data set may write into its arrays. Pages that were written no longer show what the other end writes,
            # so what is sent again and again is copied by those who let others write into it (see ``Job.owned``)
            try:
                self._theirs[slot] = mmap.mmap(descriptors[0], size, access=mmap.ACCESS_COPY)
            except OSError as e:
                raise shortage(str(e)) from e
            finally:
                os.close(descriptors[0])
        memory = memoryview(self._theirs[slot]) if spans else memoryview(b"")
        return pickle.loads(text, buffers=[memory[start:end] for start, end in spans])

    def close(self) -> None:
        """Close this end; memory goes with the last array in it."""
        self.connection.close()
        if self._socket is not None:
            self._socket.close()
        self._mine.clear()
        self._theirs.clear()
