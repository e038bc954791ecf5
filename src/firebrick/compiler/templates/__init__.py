"""Kernels of the specs for GPUs, written once in the kernel language, with tile sizes as compile-time constants."""

import firebrick.compiler.naive as _naive  # noqa: F401  before its parts
from firebrick.compiler.templates.attention_gradient import deltas, key_gradients, query_gradient
from firebrick.compiler.templates.epilogues import WithOperands, with_operands
from firebrick.compiler.templates.plane_windows import window
from firebrick.compiler.templates.product import product
from firebrick.compiler.templates.radix_sort import digit_counts, digit_scatter
from firebrick.compiler.templates.row_reduction import row_reduction
from firebrick.compiler.templates.scan import scan
from firebrick.compiler.templates.segmented_scatter import segmented_scatter
from firebrick.compiler.templates.template import Template, TemplateProblem, template
from firebrick.compiler.templates.tiled_attention import attention
from firebrick.compiler.templates.tiled_convolution import convolution, input_gradient, weight_gradient

__all__ = [
    "Template",
    "TemplateProblem",
    "WithOperands",
    "attention",
    "convolution",
    "deltas",
    "digit_counts",
    "digit_scatter",
    "input_gradient",
    "key_gradients",
    "product",
    "query_gradient",
    "row_reduction",
    "scan",
    "segmented_scatter",
    "template",
    "weight_gradient",
    "window",
    "with_operands",
]
