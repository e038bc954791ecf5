"""Small models for images and time series, and the table by which they are built by name."""

from firebrick.models.classifiers import CNN, cnn, mlp
from firebrick.models.registry import build, names
from firebrick.models.transformers import PatchForecaster, PatchTransformer, patch_transformer_forecaster, transformer

__all__ = [
    "CNN",
    "PatchForecaster",
    "PatchTransformer",
    "build",
    "cnn",
    "mlp",
    "names",
    "patch_transformer_forecaster",
    "transformer",
]
