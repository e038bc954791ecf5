"""The numerical tests again as on other processors: other kernels of the BLAS and of torch, other widths of our vectors.

A machine has one processor, so a tolerance that only holds for the order of sums of its BLAS goes unnoticed there. Each run is
a process of its own, since the libraries look at these variables once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firebrick.compiler.targets.llvm.target import Target

ROOT = Path(__file__).parents[2]
FOLDERS = ("functions", "nn", "ops", "optim", "models", "autodiff", "conformance", "compiler", "backends", "graph")

# OpenBLAS's name of a processor: bits of vectors that it and ours use, what torch calls them, and what /proc/cpuinfo lists
PROCESSORS = {
    "Prescott": (128, "default", "pni"),
    "Nehalem": (128, "default", "sse4_2"),
    "Sandybridge": (128, "default", "avx"),
    "Haswell": (256, "avx2", "avx2"),
    "Zen": (256, "avx2", "avx2"),
    "SkylakeX": (512, "avx512", "avx512dq"),
    "Cooperlake": (512, "avx512", "avx512_bf16"),
}


def flags() -> set[str]:
    """What the processor of this machine can do, by Linux's names."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return set(next((line.split(":")[1].split() for line in lines if line.startswith("flags")), []))


def environment(core: str) -> dict[str, str]:
    """The variables that make the libraries, and our engine, compute as on a processor."""
    bits, aten, _ = PROCESSORS[core]
    return {"OPENBLAS_CORETYPE": core, "FIREBRICK_CPU_VECTOR_BITS": str(bits), "ATEN_CPU_CAPABILITY": aten}


PROGRAM = """
import numpy, firebrick
from threadpoolctl import threadpool_info
from firebrick.compiler.targets.llvm.target import Target
print(*(p["architecture"] for p in threadpool_info() if p["internal_api"] == "openblas"), Target.host().width_bits)
"""


@pytest.mark.parametrize("core", ["Nehalem", "Sandybridge"])
def test_a_variable_makes_the_libraries_compute_as_on_another_processor(core: str) -> None:
    if PROCESSORS[core][2] not in flags():
        pytest.skip(f"a processor that {core} code runs on")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment(core)}, capture_output=True, text=True, timeout=300
    )
    architecture, bits = run.stdout.split()
    assert (architecture, int(bits)) == (core, PROCESSORS[core][0]), run.stderr


@pytest.mark.soak
@pytest.mark.parametrize("core", PROCESSORS)
def test_the_numerical_tests_pass_as_on_other_processors(core: str) -> None:
    bits, _, flag = PROCESSORS[core]
    if flag not in flags() or bits > Target.host().width_bits:
        pytest.skip(f"a processor that {core} code runs on")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{f}" for f in FOLDERS)]
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment(core)}, capture_output=True, text=True)
    assert run.returncode == 0, f"{environment(core)}\n{run.stdout[-4000:]}"
