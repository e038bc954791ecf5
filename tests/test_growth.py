"""Memory does not grow: cases of ``shared/growth.py``, each in a process of its own, and a planted leak that they find."""

from __future__ import annotations

import growth
import pytest

HONEST = [name for name in growth.CASES if name != "planted"]


@pytest.mark.soak
@pytest.mark.parametrize("name", HONEST)
def test_what_is_done_over_and_over_does_not_grow(name: str, device: str) -> None:
    found = growth.apart(name, device)
    assert found.memory < growth.LIMIT
    assert (found.modules, found.files, found.threads) == (0, 0, 0)


@pytest.mark.soak
def test_a_leak_of_memory_is_found(device: str) -> None:
    assert growth.apart("planted", device).memory > growth.LIMIT


def test_code_that_something_keeps_is_found() -> None:
    found = growth.apart("planted", "cpu", turns=30)
    assert found.modules == 30
    assert found.memory > 30 * 64 / 1024
