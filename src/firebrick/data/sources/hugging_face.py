"""Data sets of the Hugging Face ``datasets`` library, through what any of them has: a length, names of columns, and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from firebrick.data.collate import collate
from firebrick.data.errors import LoaderError

Array = np.ndarray[Any, Any]


class HuggingFaceDataset:
    """Some columns of a map-style ``datasets.Dataset``: see ``from_hugging_face``."""

    by_rows = True

    def __init__(self, dataset: Any, columns: tuple[str, ...]) -> None:
        self.dataset, self.columns = dataset, columns

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int, /) -> tuple[Array, ...]:
        row = self.dataset[int(index)]
        return tuple(self._value(row[c], c, index) for c in self.columns)

    def fetch(self, indices: Array) -> tuple[Array, ...]:
        """The rows ``indices`` (int64 [batch]), read at once and stacked.

        Raises:
            LoaderError: A value is missing, no number or not finite, or they differ in shape.
        """
        numbers = indices.tolist()
        rows = self.dataset[numbers]
        return tuple(collate([self._value(v, c, i) for v, i in zip(rows[c], numbers, strict=True)]) for c in self.columns)

    def _value(self, value: Any, column: str, index: int) -> Array:
        array = None if value is None else np.asarray(value)
        if array is None or array.dtype.kind in "OUSM":
            raise LoaderError(
                f'column "{column}" has numbers or images in each row',
                f"{type(value).__name__} in row {index}",
                "encode or leave it out first: dataset.map(…), dataset.filter(…), or other columns",
            )
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise LoaderError(
                f'column "{column}" has finite numbers in each row',
                f"{'NaN, which also stands for no value,' if np.isnan(array).any() else 'an infinity'} in row {index}",
                "fill or leave out these rows first: dataset.map(…), dataset.filter(…)",
            )
        return array


def from_hugging_face(dataset: Any, columns: Sequence[str] | None = None) -> HuggingFaceDataset:
    """A data set over a map-style ``datasets.Dataset``: sample i is the tuple of its columns' values in row i.

    Numbers, (nested) lists of numbers and images become arrays. Any object with ``column_names``, a length, and rows as
    dictionaries by number and by list of numbers will do; the library itself is not imported.

    Args:
        dataset: One split, such as ``load_dataset("mnist", split="train")``.
        columns: Which columns, in the order of a batch's arrays; all if None.

    Returns:
        A data set for ``DataLoader``, with whole batches read at once.

    Raises:
        LoaderError: It is a dictionary of splits or a stream, or does not have the columns.

    Example:
        >>> from firebrick.data.sources import from_hugging_face
        >>> class Rows:
        ...     column_names = ["label", "pixels"]
        ...
        ...     def __len__(self):
        ...         return 2
        ...
        ...     def __getitem__(self, key):
        ...         table = {"label": [3, 5], "pixels": [[1, 2], [3, 4]]}
        ...         return {c: [v[i] for i in key] if isinstance(key, list) else v[key] for c, v in table.items()}
        >>> from_hugging_face(Rows(), ["pixels", "label"])[1]
        (array([3, 4]), array(5))
    """
    names = getattr(dataset, "column_names", None)
    if isinstance(dataset, dict):
        raise LoaderError("one split of a data set", f"splits {', '.join(map(str, dataset))}", 'choose one: dataset["train"]')
    if not isinstance(names, list) or not hasattr(type(dataset), "__len__") or not hasattr(type(dataset), "__getitem__"):
        raise LoaderError(
            "a map-style data set: column_names, a length and rows by number",
            type(dataset).__name__,
            "load it without streaming=True, or read the stream in an IterableDataset",
        )
    wanted = tuple(names if columns is None else columns)
    absent = [c for c in wanted if c not in names]
    if absent or not wanted:
        raise LoaderError(f"columns among {', '.join(names)}", ", ".join(absent) or "none", "name columns of the data set")
    return HuggingFaceDataset(dataset, wanted)
