"""Graphs to executables: a memory plan and straight-line programs of an engine's kernels."""

from firebrick.compiler.kernel import Kernel, call
from firebrick.compiler.plan import Plan, plan_memory
from firebrick.compiler.program import Begin, Engine, Executable, Step, build, choose, write

__all__ = ["Begin", "Engine", "Executable", "Kernel", "Plan", "Step", "build", "call", "choose", "plan_memory", "write"]
