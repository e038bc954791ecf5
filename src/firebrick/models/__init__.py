"""Small models for images and time series, and the table by which they are built by name."""

import firebrick.nn as _nn  # noqa: F401  before its parts
from firebrick.models.classifiers import CNN, cnn, lenet, mlp
from firebrick.models.generation import generate
from firebrick.models.gpt import GPT, GPTCache
from firebrick.models.patchtst import PatchTST, patchtst
from firebrick.models.pretrained import gpt2, llama
from firebrick.models.recurrent import LSTMForecaster, lstm_forecaster
from firebrick.models.registry import build, canonical, names, settings
from firebrick.models.resnet import ResNet, resnet18
from firebrick.models.torchvision import from_torchvision
from firebrick.models.transformers import PatchForecaster, PatchTransformer, patch_transformer_forecaster, transformer

__all__ = [
    "CNN",
    "GPT",
    "GPTCache",
    "LSTMForecaster",
    "PatchForecaster",
    "PatchTST",
    "PatchTransformer",
    "ResNet",
    "build",
    "canonical",
    "cnn",
    "from_torchvision",
    "generate",
    "gpt2",
    "lenet",
    "llama",
    "lstm_forecaster",
    "mlp",
    "names",
    "patch_transformer_forecaster",
    "patchtst",
    "resnet18",
    "settings",
    "transformer",
]
