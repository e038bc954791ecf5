"""Buffers of a device: a pool by size class, and the arrays that own its buffers.

A buffer goes back to the pool when the last array that owns it is dropped, possibly by the garbage collector in any thread. It
may be given out at once: what was recorded earlier is executed earlier, since a device has one queue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from firebrick.compiler.targets.wgsl.bindings import WORD
from firebrick.core.aval import Aval

KEPT = 64 << 20
"""Bytes of buffers that nothing owns up to which none is given back."""
LEAST = 256
"""Bytes of the smallest buffer."""


@lru_cache(maxsize=4096)
def size_class(nbytes: int) -> int:
    """The size of the buffer that holds so many bytes: of four sizes for each power of two."""
    if nbytes <= LEAST:
        return LEAST
    step = 1 << max(6, (nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Block:
    """A buffer of the device.

    Attributes:
        buffer: wgpu's object.
        size: Its bytes.
        used: Number of the last batch of commands that uses it; -1 if there is none.
        written: Number of the last batch that writes it; -1 if it holds what was copied from the host.
    """

    __slots__ = ("buffer", "size", "used", "written")

    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer, self.size, self.used, self.written = buffer, size, -1, -1


class Lease:
    """A block that is in use; dropping it returns the block to its pool."""

    __slots__ = ("_returned", "block")

    def __init__(self, block: Block, returned: deque[Block]) -> None:
        self.block, self._returned = block, returned

    def __del__(self) -> None:
        if hasattr(self, "_returned"):  # else Ctrl-C came before it had the block
            self._returned.append(self.block)  # atomic, so that no lock is taken while garbage is collected


class BufferPool:
    """The buffers of a device.

    Args:
        create: Makes a buffer of a size.
        largest: Bytes of the largest buffer.
        before_release: Called before buffers are given back to the device.

    Attributes:
        created: Bytes of all buffers that exist.
        kept: Bytes of those that nothing owns.
    """

    def __init__(
        self, create: Callable[[int], Any], largest: int, before_release: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        self._create, self._largest, self._before_release = create, largest, before_release
        self._free: defaultdict[int, dict[Block, None]] = defaultdict(dict)  # in the order in which they came back
        self._returned: deque[Block] = deque()
        # Holds those that are in use as well: of a cycle that is garbage, the collector may finalize a buffer before the lease
        # that gives it back.
        self._blocks: set[Block] = set()
        self.created = self.kept = 0
        self._top = 0  # of the bytes that were in use when a buffer was made, less those of long ago

    def size_of(self, nbytes: int) -> int:
        """The size of the buffers that ``lease`` gives for so many bytes."""
        return min(size_class(nbytes), max(self._largest, nbytes))

    def lease(self, nbytes: int) -> Lease:
        """A buffer of at least so many bytes, whose contents are undefined.

        Raises:
            MemoryError: The device has no such buffer.
        """
        return self.sized(self.size_of(nbytes))

    def sized(self, size: int) -> Lease:
        """A buffer of a size that ``size_of`` has returned.

        Raises:
            MemoryError: The device has no such buffer.
        """
        if self._returned:
            self._collect()
        free = self._free.get(size)
        if free:
            self.kept -= size
            return Lease(free.popitem()[0], self._returned)
        if size > self._largest:
            raise MemoryError(f"a buffer of this device has at most {self._largest:,} bytes; {size:,} are needed")
        self._top = max(self.created - self.kept + size, self._top - self._top // 64)
        if self.kept > max(KEPT, self._top):
            self._give_back(max(KEPT, self._top) // 2)
        try:
            buffer = self._create(size)
        except MemoryError:
            self.release()
            buffer = self._create(size)
        self.created += size
        block = Block(buffer, size)
        self._blocks.add(block)
        return Lease(block, self._returned)

    def again(self, blocks: Sequence[Block]) -> list[Lease] | None:
        """The same buffers as before, if all of them are free; None otherwise.

        Args:
            blocks: Different ones.
        """
        if self._returned:
            self._collect()
        free = self._free
        for block in blocks:
            if block not in free[block.size]:
                return None
        for block in blocks:
            del free[block.size][block]
            self.kept -= block.size
        return [Lease(block, self._returned) for block in blocks]

    def once_more(self, block: Block) -> Lease | None:
        """The same buffer as before, if it is free."""
        found = self.again((block,))
        return found[0] if found else None

    def _collect(self) -> None:
        returned = self._returned
        while returned:
            try:
                block = returned.popleft()
            except IndexError:  # another thread took it
                return
            self._free[block.size][block] = None
            self.kept += block.size

    def _give_back(self, left: int) -> None:
        """Give buffers that nothing owns back to the device until so many bytes are left, those first that were not used for
        longest: programs of many sizes have buffers of many size classes."""
        self._before_release()
        free = sorted((b for blocks in self._free.values() for b in blocks), key=lambda b: b.used)
        for block in free:
            if self.kept <= left:
                break
            del self._free[block.size][block]
            self._blocks.discard(block)
            self.created -= block.size
            self.kept -= block.size

    def release(self) -> None:
        """Give the buffers that nothing owns back to the device."""
        self._before_release()
        self._collect()
        self.created -= self.kept
        self.kept = 0
        self._blocks.difference_update(*self._free.values())
        self._free.clear()


class DeviceArray:
    """A row-major array on a device, the engine's native array.

    Args:
        gpu: The device's state.
        lease: Its buffer; None for an array without elements.
        aval: Shape and dtype.

    Attributes:
        gpu, lease, aval: As given.
    """

    __slots__ = ("_range", "_written", "aval", "gpu", "lease")

    def __init__(self, gpu: Any, lease: Lease | None, aval: Aval) -> None:
        self.gpu, self.lease, self.aval = gpu, lease, aval
        self._range: tuple[int, int] | None = None
        self._written = -1

    @property
    def known_range(self) -> tuple[int, int] | None:
        """The least and the greatest value of integers or bools that the host knows; None if it does not, or if something has
        been written since."""
        known = self._range
        return known if known is not None and self.lease is not None and self.lease.block.written == self._written else None

    def know(self, least: int, most: int) -> None:
        """Keep the range of the values that the array has now. What writes there again in the same batch calls ``forget``."""
        if self.lease is not None:
            self._range, self._written = (least, most), self.lease.block.written

    def forget(self) -> None:
        """Know nothing of the values, which a kernel replaces."""
        self._range = None

    def as_shape(self, aval: Aval) -> DeviceArray:
        """All elements in another shape, in the same memory."""
        made = DeviceArray(self.gpu, self.lease, aval)
        if aval.dtype == self.aval.dtype:
            made._range, made._written = self._range, self._written
        return made


def padded(nbytes: int) -> int:
    """Bytes, rounded up to whole words."""
    return -(-nbytes // WORD) * WORD
