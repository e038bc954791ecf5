"""Kernels write nothing beside their results, whatever the length of the last vector and the dtype that is stored."""

from __future__ import annotations

import numpy as np
import pytest
from native_kernels import run_kernel, widths

from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.row import row_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import cast, load, reduce
from firebrick.scalar.storage import computed

LENGTHS = 1, 2, 3, 5, 9, 17, 33, 65
NARROWED = [
    ("float32", "bfloat16"), ("float32", "float16"), ("float64", "float32"), ("int64", "int32"), ("int64", "int8"),
    ("int32", "int16"), ("int32", "uint8"), ("float32", "bool"), ("int64", "bool"), ("float32", "float32"), ("int8", "int64"),
]  # fmt: skip


@pytest.mark.parametrize("target", widths(), ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize(("source", "to"), NARROWED)
@pytest.mark.parametrize("rows", [1, 3])
def test_what_lies_beside_a_result_stays(source: str, to: str, rows: int, target: Target) -> None:
    size = BufferView(to, ()).itemsize
    for n in LENGTHS:
        x = np.ones((rows, n), source)
        a = load(0, source)
        kernels = [
            map_kernel("k", (rows, n), [BufferView(source, (n, 1))], [(cast(a, computed(to)), BufferView(to, (n, 1)))], target)
        ]
        if source != "int8":
            e = cast(a + reduce("max", a), computed(to))
            kernels.append(row_kernel("k", (rows, n), [BufferView(source, (n, 1))], [(e, BufferView(to, (n, 1)))], target))
        for kernel in kernels:
            memory = np.full(rows * n * size + 256, 0xAB, np.uint8)
            run_kernel(kernel, [x, memory[128:]], target)
            assert (memory[:128] == 0xAB).all(), (n, kernel.text)
            assert (memory[-128:] == 0xAB).all(), (n, kernel.text)
            assert not (memory[128:-128].reshape(-1, size) == 0xAB).all(1).any()
