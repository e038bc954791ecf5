"""The three convolutions of the op table as kernels, with the algorithm chosen by the geometry.

Most are matrix products over patches. Depthwise convolutions, and input gradients of images much larger than the result, have
special kernels (see ``direct``). With the setting ``winograd``, convolutions of 3 × 3 taps are products of transforms; the
module ``winograd`` says why this is not the default.
"""

from __future__ import annotations

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.contract.blocked import Contraction, contraction
from firebrick.compiler.targets.llvm.contract.direct import col2im, depthwise, depthwise_weight, suits_col2im, suits_depthwise
from firebrick.compiler.targets.llvm.contract.epilogue import Epilogue
from firebrick.compiler.targets.llvm.contract.problem import conv, conv_input, conv_weight
from firebrick.compiler.targets.llvm.contract.taps import tap_sum_kernels, tap_sums
from firebrick.compiler.targets.llvm.contract.winograd import tiling, winograd
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.config import config


def forward(g: Convolution, target: Target, name: str, epilogue: Epilogue | None = None) -> Contraction:
    """``conv``: ``bufs`` holds weight, image, the epilogue's operands, the result [batch, out, *positions] and the workspace.

    Args:
        g: The geometry.
        target: Processor to generate for.
        name: Name of the functions.
        epilogue: Over rows [out of a group] and columns [batch · positions] of each group, such as the bias of channels.
    """
    if epilogue is None and suits_depthwise(g):
        return depthwise(g, target, name)
    t = tiling(g, target, adjoint=False) if config.winograd else None
    if t is not None:
        return winograd(g, t, target, name, epilogue)
    return contraction(conv(g), target, name, epilogue)


def input_gradient(g: Convolution, target: Target, name: str) -> list[Contraction]:
    """``conv_input``: contractions to be run in any order; ``bufs`` of each: weight, cotangent, gradient, workspace.

    Args:
        g: The geometry of the convolution whose gradient it is.
        target: Processor to generate for.
        name: Name of the functions; each of several contractions adds a suffix.
    """
    if suits_depthwise(g) and set(g.stride) == {1}:
        return [depthwise(g, target, name, adjoint=True)]
    if suits_col2im(g, target):
        return [col2im(g, target, name)]
    t = tiling(g, target, adjoint=True) if config.winograd else None
    if t is not None:
        return [winograd(g, t, target, name)]
    return [contraction(p, target, f"{name}.{i}") for i, p in enumerate(conv_input(g))]


def weight_gradient(g: Convolution, target: Target, name: str) -> Contraction:
    """``conv_weight``: ``bufs`` holds cotangent, image, the weight's gradient and the workspace.

    Args:
        g: The geometry of the convolution whose gradient it is.
        target: Processor to generate for.
        name: Name of the functions.
    """
    if suits_depthwise(g):
        return depthwise_weight(g, target, name)
    t = tap_sums(g, target)
    if t is not None:
        return tap_sum_kernels(g, t, target, name)
    return contraction(conv_weight(g), target, name)
