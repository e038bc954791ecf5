"""GPU templates of sorts, scatters and windows: by the interpreter they compute what NumPy and torch do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from firebrick.compiler.kernel.language.calls import InlinedExpression
from firebrick.compiler.templates import digit_counts, digit_scatter, scan, segmented_scatter, window
from firebrick.compiler.templates.epilogues import add, larger
from firebrick.core.dtypes import float32, int32
from firebrick.scalar.expr import load

Array = np.ndarray[Any, Any]


def by_digits(keys: Array, **constants: int) -> tuple[Array, Array]:
    """Sorted keys, and where they were."""
    values = np.arange(keys.size, dtype=np.int32)
    exclusive = scan(add, 0.0).program({"x": "int32"}, group_size=32, vector=1, exclusive=True, of=int32)
    for shift in range(0, 32, 4):
        (counts,) = digit_counts().program({}, **constants, shift=shift).interpreted([keys], {}, checked=True)
        row = [counts.reshape(1, -1, 1), np.zeros(1, np.int32)]
        (starts,) = exclusive.interpreted(row, {}, checked=True)
        move = digit_scatter().program({}, **constants, shift=shift)
        keys, values = move.interpreted([keys, values, starts.reshape(counts.shape)], {}, checked=True)
    return keys, values


@pytest.mark.parametrize(("n", "group_size"), [(1, 32), (96, 32), (300, 32), (1009, 64), (1009, 160), (1600, 256)])
def test_keys_are_sorted_by_digits_and_equal_ones_stay_in_order(n: int, group_size: int) -> None:
    keys = np.random.default_rng(n).integers(0, 1 << 32, n, dtype=np.uint32)
    keys[::3] = keys[0]
    found, places = by_digits(keys, group_size=group_size, each=3)
    assert np.array_equal(found, np.sort(keys))
    assert np.array_equal(places, np.argsort(keys, kind="stable"))


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 32, 1), (7, 50, 5, 32, 4), (5, 0, 3, 64, 2), (3, 200, 1, 64, 1), (2, 9, 70, 32, 32)]
)
def test_rows_are_added_to_those_that_they_belong_to(sizes: tuple[int, ...]) -> None:
    rows, items, columns, size, across = sizes
    rng = np.random.default_rng(items)
    to = rng.integers(0, rows, items)
    order = np.argsort(to, kind="stable")
    starts = np.searchsorted(to[order], np.arange(rows + 1))
    target, values = (rng.integers(-9, 10, (n, columns)).astype(np.float32) for n in (rows, items))
    program = segmented_scatter(add, 0.0).program({"target": "float32"}, group_size=size, across=across, of=float32)
    (found,) = program.interpreted([target, values, order, starts], {}, checked=True)
    np.add.at(target, to, values)
    assert np.array_equal(found, target)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [((1, 1), (1, 1), 0), ((3, 2), (2, 1), 1), ((9, 8), (1, 1), 0)])
def test_windows_are_those_of_torch(kernel: tuple[int, int], stride: tuple[int, int], padding: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 9, 8)).astype(np.float32)
    constants = {"dilation_h": 1, "dilation_w": 1, "padding_h": padding, "padding_w": padding, "group_size": 32, "of": float32}
    constants |= {"kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1]}
    (found,) = window(larger, -np.inf).program({"x": "float32"}, **constants).interpreted([x], {}, checked=True)
    want = torch.nn.functional.max_pool2d(torch.tensor(x), kernel, stride, padding).numpy()
    assert np.array_equal(found.reshape(want.shape), want)


def test_elements_of_a_window_are_combined_in_their_order() -> None:
    x = np.arange(3 * 5 * 6, dtype=np.float32).reshape(3, 5, 6)
    constants = {"dilation_h": 1, "dilation_w": 1, "padding_h": 0, "padding_w": 0, "group_size": 32, "of": float32}
    constants |= {"kernel_h": 2, "kernel_w": 3, "stride_h": 1, "stride_w": 1}
    minus = InlinedExpression("minus", load(0, "float32") - load(1, "float32"))
    (found,) = window(minus, 100.0).program({"x": "float32"}, **constants).interpreted([x], {}, checked=True)
    want = 100 - sum(x[:, i : i + 4, j : j + 4] for i in range(2) for j in range(3))
    assert np.array_equal(found.reshape(want.shape), want)
