"""Windows of a multivariate series: what was, and what came next, cut out when a batch is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.settings import whole
from firebrick.data.dataset import unmasked
from firebrick.data.errors import LoaderError

Array = np.ndarray[Any, Any]


class WindowDataset:
    """All windows of a series: sample i is (rows i … i + look_back, the ``horizon`` rows after them).

    The series is held once, whatever the length of a window: rows are gathered when they are fetched.

    Args:
        values: Floating [rows, series]. They are neither copied nor written.
        look_back: Rows of the input.
        horizon: Rows of the target, which follow them.

    Raises:
        ConfigError: A length is no int of at least 1.
        LoaderError: The values are not floating [rows, series], or no window fits.

    Example:
        >>> import numpy as np
        >>> from firebrick.data import WindowDataset
        >>> data = WindowDataset(np.arange(12.0).reshape(6, 2), look_back=3, horizon=2)
        >>> seen, next_ = data[1]
        >>> len(data), seen.tolist(), next_.tolist()
        (2, [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]], [[8.0, 9.0], [10.0, 11.0]])
    """

    def __init__(self, values: Any, look_back: int, horizon: int) -> None:
        self.values: Array = unmasked("values", values)
        if self.values.ndim != 2 or self.values.dtype.kind != "f":
            raise LoaderError(
                "a WindowDataset takes a floating array [rows, series]",
                f"{self.values.dtype}{list(self.values.shape)}",
                "for a single series: values[:, None]",
            )
        look_back, horizon = whole("WindowDataset", "look_back", look_back, 1), whole("WindowDataset", "horizon", horizon, 1)
        if len(self.values) < look_back + horizon:
            raise LoaderError(
                "look_back and horizon are together no longer than the series",
                f"look_back {look_back}, horizon {horizon}, {len(self.values)} rows",
                "shorten the windows, or bring more rows",
            )
        self.look_back, self.horizon = look_back, horizon

    def __len__(self) -> int:
        return len(self.values) - self.look_back - self.horizon + 1

    def __getitem__(self, index: int, /) -> tuple[Array, Array]:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        middle = index + self.look_back
        return self.values[index:middle], self.values[middle : middle + self.horizon]

    by_rows = True

    @property
    def overlap(self) -> int:
        """The number of windows after a window that have rows in common with it."""
        return self.look_back + self.horizon - 1

    def fetch(self, indices: Array) -> tuple[Array, Array]:
        """The windows ``indices`` (int64 [batch]): [batch, look_back, series] and [batch, horizon, series], new arrays.

        Args:
            indices: int64 [batch], each in [0, len).

        Raises:
            IndexError: An index lies outside [0, len).
        """
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"windows {indices.min()} to {indices.max()} of {len(self)}")
        rows = indices[:, None] + np.arange(self.look_back + self.horizon)
        return self.values.take(rows[:, : self.look_back], 0), self.values.take(rows[:, self.look_back :], 0)
