"""What processors compile: the thresholds of fusion, and kernels that the host has faster ones for."""

from __future__ import annotations

from firebrick.compiler.fusion.policy import FusionPolicy

POLICY = FusionPolicy(
    most_nodes=200, one=1 << 15, two=1 << 12, more=1, reduced=1 << 9, shared_bytes=1 << 20, stretch=64, summed_rows=64
)  # fmt: skip

RANKED = 16
"""Maximum length of a line whose elements are all compared with each other; longer ones are sorted digit by digit."""

MANY, SHORT, MIDDLE = 1 << 17, 1 << 8, 1 << 15
"""Sorts of so many elements of 2 or 4 bytes are NumPy's, which compares in vectors, if their lines are shorter than the second
number, or, for values without indices, than the third. Fewer elements are sorted before NumPy's have got their keys."""
