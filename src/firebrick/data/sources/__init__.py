"""Data sets in the files and objects that others make: tables, folders of images, Hugging Face data sets."""

from firebrick.data.sources.hugging_face import HuggingFaceDataset, from_hugging_face
from firebrick.data.sources.images import ImageFolder
from firebrick.data.sources.tables import CSVDataset, ParquetDataset

__all__ = ["CSVDataset", "HuggingFaceDataset", "ImageFolder", "ParquetDataset", "from_hugging_face"]
