"""Every kernel of the ``torch`` engine against the op table, on torch:cpu."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from firebrick.backends.registry import find_device
from firebrick.backends.torch import TorchBackend, missing_capability
from firebrick.backends.torch import engine as torch_engine
from firebrick.backends.torch.engine import _no_cuda
from firebrick.core.aval import Aval
from firebrick.core.dtypes import ALL, dtype, float32, uint8, uint16, uint32, uint64
from firebrick.core.errors import OutOfRangeError, UnsupportedError
from firebrick.core.op import Op, Sample
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
LAYOUTS = ("row-major", "column-major", "every second element", "broadcast")
RUN = [op for op in OPS.values() if op.name != "to_device"]


@pytest.fixture(scope="module")
def device() -> Any:
    return find_device("torch:cpu")


def lay_out(native: Any, layout: str) -> Any:
    """The same values in memory laid out otherwise."""
    import torch

    if layout == "column-major":
        back = tuple(range(native.ndim))[::-1]
        return native.permute(back).contiguous().permute(back)
    if layout == "every second element":
        wide = torch.zeros([2 * d for d in native.shape], dtype=native.dtype)
        view = wide[tuple(slice(1, None, 2) for _ in native.shape)]
        view.copy_(native)
        return view
    if layout == "broadcast" and native.ndim and native.shape[0]:
        return native[:1].expand(native.shape)
    return native


def memory(native: Any) -> tuple[int, int]:
    return native.untyped_storage().data_ptr(), native.untyped_storage().nbytes()


def agree(op: Op, sample: Sample, device: Any, layout: str = "row-major") -> float:
    """Run one sample and check every duty of ``execute``; the deviation in units of precision."""
    engine = device.backend
    arrays = tuple(np.asarray(a) for a in sample.inputs)
    if layout == "broadcast":  # one row seen many times
        arrays = tuple(np.array(np.broadcast_to(a[:1], a.shape)) if a.ndim else a for a in arrays)
    natives = tuple(lay_out(engine.from_host(a, device), layout) for a in arrays)
    dtypes = tuple(dtype(a.dtype) for a in arrays)
    assert engine.supports(op, dtypes), f"{op.name} on {dtypes}"
    inferred = op.infer(*(Aval(a.shape, d) for a, d in zip(arrays, dtypes, strict=True)), **sample.params)
    result = engine.execute(op, natives, sample.params)
    results = result if isinstance(result, tuple) else (result,)
    where = f"{op.name} {sample.name} {dtypes[0]} {layout}"

    avals = [inferred] if type(inferred) is Aval else list(inferred)
    assert [engine.describe(r) for r in results] == avals, where
    for native, array in zip(natives, arrays, strict=True):
        assert engine.to_host(native).tobytes() == array.tobytes(), f"{where} wrote an operand"
        if not op.view:
            taken = [memory(r)[0] for r in results if memory(r)[1]]
            assert memory(native)[0] not in taken, f"{where} returned an operand's memory"
    assert not any(r.requires_grad or r.is_inference() for r in results)

    worst = check_results(
        op, arrays, sample.params, tuple(engine.to_host(r) for r in results), run_reference(op, arrays, sample.params)
    )
    assert worst.ok, f"{where}: {worst}"
    return worst.units


@needs_torch
@pytest.mark.parametrize("op", RUN, ids=lambda op: op.name)
def test_every_op_agrees_with_its_reference_on_every_dtype_and_sample(op: Op, device: Any) -> None:
    for name in op.dtypes:
        for sample in op.samples(np.random.default_rng(0), name):
            agree(op, sample, device)


@pytest.mark.turns
@needs_torch
@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("op", RUN, ids=lambda op: op.name)
def test_every_op_reads_operands_of_any_layout(op: Op, layout: str, device: Any) -> None:
    for name in {op.dtypes[0], op.dtypes[-1], "bfloat16" if "bfloat16" in op.dtypes else op.dtypes[0]}:
        for sample in op.samples(np.random.default_rng(1), name):
            agree(op, sample, device, layout)


def run(name: str, arrays: tuple[Any, ...], params: dict[str, Any], device: Any) -> Any:
    """Results of one op as NumPy arrays."""
    engine = device.backend
    result = engine.execute(OPS[name], tuple(engine.from_host(a, device) for a in arrays), params)
    return tuple(map(engine.to_host, result)) if isinstance(result, tuple) else engine.to_host(result)


@needs_torch
@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("op", [op for op in RUN if "uint8" in op.dtypes], ids=lambda op: op.name)
def test_wide_unsigned_integers_are_right_or_said_to_be_unsupported(op: Op, name: str, device: Any) -> None:
    rng, top = np.random.default_rng(2), np.iinfo(name).max
    if not device.backend.supports(op, (dtype(name),) * max(2, len(op.operands))):
        assert name == "uint64"
        return
    for sample in op.samples(rng, "uint8"):
        inputs = tuple(
            a if a.dtype != np.uint8 else a.astype(name) if op.operand(i).name == "indices"
            else np.where(rng.random(a.shape) < 0.3, top - a.astype(name), a).astype(name)
            for i, a in enumerate(map(np.asarray, sample.inputs))
        )  # fmt: skip
        if op.name == "searchsorted":  # in what is sorted
            inputs = (np.sort(inputs[0]), inputs[1])
        agree(op, Sample(inputs, sample.params, False, sample.name), device)


@needs_torch
@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint16", "uint32", "uint64"])
def test_indices_may_have_any_integer_dtype(name: str, device: Any) -> None:
    x = np.arange(12.0).reshape(4, 3)
    at = np.asarray([3, 0, 0], name)
    np.testing.assert_array_equal(run("take", (x, at), {"axis": 0}, device), x[[3, 0, 0]])


@needs_torch
@pytest.mark.parametrize("op", ["take", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add"])
@pytest.mark.parametrize("bad", [np.asarray([-5]), np.asarray([4]), np.asarray([2**64 - 1], np.uint64)])
def test_an_index_out_of_range_raises_before_anything_runs(op: str, bad: Any, device: Any) -> None:
    x, u = np.zeros(4), np.ones(1)
    arrays = (x, bad) if op in ("take", "gather") else (x, bad, u)
    with pytest.raises(OutOfRangeError, match=rf"{op}: indices must lie in \[-4, 4\)"):
        run(op, arrays, {"axis": 0, "mode": "max"} if op == "scatter_reduce" else {"axis": 0}, device)


@needs_torch
def test_the_largest_quotient_and_the_least_integer_do_not_trap(device: Any) -> None:
    for name in ("int8", "int16", "int32", "int64"):
        low = np.iinfo(name).min
        x = np.asarray([low, low, 7, -7], name)
        y = np.asarray([-1, 0, 0, -1], name)
        np.testing.assert_array_equal(run("floor_divide", (x, y), {}, device), np.asarray([low, 0, 0, 7], name))
        np.testing.assert_array_equal(run("remainder", (x, y), {}, device), np.zeros(4, name))
    x, y = np.full(40, 1e300), np.full(40, 3e-300)
    np.testing.assert_array_equal(run("remainder", (x, y), {}, device), np.remainder(x, y))


@needs_torch
def test_sigmoid_keeps_its_subnormal_results(device: Any) -> None:
    x = np.asarray([-100.0, -95.0, -88.0, 0.0, np.nan], np.float32)
    agree(OPS["sigmoid"], Sample((np.tile(x, 9),)), device)
    agree(OPS["sigmoid"], Sample((x[:4],)), device)


@needs_torch
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [o for o in RUN if o.fusion == "map" and o.operands[0].kind != "any"], ids=lambda o: o.name)
def test_every_half_precision_number_is_mapped_within_tolerance(op: Op, name: str, device: Any) -> None:
    if name in op.dtypes and len(op.operands) == 1:
        params = op.samples(np.random.default_rng(0), name)[0].params
        agree(op, Sample((np.arange(2**16).astype(np.uint16).view(dtype(name).np),), params), device)


@needs_torch
@pytest.mark.parametrize("name", ["float64", "float32", "complex128", "complex64", "float16", "bfloat16", "int8"])
def test_thousands_of_updates_to_one_place_are_summed_within_tolerance(name: str, device: Any) -> None:
    rng = np.random.default_rng(0)
    at, u = rng.integers(0, 3, (9000, 4)), rng.uniform(0, 9, (9000, 4)).astype(dtype(name).np)
    x = np.zeros((3, 4), u.dtype)
    agree(OPS["scatter_add"], Sample((x, at, u), {"axis": 0}), device)
    agree(OPS["index_add"], Sample((x, at[:, 0], u), {"axis": 0}), device)


@needs_torch
def test_the_last_of_many_values_for_one_place_stays(device: Any) -> None:
    rng = np.random.default_rng(0)
    at, u = rng.integers(-5, 5, (20000, 3)), rng.standard_normal((20000, 3))
    agree(OPS["scatter"], Sample((np.zeros((5, 3)), at, u), {"axis": 0}), device)
    agree(OPS["scatter"], Sample((np.zeros((3, 5)), at.T.copy(), u.T.copy()), {"axis": 1}), device)


@needs_torch
@pytest.mark.parametrize("goal", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_floats_around_the_limits_of_integers_are_truncated_or_saturate(name: str, goal: str, device: Any) -> None:
    info, source = np.iinfo(goal), dtype(name).np
    ends = [
        float(end) * factor + more
        for end in (info.min, info.max)
        for factor in (0.75, 1.0, 1.5)
        for more in (-2, -0.5, 0, 0.5, 2)
    ]
    with np.errstate(over="ignore"):
        near = np.asarray([*ends, -1.0, -0.5, 0.5, np.inf, -np.inf, np.nan, 0.0, -0.0]).astype(source)
        x = np.concatenate([near, np.nextafter(near, source.type(np.inf)), np.nextafter(near, source.type(-np.inf))])
    agree(OPS["cast"], Sample((x,), {"dtype": dtype(goal)}), device)


@needs_torch
@pytest.mark.parametrize("op", ["scatter", "scatter_add", "scatter_reduce", "index_add"])
def test_the_accelerators_scatters_mean_the_same(op: str, device: Any) -> None:
    import torch

    from firebrick.backends.torch import structure

    entry, engine = OPS[op], device.backend
    other: Any = {
        "scatter": structure.set_last,
        "scatter_add": structure.add_at,
        "scatter_reduce": structure.fold_at,
        "index_add": structure.add_rows,
    }[op]
    for name in ("float64", "int16"):
        for sample in entry.samples(np.random.default_rng(4), name):
            axis = sample.params["axis"]
            x, at, u = (engine.from_host(np.asarray(a), device) for a in sample.inputs)
            with torch.device("meta"):  # not where they are computed
                at = structure.positions(at, x.shape[axis], op)
                if op == "index_add":
                    u = u.reshape((*x.shape[:axis], at.numel(), *x.shape[axis + 1 :])).movedim(axis, 0)
                    native = other(x.movedim(axis, 0), at.reshape(-1), u).movedim(0, axis)
                else:
                    native = other(x, at, u, **sample.params)
            got = engine.to_host(native)
            assert check_results(
                entry, sample.inputs, sample.params, (got,), run_reference(entry, sample.inputs, sample.params)
            ).ok


@needs_torch
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int32", "int64"])
def test_the_accelerators_integer_product_wraps_like_the_reference(name: str, device: Any) -> None:
    import torch

    from firebrick.backends.torch.contraction import integer_matmul

    info, rng = np.iinfo(name), np.random.default_rng(0)
    a, b = (rng.integers(info.min, info.max, s, name, endpoint=True) for s in ((2, 5, 40), (2, 40, 3)))
    natives = [device.backend.from_host(v, device) for v in (a, b)]
    with torch.device("meta"):  # not where it is computed
        got = integer_matmul(*natives)
    np.testing.assert_array_equal(device.backend.to_host(got), np.matmul(a, b))


@needs_torch
@pytest.mark.parametrize("op", RUN, ids=lambda op: op.name)
def test_every_op_runs_where_its_operands_lie_whatever_torchs_default_device_is(op: Op, device: Any) -> None:
    import torch

    engine = device.backend
    for name in {op.dtypes[0], op.dtypes[-1], "bfloat16" if "bfloat16" in op.dtypes else op.dtypes[0]}:
        for sample in op.samples(np.random.default_rng(0), name):
            natives = tuple(engine.from_host(np.asarray(a), device) for a in sample.inputs)
            want, before = engine.execute(op, natives, sample.params), [engine.to_host(x).tobytes() for x in natives]
            with torch.device("meta"):
                got = engine.execute(op, natives, sample.params)
            pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True)
            assert all(engine.to_host(a).tobytes() == engine.to_host(b).tobytes() for a, b in pairs), f"{name} {sample.name}"
            assert [engine.to_host(x).tobytes() for x in natives] == before


@needs_torch
@pytest.mark.parametrize(("padding", "copied"), [(((1, 1), (0, 0)), False), (((0, 1), (1, 1)), True), (((1, 1), (1, 0)), True)])
def test_images_are_copied_only_where_their_sides_are_padded_differently(
    padding: Any, copied: bool, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firebrick.backends.torch import contraction

    seen: list[Any] = []
    monkeypatch.setattr(contraction, "_padded", lambda x, padding, real=contraction._padded: seen.append(x) or real(x, padding))
    params = {"stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1}
    x, w = np.ones((1, 2, 4, 5), np.float32), np.ones((3, 2, 2, 2), np.float32)
    agree(OPS["conv"], Sample((x, w), params), device)
    g = np.asarray(run_reference(OPS["conv"], (x, w), params)[0], np.float32)
    agree(OPS["conv_weight"], Sample((x, g), {**params, "kernel": (2, 2)}), device)
    assert len(seen) == (2 if copied else 0)


@needs_torch
def test_max_pool_by_element_runs_where_its_images_lie_whatever_torchs_default_device_is() -> None:
    import torch

    from firebrick.backends.torch.pooling import max_pool_by_element

    x = torch.asarray([[[1.0, 3.0, 2.0]]])
    with torch.device("meta"):
        best, place = max_pool_by_element(x, kernel=(2,), stride=(1,), padding=((0, 1),), dilation=(1,))
    assert (best.tolist(), place.tolist()) == ([[[3.0, 3.0, 2.0]]], [[[1, 1, 2]]])


@needs_torch
@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 1), (1, 1)), ((2, 2), (2, 2)), ((0, 2), (1, 0))])
def test_max_pool_finds_the_first_place_among_nan_and_infinities(padding: Any, device: Any) -> None:
    params = {"kernel": (3, 3), "stride": (1, 2), "padding": padding, "dilation": (1, 1)}
    x = np.full((1, 3, 5, 7), -np.inf, np.float32)
    x[0, 1] = np.random.default_rng(0).choice([1.0, np.nan, -np.inf, np.inf], (5, 7))
    x[0, 2] = np.random.default_rng(1).integers(0, 3, (5, 7))
    agree(OPS["max_pool"], Sample((x,), params), device)
    agree(OPS["max_pool"], Sample((x[:, ::2],), params), device)


@needs_torch
def test_long_axes_other_than_the_last_are_normalised_within_tolerance(device: Any) -> None:
    x = np.random.default_rng(0).standard_normal((20000, 2)).astype(np.float32)
    agree(OPS["softmax"], Sample((x,), {"axis": 0}), device)
    agree(OPS["log_softmax"], Sample((x,), {"axis": 0}), device)


@needs_torch
@pytest.mark.parametrize("dt", ALL, ids=str)
def test_arrays_of_every_dtype_and_layout_come_back_as_copies(dt: Any, device: Any) -> None:
    engine = device.backend
    base = np.arange(24).reshape(4, 6).astype(dt.np)
    frozen = base.copy()
    frozen.flags.writeable = False
    for array in (base, base[::-1, ::-2], base.T, base[1, 1], base[:0], base[2:3, 4], np.broadcast_to(base[0], (3, 6)), frozen):
        array = np.asarray(array)
        native = engine.from_host(array, device)
        assert engine.describe(native) == Aval(array.shape, dt)
        assert engine.nbytes(native) == array.nbytes
        back = engine.to_host(native)
        assert back.dtype == array.dtype
        assert not np.shares_memory(back, base)
        np.testing.assert_array_equal(back, array)
    native = engine.from_host(base, device)
    assert np.shares_memory(engine.to_host(native), engine.to_host(native)), "reading on the CPU needs no copy"
    np.testing.assert_array_equal(engine.to_host(native.T[1:, ::2]), base.T[1:, ::2])


@needs_torch
def test_dlpack_shares_memory_both_ways(device: Any) -> None:
    import torch

    engine = device.backend
    theirs = np.arange(6.0)
    native = engine.from_dlpack(theirs, device)
    theirs[0] = 9
    assert engine.to_host(native)[0] == 9
    ours = engine.from_host(np.arange(4, dtype=np.int32), device)
    assert engine.dlpack_device(ours) == (1, 0)

    class Shown:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return engine.to_dlpack(ours, **kwargs)

        def __dlpack_device__(self) -> tuple[int, int]:
            return engine.dlpack_device(ours)

    assert np.shares_memory(np.from_dlpack(Shown()), engine.to_host(ours))
    with pytest.raises(UnsupportedError, match=r"copy it with fb\.asarray"):
        engine.from_dlpack(torch.ones(2, requires_grad=True), device)
    with pytest.raises(UnsupportedError, match="DLPack describes"):
        engine.from_dlpack(object(), device)


@needs_torch
@pytest.mark.parametrize("op", [o for o in RUN if o.fusion == "map"], ids=lambda o: o.name)
def test_a_fast_kernel_does_what_execute_does(op: Op, device: Any) -> None:
    engine = device.backend
    name = op.dtypes[0]
    for sample in op.samples(np.random.default_rng(0), name):
        arrays = tuple(np.asarray(a) for a in sample.inputs)
        kernel = engine.fast_kernel(op, tuple(dtype(a.dtype) for a in arrays))
        if kernel is None:
            assert sample.params, f"{op.name} has no parameters, so its kernel may serve"
        elif len({a.shape for a in arrays}) == 1 and arrays[0].ndim:
            natives = tuple(engine.from_host(a, device) for a in arrays)
            slow = engine.execute(op, natives, sample.params)
            quick = kernel(*natives)
            assert engine.describe(quick) == engine.describe(slow)
            assert engine.to_host(quick).tobytes() == engine.to_host(slow).tobytes()
    for wide in (uint16, uint32, uint64):
        assert engine.fast_kernel(op, (wide,) * len(op.operands)) is None


@needs_torch
def test_a_destination_is_written_where_the_kernel_can(device: Any) -> None:
    engine = device.backend
    a, b = (engine.from_host(np.arange(3.0) + i, device) for i in range(2))
    for op in ("add", "less", "floor_divide"):
        want = engine.execute(OPS[op], (a, b), {})
        out = want.clone().zero_()
        got = engine.execute(OPS[op], (a, b), {}, out)
        assert engine.to_host(got).tobytes() == engine.to_host(want).tobytes()
        assert (got is out) == (op != "floor_divide")


@needs_torch
def test_a_failed_allocation_is_a_memory_error(device: Any) -> None:
    with pytest.raises(MemoryError):
        run("pad", (np.zeros(1),), {"widths": ((0, 2**55),), "value": 0}, device)


@needs_torch
def test_dtype_usage_says_what_is_only_stored(device: Any) -> None:
    engine = device.backend
    assert engine.supports_dtype(device, float32)
    assert engine.supports_dtype(device, uint8)
    assert engine.dtype_usage(device, uint32) == {"storage"}
    assert engine.compute_dtype(device, uint32).name == "int64"


@needs_torch
def test_logical_devices_are_distinct_and_properties_are_known() -> None:
    one, two = find_device("torch:cpu:0"), find_device("torch:cpu:1")
    assert one is not two
    assert "PyTorch" in one.backend.properties(one)["driver"]
    assert one.backend.memory_stats(one).keys() >= {"live", "peak"}
    one.backend.memory_cleanup(one)
    one.backend.sync(one)


def test_importing_the_engine_does_not_import_pytorch() -> None:
    code = "import sys, firebrick.backends.torch as t; b = t.TorchBackend(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_pytorch_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    reason = TorchBackend().unavailable("cpu")
    assert reason == "PyTorch is not installed: pip install 'firebrick[torch]'"


CU126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU128 = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((12, 0), CU126, False), ((12, 0), CU128, True), ((12, 1), CU128, True), ((13, 0), CU128, True),
        ((10, 0), CU126, False), ((10, 3), CU128, True), ((11, 0), CU128, False), ((8, 9), CU126, True),
        ((8, 6), ["sm_80"], True), ((8, 0), ["sm_86"], False), ((6, 1), CU128, False), ((6, 1), CU126, True),
        ((9, 0), ["sm_90a"], True), ((10, 0), ["sm_90a", "compute_90a"], False), ((12, 0), ["compute_90"], True),
        ((10, 3), ["sm_100f"], True), ((12, 0), ["sm_100f"], False), ((8, 0), [], False), ((8, 0), ["gfx90a"], False),
    ],
)  # fmt: skip
def test_a_build_runs_on_a_gpu_by_binary_or_ptx_compatibility(
    capability: tuple[int, int], built: list[str], runs: bool
) -> None:
    assert (missing_capability(capability, built, "2.8.0", "12.6") is None) == runs


@pytest.mark.parametrize(
    ("capability", "torch_version", "wheel"),
    [((12, 0), "2.7", "cu128"), ((10, 0), "2.7", "cu128"), ((11, 0), "2.9", "cu130"), ((6, 1), "2.6", "cu126")],
)
def test_the_reason_names_capability_archs_and_the_wheel_to_install(
    capability: tuple[int, int], torch_version: str, wheel: str
) -> None:
    reason = missing_capability(capability, ["sm_80"], "2.8.0+cu126", "12.6") or ""
    major, minor = capability
    for text in (f"{major}.{minor} (sm_{major}{minor})", "2.8.0+cu126 for CUDA 12.6", "sm_80 only", torch_version, wheel):
        assert text in reason


def test_gpus_older_and_newer_than_every_wheel_get_a_reason_too() -> None:
    assert "use torch:cpu" in (missing_capability((3, 5), CU128, "2.8.0", "12.8") or "")
    assert "latest PyTorch" in (missing_capability((14, 0), CU126, "2.8.0", "12.6") or "")


def fake_torch(available: bool, cuda: str | None, hip: str | None, archs: list[str], gpus: list[Any]) -> Any:
    return SimpleNamespace(
        __version__="2.8.0",
        version=SimpleNamespace(cuda=cuda, hip=hip),
        cuda=SimpleNamespace(
            is_available=lambda: available, get_arch_list=lambda: archs, device_count=lambda: len(gpus),
            get_device_capability=lambda i: gpus[i],
        ),
    )  # fmt: skip


def test_properties_of_gpus_are_what_torch_knows_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpu(platform: str, index: int) -> Any:
        return SimpleNamespace(platform=platform, index=index)

    engine = TorchBackend()
    of_one = SimpleNamespace(get_device_properties=lambda i: SimpleNamespace(name=f"gpu {i}", total_memory=7, major=9, minor=0))
    for hip, runtime in ((None, "CUDA 12.8"), ("6.3", "ROCm 6.3")):
        fake = SimpleNamespace(__version__="2.8.0", version=SimpleNamespace(cuda="12.8", hip=hip), cuda=of_one, xpu=of_one)
        monkeypatch.setattr(engine, "_torch", fake)
        assert engine.properties(gpu("cuda", 1)) == {
            "name": "gpu 1", "driver": f"PyTorch 2.8.0, {runtime}", "memory": 7, "capability": (9, 0),
        }  # fmt: skip
    assert engine.properties(gpu("xpu", 0)) == {
        "name": "gpu 0",
        "driver": "PyTorch 2.8.0",
        "memory": 7,
    }


class Library:
    """What torch has for one kind of GPU: it notes its calls and gives each figure by name."""

    def __init__(self, figures: dict[str, Any]) -> None:
        self.figures, self.calls = figures, []

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any) -> Any:
            self.calls.append((name, *args))
            found = self.figures.get(name)
            if isinstance(found, Exception):
                raise found
            return found

        return called


@pytest.mark.parametrize("platform", ["cuda", "xpu", "mps"])
def test_a_gpus_memory_and_work_are_asked_of_its_own_library(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.core.device import Memory
    from firebrick.core.errors import ExecutionError

    figures = {"memory_allocated": 1, "max_memory_allocated": 2, "memory_reserved": 3, "current_allocated_memory": 4,
               "device_count": 5}  # fmt: skip
    library, engine = Library(figures), TorchBackend()
    monkeypatch.setattr(engine, "_torch", SimpleNamespace(**{platform: library}))
    gpu: Any = SimpleNamespace(platform=platform, index=1, _memory=Memory())
    gpu._memory.live = gpu._memory.peak = 6
    own = {"live": 6, "peak": 6, "persistent": 0}
    if platform == "mps":
        assert engine.memory_stats(gpu) == {**own, "torch_allocated": 4}
    else:
        assert engine.memory_stats(gpu) == {**own, "torch_allocated": 1, "torch_peak": 2, "torch_reserved": 3}
        assert library.calls == [("memory_allocated", 1), ("max_memory_allocated", 1), ("memory_reserved", 1)]
    assert engine.device_count(platform) == 5
    library.calls.clear()
    engine.memory_cleanup(gpu)
    engine.sync(gpu)
    waited = ("synchronize",) if platform == "mps" else ("synchronize", 1)
    reset = [] if platform == "mps" else [("reset_peak_memory_stats", 1)]
    assert library.calls == [("empty_cache",), *reset, waited]
    assert not engine.host_memory(gpu)
    library.figures["synchronize"] = RuntimeError("lost")
    with pytest.raises(ExecutionError, match=r"must finish\nReceived: lost\.\nRemedy: check the ops before this wait"):
        engine.sync(gpu)


@pytest.mark.parametrize(
    ("platform", "capability", "name", "usage"),
    [
        ("mps", None, "float64", ""), ("mps", None, "complex128", ""), ("mps", None, "float8_e5m2", ""),
        ("mps", None, "float32", "storage arithmetic"), ("mps", None, "uint16", "storage"),
        ("cuda", (9, 0), "float8_e5m2", "storage"),
        ("cuda", (9, 0), "uint64", "storage"), ("cuda", (9, 0), "float64", "storage arithmetic"),
        ("cuda", (7, 0), "float16", "storage arithmetic accelerated"), ("cuda", (6, 1), "float16", "storage arithmetic"),
        ("cuda", (8, 0), "bfloat16", "storage arithmetic accelerated"), ("cuda", (7, 5), "bfloat16", "storage arithmetic"),
        ("xpu", None, "float16", "storage arithmetic"), ("cpu", None, "float16", "storage arithmetic"),
    ],
)  # fmt: skip
def test_what_a_gpu_stores_computes_and_accelerates_follows_from_its_kind_and_capability(
    platform: str, capability: Any, name: str, usage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TorchBackend()
    library = SimpleNamespace(get_device_capability=lambda index: {1: capability}[index])
    monkeypatch.setattr(engine, "_torch", SimpleNamespace(cuda=library))
    gpu: Any = SimpleNamespace(platform=platform, index=1)
    assert engine.dtype_usage(gpu, dtype(name)) == frozenset(usage.split())
    wide = {"uint16": "int64", "uint32": "int64", "float8_e5m2": "float32"}
    assert engine.compute_dtype(gpu, dtype(name)) is dtype(wide.get(name, name))


def test_the_state_of_cuda_is_told_apart() -> None:
    assert "built without CUDA" in (_no_cuda(fake_torch(False, None, None, [], [])) or "")
    assert "no usable GPU" in (_no_cuda(fake_torch(False, "12.8", None, CU128, [])) or "")
    refused = fake_torch(False, "12.8", None, CU128, [])
    refused.cuda.is_available = lambda: warnings.warn("an old driver", stacklevel=1) or False
    assert "no usable GPU (an old driver)" in (_no_cuda(refused) or "")
    assert _no_cuda(fake_torch(True, "12.8", None, CU128, [(9, 0)])) is None
    assert "sm_120" in (_no_cuda(fake_torch(True, "12.6", None, CU126, [(12, 0)])) or "")
    assert _no_cuda(fake_torch(True, "12.6", None, CU126, [(12, 0), (9, 0)])) is None, "one GPU can be used"
    assert _no_cuda(fake_torch(True, None, "6.3", ["gfx90a"], [(9, 0)])) is None


@pytest.mark.parametrize(("missing", "reported"), [("torch", True), ("typing_extensions", False)])
def test_only_a_missing_torch_is_reported_as_one(missing: str, reported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(TorchBackend):
        @property
        def _torch(self) -> Any:  # type: ignore[override]
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    if reported:
        assert "PyTorch is not installed" in (Broken().unavailable("cpu") or "")
    else:
        with pytest.raises(ModuleNotFoundError, match=missing):
            Broken().unavailable("cpu")


@pytest.mark.parametrize("reason", ["there is none", None])
def test_a_platform_without_a_gpu_has_a_reason(reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch_engine, "_no_cuda", lambda library: reason if library is torch else "another library")
    assert TorchBackend().unavailable("cuda") == reason
    for platform, home, name in (("mps", torch.backends.mps, "Apple GPU"), ("xpu", torch.xpu, "Intel GPU")):
        monkeypatch.setattr(home, "is_available", lambda: reason is None)
        found = TorchBackend().unavailable(platform)
        assert found is None if reason is None else f"finds no {name}" in str(found)
