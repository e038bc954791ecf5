"""Compiled programs: the order of nodes, the memory plan, segments and launches."""
