"""Data sets by name: `digits` from the package; `mnist`, `fashion-mnist` and the series `ett` read or downloaded."""

from firebrick.data.datasets._idx import DataError, read_idx
from firebrick.data.datasets._load import RawDataset, load, names
from firebrick.data.datasets._series import RawSeries, load_series, read_series, series_names

__all__ = ["DataError", "RawDataset", "RawSeries", "load", "load_series", "names", "read_idx", "read_series", "series_names"]
