"""WGSL, the language of WebGPU's shaders."""
