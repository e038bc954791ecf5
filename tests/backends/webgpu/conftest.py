"""Skips the tests of the engine webgpu, by name, where it cannot be used."""

from collections import OrderedDict
from collections.abc import Iterator

import pytest

import firebrick as fb
from firebrick.core.constants import forget_constants
from firebrick.testing import engines


@pytest.fixture(autouse=True)
def _on_a_gpu() -> None:
    reason = engines().missing.get("webgpu")
    if reason:
        pytest.skip(f"engine webgpu cannot be used here: {reason}")


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[fb.Device]:
    """The first device without what was compiled, opened or measured before."""
    device = fb.device("webgpu:0")
    monkeypatch.setattr(fb.config, "cache_dir", "off")
    monkeypatch.setattr(device.backend, "_opened", {})
    monkeypatch.setattr(device.backend, "_eager", OrderedDict())
    forget_constants()
    yield device
    forget_constants()
