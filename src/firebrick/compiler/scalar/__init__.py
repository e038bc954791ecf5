"""Scalar expressions: the IR that all code generators share, its mathematics and interpreter, and the op table's rules."""

from firebrick.compiler.scalar.expr import Expr, cast, const, fma, index, load, maximum, minimum, reduce, select
from firebrick.compiler.scalar.interpret import evaluate
from firebrick.compiler.scalar.ops import expression, supports
from firebrick.compiler.scalar.storage import computed

__all__ = [
    "Expr", "cast", "computed", "const", "evaluate", "expression", "fma", "index", "load", "maximum", "minimum", "reduce",
    "select", "supports",
]  # fmt: skip
