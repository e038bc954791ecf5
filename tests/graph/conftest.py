"""``nothing_left``: a test with it leaves no trace running and none of its values behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from firebrick.backends.dispatch import execute, from_host
from firebrick.core.hooks import hooks
from firebrick.graph.trace import current
from firebrick.graph.traced import Traced


def _left() -> list[Traced]:
    return [t for t in gc.get_objects() if type(t) is Traced]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    assert hooks.tracing == 0
    assert current.get() is None
    assert hooks.execute is execute
    assert hooks.from_host is from_host
    for generation in range(3):  # what a test made is young: to look through all that the file keeps takes far longer
        if _left():
            gc.collect(generation)
    left = _left()
    assert not left, f"{len(left)} values of a trace are left, made at {sorted({t.line for t in left})[:5]}"
