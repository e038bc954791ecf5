"""Kernels of the specs for GPUs, written once in the kernel language, with tile sizes as compile-time constants."""

from firebrick.compiler.templates.convolution import convolution, input_gradient, weight_gradient
from firebrick.compiler.templates.product import product
from firebrick.compiler.templates.row_reduction import row_reduction
from firebrick.compiler.templates.scan import scan
from firebrick.compiler.templates.template import Problem, Template, template

__all__ = [
    "Problem", "Template", "convolution", "input_gradient", "product", "row_reduction", "scan", "template", "weight_gradient",
]  # fmt: skip
