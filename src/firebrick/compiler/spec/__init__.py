"""What kernels compute, as data."""
