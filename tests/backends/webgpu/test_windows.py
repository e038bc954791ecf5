"""Arrays of more bytes than a binding may have are in several bindings, on the device, and every element is the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from kernels_on_gpu import check, gpu
from narrow_kernels import draw_narrow
from written_kernels import Launch, whole

import firebrick as fb
from firebrick.backends.webgpu import commands, engine
from firebrick.backends.webgpu.adapters import Adapter, adapters
from firebrick.backends.webgpu.launches import PreparedLaunch
from firebrick.compiler.kernel import ArrayParameter, Atomic, CompareExchange, Function, Store
from firebrick.compiler.targets.wgsl import bindings
from firebrick.scalar.expr import cast, local
from firebrick.testing import cases
from firebrick.testing.conformance import run_case

SOME = (
    "add", "where", "exp", "softmax", "layer_norm", "sum", "argmax", "matmul", "conv", "max_pool", "attention", "take",
    "index_add", "scatter_add", "concat", "sort", "top_k", "cumulative_max", "permute", "pad", "random_bits", "cast",
    "logical_not",
)  # fmt: skip
"""Ops of every family that has kernels."""
MIB = 1 << 20


def window() -> int:
    """The least bytes of a window on this adapter."""
    return int(gpu().measured.capabilities.offset_alignment)


class NarrowAdapter:
    """wgpu's adapter, of which the engine is told that bindings have few bytes."""

    def __init__(self, handle: Any, nbytes: int) -> None:
        self.handle, self.features, self.info = handle, handle.features, handle.info
        self.limits = {**dict(handle.limits), "max-storage-buffer-binding-size": nbytes}

    def request_device_sync(self, label: str, required_limits: dict[str, int], required_features: list[str]) -> Any:
        limits = {k: self.handle.limits[k] for k in required_limits}
        return self.handle.request_device_sync(label=label, required_limits=limits, required_features=required_features)


@pytest.fixture
def narrow(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], fb.Device]:
    """Makes the first device have bindings of so many bytes."""

    def made(nbytes: int) -> fb.Device:
        a = adapters()[0]
        adapter = Adapter(NarrowAdapter(a.handle, nbytes), a.api, a.name, a.driver, a.kind)
        monkeypatch.setattr(bindings, "OFFSETS", a.limits["min-storage-buffer-offset-alignment"])
        monkeypatch.setattr(engine, "adapters", lambda: (adapter,))
        anew.backend._opened.clear()  # as ``window`` opens it
        return anew

    return made


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_random_kernels_on_windows_have_the_bits_of_the_interpreter(group: bool) -> None:
    texts = [check(draw_narrow(seed, group), window()) for seed in range(4)]
    assert any("_window1" in text for text in texts)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 50))
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_more_random_kernels_on_windows_have_the_bits_of_the_interpreter(group: bool, block: int) -> None:
    for seed in range(block * 4, (block + 1) * 4):
        check(draw_narrow(seed, group), window() * (1 + seed % 3))


ATOMIC = [("int32", op) for op in ("add", "min", "max", "and", "or", "xor", "exchange")]
ATOMIC += [("float32", op) for op in ("add", "min", "max", "exchange")]


@pytest.mark.parametrize(("dtype", "op"), ATOMIC)
def test_atomic_operations_on_windows(dtype: str, op: str) -> None:
    """Each item changes an element of its own, and stores what was there before."""
    x, y, i = ArrayParameter("x", dtype, "read_write"), ArrayParameter("y", dtype, "write"), local("i", "int64")
    at = whole(70) - i
    body = (Atomic(op, "x", at, cast(i * whole(37) - whole(900), dtype), "before"), Store("y", i, local("before", dtype)))
    rng = np.random.default_rng(0)
    memory = {"x": rng.integers(-2000, 2000, 71).astype(dtype), "y": np.zeros(71, dtype)}
    text = check(Launch(Function("changed", (x, y), (), "i", body), memory, {}, 71, {}), window())
    assert text.count("_window") > 2


def test_compare_and_exchange_on_windows() -> None:
    x, y, i = ArrayParameter("x", "int32", "read_write"), ArrayParameter("y", "int32", "write"), local("i", "int64")
    exchange = CompareExchange("before", "x", i, cast(i & whole(1), "int32"), cast(i, "int32"))
    memory = {"x": (np.arange(71) % 2).astype(np.int32), "y": np.zeros(71, np.int32)}
    body = (exchange, Store("y", i, local("before", "int32")))
    check(Launch(Function("exchanged", (x, y), (), "i", body), memory, {}, 71, {}), window())


@pytest.mark.slow
def test_ops_on_windows_agree_with_the_reference(narrow: Callable[[int], fb.Device], seed: int) -> None:
    """Each run takes another case of each op, with windows of 16 to 48 elements."""
    device = narrow(window() * (2 + seed % 5))
    made, split = PreparedLaunch.__init__, 0

    def counted(self: PreparedLaunch, pipeline: Any, reads: Any, bound: Any, *more: Any) -> None:
        nonlocal split
        split += any(offset for _, offset, _ in bound)
        made(self, pipeline, reads, bound, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedLaunch, "__init__", counted)
        for name in SOME:
            found = list(cases("webgpu", [name], subset="thin", seed=seed, modes=["eager", "jit"]))
            for k in range(2):
                case = found[crc32(f"{name}{seed}{k}".encode()) % len(found)]
                verdict = run_case(case)
                assert verdict.ok, f"{case.name}: {verdict.message}"
        x = np.random.default_rng(seed).normal(size=(19, 7)).astype(np.float32)
        with fb.config.scope(fallback="error"):
            on = fb.asarray(x, device=device)
            np.testing.assert_array_equal((on * 2.0).T.numpy(), (x * 2).T)
            np.testing.assert_array_equal(fb.jit(lambda v: fb.max(v + 1.0, axis=0))(on).numpy(), (x + 1).max(0))
    # fewer operands are larger than a window where offsets are multiples of 256 bytes, as on SwiftShader
    assert split > (20 if window() <= 32 else 8)


def test_too_many_windows_run_on_the_host_by_name(narrow: Callable[[int], fb.Device]) -> None:
    device = narrow(window())
    x = fb.asarray(np.arange(1000, dtype=np.float32), device=device)
    with fb.config.scope(fallback="warn"), pytest.warns(fb.FallbackWarning, match="exp"):
        np.testing.assert_allclose(fb.exp(x / -20.0).numpy(), np.exp(np.arange(1000) / -20), rtol=1e-5)
    with fb.config.scope(fallback="error"), pytest.raises(fb.UnsupportedError):
        fb.tanh(x)


@pytest.mark.slow
def test_arrays_beyond_a_binding_are_computed_on_the_device() -> None:
    limit = gpu().measured.capabilities.binding_bytes
    largest = gpu().measured.capabilities.buffer_bytes
    count = 34 * MIB + 3
    if limit is None or largest is None or not limit < 4 * count <= largest:
        pytest.skip(f"bindings of this adapter have {limit:,} bytes, and buffers {largest:,}")
    device = fb.device("webgpu:0")
    values = np.random.default_rng(0).integers(-1000, 1000, count).astype(np.float32)
    with fb.config.scope(fallback="error"):
        x = fb.asarray(values, device=device)
        np.testing.assert_array_equal((x * 2.0 + 1.0).numpy(), values * 2 + 1)
        assert abs(fb.sum(fb.abs(x)).item() / np.abs(values).sum(dtype=np.float64) - 1.0) < 1e-6
        places = np.array([0, 1, 32 * MIB - 1, 32 * MIB, 32 * MIB + 1, count - 1])
        np.testing.assert_array_equal(x[fb.asarray(places, device=device)].numpy(), values[places])
        rows = x[: 34 * MIB].reshape(34, MIB)
        np.testing.assert_array_equal(rows.T[:1000].numpy(), rows.numpy().T[:1000])
    device.backend.memory_cleanup(device)


class OneWindow(PreparedLaunch):
    """A driver that binds the first window in place of each."""

    __slots__ = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for k in range(len(self.arrays)):
            self.entries[k].offset = 0


def test_a_driver_that_ignores_the_offsets_of_bindings_is_noticed(
    narrow: Callable[[int], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "PreparedLaunch", OneWindow)
    device = narrow(2 * MIB)
    assert fb.sum(fb.ones(MIB // 4, device=device)).item() == MIB // 4
    with pytest.raises(fb.ExecutionError, match="in which it does not keep what is written at byte 0"):
        fb.asarray(np.ones(2 * MIB, np.float32), device=device)
