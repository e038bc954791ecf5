"""Gradients in float64 are computed once for all engines whose turn it is in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firebrick.testing.gradients import references_kept


@pytest.fixture(scope="package", autouse=True)
def references() -> Iterator[None]:
    with references_kept():
        yield
