"""Objects through shared memory: arrays of any size, and a system that has no memory or open files left."""

from __future__ import annotations

import errno
import multiprocessing
import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from firebrick.data import LoaderError, transport
from firebrick.data.transport import Channel, Memory

pytestmark = pytest.mark.skipif(not transport.SHARED_MEMORY, reason="shared memory without a name is Linux's")
SHORT = "process workers find memory and open files"


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Both ends of a connection, which leave no open file."""
    before = len(os.listdir("/proc/self/fd"))
    connections = multiprocessing.Pipe()
    found = Channel(connections[0], True), Channel(connections[1], True)
    yield found
    for end in found:
        end.close()
    assert len(os.listdir("/proc/self/fd")) <= before


def failing(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOMEM, "no memory")


def test_arrays_of_any_size_arrive_and_a_slot_grows_where_it_must(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    for slot, sizes in (
        (0, (255, 256)),
        (1, (0, 1, 100_000)),
        (0, (300, 70, 300)),
        (0, (50_000,)),
        (0, (40_000, 9_000)),
        (2, ()),
    ):
        arrays = [np.random.default_rng(n).integers(0, 256, n, np.uint8) for n in sizes]
        one.send({"arrays": arrays, "text": "x"}, slot)
        found = other.receive()
        assert found["text"] == "x"
        assert [a.tobytes() for a in found["arrays"]] == [a.tobytes() for a in arrays]
        assert [a.ctypes.data % 64 for a in found["arrays"] if a.nbytes >= 256] == [0] * sum(n >= 256 for n in sizes)


@pytest.mark.parametrize("call", ["memfd_create", "ftruncate"])
def test_no_memory_is_an_error_that_says_so_and_leaves_no_open_file(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, call, failing)
    with pytest.raises(LoaderError, match=f"{SHORT}(.|\n)*no memory"):
        Memory.of(1000)
    monkeypatch.undo()
    monkeypatch.setattr(transport.mmap, "mmap", failing)
    with pytest.raises(LoaderError, match=f"{SHORT}(.|\n)*no memory"):
        Memory.of(1000)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_memory_that_cannot_be_mapped_where_it_arrives(ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = ends
    one.send(np.zeros(1000), 0)
    monkeypatch.setattr(transport.mmap, "mmap", failing)
    with pytest.raises(LoaderError, match=f"{SHORT}(.|\n)*no memory"):
        other.receive()


@pytest.mark.parametrize(("content", "error"), [(b"m", LoaderError), (b"", EOFError)])
def test_memory_that_does_not_arrive(
    content: bytes, error: type[Exception], ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ends
    monkeypatch.setattr(socket, "recv_fds", lambda *_: (content, [], 0, None))
    one.send(np.zeros(1000), 0)
    with pytest.raises(error) as caught:
        other.receive()
    if error is LoaderError:
        assert caught.value.received == os.strerror(errno.EMFILE)


def test_an_end_that_is_closed_is_an_error_of_the_connection(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.close()
    with pytest.raises(EOFError):
        other.receive()
    with pytest.raises(OSError, match=r"closed|pipe"):
        other.send(np.zeros(1000), 0)
