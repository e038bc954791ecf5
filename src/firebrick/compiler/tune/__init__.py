"""The autotuner: variants of kernels, and the one function, ``chosen``, that selects among them for every engine."""
