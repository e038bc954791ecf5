"""Data sets, and the loaders that bring them to a device in batches."""

from firebrick.data.augment import Augmentation, RandomCrop, RandomHorizontalFlip
from firebrick.data.dataset import ArrayDataset, Dataset, Subset, holdout
from firebrick.data.errors import LoaderError
from firebrick.data.loader import DataLoader
from firebrick.data.order import permutation
from firebrick.data.transforms import Pixels
from firebrick.data.windows import WindowDataset

__all__ = [
    "ArrayDataset",
    "Augmentation",
    "DataLoader",
    "Dataset",
    "LoaderError",
    "Pixels",
    "RandomCrop",
    "RandomHorizontalFlip",
    "Subset",
    "WindowDataset",
    "holdout",
    "permutation",
]
