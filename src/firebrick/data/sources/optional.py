"""Packages that only some sources need: imported when they are used, and named when they are absent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from firebrick.core.errors import UnsupportedError


def need(module: str, package: str, what: str) -> Any:
    """Import ``module`` of an optional package.

    Raises:
        UnsupportedError: It is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as e:
        raise UnsupportedError(f"{what} needs {package}", str(e), "pip install 'firebrick[data]'") from e
