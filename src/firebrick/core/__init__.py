"""The foundation: dtypes, shapes, devices, tensors, ``bind``, errors and settings."""
