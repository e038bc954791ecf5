"""Shuffles by subgroup operations: right for subgroups of any size, and on drivers whose shuffles are wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from kernels_on_gpu import Rewrite
from swiftshader import on_swiftshader, swiftshader

import firebrick as fb
from firebrick.backends.webgpu import lowering, probes
from firebrick.backends.webgpu.adapters import adapters
from firebrick.compiler.targets.wgsl import shader
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.testing import cases, run_case

GPU = "webgpu:0"


def width() -> int:
    device = fb.device(GPU)
    return int(device.backend.groups(device).gpu.measured.capabilities.subgroup_sizes[0])


@pytest.fixture(autouse=True)
def _offered() -> Iterator[None]:
    if "subgroup" not in adapters()[0].features:
        pytest.skip("the adapter does not offer subgroups")
    choice.forget()
    yield
    choice.forget()


def shuffled(device: fb.Device, k: int = 131) -> tuple[bytes, bytes, str]:
    """The bits of a product by blocks and by subgroups, and the name of the variant."""
    rng = np.random.default_rng(k)
    x, y = (fb.asarray(rng.standard_normal(s).astype(np.float32), device=device) for s in ((37, k), (k, 45)))
    want = fb.jit(lambda x, y: x @ y)(x, y).numpy()
    assert np.abs(want - x.numpy() @ y.numpy()).max() < 1e-4
    with fb.force_variant("subgroup=*"):
        got = fb.jit(lambda x, y: x @ y)(x, y).numpy()
    return want.tobytes(), got.tobytes(), choice.choices()[-1].variant


PRODUCTS: dict[str, tuple[Callable[..., fb.Tensor], tuple[tuple[int, ...], ...]]] = {
    "row-major": (lambda a, b: a @ b, ((37, 131), (131, 45))),
    "left transposed": (lambda a, b: a.T @ b, ((131, 37), (131, 45))),
    "right transposed": (lambda a, b: a @ b.T, ((37, 17), (45, 17))),
    "both transposed": (lambda a, b: a.T @ b.T, ((17, 37), (45, 17))),
    "equal sizes": (lambda a, b: a @ b.T, ((64, 64), (64, 64))),
    "next to the edges of blocks": (lambda a, b: a @ b, ((65, 129), (129, 513))),
    "a stack by a stack": (lambda a, b: a @ b, ((3, 2, 5, 7), (3, 2, 7, 9))),
    "a stack by one matrix": (lambda a, b, c: fb.relu(a @ b + c), ((3, 2, 5, 7), (7, 33), (33,))),
    "strided": (lambda a, b: a[::2] @ b[:, 3:], ((11, 19), (19, 13))),
    "a residual": (lambda a, b, c: fb.tanh(a @ b) * c, ((5, 7), (7, 9), (5, 9))),
    "a row": (lambda a, b: a @ b, ((1, 257), (257, 67))),
    "a column": (lambda a, b: a @ b, ((67, 257), (257, 1))),
    "one of all": (lambda a, b: a @ b, ((1, 1), (1, 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_subgroups_have_the_bits_of_blocks(name: str) -> None:
    function, shapes = PRODUCTS[name]
    for of in ("float32", "float16", "bfloat16", "int32"):
        rng = np.random.default_rng(0)
        drawn = [rng.standard_normal(s).astype(np.float32) * (8 if of == "int32" else 1) for s in shapes]
        if of != "int32":
            drawn[0].flat[0], drawn[0].flat[-1], drawn[1].flat[-1] = np.nan, np.inf, -np.inf
        if of != "float32" and name != "equal sizes":
            continue
        arrays = [fb.astype(fb.asarray(x, device=GPU), fb.dtype(of)) for x in drawn]
        want = fb.jit(function)(*arrays).numpy()
        with fb.force_variant("subgroup=*"):
            assert fb.jit(function)(*arrays).numpy().tobytes() == want.tobytes(), of
        assert choice.choices()[-1].variant.startswith("subgroup=")


def test_every_variant_of_a_product_by_subgroups_has_the_default_s_bits() -> None:
    rng = np.random.default_rng(3)
    x, y = (fb.asarray(rng.standard_normal(s).astype(np.float32), device=GPU) for s in ((70, 300), (300, 77)))
    want = fb.jit(lambda x, y: x @ y)(x, y).numpy()
    tried = set()
    for wide in {min(8, width()), width()}:
        for rows, columns in ((8, 8), (8, 4), (4, 4), (1, 1)):
            name = f"subgroup={wide} rows={rows} columns={columns}"
            with fb.force_variant(name):
                assert fb.jit(lambda x, y: x @ y)(x, y).numpy().tobytes() == want.tobytes(), name
            tried.add(choice.choices()[-1].variant)
    assert len(tried) >= 4


def test_gradients_of_products_by_subgroups() -> None:
    rng = np.random.default_rng(5)
    x, w, b = (fb.asarray(rng.standard_normal(s).astype(np.float32), device=GPU) for s in ((33, 20), (20, 17), (17,)))
    step = lambda p: fb.sum(fb.tanh(p[0] @ p[1] + p[2]) ** 2)  # noqa: E731
    want = fb.jit(fb.grad(step))((x, w, b))
    with fb.force_variant("subgroup=*"):
        got = fb.jit(fb.grad(step))((x, w, b))
    for a, c in zip(got, want, strict=True):
        assert a.numpy().tobytes() == c.numpy().tobytes()


@pytest.mark.parametrize(
    "of", ["float32", "float16", *(pytest.param(of, marks=pytest.mark.slow) for of in ("bfloat16", "int32", "int64", "uint8"))]
)
def test_conformance_of_products_by_subgroups(of: str, seed: int) -> None:
    device, count = fb.device(GPU), 0
    with fb.force_variant("subgroup=*"):
        for case in list(cases(device, ["matmul"], [of], subset="turns", seed=seed, modes=["eager", "jit"]))[seed % 3 :: 3]:
            verdict = run_case(case)
            assert verdict.ok, f"{case.name}: {verdict.message}"
            count += 1
    assert count > 3
    assert any(c.variant.startswith("subgroup=") for c in choice.choices())


# drivers that shuffle otherwise


def permuted(text: str) -> str:
    """Each item gets the value of a neighbour of the item that it asks for."""
    return re.sub(r"\(within & ~(\d+)u\)", r"((within & ~\1u) ^ 1u)", text)


def permuted_later(text: str) -> str:
    """So do the shuffles of kernels, but not those by which kernels test the driver."""
    return re.sub(r"(let moved\d+ = subgroupShuffle\(.*), \(within & ~(\d+)u\)", r"\1, ((within & ~\2u) ^ 1u)", text)


def names(device: fb.Device) -> str:
    device.backend.groups(device)
    return str(device.backend.properties(device)["measured"])


def test_shuffles_are_measured() -> None:
    assert f"shuffles: among {width()} items" in names(fb.device(GPU))
    assert width() in probes.WIDTHS


def test_a_driver_that_permutes_items_is_named_and_its_shuffles_are_not_used(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    device = planted(permuted)
    assert "shuffles: other items' values, and not used" in names(device)
    with pytest.warns(TuningWarning, match="has a variant of that name"), fb.force_variant("subgroup=*"):
        assert fb.jit(lambda x: x @ x)(fb.ones((9, 9), device=device)).tolist() == [[9.0] * 9] * 9


def test_a_driver_that_permutes_items_after_it_was_measured_changes_no_result(
    planted: Callable[[Rewrite], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel tests the shuffles before it uses them, and uses workgroup memory instead."""
    monkeypatch.setattr(probes, "_shuffles", lambda run: 4)
    want, got, variant = shuffled(planted(permuted))
    assert variant.startswith("subgroup=4")
    assert got == want


def test_a_kernel_that_does_not_test_its_shuffles_would_be_wrong(
    planted: Callable[[Rewrite], fb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    monkeypatch.setattr(probes, "_shuffles", lambda run: 4)
    monkeypatch.setattr(shader, "test", lambda width: ["var together = true;"])
    monkeypatch.setattr(lowering, "_shaders", OrderedDict())
    want, got, _ = shuffled(planted(permuted))
    assert got != want


def test_a_driver_that_permutes_items_in_some_shuffles_only_is_found_by_verify_every(
    planted: Callable[[Rewrite], fb.Device],
) -> None:
    device = planted(permuted_later)
    x = fb.asarray(np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32), device=device)
    function = fb.jit(lambda x: x @ x)
    want = function(x).numpy()
    with fb.force_variant("subgroup=*"):
        assert function(x).numpy().tobytes() != want.tobytes()  # what is planted is there
        choice.forget()
        with fb.config.scope(verify_every=1), pytest.warns(TuningWarning, match="subgroup="):
            assert function(x).numpy().tobytes() == want.tobytes()


OTHER_SIZE = """
import sys
import numpy as np
import firebrick as fb
from firebrick.backends.webgpu import probes
from firebrick.compiler.targets.wgsl import shader
from firebrick.compiler.tune import choice
fb.config.cache_dir = "off"
size, claimed, tested = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "tested"
device = fb.device("webgpu:0")
gpu = device.backend.groups(device).gpu
assert probes._shuffles(gpu._probe) == size, probes._shuffles(gpu._probe)
device.backend._opened.clear()
probes._shuffles = lambda run: claimed
if not tested:
    shader.test = lambda width: ["var together = true;"]
rng = np.random.default_rng(0)
x, y = (fb.asarray(rng.standard_normal(s).astype(np.float32), device=device) for s in ((37, 131), (131, 45)))
want = fb.jit(lambda x, y: x @ y)(x, y).numpy()
with fb.force_variant(f"subgroup={claimed} *"):
    got = fb.jit(lambda x, y: x @ y)(x, y).numpy()
assert choice.choices()[-1].variant.startswith(f"subgroup={claimed}")
print("right" if got.tobytes() == want.tobytes() else "wrong")
"""


@pytest.mark.parametrize(
    ("bits", "size", "claimed", "tested", "found"),
    [
        (128, 4, 8, True, "right"), (128, 4, 8, False, "wrong"),
        *(pytest.param(*c, True, "right", marks=pytest.mark.soak) for c in ((512, 16, 8), (256, 8, 32))),
    ],
)  # fmt: skip
def test_kernels_are_right_for_other_sizes_of_subgroups_than_measured(
    bits: int, size: int, claimed: int, tested: bool, found: str
) -> None:
    """Of lavapipe, whose subgroups are as large as the vectors of the processor."""
    if "llvmpipe" not in adapters()[0].name:
        pytest.skip("a driver whose subgroups have one size")
    command = [sys.executable, "-c", OTHER_SIZE, str(size), str(claimed), "tested" if tested else "untested"]
    environment = {**os.environ, "LP_NATIVE_VECTOR_WIDTH": str(bits)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == f"{found}\n", result.stderr


@pytest.mark.slow
def test_these_tests_pass_on_a_second_driver() -> None:
    """SwiftShader, whose subgroups have 4 items."""
    if swiftshader() is None:
        pytest.skip("SwiftShader is not installed: apt-get install chromium")
    if os.environ.get("VK_ICD_FILENAMES") == str(swiftshader()):
        pytest.skip("these tests run on SwiftShader already")
    chosen = "both or gradients or shuffles"  # gradients have the other layouts; soak runs all on that driver
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__)), "-k", chosen]
    result = subprocess.run(command, env=on_swiftshader(), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:]
    assert " passed" in result.stdout
