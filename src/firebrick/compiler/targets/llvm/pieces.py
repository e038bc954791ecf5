"""Kernels of ``Copy``: one for each piece of the result."""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.compiler.program.launch import At
from firebrick.compiler.spec.copy import Copy, in_place
from firebrick.compiler.targets.llvm.copy_kernels import copy_kernel, fill_kernel, moving_us
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel, at_offset
from firebrick.compiler.targets.llvm.native import NativeKernel, module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval


def lowered(spec: Copy, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``."""
    parts: list[LoweredKernel] = []
    kernels: dict[str, NativeKernel] = {}
    over, size = in_place(spec), spec.itemsize
    for piece in spec.pieces:
        shape, read, write = piece.write.shape, piece.read.strides, piece.write.strides
        assert read is not None
        assert write is not None
        buffers: tuple[At, ...] = (at_offset(len(inputs), piece.write.offset * size),)
        if piece.source is None:
            kernel = fill_kernel(shape, piece.bits, write, size, target)
        else:
            kernel = copy_kernel(shape, read, write, size, target, piece.source in over)
            buffers = (at_offset(piece.source, piece.read.offset * size), *buffers)
        kernels.setdefault(kernel.name, kernel)
        parts.append(LoweredKernel(kernel, buffers, moving_us(shape, size)))
    return Lowered(tuple(parts), (), module_text(kernels.values()), (over,))
