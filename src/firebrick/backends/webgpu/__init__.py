"""The ``webgpu`` engine: GPUs through Vulkan, Metal and DirectX 12, by wgpu."""

import firebrick.compiler.naive as _naive  # noqa: F401  before its parts
from firebrick.backends.webgpu.engine import WebGpuBackend

__all__ = ["WebGpuBackend"]
