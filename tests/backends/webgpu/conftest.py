"""Skips the tests of the engine webgpu, by name, where it cannot be used; devices that are opened anew, and planted drivers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kernels_on_gpu import Rewrite

import firebrick as fb
from firebrick.backends.webgpu.commands import Gpu
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


@pytest.fixture
def planted(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rewrite], fb.Device]:
    """Gives the first device a driver that rewrites all shaders."""

    def opened(rewrite: Rewrite) -> fb.Device:
        compiled = Gpu._compiled

        def shim(self: Gpu, text: str, *more: Any) -> Any:
            return compiled(self, rewrite(text), *more)

        monkeypatch.setattr(Gpu, "_compiled", shim)
        return anew

    return opened
