"""``Capabilities``: the arithmetic and the limits of a target, as data that is independent of targets.

``legalize`` rewrites expressions for missing capabilities. An engine on a driver measures the fields about arithmetic
and does not trust reported ones; limits are those that the device reports.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a target. The defaults are those of a processor, which has all.

    Attributes:
        int64: 64-bit integers.
        narrow_integers: Integers of 8 and 16 bits. Without, they are computed in 32 bits and wrapped.
        float64: float64. It is used with ``int64`` only, as which its bits are read.
        float16: Arithmetic in float16, which expressions do not use: they compute in float32.
        exact_fma: ``fma`` rounds once. Without, it is a product and a sum.
        exact_division: Float quotients are correctly rounded. Without, they may be some units off.
        exact_sqrt: Square roots are correctly rounded.
        scaling: ``scale`` is an instruction that rounds once, also to denormal numbers.
        denormals: Denormal numbers are kept. Without, arithmetic may take and give zeros instead; loads, stores, bit
            operations and selections keep them.
        reassociates: Sums may be reordered and terms cancelled, as if they were of real numbers: (x + m) - m may be x.
        nan_min_max: ``min`` and ``max`` give NaN if either operand is. Without, they may give either.
        nan_comparisons: Comparisons with NaN are false, but ``ne`` is true. Without, they may give either.
        total_integers: Shifts by at least the width shift everything out, x / 0 = x % 0 = 0, and the smallest integer by -1
            is itself. Without, these may give any number.
        saturating_casts: Floats become integers with saturation, and NaN becomes 0. Without, it may be any number.
        loop_iterations: Maximum number of iterations of all loops of a work item together; None if unlimited.
        subgroup_sizes: Minimum and maximum subgroup size, (1, 1) without subgroups.
        group_items: Maximum number of work items of a group.
        shared_bytes: Bytes of a group's shared memory.
        offset_alignment: Alignment of the offset of a buffer binding, in bytes.
        binding_bytes: Maximum size of a buffer binding, in bytes; None if unlimited.
        buffers: Maximum number of buffers of a kernel; None if unlimited.
    """

    int64: bool = True
    narrow_integers: bool = True
    float64: bool = True
    float16: bool = True
    exact_fma: bool = True
    exact_division: bool = True
    exact_sqrt: bool = True
    scaling: bool = True
    denormals: bool = True
    reassociates: bool = False
    nan_min_max: bool = True
    nan_comparisons: bool = True
    total_integers: bool = True
    saturating_casts: bool = True
    loop_iterations: int | None = None
    subgroup_sizes: tuple[int, int] = (1, 1)
    group_items: int = 1
    shared_bytes: int = 256 * 1024
    offset_alignment: int = 1
    binding_bytes: int | None = None
    buffers: int | None = None


CPU = Capabilities()
"""A processor with LLVM."""

CONSERVATIVE_GPU = Capabilities(
    int64=False, narrow_integers=False, float64=False, float16=False, exact_fma=False, exact_division=False, exact_sqrt=False,
    scaling=False, denormals=False, reassociates=True, nan_min_max=False, nan_comparisons=False, total_integers=False,
    saturating_casts=False, loop_iterations=65535, subgroup_sizes=(1, 1), group_items=256, shared_bytes=16 * 1024,
    offset_alignment=256, binding_bytes=128 * 1024 * 1024, buffers=8,
)  # fmt: skip
"""The guaranteed capabilities of a GPU with WebGPU's default limits and any driver.

Source: the WebGPU and WGSL specifications, 2025, and drivers that run at most 65,535 iterations or do not fuse ``fma``."""
