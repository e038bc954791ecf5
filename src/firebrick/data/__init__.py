"""Data sets, and the loaders that bring them to a device in batches."""

import firebrick.backends.numpy as _numpy  # noqa: F401  before its parts
import firebrick.random as _random  # noqa: F401  before its parts
from firebrick.data import datasets as datasets
from firebrick.data.assembly import WorkerInfo, worker_info
from firebrick.data.augment import Augmentation, RandomCrop, RandomHorizontalFlip
from firebrick.data.collate import collate, pad_collate
from firebrick.data.dataset import ArrayDataset, Dataset, Subset, holdout, random_split
from firebrick.data.errors import (
    LoaderError,
    SampleError,
    SharedRowsWarning,
    UncheckedCursorWarning,
    UnknownLengthError,
    WorkerDiedError,
)
from firebrick.data.loader import DataLoader
from firebrick.data.order import permutation
from firebrick.data.pictures import save_image_grid
from firebrick.data.placing import Portion
from firebrick.data.samplers import BucketSampler, RandomSampler, Sampler, SequentialSampler, SubsetSampler, WeightedSampler
from firebrick.data.stream import IterableDataset
from firebrick.data.text import (
    ByteTokenizer,
    SubwordTokenizer,
    TextStream,
    Tokenizer,
    TokenWindows,
    load_tokenizer,
    read_text,
    tokenizer_of,
)
from firebrick.data.torch_loaders import from_torch
from firebrick.data.transforms import Pixels
from firebrick.data.windows import WindowDataset

__all__ = [
    "ArrayDataset",
    "Augmentation",
    "BucketSampler",
    "ByteTokenizer",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "LoaderError",
    "Pixels",
    "Portion",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomSampler",
    "SampleError",
    "Sampler",
    "SequentialSampler",
    "SharedRowsWarning",
    "Subset",
    "SubsetSampler",
    "SubwordTokenizer",
    "TextStream",
    "TokenWindows",
    "Tokenizer",
    "UncheckedCursorWarning",
    "UnknownLengthError",
    "WeightedSampler",
    "WindowDataset",
    "WorkerDiedError",
    "WorkerInfo",
    "collate",
    "from_torch",
    "holdout",
    "load_tokenizer",
    "pad_collate",
    "permutation",
    "random_split",
    "read_text",
    "save_image_grid",
    "tokenizer_of",
    "worker_info",
]
