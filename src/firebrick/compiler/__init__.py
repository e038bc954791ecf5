"""Graphs to executables: a memory plan and straight-line programs of an engine's kernels."""

import firebrick.compiler.kernel as _kernel  # noqa: F401  before its parts
import firebrick.ir as _ir  # noqa: F401  before its parts
from firebrick.compiler.program.expression import Kernel, call, kernel_function
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.compiler.program.python import Begin, Engine, Executable, Step, build, choose, write

__all__ = [
    "Begin",
    "Engine",
    "Executable",
    "Kernel",
    "Plan",
    "Step",
    "build",
    "call",
    "choose",
    "kernel_function",
    "plan_memory",
    "write",
]
