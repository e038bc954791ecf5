"""Control flow that graphs carry: branches, loops, and loops over sequences, with gradients of any order."""

from firebrick.graph.control import own_rules as _own_rules  # noqa: F401 - rules are nodes of graphs from here on
from firebrick.graph.control.verbs import cond, scan, while_loop

__all__ = ["cond", "scan", "while_loop"]
