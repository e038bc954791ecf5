"""Compiled kernels for graphs of any size: without it, what is small runs on the engine's own operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from firebrick.compiler.fusion import groups as fuse


@contextmanager
def kernels_of_any_size() -> Iterator[None]:
    """Within, ``cpu`` compiles every node that it has a kernel for."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ONE", "TWO", "THREE", "REDUCED"):
            patch.setattr(fuse, name, 0)
        yield
