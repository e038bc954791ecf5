"""What other libraries need to take tensors, and layers that are built from such libraries; see ``docs/ecosystem.md``."""

from importlib import import_module
from typing import Any

import firebrick.functions as _functions  # noqa: F401  before its parts

__all__ = ["einops", "web"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # imported when first used
        return import_module(f"firebrick.interop.{name}")
    raise AttributeError(f"module 'firebrick.interop' has no attribute {name!r}")
