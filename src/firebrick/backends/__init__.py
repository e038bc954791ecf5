"""Engines, their contract, their registry and the global dispatch."""

import firebrick.compiler as _compiler  # noqa: F401  before its parts
from firebrick.backends.contract import ACCELERATED, ARITHMETIC, STORAGE, Backend
from firebrick.backends.dispatch import Dispatch, dispatch, read
from firebrick.backends.fallback import explain_fallbacks
from firebrick.backends.registry import (
    default_device,
    devices,
    find_device,
    register_backend,
    set_default_device,
    unavailable,
    unregister_backend,
    use_device,
)

__all__ = [
    "ACCELERATED", "ARITHMETIC", "STORAGE", "Backend", "Dispatch", "default_device", "devices", "dispatch",
    "explain_fallbacks", "find_device", "read", "register_backend", "set_default_device", "unavailable",
    "unregister_backend", "use_device",
]  # fmt: skip
