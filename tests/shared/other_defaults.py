"""Two engines that show where a call forgets the device or the dtype that it was given.

``refusing`` makes a device the default one that makes no array. The arrays of ``other:0`` are those of ``numpy``, but creation
functions use float64 there for floats, so a constant made without a dtype is float64, and so is what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import firebrick as fb
from firebrick.backends import register_backend, unregister_backend
from firebrick.backends.contract import Backend
from firebrick.backends.numpy import NumpyBackend


class Refusing(Backend):
    """An engine that makes no array."""

    engine = "refusing"
    platforms = ("refusing",)

    def device_count(self, platform: str) -> int:
        return 1

    def supports(self, *_: Any) -> bool:
        return True

    def from_host(self, *_: Any) -> NoReturn:
        raise AssertionError("an array of the host was copied to the default device")

    def execute(self, op: Any, *_: Any) -> NoReturn:
        raise AssertionError(f"{op.name} was run on the default device")

    kernel = execute


class Other(NumpyBackend):
    """NumPy with another default dtype."""

    engine = "other"
    platforms = ("other",)

    def default_float(self, device: Any) -> str:
        return "float64"


@contextmanager
def refusing() -> Iterator[None]:
    """Within, each of the two engines is there, and the default device is the one that refuses."""
    register_backend(Refusing())
    register_backend(Other())
    try:
        with fb.config.scope(device="refusing"):
            yield
    finally:
        unregister_backend("refusing")
        unregister_backend("other")
