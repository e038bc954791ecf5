"""WGSL, the language of WebGPU's shaders."""

import firebrick.compiler.naive as _naive  # noqa: F401  before its parts
