"""Attributes of tiles and layers that only their making decides: another value would have no effect, or half of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.nn import Buffer, Module, Parameter

ANOTHER = "make another one with it, and set its weights"
"""What to do in place of assigning a setting."""


def check_assigned(owner: Module, name: str, value: Any, fixed: Mapping[str, str], absent: Mapping[str, str]) -> None:
    """Raise ConfigError if an attribute is one that cannot be assigned.

    Args:
        owner: Whose attribute it is.
        name: Of the attribute.
        value: What is assigned; a plain tensor over a parameter is a new value of that one.
        fixed: Attributes that are assigned when the owner is made and not again, with what to do in place of that.
        absent: Attributes that the owner has not, likewise.
    """
    held = vars(owner).get(name)
    values = isinstance(held, Parameter) and isinstance(value, Tensor) and not isinstance(value, (Parameter, Buffer))
    if name in absent or (name in fixed and held is not None and held is not value and not values):
        what = f"{type(owner).__name__}.{name}"
        expected = f"{what} stays what it was made with" if name in fixed else f"{what} is no setting"
        given = describe(name, value) if isinstance(value, Tensor) else f"{value!r:.60}"
        raise ConfigError(expected, f"{given} in its place" if name in fixed else given, fixed.get(name) or absent[name])
