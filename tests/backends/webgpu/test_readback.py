"""Values that the host reads: with one poll of the device, interruptible, and right after an interrupt or an error."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernels_on_gpu import gpu

import firebrick as fb
from firebrick.backends.webgpu import readback
from firebrick.backends.webgpu.readback import Readback


class Library:
    """wgpu's C functions, whose calls are counted; some of them are replaced."""

    def __init__(self, **replaced: Any) -> None:
        self.calls, self._replaced = Counter[str](), replaced

    def __getattr__(self, name: str) -> Any:
        found = self._replaced.get(name, getattr(gpu()._native.lib, name))

        def counted(*args: Any) -> Any:
            self.calls[name] += 1
            return found(*args)

        return counted if callable(found) else found


def replaced(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> Library:
    """Let the first device read by a library of its own."""
    g, library = gpu(), Library(**functions)
    native = SimpleNamespace(lib=library, ffi=g._native.ffi)
    monkeypatch.setattr(g, "_readback", Readback(g._wgpu, native, g._device))
    return library


def array() -> fb.Tensor:
    return fb.asarray(np.arange(12, dtype=np.float32), device="webgpu:0")


def test_a_value_is_read_with_one_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    library, x = replaced(monkeypatch), array()
    for k in range(20):
        assert (x + float(k)).numpy()[3] == 3.0 + k
    assert library.calls["wgpuBufferMapAsync"] == library.calls["wgpuBufferUnmap"] == 20
    assert 1 <= library.calls["wgpuDevicePoll"] <= 40  # wgpu's thread polls some hundred times for each value


def test_values_of_any_size_are_read_into_memory_of_their_own() -> None:
    sizes = (1, 3, 1 << 14, (1 << 20) + 1, 5, (1 << 20) + 3, 2)
    found = [np.asarray((fb.full(n, 1.5, device="webgpu:0") * float(n)).numpy()) for n in sizes]
    for n, x in zip(sizes, found, strict=True):
        assert x.shape == (n,)
        assert (x == 1.5 * n).all()


def test_a_large_buffer_is_not_kept() -> None:
    fb.full(1 << 21, 2.0, device="webgpu:0").numpy()
    array().numpy()
    assert gpu()._readback._buffer.size < 1 << 21


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of threads are those of POSIX systems")
def test_ctrl_c_ends_the_wait_for_a_device_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    done, main, pollers = threading.Event(), threading.get_ident(), list[int]()
    poll = gpu()._native.lib.wgpuDevicePoll

    def late(*args: Any) -> None:
        pollers.append(threading.get_ident())
        signal.pthread_kill(main, signal.SIGINT)
        done.wait()
        poll(*args)

    x = array()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            replaced(patched, wgpuDevicePoll=late)
            with pytest.raises(KeyboardInterrupt):
                (x + 1.0).numpy()
        assert not done.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert pollers
    assert main not in pollers  # where C code waits, Python takes no signal
    assert (x * 2.0).numpy().tolist() == list(range(0, 24, 2))
    done.set()
    assert (x + 1.0).numpy().tolist() == list(range(1, 13))


def test_what_cannot_be_mapped_is_an_error_and_the_next_value_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    ffi, lib, known = gpu()._native.ffi, gpu()._native.lib, set(readback._mappings)

    def fails(buffer: Any, mode: int, begin: int, size: int, info: Any) -> None:
        text = ffi.new("char[]", b"no memory is left")
        message = ffi.new("WGPUStringView *")
        message.data, message.length = text, len(b"no memory is left")
        info.callback(lib.WGPUMapAsyncStatus_Success + 1, message[0], info.userdata1, info.userdata2)

    x = array()
    with monkeypatch.context() as patched:
        library = replaced(patched, wgpuBufferMapAsync=fails)
        with pytest.raises(fb.ExecutionError, match="no memory is left"):
            x.numpy()
        assert library.calls["wgpuBufferGetConstMappedRange"] == 0
    assert set(readback._mappings) <= known
    assert x.numpy().tolist() == list(range(12))


def test_threads_read_values_of_one_device_at_the_same_time() -> None:
    wrong: list[tuple[int, int]] = []

    def read(k: int) -> None:
        x = fb.full(64, float(k), device="webgpu:0")
        for n in range(30):
            if not ((x + float(n)).numpy() == k + n).all():
                wrong.append((k, n))

    threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
