"""The ``webgpu`` engine: GPUs through Vulkan, Metal and DirectX 12, by wgpu."""

from firebrick.backends.webgpu.engine import WebGpuBackend

__all__ = ["WebGpuBackend"]
