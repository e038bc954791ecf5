"""The element of a node's result as a scalar expression of its operands' elements, by the op table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any

from firebrick.core.aval import Aval
from firebrick.ir import Node
from firebrick.scalar.complex_numbers import Parts, paired, parts
from firebrick.scalar.expr import COMPLEX, Expr, load, walk
from firebrick.scalar.storage import HALVES, computed, rounded


def is_elementwise(n: Node) -> bool:
    """Whether each element of a node's result is an expression of one element of each operand."""
    return (n.op.scalar is not None or n.op.complex_scalar is not None) and n.op.fusion == "map"


def is_reduction(n: Node) -> bool:
    """Whether each element of a node's result is an expression with reductions."""
    return n.op.scalar is not None and n.op.fusion == "row"


def reduced_axes(n: Node, ndim: int) -> tuple[int, ...]:
    """The axes along which the expression of a reduction reduces its first operand, which has ``ndim`` axes."""
    axes: tuple[int, ...] = n.params["axes"] if "axes" in n.params else (n.params.get("axis", ndim - 1),)
    return axes


def rule_of(n: Node, operands: Sequence[Aval]) -> Callable[..., Any] | None:
    """The field of a node's entry that gives its element; None if the entry has none for these dtypes."""
    return n.op.complex_scalar if is_complex(n, operands) else n.op.scalar


def is_complex(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether a node's results or operands are complex."""
    return any(a.dtype.kind == "complex" for a in (*operands, *n.avals))


def element(n: Node, args: Sequence[Expr], operands: Sequence[Aval], products: Collection[Expr] = ()) -> Expr:
    """The element of a node's result.

    Args:
        n: A node that ``is_elementwise`` or ``is_reduction``.
        args: The operands' elements.
        operands: Its operands.
        products: Leaves that are not elements of memory, but products that are computed before the expression.

    Raises:
        TypeError: Operands of these dtypes have no expression.
    """
    rule = rule_of(n, operands)
    if rule is None:
        raise TypeError(f"{n.op.name} of {', '.join(a.dtype.name for a in operands)} has no scalar expression")
    found = [parts(x) if x.dtype in COMPLEX else x for x in decided(n, args, operands, products)]
    if n.op.fusion == "map":
        made: Expr | Parts = rule(*found, **n.params)
    else:
        shape = operands[0].shape
        made = rule(*found, count=prod(shape[a] for a in reduced_axes(n, len(shape))), **n.params)
    return paired(made) if isinstance(made, Parts) else made


def is_sum(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether a node's result is the sum of its operand's elements."""
    return _reductions(n, operands) == {"sum"} and element(n, [_first(operands)], operands).op == "reduce"


def is_product(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether a node's result is a product of its operand's elements."""
    return "prod" in _reductions(n, operands)


def _first(operands: Sequence[Aval]) -> Expr:
    return load(0, computed(operands[0].dtype.name))


def _reductions(n: Node, operands: Sequence[Aval]) -> set[str]:
    """The kind of a reduction of one operand."""
    if not is_reduction(n) or len(operands) != 1:
        return set()
    return {str(e.value) for e in walk([element(n, [_first(operands)], operands)]) if e.op == "reduce"}


def decided(n: Node, args: Sequence[Expr], operands: Sequence[Aval], products: Collection[Expr] = ()) -> list[Expr]:
    """A node's operands, half precision rounded as it is where it is stored, if a small difference would show as another whole
    number or another answer, or where a cast shows it in a wider dtype: so what is decided agrees with what is seen."""
    if n.avals[0].dtype.kind == "float" and not n.op.discontinuous:
        return list(args)
    # a reduction's expression is also made of operands that are not known yet
    stored = n.op.fusion == "map"
    pairs = zip(args, operands, strict=True)
    return [
        x if a.dtype.name not in HALVES or (stored and _stored(x, products)) else rounded(x, a.dtype.name) for x, a in pairs
    ]


def _stored(x: Expr, products: Collection[Expr]) -> bool:
    """Whether an element is loaded from memory, where it is already rounded."""
    return x.op in ("load", "gather") and x not in products
