"""``nothing_left``: a test with it leaves no trace running and no handle of one behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from firebrick.backends.dispatch import execute, from_host
from firebrick.core.hooks import hooks
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.graph.trace import Traced, current


def traced_handles() -> list[Tensor]:
    """Handles in this process that show a value of a trace in which a call's own handles are bound."""
    live = [t for t in gc.get_objects() if issubclass(type(t), Tensor)]
    return [t for t in live if isinstance(getattr(t, "storage", None), Storage) and type(t.storage.data) is Traced]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    assert hooks.tracing == 0
    assert current.get() is None
    assert hooks.execute is execute
    assert hooks.from_host is from_host
    if traced_handles():
        gc.collect()
    left = traced_handles()
    assert not left, f"{len(left)} handles of a trace are left: {[(t.aval, t.storage.data.line) for t in left[:5]]}"
