"""Layers and models: modules over the functions, their parameters, and their state."""

from firebrick.nn import initial
from firebrick.nn.activation import (
    GELU,
    CrossEntropyLoss,
    Flatten,
    Identity,
    MSELoss,
    ReLU,
    Sequential,
    Sigmoid,
    SiLU,
    Tanh,
)
from firebrick.nn.attention import MultiheadAttention, TransformerEncoderLayer
from firebrick.nn.convolution import AvgPool2d, Conv2d, MaxPool2d
from firebrick.nn.linear import Embedding, Linear
from firebrick.nn.module import Module
from firebrick.nn.normalisation import Dropout, LayerNorm
from firebrick.nn.parameter import Buffer, Parameter
from firebrick.nn.saved import Loaded, StateDict, StateError

__all__ = [
    "GELU",
    "AvgPool2d",
    "Buffer",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "LayerNorm",
    "Linear",
    "Loaded",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "MultiheadAttention",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "StateDict",
    "StateError",
    "Tanh",
    "TransformerEncoderLayer",
    "initial",
]
