"""The runtime of compiled kernels on the CPU: threads, segments of kernels, arenas, memory of results."""
