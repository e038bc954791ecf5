"""Ctrl-C anywhere in the recording, submission and timing of launches: the engine goes on, and has the values from before."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

import firebrick as fb
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.replay import LaunchTable
from firebrick.core import timeline

ENGINE = tuple(f"backends/webgpu/{name}.py" for name in ("commands", "replay", "buffers", "readback"))


@pytest.fixture
def gpu() -> Gpu:
    device = fb.device("webgpu:0")
    found: Gpu = device.backend.groups(device).gpu
    return found


def array() -> fb.Tensor:
    return fb.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device="webgpu:0")


def at_each_place(call: Callable[[], Any], files: tuple[str, ...], after: Callable[[int], None]) -> int:
    call()
    places = interrupted(call, None, *files)
    for at in range(1, places + 1):
        interrupted(call, at, *files)
        after(at)
    return places


def test_the_engine_goes_on_after_an_interrupt_at_any_line_of_it(gpu: Gpu) -> None:
    x = array()
    f = fb.jit(lambda x: fb.sum(fb.tanh(x) @ fb.exp(x.T), axis=0))
    want = f(x).numpy(), fb.sin(x).numpy()

    def after(at: int) -> None:
        assert f(x).numpy().tobytes() == want[0].tobytes(), at
        assert fb.sin(x).numpy().tobytes() == want[1].tobytes(), at

    assert at_each_place(lambda: (f(x).numpy(), fb.sin(x).numpy()), ENGINE, after) > 100


def test_a_profile_that_an_interrupt_ends_leaves_nothing_switched_on(gpu: Gpu) -> None:
    x = array()
    backend = x.device.backend

    def profiled() -> None:
        with fb.profile("webgpu"):
            fb.tanh(x)

    def after(at: int) -> None:
        assert x.device.backend is backend, at
        assert not timeline.active, at
        assert not gpu._stamping, at

    files = ("backends/decorators.py", "backends/webgpu/stamps.py", "backends/webgpu/commands.py")
    assert at_each_place(profiled, files, after) > 100


@pytest.mark.parametrize("where", ["the launches are recorded", "the pass is ended", "the commands are submitted"])
def test_ctrl_c_while_commands_are_submitted_loses_no_value(where: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may wait there, so that Ctrl-C comes there more often than elsewhere."""
    x = array()
    fb.device("webgpu:0").backend.sync(x.device)
    of, name = {
        "the launches are recorded": (LaunchTable, "record"),
        "the pass is ended": (type(gpu._device.create_command_encoder().begin_compute_pass()), "end"),
        "the commands are submitted": (type(gpu._device.queue), "submit"),
    }[where]
    real = getattr(of, name)

    def signalled(self: Any, *args: Any) -> Any:
        found = real(self, *args)
        signal.raise_signal(signal.SIGINT)
        return found

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        y = fb.tanh(x) + 1.0
        with monkeypatch.context() as patched:
            patched.setattr(of, name, signalled)
            with pytest.raises(KeyboardInterrupt):
                x.device.backend.flush(x.device)
    finally:
        signal.signal(signal.SIGINT, before)
    np.testing.assert_allclose(y.numpy(), np.tanh(x.numpy()) + 1.0, rtol=1e-6)
