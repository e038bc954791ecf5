"""Generated code for machines that are not here: PTX that NVIDIA's assembler accepts, and objects for other processors.

``ptxas`` comes with the wheel ``nvidia-cuda-nvcc``, which the test extra has for Linux on x86-64, and LLVM's linker with the
wheel ``ziglang``. Where one is missing, what needs it is skipped by name; with ``CI=true`` that is a failure. What LLVM,
``ptxas`` and the linker make of one input is kept for the next run; what they refuse is not.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import pytest
from kept_results import kept, kept_assembly, kept_object, version_of

from firebrick.compiler.targets.llvm.target import Target

EVERY_NVIDIA = {cpu: Target("nvptx64-nvidia-cuda", cpu, "", 32) for cpu in ("sm_75", "sm_80", "sm_90", "sm_120")}
NVIDIA = {cpu: EVERY_NVIDIA[cpu] for cpu in ("sm_80", "sm_120")}
"""Two of them, for what depends little on the processor."""
AMD = {cpu: Target("amdgcn-amd-amdhsa", cpu, "", 32) for cpu in ("gfx90a", "gfx942", "gfx1100", "gfx1201")}
PROCESSORS = {
    "aarch64-linux": Target.named("aarch64"),
    "aarch64-darwin": Target("arm64-apple-darwin", "apple-m1", "+neon,+fullfp16,+dotprod", 128),
    "x86-64-windows": Target("x86_64-pc-windows-msvc", "x86-64-v3", "+avx2,+avx,+fma,+f16c,+bmi,+bmi2,+sse4.1,+sse4.2", 256),
}
MAGIC = {"aarch64-linux": b"\x7fELF", "aarch64-darwin": b"\xcf\xfa\xed\xfe", "x86-64-windows": b"\x64\x86"}
"""How an object for each processor begins."""


@lru_cache(maxsize=1)
def _ptxas() -> str | None:
    try:
        spec = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        spec = None
    for folder in spec.submodule_search_locations or [] if spec else []:
        tool = Path(folder) / "bin" / "ptxas"
        if tool.is_file():
            return str(tool)
    return shutil.which("ptxas")


def ptxas() -> str:
    """The path of NVIDIA's assembler; without it the test is skipped, or fails in CI."""
    found = _ptxas()
    if found is None:
        _missing("ptxas cannot be used here: install the wheel nvidia-cuda-nvcc (Linux on x86-64)")
    return found


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _linker() -> list[str] | None:
    found = importlib.util.find_spec("ziglang")
    return None if found is None else [sys.executable, "-m", "ziglang", "ld.lld"]


def linked(image: bytes, folder: Path) -> bytes:
    """The shared library that LLVM's linker makes of an object for one of AMD's GPUs, which is what its driver loads."""
    linker = _linker()
    if linker is None:
        _missing("LLVM's linker cannot be used here: install the wheel ziglang")
    source, out = folder / "module.o", folder / "module.hsaco"
    options = ["-shared", "--no-undefined"]

    def link() -> bytes:
        source.write_bytes(image)
        command = [*linker, *options, str(source), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ld.lld: {done.stdout}{done.stderr}"
        return out.read_bytes()

    return kept(("ld.lld", version("ziglang"), options, hashlib.sha256(image).hexdigest()), link)


def ptx(text: str, target: Target) -> str:
    """PTX of a module of LLVM IR."""
    return kept_assembly(text, target)


def assemble(ptx: str, target: Target, folder: Path, level: int = 3) -> bytes:
    """The machine code that ``ptxas`` makes of PTX, optimised to a level; an error shows what it says."""
    source, out = folder / "module.ptx", folder / "module.cubin"
    tool, options = ptxas(), ["--gpu-name", target.cpu, "--opt-level", str(level), "--warning-as-error"]

    def run() -> bytes:
        source.write_text(ptx)
        done = subprocess.run([tool, *options, "-o", str(out), str(source)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ptxas for {target.cpu}: {done.stdout}{done.stderr}"
        return out.read_bytes()

    return kept(("ptxas", version_of(tool), options, ptx), run)


def external(ptx: str) -> set[str]:
    """The functions that PTX calls and does not contain."""
    return set(re.findall(r"^\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(\w+)", ptx, re.MULTILINE))


def object_for(name: str, text: str) -> bytes:
    """The object of a module of LLVM IR for one of ``PROCESSORS``; its file format is that of the system."""
    image = kept_object(text, PROCESSORS[name])
    assert image.startswith(MAGIC[name]), f"{name}: an object begins with {image[:4]!r}"
    return image
