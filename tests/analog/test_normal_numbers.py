"""Normal numbers as tensors: which block of the stream each of them is from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.analog.normal_numbers import normal_of_block, normals, normals_of_rows
from firebrick.analog.typed_kernel import reads, results, typed_kernel

COLUMNS = (1, 2, 3, 4, 5, 7, 16, 25, 31, 33, 124, 127, 128, 129, 400)


@typed_kernel(
    "rows, columns", key=reads(fb.uint32, "4"), rows=int, columns=int, row=int, out=results(fb.float32, "rows, columns")
)
def each(key: Any, rows: Any, columns: Any, row: Any, out: Any) -> None:
    """Each number from its own block: those of a block are in the quarters of a row."""
    i, j = fb.kernel.index()
    blocks = (columns + 3) // 4
    out[i, j] = normal_of_block(key, (row + i) * blocks + j % blocks, j // blocks)


@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("columns", COLUMNS)
def test_the_blocks_of_a_row_follow_those_of_the_row_before(rows: int, columns: int) -> None:
    key = fb.random.Generator(3).key()
    fb.full((rows, columns), 7.0)  # memory of other values, which a number that is not stored would show
    found = normals_of_rows(key, rows, columns, 5, 9).numpy()
    assert found.tobytes() == each(key, rows, columns, (5 << 32) + 9).numpy().tobytes()
    assert normals(key, rows, columns, 2).numpy().tobytes() == each(key, rows, columns, 2 * rows).numpy().tobytes()
    compiled = fb.jit(lambda k: normals_of_rows(k, rows, columns, 5, 9))
    assert compiled(key).numpy().tobytes() == found.tobytes()


def test_a_row_has_the_same_numbers_whatever_rows_are_drawn_with_it() -> None:
    key = fb.random.Generator(4).key()
    for columns in COLUMNS:
        together = normals_of_rows(key, 37, columns, 1, 20).numpy()
        alone = [normals_of_rows(key, 1, columns, 1, 20 + i).numpy() for i in range(37)]
        assert together.tobytes() == np.concatenate(alone).tobytes()
