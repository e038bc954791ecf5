"""Docstrings of siblings have the arguments of one text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import firebrick as fb
from firebrick.core.docstrings import documented_like


def described(x: int, out: int) -> int:
    """One.

    Args:
        x: An operand,
            in two lines.
        out: A destination.

    Returns:
        Its own.
    """
    return x + out


def test_a_sibling_has_the_arguments_of_the_other_before_its_own_sections() -> None:
    @documented_like(described)
    def sibling(x: int, out: int) -> int:
        """Two.

        Returns:
            Another.
        """
        return x - out

    text = " ".join((sibling.__doc__ or "").split())
    assert text == "Two. Args: x: An operand, in two lines. out: A destination. Returns: Another."


def test_an_argument_that_a_sibling_does_not_have_is_left_out_with_all_its_lines() -> None:
    @documented_like(described, "x")
    def sibling(out: int) -> int:
        """Two."""
        return out

    assert " ".join((sibling.__doc__ or "").split()) == "Two. Args: out: A destination."


def test_without_docstrings_nothing_is_added() -> None:
    def bare() -> None: ...

    assert documented_like(described)(bare).__doc__ is None


@pytest.mark.parametrize(("sibling", "other"), [(fb.nn.BatchNorm2d, fb.nn.BatchNorm1d), (fb.prod, fb.sum)])
def test_public_siblings_describe_the_same_arguments(sibling: Callable[..., object], other: Callable[..., object]) -> None:
    def section(doc: str | None) -> str:
        return " ".join((doc or "").partition("Args:")[2].partition("Example:")[0].partition("Source:")[0].split())

    assert section(sibling.__doc__) == section(other.__doc__) != ""
