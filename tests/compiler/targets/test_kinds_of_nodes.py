"""How a processor computes a node, or why it has no kernel for it: a table of operations at the limits of their kernels."""

from __future__ import annotations

from typing import Any

import pytest

import firebrick as fb
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType
from firebrick.ir import Graph
from firebrick.ops import OPS


def array(*shape: int, dtype: DType = fb.float32) -> Aval:
    return Aval(shape, dtype)


def pooled(**changed: Any) -> dict[str, Any]:
    return {"kernel": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)} | changed


ROWS = {"axis": 1, "descending": False}
FIRST = {"axis": 0, "descending": False}
SCALED = {"scale": 1.0, "causal": False}
LINES = "sorts of many lines of {} elements, which the host computes faster"
MASK = array(1, 1, 3, 3, dtype=fb.bool)
Row = tuple[str, dict[str, Any], tuple[Aval, ...], str]
TABLE: list[Row] = [
    ("matmul", {}, (array(3, 4), array(4, 5)), "contract"),
    ("matmul", {}, (array(3, 4, dtype=fb.int32), array(4, 5, dtype=fb.int32)), "no contractions of int32"),
    ("matmul", {}, (array(3, 4, dtype=fb.complex64), array(4, 5, dtype=fb.complex64)), "no kernels of complex64"),
    ("matmul", {}, (array(0, 4), array(4, 5)), "no elements"),
    ("matmul", {}, (array(3, 4), array(4, 0)), "no elements"),
    ("attention", SCALED, (*[array(1, 2, 3, 4)] * 3, MASK), "alone"),
    ("attention", SCALED, (*[array(1, 2, 3, 4, dtype=fb.float64)] * 3, MASK), "alone"),
    ("attention", SCALED, (*[array(0, 2, 3, 4)] * 3, MASK), "no elements"),
    ("max_pool", pooled(), (array(1, 1, 8, 8),), "alone"),
    ("max_pool", pooled(), (array(1, 1, 8, 8, dtype=fb.int32),), "no windows of int32"),
    ("max_pool", pooled(), (array(0, 1, 8, 8),), "no elements"),
    ("max_pool", pooled(kernel=(8, 8)), (array(1, 1, 80, 80),), "alone"),
    ("max_pool", pooled(kernel=(13, 5)), (array(1, 1, 80, 80),), "windows of more than 64 elements"),
    ("max_pool", pooled(stride=(8, 8)), (array(1, 1, 80, 80),), "alone"),
    ("max_pool", pooled(stride=(5, 13)), (array(1, 1, 80, 80),), "windows of more than 64 elements"),
    ("max_pool", pooled(), (array(1, 1, 1 << 16, 1 << 15),), "images of 2³¹ elements"),
    ("max_pool", pooled(), (array(1, 1, 1 << 16, (1 << 15) - 1),), "alone"),
    ("max_pool", pooled(stride=(1, 1)), (array(1, 1, (1 << 16) + 1, 1 << 15),), "images of 2³¹ elements"),
    ("sort_values", FIRST, (array((1 << 31) - 1),), "alone"),
    ("sort_values", FIRST, (array(1 << 31),), f"sorts of {1 << 31} elements"),
    ("sort", ROWS, (array(4, 0),), "no elements"),
    ("sort", ROWS, (array(4, 3, dtype=fb.complex64),), "no kernels of complex64"),
    ("searchsorted", {"right": False}, (array(4, dtype=fb.complex64),) * 2, "no kernels of complex64"),
    ("multiply", {}, (array(4, dtype=fb.complex64),) * 2, "map"),
    ("sum", {"axes": (0,), "keepdims": False}, (array(4, dtype=fb.complex64),), "rows"),
    ("cumulative_sum", {"axis": 0, "reverse": False}, (array(4, dtype=fb.complex64),), "alone"),
    ("cumulative_prod", {"axis": 0, "reverse": False}, (array(4, dtype=fb.complex64),), "no kernels of complex64"),
    ("sort", ROWS, (array(1 << 13, 16),), "alone"),
    ("sort", ROWS, (array(1 << 13, 17),), LINES.format(17)),
    ("sort", ROWS, (array(1 << 12, 31),), "alone"),
    ("sort", ROWS, (array(1 << 12, 32),), LINES.format(32)),
    ("sort", ROWS, (array(1 << 12, 255),), LINES.format(255)),
    ("sort", ROWS, (array(1 << 12, 256),), "alone"),
    ("sort", ROWS, (array(1 << 12, 255, dtype=fb.float16),), LINES.format(255)),
    ("sort", ROWS, (array(1 << 12, 255, dtype=fb.float64),), "alone"),
    ("sort", ROWS, (array(1 << 12, 255, dtype=fb.int8),), "alone"),
    ("sort_values", ROWS, (array(1 << 12, (1 << 15) - 1),), LINES.format((1 << 15) - 1)),
    ("sort_values", ROWS, (array(1 << 12, 1 << 15),), "alone"),
    ("concat", {"axis": 0}, (array(2, 3), array(4, 3)), "alone"),
    ("concat", {"axis": 0}, (array(0, 3), array(0, 3)), "no elements"),
    ("concat", {"axis": 0}, (array(2, 3, dtype=fb.complex128),) * 2, "alone"),
    ("concat", {"axis": 0}, (array(2, 3, dtype=fb.float8_e5m2),) * 2, "no kernels of float8_e5m2"),
    ("cumulative_sum", {"axis": 0, "reverse": False}, (array(3),), "alone"),
    ("cumulative_sum", {"axis": 0, "reverse": False}, (array(0),), "no elements"),
    ("add", {}, (array(3), array(3)), "map"),
    ("add", {}, (array(3, dtype=fb.bool), array(3, dtype=fb.bool)), "add takes 2 operands of one dtype"),
    ("standardize", {"eps": 1e-5, "axes": (1,)}, (array(4, 300), array(300), array(300)), "several results"),
    ("qr", {"complete": False}, (array(3, 3),), "several results"),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(TABLE)), ids=lambda k: f"{TABLE[k][0]}-{k}")
def test_a_node_has_a_kernel_or_a_reason_why_it_has_none(row: int) -> None:
    name, params, operands, wanted = TABLE[row]
    graph = Graph(list(operands))
    graph.add(OPS[name], *range(len(operands)), **params)
    assert kind_of(graph.nodes[0], operands)[: len(wanted)] == wanted
