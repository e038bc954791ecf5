"""The engine on an adapter with WebGPU's default limits and no optional feature, as a phone's browser may have."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pytest
from kernels_on_gpu import in_kernels
from web_plans import DEFAULTS

import firebrick as fb
from firebrick.backends.webgpu import engine
from firebrick.backends.webgpu.adapters import Adapter, adapters
from firebrick.backends.webgpu.web_plan import PAGE
from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, cases, conformance
from firebrick.testing.conformance import run_case

SOME = (
    "add", "floor_divide", "exp", "softmax", "layer_norm", "sum", "argmax", "matmul", "conv", "conv_weight", "max_pool",
    "max_pool_gradient", "attention", "attention_gradient", "take", "index_add", "scatter_add", "gather", "concat", "split",
    "where", "sort", "top_k", "cumulative_max", "permute", "slice_update", "pad", "random_bits", "searchsorted", "standardize",
    "cholesky", "solve_triangular",
)  # fmt: skip
"""Ops of every family that has kernels, those with many operands among them."""


IN_FLOAT64 = ("cumulative_logsumexp", "cumulative_prod", "prod")
"""Ops of float32 whose kernels compute in float64, as docs/webgpu.md says."""


class LeastAdapter:
    """wgpu's adapter, whose devices have the default limits and no feature."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.limits, self.features, self.info = handle, DEFAULTS, frozenset[str](), handle.info

    def request_device_sync(self, label: str, required_limits: dict[str, int], required_features: list[str]) -> Any:
        assert not required_features
        assert all(value == DEFAULTS[name] for name, value in required_limits.items())
        return self.handle.request_device_sync(label=label, required_limits=DEFAULTS)


@pytest.fixture
def least(anew: fb.Device, monkeypatch: pytest.MonkeyPatch) -> fb.Device:
    a = adapters()[0]
    made = Adapter(LeastAdapter(a.handle), a.api, a.name, a.driver, "IntegratedGPU")
    monkeypatch.setattr(engine, "adapters", lambda: (made,))
    return anew


def test_the_driver_holds_the_engine_to_the_default_limits(least: fb.Device) -> None:
    """The test below can fail: what needs more is refused by wgpu. The forms of kernels are those of GPUs."""
    device = least.backend.groups(least).gpu._device
    for name, value in DEFAULTS.items():
        assert device.limits[name] == value, name
    assert "shader-f16" not in device.features
    c = least.backend.groups(least).gpu.measured.capabilities
    assert (c.buffers, c.binding_bytes, c.shared_bytes) == (7, 128 << 20, 16 << 10)
    assert not least.backend.groups(least).gpu.measured.processor
    assert (c.buffers, c.group_items) == (PAGE.capabilities.buffers, PAGE.capabilities.group_items)


class OddAdapter(LeastAdapter):
    """wgpu's adapter, whose largest buffer and binding are no multiple of 16 bytes."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle)
        self.limits = {**dict(handle.limits), "max-storage-buffer-binding-size": 400_012, "max-buffer-size": 400_012}

    def request_device_sync(self, label: str, required_limits: dict[str, int], required_features: list[str]) -> Any:
        return self.handle.request_device_sync(label=label, required_limits=required_limits)


@pytest.mark.parametrize("count", [99_999, 100_000, 100_001, 100_002, 100_003])
def test_arrays_as_large_as_the_largest_buffer_have_kernels_where_that_is_no_multiple_of_16_bytes(
    count: int, anew: fb.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = adapters()[0]
    made = Adapter(OddAdapter(a.handle), a.api, a.name, a.driver, a.kind)
    monkeypatch.setattr(engine, "adapters", lambda: (made,))
    values = np.arange(count, dtype=np.float32)
    x = fb.asarray(values, device=anew)
    with fb.config.scope(fallback="error"):
        np.testing.assert_array_equal((x * 2.0).numpy(), values * 2)
        np.testing.assert_array_equal(fb.jit(lambda v: fb.abs(v) + 1.0)(x).numpy(), values + 1)
        assert abs(fb.sum(x).item() / values.sum(dtype=np.float64) - 1.0) < 1e-6
    del x


def test_float64_is_refused_with_the_cast_to_write_where_the_adapter_has_none(least: fb.Device) -> None:
    with pytest.raises(fb.DTypeError, match=r"cannot store float64\nRemedy: cast first: fb.astype\(x, fb.float32\)"):
        fb.asarray(np.ones(3), device=least)
    with pytest.raises(fb.DTypeError, match="cannot store complex128"):
        fb.zeros(3, dtype=fb.complex128, device=least)
    assert least.backend.groups(least).gpu.measured.facts["float64"] == "none"


@pytest.mark.slow
def test_ops_that_compute_in_float64_run_on_the_host_where_the_adapter_has_none(least: fb.Device) -> None:
    for name in (*IN_FLOAT64, "cumulative_sum", "sum"):
        assert in_kernels(name, "float32") == (name not in IN_FLOAT64), name
    x = np.random.default_rng(0).uniform(0.9, 1.1, (3, 500)).astype(np.float32)
    with pytest.warns(fb.FallbackWarning, match="prod"):
        found = fb.prod(fb.asarray(x, device=least), axis=1).numpy()
    np.testing.assert_allclose(found, x.astype(np.float64).prod(1), rtol=1e-6)


@pytest.mark.slow
def test_ops_agree_with_the_reference_under_the_default_limits(least: fb.Device, seed: int) -> None:
    done = 0
    for name in SOME:
        found = list(cases("webgpu", [name], subset="thin", seed=seed, modes=["eager", "jit"]))
        case = found[crc32(f"{name}{seed}".encode()) % len(found)]
        verdict = run_case(case)
        assert verdict.ok, f"{case.name}: {verdict.message}"
        done += 1
    assert done == len(SOME)


@pytest.mark.soak
@pytest.mark.parametrize("family", sorted({op.reference.__module__ for op in OPS.values()}))
def test_the_pairwise_subset_agrees_with_the_reference_under_the_default_limits(
    family: str, least: fb.Device, seed: int
) -> None:
    assert least.backend.groups(least).gpu.measured.float64 is None
    for name in (n for n, op in OPS.items() if op.reference.__module__ == family and n not in EXCLUDED):
        report = conformance(least.name, [name], seed=seed, modes=["eager", "jit"])
        assert report.ok, report


@pytest.mark.slow
def test_a_training_step_and_its_many_buffers_keep_to_the_default_limits(least: fb.Device) -> None:
    def trained(device: fb.Device | str) -> list[np.ndarray]:
        with fb.use_device(device):
            model = fb.models.build("mlp", 8, channels=1, classes=10, generator=fb.random.Generator(0)).to(device)
            optimizer = fb.optim.Adam(model, lr=0.01)
            rng = np.random.default_rng(0)
            x = fb.asarray(rng.normal(size=(4, 1, 8, 8)).astype(np.float32))
            y = fb.asarray(np.array([1, 0, 3, 9]))

            @fb.jit
            def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
                loss, gradients = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))(model)
                optimizer.update(model, gradients)
                return loss

            losses = [step(x, y).item() for _ in range(3)]
            return [np.array(losses), *(p.numpy() for p in model.parameters())]

    with fb.config.scope(fallback="error"):
        found = trained(least)
    for got, want in zip(found, trained("numpy"), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4)


def test_an_array_beyond_the_limits_is_refused_by_name(least: fb.Device) -> None:
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (80 << 20,), (0,))
    with pytest.raises(fb.OutOfMemoryError, match="a new tensor on webgpu:0 needs 320"):
        fb.asarray(huge, device=least)
