"""The ``cpu`` engine, the default: NumPy's kernels for eager operations, and compiled ones for whole graphs."""

import firebrick.backends.numpy as _numpy  # noqa: F401  before its parts
import firebrick.compiler.naive as _naive  # noqa: F401  before its parts
import firebrick.compiler.targets.llvm.contract as _contract  # noqa: F401  before its parts
from firebrick.backends.cpu.engine import CpuBackend

__all__ = ["CpuBackend"]
