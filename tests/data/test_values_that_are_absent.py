"""What a data set, or a batch of it, cannot hold as a number is refused: masks, nulls, rows that nobody asked for, padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firebrick.data import ArrayDataset, DataLoader, LoaderError, SampleError, WindowDataset, pad_collate


def test_hidden_and_absent_values_are_refused() -> None:
    masked = np.ma.masked_values([1.0, -999.0, 3.0], -999.0)
    for made in (lambda: ArrayDataset(np.arange(3), masked), lambda: WindowDataset(masked[:, None], 1, 1)):
        with pytest.raises(LoaderError, match=r"a NumPy masked array(.|\n)*fill it first: x.filled\(value\)"):
            made()
    with pytest.raises(SampleError, match="a value of a sample: a NumPy masked array"):
        DataLoader([(masked, 1), (masked, 2)], 2).first()
    assert ArrayDataset(masked.filled(0.0)).arrays[0].tolist() == [1.0, 0.0, 3.0]
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(LoaderError, match=r"an array of Arrow with 1 nulls(.|\n)*fill_null"):
        ArrayDataset(pa.array([1, None, 3]))
    assert ArrayDataset(pa.array([1, 2, 3])).arrays[0].dtype == np.int64


@pytest.mark.parametrize(
    "given", [np.zeros(5), np.zeros(1), np.float32(0.0), (np.zeros(2), np.zeros(1)), {"x": np.zeros((3, 2))}], ids=repr
)
def test_fetch_gives_a_row_for_each_number(given: Any) -> None:
    class Wrong:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return np.float32(index)

        def fetch(self, indices: Any) -> Any:
            return given

    with pytest.raises(SampleError, match="fetch of 2 numbers gives arrays of 2 rows"):
        DataLoader(Wrong(), 2).first()


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.int64, -0.5), (np.int64, np.nan), (np.uint8, -1), (np.uint8, 256), (np.int8, np.inf), (bool, 2)]
)
def test_padding_is_a_value_of_the_dtype(dtype: Any, value: float) -> None:
    rows = [np.array([1, 0], dtype), np.array([1], dtype)]
    with pytest.raises(LoaderError, match=f"value is a number that {np.dtype(dtype)} has"):
        pad_collate(rows, value=value)
    assert pad_collate(rows, value=1)[0].tolist() == [[1, 0], [1, 1]]
    assert np.isnan(pad_collate([r.astype(np.float32) for r in rows], value=np.nan)[0][1, 1])
