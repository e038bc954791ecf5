"""Every hook of the contract does what its docstring says, on every engine and through ``Dispatch``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends import ARITHMETIC, STORAGE, Backend, dispatch, register_backend, unregister_backend
from firebrick.core.aval import Aval
from firebrick.core.dtypes import ALL
from firebrick.ir import Graph
from firebrick.ops import OPS

ENGINES = ["cpu", "numpy", "torch:cpu", "meta"]


@pytest.fixture(params=ENGINES)
def device(request: pytest.FixtureRequest) -> fb.Device:
    try:
        return fb.device(request.param)
    except fb.DeviceError as e:
        pytest.skip(f"{request.param}: {e}")


def test_dispatch_names_itself_and_what_it_routes_to(device: fb.Device) -> None:
    assert dispatch.name(device) == f"dispatch<{device.backend.name(device)}>"


def test_a_dtype_is_supported_where_it_has_storage_and_arithmetic(device: fb.Device) -> None:
    for dt in ALL:
        usage = dispatch.dtype_usage(device, dt)
        assert dispatch.supports_dtype(device, dt) == ({STORAGE, ARITHMETIC} <= usage)


def test_stored_only_dtypes_compute_in_the_stated_wider_dtype() -> None:
    cpu = fb.device("cpu")
    assert dispatch.compute_dtype(cpu, fb.bfloat16) is fb.float32
    x = fb.asarray([1.0, 2**-9], dtype=fb.bfloat16)
    assert fb.sum(x).dtype is fb.bfloat16


def test_sync_flush_cleanup_and_staging_work_everywhere(device: fb.Device) -> None:
    dispatch.sync(device)
    dispatch.flush(device)
    dispatch.memory_cleanup(device)
    (staged,) = dispatch.staging([np.arange(3.0)], device)
    assert staged.tolist() == [0.0, 1.0, 2.0]
    assert dispatch.ad_enabled(device)
    assert dispatch.default_quant_scheme(device) is None
    assert dispatch.properties(device)["name"]


def test_memory_stats_follow_live_tensors_and_remember_the_peak() -> None:
    cpu = fb.device("cpu:3")
    dispatch.memory_cleanup(cpu)
    before = dispatch.memory_stats(cpu)["live"]
    x = fb.zeros(1000, device=cpu)
    view = x[10:20]
    assert dispatch.memory_stats(cpu)["live"] - before == 4000
    del x
    assert dispatch.memory_stats(cpu)["live"] - before == 4000, "the view still holds its parent's memory"
    del view
    stats = dispatch.memory_stats(cpu)
    assert stats["live"] == before
    assert stats["peak"] >= before + 4000
    dispatch.memory_cleanup(cpu)
    assert dispatch.memory_stats(cpu)["peak"] == before


def test_persistent_allocations_end_with_the_block_also_by_an_exception(device: fb.Device) -> None:
    with dispatch.memory_persistent_allocations(device):
        x = fb.zeros(3, device=device)
    assert x.shape == (3,)
    with pytest.raises(KeyError), dispatch.memory_persistent_allocations(device):
        raise KeyError


def test_many_tensors_of_several_engines_are_read_in_order() -> None:
    names = ["cpu", "numpy", "cpu:1"]
    tensors = [fb.asarray([float(i)], device=d) for i, d in enumerate(names)]
    assert [a.item() for a in fb.read(tensors)] == [0.0, 1.0, 2.0]


def test_every_engine_compiles_a_graph() -> None:
    graph = Graph([Aval((3,), fb.float32)])
    (y,) = graph.add(OPS["exp"], 0)
    (z,) = graph.add(OPS["add"], y, 0)
    graph.outputs = (z,)
    for name in ("cpu", "numpy", "torch:cpu"):
        try:
            x = fb.asarray([0.0, 1.0, 2.0], device=name)
        except fb.DeviceError:
            continue
        backend = x.device.backend
        (result,) = backend.compile(graph)([x.storage.data])
        assert np.allclose(backend.to_host(result), np.exp(np.arange(3.0)) + np.arange(3.0))
    meta = fb.device("meta").backend
    assert meta.compile(graph)([Aval((3,), fb.float32)]) == (Aval((3,), fb.float32),)


def test_reading_a_tensor_without_values_says_so() -> None:
    x = fb.ones((2, 3), device="meta") @ fb.ones((3, 4), device="meta")
    assert x.shape == (2, 4)
    with pytest.raises(fb.UnsupportedError, match="no values"):
        x.numpy()
    assert "unreadable" in repr(x)


class Poor(Backend):
    """An engine that can only add."""

    engine = "poor"
    platforms = ("poor",)

    def device_count(self, platform: str) -> int:
        return 1

    def from_host(self, array: Any, device: Any) -> Any:
        return np.array(array)

    def to_host(self, native: Any) -> Any:
        return native

    def describe(self, native: Any) -> Aval:
        return Aval(native.shape, fb.dtype(native.dtype))

    def supports(self, op: Any, dtypes: Any) -> bool:
        return op.name in ("add", "sum", "exp", "subtract", "max", "divide")

    def execute(self, op: Any, inputs: Any, params: Any, out: Any = None) -> Any:
        return np.asarray(op.reference(*inputs, **params))


@pytest.fixture
def poor() -> Any:
    register_backend(Poor())
    yield "poor"
    unregister_backend("poor")


def test_a_missing_op_is_decomposed_before_the_host_is_asked(poor: str) -> None:
    x = fb.asarray([[1.0, 2.0]], device=poor)
    with fb.config.scope(fallback="error"):
        assert np.allclose(fb.softmax(x).numpy(), [[0.26894143, 0.7310586]])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_decomposition_along_an_axis_without_elements_has_no_elements(poor: str, name: str) -> None:
    with fb.config.scope(fallback="error"):
        y = getattr(fb, name)(fb.zeros((3, 0), device=poor), axis=1)
    assert (y.shape, y.dtype, y.device.engine) == ((3, 0), fb.float32, poor)


def test_a_host_fallback_warns_once_and_is_listed_and_can_be_forbidden(poor: str) -> None:
    from firebrick.backends.fallback import forget_fallbacks

    forget_fallbacks()
    x = fb.asarray([1.0, 2.0], device=poor)
    with pytest.warns(fb.FallbackWarning, match="sin on float32 has no kernel on poor:0"):
        y = fb.sin(x)
    assert y.device is x.device
    fb.sin(x)  # no second warning: warnings are errors in these tests
    assert ("sin", "poor:0", 2) in fb.explain_fallbacks()
    with fb.config.scope(fallback="error"), pytest.raises(fb.UnsupportedError, match="no kernel for sin"):
        fb.sin(x)


def test_an_engine_that_returns_another_dtype_is_caught_at_once(poor: str) -> None:
    class Narrow(Poor):
        def execute(self, op: Any, inputs: Any, params: Any, out: Any = None) -> Any:
            return super().execute(op, inputs, params).astype(np.float32)

    register_backend(Narrow())
    unregister_backend("poor")
    register_backend(Narrow())
    x = fb.asarray([1.0], dtype=fb.float64, device="poor")
    with pytest.raises(fb.ExecutionError, match=r"add on poor:0 must return float64\[1\]"):
        _ = x + x


def test_running_out_of_memory_lists_the_largest_tensors(poor: str) -> None:
    class Full(Poor):
        def execute(self, op: Any, inputs: Any, params: Any, out: Any = None) -> Any:
            raise MemoryError

    unregister_backend("poor")
    register_backend(Full())
    x = fb.zeros(1000, device="poor")
    x.label = "the big one"
    with pytest.raises(fb.OutOfMemoryError, match="the big one"):
        _ = x + x


def test_what_an_engine_lacks_is_decomposed_in_a_graph_as_well(poor: None) -> None:
    x = fb.asarray(np.asarray([[1.0, 2.0], [3.0, 5.0]]), device="poor")
    compiled = fb.jit(fb.softmax)
    assert np.allclose(compiled(x).numpy(), fb.softmax(x).numpy())
    assert {n.op.name for n in compiled.graph(x).nodes} <= {"add", "sum", "exp", "subtract", "max", "divide", "constant"}


@pytest.mark.parametrize(
    ("hook", "arguments"),
    [("device_count", 1), ("from_host", 2), ("to_host", 1), ("describe", 1), ("supports", 2), ("execute", 3)],
)
def test_a_hook_that_an_engine_forgot_is_named_with_what_to_write(hook: str, arguments: int) -> None:
    class Empty(Backend):
        engine = "empty"

    with pytest.raises(fb.UnsupportedError, match=rf"Empty without {hook}[\s\S]*write Empty\.{hook}"):
        getattr(Empty(), hook)(*[None] * arguments)
