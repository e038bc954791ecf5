"""The ``numpy`` engine: every op's reference at the operands' own dtype, and faster kernels for some ops."""

from firebrick.backends.numpy.engine import HostBackend, NumpyBackend

__all__ = ["HostBackend", "NumpyBackend"]
