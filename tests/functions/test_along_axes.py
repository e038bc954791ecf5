"""A function along an axis gives for each row what it gives for that row alone, whatever is in the others."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import sample_arguments

import firebrick as fb

ROW = np.sin(np.arange(24, dtype=np.float32) * 1.7 + 0.3).reshape(4, 6)
ROWS = ROW * np.asarray([[1.0], [1e-3], [30.0], [0.1]], np.float32) + np.asarray(
    [[0.0], [0.0], [-2000.0], [2000.0]], np.float32
)
ORDERS = np.argsort(ROW, axis=1)
# what they do to an axis is no function of its rows
WITHOUT = {"expand_dims", "squeeze", "concat", "stack", "split", "take", "index_add", "index_copy", "unstack", "array_split",
           "chunk", "unfold", "repeat", "linalg.cross"}  # fmt: skip
CALLS = {
    c.name: c
    for c in (*sample_arguments.calls(), *sample_arguments.chapters())
    if "axis" in inspect.signature(c.function).parameters and c.name not in WITHOUT
}


def results(name: str, arrays: dict[str, Any], **settings: Any) -> list[np.ndarray[Any, Any]]:
    given = {k: fb.asarray(v, device="numpy") if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
    found = CALLS[name](given, **settings)
    return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]


def rows_of(name: str) -> dict[str, Any]:
    """Arguments in which each tensor of the sample that has the shape of the first one is rows."""
    sample = {k: v for k, v in CALLS[name].arrays.items() if k != "axis"}
    shape = next(v.shape for v in sample.values() if isinstance(v, np.ndarray))
    kinds = {"f": ROWS, "b": ROW > 0, "i": ORDERS}
    given = {k: kinds[v.dtype.kind] if isinstance(v, np.ndarray) and v.shape == shape else v for k, v in sample.items()}
    return given | ({"weights": np.abs(ROWS) + 1.0} if "weights" in given else {})


@pytest.mark.parametrize("name", CALLS)
def test_a_row_gives_the_same_alone_and_among_rows_of_other_sizes(name: str) -> None:
    given = rows_of(name)
    whole = {k for k, v in given.items() if isinstance(v, np.ndarray) and v.shape == ROWS.shape}
    assert whole
    across = results(name, given, axis=-1)
    down = results(name, {k: v.T.copy() if k in whole else v for k, v in given.items()}, axis=-2)
    first = 1 if "q" in given else 0
    for i in range(len(ROWS)):
        alone = results(name, {k: v[i].copy() if k in whole else v for k, v in given.items()}, axis=-1)
        size = 1e-6 * np.abs(ROWS[i]).max()
        for one, a, d in zip(alone, across, down, strict=True):
            for many in (np.take(a, i, first), np.take(d, i, -1)):
                np.testing.assert_allclose(many, one, rtol=2e-5, atol=size)


@pytest.mark.parametrize("name", [n for n, c in CALLS.items() if "keepdims" in inspect.signature(c.function).parameters])
def test_an_axis_is_kept_with_size_1_where_it_was(name: str) -> None:
    given = rows_of(name)
    for axis in (0, 1):
        (dropped,), (kept,) = (results(name, given, axis=axis, keepdims=k) for k in (False, True))
        assert kept.tobytes() == dropped.tobytes()
        assert kept.shape == (*dropped.shape[:-1], *((dropped.shape[-1], 1) if axis else (1, dropped.shape[-1])))
