"""Image data sets by name: `digits` from the package, `mnist` and `fashion-mnist` read or downloaded."""

from firebrick.data.datasets._idx import DataError, read_idx
from firebrick.data.datasets._load import RawDataset, load, names

__all__ = ["DataError", "RawDataset", "load", "names", "read_idx"]
