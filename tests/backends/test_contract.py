"""Every hook of the contract does what its docstring says, on every engine and through ``Dispatch``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends import ARITHMETIC, STORAGE, Backend, dispatch, register_backend, unregister_backend
from firebrick.compiler.targets.llvm.target import Target
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


def test_a_device_with_a_compiler_reports_the_processor_that_its_code_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fb.device("cpu:1")
    assert dispatch.properties(device)["target"] == str(Target.host())
    assert "target" not in dispatch.properties(fb.device("numpy"))
    with fb.config.scope(cpu_compile=False):
        assert "target" not in dispatch.properties(device)

    def no_llvm(width_bits: int = 0) -> Target:
        raise ImportError("no LLVM")

    monkeypatch.setattr(Target, "host", no_llvm)
    assert dispatch.properties(device)["name"]  # what is known is reported, also where nothing can be compiled
    assert "target" not in dispatch.properties(device)


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
    with pytest.warns(fb.FallbackWarning, match=r"sin on float32\[2\] has no kernel on poor:0"):
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


def test_what_an_engine_leaves_out_has_the_meaning_that_the_contract_states(poor: str) -> None:
    device = fb.device(poor)
    engine: Any = device.backend
    x = np.ones((2, 3), np.float32)
    assert (engine.unavailable("poor"), engine.name(device)) == (None, "poor<poor>")
    assert engine.properties(device) == dispatch.properties(device) == {"name": "poor<poor>"}
    assert engine.dtype_usage(device, fb.float16) == {STORAGE, ARITHMETIC}
    assert engine.compute_dtype(device, fb.float16) is fb.float16
    assert (engine.default_float(device), engine.default_int(device)) == ("float32", "int64")
    assert engine.ad_enabled(device) is True
    assert engine.default_quant_scheme(device) is None
    engine.seed(device, 7)
    assert engine.seeds == {device: 7}
    dispatch.seed(device, 8)
    assert engine.seeds == {device: 8}
    assert (engine.sync(device), engine.flush(device)) == (None, None)
    (staged,) = engine.staging((x,), device)
    assert staged is x
    assert engine.host_memory(device) is False
    assert [a is b for a, b in zip(engine.read([x, staged]), (x, x), strict=True)] == [True, True]
    assert engine.shares_memory(x, x.copy()) is True
    assert (engine.same_elements(x, x), engine.same_elements(x, x.copy())) == (True, False)
    assert engine.nbytes(x) == 24
    assert engine.first_device() is device
    assert engine.around() is None
    error = ValueError()
    assert engine.translated(error) is error
    assert engine.fast_kernel(OPS["add"], (fb.float32,)) is None
    for call in (lambda: engine.to_dlpack(x), lambda: engine.dlpack_device(x)):
        with pytest.raises(
            fb.UnsupportedError, match=r"^poor tensors cannot be exported by DLPack\nRemedy: copy through x\.numpy"
        ):
            call()
    with pytest.raises(fb.UnsupportedError, match=r"^poor cannot import DLPack\nRemedy: copy with fb\.asarray"):
        engine.from_dlpack(x, device)


def test_a_dtype_needs_both_memory_and_arithmetic_to_be_supported() -> None:
    for usage, supported in (
        (set(), False),
        ({STORAGE}, False),
        ({ARITHMETIC}, False),
        ({STORAGE, ARITHMETIC, "accelerated"}, True),
    ):
        engine = Poor()
        engine.dtype_usage = lambda device, dtype, usage=usage: frozenset(usage)  # type: ignore[method-assign]
        assert engine.supports_dtype(fb.device("cpu"), fb.float32) is supported


def test_dispatch_is_an_engine_of_tensors(poor: str) -> None:
    device = fb.device(poor)
    assert poor in dispatch.platforms
    assert (dispatch.device_count("poor"), dispatch.device_count("numpy")) == (1, fb.config.logical_devices)
    x = dispatch.from_host(np.asarray([[1.0, 2.0]]), device)
    assert (x.device, dispatch.describe(x)) == (device, Aval((1, 2), fb.float64))
    assert dispatch.to_host(x).tolist() == dispatch.read([x])[0].tolist() == [[1.0, 2.0]]
    for host in (dispatch.to_host(x), dispatch.read([x])[0]):
        assert not host.flags.writeable
    assert dispatch.supports(OPS["sin"], (fb.float64,))
    (y,) = dispatch.execute(OPS["add"], (x, x), {})
    assert y.tolist() == [[2.0, 4.0]]
    parts = dispatch.execute(OPS["split"], (fb.asarray([1.0, 2.0]),), {"sizes": (1, 1), "axis": 0})
    assert [p.tolist() for p in parts] == [[1.0], [2.0]]


def test_a_fallback_is_announced_where_the_program_asks_for_it_and_listed_by_name(poor: str) -> None:
    from firebrick.backends.fallback import forget_fallbacks

    forget_fallbacks()
    x = fb.asarray([1.0, 2.0], device=poor)
    with pytest.warns(fb.FallbackWarning, match=r"^tan on float32\[2\] has no kernel on poor:0 and runs on the host") as seen:
        fb.tan(x)
    assert seen[0].filename == __file__
    with pytest.warns(fb.FallbackWarning, match=r"^atan on float32\[2\] has no kernel on poor:0") as seen:
        fb.jit(fb.atan)(x)
    assert seen[0].filename == __file__
    with fb.config.scope(fallback="silent"):
        fb.cos(x)
        fb.cos(x)
    assert fb.explain_fallbacks() == [("atan", "poor:0", 1), ("cos", "poor:0", 2), ("tan", "poor:0", 1)]
    with fb.config.scope(fallback="error"), pytest.raises(fb.UnsupportedError) as caught:
        fb.jit(fb.atan2)(x, x)
    assert caught.value.expected == "poor:0 has no kernel for atan2 on float32[2], float32[2]"
    assert "allow it to run on the host" in caught.value.remedy
    assert caught.value.context == {"op": "atan2"}
    forget_fallbacks()
    assert fb.explain_fallbacks() == []


def test_a_dtype_that_a_device_cannot_store_is_refused_with_the_cast_to_write(
    monkeypatch: pytest.MonkeyPatch, poor: str
) -> None:
    device = fb.device(poor)
    monkeypatch.setattr(device.backend, "dtype_usage", lambda device, dtype: frozenset({ARITHMETIC}))
    for name, goal in (
        ("float64", "float32"),
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("complex128", "complex64"),
        ("int8", "float32"),
    ):
        with pytest.raises(
            fb.DTypeError, match=rf"^poor:0 cannot store {name}\nRemedy: cast first: fb.astype\(x, fb.{goal}\)"
        ) as e:
            dispatch.from_host(np.zeros(2, name), device)
        assert e.value.context == {"dtype": name, "device": "poor:0"}
