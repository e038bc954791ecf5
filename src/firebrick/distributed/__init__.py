"""Ranks that work together: collective operations over the devices of one process, over processes and over hosts.

Importing this imports neither torch nor mpi4py; a group does when it is made.
"""

import firebrick.functions as _functions  # noqa: F401  before its parts
from firebrick.distributed.group import Group, Work
from firebrick.distributed.local import LocalGroup
from firebrick.distributed.mpi import MPIGroup
from firebrick.distributed.process import ProcessGroup
from firebrick.distributed.session import barrier, current, init, local_rank, rank, shutdown, world_size

__all__ = [
    "Group",
    "LocalGroup",
    "MPIGroup",
    "ProcessGroup",
    "Work",
    "barrier",
    "current",
    "init",
    "local_rank",
    "rank",
    "shutdown",
    "world_size",
]
