"""Pinned compilations: what the compiler decides and prints for chosen programs, kept in ``tests/compiler/pinned``."""
