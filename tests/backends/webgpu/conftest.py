"""Skips the tests of the engine webgpu, by name, where it cannot be used."""

import pytest

from firebrick.testing import engines


@pytest.fixture(autouse=True)
def _on_a_gpu() -> None:
    reason = engines().missing.get("webgpu")
    if reason:
        pytest.skip(f"engine webgpu cannot be used here: {reason}")
