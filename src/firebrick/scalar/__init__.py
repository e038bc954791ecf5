"""Scalar expressions: the IR that all code generators share, its mathematics, and its interpreter."""

from firebrick.scalar.expr import Expr, cast, const, fma, index, load, maximum, minimum, reduce, select
from firebrick.scalar.interpret import evaluate
from firebrick.scalar.storage import computed

__all__ = [
    "Expr", "cast", "computed", "const", "evaluate", "fma", "index", "load", "maximum", "minimum", "reduce",
    "select",
]  # fmt: skip
