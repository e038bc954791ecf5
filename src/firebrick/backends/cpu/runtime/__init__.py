"""What runs compiled kernels on the CPU: threads, segments of kernels, arenas."""
