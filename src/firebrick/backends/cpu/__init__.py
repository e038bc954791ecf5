"""The ``cpu`` engine, the default: NumPy's kernels for eager operations, and compiled ones for whole graphs."""

from firebrick.backends.cpu.engine import CpuBackend

__all__ = ["CpuBackend"]
