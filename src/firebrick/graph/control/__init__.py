"""Control flow that graphs carry: branches, loops, and loops over sequences, with gradients of any order."""

from firebrick.graph.control.verbs import cond, scan, while_loop

__all__ = ["cond", "scan", "while_loop"]
