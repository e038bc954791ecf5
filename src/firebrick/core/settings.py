"""Checks of the numbers among a function's arguments: an error names the function, the argument and what it may be."""

from __future__ import annotations

from numbers import Real
from operator import index
from typing import Any

from firebrick.core.dtypes import python_scalar
from firebrick.core.errors import ConfigError
from firebrick.core.weak import Weak


def number(where: str, name: str, value: Any) -> float:
    """A real number, as it is.

    Raises:
        ConfigError: It is no number, or a bool.
    """
    value = python_scalar(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    if isinstance(value, Weak):
        raise value.unknown(f"{where}: {name}")
    raise ConfigError(f"{where}: {name} is a number", _shown(name, value), "pass a Python float or int", op=where)


def whole(where: str, name: str, value: Any, least: int | None = None) -> int:
    """An int, at least ``least``.

    Raises:
        ConfigError: It is no int, or too small.
    """
    try:
        found = index(value)
    except TypeError:
        found = None
    if found is None or (least is not None and found < least):
        bound = "" if least is None else f" ≥ {least}"
        raise ConfigError(f"{where}: {name} is an int{bound}", _shown(name, value), "pass a Python int", op=where)
    return found


def _shown(name: str, value: Any) -> str:
    return f"{name}={value!r:.80}"
