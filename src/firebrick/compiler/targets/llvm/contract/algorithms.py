"""The three convolutions of the op table as kernels, with the algorithm chosen by the geometry.

Most are matrix products over patches. Depthwise convolutions, and input gradients of images much larger than the result, have
special kernels (see ``direct``). Convolutions of 3 × 3 taps may be products of transforms; the module ``winograd`` says why
this is not the default, but an alternative for the autotuner.
"""

from __future__ import annotations

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.contract.alternatives import PATCHES, WINOGRAD, Alternative
from firebrick.compiler.targets.llvm.contract.blocked import Contraction, contraction
from firebrick.compiler.targets.llvm.contract.direct import (
    col2im,
    grouped,
    grouped_residues,
    grouped_weight,
    suits_col2im,
    suits_depthwise,
    suits_groups,
)
from firebrick.compiler.targets.llvm.contract.epilogue import Epilogue
from firebrick.compiler.targets.llvm.contract.problem import conv, conv_input, conv_weight
from firebrick.compiler.targets.llvm.contract.taps import tap_sum_kernels, tap_sums
from firebrick.compiler.targets.llvm.contract.winograd import tiling, winograd
from firebrick.compiler.targets.llvm.target import Target

DEFAULT = Alternative("default")


def forward(
    g: Convolution, target: Target, name: str, epilogue: Epilogue | None = None, how: Alternative = DEFAULT
) -> Contraction:
    """``conv``: ``bufs`` holds weight, image, the epilogue's operands, the result [batch, out, *positions] and the workspace.

    Args:
        g: The geometry.
        target: Processor to generate for.
        name: Name of the functions.
        epilogue: Over rows [out of a group] and columns [batch · positions] of each group, such as the bias of channels.
        how: Which algorithm, and which blocks.
    """
    if epilogue is None and (suits_groups(g) or suits_depthwise(g)) and how.algorithm != PATCHES:
        return grouped(g, target, name)
    t = tiling(g, target, adjoint=False) if how.algorithm == WINOGRAD else None
    if t is not None:
        return winograd(g, t, target, name, epilogue)
    return contraction(conv(g), target, name, epilogue, adjusted=how.adjusted)


def input_gradient(g: Convolution, target: Target, name: str, how: Alternative = DEFAULT) -> list[Contraction]:
    """``conv_input``: contractions to be run in any order; ``bufs`` of each: weight, cotangent, gradient, workspace.

    Args:
        g: The geometry of the convolution whose gradient it is.
        target: Processor to generate for.
        name: Name of the functions; each of several contractions adds a suffix.
        how: Which algorithm, and which blocks.
    """
    if how.algorithm != PATCHES:
        few, dense = suits_groups(g) or suits_depthwise(g), set(g.stride) == {1}
        if few and dense:
            return [grouped(g, target, name, adjoint=True)]
        if suits_col2im(g, target):
            return [col2im(g, target, name)]
        if few:
            return [grouped_residues(g, target, name)]
    t = tiling(g, target, adjoint=True) if how.algorithm == WINOGRAD else None
    if t is not None:
        return [winograd(g, t, target, name)]
    return [contraction(p, target, f"{name}.{i}", adjusted=how.adjusted) for i, p in enumerate(conv_input(g))]


def weight_gradient(g: Convolution, target: Target, name: str, how: Alternative = DEFAULT) -> Contraction:
    """``conv_weight``: ``bufs`` holds cotangent, image, the weight's gradient and the workspace.

    Args:
        g: The geometry of the convolution whose gradient it is.
        target: Processor to generate for.
        name: Name of the functions.
        how: Which algorithm, and which blocks.
    """
    if how.algorithm != PATCHES:
        if suits_groups(g) or suits_depthwise(g):
            return grouped_weight(g, target, name)
        t = tap_sums(g, target)
        if t is not None:
            return tap_sum_kernels(g, t, target, name)
    return contraction(conv_weight(g), target, name, adjusted=how.adjusted)
