"""Data sets, and the loaders that bring them to a device in batches."""

from firebrick.data.dataset import ArrayDataset, Dataset, Subset, holdout
from firebrick.data.errors import LoaderError
from firebrick.data.loader import DataLoader
from firebrick.data.order import permutation
from firebrick.data.transforms import Pixels

__all__ = ["ArrayDataset", "DataLoader", "Dataset", "LoaderError", "Pixels", "Subset", "holdout", "permutation"]
