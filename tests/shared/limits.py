"""Limits of settings: the last value that is taken, and the first that is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import firebrick as fb

Limit = tuple[Callable[[Any], Any], Iterable[Any], Iterable[Any]]
"""What is called with a value of the setting, values that it takes, and values that it refuses."""


def check_limit(limit: Limit, error: type[fb.FirebrickError] = fb.FirebrickError) -> None:
    """Assert that every allowed value is taken, and that every other one raises the error."""
    call, allowed, refused = limit
    for value in allowed:
        call(value)
    for value in refused:
        with pytest.raises(error):
            call(value)
