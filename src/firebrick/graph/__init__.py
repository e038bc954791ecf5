"""Capture: functions traced into graphs, passes over these, and ``jit``."""

from firebrick.graph.jit import Jit, Recompile, RecompileWarning, disable_jit, explain_recompiles, jit

__all__ = ["Jit", "Recompile", "RecompileWarning", "disable_jit", "explain_recompiles", "jit"]
