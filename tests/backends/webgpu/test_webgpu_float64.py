"""float64 on adapters that have it: its bits are those of NumPy, and a driver that computes it inexactly is noticed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernels_on_gpu import Rewrite, check
from narrow_kernels import draw_narrow

import firebrick as fb
from firebrick.backends.webgpu.adapters import adapters
from firebrick.backends.webgpu.probes import FLOAT64

GPU = "webgpu:0"
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _with_float64() -> None:
    if not adapters()[0].features >= FLOAT64:
        pytest.skip(f"{adapters()[0].name} has no float64")


def hard(seed: int = 0) -> tuple[Array, Array]:
    """Two arrays of any bits, special values, denormal numbers, and neighbours."""
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(0, 256, 8 * 3000).astype(np.uint8).view(np.float64).copy() for _ in range(2))
    x[:1000], y[:1000] = rng.normal(size=(2, 1000))
    y[1000:1500] = x[1000:1500] * (1 + rng.integers(-3, 4, 500) * 2.0**-52)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, 2.0**53 + 2])
    x[-100:], y[-100:] = np.repeat(special, 10), np.tile(special, 10)
    return x, y


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_arithmetic_comparisons_and_casts_have_the_bits_of_numpy(jit: bool) -> None:
    x, y = hard()

    def function(a: fb.Tensor, b: fb.Tensor) -> list[fb.Tensor]:
        return [
            a + b, a - b, a * b, a / b, fb.sqrt(fb.abs(a)), -a, fb.copysign(a, b), fb.floor(a), fb.trunc(a), fb.round(a),
            fb.maximum(a, b), fb.minimum(a, b), a.astype(fb.float32), a.astype(fb.float32).astype(fb.float64),
            fb.where(a < b, a, b), (a == b).astype(fb.float64),
        ]  # fmt: skip

    with np.errstate(all="ignore"):
        single = x.astype(np.float32)
        want = [
            x + y, x - y, x * y, x / y, np.sqrt(np.abs(x)), -x, np.copysign(x, y), np.floor(x), np.trunc(x), np.rint(x),
            np.maximum(x, y), np.minimum(x, y), single, single.astype(np.float64), np.where(x < y, x, y),
            (x == y).astype(np.float64),
        ]  # fmt: skip
    with fb.config.scope(fallback="error"):
        found = (fb.jit(function) if jit else function)(fb.asarray(x, device=GPU), fb.asarray(y, device=GPU))
    for k, (got, wanted) in enumerate(zip(found, want, strict=True)):
        array = got.numpy()
        assert array.dtype == wanted.dtype
        np.testing.assert_array_equal(array, wanted, err_msg=f"result {k}")
        if k not in (10, 11):  # which zero a maximum is, is left open
            np.testing.assert_array_equal(
                np.signbit(array)[~np.isnan(array)], np.signbit(wanted)[~np.isnan(array)], f"result {k}"
            )


@pytest.mark.parametrize("name", ["int64", "uint64", "int32", "uint32", "int8", "bool"])
def test_integers_become_float64_and_back(name: str) -> None:
    rng = np.random.default_rng(1)
    dtype = np.dtype(name)
    n = rng.integers(0, 256, 500 * dtype.itemsize).astype(np.uint8).view(dtype) if name != "bool" else rng.random(500) < 0.5
    if name != "bool":
        info = np.iinfo(dtype)
        n = np.concatenate(
            [n, np.array([info.min, info.max, 0, 1], dtype), (np.float64(2.0) ** np.arange(info.bits - 1)).astype(dtype)]
        )
    found = fb.asarray(n, device=GPU).astype(fb.float64)
    np.testing.assert_array_equal(found.numpy(), n.astype(np.float64))
    if name != "bool":
        x = np.concatenate([n.astype(np.float64), [0.5, -0.5, 1e300, -1e300, np.inf, -np.inf, np.nan, 2.0**63, 2.0**64, -1.5]])
        want = fb.asarray(x, device="numpy").astype(dtype.name).numpy()
        np.testing.assert_array_equal(fb.asarray(x, device=GPU).astype(dtype.name).numpy(), want)


def test_a_model_in_float64_trains_as_on_numpy() -> None:
    def weights(device: str) -> list[Array]:
        model = fb.models.build("mlp", 8, channels=1, classes=10, generator=fb.random.Generator(0)).to(device)
        model = model.astype(fb.float64)
        optimizer = fb.optim.Adam(model, lr=0.01)
        rng = np.random.default_rng(0)
        x, y = fb.asarray(rng.normal(size=(4, 1, 8, 8)), device=device), fb.asarray(np.array([1, 0, 3, 9]), device=device)

        @fb.jit
        def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
            loss, gradients = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))(model)
            optimizer.update(model, gradients)
            return loss

        losses = [step(x, y).item() for _ in range(4)]
        return [np.array(losses), *(p.numpy() for p in model.parameters())]

    with fb.config.scope(fallback="error"):
        found = weights(GPU)
    for got, want in zip(found, weights("numpy"), strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


def test_matrices_are_factored_and_solved_with_in_float64() -> None:
    rng = np.random.default_rng(3)
    for rows in (1, 7, 24, 65):
        m = rng.normal(size=(2, rows, rows))
        a, b = m @ m.transpose(0, 2, 1) + np.eye(rows), rng.normal(size=(2, rows, 3))
        want = np.linalg.cholesky(a)
        with fb.config.scope(fallback="error"):
            found = fb.linalg.cholesky(fb.asarray(a, device=GPU)).numpy()
            x = fb.linalg.solve_triangular(fb.asarray(want, device=GPU), fb.asarray(b, device=GPU), upper=False).numpy()
        assert np.abs(found - want).max() < 16 * 2.0**-52 * np.abs(want).max()
        assert np.abs(want @ x - b).max() < 64 * 2.0**-52 * np.abs(b).max()
    with pytest.raises(fb.LinAlgError, match="positive definite"):
        fb.linalg.cholesky(fb.asarray(-np.eye(4), device=GPU)).numpy()


@pytest.mark.parametrize("count", [17, 500, 4999])
def test_sums_of_many_updates_of_one_element_keep_what_additions_lose(count: int) -> None:
    x = np.repeat(np.random.default_rng(4).uniform(0.1, 2.0, 3), count)  # errors of equal terms do not average out
    at = np.repeat([2, 0, 1], count)
    want = np.array([math.fsum(x[at == k]) for k in range(3)])
    with fb.config.scope(fallback="error"):
        found = fb.index_add(
            fb.zeros(3, dtype=fb.float64, device=GPU), fb.asarray(at, device=GPU), fb.asarray(x, device=GPU), axis=0
        )
    assert (np.abs(found.numpy() - want) <= 2.0**-52 * want).all()


def test_views_of_numbers_of_16_bytes_are_copied() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(5, 7, 3)) + 1j * rng.normal(size=(5, 7, 3))
    a = fb.asarray(x, device=GPU)
    with fb.config.scope(fallback="error"):
        np.testing.assert_array_equal(fb.permute_dims(a, (2, 0, 1)).numpy(), x.transpose(2, 0, 1))
        np.testing.assert_array_equal(a[::2, 5:1:-2].numpy(), x[::2, 5:1:-2])
        np.testing.assert_array_equal(fb.broadcast_to(a[:, :1], (5, 4, 3)).numpy(), np.broadcast_to(x[:, :1], (5, 4, 3)))
        np.testing.assert_array_equal(
            fb.jit(lambda v: fb.permute_dims(v, (1, 0, 2)) * 2.0)(a).numpy(), x.transpose(1, 0, 2) * 2
        )


def test_kernels_in_float32_do_not_become_slower_forms() -> None:
    """A kernel without float64 is prepared with what float32 has, as on adapters that have no float64."""
    driver = fb.device(GPU).backend.groups(fb.device(GPU)).gpu.measured
    assert driver.float64 is not None
    assert driver.float64.float64
    assert not driver.capabilities.float64
    for dtype, has in (("float32", False), ("float64", True)):
        graph = fb.jit(lambda x: fb.exp(x)).graph(fb.ones(3, dtype=dtype, device=GPU))
        shown = fb.device(GPU).backend.forms(graph, ("code",), fb.device(GPU))
        assert ("f64" in shown) == has


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_random_kernels_in_float64_have_the_bits_of_the_interpreter(group: bool) -> None:
    for seed in range(6):
        check(draw_narrow(seed, group, float64=True))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 25))
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_more_random_kernels_in_float64_have_the_bits_of_the_interpreter(group: bool, block: int) -> None:
    for seed in range(block * 12, (block + 1) * 12):
        check(draw_narrow(seed, group, float64=True))


# drivers that compute float64 in another way


WRONG: dict[str, Rewrite] = {
    "products in float32": lambda text: text.replace("bitcast<u64>(x * y)", "bitcast<u64>(f64(f32(x) * f32(y)))"),
    "no denormal numbers": lambda text: text.replace(
        "bitcast<u64>(x * y)", "bitcast<u64>(select(x * y, 0.0lf, abs(x * y) < 2.2250738585072014e-308lf))"
    ),
    "casts that round down": lambda text: text.replace("f64(f32(x))", "f64(bitcast<f32>(bitcast<u32>(f32(x)) & 0xfffffffeu))"),
    "cancelled terms": lambda text: re.sub(r"[|^] u64\(zero\)", "", text),
}


@pytest.mark.parametrize("name", WRONG)
def test_float64_that_is_not_exact_is_not_used(name: str, planted: Callable[[Rewrite], fb.Device]) -> None:
    if name == "cancelled terms" and "llvmpipe" not in adapters()[0].name:
        pytest.skip("a driver that is not known to cancel terms")
    device = planted(WRONG[name])
    measured = device.backend.groups(device).gpu.measured
    assert measured.facts["float64"] == "inexact, and not used"
    assert measured.float64 is None
    with pytest.raises(fb.DTypeError, match="cannot store float64"):
        fb.ones(3, dtype=fb.float64, device=device)
    np.testing.assert_array_equal((fb.ones(3, device=device) * 3.0).numpy(), np.full(3, 3.0, np.float32))


def test_quotients_of_a_driver_that_multiplies_by_reciprocals_are_corrected(planted: Callable[[Rewrite], fb.Device]) -> None:
    def by_reciprocals(text: str) -> str:
        text = text.replace("bitcast<u64>(x / y)", "bitcast<u64>(x * (1.0lf / y))")
        return re.sub(r"\((\w+) / (bitcast<f64>\(bitcast<u64>\(\w+\) \^ u64\(zero\)\))\)", r"(\1 * (1.0lf / \2))", text)

    device = planted(by_reciprocals)
    measured = device.backend.groups(device).gpu.measured
    assert measured.float64 is not None
    assert not measured.float64.exact_division
    x, y = hard()
    with np.errstate(all="ignore"):
        want = x / y
        assert (x[:1000] * (1.0 / y[:1000]) != want[:1000]).any()
    np.testing.assert_array_equal((fb.asarray(x, device=device) / fb.asarray(y, device=device)).numpy(), want)
