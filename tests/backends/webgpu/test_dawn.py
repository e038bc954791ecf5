"""The engine on Dawn, another implementation of WebGPU with another compiler of WGSL (tint), without a browser.

It refuses what wgpu takes: barriers in control flow that may not be uniform, a buffer that is bound twice for writing. A sample
of ops in each run; ``make soak`` runs conformance and the tests of the engine on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dawn import VARIABLE, missing, on_dawn

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _installed() -> None:
    if reason := missing():
        pytest.skip(reason)
    if VARIABLE in os.environ and "wgpu_on_dawn" in os.environ.get("PYTHONPATH", ""):
        pytest.skip("these tests run on Dawn already")


def run(*command: str, backend: str = "vulkan") -> str:
    found = subprocess.run(
        [sys.executable, *command], env=on_dawn(backend), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-6000:]
    return found.stdout


SAMPLE = """
import sys
import numpy as np
import wgpu
import firebrick as fb
from firebrick.testing import cases, run_case
assert wgpu.__version__.startswith("npm webgpu "), wgpu
device = fb.device("webgpu:0")
seed, count = int(sys.argv[1]), 0
for k, op in enumerate(sys.argv[2:]):
    found = list(cases(device, [op], ["float32", "int64", "bfloat16"], subset="turns", seed=seed, modes=["eager", "jit"]))
    for case in found[(seed + k) % 8 :: 8]:
        verdict = run_case(case)
        assert verdict.ok, f"{case.name}: {verdict.message}"
        count += 1
with fb.config.scope(fallback="error"):
    x = fb.asarray(np.arange(12, dtype=np.int64).reshape(3, 4) * 2**33, device=device)
    assert fb.jit(lambda v: fb.sum(v * 3 - 1, axis=0))(x).tolist() == [k * 9 * 2**33 + 12 * 3 * 2**33 - 3 for k in range(4)]
# what is wrong is reported: a shader at once, a command by the next wait
gpu = device.backend.groups(device).gpu
def misaligned():
    gpu._device.queue.write_buffer(gpu._nothing().block.buffer, 2, b"1234")
    gpu.wait()
def wrong_type():
    gpu._compiled("@compute @workgroup_size(64) fn main() { let x: u32 = 1i; }", (), ())
for error, text, wrong in ((fb.ExecutionError, "multiple of 4", misaligned), (fb.KernelCompileError, "cannot", wrong_type)):
    try:
        wrong()
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)
    gpu.wait()
print(count)
"""
OPS = ("add", "remainder", "where", "sum", "argmax", "matmul", "take", "scatter_add", "sort", "cast", "cholesky")


@pytest.mark.slow
def test_a_sample_of_ops_is_right_on_dawn(seed: int) -> None:
    assert int(run("-c", SAMPLE, str(seed), *OPS)) > 40


@pytest.mark.slow
def test_tint_compiles_kernels_of_float16_and_subgroups() -> None:
    assert ", 0 refused" in run("-m", "shaders_on_dawn", "0", backend="null")


@pytest.mark.soak
def test_tint_compiles_kernels_of_a_driver_with_all_features() -> None:
    assert ", 0 refused" in run("-m", "shaders_on_dawn", "100", backend="null")


NOT_FOR_DAWN = {
    "test_planted_drivers.py::test_a_driver_that_cuts_loops_is_noticed_and_no_sum_loses_terms": "tint refuses what is planted",
    "test_windows.py::test_a_driver_that_ignores_the_offsets_of_bindings_is_noticed": "Dawn refuses what is planted",
    "test_kept_measurements.py::test_types_that_are_looked_up_are_those_that_cffi_parses": "it is about wgpu's header",
}


@pytest.mark.soak
def test_all_tests_of_the_engine_pass_on_dawn() -> None:
    folder = "tests/backends/webgpu"
    without = [f"--deselect={folder}/{name}" for name in NOT_FOR_DAWN]
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", *without, folder)


CONFORMANCE = """
from firebrick.testing import conformance
found = conformance("webgpu", subset="pairwise", modes=["eager", "jit"])
print(found)
raise SystemExit(0 if found.ok else 1)
"""


@pytest.mark.soak
def test_conformance_on_dawn() -> None:
    run("-c", CONFORMANCE)
