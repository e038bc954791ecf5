"""Checks of the settings of analog hardware."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from firebrick.core.dtypes import dtype
from firebrick.core.errors import ConfigError, DTypeError, OperandError
from firebrick.core.settings import python_numbers


def keep_python_numbers(settings: Any) -> None:
    """Keep Python numbers for NumPy scalars among the fields of a dataclass, before they are checked.

    Args:
        settings: Instance of the dataclass, which may be frozen.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        found = python_numbers(value)
        if found is not value:
            object.__setattr__(settings, field.name, found)


def check_numbers(name: str, settings: Any, *fields: str, least: float = -math.inf, above: float | None = None) -> None:
    """Check that settings are finite numbers.

    Args:
        name: Of the class, for messages.
        settings: Object whose attributes are checked.
        *fields: Names of the attributes.
        least: Smallest value that is allowed.
        above: Value that they are larger than.

    Raises:
        ConfigError: One is not.
    """
    for field in fields:
        value = getattr(settings, field)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < least or (above is not None and value <= above):
            limit = f" above {above:g}" if above is not None else f" of at least {least:g}" if least > -math.inf else ""
            raise ConfigError(f"{name}: {field} is a finite number{limit}", f"{field}={value!r:.60}", "correct it")


def check_flags(name: str, settings: Any, *fields: str) -> None:
    """Check that settings are bools.

    Args:
        name: Of the class, for messages.
        settings: Object whose attributes are checked.
        *fields: Names of the attributes.

    Raises:
        ConfigError: One is not.
    """
    for field in fields:
        value = getattr(settings, field)
        if not isinstance(value, bool):
            raise ConfigError(f"{name}: {field} is True or False", f"{field}={value!r:.60}", "correct it")


def array_of(name: str, given: Any) -> np.ndarray[Any, Any]:
    """Real numbers as a NumPy array.

    Args:
        name: Of the operand, for messages.
        given: Array, or nested lists of numbers.

    Raises:
        OperandError: It is no array of numbers.
        DTypeError: It is complex, or of a dtype that Firebrick has not.
    """
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError):
        array = np.asarray(None)
    masked = isinstance(given, np.ma.MaskedArray)
    if masked or array.dtype.kind in "OSU":
        shown = "a masked array" if masked else f"{type(given).__name__} {given!r:.60}"
        raise OperandError(f"{name} are numbers in rows of one length", shown, "pass an array, or a tensor")
    if array.dtype.kind == "c":
        raise DTypeError(f"{name} are real", f"{array.dtype}{list(array.shape)}", "take the real part first")
    dtype(array.dtype)
    return array
