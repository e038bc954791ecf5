"""The ``cpu`` engine, the default: eager operations on NumPy's kernels."""

from __future__ import annotations

from firebrick.backends.numpy.engine import HostBackend


class CpuBackend(HostBackend):
    """Firebrick's own CPU engine."""

    engine = "cpu"
    platforms = ("cpu",)
