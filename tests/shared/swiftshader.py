"""SwiftShader, the software driver for Vulkan that comes with Chromium: the second driver of the engine webgpu.

A process uses it instead of the system's drivers if ``VK_ICD_FILENAMES`` names its description when wgpu is loaded.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "VK_ICD_FILENAMES"
_NAME = "vk_swiftshader_icd.json"
_FOLDERS = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/usr/lib64/chromium-browser", "/opt/google/chrome")


def swiftshader() -> Path | None:
    """The description of the driver for Vulkan's loader; None if it is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    near = [Path(program).resolve().parent] if program else []
    return next((d / _NAME for d in [*near, *map(Path, _FOLDERS)] if (d / _NAME).is_file()), None)


def on_swiftshader() -> dict[str, str]:
    """The environment of a process that uses this driver alone.

    Raises:
        FileNotFoundError: It is not installed.
    """
    found = swiftshader()
    if found is None:
        raise FileNotFoundError(_NAME)
    return {**os.environ, VARIABLE: str(found), "VK_DRIVER_FILES": str(found)}
