"""Packages of the ``test`` extra that some tests need: these are skipped without them, but in CI they fail."""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any

import pytest


def need(package: str) -> None:
    """Skip, or in CI fail, where a package is not installed."""
    if find_spec(package) is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have {package}: pip install -e '.[test]'", pytrace=False)
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def imported(package: str) -> Any:
    """The package."""
    need(package)
    return importlib.import_module(package)
