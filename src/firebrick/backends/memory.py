"""The memory of tensors, device by device: bytes live, their peak, and the largest allocations with their labels.

The account is Firebrick's own and the same on every engine: it counts memory that tensors own, once, however many views
of it there are. Working space and caches of an engine's kernels and allocator appear in the engine's own figures, if it has
any.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firebrick.backends.registry import find_device
from firebrick.core.aval import Aval
from firebrick.core.device import Device, Memory
from firebrick.core.errors import OutOfMemoryError
from firebrick.core.scopes import scope
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor

_MIB = 2**20


@dataclass(frozen=True, order=True)
class Allocation:
    """One allocation that lives on a device.

    Attributes:
        nbytes: Its bytes.
        what: Dtype and shape of the largest tensor that shows it, or ``kept for a gradient`` if only the tape holds it.
        label: That tensor's label, such as ``conv1.weight``; empty if it has none.
    """

    nbytes: int
    what: str
    label: str = ""

    def __str__(self) -> str:
        return f"{_size(self.nbytes)} {self.what} {self.label}".rstrip()


def _size(nbytes: int) -> str:
    return f"{nbytes / _MIB:.1f} MiB" if nbytes >= _MIB else f"{nbytes / 1024:.1f} KiB"


def _live(device: Device) -> list[tuple[Storage, Tensor | None]]:
    """The storages that own memory of a device, each with the largest tensor that shows it."""
    memory = device._memory
    account = memory if isinstance(memory, Memory) else memory.of
    owners: dict[int, tuple[Storage, Tensor | None]] = {}
    shown: list[Tensor] = []
    for o in gc.get_objects():
        kind = type(o)  # isinstance would run others' __class__ properties
        # other threads may be about to fill in the attributes
        if issubclass(kind, Tensor):
            if getattr(o, "device", None) is device and hasattr(o, "leaf") and hasattr(o, "label"):
                shown.append(o)
        elif issubclass(kind, Storage) and hasattr(o, "nbytes") and o.nbytes:
            theirs = o.memory
            if theirs is account or getattr(theirs, "of", None) is account:
                owners[id(o)] = (o, None)
    for t in shown:
        root = t.storage.root
        if id(root) in owners:
            other = owners[id(root)][1]
            if other is None or (t.label is not None, t.nbytes) > (other.label is not None, other.nbytes):
                owners[id(root)] = (root, t)
    return list(owners.values())


def largest_allocations(device: Any = None, most: int = 10) -> list[Allocation]:
    """The largest live allocations of a device, largest first.

    Args:
        device: Device or device string; the default device if None.
        most: How many at most.

    Example:
        >>> import firebrick as fb
        >>> big = fb.zeros((1024, 1024))
        >>> fb.largest_allocations(most=1)[0].nbytes >= big.nbytes
        True
    """
    rows = [
        Allocation(s.nbytes, "kept for a gradient") if t is None else Allocation(s.nbytes, str(t.aval), t.label or "")
        for s, t in _live(find_device(device))
    ]
    return sorted(rows, reverse=True)[: max(0, most)]


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes that live tensors of a device own.

    Args:
        device: Device or device string; the default device if None.

    Returns:
        ``live`` now; ``peak`` since the start or the last ``memory_cleanup``; ``persistent``, those of the live ones that were
        allocated to stay (parameters, optimizer state); and figures of the engine's own allocator.

    Example:
        >>> import firebrick as fb
        >>> before = fb.memory_stats()["live"]
        >>> x = fb.zeros(1000, dtype=fb.float32)
        >>> fb.memory_stats()["live"] - before
        4000
    """
    home = find_device(device)
    return dict(home.backend.memory_stats(home))


def memory_cleanup(device: Any = None) -> None:
    """Return unused memory to the system, and restart the peak from what is live.

    Args:
        device: Device or device string; the default device if None.

    Example:
        >>> import firebrick as fb
        >>> fb.memory_cleanup()
        >>> stats = fb.memory_stats()
        >>> stats["peak"] == stats["live"]
        True
    """
    home = find_device(device)
    gc.collect()
    home.backend.memory_cleanup(home)


@scope
def memory_persistent_allocations(device: Any = None) -> Iterator[None]:
    """Count allocations on a device in this block as ``persistent``, since they will live long; engines with pools keep
    them apart from short-lived results. The mode ends with the block, also by an exception.

    Args:
        device: Device or device string; the default device if None.

    Example:
        >>> import firebrick as fb
        >>> before = fb.memory_stats()["persistent"]
        >>> with fb.memory_persistent_allocations():
        ...     table = fb.zeros(1000, dtype=fb.float32)
        >>> fb.memory_stats()["persistent"] - before
        4000
    """
    home = find_device(device)
    with home.backend.memory_persistent_allocations(home):
        yield


def memory_summary(device: Any = None, most: int = 10) -> str:
    """``memory_stats`` and ``largest_allocations`` as text.

    Args:
        device: Device or device string; the default device if None.
        most: How many allocations to list.

    Example:
        >>> import firebrick as fb
        >>> w = fb.nn.Linear(512, 512)
        >>> print(fb.memory_summary(most=1).splitlines()[0].split(": ")[0])
        cpu:0
    """
    home = find_device(device)
    figures = ", ".join(f"{k} {_size(v)}" for k, v in memory_stats(home).items())
    return "\n".join([f"{home.name}: {figures}", *(f"  {a}" for a in largest_allocations(home, most))])


def out_of_memory(op: str, avals: tuple[Aval, ...], device: Device) -> OutOfMemoryError:
    """The error for a failed allocation, with the largest live tensors."""
    wanted = sum(a.nbytes for a in avals)
    top = "; ".join(map(str, largest_allocations(device, 5))) or "none"
    context: dict[str, Any] = {"op": op, "device": device.name, "bytes": wanted}
    return OutOfMemoryError(
        f"{op} on {device} needs {wanted / _MIB:.1f} MiB for its result",
        f"{device._memory.live / _MIB:.1f} MiB live there already; the largest: {top}",
        "use a smaller batch, fb.checkpoint, or free tensors you no longer need",
        **context,
    )
