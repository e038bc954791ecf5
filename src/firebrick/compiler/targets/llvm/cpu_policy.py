"""What processors compile: the thresholds of fusion, and kernels that the host has faster ones for."""

from __future__ import annotations

from firebrick.compiler.fusion.policy import FusionPolicy

POLICY = FusionPolicy(
    most_nodes=200, one=1 << 15, two=1 << 12, more=1, reduced=1 << 9, shared_bytes=1 << 20, stretch=64, summed_rows=64
)  # fmt: skip

RANKED = 16
"""Maximum length of a line that is sorted in a kernel, which compares all of its elements with each other. On one thread,
NumPy's sort is as fast at about 24 elements, and its partition, which finds the k largest, at 16."""
