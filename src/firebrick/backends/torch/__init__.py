"""The ``torch`` engine: every op on PyTorch tensors, on its CPU, CUDA, MPS and XPU devices.

PyTorch is imported when the engine is first asked for a device, never by importing this package.
"""

from firebrick.backends.torch.capability import missing_capability
from firebrick.backends.torch.engine import TorchBackend

__all__ = ["TorchBackend", "missing_capability"]
