"""The op table. Importing it registers every primitive op, one file a family."""

import firebrick.scalar as _scalar  # noqa: F401  before its parts
from firebrick.ops import (
    activation,
    attention,
    bits,
    bitwise,
    casts,
    convolution,
    decomposition,
    elementwise,
    factorization,
    fft,
    indexing,
    linalg,
    matmul,
    movement,
    normalisation,
    pooling,
    reduction,
    scan,
    sorting,
    special,
    trigonometry,
)
from firebrick.ops.table import OPS, IncompleteOpError, register

__all__ = [
    "OPS", "IncompleteOpError", "activation", "attention", "bits", "bitwise", "casts", "convolution", "decomposition",
    "elementwise", "factorization", "fft", "indexing", "linalg", "matmul", "movement", "normalisation", "pooling", "reduction",
    "register", "scan", "sorting", "special", "trigonometry",
]  # fmt: skip
