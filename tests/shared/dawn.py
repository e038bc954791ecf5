"""Dawn, the implementation of WebGPU with the WGSL compiler tint, by the package ``webgpu`` of npm in a process of node.

A process whose ``PYTHONPATH`` begins with the folder ``wgpu_on_dawn`` has a module ``wgpu`` that does what the engine webgpu
asks of wgpu by Dawn, on SwiftShader.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from swiftshader import on_swiftshader, swiftshader

ROOT = Path(__file__).parents[2]
VARIABLE = "FIREBRICK_TEST_DAWN"
"""Environment variable: the folder of the package."""
BACKEND = "FIREBRICK_TEST_DAWN_BACKEND"
"""Environment variable: Dawn's backend; ``vulkan`` without it."""
FOLDER = ROOT / ".soak" / "dawn"
"""Where the package is without it."""
INSTALL = "npm install --prefix .soak/dawn webgpu@0.6.2"


def package() -> Path:
    """The folder of the package ``webgpu``."""
    return Path(os.environ.get(VARIABLE, FOLDER)).resolve() / "node_modules" / "webgpu"


def missing() -> str:
    """What Dawn cannot be used for want of; empty if nothing is missing."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not package().is_dir():
        return f"Dawn is not installed: {INSTALL}"
    return "" if swiftshader() else "SwiftShader is not installed: apt-get install chromium"


def on_dawn(backend: str = "vulkan") -> dict[str, str]:
    """The environment of a process whose module ``wgpu`` is on Dawn.

    Args:
        backend: Dawn's backend; ``"null"`` compiles shaders with all features, and runs nothing.
    """
    shared = Path(__file__).parent
    path = [str(shared / "wgpu_on_dawn"), str(shared), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**on_swiftshader(), VARIABLE: str(package().parents[1]), BACKEND: backend, "PYTHONPATH": os.pathsep.join(path)}
