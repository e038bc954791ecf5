"""Functions that templates call for each element: what a spec's expressions become."""

from __future__ import annotations

from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction, InlinedExpression

Elementwise = HelperFunction | InlinedExpression
"""A function in the kernel language, or a scalar expression of a spec."""


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
