"""Memory of float16: what is measured of its conversions, and products whose tiles are of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from kernels_on_gpu import Rewrite, measured
from lowered_bodies import body_of

import firebrick as fb
from firebrick.backends.webgpu import probes
from firebrick.backends.webgpu.adapters import adapters
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.wgsl.contraction_blocks import SECTION
from firebrick.compiler.templates.tiled_product import HALF_SIZES, ProductTiles, tiled_product
from firebrick.compiler.tune import choice
from firebrick.scalar.capabilities import CONSERVATIVE_GPU, Capabilities
from firebrick.testing import cases, run_case

GPU = "webgpu:0"


@pytest.fixture(autouse=True)
def _offered() -> Iterator[None]:
    if "shader-f16" not in adapters()[0].features:
        pytest.skip("the adapter does not offer float16")
    choice.forget()
    yield
    choice.forget()


EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def same(found: np.ndarray, want: np.ndarray) -> bool:
    """Whether bits are equal but for the payload of NaN."""
    return bool(np.all((found.view(np.uint16) == want.view(np.uint16)) | (np.isnan(found) & np.isnan(want))))


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) - 1, 255, 3, 2])
def test_every_float16_is_read_and_stored_exactly(planted: Callable[[Rewrite], fb.Device], count: int) -> None:
    """By single elements and by four at once, in arrays whose last word is not whole too."""
    seen: list[str] = []
    device = planted(lambda text: seen.append(text) or text)  # type: ignore[func-returns-value]
    assert "float16: converted exactly" in measured(device)
    gpu = device.backend.groups(device).gpu
    gpu.measured = replace(gpu.measured, processor=False)  # four elements of an item are words there
    seen.clear()
    host = np.random.default_rng(count).permutation(EVERY)[:count]
    x = fb.asarray(host, device=device)
    with np.errstate(all="ignore"):
        third = (host.astype(np.float32) * np.float32(1 / 3) + np.float32(0.1)).astype(np.float16)
    assert same((fb.astype(x, fb.float32) * (1 / 3) + 0.1).astype(fb.float16).numpy(), third)
    assert same(fb.flip(x).numpy(), host[::-1])
    assert same(fb.concat([x[1:], x[:1]]).numpy(), np.concatenate([host[1:], host[:1]]))
    assert any("enable f16;" in text for text in seen)


OPS = (
    "add", "divide", "exp", "where", "sum", "argmax", "softmax", "layer_norm", "matmul", "conv", "max_pool", "attention",
    "take", "index_add", "scatter_add", "sort", "permute", "cast", "cumulative_max", "slice_update",
)  # fmt: skip


@pytest.mark.parametrize("native", [True, False], ids=["memory of float16", "words"])
def test_ops_of_float16_agree_with_the_reference(anew: fb.Device, native: bool, seed: int) -> None:
    gpu = anew.backend.groups(anew).gpu
    assert gpu.measured.capabilities.float16
    capabilities = replace(gpu.measured.capabilities, float16=native)
    gpu.measured = replace(gpu.measured, capabilities=capabilities, processor=not native)
    count = 0
    for op in OPS:
        for case in list(cases(anew, [op], ["float16"], subset="turns", seed=seed, modes=["eager", "jit"]))[seed % 6 :: 6]:
            verdict = run_case(case)
            assert verdict.ok, f"{case.name}: {verdict.message}"
            count += 1
    assert count > 20


PRODUCTS: dict[str, tuple[Callable[..., fb.Tensor], tuple[tuple[int, ...], ...]]] = {
    "row-major": (lambda a, b: a @ b, ((37, 131), (131, 45))),
    "next to the edges of tiles": (lambda a, b: a @ b, ((129, 17), (17, 127))),
    "both transposed": (lambda a, b: a.T @ b.T, ((17, 37), (45, 17))),
    "a stack by a stack": (lambda a, b: a @ b, ((3, 2, 5, 7), (3, 2, 7, 9))),
    "a stack by one matrix": (lambda a, b, c: fb.relu(a @ b + c), ((3, 2, 5, 7), (7, 33), (33,))),
    "equal sizes": (lambda a, b, c: a @ b + c.T - c, ((7, 7), (7, 7), (7, 7))),
    "one of all": (lambda a, b: a @ b, ((1, 1), (1, 1))),
}  # fmt: skip


IN_SOAK = ("both transposed", "a stack by a stack", "one of all")
"""Whose tiles of float32 are compared in each run, in ``test_webgpu_tuning.py``."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.soak if n in IN_SOAK else ()) for n in PRODUCTS])
def test_tiles_of_float16_have_the_bits_of_blocks(name: str) -> None:
    function, shapes = PRODUCTS[name]
    drawn = [np.random.default_rng(k).standard_normal(s).astype(np.float16) for k, s in enumerate(shapes)]
    for special in (False, True):
        if special:
            drawn[0].flat[0], drawn[0].flat[-1], drawn[1].flat[-1] = np.nan, np.inf, 6e-8
        arrays = [fb.asarray(x, device=GPU) for x in drawn]
        want = fb.jit(function)(*arrays).numpy()
        with fb.force_variant(HALF_SIZES[1].name):
            assert fb.jit(function)(*arrays).numpy().tobytes() == want.tobytes()
        assert choice.choices()[-1].variant == HALF_SIZES[1].name


@pytest.mark.slow
@pytest.mark.parametrize("tiles", HALF_SIZES, ids=lambda tiles: tiles.name)
def test_all_tiles_of_float16_have_the_bits_of_blocks(tiles: ProductTiles) -> None:
    rng = np.random.default_rng(1)
    x, y = (fb.asarray(rng.standard_normal(s).astype(np.float16), device=GPU) for s in ((150, 300), (300, 141)))
    want = fb.jit(lambda x, y: x @ y)(x, y).numpy()
    with fb.force_variant(tiles.name):
        assert fb.jit(lambda x, y: x @ y)(x, y).numpy().tobytes() == want.tobytes()
    assert choice.choices()[-1].variant == tiles.name


def _made(of: type, tiles: ProductTiles, capabilities: Capabilities) -> bool:
    x = np.zeros((256, 256), of)
    spec = spec_of(body_of((x, x), ("matmul", (0, 1), {})))
    assert isinstance(spec, Contract)
    return tiled_product(spec, capabilities, tiles, SECTION) is not None


def test_tiles_of_float16_are_larger_than_the_limits_allow_those_of_float32() -> None:
    for tiles, limit in ((HALF_SIZES[1], 16 << 10), (HALF_SIZES[2], 32 << 10)):
        offered = replace(CONSERVATIVE_GPU, float16=True, shared_bytes=limit)
        assert _made(np.float16, tiles, offered)
        assert not _made(np.float16, replace(tiles, stored=""), offered)  # computed in float32
        assert not _made(np.float16, tiles, replace(offered, float16=False))
        assert not _made(np.float32, tiles, offered)


# drivers that convert otherwise


def test_a_driver_that_rounds_float16_towards_zero_is_named_and_its_float16_is_not_used(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    cut = "f16(bitcast<f32>(bitcast<u32>({0}) & 0xffffe000u))"
    device = planted(lambda text: re.sub(r"\bf16\((x\[[^]]*\])\)", lambda found: cut.format(found[1]), text))
    assert "float16: rounded to other numbers, and not used" in measured(device)
    x = fb.asarray(EVERY[:1000], device=device)
    assert same((x + 1.0).numpy(), (EVERY[:1000].astype(np.float32) + 1).astype(np.float16))


@pytest.mark.parametrize("begin", ["let h = x[id.x & 0xffffu];", "tile[own] = h;"])
def test_a_driver_that_flushes_denormal_float16_is_named_and_its_float16_is_not_used(
    begin: str, planted: Callable[[Rewrite], fb.Device]
) -> None:
    """Where it reads, and where it passes workgroup memory."""
    flushed = {
        "let h = x[id.x & 0xffffu];": "let g = x[id.x & 0xffffu]; let h = select(g, 0h, abs(g) < 6.1035e-5h);",
        "tile[own] = h;": "tile[own] = select(h, 0h, abs(h) < 6.1035e-5h);",
    }
    device = planted(lambda text: text.replace(begin, flushed[begin]))
    assert "float16: converted to other numbers, and not used" in measured(device)
    x = fb.asarray(EVERY[:1000], device=device)  # most of these are denormal
    assert same((x * 1.0).numpy(), EVERY[:1000])


def test_a_driver_that_does_not_compile_float16_is_used_without_it(planted: Callable[[Rewrite], fb.Device]) -> None:
    device = planted(lambda text: text.replace("enable f16;", "enable nothing;"))
    assert "float16: not compiled, and not used" in measured(device)
    assert (fb.asarray(EVERY[:9], device=device) * 1.0).numpy().tobytes() == EVERY[:9].tobytes()


def test_a_driver_that_rounds_otherwise_than_measured_would_be_wrong(
    planted: Callable[[Rewrite], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above can fail."""
    monkeypatch.setattr(probes, "_halves", lambda run: probes.EXACT)
    device = planted(lambda text: re.sub(r"\bf16\((\w+)\)", r"f16(bitcast<f32>(bitcast<u32>(\1) & 0xffffe000u))", text))
    x = fb.asarray(EVERY[15000:16000], device=device)
    assert not same((x * 1.3).numpy(), (EVERY[15000:16000].astype(np.float32) * np.float32(1.3)).astype(np.float16))
