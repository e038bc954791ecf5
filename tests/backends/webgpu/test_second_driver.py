"""The engine on SwiftShader, a driver unlike lavapipe: it flushes denormal numbers, has groups of 256 items and 10 buffers,
and ends no loops. A sample of ops in each run; ``make soak`` runs all tests of the engine on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from swiftshader import VARIABLE, on_swiftshader, swiftshader

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _installed() -> None:
    if swiftshader() is None:
        pytest.skip("SwiftShader is not installed: apt-get install chromium")
    if os.environ.get(VARIABLE) == str(swiftshader()):
        pytest.skip("these tests run on SwiftShader already")


SAMPLE = """
import sys
import numpy as np
import firebrick as fb
from firebrick.testing import cases, run_case
device = fb.device("webgpu:0")
assert "SwiftShader" in device.backend.properties(device)["name"], device.backend.properties(device)
assert device.backend.flushes_denormals(device)
fb.ones(3, device=device)
print(device.backend.properties(device)["measured"])
seed, count = int(sys.argv[1]), 0
for op in sys.argv[2:]:
    found = list(cases(device, [op], ["float32", "int64", "bfloat16"], subset="turns", seed=seed, modes=["eager", "jit"]))
    for case in found[seed % 4 :: 4]:
        verdict = run_case(case)
        assert verdict.ok, f"{case.name}: {verdict.message}"
        count += 1
print(count)
# copies, signs, choices and functions that return small arguments are exact for denormal numbers on every driver
x = np.array([1e-40, -1e-40, 1e-45, -1e-45, 0.0, -0.0, 1.2e-38], np.float32)
t = fb.asarray(x, device=device)
for fn in (
    lambda v: v, lambda v: -(-v), lambda v: fb.where(v > 1.0, v + 1.0, v), lambda v: fb.copysign(fb.abs(v), v),
    lambda v: fb.flip(v)[::-1],
    fb.sin, fb.tan, fb.tanh, fb.atan, fb.expm1, fb.log1p, lambda v: fb.maximum(v, v), lambda v: fb.concat([v[:3], v[3:]]),
):
    for run in (fn, fb.jit(fn)):
        assert run(t).numpy().tobytes() == x.tobytes(), (fn, run(t).numpy())
with np.errstate(all="ignore"):
    for fn, want in (
        (fb.log, np.log(x.astype(np.float64))), (lambda v: 1.0 / v, 1.0 / x), (fb.sqrt, np.sqrt(x)), (fb.sign, np.sign(x)),
        (fb.floor, np.floor(x)), (fb.ceil, np.ceil(x)), (lambda v: v > 0.0, x > 0), (lambda v: v.astype("bool"), x != 0),
        (lambda v: v / v[:1], x / x[:1]), (fb.rsqrt, 1.0 / np.sqrt(x.astype(np.float64))),
    ):
        np.testing.assert_allclose(fn(t).numpy(), np.asarray(want, fn(t).numpy().dtype), rtol=1e-6, atol=0)
"""
OPS = (
    "add", "divide", "remainder", "exp", "erf", "sin", "where", "sum", "argmax", "softmax", "matmul", "conv", "max_pool",
    "take", "scatter_add", "sort", "permute", "cast", "cholesky", "solve_triangular",
)  # fmt: skip


def test_a_sample_of_ops_is_right_on_a_second_driver(seed: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", SAMPLE, str(seed), *OPS], env=on_swiftshader(), capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "denormals: flushed to zero" in found.stdout
    assert int(found.stdout.split()[-1]) > 100


@pytest.mark.soak
def test_all_tests_of_the_engine_pass_on_a_second_driver() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/backends/webgpu"]
    found = subprocess.run(command, env=on_swiftshader(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-6000:]
    assert " passed" in found.stdout


CONFORMANCE = """
from firebrick.testing import conformance
found = conformance("webgpu", subset="pairwise", modes=["eager", "jit"])
print(found)
raise SystemExit(0 if found.ok else 1)
"""


@pytest.mark.soak
def test_conformance_on_a_second_driver() -> None:
    command = [sys.executable, "-c", CONFORMANCE]
    found = subprocess.run(command, env=on_swiftshader(), capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
