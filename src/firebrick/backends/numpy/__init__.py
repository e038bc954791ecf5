"""The ``numpy`` engine: every op's reference at the operands' own dtype, and faster kernels where that pays."""

from firebrick.backends.numpy.engine import HostBackend, NumpyBackend

__all__ = ["HostBackend", "NumpyBackend"]
