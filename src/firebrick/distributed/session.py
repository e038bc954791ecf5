"""The group of this process: made by ``init``, found by ``current``.

A program that calls ``init`` runs unchanged alone, under ``firebrick launch``, under ``torchrun`` and under ``mpiexec``: the
environment says which of them started this process.
"""

from __future__ import annotations

import os

from firebrick.core.config import config
from firebrick.core.errors import ConfigError
from firebrick.distributed.group import Group
from firebrick.distributed.mpi import MPIGroup
from firebrick.distributed.process import ProcessGroup

_current: Group | None = None
_OF_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)  # fmt: skip
"""Variables in which launchers of MPI write a process's rank and how many there are: Open MPI's, MPICH's and MVAPICH's."""


def _number(name: str, least: int) -> int:
    """A whole number among the launcher's variables.

    Raises:
        ConfigError: It is none.
    """
    text = os.environ[name]
    if not text.strip().isdecimal() or int(text) < least:
        raise ConfigError(
            f"{name} in the environment, which launchers set, is a whole number from {least}",
            repr(text),
            f"unset {name}, or start the program with: firebrick launch -n 2 script.py, torchrun or mpiexec",
        )
    return int(text)


def _by_mpi() -> tuple[int, int] | None:
    """Rank and size that a launcher of MPI gave this process, if there is more than one."""
    for rank, size in _OF_MPI:
        if os.environ.get(size) and _number(size, 1) > 1:
            return _checked(rank, size)
    return None


def _checked(rank: str, size: str) -> tuple[int, int]:
    """Rank and size by the names of their variables.

    Raises:
        ConfigError: Only one of them is set, or they do not fit.
    """
    count = _number(size, 1) if os.environ.get(size) else 1
    if count > 1 and not os.environ.get(rank):
        raise ConfigError(
            f"a process that was started as one of {size}={count} knows its rank",
            f"no {rank} in the environment: it would train alone",
            f"unset {size} to train alone, or start the program with: firebrick launch -n {count} script.py, or torchrun",
        )
    number = _number(rank, 0) if os.environ.get(rank) else 0
    if number >= count:
        raise ConfigError(
            "a rank is a number from 0 to the number of ranks less 1",
            f"{rank}={number}, {size}=" + (f"{count}" if os.environ.get(size) else "unset, which is 1"),
            f"set both, or start the program with: firebrick launch -n 2 script.py; unset {rank} to train alone",
        )
    return number, count


def _given() -> tuple[int, int]:
    """Rank and size that the launcher gave this process; (0, 1) if none did."""
    if "RANK" in os.environ and config.distributed_backend != "mpi":
        return _checked("RANK", "WORLD_SIZE")
    return _by_mpi() or _checked("RANK", "WORLD_SIZE")


def launcher() -> str:
    """What messages call the command that started this process as one of several; empty if none did."""
    if _given()[1] == 1:
        return ""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    return "mpiexec" if _by_mpi() is not None else "firebrick launch"


def init(backend: str | None = None, *, timeout: float | None = None) -> Group:
    """Join the group of processes that this one was started in; alone, a group of one.

    Args:
        backend: ``gloo``, ``nccl`` or ``mpi``; ``config.distributed_backend`` if None, which launchers set, else mpi for
            processes that ``mpiexec`` started, else gloo.
        timeout: Seconds that an operation, and the meeting itself, may take; ``config.distributed_timeout`` if None.

    Returns:
        The group, which ``current()`` gives from now on.

    Raises:
        ConfigError: The process is in a group already, or there is no such backend, or its launcher is that of another; or
            its variables of a launcher are no numbers, or say how many processes there are but not which this one is.
        CollectiveTimeoutError: Not all ranks came.
        UnsupportedError: What the backend needs is not installed.

    Example:
        >>> import firebrick as fb
        >>> group = fb.distributed.init()
        >>> group.rank, group.size
        (0, 1)
        >>> fb.distributed.shutdown()
    """
    global _current
    if _current is not None and not _current.closed:
        raise ConfigError(
            "distributed.init is called once a process",
            repr(_current),
            "use distributed.current(), or distributed.shutdown() first",
        )
    chosen = backend or config.distributed_backend
    if chosen not in ("", "gloo", "nccl", "mpi"):
        raise ConfigError("distributed.init: backend is one of gloo, nccl, mpi", repr(chosen), "choose one of these")
    _given()  # which refuses variables that say nothing, before anything waits for others
    if chosen == "mpi" or (not chosen and "RANK" not in os.environ and _by_mpi()):
        _current = MPIGroup(timeout=timeout)
    elif "RANK" in os.environ:
        _current = ProcessGroup(chosen or "gloo", timeout=timeout)
    elif (found := _by_mpi()) is not None:  # which would be so many groups of one
        raise ConfigError(
            f"distributed.init: {chosen} joins processes of firebrick launch or torchrun",
            f"one of {found[1]} processes that mpiexec started",
            f'use backend="mpi", or start them with firebrick launch -n {found[1]}',
        )
    else:
        _current = Group(timeout=timeout)
    return _current


def current() -> Group:
    """The group that ``init`` made.

    Raises:
        ConfigError: There is none yet.

    Example:
        >>> import firebrick as fb
        >>> with fb.distributed.init() as group:
        ...     fb.distributed.current() is group
        True
    """
    if _current is None or _current.closed:
        raise ConfigError("distributed.current needs a group", "none in this process", "call distributed.init() first")
    return _current


def shutdown() -> None:
    """Leave the group, if there is one, after every rank has called this; ``init`` may be called again.

    Example:
        >>> import firebrick as fb
        >>> fb.distributed.shutdown()  # without a group, nothing
    """
    global _current
    group, _current = _current, None
    if group is not None and not group.closed:
        try:
            group.barrier()
        finally:
            group.close()


def rank() -> int:
    """This process's rank in its group; outside of a group, the rank that its launcher assigned, or 0.

    Example:
        >>> import firebrick as fb
        >>> fb.distributed.rank()
        0
    """
    return _given()[0] if _current is None or _current.closed else _current.rank


def world_size() -> int:
    """Number of processes of the group; outside of a group, the number that the launcher assigned, or 1.

    Example:
        >>> import firebrick as fb
        >>> fb.distributed.world_size()
        1
    """
    return _given()[1] if _current is None or _current.closed else _current.size


def local_rank() -> int:
    """This process's place among those of its host, which chooses its GPU: ``f"torch:cuda:{local_rank()}"``.

    Example:
        >>> import firebrick as fb
        >>> fb.distributed.local_rank()
        0
    """
    name = next((n for n in ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK") if os.environ.get(n)), None)
    return 0 if name is None else _number(name, 0)


def barrier() -> None:
    """Return when every rank of the current group has called it.

    Example:
        >>> import firebrick as fb
        >>> with fb.distributed.init():
        ...     fb.distributed.barrier()
    """
    current().barrier()
