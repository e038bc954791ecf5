"""What some tests of ranks need of the machine: several hosts, an MPI library. Without it they are skipped by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FIRST = "10.231.77.1"
"""Address of the first of three hosts."""


@contextmanager
def three_hosts() -> Iterator[list[str]]:
    """Three hosts, as network namespaces behind one bridge; gives their names, and that of the bridge's.

    Host i has the address 10.231.77.(i + 1). Without root the test is skipped.
    """
    mark = f"fb{os.getpid()}"
    names, switch, made = [f"{mark}h{i}" for i in range(3)], f"{mark}s", []

    def ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode and made:
            raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
        if done.returncode:
            pytest.skip(f"root and network namespaces, for hosts: {done.stderr.strip()}")

    def space(name: str) -> None:
        ip("netns", "add", name)
        made.append(name)

    if shutil.which("ip") is None:
        pytest.skip("the command ip, for hosts in network namespaces")
    try:
        space(switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for i, name in enumerate(names):
            space(name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "wire", "type", "veth", "peer", "name", f"port{i}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{i}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.231.77.{i + 1}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
        yield [*names, switch]
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False)


def need_mpi() -> None:
    """Skip the test where MPI is missing."""
    pytest.importorskip("mpi4py", reason="mpi4py, for ranks over MPI")
    if not (shutil.which("mpiexec") or Path(sys.executable).with_name("mpiexec").exists()):
        pytest.skip("mpiexec of an MPI library, for ranks over MPI")
