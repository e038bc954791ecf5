"""Capture: functions traced into graphs, passes over these, ``jit``, and control flow."""

import firebrick.autodiff as _autodiff  # noqa: F401  before its parts
import firebrick.backends as _backends  # noqa: F401  before its parts
from firebrick.graph import replays as _replays  # noqa: F401 - gradient rules run as programs from here on
from firebrick.graph import whole_passes as _whole_passes  # noqa: F401 - and repeated backward passes as one function
from firebrick.graph.control import cond, scan, while_loop
from firebrick.graph.jit import Jit, disable_jit, jit
from firebrick.graph.recompiles import Recompile, RecompileWarning, explain_recompiles
from firebrick.graph.staged import tell

__all__ = [
    "Jit",
    "Recompile",
    "RecompileWarning",
    "cond",
    "disable_jit",
    "explain_recompiles",
    "jit",
    "scan",
    "tell",
    "while_loop",
]
