"""As wgpu's: the C functions are those of ``wgpu_native``."""
