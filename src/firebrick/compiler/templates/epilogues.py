"""Functions that templates call for each element, as prologues and epilogues: what a spec's expressions become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firebrick.compiler.kernel.language.annotations import ArrayTuple
from firebrick.compiler.kernel.language.calls import HelperFunction, IndexedFunction, InlinedExpression
from firebrick.compiler.templates.template import operand
from firebrick.core.errors import ShapeError


@dataclass(frozen=True, slots=True)
class WithOperands:
    """A function of an element, and of the elements of further arrays that lie at its index.

    Attributes:
        function: Called with the element, and one element of each array.
        operands: Name of each array, and its axes: some of those of the array that the element is of, in any order.
    """

    function: HelperFunction | InlinedExpression
    operands: tuple[tuple[str, str], ...]


Elementwise = HelperFunction | InlinedExpression
"""A function in the kernel language, or a scalar expression of a spec."""
ElementwiseOfOperands = Elementwise | WithOperands
"""Such a function, or one that has operands of its own."""


def with_operands(function: Elementwise, **operands: str) -> WithOperands:
    """A function of an element that has operands.

    Args:
        function: Of the element, and of one element of each operand, in order.
        **operands: Axes of each operand, separated by commas, by their names in the template: a bias of a product by column
            has the axes ``"n_vectors, vector"``. Empty for one number for all elements.

    Example:
        >>> from firebrick.compiler.templates.epilogues import add, with_operands
        >>> with_operands(add, residual="batch, m, n_vectors, vector").operands
        (('residual', 'batch, m, n_vectors, vector'),)
    """
    return WithOperands(function, tuple(operands.items()))


def by_index(function: ElementwiseOfOperands, axes: Mapping[str, str]) -> tuple[IndexedFunction, ArrayTuple]:
    """A function as templates call it, with the element, a tuple of its operands and the element's index; and the operands.

    Args:
        function: Of the element and its operands.
        axes: The axes of the array that the element is of: name → size.

    Raises:
        ShapeError: An operand has an axis that the array does not have, or one twice.
    """
    if not isinstance(function, WithOperands):
        return IndexedFunction(function), ArrayTuple(())
    names, found = list(axes), []
    arrays = []
    for name, text in function.operands:
        own = [part.strip() for part in text.split(",") if part.strip()]
        if not set(own) <= set(names) or len(set(own)) < len(own):
            raise ShapeError(
                f"the axes of an operand are some of {', '.join(names)}, each once", f"{name}: {text}", "correct its axes"
            )
        found.append(tuple(map(names.index, own)))
        arrays.append((name, operand(None, ", ".join(axes[a] for a in own))))
    return IndexedFunction(function.function, tuple(found)), ArrayTuple(tuple(arrays))


@HelperFunction
def same(value: Any) -> Any:
    """The element as it is."""
    return value


@HelperFunction
def add(a: Any, b: Any) -> Any:
    """The sum."""
    return a + b


@HelperFunction
def larger(a: Any, b: Any) -> Any:
    """The larger number; NaN if one is NaN."""
    return max(a, b)
