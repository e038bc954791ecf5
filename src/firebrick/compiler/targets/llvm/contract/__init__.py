"""Contractions as LLVM IR: products of matrices and convolutions, packed and blocked for the processor they run on.

A ``Problem`` describes the sums and the memory layout, ``choose`` selects a ``Variant``, ``contraction`` generates the kernels.
"""

from __future__ import annotations

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.spec.parts import Bound
from firebrick.compiler.targets.llvm.contract.algorithms import DEFAULT, forward, input_gradient, weight_gradient
from firebrick.compiler.targets.llvm.contract.alternatives import Alternative
from firebrick.compiler.targets.llvm.contract.blocked import Contraction, ContractionKernel, contraction
from firebrick.compiler.targets.llvm.contract.choose import Variant, choose
from firebrick.compiler.targets.llvm.contract.epilogue import Epilogue, product, stored
from firebrick.compiler.targets.llvm.contract.problem import (
    FactorLayout,
    MatrixLayout,
    Problem,
    conv,
    conv_input,
    conv_weight,
    matmul,
    matrix_layout,
    problem_of,
    simplified,
)

__all__ = [
    "DEFAULT",
    "Alternative",
    "Bound",
    "Contraction",
    "ContractionKernel",
    "Convolution",
    "Epilogue",
    "FactorLayout",
    "MatrixLayout",
    "Problem",
    "Variant",
    "choose",
    "contraction",
    "conv",
    "conv_input",
    "conv_weight",
    "forward",
    "input_gradient",
    "matmul",
    "matrix_layout",
    "problem_of",
    "product",
    "simplified",
    "stored",
    "weight_gradient",
]
