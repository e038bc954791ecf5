"""The op table. Importing it registers every primitive op, one file a family."""

from firebrick.ops import (
    bits,
    convolution,
    elementwise,
    indexing,
    matmul,
    movement,
    normalisation,
    pooling,
    reduction,
    sorting,
)
from firebrick.ops.table import OPS, IncompleteOpError, register

__all__ = [
    "OPS", "IncompleteOpError", "bits", "convolution", "elementwise", "indexing", "matmul", "movement",
    "normalisation", "pooling", "reduction", "register", "sorting",
]  # fmt: skip
