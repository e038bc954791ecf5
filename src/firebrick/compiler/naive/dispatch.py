"""``naive``: the kernels of a specification in their simplest form.

They are the first implementation of a new kind and of a new target, and the reference of tuned kernels. Sizes and strides are
arguments, so specifications of one structure have the same kernels. Buffers are whole arrays: offsets of views are arguments,
too. Sums are in the order of memory, in the dtype of the specification's computation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.compiler.naive.attentions import attention
from firebrick.compiler.naive.building import Naive
from firebrick.compiler.naive.contractions import contract
from firebrick.compiler.naive.copies import copy
from firebrick.compiler.naive.customs import custom
from firebrick.compiler.naive.matrices import cholesky, triangular_solve
from firebrick.compiler.naive.nests import nest
from firebrick.compiler.naive.prefixes import prefix
from firebrick.compiler.naive.scatters import scatter
from firebrick.compiler.naive.searches import search
from firebrick.compiler.naive.sorts import sort
from firebrick.compiler.naive.windows import window
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.copy import Copy
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.matrix import Cholesky, TriangularSolve
from firebrick.compiler.spec.nest import Fold, Map, Row
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.scatter import Scatter
from firebrick.compiler.spec.search import Search
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.spec.window import Window

NAIVE: dict[type, Callable[..., Naive]] = {
    Map: nest, Row: nest, Fold: nest, Contract: contract, Attention: attention, Window: window, Scatter: scatter, Copy: copy,
    Prefix: prefix, Sort: sort, Search: search, Cholesky: cholesky, TriangularSolve: triangular_solve, Custom: custom,
}  # fmt: skip
"""Kind of specification → its naive form."""


def naive(spec: Any, float64: bool = True) -> Naive:
    """The naive form of a specification.

    Args:
        spec: A specification of one of the kinds in ``NAIVE``.
        float64: Whether the target has float64. Without it, running sums and scattered sums of float32 keep what each addition
            loses; other forms that compute in float64 are refused when they are prepared for the target.
    """
    if not float64 and isinstance(spec, Prefix | Scatter):
        return NAIVE[type(spec)](spec, float64=False)
    return NAIVE[type(spec)](spec)
